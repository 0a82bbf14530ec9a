#include "base/pool.h"
#include "base/random.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/cmocka_all.h"

static void blocks_come_in_order_zeroed_and_the_last_one_out_is_the_next(void **state)
{
	static const char zeros[128];
	struct pool pool;
	char *first, *second;

	(void)state;
	assert_int_equal(pool_init(&pool, 100, 3), 0);
	first = pool_take(&pool);
	second = pool_take(&pool);
	assert_int_equal(pool_index(&pool, first), 0);
	assert_int_equal(pool_index(&pool, second), 1);
	assert_memory_equal(first, zeros, sizeof(zeros));
	assert_memory_equal(second, zeros, sizeof(zeros));
	pool_give(&pool, first);
	assert_ptr_equal(pool_take(&pool), first);
	pool_fini(&pool);
}

static void an_exhausted_pool_gives_null_until_a_block_comes_back(void **state)
{
	struct pool pool;
	void *block;

	(void)state;
	assert_int_equal(pool_init(&pool, 8, 2), 0);
	assert_non_null(pool_take(&pool));
	block = pool_take(&pool);
	assert_non_null(block);
	assert_null(pool_take(&pool));
	assert_int_equal(pool_used(&pool), 2);
	pool_give(&pool, block);
	assert_int_equal(pool_used(&pool), 1);
	assert_ptr_equal(pool_take(&pool), block);
	assert_null(pool_take(&pool));
	pool_fini(&pool);
}

static void block_sizes_are_rounded_so_that_large_blocks_share_no_cache_line(void **state)
{
	static const struct {
		uint64_t asked, got;
	} cases[] = { { 1, 8 }, { 8, 8 }, { 9, 16 }, { 32, 32 }, { 33, 64 }, { 64, 64 }, { 65, 128 }, { 4096, 4096 } };
	struct pool pool;

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		assert_int_equal(pool_init(&pool, cases[i].asked, 5), 0);
		assert_int_equal(pool.block_bytes, cases[i].got);
		assert_int_equal((uintptr_t)pool.blocks % KVR_CACHE_LINE, 0);
		assert_ptr_equal((char *)pool_at(&pool, 4) - 4 * cases[i].got, pool.blocks);
		pool_fini(&pool);
	}
}

static void wrong_sizes_are_refused_and_leave_nothing(void **state)
{
	static const struct {
		uint64_t block_bytes;
		uint32_t count;
		int error;
	} cases[] = {
		{ 0, 1, -EINVAL },
		{ 8, 0, -EINVAL },
		{ 8, UINT32_MAX, -EINVAL },
		{ UINT64_MAX, 1, -ENOMEM },
		{ UINT64_MAX / 2, 4, -ENOMEM },
		{ UINT64_C(1) << 62, 1000, -ENOMEM },
	};
	struct pool pool;

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		assert_int_equal(pool_init(&pool, cases[i].block_bytes, cases[i].count), cases[i].error);
		assert_null(pool.blocks);
		assert_null(pool.free_stack);
		pool_fini(&pool);
	}
}

/* pitfalls D02: after any program of takes and gives the whole pool can be taken again, each block once. */
static void after_a_random_program_every_block_can_be_taken_exactly_once(void **state)
{
	enum { BLOCKS = 100 };
	struct random random;
	struct pool pool;
	uint64_t *out[BLOCKS];
	bool taken[BLOCKS] = { false };
	uint32_t count = 0;

	(void)state;
	random_init(&random, 2);
	assert_int_equal(pool_init(&pool, 24, BLOCKS), 0);
	for (uint64_t step = 0; step < 50000; step++) {
		if (random_chance(&random, 1, 2)) {
			uint64_t *block = pool_take(&pool);

			assert_int_equal(block != NULL, count < BLOCKS);
			if (block) {
				block[0] = block[1] = block[2] = pool_index(&pool, block);
				out[count++] = block;
			}
		} else if (count > 0) {
			uint64_t pick = random_below(&random, count);

			/* Nobody else wrote into a block that was out. */
			assert_int_equal(out[pick][0], pool_index(&pool, out[pick]));
			assert_int_equal(out[pick][2], out[pick][0]);
			pool_give(&pool, out[pick]);
			out[pick] = out[--count];
		}
		assert_int_equal(pool_used(&pool), count);
	}
	while (count > 0)
		pool_give(&pool, out[--count]);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		uint32_t index = pool_index(&pool, pool_take(&pool));

		assert_true(index < BLOCKS);
		assert_false(taken[index]);
		taken[index] = true;
	}
	assert_null(pool_take(&pool));
	pool_fini(&pool);
}

static void fini_of_a_zeroed_pool_is_harmless(void **state)
{
	struct pool pool;

	(void)state;
	memset(&pool, 0, sizeof(pool));
	pool_fini(&pool);
	pool_fini(&pool);
	assert_null(pool_take(&pool));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_come_in_order_zeroed_and_the_last_one_out_is_the_next),
		cmocka_unit_test(an_exhausted_pool_gives_null_until_a_block_comes_back),
		cmocka_unit_test(block_sizes_are_rounded_so_that_large_blocks_share_no_cache_line),
		cmocka_unit_test(wrong_sizes_are_refused_and_leave_nothing),
		cmocka_unit_test(after_a_random_program_every_block_can_be_taken_exactly_once),
		cmocka_unit_test(fini_of_a_zeroed_pool_is_harmless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
