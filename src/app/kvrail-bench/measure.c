#include "app/kvrail-bench/measure.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

const char *const measure_op_names[MEASURE_OPS] = { "lookup", "retrieve", "store", "end", "ping" };

void busy_add(struct busy *busy, uint64_t begin_ns, uint64_t end_ns)
{
	while (busy->count > 0 && busy->intervals[busy->count - 1].end_ns >= begin_ns) {
		begin_ns = kvr_min_u64(begin_ns, busy->intervals[busy->count - 1].begin_ns);
		end_ns = kvr_max_u64(end_ns, busy->intervals[busy->count - 1].end_ns);
		busy->count--;
	}
	if (busy->count == busy->capacity) {
		size_t capacity = busy->capacity ? busy->capacity * 2 : 256;
		struct busy_interval *grown = realloc(busy->intervals, capacity * sizeof(*grown));

		if (!grown) {
			busy->incomplete = true;
			return;
		}
		busy->intervals = grown;
		busy->capacity = capacity;
	}
	busy->intervals[busy->count++] = (struct busy_interval){ begin_ns, end_ns };
}

static int by_begin(const void *a, const void *b)
{
	const struct busy_interval *left = a, *right = b;

	return (left->begin_ns > right->begin_ns) - (left->begin_ns < right->begin_ns);
}

uint64_t busy_total(const struct busy *const *busys, size_t count)
{
	struct busy_interval *all;
	uint64_t total = 0, until = 0;
	size_t length = 0;

	for (size_t i = 0; i < count; i++)
		length += busys[i]->count;
	all = malloc((length + 1) * sizeof(*all));
	if (!all)
		return 0;
	length = 0;
	for (size_t i = 0; i < count; i++) {
		for (size_t j = 0; j < busys[i]->count; j++)
			all[length++] = busys[i]->intervals[j];
	}
	qsort(all, length, sizeof(*all), by_begin);
	for (size_t i = 0; i < length; i++) {
		uint64_t begin = kvr_max_u64(all[i].begin_ns, until);

		if (all[i].end_ns > begin) {
			total += all[i].end_ns - begin;
			until = all[i].end_ns;
		}
	}
	free(all);
	return total;
}

void busy_fini(struct busy *busy)
{
	free(busy->intervals);
	memset(busy, 0, sizeof(*busy));
}

void measure_init(struct measure *measure)
{
	memset(measure, 0, sizeof(*measure));
	for (unsigned op = 0; op < MEASURE_OPS; op++)
		histogram_init(&measure->latency[op]);
	histogram_init(&measure->lag);
}

void measure_fini(struct measure *measure)
{
	for (unsigned op = 0; op < MEASURE_OPS; op++)
		busy_fini(&measure->busy[op]);
}

void measure_add(struct measure *measure, enum measure_op op, uint64_t begin_ns, uint64_t end_ns, uint64_t bytes)
{
	histogram_add(&measure->latency[op], end_ns - begin_ns);
	if (bytes == 0)
		return;
	measure->bytes[op] += bytes;
	busy_add(&measure->busy[op], begin_ns, end_ns);
}

void counters_sum(struct counters *into, const struct counters *from)
{
	const uint64_t *source = (const uint64_t *)from;
	uint64_t *sum = (uint64_t *)into;

	KVR_STATIC_ASSERT(sizeof(struct counters) % sizeof(uint64_t) == 0, "counters alone");
	for (size_t i = 0; i < sizeof(*into) / sizeof(*sum); i++)
		sum[i] += kvr_load_relaxed(&source[i]);
}

void measure_result(struct measure *const *measures, size_t count, enum measure_op op, struct op_result *result)
{
	struct histogram *latency = calloc(1, sizeof(*latency));
	const struct busy **busys = calloc(count, sizeof(const struct busy *));
	uint64_t busy_ns = 0;

	memset(result, 0, sizeof(*result));
	if (latency && busys) {
		histogram_init(latency);
		for (size_t i = 0; i < count; i++) {
			histogram_merge(latency, &measures[i]->latency[op]);
			result->bytes += measures[i]->bytes[op];
			busys[i] = &measures[i]->busy[op];
		}
		busy_ns = busy_total(busys, count);
		result->count = latency->count;
		result->p50_ns = histogram_percentile(latency, 500000);
		result->p90_ns = histogram_percentile(latency, 900000);
		result->p99_ns = histogram_percentile(latency, 990000);
		result->p999_ns = histogram_percentile(latency, 999000);
		result->p9999_ns = histogram_percentile(latency, 999900);
		result->max_ns = latency->max;
		result->mean_ns = latency->count ? (double)latency->sum / (double)latency->count : 0;
		result->gbps = busy_ns ? (double)result->bytes / (double)busy_ns : 0;
	}
	free(busys);
	free(latency);
}

static int by_value(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

double median_of(double *values, size_t count)
{
	if (count == 0)
		return 0;
	qsort(values, count, sizeof(*values), by_value);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
