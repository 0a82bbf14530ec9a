/* Launches that the library refuses end what they were to copy, and nothing else; a context that is dead ends everything. */
#include <errno.h>

#include "base/fault.h"
#include "gpu/gpus_rig.h"

static void a_lost_gpu_ends_what_is_under_way_and_all_that_comes(void **state)
{
	struct gpu_export description;
	struct gpu_region region;
	struct gpu_status status;
	struct gpu_lane *other;
	struct rig rig;

	(void)state;
	open_rig(&rig, true);
	export_device(&rig, &description);
	assert_int_equal(gpus_lost(rig.gpus), 0);
	rig.control->hold(true);
	for (uint32_t i = 0; i < 64; i++)
		put(&rig, i * 4096, i * 4096, 4096, true);
	gpu_lane_publish(rig.lane[1]);
	gpus_step(rig.gpus, 1);
	put(&rig, 0, 0, 4096, true);
	rig.control->break_context(719);
	rig.control->hold(false);
	assert_false(finish(&rig));
	gpus_status(rig.gpus, 0, &status);
	assert_true(status.failed);
	assert_non_null(strstr(status.failure, "(719)"));
	assert_int_equal(status.counters.failures_total, 1);
	put(&rig, 0, 0, 4096, true);
	assert_false(finish(&rig));
	assert_int_equal(gpus_lost(rig.gpus), 1);
	assert_int_equal(gpus_import(rig.gpus, description.handle, GPU_EXPORT_BYTES, 0, 64, &region), -ENOTRECOVERABLE);
	assert_int_equal(gpu_lane_open(rig.gpus, 0, true, NULL, NULL, &other), -ENODEV);
	gpus_status(rig.gpus, 0, &status);
	assert_int_equal(status.counters.failures_total, 1);
	close_rig(&rig);
}

/* However often it is stepped, nothing of that lane is said to have ended. */
static void expect_nothing_ends(struct rig *rig, int up, bool is_lost)
{
	struct gpu_status status;
	bool failed;

	for (uint32_t i = 0; i < 100; i++) {
		gpus_step(rig->gpus, clock_now_ns());
		assert_int_equal(lane_done(rig, up, &failed), 0);
		assert_false(failed);
	}
	gpus_status(rig->gpus, 0, &status);
	assert_int_equal(status.failed, is_lost);
}

/* Nothing ends any more, and the library says why only when it is asked. */
static void a_gpu_that_falls_silent_is_asked_after_a_while(void **state)
{
	struct gpu_status status;
	struct rig rig;

	(void)state;
	open_rig(&rig, true);
	rig.control->hold(true);
	put(&rig, 0, 0, 4096, true);
	gpu_lane_publish(rig.lane[1]);
	gpus_step(rig.gpus, 1);
	fault_arm_name("gpu_submit/look", 1);
	gpus_step(rig.gpus, 2);
	gpus_status(rig.gpus, 0, &status);
	assert_false(status.failed);
	gpus_step(rig.gpus, clock_now_ns());
	fault_arm(0);
	gpus_status(rig.gpus, 0, &status);
	assert_non_null(strstr(status.failure, "copies did not end"));
	expect_nothing_ends(&rig, 1, true);
	rig.control->hold(false);
	assert_false(finish(&rig));
	close_rig(&rig);
}

/* Memory is given back when nobody writes to it any more, and in order, not when an error says that something went wrong. */
static void what_is_refused_ends_behind_what_runs_and_ends_alone(void **state)
{
	struct gpu_status status;
	struct rig rig;
	uint64_t below = 0;

	(void)state;
	open_rig(&rig, true);
	memset(rig.host, 0x11, 2 * 4096);
	memset((void *)(uintptr_t)rig.device, 0x22, DEVICE_BYTES);
	rig.control->hold(true);
	for (uint32_t i = 0; i < 64; i++)
		put(&rig, i * 4096, i * 4096, 4096, false);
	gpu_lane_publish(rig.lane[0]);
	gpus_step(rig.gpus, clock_now_ns());
	rig.control->refuse("cuLaunchKernel", GPU_INVALID_VALUE, 1);
	for (uint32_t i = 0; i < 64; i++)
		put(&rig, (64 + 2 * i) * 4096, i * 4096, 4096, false);
	gpu_lane_publish(rig.lane[0]);
	for (uint32_t i = 0; i < 100; i++) {
		gpus_step(rig.gpus, clock_now_ns());
		assert_int_equal(gpu_lane_done(rig.lane[0], &below), 0);
		assert_int_equal(below, 0);
	}
	assert_int_equal(rig.host[0], 0x11);
	rig.control->hold(false);
	while (gpu_lane_done(rig.lane[0], &below) < 128)
		gpus_step(rig.gpus, clock_now_ns());
	assert_int_equal(below, 128);
	assert_int_equal(rig.host[0], 0x22);
	/* What comes then is no part of it. */
	put(&rig, 0, 4096, 4096, false);
	assert_false(finish(&rig));
	assert_int_equal(gpu_lane_done(rig.lane[0], &below), 129);
	assert_int_equal(below, 128);
	gpus_status(rig.gpus, 0, &status);
	assert_false(status.failed);
	assert_int_equal(status.counters.refusals_total, 1);
	assert_int_equal(status.counters.failed_pieces_total, 64);
	assert_int_equal(status.counters.pieces_total, 65);
	close_rig(&rig);
}

static void a_launch_without_memory_is_tried_again(void **state)
{
	struct gpu_status status;
	struct rig rig;

	(void)state;
	open_rig(&rig, true);
	memset(rig.host, 0x5c, 4096);
	rig.control->refuse("cuLaunchKernel", GPU_OUT_OF_MEMORY, 3);
	put(&rig, 0, 0, 4096, true);
	assert_true(finish(&rig));
	assert_int_equal(device_bytes(&rig)[4095], 0x5c);
	gpus_status(rig.gpus, 0, &status);
	assert_int_equal(status.counters.refusals_total, 3);
	assert_int_equal(status.counters.launches_total, 1);
	assert_int_equal(status.counters.failed_pieces_total, 0);
	close_rig(&rig);
}

#define STEP_NS UINT64_C(1000000)

/* Time is the test's here. Whether its copies ended well. */
static bool finish_at(struct rig *rig, uint64_t *now_ns)
{
	uint64_t below = 0;

	gpu_lane_publish(rig->lane[1]);
	while (gpu_lane_done(rig->lane[1], &below) < rig->posted[1]) {
		gpus_step(rig->gpus, *now_ns);
		*now_ns += STEP_NS;
	}
	return below < rig->posted[1];
}

static void a_launch_without_memory_for_long_fails_and_the_gpu_goes_on(void **state)
{
	uint64_t now_ns = STEP_NS, since;
	struct gpu_status status;
	struct rig rig;
	bool failed;

	(void)state;
	open_rig(&rig, true);
	rig.control->refuse("cuLaunchKernel", 701, 1u << 30);
	put(&rig, 0, 0, 4096, true);
	gpu_lane_publish(rig.lane[1]);
	while (now_ns < 190 * STEP_NS) {
		gpus_step(rig.gpus, now_ns);
		now_ns += STEP_NS;
	}
	assert_int_equal(lane_done(&rig, 1, &failed), 0);
	assert_false(finish_at(&rig, &now_ns));
	assert_true(now_ns < 220 * STEP_NS);
	/* While it goes on there is no more waiting. */
	since = now_ns;
	put(&rig, 0, 0, 4096, true);
	assert_false(finish_at(&rig, &now_ns));
	assert_true(now_ns - since < 5 * STEP_NS);
	rig.control->refuse("cuLaunchKernel", 0, 0);
	put(&rig, 0, 0, 4096, true);
	assert_true(finish_at(&rig, &now_ns));
	gpus_status(rig.gpus, 0, &status);
	assert_false(status.failed);
	assert_int_equal(status.counters.failed_pieces_total, 2);
	close_rig(&rig);
}

static void a_flag_that_is_refused_is_asked_for_and_a_copy_goes_by_the_kernel(void **state)
{
	struct gpu_status status;
	struct rig rig;

	(void)state;
	open_rig(&rig, false);
	memset(rig.host, 0x6d, 4096);
	rig.control->refuse("cuStreamWriteValue32_v2", GPU_OUT_OF_MEMORY, 1);
	rig.control->hold(true);
	put(&rig, 0, 0, 4096, true);
	gpu_lane_publish(rig.lane[1]);
	expect_nothing_ends(&rig, 1, false);
	rig.control->hold(false);
	assert_true(finish(&rig));
	assert_int_equal(device_bytes(&rig)[0], 0x6d);
	rig.control->refuse("cuMemcpyHtoDAsync_v2", GPU_OUT_OF_MEMORY, 1);
	put(&rig, 0, 4096, 4096, true);
	assert_true(finish(&rig));
	assert_int_equal(device_bytes(&rig)[4096], 0x6d);
	gpus_status(rig.gpus, 0, &status);
	assert_int_equal(status.counters.engine_copies_total, 1);
	assert_int_equal(status.counters.launches_total, 1);
	assert_int_equal(status.counters.refusals_total, 2);
	close_rig(&rig);
}

static void a_list_that_can_not_be_read_loses_the_gpu(void **state)
{
	struct gpu_status status;
	struct rig rig;

	(void)state;
	open_rig(&rig, true);
	memset(rig.host, 0x7e, 4096);
	fault_arm_name("gpu_submit/list", 1);
	put(&rig, 0, 0, 4096, true);
	assert_false(finish(&rig));
	fault_arm(0);
	assert_int_equal(device_bytes(&rig)[0], 0);
	gpus_status(rig.gpus, 0, &status);
	assert_non_null(strstr(status.failure, "FAKE_ILLEGAL_ADDRESS"));
	close_rig(&rig);
}

static void a_launch_into_a_dead_context_loses_the_gpu(void **state)
{
	struct gpu_status status;
	struct rig rig;

	(void)state;
	for (unsigned engine = 0; engine < 2; engine++) {
		open_rig(&rig, engine == 0);
		rig.control->break_context(719);
		put(&rig, 0, 0, 4096, true);
		assert_false(finish(&rig));
		gpus_status(rig.gpus, 0, &status);
		assert_true(status.failed);
		assert_non_null(strstr(status.failure, engine ? "a copy was refused" : "could not be launched"));
		assert_non_null(strstr(status.failure, "(719)"));
		close_rig(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lost_gpu_ends_what_is_under_way_and_all_that_comes),
		cmocka_unit_test(a_gpu_that_falls_silent_is_asked_after_a_while),
		cmocka_unit_test(what_is_refused_ends_behind_what_runs_and_ends_alone),
		cmocka_unit_test(a_launch_without_memory_is_tried_again),
		cmocka_unit_test(a_launch_without_memory_for_long_fails_and_the_gpu_goes_on),
		cmocka_unit_test(a_flag_that_is_refused_is_asked_for_and_a_copy_goes_by_the_kernel),
		cmocka_unit_test(a_list_that_can_not_be_read_loses_the_gpu),
		cmocka_unit_test(a_launch_into_a_dead_context_loses_the_gpu),
	};

	return cmocka_run_group_tests(tests, quiet, NULL);
}
