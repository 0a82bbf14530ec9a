/*
 * export.h - what the owner of GPU memory tells a server on the same host, so that it can map it.
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

KVR_END_C

#endif
