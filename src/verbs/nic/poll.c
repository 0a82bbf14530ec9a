/* poll.c - completions on their way to the caller: matched with what was posted, held back while their queue pair has not
 * been started. */
#include <string.h>

#include "verbs/nic/nic.h"

/* A slot of the shared receive queue comes back. False: nothing that was posted. */
static bool take_shared(struct nic_srq *srq, struct ibv_wc *wc)
{
	uint64_t slot = wc->wr_id & NIC_ID_MASK;

	if (!srq || slot >= srq->depth || srq->unused_count == srq->depth)
		return false;
	wc->wr_id = srq->ids[slot];
	srq->unused[srq->unused_count++] = (uint32_t)slot;
	return true;
}

/* All work requests before it are done as well. False: nothing that is outstanding. */
static bool take_own(struct nic_queue *queue, struct ibv_wc *wc)
{
	uint64_t number = wc->wr_id & NIC_ID_MASK;

	if (number < queue->completed || number >= queue->posted)
		return false;
	wc->wr_id = queue->ids[number & queue->mask];
	queue->completed = number + 1;
	return true;
}

static void hold(struct nic_cq *cq, const struct nic_qp *qp, const struct ibv_wc *wc, bool shared)
{
	struct nic_held *held = &cq->held[cq->held_count++];

	held->wc = *wc;
	held->serial = qp->serial;
	held->shared = shared;
}

/* True when the caller gets it now. */
static bool translate(struct nic_cq *cq, struct ibv_wc *wc)
{
	struct nic_device *nic = nic_of_context(cq->cq.context);
	struct nic_qp *qp = nic_table_find(&nic->table, wc->qp_num);
	bool shared = wc->wr_id & NIC_ID_SHARED;

	if (KVR_LIKELY(!shared)) {
		if (KVR_UNLIKELY(!qp))
			return false;
		if (KVR_UNLIKELY(wc->wr_id & NIC_ID_MARKER)) {
			qp->send.completed = (wc->wr_id & NIC_ID_MASK) + 1;
			return false;
		}
		if (!take_own(wc->wr_id & NIC_ID_RECEIVE ? &qp->receive : &qp->send, wc))
			return false;
	} else if (!take_shared(kvr_load_acquire(&cq->srq), wc)) {
		return false;
	}
	if (KVR_UNLIKELY(qp && !qp->started && cq->held_count < cq->held_capacity)) {
		hold(cq, qp, wc, shared);
		return false;
	}
	return true;
}

/* Those whose queue pair was started since, in their order, and buffers of a shared queue whose queue pair is gone. */
static int give_held(struct nic_cq *cq, int count, struct ibv_wc *wcs)
{
	struct nic_device *nic = nic_of_context(cq->cq.context);
	uint32_t kept = 0;
	int given = 0;

	for (uint32_t i = 0; i < cq->held_count; i++) {
		struct nic_held *held = &cq->held[i];
		const struct nic_qp *qp = nic_table_find(&nic->table, held->wc.qp_num);
		bool gone = !qp || qp->serial != held->serial;

		if (gone && !held->shared)
			continue;
		if ((gone || qp->started) && given < count)
			wcs[given++] = held->wc;
		else
			cq->held[kept++] = *held;
	}
	cq->held_count = kept;
	return given;
}

int nic_poll_cq(struct ibv_cq *ibv, int count, struct ibv_wc *wcs)
{
	struct nic_cq *cq = nic_cq_of(ibv);
	int given = 0, found;

	if (KVR_UNLIKELY(cq->held_count > 0)) {
		given = give_held(cq, count, wcs);
		if (given == count)
			return given;
	}
	found = cq->real->context->ops.poll_cq(cq->real, count - given, wcs + given);
	if (KVR_UNLIKELY(found < 0))
		return given > 0 ? given : found;
	if (found < count - given)
		cq->dry++;
	for (int i = 0, end = given + found; found > 0 && i < found; i++) {
		struct ibv_wc *wc = &wcs[end - found + i];

		if (!translate(cq, wc))
			continue;
		if (&wcs[given] != wc)
			wcs[given] = *wc;
		given++;
	}
	/* pairs with the load-acquire in nic_sweep: no queue pair that was looked up is used from here on */
	kvr_store_release(&cq->polls, cq->polls + 1);
	return given;
}

int nic_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct nic_cq *cq = nic_cq_of(ibv);

	return cq->real->context->ops.req_notify_cq(cq->real, solicited_only);
}
