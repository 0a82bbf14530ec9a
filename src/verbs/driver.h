/*
 * driver.h - the table that every kind of device fills: nic (libibverbs), local (same host), sim (tests).
 *
 * The data path uses libibverbs' own structs and its five inline calls, which dispatch through the context's function
 * table: ibv_post_send, ibv_post_recv, ibv_post_srq_recv, ibv_poll_cq, ibv_req_notify_cq. Only these touch a driver's
 * objects directly; everything else, events included, goes through this table, since libibverbs' out-of-line calls
 * would crash on objects that libibverbs did not make.
 *
 * Threads. "polling thread": the one thread that polls a completion queue; it also posts on the queue pairs attached to
 * it. Calls marked [poll] run there, never block and make no system call (a driver that must enter the kernel hands the
 * matter to a thread of its own). All others may block and run on helper or control threads: one call at a time per
 * queue pair, but calls on different queue pairs of one device (create, connect, import, forget, destroy) may run at
 * once on two threads.
 *
 * What all drivers enforce, as the standard (InfiniBand Architecture 1.2.1, chapters 9 to 11) says: queue pair states,
 * access flags, keys and bounds on both sides, in-order completion per send queue, an error completion followed by
 * flushes, receiver not ready. After the first error the queue pair is in the error state, its remaining work requests
 * complete with IBV_WC_WR_FLUSH_ERR, and it moves no more data. Unsignalled work requests that succeed have no
 * completion.
 */
#ifndef KVRAIL_VERBS_DRIVER_H
#define KVRAIL_VERBS_DRIVER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/stream.h"
#include "base/text.h"
#include "protocol/wire.h"
#include "verbs/gpu_table.h"

KVR_BEGIN_C

struct verbs_driver;

struct verbs_limits {
	uint32_t max_cqe;
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_sge;            /* of one work request */
	uint32_t max_inline_bytes;   /* IBV_SEND_INLINE up to so many */
	uint32_t max_rd_atomic;      /* outstanding RDMA READs that this side may start */
	uint32_t max_dest_rd_atomic; /* outstanding RDMA READs that this side answers */
	/* What a queue pair has in flight of RDMA READs gains nothing beyond so many bytes; and so many READs are signalled
	 * together, at most. 0: whatever max_rd_atomic allows. */
	uint32_t read_window_bytes;
	uint32_t reads_signalled;
	uint64_t max_message_bytes; /* of one work request */
	uint64_t max_region_bytes;  /* of one memory region */
};

/* What a device says of itself: the low byte of verbs_device.health. */
enum verbs_health {
	VERBS_ACTIVE,
	VERBS_MOVED, /* active, at another address than before: nothing comes through queue pairs that were made until then */
	VERBS_PORT_DOWN, /* its port is down: nothing comes through, until it is active again */
	VERBS_LOST,      /* for good */
};

/* One rail: an opened device (and port). */
struct verbs_device {
	const struct verbs_driver *driver;
	struct ibv_context *context; /* the five inline calls go through context->ops */
	/* Written by the driver, in a thread of its own; any thread reads it with kvr_load_relaxed. Above the low byte a number that
	 * each change increments, so that a change which was taken back at once is seen. */
	uint32_t health;
	struct verbs_limits limits;
	char name[64]; /* "mlx5_0 port 1", "local", "sim 3" */
};

/* Of a network adapter's queue pairs, as ibv_modify_qp(3) means them. Zero is the default that stands behind it. */
struct verbs_nic_options {
	const char *library; /* of libibverbs, as dlopen(3) takes it; NULL: "libibverbs.so.1" */
	const char *address; /* the address that this side is bound to, as text: its GID is preferred; NULL: none */
	bool gid_index_set;  /* the operator names the GID: */
	uint32_t gid_index;
	uint32_t mtu_bytes;     /* 256 .. 4096, a power of two: no larger path MTU; 0: the port's */
	uint32_t service_level; /* 0 .. 15 */
	uint32_t traffic_class; /* 0 .. 255; RoCE: DSCP * 4 + ECN */
	uint32_t hop_limit;     /* 0: 64 */
	uint32_t timeout;       /* 4.096 us * 2^timeout until a packet is sent again, 1 .. 31; 0: 14 (67 ms) */
	uint32_t retry_count;   /* 1 .. 7; 0: 7 */
	uint32_t rnr_timer;     /* code of the wait that a receiver asks for, 1 .. 31; 0: 12 (0.64 ms) */
};

struct verbs_open {
	const char *device;        /* nic: device name, NULL: the first usable; others ignore it */
	uint32_t port;             /* nic: 1.., 0: the first that is active */
	bool server;               /* local: this side makes the rings and moves one-sided data */
	struct sim_fabric *fabric; /* sim: the world it lives in */
	uint32_t subnet;           /* sim: only devices of one subnet reach each other */
	uint64_t slice_bytes;      /* local: what one poll may copy before it returns; 0: the driver's default */
	/* local, server: reaches GPU memory; outlives the device, and may be filled until the first queue pair is
	 * connected. NULL, or not filled: none is reached */
	const struct verbs_gpu_table *gpu;
	struct verbs_nic_options nic; /* nic; zeroed: all defaults */
};

static inline enum verbs_health verbs_health_of(uint32_t word)
{
	return (enum verbs_health)(word & 0xff);
}

/* Something may come through it, as far as is known. */
static inline bool verbs_is_up(const struct verbs_device *device)
{
	return verbs_health_of(kvr_load_relaxed(&device->health)) < VERBS_PORT_DOWN;
}

/* For drivers: one thread. A device that is lost stays so. */
static inline void verbs_set_health(struct verbs_device *device, enum verbs_health health)
{
	uint32_t word = kvr_load_relaxed(&device->health);

	if (verbs_health_of(word) != VERBS_LOST)
		kvr_store_relaxed(&device->health, ((word & ~UINT32_C(0xff)) + 0x100) | (uint32_t)health);
}

struct verbs_qp_options {
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq; /* NULL: a receive queue of its own */
	uint32_t max_send_wr;
	uint32_t max_recv_wr; /* without srq */
	uint32_t max_sge;
	uint32_t max_inline_bytes;  /* wanted; the driver may give more */
	uint32_t max_message_bytes; /* largest SEND that either side makes */
	uint32_t peer_recv_wr;      /* SENDs that the peer's side will have room for (credits), for sizing rings */
	void *context;              /* becomes qp->qp_context */
};

/* Memory of a client, as MEMORY (protocol/message.h) describes it, to be reached by one-sided operations. */
struct verbs_remote_memory {
	uint64_t address; /* the client's, of the first byte: what work requests name as remote_addr */
	uint64_t length;
	uint64_t offset;        /* of that byte in the descriptor */
	uint32_t kind;          /* enum memory_kind of protocol/message.h, as a number */
	uint32_t rkey;          /* nic: the client's key for this rail */
	int fd;                 /* MEMORY_SHARED: duplicated by the call; -1 else */
	uint32_t handle_length; /* MEMORY_DEVICE: the allocation's handle; 0 else */
	uint8_t handle[WIRE_HANDLE_MAX];
};

struct verbs_import {
	uint32_t rkey; /* for work requests on that queue pair */
	uint64_t address;
	uint64_t length;
};

/* What a client tells the server of a region it registered: the other side of verbs_remote_memory. */
struct verbs_export {
	uint32_t kind;
	uint32_t rkey;
	uint64_t offset;
	int fd; /* stays the driver's; valid while the region is registered */
};

struct verbs_driver {
	const char *name;
	/* One-sided data that reaches a client is moved by the server's processor, so that the client's own queue pair
	 * being idle does not say that its memory is quiet: only the end of the server's control stream does. */
	bool moved_by_peer;

	/* A SEND costs packets, however short it is: several requests, or replies, share one where both sides know how. */
	bool gathers;

	/* A connection may have several queue pairs, one a rail, on devices of their own. A client's keys are used as they are: what was
	 * imported on its first queue pair is reached through the others by the keys that it has there. */
	bool several_rails;
	/* How well a queue pair of this device would be connected to the peer of that address (qp_address): 0: certainly not, it
	 * speaks something else; more is better, and whether it works only a try can tell. NULL: all are alike. */
	uint32_t (*match)(const struct verbs_device *device, const uint8_t *bytes, uint32_t length);

	/* Its settings and state as members of a JSON object, for status pages: "port": 1, ... Any thread but the polling ones; NULL:
	 * there is nothing to say. */
	void (*describe)(const struct verbs_device *device, struct text *out);

	/* 0, -ENODEV, -EACCES, -ENOMEM, -EOPNOTSUPP (library or device missing): logged once with what to do. */
	int (*open)(const struct verbs_open *options, struct verbs_device **device);
	/* After everything made from it has been destroyed. */
	void (*close)(struct verbs_device *device);

	/* depth: completions it can hold; polled by one thread. 0, -EINVAL, -ENOMEM. */
	int (*create_cq)(struct verbs_device *device, uint32_t depth, struct ibv_cq **cq);
	void (*destroy_cq)(struct ibv_cq *cq); /* no queue pair may be attached */
	/* Readable when a completion arrived after ibv_req_notify_cq (poll once more after arming: an earlier one gives
	 * no event); -1 when the driver has none. clear_event [poll] makes it unreadable again: a system call, made
	 * only after sleeping. */
	int (*cq_event_fd)(const struct ibv_cq *cq);
	void (*cq_clear_event)(struct ibv_cq *cq);

	int (*create_srq)(struct verbs_device *device, uint32_t depth, struct ibv_srq **srq);
	void (*destroy_srq)(struct ibv_srq *srq);

	/* Makes it in the INIT state: receives may be posted. 0, -EINVAL (over a limit), -ENOMEM. */
	int (*create_qp)(struct verbs_device *device, const struct verbs_qp_options *options, struct ibv_qp **qp);
	/* What the other side needs to connect: at most WIRE_ADDRESS_MAX bytes, and descriptors, which stay the
	 * driver's. 0, -EMSGSIZE. */
	int (*qp_address)(
		struct ibv_qp *qp, uint8_t *bytes, uint32_t capacity, uint32_t *length, int *fds, unsigned *fd_count);
	/* To the state RTS with the peer's address. Descriptors are duplicated as needed. `peer` is the process behind
	 * the control socket (local needs it for MEMORY_PROCESS). 0, -EBADMSG (no address of this driver), -EINVAL,
	 * -ENOMEM, -EPERM. */
	int (*qp_connect)(struct ibv_qp *qp, const uint8_t *bytes, uint32_t length, const int *fds, unsigned fd_count,
		const struct stream_peer *peer);
	/* [poll] From now on polling its completion queues serves it. Once, after qp_connect. */
	void (*qp_start)(struct ibv_qp *qp);
	/* [poll] To the error state: what is outstanding flushes, in order, through the completion queues; when qp_idle
	 * says true nothing of it will touch local or remote memory again. */
	void (*qp_fail)(struct ibv_qp *qp);
	bool (*qp_idle)(const struct ibv_qp *qp);
	/* [poll] Polling no longer looks at it: no completion of it comes after this. Only when qp_idle. */
	void (*qp_stop)(struct ibv_qp *qp);
	/* After qp_stop (or without qp_start ever). */
	void (*destroy_qp)(struct ibv_qp *qp);

	/* access: ibv_access_flags. The memory stays the caller's, mapped and at its place until deregistered. 0,
	 * -EINVAL, -ENOMEM, -EPERM. */
	int (*register_memory)(
		struct verbs_device *device, void *address, uint64_t length, int access, struct ibv_mr **mr);
	/* Client side: `length` bytes from `offset` on in a dma-buf (GPU memory), as register_memory; work requests name the first of them
	 * `address`. The descriptor is the caller's, who may close it when this returns. -EOPNOTSUPP: the adapter, or its kernel driver,
	 * has no such thing (not logged: there may be another way). NULL: the driver has none. */
	int (*register_dmabuf)(struct verbs_device *device, int fd, uint64_t offset, uint64_t length, uint64_t address,
		int access, struct ibv_mr **mr);
	int (*deregister_memory)(struct ibv_mr *mr);

	/* Client side: memory that the peer can reach best (local: sealed memfd, huge pages if there are; others: plain
	 * pages). Page-aligned, zeroed, populated. 0, -ENOMEM, -EINVAL. */
	int (*allocate)(struct verbs_device *device, uint64_t length, void **address);
	void (*release)(struct verbs_device *device, void *address, uint64_t length);
	/* Client side: how to describe a registered region to the server. 0, -EOPNOTSUPP (this memory can't be
	 * reached). */
	int (*export_memory)(struct ibv_mr *mr, struct verbs_export *description);

	/* Server side: makes a client's memory reachable on this queue pair (maps, populates, checks seals). Work
	 * requests that are posted after it returned may use import->rkey. At most WIRE_REGIONS_MAX per queue pair. 0,
	 * -EINVAL, -EPERM (not sealed against shrinking), -ENOMEM, -EOPNOTSUPP, -EFAULT (shorter than it claims, or not
	 * wholly populated), -ENOSPC (too many), -ENODEV (on a GPU that is not reached), -EBADMSG (not a handle of
	 * ours). */
	int (*import_memory)(struct ibv_qp *qp, const struct verbs_remote_memory *memory, struct verbs_import *import);
	/* When no work request that uses it is outstanding. May block long (unmapping). */
	void (*forget_memory)(struct ibv_qp *qp, uint32_t rkey);
};

/* Network adapters, through libibverbs, which it loads at run time (verbs/nic). */
extern const struct verbs_driver verbs_nic;
/* Same host, shared memory. */
extern const struct verbs_driver verbs_local;
/* One process, seeded, virtual time (sim/fabric.h). Linked into tests and kvrail-sim only. */
extern const struct verbs_driver verbs_sim;

KVR_END_C

#endif
