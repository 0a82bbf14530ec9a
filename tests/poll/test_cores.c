/* Lists of cores, what the affinity allows, and pinning. pitfalls M01: never a core that the process was not given. */
#include "base/fault.h"
#include "poll/cores.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"

static void lists_of_cores_are_read_in_ascending_order_without_repeats(void **state)
{
	static const struct {
		const char *text;
		int count;
		int cores[8];
	} cases[] = {
		{ "0", 1, { 0 } },
		{ "0-3,8", 5, { 0, 1, 2, 3, 8 } },
		{ "8,2-3,0", 4, { 0, 2, 3, 8 } },
		{ "5,5,4-6", 3, { 4, 5, 6 } },
		{ "7-7", 1, { 7 } },
		{ "1023", 1, { 1023 } },
		{ "007", 1, { 7 } },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		int cores[8] = { -1, -1, -1, -1, -1, -1, -1, -1 };

		assert_int_equal(cores_parse(cases[i].text, cores, 8), cases[i].count);
		assert_memory_equal(cores, cases[i].cores, (size_t)cases[i].count * sizeof(int));
	}
}

static void lists_that_are_none_are_refused_and_nothing_is_written(void **state)
{
	static const struct {
		const char *text;
		int error;
	} cases[] = {
		{ "", -EINVAL },
		{ ",", -EINVAL },
		{ "1,", -EINVAL },
		{ ",1", -EINVAL },
		{ "1 ", -EINVAL },
		{ " 1", -EINVAL },
		{ "-1", -EINVAL },
		{ "1-", -EINVAL },
		{ "3-1", -EINVAL },
		{ "1-2-3", -EINVAL },
		{ "a", -EINVAL },
		{ "0x1", -EINVAL },
		{ "1;2", -EINVAL },
		{ "1024", -ERANGE },
		{ "0-1024", -ERANGE },
		{ "99999999999999999999", -ERANGE },
		{ "0-3", -ENOSPC },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		int cores[3] = { -7, -7, -7 };

		assert_int_equal(cores_parse(cases[i].text, cores, 3), cases[i].error);
		assert_int_equal(cores[0], -7);
	}
}

static void allow(cpu_set_t *set, int core)
{
	CPU_ZERO(set);
	CPU_SET((unsigned)core, set);
	assert_int_equal(sched_setaffinity(0, sizeof(*set), set), 0);
}

/* pitfalls M01 */
static void cores_are_those_of_the_affinity(void **state)
{
	int all[CORES_MAX], one[CORES_MAX];
	cpu_set_t before, set;
	int count;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	count = cores_allowed(all, CORES_MAX);
	assert_int_equal(count, CPU_COUNT(&before));
	for (int i = 0; i < count; i++) {
		assert_true(CPU_ISSET((unsigned)all[i], &before));
		assert_true(i == 0 || all[i] > all[i - 1]);
	}
	for (int i = 0; i < count; i++) {
		allow(&set, all[i]);
		assert_int_equal(cores_allowed(one, CORES_MAX), 1);
		assert_int_equal(one[0], all[i]);
		assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	}
	/* The count is that of all, whatever there is room for. */
	assert_int_equal(cores_allowed(one, 0), count);
}

static void a_machine_that_cannot_be_read_is_an_error(void **state)
{
	int cores[4];

	(void)state;
	fault_arm_name("cores/topology", 1);
	assert_int_equal(cores_allowed(cores, 4), -ENOMEM);
	fault_arm_name("cores/topology", 1);
	assert_int_equal(cores_numa_node(0), -1);
	fault_arm(0);
}

struct pinning {
	int core;
	int allowed; /* -1: whatever the process is */
	int result;
	int ran_on;
	int cores_after;
};

static void *pin(void *argument)
{
	struct pinning *pinning = argument;
	cpu_set_t set;

	if (pinning->allowed >= 0)
		allow(&set, pinning->allowed);
	pinning->result = cores_pin_self(pinning->core);
	pinning->ran_on = sched_getcpu();
	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	pinning->cores_after = CPU_COUNT(&set);
	return NULL;
}

static struct pinning pinned(int core, int allowed)
{
	struct pinning pinning = { core, allowed, 0, -1, 0 };
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, pin, &pinning), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	return pinning;
}

static void a_thread_runs_on_the_core_that_it_was_pinned_to(void **state)
{
	int cores[CORES_MAX];
	int count = cores_allowed(cores, CORES_MAX);

	(void)state;
	assert_true(count > 0);
	for (int i = 0; i < count && i < 4; i++) {
		struct pinning pinning = pinned(cores[i], -1);

		assert_int_equal(pinning.result, 0);
		assert_int_equal(pinning.ran_on, cores[i]);
		assert_int_equal(pinning.cores_after, 1);
	}
}

/* pitfalls M01: the kernel would have allowed it, the list that the process was given does not. */
static void a_core_outside_the_affinity_is_refused_and_the_affinity_stays(void **state)
{
	int cores[CORES_MAX];
	int count = cores_allowed(cores, CORES_MAX);
	struct pinning pinning;

	(void)state;
	if (count < 2)
		skip();
	pinning = pinned(cores[1], cores[0]);
	assert_int_equal(pinning.result, -EINVAL);
	assert_int_equal(pinning.ran_on, cores[0]);
	pinning = pinned(CORES_MAX - 1, -1);
	assert_int_equal(pinning.result, -EINVAL);
	assert_int_equal(pinning.cores_after, count);
	assert_int_equal(pinned(-1, -1).result, -EINVAL);
	assert_int_equal(pinned(CORES_MAX, -1).result, -EINVAL);
}

static void numa_nodes_are_those_of_the_machine(void **state)
{
	(void)state;
	/* hwloc's own way to describe a machine that is not this one. */
	assert_int_equal(setenv("HWLOC_SYNTHETIC", "numa:2 core:2 pu:1", 1), 0);
	assert_int_equal(cores_numa_node(0), 0);
	assert_int_equal(cores_numa_node(1), 0);
	assert_int_equal(cores_numa_node(2), 1);
	assert_int_equal(cores_numa_node(3), 1);
	assert_int_equal(cores_numa_node(4), -1);
	assert_int_equal(cores_numa_node(-1), -1);
	unsetenv("HWLOC_SYNTHETIC");
}

static void memory_can_be_asked_for_near_a_core(void **state)
{
	int error = cores_prefer_node(0);

	(void)state;
	assert_int_equal(cores_prefer_node(-2), -EINVAL);
	assert_int_equal(cores_prefer_node(CORES_MAX), -EINVAL);
	assert_int_equal(cores_prefer_node(-1), 0);
	/* Some containers refuse it, and some kernels have no nodes. */
	if (error)
		skip();
	assert_int_equal(cores_prefer_node(900), -EINVAL);
	assert_int_equal(cores_prefer_node(-1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_of_cores_are_read_in_ascending_order_without_repeats),
		cmocka_unit_test(lists_that_are_none_are_refused_and_nothing_is_written),
		cmocka_unit_test(cores_are_those_of_the_affinity),
		cmocka_unit_test(a_machine_that_cannot_be_read_is_an_error),
		cmocka_unit_test(a_thread_runs_on_the_core_that_it_was_pinned_to),
		cmocka_unit_test(a_core_outside_the_affinity_is_refused_and_the_affinity_stays),
		cmocka_unit_test(numa_nodes_are_those_of_the_machine),
		cmocka_unit_test(memory_can_be_asked_for_near_a_core),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
