#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "tier/cache_internal.h"

/* Buckets of an unfinished growth that each new entry moves: growing ends long before the new table is full. */
#define GROW_BUCKETS_PER_INSERT 2
/* A chunk that comes back is known while at most twice as many as there are were evicted after it: of 1 to 4 times the best on the trace
 * of docs/L2.md. */
#define CACHE_GHOST_CHUNKS 2

static void unstage(struct cache *cache, l1_ref object)
{
	struct account *account = &cache->accounts[L1_NO_OWNER - l1_owner(cache->l1, object)];
	uint64_t bytes = l1_bytes(cache->l1, object);
	uint64_t units = cache_class_units(cache, l1_class_of(cache->l1, object));

	assert(cache_owner_staged(l1_owner(cache->l1, object)));
	assert(cache->staged > 0 && cache->staged_bytes >= bytes && account->staged_units >= units);
	cache->staged--;
	cache->staged_bytes -= bytes;
	account->staged_units -= units;
}

void cache_abort(struct cache *cache, l1_ref object)
{
	unstage(cache, object);
	l1_free(cache->l1, object);
	kvr_counter_add(&cache->counters->aborted, 1);
}

void cache_adopt(struct cache *cache, l1_ref object)
{
	cache->staged++;
	cache->staged_bytes += l1_bytes(cache->l1, object);
	cache->accounts[0].staged_units += cache_class_units(cache, l1_class_of(cache->l1, object));
	l1_set_owner(cache->l1, object, cache_staged_owner(0));
}

static void tell_keeper(struct cache *cache, const struct cache_entry *entry, uint32_t part, l1_ref object)
{
	const struct space *space = &cache->spaces.spaces[entry->space];

	if (cache->keeper.published)
		cache->keeper.published(cache->keeper.context, space->model, space->salt,
			(const uint8_t *)entry->digest, part, space->parts, object);
}

static uint32_t new_entry(
	struct cache *cache, uint32_t space, const uint64_t digest[4], uint32_t hash, uint32_t object_class)
{
	struct cache_entry *entry;
	uint32_t number;

	cache_grow_step(cache, GROW_BUCKETS_PER_INSERT);
	if (!cache_table_has_room(cache))
		return 0;
	number = entries_take(&cache->entries, cache->spaces.spaces[space].parts);
	if (number == 0)
		return 0;
	entry = cache_entry_at(cache, number);
	memcpy(entry->digest, digest, sizeof(entry->digest));
	entry->space = space;
	entry->units = 0;
	entry->absent = (uint8_t)cache->spaces.spaces[space].parts; /* 256 is 0, and 255 after the first object */
	entry->object_class = (uint8_t)object_class;
	entry->reused = cache->segmented &&
		ghosts_take(&cache->ghosts, cache_mix_key(cache, space, digest), CACHE_GHOST_CHUNKS * cache->chunks);
	if (entry->reused)
		kvr_counter_add(&cache->counters->returned, 1);
	cache_list(cache, number, entry);
	table_insert(&cache->table, hash, number);
	space_add_chunk(&cache->spaces, space);
	cache->chunks++;
	return number;
}

static void add_object(struct cache *cache, uint32_t number, uint32_t part, l1_ref object, uint64_t bytes)
{
	struct cache_entry *entry = cache_entry_at(cache, number);
	struct account *account = cache_account_of(cache, entry);
	uint64_t units = cache_class_units(cache, l1_class_of(cache->l1, object));
	uint32_t added = (uint32_t)kvr_min_u64(units, ENTRIES_UNITS_MAX - entry->units);

	cache_entry_objects(cache, entry)[part] = object;
	l1_set_owner(cache->l1, object, number);
	entry->absent--;
	entry->units += added;
	account->units += added;
	cache->objects++;
	cache->resident_bytes += bytes;
	tell_keeper(cache, entry, part, object);
	if (entries_held(entry))
		return;
	cache->evictable_units += added;
	account->evictable_units += added;
	if (cache->segmented && !entry->reused)
		cache->fresh_units += added;
	cache_touch(cache, number);
}

int cache_publish(
	struct cache *cache, uint32_t space, const uint8_t *digest, uint32_t part, l1_ref object, uint32_t *entry)
{
	uint64_t bytes = l1_bytes(cache->l1, object);
	uint64_t words[4];
	uint32_t hash, number;

	assert(part < cache->spaces.spaces[space].parts);
	memcpy(words, digest, sizeof(words));
	hash = cache_hash(cache, space, words);
	number = cache_lookup(cache, space, words, hash);
	if (number != 0 && cache_entry_objects(cache, cache_entry_at(cache, number))[part] != 0) {
		unstage(cache, object);
		l1_free(cache->l1, object);
		kvr_counter_add(&cache->counters->present, 1);
		*entry = number;
		return -EEXIST;
	}
	if (number == 0)
		number = new_entry(cache, space, words, hash, l1_class_of(cache->l1, object));
	if (number == 0)
		return -ENOSPC;
	unstage(cache, object);
	add_object(cache, number, part, object, bytes);
	kvr_counter_add(&cache->counters->published, 1);
	*entry = number;
	return 0;
}
