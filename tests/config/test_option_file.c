/* Options out of text and files: every value, every refusal with its exact message. */
#include "base/clock.h"
#include "base/fault.h"
#include "config/sample.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cmocka_all.h"

#define GIB (UINT64_C(1) << 30)

static int read_text(struct sample *settings, const char *text, struct option_error *error)
{
	memset(settings, 0, sizeof(*settings));
	assert_int_equal(option_defaults(&sample_table, settings, error), 0);
	return option_read_text(&sample_table, "k.conf", text, strlen(text), settings, error);
}

static void assert_refused(const char *text, const char *message)
{
	struct option_error error;
	struct sample settings;

	assert_int_equal(read_text(&settings, text, &error), -EINVAL);
	assert_string_equal(error.text, message);
	option_fini(&sample_table, &settings);
}

static void defaults_are_those_of_the_table(void **state)
{
	struct option_error error;
	struct sample settings;

	(void)state;
	assert_int_equal(read_text(&settings, "", &error), 0);
	assert_int_equal(settings.l1_bytes, GIB);
	assert_int_equal(settings.lock_ttl_ns, 300 * KVR_SECOND);
	assert_int_equal(settings.chunk_tokens, 256);
	assert_int_equal(settings.seed, 0);
	assert_string_equal(settings.socket, "/run/kvrail.sock");
	assert_int_equal(settings.wait, 1);
	assert_false(settings.require_tenant);
	assert_int_equal(settings.tenants.count, 0);
	assert_string_equal(error.text, "");
	option_fini(&sample_table, &settings);
}

static void a_file_sets_every_type(void **state)
{
	struct option_error error;
	struct sample settings;

	(void)state;
	assert_int_equal(read_text(&settings,
				 "# a comment\n\n"
				 "l1-size = 2GiB   # two\r\n"
				 "\tlock-ttl=1.5s\n"
				 "chunk-tokens = 64\n"
				 "seed = 18446744073709551615\n"
				 "socket = \"/tmp/a b#c\\\"\\\\\" # quoted\n"
				 "wait = busy\n"
				 "require-tenant = on\n"
				 "tenant = a:uid=1\n"
				 "tenant = b#2:uid=2\n"
				 "token-file = \"\"",
				 &error),
		0);
	assert_int_equal(settings.l1_bytes, 2 * GIB);
	assert_int_equal(settings.lock_ttl_ns, 1500 * KVR_MS);
	assert_int_equal(settings.chunk_tokens, 64);
	assert_true(settings.seed == UINT64_MAX);
	assert_string_equal(settings.socket, "/tmp/a b#c\"\\");
	assert_int_equal(settings.wait, 0);
	assert_true(settings.require_tenant);
	assert_int_equal(settings.tenants.count, 2);
	assert_string_equal(settings.tenants.items[0], "a:uid=1");
	assert_string_equal(settings.tenants.items[1], "b#2:uid=2");
	assert_string_equal(settings.token_file, "");
	option_fini(&sample_table, &settings);
}

static void all_words_for_yes_and_no_are_known(void **state)
{
	static const char *const words[] = { "no", "yes", "false", "true", "off", "on", "0", "1" };
	struct option_error error;
	struct sample settings;
	char line[64];

	(void)state;
	for (unsigned i = 0; i < KVR_COUNT_OF(words); i++) {
		snprintf(line, sizeof(line), "require-tenant = %s\n", words[i]);
		assert_int_equal(read_text(&settings, line, &error), 0);
		assert_int_equal(settings.require_tenant, i % 2);
		option_fini(&sample_table, &settings);
	}
}

/* pitfalls O05: the option, where it stands, what is allowed, the nearest name. */
static void every_refusal_says_what_where_and_what_to_do(void **state)
{
	(void)state;
	assert_refused("\nl1-szie = 1\n", "k.conf:2: unknown option l1-szie; did you mean l1-size?");
	assert_refused("qqqqqqqqqqqq = 1", "k.conf:1: unknown option qqqqqqqqqqqq; sampled --help lists all");
	assert_refused("help = yes", "k.conf:1: unknown option help; sampled --help lists all");
	assert_refused("= 1", "k.conf:1: unknown option ; sampled --help lists all");
	assert_refused("l1-size = 1GiB\n# x\nl1-size = 1GiB\n", "k.conf:3: l1-size is set twice, first in line 1");
	assert_refused("l1-size = 1", "k.conf:1: l1-size = 1 is out of range; allowed: 64MiB to 64TiB");
	assert_refused("l1-size = 65TiB", "k.conf:1: l1-size = 65TiB is out of range; allowed: 64MiB to 64TiB");
	assert_refused(
		"l1-size = 10MB", "k.conf:1: l1-size = 10MB: MB is a decimal unit, write MiB; allowed: 64MiB to 64TiB");
	assert_refused("chunk-tokens = 4294967552",
		"k.conf:1: chunk-tokens = 4294967552 is out of range; allowed: 1 to 65536");
	assert_refused("chunk-tokens = -1", "k.conf:1: chunk-tokens = -1 is no whole number; allowed: 1 to 65536");
	assert_refused("chunk-tokens = ", "k.conf:1: chunk-tokens =  is no whole number; allowed: 1 to 65536");
	assert_refused("seed = 18446744073709551616", "k.conf:1: seed = 18446744073709551616 is out of range");
	assert_refused("at-least = 4", "k.conf:1: at-least = 4 is out of range; allowed: at least 5");
	assert_refused("at-most = 10", "k.conf:1: at-most = 10 is out of range; allowed: at most 9");
	assert_refused("lock-ttl = 5",
		"k.conf:1: lock-ttl = 5 is no time: a number with its unit, as 10us, 250ms, 5s, 2m, 1h; "
		"allowed: 10ms to 24h");
	assert_refused("wait = bussy", "k.conf:1: wait = bussy is not one of its words; allowed: busy, adaptive");
	assert_refused("wait = busy|adaptive",
		"k.conf:1: wait = busy|adaptive is not one of its words; allowed: busy, adaptive");
	assert_refused("wait = bus", "k.conf:1: wait = bus is not one of its words; allowed: busy, adaptive");
	assert_refused(
		"require-tenant = maybe", "k.conf:1: require-tenant = maybe is neither yes nor no; allowed: yes or no");
	assert_refused("socket = /a/path/that/is/longer/than/there/is/room",
		"k.conf:1: socket = /a/path/that/is/longer/than/there/is/room is too long");
	assert_refused("socket = a\tb", "k.conf:1: socket = a?b has a control character");
	assert_refused("l1-bytes = 1GiB", "k.conf:1: option l1-bytes is now called l1-size");
	assert_refused("config = other.conf", "k.conf:1: a configuration file can't name another one");
	assert_refused("l1-size 1GiB", "k.conf:1: \"l1-size 1GiB\" is no line of the form name = value");
	assert_refused("socket = \"a",
		"k.conf:1: socket: a quoted value ends in a quote, with nothing but a comment behind it");
	assert_refused("socket = \"a\" b",
		"k.conf:1: socket: a quoted value ends in a quote, with nothing but a comment behind it");
	assert_refused("socket = \"a\\\"",
		"k.conf:1: socket: a quoted value ends in a quote, with nothing but a comment behind it");
}

static void words_of_others_are_shortened_and_defused_in_messages(void **state)
{
	char line[400] = "a\x1b[31m";
	struct option_error error;
	struct sample settings;

	(void)state;
	memset(line + strlen(line), 'x', 300);
	memcpy(line + 306, " = 1", 5);
	assert_int_equal(read_text(&settings, line, &error), -EINVAL);
	assert_null(strchr(error.text, '\x1b'));
	assert_non_null(strstr(error.text, "xxx..."));
	assert_true(strlen(error.text) < 200);
	option_fini(&sample_table, &settings);
}

static void a_zero_byte_in_a_file_is_refused(void **state)
{
	static const char text[] = "seed = 1\0 2\n";
	struct option_error error;
	struct sample settings = { 0 };

	(void)state;
	assert_int_equal(option_read_text(&sample_table, "k.conf", text, sizeof(text) - 1, &settings, &error), -EINVAL);
	assert_string_equal(error.text, "k.conf:1: the line has a zero byte");
}

static void a_list_takes_so_many_items_and_no_more(void **state)
{
	struct option_error error;
	struct sample settings;
	struct text text = { 0 };

	(void)state;
	for (unsigned i = 0; i < OPTION_LIST_MAX; i++)
		text_append(&text, "tenant = t%u\n", i);
	assert_int_equal(read_text(&settings, text.bytes, &error), 0);
	assert_int_equal(settings.tenants.count, OPTION_LIST_MAX);
	option_fini(&sample_table, &settings);
	assert_int_equal(settings.tenants.count, 0);
	text_append(&text, "tenant = one-more\n");
	assert_refused(text.bytes, "k.conf:65: tenant = one-more is one too many: 64 are the most");
	text_fini(&text);
}

static void files_that_cannot_be_read_are_named_with_the_reason(void **state)
{
	struct option_error error;
	struct sample settings = { 0 };

	(void)state;
	assert_int_equal(option_read_file(&sample_table, "/nonexistent/k.conf", &settings, &error), -ENOENT);
	assert_string_equal(
		error.text, "/nonexistent/k.conf: the configuration file can't be read: No such file or directory");
	assert_int_equal(option_read_file(&sample_table, "/", &settings, &error), -EINVAL);
	assert_string_equal(error.text, "/: the configuration file can't be read: Is a directory");
	assert_int_equal(option_read_file(&sample_table, "/dev/zero", &settings, &error), -EINVAL);
	assert_string_equal(error.text, "/dev/zero: the configuration file can't be read: File too large");
	assert_int_equal(option_read_file(&sample_table, "/dev/null", &settings, &error), 0);
}

/* Fails the n-th allocation until none is left to fail. */
static void every_allocation_may_fail(void **state)
{
	struct option_error error;
	struct sample settings;
	unsigned failures = 0;

	(void)state;
	for (unsigned n = 1;; n++) {
		int result;

		memset(&settings, 0, sizeof(settings));
		assert_int_equal(option_defaults(&sample_table, &settings, &error), 0);
		fault_arm(n);
		result = option_read_text(&sample_table, "k.conf", "tenant = a\ntenant = b\n", 22, &settings, &error);
		option_fini(&sample_table, &settings);
		if (!fault_fired()) {
			assert_int_equal(result, 0);
			break;
		}
		assert_int_equal(result, -ENOMEM);
		assert_non_null(strstr(error.text, "out of memory"));
		failures++;
	}
	fault_arm(0);
	assert_int_equal(failures, 4);
}

struct one {
	uint64_t number;
	char text[8];
};

static void assert_table_refused(const struct option_spec *specs, size_t count, const char *message)
{
	struct option_table table = { "t", "s", "u", specs, count };
	struct option_error error;
	struct one settings = { 0, "" };

	assert_int_equal(option_defaults(&table, &settings, &error), -EINVAL);
	assert_string_equal(error.text, message);
}

static void faults_of_a_table_are_found(void **state)
{
	static const struct {
		struct option_spec specs[2];
		size_t count;
		const char *message;
	} cases[] = {
		{ { { "A", OPTION_U64, 0, 0, "1", NULL, NULL, "S", "h" } }, 1,
			"the option table: A: its name is not made of small letters, digits and '-', or is that of a flag of all "
			"programs" },
		{ { { "help", OPTION_U64, 0, 0, "1", NULL, NULL, "S", "h" } }, 1,
			"the option table: help: its name is not made of small letters, digits and '-', or is that of a flag of all "
			"programs" },
		{ { { "a", OPTION_U64, 0, 0, "1", NULL, NULL, "S", "h" },
			  { "a", OPTION_U64, 0, 0, "1", NULL, NULL, "S", "h" } },
			2, "the option table: a: its name stands twice in the table" },
		{ { { "a", OPTION_RENAMED, 0, 0, "b", NULL, NULL, NULL, NULL } }, 1,
			"the option table: a: its successor is not in the table" },
		{ { { "a", OPTION_U64, 0, 0, "1", NULL, NULL, NULL, "h" } }, 1,
			"the option table: a: it has no help or no section" },
		{ { { "a", OPTION_TEXT, 8, 0, NULL, NULL, NULL, "S", "h" } }, 1,
			"the option table: a: its text has no size" },
		{ { { "a", OPTION_CHOICE, 0, 0, NULL, NULL, NULL, "S", "h" } }, 1,
			"the option table: a: a choice has its words as minimum, and no maximum" },
		{ { { "a", OPTION_BOOL, 0, 0, NULL, "0", NULL, "S", "h" } }, 1,
			"the option table: a: its type has no range" },
		{ { { "a", OPTION_U64, 0, 0, NULL, "9", "8", "S", "h" } }, 1,
			"the option table: a: its range is none" },
		{ { { "a", OPTION_U64, 0, 0, "10", "1", "8", "S", "h" } }, 1,
			"the option table: a = 10 is out of range; allowed: 1 to 8" },
		{ { { "a", OPTION_TEXT, 8, 8, "too long for it", NULL, NULL, "S", "h" } }, 1,
			"the option table: a = too long for it is too long" },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++)
		assert_table_refused(cases[i].specs, cases[i].count, cases[i].message);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_those_of_the_table),
		cmocka_unit_test(a_file_sets_every_type),
		cmocka_unit_test(all_words_for_yes_and_no_are_known),
		cmocka_unit_test(every_refusal_says_what_where_and_what_to_do),
		cmocka_unit_test(words_of_others_are_shortened_and_defused_in_messages),
		cmocka_unit_test(a_zero_byte_in_a_file_is_refused),
		cmocka_unit_test(a_list_takes_so_many_items_and_no_more),
		cmocka_unit_test(files_that_cannot_be_read_are_named_with_the_reason),
		cmocka_unit_test(every_allocation_may_fail),
		cmocka_unit_test(faults_of_a_table_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
