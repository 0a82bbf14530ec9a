/* Looking after pinned threads, with what is seen given by hand: when a thread counts as off its core, or as sharing it. */
#include "base/clock.h"
#include "base/log.h"
#include "poll/guard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cmocka_all.h"

struct lines {
	unsigned count;
	char last[512];
};

static void take_line(void *context, enum log_level level, const char *line)
{
	struct lines *lines = context;

	lines->count += level <= LOG_WARN;
	snprintf(lines->last, sizeof(lines->last), "%s", line);
}

static bool step_nothing(void *context, uint64_t now_ns)
{
	(void)context;
	(void)now_ns;
	return false;
}

static struct loop *make_loop(enum loop_waiting waiting, int core)
{
	struct loop_options options;
	struct loop *loop;

	memset(&options, 0, sizeof(options));
	snprintf(options.name, sizeof(options.name), "watched");
	options.parts[0] = (struct loop_part){ NULL, step_nothing, NULL, NULL, NULL, -1 };
	options.part_count = 1;
	options.waiting = waiting;
	options.core = core;
	assert_int_equal(loop_create(&options, &loop), 0);
	return loop;
}

struct scene {
	struct guard guard;
	struct guarded *guarded;
	struct loop *loop;
	struct lines lines;
	uint64_t now_ns, waited_ns;
};

static void begin(struct scene *scene, enum loop_waiting waiting, bool insist)
{
	memset(scene, 0, sizeof(*scene));
	scene->loop = make_loop(waiting, 3);
	scene->now_ns = 100 * KVR_SECOND;
	guard_init(&scene->guard, insist);
	assert_true(guard_add(&scene->guard, scene->loop, scene->now_ns));
	assert_int_equal(scene->guard.count, 1);
	scene->guarded = &scene->guard.guarded[0];
	scene->guarded->waited_ns = 0;
	log_set_sink(take_line, &scene->lines);
}

static void end(struct scene *scene)
{
	log_set_sink(NULL, NULL);
	loop_destroy(&scene->loop);
}

/* A second later, of which it waited for its core so much. */
static void look(struct scene *scene, int hold, uint64_t waited_ns)
{
	scene->now_ns += KVR_SECOND;
	scene->waited_ns += waited_ns;
	guard_look(&scene->guard, scene->guarded, hold, scene->waited_ns, scene->now_ns);
}

/* pitfalls M03 */
static void a_thread_whose_core_is_shared_for_two_looks_waits_adaptively(void **state)
{
	struct scene scene;

	(void)state;
	begin(&scene, LOOP_BUSY, false);
	look(&scene, 0, 60 * KVR_MS);
	look(&scene, 0, 40 * KVR_MS);
	look(&scene, 0, 400 * KVR_MS);
	assert_int_equal(scene.guarded->state, GUARD_GOOD);
	assert_int_equal(loop_waiting(scene.loop), LOOP_BUSY);
	assert_int_equal(scene.lines.count, 0);
	look(&scene, 0, 500 * KVR_MS);
	assert_int_equal(scene.guarded->state, GUARD_SHARED);
	assert_int_equal(loop_waiting(scene.loop), LOOP_ADAPTIVE);
	assert_int_equal(loop_wanted_waiting(scene.loop), LOOP_BUSY);
	assert_string_equal(scene.lines.last,
		"watched: something else runs on core 3 and had it for 50 % of the time, it waits adaptively, and it is looked at "
		"again in 60.0 s: keep others off (isolcpus, cpusets), or give other --cores");
	assert_int_equal(scene.guard.shared, 1);
	end(&scene);
}

static void it_spins_again_after_a_while_and_each_time_later(void **state)
{
	struct scene scene;
	unsigned first = 0, second = 0;

	(void)state;
	begin(&scene, LOOP_BUSY, false);
	look(&scene, 0, KVR_SECOND);
	look(&scene, 0, KVR_SECOND);
	for (; loop_waiting(scene.loop) == LOOP_ADAPTIVE; first++)
		look(&scene, 0, 0);
	assert_int_equal(first, GUARD_RETRY_NS / KVR_SECOND);
	look(&scene, 0, KVR_SECOND);
	look(&scene, 0, KVR_SECOND);
	assert_int_equal(scene.guard.shared, 2);
	for (; loop_waiting(scene.loop) == LOOP_ADAPTIVE; second++)
		look(&scene, 0, 0);
	assert_int_equal(second, 2 * first);
	scene.guarded->back_off_ns = GUARD_RETRY_MAX_NS;
	look(&scene, 0, KVR_SECOND);
	look(&scene, 0, KVR_SECOND);
	assert_true(scene.guarded->back_off_ns == GUARD_RETRY_MAX_NS);
	end(&scene);
}

/* pitfalls M01 */
static void a_thread_that_lost_its_core_waits_adaptively_until_it_has_it_again(void **state)
{
	struct scene scene;

	(void)state;
	begin(&scene, LOOP_BUSY, false);
	look(&scene, -EINVAL, 0);
	assert_int_equal(scene.guarded->state, GUARD_LOST);
	assert_string_equal(guard_state_text(scene.guarded->state), "lost");
	assert_int_equal(loop_waiting(scene.loop), LOOP_ADAPTIVE);
	assert_string_equal(scene.lines.last,
		"watched: core 3 is not this process' any more (Invalid argument), it waits adaptively: give it back, or start with "
		"--cores of the cpuset");
	look(&scene, -EINVAL, KVR_SECOND);
	assert_int_equal(scene.lines.count, 1);
	look(&scene, -ECANCELED, KVR_SECOND);
	assert_int_equal(scene.guarded->state, GUARD_GOOD);
	assert_int_equal(loop_waiting(scene.loop), LOOP_BUSY);
	assert_string_equal(scene.lines.last, "watched: is on core 3 again");
	assert_int_equal(scene.guard.lost, 1);
	look(&scene, -ECANCELED, 0);
	assert_int_equal(scene.guard.corrected, 1);
	assert_non_null(strstr(scene.lines.last, "was put back"));
	end(&scene);
}

static void who_insists_on_spinning_is_only_told(void **state)
{
	struct scene scene;

	(void)state;
	begin(&scene, LOOP_BUSY, true);
	look(&scene, 0, KVR_SECOND);
	look(&scene, 0, KVR_SECOND);
	assert_int_equal(scene.guarded->state, GUARD_SHARED);
	assert_int_equal(loop_waiting(scene.loop), LOOP_BUSY);
	assert_non_null(strstr(scene.lines.last, "it spins on, as --wait busy says"));
	end(&scene);
}

static void a_thread_that_sleeps_may_share_its_core(void **state)
{
	struct scene scene;

	(void)state;
	begin(&scene, LOOP_ADAPTIVE, false);
	for (unsigned i = 0; i < 5; i++)
		look(&scene, 0, KVR_SECOND);
	assert_int_equal(scene.guarded->state, GUARD_GOOD);
	assert_int_equal(scene.lines.count, 0);
	end(&scene);
}

/* Where the kernel counts nothing, and where a counter went back, nothing is concluded. */
static void what_is_not_known_is_no_reason(void **state)
{
	struct scene scene;

	(void)state;
	begin(&scene, LOOP_BUSY, false);
	for (unsigned i = 0; i < 3; i++) {
		scene.now_ns += KVR_SECOND;
		guard_look(&scene.guard, scene.guarded, 0, i == 1 ? 5 : UINT64_MAX, scene.now_ns);
	}
	guard_look(&scene.guard, scene.guarded, 0, 0, scene.now_ns);
	assert_int_equal(scene.guarded->state, GUARD_GOOD);
	end(&scene);
}

static void threads_without_a_core_are_not_looked_after(void **state)
{
	struct loop *loop = make_loop(LOOP_BUSY, -1);
	struct guard guard;

	(void)state;
	guard_init(&guard, false);
	assert_true(guard_add(&guard, loop, 0));
	assert_int_equal(guard.count, 0);
	guard_step(&guard, 1);
	loop_destroy(&loop);
	loop = make_loop(LOOP_BUSY, 0);
	for (unsigned i = 0; i < GUARD_LOOPS_MAX; i++)
		assert_true(guard_add(&guard, loop, 0));
	assert_false(guard_add(&guard, loop, 0));
	loop_destroy(&loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_whose_core_is_shared_for_two_looks_waits_adaptively),
		cmocka_unit_test(it_spins_again_after_a_while_and_each_time_later),
		cmocka_unit_test(a_thread_that_lost_its_core_waits_adaptively_until_it_has_it_again),
		cmocka_unit_test(who_insists_on_spinning_is_only_told),
		cmocka_unit_test(a_thread_that_sleeps_may_share_its_core),
		cmocka_unit_test(what_is_not_known_is_no_reason),
		cmocka_unit_test(threads_without_a_core_are_not_looked_after),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
