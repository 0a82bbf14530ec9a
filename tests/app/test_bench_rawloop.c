/* The ceilings below the server: the bare verbs loop on the local driver, and the machine's own latency. */
#include "app/kvrail-bench/rawloop.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "app/kvrail-bench/bare.h"
#include "base/clock.h"
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

static void the_machines_own_latency_is_measured_and_the_thread_ends(void **state)
{
	struct bare *bare = calloc(1, sizeof(*bare));

	(void)state;
	assert_non_null(bare);
	bare_init(bare);
	assert_true(bare_gap_percent(bare) == 0 && bare_gap_rate(bare) == 0);
	/* The other thread may get no core in time on a busy machine, so nothing but gaps is certain. */
	for (unsigned i = 0; i < 3; i++)
		bare_measure(bare, 0);
	assert_int_equal(bare->exchange.count, 0);
	assert_true(bare->spun_ns >= 30 * KVR_MS);
	assert_true(bare_gap_percent(bare) >= 0 && bare_gap_percent(bare) <= 100);
	if (bare->gaps.count)
		assert_true(bare->gaps.min > BARE_GAP_NS);
	bare_measure(bare, 10 * KVR_US);
	if (bare->exchange.count)
		assert_true(bare->exchange.max > bare->line.min);
	free(bare);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_loop_moves_pages_both_ways_on_the_local_driver),
		cmocka_unit_test(other_drivers_and_missing_devices_are_no_ceiling),
		cmocka_unit_test(the_machines_own_latency_is_measured_and_the_thread_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
