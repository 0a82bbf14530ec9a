/* measure.h - what is counted and timed, by one thread each, and put together at the end. */
#ifndef KVRAIL_APP_BENCH_MEASURE_H
#define KVRAIL_APP_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/histogram.h"

KVR_BEGIN_C

enum measure_op { MEASURE_LOOKUP, MEASURE_RETRIEVE, MEASURE_STORE, MEASURE_END, MEASURE_PING, MEASURE_OPS };
extern const char *const measure_op_names[MEASURE_OPS];

/* Times during which at least one of several things was under way. */
struct busy {
	struct busy_interval {
		uint64_t begin_ns, end_ns;
	} * intervals; /* disjoint, ascending */
	size_t count, capacity;
	bool incomplete; /* out of memory: some are missing */
};

/* To be called in the order of end_ns. */
void busy_add(struct busy *busy, uint64_t begin_ns, uint64_t end_ns);
/* Length of the union of all of them, ns. */
uint64_t busy_total(const struct busy *const *busys, size_t count);
void busy_fini(struct busy *busy);

struct measure {
	struct histogram latency[MEASURE_OPS];
	struct histogram lag; /* begun so long after its time */
	uint64_t bytes[MEASURE_OPS];
	struct busy busy[MEASURE_OPS];
};

void measure_init(struct measure *measure);
void measure_fini(struct measure *measure);
/* One finished operation; bytes 0: it moved nothing, and counts for latency alone. */
void measure_add(struct measure *measure, enum measure_op op, uint64_t begin_ns, uint64_t end_ns, uint64_t bytes);

/* Written by their thread with kvr_counter_add, read by the one that shows progress. All uint64_t. */
struct counters {
	uint64_t requests, tokens, hit_tokens, reference_hit_tokens;
	uint64_t bytes_stored, bytes_retrieved, verified_bytes, mismatched_bytes;
	uint64_t chunks_stored, chunks_present, chunks_without_memory, chunks_missing;
	uint64_t errors, retries;
	uint64_t backlog; /* open loop: due, and not begun when their round ended */
};
/* *into += *from */
void counters_sum(struct counters *into, const struct counters *from);

/* What is reported of one operation. */
struct op_result {
	uint64_t count, p50_ns, p90_ns, p99_ns, p999_ns, p9999_ns, max_ns, bytes;
	double mean_ns;
	double gbps; /* 10^9 bytes a second while at least one was under way */
};
void measure_result(struct measure *const *measures, size_t count, enum measure_op op, struct op_result *result);

/* Sorts. 0 for none. */
double median_of(double *values, size_t count);

KVR_END_C

#endif
