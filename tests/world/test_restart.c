/* test_restart.c - servers that are restarted, connections that are lost, clients that come back, and the reaper. */
#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "protocol/status.h"
#include "world/slice.h"

#define CHUNKS 3u

static struct slice slice;
static struct slice_request request;
static struct slice_client *const first = &slice.clients[0], *const second = &slice.clients[1];

static void store_some(struct slice_client *client, struct kvr_session *session)
{
	assert_int_equal(slice_store(client, session, 0, CHUNKS, 0, 1, &request), 0);
	slice_outcomes_are(&request, KVR_STORED);
}

/* pitfalls G01, B09: a clear error, then the client is registered again by itself, and old chunks miss. */
static void after_a_restart_the_client_goes_on_by_itself(void **state)
{
	struct kvr_session *session;
	uint64_t killed_ns;

	(void)state;
	slice_start(&slice, 71, NULL, 1u << 20);
	slice_join(&slice, 0, "model", 1, 0);
	session = slice_session(first, "request", NULL, 1, CHUNKS);
	store_some(first, session);
	assert_int_equal(slice_match(first, session, 0), CHUNKS);
	slice_submit_retrieve(first, session, 0, CHUNKS, 100, &request);
	slice_run(&slice, 4);
	killed_ns = slice.now_ns;
	slice_server_kill(&slice);
	slice_server_begin(&slice); /* faster than anybody could notice */
	assert_int_equal(slice_finish(first, &request), -ECONNRESET);
	assert_int_equal(request.result.status, STATUS_CONNECTION_LOST);
	slice_await_ready(first);
	assert_true(slice.now_ns - killed_ns < KVR_SECOND);
	/* The number of the registration and the session's handle are good as they were. */
	assert_int_equal(slice_match(first, session, 0), 0);
	assert_int_equal(slice_retrieve(first, session, 0, CHUNKS, 100, &request), 0);
	slice_outcomes_are(&request, KVR_MISSING);
	store_some(first, session);
	assert_int_equal(slice_match(first, session, 0), CHUNKS);
	slice_stop(&slice);
}

/* pitfalls G01: killed at any moment of a STORE and of a RETRIEVE. */
static void a_server_may_die_at_any_moment(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 40; turns += 2) {
		struct slice_request store, load;
		struct kvr_session *session, *other;

		slice_start(&slice, 100 + turns, NULL, 1u << 20);
		slice_join(&slice, 0, "model", 1, 0);
		slice_join(&slice, 1, "model", 1, 0);
		session = slice_session(first, "request", NULL, 1, CHUNKS);
		other = slice_session(second, "other", NULL, 2, CHUNKS);
		store_some(first, session);
		slice_submit_retrieve(first, session, 0, CHUNKS, 100, &load);
		slice_submit_store(second, other, 0, CHUNKS, 0, 2, &store);
		slice_run(&slice, turns);
		slice_server_kill(&slice);
		slice_run(&slice, 50);
		slice_server_begin(&slice);
		(void)slice_finish(first, &load);
		(void)slice_finish(second, &store);
		/* The blocks are ours from here on. */
		for (uint32_t i = 0; i < CHUNKS * SLICE_BLOCKS_PER_CHUNK; i++)
			slice_poison(first, load.ids[i]);
		slice_pass(&slice, 5 * KVR_MS);
		for (uint32_t i = 0; i < CHUNKS * SLICE_BLOCKS_PER_CHUNK; i++)
			assert_true(slice_poisoned(first, load.ids[i]));
		slice_await_ready(first);
		slice_await_ready(second);
		store_some(first, session);
		assert_int_equal(slice_store(second, other, 0, CHUNKS, 0, 2, &store), 0);
		assert_int_equal(slice_retrieve(second, other, 0, CHUNKS, 100, &load), 0);
		slice_outcomes_are(&load, KVR_DELIVERED);
		slice_stop(&slice);
	}
}

/* While there is no server: an error at once, never a wait; and back soon after it is there. */
static void without_a_server_requests_fail_at_once(void **state)
{
	struct kvr_session *session;
	kvr_ticket ticket;
	uint64_t back_ns;

	(void)state;
	slice_start(&slice, 72, NULL, 1u << 20);
	slice_join(&slice, 0, "model", 1, 0);
	session = slice_session(first, "request", NULL, 1, CHUNKS);
	slice_server_kill(&slice);
	slice_pass(&slice, 20 * KVR_SECOND);
	assert_int_equal(client_submit_lookup(session, 0, &ticket), -ECONNRESET);
	assert_true(slice.connects < 40); /* backing off up to 5 s: not thousands of attempts */
	slice_server_begin(&slice);
	back_ns = slice.now_ns;
	slice_await_ready(first);
	assert_true(slice.now_ns - back_ns <= 5 * KVR_SECOND);
	store_some(first, session);
	slice_stop(&slice);
}

/* pitfalls G02: a server that takes no connection for a while does not hold a client for minutes. */
static void attempts_to_connect_are_bounded(void **state)
{
	uint64_t deaf_ns;

	(void)state;
	slice_start(&slice, 73, NULL, 1u << 20);
	slice_join(&slice, 0, "model", 1, 0);
	slice.deaf = true;
	slice_server_kill(&slice);
	slice_pass(&slice, 3 * KVR_SECOND);
	slice_server_begin(&slice);
	slice.deaf = false;
	deaf_ns = slice.now_ns;
	slice_await_ready(first);
	assert_true(slice.now_ns - deaf_ns <= 10 * KVR_SECOND);
	slice_stop(&slice);
}

/* pitfalls G06: many clients lose one server together and come back spread out. */
static void a_storm_of_reconnects_is_spread_and_survived(void **state)
{
	uint64_t killed_ns, ready_ns[SLICE_CLIENTS] = { 0 }, least = UINT64_MAX, most = 0;
	struct kvr_session *sessions[SLICE_CLIENTS];
	unsigned ready = 0;

	(void)state;
	slice_start(&slice, 74, NULL, 1u << 20);
	for (unsigned i = 0; i < SLICE_CLIENTS; i++) {
		slice_join(&slice, i, "model", 1, 0);
		sessions[i] = slice_session(&slice.clients[i], i % 2 ? "odd" : "even", NULL, i % 2, CHUNKS);
	}
	killed_ns = slice.now_ns;
	slice_server_kill(&slice);
	slice_server_begin(&slice);
	slice_run(&slice, 20);
	while (ready < SLICE_CLIENTS) {
		assert_true(slice.now_ns - killed_ns < 60 * KVR_SECOND);
		slice_step(&slice);
		for (unsigned i = 0; i < SLICE_CLIENTS; i++) {
			if (ready_ns[i] || !client_ready(slice.clients[i].client))
				continue;
			ready_ns[i] = slice.now_ns - killed_ns;
			ready++;
			least = kvr_min_u64(least, ready_ns[i]);
			most = kvr_max_u64(most, ready_ns[i]);
		}
	}
	assert_true(most - least > 10 * KVR_MS); /* of the first back-off, 50 to 100 ms */
	for (unsigned i = 0; i < SLICE_CLIENTS; i++)
		assert_int_equal(slice_store(&slice.clients[i], sessions[i], 0, CHUNKS, 0, i, &request), 0);
	slice_stop(&slice);
}

/* A server that is full says so, and takes the next one when somebody leaves (pitfalls N01). */
static void one_client_too_many_is_told(void **state)
{
	const char *text;

	(void)state;
	slice_prepare(&slice, 75, NULL, 1u << 20);
	slice.options.connections_max = 2;
	slice_server_begin(&slice);
	slice_join(&slice, 0, "model", 1, 0);
	slice_join(&slice, 1, "model", 1, 0);
	slice_create_client(&slice, 2, 0);
	slice_run(&slice, 100);
	assert_false(client_ready(slice.clients[2].client));
	assert_int_equal(client_failure(slice.clients[2].client, &text), -EUSERS);
	assert_int_equal(slice_ping(first), 0);
	slice_leave(second);
	slice_await_ready(&slice.clients[2]);
	slice_stop(&slice);
}

/* pitfalls B02, B04: who is silent is closed; who speaks is not, however long. */
static void the_reaper_closes_the_silent_and_nobody_else(void **state)
{
	struct kvr_session *session;
	struct kvr_info info;

	(void)state;
	slice_prepare(&slice, 76, NULL, 1u << 20);
	slice.options.silence_ns = 200 * KVR_MS;
	slice_server_begin(&slice);
	slice_join(&slice, 0, "model", 1, 0);
	slice_join(&slice, 1, "model", 1, 0);
	session = slice_session(second, "request", NULL, 1, CHUNKS);
	store_some(second, session);
	assert_int_equal(slice_match(second, session, 0), CHUNKS);
	for (unsigned i = 0; i < 15; i++) {
		slice_pass(&slice, 90 * KVR_MS);
		assert_int_equal(slice_ping(first), 0);
		/* The silent one is stalled, so that it does not come back at once. */
		sim_fabric_stall_device(slice.fabric, second->device, true);
	}
	assert_true(slice_counters(&slice)->reaped_connections_total >= 1);
	assert_int_equal(slice_locks(&slice), 0);
	sim_fabric_stall_device(slice.fabric, second->device, false);
	slice_await_ready(second);
	assert_int_equal(slice_ping(second), 0);
	assert_int_equal(kvr_get_info(first->client, &info), 0);
	assert_int_equal(info.reconnects, 0);
	assert_int_equal(kvr_get_info(second->client, &info), 0);
	assert_true(info.reconnects > 0);
	slice_stop(&slice);
}

/* pitfalls B04: while it waits for an answer a client has nothing to say, and its silence begins with the answer. */
static void who_waited_long_is_not_reaped_with_its_answer(void **state)
{
	(void)state;
	for (unsigned early = 0; early < 2; early++) {
		struct kvr_session *session;
		struct kvr_info info;

		slice_prepare(&slice, 86 + early, NULL, 1u << 20);
		slice.options.silence_ns = 200 * KVR_MS;
		slice_server_begin(&slice);
		slice_join(&slice, 0, "model", 1, 0);
		session = slice_session(first, "request", NULL, 1, CHUNKS);
		slice_submit_store(first, session, 0, CHUNKS, 0, 1, &request);
		slice_run(&slice, 8);
		sim_fabric_stall_device(slice.fabric, first->device, true);
		slice_pass(&slice, early ? 195 * KVR_MS : 450 * KVR_MS);
		sim_fabric_stall_device(slice.fabric, first->device, false);
		assert_int_equal(slice_finish(first, &request), 0);
		slice_pass(&slice, 90 * KVR_MS);
		assert_int_equal(slice_ping(first), 0);
		assert_int_equal(kvr_get_info(first->client, &info), 0);
		assert_int_equal(info.reconnects, 0);
		slice_stop(&slice);
	}
}

/* pitfalls B03: mapping a client's memory may take long. It waits for that, and so do not the others. */
static void who_waits_for_slow_mapping_is_not_silent(void **state)
{
	struct slice_model model;
	struct kvr_info info;
	struct kvr_result result;
	kvr_ticket ticket;

	(void)state;
	slice_prepare(&slice, 91, NULL, 1u << 20);
	slice.options.silence_ns = 200 * KVR_MS;
	slice_server_begin(&slice);
	slice_join(&slice, 0, "model", 1, 0);
	slice_create_client(&slice, 1, 0);
	slice_await_ready(second);
	control_hold(server_control(slice.server), CONTROL_HOLD_MEMORY);
	slice_model_default(&model);
	assert_int_equal(slice_submit_register(second, &model, &ticket), 0);
	for (unsigned i = 0; i < 20; i++) {
		slice_pass(&slice, 90 * KVR_MS);
		assert_int_equal(slice_ping(first), 0);
		assert_int_equal(client_take(second->client, ticket, &result), -EAGAIN);
	}
	control_hold(server_control(slice.server), 0);
	assert_int_equal(slice_wait(&slice, second->client, ticket, &result), 0);
	assert_int_equal(slice_counters(&slice)->reaped_connections_total, 0);
	assert_int_equal(kvr_get_info(second->client, &info), 0);
	assert_int_equal(info.reconnects, 0);
	slice_stop(&slice);
}

static void who_registers_nothing_is_closed_after_the_grace(void **state)
{
	(void)state;
	slice_prepare(&slice, 77, NULL, 1u << 20);
	slice.options.registration_grace_ns = 100 * KVR_MS;
	slice_server_begin(&slice);
	slice_join(&slice, 0, "model", 1, 0);
	slice_create_client(&slice, 1, 0);
	slice_await_ready(second);
	slice_pass(&slice, 250 * KVR_MS);
	assert_true(slice_counters(&slice)->reaped_connections_total >= 1);
	assert_int_equal(slice_ping(first), 0);
	slice_stop(&slice);
}

/* pitfalls B10: crash and come back, again and again: nothing grows. */
static void crash_loops_leave_nothing_behind(void **state)
{
	struct status_snapshot *status = test_calloc(1, sizeof(*status));

	(void)state;
	slice_start(&slice, 78, NULL, 1u << 20);
	slice_join(&slice, 0, "model", 1, 0);
	for (unsigned round = 0; round < 60; round++) {
		struct kvr_session *session;

		slice_join(&slice, 1, round % 2 ? "model" : "other", 1, 0);
		session = slice_session(second, "request", NULL, 1 + round % 3, CHUNKS);
		slice_submit_store(second, session, 0, CHUNKS, 0, 1, &request);
		slice_run(&slice, round % 30);
		slice_kill(second);
	}
	slice_run(&slice, 500);
	assert_int_equal(control_client_count(server_control(slice.server)), 1);
	slice_pass(&slice, 2 * slice.options.session_ttl_ns);
	slice_status(&slice, status);
	assert_int_equal(status->connections, 1);
	assert_int_equal(status->registrations, 1);
	assert_int_equal(status->sessions, 0);
	assert_true(status->models <= 2);
	test_free(status);
	slice_stop(&slice);
}

/* A drain lets transfers end, refuses new ones, and leaves nothing. */
static void a_draining_server_ends_what_it_began(void **state)
{
	struct kvr_session *session;
	struct slice_request late;

	(void)state;
	slice_start(&slice, 79, NULL, 1u << 20);
	slice_join(&slice, 0, "model", 1, 0);
	session = slice_session(first, "request", NULL, 1, CHUNKS);
	store_some(first, session);
	slice_submit_retrieve(first, session, 0, CHUNKS, 100, &request);
	slice_run(&slice, 12);
	control_drain(server_control(slice.server), slice.now_ns);
	slice_submit_retrieve(first, session, 0, CHUNKS, 150, &late);
	assert_int_equal(slice_finish(first, &request), 0);
	slice_outcomes_are(&request, KVR_DELIVERED);
	assert_true(slice_finish(first, &late) == -ESHUTDOWN || late.result.error == -ECONNRESET);
	slice_stop(&slice);
}

/* pitfalls B09: a worker that died in the midst of a STORE and is back under its old name before the server has noticed. Nothing of the
 * STORE is found, and that the one before is lost costs the new one nothing. */
static void who_comes_back_under_an_old_name_is_somebody_new(void **state)
{
	struct kvr_session *whole, *half, *request_of_engine;
	struct slice_model model;

	(void)state;
	slice_start(&slice, 79, NULL, 1u << 20);
	slice_model_default(&model);
	slice_join_as(&slice, 0, 0, &model);
	model.scheduler = true;
	slice_join_as(&slice, 1, 0, &model);
	model.scheduler = false;
	whole = slice_session(first, "before", NULL, 1, CHUNKS);
	store_some(first, whole);
	request_of_engine = slice_session(second, "request", NULL, 1, CHUNKS);
	assert_int_equal(slice_match(second, request_of_engine, 0), CHUNKS);
	half = slice_session(first, "half", NULL, 2, CHUNKS);
	slice_submit_store(first, half, 0, CHUNKS, 0, 66, &request);
	slice_run(&slice, 3);
	slice_kill(first);
	slice_join_as(&slice, 0, 0, &model);
	half = slice_session(first, "half", NULL, 2, CHUNKS);
	assert_int_equal(slice_match(first, half, KVR_LOOKUP_NO_LOCK), 0);
	slice_pass(&slice, 10 * KVR_SECOND);
	assert_int_equal(slice_ping(first), 0);
	store_some(first, half);
	assert_int_equal(slice_match(first, half, KVR_LOOKUP_NO_LOCK), CHUNKS);
	slice_forget(&half);
	whole = slice_session(first, "request", NULL, 1, CHUNKS);
	assert_int_equal(slice_retrieve(first, whole, 0, CHUNKS, 100, &request), 0);
	slice_outcomes_are(&request, KVR_DELIVERED);
	slice_forget(&whole);
	assert_int_equal(slice_end(second, request_of_engine), 0);
	slice_forget(&request_of_engine);
	assert_int_equal(slice_locks(&slice), 0);
	slice_stop(&slice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(after_a_restart_the_client_goes_on_by_itself),
		cmocka_unit_test(a_server_may_die_at_any_moment),
		cmocka_unit_test(without_a_server_requests_fail_at_once),
		cmocka_unit_test(attempts_to_connect_are_bounded),
		cmocka_unit_test(a_storm_of_reconnects_is_spread_and_survived),
		cmocka_unit_test(one_client_too_many_is_told),
		cmocka_unit_test(the_reaper_closes_the_silent_and_nobody_else),
		cmocka_unit_test(who_waited_long_is_not_reaped_with_its_answer),
		cmocka_unit_test(who_waits_for_slow_mapping_is_not_silent),
		cmocka_unit_test(who_registers_nothing_is_closed_after_the_grace),
		cmocka_unit_test(crash_loops_leave_nothing_behind),
		cmocka_unit_test(a_draining_server_ends_what_it_began),
		cmocka_unit_test(who_comes_back_under_an_old_name_is_somebody_new),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
