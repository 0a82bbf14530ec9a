/*
 * cq.c - completion queues, and waking who sleeps on them.
 *
 * The sleeper: store `sleeping` = 1 in every ring, full fence, poll once more, sleep on the event descriptor. The
 * waker: publish, full fence, load `sleeping`; when it is 1, store 0 and send a byte. Of two threads that each store,
 * fence and load, at least one sees the other's store: either the poll finds the message or the waker finds the flag.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "base/log.h"
#include "verbs/local/local.h"

int local_create_cq(struct verbs_device *device, uint32_t depth, struct ibv_cq **out)
{
	struct local_device *local = KVR_CONTAINER_OF(device, struct local_device, device);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = NULL };
	struct local_cq *cq;

	if (depth == 0 || depth > device->limits.max_cqe)
		return -EINVAL;
	cq = fault_point("local_create_cq") ? NULL : calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	cq->self_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (cq->epoll_fd < 0 || cq->self_fd < 0 || epoll_ctl(cq->epoll_fd, EPOLL_CTL_ADD, cq->self_fd, &event) != 0) {
		log_error("local: event descriptors of a completion queue: %s", strerror(errno));
		local_destroy_cq(&cq->cq);
		return -ENOMEM;
	}
	list_init(&cq->started);
	list_init(&cq->busy);
	cq->cq.context = &local->context;
	cq->cq.cqe = (int)depth;
	*out = &cq->cq;
	return 0;
}

void local_destroy_cq(struct ibv_cq *ibv)
{
	struct local_cq *cq = local_cq_of(ibv);

	helper_destroy(&cq->helper);
	local_cq_close_lanes(cq);
	local_watch_close(cq);
	if (cq->epoll_fd >= 0)
		close(cq->epoll_fd);
	if (cq->self_fd >= 0)
		close(cq->self_fd);
	free(cq);
}

int local_cq_need_helper(struct local_cq *cq)
{
	struct local_device *device = local_device_of(cq->cq.context);
	int rc = 0;

	pthread_mutex_lock(&device->lock);
	if (!kvr_load_relaxed(&cq->helper)) {
		struct helper *helper = NULL;

		rc = helper_create("kvr-process", 1, 256, &helper);
		if (rc == 0)
			/* pairs with the load-acquire in local_process_submit */
			kvr_store_release(&cq->helper, helper);
	}
	pthread_mutex_unlock(&device->lock);
	return rc;
}

int local_cq_event_fd(const struct ibv_cq *cq)
{
	return KVR_CONTAINER_OF(cq, struct local_cq, cq)->epoll_fd;
}

void local_cq_wake_self(struct local_cq *cq)
{
	uint64_t one = 1;

	/* It fails only when the counter is full, and then it is readable. */
	if (write(cq->self_fd, &one, sizeof(one)) < 0)
		return;
}

/* Takes the bytes out of the wake socket, so that it never fills up. Only of a queue pair that is still started:
 * another may be gone by now. */
static void drain(struct local_cq *cq, const void *who)
{
	uint8_t bytes[512];

	if (!who) {
		if (read(cq->self_fd, bytes, sizeof(uint64_t)) < 0)
			return;
		return;
	}
	list_for_each(node, &cq->started) {
		struct local_qp *qp = KVR_CONTAINER_OF(node, struct local_cq_link, node)->qp;

		if (qp == who) {
			if (recv(qp->wake_fd, bytes, sizeof(bytes), MSG_DONTWAIT) < 0)
				return;
			return;
		}
	}
}

void local_cq_clear_event(struct ibv_cq *ibv)
{
	struct local_cq *cq = local_cq_of(ibv);
	struct epoll_event events[16];
	int count;

	/* Edge-triggered: taking an event makes the descriptor unreadable until something new arrives. Bounded: a peer
	 * that sends without end keeps only itself from sleeping. */
	for (unsigned turn = 0; turn < 64; turn++) {
		count = epoll_wait(cq->epoll_fd, events, KVR_COUNT_OF(events), 0);
		for (int i = 0; i < count; i++)
			drain(cq, events[i].data.ptr);
		if (count < (int)KVR_COUNT_OF(events))
			break;
	}
	local_cq_disarm(cq);
}

void local_cq_disarm(struct local_cq *cq)
{
	if (!kvr_load_relaxed(&cq->armed))
		return;
	kvr_store_relaxed(&cq->armed, 0);
	list_for_each(node, &cq->started)
		kvr_store_relaxed(&KVR_CONTAINER_OF(node, struct local_cq_link, node)->qp->mine->sleeping, 0);
}

int local_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct local_cq *cq = local_cq_of(ibv);
	bool work = false;

	(void)solicited_only; /* every completion counts: nobody marks messages as solicited */
	kvr_store_relaxed(&cq->armed, 1);
	list_for_each(node, &cq->started)
		kvr_store_relaxed(&KVR_CONTAINER_OF(node, struct local_cq_link, node)->qp->mine->sleeping, 1);
	kvr_fence_full();
	/* A NIC would go on while its owner sleeps. This device moves data only when polled, so it must not let the
	 * owner sleep. */
	list_for_each(node, &cq->started) {
		if (local_qp_has_work(KVR_CONTAINER_OF(node, struct local_cq_link, node)->qp)) {
			work = true;
			break;
		}
	}
	if (work)
		local_cq_wake_self(cq);
	return 0;
}

void local_qp_wake_peer(struct local_qp *qp)
{
	qp->wake_due = false;
	kvr_fence_full();
	if (KVR_LIKELY(!kvr_load_relaxed(&qp->peer->sleeping)))
		return;
	kvr_store_relaxed(&qp->peer->sleeping, 0);
	/* When the socket is full, the peer has wake-ups that it has not taken: it is awake, or will not wake for this
	 * one either. */
	if (send(qp->wake_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
}
