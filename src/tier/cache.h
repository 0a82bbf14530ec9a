/*
 * cache.h - what is in L1: the chunk table, who may take it away, and eviction.
 *
 * One entry per chunk of one space, with one object per rank and group inside, so that a lookup for eight ranks costs
 * one probe a chunk. A space is (model identity, salt): two chunks with equal digests in different spaces are
 * different entries, always.
 *
 * States of one object of a chunk:
 *
 *   absent --cache_reserve--> staged (invisible: only the writer has the reference)
 *   staged --cache_publish--> resident   (or freed, if the object became resident meanwhile: first to publish wins)
 *   staged --cache_abort----> freed
 *   resident --evict, clear--> freed     (whole entries: the objects of all ranks; never one that is held)
 *
 * An entry is held while its locks (sessions that are going to read it) or pins (transfers that move it) are not
 * zero. A held entry is on no eviction list; when the last hold goes it becomes the most recently used one. So
 * eviction always finds its victim at once, whatever is locked.
 *
 * Order of eviction: least recently used first. What counts as use: publishing, the end of the last hold,
 * cache_touch. Callers touch the chunks of a chain from the last to the first, so that late chunks of a prefix go
 * before early ones. There is a list for each account and object class (an entry is on that of its first object), and
 * the oldest of all lists is the next victim. Where its pages cannot be cleared for the class that is wanted, that
 * class's own list gives one: a class that has anything evictable always gets room.
 *
 * Segments (CACHE_EVICT_SEGMENTED): a chunk that came and was not asked for since is fresh; a lock makes it reused, and so does coming
 * again soon after it was evicted (ghosts.h). The fresh ones give while they are half of what can be evicted, or more, else the reused
 * ones, the least recently used first in either: what is read once cannot take the place of what is read again and again. After
 * "Caching strategies to improve disk system performance" (Karedla, Love, Wherry, 1994) and "2Q" (Johnson, Shasha, 1994).
 *
 * Accounts tell apart whose memory it is (tenants): every model belongs to one, and what its objects take, resident and
 * staged, is counted there. An account may have two limits. Above the soft one its entries are the first to be evicted
 * when anybody needs room. Past the hard one nothing is reserved: its own entries make room, and nobody else's; where
 * these are held, there is none. A limit below what an account holds evicts nothing by itself.
 *
 * Table: open addressing over 64-byte buckets, full keys compared (pitfalls E09), grows a bucket at a time while it
 * is used. The memory that growing needs comes from outside (cache_wants_memory), since a step may not allocate.
 *
 * Owner: the management core. No call allocates, blocks or enters the kernel except cache_create, cache_destroy and
 * cache_allocate_memory, which is for a helper thread. Entries and spaces that are passed in must exist.
 */
#ifndef KVRAIL_TIER_CACHE_H
#define KVRAIL_TIER_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "tier/l1.h"

KVR_BEGIN_C

#define CACHE_NONE UINT32_MAX
#define CACHE_DIGEST_BYTES 32
#define CACHE_PARTS_MAX 256 /* objects of one chunk: ranks x groups */

/* Who writes down what is resident (keep.h). Called by the owner. */
struct cache_keeper {
	void *context; /* the functions may be NULL together: nobody */
	/* The object has become visible. */
	void (*published)(void *context, uint32_t model, const uint8_t *salt, const uint8_t *digest, uint32_t part,
		uint32_t parts, l1_ref object);
	/* It is not visible any more; its memory is freed after the call. */
	void (*freed)(void *context, l1_ref object);
};

#define CACHE_ACCOUNTS_MAX 128u
#define CACHE_MODELS_MAX 1024u /* model numbers from here on belong to account 0 */

enum cache_eviction { CACHE_EVICT_LRU, CACHE_EVICT_SEGMENTED };

struct cache_options {
	struct l1 *l1;           /* stays the caller's, outlives the cache; only the cache calls it from now on */
	uint32_t accounts;       /* 0: one */
	uint32_t spaces_max;     /* (model identity, salt) pairs in use at once */
	uint32_t chunks_initial; /* room for so many entries at start; grows */
	uint32_t high_permille;  /* cache_evict_step works above this share of L1 in use ... */
	uint32_t low_permille;   /* ... down to this one; equal or 1000: only on demand */
	enum cache_eviction eviction;
	struct cache_keeper keeper;
	uint64_t seed; /* of the table's hash, for runs that are replayed; 0: from the kernel */
};

struct cache_counters { /* written by the owner with kvr_counter_add, read by anybody */
	uint64_t published, present, aborted, evicted_chunks, evicted_bytes, evicted_on_demand, evicted_for_class;
	uint64_t no_room, collisions, cleared_chunks, grown;
	uint64_t evicted_above_soft; /* of evicted_chunks: they went before others because of their account's limit */
	uint64_t evicted_for_quota;  /* of evicted_chunks: they made room for others of their own account */
	uint64_t quota_refused;      /* objects for which a hard limit left no room */
	/* CACHE_EVICT_SEGMENTED */
	uint64_t returned;       /* chunks that came again soon after they were evicted */
	uint64_t evicted_reused; /* of evicted_chunks: from the reused segment */
};

struct cache_stats {
	uint64_t chunks;  /* entries */
	uint64_t objects; /* resident */
	uint64_t staged;  /* objects reserved and neither published nor aborted */
	uint64_t resident_bytes;
	uint64_t staged_bytes;
	uint64_t locks, pins; /* sums over entries */
	uint64_t held_chunks;
	uint64_t spaces;
	uint64_t table_bytes; /* buckets, entries, parts, ghosts: what L1 costs beside itself */
	bool segmented;       /* its eviction is CACHE_EVICT_SEGMENTED */
	uint64_t fresh_bytes; /* CACHE_EVICT_SEGMENTED: of the fresh segment, as far as they are not held */
};

/* Limits of what an account's objects take, resident and staged, each rounded up to 64 bytes. 0: none. */
struct cache_quota {
	uint64_t soft_bytes, hard_bytes;
};

/* Of one account; bytes as quotas count them. */
struct cache_account_stats {
	uint64_t resident_bytes;
	uint64_t staged_bytes;
	uint64_t evictable_bytes; /* of the resident ones: not held */
	struct cache_quota quota;
	uint64_t evicted_chunks;       /* for room, whoever wanted it */
	uint64_t quota_evicted_chunks; /* of them, because of its own limits */
	uint64_t quota_refused;        /* objects for which its hard limit left no room */
};

struct cache;

/* 0, -EINVAL, -ENOMEM. */
KVR_MUST_CHECK int cache_create(const struct cache_options *options, struct cache **cache);
/* Gives every resident object back to L1; staged ones are their holders' to abort before. Harmless on NULL in
 * *cache. */
void cache_destroy(struct cache **cache);
const struct cache_counters *cache_get_counters(const struct cache *cache);
void cache_get_stats(const struct cache *cache, struct cache_stats *stats);
/* As l1_verify, over table, lists and counts; with `expect_idle` also that no locks, pins and staged objects exist. 0
 * or -EILSEQ. */
int cache_verify(const struct cache *cache, bool expect_idle);

/* ---- accounts ---- */

/* The chunks of a model are the account's (0 before). While the model has no spaces. */
void cache_set_account(struct cache *cache, uint32_t model, uint32_t account);
uint32_t cache_space_account(const struct cache *cache, uint32_t space);
uint32_t cache_account_count(const struct cache *cache);
void cache_get_account(const struct cache *cache, uint32_t account, struct cache_account_stats *stats);
/* Evicts nothing. */
void cache_set_quota(struct cache *cache, uint32_t account, const struct cache_quota *quota);
/* True while `count` more objects of a class could be within the account's hard limit: what is left of it, and what is
 * its own and evictable. A bound, as cache_could_reserve. */
bool cache_quota_allows(const struct cache *cache, uint32_t account, uint32_t object_class, uint64_t count);
/* Counts objects that were refused because of the hard limit. */
void cache_quota_refused(struct cache *cache, uint32_t account, uint64_t count);
/* True while one more object of a class would pass the hard limit: cache_reserve has to evict before. */
bool cache_quota_full(const struct cache *cache, uint32_t account, uint32_t object_class);

/* ---- spaces ---- */

/* Finds or makes the space of (model, salt) and takes a reference. model: a number that the caller gives to a model
 * identity of a tenant; parts: objects per chunk (ranks x groups), the same for every space of a model. CACHE_NONE
 * when spaces_max are in use. */
uint32_t cache_space_acquire(struct cache *cache, uint32_t model, const uint8_t salt[32], uint32_t parts);
/* A space without references stays while it has chunks and goes with the last. */
void cache_space_release(struct cache *cache, uint32_t space);
/* One more reference to a space that has some. */
void cache_space_retain(struct cache *cache, uint32_t space);
/* Chunks in all spaces of a model: a model number may be given to another identity only when it is 0. */
uint64_t cache_model_chunks(const struct cache *cache, uint32_t model);

/* ---- looking ---- */

/* The entry of a chunk or CACHE_NONE. */
uint32_t cache_find(const struct cache *cache, uint32_t space, const uint8_t *digest);
/* How many of the first `count` (<= 4096) chunks are there with the objects of all parts, counted up to the first
 * that is not, and their entries. Prefetches ahead; takes no lock. digests: 32 * count bytes. */
uint32_t cache_match(
	const struct cache *cache, uint32_t space, const uint8_t *digests, uint32_t count, uint32_t *entries);
/* The object of one part of an entry, 0 when absent. */
l1_ref cache_object(const struct cache *cache, uint32_t entry, uint32_t part);
/* What its objects take, as quotas count it. */
uint64_t cache_entry_bytes(const struct cache *cache, uint32_t entry);
/* True when the entry has the objects of all parts. */
bool cache_complete(const struct cache *cache, uint32_t entry);

/* ---- holding ---- */

void cache_lock(struct cache *cache, uint32_t entry, uint32_t count);
/* The same for `entry_count` entries of one space, which may be named twice: `count` locks each. */
void cache_lock_all(struct cache *cache, const uint32_t *entries, uint32_t entry_count, uint32_t count);
/* count must not exceed the locks taken: who holds what is the session's book, checked there; a debug assertion
 * here. */
void cache_unlock(struct cache *cache, uint32_t entry, uint32_t count);
/* The same for `entry_count` entries of one space, from the last to the first, which may be named twice. */
void cache_unlock_all(struct cache *cache, const uint32_t *entries, uint32_t entry_count, uint32_t count);
void cache_pin(struct cache *cache, uint32_t entry);
void cache_unpin(struct cache *cache, uint32_t entry);
/* Makes an entry that is not held the most recently used one. */
void cache_touch(struct cache *cache, uint32_t entry);
/* Makes an entry that is not held the least recently used one of its list, and fresh: it is kept elsewhere. */
void cache_demote(struct cache *cache, uint32_t entry);

/* For an entry that is held: once nobody holds it any more it is evicted before all that is not temporary, the ones that were let
 * go first before the later ones. Being held anew makes it lasting again; a touch does not. */
void cache_make_temporary(struct cache *cache, uint32_t entry);

/* ---- writing ---- */

/* Memory for one object of an account, of a class that the caller has acquired. Evicts what it must, at most `evict_limit` entries
 * (0: none), after checking that evicting will help. One is enough when the class has something evictable; another
 * class gives up its pages only when the limit covers all entries of a run's length. 0 (l1_ref) when there is no
 * room: nothing was evicted then, unless the account is so far above its hard limit that one call is not to bring it
 * below: cache_quota_allows and cache_quota_full both say so, and calling again goes on. */
l1_ref cache_reserve(
	struct cache *cache, uint32_t account, uint32_t object_class, uint32_t preferred_area, uint32_t evict_limit);
/* True while reserving `count` objects of a class could succeed: free slots and pages plus what is evictable. A
 * bound, cheap; exact where all objects are of one class and entries have one part. */
bool cache_could_reserve(const struct cache *cache, uint32_t object_class, uint64_t count);
/* Makes a staged object visible. 0: published; -EEXIST: another one is resident already, ours has been freed;
 * -ENOSPC: the table cannot take another entry now (its memory has not come yet): ours is still staged, try again or
 * abort. *entry is set for 0 and -EEXIST. part: below the space's number of parts. */
KVR_MUST_CHECK int cache_publish(
	struct cache *cache, uint32_t space, const uint8_t *digest, uint32_t part, l1_ref object, uint32_t *entry);
/* Counts an object as staged that l1_restore_run put back. */
void cache_adopt(struct cache *cache, l1_ref object);
/* Gives a staged object back: it was never visible. */
void cache_abort(struct cache *cache, l1_ref object);

/* ---- taking away ---- */

/* Background eviction towards low_permille once high_permille was crossed: at most `limit` entries; returns how
 * many. */
uint32_t cache_evict_step(struct cache *cache, uint32_t limit);
/* True while cache_evict_step has work. */
bool cache_evict_due(const struct cache *cache);
/* Drops one chunk, with the objects of all its parts. False: it is held, nothing was done. */
bool cache_drop(struct cache *cache, uint32_t entry);
/* Drops chunks that are not held, of the models for which wanted(context, model) is true: looks at `limit` entries
 * from *cursor (start with 0), advances it, adds to *dropped and *kept. Returns true when all have been looked at. */
bool cache_clear_step(struct cache *cache, bool (*wanted)(void *context, uint32_t model), void *context,
	uint32_t *cursor, uint32_t limit, uint64_t *dropped, uint64_t *kept);

/* ---- growing ---- */

/* Bytes that the table would like to have next; 0: nothing. The owner has a helper thread allocate them and supplies
 * them; what is wanted may change meanwhile, which does no harm. First buckets (the table is three quarters full),
 * then a spare slab. */
uint64_t cache_wants_memory(const struct cache *cache);
/* For the helper thread: zeroed and touched memory, on huge pages where that can be had, to be freed with free().
 * NULL: none. */
void *cache_allocate_memory(uint64_t bytes);
/* Hands over what cache_allocate_memory gave for that many bytes, as cache_wants_memory said (then or before); NULL:
 * could not be had, it goes on asking. */
void cache_supply_memory(struct cache *cache, void *memory, uint64_t bytes);
/* Memory that the table has done with, for a helper thread to free(); NULL: none. */
void *cache_take_garbage(struct cache *cache);
/* Moves at most `limit` buckets of an unfinished growth; also done a little by every insertion. */
void cache_grow_step(struct cache *cache, uint32_t limit);

KVR_END_C

#endif
