/* Accounts of the cache under random use: the sums, the limits, and who makes room for whom. */
#include "tier/store.h"

#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "base/random.h"

#define ACCOUNTS 3u
#define CLASSES 2u
#define STAGED_MAX 8u
#define LOCKED_MAX 24u
#define STEPS 60000u

struct stage {
	l1_ref object;
	uint32_t account;
};

struct world {
	struct l1_area area;
	struct l1 *l1;
	struct cache *cache;
	struct random random;
	uint32_t classes[CLASSES];
	uint32_t spaces[ACCOUNTS];
	struct stage staged[STAGED_MAX];
	uint32_t staged_count;
	uint32_t locked[LOCKED_MAX];
	uint32_t locked_count;
	uint64_t refused, for_quota, passed_by;
};

static uint32_t draw(struct world *world, uint64_t below)
{
	return (uint32_t)random_below(&world->random, below);
}

static uint64_t held(const struct world *world, uint32_t account)
{
	struct cache_account_stats stats;

	cache_get_account(world->cache, account, &stats);
	return stats.resident_bytes + stats.staged_bytes;
}

static void world_init(struct world *world, uint64_t seed)
{
	static const struct cache_tuning tuning = { .slab_shift = 9 };
	static const uint64_t sizes[CLASSES] = { 4096, 20000 };
	struct cache_options options = { .accounts = ACCOUNTS,
		.spaces_max = 8,
		.chunks_initial = 4096,
		.high_permille = 1000,
		.low_permille = 1000,
		.seed = 1 };

	memset(world, 0, sizeof(*world));
	random_init(&world->random, seed);
	world->area = area_reserve(16 * L1_PAGE_BYTES);
	assert_int_equal(l1_create(&world->area, 1, &world->l1), 0);
	for (uint32_t i = 0; i < CLASSES; i++)
		assert_int_equal(l1_class_acquire(world->l1, sizes[i], &world->classes[i]), 0);
	options.l1 = world->l1;
	assert_int_equal(cache_create_tuned(&options, &tuning, &world->cache), 0);
	for (uint32_t i = 0; i < ACCOUNTS; i++) {
		static const uint8_t no_salt[32];

		cache_set_account(world->cache, 10 + i, i);
		world->spaces[i] = cache_space_acquire(world->cache, 10 + i, no_salt, 1);
		assert_int_not_equal(world->spaces[i], CACHE_NONE);
		assert_int_equal(cache_space_account(world->cache, world->spaces[i]), i);
	}
}

/* What reserving has to keep to, whatever it comes to. */
static void reserve(struct world *world)
{
	uint32_t account = draw(world, ACCOUNTS), object_class = world->classes[draw(world, CLASSES)];
	bool full = cache_quota_full(world->cache, account, object_class);
	bool allowed = cache_quota_allows(world->cache, account, object_class, 1);
	uint64_t before[ACCOUNTS], own = held(world, account);
	struct cache_account_stats stats;
	l1_ref object;

	for (uint32_t i = 0; i < ACCOUNTS; i++)
		before[i] = held(world, i);
	cache_get_account(world->cache, account, &stats);
	object = cache_reserve(world->cache, account, object_class, 0, 64);
	if (full)
		for (uint32_t i = 0; i < ACCOUNTS; i++)
			assert_true(i == account || held(world, i) == before[i]);
	if (!allowed) {
		assert_int_equal(object, 0);
		assert_int_equal(held(world, account), own);
		world->refused++;
	}
	if (!object)
		return;
	world->for_quota += full;
	if (stats.quota.hard_bytes > 0)
		assert_true(held(world, account) <= stats.quota.hard_bytes);
	world->staged[world->staged_count++] = (struct stage){ object, account };
}

/* Publishes or gives up one that is staged. */
static void settle(struct world *world)
{
	uint32_t index = draw(world, world->staged_count), entry;
	struct stage stage = world->staged[index];
	uint8_t digest[CACHE_DIGEST_BYTES];

	world->staged[index] = world->staged[--world->staged_count];
	store_digest(draw(world, 400), digest);
	if (!draw(world, 8) ||
		cache_publish(world->cache, world->spaces[stage.account], digest, 0, stage.object, &entry) == -ENOSPC) {
		cache_abort(world->cache, stage.object);
	}
}

static void lock_one(struct world *world)
{
	uint8_t digest[CACHE_DIGEST_BYTES];
	uint32_t entry;

	store_digest(draw(world, 400), digest);
	entry = cache_find(world->cache, world->spaces[draw(world, ACCOUNTS)], digest);
	if (entry == CACHE_NONE)
		return;
	cache_lock(world->cache, entry, 1);
	world->locked[world->locked_count++] = entry;
}

static void unlock_one(struct world *world)
{
	uint32_t index = draw(world, world->locked_count);

	cache_unlock(world->cache, world->locked[index], 1);
	world->locked[index] = world->locked[--world->locked_count];
}

/* Lowered below what is held now and then: nothing goes by that. */
static void change_quota(struct world *world)
{
	uint32_t account = draw(world, ACCOUNTS);
	struct cache_quota quota = { 0, 0 };
	uint64_t before = held(world, account);

	if (draw(world, 3))
		quota.hard_bytes = 1 + draw(world, 12 * L1_PAGE_BYTES);
	if (draw(world, 2))
		quota.soft_bytes = 1 + draw(world, 8 * L1_PAGE_BYTES);
	cache_set_quota(world->cache, account, &quota);
	assert_int_equal(held(world, account), before);
}

static void step(struct world *world)
{
	uint32_t what = draw(world, 100);

	if (what < 50 && world->staged_count < STAGED_MAX)
		reserve(world);
	else if (what < 85 && world->staged_count > 0)
		settle(world);
	else if (what < 91 && world->locked_count < LOCKED_MAX)
		lock_one(world);
	else if (what < 98 && world->locked_count > 0)
		unlock_one(world);
	else if (what == 99 && !draw(world, 4))
		change_quota(world);
}

static void world_fini(struct world *world)
{
	while (world->staged_count > 0)
		cache_abort(world->cache, world->staged[--world->staged_count].object);
	while (world->locked_count > 0)
		unlock_one(world);
	assert_int_equal(cache_verify(world->cache, true), 0);
	for (uint32_t i = 0; i < ACCOUNTS; i++)
		cache_space_release(world->cache, world->spaces[i]);
	cache_destroy(&world->cache);
	for (uint32_t i = 0; i < CLASSES; i++)
		l1_class_release(world->l1, world->classes[i]);
	l1_destroy(&world->l1);
	area_release(&world->area);
}

static void limits_hold_and_sums_agree_whatever_happens(void **state)
{
	struct world world;

	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++) {
		world_init(&world, seed);
		for (uint32_t i = 0; i < STEPS; i++) {
			step(&world);
			if (i % 500 == 0)
				assert_int_equal(cache_verify(world.cache, false), 0);
		}
		assert_true(world.refused > 100);
		assert_true(world.for_quota > 100);
		assert_true(cache_get_counters(world.cache)->evicted_above_soft > 100);
		world_fini(&world);
	}
}

/* A hard limit that has no room for the least object refuses it, and a limit of any size may be taken back. */
static void limits_of_any_size_are_possible(void **state)
{
	static const struct cache_quota least = { 1, 1 }, most = { UINT64_MAX, UINT64_MAX }, none = { 0, 0 };
	struct world world;
	l1_ref object;

	(void)state;
	world_init(&world, 1);
	cache_set_quota(world.cache, 1, &least);
	assert_int_equal(cache_reserve(world.cache, 1, world.classes[0], 0, 64), 0);
	assert_false(cache_quota_allows(world.cache, 1, world.classes[0], 1));
	cache_set_quota(world.cache, 1, &most);
	assert_true(cache_quota_allows(world.cache, 1, world.classes[0], UINT32_MAX));
	object = cache_reserve(world.cache, 1, world.classes[0], 0, 64);
	assert_int_not_equal(object, 0);
	cache_abort(world.cache, object);
	cache_set_quota(world.cache, 1, &none);
	assert_true(cache_quota_allows(world.cache, 1, world.classes[0], UINT64_MAX));
	assert_false(cache_quota_full(world.cache, 1, world.classes[0]));
	world_fini(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits_hold_and_sums_agree_whatever_happens),
		cmocka_unit_test(limits_of_any_size_are_possible),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
