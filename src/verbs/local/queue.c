/* queue.c - posting: receive queues, shared or not, and the send queue. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "verbs/local/local.h"

static uint32_t power_of_two(uint32_t value)
{
	uint32_t power = 1;

	while (power < value)
		power *= 2;
	return power;
}

int local_receive_queue_init(struct local_receive_queue *queue, uint32_t depth, uint32_t sge_max)
{
	size_t bytes;

	memset(queue, 0, sizeof(*queue));
	queue->depth = depth;
	queue->sge_max = sge_max;
	queue->stride = (uint32_t)(sizeof(struct local_receive) + sge_max * sizeof(struct ibv_sge));
	queue->mask = power_of_two(depth) - 1;
	bytes = ((size_t)queue->mask + 1) * queue->stride;
	queue->entries = fault_point("local_receive_queue") ? NULL : calloc(1, bytes);
	return queue->entries ? 0 : -ENOMEM;
}

void local_receive_queue_fini(struct local_receive_queue *queue)
{
	free(queue->entries);
	memset(queue, 0, sizeof(*queue));
}

int local_create_srq(struct verbs_device *device, uint32_t depth, struct ibv_srq **out)
{
	struct local_device *local = KVR_CONTAINER_OF(device, struct local_device, device);
	struct local_srq *srq;
	int rc;

	if (depth == 0 || depth > device->limits.max_recv_wr)
		return -EINVAL;
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return -ENOMEM;
	rc = local_receive_queue_init(&srq->queue, depth, LOCAL_SGE_MAX);
	if (rc != 0) {
		free(srq);
		return rc;
	}
	srq->queue.newest_first = true;
	srq->srq.context = &local->context;
	*out = &srq->srq;
	return 0;
}

void local_destroy_srq(struct ibv_srq *ibv)
{
	struct local_srq *srq = KVR_CONTAINER_OF(ibv, struct local_srq, srq);

	local_receive_queue_fini(&srq->queue);
	free(srq);
}

/* 0 or a positive errno, as libibverbs has it; then *bad is the first that was not posted. */
static int post_receives(struct local_receive_queue *queue, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	for (; wr; wr = wr->next) {
		struct local_receive *entry = local_receive_at(queue, queue->tail);

		if (KVR_UNLIKELY(wr->num_sge < 0 || (uint32_t)wr->num_sge > queue->sge_max ||
			    queue->tail - queue->head >= queue->depth)) {
			*bad = wr;
			return queue->tail - queue->head >= queue->depth ? ENOMEM : EINVAL;
		}
		entry->wr_id = wr->wr_id;
		entry->sge_count = (uint32_t)wr->num_sge;
		for (int i = 0; i < wr->num_sge; i++)
			entry->sge[i] = wr->sg_list[i];
		queue->tail++;
	}
	return 0;
}

int local_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct local_qp *qp = local_qp_of(ibv);
	struct local_cq *cq = local_cq_of(qp->qp.recv_cq);
	int rc;

	if (!qp->own_queue.entries) {
		*bad = wr;
		return EINVAL;
	}
	rc = post_receives(&qp->own_queue, wr, bad);
	/* Messages may have waited in the ring for it, and after a failure it is flushed at once. */
	if (KVR_UNLIKELY(kvr_load_relaxed(&cq->armed)) && qp->is_started && local_qp_has_work(qp))
		local_cq_wake_self(cq);
	return rc;
}

int local_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return post_receives(&KVR_CONTAINER_OF(srq, struct local_srq, srq)->queue, wr, bad);
}

/* Whether it can be accepted; what only its execution can tell comes as a completion. A positive errno. */
static int check_send(const struct local_qp *qp, const struct ibv_send_wr *wr, uint64_t *length)
{
	*length = 0;
	if (KVR_UNLIKELY(wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->sge_max))
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		*length += wr->sg_list[i].length;
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		break;
	case IBV_WR_RDMA_READ:
		if (wr->send_flags & IBV_SEND_INLINE)
			return EINVAL;
		/* fall through */
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		/* The client can't reach the server's memory, and no rkey of it exists. */
		if (!qp->device->server)
			return EOPNOTSUPP;
		break;
	default:
		return EINVAL; /* atomics and memory windows: no driver of ours has them */
	}
	if (KVR_UNLIKELY(*length > qp->device->device.limits.max_message_bytes))
		return EINVAL;
	if ((wr->send_flags & IBV_SEND_INLINE) && *length > qp->inline_max)
		return EINVAL;
	return 0;
}

static void fill_send(struct local_send *send, const struct ibv_send_wr *wr, uint32_t length)
{
	send->wr_id = wr->wr_id;
	send->immediate = wr->imm_data;
	send->length = length;
	send->opcode = (uint8_t)wr->opcode;
	send->flags = (uint8_t)(wr->send_flags & (IBV_SEND_SIGNALED | IBV_SEND_INLINE));
	send->status = IBV_WC_SUCCESS;
	if (wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM) {
		send->remote = wr->wr.rdma.remote_addr;
		send->rkey = wr->wr.rdma.rkey;
	}
	if (wr->send_flags & IBV_SEND_INLINE) {
		uint8_t *to = (uint8_t *)send->sge;

		for (int i = 0; i < wr->num_sge; i++) {
			if (wr->sg_list[i].length > 0)
				memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
			to += wr->sg_list[i].length;
		}
		send->sge_count = 0;
		return;
	}
	send->sge_count = (uint8_t)wr->num_sge;
	for (int i = 0; i < wr->num_sge; i++)
		send->sge[i] = wr->sg_list[i];
}

int local_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct local_qp *qp = local_qp_of(ibv);
	struct local_cq *cq = local_cq_of(qp->qp.send_cq);
	int rc = 0;

	if (KVR_UNLIKELY(qp->qp.state == IBV_QPS_INIT)) {
		*bad = wr;
		return EINVAL;
	}
	for (; wr; wr = wr->next) {
		struct local_send *send = local_send_at(qp, qp->send_tail);
		uint64_t length = 0;

		rc = qp->send_tail - qp->send_head >= qp->send_depth ? ENOMEM : check_send(qp, wr, &length);
		if (KVR_UNLIKELY(rc != 0)) {
			*bad = wr;
			break;
		}
		fill_send(send, wr, (uint32_t)length);
		qp->send_tail++;
	}
	local_qp_posted(qp);
	if (qp->send_head != qp->send_tail && !list_linked(&qp->busy) && qp->is_started)
		list_add_last(&cq->busy, &qp->busy);
	if (KVR_UNLIKELY(kvr_load_relaxed(&cq->armed)) && qp->is_started && local_qp_has_work(qp))
		local_cq_wake_self(cq);
	return rc;
}
