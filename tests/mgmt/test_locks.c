/* Read locks: who holds what, and that each goes exactly once. */
#include "mgmt/harness.h"

#include <stdio.h>
#include <string.h>

struct scene {
	struct world world;
	struct handle *scheduler, *worker;
	struct chain chain;
};

static void scene_init(struct scene *scene, uint32_t slots)
{
	world_init(&scene->world, &(struct world_options){ .slots = slots });
	scene->scheduler = handle_scheduler(client_join(&scene->world, 1));
	scene->worker = handle_worker(client_join(&scene->world, 1));
	scene->chain = chain_named(7);
}

static void stored(struct scene *scene, uint32_t count)
{
	assert_int_equal(do_store(scene->worker, "store", &scene->chain, 0, count, STATUS_OK), count);
	do_end(scene->worker, "store");
}

/* Fills L1 with other chunks as far as they go in; returns how many chunks of the scene's chain are still there. */
static uint32_t left_after_flood(struct scene *scene, struct handle *writer, uint32_t count)
{
	struct chain flood = chain_named(999);
	uint32_t left;

	for (uint32_t n = 0; n < scene->world.slots; n++) {
		struct ask *ask;

		flood.seed++;
		ask = ask_transfer(writer, WIRE_STORE, "flood", &flood, 0, 1);
		world_run(&scene->world);
		ask_free(ask);
		do_end(writer, "flood");
	}
	left = do_lookup(scene->scheduler, "left", &scene->chain, count, STATUS_OK);
	do_end(scene->scheduler, "left");
	return left;
}

/* The end of a session is a use of its whole chain, the last chunk first: L1 gives them up in that order, whichever of them
 * the session still held. */
static void the_end_of_a_session_leaves_the_chain_in_order_whatever_was_held(void **state)
{
	static const struct {
		uint32_t first, count; /* released before the end */
	} released[] = { { 0, 0 }, { 0, 8 }, { 0, 3 }, { 5, 3 }, { 2, 4 } };

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(released); i++) {
		for (uint32_t others = 1; others < 8; others += 3) {
			struct scene scene;
			struct ask *ask;

			scene_init(&scene, 8);
			stored(&scene, 8);
			assert_int_equal(do_lookup(scene.scheduler, "s", &scene.chain, 8, STATUS_OK), 8);
			if (released[i].count > 0) {
				ask = ask_new(scene.scheduler, WIRE_FREE_LOCKS, "s");
				ask->request.message.free_locks.first_chunk = released[i].first;
				ask->request.message.free_locks.chunk_count = released[i].count;
				ask->request.message.free_locks.rank = WIRE_ALL_RANKS;
				ask_send(ask);
				world_run(&scene.world);
				ask_expect(ask, STATUS_OK);
			}
			do_end(scene.scheduler, "s");
			assert_int_equal(world_locks(&scene.world), 0);
			for (uint32_t n = 0; n < others; n++) {
				struct chain other = chain_named(1000 + n);

				assert_int_equal(do_store(scene.worker, "o", &other, 0, 1, STATUS_OK), 1);
				do_end(scene.worker, "o");
			}
			assert_int_equal(do_lookup(scene.scheduler, "t", &scene.chain, 8, STATUS_OK), 8 - others);
			do_end(scene.scheduler, "t");
			world_fini(&scene.world);
		}
	}
}

static struct ask *salted_free(struct scene *scene, uint8_t salt, uint32_t count)
{
	struct ask *ask = ask_new(scene->scheduler, WIRE_FREE_LOCKS, "s");

	ask_with_salt(ask, salt);
	ask->request.message.free_locks.chunk_count = count;
	ask->request.message.free_locks.rank = WIRE_ALL_RANKS;
	ask_send(ask);
	world_run(&scene->world);
	return ask;
}

/* pitfalls A01 */
static void a_release_under_another_salt_is_an_error_and_releases_nothing(void **state)
{
	struct scene scene;
	struct ask *ask;

	(void)state;
	scene_init(&scene, 16);
	ask = ask_prepare_transfer(scene.worker, WIRE_STORE, "s", &scene.chain, 0, 4);
	ask_with_salt(ask, 1);
	ask_send(ask);
	world_run(&scene.world);
	assert_int_equal(ask_expect(ask, STATUS_OK), 4);
	ask = ask_new(scene.scheduler, WIRE_LOOKUP, "s");
	ask_with_salt(ask, 1);
	ask_with_chain(ask, &scene.chain, 0, 4);
	ask_send(ask);
	world_run(&scene.world);
	assert_int_equal(ask_expect(ask, STATUS_OK), 4);
	assert_int_equal(world_locks(&scene.world), 4);

	ask_expect(salted_free(&scene, 0, 4), STATUS_UNKNOWN_SESSION);
	assert_int_equal(world_locks(&scene.world), 4);
	assert_int_equal(COUNTER(&scene.world, lock_mismatches_total), 1);
	assert_int_equal(ask_expect(salted_free(&scene, 1, 4), STATUS_OK), 4);
	assert_int_equal(world_locks(&scene.world), 0);
	/* Double FREE. */
	ask_expect(salted_free(&scene, 1, 4), STATUS_NO_LOCK);
	assert_int_equal(COUNTER(&scene.world, lock_mismatches_total), 2);
	assert_int_equal(left_after_flood(&scene, scene.worker, 4), 0);
	world_fini(&scene.world);
}

/* pitfalls A02 */
static void sessions_that_end_before_any_retrieve_leave_nothing(void **state)
{
	struct scene scene;
	char name[32];

	(void)state;
	scene_init(&scene, 16);
	stored(&scene, 4);
	for (unsigned n = 0; n < 10000; n++) {
		snprintf(name, sizeof(name), "s%u", n);
		assert_int_equal(do_lookup(scene.scheduler, name, &scene.chain, 4, STATUS_OK), 4);
		do_end(scene.scheduler, name);
	}
	assert_int_equal(world_locks(&scene.world), 0);
	assert_int_equal(world_sessions(&scene.world), 0);
	do_end(scene.scheduler, "s1");
	assert_int_equal(COUNTER(&scene.world, sessions_ended_total), 10001);
	world_fini(&scene.world);
}

/* pitfalls A15 */
static void a_repeated_lookup_takes_no_second_set_of_locks(void **state)
{
	struct scene scene;
	struct ask *first, *second;

	(void)state;
	scene_init(&scene, 16);
	stored(&scene, 4);
	assert_int_equal(do_lookup(scene.scheduler, "s", &scene.chain, 4, STATUS_OK), 4);
	assert_int_equal(do_lookup(scene.scheduler, "s", &scene.chain, 4, STATUS_OK), 4);
	assert_int_equal(world_locks(&scene.world), 4);
	/* A shorter one gives the end of the longer one back. */
	assert_int_equal(do_lookup(scene.scheduler, "s", NULL, 2, STATUS_OK), 2);
	assert_int_equal(world_locks(&scene.world), 2);
	first = ask_lookup(scene.scheduler, "s", &scene.chain, 4);
	second = ask_lookup(scene.scheduler, "s", &scene.chain, 4);
	world_run(&scene.world);
	ask_expect(first, STATUS_OK);
	ask_expect(second, STATUS_OK);
	assert_int_equal(world_locks(&scene.world), 4);
	assert_int_equal(do_free(scene.scheduler, "s", 0, 4, WIRE_ALL_RANKS, STATUS_OK), 4);
	world_fini(&scene.world);
}

/* pitfalls A15: a million, of which each one's session is ended */
static void lookups_that_find_nothing_leave_no_state(void **state)
{
	struct scene scene;
	struct chain chain = chain_named(50);
	char name[32];

	(void)state;
	scene_init(&scene, 16);
	for (unsigned n = 0; n < 20000; n++) {
		snprintf(name, sizeof(name), "s%u", n);
		chain.seed++;
		assert_int_equal(do_lookup(scene.scheduler, name, &chain, 1, STATUS_OK), 0);
		do_end(scene.scheduler, name);
	}
	assert_int_equal(world_sessions(&scene.world), 0);
	/* Without END_SESSION the oldest that holds nothing makes room. */
	for (unsigned n = 0; n < 1000; n++) {
		snprintf(name, sizeof(name), "t%u", n);
		chain.seed++;
		assert_int_equal(do_lookup(scene.scheduler, name, &chain, 1, STATUS_OK), 0);
	}
	assert_int_equal(world_sessions(&scene.world), 64);
	assert_int_equal(COUNTER(&scene.world, sessions_recycled_total), 1000 - 64);
	world_fini(&scene.world);
}

static void sessions_that_hold_locks_are_not_recycled(void **state)
{
	struct scene scene;
	char name[32];

	(void)state;
	scene_init(&scene, 16);
	stored(&scene, 1);
	for (unsigned n = 0; n < 64; n++) {
		snprintf(name, sizeof(name), "s%u", n);
		assert_int_equal(do_lookup(scene.scheduler, name, &scene.chain, 1, STATUS_OK), 1);
	}
	do_lookup(scene.scheduler, "one more", &scene.chain, 1, STATUS_BUSY);
	assert_int_equal(COUNTER(&scene.world, busy_total), 1);
	assert_int_equal(do_free(scene.scheduler, "s5", 0, 1, WIRE_ALL_RANKS, STATUS_OK), 1);
	assert_int_equal(do_lookup(scene.scheduler, "one more", &scene.chain, 1, STATUS_OK), 1);
	do_free(scene.scheduler, "s5", 0, 1, WIRE_ALL_RANKS, STATUS_UNKNOWN_SESSION);
	world_fini(&scene.world);
}

/* pitfalls A04: one hold, one owner, one end */
static void a_failed_retrieve_leaves_the_locks_of_others(void **state)
{
	struct scene scene;
	struct handle *other;
	struct ask *ask;

	(void)state;
	scene_init(&scene, 16);
	other = handle_scheduler(client_join(&scene.world, 1));
	stored(&scene, 5);
	assert_int_equal(do_lookup(scene.scheduler, "p", &scene.chain, 5, STATUS_OK), 5);
	assert_int_equal(do_lookup(other, "q", &scene.chain, 5, STATUS_OK), 5);
	scene.world.hold = true;
	ask = ask_transfer(scene.worker, WIRE_RETRIEVE, "p", &scene.chain, 0, 5);
	world_run(&scene.world);
	assert_int_equal(world_locks(&scene.world), 5);
	assert_int_equal(world_pins(&scene.world), 5);
	ask_finish(ask, CHUNK_FAILED);
	world_run(&scene.world);
	assert_int_equal(ask->outcomes[3], CHUNK_FAILED);
	assert_int_equal(ask_expect(ask, STATUS_PARTIAL), 0);
	scene.world.hold = false;
	assert_int_equal(world_pins(&scene.world), 0);
	assert_int_equal(world_locks(&scene.world), 5);
	assert_int_equal(left_after_flood(&scene, scene.worker, 5), 5);
	assert_int_equal(do_retrieve(scene.worker, "q", &scene.chain, 0, 5, STATUS_OK), 5);
	world_fini(&scene.world);
}

static const struct model_of four_ranks = { .name = "tp4", .dtype = "fp8", .tenant = 1, .world_size = 4, .readers = 1 };
static const struct model_of four_readers = {
	.name = "mla", .dtype = "fp8", .tenant = 1, .world_size = 1, .readers = 4
};

/* pitfalls A05 */
static void each_rank_releases_its_own_share_only(void **state)
{
	struct world world;
	struct handle *scheduler, *rank[4];
	struct chain chain = chain_named(3);

	(void)state;
	world_init(&world, &(struct world_options){ .slots = 32 });
	scheduler = handle_make(client_join(&world, 1), &four_ranks, 0, 0, 0);
	for (uint32_t r = 0; r < 4; r++)
		rank[r] = handle_make(client_join(&world, 1), &four_ranks, r, 0, OBJECT_BYTES);
	for (uint32_t r = 0; r < 4; r++) {
		/* The prefix is there when all ranks have stored it. */
		assert_int_equal(do_lookup(scheduler, "early", &chain, 2, STATUS_OK), 0);
		assert_int_equal(do_store(rank[r], "store", &chain, 0, 2, STATUS_OK), 2);
	}
	assert_int_equal(do_lookup(scheduler, "bystander", &chain, 2, STATUS_OK), 2);
	for (uint32_t failing = 0; failing < 4; failing++) {
		assert_int_equal(do_lookup(scheduler, "s", &chain, 2, STATUS_OK), 2);
		assert_int_equal(world_locks(&world), 16);
		for (uint32_t r = 0; r < 4; r++) {
			struct ask *ask;

			world.hold = true;
			ask = ask_transfer(rank[r], WIRE_RETRIEVE, "s", &chain, 0, 2);
			world_run(&world);
			ask_finish(ask, r == failing ? CHUNK_FAILED : CHUNK_DELIVERED);
			world.hold = false;
			world_run(&world);
			ask_free(ask);
			assert_int_equal(world_locks(&world), 16 - 2 * (r + 1));
		}
		/* Nothing is left for the rank that failed, or for any other. */
		do_free(scheduler, "s", 0, 2, failing, STATUS_NO_LOCK);
		do_free(scheduler, "s", 0, 2, WIRE_ALL_RANKS, STATUS_NO_LOCK);
		assert_int_equal(world_locks(&world), 8);
		world_verify(&world);
		do_end(scheduler, "s");
	}
	assert_int_equal(do_free(scheduler, "bystander", 1, 1, 2, STATUS_OK), 1);
	assert_int_equal(do_free(scheduler, "bystander", 0, 2, WIRE_ALL_RANKS, STATUS_OK), 7);
	do_free(scheduler, "bystander", 0, 2, 4, STATUS_INVALID_RANGE);
	world_fini(&world);
}

/* pitfalls A06 */
static void a_chunk_stays_until_its_last_reader(void **state)
{
	struct scene scene;
	struct handle *reader[4];

	(void)state;
	world_init(&scene.world, &(struct world_options){ .slots = 8 });
	scene.chain = chain_named(3);
	scene.scheduler = handle_make(client_join(&scene.world, 1), &four_readers, 0, 0, 0);
	for (uint32_t r = 0; r < 4; r++)
		reader[r] = handle_make(client_join(&scene.world, 1), &four_readers, 0, r, OBJECT_BYTES);
	assert_int_equal(do_store(reader[0], "store", &scene.chain, 0, 2, STATUS_OK), 2);
	do_end(reader[0], "store");
	assert_int_equal(do_lookup(scene.scheduler, "s", &scene.chain, 2, STATUS_OK), 2);
	assert_int_equal(world_locks(&scene.world), 8);
	for (uint32_t r = 0; r < 4; r++) {
		assert_int_equal(left_after_flood(&scene, reader[0], 2), 2);
		assert_int_equal(do_retrieve(reader[r], "s", &scene.chain, 0, 2, STATUS_OK), 2);
		assert_int_equal(world_locks(&scene.world), 2 * (3 - r));
	}
	assert_int_equal(left_after_flood(&scene, reader[0], 2), 0);
	world_fini(&scene.world);
}

static void locks_reach_their_time_limit(void **state)
{
	struct scene scene;

	(void)state;
	scene_init(&scene, 8);
	stored(&scene, 4);
	assert_int_equal(do_lookup(scene.scheduler, "s", &scene.chain, 4, STATUS_OK), 4);
	world_pass(&scene.world, 299 * KVR_SECOND);
	assert_int_equal(world_locks(&scene.world), 4);
	world_pass(&scene.world, 2 * KVR_SECOND);
	assert_int_equal(world_locks(&scene.world), 0);
	assert_int_equal(COUNTER(&scene.world, locks_expired_total), 4);
	do_free(scene.scheduler, "s", 0, 4, WIRE_ALL_RANKS, STATUS_NO_LOCK);
	/* The limit made them evictable, no more: what is still there is delivered. */
	assert_int_equal(do_retrieve(scene.worker, "s", &scene.chain, 0, 4, STATUS_OK), 4);
	/* A LOOKUP begins anew. */
	assert_int_equal(do_lookup(scene.scheduler, "s", &scene.chain, 4, STATUS_OK), 4);
	world_pass(&scene.world, 299 * KVR_SECOND);
	assert_int_equal(world_locks(&scene.world), 4);
	world_fini(&scene.world);
}

static void a_lookup_without_locks_only_counts(void **state)
{
	struct scene scene;
	struct ask *ask;

	(void)state;
	scene_init(&scene, 8);
	stored(&scene, 4);
	for (unsigned n = 0; n < 2; n++) {
		ask = ask_new(scene.scheduler, WIRE_LOOKUP, "s");
		ask->request.message.lookup.header.flags = LOOKUP_NO_LOCK;
		ask_with_chain(ask, &scene.chain, 0, 6);
		ask_send(ask);
		world_run(&scene.world);
		assert_int_equal(ask_expect(ask, STATUS_OK), 4);
		/* The second time those of the LOOKUP between stay as they are. */
		assert_int_equal(world_locks(&scene.world), n * 4);
		assert_int_equal(do_lookup(scene.scheduler, "s", NULL, 0, STATUS_OK), 4);
	}
	world_fini(&scene.world);
}

static void skipped_chunks_give_their_locks_back(void **state)
{
	struct scene scene;
	struct ask *ask;

	(void)state;
	scene_init(&scene, 8);
	stored(&scene, 4);
	assert_int_equal(do_lookup(scene.scheduler, "s", &scene.chain, 4, STATUS_OK), 4);
	ask = ask_prepare_transfer(scene.worker, WIRE_RETRIEVE, "s", &scene.chain, 0, 4);
	ask->request.message.transfer.skip_tokens = 2 * CHUNK_TOKENS + 40;
	ask_send(ask);
	world_run(&scene.world);
	assert_int_equal(ask->outcomes[0], CHUNK_SKIPPED);
	assert_int_equal(ask->outcomes[1], CHUNK_SKIPPED);
	assert_int_equal(ask->outcomes[2], CHUNK_DELIVERED);
	assert_int_equal(ask_expect(ask, STATUS_OK), 4);
	assert_int_equal(world_locks(&scene.world), 0);
	world_fini(&scene.world);
}

static void long_chains_are_locked_and_released_in_slices(void **state)
{
	struct scene scene;
	struct ask *ask;
	unsigned turns = 0;

	(void)state;
	world_init(&scene.world, &(struct world_options){ .slots = 300 });
	scene.scheduler = handle_scheduler(client_join(&scene.world, 1));
	scene.worker = handle_make(client_join(&scene.world, 1), &plain_model, 0, 0, 4096);
	scene.chain = chain_named(7);
	for (uint32_t first = 0; first < 4096; first += 1024)
		assert_int_equal(do_store(scene.worker, "store", &scene.chain, first, 1024, STATUS_OK), 1024);
	do_end(scene.worker, "store");
	ask = ask_lookup(scene.scheduler, "s", &scene.chain, 4096);
	while (!ask->replied) {
		world_turn(&scene.world);
		world_verify(&scene.world);
		turns++;
	}
	assert_true(turns >= 4);
	assert_int_equal(ask_expect(ask, STATUS_OK), 4096);
	assert_int_equal(world_locks(&scene.world), 4096);
	assert_int_equal(do_retrieve(scene.worker, "s", &scene.chain, 96, 4000, STATUS_OK), 4000);
	assert_int_equal(world_locks(&scene.world), 96);
	assert_int_equal(do_lookup(scene.scheduler, "s", NULL, 0, STATUS_OK), 4096);
	assert_int_equal(do_free(scene.scheduler, "s", 1, 4095, WIRE_ALL_RANKS, STATUS_OK), 4095);
	assert_int_equal(do_lookup(scene.scheduler, "s", NULL, 0, STATUS_OK), 4096);
	/* END_SESSION in the middle of a search. */
	ask = ask_lookup(scene.scheduler, "s", NULL, 0);
	world_turn(&scene.world);
	assert_false(ask->replied);
	do_end(scene.scheduler, "s");
	ask_expect(ask, STATUS_CANCELED);
	assert_int_equal(world_locks(&scene.world), 0);
	world_fini(&scene.world);
}

/* The whole chain counts as used, its last chunks as the least recent of it. */
static void the_end_of_a_session_makes_its_chain_the_most_recent(void **state)
{
	struct scene scene;
	struct chain old = chain_named(1), between = chain_named(2), more = chain_named(3);

	(void)state;
	scene_init(&scene, 12);
	assert_int_equal(do_store(scene.worker, "a", &old, 0, 4, STATUS_OK), 4);
	do_end(scene.worker, "a");
	assert_int_equal(do_store(scene.worker, "b", &between, 0, 4, STATUS_OK), 4);
	do_end(scene.worker, "b");
	/* A session that looks at the chain without holding it, and ends. */
	assert_int_equal(do_lookup(scene.scheduler, "c", &old, 4, STATUS_OK), 4);
	assert_int_equal(do_free(scene.scheduler, "c", 0, 4, WIRE_ALL_RANKS, STATUS_OK), 4);
	assert_int_equal(do_lookup(scene.scheduler, "d", &between, 4, STATUS_OK), 4);
	assert_int_equal(do_free(scene.scheduler, "d", 0, 4, WIRE_ALL_RANKS, STATUS_OK), 4);
	do_end(scene.scheduler, "d");
	do_end(scene.scheduler, "c");
	assert_int_equal(do_store(scene.worker, "e", &more, 0, 6, STATUS_OK), 6);
	assert_int_equal(do_lookup(scene.scheduler, "f", &old, 4, STATUS_OK), 4);
	assert_int_equal(do_lookup(scene.scheduler, "g", &between, 4, STATUS_OK), 2);
	world_fini(&scene.world);
}

static void chain_memory_is_taken_from_sessions_that_hold_nothing(void **state)
{
	struct scene scene;
	struct chain chain = chain_named(1);

	(void)state;
	/* One segment of 64 chunks more than the longest chain has. */
	world_init(&scene.world, &(struct world_options){ .slots = 16, .chain_chunks_max = 64 });
	scene.scheduler = handle_scheduler(client_join(&scene.world, 1));
	scene.worker = handle_worker(client_join(&scene.world, 1));
	scene.chain = chain_named(7);
	stored(&scene, 1);
	do_lookup(scene.scheduler, "short", &chain, 64, STATUS_OK);
	do_lookup(scene.scheduler, "long", &scene.chain, 4096, STATUS_OK);
	assert_int_equal(world_locks(&scene.world), 1);
	/* The long one holds a lock, and the short one may not be recycled to make room for itself. */
	do_lookup(scene.scheduler, "short", &chain, 128, STATUS_BUSY);
	do_lookup(scene.scheduler, "another", &chain, 128, STATUS_BUSY);
	world_verify(&scene.world);
	assert_int_equal(world_sessions(&scene.world), 1);
	do_lookup(scene.scheduler, "short", &chain, 64, STATUS_OK);
	assert_int_equal(do_free(scene.scheduler, "long", 0, 1, WIRE_ALL_RANKS, STATUS_OK), 1);
	do_lookup(scene.scheduler, "short", &chain, 128, STATUS_OK);
	do_free(scene.scheduler, "long", 0, 1, WIRE_ALL_RANKS, STATUS_UNKNOWN_SESSION);
	world_fini(&scene.world);
}

static void a_session_is_not_ended_under_another_chain(void **state)
{
	struct scene scene;
	struct chain other = chain_named(70);
	struct ask *ask, *end;

	(void)state;
	scene_init(&scene, 16);
	stored(&scene, 4);
	assert_int_equal(do_lookup(scene.scheduler, "s", &scene.chain, 4, STATUS_OK), 4);
	end = ask_new(scene.scheduler, WIRE_END_SESSION, "s");
	ask_with_chain(end, &other, 0, 4);
	ask_send(end);
	ask = ask_new(scene.scheduler, WIRE_LOOKUP, "u");
	ask_with_chain(ask, &other, 0, 4);
	memset(ask->parent, 1, sizeof(ask->parent));
	ask_send(ask);
	world_run(&scene.world);
	ask_expect(end, STATUS_CHAIN_MISMATCH);
	ask_expect(ask, STATUS_CHAIN_MISMATCH);
	assert_int_equal(world_locks(&scene.world), 4);
	assert_int_equal(world_sessions(&scene.world), 1);
	/* More than a chain can have. */
	do_lookup(scene.scheduler, "s", NULL, 5, STATUS_INVALID_RANGE);
	ask = ask_new(scene.scheduler, WIRE_LOOKUP, "s");
	ask_with_chain(ask, &scene.chain, 4, 4093);
	ask_send(ask);
	world_run(&scene.world);
	ask_expect(ask, STATUS_TOO_BIG);
	world_fini(&scene.world);
}

static void salts_that_nobody_uses_make_room(void **state)
{
	struct scene scene;
	char name[16];

	(void)state;
	world_init(&scene.world, &(struct world_options){ .slots = 16, .sessions_max = 200 });
	scene.scheduler = handle_scheduler(client_join(&scene.world, 1));
	scene.chain = chain_named(7);
	/* More than the chunk table keeps spaces for. */
	for (unsigned n = 0; n < 200; n++) {
		struct ask *ask;

		snprintf(name, sizeof(name), "s%u", n);
		ask = ask_new(scene.scheduler, WIRE_LOOKUP, name);
		ask_with_salt(ask, (uint8_t)n);
		ask_with_chain(ask, &scene.chain, 0, 1);
		ask_send(ask);
		world_run(&scene.world);
		assert_int_equal(ask_expect(ask, STATUS_OK), 0);
	}
	assert_int_equal(world_sessions(&scene.world), 64);
	world_fini(&scene.world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_end_of_a_session_leaves_the_chain_in_order_whatever_was_held),
		cmocka_unit_test(a_release_under_another_salt_is_an_error_and_releases_nothing),
		cmocka_unit_test(sessions_that_end_before_any_retrieve_leave_nothing),
		cmocka_unit_test(a_repeated_lookup_takes_no_second_set_of_locks),
		cmocka_unit_test(lookups_that_find_nothing_leave_no_state),
		cmocka_unit_test(sessions_that_hold_locks_are_not_recycled),
		cmocka_unit_test(a_failed_retrieve_leaves_the_locks_of_others),
		cmocka_unit_test(each_rank_releases_its_own_share_only),
		cmocka_unit_test(a_chunk_stays_until_its_last_reader),
		cmocka_unit_test(locks_reach_their_time_limit),
		cmocka_unit_test(a_lookup_without_locks_only_counts),
		cmocka_unit_test(skipped_chunks_give_their_locks_back),
		cmocka_unit_test(the_end_of_a_session_makes_its_chain_the_most_recent),
		cmocka_unit_test(chain_memory_is_taken_from_sessions_that_hold_nothing),
		cmocka_unit_test(a_session_is_not_ended_under_another_chain),
		cmocka_unit_test(salts_that_nobody_uses_make_room),
		cmocka_unit_test(long_chains_are_locked_and_released_in_slices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
