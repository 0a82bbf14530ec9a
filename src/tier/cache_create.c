#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/random.h"
#include "tier/cache_internal.h"

#define SLAB_SHIFT 15 /* 2 MiB */
#define SLAB_SHIFT_MIN 9
#define BUCKETS_MIN 8
/* Of L1, for each ghost. */
#define GHOST_BYTES (UINT64_C(128) << 10)
#define GHOSTS_MIN 4096
#define GHOSTS_MAX (UINT32_C(1) << 24)

/* No chunk is smaller than the smallest object, so there are never more entries than that. */
static uint32_t entries_limit(const struct l1 *l1)
{
	struct l1_stats stats;

	l1_get_stats(l1, &stats);
	return (uint32_t)kvr_min_u64(stats.total_bytes / L1_SLOT_BYTES_MIN, UINT32_C(1) << 31);
}

/* Twice as many as chunks of 256 KiB in a full L1; of smaller ones fewer are known when they come back. */
static uint32_t ghosts_for(const struct l1 *l1)
{
	struct l1_stats stats;

	l1_get_stats(l1, &stats);
	return (uint32_t)kvr_min_u64(kvr_max_u64(stats.total_bytes / GHOST_BYTES, GHOSTS_MIN), GHOSTS_MAX);
}

static uint32_t buckets_for(uint32_t chunks)
{
	uint32_t buckets = BUCKETS_MIN;

	/* Three quarters full at most. */
	while ((uint64_t)buckets * TABLE_BUCKET_SLOTS * 3 < (uint64_t)chunks * 4)
		buckets *= 2;
	return buckets;
}

static int init_parts(struct cache *cache, const struct cache_options *options, const struct cache_tuning *tuning)
{
	uint32_t limit = entries_limit(options->l1);
	static const struct cache_quota no_quota = { 0 };
	uint32_t initial = options->chunks_initial < limit ? options->chunks_initial : limit;
	int rc = options->seed ? 0 : random_secret(cache->key, sizeof(cache->key));
	struct random random;

	if (rc)
		return rc;
	random_init(&random, options->seed);
	for (size_t i = 0; options->seed && i < KVR_COUNT_OF(cache->key); i++)
		cache->key[i] = random_next(&random);
	cache->counters = fault_point("cache_create/counters") ? NULL : cache_allocate_memory(sizeof(*cache->counters));
	if (!cache->counters)
		return -ENOMEM;
	cache->accounts = fault_point("cache_create/accounts") ? NULL
							       : calloc(cache->account_count, sizeof(*cache->accounts));
	if (!cache->accounts)
		return -ENOMEM;
	for (uint32_t i = 0; i < cache->account_count; i++)
		cache_set_quota(cache, i, &no_quota);
	cache->table.count = tuning->buckets ? tuning->buckets : buckets_for(initial);
	cache->table.buckets = cache_allocate_memory((uint64_t)cache->table.count * sizeof(struct table_bucket));
	if (!cache->table.buckets)
		return -ENOMEM;
	rc = space_table_init(&cache->spaces, options->spaces_max, cache->key[4]);
	if (rc)
		return rc;
	rc = cache->segmented ? ghosts_init(&cache->ghosts, ghosts_for(options->l1)) : 0;
	if (rc)
		return rc;
	return entries_init(&cache->entries, tuning->slab_shift ? tuning->slab_shift : SLAB_SHIFT,
		cache_segments(cache) * cache->account_count * L1_CLASSES_MAX, initial, limit);
}

int cache_create_tuned(const struct cache_options *options, const struct cache_tuning *tuning, struct cache **cache_out)
{
	struct cache *cache;
	int rc;

	if (!options->l1 || options->spaces_max == 0 || options->spaces_max == CACHE_NONE ||
		options->high_permille > 1000 || options->low_permille > options->high_permille ||
		options->accounts > CACHE_ACCOUNTS_MAX || options->eviction > CACHE_EVICT_SEGMENTED ||
		(tuning->slab_shift && tuning->slab_shift < SLAB_SHIFT_MIN) ||
		(tuning->buckets & (tuning->buckets - 1)) != 0)
		return -EINVAL;
	cache = fault_point("cache_create") ? NULL : cache_allocate_memory(sizeof(*cache));
	if (!cache)
		return -ENOMEM;
	cache->l1 = options->l1;
	cache->last_space = CACHE_NONE;
	/* Below either there is room for what is demoted. */
	cache->stamp = ENTRIES_LASTING + (UINT64_C(1) << 32);
	cache->temporary_stamp = UINT64_C(1) << 32;
	cache->keeper = options->keeper;
	cache->segmented = options->eviction == CACHE_EVICT_SEGMENTED;
	cache->account_count = options->accounts ? options->accounts : 1;
	cache->hash_mask = tuning->same_hash ? 0 : UINT32_MAX;
	cache->high_permille = options->high_permille;
	cache->low_permille = options->low_permille;
	rc = init_parts(cache, options, tuning);
	if (rc) {
		cache_destroy(&cache);
		return rc;
	}
	*cache_out = cache;
	return 0;
}

int cache_create(const struct cache_options *options, struct cache **cache)
{
	static const struct cache_tuning as_shipped = { 0 };

	return cache_create_tuned(options, &as_shipped, cache);
}

static void free_objects(struct cache *cache)
{
	for (uint32_t number = cache->entries.heads; number < cache->entries.fresh; number++) {
		struct cache_entry *entry = cache_entry_at(cache, number);
		uint32_t parts;

		if (entry->space == ENTRIES_FREE)
			continue;
		parts = cache_entry_parts(cache, entry);
		for (uint32_t part = 0; part < parts; part++)
			if (cache_entry_objects(cache, entry)[part] != 0)
				l1_free(cache->l1, cache_entry_objects(cache, entry)[part]);
	}
}

void cache_destroy(struct cache **cache_in)
{
	struct cache *cache = *cache_in;

	if (!cache)
		return;
	if (cache->entries.slabs)
		free_objects(cache);
	entries_fini(&cache->entries);
	ghosts_fini(&cache->ghosts);
	space_table_fini(&cache->spaces);
	free(cache->old.buckets);
	free(cache->table.buckets);
	free(cache->accounts);
	free(cache->counters);
	free(cache);
	*cache_in = NULL;
}

/* ---- spaces ---- */

uint32_t cache_space_acquire(struct cache *cache, uint32_t model, const uint8_t salt[32], uint32_t parts)
{
	uint32_t space;

	if (parts == 0 || parts > CACHE_PARTS_MAX)
		return CACHE_NONE;
	space = space_acquire(&cache->spaces, model, salt, parts);
	cache->last_space = CACHE_NONE; /* its number may have been another's */
	if (space != CACHE_NONE)
		cache->spaces.spaces[space].account = model < CACHE_MODELS_MAX ? cache->account_of_model[model] : 0;
	return space;
}

void cache_space_release(struct cache *cache, uint32_t space)
{
	space_release(&cache->spaces, space);
}

void cache_space_retain(struct cache *cache, uint32_t space)
{
	space_retain(&cache->spaces, space);
}

uint64_t cache_model_chunks(const struct cache *cache, uint32_t model)
{
	return space_model_chunks(&cache->spaces, model);
}

/* ---- figures ---- */

const struct cache_counters *cache_get_counters(const struct cache *cache)
{
	return cache->counters;
}

static uint64_t memory_bytes(const struct cache *cache)
{
	const struct entries *entries = &cache->entries;

	return sizeof(*cache) + sizeof(*cache->counters) + cache->account_count * sizeof(*cache->accounts) +
		table_bytes(&cache->table) + table_bytes(&cache->old) + space_table_bytes(&cache->spaces) +
		entries->slabs_held * entries_slab_bytes(entries) + entries->slab_limit * sizeof(void *) +
		entries->part_slab_limit * sizeof(*entries->part_slabs) + ghosts_bytes(&cache->ghosts);
}

void cache_get_stats(const struct cache *cache, struct cache_stats *stats)
{
	*stats = (struct cache_stats){
		.chunks = cache->chunks,
		.objects = cache->objects,
		.staged = cache->staged,
		.resident_bytes = cache->resident_bytes,
		.staged_bytes = cache->staged_bytes,
		.locks = cache->locks,
		.pins = cache->pins,
		.held_chunks = cache->held_chunks,
		.spaces = cache->spaces.used,
		.table_bytes = memory_bytes(cache),
		.segmented = cache->segmented,
		.fresh_bytes = cache->fresh_units * CACHE_UNIT_BYTES,
	};
}
