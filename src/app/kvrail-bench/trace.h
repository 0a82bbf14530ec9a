/*
 * trace.h - request traces, one request a line, read as a stream.
 *
 * Two forms:
 *   mooncake  JSON lines {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [..]}: one id for each
 *             block of the prompt (512 tokens; the last one partial), which stands for the block and all before it.
 *             Other fields are skipped.
 *   azure     CSV TIMESTAMP,ContextTokens,GeneratedTokens: sizes alone; no request has anything in common with another
 *
 * A line that is neither is an error that names file and line; nothing is guessed. One reader at a time.
 */
#ifndef KVRAIL_APP_BENCH_TRACE_H
#define KVRAIL_APP_BENCH_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define TRACE_BLOCKS_MAX 8192 /* of one request: four million tokens in blocks of 512 */
#define TRACE_TOKENS_MAX (1u << 22)
#define TRACE_LINE_MAX ((size_t)256 << 10)
#define TRACE_BLOCK_TOKENS 512

enum trace_format { TRACE_AUTO, TRACE_MOONCAKE, TRACE_AZURE };

struct trace_request {
	uint64_t arrival_ns; /* since the first request of the trace; never going back */
	uint32_t input_tokens;
	uint32_t output_tokens;
	uint32_t block_count; /* input_tokens / block_tokens, rounded up */
	uint64_t blocks[TRACE_BLOCKS_MAX];
};

struct trace_error {
	char text[320]; /* "file:12: input_length is missing" */
};

struct trace;

/* block_tokens: tokens of one id, 1 .. 65536. 0, -ENOENT and other errors of open(2), -ENOMEM with *error. */
KVR_MUST_CHECK int trace_open(const char *path, enum trace_format format, uint32_t block_tokens, struct trace **trace,
	struct trace_error *error);
/* The same over memory, which stays the caller's until trace_close. */
KVR_MUST_CHECK int trace_open_memory(const char *name, const void *bytes, size_t length, enum trace_format format,
	uint32_t block_tokens, struct trace **trace, struct trace_error *error);
/* 1: the next request; 0: there is none; -EINVAL (malformed), -EIO with *error. After an error the trace is only good
 * for trace_close. */
KVR_MUST_CHECK int trace_next(struct trace *trace, struct trace_request *request, struct trace_error *error);
void trace_close(struct trace **trace);

/* The token at a position of a block: equal blocks have equal tokens, and others differ. */
uint32_t trace_token(uint64_t block, uint32_t position);
/* All tokens of a request into tokens[0 .. input_tokens-1]. */
void trace_tokens(const struct trace_request *request, uint32_t block_tokens, uint32_t *tokens);
/* One number for each whole chunk, which stands for the chunk and all before it. Returns how many: token_count /
 * chunk_tokens. */
uint32_t trace_identities(const uint32_t *tokens, uint32_t token_count, uint32_t chunk_tokens, uint64_t *identities);

KVR_END_C

#endif
