/* Structs to bytes: every field lands where docs/PROTOCOL.md says. The bytes come from tests/wire/golden.py, which knows no C. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "protocol/golden.h"

#define TEXT(literal)                        \
	{                                    \
		literal, sizeof(literal) - 1 \
	}
#define REQUEST .request_id = 0x1122334455667788, .boot_id = 0x99aabbccddeeff01
#define TYPED(name) .type = WIRE_##name, REQUEST

/* fill(first) of golden.py: bytes that count up */
static const uint8_t counting[256] = {
#define ROW(n) \
	n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7, n + 8, n + 9, n + 10, n + 11, n + 12, n + 13, n + 14, n + 15
	ROW(0x00),
	ROW(0x10),
	ROW(0x20),
	ROW(0x30),
	ROW(0x40),
	ROW(0x50),
	ROW(0x60),
	ROW(0x70),
	ROW(0x80),
	ROW(0x90),
	ROW(0xa0),
	ROW(0xb0),
	ROW(0xc0),
	ROW(0xd0),
	ROW(0xe0),
	ROW(0xf0),
#undef ROW
};

/* SHA-256("salt of golden"), and the chain of the tokens 0 .. 767 in chunks of 256 */
static const uint8_t salt[32] = { 0xd2, 0x9d, 0x6f, 0xc6, 0x6c, 0x28, 0x4e, 0xb1, 0x3d, 0x59, 0xd3, 0xcc, 0x9d, 0x4d,
	0x2c, 0x9c, 0xc5, 0x5c, 0x97, 0xf8, 0x24, 0x39, 0x17, 0x50, 0x49, 0xfa, 0x93, 0x2b, 0x2a, 0x12, 0x5f, 0xca };
static const uint8_t chain[3 * 32] = { 0xff, 0x3b, 0xa7, 0x2d, 0xd1, 0x71, 0xf0, 0x04, 0x55, 0x9e, 0x6c, 0x6f, 0x59,
	0x05, 0xd9, 0x74, 0x74, 0xd0, 0x37, 0xe4, 0x68, 0x9e, 0xab, 0x5b, 0x1e, 0x7d, 0x52, 0xaa, 0xfb, 0x80, 0x95,
	0x2f, 0x85, 0xf7, 0xd1, 0x9d, 0x5f, 0x46, 0xbb, 0xf9, 0x2b, 0x44, 0x0b, 0xc7, 0x1d, 0x3e, 0x8e, 0xb1, 0x41,
	0x9e, 0x9d, 0xcd, 0x47, 0xb5, 0xfb, 0xbf, 0x9d, 0xdb, 0xd9, 0x00, 0xb4, 0x58, 0x43, 0xbb, 0xdb, 0xfd, 0xd2,
	0xa2, 0x31, 0x72, 0xf1, 0x02, 0xfc, 0x41, 0x28, 0x3a, 0xe5, 0x19, 0x39, 0x42, 0xec, 0x94, 0x34, 0x6d, 0x39,
	0x78, 0xc3, 0x5e, 0xb4, 0x46, 0xfd, 0x04, 0xc9, 0x30, 0x47, 0x51 };

static const uint8_t group_runs_retrieve[] = { 2, 0, 0, 0, 1, 0, 0, 0 };
static const uint8_t runs_retrieve[] = { 40, 0, 0, 0, 30, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 200, 0, 0, 0, 16,
	0, 0, 0 };
static const uint8_t group_runs_store[] = { 1, 0, 0, 0 };
static const uint8_t runs_store[] = { 0xef, 0xff, 0xff, 0xff, 16, 0, 0, 0 };
static const uint8_t group_runs_one[] = { 1, 0, 0, 0 };
static const uint8_t runs_ordered[] = { 40, 0, 0, 0, 16, 0, 0, 0 };
static const uint8_t outcomes_retrieve[] = { CHUNK_SKIPPED, CHUNK_DELIVERED, CHUNK_MISSING, CHUNK_FAILED };
static const uint8_t outcomes_store[] = { CHUNK_STORED, CHUNK_PRESENT };

#define INFO(first, tenant_text)                                                                                      \
	{                                                                                                             \
		.version = 1, .features = (first) + 1, .chunk_tokens = 256, .chunks_max = 4096,                       \
		.message_bytes_max = 2u << 20, .inline_bytes = 8192, .credits = (first) + 2,                          \
		.lock_seconds = (first) + 3, .heartbeat_ns = (first) + 0x123456789a, .server = TEXT("kvraild 0.1.0"), \
		.tenant = TEXT(tenant_text)                                                                           \
	}

struct encode_case {
	const char *golden;
	enum any_kind kind;
	union any_message message;
};

static const struct encode_case control_cases[] = {
	{ "hello", ANY_hello,
		{ .hello = { { .request_id = 0x1122334455667788 }, .version_min = 1, .version_max = 3,
			  .features = FEATURE_FLAG_PER_LAYER | FEATURE_SEVERAL_GROUPS, .want_credits = 48,
			  .driver = TEXT("local"), .client = TEXT("vllm worker 3"), .tenant = TEXT("tenant-a") } } },
	{ "hello_reply_done", ANY_hello_reply,
		{ .hello_reply = { { REQUEST }, INFO(0x10, "tenant-a"), AUTHENTICATION_DONE, NULL } } },
	{ "hello_reply_challenge", ANY_hello_reply,
		{ .hello_reply = { { REQUEST }, INFO(0x20, ""), AUTHENTICATION_CHALLENGE, counting + 0x40 } } },
	{ "authenticate", ANY_authenticate,
		{ .authenticate = { { REQUEST }, .nonce = counting + 0x60, .proof = counting + 0x80,
			  .key = TEXT("team-a") } } },
	{ "authenticate_reply", ANY_authenticate_reply,
		{ .authenticate_reply = { { REQUEST }, INFO(0x30, "tenant-a") } } },
	{ "get_info_reply", ANY_info_reply, { .info_reply = { { REQUEST }, INFO(0x50, "tenant-b") } } },
	{ "connect", ANY_connect_request,
		{ .connect_request = { { REQUEST }, .rail = 2, .address = counting + 0xa0, .address_length = 24 } } },
	{ "connect_reply", ANY_connect_reply, { .connect_reply = { { REQUEST }, .rail = 15 } } },
	{ "memory_shared", ANY_memory_request,
		{ .memory_request = { { REQUEST }, .address = 0x7f0000001000, .length = 0x40000000, .offset = 0x2000,
			  .kind = MEMORY_SHARED } } },
	{ "memory_device", ANY_memory_request,
		{ .memory_request = { { REQUEST }, .address = 0x7f1000000000, .length = 0x80000000, .offset = 0x200,
			  .kind = MEMORY_DEVICE, .device = 5, .handle = counting + 0x11, .handle_length = 64 } } },
	{ "memory_remote", ANY_memory_request,
		{ .memory_request = { { REQUEST }, .address = 0x7f2000000000, .length = 0x100000, .kind = MEMORY_REMOTE,
			  .device = 1, .rkey_count = 3, .rkeys = { 0x1111, 0x2222, 0x3333 } } } },
	{ "memory_reply", ANY_memory_reply, { .memory_reply = { { REQUEST }, .region = 9 } } },
	{ "forget_memory", ANY_forget_memory, { .forget_memory = { { REQUEST }, .region = 9 } } },
	{ "forget_memory_reply", ANY_empty_reply, { .empty_reply = { { TYPED(FORGET_MEMORY_REPLY) } } } },
	{ "register_scheduler", ANY_register_request,
		{ .register_request = { { REQUEST },
			  .identity = { TEXT("llama3-8b@2"), TEXT("bfloat16"), counting + 0x31, .world_size = 8,
				  .rank = 0, .readers = 1, .reader = 0 } } } },
	{ "register_reply", ANY_register_reply,
		{ .register_reply = { { REQUEST }, .registration = 7, .object_bytes = 0x2000000,
			  .token_bytes = 0x20000 } } },
	{ "unregister", ANY_unregister_request, { .unregister_request = { { REQUEST }, .registration = 7 } } },
	{ "unregister_reply", ANY_empty_reply, { .empty_reply = { { TYPED(UNREGISTER_REPLY) } } } },
};

#define SESSION_1                                     \
	{                                             \
		.id = TEXT("session-1"), .salt = salt \
	}

static const struct encode_case queue_cases[] = {
	{ "indirect", ANY_indirect,
		{ .indirect = { { REQUEST }, .region = 9, .length = 131072, .address = 0x7f0000001040 } } },
	{ "ping", ANY_ping, { .ping = { { TYPED(PING) } } } },
	{ "ping_reply", ANY_empty_reply, { .empty_reply = { { TYPED(PING_REPLY) } } } },
	{ "get_info", ANY_ping, { .ping = { { TYPED(GET_INFO) } } } },
	/* No parent: in front of chunk 0 there is only the seed. */
	{ "lookup", ANY_lookup_request,
		{ .lookup_request = { { .flags = LOOKUP_NO_WAIT | LOOKUP_NO_LOCK, REQUEST }, .registration = 7,
			  .chunk_count = 3, .deadline_ns = 2000000000,
			  .session = { .id = TEXT("session-1"),
				  .salt = salt,
				  .digests = chain,
				  .digest_count = 3 } } } },
	/* No salt: zeros. */
	{ "lookup_named", ANY_lookup_request,
		{ .lookup_request = { { REQUEST }, .registration = 7, .session = { .id = TEXT("s") } } } },
	{ "lookup_reply", ANY_lookup_reply,
		{ .lookup_reply = { { TYPED(LOOKUP_REPLY) }, .matched_chunks = 3, .from_l2_chunks = 1 } } },
	{ "query", ANY_query_request,
		{ .query_request = { { .flags = QUERY_EARLY, REQUEST }, .registration = 7, .timeout_ns = 1500000000,
			  .session = SESSION_1 } } },
	{ "query_reply_pending", ANY_lookup_reply,
		{ .lookup_reply = { { .status = STATUS_PENDING, TYPED(QUERY_REPLY) }, .matched_chunks = 2,
			  .from_l2_chunks = 2 } } },
	{ "retrieve", ANY_transfer_request,
		{ .transfer_request = { { TYPED(RETRIEVE) }, .registration = 7, .first_chunk = 1, .chunk_count = 2,
			  .skip_tokens = 100, .group_count = 2, .run_count = 3,
			  .session = { .id = TEXT("session-1"),
				  .salt = salt,
				  .parent = chain,
				  .digests = chain + 32,
				  .first_chunk = 1,
				  .digest_count = 2 },
			  .group_runs = group_runs_retrieve, .runs = runs_retrieve } } },
	{ "retrieve_ordered", ANY_transfer_request,
		{ .transfer_request = { { .flags = TRANSFER_LAYERS | TRANSFER_AFTER, TYPED(RETRIEVE) },
			  .registration = 7, .chunk_count = 1, .group_count = 1, .run_count = 1, .session = SESSION_1,
			  .order = { 0x7F0000002000, 9, 61, 0x80000001, 10, 0x7F0000003004, 0x1234 },
			  .group_runs = group_runs_one, .runs = runs_ordered } } },
	{ "store_after", ANY_transfer_request,
		{ .transfer_request = { { .flags = TRANSFER_AFTER, TYPED(STORE) }, .registration = 7, .chunk_count = 1,
			  .group_count = 1, .run_count = 1, .session = SESSION_1,
			  .order = { .after_region = 10, .after_address = 0x7F0000003004, .after_value = 0x1234 },
			  .group_runs = group_runs_one, .runs = runs_ordered } } },
	{ "retrieve_reply_partial", ANY_transfer_reply,
		{ .transfer_reply = { { .status = STATUS_PARTIAL, TYPED(RETRIEVE_REPLY) }, .chunk_count = 4,
			  .good_count = 2, .outcomes = outcomes_retrieve } } },
	{ "store", ANY_transfer_request,
		{ .transfer_request = { { TYPED(STORE) }, .registration = 7, .first_chunk = 0, .chunk_count = 1,
			  .group_count = 1, .run_count = 1,
			  .session = { .id = TEXT("session-2"),
				  .salt = salt,
				  .parent = NULL,
				  .digests = chain,
				  .digest_count = 1 },
			  .group_runs = group_runs_store, .runs = runs_store } } },
	{ "store_reply", ANY_transfer_reply,
		{ .transfer_reply = { { TYPED(STORE_REPLY) }, .chunk_count = 2, .good_count = 2,
			  .outcomes = outcomes_store } } },
	{ "free_locks", ANY_free_locks_request,
		{ .free_locks_request = { { REQUEST }, .registration = 7, .first_chunk = 1, .chunk_count = 2, .rank = 5,
			  .reader = 3, .session = SESSION_1 } } },
	{ "free_locks_all", ANY_free_locks_request,
		{ .free_locks_request = { { REQUEST }, .registration = 7, .chunk_count = WIRE_CHUNKS_MAX,
			  .rank = WIRE_ALL_RANKS, .session = SESSION_1 } } },
	{ "free_locks_reply", ANY_count_reply, { .count_reply = { { TYPED(FREE_LOCKS_REPLY) }, .count = 6 } } },
	{ "cancel", ANY_cancel_request, { .cancel_request = { { REQUEST }, .target = 0x1122334455667701 } } },
	{ "cancel_reply", ANY_empty_reply, { .empty_reply = { { TYPED(CANCEL_REPLY) } } } },
	{ "end_session", ANY_end_session_request,
		{ .end_session_request = { { REQUEST }, .registration = 7, .session = SESSION_1 } } },
	{ "end_session_reply", ANY_empty_reply, { .empty_reply = { { TYPED(END_SESSION_REPLY) } } } },
	{ "clear", ANY_clear_request, { .clear_request = { { REQUEST }, .registration = UINT32_MAX } } },
	{ "clear_reply", ANY_count_reply, { .count_reply = { { TYPED(CLEAR_REPLY) }, .count = 1234, .kept = 56 } } },
	{ "error_busy", ANY_error_reply,
		{ .error_reply = { { .status = STATUS_BUSY, TYPED(LOOKUP_REPLY) },
			  TEXT("the session table is full: retry in 100 ms") } } },
	{ "error_unknown_type", ANY_error_reply,
		{ .error_reply = { { .status = STATUS_UNKNOWN_TYPE, .type = 78, REQUEST }, { NULL, 0 } } } },
};

static void check_encode(const struct encode_case *expected)
{
	struct golden golden;
	uint8_t bytes[4096];

	golden_load(&golden, expected->golden);
	assert_int_equal(golden.kind, expected->kind);
	if (any_encode(expected->kind, bytes, sizeof(bytes), &expected->message) != (ssize_t)golden.length)
		fail_msg("%s: wrong length", expected->golden);
	for (size_t i = 0; i < golden.length; i++)
		if (bytes[i] != golden.bytes[i])
			fail_msg("%s: byte %zu is %02x, not %02x", expected->golden, i, bytes[i], golden.bytes[i]);
	golden_free(&golden);
}

static void control_socket_messages_match_their_golden_bytes(void **state)
{
	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(control_cases); i++)
		check_encode(&control_cases[i]);
}

static void queue_pair_messages_match_their_golden_bytes(void **state)
{
	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(queue_cases); i++)
		check_encode(&queue_cases[i]);
}

static void registration_is_built_from_groups_and_planes(void **state)
{
	static const struct wire_group groups[] = { { 16, WIRE_WINDOW_FULL, 1000, 2 }, { 32, 4096, 500, 1 } };
	static const struct wire_plane planes[] = {
		{ 0x7f0000001000, 0x8000, 0x4000, 9 },
		{ 0x7f0000005000, 0x8000, 0x4000, 10 },
		{ 0x7f1000000000, 0x10000, 0x10000, 11 },
	};
	uint8_t group_bytes[2 * WIRE_GROUP_BYTES], plane_bytes[3 * WIRE_PLANE_BYTES];
	struct encode_case expected = { "register", ANY_register_request,
		{ .register_request = { { REQUEST },
			  .identity = { TEXT("llama3-8b@2"), TEXT("bfloat16"), counting + 0x31, 8, 5, 4, 3 },
			  .group_count = 2, .plane_count = 3, .groups = group_bytes, .planes = plane_bytes } } };

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(groups); i++)
		register_write_group(group_bytes + i * WIRE_GROUP_BYTES, &groups[i]);
	for (size_t i = 0; i < KVR_COUNT_OF(planes); i++)
		register_write_plane(plane_bytes + i * WIRE_PLANE_BYTES, &planes[i]);
	check_encode(&expected);
	for (uint32_t i = 0; i < KVR_COUNT_OF(groups); i++) {
		struct wire_group group = register_group_at(&expected.message.register_request, i);

		assert_memory_equal(&group, &groups[i], sizeof(group));
	}
	for (uint32_t i = 0; i < KVR_COUNT_OF(planes); i++) {
		struct wire_plane plane = register_plane_at(&expected.message.register_request, i);

		assert_memory_equal(&plane, &planes[i], sizeof(plane));
	}
}

static void every_golden_message_is_encoded_from_a_struct(void **state)
{
	(void)state;
	for (size_t i = 0; golden_names[i]; i++) {
		bool found = strcmp(golden_names[i], "register") == 0;

		for (size_t j = 0; j < KVR_COUNT_OF(control_cases); j++)
			found |= strcmp(golden_names[i], control_cases[j].golden) == 0;
		for (size_t j = 0; j < KVR_COUNT_OF(queue_cases); j++)
			found |= strcmp(golden_names[i], queue_cases[j].golden) == 0;
		if (!found)
			fail_msg("%s has no struct here", golden_names[i]);
	}
}

static void header_type_decides_where_several_share_a_body(void **state)
{
	union any_message message = { .ping = { { .type = WIRE_LOOKUP } } };
	uint8_t bytes[64];

	(void)state;
	assert_int_equal(ping_encode(bytes, sizeof(bytes), &message.ping), -EINVAL);
	message.header.type = WIRE_GET_INFO;
	assert_int_equal(ping_encode(bytes, sizeof(bytes), &message.ping), WIRE_HEADER_BYTES);
	assert_int_equal(bytes[8], WIRE_GET_INFO);
}

static void parts_that_are_missing_are_refused(void **state)
{
	struct lookup_request lookup = { .session = { .id = TEXT("s"), .digest_count = 1 } };
	struct hello_reply hello = { .info = INFO(0, ""), .authentication = AUTHENTICATION_CHALLENGE };
	uint8_t bytes[256];

	(void)state;
	assert_int_equal(lookup_request_encode(bytes, sizeof(bytes), &lookup), -EINVAL);
	lookup.session.digests = chain;
	assert_int_equal(lookup_request_encode(bytes, sizeof(bytes), &lookup), 88 + 3 + 64);
	lookup.session.first_chunk = 1; /* now the parent is no longer known */
	assert_int_equal(lookup_request_encode(bytes, sizeof(bytes), &lookup), -EINVAL);
	assert_int_equal(hello_reply_encode(bytes, sizeof(bytes), &hello), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_golden_message_is_encoded_from_a_struct),
		cmocka_unit_test(control_socket_messages_match_their_golden_bytes),
		cmocka_unit_test(queue_pair_messages_match_their_golden_bytes),
		cmocka_unit_test(registration_is_built_from_groups_and_planes),
		cmocka_unit_test(header_type_decides_where_several_share_a_body),
		cmocka_unit_test(parts_that_are_missing_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
