/* trace_mooncake.c - a small reader of JSON, for one object a line with four fields that are looked at and others
 * that are not. */
#include "app/kvrail-bench/trace_line.h"

#include <stdbool.h>
#include <string.h>

#define NESTING_MAX 16

struct json {
	const char *at;
	const char *end;
};

static void json_blanks(struct json *json)
{
	while (json->at < json->end && (*json->at == ' ' || *json->at == '\t' || *json->at == '\r'))
		json->at++;
}

static bool json_take(struct json *json, char character)
{
	json_blanks(json);
	if (json->at == json->end || *json->at != character)
		return false;
	json->at++;
	return true;
}

/* What stands between the quotes, escapes as they are. */
static bool json_string(struct json *json, const char **start, size_t *length)
{
	if (!json_take(json, '"'))
		return false;
	*start = json->at;
	for (; json->at < json->end && *json->at != '"'; json->at++) {
		if ((unsigned char)*json->at < 0x20)
			return false;
		if (*json->at == '\\' && ++json->at == json->end)
			return false;
	}
	*length = (size_t)(json->at - *start);
	return json_take(json, '"');
}

static bool digit(const struct json *json)
{
	return json->at < json->end && *json->at >= '0' && *json->at <= '9';
}

/* A number that is not negative, in thousandths; false also when it is 2^63 / 1000 or more. */
static bool json_number(struct json *json, uint64_t *thousandths)
{
	uint64_t value = 0, unit = 1000;

	json_blanks(json);
	if (!digit(json))
		return false;
	for (; digit(json); json->at++) {
		if (value > (UINT64_C(1) << 63) / 1000 / 10 - 10)
			return false;
		value = value * 10 + (uint64_t)(*json->at - '0');
	}
	value *= 1000;
	if (json->at < json->end && *json->at == '.') {
		json->at++;
		if (!digit(json))
			return false;
		for (; digit(json); json->at++) {
			unit /= 10;
			value += unit * (uint64_t)(*json->at - '0');
		}
	}
	*thousandths = value;
	return json->at == json->end || (*json->at != 'e' && *json->at != 'E');
}

static bool json_whole(struct json *json, uint64_t maximum, uint64_t *value)
{
	uint64_t thousandths;

	if (!json_number(json, &thousandths) || thousandths % 1000 != 0 || thousandths / 1000 > maximum)
		return false;
	*value = thousandths / 1000;
	return true;
}

/* Any value but an array or an object. */
static bool json_skip_scalar(struct json *json)
{
	static const char others[] = "+-.eE0123456789abcdefghijklmnopqrstuvwxyz"; /* numbers, true, false, null */
	const char *start;
	size_t length;

	json_blanks(json);
	if (json->at < json->end && *json->at == '"')
		return json_string(json, &start, &length);
	start = json->at;
	while (json->at < json->end && *json->at && strchr(others, *json->at))
		json->at++;
	return json->at > start;
}

/* One value of any kind. Brackets are counted and need not be of the same kind: who wrote them is not judged here. */
static bool json_skip(struct json *json)
{
	unsigned depth = 0;

	do {
		json_blanks(json);
		if (json->at == json->end)
			return false;
		if (*json->at == '[' || *json->at == '{') {
			if (++depth > NESTING_MAX)
				return false;
			json->at++;
		} else if (depth > 0 && (*json->at == ']' || *json->at == '}')) {
			depth--;
			json->at++;
		} else if (depth > 0 && (*json->at == ',' || *json->at == ':')) {
			json->at++;
		} else if (!json_skip_scalar(json)) {
			return false;
		}
	} while (depth > 0);
	return true;
}

static const char *read_blocks(struct json *json, struct trace_request *request)
{
	uint64_t id;

	request->block_count = 0;
	if (!json_take(json, '['))
		return "hash_ids is no list";
	if (json_take(json, ']'))
		return NULL;
	do {
		if (!json_whole(json, UINT32_MAX, &id))
			return "hash_ids holds something that is no number of at most 32 bits";
		if (request->block_count == TRACE_BLOCKS_MAX)
			return "hash_ids has more than 8192 ids";
		request->blocks[request->block_count++] = id;
	} while (json_take(json, ','));
	return json_take(json, ']') ? NULL : "hash_ids does not end";
}

enum field { TIMESTAMP = 1, INPUT = 2, OUTPUT = 4, HASH_IDS = 8 };

static bool name_is(const char *name, size_t length, const char *wanted)
{
	return length == strlen(wanted) && memcmp(name, wanted, length) == 0;
}

static const char *read_field(struct json *json, struct trace_request *request, unsigned *seen)
{
	enum field field = 0;
	const char *name;
	uint64_t value = 0;
	size_t length;

	if (!json_string(json, &name, &length) || !json_take(json, ':'))
		return "no JSON object: a name and a colon should stand here";
	if (name_is(name, length, "timestamp"))
		field = TIMESTAMP;
	else if (name_is(name, length, "input_length"))
		field = INPUT;
	else if (name_is(name, length, "output_length"))
		field = OUTPUT;
	else if (name_is(name, length, "hash_ids"))
		field = HASH_IDS;
	else
		return json_skip(json) ? NULL : "no JSON: a value does not end, or is nested too deep";
	if (*seen & field)
		return "a field stands there twice";
	*seen |= field;
	if (field == HASH_IDS)
		return read_blocks(json, request);
	if (field == TIMESTAMP) {
		if (!json_number(json, &value) || value > UINT64_MAX / 2000)
			return "timestamp is no time in milliseconds";
		request->arrival_ns = value * 1000;
		return NULL;
	}
	if (!json_whole(json, TRACE_TOKENS_MAX, &value))
		return field == INPUT ? "input_length is no number of tokens"
				      : "output_length is no number "
					"of tokens";
	*(field == INPUT ? &request->input_tokens : &request->output_tokens) = (uint32_t)value;
	return NULL;
}

const char *trace_line_mooncake(const char *line, size_t length, uint32_t block_tokens, struct trace_request *request)
{
	struct json json = { line, line + length };
	unsigned seen = 0;

	request->output_tokens = 0;
	if (!json_take(&json, '{'))
		return "no JSON object";
	do {
		const char *wrong = read_field(&json, request, &seen);

		if (wrong)
			return wrong;
	} while (json_take(&json, ','));
	if (!json_take(&json, '}'))
		return "no JSON object: it does not end";
	json_blanks(&json);
	if (json.at != json.end)
		return "something stands behind the object";
	if (!(seen & TIMESTAMP))
		return "timestamp is missing";
	if (!(seen & INPUT))
		return "input_length is missing";
	if (!(seen & HASH_IDS))
		return "hash_ids is missing";
	if (request->block_count != (request->input_tokens + block_tokens - 1) / block_tokens)
		return "hash_ids does not have one id for each block of input_length";
	return NULL;
}
