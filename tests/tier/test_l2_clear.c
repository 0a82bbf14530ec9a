/* CLEAR reaches the places, and nothing that was under way brings anything back. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "tier/l2_scene.h"

/* As the management core does it. Returns how many places failed. */
static uint32_t clear(struct scene *scene, const uint8_t (*keys)[32], uint32_t count)
{
	uint32_t failed = 99;

	assert_int_equal(l2_clear_begin(scene->l2), 0);
	assert_int_equal(l2_clear_begin(scene->l2), -EAGAIN);
	for (unsigned i = 0; i < 1000000 && !l2_clear_quiet(scene->l2); i++)
		scene_turns(scene, 1);
	assert_true(l2_clear_quiet(scene->l2));
	scene_empty_l1(scene);
	l2_clear_remove(scene->l2, keys, count);
	for (unsigned i = 0; i < 1000000 && !l2_clear_ended(scene->l2, &failed); i++)
		scene_turns(scene, 1);
	assert_int_not_equal(failed, 99);
	assert_false(l2_clear_ended(scene->l2, &failed));
	assert_int_equal(l2_verify(scene->l2), 0);
	return failed;
}

static void what_is_cleared_does_not_come_back(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 2, 2, &options);
	scene_put(&scene, 0, 10);
	scene_rest(&scene);
	assert_int_equal(clear(&scene, NULL, 0), 0);
	assert_int_equal(sim_place_objects(scene.places[0]) + sim_place_objects(scene.places[1]), 0);
	assert_int_equal(COUNTER(&scene, clears), 1);
	assert_int_equal(scene_fetch(&scene, 0, 10), 0);
	/* It is a cache again. */
	scene_put(&scene, 0, 3);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	assert_int_equal(scene_fetch(&scene, 0, 10), 3);
	scene_fini(&scene);
}

/* In the midst of loads and stores, at every moment of them. */
static void what_is_under_way_does_not_bring_it_back(void **state)
{
	(void)state;
	for (uint32_t moment = 0; moment < 60; moment++) {
		struct l2_options options = { .loads_max = 4 };
		struct scene_call call;
		struct cache_stats stats;
		struct scene scene;

		scene_init(&scene, 64, 1, 2, &options);
		scene_put(&scene, 0, 12);
		scene_rest(&scene);
		scene_empty_l1(&scene);
		assert_int_equal(scene_begin(&scene, &call, 0, 12, 0), 0);
		scene_put(&scene, 20, 8);
		scene_turns(&scene, moment);
		assert_int_equal(clear(&scene, NULL, 0), 0);
		scene_rest(&scene);
		assert_int_equal(call.done, 1);
		scene_empty_l1(&scene); /* what the fetch's own locks kept, as CLEAR says */
		cache_get_stats(scene.cache, &stats);
		assert_int_equal(stats.chunks, 0);
		assert_int_equal(sim_place_objects(scene.places[0]) + sim_place_objects(scene.places[1]), 0);
		assert_int_equal(scene_fetch(&scene, 0, 12), 0);
		scene_fini(&scene);
	}
}

static void only_the_models_that_are_named_go(void **state)
{
	struct l2_options options = { 0 };
	uint8_t keys[2][32] = { { 7 }, { 8 } };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	scene_put(&scene, 0, 5);
	scene_rest(&scene);
	assert_int_equal(clear(&scene, keys, 2), 0);
	assert_int_equal(sim_place_objects(scene.places[0]), 5);
	assert_int_equal(scene_fetch(&scene, 0, 5), 5);
	keys[1][0] = 9;
	scene_empty_l1(&scene);
	assert_int_equal(clear(&scene, keys, 2), 0);
	assert_int_equal(sim_place_objects(scene.places[0]), 0);
	/* No model at all: nothing is to be removed. */
	scene_put(&scene, 0, 1);
	scene_rest(&scene);
	assert_int_equal(clear(&scene, keys, 0), 0);
	assert_int_equal(sim_place_objects(scene.places[0]), 1);
	scene_fini(&scene);
}

/* One that does not work, or hangs, is named, and the others are cleared. */
static void a_place_that_cannot_be_cleared_is_told(void **state)
{
	struct l2_options options = { .timeout_ns = KVR_SECOND };
	struct sim_adapter_options faults;
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 2, &options);
	scene_put(&scene, 0, 5);
	scene_rest(&scene);
	faults = scene.faults;
	faults.down = true;
	sim_adapter_set(scene.adapters[0], &faults, false);
	assert_int_equal(clear(&scene, NULL, 0), 1);
	assert_int_equal(COUNTER(&scene, clear_failed), 1);
	assert_int_equal(sim_place_objects(scene.places[0]), 5);
	assert_int_equal(sim_place_objects(scene.places[1]), 0);
	faults.down = false;
	faults.stick = 1000000;
	faults.stick_ns = 3600 * KVR_SECOND;
	sim_adapter_set(scene.adapters[0], &faults, false);
	scene_put(&scene, 20, 1);
	scene_turns(&scene, 20);
	assert_int_equal(clear(&scene, NULL, 0), 1);
	sim_adapter_set(scene.adapters[0], &scene.faults, true);
	scene.now += KVR_SECOND;
	scene_rest(&scene);
	assert_int_equal(clear(&scene, NULL, 0), 0);
	scene_fini(&scene);
}

/* A mount that hangs in the midst of removing: L2 is a cache again without it, and with it when it is back. */
static void a_place_that_never_ends_a_clear_holds_up_nobody_for_ever(void **state)
{
	struct l2_options options = { .timeout_ns = KVR_SECOND };
	const uint8_t keys[1][32] = { { 9 } };
	struct sim_adapter_options faults;
	struct l2_health health;
	struct scene scene;
	uint32_t failed;

	(void)state;
	scene_init(&scene, 64, 1, 2, &options);
	scene_put(&scene, 0, 5);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	faults = scene.faults;
	faults.stick = 1000000;
	faults.stick_ns = 3600 * KVR_SECOND;
	sim_adapter_set(scene.adapters[0], &faults, false);
	assert_int_equal(l2_clear_begin(scene.l2), 0);
	assert_true(l2_clear_quiet(scene.l2));
	l2_clear_remove(scene.l2, keys, 1);
	scene_turns(&scene, 10);
	scene.now += 29 * KVR_SECOND;
	scene_turns(&scene, 10);
	assert_false(l2_clear_ended(scene.l2, &failed)); /* removing may take long */
	scene.now += 2 * KVR_SECOND;
	scene_turns(&scene, 10);
	assert_true(l2_clear_ended(scene.l2, &failed));
	assert_int_equal(failed, 1);
	l2_get_health(scene.l2, 0, &health);
	assert_int_equal(health.state, L2_HEALTH_OUT);
	scene_put(&scene, 20, 3);
	scene_turns(&scene, 1000);
	assert_int_equal(sim_place_objects(scene.places[1]), 3);
	scene_empty_l1(&scene);
	assert_int_equal(scene_fetch(&scene, 20, 3), 3);
	/* Another one, while the first has still not ended there. */
	assert_int_equal(clear(&scene, keys, 1), 1);
	assert_int_equal(sim_place_objects(scene.places[1]), 0);
	sim_adapter_set(scene.adapters[0], &scene.faults, true);
	for (unsigned i = 0; i < 100; i++) {
		scene.now += KVR_SECOND;
		scene_turns(&scene, 100);
	}
	l2_get_health(scene.l2, 0, &health);
	assert_int_equal(health.state, L2_HEALTH_GOOD);
	assert_int_equal(clear(&scene, NULL, 0), 0);
	assert_int_equal(sim_place_misuses(scene.places[0]), 0);
	scene_fini(&scene);
}

static void while_it_is_cleared_nothing_is_asked_or_stored(void **state)
{
	struct l2_options options = { 0 };
	struct scene_call call;
	struct scene scene;
	uint32_t failed;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	scene_put(&scene, 0, 5);
	scene_rest(&scene);
	assert_int_equal(l2_clear_begin(scene.l2), 0);
	assert_int_equal(scene_begin(&scene, &call, 0, 5, 0), -EAGAIN);
	scene_put(&scene, 10, 1);
	assert_int_equal(l2_get_counters(scene.l2)->stores_waiting, 0);
	l2_clear_remove(scene.l2, NULL, 0);
	while (!l2_clear_ended(scene.l2, &failed))
		scene_turns(&scene, 1);
	assert_int_equal(sim_place_objects(scene.places[0]), 0);
	/* It was remembered, and is stored when it is used. */
	scene_offer(&scene, 10, 0, scene_look(&scene, 10), true);
	scene_rest(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 1);
	scene_fini(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_cleared_does_not_come_back),
		cmocka_unit_test(what_is_under_way_does_not_bring_it_back),
		cmocka_unit_test(only_the_models_that_are_named_go),
		cmocka_unit_test(a_place_that_cannot_be_cleared_is_told),
		cmocka_unit_test(a_place_that_never_ends_a_clear_holds_up_nobody_for_ever),
		cmocka_unit_test(while_it_is_cleared_nothing_is_asked_or_stored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
