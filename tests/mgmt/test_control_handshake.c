/* test_control_handshake.c - control sockets from the first byte to CONNECT: who is let in, and what everybody else
 * is told. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mgmt/control_rig.h"

#define SECRET "the secret"

static void *own_memory(void)
{
	static uint8_t memory[4096];

	return memory;
}

static uint64_t own_address(void)
{
	return (uint64_t)(uintptr_t)own_memory();
}

/* ---- every message in every state ---- */

enum state { HELLO, CHALLENGE, READY, CONNECTED, STATES };

static void bring_to(struct rig *rig, struct peer *peer, enum state state)
{
	assert_int_equal(state == CHALLENGE ? peer_open_tcp(rig, peer) : peer_open(rig, peer), 0);
	if (state >= CHALLENGE)
		assert_int_equal(peer_hello(peer), STATUS_OK);
	if (state >= CONNECTED)
		assert_int_equal(peer_connect(peer), STATUS_OK);
}

static size_t make_any(uint8_t *bytes, struct peer *peer, uint16_t type)
{
	static const uint8_t challenge[32];

	switch (type) {
	case WIRE_HELLO:
		return make_hello(bytes, "sim", "");
	case WIRE_AUTHENTICATE:
		return make_authenticate(bytes, challenge, "blue-key", SECRET, 1);
	case WIRE_CONNECT:
		return make_connect(bytes, peer);
	case WIRE_MEMORY:
		return make_memory(bytes, own_address(), 4096, 5);
	case WIRE_FORGET_MEMORY:
		return make_forget(bytes, 3);
	case WIRE_REGISTER:
		return make_register(bytes, "model", 0, 0, 0);
	case WIRE_UNREGISTER:
		return make_unregister(bytes, 999);
	default:
		return make_type(bytes, type);
	}
}

struct expected {
	uint16_t type;
	int status[STATES];
};

#define EARLY STATUS_NOT_AUTHENTICATED
#define LATE STATUS_OUT_OF_ORDER
#define NONE STATUS_UNKNOWN_TYPE

static void a_message_in_a_state(const struct expected *expected, enum state state)
{
	bool good = expected->status[state] == STATUS_OK;
	uint8_t bytes[RIG_MESSAGE];
	struct wire_header header;
	struct wire_error error;
	struct peer peer;
	struct rig rig;
	size_t length;

	rig_make(&rig);
	bring_to(&rig, &peer, state);
	length = make_any(bytes, &peer, expected->type);
	assert_int_equal(wire_header_decode(bytes, length, &header, &error), 0);
	assert_int_equal(peer_ask(&peer, bytes, length), expected->status[state]);
	assert_int_equal(peer.header.type, (uint16_t)(expected->type + 1));
	assert_int_equal(peer.header.request_id, header.request_id);
	if (state < READY && !good) {
		assert_int_equal(peer_reply(&peer), PEER_CLOSED);
		rig_settle(&rig, 0);
	} else {
		rig_steps(&rig, 100);
		assert_false(peer_look(&peer));
	}
	peer_fini(&peer);
	rig_stop(&rig);
}

/* Whatever is wrong before the end of the handshake ends the conversation; later nothing does. */
static void every_message_in_every_state_has_its_answer(void **state)
{
	static const struct expected table[] = {
		{ WIRE_HELLO, { STATUS_OK, EARLY, LATE, LATE } },
		{ WIRE_AUTHENTICATE, { EARLY, STATUS_AUTHENTICATION_FAILED, LATE, LATE } },
		{ WIRE_CONNECT, { EARLY, EARLY, STATUS_OK, LATE } },
		{ WIRE_MEMORY, { EARLY, EARLY, LATE, STATUS_OK } },
		{ WIRE_FORGET_MEMORY, { EARLY, EARLY, LATE, STATUS_INVALID_MEMORY } },
		{ WIRE_REGISTER, { EARLY, EARLY, LATE, STATUS_OK } },
		{ WIRE_UNREGISTER, { EARLY, EARLY, LATE, STATUS_NOT_REGISTERED } },
		/* replies, requests of the queue pair, and what nobody knows */
		{ WIRE_HELLO_REPLY, { NONE, NONE, NONE, NONE } },
		{ WIRE_PING, { NONE, NONE, NONE, NONE } },
		{ WIRE_LOOKUP, { NONE, NONE, NONE, NONE } },
		{ WIRE_CLEAR, { NONE, NONE, NONE, NONE } },
		{ 0, { NONE, NONE, NONE, NONE } },
		{ 65535, { NONE, NONE, NONE, NONE } },
	};

	(void)state;
	for (unsigned i = 0; i < KVR_COUNT_OF(table); i++) {
		for (unsigned s = 0; s < STATES; s++)
			a_message_in_a_state(&table[i], (enum state)s);
	}
}

/* A wrong body is told with the number of the request, and only before the end of the handshake it ends the
 * conversation. */
static void a_body_that_is_too_short_is_malformed(void **unused)
{
	static const struct {
		uint16_t type;
		enum state state;
	} table[] = {
		{ WIRE_HELLO, HELLO },
		{ WIRE_AUTHENTICATE, CHALLENGE },
		{ WIRE_CONNECT, READY },
		{ WIRE_MEMORY, CONNECTED },
		{ WIRE_FORGET_MEMORY, CONNECTED },
		{ WIRE_REGISTER, CONNECTED },
		{ WIRE_UNREGISTER, CONNECTED },
	};
	uint8_t bytes[RIG_MESSAGE];
	struct peer peer;
	struct rig rig;

	(void)unused;
	for (unsigned i = 0; i < KVR_COUNT_OF(table); i++) {
		rig_make(&rig);
		bring_to(&rig, &peer, table[i].state);
		assert_int_equal(peer_ask(&peer, bytes, make_type(bytes, table[i].type)), STATUS_MALFORMED);
		assert_int_equal(peer.header.type, table[i].type + 1);
		assert_int_equal(peer.header.request_id, 48);
		assert_non_null(strstr(peer.text, wire_type_name(table[i].type)));
		if (table[i].state < READY) {
			assert_int_equal(peer_reply(&peer), PEER_CLOSED);
		} else {
			rig_steps(&rig, 50);
			assert_false(peer_look(&peer));
		}
		peer_fini(&peer);
		rig_stop(&rig);
	}
}

static void a_message_for_the_server_before_is_refused(void **state)
{
	const uint64_t stale = RIG_BOOT + 1, right = RIG_BOOT;
	uint8_t bytes[RIG_MESSAGE];
	struct peer peer;
	struct rig rig;
	size_t length;

	(void)state;
	rig_make(&rig);
	peer_join(&rig, &peer);
	length = make_register(bytes, "model", 0, 0, 0);
	memcpy(bytes + 24, &stale, sizeof(stale));
	assert_int_equal(peer_ask(&peer, bytes, length), STATUS_WRONG_BOOT);
	memcpy(bytes + 24, &right, sizeof(right));
	assert_int_equal(peer_ask(&peer, bytes, length), STATUS_OK);
	peer_fini(&peer);
	assert_int_equal(peer_open(&rig, &peer), 0);
	length = make_hello(bytes, "sim", "");
	memcpy(bytes + 24, &stale, sizeof(stale));
	assert_int_equal(peer_ask(&peer, bytes, length), STATUS_WRONG_BOOT);
	assert_int_equal(peer_reply(&peer), PEER_CLOSED);
	peer_fini(&peer);
	rig_stop(&rig);
}

/* ---- the first bytes ---- */

/* pitfalls O06 */
static void other_protocols_are_sent_away_at_their_first_bytes(void **state)
{
	static const struct {
		const char *bytes;
		unsigned length;
	} table[] = {
		{ "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 35 },
		{ "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11 }, { "\0\0\0\0\0\0\0\0", 8 }, { "KVrubbish", 9 },
		{ "KVRX", 4 }, { "X", 1 }, { "KVRL\x1f\0\0\0", 8 }, /* shorter than a header */
		{ "KVRL\x01\x00\x10\x00", 8 },                      /* a byte above the limit */
		{ "KVRL\xff\xff\xff\xff", 8 },
		{ "KVRL\x20\0\0\0\x01\0\x21\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
			32 }, /* fixed part beyond the end */
	};
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	for (unsigned i = 0; i < KVR_COUNT_OF(table); i++) {
		assert_int_equal(peer_open(&rig, &peer), 0);
		rig_forget_lines(&rig);
		peer_send(&peer, table[i].bytes, table[i].length, NULL, 0);
		assert_int_equal(peer_reply(&peer), PEER_CLOSED);
		rig_settle(&rig, 0);
		assert_int_equal(rig.line_count, 1);
		assert_int_equal(rig_lines_with(&rig, "sim:client"), 1);
		assert_int_equal(rig_counters(&rig)->bad_protocol_total, i + 1);
		assert_int_equal(rig_counters(&rig)->handshake_timeouts_total, 0);
		peer_fini(&peer);
	}
	rig_stop(&rig);
}

static void half_a_magic_waits_and_is_closed_in_time(void **state)
{
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	assert_int_equal(peer_open(&rig, &peer), 0);
	peer_send(&peer, "KV", 2, NULL, 0);
	rig_steps(&rig, 100);
	assert_false(peer_look(&peer));
	rig.now_ns += rig.options.handshake_ns;
	assert_int_equal(peer_reply(&peer), PEER_CLOSED);
	assert_int_equal(rig_counters(&rig)->handshake_timeouts_total, 1);
	assert_int_equal(rig_counters(&rig)->bad_protocol_total, 0);
	peer_fini(&peer);
	rig_stop(&rig);
}

static void a_client_that_never_connects_is_closed_in_time_and_a_connected_one_is_not(void **unused)
{
	struct peer peer[STATES];
	struct rig rig;

	(void)unused;
	rig_make(&rig);
	for (unsigned s = 0; s < STATES; s++)
		bring_to(&rig, &peer[s], (enum state)s);
	rig.now_ns += rig.options.handshake_ns;
	rig_settle(&rig, 1);
	assert_int_equal(rig_counters(&rig)->handshake_timeouts_total, 3);
	for (unsigned s = 0; s < STATES; s++) {
		rig_steps(&rig, 50);
		assert_int_equal(peer_look(&peer[s]), s != CONNECTED);
		peer_fini(&peer[s]);
	}
	rig_stop(&rig);
}

/* ---- how the bytes arrive ---- */

static void a_handshake_of_single_bytes_is_a_handshake(void **state)
{
	uint8_t bytes[RIG_MESSAGE];
	struct peer peer;
	struct rig rig;
	size_t length;

	(void)state;
	rig_make(&rig);
	assert_int_equal(peer_open(&rig, &peer), 0);
	length = make_hello(bytes, "sim", "default");
	length += make_connect(bytes + length, &peer);
	for (size_t i = 0; i < length; i++) {
		peer_send(&peer, bytes + i, 1, NULL, 0);
		rig_steps(&rig, 12);
	}
	assert_int_equal(peer_reply(&peer), STATUS_OK);
	assert_int_equal(peer.header.type, WIRE_HELLO_REPLY);
	assert_int_equal(peer_reply(&peer), STATUS_OK);
	assert_int_equal(peer.header.type, WIRE_CONNECT_REPLY);
	peer_fini(&peer);
	rig_stop(&rig);
}

static void messages_that_arrive_together_are_answered_in_order(void **state)
{
	uint8_t bytes[4 * RIG_MESSAGE];
	struct peer peer;
	struct rig rig;
	size_t length;

	(void)state;
	rig_make(&rig);
	assert_int_equal(peer_open(&rig, &peer), 0);
	length = make_hello(bytes, "sim", "");
	length += make_connect(bytes + length, &peer);
	length += make_memory(bytes + length, own_address(), 4096, 9);
	length += make_register(bytes + length, "model", 2, own_address(), 0);
	length += make_forget(bytes + length, 0);
	length += make_unregister(bytes + length, 1);
	length += make_forget(bytes + length, 0);
	peer_send(&peer, bytes, length, NULL, 0);
	assert_int_equal(peer_reply(&peer), STATUS_OK);
	assert_int_equal(peer.header.type, WIRE_HELLO_REPLY);
	assert_int_equal(peer_reply(&peer), STATUS_OK);
	assert_int_equal(peer.header.type, WIRE_CONNECT_REPLY);
	assert_int_equal(peer_reply(&peer), STATUS_OK);
	assert_int_equal(peer.header.type, WIRE_MEMORY_REPLY);
	assert_int_equal(peer_reply(&peer), STATUS_OK);
	assert_int_equal(peer.header.type, WIRE_REGISTER_REPLY);
	assert_int_equal(peer_reply(&peer), STATUS_BUSY);
	assert_int_equal(peer.header.type, WIRE_FORGET_MEMORY_REPLY);
	assert_int_equal(peer_reply(&peer), STATUS_OK);
	assert_int_equal(peer.header.type, WIRE_UNREGISTER_REPLY);
	assert_int_equal(peer_reply(&peer), STATUS_OK);
	assert_int_equal(peer.header.type, WIRE_FORGET_MEMORY_REPLY);
	peer_fini(&peer);
	rig_stop(&rig);
}

static void a_longer_message_of_a_later_version_is_read(void **state)
{
	uint8_t bytes[RIG_MESSAGE];
	uint32_t length;
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	assert_int_equal(peer_open(&rig, &peer), 0);
	length = (uint32_t)make_hello(bytes, "sim", "");
	memset(bytes + length, 0xab, 100); /* behind the variable part */
	length += 100;
	memcpy(bytes + 4, &length, 4);
	assert_int_equal(peer_ask(&peer, bytes, length), STATUS_OK);
	peer_fini(&peer);
	rig_stop(&rig);
}

/* Who asks and never reads the answers fills its own socket: the server keeps one answer. */
static void a_client_that_reads_no_answers_is_not_read_from(void **state)
{
	uint8_t bytes[RIG_MESSAGE];
	struct peer peer;
	struct rig rig;
	uint64_t sent = 0;
	ssize_t taken;
	size_t length;

	(void)state;
	rig_make(&rig);
	peer_join(&rig, &peer);
	length = make_unregister(bytes, 999);
	do {
		for (unsigned i = 0; i < 64; i++) {
			taken = peer.stream->ops->send(peer.stream, bytes, length, NULL, 0);
			sent += taken > 0 ? (uint64_t)taken : 0;
		}
		rig_steps(&rig, 200);
		assert_true(sent < 1u << 20);
	} while (taken > 0);
	peer_fini(&peer);
	rig_settle(&rig, 0);
	rig_stop(&rig);
}

/* ---- versions ---- */

static int hello_of_versions(struct peer *peer, uint16_t lowest, uint16_t highest)
{
	uint8_t bytes[RIG_MESSAGE];
	size_t length = make_hello(bytes, "sim", "");

	memcpy(bytes + 32, &lowest, 2);
	memcpy(bytes + 34, &highest, 2);
	return peer_ask(peer, bytes, length);
}

static void a_client_without_a_version_in_common_is_told_the_servers(void **state)
{
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	assert_int_equal(peer_open(&rig, &peer), 0);
	assert_int_equal(
		hello_of_versions(&peer, WIRE_VERSION_MAX + 1, WIRE_VERSION_MAX + 5), STATUS_UNSUPPORTED_VERSION);
	assert_non_null(strstr(peer.text, "this server 1 to 1"));
	assert_int_equal(peer_reply(&peer), PEER_CLOSED);
	peer_fini(&peer);
	rig_stop(&rig);
}

static void a_later_client_speaks_the_highest_version_of_both(void **state)
{
	struct hello_reply reply;
	struct wire_error error;
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	assert_int_equal(peer_open(&rig, &peer), 0);
	assert_int_equal(hello_of_versions(&peer, 1, WIRE_VERSION_MAX + 5), STATUS_OK);
	assert_int_equal(hello_reply_decode(peer.received, peer.length, &reply, &error), 0);
	assert_int_equal(reply.info.version, WIRE_VERSION_MAX);
	peer_fini(&peer);
	rig_stop(&rig);
}

/* ---- tenants ---- */

static void expect_tenant(struct peer *peer, const char *name)
{
	struct hello_reply reply;
	struct wire_error error;

	assert_int_equal(hello_reply_decode(peer->received, peer->length, &reply, &error), 0);
	assert_int_equal(reply.authentication, AUTHENTICATION_DONE);
	assert_int_equal(reply.info.tenant.length, strlen(name));
	assert_memory_equal(reply.info.tenant.bytes, name, strlen(name));
}

static void the_user_of_a_unix_socket_decides_the_tenant(void **state)
{
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	assert_int_equal(peer_open_uid(&rig, &peer, 2000), 0);
	assert_int_equal(peer_hello(&peer), STATUS_OK);
	expect_tenant(&peer, "red");
	peer_fini(&peer);
	assert_int_equal(peer_open_uid(&rig, &peer, 2001), 0);
	assert_int_equal(peer_hello(&peer), STATUS_OK);
	expect_tenant(&peer, "default");
	peer_fini(&peer);
	rig_stop(&rig);
}

/* A client of another process namespace has no number that the kernel could give. */
static void a_user_without_a_process_number_is_known_all_the_same(void **state)
{
	struct stream *server_end;
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	memset(&peer, 0, sizeof(peer));
	peer.rig = &rig;
	assert_int_equal(sim_stream_pair(rig.fabric, NULL, &peer.stream, &server_end), 0);
	server_end->peer.pid = 0;
	server_end->peer.uid = 2000;
	assert_int_equal(control_accept(server_control(rig.server), server_end, rig.now_ns), 0);
	assert_int_equal(peer_hello(&peer), STATUS_OK);
	expect_tenant(&peer, "red");
	peer_fini(&peer);
	/* The kernel knew nobody: a challenge. */
	assert_int_equal(peer_open_uid(&rig, &peer, (uid_t)-1), 0);
	assert_int_equal(peer_hello(&peer), STATUS_OK);
	assert_int_equal(peer_connect(&peer), STATUS_NOT_AUTHENTICATED);
	peer_fini(&peer);
	rig_stop(&rig);
}

static void a_tenant_that_the_credential_does_not_prove_is_not_given(void **state)
{
	uint8_t bytes[RIG_MESSAGE];
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	assert_int_equal(peer_open_uid(&rig, &peer, 2000), 0);
	assert_int_equal(peer_ask(&peer, bytes, make_hello(bytes, "sim", "default")), STATUS_NOT_ALLOWED);
	assert_non_null(strstr(peer.text, "\"red\""));
	assert_int_equal(peer_reply(&peer), PEER_CLOSED);
	assert_int_equal(rig_counters(&rig)->authentication_failures_total, 1);
	peer_fini(&peer);
	rig_stop(&rig);
}

/* pitfalls F01 */
static void a_server_that_wants_the_tenant_named_refuses_who_does_not(void **state)
{
	uint8_t bytes[RIG_MESSAGE];
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_prepare(&rig);
	rig.options.require_tenant = true;
	rig_start(&rig);
	assert_int_equal(peer_open(&rig, &peer), 0);
	assert_int_equal(peer_hello(&peer), STATUS_NOT_ALLOWED);
	assert_non_null(strstr(peer.text, "require-tenant"));
	assert_int_equal(peer_reply(&peer), PEER_CLOSED);
	peer_fini(&peer);
	assert_int_equal(peer_open(&rig, &peer), 0);
	assert_int_equal(peer_ask(&peer, bytes, make_hello(bytes, "sim", "default")), STATUS_OK);
	peer_fini(&peer);
	rig_stop(&rig);
}

/* ---- shared secrets ---- */

static void take_challenge(struct rig *rig, struct peer *peer, uint8_t challenge[32], const char *tenant)
{
	struct hello_reply reply;
	struct wire_error error;
	uint8_t bytes[RIG_MESSAGE];

	assert_int_equal(peer_open_tcp(rig, peer), 0);
	assert_int_equal(peer_ask(peer, bytes, make_hello(bytes, "sim", tenant)), STATUS_OK);
	assert_int_equal(hello_reply_decode(peer->received, peer->length, &reply, &error), 0);
	assert_int_equal(reply.authentication, AUTHENTICATION_CHALLENGE);
	assert_int_equal(reply.info.tenant.length, 0);
	memcpy(challenge, reply.challenge, 32);
}

/* pitfalls F06: nothing but the challenge before the proof. */
static void the_right_secret_over_tcp_gives_its_tenant(void **state)
{
	struct authenticate_reply reply;
	struct wire_error error;
	uint8_t bytes[RIG_MESSAGE], challenge[32];
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	take_challenge(&rig, &peer, challenge, "blue");
	assert_int_equal(peer_ask(&peer, bytes, make_authenticate(bytes, challenge, "blue-key", SECRET, 3)), STATUS_OK);
	assert_int_equal(authenticate_reply_decode(peer.received, peer.length, &reply, &error), 0);
	assert_int_equal(reply.info.tenant.length, 4);
	assert_memory_equal(reply.info.tenant.bytes, "blue", 4);
	assert_int_equal(peer_connect(&peer), STATUS_OK);
	peer_fini(&peer);
	/* The right secret of another tenant than the one asked for. */
	take_challenge(&rig, &peer, challenge, "red");
	assert_int_equal(
		peer_ask(&peer, bytes, make_authenticate(bytes, challenge, "blue-key", SECRET, 3)), STATUS_NOT_ALLOWED);
	assert_int_equal(peer_reply(&peer), PEER_CLOSED);
	peer_fini(&peer);
	rig_stop(&rig);
}

static void every_wrong_credential_gets_the_same_answer(void **state)
{
	uint8_t bytes[RIG_MESSAGE], first[32], other[32];
	char answer[WIRE_ERROR_TEXT_MAX + 1];
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	for (unsigned i = 0; i < 4; i++) {
		size_t length;

		take_challenge(&rig, &peer, i ? other : first, "");
		if (i == 0) /* a wrong secret */
			length = make_authenticate(bytes, first, "blue-key", "the secreT", 1);
		else if (i == 1) /* the proof of another connection's challenge */
			length = make_authenticate(bytes, first, "blue-key", SECRET, 1);
		else if (i == 2) /* a key that is not there */
			length = make_authenticate(bytes, other, "green-key", SECRET, 1);
		else /* the name of a tenant without a key */
			length = make_authenticate(bytes, other, "default", SECRET, 1);
		if (i)
			assert_memory_not_equal(first, other, 32);
		assert_int_equal(peer_ask(&peer, bytes, length), STATUS_AUTHENTICATION_FAILED);
		if (i == 0)
			strcpy(answer, peer.text);
		assert_string_equal(peer.text, answer);
		assert_int_equal(peer_reply(&peer), PEER_CLOSED);
		assert_int_equal(rig_counters(&rig)->authentication_failures_total, i + 1);
		peer_fini(&peer);
	}
	rig_stop(&rig);
}

static void trusted_tcp_clients_are_the_first_tenant(void **state)
{
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_prepare(&rig);
	rig.options.trust_tcp = true;
	rig_start(&rig);
	assert_int_equal(peer_open_tcp(&rig, &peer), 0);
	assert_int_equal(peer_hello(&peer), STATUS_OK);
	expect_tenant(&peer, "default");
	peer_fini(&peer);
	rig_stop(&rig);
}

/* ---- CONNECT ---- */

static void a_driver_that_the_server_has_not_is_refused_by_name(void **state)
{
	uint8_t bytes[RIG_MESSAGE];
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	assert_int_equal(peer_open(&rig, &peer), 0);
	assert_int_equal(peer_ask(&peer, bytes, make_hello(bytes, "carrier pigeon", "")), STATUS_OK);
	assert_int_equal(peer_connect(&peer), STATUS_UNSUPPORTED);
	assert_non_null(strstr(peer.text, "carrier pigeon"));
	peer_fini(&peer);
	rig_stop(&rig);
}

static uint32_t ask_for_rail(struct peer *peer, uint32_t rail)
{
	uint8_t bytes[RIG_MESSAGE];
	size_t length = make_connect(bytes, peer);

	memcpy(bytes + 32, &rail, 4);
	return peer_ask(peer, bytes, length);
}

static void a_second_rail_is_refused_where_the_server_has_one_device(void **state)
{
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	assert_int_equal(peer_open(&rig, &peer), 0);
	assert_int_equal(peer_hello(&peer), STATUS_OK);
	assert_int_equal(peer_connect(&peer), STATUS_OK);
	assert_int_equal(ask_for_rail(&peer, 1), STATUS_UNSUPPORTED);
	assert_non_null(strstr(peer.text, "no device for rail 1"));
	assert_int_equal(ask_for_rail(&peer, 0), STATUS_OUT_OF_ORDER);
	assert_int_equal(ask_for_rail(&peer, WIRE_RAILS_MAX), STATUS_TOO_BIG);
	peer_fini(&peer);
	rig_stop(&rig);
}

static int no_queue_pair(struct verbs_device *device, const struct verbs_qp_options *options, struct ibv_qp **qp)
{
	(void)device;
	(void)options;
	*qp = NULL;
	return -ENOMEM;
}

static void a_queue_pair_that_cannot_be_made_ends_the_handshake_with_words(void **state)
{
	static const struct rig_calls calls = { .create_qp = no_queue_pair };
	uint8_t bytes[RIG_MESSAGE];
	struct peer peer;
	struct rig rig;
	size_t length;

	(void)state;
	rig_make(&rig);
	rig_use(&rig, &calls);
	assert_int_equal(peer_open(&rig, &peer), 0);
	assert_int_equal(peer_hello(&peer), STATUS_OK);
	assert_int_equal(peer_connect(&peer), STATUS_UNSUPPORTED);
	assert_non_null(strstr(peer.text, strerror(ENOMEM)));
	assert_int_equal(peer_reply(&peer), PEER_CLOSED);
	peer_fini(&peer);
	rig.driver.create_qp = verbs_sim.create_qp;
	/* An address of no driver. */
	assert_int_equal(peer_open(&rig, &peer), 0);
	assert_int_equal(peer_hello(&peer), STATUS_OK);
	length = make_connect(bytes, &peer);
	memset(bytes + 40, 0, length - 40);
	assert_int_equal(peer_ask(&peer, bytes, length), STATUS_UNSUPPORTED);
	assert_int_equal(peer_reply(&peer), PEER_CLOSED);
	peer_fini(&peer);
	rig_settle(&rig, 0);
	rig_stop(&rig);
}

/* ---- the maximum ---- */

/* pitfalls N01 */
static void a_client_too_many_is_told_so_and_there_is_room_again(void **state)
{
	struct peer peers[RIG_CLIENTS], more;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	for (unsigned i = 0; i < RIG_CLIENTS; i++)
		peer_join(&rig, &peers[i]);
	assert_int_equal(peer_open(&rig, &more), -EUSERS);
	assert_int_equal(peer_reply(&more), STATUS_LIMIT);
	assert_int_equal(more.header.type, WIRE_HELLO_REPLY);
	assert_non_null(strstr(more.text, "4 of 4"));
	assert_int_equal(peer_reply(&more), PEER_CLOSED);
	assert_int_equal(rig_counters(&rig)->refused_total, 1);
	peer_fini(&more);
	for (unsigned i = 0; i < RIG_CLIENTS; i++)
		assert_int_equal(peer_memory(&peers[i], own_address(), 64, NULL), STATUS_OK);
	peer_fini(&peers[2]);
	rig_settle(&rig, RIG_CLIENTS - 1);
	peer_join(&rig, &peers[2]);
	for (unsigned i = 0; i < RIG_CLIENTS; i++)
		peer_fini(&peers[i]);
	rig_stop(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_in_every_state_has_its_answer),
		cmocka_unit_test(a_body_that_is_too_short_is_malformed),
		cmocka_unit_test(a_message_for_the_server_before_is_refused),
		cmocka_unit_test(other_protocols_are_sent_away_at_their_first_bytes),
		cmocka_unit_test(half_a_magic_waits_and_is_closed_in_time),
		cmocka_unit_test(a_client_that_never_connects_is_closed_in_time_and_a_connected_one_is_not),
		cmocka_unit_test(a_handshake_of_single_bytes_is_a_handshake),
		cmocka_unit_test(messages_that_arrive_together_are_answered_in_order),
		cmocka_unit_test(a_longer_message_of_a_later_version_is_read),
		cmocka_unit_test(a_client_that_reads_no_answers_is_not_read_from),
		cmocka_unit_test(a_client_without_a_version_in_common_is_told_the_servers),
		cmocka_unit_test(a_later_client_speaks_the_highest_version_of_both),
		cmocka_unit_test(the_user_of_a_unix_socket_decides_the_tenant),
		cmocka_unit_test(a_user_without_a_process_number_is_known_all_the_same),
		cmocka_unit_test(a_tenant_that_the_credential_does_not_prove_is_not_given),
		cmocka_unit_test(a_server_that_wants_the_tenant_named_refuses_who_does_not),
		cmocka_unit_test(the_right_secret_over_tcp_gives_its_tenant),
		cmocka_unit_test(every_wrong_credential_gets_the_same_answer),
		cmocka_unit_test(trusted_tcp_clients_are_the_first_tenant),
		cmocka_unit_test(a_driver_that_the_server_has_not_is_refused_by_name),
		cmocka_unit_test(a_second_rail_is_refused_where_the_server_has_one_device),
		cmocka_unit_test(a_queue_pair_that_cannot_be_made_ends_the_handshake_with_words),
		cmocka_unit_test(a_client_too_many_is_told_so_and_there_is_room_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
