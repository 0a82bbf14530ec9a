#include "base/histogram.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"

#define SAMPLES 19997 /* no share of it is a whole number */

static const uint32_t shares[] = { 0, 1, 10000, 500000, 900000, 990000, 999000, 999900, 1000000 };

static int compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

/* The definition, on sorted samples: the smallest one at or below which this share lies. */
static uint64_t exact_percentile(const uint64_t *sorted, uint64_t count, uint64_t share)
{
	uint64_t rank = (count * share + 999999) / 1000000;

	return sorted[rank ? rank - 1 : 0];
}

static void assert_close(uint64_t reported, uint64_t exact)
{
	assert_true(reported >= exact);
	assert_true(reported - exact <= exact / 64);
}

static uint64_t sample(struct random *random, unsigned shape)
{
	switch (shape) {
	case 0: /* short and exact */
		return random_below(random, 64);
	case 1:
		return 1000 + random_below(random, 1000);
	case 2: /* every power of two alike */
		return random_next(random) >> (24 + random_below(random, 40));
	default: /* powers of two and their neighbours, where buckets change */
		return ((uint64_t)1 << random_below(random, 40)) + random_below(random, 3) - 1;
	}
}

static void percentiles_are_within_a_64th_of_those_of_the_sorted_samples(void **state)
{
	static uint64_t samples[SAMPLES];
	static struct histogram histogram;
	struct random random;

	(void)state;
	random_init(&random, 3);
	for (unsigned shape = 0; shape < 4; shape++) {
		uint64_t sum = 0;

		histogram_init(&histogram);
		for (unsigned i = 0; i < SAMPLES; i++) {
			samples[i] = sample(&random, shape);
			sum += samples[i];
			histogram_add(&histogram, samples[i]);
		}
		qsort(samples, SAMPLES, sizeof(samples[0]), compare);
		assert_int_equal(histogram.count, SAMPLES);
		assert_int_equal(histogram.sum, sum);
		assert_int_equal(histogram.min, samples[0]);
		assert_int_equal(histogram.max, samples[SAMPLES - 1]);
		for (size_t i = 0; i < KVR_COUNT_OF(shares); i++)
			assert_close(histogram_percentile(&histogram, shares[i]),
				exact_percentile(samples, SAMPLES, shares[i]));
		assert_int_equal(histogram_percentile(&histogram, 1000000), samples[SAMPLES - 1]);
	}
}

static void one_sample_is_every_percentile_exactly(void **state)
{
	static const uint64_t values[] = { 0, 1, 63, 64, 65, 127, 128, 1000003, (UINT64_C(1) << 40) - 1 };
	static struct histogram histogram;

	(void)state;
	for (size_t v = 0; v < KVR_COUNT_OF(values); v++) {
		histogram_init(&histogram);
		histogram_add(&histogram, values[v]);
		for (size_t i = 0; i < KVR_COUNT_OF(shares); i++)
			assert_int_equal(histogram_percentile(&histogram, shares[i]), values[v]);
		assert_int_equal(histogram.min, values[v]);
	}
}

static void without_samples_everything_is_zero(void **state)
{
	static struct histogram histogram, other;

	(void)state;
	histogram_init(&histogram);
	histogram_init(&other);
	histogram_merge(&histogram, &other);
	assert_int_equal(histogram_percentile(&histogram, 500000), 0);
	assert_int_equal(histogram.min, 0);
	assert_int_equal(histogram.max, 0);
}

static void values_that_are_too_large_are_counted_in_the_last_bucket(void **state)
{
	static struct histogram histogram;

	(void)state;
	histogram_init(&histogram);
	histogram_add(&histogram, 5);
	histogram_add(&histogram, UINT64_C(1) << 40);
	histogram_add(&histogram, UINT64_MAX / 2);
	assert_int_equal(histogram.count, 3);
	assert_int_equal(histogram.bucket[HISTOGRAM_BUCKETS - 1], 2);
	assert_int_equal(histogram_percentile(&histogram, 100000), 5);
	assert_int_equal(histogram_percentile(&histogram, 900000), UINT64_MAX / 2);
}

static void a_merged_histogram_is_that_of_all_samples(void **state)
{
	static struct histogram parts[3], merged, all;
	struct random random;

	(void)state;
	random_init(&random, 4);
	histogram_init(&merged);
	histogram_init(&all);
	for (unsigned p = 0; p < 3; p++) {
		histogram_init(&parts[p]);
		for (unsigned i = 0; i < 1000 * (2 - p); i++) {
			uint64_t value = 50 + sample(&random, 2 - p);

			histogram_add(&parts[p], value);
			histogram_add(&all, value);
		}
		histogram_merge(&merged, &parts[p]);
	}
	assert_memory_equal(&merged, &all, sizeof(all));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(percentiles_are_within_a_64th_of_those_of_the_sorted_samples),
		cmocka_unit_test(one_sample_is_every_percentile_exactly),
		cmocka_unit_test(without_samples_everything_is_zero),
		cmocka_unit_test(values_that_are_too_large_are_counted_in_the_last_bucket),
		cmocka_unit_test(a_merged_histogram_is_that_of_all_samples),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
