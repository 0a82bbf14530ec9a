/* fake_verbs.c - the device side: what is posted stays until the test says how it ended, or the queue pair fails. */
#include "fake/fake_verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake/fake_private.h"

static struct fake_verbs state;
static struct fake_qp *qps;
static uint32_t next_number;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct fake_verbs *fake_verbs_state(void)
{
	return &state;
}

void fake_count(int by)
{
	pthread_mutex_lock(&lock);
	state.objects += (unsigned)by;
	pthread_mutex_unlock(&lock);
}

/* ---- queues ----------------------------------------------------------------------------------------------------- */

static struct fake_qp *find(uint32_t number)
{
	for (struct fake_qp *qp = qps; qp; qp = qp->next) {
		if (qp->qp.qp_num == number)
			return qp;
	}
	return NULL;
}

static void push(struct ibv_cq *ibv, const struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)ibv;

	if (cq->count < FAKE_QUEUE)
		cq->wcs[cq->count++] = *wc;
}

/* The oldest `count` leave the queue; those that say something go to the completion queue. */
static void complete(struct fake_queue *queue, struct ibv_cq *cq, const struct fake_qp *qp, unsigned count,
	enum ibv_wc_status status, enum ibv_wc_opcode opcode)
{
	for (unsigned i = 0; i < count && queue->count > 0; i++) {
		struct ibv_wc wc = { .wr_id = queue->ids[0], .status = status, .qp_num = qp->qp.qp_num };
		bool speaks = queue->signalled[0] || status != IBV_WC_SUCCESS;

		wc.opcode = status == IBV_WC_SUCCESS ? opcode : (enum ibv_wc_opcode)0x7f;
		queue->count--;
		memmove(queue->ids, queue->ids + 1, queue->count * sizeof(queue->ids[0]));
		memmove(queue->signalled, queue->signalled + 1, queue->count * sizeof(queue->signalled[0]));
		if (speaks)
			push(cq, &wc);
	}
}

static void complete_sends(uint32_t number, unsigned count, enum ibv_wc_status status)
{
	struct fake_qp *qp = find(number);

	pthread_mutex_lock(&lock);
	complete(&qp->send, qp->qp.send_cq, qp, count, status, IBV_WC_SEND);
	pthread_mutex_unlock(&lock);
}

static void complete_receives(uint32_t number, unsigned count, enum ibv_wc_status status)
{
	struct fake_qp *qp = find(number);

	pthread_mutex_lock(&lock);
	complete(&qp->receive, qp->qp.recv_cq, qp, count, status, IBV_WC_RECV);
	pthread_mutex_unlock(&lock);
}

static void complete_shared(uint32_t number, enum ibv_wc_status status)
{
	struct fake_qp *qp = find(number);
	struct fake_srq *srq = (struct fake_srq *)qp->qp.srq;
	struct ibv_wc wc = { .status = status, .qp_num = number, .opcode = IBV_WC_RECV };

	pthread_mutex_lock(&lock);
	wc.wr_id = srq->queue.ids[--srq->queue.count];
	push(qp->qp.recv_cq, &wc);
	pthread_mutex_unlock(&lock);
}

static int enqueue(struct fake_queue *queue, uint64_t id, bool signalled)
{
	int error = 0;

	pthread_mutex_lock(&lock);
	if (queue->count == FAKE_QUEUE) {
		error = ENOMEM;
	} else {
		queue->ids[queue->count] = id;
		queue->signalled[queue->count++] = signalled;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

int fake_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;

	for (; wr; wr = wr->next) {
		int error = state.post_errno;

		if (!error)
			error = enqueue(&qp->send, wr->wr_id, wr->send_flags & IBV_SEND_SIGNALED);
		*bad = wr;
		if (error)
			return error;
	}
	if (qp->failed)
		complete_sends(ibv->qp_num, FAKE_QUEUE, IBV_WC_WR_FLUSH_ERR);
	return 0;
}

int fake_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;

	for (; wr; wr = wr->next) {
		int error = enqueue(&qp->receive, wr->wr_id, true);

		*bad = wr;
		if (error)
			return error;
	}
	return 0;
}

int fake_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	*bad = wr;
	return enqueue(&((struct fake_srq *)ibv)->queue, wr->wr_id, true);
}

int fake_poll_cq(struct ibv_cq *ibv, int count, struct ibv_wc *wcs)
{
	struct fake_cq *cq = (struct fake_cq *)ibv;
	int given = 0;

	pthread_mutex_lock(&lock);
	while (given < count && (unsigned)given < cq->count) {
		wcs[given] = cq->wcs[given];
		given++;
	}
	cq->count -= (unsigned)given;
	memmove(cq->wcs, cq->wcs + given, cq->count * sizeof(cq->wcs[0]));
	pthread_mutex_unlock(&lock);
	return given;
}

int fake_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	(void)cq;
	(void)solicited_only;
	return 0;
}

/* ---- queue pairs ------------------------------------------------------------------------------------------------ */

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes)
{
	struct fake_qp *qp;

	if (state.qp_errno || attributes->cap.max_inline_data > state.max_inline) {
		errno = state.qp_errno ? state.qp_errno : EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	qp->qp.context = pd->context;
	qp->qp.pd = pd;
	qp->qp.qp_context = attributes->qp_context;
	qp->qp.send_cq = attributes->send_cq;
	qp->qp.recv_cq = attributes->recv_cq;
	qp->qp.srq = attributes->srq;
	pthread_mutex_lock(&lock);
	qp->qp.qp_num = ++next_number;
	qp->next = qps;
	qps = qp;
	pthread_mutex_unlock(&lock);
	fake_count(1);
	return &qp->qp;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attributes, int mask)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;
	int error = state.modify_errno[attributes->qp_state];

	if (error)
		return error;
	pthread_mutex_lock(&lock);
	state.asked[attributes->qp_state] = *attributes;
	state.asked_mask[attributes->qp_state] = mask;
	if (attributes->qp_state == IBV_QPS_ERR) {
		qp->failed = true;
		complete(&qp->send, qp->qp.send_cq, qp, FAKE_QUEUE, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND);
		complete(&qp->receive, qp->qp.recv_cq, qp, FAKE_QUEUE, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
	pthread_mutex_lock(&lock);
	for (struct fake_qp **link = &qps; *link; link = &(*link)->next) {
		if (&(*link)->qp == ibv) {
			*link = (*link)->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	free(ibv);
	fake_count(-1);
	return 0;
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static void cq_event(uint32_t number)
{
	struct fake_cq *cq = (struct fake_cq *)find(number)->qp.recv_cq;

	fake_event_put(((struct fake_channel *)cq->cq.channel)->write_fd, &cq, sizeof(cq));
}

static void put_async(const struct ibv_async_event *event)
{
	fake_event_put(fake_async_fd(), event, sizeof(*event));
}

static void port_event(enum ibv_event_type type, int port)
{
	struct ibv_async_event event = { .event_type = type };

	event.element.port_num = port;
	put_async(&event);
}

static void qp_event(enum ibv_event_type type, uint32_t number)
{
	struct ibv_async_event event = { .event_type = type };

	event.element.qp = &find(number)->qp;
	put_async(&event);
}

static void device_event(enum ibv_event_type type)
{
	struct ibv_async_event event = { .event_type = type };

	put_async(&event);
}

/* ---- a good machine --------------------------------------------------------------------------------------------- */

void fake_verbs_reset(void)
{
	static const uint8_t address[16] = { [10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1 };

	memset(&state, 0, sizeof(state));
	state.device_count = 1;
	state.names[0] = "fake0";
	state.names[1] = "fake1";
	state.ports = 1;
	for (int i = 0; i < FAKE_PORTS; i++) {
		state.port[i].state = IBV_PORT_ACTIVE;
		state.port[i].link_layer = IBV_LINK_LAYER_ETHERNET;
		state.port[i].active_mtu = IBV_MTU_4096;
		state.port[i].max_msg_sz = 1u << 30;
		state.port[i].gid_tbl_len = FAKE_GIDS;
	}
	state.gid_count = 1;
	state.gids[0].port_num = 1;
	state.gids[0].gid_type = IBV_GID_TYPE_ROCE_V2;
	memcpy(state.gids[0].gid.raw, address, sizeof(address));
	state.attributes.max_mr_size = UINT64_MAX;
	state.attributes.max_cqe = 4096;
	state.attributes.max_qp_wr = 1024;
	state.attributes.max_sge = 16;
	state.attributes.max_srq_wr = 1024;
	state.attributes.max_srq_sge = 8;
	state.attributes.max_qp_rd_atom = 16;
	state.attributes.max_qp_init_rd_atom = 16;
	state.max_inline = 256;
	state.complete_sends = complete_sends;
	state.complete_receives = complete_receives;
	state.complete_shared = complete_shared;
	state.cq_event = cq_event;
	state.port_event = port_event;
	state.qp_event = qp_event;
	state.device_event = device_event;
}

__attribute__((constructor)) static void begin(void)
{
	const char *machine = getenv("FAKE_VERBS");

	fake_verbs_reset();
	if (!machine || strcmp(machine, "good") == 0)
		return;
	if (strcmp(machine, "no-device") == 0)
		state.device_count = 0;
	else if (strcmp(machine, "port-down") == 0)
		state.port[0].state = IBV_PORT_DOWN;
	else if (strcmp(machine, "no-address") == 0)
		state.gid_count = 0;
	else if (strcmp(machine, "no-permission") == 0)
		state.open_errno = EACCES;
	else if (strcmp(machine, "two-devices") == 0)
		state.device_count = 2;
	else if (strcmp(machine, "small-regions") == 0)
		state.attributes.max_mr_size = (uint64_t)20 << 20;
	else if (strcmp(machine, "small-mtu") == 0)
		state.port[0].active_mtu = IBV_MTU_1024;
	else
		abort();
}
