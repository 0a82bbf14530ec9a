/*
 * plan.h - from (objects, block runs, planes, skip) to the fewest work requests.
 *
 * An RDMA WRITE has one remote range and several local pieces (an RDMA READ likewise), so: blocks that are neighbours in the
 * engine's memory become one work request even when they lie in several L1 objects; blocks that are not cost one each. The
 * order is plane by plane (layer order is kept), so that a flag can follow each layer's data.
 *
 * A plan is an iterator: it makes as many work requests as the send queue has room for, and goes on later. Pure: no device.
 */
#ifndef KVRAIL_WORKER_PLAN_H
#define KVRAIL_WORKER_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "verbs/driver.h"
#include "worker/mailbox.h"

KVR_BEGIN_C

struct plan {
	const struct transfer_request *request;
	const struct transfer *transfer;
	uint32_t group, plane;     /* being worked on */
	uint32_t run;              /* of the group */
	uint32_t run_offset;       /* blocks of that run that are done */
	uint32_t block;            /* position in the group's list: run starts + offset */
	uint32_t group_first_run;
	uint64_t block_offset;     /* bytes of a block that is split at the device's limit */
	bool done;
};

struct plan_limits {
	uint32_t max_sge;
	uint64_t max_bytes;        /* of one work request */
};

void plan_init(struct plan *plan, const struct transfer_request *request, const struct transfer *transfer);
/* Fills remote address, rkey, sg_list (max_sge entries of the caller's, wr->sg_list set), num_sge and opcode; other fields are the
 * caller's. Returns the bytes it moves, 0 when nothing is left. Skipped, null and absent (address NULL) blocks make none. */
uint64_t plan_next(struct plan *plan, const struct plan_limits *limits, struct ibv_send_wr *wr, struct ibv_sge *sge);

KVR_END_C

#endif
