/*
 * gpumem.h - paged KV memory on a GPU, as an engine has it, and the ceiling of what moves to it and back: one contiguous copy of
 * pinned host memory by the GPU's copy engine, which is the rate of the bus (PCIe). Everything here may block and enter the
 * vendor's library.
 */
#ifndef KVRAIL_APP_BENCH_GPUMEM_H
#define KVRAIL_APP_BENCH_GPUMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

struct gpumem;

/* gpu: as the vendor's library counts. 0, or a negative errno with words in why[]. */
KVR_MUST_CHECK int gpumem_open(uint32_t gpu, struct gpumem **memory, char *why, size_t why_size);
/* When nothing of it is allocated any more. NULL is good. */
void gpumem_close(struct gpumem *memory);

/* *address: on the GPU. 0 or -ENOMEM. */
KVR_MUST_CHECK int gpumem_alloc(struct gpumem *memory, uint64_t bytes, uint64_t *address);
void gpumem_free(struct gpumem *memory, uint64_t address);
/* Returns when it is there. One thread at a time. 0 or -EIO. */
KVR_MUST_CHECK int gpumem_copy(struct gpumem *memory, bool to_gpu, uint64_t there, void *here, uint64_t bytes);

/* One slice each way, some milliseconds. Any thread, one at a time. */
void gpumem_measure(struct gpumem *memory);
/* Medians of the slices so far, 10^9 bytes a second; 0 without any. */
double gpumem_gbps(const struct gpumem *memory, bool to_gpu);

KVR_END_C

#endif
