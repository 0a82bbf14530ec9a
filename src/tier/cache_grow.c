#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "tier/cache_internal.h"

#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)
/* The hash has 32 bits; with more buckets than this too few of them would be left to tell entries apart. */
#define BUCKETS_MAX (UINT32_C(1) << 28)

void *cache_allocate_memory(uint64_t bytes)
{
	uint64_t align = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : KVR_CACHE_LINE;
	void *memory = fault_point("cache_allocate_memory") ? NULL : aligned_alloc(align, kvr_round_up(bytes, align));

	if (!memory)
		return NULL;
	if (align == HUGE_PAGE_BYTES)
		(void)madvise(memory, bytes, MADV_HUGEPAGE); /* only faster */
	memset(memory, 0, bytes);
	return memory;
}

static uint64_t used(const struct cache *cache)
{
	return cache->table.used + cache->old.used;
}

static uint64_t slots(const struct cache *cache)
{
	return (uint64_t)cache->table.count * TABLE_BUCKET_SLOTS;
}

static bool wants_buckets(const struct cache *cache)
{
	return !cache->old.buckets && cache->table.count < BUCKETS_MAX && used(cache) * 4 >= slots(cache) * 3;
}

bool cache_table_has_room(struct cache *cache)
{
	return used(cache) * 16 < slots(cache) * 15;
}

uint64_t cache_wants_memory(const struct cache *cache)
{
	if (wants_buckets(cache))
		return table_bytes(&cache->table) * 2;
	return entries_want_slab(&cache->entries) ? entries_slab_bytes(&cache->entries) : 0;
}

void cache_supply_memory(struct cache *cache, void *memory, uint64_t bytes)
{
	if (!memory)
		return;
	assert((uintptr_t)memory % KVR_CACHE_LINE == 0);
	if (wants_buckets(cache) && bytes == table_bytes(&cache->table) * 2) {
		cache->old = cache->table;
		cache->table = (struct table){ .buckets = memory, .count = cache->old.count * 2 };
		kvr_counter_add(&cache->counters->grown, 1);
	} else if (bytes == entries_slab_bytes(&cache->entries)) {
		entries_add_slab(&cache->entries, memory);
	} else {
		entries_discard(&cache->entries, memory);
	}
}

void *cache_take_garbage(struct cache *cache)
{
	return entries_take_garbage(&cache->entries);
}

void cache_grow_step(struct cache *cache, uint32_t limit)
{
	if (!cache->old.buckets)
		return;
	for (; limit > 0 && cache->old.used > 0; limit--)
		table_move_first(&cache->old, &cache->table);
	if (cache->old.used > 0)
		return;
	entries_discard(&cache->entries, cache->old.buckets);
	cache->old = (struct table){ 0 };
}
