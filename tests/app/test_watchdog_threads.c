/* pitfalls O04: a thread that makes no turns is found and named, one that sleeps is not. */
#include "app/kvraild/watchdog.h"
#include "base/atomic.h"
#include "base/log.h"

#include <sched.h>
#include <string.h>

#include "base/cmocka_all.h"

/* A part that hangs in its step while told to. */
struct hanging {
	int hang;
	int hangs;
};

static bool hanging_step(void *context, uint64_t now_ns)
{
	struct hanging *part = context;

	(void)now_ns;
	while (kvr_load_acquire(&part->hang)) {
		kvr_store_release(&part->hangs, 1);
		sched_yield();
	}
	kvr_store_release(&part->hangs, 0);
	return false;
}

static struct loop *hanging_loop(struct hanging *part, const char *name)
{
	struct loop_options options;
	struct loop *loop;

	memset(&options, 0, sizeof(options));
	strncpy(options.name, name, sizeof(options.name) - 1);
	options.parts[0] = (struct loop_part){ part, hanging_step, NULL, NULL, NULL, -1 };
	options.part_count = 1;
	options.waiting = LOOP_ADAPTIVE;
	options.spin_ns = 1;
	options.yield_ns = 1;
	options.core = -1;
	assert_int_equal(loop_create(&options, &loop), 0);
	assert_int_equal(loop_start(loop), 0);
	return loop;
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

/* Waits until the loop sleeps again after a turn that came after `turn_ns`. */
static void await_turn(const struct loop *loop, uint64_t turn_ns)
{
	while (kvr_load_relaxed(&loop_counters(loop)->turn_ns) == turn_ns || !loop_sleeping(loop))
		sched_yield();
}

static void a_thread_that_hangs_is_named_and_one_that_sleeps_is_not(void **state)
{
	struct hanging parts[2] = { { 0, 0 }, { 0, 0 } };
	struct loop *loops[2] = { hanging_loop(&parts[0], "sleeper"), hanging_loop(&parts[1], "hanger") };
	struct lines lines = { 0, "" };
	struct watchdog watchdog;
	uint64_t now_ns = 1000 * KVR_SECOND, for_ns = 0, turn_ns;

	(void)state;
	log_set_sink(take_line, &lines);
	await_turn(loops[0], 0);
	await_turn(loops[1], 0);
	watchdog_init(&watchdog, 5 * KVR_SECOND);
	watchdog_add(&watchdog, loops[0], now_ns);
	watchdog_add(&watchdog, loops[1], now_ns);
	kvr_store_release(&parts[1].hang, 1);
	loop_wake(loops[1]);
	while (!kvr_load_acquire(&parts[1].hangs))
		sched_yield();
	watchdog_step(&watchdog, now_ns);
	for (unsigned second = 1; second <= 7; second++) {
		turn_ns = kvr_load_relaxed(&loop_counters(loops[0])->turn_ns);
		now_ns += KVR_SECOND;
		watchdog_step(&watchdog, now_ns);
		/* The look woke it, and it makes its turn before the next one. */
		await_turn(loops[0], turn_ns);
		if (second < 5) {
			assert_null(watchdog_stalled(&watchdog, now_ns, &for_ns));
			assert_int_equal(lines.count, 0);
		}
	}
	assert_ptr_equal(watchdog_stalled(&watchdog, now_ns, &for_ns), loops[1]);
	assert_in_range(for_ns, 5 * KVR_SECOND, 7 * KVR_SECOND);
	assert_int_equal(lines.count, 1);
	assert_non_null(strstr(lines.last, "hanger: no turn for "));
	turn_ns = kvr_load_relaxed(&loop_counters(loops[1])->turn_ns);
	kvr_store_release(&parts[1].hang, 0);
	await_turn(loops[1], turn_ns);
	now_ns += KVR_SECOND;
	watchdog_step(&watchdog, now_ns);
	assert_null(watchdog_stalled(&watchdog, now_ns, &for_ns));
	assert_int_equal(lines.count, 2);
	assert_string_equal(lines.last, "hanger: makes turns again");
	log_set_sink(NULL, NULL);
	loop_destroy(&loops[0]);
	loop_destroy(&loops[1]);
}

static void looks_come_no_more_often_than_needed(void **state)
{
	struct hanging part = { 0, 0 };
	struct loop *loop = hanging_loop(&part, "idle");
	struct watchdog watchdog;

	(void)state;
	watchdog_init(&watchdog, 2 * KVR_SECOND);
	watchdog_add(&watchdog, loop, 1);
	watchdog_step(&watchdog, 1);
	assert_int_equal(watchdog.next_ns, 1 + KVR_SECOND / 2);
	watchdog_step(&watchdog, KVR_SECOND / 2);
	assert_int_equal(watchdog.next_ns, 1 + KVR_SECOND / 2);
	watchdog_step(&watchdog, 1 + KVR_SECOND / 2);
	assert_int_equal(watchdog.next_ns, 1 + KVR_SECOND);
	loop_destroy(&loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_that_hangs_is_named_and_one_that_sleeps_is_not),
		cmocka_unit_test(looks_come_no_more_often_than_needed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
