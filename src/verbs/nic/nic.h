/*
 * nic.h - what the files of the nic driver share.
 *
 * Every object is ours and stands for one of libibverbs: the five inline calls of the data path come to post.c and poll.c
 * through the function table of a context of ours, are checked and counted there, and go on to the provider's. So the
 * driver knows at any time what is outstanding on a queue pair, and a queue pair that fails is known to be quiet by
 * counting its flushed work requests.
 *
 * A work request travels with an id of ours, its number in the queue, and gets the caller's back in its completion: an
 * error completion says nothing else that could be relied on, not even the direction.
 *
 * Threads: `events` of a device (events.c) reads its asynchronous events and moves failing queue pairs to the error state,
 * since ibv_modify_qp enters the kernel. Numbers of queue pairs lead to them through a table (table.c) that polling threads
 * read without a lock; a queue pair that was destroyed is freed when the thread that may have looked it up has polled once
 * more.
 */
#ifndef KVRAIL_VERBS_NIC_NIC_H
#define KVRAIL_VERBS_NIC_NIC_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/list.h"
#include "base/random.h"
#include "verbs/driver.h"
#include "verbs/nic/address.h"
#include "verbs/nic/gid.h"
#include "verbs/nic/library.h"

KVR_BEGIN_C

/* Ids of work requests as the provider sees them: the number in the queue, and where it was posted. */
#define NIC_ID_RECEIVE (UINT64_C(1) << 63) /* to the queue pair's own receive queue */
#define NIC_ID_SHARED (UINT64_C(1) << 62)  /* to a shared receive queue: slot of it */
#define NIC_ID_MARKER (UINT64_C(1) << 61)  /* ours: what a failed send queue ends with */
#define NIC_ID_MASK (NIC_ID_MARKER - 1)

#define NIC_WR_MAX 32768u
#define NIC_SRQ_SGE 4u
/* How long a queue pair on a shared receive queue waits for the device to say that its last receive is done, where the
 * device says so. */
#define NIC_LAST_RECEIVE_MS 200

#define NIC_TABLE_BITS 12u

struct nic_qp;

struct nic_table {
	struct nic_qp **pages[1u << NIC_TABLE_BITS];
};

/* The port in use, as chosen at open. */
struct nic_port {
	uint32_t number;
	uint8_t link_layer;
	uint8_t mtu; /* enum ibv_mtu: the port's active one, or less where the operator says so */
	uint16_t lid;
	bool needs_grh;
	uint32_t gid_index;
	union ibv_gid gid;
	uint64_t max_message_bytes;
};

/* What every queue pair of a device is given. */
struct nic_settings {
	uint8_t service_level, traffic_class, hop_limit, timeout, retry_count, rnr_timer;
};

struct nic_device {
	struct verbs_device device;
	struct ibv_context context; /* ours: its function table leads to post.c and poll.c */
	struct nic_library library;
	struct ibv_context *real;
	struct ibv_pd *pd;
	struct ibv_device_attr attributes;
	struct nic_settings settings;
	struct nic_gid_wish wish;
	bool gid_index_set;
	uint8_t mtu_max; /* enum ibv_mtu */

	pthread_mutex_t lock; /* port, random, the table's writers, buried, next_vector */
	struct nic_port port;
	struct random random;
	struct nic_table table;
	struct list_node buried; /* nic_qp.buried */
	uint32_t next_vector;
	uint64_t serials;

	/* events.c */
	pthread_t thread;
	bool thread_runs;
	int wake_fd;
	uint32_t stop;
	struct nic_qp *failing;   /* pushed by polling threads, taken by the events thread */
	struct list_node waiting; /* nic_qp.waiting, the thread's own */
	pthread_mutex_t quiet_lock;
	pthread_cond_t quiet_changed; /* some queue pair's `stage` */
	bool moved;                   /* the address has changed while the port was down: the events thread's */
	struct nic_counters {
		uint64_t port_errors, address_changes, qp_errors, qps_closed;
	} counters; /* the events thread's; others read */
};

/* A completion of a queue pair that was not started yet. */
struct nic_held {
	struct ibv_wc wc; /* the caller's wr_id */
	uint64_t serial;
	bool shared;
};

struct nic_cq {
	struct ibv_cq cq;
	struct ibv_cq *real;
	struct ibv_comp_channel *channel;
	struct nic_srq *srq; /* of the queue pairs attached to it */
	struct nic_held *held;
	uint32_t held_count, held_capacity;
	uint64_t polls; /* finished ones */
	uint64_t dry;   /* polls that emptied it */
};

struct nic_srq {
	struct ibv_srq srq;
	struct ibv_srq *real;
	uint64_t *ids; /* the callers', by slot */
	uint32_t *unused;
	uint32_t unused_count, depth;
};

/* Work requests on their way, in the order of posting. */
struct nic_queue {
	uint64_t *ids; /* the callers', by number & mask */
	uint32_t mask, depth, max_sge;
	uint64_t posted, completed;
};

enum nic_state { NIC_RESET, NIC_INIT, NIC_RTR, NIC_RTS, NIC_ERR, NIC_STATES };

/* How far a failing queue pair has come. Written by the events thread. */
enum nic_stage {
	NIC_ALIVE,
	NIC_ASKED,    /* qp_fail was called */
	NIC_FLUSHING, /* in the error state; a shared receive queue may still complete one of its receives */
	NIC_DRAINED,  /* no more completions will come but those that are outstanding */
	NIC_GONE,     /* it could not be moved there and was destroyed instead: nothing more will come */
};

struct nic_qp {
	struct ibv_qp qp;
	struct ibv_qp *real;
	struct nic_device *device;
	struct nic_queue send, receive;
	uint32_t max_inline;
	bool started;
	uint64_t serial;
	uint32_t import_count;
	uint32_t state; /* enum nic_state */
	struct nic_address mine;
	struct nic_address theirs;
	struct nic_path path;
	struct nic_port port;

	uint32_t stage; /* enum nic_stage */
	struct nic_qp *next_failing;
	bool last_receive_done; /* this and the next two: the events thread's */
	struct list_node waiting;
	uint64_t deadline_ns;
	bool marked; /* the marker is posted: the polling thread's */
	bool dry_known;
	uint64_t dry_at; /* cq->dry when it was first seen drained */

	struct list_node buried;
	uint64_t buried_send_polls, buried_recv_polls;
};

struct nic_mr {
	struct ibv_mr mr;
	struct ibv_mr *real;
};

static inline struct nic_device *nic_device_of(struct verbs_device *device)
{
	return KVR_CONTAINER_OF(device, struct nic_device, device);
}

static inline struct nic_device *nic_of_context(struct ibv_context *context)
{
	return KVR_CONTAINER_OF(context, struct nic_device, context);
}

static inline struct nic_qp *nic_qp_of(const struct ibv_qp *qp)
{
	return KVR_CONTAINER_OF(qp, struct nic_qp, qp);
}

static inline struct nic_cq *nic_cq_of(const struct ibv_cq *cq)
{
	return KVR_CONTAINER_OF(cq, struct nic_cq, cq);
}

static inline struct nic_srq *nic_srq_of(const struct ibv_srq *srq)
{
	return KVR_CONTAINER_OF(srq, struct nic_srq, srq);
}

/* The queue pair of that number, NULL: none. Any thread. */
static inline struct nic_qp *nic_table_find(const struct nic_table *table, uint32_t number)
{
	uint32_t page = number >> NIC_TABLE_BITS & ((1u << NIC_TABLE_BITS) - 1);
	struct nic_qp **entries = kvr_load_acquire(&table->pages[page]);

	return entries ? kvr_load_acquire(&entries[number & ((1u << NIC_TABLE_BITS) - 1)]) : NULL;
}

/* table.c: writers, one at a time (device->lock). -ENOMEM. */
KVR_MUST_CHECK int nic_table_set(struct nic_table *table, uint32_t number, struct nic_qp *qp);
void nic_table_clear(struct nic_table *table, uint32_t number);
void nic_table_fini(struct nic_table *table);
/* Each queue pair in it. Under device->lock. */
void nic_table_each(const struct nic_table *table, void (*call)(struct nic_qp *qp, void *context), void *context);

/* describe.c */
void nic_describe(const struct verbs_device *device, struct text *out);

/* find.c: an opened device with an active port and an address. As verbs_driver.open; the reason is logged. */
KVR_MUST_CHECK int nic_find(struct nic_device *nic, const struct verbs_open *options);
/* The port and its address again, after an event. Under device->lock once the device is open. */
KVR_MUST_CHECK int nic_port_read(struct nic_device *nic, struct nic_port *port, uint32_t number, const char *device);

/* match.c: verbs_driver.match. */
uint32_t nic_match(const struct verbs_device *device, const uint8_t *bytes, uint32_t length);

/* state.c: by the table of legal moves. `to` NIC_ERR is legal from everywhere. 0 or -errno, logged. */
KVR_MUST_CHECK int nic_qp_move(struct nic_qp *qp, enum nic_state to);

/* post.c: behind whatever a failed send queue holds, one that is sure to come back. The polling thread; in the error state. 0 or a
 * positive errno. */
KVR_MUST_CHECK int nic_post_marker(struct nic_qp *qp);
/* post.c, poll.c: the context's function table. */
int nic_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int nic_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int nic_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int nic_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wcs);
int nic_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* cq.c */
int nic_create_cq(struct verbs_device *device, uint32_t depth, struct ibv_cq **cq);
void nic_destroy_cq(struct ibv_cq *cq);
int nic_cq_event_fd(const struct ibv_cq *cq);
void nic_cq_clear_event(struct ibv_cq *cq);
int nic_create_srq(struct verbs_device *device, uint32_t depth, struct ibv_srq **srq);
void nic_destroy_srq(struct ibv_srq *srq);

/* qp.c */
int nic_create_qp(struct verbs_device *device, const struct verbs_qp_options *options, struct ibv_qp **qp);
int nic_qp_address(
	struct ibv_qp *qp, uint8_t *bytes, uint32_t capacity, uint32_t *length, int *fds, unsigned *fd_count);
int nic_qp_connect(struct ibv_qp *qp, const uint8_t *bytes, uint32_t length, const int *fds, unsigned fd_count,
	const struct stream_peer *peer);
void nic_qp_start(struct ibv_qp *qp);
void nic_qp_fail(struct ibv_qp *qp);
bool nic_qp_idle(const struct ibv_qp *qp);
void nic_qp_stop(struct ibv_qp *qp);
void nic_destroy_qp(struct ibv_qp *qp);
/* Frees buried queue pairs that no polling thread can be looking at: those of `cq` in any case. Under device->lock. */
void nic_sweep(struct nic_device *nic, const struct nic_cq *cq);
/* The largest inline size that the device gives. */
uint32_t nic_probe_inline(struct nic_device *nic);

/* memory.c */
int nic_register_memory(struct verbs_device *device, void *address, uint64_t length, int access, struct ibv_mr **mr);
int nic_register_dmabuf(struct verbs_device *device, int fd, uint64_t offset, uint64_t length, uint64_t address,
	int access, struct ibv_mr **mr);
int nic_deregister_memory(struct ibv_mr *mr);
int nic_allocate(struct verbs_device *device, uint64_t length, void **address);
void nic_release(struct verbs_device *device, void *address, uint64_t length);
int nic_export_memory(struct ibv_mr *mr, struct verbs_export *description);
int nic_import_memory(struct ibv_qp *qp, const struct verbs_remote_memory *memory, struct verbs_import *import);
void nic_forget_memory(struct ibv_qp *qp, uint32_t rkey);
/* Logs that `what` could not be pinned, with what is allowed and what to set (pitfalls K01). */
void nic_say_memlock(const struct nic_device *nic, const char *what, uint64_t bytes, int error);

/* events.c */
KVR_MUST_CHECK int nic_events_start(struct nic_device *nic);
void nic_events_stop(struct nic_device *nic);
/* Polling thread. To the error state; asked again, out of existence. */
void nic_events_fail(struct nic_qp *qp);
/* Blocks until the events thread is done with it. */
void nic_events_wait(struct nic_qp *qp);

KVR_END_C

#endif
