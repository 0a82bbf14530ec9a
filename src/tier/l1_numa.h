/*
 * l1_numa.h - memory on a NUMA node: asked for, and looked at afterwards, since the kernel may have put it elsewhere (pitfalls M07).
 */
#ifndef KVRAIL_TIER_L1_NUMA_H
#define KVRAIL_TIER_L1_NUMA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

/* Pages that are asked for, spread evenly over the memory, one of each page when there are fewer. */
#define L1_NUMA_SAMPLES 16384

/* Before memory is touched: its pages come from `node` alone (strict), or from there while it has any. 0, -errno. */
KVR_MUST_CHECK int l1_numa_bind(void *address, uint64_t bytes, int node, bool strict);
/* Bytes that normal pages on a node may take now, free ones and clean page cache; UINT64_MAX: not known. root: "" (tests: a tree). */
uint64_t l1_numa_available(const char *root, int node);

struct l1_numa_sample {
	uint32_t sampled;   /* pages that are there */
	uint32_t on_node;   /* of these */
	uint32_t elsewhere; /* of these */
};
/* Where touched memory really is, by the kernel's own books (move_pages). page_bytes: of its pages. 0, -errno: it does not tell. */
KVR_MUST_CHECK int l1_numa_sample(
	const void *address, uint64_t bytes, uint64_t page_bytes, int node, struct l1_numa_sample *sample);

KVR_END_C

#endif
