/* Bytes that say whose they are, and the fake GPU that holds them: what is found wrong, and where. */
#include "app/kvrail-bench/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-bench/fakegpu.h"
#include "base/cmocka_all.h"
#include "base/random.h"

#define BYTES 4160

static uint64_t memory[BYTES / 8], copy[BYTES / 8];
static size_t first;
static uint8_t expected;

static void what_was_filled_checks_in_every_size(void **state)
{
	struct pattern pattern = pattern_make(1, 2, 3, 4, 5);

	(void)state;
	for (size_t bytes = 8; bytes <= 300; bytes++) {
		memset(memory, 0, sizeof(memory));
		pattern_fill(memory, bytes, pattern);
		assert_int_equal(pattern_check(memory, bytes, pattern, &first, &expected), 0);
		assert_int_equal(((uint8_t *)memory)[bytes], 0);
		assert_int_equal(pattern_generation(memory, pattern_make(1, 2, 3, 4, 0)), 5);
	}
}

static void one_changed_byte_is_found_at_its_place(void **state)
{
	struct pattern pattern = pattern_make(7, 0, 0, 0, 9);
	uint8_t *bytes = (uint8_t *)memory;

	(void)state;
	pattern_fill(memory, BYTES, pattern);
	for (size_t at = 0; at < BYTES; at += at < 70 ? 1 : 37) {
		bytes[at] ^= 0x40;
		assert_int_equal(pattern_check(memory, BYTES, pattern, &first, &expected), 1);
		assert_int_equal(first, at);
		assert_int_equal(expected, bytes[at] ^ 0x40);
		bytes[at] ^= 0x40;
	}
	bytes[BYTES - 1] ^= 1;
	bytes[33] ^= 1;
	assert_int_equal(pattern_check(memory, BYTES, pattern, &first, &expected), 2);
	assert_int_equal(first, 33);
}

/* Nearly all bytes of two blocks differ, whatever it is that differs between them: none can be taken for another. */
static void blocks_of_others_differ_nearly_everywhere(void **state)
{
	const struct pattern others[] = { pattern_make(2, 1, 1, 1, 1), pattern_make(1, 2, 1, 1, 1),
		pattern_make(1, 1, 2, 1, 1), pattern_make(1, 1, 1, 2, 1), pattern_make(1, 1, 1, 1, 2),
		pattern_make(1, 1, 1, 0, 1), pattern_make(0x100000001u, 1, 1, 1, 1) };

	(void)state;
	pattern_fill(memory, BYTES, pattern_make(1, 1, 1, 1, 1));
	for (size_t i = 0; i < KVR_COUNT_OF(others); i++)
		assert_true(pattern_check(memory, BYTES, others[i], &first, &expected) > BYTES * 95 / 100);
	/* shifted by a lane, a line, half a block */
	for (size_t shift = 8; shift <= 2048; shift *= 4) {
		memcpy(copy, (uint8_t *)memory + shift, BYTES - shift);
		assert_true(pattern_check(copy, BYTES - shift, pattern_make(1, 1, 1, 1, 1), &first, &expected) >
			(BYTES - shift) * 95 / 100);
	}
}

static void poison_that_was_touched_is_found(void **state)
{
	(void)state;
	pattern_poison(memory, BYTES);
	assert_int_equal(pattern_check_poison(memory, BYTES, &first), 0);
	((uint8_t *)memory)[100] = 0;
	((uint8_t *)memory)[101] = 0;
	assert_int_equal(pattern_check_poison(memory, BYTES, &first), 2);
	assert_int_equal(first, 100);
}

/* ---- the fake GPU ---- */

#define BLOCKS 64

static struct fakegpu gpu;
static void *gpu_memory;
static uint32_t ids[BLOCKS];

static int gpu_setup(void **state)
{
	char why[128];
	struct shape shape;

	(void)state;
	if (geometry_shape(geometry_find("llama3-8b"), 1, 16, 64, 256, &shape, why, sizeof(why)))
		return -1;
	gpu_memory = aligned_alloc(4096, fakegpu_bytes(&shape, BLOCKS));
	return fakegpu_init(&gpu, &shape, 0, BLOCKS, gpu_memory, 1);
}

static int gpu_teardown(void **state)
{
	(void)state;
	fakegpu_fini(&gpu);
	free(gpu_memory);
	return 0;
}

static void block_ids_are_scattered_and_each_is_given_once(void **state)
{
	unsigned neighbours = 0;
	bool seen[BLOCKS] = { false };

	(void)state;
	assert_true(fakegpu_take(&gpu, BLOCKS, ids));
	for (unsigned i = 0; i < BLOCKS; i++) {
		assert_false(seen[ids[i]]);
		seen[ids[i]] = true;
		neighbours += i > 0 && ids[i] == ids[i - 1] + 1;
	}
	assert_true(neighbours < 8);
	assert_false(fakegpu_take(&gpu, 1, ids));
	fakegpu_give(&gpu, BLOCKS, ids, true);
	assert_int_equal(gpu.free_count, BLOCKS);
}

static void contiguous_block_ids_are_runs_that_do_not_overlap(void **state)
{
	uint32_t first_ids[16], second_ids[16];

	(void)state;
	gpu.contiguous = true;
	assert_true(fakegpu_take(&gpu, 16, first_ids));
	assert_true(fakegpu_take(&gpu, 16, second_ids));
	for (unsigned i = 1; i < 16; i++) {
		assert_int_equal(first_ids[i], first_ids[0] + i);
		assert_int_equal(second_ids[i], second_ids[0] + i);
	}
	assert_true(first_ids[0] % 16 == 0 && second_ids[0] % 16 == 0 && first_ids[0] != second_ids[0]);
	assert_true(fakegpu_take(&gpu, 16, ids) && fakegpu_take(&gpu, 16, ids + 16));
	assert_false(fakegpu_take(&gpu, 16, ids));
	fakegpu_give(&gpu, 16, first_ids, true);
	assert_false(fakegpu_take(&gpu, BLOCKS + 1, ids));
	assert_true(fakegpu_take(&gpu, 16, first_ids));
	fakegpu_give(&gpu, 16, first_ids, true);
	fakegpu_give(&gpu, 16, second_ids, true);
	fakegpu_give(&gpu, 32, ids, true);
	gpu.contiguous = false;
	assert_true(fakegpu_take(&gpu, BLOCKS, ids));
	fakegpu_give(&gpu, BLOCKS, ids, true);
}

static void a_chunk_that_was_filled_checks_and_says_its_generation(void **state)
{
	struct fakegpu_fault fault = { 0 };

	(void)state;
	assert_true(fakegpu_take(&gpu, 4, ids));
	fakegpu_fill(&gpu, 77, 12, ids);
	fakegpu_check(&gpu, 77, ids, &fault);
	fakegpu_check_guards(&gpu, 4, ids, &fault);
	assert_int_equal(fault.mismatched_bytes, 0);
	assert_int_equal(fault.generation, 12);
	fakegpu_give(&gpu, 4, ids, true);
}

static void two_blocks_in_each_others_place_are_found(void **state)
{
	struct fakegpu_fault fault = { 0 };
	uint32_t swapped[4];
	char text[160];

	(void)state;
	assert_true(fakegpu_take(&gpu, 4, ids));
	fakegpu_fill(&gpu, 77, 12, ids);
	memcpy(swapped, ids, sizeof(swapped));
	swapped[2] = ids[3];
	swapped[3] = ids[2];
	fakegpu_check(&gpu, 77, swapped, &fault);
	assert_true(fault.mismatched_bytes > 2 * 64 * 128 * 9 / 10);
	assert_int_equal(fault.plane, 0);
	assert_int_equal(fault.block, 2);
	assert_int_equal(fault.id, ids[3]);
	fakegpu_describe(&fault, text, sizeof(text));
	assert_non_null(strstr(text, "plane 0, block 2"));
	fakegpu_give(&gpu, 4, ids, true);
}

static void a_chunk_of_two_generations_is_found(void **state)
{
	struct fakegpu_fault fault = { 0 };

	(void)state;
	assert_true(fakegpu_take(&gpu, 4, ids));
	fakegpu_fill(&gpu, 77, 12, ids);
	pattern_fill(fakegpu_block(&gpu, 63, ids[3]), gpu.shape.block_bytes, pattern_make(77, 0, 63, 3, 11));
	fakegpu_check(&gpu, 77, ids, &fault);
	assert_in_range(fault.mismatched_bytes, 100, 128);
	assert_int_equal(fault.plane, 63);
	assert_int_equal(fault.block, 3);
	fakegpu_give(&gpu, 4, ids, true);
}

static void a_block_that_never_came_is_seen_as_poison(void **state)
{
	struct fakegpu_fault fault = { 0 };
	char text[160];

	(void)state;
	assert_true(fakegpu_take(&gpu, 4, ids));
	fakegpu_fill(&gpu, 77, 12, ids);
	pattern_poison(fakegpu_block(&gpu, 5, ids[1]), gpu.shape.block_bytes);
	fakegpu_check(&gpu, 77, ids, &fault);
	/* A byte of the pattern may be that of the poison. */
	assert_in_range(fault.mismatched_bytes, 120, gpu.shape.block_bytes);
	fakegpu_describe(&fault, text, sizeof(text));
	assert_non_null(strstr(text, "never written"));
	fakegpu_give(&gpu, 4, ids, true);
}

static void a_write_beside_a_block_is_found_in_its_neighbour(void **state)
{
	static const int places[] = { -1, 0 };

	(void)state;
	for (unsigned plane = 0; plane < 64; plane += 63) {
		for (unsigned i = 0; i < 2; i++) {
			struct fakegpu_fault fault = { 0 };
			uint8_t *byte;
			char text[160];

			assert_true(fakegpu_take(&gpu, 1, ids));
			byte = places[i] < 0 ? fakegpu_block(&gpu, plane, ids[0]) - 1
					     : fakegpu_block(&gpu, plane, ids[0]) + gpu.shape.block_bytes;
			*byte ^= 0xff;
			fakegpu_check_guards(&gpu, 1, ids, &fault);
			assert_int_equal(fault.mismatched_bytes, 1);
			assert_true(fault.guard);
			assert_int_equal((int64_t)fault.offset, places[i] < 0 ? -1 : (int64_t)gpu.shape.block_bytes);
			fakegpu_describe(&fault, text, sizeof(text));
			assert_non_null(strstr(text, "guard"));
			*byte ^= 0xff;
			fakegpu_give(&gpu, 1, ids, true);
		}
	}
}

static void blocks_in_use_are_no_guards(void **state)
{
	struct fakegpu_fault fault = { 0 };

	(void)state;
	assert_true(fakegpu_take(&gpu, BLOCKS, ids));
	for (unsigned i = 0; i < BLOCKS; i += 4)
		fakegpu_fill(&gpu, i, 1, ids + i);
	fakegpu_check_guards(&gpu, BLOCKS, ids, &fault);
	assert_int_equal(fault.mismatched_bytes, 0);
	fakegpu_give(&gpu, BLOCKS, ids, true);
	assert_true(fakegpu_take(&gpu, 5, ids));
	fakegpu_check_guards(&gpu, 5, ids, &fault);
	assert_int_equal(fault.mismatched_bytes, 0);
	fakegpu_give(&gpu, 5, ids, true);
}

int main(void)
{
	const struct CMUnitTest patterns[] = {
		cmocka_unit_test(what_was_filled_checks_in_every_size),
		cmocka_unit_test(one_changed_byte_is_found_at_its_place),
		cmocka_unit_test(blocks_of_others_differ_nearly_everywhere),
		cmocka_unit_test(poison_that_was_touched_is_found),
	};
	const struct CMUnitTest gpus[] = {
		cmocka_unit_test(block_ids_are_scattered_and_each_is_given_once),
		cmocka_unit_test(contiguous_block_ids_are_runs_that_do_not_overlap),
		cmocka_unit_test(a_chunk_that_was_filled_checks_and_says_its_generation),
		cmocka_unit_test(two_blocks_in_each_others_place_are_found),
		cmocka_unit_test(a_chunk_of_two_generations_is_found),
		cmocka_unit_test(a_block_that_never_came_is_seen_as_poison),
		cmocka_unit_test(a_write_beside_a_block_is_found_in_its_neighbour),
		cmocka_unit_test(blocks_in_use_are_no_guards),
	};
	int failed = cmocka_run_group_tests(patterns, NULL, NULL);

	return failed + cmocka_run_group_tests(gpus, gpu_setup, gpu_teardown);
}
