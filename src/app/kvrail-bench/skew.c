#include "app/kvrail-bench/skew.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

int skew_init(struct skew *skew, uint32_t count, double theta)
{
	double sum = 0;

	*skew = (struct skew){ .count = count };
	if (theta <= 0)
		return 0;
	skew->until = calloc(count, sizeof(*skew->until));
	if (!skew->until)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		skew->until[i] = sum += pow(i + 1, -theta);
	for (uint32_t i = 0; i < count; i++)
		skew->until[i] /= sum;
	return 0;
}

void skew_fini(struct skew *skew)
{
	free(skew->until);
	*skew = (struct skew){ 0 };
}

uint32_t skew_choose(const struct skew *skew, struct random *random)
{
	uint32_t low = 0, high = skew->count - 1;
	double at;

	if (!skew->until)
		return (uint32_t)random_below(random, skew->count);
	at = (double)(random_next(random) >> 11) / 9007199254740992.0;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (skew->until[middle] > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}
