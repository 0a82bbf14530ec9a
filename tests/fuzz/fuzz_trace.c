/*
 * libFuzzer target for the trace reader: the input is a file, in either form. Every request that is read holds what
 * the header promises, and an error says where it is.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-bench/trace.h"

/* Kept on: a broken promise ends the run and leaves the input behind. */
static void demand(bool holds)
{
	if (!holds)
		abort();
}

static void check_request(const struct trace_request *request, uint32_t block_tokens, uint64_t *last_ns)
{
	uint32_t *tokens;

	demand(request->arrival_ns >= *last_ns);
	*last_ns = request->arrival_ns;
	demand(request->input_tokens <= TRACE_TOKENS_MAX && request->output_tokens <= TRACE_TOKENS_MAX);
	demand(request->block_count <= TRACE_BLOCKS_MAX);
	demand(request->block_count == (request->input_tokens + block_tokens - 1) / block_tokens);
	if (request->input_tokens == 0 || request->input_tokens > 4096)
		return;
	/* Of exactly this size, so that one token too many is seen. */
	tokens = malloc(request->input_tokens * sizeof(*tokens));
	demand(tokens);
	trace_tokens(request, block_tokens, tokens);
	free(tokens);
}

static void read_all(const uint8_t *data, size_t size, enum trace_format format, uint32_t block_tokens)
{
	static struct trace_request request;
	struct trace_error error;
	struct trace *trace;
	uint64_t last_ns = 0;
	int result;

	if (trace_open_memory("input", data, size, format, block_tokens, &trace, &error))
		return;
	while ((result = trace_next(trace, &request, &error)) == 1)
		check_request(&request, block_tokens, &last_ns);
	demand(result == 0 || (result < 0 && strncmp(error.text, "input:", 6) == 0));
	trace_close(&trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	read_all(data, size, TRACE_AUTO, 512);
	read_all(data, size, TRACE_MOONCAKE, 1);
	read_all(data, size, TRACE_AZURE, 16);
	return 0;
}
