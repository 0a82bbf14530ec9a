/*
 * The server's GPUs over the fake library, stepped by the test: lists of copies and their ends, memory of clients.
 */
#include <errno.h>

#include "base/fault.h"
#include "gpu/gpus_rig.h"

static void pieces_of_any_size_and_place_are_copied_both_ways(void **state)
{
	static const uint32_t sizes[] = { 1, 3, 4, 16, 132, 4095, 4096, 4097, 32768, 65535, 65536 };
	struct rig rig;

	(void)state;
	open_rig(&rig, true);
	for (uint64_t i = 0; i < HOST_BYTES; i++)
		rig.host[i] = (uint8_t)(i * 7 + i / 251);
	for (uint32_t i = 0; i < KVR_COUNT_OF(sizes); i++)
		put(&rig, i * 70000 + i, i * 80000 + 3 * i, sizes[i], true);
	assert_true(finish(&rig));
	for (uint32_t i = 0; i < KVR_COUNT_OF(sizes); i++) {
		assert_memory_equal(device_bytes(&rig) + i * 80000 + 3 * i, rig.host + i * 70000 + i, sizes[i]);
		assert_int_equal(device_bytes(&rig)[i * 80000 + 3 * i + sizes[i]], 0);
		put(&rig, (uint64_t)(4 << 20) + i * 66000, i * 80000 + 3 * i, sizes[i], false);
	}
	assert_true(finish(&rig));
	for (uint32_t i = 0; i < KVR_COUNT_OF(sizes); i++)
		assert_memory_equal(rig.host + (4 << 20) + i * 66000, rig.host + i * 70000 + i, sizes[i]);
	assert_true(rig.progressed > 0);
	close_rig(&rig);
}

static void what_waits_goes_as_one_launch(void **state)
{
	struct gpu_status status;
	struct rig rig;

	(void)state;
	open_rig(&rig, false);
	for (uint32_t i = 0; i < 100; i++)
		put(&rig, i * 4096, (99 - i) * 4096, 4096, true);
	assert_true(finish(&rig));
	gpus_status(rig.gpus, 0, &status);
	assert_int_equal(status.counters.launches_total, 1);
	assert_int_equal(status.counters.pieces_total, 100);
	assert_int_equal(status.counters.to_device_bytes_total, 100 * 4096);
	assert_int_equal(status.counters.engine_copies_total, 0);
	close_rig(&rig);
}

static unsigned bulk_launches(const struct rig *rig)
{
	return rig->control->calls("kvrail_copy_bulk");
}

static void put_scattered(struct rig *rig, uint32_t count, uint32_t bytes)
{
	for (uint32_t i = 0; i < count; i++)
		put(rig, (uint64_t)i * bytes, (uint64_t)(count - 1 - i) * bytes, bytes, true);
}

static void bulk_copies_are_for_lists_without_odd_pieces(void **state)
{
	struct gpu_status status;
	struct rig rig;
	unsigned before;

	(void)state;
	open_rig(&rig, true);
	before = bulk_launches(&rig);
	put_scattered(&rig, 8, 4096 + 16);
	assert_true(finish(&rig));
	assert_int_equal(bulk_launches(&rig), before + 1);
	put_scattered(&rig, 8, 4096);
	put(&rig, 40000, 40008, 16, true);
	assert_true(finish(&rig));
	put_scattered(&rig, 8, 4096 + 4);
	assert_true(finish(&rig));
	assert_int_equal(bulk_launches(&rig), before + 1);
	gpus_status(rig.gpus, 0, &status);
	assert_int_equal(status.counters.launches_total, 3);
	close_rig(&rig);
}

static void without_bulk_copies_the_other_kernel_does_everything(void **state)
{
	struct rig rig;
	unsigned before;

	(void)state;
	for (unsigned why = 0; why < 2; why++) {
		open_rig(&rig, true);
		close_rig(&rig); /* the library stays */
		if (why == 0)
			setenv("FAKE_CUDA_OLD", "1", 1);
		else
			rig.control->refuse("cuFuncSetAttribute", GPU_INVALID_VALUE, 1);
		open_rig(&rig, true);
		unsetenv("FAKE_CUDA_OLD");
		before = bulk_launches(&rig);
		memset(rig.host, 0x11 + (int)why, 32 * 4096);
		put_scattered(&rig, 32, 4096);
		assert_true(finish(&rig));
		assert_int_equal(device_bytes(&rig)[32 * 4096 - 1], 0x11 + why);
		assert_int_equal(bulk_launches(&rig), before);
		close_rig(&rig);
	}
}

static void a_launch_leaves_some_for_the_next(void **state)
{
	struct gpu_status status;
	struct rig rig;

	(void)state;
	open_rig(&rig, true);
	put_scattered(&rig, 100, GPU_PIECE_BYTES_MAX); /* 6.25 MiB */
	assert_true(finish(&rig));
	gpus_status(rig.gpus, 0, &status);
	assert_int_equal(status.counters.launches_total, 2);
	assert_int_equal(status.counters.to_device_bytes_total, 100 * GPU_PIECE_BYTES_MAX);
	close_rig(&rig);
}

static void large_contiguous_pieces_and_few_go_by_the_copy_engine(void **state)
{
	struct gpu_status status;
	struct rig rig;

	(void)state;
	open_rig(&rig, false);
	memset(rig.host, 0x3c, 4 << 20);
	/* 2 MiB without a gap, cut by the lane's piece size; then scattered ones behind it */
	for (uint32_t i = 0; i < 32; i++)
		put(&rig, i * GPU_PIECE_BYTES_MAX, i * GPU_PIECE_BYTES_MAX, GPU_PIECE_BYTES_MAX, true);
	for (uint32_t i = 0; i < 8; i++)
		put(&rig, (3 << 20) + i * 4096, (3 << 20) + i * 8192, 4096, true);
	assert_true(finish(&rig));
	assert_int_equal(device_bytes(&rig)[(2 << 20) - 1], 0x3c);
	assert_int_equal(device_bytes(&rig)[(3 << 20) + 7 * 8192], 0x3c);
	gpus_status(rig.gpus, 0, &status);
	assert_int_equal(status.counters.engine_copies_total, 1);
	assert_int_equal(status.counters.launches_total, 1);
	put(&rig, 0, 4 << 20, 32768, true);
	assert_true(finish(&rig));
	gpus_status(rig.gpus, 0, &status);
	assert_int_equal(status.counters.engine_copies_total, 2);
	assert_int_equal(status.counters.launches_total, 1);
	close_rig(&rig);
}

static void host_memory_that_is_not_registered_is_refused_before_a_gpu_sees_it(void **state)
{
	uint8_t stranger[64] = { 0 };
	struct rig rig;

	(void)state;
	open_rig(&rig, false);
	assert_int_equal(gpu_lane_put(rig.lane[1], (uintptr_t)stranger, rig.device, 64), -EFAULT);
	assert_int_equal(gpu_lane_put(rig.lane[1], (uintptr_t)rig.host + HOST_BYTES - 63, rig.device, 64), -EFAULT);
	assert_int_equal(gpu_lane_put(rig.lane[0], (uintptr_t)rig.host - 1, rig.device, 64), -EFAULT);
	put(&rig, HOST_BYTES - 64, 0, 64, true);
	assert_true(finish(&rig));
	close_rig(&rig);
}

static void a_lane_that_is_full_says_so_and_goes_on(void **state)
{
	struct rig rig;
	bool failed;

	(void)state;
	open_rig(&rig, true);
	rig.control->hold(true);
	for (uint32_t i = 0; i < GPU_LANE_PIECES; i++)
		put(&rig, i * 64, i * 64, 64, true);
	assert_int_equal(gpu_lane_put(rig.lane[1], (uintptr_t)rig.host, rig.device, 64), -EAGAIN);
	gpu_lane_publish(rig.lane[1]);
	for (unsigned i = 0; i < 20; i++)
		gpus_step(rig.gpus, 1);
	assert_int_equal(lane_done(&rig, 1, &failed), 0);
	assert_false(failed);
	rig.control->hold(false);
	assert_true(finish(&rig));
	put(&rig, 0, 0, 64, true);
	assert_true(finish(&rig));
	close_rig(&rig);
}

static void memory_of_a_client_is_mapped_and_forgotten(void **state)
{
	struct gpu_region first, second;
	struct gpu_export description;
	struct rig rig;

	(void)state;
	open_rig(&rig, false);
	export_device(&rig, &description);
	assert_int_equal(
		gpus_import(rig.gpus, description.handle, GPU_EXPORT_BYTES, description.offset, 8192, &first), 0);
	/* two regions of one allocation */
	assert_int_equal(gpus_import(rig.gpus, description.handle, GPU_EXPORT_BYTES, 0, 4096, &second), 0);
	assert_int_equal(first.address - first.mapped, 4096);
	assert_int_equal(gpu_lane_put(rig.lane[1], (uintptr_t)rig.host, first.address, 64), 0);
	rig.posted[1]++;
	rig.host[63] = 0x77;
	assert_true(finish(&rig));
	assert_int_equal(device_bytes(&rig)[4096 + 63], 0x77);
	gpus_forget(rig.gpus, &first);
	assert_int_equal(rig.control->mapped(), 1);
	gpus_forget(rig.gpus, &second);
	assert_int_equal(rig.control->mapped(), 0);
	close_rig(&rig);
}

static void handles_that_lie_are_refused(void **state)
{
	struct gpu_export description;
	struct gpu_region region;
	struct gpu_status status;
	struct rig rig;

	(void)state;
	open_rig(&rig, false);
	export_device(&rig, &description);
	assert_int_equal(gpus_import(rig.gpus, description.handle, GPU_EXPORT_BYTES - 1, 0, 64, &region), -EBADMSG);
	assert_int_equal(
		gpus_import(rig.gpus, description.handle, GPU_EXPORT_BYTES, 0, DEVICE_BYTES + 1, &region), -EFAULT);
	assert_int_equal(
		gpus_import(rig.gpus, description.handle, GPU_EXPORT_BYTES, DEVICE_BYTES, 1, &region), -EFAULT);
	assert_int_equal(gpus_import(rig.gpus, description.handle, GPU_EXPORT_BYTES, UINT64_MAX, 2, &region), -EFAULT);
	description.handle[3] ^= 1; /* another GPU: pitfalls L08 */
	assert_int_equal(gpus_import(rig.gpus, description.handle, GPU_EXPORT_BYTES, 0, 64, &region), -ENODEV);
	description.handle[3] ^= 1;
	rig.control->refuse("cuIpcOpenMemHandle_v2", 2, 1);
	assert_int_equal(gpus_import(rig.gpus, description.handle, GPU_EXPORT_BYTES, 0, 64, &region), -EOPNOTSUPP);
	assert_int_equal(rig.control->mapped(), 0);
	gpus_status(rig.gpus, 0, &status);
	assert_int_equal(status.regions, 0);
	assert_int_equal(status.counters.import_failures_total, 4);
	assert_false(status.failed);
	close_rig(&rig);
}

static void memory_that_can_not_be_shared_says_what_to_do(void **state)
{
	struct gpu_export description;
	char reason[300] = "";
	struct rig rig;

	(void)state;
	open_rig(&rig, false);
	assert_false(gpu_is_device(&rig.driver, (uintptr_t)rig.host));
	assert_true(gpu_is_device(&rig.driver, rig.device + 5));
	assert_int_equal(
		gpu_export_region(&rig.driver, rig.device + 4096, DEVICE_BYTES, &description, reason, sizeof(reason)),
		-EFAULT);
	assert_non_null(strstr(reason, "not in one GPU allocation"));
	rig.control->refuse("cuIpcGetMemHandle", 1, 1);
	assert_int_equal(
		gpu_export_region(&rig.driver, rig.device, 64, &description, reason, sizeof(reason)), -EOPNOTSUPP);
	assert_non_null(strstr(reason, "expandable_segments"));
	close_rig(&rig);
}

static void a_lane_without_memory_is_refused(void **state)
{
	struct gpu_lane *lane;
	struct rig rig;

	(void)state;
	open_rig(&rig, true);
	fault_arm_name("gpu_lane/object", 1);
	assert_int_equal(gpu_lane_open(rig.gpus, 0, true, NULL, NULL, &lane), -ENOMEM);
	fault_arm(0);
	rig.control->refuse("cuMemHostAlloc", 2, 1);
	assert_int_equal(gpu_lane_open(rig.gpus, 0, true, NULL, NULL, &lane), -ENOMEM);
	put(&rig, 0, 0, 64, true);
	assert_true(finish(&rig));
	close_rig(&rig);
}

static void every_resource_may_be_missing_at_the_start(void **state)
{
	struct gpus_options options = { .threads = true };
	struct gpu_driver driver;
	struct gpus *gpus;
	char reason[200];
	uint64_t points;

	(void)state;
	assert_int_equal(gpu_driver_load(KVRAIL_FAKE_CUDA, &driver, reason, sizeof(reason)), 0);
	options.driver = &driver;
	fault_arm(0);
	assert_int_equal(gpus_open(&options, &gpus, reason, sizeof(reason)), 0);
	points = fault_count();
	gpus_close(&gpus);
	assert_true(points >= 3);
	for (uint64_t nth = 1; nth <= points; nth++) {
		reason[0] = '\0';
		fault_arm(nth);
		assert_int_equal(gpus_open(&options, &gpus, reason, sizeof(reason)), -ENOMEM);
		fault_arm(0);
		assert_null(gpus);
		assert_true(reason[0] != '\0');
	}
	gpu_driver_unload(&driver);
}

/* Errors of the library while a GPU is made ready: that GPU is left out, with words. */
static void a_gpu_that_can_not_be_made_ready_is_left_out(void **state)
{
	static const char *const symbols[] = { "cuDeviceGet", "cuDeviceGetUuid_v2", "cuDevicePrimaryCtxRetain",
		"cuModuleLoadData", "cuMemHostAlloc", "cuMemAlloc_v2", "cuMemsetD8_v2", "cuStreamCreateWithPriority" };
	struct gpus_options options = { .threads = false };
	fake_cuda_control_fn function;
	struct gpu_driver driver;
	struct gpus *gpus;
	char reason[200];
	void *symbol;

	(void)state;
	assert_int_equal(gpu_driver_load(KVRAIL_FAKE_CUDA, &driver, reason, sizeof(reason)), 0);
	symbol = dlsym(driver.library, "fake_cuda_control");
	memcpy(&function, &symbol, sizeof(function));
	options.driver = &driver;
	for (size_t i = 0; i < KVR_COUNT_OF(symbols); i++) {
		function()->refuse(symbols[i], 2, 1);
		assert_int_equal(gpus_open(&options, &gpus, reason, sizeof(reason)), -ENODEV);
		assert_non_null(strstr(reason, "FAKE_OUT_OF_MEMORY"));
		assert_null(gpus);
	}
	gpu_driver_unload(&driver);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_of_any_size_and_place_are_copied_both_ways),
		cmocka_unit_test(what_waits_goes_as_one_launch),
		cmocka_unit_test(bulk_copies_are_for_lists_without_odd_pieces),
		cmocka_unit_test(without_bulk_copies_the_other_kernel_does_everything),
		cmocka_unit_test(a_launch_leaves_some_for_the_next),
		cmocka_unit_test(large_contiguous_pieces_and_few_go_by_the_copy_engine),
		cmocka_unit_test(host_memory_that_is_not_registered_is_refused_before_a_gpu_sees_it),
		cmocka_unit_test(a_lane_that_is_full_says_so_and_goes_on),
		cmocka_unit_test(memory_of_a_client_is_mapped_and_forgotten),
		cmocka_unit_test(handles_that_lie_are_refused),
		cmocka_unit_test(memory_that_can_not_be_shared_says_what_to_do),
		cmocka_unit_test(a_lane_without_memory_is_refused),
		cmocka_unit_test(every_resource_may_be_missing_at_the_start),
		cmocka_unit_test(a_gpu_that_can_not_be_made_ready_is_left_out),
	};

	return cmocka_run_group_tests(tests, quiet, NULL);
}
