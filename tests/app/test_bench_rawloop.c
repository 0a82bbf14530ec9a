/* The ceilings below the server: the bare verbs loop on the local driver, and a cache line between two threads. */
#include "app/kvrail-bench/rawloop.h"

#include <errno.h>
#include <stddef.h>

#include "base/cmocka_all.h"
#include "base/log.h"

static void the_loop_moves_pages_both_ways_on_the_local_driver(void **state)
{
	const struct rawloop_options options = { .driver = "local", .page_bytes = 4096, .working_set = 1u << 20 };
	struct rawloop *loop = NULL;

	(void)state;
	assert_int_equal(rawloop_open(&options, &loop), 0);
	assert_true(rawloop_gbps(loop, true) == 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(rawloop_measure(loop), 0);
	assert_true(rawloop_gbps(loop, true) > 0);
	assert_true(rawloop_gbps(loop, false) > 0);
	rawloop_close(loop);
}

static void other_drivers_and_missing_devices_are_no_ceiling(void **state)
{
	struct rawloop_options options = { .driver = "sim", .page_bytes = 4096, .working_set = 1u << 20 };
	struct rawloop *loop = NULL;

	(void)state;
	log_set_level(LOG_ERROR);
	assert_int_equal(rawloop_open(&options, &loop), -EOPNOTSUPP);
	options.driver = "nic";
	options.device = "there is no device of this name";
	assert_true(rawloop_open(&options, &loop) < 0);
	assert_null(loop);
	rawloop_close(NULL);
}

static void a_cache_line_takes_some_time_and_the_thread_ends(void **state)
{
	(void)state;
	/* 0: its thread had no core in time, which may be on a busy machine. */
	for (unsigned i = 0; i < 3; i++)
		assert_true(rawloop_line_ns() >= 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_loop_moves_pages_both_ways_on_the_local_driver),
		cmocka_unit_test(other_drivers_and_missing_devices_are_no_ceiling),
		cmocka_unit_test(a_cache_line_takes_some_time_and_the_thread_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
