/* trace_line.h - the two line forms of a trace: bytes to struct trace_request, pure. */
#ifndef KVRAIL_APP_BENCH_TRACE_LINE_H
#define KVRAIL_APP_BENCH_TRACE_LINE_H

#include <stddef.h>
#include <stdint.h>

#include "app/kvrail-bench/trace.h"

KVR_BEGIN_C

/* Both set arrival_ns to the line's own time, not counted from anything. NULL, or what is wrong with the line. */
KVR_MUST_CHECK const char *trace_line_mooncake(
	const char *line, size_t length, uint32_t block_tokens, struct trace_request *request);
KVR_MUST_CHECK const char *trace_line_azure(
	const char *line, size_t length, uint32_t block_tokens, uint64_t number, struct trace_request *request);

KVR_END_C

#endif
