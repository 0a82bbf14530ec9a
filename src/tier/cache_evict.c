#include <errno.h>

#include "base/atomic.h"
#include "tier/cache_internal.h"

/* Where another class's pages are needed: oldest entries of one class, and classes, that are tried. */
#define TRIES_PER_CLASS 4
#define CLASSES_TRIED 8
/* Where there are several areas: entries that are looked at for one that makes room in the preferred area. */
#define NEAR_LOOKS 8

void cache_evict_entry(struct cache *cache, uint32_t number)
{
	struct cache_entry *entry = cache_entry_at(cache, number);
	uint32_t hash = cache_hash(cache, entry->space, entry->digest);
	uint32_t parts = cache_entry_parts(cache, entry);
	l1_ref *objects = cache_entry_objects(cache, entry);
	uint64_t bytes = 0;

	cache_unlist(cache, entry);
	for (uint32_t part = 0; part < parts; part++) {
		if (objects[part] == 0)
			continue;
		bytes += l1_bytes(cache->l1, objects[part]);
		if (cache->keeper.freed)
			cache->keeper.freed(cache->keeper.context, objects[part]);
		l1_free(cache->l1, objects[part]);
		cache->objects--;
	}
	cache->evictable_units -= entry->units;
	cache->resident_bytes -= bytes;
	cache->chunks--;
	if (!table_remove(&cache->table, hash, number))
		(void)table_remove(&cache->old, hash, number);
	space_remove_chunk(&cache->spaces, entry->space);
	entries_give(&cache->entries, number, parts);
	kvr_counter_add(&cache->counters->evicted_bytes, bytes);
}

/* The least recently used entry of a class, 0: none. */
static uint32_t oldest_of(const struct cache *cache, uint32_t object_class)
{
	uint32_t head = 1 + object_class;
	uint32_t number = cache_entry_at(cache, head)->list.prev;

	return number != head ? number : 0;
}

/* Of all but the classes in `skip` (bits): the one whose oldest entry is the oldest; L1_CLASSES_MAX: none. */
static uint32_t oldest_class(const struct cache *cache, const uint64_t skip[L1_CLASSES_MAX / 64])
{
	uint32_t best = L1_CLASSES_MAX;
	uint64_t best_stamp = UINT64_MAX;

	for (uint32_t word = 0; word < L1_CLASSES_MAX / 64; word++) {
		for (uint64_t bits = cache->listed_classes[word] & ~skip[word]; bits; bits &= bits - 1) {
			uint32_t object_class = word * 64 + (uint32_t)__builtin_ctzll(bits);
			uint64_t stamp = entries_stamp(cache_entry_at(cache, oldest_of(cache, object_class)));

			if (stamp < best_stamp) {
				best = object_class;
				best_stamp = stamp;
			}
		}
	}
	return best;
}

/* ---- on demand ---- */

static bool has_class(const struct cache *cache, struct cache_entry *entry, uint32_t object_class)
{
	const l1_ref *objects = cache_entry_objects(cache, entry);
	uint32_t parts = cache_entry_parts(cache, entry);

	for (uint32_t part = 0; part < parts; part++)
		if (objects[part] != 0 && l1_class_of(cache->l1, objects[part]) == object_class)
			return true;
	return false;
}

static l1_ref first_object(const struct cache *cache, struct cache_entry *entry)
{
	const l1_ref *objects = cache_entry_objects(cache, entry);

	while (*objects == 0)
		objects++;
	return *objects;
}

static bool may_evict(void *context, uint32_t owner, l1_ref object)
{
	struct cache *cache = (struct cache *)context;

	/* Fresh objects of the class that wants room may lie among old ones of another: they would go for one of their like. */
	if (owner == L1_NO_OWNER || cache->looks_left == 0 || l1_class_of(cache->l1, object) == cache->clearing_class)
		return false;
	cache->looks_left--;
	return !entries_held(cache_entry_at(cache, owner));
}

static void evict_on_demand(struct cache *cache, uint32_t number)
{
	cache_evict_entry(cache, number);
	kvr_counter_add(&cache->counters->evicted_chunks, 1);
	kvr_counter_add(&cache->counters->evicted_on_demand, 1);
}

/* Distinct owners of the planned objects, into plan_owners; 0 when they are more than `limit`. */
static uint32_t plan_owners(struct cache *cache, uint32_t objects, uint32_t limit)
{
	uint32_t owners = 0;

	for (uint32_t i = 0; i < objects; i++) {
		uint32_t owner = l1_owner(cache->l1, cache->plan[i]);
		struct cache_entry *entry = cache_entry_at(cache, owner);

		/* Marked as held while counting, so that each is counted once. */
		if (entries_held(entry))
			continue;
		if (owners < limit) {
			cache->plan_owners[owners] = owner;
			cache->plan_stamps[owners] = entry->stamp_high;
			entry->stamp_high = ENTRIES_HELD;
		}
		owners++;
		if (owners > limit)
			break;
	}
	for (uint32_t i = 0; i < owners && i < limit; i++)
		cache_entry_at(cache, cache->plan_owners[i])->stamp_high = cache->plan_stamps[i];
	return owners <= limit ? owners : 0;
}

/* Evicts what lies around an entry of another class, when that makes pages for a run. */
static bool clear_around(struct cache *cache, uint32_t number, uint32_t object_class, uint32_t limit)
{
	l1_ref victim = first_object(cache, cache_entry_at(cache, number));
	uint32_t capacity = limit > CACHE_CLEAR_OBJECTS / CACHE_PARTS_MAX ? CACHE_CLEAR_OBJECTS
									  : limit * CACHE_PARTS_MAX;
	uint32_t count;

	cache->clearing_class = object_class;
	if (l1_clear_plan(cache->l1, object_class, victim, may_evict, cache, cache->plan, capacity, &count))
		return false;
	count = plan_owners(cache, count, limit);
	for (uint32_t i = 0; i < count; i++)
		evict_on_demand(cache, cache->plan_owners[i]);
	kvr_counter_add(&cache->counters->evicted_for_class, count);
	return count > 0;
}

static bool is_in_area(const struct cache *cache, struct cache_entry *entry, uint32_t area)
{
	const l1_ref *objects = cache_entry_objects(cache, entry);
	uint32_t parts = cache_entry_parts(cache, entry);

	for (uint32_t part = 0; part < parts; part++)
		if (objects[part] != 0 && l1_area_of(cache->l1, objects[part]) == area)
			return true;
	return false;
}

/* Of the oldest few of a class the oldest that has an object in the area, so that what comes is near to those that asked for it; else the
 * oldest. With one area that is always the oldest. */
static uint32_t oldest_in_area(const struct cache *cache, uint32_t victim_class, uint32_t area)
{
	uint32_t oldest = oldest_of(cache, victim_class), number = oldest;

	for (uint32_t looks = 0; looks < NEAR_LOOKS && number != 1 + victim_class; looks++) {
		struct cache_entry *entry = cache_entry_at(cache, number);

		if (is_in_area(cache, entry, area))
			return number;
		number = entry->list.prev;
	}
	return oldest;
}

static bool make_room_in(
	struct cache *cache, uint32_t victim_class, uint32_t object_class, uint32_t area, uint32_t limit)
{
	uint32_t number = oldest_of(cache, victim_class);
	uint32_t head = 1 + victim_class;

	if (victim_class == object_class && number != head)
		number = oldest_in_area(cache, victim_class, area);
	for (uint32_t tries = 0; tries < TRIES_PER_CLASS && number != head; tries++) {
		struct cache_entry *entry = cache_entry_at(cache, number);

		if (victim_class == object_class || has_class(cache, entry, object_class)) {
			evict_on_demand(cache, number);
			return true;
		}
		if (clear_around(cache, number, object_class, limit))
			return true;
		number = entry->list.prev;
	}
	return false;
}

/* Oldest class first, so that a model that is not used any more gives way; the own class always has what is needed. */
static bool make_room(struct cache *cache, uint32_t object_class, uint32_t area, uint32_t limit)
{
	uint64_t tried[L1_CLASSES_MAX / 64] = { 0 };

	cache->looks_left = CACHE_CLEAR_LOOKS;
	for (uint32_t i = 0; i < CLASSES_TRIED; i++) {
		uint32_t victim_class = oldest_class(cache, tried);

		if (victim_class == L1_CLASSES_MAX)
			return false;
		if (make_room_in(cache, victim_class, object_class, area, limit))
			return true;
		tried[victim_class / 64] |= UINT64_C(1) << (victim_class % 64);
	}
	return oldest_of(cache, object_class) != 0 && make_room_in(cache, object_class, object_class, area, limit);
}

l1_ref cache_reserve(struct cache *cache, uint32_t object_class, uint32_t preferred_area, uint32_t evict_limit)
{
	l1_ref object = l1_allocate(cache->l1, object_class, preferred_area, L1_NO_OWNER);

	if (!object && evict_limit > 0 && cache->evictable_units > 0 &&
		make_room(cache, object_class, preferred_area, evict_limit))
		object = l1_allocate(cache->l1, object_class, preferred_area, L1_NO_OWNER);
	if (!object) {
		kvr_counter_add(&cache->counters->no_room, 1);
		return 0;
	}
	cache->staged++;
	cache->staged_bytes += l1_class_bytes(cache->l1, object_class);
	return object;
}

bool cache_could_reserve(const struct cache *cache, uint32_t object_class, uint64_t count)
{
	uint64_t evictable = cache->evictable_units * CACHE_UNIT_BYTES / l1_class_slot_bytes(cache->l1, object_class);

	return count <= evictable || count - evictable <= l1_class_room(cache->l1, object_class);
}

/* ---- in the background ---- */

static bool above(const struct cache *cache, uint32_t permille)
{
	struct l1_stats stats;

	l1_get_stats(cache->l1, &stats);
	return (stats.total_bytes - stats.free_page_bytes - stats.free_slot_bytes) * 1000 >
		stats.total_bytes * permille;
}

bool cache_evict_due(const struct cache *cache)
{
	if (cache->high_permille == cache->low_permille || cache->high_permille == 1000 || cache->evictable_units == 0)
		return false;
	return above(cache, cache->evicting ? cache->low_permille : cache->high_permille);
}

uint32_t cache_evict_step(struct cache *cache, uint32_t limit)
{
	static const uint64_t none[L1_CLASSES_MAX / 64] = { 0 };
	uint32_t evicted = 0;

	while (evicted < limit && (cache->evicting = cache_evict_due(cache))) {
		cache_evict_entry(cache, oldest_of(cache, oldest_class(cache, none)));
		kvr_counter_add(&cache->counters->evicted_chunks, 1);
		evicted++;
	}
	return evicted;
}
