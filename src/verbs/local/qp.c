/* qp.c - a queue pair's life: made, connected, started, failed, stopped, destroyed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "base/log.h"
#include "protocol/wire.h"
#include "verbs/local/local.h"

/* Dense: a number among the lowest that are free. 0: none. Without the device's lock, under which memory is mapped: that takes long. */
static uint32_t take_number(struct local_device *device)
{
	for (uint32_t i = 0; i < KVR_COUNT_OF(device->qp_taken); i++) {
		uint64_t taken = kvr_load_acquire(&device->qp_taken[i]);

		while (taken != UINT64_MAX) {
			uint32_t bit = (uint32_t)__builtin_ctzll(~taken);

			taken = kvr_fetch_or(&device->qp_taken[i], UINT64_C(1) << bit);
			if (!(taken >> bit & 1))
				return i * 64 + bit + 1;
		}
	}
	return 0;
}

static void give_number(struct local_device *device, uint32_t number)
{
	kvr_fetch_and(&device->qp_taken[(number - 1) / 64], ~(UINT64_C(1) << ((number - 1) % 64)));
}

static bool options_are_sound(const struct verbs_limits *limits, const struct verbs_qp_options *options)
{
	return options->send_cq && options->recv_cq && options->max_send_wr > 0 &&
		options->max_send_wr <= limits->max_send_wr && options->max_sge > 0 &&
		options->max_sge <= limits->max_sge && options->max_inline_bytes <= limits->max_inline_bytes &&
		options->max_message_bytes <= LOCAL_MESSAGE_BYTES_MAX && options->peer_recv_wr <= LOCAL_SLOTS_MAX &&
		(options->srq || (options->max_recv_wr > 0 && options->max_recv_wr <= limits->max_recv_wr));
}

/* The server's choice: room for as many messages as the peer has receives for, in both directions alike. */
static void choose_geometry(struct local_geometry *geometry, const struct verbs_qp_options *options)
{
	uint32_t wanted = options->peer_recv_wr;

	if (!options->srq && options->max_recv_wr > wanted)
		wanted = options->max_recv_wr;
	geometry->slots = LOCAL_SLOTS_MIN;
	while (geometry->slots < wanted && geometry->slots < LOCAL_SLOTS_MAX)
		geometry->slots *= 2;
	geometry->message_bytes = options->max_message_bytes ? options->max_message_bytes : LOCAL_FIRST_BYTES;
	geometry->stride = local_slot_stride(geometry->message_bytes);
}

static int make_queues(struct local_qp *qp, const struct verbs_qp_options *options)
{
	uint32_t behind = (uint32_t)(options->max_sge * sizeof(struct ibv_sge));
	uint32_t count = 1;
	int rc;

	qp->sge_max = options->max_sge;
	qp->inline_max = options->max_inline_bytes > behind ? options->max_inline_bytes : behind;
	qp->send_depth = options->max_send_wr;
	qp->send_stride = (uint32_t)kvr_round_up(sizeof(struct local_send) + qp->inline_max, KVR_CACHE_LINE);
	while (count < options->max_send_wr)
		count *= 2;
	qp->send_mask = count - 1;
	qp->sends = fault_point("local_create_qp/sends")
		? NULL
		: aligned_alloc(KVR_CACHE_LINE, (size_t)count * qp->send_stride);
	if (!qp->sends)
		return -ENOMEM;
	memset(qp->sends, 0, (size_t)count * qp->send_stride);
	if (options->srq) {
		qp->receive_queue = &KVR_CONTAINER_OF(options->srq, struct local_srq, srq)->queue;
		return 0;
	}
	rc = local_receive_queue_init(&qp->own_queue, options->max_recv_wr, options->max_sge);
	qp->receive_queue = &qp->own_queue;
	return rc;
}

static void free_qp(struct local_qp *qp)
{
	if (qp->wake_fd >= 0) {
		/* A forked child may hold a copy, so that closing alone would not take it off. */
		epoll_ctl(local_cq_of(qp->qp.recv_cq)->epoll_fd, EPOLL_CTL_DEL, qp->wake_fd, NULL);
		epoll_ctl(local_cq_of(qp->qp.send_cq)->epoll_fd, EPOLL_CTL_DEL, qp->wake_fd, NULL);
	}
	local_forget_all(qp);
	local_keys_fini(&qp->imports);
	local_process_close(&qp->process);
	local_rings_destroy(qp);
	local_receive_queue_fini(&qp->own_queue);
	free(qp->sends);
	if (qp->is_watched)
		local_watch_release(local_cq_of(qp->qp.recv_cq));
	if (qp->qp.qp_num != 0)
		give_number(qp->device, qp->qp.qp_num);
	free(qp);
}

static struct local_qp *new_qp(struct local_device *device, const struct verbs_qp_options *options)
{
	struct local_qp *qp = aligned_alloc(KVR_CACHE_LINE, kvr_round_up(sizeof(*qp), KVR_CACHE_LINE));

	if (!qp)
		return NULL;
	memset(qp, 0, sizeof(*qp));
	qp->device = device;
	qp->shared_fd = qp->wake_fd = qp->peer_wake_fd = -1;
	qp->process.pid_fd = qp->process.proc_fd = -1;
	list_init(&qp->busy);
	list_init(&qp->recv_link.node);
	list_init(&qp->send_link.node);
	qp->recv_link.qp = qp;
	qp->send_link.qp = qp;
	qp->qp.context = &device->context;
	qp->qp.qp_context = options->context;
	qp->qp.send_cq = options->send_cq;
	qp->qp.recv_cq = options->recv_cq;
	qp->qp.srq = options->srq;
	qp->qp.state = IBV_QPS_INIT;
	qp->qp.qp_type = IBV_QPT_RC;
	return qp;
}

int local_create_qp(struct verbs_device *device, const struct verbs_qp_options *options, struct ibv_qp **out)
{
	struct local_device *local = KVR_CONTAINER_OF(device, struct local_device, device);
	struct local_qp *qp;
	int rc;

	if (!options_are_sound(&device->limits, options))
		return -EINVAL;
	qp = fault_point("local_create_qp") ? NULL : new_qp(local, options);
	if (!qp)
		return -ENOMEM;
	choose_geometry(&qp->geometry, options);
	qp->qp.qp_num = take_number(local);
	rc = qp->qp.qp_num == 0 ? -ENOMEM : local_watch_reserve(local_cq_of(options->recv_cq));
	qp->is_watched = rc == 0;
	if (rc == 0)
		rc = make_queues(qp, options);
	if (rc == 0 && local->server)
		rc = local_keys_init(&qp->imports, WIRE_REGIONS_MAX, LOCAL_KEY_THEIRS);
	if (rc == 0 && local->server)
		rc = local_rings_create(qp);
	if (rc != 0) {
		free_qp(qp);
		return rc;
	}
	*out = &qp->qp;
	return 0;
}

int local_qp_address(
	struct ibv_qp *ibv, uint8_t *bytes, uint32_t capacity, uint32_t *length, int *fds, unsigned *fd_count)
{
	struct local_qp *qp = local_qp_of(ibv);
	struct local_address address = { .qp_num = qp->qp.qp_num, .geometry = qp->geometry };

	if (capacity < LOCAL_ADDRESS_BYTES)
		return -EMSGSIZE;
	*fd_count = 0;
	address.role = qp->device->server ? LOCAL_SERVER : LOCAL_CLIENT;
	if (qp->device->server) {
		fds[0] = qp->shared_fd;
		fds[1] = qp->peer_wake_fd;
		*fd_count = LOCAL_ADDRESS_FDS;
	} else {
		address.geometry.slots = 0;
		address.geometry.stride = 0;
	}
	local_address_encode(&address, bytes);
	*length = LOCAL_ADDRESS_BYTES;
	return 0;
}

/* The wake socket wakes whoever sleeps on either completion queue. Nothing is watched on an error. */
static int watch_wakes(struct local_qp *qp)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = qp };
	struct local_cq *send_cq = local_cq_of(qp->qp.send_cq);
	struct local_cq *recv_cq = local_cq_of(qp->qp.recv_cq);

	if (fault_point("local_qp_connect/epoll") ||
		epoll_ctl(recv_cq->epoll_fd, EPOLL_CTL_ADD, qp->wake_fd, &event) != 0)
		return -ENOMEM;
	if (send_cq == recv_cq || epoll_ctl(send_cq->epoll_fd, EPOLL_CTL_ADD, qp->wake_fd, &event) == 0)
		return 0;
	epoll_ctl(recv_cq->epoll_fd, EPOLL_CTL_DEL, qp->wake_fd, NULL);
	return -ENOMEM;
}

static int connect_client(struct local_qp *qp, const struct local_address *address, const int *fds, unsigned fd_count)
{
	uint32_t wanted = qp->geometry.message_bytes;

	if (fd_count != LOCAL_ADDRESS_FDS)
		return -EBADMSG;
	if (address->geometry.message_bytes < wanted) {
		log_error("local: the server takes messages of %u bytes, %u are wanted",
			address->geometry.message_bytes, wanted);
		return -EINVAL;
	}
	return local_rings_attach(qp, &address->geometry, fds);
}

int local_qp_connect(struct ibv_qp *ibv, const uint8_t *bytes, uint32_t length, const int *fds, unsigned fd_count,
	const struct stream_peer *peer)
{
	struct local_qp *qp = local_qp_of(ibv);
	bool server = qp->device->server;
	struct local_address address;
	int rc;

	if (qp->connected)
		return -EINVAL;
	rc = local_address_decode(bytes, length, &address);
	if (rc != 0 || address.role != (server ? LOCAL_CLIENT : LOCAL_SERVER))
		return -EBADMSG;
	if (!server) {
		rc = connect_client(qp, &address, fds, fd_count);
	} else if (address.geometry.message_bytes > qp->message_bytes) {
		log_error("local: a client wants to send messages of %u bytes, %u are the most",
			address.geometry.message_bytes, qp->message_bytes);
		rc = -EINVAL;
	}
	if (rc != 0)
		return rc;
	rc = watch_wakes(qp);
	if (rc != 0) {
		if (!server)
			local_rings_destroy(qp);
		return rc;
	}
	if (server)
		local_process_open(&qp->process, peer);
	else if (peer && peer->pid != 0)
		kvr_store_relaxed(&qp->device->peer_may_kill, (uint32_t)(peer->uid == geteuid() || peer->uid == 0));
	qp->peer_qp_num = address.qp_num;
	qp->connected = true;
	if (qp->qp.state == IBV_QPS_INIT)
		qp->qp.state = IBV_QPS_RTS;
	return 0;
}

void local_qp_start(struct ibv_qp *ibv)
{
	struct local_qp *qp = local_qp_of(ibv);
	struct local_cq *send_cq = local_cq_of(qp->qp.send_cq);
	struct local_cq *recv_cq = local_cq_of(qp->qp.recv_cq);

	if (qp->is_started || !qp->connected)
		return;
	qp->is_started = true;
	list_add_last(&recv_cq->started, &qp->recv_link.node);
	local_watch_add(qp);
	if (send_cq != recv_cq)
		list_add_last(&send_cq->started, &qp->send_link.node);
	if (qp->send_head != qp->send_tail)
		list_add_last(&send_cq->busy, &qp->busy);
	/* Whoever armed a queue before this one came is woken by it as well. */
	if (kvr_load_relaxed(&send_cq->armed) || kvr_load_relaxed(&recv_cq->armed)) {
		kvr_store_relaxed(&qp->mine->sleeping, 1);
		local_cq_wake_self(recv_cq);
	}
}

void local_qp_to_error(struct local_qp *qp, enum local_closed reason)
{
	if (!qp->failed) {
		qp->failed = true;
		qp->qp.state = IBV_QPS_ERR;
		local_watch_update(qp);
		if (qp->mine) {
			kvr_store_release(&qp->mine->closed, (uint32_t)reason);
			local_qp_wake_peer(qp);
		}
	}
	if (qp->job_running) {
		/* Its work request completes when the helper has let go of it, and the rest behind it. */
		kvr_store_release(&qp->job.cancel, 1);
		return;
	}
	if (qp->lane)
		return; /* local_gpu_collect comes back when its copies have ended */
	qp->begun = false;
	while (qp->send_exec != qp->send_tail)
		local_send_at(qp, qp->send_exec++)->status = IBV_WC_WR_FLUSH_ERR;
	qp->send_done = qp->send_exec;
}

void local_qp_fail(struct ibv_qp *ibv)
{
	local_qp_to_error(local_qp_of(ibv), LOCAL_CLOSED);
}

bool local_qp_idle(const struct ibv_qp *ibv)
{
	const struct local_qp *qp = KVR_CONTAINER_OF(ibv, struct local_qp, qp);

	if (!qp->is_started)
		return true;
	/* a transfer that the helper or a GPU has is still between head and tail */
	return qp->failed && qp->send_head == qp->send_tail && qp->own_queue.head == qp->own_queue.tail;
}

void local_qp_stop(struct ibv_qp *ibv)
{
	struct local_qp *qp = local_qp_of(ibv);

	if (qp->is_started)
		local_watch_remove(qp);
	list_remove(&qp->recv_link.node);
	list_remove(&qp->send_link.node);
	list_remove(&qp->busy);
	qp->is_started = false;
}

void local_destroy_qp(struct ibv_qp *ibv)
{
	free_qp(local_qp_of(ibv));
}
