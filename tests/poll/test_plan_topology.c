/*
 * The recorded machines of topology/ and the plan expected for each: NAME[.WHAT].plan is the plan of NAME.machine or NAME.xml with the
 * options that its first line says. A change of placement is a diff in review; with KVRAIL_UPDATE=1 in the environment the plans are
 * written instead: topology/update.
 */
#include "poll/plan.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cmocka_all.h"

#define FOLDER KVRAIL_SOURCE_DIR "/topology"
#define FILES_MAX 64

static struct plan plan;

struct names {
	char list[FILES_MAX][128];
	uint32_t count;
};

static int by_name(const void *left, const void *right)
{
	return strcmp(left, right);
}

static void list_files(const char *ending, struct names *names)
{
	DIR *folder = opendir(FOLDER);
	const struct dirent *entry;

	assert_non_null(folder);
	names->count = 0;
	while ((entry = readdir(folder)) != NULL) {
		size_t length = strlen(entry->d_name), end = strlen(ending);

		if (length <= end || strcmp(entry->d_name + length - end, ending) != 0)
			continue;
		assert_true(names->count < FILES_MAX);
		text_copy(names->list[names->count++], sizeof(names->list[0]), entry->d_name);
	}
	closedir(folder);
	qsort(names->list, names->count, sizeof(names->list[0]), by_name);
}

static void read_all(const char *path, struct text *out)
{
	char block[4096];
	size_t got;
	FILE *file = fopen(path, "re");

	assert_non_null(file);
	while ((got = fread(block, 1, sizeof(block), file)) > 0)
		text_append_bytes(out, block, got);
	fclose(file);
	assert_false(out->failed);
}

/* "sub-numa-4.one-rail.plan" is about sub-numa-4.machine or sub-numa-4.xml. */
static struct machine *machine_of(const char *plan_name)
{
	static const char *const endings[] = { "machine", "xml" };
	struct machine_error error = { "" };
	char path[512];

	for (size_t i = 0; i < KVR_COUNT_OF(endings); i++) {
		struct machine *machine;

		snprintf(path, sizeof(path), "%s/%.*s.%s", FOLDER, (int)strcspn(plan_name, "."), plan_name, endings[i]);
		if (access(path, R_OK) != 0)
			continue;
		machine = machine_read_file(path, &error);
		if (!machine)
			print_error("%s\n", error.text);
		return machine;
	}
	print_error("no machine for %s\n", plan_name);
	return NULL;
}

/* Line by line, as a reader wants to see it. */
static void print_difference(const char *name, const char *expected, const char *made)
{
	print_error("%s: the plan has changed; topology/update writes it anew\n", name);
	while (*expected || *made) {
		size_t left = strcspn(expected, "\n"), right = strcspn(made, "\n");

		if (left != right || memcmp(expected, made, left) != 0)
			print_error("- %.*s\n+ %.*s\n", (int)left, expected, (int)right, made);
		expected += left + (expected[left] == '\n');
		made += right + (made[right] == '\n');
	}
}

/* The first line is how a user gets the plan: "# kvrailctl topo --xml FILE --plan --what-if OPTIONS". */
static void compare_one(const char *name)
{
	struct text expected = { NULL, 0, 0, false }, made = { NULL, 0, 0, false };
	struct machine *machine = machine_of(name);
	struct plan_options options = { .cores = 0 };
	struct machine_error error = { "" };
	char path[512], asked[128] = "";
	FILE *file;

	assert_non_null(machine);
	snprintf(path, sizeof(path), "%s/%s", FOLDER, name);
	read_all(path, &expected);
	if (strncmp(expected.bytes, "# kvrailctl topo --xml topology/", 32) != 0)
		fail_msg("%s does not begin with a command line", name);
	if (strstr(expected.bytes, "--what-if "))
		assert_int_equal(sscanf(strstr(expected.bytes, "--what-if "), "--what-if %127s", asked), 1);
	assert_int_equal(plan_parse_options(asked, &options, &error), 0);
	assert_int_equal(plan_make(machine, &options, &plan), 0);
	text_append(&made, "%.*s\n", (int)strcspn(expected.bytes, "\n"), expected.bytes);
	plan_print(machine, &plan, &made);
	assert_false(made.failed);
	if (getenv("KVRAIL_UPDATE")) {
		file = fopen(path, "we");
		assert_non_null(file);
		assert_int_equal(fwrite(made.bytes, 1, made.length, file), made.length);
		fclose(file);
	} else if (strcmp(made.bytes, expected.bytes) != 0) {
		print_difference(name, expected.bytes, made.bytes);
		fail();
	}
	text_fini(&expected);
	text_fini(&made);
	machine_free(&machine);
}

static void each_recorded_machine_gets_the_plan_that_is_committed(void **state)
{
	static struct names names;

	(void)state;
	list_files(".plan", &names);
	assert_true(names.count >= 8);
	for (uint32_t i = 0; i < names.count; i++)
		compare_one(names.list[i]);
}

static void check_has_plan(const char *machine_name, const struct names *plans)
{
	size_t length = strcspn(machine_name, ".");

	for (uint32_t i = 0; i < plans->count; i++) {
		if (strncmp(plans->list[i], machine_name, length) == 0 && plans->list[i][length] == '.')
			return;
	}
	fail_msg("%s has no plan beside it", machine_name);
}

static void no_recorded_machine_is_without_a_plan(void **state)
{
	static struct names machines, plans;

	(void)state;
	list_files(".plan", &plans);
	list_files(".machine", &machines);
	for (uint32_t i = 0; i < machines.count; i++)
		check_has_plan(machines.list[i], &plans);
	list_files(".xml", &machines);
	for (uint32_t i = 0; i < machines.count; i++)
		check_has_plan(machines.list[i], &plans);
}

/* Writing and reading loses nothing: a second time gives the same text. */
static void recorded_machines_read_back_as_they_were_written(void **state)
{
	static struct names names;

	(void)state;
	list_files(".plan", &names);
	for (uint32_t i = 0; i < names.count; i++) {
		struct text first = { NULL, 0, 0, false }, second = { NULL, 0, 0, false };
		struct machine *machine = machine_of(names.list[i]), *again;
		struct machine_error error = { "" };

		assert_non_null(machine);
		machine_write(machine, &first);
		again = machine_read_text("written", first.bytes, first.length, &error);
		if (!again)
			fail_msg("%s: %s", names.list[i], error.text);
		machine_write(again, &second);
		assert_string_equal(first.bytes, second.bytes);
		assert_memory_equal(machine->cpus, again->cpus, sizeof(machine->cpus));
		assert_memory_equal(machine->distances, again->distances, sizeof(machine->distances));
		text_fini(&first);
		text_fini(&second);
		machine_free(&machine);
		machine_free(&again);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_recorded_machine_gets_the_plan_that_is_committed),
		cmocka_unit_test(no_recorded_machine_is_without_a_plan),
		cmocka_unit_test(recorded_machines_read_back_as_they_were_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
