#include "worker/plan.h"

/* Puts a walk behind the first `blocks` blocks of the group whose first run is `first_run`. */
static void begin_behind(struct plan *plan, uint32_t first_run, uint64_t blocks)
{
	struct plan_position *start = &plan->start;

	start->run = first_run;
	start->chunk = (uint32_t)(blocks / plan->blocks_per_chunk);
	start->chunk_block = (uint32_t)(blocks % plan->blocks_per_chunk);
	for (; start->run < plan->runs_end; start->run++) {
		uint32_t count = transfer_run_at(plan->request, start->run).count;

		if (blocks < count)
			break;
		blocks -= count;
	}
	start->run_offset = (uint32_t)blocks;
}

static inline void advance(const struct plan *plan, struct plan_position *at, uint32_t blocks, uint32_t run_count)
{
	at->run_offset += blocks;
	if (at->run_offset >= run_count) {
		at->run++;
		at->run_offset = 0;
	}
	at->chunk_block += blocks;
	if (at->chunk_block == plan->blocks_per_chunk) {
		at->chunk++;
		at->chunk_block = 0;
	}
}

static inline const struct transfer_part *part_at(const struct plan *plan, uint32_t chunk)
{
	const struct transfer *transfer = plan->transfer;

	return &transfer->parts[(uint64_t)chunk * transfer->layout->group_count + plan->group];
}

/* Passes over null and absent blocks. Returns how many blocks at the position lie in one run and one chunk, 0 at the
 * end. */
static inline uint32_t find_blocks(const struct plan *plan, struct plan_position *at, struct block_run *run)
{
	while (at->run < plan->runs_end && at->chunk < plan->chunks_end) {
		uint32_t blocks;

		*run = transfer_run_at(plan->request, at->run);
		blocks = (uint32_t)kvr_min_u64(run->count - at->run_offset, plan->blocks_per_chunk - at->chunk_block);
		if (KVR_LIKELY(run->start != WIRE_NULL_BLOCK && part_at(plan, at->chunk)->address && blocks > 0))
			return blocks;
		advance(plan, at, blocks, run->count);
	}
	return 0;
}

static void enter_plane(struct plan *plan)
{
	plan->dense = plan->plane->block_stride == plan->plane->block_bytes;
	plan->at = plan->start;
}

/* What lies in front of the first block that moves, and behind the last chunk that is there, is passed over once and
 * not in every plane: a hit is a prefix, and so is what was stored before. */
static void enter_group(struct plan *plan, uint32_t first_run)
{
	const struct layout *layout = plan->transfer->layout;
	const struct layout_group *group = &layout->groups[plan->group];
	struct block_run run;

	plan->blocks_per_chunk = group->blocks_per_chunk;
	plan->runs_end = first_run + transfer_group_runs_at(plan->request, plan->group);
	plan->chunks_end = plan->request->chunk_count;
	while (plan->chunks_end > 0 && !part_at(plan, plan->chunks_end - 1)->address)
		plan->chunks_end--;
	begin_behind(plan, first_run, plan->request->skip_tokens / group->tokens_per_block);
	find_blocks(plan, &plan->start, &run);
	plan->plane = &layout->planes[group->first_plane];
	plan->planes_end = plan->plane + group->plane_count;
	enter_plane(plan);
}

/* False behind the last plane of the last group. */
static bool next_plane(struct plan *plan)
{
	if (plan->plane + 1 < plan->planes_end) {
		plan->plane++;
		enter_plane(plan);
		return true;
	}
	if (plan->group + 1 < plan->transfer->layout->group_count) {
		plan->group++;
		enter_group(plan, plan->runs_end);
		return true;
	}
	return false;
}

/* Finds the next piece and sets remote, local, left and lkey; left becomes 0 when there is none. */
static inline void next_piece(struct plan *plan)
{
	struct plan_position *at = &plan->at;
	const struct transfer_part *part;
	const struct layout_plane *plane;
	struct block_run run;
	uint32_t blocks;

	while ((blocks = find_blocks(plan, at, &run)) == 0) {
		if (!next_plane(plan)) {
			plan->left = 0;
			return;
		}
	}
	if (!plan->dense)
		blocks = 1;
	part = part_at(plan, at->chunk);
	plane = plan->plane;
	plan->remote = plane->address + ((uint64_t)run.start + at->run_offset) * plane->block_stride;
	plan->local = (uint64_t)(uintptr_t)part->address + plane->object_offset +
		(uint64_t)at->chunk_block * plane->block_bytes;
	plan->left = (uint64_t)blocks * plane->block_bytes;
	plan->lkey = part->lkey;
	advance(plan, at, blocks, run.count);
}

void plan_init(struct plan *plan, const struct transfer_request *request, const struct transfer *transfer)
{
	plan->request = request;
	plan->transfer = transfer;
	plan->group = 0;
	plan->left = 0;
	if (transfer->layout->group_count == 0)
		return;
	enter_group(plan, 0);
	next_piece(plan);
}

uint64_t plan_next(struct plan *plan, const struct plan_limits *limits, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	const struct layout_plane *plane;
	struct ibv_sge *last = NULL;
	uint64_t total = 0;
	uint32_t count = 0;

	if (plan_done(plan))
		return 0;

	plane = plan->plane;
	wr->opcode = plan->transfer->to_client ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	wr->wr.rdma.remote_addr = plan->remote;
	wr->wr.rdma.rkey = plane->rkey;
	wr->sg_list = sge;
	do {
		uint32_t take = (uint32_t)kvr_min_u64(plan->left, limits->max_bytes - total);

		if (last && last->addr + last->length == plan->local && last->lkey == plan->lkey) {
			last->length += take;
		} else if (count < limits->max_sge) {
			last = &sge[count++];
			last->addr = plan->local;
			last->length = take;
			last->lkey = plan->lkey;
		} else {
			break;
		}
		total += take;
		plan->remote += take;
		plan->local += take;
		plan->left -= take;
		if (plan->left == 0)
			next_piece(plan);
	} while (total < limits->max_bytes && plan->left > 0 && plan->plane == plane &&
		plan->remote == wr->wr.rdma.remote_addr + total);
	wr->num_sge = (int)count;
	return total;
}
