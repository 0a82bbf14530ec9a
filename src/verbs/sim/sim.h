/*
 * sim.h - the simulator's own objects, for the files of this folder.
 *
 *   sim_fabric ── sim_device ── sim_mr, sim_cq, sim_srq, sim_qp
 *       │                          ^ keys: lkey and rkey -> sim_mr        numbers: qp_num -> sim_qp
 *       └── events that are due, ordered by (time, sequence): the order of equal times is that of scheduling, so a run is a function
 *           of its seed and of the calls
 *
 * A work request of the send queue passes these points in posting order: posted, launched (on the wire), responded
 * (taken up by the other side), completed. Between responded and completed its pieces land, in any order. The ring of a
 * queue pair keeps one index for each point.
 *
 * An event holds a reference to its queue pair; a queue pair that was destroyed or killed lives on, unreachable, until
 * the last of its events has been dropped.
 */
#ifndef KVRAIL_VERBS_SIM_SIM_H
#define KVRAIL_VERBS_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"
#include "base/random.h"
#include "verbs/sim/fabric.h"

KVR_BEGIN_C

#define SIM_RETRY_NS ((uint64_t)1000000) /* from a lost packet to IBV_WC_RETRY_EXC_ERR */
#define SIM_RNR_MIN_NS ((uint64_t)10000) /* from a receiver-not-ready answer to the next try */
#define SIM_RNR_MAX_NS ((uint64_t)40000)
#define SIM_PIECES_LIMIT 64u /* pieces_max is cut to this */
#define SIM_INLINE_LIMIT 1024u
#define SIM_SGE_LIMIT 32u
#define SIM_ADDRESS_BYTES 12u /* "KVRSIM1\0" and the queue pair's number */
#define SIM_MATCH_SAME 2u     /* subnet; another one is worth a try, as with real addresses */

/* ---- events --------------------------------------------------------------------------------------------------- */

enum sim_event_kind {
	SIM_ARRIVE = 1, /* a work request reaches the other side */
	SIM_AGAIN,      /* a SEND tries again after receiver-not-ready */
	SIM_PIECE,      /* bytes of a one-sided transfer land */
	SIM_ANSWER,     /* the acknowledgement, or the error, is back */
	SIM_LOST,       /* nobody answered for the retry time */
	SIM_LOOK,       /* look whether the peer is there by now */
	SIM_RECEIVED,   /* receive completions that were held back */
	SIM_STREAM,     /* bytes of a control stream */
};

struct sim_event {
	struct sim_event *next; /* free list, or parked on a stalled link */
	uint32_t kind;
	struct sim_qp *qp;
	union {
		struct sim_wr *wr;
		struct sim_stream *stream; /* SIM_STREAM */
	};
	uint64_t offset; /* SIM_PIECE: in the message */
	uint64_t length;
	uint64_t at_ns;
	uint64_t sequence;
};

/*
 * What is due, in the order of (time, sequence): a wheel of slots for the next 16 us, which is nearly everything, and a heap for what is
 * later, or was due before and waited. A slot's events are a list in order.
 */
#define SIM_SLOT_SHIFT 4u /* a slot is 16 ns */
#define SIM_SLOTS 1024u   /* few, so that they stay in the nearest cache */
#define SIM_SLOT_WORDS (SIM_SLOTS / 64)
struct sim_later {
	uint64_t at_ns;
	uint64_t sequence;
	struct sim_event *event;
};
struct sim_due {
	struct sim_event *slots[SIM_SLOTS];
	uint64_t full[SIM_SLOT_WORDS]; /* bit: the slot has events */
	uint64_t summary;              /* bit: the word of `full` is not 0 */
	struct sim_later *heap;        /* 4-ary */
	uint32_t heap_count;
};
/* Room for so many in all. 0 or -ENOMEM. */
KVR_MUST_CHECK int sim_due_reserve(struct sim_due *due, uint32_t count);
void sim_due_fini(struct sim_due *due);
/* now_ns: of the fabric; it never goes back, and never beyond what is due. */
void sim_due_push(struct sim_due *due, struct sim_event *event, uint64_t now_ns);
/* The first one that is due at `until_ns`; NULL: none. */
struct sim_event *sim_due_take(struct sim_due *due, uint64_t now_ns, uint64_t until_ns);
/* UINT64_MAX: nothing is due. */
uint64_t sim_due_next_ns(const struct sim_due *due, uint64_t now_ns);

/* ---- tables --------------------------------------------------------------------------------------------------- */

/* 32-bit number to pointer, open addressing with linear probing. 0 is no number. */
struct sim_table_slot {
	uint32_t key;
	void *value;
};
struct sim_table {
	struct sim_table_slot *slots;
	uint32_t mask; /* capacity - 1 */
	uint32_t count;
	struct sim_table_slot recent[8]; /* found lately: each piece of a transfer asks for the same few */
};
/* 0 or -ENOMEM. The key must be new. */
KVR_MUST_CHECK int sim_table_add(struct sim_table *table, uint32_t key, void *value);
void *sim_table_look_up(struct sim_table *table, uint32_t key);
static inline void *sim_table_find(struct sim_table *table, uint32_t key)
{
	const struct sim_table_slot *recent = &table->recent[key % 8];

	return recent->key == key ? recent->value : sim_table_look_up(table, key);
}
void sim_table_remove(struct sim_table *table, uint32_t key);
void sim_table_fini(struct sim_table *table);
/* A random key, below `bound`, that the table does not have. */
uint32_t sim_table_new_key(struct sim_table *table, struct random *random, uint64_t bound);

/* ---- objects -------------------------------------------------------------------------------------------------- */

struct sim_fabric {
	uint64_t now_ns;
	uint64_t sequence;
	struct random random;
	struct sim_options options;
	struct sim_counters counters;

	struct sim_due due;
	uint32_t event_count; /* that exist */
	uint32_t reserved;    /* of them, promised to those who may schedule */
	struct sim_event *free_events;
	struct list_node slabs; /* of struct sim_slab */

	struct sim_table keys;    /* struct sim_mr: lkeys and rkeys */
	struct sim_table numbers; /* struct sim_qp */
	struct list_node devices;
	struct list_node ghosts; /* queue pairs that are gone and still have events */
	struct list_node streams;
	uint32_t devices_opened;
	uint32_t streams_opened;
};

struct sim_device {
	struct verbs_device base;
	struct ibv_context context;
	struct sim_fabric *fabric;
	struct list_node in_fabric;
	struct list_node mrs, cqs, srqs, qps, areas;
	uint32_t subnet;
	bool down; /* its link: every queue pair of it is cut, new ones too */
	bool dead;
};

struct sim_area {
	struct list_node in_device;
	void *address;
};

struct sim_mr {
	struct ibv_mr base;
	struct sim_device *device;
	struct list_node in_device;
	int access;
};

struct sim_cqe {
	struct ibv_wc wc;
	struct sim_qp *qp; /* NULL: taken back by qp_stop */
	uint64_t sent;     /* so many work requests of its send queue are done with; 0: a receive */
};

struct sim_cq {
	struct ibv_cq base;
	struct sim_device *device;
	struct list_node in_device;
	struct sim_cqe *entries; /* ring of `depth` */
	uint32_t depth, first, count;
	uint32_t users; /* queue pairs that complete here, twice when for both queues */
	bool overflowed;
};

/* One posted receive. */
struct sim_receive {
	struct list_node in_queue; /* free, posted, or taken by a SEND */
	struct sim_receive_queue *home;
	struct ibv_wc wc;  /* wr_id always; the rest once taken */
	uint64_t ready_ns; /* when the completion is shown */
	uint32_t num_sge;
	struct ibv_sge *sges;
};

struct sim_receive_queue {
	struct sim_receive *receives;
	struct ibv_sge *sges;
	struct list_node free, posted;
	uint32_t max_sge;
};

struct sim_srq {
	struct ibv_srq base;
	struct sim_device *device;
	struct list_node in_device;
	struct sim_receive_queue queue;
	uint32_t users;
};

/* One posted send, write or read. */
struct sim_wr {
	struct list_node in_free;
	uint64_t index; /* of the queue pair's work requests */
	uint64_t wr_id;
	uint64_t length;
	uint64_t remote_address;
	uint32_t rkey;
	uint32_t immediate;
	enum ibv_wr_opcode opcode;
	unsigned flags; /* enum ibv_send_flags */
	enum ibv_wc_status status;
	uint32_t num_sge;
	uint32_t pieces; /* it will land in so many */
	uint32_t pieces_left;
	uint32_t rnr_left;
	uint32_t events; /* scheduled or parked for it */
	uint64_t arrived_ns;
	bool arrived;
	bool on_wire;  /* launched, and its bytes have not landed or been dropped yet */
	bool touching; /* taken up by the other side: its pieces land there, or come from there */
	bool broken;   /* a piece was refused: the others are dropped */
	bool done;     /* `status` stands; completes when those before it have */
	bool completed;
	struct ibv_sge *sges;
	uint8_t *inline_bytes;
};

enum sim_qp_state { SIM_QP_INIT, SIM_QP_READY, SIM_QP_ERROR };

struct sim_qp {
	struct ibv_qp base;
	struct sim_device *device;
	struct sim_fabric *fabric;
	struct list_node in_device;
	struct sim_qp *peer; /* NULL: not known yet, or gone */
	uint32_t peer_number;
	enum sim_qp_state state;
	bool started, stopped, cut, stalled;
	bool gone;                /* destroyed or killed: nothing may reach it */
	bool buried;              /* the handle was given back: freed with its last event */
	bool withheld;            /* its flush does not arrive: it is not idle */
	bool looking;             /* a SIM_LOOK is scheduled */
	bool waiting_for_receive; /* the SEND at `responded` waits for SIM_AGAIN */
	bool holding;             /* a SIM_RECEIVED is scheduled */
	bool halted;              /* an error is on its way back: nothing is launched any more */

	/* send queue: indices run freely. reclaimed <= completed <= posted, responded <= launched <= posted. */
	struct sim_wr **ring;
	uint64_t mask;
	uint64_t posted, launched, responded, completed;
	uint64_t reclaimed; /* known to the poller to be done: their room is free */
	uint64_t refused;   /* index of the work request that the other side refused; UINT64_MAX */
	uint32_t max_send_wr, max_sge, max_inline, max_message, max_reads;
	uint32_t reads;          /* launched and not done */
	uint64_t writes_landing; /* WRITEs taken up by the other side that have not landed whole */
	uint64_t out_flight;     /* work requests on the wire */
	uint64_t in_flight;      /* work requests of the peer that are touching this side's memory */
	uint64_t wire_free_ns;   /* when the outgoing link is free */
	uint64_t landed_ns;      /* when all pieces of WRITEs that were taken up so far will have landed */
	struct sim_wr *wrs;
	struct ibv_sge *sges;
	uint8_t *inline_bytes;
	struct list_node free_wrs;

	/* receive queue */
	struct sim_receive_queue own_queue;
	struct sim_receive_queue *queue; /* own_queue, or the shared one's */
	uint32_t max_recv_wr;
	uint32_t receives;      /* of own_queue: posted and not polled */
	struct list_node taken; /* landed receives whose completion is held back, in order */

	struct sim_event *parked, **parked_end; /* events that wait for a stalled link */
	uint32_t events;                        /* scheduled or parked for it */
	uint32_t reserved;                      /* events promised to it */

	uint32_t *imports; /* rkeys */
	uint32_t import_count, import_capacity;
};

static inline struct sim_device *sim_device_of(const struct ibv_context *context)
{
	return (struct sim_device *)(void *)((char *)(uintptr_t)context - offsetof(struct sim_device, context));
}

/* ---- fabric.c ------------------------------------------------------------------------------------------------- */

/* Promises `count` events: that many more can be scheduled at once without failing. 0 or -ENOMEM. */
KVR_MUST_CHECK int sim_reserve(struct sim_fabric *fabric, uint32_t count);
void sim_unreserve(struct sim_fabric *fabric, uint32_t count);
/* at_ns is raised to now. wr may be NULL. */
struct sim_event *sim_schedule(struct sim_qp *qp, struct sim_wr *wr, enum sim_event_kind kind, uint64_t at_ns);
void sim_schedule_stream(struct sim_fabric *fabric, struct sim_stream *stream, uint64_t at_ns);
uint64_t sim_draw(struct sim_fabric *fabric, uint64_t least, uint64_t most);
static inline uint64_t sim_delay(struct sim_fabric *fabric)
{
	return sim_draw(fabric, fabric->options.delay_min_ns, fabric->options.delay_max_ns);
}
void sim_cut_link(struct sim_qp *qp);
/* Lets go on what a stall has parked. */
void sim_unpark(struct sim_qp *qp);

/* ---- sim_device.c, sim_queue.c -------------------------------------------------------------------------------- */

int sim_open(const struct verbs_open *options, struct verbs_device **device);
void sim_close(struct verbs_device *device);
int sim_register_memory(struct verbs_device *device, void *address, uint64_t length, int access, struct ibv_mr **mr);
int sim_deregister_memory(struct ibv_mr *mr);
int sim_allocate(struct verbs_device *device, uint64_t length, void **address);
void sim_release(struct verbs_device *device, void *address, uint64_t length);
int sim_export_memory(struct ibv_mr *mr, struct verbs_export *description);
int sim_import_memory(struct ibv_qp *qp, const struct verbs_remote_memory *memory, struct verbs_import *import);
void sim_forget_memory(struct ibv_qp *qp, uint32_t rkey);
/* Frees what is left of it. */
void sim_device_free(struct sim_device *device);
/* May a work request of this device use [address, address + length) with that key? needed: ibv_access_flags, 0 for
 * reading with an lkey. */
bool sim_may(const struct sim_device *device, uint32_t key, bool remote, uint64_t address, uint64_t length, int needed);

int sim_create_cq(struct verbs_device *device, uint32_t depth, struct ibv_cq **cq);
void sim_destroy_cq(struct ibv_cq *cq);
int sim_cq_event_fd(const struct ibv_cq *cq);
void sim_cq_clear_event(struct ibv_cq *cq);
int sim_poll_cq(struct ibv_cq *cq, int capacity, struct ibv_wc *wcs);
int sim_req_notify_cq(struct ibv_cq *cq, int solicited_only);
/* A queue that is full goes to the error state, and with it all queue pairs on it. */
void sim_cq_push(struct sim_cq *cq, const struct ibv_wc *wc, struct sim_qp *qp, uint64_t sent);
/* Takes back the completions of a queue pair. */
void sim_cq_purge(struct sim_cq *cq, const struct sim_qp *qp);

int sim_create_srq(struct verbs_device *device, uint32_t depth, struct ibv_srq **srq);
void sim_destroy_srq(struct ibv_srq *srq);
int sim_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
KVR_MUST_CHECK int sim_receive_queue_init(struct sim_receive_queue *queue, uint32_t depth, uint32_t max_sge);
void sim_receive_queue_fini(struct sim_receive_queue *queue);
/* 0, EINVAL, ENOMEM: positive, as libibverbs has it. */
int sim_receive_queue_post(struct sim_receive_queue *queue, const struct ibv_recv_wr *wr);

/* ---- sim_qp.c ------------------------------------------------------------------------------------------------- */

int sim_create_qp(struct verbs_device *device, const struct verbs_qp_options *options, struct ibv_qp **qp);
int sim_qp_address(
	struct ibv_qp *qp, uint8_t *bytes, uint32_t capacity, uint32_t *length, int *fds, unsigned *fd_count);
uint32_t sim_match(const struct verbs_device *device, const uint8_t *bytes, uint32_t length);
int sim_qp_connect(struct ibv_qp *qp, const uint8_t *bytes, uint32_t length, const int *fds, unsigned fd_count,
	const struct stream_peer *peer);
void sim_qp_start(struct ibv_qp *qp);
void sim_qp_fail(struct ibv_qp *qp);
bool sim_qp_idle(const struct ibv_qp *qp);
void sim_qp_stop(struct ibv_qp *qp);
void sim_destroy_qp(struct ibv_qp *qp);
/* The queue pair answers no more and its memory is no longer touched. */
void sim_qp_kill(struct sim_qp *qp);
/* The handle is given back: frees it now, or when its last event is gone. */
void sim_qp_bury(struct sim_qp *qp);
/* The last event of one that is gone has been dropped. */
void sim_qp_settle(struct sim_qp *qp);
void sim_qp_free(struct sim_qp *qp);
/* To the error state: everything that has not completed does, as flushed. Harmless when it is there already. */
void sim_qp_error(struct sim_qp *qp);
void sim_flush_receives(struct sim_qp *qp);
/* wc: status and qp_num are filled. sent: see struct sim_cqe. */
void sim_push_error(struct sim_qp *qp, struct sim_cq *cq, struct ibv_wc *wc, uint64_t wr_id, uint64_t sent);

static inline uint32_t sim_wr_reserves(const struct sim_wr *wr)
{
	return wr->pieces + 2;
}

/* No packet passes between it and its peer any more. */
static inline bool sim_link_cut(const struct sim_qp *qp)
{
	return qp->cut;
}

/* ---- sim_post.c, sim_transfer.c, sim_landing.c ---------------------------------------------------------------- */

int sim_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int sim_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Puts on the wire what may go there now. */
void sim_launch(struct sim_qp *qp);
/* The other side takes up what has arrived of `qp`, in order, as far as it can. */
void sim_respond(struct sim_qp *qp);
/* Completes, in order, what is done. */
void sim_complete(struct sim_qp *qp);
void sim_wr_finish(struct sim_wr *wr, struct sim_qp *qp, enum ibv_wc_status status);
/* Gives a work request back when it has completed and nothing of it is left. */
void sim_wr_retire(struct sim_qp *qp, struct sim_wr *wr);
/* Its error travels back; nothing behind it is taken up. */
void sim_refuse(struct sim_qp *qp, struct sim_wr *wr, enum ibv_wc_status status);
/* May it read (or, for a READ, fill) its own buffers? */
bool sim_local_ok(const struct sim_qp *qp, const struct sim_wr *wr);
bool sim_remote_ok(const struct sim_qp *qp, const struct sim_wr *wr, uint64_t offset, uint64_t length);
/* The bytes of one piece, or of a SEND into a receive of the peer. */
void sim_land_piece(struct sim_qp *qp, struct sim_wr *wr, uint64_t offset, uint64_t length);
void sim_land_send(struct sim_qp *qp, struct sim_wr *wr);
/* Everything of it has landed or was dropped. */
void sim_wr_off_wire(struct sim_qp *qp, struct sim_wr *wr);
/* Shows receives that were held back until now; all of them with `all`. */
void sim_show_receives(struct sim_qp *qp, bool all);
void sim_dispatch(const struct sim_event *event);

/* ---- sim_stream.c --------------------------------------------------------------------------------------------- */

void sim_stream_arrive(struct sim_stream *stream);
/* The client's ends of those that hang on the device are closed. */
void sim_streams_end(struct sim_fabric *fabric, const struct sim_device *owner);
/* The device goes by itself: nothing ends with it any more. */
void sim_streams_disown(struct sim_fabric *fabric, const struct sim_device *owner);
void sim_streams_free(struct sim_fabric *fabric);

KVR_END_C

#endif
