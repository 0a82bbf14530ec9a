#include "base/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

static uint64_t pool_block_size(uint64_t block_bytes)
{
	return block_bytes > 32 ? kvr_round_up(block_bytes, KVR_CACHE_LINE) : kvr_round_up(block_bytes, 8);
}

int pool_init(struct pool *pool, uint64_t block_bytes, uint32_t count)
{
	uint64_t area_bytes;

	memset(pool, 0, sizeof(*pool));
	if (block_bytes == 0 || count == 0 || count == POOL_NONE)
		return -EINVAL;
	if (block_bytes > SIZE_MAX / 2)
		return -ENOMEM;
	block_bytes = pool_block_size(block_bytes);
	if (__builtin_mul_overflow(block_bytes, (uint64_t)count, &area_bytes) || area_bytes > SIZE_MAX / 2)
		return -ENOMEM;

	area_bytes = kvr_round_up(area_bytes, KVR_CACHE_LINE);
	pool->blocks = fault_point("pool_init/blocks") ? NULL : aligned_alloc(KVR_CACHE_LINE, area_bytes);
	if (!pool->blocks)
		return -ENOMEM;
	pool->free_stack = fault_point("pool_init/free_stack") ? NULL : malloc(sizeof(*pool->free_stack) * count);
	if (!pool->free_stack)
		goto free_blocks;

	/* Writing every page now keeps page faults out of the steps that use the pool. */
	memset(pool->blocks, 0, area_bytes);
	for (uint32_t i = 0; i < count; i++)
		pool->free_stack[i] = count - 1 - i;
	pool->block_bytes = block_bytes;
	pool->count = count;
	pool->free_count = count;
	return 0;

free_blocks:
	free(pool->blocks);
	pool->blocks = NULL;
	return -ENOMEM;
}

void pool_fini(struct pool *pool)
{
	free(pool->free_stack);
	free(pool->blocks);
	memset(pool, 0, sizeof(*pool));
}
