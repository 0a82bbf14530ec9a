/* The cache's own memory: growing while it is used, memory that does not come, equal hashes, bytes per object. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/random.h"
#include "tier/store.h"

static const struct cache_tuning small = { .slab_shift = 9, .buckets = 1 };

static int try_put(struct store *store, uint64_t chunk, uint32_t part)
{
	l1_ref object = cache_reserve(store->cache, 0, store->object_class, 0, 0);
	uint8_t digest[CACHE_DIGEST_BYTES];
	uint32_t entry;
	int rc;

	assert_int_not_equal(object, 0);
	store_digest(chunk, digest);
	rc = cache_publish(store->cache, store->space, digest, part, object, &entry);
	if (rc)
		cache_abort(store->cache, object);
	return rc;
}

static void every_chunk_is_found_at_every_moment_of_growing(void **state)
{
	struct store store;
	struct cache_tuning tuning = small;
	uint32_t grown = 0;

	(void)state;
	store_init(&store, 4096, 4096, 1, &tuning);
	for (uint64_t i = 0; i < 3000; i++) {
		store_put(&store, store.space, i, 0);
		store_feed(&store);
		grown += store.cache->old.buckets != NULL;
		if (i < 300 || i % 97 == 0)
			for (uint64_t j = 0; j <= i + 3; j++)
				assert_int_equal(store_find(&store, store.space, j) != CACHE_NONE, j <= i);
		if (i % 61 == 0)
			assert_int_equal(cache_verify(store.cache, true), 0);
	}
	assert_true(grown > 100);
	assert_int_equal(cache_get_counters(store.cache)->grown, 9);
	store_fini(&store);
}

static void a_lookup_crosses_an_unfinished_growth(void **state)
{
	struct store store;
	static uint8_t digests[512][CACHE_DIGEST_BYTES];
	static uint32_t entries[512];
	uint32_t count = 0;

	(void)state;
	store_init(&store, 4096, 4096, 1, &small);
	for (uint64_t i = 0; i < 512; i++)
		store_digest(i, digests[i]);
	while (count < 200 || !store.cache->old.buckets || store.cache->old.first < 5) {
		store_put(&store, store.space, count++, 0);
		store_feed(&store);
	}
	assert_true(store.cache->old.used > 0 && store.cache->table.used > 0);
	assert_int_equal(cache_match(store.cache, store.space, digests[0], 512, entries), count);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(entries[i], store_find(&store, store.space, i));
	store_fini(&store);
}

static void without_memory_for_growing_publishing_says_so_and_goes_on_later(void **state)
{
	struct store store;
	uint64_t i = 0;
	uint64_t bytes;
	void *memory;
	int rc;

	(void)state;
	store_init(&store, 4096, 4096, 1, &small);
	while ((rc = try_put(&store, i, 0)) == 0)
		i++;
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(i, 8); /* one bucket */
	assert_int_equal(store_stats(&store).staged, 0);
	bytes = cache_wants_memory(store.cache);
	assert_int_equal(bytes, 2 * sizeof(struct table_bucket));
	cache_supply_memory(store.cache, NULL, bytes);
	assert_int_equal(cache_wants_memory(store.cache), bytes);
	assert_int_equal(try_put(&store, i, 0), -ENOSPC);
	/* Memory of a size that nobody wants any more comes back as garbage. */
	cache_supply_memory(store.cache, cache_allocate_memory(64 * 64), 64 * 64);
	memory = cache_take_garbage(store.cache);
	assert_non_null(memory);
	free(memory);
	assert_null(cache_take_garbage(store.cache));
	cache_supply_memory(store.cache, cache_allocate_memory(bytes), bytes);
	assert_int_equal(try_put(&store, i, 0), 0);
	for (uint64_t j = 0; j <= i; j++)
		assert_int_not_equal(store_find(&store, store.space, j), CACHE_NONE);
	store_fini(&store);
}

static void a_table_that_cannot_grow_is_filled_to_fifteen_sixteenths(void **state)
{
	struct cache_tuning tuning = { .slab_shift = 9, .buckets = 16 };
	struct store store;
	uint64_t i = 0;

	(void)state;
	store_init(&store, 4096, 512, 1, &tuning);
	for (; i < 96; i++) {
		assert_int_equal(cache_wants_memory(store.cache), 0);
		assert_int_equal(try_put(&store, i, 0), 0);
	}
	assert_int_equal(cache_wants_memory(store.cache), 32 * sizeof(struct table_bucket));
	while (try_put(&store, i, 0) == 0)
		i++;
	assert_int_equal(i, 120);
	store_fini(&store);
}

static void slabs_run_out_and_are_supplied(void **state)
{
	struct cache_tuning tuning = { .slab_shift = 9, .buckets = 4096 };
	struct store store;
	uint64_t slab = sizeof(struct cache_entry) << 9;
	uint64_t i = 0;

	(void)state;
	store_init(&store, 4096, 20000, 3, &tuning);
	/* One slab holds the first entries, the spare one becomes the first of part lists. */
	assert_int_equal(cache_wants_memory(store.cache), 0);
	assert_int_equal(try_put(&store, i++, 0), 0);
	assert_int_equal(cache_wants_memory(store.cache), slab);
	while (try_put(&store, i, 1) == 0)
		i++;
	assert_int_equal(i, (1 << 9) - store.cache->entries.heads);
	cache_supply_memory(store.cache, cache_allocate_memory(slab), slab);
	assert_int_equal(try_put(&store, i++, 2), 0);
	assert_int_equal(cache_wants_memory(store.cache), slab);
	store_feed(&store);
	for (; i < 3000; i++) {
		assert_int_equal(try_put(&store, i, 2), 0);
		store_feed(&store);
	}
	assert_int_equal(cache_verify(store.cache, true), 0);
	store_fini(&store);
}

static bool every(void *context, uint32_t model)
{
	(void)context;
	(void)model;
	return true;
}

/* Part lists of one size must not keep the memory that those of another need. */
static void slabs_of_part_lists_come_back_when_they_are_empty(void **state)
{
	struct store store;
	uint64_t most = 0;

	(void)state;
	store_init(&store, 4096, 20000, 2, &small);
	for (uint32_t round = 0; round < 8; round++) {
		uint32_t parts = 2u << round;
		uint64_t dropped = 0, kept = 0;
		uint32_t cursor = 0;

		cache_space_release(store.cache, store.space);
		store.space = store_space(&store, 100 + round, 0, parts);
		for (uint64_t i = 0; i < 1000; i++) {
			store_put(&store, store.space, i, parts - 1);
			store_feed(&store);
		}
		assert_int_equal(cache_verify(store.cache, true), 0);
		while (!cache_clear_step(store.cache, every, NULL, &cursor, 100, &dropped, &kept))
			;
		assert_int_equal(dropped, 1000);
		store_feed(&store);
		/* What stays: the entries, the buckets, a slab for each size, and the spare one. */
		most = round == 0 ? store_stats(&store).table_bytes : most;
		assert_true(
			store_stats(&store).table_bytes <= most + round * entries_slab_bytes(&store.cache->entries));
	}
	store_fini(&store);
}

/* pitfalls E09: every hash is the same one. */
static void equal_hashes_cost_time_and_never_a_wrong_answer(void **state)
{
	struct cache_tuning tuning = { .same_hash = true, .slab_shift = 9, .buckets = 1 };
	struct store store;
	struct random random;

	(void)state;
	store_init(&store, 4096, 1024, 1, &tuning);
	random_init(&random, 5);
	for (uint64_t i = 0; i < 400; i++) {
		store_put(&store, store.space, i, 0);
		store_feed(&store);
	}
	for (uint64_t i = 0; i < 400; i++) {
		uint8_t digest[CACHE_DIGEST_BYTES];
		uint32_t entry = store_find(&store, store.space, i);
		uint64_t words[4];

		store_digest(i, digest);
		memcpy(words, digest, sizeof(words));
		assert_memory_equal(cache_entry_at(store.cache, entry)->digest, words, sizeof(words));
		assert_int_equal(store_find(&store, store.space, 1000 + i), CACHE_NONE);
	}
	/* Out of the middle of the one long row, in any order. */
	for (int i = 0; i < 300; i++) {
		uint32_t entry = store_find(&store, store.space, random_below(&random, 400));

		if (entry != CACHE_NONE)
			cache_evict_entry(store.cache, entry);
		assert_int_equal(table_verify(&store.cache->table) || table_verify(&store.cache->old), 0);
	}
	assert_true(cache_get_counters(store.cache)->collisions > 0);
	store_fini(&store);
}

/* One bit apart, in each of the 256, and in one bucket row: only the whole key tells them apart. */
static void keys_that_differ_in_one_bit_are_different_chunks(void **state)
{
	struct cache_tuning tuning = { .same_hash = true, .slab_shift = 9, .buckets = 64 };
	struct store store;
	uint32_t entries[257];

	(void)state;
	store_init(&store, 4096, 512, 1, &tuning);
	store_feed(&store);
	for (uint32_t bit = 0; bit <= 256; bit++) {
		uint8_t digest[CACHE_DIGEST_BYTES] = { 0 };
		l1_ref object = cache_reserve(store.cache, 0, store.object_class, 0, 0);

		if (bit < 256)
			digest[bit / 8] = (uint8_t)(1 << bit % 8);
		assert_int_equal(cache_publish(store.cache, store.space, digest, 0, object, &entries[bit]), 0);
		store_feed(&store);
		for (uint32_t other = 0; other < bit; other++)
			assert_int_not_equal(entries[bit], entries[other]);
	}
	store_fini(&store);
}

/* All that the cache and L1 keep for it; the objects' own bytes excepted. */
static double bytes_per_object(uint32_t parts)
{
	struct store store;
	struct l1_stats l1_stats;
	struct cache_stats stats;
	const uint64_t objects = 1000000;

	store_init(&store, 4096, objects + 4, parts, NULL);
	for (uint64_t i = 0; i < objects; i++) {
		store_put(&store, store.space, i / parts, (uint32_t)(i % parts));
		store_feed(&store);
	}
	stats = store_stats(&store);
	l1_get_stats(store.l1, &l1_stats);
	assert_int_equal(stats.objects, objects);
	cache_destroy(&store.cache);
	l1_destroy(&store.l1);
	area_release(&store.area);
	print_message("%u parts: %.1f bytes an object in the table, %.1f in L1\n", parts,
		(double)stats.table_bytes / objects, (double)l1_stats.metadata_bytes / objects);
	return (double)(stats.table_bytes + l1_stats.metadata_bytes) / objects;
}

static void an_object_costs_less_than_two_hundred_bytes(void **state)
{
	(void)state;
	assert_true(bytes_per_object(1) < 200);
	assert_true(bytes_per_object(8) < 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_chunk_is_found_at_every_moment_of_growing),
		cmocka_unit_test(a_lookup_crosses_an_unfinished_growth),
		cmocka_unit_test(without_memory_for_growing_publishing_says_so_and_goes_on_later),
		cmocka_unit_test(a_table_that_cannot_grow_is_filled_to_fifteen_sixteenths),
		cmocka_unit_test(slabs_run_out_and_are_supplied),
		cmocka_unit_test(slabs_of_part_lists_come_back_when_they_are_empty),
		cmocka_unit_test(equal_hashes_cost_time_and_never_a_wrong_answer),
		cmocka_unit_test(keys_that_differ_in_one_bit_are_different_chunks),
		cmocka_unit_test(an_object_costs_less_than_two_hundred_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
