/*
 * test_layouts.c - every engine layout as planes, against a plain enumeration of tensor elements: the bytes of block b of all planes must be
 * exactly the bytes of those elements whose block index is b.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "kvrail.h"

#define NB 5
#define BS 4
#define NH 2
#define HS 3
#define NL 3
#define ELEMENT 2

struct layout_case {
	const char *title;
	enum kvr_layout_name name;
	uint32_t tensors;
	uint32_t dimensions;
	uint64_t shape[6];
	uint32_t block_dimension;
	uint32_t tokens_a_block_index; /* 1, or tokens_per_block where the block dimension counts tokens */
	uint32_t planes;
	uint64_t block_bytes;
};

static const struct layout_case cases[] = {
	{ "vLLM cross-layer", KVR_NB_NL_TWO_BS_NH_HS, 1, 6, { NB, NL, 2, BS, NH, HS }, 0, 1, 1,
		NL * 2 * BS *NH *HS *ELEMENT },
	{ "TensorRT-LLM", KVR_NB_NL_TWO_NH_BS_HS, 1, 6, { NB, NL, 2, NH, BS, HS }, 0, 1, 1,
		NL * 2 * BS *NH *HS *ELEMENT },
	{ "vLLM flash attention NHD", KVR_NL_X_TWO_NB_BS_NH_HS, NL, 5, { 2, NB, BS, NH, HS }, 1, 1, 2 * NL,
		BS *NH *HS *ELEMENT },
	{ "vLLM flash attention HND", KVR_NL_X_TWO_NB_NH_BS_HS, NL, 5, { 2, NB, NH, BS, HS }, 1, 1, 2 * NL,
		BS *NH *HS *ELEMENT },
	{ "vLLM flashinfer NHD", KVR_NL_X_NB_TWO_BS_NH_HS, NL, 5, { NB, 2, BS, NH, HS }, 0, 1, NL,
		2 * BS *NH *HS *ELEMENT },
	{ "vLLM flashinfer HND", KVR_NL_X_NB_TWO_NH_BS_HS, NL, 5, { NB, 2, NH, BS, HS }, 0, 1, NL,
		2 * BS *NH *HS *ELEMENT },
	{ "MLA", KVR_NL_X_NB_BS_HS, NL, 3, { NB, BS, HS }, 0, 1, NL, BS *HS *ELEMENT },
	{ "SGLang", KVR_TWO_X_NL_X_NBBS_NH_HS, 2 * NL, 3, { NB * BS, NH, HS }, 0, BS, 2 * NL, BS *NH *HS *ELEMENT },
	{ "SGLang in blocks", KVR_TWO_X_NL_X_NB_BS_NH_HS, 2 * NL, 4, { NB, BS, NH, HS }, 0, 1, 2 * NL,
		BS *NH *HS *ELEMENT },
	{ "SGLang MLA", KVR_NL_X_NBBS_ONE_HS, NL, 3, { NB * BS, 1, HS }, 0, BS, NL, BS *HS *ELEMENT },
	{ "opaque pages", KVR_NL_X_NB_BYTES, NL, 2, { NB, 77 }, 0, 1, NL, 77 * ELEMENT },
};

static uint64_t elements_of(const struct layout_case *layout)
{
	uint64_t elements = 1;

	for (uint32_t d = 0; d < layout->dimensions; d++)
		elements *= layout->shape[d];
	return elements;
}

/* Marks, for each byte of the tensors, its block number + 1, element by element. */
static void mark_elements(const struct layout_case *layout, uint8_t *marks, uint64_t tensor_bytes)
{
	for (uint32_t t = 0; t < layout->tensors; t++) {
		for (uint64_t e = 0; e < elements_of(layout); e++) {
			uint64_t rest = e, index[6];

			for (uint32_t d = layout->dimensions; d-- > 0;) {
				index[d] = rest % layout->shape[d];
				rest /= layout->shape[d];
			}
			memset(marks + t * tensor_bytes + e * ELEMENT,
				(int)(index[layout->block_dimension] / layout->tokens_a_block_index) + 1, ELEMENT);
		}
	}
}

static void planes_cover_exactly_the_elements_of_each_block(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct layout_case *layout = &cases[i];
		uint64_t tensor_bytes = elements_of(layout) * ELEMENT;
		uint8_t *memory = calloc(layout->tensors, tensor_bytes);
		uint8_t *marks = calloc(layout->tensors, tensor_bytes);
		struct kvr_tensor tensors[2 * NL];
		struct kvr_plane planes[2 * NL];
		struct kvr_group group;

		assert_non_null(memory);
		assert_non_null(marks);
		memset(tensors, 0, sizeof(tensors));
		for (uint32_t t = 0; t < layout->tensors; t++) {
			tensors[t].address = memory + t * tensor_bytes;
			tensors[t].dimensions = layout->dimensions;
			tensors[t].element_bytes = ELEMENT;
			memcpy(tensors[t].shape, layout->shape, sizeof(layout->shape));
		}
		if (kvr_layout_make(layout->name, tensors, layout->tensors, BS, planes, 2 * NL, &group))
			fail_msg("%s: %s", layout->title, kvr_error_text());
		assert_int_equal(group.plane_count, layout->planes);
		assert_int_equal(group.block_count, NB);
		for (uint32_t p = 0; p < group.plane_count; p++) {
			assert_int_equal(planes[p].block_bytes, layout->block_bytes);
			for (uint32_t b = 0; b < NB; b++) {
				uint8_t *block = (uint8_t *)planes[p].address + b * planes[p].block_stride;

				for (uint64_t at = 0; at < planes[p].block_bytes; at++) {
					assert_int_equal(block[at], 0); /* no byte belongs to two blocks */
					block[at] = (uint8_t)(b + 1);
				}
			}
		}
		mark_elements(layout, marks, tensor_bytes);
		assert_memory_equal(memory, marks, layout->tensors * tensor_bytes);
		free(memory);
		free(marks);
	}
}

static struct kvr_tensor mla_tensor(void *address)
{
	struct kvr_tensor tensor;

	memset(&tensor, 0, sizeof(tensor));
	tensor.address = address;
	tensor.dimensions = 3;
	tensor.element_bytes = ELEMENT;
	tensor.shape[0] = NB;
	tensor.shape[1] = BS;
	tensor.shape[2] = HS;
	return tensor;
}

static void padded_blocks_keep_their_stride(void **state)
{
	uint8_t memory[1024];
	struct kvr_tensor tensor = mla_tensor(memory);
	struct kvr_plane plane;
	struct kvr_group group;

	(void)state;
	tensor.stride[0] = BS * HS + 5;
	tensor.stride[1] = HS;
	tensor.stride[2] = 1;
	assert_int_equal(kvr_layout_make(KVR_NL_X_NB_BS_HS, &tensor, 1, BS, &plane, 1, &group), 0);
	assert_int_equal(plane.block_bytes, BS * HS * ELEMENT);
	assert_int_equal(plane.block_stride, (BS * HS + 5) * ELEMENT);
}

static void a_block_with_gaps_is_refused(void **state)
{
	uint8_t memory[1024];
	struct kvr_tensor tensor = mla_tensor(memory);
	struct kvr_plane plane;
	struct kvr_group group;

	(void)state;
	tensor.stride[0] = BS * (HS + 1);
	tensor.stride[1] = HS + 1;
	tensor.stride[2] = 1;
	assert_int_equal(kvr_layout_make(KVR_NL_X_NB_BS_HS, &tensor, 1, BS, &plane, 1, &group), -EINVAL);
	assert_non_null(strstr(kvr_error_text(), "contiguous"));
}

static void blocks_that_overlap_are_refused(void **state)
{
	uint8_t memory[1024];
	struct kvr_tensor tensor = mla_tensor(memory);
	struct kvr_plane plane;
	struct kvr_group group;

	(void)state;
	tensor.stride[0] = HS;
	tensor.stride[1] = HS;
	tensor.stride[2] = 1;
	assert_int_equal(kvr_layout_make(KVR_NL_X_NB_BS_HS, &tensor, 1, BS, &plane, 1, &group), -EINVAL);
}

static void wrong_shapes_are_refused_with_words(void **state)
{
	uint8_t memory[1024];
	struct kvr_tensor tensors[2] = { mla_tensor(memory), mla_tensor(memory + 512) };
	struct kvr_plane planes[2];
	struct kvr_group group;

	(void)state;
	assert_int_equal(kvr_layout_make(KVR_NL_X_NB_BS_HS, tensors, 2, BS + 1, planes, 2, &group), -EINVAL);
	assert_int_equal(kvr_layout_make(KVR_NL_X_NB_BS_HS, tensors, 2, BS, planes, 1, &group), -ENOSPC);
	assert_int_equal(kvr_layout_make((enum kvr_layout_name)99, tensors, 2, BS, planes, 2, &group), -EINVAL);
	assert_int_equal(kvr_layout_make(KVR_NL_X_TWO_NB_BS_NH_HS, tensors, 2, BS, planes, 2, &group), -EINVAL);
	tensors[1].shape[0] = NB + 1;
	assert_int_equal(kvr_layout_make(KVR_NL_X_NB_BS_HS, tensors, 2, BS, planes, 2, &group), -EINVAL);
	tensors[1].shape[0] = 0;
	assert_int_equal(kvr_layout_make(KVR_NL_X_NB_BS_HS, tensors, 2, BS, planes, 2, &group), -EINVAL);
	tensors[1].shape[0] = UINT64_MAX / 2;
	assert_int_equal(kvr_layout_make(KVR_NL_X_NB_BS_HS, tensors, 2, BS, planes, 2, &group), -EINVAL);
}

static void a_fingerprint_tells_layouts_apart_but_not_addresses(void **state)
{
	struct kvr_plane planes[2] = { { (void *)0x1000, 64, 64 }, { (void *)0x2000, 64, 64 } };
	struct kvr_group group = { 16, KVR_WINDOW_FULL, 100, 2, planes };
	struct kvr_layout layout = { sizeof(layout), 1, &group };
	uint8_t first[32], second[32];

	(void)state;
	assert_int_equal(kvr_layout_fingerprint(&layout, first), 0);
	planes[1].address = (void *)0x9000;
	group.block_count = 200;
	assert_int_equal(kvr_layout_fingerprint(&layout, second), 0);
	assert_memory_equal(first, second, 32);
	planes[1].block_bytes = 32;
	assert_int_equal(kvr_layout_fingerprint(&layout, second), 0);
	assert_memory_not_equal(first, second, 32);
	planes[1].block_bytes = 64;
	group.tokens_per_block = 8;
	assert_int_equal(kvr_layout_fingerprint(&layout, second), 0);
	assert_memory_not_equal(first, second, 32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(planes_cover_exactly_the_elements_of_each_block),
		cmocka_unit_test(padded_blocks_keep_their_stride),
		cmocka_unit_test(a_block_with_gaps_is_refused),
		cmocka_unit_test(blocks_that_overlap_are_refused),
		cmocka_unit_test(wrong_shapes_are_refused_with_words),
		cmocka_unit_test(a_fingerprint_tells_layouts_apart_but_not_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
