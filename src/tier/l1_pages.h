/*
 * l1_pages.h - the pages of one area: free extents by size, and the tags at the ends of every extent. Internal to L1.
 *
 * An extent is a stretch of pages that is free or is one run. Its first page says what it is, its first and last page
 * say how long it is, so the neighbours of an extent are found without a search and free ones merge at once:
 *
 *   | FREE 5 | .. | .. | .. | END 5 | RUN 3 | .. | END 3 | FREE 1 | RUN 2 | END 2 |
 *
 * Free extents hang in bins by their length: one bin for each length below 64 pages, above that 32 bins for each
 * power of two.
 */
#ifndef KVRAIL_TIER_L1_PAGES_H
#define KVRAIL_TIER_L1_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define L1_NO_PAGE UINT32_MAX
#define L1_BINS_EXACT 64
#define L1_BINS_PER_POWER 32
#define L1_BINS (L1_BINS_EXACT + (32 - 6) * L1_BINS_PER_POWER)
#define L1_BIN_WORDS ((L1_BINS + 63) / 64)

enum l1_page_state { L1_PAGE_INNER, L1_PAGE_END, L1_PAGE_FREE, L1_PAGE_RUN };

struct l1_page {
	uint32_t pages; /* all states but INNER: the length of the extent */
	uint8_t state;
	uint8_t area;          /* RUN */
	uint16_t object_class; /* RUN */
	uint32_t prev;         /* FREE: in its bin; RUN with free slots: in the list of its class and area */
	uint32_t next;
	uint32_t capacity;  /* RUN: slots */
	uint32_t used;      /* RUN: slots in use */
	uint32_t free_slot; /* RUN: the first of the list of slots that were freed */
	uint32_t fresh;     /* RUN: slots from here on have never been used and are on no list */
};
KVR_STATIC_ASSERT(sizeof(struct l1_page) == 32, "two pages share a cache line");

struct l1_bin {
	uint32_t first;
	uint32_t extents;
	uint64_t pages;
};

struct l1_extents {     /* one area */
	uint32_t first; /* page number, all areas counted through */
	uint32_t end;   /* one behind the last */
	uint32_t free_pages;
	uint32_t summary;              /* bit w: bitmap[w] is not zero */
	uint64_t bitmap[L1_BIN_WORDS]; /* bins that are not empty */
	struct l1_bin bins[L1_BINS];
};

/* One free extent over all pages. `pages` is the array of all areas; it stays the caller's. */
void l1_extents_init(struct l1_extents *extents, struct l1_page *pages, uint32_t first, uint32_t count);

/* Takes `count` pages off the front of a free extent that fits well; its first page becomes RUN. L1_NO_PAGE: none is
 * long enough. */
uint32_t l1_extents_take(struct l1_extents *extents, struct l1_page *pages, uint32_t count);
/* As l1_extents_take, off the front of this free extent, which has at least `count` pages. */
void l1_extents_take_from(struct l1_extents *extents, struct l1_page *pages, uint32_t extent, uint32_t count);
/* Takes `count` pages from page `at` on out of the middle of a free extent; they are there. */
void l1_extents_take_at(
	struct l1_extents *extents, struct l1_page *pages, uint32_t extent, uint32_t at, uint32_t count);
/* Gives the run that starts at `first` back and merges it with free neighbours. */
void l1_extents_give(struct l1_extents *extents, struct l1_page *pages, uint32_t first);

/* The free extent that ends with the area, L1_NO_PAGE when a run does. */
uint32_t l1_extents_last(const struct l1_extents *extents, const struct l1_page *pages);
/* The extent in front of the one that starts at `first`, and the one behind; L1_NO_PAGE at the area's ends. */
uint32_t l1_extents_before(const struct l1_extents *extents, const struct l1_page *pages, uint32_t first);
uint32_t l1_extents_after(const struct l1_extents *extents, const struct l1_page *pages, uint32_t first);

/* The bin that extents of `count` pages hang in, and the next bin from `bin` on that is not empty (L1_BINS: none). */
uint32_t l1_bin_of(uint32_t count);
uint32_t l1_bin_next(const struct l1_extents *extents, uint32_t bin);

/* Tags, bins and sums agree: 0, or -EILSEQ after logging the first contradiction. */
int l1_extents_verify(const struct l1_extents *extents, const struct l1_page *pages);

KVR_END_C

#endif
