/* The reference against a second, slower model (a plain list), and the stated order of use case by case; stale
 * copies. */
#include "app/kvrail-bench/reference.h"

#include <errno.h>
#include <string.h>

#include "app/kvrail-bench/generation.h"
#include "base/cmocka_all.h"
#include "base/random.h"

static struct reference *make(uint64_t capacity)
{
	struct reference *reference;

	assert_int_equal(reference_create(capacity, &reference), 0);
	return reference;
}

static void run(struct reference *reference, const uint64_t *chunks, uint32_t count)
{
	uint32_t hit = reference_lookup(reference, chunks, count);

	reference_retrieve(reference, chunks, 0, hit);
	reference_store(reference, chunks, hit, count - hit);
	reference_end(reference, chunks, count);
}

static void late_chunks_of_a_chain_go_first(void **state)
{
	const uint64_t a[] = { 1, 2, 3, 4 }, b[] = { 5, 6 };
	struct reference *reference = make(4);

	(void)state;
	run(reference, a, 4);
	run(reference, b, 2);
	assert_int_equal(reference_lookup(reference, a, 4), 2);
	assert_int_equal(reference_lookup(reference, b, 2), 2);
	assert_int_equal(reference_count(reference), 4);
	reference_destroy(&reference);
	assert_null(reference);
}

static void what_is_retrieved_outlives_what_is_not(void **state)
{
	const uint64_t a[] = { 1, 2 }, b[] = { 3, 4 }, c[] = { 5, 6 };
	struct reference *reference = make(4);

	(void)state;
	run(reference, a, 2);
	run(reference, b, 2);
	run(reference, a, 2);
	run(reference, c, 2);
	assert_int_equal(reference_lookup(reference, a, 2), 2);
	assert_int_equal(reference_lookup(reference, b, 2), 0);
	reference_destroy(&reference);
}

static void a_range_that_cannot_fit_takes_nothing_away(void **state)
{
	const uint64_t a[] = { 1, 2 }, b[] = { 11, 12, 13, 14, 15 };
	struct reference *reference = make(4);

	(void)state;
	run(reference, a, 2);
	assert_int_equal(reference_store(reference, b, 0, 5), 0);
	assert_int_equal(reference_lookup(reference, a, 2), 2);
	assert_int_equal(reference_store(reference, b, 0, 4), 4);
	assert_int_equal(reference_lookup(reference, a, 2), 0);
	reference_destroy(&reference);
}

static void chunks_of_the_range_are_not_taken_for_its_others(void **state)
{
	const uint64_t chain[] = { 1, 2, 3, 4 }, other[] = { 9 };
	struct reference *reference = make(4);

	(void)state;
	run(reference, chain, 4);
	run(reference, other, 1); /* takes 4, the last of the chain */
	assert_int_equal(reference_store(reference, chain, 0, 4), 4);
	assert_int_equal(reference_lookup(reference, other, 1), 0);
	reference_destroy(&reference);
}

/* ---- the slow model: position 0 is the most recently used ---- */

#define SLOW_CAPACITY 37
static uint64_t slow[SLOW_CAPACITY];
static uint32_t slow_count;

static int slow_find(uint64_t chunk)
{
	for (uint32_t i = 0; i < slow_count; i++) {
		if (slow[i] == chunk)
			return (int)i;
	}
	return -1;
}

static void slow_remove(uint32_t at)
{
	memmove(&slow[at], &slow[at + 1], (--slow_count - at) * sizeof(slow[0]));
}

static void slow_front(uint64_t chunk)
{
	memmove(&slow[1], &slow[0], slow_count++ * sizeof(slow[0]));
	slow[0] = chunk;
}

static void slow_touch(uint64_t chunk)
{
	int at = slow_find(chunk);

	if (at >= 0) {
		slow_remove((uint32_t)at);
		slow_front(chunk);
	}
}

static bool slow_in(const uint64_t *chunks, uint32_t count, uint64_t chunk)
{
	for (uint32_t i = 0; i < count; i++) {
		if (chunks[i] == chunk)
			return true;
	}
	return false;
}

static void slow_store(const uint64_t *chunks, uint32_t count)
{
	bool there[64];

	if (count > SLOW_CAPACITY) {
		for (uint32_t i = count; i > 0; i--)
			slow_touch(chunks[i - 1]);
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		there[i] = slow_find(chunks[i]) >= 0;
	for (uint32_t i = 0; i < count; i++) {
		if (there[i])
			continue;
		if (slow_count == SLOW_CAPACITY) {
			uint32_t victim = slow_count - 1;

			while (slow_in(chunks, count, slow[victim]))
				victim--;
			slow_remove(victim);
		}
		slow_front(chunks[i]);
	}
	for (uint32_t i = count; i > 0; i--)
		slow_touch(chunks[i - 1]);
}

static void random_chains_are_answered_as_the_slow_model_does(void **state)
{
	struct reference *reference = make(SLOW_CAPACITY);
	struct random random;
	uint64_t chain[45];

	(void)state;
	random_init(&random, 11);
	slow_count = 0;
	for (unsigned round = 0; round < 5000; round++) {
		uint32_t count = (uint32_t)random_below(&random, KVR_COUNT_OF(chain)) + 1;
		uint64_t family = random_below(&random, 6);
		uint32_t branch = (uint32_t)random_below(&random, count), hit = 0;

		for (uint32_t i = 0; i < count; i++)
			chain[i] = family * 1000 + i + (i > branch ? 100 * (1 + round % 3) : 0);
		while (hit < count && slow_find(chain[hit]) >= 0)
			hit++;
		assert_int_equal(reference_lookup(reference, chain, count), hit);
		for (uint32_t i = hit; i > 0; i--)
			slow_touch(chain[i - 1]);
		slow_store(chain + hit, count - hit);
		for (uint32_t i = count; i > 0; i--)
			slow_touch(chain[i - 1]);
		run(reference, chain, count);
		assert_int_equal(reference_count(reference), slow_count);
	}
	for (uint32_t i = 0; i < slow_count; i++)
		assert_int_equal(reference_lookup(reference, &slow[i], 1), 1);
	reference_destroy(&reference);
}

static void capacities_without_sense_are_refused(void **state)
{
	struct reference *reference;

	(void)state;
	assert_int_equal(reference_create(0, &reference), -EINVAL);
	assert_int_equal(reference_create((UINT64_C(1) << 30) + 1, &reference), -EINVAL);
}

/* ---- generations ---- */

static struct generations *generations;

static int generations_setup(void **state)
{
	(void)state;
	return generations_create(2, &generations);
}

static int generations_teardown(void **state)
{
	(void)state;
	generations_destroy(&generations);
	return 0;
}

static uint64_t floor_of(uint64_t chunk, uint32_t rank)
{
	uint64_t floor = UINT64_MAX;

	generations_floors(generations, &chunk, 1, rank, &floor);
	return floor;
}

static uint64_t store(uint64_t chunk, uint32_t rank)
{
	uint64_t generation = generations_begin(generations, 0);

	assert_int_equal(generations_stored(generations, chunk, rank, generation), 0);
	generations_end(generations, 0);
	return generation;
}

static void a_copy_that_was_stored_again_is_stale(void **state)
{
	uint64_t first = store(1, 0), second;

	(void)state;
	assert_true(floor_of(1, 0) < first);
	second = store(1, 0);
	assert_true(floor_of(1, 0) >= first);
	assert_true(floor_of(1, 0) < second);
	assert_true(generations_ceiling(generations) > second);
	assert_int_equal(floor_of(1, 1), 0); /* of another rank */
	assert_int_equal(floor_of(2, 0), 0);
}

static void copies_that_overlap_are_both_good(void **state)
{
	uint64_t a = generations_begin(generations, 0);
	uint64_t b = generations_begin(generations, 1);

	(void)state;
	assert_int_equal(generations_stored(generations, 1, 0, b), 0);
	generations_end(generations, 1);
	assert_int_equal(generations_stored(generations, 1, 0, a), 0);
	generations_end(generations, 0);
	assert_true(floor_of(1, 0) < a);
}

static void a_store_under_way_may_still_come(void **state)
{
	uint64_t late = generations_begin(generations, 1);

	(void)state;
	store(1, 0);
	store(1, 0);
	assert_true(floor_of(1, 0) < late);
	assert_int_equal(generations_stored(generations, 1, 0, late), 0);
	generations_end(generations, 1);
	assert_true(floor_of(1, 0) < late);
}

static void many_chunks_are_remembered(void **state)
{
	(void)state;
	for (uint64_t chunk = 0; chunk < 5000; chunk++)
		store(chunk, (uint32_t)(chunk % 3));
	for (uint64_t chunk = 0; chunk < 5000; chunk++) {
		uint64_t second = store(chunk, (uint32_t)(chunk % 3));
		uint64_t floor = floor_of(chunk, (uint32_t)(chunk % 3));

		assert_true(floor > 0 && floor < second);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(late_chunks_of_a_chain_go_first),
		cmocka_unit_test(what_is_retrieved_outlives_what_is_not),
		cmocka_unit_test(a_range_that_cannot_fit_takes_nothing_away),
		cmocka_unit_test(chunks_of_the_range_are_not_taken_for_its_others),
		cmocka_unit_test(random_chains_are_answered_as_the_slow_model_does),
		cmocka_unit_test(capacities_without_sense_are_refused),
		cmocka_unit_test_setup_teardown(
			a_copy_that_was_stored_again_is_stale, generations_setup, generations_teardown),
		cmocka_unit_test_setup_teardown(
			copies_that_overlap_are_both_good, generations_setup, generations_teardown),
		cmocka_unit_test_setup_teardown(
			a_store_under_way_may_still_come, generations_setup, generations_teardown),
		cmocka_unit_test_setup_teardown(many_chunks_are_remembered, generations_setup, generations_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
