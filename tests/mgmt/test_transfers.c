/* STORE and RETRIEVE: staging, publishing, memory, and what is said about each chunk. */
#include "mgmt/harness.h"

#include <stdio.h>
#include <string.h>

struct scene {
	struct world world;
	struct handle *scheduler, *worker, *other;
	struct chain chain;
};

static void scene_init_with(struct scene *scene, const struct world_options *options)
{
	world_init(&scene->world, options);
	scene->scheduler = handle_scheduler(client_join(&scene->world, 1));
	scene->worker = handle_worker(client_join(&scene->world, 1));
	scene->other = handle_worker(client_join(&scene->world, 1));
	scene->chain = chain_named(11);
}

static void scene_init(struct scene *scene, uint32_t slots)
{
	scene_init_with(scene, &(struct world_options){ .slots = slots });
}

static struct ask *held_store(
	struct scene *scene, struct handle *handle, const char *session, uint32_t first, uint32_t count)
{
	struct ask *ask;

	scene->world.hold = true;
	ask = ask_transfer(handle, WIRE_STORE, session, &scene->chain, first, count);
	world_run(&scene->world);
	return ask;
}

static uint32_t hits(struct scene *scene, uint32_t count)
{
	uint32_t hit = do_lookup(scene->scheduler, "probe", &scene->chain, count, STATUS_OK);

	do_end(scene->scheduler, "probe");
	return hit;
}

static void a_store_is_invisible_until_it_is_whole(void **state)
{
	struct scene scene;
	struct ask *ask;

	(void)state;
	scene_init(&scene, 16);
	ask = held_store(&scene, scene.worker, "a", 0, 4);
	assert_int_equal(world_staged(&scene.world), 4);
	assert_int_equal(hits(&scene, 4), 0);
	world_verify(&scene.world);
	ask_finish(ask, CHUNK_STORED);
	world_run(&scene.world);
	assert_int_equal(ask_expect(ask, STATUS_OK), 4);
	assert_int_equal(hits(&scene, 4), 4);
	world_fini(&scene.world);
}

/* pitfalls A10, A11, A12: what does not arrive is given back and never seen */
static void a_store_that_fails_publishes_nothing(void **state)
{
	struct scene scene;
	struct ask *ask;

	(void)state;
	scene_init(&scene, 16);
	for (unsigned n = 0; n < 100; n++) {
		ask = held_store(&scene, scene.worker, "a", 0, 10);
		assert_int_equal(hits(&scene, 10), 0);
		ask_finish(ask, CHUNK_FAILED);
		while (!ask->replied) {
			world_turn(&scene.world);
			world_verify(&scene.world);
		}
		assert_int_equal(ask->outcomes[9], CHUNK_FAILED);
		assert_int_equal(ask_expect(ask, STATUS_PARTIAL), 0);
		assert_int_equal(hits(&scene, 10), 0);
		assert_int_equal(world_staged(&scene.world), 0);
	}
	assert_int_equal(COUNTER(&scene.world, store_failed_total), 1000);
	world_fini(&scene.world);
}

/* pitfalls A07 */
static void a_transfer_that_ends_twice_ends_once(void **state)
{
	struct scene scene;
	struct ask *ask;
	struct ring_message again;
	unsigned lines;

	(void)state;
	scene_init(&scene, 16);
	assert_int_equal(do_store(scene.worker, "a", &scene.chain, 0, 4, STATUS_OK), 4);
	scene.world.hold = true;
	ask = ask_transfer(scene.worker, WIRE_RETRIEVE, "a", &scene.chain, 0, 4);
	world_run(&scene.world);
	ask_finish(ask, CHUNK_DELIVERED);
	again = (struct ring_message){ .kind = TO_MANAGEMENT_TRANSFER_DONE,
		.word = { (uint64_t)(uintptr_t)&ask->request } };
	log_expect_begin(&lines);
	for (unsigned n = 0; n < 2; n++)
		assert_true(ring_push(&scene.world.mailbox->to_management, &again));
	world_run(&scene.world);
	log_expect_end();
	assert_int_equal(lines, 2);
	assert_int_equal(ask_expect(ask, STATUS_OK), 4);
	assert_int_equal(world_pins(&scene.world), 0);
	world_fini(&scene.world);
}

/* pitfalls A13 */
static void what_was_acknowledged_is_found(void **state)
{
	struct scene scene;
	char name[32];

	(void)state;
	scene_init(&scene, 16);
	for (unsigned n = 0; n < 1000; n++) {
		snprintf(name, sizeof(name), "s%u", n);
		scene.chain.seed++;
		assert_int_equal(do_store(n % 2 ? scene.worker : scene.other, name, &scene.chain, 0, 2, STATUS_OK), 2);
		assert_int_equal(do_lookup(scene.scheduler, name, NULL, 0, STATUS_OK), 2);
		do_end(scene.scheduler, name);
	}
	world_fini(&scene.world);
}

/* pitfalls A14 */
static void many_writers_of_one_chunk_leave_one_whole_object(void **state)
{
	struct scene scene;
	struct ask *store[8], *retrieve;
	unsigned published = 0;

	(void)state;
	scene_init(&scene, 32);
	scene.world.hold = true;
	for (unsigned n = 0; n < 8; n++) {
		char name[32];

		snprintf(name, sizeof(name), "s%u", n);
		store[n] = ask_prepare_transfer(
			n % 2 ? scene.worker : scene.other, WIRE_STORE, name, &scene.chain, 0, 1);
		store[n]->fill = n + 1;
		ask_send(store[n]);
	}
	world_run(&scene.world);
	assert_int_equal(world_staged(&scene.world), 8);
	/* The first to publish is not the first to come. */
	for (unsigned n = 8; n > 0; n--) {
		ask_finish(store[n - 1], n == 7 ? CHUNK_FAILED : CHUNK_STORED);
		world_run(&scene.world);
		retrieve = ask_transfer(scene.worker, WIRE_RETRIEVE, "reader", &scene.chain, 0, 1);
		world_run(&scene.world);
		ask_finish(retrieve, CHUNK_DELIVERED);
		world_run(&scene.world);
		assert_int_equal(ask_expect(retrieve, STATUS_OK), 1);
		published += store[n - 1]->outcomes[0] == CHUNK_STORED;
		assert_true(store[n - 1]->outcomes[0] ==
			(n == 8                  ? CHUNK_STORED
					: n == 7 ? CHUNK_FAILED
						 : CHUNK_PRESENT));
		ask_expect(store[n - 1], n == 7 ? STATUS_PARTIAL : STATUS_OK);
	}
	assert_int_equal(published, 1);
	assert_int_equal(world_chunks(&scene.world), 1);
	assert_int_equal(scene.world.wrong_bytes, 0);
	world_fini(&scene.world);
}

/* pitfalls B07: the reply of the one that lives does not depend on the one that died */
static void a_writer_that_dies_half_way_harms_no_other(void **state)
{
	struct scene scene;
	struct ask *dying, *living;

	(void)state;
	scene_init(&scene, 16);
	dying = held_store(&scene, scene.worker, "a", 0, 3);
	living = held_store(&scene, scene.other, "b", 0, 3);
	scene.world.hold_closed = true;
	client_fail(scene.worker->client);
	world_run(&scene.world);
	/* Its queue pair is not gone yet: its memory is not reused. */
	assert_int_equal(world_staged(&scene.world), 6);
	ask_finish(living, CHUNK_STORED);
	world_run(&scene.world);
	assert_int_equal(ask_expect(living, STATUS_OK), 3);
	assert_int_equal(world_staged(&scene.world), 3);
	ask_finish(dying, CHUNK_FAILED);
	world_run(&scene.world);
	ask_free(dying);
	assert_int_equal(world_staged(&scene.world), 0);
	scene.world.hold = false;
	assert_int_equal(do_retrieve(scene.other, "c", &scene.chain, 0, 3, STATUS_OK), 3);
	world_fini(&scene.world);
}

/* pitfalls D03 */
static void a_store_evicts_what_it_needs_and_no_more(void **state)
{
	struct scene scene;
	struct chain big = chain_named(77);
	uint64_t evicted;

	(void)state;
	scene_init(&scene, 28);
	assert_int_equal(do_store(scene.worker, "a", &scene.chain, 0, 18, STATUS_OK), 18);
	do_end(scene.worker, "a");
	assert_int_equal(do_store(scene.worker, "b", &big, 0, 11, STATUS_OK), 11);
	do_end(scene.worker, "b");
	evicted = cache_get_counters(scene.world.cache)->evicted_chunks;
	assert_int_equal(evicted, 1);
	/* The last chunk of the oldest chain went. */
	assert_int_equal(hits(&scene, 18), 17);
	big.seed++;
	do_store(scene.worker, "c", &big, 0, 29, STATUS_NO_MEMORY);
	assert_int_equal(cache_get_counters(scene.world.cache)->evicted_chunks, evicted);
	assert_int_equal(COUNTER(&scene.world, store_no_memory_total), 29);
	world_fini(&scene.world);
}

static void memory_goes_from_one_model_to_another(void **state)
{
	const struct model_of small = { "small", "fp8", 1, 1, 1 }, large = { "large", "fp8", 1, 1, 1 };
	struct world world;
	struct chain chain = chain_named(3);
	struct handle *handle[2];

	(void)state;
	world_init(&world, &(struct world_options){ .slots = 64 });
	handle[0] = handle_make(client_join(&world, 1), &small, 0, 0, 4096);
	handle[1] = handle_make(client_join(&world, 1), &large, 0, 0, 16 * OBJECT_BYTES);
	for (unsigned round = 0; round < 3; round++) {
		assert_int_equal(do_store(handle[0], "s", &chain, 0, 1024, STATUS_OK), 1024);
		assert_int_equal(do_lookup(handle[0], "s", NULL, 0, STATUS_OK), 1024);
		/* All of it is locked: no chunk of the other model fits. */
		do_store(handle[1], "l", &chain, 0, 3, STATUS_NO_MEMORY);
		do_end(handle[0], "s");
		assert_int_equal(do_store(handle[1], "l", &chain, 0, 3, STATUS_OK), 3);
		do_end(handle[1], "l");
		chain.seed++;
	}
	world_fini(&world);
}

/* pitfalls D08 */
static void a_store_into_memory_that_is_all_locked_fails_at_once(void **state)
{
	struct scene scene;
	struct chain more = chain_named(88);
	struct ask *ask;

	(void)state;
	scene_init(&scene, 8);
	assert_int_equal(do_store(scene.worker, "a", &scene.chain, 0, 8, STATUS_OK), 8);
	assert_int_equal(do_lookup(scene.scheduler, "a", NULL, 0, STATUS_OK), 8);
	do_store(scene.worker, "b", &more, 0, 2, STATUS_NO_MEMORY);
	/* Chunks that are there are told apart from those that do not fit. */
	ask = ask_transfer(scene.worker, WIRE_STORE, "c", &scene.chain, 0, 10);
	world_run(&scene.world);
	assert_int_equal(ask->outcomes[7], CHUNK_PRESENT);
	assert_int_equal(ask->outcomes[8], CHUNK_NO_MEMORY);
	assert_int_equal(ask_expect(ask, STATUS_PARTIAL), 8);
	assert_int_equal(hits(&scene, 8), 8);
	do_free(scene.scheduler, "a", 0, 8, WIRE_ALL_RANKS, STATUS_OK);
	assert_int_equal(do_store(scene.worker, "b", &more, 0, 2, STATUS_OK), 2);
	world_fini(&scene.world);
}

/* pitfalls D13: memory that a transfer reads or writes is nobody's victim */
static void eviction_takes_nothing_that_is_being_moved(void **state)
{
	struct scene scene;
	struct chain more = chain_named(88);
	struct ask *retrieve, *store;

	(void)state;
	scene_init(&scene, 8);
	assert_int_equal(do_store(scene.worker, "a", &scene.chain, 0, 4, STATUS_OK), 4);
	do_end(scene.worker, "a");
	assert_int_equal(do_store(scene.worker, "b", &more, 0, 4, STATUS_OK), 4);
	do_end(scene.worker, "b");
	scene.world.hold = true;
	retrieve = ask_transfer(scene.worker, WIRE_RETRIEVE, "a", &scene.chain, 0, 4);
	world_run(&scene.world);
	more.seed++;
	store = ask_transfer(scene.other, WIRE_STORE, "c", &more, 0, 4);
	world_run(&scene.world);
	ask_finish(store, CHUNK_STORED);
	world_run(&scene.world);
	assert_int_equal(ask_expect(store, STATUS_OK), 4);
	/* All that is not pinned is new, and pinned things are all that is left. */
	more.seed++;
	store = ask_transfer(scene.other, WIRE_STORE, "d", &more, 0, 5);
	world_run(&scene.world);
	ask_expect(store, STATUS_NO_MEMORY);
	ask_finish(retrieve, CHUNK_DELIVERED);
	world_run(&scene.world);
	assert_int_equal(ask_expect(retrieve, STATUS_OK), 4);
	assert_int_equal(scene.world.wrong_bytes, 0);
	world_fini(&scene.world);
}

static void a_store_does_not_evict_the_beginning_of_its_own_chain(void **state)
{
	struct scene scene;
	struct chain more = chain_named(88);

	(void)state;
	scene_init(&scene, 8);
	assert_int_equal(do_store(scene.worker, "a", &scene.chain, 0, 4, STATUS_OK), 4);
	do_end(scene.worker, "a");
	assert_int_equal(do_store(scene.worker, "b", &more, 0, 4, STATUS_OK), 4);
	do_end(scene.worker, "b");
	/* The chain's own chunks are the least recently used now. */
	assert_int_equal(do_store(scene.worker, "c", &scene.chain, 0, 8, STATUS_OK), 8);
	assert_int_equal(COUNTER(&scene.world, store_present_total), 4);
	assert_int_equal(hits(&scene, 8), 8);
	world_fini(&scene.world);
}

/* pitfalls D15 */
static void hot_prefixes_stay_hits_while_others_write(void **state)
{
	struct scene scene;
	struct chain hot = chain_named(5), cold = chain_named(5000);
	char name[32];

	(void)state;
	scene_init(&scene, 32);
	assert_int_equal(do_store(scene.worker, "hot", &hot, 0, 8, STATUS_OK), 8);
	do_end(scene.worker, "hot");
	for (unsigned n = 0; n < 500; n++) {
		struct ask *lookup, *store;

		snprintf(name, sizeof(name), "cold%u", n);
		cold.seed++;
		store = ask_transfer(n % 2 ? scene.worker : scene.other, WIRE_STORE, name, &cold, 0, 8);
		lookup = ask_lookup(scene.scheduler, "hot", &hot, 8);
		world_run(&scene.world);
		assert_int_equal(ask_expect(lookup, STATUS_OK), 8);
		assert_int_equal(ask_expect(store, STATUS_OK), 8);
		do_end(scene.scheduler, "hot");
		do_end(scene.worker, name);
	}
	world_fini(&scene.world);
}

static void null_chunks_are_skipped(void **state)
{
	struct scene scene;
	struct block_run runs[3] = { { 0, BLOCKS }, { WIRE_NULL_BLOCK, BLOCKS }, { 100, BLOCKS } };
	struct ask *ask;

	(void)state;
	scene_init(&scene, 8);
	ask = ask_prepare_transfer(scene.worker, WIRE_STORE, "a", &scene.chain, 0, 3);
	ask->group_runs = 3;
	ask->request.message.transfer.run_count = 3;
	ask->request.message.transfer.runs = (const uint8_t *)runs;
	ask_send(ask);
	world_run(&scene.world);
	assert_int_equal(ask->outcomes[0], CHUNK_STORED);
	assert_int_equal(ask->outcomes[1], CHUNK_SKIPPED);
	assert_int_equal(ask->outcomes[2], CHUNK_STORED);
	assert_int_equal(ask_expect(ask, STATUS_OK), 3);
	assert_int_equal(hits(&scene, 3), 1);
	world_fini(&scene.world);
}

static void wrong_blocks_ranges_and_chains_are_refused_by_name(void **state)
{
	struct scene scene;
	struct chain other = chain_named(12);
	struct ask *ask;

	(void)state;
	scene_init(&scene, 8);
	ask = ask_prepare_transfer(scene.worker, WIRE_STORE, "a", &scene.chain, 0, 2);
	ask->run.start = 1000000 - 1;
	ask_send(ask);
	world_run(&scene.world);
	ask_expect(ask, STATUS_INVALID_BLOCK);
	assert_int_equal(do_store(scene.worker, "a", &scene.chain, 0, 2, STATUS_OK), 2);
	ask = ask_prepare_transfer(scene.worker, WIRE_RETRIEVE, "a", &scene.chain, 0, 2);
	ask->request.message.transfer.first_chunk = 1;
	ask_send(ask);
	world_run(&scene.world);
	ask_expect(ask, STATUS_INVALID_RANGE);
	other.fork = 1;
	other.fork_seed = scene.chain.seed;
	ask = ask_transfer(scene.worker, WIRE_STORE, "a", &other, 0, 2);
	world_run(&scene.world);
	assert_non_null(strstr(ask->request.reply.text, "another chunk 1:"));
	ask_expect(ask, STATUS_CHAIN_MISMATCH);
	assert_int_equal(COUNTER(&scene.world, chain_mismatches_total), 1);
	/* No session, no chain. */
	ask = ask_prepare_transfer(scene.worker, WIRE_RETRIEVE, "nobody", &scene.chain, 0, 2);
	ask->request.message.transfer.session.digest_count = 0;
	ask_send(ask);
	world_run(&scene.world);
	ask_expect(ask, STATUS_UNKNOWN_SESSION);
	/* A new session's chain begins at its beginning, and has no gap. */
	ask = ask_prepare_transfer(scene.worker, WIRE_RETRIEVE, "nobody", &scene.chain, 2, 2);
	ask_with_chain(ask, &scene.chain, 2, 2);
	ask_send(ask);
	world_run(&scene.world);
	ask_expect(ask, STATUS_INVALID_RANGE);
	ask = ask_prepare_transfer(scene.worker, WIRE_RETRIEVE, "a", &scene.chain, 3, 2);
	ask_with_chain(ask, &scene.chain, 3, 2);
	ask_send(ask);
	world_run(&scene.world);
	ask_expect(ask, STATUS_INVALID_RANGE);
	/* An extension in the middle whose parent agrees is taken; one whose parent does not is not. */
	ask = ask_prepare_transfer(scene.worker, WIRE_STORE, "a", &scene.chain, 2, 2);
	ask_with_chain(ask, &other, 2, 2);
	ask_send(ask);
	world_run(&scene.world);
	ask_expect(ask, STATUS_CHAIN_MISMATCH);
	ask = ask_prepare_transfer(scene.worker, WIRE_STORE, "a", &scene.chain, 2, 2);
	ask_with_chain(ask, &scene.chain, 2, 2);
	ask_send(ask);
	world_run(&scene.world);
	assert_int_equal(ask_expect(ask, STATUS_OK), 2);
	/* A scheduler has no memory. */
	do_store(scene.scheduler, "a", &scene.chain, 0, 2, STATUS_NOT_REGISTERED);
	world_fini(&scene.world);
}

static void too_many_large_requests_are_told_to_come_again(void **state)
{
	struct scene scene;
	struct ask *ask[5];

	(void)state;
	world_init(&scene.world, &(struct world_options){ .slots = 40, .large_requests = 4 });
	scene.worker = handle_make(client_join(&scene.world, 1), &plain_model, 0, 0, 4096);
	scene.world.hold = true;
	for (unsigned n = 0; n < 5; n++) {
		char name[8];

		snprintf(name, sizeof(name), "s%u", n);
		scene.chain = chain_named(100 + n);
		ask[n] = ask_transfer(scene.worker, WIRE_STORE, name, &scene.chain, 0, 100);
	}
	world_run(&scene.world);
	ask_expect(ask[4], STATUS_BUSY);
	for (unsigned n = 0; n < 4; n++) {
		ask_finish(ask[n], CHUNK_STORED);
		world_run(&scene.world);
		assert_int_equal(ask[n]->outcomes[99], CHUNK_STORED);
		assert_int_equal(ask_expect(ask[n], STATUS_OK), 100);
	}
	scene.world.hold = false;
	assert_int_equal(do_store(scene.worker, "s4", &scene.chain, 0, 100, STATUS_OK), 100);
	world_fini(&scene.world);
}

static void a_cancel_is_answered_when_its_target_is(void **state)
{
	struct scene scene;
	struct ask *store, *cancel[2], *of_cancel;

	(void)state;
	scene_init(&scene, 16);
	store = held_store(&scene, scene.worker, "a", 0, 4);
	cancel[0] = ask_cancel(scene.worker, store);
	cancel[1] = ask_cancel(scene.worker, store);
	of_cancel = ask_cancel(scene.worker, cancel[0]);
	world_run(&scene.world);
	assert_true(store->aborted);
	assert_false(store->replied || cancel[0]->replied || cancel[1]->replied);
	ask_expect(of_cancel, STATUS_UNKNOWN_REQUEST);
	assert_int_equal(world_staged(&scene.world), 4);
	ask_finish(store, CHUNK_CANCELED);
	world_run(&scene.world);
	assert_true(store->replied_turn < cancel[0]->replied_turn && store->replied_turn < cancel[1]->replied_turn);
	ask_expect(cancel[0], STATUS_OK);
	ask_expect(cancel[1], STATUS_OK);
	cancel[0] = ask_cancel(scene.worker, store);
	ask_expect(store, STATUS_CANCELED);
	world_run(&scene.world);
	ask_expect(cancel[0], STATUS_UNKNOWN_REQUEST);
	/* One connection cannot cancel what another one asked for. */
	store = held_store(&scene, scene.worker, "b", 0, 4);
	cancel[0] = ask_cancel(scene.other, store);
	world_run(&scene.world);
	ask_expect(cancel[0], STATUS_UNKNOWN_REQUEST);
	assert_false(store->aborted);
	/* What had arrived before the abort counts. */
	cancel[0] = ask_cancel(scene.worker, store);
	world_run(&scene.world);
	ask_finish(store, CHUNK_STORED);
	world_run(&scene.world);
	assert_int_equal(ask_expect(store, STATUS_OK), 4);
	ask_expect(cancel[0], STATUS_OK);
	world_fini(&scene.world);
}

static void a_cancel_of_a_request_still_being_prepared_gives_everything_back(void **state)
{
	struct scene scene;
	struct ask *ask, *cancel;

	(void)state;
	world_init(&scene.world, &(struct world_options){ .slots = 300 });
	scene.worker = handle_make(client_join(&scene.world, 1), &plain_model, 0, 0, 4096);
	scene.chain = chain_named(7);
	for (unsigned turns = 1; turns < 12; turns++) {
		bool store = turns % 2;

		ask = ask_transfer(scene.worker, store ? WIRE_STORE : WIRE_RETRIEVE, "a", &scene.chain, 0, 4096);
		for (unsigned n = 0; n < turns; n++)
			world_turn(&scene.world);
		cancel = ask_cancel(scene.worker, ask);
		world_run(&scene.world);
		ask_free(ask);
		ask_free(cancel);
		assert_int_equal(world_staged(&scene.world), 0);
		assert_int_equal(world_pins(&scene.world), 0);
		world_verify(&scene.world);
	}
	world_fini(&scene.world);
}

static void one_request_id_is_in_flight_once(void **state)
{
	struct scene scene;
	struct ask *store, *twin;

	(void)state;
	scene_init(&scene, 16);
	store = held_store(&scene, scene.worker, "a", 0, 4);
	twin = ask_new(scene.worker, WIRE_END_SESSION, "a");
	twin->request.header.request_id = store->request.header.request_id;
	ask_send(twin);
	world_run(&scene.world);
	ask_expect(twin, STATUS_DUPLICATE_REQUEST);
	ask_finish(store, CHUNK_STORED);
	world_run(&scene.world);
	ask_expect(store, STATUS_OK);
	world_fini(&scene.world);
}

/* The reply of a RETRIEVE may be there before the server has done with it; with it the id is the client's again. */
static void an_id_whose_reply_is_out_may_be_used_again(void **state)
{
	struct ask *retrieve, *twin, *cancel;
	struct scene scene;

	(void)state;
	scene_init(&scene, 16);
	assert_int_equal(do_store(scene.worker, "a", &scene.chain, 0, 4, STATUS_OK), 4);
	scene.world.hold = true;
	retrieve = ask_transfer(scene.worker, WIRE_RETRIEVE, "a", &scene.chain, 0, 4);
	world_run(&scene.world);
	scene.world.hold = false;
	assert_true(retrieve->out && retrieve->request.transfer.early);
	twin = ask_new(scene.worker, WIRE_END_SESSION, "a");
	twin->request.header.request_id = retrieve->request.header.request_id;
	ask_send(twin);
	world_run(&scene.world);
	ask_expect(twin, STATUS_DUPLICATE_REQUEST);

	kvr_store_relaxed(&retrieve->request.transfer.answered, 1);
	cancel = ask_cancel(scene.worker, retrieve);
	world_run(&scene.world);
	ask_expect(cancel, STATUS_UNKNOWN_REQUEST);
	scene.world.hold = true;
	twin = ask_new(scene.worker, WIRE_END_SESSION, "a");
	twin->request.header.request_id = retrieve->request.header.request_id;
	ask_send(twin);
	world_run(&scene.world);
	ask_expect(twin, STATUS_OK);
	scene.world.hold = false;
	ask_finish(retrieve, CHUNK_DELIVERED);
	world_run(&scene.world);
	assert_int_equal(ask_expect(retrieve, STATUS_OK), 4);
	world_fini(&scene.world);
}

static void a_session_that_ends_lets_its_store_finish(void **state)
{
	struct scene scene;
	struct ask *store;

	(void)state;
	scene_init(&scene, 16);
	assert_int_equal(do_store(scene.worker, "a", &scene.chain, 0, 2, STATUS_OK), 2);
	assert_int_equal(do_lookup(scene.scheduler, "a", &scene.chain, 2, STATUS_OK), 2);
	store = held_store(&scene, scene.worker, "a", 2, 4);
	do_end(scene.scheduler, "a");
	assert_int_equal(world_locks(&scene.world), 0);
	assert_int_equal(world_sessions(&scene.world), 1);
	world_verify(&scene.world);
	/* The name is free at once, for another chain too. */
	scene.chain.seed++;
	assert_int_equal(do_lookup(scene.scheduler, "a", &scene.chain, 2, STATUS_OK), 0);
	scene.chain.seed--;
	do_end(scene.scheduler, "a");
	ask_finish(store, CHUNK_STORED);
	world_run(&scene.world);
	assert_int_equal(ask_expect(store, STATUS_OK), 4);
	assert_int_equal(world_sessions(&scene.world), 0);
	assert_int_equal(hits(&scene, 6), 6);
	world_fini(&scene.world);
}

static void a_table_that_cannot_grow_makes_stores_wait_and_then_say_so(void **state)
{
	struct scene scene;
	struct ask *ask;

	(void)state;
	world_init(&scene.world, &(struct world_options){ .slots = 300, .chunks_initial = 1, .no_memory = true });
	scene.worker = handle_make(client_join(&scene.world, 1), &plain_model, 0, 0, 4096);
	scene.chain = chain_named(7);
	ask = ask_transfer(scene.worker, WIRE_STORE, "a", &scene.chain, 0, 4096);
	world_run(&scene.world);
	if (ask->replied) {
		print_message("the table took %u chunks without growing\n", ask->request.reply.first);
		ask_free(ask);
		world_fini(&scene.world);
		return;
	}
	world_verify(&scene.world);
	/* The memory comes in time. */
	scene.world.no_memory = false;
	world_pass(&scene.world, KVR_SECOND);
	assert_int_equal(ask_expect(ask, STATUS_OK), 4096);
	world_fini(&scene.world);

	world_init(&scene.world, &(struct world_options){ .slots = 300, .chunks_initial = 1, .no_memory = true });
	scene.worker = handle_make(client_join(&scene.world, 1), &plain_model, 0, 0, 4096);
	ask = ask_transfer(scene.worker, WIRE_STORE, "a", &scene.chain, 0, 4096);
	world_run(&scene.world);
	assert_false(ask->replied);
	world_pass(&scene.world, 6 * KVR_SECOND);
	assert_int_equal(ask->outcomes[0], CHUNK_NO_MEMORY);
	assert_int_equal(ask->outcomes[4095], CHUNK_STORED);
	ask_expect(ask, STATUS_PARTIAL);
	world_fini(&scene.world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_store_is_invisible_until_it_is_whole),
		cmocka_unit_test(a_store_that_fails_publishes_nothing),
		cmocka_unit_test(a_transfer_that_ends_twice_ends_once),
		cmocka_unit_test(what_was_acknowledged_is_found),
		cmocka_unit_test(many_writers_of_one_chunk_leave_one_whole_object),
		cmocka_unit_test(a_writer_that_dies_half_way_harms_no_other),
		cmocka_unit_test(a_store_evicts_what_it_needs_and_no_more),
		cmocka_unit_test(memory_goes_from_one_model_to_another),
		cmocka_unit_test(a_store_into_memory_that_is_all_locked_fails_at_once),
		cmocka_unit_test(eviction_takes_nothing_that_is_being_moved),
		cmocka_unit_test(a_store_does_not_evict_the_beginning_of_its_own_chain),
		cmocka_unit_test(hot_prefixes_stay_hits_while_others_write),
		cmocka_unit_test(null_chunks_are_skipped),
		cmocka_unit_test(wrong_blocks_ranges_and_chains_are_refused_by_name),
		cmocka_unit_test(too_many_large_requests_are_told_to_come_again),
		cmocka_unit_test(a_cancel_is_answered_when_its_target_is),
		cmocka_unit_test(a_cancel_of_a_request_still_being_prepared_gives_everything_back),
		cmocka_unit_test(one_request_id_is_in_flight_once),
		cmocka_unit_test(an_id_whose_reply_is_out_may_be_used_again),
		cmocka_unit_test(a_session_that_ends_lets_its_store_finish),
		cmocka_unit_test(a_table_that_cannot_grow_makes_stores_wait_and_then_say_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
