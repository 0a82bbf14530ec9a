#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "verbs/sim/sim.h"

/* ---- completion queues ---------------------------------------------------------------------------------------- */

static struct sim_cq *cq_of(const struct ibv_cq *cq)
{
	return KVR_CONTAINER_OF(cq, struct sim_cq, base);
}

int sim_create_cq(struct verbs_device *base, uint32_t depth, struct ibv_cq **cq)
{
	struct sim_device *device = KVR_CONTAINER_OF(base, struct sim_device, base);
	struct sim_cq *new;

	*cq = NULL;
	if (device->dead || depth == 0 || depth > base->limits.max_cqe)
		return -EINVAL;
	new = fault_point("sim_create_cq") ? NULL : calloc(1, sizeof(*new));
	if (!new)
		return -ENOMEM;
	new->entries = calloc(depth, sizeof(*new->entries));
	if (!new->entries) {
		free(new);
		return -ENOMEM;
	}
	new->depth = depth;
	new->device = device;
	new->base.context = &device->context;
	new->base.cqe = (int)depth;
	list_add_last(&device->cqs, &new->in_device);
	*cq = &new->base;
	return 0;
}

void sim_destroy_cq(struct ibv_cq *base)
{
	struct sim_cq *cq = cq_of(base);

	if (cq->users > 0) {
		/* It stays until the device goes: its queue pairs point to it. */
		cq->device->fabric->counters.misuses++;
		return;
	}
	list_remove(&cq->in_device);
	free(cq->entries);
	free(cq);
}

/* There is one thread and a virtual clock: nobody sleeps. */
int sim_cq_event_fd(const struct ibv_cq *cq)
{
	(void)cq;
	return -1;
}

void sim_cq_clear_event(struct ibv_cq *cq)
{
	(void)cq;
}

int sim_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	(void)cq;
	(void)solicited_only;
	return 0;
}

/* The poller knows now that these are done: their room in the queues is free. */
static void reclaim(const struct sim_cqe *entry)
{
	struct sim_qp *qp = entry->qp;

	if (entry->sent > 0)
		qp->reclaimed = kvr_max_u64(qp->reclaimed, entry->sent);
	else if (qp->queue == &qp->own_queue)
		qp->receives--;
}

int sim_poll_cq(struct ibv_cq *base, int capacity, struct ibv_wc *wcs)
{
	struct sim_cq *cq = cq_of(base);
	int taken = 0;

	while (taken < capacity && cq->count > 0 && !cq->device->dead) {
		struct sim_cqe *entry = &cq->entries[cq->first];

		if (entry->qp) {
			wcs[taken++] = entry->wc;
			reclaim(entry);
		}
		cq->first = cq->first + 1 < cq->depth ? cq->first + 1 : 0;
		cq->count--;
	}
	if (cq->count == 0)
		cq->first = 0; /* a queue that is kept empty stays within few cache lines */
	return taken == 0 && cq->overflowed ? -1 : taken;
}

static void overflow(struct sim_cq *cq)
{
	cq->overflowed = true;
	cq->device->fabric->counters.cq_overflows++;
	list_for_each(node, &cq->device->qps) {
		struct sim_qp *qp = KVR_CONTAINER_OF(node, struct sim_qp, in_device);

		if (qp->base.send_cq == &cq->base || qp->base.recv_cq == &cq->base)
			sim_qp_error(qp);
	}
}

void sim_cq_push(struct sim_cq *cq, const struct ibv_wc *wc, struct sim_qp *qp, uint64_t sent)
{
	struct sim_cqe *entry;
	uint32_t place;

	if (cq->overflowed || cq->device->dead)
		return;
	if (cq->count == cq->depth) {
		overflow(cq);
		return;
	}
	place = cq->first + cq->count++;
	entry = &cq->entries[place < cq->depth ? place : place - cq->depth];
	entry->wc = *wc;
	entry->qp = qp;
	entry->sent = sent;
}

void sim_cq_purge(struct sim_cq *cq, const struct sim_qp *qp)
{
	for (uint32_t i = 0; i < cq->count; i++) {
		struct sim_cqe *entry = &cq->entries[(cq->first + (uint64_t)i) % cq->depth];

		if (entry->qp == qp)
			entry->qp = NULL;
	}
}

/* ---- receive queues, a queue pair's own and shared ones ------------------------------------------------------- */

int sim_receive_queue_init(struct sim_receive_queue *queue, uint32_t depth, uint32_t max_sge)
{
	list_init(&queue->free);
	list_init(&queue->posted);
	queue->max_sge = max_sge;
	queue->receives = NULL;
	queue->sges = NULL;
	if (depth == 0)
		return 0;
	queue->receives = fault_point("sim_receive_queue_init") ? NULL : calloc(depth, sizeof(*queue->receives));
	queue->sges = calloc((size_t)depth * max_sge, sizeof(*queue->sges));
	if (!queue->receives || !queue->sges) {
		sim_receive_queue_fini(queue);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < depth; i++) {
		queue->receives[i].home = queue;
		queue->receives[i].sges = &queue->sges[(size_t)i * max_sge];
		list_add_last(&queue->free, &queue->receives[i].in_queue);
	}
	return 0;
}

void sim_receive_queue_fini(struct sim_receive_queue *queue)
{
	free(queue->receives);
	free(queue->sges);
	queue->receives = NULL;
	queue->sges = NULL;
}

int sim_receive_queue_post(struct sim_receive_queue *queue, const struct ibv_recv_wr *wr)
{
	struct sim_receive *receive;
	struct list_node *node;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > queue->max_sge || (wr->num_sge > 0 && !wr->sg_list))
		return EINVAL;
	node = list_pop_first(&queue->free);
	if (!node)
		return ENOMEM;
	receive = KVR_CONTAINER_OF(node, struct sim_receive, in_queue);
	memset(&receive->wc, 0, sizeof(receive->wc));
	receive->wc.wr_id = wr->wr_id;
	receive->num_sge = (uint32_t)wr->num_sge;
	if (receive->num_sge > 0)
		memcpy(receive->sges, wr->sg_list, receive->num_sge * sizeof(*receive->sges));
	list_add_last(&queue->posted, node);
	return 0;
}

int sim_create_srq(struct verbs_device *base, uint32_t depth, struct ibv_srq **srq)
{
	struct sim_device *device = KVR_CONTAINER_OF(base, struct sim_device, base);
	struct sim_srq *new;
	int error;

	*srq = NULL;
	if (device->dead || depth == 0 || depth > base->limits.max_recv_wr)
		return -EINVAL;
	new = fault_point("sim_create_srq") ? NULL : calloc(1, sizeof(*new));
	if (!new)
		return -ENOMEM;
	error = sim_receive_queue_init(&new->queue, depth, base->limits.max_sge);
	if (error) {
		free(new);
		return error;
	}
	new->device = device;
	new->base.context = &device->context;
	list_add_last(&device->srqs, &new->in_device);
	*srq = &new->base;
	return 0;
}

void sim_destroy_srq(struct ibv_srq *base)
{
	struct sim_srq *srq = KVR_CONTAINER_OF(base, struct sim_srq, base);

	if (srq->users > 0) {
		srq->device->fabric->counters.misuses++;
		return;
	}
	list_remove(&srq->in_device);
	sim_receive_queue_fini(&srq->queue);
	free(srq);
}

int sim_post_srq_recv(struct ibv_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct sim_srq *srq = KVR_CONTAINER_OF(base, struct sim_srq, base);

	for (; wr; wr = wr->next) {
		int error = srq->device->dead ? EINVAL : sim_receive_queue_post(&srq->queue, wr);

		if (error) {
			*bad = wr;
			return error;
		}
	}
	return 0;
}
