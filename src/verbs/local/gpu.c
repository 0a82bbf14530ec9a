/*
 * gpu.c - one-sided work requests on a client's GPU memory: they become copies in a lane of verbs/gpu_table.h.
 *
 * Several are under way at once, and in order: a work request that has put its copies is begun (send_exec is behind it), and
 * executed (send_done) when they have ended. Only work requests of the same lane follow it meanwhile; all else waits, so
 * that a SEND does not overtake the data before it. The end of a work request's copies in the lane is kept in the place
 * of its remote address, and how far before it they begin in the place of its key: both are not needed any more.
 *
 * Words (local_is_word) in host memory ride along: they are moved by the processor when what is before them has ended, and what is
 * behind them does not wait for that. So words of layers, and words that are waited for, leave no gap between copies.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "verbs/local/local.h"

/* What putting a copy costs a poll, in bytes that it may move. */
#define COPY_COST 256u

/* ---- lanes ------------------------------------------------------------------------------------------------------ */

/* On the table's thread, behind the position that ended: wakes the polling thread as the client would. */
static void progress(void *argument)
{
	struct local_lane *lane = argument;

	kvr_fence_full();
	if (kvr_load_relaxed(&lane->cq->armed))
		local_cq_wake_self(lane->cq);
}

/* Under device->lock. */
static int make_lane(struct local_cq *cq, uint32_t gpu, unsigned direction)
{
	const struct verbs_gpu_table *table = local_device_of(cq->cq.context)->gpu;
	struct local_lane *lane;
	int rc;

	if (kvr_load_relaxed(&cq->lanes[gpu][direction]))
		return 0;
	lane = fault_point("local_gpu/lane") ? NULL : calloc(1, sizeof(*lane));
	if (!lane)
		return -ENOMEM;
	lane->cq = cq;
	rc = table->lane_open(table->context, gpu, direction == 1, progress, lane, &lane->lane);
	if (rc == 0)
		/* pairs with the load-acquire in begin_transfer */
		kvr_store_release(&cq->lanes[gpu][direction], lane);
	else
		free(lane);
	return rc;
}

int local_cq_need_lanes(struct local_cq *cq, uint32_t gpu)
{
	struct local_device *device = local_device_of(cq->cq.context);
	int rc;

	pthread_mutex_lock(&device->lock);
	rc = make_lane(cq, gpu, 0);
	if (rc == 0)
		rc = make_lane(cq, gpu, 1);
	pthread_mutex_unlock(&device->lock);
	return rc;
}

void local_cq_close_lanes(struct local_cq *cq)
{
	const struct verbs_gpu_table *table = local_device_of(cq->cq.context)->gpu;

	for (uint32_t i = 0; i < 2 * VERBS_GPUS_MAX; i++) {
		struct local_lane *lane = cq->lanes[i / 2][i % 2];

		if (!lane)
			continue;
		table->lane_close(table->context, lane->lane);
		free(lane);
		cq->lanes[i / 2][i % 2] = NULL;
	}
}

/* ---- work requests ---------------------------------------------------------------------------------------------- */

/* A copy of it was refused: the work request ends with the error once what was put before has ended. */
static bool refuse(struct local_send *send, const struct local_lane *lane, enum ibv_wc_status status)
{
	send->status = (uint8_t)status;
	send->remote = lane->put;
	return true;
}

bool local_gpu_put(struct local_qp *qp, struct local_send *send, uint64_t *budget)
{
	const struct verbs_gpu_table *table = qp->device->gpu;
	struct local_lane *lane = qp->lane;

	if (KVR_UNLIKELY(send->flags & IBV_SEND_INLINE))
		return refuse(send, lane, IBV_WC_LOC_PROT_ERR); /* no GPU knows the memory of send queues */
	while (qp->moved < send->length) {
		const struct ibv_sge *sge = &send->sge[qp->sge_index];
		uint32_t bytes = (uint32_t)kvr_min_u64(sge->length - qp->sge_moved, table->copy_bytes_max);
		int rc;

		if (bytes == 0) {
			qp->sge_index++;
			qp->sge_moved = 0;
			continue;
		}
		if (*budget == 0)
			return false;
		rc = table->put(lane->lane, sge->addr + qp->sge_moved, qp->gpu_address, bytes);
		if (KVR_UNLIKELY(rc == -EAGAIN)) {
			*budget = 0;
			return false;
		}
		if (KVR_UNLIKELY(rc != 0))
			return refuse(send, lane, IBV_WC_LOC_PROT_ERR);
		lane->put++;
		lane->is_unsent = true;
		qp->lane_end = lane->put;
		qp->gpu_address += bytes;
		qp->moved += bytes;
		qp->sge_moved += bytes;
		*budget -= kvr_min_u64(*budget, COPY_COST);
	}
	send->remote = lane->put;
	send->rkey = (uint32_t)kvr_min_u64(lane->put - qp->lane_begin, UINT32_MAX);
	return true;
}

/* Copies of others may lie between its own, so that another one's failure can be taken for its own, but never the other way round. */
static bool has_failed(const struct local_lane *lane, const struct local_send *send)
{
	return !(send->flags & LOCAL_SEND_RIDES) && lane->failed_below > send->remote - send->rkey;
}

/* sends[send_done], the oldest that is under way: its copies have ended. A word that rides has none of its own. */
static bool has_ended(const struct local_lane *lane, const struct local_send *send)
{
	return (send->flags & LOCAL_SEND_RIDES) || send->remote <= lane->done;
}

bool local_gpu_may_follow(const struct local_qp *qp, const struct local_send *send)
{
	const struct local_cq *cq = KVR_CONTAINER_OF(qp->qp.send_cq, struct local_cq, cq);
	const struct local_key *far;

	if (qp->begun)
		return true;
	if ((send->opcode != IBV_WR_RDMA_WRITE && send->opcode != IBV_WR_RDMA_READ) || send->length == 0 ||
		local_send_at(qp, qp->send_exec - 1)->status != IBV_WC_SUCCESS)
		return false;
	far = local_keys_find(&qp->imports, send->rkey);
	if (far && far->base)
		return local_is_word(send);
	return far && far->device != 0 &&
		kvr_load_acquire(&cq->lanes[far->gpu][local_lane_direction(send)]) == qp->lane;
}

void local_gpu_publish(struct local_qp *qp)
{
	struct local_lane *lane = qp->lane;

	if (!lane || !lane->is_unsent)
		return;
	qp->device->gpu->publish(lane->lane);
	lane->is_unsent = false;
}

static void look(struct local_qp *qp)
{
	qp->lane->done = qp->device->gpu->done(qp->lane->lane, &qp->lane->failed_below);
}

/* The memory is the client's until no work request uses it, so it is still there. */
static void move_rider(struct local_qp *qp, struct local_send *send)
{
	const struct local_key *far = local_keys_find(&qp->imports, send->rkey);

	if (far && far->base && local_key_covers(far, send->remote, send->length))
		local_move_word(send, far->base + (send->remote - far->address));
	else
		send->status = IBV_WC_REM_ACCESS_ERR;
}

/* The copies of sends[send_done] have ended. False: its immediate waits for a slot. */
static bool execute(struct local_qp *qp, struct local_send *send)
{
	if (KVR_UNLIKELY(qp->failed))
		send->status = IBV_WC_WR_FLUSH_ERR;
	else if (KVR_UNLIKELY(send->status == IBV_WC_SUCCESS && has_failed(qp->lane, send)))
		send->status = IBV_WC_REM_OP_ERR;
	else if (send->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && send->status == IBV_WC_SUCCESS &&
		!local_qp_transmit(qp, send))
		return false;
	else if ((send->flags & LOCAL_SEND_RIDES) && send->status == IBV_WC_SUCCESS)
		move_rider(qp, send);
	qp->send_done++;
	if (KVR_UNLIKELY(send->status != IBV_WC_SUCCESS && !qp->failed))
		local_qp_to_error(qp, LOCAL_CLOSED);
	return true;
}

void local_gpu_collect(struct local_qp *qp)
{
	look(qp);
	while (qp->send_done != qp->send_exec) {
		struct local_send *send = local_send_at(qp, qp->send_done);

		if (!has_ended(qp->lane, send) || !execute(qp, send))
			return;
	}
	if (qp->lane->done < qp->lane_end || (qp->begun && !qp->failed))
		return;
	qp->lane = NULL;
	if (KVR_UNLIKELY(qp->failed))
		local_qp_to_error(qp, LOCAL_CLOSED); /* what waited for that is flushed now */
}

bool local_gpu_has_news(struct local_qp *qp)
{
	look(qp);
	return qp->send_done != qp->send_exec ? has_ended(qp->lane, local_send_at(qp, qp->send_done))
					      : qp->lane_end <= qp->lane->done;
}
