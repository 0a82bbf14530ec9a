/* The two trace forms: what is read, what is refused and with which words. */
#include "app/kvrail-bench/trace.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"

static struct trace_request request;
static struct trace_error trace_error_;

static struct trace *open_text(const char *text, enum trace_format format)
{
	struct trace *trace;

	assert_int_equal(trace_open_memory("t.jsonl", text, strlen(text), format, 512, &trace, &trace_error_), 0);
	return trace;
}

static void a_request_has_its_fields_and_one_id_a_block(void **state)
{
	struct trace *trace = open_text(
		"{\"timestamp\": 1500, \"input_length\": 1025, \"output_length\": 7, \"hash_ids\": [3, 4, 9]}\n"
		"{\"hash_ids\":[3],\"chat_id\":{\"a\":[1,\"x\\\"]\",null]},\"output_length\":0,\"input_length\":1,"
		"\"timestamp\":1500.25}",
		TRACE_AUTO);

	(void)state;
	assert_int_equal(trace_next(trace, &request, &trace_error_), 1);
	assert_int_equal(request.arrival_ns, 0);
	assert_int_equal(request.input_tokens, 1025);
	assert_int_equal(request.output_tokens, 7);
	assert_int_equal(request.block_count, 3);
	assert_int_equal(request.blocks[2], 9);
	assert_int_equal(trace_next(trace, &request, &trace_error_), 1);
	assert_int_equal(request.arrival_ns, 250 * KVR_US);
	assert_int_equal(request.block_count, 1);
	assert_int_equal(trace_next(trace, &request, &trace_error_), 0);
	assert_int_equal(trace_next(trace, &request, &trace_error_), 0);
	trace_close(&trace);
	assert_null(trace);
}

static void an_azure_line_is_a_request_that_nobody_has_seen_before(void **state)
{
	struct trace *trace = open_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
					"2023-12-31 23:59:59.9000000,600,44\r\n"
					"2024-01-01 00:00:00.1,600,1\n"
					"2024-03-01 00:00:00,0,1\n",
		TRACE_AUTO);
	uint64_t first;

	(void)state;
	assert_int_equal(trace_next(trace, &request, &trace_error_), 1);
	assert_int_equal(request.input_tokens, 600);
	assert_int_equal(request.block_count, 2);
	first = request.blocks[0];
	assert_int_not_equal(first, request.blocks[1]);
	assert_int_equal(trace_next(trace, &request, &trace_error_), 1);
	assert_int_equal(request.arrival_ns, 200 * KVR_MS);
	assert_int_not_equal(first, request.blocks[0]);
	assert_int_equal(trace_next(trace, &request, &trace_error_), 1);
	assert_int_equal(request.arrival_ns, (60 * 24 * 3600 * 10 + 1) * (KVR_SECOND / 10)); /* 2024 is a leap year */
	assert_int_equal(request.block_count, 0);
	assert_int_equal(trace_next(trace, &request, &trace_error_), 0);
	trace_close(&trace);
}

static void time_that_goes_back_stands_still(void **state)
{
	struct trace *trace = open_text("{\"timestamp\":5,\"input_length\":0,\"hash_ids\":[]}\n"
					"{\"timestamp\":9,\"input_length\":0,\"hash_ids\":[]}\n"
					"{\"timestamp\":1,\"input_length\":0,\"hash_ids\":[]}\n",
		TRACE_MOONCAKE);

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(trace_next(trace, &request, &trace_error_), 1);
	assert_int_equal(request.arrival_ns, 4 * KVR_MS);
	trace_close(&trace);
}

static const struct {
	const char *line;
	const char *words;
} bad[] = {
	{ "x", "no time" },
	{ "{", "no JSON" },
	{ "{}", "no JSON" },
	{ "{\"timestamp\":1}", "input_length is missing" },
	{ "{\"timestamp\":1,\"input_length\":1}", "hash_ids is missing" },
	{ "{\"input_length\":1,\"hash_ids\":[1]}", "timestamp is missing" },
	{ "{\"timestamp\":-1,\"input_length\":1,\"hash_ids\":[1]}", "timestamp is no time" },
	{ "{\"timestamp\":99999999999999999999,\"input_length\":1,\"hash_ids\":[1]}", "timestamp is no time" },
	{ "{\"timestamp\":1e3,\"input_length\":1,\"hash_ids\":[1]}", "timestamp is no time" },
	{ "{\"timestamp\":1.,\"input_length\":1,\"hash_ids\":[1]}", "timestamp is no time" },
	{ "{\"timestamp\":1,\"input_length\":1.5,\"hash_ids\":[1]}", "input_length is no number" },
	{ "{\"timestamp\":1,\"input_length\":4194305,\"hash_ids\":[1]}", "input_length is no number" },
	{ "{\"timestamp\":1,\"input_length\":\"1\",\"hash_ids\":[1]}", "input_length is no number" },
	{ "{\"timestamp\":1,\"input_length\":1,\"output_length\":null,\"hash_ids\":[1]}",
		"output_length is no number" },
	{ "{\"timestamp\":1,\"input_length\":1,\"hash_ids\":7}", "no list" },
	{ "{\"timestamp\":1,\"input_length\":1,\"hash_ids\":[1", "does not end" },
	{ "{\"timestamp\":1,\"input_length\":1,\"hash_ids\":[1,]}", "holds something" },
	{ "{\"timestamp\":1,\"input_length\":1,\"hash_ids\":[4294967296]}", "holds something" },
	{ "{\"timestamp\":1,\"input_length\":1,\"hash_ids\":[1,2]}", "one id for each block" },
	{ "{\"timestamp\":1,\"input_length\":513,\"hash_ids\":[1]}", "one id for each block" },
	{ "{\"timestamp\":1,\"input_length\":1,\"hash_ids\":[1]} x", "behind the object" },
	{ "{\"timestamp\":1,\"timestamp\":1,\"input_length\":1,\"hash_ids\":[1]}", "twice" },
	{ "{\"timestamp\":1,\"input_length\":1,\"hash_ids\":[1]", "does not end" },
	{ "{\"x\":[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}", "too deep" },
	{ "{\"x\":\"abc}", "a value does not end" },
	{ "2023-13-16 18:15:46,1,2", "no time" },
	{ "2023-11-16T18:15:46,1,2", "no time" },
	{ "2023-11-16 18:15:46.,1,2", "no time" },
	{ "2023-11-16 18:15:46", "no time" },
	{ "2023-11-16 18:15:46,,2", "ContextTokens" },
	{ "2023-11-16 18:15:46,5000000,2", "ContextTokens" },
	{ "2023-11-16 18:15:46,1,", "GeneratedTokens" },
	{ "2023-11-16 18:15:46,1,2,3", "GeneratedTokens" },
};

static void a_malformed_line_is_refused_with_file_and_line(void **state)
{
	static const char good[] = "{\"timestamp\":0,\"input_length\":1,\"hash_ids\":[1]}\n\n";

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(bad); i++) {
		bool csv = bad[i].line[0] != '{';
		char text[256];
		struct trace *trace;

		snprintf(text, sizeof(text), "%s%s\n", csv ? "" : good, bad[i].line);
		trace = open_text(text, TRACE_AUTO);
		if (!csv)
			assert_int_equal(trace_next(trace, &request, &trace_error_), 1);
		assert_int_equal(trace_next(trace, &request, &trace_error_), -EINVAL);
		if (!strstr(trace_error_.text, bad[i].words))
			fail_msg("'%s' is refused as '%s'", bad[i].line, trace_error_.text);
		assert_non_null(strstr(trace_error_.text, csv ? "t.jsonl:1: " : "t.jsonl:3: "));
		trace_close(&trace);
	}
}

static void a_line_without_end_is_refused_and_not_held(void **state)
{
	size_t length = TRACE_LINE_MAX + 10;
	char *text = malloc(length);
	struct trace *trace;

	(void)state;
	memset(text, ' ', length);
	text[0] = '{';
	assert_int_equal(trace_open_memory("long", text, length, TRACE_AUTO, 512, &trace, &trace_error_), 0);
	assert_int_equal(trace_next(trace, &request, &trace_error_), -EINVAL);
	assert_string_equal(trace_error_.text, "long:1: a line of more than 256 KiB");
	trace_close(&trace);
	free(text);
}

static void more_ids_than_a_request_may_have_are_refused(void **state)
{
	size_t size = 64 + 2 * (TRACE_BLOCKS_MAX + 2);
	char *text = malloc(size);
	size_t length = (size_t)snprintf(text, size, "{\"timestamp\":0,\"input_length\":8193,\"hash_ids\":[");
	struct trace *trace;

	(void)state;
	for (unsigned i = 0; i <= TRACE_BLOCKS_MAX; i++) {
		text[length++] = '1';
		text[length++] = i < TRACE_BLOCKS_MAX ? ',' : ']';
	}
	text[length++] = '}';
	assert_int_equal(trace_open_memory("many", text, length, TRACE_AUTO, 1, &trace, &trace_error_), 0);
	assert_int_equal(trace_next(trace, &request, &trace_error_), -EINVAL);
	assert_string_equal(trace_error_.text, "many:1: hash_ids has more than 8192 ids");
	trace_close(&trace);
	free(text);
}

static void a_file_that_is_not_there_is_named(void **state)
{
	struct trace *trace = NULL;

	(void)state;
	assert_int_equal(trace_open("/nonexistent/trace.jsonl", TRACE_AUTO, 512, &trace, &trace_error_), -ENOENT);
	assert_non_null(strstr(trace_error_.text, "/nonexistent/trace.jsonl"));
	assert_null(trace);
}

static void the_committed_sample_reads_to_its_end(void **state)
{
	struct trace *trace;
	unsigned count = 0;
	int result;

	(void)state;
	assert_int_equal(
		trace_open(KVRAIL_SOURCE_DIR "/tests/traces/sample.jsonl", TRACE_AUTO, 512, &trace, &trace_error_), 0);
	while ((result = trace_next(trace, &request, &trace_error_)) == 1)
		count++;
	assert_int_equal(result, 0);
	assert_in_range(count, 200, 1000);
	trace_close(&trace);
}

static void equal_blocks_have_equal_tokens_and_others_differ(void **state)
{
	static uint32_t left[1024], right[1024];
	unsigned equal = 0;

	(void)state;
	request.input_tokens = 700;
	request.block_count = 2;
	request.blocks[0] = 5;
	request.blocks[1] = 6;
	trace_tokens(&request, 512, left);
	request.input_tokens = 1024;
	request.blocks[1] = 7;
	trace_tokens(&request, 512, right);
	assert_memory_equal(left, right, 512 * sizeof(left[0]));
	for (unsigned i = 512; i < 700; i++)
		equal += left[i] == right[i];
	assert_true(equal < 4);
	assert_int_equal(left[600], trace_token(6, 88));
	for (unsigned i = 0; i < 1024; i++)
		assert_true(right[i] < 1u << 17);
}

static void an_identity_stands_for_the_chunk_and_all_before_it(void **state)
{
	uint32_t tokens[1000], others[1000];
	uint64_t a[3], b[3];

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		tokens[i] = others[i] = i * 7;
	assert_int_equal(trace_identities(tokens, 1000, 256, a), 3);
	assert_int_equal(trace_identities(tokens, 768, 256, b), 3);
	assert_memory_equal(a, b, sizeof(a));
	others[300]++;
	trace_identities(others, 1000, 256, b);
	assert_int_equal(a[0], b[0]);
	assert_int_not_equal(a[1], b[1]);
	assert_int_not_equal(a[2], b[2]);
	assert_int_equal(trace_identities(tokens, 255, 256, a), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_has_its_fields_and_one_id_a_block),
		cmocka_unit_test(an_azure_line_is_a_request_that_nobody_has_seen_before),
		cmocka_unit_test(time_that_goes_back_stands_still),
		cmocka_unit_test(a_malformed_line_is_refused_with_file_and_line),
		cmocka_unit_test(a_line_without_end_is_refused_and_not_held),
		cmocka_unit_test(more_ids_than_a_request_may_have_are_refused),
		cmocka_unit_test(a_file_that_is_not_there_is_named),
		cmocka_unit_test(the_committed_sample_reads_to_its_end),
		cmocka_unit_test(equal_blocks_have_equal_tokens_and_others_differ),
		cmocka_unit_test(an_identity_stands_for_the_chunk_and_all_before_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
