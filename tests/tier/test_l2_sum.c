/* Checksums that are made when an object comes from a client, and what they are good for: bytes that change in L1. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "base/fault.h"
#include "tier/checksum.h"
#include "tier/l2_scene.h"

static struct l2_options with_sums(enum l2_policy policy)
{
	return (struct l2_options){ .policy = policy, .sum_arrivals = true };
}

static l1_ref object_of(struct scene *scene, uint32_t chunk)
{
	uint32_t entry = scene_look(scene, chunk);

	assert_int_not_equal(entry, CACHE_NONE);
	return cache_object(scene->cache, entry, 0);
}

/* A bit of the object in L1; not in a word that scene_look compares. */
static void change_byte(struct scene *scene, uint32_t chunk)
{
	uint8_t *bytes = l1_address(scene->l1, object_of(scene, chunk));

	bytes[13] ^= 4;
}

/* pitfalls H05: damage before it is written is not made good by a checksum of the damaged bytes. */
static void bytes_that_changed_in_l1_are_neither_written_nor_kept(void **state)
{
	struct l2_options options = with_sums(L2_STORE_SECOND_USE);
	struct scene scene;

	(void)state;
	if (!checksum_available())
		skip();
	scene_init(&scene, 16, 1, 1, &options);
	scene_put(&scene, 0, 4);
	scene_rest(&scene);
	assert_int_equal(COUNTER(&scene, summed), 4);
	change_byte(&scene, 2);
	for (uint32_t c = 0; c < 4; c++)
		scene_offer(&scene, c, 0, scene_look(&scene, c), true);
	scene_rest(&scene);
	assert_int_equal(COUNTER(&scene, l1_corrupt), 1);
	assert_int_equal(COUNTER(&scene, stored), 3);
	assert_int_equal(sim_place_objects(scene.places[0]), 3);
	for (uint32_t c = 0; c < 4; c++)
		assert_true((scene_look(&scene, c) == CACHE_NONE) == (c == 2));
	scene_empty_l1(&scene);
	assert_int_equal(scene_fetch(&scene, 0, 4), 2);
	/* It comes anew, and is whole. */
	scene_put(&scene, 2, 1);
	scene_offer(&scene, 2, 0, scene_look(&scene, 2), true);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	assert_int_equal(scene_fetch(&scene, 0, 4), 4);
	scene_fini(&scene);
}

static void what_is_held_goes_when_nobody_holds_it_any_more(void **state)
{
	struct l2_options options = with_sums(L2_STORE_SECOND_USE);
	struct scene scene;
	uint32_t entry;

	(void)state;
	if (!checksum_available())
		skip();
	scene_init(&scene, 4, 1, 2, &options);
	scene_put(&scene, 0, 4);
	scene_rest(&scene);
	change_byte(&scene, 1);
	entry = scene_look(&scene, 1);
	cache_lock(scene.cache, entry, 1);
	/* Both places find it; it is counted once. */
	scene_offer(&scene, 1, 0, entry, true);
	scene_rest(&scene);
	assert_int_equal(COUNTER(&scene, l1_corrupt), 1);
	assert_int_equal(scene_look(&scene, 1), entry);
	scene_offer(&scene, 1, 0, entry, true);
	scene_rest(&scene);
	assert_int_equal(COUNTER(&scene, stored), 0);
	cache_unlock(scene.cache, entry, 1);
	scene_put(&scene, 9, 1);
	assert_int_equal(scene_look(&scene, 1), CACHE_NONE);
	assert_int_not_equal(scene_look(&scene, 0), CACHE_NONE);
	scene_rest(&scene);
	scene_fini(&scene);
}

static void a_store_waits_for_the_checksum_of_its_object(void **state)
{
	struct l2_options options = with_sums(L2_STORE_ALL);
	struct scene scene;

	(void)state;
	if (!checksum_available())
		skip();
	scene_init(&scene, 16, 1, 1, &options);
	scene_put(&scene, 0, 8);
	/* Without a thread one is made in each turn. */
	scene_turns(&scene, 1);
	assert_int_equal(COUNTER(&scene, summed), 1);
	assert_int_equal(COUNTER(&scene, stores_waiting), 7);
	scene_rest(&scene);
	assert_int_equal(COUNTER(&scene, summed), 8);
	assert_int_equal(COUNTER(&scene, stored), 8);
	scene_empty_l1(&scene);
	memset(scene.l2->sums, 7, l1_slot_count(scene.l1) * sizeof(*scene.l2->sums));
	assert_int_equal(scene_fetch(&scene, 0, 8), 8);
	/* What a load has compared is the checksum that the object keeps. */
	for (uint32_t c = 0; c < 8; c++) {
		l1_ref object = object_of(&scene, c);

		assert_int_equal(
			l2_sum_of(scene.l2, object), checksum_bytes(l1_address(scene.l1, object), SCENE_OBJECT));
	}
	scene_fini(&scene);
}

static void objects_that_come_too_fast_go_without(void **state)
{
	struct l2_options options = with_sums(L2_STORE_ALL);
	struct scene scene;

	(void)state;
	if (!checksum_available())
		skip();
	options.sum_queue = 2;
	scene_init(&scene, 16, 1, 1, &options);
	scene_put(&scene, 0, 8);
	scene_rest(&scene);
	assert_int_equal(COUNTER(&scene, summed), 2);
	assert_int_equal(COUNTER(&scene, sum_skipped), 6);
	assert_int_equal(COUNTER(&scene, stored), 8);
	scene_empty_l1(&scene);
	assert_int_equal(scene_fetch(&scene, 0, 8), 8);
	/* Nor is one without a checksum taken for what lay in its place before. */
	scene_empty_l1(&scene);
	scene_put(&scene, 100, 16);
	scene_rest(&scene);
	assert_int_equal(COUNTER(&scene, stored), 24);
	assert_int_equal(COUNTER(&scene, l1_corrupt), 0);
	scene_fini(&scene);
}

/* The queue of the place is full: they are not written, and their bytes are not read. */
static void what_no_place_takes_costs_no_checksum(void **state)
{
	struct l2_options options = with_sums(L2_STORE_ALL);
	struct scene scene;

	(void)state;
	if (!checksum_available())
		skip();
	options.store_queue = 3;
	scene_init(&scene, 16, 1, 1, &options);
	scene_put(&scene, 0, 8);
	scene_rest(&scene);
	assert_int_equal(COUNTER(&scene, store_dropped), 5);
	assert_int_equal(COUNTER(&scene, summed), 3);
	assert_int_equal(COUNTER(&scene, sum_skipped), 0);
	scene_offer(&scene, 7, 0, scene_look(&scene, 7), true);
	scene_rest(&scene);
	assert_int_equal(COUNTER(&scene, stored), 4);
	assert_int_equal(COUNTER(&scene, summed), 3);
	scene_fini(&scene);
}

/* CLEAR drops what nobody holds: it waits for those that a checksum is made of. */
static void clearing_waits_for_checksums_that_are_being_made(void **state)
{
	struct l2_options options = with_sums(L2_STORE_SECOND_USE);
	struct scene scene;
	uint32_t failed;

	(void)state;
	if (!checksum_available())
		skip();
	scene_init(&scene, 16, 1, 1, &options);
	scene_put(&scene, 0, 3);
	assert_int_equal(l2_clear_begin(scene.l2), 0);
	assert_false(l2_clear_quiet(scene.l2));
	for (uint32_t i = 0; i < 100 && !l2_clear_quiet(scene.l2); i++)
		scene_turns(&scene, 1);
	assert_true(l2_clear_quiet(scene.l2));
	scene_empty_l1(&scene);
	for (uint32_t c = 0; c < 3; c++)
		assert_int_equal(scene_look(&scene, c), CACHE_NONE);
	l2_clear_remove(scene.l2, NULL, 0);
	for (uint32_t i = 0; i < 1000 && !l2_clear_ended(scene.l2, &failed); i++)
		scene_turns(&scene, 1);
	scene_rest(&scene);
	scene_fini(&scene);
}

static void an_engine_that_ends_has_let_go_of_what_waited(void **state)
{
	struct l2_options options = with_sums(L2_STORE_SECOND_USE);
	struct scene scene;

	(void)state;
	if (!checksum_available())
		skip();
	for (unsigned threads = 0; threads < 2; threads++) {
		options.sum_threads = threads;
		options.adapters[0] = NULL;
		scene_init(&scene, 16, 1, 1, &options);
		scene_put(&scene, 0, 8);
		scene_fini(&scene); /* which looks whether anything is held */
	}
}

static void missing_memory_is_told(void **state)
{
	struct l2_options options;
	struct scene scene;
	struct l2 *l2;

	(void)state;
	if (!checksum_available())
		skip();
	options = with_sums(L2_STORE_ALL);
	scene_init(&scene, 4, 1, 1, &options);
	options = scene.l2->options;
	fault_arm_name("l2_sum/table", 1);
	assert_int_equal(l2_create(&options, &l2), -ENOMEM);
	assert_null(l2);
	fault_arm(0);
	scene_fini(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_that_changed_in_l1_are_neither_written_nor_kept),
		cmocka_unit_test(what_is_held_goes_when_nobody_holds_it_any_more),
		cmocka_unit_test(a_store_waits_for_the_checksum_of_its_object),
		cmocka_unit_test(objects_that_come_too_fast_go_without),
		cmocka_unit_test(what_no_place_takes_costs_no_checksum),
		cmocka_unit_test(clearing_waits_for_checksums_that_are_being_made),
		cmocka_unit_test(an_engine_that_ends_has_let_go_of_what_waited),
		cmocka_unit_test(missing_memory_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
