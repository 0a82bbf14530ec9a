/*
 * table.h - buckets of the chunk table: 32 bits of hash and an entry number, eight to a cache line. Internal to the
 * cache.
 *
 * Linear probing over buckets. For each element, all buckets from its home up to the one it stands in are full;
 * removing one moves later elements back, so there are no tombstones and a search ends at the first bucket that is
 * not full. The home is the low bits of the stored hash, so elements move between tables without a look at their
 * entries.
 *
 * Growing moves bucket after bucket to a table of twice the size. The old table is then a ring that starts at
 * `first`: the buckets below are gone, and homes below `first` count as `first`.
 */
#ifndef KVRAIL_TIER_TABLE_H
#define KVRAIL_TIER_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/compiler.h"

KVR_BEGIN_C

#define TABLE_BUCKET_SLOTS 8

struct table_bucket {
	uint32_t hash[TABLE_BUCKET_SLOTS];
	uint32_t entry[TABLE_BUCKET_SLOTS]; /* 0: free; the used slots come first */
};
KVR_STATIC_ASSERT(sizeof(struct table_bucket) == KVR_CACHE_LINE, "a probe costs one cache line");

struct table {
	struct table_bucket *buckets; /* NULL: no table */
	uint32_t count;               /* a power of two */
	uint32_t first;
	uint64_t used;
};

struct table_probe {
	uint32_t bucket;
	uint32_t left; /* buckets that may still follow */
	uint32_t mask; /* slots of `bucket` with this hash that have not been returned */
};

static inline uint64_t table_bytes(const struct table *table)
{
	return table->buckets ? (uint64_t)table->count * sizeof(*table->buckets) : 0;
}

static inline uint32_t table_home(const struct table *table, uint32_t hash)
{
	uint32_t home = hash & (table->count - 1);

	return home < table->first ? table->first : home;
}

static inline uint32_t table_after(const struct table *table, uint32_t bucket)
{
	return bucket + 1 < table->count ? bucket + 1 : table->first;
}

static inline bool table_bucket_full(const struct table_bucket *bucket)
{
	return bucket->entry[TABLE_BUCKET_SLOTS - 1] != 0;
}

/* Bit s: slot s has this hash. A free slot may have it too: its entry is 0, and it comes behind the used ones. */
static inline uint32_t table_bucket_match(const struct table_bucket *bucket, uint32_t hash)
{
#if defined(__SSE2__)
	__m128i wanted = _mm_set1_epi32((int)hash);
	__m128i low = _mm_load_si128((const __m128i *)(const void *)&bucket->hash[0]);
	__m128i high = _mm_load_si128((const __m128i *)(const void *)&bucket->hash[4]);

	return (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(low, wanted))) |
		(uint32_t)_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(high, wanted))) << 4;
#else
	uint32_t mask = 0;

	for (uint32_t slot = 0; slot < TABLE_BUCKET_SLOTS; slot++)
		mask |= (uint32_t)(bucket->hash[slot] == hash) << slot;
	return mask;
#endif
}

static inline void table_prefetch(const struct table *table, uint32_t hash)
{
	__builtin_prefetch(&table->buckets[table_home(table, hash)]);
}

/* An entry number in the home bucket with this hash, 0: none there. The one that is looked for, nearly always. */
static inline uint32_t table_guess(const struct table *table, uint32_t hash)
{
	const struct table_bucket *bucket = &table->buckets[table_home(table, hash)];
	uint32_t mask = table_bucket_match(bucket, hash);

	return mask ? bucket->entry[__builtin_ctz(mask)] : 0;
}

static inline void table_probe_start(const struct table *table, uint32_t hash, struct table_probe *probe)
{
	probe->bucket = table_home(table, hash);
	probe->left = table->count - table->first;
	probe->mask = probe->left ? table_bucket_match(&table->buckets[probe->bucket], hash) : 0;
}

/* The next entry number with this hash, 0: no more. */
static inline uint32_t table_probe_next(const struct table *table, uint32_t hash, struct table_probe *probe)
{
	while (probe->left > 0) {
		const struct table_bucket *bucket = &table->buckets[probe->bucket];

		if (probe->mask) {
			uint32_t entry = bucket->entry[__builtin_ctz(probe->mask)];

			probe->mask &= probe->mask - 1;
			if (entry)
				return entry;
			return 0;
		}
		if (!table_bucket_full(bucket) || --probe->left == 0)
			return 0;
		probe->bucket = table_after(table, probe->bucket);
		probe->mask = table_bucket_match(&table->buckets[probe->bucket], hash);
	}
	return 0;
}

/* The table must have a free slot. entry is not 0. */
void table_insert(struct table *table, uint32_t hash, uint32_t entry);
/* False when it is not there. */
bool table_remove(struct table *table, uint32_t hash, uint32_t entry);
/* Moves the first bucket of `from` to `to`. */
void table_move_first(struct table *from, struct table *to);
/* What must hold: 0, or -EILSEQ after logging the first contradiction. */
int table_verify(const struct table *table);

KVR_END_C

#endif
