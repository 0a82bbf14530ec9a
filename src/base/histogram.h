/*
 * histogram.h - latencies in buckets of bounded relative error, as HdrHistogram does: every power of two is cut into 64
 * linear parts, so a reported value is within 1/64 of the true one. Values in nanoseconds, 0 .. 2^40 (18 minutes);
 * larger ones are counted in the last bucket. One writer; other threads may merge from it into a histogram of their own
 * at any time and see each word whole, so that the sums differ by the samples that were just being added.
 */
#ifndef KVRAIL_BASE_HISTOGRAM_H
#define KVRAIL_BASE_HISTOGRAM_H

#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define HISTOGRAM_SUB_BITS 6
#define HISTOGRAM_VALUE_BITS 40
#define HISTOGRAM_BUCKETS ((HISTOGRAM_VALUE_BITS - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

struct histogram {
	uint64_t count;
	uint64_t sum;
	uint64_t min; /* 0 without samples, as max */
	uint64_t max;
	uint64_t bucket[HISTOGRAM_BUCKETS];
};

void histogram_init(struct histogram *histogram);
void histogram_add(struct histogram *histogram, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);
/* The value below or at which `parts_per_million` of the samples lie (500000: the median), never under the true one,
 * over it by at most 1/64, and exact below 64; 1000000 gives the largest sample, exactly. 0 without samples. */
uint64_t histogram_percentile(const struct histogram *histogram, uint32_t parts_per_million);

KVR_END_C

#endif
