/* qp.c - a queue pair's life: made, connected, started, failed, stopped, destroyed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "protocol/message.h"
#include "verbs/nic/nic.h"

static bool options_are_sound(const struct nic_device *nic, const struct verbs_qp_options *options)
{
	const struct verbs_limits *limits = &nic->device.limits;

	return options->send_cq && options->recv_cq && options->send_cq->context == &nic->context &&
		options->recv_cq->context == &nic->context && options->max_send_wr > 0 &&
		options->max_send_wr <= limits->max_send_wr && options->max_sge > 0 &&
		options->max_sge <= limits->max_sge && options->max_inline_bytes <= limits->max_inline_bytes &&
		(options->srq || options->max_recv_wr <= limits->max_recv_wr);
}

static int make_queue(struct nic_queue *queue, uint32_t depth, uint32_t max_sge)
{
	uint32_t count = 1;

	while (count <= depth) /* and the marker */
		count *= 2;
	queue->mask = count - 1;
	queue->depth = depth;
	queue->max_sge = max_sge;
	queue->ids = fault_point("nic_create_qp/queue") ? NULL : calloc(count, sizeof(*queue->ids));
	return queue->ids ? 0 : -ENOMEM;
}

static void free_qp(struct nic_qp *qp)
{
	free(qp->send.ids);
	free(qp->receive.ids);
	free(qp);
}

/* The provider's. 0 or -errno, logged. */
static int make_real(struct nic_qp *qp, const struct verbs_qp_options *options)
{
	struct nic_device *nic = qp->device;
	struct ibv_qp_init_attr attributes = { .qp_type = IBV_QPT_RC, .qp_context = qp };
	int error;

	attributes.send_cq = nic_cq_of(options->send_cq)->real;
	attributes.recv_cq = nic_cq_of(options->recv_cq)->real;
	attributes.srq = options->srq ? nic_srq_of(options->srq)->real : NULL;
	attributes.cap.max_send_wr = options->max_send_wr + 1; /* the marker */
	attributes.cap.max_recv_wr = options->srq ? 0 : options->max_recv_wr;
	attributes.cap.max_send_sge = options->max_sge;
	attributes.cap.max_recv_sge = options->srq ? 0 : options->max_sge;
	attributes.cap.max_inline_data = options->max_inline_bytes;
	errno = 0;
	qp->real = fault_point("nic_create_qp/real") ? NULL : nic->library.create_qp(nic->pd, &attributes);
	if (qp->real) {
		qp->qp.qp_num = qp->real->qp_num;
		qp->max_inline = options->max_inline_bytes;
		return 0;
	}
	error = errno ? errno : ENOMEM;
	log_error("nic: %s: a queue pair of %u sends and %u receives: %s", nic->device.name, options->max_send_wr,
		attributes.cap.max_recv_wr, strerror(error));
	if (error == ENOMEM)
		nic_say_memlock(nic, "a queue pair", 0, error);
	return error == EINVAL ? -EINVAL : -ENOMEM;
}

static struct nic_qp *new_qp(struct nic_device *nic, const struct verbs_qp_options *options)
{
	struct nic_qp *qp = fault_point("nic_create_qp") ? NULL : calloc(1, sizeof(*qp));

	if (!qp)
		return NULL;
	qp->device = nic;
	list_init(&qp->waiting);
	list_init(&qp->buried);
	qp->qp.context = &nic->context;
	qp->qp.qp_context = options->context;
	qp->qp.pd = nic->pd;
	qp->qp.send_cq = options->send_cq;
	qp->qp.recv_cq = options->recv_cq;
	qp->qp.srq = options->srq;
	qp->qp.qp_type = IBV_QPT_RC;
	return qp;
}

/* Into the table, with the port as it is now and a first sequence number of its own. */
static int enrol(struct nic_qp *qp, struct nic_srq *srq)
{
	struct nic_device *nic = qp->device;
	const struct verbs_limits *limits = &nic->device.limits;
	int rc;

	pthread_mutex_lock(&nic->lock);
	nic_sweep(nic, NULL);
	qp->serial = ++nic->serials;
	qp->port = nic->port;
	qp->mine.psn = (uint32_t)random_next(&nic->random) & 0xffffff;
	rc = nic_table_set(&nic->table, qp->qp.qp_num, qp);
	if (srq)
		/* pairs with the load-acquire in poll.c */
		kvr_store_release(&nic_cq_of(qp->qp.recv_cq)->srq, srq);
	pthread_mutex_unlock(&nic->lock);
	qp->mine.qp_num = qp->qp.qp_num;
	qp->mine.gid = qp->port.gid;
	qp->mine.lid = qp->port.lid;
	qp->mine.mtu = qp->port.mtu;
	qp->mine.link_layer = qp->port.link_layer;
	qp->mine.needs_grh = qp->port.needs_grh;
	qp->mine.reads_started = (uint8_t)kvr_min_u64(limits->max_rd_atomic, UINT8_MAX);
	qp->mine.reads_answered = (uint8_t)kvr_min_u64(limits->max_dest_rd_atomic, UINT8_MAX);
	qp->mine.max_message_bytes = limits->max_message_bytes;
	return rc;
}

int nic_create_qp(struct verbs_device *device, const struct verbs_qp_options *options, struct ibv_qp **out)
{
	struct nic_device *nic = nic_device_of(device);
	struct nic_qp *qp;
	int rc;

	if (!options_are_sound(nic, options))
		return -EINVAL;
	qp = new_qp(nic, options);
	if (!qp)
		return -ENOMEM;
	rc = make_queue(&qp->send, options->max_send_wr, options->max_sge);
	if (rc == 0 && !options->srq)
		rc = make_queue(&qp->receive, options->max_recv_wr, options->max_sge);
	if (rc == 0)
		rc = make_real(qp, options);
	if (rc != 0)
		goto free;
	rc = enrol(qp, options->srq ? nic_srq_of(options->srq) : NULL);
	if (rc != 0)
		goto destroy;
	rc = nic_qp_move(qp, NIC_INIT);
	if (rc != 0)
		goto withdraw;
	qp->qp.state = IBV_QPS_INIT;
	*out = &qp->qp;
	return 0;

withdraw:
	pthread_mutex_lock(&nic->lock);
	nic_table_clear(&nic->table, qp->qp.qp_num);
	pthread_mutex_unlock(&nic->lock);
destroy:
	nic->library.destroy_qp(qp->real);
free:
	/* Nothing was posted, so that no polling thread has looked it up. */
	free_qp(qp);
	return rc;
}

int nic_qp_address(
	struct ibv_qp *ibv, uint8_t *bytes, uint32_t capacity, uint32_t *length, int *fds, unsigned *fd_count)
{
	(void)fds;
	*fd_count = 0;
	*length = 0;
	if (capacity < NIC_ADDRESS_BYTES)
		return -EMSGSIZE;
	nic_address_encode(&nic_qp_of(ibv)->mine, bytes);
	*length = NIC_ADDRESS_BYTES;
	return 0;
}

int nic_qp_connect(struct ibv_qp *ibv, const uint8_t *bytes, uint32_t length, const int *fds, unsigned fd_count,
	const struct stream_peer *peer)
{
	struct nic_qp *qp = nic_qp_of(ibv);
	char text[NIC_GID_TEXT];
	const char *why;
	int rc;

	(void)fds;
	(void)fd_count;
	(void)peer;
	rc = nic_address_decode(bytes, length, &qp->theirs);
	if (rc != 0)
		return rc;
	rc = nic_path_agree(&qp->mine, &qp->theirs, &qp->path, &why);
	if (rc != 0) {
		log_error(
			"nic: %s: no way to %s: %s", qp->device->device.name, nic_gid_text(text, &qp->theirs.gid), why);
		return rc;
	}
	rc = nic_qp_move(qp, NIC_RTR);
	if (rc == 0)
		rc = nic_qp_move(qp, NIC_RTS);
	if (rc != 0)
		return rc == -ENOMEM || rc == -EPERM ? rc : -EINVAL;
	qp->qp.state = IBV_QPS_RTS;
	log_debug("nic: %s: queue pair 0x%x to 0x%x of %s: MTU %u, %u reads out, %u in", qp->device->device.name,
		qp->qp.qp_num, qp->theirs.qp_num, nic_gid_text(text, &qp->theirs.gid), 128u << qp->path.mtu,
		qp->path.reads_started, qp->path.reads_answered);
	return 0;
}

void nic_qp_start(struct ibv_qp *ibv)
{
	/* What came before waits in the completion queue's `held`, and the next poll gives it. */
	nic_qp_of(ibv)->started = true;
}

void nic_qp_fail(struct ibv_qp *ibv)
{
	struct nic_qp *qp = nic_qp_of(ibv);

	if (kvr_load_relaxed(&qp->stage) != NIC_ALIVE)
		return;
	ibv->state = IBV_QPS_ERR;
	kvr_store_relaxed(&qp->stage, (uint32_t)NIC_ASKED);
	nic_events_fail(qp);
}

/* Unsignalled work requests that were done before the failure have no completion, and never will: what is posted behind them tells
 * that nothing of the queue is under way. Only when the device is known to flush. */
static void mark(struct nic_qp *qp)
{
	int error;

	if (qp->marked)
		return;
	qp->marked = true;
	error = fault_point("nic_post_marker") ? EINVAL : nic_post_marker(qp);
	if (!error)
		return;
	log_warn("nic: %s: queue pair 0x%x takes no marker (%s), it is destroyed instead", qp->device->device.name,
		qp->qp.qp_num, strerror(error));
	kvr_store_relaxed(&qp->stage, (uint32_t)NIC_ASKED);
	nic_events_fail(qp);
}

/* With a shared receive queue nobody knows how many of its buffers this queue pair has taken: when the device has said
 * that there will be no more, what is left stands in the completion queue, until a poll empties it. */
static bool is_dry(struct nic_qp *qp)
{
	const struct nic_cq *cq = nic_cq_of(qp->qp.recv_cq);

	if (!qp->dry_known) {
		qp->dry_known = true;
		qp->dry_at = cq->dry;
	}
	return cq->dry > qp->dry_at;
}

bool nic_qp_idle(const struct ibv_qp *ibv)
{
	struct nic_qp *qp = nic_qp_of(ibv);
	enum nic_stage stage = kvr_load_acquire(&qp->stage);

	if (!qp->started || stage == NIC_GONE)
		return true;
	if (stage != NIC_DRAINED)
		return false;
	if (qp->send.posted != qp->send.completed) {
		mark(qp);
		return false;
	}
	return ibv->srq ? is_dry(qp) : qp->receive.posted == qp->receive.completed;
}

void nic_qp_stop(struct ibv_qp *ibv)
{
	nic_qp_of(ibv)->started = false;
}

void nic_sweep(struct nic_device *nic, const struct nic_cq *cq)
{
	list_for_each_safe(node, &nic->buried) {
		struct nic_qp *qp = KVR_CONTAINER_OF(node, struct nic_qp, buried);
		const struct nic_cq *send_cq = nic_cq_of(qp->qp.send_cq), *recv_cq = nic_cq_of(qp->qp.recv_cq);

		/* pairs with the store-release at the end of nic_poll_cq */
		if (cq == send_cq || cq == recv_cq ||
			(kvr_load_acquire(&send_cq->polls) != qp->buried_send_polls &&
				kvr_load_acquire(&recv_cq->polls) != qp->buried_recv_polls)) {
			list_remove(&qp->buried);
			free_qp(qp);
		}
	}
}

void nic_destroy_qp(struct ibv_qp *ibv)
{
	struct nic_qp *qp = nic_qp_of(ibv);
	struct nic_device *nic = qp->device;
	int error;

	nic_events_wait(qp);
	/* Before the device may give the number to another. */
	pthread_mutex_lock(&nic->lock);
	if (qp->real)
		nic_table_clear(&nic->table, qp->qp.qp_num);
	pthread_mutex_unlock(&nic->lock);
	error = qp->real ? nic->library.destroy_qp(qp->real) : 0;
	if (error)
		log_error("nic: %s: queue pair 0x%x could not be destroyed: %s", nic->device.name, ibv->qp_num,
			strerror(error));
	pthread_mutex_lock(&nic->lock);
	kvr_fence_full();
	qp->buried_send_polls = kvr_load_acquire(&nic_cq_of(ibv->send_cq)->polls);
	qp->buried_recv_polls = kvr_load_acquire(&nic_cq_of(ibv->recv_cq)->polls);
	list_add_last(&nic->buried, &qp->buried);
	nic_sweep(nic, NULL);
	pthread_mutex_unlock(&nic->lock);
}

uint32_t nic_probe_inline(struct nic_device *nic)
{
	static const uint32_t sizes[] = { 1024, 512, 400, 256, 220, 128, 64, 0 };
	struct ibv_cq *cq = nic->library.create_cq(nic->real, 1, NULL, NULL, 0);
	uint32_t found = 0;

	for (size_t i = 0; cq && i < KVR_COUNT_OF(sizes) && found == 0; i++) {
		struct ibv_qp_init_attr attributes = { .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq };
		struct ibv_qp *qp;

		attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 1;
		attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
		attributes.cap.max_inline_data = sizes[i];
		qp = nic->library.create_qp(nic->pd, &attributes);
		if (!qp)
			continue;
		found = attributes.cap.max_inline_data < sizes[i] ? attributes.cap.max_inline_data : sizes[i];
		nic->library.destroy_qp(qp);
	}
	if (cq)
		nic->library.destroy_cq(cq);
	return found;
}
