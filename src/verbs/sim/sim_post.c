#include <errno.h>
#include <string.h>

#include "verbs/sim/sim.h"

static struct sim_qp *qp_of(const struct ibv_qp *qp)
{
	return KVR_CONTAINER_OF(qp, struct sim_qp, base);
}

static bool is_send(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}

/* 0 and *length, or EINVAL. */
static int check_send(const struct sim_qp *qp, const struct ibv_send_wr *wr, uint64_t *length)
{
	const struct sim_device *device = qp->device;
	uint64_t total = 0;

	if (!is_send(wr->opcode) && wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_READ)
		return EINVAL;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->max_sge || (wr->num_sge > 0 && !wr->sg_list))
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		total += wr->sg_list[i].length;
	if (total > device->base.limits.max_message_bytes)
		return EINVAL;
	if (is_send(wr->opcode) && qp->max_message > 0 && total > qp->max_message)
		return EINVAL;
	if ((wr->send_flags & IBV_SEND_INLINE) && (wr->opcode == IBV_WR_RDMA_READ || total > qp->max_inline))
		return EINVAL;
	*length = total;
	return 0;
}

static void copy_inline(struct sim_wr *own, const struct ibv_send_wr *wr)
{
	uint8_t *to = own->inline_bytes;

	for (int i = 0; i < wr->num_sge; i++) {
		if (wr->sg_list[i].length == 0)
			continue;
		memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		to += wr->sg_list[i].length;
	}
	own->num_sge = 1;
	own->sges[0].addr = (uintptr_t)own->inline_bytes;
	own->sges[0].length = (uint32_t)own->length;
	own->sges[0].lkey = 0;
}

static void fill(struct sim_qp *qp, struct sim_wr *own, const struct ibv_send_wr *wr)
{
	own->index = qp->posted;
	own->wr_id = wr->wr_id;
	own->opcode = wr->opcode;
	own->flags = wr->send_flags;
	own->immediate = wr->opcode == IBV_WR_SEND_WITH_IMM ? wr->imm_data : 0;
	own->remote_address = wr->wr.rdma.remote_addr;
	own->rkey = wr->wr.rdma.rkey;
	own->status = IBV_WC_SUCCESS;
	own->rnr_left = qp->fabric->options.rnr_retries;
	own->arrived = own->on_wire = own->touching = own->broken = own->done = own->completed = false;
	own->events = 0;
	if (wr->send_flags & IBV_SEND_INLINE) {
		copy_inline(own, wr);
	} else {
		own->num_sge = (uint32_t)wr->num_sge;
		if (own->num_sge > 0)
			memcpy(own->sges, wr->sg_list, own->num_sge * sizeof(*own->sges));
	}
}

static uint32_t draw_pieces(struct sim_fabric *fabric, uint64_t length)
{
	uint64_t most = kvr_min_u64(kvr_min_u64(fabric->options.pieces_max, SIM_PIECES_LIMIT), length);

	return most > 1 ? 1 + (uint32_t)random_below(&fabric->random, most) : 1;
}

static int post_one(struct sim_qp *qp, const struct ibv_send_wr *wr)
{
	struct sim_fabric *fabric = qp->fabric;
	struct sim_wr *own;
	uint64_t length;
	int error = qp->gone || qp->stopped || qp->state == SIM_QP_INIT ? EINVAL : check_send(qp, wr, &length);

	if (error)
		return error;
	if (qp->posted - qp->reclaimed >= qp->max_send_wr)
		return ENOMEM;
	fabric->counters.posted++;
	if (qp->state == SIM_QP_ERROR) {
		struct ibv_wc wc = { .status = IBV_WC_WR_FLUSH_ERR, .qp_num = qp->base.qp_num };

		qp->completed = ++qp->posted;
		fabric->counters.flushed++;
		sim_push_error(qp, KVR_CONTAINER_OF(qp->base.send_cq, struct sim_cq, base), &wc, wr->wr_id, qp->posted);
		return 0;
	}
	own = KVR_CONTAINER_OF(qp->free_wrs.next, struct sim_wr, in_free);
	own->length = length;
	own->pieces = is_send(wr->opcode) || length == 0 ? 0 : draw_pieces(fabric, length);
	own->pieces_left = own->pieces;
	if (sim_reserve(fabric, sim_wr_reserves(own)))
		return ENOMEM;
	qp->reserved += sim_wr_reserves(own);
	list_remove(&own->in_free);
	fill(qp, own, wr);
	qp->ring[qp->posted++ & qp->mask] = own;
	if (fabric->options.cut_per_million > 0 &&
		random_chance(&fabric->random, fabric->options.cut_per_million, 1000000))
		sim_cut_link(qp);
	return 0;
}

int sim_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct sim_qp *qp = qp_of(base);
	int error = 0;

	for (; wr; wr = wr->next) {
		error = post_one(qp, wr);
		if (error) {
			*bad = wr;
			break;
		}
	}
	sim_launch(qp);
	return error;
}

static int receive_one(struct sim_qp *qp, const struct ibv_recv_wr *wr)
{
	int error;

	if (qp->gone || qp->stopped || qp->queue != &qp->own_queue)
		return EINVAL;
	if (qp->receives == qp->max_recv_wr)
		return ENOMEM;
	error = sim_receive_queue_post(&qp->own_queue, wr);
	if (error)
		return error;
	qp->receives++;
	if (qp->state == SIM_QP_ERROR)
		sim_flush_receives(qp);
	return 0;
}

int sim_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct sim_qp *qp = qp_of(base);

	for (; wr; wr = wr->next) {
		int error = receive_one(qp, wr);

		if (error) {
			*bad = wr;
			return error;
		}
	}
	return 0;
}
