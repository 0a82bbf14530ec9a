/*
 * post.c - work requests on their way to the provider: checked, numbered, counted.
 *
 * A chain is cut before its first bad work request, goes to the provider in one call, so with one doorbell, and is put
 * together again. The ids in it are ours while the provider reads it.
 */
#include <errno.h>

#include "verbs/nic/nic.h"

static bool opcode_is_known(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_READ ||
		opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static int check_send(const struct nic_qp *qp, const struct ibv_send_wr *wr)
{
	uint64_t bytes = 0;

	if (!opcode_is_known(wr->opcode) || wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->send.max_sge)
		return EINVAL;
	if (!(wr->send_flags & IBV_SEND_INLINE))
		return 0;
	for (int i = 0; i < wr->num_sge; i++)
		bytes += wr->sg_list[i].length;
	return bytes > qp->max_inline || wr->opcode == IBV_WR_RDMA_READ ? EINVAL : 0;
}

/* Gives back the ids of [from, until); `until` NULL: to the end. */
static void restore_sends(struct nic_queue *queue, struct ibv_send_wr *from, const struct ibv_send_wr *until)
{
	for (struct ibv_send_wr *wr = from; wr && wr != until; wr = wr->next)
		wr->wr_id = queue->ids[wr->wr_id & queue->mask];
}

int nic_post_send(struct ibv_qp *ibv, struct ibv_send_wr *first, struct ibv_send_wr **bad)
{
	struct nic_qp *qp = nic_qp_of(ibv);
	struct nic_queue *queue = &qp->send;
	struct ibv_send_wr *wr, *last = NULL, *refused = NULL;
	uint64_t posted = queue->posted;
	int error = 0, result;

	if (KVR_UNLIKELY(kvr_load_relaxed(&qp->state) != NIC_RTS || kvr_load_relaxed(&qp->stage) != NIC_ALIVE)) {
		*bad = first;
		return EINVAL;
	}
	for (wr = first; wr; last = wr, wr = wr->next) {
		error = check_send(qp, wr);
		if (!error && posted - queue->completed == queue->depth)
			error = ENOMEM;
		if (KVR_UNLIKELY(error))
			break;
		queue->ids[posted & queue->mask] = wr->wr_id;
		wr->wr_id = posted++;
	}
	*bad = wr;
	if (KVR_UNLIKELY(!last))
		return error;
	last->next = NULL;
	result = qp->real->context->ops.post_send(qp->real, first, &refused);
	last->next = wr;
	if (KVR_UNLIKELY(result)) {
		*bad = refused ? refused : first;
		posted = (*bad)->wr_id;
		error = result;
	}
	restore_sends(queue, first, wr);
	queue->posted = posted;
	return error;
}

int nic_post_marker(struct nic_qp *qp)
{
	struct nic_queue *queue = &qp->send;
	struct ibv_send_wr wr = { .wr_id = NIC_ID_MARKER | queue->posted, .opcode = IBV_WR_RDMA_WRITE };
	struct ibv_send_wr *bad = NULL;
	int error;

	wr.send_flags = IBV_SEND_SIGNALED;
	error = qp->real->context->ops.post_send(qp->real, &wr, &bad);
	queue->posted += error == 0;
	return error;
}

static void restore_receives(struct nic_queue *queue, struct ibv_recv_wr *from, const struct ibv_recv_wr *until)
{
	for (struct ibv_recv_wr *wr = from; wr && wr != until; wr = wr->next)
		wr->wr_id = queue->ids[wr->wr_id & queue->mask];
}

int nic_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *first, struct ibv_recv_wr **bad)
{
	struct nic_qp *qp = nic_qp_of(ibv);
	struct nic_queue *queue = &qp->receive;
	struct ibv_recv_wr *wr, *last = NULL, *refused = NULL;
	uint64_t posted = queue->posted;
	int error = 0, result;

	if (KVR_UNLIKELY(ibv->srq || kvr_load_relaxed(&qp->stage) != NIC_ALIVE)) {
		*bad = first;
		return EINVAL;
	}
	for (wr = first; wr; last = wr, wr = wr->next) {
		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > queue->max_sge)
			error = EINVAL;
		else if (posted - queue->completed == queue->depth)
			error = ENOMEM;
		if (KVR_UNLIKELY(error))
			break;
		queue->ids[posted & queue->mask] = wr->wr_id;
		wr->wr_id = NIC_ID_RECEIVE | posted++;
	}
	*bad = wr;
	if (KVR_UNLIKELY(!last))
		return error;
	last->next = NULL;
	result = qp->real->context->ops.post_recv(qp->real, first, &refused);
	last->next = wr;
	if (KVR_UNLIKELY(result)) {
		*bad = refused ? refused : first;
		posted = (*bad)->wr_id & NIC_ID_MASK;
		error = result;
	}
	restore_receives(queue, first, wr);
	queue->posted = posted;
	return error;
}

int nic_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *first, struct ibv_recv_wr **bad)
{
	struct nic_srq *srq = nic_srq_of(ibv);

	/* One at a time: completions come in any order, so each has a slot of its own. */
	for (struct ibv_recv_wr *wr = first; wr; wr = wr->next) {
		struct ibv_recv_wr one = *wr, *refused = NULL;
		uint32_t slot;
		int error;

		*bad = wr;
		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > NIC_SRQ_SGE)
			return EINVAL;
		if (srq->unused_count == 0)
			return ENOMEM;
		slot = srq->unused[srq->unused_count - 1];
		one.wr_id = NIC_ID_SHARED | slot;
		one.next = NULL;
		error = srq->real->context->ops.post_srq_recv(srq->real, &one, &refused);
		if (error)
			return error;
		srq->ids[slot] = wr->wr_id;
		srq->unused_count--;
	}
	*bad = NULL;
	return 0;
}
