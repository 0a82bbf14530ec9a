/* The helper without a thread, and what both kinds refuse. */
#include "base/fault.h"
#include "base/helper.h"
#include "base/log.h"
#include "base/ring.h"

#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"

struct job {
	struct helper_job job;
	unsigned *clock;
	unsigned ran_at; /* 1: the first of all; 0: not yet */
};

static void run(struct helper_job *helper_job)
{
	struct job *job = KVR_CONTAINER_OF(helper_job, struct job, job);

	assert_int_equal(job->ran_at, 0);
	job->ran_at = ++*job->clock;
	helper_job->result = -(int)job->ran_at;
}

static void init_jobs(struct job *jobs, unsigned count, unsigned *clock)
{
	memset(jobs, 0, sizeof(*jobs) * count);
	for (unsigned i = 0; i < count; i++) {
		jobs[i].job.run = run;
		jobs[i].clock = clock;
	}
}

static void without_a_thread_each_collect_runs_one_job_in_order(void **state)
{
	struct helper *helper;
	struct job jobs[3];
	unsigned clock = 0;

	(void)state;
	init_jobs(jobs, 3, &clock);
	assert_int_equal(helper_create("slow", 0, 8, &helper), 0);
	assert_int_equal(helper_event_fd(helper), -1);
	assert_null(helper_collect(helper));
	for (unsigned i = 0; i < 3; i++)
		assert_true(helper_submit(helper, &jobs[i].job));
	assert_int_equal(clock, 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_ptr_equal(helper_collect(helper), &jobs[i].job);
		assert_int_equal(clock, i + 1);
		assert_int_equal(jobs[i].job.result, -(int)(i + 1));
	}
	assert_null(helper_collect(helper));
	helper_destroy(&helper);
	assert_null(helper);
	helper_destroy(&helper);
}

static void no_more_jobs_than_the_capacity_are_in_flight(void **state)
{
	struct helper *helper;
	struct job jobs[4];
	unsigned clock = 0;

	(void)state;
	init_jobs(jobs, 4, &clock);
	/* Three is no power of two: the rings inside are larger. */
	assert_int_equal(helper_create("slow", 0, 3, &helper), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_true(helper_submit(helper, &jobs[i].job));
	assert_false(helper_submit(helper, &jobs[3].job));
	assert_non_null(helper_collect(helper));
	assert_true(helper_submit(helper, &jobs[3].job));
	assert_false(helper_submit(helper, &jobs[0].job));
	helper_destroy(&helper);
	assert_int_equal(clock, 4);
}

static void destroy_runs_what_was_submitted(void **state)
{
	struct helper *helper;
	struct job jobs[5];
	unsigned clock = 0;

	(void)state;
	init_jobs(jobs, 5, &clock);
	assert_int_equal(helper_create("slow", 0, 5, &helper), 0);
	for (unsigned i = 0; i < 5; i++)
		assert_true(helper_submit(helper, &jobs[i].job));
	helper_destroy(&helper);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(jobs[i].ran_at, i + 1);
}

static void wrong_arguments_are_refused(void **state)
{
	struct helper *helper;

	(void)state;
	assert_int_equal(helper_create("slow", 2, 8, &helper), -EINVAL);
	assert_null(helper);
	assert_int_equal(helper_create("slow", 0, 0, &helper), -EINVAL);
	assert_int_equal(helper_create("slow", 0, RING_CAPACITY_MAX + 1, &helper), -EINVAL);
	assert_int_equal(helper_create("sixteen-letters-", 0, 8, &helper), -EINVAL);
	assert_int_equal(helper_create("fifteen-letters", 0, 1, &helper), 0);
	helper_destroy(&helper);
}

#ifdef KVRAIL_FAULT_POINTS

static void ignore_line(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

static void every_failure_of_create_is_reported_and_leaves_nothing(void **state)
{
	struct helper *helper;
	uint64_t n;

	(void)state;
	log_set_sink(ignore_line, NULL);
	for (n = 1;; n++) {
		int error;

		fault_arm(n);
		error = helper_create("slow", 1, 8, &helper);
		if (!fault_fired()) {
			assert_int_equal(error, 0);
			helper_destroy(&helper);
			break;
		}
		assert_true(error == -ENOMEM || error == -EAGAIN);
		assert_null(helper);
	}
	fault_arm(0);
	log_set_sink(NULL, NULL);
	/* The object, two rings, the descriptor, the thread. */
	assert_int_equal(n, 6);
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_thread_each_collect_runs_one_job_in_order),
		cmocka_unit_test(no_more_jobs_than_the_capacity_are_in_flight),
		cmocka_unit_test(destroy_runs_what_was_submitted),
		cmocka_unit_test(wrong_arguments_are_refused),
#ifdef KVRAIL_FAULT_POINTS
		cmocka_unit_test(every_failure_of_create_is_reported_and_leaves_nothing),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
