/* run.c - executing send queues: one-sided transfers in slices, SENDs when their turn comes. */
#include <string.h>

#include "base/atomic.h"
#include "verbs/local/copy.h"
#include "verbs/local/local.h"

/* What a work request costs beyond its bytes, so that a poll's work is bounded for empty ones too. */
#define REQUEST_COST 256u

/* Checks everything before the first byte moves. IBV_WC_SUCCESS: qp->far is where the client's memory begins, NULL when
 * only the helper can reach it. */
static enum ibv_wc_status begin_transfer(struct local_qp *qp, struct local_send *send)
{
	int access = send->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
	const struct local_key *far = local_keys_find(&qp->imports, send->rkey);

	if (!(send->flags & IBV_SEND_INLINE)) {
		for (uint32_t i = 0; i < send->sge_count; i++) {
			if (send->sge[i].length > 0 && KVR_UNLIKELY(!local_resolve(qp->device, &send->sge[i], access)))
				return IBV_WC_LOC_PROT_ERR;
		}
	}
	if (KVR_UNLIKELY(!far || !local_key_covers(far, send->remote, send->length)))
		return IBV_WC_REM_ACCESS_ERR;
	qp->far = far->base ? far->base + (send->remote - far->address) : NULL;
	qp->gpu_address = 0;
	if (far->device != 0) {
		qp->gpu_address = far->device + (send->remote - far->address);
		/* pairs with the store-release in local_cq_need_lanes, which was before the key was given out */
		qp->lane = kvr_load_acquire(&local_cq_of(qp->qp.send_cq)->lanes[far->gpu][local_lane_direction(send)]);
		qp->lane_begin = qp->lane->put;
		qp->lane_end = qp->lane->put;
	}
	qp->moved = 0;
	qp->sge_index = 0;
	qp->sge_moved = 0;
	qp->begun = true;
	return IBV_WC_SUCCESS;
}

/* Where the work request behind this one will read first, as far as can be told without checking it. */
static const void *next_source(const struct local_qp *qp)
{
	const struct local_send *next = local_send_at(qp, qp->send_exec + 1);
	const struct local_key *far;

	if (qp->send_exec + 1 == qp->send_tail)
		return NULL;
	if (next->opcode == IBV_WR_RDMA_WRITE && next->sge_count > 0)
		return (const void *)(uintptr_t)next->sge[0].addr;
	if (next->opcode != IBV_WR_RDMA_READ)
		return NULL;
	far = local_keys_find(&qp->imports, next->rkey);
	if (!far || !far->base || !local_key_covers(far, next->remote, next->length))
		return NULL;
	return far->base + (next->remote - far->address);
}

static void move_piece(struct local_qp *qp, const struct local_send *send, uint8_t *near, uint32_t bytes)
{
	const void *after = bytes >= LOCAL_STREAM_BYTES ? next_source(qp) : NULL;

	if (send->opcode == IBV_WR_RDMA_READ)
		local_copy(near, qp->far, bytes, after);
	else
		local_copy(qp->far, near, bytes, after);
	qp->far += bytes;
	qp->moved += bytes;
}

/* Moves at most *budget bytes. True when all are moved. */
static bool move_bytes(struct local_qp *qp, struct local_send *send, uint64_t *budget)
{
	while (qp->moved<send->length && * budget> 0) {
		uint32_t left;
		uint8_t *near;

		if (send->flags & IBV_SEND_INLINE) {
			near = (uint8_t *)send->sge + qp->moved;
			left = send->length - qp->moved;
		} else {
			const struct ibv_sge *sge = &send->sge[qp->sge_index];

			left = sge->length - qp->sge_moved;
			if (left == 0) {
				qp->sge_index++;
				qp->sge_moved = 0;
				continue;
			}
			near = (uint8_t *)(uintptr_t)sge->addr + qp->sge_moved;
		}
		left = (uint32_t)kvr_min_u64(left, *budget);
		move_piece(qp, send, near, left);
		qp->sge_moved += left;
		*budget -= left;
	}
	return qp->moved == send->length;
}

void local_move_word(const struct local_send *send, uint8_t *far)
{
	uint8_t *near = send->flags & IBV_SEND_INLINE ? (uint8_t *)(uintptr_t)send->sge
						      : (uint8_t *)(uintptr_t)send->sge[0].addr;
	bool read = send->opcode == IBV_WR_RDMA_READ;

	local_copy_flush();
	if (send->length != sizeof(uint32_t) || (uintptr_t)far % sizeof(uint32_t) != 0) {
		memcpy(read ? near : far, read ? far : near, send->length);
	} else if (read) {
		uint32_t word = kvr_load_acquire((uint32_t *)(void *)far);

		memcpy(near, &word, sizeof(word));
	} else {
		uint32_t word;

		memcpy(&word, near, sizeof(word));
		kvr_store_release((uint32_t *)(void *)far, word);
	}
}

/* All bytes are where they belong. True when it is executed. */
static bool finish_transfer(struct local_qp *qp, struct local_send *send)
{
	if (send->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
		return true;
	local_copy_flush();
	return local_qp_transmit(qp, send);
}

/* True when it is executed: its status is set. */
static bool run_transfer(struct local_qp *qp, struct local_send *send, uint64_t *budget)
{
	if (!qp->begun && send->length > 0) {
		send->status = (uint8_t)begin_transfer(qp, send);
		if (KVR_UNLIKELY(send->status != IBV_WC_SUCCESS)) {
			send->remote = qp->lane ? qp->lane->put : 0; /* it ends behind what is under way */
			return true;
		}
		if (!qp->far && qp->gpu_address == 0) {
			/* The helper takes it; tried again in a later poll when it has no room. */
			qp->job_running = local_process_submit(qp, send);
			qp->begun = qp->job_running;
			return false;
		}
	}
	if (qp->begun && qp->gpu_address != 0)
		return local_gpu_put(qp, send, budget);
	if (qp->begun && qp->far && local_is_word(send)) {
		if (qp->lane)
			send->flags |= LOCAL_SEND_RIDES; /* moved behind the copies that are under way */
		else
			local_move_word(send, qp->far);
		return true;
	}
	if (qp->begun && qp->far && !move_bytes(qp, send, budget))
		return false;
	return finish_transfer(qp, send);
}

/* sends[send_exec] was executed by the processor, with nothing under way before it. */
static void executed_one(struct local_qp *qp, const struct local_send *send)
{
	qp->send_exec++;
	qp->send_done = qp->send_exec;
	if (KVR_UNLIKELY(send->status != IBV_WC_SUCCESS))
		local_qp_to_error(qp, LOCAL_CLOSED);
}

void local_qp_transfer_done(struct local_qp *qp, int result)
{
	struct local_send *send = local_send_at(qp, qp->send_exec);

	qp->moved = send->length;
	if (qp->failed) {
		send->status = IBV_WC_WR_FLUSH_ERR;
	} else if (result != 0) {
		/* Ended, denied, or not mapped where it said: the memory can't be accessed, whatever the reason. */
		send->status = IBV_WC_REM_ACCESS_ERR;
	} else {
		if (!finish_transfer(qp, send))
			return; /* its immediate waits for a slot: local_qp_run goes on with that */
	}
	qp->begun = false;
	executed_one(qp, send);
	if (qp->wake_due)
		local_qp_wake_peer(qp);
}

static void prefetch_next(const struct local_qp *qp)
{
	if (qp->send_exec + 1 != qp->send_tail)
		KVR_PREFETCH(local_send_at(qp, qp->send_exec + 1));
}

void local_qp_run(struct local_qp *qp, uint64_t *budget)
{
	if (qp->lane)
		local_gpu_collect(qp);
	while (qp->send_exec != qp->send_tail && *budget > 0 && !qp->job_running) {
		struct local_send *send = local_send_at(qp, qp->send_exec);
		bool executed;

		if (qp->lane && (qp->failed || !local_gpu_may_follow(qp, send)))
			break;
		prefetch_next(qp);
		if (send->opcode == IBV_WR_SEND || send->opcode == IBV_WR_SEND_WITH_IMM) {
			local_copy_flush();
			executed = local_qp_transmit(qp, send);
		} else {
			executed = run_transfer(qp, send, budget);
		}
		if (!executed)
			break;
		qp->begun = false;
		*budget -= kvr_min_u64(*budget, REQUEST_COST);
		if (qp->lane)
			qp->send_exec++; /* executed when its copies have ended */
		else
			executed_one(qp, send);
	}
	local_gpu_publish(qp);
	local_copy_flush();
	if (qp->wake_due)
		local_qp_wake_peer(qp);
}

void local_qp_posted(struct local_qp *qp)
{
	while (qp->send_exec != qp->send_tail && !qp->job_running && !qp->lane) {
		struct local_send *send = local_send_at(qp, qp->send_exec);

		if (KVR_UNLIKELY(qp->failed))
			send->status = IBV_WC_WR_FLUSH_ERR;
		else if ((send->opcode != IBV_WR_SEND && send->opcode != IBV_WR_SEND_WITH_IMM) ||
			!local_qp_transmit(qp, send))
			break;
		executed_one(qp, send);
	}
	if (qp->wake_due)
		local_qp_wake_peer(qp);
}

bool local_qp_has_work(struct local_qp *qp)
{
	const struct local_send *next = local_send_at(qp, qp->send_exec);

	if (qp->send_head != qp->send_done || (qp->failed && qp->own_queue.head != qp->own_queue.tail))
		return true;
	if (qp->job_running)
		return kvr_load_acquire(&qp->job.done) != 0;
	if (qp->lane && local_gpu_has_news(qp))
		return true;
	if (qp->send_exec == qp->send_tail)
		return false;
	if (qp->lane)
		return !qp->failed && local_gpu_may_follow(qp, next);
	/* WRITE with immediate may have moved its bytes and wait for a slot; polling it in vain is harmless. */
	return (next->opcode != IBV_WR_SEND && next->opcode != IBV_WR_SEND_WITH_IMM) || local_qp_can_transmit(qp);
}
