#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cmocka_all.h"

struct captured {
	unsigned lines;
	enum log_level level;
	char line[2048];
};

static void capture(void *context, enum log_level level, const char *line)
{
	struct captured *captured = context;

	captured->lines++;
	captured->level = level;
	snprintf(captured->line, sizeof(captured->line), "%s", line);
	errno = EIO;
}

static int restore(void **state)
{
	(void)state;
	log_set_sink(NULL, NULL);
	log_set_level(LOG_INFO);
	return 0;
}

static void a_line_reaches_the_sink_with_its_level(void **state)
{
	struct captured captured = { 0 };

	(void)state;
	log_set_sink(capture, &captured);
	log_warn("queue pair 0x%x: %s", 0x1f, "no memory");
	assert_int_equal(captured.lines, 1);
	assert_int_equal(captured.level, LOG_WARN);
	assert_string_equal(captured.line, "queue pair 0x1f: no memory");
}

static int evaluated(int *count)
{
	return ++*count;
}

static void lines_above_the_level_are_dropped_and_their_arguments_not_evaluated(void **state)
{
	struct captured captured = { 0 };
	int count = 0;

	(void)state;
	log_set_sink(capture, &captured);
	log_debug("%d", evaluated(&count));
	assert_int_equal(captured.lines, 0);
	assert_int_equal(count, 0);
	log_set_level(LOG_DEBUG);
	log_debug("%d", evaluated(&count));
	assert_int_equal(captured.lines, 1);
	assert_int_equal(count, 1);
	log_set_level(LOG_ERROR);
	assert_int_equal(log_get_level(), LOG_ERROR);
	log_warn("%d", evaluated(&count));
	log_error("%d", evaluated(&count));
	assert_int_equal(captured.lines, 2);
	assert_int_equal(count, 2);
}

static void a_peers_text_can_neither_start_a_line_nor_steer_a_terminal(void **state)
{
	struct captured captured = { 0 };

	(void)state;
	log_set_sink(capture, &captured);
	log_error("model \"%s\"", "a\nerror: forged\x1b[2J\x7f\t\xc3\xa9");
	assert_string_equal(captured.line, "model \"a?error: forged?[2J??\xc3\xa9\"");
}

static void a_long_line_is_cut_and_says_so(void **state)
{
	struct captured captured = { 0 };
	char word[3000];

	(void)state;
	memset(word, 'x', sizeof(word));
	word[sizeof(word) - 1] = '\0';
	log_set_sink(capture, &captured);
	log_error("%s", word);
	assert_int_equal(strlen(captured.line), 1023);
	assert_string_equal(captured.line + 1019, "x...");
}

static void logging_leaves_errno_alone(void **state)
{
	struct captured captured = { 0 };

	(void)state;
	log_set_sink(capture, &captured);
	errno = ENODEV;
	log_error("%m");
	assert_int_equal(errno, ENODEV);
	assert_string_equal(captured.line, strerror(ENODEV));
}

static void without_a_sink_a_line_is_one_write_to_standard_error(void **state)
{
	int ends[2], saved = dup(STDERR_FILENO), year, month, day, used = 0;
	char line[256];
	ssize_t length;

	(void)state;
	/* A packet pipe keeps the writes apart. */
	assert_int_equal(pipe2(ends, O_DIRECT), 0);
	fflush(stderr);
	dup2(ends[1], STDERR_FILENO);
	log_info("core %d started", 3);
	log_info("second");
	dup2(saved, STDERR_FILENO);
	length = read(ends[0], line, sizeof(line) - 1);
	assert_true(length > 0);
	line[length] = '\0';
	assert_int_equal(sscanf(line, "%4d-%2d-%2dT%*d:%*d:%*d.%*6dZ %n", &year, &month, &day, &used), 3);
	assert_int_equal(used, 28);
	assert_string_equal(line + used, "info: core 3 started\n");
	length = read(ends[0], line, sizeof(line) - 1);
	assert_int_equal(length, 28 + (ssize_t)strlen("info: second\n"));
	close(saved);
	close(ends[0]);
	close(ends[1]);
}

static void levels_are_read_by_name_only(void **state)
{
	static const char *const wrong[] = { "", "Info", "information", "inf", "4" };
	enum log_level level = LOG_WARN;

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(wrong); i++)
		assert_int_equal(log_parse_level(wrong[i], &level), -EINVAL);
	assert_int_equal(level, LOG_WARN);
	assert_int_equal(log_parse_level("error", &level), 0);
	assert_int_equal(level, LOG_ERROR);
	assert_int_equal(log_parse_level("warn", &level), 0);
	assert_int_equal(level, LOG_WARN);
	assert_int_equal(log_parse_level("info", &level), 0);
	assert_int_equal(level, LOG_INFO);
	assert_int_equal(log_parse_level("debug", &level), 0);
	assert_int_equal(level, LOG_DEBUG);
}

static void a_rate_lets_one_line_through_per_interval_and_counts_the_rest(void **state)
{
	struct log_rate rate = { 0 };
	uint64_t squashed = 99;

	(void)state;
	assert_true(log_rate_pass(&rate, 1000, 100, &squashed));
	assert_int_equal(squashed, 0);
	assert_false(log_rate_pass(&rate, 1000, 100, &squashed));
	assert_false(log_rate_pass(&rate, 1099, 100, &squashed));
	assert_true(log_rate_pass(&rate, 1100, 100, &squashed));
	assert_int_equal(squashed, 2);
	assert_true(log_rate_pass(&rate, 5000, UINT64_MAX, &squashed));
	assert_int_equal(squashed, 0);
	assert_false(log_rate_pass(&rate, UINT64_MAX - 1, 1, &squashed));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_line_reaches_the_sink_with_its_level, restore),
		cmocka_unit_test_teardown(lines_above_the_level_are_dropped_and_their_arguments_not_evaluated, restore),
		cmocka_unit_test_teardown(a_peers_text_can_neither_start_a_line_nor_steer_a_terminal, restore),
		cmocka_unit_test_teardown(a_long_line_is_cut_and_says_so, restore),
		cmocka_unit_test_teardown(logging_leaves_errno_alone, restore),
		cmocka_unit_test_teardown(without_a_sink_a_line_is_one_write_to_standard_error, restore),
		cmocka_unit_test_teardown(levels_are_read_by_name_only, restore),
		cmocka_unit_test_teardown(a_rate_lets_one_line_through_per_interval_and_counts_the_rest, restore),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
