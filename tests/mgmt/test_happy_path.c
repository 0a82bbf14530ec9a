/* The life of a request, from registration to the end of the session. */
#include "mgmt/harness.h"

static void store_lookup_retrieve_free_end(void **state)
{
	struct world world;
	struct chain chain = chain_named(1);
	struct client *scheduler, *worker;
	struct handle *s, *w;
	struct ask *ask;

	(void)state;
	world_init(&world, &(struct world_options){ .slots = 64 });
	scheduler = client_join(&world, 1);
	worker = client_join(&world, 1);
	assert_true(scheduler->opened && worker->opened);
	s = handle_scheduler(scheduler);
	w = handle_worker(worker);

	assert_int_equal(do_store(w, "a", &chain, 0, 5, STATUS_OK), 5);
	assert_int_equal(world_chunks(&world), 5);
	assert_int_equal(world_staged(&world), 0);
	do_end(w, "a");

	assert_int_equal(do_lookup(s, "b", &chain, 8, STATUS_OK), 5);
	assert_int_equal(world_locks(&world), 5);
	world_verify(&world);
	/* The scheduler frees what the engine has already; the worker retrieves the rest. */
	assert_int_equal(do_free(s, "b", 0, 2, WIRE_ALL_RANKS, STATUS_OK), 2);
	ask = ask_transfer(w, WIRE_RETRIEVE, "b", &chain, 2, 6);
	world_run(&world);
	assert_int_equal(ask->outcomes[0], CHUNK_DELIVERED);
	assert_int_equal(ask->outcomes[2], CHUNK_DELIVERED);
	assert_int_equal(ask->outcomes[3], CHUNK_MISSING);
	assert_int_equal(ask_expect(ask, STATUS_PARTIAL), 3);
	assert_int_equal(world_locks(&world), 0);
	assert_int_equal(world_pins(&world), 0);
	assert_int_equal(do_store(w, "b", &chain, 3, 5, STATUS_OK), 5);
	do_end(s, "b");
	do_end(s, "b");
	assert_int_equal(world_sessions(&world), 0);
	assert_int_equal(COUNTER(&world, lookup_chunks_total), 8);
	assert_int_equal(COUNTER(&world, lookup_hit_chunks_total), 5);
	assert_int_equal(COUNTER(&world, lookup_hit_tokens_total), 5 * CHUNK_TOKENS);
	assert_int_equal(COUNTER(&world, store_chunks_total), 8);
	assert_int_equal(COUNTER(&world, store_present_total), 2);
	world_fini(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(store_lookup_retrieve_free_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
