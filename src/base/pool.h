/*
 * pool.h - fixed number of blocks of one size, taken and given back without allocation.
 *
 * One owner thread. Blocks come from one area that is allocated (and touched) by pool_init; a block's index is stable
 * and small, so that 32 bits name it in rings and tables. LIFO, so that the warm block comes first.
 */
#ifndef KVRAIL_BASE_POOL_H
#define KVRAIL_BASE_POOL_H

#include <assert.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define POOL_NONE UINT32_MAX

struct pool {
	char *blocks;         /* block_bytes * count bytes, aligned to a cache line */
	uint32_t *free_stack; /* indices of free blocks; the top is at free_count - 1 */
	uint64_t block_bytes; /* a multiple of 8 */
	uint32_t count;
	uint32_t free_count;
};

/*
 * block_bytes >= 1 is rounded up to 8, or to 64 when it is above 32. The memory is zeroed; the first block taken is
 * index 0. 0, -EINVAL (block_bytes or count 0, count above UINT32_MAX - 1), -ENOMEM; the struct is zeroed on an error.
 */
KVR_MUST_CHECK int pool_init(struct pool *pool, uint64_t block_bytes, uint32_t count);
/* Blocks that are still out are lost with it. Harmless on a zeroed struct. */
void pool_fini(struct pool *pool);

/* NULL when none is free. The content is what the last user left. */
static inline void *pool_take(struct pool *pool)
{
	if (KVR_UNLIKELY(pool->free_count == 0))
		return NULL;
	return pool->blocks + (uint64_t)pool->free_stack[--pool->free_count] * pool->block_bytes;
}

static inline void *pool_at(const struct pool *pool, uint32_t index)
{
	return pool->blocks + (uint64_t)index * pool->block_bytes;
}

static inline uint32_t pool_index(const struct pool *pool, const void *block)
{
	return (uint32_t)((uint64_t)((const char *)block - pool->blocks) / pool->block_bytes);
}

/* block: one of pool_take that has not been given back since. */
static inline void pool_give(struct pool *pool, void *block)
{
	assert(pool->free_count < pool->count && pool_index(pool, block) < pool->count);
	pool->free_stack[pool->free_count++] = pool_index(pool, block);
}

static inline uint32_t pool_used(const struct pool *pool)
{
	return pool->count - pool->free_count;
}

KVR_END_C

#endif
