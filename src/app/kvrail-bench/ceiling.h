/*
 * ceiling.h - how fast memcpy would move the same pages in the same order: what RETRIEVE and STORE are compared with.
 *
 * A stand-in for L1 (private memory, on huge pages if there are, as the server's is) holds objects one behind the
 * other; one measured slice takes scattered blocks of the fake GPU, and copies objects of random places into them
 * plane by plane, and others back. Slices go on until the whole working set was walked over and over.
 */
#ifndef KVRAIL_APP_BENCH_CEILING_H
#define KVRAIL_APP_BENCH_CEILING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "app/kvrail-bench/fakegpu.h"
#include "base/compiler.h"
#include "base/random.h"

KVR_BEGIN_C

#define CEILING_SLICES_MAX 4096

struct ceiling {
	uint8_t *objects;
	uint64_t object_bytes;
	uint64_t object_count;
	uint64_t working_set; /* bytes on each side */
	uint64_t page_bytes;
	uint64_t slice_bytes;
	uint32_t *ids; /* of the blocks of a slice */
	uint32_t slice_chunks;
	struct random random;
	double to_blocks[CEILING_SLICES_MAX]; /* 10^9 bytes a second, one for each slice */
	double from_blocks[CEILING_SLICES_MAX];
	size_t slices;
};

/* working_set: bytes that may be taken for objects. gpu: of the same shape as those that are measured later. 0 or
 * -ENOMEM. */
KVR_MUST_CHECK int ceiling_init(
	struct ceiling *ceiling, const struct fakegpu *gpu, uint64_t working_set, uint64_t seed);
void ceiling_fini(struct ceiling *ceiling);
/* One slice each way, some milliseconds; nothing when the blocks for it are not free. edges: as in fakegpu_give. */
void ceiling_measure(struct ceiling *ceiling, struct fakegpu *gpu, bool edges);

/* Medians over the slices so far; 0 without any. */
double ceiling_to_blocks(const struct ceiling *ceiling);
double ceiling_from_blocks(const struct ceiling *ceiling);

KVR_END_C

#endif
