/* When the requests of an open loop are due, and which chain is asked for. */
#include "app/kvrail-bench/pacing.h"
#include "app/kvrail-bench/skew.h"

#include <math.h>

#include "base/clock.h"
#include "base/cmocka_all.h"

static void even_arrivals_keep_their_distance_and_begin_within_one(void **state)
{
	struct pacing pacing;
	uint64_t first, before;

	(void)state;
	pacing_init(&pacing, 1000, true, 7);
	pacing_start(&pacing, 5 * KVR_SECOND);
	first = before = pacing_due(&pacing);
	assert_true(first >= 5 * KVR_SECOND && first <= 5 * KVR_SECOND + KVR_MS);
	for (unsigned i = 0; i < 1000; i++) {
		pacing_advance(&pacing);
		assert_in_range(pacing_due(&pacing) - before, KVR_MS - 1, KVR_MS + 1);
		before = pacing_due(&pacing);
	}
	assert_in_range(before - first, KVR_SECOND - 2, KVR_SECOND + 2);
}

/* Exponential gaps: mean and standard deviation are both one gap, and a share of 1 - 1/e is shorter than it. */
static void poisson_arrivals_have_the_rate_and_the_spread(void **state)
{
	const unsigned count = 200000;
	double sum = 0, squares = 0, shorter = 0;
	struct pacing pacing;
	uint64_t before;

	(void)state;
	pacing_init(&pacing, 10000, false, 1);
	pacing_start(&pacing, KVR_SECOND);
	before = pacing_due(&pacing);
	for (unsigned i = 0; i < count; i++) {
		double gap;

		pacing_advance(&pacing);
		gap = (double)(pacing_due(&pacing) - before) / 100000;
		before = pacing_due(&pacing);
		sum += gap;
		squares += gap * gap;
		shorter += gap < 1;
	}
	assert_true(fabs(sum / count - 1) < 0.02);
	assert_true(fabs(sqrt(squares / count - 1) - 1) < 0.02);
	assert_true(fabs(shorter / count - 0.632) < 0.01);
}

static void requests_are_due_whatever_became_of_those_before(void **state)
{
	struct pacing late, early;

	(void)state;
	pacing_init(&late, 500, false, 3);
	pacing_init(&early, 500, false, 3);
	pacing_start(&late, 0);
	pacing_start(&early, 0);
	/* Nobody tells it the time: the same seed gives the same schedule. */
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(pacing_due(&late), pacing_due(&early));
		pacing_advance(&late);
		pacing_advance(&early);
	}
}

static void count_choices(double theta, uint32_t count, uint32_t *of)
{
	struct random random;
	struct skew skew;

	random_init(&random, 11);
	assert_int_equal(skew_init(&skew, count, theta), 0);
	for (unsigned i = 0; i < 100000; i++) {
		uint32_t at = skew_choose(&skew, &random);

		assert_in_range(at, 0, count - 1);
		of[at]++;
	}
	skew_fini(&skew);
}

static void without_skew_all_are_asked_for_alike(void **state)
{
	uint32_t of[10] = { 0 };

	(void)state;
	count_choices(0, 10, of);
	for (unsigned i = 0; i < 10; i++)
		assert_in_range(of[i], 9500, 10500);
}

static void with_skew_each_rank_has_its_share_of_zipfs_law(void **state)
{
	uint32_t of[4] = { 0 };

	(void)state;
	count_choices(1, 4, of); /* 1, 1/2, 1/3, 1/4 of 25/12 */
	assert_in_range(of[0], 47500, 48500);
	assert_in_range(of[1], 23500, 24500);
	assert_in_range(of[2], 15500, 16500);
	assert_in_range(of[3], 11500, 12500);
}

static void one_thing_is_always_the_one(void **state)
{
	uint32_t of[1] = { 0 };

	(void)state;
	count_choices(0.99, 1, of);
	assert_int_equal(of[0], 100000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(even_arrivals_keep_their_distance_and_begin_within_one),
		cmocka_unit_test(poisson_arrivals_have_the_rate_and_the_spread),
		cmocka_unit_test(requests_are_due_whatever_became_of_those_before),
		cmocka_unit_test(without_skew_all_are_asked_for_alike),
		cmocka_unit_test(with_skew_each_rank_has_its_share_of_zipfs_law),
		cmocka_unit_test(one_thing_is_always_the_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
