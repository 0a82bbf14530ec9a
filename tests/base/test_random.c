#include "base/random.h"

#include <string.h>

#include "base/cmocka_all.h"

/* xoshiro256** from the state {1, 2, 3, 4}, as its authors' reference program prints it. */
static void the_generator_gives_the_reference_sequence(void **state)
{
	static const uint64_t expected[] = { 11520, 0, 1509978240, 1215971899390074240, 1216172134540287360,
		607988272756665600, UINT64_C(16172922978634559625), 8476171486693032832, UINT64_C(10595114339597558777),
		2904607092377533576 };
	struct random random = { { 1, 2, 3, 4 } };

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(expected); i++)
		assert_int_equal(random_next(&random), expected[i]);
}

/* The first outputs of splitmix64 for seed 0 are known numbers. */
static void a_seed_is_spread_by_splitmix64(void **state)
{
	struct random random;

	(void)state;
	random_init(&random, 0);
	assert_int_equal(random.state[0], UINT64_C(0xe220a8397b1dcdaf));
	assert_int_equal(random.state[1], UINT64_C(0x6e789e6aa1b965f4));
	assert_int_equal(random.state[2], UINT64_C(0x06c45d188009454f));
	assert_int_equal(random.state[3], UINT64_C(0xf88bb8a8724c81ec));
}

static void one_seed_is_one_sequence_and_another_is_another(void **state)
{
	struct random a, b, c;
	unsigned equal = 0;

	(void)state;
	random_init(&a, 42);
	random_init(&b, 42);
	random_init(&c, 43);
	for (int i = 0; i < 1000; i++) {
		uint64_t value = random_next(&a);

		assert_int_equal(value, random_next(&b));
		equal += value == random_next(&c);
	}
	assert_int_equal(equal, 0);
}

static void numbers_below_a_bound_reach_every_value_about_equally_often(void **state)
{
	unsigned seen[7] = { 0 };
	struct random random;

	(void)state;
	random_init(&random, 0);
	for (int i = 0; i < 70000; i++) {
		uint64_t value = random_below(&random, 7);

		assert_true(value < 7);
		seen[value]++;
	}
	/* Ten standard deviations of a fair die thrown so often. */
	for (size_t i = 0; i < KVR_COUNT_OF(seen); i++)
		assert_in_range(seen[i], 9070, 10930);
	assert_int_equal(random_below(&random, 1), 0);
	/* Bounds above 2^32 are not cut. */
	assert_true((random_below(&random, UINT64_MAX) | random_below(&random, UINT64_MAX)) > UINT32_MAX);
}

static void chance_is_the_share_that_was_asked_for(void **state)
{
	struct random random;
	unsigned yes = 0;

	(void)state;
	random_init(&random, 9);
	for (int i = 0; i < 40000; i++) {
		yes += random_chance(&random, 1, 4);
		assert_false(random_chance(&random, 0, 5));
		assert_true(random_chance(&random, 5, 5));
	}
	assert_in_range(yes, 9130, 10870);
}

static void secrets_fill_the_whole_buffer_and_differ(void **state)
{
	unsigned char a[300], b[300];
	size_t zeros = 0;

	(void)state;
	memset(a, 0, sizeof(a));
	memset(b, 0, sizeof(b));
	assert_int_equal(random_secret(a, sizeof(a)), 0);
	assert_int_equal(random_secret(b, sizeof(b) - 1), 0);
	assert_memory_not_equal(a, b, sizeof(b) - 1);
	assert_int_equal(b[sizeof(b) - 1], 0);
	for (size_t i = 0; i < sizeof(a); i++)
		zeros += a[i] == 0;
	assert_true(zeros < 50);
	assert_int_equal(random_secret(a, 0), 0);
}

/* A bijection has no two inputs of one output; the low bits of neighbours look unrelated. */
static void the_mix_separates_neighbours(void **state)
{
	bool seen[1024] = { false };
	unsigned slots = 0;

	(void)state;
	for (uint64_t i = 0; i < 1024; i++) {
		uint64_t slot = random_mix(i + 1) % 1024;

		slots += !seen[slot];
		seen[slot] = true;
	}
	/* 1024 balls into as many boxes leave about 647 of them hit; a counter would hit all, a bad mix few. */
	assert_in_range(slots, 560, 730);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_generator_gives_the_reference_sequence),
		cmocka_unit_test(a_seed_is_spread_by_splitmix64),
		cmocka_unit_test(one_seed_is_one_sequence_and_another_is_another),
		cmocka_unit_test(numbers_below_a_bound_reach_every_value_about_equally_often),
		cmocka_unit_test(chance_is_the_share_that_was_asked_for),
		cmocka_unit_test(secrets_fill_the_whole_buffer_and_differ),
		cmocka_unit_test(the_mix_separates_neighbours),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
