/*
 * layout.c - the engines' tensor layouts as groups of planes.
 *
 * Names and shapes: LMCache's, as described in its documentation of KV layouts (NB blocks, NL layers, BS tokens per block, NH heads,
 * HS head size). Every table row says which dimension counts blocks, and which one (if any) separates planes; all other
 * dimensions belong to the block and must be contiguous.
 */
#include <errno.h>
#include <string.h>

#include "client/client_private.h"

#define NO_DIMENSION UINT32_MAX

struct layout_form {
	enum kvr_layout_name name;
	uint32_t dimensions;
	uint32_t block_dimension;
	uint32_t
		plane_dimension; /* each of its indices is a plane of its own: K and V kept apart by more than a block */
	uint32_t token_dimension; /* its size is tokens_per_block; NO_DIMENSION: not checked */
	bool tokens_apart;        /* the block dimension counts tokens: tokens_per_block of them are a block */
};

static const struct layout_form forms[] = {
	{ KVR_NB_NL_TWO_BS_NH_HS, 6, 0, NO_DIMENSION, 3, false },
	{ KVR_NB_NL_TWO_NH_BS_HS, 6, 0, NO_DIMENSION, 4, false },
	{ KVR_NL_X_TWO_NB_BS_NH_HS, 5, 1, 0, 2, false },
	{ KVR_NL_X_TWO_NB_NH_BS_HS, 5, 1, 0, 3, false },
	{ KVR_NL_X_NB_TWO_BS_NH_HS, 5, 0, NO_DIMENSION, 2, false },
	{ KVR_NL_X_NB_TWO_NH_BS_HS, 5, 0, NO_DIMENSION, 3, false },
	{ KVR_NL_X_NB_BS_HS, 3, 0, NO_DIMENSION, 1, false },
	{ KVR_TWO_X_NL_X_NBBS_NH_HS, 3, 0, NO_DIMENSION, NO_DIMENSION, true },
	{ KVR_TWO_X_NL_X_NB_BS_NH_HS, 4, 0, NO_DIMENSION, 1, false },
	{ KVR_NL_X_NBBS_ONE_HS, 3, 0, NO_DIMENSION, NO_DIMENSION, true },
	{ KVR_NL_X_NB_BYTES, 2, 0, NO_DIMENSION, NO_DIMENSION, false },
};

static const struct layout_form *layout_form_find(enum kvr_layout_name name)
{
	for (unsigned i = 0; i < KVR_COUNT_OF(forms); i++) {
		if (forms[i].name == name)
			return &forms[i];
	}
	return NULL;
}

/* Fills strides that are all 0 (contiguous, last dimension fastest) and checks that nothing overflows. 0 or -EINVAL. */
static int layout_strides(const struct kvr_tensor *tensor, uint64_t stride[6])
{
	bool contiguous = true;
	uint64_t elements = 1;

	for (uint32_t d = 0; d < tensor->dimensions; d++)
		contiguous &= tensor->stride[d] == 0;
	for (uint32_t d = tensor->dimensions; d-- > 0;) {
		uint64_t bytes;

		stride[d] = contiguous ? elements : tensor->stride[d];
		if (tensor->shape[d] == 0 || __builtin_mul_overflow(elements, tensor->shape[d], &elements) ||
			__builtin_mul_overflow(stride[d], tensor->shape[d] * tensor->element_bytes, &bytes))
			return -EINVAL;
	}
	return 0;
}

/* Bytes of one block; the dimensions of the block must lie in memory without gaps, in any order (NHD and HND differ only there).
 * 0: they don't. */
static uint64_t layout_block_bytes(const struct layout_form *form, const struct kvr_tensor *tensor,
	const uint64_t stride[6], uint32_t tokens_per_block)
{
	bool counted[6] = { false };
	uint64_t expected = 1;

	for (uint32_t n = 0; n < tensor->dimensions; n++) {
		uint32_t next = NO_DIMENSION;

		for (uint32_t d = 0; d < tensor->dimensions; d++) {
			bool inside = d != form->block_dimension && d != form->plane_dimension && !counted[d];

			if (inside && (stride[d] == expected || tensor->shape[d] == 1))
				next = d;
		}
		if (next == NO_DIMENSION)
			break;
		counted[next] = true;
		expected *= tensor->shape[next];
	}
	for (uint32_t d = 0; d < tensor->dimensions; d++) {
		if (d != form->block_dimension && d != form->plane_dimension && !counted[d])
			return 0;
	}
	if (form->tokens_apart && stride[form->block_dimension] != expected)
		return 0; /* the tokens of a block must follow each other without gaps */
	return expected * tensor->element_bytes * (form->tokens_apart ? tokens_per_block : 1);
}

static int layout_tensor(const struct layout_form *form, const struct kvr_tensor *tensor, uint32_t index,
	uint32_t tokens_per_block, struct kvr_plane *planes, uint32_t *block_count)
{
	uint64_t stride[6], block_bytes, blocks, block_stride;
	uint64_t plane_count = form->plane_dimension == NO_DIMENSION ? 1 : tensor->shape[form->plane_dimension];

	if (!tensor->address || tensor->element_bytes == 0 || tensor->dimensions != form->dimensions ||
		layout_strides(tensor, stride)) {
		error_text_set(
			"tensor %u: a layout of that name has %u dimensions, none of them 0", index, form->dimensions);
		return -EINVAL;
	}
	block_bytes = layout_block_bytes(form, tensor, stride, tokens_per_block);
	blocks = tensor->shape[form->block_dimension];
	block_stride = stride[form->block_dimension] * tensor->element_bytes;
	if (form->tokens_apart) {
		block_stride *= tokens_per_block;
		if (blocks % tokens_per_block != 0) {
			error_text_set("tensor %u: %llu tokens are no whole number of blocks of %u", index,
				(unsigned long long)blocks, tokens_per_block);
			return -EINVAL;
		}
		blocks /= tokens_per_block;
	}
	if (form->token_dimension != NO_DIMENSION && tensor->shape[form->token_dimension] != tokens_per_block) {
		error_text_set("tensor %u: %llu tokens per block in its shape, %u were said", index,
			(unsigned long long)tensor->shape[form->token_dimension], tokens_per_block);
		return -EINVAL;
	}
	if (block_bytes == 0 || block_stride < block_bytes || blocks > UINT32_MAX) {
		error_text_set(
			"tensor %u: the bytes of a block must be contiguous, and blocks must not overlap", index);
		return -EINVAL;
	}
	if (*block_count != 0 && *block_count != blocks) {
		error_text_set("tensor %u: %llu blocks, the tensors before it have %u", index,
			(unsigned long long)blocks, *block_count);
		return -EINVAL;
	}
	*block_count = (uint32_t)blocks;
	for (uint64_t p = 0; p < plane_count; p++) {
		planes[p].address = (char *)tensor->address;
		if (plane_count > 1)
			planes[p].address = (char *)tensor->address +
				p * stride[form->plane_dimension] * tensor->element_bytes;
		planes[p].block_stride = block_stride;
		planes[p].block_bytes = block_bytes;
	}
	return 0;
}

KVR_API int kvr_layout_make(enum kvr_layout_name name, const struct kvr_tensor *tensors, uint32_t tensor_count,
	uint32_t tokens_per_block, struct kvr_plane *planes, uint32_t plane_capacity, struct kvr_group *group)
{
	const struct layout_form *form = layout_form_find(name);
	uint32_t block_count = 0, plane_count = 0;

	if (!form || !tensors || tensor_count == 0 || tokens_per_block == 0 || !planes || !group) {
		error_text_set("no such layout, or no tensors");
		return -EINVAL;
	}
	for (uint32_t i = 0; i < tensor_count; i++) {
		uint64_t more = 1;
		int error;

		if (form->plane_dimension != NO_DIMENSION && tensors[i].dimensions == form->dimensions)
			more = tensors[i].shape[form->plane_dimension];
		if (more > plane_capacity - plane_count) {
			error_text_set("room for %u planes is not enough", plane_capacity);
			return -ENOSPC;
		}
		error = layout_tensor(form, &tensors[i], i, tokens_per_block, planes + plane_count, &block_count);
		if (error)
			return error;
		plane_count += (uint32_t)more;
	}
	group->tokens_per_block = tokens_per_block;
	group->window_tokens = KVR_WINDOW_FULL;
	group->block_count = block_count;
	group->plane_count = plane_count;
	group->planes = planes;
	return 0;
}

static bool layout_readable(const struct kvr_layout *layout)
{
	if (!layout || layout->struct_bytes < sizeof(*layout) || layout->group_count == 0 ||
		layout->group_count > WIRE_GROUPS_MAX || !layout->groups)
		return false;
	for (uint32_t g = 0; g < layout->group_count; g++) {
		if (layout->groups[g].plane_count > 0 && !layout->groups[g].planes)
			return false;
	}
	return true;
}

/* SHA-256 over "kvrail layout v1" and, for each group, tokens per block, window, number of planes, and each plane's bytes per block. */
KVR_API int kvr_layout_fingerprint(const struct kvr_layout *layout, uint8_t fingerprint[32])
{
	static const char seed[] = "kvrail layout v1";
	struct digester digester;
	int error;

	if (!layout_readable(layout)) {
		error_text_set(
			"a layout has its struct_bytes set, and 1 to %u groups with their planes", WIRE_GROUPS_MAX);
		return -EINVAL;
	}
	error = digester_init(&digester);
	if (error)
		return error;
	digester_hash(
		&digester, seed, sizeof(seed) - 1, &layout->group_count, sizeof(layout->group_count), fingerprint);
	for (uint32_t g = 0; g < layout->group_count; g++) {
		const struct kvr_group *group = &layout->groups[g];
		uint32_t numbers[3];

		numbers[0] = group->tokens_per_block;
		numbers[1] = group->window_tokens;
		numbers[2] = group->plane_count;
		digester_hash(&digester, fingerprint, 32, numbers, sizeof(numbers), fingerprint);
		for (uint32_t p = 0; p < group->plane_count; p++)
			digester_hash(&digester, fingerprint, 32, &group->planes[p].block_bytes, sizeof(uint64_t),
				fingerprint);
	}
	digester_fini(&digester);
	return 0;
}
