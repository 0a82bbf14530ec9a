/* Loops as threads: no wake-up is lost, an idle loop sleeps, stopping ends a sleep. */
#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/ring.h"
#include "poll/cores.h"
#include "poll/loop.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/cmocka_all.h"

#define HANDOFFS 100000u

/* One of two players: what comes in by one ring goes out by the other, counted. */
struct player {
	struct ring in;
	struct ring *out;
	uint64_t received;
	sem_t *done;
};

static bool player_step(void *context, uint64_t now_ns)
{
	struct player *player = context;
	struct ring_message message;

	(void)now_ns;
	if (!ring_pop(&player->in, &message))
		return false;
	player->received++;
	if (message.word[0] == 0) {
		sem_post(player->done);
		return true;
	}
	message.word[0]--;
	ring_push(player->out, &message);
	return true;
}

static bool player_arm(void *context)
{
	return ring_empty(&((struct player *)context)->in);
}

static struct loop *player_loop(struct player *player, uint64_t spin_ns, uint64_t yield_ns)
{
	struct loop_options options;
	struct loop *loop;

	memset(&options, 0, sizeof(options));
	strcpy(options.name, "player");
	options.parts[0] = (struct loop_part){ player, player_step, player_arm, NULL, NULL, -1 };
	options.part_count = 1;
	options.waiting = LOOP_ADAPTIVE;
	options.spin_ns = spin_ns;
	options.yield_ns = yield_ns;
	options.core = -1;
	assert_int_equal(loop_create(&options, &loop), 0);
	return loop;
}

/* One message back and forth: whenever a wake-up is lost, both sleep for ever, and the test's time limit tells. */
static uint64_t play(uint64_t spin_ns, uint64_t yield_ns, uint64_t handoffs)
{
	struct player *players = aligned_alloc(KVR_CACHE_LINE, kvr_round_up(2 * sizeof(*players), KVR_CACHE_LINE));
	struct ring_message message;
	struct loop *loops[2];
	uint64_t sleeps = 0;
	sem_t done;

	assert_non_null(players);
	memset(players, 0, 2 * sizeof(*players));
	sem_init(&done, 0, 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(ring_init(&players[i].in, 4), 0);
		players[i].out = &players[1 - i].in;
		players[i].done = &done;
		loops[i] = player_loop(&players[i], spin_ns, yield_ns);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(loop_add_wake(loops[i], loops[1 - i]), 0);
	memset(&message, 0, sizeof(message));
	message.word[0] = handoffs - 1;
	assert_true(ring_push(&players[0].in, &message));
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(loop_start(loops[i]), 0);
	while (sem_wait(&done) != 0)
		;
	for (unsigned i = 0; i < 2; i++) {
		loop_stop(loops[i]);
		sleeps += loop_counters(loops[i])->sleeps;
	}
	assert_int_equal(players[0].received + players[1].received, handoffs);
	for (unsigned i = 0; i < 2; i++) {
		loop_destroy(&loops[i]);
		ring_fini(&players[i].in);
	}
	sem_destroy(&done);
	free(players);
	return sleeps;
}

static void no_wake_up_is_lost_between_loops_that_sleep_at_once(void **state)
{
	(void)state;
	assert_true(play(1, 1, HANDOFFS) > 0);
}

static void no_wake_up_is_lost_between_loops_that_spin_a_little(void **state)
{
	(void)state;
	play(2 * KVR_US, 2 * KVR_US, HANDOFFS);
}

/* From a thread that is no loop. */
struct counted {
	struct ring in;
	uint64_t received;
};

static bool counted_step(void *context, uint64_t now_ns)
{
	struct counted *part = context;
	struct ring_message message;

	(void)now_ns;
	if (!ring_pop(&part->in, &message))
		return false;
	kvr_store_release(&part->received, part->received + 1);
	return true;
}

static bool counted_arm(void *context)
{
	return ring_empty(&((struct counted *)context)->in);
}

static void a_thread_that_is_no_loop_wakes_one(void **state)
{
	struct counted *part = aligned_alloc(KVR_CACHE_LINE, kvr_round_up(sizeof(*part), KVR_CACHE_LINE));
	struct ring_message message = { 0 };
	struct loop_options options;
	struct loop *loop;

	(void)state;
	assert_non_null(part);
	memset(part, 0, sizeof(*part));
	assert_int_equal(ring_init(&part->in, 4), 0);
	memset(&options, 0, sizeof(options));
	strcpy(options.name, "counted");
	options.parts[0] = (struct loop_part){ part, counted_step, counted_arm, NULL, NULL, -1 };
	options.part_count = 1;
	options.waiting = LOOP_ADAPTIVE;
	options.spin_ns = 1;
	options.yield_ns = 1;
	options.core = -1;
	assert_int_equal(loop_create(&options, &loop), 0);
	assert_int_equal(loop_start(loop), 0);
	for (uint64_t n = 1; n <= 20000; n++) {
		assert_true(ring_push(&part->in, &message));
		loop_wake(loop);
		while (kvr_load_acquire(&part->received) < n)
			sched_yield();
	}
	loop_destroy(&loop);
	ring_fini(&part->in);
	free(part);
}

static bool idle_step(void *context, uint64_t now_ns)
{
	(void)context;
	(void)now_ns;
	return false;
}

static struct loop *idle_loop(enum loop_waiting waiting, int core)
{
	struct loop_options options;
	struct loop *loop;

	memset(&options, 0, sizeof(options));
	strcpy(options.name, "idle");
	options.parts[0] = (struct loop_part){ NULL, idle_step, NULL, NULL, NULL, -1 };
	options.part_count = 1;
	options.waiting = waiting;
	options.core = core;
	assert_int_equal(loop_create(&options, &loop), 0);
	assert_int_equal(loop_start(loop), 0);
	return loop;
}

static uint64_t process_cpu_ns(void)
{
	struct timespec used;

	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
	return (uint64_t)used.tv_sec * KVR_SECOND + (uint64_t)used.tv_nsec;
}

/* The processor time over a while of doing nothing. */
static uint64_t napping_cpu_ns(void)
{
	struct timespec nap = { 0, 300000000 };
	uint64_t cpu_ns = process_cpu_ns();

	clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
	return process_cpu_ns() - cpu_ns;
}

/* pitfalls M03: an idle server takes less than 1 % of a core. A busy machine can only add to what is measured (time that its host took is
 * charged to who ran), a loop that does not sleep takes a multiple of it in every nap: so the least of some counts. */
static void an_idle_loop_sleeps(void **state)
{
	struct loop *loop = idle_loop(LOOP_ADAPTIVE, -1);
	uint64_t cpu_ns = UINT64_MAX, turns, sleeps;

	(void)state;
	while (!loop_sleeping(loop))
		sched_yield();
	turns = kvr_load_relaxed(&loop_counters(loop)->idle_turns);
	sleeps = kvr_load_relaxed(&loop_counters(loop)->sleeps);
	for (unsigned i = 0; i < 5 && cpu_ns >= 3 * KVR_MS; i++)
		cpu_ns = kvr_min_u64(cpu_ns, napping_cpu_ns());
	assert_true(cpu_ns < 3 * KVR_MS);
	/* At most the turn that was under way when it was first seen to sleep. */
	assert_in_range(kvr_load_relaxed(&loop_counters(loop)->idle_turns) - turns, 0, 1);
	assert_in_range(kvr_load_relaxed(&loop_counters(loop)->sleeps) - sleeps, 0, 1);
	loop_destroy(&loop);
}

static void stopping_ends_a_sleep(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 200; i++) {
		struct loop *loop = idle_loop(i % 2 ? LOOP_ADAPTIVE : LOOP_BUSY, -1);

		if (i % 4 == 1) {
			while (!loop_sleeping(loop))
				sched_yield();
		}
		loop_stop(loop);
		loop_stop(loop);
		loop_destroy(&loop);
	}
}

/* A flag of its own ends a loop that runs in a thread of the caller, asleep or not. */
struct here {
	struct loop *loop;
	int stop;
};

static void *run_here(void *argument)
{
	struct here *here = argument;

	loop_run_here(here->loop, &here->stop);
	return NULL;
}

static void a_flag_and_a_wake_end_a_loop_that_runs_here(void **state)
{
	struct loop_options options;

	(void)state;
	memset(&options, 0, sizeof(options));
	strcpy(options.name, "here");
	options.parts[0] = (struct loop_part){ NULL, idle_step, NULL, NULL, NULL, -1 };
	options.part_count = 1;
	options.waiting = LOOP_ADAPTIVE;
	options.spin_ns = 1;
	options.yield_ns = 1;
	options.core = -1;
	for (unsigned i = 0; i < 500; i++) {
		struct here here = { NULL, 0 };
		pthread_t thread;

		assert_int_equal(loop_create(&options, &here.loop), 0);
		assert_int_equal(pthread_create(&thread, NULL, run_here, &here), 0);
		if (i % 2) {
			while (!loop_sleeping(here.loop))
				sched_yield();
		}
		kvr_store_release(&here.stop, 1);
		loop_wake(here.loop);
		assert_int_equal(pthread_join(thread, NULL), 0);
		loop_destroy(&here.loop);
	}
}

struct lines {
	unsigned count;
	char last[256];
};

static void take_line(void *context, enum log_level level, const char *line)
{
	struct lines *lines = context;

	(void)level;
	lines->count++;
	strncpy(lines->last, line, sizeof(lines->last) - 1);
}

/* pitfalls M01: more threads than cores, or a core that is not ours: a warning, and the thread runs. */
static void a_core_that_cannot_be_had_is_a_warning(void **state)
{
	struct lines lines = { 0, "" };
	int cores[CORES_MAX];
	struct loop *loop;

	(void)state;
	assert_true(cores_allowed(cores, CORES_MAX) > 0);
	log_set_sink(take_line, &lines);
	loop = idle_loop(LOOP_BUSY, cores[0]);
	assert_int_equal(loop_core(loop), cores[0]);
	assert_int_equal(lines.count, 0);
	loop_destroy(&loop);
	loop = idle_loop(LOOP_BUSY, CORES_MAX - 1);
	assert_int_equal(loop_core(loop), -1);
	assert_int_equal(lines.count, 1);
	assert_string_equal(lines.last,
		"idle: core 1023 can't be had (Invalid argument), the thread runs unpinned: give cores of this "
		"process' cpuset");
	while (kvr_load_relaxed(&loop_counters(loop)->idle_turns) == 0)
		sched_yield();
	assert_string_equal(loop_name(loop), "idle");
	loop_destroy(&loop);
	log_set_sink(NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_wake_up_is_lost_between_loops_that_sleep_at_once),
		cmocka_unit_test(no_wake_up_is_lost_between_loops_that_spin_a_little),
		cmocka_unit_test(a_thread_that_is_no_loop_wakes_one),
		cmocka_unit_test(an_idle_loop_sleeps),
		cmocka_unit_test(stopping_ends_a_sleep),
		cmocka_unit_test(a_flag_and_a_wake_end_a_loop_that_runs_here),
		cmocka_unit_test(a_core_that_cannot_be_had_is_a_warning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
