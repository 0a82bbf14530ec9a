/* What holds for every message alike, shown on each of the golden ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "protocol/golden.h"

#define OFFSET_LENGTH 4
#define OFFSET_TYPE 8
#define OFFSET_FIXED_LENGTH 10
#define OFFSET_FLAGS 12
#define OFFSET_STATUS 14

/* Decodes, and demands an error that names a place inside the message when it fails. */
static int decode(const struct golden *golden, enum any_kind kind, union any_message *message)
{
	struct wire_error error = { .what = NULL };
	int result = any_decode(kind, golden->bytes, golden->length, message, &error);

	if (result == 0)
		return 0;
	assert_int_equal(result, -EBADMSG);
	assert_non_null(error.what);
	assert_false(status_has_body(error.status));
	assert_true(error.offset <= golden->length);
	return result;
}

/* decode, encode: the same bytes as `like`. */
static void assert_round_trip(const struct golden *golden, const struct golden *like)
{
	union any_message message;
	uint8_t *bytes = malloc(like->length);

	assert_non_null(bytes);
	assert_int_equal(decode(golden, golden->kind, &message), 0);
	assert_int_equal(any_encode(golden->kind, bytes, like->length, &message), like->length);
	assert_memory_equal(bytes, like->bytes, like->length);
	free(bytes);
}

static void for_all(void (*check)(const char *name))
{
	for (size_t i = 0; golden_names[i]; i++)
		check(golden_names[i]);
}

static void check_round_trip(const char *name)
{
	struct golden golden;

	golden_load(&golden, name);
	assert_int_equal(golden.header.length, golden.length);
	assert_round_trip(&golden, &golden);
	golden_free(&golden);
}

static void golden_bytes_decode_and_encode_to_themselves(void **state)
{
	(void)state;
	for_all(check_round_trip);
}

static void check_size(const char *name)
{
	union any_message message;
	struct golden golden;
	size_t size;

	golden_load(&golden, name);
	assert_int_equal(decode(&golden, golden.kind, &message), 0);
	size = any_size(golden.kind, &message);
	if (size)
		assert_int_equal(size, golden.length);
	golden_free(&golden);
}

static void size_foretells_the_length(void **state)
{
	(void)state;
	for_all(check_size);
}

static void check_truncation(const char *name)
{
	union any_message message;
	struct golden whole;

	golden_load(&whole, name);
	for (size_t length = 0; length < whole.length; length++) {
		struct golden cut;

		golden_load(&cut, name);
		golden_cut(&cut, length);
		assert_int_equal(decode(&cut, cut.kind, &message), -EBADMSG);
		/* The same with a header that claims no more than there is. */
		if (length >= WIRE_HEADER_BYTES) {
			golden_patch(&cut, OFFSET_LENGTH, 4, length);
			assert_int_equal(decode(&cut, cut.kind, &message), -EBADMSG);
		}
		golden_free(&cut);
	}
	golden_free(&whole);
}

static void every_truncation_is_refused(void **state)
{
	(void)state;
	for_all(check_truncation);
}

static void check_longer_fixed_part(const char *name)
{
	struct golden golden, newer;

	golden_load(&golden, name);
	golden_load(&newer, name);
	golden_insert(&newer, golden.header.fixed_length, 12);
	golden_patch(&newer, OFFSET_LENGTH, 4, golden.length + 12);
	golden_patch(&newer, OFFSET_FIXED_LENGTH, 2, golden.header.fixed_length + 12u);
	assert_round_trip(&newer, &golden);
	golden_free(&newer);
	golden_free(&golden);
}

static void longer_fixed_part_of_a_newer_peer_is_skipped(void **state)
{
	(void)state;
	for_all(check_longer_fixed_part);
}

static void check_trailing_bytes(const char *name)
{
	struct golden golden, newer;

	golden_load(&golden, name);
	golden_load(&newer, name);
	/* Inside the message: fields of a newer peer. */
	golden_insert(&newer, golden.length, 13);
	golden_patch(&newer, OFFSET_LENGTH, 4, golden.length + 13);
	assert_round_trip(&newer, &golden);
	/* Behind the message: whatever the receive buffer holds. */
	golden_patch(&newer, OFFSET_LENGTH, 4, golden.length);
	assert_round_trip(&newer, &golden);
	golden_free(&newer);
	golden_free(&golden);
}

static void bytes_behind_the_known_ones_are_ignored(void **state)
{
	(void)state;
	for_all(check_trailing_bytes);
}

static void refuse_patched(const char *name, uint32_t offset, uint32_t width, uint64_t value)
{
	union any_message message;
	struct golden golden;

	golden_load(&golden, name);
	golden_patch(&golden, offset, width, value);
	assert_int_equal(decode(&golden, golden.kind, &message), -EBADMSG);
	golden_free(&golden);
}

static void check_header(const char *name)
{
	struct golden golden;

	golden_load(&golden, name);
	for (uint32_t i = 0; i < 4; i++)
		refuse_patched(name, i, 1, golden.bytes[i] ^ 0x20u);
	refuse_patched(name, OFFSET_LENGTH, 4, 0);
	refuse_patched(name, OFFSET_LENGTH, 4, WIRE_HEADER_BYTES - 1);
	refuse_patched(name, OFFSET_LENGTH, 4, golden.length + 1);
	refuse_patched(name, OFFSET_LENGTH, 4, WIRE_MESSAGE_BYTES_MAX + 1);
	refuse_patched(name, OFFSET_LENGTH, 4, UINT32_MAX);
	refuse_patched(name, OFFSET_FIXED_LENGTH, 2, 0);
	refuse_patched(name, OFFSET_FIXED_LENGTH, 2, golden.header.fixed_length - 1u);
	refuse_patched(name, OFFSET_FIXED_LENGTH, 2, golden.length + 1);
	refuse_patched(name, OFFSET_FIXED_LENGTH, 2, UINT16_MAX);
	golden_free(&golden);
}

static void wrong_magic_and_lengths_are_refused(void **state)
{
	(void)state;
	for_all(check_header);
}

static void check_other_decoders(const char *name)
{
	union any_message message;
	struct golden golden;

	golden_load(&golden, name);
	for (int kind = 0; kind < ANY_COUNT; kind++)
		if (kind != (int)golden.kind)
			assert_int_equal(decode(&golden, (enum any_kind)kind, &message), -EBADMSG);
	golden_free(&golden);
}

static void no_decoder_takes_a_message_of_another_kind(void **state)
{
	(void)state;
	for_all(check_other_decoders);
}

/* Those of a transfer come with fields of their own. */
static uint16_t known_flags(const struct wire_header *header)
{
	if (header->type == WIRE_LOOKUP)
		return LOOKUP_NO_WAIT | LOOKUP_NO_LOCK;
	if (header->type == WIRE_RETRIEVE && header->flags)
		return TRANSFER_LAYERS | TRANSFER_AFTER;
	if (header->type == WIRE_STORE && header->flags)
		return TRANSFER_AFTER;
	return header->type == WIRE_QUERY ? QUERY_EARLY : 0;
}

static void check_flags(const char *name)
{
	union any_message message;

	for (uint32_t bit = 0; bit < 16; bit++) {
		uint16_t flag = (uint16_t)(1u << bit);
		struct golden golden;
		bool refused;

		golden_load(&golden, name);
		refused = any_is_request(golden.kind) && !(known_flags(&golden.header) & flag);
		golden_patch(&golden, OFFSET_FLAGS, 2, flag);
		assert_int_equal(decode(&golden, golden.kind, &message), refused ? -EBADMSG : 0);
		if (!refused)
			assert_int_equal(message.header.flags, flag);
		golden_free(&golden);
	}
}

static void unknown_flags_are_refused_in_requests_and_ignored_in_replies(void **state)
{
	(void)state;
	for_all(check_flags);
}

static void check_status(const char *name)
{
	struct golden golden;

	golden_load(&golden, name);
	if (golden.kind == ANY_error_reply) {
		refuse_patched(name, OFFSET_STATUS, 2, STATUS_OK);
		refuse_patched(name, OFFSET_STATUS, 2, STATUS_PARTIAL);
		refuse_patched(name, OFFSET_STATUS, 2, STATUS_PENDING);
	} else {
		refuse_patched(name, OFFSET_STATUS, 2, STATUS_MALFORMED);
		refuse_patched(name, OFFSET_STATUS, 2, STATUS_INTERNAL);
		refuse_patched(name, OFFSET_STATUS, 2, UINT16_MAX);
	}
	if (any_is_request(golden.kind))
		refuse_patched(name, OFFSET_STATUS, 2, STATUS_PARTIAL);
	golden_free(&golden);
}

static void status_decides_between_body_and_error_text(void **state)
{
	(void)state;
	for_all(check_status);
}

static void check_small_buffers(const char *name)
{
	union any_message message;
	struct golden golden;

	golden_load(&golden, name);
	assert_int_equal(decode(&golden, golden.kind, &message), 0);
	for (size_t capacity = 0; capacity < golden.length; capacity++) {
		uint8_t *bytes = malloc(capacity + 1);

		assert_non_null(bytes);
		bytes[capacity] = 0xa5;
		assert_int_equal(any_encode(golden.kind, bytes, capacity, &message), -EMSGSIZE);
		assert_int_equal(bytes[capacity], 0xa5);
		free(bytes);
	}
	golden_free(&golden);
}

static void encode_refuses_every_buffer_that_is_too_small(void **state)
{
	(void)state;
	for_all(check_small_buffers);
}

static void check_wrong_header_in_encode(const char *name)
{
	union any_message message;
	struct golden golden;
	uint8_t bytes[4096];

	golden_load(&golden, name);
	assert_int_equal(decode(&golden, golden.kind, &message), 0);
	message.header.status = golden.kind == ANY_error_reply ? STATUS_OK : STATUS_BUSY;
	assert_int_equal(any_encode(golden.kind, bytes, sizeof(bytes), &message), -EINVAL);
	message.header.status = golden.header.status;
	message.header.flags = 0x8000;
	assert_int_equal(any_encode(golden.kind, bytes, sizeof(bytes), &message),
		any_is_request(golden.kind) ? -EINVAL : (int)golden.length);
	golden_free(&golden);
}

static void encode_refuses_a_status_or_flag_that_decode_would(void **state)
{
	(void)state;
	for_all(check_wrong_header_in_encode);
}

static void check_odd_address(const char *name)
{
	union any_message message, moved_message;
	struct golden golden, moved;

	golden_load(&golden, name);
	moved.bytes = malloc(golden.length + 1);
	assert_non_null(moved.bytes);
	memcpy(moved.bytes + 1, golden.bytes, golden.length);
	moved.length = golden.length;
	moved.bytes++;
	assert_int_equal(decode(&golden, golden.kind, &message), 0);
	assert_int_equal(decode(&moved, golden.kind, &moved_message), 0);
	assert_int_equal(any_touch(golden.kind, &message), any_touch(golden.kind, &moved_message));
	free(moved.bytes - 1);
	golden_free(&golden);
}

static void a_message_may_lie_at_any_address(void **state)
{
	(void)state;
	for_all(check_odd_address);
}

/* Whatever one changed byte makes of a message: it is refused, or understood and written again the same. */
static void check_changed_bytes(const char *name)
{
	static const uint8_t changes[] = { 0x01, 0x02, 0x80, 0xff };
	uint8_t again[4096];

	for (size_t i = 0;; i++) {
		struct golden golden;

		golden_load(&golden, name);
		if (i == golden.length * KVR_COUNT_OF(changes)) {
			golden_free(&golden);
			break;
		}
		golden.bytes[i / KVR_COUNT_OF(changes)] ^= changes[i % KVR_COUNT_OF(changes)];
		for (int kind = 0; kind < ANY_COUNT; kind++) {
			union any_message first, second;
			struct wire_error error;
			ssize_t length;

			if (decode(&golden, (enum any_kind)kind, &first))
				continue;
			length = any_encode((enum any_kind)kind, again, sizeof(again), &first);
			assert_true(length > 0);
			assert_int_equal(any_decode((enum any_kind)kind, again, (size_t)length, &second, &error), 0);
			assert_int_equal(
				any_touch((enum any_kind)kind, &first), any_touch((enum any_kind)kind, &second));
		}
		golden_free(&golden);
	}
}

static void one_changed_byte_never_confuses_a_decoder(void **state)
{
	(void)state;
	for_all(check_changed_bytes);
}

static void every_codec_has_a_golden_message(void **state)
{
	bool seen[ANY_COUNT] = { false };

	(void)state;
	for (size_t i = 0; golden_names[i]; i++) {
		struct golden golden;

		golden_load(&golden, golden_names[i]);
		seen[golden.kind] = true;
		golden_free(&golden);
	}
	for (int kind = 0; kind < ANY_COUNT; kind++)
		assert_true(seen[kind]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_codec_has_a_golden_message),
		cmocka_unit_test(golden_bytes_decode_and_encode_to_themselves),
		cmocka_unit_test(size_foretells_the_length),
		cmocka_unit_test(every_truncation_is_refused),
		cmocka_unit_test(longer_fixed_part_of_a_newer_peer_is_skipped),
		cmocka_unit_test(bytes_behind_the_known_ones_are_ignored),
		cmocka_unit_test(wrong_magic_and_lengths_are_refused),
		cmocka_unit_test(no_decoder_takes_a_message_of_another_kind),
		cmocka_unit_test(unknown_flags_are_refused_in_requests_and_ignored_in_replies),
		cmocka_unit_test(status_decides_between_body_and_error_text),
		cmocka_unit_test(encode_refuses_every_buffer_that_is_too_small),
		cmocka_unit_test(encode_refuses_a_status_or_flag_that_decode_would),
		cmocka_unit_test(a_message_may_lie_at_any_address),
		cmocka_unit_test(one_changed_byte_never_confuses_a_decoder),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
