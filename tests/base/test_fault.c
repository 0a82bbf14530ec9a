#include "base/compiler.h"
#include "base/fault.h"
#include "base/pool.h"
#include "base/ring.h"

#include <errno.h>

#include "base/cmocka_all.h"

#ifdef KVRAIL_FAULT_POINTS

static int disarm(void **state)
{
	(void)state;
	fault_arm(0);
	return 0;
}

static void nothing_fails_while_nothing_is_armed_and_the_points_are_counted(void **state)
{
	(void)state;
	fault_arm(0);
	for (int i = 0; i < 5; i++)
		assert_false(fault_point("test/a"));
	assert_int_equal(fault_count(), 5);
	assert_null(fault_fired());
}

static void the_nth_point_fails_once(void **state)
{
	(void)state;
	fault_arm(3);
	assert_false(fault_point("test/a"));
	assert_false(fault_point("test/b"));
	assert_null(fault_fired());
	assert_true(fault_point("test/c"));
	assert_string_equal(fault_fired(), "test/c");
	assert_false(fault_point("test/c"));
	assert_int_equal(fault_count(), 4);
	fault_arm(1);
	assert_null(fault_fired());
	assert_int_equal(fault_count(), 0);
	assert_true(fault_point("test/a"));
}

static void a_named_arm_counts_and_fails_only_that_name(void **state)
{
	(void)state;
	fault_arm_name("test/b", 2);
	assert_false(fault_point("test/a"));
	assert_false(fault_point("test/b"));
	assert_false(fault_point("test/a"));
	assert_true(fault_point("test/b"));
	assert_string_equal(fault_fired(), "test/b");
	assert_int_equal(fault_count(), 2);
}

/* The n-th failure sweep over the two memory owners of this floor: each failure is reported, and nothing stays
 * behind. */
static void every_failing_allocation_of_pool_and_ring_is_reported(void **state)
{
	uint64_t n;

	(void)state;
	for (n = 1;; n++) {
		struct pool pool;
		struct ring ring;
		int pool_error, ring_error;

		fault_arm(n);
		pool_error = pool_init(&pool, 64, 10);
		ring_error = ring_init(&ring, 16);
		assert_int_equal(pool_error ? 1 : 0, fault_fired() && fault_fired()[0] == 'p');
		assert_int_equal(ring_error ? 1 : 0, fault_fired() && fault_fired()[0] == 'r');
		if (pool_error)
			assert_int_equal(pool_error, -ENOMEM);
		if (ring_error)
			assert_int_equal(ring_error, -ENOMEM);
		pool_fini(&pool);
		ring_fini(&ring);
		if (!fault_fired())
			break;
	}
	assert_int_equal(n, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(nothing_fails_while_nothing_is_armed_and_the_points_are_counted, disarm),
		cmocka_unit_test_teardown(the_nth_point_fails_once, disarm),
		cmocka_unit_test_teardown(a_named_arm_counts_and_fails_only_that_name, disarm),
		cmocka_unit_test_teardown(every_failing_allocation_of_pool_and_ring_is_reported, disarm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void without_fault_points_nothing_fails(void **state)
{
	(void)state;
	assert_false(fault_point("test/a"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(without_fault_points_nothing_fails) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
