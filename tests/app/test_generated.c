/*
 * What is made from the option tables is what is committed: docs/OPTIONS.md, the manual pages, packaging/kvraild.conf. With
 * KVRAIL_UPDATE=1 in the environment the files are written instead: man/update.
 */
#include "app/kvrail-bench/settings.h"
#include "app/kvrailctl/kvrailctl.h"
#include "app/kvraild/options.h"
#include "app/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cmocka_all.h"

static void source_path(char *path, size_t size, const char *name)
{
	snprintf(path, size, "%s/%s", KVRAIL_SOURCE_DIR, name);
}

static void assert_current(const char *name, const struct text *made)
{
	struct text committed = { NULL, 0, 0, false };
	char path[512];

	assert_false(made->failed);
	source_path(path, sizeof(path), name);
	if (getenv("KVRAIL_UPDATE")) {
		write_file(path, made->bytes, 0644);
		return;
	}
	read_file(path, &committed);
	if (committed.length != made->length || memcmp(committed.bytes, made->bytes, made->length) != 0) {
		print_error("%s is not what the option tables say; run man/update and commit it\n", name);
		fail();
	}
	text_fini(&committed);
}

/* The template with @VERSION@ and @OPTIONS@ (a line of its own) filled in. */
static void fill_template(const char *name, const struct option_table *table, struct text *out)
{
	struct text template = { NULL, 0, 0, false };
	char path[512];
	const char *at;

	source_path(path, sizeof(path), name);
	read_file(path, &template);
	text_append(out, ".\\\" Made from %s and the option table by man/update.\n", strrchr(name, '/') + 1);
	for (at = template.bytes; *at;) {
		if (strncmp(at, "@VERSION@", 9) == 0) {
			text_append(out, "%s", KVRAIL_VERSION);
			at += 9;
		} else if (strncmp(at, "@OPTIONS@\n", 10) == 0) {
			option_manual(table, out);
			at += 10;
		} else {
			text_append(out, "%c", *at++);
		}
	}
	text_fini(&template);
}

static void the_reference_of_options_is_current(void **state)
{
	struct text out = { NULL, 0, 0, false };

	(void)state;
	text_append(&out, "# Options\n\nMade from the option tables by `man/update`.\n\n");
	option_reference(&kvraild_options, &out);
	text_append(&out, "\n");
	for (uint32_t i = 0; l2_kind_at(i); i++) {
		option_reference(l2_kind_at(i)->options, &out);
		text_append(&out, "\n");
	}
	option_reference(&kvrailctl_options, &out);
	text_append(&out, "\n");
	option_reference(&replay_options, &out);
	text_append(&out, "\n");
	option_reference(&load_options, &out);
	assert_current("docs/OPTIONS.md", &out);
	text_fini(&out);
}

static void the_manual_pages_are_current(void **state)
{
	struct text out = { NULL, 0, 0, false };

	(void)state;
	fill_template("man/kvraild.8.in", &kvraild_options, &out);
	assert_current("man/kvraild.8", &out);
	text_fini(&out);
	fill_template("man/kvrailctl.1.in", &kvrailctl_options, &out);
	assert_current("man/kvrailctl.1", &out);
	text_fini(&out);
	fill_template("man/kvrail-bench-replay.1.in", &replay_options, &out);
	assert_current("man/kvrail-bench-replay.1", &out);
	text_fini(&out);
	fill_template("man/kvrail-bench-load.1.in", &load_options, &out);
	assert_current("man/kvrail-bench-load.1", &out);
	text_fini(&out);
}

/* All options with their defaults, as comments. */
static void the_configuration_file_to_start_from_is_current(void **state)
{
	struct text printed = { NULL, 0, 0, false }, out = { NULL, 0, 0, false };
	struct kvraild_settings settings;
	struct option_error error;
	bool starts = true;

	(void)state;
	memset(&settings, 0, sizeof(settings));
	assert_int_equal(option_defaults(&kvraild_options, &settings, &error), 0);
	option_print(&kvraild_options, &settings, &printed);
	for (const char *at = printed.bytes; *at; at++) {
		if (starts && *at != '#' && *at != '\n')
			text_append(&out, "#");
		text_append(&out, "%c", *at);
		starts = *at == '\n';
	}
	assert_current("packaging/kvraild.conf", &out);
	/* It reads, and changes nothing. */
	assert_int_equal(
		option_read_text(&kvraild_options, "kvraild.conf", out.bytes, out.length, &settings, &error), 0);
	option_fini(&kvraild_options, &settings);
	text_fini(&printed);
	text_fini(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_reference_of_options_is_current),
		cmocka_unit_test(the_manual_pages_are_current),
		cmocka_unit_test(the_configuration_file_to_start_from_is_current),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
