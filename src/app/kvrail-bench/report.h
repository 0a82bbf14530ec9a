/* report.h - pieces of tables and of JSON that both commands print. */
#ifndef KVRAIL_APP_BENCH_REPORT_H
#define KVRAIL_APP_BENCH_REPORT_H

#include "app/kvrail-bench/ceiling.h"
#include "app/kvrail-bench/machine.h"
#include "app/kvrail-bench/measure.h"
#include "base/compiler.h"
#include "base/text.h"

KVR_BEGIN_C

/* "  lookup    360   12.1 us ..." with a heading line before the first; ceiling_gbps 0: no ratio. */
void report_op_heading(struct text *out);
void report_op(struct text *out, enum measure_op op, const struct op_result *result, double ceiling_gbps);
void report_ceiling(struct text *out, const struct ceiling *ceiling, const struct machine *machine);

/* "lookup": {"count": ..., "p50_us": ..., ...} */
void report_op_json(struct text *out, enum measure_op op, const struct op_result *result);
/* "memcpy_gbps": ..., members without braces. */
void report_ceiling_json(struct text *out, const struct ceiling *ceiling, const struct machine *machine);
/* null when either is unknown */
void report_ratio_json(struct text *out, const char *name, double gbps, double ceiling_gbps);

/* "1,346,186" */
#define REPORT_NUMBER 32
const char *report_number(char buffer[REPORT_NUMBER], uint64_t value);

/* Writes to the file, or to standard output for "-". 0, or -errno after saying so. */
KVR_MUST_CHECK int report_write(const char *path, const struct text *text);

KVR_END_C

#endif
