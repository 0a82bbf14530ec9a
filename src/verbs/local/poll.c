/* poll.c - ibv_poll_cq: moves a slice, collects what is finished, takes what has arrived. */
#include "base/atomic.h"
#include "verbs/local/local.h"

static enum ibv_wc_opcode completion_opcode(uint8_t opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	default:
		return IBV_WC_SEND;
	}
}

/* Completions of executed work requests, in order. Those that succeeded unsignalled have none. */
static int retire_sends(struct local_qp *qp, int capacity, struct ibv_wc *wc)
{
	int count = 0;

	while (qp->send_head != qp->send_done) {
		const struct local_send *send = local_send_at(qp, qp->send_head);

		if (send->status != IBV_WC_SUCCESS || (send->flags & IBV_SEND_SIGNALED)) {
			if (count == capacity)
				break;
			wc[count] = (struct ibv_wc){
				.wr_id = send->wr_id,
				.status = (enum ibv_wc_status)send->status,
				.opcode = completion_opcode(send->opcode),
				.byte_len = send->length,
				.qp_num = qp->qp.qp_num,
				.src_qp = qp->peer_qp_num,
			};
			count++;
		}
		qp->send_head++;
	}
	return count;
}

/* Round robin over the queue pairs that have something posted: each goes on until the slice is used up. */
static int poll_sends(struct local_cq *cq, int capacity, struct ibv_wc *wc)
{
	uint64_t budget = local_device_of(cq->cq.context)->slice_bytes;
	int count = 0;

	list_for_each_safe(node, &cq->busy) {
		struct local_qp *qp = KVR_CONTAINER_OF(node, struct local_qp, busy);

		if (qp->send_exec != qp->send_tail || qp->lane)
			local_qp_run(qp, &budget);
		count += retire_sends(qp, capacity - count, wc + count);
		if (qp->send_head == qp->send_tail)
			list_remove(&qp->busy);
		if (budget == 0 || count == capacity) {
			if (list_linked(&qp->busy)) {
				list_remove(&qp->busy);
				list_add_last(&cq->busy, &qp->busy);
			}
			break;
		}
	}
	return count;
}

static int poll_receives(struct local_cq *cq, int capacity, struct ibv_wc *wc)
{
	uint64_t budget = local_device_of(cq->cq.context)->slice_bytes;
	uint32_t left = cq->watch_count, at = cq->watch_next;
	int count = 0;

	for (; left > 0; left--) {
		const struct local_watch *watch = &cq->watches->entries[at];
		struct local_qp *qp = watch->qp;

		at = at + 1 < cq->watch_count ? at + 1 : 0;
		/* pairs with the store-release in local_qp_transmit */
		if (KVR_LIKELY(kvr_load_acquire(watch->sequence) != watch->expected && !watch->always))
			continue;
		/* Sends go on, too, when only the queue of the receives is polled. */
		if (KVR_UNLIKELY(qp->qp.send_cq != &cq->cq && (qp->send_exec != qp->send_tail || qp->lane)))
			local_qp_run(qp, &budget);
		count += local_qp_receive(qp, capacity - count, wc + count);
		if (count == capacity) {
			cq->watch_next = at; /* the next poll begins behind it */
			break;
		}
	}
	return count;
}

int local_poll_cq(struct ibv_cq *ibv, int capacity, struct ibv_wc *wc)
{
	struct local_cq *cq = local_cq_of(ibv);
	int count;

	if (KVR_UNLIKELY(capacity <= 0))
		return 0;
	if (KVR_UNLIKELY(cq->jobs > 0))
		local_process_collect(cq);
	count = poll_sends(cq, capacity, wc);
	if (count < capacity)
		count += poll_receives(cq, capacity - count, wc + count);
	if (KVR_UNLIKELY(kvr_load_relaxed(&cq->armed)) && count > 0)
		local_cq_disarm(cq);
	return count;
}
