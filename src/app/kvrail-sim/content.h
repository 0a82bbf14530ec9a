/*
 * content.h - the bytes of blocks. Each attempt to store a chunk has a generation of its own, which its bytes tell: so a chunk that is
 * read says who wrote it, and a mixture of two is seen.
 */
#ifndef KVRAIL_APP_SIM_CONTENT_H
#define KVRAIL_APP_SIM_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "base/random.h"

KVR_BEGIN_C

#define CONTENT_POISON ((uint8_t)0xa5)

/* bytes: a multiple of 8, at least 8. `object`: identity of chunk and rank; plane, position: of the block in the chunk. */
void content_fill(
	uint8_t *block, size_t bytes, uint64_t object, uint32_t generation, uint32_t plane, uint32_t position);
bool content_is(
	const uint8_t *block, size_t bytes, uint64_t object, uint32_t generation, uint32_t plane, uint32_t position);
/* The generation that a block claims. */
static inline uint32_t content_generation(const uint8_t *block)
{
	uint32_t generation;

	memcpy(&generation, block, sizeof(generation));
	return generation;
}
static inline void content_poison(uint8_t *block, size_t bytes)
{
	memset(block, CONTENT_POISON, bytes);
}
bool content_is_poison(const uint8_t *block, size_t bytes);

KVR_END_C

#endif
