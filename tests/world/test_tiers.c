/* A server with an L2 and its clients: what L1 evicted comes back, from a slow or failing place, and after a restart. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "kvrail.h"
#include "protocol/message.h"
#include "protocol/status.h"
#include "tier/checksum.h"
#include "tier/l2_internal.h"
#include "world/tiers.h"

static void what_l1_evicted_comes_back_from_l2(void **state)
{
	struct tiers tiers;

	(void)state;
	tiers_init(&tiers, 1);
	/* Four times what L1 has room for. */
	for (uint32_t d = 0; d < 6; d++)
		tiers_store(&tiers, d, 100 + d);
	for (uint32_t d = 0; d < 6; d++)
		tiers_read(&tiers, d, 100 + d, DOCUMENT);
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
	tiers_store(&tiers, 1, 7);
	tiers_restart(&tiers);
	tiers_read(&tiers, 1, 7, DOCUMENT);
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
	tiers_store(&tiers, 1, 7);
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
	tiers_store(&tiers, 1, 7);
	tiers_store(&tiers, 2, 8);
	tiers_store(&tiers, 3, 9);
	tiers_delay(&tiers, 550 * KVR_MS, 550 * KVR_MS); /* question and load: 1.1 s */
	session = slice_session(tiers.worker, "slow", NULL, 1, DOCUMENT);
	assert_true(slice_match(tiers.worker, session, 0) < DOCUMENT);
	assert_int_equal(slice_end(tiers.worker, session), 0);
	slice_forget(&session);
	slice_pass(&tiers.slice, 2 * KVR_SECOND);
	tiers_rest(&tiers);
	assert_true(l2_get_counters(server_l2(tiers.slice.server))->loaded_late > 0);
	assert_int_equal(l2_get_counters(server_l2(tiers.slice.server))->fetches_canceled, 1);
	tiers_delay(&tiers, 1000, 1000);
	tiers_read(&tiers, 1, 7, DOCUMENT);
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
	tiers_store(&tiers, 1, 7);
	tiers_store(&tiers, 2, 8);
	tiers_store(&tiers, 3, 9);
	tiers_delay(&tiers, KVR_SECOND / 4, KVR_SECOND / 4);
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
	tiers_store(&tiers, 1, 7);
	tiers_store(&tiers, 2, 8);
	tiers_store(&tiers, 3, 9);
	tiers_delay(&tiers, 300 * KVR_MS, 300 * KVR_MS);
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
		tiers_store(&tiers, d, 100 + d);
	assert_int_equal(sim_place_objects(tiers.place), 4 * DOCUMENT);
	assert_int_equal(slice_clear(tiers.worker, &result), 0);
	assert_true(result.chunks > 0);
	assert_int_equal(sim_place_objects(tiers.place), 0);
	for (uint32_t d = 0; d < 4; d++)
		tiers_read(&tiers, d, 100 + d, 0);
	tiers_store(&tiers, 1, 7);
	tiers_read(&tiers, 1, 7, DOCUMENT);
	/* A place that fails is told, and L1 is cleared all the same. */
	tiers.faults.down = true;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
	assert_int_equal(slice_clear(tiers.worker, &result), -EIO);
	tiers.faults.down = false;
	sim_adapter_set(tiers.adapter, &tiers.faults, false);
	assert_int_equal(slice_clear(tiers.worker, &result), 0);
	assert_int_equal(sim_place_objects(tiers.place), 0);
	tiers_read(&tiers, 1, 7, 0);
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
	tiers_store(&tiers, 1, 7);
	tiers_store(&tiers, 2, 8);
	tiers_store(&tiers, 3, 9);
	tiers_delay(&tiers, 500 * KVR_MS, 500 * KVR_MS);
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

/* Who only counts hears the number, too, and what the other one had locked is given back (kvrail-sim --seed 1500000772 --steps 4000). */
static void who_counts_is_not_cut_off_when_the_one_who_looked_up_is_lost(void **state)
{
	struct kvr_session *session, *same;
	struct kvr_result result;
	struct tiers tiers;
	kvr_ticket ticket;

	(void)state;
	tiers_init(&tiers, 15);
	tiers_store(&tiers, 1, 7);
	tiers_store(&tiers, 2, 8);
	tiers_store(&tiers, 3, 9);
	session = slice_session(tiers.scheduler, "request", NULL, 1, 4);
	assert_int_equal(slice_match(tiers.scheduler, session, 0), 4);
	assert_int_equal(slice_locks(&tiers.slice), 4);
	tiers_delay(&tiers, 300 * KVR_MS, 300 * KVR_MS);
	same = slice_session(tiers.worker, "request", NULL, 1, DOCUMENT);
	assert_int_equal(client_submit_lookup(same, KVR_LOOKUP_NO_LOCK, &ticket), 0);
	slice_run(&tiers.slice, 50);
	slice_kill(tiers.scheduler);
	assert_int_equal(slice_wait(&tiers.slice, tiers.worker->client, ticket, &result), 0);
	assert_int_equal(result.chunks, DOCUMENT);
	assert_int_equal(slice_locks(&tiers.slice), 0);
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
	tiers_delay(&tiers, 50 * KVR_MS, 50 * KVR_MS);
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

/* A bit of a chunk in L1 that waits for being written, the last in the queue: the first of its chain. */
static void change_waiting(struct tiers *tiers)
{
	struct l2 *l2 = server_l2(tiers->slice.server);
	const struct l2_counters *counters = l2_get_counters(l2);
	struct l2_slot *slot;

	for (unsigned i = 0; i < 100000 && counters->summed < DOCUMENT; i++)
		slice_step(&tiers->slice);
	assert_int_equal(counters->summed, DOCUMENT);
	slot = KVR_CONTAINER_OF(l2->places[0].queue.prev, struct l2_slot, mine);
	assert_false(slot->sent);
	((uint8_t *)slot->request.memory)[100] ^= 1;
}

/* Neither written nor read: a miss, and it is stored anew (pitfalls H05). */
static void bytes_that_change_in_l1_before_they_are_written_never_come_back(void **state)
{
	struct kvr_session *session;
	struct slice_request request;
	struct tiers tiers;

	(void)state;
	if (!checksum_available())
		skip();
	tiers_init(&tiers, 16);
	tiers.l2.sum_arrivals = true;
	tiers.l2.stores_max = 1;
	tiers_restart(&tiers);
	tiers_delay(&tiers, 5 * KVR_MS, 5 * KVR_MS);
	session = slice_session(tiers.worker, "store", NULL, 1, DOCUMENT);
	assert_int_equal(slice_store(tiers.worker, session, 0, DOCUMENT, 0, 5, &request), 0);
	change_waiting(&tiers);
	assert_int_equal(slice_end(tiers.worker, session), 0);
	slice_forget(&session);
	tiers_rest(&tiers);
	assert_int_equal(l2_get_counters(server_l2(tiers.slice.server))->l1_corrupt, 1);
	assert_int_equal(sim_place_objects(tiers.place), DOCUMENT - 1);
	tiers_read(&tiers, 1, 5, 0);
	tiers_store(&tiers, 1, 5);
	tiers_read(&tiers, 1, 5, DOCUMENT);
	assert_int_equal(sim_place_objects(tiers.place), DOCUMENT);
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
		cmocka_unit_test(who_counts_is_not_cut_off_when_the_one_who_looked_up_is_lost),
		cmocka_unit_test(what_a_client_clears_does_not_come_back),
		cmocka_unit_test(a_server_that_leaves_writes_first),
		cmocka_unit_test(bytes_that_change_in_l1_before_they_are_written_never_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
