#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "verbs/sim/sim.h"

static const char address_magic[8] = "KVRSIM1";

static struct sim_qp *qp_of(const struct ibv_qp *qp)
{
	return KVR_CONTAINER_OF(qp, struct sim_qp, base);
}

static struct sim_cq *cq_of(const struct ibv_cq *cq)
{
	return KVR_CONTAINER_OF(cq, struct sim_cq, base);
}

/* ---- creation ------------------------------------------------------------------------------------------------- */

static bool options_good(const struct sim_device *device, const struct verbs_qp_options *options)
{
	const struct verbs_limits *limits = &device->base.limits;

	return !device->dead && options->send_cq && options->recv_cq && options->send_cq->context == &device->context &&
		options->recv_cq->context == &device->context &&
		(!options->srq || options->srq->context == &device->context) && options->max_send_wr > 0 &&
		options->max_send_wr <= limits->max_send_wr &&
		(options->srq || options->max_recv_wr <= limits->max_recv_wr) && options->max_sge > 0 &&
		options->max_sge <= limits->max_sge && options->max_inline_bytes <= limits->max_inline_bytes;
}

/* The arrays of the send queue. What was made before a failure is freed by sim_qp_free. */
static int make_send_queue(struct sim_qp *qp)
{
	uint32_t count = qp->max_send_wr;
	uint64_t slots = 1;

	while (slots < count)
		slots *= 2;
	qp->mask = slots - 1;
	qp->ring = fault_point("sim_create_qp/ring") ? NULL : calloc(slots, sizeof(struct sim_wr *));
	qp->wrs = calloc(count, sizeof(*qp->wrs));
	qp->sges = calloc((size_t)count * qp->max_sge, sizeof(*qp->sges));
	qp->inline_bytes = calloc(count, kvr_max_u64(qp->max_inline, 1));
	if (!qp->ring || !qp->wrs || !qp->sges || !qp->inline_bytes)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		qp->wrs[i].sges = &qp->sges[(size_t)i * qp->max_sge];
		qp->wrs[i].inline_bytes = &qp->inline_bytes[(size_t)i * qp->max_inline];
		list_add_last(&qp->free_wrs, &qp->wrs[i].in_free);
	}
	return 0;
}

static void init_base(struct sim_qp *qp, const struct verbs_qp_options *options)
{
	qp->base.context = &qp->device->context;
	qp->base.qp_context = options->context;
	qp->base.send_cq = options->send_cq;
	qp->base.recv_cq = options->recv_cq;
	qp->base.srq = options->srq;
	qp->base.state = IBV_QPS_INIT;
	qp->base.qp_type = IBV_QPT_RC;
	qp->max_send_wr = options->max_send_wr;
	qp->max_recv_wr = options->srq ? 0 : options->max_recv_wr;
	qp->max_sge = options->max_sge;
	qp->max_inline = options->max_inline_bytes;
	qp->max_message = options->max_message_bytes;
	qp->max_reads = qp->device->base.limits.max_rd_atomic;
	qp->refused = UINT64_MAX;
	qp->parked_end = &qp->parked;
	list_init(&qp->in_device);
	list_init(&qp->free_wrs);
	list_init(&qp->taken);
}

/* Into the tables: a number, two events of its own (SIM_LOOK, SIM_RECEIVED), the queues' users. */
static int enrol(struct sim_qp *qp)
{
	struct sim_fabric *fabric = qp->fabric;
	int error = sim_reserve(fabric, 2);

	if (error)
		return error;
	qp->reserved = 2;
	qp->base.qp_num = sim_table_new_key(&fabric->numbers, &fabric->random, UINT64_C(1) << 24);
	error = sim_table_add(&fabric->numbers, qp->base.qp_num, qp);
	if (error)
		return error;
	cq_of(qp->base.send_cq)->users++;
	cq_of(qp->base.recv_cq)->users++;
	if (qp->base.srq)
		KVR_CONTAINER_OF(qp->base.srq, struct sim_srq, base)->users++;
	list_add_last(&qp->device->qps, &qp->in_device);
	return 0;
}

int sim_create_qp(struct verbs_device *base, const struct verbs_qp_options *options, struct ibv_qp **qp)
{
	struct sim_device *device = KVR_CONTAINER_OF(base, struct sim_device, base);
	struct sim_qp *new;
	int error;

	*qp = NULL;
	if (!options_good(device, options))
		return -EINVAL;
	new = fault_point("sim_create_qp") ? NULL : calloc(1, sizeof(*new));
	if (!new)
		return -ENOMEM;
	new->device = device;
	new->fabric = device->fabric;
	init_base(new, options);
	error = sim_receive_queue_init(&new->own_queue, new->max_recv_wr, new->max_sge);
	if (!error)
		error = make_send_queue(new);
	if (!error)
		error = enrol(new);
	if (error) {
		sim_qp_free(new);
		return error;
	}
	new->queue = &new->own_queue;
	if (options->srq)
		new->queue = &KVR_CONTAINER_OF(options->srq, struct sim_srq, base)->queue;
	*qp = &new->base;
	return 0;
}

/* ---- connection ----------------------------------------------------------------------------------------------- */

int sim_qp_address(
	struct ibv_qp *base, uint8_t *bytes, uint32_t capacity, uint32_t *length, int *fds, unsigned *fd_count)
{
	(void)fds;
	*fd_count = 0;
	*length = 0;
	if (capacity < SIM_ADDRESS_BYTES)
		return -EMSGSIZE;
	memcpy(bytes, address_magic, sizeof(address_magic));
	memcpy(bytes + sizeof(address_magic), &base->qp_num, sizeof(base->qp_num));
	*length = SIM_ADDRESS_BYTES;
	return 0;
}

uint32_t sim_match(const struct verbs_device *base, const uint8_t *bytes, uint32_t length)
{
	const struct sim_device *device = KVR_CONTAINER_OF(base, struct sim_device, base);
	const struct sim_qp *peer;
	uint32_t number;

	if (length != SIM_ADDRESS_BYTES || memcmp(bytes, address_magic, sizeof(address_magic)) != 0)
		return 0;
	memcpy(&number, bytes + sizeof(address_magic), sizeof(number));
	peer = sim_table_find(&device->fabric->numbers, number);
	return peer && peer->device->subnet == device->subnet ? SIM_MATCH_SAME : SIM_MATCH_SAME - 1;
}

int sim_qp_connect(struct ibv_qp *base, const uint8_t *bytes, uint32_t length, const int *fds, unsigned fd_count,
	const struct stream_peer *peer)
{
	struct sim_qp *qp = qp_of(base);
	uint32_t number;

	(void)fds;
	(void)fd_count;
	(void)peer;
	if (length != SIM_ADDRESS_BYTES || memcmp(bytes, address_magic, sizeof(address_magic)) != 0)
		return -EBADMSG;
	memcpy(&number, bytes + sizeof(address_magic), sizeof(number));
	if (qp->gone || qp->state != SIM_QP_INIT || number == 0 || number == base->qp_num)
		return -EINVAL;
	if (fault_point("sim_qp_connect"))
		return -ENOMEM;
	qp->peer_number = number;
	qp->state = SIM_QP_READY;
	base->state = IBV_QPS_RTS;
	return 0;
}

void sim_qp_start(struct ibv_qp *base)
{
	struct sim_qp *qp = qp_of(base);
	struct sim_qp *peer;

	if (qp->gone)
		return;
	if (qp->started || qp->state == SIM_QP_INIT)
		qp->fabric->counters.misuses++;
	qp->started = true;
	sim_launch(qp);
	peer = sim_table_find(&qp->fabric->numbers, qp->peer_number);
	if (peer && peer->peer_number == base->qp_num)
		sim_launch(peer);
}

/* ---- the end -------------------------------------------------------------------------------------------------- */

static void flush_sends(struct sim_qp *qp)
{
	struct ibv_wc wc = { .status = IBV_WC_WR_FLUSH_ERR, .qp_num = qp->base.qp_num };

	while (qp->completed < qp->posted) {
		struct sim_wr *wr = qp->ring[qp->completed++ & qp->mask];

		wr->completed = true;
		qp->fabric->counters.flushed++;
		sim_push_error(qp, cq_of(qp->base.send_cq), &wc, wr->wr_id, qp->completed);
		sim_wr_retire(qp, wr);
	}
}

void sim_flush_receives(struct sim_qp *qp)
{
	struct ibv_wc wc = { .status = IBV_WC_WR_FLUSH_ERR, .qp_num = qp->base.qp_num };
	struct list_node *node;

	sim_show_receives(qp, true);
	if (qp->queue != &qp->own_queue)
		return;
	while ((node = list_pop_first(&qp->own_queue.posted))) {
		struct sim_receive *receive = KVR_CONTAINER_OF(node, struct sim_receive, in_queue);

		sim_push_error(qp, cq_of(qp->base.recv_cq), &wc, receive->wc.wr_id, 0);
		list_add_last(&qp->own_queue.free, node);
	}
}

void sim_push_error(struct sim_qp *qp, struct sim_cq *cq, struct ibv_wc *wc, uint64_t wr_id, uint64_t sent)
{
	/* Only wr_id, status and qp_num stand in an error completion; who reads the others shall notice. */
	uint64_t garbage = random_next(&qp->fabric->random);

	wc->wr_id = wr_id;
	wc->opcode = (enum ibv_wc_opcode)(garbage & 0xff);
	wc->byte_len = (uint32_t)(garbage >> 8);
	wc->imm_data = (uint32_t)(garbage >> 16);
	wc->vendor_err = (uint32_t)wc->status;
	sim_cq_push(cq, wc, qp, sent);
}

void sim_qp_error(struct sim_qp *qp)
{
	if (qp->state == SIM_QP_ERROR)
		return;
	qp->state = SIM_QP_ERROR;
	qp->base.state = IBV_QPS_ERR;
	flush_sends(qp);
	sim_flush_receives(qp);
	sim_unpark(qp);
	if (qp->peer)
		sim_unpark(qp->peer);
}

void sim_qp_fail(struct ibv_qp *base)
{
	if (!qp_of(base)->gone)
		sim_qp_error(qp_of(base));
}

bool sim_qp_idle(const struct ibv_qp *base)
{
	const struct sim_qp *qp = qp_of(base);

	return qp->gone || (qp->state == SIM_QP_ERROR && qp->out_flight == 0 && qp->in_flight == 0 && !qp->withheld);
}

static void leave_queues(struct sim_qp *qp)
{
	sim_cq_purge(cq_of(qp->base.send_cq), qp);
	sim_cq_purge(cq_of(qp->base.recv_cq), qp);
}

void sim_qp_stop(struct ibv_qp *base)
{
	struct sim_qp *qp = qp_of(base);

	if (qp->gone)
		return;
	if (!sim_qp_idle(base) || qp->stopped)
		qp->fabric->counters.misuses++;
	sim_qp_error(qp);
	qp->stopped = true;
	leave_queues(qp);
}

void sim_destroy_qp(struct ibv_qp *base)
{
	struct sim_qp *qp = qp_of(base);

	if (!qp->gone && qp->started && !qp->stopped)
		qp->fabric->counters.misuses++;
	sim_qp_kill(qp);
	sim_qp_bury(qp);
}

void sim_qp_kill(struct sim_qp *qp)
{
	struct list_node *node;

	if (qp->gone)
		return;
	qp->gone = true;
	qp->state = SIM_QP_ERROR;
	qp->base.state = IBV_QPS_ERR;
	sim_table_remove(&qp->fabric->numbers, qp->base.qp_num);
	leave_queues(qp);
	while ((node = list_pop_first(&qp->taken)))
		list_add_last(&KVR_CONTAINER_OF(node, struct sim_receive, in_queue)->home->free, node);
	if (qp->peer) {
		/* What it had under way in the other's memory ends here, as does what the other had in its. */
		qp->peer->in_flight = 0;
		sim_unpark(qp->peer);
		qp->peer->peer = NULL;
		qp->peer = NULL;
	}
	sim_unpark(qp);
}

void sim_qp_bury(struct sim_qp *qp)
{
	list_remove(&qp->in_device);
	cq_of(qp->base.send_cq)->users--;
	cq_of(qp->base.recv_cq)->users--;
	if (qp->base.srq)
		KVR_CONTAINER_OF(qp->base.srq, struct sim_srq, base)->users--;
	qp->buried = true;
	if (qp->events == 0)
		sim_qp_free(qp);
	else
		list_add_last(&qp->fabric->ghosts, &qp->in_device);
}

void sim_qp_settle(struct sim_qp *qp)
{
	if (qp->buried)
		sim_qp_free(qp);
}

void sim_qp_free(struct sim_qp *qp)
{
	list_remove(&qp->in_device);
	sim_unreserve(qp->fabric, qp->reserved);
	sim_receive_queue_fini(&qp->own_queue);
	free(qp->ring);
	free(qp->wrs);
	free(qp->sges);
	free(qp->inline_bytes);
	free(qp->imports);
	free(qp);
}
