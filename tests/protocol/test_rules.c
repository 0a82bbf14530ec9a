/*
 * Every rule of every message, as a table: a golden message, one or two fields changed, and what the decoder must say. Fields with a
 * limit are tried at 0, at the limit and just beyond.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "protocol/golden.h"

#define KEEP 0, 0, 0 /* no second change */

struct rule_case {
	const char *name; /* reads as a sentence */
	const char *golden;
	uint32_t offset, width;
	uint64_t value;
	uint32_t offset2, width2;
	uint64_t value2;
	uint16_t status;  /* STATUS_OK: accepted */
	uint32_t at;      /* error.offset */
	const char *what; /* how error.what begins */
};

#define ACCEPTED STATUS_OK, 0, NULL

static const struct rule_case hello_cases[] = {
	{ "version 0 does not exist", "hello", 32, 2, 0, KEEP, STATUS_MALFORMED, 32, "version_min: is 0" },
	{ "versions may be equal", "hello", 32, 2, 3, KEEP, ACCEPTED },
	{ "version_min is not above version_max", "hello", 32, 2, 4, KEEP, STATUS_MALFORMED, 32, "version_min: above" },
	{ "a far newer client can say HELLO", "hello", 34, 2, UINT16_MAX, KEEP, ACCEPTED },
	{ "unknown features are the server's to ignore", "hello", 36, 4, UINT32_MAX, KEEP, ACCEPTED },
	{ "no wish for credits", "hello", 40, 4, 0, KEEP, ACCEPTED },
	{ "driver without NUL bytes", "hello", 47, 1, 0, KEEP, STATUS_MALFORMED, 46, "driver" },
	{ "client name without NUL bytes", "hello", 53, 1, 0, KEEP, STATUS_MALFORMED, 53, "client name" },
	{ "tenant without NUL bytes", "hello", 75, 1, 0, KEEP, STATUS_MALFORMED, 68, "tenant" },
	{ "a text does not end beyond the message", "hello", 44, 2, UINT16_MAX, KEEP, STATUS_MALFORMED, 44,
		"the message ends" },
	{ "authentication 2 is unknown", "hello_reply_done", 32, 4, 2, KEEP, STATUS_UNSUPPORTED, 32, "authentication" },
	{ "a challenge is there when announced", "hello_reply_done", 32, 4, 1, KEEP, STATUS_MALFORMED, 101,
		"the message ends" },
	{ "chunks have tokens", "hello_reply_done", 44, 4, 0, KEEP, STATUS_MALFORMED, 44, "chunk_tokens" },
	{ "requests may have chunks", "hello_reply_done", 48, 4, 0, KEEP, STATUS_MALFORMED, 48, "chunks_max" },
	{ "inline_bytes within message_bytes_max", "hello_reply_done", 52, 4, 8191, KEEP, STATUS_MALFORMED, 52,
		"message_bytes_max" },
	{ "message_bytes_max may be inline_bytes", "hello_reply_done", 52, 4, 8192, KEEP, ACCEPTED },
	{ "a header fits a receive buffer", "hello_reply_done", 56, 4, 31, KEEP, STATUS_MALFORMED, 56, "inline_bytes" },
	{ "a receive buffer may hold just a header", "hello_reply_done", 56, 4, 32, KEEP, ACCEPTED },
	{ "at least one credit", "hello_reply_done", 60, 4, 0, KEEP, STATUS_MALFORMED, 60, "credits" },
	{ "before authentication limits may be unsaid", "hello_reply_challenge", 60, 4, 0, 44, 4, 0, ACCEPTED },
	{ "after authentication they are said", "authenticate_reply", 56, 4, 0, KEEP, STATUS_MALFORMED, 56, "credits" },
	{ "GET_INFO says them too", "get_info_reply", 40, 4, 0, KEEP, STATUS_MALFORMED, 40, "chunk_tokens" },
	{ "a key has a name", "authenticate", 96, 2, 0, KEEP, STATUS_MALFORMED, 98, "key name" },
};

static const struct rule_case memory_cases[] = {
	{ "rail at its limit", "connect", 32, 4, WIRE_RAILS_MAX - 1, KEEP, ACCEPTED },
	{ "rail beyond its limit", "connect", 32, 4, WIRE_RAILS_MAX, KEEP, STATUS_TOO_BIG, 32, "rail" },
	{ "rail beyond its limit in a reply", "connect_reply", 32, 4, WIRE_RAILS_MAX, KEEP, STATUS_TOO_BIG, 32,
		"rail" },
	{ "an address may be empty", "connect", 36, 4, 0, KEEP, ACCEPTED },
	{ "an address ends within the message", "connect", 36, 4, 25, KEEP, STATUS_MALFORMED, 40, "the message ends" },
	{ "address_length beyond its limit", "connect", 36, 4, WIRE_ADDRESS_MAX + 1, KEEP, STATUS_TOO_BIG, 36,
		"address_length" },
	{ "memory has a length", "memory_shared", 40, 8, 0, KEEP, STATUS_MALFORMED, 40, "length: is 0" },
	{ "memory up to the last address", "memory_shared", 32, 8, UINT64_MAX - 0x40000000, KEEP, ACCEPTED },
	{ "memory beyond the last address", "memory_shared", 32, 8, UINT64_MAX - 0x3fffffff, KEEP,
		STATUS_INVALID_MEMORY, 40, "length" },
	{ "offset up to the last byte", "memory_shared", 48, 8, UINT64_MAX - 0x40000000, KEEP, ACCEPTED },
	{ "offset that wraps", "memory_shared", 48, 8, UINT64_MAX - 0x3fffffff, KEEP, STATUS_INVALID_MEMORY, 48,
		"offset" },
	{ "memory of the process", "memory_shared", 56, 4, MEMORY_PROCESS, KEEP, ACCEPTED },
	{ "memory of no kind", "memory_shared", 56, 4, 0, KEEP, STATUS_UNSUPPORTED, 56, "kind" },
	{ "memory of an unknown kind", "memory_shared", 56, 4, 5, KEEP, STATUS_UNSUPPORTED, 56, "kind" },
	{ "remote memory has keys", "memory_shared", 56, 4, MEMORY_REMOTE, KEEP, STATUS_MALFORMED, 64, "rkey_count" },
	{ "only remote memory has keys", "memory_remote", 56, 4, MEMORY_SHARED, KEEP, STATUS_MALFORMED, 64,
		"rkey_count" },
	{ "keys beyond the limit", "memory_remote", 64, 4, WIRE_RAILS_MAX + 1, KEEP, STATUS_TOO_BIG, 64, "rkey_count" },
	{ "keys end within the message", "memory_remote", 64, 4, 4, KEEP, STATUS_MALFORMED, 84, "the message ends" },
	{ "device memory has a handle", "memory_device", 68, 4, 0, KEEP, STATUS_MALFORMED, 68, "handle_length" },
	{ "only device memory has a handle", "memory_device", 56, 4, MEMORY_SHARED, KEEP, STATUS_MALFORMED, 68,
		"handle_length" },
	{ "a handle beyond its limit", "memory_device", 68, 4, WIRE_HANDLE_MAX + 1, KEEP, STATUS_TOO_BIG, 68,
		"handle_length" },
	{ "a handle ends within the message", "memory_device", 68, 4, 65, KEEP, STATUS_MALFORMED, 72,
		"the message ends" },
	{ "INDIRECT of a header", "indirect", 36, 4, WIRE_HEADER_BYTES, KEEP, ACCEPTED },
	{ "INDIRECT of less than a header", "indirect", 36, 4, WIRE_HEADER_BYTES - 1, KEEP, STATUS_MALFORMED, 36,
		"length" },
	{ "INDIRECT of the largest message", "indirect", 36, 4, WIRE_MESSAGE_BYTES_MAX, KEEP, ACCEPTED },
	{ "INDIRECT of more", "indirect", 36, 4, WIRE_MESSAGE_BYTES_MAX + 1, KEEP, STATUS_TOO_BIG, 36, "length" },
	{ "INDIRECT up to the last address", "indirect", 40, 8, UINT64_MAX - 131072, KEEP, ACCEPTED },
	{ "INDIRECT beyond the last address", "indirect", 40, 8, UINT64_MAX - 131071, KEEP, STATUS_INVALID_MEMORY, 40,
		"address" },
};

static const struct rule_case register_cases[] = {
	{ "world_size 0", "register", 64, 4, 0, KEEP, STATUS_MALFORMED, 64, "world_size: is 0" },
	{ "world_size at its limit", "register", 64, 4, WIRE_WORLD_SIZE_MAX, KEEP, ACCEPTED },
	{ "world_size beyond its limit", "register", 64, 4, WIRE_WORLD_SIZE_MAX + 1, KEEP, STATUS_TOO_BIG, 64,
		"world_size" },
	{ "the last rank", "register", 68, 4, 7, KEEP, ACCEPTED },
	{ "a rank behind the last", "register", 68, 4, 8, KEEP, STATUS_MALFORMED, 68, "rank" },
	{ "readers 0", "register", 72, 4, 0, KEEP, STATUS_MALFORMED, 72, "readers: is 0" },
	{ "readers at its limit", "register", 72, 4, WIRE_READERS_MAX, KEEP, ACCEPTED },
	{ "readers beyond its limit", "register", 72, 4, WIRE_READERS_MAX + 1, KEEP, STATUS_TOO_BIG, 72, "readers" },
	{ "a reader behind the last", "register", 76, 4, 4, KEEP, STATUS_MALFORMED, 76, "reader" },
	{ "the largest reader number", "register", 76, 4, UINT32_MAX, KEEP, STATUS_MALFORMED, 76, "reader" },
	{ "groups beyond the limit", "register", 80, 4, WIRE_GROUPS_MAX + 1, KEEP, STATUS_TOO_BIG, 80, "group_count" },
	{ "planes beyond the limit", "register", 84, 4, WIRE_PLANES_MAX + 1, KEEP, STATUS_TOO_BIG, 84, "plane_count" },
	{ "planes end within the message", "register", 84, 4, 4, KEEP, STATUS_MALFORMED, 143, "the message ends" },
	{ "planes without groups", "register", 80, 4, 0, KEEP, STATUS_MALFORMED, 84, "plane_count" },
	{ "groups without planes", "register", 84, 4, 0, KEEP, STATUS_MALFORMED, 123, "groups" },
	{ "a plane that no group has", "register", 123, 4, 1, KEEP, STATUS_MALFORMED, 84, "plane_count" },
	{ "a group with a plane too many", "register", 139, 4, 2, KEEP, STATUS_MALFORMED, 139, "groups" },
	{ "a sum of planes that wraps", "register", 139, 4, UINT32_MAX, KEEP, STATUS_MALFORMED, 139, "groups" },
	{ "an empty model name", "register_scheduler", 88, 2, 0, 90, 2, 19, STATUS_MALFORMED, 90, "model" },
	{ "a model name with a NUL byte", "register", 95, 1, 0, KEEP, STATUS_MALFORMED, 90, "model" },
	{ "a dtype with a NUL byte", "register", 103, 1, 0, KEEP, STATUS_MALFORMED, 103, "dtype" },
	{ "tokens_per_block 0", "register", 111, 4, 0, KEEP, STATUS_MALFORMED, 111, "groups: tokens_per_block" },
	{ "window_tokens 0", "register", 131, 4, 0, KEEP, STATUS_MALFORMED, 131, "groups: window_tokens" },
	{ "block_count 0", "register", 119, 4, 0, KEEP, STATUS_MALFORMED, 119, "groups: block_count" },
	{ "a group of no plane", "register", 123, 4, 0, KEEP, STATUS_MALFORMED, 123, "groups: a group without" },
	{ "block_bytes 0", "register", 159, 4, 0, KEEP, STATUS_MALFORMED, 159, "planes: block_bytes" },
	{ "blocks as long as their stride", "register", 175, 8, 0x4000, KEEP, ACCEPTED },
	{ "blocks longer than their stride", "register", 175, 8, 0x3fff, KEEP, STATUS_MALFORMED, 175,
		"planes: block_stride" },
	{ "stride 0", "register", 199, 8, 0, KEEP, STATUS_MALFORMED, 199, "planes: block_stride" },
	{ "a stride that wraps in the product", "register", 199, 8, UINT64_MAX / 499 + 1, KEEP, STATUS_INVALID_MEMORY,
		191, "planes" },
	{ "a stride that wraps in the sum", "register", 199, 8, UINT64_MAX / 499, KEEP, STATUS_INVALID_MEMORY, 191,
		"planes" },
	{ "an address that wraps", "register", 191, 8, UINT64_MAX - 499ull * 0x10000 - 0xffff, KEEP,
		STATUS_INVALID_MEMORY, 191, "planes" },
	{ "the highest address", "register", 191, 8, UINT64_MAX - 499ull * 0x10000 - 0x10000, KEEP, ACCEPTED },
	{ "one block of any stride", "register", 135, 4, 1, 199, 8, UINT64_MAX, ACCEPTED },
	{ "a scheduler's registration has a rank too", "register_scheduler", 68, 4, 8, KEEP, STATUS_MALFORMED, 68,
		"rank" },
};

static const struct rule_case session_cases[] = {
	{ "chunk_count at its limit", "lookup", 36, 4, WIRE_CHUNKS_MAX, KEEP, ACCEPTED },
	{ "an unknown flag", "lookup", 12, 2, 4, KEEP, STATUS_MALFORMED, 12, "flags: a request with a flag" },
	{ "a fixed part shorter than version 1", "lookup", 10, 2, 87, KEEP, STATUS_MALFORMED, 10,
		"fixed_length: shorter" },
	{ "chunk_count beyond its limit", "lookup", 36, 4, WIRE_CHUNKS_MAX + 1, KEEP, STATUS_TOO_BIG, 36,
		"chunk_count" },
	{ "first_chunk beyond the limit", "lookup", 48, 4, WIRE_CHUNKS_MAX + 1, KEEP, STATUS_TOO_BIG, 48,
		"first_chunk" },
	{ "first_chunk at the limit", "lookup", 48, 4, WIRE_CHUNKS_MAX, 52, 4, 0, ACCEPTED },
	{ "a chain that ends beyond the limit", "lookup", 48, 4, WIRE_CHUNKS_MAX - 2, KEEP, STATUS_TOO_BIG, 52,
		"digest_count" },
	{ "a chain that ends at the limit", "lookup", 48, 4, WIRE_CHUNKS_MAX - 3, KEEP, ACCEPTED },
	{ "digest_count beyond the limit", "lookup", 52, 4, WIRE_CHUNKS_MAX + 1, KEEP, STATUS_TOO_BIG, 52,
		"digest_count" },
	{ "digest_count that wraps", "lookup", 52, 4, UINT32_MAX, KEEP, STATUS_TOO_BIG, 52, "digest_count" },
	{ "digests end within the message", "lookup", 52, 4, 4, KEEP, STATUS_MALFORMED, 131, "the message ends" },
	{ "a named session needs no chain", "lookup", 52, 4, 0, KEEP, ACCEPTED },
	{ "an empty session id", "lookup", 88, 2, 0, 52, 4, 0, STATUS_MALFORMED, 90, "session id" },
	{ "a session id with a NUL byte", "lookup", 98, 1, 0, KEEP, STATUS_MALFORMED, 90, "session id" },
	{ "a session id beyond its limit", "lookup", 88, 2, WIRE_SESSION_ID_MAX + 1, 52, 4, 0, STATUS_MALFORMED, 90,
		"session id" },
	{ "chunk 0 follows the seed alone", "lookup", 99, 1, 0, KEEP, STATUS_CHAIN_MISMATCH, 99, "parent" },
	{ "a later chunk follows any digest", "retrieve", 107, 1, 0, KEEP, ACCEPTED },
	{ "QUERY has the rules of sessions", "query", 48, 4, UINT32_MAX, KEEP, STATUS_TOO_BIG, 48, "digest_count" },
	{ "FREE_LOCKS has the rules of sessions", "free_locks", 56, 4, UINT32_MAX, KEEP, STATUS_TOO_BIG, 56,
		"digest_count" },
	{ "END_SESSION has the rules of sessions", "end_session", 40, 4, UINT32_MAX, KEEP, STATUS_TOO_BIG, 40,
		"digest_count" },
	{ "matched_chunks at its limit", "lookup_reply", 32, 4, WIRE_CHUNKS_MAX, KEEP, ACCEPTED },
	{ "matched_chunks beyond its limit", "lookup_reply", 32, 4, WIRE_CHUNKS_MAX + 1, KEEP, STATUS_TOO_BIG, 32,
		"matched_chunks" },
	{ "more from L2 than matched", "lookup_reply", 36, 4, 4, KEEP, STATUS_MALFORMED, 36, "from_l2_chunks" },
	{ "locks of no chunk", "free_locks", 40, 4, 0, KEEP, STATUS_INVALID_RANGE, 40, "chunk_count" },
	{ "locks of too many chunks", "free_locks", 40, 4, WIRE_CHUNKS_MAX + 1, KEEP, STATUS_TOO_BIG, 40,
		"chunk_count" },
	{ "locks beyond the limit of a chain", "free_locks", 36, 4, WIRE_CHUNKS_MAX - 1, KEEP, STATUS_INVALID_RANGE, 36,
		"first_chunk" },
	{ "locks of the largest rank", "free_locks", 44, 4, WIRE_WORLD_SIZE_MAX - 1, KEEP, ACCEPTED },
	{ "locks of a rank beyond the limit", "free_locks", 44, 4, WIRE_WORLD_SIZE_MAX, KEEP, STATUS_MALFORMED, 44,
		"rank" },
	{ "locks of the largest reader", "free_locks", 48, 4, WIRE_READERS_MAX - 1, KEEP, ACCEPTED },
	{ "locks of a reader beyond the limit", "free_locks", 48, 4, WIRE_READERS_MAX, KEEP, STATUS_MALFORMED, 48,
		"reader" },
	{ "all ranks: no reader is looked at", "free_locks_all", 48, 4, UINT32_MAX, KEEP, ACCEPTED },
};

static const struct rule_case transfer_cases[] = {
	{ "no chunk", "retrieve", 40, 4, 0, KEEP, STATUS_INVALID_RANGE, 40, "chunk_count" },
	{ "chunk_count beyond the limit", "retrieve", 40, 4, WIRE_CHUNKS_MAX + 1, KEEP, STATUS_TOO_BIG, 40,
		"chunk_count" },
	{ "a range that ends at the limit", "retrieve", 36, 4, WIRE_CHUNKS_MAX - 2, KEEP, ACCEPTED },
	{ "a range that ends beyond the limit", "retrieve", 36, 4, WIRE_CHUNKS_MAX - 1, KEEP, STATUS_INVALID_RANGE, 36,
		"first_chunk" },
	{ "a range that wraps", "retrieve", 36, 4, UINT32_MAX, KEEP, STATUS_INVALID_RANGE, 36, "first_chunk" },
	{ "a STORE does not skip", "store", 44, 4, 1, KEEP, STATUS_INVALID_RANGE, 44, "skip_tokens" },
	{ "a RETRIEVE may skip anything", "retrieve", 44, 4, UINT32_MAX, KEEP, ACCEPTED },
	{ "a STORE has no layers", "store_after", 12, 2, 3, KEEP, STATUS_MALFORMED, 12, "flags" },
	{ "an unknown flag", "store_after", 12, 2, 6, KEEP, STATUS_MALFORMED, 12, "flags" },
	{ "flags without their fields", "retrieve", 12, 2, 1, KEEP, STATUS_MALFORMED, 10, "fixed_length" },
	{ "layers at an odd address", "retrieve_ordered", 96, 1, 2, KEEP, STATUS_MALFORMED, 96, "layers_address" },
	{ "no layer", "retrieve_ordered", 108, 4, 0, KEEP, STATUS_MALFORMED, 108, "layer_count" },
	{ "layers at the limit", "retrieve_ordered", 108, 4, WIRE_PLANES_MAX, KEEP, ACCEPTED },
	{ "layers beyond the limit", "retrieve_ordered", 108, 4, WIRE_PLANES_MAX + 1, KEEP, STATUS_TOO_BIG, 108,
		"layer_count" },
	{ "a word at an odd address", "retrieve_ordered", 120, 1, 1, KEEP, STATUS_MALFORMED, 120, "after_address" },
	{ "a word that nobody waits for may lie anywhere", "retrieve_ordered", 120, 1, 1, 12, 2, 1, ACCEPTED },
	{ "no group", "retrieve", 48, 4, 0, KEEP, STATUS_MALFORMED, 48, "group_count" },
	{ "groups beyond the limit", "retrieve", 48, 4, WIRE_GROUPS_MAX + 1, KEEP, STATUS_TOO_BIG, 48, "group_count" },
	{ "no run", "retrieve", 52, 4, 0, KEEP, STATUS_MALFORMED, 203, "group_runs: the sum" },
	{ "runs beyond the limit", "retrieve", 52, 4, WIRE_RUNS_MAX + 1, KEEP, STATUS_TOO_BIG, 52, "run_count" },
	{ "runs end within the message", "retrieve", 52, 4, 4, KEEP, STATUS_MALFORMED, 211, "the message ends" },
	{ "a group without runs", "retrieve", 207, 4, 0, KEEP, STATUS_MALFORMED, 207, "group_runs: a group" },
	{ "a sum of runs below run_count", "retrieve", 203, 4, 1, KEEP, STATUS_MALFORMED, 203, "group_runs: the sum" },
	{ "a sum of runs above run_count", "retrieve", 203, 4, 3, KEEP, STATUS_MALFORMED, 203, "group_runs: the sum" },
	{ "a sum of runs that wraps to run_count", "retrieve", 203, 4, UINT32_MAX, 207, 4, 4, STATUS_MALFORMED, 203,
		"group_runs: the sum" },
	{ "a run of no block", "retrieve", 231, 4, 0, KEEP, STATUS_MALFORMED, 231, "runs: a run of 0" },
	{ "null blocks of no block", "retrieve", 223, 4, 0, KEEP, STATUS_MALFORMED, 223, "runs: a run of 0" },
	{ "any number of null blocks", "retrieve", 223, 4, UINT32_MAX, KEEP, ACCEPTED },
	{ "a run up to the largest block id", "store", 175, 4, UINT32_MAX - 16, KEEP, ACCEPTED },
	{ "a run that reaches the null block", "store", 175, 4, UINT32_MAX - 15, KEEP, STATUS_INVALID_BLOCK, 175,
		"runs: a run passes" },
	{ "a run that wraps", "store", 179, 4, UINT32_MAX, KEEP, STATUS_INVALID_BLOCK, 175, "runs: a run passes" },
	{ "outcomes of no chunk", "retrieve_reply_partial", 32, 4, 0, KEEP, STATUS_MALFORMED, 32, "chunk_count" },
	{ "outcomes beyond the limit", "retrieve_reply_partial", 32, 4, WIRE_CHUNKS_MAX + 1, KEEP, STATUS_TOO_BIG, 32,
		"chunk_count" },
	{ "outcomes end within the message", "retrieve_reply_partial", 32, 4, 5, KEEP, STATUS_MALFORMED, 40,
		"the message ends" },
	{ "more good chunks than chunks", "retrieve_reply_partial", 36, 4, 5, KEEP, STATUS_MALFORMED, 36,
		"good_count" },
	{ "PARTIAL though all is good", "retrieve_reply_partial", 36, 4, 4, KEEP, STATUS_MALFORMED, 36, "good_count" },
	{ "OK though not all is good", "store_reply", 36, 4, 1, KEEP, STATUS_MALFORMED, 36, "good_count" },
	{ "a transfer that is pending", "store_reply", 14, 2, STATUS_PENDING, KEEP, STATUS_MALFORMED, 14, "status" },
	{ "a chunk without outcome", "store_reply", 41, 1, CHUNK_PENDING, KEEP, STATUS_MALFORMED, 40, "outcomes" },
	{ "an outcome of a newer server", "retrieve_reply_partial", 43, 1, 200, KEEP, ACCEPTED },
	{ "an error text with a NUL byte", "error_busy", 40, 1, 0, KEEP, STATUS_MALFORMED, 34, "error text" },
	{ "an error text beyond the message", "error_busy", 32, 2, 1000, KEEP, STATUS_MALFORMED, 32,
		"the message ends" },
	{ "an error of any reply type", "error_busy", 8, 2, 60000, KEEP, ACCEPTED },
};

static void check_case(const struct rule_case *rule)
{
	union any_message message;
	struct wire_error error = { .status = STATUS_OK, .what = "accepted" };
	struct golden golden;
	int result;

	golden_load(&golden, rule->golden);
	golden_patch(&golden, rule->offset, rule->width, rule->value);
	golden_patch(&golden, rule->offset2, rule->width2, rule->value2);
	result = any_decode(golden.kind, golden.bytes, golden.length, &message, &error);
	if (rule->status == STATUS_OK ? result != 0
				      : result != -EBADMSG || error.status != rule->status ||
				error.offset != rule->at || strncmp(error.what, rule->what, strlen(rule->what)) != 0)
		fail_msg("%s: %s: got %d, %s at %u, \"%s\"", rule->golden, rule->name, result,
			status_name(error.status), error.offset, result ? error.what : "accepted");
	if (result == 0)
		(void)any_touch(golden.kind, &message);
	golden_free(&golden);
}

#define CHECK_ALL(cases)                                 \
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) \
	check_case(&(cases)[i])

static void hello_and_authentication_hold_their_rules(void **state)
{
	(void)state;
	CHECK_ALL(hello_cases);
}

static void addresses_and_memory_hold_their_rules(void **state)
{
	(void)state;
	CHECK_ALL(memory_cases);
}

static void registrations_hold_their_rules(void **state)
{
	(void)state;
	CHECK_ALL(register_cases);
}

static void sessions_and_locks_hold_their_rules(void **state)
{
	(void)state;
	CHECK_ALL(session_cases);
}

static void transfers_and_replies_hold_their_rules(void **state)
{
	(void)state;
	CHECK_ALL(transfer_cases);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hello_and_authentication_hold_their_rules),
		cmocka_unit_test(addresses_and_memory_hold_their_rules),
		cmocka_unit_test(registrations_hold_their_rules),
		cmocka_unit_test(sessions_and_locks_hold_their_rules),
		cmocka_unit_test(transfers_and_replies_hold_their_rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
