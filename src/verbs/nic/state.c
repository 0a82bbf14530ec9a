/* state.c - a queue pair's way through its states: one table of legal moves, each with the attributes that it sets. */
#include <errno.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "verbs/nic/nic.h"

static const struct {
	const char *name;
	enum ibv_qp_state ibv;
} states[NIC_STATES] = {
	[NIC_RESET] = { "RESET", IBV_QPS_RESET },
	[NIC_INIT] = { "INIT", IBV_QPS_INIT },
	[NIC_RTR] = { "RTR", IBV_QPS_RTR },
	[NIC_RTS] = { "RTS", IBV_QPS_RTS },
	[NIC_ERR] = { "ERR", IBV_QPS_ERR },
};

static const struct {
	enum nic_state from, to;
	int mask;
} moves[] = {
	{ NIC_RESET, NIC_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
	{ NIC_INIT, NIC_RTR,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER },
	{ NIC_RTR, NIC_RTS,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC },
	{ NIC_INIT, NIC_ERR, IBV_QP_STATE },
	{ NIC_RTR, NIC_ERR, IBV_QP_STATE },
	{ NIC_RTS, NIC_ERR, IBV_QP_STATE },
	{ NIC_ERR, NIC_ERR, IBV_QP_STATE },
};

/* -1: no such move. */
static int mask_of(enum nic_state from, enum nic_state to)
{
	for (size_t i = 0; i < KVR_COUNT_OF(moves); i++) {
		if (moves[i].from == from && moves[i].to == to)
			return moves[i].mask;
	}
	return -1;
}

static void fill_route(struct ibv_ah_attr *route, const struct nic_qp *qp, const struct nic_settings *settings)
{
	route->port_num = (uint8_t)qp->port.number;
	route->dlid = qp->theirs.lid;
	route->sl = settings->service_level;
	route->is_global = qp->path.global;
	if (!qp->path.global)
		return;
	route->grh.dgid = qp->theirs.gid;
	route->grh.sgid_index = (uint8_t)qp->port.gid_index;
	route->grh.hop_limit = settings->hop_limit;
	route->grh.traffic_class = settings->traffic_class;
}

/* All that any move sets; the mask says which of it counts. */
static void fill(struct ibv_qp_attr *attributes, const struct nic_qp *qp, enum nic_state to)
{
	const struct nic_settings *settings = &qp->device->settings;

	memset(attributes, 0, sizeof(*attributes));
	attributes->qp_state = states[to].ibv;
	attributes->port_num = (uint8_t)qp->port.number;
	attributes->qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	attributes->path_mtu = qp->path.mtu;
	attributes->dest_qp_num = qp->theirs.qp_num;
	attributes->rq_psn = qp->theirs.psn;
	attributes->sq_psn = qp->mine.psn;
	attributes->max_dest_rd_atomic = qp->path.reads_answered;
	attributes->max_rd_atomic = qp->path.reads_started;
	attributes->min_rnr_timer = settings->rnr_timer;
	attributes->timeout = settings->timeout;
	attributes->retry_cnt = settings->retry_count;
	/* Without end: credits keep a sender from running into it, and a receiver that is late is no error. */
	attributes->rnr_retry = 7;
	fill_route(&attributes->ah_attr, qp, settings);
}

int nic_qp_move(struct nic_qp *qp, enum nic_state to)
{
	enum nic_state from = kvr_load_acquire(&qp->state);
	int mask = mask_of(from, to);
	struct ibv_qp_attr attributes;
	int error;

	if (mask < 0)
		return -EINVAL;
	fill(&attributes, qp, to);
	error = fault_point("nic_qp_move") ? ENOMEM : qp->device->library.modify_qp(qp->real, &attributes, mask);
	if (error) {
		log_error("nic: %s: queue pair 0x%x from %s to %s: %s", qp->device->device.name, qp->qp.qp_num,
			states[from].name, states[to].name, strerror(error));
		return error > 0 ? -error : error;
	}
	kvr_store_release(&qp->state, (uint32_t)to);
	return 0;
}
