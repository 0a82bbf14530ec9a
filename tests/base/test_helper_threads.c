/* The helper with its thread: nothing is lost, nothing sleeps for ever. A lost wake-up shows as a time-out of the
 * test. */
#include "base/atomic.h"
#include "base/helper.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>

#include "base/cmocka_all.h"

#define ROUNDS 20000u

struct job {
	struct helper_job job;
	uint64_t value; /* not atomic: the rings hand it over */
	sem_t *gate;
};

static void square(struct helper_job *helper_job)
{
	struct job *job = KVR_CONTAINER_OF(helper_job, struct job, job);

	job->value *= job->value;
	helper_job->result = 0;
}

static void wait_at_gate(struct helper_job *helper_job)
{
	struct job *job = KVR_CONTAINER_OF(helper_job, struct job, job);

	while (sem_wait(job->gate) != 0)
		;
	job->value = 1;
}

static struct helper_job *collect_waiting(struct helper *helper)
{
	struct helper_job *job;

	while (!(job = helper_collect(helper)))
		sched_yield();
	return job;
}

static void jobs_come_back_in_order_with_their_results(void **state)
{
	enum { DEPTH = 5 };
	struct job jobs[DEPTH];
	struct helper *helper;
	uint64_t submitted = 0, collected = 0;

	(void)state;
	memset(jobs, 0, sizeof(jobs));
	assert_int_equal(helper_create("squares", 1, DEPTH, &helper), 0);
	while (collected < ROUNDS * 10) {
		struct helper_job *done;

		while (submitted < ROUNDS * 10 && submitted - collected < DEPTH) {
			struct job *job = &jobs[submitted % DEPTH];

			job->job.run = square;
			job->value = submitted++;
			assert_true(helper_submit(helper, &job->job));
		}
		done = helper_collect(helper);
		if (!done) {
			sched_yield();
			continue;
		}
		assert_ptr_equal(done, &jobs[collected % DEPTH].job);
		assert_int_equal(jobs[collected % DEPTH].value, collected * collected);
		collected++;
	}
	helper_destroy(&helper);
}

/* One job at a time, so that the thread goes to sleep, or is about to, each time that one comes. */
static void a_sleeping_helper_wakes_for_every_job(void **state)
{
	struct job job = { .job.run = square };
	struct helper *helper;

	(void)state;
	assert_int_equal(helper_create("sleeper", 1, 1, &helper), 0);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		job.value = round;
		assert_true(helper_submit(helper, &job.job));
		assert_false(helper_submit(helper, &job.job));
		assert_ptr_equal(collect_waiting(helper), &job.job);
		assert_int_equal(job.value, round * round);
	}
	helper_destroy(&helper);
}

static void the_event_descriptor_becomes_readable_for_every_job(void **state)
{
	struct job jobs[3] = { { .job.run = square }, { .job.run = square }, { .job.run = square } };
	struct helper *helper;
	struct pollfd event = { .events = POLLIN };

	(void)state;
	assert_int_equal(helper_create("events", 1, 3, &helper), 0);
	event.fd = helper_event_fd(helper);
	assert_true(event.fd >= 0);
	for (unsigned round = 0; round < ROUNDS / 4; round++) {
		unsigned open = 1 + round % 3;

		for (unsigned i = 0; i < open; i++)
			assert_true(helper_submit(helper, &jobs[i].job));
		while (open > 0) {
			assert_int_equal(poll(&event, 1, 60000), 1);
			while (helper_collect(helper))
				open--;
		}
		/* Collected to the end, it falls silent: a thread in epoll would sleep. The last event may come
		 * late. */
		for (unsigned turns = 0; poll(&event, 1, 0) == 1; turns++) {
			assert_true(turns <= 3);
			assert_null(helper_collect(helper));
		}
	}
	helper_destroy(&helper);
}

static void neither_submit_nor_collect_waits_for_a_job_that_blocks(void **state)
{
	struct job blocked = { .job.run = wait_at_gate }, next = { .job.run = square, .value = 3 };
	struct helper *helper;
	sem_t gate;

	(void)state;
	sem_init(&gate, 0, 0);
	blocked.gate = &gate;
	assert_int_equal(helper_create("blocked", 1, 4, &helper), 0);
	assert_true(helper_submit(helper, &blocked.job));
	assert_true(helper_submit(helper, &next.job));
	assert_null(helper_collect(helper));
	sem_post(&gate);
	assert_ptr_equal(collect_waiting(helper), &blocked.job);
	assert_int_equal(blocked.value, 1);
	assert_ptr_equal(collect_waiting(helper), &next.job);
	assert_int_equal(next.value, 9);
	helper_destroy(&helper);
	sem_destroy(&gate);
}

/* pitfalls C18: the exit does not wait for ever, and no job is left undone or done twice. */
static void destroy_runs_every_submitted_job_once(void **state)
{
	enum { JOBS = 16 };
	struct job jobs[JOBS];
	struct helper *helper;

	(void)state;
	/* Many rounds, since the thread must be met on its way to sleep. */
	for (unsigned round = 0; round < 3000; round++) {
		memset(jobs, 0, sizeof(jobs));
		assert_int_equal(helper_create("ends", 1, JOBS, &helper), 0);
		for (unsigned i = 0; i < round % (JOBS + 1); i++) {
			jobs[i].job.run = square;
			jobs[i].value = i + 2;
			assert_true(helper_submit(helper, &jobs[i].job));
		}
		if (round % 3 == 0)
			(void)helper_collect(helper);
		helper_destroy(&helper);
		assert_null(helper);
		for (uint64_t i = 0; i < round % (JOBS + 1); i++)
			assert_int_equal(jobs[i].value, (i + 2) * (i + 2));
	}
}

struct signal_job {
	struct helper_job job;
	sigset_t blocked;
	char name[16];
};

static void look_around(struct helper_job *helper_job)
{
	struct signal_job *job = KVR_CONTAINER_OF(helper_job, struct signal_job, job);

	pthread_sigmask(SIG_SETMASK, NULL, &job->blocked);
	pthread_getname_np(pthread_self(), job->name, sizeof(job->name));
}

static void the_thread_has_its_name_and_leaves_signals_to_others(void **state)
{
	struct signal_job job = { .job.run = look_around };
	struct helper *helper;
	sigset_t mine;

	(void)state;
	assert_int_equal(helper_create("fifteen-letters", 1, 1, &helper), 0);
	assert_true(helper_submit(helper, &job.job));
	assert_ptr_equal(collect_waiting(helper), &job.job);
	assert_string_equal(job.name, "fifteen-letters");
	assert_int_equal(sigismember(&job.blocked, SIGTERM), 1);
	assert_int_equal(sigismember(&job.blocked, SIGUSR1), 1);
	pthread_sigmask(SIG_SETMASK, NULL, &mine);
	assert_int_equal(sigismember(&mine, SIGTERM), 0);
	helper_destroy(&helper);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jobs_come_back_in_order_with_their_results),
		cmocka_unit_test(a_sleeping_helper_wakes_for_every_job),
		cmocka_unit_test(the_event_descriptor_becomes_readable_for_every_job),
		cmocka_unit_test(neither_submit_nor_collect_waits_for_a_job_that_blocks),
		cmocka_unit_test(destroy_runs_every_submitted_job_once),
		cmocka_unit_test(the_thread_has_its_name_and_leaves_signals_to_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
