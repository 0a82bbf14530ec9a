/*
 * gpu_table.h - how the local driver reaches GPU memory: a table of copy operations that whoever opens the device fills
 * (app/common/gpu_table.c does, from gpu/gpu.h). Without one, memory of kind MEMORY_DEVICE is refused.
 *
 * A lane carries the copies of one completion queue to one GPU, or those from it. Copies that were put into it are counted from 0 on
 * and end in that order.
 */
#ifndef KVRAIL_VERBS_GPU_TABLE_H
#define KVRAIL_VERBS_GPU_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define VERBS_GPUS_MAX 16u

struct verbs_remote_memory;

/* A client's memory on a GPU, mapped. */
struct verbs_gpu_memory {
	uint32_t gpu;     /* below VERBS_GPUS_MAX */
	uint64_t address; /* of the region's first byte, as `put` takes it; never touched by the processor */
	void *region;     /* the table's */
};

struct verbs_gpu_table {
	void *context;
	uint32_t copy_bytes_max; /* of one put */

	/* Helper threads; may block. 0; -EBADMSG, -ENODEV (that GPU is not here), -ENOTRECOVERABLE (it is lost), -EFAULT (shorter
	 * than claimed), -EOPNOTSUPP, -ENOMEM; logged. */
	int (*import)(void *context, const struct verbs_remote_memory *memory, struct verbs_gpu_memory *imported);
	void (*forget)(void *context, struct verbs_gpu_memory *imported);

	/* Helper threads; may block. progress: called on the table's own thread after copies have ended. */
	int (*lane_open)(void *context, uint32_t gpu, bool to_device, void (*progress)(void *argument), void *argument,
		void **lane);
	void (*lane_close)(void *context, void *lane);

	/* Polling thread: no lock, no call into the GPU's library. 0; -EAGAIN: no room now; -EFAULT: the GPUs don't
	 * know that memory of the server. */
	int (*put)(void *lane, uint64_t host, uint64_t device, uint32_t bytes);
	/* What was put goes now. */
	void (*publish)(void *lane);
	/* Copies below the returned number have ended, and touch memory no more. Those below *failed_below that were not said to have
	 * ended before ended with an error: some of them were not carried out. */
	uint64_t (*done)(void *lane, uint64_t *failed_below);
};

KVR_END_C

#endif
