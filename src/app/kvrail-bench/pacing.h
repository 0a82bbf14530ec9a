/*
 * pacing.h - when the requests of an open loop are due, whatever became of those before: a rate is kept even where the
 * server is slow, so that the time that a request waits for its turn is seen. Pure: time is a parameter.
 */
#ifndef KVRAIL_APP_BENCH_PACING_H
#define KVRAIL_APP_BENCH_PACING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/random.h"

KVR_BEGIN_C

struct pacing {
	double gap_ns; /* mean */
	bool even;     /* all gaps are equal; else exponential, as of many engines that know nothing of each other */
	double due_ns; /* of the next request */
	struct random random;
};

/* rate: requests a second, > 0. */
void pacing_init(struct pacing *pacing, double rate, bool even, uint64_t seed);
/* The first request is due one gap behind now, an even one at a random part of it, so that clients do not march in
 * step. */
void pacing_start(struct pacing *pacing, uint64_t now_ns);
static inline uint64_t pacing_due(const struct pacing *pacing)
{
	return (uint64_t)pacing->due_ns;
}
/* To the request behind it. */
void pacing_advance(struct pacing *pacing);

KVR_END_C

#endif
