#include <string.h>

#include "verbs/sim/sim.h"

/* ---- checks --------------------------------------------------------------------------------------------------- */

bool sim_local_ok(const struct sim_qp *qp, const struct sim_wr *wr)
{
	int needed = wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (wr->flags & IBV_SEND_INLINE)
		return true;
	for (uint32_t i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sges[i];

		if (sge->length > 0 && !sim_may(qp->device, sge->lkey, false, sge->addr, sge->length, needed))
			return false;
	}
	return true;
}

bool sim_remote_ok(const struct sim_qp *qp, const struct sim_wr *wr, uint64_t offset, uint64_t length)
{
	int needed = wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;

	/* The standard lets a transfer of no bytes name anything. */
	return length == 0 || sim_may(qp->peer->device, wr->rkey, true, wr->remote_address + offset, length, needed);
}

static bool receive_ok(const struct sim_qp *target, const struct sim_receive *receive, uint64_t length)
{
	for (uint32_t i = 0; i < receive->num_sge && length > 0; i++) {
		const struct ibv_sge *sge = &receive->sges[i];
		uint64_t part = kvr_min_u64(sge->length, length);

		if (part > 0 &&
			!sim_may(target->device, sge->lkey, false, sge->addr, sge->length, IBV_ACCESS_LOCAL_WRITE))
			return false;
		length -= part;
	}
	return true;
}

/* ---- one-sided ------------------------------------------------------------------------------------------------ */

/* Between the list of local buffers, from `offset` on, and one remote range. */
static void copy_piece(const struct sim_wr *wr, uint64_t offset, uint64_t length)
{
	uint8_t *remote = (uint8_t *)(uintptr_t)(wr->remote_address + offset);

	for (uint32_t i = 0; length > 0; i++) {
		const struct ibv_sge *sge = &wr->sges[i];
		uint8_t *local = (uint8_t *)(uintptr_t)sge->addr + offset;
		uint64_t part;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		part = kvr_min_u64(sge->length - offset, length);
		if (wr->opcode == IBV_WR_RDMA_READ)
			memmove(local, remote, part);
		else
			memmove(remote, local, part);
		remote += part;
		length -= part;
		offset = 0;
	}
}

void sim_land_piece(struct sim_qp *qp, struct sim_wr *wr, uint64_t offset, uint64_t length)
{
	struct sim_counters *counters = &qp->fabric->counters;
	bool peer_failed = qp->peer->state != SIM_QP_READY && qp->refused == UINT64_MAX;

	/* Regions are looked up for each piece: one that went away in the middle is not touched any more. */
	if (!sim_local_ok(qp, wr)) {
		wr->broken = true;
		qp->refused = kvr_min_u64(qp->refused, wr->index);
		sim_wr_finish(wr, qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	if (!sim_remote_ok(qp, wr, offset, length)) {
		wr->broken = true;
		sim_refuse(qp, wr, IBV_WC_REM_ACCESS_ERR);
		sim_qp_error(qp->peer);
		return;
	}
	copy_piece(wr, offset, length);
	counters->pieces++;
	if (qp->state != SIM_QP_READY || peer_failed)
		counters->late_pieces++;
}

/* ---- SENDs ---------------------------------------------------------------------------------------------------- */

/* From one list of buffers to the other. */
static void copy_message(const struct sim_wr *wr, const struct sim_receive *receive)
{
	uint32_t into = 0;
	uint64_t used = 0;

	for (uint32_t from = 0; from < wr->num_sge; from++) {
		const uint8_t *bytes = (const uint8_t *)(uintptr_t)wr->sges[from].addr;
		uint64_t left = wr->sges[from].length;

		while (left > 0) {
			const struct ibv_sge *sge = &receive->sges[into];
			uint64_t part = kvr_min_u64(sge->length - used, left);

			if (part > 0)
				memmove((uint8_t *)(uintptr_t)sge->addr + used, bytes, part);
			bytes += part;
			left -= part;
			used += part;
			if (used == sge->length) {
				into++;
				used = 0;
			}
		}
	}
}

/* Its completion is held back for a while, in order. */
static void take(struct sim_qp *target, struct sim_receive *receive)
{
	struct sim_fabric *fabric = target->fabric;
	const struct sim_options *options = &fabric->options;

	receive->ready_ns = fabric->now_ns + sim_draw(fabric, options->completion_min_ns, options->completion_max_ns);
	list_remove(&receive->in_queue);
	list_add_last(&target->taken, &receive->in_queue);
	if (!target->holding)
		sim_schedule(target, NULL, SIM_RECEIVED, receive->ready_ns);
	target->holding = true;
}

static uint64_t capacity_of(const struct sim_receive *receive)
{
	uint64_t capacity = 0;

	for (uint32_t i = 0; i < receive->num_sge; i++)
		capacity += receive->sges[i].length;
	return capacity;
}

/* The receive is spoilt, and with it both ends. */
static void fail_receive(struct sim_qp *qp, struct sim_wr *wr, struct sim_receive *receive, enum ibv_wc_status here,
	enum ibv_wc_status there)
{
	struct sim_qp *target = qp->peer;

	receive->wc.status = here;
	take(target, receive);
	sim_refuse(qp, wr, there);
	sim_qp_error(target);
}

void sim_land_send(struct sim_qp *qp, struct sim_wr *wr)
{
	struct sim_qp *target = qp->peer;
	struct sim_receive *receive = KVR_CONTAINER_OF(target->queue->posted.next, struct sim_receive, in_queue);

	if (!sim_local_ok(qp, wr)) {
		qp->refused = kvr_min_u64(qp->refused, wr->index);
		sim_wr_finish(wr, qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	if (capacity_of(receive) < wr->length) {
		fail_receive(qp, wr, receive, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
		return;
	}
	if (!receive_ok(target, receive, wr->length)) {
		fail_receive(qp, wr, receive, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
		return;
	}
	copy_message(wr, receive);
	receive->wc.status = IBV_WC_SUCCESS;
	receive->wc.opcode = IBV_WC_RECV;
	receive->wc.byte_len = (uint32_t)wr->length;
	receive->wc.qp_num = target->base.qp_num;
	receive->wc.src_qp = qp->base.qp_num;
	if (wr->opcode == IBV_WR_SEND_WITH_IMM) {
		receive->wc.wc_flags = IBV_WC_WITH_IMM;
		receive->wc.imm_data = wr->immediate;
	}
	take(target, receive);
}

void sim_show_receives(struct sim_qp *qp, bool all)
{
	struct sim_cq *cq = KVR_CONTAINER_OF(qp->base.recv_cq, struct sim_cq, base);

	while (!list_empty(&qp->taken)) {
		struct sim_receive *receive = KVR_CONTAINER_OF(qp->taken.next, struct sim_receive, in_queue);

		if (!all && receive->ready_ns > qp->fabric->now_ns)
			break;
		list_remove(&receive->in_queue);
		list_add_first(&receive->home->free, &receive->in_queue); /* the one that is in the caches is next */
		receive->wc.qp_num = qp->base.qp_num;
		if (receive->wc.status == IBV_WC_SUCCESS)
			sim_cq_push(cq, &receive->wc, qp, 0);
		else
			sim_push_error(qp, cq, &receive->wc, receive->wc.wr_id, 0);
	}
	if (!list_empty(&qp->taken) && !qp->holding) {
		struct sim_receive *receive = KVR_CONTAINER_OF(qp->taken.next, struct sim_receive, in_queue);

		qp->holding = true;
		sim_schedule(qp, NULL, SIM_RECEIVED, receive->ready_ns);
	}
}

/* ---- completion of the send queue ----------------------------------------------------------------------------- */

static enum ibv_wc_opcode completion_opcode(enum ibv_wr_opcode opcode)
{
	if (opcode == IBV_WR_RDMA_WRITE)
		return IBV_WC_RDMA_WRITE;
	return opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_SEND;
}

static void complete_well(struct sim_qp *qp, struct sim_wr *wr)
{
	struct ibv_wc wc = { .wr_id = wr->wr_id, .status = IBV_WC_SUCCESS, .qp_num = qp->base.qp_num };

	qp->fabric->counters.completed++;
	if (!(wr->flags & IBV_SEND_SIGNALED))
		return;
	wc.opcode = completion_opcode(wr->opcode);
	wc.byte_len = (uint32_t)wr->length;
	sim_cq_push(KVR_CONTAINER_OF(qp->base.send_cq, struct sim_cq, base), &wc, qp, wr->index + 1);
}

void sim_complete(struct sim_qp *qp)
{
	while (qp->state == SIM_QP_READY && qp->completed < qp->posted) {
		struct sim_wr *wr = qp->ring[qp->completed & qp->mask];
		struct ibv_wc wc = { .status = wr->status, .qp_num = qp->base.qp_num };

		if (!wr->done)
			return;
		qp->completed++;
		wr->completed = true;
		if (wr->status == IBV_WC_SUCCESS) {
			complete_well(qp, wr);
			sim_wr_retire(qp, wr);
			continue;
		}
		qp->fabric->counters.failed++;
		sim_push_error(
			qp, KVR_CONTAINER_OF(qp->base.send_cq, struct sim_cq, base), &wc, wr->wr_id, qp->completed);
		sim_wr_retire(qp, wr);
		sim_qp_error(qp);
	}
}

void sim_wr_finish(struct sim_wr *wr, struct sim_qp *qp, enum ibv_wc_status status)
{
	if (qp->state != SIM_QP_READY || wr->done)
		return;
	wr->done = true;
	wr->status = status;
	if (status != IBV_WC_SUCCESS)
		qp->halted = true;
	else if (wr->opcode == IBV_WR_RDMA_READ)
		qp->reads--;
	sim_complete(qp);
	sim_launch(qp);
}

void sim_wr_retire(struct sim_qp *qp, struct sim_wr *wr)
{
	if (!wr->completed || wr->on_wire || wr->events > 0)
		return;
	wr->completed = false;
	sim_unreserve(qp->fabric, sim_wr_reserves(wr));
	qp->reserved -= sim_wr_reserves(wr);
	list_add_first(&qp->free_wrs, &wr->in_free); /* the one that is in the caches is next */
}
