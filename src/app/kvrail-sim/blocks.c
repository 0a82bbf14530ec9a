/*
 * blocks.c - the paged KV memory of a worker. A block is free and poisoned, or belongs to one action. It is checked when it is taken and
 * when the action ends, and poisoned again at once: so whoever writes where it may not is found out, at the latest at the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-sim/world_private.h"

static const struct shape *shape_of(const struct process *process)
{
	return &process->world->shapes[process->shape];
}

int blocks_make(struct process *process)
{
	struct world *world = process->world;
	const struct shape *shape = shape_of(process);

	process->block_stride = shape->block_bytes + 8 * world_draw(world, 3);
	process->guard_bytes = world_draw(world, 2) ? 0 : 64;
	process->block_count = world->blocks_per_process;
	process->plane_bytes = process->block_stride * process->block_count + process->guard_bytes;
	process->pool_bytes = process->guard_bytes + shape->planes * process->plane_bytes;
	process->pool = malloc(process->pool_bytes);
	process->free_blocks = calloc(process->block_count, sizeof(uint32_t));
	process->free_count = process->block_count;
	if (!process->pool || !process->free_blocks) {
		blocks_drop(process, false);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < process->block_count; i++)
		process->free_blocks[i] = process->block_count - 1 - i;
	content_poison(process->pool, process->pool_bytes);
	return 0;
}

void blocks_drop(struct process *process, bool check)
{
	if (check && process->pool)
		blocks_check(process);
	free(process->pool);
	free(process->free_blocks);
	process->pool = NULL;
	process->free_blocks = NULL;
	process->free_count = 0;
}

uint8_t *blocks_at(const struct process *process, uint32_t plane, uint32_t block)
{
	return process->pool + process->guard_bytes + plane * process->plane_bytes + block * process->block_stride;
}

void blocks_fill(struct process *process, uint32_t block, uint64_t object, uint32_t generation, uint32_t position)
{
	const struct shape *shape = shape_of(process);

	for (uint32_t p = 0; p < shape->planes; p++)
		content_fill(blocks_at(process, p, block), shape->block_bytes, object, generation, p, position);
}

bool blocks_holds(
	const struct process *process, uint32_t block, uint64_t object, uint32_t generation, uint32_t position)
{
	const struct shape *shape = shape_of(process);

	for (uint32_t p = 0; p < shape->planes; p++) {
		const uint8_t *at = blocks_at(process, p, block);

		if (!content_is(at, shape->block_bytes, object, generation, p, position) ||
			!content_is_poison(at + shape->block_bytes, process->block_stride - shape->block_bytes))
			return false;
	}
	process->world->report->checked_bytes += (uint64_t)shape->planes * shape->block_bytes;
	return true;
}

bool blocks_poisoned(const struct process *process, uint32_t block)
{
	const struct shape *shape = shape_of(process);

	for (uint32_t p = 0; p < shape->planes; p++) {
		if (!content_is_poison(blocks_at(process, p, block), process->block_stride))
			return false;
	}
	return true;
}

bool blocks_take(struct process *process, uint32_t count, uint32_t *blocks, bool scattered)
{
	if (count > process->free_count)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t last = --process->free_count;

		if (scattered) {
			uint32_t other = (uint32_t)world_draw(process->world, last + 1);
			uint32_t block = process->free_blocks[other];

			process->free_blocks[other] = process->free_blocks[last];
			process->free_blocks[last] = block;
		}
		blocks[i] = process->free_blocks[last];
		if (!blocks_poisoned(process, blocks[i])) {
			world_violated(process->world, "process %u: block %u was written to while it was nobody's",
				process->number, blocks[i]);
			return false;
		}
	}
	return true;
}

void blocks_give(struct process *process, const uint32_t *blocks, uint32_t count)
{
	const struct shape *shape = shape_of(process);

	/* Backwards, so that runs of neighbours come out again as such. */
	for (uint32_t i = count; i > 0; i--) {
		if (blocks[i - 1] >= process->block_count)
			continue; /* a null block, or nonsense on purpose */
		for (uint32_t p = 0; p < shape->planes; p++)
			content_poison(blocks_at(process, p, blocks[i - 1]), shape->block_bytes);
		process->free_blocks[process->free_count++] = blocks[i - 1];
	}
}

void blocks_check(struct process *process)
{
	const struct shape *shape = shape_of(process);

	for (uint32_t i = 0; i < process->free_count; i++) {
		if (!blocks_poisoned(process, process->free_blocks[i])) {
			world_violated(process->world, "process %u: block %u was written to while it was nobody's",
				process->number, process->free_blocks[i]);
			return;
		}
	}
	for (uint32_t p = 0; p <= shape->planes; p++) {
		if (!content_is_poison(process->pool + p * process->plane_bytes, process->guard_bytes)) {
			world_violated(process->world, "process %u: the guard before plane %u was written to",
				process->number, p);
			return;
		}
	}
}
