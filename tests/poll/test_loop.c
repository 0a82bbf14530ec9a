/* The loop in the calling thread: how it counts, how it waits, what it refuses. */
#include "base/atomic.h"
#include "base/clock.h"
#include "base/fault.h"
#include "poll/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cmocka_all.h"

/* A part that follows a script: turn i does script[i]; behind its end the loop is stopped. */
struct scripted {
	const char *script; /* 'w': found work, '.': did not */
	unsigned turn;
	int stop;
	uint64_t first_ns, last_ns;
	uint64_t next_ns;
	bool refuses_to_arm;
	unsigned armed, slept;
	struct loop *loop;
	uint64_t sleeps_at_stop, yields_at_stop;
	int ring_fd; /* written to at turn `ring_at`: work that comes by a descriptor */
};

static bool scripted_step(void *context, uint64_t now_ns)
{
	struct scripted *part = context;
	char what = part->script[part->turn];

	if (part->turn == 0)
		part->first_ns = now_ns;
	assert_true(now_ns >= part->last_ns);
	part->last_ns = now_ns;
	if (what == '\0') {
		kvr_store_release(&part->stop, 1);
		return false;
	}
	part->turn++;
	return what == 'w';
}

static bool scripted_arm(void *context)
{
	struct scripted *part = context;

	part->armed++;
	return !part->refuses_to_arm;
}

static uint64_t scripted_next(void *context)
{
	return ((struct scripted *)context)->next_ns;
}

static void scripted_slept(void *context)
{
	((struct scripted *)context)->slept++;
}

static struct loop *loop_of(struct scripted *part, enum loop_waiting waiting)
{
	struct loop_options options;
	struct loop *loop;

	memset(&options, 0, sizeof(options));
	strcpy(options.name, "scripted");
	options.parts[0] = (struct loop_part){ part, scripted_step, scripted_arm, scripted_next, scripted_slept, -1 };
	options.part_count = 1;
	options.waiting = waiting;
	options.spin_ns = 1;
	options.yield_ns = 1;
	options.core = -1;
	assert_int_equal(loop_create(&options, &loop), 0);
	part->loop = loop;
	return loop;
}

static void turns_with_and_without_work_are_counted(void **state)
{
	struct scripted part = { .script = "w.ww..w", .next_ns = UINT64_MAX };
	struct loop *loop = loop_of(&part, LOOP_BUSY);
	const struct loop_counters *counters = loop_counters(loop);

	(void)state;
	loop_run_here(loop, &part.stop);
	assert_int_equal(counters->busy_turns, 4);
	assert_int_equal(counters->idle_turns, 4); /* with the one that stopped it */
	assert_int_equal(counters->sleeps, 0);
	assert_int_equal(counters->yields, 0);
	assert_int_equal(counters->turn_ns, part.last_ns);
	assert_true(counters->busy_ns <= part.last_ns - part.first_ns);
	assert_int_equal(part.armed, 0);
	loop_destroy(&loop);
	assert_null(loop);
	loop_destroy(&loop);
}

/* A step is due at once, always: the loop goes through its way to sleep again and again, and never does. */
static void a_part_that_is_due_keeps_the_loop_awake(void **state)
{
	struct scripted part = { .script = "..............", .next_ns = 0 };
	struct loop *loop = loop_of(&part, LOOP_ADAPTIVE);

	(void)state;
	loop_run_here(loop, &part.stop);
	assert_true(part.armed > 0);
	assert_int_equal(part.slept, 0);
	assert_int_equal(loop_counters(loop)->sleeps, 0);
	assert_false(loop_sleeping(loop));
	loop_destroy(&loop);
}

static void a_part_that_will_not_be_armed_keeps_the_loop_awake(void **state)
{
	struct scripted part = { .script = "..............", .next_ns = UINT64_MAX, .refuses_to_arm = true };
	struct loop *loop = loop_of(&part, LOOP_ADAPTIVE);

	(void)state;
	loop_run_here(loop, &part.stop);
	assert_true(part.armed > 0);
	assert_int_equal(loop_counters(loop)->sleeps, 0);
	assert_false(loop_sleeping(loop));
	loop_destroy(&loop);
}

/* Whoever stops it rings only a loop that sleeps; so the flag of one that is about to is looked at again. */
static void a_stop_in_the_turn_before_a_sleep_prevents_it(void **state)
{
	struct scripted part = { .script = "", .next_ns = UINT64_MAX };
	struct loop *loop = loop_of(&part, LOOP_ADAPTIVE);

	(void)state;
	loop_run_here(loop, &part.stop);
	assert_int_equal(part.slept, 0);
	assert_int_equal(loop_counters(loop)->sleeps, 0);
	loop_destroy(&loop);
}

/* Work that comes while the parts are being armed: seen by the last look, and the loop does not sleep on it. */
struct late {
	bool work; /* what a ring would hold */
	unsigned seen;
	int stop;
};

static bool late_step(void *context, uint64_t now_ns)
{
	struct late *late = context;

	(void)now_ns;
	if (!late->work)
		return false;
	late->work = false;
	if (++late->seen == 100)
		kvr_store_release(&late->stop, 1);
	return true;
}

static bool late_arm(void *context)
{
	((struct late *)context)->work = true;
	return true;
}

/* pitfalls I13: between the last look and arming. */
static void work_that_comes_while_arming_is_found_by_the_last_look(void **state)
{
	struct late late = { false, 0, 0 };
	struct loop_options options;
	struct loop *loop;

	(void)state;
	memset(&options, 0, sizeof(options));
	strcpy(options.name, "late");
	options.parts[0] = (struct loop_part){ &late, late_step, late_arm, NULL, NULL, -1 };
	options.part_count = 1;
	options.waiting = LOOP_ADAPTIVE;
	options.spin_ns = 1;
	options.yield_ns = 1;
	options.core = -1;
	assert_int_equal(loop_create(&options, &loop), 0);
	loop_run_here(loop, &late.stop);
	assert_int_equal(late.seen, 100);
	assert_int_equal(loop_counters(loop)->sleeps, 0);
	loop_destroy(&loop);
}

/* Nothing else would end this test: each sleep ends by the descriptor, which is told by `slept` and emptied there. */
struct eventful {
	int fd;
	unsigned sleeps;
	int stop;
};

static bool eventful_step(void *context, uint64_t now_ns)
{
	(void)context;
	(void)now_ns;
	return false;
}

static bool eventful_arm(void *context)
{
	uint64_t one = 1;

	return write(((struct eventful *)context)->fd, &one, sizeof(one)) == sizeof(one);
}

static void eventful_slept(void *context)
{
	struct eventful *part = context;
	uint64_t value;

	assert_int_equal(read(part->fd, &value, sizeof(value)), sizeof(value));
	if (++part->sleeps == 10)
		kvr_store_release(&part->stop, 1);
}

static void a_descriptor_ends_the_sleep_and_its_part_is_told(void **state)
{
	struct eventful part = { eventfd(0, EFD_NONBLOCK), 0, 0 };
	struct loop_options options;
	struct loop *loop;

	(void)state;
	memset(&options, 0, sizeof(options));
	strcpy(options.name, "eventful");
	options.parts[0] = (struct loop_part){ &part, eventful_step, eventful_arm, NULL, eventful_slept, part.fd };
	options.part_count = 1;
	options.waiting = LOOP_ADAPTIVE;
	options.spin_ns = 1;
	options.yield_ns = 1;
	options.core = -1;
	assert_int_equal(loop_create(&options, &loop), 0);
	loop_run_here(loop, &part.stop);
	assert_int_equal(part.sleeps, 10);
	assert_int_equal(loop_counters(loop)->sleeps, 10);
	loop_destroy(&loop);
	close(part.fd);
}

/* A sleep that only next_ns ends. */
static bool timed_step(void *context, uint64_t now_ns)
{
	struct scripted *part = context;

	if (now_ns < part->next_ns)
		return false;
	part->next_ns += 200 * KVR_US;
	if (++part->turn == 5)
		kvr_store_release(&part->stop, 1);
	return true;
}

static void the_earliest_next_step_ends_the_sleep(void **state)
{
	struct scripted part = { .next_ns = clock_now_ns() }, never = { .script = "", .next_ns = UINT64_MAX };
	struct loop_options options;
	struct loop *loop;

	(void)state;
	memset(&options, 0, sizeof(options));
	strcpy(options.name, "timed");
	options.parts[0] = (struct loop_part){ &never, eventful_step, NULL, scripted_next, NULL, -1 };
	options.parts[1] = (struct loop_part){ &part, timed_step, NULL, scripted_next, NULL, -1 };
	options.part_count = 2;
	options.waiting = LOOP_ADAPTIVE;
	options.spin_ns = 1;
	options.yield_ns = 1;
	options.core = -1;
	assert_int_equal(loop_create(&options, &loop), 0);
	loop_run_here(loop, &part.stop);
	assert_int_equal(part.turn, 5);
	assert_int_equal(loop_counters(loop)->busy_turns, 5);
	assert_true(loop_counters(loop)->sleeps > 0);
	loop_destroy(&loop);
}

/*
 * pitfalls M05: idle time is measured from the end of work. The step works for longer than the spin phase; if the idle time ran
 * from its start, the turn behind it would yield or sleep.
 */
static bool slow_step(void *context, uint64_t now_ns)
{
	struct scripted *part = context;
	uint64_t until_ns = clock_now_ns() + 250 * KVR_MS;

	(void)now_ns;
	if (part->turn == 2) {
		part->yields_at_stop = loop_counters(part->loop)->yields;
		part->sleeps_at_stop = loop_counters(part->loop)->sleeps;
		kvr_store_release(&part->stop, 1);
		return false;
	}
	if (part->turn++ == 1)
		return false;
	while (clock_now_ns() < until_ns)
		kvr_cpu_pause();
	return true;
}

static void idle_time_is_measured_from_the_end_of_work(void **state)
{
	struct scripted part = { .next_ns = UINT64_MAX };
	struct loop_options options;
	struct loop *loop;

	(void)state;
	memset(&options, 0, sizeof(options));
	strcpy(options.name, "slow");
	options.parts[0] = (struct loop_part){ &part, slow_step, scripted_arm, scripted_next, NULL, -1 };
	options.part_count = 1;
	options.waiting = LOOP_ADAPTIVE;
	options.spin_ns = 200 * KVR_MS;
	options.yield_ns = 1;
	options.core = -1;
	assert_int_equal(loop_create(&options, &loop), 0);
	part.loop = loop;
	loop_run_here(loop, &part.stop);
	assert_int_equal(part.turn, 2);
	assert_int_equal(part.yields_at_stop, 0);
	assert_int_equal(part.sleeps_at_stop, 0);
	loop_destroy(&loop);
}

static void options_that_make_no_loop_are_refused(void **state)
{
	struct scripted part = { .script = "" };
	struct loop_options good, bad;
	struct loop *loop;

	(void)state;
	memset(&good, 0, sizeof(good));
	strcpy(good.name, "refused");
	good.parts[0] = (struct loop_part){ &part, scripted_step, NULL, NULL, NULL, -1 };
	good.part_count = 1;
	good.core = -1;
	bad = good;
	bad.part_count = 0;
	assert_int_equal(loop_create(&bad, &loop), -EINVAL);
	assert_null(loop);
	bad.part_count = LOOP_PARTS_MAX + 1;
	assert_int_equal(loop_create(&bad, &loop), -EINVAL);
	bad = good;
	bad.parts[0].step = NULL;
	assert_int_equal(loop_create(&bad, &loop), -EINVAL);
	bad = good;
	memset(bad.name, 'x', sizeof(bad.name));
	assert_int_equal(loop_create(&bad, &loop), -EINVAL);
	bad = good;
	bad.wake_count = LOOP_WAKES_MAX + 1;
	assert_int_equal(loop_create(&bad, &loop), -EINVAL);
	fault_arm_name("loop_create/object", 1);
	assert_int_equal(loop_create(&good, &loop), -ENOMEM);
	fault_arm_name("loop_create/eventfd", 1);
	assert_int_equal(loop_create(&good, &loop), -EMFILE);
	fault_arm_name("loop_start/thread", 1);
	assert_int_equal(loop_create(&good, &loop), 0);
	assert_int_equal(loop_start(loop), -EAGAIN);
	fault_arm(0);
	for (unsigned i = 0; i < LOOP_WAKES_MAX; i++)
		assert_int_equal(loop_add_wake(loop, loop), 0);
	assert_int_equal(loop_add_wake(loop, loop), -ENOSPC);
	loop_stop(loop);
	loop_destroy(&loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(turns_with_and_without_work_are_counted),
		cmocka_unit_test(a_part_that_is_due_keeps_the_loop_awake),
		cmocka_unit_test(a_part_that_will_not_be_armed_keeps_the_loop_awake),
		cmocka_unit_test(a_stop_in_the_turn_before_a_sleep_prevents_it),
		cmocka_unit_test(work_that_comes_while_arming_is_found_by_the_last_look),
		cmocka_unit_test(a_descriptor_ends_the_sleep_and_its_part_is_told),
		cmocka_unit_test(the_earliest_next_step_ends_the_sleep),
		cmocka_unit_test(idle_time_is_measured_from_the_end_of_work),
		cmocka_unit_test(options_that_make_no_loop_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
