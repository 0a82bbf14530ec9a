/* What a table says of itself: help, configuration file, reference, manual. */
#include "base/clock.h"
#include "config/sample.h"

#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"

static void printed_options_read_back_to_the_same_settings(void **state)
{
	static const char *const inputs[] = {
		"",
		"l1-size = 1073741825\nlock-ttl = 10500us\nseed = 18446744073709551615\nunbounded = 1536\n",
		"socket = \" a # b \\\" \\\\ \"\ntenant = \"\"\ntenant = x # y\ntenant = \"p#q\"\nwait = busy\nrequire-tenant = yes\n",
		"socket = \"\"\nlock-ttl = 90m\nunbounded = 0\nl1-size = 64TiB\n",
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(inputs); i++) {
		struct sample first = { 0 }, second = { 0 };
		struct option_error error;
		struct text printed = { 0 };

		assert_int_equal(option_defaults(&sample_table, &first, &error), 0);
		assert_int_equal(
			option_read_text(&sample_table, "in", inputs[i], strlen(inputs[i]), &first, &error), 0);
		option_print(&sample_table, &first, &printed);
		assert_false(printed.failed);
		/* Nothing but what was printed: no default hides what is missing. */
		assert_int_equal(
			option_read_text(&sample_table, "printed", printed.bytes, printed.length, &second, &error), 0);
		assert_int_equal(first.tenants.count, second.tenants.count);
		for (uint32_t k = 0; k < first.tenants.count; k++)
			assert_string_equal(first.tenants.items[k], second.tenants.items[k]);
		assert_int_equal(first.l1_bytes, second.l1_bytes);
		assert_int_equal(first.lock_ttl_ns, second.lock_ttl_ns);
		assert_int_equal(first.chunk_tokens, second.chunk_tokens);
		assert_true(first.seed == second.seed);
		assert_string_equal(first.socket, second.socket);
		assert_int_equal(first.wait, second.wait);
		assert_int_equal(first.require_tenant, second.require_tenant);
		assert_int_equal(first.unbounded, second.unbounded);
		option_fini(&sample_table, &first);
		option_fini(&sample_table, &second);
		text_fini(&printed);
	}
}

static void a_printed_file_has_sections_help_and_defaults(void **state)
{
	struct sample settings = { 0 };
	struct option_error error;
	struct text out = { 0 };

	(void)state;
	assert_int_equal(option_defaults(&sample_table, &settings, &error), 0);
	option_print(&sample_table, &settings, &out);
	assert_non_null(strstr(out.bytes, "# sampled: a program for tests\n"));
	assert_non_null(strstr(out.bytes,
		"\n# ---- Memory ----\n# pinned memory for cached chunks\nl1-size = 1GiB  # default 1GiB\n"
		"# tokens of a chunk\nchunk-tokens = 256  # default 256\n"));
	assert_non_null(strstr(out.bytes, "\nlock-ttl = 5m  # default 300s\n"));
	assert_non_null(strstr(out.bytes, "\n# NAME:uid=N\n# tenant =\n"));
	assert_null(strstr(out.bytes, "\nconfig ="));
	assert_null(strstr(out.bytes, "l1-bytes"));
	option_fini(&sample_table, &settings);
	text_fini(&out);
}

static void help_lists_every_option_once_by_section(void **state)
{
	struct text out = { 0 };

	(void)state;
	option_help(&sample_table, &out);
	assert_memory_equal(out.bytes, "sampled - a program for tests\n\nusage: sampled [options]\n\nGeneral\n", 65);
	assert_non_null(strstr(out.bytes,
		"\n  --l1-size SIZE            pinned memory for cached chunks (default 1GiB; 64MiB to 64TiB)\n"));
	assert_non_null(
		strstr(out.bytes, "\n  --wait busy|adaptive      what a loop does without work (default adaptive)\n"));
	assert_non_null(strstr(out.bytes, "\n  --require-tenant          clients must name theirs (default no)\n"));
	assert_non_null(strstr(out.bytes, "\n  --tenant TEXT             NAME:uid=N (may be given several times)\n"));
	assert_non_null(strstr(out.bytes, "\n  --print-config            print all options"));
	for (size_t i = 0; i < sample_table.spec_count; i++) {
		char flag[40] = "\n  --";
		const char *found;

		strcat(flag, sample_table.specs[i].name);
		found = strstr(out.bytes, flag);
		assert_int_equal(found != NULL, sample_table.specs[i].type != OPTION_RENAMED);
		assert_null(found ? strstr(found + 1, flag) : NULL);
	}
	for (const char *line = out.bytes; line; line = strchr(line + 1, '\n'))
		assert_true(strcspn(line + 1, "\n") <= 100);
	text_fini(&out);
}

static void the_reference_is_a_table_for_each_section(void **state)
{
	struct text out = { 0 };

	(void)state;
	option_reference(&sample_table, &out);
	assert_non_null(strstr(out.bytes,
		"\n### Memory\n\n| option | default | allowed | what it is |\n|---|---|---|---|\n"
		"| `--l1-size SIZE` | `1GiB` | 64MiB to 64TiB | pinned memory for cached chunks |\n"));
	assert_non_null(strstr(out.bytes, "| `--wait busy\\|adaptive` | `adaptive` | busy, adaptive |"));
	assert_non_null(strstr(out.bytes, "`--l1-bytes` is now called `--l1-size`."));
	text_fini(&out);
}

static void the_manual_escapes_what_roff_would_read(void **state)
{
	struct text out = { 0 };

	(void)state;
	option_manual(&sample_table, &out);
	assert_non_null(strstr(out.bytes, ".SS Memory\n.TP\n.B \\-\\-l1\\-size \\fISIZE\\fR\npinned memory"));
	for (const char *line = out.bytes; line && line[1]; line = strchr(line + 1, '\n')) {
		const char *start = line == out.bytes ? line : line + 1;

		if (*start == '.')
			assert_true(strncmp(start, ".SS ", 4) == 0 || strncmp(start, ".TP\n", 4) == 0 ||
				strncmp(start, ".B ", 3) == 0 || strncmp(start, ".PP\n", 4) == 0);
	}
	text_fini(&out);
}

static void options_in_force_are_a_json_object(void **state)
{
	static const char input[] =
		"socket = \"a\\\"b\"\ntenant = x\ntenant = y\nrequire-tenant = yes\nlock-ttl = 90m\n";
	struct sample settings = { 0 };
	struct option_error error;
	struct text out = { 0 };

	(void)state;
	assert_int_equal(option_defaults(&sample_table, &settings, &error), 0);
	assert_int_equal(option_read_text(&sample_table, "in", input, strlen(input), &settings, &error), 0);
	option_json(&sample_table, &settings, &out);
	assert_string_equal(out.bytes,
		"{\"config\":\"\",\"l1-size\":\"1GiB\",\"lock-ttl\":\"90m\",\"chunk-tokens\":\"256\",\"seed\":\"0\","
		"\"socket\":\"a\\\"b\",\"wait\":\"adaptive\",\"require-tenant\":\"yes\",\"tenant\":[\"x\",\"y\"],"
		"\"unbounded\":\"0\",\"token-file\":\"\",\"at-least\":\"5\",\"at-most\":\"5\"}");
	option_fini(&sample_table, &settings);
	text_fini(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(printed_options_read_back_to_the_same_settings),
		cmocka_unit_test(a_printed_file_has_sections_help_and_defaults),
		cmocka_unit_test(help_lists_every_option_once_by_section),
		cmocka_unit_test(the_reference_is_a_table_for_each_section),
		cmocka_unit_test(options_in_force_are_a_json_object),
		cmocka_unit_test(the_manual_escapes_what_roff_would_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
