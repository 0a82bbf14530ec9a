/*
 * pattern.h - the bytes that a block must hold, from who it is: nobody needs to keep a copy to compare with.
 *
 * A block of `bytes` bytes is a sequence of 8-byte lanes. Lane 0 is the generation xor a key of (chunk, rank, plane,
 * block), so that the generation can be read back; lane i is a mix of (key, generation) + i * odd. A block of another
 * chunk, rank, plane, place or generation, a shifted one, and one of two halves all differ.
 *
 * Poison is what a destination holds before, so that a byte that never arrived is seen.
 */
#ifndef KVRAIL_APP_BENCH_PATTERN_H
#define KVRAIL_APP_BENCH_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define PATTERN_POISON 0xa5

struct pattern {
	uint64_t key; /* of who the block is */
	uint64_t generation;
};

/* chunk: the chunk's identity; block: its place in the chunk. */
struct pattern pattern_make(uint64_t chunk, uint32_t rank, uint32_t plane, uint32_t block, uint64_t generation);
/* block: aligned to 8 bytes; bytes >= 8, any. */
void pattern_fill(void *block, size_t bytes, struct pattern pattern);
/* How many bytes differ; 0: none. *first is then the offset of the first that does, *expected what should stand
 * there. */
size_t pattern_check(const void *block, size_t bytes, struct pattern pattern, size_t *first, uint8_t *expected);
/* The generation with which this block was filled, if it is the one of `pattern.key`. */
uint64_t pattern_generation(const void *block, struct pattern pattern);

void pattern_poison(void *memory, size_t bytes);
/* How many bytes are no poison any more, and the offset of the first. */
size_t pattern_check_poison(const void *memory, size_t bytes, size_t *first);

KVR_END_C

#endif
