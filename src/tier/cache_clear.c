#include "base/atomic.h"
#include "tier/cache_internal.h"

bool cache_drop(struct cache *cache, uint32_t entry)
{
	if (entries_held(cache_entry_at(cache, entry)))
		return false;
	cache_evict_entry(cache, entry);
	kvr_counter_add(&cache->counters->cleared_chunks, 1);
	return true;
}

bool cache_clear_step(struct cache *cache, bool (*wanted)(void *context, uint32_t model), void *context,
	uint32_t *cursor, uint32_t limit, uint64_t *dropped, uint64_t *kept)
{
	uint32_t number = *cursor < cache->entries.heads ? cache->entries.heads : *cursor;

	for (; limit > 0 && number < cache->entries.fresh; limit--, number++) {
		struct cache_entry *entry = cache_entry_at(cache, number);

		if (entry->space == ENTRIES_FREE || !wanted(context, cache->spaces.spaces[entry->space].model))
			continue;
		if (entries_held(entry)) {
			++*kept;
			continue;
		}
		cache_evict_entry(cache, number);
		kvr_counter_add(&cache->counters->cleared_chunks, 1);
		++*dropped;
	}
	*cursor = number;
	return number >= cache->entries.fresh;
}
