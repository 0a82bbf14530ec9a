/* More than L1 and L2 can take at a time: stores that wait, places that are slow or fail, sessions that were paged out. */
#include "base/clock.h"
#include "base/cmocka_all.h"
#include "world/tiers.h"

/* ---- stores that wait (pitfalls D16) --------------------------------------------------------------------------- */

#define REQUESTS 100u

/* Requests, one every 100 ms, whose blocks the next one uses again; L1 has room for one and a half of them. */
static void recycle(struct tiers *tiers)
{
	for (uint32_t d = 0; d < REQUESTS; d++) {
		struct kvr_session *session = slice_session(tiers->worker, "recycled", NULL, d, DOCUMENT);
		struct slice_request request;

		assert_int_equal(slice_store(tiers->worker, session, 0, DOCUMENT, 0, d, &request), 0);
		assert_int_equal(slice_end(tiers->worker, session), 0);
		slice_forget(&session);
		slice_pass(&tiers->slice, 100 * KVR_MS);
	}
}

static void a_single_store_waits_for_no_other_on_its_way_to_l2(void **state)
{
	struct kvr_session *session;
	struct slice_request request;
	struct tiers tiers;

	(void)state;
	tiers_init(&tiers, 9);
	session = slice_session(tiers.worker, "single", NULL, 1, 1);
	assert_int_equal(slice_store(tiers.worker, session, 0, 1, 0, 5, &request), 0);
	/* Nobody asks for anything any more. */
	slice_pass(&tiers.slice, KVR_MS);
	assert_int_equal(sim_place_objects(tiers.place), 1);
	assert_int_equal(slice_end(tiers.worker, session), 0);
	slice_forget(&session);
	tiers_fini(&tiers);
}

static void stores_reach_l2_however_fast_their_blocks_are_recycled(void **state)
{
	const struct l2_counters *counters;
	struct tiers tiers;

	(void)state;
	tiers_init(&tiers, 10);
	tiers_limit(&tiers, 0, (uint64_t)DOCUMENT * SLICE_OBJECT_BYTES);
	tiers_delay(&tiers, KVR_MS, 40 * KVR_MS);
	recycle(&tiers);
	tiers_rest(&tiers);
	counters = l2_get_counters(server_l2(tiers.slice.server));
	assert_int_equal(counters->offered, REQUESTS * DOCUMENT);
	assert_int_equal(counters->stored, REQUESTS * DOCUMENT);
	for (uint32_t d = 0; d < REQUESTS; d++)
		tiers_read(&tiers, d, d, DOCUMENT);
	tiers_fini(&tiers);
}

/* A place that cannot keep up with them: what it is not given is counted, and is given to it when it is used again. */
static void stores_that_l2_has_no_time_for_are_counted_and_offered_again(void **state)
{
	const struct l2_counters *counters;
	struct tiers tiers;
	uint64_t stored;

	(void)state;
	tiers_init(&tiers, 11);
	tiers_limit(&tiers, 4, (uint64_t)DOCUMENT * SLICE_OBJECT_BYTES);
	tiers_delay(&tiers, 250 * KVR_MS, 250 * KVR_MS);
	recycle(&tiers);
	tiers_rest(&tiers);
	counters = l2_get_counters(server_l2(tiers.slice.server));
	stored = counters->stored;
	assert_int_equal(counters->offered, REQUESTS * DOCUMENT);
	assert_int_equal(stored + counters->store_dropped, REQUESTS * DOCUMENT);
	assert_int_equal(stored, sim_place_objects(tiers.place));
	assert_true(stored > 0 && counters->store_dropped > 0);
	/* The last request is in L1 whole, and few of it are in L2. Four at a time get there as it is read. */
	for (uint32_t i = 0; i < DOCUMENT; i++) {
		tiers_read(&tiers, REQUESTS - 1, REQUESTS - 1, DOCUMENT);
		tiers_rest(&tiers);
	}
	assert_true(counters->stored > stored);
	assert_int_equal(counters->stored + counters->store_dropped, counters->offered);
	assert_int_equal(sim_place_objects(tiers.place), counters->stored);
	tiers_fini(&tiers);
}

/* ---- more than L1 holds ---------------------------------------------------------------------------------------- */

#define SESSIONS 50u
#define PART 8u /* chunks of each */

static void page_in(struct tiers *tiers, uint32_t document)
{
	struct kvr_session *session = slice_session(tiers->worker, "returns", NULL, document, PART);
	struct slice_request request;

	assert_int_equal(slice_match(tiers->worker, session, 0), PART);
	assert_int_equal(slice_retrieve(tiers->worker, session, 0, PART, 0, &request), 0);
	slice_outcomes_are(&request, KVR_DELIVERED);
	for (uint32_t c = 0; c < PART; c++)
		assert_true(slice_delivered(tiers->worker, &request, c, document));
	assert_int_equal(slice_end(tiers->worker, session), 0);
	slice_forget(&session);
}

static void store_part(struct slice_client *client, uint32_t document, struct slice_request *request)
{
	struct kvr_session *session = slice_session(client, "writes", NULL, document, PART);

	slice_submit_store(client, session, 0, PART, 0, document, request);
	assert_int_equal(slice_finish(client, request), 0);
	assert_int_equal(slice_end(client, session), 0);
	slice_forget(&session);
}

/* pitfalls E02: in another order, while others write. */
static void sessions_that_were_paged_out_get_their_own_bytes_back(void **state)
{
	struct slice_request request, writing;
	struct kvr_session *writes;
	struct tiers tiers;

	(void)state;
	tiers_init(&tiers, 12);
	tiers_limit(&tiers, 0, PART * SLICE_OBJECT_BYTES);
	for (uint32_t d = 0; d < SESSIONS; d++) {
		store_part(tiers.worker, d, &request);
		tiers_rest(&tiers);
	}
	for (uint32_t i = 0; i < SESSIONS; i++) {
		writes = slice_session(tiers.other, "writes", NULL, 1000 + i, PART);
		slice_submit_store(tiers.other, writes, 0, PART, 0, 1000 + i, &writing);
		page_in(&tiers, i * 17 % SESSIONS);
		assert_int_equal(slice_finish(tiers.other, &writing), 0);
		assert_int_equal(slice_end(tiers.other, writes), 0);
		slice_forget(&writes);
	}
	assert_true(l2_get_counters(server_l2(tiers.slice.server))->loaded >= (SESSIONS - 4) * PART);
	tiers_fini(&tiers);
}

/* pitfalls D06: the writer never waits, and neither does a lookup of what is in L1. */
static void a_place_that_is_slower_than_the_writer_is_in_nobodys_way(void **state)
{
	const struct l2_counters *counters;
	struct kvr_session *hot;
	struct slice_request request;
	struct tiers tiers;

	(void)state;
	tiers_init(&tiers, 13);
	tiers_limit(&tiers, 4, 4 * SLICE_OBJECT_BYTES);
	tiers_delay(&tiers, 250 * KVR_MS, 250 * KVR_MS);
	hot = slice_session(tiers.other, "hot", NULL, 5000, PART);
	assert_int_equal(slice_store(tiers.other, hot, 0, PART, 0, 5000, &request), 0);
	for (uint32_t d = 0; d < SESSIONS; d++) {
		uint64_t before_ns = tiers.slice.now_ns;

		store_part(tiers.worker, d, &request);
		slice_outcomes_are(&request, KVR_STORED);
		assert_int_equal(slice_match(tiers.other, hot, 0), PART);
		assert_int_equal(slice_end(tiers.other, hot), 0);
		assert_true(tiers.slice.now_ns - before_ns < 10 * KVR_MS);
	}
	counters = l2_get_counters(server_l2(tiers.slice.server));
	assert_true(counters->store_dropped > 0);
	slice_forget(&hot);
	tiers_rest(&tiers);
	assert_int_equal(counters->stored + counters->store_dropped, counters->offered);
	tiers_fini(&tiers);
}

/* pitfalls D07: slow, and one of ten requests fails. */
static void a_failing_l2_keeps_no_reference(void **state)
{
	struct slice_request request;
	struct kvr_session *session;
	struct kvr_result result;
	struct tiers tiers;
	uint64_t hits;

	(void)state;
	tiers_init(&tiers, 14);
	tiers_limit(&tiers, 0, PART * SLICE_OBJECT_BYTES);
	tiers.faults.delay_min_ns = tiers.faults.delay_max_ns = 50 * KVR_MS;
	tiers.faults.fail = 100000;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
	for (uint32_t d = 0; d < SESSIONS; d++) {
		store_part(tiers.worker, d, &request);
		slice_pass(&tiers.slice, 20 * KVR_MS);
		if (d % 5 == 4) { /* loads fail, too */
			session = slice_session(tiers.other, "asks", NULL, d / 2, PART);
			assert_int_equal(slice_lookup(tiers.other, session, 0, &result), 0);
			assert_int_equal(slice_end(tiers.other, session), 0);
			slice_forget(&session);
		}
	}
	tiers_rest(&tiers);
	assert_true(l2_get_counters(server_l2(tiers.slice.server))->store_retries > 0);
	assert_int_equal(slice_locks(&tiers.slice), 0);
	tiers.faults.fail = 0;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
	/* All of L1 may go, and can be had. */
	session = slice_session(tiers.worker, "fills", NULL, 9000, ROOM);
	assert_int_equal(slice_store(tiers.worker, session, 0, ROOM, 0, 7, &request), 0);
	slice_outcomes_are(&request, KVR_STORED);
	hits = slice_counters(&tiers.slice)->l1_hit_chunks_total;
	assert_int_equal(slice_match(tiers.worker, session, KVR_LOOKUP_NO_LOCK), ROOM);
	assert_int_equal(slice_counters(&tiers.slice)->l1_hit_chunks_total - hits, ROOM);
	assert_int_equal(slice_end(tiers.worker, session), 0);
	slice_forget(&session);
	tiers_fini(&tiers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_single_store_waits_for_no_other_on_its_way_to_l2),
		cmocka_unit_test(stores_reach_l2_however_fast_their_blocks_are_recycled),
		cmocka_unit_test(stores_that_l2_has_no_time_for_are_counted_and_offered_again),
		cmocka_unit_test(sessions_that_were_paged_out_get_their_own_bytes_back),
		cmocka_unit_test(a_place_that_is_slower_than_the_writer_is_in_nobodys_way),
		cmocka_unit_test(a_failing_l2_keeps_no_reference),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
