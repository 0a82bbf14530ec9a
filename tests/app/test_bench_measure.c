/* Busy time, medians, what is reported of an operation; option tables and what they refuse. */
#include "app/kvrail-bench/measure.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/kvrail-bench/machine.h"
#include "app/kvrail-bench/report.h"
#include "app/kvrail-bench/settings.h"
#include "base/cmocka_all.h"
#include "base/random.h"

static void busy_time_is_the_length_of_the_union(void **state)
{
	struct busy a = { 0 }, b = { 0 };
	const struct busy *both[] = { &a, &b };

	(void)state;
	busy_add(&a, 10, 20);
	busy_add(&a, 15, 30);
	busy_add(&a, 40, 50);
	assert_int_equal(a.count, 2);
	assert_int_equal(busy_total(both, 1), 30);
	busy_add(&a, 5, 55); /* began before all of them */
	assert_int_equal(a.count, 1);
	assert_int_equal(busy_total(both, 1), 50);
	busy_add(&b, 50, 60);
	busy_add(&b, 70, 71);
	assert_int_equal(busy_total(both, 2), 56);
	busy_fini(&a);
	busy_fini(&b);
	assert_int_equal(busy_total(both, 2), 0);
}

static void random_intervals_have_the_length_that_counting_gives(void **state)
{
	struct busy busys[3] = { { 0 } };
	const struct busy *all[] = { &busys[0], &busys[1], &busys[2] };
	bool covered[4000] = { false };
	struct random random;
	uint64_t expected = 0;

	(void)state;
	random_init(&random, 5);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t end = 0;

		while (end < 3900) {
			uint64_t begin;

			end += random_below(&random, 40);
			begin = end - random_below(&random, kvr_min_u64(end, 60) + 1);
			busy_add(&busys[i], begin, end);
			for (uint64_t t = begin; t < end; t++)
				covered[t] = true;
		}
	}
	for (unsigned t = 0; t < 4000; t++)
		expected += covered[t];
	assert_int_equal(busy_total(all, 3), expected);
	for (unsigned i = 0; i < 3; i++)
		busy_fini(&busys[i]);
}

static void a_rate_is_bytes_by_the_time_that_something_was_under_way(void **state)
{
	static struct measure one, two;
	struct measure *measures[] = { &one, &two };
	struct op_result result;

	(void)state;
	measure_init(&one);
	measure_init(&two);
	measure_add(&one, MEASURE_RETRIEVE, 1000, 2000, 4000);
	measure_add(&two, MEASURE_RETRIEVE, 1500, 3000, 4000); /* 2000 ns in all */
	measure_add(&two, MEASURE_LOOKUP, 0, 50, 0);
	measure_result(measures, 2, MEASURE_RETRIEVE, &result);
	assert_int_equal(result.count, 2);
	assert_int_equal(result.bytes, 8000);
	assert_true(result.gbps > 3.999 && result.gbps < 4.001);
	assert_int_equal(result.max_ns, 1500);
	measure_result(measures, 2, MEASURE_LOOKUP, &result);
	assert_int_equal(result.p50_ns, 50);
	assert_true(result.gbps == 0);
	measure_result(measures, 2, MEASURE_PING, &result);
	assert_int_equal(result.count, 0);
	measure_fini(&one);
	measure_fini(&two);
}

static void medians_are_those_of_sorted_values(void **state)
{
	double odd[] = { 3, 1, 2 }, even[] = { 4, 1, 3, 2 };

	(void)state;
	assert_true(median_of(odd, 3) == 2);
	assert_true(median_of(even, 4) == 2.5);
	assert_true(median_of(even, 0) == 0);
}

static void counters_of_threads_are_summed(void **state)
{
	struct counters sum = { 0 }, one = { .requests = 2, .retries = 7 };

	(void)state;
	counters_sum(&sum, &one);
	counters_sum(&sum, &one);
	assert_int_equal(sum.requests, 4);
	assert_int_equal(sum.retries, 14);
	assert_int_equal(sum.tokens, 0);
}

static void numbers_are_grouped(void **state)
{
	char text[REPORT_NUMBER];

	(void)state;
	assert_string_equal(report_number(text, 0), "0");
	assert_string_equal(report_number(text, 999), "999");
	assert_string_equal(report_number(text, 1000), "1,000");
	assert_string_equal(report_number(text, UINT64_MAX), "18,446,744,073,709,551,615");
}

static void the_working_set_is_ten_caches_or_what_memory_allows(void **state)
{
	struct machine machine = { .cache_bytes = 32u << 20, .available_bytes = (uint64_t)64 << 30 };

	(void)state;
	assert_int_equal(machine_working_set(&machine, 1), 320u << 20);
	machine.available_bytes = 1u << 30;
	assert_int_equal(machine_working_set(&machine, 1), 128u << 20);
	assert_int_equal(machine_working_set(&machine, 4), 32u << 20);
	machine_read(&machine);
	assert_true(machine.cores >= 1 && machine.cache_bytes > 0 && machine.memory_bytes > 0);
}

/* ---- settings ---- */

static struct option_error error;

static int read_replay(struct replay_settings *settings, int argc, const char *const *arguments)
{
	enum option_special special;
	char *argv[16];
	int result;

	memset(settings, 0, sizeof(*settings));
	for (int i = 0; i < argc; i++)
		argv[i] = (char *)(uintptr_t)arguments[i];
	argv[argc] = NULL;
	result = option_defaults(&replay_options, settings, &error);
	if (!result)
		result = option_read_arguments(&replay_options, &argc, argv, settings, &special, &error);
	return result ? result : replay_settings_check(settings, &error);
}

static void replay_options_are_read(void **state)
{
	const char *const good[] = { "replay", "--trace", "x", "--tp", "4", "--speed", "2.5", "--verify", "--scale=16",
		"--model", "qwen3-32b", "--json=-", "--device=mlx5_1" };
	struct replay_settings settings;
	struct kvr_options client;

	(void)state;
	assert_int_equal(read_replay(&settings, KVR_COUNT_OF(good), good), 0);
	assert_string_equal(settings.trace, "x");
	assert_int_equal(settings.tp, 4);
	assert_true(settings.speed_factor == 2.5);
	assert_true(settings.verify && !settings.reference && settings.ceiling);
	assert_int_equal(settings.scale, 16);
	assert_int_equal(settings.block_tokens, 16);
	assert_string_equal(settings.json, "-");
	settings_client(&settings.server, "me", &client);
	assert_null(client.url);
	assert_string_equal(client.device, "mlx5_1");
	assert_null(client.key_file);
	assert_string_equal(client.name, "me");
	option_fini(&replay_options, &settings);
}

static void replay_options_without_sense_are_refused(void **state)
{
	static const struct {
		const char *arguments[4];
		const char *words;
	} bad[] = {
		{ { "--server=unix:/x" }, "--trace FILE is missing" },
		{ { "--trace=x", "--model=llama3-9b" }, "did you mean llama3-8b" },
		{ { "--trace=x", "--speed=fast" }, "--speed" },
		{ { "--trace=x", "--speed=-1" }, "--speed" },
		{ { "--trace=x", "--speed=nan" }, "--speed" },
		{ { "--trace=x", "--capacity=5" }, "--reference" },
		{ { "--trace=x", "--scale=0" }, "scale" },
		{ { "--trace=x", "--key-name=a" }, "--key-name and --key-file" },
		{ { "--trace=x", "--verfy" }, "--verify" },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(bad); i++) {
		const char *arguments[8] = { "replay" };
		struct replay_settings settings;
		int count = 1;

		while (bad[i].arguments[count - 1]) {
			arguments[count] = bad[i].arguments[count - 1];
			count++;
		}
		assert_true(read_replay(&settings, count, arguments) < 0);
		if (!strstr(error.text, bad[i].words))
			fail_msg("refused as '%s', not '%s'", error.text, bad[i].words);
		option_fini(&replay_options, &settings);
	}
}

static void load_options_have_good_defaults(void **state)
{
	struct load_settings settings = { 0 };

	(void)state;
	assert_int_equal(option_defaults(&load_options, &settings, &error), 0);
	assert_int_equal(load_settings_check(&settings, &error), 0);
	assert_int_equal(settings.block_bytes, 32768);
	settings.block_bytes = 100;
	assert_true(load_settings_check(&settings, &error) < 0);
	settings.block_bytes = 64;
	settings.rounds = 1000;
	assert_true(load_settings_check(&settings, &error) < 0);
	option_fini(&load_options, &settings);
}

static void an_open_loop_has_more_requests_in_flight_by_itself(void **state)
{
	struct load_settings settings = { 0 };

	(void)state;
	assert_int_equal(load_depth(&settings), 1);
	settings.rate = 1000;
	assert_int_equal(load_depth(&settings), 16);
	settings.depth = 3;
	assert_int_equal(load_depth(&settings), 3);
}

static void load_options_without_sense_are_refused(void **state)
{
	static const struct {
		const char *name, *value, *words;
	} bad[] = {
		{ "skew", "-1", "--skew" },
		{ "skew", "much", "--skew" },
		{ "skew", "11", "--skew" },
		{ "model", "llama3-9b", "did you mean llama3-8b" },
		{ "interval", "1ms", "--interval" },
		{ "blocks", "wild", "blocks" },
		{ "hit-percent", "101", "hit-percent" },
		{ "arrival", "sometimes", "arrival" },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(bad); i++) {
		struct load_settings settings = { 0 };
		char line[64];
		int result;

		snprintf(line, sizeof(line), "%s = %s\n", bad[i].name, bad[i].value);
		assert_int_equal(option_defaults(&load_options, &settings, &error), 0);
		result = option_read_text(&load_options, "test", line, strlen(line), &settings, &error);
		assert_true((result ? result : load_settings_check(&settings, &error)) < 0);
		if (!strstr(error.text, bad[i].words))
			fail_msg("refused as '%s', not '%s'", error.text, bad[i].words);
		option_fini(&load_options, &settings);
	}
}

static void assert_warned(const struct machine *machine, uint32_t threads, const char *words)
{
	struct text out = { 0 };

	machine_append_warnings(machine, threads, &out);
	if (words && (!out.bytes || !strstr(out.bytes, words)))
		fail_msg("'%s' is not in '%s'", words, out.bytes ? out.bytes : "");
	if (!words)
		assert_int_equal(out.length, 0);
	text_fini(&out);
}

static void what_makes_a_figure_worth_little_is_said(void **state)
{
	struct machine machine = { .cores = 4 };

	(void)state;
	assert_warned(&machine, 2, NULL);
	assert_warned(&machine, 5, "5 threads poll on 4 cores");
	machine.load_average = 3;
	assert_warned(&machine, 2, "other work on this machine");
	machine = (struct machine){ .cores = 4, .siblings = 2 };
	assert_warned(&machine, 2, "second threads of others");
	machine = (struct machine){ .cores = 4, .governor = "performance" };
	assert_warned(&machine, 2, NULL);
	strcpy(machine.governor, "schedutil");
	assert_warned(&machine, 2, "governor schedutil");
	machine = (struct machine){ .cores = 1 };
	assert_warned(&machine, 1, "one core");
	machine = (struct machine){ .cores = 4, .virtual_machine = true, .steal_percent = 3 };
	assert_warned(&machine, 2, "a virtual machine");
	assert_warned(&machine, 2, "the host took 3.0 %");
	machine = (struct machine){ .cores = 4, .quota_cores = 1.5 };
	assert_warned(&machine, 2, "grants 1.5 of 4 cores");
	machine.quota_cores = 4;
	assert_warned(&machine, 2, NULL);
	machine = (struct machine){ .cores = 4, .debug = true };
	assert_warned(&machine, 2, "a debug build");
}

static void the_machine_names_build_commit_devices_and_placement(void **state)
{
	static const char *const names[] = { "processor", "kernel", "compiler", "commit", "build", "governor", "numa",
		"load_average", "quota_cores", "devices", "placement", "cores", "numa_nodes", "server", "thread" };
	struct text out = { 0 };
	struct machine machine;

	(void)state;
	machine_read(&machine);
	machine_finish(&machine);
	assert_true(machine.commit[0] != '\0' && machine.numa[0] != '\0');
	assert_true(machine.steal_percent >= 0 && machine.steal_percent <= 100);
	machine_append_json(&machine, (uint64_t)getpid(), &out);
	for (size_t i = 0; i < KVR_COUNT_OF(names); i++) {
		char member[64];

		snprintf(member, sizeof(member), "\"%s\": ", names[i]);
		assert_non_null(strstr(out.bytes, member));
	}
	text_fini(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(busy_time_is_the_length_of_the_union),
		cmocka_unit_test(random_intervals_have_the_length_that_counting_gives),
		cmocka_unit_test(a_rate_is_bytes_by_the_time_that_something_was_under_way),
		cmocka_unit_test(medians_are_those_of_sorted_values),
		cmocka_unit_test(counters_of_threads_are_summed),
		cmocka_unit_test(numbers_are_grouped),
		cmocka_unit_test(the_working_set_is_ten_caches_or_what_memory_allows),
		cmocka_unit_test(replay_options_are_read),
		cmocka_unit_test(replay_options_without_sense_are_refused),
		cmocka_unit_test(load_options_have_good_defaults),
		cmocka_unit_test(an_open_loop_has_more_requests_in_flight_by_itself),
		cmocka_unit_test(load_options_without_sense_are_refused),
		cmocka_unit_test(what_makes_a_figure_worth_little_is_said),
		cmocka_unit_test(the_machine_names_build_commit_devices_and_placement),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
