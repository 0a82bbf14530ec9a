/*
 * l1.h - the memory that chunks live in: large areas, carved into runs of objects of one size.
 *
 *   area  (one per NUMA node; pinned and registered by the owner of this struct)
 *   +--------------------+--------------------+-----------+------------------------------+
 *   | run of class A     | run of class B     | free pages| run of class A               |     page: 64 KiB
 *   | obj obj obj obj .. | obj obj obj        |           | obj obj obj obj ..           |
 *   +--------------------+--------------------+-----------+------------------------------+
 *
 * All objects of one registration have one size, so each size gets a class, and a class takes whole runs of pages
 * from the area: as many objects a run as keep the loss below 2 % (one, where objects are larger than 3.2 MiB;
 * objects smaller than 4 KiB take 4 KiB each). Where no pages for a whole run are free, a shorter one is made of what
 * is left at the end of an area. A run whose objects are all free goes back to the pages at once and merges with its
 * neighbours; so a change of models needs no restart. L1's own tables cost 0.15 % of the memory.
 *
 * Areas have an order of preference each: itself, then the others by distance. An object is put in the preferred area as long as that
 * has a free slot or pages for a run, then in the next one: memory of another node is slower, and still much faster than what a miss
 * costs. It stays where it is until it is evicted.
 *
 * Owner: the management core, no other thread; no call allocates, blocks or enters the kernel, except l1_create and
 * l1_destroy. Other threads may use the address of an object that they were handed.
 */
#ifndef KVRAIL_TIER_L1_H
#define KVRAIL_TIER_L1_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define L1_PAGE_BYTES ((uint64_t)65536)
#define L1_AREAS_MAX 64
#define L1_CLASSES_MAX 256
#define L1_OBJECT_ALIGN 64     /* bytes: sizes are rounded up to it */
#define L1_SLOT_BYTES_MIN 4096 /* what the smallest object takes */
#define L1_NO_OWNER UINT32_MAX

/* Names an object: run and slot. 0 names none. */
typedef uint64_t l1_ref;

struct l1_area {
	void *address;  /* aligned to 4 KiB */
	uint64_t bytes; /* the part that is no whole page is not used */
	int numa_node;  /* -1: unknown */
};

struct l1_stats {
	uint64_t total_bytes;     /* usable pages of all areas */
	uint64_t used_bytes;      /* objects in use, as asked for (before rounding) */
	uint64_t rounding_bytes;  /* lost in runs in use: to alignment and run ends */
	uint64_t free_page_bytes; /* pages of no run */
	uint64_t free_slot_bytes; /* free objects in runs that are partly used */
	uint64_t objects;
	uint32_t classes;
	uint32_t runs;
	uint64_t metadata_bytes; /* L1's own tables, beside the areas */
};

struct l1_area_stats {
	int numa_node;
	uint64_t total_bytes, used_bytes, free_page_bytes; /* as above */
};

struct l1;

/* Copies the array; the memory stays the caller's. 0, -EINVAL (no area, or misaligned), -ENOMEM. */
KVR_MUST_CHECK int l1_create(const struct l1_area *areas, uint32_t area_count, struct l1 **l1);
void l1_destroy(struct l1 **l1);
/* Distances between areas, [from * area_count + to], any unit: where an area has no room, objects go to the nearest that has. Without
 * them, and among equally near ones, to the first. At most once, before l1_allocate. */
void l1_set_distances(struct l1 *l1, const uint16_t *distances);

/* The class of objects of that size; the same size gives the same class, and a class that nobody uses any more
 * (l1_class_release) is recycled. 0, -EINVAL (0 bytes), -E2BIG (larger than the largest area), -ENOSPC
 * (L1_CLASSES_MAX in use). */
KVR_MUST_CHECK int l1_class_acquire(struct l1 *l1, uint64_t object_bytes, uint32_t *object_class);
/* Drops one use. Objects of it may still be in use: the class lives until the last is freed. */
void l1_class_release(struct l1 *l1, uint32_t object_class);
uint64_t l1_class_bytes(const struct l1 *l1, uint32_t object_class);
/* What an object of the class takes: its bytes rounded up, without its share of the run's end. */
uint64_t l1_class_slot_bytes(const struct l1 *l1, uint32_t object_class);
/* How many more objects of this class fit now without eviction (pages that no run has are counted for it). Exact
 * while free stretches of more than 4 MiB do not resemble each other within 3 %; otherwise it may be a little too
 * high, never too low. */
uint64_t l1_class_room(const struct l1 *l1, uint32_t object_class);

/* 0 when neither a slot nor pages for a new run are free. `preferred_area`: tried first, then those that are nearest to it; owner: any
 * number of the caller's. */
l1_ref l1_allocate(struct l1 *l1, uint32_t object_class, uint32_t preferred_area, uint32_t owner);
void l1_free(struct l1 *l1, l1_ref object);

void *l1_address(const struct l1 *l1, l1_ref object);
uint64_t l1_bytes(const struct l1 *l1, l1_ref object);
uint32_t l1_class_of(const struct l1 *l1, l1_ref object);
uint32_t l1_area_of(const struct l1 *l1, l1_ref object);
/* Numbers of objects for tables beside L1: below l1_slot_count, and no other object's while this one is in use. */
uint64_t l1_slot_count(const struct l1 *l1);
uint64_t l1_slot_index(l1_ref object);
uint32_t l1_owner(const struct l1 *l1, l1_ref object);
void l1_set_owner(struct l1 *l1, l1_ref object, uint32_t owner);

/*
 * Making room for another class. Looks for a stretch of pages around `victim`'s run that would hold one run of
 * `object_class`, asking may_evict(context, owner, object) for every object on it; free pages count as they are. On
 * success the objects to be evicted are in objects[0 .. *count-1] (nothing has been changed). 0, -ENOSPC
 * (an object in the way may not go, or they are more than `capacity`).
 */
KVR_MUST_CHECK int l1_clear_plan(const struct l1 *l1, uint32_t object_class, l1_ref victim,
	bool (*may_evict)(void *context, uint32_t owner, l1_ref object), void *context, l1_ref *objects,
	uint32_t capacity, uint32_t *count);

/*
 * Where an object lies, in words that outlive the process (keep.h): the run's first page in its area and how many slots
 * it has, and the slot.
 */
struct l1_place {
	uint32_t area, page;
	uint32_t run_slots, slot;
};
void l1_place_of(const struct l1 *l1, l1_ref object, struct l1_place *place);
/* Makes the run of these objects again, which have one class and one run, with them in use (owner L1_NO_OWNER):
 * `slots`, ascending. Runs of an area must come in the order of their pages, before anything else was allocated in it.
 * 0, or -EINVAL: no such run can be there; nothing was changed. */
KVR_MUST_CHECK int l1_restore_run(
	struct l1 *l1, uint32_t object_class, const struct l1_place *run, const uint32_t *slots, uint32_t slot_count);
/* The object of a place that l1_restore_run was given. */
l1_ref l1_at(const struct l1 *l1, const struct l1_place *place);

void l1_get_stats(const struct l1 *l1, struct l1_stats *stats);
uint32_t l1_area_count(const struct l1 *l1);
void l1_get_area_stats(const struct l1 *l1, uint32_t area, struct l1_area_stats *stats);
/* Walks everything and checks what must hold (tests, `kvrailctl check`): 0, or -EILSEQ after logging the first
 * contradiction. */
int l1_verify(const struct l1 *l1);

KVR_END_C

#endif
