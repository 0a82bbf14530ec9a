/* Bytes and planes of known models, checked against the arithmetic that their configurations give. */
#include "app/kvrail-bench/geometry.h"

#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"

static struct shape shape;
static char why[160];

static int shape_of(const char *model, uint32_t ranks, uint32_t block_tokens, uint32_t scale)
{
	const struct geometry *geometry = geometry_find(model);

	assert_non_null(geometry);
	return geometry_shape(geometry, ranks, block_tokens, 256, scale, &shape, why, sizeof(why));
}

static void known_models_have_their_bytes(void **state)
{
	static const struct {
		const char *model;
		uint32_t planes, holders, readers, block_bytes;
		uint64_t token_bytes;
	} known[] = {
		{ "llama3-8b", 64, 1, 1, 32768, 131072 }, /* 32 layers, K and V, 8 heads of 128, 2 bytes */
		{ "llama3-70b", 160, 8, 1, 4096, 40960 }, { "qwen3-32b", 128, 4, 1, 8192, 65536 },
		{ "deepseek-v3", 61, 1, 8, 18432, 70272 }, /* 576 x 2 bytes a layer, the same on all ranks */
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(known); i++) {
		assert_int_equal(shape_of(known[i].model, 0, 16, 1), 0);
		assert_int_equal(shape.planes, known[i].planes);
		assert_int_equal(shape.holders, known[i].holders);
		assert_int_equal(shape.readers, known[i].readers);
		assert_int_equal(shape.block_bytes, known[i].block_bytes);
		assert_int_equal(shape.token_bytes, known[i].token_bytes);
		assert_int_equal(shape.object_bytes, known[i].token_bytes * 256);
		assert_int_equal(shape.chunk_bytes_total, shape.object_bytes * shape.holders);
		assert_int_equal(shape.chunk_blocks, 16);
	}
}

static void scale_divides_and_stops_at_a_cache_line(void **state)
{
	(void)state;
	assert_int_equal(shape_of("llama3-8b", 1, 16, 64), 0);
	assert_int_equal(shape.block_bytes, 512);
	assert_int_equal(shape_of("llama3-8b", 1, 16, 1000000), 0);
	assert_int_equal(shape.block_bytes, 64);
	assert_int_equal(shape_of("deepseek-v3", 1, 16, 100), 0);
	assert_int_equal(shape.block_bytes % 64, 0);
	assert_true(shape.block_bytes >= 18432 / 100);
}

static void more_ranks_than_heads_read_the_same_object(void **state)
{
	(void)state;
	assert_int_equal(shape_of("llama3-8b", 16, 16, 1), 0);
	assert_int_equal(shape.holders, 8);
	assert_int_equal(shape.readers, 2);
	assert_int_equal(shape.block_bytes, 4096);
}

static void ranks_that_cannot_share_evenly_are_refused(void **state)
{
	(void)state;
	assert_int_equal(shape_of("llama3-8b", 3, 16, 1), -EINVAL);
	assert_non_null(strstr(why, "3 ranks"));
	assert_int_equal(shape_of("llama3-8b", 12, 16, 1), -EINVAL);
	assert_int_equal(shape_of("deepseek-v3", 65, 16, 1), -EINVAL);
	assert_int_equal(shape_of("llama3-8b", 1, 48, 1), -EINVAL);
	assert_non_null(strstr(why, "whole number of blocks"));
}

static void names_are_found_or_guessed(void **state)
{
	struct text list = { 0 };

	(void)state;
	assert_null(geometry_find("llama3-9b"));
	assert_string_equal(geometry_nearest("llama3-9b"), "llama3-8b");
	assert_null(geometry_nearest("something-else"));
	geometry_list(&list);
	assert_non_null(strstr(list.bytes, "deepseek-v3"));
	text_fini(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_models_have_their_bytes),
		cmocka_unit_test(scale_divides_and_stops_at_a_cache_line),
		cmocka_unit_test(more_ranks_than_heads_read_the_same_object),
		cmocka_unit_test(ranks_that_cannot_share_evenly_are_refused),
		cmocka_unit_test(names_are_found_or_guessed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
