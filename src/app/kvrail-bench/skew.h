/* skew.h - which of many things is asked for: all alike, or some far more often, by Zipf's law. Pure. */
#ifndef KVRAIL_APP_BENCH_SKEW_H
#define KVRAIL_APP_BENCH_SKEW_H

#include <stdint.h>

#include "base/compiler.h"
#include "base/random.h"

KVR_BEGIN_C

struct skew {
	uint32_t count;
	double *until; /* [i]: the weight of 0 .. i, of all of them 1; NULL: all alike */
};

/* The thing of rank r (0 the most wanted) has the weight 1 / (r + 1)^theta; theta 0: all alike. count >= 1. 0 or
 * -ENOMEM. */
KVR_MUST_CHECK int skew_init(struct skew *skew, uint32_t count, double theta);
void skew_fini(struct skew *skew);
/* 0 .. count-1 */
uint32_t skew_choose(const struct skew *skew, struct random *random);

KVR_END_C

#endif
