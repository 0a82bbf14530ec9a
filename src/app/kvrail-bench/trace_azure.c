/* trace_azure.c - "2023-11-16 18:15:46.6805900,374,44": a time, tokens in, tokens out. */
#include "app/kvrail-bench/trace_line.h"

#include <stdbool.h>

#include "base/clock.h"

struct cursor {
	const char *at;
	const char *end;
};

static bool take(struct cursor *cursor, char character)
{
	if (cursor->at == cursor->end || *cursor->at != character)
		return false;
	cursor->at++;
	return true;
}

/* 1 .. max_digits digits, at most `maximum`; *digits is how many. */
static bool take_number(struct cursor *cursor, unsigned max_digits, uint64_t maximum, uint64_t *value, unsigned *digits)
{
	uint64_t number = 0;

	*digits = 0;
	while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9' && *digits < max_digits) {
		number = number * 10 + (uint64_t)(*cursor->at++ - '0');
		++*digits;
	}
	*value = number;
	return *digits > 0 && number <= maximum;
}

/* Days since 1970-01-01 of a date of the Gregorian calendar. */
static uint64_t days_of(uint64_t year, uint64_t month, uint64_t day)
{
	/* The year begins in March, so that the day that is sometimes there is its last one. */
	uint64_t y = month > 2 ? year : year - 1;
	uint64_t m = month > 2 ? month - 3 : month + 9;

	return y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1 - 719468;
}

static bool take_time(struct cursor *cursor, uint64_t *ns)
{
	static const struct {
		unsigned digits;
		uint64_t minimum, maximum;
		char behind;
	} parts[6] = { { 4, 1970, 2200, '-' }, { 2, 1, 12, '-' }, { 2, 1, 31, ' ' }, { 2, 0, 23, ':' },
		{ 2, 0, 59, ':' }, { 2, 0, 60, 0 } };
	uint64_t values[6], fraction = 0;
	unsigned digits;

	for (unsigned i = 0; i < 6; i++) {
		if (!take_number(cursor, parts[i].digits, parts[i].maximum, &values[i], &digits) ||
			values[i] < parts[i].minimum || digits != parts[i].digits)
			return false;
		if (parts[i].behind && !take(cursor, parts[i].behind))
			return false;
	}
	if (take(cursor, '.')) {
		if (!take_number(cursor, 9, 999999999, &fraction, &digits))
			return false;
		for (; digits < 9; digits++)
			fraction *= 10;
	}
	*ns = (((days_of(values[0], values[1], values[2]) * 24 + values[3]) * 60 + values[4]) * 60 + values[5]) *
			KVR_SECOND +
		fraction;
	return true;
}

const char *trace_line_azure(
	const char *line, size_t length, uint32_t block_tokens, uint64_t number, struct trace_request *request)
{
	struct cursor cursor = { line, line + length };
	uint64_t input, output;
	unsigned digits;

	if (!take_time(&cursor, &request->arrival_ns) || !take(&cursor, ','))
		return "no time like 2023-11-16 18:15:46.6805900 stands at the beginning";
	if (!take_number(&cursor, 9, TRACE_TOKENS_MAX, &input, &digits) || !take(&cursor, ','))
		return "ContextTokens is no number of tokens";
	if (!take_number(&cursor, 9, TRACE_TOKENS_MAX, &output, &digits) || cursor.at != cursor.end)
		return "GeneratedTokens is no number of tokens";
	request->input_tokens = (uint32_t)input;
	request->output_tokens = (uint32_t)output;
	request->block_count = (request->input_tokens + block_tokens - 1) / block_tokens;
	if (request->block_count > TRACE_BLOCKS_MAX)
		return "a request of more than 8192 blocks";
	/* Ids that no line of the other form can have. */
	for (uint32_t i = 0; i < request->block_count; i++)
		request->blocks[i] = (UINT64_C(1) << 63) | number << 16 | i;
	return NULL;
}
