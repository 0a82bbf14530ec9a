/* store.h - a cache over address space that is never touched, and chunks named by numbers, for tests. */
#ifndef KVRAIL_TESTS_TIER_STORE_H
#define KVRAIL_TESTS_TIER_STORE_H

#include "tier/area.h"
#include "tier/cache_internal.h"

struct store {
	struct l1_area area;
	struct l1 *l1;
	struct cache *cache;
	uint32_t object_class;
	uint32_t space; /* model 1, no salt, `parts` */
};

/* L1 of `slots` objects of `object_bytes`, a multiple of 64 KiB, or of 4 KiB below that. tuning may be NULL. */
void store_init(
	struct store *store, uint64_t object_bytes, uint32_t slots, uint32_t parts, const struct cache_tuning *tuning);
void store_init_segmented(struct store *store, uint64_t object_bytes, uint32_t slots, uint32_t parts);
/* Everything must be idle by now. */
void store_fini(struct store *store);

void store_digest(uint64_t chunk, uint8_t digest[CACHE_DIGEST_BYTES]);
/* Reserves without eviction and publishes; the entry. */
uint32_t store_put(struct store *store, uint32_t space, uint64_t chunk, uint32_t part);
/* cache_find by number. */
uint32_t store_find(const struct store *store, uint32_t space, uint64_t chunk);
/* A space of this model and first byte of salt, and parts. */
uint32_t store_space(struct store *store, uint32_t model, uint8_t salt, uint32_t parts);
/* Gives the cache all memory that it wants, and frees its garbage. */
void store_feed(struct store *store);
struct cache_stats store_stats(const struct store *store);

#endif
