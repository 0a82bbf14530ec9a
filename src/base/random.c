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
