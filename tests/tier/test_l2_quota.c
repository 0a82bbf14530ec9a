/* Loads from L2 keep to their tenant's hard limit in L1. */
#include "tier/l2_scene.h"

#include "base/cmocka_all.h"

static void set_hard(struct scene *scene, uint64_t objects)
{
	struct cache_quota quota = { .hard_bytes = objects * SCENE_OBJECT };

	cache_set_quota(scene->cache, 0, &quota);
}

static uint64_t held(const struct scene *scene)
{
	struct cache_account_stats stats;

	cache_get_account(scene->cache, 0, &stats);
	return (stats.resident_bytes + stats.staged_bytes) / SCENE_OBJECT;
}

static void a_lookup_evicts_its_tenants_own_chunks_for_what_it_loads(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 32, 1, 1, &options);
	scene_put(&scene, 0, 10);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	scene_put(&scene, 100, 10);
	scene_rest(&scene);
	set_hard(&scene, 10);
	assert_int_equal(scene_fetch(&scene, 0, 10), 10);
	assert_int_equal(held(&scene), 10);
	assert_int_equal(cache_get_counters(scene.cache)->evicted_for_quota, 10);
	assert_int_equal(COUNTER(&scene, load_no_quota), 0);
	scene_fini(&scene);
}

static void a_tenant_far_above_its_limit_gets_there_in_turns(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 512, 1, 1, &options);
	scene_put(&scene, 0, 10);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	scene_put(&scene, 100, 400);
	scene_rest(&scene);
	set_hard(&scene, 10);
	assert_int_equal(held(&scene), 400);
	assert_int_equal(scene_fetch(&scene, 0, 10), 10);
	assert_int_equal(held(&scene), 10);
	scene_fini(&scene);
}

static void a_hard_limit_shortens_the_hit(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;
	struct cache_account_stats stats;
	uint32_t entries[6];

	(void)state;
	scene_init(&scene, 32, 1, 1, &options);
	scene_put(&scene, 0, 10);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	scene_put(&scene, 100, 6);
	scene_rest(&scene);
	for (uint32_t i = 0; i < 6; i++) {
		entries[i] = scene_look(&scene, 100 + i);
		cache_lock(scene.cache, entries[i], 1);
	}
	set_hard(&scene, 10);
	assert_int_equal(scene_fetch(&scene, 0, 10), 4);
	assert_int_equal(held(&scene), 10);
	assert_int_equal(COUNTER(&scene, load_no_quota), 1);
	cache_get_account(scene.cache, 0, &stats);
	assert_int_equal(stats.quota_refused, 1);
	for (uint32_t i = 0; i < 6; i++)
		cache_unlock(scene.cache, entries[i], 1);
	scene_fini(&scene);
}

/* The second part of a chunk has no room, and an earlier chunk has to come from another place: it comes, and the fetch ends. */
static void a_chunk_cut_short_in_its_midst_keeps_no_earlier_one_from_coming(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 32, 2, 2, &options);
	scene_put(&scene, 0, 8);
	scene_rest(&scene);
	scene_empty_l1(&scene);
	sim_place_rot(scene.places[0]);
	set_hard(&scene, 5);
	assert_int_equal(scene_fetch(&scene, 0, 8), 2);
	assert_true(held(&scene) <= 5);
	assert_true(COUNTER(&scene, load_corrupt) >= 4);
	scene_fini(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lookup_evicts_its_tenants_own_chunks_for_what_it_loads),
		cmocka_unit_test(a_tenant_far_above_its_limit_gets_there_in_turns),
		cmocka_unit_test(a_hard_limit_shortens_the_hit),
		cmocka_unit_test(a_chunk_cut_short_in_its_midst_keeps_no_earlier_one_from_coming),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
