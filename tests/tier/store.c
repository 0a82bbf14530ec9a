#include "tier/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

static void init(struct store *store, uint64_t object_bytes, uint32_t slots, uint32_t parts,
	const struct cache_tuning *tuning, enum cache_eviction eviction)
{
	static const struct cache_tuning as_shipped;
	struct cache_options options = {
		.spaces_max = 8, .chunks_initial = 64, .high_permille = 1000, .low_permille = 1000, .eviction = eviction
	};

	memset(store, 0, sizeof(*store));
	store->area = area_reserve(object_bytes * slots);
	assert_int_equal(l1_create(&store->area, 1, &store->l1), 0);
	assert_int_equal(l1_class_acquire(store->l1, object_bytes, &store->object_class), 0);
	options.l1 = store->l1;
	assert_int_equal(cache_create_tuned(&options, tuning ? tuning : &as_shipped, &store->cache), 0);
	store->space = store_space(store, 1, 0, parts);
}

void store_init(
	struct store *store, uint64_t object_bytes, uint32_t slots, uint32_t parts, const struct cache_tuning *tuning)
{
	init(store, object_bytes, slots, parts, tuning, CACHE_EVICT_LRU);
}

void store_init_segmented(struct store *store, uint64_t object_bytes, uint32_t slots, uint32_t parts)
{
	init(store, object_bytes, slots, parts, NULL, CACHE_EVICT_SEGMENTED);
}

void store_fini(struct store *store)
{
	struct l1_stats stats;

	assert_int_equal(cache_verify(store->cache, true), 0);
	cache_destroy(&store->cache);
	cache_destroy(&store->cache);
	l1_get_stats(store->l1, &stats);
	assert_int_equal(stats.objects, 0);
	l1_destroy(&store->l1);
	area_release(&store->area);
}

void store_digest(uint64_t chunk, uint8_t digest[CACHE_DIGEST_BYTES])
{
	for (uint64_t i = 0; i < CACHE_DIGEST_BYTES / 8; i++) {
		uint64_t word = random_mix(chunk * 4 + i + 1);

		memcpy(digest + i * 8, &word, 8);
	}
}

uint32_t store_put(struct store *store, uint32_t space, uint64_t chunk, uint32_t part)
{
	l1_ref object = cache_reserve(store->cache, 0, store->object_class, 0, 0);
	uint8_t digest[CACHE_DIGEST_BYTES];
	uint32_t entry = CACHE_NONE;

	assert_int_not_equal(object, 0);
	store_digest(chunk, digest);
	assert_int_equal(cache_publish(store->cache, space, digest, part, object, &entry), 0);
	assert_int_equal(cache_object(store->cache, entry, part), object);
	return entry;
}

uint32_t store_find(const struct store *store, uint32_t space, uint64_t chunk)
{
	uint8_t digest[CACHE_DIGEST_BYTES];

	store_digest(chunk, digest);
	return cache_find(store->cache, space, digest);
}

uint32_t store_space(struct store *store, uint32_t model, uint8_t salt, uint32_t parts)
{
	uint8_t field[32] = { salt };
	uint32_t space = cache_space_acquire(store->cache, model, field, parts);

	assert_int_not_equal(space, CACHE_NONE);
	return space;
}

void store_feed(struct store *store)
{
	uint64_t bytes;
	void *garbage;

	while ((bytes = cache_wants_memory(store->cache)) > 0)
		cache_supply_memory(store->cache, cache_allocate_memory(bytes), bytes);
	while ((garbage = cache_take_garbage(store->cache)) != NULL)
		free(garbage);
}

struct cache_stats store_stats(const struct store *store)
{
	struct cache_stats stats;

	cache_get_stats(store->cache, &stats);
	return stats;
}
