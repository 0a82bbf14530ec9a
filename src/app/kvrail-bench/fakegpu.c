#include "app/kvrail-bench/fakegpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-bench/pattern.h"

static uint64_t plane_stride(const struct shape *shape, uint32_t blocks)
{
	return kvr_round_up((uint64_t)blocks * shape->block_bytes, FAKEGPU_GUARD_BYTES) + FAKEGPU_GUARD_BYTES;
}

uint64_t fakegpu_bytes(const struct shape *shape, uint32_t blocks)
{
	return FAKEGPU_GUARD_BYTES + shape->planes * plane_stride(shape, blocks);
}

int fakegpu_init(
	struct fakegpu *gpu, const struct shape *shape, uint32_t rank, uint32_t blocks, void *memory, uint64_t seed)
{
	memset(gpu, 0, sizeof(*gpu));
	gpu->shape = *shape;
	gpu->memory = memory;
	gpu->rank = rank;
	gpu->block_count = blocks;
	gpu->plane_stride = plane_stride(shape, blocks);
	random_init(&gpu->random, seed);
	gpu->planes = calloc(shape->planes, sizeof(*gpu->planes));
	gpu->free_ids = calloc(blocks, sizeof(*gpu->free_ids));
	gpu->in_use = calloc(blocks, sizeof(*gpu->in_use));
	if (!gpu->planes || !gpu->free_ids || !gpu->in_use) {
		fakegpu_fini(gpu);
		return -ENOMEM;
	}
	for (uint32_t plane = 0; plane < shape->planes; plane++) {
		gpu->planes[plane].address = gpu->memory + FAKEGPU_GUARD_BYTES + plane * gpu->plane_stride;
		gpu->planes[plane].block_stride = shape->block_bytes;
		gpu->planes[plane].block_bytes = shape->block_bytes;
	}
	for (uint32_t id = 0; id < blocks; id++)
		gpu->free_ids[id] = id;
	gpu->free_count = blocks;
	pattern_poison(gpu->memory, fakegpu_bytes(shape, blocks));
	return 0;
}

void fakegpu_fini(struct fakegpu *gpu)
{
	free(gpu->planes);
	free(gpu->free_ids);
	free(gpu->in_use);
	memset(gpu, 0, sizeof(*gpu));
}

void fakegpu_group(const struct fakegpu *gpu, struct kvr_group *group)
{
	memset(group, 0, sizeof(*group));
	group->tokens_per_block = gpu->shape.block_tokens;
	group->window_tokens = KVR_WINDOW_FULL;
	group->block_count = gpu->block_count;
	group->plane_count = gpu->shape.planes;
	group->planes = gpu->planes;
}

/* ---- block ids ---- */

static bool run_is_free(const struct fakegpu *gpu, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (gpu->in_use[first + i])
			return false;
	}
	return true;
}

static bool take_run(struct fakegpu *gpu, uint32_t count, uint32_t *ids)
{
	uint32_t runs = gpu->block_count / count, at;

	if (runs == 0)
		return false;
	at = (uint32_t)random_below(&gpu->random, runs);
	for (uint32_t i = 0; i < runs; i++, at = at + 1 < runs ? at + 1 : 0) {
		if (!run_is_free(gpu, at * count, count))
			continue;
		for (uint32_t j = 0; j < count; j++) {
			ids[j] = at * count + j;
			gpu->in_use[ids[j]] = true;
		}
		return true;
	}
	return false;
}

bool fakegpu_take(struct fakegpu *gpu, uint32_t count, uint32_t *ids)
{
	if (gpu->contiguous)
		return take_run(gpu, count, ids);
	if (count > gpu->free_count)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = (uint32_t)random_below(&gpu->random, gpu->free_count);

		ids[i] = gpu->free_ids[at];
		gpu->free_ids[at] = gpu->free_ids[--gpu->free_count];
		gpu->in_use[ids[i]] = true;
	}
	return true;
}

static uint32_t edge_bytes(const struct fakegpu *gpu)
{
	return (uint32_t)kvr_min_u64(FAKEGPU_EDGE_BYTES, gpu->shape.block_bytes);
}

void fakegpu_give(struct fakegpu *gpu, uint32_t count, const uint32_t *ids, bool edges)
{
	uint32_t edge = edge_bytes(gpu);

	for (uint32_t i = 0; i < count; i++) {
		gpu->in_use[ids[i]] = false;
		if (!gpu->contiguous)
			gpu->free_ids[gpu->free_count++] = ids[i];
	}
	for (uint32_t plane = 0; edges && plane < gpu->shape.planes; plane++) {
		for (uint32_t i = 0; i < count; i++) {
			uint8_t *block = fakegpu_block(gpu, plane, ids[i]);

			pattern_poison(block, edge);
			pattern_poison(block + gpu->shape.block_bytes - edge, edge);
		}
	}
}

/* ---- bytes ---- */

void fakegpu_poison(struct fakegpu *gpu, uint32_t count, const uint32_t *ids)
{
	for (uint32_t plane = 0; plane < gpu->shape.planes; plane++) {
		for (uint32_t i = 0; i < count; i++)
			pattern_poison(fakegpu_block(gpu, plane, ids[i]), gpu->shape.block_bytes);
	}
}

void fakegpu_fill(struct fakegpu *gpu, uint64_t chunk, uint64_t generation, const uint32_t *ids)
{
	for (uint32_t plane = 0; plane < gpu->shape.planes; plane++) {
		for (uint32_t block = 0; block < gpu->shape.chunk_blocks; block++)
			pattern_fill(fakegpu_block(gpu, plane, ids[block]), gpu->shape.block_bytes,
				pattern_make(chunk, gpu->rank, plane, block, generation));
	}
}

static bool fault_first(struct fakegpu_fault *fault, size_t count)
{
	bool first = fault->mismatched_bytes == 0;

	fault->mismatched_bytes += count;
	return first && count > 0;
}

static void check_block(const struct fakegpu *gpu, uint32_t plane, uint32_t block, uint32_t id, struct pattern pattern,
	struct fakegpu_fault *fault)
{
	const uint8_t *bytes = fakegpu_block(gpu, plane, id);
	uint8_t expected = 0;
	size_t first = 0;

	if (!fault_first(fault, pattern_check(bytes, gpu->shape.block_bytes, pattern, &first, &expected)))
		return;
	fault->plane = plane;
	fault->block = block;
	fault->id = id;
	fault->offset = first;
	fault->expected = expected;
	fault->found = bytes[first];
	fault->guard = false;
}

/* The generation that two of three blocks name; so one bad block does not make all others look bad. */
static uint64_t chunk_generation(const struct fakegpu *gpu, uint64_t chunk, const uint32_t *ids)
{
	uint32_t planes[3] = { 0, gpu->shape.planes / 2, gpu->shape.planes - 1 };
	uint32_t blocks[3] = { 0, gpu->shape.chunk_blocks / 2, gpu->shape.chunk_blocks - 1 };
	uint64_t named[3];

	for (unsigned i = 0; i < 3; i++)
		named[i] = pattern_generation(fakegpu_block(gpu, planes[i], ids[blocks[i]]),
			pattern_make(chunk, gpu->rank, planes[i], blocks[i], 0));
	return named[1] == named[2] ? named[1] : named[0];
}

void fakegpu_check(const struct fakegpu *gpu, uint64_t chunk, const uint32_t *ids, struct fakegpu_fault *fault)
{
	uint64_t generation = chunk_generation(gpu, chunk, ids);

	fault->generation = generation;
	for (uint32_t plane = 0; plane < gpu->shape.planes; plane++) {
		for (uint32_t block = 0; block < gpu->shape.chunk_blocks; block++)
			check_block(gpu, plane, block, ids[block],
				pattern_make(chunk, gpu->rank, plane, block, generation), fault);
	}
}

static void check_guard(const struct fakegpu *gpu, uint32_t plane, uint32_t id, const uint8_t *guard, size_t bytes,
	struct fakegpu_fault *fault)
{
	size_t first = 0;

	if (!fault_first(fault, pattern_check_poison(guard, bytes, &first)))
		return;
	fault->plane = plane;
	fault->id = id;
	fault->offset = (uint64_t)(guard + first - fakegpu_block(gpu, plane, id));
	fault->expected = PATTERN_POISON;
	fault->found = guard[first];
	fault->guard = true;
}

void fakegpu_check_guards(const struct fakegpu *gpu, uint32_t count, const uint32_t *ids, struct fakegpu_fault *fault)
{
	uint32_t edge = edge_bytes(gpu);

	for (uint32_t plane = 0; plane < gpu->shape.planes; plane++) {
		for (uint32_t i = 0; i < count; i++) {
			const uint8_t *block = fakegpu_block(gpu, plane, ids[i]);

			/* Before the first and behind the last block of a plane is the plane's own guard. */
			if (ids[i] == 0 || !gpu->in_use[ids[i] - 1])
				check_guard(gpu, plane, ids[i], block - edge, edge, fault);
			if (ids[i] + 1 == gpu->block_count || !gpu->in_use[ids[i] + 1])
				check_guard(gpu, plane, ids[i], block + gpu->shape.block_bytes, edge, fault);
		}
	}
}

void fakegpu_describe(const struct fakegpu_fault *fault, char *text, size_t size)
{
	if (fault->guard)
		snprintf(text, size,
			"a guard of plane %u, block id %u, at byte %lld from the block's start: found 0x%02x",
			fault->plane, fault->id, (long long)fault->offset, fault->found);
	else
		snprintf(text, size,
			"chunk %u, plane %u, block %u of the chunk (id %u), byte %llu: found 0x%02x, expected 0x%02x%s",
			fault->chunk, fault->plane, fault->block, fault->id, (unsigned long long)fault->offset,
			fault->found, fault->expected,
			fault->found == PATTERN_POISON ? " (poison: never written)" : "");
}
