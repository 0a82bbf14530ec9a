#include "app/kvrail-bench/geometry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* From the models' published configurations: num_hidden_layers, num_key_value_heads, head_dim; MLA: kv_lora_rank +
 * qk_rope_head_dim. */
static const struct geometry geometries[] = {
	{ "llama3-8b", 32, 8, 128, 2, 1, "bfloat16" },
	{ "llama3-70b", 80, 8, 128, 2, 8, "bfloat16" },
	{ "llama3-405b", 126, 8, 128, 2, 8, "bfloat16" },
	{ "mistral-7b", 32, 8, 128, 2, 1, "bfloat16" },
	{ "qwen3-8b", 36, 8, 128, 2, 1, "bfloat16" },
	{ "qwen3-32b", 64, 8, 128, 2, 4, "bfloat16" },
	{ "qwen3-235b", 94, 4, 128, 2, 4, "bfloat16" },
	{ "deepseek-v3", 61, 0, 576, 2, 8, "bfloat16" },
	{ "deepseek-v3-fp8", 61, 0, 576, 1, 8, "fp8_e4m3" },
};

const struct geometry *geometry_find(const char *name)
{
	for (size_t i = 0; i < KVR_COUNT_OF(geometries); i++) {
		if (strcmp(geometries[i].name, name) == 0)
			return &geometries[i];
	}
	return NULL;
}

const char *geometry_nearest(const char *name)
{
	const char *names[KVR_COUNT_OF(geometries)];

	for (size_t i = 0; i < KVR_COUNT_OF(geometries); i++)
		names[i] = geometries[i].name;
	return text_nearest(name, names, KVR_COUNT_OF(geometries));
}

static uint64_t token_bytes_total(const struct geometry *geometry)
{
	uint64_t planes = geometry->kv_heads ? 2 * geometry->layers * geometry->kv_heads : geometry->layers;

	return planes * geometry->head_dim * geometry->element_bytes;
}

void geometry_list(struct text *out)
{
	for (size_t i = 0; i < KVR_COUNT_OF(geometries); i++) {
		const struct geometry *geometry = &geometries[i];

		text_append(out, "  %-16s %3u layers, ", geometry->name, geometry->layers);
		if (geometry->kv_heads)
			text_append(out, "%u KV heads of %u", geometry->kv_heads, geometry->head_dim);
		else
			text_append(out, "MLA of %u", geometry->head_dim);
		text_append(out, " %s, tp %u: %llu bytes a token\n", geometry->dtype, geometry->ranks,
			(unsigned long long)token_bytes_total(geometry));
	}
}

/* How the ranks share the heads; false when they cannot evenly. */
static bool shape_share(const struct geometry *geometry, struct shape *shape)
{
	if (!geometry->kv_heads) {
		shape->holders = 1;
	} else if (shape->ranks <= geometry->kv_heads) {
		shape->holders = shape->ranks;
		if (geometry->kv_heads % shape->ranks != 0)
			return false;
	} else {
		shape->holders = geometry->kv_heads;
	}
	shape->readers = shape->ranks / shape->holders;
	return shape->ranks % shape->holders == 0;
}

int geometry_shape(const struct geometry *geometry, uint32_t ranks, uint32_t block_tokens, uint32_t chunk_tokens,
	uint32_t scale, struct shape *shape, char *why, size_t why_size)
{
	uint64_t plane_token_bytes = (uint64_t)geometry->head_dim * geometry->element_bytes;
	uint64_t block_bytes;

	memset(shape, 0, sizeof(*shape));
	shape->ranks = ranks ? ranks : geometry->ranks;
	if (shape->ranks > GEOMETRY_RANKS_MAX || !shape_share(geometry, shape)) {
		snprintf(why, why_size, "%s has %u KV heads, which %u ranks cannot share evenly", geometry->name,
			geometry->kv_heads, shape->ranks);
		return -EINVAL;
	}
	if (block_tokens == 0 || chunk_tokens % block_tokens != 0) {
		snprintf(why, why_size, "a chunk of %u tokens is no whole number of blocks of %u tokens", chunk_tokens,
			block_tokens);
		return -EINVAL;
	}
	if (geometry->kv_heads)
		plane_token_bytes *= geometry->kv_heads / shape->holders;
	block_bytes = kvr_round_up(plane_token_bytes * block_tokens / kvr_max_u64(scale, 1), GEOMETRY_BLOCK_BYTES_MIN);
	shape->planes = geometry->kv_heads ? 2 * geometry->layers : geometry->layers;
	shape->block_tokens = block_tokens;
	shape->chunk_tokens = chunk_tokens;
	shape->chunk_blocks = chunk_tokens / block_tokens;
	shape->block_bytes = (uint32_t)kvr_max_u64(block_bytes, GEOMETRY_BLOCK_BYTES_MIN);
	shape->object_bytes = (uint64_t)shape->block_bytes * shape->chunk_blocks * shape->planes;
	shape->token_bytes = plane_token_bytes * shape->planes;
	shape->chunk_bytes_total = shape->object_bytes * shape->holders;
	return 0;
}
