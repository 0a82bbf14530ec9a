#include "protocol/layout.h"

#include <errno.h>
#include <string.h>

static KVR_COLD int refuse(struct wire_error *error, uint16_t status, uint32_t number, const char *what)
{
	error->status = status;
	error->offset = number;
	error->what = what;
	return -EINVAL;
}

/* ---- from a registration to a layout --------------------------------------------------------------------------- */

/* Everything about a group but its planes. */
static int build_group(struct layout_group *group, const struct wire_group *from, uint32_t number,
	uint32_t chunk_tokens, uint32_t planes_left, struct wire_error *error)
{
	if (from->tokens_per_block == 0)
		return refuse(error, STATUS_MALFORMED, number, "group: tokens_per_block is 0");
	if (chunk_tokens % from->tokens_per_block != 0)
		return refuse(error, STATUS_UNSUPPORTED, number,
			"group: tokens_per_block does not divide the server's chunk");
	if (from->block_count == 0)
		return refuse(error, STATUS_MALFORMED, number, "group: block_count is 0");
	if (from->plane_count == 0)
		return refuse(error, STATUS_MALFORMED, number, "group: has no plane");
	if (from->plane_count > planes_left)
		return refuse(error, STATUS_MALFORMED, number, "group: more planes than the message has");

	group->tokens_per_block = from->tokens_per_block;
	group->blocks_per_chunk = chunk_tokens / from->tokens_per_block;
	group->block_count = from->block_count;
	group->window_tokens = from->window_tokens;
	group->plane_count = from->plane_count;
	group->object_bytes = 0;
	return 0;
}

/* Do block_count blocks, `stride` apart, lie inside the region? Differences instead of sums, so that nothing wraps. */
static bool inside_region(const struct wire_plane *plane, uint32_t block_count, const struct layout_region *region)
{
	uint64_t before, blocks_but_last, extent;

	if (plane->address < region->address)
		return false;
	before = plane->address - region->address;
	if (before > region->length)
		return false;
	if (__builtin_mul_overflow((uint64_t)block_count - 1, plane->block_stride, &blocks_but_last) ||
		__builtin_add_overflow(blocks_but_last, plane->block_bytes, &extent))
		return false;
	return extent <= region->length - before;
}

static int build_plane(struct layout_plane *plane, struct layout_group *group, const struct wire_plane *from,
	uint32_t number, const struct layout_region *region, struct wire_error *error)
{
	uint64_t last_byte;

	if (from->block_bytes == 0)
		return refuse(error, STATUS_MALFORMED, number, "plane: block_bytes is 0");
	if (from->block_stride < from->block_bytes)
		return refuse(error, STATUS_MALFORMED, number, "plane: block_stride is smaller than a block");
	if (!region || !region->present)
		return refuse(error, STATUS_INVALID_MEMORY, number, "plane: no such memory region");
	if (__builtin_add_overflow(region->address, region->length - 1, &last_byte) || region->length == 0)
		return refuse(
			error, STATUS_INVALID_MEMORY, number, "plane: its region passes the end of the address space");
	if (!inside_region(from, group->block_count, region))
		return refuse(
			error, STATUS_INVALID_MEMORY, number, "plane: its blocks pass the bounds of the memory region");

	plane->address = from->address;
	plane->block_stride = from->block_stride;
	plane->object_offset = group->object_bytes;
	plane->block_bytes = from->block_bytes;
	plane->rkey = region->rkey;
	plane->region = from->region;
	/* A product of two 32-bit numbers, added to at most LAYOUT_OBJECT_BYTES_MAX: cannot wrap. */
	group->object_bytes += (uint64_t)group->blocks_per_chunk * from->block_bytes;
	if (group->object_bytes > LAYOUT_OBJECT_BYTES_MAX)
		return refuse(error, STATUS_UNSUPPORTED, number, "plane: with it the object of a chunk passes 1 GiB");
	return 0;
}

int layout_build(struct layout *layout, const struct register_request *request, uint32_t chunk_tokens,
	const struct layout_region *regions, uint32_t region_count, struct wire_error *error)
{
	uint32_t next_plane = 0;

	if (request->group_count > WIRE_GROUPS_MAX)
		return refuse(error, STATUS_UNSUPPORTED, 0, "more groups than a layout can have");
	if (chunk_tokens == 0)
		return refuse(error, STATUS_UNSUPPORTED, 0, "the server has no chunk size");

	layout->chunk_tokens = chunk_tokens;
	layout->group_count = request->group_count;
	layout->plane_count = request->plane_count;
	for (uint32_t g = 0; g < request->group_count; g++) {
		struct wire_group from = register_group_at(request, g);
		struct layout_group *group = &layout->groups[g];
		int failed = build_group(group, &from, g, chunk_tokens, request->plane_count - next_plane, error);

		if (failed)
			return failed;
		group->first_plane = next_plane;
		for (uint32_t last = next_plane + group->plane_count; next_plane < last; next_plane++) {
			struct wire_plane plane = register_plane_at(request, next_plane);
			const struct layout_region *region = plane.region < region_count ? &regions[plane.region]
											 : NULL;

			failed = build_plane(&layout->planes[next_plane], group, &plane, next_plane, region, error);
			if (failed)
				return failed;
		}
	}
	if (next_plane != request->plane_count)
		return refuse(error, STATUS_MALFORMED, next_plane, "planes: more than the groups have");
	return 0;
}

/* ---- block lists ----------------------------------------------------------------------------------------------- */

/* The runs of one group. `first` is the number of the first of them. */
static int check_group(const struct layout_group *group, const struct transfer_request *request, uint32_t first,
	uint32_t run_count, struct wire_error *error)
{
	bool store = request->header.type == WIRE_STORE;
	uint64_t block_count = (uint64_t)request->chunk_count * group->blocks_per_chunk;
	uint64_t skipped = request->skip_tokens / group->tokens_per_block;
	uint64_t position = 0;
	bool null_before = false;

	for (uint32_t r = first; r < first + run_count; r++) {
		struct block_run run = transfer_run_at(request, r);
		bool null = run.start == WIRE_NULL_BLOCK;

		if (run.count > block_count - position)
			return refuse(error, STATUS_INVALID_BLOCK, r, "runs: more blocks than the chunk range has");
		if (!null && position + run.count > skipped && (uint64_t)run.start + run.count > group->block_count)
			return refuse(error, STATUS_INVALID_BLOCK, r, "runs: a block id outside the registered memory");
		/* Division only where null and real blocks meet. */
		if (store && r > first && null != null_before && position % group->blocks_per_chunk != 0)
			return refuse(
				error, STATUS_INVALID_BLOCK, r, "runs: a chunk to store with null and other blocks");
		null_before = null;
		position += run.count;
	}
	if (position < block_count)
		return refuse(
			error, STATUS_INVALID_BLOCK, first + run_count, "runs: fewer blocks than the chunk range has");
	return 0;
}

int layout_check_blocks(const struct layout *layout, const struct transfer_request *request, struct wire_error *error)
{
	uint64_t tokens = (uint64_t)request->chunk_count * layout->chunk_tokens;
	uint32_t first = 0;

	if (request->group_count != layout->group_count)
		return refuse(error, STATUS_INVALID_BLOCK, 0, "group_count: not that of the registration");
	if (request->chunk_count == 0)
		return refuse(error, STATUS_INVALID_RANGE, 0, "chunk_count: the range is empty");
	if (request->skip_tokens > tokens)
		return refuse(error, STATUS_INVALID_RANGE, 0, "skip_tokens: more than the chunk range has");
	if (request->skip_tokens > 0 && request->header.type == WIRE_STORE)
		return refuse(error, STATUS_INVALID_RANGE, 0, "skip_tokens: only a RETRIEVE can skip");

	for (uint32_t g = 0; g < layout->group_count; g++) {
		uint32_t run_count = transfer_group_runs_at(request, g);
		int failed;

		if (run_count > request->run_count - first)
			return refuse(error, STATUS_INVALID_BLOCK, first, "group_runs: more runs than the message has");
		failed = check_group(&layout->groups[g], request, first, run_count, error);
		if (failed)
			return failed;
		first += run_count;
	}
	return 0;
}

static void idle_null_chunks(const struct layout_group *group, const struct transfer_request *request, uint32_t first,
	uint32_t run_count, bool *idle)
{
	uint64_t position = 0;

	memset(idle, 0, request->chunk_count * sizeof(*idle));
	for (uint32_t r = first; r < first + run_count; r++) {
		struct block_run run = transfer_run_at(request, r);

		/* Checked before: neighbouring null runs begin and end, together, at bounds of chunks. A chunk is
		 * null when its first block is, so it is enough to look for chunks that begin in this run. */
		if (run.start == WIRE_NULL_BLOCK) {
			uint64_t begin = (position + group->blocks_per_chunk - 1) / group->blocks_per_chunk;
			uint64_t end = (position + run.count + group->blocks_per_chunk - 1) / group->blocks_per_chunk;

			for (uint64_t chunk = begin; chunk < end; chunk++)
				idle[chunk] = true;
		}
		position += run.count;
	}
}

void layout_idle_chunks(const struct layout *layout, const struct transfer_request *request, uint32_t group, bool *idle)
{
	uint32_t first = 0;

	if (request->header.type != WIRE_STORE) {
		uint32_t skipped = request->skip_tokens / layout->chunk_tokens;

		for (uint32_t chunk = 0; chunk < request->chunk_count; chunk++)
			idle[chunk] = chunk < skipped;
		return;
	}
	for (uint32_t g = 0; g < group; g++)
		first += transfer_group_runs_at(request, g);
	idle_null_chunks(&layout->groups[group], request, first, transfer_group_runs_at(request, group), idle);
}
