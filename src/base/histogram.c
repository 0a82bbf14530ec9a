#include "base/histogram.h"

#include <string.h>

#include "base/atomic.h"

#define HISTOGRAM_SUB (1u << HISTOGRAM_SUB_BITS)

static uint32_t histogram_index(uint64_t value)
{
	unsigned power;

	if (value < HISTOGRAM_SUB)
		return (uint32_t)value;
	if (value >> HISTOGRAM_VALUE_BITS)
		return HISTOGRAM_BUCKETS - 1;
	power = 63 - (unsigned)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;
	/* The leading one bit of `value >> power` is not stored: it adds one to the group. */
	return (power << HISTOGRAM_SUB_BITS) + (uint32_t)(value >> power);
}

/* The largest value that is counted in this bucket. */
static uint64_t histogram_bucket_end(uint32_t index)
{
	uint32_t power;

	if (index < HISTOGRAM_SUB)
		return index;
	power = (index >> HISTOGRAM_SUB_BITS) - 1;
	return ((uint64_t)(index - (power << HISTOGRAM_SUB_BITS)) + 1) * ((uint64_t)1 << power) - 1;
}

void histogram_init(struct histogram *histogram)
{
	memset(histogram, 0, sizeof(*histogram));
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
	kvr_counter_add(&histogram->bucket[histogram_index(value)], 1);
	if (histogram->count == 0 || value < histogram->min)
		kvr_store_relaxed(&histogram->min, value);
	if (value > histogram->max)
		kvr_store_relaxed(&histogram->max, value);
	kvr_counter_add(&histogram->sum, value);
	kvr_counter_add(&histogram->count, 1);
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	uint64_t min = kvr_load_relaxed(&from->min), max = kvr_load_relaxed(&from->max);
	uint64_t count = 0;

	/* The count is that of the buckets as they were read, whatever the writer adds meanwhile. */
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		uint64_t samples = kvr_load_relaxed(&from->bucket[i]);

		into->bucket[i] += samples;
		count += samples;
	}
	if (count == 0)
		return;
	into->min = into->count ? kvr_min_u64(into->min, min) : min;
	into->max = kvr_max_u64(into->max, max);
	into->sum += kvr_load_relaxed(&from->sum);
	into->count += count;
}

uint64_t histogram_percentile(const struct histogram *histogram, uint32_t parts_per_million)
{
	uint64_t count = kvr_load_relaxed(&histogram->count);
	uint64_t max = kvr_load_relaxed(&histogram->max);
	uint64_t rank, seen = 0;

	if (count == 0)
		return 0;
	/* The rank of the sample, counted from one, that this share of all samples does not exceed. */
	rank = (uint64_t)(((unsigned __int128)count * kvr_min_u64(parts_per_million, 1000000) + 999999) / 1000000);
	rank = kvr_max_u64(rank, 1);
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS - 1; i++) {
		seen += kvr_load_relaxed(&histogram->bucket[i]);
		if (seen >= rank)
			return kvr_max_u64(
				kvr_min_u64(histogram_bucket_end(i), max), kvr_load_relaxed(&histogram->min));
	}
	return max;
}
