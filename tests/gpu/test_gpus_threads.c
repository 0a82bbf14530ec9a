/* The submit thread with a poll core before it: nothing lost, nothing early, sleeping and waking, and one that blocks hinders nobody. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "base/log.h"
#include "fake_cuda/fake_cuda.h"
#include "gpu/gpu.h"

#define BYTES ((uint64_t)4 << 20)
#define PAGE 4096u

struct rig {
	struct gpu_driver driver;
	const struct fake_cuda_control *control;
	struct gpus *gpus;
	uint8_t *host;
	gpu_address device;
	char pci[24]; /* of the GPU whose thread has begun */
};

static void begin(void *context, const char *pci)
{
	struct rig *rig = context;

	snprintf(rig->pci, sizeof(rig->pci), "%s", pci);
}

static void open_rig(struct rig *rig, uint64_t spin_ns)
{
	struct gpus_options options;
	fake_cuda_control_fn function;
	gpu_context context;
	char reason[200] = "";
	void *symbol;

	setenv("FAKE_CUDA_SAME_PROCESS", "1", 1);
	memset(rig, 0, sizeof(*rig));
	assert_int_equal(gpu_driver_load(KVRAIL_FAKE_CUDA, &rig->driver, reason, sizeof(reason)), 0);
	symbol = dlsym(rig->driver.library, "fake_cuda_control");
	memcpy(&function, &symbol, sizeof(function));
	rig->control = function();
	memset(&options, 0, sizeof(options));
	options.driver = &rig->driver;
	options.threads = true;
	options.begin = begin;
	options.begin_context = rig;
	options.spin_ns = spin_ns;
	assert_int_equal(gpus_open(&options, &rig->gpus, reason, sizeof(reason)), 0);
	rig->host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(gpus_register_host(rig->gpus, rig->host, BYTES), 0);
	assert_int_equal(rig->driver.context_retain(&context, 0), 0);
	assert_int_equal(rig->driver.context_set(context), 0);
	assert_int_equal(rig->driver.memory_alloc(&rig->device, BYTES), 0);
}

static void close_rig(struct rig *rig)
{
	gpus_close(&rig->gpus);
	assert_int_equal(rig->driver.memory_free(rig->device), 0);
	munmap(rig->host, BYTES);
	gpu_driver_unload(&rig->driver);
}

/* Up, then down to another place; every byte is looked at as soon as its position is done. */
static void copy_round(struct rig *rig, struct gpu_lane *lanes[2], uint64_t posted[2], uint32_t round)
{
	uint32_t count = BYTES / PAGE / 2;
	uint64_t failed;

	for (uint32_t up = 2; up-- > 0;) {
		uint64_t first = posted[up];

		for (uint32_t i = 0; i < count; i++) {
			uint8_t *host = rig->host + (up ? i : i + count) * PAGE;

			memset(host, up ? (int)(round * 17 + i) : 0, PAGE);
			while (gpu_lane_put(lanes[up], (uintptr_t)host, rig->device + (i ^ 1u) * PAGE, PAGE)) {
				gpu_lane_publish(lanes[up]);
				sched_yield();
			}
			if (i % (1 + round % 40) == 0)
				gpu_lane_publish(lanes[up]);
		}
		posted[up] += count;
		gpu_lane_publish(lanes[up]);
		for (uint32_t i = 0; i < count; i++) {
			const uint8_t *there = up ? (uint8_t *)(uintptr_t)rig->device + (i ^ 1u) * PAGE
						  : rig->host + (i + count) * PAGE;

			while (gpu_lane_done(lanes[up], &failed) <= first + i)
				sched_yield();
			assert_int_equal(failed, 0);
			assert_int_equal(there[0], (uint8_t)(round * 17 + i));
			assert_int_equal(there[PAGE - 1], (uint8_t)(round * 17 + i));
		}
	}
}

static void run_rounds(uint64_t spin_ns, uint32_t rounds)
{
	struct gpu_lane *lanes[2];
	uint64_t posted[2] = { 0, 0 };
	struct rig rig;

	open_rig(&rig, spin_ns);
	for (uint32_t up = 0; up < 2; up++)
		assert_int_equal(gpu_lane_open(rig.gpus, 0, up == 1, NULL, NULL, &lanes[up]), 0);
	for (uint32_t round = 0; round < rounds; round++)
		copy_round(&rig, lanes, posted, round);
	assert_string_equal(rig.pci, "0001:1a:01.0");
	gpu_lane_close(rig.gpus, &lanes[0]);
	gpu_lane_close(rig.gpus, &lanes[1]);
	close_rig(&rig);
}

static void what_is_done_is_there(void **state)
{
	(void)state;
	run_rounds(0, 20);
}

/* It sleeps whenever it can: a wake-up that were lost would be waited for without end. */
static void a_thread_that_sleeps_is_woken(void **state)
{
	(void)state;
	run_rounds(1, 20);
}

struct forgetting {
	struct rig *rig;
	struct gpu_region region;
};

static void *forget(void *argument)
{
	struct forgetting *forgetting = argument;

	gpus_forget(forgetting->rig->gpus, &forgetting->region);
	return NULL;
}

/* pitfalls C01: while one client's memory can't be unmapped, another's is copied and mapped. */
static void unmapping_that_is_stuck_hinders_nobody(void **state)
{
	struct gpu_lane *lanes[2];
	uint64_t posted[2] = { 0, 0 };
	struct forgetting forgetting;
	struct gpu_export description;
	struct gpu_region other;
	char reason[200];
	pthread_t thread;
	struct rig rig;
	unsigned before;

	(void)state;
	open_rig(&rig, 0);
	for (uint32_t up = 0; up < 2; up++)
		assert_int_equal(gpu_lane_open(rig.gpus, 0, up == 1, NULL, NULL, &lanes[up]), 0);
	assert_int_equal(gpu_export_region(&rig.driver, rig.device, BYTES, &description, reason, sizeof(reason)), 0);
	forgetting.rig = &rig;
	assert_int_equal(gpus_import(rig.gpus, description.handle, GPU_EXPORT_BYTES, 0, BYTES, &forgetting.region), 0);
	rig.control->block("cuIpcCloseMemHandle", true);
	before = rig.control->calls("cuIpcCloseMemHandle");
	assert_int_equal(pthread_create(&thread, NULL, forget, &forgetting), 0);
	while (rig.control->calls("cuIpcCloseMemHandle") == before)
		sched_yield();
	copy_round(&rig, lanes, posted, 3);
	assert_int_equal(gpus_import(rig.gpus, description.handle, GPU_EXPORT_BYTES, 0, PAGE, &other), 0);
	rig.control->block("cuIpcCloseMemHandle", false);
	assert_int_equal(pthread_join(thread, NULL), 0);
	gpus_forget(rig.gpus, &other);
	gpu_lane_close(rig.gpus, &lanes[0]);
	gpu_lane_close(rig.gpus, &lanes[1]);
	close_rig(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_done_is_there),
		cmocka_unit_test(a_thread_that_sleeps_is_woken),
		cmocka_unit_test(unmapping_that_is_stuck_hinders_nobody),
	};

	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
