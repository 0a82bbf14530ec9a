/*
 * generation.h - which copy of a chunk a RETRIEVE may deliver.
 *
 * Each STORE fills its blocks with a generation of its own, a number that only grows. When a STORE was acknowledged
 * before another one of the same chunk was begun, and that one was stored too, then the first copy had been evicted:
 * whoever still gets it got memory that was not the chunk's any more. STOREs that overlap are in no order, and none
 * of them is ever called stale.
 *
 * Any thread.
 */
#ifndef KVRAIL_APP_BENCH_GENERATION_H
#define KVRAIL_APP_BENCH_GENERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

struct generations;

/* writers: STOREs that can be under way at once. 0 or -ENOMEM. */
KVR_MUST_CHECK int generations_create(uint32_t writers, struct generations **generations);
void generations_destroy(struct generations **generations);

/* The number of a STORE that is about to be filled; writer: 0 .. writers-1, until generations_end. */
uint64_t generations_begin(struct generations *generations, uint32_t writer);
/* The reply said that this chunk was stored by us. 0 or -ENOMEM. */
KVR_MUST_CHECK int generations_stored(
	struct generations *generations, uint64_t chunk, uint32_t rank, uint64_t generation);
void generations_end(struct generations *generations, uint32_t writer);

/* What a LOOKUP that is sent now may not deliver of each chunk: generations up to floors[i]. */
void generations_floors(
	struct generations *generations, const uint64_t *chunks, uint32_t count, uint32_t rank, uint64_t *floors);
/* All generations there are by now are below it. */
uint64_t generations_ceiling(struct generations *generations);

KVR_END_C

#endif
