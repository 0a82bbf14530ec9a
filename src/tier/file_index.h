/*
 * file_index.h - which files there are and in which order they were used: a hash table with a list through it. One
 * thread.
 *
 * The list is in the order of `at`. Whoever goes through a chain of chunks names things that stand side by side in it, though in the
 * midst of others: so where the last one of each of some chains was put is where the next one's place is looked for.
 *
 * An entry takes 60 bytes and the table 4 for each entry it may hold; entries come in slabs as they are needed, up to
 * the limit.
 */
#ifndef KVRAIL_TIER_FILE_INDEX_H
#define KVRAIL_TIER_FILE_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "tier/file_format.h"

KVR_BEGIN_C

struct file_index;

/* limit: entries at most, 1 .. 2^28. 0, -EINVAL, -ENOMEM. */
KVR_MUST_CHECK int file_index_create(uint32_t limit, struct file_index **index);
void file_index_destroy(struct file_index **index);

struct file_use {
	uint64_t at;    /* microseconds of the wall clock: the lowest is evicted first */
	uint64_t chain; /* the same for all of one use of a chain; 0: none, and its place is near the old end */
};

/* Bytes of the file, 0 when it is not known. */
uint64_t file_index_find(const struct file_index *index, const struct file_name *name);
/* The same; and it was used then, unless it has been used since. */
uint64_t file_index_use(struct file_index *index, const struct file_name *name, const struct file_use *use);
/* Of those with one `at` the one that came last is the newest; without a chain, the oldest. Known already: its length is corrected, its
 * place kept. bytes: a multiple of FILE_BLOCK, at least one. 0, -ENOSPC (the limit), -ENOMEM. */
KVR_MUST_CHECK int file_index_add(
	struct file_index *index, const struct file_name *name, uint64_t bytes, const struct file_use *use);
/* Returns the bytes it had, 0 when it was not known. */
uint64_t file_index_remove(struct file_index *index, const struct file_name *name);
/* Removes the least recently used one. Returns its bytes, 0 when there is none. */
uint64_t file_index_pop(struct file_index *index, struct file_name *name);

/* Bytes of the one that file_index_pop would remove, 0 when there is none. */
uint64_t file_index_oldest_bytes(const struct file_index *index);
uint32_t file_index_count(const struct file_index *index);
uint64_t file_index_bytes(const struct file_index *index);

KVR_END_C

#endif
