/* random.h - small seeded generator (xoshiro256**, Blackman and Vigna). Not for secrets: those come from
 * getrandom(2). */
#ifndef KVRAIL_BASE_RANDOM_H
#define KVRAIL_BASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

struct random {
	uint64_t state[4];
};

/* Any seed is good, 0 too (it is spread by splitmix64). */
void random_init(struct random *random, uint64_t seed);
static inline uint64_t random_next(struct random *random)
{
	uint64_t *state = random->state;
	uint64_t fives = state[1] * 5;
	uint64_t result = (fives << 7 | fives >> 57) * 9;
	uint64_t shifted = state[1] << 17;

	state[2] ^= state[0];
	state[3] ^= state[1];
	state[1] ^= state[2];
	state[0] ^= state[3];
	state[2] ^= shifted;
	state[3] = state[3] << 45 | state[3] >> 19;
	return result;
}
/* 0 .. bound-1, without bias that matters (multiply-shift). bound >= 1. */
static inline uint64_t random_below(struct random *random, uint64_t bound)
{
	return (uint64_t)(((unsigned __int128)random_next(random) * bound) >> 64);
}
/* True `numerator` times in `denominator`. */
bool random_chance(struct random *random, uint64_t numerator, uint64_t denominator);

/* Unpredictable bytes from the kernel (getrandom), for boot ids and challenges. 0 or -errno. */
KVR_MUST_CHECK int random_secret(void *bytes, size_t length);

/* A good 64-bit mix of one value (splitmix64's finaliser): table hashes and test patterns. */
static inline uint64_t random_mix(uint64_t value)
{
	value ^= value >> 30;
	value *= 0xbf58476d1ce4e5b9ULL;
	value ^= value >> 27;
	value *= 0x94d049bb133111ebULL;
	return value ^ (value >> 31);
}

KVR_END_C

#endif
