/*
 * kvraild and kvrail-bench as they are shipped, two processes: a replay of the sample is right in every byte and
 * equal to the reference, and what a user does wrong gives the exit code and the words that the manual promises.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/process.h"
#include "base/cmocka_all.h"

#define SAMPLE KVRAIL_SOURCE_DIR "/tests/traces/sample.jsonl"

static struct server_process server;
static char url[128];
static struct text out, error;
static const char *output; /* what it printed; on standard error where the other is empty */

static int bench(const char *first, ...)
{
	const char *arguments[32] = { first };
	int count = first ? 1 : 0, code;
	va_list rest;

	va_start(rest, first);
	while (first && (arguments[count] = va_arg(rest, const char *)) != NULL)
		count++;
	va_end(rest);
	text_fini(&out);
	text_fini(&error);
	out = error = (struct text){ 0 };
	code = process_run("kvrail-bench", arguments, &out, &error);
	output = out.length > 0 ? out.bytes : error.length > 0 ? error.bytes : "";
	return code;
}

static int begin(void **state)
{
	(void)state;
	SERVER_START(&server, "--log-level", "warn");
	snprintf(url, sizeof(url), "unix:%s", server.socket);
	return 0;
}

static int end(void **state)
{
	int code = server_process_stop(&server, SIGTERM);

	(void)state;
	text_fini(&out);
	text_fini(&error);
	return code == 0 && server_process_clean(&server) ? 0 : -1;
}

static void assert_has(const char *words)
{
	if (!strstr(output, words))
		fail_msg("'%s' is not in: %s", words, output);
}

/* The first number of that name behind the words. */
static double number_behind(const char *words, const char *name)
{
	const char *at = strstr(output, words);
	char wanted[64];

	snprintf(wanted, sizeof(wanted), "\"%s\": ", name);
	at = at ? strstr(at, wanted) : NULL;
	if (!at)
		fail_msg("no %s in: %s", name, output);
	return at ? strtod(at + strlen(wanted), NULL) : 0;
}

static double number_of(const char *name)
{
	return number_behind("", name);
}

static void a_replay_is_right_in_every_byte_and_equal_to_the_reference(void **state)
{
	(void)state;
	assert_int_equal(bench("replay", "--server", url, "--trace", SAMPLE, "--pool", "16MiB", "--scale", "256",
				 "--requests", "60", "--verify", "--reference", "--json", "-", NULL),
		0);
	assert_int_equal(output[0], '{');
	assert_true(number_of("requests") == 60);
	assert_true(number_of("hit_tokens") > 0);
	assert_true(number_of("hit_rate") == number_of("reference_hit_rate"));
	assert_true(number_of("verified_bytes") == number_of("bytes_retrieved"));
	assert_true(number_of("bytes_retrieved") > 0 && number_of("bytes_stored") > 0);
	assert_true(number_of("mismatched_bytes") == 0);
	assert_true(number_of("errors") == 0);
	/* 16 MiB hold fewer chunks than those requests have, so some were stored twice. */
	assert_true(number_of("reference_capacity") < number_of("chunks_stored"));
	assert_has("\"memcpy_gbps\": ");
	assert_has("\"ratio\": {\"retrieve\": ");
}

static void ranks_with_parts_and_ranks_that_share_are_right(void **state)
{
	(void)state;
	assert_int_equal(bench("replay", "--server", url, "--trace", SAMPLE, "--pool", "16MiB", "--model", "qwen3-32b",
				 "--scale", "1024", "--requests", "15", "--depth", "3", "--verify", "--json=-", NULL),
		0);
	assert_true(number_of("mismatched_bytes") == 0);
	assert_true(number_of("verified_bytes") == number_of("bytes_retrieved"));
	assert_int_equal(
		bench("replay", "--server", url, "--trace", SAMPLE, "--pool", "16MiB", "--model", "deepseek-v3", "--tp",
			"2", "--scale", "1024", "--requests", "15", "--clients", "2", "--verify", "--json=-", NULL),
		0);
	assert_true(number_of("mismatched_bytes") == 0);
	assert_true(number_of("errors") == 0);
}

static void every_kind_of_load_runs(void **state)
{
	static const char *const ops[] = { "ping", "lookup", "store", "retrieve", "mixed" };

	(void)state;
	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(bench("load", "--server", url, "--op", ops[i], "--size", "4KiB", "--planes", "2",
					 "--chunks", "2", "--set", "4MiB", "--seconds", "1", "--rounds", "3", "--depth",
					 "2", "--json", "-", NULL),
			0);
		assert_true(number_of("operations_per_second") > 0);
		assert_true(number_of("errors") == 0);
		assert_true(number_of("mismatched_bytes") == 0);
	}
}

static void a_rate_is_kept_and_latency_counts_from_the_intended_time(void **state)
{
	(void)state;
	/* PING is so fast that 500 a second are kept on any machine; then a rate that no machine keeps. */
	assert_int_equal(bench("load", "--server", url, "--op", "ping", "--rate", "500", "--clients", "2", "--seconds",
				 "2", "--rounds", "2", "--json", "-", NULL),
		0);
	assert_true(number_of("rate") == 500);
	assert_true(number_of("count") > 600 && number_of("count") < 1500);
	assert_true(number_of("errors") == 0);
	assert_int_equal(bench("load", "--server", url, "--op", "ping", "--rate", "1000000", "--depth", "1",
				 "--seconds", "1", "--rounds", "1", "--arrival", "even", "--json", "-", NULL),
		0);
	assert_true(number_of("backlog") > 0);
	/* What waited is counted: all that were due, and the median of what ran longer behind is far above a PING. */
	assert_true(number_of("count") > 500000);
	assert_true(number_of("p50_us") > 10000);
}

static void hits_are_as_many_as_were_wanted(void **state)
{
	(void)state;
	assert_int_equal(bench("load", "--server", url, "--op", "lookup", "--chunks", "4", "--hit-percent", "0",
				 "--seconds", "1", "--rounds", "1", "--json", "-", NULL),
		0);
	assert_true(number_of("hit_ratio") == 0);
	assert_int_equal(bench("load", "--server", url, "--op", "retrieve", "--size", "4KiB", "--planes", "2",
				 "--chunks", "2", "--set", "4MiB", "--hit-percent", "50", "--skew", "0.99", "--blocks",
				 "contiguous", "--depth", "3", "--seconds", "1", "--rounds", "2", "--json", "-", NULL),
		0);
	assert_true(number_of("hit_ratio") > 0.2 && number_of("hit_ratio") < 0.8);
	assert_true(number_of("chunks_missing") == 0 && number_of("mismatched_bytes") == 0);
	assert_int_equal(bench("load", "--server", url, "--op", "mixed", "--model", "llama3-8b", "--scale", "1024",
				 "--set", "4MiB", "--seconds", "1", "--rounds", "2", "--json", "-", NULL),
		0);
	assert_true(number_of("planes") == 64);
	assert_true(number_of("verbs_write_gbps") > 0 && number_of("verbs_read_gbps") > 0);
	assert_true(number_of("verbs") > 0);
	assert_true(number_of("mismatched_bytes") == 0);
}

static void results_are_in_google_benchmarks_form_with_percentiles_and_seconds(void **state)
{
	(void)state;
	assert_int_equal(bench("load", "--server", url, "--op", "ping", "--seconds", "1", "--rounds", "4", "--interval",
				 "100ms", "--json", "-", NULL),
		0);
	assert_has("\"context\": {\"date\": \"2");
	assert_has("\"devices\": [");
	assert_has("\"placement\": {\"cores\": \"");
	assert_has("\"server\": null}");
	assert_true(number_of("gap_percent") >= 0);
	assert_has("\"library_build_type\": ");
	assert_has("\"benchmarks\": [\n    {\"name\": \"load/ping/size:64B/");
	assert_has("\"repetitions\": 4, \"repetition_index\": 3, ");
	assert_has("\"run_type\": \"aggregate\", \"repetitions\": 4, \"aggregate_name\": \"median\"");
	assert_has("/ping/p99.99\"");
	assert_has("\"intervals\": [\n    {\"seconds\": ");
	/* The whole run's: seconds have a p50 of their own. */
	assert_true(number_behind("\"mean_us\": ", "p50_us") <= number_behind("\"mean_us\": ", "p90_us"));
	assert_true(number_behind("\"mean_us\": ", "p999_us") <= number_behind("\"mean_us\": ", "p9999_us"));
}

static void wrong_usage_is_exit_code_2(void **state)
{
	(void)state;
	assert_int_equal(bench(NULL), 2);
	assert_has("usage:");
	assert_int_equal(bench("reply", NULL), 2);
	assert_int_equal(bench("replay", "--trace", SAMPLE, "--modell", "x", NULL), 2);
	assert_has("did you mean --model");
	assert_int_equal(bench("replay", NULL), 2);
	assert_has("--trace FILE is missing");
	assert_int_equal(bench("load", "--size", "100", NULL), 2);
	assert_int_equal(bench("load", "now", NULL), 2);
}

static void help_is_exit_code_0(void **state)
{
	(void)state;
	assert_int_equal(bench("--help", NULL), 0);
	assert_int_equal(bench("replay", "--help", NULL), 0);
	assert_has("--scale");
	assert_int_equal(bench("models", NULL), 0);
	assert_has("deepseek-v3");
	assert_int_equal(bench("--version", NULL), 0);
}

static void what_cannot_be_done_is_exit_code_1_with_the_reason(void **state)
{
	char path[96];

	(void)state;
	snprintf(path, sizeof(path), "%s/bad.jsonl", server.folder);
	assert_int_equal(bench("replay", "--server", url, "--trace", path, NULL), 1);
	assert_has("bad.jsonl: No such file");
	write_file(path, "{\"timestamp\": 0, \"input_length\": 300, \"hash_ids\": [1]}\n{\"timestamp\": 0}\n", 0600);
	assert_int_equal(bench("replay", "--server", url, "--trace", path, "--scale=1024", "--json=-", NULL), 1);
	assert_true(number_of("errors") == 1);
	output = error.bytes;
	assert_has("bad.jsonl:2: input_length is missing");
	unlink(path);
	assert_int_equal(bench("replay", "--server", "unix:/nonexistent/socket", "--trace", SAMPLE, NULL), 1);
	assert_has("/nonexistent/socket");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_replay_is_right_in_every_byte_and_equal_to_the_reference),
		cmocka_unit_test(ranks_with_parts_and_ranks_that_share_are_right),
		cmocka_unit_test(every_kind_of_load_runs),
		cmocka_unit_test(a_rate_is_kept_and_latency_counts_from_the_intended_time),
		cmocka_unit_test(hits_are_as_many_as_were_wanted),
		cmocka_unit_test(results_are_in_google_benchmarks_form_with_percentiles_and_seconds),
		cmocka_unit_test(wrong_usage_is_exit_code_2),
		cmocka_unit_test(help_is_exit_code_0),
		cmocka_unit_test(what_cannot_be_done_is_exit_code_1_with_the_reason),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
