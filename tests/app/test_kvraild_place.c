/* kvraild on this machine's cores: each thread is where it was put, stays there, and the pages say so. */
#include "app/process.h"
#include "poll/cores.h"

#include <dirent.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/cmocka_all.h"

/* The thread of a process with that name; 0: none. */
static pid_t thread_of(pid_t process, const char *name)
{
	char path[320], line[32];
	const struct dirent *entry;
	pid_t found = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
	folder = opendir(path);
	assert_non_null(folder);
	while (!found && (entry = readdir(folder)) != NULL) {
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/comm", (int)process, entry->d_name);
		file = fopen(path, "re");
		if (file && fgets(line, sizeof(line), file) && strcspn(line, "\n") == strlen(name) &&
			strncmp(line, name, strlen(name)) == 0)
			found = (pid_t)strtol(entry->d_name, NULL, 10);
		if (file)
			fclose(file);
	}
	closedir(folder);
	return found;
}

static json_t *status_of(const struct server_process *server)
{
	struct text page = { NULL, 0, 0, false };
	json_t *status;

	assert_int_equal(http_ask(server->port, "GET", "/status", "", &page), 200);
	status = json_loads(page.bytes, 0, NULL);
	assert_non_null(status);
	text_fini(&page);
	return status;
}

static const char *word(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value ? value : "";
}

static void assert_allowed(pid_t thread, int core, bool expected)
{
	cpu_set_t set;

	assert_true(thread > 0);
	assert_int_equal(sched_getaffinity(thread, sizeof(set), &set), 0);
	assert_int_equal(CPU_ISSET((unsigned)core, &set) != 0, expected);
}

/* pitfalls M01, M03: the thread that polls has its core, and all that enters the kernel stays off it. */
static void threads_are_on_the_cores_that_were_given_and_helpers_off_them(void **state)
{
	struct server_process server;
	int cores[CORES_MAX], count = cores_allowed(cores, CORES_MAX);
	const json_t *loop;
	json_t *status;
	char given[16];
	pid_t serving;
	cpu_set_t all;

	(void)state;
	assert_true(count > 0);
	if (count < 2)
		skip();
	snprintf(given, sizeof(given), "%d", cores[count - 1]);
	SERVER_START(&server, "--cores", given, "--wait", "adaptive");
	serving = thread_of(server.pid, "kvr-serve");
	assert_true(serving > 0);
	assert_true(cores_is_pinned(serving, cores[count - 1]));
	assert_allowed(server.pid, cores[count - 1], false);
	assert_allowed(thread_of(server.pid, "kvr-memory"), cores[count - 1], false);
	assert_allowed(thread_of(server.pid, "kvr-reclaim"), cores[0], true);
	status = status_of(&server);
	loop = json_array_get(json_object_get(status, "loops"), 0);
	assert_string_equal(word(loop, "core_state"), "held");
	assert_string_equal(word(loop, "waiting"), "adaptive");
	assert_true(json_is_true(json_object_get(json_object_get(status, "plan"), "pinned")));
	json_decref(status);
	/* As a cpuset that is changed does it. */
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	assert_int_equal(sched_setaffinity(serving, sizeof(all), &all), 0);
	server_process_await_log(&server, "was put back", 1);
	assert_true(cores_is_pinned(serving, cores[count - 1]));
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

static void the_plan_is_logged_and_shown_with_its_reasons(void **state)
{
	struct server_process server;
	const json_t *plan, *area;
	json_t *status;

	(void)state;
	SERVER_START(&server, "--cores", "auto", "--wait", "adaptive");
	assert_true(server_process_logged(&server, "plan: poll ") >= 1);
	assert_int_equal(server_process_logged(&server, "plan: manage "), 1);
	assert_true(server_process_logged(&server, "plan: arena of ") >= 1);
	status = status_of(&server);
	plan = json_object_get(status, "plan");
	assert_true(json_array_size(json_object_get(plan, "poll_cores")) >= 1);
	assert_true(word(json_array_get(json_object_get(plan, "poll_cores"), 0), "reason")[0] != '\0');
	assert_int_equal(
		json_array_size(json_object_get(plan, "arenas")), json_array_size(json_object_get(status, "l1_areas")));
	area = json_array_get(json_object_get(status, "l1_areas"), 0);
	assert_true(json_integer_value(json_object_get(area, "bytes")) > 0);
	assert_true(json_integer_value(json_object_get(area, "touch_threads")) >= 1);
	for (size_t i = 0; i < json_array_size(json_object_get(plan, "warnings")); i++)
		assert_true(server_process_logged(&server,
				    json_string_value(json_array_get(json_object_get(plan, "warnings"), i))) >= 1);
	json_decref(status);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

/* Where jemalloc is linked: each thread with turns of its own has an arena beside the four of all others. */
static void the_heap_has_an_arena_for_each_loop_and_its_numbers_are_on_the_pages(void **state)
{
	struct text metrics = { NULL, 0, 0, false };
	struct server_process server;
	const json_t *heap;
	json_t *status;

	(void)state;
	SERVER_START(&server, "--wait", "adaptive");
	status = status_of(&server);
	heap = json_object_get(status, "heap");
	assert_true(json_integer_value(json_object_get(heap, "process_rss_bytes")) > 0);
	if (strcmp(word(heap, "allocator"), "jemalloc") == 0) {
		assert_true(json_integer_value(json_object_get(heap, "allocated_bytes")) > 0);
		assert_true(json_integer_value(json_object_get(heap, "arenas")) >= 5);
		assert_int_equal(server_process_logged(&server, "heap: narenas:4,background_thread:true"), 1);
	}
	json_decref(status);
	assert_int_equal(http_ask(server.port, "GET", "/metrics", "", &metrics), 200);
	assert_non_null(strstr(metrics.bytes, "\nkvrail_heap_allocated_bytes "));
	assert_non_null(strstr(metrics.bytes, "\nkvrail_l1_area_bytes{area=\"0\",numa=\""));
	assert_non_null(strstr(metrics.bytes, "\nkvrail_core_corrected_total 0\n"));
	text_fini(&metrics);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_are_on_the_cores_that_were_given_and_helpers_off_them),
		cmocka_unit_test(the_plan_is_logged_and_shown_with_its_reasons),
		cmocka_unit_test(the_heap_has_an_arena_for_each_loop_and_its_numbers_are_on_the_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
