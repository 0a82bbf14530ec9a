#include "tier/cache.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "tier/cache_internal.h"

/* ---- looking ---- */

static uint32_t probe(
	const struct cache *cache, const struct table *table, uint32_t space, const uint64_t digest[4], uint32_t hash)
{
	struct table_probe probe;
	uint32_t number;

	table_probe_start(table, hash, &probe);
	while ((number = table_probe_next(table, hash, &probe)) != 0) {
		if (cache_entry_is(cache_entry_at(cache, number), space, digest))
			return number;
		kvr_counter_add(&cache->counters->collisions, 1);
	}
	return 0;
}

uint32_t cache_lookup(const struct cache *cache, uint32_t space, const uint64_t digest[4], uint32_t hash)
{
	uint32_t number = probe(cache, &cache->table, space, digest, hash);

	if (number == 0 && cache->old.buckets)
		number = probe(cache, &cache->old, space, digest, hash);
	return number;
}

uint32_t cache_find(const struct cache *cache, uint32_t space, const uint8_t *digest)
{
	uint64_t words[4];
	uint32_t number;

	memcpy(words, digest, sizeof(words));
	number = cache_lookup(cache, space, words, cache_hash(cache, space, words));
	return number != 0 ? number : CACHE_NONE;
}

/* A chunk on its way through cache_match: bucket asked for, then entry asked for, then compared. */
struct match_step {
	uint64_t digest[4];
	uint32_t hash;
	uint32_t guess;
};

#define MATCH_AHEAD 12u /* chunks between two stages: about as many cache misses as a core has in flight */
#define MATCH_STEPS 32u /* at least 2 * MATCH_AHEAD + 1, a power of two */

static void match_bucket(const struct cache *cache, uint32_t space, const uint8_t *digest, struct match_step *step)
{
	memcpy(step->digest, digest, sizeof(step->digest));
	step->hash = cache_hash(cache, space, step->digest);
	table_prefetch(&cache->table, step->hash);
	if (cache->old.buckets)
		table_prefetch(&cache->old, step->hash);
}

static void match_entry(const struct cache *cache, struct match_step *step)
{
	step->guess = table_guess(&cache->table, step->hash);
	if (step->guess == 0 && cache->old.buckets)
		step->guess = table_guess(&cache->old, step->hash);
	if (step->guess != 0)
		__builtin_prefetch(cache_entry_at(cache, step->guess), 1);
}

static uint32_t match_compare(const struct cache *cache, uint32_t space, uint32_t parts, const struct match_step *step)
{
	uint32_t number = step->guess;

	if (number == 0 || !cache_entry_is(cache_entry_at(cache, number), space, step->digest))
		number = cache_lookup(cache, space, step->digest, step->hash);
	return number != 0 && cache_entry_at(cache, number)->present == parts ? number : 0;
}

uint32_t cache_match(
	const struct cache *cache, uint32_t space, const uint8_t *digests, uint32_t count, uint32_t *entries)
{
	struct match_step steps[MATCH_STEPS];
	uint32_t parts = cache->spaces.spaces[space].parts;

	for (uint32_t i = 0; i < count + 2 * MATCH_AHEAD; i++) {
		uint32_t number;

		if (i < count)
			match_bucket(cache, space, digests + (uint64_t)i * CACHE_DIGEST_BYTES, &steps[i % MATCH_STEPS]);
		if (i >= MATCH_AHEAD && i - MATCH_AHEAD < count)
			match_entry(cache, &steps[(i - MATCH_AHEAD) % MATCH_STEPS]);
		if (i < 2 * MATCH_AHEAD)
			continue;
		number = match_compare(cache, space, parts, &steps[(i - 2 * MATCH_AHEAD) % MATCH_STEPS]);
		if (number == 0)
			return i - 2 * MATCH_AHEAD;
		entries[i - 2 * MATCH_AHEAD] = number;
	}
	return count;
}

l1_ref cache_object(const struct cache *cache, uint32_t entry, uint32_t part)
{
	struct cache_entry *e = cache_entry_at(cache, entry);

	return part < cache_entry_parts(cache, e) ? cache_entry_objects(cache, e)[part] : 0;
}

bool cache_complete(const struct cache *cache, uint32_t entry)
{
	const struct cache_entry *e = cache_entry_at(cache, entry);

	return e->present == cache_entry_parts(cache, e);
}

/* ---- holding ---- */

void cache_list(struct cache *cache, uint32_t number, struct cache_entry *entry)
{
	uint32_t head = 1 + (uint32_t)entry->object_class;
	struct cache_entry *first = cache_entry_at(cache, head);

	entry->list.prev = head;
	entry->list.next = first->list.next;
	cache_entry_at(cache, first->list.next)->list.prev = number;
	first->list.next = number;
	entry->stamp = ++cache->stamp;
	cache->listed_classes[entry->object_class / 64] |= UINT64_C(1) << (entry->object_class % 64);
}

void cache_unlist(struct cache *cache, struct cache_entry *entry)
{
	cache_entry_at(cache, entry->list.prev)->list.next = entry->list.next;
	cache_entry_at(cache, entry->list.next)->list.prev = entry->list.prev;
	if (entry->list.prev == entry->list.next) /* both are the head: it was the last one */
		cache->listed_classes[entry->object_class / 64] &= ~(UINT64_C(1) << (entry->object_class % 64));
}

static void hold(struct cache *cache, struct cache_entry *entry)
{
	cache_unlist(cache, entry);
	entry->held = 1;
	entry->holds.locks = 0;
	entry->holds.pins = 0;
	cache->evictable_units -= entry->units;
	cache->held_chunks++;
}

static void let_go(struct cache *cache, uint32_t number, struct cache_entry *entry)
{
	if (entry->holds.locks > 0 || entry->holds.pins > 0)
		return;
	entry->held = 0;
	cache->evictable_units += entry->units;
	cache->held_chunks--;
	cache_list(cache, number, entry);
}

void cache_lock(struct cache *cache, uint32_t entry, uint32_t count)
{
	struct cache_entry *e = cache_entry_at(cache, entry);

	if (count == 0)
		return;
	if (!e->held)
		hold(cache, e);
	assert(e->holds.locks <= UINT32_MAX - count);
	e->holds.locks += count;
	cache->locks += count;
}

void cache_unlock(struct cache *cache, uint32_t entry, uint32_t count)
{
	struct cache_entry *e = cache_entry_at(cache, entry);

	if (count == 0)
		return;
	assert(e->held && e->holds.locks >= count);
	e->holds.locks -= count;
	cache->locks -= count;
	let_go(cache, entry, e);
}

void cache_pin(struct cache *cache, uint32_t entry)
{
	struct cache_entry *e = cache_entry_at(cache, entry);

	if (!e->held)
		hold(cache, e);
	assert(e->holds.pins < UINT32_MAX);
	e->holds.pins++;
	cache->pins++;
}

void cache_unpin(struct cache *cache, uint32_t entry)
{
	struct cache_entry *e = cache_entry_at(cache, entry);

	assert(e->held && e->holds.pins > 0);
	e->holds.pins--;
	cache->pins--;
	let_go(cache, entry, e);
}

void cache_touch(struct cache *cache, uint32_t entry)
{
	struct cache_entry *e = cache_entry_at(cache, entry);

	if (e->held)
		return;
	cache_unlist(cache, e);
	cache_list(cache, entry, e);
}
