/* Sick places: taken out, left alone, probed, taken in; others do not notice (pitfalls B08). */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "base/log.h"
#include "tier/l2_scene.h"

struct lines {
	uint32_t warnings, infos;
	char last[512];
};

static void keep_line(void *context, enum log_level level, const char *line)
{
	struct lines *lines = context;

	lines->warnings += level == LOG_WARN;
	lines->infos += level == LOG_INFO;
	strncpy(lines->last, line, sizeof(lines->last) - 1);
}

static struct l2_health health_of(struct scene *scene, uint32_t place)
{
	struct l2_health health;

	l2_get_health(scene->l2, place, &health);
	return health;
}

static void set_faults(struct scene *scene, uint32_t place, const struct sim_adapter_options *faults)
{
	sim_adapter_set(scene->adapters[place], faults, false);
}

/* At most so long, in turns of a millisecond. */
static bool comes_to(struct scene *scene, uint32_t place, enum l2_health_state state, uint64_t limit_ns)
{
	for (uint64_t end_ns = scene->now + limit_ns; scene->now < end_ns; scene->now += KVR_MS) {
		l2_step(scene->l2, scene->now);
		assert_int_equal(l2_verify(scene->l2), 0);
		if (health_of(scene, place).state == state)
			return true;
	}
	return false;
}

/* Lookups until one of them has made the place known as sick. */
static void provoke(struct scene *scene, uint32_t place)
{
	for (unsigned i = 0; i < 1000 && health_of(scene, place).state != L2_HEALTH_OUT; i++) {
		scene->now += 100 * KVR_MS;
		(void)scene_fetch(scene, 900 + i, 1);
	}
	assert_int_equal(health_of(scene, place).state, L2_HEALTH_OUT);
}

static void a_failing_place_is_taken_out_and_taken_in_again_while_others_serve(void **state)
{
	struct l2_options options = { .sick_after = 6 };
	struct sim_adapter_options down;
	struct lines lines = { 0 };
	struct l2_health health;
	struct l2_stats stats;
	struct scene scene;
	uint64_t asked;

	(void)state;
	scene_init(&scene, 64, 1, 2, &options);
	scene_put(&scene, 0, 10);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	log_set_sink(keep_line, &lines);
	down = scene.faults;
	down.down = true;
	set_faults(&scene, 0, &down);
	provoke(&scene, 0);
	scene_turns(&scene, 1);
	health = health_of(&scene, 0);
	assert_int_equal(health.error, -EIO);
	assert_int_equal(health.outages, 1);
	assert_int_equal(lines.warnings, 1);
	assert_non_null(strstr(lines.last, "sim: is taken out"));
	/* Not one question more: what the other one has is found, and what is stored goes there alone. */
	scene.adapters[0]->driver->get_stats(scene.adapters[0], &stats);
	asked = stats.errors;
	assert_int_equal(scene_fetch(&scene, 0, 10), 10);
	scene_put(&scene, 20, 5);
	scene_rest(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 10);
	assert_int_equal(sim_place_objects(scene.places[1]), 15);
	assert_int_equal(health_of(&scene, 0).dropped, 5);
	assert_int_equal(COUNTER(&scene, store_dropped_out), 5);
	assert_int_equal(COUNTER(&scene, store_dropped), 0);
	scene.adapters[0]->driver->get_stats(scene.adapters[0], &stats);
	assert_true(stats.errors <= asked + 3 * health_of(&scene, 0).probes);
	assert_int_equal(health_of(&scene, 1).state, L2_HEALTH_GOOD);
	/* What another place has is not offered again for its sake. */
	scene_offer(&scene, 20, 0, scene_look(&scene, 20), true);
	assert_true(l2_idle(scene.l2));
	/* Well again: without any request, by probes alone, which leave nothing. */
	set_faults(&scene, 0, &scene.faults);
	assert_true(comes_to(&scene, 0, L2_HEALTH_GOOD, 11 * KVR_SECOND));
	assert_true(comes_to(&scene, 0, L2_HEALTH_GOOD, KVR_SECOND));
	assert_int_equal(sim_place_objects(scene.places[0]), 10);
	assert_int_equal(health_of(&scene, 0).error, 0);
	scene.now += 2 * KVR_SECOND;
	scene_turns(&scene, 2);
	assert_int_equal(lines.infos, 1);
	assert_non_null(strstr(lines.last, "well again"));
	scene_put(&scene, 30, 1);
	scene_rest(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 11);
	log_set_sink(NULL, NULL);
	scene_fini(&scene);
}

/* Half to all of the pause, twice as long each time, up to the longest. */
static void probes_come_less_and_less_often_with_jitter(void **state)
{
	struct l2_options options = { .sick_after = 1, .backoff_ns = 100 * KVR_MS, .backoff_max_ns = KVR_SECOND };
	uint64_t pauses[2][8];

	(void)state;
	for (uint64_t seed = 0; seed < 2; seed++) {
		struct scene scene;
		uint64_t before = 0;

		options.seed = seed;
		scene_init(&scene, 16, 1, 1, &options);
		scene.faults.down = true;
		scene.faults.delay_min_ns = scene.faults.delay_max_ns = 1;
		set_faults(&scene, 0, &scene.faults);
		provoke(&scene, 0);
		before = health_of(&scene, 0).since_ns;
		for (unsigned i = 0; i < 8; i++) {
			uint64_t pause = kvr_min_u64(100 * KVR_MS << i, KVR_SECOND);

			while (health_of(&scene, 0).probes <= i) {
				assert_true(l2_next_ns(scene.l2, scene.now) < UINT64_MAX);
				l2_step(scene.l2, scene.now);
				scene.now += 100 * KVR_US;
			}
			pauses[seed][i] = scene.now - before;
			assert_in_range(pauses[seed][i], pause / 2, pause + KVR_MS);
			before = scene.now;
		}
		assert_int_equal(health_of(&scene, 0).state, L2_HEALTH_OUT);
		scene_fini(&scene);
	}
	assert_memory_not_equal(pauses[0], pauses[1], sizeof(pauses[0]));
}

/* It hangs: nothing ends. Lookups and stores are not in its way any more, and its memory is safe until it answers. */
static void a_place_that_does_not_answer_is_not_waited_for(void **state)
{
	struct l2_options options = { .timeout_ns = KVR_SECOND, .store_bytes_max = 8 * SCENE_OBJECT };
	struct sim_adapter_options stuck;
	struct cache_stats stats;
	struct scene_call call;
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 2, &options);
	scene_put(&scene, 0, 4);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	stuck = scene.faults;
	stuck.stick = 1000000;
	stuck.stick_ns = 60 * KVR_SECOND;
	assert_int_equal(scene_begin(&scene, &call, 0, 4, 0), 0);
	while (COUNTER(&scene, loads_now) == 0)
		scene_turns(&scene, 1);
	set_faults(&scene, 0, &stuck);
	scene_put(&scene, 10, 4);
	scene_turns(&scene, 10);
	assert_true(comes_to(&scene, 0, L2_HEALTH_OUT, 3 * KVR_SECOND));
	assert_int_equal(health_of(&scene, 0).error, -ETIMEDOUT);
	assert_true(health_of(&scene, 0).timeouts > 0);
	/* The fetch goes on at the second place. */
	for (unsigned i = 0; i < 1000 && !call.done; i++)
		scene_turns(&scene, 1);
	assert_int_equal(call.found, 4);
	assert_int_equal(scene_begin(&scene, &call, 50, 1, 0), 0);
	for (unsigned i = 0; i < 1000 && !call.done; i++)
		scene_turns(&scene, 1);
	assert_int_equal(call.done, 1);
	scene.now += 2 * KVR_SECOND;
	scene_turns(&scene, 10);
	/* What it took with it stays pinned, and takes no room from the other one's stores. */
	cache_get_stats(scene.cache, &stats);
	assert_true(stats.pins > 0);
	assert_true(health_of(&scene, 0).unanswered > 0);
	assert_true(l2_unanswered(scene.l2) > 0);
	scene_put(&scene, 20, 8);
	scene_turns(&scene, 20);
	assert_int_equal(COUNTER(&scene, store_dropped), 0);
	assert_int_equal(sim_place_objects(scene.places[1]), 16);
	assert_int_equal(health_of(&scene, 0).probes, 0);
	/* It answers at last. */
	set_faults(&scene, 0, &scene.faults);
	scene.now += 61 * KVR_SECOND;
	scene_rest(&scene);
	assert_true(comes_to(&scene, 0, L2_HEALTH_GOOD, 11 * KVR_SECOND));
	assert_int_equal(health_of(&scene, 0).unanswered, 0);
	assert_int_equal(l2_unanswered(scene.l2), 0);
	cache_get_stats(scene.cache, &stats);
	assert_int_equal(stats.pins, 0);
	assert_int_equal(stats.staged, 0);
	scene_fini(&scene);
}

/* A server that leaves does not wait for what will not come. */
static void leaving_does_not_wait_for_a_place_that_hangs(void **state)
{
	struct l2_options options = { .timeout_ns = KVR_SECOND };
	struct scene scene;

	(void)state;
	scene_init(&scene, 16, 1, 1, &options);
	scene.faults.stick = 1000000;
	scene.faults.stick_ns = 3600 * KVR_SECOND;
	set_faults(&scene, 0, &scene.faults);
	scene_put(&scene, 0, 3);
	scene_turns(&scene, 10);
	assert_true(comes_to(&scene, 0, L2_HEALTH_READ_ONLY, 3 * KVR_SECOND));
	assert_false(l2_idle(scene.l2));
	l2_hurry(scene.l2);
	assert_true(l2_idle(scene.l2));
	assert_int_equal(l2_verify(scene.l2), 0);
	scene_fini(&scene);
}

/* A full place is not sick, one whose bytes rot is not, and a lookup's own limit says nothing. */
static void what_is_no_illness_is_not_taken_for_one(void **state)
{
	struct l2_options options = { .sick_after = 1, .store_attempts = 1 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	scene_put(&scene, 0, 8);
	scene_rest(&scene);
	scene.faults.capacity_bytes = 1;
	set_faults(&scene, 0, &scene.faults);
	for (uint32_t c = 20; c < 30; c++) {
		scene_put(&scene, c, 1);
		scene_rest(&scene);
	}
	assert_int_equal(COUNTER(&scene, store_failed), 10);
	sim_place_rot(scene.places[0]);
	scene_empty_l1(&scene);
	assert_int_equal(scene_fetch(&scene, 0, 8), 0);
	assert_true(COUNTER(&scene, load_corrupt) > 1);
	assert_int_equal(health_of(&scene, 0).state, L2_HEALTH_GOOD);
	assert_int_equal(health_of(&scene, 0).outages, 0);
	scene_fini(&scene);
}

static int refuse_stores(struct l2_adapter *adapter, struct l2_request *request);

/* The simulated place, but for stores: read-only. */
static struct l2_adapter_driver read_only_driver;
static const struct l2_adapter_driver *real_driver;
static struct list_node refused;

static int refuse_stores(struct l2_adapter *adapter, struct l2_request *request)
{
	if (request->operation != L2_STORE)
		return real_driver->submit(adapter, request);
	request->status = -EROFS;
	list_add_last(&refused, &request->node);
	return 0;
}

static uint32_t poll_refused(struct l2_adapter *adapter, struct list_node *ended, uint32_t limit)
{
	uint32_t count = 0;

	while (!list_empty(&refused) && count < limit) {
		list_add_last(ended, list_pop_first(&refused));
		count++;
	}
	return count + real_driver->poll(adapter, ended, limit - count);
}

static void a_place_that_turns_read_only_is_still_read(void **state)
{
	struct l2_options options = { .sick_after = 2, .store_attempts = 2 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	scene_put(&scene, 0, 4);
	scene_rest(&scene);
	list_init(&refused);
	real_driver = scene.adapters[0]->driver;
	read_only_driver = *real_driver;
	read_only_driver.submit = refuse_stores;
	read_only_driver.poll = poll_refused;
	scene.adapters[0]->driver = &read_only_driver;
	scene_put(&scene, 10, 2);
	scene_rest(&scene);
	assert_true(comes_to(&scene, 0, L2_HEALTH_READ_ONLY, KVR_SECOND));
	assert_int_equal(health_of(&scene, 0).error, -EROFS);
	scene_empty_l1(&scene);
	assert_int_equal(scene_fetch(&scene, 0, 4), 4);
	scene.now += 20 * KVR_SECOND;
	scene_turns(&scene, 1000);
	assert_true(health_of(&scene, 0).probes > 0);
	assert_int_equal(health_of(&scene, 0).state, L2_HEALTH_READ_ONLY);
	scene.adapters[0]->driver = real_driver;
	assert_true(comes_to(&scene, 0, L2_HEALTH_GOOD, 21 * KVR_SECOND));
	scene_fini(&scene);
}

/* Only what its readers ask for: a place that is only read is not written by probes. */
static void with_policy_none_probes_write_nothing(void **state)
{
	struct l2_options options = { .policy = L2_STORE_NONE, .sick_after = 1 };
	struct l2_stats stats;
	struct scene scene;

	(void)state;
	scene_init(&scene, 16, 1, 1, &options);
	scene.faults.down = true;
	set_faults(&scene, 0, &scene.faults);
	provoke(&scene, 0);
	scene.faults.down = false;
	set_faults(&scene, 0, &scene.faults);
	assert_true(comes_to(&scene, 0, L2_HEALTH_GOOD, 11 * KVR_SECOND));
	scene.adapters[0]->driver->get_stats(scene.adapters[0], &stats);
	assert_int_equal(stats.stores, 0);
	scene_fini(&scene);
}

/* A place that is well for moments only goes on with the pauses that it had. */
static void a_place_that_flaps_is_tried_less_often(void **state)
{
	struct l2_options options = { .sick_after = 1, .backoff_ns = 10 * KVR_MS, .backoff_max_ns = KVR_SECOND };
	struct sim_adapter_options down;
	struct scene scene;

	(void)state;
	scene_init(&scene, 16, 1, 1, &options);
	down = scene.faults;
	down.down = true;
	for (unsigned round = 0; round < 2; round++) {
		set_faults(&scene, 0, &down);
		provoke(&scene, 0);
		if (round == 1)
			break;
		while (health_of(&scene, 0).probes < 5) {
			l2_step(scene.l2, scene.now);
			scene.now += 100 * KVR_US;
		}
		set_faults(&scene, 0, &scene.faults);
		assert_true(comes_to(&scene, 0, L2_HEALTH_GOOD, 2 * KVR_SECOND));
	}
	/* Four failed: half of 160 ms at least. */
	assert_true(health_of(&scene, 0).probe_ns >= health_of(&scene, 0).since_ns + 80 * KVR_MS);
	scene_fini(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failing_place_is_taken_out_and_taken_in_again_while_others_serve),
		cmocka_unit_test(probes_come_less_and_less_often_with_jitter),
		cmocka_unit_test(a_place_that_does_not_answer_is_not_waited_for),
		cmocka_unit_test(leaving_does_not_wait_for_a_place_that_hangs),
		cmocka_unit_test(what_is_no_illness_is_not_taken_for_one),
		cmocka_unit_test(a_place_that_turns_read_only_is_still_read),
		cmocka_unit_test(with_policy_none_probes_write_nothing),
		cmocka_unit_test(a_place_that_flaps_is_tried_less_often),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
