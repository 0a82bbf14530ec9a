/* gpu_private.h - the server's GPU structs, shared by the files of src/gpu only. */
#ifndef KVRAIL_GPU_GPU_PRIVATE_H
#define KVRAIL_GPU_GPU_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/log.h"
#include "gpu/gpu.h"

KVR_BEGIN_C

#define GPU_TILE_BYTES 4096u /* the kernel's: copy.cu */
#define GPU_BLOCKS 2u        /* four launches at once in each direction: 16 multiprocessors */
#define GPU_BLOCK_THREADS 1024u
#define GPU_BULK_THREADS 256u                            /* bulk.cu's: its WARPS, */
#define GPU_BULK_SHARED_BYTES (8u * 6u * GPU_TILE_BYTES) /* of STAGES each */
#define GPU_SLOTS 12u                                    /* launches under way at once ... */
#define GPU_KERNELS_AT_ONCE 4u                           /* ... of them kernels, for each direction */
#define GPU_LAUNCH_PIECES 8192u                          /* of one launch: the next lane has its turn then */
/* So that some launches are ended and some are waiting while others run: whoever has a window of work requests would else have all of
 * it in one kernel, and nothing to put behind it. */
#define GPU_LAUNCH_BYTES (UINT64_C(4) << 20)
#define GPU_ENGINE_RUNS 64u /* copies of one launch by the copy engine */
/* So many pieces go by the copy engine when nothing else is under way: it works beside other processes' kernels, where a kernel of
 * ours waits until the GPU changes from one process to the other (some 150 us, without MPS). */
#define GPU_ENGINE_FEW 4u
#define GPU_HOST_SLICE (UINT64_C(4) << 30)
#define GPU_LOOK_NS UINT64_C(1000000) /* under way for so long: the library is asked whether the GPU is still there */
#define GPU_SPIN_NS UINT64_C(200000)
/* A launch that is refused for want of memory is tried again so often, for so long: what others hold may be given back. */
#define GPU_RETRY_NS UINT64_C(2000000)
#define GPU_REFUSED_NS UINT64_C(200000000)
#define GPU_SAY_NS UINT64_C(1000000000) /* ... and is logged no more often */

/* As the kernel reads it. */
struct gpu_piece {
	uint64_t to;
	uint64_t from;
	uint32_t bytes;
	uint32_t pad[3];
};
KVR_STATIC_ASSERT(sizeof(struct gpu_piece) == 32, "copy.cu: struct piece");

struct gpu_lane {
	/* read only */
	struct gpu *gpu;
	struct gpu_piece *ring; /* pinned */
	bool to_device;
	void (*progress)(void *argument);
	void *argument;
	/* poll core's */
	KVR_ALIGNED(KVR_CACHE_LINE) uint64_t put;
	uint64_t done_copy;
	/* shared: published by the poll core; done, failed_below, closed by the submit thread; closing by who closes */
	KVR_ALIGNED(KVR_CACHE_LINE) uint64_t published;
	KVR_ALIGNED(KVR_CACHE_LINE) uint64_t done;
	uint64_t failed_below;
	uint32_t closing;
	uint32_t closed;
	/* submit thread's */
	KVR_ALIGNED(KVR_CACHE_LINE) uint64_t launched;
	uint64_t under_way; /* launches */
};

/* A launch that can be under way. Each has a stream, so that the end of one and the beginning of the next overlap. */
struct gpu_slot {
	gpu_stream stream;
	gpu_address arrivals; /* in GPU memory: the kernel's */
	uint32_t *flag;       /* pinned: `value` when it has ended */
	uint32_t value;
	bool is_kernel;
	bool is_asked;         /* no flag will say that it has ended: the library does */
	bool is_refused;       /* it was not launched: its pieces end with an error when their turn comes */
	struct gpu_lane *lane; /* NULL: not under way */
	uint64_t begin, end;   /* positions in the lane: its pieces */
	uint64_t look_ns;
};

struct gpu {
	struct gpus *gpus;
	uint32_t index;
	int device;
	gpu_context context;
	gpu_module module;
	gpu_function copy;
	gpu_module bulk_module;
	gpu_function bulk; /* NULL: this GPU has no bulk copies */
	gpu_address arrivals;
	uint8_t *flags; /* pinned, a cache line for each slot */
	struct gpu_uuid uuid;
	char name[96], pci[24];
	bool context_made, thread_made;
	pthread_t thread;

	/* submit thread */
	KVR_ALIGNED(KVR_CACHE_LINE) struct gpu_slot slots[GPU_SLOTS];
	uint32_t slot_count, kernel_count[2]; /* under way; by direction: from, to the GPU */
	uint32_t next_lane;
	uint64_t refused_ns; /* since when every launch is refused; 0: the last one was not */
	uint64_t retry_ns;   /* nothing is launched before */
	struct log_rate refused_log;
	bool still;       /* it has failed, and nothing runs on it any more */
	uint64_t busy_ns; /* when there last was something to do */
	struct gpu_counters counters;

	/* shared */
	KVR_ALIGNED(KVR_CACHE_LINE) uint32_t sleeping; /* futex */
	uint32_t stopping;
	uint32_t failed; /* atomic: the reason is in `failure` before it is set */
	uint32_t lane_count;
	uint32_t regions, imports, import_failures; /* atomic */
	struct gpu_lane *lanes
		[GPU_LANES_MAX]; /* atomic; NULL: free. Written under gpus->lock, and by the submit thread to NULL */
	char failure[160];
};

struct gpu_area {
	uint64_t address;
	uint64_t bytes; /* atomic: published last; 0: none */
};

struct gpus {
	struct gpu_driver driver;
	bool loaded;
	struct gpus_options options;
	uint32_t count;
	struct gpu *gpu[GPU_COUNT_MAX];
	pthread_mutex_t lock; /* lanes opened and closed, areas */
	uint32_t area_count;  /* atomic */
	struct gpu_area areas[GPU_HOST_AREAS_MAX];
};

/* submit.c */
void *gpu_submit_main(void *argument);
/* One turn; the GPU's context is current. */
bool gpu_submit_step(struct gpu *gpu, uint64_t now_ns);
/* Any thread: it may sleep no longer. */
void gpu_submit_wake(struct gpu *gpu);
/* Submit thread. For good: its next steps end everything with a failure, once nothing runs any more. */
void gpu_fail(struct gpu *gpu, int code, const char *what);

KVR_END_C

#endif
