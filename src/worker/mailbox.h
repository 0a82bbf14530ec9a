/*
 * mailbox.h - everything that a poll core (worker) and the management core say to each other. The management core
 * includes nothing else of src/worker.
 *
 * Two rings a worker (base/ring.h), one each way. A message hands over an object: from the push on it belongs to the
 * other side, until that side's message gives it back. Both rings are made so large that a push never finds them
 * full: at most two messages per request and five per connection are under way in each direction.
 *
 *   worker                                        management
 *     |  REQUEST (request) ------------------------>  |   decoded; lookups may stay parked there
 *     |  <----------------------- TRANSFER (request)  |   parts are pinned or reserved; worker plans, posts, completes
 *     |  TRANSFER_DONE (request) ------------------>  |   unpin, publish, fill in the reply
 *     |  <-------------------------- REPLY (request)  |   worker encodes it, posts it, re-posts the receive buffer
 *     |  <-------------------------- ABORT (request)  |   a TRANSFER: post no more; does not hand over
 *     |  <-------------------------- OPEN (connection)|
 *     |  LOST (connection) ------------------------>  |   its queue pair failed; requests still come back
 *     |  <------------------------ CLOSE (connection) |   fail the queue pair, finish everything
 *     |  CLOSED (connection) ---------------------->  |   no request of it is out, nothing can touch memory any more
 *     |  <------------- FORGET (connection, region)   |   after regions[region].present was cleared
 *     |  FORGOTTEN (connection, region) ----------->  |   nothing uses it any more: forget_memory may be called
 *     |  <------------ RAIL_OPEN (connection, rail)   |   one more queue pair, for data alone: probed, then used
 *     |  <----------- RAIL_CLOSE (connection, rail)   |   of a rail that was opened before
 *     |  RAIL_CLOSED (connection, rail) ----------->  |   nothing of it touches memory: its queue pair may be destroyed
 *     |  PARTS (large) ---------------------------->  |   for a REPLY whose request has `large` set: the reply is
 *     |                                               |   encoded, its outcomes are not looked at again
 *
 * LOST comes at most once, and never after the worker has seen CLOSE. ABORT may cross a TRANSFER_DONE: then it
 * changes nothing. When FORGET and CLOSE cross, CLOSED answers both, and so with RAIL_CLOSE. One FORGET, and one RAIL_OPEN or
 * RAIL_CLOSE, at a time per connection. After CLOSE
 * the management core names the connection no more, only requests of it that are still out.
 */
#ifndef KVRAIL_WORKER_MAILBOX_H
#define KVRAIL_WORKER_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"
#include "base/ring.h"
#include "base/wheel.h"
#include "protocol/layout.h"
#include "protocol/message.h"

KVR_BEGIN_C

struct ibv_qp;
struct session;
struct registration;

enum to_management {
	TO_MANAGEMENT_REQUEST = 1,       /* word[0]: struct request * */
	TO_MANAGEMENT_TRANSFER_DONE = 2, /* word[0]: struct request * */
	TO_MANAGEMENT_LOST = 3,          /* word[0]: struct connection * */
	TO_MANAGEMENT_CLOSED = 4,        /* word[0]: struct connection * */
	TO_MANAGEMENT_FORGOTTEN = 5,     /* word[0]: struct connection *, word[1]: region */
	TO_MANAGEMENT_RAIL_CLOSED = 7,   /* word[0]: struct connection *, word[1]: rail */
	TO_MANAGEMENT_PARTS = 6,         /* word[0]: request->large of a request that was replied to */
};

enum to_worker {
	TO_WORKER_OPEN = 1,       /* word[0]: struct connection * */
	TO_WORKER_CLOSE = 2,      /* word[0]: struct connection * */
	TO_WORKER_REPLY = 3,      /* word[0]: struct request * */
	TO_WORKER_TRANSFER = 4,   /* word[0]: struct request * */
	TO_WORKER_ABORT = 5,      /* word[0]: struct request * */
	TO_WORKER_FORGET = 6,     /* word[0]: struct connection *, word[1]: region */
	TO_WORKER_RAIL_OPEN = 7,  /* word[0]: struct connection *, word[1]: rail */
	TO_WORKER_RAIL_CLOSE = 8, /* word[0]: struct connection *, word[1]: rail */
};

enum connection_rail_state {
	CONNECTION_RAIL_NONE,
	CONNECTION_RAIL_PROBING, /* whether data gets through is being tried */
	CONNECTION_RAIL_LIVE,
	CONNECTION_RAIL_FAILED, /* its work is done by the others; the client makes a new one */
};

/* A further queue pair of a connection, on another device: for one-sided transfers alone. */
struct connection_rail {
	/* written by the control thread, before RAIL_OPEN and after RAIL_CLOSED */
	struct ibv_qp *qp; /* NULL: there is none */
	uint32_t device;   /* which of the worker's (worker_rail_device) */
	/* written by the worker alone, read by others with kvr_load_relaxed */
	uint32_t state;  /* enum connection_rail_state */
	uint32_t proved; /* data has come through */
	uint64_t bytes;  /* moved */
	const char *why; /* that it has failed, in words that stay; set before `state` says so */
	void *worker;    /* the worker's object */
};

/* One client process' queue pair. Made and freed by the control thread; `number` is small and unique while it lives. */
struct connection {
	/* read only once OPEN was sent */
	struct ibv_qp *qp;
	uint32_t number;
	uint32_t credits;   /* requests it may have in flight */
	uint32_t reads_max; /* RDMA READs in flight: the lesser of both sides' limits; 0: the device's own limit */
	uint32_t tenant;    /* number of the tenant that its credential binds it to */
	uint32_t worker_index;
	bool may_clear;     /* CLEAR is allowed */
	bool gathers;       /* a SEND of either side may hold several messages */
	uint32_t home_rail; /* the client's number of the rail that `qp` is on: requests and replies go there */
	char name[64];      /* for logs and status */
	void *control;      /* the control thread's object */

	/* The memory it made known by MEMORY, for INDIRECT: region id = index. Written by the control thread: an
	 * entry is filled before its `present` is stored with release; readers load `present` with acquire, then
	 * check the range against the entry. To take one away: store false, then FORGET. */
	struct layout_region *regions;
	uint32_t region_count; /* size of the array; never changes; 0: no INDIRECT */

	/* By the client's number of the rail; home_rail's is empty. */
	struct connection_rail rails[WIRE_RAILS_MAX];

	/* written by the control thread alone, read by the worker with kvr_load_relaxed: some of that memory is a GPU's, so that
	 * more must be under way to keep the link busy, and takes no longer */
	uint32_t on_gpu;

	/* written by the control thread alone, read by others with kvr_load_relaxed: when a message of its control socket
	 * came, or was still being worked on */
	KVR_ALIGNED(KVR_CACHE_LINE) uint64_t control_seen_ns;

	/* written by the worker alone, read by others with kvr_load_relaxed */
	KVR_ALIGNED(KVR_CACHE_LINE) uint64_t last_seen_ns; /* a message came */
	uint64_t requests;
	uint64_t bytes_in, bytes_out; /* stored, retrieved */
	void *worker;                 /* the worker's object */

	/* the management core's alone */
	KVR_ALIGNED(KVR_CACHE_LINE) struct list_node requests_in_management; /* struct request.node */
	struct list_node registrations;
	struct list_node sessions; /* those whose lookup it made */
	bool closing, closed;
	struct wheel_timer timer;
	void *management; /* its book of this connection */
};

/* One object that a transfer moves. */
struct transfer_part {
	void *address;   /* in L1; NULL: not moved (missing, skipped, present, no room): its outcome is set already */
	uint32_t lkey;   /* of its area on the worker's device */
	uint32_t entry;  /* the management core's: chunk table entry or class */
	uint64_t object; /* the management core's: l1_ref */
};

/* Outcomes of CHUNK_PENDING chunks are set by the worker: DELIVERED, STORED (arrived), FAILED or CANCELED. All of one
 * transfer's get the same: planes go in layer order over all chunks, so no chunk is whole before the last plane. The
 * block lists must have passed layout_check_blocks. */
struct transfer {
	const struct layout *layout; /* lives until the registration's last transfer has been given back */
	struct transfer_part *parts; /* chunk_count * group_count, chunk by chunk */
	uint8_t *outcomes;           /* enum chunk_outcome, chunk_count */
	uint64_t moved_bytes;        /* set by the worker; 0 when it failed */
	bool to_client;              /* RETRIEVE */
	/* The reply may go out right behind the last WRITE, which it cannot overtake: it says DELIVERED for all that is PENDING.
	 * TRANSFER_DONE and REPLY come all the same; then nothing more is sent. */
	bool early;
	/* Set by the worker when it has: the client may use the request's id again from then on. Atomic. */
	uint32_t answered;
};

/* Parts and outcomes that a request brings along: enough for most; the management core has larger ones in a pool. */
#define REQUEST_INLINE_PARTS 64

struct request_reply {
	uint16_t status;        /* enum kvr_wire_status */
	uint32_t first, second; /* matched and from_l2; count and kept; good_count */
	char text[200];         /* for the error body; empty: status_text */
};

struct request {
	struct list_node node; /* whoever owns the request now */
	struct connection *connection;
	struct wire_header header; /* of the (inner) message */
	const uint8_t *bytes; /* the (inner) message, a copy: the decoded structs point into it; valid until REPLY */
	uint32_t length;
	uint64_t arrived_ns;
	union {
		struct lookup_request lookup;
		struct query_request query;
		struct transfer_request transfer;
		struct free_locks_request free_locks;
		struct cancel_request cancel;
		struct end_session_request end_session;
		struct clear_request clear;
	} message; /* by header.type */
	struct request_reply reply;
	struct transfer transfer;
	struct transfer_part inline_parts[REQUEST_INLINE_PARTS];
	uint8_t inline_outcomes[REQUEST_INLINE_PARTS];

	/* the management core's */
	struct session *session;
	struct registration *registration;
	struct request *canceled_by; /* the CANCEL that waits for this one's end */
	struct wheel_timer timer;
	struct list_node waiting; /* on its session's list of waiters, or none */
	uint32_t progress;        /* chunks done by a long request's earlier steps */
	uint32_t stage;
	uint8_t clear_step;         /* of a CLEAR */
	void *large;                /* parts from the pool, NULL: the inline ones; PARTS gives it back */
	struct list_node in_flight; /* its connection's requests by id, wherever they are, until REPLY */
	uint64_t until_ns;          /* when a retry gives up */

	/* the worker's: the request is the first part of a larger struct of its own */
	uint32_t index; /* of its receive buffer, where it has one of its own */
};

struct mailbox {
	struct ring to_management; /* produced by the worker */
	struct ring to_worker;     /* produced by the management core */
};

/* requests, connections: how many of each can exist. 0 or -ENOMEM. */
static inline KVR_MUST_CHECK int mailbox_init(struct mailbox *mailbox, uint32_t requests, uint32_t connections)
{
	uint32_t capacity = 2 * requests + 6 * connections + 16; /* as the comment above says, and some room */
	int error = ring_init(&mailbox->to_management, capacity);

	if (error)
		return error;
	error = ring_init(&mailbox->to_worker, capacity);
	if (error)
		ring_fini(&mailbox->to_management);
	return error;
}

static inline void mailbox_fini(struct mailbox *mailbox)
{
	ring_fini(&mailbox->to_management);
	ring_fini(&mailbox->to_worker);
}

/* A worker's counters: written by it alone with kvr_counter_add, read by anybody with kvr_load_relaxed. All exist
 * from the start, at 0. */
#define WORKER_COUNTERS(X)                                                                       \
	X(requests_total, "requests received")                                                   \
	X(requests_gathered_total, "of these, behind another one in the same message")           \
	X(pings_total, "PING requests answered")                                                 \
	X(replies_total, "replies sent")                                                         \
	X(replies_gathered_total, "of these, behind another one in the same message")            \
	X(early_replies_total, "replies sent right behind the data, before its completion")      \
	X(error_replies_total, "replies with an error status")                                   \
	X(malformed_total, "messages that do not follow the wire format")                        \
	X(indirect_total, "requests fetched from the client's memory")                           \
	X(indirect_waits_total, "such requests that had to wait for a buffer")                   \
	X(transfers_total, "RETRIEVE and STORE transfers finished")                              \
	X(transfer_failures_total, "transfers that failed or were cut short")                    \
	X(work_requests_total, "one-sided work requests posted")                                 \
	X(doorbells_total, "posts of one-sided work requests")                                   \
	X(send_queue_waits_total, "turns in which a transfer waited for room in the send queue") \
	X(retrieve_bytes_total, "bytes written to engines")                                      \
	X(store_bytes_total, "bytes read from engines")                                          \
	X(word_waits_total, "times a transfer's start was put off: the engine was not ready")    \
	X(completions_total, "completions polled")                                               \
	X(completion_errors_total, "completions with an error that was a cause, not a flush")    \
	X(errors_local_total, "of these, blamed on this server")                                 \
	X(errors_peer_total, "of these, blamed on the client")                                   \
	X(errors_link_total, "of these, blamed on the network")                                  \
	X(errors_memory_total, "of these, blamed on memory that is not registered")              \
	X(rails_opened_total, "further rails of connections begun")                              \
	X(rail_probe_failures_total, "of these, those through which no data came")               \
	X(rails_lost_total, "rails that failed after they had worked")                           \
	X(rails_told_total, "rails taken out, or refused, because their device said so")         \
	X(rail_jobs_total, "parts of transfers given to a further rail")                         \
	X(rail_jobs_repeated_total, "of these, done again by another rail")                      \
	X(rail_bytes_total, "bytes moved by further rails")                                      \
	X(unknown_queue_pair_total, "completions of a queue pair that is gone")                  \
	X(connections_opened_total, "connections begun")                                         \
	X(connections_lost_total, "connections that ended by an error of the queue pair")        \
	X(busy_turns_total, "turns of the loop that found work")                                 \
	X(idle_turns_total, "turns of the loop that found none")                                 \
	X(sleeps_total, "times the loop slept for want of work")

struct KVR_ALIGNED(KVR_CACHE_LINE) worker_counters {
#define WORKER_COUNTER_FIELD(name, help) uint64_t name;
	WORKER_COUNTERS(WORKER_COUNTER_FIELD)
#undef WORKER_COUNTER_FIELD
};

KVR_END_C

#endif
