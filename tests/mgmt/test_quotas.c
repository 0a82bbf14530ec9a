/* What tenants may hold in L1: whose chunks make room, what a STORE is told, and limits that change while all runs. */
#include "mgmt/harness.h"

#include <stdlib.h>
#include <string.h>

#define RED 1u
#define BLUE 2u
#define OBJECTS(count) ((uint64_t)(count)*OBJECT_BYTES)

static const struct model_of red_model = { "m", "bfloat16", RED, 1, 1 };
static const struct model_of blue_model = { "m", "bfloat16", BLUE, 1, 1 };

struct scene {
	struct world world;
	struct handle *red, *blue;
	struct chain chain;
};

/* soft, hard: of the tenant red, in objects. */
static void scene_init(struct scene *scene, uint32_t slots, uint64_t soft, uint64_t hard)
{
	struct tenant_quota quotas[WORLD_TENANTS];

	memset(quotas, 0, sizeof(quotas));
	quotas[RED].own = true;
	quotas[RED].quota.soft_bytes = OBJECTS(soft);
	quotas[RED].quota.hard_bytes = OBJECTS(hard);
	world_init(&scene->world, &(struct world_options){ .slots = slots, .quotas = quotas });
	scene->red = handle_make(client_join(&scene->world, RED), &red_model, 0, 0, OBJECT_BYTES);
	scene->blue = handle_make(client_join(&scene->world, BLUE), &blue_model, 0, 0, OBJECT_BYTES);
	scene->chain = chain_named(1);
}

static uint64_t held(const struct scene *scene, uint32_t tenant)
{
	struct cache_account_stats stats;

	cache_get_account(scene->world.cache, tenant, &stats);
	return (stats.resident_bytes + stats.staged_bytes) / OBJECT_BYTES;
}

/* The n-th chain of `count` chunks, stored and let go of. */
static uint32_t store(struct scene *scene, struct handle *handle, uint64_t chain, uint32_t count, uint16_t status)
{
	struct chain named = chain_named(100 + chain);
	uint32_t stored = do_store(handle, "store", &named, 0, count, status);

	do_end(handle, "store");
	world_verify(&scene->world);
	return stored;
}

static uint32_t hits(struct handle *handle, uint64_t chain, uint32_t count)
{
	struct chain named = chain_named(100 + chain);
	uint32_t hit = do_lookup(handle, "probe", &named, count, STATUS_OK);

	do_end(handle, "probe");
	return hit;
}

static void set_quota(struct scene *scene, struct quota_job *job)
{
	struct ring_message message = { .kind = MANAGEMENT_QUOTA, .word = { (uint64_t)(uintptr_t)job } };
	unsigned before = scene->world.quota_done;

	assert_true(ring_push(management_inbox(scene->world.management), &message));
	world_run(&scene->world);
	assert_int_equal(scene->world.quota_done, before + 1);
}

static void beyond_its_hard_limit_a_tenant_evicts_its_own_chunks_and_nobody_elses(void **state)
{
	struct scene scene;

	(void)state;
	scene_init(&scene, 32, 0, 8);
	/* Blue's are the oldest of all. */
	assert_int_equal(store(&scene, scene.blue, 0, 8, STATUS_OK), 8);
	for (uint64_t n = 1; n < 6; n++) {
		assert_int_equal(store(&scene, scene.red, n, 8, STATUS_OK), 8);
		assert_int_equal(held(&scene, RED), 8);
		assert_int_equal(hits(scene.red, n, 8), 8);
		assert_int_equal(hits(scene.red, n - 1, 8), 0);
	}
	assert_int_equal(hits(scene.blue, 0, 8), 8);
	assert_int_equal(cache_get_counters(scene.world.cache)->evicted_for_quota, 32);
	/* Also when L1 is full: it is red's place that red gets. */
	assert_int_equal(store(&scene, scene.blue, 10, 16, STATUS_OK), 16);
	assert_int_equal(store(&scene, scene.red, 6, 8, STATUS_OK), 8);
	assert_int_equal(hits(scene.blue, 0, 8), 8);
	assert_int_equal(hits(scene.blue, 10, 16), 16);
	world_fini(&scene.world);
}

static void a_store_that_cannot_fit_the_quota_is_refused_whole_and_evicts_nothing(void **state)
{
	struct scene scene;
	struct ask *ask;
	struct chain more;

	(void)state;
	scene_init(&scene, 32, 0, 8);
	assert_int_equal(store(&scene, scene.red, 0, 8, STATUS_OK), 8);
	more = chain_named(200);
	ask = ask_transfer(scene.red, WIRE_STORE, "big", &more, 0, 9);
	world_run(&scene.world);
	assert_non_null(strstr(ask->request.reply.text, "may hold 524288 bytes of L1"));
	ask_expect(ask, STATUS_NO_QUOTA);
	assert_int_equal(hits(scene.red, 0, 8), 8);
	assert_int_equal(cache_get_counters(scene.world.cache)->evicted_chunks, 0);
	assert_int_equal(COUNTER(&scene.world, store_no_quota_total), 9);
	assert_int_equal(COUNTER(&scene.world, store_no_memory_total), 0);
	world_fini(&scene.world);
}

static void chunks_in_use_make_no_room_and_each_chunk_is_told_apart(void **state)
{
	struct scene scene;
	struct chain chain = chain_named(100);
	struct ask *ask;

	(void)state;
	scene_init(&scene, 32, 0, 8);
	assert_int_equal(do_store(scene.red, "s", &chain, 0, 8, STATUS_OK), 8);
	assert_int_equal(do_lookup(scene.red, "s", NULL, 0, STATUS_OK), 8);
	ask = ask_transfer(scene.red, WIRE_STORE, "t", &chain, 0, 10);
	world_run(&scene.world);
	assert_int_equal(ask->outcomes[7], CHUNK_PRESENT);
	assert_int_equal(ask->outcomes[8], CHUNK_NO_QUOTA);
	assert_int_equal(ask->outcomes[9], CHUNK_NO_QUOTA);
	assert_int_equal(ask_expect(ask, STATUS_PARTIAL), 8);
	/* Nobody else is kept from anything. */
	assert_int_equal(store(&scene, scene.blue, 50, 24, STATUS_OK), 24);
	do_end(scene.red, "s");
	do_end(scene.red, "t");
	assert_int_equal(store(&scene, scene.red, 3, 8, STATUS_OK), 8);
	world_fini(&scene.world);
}

static void stores_under_way_count(void **state)
{
	struct scene scene;
	struct chain chain = chain_named(100), other = chain_named(101);
	struct ask *first, *second;

	(void)state;
	scene_init(&scene, 32, 0, 8);
	scene.world.hold = true;
	first = ask_transfer(scene.red, WIRE_STORE, "a", &chain, 0, 5);
	second = ask_transfer(scene.red, WIRE_STORE, "b", &other, 0, 5);
	world_run(&scene.world);
	assert_int_equal(held(&scene, RED), 5);
	ask_expect(second, STATUS_NO_QUOTA);
	ask_finish(first, CHUNK_FAILED);
	scene.world.hold = false;
	world_run(&scene.world);
	ask_expect(first, STATUS_PARTIAL);
	/* What did not arrive is given back. */
	assert_int_equal(held(&scene, RED), 0);
	assert_int_equal(do_store(scene.red, "b", &other, 0, 8, STATUS_OK), 8);
	do_end(scene.red, "a");
	do_end(scene.red, "b");
	world_fini(&scene.world);
}

static void above_its_soft_limit_a_tenants_chunks_go_first(void **state)
{
	struct scene scene;

	(void)state;
	scene_init(&scene, 16, 4, 0);
	assert_int_equal(store(&scene, scene.blue, 0, 8, STATUS_OK), 8);
	/* As long as there is room nothing happens. */
	assert_int_equal(store(&scene, scene.red, 1, 8, STATUS_OK), 8);
	assert_int_equal(held(&scene, RED), 8);
	/* Blue's are older, and stay until red is down at its limit. */
	assert_int_equal(store(&scene, scene.blue, 2, 4, STATUS_OK), 4);
	assert_int_equal(held(&scene, RED), 4);
	assert_int_equal(hits(scene.red, 1, 8), 4);
	assert_int_equal(hits(scene.blue, 0, 8), 8);
	assert_int_equal(cache_get_counters(scene.world.cache)->evicted_above_soft, 4);
	/* Within their limits all are alike: what was not used for longest goes. */
	assert_int_equal(store(&scene, scene.blue, 3, 4, STATUS_OK), 4);
	assert_int_equal(held(&scene, RED), 4);
	assert_int_equal(held(&scene, BLUE), 12);
	assert_int_equal(hits(scene.blue, 2, 4), 0);
	world_fini(&scene.world);
}

static void tenants_without_a_quota_get_the_default(void **state)
{
	struct scene scene;

	(void)state;
	memset(&scene, 0, sizeof(scene));
	world_init(&scene.world, &(struct world_options){ .slots = 32, .default_quota = { .hard_bytes = OBJECTS(4) } });
	scene.red = handle_make(client_join(&scene.world, RED), &red_model, 0, 0, OBJECT_BYTES);
	scene.blue = handle_make(client_join(&scene.world, BLUE), &blue_model, 0, 0, OBJECT_BYTES);
	store(&scene, scene.red, 0, 5, STATUS_NO_QUOTA);
	assert_int_equal(store(&scene, scene.red, 0, 4, STATUS_OK), 4);
	assert_int_equal(store(&scene, scene.blue, 0, 4, STATUS_OK), 4);
	assert_int_equal(hits(scene.red, 0, 4), 4);
	world_fini(&scene.world);
}

/* pitfalls F03 */
static void a_quota_below_what_a_tenant_holds_drops_nothing_and_is_kept_by_its_next_store(void **state)
{
	struct quota_job job = { .tenant = BLUE, .quota = { .soft_bytes = OBJECTS(20), .hard_bytes = OBJECTS(40) } };
	struct scene scene;

	(void)state;
	scene_init(&scene, 512, 0, 0);
	assert_int_equal(store(&scene, scene.blue, 0, 300, STATUS_OK), 300);
	assert_int_equal(store(&scene, scene.red, 0, 100, STATUS_OK), 100);
	set_quota(&scene, &job);
	assert_int_equal(job.held_bytes, OBJECTS(300));
	world_pass(&scene.world, KVR_SECOND);
	assert_int_equal(hits(scene.blue, 0, 300), 300);
	assert_int_equal(held(&scene, BLUE), 300);
	/* More than one reservation evicts at once: it takes some slices, and no chunk of anybody else. */
	assert_int_equal(store(&scene, scene.blue, 1, 40, STATUS_OK), 40);
	assert_int_equal(held(&scene, BLUE), 40);
	assert_int_equal(hits(scene.blue, 1, 40), 40);
	assert_int_equal(hits(scene.red, 0, 100), 100);
	store(&scene, scene.blue, 2, 41, STATUS_NO_QUOTA);
	/* And back: it may fill L1 again. */
	job.remove = true;
	set_quota(&scene, &job);
	assert_int_equal(job.quota.soft_bytes + job.quota.hard_bytes, 0);
	assert_int_equal(store(&scene, scene.blue, 2, 400, STATUS_OK), 400);
	world_fini(&scene.world);
}

static void what_is_cleared_and_what_a_model_leaves_is_not_counted_any_more(void **state)
{
	struct clear_job job = { 0 };
	struct ring_message message = { .kind = MANAGEMENT_CLEAR, .word = { (uint64_t)(uintptr_t)&job } };
	struct scene scene;

	(void)state;
	scene_init(&scene, 32, 0, 8);
	assert_int_equal(store(&scene, scene.red, 0, 8, STATUS_OK), 8);
	assert_true(ring_push(management_inbox(scene.world.management), &message));
	world_run(&scene.world);
	assert_int_equal(job.dropped, 8);
	assert_int_equal(held(&scene, RED), 0);
	assert_int_equal(store(&scene, scene.red, 0, 8, STATUS_OK), 8);
	world_fini(&scene.world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(beyond_its_hard_limit_a_tenant_evicts_its_own_chunks_and_nobody_elses),
		cmocka_unit_test(a_store_that_cannot_fit_the_quota_is_refused_whole_and_evicts_nothing),
		cmocka_unit_test(chunks_in_use_make_no_room_and_each_chunk_is_told_apart),
		cmocka_unit_test(stores_under_way_count),
		cmocka_unit_test(above_its_soft_limit_a_tenants_chunks_go_first),
		cmocka_unit_test(tenants_without_a_quota_get_the_default),
		cmocka_unit_test(a_quota_below_what_a_tenant_holds_drops_nothing_and_is_kept_by_its_next_store),
		cmocka_unit_test(what_is_cleared_and_what_a_model_leaves_is_not_counted_any_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
