/*
 * heap.h - the program's heap, where jemalloc is linked: arenas for threads with a core of their own, and numbers for the pages.
 *
 * jemalloc replaces malloc and free of the whole program. Without it (sanitizers, the portable build) everything here does nothing and
 * the numbers are 0.
 */
#ifndef KVRAIL_APP_COMMON_HEAP_H
#define KVRAIL_APP_COMMON_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "mgmt/status_page.h"

KVR_BEGIN_C

/* Is jemalloc there? */
bool heap_known(void);
/* In a thread with a core of its own, as it begins: what it allocates and frees from now on is in an arena that no other thread uses.
 * False: it shares the others'. */
bool heap_own_arena(void);
/* Any thread; takes locks of the allocator for a moment. rss_bytes is there without jemalloc too. */
void heap_numbers(struct status_heap *heap);

KVR_END_C

#endif
