/* Real threads on real cores: one that is taken off its core is put back, two that spin on one core are found, and a priority that
 * the process has no right to is refused. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "poll/cores.h"
#include "poll/guard.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"

static void take_line(void *context, enum log_level level, const char *line)
{
	(void)level;
	snprintf(context, 512, "%s", line);
}

static bool step_nothing(void *context, uint64_t now_ns)
{
	(void)context;
	(void)now_ns;
	return false;
}

static struct loop *start(const char *name, int core, int priority)
{
	struct loop_options options;
	struct loop *loop;

	memset(&options, 0, sizeof(options));
	snprintf(options.name, sizeof(options.name), "%s", name);
	options.parts[0] = (struct loop_part){ NULL, step_nothing, NULL, NULL, NULL, -1 };
	options.part_count = 1;
	options.waiting = LOOP_BUSY;
	options.core = core;
	options.priority = priority;
	assert_int_equal(loop_create(&options, &loop), 0);
	assert_int_equal(loop_start(loop), 0);
	return loop;
}

static int first_core(void)
{
	int core;

	assert_true(cores_allowed(&core, 1) > 0);
	return core;
}

/* By its name, as an operator finds it. */
static pid_t thread_named(const char *name)
{
	DIR *folder = opendir("/proc/self/task");
	const struct dirent *entry;
	pid_t found = 0;

	assert_non_null(folder);
	while (!found && (entry = readdir(folder)) != NULL) {
		char path[64], line[32] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (fgets(line, sizeof(line), file) && strncmp(line, name, strlen(name)) == 0)
			found = (pid_t)strtol(entry->d_name, NULL, 10);
		fclose(file);
	}
	closedir(folder);
	assert_true(found > 0);
	return found;
}

/* pitfalls M01: as when a cpuset is changed while the server runs. */
static void a_thread_that_is_taken_off_its_core_is_put_back(void **state)
{
	struct loop *loop = start("wanderer", first_core(), 0);
	pid_t thread = thread_named("wanderer");
	char line[512] = "";
	struct guard guard;
	cpu_set_t all;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	if (CPU_COUNT(&all) < 2) {
		loop_destroy(&loop);
		skip();
	}
	guard_init(&guard, false);
	assert_true(guard_add(&guard, loop, clock_now_ns()));
	assert_true(cores_is_pinned(thread, first_core()));
	assert_int_equal(sched_setaffinity(thread, sizeof(all), &all), 0);
	assert_false(cores_is_pinned(thread, first_core()));
	log_set_sink(take_line, line);
	guard_step(&guard, clock_now_ns());
	assert_true(cores_is_pinned(thread, first_core()));
	assert_int_equal(guard.corrected, 1);
	assert_non_null(strstr(line, "was put back"));
	/* A core that can't be had any more: said, and no spinning on others' cores. */
	assert_int_equal(sched_setaffinity(thread, sizeof(all), &all), 0);
	fault_arm_name("cores/bind", 1);
	guard_step(&guard, clock_now_ns() + 2 * GUARD_LOOK_NS);
	fault_arm(0);
	log_set_sink(NULL, NULL);
	assert_int_equal(guard.guarded[0].state, GUARD_LOST);
	assert_int_equal(loop_core(loop), -1);
	assert_int_equal(loop_waiting(loop), LOOP_ADAPTIVE);
	loop_destroy(&loop);
}

static void two_threads_that_spin_on_one_core_are_found(void **state)
{
	struct loop *loops[2] = { start("one", first_core(), 0), start("two", first_core(), 0) };
	char line[512] = "";
	struct guard guard;

	(void)state;
	if (loop_waited_ns(loops[0]) == UINT64_MAX) {
		loop_destroy(&loops[0]);
		loop_destroy(&loops[1]);
		skip();
	}
	log_set_sink(take_line, line);
	guard_init(&guard, false);
	for (unsigned i = 0; i < 2; i++)
		assert_true(guard_add(&guard, loops[i], clock_now_ns()));
	while (guard.shared == 0) {
		guard.next_ns = 0;
		guard_step(&guard, clock_now_ns());
		sched_yield();
	}
	log_set_sink(NULL, NULL);
	assert_non_null(strstr(line, "something else runs on core"));
	for (unsigned i = 0; i < 2; i++)
		loop_destroy(&loops[i]);
}

static void a_priority_without_the_right_is_refused_and_the_thread_runs(void **state)
{
	char line[512] = "";
	struct loop *loop;

	(void)state;
	log_set_sink(take_line, line);
	fault_arm_name("loop/priority", 1);
	loop = start("urgent", first_core(), 10);
	fault_arm(0);
	assert_int_equal(loop_priority(loop), 0);
	assert_string_equal(line,
		"urgent: no right to the real-time priority 10, it runs without: give CAP_SYS_NICE or LimitRTPRIO=10 (ulimit "
		"-r)");
	loop_destroy(&loop);
	/* Nor without a core of its own, which it would take from all else. */
	loop = start("urgent", -1, 10);
	assert_string_equal(line,
		"urgent: no real-time priority 10 without a core of its own: give it one (option cores), or leave the priority out");
	assert_int_equal(loop_priority(loop), 0);
	log_set_sink(NULL, NULL);
	loop_destroy(&loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_that_is_taken_off_its_core_is_put_back),
		cmocka_unit_test(two_threads_that_spin_on_one_core_are_found),
		cmocka_unit_test(a_priority_without_the_right_is_refused_and_the_thread_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
