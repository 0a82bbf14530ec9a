#include "verbs/sim/sim.h"

static bool is_send(const struct sim_wr *wr)
{
	return wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM;
}

/* ---- launching ------------------------------------------------------------------------------------------------ */

enum peer_presence { PEER_HERE, PEER_NOT_YET, PEER_GONE };

static enum peer_presence look_for_peer(struct sim_qp *qp)
{
	struct sim_qp *peer = qp->peer;

	if (peer)
		return PEER_HERE;
	peer = sim_table_find(&qp->fabric->numbers, qp->peer_number);
	if (!peer || peer->state == SIM_QP_ERROR)
		return PEER_GONE;
	if (peer->state == SIM_QP_INIT)
		return PEER_NOT_YET;
	if (peer->peer_number != qp->base.qp_num)
		return PEER_GONE;
	if (!peer->started)
		return PEER_NOT_YET;
	qp->peer = peer;
	peer->peer = qp;
	if (qp->cut || peer->cut || qp->device->down || peer->device->down ||
		qp->device->subnet != peer->device->subnet)
		qp->cut = peer->cut = true;
	return PEER_HERE;
}

/* When the last byte has left this side's end of the link. */
static uint64_t serialised(struct sim_qp *qp, uint64_t length)
{
	uint32_t rate = qp->fabric->options.bytes_per_us;

	qp->wire_free_ns = kvr_max_u64(qp->wire_free_ns, qp->fabric->now_ns);
	if (rate > 0)
		qp->wire_free_ns += length / rate * 1000 + length % rate * 1000 / rate;
	return qp->wire_free_ns;
}

static void launch_one(struct sim_qp *qp, struct sim_wr *wr)
{
	bool is_read = wr->opcode == IBV_WR_RDMA_READ;
	uint64_t left_ns = serialised(qp, is_read ? 0 : wr->length);

	qp->launched++;
	qp->reads += is_read;
	qp->out_flight++;
	wr->on_wire = true;
	/* One that comes before an earlier one is not taken up before it. */
	sim_schedule(qp, wr, SIM_ARRIVE, left_ns + sim_delay(qp->fabric));
}

/* May the next one go? A FENCE waits for the READs before it, a READ for room among those outstanding. */
static bool must_wait(const struct sim_qp *qp, const struct sim_wr *wr)
{
	uint32_t reads_max = qp->max_reads;

	if ((wr->flags & IBV_SEND_FENCE) && qp->reads > 0)
		return true;
	if (wr->opcode != IBV_WR_RDMA_READ)
		return false;
	if (qp->peer && qp->peer->device->base.limits.max_dest_rd_atomic < reads_max)
		reads_max = qp->peer->device->base.limits.max_dest_rd_atomic;
	return qp->reads >= kvr_max_u64(reads_max, 1);
}

void sim_launch(struct sim_qp *qp)
{
	while (qp->state == SIM_QP_READY && qp->started && !qp->halted && qp->launched < qp->posted) {
		struct sim_wr *wr = qp->ring[qp->launched & qp->mask];

		if (look_for_peer(qp) == PEER_NOT_YET) {
			if (!qp->looking)
				sim_schedule(qp, NULL, SIM_LOOK, qp->fabric->now_ns + SIM_RETRY_NS / 10);
			qp->looking = true;
			return;
		}
		if (must_wait(qp, wr))
			return;
		if (!sim_local_ok(qp, wr)) {
			sim_wr_finish(wr, qp, IBV_WC_LOC_PROT_ERR);
			return;
		}
		launch_one(qp, wr);
	}
}

/* ---- the other side takes it up ------------------------------------------------------------------------------- */

/* Nobody answers. */
static void lose(struct sim_qp *qp, struct sim_wr *wr)
{
	if (qp->state == SIM_QP_READY && wr->index < qp->refused)
		sim_schedule(qp, wr, SIM_LOST, qp->fabric->now_ns + SIM_RETRY_NS);
}

static void answer(struct sim_qp *qp, struct sim_wr *wr)
{
	const struct sim_options *options = &qp->fabric->options;
	uint64_t held_ns = sim_draw(qp->fabric, options->completion_min_ns, options->completion_max_ns);

	if (qp->state == SIM_QP_READY)
		sim_schedule(qp, wr, SIM_ANSWER, qp->fabric->now_ns + held_ns);
}

void sim_refuse(struct sim_qp *qp, struct sim_wr *wr, enum ibv_wc_status status)
{
	wr->status = status;
	qp->refused = kvr_min_u64(qp->refused, wr->index);
	if (status == IBV_WC_REM_ACCESS_ERR)
		qp->fabric->counters.access_errors++;
	answer(qp, wr);
}

static bool is_reachable(const struct sim_qp *qp)
{
	return qp->peer && qp->peer->state == SIM_QP_READY && !sim_link_cut(qp);
}

/* False: it waits for the WRITEs before it to land, or for a receive. */
static bool take_up_send(struct sim_qp *qp, struct sim_wr *wr)
{
	struct sim_fabric *fabric = qp->fabric;

	if (qp->writes_landing > 0)
		return false;
	if (!list_empty(&qp->peer->queue->posted)) {
		sim_land_send(qp, wr);
		if (wr->status == IBV_WC_SUCCESS && !wr->done)
			answer(qp, wr);
		sim_wr_off_wire(qp, wr);
		return true;
	}
	fabric->counters.rnr++;
	if (qp->state == SIM_QP_READY && wr->rnr_left > 0) {
		if (wr->rnr_left < 7)
			wr->rnr_left--;
		qp->waiting_for_receive = true;
		sim_schedule(qp, wr, SIM_AGAIN, fabric->now_ns + sim_draw(fabric, SIM_RNR_MIN_NS, SIM_RNR_MAX_NS));
		return false;
	}
	sim_refuse(qp, wr, IBV_WC_RNR_RETRY_EXC_ERR);
	sim_wr_off_wire(qp, wr);
	return true;
}

static bool access_fault(struct sim_fabric *fabric)
{
	uint32_t chance = fabric->options.access_error_per_million;

	return chance > 0 && random_chance(&fabric->random, chance, 1000000);
}

/* The earliest that a piece may land. A READ's bytes have the way back before them. A WRITE does not overtake an
 * earlier one, unless its region allows relaxed ordering. */
static uint64_t earliest_landing(struct sim_qp *qp, const struct sim_wr *wr)
{
	int relaxed = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING;

	if (wr->opcode == IBV_WR_RDMA_READ)
		return serialised(qp->peer, wr->length) + qp->fabric->options.delay_min_ns;
	if (sim_may(qp->peer->device, wr->rkey, true, wr->remote_address, wr->length, relaxed))
		return qp->fabric->now_ns;
	return kvr_max_u64(qp->landed_ns, qp->fabric->now_ns);
}

/* Transfers are on their way at the same time: one that waits for those before it, or for a SEND between them, does not take as long
 * again. Pieces of one that had to wait still land apart. */
static uint64_t landing_time(struct sim_fabric *fabric, const struct sim_wr *wr, uint64_t earliest_ns)
{
	uint64_t most_ns = fabric->options.delay_max_ns;
	uint64_t at_ns = wr->arrived_ns + sim_draw(fabric, 0, most_ns);

	return kvr_max_u64(at_ns, earliest_ns) + sim_draw(fabric, 0, most_ns / 8);
}

/* Cuts the transfer into pieces that land in any order. */
static void scatter_in_time(struct sim_qp *qp, struct sim_wr *wr)
{
	struct sim_fabric *fabric = qp->fabric;
	bool is_write = wr->opcode == IBV_WR_RDMA_WRITE;
	uint64_t earliest_ns = earliest_landing(qp, wr);
	uint64_t offset = 0;

	wr->touching = true;
	qp->peer->in_flight++;
	qp->writes_landing += is_write;
	for (uint32_t left = wr->pieces; left > 0; left--) {
		uint64_t rest = wr->length - offset;
		/* At least one byte for each of the others. */
		uint64_t length = left == 1 ? rest : 1 + random_below(&fabric->random, rest - left + 1);
		uint64_t at_ns = landing_time(fabric, wr, earliest_ns);
		struct sim_event *piece = sim_schedule(qp, wr, SIM_PIECE, at_ns);

		piece->offset = offset;
		piece->length = length;
		offset += length;
		if (is_write)
			qp->landed_ns = kvr_max_u64(qp->landed_ns, at_ns);
	}
}

static bool take_up_transfer(struct sim_qp *qp, struct sim_wr *wr)
{
	bool is_read = wr->opcode == IBV_WR_RDMA_READ;

	/* A READ sees what was written before it; one whose asker has failed gets no answer. */
	if (is_read && qp->writes_landing > 0)
		return false;
	if (is_read && qp->state != SIM_QP_READY) {
		sim_wr_off_wire(qp, wr);
		return true;
	}
	if (access_fault(qp->fabric) || !sim_remote_ok(qp, wr, 0, wr->length)) {
		sim_refuse(qp, wr, IBV_WC_REM_ACCESS_ERR);
		sim_wr_off_wire(qp, wr);
		sim_qp_error(qp->peer);
		return true;
	}
	if (wr->pieces > 0) {
		scatter_in_time(qp, wr);
		return true;
	}
	answer(qp, wr);
	sim_wr_off_wire(qp, wr);
	return true;
}

static bool take_up(struct sim_qp *qp, struct sim_wr *wr)
{
	if (!is_reachable(qp) || wr->index > qp->refused) {
		sim_wr_off_wire(qp, wr);
		lose(qp, wr);
		return true;
	}
	return is_send(wr) ? take_up_send(qp, wr) : take_up_transfer(qp, wr);
}

void sim_respond(struct sim_qp *qp)
{
	while (qp->responded < qp->launched && !qp->waiting_for_receive) {
		struct sim_wr *wr = qp->ring[qp->responded & qp->mask];

		if (!wr->arrived || !take_up(qp, wr))
			return;
		qp->responded++;
		sim_wr_retire(qp, wr);
	}
}

void sim_wr_off_wire(struct sim_qp *qp, struct sim_wr *wr)
{
	wr->on_wire = false;
	qp->out_flight--;
	if (!wr->touching)
		return;
	wr->touching = false;
	if (qp->peer)
		qp->peer->in_flight--;
	if (wr->opcode == IBV_WR_RDMA_WRITE)
		qp->writes_landing--;
}

/* ---- events --------------------------------------------------------------------------------------------------- */

/* A side that has failed still answers for what it took up before the work request that it refused. */
static bool is_acknowledged(const struct sim_qp *qp, const struct sim_wr *wr)
{
	return is_reachable(qp) ||
		(qp->peer && !sim_link_cut(qp) && qp->refused != UINT64_MAX && wr->index < qp->refused);
}

static void piece_lands(const struct sim_event *event)
{
	struct sim_qp *qp = event->qp;
	struct sim_wr *wr = event->wr;

	if (qp->peer && !sim_link_cut(qp) && !wr->broken)
		sim_land_piece(qp, wr, event->offset, event->length);
	if (--wr->pieces_left > 0)
		return;
	sim_wr_off_wire(qp, wr);
	/* A broken one has its answer under way already. */
	if (!wr->broken && is_acknowledged(qp, wr))
		answer(qp, wr);
	else if (!wr->broken)
		lose(qp, wr);
	sim_respond(qp);
}

static void answer_arrives(struct sim_qp *qp, struct sim_wr *wr)
{
	if (sim_link_cut(qp) && qp->state == SIM_QP_READY)
		sim_schedule(qp, wr, SIM_LOST, qp->fabric->now_ns + SIM_RETRY_NS);
	else
		sim_wr_finish(wr, qp, wr->status);
}

void sim_dispatch(const struct sim_event *event)
{
	struct sim_qp *qp = event->qp;

	if (qp->gone)
		return;
	switch ((enum sim_event_kind)event->kind) {
	case SIM_ARRIVE:
		event->wr->arrived = true;
		event->wr->arrived_ns = qp->fabric->now_ns;
		sim_respond(qp);
		break;
	case SIM_AGAIN:
		qp->waiting_for_receive = false;
		sim_respond(qp);
		break;
	case SIM_PIECE:
		piece_lands(event);
		break;
	case SIM_ANSWER:
		answer_arrives(qp, event->wr);
		break;
	case SIM_LOST:
		sim_wr_finish(event->wr, qp, IBV_WC_RETRY_EXC_ERR);
		break;
	case SIM_LOOK:
		qp->looking = false;
		sim_launch(qp);
		break;
	case SIM_RECEIVED:
		qp->holding = false;
		sim_show_receives(qp, false);
		break;
	case SIM_STREAM:
		break;
	}
}
