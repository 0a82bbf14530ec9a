/*
 * gpu.h - the GPUs of this host, as the server uses them: L1 made known to them, clients' memory mapped, lists of copies
 * carried out by one submit thread a GPU.
 *
 *   poll core --put, publish--> lane (ring of pieces in pinned memory) --submit thread--> kernel or copy engine
 *   poll core <--position done-- lane <--flag in pinned memory, polled by the submit thread--
 *
 * A lane belongs to one poll core, one GPU and one direction (kernels that read and write host memory at once are slower): single producer, single consumer, no lock, no call into the vendor's
 * library on the poll core. The submit thread launches whatever is waiting, up to 4 MiB, as one kernel (or, for large contiguous
 * pieces, as copies by the copy engine), and lets what comes meanwhile wait while four kernels are under way: so
 * launches are as large as the load makes them.
 *
 * Errors. A launch that the library refuses while its context lives (no memory for it, too many resources) is tried again for a while
 * when it may pass, then its pieces end with an error; what is behind them is tried as before. When the library says that the GPU is
 * lost (an error that sticks to the context), the GPU is failed for good: no process gets over such an error. What was under way and what
 * comes later ends with an error, new memory is refused, the reason is in its status. The server goes on. What is under way ends when the
 * GPU can reach its memory no more: the library says that it has run to its end, or that the context is dead.
 */
#ifndef KVRAIL_GPU_GPU_H
#define KVRAIL_GPU_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "gpu/driver.h"
#include "gpu/export.h"

KVR_BEGIN_C

#define GPU_COUNT_MAX 16u
#define GPU_LANES_MAX 128u            /* of one GPU: two a poll core */
#define GPU_HOST_AREAS_MAX 64u        /* of gpus_register_host */
#define GPU_PIECE_BYTES_MAX 65536u    /* of one gpu_lane_put */
#define GPU_LANE_PIECES 16384u        /* that a lane has room for */
#define GPU_ENGINE_BYTES (512u << 10) /* contiguous pieces of so many bytes go by the copy engine */

struct gpus;
struct gpu_lane;

struct gpus_options {
	const struct gpu_driver *driver; /* a test's table; NULL: the library */
	const char *library;             /* without `driver`: NULL: GPU_LIBRARY */
	bool threads;                    /* false: gpus_step takes the place of the submit threads (tests) */
	/* Called by each submit thread before anything else, with the GPU's PCI address ("0000:1a:00.0"); NULL: not wanted. */
	void (*begin)(void *context, const char *pci);
	void *begin_context;
	bool never_sleep;       /* submit threads poll on without work, so that no publish is a system call */
	uint64_t spin_ns;       /* else: so long, then they sleep; 0: 200 us */
	uint32_t blocks;        /* of a kernel; 0: the default */
	uint32_t block_threads; /* 0: the default; a multiple of 32, 128 to 1024 */
	bool no_engine;         /* large pieces go by the kernel too */
	bool no_bulk;           /* the kernel of older GPUs, whatever they are */
};

/* Looks for the library and its GPUs, makes a context and a submit thread on each that is usable. 0, -ENOENT (no
 * library), -ENOSYS (too old), -ENODEV (no usable GPU), -ENOMEM; `reason` gets words then. */
KVR_MUST_CHECK int gpus_open(const struct gpus_options *options, struct gpus **gpus, char *reason, size_t size);
/* When no lane is open and no region mapped. *gpus becomes NULL; NULL is harmless. May block. */
void gpus_close(struct gpus **gpus);

uint32_t gpus_count(const struct gpus *gpus);
/* Any thread. How many of them are lost. */
uint32_t gpus_lost(const struct gpus *gpus);

/* Makes host memory reachable for all GPUs (pinned by the library, in slices). It stays the caller's, and mapped until
 * gpus_forget_host or gpus_close. One thread at a time. Takes a second for some 20 GiB. 0, -ENOSPC (too many areas),
 * -EIO after logging what the library said. */
KVR_MUST_CHECK int gpus_register_host(struct gpus *gpus, void *address, uint64_t bytes);
void gpus_forget_host(struct gpus *gpus, void *address);

/* A client's memory on one of our GPUs. */
struct gpu_region {
	uint32_t gpu;
	gpu_address address; /* of the region's first byte, for gpu_lane_put */
	gpu_address mapped;  /* where the allocation begins */
	uint64_t bytes;
};
/*
 * Any thread that may block. Maps what a client exported: offset and length must lie in its allocation. 0; -EBADMSG:
 * the handle is none of ours; -ENODEV: that GPU is not visible here; -ENOTRECOVERABLE: it is lost; -EFAULT: the allocation is
 * shorter; -EOPNOTSUPP: the library refuses to map it; logged with the reason.
 */
KVR_MUST_CHECK int gpus_import(struct gpus *gpus, const uint8_t *handle, uint32_t handle_length, uint64_t offset,
	uint64_t length, struct gpu_region *region);
/* Any thread that may block, for long. No piece that names it is under way. */
void gpus_forget(struct gpus *gpus, struct gpu_region *region);

/* ---- lanes ---------------------------------------------------------------------------------------------------- */

/* Any thread that may block. progress: called by the submit thread after positions were done; NULL: not wanted. 0,
 * -ENODEV (the GPU has failed), -ENOSPC, -ENOMEM. */
KVR_MUST_CHECK int gpu_lane_open(struct gpus *gpus, uint32_t gpu, bool to_device, void (*progress)(void *argument),
	void *argument, struct gpu_lane **lane);
/* Any thread that may block. Waits until what was published is done. */
void gpu_lane_close(struct gpus *gpus, struct gpu_lane **lane);

/* Poll core. One more piece, not published yet: bytes 1 .. GPU_PIECE_BYTES_MAX. Positions count pieces from 0 on. 0;
 * -EAGAIN: no room now; -EFAULT: the host memory is not registered. */
KVR_MUST_CHECK int gpu_lane_put(struct gpu_lane *lane, uint64_t host, gpu_address device, uint32_t bytes);
/* Poll core. What was put goes. Wakes the submit thread when it sleeps: one system call then. */
void gpu_lane_publish(struct gpu_lane *lane);
/* Poll core. Pieces below the returned position are done. Those below *failed_below that were not said to be done before ended with an
 * error: some of them were not copied. 0: none ever failed. */
uint64_t gpu_lane_done(struct gpu_lane *lane, uint64_t *failed_below);

/* Without threads: one bounded turn of all submit threads. True when something was done. */
bool gpus_step(struct gpus *gpus, uint64_t now_ns);

/* ---- what is to be seen --------------------------------------------------------------------------------------- */

#define GPU_COUNTERS(X)                                                         \
	X(launches_total, "kernels launched")                                   \
	X(engine_copies_total, "copies given to the copy engine")               \
	X(pieces_total, "contiguous pieces copied")                             \
	X(to_device_bytes_total, "bytes copied to the GPU")                     \
	X(to_host_bytes_total, "bytes copied from the GPU")                     \
	X(refusals_total, "launches that the library refused")                  \
	X(failed_pieces_total, "pieces that ended with an error")               \
	X(sleeps_total, "times the submit thread slept")                        \
	X(imports_total, "regions of clients mapped")                           \
	X(import_failures_total, "regions of clients that could not be mapped") \
	X(failures_total, "times the GPU was found lost")

struct gpu_counters {
#define GPU_COUNTER_FIELD(name, help) uint64_t name;
	GPU_COUNTERS(GPU_COUNTER_FIELD)
#undef GPU_COUNTER_FIELD
};

struct gpu_status {
	char name[96];
	char pci[24];  /* "0000:1a:00.0" */
	char uuid[48]; /* "GPU-..." */
	uint32_t blocks, block_threads;
	uint32_t regions; /* mapped now */
	bool failed;
	char failure[160];
	struct gpu_counters counters;
};
/* Any thread. index < gpus_count. */
void gpus_status(const struct gpus *gpus, uint32_t index, struct gpu_status *status);

KVR_END_C

#endif
