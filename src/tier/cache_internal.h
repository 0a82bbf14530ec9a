/*
 * cache_internal.h - the structs of the cache, for its own files, tests and benchmarks.
 */
#ifndef KVRAIL_TIER_CACHE_INTERNAL_H
#define KVRAIL_TIER_CACHE_INTERNAL_H

#include "tier/cache.h"
#include "tier/entries.h"
#include "tier/ghosts.h"
#include "tier/space.h"
#include "tier/table.h"

KVR_BEGIN_C

#define CACHE_UNIT_BYTES 64
#define CACHE_NO_LIMIT UINT64_MAX
/* Objects that one plan may take, and that all plans of one reservation may look at: they bound the time of a
 * reservation that needs another class's pages. */
#define CACHE_CLEAR_OBJECTS 1024
#define CACHE_CLEAR_LOOKS (2 * CACHE_CLEAR_OBJECTS)

/* Entries that one reservation evicts for the sake of its account's hard limit. */
#define CACHE_QUOTA_EVICTIONS 64u

/* What came and was not asked for since, and what was. An entry's `reused` is the number of its segment. */
enum cache_segment { CACHE_FRESH, CACHE_REUSED, CACHE_SEGMENTS };

/* Units: CACHE_UNIT_BYTES of slots. */
struct account {
	/* Bit c: the segment's eviction list of class c is not empty. */
	uint64_t listed_classes[CACHE_SEGMENTS][L1_CLASSES_MAX / 64];
	uint64_t units, staged_units, evictable_units;
	uint64_t soft_units, hard_units; /* CACHE_NO_LIMIT: none */
	struct cache_quota quota;        /* as it was given */
	uint64_t evicted, quota_evicted, quota_refused;
};

/* A set of accounts. */
struct accounts {
	uint64_t bits[CACHE_ACCOUNTS_MAX / 64];
};

struct cache {
	struct table table;
	struct table old; /* while growing: what has not been moved yet */
	struct entries entries;
	struct space_table spaces;
	struct l1 *l1;
	struct cache_keeper keeper;
	struct cache_counters *counters; /* apart: others read them while the owner writes the rest */
	uint64_t key[5];                 /* random: who chooses digests cannot choose their buckets */
	uint32_t hash_mask;
	uint64_t stamp, temporary_stamp; /* the newest of either kind */
	struct account *accounts;
	uint32_t account_count;
	uint32_t last_space, last_account; /* cache_account_now */
	struct accounts with_soft;         /* those that have a soft limit */
	uint64_t evictable_units;
	/* CACHE_EVICT_SEGMENTED. Else all entries are fresh, and neither of these is kept. */
	bool segmented;
	uint64_t fresh_units; /* of evictable_units: in the fresh segment */
	struct ghosts ghosts;
	uint64_t temporary_count; /* entries with a temporary stamp on the lists */
	uint64_t staged, staged_bytes;
	uint64_t chunks, objects, resident_bytes;
	uint64_t locks, pins, held_chunks;
	uint32_t high_permille, low_permille;
	bool evicting;       /* between the crossing of high_permille and low_permille */
	uint32_t looks_left; /* of CACHE_CLEAR_LOOKS */
	uint32_t clearing_class;
	bool limits;                              /* what is evicted now goes because of its account's limits */
	const struct accounts *clearing_accounts; /* whose objects may be cleared away */
	l1_ref plan[CACHE_CLEAR_OBJECTS];
	uint32_t plan_owners[CACHE_CLEAR_OBJECTS];
	uint16_t plan_stamps[CACHE_CLEAR_OBJECTS];
	uint8_t account_of_model[CACHE_MODELS_MAX];
};

struct cache_tuning {        /* tests: everything small, so that growth happens all the time */
	bool same_hash;      /* every chunk has the same hash (pitfalls E09) */
	uint32_t slab_shift; /* 0: as shipped; at least 9 */
	uint32_t buckets;    /* at the start; a power of two; 0: from chunks_initial */
};
KVR_MUST_CHECK int cache_create_tuned(
	const struct cache_options *options, const struct cache_tuning *tuning, struct cache **cache);

static inline struct cache_entry *cache_entry_at(const struct cache *cache, uint32_t number)
{
	return entries_at(&cache->entries, number);
}

static inline uint32_t cache_entry_parts(const struct cache *cache, const struct cache_entry *entry)
{
	return cache->spaces.spaces[entry->space].parts;
}

/* The objects of all parts, absent ones 0. Stays valid until the entry is evicted. */
static inline l1_ref *cache_entry_objects(const struct cache *cache, struct cache_entry *entry)
{
	return cache_entry_parts(cache, entry) > 1 ? entries_parts(&cache->entries, entry) : &entry->objects;
}

static inline struct account *cache_account_of(const struct cache *cache, const struct cache_entry *entry)
{
	return &cache->accounts[cache->spaces.spaces[entry->space].account];
}

/* The account of an entry that was just fetched from memory. Chunks of one space come one behind the other, so a branch that is
 * foreseen takes the place of a load that would have to wait for the entry. */
static inline uint32_t cache_account_now(struct cache *cache, const struct cache_entry *entry)
{
	if (KVR_UNLIKELY(entry->space != cache->last_space)) {
		cache->last_space = entry->space;
		cache->last_account = cache->spaces.spaces[entry->space].account;
	}
	return cache->last_account;
}

/* The head of the eviction list of a segment, account and class. */
static inline uint32_t cache_list_head(
	const struct cache *cache, uint32_t segment, uint32_t account, uint32_t object_class)
{
	return 1 + (segment * cache->account_count + account) * L1_CLASSES_MAX + object_class;
}

static inline uint32_t cache_segments(const struct cache *cache)
{
	return cache->segmented ? CACHE_SEGMENTS : 1;
}

/* A staged object's owner says whose it is; entries have numbers below 2^31. */
static inline uint32_t cache_staged_owner(uint32_t account)
{
	return L1_NO_OWNER - account;
}

static inline bool cache_owner_staged(uint32_t owner)
{
	return owner > L1_NO_OWNER - CACHE_ACCOUNTS_MAX;
}

static inline uint64_t cache_class_units(const struct cache *cache, uint32_t object_class)
{
	return l1_class_slot_bytes(cache->l1, object_class) / CACHE_UNIT_BYTES;
}

static inline uint64_t cache_mix(uint64_t a, uint64_t b)
{
	__uint128_t product = (__uint128_t)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* What a chunk's hash and fingerprint are of. */
static inline uint64_t cache_mix_key(const struct cache *cache, uint32_t space, const uint64_t digest[4])
{
	uint64_t low = cache_mix(digest[0] ^ cache->key[0], digest[1] ^ cache->key[1]);
	uint64_t high = cache_mix(digest[2] ^ cache->key[2], (digest[3] ^ cache->key[3]) + space);

	return low ^ high;
}

static inline uint32_t cache_hash(const struct cache *cache, uint32_t space, const uint64_t digest[4])
{
	return (uint32_t)cache_mix_key(cache, space, digest) & cache->hash_mask;
}

static inline bool cache_entry_is(const struct cache_entry *entry, uint32_t space, const uint64_t digest[4])
{
	return entry->space == space &&
		((entry->digest[0] ^ digest[0]) | (entry->digest[1] ^ digest[1]) | (entry->digest[2] ^ digest[2]) |
			(entry->digest[3] ^ digest[3])) == 0;
}

/* The entry, 0: not there. */
uint32_t cache_lookup(const struct cache *cache, uint32_t space, const uint64_t digest[4], uint32_t hash);
/* Puts an entry that is on no list and not held at the front of its segment's list, and takes one off it. */
void cache_list(struct cache *cache, uint32_t number, struct cache_entry *entry);
void cache_unlist(struct cache *cache, struct cache_entry *entry);
/* Frees the objects of an entry that is not held, and the entry. */
void cache_evict_entry(struct cache *cache, uint32_t number);
/* Room in the table for one more element, moving some of an unfinished growth. */
bool cache_table_has_room(struct cache *cache);

KVR_END_C

#endif
