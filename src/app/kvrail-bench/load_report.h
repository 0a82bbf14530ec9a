/* load_report.h - what `load` found out, and the pieces of its report. */
#ifndef KVRAIL_APP_BENCH_LOAD_REPORT_H
#define KVRAIL_APP_BENCH_LOAD_REPORT_H

#include "app/kvrail-bench/load_private.h"
#include "base/text.h"

KVR_BEGIN_C

extern const char *const load_op_words[];

struct load_results {
	struct counters sum;
	struct op_result ops[MEASURE_OPS];
	struct histogram lag;    /* open loop: begun so long after it was due */
	double gbps, operations; /* medians of the rounds */
	double to_blocks, from_blocks;
	double ceiling;                      /* memcpy of what this kind of load moves */
	double raw_write, raw_read, raw;     /* the bare verbs loop: each way, and of this kind of load */
	double bus_to_gpu, bus_to_host, bus; /* --memory gpu: the copy engine, each way, and of this kind of load */
	struct bare bare;                    /* the machine's own latency; zeros: not measured */
	double seconds;
	double cpu_us, server_cpu_us; /* processor time of a request, medians of the rounds; the server's 0: unknown */
};

/* "context": ..., "benchmarks": [...], with a comma behind it. */
void load_benchmarks_json(const struct load *load, const struct load_results *results, struct text *out);

KVR_END_C

#endif
