/* test_cache_segments.c - what a scan cannot take away, what comes back, and who gives first. */
#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "base/fault.h"
#include "tier/store.h"

#define PAGE 65536
#define SLOTS 40

/* As store_put, making room. */
static uint32_t put(struct store *store, uint64_t chunk)
{
	l1_ref object = cache_reserve(store->cache, 0, store->object_class, 0, 1);
	uint8_t digest[CACHE_DIGEST_BYTES];
	uint32_t entry;

	assert_int_not_equal(object, 0);
	store_digest(chunk, digest);
	assert_int_equal(cache_publish(store->cache, store->space, digest, 0, object, &entry), 0);
	store_feed(store);
	return entry;
}

static bool is_there(const struct store *store, uint64_t chunk)
{
	return store_find(store, store->space, chunk) != CACHE_NONE;
}

static void look_up(struct store *store, uint64_t first, uint64_t count)
{
	for (uint64_t chunk = first; chunk < first + count; chunk++) {
		uint32_t entry = store_find(store, store->space, chunk);

		assert_int_not_equal(entry, CACHE_NONE);
		cache_lock(store->cache, entry, 1);
		cache_unlock(store->cache, entry, 1);
	}
}

static void scan(struct store *store, uint64_t first, uint64_t count)
{
	for (uint64_t chunk = first; chunk < first + count; chunk++)
		put(store, chunk);
}

static void what_comes_once_does_not_take_the_place_of_what_is_read(void **state)
{
	struct store store, plain;

	(void)state;
	store_init_segmented(&store, PAGE, SLOTS, 1);
	store_init(&plain, PAGE, SLOTS, 1, NULL);
	scan(&store, 0, SLOTS / 2);
	look_up(&store, 0, SLOTS / 2);
	scan(&plain, 0, SLOTS / 2);
	look_up(&plain, 0, SLOTS / 2);
	scan(&store, 1000, 10 * SLOTS);
	scan(&plain, 1000, 10 * SLOTS);
	for (uint64_t chunk = 0; chunk < SLOTS / 2; chunk++) {
		assert_true(is_there(&store, chunk));
		assert_false(is_there(&plain, chunk));
	}
	assert_int_equal(cache_get_counters(store.cache)->evicted_reused, 0);
	assert_int_equal(store_stats(&store).fresh_bytes, (uint64_t)SLOTS / 2 * PAGE);
	assert_int_equal(store_stats(&plain).fresh_bytes, 0);
	store_fini(&store);
	store_fini(&plain);
}

/* What was read has its turn too: it cannot keep all of L1 for ever. */
static void the_reused_ones_give_down_to_half(void **state)
{
	struct store store;
	uint64_t left = 0;

	(void)state;
	store_init_segmented(&store, PAGE, SLOTS, 1);
	scan(&store, 0, SLOTS);
	look_up(&store, 0, SLOTS);
	assert_int_equal(store_stats(&store).fresh_bytes, 0);
	scan(&store, 1000, SLOTS / 2);
	for (uint64_t chunk = 0; chunk < SLOTS / 2; chunk++)
		assert_false(is_there(&store, chunk));
	scan(&store, 2000, 10 * SLOTS);
	for (uint64_t chunk = 0; chunk < SLOTS; chunk++)
		left += is_there(&store, chunk);
	assert_in_range(left, SLOTS / 2 - 1, SLOTS / 2);
	store_fini(&store);
}

static void what_comes_back_soon_is_known(void **state)
{
	struct store store;

	(void)state;
	store_init_segmented(&store, PAGE, SLOTS, 1);
	scan(&store, 0, SLOTS + 2); /* 0 and 1 have gone */
	assert_false(is_there(&store, 0));
	put(&store, 0);
	assert_int_equal(cache_get_counters(store.cache)->returned, 1);
	scan(&store, 1000, 2 * SLOTS - 4);
	assert_true(is_there(&store, 0));
	assert_false(is_there(&store, 2000));
	put(&store, 2000); /* never seen */
	assert_int_equal(cache_get_counters(store.cache)->returned, 1);
	scan(&store, 3000, 4 * SLOTS);
	put(&store, 1); /* so long ago that it is new again */
	assert_int_equal(cache_get_counters(store.cache)->returned, 1);
	store_fini(&store);
}

/* pinned by transfers and touched by the end of its session, all within the request that brought it. */
static void what_its_own_request_does_is_no_reuse(void **state)
{
	struct store store;
	uint32_t entry;

	(void)state;
	store_init_segmented(&store, PAGE, SLOTS, 1);
	entry = put(&store, 0);
	cache_pin(store.cache, entry);
	cache_unpin(store.cache, entry);
	cache_touch(store.cache, entry);
	assert_int_equal(store_stats(&store).fresh_bytes, PAGE);
	cache_lock(store.cache, entry, 2);
	assert_int_equal(store_stats(&store).fresh_bytes, 0);
	cache_unlock(store.cache, entry, 2);
	assert_int_equal(store_stats(&store).fresh_bytes, 0);
	cache_touch(store.cache, entry);
	assert_int_equal(store_stats(&store).fresh_bytes, 0);
	store_fini(&store);
}

static void temporary_and_demoted_ones_go_before_all_others(void **state)
{
	struct store store;
	uint32_t entries[4];

	(void)state;
	store_init_segmented(&store, PAGE, SLOTS, 1);
	scan(&store, 0, SLOTS);
	look_up(&store, 0, SLOTS);
	for (uint32_t i = 0; i < 4; i++)
		entries[i] = store_find(&store, store.space, 30 + i);
	cache_demote(store.cache, entries[0]); /* onto a list with nothing on it */
	cache_demote(store.cache, entries[3]);
	assert_int_equal(cache_verify(store.cache, false), 0);
	cache_lock(store.cache, entries[1], 1);
	cache_make_temporary(store.cache, entries[1]);
	cache_unlock(store.cache, entries[1], 1);
	cache_demote(store.cache, entries[2]);
	assert_int_equal(cache_verify(store.cache, false), 0);
	put(&store, 1000);
	put(&store, 1001);
	assert_false(is_there(&store, 31) || is_there(&store, 32));
	/* No temporary one is left, and the fresh ones are few: the reused ones' turn. */
	put(&store, 1002);
	assert_true(is_there(&store, 30) && is_there(&store, 33));
	assert_false(is_there(&store, 0));
	store_fini(&store);
}

static void want_of_memory_for_ghosts_is_told(void **state)
{
	struct cache_options options = { .spaces_max = 8, .high_permille = 1000, .eviction = CACHE_EVICT_SEGMENTED };
	struct store store;
	struct cache *cache = NULL;

	(void)state;
	store_init(&store, PAGE, SLOTS, 1, NULL);
	options.l1 = store.l1;
	fault_arm_name("ghosts/slots", 1);
	assert_int_equal(cache_create(&options, &cache), -ENOMEM);
	fault_arm(0);
	options.eviction = (enum cache_eviction)(CACHE_EVICT_SEGMENTED + 1);
	assert_int_equal(cache_create(&options, &cache), -EINVAL);
	assert_null(cache);
	store_fini(&store);
}

static void a_bucket_of_ghosts_keeps_the_newest(void **state)
{
	struct ghosts ghosts;

	(void)state;
	assert_int_equal(ghosts_init(&ghosts, 1), 0);
	assert_int_equal(ghosts_bytes(&ghosts), KVR_CACHE_LINE);
	ghosts.number = UINT32_MAX - 5; /* overflows meanwhile */
	for (uint64_t i = 1; i <= 10; i++)
		ghosts_add(&ghosts, i << 32);
	assert_false(ghosts_take(&ghosts, UINT64_C(1) << 32, 100));
	assert_false(ghosts_take(&ghosts, UINT64_C(2) << 32, 100));
	assert_true(ghosts_take(&ghosts, UINT64_C(3) << 32, 100));
	assert_false(ghosts_take(&ghosts, UINT64_C(3) << 32, 100));
	assert_true(ghosts_take(&ghosts, UINT64_C(9) << 32, 1));
	assert_false(ghosts_take(&ghosts, UINT64_C(8) << 32, 1));
	ghosts_add(&ghosts, 0);
	assert_true(ghosts_take(&ghosts, UINT64_C(1) << 32, 0)); /* no fingerprint is 0 */
	ghosts_fini(&ghosts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_comes_once_does_not_take_the_place_of_what_is_read),
		cmocka_unit_test(the_reused_ones_give_down_to_half),
		cmocka_unit_test(what_comes_back_soon_is_known),
		cmocka_unit_test(what_its_own_request_does_is_no_reuse),
		cmocka_unit_test(temporary_and_demoted_ones_go_before_all_others),
		cmocka_unit_test(want_of_memory_for_ghosts_is_told),
		cmocka_unit_test(a_bucket_of_ghosts_keeps_the_newest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
