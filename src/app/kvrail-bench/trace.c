#include "app/kvrail-bench/trace.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-bench/trace_line.h"
#include "base/random.h"

struct trace {
	FILE *file;
	char name[160];
	char *line;
	uint64_t line_number;
	uint64_t first_ns;
	uint64_t last_ns;
	uint64_t requests;
	enum trace_format format;
	uint32_t block_tokens;
};

static int trace_begin(FILE *file, const char *name, enum trace_format format, uint32_t block_tokens,
	struct trace **out, struct trace_error *error)
{
	struct trace *trace = calloc(1, sizeof(*trace));

	if (trace)
		trace->line = malloc(TRACE_LINE_MAX);
	if (!trace || !trace->line) {
		snprintf(error->text, sizeof(error->text), "%s: out of memory", name);
		free(trace);
		fclose(file);
		return -ENOMEM;
	}
	trace->file = file;
	trace->format = format;
	trace->block_tokens = block_tokens;
	snprintf(trace->name, sizeof(trace->name), "%s", name);
	*out = trace;
	return 0;
}

int trace_open(const char *path, enum trace_format format, uint32_t block_tokens, struct trace **trace,
	struct trace_error *error)
{
	FILE *file = fopen(path, "re");
	int code = errno;

	if (!file) {
		snprintf(error->text, sizeof(error->text), "%.200s: %s", path, strerror(code));
		return -code;
	}
	return trace_begin(file, path, format, block_tokens, trace, error);
}

int trace_open_memory(const char *name, const void *bytes, size_t length, enum trace_format format,
	uint32_t block_tokens, struct trace **trace, struct trace_error *error)
{
	/* fmemopen wants memory that it could write to, and does not with "r". */
	FILE *file = fmemopen((void *)(uintptr_t)bytes, length, "r");

	if (!file) {
		snprintf(error->text, sizeof(error->text), "%.200s: %s", name, strerror(errno));
		return -ENOMEM;
	}
	return trace_begin(file, name, format, block_tokens, trace, error);
}

void trace_close(struct trace **trace)
{
	if (!*trace)
		return;
	fclose((*trace)->file);
	free((*trace)->line);
	free(*trace);
	*trace = NULL;
}

static int trace_refuse(const struct trace *trace, struct trace_error *error, int code, const char *what)
{
	snprintf(error->text, sizeof(error->text), "%s:%llu: %s", trace->name, (unsigned long long)trace->line_number,
		what);
	return code;
}

/* 1: a line without its end; 0: there is none; negative errno. */
static int read_line(struct trace *trace, size_t *length, struct trace_error *error)
{
	size_t count = 0;
	int byte;

	trace->line_number++;
	while ((byte = getc_unlocked(trace->file)) != EOF && byte != '\n') {
		if (count == TRACE_LINE_MAX)
			return trace_refuse(trace, error, -EINVAL, "a line of more than 256 KiB");
		trace->line[count++] = (char)byte;
	}
	if (ferror(trace->file))
		return trace_refuse(trace, error, -EIO, strerror(errno));
	if (byte == EOF && count == 0)
		return 0;
	if (count > 0 && trace->line[count - 1] == '\r')
		count--;
	*length = count;
	return 1;
}

static bool line_blank(const char *line, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (line[i] != ' ' && line[i] != '\t')
			return false;
	}
	return true;
}

static bool line_header(const struct trace *trace, size_t length)
{
	return trace->requests == 0 && length >= 9 && memcmp(trace->line, "TIMESTAMP", 9) == 0;
}

int trace_next(struct trace *trace, struct trace_request *request, struct trace_error *error)
{
	const char *wrong;
	size_t length;
	int result;

	do {
		result = read_line(trace, &length, error);
		if (result <= 0)
			return result;
	} while (line_blank(trace->line, length) || line_header(trace, length));
	if (trace->format == TRACE_AUTO)
		trace->format = trace->line[0] == '{' ? TRACE_MOONCAKE : TRACE_AZURE;
	if (trace->format == TRACE_MOONCAKE)
		wrong = trace_line_mooncake(trace->line, length, trace->block_tokens, request);
	else
		wrong = trace_line_azure(trace->line, length, trace->block_tokens, trace->requests, request);
	if (wrong)
		return trace_refuse(trace, error, -EINVAL, wrong);
	if (trace->requests++ == 0)
		trace->first_ns = request->arrival_ns;
	/* Requests that were written down a little out of order are taken as they stand. */
	request->arrival_ns -= kvr_min_u64(request->arrival_ns, trace->first_ns);
	request->arrival_ns = kvr_max_u64(request->arrival_ns, trace->last_ns);
	trace->last_ns = request->arrival_ns;
	return 1;
}

/* ---- tokens ---- */

uint32_t trace_token(uint64_t block, uint32_t position)
{
	/* 17 bits: the vocabulary of the models of today. */
	return (uint32_t)(random_mix(random_mix(block + 0x9e3779b97f4a7c15u) + position) >> 47);
}

void trace_tokens(const struct trace_request *request, uint32_t block_tokens, uint32_t *tokens)
{
	uint32_t at = 0;

	for (uint32_t block = 0; block < request->block_count; block++) {
		uint32_t count = (uint32_t)kvr_min_u64(block_tokens, request->input_tokens - at);

		for (uint32_t position = 0; position < count; position++)
			tokens[at++] = trace_token(request->blocks[block], position);
	}
}

uint32_t trace_identities(const uint32_t *tokens, uint32_t token_count, uint32_t chunk_tokens, uint64_t *identities)
{
	uint32_t count = token_count / chunk_tokens;
	uint64_t identity = 0x6b767261696c0001u;

	for (uint32_t chunk = 0; chunk < count; chunk++) {
		for (uint32_t i = 0; i < chunk_tokens; i++)
			identity = random_mix(
				identity * 0x9e3779b97f4a7c15u + tokens[(size_t)chunk * chunk_tokens + i]);
		identities[chunk] = identity;
	}
	return count;
}
