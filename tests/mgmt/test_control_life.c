/* test_control_life.c - how clients and the server end, at any moment; and what fails while they are made. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "mgmt/control_rig.h"

#define REGION_BYTES ((uint64_t)65536)
#define ADDRESS UINT64_C(0x700000000000)
#define CONVERSATION (8 * RIG_MESSAGE)
#define REPLIES 8u

/* A client's whole life on the control socket; `registration`: the number that its registration will have. */
static size_t make_conversation(uint8_t *bytes, struct peer *peer, uint32_t registration)
{
	size_t length = make_hello(bytes, "sim", "default");

	length += make_connect(bytes + length, peer);
	length += make_memory(bytes + length, ADDRESS, REGION_BYTES, 9);
	length += make_memory(bytes + length, ADDRESS + REGION_BYTES, REGION_BYTES, 10);
	length += make_register(bytes + length, "model", 2, ADDRESS, 0);
	length += make_forget(bytes + length, 1);
	length += make_unregister(bytes + length, registration);
	length += make_forget(bytes + length, 0);
	return length;
}

static uint32_t next_registration(struct rig *rig)
{
	return (uint32_t)management_counters(server_management(rig->server))->registrations_total + 1;
}

/* ---- the client goes ---- */

static void the_socket_may_close_behind_any_byte(void **state)
{
	uint8_t bytes[CONVERSATION];
	size_t length = 1;
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	for (size_t cut = 0; cut <= length; cut++) {
		assert_int_equal(peer_open(&rig, &peer), 0);
		length = make_conversation(bytes, &peer, next_registration(&rig));
		peer_send(&peer, bytes, cut, NULL, 0);
		if (cut % 3)
			rig_steps(&rig, 300);
		peer_fini(&peer);
		rig_settle(&rig, 0);
	}
	assert_int_equal(server_verify(rig.server, true), 0);
	rig_stop(&rig);
}

/* True when all replies came: the sweep has seen the whole conversation. */
static bool close_after_steps(struct rig *rig, unsigned steps, bool half)
{
	uint8_t bytes[CONVERSATION];
	unsigned replies = 0;
	struct peer peer;
	size_t length;

	assert_int_equal(peer_open(rig, &peer), 0);
	length = make_conversation(bytes, &peer, next_registration(rig));
	peer_send(&peer, bytes, length, NULL, 0);
	rig_steps(rig, steps);
	if (half) {
		peer.stream->ops->finish(peer.stream);
		while (peer_reply(&peer) == STATUS_OK)
			replies++;
		assert_true(peer.ended);
	}
	peer_fini(&peer);
	rig_settle(rig, 0);
	return replies == REPLIES;
}

static void the_socket_may_close_at_any_step(void **state)
{
	struct rig rig;

	(void)state;
	rig_make(&rig);
	for (unsigned steps = 0; !close_after_steps(&rig, steps, true); steps++)
		assert_true(steps < 2000);
	for (unsigned steps = 0; steps < 300; steps++)
		close_after_steps(&rig, steps, false);
	assert_int_equal(server_verify(rig.server, true), 0);
	rig_stop(&rig);
}

/* The management core has the message and has not answered yet. */
static void the_socket_may_close_while_the_management_core_is_asked(void **state)
{
	struct rig rig;

	(void)state;
	rig_make(&rig);
	for (unsigned kind = 0; kind < 3; kind++) {
		uint8_t bytes[RIG_MESSAGE];
		uint32_t registration;
		struct peer peer;
		size_t length;

		peer_join(&rig, &peer);
		assert_int_equal(peer_memory(&peer, ADDRESS, REGION_BYTES, NULL), STATUS_OK);
		assert_int_equal(peer_register(&peer, 0, 0, 0, &registration), STATUS_OK);
		rig.management_stands = true;
		length = kind == 0  ? make_register(bytes, "model", 1, ADDRESS, 0)
			: kind == 1 ? make_unregister(bytes, registration)
				    : make_forget(bytes, 0);
		peer_send(&peer, bytes, length, NULL, 0);
		rig_steps(&rig, 50);
		peer_fini(&peer);
		rig_steps(&rig, 50);
		assert_int_equal(control_client_count(server_control(rig.server)), 1);
		rig.management_stands = false;
		rig_settle(&rig, 0);
	}
	rig_stop(&rig);
}

/* The end of the stream says that nothing touches the client's memory any more. */
static void the_stream_ends_only_when_the_management_core_has_let_go(void **state)
{
	struct control_client_status status;
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	peer_join(&rig, &peer);
	assert_int_equal(peer_memory(&peer, ADDRESS, REGION_BYTES, NULL), STATUS_OK);
	assert_int_equal(peer_register(&peer, 1, ADDRESS, 0, NULL), STATUS_OK);
	rig.management_stands = true;
	peer.stream->ops->finish(peer.stream);
	rig_steps(&rig, 300);
	assert_false(peer_look(&peer));
	assert_int_equal(control_list_clients(server_control(rig.server), &status, 1), 1);
	assert_string_equal(status.state, "detaching");
	rig.management_stands = false;
	assert_int_equal(peer_reply(&peer), PEER_CLOSED);
	assert_int_equal(rig_counters(&rig)->clients_lost_total, 1);
	peer_fini(&peer);
	rig_stop(&rig);
}

/* ---- the server ends it ---- */

static void a_connection_that_the_reaper_takes_is_closed(void **state)
{
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_prepare(&rig);
	rig.options.registration_grace_ns = KVR_MS;
	rig_start(&rig);
	peer_join(&rig, &peer);
	rig_forget_lines(&rig);
	assert_int_equal(peer_reply(&peer), PEER_CLOSED);
	assert_int_equal(rig_lines_with(&rig, "it fell silent"), 1);
	rig_settle(&rig, 0);
	assert_int_equal(rig_counters(&rig)->clients_lost_total, 0);
	peer_fini(&peer);
	rig_stop(&rig);
}

static void a_drained_server_has_closed_everybody_and_takes_nobody(void **state)
{
	struct peer fresh, challenged, ready, connected, late;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	assert_int_equal(peer_open(&rig, &fresh), 0);
	assert_int_equal(peer_open_tcp(&rig, &challenged), 0);
	assert_int_equal(peer_hello(&challenged), STATUS_OK);
	assert_int_equal(peer_open(&rig, &ready), 0);
	assert_int_equal(peer_hello(&ready), STATUS_OK);
	peer_join(&rig, &connected);
	assert_int_equal(peer_memory(&connected, ADDRESS, REGION_BYTES, NULL), STATUS_OK);
	assert_int_equal(peer_register(&connected, 1, ADDRESS, 0, NULL), STATUS_OK);
	control_drain(server_control(rig.server), rig.now_ns);
	control_drain(server_control(rig.server), rig.now_ns);
	assert_int_equal(peer_open(&rig, &late), -EUSERS);
	assert_int_equal(peer_reply(&late), STATUS_SHUTTING_DOWN);
	assert_int_equal(peer_reply(&late), PEER_CLOSED);
	assert_int_equal(peer_reply(&fresh), PEER_CLOSED);
	assert_int_equal(peer_reply(&challenged), PEER_CLOSED);
	assert_int_equal(peer_reply(&ready), PEER_CLOSED);
	assert_int_equal(peer_reply(&connected), PEER_CLOSED);
	rig_settle(&rig, 0);
	assert_true(control_idle(server_control(rig.server)));
	peer_fini(&late);
	peer_fini(&fresh);
	peer_fini(&challenged);
	peer_fini(&ready);
	peer_fini(&connected);
	rig_stop(&rig);
}

static void the_server_may_drain_at_any_step_of_a_conversation(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 240; steps += 3) {
		uint8_t bytes[CONVERSATION];
		struct peer peer;
		struct rig rig;
		size_t length;

		rig_make(&rig);
		assert_int_equal(peer_open(&rig, &peer), 0);
		length = make_conversation(bytes, &peer, 1);
		peer_send(&peer, bytes, length, NULL, 0);
		rig_steps(&rig, steps);
		control_drain(server_control(rig.server), rig.now_ns);
		while (peer_reply(&peer) != PEER_CLOSED)
			;
		peer_fini(&peer);
		rig_stop(&rig);
	}
}

/* ---- again and again ---- */

static void take_snapshot(void *context, struct status_snapshot *snapshot)
{
	bool *done = context;

	(void)snapshot;
	*done = true;
}

static void ask_status(struct rig *rig, struct status_snapshot *snapshot)
{
	bool done = false;

	assert_int_equal(control_request_status(server_control(rig->server), snapshot, take_snapshot, &done), 0);
	while (!done)
		rig_step(rig);
}

/* pitfalls B09, B10 */
static void ten_thousand_clients_one_after_the_other_leave_nothing(void **state)
{
	struct status_snapshot snapshot;
	struct sim_counters counters;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	for (unsigned i = 0; i < 10000; i++) {
		uint8_t bytes[CONVERSATION];
		struct peer peer;
		size_t length;

		assert_int_equal(peer_open(&rig, &peer), 0);
		length = make_conversation(bytes, &peer, 0); /* gives its registration never back */
		peer_send(&peer, bytes, length, NULL, 0);
		rig_steps(&rig, i % 128);
		peer_fini(&peer);
		rig_settle(&rig, 0);
	}
	ask_status(&rig, &snapshot);
	assert_int_equal(snapshot.connections, 0);
	assert_int_equal(snapshot.registrations, 0);
	assert_int_equal(snapshot.sessions, 0);
	assert_int_equal(snapshot.transfers, 0);
	assert_true(snapshot.models <= 1);
	assert_int_equal(snapshot.l1.objects, 0);
	assert_int_equal(server_verify(rig.server, true), 0);
	sim_fabric_counters(rig.fabric, &counters);
	assert_int_equal(counters.misuses, 0);
	assert_int_equal(rig_counters(&rig)->accepted_total, 10000);
	rig_stop(&rig);
}

/* ---- what fails while things are made ---- */

static void a_server_that_cannot_be_made_leaves_nothing(void **state)
{
	struct sim_counters counters;
	unsigned failures = 0;
	struct rig rig;

	(void)state;
	rig_prepare(&rig);
	rig.options.helper_threads = 1;
	for (uint64_t nth = 1;; nth++) {
		int error;

		fault_arm(nth);
		error = server_create(&rig.options, &rig.server);
		if (!fault_fired()) {
			fault_arm(0);
			assert_int_equal(error, 0);
			break;
		}
		failures++;
		assert_true(error < 0);
		assert_null(rig.server);
	}
	assert_true(failures > 20);
	server_destroy(&rig.server);
	sim_fabric_counters(rig.fabric, &counters);
	assert_int_equal(counters.misuses, 0);
	rig_stop(&rig);
}

static unsigned registered, refuse_at;

static int register_that_refuses(
	struct verbs_device *device, void *address, uint64_t length, int access, struct ibv_mr **mr)
{
	assert_int_equal(access, IBV_ACCESS_LOCAL_WRITE);
	if (++registered == refuse_at)
		return -EPERM;
	return verbs_sim.register_memory(device, address, length, access, mr);
}

static void a_device_that_refuses_l1_is_named_with_area_and_cause(void **state)
{
	static const struct rig_calls calls = { .register_memory = register_that_refuses };
	struct l1_area halves[2];
	struct rig rig;

	(void)state;
	rig_prepare(&rig);
	rig_use(&rig, &calls);
	for (unsigned i = 0; i < 2; i++) {
		halves[i] = rig.area;
		halves[i].bytes = rig.area.bytes / 2;
		halves[i].address = (uint8_t *)rig.area.address + i * halves[i].bytes;
	}
	rig.options.areas = halves;
	rig.options.area_count = 2;
	rig.options.devices[1] = rig.server_device;
	rig.options.worker_count = 2;
	/* The two workers share their device, and so its regions. */
	for (refuse_at = 1; refuse_at <= 2; refuse_at++) {
		registered = 0;
		rig_forget_lines(&rig);
		assert_int_equal(server_create(&rig.options, &rig.server), -EPERM);
		assert_null(rig.server);
		assert_int_equal(
			rig_lines_with(&rig, refuse_at % 2 ? "L1 area 0 (524288 bytes)" : "L1 area 1 (524288 bytes)"),
			1);
		assert_int_equal(rig_lines_with(&rig, rig.server_device->name), 1);
		assert_int_equal(rig_lines_with(&rig, strerror(EPERM)), 2);
		assert_int_equal(rig_lines_with(&rig, "memory regions of L1 could not be made"), 1);
	}
	rig.driver.register_memory = verbs_sim.register_memory;
	rig_start(&rig);
	assert_int_equal(server_worker_count(rig.server), 2);
	rig_stop(&rig);
}

static void options_that_make_no_server_are_refused(void **state)
{
	struct server_options good;
	struct rig rig;

	(void)state;
	rig_prepare(&rig);
	good = rig.options;
	rig.options.worker_count = 0;
	assert_int_equal(server_create(&rig.options, &rig.server), -EINVAL);
	rig.options.worker_count = SERVER_WORKERS_MAX + 1;
	assert_int_equal(server_create(&rig.options, &rig.server), -EINVAL);
	rig.options = good;
	rig.options.area_count = 0;
	assert_int_equal(server_create(&rig.options, &rig.server), -EINVAL);
	rig.options = good;
	rig.options.tenant_count = 0;
	assert_int_equal(server_create(&rig.options, &rig.server), -EINVAL);
	rig.options = good;
	rig.options.connections_max = 0;
	assert_int_equal(server_create(&rig.options, &rig.server), -EINVAL);
	assert_null(rig.server);
	rig_stop(&rig);
}

/* Sends everything and waits for the answers, the end, or long enough. */
static unsigned converse(struct rig *rig, struct peer *peer, const uint8_t *bytes, size_t length)
{
	unsigned replies = 0;

	peer_send(peer, bytes, length, NULL, 0);
	for (unsigned turn = 0; turn < 800 && replies < REPLIES && !peer_look(peer); turn++) {
		struct wire_error error;
		int message = peer->length > 0 ? wire_stream_length(peer->received, peer->length, RIG_MESSAGE, &error)
					       : 0;

		assert_true(message >= 0);
		if (message > 0 && (uint32_t)message <= peer->length) {
			peer->length -= (uint32_t)message;
			memmove(peer->received, peer->received + message, peer->length);
			replies++;
			continue;
		}
		rig_step(rig);
	}
	return replies;
}

/* Every message gets its answer, or the conversation ends. */
static void whatever_fails_in_a_conversation_is_told_and_leaves_nothing(void **state)
{
	unsigned failures = 0;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	for (uint64_t nth = 1;; nth++) {
		struct stream *server_end;
		uint8_t bytes[CONVERSATION];
		struct peer peer;
		unsigned replies;
		bool fired;
		size_t length;

		memset(&peer, 0, sizeof(peer));
		peer.rig = &rig;
		assert_int_equal(sim_stream_pair(rig.fabric, NULL, &peer.stream, &server_end), 0);
		length = make_conversation(bytes, &peer, next_registration(&rig));
		fault_arm(nth);
		(void)!control_accept(server_control(rig.server), server_end, rig.now_ns);
		replies = converse(&rig, &peer, bytes, length);
		fired = fault_fired() != NULL;
		fault_arm(0);
		assert_true(replies == REPLIES || peer.ended);
		peer_fini(&peer);
		rig_settle(&rig, 0);
		if (!fired)
			break;
		failures++;
	}
	assert_true(failures > 8);
	rig_stop(&rig);
}

static void a_challenge_that_cannot_be_drawn_ends_the_conversation(void **state)
{
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_prepare(&rig);
	rig.options.seed = 0;
	rig_start(&rig);
	assert_int_equal(peer_open_tcp(&rig, &peer), 0);
	fault_arm_name("control_challenge/random", 1);
	assert_int_equal(peer_hello(&peer), PEER_CLOSED);
	fault_arm(0);
	rig_settle(&rig, 0);
	peer_fini(&peer);
	rig_stop(&rig);
}

static void no_memory_for_a_client_is_told(void **state)
{
	static const char *const points[] = { "control_accept/client", "control_accept/regions" };
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	for (unsigned i = 0; i < KVR_COUNT_OF(points); i++) {
		fault_arm_name(points[i], 1);
		assert_int_equal(peer_open(&rig, &peer), -ENOMEM);
		fault_arm(0);
		assert_int_equal(peer_reply(&peer), STATUS_BUSY);
		assert_non_null(strstr(peer.text, "no memory"));
		assert_int_equal(peer_reply(&peer), PEER_CLOSED);
		peer_fini(&peer);
	}
	assert_int_equal(control_client_count(server_control(rig.server)), 0);
	rig_stop(&rig);
}

static void questions_of_the_operator_without_memory_are_refused(void **state)
{
	struct status_snapshot snapshot;
	struct clear_job job;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	fault_arm_name("control_request/object", 1);
	assert_int_equal(control_request_status(server_control(rig.server), &snapshot, take_snapshot, NULL), -ENOMEM);
	fault_arm_name("control_request/object", 1);
	assert_int_equal(control_request_clear(server_control(rig.server), &job, false, NULL, NULL), -ENOMEM);
	fault_arm(0);
	ask_status(&rig, &snapshot);
	rig_stop(&rig);
}

/* The server goes before the answer. */
static void a_question_without_an_answer_goes_with_the_server(void **state)
{
	struct status_snapshot snapshot;
	bool done = false;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	assert_int_equal(control_request_status(server_control(rig.server), &snapshot, take_snapshot, &done), 0);
	server_destroy(&rig.server);
	assert_false(done);
	rig_stop(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_socket_may_close_behind_any_byte),
		cmocka_unit_test(the_socket_may_close_at_any_step),
		cmocka_unit_test(the_socket_may_close_while_the_management_core_is_asked),
		cmocka_unit_test(the_stream_ends_only_when_the_management_core_has_let_go),
		cmocka_unit_test(a_connection_that_the_reaper_takes_is_closed),
		cmocka_unit_test(a_drained_server_has_closed_everybody_and_takes_nobody),
		cmocka_unit_test(the_server_may_drain_at_any_step_of_a_conversation),
		cmocka_unit_test(ten_thousand_clients_one_after_the_other_leave_nothing),
		cmocka_unit_test(a_server_that_cannot_be_made_leaves_nothing),
		cmocka_unit_test(a_device_that_refuses_l1_is_named_with_area_and_cause),
		cmocka_unit_test(options_that_make_no_server_are_refused),
		cmocka_unit_test(whatever_fails_in_a_conversation_is_told_and_leaves_nothing),
		cmocka_unit_test(a_challenge_that_cannot_be_drawn_ends_the_conversation),
		cmocka_unit_test(no_memory_for_a_client_is_told),
		cmocka_unit_test(questions_of_the_operator_without_memory_are_refused),
		cmocka_unit_test(a_question_without_an_answer_goes_with_the_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
