/* The cache: who is evicted, when, and who never is; making room for objects of another size. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tier/store.h"

#define PAGE 65536

/* Reserves with eviction of at most one chunk, and publishes. */
static void put_evicting(struct store *store, uint32_t space, uint64_t chunk)
{
	l1_ref object = cache_reserve(store->cache, 0, store->object_class, 0, 1);
	uint8_t digest[CACHE_DIGEST_BYTES];
	uint32_t entry;

	assert_int_not_equal(object, 0);
	store_digest(chunk, digest);
	assert_int_equal(cache_publish(store->cache, space, digest, 0, object, &entry), 0);
}

/* Evicts everything on demand and checks the order. */
static void expect_order(struct store *store, const uint64_t *chunks, uint32_t count)
{
	l1_ref objects[64];

	for (uint32_t i = 0; i < count; i++) {
		for (uint32_t j = 0; j < count; j++)
			assert_int_equal(store_find(store, store->space, chunks[j]) != CACHE_NONE, j >= i);
		objects[i] = cache_reserve(store->cache, 0, store->object_class, 0, 1);
		assert_int_not_equal(objects[i], 0);
	}
	for (uint32_t i = 0; i < count; i++)
		cache_abort(store->cache, objects[i]);
}

static void the_least_recently_used_goes_first(void **state)
{
	static const uint64_t order[] = { 2, 5, 0, 4, 1, 3 };
	struct store store;

	(void)state;
	store_init(&store, PAGE, 6, 1, NULL);
	for (uint64_t i = 0; i < 6; i++)
		store_put(&store, store.space, i, 0);
	cache_touch(store.cache, store_find(&store, store.space, 0));
	cache_lock(store.cache, store_find(&store, store.space, 4), 2);
	cache_unlock(store.cache, store_find(&store, store.space, 4), 1);
	cache_pin(store.cache, store_find(&store, store.space, 1));
	cache_unlock(store.cache, store_find(&store, store.space, 4), 1);
	cache_unpin(store.cache, store_find(&store, store.space, 1));
	cache_touch(store.cache, store_find(&store, store.space, 3));
	expect_order(&store, order, 6);
	store_fini(&store);
}

static void late_chunks_of_a_prefix_go_before_early_ones(void **state)
{
	static const uint64_t order[] = { 14, 13, 12, 11, 10, 23, 22, 21, 20 };
	struct store store;
	uint32_t entries[5];

	(void)state;
	store_init(&store, PAGE, 9, 1, NULL);
	for (uint64_t i = 0; i < 4; i++)
		store_put(&store, store.space, 20 + i, 0);
	for (uint64_t i = 0; i < 5; i++)
		entries[i] = store_put(&store, store.space, 10 + i, 0);
	for (int i = 0; i < 5; i++)
		cache_lock(store.cache, entries[i], 1);
	for (int i = 4; i >= 0; i--)
		cache_unlock(store.cache, entries[i], 1);
	for (uint64_t i = 4; i > 0; i--)
		cache_touch(store.cache, store_find(&store, store.space, 20 + i - 1));
	expect_order(&store, order, 9);
	store_fini(&store);
}

static void an_entry_goes_with_the_objects_of_all_parts(void **state)
{
	struct store store;
	l1_ref object;

	(void)state;
	store_init(&store, PAGE, 24, 8, NULL);
	for (uint64_t i = 0; i < 3; i++)
		for (uint32_t part = 0; part < 8; part++)
			store_put(&store, store.space, i, part);
	object = cache_reserve(store.cache, 0, store.object_class, 0, 1);
	assert_int_equal(store_find(&store, store.space, 0), CACHE_NONE);
	assert_int_equal(store_stats(&store).chunks, 2);
	assert_int_equal(store_stats(&store).objects, 16);
	assert_int_equal(l1_class_room(store.l1, store.object_class), 7);
	assert_int_equal(cache_get_counters(store.cache)->evicted_bytes, 8 * PAGE);
	cache_abort(store.cache, object);
	store_fini(&store);
}

/* pitfalls D03: 28 slots, 18 residents that nobody holds. */
static void demand_evicts_what_is_missing_and_nothing_when_it_could_not_help(void **state)
{
	struct store store;
	l1_ref objects[29];

	(void)state;
	store_init(&store, PAGE, 28, 1, NULL);
	for (uint64_t i = 0; i < 18; i++)
		store_put(&store, store.space, i, 0);
	assert_true(cache_could_reserve(store.cache, store.object_class, 28));
	assert_false(cache_could_reserve(store.cache, store.object_class, 29));
	assert_int_equal(store_stats(&store).chunks, 18);
	assert_true(cache_could_reserve(store.cache, store.object_class, 11));
	for (int i = 0; i < 11; i++) {
		objects[i] = cache_reserve(store.cache, 0, store.object_class, 0, 1);
		assert_int_not_equal(objects[i], 0);
	}
	assert_int_equal(store_stats(&store).chunks, 17);
	assert_int_equal(store_find(&store, store.space, 0), CACHE_NONE);
	assert_int_equal(cache_get_counters(store.cache)->evicted_on_demand, 1);
	assert_false(cache_could_reserve(store.cache, store.object_class, 18));
	assert_true(cache_could_reserve(store.cache, store.object_class, 17));
	for (int i = 0; i < 11; i++)
		cache_abort(store.cache, objects[i]);
	store_fini(&store);
}

static void nothing_is_evicted_without_leave(void **state)
{
	struct store store;

	(void)state;
	store_init(&store, PAGE, 4, 1, NULL);
	for (uint64_t i = 0; i < 4; i++)
		store_put(&store, store.space, i, 0);
	assert_int_equal(cache_reserve(store.cache, 0, store.object_class, 0, 0), 0);
	assert_int_equal(store_stats(&store).chunks, 4);
	assert_int_equal(cache_get_counters(store.cache)->no_room, 1);
	store_fini(&store);
}

static void a_cache_full_of_held_chunks_refuses_and_loses_nothing(void **state)
{
	struct store store;
	l1_ref object;

	(void)state;
	store_init(&store, PAGE, 8, 1, NULL);
	for (uint64_t i = 0; i < 7; i++) {
		uint32_t entry = store_put(&store, store.space, i, 0);

		if (i % 2)
			cache_lock(store.cache, entry, 1);
		else
			cache_pin(store.cache, entry);
	}
	object = cache_reserve(store.cache, 0, store.object_class, 0, 100);
	assert_int_not_equal(object, 0);
	assert_int_equal(cache_reserve(store.cache, 0, store.object_class, 0, 100), 0);
	assert_false(cache_could_reserve(store.cache, store.object_class, 1));
	assert_int_equal(store_stats(&store).chunks, 7);
	cache_unlock(store.cache, store_find(&store, store.space, 3), 1);
	assert_true(cache_could_reserve(store.cache, store.object_class, 1));
	put_evicting(&store, store.space, 50);
	assert_int_equal(store_find(&store, store.space, 3), CACHE_NONE);
	cache_abort(store.cache, object);
	for (uint64_t i = 0; i < 7; i++) {
		if (i % 2 && i != 3)
			cache_unlock(store.cache, store_find(&store, store.space, i), 1);
		else if (i != 3)
			cache_unpin(store.cache, store_find(&store, store.space, i));
	}
	store_fini(&store);
}

/* pitfalls D13: the chunk that is being moved is the least recently used one. */
static void a_pinned_chunk_is_passed_over_for_the_next(void **state)
{
	struct store store;
	uint32_t entry;

	(void)state;
	store_init(&store, PAGE, 4, 1, NULL);
	for (uint64_t i = 0; i < 4; i++)
		store_put(&store, store.space, i, 0);
	entry = store_find(&store, store.space, 0);
	cache_pin(store.cache, entry);
	put_evicting(&store, store.space, 10);
	assert_int_equal(store_find(&store, store.space, 0), entry);
	assert_int_equal(store_find(&store, store.space, 1), CACHE_NONE);
	cache_unpin(store.cache, entry);
	store_fini(&store);
}

/* pitfalls D01, D10: far more than fits goes through, and it never stops taking. */
static void storing_a_hundred_times_the_capacity_never_fails(void **state)
{
	struct store store;
	struct l1_stats stats;

	(void)state;
	store_init(&store, 70 << 10, 64, 1, NULL);
	for (uint64_t i = 0; i < 6400; i++) {
		put_evicting(&store, store.space, i);
		store_feed(&store);
	}
	l1_get_stats(store.l1, &stats);
	assert_int_equal(stats.free_slot_bytes, 0);
	assert_true(store_stats(&store).chunks >= 62);
	store_fini(&store);
}

struct two {
	struct store store;
	uint32_t large; /* 512 KiB: eight pages */
	uint32_t space; /* of a model with such objects */
};

/* 64 pages full of small chunks 0 .. 63, from the front. */
static void two_init(struct two *two)
{
	store_init(&two->store, PAGE, 64, 1, NULL);
	assert_int_equal(l1_class_acquire(two->store.l1, 8 * PAGE, &two->large), 0);
	two->space = store_space(&two->store, 2, 0, 1);
	for (uint64_t i = 0; i < 64; i++)
		store_put(&two->store, two->store.space, i, 0);
}

static uint32_t small_left(const struct two *two)
{
	uint32_t count = 0;

	for (uint64_t i = 0; i < 64; i++)
		count += store_find(&two->store, two->store.space, i) != CACHE_NONE;
	return count;
}

static void an_unused_model_gives_way_to_one_with_larger_objects(void **state)
{
	struct two two;
	l1_ref objects[8];

	(void)state;
	two_init(&two);
	for (int i = 0; i < 8; i++) {
		assert_true(cache_could_reserve(two.store.cache, two.large, (uint64_t)(8 - i)));
		objects[i] = cache_reserve(two.store.cache, 0, two.large, 0, 8);
		assert_int_not_equal(objects[i], 0);
		assert_int_equal(small_left(&two), 64 - 8 * (i + 1));
	}
	assert_int_equal(cache_get_counters(two.store.cache)->evicted_for_class, 64);
	assert_int_equal(cache_reserve(two.store.cache, 0, two.large, 0, 8), 0);
	for (int i = 0; i < 8; i++)
		cache_abort(two.store.cache, objects[i]);
	store_fini(&two.store);
}

static void store_put_evicting(struct store *store, uint64_t chunk)
{
	l1_ref object = cache_reserve(store->cache, 0, store->object_class, 0, 8);
	uint8_t digest[CACHE_DIGEST_BYTES];
	uint32_t entry;

	assert_int_not_equal(object, 0);
	store_digest(chunk, digest);
	assert_int_equal(cache_publish(store->cache, store->space, digest, 0, object, &entry), 0);
}

/* What is temporary goes before all else, whatever its class, the end of its chain first; what is held anew is not. */
static void temporary_chunks_go_first_when_they_were_let_go(void **state)
{
	struct store store;
	uint32_t entries[8];

	(void)state;
	store_init(&store, 65536, 8, 1, NULL);
	for (uint32_t i = 0; i < 8; i++)
		entries[i] = store_put(&store, store.space, i, 0);
	/* A chain of 4 was brought, and let go from its end on; meanwhile others are used. */
	for (uint32_t i = 4; i < 8; i++) {
		cache_lock(store.cache, entries[i], 2);
		cache_make_temporary(store.cache, entries[i]);
		cache_unlock(store.cache, entries[i], 1);
	}
	for (uint32_t i = 8; i > 4; i--)
		cache_unlock(store.cache, entries[i - 1], 1);
	assert_int_equal(cache_verify(store.cache, true), 0);
	cache_touch(store.cache, entries[7]);
	/* The second one is found again. */
	cache_lock(store.cache, entries[5], 1);
	cache_unlock(store.cache, entries[5], 1);
	assert_int_equal(cache_verify(store.cache, true), 0);
	store_put_evicting(&store, 100);
	assert_int_equal(store_find(&store, store.space, 7), CACHE_NONE);
	store_put_evicting(&store, 101);
	assert_int_equal(store_find(&store, store.space, 6), CACHE_NONE);
	store_put_evicting(&store, 102);
	assert_int_equal(store_find(&store, store.space, 4), CACHE_NONE);
	assert_int_equal(cache_verify(store.cache, true), 0);
	store_put_evicting(&store, 103);
	assert_int_equal(store_find(&store, store.space, 0), CACHE_NONE);
	assert_int_not_equal(store_find(&store, store.space, 5), CACHE_NONE);
	store_fini(&store);
}

static void a_limit_below_what_is_needed_evicts_nothing(void **state)
{
	struct two two;

	(void)state;
	two_init(&two);
	/* Uses have been counted beyond 32 bits. */
	two.store.cache->stamp = ENTRIES_LASTING + ((uint64_t)5 << 32);
	for (uint64_t i = 0; i < 64; i++)
		cache_touch(two.store.cache, store_find(&two.store, two.store.space, i * 5 % 64));
	assert_int_equal(cache_reserve(two.store.cache, 0, two.large, 0, 7), 0);
	assert_int_equal(small_left(&two), 64);
	assert_int_equal(cache_verify(two.store.cache, true), 0);
	store_fini(&two.store);
}

static void chunks_in_use_are_gone_around_or_stop_it(void **state)
{
	struct two two;
	l1_ref object;

	(void)state;
	two_init(&two);
	/* Every fifth page is in use: nowhere are eight. */
	for (uint64_t i = 0; i < 64; i += 5)
		cache_lock(two.store.cache, store_find(&two.store, two.store.space, i), 1);
	assert_int_equal(cache_reserve(two.store.cache, 0, two.large, 0, 64), 0);
	assert_int_equal(small_left(&two), 64);
	/* Around the least recently used chunks, 1 to 4, there is room now, up to a staged object. */
	cache_unlock(two.store.cache, store_find(&two.store, two.store.space, 5), 1);
	object = cache_reserve(two.store.cache, 0, two.large, 0, 64);
	assert_int_not_equal(object, 0);
	assert_int_equal(small_left(&two), 56);
	for (uint64_t i = 0; i < 64; i += 5)
		if (i != 5)
			cache_unlock(two.store.cache, store_find(&two.store, two.store.space, i), 1);
	cache_abort(two.store.cache, object);
	store_fini(&two.store);
}

static void staged_objects_of_another_class_are_never_taken(void **state)
{
	struct store store;
	l1_ref staged[8];
	uint32_t large;

	(void)state;
	store_init(&store, PAGE, 32, 1, NULL);
	assert_int_equal(l1_class_acquire(store.l1, 8 * PAGE, &large), 0);
	for (uint64_t i = 0; i < 32; i++) {
		if (i % 4 == 3)
			staged[i / 4] = cache_reserve(store.cache, 0, store.object_class, 0, 0);
		else
			store_put(&store, store.space, i, 0);
	}
	assert_int_equal(cache_reserve(store.cache, 0, large, 0, 32), 0);
	assert_int_equal(store_stats(&store).chunks, 24);
	for (int i = 0; i < 8; i++)
		cache_abort(store.cache, staged[i]);
	store_fini(&store);
}

/* However old the chunks of the other class are: when their pages cannot be cleared, the own class gives a chunk. */
static void a_class_that_has_something_evictable_always_gets_room(void **state)
{
	struct two two;
	l1_ref object;
	uint32_t entry;
	uint8_t digest[CACHE_DIGEST_BYTES];

	(void)state;
	two_init(&two);
	object = cache_reserve(two.store.cache, 0, two.large, 0, 8);
	store_digest(1000, digest);
	assert_int_equal(cache_publish(two.store.cache, two.space, digest, 0, object, &entry), 0);
	for (uint64_t i = 8; i < 64; i += 3)
		cache_pin(two.store.cache, store_find(&two.store, two.store.space, i));
	object = cache_reserve(two.store.cache, 0, two.large, 0, 64);
	assert_int_not_equal(object, 0);
	assert_int_equal(store_find(&two.store, two.space, 1000), CACHE_NONE);
	assert_int_equal(small_left(&two), 56);
	for (uint64_t i = 8; i < 64; i += 3)
		cache_unpin(two.store.cache, store_find(&two.store, two.store.space, i));
	cache_abort(two.store.cache, object);
	store_fini(&two.store);
}

/* Publishes an object of this class, without eviction; the entry. */
static uint32_t put_class(struct store *store, uint32_t space, uint64_t chunk, uint32_t part, uint32_t object_class)
{
	l1_ref object = cache_reserve(store->cache, 0, object_class, 0, 0);
	uint8_t digest[CACHE_DIGEST_BYTES];
	uint32_t entry = CACHE_NONE;

	assert_int_not_equal(object, 0);
	store_digest(chunk, digest);
	assert_int_equal(cache_publish(store->cache, space, digest, part, object, &entry), 0);
	return entry;
}

/* Ten older classes, of one page each between pages in use: none of them can make two pages, however many are tried. */
static void a_class_gets_room_however_many_older_classes_there_are(void **state)
{
	struct store store;
	uint32_t large;
	l1_ref object;

	(void)state;
	store_init(&store, PAGE, 22, 1, NULL);
	for (uint64_t i = 0; i < 10; i++) {
		uint32_t other;

		assert_int_equal(l1_class_acquire(store.l1, PAGE - 64 * (i + 1), &other), 0);
		put_class(&store, store.space, 100 + i, 0, other);
		cache_pin(store.cache, store_put(&store, store.space, i, 0));
	}
	assert_int_equal(l1_class_acquire(store.l1, 2 * PAGE, &large), 0);
	put_class(&store, store.space, 200, 0, large);
	object = cache_reserve(store.cache, 0, large, 0, 50);
	assert_int_not_equal(object, 0);
	assert_int_equal(store_find(&store, store.space, 200), CACHE_NONE);
	assert_int_equal(store_stats(&store).chunks, 20);
	cache_abort(store.cache, object);
	for (uint64_t i = 0; i < 10; i++)
		cache_unpin(store.cache, store_find(&store, store.space, i));
	store_fini(&store);
}

/* 253 pages of 16 chunks each; 64 pages are wanted. The three oldest chunks stand in stretches of 62, the fourth in
 * one of 64. */
static void looking_for_pages_ends_after_a_bounded_time(void **state)
{
	static const uint64_t pinned[] = { 62, 125, 188 };
	static const uint64_t oldest[] = { 0, 63, 126, 189 };
	struct store store;
	uint32_t large;
	l1_ref object;

	(void)state;
	store_init(&store, 4096, 253 * 16, 1, NULL);
	assert_int_equal(l1_class_acquire(store.l1, 64 * PAGE, &large), 0);
	for (uint64_t i = 0; i < 253 * 16; i++) {
		store_put(&store, store.space, i, 0);
		store_feed(&store);
	}
	for (uint32_t i = 0; i < 3; i++)
		cache_pin(store.cache, store_find(&store, store.space, pinned[i] * 16));
	for (uint64_t i = 0; i < 253 * 16; i++)
		if (i != oldest[0] * 16 && i != oldest[1] * 16 && i != oldest[2] * 16 && i != oldest[3] * 16)
			cache_touch(store.cache, store_find(&store, store.space, i));
	assert_int_equal(cache_reserve(store.cache, 0, large, 0, 5000), 0);
	assert_int_equal(store_stats(&store).chunks, 253 * 16);
	cache_touch(store.cache, store_find(&store, store.space, oldest[1] * 16));
	cache_touch(store.cache, store_find(&store, store.space, oldest[2] * 16));
	object = cache_reserve(store.cache, 0, large, 0, 5000);
	assert_int_not_equal(object, 0);
	assert_int_equal(store_stats(&store).chunks, 253 * 16 - 1024);
	cache_abort(store.cache, object);
	for (uint32_t i = 0; i < 3; i++)
		cache_unpin(store.cache, store_find(&store, store.space, pinned[i] * 16));
	store_fini(&store);
}

/* Its first object is large, its second one small: it stands on the list of large ones, and a small one is wanted. */
static void fresh_objects_of_the_class_that_wants_room_do_not_go_with_old_ones_around_them(void **state)
{
	struct store store;
	uint32_t middle;
	l1_ref object;

	(void)state;
	store_init(&store, PAGE, 8, 1, NULL);
	assert_int_equal(l1_class_acquire(store.l1, 3 * PAGE, &middle), 0);
	/* Page 0, the oldest; pages 1 to 3; pages 4 to 7. */
	store_put(&store, store.space, 0, 0);
	put_class(&store, store.space, 100, 0, middle);
	for (uint64_t i = 4; i < 8; i++)
		store_put(&store, store.space, i, 0);
	cache_touch(store.cache, store_find(&store, store.space, 100));
	object = cache_reserve(store.cache, 0, middle, 0, 8);
	assert_int_not_equal(object, 0);
	assert_int_not_equal(store_find(&store, store.space, 100), CACHE_NONE);
	assert_int_not_equal(store_find(&store, store.space, 0), CACHE_NONE);
	assert_int_equal(store_find(&store, store.space, 4), CACHE_NONE);
	cache_abort(store.cache, object);
	store_fini(&store);
}

static void a_chunk_of_two_sizes_gives_way_to_either(void **state)
{
	struct store store;
	uint32_t large;
	l1_ref object;

	(void)state;
	store_init(&store, PAGE, 10, 2, NULL);
	assert_int_equal(l1_class_acquire(store.l1, 8 * PAGE, &large), 0);
	put_class(&store, store.space, 1, 0, large);
	put_class(&store, store.space, 1, 1, store.object_class);
	put_class(&store, store.space, 2, 1, store.object_class);
	assert_int_equal(cache_verify(store.cache, true), 0);
	object = cache_reserve(store.cache, 0, store.object_class, 0, 1);
	assert_int_not_equal(object, 0);
	assert_int_equal(store_find(&store, store.space, 1), CACHE_NONE);
	assert_int_equal(cache_get_counters(store.cache)->evicted_for_class, 0);
	cache_abort(store.cache, object);
	store_fini(&store);
}

static void a_part_that_comes_to_a_held_chunk_is_not_evictable(void **state)
{
	struct store store;
	uint32_t entry;

	(void)state;
	store_init(&store, PAGE, 2, 2, NULL);
	entry = store_put(&store, store.space, 1, 0);
	cache_pin(store.cache, entry);
	assert_int_equal(store_put(&store, store.space, 1, 1), entry);
	assert_int_equal(cache_verify(store.cache, false), 0);
	assert_false(cache_could_reserve(store.cache, store.object_class, 1));
	assert_int_equal(cache_reserve(store.cache, 0, store.object_class, 0, 10), 0);
	cache_unpin(store.cache, entry);
	assert_true(cache_could_reserve(store.cache, store.object_class, 2));
	store_fini(&store);
}

/* Objects of one chunk side by side: the plan names their owner more than once. */
static void a_chunk_whose_objects_lie_in_the_way_several_times_goes_once(void **state)
{
	struct store store;
	l1_ref object;
	uint32_t large;

	(void)state;
	store_init(&store, PAGE, 16, 4, NULL);
	assert_int_equal(l1_class_acquire(store.l1, 8 * PAGE, &large), 0);
	for (uint64_t i = 0; i < 4; i++)
		for (uint32_t part = 0; part < 4; part++)
			store_put(&store, store.space, i, part);
	object = cache_reserve(store.cache, 0, large, 0, 2);
	assert_int_not_equal(object, 0);
	assert_int_equal(store_stats(&store).chunks, 2);
	assert_int_equal(cache_get_counters(store.cache)->evicted_chunks, 2);
	cache_abort(store.cache, object);
	store_fini(&store);
}

static void the_background_evicts_from_the_high_mark_to_the_low_mark(void **state)
{
	struct store store;
	uint64_t i;

	(void)state;
	store_init(&store, PAGE, 100, 1, NULL);
	assert_false(cache_evict_due(store.cache));
	store.cache->high_permille = 900;
	store.cache->low_permille = 800;
	for (i = 0; i < 90; i++)
		store_put(&store, store.space, i, 0);
	assert_false(cache_evict_due(store.cache));
	assert_int_equal(cache_evict_step(store.cache, 10), 0);
	store_put(&store, store.space, i++, 0);
	assert_true(cache_evict_due(store.cache));
	assert_int_equal(cache_evict_step(store.cache, 4), 4);
	assert_true(cache_evict_due(store.cache));
	assert_int_equal(cache_evict_step(store.cache, 100), 7);
	assert_false(cache_evict_due(store.cache));
	assert_int_equal(store_find(&store, store.space, 10), CACHE_NONE);
	assert_int_not_equal(store_find(&store, store.space, 11), CACHE_NONE);
	assert_int_equal(cache_get_counters(store.cache)->evicted_on_demand, 0);
	store_fini(&store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_least_recently_used_goes_first),
		cmocka_unit_test(late_chunks_of_a_prefix_go_before_early_ones),
		cmocka_unit_test(an_entry_goes_with_the_objects_of_all_parts),
		cmocka_unit_test(demand_evicts_what_is_missing_and_nothing_when_it_could_not_help),
		cmocka_unit_test(nothing_is_evicted_without_leave),
		cmocka_unit_test(a_cache_full_of_held_chunks_refuses_and_loses_nothing),
		cmocka_unit_test(a_pinned_chunk_is_passed_over_for_the_next),
		cmocka_unit_test(storing_a_hundred_times_the_capacity_never_fails),
		cmocka_unit_test(an_unused_model_gives_way_to_one_with_larger_objects),
		cmocka_unit_test(temporary_chunks_go_first_when_they_were_let_go),
		cmocka_unit_test(a_limit_below_what_is_needed_evicts_nothing),
		cmocka_unit_test(chunks_in_use_are_gone_around_or_stop_it),
		cmocka_unit_test(staged_objects_of_another_class_are_never_taken),
		cmocka_unit_test(fresh_objects_of_the_class_that_wants_room_do_not_go_with_old_ones_around_them),
		cmocka_unit_test(a_class_that_has_something_evictable_always_gets_room),
		cmocka_unit_test(a_class_gets_room_however_many_older_classes_there_are),
		cmocka_unit_test(looking_for_pages_ends_after_a_bounded_time),
		cmocka_unit_test(a_chunk_of_two_sizes_gives_way_to_either),
		cmocka_unit_test(a_part_that_comes_to_a_held_chunk_is_not_evictable),
		cmocka_unit_test(a_chunk_whose_objects_lie_in_the_way_several_times_goes_once),
		cmocka_unit_test(the_background_evicts_from_the_high_mark_to_the_low_mark),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
