/*
 * export.h - what the owner of GPU memory gives to those who are to reach it: to a server on the same host a handle, to an RDMA adapter
 * a dma-buf.
 *
 * The handle of MEMORY_DEVICE (docs/PROTOCOL.md): the GPU's UUID, since numbers differ between processes, and the
 * vendor's interprocess handle of the whole allocation. The region's place in it is MEMORY's offset.
 */
#ifndef KVRAIL_GPU_EXPORT_H
#define KVRAIL_GPU_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "gpu/driver.h"

KVR_BEGIN_C

#define GPU_EXPORT_BYTES (GPU_UUID_BYTES + GPU_HANDLE_BYTES)

struct gpu_allocation {
	uint32_t ordinal; /* of the GPU, as this process counts */
	gpu_address base;
	uint64_t bytes;
};

struct gpu_export {
	uint8_t handle[GPU_EXPORT_BYTES];
	uint64_t offset; /* of the region in its allocation */
	uint32_t ordinal;
};

/* True when the address lies in GPU memory of this process. False for host memory of any kind. */
bool gpu_is_device(const struct gpu_driver *driver, uint64_t address);
/* The allocation that holds the address, which is one of a GPU. 0, or -EFAULT with words. */
KVR_MUST_CHECK int gpu_find_allocation(const struct gpu_driver *driver, uint64_t address,
	struct gpu_allocation *allocation, char *reason, size_t size);
/* 0; -EFAULT: not all in one allocation; -EOPNOTSUPP: memory that has no such handle; `reason` gets words. */
KVR_MUST_CHECK int gpu_export_region(const struct gpu_driver *driver, uint64_t address, uint64_t length,
	struct gpu_export *description, char *reason, size_t size);

/* What adapters may do with a GPU's memory. */
struct gpu_rdma {
	bool possible; /* else `reason` says why not */
	bool dma_buf;
	bool flush; /* what they have written must be flushed before the GPU uses it (gpu_flush_writes) */
	gpu_context context;
	char reason[160];
};
void gpu_rdma_of(const struct gpu_driver *driver, uint64_t address, struct gpu_rdma *rdma);

struct gpu_dmabuf {
	int fd;          /* the caller's, to be closed; the memory lives on while something is registered through it */
	uint64_t offset; /* of the region in it */
	uint64_t bytes;  /* of it: whole pages */
};
/* 0; -EFAULT: not all in one allocation; -EOPNOTSUPP: memory of which there is none (of another process, say); `reason` gets words. */
KVR_MUST_CHECK int gpu_export_dmabuf(const struct gpu_driver *driver, uint64_t address, uint64_t length,
	struct gpu_dmabuf *dmabuf, char *reason, size_t size);
/* Any thread: waits until what adapters have written is seen by the GPU. 0, -EIO with words. */
KVR_MUST_CHECK int gpu_flush_writes(const struct gpu_driver *driver, gpu_context context, char *reason, size_t size);

KVR_END_C

#endif
