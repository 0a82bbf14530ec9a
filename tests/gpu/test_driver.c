/* The table of the GPU's library: loaded whole, or not at all with the reason. */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "base/fault.h"
#include "fake_cuda/fake_cuda.h"
#include "gpu/driver.h"

static const struct fake_cuda_control *control_of(const struct gpu_driver *driver)
{
	fake_cuda_control_fn function;
	void *symbol = dlsym(driver->library, "fake_cuda_control");

	assert_non_null(symbol);
	memcpy(&function, &symbol, sizeof(function));
	return function();
}

static void a_machine_without_the_library_is_a_normal_one(void **state)
{
	struct gpu_driver driver;
	char reason[200] = "";

	(void)state;
	assert_int_equal(gpu_driver_load("libno-such-thing.so.1", &driver, reason, sizeof(reason)), -ENOENT);
	assert_non_null(strstr(reason, "libno-such-thing"));
	assert_null(driver.library);
	assert_null(driver.launch);
	fault_arm_name("gpu_driver/open", 1);
	assert_int_equal(gpu_driver_load(KVRAIL_FAKE_CUDA, &driver, reason, sizeof(reason)), -ENOENT);
	fault_arm(0);
	gpu_driver_unload(&driver);
}

static void a_library_without_all_functions_is_not_used(void **state)
{
	struct gpu_driver driver;
	char reason[200] = "";

	(void)state;
	fault_arm_name("gpu_driver/symbol", 7);
	assert_int_equal(gpu_driver_load(KVRAIL_FAKE_CUDA, &driver, reason, sizeof(reason)), -ENOSYS);
	fault_arm(0);
	assert_non_null(strstr(reason, "update the driver"));
	assert_null(driver.library);
	assert_null(driver.init);
}

static void a_library_that_can_not_start_says_why(void **state)
{
	const struct fake_cuda_control *control;
	struct gpu_driver first, driver;
	char reason[200] = "";

	(void)state;
	assert_int_equal(gpu_driver_load(KVRAIL_FAKE_CUDA, &first, reason, sizeof(reason)), 0);
	control = control_of(&first);
	control->refuse("cuInit", 2, 1);
	assert_int_equal(gpu_driver_load(KVRAIL_FAKE_CUDA, &driver, reason, sizeof(reason)), -ENODEV);
	assert_non_null(strstr(reason, "FAKE_OUT_OF_MEMORY"));
	assert_null(driver.library);
	gpu_driver_unload(&first);
}

static void a_process_joins_a_library_that_it_uses_already(void **state)
{
	struct gpu_driver driver, joined;
	char reason[200];
	unsigned started;

	(void)state;
	assert_int_equal(gpu_driver_join("libno-such-thing.so.1", &joined, reason, sizeof(reason)), -ENOENT);
	assert_int_equal(gpu_driver_load(KVRAIL_FAKE_CUDA, &driver, reason, sizeof(reason)), 0);
	started = control_of(&driver)->calls("cuInit");
	assert_int_equal(gpu_driver_join(KVRAIL_FAKE_CUDA, &joined, reason, sizeof(reason)), 0);
	assert_int_equal(control_of(&driver)->calls("cuInit"), started);
	assert_non_null(joined.ipc_close);
	gpu_driver_unload(&joined);
	assert_null(joined.ipc_close);
	gpu_driver_unload(&driver);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_machine_without_the_library_is_a_normal_one),
		cmocka_unit_test(a_library_without_all_functions_is_not_used),
		cmocka_unit_test(a_library_that_can_not_start_says_why),
		cmocka_unit_test(a_process_joins_a_library_that_it_uses_already),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
