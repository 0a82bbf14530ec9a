/* gpus_rig.h - the server's GPUs over the fake library, stepped by the test, with a lane each way. Everything asserts. */
#ifndef KVRAIL_TESTS_GPU_GPUS_RIG_H
#define KVRAIL_TESTS_GPU_GPUS_RIG_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "base/log.h"
#include "fake_cuda/fake_cuda.h"
#include "gpu/gpu.h"

#define HOST_BYTES ((uint64_t)8 << 20)
#define DEVICE_BYTES ((uint64_t)8 << 20)

struct rig {
	struct gpu_driver driver; /* the engine's */
	const struct fake_cuda_control *control;
	struct gpus *gpus;
	struct gpu_lane *lane[2]; /* from, to the GPU */
	uint8_t *host;
	gpu_address device;
	uint64_t posted[2];
	unsigned progressed;
};

static inline void progress(void *argument)
{
	((struct rig *)argument)->progressed++;
}

static inline void open_rig(struct rig *rig, bool no_engine)
{
	struct gpus_options options;
	fake_cuda_control_fn function;
	gpu_context context;
	char reason[200] = "";
	void *symbol;

	memset(rig, 0, sizeof(*rig));
	assert_int_equal(gpu_driver_load(KVRAIL_FAKE_CUDA, &rig->driver, reason, sizeof(reason)), 0);
	symbol = dlsym(rig->driver.library, "fake_cuda_control");
	assert_non_null(symbol);
	memcpy(&function, &symbol, sizeof(function));
	rig->control = function();
	memset(&options, 0, sizeof(options));
	options.driver = &rig->driver;
	options.no_engine = no_engine;
	assert_int_equal(gpus_open(&options, &rig->gpus, reason, sizeof(reason)), 0);
	rig->host = mmap(NULL, HOST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(rig->host != MAP_FAILED);
	assert_int_equal(gpus_register_host(rig->gpus, rig->host, HOST_BYTES), 0);
	for (int up = 0; up < 2; up++)
		assert_int_equal(gpu_lane_open(rig->gpus, 0, up == 1, progress, rig, &rig->lane[up]), 0);
	assert_int_equal(rig->driver.context_retain(&context, 0), 0);
	assert_int_equal(rig->driver.context_set(context), 0);
	assert_int_equal(rig->driver.memory_alloc(&rig->device, DEVICE_BYTES), 0);
}

static inline void close_rig(struct rig *rig)
{
	gpu_lane_close(rig->gpus, &rig->lane[0]);
	gpu_lane_close(rig->gpus, &rig->lane[1]);
	gpus_close(&rig->gpus);
	rig->control->break_context(0);
	assert_int_equal(rig->driver.memory_free(rig->device), 0);
	munmap(rig->host, HOST_BYTES);
	gpu_driver_unload(&rig->driver);
}

static inline uint8_t *device_bytes(const struct rig *rig)
{
	return (uint8_t *)(uintptr_t)rig->device;
}

static inline void put(struct rig *rig, uint64_t host_offset, uint64_t device_offset, uint32_t bytes, bool up)
{
	assert_int_equal(
		gpu_lane_put(rig->lane[up], (uintptr_t)rig->host + host_offset, rig->device + device_offset, bytes), 0);
	rig->posted[up]++;
}

/* *failed: some copies ended with an error so far. */
static inline uint64_t lane_done(struct rig *rig, int up, bool *failed)
{
	uint64_t below = 0;
	uint64_t done = gpu_lane_done(rig->lane[up], &below);

	*failed = below > 0;
	return done;
}

/* Steps until all that was put has ended. */
static inline bool finish(struct rig *rig)
{
	bool lost = false;

	for (int up = 0; up < 2; up++) {
		bool failed = false;

		gpu_lane_publish(rig->lane[up]);
		while (lane_done(rig, up, &failed) < rig->posted[up])
			gpus_step(rig->gpus, clock_now_ns());
		lost |= failed;
	}
	return !lost;
}

/* The GPU's own memory that a client exported, in another process; here the fake is told to allow the same one. */
static inline void export_device(struct rig *rig, struct gpu_export *description)
{
	char reason[300] = "";

	setenv("FAKE_CUDA_SAME_PROCESS", "1", 1);
	assert_int_equal(
		gpu_export_region(&rig->driver, rig->device + 4096, 8192, description, reason, sizeof(reason)), 0);
	assert_int_equal(description->offset, 4096);
}

static inline int quiet(void **state)
{
	(void)state;
	log_set_level(LOG_ERROR);
	return 0;
}

#endif
