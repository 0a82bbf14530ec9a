/* test_sessions.c - locks and sessions: who holds what, and what gives it back. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "protocol/status.h"
#include "world/slice.h"

#define CHUNKS 4u

static struct slice slice;
static struct slice_request request;
static struct slice_client *const first = &slice.clients[0], *const second = &slice.clients[1];

static void begin(void)
{
	slice_start(&slice, 11, NULL, 1u << 20);
}

/* Client 0 stores CHUNKS chunks of document 1 under a salt. */
static void store_some(const char *salt)
{
	struct kvr_session *session = slice_session(first, "store", salt, 1, CHUNKS);

	assert_int_equal(slice_store(first, session, 0, CHUNKS, 0, 1, &request), 0);
	slice_outcomes_are(&request, KVR_STORED);
	slice_forget(&session);
}

/* pitfalls A01, E05, F01 */
static void a_release_under_another_salt_releases_nothing(void **state)
{
	struct kvr_session *salted, *plain;
	struct kvr_result result;

	(void)state;
	begin();
	slice_join(&slice, 0, "model", 1, 0);
	store_some("t1");
	salted = slice_session(first, "request", "t1", 1, CHUNKS);
	plain = slice_session(first, "request", NULL, 1, CHUNKS);
	assert_int_equal(slice_match(first, salted, 0), CHUNKS);
	assert_int_equal(slice_locks(&slice), CHUNKS);
	assert_int_equal(slice_free(first, plain, 0, CHUNKS, true, &result), -ENOENT);
	assert_int_equal(slice_match(first, plain, 0), 0);
	assert_int_equal(slice_free(first, plain, 0, CHUNKS, true, &result), -ENOLCK);
	assert_int_equal(result.status, STATUS_NO_LOCK);
	assert_true(slice_counters(&slice)->lock_mismatches_total >= 2);
	assert_int_equal(slice_locks(&slice), CHUNKS);
	assert_int_equal(slice_clear(first, &result), 0);
	assert_int_equal(result.chunks, 0); /* dropped: all are locked */
	assert_int_equal(slice_free(first, salted, 0, CHUNKS, true, &result), 0);
	assert_int_equal(result.chunks, CHUNKS);
	assert_int_equal(slice_locks(&slice), 0);
	assert_int_equal(slice_clear(first, &result), 0);
	assert_int_equal(result.chunks, CHUNKS);
	slice_stop(&slice);
}

static void a_second_release_is_an_error_and_changes_nothing(void **state)
{
	struct kvr_session *mine, *other;
	struct kvr_result result;

	(void)state;
	begin();
	slice_join(&slice, 0, "model", 1, 0);
	slice_join(&slice, 1, "model", 1, 0);
	store_some(NULL);
	mine = slice_session(first, "mine", NULL, 1, CHUNKS);
	other = slice_session(second, "other", NULL, 1, CHUNKS);
	assert_int_equal(slice_match(first, mine, 0), CHUNKS);
	assert_int_equal(slice_match(second, other, 0), CHUNKS);
	assert_int_equal(slice_free(first, mine, 0, CHUNKS, false, &result), 0);
	assert_int_equal(slice_free(first, mine, 0, CHUNKS, false, &result), -ENOLCK);
	assert_int_equal(slice_free(first, mine, 0, CHUNKS, true, &result), -ENOLCK);
	assert_int_equal(slice_locks(&slice), CHUNKS); /* the other's */
	slice_stop(&slice);
}

/* pitfalls A02: LOOKUP hit, END_SESSION, no RETRIEVE, unique ids. */
static void sessions_that_only_look_up_leave_nothing(void **state)
{
	struct status_snapshot *status = test_calloc(1, sizeof(*status));
	struct kvr_session *session;

	(void)state;
	begin();
	slice_join(&slice, 0, "model", 1, 0);
	store_some(NULL);
	for (unsigned i = 0; i < 2000; i++) {
		char id[32];

		snprintf(id, sizeof(id), "request %u", i);
		session = slice_session(first, id, NULL, 1, CHUNKS);
		assert_int_equal(slice_match(first, session, 0), CHUNKS);
		assert_int_equal(slice_end(first, session), 0);
		if (i % 100 == 0)
			assert_int_equal(slice_end(first, session), 0); /* once more: no error, no effect */
		slice_forget(&session);
		assert_int_equal(slice_locks(&slice), 0);
	}
	slice_status(&slice, status);
	assert_true(status->sessions <= 1); /* that of the STORE */
	test_free(status);
	slice_stop(&slice);
}

/* pitfalls A02: the connection's end does what END_SESSION would have. */
static void a_schedulers_death_releases_what_it_looked_up(void **state)
{
	struct slice_model scheduler;
	struct kvr_session *session;

	(void)state;
	begin();
	slice_model_default(&scheduler);
	scheduler.scheduler = true;
	slice_join(&slice, 0, "model", 1, 0);
	slice_join_as(&slice, 1, 0, &scheduler);
	store_some(NULL);
	session = slice_session(second, "request", NULL, 1, CHUNKS);
	assert_int_equal(slice_match(second, session, 0), CHUNKS);
	assert_int_equal(slice_locks(&slice), CHUNKS);
	slice_kill(second);
	slice_run(&slice, 400);
	assert_int_equal(slice_locks(&slice), 0);
	assert_int_equal(slice_ping(first), 0);
	slice_stop(&slice);
}

/* Who only counts does not become the owner of the locks, whose death would release them. */
static void a_counting_lookup_of_another_process_takes_nothing_over(void **state)
{
	struct kvr_session *mine, *same;

	(void)state;
	begin();
	slice_join(&slice, 0, "model", 2, 0);
	slice_join(&slice, 1, "model", 2, 1);
	for (unsigned i = 0; i < 2; i++) {
		struct kvr_session *store = slice_session(&slice.clients[i], "store", NULL, 1, CHUNKS);

		assert_int_equal(slice_store(&slice.clients[i], store, 0, CHUNKS, 0, i, &request), 0);
		slice_forget(&store);
	}
	mine = slice_session(first, "request", NULL, 1, CHUNKS);
	same = slice_session(second, "request", NULL, 1, CHUNKS);
	assert_int_equal(slice_match(first, mine, 0), CHUNKS);
	assert_int_equal(slice_match(second, same, KVR_LOOKUP_NO_LOCK), CHUNKS);
	slice_kill(second);
	slice_run(&slice, 400);
	assert_int_equal(slice_locks(&slice), CHUNKS); /* of rank 0; those of rank 1 went with it */
	slice_stop(&slice);
}

/* pitfalls A15: all-miss lookups, and ids used twice. */
static void lookups_that_miss_do_not_fill_the_session_table(void **state)
{
	struct status_snapshot *status = test_calloc(1, sizeof(*status));
	struct kvr_session *session;

	(void)state;
	begin();
	slice_join(&slice, 0, "model", 1, 0);
	for (uint32_t i = 0; i < 3000; i++) {
		char id[32];

		snprintf(id, sizeof(id), "request %u", i);
		session = slice_session(first, id, NULL, 10 + i, 1);
		assert_int_equal(slice_match(first, session, 0), 0);
		slice_forget(&session);
	}
	slice_status(&slice, status);
	assert_true(status->sessions <= slice.options.sessions_max);
	assert_int_equal(status->locks, 0);
	slice_pass(&slice, 2 * slice.options.session_ttl_ns);
	slice_status(&slice, status);
	assert_int_equal(status->sessions, 0);
	test_free(status);
	slice_stop(&slice);
}

static void a_second_lookup_of_a_session_takes_no_second_set_of_locks(void **state)
{
	struct kvr_session *session;

	(void)state;
	begin();
	slice_join(&slice, 0, "model", 1, 0);
	store_some(NULL);
	session = slice_session(first, "request", NULL, 1, CHUNKS);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(slice_match(first, session, 0), CHUNKS);
		assert_int_equal(slice_locks(&slice), CHUNKS);
	}
	assert_int_equal(slice_end(first, session), 0);
	assert_int_equal(slice_locks(&slice), 0);
	slice_stop(&slice);
}

/* pitfalls A03: whatever a session holds is gone with its time limit, and L1 can be filled again. */
static void locks_and_sessions_reach_their_time_limits(void **state)
{
	struct status_snapshot *status = test_calloc(1, sizeof(*status));
	struct kvr_session *session;
	struct kvr_result result;

	(void)state;
	slice_prepare(&slice, 12, NULL, 1u << 20);
	slice.options.lock_ttl_ns = 100 * KVR_MS;
	slice.options.session_ttl_ns = 300 * KVR_MS;
	slice_server_begin(&slice);
	slice_join(&slice, 0, "model", 1, 0);
	store_some(NULL);
	session = slice_session(first, "request", NULL, 1, CHUNKS);
	assert_int_equal(slice_match(first, session, 0), CHUNKS);
	slice_pass(&slice, 20 * KVR_MS);
	assert_int_equal(slice_locks(&slice), CHUNKS);
	slice_pass(&slice, 100 * KVR_MS);
	assert_int_equal(slice_locks(&slice), 0);
	assert_int_equal(slice_counters(&slice)->locks_expired_total, CHUNKS);
	assert_int_equal(slice_free(first, session, 0, CHUNKS, true, &result), -ENOLCK);
	slice_pass(&slice, 400 * KVR_MS);
	slice_status(&slice, status);
	assert_int_equal(status->sessions, 0);
	test_free(status);
	slice_stop(&slice);
}

/* An expired lock only makes the chunk evictable: a RETRIEVE still finds it. */
static void a_retrieve_after_the_locks_time_limit_still_delivers(void **state)
{
	struct kvr_session *session;

	(void)state;
	slice_prepare(&slice, 13, NULL, 1u << 20);
	slice.options.lock_ttl_ns = 20 * KVR_MS;
	slice_server_begin(&slice);
	slice_join(&slice, 0, "model", 1, 0);
	store_some(NULL);
	session = slice_session(first, "request", NULL, 1, CHUNKS);
	assert_int_equal(slice_match(first, session, 0), CHUNKS);
	slice_pass(&slice, 100 * KVR_MS);
	assert_int_equal(slice_locks(&slice), 0);
	assert_int_equal(slice_retrieve(first, session, 0, CHUNKS, 100, &request), 0);
	slice_outcomes_are(&request, KVR_DELIVERED);
	slice_stop(&slice);
}

/* pitfalls A06: one object, four readers. */
static void an_object_stays_until_its_last_reader_has_it(void **state)
{
	struct slice_model model;
	struct kvr_session *sessions[4];
	struct kvr_result result;

	(void)state;
	slice_start(&slice, 14, NULL, 4 * L1_PAGE_BYTES); /* 64 objects */
	slice_model_default(&model);
	model.readers = 4;
	for (unsigned i = 0; i < 4; i++) {
		model.reader = i;
		slice_join_as(&slice, i, 0, &model);
	}
	sessions[0] = slice_session(first, "store", NULL, 1, CHUNKS);
	assert_int_equal(slice_store(first, sessions[0], 0, CHUNKS, 0, 1, &request), 0);
	slice_forget(&sessions[0]);
	for (unsigned i = 0; i < 4; i++)
		sessions[i] = slice_session(&slice.clients[i], "request", NULL, 1, CHUNKS);
	assert_int_equal(slice_match(first, sessions[0], 0), CHUNKS);
	assert_int_equal(slice_locks(&slice), 4 * CHUNKS);
	for (unsigned i = 0; i < 4; i++) {
		/* Pressure: everything that is not held goes. */
		struct kvr_session *flood = slice_session(first, i % 2 ? "flood 1" : "flood 0", NULL, 50 + i, 60);

		assert_int_equal(slice_store(first, flood, 0, 60, 0, 9, &request), 0);
		assert_int_equal(slice_end(first, flood), 0);
		slice_forget(&flood);
		assert_int_equal(slice_retrieve(&slice.clients[i], sessions[i], 0, CHUNKS, 100, &request), 0);
		slice_outcomes_are(&request, KVR_DELIVERED);
		for (uint32_t c = 0; c < CHUNKS; c++)
			assert_true(slice_delivered(&slice.clients[i], &request, c, 1));
		assert_int_equal(slice_locks(&slice), (3 - i) * CHUNKS);
	}
	assert_int_equal(slice_clear(first, &result), 0);
	assert_int_equal(result.from_l2, 0); /* kept: none */
	slice_stop(&slice);
}

/* pitfalls A04, A05: ranks release their own shares, whatever becomes of the others. */
static void a_rank_that_dies_releases_its_own_share_only(void **state)
{
	struct kvr_session *sessions[4], *bystander;

	(void)state;
	for (unsigned dead = 0; dead < 4; dead += 2) {
		begin();
		for (unsigned i = 0; i < 4; i++)
			slice_join(&slice, i, "model", 4, i);
		slice_join(&slice, 4, "model", 4, 0);
		for (unsigned i = 0; i < 4; i++) {
			sessions[i] = slice_session(&slice.clients[i], "request", NULL, 1, CHUNKS);
			assert_int_equal(
				slice_store(&slice.clients[i], sessions[i], 0, CHUNKS, 0, 10 + i, &request), 0);
		}
		bystander = slice_session(&slice.clients[4], "bystander", NULL, 1, 1);
		assert_int_equal(slice_match(&slice.clients[4], bystander, 0), 1);
		/* Rank 3 looks up for all, so that its connection owns the session. */
		assert_int_equal(slice_match(&slice.clients[3], sessions[3], 0), CHUNKS);
		assert_int_equal(slice_locks(&slice), 4 + 4 * CHUNKS);
		slice_submit_retrieve(&slice.clients[dead], sessions[dead], 0, CHUNKS, 100, &request);
		slice_run(&slice, 3);
		slice_kill(&slice.clients[dead]);
		slice_run(&slice, 400);
		for (unsigned i = 0; i < 4; i++) {
			if (i == dead)
				continue;
			assert_int_equal(slice_retrieve(&slice.clients[i], sessions[i], 0, CHUNKS, 100, &request), 0);
			slice_outcomes_are(&request, KVR_DELIVERED);
			assert_true(slice_delivered(&slice.clients[i], &request, 0, 10 + i));
		}
		/* What is left: the bystander's, but for the dead rank's share where the bystander is of another rank. */
		assert_int_equal(slice_locks(&slice), dead == 0 ? 4 : 3);
		slice_stop(&slice);
	}
}

/* pitfalls A04: P's copy fails at chunk 3 of 5, Q's lock stays, exactly once. */
static void a_failed_copy_gives_back_its_own_hold_only(void **state)
{
	struct kvr_session *mine, *other;
	struct kvr_result result;

	(void)state;
	begin();
	slice_join(&slice, 0, "model", 1, 0);
	slice_join(&slice, 1, "model", 1, 0);
	slice_join(&slice, 2, "model", 1, 0);
	store_some(NULL);
	mine = slice_session(second, "mine", NULL, 1, CHUNKS);
	other = slice_session(&slice.clients[2], "other", NULL, 1, CHUNKS);
	assert_int_equal(slice_match(second, mine, 0), CHUNKS);
	assert_int_equal(slice_match(&slice.clients[2], other, 0), CHUNKS);
	slice.network.access_error_per_million = 1000000;
	slice_submit_retrieve(second, mine, 0, CHUNKS, 100, &request);
	sim_fabric_set_options(slice.fabric, &slice.network);
	(void)slice_finish(second, &request); /* -ECONNRESET, or FAILED outcomes before it */
	slice.network.access_error_per_million = 0;
	sim_fabric_set_options(slice.fabric, &slice.network);
	slice_run(&slice, 400);
	assert_int_equal(slice_locks(&slice), CHUNKS);
	assert_int_equal(slice_clear(first, &result), 0);
	assert_int_equal(result.chunks, 0);
	assert_int_equal(slice_retrieve(&slice.clients[2], other, 0, CHUNKS, 100, &request), 0);
	slice_outcomes_are(&request, KVR_DELIVERED);
	slice_stop(&slice);
}

/* pitfalls A05: the scheduler frees for all ranks what no RETRIEVE is going to take. */
static void a_scheduler_frees_for_all_ranks(void **state)
{
	struct slice_model model;
	struct kvr_session *sessions[3];
	struct kvr_result result;

	(void)state;
	begin();
	slice_join(&slice, 0, "model", 2, 0);
	slice_join(&slice, 1, "model", 2, 1);
	slice_model_default(&model);
	model.world_size = 2;
	model.scheduler = true;
	slice_join_as(&slice, 2, 0, &model);
	for (unsigned i = 0; i < 3; i++)
		sessions[i] = slice_session(&slice.clients[i], "request", NULL, 1, CHUNKS);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(slice_store(&slice.clients[i], sessions[i], 0, CHUNKS, 0, i, &request), 0);
	assert_int_equal(slice_match(&slice.clients[2], sessions[2], 0), CHUNKS);
	assert_int_equal(slice_retrieve(first, sessions[0], 0, CHUNKS, 100, &request), 0);
	assert_int_equal(slice_locks(&slice), CHUNKS); /* rank 1's */
	assert_int_equal(slice_free(&slice.clients[2], sessions[2], 2, 2, true, &result), 0);
	assert_int_equal(result.chunks, 2);
	assert_int_equal(slice_free(second, sessions[1], 0, 2, false, &result), 0);
	assert_int_equal(slice_locks(&slice), 0);
	slice_stop(&slice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_release_under_another_salt_releases_nothing),
		cmocka_unit_test(a_second_release_is_an_error_and_changes_nothing),
		cmocka_unit_test(sessions_that_only_look_up_leave_nothing),
		cmocka_unit_test(a_schedulers_death_releases_what_it_looked_up),
		cmocka_unit_test(a_counting_lookup_of_another_process_takes_nothing_over),
		cmocka_unit_test(lookups_that_miss_do_not_fill_the_session_table),
		cmocka_unit_test(a_second_lookup_of_a_session_takes_no_second_set_of_locks),
		cmocka_unit_test(locks_and_sessions_reach_their_time_limits),
		cmocka_unit_test(a_retrieve_after_the_locks_time_limit_still_delivers),
		cmocka_unit_test(an_object_stays_until_its_last_reader_has_it),
		cmocka_unit_test(a_rank_that_dies_releases_its_own_share_only),
		cmocka_unit_test(a_failed_copy_gives_back_its_own_hold_only),
		cmocka_unit_test(a_scheduler_frees_for_all_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
