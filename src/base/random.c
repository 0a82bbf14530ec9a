#include "base/random.h"

#include <errno.h>
#include <sys/random.h>

void random_init(struct random *random, uint64_t seed)
{
	/* splitmix64 never yields four zeros in a row, the one state in which the generator would stand still. */
	for (size_t i = 0; i < KVR_COUNT_OF(random->state); i++) {
		seed += 0x9e3779b97f4a7c15ULL;
		random->state[i] = random_mix(seed);
	}
}

static uint64_t rotate_left(uint64_t value, unsigned bits)
{
	return (value << bits) | (value >> (64 - bits));
}

uint64_t random_next(struct random *random)
{
	uint64_t *state = random->state;
	uint64_t result = rotate_left(state[1] * 5, 7) * 9;
	uint64_t shifted = state[1] << 17;

	state[2] ^= state[0];
	state[3] ^= state[1];
	state[1] ^= state[2];
	state[0] ^= state[3];
	state[2] ^= shifted;
	state[3] = rotate_left(state[3], 45);
	return result;
}

uint64_t random_below(struct random *random, uint64_t bound)
{
	return (uint64_t)(((unsigned __int128)random_next(random) * bound) >> 64);
}

bool random_chance(struct random *random, uint64_t numerator, uint64_t denominator)
{
	return random_below(random, denominator) < numerator;
}

int random_secret(void *bytes, size_t length)
{
	char *to = bytes;

	while (length > 0) {
		ssize_t got = getrandom(to, length, 0);

		if (got < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		to += got;
		length -= (size_t)got;
	}
	return 0;
}
