/* The cache: staging and publishing, spaces, holds, what complete means. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/log.h"
#include "tier/store.h"

static void creation_survives_the_failure_of_each_allocation(void **state)
{
	struct l1_area area = area_reserve(1 << 20);
	struct cache_options options = {
		.spaces_max = 4, .chunks_initial = 100, .high_permille = 900, .low_permille = 800
	};
	struct cache_tuning tuning = { .slab_shift = 9 };
	struct cache *cache = NULL;
	uint64_t n;

	(void)state;
	assert_int_equal(l1_create(&area, 1, &options.l1), 0);
	for (n = 1;; n++) {
		int rc;

		fault_arm(n);
		rc = cache_create_tuned(&options, &tuning, &cache);
		if (!fault_fired()) {
			assert_int_equal(rc, 0);
			break;
		}
		assert_true(rc < 0);
		assert_null(cache);
	}
	fault_arm(0);
	assert_true(n > 8);
	cache_destroy(&cache);
	l1_destroy(&options.l1);
	area_release(&area);
}

static void options_that_make_no_sense_are_refused(void **state)
{
	struct l1_area area = area_reserve(1 << 20);
	struct cache_options good = {
		.spaces_max = 4, .chunks_initial = 100, .high_permille = 900, .low_permille = 800
	};
	struct cache_options bad;
	struct cache *cache = NULL;

	(void)state;
	assert_int_equal(cache_create(&good, &cache), -EINVAL);
	assert_int_equal(l1_create(&area, 1, &good.l1), 0);
	bad = good;
	bad.spaces_max = 0;
	assert_int_equal(cache_create(&bad, &cache), -EINVAL);
	bad = good;
	bad.low_permille = 901;
	assert_int_equal(cache_create(&bad, &cache), -EINVAL);
	bad = good;
	bad.high_permille = 1001;
	assert_int_equal(cache_create(&bad, &cache), -EINVAL);
	assert_null(cache);
	l1_destroy(&good.l1);
	area_release(&area);
}

/* pitfalls A13, A14 */
static void a_chunk_is_there_from_its_publishing_on_and_not_before(void **state)
{
	struct store store;
	uint8_t digest[CACHE_DIGEST_BYTES];
	uint32_t entry;
	l1_ref object;

	(void)state;
	store_init(&store, 65536, 16, 1, NULL);
	store_digest(7, digest);
	object = cache_reserve(store.cache, 0, store.object_class, 0, 0);
	assert_int_equal(store_find(&store, store.space, 7), CACHE_NONE);
	assert_int_equal(cache_match(store.cache, store.space, digest, 1, &entry), 0);
	assert_int_equal(store_stats(&store).staged, 1);
	assert_int_equal(store_stats(&store).staged_bytes, 65536);
	assert_int_equal(cache_publish(store.cache, store.space, digest, 0, object, &entry), 0);
	assert_int_equal(store_find(&store, store.space, 7), entry);
	assert_int_equal(cache_object(store.cache, entry, 0), object);
	assert_int_equal(l1_owner(store.l1, object), entry);
	assert_int_equal(store_stats(&store).staged, 0);
	assert_int_equal(store_stats(&store).resident_bytes, 65536);
	store_fini(&store);
}

/* pitfalls A14: eight writers of one chunk at once. */
static void of_many_writers_the_first_to_publish_wins_and_nothing_leaks(void **state)
{
	struct store store;
	uint8_t digest[CACHE_DIGEST_BYTES];
	l1_ref objects[8];
	uint32_t entry, other;

	(void)state;
	store_init(&store, 65536, 16, 1, NULL);
	store_digest(7, digest);
	for (int i = 0; i < 8; i++)
		objects[i] = cache_reserve(store.cache, 0, store.object_class, 0, 0);
	assert_int_equal(cache_publish(store.cache, store.space, digest, 0, objects[5], &entry), 0);
	for (int i = 0; i < 8; i++) {
		if (i == 5)
			continue;
		assert_int_equal(cache_publish(store.cache, store.space, digest, 0, objects[i], &other), -EEXIST);
		assert_int_equal(other, entry);
	}
	assert_int_equal(cache_object(store.cache, entry, 0), objects[5]);
	assert_int_equal(store_stats(&store).objects, 1);
	assert_int_equal(store_stats(&store).resident_bytes, 65536);
	assert_int_equal(cache_get_counters(store.cache)->published, 1);
	assert_int_equal(cache_get_counters(store.cache)->present, 7);
	store_fini(&store);
}

/* pitfalls A11, A12: ten reserved, six filled, four aborted. */
static void an_aborted_object_was_never_there(void **state)
{
	struct store store;
	l1_ref objects[10];

	(void)state;
	store_init(&store, 65536, 16, 1, NULL);
	for (int i = 0; i < 10; i++)
		objects[i] = cache_reserve(store.cache, 0, store.object_class, 0, 0);
	for (int i = 0; i < 10; i++) {
		uint8_t digest[CACHE_DIGEST_BYTES];
		uint32_t entry;

		store_digest((uint64_t)i, digest);
		if (i < 6)
			assert_int_equal(cache_publish(store.cache, store.space, digest, 0, objects[i], &entry), 0);
		else
			cache_abort(store.cache, objects[i]);
		assert_int_equal(store_find(&store, store.space, (uint64_t)i) != CACHE_NONE, i < 6);
	}
	assert_int_equal(l1_class_room(store.l1, store.object_class), 10);
	assert_int_equal(cache_get_counters(store.cache)->aborted, 4);
	assert_int_equal(store_stats(&store).staged, 0);
	store_fini(&store);
}

static void a_chunk_is_complete_with_the_objects_of_all_parts(void **state)
{
	struct store store;
	uint8_t digest[CACHE_DIGEST_BYTES];
	uint32_t entry = 0;

	(void)state;
	store_init(&store, 4096, 512, CACHE_PARTS_MAX, NULL);
	store_digest(3, digest);
	for (uint32_t part = 0; part < CACHE_PARTS_MAX; part++) {
		uint32_t matched;

		/* 37 is odd: all parts, in another order. */
		entry = store_put(&store, store.space, 3, part * 37 % CACHE_PARTS_MAX);
		assert_int_equal(cache_complete(store.cache, entry), part == CACHE_PARTS_MAX - 1);
		assert_int_equal(
			cache_match(store.cache, store.space, digest, 1, &matched), part == CACHE_PARTS_MAX - 1);
		assert_int_equal(cache_verify(store.cache, true), 0);
	}
	assert_int_equal(store_stats(&store).chunks, 1);
	assert_int_equal(store_stats(&store).objects, CACHE_PARTS_MAX);
	assert_int_equal(cache_object(store.cache, entry, CACHE_PARTS_MAX), 0);
	store_fini(&store);
}

static void a_match_ends_at_the_first_chunk_that_lacks_anything(void **state)
{
	struct store store;
	uint8_t *digests = malloc((size_t)4096 * CACHE_DIGEST_BYTES);
	uint32_t *entries = malloc(4096 * sizeof(*entries));
	static const uint32_t counts[] = { 0, 1, 2, 11, 12, 13, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 100,
		512, 4096 };

	(void)state;
	store_init(&store, 4096, 8192, 2, NULL);
	for (uint32_t i = 0; i < 4096; i++) {
		store_digest(i, digests + (size_t)i * CACHE_DIGEST_BYTES);
		store_put(&store, store.space, i, 1);
		if (i != 600 && i != 0)
			store_put(&store, store.space, i, 0);
		store_feed(&store);
	}
	assert_int_equal(cache_match(store.cache, store.space, digests, 4096, entries), 0);
	store_put(&store, store.space, 0, 0);
	for (uint32_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		uint32_t matched = cache_match(store.cache, store.space, digests, counts[i], entries);

		assert_int_equal(matched, counts[i] < 600 ? counts[i] : 600);
		for (uint32_t j = 0; j < matched; j++)
			assert_int_equal(entries[j], store_find(&store, store.space, j));
		memset(entries, 0, 4096 * sizeof(*entries));
	}
	store_put(&store, store.space, 600, 0);
	assert_int_equal(cache_match(store.cache, store.space, digests, 4096, entries), 4096);
	store_fini(&store);
	free(entries);
	free(digests);
}

/* pitfalls E05, E06, F01: adapters, dtypes and tenants are models and salts here. */
static void equal_digests_in_different_spaces_are_different_chunks(void **state)
{
	struct store store;
	uint32_t spaces[4];

	(void)state;
	store_init(&store, 65536, 16, 1, NULL);
	spaces[0] = store.space;
	spaces[1] = store_space(&store, 1, 'a', 1);
	spaces[2] = store_space(&store, 1, 'b', 1);
	spaces[3] = store_space(&store, 2, 0, 1);
	store_put(&store, spaces[1], 5, 0);
	assert_int_equal(store_find(&store, spaces[0], 5), CACHE_NONE);
	assert_int_equal(store_find(&store, spaces[2], 5), CACHE_NONE);
	assert_int_equal(store_find(&store, spaces[3], 5), CACHE_NONE);
	for (int i = 0; i < 4; i++) {
		if (i != 1)
			store_put(&store, spaces[i], 5, 0);
		assert_int_not_equal(store_find(&store, spaces[i], 5), CACHE_NONE);
	}
	assert_int_equal(store_stats(&store).chunks, 4);
	assert_int_equal(cache_model_chunks(store.cache, 1), 3);
	assert_int_equal(cache_model_chunks(store.cache, 2), 1);
	assert_int_equal(cache_model_chunks(store.cache, 3), 0);
	store_fini(&store);
}

static bool every(void *context, uint32_t model)
{
	(void)model;
	return context == NULL;
}

static void clear_all(struct store *store, uint64_t *dropped, uint64_t *kept)
{
	uint32_t cursor = 0;

	*dropped = 0;
	*kept = 0;
	while (!cache_clear_step(store->cache, every, NULL, &cursor, 5, dropped, kept))
		;
}

static void a_space_lives_while_it_is_referenced_or_has_chunks(void **state)
{
	struct store store;
	uint8_t salt[32] = { 's' };
	uint64_t dropped, kept;
	uint32_t space;

	(void)state;
	store_init(&store, 65536, 16, 1, NULL);
	space = store_space(&store, 9, 's', 1);
	assert_int_equal(store_space(&store, 9, 's', 1), space);
	assert_int_equal(cache_space_acquire(store.cache, 9, salt, 2), CACHE_NONE);
	assert_int_equal(cache_space_acquire(store.cache, 9, salt, 0), CACHE_NONE);
	assert_int_equal(cache_space_acquire(store.cache, 10, salt, CACHE_PARTS_MAX + 1), CACHE_NONE);
	store_put(&store, space, 1, 0);
	cache_space_release(store.cache, space);
	cache_space_release(store.cache, space);
	assert_int_equal(store_stats(&store).spaces, 2);
	/* Whoever comes back finds what it stored. */
	assert_int_equal(store_space(&store, 9, 's', 1), space);
	assert_int_not_equal(store_find(&store, space, 1), CACHE_NONE);
	cache_space_release(store.cache, space);
	clear_all(&store, &dropped, &kept);
	assert_int_equal(dropped, 1);
	assert_int_equal(store_stats(&store).spaces, 1);
	assert_int_equal(cache_model_chunks(store.cache, 9), 0);
	/* The number is used again, for a space that has nothing of the old one. */
	space = store_space(&store, 11, 't', 3);
	assert_int_equal(store_find(&store, space, 1), CACHE_NONE);
	store_fini(&store);
}

static void spaces_run_out_with_an_answer(void **state)
{
	struct store store;
	uint8_t salt[32] = { 0 };

	(void)state;
	store_init(&store, 65536, 16, 1, NULL);
	for (uint32_t model = 2; model <= 8; model++)
		store_space(&store, model, 0, 1);
	assert_int_equal(cache_space_acquire(store.cache, 9, salt, 1), CACHE_NONE);
	assert_int_not_equal(cache_space_acquire(store.cache, 8, salt, 1), CACHE_NONE);
	store_fini(&store);
}

static void holds_are_counted_and_the_last_one_makes_a_chunk_evictable(void **state)
{
	struct store store;
	uint64_t dropped, kept;
	uint32_t entry;

	(void)state;
	store_init(&store, 65536, 4, 1, NULL);
	entry = store_put(&store, store.space, 1, 0);
	cache_lock(store.cache, entry, 0);
	cache_unlock(store.cache, entry, 0);
	assert_int_equal(store_stats(&store).held_chunks, 0);
	cache_lock(store.cache, entry, 3);
	cache_pin(store.cache, entry);
	cache_pin(store.cache, entry);
	cache_lock(store.cache, entry, 1);
	assert_int_equal(store_stats(&store).locks, 4);
	assert_int_equal(store_stats(&store).pins, 2);
	assert_int_equal(store_stats(&store).held_chunks, 1);
	cache_unlock(store.cache, entry, 4);
	cache_touch(store.cache, entry);
	cache_unpin(store.cache, entry);
	assert_int_equal(cache_verify(store.cache, false), 0);
	clear_all(&store, &dropped, &kept);
	assert_int_equal(dropped, 0);
	assert_int_equal(kept, 1);
	assert_int_equal(cache_verify(store.cache, true), -EILSEQ);
	cache_unpin(store.cache, entry);
	assert_int_equal(store_stats(&store).held_chunks, 0);
	clear_all(&store, &dropped, &kept);
	assert_int_equal(dropped, 1);
	assert_int_equal(store_find(&store, store.space, 1), CACHE_NONE);
	store_fini(&store);
}

#define CHAIN 8

/* Chunks 0 to 7, held in different ways: 2 and 5 temporary, 3 pinned, 6 locked once more. */
static void hold_a_chain(struct store *store, uint32_t entries[CHAIN])
{
	store_init(store, 65536, CHAIN, 1, NULL);
	for (uint32_t i = 0; i < CHAIN; i++)
		entries[i] = store_put(store, store->space, i, 0);
	cache_lock_all(store->cache, entries, CHAIN, 2);
	cache_make_temporary(store->cache, entries[2]);
	cache_make_temporary(store->cache, entries[5]);
	cache_pin(store->cache, entries[3]);
	cache_lock(store->cache, entries[6], 1);
}

/* Lets go of what is still held, and takes one after the other: the order in which they went. */
static void order_of_a_chain(struct store *store, const uint32_t entries[CHAIN], uint32_t order[CHAIN])
{
	l1_ref objects[CHAIN];

	assert_int_equal(store_stats(store).locks, 1);
	assert_int_equal(store_stats(store).held_chunks, 2);
	assert_int_equal(cache_verify(store->cache, false), 0);
	cache_unpin(store->cache, entries[3]);
	cache_unlock_all(store->cache, &entries[6], 1, 1);
	assert_int_equal(cache_verify(store->cache, true), 0);
	for (uint32_t n = 0; n < CHAIN; n++) {
		bool there[CHAIN];

		for (uint64_t i = 0; i < CHAIN; i++)
			there[i] = store_find(store, store->space, i) != CACHE_NONE;
		objects[n] = cache_reserve(store->cache, 0, store->object_class, 0, 1);
		assert_int_not_equal(objects[n], 0);
		for (uint32_t i = 0; i < CHAIN; i++) {
			if (there[i] && store_find(store, store->space, i) == CACHE_NONE)
				order[n] = i;
		}
	}
	for (uint32_t n = 0; n < CHAIN; n++)
		cache_abort(store->cache, objects[n]);
	store_fini(store);
}

static void unlocking_many_is_unlocking_each_from_the_last_on(void **state)
{
	uint32_t entries[CHAIN], each[CHAIN], many[CHAIN];
	struct store store;

	(void)state;
	hold_a_chain(&store, entries);
	for (uint32_t i = CHAIN; i > 0; i--)
		cache_unlock(store.cache, entries[i - 1], 2);
	order_of_a_chain(&store, entries, each);
	hold_a_chain(&store, entries);
	cache_unlock_all(store.cache, entries, 0, 2);
	cache_unlock_all(store.cache, entries, CHAIN, 0);
	cache_unlock_all(store.cache, entries, CHAIN, 2);
	order_of_a_chain(&store, entries, many);
	assert_memory_equal(each, many, sizeof(each));
	assert_int_equal(many[0], 5); /* what is temporary, the end of the chain first; then the end of the rest */
	assert_int_equal(many[1], 2);
	assert_int_equal(many[2], 7);
}

static bool is_two(void *context, uint32_t model)
{
	(void)context;
	return model == 2;
}

static void clearing_takes_only_the_models_that_are_wanted(void **state)
{
	struct store store;
	uint64_t dropped = 0, kept = 0;
	uint32_t cursor = 0;
	uint32_t steps = 1;
	uint32_t space;

	(void)state;
	store_init(&store, 65536, 16, 1, NULL);
	space = store_space(&store, 2, 0, 1);
	for (uint64_t i = 0; i < 6; i++) {
		store_put(&store, store.space, i, 0);
		store_put(&store, space, i, 0);
	}
	cache_lock(store.cache, store_find(&store, space, 3), 1);
	while (!cache_clear_step(store.cache, is_two, NULL, &cursor, 4, &dropped, &kept))
		steps++;
	assert_true(steps >= 3);
	assert_int_equal(dropped, 5);
	assert_int_equal(kept, 1);
	assert_int_equal(cache_get_counters(store.cache)->cleared_chunks, 5);
	for (uint64_t i = 0; i < 6; i++) {
		assert_int_not_equal(store_find(&store, store.space, i), CACHE_NONE);
		assert_int_equal(store_find(&store, space, i) != CACHE_NONE, i == 3);
	}
	cache_unlock(store.cache, store_find(&store, space, 3), 1);
	store_fini(&store);
}

static void drop_line(void *context, enum log_level level, const char *line)
{
	(void)level;
	(void)line;
	++*(int *)context;
}

/* A check that never fails checks nothing. */
static void verify_notices_what_is_wrong(void **state)
{
	struct store store;
	struct cache_entry *entry;
	int lines = 0;

	(void)state;
	store_init(&store, 65536, 16, 2, NULL);
	entry = cache_entry_at(store.cache, store_put(&store, store.space, 1, 0));
	assert_int_equal(cache_verify(store.cache, true), 0);
	log_set_sink(drop_line, &lines);
	entry->absent++;
	assert_int_equal(cache_verify(store.cache, true), -EILSEQ);
	entry->absent--;
	entry->digest[3] ^= 1;
	assert_int_equal(cache_verify(store.cache, true), -EILSEQ);
	entry->digest[3] ^= 1;
	store.cache->evictable_units++;
	assert_int_equal(cache_verify(store.cache, true), -EILSEQ);
	store.cache->evictable_units--;
	entry->stamp += 100;
	assert_int_equal(cache_verify(store.cache, true), -EILSEQ);
	entry->stamp -= 100;
	store.cache->staged++;
	assert_int_equal(cache_verify(store.cache, true), -EILSEQ);
	store.cache->staged--;
	l1_set_owner(store.l1, cache_object(store.cache, store_find(&store, store.space, 1), 0), 77);
	assert_int_equal(cache_verify(store.cache, true), -EILSEQ);
	l1_set_owner(store.l1, cache_object(store.cache, store_find(&store, store.space, 1), 0),
		store_find(&store, store.space, 1));
	assert_int_equal(lines, 6);
	log_set_sink(NULL, NULL);
	store_fini(&store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(creation_survives_the_failure_of_each_allocation),
		cmocka_unit_test(options_that_make_no_sense_are_refused),
		cmocka_unit_test(a_chunk_is_there_from_its_publishing_on_and_not_before),
		cmocka_unit_test(of_many_writers_the_first_to_publish_wins_and_nothing_leaks),
		cmocka_unit_test(an_aborted_object_was_never_there),
		cmocka_unit_test(a_chunk_is_complete_with_the_objects_of_all_parts),
		cmocka_unit_test(a_match_ends_at_the_first_chunk_that_lacks_anything),
		cmocka_unit_test(equal_digests_in_different_spaces_are_different_chunks),
		cmocka_unit_test(a_space_lives_while_it_is_referenced_or_has_chunks),
		cmocka_unit_test(spaces_run_out_with_an_answer),
		cmocka_unit_test(holds_are_counted_and_the_last_one_makes_a_chunk_evictable),
		cmocka_unit_test(unlocking_many_is_unlocking_each_from_the_last_on),
		cmocka_unit_test(clearing_takes_only_the_models_that_are_wanted),
		cmocka_unit_test(verify_notices_what_is_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
