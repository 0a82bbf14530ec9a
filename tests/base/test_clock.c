#include "base/clock.h"

#include "base/cmocka_all.h"

static void the_clock_never_goes_back(void **state)
{
	uint64_t last_ns = clock_now_ns(), first_ns = last_ns;

	(void)state;
	/* Until it has moved, which nanoseconds do soon: a clock in coarser units would be found by the count. */
	for (unsigned reads = 0; reads < 100000; reads++) {
		uint64_t now_ns = clock_now_ns();

		assert_true(now_ns >= last_ns);
		last_ns = now_ns;
	}
	assert_true(last_ns - first_ns > 1000);
}

static void the_wall_clock_is_in_this_century(void **state)
{
	uint64_t year_2020_s = UINT64_C(1577836800), year_2100_s = UINT64_C(4102444800);

	(void)state;
	assert_true(clock_wall_ns() > year_2020_s * KVR_SECOND);
	assert_true(clock_wall_ns() < year_2100_s * KVR_SECOND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_clock_never_goes_back),
		cmocka_unit_test(the_wall_clock_is_in_this_century),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
