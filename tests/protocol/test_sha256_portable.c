/* The SHA-256 in plain C gives what the linked one gives. Its source is compiled in here under other names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "protocol/sha256.h"

bool portable_sha256(
	const void *first, size_t first_length, const void *second, size_t second_length, uint8_t digest[32]);
bool portable_sha256_equal(const uint8_t *a, const uint8_t *b);

#undef KVRAIL_HAVE_OPENSSL
#define sha256 portable_sha256
#define sha256_equal portable_sha256_equal
#include "protocol/sha256_portable.c"
#undef sha256
#undef sha256_equal

static void all_lengths_around_the_block_boundaries_agree(void **state)
{
	uint8_t text[400], ours[32], other[32];

	(void)state;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(i * i + 3);
	for (size_t length = 0; length <= sizeof(text); length++) {
		size_t cut = length * 2 / 3;

		assert_true(portable_sha256(text, cut, text + cut, length - cut, ours));
		assert_true(sha256(text, length, NULL, 0, other));
		assert_memory_equal(ours, other, sizeof(ours));
	}
}

static void a_long_text_agrees(void **state)
{
	size_t length = 1 << 20;
	uint8_t *text = calloc(1, length);
	uint8_t ours[32], other[32];

	(void)state;
	assert_non_null(text);
	text[length - 1] = 1;
	assert_true(portable_sha256(NULL, 0, text, length, ours));
	assert_true(sha256(text, 7, text + 7, length - 7, other));
	assert_memory_equal(ours, other, sizeof(ours));
	free(text);
}

static void the_result_may_replace_its_own_input(void **state)
{
	uint8_t block[64] = { 1, 2, 3 }, mac[32] = { 4, 5, 6 }, expected[32];

	(void)state;
	assert_true(sha256(block, sizeof(block), mac, sizeof(mac), expected));
	assert_true(portable_sha256(block, sizeof(block), mac, sizeof(mac), mac));
	assert_memory_equal(mac, expected, sizeof(mac));
}

static void equality_looks_at_every_bit(void **state)
{
	uint8_t a[32] = { 0 }, b[32] = { 0 };

	(void)state;
	assert_true(portable_sha256_equal(a, b));
	for (int bit = 0; bit < 256; bit++) {
		b[bit / 8] = (uint8_t)(1u << bit % 8);
		assert_false(portable_sha256_equal(a, b));
		b[bit / 8] = 0;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_lengths_around_the_block_boundaries_agree),
		cmocka_unit_test(a_long_text_agrees),
		cmocka_unit_test(the_result_may_replace_its_own_input),
		cmocka_unit_test(equality_looks_at_every_bit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
