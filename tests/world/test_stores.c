/* test_stores.c - storing: visible when whole, first to publish wins, and what happens when there is no room. */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "protocol/status.h"
#include "world/slice.h"

#define CHUNKS 5u
#define SMALL_L1 (4 * L1_PAGE_BYTES)
#define SMALL_OBJECTS ((uint32_t)(SMALL_L1 / SLICE_SLOT_BYTES))

static struct slice slice;
static struct slice_request request, others[SLICE_CLIENTS];
static struct slice_client *const first = &slice.clients[0], *const second = &slice.clients[1];

static void cache_holds(uint64_t chunks, uint64_t staged)
{
	struct cache_stats stats;

	cache_get_stats(server_cache(slice.server), &stats);
	assert_int_equal(stats.chunks, chunks);
	assert_int_equal(stats.staged, staged);
}

/* `count` chunks of a document, stored by a client of that number; the session stays when `session` is given. */
static void store_document(unsigned client, uint32_t document, uint32_t count, struct kvr_session **session)
{
	struct kvr_session *own;
	char id[32];

	snprintf(id, sizeof(id), "document %u", document);
	own = slice_session(&slice.clients[client], id, NULL, document, count);
	assert_int_equal(slice_store(&slice.clients[client], own, 0, count, 0, document, &request), 0);
	if (session) {
		*session = own;
	} else {
		assert_int_equal(slice_end(&slice.clients[client], own), 0);
		slice_forget(&own);
	}
}

/* pitfalls A13: the acknowledgement means read-your-writes, for everybody. */
static void what_is_acknowledged_is_found_at_once(void **state)
{
	unsigned hits = 0;

	(void)state;
	slice_start(&slice, 21, NULL, 1u << 20);
	for (unsigned i = 0; i < 8; i++)
		slice_join(&slice, i, "model", 1, 0);
	for (uint32_t round = 0; round < 150; round++) {
		struct slice_client *writer = &slice.clients[round % 8], *reader = &slice.clients[(round * 3 + 1) % 8];
		struct kvr_session *store, *look;

		store_document(round % 8, 100 + round, 1, &store);
		look = slice_session(reader, "look", NULL, 100 + round, 1);
		hits += slice_match(reader, look, 0);
		assert_int_equal(slice_end(reader, look), 0);
		assert_int_equal(slice_end(writer, store), 0);
		slice_forget(&look);
		slice_forget(&store);
	}
	assert_int_equal(hits, 150);
	slice_stop(&slice);
}

/* pitfalls A14: eight clients store one key with bytes of their own, four readers look on. */
static void concurrent_writers_end_with_one_whole_object(void **state)
{
	struct kvr_session *stores[8], *loads[4];
	unsigned stored = 0, delivered = 0;

	(void)state;
	for (uint64_t seed = 30; seed < 36; seed++) {
		struct slice_request reads[4];

		stored = 0;
		slice_start(&slice, seed, NULL, 1u << 20);
		for (unsigned i = 0; i < 12; i++)
			slice_join(&slice, i, "model", 1, 0);
		for (unsigned i = 0; i < 8; i++)
			stores[i] = slice_session(&slice.clients[i], "writer", NULL, 1, 1);
		for (unsigned i = 0; i < 4; i++)
			loads[i] = slice_session(&slice.clients[8 + i], "reader", NULL, 1, 1);
		for (unsigned i = 0; i < 8; i++)
			slice_submit_store(&slice.clients[i], stores[i], 0, 1, 0, i, &others[i]);
		for (unsigned round = 0; round < 12; round++) {
			for (unsigned i = 0; i < 4; i++)
				slice_submit_retrieve(&slice.clients[8 + i], loads[i], 0, 1, 100, &reads[i]);
			for (unsigned i = 0; i < 4; i++) {
				assert_int_equal(slice_finish(&slice.clients[8 + i], &reads[i]), 0);
				if (reads[i].outcomes[0] != KVR_DELIVERED)
					continue;
				delivered++;
				assert_true(slice_mark_of(&slice.clients[8 + i], &reads[i], 0, 8) < 8);
			}
		}
		for (unsigned i = 0; i < 8; i++) {
			assert_int_equal(slice_finish(&slice.clients[i], &others[i]), 0);
			assert_true(others[i].outcomes[0] == KVR_STORED || others[i].outcomes[0] == KVR_PRESENT);
			stored += others[i].outcomes[0] == KVR_STORED;
		}
		assert_int_equal(stored, 1);
		cache_holds(1, 0);
		slice_stop(&slice);
	}
	assert_true(delivered > 0);
}

/* The first writer dies half-way: what the second was told is true. pitfalls B07, A12 */
static void the_second_writers_reply_is_true_when_the_first_dies(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 60; turns += 3) {
		struct kvr_session *dying, *living;

		slice_start(&slice, 40 + turns, NULL, 1u << 20);
		slice_join(&slice, 0, "model", 1, 0);
		slice_join(&slice, 1, "model", 1, 0);
		dying = slice_session(first, "dying", NULL, 1, CHUNKS);
		living = slice_session(second, "living", NULL, 1, CHUNKS);
		slice_submit_store(first, dying, 0, CHUNKS, 0, 7, &others[0]);
		slice_run(&slice, turns / 2);
		slice_submit_store(second, living, 0, CHUNKS, 0, 8, &others[1]);
		slice_run(&slice, turns);
		slice_kill(first);
		assert_int_equal(slice_finish(second, &others[1]), 0);
		assert_int_equal(others[1].result.chunks, CHUNKS);
		assert_int_equal(slice_match(second, living, 0), CHUNKS);
		assert_int_equal(slice_retrieve(second, living, 0, CHUNKS, 100, &request), 0);
		slice_outcomes_are(&request, KVR_DELIVERED);
		for (uint32_t c = 0; c < CHUNKS; c++) {
			uint32_t mark = slice_mark_of(second, &request, c, 9);

			assert_true(others[1].outcomes[c] == KVR_STORED ? mark == 8 : mark == 7);
		}
		slice_stop(&slice);
	}
}

/* pitfalls A10, A11: nothing of a STORE that was cut short is visible, and its memory is back. */
static void a_store_that_is_cut_short_leaves_nothing(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 40; turns++) {
		struct kvr_session *dying, *look;
		uint32_t matched;

		slice_start(&slice, 60 + turns, NULL, 1u << 20);
		slice_join(&slice, 0, "model", 1, 0);
		slice_join(&slice, 1, "model", 1, 0);
		dying = slice_session(first, "dying", NULL, 1, CHUNKS);
		look = slice_session(second, "look", NULL, 1, CHUNKS);
		slice_submit_store(first, dying, 0, CHUNKS, 0, 7, &others[0]);
		slice_run(&slice, turns);
		slice_kill(first);
		slice_run(&slice, 2000);
		matched = slice_match(second, look, 0);
		cache_holds(matched, 0);
		if (matched > 0) {
			assert_int_equal(slice_retrieve(second, look, 0, matched, 100, &request), 0);
			for (uint32_t c = 0; c < matched; c++)
				assert_true(slice_delivered(second, &request, c, 7));
		}
		slice_stop(&slice);
	}
}

/* SIGKILL between any two turns of a RETRIEVE: others do not notice, nothing is held. */
static void a_reader_may_die_at_any_moment(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 40; turns++) {
		struct kvr_session *dying, *living;

		slice_start(&slice, 100 + turns, NULL, 1u << 20);
		for (unsigned i = 0; i < 3; i++)
			slice_join(&slice, i, "model", 1, 0);
		store_document(2, 1, CHUNKS, NULL);
		dying = slice_session(first, "dying", NULL, 1, CHUNKS);
		living = slice_session(second, "living", NULL, 1, CHUNKS);
		assert_int_equal(slice_match(first, dying, 0), CHUNKS);
		assert_int_equal(slice_match(second, living, 0), CHUNKS);
		slice_submit_retrieve(first, dying, 0, CHUNKS, 100, &others[0]);
		slice_submit_retrieve(second, living, 0, CHUNKS, 100, &others[1]);
		slice_run(&slice, turns);
		slice_kill(first);
		assert_int_equal(slice_finish(second, &others[1]), 0);
		slice_outcomes_are(&others[1], KVR_DELIVERED);
		for (uint32_t c = 0; c < CHUNKS; c++)
			assert_true(slice_delivered(second, &others[1], c, 1));
		slice_run(&slice, 2000);
		assert_int_equal(slice_locks(&slice), 0);
		assert_int_equal(server_verify(slice.server, true), 0);
		slice_stop(&slice);
	}
}

/* ---- room ------------------------------------------------------------------------------------------------------ */

/* pitfalls D08: a clear error, nothing lost, and room again when the locks go. */
static void a_full_l1_of_locked_objects_refuses_and_recovers(void **state)
{
	struct kvr_session *locked, *more;

	(void)state;
	slice_start(&slice, 141, NULL, SMALL_L1);
	slice_join(&slice, 0, "model", 1, 0);
	store_document(0, 1, SMALL_OBJECTS, &locked);
	slice_outcomes_are(&request, KVR_STORED);
	assert_int_equal(slice_match(first, locked, 0), SMALL_OBJECTS);
	more = slice_session(first, "more", NULL, 2, CHUNKS);
	assert_int_equal(slice_store(first, more, 0, CHUNKS, 0, 2, &request), -ENOMEM);
	assert_int_equal(request.result.status, STATUS_NO_MEMORY);
	assert_non_null(strstr(request.result.text, "L1"));
	assert_int_equal(slice_retrieve(first, locked, 0, SMALL_OBJECTS, 0, &request), 0);
	slice_outcomes_are(&request, KVR_DELIVERED);
	for (uint32_t c = 0; c < SMALL_OBJECTS; c++)
		assert_true(slice_delivered(first, &request, c, 1));
	assert_int_equal(slice_store(first, more, 0, CHUNKS, 0, 2, &request), 0);
	slice_outcomes_are(&request, KVR_STORED);
	slice_stop(&slice);
}

/* pitfalls D03: as many go as are needed; none when it would not help. */
static void eviction_is_sized_to_the_deficit_and_checked_before(void **state)
{
	struct kvr_session *locked, *big, *few;
	const struct cache_counters *counters;

	(void)state;
	slice_start(&slice, 142, NULL, SMALL_L1);
	slice_join(&slice, 0, "model", 1, 0);
	counters = cache_get_counters(server_cache(slice.server));
	store_document(0, 1, 20, &locked);
	store_document(0, 2, SMALL_OBJECTS - 20 - 3, NULL);
	assert_int_equal(slice_match(first, locked, 0), 20);
	few = slice_session(first, "few", NULL, 3, 4); /* one more than is free */
	assert_int_equal(slice_store(first, few, 0, 4, 0, 3, &request), 0);
	assert_int_equal(counters->evicted_chunks, 1);
	big = slice_session(first, "big", NULL, 4, SMALL_OBJECTS - 19);
	assert_int_equal(slice_store(first, big, 0, SMALL_OBJECTS - 19, 0, 4, &request), -ENOMEM);
	assert_int_equal(counters->evicted_chunks, 1);
	slice_stop(&slice);
}

/* pitfalls D13: what is being moved is not what makes room for it. */
static void a_store_never_evicts_the_beginning_of_its_own_chain(void **state)
{
	struct kvr_session *whole;

	(void)state;
	slice_start(&slice, 143, NULL, SMALL_L1);
	slice_join(&slice, 0, "model", 1, 0);
	store_document(0, 1, 30, NULL);
	store_document(0, 2, SMALL_OBJECTS - 30, NULL); /* document 1 is the next to go */
	whole = slice_session(first, "whole", NULL, 1, 50);
	assert_int_equal(slice_store(first, whole, 0, 50, 0, 1, &request), 0);
	for (uint32_t c = 0; c < 50; c++)
		assert_int_equal(request.outcomes[c], c < 30 ? KVR_PRESENT : KVR_STORED);
	assert_int_equal(slice_match(first, whole, 0), 50);
	assert_int_equal(slice_retrieve(first, whole, 0, 50, 0, &request), 0);
	slice_outcomes_are(&request, KVR_DELIVERED);
	slice_stop(&slice);
}

/* pitfalls D13: a slow RETRIEVE under full pressure delivers what it began. */
static void what_a_slow_retrieve_reads_stays(void **state)
{
	struct kvr_session *slow;

	(void)state;
	slice_start(&slice, 144, NULL, SMALL_L1);
	slice_join(&slice, 0, "model", 1, 0);
	slice_join(&slice, 1, "model", 1, 0);
	store_document(0, 1, CHUNKS, NULL);
	slow = slice_session(second, "slow", NULL, 1, CHUNKS);
	slice_submit_retrieve(second, slow, 0, CHUNKS, 100, &others[0]); /* without LOOKUP: it has no lock, only pins */
	slice_run(&slice, 12);
	sim_fabric_stall_device(slice.fabric, second->device, true);
	for (uint32_t document = 10; document < 16; document++)
		store_document(0, document, SMALL_OBJECTS / 2, NULL);
	sim_fabric_stall_device(slice.fabric, second->device, false);
	assert_int_equal(slice_finish(second, &others[0]), 0);
	for (uint32_t c = 0; c < CHUNKS; c++) {
		if (others[0].outcomes[c] == KVR_DELIVERED)
			assert_true(slice_delivered(second, &others[0], c, 1));
	}
	assert_true(others[0].outcomes[0] == KVR_DELIVERED || others[0].outcomes[0] == KVR_MISSING);
	slice_stop(&slice);
}

/* pitfalls D15: writers never make a resident prefix a miss. */
static void hot_prefixes_hit_while_others_write(void **state)
{
	struct kvr_session *hot;

	(void)state;
	slice_start(&slice, 145, NULL, SMALL_L1);
	for (unsigned i = 0; i < 5; i++)
		slice_join(&slice, i, "model", 1, 0);
	store_document(0, 1, 10, &hot);
	for (uint32_t round = 0; round < 20; round++) {
		struct kvr_session *writers[4];

		for (unsigned i = 0; i < 4; i++) {
			char id[32];

			snprintf(id, sizeof(id), "writer %u", i);
			writers[i] = slice_session(&slice.clients[1 + i], id, NULL, 100 + round * 4 + i, 6);
			slice_submit_store(&slice.clients[1 + i], writers[i], 0, 6, 0, 5, &others[i]);
		}
		assert_int_equal(slice_match(first, hot, 0), 10);
		assert_int_equal(slice_retrieve(first, hot, 0, 10, 0, &request), 0);
		slice_outcomes_are(&request, KVR_DELIVERED);
		for (unsigned i = 0; i < 4; i++) {
			assert_int_equal(slice_finish(&slice.clients[1 + i], &others[i]), 0);
			assert_int_equal(slice_end(&slice.clients[1 + i], writers[i]), 0);
			slice_forget(&writers[i]);
		}
	}
	slice_stop(&slice);
}

/* pitfalls D02: after load with killed clients, the whole of L1 can be had again, end to end. */
static void after_crashes_l1_can_be_filled_to_the_last_object(void **state)
{
	(void)state;
	slice_start(&slice, 146, NULL, SMALL_L1);
	slice_join(&slice, 0, "model", 1, 0);
	for (uint32_t round = 0; round < 20; round++) {
		struct kvr_session *dying;

		slice_join(&slice, 1, "model", 1, 0);
		dying = slice_session(second, "dying", NULL, 200 + round, 20);
		slice_submit_store(second, dying, 0, 20, 0, 5, &others[0]);
		slice_run(&slice, round * 2);
		slice_kill(second);
		slice_run(&slice, 500);
	}
	store_document(0, 1, SMALL_OBJECTS, NULL);
	slice_outcomes_are(&request, KVR_STORED);
	cache_holds(SMALL_OBJECTS, 0);
	slice_stop(&slice);
}

/* STORE of what exists. */
static void storing_again_says_present_and_changes_nothing(void **state)
{
	struct kvr_session *again;

	(void)state;
	slice_start(&slice, 147, NULL, SMALL_L1);
	slice_join(&slice, 0, "model", 1, 0);
	slice_join(&slice, 1, "model", 1, 0);
	store_document(0, 1, CHUNKS, NULL);
	again = slice_session(second, "again", NULL, 1, CHUNKS);
	assert_int_equal(slice_store(second, again, 0, CHUNKS, 0, 9, &request), 0);
	slice_outcomes_are(&request, KVR_PRESENT);
	assert_int_equal(slice_retrieve(second, again, 0, CHUNKS, 100, &request), 0);
	for (uint32_t c = 0; c < CHUNKS; c++)
		assert_true(slice_delivered(second, &request, c, 1));
	cache_holds(CHUNKS, 0);
	slice_stop(&slice);
}

static void quota_set(void *context, struct quota_job *job)
{
	(void)job;
	*(bool *)context = true;
}

static void set_quota(uint32_t tenant, uint64_t objects)
{
	struct quota_job job = { .tenant = tenant, .quota = { .hard_bytes = objects * SLICE_SLOT_BYTES } };
	bool done = false;

	assert_int_equal(control_request_quota(server_control(slice.server), &job, quota_set, &done), 0);
	for (unsigned i = 0; i < 1000 && !done; i++)
		slice_step(&slice);
	assert_true(done);
}

/* pitfalls F03: one that is not named keeps what it has and may store, and one that has more than its quota keeps it until it stores. */
static void quotas_that_are_turned_on_drop_nothing(void **state)
{
	struct kvr_session *unlisted, *listed, *more;
	struct slice_model model;

	(void)state;
	slice_start(&slice, 147, NULL, 1u << 20);
	slice_model_default(&model);
	slice_join_as(&slice, 0, 0, &model);
	slice_join_as(&slice, 1, 1, &model);
	store_document(0, 1, 10, &unlisted);
	store_document(1, 1, 10, &listed);
	set_quota(1, 6);
	slice_pass(&slice, 10 * KVR_SECOND);
	assert_int_equal(slice_match(first, unlisted, 0), 10);
	assert_int_equal(slice_retrieve(first, unlisted, 0, 10, 0, &request), 0);
	slice_outcomes_are(&request, KVR_DELIVERED);
	assert_int_equal(slice_match(&slice.clients[1], listed, 0), 10);
	assert_int_equal(slice_retrieve(&slice.clients[1], listed, 0, 10, 0, &request), 0);
	slice_outcomes_are(&request, KVR_DELIVERED);
	assert_int_equal(slice_end(&slice.clients[1], listed), 0);
	more = slice_session(&slice.clients[1], "more", NULL, 2, 7);
	assert_int_equal(slice_store(&slice.clients[1], more, 0, 7, 0, 5, &request), -EDQUOT);
	assert_int_equal(slice_store(&slice.clients[1], more, 0, 6, 0, 5, &request), 0);
	slice_outcomes_are(&request, KVR_STORED);
	assert_int_equal(slice_match(first, unlisted, KVR_LOOKUP_NO_LOCK), 10);
	slice_forget(&more);
	slice_forget(&listed);
	slice_forget(&unlisted);
	slice_stop(&slice);
}

/* pitfalls D10: nothing grows, neither L1 nor what is kept about it. The heap is the clients' too. */
static void ten_times_what_l1_holds_is_stored_in_l1_alone(void **state)
{
	size_t used = 0;

	(void)state;
	slice_start(&slice, 148, NULL, SMALL_L1);
	slice_join(&slice, 0, "model", 1, 0);
	for (uint32_t round = 0; round < 20; round++) {
		store_document(0, 1 + round, SMALL_OBJECTS, NULL);
		cache_holds(SMALL_OBJECTS, 0);
		if (round == 9)
			used = mallinfo2().uordblks;
	}
	assert_true(mallinfo2().uordblks <= used + 4096);
	slice_stop(&slice);
}

/* pitfalls E13: never cut to what fits. */
static void who_has_larger_objects_than_l1_is_refused_by_name(void **state)
{
	struct kvr_result result;
	struct slice_model model;
	kvr_ticket ticket;

	(void)state;
	slice_prepare(&slice, 149, NULL, L1_PAGE_BYTES);
	slice.options.chunk_tokens = 128 * SLICE_CHUNK_TOKENS;
	slice_server_begin(&slice);
	slice_model_default(&model);
	slice_create_client(&slice, 0, 0);
	slice_await_ready(first);
	assert_int_equal(slice_submit_register(first, &model, &ticket), 0);
	assert_int_equal(slice_wait(&slice, first->client, ticket, &result), -EMSGSIZE);
	assert_int_equal(result.status, STATUS_TOO_BIG);
	assert_non_null(strstr(result.text, "L1"));
	model.planes = 1;
	assert_int_equal(slice_register(first, &model), 0);
	slice_stop(&slice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_acknowledged_is_found_at_once),
		cmocka_unit_test(concurrent_writers_end_with_one_whole_object),
		cmocka_unit_test(the_second_writers_reply_is_true_when_the_first_dies),
		cmocka_unit_test(a_store_that_is_cut_short_leaves_nothing),
		cmocka_unit_test(a_reader_may_die_at_any_moment),
		cmocka_unit_test(a_full_l1_of_locked_objects_refuses_and_recovers),
		cmocka_unit_test(eviction_is_sized_to_the_deficit_and_checked_before),
		cmocka_unit_test(a_store_never_evicts_the_beginning_of_its_own_chain),
		cmocka_unit_test(what_a_slow_retrieve_reads_stays),
		cmocka_unit_test(hot_prefixes_hit_while_others_write),
		cmocka_unit_test(after_crashes_l1_can_be_filled_to_the_last_object),
		cmocka_unit_test(storing_again_says_present_and_changes_nothing),
		cmocka_unit_test(quotas_that_are_turned_on_drop_nothing),
		cmocka_unit_test(ten_times_what_l1_holds_is_stored_in_l1_alone),
		cmocka_unit_test(who_has_larger_objects_than_l1_is_refused_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
