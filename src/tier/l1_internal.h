/*
 * l1_internal.h - the structs of L1, for its own files and tests.
 *
 *   l1_ref:  bits 63..32: first page of the run, plus 1     bits 31..0: slot in the run
 *   owners:  16 numbers a page; a run uses those from 16 * (first page) on, one a slot: the owner of an object in use,
 *            the next free slot of a freed one. So 4 KiB is the smallest slot.
 */
#ifndef KVRAIL_TIER_L1_INTERNAL_H
#define KVRAIL_TIER_L1_INTERNAL_H

#include "tier/l1.h"
#include "tier/l1_pages.h"

KVR_BEGIN_C

#define L1_SLOTS_PER_PAGE (L1_PAGE_BYTES / L1_SLOT_BYTES_MIN)
#define L1_RUN_SLOTS_MAX 4096
#define L1_NO_SLOT UINT32_MAX

struct l1_class {
	uint64_t bytes;      /* as asked for; 0: this class number is unused */
	uint64_t slot_bytes; /* distance between objects of a run */
	uint32_t run_slots;  /* of a full run */
	uint32_t run_pages;
	uint32_t users; /* l1_class_acquire without l1_class_release */
	uint32_t runs;
	uint64_t objects;
	uint64_t free_slots;    /* in its runs */
	uint64_t partial_areas; /* bit a: partial[a] is not empty */
	uint32_t *partial;      /* for each area: the first run with free slots */
};

struct l1_region { /* an area, and its pages */
	char *address;
	int numa_node;
	struct l1_extents extents;
	uint8_t order[L1_AREAS_MAX]; /* all areas, this one first, then the nearest */
	uint64_t used_bytes;
};

struct l1 {
	struct l1_page *pages;
	uint32_t *owners;
	struct l1_region *regions;
	struct l1_class *classes; /* L1_CLASSES_MAX */
	uint32_t *partial;        /* what the classes' `partial` point into */
	uint32_t region_count;
	uint32_t page_count;
	uint32_t region_pages_max;
	uint32_t class_count;
	uint32_t runs;
	uint64_t objects;
	uint64_t run_pages;  /* pages of runs */
	uint64_t used_bytes; /* as asked for */
	uint64_t slot_bytes; /* of all slots of runs, used or free, as asked for */
};

static inline uint32_t l1_ref_page(l1_ref object)
{
	return (uint32_t)(object >> 32) - 1;
}

static inline uint32_t l1_ref_slot(l1_ref object)
{
	return (uint32_t)object;
}

static inline l1_ref l1_make_ref(uint32_t page, uint32_t slot)
{
	return ((uint64_t)page + 1) << 32 | slot;
}

static inline uint32_t *l1_run_owners(const struct l1 *l1, uint32_t page)
{
	return l1->owners + (uint64_t)page * L1_SLOTS_PER_PAGE;
}

/* Pages of a run of so many slots. */
static inline uint32_t l1_run_pages(const struct l1_class *class_, uint64_t slots)
{
	return (uint32_t)((slots * class_->slot_bytes + L1_PAGE_BYTES - 1) / L1_PAGE_BYTES);
}

/* Bit s of `map` (L1_RUN_SLOTS_MAX bits): slot s of the run is in use. */
void l1_run_map(const struct l1 *l1, uint32_t page, uint64_t map[L1_RUN_SLOTS_MAX / 64]);
/* Puts a run with free slots on the list of its class and area. */
void l1_partial_add(struct l1 *l1, uint32_t run);
/* Makes the class number unused when nobody and nothing uses it any more. */
void l1_class_forget(struct l1 *l1, struct l1_class *class_);
/* Slots and pages of the shortest run that loses less than 2 %, or of the best one that fits `pages_max`. */
void l1_size_run(struct l1_class *class_, uint32_t pages_max);
/* How many objects go into one run in `pages` pages, at most those of a full run. */
uint32_t l1_run_slots_in(const struct l1_class *class_, uint32_t pages);

KVR_END_C

#endif
