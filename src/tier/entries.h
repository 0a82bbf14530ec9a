/*
 * entries.h - the memory of the cache: slabs of entries, slabs of part lists, and how more of it comes. Internal to
 * the cache.
 *
 * A slab is 2 MiB (less in tests) and belongs to the entries or to the part lists of one size. Entry numbers are
 * stable. One spare slab is kept ahead, so that a step hardly ever finds none; whoever took it makes
 * cache_wants_memory ask for the next.
 */
#ifndef KVRAIL_TIER_ENTRIES_H
#define KVRAIL_TIER_ENTRIES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "tier/l1.h"

KVR_BEGIN_C

#define ENTRIES_PART_SIZES 8 /* lists of 2, 4 .. 256 objects */
#define ENTRIES_UNITS_MAX INT32_MAX
#define ENTRIES_FREE UINT32_MAX /* `space` of an entry that is not in use */
#define ENTRIES_LASTING \
	(UINT64_C(1) << 40)     /* stamps from here on: listed as used; below: temporary, all older than these */
#define ENTRIES_HELD UINT16_MAX /* `stamp_high` of an entry that is held; no stamp gets there: 2^48 uses */

/* One chunk. While it is held it is on no list, so holds and links share their place. */
struct cache_entry {
	uint64_t digest[4];
	uint64_t
		objects; /* the space has one part: l1_ref; else the handle of the part list. A list's head: its first temporary one */
	uint32_t space;
	uint32_t units : 31; /* 64 bytes each, of all its objects' slots */
	uint32_t reused : 1; /* it was asked for after it had come: cache.h, segments */
	union {
		struct {
			uint32_t prev, next; /* next: less recently used; of a free entry: the next free one */
		} list;
		uint64_t holds; /* locks in the low half, pins in the high half */
	};
	uint32_t stamp;       /* when it was put on the list: higher is later; low 32 bits. Held: it is temporary */
	uint16_t stamp_high;  /* and the high 16; ENTRIES_HELD while it is held */
	uint8_t object_class; /* of the object that came first */
	uint8_t absent;       /* parts without an object */
};
KVR_STATIC_ASSERT(sizeof(struct cache_entry) == KVR_CACHE_LINE, "a chunk costs one cache line");

struct part_slab {
	uint64_t *memory; /* NULL: this number is unused */
	uint32_t used;
	uint32_t fresh; /* lists from here on have never been used */
	uint32_t free_first;
	uint32_t prev, next; /* among slabs with free lists of the same size; unused numbers: next */
	uint8_t size;        /* lists of 2 << size objects */
};

struct entries {
	struct cache_entry **slabs;
	uint32_t heads; /* entries that are none: 0, and from 1 on the heads of the eviction lists */
	struct part_slab *part_slabs;
	uint32_t slab_shift; /* entries of a slab: 1 << slab_shift */
	uint32_t slab_count, slab_limit;
	uint32_t part_slab_count; /* numbers given out so far */
	uint32_t part_slab_limit;
	uint32_t part_slab_unused; /* first of the unused numbers below part_slab_count */
	uint32_t partial[ENTRIES_PART_SIZES];
	uint32_t fresh; /* entries from here on have never been used */
	uint32_t free_first;
	uint64_t slabs_held; /* slabs in use, the spare one included */
	void *spare;
	void *garbage; /* list through the first word */
};

static inline struct cache_entry *entries_at(const struct entries *entries, uint32_t number)
{
	return &entries->slabs[number >> entries->slab_shift][number & ((UINT32_C(1) << entries->slab_shift) - 1)];
}

static inline bool entries_held(const struct cache_entry *entry)
{
	return entry->stamp_high == ENTRIES_HELD;
}

static inline uint32_t entries_locks(const struct cache_entry *entry)
{
	return (uint32_t)entry->holds;
}

static inline uint32_t entries_pins(const struct cache_entry *entry)
{
	return (uint32_t)(entry->holds >> 32);
}

static inline uint64_t entries_stamp(const struct cache_entry *entry)
{
	return (uint64_t)entry->stamp_high << 32 | entry->stamp;
}

static inline uint64_t *entries_parts(const struct entries *entries, const struct cache_entry *entry)
{
	return entries->part_slabs[entry->objects >> 32].memory + (uint32_t)entry->objects;
}

static inline uint64_t entries_slab_bytes(const struct entries *entries)
{
	return (uint64_t)sizeof(struct cache_entry) << entries->slab_shift;
}

/* Room for `initial` entries and a spare slab, beside the heads of `lists` eviction lists; never more than `limit` entries. 0,
 * -ENOMEM. */
KVR_MUST_CHECK int entries_init(
	struct entries *entries, uint32_t slab_shift, uint32_t lists, uint32_t initial, uint32_t limit);
void entries_fini(struct entries *entries);

/* The number of a free entry with a list of `parts` (> 1: zeroed, its handle in `objects`), 0: no memory. */
uint32_t entries_take(struct entries *entries, uint32_t parts);
void entries_give(struct entries *entries, uint32_t number, uint32_t parts);

/* Whether a spare slab is wanted, and giving it. */
bool entries_want_slab(const struct entries *entries);
void entries_add_slab(struct entries *entries, void *memory);
void entries_discard(struct entries *entries, void *memory);
void *entries_take_garbage(struct entries *entries);
/* Free lists and counts: 0, or -EILSEQ after logging the first contradiction. */
int entries_verify(const struct entries *entries);

KVR_END_C

#endif
