/* test_requests.c - requests that are wrong, early, late, twice, or in each other's way. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "client/client_private.h"
#include "protocol/status.h"
#include "world/slice.h"

#define CHUNKS 5u
#define BLOCKS (CHUNKS * SLICE_BLOCKS_PER_CHUNK)

static struct slice slice;
static struct slice_request request, other;
static struct slice_client *const first = &slice.clients[0], *const second = &slice.clients[1];

static struct kvr_session *begin(unsigned clients)
{
	struct kvr_session *session;

	slice_start(&slice, 31, NULL, 1u << 20);
	for (unsigned i = 0; i < clients; i++)
		slice_join(&slice, i, "model", 1, 0);
	session = slice_session(first, "request", NULL, 1, CHUNKS);
	assert_int_equal(slice_store(first, session, 0, CHUNKS, 0, 1, &request), 0);
	return session;
}

static int submit(struct kvr_session *session, bool store, uint32_t first_chunk, uint32_t count, const uint32_t *ids,
	uint32_t skip, struct kvr_result *result)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { ids, count * SLICE_BLOCKS_PER_CHUNK };
	kvr_ticket ticket;
	int error;

	transfer.first_chunk = first_chunk;
	transfer.chunk_count = count;
	transfer.skip_tokens = skip;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	transfer.outcomes = request.outcomes;
	error = client_submit_transfer(session, store, &transfer, &ticket);
	return error ? error : slice_wait(&slice, first->client, ticket, result);
}

static void a_retrieve_without_a_lookup_takes_its_own_holds(void **state)
{
	struct kvr_session *session, *longer;

	(void)state;
	session = begin(2);
	longer = slice_session(second, "other", NULL, 1, CHUNKS + 3); /* three chunks more than there are */
	assert_int_equal(slice_retrieve(second, longer, 0, CHUNKS + 3, 100, &request), 0);
	assert_int_equal(request.result.status, STATUS_PARTIAL);
	for (uint32_t c = 0; c < CHUNKS + 3; c++)
		assert_int_equal(request.outcomes[c], c < CHUNKS ? KVR_DELIVERED : KVR_MISSING);
	for (uint32_t i = CHUNKS * SLICE_BLOCKS_PER_CHUNK; i < (CHUNKS + 3) * SLICE_BLOCKS_PER_CHUNK; i++)
		assert_true(slice_poisoned(second, request.ids[i]));
	assert_int_equal(slice_locks(&slice), 0);
	slice_forget(&session);
	slice_stop(&slice);
}

static void block_ids_out_of_range_are_refused_and_nothing_is_written(void **state)
{
	struct kvr_session *session;
	struct kvr_result result;
	uint32_t ids[BLOCKS];

	(void)state;
	session = begin(1);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		ids[i] = 100 + i;
		slice_poison(first, ids[i]);
	}
	for (uint32_t wrong = 0; wrong < BLOCKS; wrong += 7) {
		ids[wrong] = SLICE_BLOCKS;
		assert_int_equal(submit(session, false, 0, CHUNKS, ids, 0, &result), -EFAULT);
		assert_int_equal(result.status, STATUS_INVALID_BLOCK);
		assert_int_equal(submit(session, true, 0, CHUNKS, ids, 0, &result), -EFAULT);
		ids[wrong] = 100 + wrong;
	}
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_true(slice_poisoned(first, ids[i]));
	assert_int_equal(submit(session, false, 0, CHUNKS, ids, 0, &result), 0);
	slice_stop(&slice);
}

static void ranges_outside_the_chain_are_refused(void **state)
{
	struct kvr_session *session;
	struct kvr_result result;
	uint32_t ids[BLOCKS] = { 0 };

	(void)state;
	session = begin(1);
	for (uint32_t i = 0; i < BLOCKS; i++)
		ids[i] = i;
	assert_int_equal(submit(session, false, 1, CHUNKS, ids, 0, &result), -ERANGE);
	assert_int_equal(submit(session, false, UINT32_MAX, 1, ids, 0, &result), -ERANGE);
	assert_int_equal(submit(session, false, 0, 0, ids, 0, &result), -EINVAL);
	assert_int_equal(slice_free(first, session, 3, 3, true, &result), -ERANGE);
	assert_int_equal(result.status, STATUS_INVALID_RANGE);
	assert_int_equal(submit(session, false, 0, 2, ids, 2 * SLICE_CHUNK_TOKENS + 1, &result), -ERANGE);
	assert_int_equal(slice_ping(first), 0);
	slice_stop(&slice);
}

static void skipped_and_null_blocks_are_left_alone(void **state)
{
	struct kvr_session *session;
	struct kvr_result result;
	uint32_t ids[BLOCKS];

	(void)state;
	session = begin(1);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		ids[i] = i % 5 == 4 ? KVR_NULL_BLOCK : 100 + i;
		slice_poison(first, 100 + i);
	}
	/* The first chunk, and a block and a half of the second. */
	assert_int_equal(submit(session, false, 0, CHUNKS, ids, SLICE_CHUNK_TOKENS + 6, &result), 0);
	assert_int_equal(request.outcomes[0], KVR_SKIPPED);
	assert_int_equal(request.outcomes[1], KVR_DELIVERED);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		if (i < SLICE_BLOCKS_PER_CHUNK + 1 || i % 5 == 4)
			assert_true(slice_poisoned(first, 100 + i));
		else
			assert_true(slice_holds(first, 100 + i, 1, i));
	}
	slice_stop(&slice);
}

static void a_session_id_with_another_chain_is_an_error_that_names_the_chunk(void **state)
{
	struct kvr_session *session, *fork;
	struct kvr_result result;

	(void)state;
	session = begin(2);
	fork = slice_session(second, "request", NULL, 2, CHUNKS);
	assert_int_equal(slice_lookup(second, fork, 0, &result), -EEXIST);
	assert_int_equal(result.status, STATUS_CHAIN_MISMATCH);
	assert_non_null(strstr(result.text, "chunk 0"));
	assert_int_equal(slice_store(second, fork, 0, CHUNKS, 0, 2, &request), -EEXIST);
	/* The first one is as it was. */
	assert_int_equal(slice_match(first, session, 0), CHUNKS);
	/* After its end the id is free. */
	assert_int_equal(slice_end(first, session), 0);
	assert_int_equal(slice_lookup(second, fork, 0, &result), 0);
	assert_int_equal(result.chunks, 0);
	slice_stop(&slice);
}

/* A worker that was not told never gets the chunks of another chain. */
static void a_session_begun_anew_with_another_chain_is_not_taken_for_the_old_one(void **state)
{
	struct kvr_session *session, *worker, *fork;

	(void)state;
	session = begin(2);
	worker = slice_session(second, "request", NULL, 1, CHUNKS);
	assert_int_equal(
		slice_retrieve(second, worker, 0, CHUNKS, 100, &request), 0); /* now it knows that the server knows */
	assert_int_equal(slice_end(first, session), 0);
	slice_forget(&session);
	fork = slice_session(first, "request", NULL, 2, CHUNKS);
	assert_int_equal(slice_store(first, fork, 0, CHUNKS, 0, 2, &request), 0);
	assert_int_equal(slice_retrieve(second, worker, 0, CHUNKS, 100, &request), -EEXIST);
	assert_int_equal(request.result.status, STATUS_CHAIN_MISMATCH);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_true(slice_poisoned(second, request.ids[i]));
	slice_stop(&slice);
}

static void a_session_that_another_process_ended_is_begun_again_by_itself(void **state)
{
	struct kvr_session *session, *worker, *shorter;

	(void)state;
	session = begin(2);
	worker = slice_session(second, "request", NULL, 1, CHUNKS + 2);
	assert_int_equal(slice_retrieve(second, worker, 0, CHUNKS, 100, &request), 0);
	assert_int_equal(slice_end(first, session), 0);
	assert_int_equal(slice_store(second, worker, CHUNKS, 2, 100, 1, &request), 0);
	slice_outcomes_are(&request, KVR_STORED);
	/* And anew with fewer chunks than the worker believes. */
	assert_int_equal(slice_end(first, session), 0);
	slice_forget(&session);
	shorter = slice_session(first, "request", NULL, 1, 2);
	assert_int_equal(slice_match(first, shorter, 0), 2);
	assert_int_equal(slice_retrieve(second, worker, 0, CHUNKS + 2, 100, &request), 0);
	slice_outcomes_are(&request, KVR_DELIVERED);
	slice_stop(&slice);
}

static void end_twice_and_while_a_store_runs(void **state)
{
	struct kvr_session *session, *look;

	(void)state;
	for (unsigned turns = 0; turns < 24; turns += 2) {
		kvr_ticket tickets[2];
		struct kvr_result result;

		slice_start(&slice, 32 + turns, NULL, 1u << 20);
		slice_join(&slice, 0, "model", 1, 0);
		session = slice_session(first, "request", NULL, 1, CHUNKS);
		slice_submit_store(first, session, 0, CHUNKS, 0, 1, &request);
		slice_run(&slice, turns);
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(client_submit_end(session, &tickets[i]), 0);
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(slice_wait(&slice, first->client, tickets[i], &result), 0);
		/* What was accepted comes to its end. */
		assert_int_equal(slice_finish(first, &request), 0);
		slice_outcomes_are(&request, KVR_STORED);
		look = slice_session(first, "look", NULL, 1, CHUNKS);
		assert_int_equal(slice_match(first, look, 0), CHUNKS);
		slice_stop(&slice);
	}
}

/* pitfalls C05: after the reply to a canceled request nothing of it lands any more. */
static void a_canceled_retrieve_never_writes_late(void **state)
{
	struct sim_options slow;
	unsigned canceled = 0;

	(void)state;
	sim_options_default(&slow);
	slow.pieces_max = 16;
	slow.delay_max_ns = 60 * KVR_US;
	slow.completion_max_ns = 60 * KVR_US;
	for (unsigned turns = 0; turns < 60; turns++) {
		struct kvr_session *session;

		slice_start(&slice, 60 + turns, &slow, 1u << 20);
		slice_join(&slice, 0, "model", 1, 0);
		session = slice_session(first, "request", NULL, 1, CHUNKS);
		assert_int_equal(slice_store(first, session, 0, CHUNKS, 0, 1, &request), 0);
		slice_submit_retrieve(first, session, 0, CHUNKS, 100, &request);
		slice_run(&slice, turns);
		assert_int_equal(client_submit_cancel(first->client, request.ticket), 0);
		(void)slice_finish(first, &request);
		for (uint32_t c = 0; c < CHUNKS; c++) {
			canceled += request.outcomes[c] == KVR_CANCELED || request.result.error == -ECANCELED;
			if (!request.result.error && request.outcomes[c] == KVR_DELIVERED)
				assert_true(slice_delivered(first, &request, c, 1));
		}
		for (uint32_t i = 0; i < BLOCKS; i++)
			slice_poison(first, request.ids[i]);
		slice_pass(&slice, 5 * KVR_MS);
		for (uint32_t i = 0; i < BLOCKS; i++)
			assert_true(slice_poisoned(first, request.ids[i]));
		assert_int_equal(slice_retrieve(first, session, 0, CHUNKS, 100, &request), 0);
		slice_stop(&slice);
	}
	assert_true(canceled > 0);
}

static void a_canceled_store_stores_all_of_a_chunk_or_nothing(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 40; turns++) {
		struct kvr_session *session;
		uint32_t matched;

		slice_start(&slice, 130 + turns, NULL, 1u << 20);
		slice_join(&slice, 0, "model", 1, 0);
		session = slice_session(first, "request", NULL, 1, CHUNKS);
		slice_submit_store(first, session, 0, CHUNKS, 0, 1, &request);
		slice_run(&slice, turns);
		assert_int_equal(client_submit_cancel(first->client, request.ticket), 0);
		(void)slice_finish(first, &request);
		slice_forget(&session);
		session = slice_session(first, "look", NULL, 1, CHUNKS);
		matched = slice_match(first, session, 0);
		if (matched > 0) {
			assert_int_equal(slice_retrieve(first, session, 0, matched, 100, &other), 0);
			for (uint32_t c = 0; c < matched; c++)
				assert_true(slice_delivered(first, &other, c, 1));
		}
		slice_stop(&slice);
	}
}

/* UNREGISTER waits for the transfers: after it the memory is the client's. */
static void unregistering_under_transfers_gives_the_memory_back_whole(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 40; turns++) {
		struct slice_model model;
		struct kvr_session *session;
		struct kvr_result result;
		kvr_ticket ticket;

		session = begin(1);
		slice_submit_retrieve(first, session, 0, CHUNKS, 100, &request);
		slice_run(&slice, turns);
		assert_int_equal(client_submit_unregister(first->client, first->registration, &ticket), 0);
		assert_int_equal(slice_wait(&slice, first->client, ticket, &result), 0);
		memset(first->pool, 0xee, first->pool_bytes);
		(void)slice_finish(first, &request);
		slice_pass(&slice, KVR_MS);
		for (uint32_t block = 0; block < SLICE_BLOCKS; block++)
			assert_true(slice_poisoned(first, block));
		slice_forget(&session);
		/* And comes back, with other planes under another name. */
		slice_model_default(&model);
		model.name = "other";
		model.planes = 2;
		assert_int_equal(slice_register(first, &model), 0);
		session = slice_session(first, "request", NULL, 1, CHUNKS);
		assert_int_equal(slice_match(first, session, 0), 0);
		slice_stop(&slice);
	}
}

/* Memory of kvr_alloc may be given back while the server is still being told to forget it. */
static void memory_is_freed_at_any_moment_behind_an_unregister(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 40; turns += 2) {
		struct kvr_plane plane = { NULL, SLICE_BLOCK_BYTES, SLICE_BLOCK_BYTES };
		struct kvr_group group = { SLICE_BLOCK_TOKENS, KVR_WINDOW_FULL, 16, 1, &plane };
		struct kvr_layout layout = { sizeof(layout), 1, &group };
		struct kvr_model model = KVR_MODEL_INIT;
		struct kvr_result result;
		uint32_t registration;
		kvr_ticket ticket;
		void *memory;

		slice_start(&slice, 180 + turns, NULL, 1u << 20);
		slice_create_client(&slice, 0, 0);
		slice_await_ready(first);
		assert_int_equal(kvr_alloc(first->client, 65536, &memory), 0);
		plane.address = memory;
		model.name = "model";
		model.dtype = "uint8";
		assert_int_equal(
			client_submit_register(first->client, &model, &layout, NULL, &registration, &ticket), 0);
		assert_int_equal(slice_wait(&slice, first->client, ticket, &result), 0);
		assert_int_equal(kvr_free(first->client, memory), -EBUSY);
		assert_int_equal(client_submit_unregister(first->client, registration, &ticket), 0);
		assert_int_equal(slice_wait(&slice, first->client, ticket, &result), 0);
		slice_run(&slice, turns);
		assert_int_equal(kvr_free(first->client, memory), 0);
		slice_run(&slice, 200);
		assert_int_equal(kvr_alloc(first->client, 65536, &memory), 0);
		slice_stop(&slice);
	}
}

static uint32_t announced_key(const struct kvr_client *client, const void *address)
{
	for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++) {
		const struct client_region *region = &client->regions[i];

		if (region->mr && region->users > 0 && region->address == (uint64_t)(uintptr_t)address)
			return region->mr->rkey;
	}
	return 0;
}

/* What lies at an address anew is not what its old key reaches: on a real device that may be pages of nobody. */
static void memory_that_is_registered_anew_gets_a_new_key(void **state)
{
	struct slice_model model;

	(void)state;
	slice_model_default(&model);
	for (unsigned turns = 0; turns < 30; turns += 2) {
		struct kvr_session *session;
		struct kvr_result result;
		kvr_ticket ticket;
		uint32_t before;

		session = begin(1);
		slice_forget(&session);
		before = announced_key(first->client, first->pool);
		assert_int_not_equal(before, 0);
		assert_int_equal(client_submit_unregister(first->client, first->registration, &ticket), 0);
		assert_int_equal(slice_wait(&slice, first->client, ticket, &result), 0);
		slice_run(&slice, turns); /* the server may still have to forget it */
		assert_int_equal(slice_register(first, &model), 0);
		assert_int_not_equal(announced_key(first->client, first->pool), before);
		session = slice_session(first, "request", NULL, 1, CHUNKS);
		assert_int_equal(slice_retrieve(first, session, 0, CHUNKS, 100, &request), 0);
		slice_outcomes_are(&request, KVR_DELIVERED);
		slice_stop(&slice);
	}
}

/* Requests that do not fit a receive buffer are fetched from the client's memory. */
static void long_chains_go_by_indirect(void **state)
{
	static uint8_t digests[1000 * 32];
	struct kvr_session *session;
	struct kvr_result result;

	(void)state;
	(void)begin(1);
	for (size_t i = 0; i < sizeof(digests); i++)
		digests[i] = (uint8_t)(i * 7 + i / 256);
	assert_int_equal(client_session_create(first->client, first->registration, "long", NULL, &session), 0);
	assert_int_equal(client_session_digests(session, digests, 1000), 0);
	assert_int_equal(slice_lookup(first, session, 0, &result), 0);
	assert_int_equal(result.chunks, 0);
	assert_int_equal(slice_end(first, session), 0);
	assert_true(worker_counters(server_worker(slice.server, 0))->indirect_total > 0);
	slice_stop(&slice);
}

/* pitfalls C08: many requests outstanding when the link breaks: each ends once, with an error. */
static void every_request_ends_once_when_the_link_breaks(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 30; round++) {
		kvr_ticket tickets[100];
		struct kvr_session *session = begin(2);
		struct kvr_result result;

		for (unsigned i = 0; i < 100; i++)
			assert_int_equal(i % 2 ? client_submit_ping(first->client, &tickets[i])
					       : client_submit_lookup(session, 0, &tickets[i]),
				0);
		slice_run(&slice, round);
		sim_fabric_cut_device(slice.fabric, first->device);
		for (unsigned i = 0; i < 100; i++) {
			int error = slice_wait(&slice, first->client, tickets[i], &result);

			assert_true(error == 0 || error == -ECONNRESET || error == -ECANCELED);
			assert_int_equal(client_take(first->client, tickets[i], &result), -ENOENT);
		}
		assert_int_equal(slice_ping(second), 0);
		slice_await_ready(first);
		assert_int_equal(slice_ping(first), 0);
		assert_int_equal(slice_match(first, session, 0), CHUNKS);
		slice_stop(&slice);
	}
}

/*
 * pitfalls C13: a flush that does not come for long. What the transfer may still touch is not reused, the place of the connection is kept,
 * and nobody else is hindered; when it comes, or the device has destroyed the queue pair, all of it is there again.
 */
static void a_flush_that_does_not_arrive_costs_its_own_connection_only(void **state)
{
	struct kvr_session *session;
	struct cache_stats before, stuck, after;

	(void)state;
	slice_start(&slice, 170, NULL, 1u << 20);
	slice_join(&slice, 0, "model", 1, 0);
	slice_join(&slice, 1, "model", 1, 0);
	session = slice_session(first, "request", NULL, 1, CHUNKS);
	assert_int_equal(slice_store(first, session, 0, CHUNKS, 0, 1, &request), 0);
	cache_get_stats(server_cache(slice.server), &before);
	slice_submit_retrieve(first, session, 0, CHUNKS, 100, &request);
	cache_get_stats(server_cache(slice.server), &stuck);
	for (unsigned i = 0; i < 200 && stuck.pins == 0; i++) {
		slice_step(&slice);
		cache_get_stats(server_cache(slice.server), &stuck);
	}
	assert_true(stuck.pins > 0);
	sim_fabric_withhold_flush(slice.fabric, slice.server_device, true);
	slice_kill(first);
	for (uint32_t d = 2; d < 12; d++) {
		struct kvr_session *mine = slice_session(second, "other", NULL, d, CHUNKS);

		assert_int_equal(slice_store(second, mine, 0, CHUNKS, 0, d, &request), 0);
		assert_int_equal(slice_match(second, mine, 0), CHUNKS);
		assert_int_equal(slice_retrieve(second, mine, 0, CHUNKS, 100, &request), 0);
		assert_int_equal(slice_end(second, mine), 0);
		slice_forget(&mine);
		slice_pass(&slice, KVR_SECOND);
		cache_get_stats(server_cache(slice.server), &stuck);
		assert_true(stuck.pins > 0);
		assert_int_equal(control_client_count(server_control(slice.server)), 2);
	}
	sim_fabric_withhold_flush(slice.fabric, slice.server_device, false);
	slice_pass(&slice, KVR_SECOND);
	cache_get_stats(server_cache(slice.server), &after);
	assert_int_equal(after.pins, 0);
	assert_int_equal(after.locks, before.locks);
	assert_int_equal(control_client_count(server_control(slice.server)), 1);
	slice_stop(&slice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_retrieve_without_a_lookup_takes_its_own_holds),
		cmocka_unit_test(block_ids_out_of_range_are_refused_and_nothing_is_written),
		cmocka_unit_test(ranges_outside_the_chain_are_refused),
		cmocka_unit_test(skipped_and_null_blocks_are_left_alone),
		cmocka_unit_test(a_session_id_with_another_chain_is_an_error_that_names_the_chunk),
		cmocka_unit_test(a_session_begun_anew_with_another_chain_is_not_taken_for_the_old_one),
		cmocka_unit_test(a_session_that_another_process_ended_is_begun_again_by_itself),
		cmocka_unit_test(end_twice_and_while_a_store_runs),
		cmocka_unit_test(a_canceled_retrieve_never_writes_late),
		cmocka_unit_test(a_canceled_store_stores_all_of_a_chunk_or_nothing),
		cmocka_unit_test(unregistering_under_transfers_gives_the_memory_back_whole),
		cmocka_unit_test(memory_is_freed_at_any_moment_behind_an_unregister),
		cmocka_unit_test(memory_that_is_registered_anew_gets_a_new_key),
		cmocka_unit_test(long_chains_go_by_indirect),
		cmocka_unit_test(every_request_ends_once_when_the_link_breaks),
		cmocka_unit_test(a_flush_that_does_not_arrive_costs_its_own_connection_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
