/* pattern.h - what the tests put into blocks, the same on the GPU and in its fake: a word that says which word it should be. */
#ifndef KVRAIL_TESTS_GPU_PATTERN_H
#define KVRAIL_TESTS_GPU_PATTERN_H

#include <stdint.h>

#ifdef __CUDACC__
#define PATTERN_INLINE static __device__ __forceinline__
#else
#define PATTERN_INLINE static inline
#endif

/* seed: of the plane; position: of the block in token order; word: in the block. */
PATTERN_INLINE uint32_t pattern_word(uint32_t seed, uint32_t position, uint32_t word)
{
	uint32_t x = seed * 0x9e3779b1u ^ position * 0x85ebca77u ^ word * 0xc2b2ae3du;

	x ^= x >> 15;
	x *= 0x2c1b3c6du;
	x ^= x >> 12;
	return x;
}

#endif
