/* What is said to a Redis server, byte by byte, and its replies in any pieces. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "base/text.h"
#include "tier/object_format.h"
#include "tier/place.h"
#include "tier/redis_protocol.h"

/* Those of the cluster's specification, and of CLUSTER KEYSLOT. */
static void slots_are_those_that_every_client_reckons(void **state)
{
	static const struct {
		const char *key;
		uint32_t slot;
	} cases[] = {
		{ "123456789", 0x31c3 },
		{ "foo", 12182 },
		{ "bar", 5061 },
		{ "", 0 },
		{ "{user1000}.following", 3443 },
		{ "{user1000}.followers", 3443 },
		{ "user1000", 3443 },
		{ "foo{}{bar}", 8363 },
		{ "foo{{bar}}zap", 4015 },
		{ "foo{bar}{zap}", 5061 },
		{ "{", 4092 },
	};

	(void)state;
	for (uint32_t i = 0; i < KVR_COUNT_OF(cases); i++)
		assert_int_equal(redis_slot(cases[i].key, strlen(cases[i].key)), cases[i].slot);
}

static void a_key_is_the_prefix_and_the_name_of_the_object(void **state)
{
	struct l2_identity identity = object_identity(1, 5000);
	char key[REDIS_KEY_MAX], hex[65], long_prefix[100];
	struct digester digester;
	uint8_t hash[32];

	(void)state;
	assert_int_equal(digester_init(&digester), 0);
	object_hash(&digester, &identity, hash);
	text_hex(hex, hash, 32);
	assert_int_equal(redis_key(&digester, "kv:", &identity, key), 67);
	assert_memory_equal(key, "kv:", 3);
	assert_memory_equal(key + 3, hex, 64);
	memset(long_prefix, 'x', sizeof(long_prefix));
	assert_int_equal(redis_key(&digester, long_prefix, &identity, key), REDIS_KEY_MAX);
	digester_fini(&digester);
}

static void commands_are_written_while_there_is_room(void **state)
{
	static const char expected[] = "*2\r\n$3\r\nGET\r\n$2\r\nab\r\n$70000\r\n";
	char out[sizeof(expected) + 1];

	(void)state;
	for (size_t size = 1; size <= sizeof(out); size++) {
		uint32_t length = 0;
		bool fits = redis_put_count(out, size, &length, 2) &&
			redis_put_argument(out, size, &length, "GET", 3) &&
			redis_put_argument(out, size, &length, "ab", 2) && redis_put_length(out, size, &length, 70000);

		assert_true(length <= size);
		assert_int_equal(fits, size >= sizeof(expected));
		assert_memory_equal(out, expected, length);
	}
}

static void where_a_slot_has_gone_is_read(void **state)
{
	static const char *const wrong[] = { "MOVED", "MOVED ", "MOVED 1", "MOVED 1 ", "MOVED 1 host",
		"MOVED 1 host:", "MOVED 16384 host:1", "MOVED x host:1", "MOVED 1 host:0", "MOVED 1 host:65536",
		"MOVED 1 host:1 ", "MOVED  1 host:1", "MOVED 99999999999999 host:1" };
	char host[REDIS_HOST_MAX + 1], line[400];
	uint32_t slot = 7;
	uint16_t port = 7;

	(void)state;
	for (uint32_t i = 0; i < KVR_COUNT_OF(wrong); i++)
		assert_int_equal(redis_parse_move(wrong[i], &slot, host, &port), -EBADMSG);
	assert_int_equal(slot + port, 14);
	assert_int_equal(redis_parse_move("MOVED 3999 127.0.0.1:6381", &slot, host, &port), 0);
	assert_int_equal(slot, 3999);
	assert_string_equal(host, "127.0.0.1");
	assert_int_equal(port, 6381);
	assert_int_equal(redis_parse_move("ASK 16383 fe80::1:65535", &slot, host, &port), 0);
	assert_string_equal(host, "fe80::1");
	assert_int_equal(port, 65535);
	assert_int_equal(redis_parse_move("ASK 0 :1", &slot, host, &port), 0);
	assert_string_equal(host, "");
	assert_int_equal(redis_parse_move("ASK 0 ?:1", &slot, host, &port), 0);
	assert_string_equal(host, "");
	for (int length = 254; length < 258; length++) {
		snprintf(line, sizeof(line), "MOVED 5 %0*d:1", length, 0);
		assert_int_equal(redis_parse_move(line, &slot, host, &port), length <= 255 ? 0 : -EBADMSG);
	}
}

static void errors_are_told_apart_by_their_first_word(void **state)
{
	(void)state;
	assert_int_equal(redis_trouble_of("MOVED 1 a:1"), REDIS_MOVED);
	assert_int_equal(redis_trouble_of("ASK 1 a:1"), REDIS_ASK);
	assert_int_equal(redis_trouble_of("OOM command not allowed"), REDIS_OOM);
	assert_int_equal(redis_trouble_of("READONLY You can't write"), REDIS_READONLY);
	assert_int_equal(redis_trouble_of("LOADING"), REDIS_LOADING);
	assert_int_equal(redis_trouble_of("CLUSTERDOWN Hash slot not served"), REDIS_CLUSTERDOWN);
	assert_int_equal(redis_trouble_of("ASKED 1 a:1"), REDIS_OTHER);
	assert_int_equal(redis_trouble_of("oom"), REDIS_OTHER);
	assert_int_equal(redis_trouble_of(""), REDIS_OTHER);
	assert_int_equal(redis_trouble_of("ERR unknown command"), REDIS_OTHER);
}

/* All events of the bytes, given in pieces of random lengths, as letters. */
static void events_of(const char *bytes, size_t length, struct random *random, char *out)
{
	static const char letters[] = "?SEIBpNA.X";
	struct resp resp;

	resp_init(&resp);
	for (size_t done = 0; done < length;) {
		size_t part = 1 + random_below(random, length - done);
		const uint8_t *at = (const uint8_t *)bytes + done, *end = at + part, *piece;
		enum resp_event event;
		size_t piece_bytes;

		while ((event = resp_next(&resp, &at, end, &piece, &piece_bytes)) != RESP_MORE) {
			if (event == RESP_PIECE && out[-1] == 'p')
				continue;
			*out++ = letters[event];
			if (event == RESP_BAD) {
				*out = '\0';
				return;
			}
		}
		done += part;
	}
	*out = '\0';
}

static void replies_come_in_any_pieces(void **state)
{
	static const struct {
		const char *bytes, *events;
	} cases[] = {
		{ "+OK\r\n", "S." },
		{ "-ERR no\r\n:12\r\n", "E.I." },
		{ "$5\r\nhello\r\n$0\r\n\r\n$-1\r\n", "Bp.B.N." },
		{ "*0\r\n*-1\r\n", "A.N." },
		{ "*2\r\n*1\r\n:1\r\n*0\r\n+x\r\n", "AAIA.S." },
		{ "*2\r\n$2\r\n\r\n\r\n$-1\r\n:1\r\n", "ABpN.I." },
		{ "$5\r\nhellox\n", "BpX" },
		{ "$5\r\nhello\rx", "BpX" },
		{ "$05\r\nhello\r\n", "Bp." },
		{ "$+5\r\n", "X" },
		{ "$ 5\r\n", "X" },
		{ ":\r\n", "X" },
		{ ":-5\r\n", "I." },
		{ "+OK\n", "X" },
		{ "*-2\r\n", "X" },
		{ "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "AAAAAAAAI." },
		{ "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "AAAAAAAAX" },
	};
	struct random random;
	char out[68];

	(void)state;
	random_init(&random, 5);
	out[0] = ' ';
	for (uint32_t i = 0; i < KVR_COUNT_OF(cases); i++)
		for (int round = 0; round < 50; round++) {
			events_of(cases[i].bytes, strlen(cases[i].bytes), &random, out + 1);
			assert_string_equal(out + 1, cases[i].events);
		}
}

static void a_line_is_of_bounded_length(void **state)
{
	static char line[RESP_LINE_MAX + 10];
	struct random random;
	char out[68] = " ";

	(void)state;
	random_init(&random, 5);
	memset(line, 'x', sizeof(line));
	line[0] = '+';
	memcpy(line + RESP_LINE_MAX - 1, "\r\n", 2);
	events_of(line, RESP_LINE_MAX + 1, &random, out + 1);
	assert_string_equal(out + 1, "S.");
	line[RESP_LINE_MAX - 1] = 'x';
	line[RESP_LINE_MAX] = '\r';
	line[RESP_LINE_MAX + 1] = '\n';
	events_of(line, RESP_LINE_MAX + 2, &random, out + 1);
	assert_string_equal(out + 1, "X");
}

struct ranges {
	char text[400];
};

static bool note_range(void *owner, uint32_t first, uint32_t last, const char *host, uint16_t port)
{
	struct ranges *ranges = owner;
	size_t length = strlen(ranges->text);

	snprintf(ranges->text + length, sizeof(ranges->text) - length, "%u-%u %s:%u;", first, last, host, port);
	return strcmp(host, "no") != 0;
}

/* NULL: it is bad. */
static const char *ranges_of(const char *bytes, struct ranges *ranges)
{
	const uint8_t *at = (const uint8_t *)bytes, *end = at + strlen(bytes), *piece = NULL;
	struct redis_slots slots;
	enum resp_event event;
	size_t piece_bytes = 0;
	struct resp resp;

	memset(ranges, 0, sizeof(*ranges));
	resp_init(&resp);
	redis_slots_init(&slots, note_range, ranges);
	while ((event = resp_next(&resp, &at, end, &piece, &piece_bytes)) != RESP_END) {
		assert_true(event != RESP_MORE && event != RESP_BAD);
		redis_slots_event(&slots, &resp, event, piece, piece_bytes);
	}
	assert_ptr_equal(at, end);
	return slots.bad ? NULL : ranges->text;
}

#define RANGE(first, last, nodes) "*3\r\n:" first "\r\n:" last "\r\n" nodes
#define NODE(host, port) "*4\r\n" host ":" port "\r\n$3\r\nxyz\r\n*2\r\n$8\r\nhostname\r\n$4\r\nabcd\r\n"

static void the_map_of_a_cluster_is_read(void **state)
{
	struct ranges ranges;

	(void)state;
	assert_string_equal(
		ranges_of("*2\r\n*4\r\n:0\r\n:5460\r\n" NODE("$9\r\n127.0.0.1\r\n", "7000") NODE("$1\r\nz\r\n", "1")
				  RANGE("5461", "16383", "*2\r\n$5\r\nfe::1\r\n:7001\r\n"),
			&ranges),
		"0-5460 127.0.0.1:7000;5461-16383 fe::1:7001;");
	assert_string_equal(ranges_of("*1\r\n" RANGE("0", "1", NODE("$0\r\n\r\n", "1")), &ranges), "0-1 :1;");
	assert_string_equal(ranges_of("*1\r\n" RANGE("0", "1", NODE("$-1\r\n", "1")), &ranges), "0-1 :1;");
	assert_string_equal(ranges_of("*1\r\n" RANGE("0", "1", NODE("$1\r\n?\r\n", "1")), &ranges), "0-1 :1;");
	assert_string_equal(ranges_of("*0\r\n", &ranges), "");
	assert_null(ranges_of("+OK\r\n", &ranges));
	assert_null(ranges_of("$1\r\nx\r\n", &ranges));
	assert_null(ranges_of("*1\r\n" RANGE("0", "16384", NODE("$1\r\na\r\n", "1")), &ranges));
	assert_null(ranges_of("*1\r\n" RANGE("5", "4", NODE("$1\r\na\r\n", "1")), &ranges));
	assert_null(ranges_of("*1\r\n" RANGE("-1", "4", NODE("$1\r\na\r\n", "1")), &ranges));
	assert_null(ranges_of("*1\r\n" RANGE("0", "4", NODE("$1\r\na\r\n", "0")), &ranges));
	assert_null(ranges_of("*1\r\n" RANGE("0", "4", NODE("$1\r\na\r\n", "65536")), &ranges));
	assert_null(ranges_of("*1\r\n" RANGE("0", "4", NODE(":1\r\n", "1")), &ranges));
	assert_null(ranges_of("*1\r\n" RANGE("0", "4", NODE("*1\r\n:1\r\n", "1")), &ranges));
	assert_null(ranges_of("*1\r\n" RANGE("0", "4", NODE("$2\r\nno\r\n", "1")), &ranges));
	assert_null(ranges_of("*1\r\n*3\r\n$1\r\n0\r\n:4\r\n" NODE("$1\r\na\r\n", "1"), &ranges));
	assert_null(ranges_of("*1\r\n*3\r\n$-1\r\n:4\r\n" NODE("$1\r\na\r\n", "1"), &ranges));
	assert_null(ranges_of("*1\r\n-ERR\r\n", &ranges));
}

/* What SCAN's MATCH is given, and what counts as a key of ours among what it answers. */
static void keys_of_ours_have_one_form(void **state)
{
	static const char hex[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
	char key[REDIS_KEY_MAX], text[200], pattern[REDIS_PATTERN_MAX], longest[REDIS_PREFIX_MAX + 1];
	uint8_t hash[32], again[32];
	uint32_t length;

	(void)state;
	for (uint32_t i = 0; i < 32; i++)
		hash[i] = (uint8_t)(i % 16 * 17);
	length = redis_key_of_hash("a:", hash, key);
	snprintf(text, sizeof(text), "a:%s", hex);
	assert_int_equal(length, strlen(text));
	assert_memory_equal(key, text, length);
	assert_true(redis_key_parse("a:", key, length, again));
	assert_memory_equal(hash, again, 32);
	assert_false(redis_key_parse("a:", key, length - 1, again));
	assert_false(redis_key_parse("b:", key, length, again));
	assert_false(redis_key_parse("a", key, length, again));
	for (uint32_t i = 2; i < length; i++) {
		static const char wrong[] = "/:`gAF \xff";

		for (uint32_t j = 0; j < sizeof(wrong); j++) { /* its 0, too */
			key[i] = wrong[j];
			assert_false(redis_key_parse("a:", key, length, again));
		}
		key[i] = text[i];
	}
	redis_pattern("kvrail:", pattern);
	assert_string_equal(pattern, "kvrail:*");
	redis_pattern("*?[]\\^-{x}", pattern);
	assert_string_equal(pattern, "\\*\\?\\[\\]\\\\\\^-{x}*");
	memset(longest, '*', REDIS_PREFIX_MAX);
	longest[REDIS_PREFIX_MAX] = '\0';
	redis_pattern(longest, pattern);
	assert_int_equal(strlen(pattern), REDIS_PATTERN_MAX - 1);
}

static bool count_key(void *owner, const char *key, uint32_t length)
{
	uint32_t *counts = owner;

	counts[0]++;
	counts[1] += length;
	(void)key;
	return counts[0] < 4;
}

/* Whole when it is a reply to SCAN; the bytes come in pieces of `step`. */
static bool scan_whole(const char *bytes, size_t step, uint32_t counts[2], struct redis_scan *scan)
{
	struct resp resp;
	enum resp_event event = RESP_MORE;
	const uint8_t *piece = NULL;
	size_t piece_bytes = 0, length = strlen(bytes);

	counts[0] = counts[1] = 0;
	resp_init(&resp);
	redis_scan_init(scan, count_key, counts);
	for (size_t from = 0; from < length; from += step) {
		const uint8_t *at = (const uint8_t *)bytes + from;
		const uint8_t *end = (const uint8_t *)bytes + (from + step < length ? from + step : length);

		while ((event = resp_next(&resp, &at, end, &piece, &piece_bytes)) != RESP_MORE) {
			if (event == RESP_END || event == RESP_BAD)
				return event == RESP_END && scan->whole && !scan->bad;
			redis_scan_event(scan, &resp, event, piece, piece_bytes);
		}
	}
	return false;
}

static void a_page_of_keys_is_read_in_any_pieces(void **state)
{
	static const char page[] = "*2\r\n$4\r\n1792\r\n*3\r\n$3\r\none\r\n$0\r\n\r\n$5\r\nthree\r\n";
	static const char four[] = "*2\r\n$1\r\n0\r\n*4\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n";
	struct redis_scan scan;
	char longer[400];
	uint32_t counts[2];

	(void)state;
	for (size_t step = 1; step <= sizeof(page); step++) {
		assert_true(scan_whole(page, step, counts, &scan));
		assert_string_equal(scan.cursor, "1792");
		assert_int_equal(counts[0], 3);
		assert_int_equal(counts[1], 8);
		assert_false(scan_whole(four, step, counts, &scan)); /* no room for the fourth */
	}
	assert_true(scan_whole("*2\r\n$20\r\n18446744073709551615\r\n*0\r\n", 100, counts, &scan));
	assert_string_equal(scan.cursor, "18446744073709551615");
	/* A longer key than any of ours is passed over. */
	snprintf(longer, sizeof(longer), "*2\r\n$1\r\n0\r\n*2\r\n$128\r\n%0128d\r\n$127\r\n%0127d\r\n", 0, 0);
	for (size_t step = 1; step < 200; step++) {
		assert_true(scan_whole(longer, step, counts, &scan));
		assert_int_equal(counts[0], 1);
		assert_int_equal(counts[1], 127);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_of_ours_have_one_form),
		cmocka_unit_test(a_page_of_keys_is_read_in_any_pieces),
		cmocka_unit_test(slots_are_those_that_every_client_reckons),
		cmocka_unit_test(a_key_is_the_prefix_and_the_name_of_the_object),
		cmocka_unit_test(commands_are_written_while_there_is_room),
		cmocka_unit_test(where_a_slot_has_gone_is_read),
		cmocka_unit_test(errors_are_told_apart_by_their_first_word),
		cmocka_unit_test(replies_come_in_any_pieces),
		cmocka_unit_test(a_line_is_of_bounded_length),
		cmocka_unit_test(the_map_of_a_cluster_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
