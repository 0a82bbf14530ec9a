/*
 * reference.h - what a cache of so many objects with plain LRU would have answered: an independent, simple model of
 * the server's order of use, one request at a time, to compare hit rates with.
 *
 * The order that the server states, for a chain of whole chunks:
 *   lookup    the longest prefix that is there; nothing moves
 *   retrieve  the range becomes most recently used, from the last chunk to the first
 *   store     what is there stays; room for the rest is made in chunk order, by taking the least recently used chunk
 *             that is not of the range; when there can be no room for all, nothing is taken and nothing stored. Then
 *             the range becomes most recently used, from the last chunk to the first
 *   end       all chunks of the chain that are there become most recently used, from the last to the first
 */
#ifndef KVRAIL_APP_BENCH_REFERENCE_H
#define KVRAIL_APP_BENCH_REFERENCE_H

#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

struct reference;

/* capacity: chunks, 1 .. 2^30. 0, -EINVAL, -ENOMEM. */
KVR_MUST_CHECK int reference_create(uint64_t capacity, struct reference **reference);
void reference_destroy(struct reference **reference);

/* chunks: identities (trace_identities) of the chain, of which the calls look at first .. first+count-1. */
uint32_t reference_lookup(const struct reference *reference, const uint64_t *chunks, uint32_t count);
void reference_retrieve(struct reference *reference, const uint64_t *chunks, uint32_t first, uint32_t count);
/* Returns how many are there afterwards. */
uint32_t reference_store(struct reference *reference, const uint64_t *chunks, uint32_t first, uint32_t count);
void reference_end(struct reference *reference, const uint64_t *chunks, uint32_t count);
uint64_t reference_count(const struct reference *reference);

KVR_END_C

#endif
