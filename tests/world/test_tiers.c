/* A server with an L2 and its clients: what L1 evicted comes back, from a slow or failing place, and after a restart. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "kvrail.h"
#include "protocol/message.h"
#include "protocol/status.h"
#include "tier/sim_adapter.h"
#include "world/slice.h"

#define ROOM 32u /* objects that L1 holds */
#define DOCUMENT 20u

struct tiers {
	struct slice slice;
	struct sim_place *place;
	struct l2_adapter *adapter;
	struct sim_adapter_options faults;
	struct l2_options l2;
	struct slice_client *scheduler, *worker, *other;
};

static void tiers_begin(struct tiers *tiers)
{
	assert_int_equal(sim_adapter_open(&tiers->faults, tiers->place, &tiers->adapter), 0);
	tiers->l2.adapters[0] = tiers->adapter;
	tiers->l2.adapter_count = 1;
	slice_server_begin(&tiers->slice);
}

static void tiers_init(struct tiers *tiers, uint64_t seed)
{
	struct slice_model model;

	memset(tiers, 0, sizeof(*tiers));
	tiers->faults.delay_min_ns = 1000;
	tiers->faults.delay_max_ns = 20 * KVR_US;
	assert_int_equal(sim_place_create(&tiers->place), 0);
	slice_prepare(&tiers->slice, seed, NULL, (uint64_t)ROOM * SLICE_SLOT_BYTES);
	tiers->l2.store_bytes_max = (uint64_t)ROOM * SLICE_OBJECT_BYTES;
	tiers->slice.options.l2 = &tiers->l2;
	tiers->slice.options.l2_deadline_ns = KVR_SECOND;
	tiers_begin(tiers);
	slice_model_default(&model);
	tiers->worker = &tiers->slice.clients[0];
	tiers->scheduler = &tiers->slice.clients[1];
	tiers->other = &tiers->slice.clients[2];
	slice_join_as(&tiers->slice, 0, 0, &model);
	model.scheduler = true;
	slice_join_as(&tiers->slice, 1, 0, &model);
	model.scheduler = false;
	slice_join_as(&tiers->slice, 2, 0, &model);
}

static void tiers_rest(struct tiers *tiers)
{
	for (unsigned i = 0; i < 100000 && !l2_idle(server_l2(tiers->slice.server)); i++)
		slice_step(&tiers->slice);
	assert_true(l2_idle(server_l2(tiers->slice.server)));
}

static void tiers_fini(struct tiers *tiers)
{
	slice_stop(&tiers->slice);
	assert_int_equal(sim_place_misuses(tiers->place), 0);
	sim_place_destroy(&tiers->place);
}

static void store_document(struct tiers *tiers, uint32_t document, uint32_t mark)
{
	struct kvr_session *session = slice_session(tiers->worker, "store", NULL, document, DOCUMENT);
	struct slice_request request;

	assert_int_equal(slice_store(tiers->worker, session, 0, DOCUMENT, 0, mark, &request), 0);
	assert_int_equal(slice_end(tiers->worker, session), 0);
	slice_forget(&session);
	tiers_rest(tiers);
}

static void read_document(struct tiers *tiers, uint32_t document, uint32_t mark, uint32_t expected)
{
	struct kvr_session *session = slice_session(tiers->worker, "read", NULL, document, DOCUMENT);
	struct slice_request request;

	assert_int_equal(slice_match(tiers->worker, session, 0), expected);
	if (expected) {
		assert_int_equal(slice_retrieve(tiers->worker, session, 0, expected, 0, &request), 0);
		for (uint32_t c = 0; c < expected; c++)
			assert_true(slice_delivered(tiers->worker, &request, c, mark));
	}
	assert_int_equal(slice_end(tiers->worker, session), 0);
	slice_forget(&session);
}

static void what_l1_evicted_comes_back_from_l2(void **state)
{
	struct tiers tiers;

	(void)state;
	tiers_init(&tiers, 1);
	/* Four times what L1 has room for. */
	for (uint32_t d = 0; d < 6; d++)
		store_document(&tiers, d, 100 + d);
	for (uint32_t d = 0; d < 6; d++)
		read_document(&tiers, d, 100 + d, DOCUMENT);
	assert_true(slice_counters(&tiers.slice)->l2_hit_chunks_total >= 5 * (uint64_t)DOCUMENT);
	assert_int_equal(slice_counters(&tiers.slice)->lookup_hit_chunks_total,
		slice_counters(&tiers.slice)->l1_hit_chunks_total + slice_counters(&tiers.slice)->l2_hit_chunks_total);
	tiers_fini(&tiers);
}

static void a_restart_does_not_cost_the_cache(void **state)
{
	struct tiers tiers;

	(void)state;
	tiers_init(&tiers, 2);
	store_document(&tiers, 1, 7);
	slice_server_kill(&tiers.slice);
	tiers_begin(&tiers);
	slice_pass(&tiers.slice, 100 * KVR_MS);
	for (unsigned i = 0; i < 3; i++)
		slice_await_ready(&tiers.slice.clients[i]);
	read_document(&tiers, 1, 7, DOCUMENT);
	tiers_fini(&tiers);
}

/* Another model, another salt: nothing of it (pitfalls E07). */
static void others_do_not_find_it(void **state)
{
	struct kvr_session *session;
	struct slice_model model;
	struct tiers tiers;

	(void)state;
	tiers_init(&tiers, 3);
	store_document(&tiers, 1, 7);
	slice_model_default(&model);
	model.engine = "another build";
	slice_join_as(&tiers.slice, 3, 0, &model);
	session = slice_session(&tiers.slice.clients[3], "a", NULL, 1, DOCUMENT);
	assert_int_equal(slice_match(&tiers.slice.clients[3], session, 0), 0);
	slice_forget(&session);
	session = slice_session(tiers.worker, "b", "another salt", 1, DOCUMENT);
	assert_int_equal(slice_match(tiers.worker, session, 0), 0);
	slice_forget(&session);
	assert_int_equal(l2_get_counters(server_l2(tiers.slice.server))->loaded, 0);
	tiers_fini(&tiers);
}

/* The deadline answers with what is there; what comes late does no harm, and is there the next time. */
static void a_deadline_answers_with_what_is_there(void **state)
{
	struct kvr_session *session;
	struct tiers tiers;

	(void)state;
	tiers_init(&tiers, 4);
	store_document(&tiers, 1, 7);
	store_document(&tiers, 2, 8);
	store_document(&tiers, 3, 9);
	tiers.faults.delay_min_ns = tiers.faults.delay_max_ns = 550 * KVR_MS; /* question and load: 1.1 s */
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
	session = slice_session(tiers.worker, "slow", NULL, 1, DOCUMENT);
	assert_true(slice_match(tiers.worker, session, 0) < DOCUMENT);
	assert_int_equal(slice_end(tiers.worker, session), 0);
	slice_forget(&session);
	slice_pass(&tiers.slice, 2 * KVR_SECOND);
	tiers_rest(&tiers);
	assert_true(l2_get_counters(server_l2(tiers.slice.server))->loaded_late > 0);
	assert_int_equal(l2_get_counters(server_l2(tiers.slice.server))->fetches_canceled, 1);
	tiers.faults.delay_min_ns = tiers.faults.delay_max_ns = 1000;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
	read_document(&tiers, 1, 7, DOCUMENT);
	tiers_fini(&tiers);
}

/* While one lookup waits for a place that takes a second for everything, others are served (pitfalls M06). */
static void a_lookup_that_waits_for_l2_is_in_nobodys_way(void **state)
{
	struct kvr_session *slow, *mine;
	struct slice_request request;
	struct kvr_result result;
	struct tiers tiers;
	kvr_ticket ticket;
	uint64_t before;

	(void)state;
	tiers_init(&tiers, 5);
	store_document(&tiers, 1, 7);
	store_document(&tiers, 2, 8);
	store_document(&tiers, 3, 9);
	tiers.faults.delay_min_ns = tiers.faults.delay_max_ns = KVR_SECOND / 4;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
	slow = slice_session(tiers.scheduler, "slow", NULL, 1, DOCUMENT);
	assert_int_equal(client_submit_lookup(slow, 0, &ticket), 0);
	slice_run(&tiers.slice, 300);
	mine = slice_session(tiers.other, "mine", NULL, 3, DOCUMENT);
	before = tiers.slice.now_ns;
	assert_int_equal(slice_match(tiers.other, mine, KVR_LOOKUP_NO_LOCK), DOCUMENT);
	assert_int_equal(slice_retrieve(tiers.other, mine, 0, 4, 0, &request), 0);
	assert_true(tiers.slice.now_ns - before < 20 * KVR_MS);
	assert_int_equal(slice_end(tiers.other, mine), 0);
	slice_forget(&mine);
	assert_int_equal(slice_wait(&tiers.slice, tiers.scheduler->client, ticket, &result), 0);
	assert_int_equal(result.chunks, DOCUMENT);
	assert_int_equal(slice_end(tiers.scheduler, slow), 0);
	slice_forget(&slow);
	tiers_fini(&tiers);
}

/* END_SESSION while L2 is at it: nothing is held afterwards. */
static void the_end_of_the_session_ends_its_prefetch(void **state)
{
	struct kvr_session *session;
	struct kvr_result result;
	struct tiers tiers;
	kvr_ticket ticket;

	(void)state;
	tiers_init(&tiers, 6);
	store_document(&tiers, 1, 7);
	store_document(&tiers, 2, 8);
	store_document(&tiers, 3, 9);
	tiers.faults.delay_min_ns = tiers.faults.delay_max_ns = 300 * KVR_MS;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
	session = slice_session(tiers.scheduler, "slow", NULL, 1, DOCUMENT);
	assert_int_equal(client_submit_lookup(session, 0, &ticket), 0);
	slice_run(&tiers.slice, 300);
	assert_int_equal(slice_end(tiers.scheduler, session), 0);
	assert_int_equal(slice_wait(&tiers.slice, tiers.scheduler->client, ticket, &result), -ECANCELED);
	slice_forget(&session);
	tiers_rest(&tiers);
	assert_int_equal(slice_locks(&tiers.slice), 0);
	tiers_fini(&tiers);
}

/* Of its tenant everything, in L1 and in L2. */
static void what_a_client_clears_does_not_come_back(void **state)
{
	struct kvr_result result;
	struct tiers tiers;

	(void)state;
	tiers_init(&tiers, 8);
	for (uint32_t d = 0; d < 4; d++)
		store_document(&tiers, d, 100 + d);
	assert_int_equal(sim_place_objects(tiers.place), 4 * DOCUMENT);
	assert_int_equal(slice_clear(tiers.worker, &result), 0);
	assert_true(result.chunks > 0);
	assert_int_equal(sim_place_objects(tiers.place), 0);
	for (uint32_t d = 0; d < 4; d++)
		read_document(&tiers, d, 100 + d, 0);
	store_document(&tiers, 1, 7);
	read_document(&tiers, 1, 7, DOCUMENT);
	/* A place that fails is told, and L1 is cleared all the same. */
	tiers.faults.down = true;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
	assert_int_equal(slice_clear(tiers.worker, &result), -EIO);
	tiers.faults.down = false;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
	assert_int_equal(slice_clear(tiers.worker, &result), 0);
	assert_int_equal(sim_place_objects(tiers.place), 0);
	read_document(&tiers, 1, 7, 0);
	tiers_fini(&tiers);
}

/* Not with the loss of a connection, which would be taken for its own (kvrail-sim --seed 1300000004 --servers 2). */
static void who_waits_for_a_lookup_hears_that_it_was_canceled_when_the_scheduler_is_lost(void **state)
{
	struct kvr_session *session, *same;
	struct kvr_result result;
	kvr_ticket lookup, query;
	struct tiers tiers;

	(void)state;
	tiers_init(&tiers, 8);
	store_document(&tiers, 1, 7);
	store_document(&tiers, 2, 8);
	store_document(&tiers, 3, 9);
	tiers.faults.delay_min_ns = tiers.faults.delay_max_ns = 500 * KVR_MS;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
	session = slice_session(tiers.scheduler, "request", NULL, 1, DOCUMENT);
	same = slice_session(tiers.worker, "request", NULL, 1, DOCUMENT);
	assert_int_equal(client_submit_lookup(session, 0, &lookup), 0);
	slice_run(&tiers.slice, 50);
	assert_int_equal(client_submit_query(same, KVR_SECOND, 0, &query), 0);
	slice_run(&tiers.slice, 50);
	slice_kill(tiers.scheduler);
	assert_int_equal(slice_wait(&tiers.slice, tiers.worker->client, query, &result), -ECANCELED);
	assert_int_equal(result.status, STATUS_CANCELED);
	assert_int_equal(slice_ping(tiers.worker), 0);
	slice_forget(&same);
	tiers_fini(&tiers);
}

/* A drained server has written what it was given. */
static void a_server_that_leaves_writes_first(void **state)
{
	struct kvr_session *session;
	struct slice_request request;
	struct tiers tiers;

	(void)state;
	tiers_init(&tiers, 7);
	tiers.faults.delay_min_ns = tiers.faults.delay_max_ns = 50 * KVR_MS;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
	session = slice_session(tiers.worker, "last", NULL, 1, DOCUMENT);
	assert_int_equal(slice_store(tiers.worker, session, 0, DOCUMENT, 0, 5, &request), 0);
	assert_true(sim_place_objects(tiers.place) < DOCUMENT);
	assert_int_equal(slice_end(tiers.worker, session), 0);
	slice_forget(&session);
	control_drain(server_control(tiers.slice.server), tiers.slice.now_ns);
	for (unsigned i = 0; i < 100000 && !control_idle(server_control(tiers.slice.server)); i++)
		slice_step(&tiers.slice);
	assert_int_equal(sim_place_objects(tiers.place), DOCUMENT);
	tiers_fini(&tiers);
}

/* ---- stores that wait (pitfalls D16) --------------------------------------------------------------------------- */

#define REQUESTS 100u

/* The tiers once more, with these limits of what waits for L2. */
static void tiers_limit(struct tiers *tiers, uint32_t store_queue, uint64_t store_bytes_max)
{
	slice_server_kill(&tiers->slice);
	tiers->l2.store_queue = store_queue;
	tiers->l2.store_bytes_max = store_bytes_max;
	tiers_begin(tiers);
	slice_pass(&tiers->slice, 100 * KVR_MS);
	for (unsigned i = 0; i < 3; i++)
		slice_await_ready(&tiers->slice.clients[i]);
}

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
	tiers.faults.delay_min_ns = KVR_MS;
	tiers.faults.delay_max_ns = 40 * KVR_MS;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
	recycle(&tiers);
	tiers_rest(&tiers);
	counters = l2_get_counters(server_l2(tiers.slice.server));
	assert_int_equal(counters->offered, REQUESTS * DOCUMENT);
	assert_int_equal(counters->stored, REQUESTS * DOCUMENT);
	for (uint32_t d = 0; d < REQUESTS; d++)
		read_document(&tiers, d, d, DOCUMENT);
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
	tiers.faults.delay_min_ns = tiers.faults.delay_max_ns = 250 * KVR_MS;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
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
		read_document(&tiers, REQUESTS - 1, REQUESTS - 1, DOCUMENT);
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
	tiers.faults.delay_min_ns = tiers.faults.delay_max_ns = 250 * KVR_MS;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
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
		cmocka_unit_test(what_l1_evicted_comes_back_from_l2),
		cmocka_unit_test(a_restart_does_not_cost_the_cache),
		cmocka_unit_test(others_do_not_find_it),
		cmocka_unit_test(a_deadline_answers_with_what_is_there),
		cmocka_unit_test(a_lookup_that_waits_for_l2_is_in_nobodys_way),
		cmocka_unit_test(the_end_of_the_session_ends_its_prefetch),
		cmocka_unit_test(who_waits_for_a_lookup_hears_that_it_was_canceled_when_the_scheduler_is_lost),
		cmocka_unit_test(what_a_client_clears_does_not_come_back),
		cmocka_unit_test(a_server_that_leaves_writes_first),
		cmocka_unit_test(a_single_store_waits_for_no_other_on_its_way_to_l2),
		cmocka_unit_test(stores_reach_l2_however_fast_their_blocks_are_recycled),
		cmocka_unit_test(stores_that_l2_has_no_time_for_are_counted_and_offered_again),
		cmocka_unit_test(sessions_that_were_paged_out_get_their_own_bytes_back),
		cmocka_unit_test(a_place_that_is_slower_than_the_writer_is_in_nobodys_way),
		cmocka_unit_test(a_failing_l2_keeps_no_reference),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
