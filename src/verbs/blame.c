#include "verbs/blame.h"

#define AGAIN VERBS_ACTION_RECONNECT
#define LATE VERBS_ACTION_RECONNECT_LATE

static const struct verbs_verdict verdicts[] = {
	[IBV_WC_SUCCESS] = { VERBS_BLAME_NONE, VERBS_ACTION_NONE, "done", "" },
	[IBV_WC_LOC_LEN_ERR] = { VERBS_BLAME_LOCAL, LATE, "a message was longer than its buffer",
		"both sides must be of one version" },
	[IBV_WC_LOC_QP_OP_ERR] = { VERBS_BLAME_LOCAL, LATE, "the adapter could not carry out a work request",
		"report it, with the log of both sides" },
	[IBV_WC_LOC_EEC_OP_ERR] = { VERBS_BLAME_LOCAL, LATE, "the adapter could not carry out a work request",
		"report it, with the log of both sides" },
	[IBV_WC_LOC_PROT_ERR] = { VERBS_BLAME_MEMORY, LATE, "local memory was not, or no longer, registered",
		"report it, with the log of both sides" },
	[IBV_WC_WR_FLUSH_ERR] = { VERBS_BLAME_NONE, VERBS_ACTION_NONE, "given back, since the queue pair failed", "" },
	[IBV_WC_MW_BIND_ERR] = { VERBS_BLAME_MEMORY, LATE, "a memory window could not be bound", "" },
	[IBV_WC_BAD_RESP_ERR] = { VERBS_BLAME_PEER, AGAIN, "the other side answered what nobody had asked", "" },
	[IBV_WC_LOC_ACCESS_ERR] = { VERBS_BLAME_MEMORY, LATE, "the other side wrote where it may not", "" },
	[IBV_WC_REM_INV_REQ_ERR] = { VERBS_BLAME_PEER, LATE, "the other side refused a request as invalid",
		"its buffers, or its path MTU (--path-mtu), may differ from ours" },
	[IBV_WC_REM_ACCESS_ERR] = { VERBS_BLAME_MEMORY, LATE, "the other side's memory is not what was registered",
		"has the engine freed or moved its KV cache?" },
	[IBV_WC_REM_OP_ERR] = { VERBS_BLAME_PEER, AGAIN, "the other side's adapter could not carry out a request",
		"see that host's kernel log" },
	[IBV_WC_RETRY_EXC_ERR] = { VERBS_BLAME_LINK, AGAIN, "the other side does not acknowledge packets",
		"is it alive? then cable, switch, flow control, and --rdma-timeout" },
	[IBV_WC_RNR_RETRY_EXC_ERR] = { VERBS_BLAME_PEER, AGAIN, "the other side had no receive buffer for too long",
		"" },
	[IBV_WC_LOC_RDD_VIOL_ERR] = { VERBS_BLAME_LOCAL, LATE, "the domains of two queues differ", "" },
	[IBV_WC_REM_INV_RD_REQ_ERR] = { VERBS_BLAME_PEER, LATE, "the other side refused a READ as invalid", "" },
	[IBV_WC_REM_ABORT_ERR] = { VERBS_BLAME_PEER, AGAIN, "the other side broke off", "" },
	[IBV_WC_INV_EECN_ERR] = { VERBS_BLAME_LOCAL, LATE, "no such context", "" },
	[IBV_WC_INV_EEC_STATE_ERR] = { VERBS_BLAME_LOCAL, LATE, "a context is in the wrong state", "" },
	[IBV_WC_FATAL_ERR] = { VERBS_BLAME_LOCAL, LATE, "the adapter has failed", "see this host's kernel log" },
	[IBV_WC_RESP_TIMEOUT_ERR] = { VERBS_BLAME_LINK, AGAIN, "the other side does not answer", "" },
	[IBV_WC_GENERAL_ERR] = { VERBS_BLAME_LOCAL, LATE, "the adapter gives no reason", "see this host's kernel log" },
};

const struct verbs_verdict *verbs_judge(enum ibv_wc_status status)
{
	static const struct verbs_verdict unknown = { VERBS_BLAME_LOCAL, LATE, "a completion status that is not known",
		"" };
	unsigned number = (unsigned)status;

	return number < KVR_COUNT_OF(verdicts) && verdicts[number].words ? &verdicts[number] : &unknown;
}

const char *verbs_blame_text(enum verbs_blame blame)
{
	static const char *const texts[VERBS_BLAMES] = { "none", "local", "peer", "link", "memory" };

	return (unsigned)blame < VERBS_BLAMES ? texts[blame] : "none";
}
