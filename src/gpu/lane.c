/* lane.c - the poll core's side of a lane, and lanes made and unmade. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "gpu/gpu_private.h"

/* Whether the GPU may touch that host memory. A client may have made the server ask for memory that is not L1. */
static inline bool is_registered(const struct gpus *gpus, uint64_t host, uint32_t bytes)
{
	uint32_t count = kvr_load_acquire(&gpus->area_count);

	for (uint32_t i = 0; i < count; i++) {
		uint64_t length = kvr_load_acquire(&gpus->areas[i].bytes);

		if (bytes <= length && host - gpus->areas[i].address <= length - bytes)
			return true;
	}
	return false;
}

int gpu_lane_put(struct gpu_lane *lane, uint64_t host, gpu_address device, uint32_t bytes)
{
	struct gpu_piece *piece = &lane->ring[lane->put & (GPU_LANE_PIECES - 1)];

	if (KVR_UNLIKELY(lane->put - lane->done_copy >= GPU_LANE_PIECES)) {
		/* pairs with the store-release of the submit thread */
		lane->done_copy = kvr_load_acquire(&lane->done);
		if (lane->put - lane->done_copy >= GPU_LANE_PIECES)
			return -EAGAIN;
	}
	if (KVR_UNLIKELY(!is_registered(lane->gpu->gpus, host, bytes)))
		return -EFAULT;
	piece->to = lane->to_device ? device : host;
	piece->from = lane->to_device ? host : device;
	piece->bytes = bytes;
	lane->put++;
	return 0;
}

void gpu_lane_publish(struct gpu_lane *lane)
{
	if (lane->published == lane->put)
		return;
	/* pairs with the load-acquire of the submit thread */
	kvr_store_release(&lane->published, lane->put);
	kvr_fence_full();
	if (KVR_UNLIKELY(kvr_load_relaxed(&lane->gpu->sleeping)))
		gpu_submit_wake(lane->gpu);
}

uint64_t gpu_lane_done(struct gpu_lane *lane, uint64_t *failed_below)
{
	/* The failure is stored before the position that it explains. */
	uint64_t done = kvr_load_acquire(&lane->done);

	*failed_below = kvr_load_relaxed(&lane->failed_below);
	return done;
}

static struct gpu_lane *new_lane(struct gpus *gpus, struct gpu *gpu)
{
	struct gpu_lane *lane = fault_point("gpu_lane/object") ? NULL : aligned_alloc(KVR_CACHE_LINE, sizeof(*lane));
	gpu_context context;
	void *ring = NULL;
	int code;

	if (!lane)
		return NULL;
	memset(lane, 0, sizeof(*lane));
	lane->gpu = gpu;
	code = gpus->driver.context_push(gpu->context);
	if (code == GPU_DONE) {
		code = gpus->driver.host_alloc(
			&ring, GPU_LANE_PIECES * sizeof(struct gpu_piece), GPU_HOST_PORTABLE | GPU_HOST_MAPPED);
		(void)gpus->driver.context_pop(&context);
	}
	if (code != GPU_DONE) {
		char text[128];

		log_error("gpu %u: pinned memory for copy lists: %s", gpu->index,
			gpu_driver_error(&gpus->driver, code, text, sizeof(text)));
		free(lane);
		return NULL;
	}
	lane->ring = ring;
	return lane;
}

static void free_lane(struct gpus *gpus, struct gpu_lane *lane)
{
	gpu_context context;

	if (gpus->driver.context_push(lane->gpu->context) == GPU_DONE) {
		(void)gpus->driver.host_free(lane->ring);
		(void)gpus->driver.context_pop(&context);
	}
	free(lane);
}

int gpu_lane_open(struct gpus *gpus, uint32_t index, bool to_device, void (*progress)(void *argument), void *argument,
	struct gpu_lane **out)
{
	struct gpu *gpu = gpus->gpu[index];
	struct gpu_lane *lane;
	uint32_t place = 0;

	if (kvr_load_acquire(&gpu->failed))
		return -ENODEV;
	lane = new_lane(gpus, gpu);
	if (!lane)
		return -ENOMEM;
	lane->to_device = to_device;
	lane->progress = progress;
	lane->argument = argument;
	pthread_mutex_lock(&gpus->lock);
	while (place < GPU_LANES_MAX && kvr_load_acquire(&gpu->lanes[place]))
		place++;
	if (place < GPU_LANES_MAX) {
		kvr_store_release(&gpu->lanes[place], lane);
		if (place >= gpu->lane_count)
			kvr_store_release(&gpu->lane_count, place + 1);
	}
	pthread_mutex_unlock(&gpus->lock);
	if (place == GPU_LANES_MAX) {
		free_lane(gpus, lane);
		return -ENOSPC;
	}
	*out = lane;
	return 0;
}

void gpu_lane_close(struct gpus *gpus, struct gpu_lane **pointer)
{
	struct gpu_lane *lane = *pointer;

	*pointer = NULL;
	if (!lane)
		return;
	kvr_store_release(&lane->closing, 1);
	gpu_submit_wake(lane->gpu);
	/* The submit thread takes it off its list when nothing of it is under way. */
	while (!kvr_load_acquire(&lane->closed)) {
		if (!gpus->options.threads)
			(void)gpus_step(gpus, clock_now_ns());
		else
			sched_yield();
	}
	free_lane(gpus, lane);
}
