/*
 * fakegpu.h - the paged KV memory of one rank, in host memory: planes of equal blocks, and an allocator of scattered
 * block ids.
 *
 *   memory:  guard | plane 0: block 0, block 1, ... | guard | plane 1: block 0, ... | guard ...
 *
 * Blocks lie side by side, as in an engine. What is not in use is poison at its edges, so the neighbours of a
 * destination are its guard bands, and each plane has a guard before and behind it. One thread at a time.
 */
#ifndef KVRAIL_APP_BENCH_FAKEGPU_H
#define KVRAIL_APP_BENCH_FAKEGPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "app/kvrail-bench/geometry.h"
#include "base/compiler.h"
#include "base/random.h"
#include "kvrail.h"

KVR_BEGIN_C

#define FAKEGPU_GUARD_BYTES 4096
#define FAKEGPU_EDGE_BYTES 64

struct fakegpu {
	struct shape shape;
	uint8_t *memory; /* the caller's */
	uint32_t rank;   /* whose part it holds: goes into the pattern */
	uint32_t block_count;
	uint64_t plane_stride; /* from plane to plane */
	struct kvr_plane *planes;
	uint32_t *free_ids; /* free_count ids in no order */
	uint32_t free_count;
	bool *in_use;    /* by block id */
	bool contiguous; /* set after fakegpu_init, with all blocks free: fakegpu_take gives ids in a row */
	struct random random;
};

/* A byte that is not what it should be. */
struct fakegpu_fault {
	uint64_t mismatched_bytes; /* in all; 0: none, and of the rest only `generation` is set */
	uint64_t generation;       /* of the chunk that was looked at last */
	uint32_t chunk;            /* index in the chain, set by the caller */
	uint32_t plane;
	uint32_t block; /* its place in the chunk */
	uint32_t id;
	uint64_t offset; /* in the block; a guard: from the block's end, or before it when negative */
	uint8_t expected, found;
	bool guard;
};

/* Bytes of memory for so many blocks. */
uint64_t fakegpu_bytes(const struct shape *shape, uint32_t blocks);
/* memory: fakegpu_bytes, aligned to a page. Poisons all of it. 0 or -ENOMEM. */
KVR_MUST_CHECK int fakegpu_init(
	struct fakegpu *gpu, const struct shape *shape, uint32_t rank, uint32_t blocks, void *memory, uint64_t seed);
void fakegpu_fini(struct fakegpu *gpu);
/* What kvr_register wants; valid until fakegpu_fini. */
void fakegpu_group(const struct fakegpu *gpu, struct kvr_group *group);

static inline uint8_t *fakegpu_block(const struct fakegpu *gpu, uint32_t plane, uint32_t id)
{
	return (uint8_t *)gpu->planes[plane].address + (uint64_t)id * gpu->shape.block_bytes;
}

/* At random from all that are free; `contiguous`: a run of ids that begins at a multiple of count. False when there
 * are not so many: nothing is taken. */
KVR_MUST_CHECK bool fakegpu_take(struct fakegpu *gpu, uint32_t count, uint32_t *ids);
/* Their edges become poison again, unless `edges` is false. */
void fakegpu_give(struct fakegpu *gpu, uint32_t count, const uint32_t *ids, bool edges);

void fakegpu_poison(struct fakegpu *gpu, uint32_t count, const uint32_t *ids);
/* The blocks of one chunk: chunk_blocks ids. */
void fakegpu_fill(struct fakegpu *gpu, uint64_t chunk, uint64_t generation, const uint32_t *ids);
/* The generation is read from the chunk's blocks, and all of the chunk must be of it: the caller judges whether it
 * may be that one. Adds to fault->mismatched_bytes, and sets the rest of *fault when it was 0. */
void fakegpu_check(const struct fakegpu *gpu, uint64_t chunk, const uint32_t *ids, struct fakegpu_fault *fault);
/* The edges of free neighbours of these blocks, and the guards of the planes. */
void fakegpu_check_guards(const struct fakegpu *gpu, uint32_t count, const uint32_t *ids, struct fakegpu_fault *fault);
/* "plane 3, block 2 of the chunk (id 17), byte 40: found 0xa5, expected 0x17" */
void fakegpu_describe(const struct fakegpu_fault *fault, char *text, size_t size);

KVR_END_C

#endif
