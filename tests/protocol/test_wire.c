/* The frame of every message, cursors, names and statuses. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "protocol/cursor.h"
#include "protocol/wire.h"

static const struct wire_header sample = { .length = 64,
	.type = WIRE_LOOKUP,
	.fixed_length = 40,
	.flags = 0x1234,
	.status = 0x5678,
	.request_id = 0x0102030405060708,
	.boot_id = 0x1112131415161718 };

static void header_lies_as_documented(void **state)
{
	static const uint8_t expected[WIRE_HEADER_BYTES] = { 'K', 'V', 'R', 'L', 64, 0, 0, 0, 37, 0, 40, 0, 0x34, 0x12,
		0x78, 0x56, 8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11 };
	uint8_t bytes[64] = { 0 };
	struct wire_header header;
	struct wire_error error;

	(void)state;
	wire_header_encode(bytes, &sample);
	assert_memory_equal(bytes, expected, sizeof(expected));
	assert_int_equal(bytes[WIRE_HEADER_BYTES], 0);
	assert_int_equal(wire_header_decode(bytes, sizeof(bytes), &header, &error), 0);
	assert_int_equal(header.length, sample.length);
	assert_int_equal(header.type, sample.type);
	assert_int_equal(header.fixed_length, sample.fixed_length);
	assert_int_equal(header.flags, sample.flags);
	assert_int_equal(header.status, sample.status);
	assert_int_equal(header.request_id, sample.request_id);
	assert_int_equal(header.boot_id, sample.boot_id);
}

struct header_case {
	uint32_t offset, width;
	uint64_t value;
	size_t available;
	uint16_t status; /* STATUS_OK: accepted */
	uint32_t at;
};

static const struct header_case header_cases[] = {
	{ 0, 0, 0, 0, STATUS_MALFORMED, 0 }, { 0, 0, 0, 31, STATUS_MALFORMED, 31 },
	{ 0, 0, 0, 63, STATUS_MALFORMED, 4 },                         /* fewer bytes than the header says */
	{ 0, 0, 0, 64, STATUS_OK, 0 }, { 0, 0, 0, 65, STATUS_OK, 0 }, /* more than it says */
	{ 0, 1, 'k', 64, STATUS_MALFORMED, 0 }, { 3, 1, 0, 64, STATUS_MALFORMED, 0 },
	{ 4, 4, 0, 64, STATUS_MALFORMED, 4 }, { 4, 4, 31, 64, STATUS_MALFORMED, 4 },
	{ 4, 4, 39, 64, STATUS_MALFORMED, 10 }, /* shorter than the fixed part */
	{ 4, 4, 40, 64, STATUS_OK, 0 }, { 4, 4, WIRE_MESSAGE_BYTES_MAX + 1, SIZE_MAX / 2, STATUS_TOO_BIG, 4 },
	{ 4, 4, UINT32_MAX, 64, STATUS_TOO_BIG, 4 }, { 10, 2, 31, 64, STATUS_MALFORMED, 10 },
	{ 10, 2, 32, 64, STATUS_OK, 0 }, { 10, 2, 64, 64, STATUS_OK, 0 }, { 10, 2, 65, 64, STATUS_MALFORMED, 10 },
	{ 8, 2, 0xffff, 64, STATUS_OK, 0 }, /* the type is for others to judge */
};

static void header_holds_its_rules(void **state)
{
	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(header_cases); i++) {
		const struct header_case *rule = &header_cases[i];
		struct wire_header header;
		struct wire_error error = { STATUS_OK, 0, NULL };
		uint8_t bytes[64] = { 0 };
		int expected = rule->status == STATUS_OK ? 0 : -EBADMSG;

		wire_header_encode(bytes, &sample);
		memcpy(bytes + rule->offset, &rule->value, rule->width);
		if (wire_header_decode(bytes, rule->available, &header, &error) != expected ||
			error.status != rule->status || error.offset != rule->at)
			fail_msg("case %zu: %s at %u: %s", i, status_name(error.status), error.offset,
				error.what ? error.what : "accepted");
	}
}

static void a_stream_learns_the_length_from_eight_bytes(void **state)
{
	const uint32_t largest = WIRE_MESSAGE_BYTES_MAX;
	struct wire_error error;
	uint8_t bytes[64] = { 0 };

	(void)state;
	wire_header_encode(bytes, &sample);
	for (size_t available = 0; available < 8; available++)
		assert_int_equal(wire_stream_length(bytes, available, WIRE_CONTROL_BYTES_MAX, &error), 0);
	for (size_t available = 8; available <= sizeof(bytes); available++)
		assert_int_equal(wire_stream_length(bytes, available, WIRE_CONTROL_BYTES_MAX, &error), 64);
	assert_int_equal(wire_stream_length(bytes, 8, 64, &error), 64);
	assert_int_equal(wire_stream_length(bytes, 8, 63, &error), -EBADMSG);
	assert_int_equal(error.status, STATUS_TOO_BIG);
	bytes[4] = 32;
	assert_int_equal(wire_stream_length(bytes, 8, WIRE_CONTROL_BYTES_MAX, &error), 32);
	bytes[4] = 31;
	assert_int_equal(wire_stream_length(bytes, 8, WIRE_CONTROL_BYTES_MAX, &error), -EBADMSG);
	assert_int_equal(error.status, STATUS_MALFORMED);
	memcpy(bytes + 4, &largest, sizeof(largest));
	assert_int_equal(wire_stream_length(bytes, 8, UINT32_MAX, &error), WIRE_MESSAGE_BYTES_MAX);
	memset(bytes + 4, 0xff, 4);
	assert_int_equal(wire_stream_length(bytes, 8, UINT32_MAX, &error), -EBADMSG);
	assert_int_equal(error.status, STATUS_TOO_BIG);
}

static void messages_of_one_send_are_told_apart_by_their_lengths(void **state)
{
	struct wire_header header = { .length = 40, .type = WIRE_PING, .fixed_length = WIRE_HEADER_BYTES };
	static const uint32_t wrong[] = { 0, 1, 31, 101, UINT32_MAX };
	uint8_t bytes[100] = { 0 };

	(void)state;
	wire_header_encode(bytes, &header);
	assert_int_equal(wire_first_length(bytes, 100), 40);
	assert_int_equal(wire_first_length(bytes, 40), 40);
	assert_int_equal(wire_first_length(bytes, 39), 39); /* cut short: all that there is */
	for (uint32_t available = 0; available < WIRE_HEADER_BYTES; available++) {
		uint8_t *few = malloc(available + 1);

		memcpy(few, bytes, available);
		assert_int_equal(wire_first_length(few, available), available);
		free(few);
	}
	for (size_t i = 0; i < KVR_COUNT_OF(wrong); i++) {
		header.length = wrong[i];
		wire_header_encode(bytes, &header);
		assert_int_equal(wire_first_length(bytes, 100), 100);
	}
}

/* pitfalls O06 */
static void a_stream_of_another_protocol_is_told_from_its_first_bytes(void **state)
{
	static const char *const others[] = { "GET / HTTP/1.1\r\n", "\x16\x03\x01\x02\x00\x01", "KVRX", "KVR\n",
		"SSH-2.0", "\n" };
	struct wire_error error;

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(others); i++) {
		size_t length = strlen(others[i]);

		assert_int_equal(wire_stream_length(others[i], length, WIRE_CONTROL_BYTES_MAX, &error), -EBADMSG);
		assert_int_equal(error.offset, 0);
		assert_non_null(strstr(error.what, "kvrail"));
	}
	assert_int_equal(wire_stream_length("G", 1, WIRE_CONTROL_BYTES_MAX, &error), -EBADMSG);
}

static void types_have_names_and_replies_follow_their_requests(void **state)
{
	int named = 0;

	(void)state;
	assert_string_equal(wire_type_name(WIRE_HELLO), "HELLO");
	assert_string_equal(wire_type_name(WIRE_LOOKUP_REPLY), "LOOKUP_REPLY");
	assert_string_equal(wire_type_name(WIRE_INDIRECT), "INDIRECT");
	assert_string_equal(wire_type_name(0), "UNKNOWN");
	assert_string_equal(wire_type_name(UINT16_MAX), "UNKNOWN");
	for (uint32_t type = 1; type < UINT16_MAX; type += 2) {
		const char *request = wire_type_name((uint16_t)type);
		const char *reply = wire_type_name((uint16_t)(type + 1));

		if (strcmp(request, "UNKNOWN") == 0 || type == WIRE_INDIRECT) {
			assert_string_equal(reply, "UNKNOWN");
			continue;
		}
		named++;
		assert_memory_equal(reply, request, strlen(request));
		assert_string_equal(reply + strlen(request), "_REPLY");
	}
	assert_int_equal(named, 17);
}

static void every_status_has_a_name_a_text_and_an_errno(void **state)
{
	static const struct {
		uint16_t number;
		const char *name;
	} statuses[] = {
#define ROW(name, number, error, text) { number, #name },
		STATUS_LIST(ROW)
#undef ROW
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(statuses); i++) {
		uint16_t number = statuses[i].number;

		assert_string_equal(status_name(number), statuses[i].name);
		assert_true(strlen(status_text(number)) > 0);
		assert_true(number <= STATUS_PARTIAL ? status_to_errno(number) == 0 : status_to_errno(number) < 0);
		assert_int_equal(status_has_body(number), number <= STATUS_PENDING);
		for (size_t j = 0; j < i; j++)
			assert_int_not_equal(statuses[j].number, number);
	}
	assert_int_equal(status_to_errno(STATUS_PENDING), -EAGAIN);
	assert_int_equal(status_to_errno(STATUS_WRONG_BOOT), -ESTALE);
	assert_int_equal(status_to_errno(STATUS_TIMED_OUT), -ETIMEDOUT);
}

static void unknown_statuses_are_protocol_errors(void **state)
{
	static const uint16_t unknown[] = { 21, 31, 37, 47, 56, 62, 64, 255, 256, UINT16_MAX };

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(unknown); i++) {
		assert_string_equal(status_name(unknown[i]), "UNKNOWN");
		assert_int_equal(status_to_errno(unknown[i]), -EPROTO);
		assert_false(status_has_body(unknown[i]));
	}
}

static void short_reads_move_nothing(void **state)
{
	uint8_t bytes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	const uint8_t *pointer = NULL;
	uint16_t small = 0xaaaa;
	uint32_t middle = 0xaaaaaaaa;
	uint64_t large = 0xaaaaaaaa;

	(void)state;
	for (size_t left = 0; left <= sizeof(bytes); left++) {
		struct get_cursor start = { bytes, bytes + left };
		struct get_cursor in = start;

		assert_int_equal(get_u16(&in, &small), left >= 2);
		assert_int_equal(in.next - bytes, left >= 2 ? 2 : 0);
		in = start;
		assert_int_equal(get_u32(&in, &middle), left >= 4);
		assert_int_equal(in.next - bytes, left >= 4 ? 4 : 0);
		in = start;
		assert_int_equal(get_u64(&in, &large), left >= 8);
		assert_int_equal(in.next - bytes, left >= 8 ? 8 : 0);
		in = start;
		assert_false(get_bytes(&in, &pointer, left + 1));
		assert_false(get_bytes(&in, &pointer, UINT64_MAX));
		assert_ptr_equal(in.next, bytes);
		assert_true(get_bytes(&in, &pointer, left));
		assert_ptr_equal(pointer, bytes);
		assert_int_equal(get_left(&in), 0);
		assert_int_equal(small, left >= 2 ? 0x0201 : 0xaaaa);
		assert_int_equal(middle, left >= 4 ? 0x04030201 : 0xaaaaaaaa);
	}
	assert_int_equal(large, 0x0807060504030201);
}

static void short_writes_move_nothing(void **state)
{
	(void)state;
	for (size_t left = 0; left < 8; left++) {
		uint8_t bytes[8] = { 0 };
		uint8_t zeros[8] = { 0 };
		struct put_cursor out = { bytes, bytes + left };

		assert_false(put_u64(&out, UINT64_MAX));
		assert_true(left >= 4 || !put_u32(&out, UINT32_MAX));
		assert_true(left >= 2 || !put_u16(&out, UINT16_MAX));
		assert_false(put_bytes(&out, zeros, left + 1));
		assert_false(put_bytes(&out, zeros, UINT64_MAX));
		if (left < 2) {
			assert_ptr_equal(out.next, bytes);
			assert_memory_equal(bytes, zeros, sizeof(bytes));
		}
		assert_true(put_bytes(&out, NULL, 0));
	}
}

static void numbers_are_written_little_endian(void **state)
{
	static const uint8_t expected[] = { 2, 1, 6, 5, 4, 3, 14, 13, 12, 11, 10, 9, 8, 7, 'x' };
	uint8_t bytes[sizeof(expected)];
	struct put_cursor out = { bytes, bytes + sizeof(bytes) };

	(void)state;
	assert_true(put_u16(&out, 0x0102));
	assert_true(put_u32(&out, 0x03040506));
	assert_true(put_u64(&out, 0x0708090a0b0c0d0e));
	assert_true(put_bytes(&out, "x", 1));
	assert_int_equal(put_left(&out), 0);
	assert_memory_equal(bytes, expected, sizeof(expected));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_lies_as_documented),
		cmocka_unit_test(header_holds_its_rules),
		cmocka_unit_test(a_stream_learns_the_length_from_eight_bytes),
		cmocka_unit_test(messages_of_one_send_are_told_apart_by_their_lengths),
		cmocka_unit_test(a_stream_of_another_protocol_is_told_from_its_first_bytes),
		cmocka_unit_test(types_have_names_and_replies_follow_their_requests),
		cmocka_unit_test(every_status_has_a_name_a_text_and_an_errno),
		cmocka_unit_test(unknown_statuses_are_protocol_errors),
		cmocka_unit_test(short_reads_move_nothing),
		cmocka_unit_test(short_writes_move_nothing),
		cmocka_unit_test(numbers_are_written_little_endian),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
