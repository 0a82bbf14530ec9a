/*
 * local.h - the objects of the `local` driver: same host, two processes, no NIC.
 *
 * The server makes the rings of each queue pair and moves all one-sided data; the client maps what it is given. There
 * are no completion queue entries: completions stay where they arise (in the send queue, in the ring) until a poll
 * takes them, so a completion queue cannot overrun. A completion queue is a list of queue pairs and the reason to wake.
 *
 * Whose is what: a queue pair's queues and rings belong to the polling thread from qp_start (posting before that is the
 * owner's business); device tables are written under device->lock and read by polling threads through key tables that
 * publish with release. Every wake-up is a byte in the queue pair's own socket: sending with MSG_DONTWAIT can't block,
 * whatever the peer did to its end (an eventfd's O_NONBLOCK belongs to both), and a peer that steals wake-ups steals
 * only its own.
 */
#ifndef KVRAIL_VERBS_LOCAL_LOCAL_H
#define KVRAIL_VERBS_LOCAL_LOCAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"
#include "base/helper.h"
#include "base/list.h"
#include "verbs/driver.h"
#include "verbs/local/keys.h"
#include "verbs/local/shared.h"

KVR_BEGIN_C

#define LOCAL_SGE_MAX 16u
#define LOCAL_WR_MAX 65536u
#define LOCAL_INLINE_MAX 512u
#define LOCAL_QPS_MAX 65536u
#define LOCAL_SLICE_BYTES (UINT64_C(256) << 10)
#define LOCAL_RECEIVES_PER_TURN 16u /* messages taken from one queue pair before the next has its turn */
#define LOCAL_KEYS 65536u
#define LOCAL_HUGE_PAGE (UINT64_C(2) << 20)

/* Client memory made by allocate: a sealed memfd. */
struct local_area {
	struct list_node node;
	uint64_t address;
	uint64_t length;       /* as asked for */
	uint64_t mapped_bytes; /* rounded up to the page size in use */
	int fd;
};

/* A client's memfd, mapped once for all regions that lie in it. */
struct local_mapping {
	struct list_node node;
	dev_t device;
	ino_t inode;
	uint8_t *base;
	uint64_t length;
	uint32_t users;
};

struct local_device {
	struct verbs_device device;
	struct ibv_context context;
	bool server;
	uint64_t slice_bytes;
	const struct verbs_gpu_table *gpu; /* NULL: no GPU memory */
	struct local_keys keys;            /* of local memory; read by polling threads */

	pthread_mutex_t lock; /* what follows, and writing `keys` */
	struct list_node areas;
	struct list_node mappings;
	uint64_t qp_taken[LOCAL_QPS_MAX / 64]; /* a bit for each number in use */
	/* client, atomic: the server runs as this user or as root, so it may be given memory that can vanish */
	uint32_t peer_may_kill;
};

struct local_mr {
	struct ibv_mr mr;
	int access;
};

/* A posted receive, or a posted send (below), with its scatter list behind it; strides are computed when the queue is
 * made. */
struct local_receive {
	uint64_t wr_id;
	uint32_t sge_count;
	uint32_t pad;
	struct ibv_sge sge[];
};

struct local_receive_queue {
	uint8_t *entries; /* mask + 1 of them; NULL: none (a queue pair with an SRQ) */
	uint32_t stride;
	uint32_t mask;
	uint32_t head; /* oldest posted */
	uint32_t tail;
	uint32_t depth; /* at most so many posted */
	uint32_t sge_max;
	bool newest_first; /* a shared queue, for which the standard promises no order: the buffer used last is still in the cache */
};

struct local_srq {
	struct ibv_srq srq;
	struct local_receive_queue queue;
};

/* A posted send. The first line holds what most work requests need: two scatter entries. */
struct local_send {
	uint64_t wr_id;
	uint64_t remote;
	uint32_t rkey;
	uint32_t immediate;
	uint32_t length;
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t flags;  /* IBV_SEND_SIGNALED, IBV_SEND_INLINE, LOCAL_SEND_RIDES */
	uint8_t sge_count;
	uint8_t status;       /* enum ibv_wc_status, when executed */
	struct ibv_sge sge[]; /* or the inline bytes */
};
KVR_STATIC_ASSERT(sizeof(struct local_send) == 32, "two scatter entries fit the first line of a posted send");

/* A word in host memory that is moved when the copies before it have ended (gpu.c). */
#define LOCAL_SEND_RIDES 0x80u
#define LOCAL_WORD_BYTES 8u

/* Copies from the server's memory to one GPU's, or back, of one completion queue. */
struct local_lane {
	struct local_cq *cq;
	void *lane;            /* the table's */
	uint64_t put;          /* polling thread: copies put into it ... */
	uint64_t done;         /* ... and ended, as far as was looked */
	uint64_t failed_below; /* of those that no work request was told of yet, the ones below ended with an error */
	bool is_unsent;        /* something was put and not published */
};

/* Of a queue pair whose receives complete in a queue (watch.c). A poll goes to it when the message is there, or always. */
struct local_watch {
	const uint32_t *sequence; /* of the slot of the next message */
	struct local_qp *qp;
	uint32_t expected;
	bool always;
};

struct local_watches {
	struct local_watches *smaller; /* those before */
	uint32_t capacity;
	struct local_watch entries[];
};

struct local_cq {
	struct ibv_cq cq;
	/* polling thread */
	struct list_node started; /* struct local_qp.started: those whose receives or sends complete here */
	struct list_node
		busy;   /* struct local_qp.busy: those with something in the send queue, whose sends complete here */
	uint32_t armed; /* atomic: to be woken; written by the polling thread, read by the helper's too */
	uint32_t jobs;  /* handed to `helper` and not collected */
	struct local_watches *watches;    /* of the first watch_count */
	uint32_t watch_count, watch_next; /* next: with which the next poll begins */
	/* device->lock */
	uint32_t qps;                 /* whose receives complete here, started or not */
	uint32_t room;                /* for so many in the largest array made */
	struct local_watches *larger; /* atomic: not taken by the polling thread yet */
	/* made when the first memory of kind MEMORY_PROCESS is imported; published with release */
	struct helper *helper;
	/* made when the first memory on that GPU is imported; published with release */
	struct local_lane *lanes[VERBS_GPUS_MAX][2]; /* from, to the GPU */
	/* read only */
	int epoll_fd; /* readable when one of the wake sockets or self_fd is */
	int self_fd;  /* eventfd: this side's own work can go on */
};

struct local_cq_link {
	struct list_node node;
	struct local_qp *qp;
};

/* The process behind the control socket. */
struct local_process {
	pid_t pid; /* 0: unknown */
	uid_t uid;
	int pid_fd;  /* pidfd: says whether it has ended */
	int proc_fd; /* its directory in /proc: says whether it still has the same user */
};

/* A work request on MEMORY_PROCESS, on its way through the helper thread. One per queue pair: order is kept. */
struct local_process_job {
	struct helper_job job;
	struct local_qp *qp;
	const struct local_send *send;
	bool write;
	uint32_t cancel; /* atomic: stop before the next slice */
	uint32_t done;   /* atomic: run() has nothing more to do */
};

struct local_qp {
	struct ibv_qp qp;
	struct local_device *device;

	/* transmit: polling thread */
	KVR_ALIGNED(KVR_CACHE_LINE) uint8_t *tx_slots;
	uint32_t tx_mask;
	uint32_t tx_tail;      /* messages published */
	uint32_t tx_head_copy; /* of the peer's head */
	uint32_t stride;
	uint32_t message_bytes;
	struct local_side *mine;
	struct local_side *peer;

	/* receive: polling thread */
	KVR_ALIGNED(KVR_CACHE_LINE) uint8_t *rx_slots;
	uint32_t rx_mask;
	uint32_t rx_head;      /* messages taken */
	uint32_t rx_published; /* of them, told to the peer */
	bool is_started;
	bool failed;
	bool wake_due;  /* something was published and the peer's sleeping flag not yet looked at */
	uint32_t watch; /* while it is started: its place in the watches of its recv_cq */
	struct local_receive_queue *receive_queue; /* own, or the SRQ's */
	struct local_receive_queue own_queue;
	struct local_cq_link recv_link, send_link; /* on `started` of both queues (once when they are the same) */

	/* send queue: polling thread. head <= done <= exec <= tail: completed, executed, begun, posted. What the processor
	 * moves is executed when it has begun (done = exec), unless it waits for copies of a GPU before it. */
	KVR_ALIGNED(KVR_CACHE_LINE) uint8_t *sends;
	uint32_t send_stride;
	uint32_t send_mask;
	uint32_t send_head;
	uint32_t send_done;
	uint32_t send_exec;
	uint32_t send_tail;
	uint32_t send_depth;
	uint32_t sge_max;
	uint32_t inline_max;
	struct list_node busy;
	struct local_lane *lane; /* that has copies of it; NULL: none under way */
	uint64_t lane_end;       /* behind the last of them */
	uint64_t gpu_address;    /* sends[send_exec] is on GPU memory: where its next byte lies there; 0: it is not */
	uint64_t lane_begin;     /* and its first copy in the lane is not before that one */
	bool job_running;
	bool begun;         /* sends[send_exec] is partly moved: */
	uint8_t *far;       /*   where its next byte lies in the client's memory, */
	uint32_t moved;     /*   bytes moved, */
	uint32_t sge_index; /*   and the place in its scatter list */
	uint32_t sge_moved;

	struct local_process_job job;

	/* set-up: control and helper threads */
	struct local_keys imports;
	struct local_process process;
	struct local_geometry geometry;
	struct local_shared *shared;
	uint64_t shared_bytes;
	uint32_t peer_qp_num;
	int shared_fd;    /* server: the memory, for the client */
	int wake_fd;      /* this side's end */
	int peer_wake_fd; /* server: the client's end, for the client */
	bool connected;
	bool is_watched; /* there is room for it in its recv_cq */
};

/* Which of a GPU's two lanes has the copies of that operation. */
static inline unsigned local_lane_direction(const struct local_send *send)
{
	return send->opcode != IBV_WR_RDMA_READ;
}

static inline struct local_device *local_device_of(const struct ibv_context *context)
{
	return KVR_CONTAINER_OF(context, struct local_device, context);
}

static inline struct local_cq *local_cq_of(const struct ibv_cq *cq)
{
	return KVR_CONTAINER_OF(cq, struct local_cq, cq);
}

static inline struct local_qp *local_qp_of(const struct ibv_qp *qp)
{
	return KVR_CONTAINER_OF(qp, struct local_qp, qp);
}

static inline struct local_send *local_send_at(const struct local_qp *qp, uint32_t index)
{
	return (struct local_send *)(void *)(qp->sends + (uint64_t)(index & qp->send_mask) * qp->send_stride);
}

static inline struct local_receive *local_receive_at(const struct local_receive_queue *queue, uint32_t index)
{
	return (struct local_receive *)(void *)(queue->entries + (uint64_t)(index & queue->mask) * queue->stride);
}

/* The receive that the next message goes to; there must be one. It stays where it is until the next one is posted. */
static inline const struct local_receive *local_receive_next(const struct local_receive_queue *queue)
{
	return local_receive_at(queue, queue->newest_first ? queue->tail - 1 : queue->head);
}

static inline void local_receive_taken(struct local_receive_queue *queue)
{
	if (queue->newest_first)
		queue->tail--;
	else
		queue->head++;
}

/* cq.c ------------------------------------------------------------------------------------------------------------ */
int local_create_cq(struct verbs_device *device, uint32_t depth, struct ibv_cq **cq);
void local_destroy_cq(struct ibv_cq *cq);
int local_cq_event_fd(const struct ibv_cq *cq);
void local_cq_clear_event(struct ibv_cq *cq);
int local_req_notify_cq(struct ibv_cq *cq, int solicited_only);
/* Polling thread. No longer to be woken: a poll found something, or the wake-up was taken. */
void local_cq_disarm(struct local_cq *cq);
/* Any thread: makes the event descriptor readable. */
void local_cq_wake_self(struct local_cq *cq);
/* Polling thread, after qp->wake_due: wakes the peer if it sleeps. One system call then, none otherwise. */
void local_qp_wake_peer(struct local_qp *qp);
/* The helper of this queue's polling thread, made if there is none. Not the polling thread. 0 or -errno. */
int local_cq_need_helper(struct local_cq *cq);

/* watch.c --------------------------------------------------------------------------------------------------------- */
/* Room for one queue pair more whose receives complete there; release takes it back. Not the polling thread. 0, -ENOMEM. */
KVR_MUST_CHECK int local_watch_reserve(struct local_cq *cq);
void local_watch_release(struct local_cq *cq);
void local_watch_close(struct local_cq *cq);
/* Polling thread: the queue pair is started, is stopped, has taken messages or has failed. */
void local_watch_add(struct local_qp *qp);
void local_watch_remove(struct local_qp *qp);
void local_watch_update(struct local_qp *qp);

/* queue.c --------------------------------------------------------------------------------------------------------- */
int local_receive_queue_init(struct local_receive_queue *queue, uint32_t depth, uint32_t sge_max);
void local_receive_queue_fini(struct local_receive_queue *queue);
int local_create_srq(struct verbs_device *device, uint32_t depth, struct ibv_srq **srq);
void local_destroy_srq(struct ibv_srq *srq);
int local_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int local_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int local_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

/* qp.c ------------------------------------------------------------------------------------------------------------ */
int local_create_qp(struct verbs_device *device, const struct verbs_qp_options *options, struct ibv_qp **qp);
int local_qp_address(
	struct ibv_qp *qp, uint8_t *bytes, uint32_t capacity, uint32_t *length, int *fds, unsigned *fd_count);
int local_qp_connect(struct ibv_qp *qp, const uint8_t *bytes, uint32_t length, const int *fds, unsigned fd_count,
	const struct stream_peer *peer);
void local_qp_start(struct ibv_qp *qp);
void local_qp_fail(struct ibv_qp *qp);
bool local_qp_idle(const struct ibv_qp *qp);
void local_qp_stop(struct ibv_qp *qp);
void local_destroy_qp(struct ibv_qp *qp);
/* Polling thread. To the error state; the peer is told `reason`. Harmless when it is there already. */
void local_qp_to_error(struct local_qp *qp, enum local_closed reason);

/* rings.c --------------------------------------------------------------------------------------------------------- */
/* Server: makes the memory and the wake socket. 0 or -errno, nothing made then. */
int local_rings_create(struct local_qp *qp);
/* Client: maps the server's. 0, -EBADMSG, -EPERM (not sealed), -ENOMEM, ... */
int local_rings_attach(struct local_qp *qp, const struct local_geometry *geometry, const int *fds);
void local_rings_destroy(struct local_qp *qp);

/* memory.c: local memory; import.c: a client's -------------------------------------------------------------------- */
int local_register_memory(struct verbs_device *device, void *address, uint64_t length, int access, struct ibv_mr **mr);
int local_deregister_memory(struct ibv_mr *mr);
int local_allocate(struct verbs_device *device, uint64_t length, void **address);
void local_release(struct verbs_device *device, void *address, uint64_t length);
int local_export_memory(struct ibv_mr *mr, struct verbs_export *description);
int local_import_memory(struct ibv_qp *qp, const struct verbs_remote_memory *memory, struct verbs_import *import);
void local_forget_memory(struct ibv_qp *qp, uint32_t rkey);
void local_forget_all(struct local_qp *qp);

/* map.c ----------------------------------------------------------------------------------------------------------- */
/* Maps the file from its first byte, where huge pages can be mapped. flags: those of mmap(2) besides MAP_SHARED. MAP_FAILED
 * with errno. */
void *local_map_shared(int fd, uint64_t bytes, int flags);
/* Gets all pages of a mapping of the file, huge ones where there are any, so that neither side meets an error at first
 * touch. 0, -ENOMEM. */
KVR_MUST_CHECK int local_populate(int fd, void *address, uint64_t bytes);

/* gpu.c ----------------------------------------------------------------------------------------------------------- */
/* The lanes of this queue's polling thread to that GPU, made if there are none. Not the polling thread. 0 or -errno. */
int local_cq_need_lanes(struct local_cq *cq, uint32_t gpu);
void local_cq_close_lanes(struct local_cq *cq);
/* Polling thread: whether sends[send_exec] may begin while copies before it are under way in qp->lane. */
bool local_gpu_may_follow(const struct local_qp *qp, const struct local_send *send);
/* Polling thread: puts copies of sends[send_exec] (begun, gpu_address set) into the lane. True when all are in. */
bool local_gpu_put(struct local_qp *qp, struct local_send *send, uint64_t *budget);
/* Polling thread: publishes what was put. */
void local_gpu_publish(struct local_qp *qp);
/* Polling thread: work requests whose copies have ended are executed. */
void local_gpu_collect(struct local_qp *qp);
/* True when local_gpu_collect would get on. */
bool local_gpu_has_news(struct local_qp *qp);

/* process.c ------------------------------------------------------------------------------------------------------- */
/* Opens what is needed to know the process again; pid 0 in `process` when it can't be known. */
void local_process_open(struct local_process *process, const struct stream_peer *peer);
void local_process_close(struct local_process *process);
/* Polling thread: hands the work request to the helper. False: no room now. */
bool local_process_submit(struct local_qp *qp, struct local_send *send);
/* Polling thread: takes back what the helper has done. */
void local_process_collect(struct local_cq *cq);

/* poll.c, run.c, message.c: polling thread ------------------------------------------------------------------------ */
int local_poll_cq(struct ibv_cq *cq, int capacity, struct ibv_wc *wc);
/* True when polling would get on without the peer: something to move, to complete or to flush. */
bool local_qp_has_work(struct local_qp *qp);
/* After posting: SENDs with nothing before them go into the ring at once. */
void local_qp_posted(struct local_qp *qp);
/* Executes what is posted, in order, until `*budget` bytes are used up or something must be waited for. */
void local_qp_run(struct local_qp *qp, uint64_t *budget);
/* A transfer of at most LOCAL_WORD_BYTES and one piece, whose bytes nobody sees before those of the work requests before it. */
static inline bool local_is_word(const struct local_send *send)
{
	return (send->opcode == IBV_WR_RDMA_WRITE || send->opcode == IBV_WR_RDMA_READ) && send->length > 0 &&
		send->length <= LOCAL_WORD_BYTES && send->sge_count <= 1;
}
/* Moves it; far: where it lies in the client's memory. */
void local_move_word(const struct local_send *send, uint8_t *far);
/* The helper has let go of the work request at send_exec. */
void local_qp_transfer_done(struct local_qp *qp, int result);
/* Puts the message into the ring. False: the peer has freed no slot yet. When true, send->status says how it went. */
bool local_qp_transmit(struct local_qp *qp, struct local_send *send);
/* Whether local_qp_transmit would return true. */
bool local_qp_can_transmit(struct local_qp *qp);
/* Takes messages into posted receives; flushes them when the queue pair has failed. Completions written. */
int local_qp_receive(struct local_qp *qp, int capacity, struct ibv_wc *wc);
/* Where local memory named by a scatter entry lies; NULL when the key, the range or the access right is wrong. */
static inline uint8_t *local_resolve(const struct local_device *device, const struct ibv_sge *sge, int access)
{
	const struct local_key *key = local_keys_find(&device->keys, sge->lkey);

	if (KVR_UNLIKELY(!key || (key->access & access) != access || !local_key_covers(key, sge->addr, sge->length)))
		return NULL;
	return (uint8_t *)(uintptr_t)sge->addr;
}

KVR_END_C

#endif
