/*
 * plan.h - from (objects, block runs, planes, skip) to the fewest work requests.
 *
 * An RDMA WRITE has one remote range and several local pieces (an RDMA READ likewise), so: blocks that are neighbours
 * in the engine's memory become one work request even when they lie in several L1 objects; blocks that are not cost
 * one each. The order is plane by plane (layer order is kept), so that a flag can follow each layer's data; a work
 * request never spans two planes.
 *
 * A plan is an iterator: it makes as many work requests as the send queue has room for, and goes on later. Pure: no
 * device.
 */
#ifndef KVRAIL_WORKER_PLAN_H
#define KVRAIL_WORKER_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "verbs/driver.h"
#include "worker/mailbox.h"

KVR_BEGIN_C

/* Where a walk over one group's blocks stands: in the list of runs, and in the chunks that it covers. */
struct plan_position {
	uint32_t run;         /* number of the run, counted over all groups */
	uint32_t run_offset;  /* blocks of it that lie behind */
	uint32_t chunk;       /* of the request's range */
	uint32_t chunk_block; /* blocks of it that lie behind */
};

struct plan {
	const struct transfer_request *request;
	const struct transfer *transfer;
	/* the group */
	uint32_t group;
	uint32_t blocks_per_chunk;
	uint32_t runs_end;          /* behind its last run */
	uint32_t chunks_end;        /* behind the last chunk that is there */
	struct plan_position start; /* its first block that moves */
	/* the plane */
	const struct layout_plane *plane;
	const struct layout_plane *planes_end;
	bool dense; /* neighbouring blocks touch: stride = bytes */
	/* the piece: blocks, or what is left of them, that are neighbours on both sides. `at` is behind it. */
	struct plan_position at;
	uint64_t remote;
	uint64_t local;
	uint64_t left; /* bytes; 0: nothing is left of the whole transfer */
	uint32_t lkey;
};

struct plan_limits {
	uint32_t max_sge;   /* 1 .. */
	uint32_t max_bytes; /* of one work request, 1 .. */
};

/* Begins. request (which passed layout_check_blocks) and transfer stay the caller's and unchanged while the plan is
 * used. O(runs) when blocks are skipped or the first are null or absent. A plan may be copied: the copies go on
 * apart. */
void plan_init(struct plan *plan, const struct transfer_request *request, const struct transfer *transfer);

/* Fills remote address, rkey, sg_list (= sge: max_sge entries of the caller's), num_sge and opcode; other fields are
 * the caller's. Returns the bytes it moves, 0 when nothing is left. Skipped, null and absent (address NULL) blocks
 * make none. Cost: per piece, and per null or absent stretch that is passed over. */
uint64_t plan_next(struct plan *plan, const struct plan_limits *limits, struct ibv_send_wr *wr, struct ibv_sge *sge);

/* True when plan_next has nothing left. */
static inline bool plan_done(const struct plan *plan)
{
	return plan->left == 0;
}

KVR_END_C

#endif
