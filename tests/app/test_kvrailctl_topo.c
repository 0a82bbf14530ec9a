/* kvrailctl topo as a process: the picture, the plan, JSON, recording a machine and reading it back. */
#include "app/kvraild/options.h"
#include "app/process.h"
#include "poll/plan.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cmocka_all.h"

#define RECORDED(name) KVRAIL_SOURCE_DIR "/topology/" name

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/kvrail-topo-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	static const char *const names[] = { "machine", "machine.xml", "machine.xml.facts", "picture.svg" };
	char path[128];

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	return rmdir(folder);
}

static void the_plan_of_a_recorded_machine_is_the_committed_one(void **state)
{
	struct text out = { NULL, 0, 0, false }, expected = { NULL, 0, 0, false };

	(void)state;
	read_file(RECORDED("two-socket-8gpu-8rail.4-rails-6-cores.plan"), &expected);
	assert_int_equal(
		PROCESS_RUN("kvrailctl", &out, NULL, "topo", "--xml", RECORDED("two-socket-8gpu-8rail.machine"),
			"--plan", "--what-if", "rails=4,cores=6,l1=512GiB"),
		0);
	/* Behind the line that says how to get it. */
	assert_string_equal(out.bytes, strchr(expected.bytes, '\n') + 1);
	text_fini(&out);
	text_fini(&expected);
}

/* The emulated machine of two nodes: the plan follows the network card's node. */
static void json_says_which_core_polls_which_rail_and_where_memory_is(void **state)
{
	struct text out = { NULL, 0, 0, false };
	const json_t *poll, *arena;
	json_t *plan;

	(void)state;
	assert_int_equal(
		PROCESS_RUN("kvrailctl", &out, NULL, "topo", "--json", "--xml", RECORDED("two-nodes-vm.xml")), 0);
	plan = json_loadb(out.bytes, out.length, 0, NULL);
	assert_non_null(plan);
	poll = json_array_get(json_object_get(plan, "poll_cores"), 0);
	assert_int_equal(json_integer_value(json_object_get(poll, "core")), 1);
	assert_string_equal(json_string_value(json_object_get(poll, "rail")), "rxe0");
	assert_int_equal(json_integer_value(json_object_get(poll, "numa")), 1);
	assert_true(json_is_string(json_object_get(poll, "reason")));
	assert_true(json_is_integer(json_object_get(plan, "management_core")));
	arena = json_array_get(json_object_get(plan, "arenas"), 0);
	assert_int_equal(json_integer_value(json_object_get(arena, "numa")), 1);
	assert_int_equal(json_integer_value(json_object_get(arena, "bytes")), 1 << 30);
	assert_true(json_array_size(json_object_get(plan, "warnings")) > 0);
	json_decref(plan);
	text_fini(&out);
}

static void the_picture_shows_what_each_core_does(void **state)
{
	struct text out = { NULL, 0, 0, false }, svg = { NULL, 0, 0, false };
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/picture.svg", folder);
	assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "topo", "--xml",
				 RECORDED("two-socket-8gpu-8rail.machine"), "--svg", path),
		0);
	assert_non_null(strstr(out.bytes, "  |    0  hhhhPPPP M......."));
	assert_non_null(strstr(out.bytes, "  |  112  hhhh~~~~ ~......."));
	assert_non_null(strstr(out.bytes, "mlx5_4 InfiniBand, 400 Gbit/s, x16, polled by core 60"));
	assert_non_null(strstr(out.bytes, "gpu 7 H200, served by mlx5_7"));
	read_file(path, &svg);
	assert_memory_equal(svg.bytes, "<svg ", 5);
	assert_non_null(strstr(svg.bytes, "<title>processor 60: polls</title>"));
	assert_non_null(strstr(svg.bytes, "</svg>\n"));
	text_fini(&out);
	text_fini(&svg);
}

static void this_machine_can_be_recorded_and_read_back(void **state)
{
	static const char *const names[] = { "machine", "machine.xml" };
	struct text live = { NULL, 0, 0, false };

	(void)state;
	assert_int_equal(PROCESS_RUN("kvrailctl", &live, NULL, "topo", "--plan"), 0);
	assert_non_null(strstr(live.bytes, "\n  manage "));
	for (size_t i = 0; i < KVR_COUNT_OF(names); i++) {
		struct text out = { NULL, 0, 0, false }, err = { NULL, 0, 0, false };
		char path[128];

		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		assert_int_equal(PROCESS_RUN("kvrailctl", NULL, &err, "topo", "--export", path), 0);
		assert_non_null(strstr(err.bytes, path));
		assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "topo", "--plan", "--xml", path), 0);
		/* But for the name in the first line. */
		assert_string_equal(strchr(out.bytes, '\n'), strchr(live.bytes, '\n'));
		text_fini(&out);
		text_fini(&err);
	}
	text_fini(&live);
}

/* The poll cores of a configuration, all of --cores but the last, are those of the plan for the machine that it names first. */
static void check_cores(const char *conf, const struct kvraild_settings *settings)
{
	static struct plan plan;
	struct plan_options options = { .l1_bytes = settings->l1_bytes };
	struct machine_error error = { "" };
	struct machine *machine;
	char path[256], name[64];
	int cores[CORES_MAX];
	int count = cores_parse(settings->cores, cores, CORES_MAX);

	assert_true(count > 1);
	assert_int_equal(sscanf(strstr(conf, "topology/"), "topology/%63[a-z0-9-].machine", name), 1);
	snprintf(path, sizeof(path), RECORDED("%s.machine"), name);
	machine = machine_read_file(path, &error);
	assert_non_null(machine);
	assert_int_equal(plan_make(machine, &options, &plan), 0);
	assert_int_equal(plan.poll_core_count, count - 1);
	for (uint32_t i = 0; i < plan.poll_count; i++)
		assert_int_equal(plan.polls[i].core, cores[i]);
	machine_free(&machine);
}

static void configurations_read_and_are_what_the_plan_says(void **state)
{
	static const char *const names[] = { "dedicated-two-socket", "sub-numa", "kubernetes", "edge-box", "vm" };

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(names); i++) {
		struct text conf = { NULL, 0, 0, false };
		struct kvraild_settings settings;
		struct option_error error;
		char path[256];

		print_message("%s\n", names[i]);
		memset(&settings, 0, sizeof(settings));
		snprintf(path, sizeof(path), RECORDED("%s.conf"), names[i]);
		read_file(path, &conf);
		assert_int_equal(option_defaults(&kvraild_options, &settings, &error), 0);
		if (option_read_file(&kvraild_options, path, &settings, &error) != 0)
			fail_msg("%s", error.text);
		if (strcmp(settings.cores, "auto") != 0)
			check_cores(conf.bytes, &settings);
		option_fini(&kvraild_options, &settings);
		text_fini(&conf);
	}
}

static void what_cannot_be_done_is_refused_in_words(void **state)
{
	static const struct {
		const char *arguments[4];
		int code;
		const char *words;
	} cases[] = {
		{ { "--xml", "/nowhere", NULL, NULL }, 1, "/nowhere can't be opened" },
		{ { "--xml", "/dev/null", NULL, NULL }, 1, "/dev/null is empty" },
		{ { "--what-if", "rails=x", NULL, NULL }, 2, "--what-if rails=x is no number" },
		{ { "--export", "/nowhere/x", NULL, NULL }, 1, "/nowhere/x can't be written" },
		{ { "--export", "/nowhere/x.xml", NULL, NULL }, 1, "/nowhere/x.xml can't be written" },
		{ { "--export", "x.xml", "--xml", "/nowhere" }, 2, "not together with --xml" },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		const char *const *words = cases[i].arguments;
		struct text err = { NULL, 0, 0, false };

		print_message("case %zu\n", i);
		if (words[2])
			assert_int_equal(
				PROCESS_RUN("kvrailctl", NULL, &err, "topo", words[0], words[1], words[2], words[3]),
				cases[i].code);
		else
			assert_int_equal(
				PROCESS_RUN("kvrailctl", NULL, &err, "topo", words[0], words[1]), cases[i].code);
		if (!strstr(err.bytes, cases[i].words))
			fail_msg("\"%s\" has no \"%s\"", err.bytes, cases[i].words);
		text_fini(&err);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_plan_of_a_recorded_machine_is_the_committed_one),
		cmocka_unit_test(json_says_which_core_polls_which_rail_and_where_memory_is),
		cmocka_unit_test(the_picture_shows_what_each_core_does),
		cmocka_unit_test(this_machine_can_be_recorded_and_read_back),
		cmocka_unit_test(configurations_read_and_are_what_the_plan_says),
		cmocka_unit_test(what_cannot_be_done_is_refused_in_words),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
