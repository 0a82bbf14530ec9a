/* The L2 engine between a cache and simulated adapters: write-through, fetches, and what goes wrong. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "base/fault.h"
#include "base/random.h"
#include "tier/cache_internal.h"
#include "tier/l2_scene.h"

#define FETCHES 8u

/* ---- write-through ---- */

static void what_is_published_is_stored_and_comes_back(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 2, 1, &options);
	scene_put(&scene, 0, 10);
	assert_int_equal(cache_verify(scene.cache, false), 0);
	scene_rest(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 20);
	assert_int_equal(COUNTER(&scene, stored), 20);
	scene_empty_l1(&scene);
	assert_int_equal(scene_look(&scene, 0), CACHE_NONE);
	assert_int_equal(scene_fetch(&scene, 0, 10), 10);
	assert_int_equal(COUNTER(&scene, loaded), 20);
	scene_fini(&scene);
}

/* An object that is being written cannot be evicted, and its pin goes whatever becomes of it (pitfalls D07). */
static void objects_are_pinned_until_the_adapter_has_read_them(void **state)
{
	struct l2_options options = { 0 };
	struct cache_stats stats;
	struct scene scene;

	(void)state;
	scene_init(&scene, 16, 1, 1, &options);
	scene.faults.fail = 300000;
	scene.faults.delay_max_ns = 50 * KVR_MS;
	sim_adapter_set(scene.adapters[0], &scene.faults, false);
	scene_put(&scene, 0, 8);
	scene_turns(&scene, 1);
	cache_get_stats(scene.cache, &stats);
	assert_int_equal(stats.pins, 8);
	scene_empty_l1(&scene);
	cache_get_stats(scene.cache, &stats);
	assert_int_equal(stats.chunks, 8);
	scene_rest(&scene);
	cache_get_stats(scene.cache, &stats);
	assert_int_equal(stats.pins, 0);
	assert_true(COUNTER(&scene, store_retries) > 0);
	assert_int_equal(COUNTER(&scene, stored) + COUNTER(&scene, store_failed), 8);
	scene_fini(&scene);
}

static void a_full_queue_drops_stores_and_their_next_use_offers_them_again(void **state)
{
	struct l2_options options = { .store_queue = 4 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	scene_put(&scene, 0, 10);
	assert_int_equal(COUNTER(&scene, store_dropped), 6);
	scene_rest(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 4);
	for (uint32_t c = 0; c < 10; c++) {
		scene_offer(&scene, c, 0, scene_look(&scene, c), true);
		scene_rest(&scene);
	}
	assert_int_equal(sim_place_objects(scene.places[0]), 10);
	/* What is stored is not offered again. */
	scene_offer(&scene, 0, 0, scene_look(&scene, 0), true);
	assert_true(l2_idle(scene.l2));
	scene_fini(&scene);
}

static void pinned_bytes_are_limited(void **state)
{
	struct l2_options options = { .store_bytes_max = 3 * SCENE_OBJECT };
	struct scene scene;

	(void)state;
	scene_init(&scene, 8, 1, 1, &options);
	/* Twice as many as L1 has room for: storing never waits for L2. */
	scene_put(&scene, 0, 16);
	assert_int_equal(COUNTER(&scene, store_dropped), 13);
	scene_rest(&scene);
	scene_fini(&scene);
}

static void a_place_that_fails_is_left_alone_and_tried_again(void **state)
{
	struct l2_options options = { .store_attempts = 100 };
	struct scene scene;
	struct scene_call call;
	uint64_t retries;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	scene.faults.down = true;
	sim_adapter_set(scene.adapters[0], &scene.faults, false);
	scene_put(&scene, 0, 20);
	scene_turns(&scene, 2000); /* 20 ms: less than the first pause */
	retries = COUNTER(&scene, store_retries);
	assert_in_range(retries, 4, 24);
	assert_int_equal(scene_begin(&scene, &call, 100, 1, 0), 0);
	scene_turns(&scene, 20);
	assert_int_equal(call.done, 1);
	assert_int_equal(call.found, 0);
	scene.faults.down = false;
	sim_adapter_set(scene.adapters[0], &scene.faults, false);
	scene_rest(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 20);
	scene_fini(&scene);
}

/* Stores are dropped when it is full, reads go on (pitfalls H02). */
static void a_full_place_refuses_and_is_still_read(void **state)
{
	struct l2_options options = { .stores_max = 1 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	scene.faults.capacity_bytes = 5 * SCENE_OBJECT;
	sim_adapter_set(scene.adapters[0], &scene.faults, false);
	scene_put(&scene, 0, 8);
	scene_rest(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 5);
	assert_int_equal(COUNTER(&scene, store_failed), 3);
	scene_empty_l1(&scene);
	assert_int_equal(scene_fetch(&scene, 0, 8), 5);
	scene_fini(&scene);
}

static void on_second_use_only_what_is_used_again_is_stored(void **state)
{
	struct l2_options options = { .policy = L2_STORE_SECOND_USE };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	scene_put(&scene, 0, 4);
	scene_rest(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 0);
	scene_offer(&scene, 2, 0, scene_look(&scene, 2), true);
	scene_offer(&scene, 2, 0, scene_look(&scene, 2), true);
	scene_rest(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 1);
	assert_int_equal(COUNTER(&scene, stored), 1);
	scene_fini(&scene);
}

static void with_policy_none_nothing_is_stored(void **state)
{
	struct l2_options options = { .policy = L2_STORE_NONE };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	scene_put(&scene, 0, 4);
	scene_offer(&scene, 2, 0, scene_look(&scene, 2), true);
	assert_true(l2_idle(scene.l2));
	scene_fini(&scene);
}

static void what_is_stored_is_evicted_first_where_that_is_wanted(void **state)
{
	struct l2_options options = { .demote = true, .stores_max = 1 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 8, 1, 1, &options);
	scene.faults.fail = 0;
	scene_put(&scene, 0, 4);
	scene_rest(&scene);
	scene.faults.down = true;
	sim_adapter_set(scene.adapters[0], &scene.faults, false);
	scene_put(&scene, 10, 4);
	/* They are pinned as long as they wait; those that are stored give way, the last one first. */
	scene_put(&scene, 20, 2);
	assert_int_not_equal(scene_look(&scene, 0), CACHE_NONE);
	assert_int_equal(scene_look(&scene, 2), CACHE_NONE);
	assert_int_not_equal(scene_look(&scene, 10), CACHE_NONE);
	assert_int_equal(cache_verify(scene.cache, false), 0);
	scene_fini(&scene);
}

static void every_adapter_gets_its_copy(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 2, &options);
	scene_put(&scene, 0, 4);
	scene_rest(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 4);
	assert_int_equal(sim_place_objects(scene.places[1]), 4);
	scene_fini(&scene);
}

/* ---- fetches ---- */

static void the_first_hole_is_the_end(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;
	struct scene_call call;

	(void)state;
	scene_init(&scene, 64, 2, 1, &options);
	scene_put(&scene, 0, 5);
	scene_put(&scene, 6, 4);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	assert_int_equal(scene_begin(&scene, &call, 0, 10, 0), 0);
	scene_rest(&scene);
	assert_int_equal(call.found, 5);
	assert_true(call.early_known);
	assert_int_equal(call.early, 5);
	assert_int_equal(COUNTER(&scene, loaded), 10);
	scene_fini(&scene);
}

static void parts_that_are_in_l1_are_left_alone(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 2, 1, &options);
	scene_put(&scene, 0, 6);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	assert_true(scene_put_part(&scene, 1, 1));
	scene_put(&scene, 3, 1);
	assert_int_equal(scene_fetch(&scene, 0, 6), 6);
	assert_int_equal(COUNTER(&scene, loaded), 9);
	scene_fini(&scene);
}

static void each_chunk_comes_from_the_first_adapter_that_has_it(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;
	struct l2_stats stats;

	(void)state;
	scene_init(&scene, 64, 1, 2, &options);
	scene_put(&scene, 0, 8);
	scene_rest(&scene);
	/* The first one loses half of what it has. */
	scene.faults.capacity_bytes = 4 * SCENE_OBJECT;
	scene.faults.evicts = true;
	sim_adapter_set(scene.adapters[0], &scene.faults, false);
	scene_put(&scene, 20, 1);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	assert_int_equal(scene_fetch(&scene, 0, 8), 8);
	scene.adapters[1]->driver->get_stats(scene.adapters[1], &stats);
	assert_true(stats.loads >= 4 && stats.loads < 8);
	scene_fini(&scene);
}

/* What is not what was stored never gets into L1 (pitfalls H05), and the next adapter is tried. */
static void changed_bytes_are_a_miss_and_the_next_adapter_is_tried(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 2, 2, &options);
	scene_put(&scene, 0, 8);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	sim_place_rot(scene.places[0]);
	assert_int_equal(scene_fetch(&scene, 0, 8), 8);
	assert_int_equal(COUNTER(&scene, load_corrupt), 16);
	assert_int_equal(sim_place_objects(scene.places[0]), 0);
	scene_empty_l1(&scene);
	sim_place_rot(scene.places[1]);
	assert_int_equal(scene_fetch(&scene, 0, 8), 0);
	scene_fini(&scene);
}

/* Chunk 0 is to come from the slow first place and is rotten there, chunk 1 is rotten in the last one, which is quick: the hit is cut while
 * chunk 2 is sent in part. Chunk 0 is asked for again all the same, and the fetch ends (kvrail-sim --seed 1820000062 --servers 3). */
static void a_hit_cut_in_the_midst_of_a_chunk_keeps_no_earlier_one_from_coming(void **state)
{
	struct l2_options options = { .loads_max = 5 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 2, 2, &options);
	scene_put(&scene, 0, 3);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	sim_place_rot(scene.places[0]);
	assert_int_equal(scene_fetch(&scene, 1, 1), 1); /* from the other place: it is gone from the first */
	scene_empty_l1(&scene);
	sim_place_rot(scene.places[1]);
	/* Both parts of a chunk end in one turn. */
	scene.faults.delay_min_ns = scene.faults.delay_max_ns = 100 * KVR_US;
	sim_adapter_set(scene.adapters[1], &scene.faults, false);
	scene.faults.delay_min_ns = scene.faults.delay_max_ns = 10 * KVR_MS;
	sim_adapter_set(scene.adapters[0], &scene.faults, false);
	assert_int_equal(scene_fetch(&scene, 0, 3), 0);
	/* Of chunk 1 once in each place, of chunk 0 likewise, of chunk 2 what was sent. */
	assert_int_equal(COUNTER(&scene, load_corrupt), 2 * 2 + 2 * 2 + 1);
	scene_fini(&scene);
}

static void l1_without_room_shortens_the_hit(void **state)
{
	struct l2_options options = { 0 };
	uint32_t entries[16], count = 0;
	struct scene scene;

	(void)state;
	scene_init(&scene, 16, 1, 1, &options);
	scene_put(&scene, 0, 10);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	scene_put(&scene, 100, 12);
	scene_rest(&scene);
	for (uint32_t c = 100; c < 112; c++) {
		entries[count] = scene_look(&scene, c);
		cache_lock(scene.cache, entries[count++], 1);
	}
	assert_int_equal(scene_fetch(&scene, 0, 10), 4);
	assert_true(COUNTER(&scene, load_no_room) > 0);
	while (count > 0)
		cache_unlock(scene.cache, entries[--count], 1);
	scene_fini(&scene);
}

/* Memory of a load that nobody waits for stays staged until the adapter has done with it. */
static void a_canceled_fetch_gives_memory_back_only_when_its_loads_have_ended(void **state)
{
	struct l2_options options = { 0 };
	struct cache_stats stats;
	struct scene scene;
	struct scene_call call;

	(void)state;
	scene_init(&scene, 32, 1, 1, &options);
	scene_put(&scene, 0, 10);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	assert_int_equal(scene_begin(&scene, &call, 0, 10, 0), 0);
	while (COUNTER(&scene, loads_now) < 3)
		scene_turns(&scene, 1);
	scene.faults.stick = 1000000;
	scene_cancel(&call);
	cache_get_stats(scene.cache, &stats);
	assert_true(stats.staged > 0);
	assert_int_equal(call.done, 0);
	scene_rest(&scene);
	assert_int_equal(call.done, 1);
	cache_get_stats(scene.cache, &stats);
	assert_int_equal(stats.staged, 0);
	assert_int_equal(stats.locks, 0);
	assert_int_equal(COUNTER(&scene, loaded_late) + COUNTER(&scene, loaded) > 0, 1);
	scene_fini(&scene);
}

static void a_fetch_holds_what_it_has_brought_until_it_is_done(void **state)
{
	struct l2_options options = { .loads_max = 2 };
	struct scene scene;
	struct scene_call call;

	(void)state;
	scene_init(&scene, 16, 1, 1, &options);
	scene_put(&scene, 0, 12);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	assert_int_equal(scene_begin(&scene, &call, 0, 12, 0), 0);
	while (COUNTER(&scene, loaded) < 6)
		scene_turns(&scene, 1);
	/* A flood of stores takes the rest of L1. */
	for (uint32_t c = 200; c < 240; c++)
		(void)scene_put_part(&scene, c, 0);
	for (uint32_t c = 0; c < 5; c++)
		assert_true(scene_complete(&scene, c));
	scene_rest(&scene);
	assert_true(call.found >= 5);
	scene_fini(&scene);
}

/* Temporary residence: what was loaded is the next that is evicted, unless it is used again. */
static void what_was_loaded_may_be_the_first_to_go(void **state)
{
	struct l2_options options = { .temporary = true, .policy = L2_STORE_ALL };
	struct scene scene;
	uint32_t entry;

	(void)state;
	scene_init(&scene, 16, 2, 1, &options);
	scene_put(&scene, 0, 3);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	scene_put(&scene, 100, 5);
	scene_rest(&scene);
	assert_int_equal(scene_fetch(&scene, 0, 3), 3);
	/* The first chunk is used by somebody else: it stays. */
	entry = scene_look(&scene, 0);
	cache_lock(scene.cache, entry, 1);
	cache_unlock(scene.cache, entry, 1);
	scene_put(&scene, 200, 1);
	assert_int_equal(scene_look(&scene, 2), CACHE_NONE);
	assert_int_not_equal(scene_look(&scene, 1), CACHE_NONE);
	scene_put(&scene, 201, 1);
	assert_int_equal(scene_look(&scene, 1), CACHE_NONE);
	for (uint32_t c = 100; c < 105; c++)
		assert_true(scene_complete(&scene, c));
	assert_true(scene_complete(&scene, 0));
	assert_int_equal(cache_verify(scene.cache, false), 0);
	scene_fini(&scene);
}

static void loads_are_shared_fairly_between_tenants(void **state)
{
	struct l2_options options = { .loads_max = 4, .asks_max = 256 };
	struct scene_call calls[5];
	struct scene scene;

	(void)state;
	scene_init(&scene, 512, 1, 1, &options);
	for (uint32_t c = 0; c < 240; c += 8) {
		scene_put(&scene, c, 8);
		scene_rest(&scene);
	}
	scene_empty_l1(&scene);
	/* Tenant 1 asks for four long prefixes, tenant 2, later, for a short one. */
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(scene_begin(&scene, &calls[i], i * 50, 50, 1), 0);
	scene_turns(&scene, 20);
	assert_int_equal(scene_begin(&scene, &calls[4], 200, 30, 2), 0);
	while (!calls[4].done)
		scene_turns(&scene, 1);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(calls[i].done, 0);
	scene_rest(&scene);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(calls[i].found, 50);
	assert_int_equal(calls[4].found, 30);
	scene_fini(&scene);
}

static void too_many_fetches_are_refused(void **state)
{
	struct l2_options options = { .fetches_max = 2 };
	struct scene_call calls[3];
	struct scene scene;

	(void)state;
	scene_init(&scene, 16, 1, 1, &options);
	assert_int_equal(scene_begin(&scene, &calls[0], 0, 4, 0), 0);
	assert_int_equal(scene_begin(&scene, &calls[1], 0, 4, 0), 0);
	assert_int_equal(scene_begin(&scene, &calls[2], 0, 4, 0), -EAGAIN);
	assert_int_equal(COUNTER(&scene, fetches_refused), 1);
	scene_rest(&scene);
	scene.part_bytes[0] = 0;
	assert_int_equal(scene_begin(&scene, &calls[2], 0, 4, 0), -ENODATA);
	scene_fini(&scene);
}

static void an_engine_is_taken_apart_in_the_midst_of_everything(void **state)
{
	struct l2_options options = { 0 };
	struct scene_call calls[2];
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 2, 2, &options);
	scene_put(&scene, 0, 10);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	assert_int_equal(scene_begin(&scene, &calls[0], 0, 10, 0), 0);
	assert_int_equal(scene_begin(&scene, &calls[1], 0, 10, 1), 0);
	scene_put(&scene, 30, 5);
	scene_turns(&scene, 12);
	scene_cancel(&calls[1]);
	scene_fini(&scene);
}

#ifdef KVRAIL_FAULT_POINTS

/* Without memory there is no engine, and the adapters are still the caller's. */
static void an_engine_that_finds_no_memory_takes_nothing(void **state)
{
	static const char *const points[] = { "l2/struct", "l2/memory" };
	struct l2_options options = { 0 };
	struct l2_options again;
	struct scene scene;
	struct l2 *l2;

	(void)state;
	scene_init(&scene, 16, 1, 1, &options);
	again = scene.l2->options;
	for (unsigned i = 0; i < KVR_COUNT_OF(points); i++) {
		fault_arm_name(points[i], 1);
		assert_int_equal(l2_create(&again, &l2), -ENOMEM);
		assert_string_equal(fault_fired(), points[i]);
		assert_null(l2);
	}
	fault_arm(0);
	scene_put(&scene, 0, 1);
	scene_rest(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 1);
	scene_fini(&scene);
}

#endif

/* Everything at once, from seeds: no wrong byte, nothing left (pitfalls H01). */
static void storms_leave_nothing_behind(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct l2_options options = { .policy = seed % 3 ? L2_STORE_ALL : L2_STORE_SECOND_USE,
			.demote = seed % 2,
			.loads_max = 3 + seed % 9,
			.store_queue = 6,
			.backoff_ns = 200 * KVR_US };
		struct scene_call calls[FETCHES];
		struct random random;
		struct scene scene;

		random_init(&random, seed);
		scene_init(&scene, 24, 1 + seed % 3, 1 + seed % 2, &options);
		scene.faults = (struct sim_adapter_options){ .seed = seed,
			.delay_min_ns = 1,
			.delay_max_ns = 300000,
			.fail = 30000,
			.corrupt = 50000,
			.lose = 50000,
			.stick = 20000,
			.stick_ns = 3 * KVR_MS,
			.refuse = 200000,
			.capacity_bytes = 60 * SCENE_OBJECT,
			.evicts = true };
		for (uint32_t i = 0; i < 1 + seed % 2; i++)
			sim_adapter_set(scene.adapters[i], &scene.faults, false);
		memset(calls, 0, sizeof(calls));
		for (uint32_t i = 0; i < 4000; i++) {
			struct scene_call *call = &calls[random_below(&random, FETCHES)];
			uint32_t chunk = (uint32_t)random_below(&random, 30);
			uint64_t what = random_below(&random, 20);

			if (what < 4) {
				for (uint32_t part = 0; part < scene.parts; part++) {
					uint32_t entry = scene_look(&scene, chunk);

					if (entry == CACHE_NONE || !cache_object(scene.cache, entry, part))
						(void)scene_put_part(&scene, chunk, part);
					else
						scene_offer(&scene, chunk, part, entry, true);
				}
			} else if (what < 7 && (!call->fetch || call->done)) {
				if (scene_begin(&scene, call, chunk, 1 + (uint32_t)random_below(&random, 8), chunk % 3))
					call->fetch = NULL;
			} else if (what == 7 && call->fetch && !call->done && !call->canceled) {
				scene_cancel(call);
			}
			scene_turns(&scene, 1 + (uint32_t)random_below(&random, 3));
		}
		scene_rest(&scene);
		assert_true(COUNTER(&scene, loaded) > 0 && COUNTER(&scene, stored) > 0);
		for (uint32_t i = 0; i < FETCHES; i++)
			assert_true(!calls[i].fetch || calls[i].done == 1);
		scene_fini(&scene);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_published_is_stored_and_comes_back),
		cmocka_unit_test(objects_are_pinned_until_the_adapter_has_read_them),
		cmocka_unit_test(a_full_queue_drops_stores_and_their_next_use_offers_them_again),
		cmocka_unit_test(pinned_bytes_are_limited),
		cmocka_unit_test(a_place_that_fails_is_left_alone_and_tried_again),
		cmocka_unit_test(a_full_place_refuses_and_is_still_read),
		cmocka_unit_test(on_second_use_only_what_is_used_again_is_stored),
		cmocka_unit_test(with_policy_none_nothing_is_stored),
		cmocka_unit_test(what_is_stored_is_evicted_first_where_that_is_wanted),
		cmocka_unit_test(every_adapter_gets_its_copy),
		cmocka_unit_test(the_first_hole_is_the_end),
		cmocka_unit_test(parts_that_are_in_l1_are_left_alone),
		cmocka_unit_test(each_chunk_comes_from_the_first_adapter_that_has_it),
		cmocka_unit_test(changed_bytes_are_a_miss_and_the_next_adapter_is_tried),
		cmocka_unit_test(a_hit_cut_in_the_midst_of_a_chunk_keeps_no_earlier_one_from_coming),
		cmocka_unit_test(l1_without_room_shortens_the_hit),
		cmocka_unit_test(a_canceled_fetch_gives_memory_back_only_when_its_loads_have_ended),
		cmocka_unit_test(a_fetch_holds_what_it_has_brought_until_it_is_done),
		cmocka_unit_test(what_was_loaded_may_be_the_first_to_go),
		cmocka_unit_test(loads_are_shared_fairly_between_tenants),
		cmocka_unit_test(too_many_fetches_are_refused),
		cmocka_unit_test(an_engine_is_taken_apart_in_the_midst_of_everything),
#ifdef KVRAIL_FAULT_POINTS
		cmocka_unit_test(an_engine_that_finds_no_memory_takes_nothing),
#endif
		cmocka_unit_test(storms_leave_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
