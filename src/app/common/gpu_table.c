#include "app/common/gpu_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/driver.h"

KVR_STATIC_ASSERT(GPU_COUNT_MAX <= VERBS_GPUS_MAX, "every GPU has a place in the driver's tables");

static int table_import(void *context, const struct verbs_remote_memory *memory, struct verbs_gpu_memory *imported)
{
	struct gpu_region *region = malloc(sizeof(*region));
	int error = -ENOMEM;

	if (!region)
		return error;
	error = gpus_import(context, memory->handle, memory->handle_length, memory->offset, memory->length, region);
	if (error) {
		free(region);
		return error;
	}
	imported->gpu = region->gpu;
	imported->address = region->address;
	imported->region = region;
	return 0;
}

static void table_forget(void *context, struct verbs_gpu_memory *imported)
{
	gpus_forget(context, imported->region);
	free(imported->region);
}

static int table_lane_open(
	void *context, uint32_t gpu, bool to_device, void (*progress)(void *argument), void *argument, void **lane)
{
	struct gpu_lane *opened = NULL;
	int error = gpu_lane_open(context, gpu, to_device, progress, argument, &opened);

	*lane = opened;
	return error;
}

static void table_lane_close(void *context, void *lane)
{
	struct gpu_lane *closing = lane;

	gpu_lane_close(context, &closing);
}

static int table_put(void *lane, uint64_t host, uint64_t device, uint32_t bytes)
{
	return gpu_lane_put(lane, host, device, bytes);
}

static void table_publish(void *lane)
{
	gpu_lane_publish(lane);
}

static uint64_t table_done(void *lane, uint64_t *failed_below)
{
	return gpu_lane_done(lane, failed_below);
}

void gpu_table_fill(struct verbs_gpu_table *table, struct gpus *gpus)
{
	memset(table, 0, sizeof(*table));
	table->context = gpus;
	table->copy_bytes_max = GPU_PIECE_BYTES_MAX;
	table->import = table_import;
	table->forget = table_forget;
	table->lane_open = table_lane_open;
	table->lane_close = table_lane_close;
	table->put = table_put;
	table->publish = table_publish;
	table->done = table_done;
}
