/* Options off the command line, and in which order they count. */
#include "config/sample.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cmocka_all.h"

#define ARGUMENTS_MAX 16

struct line {
	char *argv[ARGUMENTS_MAX + 1];
	int argc;
	struct sample settings;
	enum option_special special;
	struct option_error error;
};

/* Reads a NULL-terminated list of arguments over the defaults. */
static int read_line(struct line *line, const char *const *arguments)
{
	static char program[] = "sampled";

	memset(line, 0, sizeof(*line));
	line->argv[line->argc++] = program;
	for (; *arguments; arguments++)
		line->argv[line->argc++] = (char *)(uintptr_t)*arguments;
	assert_int_equal(option_defaults(&sample_table, &line->settings, &line->error), 0);
	return option_read_arguments(
		&sample_table, &line->argc, line->argv, &line->settings, &line->special, &line->error);
}

#define READ(line, ...) read_line(line, (const char *const[]){ __VA_ARGS__, NULL })

static void close_line(struct line *line)
{
	option_fini(&sample_table, &line->settings);
}

#define assert_refused(message, ...)                                    \
	do {                                                            \
		struct line refused;                                    \
                                                                        \
		assert_int_equal(READ(&refused, __VA_ARGS__), -EINVAL); \
		assert_string_equal(refused.error.text, message);       \
		close_line(&refused);                                   \
	} while (0)

static void both_spellings_set_a_value_and_words_stay(void **state)
{
	struct line line;

	(void)state;
	assert_int_equal(
		READ(&line, "replay", "--l1-size", "2GiB", "x", "--wait=busy", "--require-tenant", "y", "-"), 0);
	assert_int_equal(line.special, OPTION_RUN);
	assert_int_equal(line.settings.l1_bytes, UINT64_C(2) << 30);
	assert_int_equal(line.settings.wait, 0);
	assert_true(line.settings.require_tenant);
	assert_int_equal(line.argc, 5);
	assert_string_equal(line.argv[0], "sampled");
	assert_string_equal(line.argv[1], "replay");
	assert_string_equal(line.argv[2], "x");
	assert_string_equal(line.argv[3], "y");
	assert_string_equal(line.argv[4], "-");
	assert_null(line.argv[5]);
	close_line(&line);
}

static void two_dashes_end_the_options(void **state)
{
	struct line line;

	(void)state;
	assert_int_equal(READ(&line, "--seed=7", "--", "--seed", "--help", "--"), 0);
	assert_int_equal(line.special, OPTION_RUN);
	assert_int_equal(line.settings.seed, 7);
	assert_int_equal(line.argc, 4);
	assert_string_equal(line.argv[1], "--seed");
	assert_string_equal(line.argv[2], "--help");
	assert_string_equal(line.argv[3], "--");
	close_line(&line);
}

/* pitfalls O05 */
static void every_refusal_names_the_flag(void **state)
{
	(void)state;
	assert_refused("unknown option --l1-szie; did you mean --l1-size?", "--l1-szie", "1");
	assert_refused("unknown option --qqqqqqqqqqq; sampled --help lists all", "--qqqqqqqqqqq=1");
	assert_refused("unknown option --hepl; did you mean --help?", "--hepl");
	assert_refused("--help is a flag and takes no value", "--help=1");
	assert_refused("unknown option -x; options begin with --, and sampled --help lists all", "-x");
	assert_refused("--seed is given twice", "--seed", "1", "--seed=1");
	assert_refused("--l1-size 1 is out of range; allowed: 64MiB to 64TiB", "--l1-size", "1");
	assert_refused("--chunk-tokens -1 is no whole number; allowed: 1 to 65536", "--chunk-tokens", "-1");
	assert_refused("--seed needs a value (one that begins with -- is given as --seed=--...)", "--seed");
	assert_refused("--socket needs a value (one that begins with -- is given as --socket=--...)", "--socket",
		"--seed", "1");
	assert_refused("--require-tenant maybe is neither yes nor no; allowed: yes or no", "--require-tenant=maybe");
	assert_refused("option --l1-bytes is now called --l1-size", "--l1-bytes", "1GiB");
	assert_refused("option --l1-bytes is now called --l1-size", "--l1-bytes=1GiB");
	assert_refused("--config is given twice", "--config=/dev/null", "--config=/dev/null");
	assert_refused("/nonexistent: the configuration file can't be read: No such file or directory", "--config",
		"/nonexistent");
}

static void a_name_of_any_length_is_refused_and_shortened(void **state)
{
	char word[600] = "--";

	(void)state;
	memset(word + 2, 'z', sizeof(word) - 3);
	struct line line;

	assert_int_equal(READ(&line, word), -EINVAL);
	assert_non_null(strstr(line.error.text, "unknown option --zzz"));
	assert_true(strlen(line.error.text) < 200);
	close_line(&line);
}

static void values_that_begin_with_dashes_go_behind_an_equals_sign(void **state)
{
	struct line line;

	(void)state;
	assert_int_equal(READ(&line, "--socket=--x=y", "--token-file="), 0);
	assert_string_equal(line.settings.socket, "--x=y");
	assert_string_equal(line.settings.token_file, "");
	close_line(&line);
}

static void help_is_given_whatever_else_is_wrong(void **state)
{
	struct line line;

	(void)state;
	assert_int_equal(READ(&line, "--no-such-option", "--help", "--version"), 0);
	assert_int_equal(line.special, OPTION_HELP);
	close_line(&line);
	assert_int_equal(READ(&line, "--version", "--config", "/nonexistent", "-h"), 0);
	assert_int_equal(line.special, OPTION_VERSION);
	close_line(&line);
	assert_int_equal(READ(&line, "-h"), 0);
	assert_int_equal(line.special, OPTION_HELP);
	close_line(&line);
}

static void checking_and_printing_read_everything_first(void **state)
{
	struct line line;

	(void)state;
	assert_int_equal(READ(&line, "--check-config", "--seed", "9"), 0);
	assert_int_equal(line.special, OPTION_CHECK_CONFIG);
	assert_int_equal(line.settings.seed, 9);
	close_line(&line);
	assert_int_equal(READ(&line, "--seed", "9", "--print-config"), 0);
	assert_int_equal(line.special, OPTION_PRINT_CONFIG);
	close_line(&line);
	assert_refused("--seed 9x is no whole number", "--check-config", "--seed", "9x");
}

/* A file that goes away with the test. */
static void write_file(char *path, const char *text)
{
	int fd;

	strcpy(path, "/tmp/kvrail-test-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void flags_outrank_the_file_wherever_it_is_named(void **state)
{
	struct line line;
	char path[32];

	(void)state;
	write_file(path, "seed = 1\nchunk-tokens = 32\ntenant = a\ntenant = b\n");
	assert_int_equal(READ(&line, "--seed", "2", "--config", path), 0);
	assert_int_equal(line.settings.seed, 2);
	assert_int_equal(line.settings.chunk_tokens, 32);
	assert_int_equal(line.settings.tenants.count, 2);
	close_line(&line);
	assert_int_equal(READ(&line, "--config", path, "--tenant", "c"), 0);
	assert_int_equal(line.settings.seed, 1);
	assert_int_equal(line.settings.tenants.count, 1);
	assert_string_equal(line.settings.tenants.items[0], "c");
	close_line(&line);
	unlink(path);
}

static void a_fault_in_the_file_names_file_and_line(void **state)
{
	struct line line;
	char path[32], message[128];

	(void)state;
	write_file(path, "seed = 1\nl1-szie = 1GiB\n");
	assert_int_equal(READ(&line, "--config", path), -EINVAL);
	snprintf(message, sizeof(message), "%s:2: unknown option l1-szie; did you mean l1-size?", path);
	assert_string_equal(line.error.text, message);
	close_line(&line);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_spellings_set_a_value_and_words_stay),
		cmocka_unit_test(two_dashes_end_the_options),
		cmocka_unit_test(every_refusal_names_the_flag),
		cmocka_unit_test(a_name_of_any_length_is_refused_and_shortened),
		cmocka_unit_test(values_that_begin_with_dashes_go_behind_an_equals_sign),
		cmocka_unit_test(help_is_given_whatever_else_is_wrong),
		cmocka_unit_test(checking_and_printing_read_everything_first),
		cmocka_unit_test(flags_outrank_the_file_wherever_it_is_named),
		cmocka_unit_test(a_fault_in_the_file_names_file_and_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
