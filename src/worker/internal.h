/*
 * internal.h - the worker's own objects, for the .c files of this folder (and the tests that look inside).
 *
 *   worker ── slot[]      a request and its receive buffer; there is one for every request that can be in flight
 *         └── endpoint[]  a connection: its send queue's book, its replies, its transfers
 *
 * A slot's way (stage):
 *
 *   POSTED ──message──> [WAITING ─> FETCHING] ──> MANAGEMENT <──> MOVING       [..]: INDIRECT only
 *      ^                        |                     |
 *      └── encoded, re-posted <─┴──── REPLYING <──────┘       REPLYING: no reply buffer was free
 *
 * A SEND may hold several requests (connection.gathers). The first has the slot of the receive buffer, the carrier; each of
 * the others, the riders, has one without a buffer, from worker.spare. All of them read the carrier's buffer, so it is posted
 * again when the last has ended, whichever that is:
 *
 *   rider:   SPARE ──> as above from the message on ──> SPARE
 *   carrier: as above ──> KEPT, while riders are left ──> POSTED
 *
 * As many buffers are out as requests at most, so that there is one for whoever keeps to its credits, gathered or not.
 *
 * The send queue's book. Every work request takes a place in the send queue; only the last of a chain is signalled.
 * `open` sums up what was posted since the last signalled one; that one closes it: the sums become a mark, at the end
 * of a FIFO. Work requests complete in order, so each good completion takes the oldest mark and gives back all that
 * it sums up. Nothing is ever posted that has no place, so the send queue cannot overflow.
 */
#ifndef KVRAIL_WORKER_INTERNAL_H
#define KVRAIL_WORKER_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/list.h"
#include "base/log.h"
#include "base/pool.h"
#include "verbs/driver.h"
#include "worker/mailbox.h"
#include "worker/plan.h"
#include "worker/worker.h"

KVR_BEGIN_C

#define WORKER_SGE_MAX 16 /* pieces of one work request: more make the queue's entries large */
#define WORKER_WR_BYTES_MAX \
	(UINT32_C(1) << 20)    /* of one work request: a reply behind it waits no longer than this takes */
#define WORKER_TURN_WRS_MAX 32 /* work requests that a connection posts in one turn, with one doorbell */
#define WORKER_TURN_BYTES_MAX (UINT32_C(1) << 20)
/* Replies that may share a message wait for no more data than this of transfers that are posted in the same step. */
#define WORKER_GATHER_BYTES (UINT32_C(128) << 10)
#define WORKER_GATHER_COST 4096                 /* to which each of them adds this */
#define WORKER_WINDOW_BYTES (UINT32_C(4) << 20) /* in flight per connection: a reply waits no longer than this takes */
#define WORKER_WINDOW_BYTES_GPU (UINT32_C(32) << 20) /* to and from GPU memory, over a link of 50 GB/s */
#define WORKER_INLINE_BYTES_WANTED 256
#define WORKER_POLL_MAX 64       /* completions, and mailbox messages, in one step */
#define WORKER_TURNS_MAX 16      /* connections that post in one step */
#define WORKER_SIGNAL_EVERY 16   /* replies sent inline: so many may go unsignalled */
#define WORKER_REFUSALS_MAX 1024 /* posts refused in a row, with nothing in flight: the queue pair is broken */
#define WORKER_RAIL_MARKS 32     /* parts of transfers under way on one further rail of a connection */
#define WORKER_RAIL_TURNS 4      /* parts that a connection gives to further rails in one turn */
#define WORKER_RAIL_BYTES (UINT32_C(256) << 10)      /* of one part: where a transfer is cut between rails */
#define WORKER_RAIL_PATIENCE_NS UINT64_C(2000000000) /* a rail that completes nothing for so long is out ... */
#define WORKER_RAIL_PATIENCE 16                      /* ... or so many times what is under way should take */
#define WORKER_RAIL_LOOK_NS UINT64_C(100000000)
#define WORKER_HOME_PATIENCE_NS UINT64_C(2000000000) /* connections outlive a port that is down for less */
#define WORKER_RAIL_EXTRA_NS 4000  /* what a part on a further rail takes longer: a reply waits for its completion */
#define WORKER_RAIL_PS_PER_BYTE 40 /* 25 GB/s: until anything was measured */
#define WORKER_RAIL_PS_PER_BYTE_MAX UINT64_C(10000000)
#define WORKER_REPLY_BYTES 4352
KVR_STATIC_ASSERT(WORKER_REPLY_BYTES >= WIRE_CHUNKS_MAX + 64 && WORKER_REPLY_BYTES <= WIRE_INLINE_BYTES,
	"the longest reply fits a reply buffer, and that the client's receive buffer");

/* wr_id: receives say which slot, send queue work requests which mark will tell of them. */
#define WR_ID_RECEIVE (UINT64_C(1) << 63)

enum slot_stage {
	SLOT_POSTED,     /* its receive buffer waits in the shared receive queue */
	SLOT_UNPOSTED,   /* posting was refused: tried again in each step */
	SLOT_KEPT,       /* its request is over, but others read its receive buffer */
	SLOT_SPARE,      /* has no receive buffer: waits for a request that comes behind another */
	SLOT_WAITING,    /* for a large buffer */
	SLOT_FETCHING,   /* its RDMA READs are being posted, or have not completed */
	SLOT_MANAGEMENT, /* the management core owns the request */
	SLOT_WORD,       /* its transfer waits for a word of the client's memory (order.c) */
	SLOT_MOVING,     /* its transfer is being posted, or has not completed */
	SLOT_REPLYING,   /* waits for a reply buffer */
};

struct slot {
	struct request request; /* first: a request * is a slot * */
	struct list_node
		node; /* endpoint: waiting, fetches, words, transfers, posted; worker: unposted, unanswered, words_due, spare */
	enum slot_stage stage;
	bool aborted;
	bool torn;             /* a part was given up: the transfer is not whole */
	bool early;            /* its reply is on the way, right behind its data */
	struct slot *carrier;  /* in whose receive buffer its message lies; NULL: its own */
	uint32_t riders;       /* slots whose carrier it is, and one while its messages are being told apart */
	uint32_t outstanding;  /* work requests posted and not known to have completed */
	uint32_t unsignalled;  /* of these, behind the last signalled one */
	uint32_t shares;       /* parts that further rails have, or had and that are to be repeated */
	uint64_t posted_bytes; /* of the fetch or transfer */
	struct plan plan;
	/* order.c */
	uint32_t layer_next, layer_count; /* words of layers that were posted; that there are */
	uint32_t layer_planes;            /* of one layer */
	uint32_t layer_rkey, after_rkey;
	uint64_t word_since_ns, word_due_ns;
	/* INDIRECT */
	uint64_t fetch_address;
	uint32_t fetch_length;
	uint32_t fetch_rkey;
	uint32_t fetch_region;
	uint32_t large_buffer; /* POOL_NONE: none */
};
KVR_STATIC_ASSERT(offsetof(struct slot, request) == 0, "slot_of relies on it");

static inline struct slot *slot_of(struct request *request)
{
	return KVR_CONTAINER_OF(request, struct slot, request);
}

/* A reply that is encoded and has not completed. The bytes lie in the worker's memory, by the same index. */
struct reply_buffer {
	uint32_t next; /* in a list by index; POOL_NONE ends it */
	uint32_t length;
	bool last; /* the connection fails once it has gone out */
};

struct mark {
	struct slot *slot; /* whose last work request of a turn it is; NULL: a reply's */
	uint32_t slot_wrs; /* of that slot */
	uint32_t wrs;      /* places in the send queue */
	uint32_t reads;
	uint32_t buffers;      /* replies: list of reply buffers ... */
	uint32_t buffer_count; /* ... and how many they are */
	uint64_t bytes;        /* one-sided */
	uint64_t read_bytes;   /* of these, RDMA READs */
	bool last;             /* the connection fails now */
};

enum rail_state {
	RAIL_FREE,
	RAIL_PROBING, /* a WRITE of no bytes is on its way: whether anything gets through is not known before */
	RAIL_LIVE,
	RAIL_FAILED, /* its queue pair is in the error state: waits for qp_idle */
	RAIL_IDLE,   /* nothing of it touches memory any more: its parts may be repeated; waits for RAIL_CLOSE */
};

/* A part of a transfer: neighbouring work requests of its plan, the last of them signalled. */
struct rail_mark {
	struct list_node node; /* endpoint: redo */
	struct rail *rail;
	struct slot *slot; /* NULL: the probe */
	struct plan plan;  /* stands before the first of them; in `redo`: before the first that is not posted again */
	uint32_t wrs;      /* ... so many */
	uint32_t reads;
	uint64_t bytes;
};

/* A further queue pair of an endpoint. Parts that were under way when it failed stay in `marks` until they are posted again. */
struct rail {
	struct endpoint *endpoint;
	struct ibv_qp *qp;
	enum rail_state state;
	bool closing;    /* RAIL_CLOSE came */
	uint32_t number; /* the client's */
	uint32_t track;
	uint32_t index; /* in worker->rails */
	struct list_node draining;
	uint32_t places_used, reads_in_flight;
	uint64_t bytes_in_flight;
	uint32_t mark_first, mark_count;
	uint32_t mark_sequence; /* of the first mark: the low half of its wr_id */
	uint32_t redo_left;     /* marks of it in endpoint->redo */
	uint64_t progress_ns;   /* when something was begun on it while it was empty, or completed */
	struct rail_mark marks[WORKER_RAIL_MARKS];
};

/* A device that data goes through, and how fast it seems to be. */
struct track {
	struct verbs_device *device;
	struct ibv_cq *cq;
	uint32_t places;                  /* of a send queue */
	uint32_t outstanding;             /* marks of rails that are to be polled */
	uint64_t bytes_in_flight;         /* of all connections */
	uint64_t busy_since_ns;           /* that nothing of them has come back */
	uint64_t sample_ns, sample_bytes; /* not in the rate yet */
	uint32_t health;                  /* verbs_device.health when it was last looked at */
	uint64_t ps_per_byte;             /* 0: not known */
};

enum endpoint_state {
	ENDPOINT_FREE,
	ENDPOINT_LIVE,
	ENDPOINT_FAILED, /* its queue pair is in the error state: waits for qp_idle */
	ENDPOINT_IDLE, /* nothing touches memory any more: waits for CLOSE, its requests, and a dry completion queue */
};

struct endpoint {
	struct connection *connection;
	struct ibv_qp *qp;
	enum endpoint_state state;
	bool closing; /* CLOSE came */
	bool doomed;  /* what it sends is ignored; it fails when its last reply is out */
	bool flushed; /* a work request of it was flushed, and no error has come that would be the cause */
	uint32_t qp_num;
	uint32_t index;
	uint32_t out;            /* requests that were received and not given back ... */
	uint32_t early;          /* ... of these, answered already */
	struct list_node active; /* worker: has something to post */
	struct list_node drain;  /* worker: failed and not idle, or idle, closing and not stopped */
	uint64_t idle_at;        /* completions polled when it became idle */

	struct list_node transfers; /* MOVING slots with something to post */
	struct list_node fetches;   /* FETCHING slots with something to post */
	struct list_node words;     /* WORD slots whose word is to be read */
	struct list_node posted;    /* MOVING, FETCHING and WORD slots with everything posted */
	struct list_node waiting;   /* WAITING slots */
	struct list_node large;     /* worker: waits for a large buffer */
	uint32_t large_held;
	uint32_t forgetting;              /* region, POOL_NONE: none */
	uint32_t reply_first, reply_last; /* list of reply buffers that are to be posted ... */
	uint32_t replies_waiting;         /* ... and how many they are */
	uint64_t gathered_bytes; /* data that was posted before them so that more come to share their message */

	/* the send queue's book */
	uint32_t places_used;
	uint32_t reads_in_flight, reads_max, reads_signalled;
	uint32_t read_window; /* bytes */
	uint64_t bytes_in_flight, read_bytes_in_flight;
	uint32_t buffers_in_flight; /* reply buffers that the device still reads */
	uint32_t refusals;          /* posts refused in a row */
	struct mark open;
	struct mark *marks; /* ring; as many as the send queue has places */
	uint32_t mark_first, mark_count;
	uint64_t mark_sequence; /* of the first mark: its wr_id */

	/* further rails */
	uint32_t rails_live;
	uint32_t rails_out;  /* bits of the client's numbers: have failed, and the client was not seen to know */
	uint32_t rail_marks; /* parts under way on them */
	struct rail *rails[WIRE_RAILS_MAX]; /* by track; NULL: none */
	struct list_node redo;              /* rail_marks to be posted again */
};

/* What one turn of one connection is going to post. */
enum chain_kind { CHAIN_REPLY, CHAIN_FETCH, CHAIN_WORD, CHAIN_TRANSFER, CHAIN_LAYER };
struct chain_item {
	enum chain_kind kind;
	uint32_t replies; /* CHAIN_REPLY: in one message, the next ones of the list */
	uint32_t bytes;
	bool read, signalled;
};
struct chain {
	uint32_t count;
	uint32_t reads;
	uint32_t one_sided;
	uint32_t buffers; /* reply buffers that the device will read */
	uint64_t bytes;
	uint64_t bytes_max;     /* one-sided ones take no more */
	bool blocked;           /* something could not be added for want of room in the send queue */
	bool passed;            /* replies that wait have let it go first */
	struct slot *slot;      /* whose one-sided work requests it has, NULL: none */
	struct plan *plan;      /* that they were taken from ... */
	struct plan before;     /* ... and where it stood */
	struct rail_mark *redo; /* whose plan that is; NULL: the slot's own */
	uint32_t layers_before;
	struct chain_item items[WORKER_TURN_WRS_MAX];
	struct ibv_send_wr wrs[WORKER_TURN_WRS_MAX];
	struct ibv_sge sges[WORKER_TURN_WRS_MAX][WORKER_SGE_MAX];
};

struct worker {
	struct worker_options options;
	struct verbs_device *device;
	struct mailbox *mailbox; /* on the heap, aligned */
	struct worker_counters *counters;
	uint64_t now_ns; /* of this step */
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint32_t cq_depth;
	uint32_t inline_bytes;
	struct plan_limits limits;

	struct slot *slots; /* slot_count of them have a receive buffer, spare_count behind them have none */
	uint32_t slot_count;
	uint32_t spare_count; /* 0: nobody gathers on this device */
	uint32_t early,
		early_max; /* slots whose reply went out before their end: they keep receive buffers from the others */
	struct list_node spare;      /* slots */
	struct list_node unposted;   /* slots */
	struct list_node words_due;  /* slots in WORD, to be read again later */
	struct list_node unanswered; /* slots in REPLYING */
	struct endpoint *endpoints;
	struct mark *marks;       /* of all endpoints */
	uint32_t *free_endpoints; /* stack of indices */
	uint32_t free_endpoint_count;
	uint32_t *by_number; /* qp_num -> endpoint's index + 1: open addressing, linear probing; 0: none */
	uint32_t number_mask;
	struct list_node active;   /* endpoints */
	struct list_node draining; /* endpoints */

	/* devices for data: [0] is home. More than one: */
	struct track tracks[WIRE_RAILS_MAX];
	uint64_t home_down_ns; /* since when home's port is down while connections wait for it; 0: it is not */
	uint32_t track_count;
	struct rail *rails; /* [endpoint * (track_count - 1) + track - 1] */
	uint32_t rail_count;
	uint32_t probing;                /* rails that are */
	uint64_t rails_look_ns;          /* when the next look is at those that complete nothing */
	struct list_node rails_draining; /* failed and not idle */

	uint8_t *memory; /* one region: receive buffers, reply buffers, large buffers, a word for each slot */
	uint32_t *words;
	uint8_t *replies, *larges;
	struct reply_buffer *reply_buffers;
	uint32_t reply_free;   /* list of reply buffers */
	uint32_t *free_larges; /* stack of indices */
	uint32_t free_large_count;
	uint32_t large_share;           /* large buffers that one connection may hold */
	struct list_node large_waiters; /* endpoints */

	uint64_t bytes_in_flight; /* one-sided, of all endpoints */
	uint64_t polled;          /* completions, ever */
	bool dry;                 /* this step's poll emptied the completion queue */
	bool flushed;             /* some endpoint is */
	struct log_rate loss_rate, malformed_rate, refusal_rate, rail_rate;
	struct chain chain;
	struct ibv_wc wcs[WORKER_POLL_MAX];
};

#define worker_count(worker, name, value) kvr_counter_add(&(worker)->counters->name, value)

/* ---- worker.c ---- */

/* The ring is large enough (mailbox.h): it always succeeds. */
void worker_tell(struct worker *worker, enum to_management kind, void *object, uint64_t word);

static inline uint8_t *receive_buffer(const struct worker *worker, uint32_t index)
{
	return worker->memory + (uint64_t)index * WIRE_INLINE_BYTES;
}

/* ---- receive.c ---- */

void receive_completion(struct worker *worker, const struct ibv_wc *wc);
/* Checks and decodes request.bytes, and answers it or hands it to the management core. */
void receive_dispatch(struct worker *worker, struct slot *slot, bool inner);
/* The request is over: its buffers go back. Nothing may look at it afterwards. */
void receive_recycle(struct worker *worker, struct slot *slot);
/* Tries again what was refused. True when it did something. */
bool receive_post_again(struct worker *worker);
/* True when posted. */
bool receive_post(struct worker *worker, struct slot *slot);

/* ---- indirect.c ---- */

void indirect_begin(struct worker *worker, struct slot *slot);
/* All of it has arrived. */
void indirect_fetched(struct worker *worker, struct slot *slot);
void indirect_release_buffer(struct worker *worker, struct slot *slot);
/* The client's region of that number: NULL when there is none, or it is being forgotten. */
const struct layout_region *indirect_region(const struct slot *slot, uint32_t number);
bool indirect_region_holds(const struct layout_region *region, uint64_t address, uint64_t bytes);
void indirect_forget(struct worker *worker, struct endpoint *endpoint, uint32_t region);
/* Answers a FORGET that waits when nothing uses the region any more. */
void indirect_check_forget(struct worker *worker, struct endpoint *endpoint);

/* ---- order.c ---- */

/* Are the words that the request names in regions of its client? Takes their keys. */
bool order_find_memory(struct slot *slot);
/* Whether a transfer that is under way, or one that waits without being on a list of the endpoint's, has words in that region. */
bool order_names(const struct slot *slot, uint32_t region);
bool order_names_any(const struct worker *worker, const struct endpoint *endpoint, uint32_t region);
/* Before the first work request of a transfer. */
void order_begin(struct slot *slot);
/* The data of the next layer is posted, and its word is not. */
bool order_layer_due(const struct slot *slot);
void order_fill_layer(const struct worker *worker, struct slot *slot, struct ibv_send_wr *wr);
/* True: the transfer waits for a word, and goes on by itself. */
bool order_waits(struct worker *worker, struct slot *slot);
void order_fill_word(const struct worker *worker, const struct slot *slot, struct ibv_send_wr *wr);
void order_word_read(struct worker *worker, struct slot *slot);
/* Words that are to be read again. True when it did something. */
bool order_step(struct worker *worker);
/* Its connection is idle: what waits has failed. */
void order_give_up(struct worker *worker, const struct endpoint *endpoint);

/* ---- transfer.c ---- */

/* All that is to be posted of it was. */
static inline bool transfer_posted(const struct slot *slot)
{
	return plan_done(&slot->plan) && slot->layer_next == slot->layer_count;
}

void transfer_begin(struct worker *worker, struct slot *slot);
void transfer_abort(struct worker *worker, struct slot *slot);
/* Everything that was posted has completed, or, with `failed`, never will. */
void transfer_end(struct worker *worker, struct slot *slot, bool failed);

/* ---- reply.c ---- */

/* Encodes request.reply; the slot goes back, and the reply to the end of the connection's. */
void reply_send(struct worker *worker, struct slot *slot);
void reply_error(struct worker *worker, struct slot *slot, enum kvr_wire_status status, const char *format, ...)
	KVR_PRINTF(4, 5);
/* All of a RETRIEVE is posted: its reply right behind it, where that is allowed and there is room. */
void reply_early(struct worker *worker, struct slot *slot);
/* Answers those that waited for a reply buffer. True when it did something. */
bool reply_send_waiting(struct worker *worker);
void reply_free_list(struct worker *worker, uint32_t first);

/* ---- send.c ---- */

/* Lets the endpoint take part in the turns when it has something to post. */
void send_activate(struct worker *worker, struct endpoint *endpoint);
/* Posts for some of those that have something. True when it did something. */
bool send_turns(struct worker *worker);
/* A signalled work request completed well. */
void send_completion(struct worker *worker, struct endpoint *endpoint, uint64_t wr_id);
/* Where a transfer or fetch waits once more of it is posted, by whatever rail. */
void send_move_on(struct worker *worker, struct endpoint *endpoint, struct slot *slot);
uint32_t send_window(const struct endpoint *endpoint);

/* ---- health.c ---- */

/* Looks what the devices say of themselves: further rails of those that are out are taken out at once, connections after a
 * while. True when it did something. */
bool health_step(struct worker *worker);
/* NULL: nothing is known against a device whose verbs_device.health that is; else why no queue pair of it is to be used now. */
const char *health_against(uint32_t word);

/* ---- rails.c, rail_life.c ---- */

static inline struct rail_mark *rail_mark_at(struct rail *rail, uint32_t place)
{
	return &rail->marks[(rail->mark_first + place) % WORKER_RAIL_MARKS];
}
static inline uint64_t rail_next_id(const struct rail *rail)
{
	return (uint64_t)rail->index << 32 | (rail->mark_sequence + rail->mark_count);
}
/* What is under way on its device should be through by then. */
uint64_t rail_patience_ns(const struct worker *worker, const struct rail *rail);
/* A part, or the probe, is about to be posted. */
void rail_push_mark(struct worker *worker, struct rail *rail, const struct rail_mark *mark);
/* A part has completed, or is not to be repeated. */
void rail_part_over(struct worker *worker, struct endpoint *endpoint, struct slot *slot);
/* Out, for a reason. Harmless when it is already. */
void rail_fail(struct worker *worker, struct rail *rail, const char *why, unsigned number);
/* Closed by the client, idle, and nothing of it is left to be done again. */
void rail_finish(struct worker *worker, struct rail *rail);

/* The tracks' completion queues and the rails; what was made before a failure goes with rails_fini. */
KVR_MUST_CHECK int rails_init(struct worker *worker);
void rails_fini(struct worker *worker);
void rails_reset(struct worker *worker, struct endpoint *endpoint);
void rail_open(struct worker *worker, struct connection *connection, uint32_t number);
void rail_close(struct worker *worker, struct connection *connection, uint32_t number);
/* Polls them, and looks after those that have failed. True when it did something. */
bool rails_step(struct worker *worker);
/* Where the endpoint's next data is planned from: parts to be repeated first. False: there is none. */
struct rail_work {
	struct slot *slot;
	struct plan *plan;
	struct rail_mark *redo; /* NULL: the slot's own plan */
};
static inline bool rails_next_work(const struct endpoint *endpoint, struct rail_work *work)
{
	work->redo = NULL;
	if (KVR_UNLIKELY(!list_empty(&endpoint->redo))) {
		work->redo = KVR_CONTAINER_OF(endpoint->redo.next, struct rail_mark, node);
		work->slot = work->redo->slot;
		work->plan = &work->redo->plan;
		return true;
	}
	if (list_empty(&endpoint->transfers))
		return false;
	work->slot = KVR_CONTAINER_OF(endpoint->transfers.next, struct slot, node);
	work->plan = &work->slot->plan;
	return true;
}
/* A word for each layer goes behind its data on one queue pair; of what is canceled nothing more is begun. */
static inline bool rails_may_share(const struct slot *slot)
{
	return !slot->aborted && slot->layer_count == 0;
}
/* So many work requests of it were posted. */
void rails_redone(struct worker *worker, struct rail_mark *redo, uint32_t wrs);
/* Gives parts of the transfers at hand to those rails that would be done with them first. */
void rails_share(struct worker *worker, struct endpoint *endpoint);
/* Would home be done first with the next part? If not, *wait: whoever would has no room for it now. */
bool rails_home_first(
	const struct worker *worker, const struct endpoint *endpoint, const struct rail_work *work, bool *wait);
/* The connection ends: all of them fail; are all idle? then: nothing of them is left. */
void rails_fail_all(struct worker *worker, struct endpoint *endpoint);
bool rails_idle(const struct endpoint *endpoint);
void rails_give_up(struct endpoint *endpoint);
void rails_stop(struct worker *worker, struct endpoint *endpoint);
/* The transfer is not to be repeated. */
void rails_drop(struct worker *worker, struct endpoint *endpoint, struct slot *slot);
/* What is under way on home, for the comparison. */
static inline void track_posted(struct worker *worker, struct track *track, uint64_t bytes)
{
	if (track->bytes_in_flight == 0)
		track->busy_since_ns = worker->now_ns;
	track->bytes_in_flight += bytes;
}
void track_completed(struct worker *worker, struct track *track, uint64_t bytes);

/* ---- connection.c ---- */

struct endpoint *endpoint_find(const struct worker *worker, uint32_t qp_num);
static inline struct endpoint *endpoint_of(const struct slot *slot)
{
	return (struct endpoint *)slot->request.connection->worker;
}
void connection_open(struct worker *worker, struct connection *connection);
void connection_close(struct worker *worker, struct connection *connection);
/* An error that is a cause. Harmless when it has failed already. */
void connection_fail(struct worker *worker, struct endpoint *endpoint, const char *why, unsigned number);
/* The same for the first error completion of a queue pair. */
void connection_fail_completion(struct worker *worker, struct endpoint *endpoint, enum ibv_wc_status status);
/* The queue is empty, and there were flushes without a cause: the device has taken those queue pairs down. */
void connection_fail_flushed(struct worker *worker);
/* Looks after those that have failed. True when it did something. */
bool connection_drain(struct worker *worker);
/* A request of it came back. */
void connection_request_back(struct worker *worker, struct endpoint *endpoint);

KVR_END_C

#endif
