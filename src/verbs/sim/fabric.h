/*
 * fabric.h - the simulated network: every sim device, queue pair and control stream of a world, driven by a virtual
 * clock and a seed. One thread. Nothing here reads a clock or draws from anything but the seed.
 *
 * What it does to those on it: a SEND arrives after a delay; the bytes of an RDMA WRITE or READ land in pieces, in any
 * order, at different times before its completion (later work requests of the same queue pair do not overtake a SEND,
 * as the standard says: a WRITE's pieces have all landed when a SEND posted behind it is received; nor does a WRITE
 * overtake a WRITE, unless its region has IBV_ACCESS_RELAXED_ORDERING; a READ sees the WRITEs before it, but a SEND or
 * WRITE behind a READ may overtake it unless it has IBV_SEND_FENCE); completions are held back at random, in order per
 * queue; a receiver without a posted receive gives RNR, retried, then IBV_WC_RNR_RETRY_EXC_ERR; a wrong key or bound
 * gives IBV_WC_REM_ACCESS_ERR, a receive buffer that is too short IBV_WC_LOC_LEN_ERR at the receiver and
 * IBV_WC_REM_INV_REQ_ERR at the sender; a cut link gives IBV_WC_RETRY_EXC_ERR. After an error, pieces that were already
 * on the wire still land until qp_idle says true: whoever reuses memory earlier gets caught. qp_stop takes back
 * completions that were not polled. Error completions have garbage in what the standard leaves undefined (opcode,
 * byte_len).
 */
#ifndef KVRAIL_VERBS_SIM_FABRIC_H
#define KVRAIL_VERBS_SIM_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/stream.h"
#include "verbs/driver.h"

KVR_BEGIN_C

struct sim_options {
	uint64_t delay_min_ns, delay_max_ns;           /* of a message or piece on a link */
	uint64_t completion_min_ns, completion_max_ns; /* from the last piece to the completion */
	uint32_t bytes_per_us;                         /* of a link; 0: unlimited */
	uint32_t pieces_max;                           /* a one-sided transfer lands in 1 .. so many pieces */
	uint32_t cut_per_million;                      /* chance per posted work request that its link is cut then */
	uint32_t access_error_per_million;             /* chance per one-sided work request of a remote access error */
	uint32_t register_fail_per_million; /* chance that register_memory or import_memory fails with -ENOMEM */
	uint32_t rnr_retries;               /* 7 or more: retry for ever */
	uint32_t stream_chunk_max;          /* bytes a control stream delivers at once, at random 1 .. so many */
};

struct sim_fabric;

/* Gentle: 1..5 us delays, 4 pieces, no faults. */
void sim_options_default(struct sim_options *options);
/* options NULL: the default ones. 0 or -ENOMEM. */
KVR_MUST_CHECK int sim_fabric_create(uint64_t seed, const struct sim_options *options, struct sim_fabric **fabric);
/* After all devices on it are closed or killed. */
void sim_fabric_destroy(struct sim_fabric **fabric);
/* Changes what will happen from now on. */
void sim_fabric_set_options(struct sim_fabric *fabric, const struct sim_options *options);

/* Delivers everything due at `now_ns`, at most `limit` events; returns how many. */
unsigned sim_fabric_step(struct sim_fabric *fabric, uint64_t now_ns, unsigned limit);
/* When the next event is due; UINT64_MAX: never. */
uint64_t sim_fabric_next_ns(const struct sim_fabric *fabric);

/* Breaks the link of one queue pair in both directions: no more arrives; both sides get errors when they next use it,
 * after the retry time. */
void sim_fabric_cut(struct sim_fabric *fabric, uint32_t qp_num);
/* Stops / resumes delivery on the queue pair's link (a stalled peer). What was on its way when either side fails still
 * arrives. */
void sim_fabric_stall(struct sim_fabric *fabric, uint32_t qp_num, bool stalled);
/* The same for every queue pair that the device has now. */
void sim_fabric_cut_device(struct sim_fabric *fabric, struct verbs_device *device);
/* Takes the device's link down or up again: down, it is cut for every queue pair that the device has or will have. */
void sim_fabric_link_device(struct sim_fabric *fabric, struct verbs_device *device, bool up);
/* The device says that of itself, whatever its link does (driver.h). */
void sim_fabric_tell_device(struct sim_fabric *fabric, struct verbs_device *device, enum verbs_health health);
void sim_fabric_stall_device(struct sim_fabric *fabric, struct verbs_device *device, bool stalled);
/* The flush of every queue pair that the device has now does not arrive: one that fails is not idle, until this is taken back. */
void sim_fabric_withhold_flush(struct sim_fabric *fabric, struct verbs_device *device, bool withheld);
/*
 * The process that owns this device is gone: its streams end, its queue pairs answer no more, and pieces on their way
 * to or from its memory are dropped, so that the caller may free that memory right after. Its objects, and the memory
 * that `allocate` gave, remain as dead things on which every call is harmless: their holder may run its usual teardown,
 * down to close, or forget them: they go with the fabric.
 */
void sim_fabric_kill_device(struct sim_fabric *fabric, struct verbs_device *device);

/* A pair of connected control streams (base/stream.h) with delays; descriptors are duplicated as a Unix socket does.
 * `owner`: the device whose kill ends the client's end, may be NULL. Each end is closed by its holder, or goes with the
 * fabric. 0 or -ENOMEM. */
KVR_MUST_CHECK int sim_stream_pair(
	struct sim_fabric *fabric, struct verbs_device *owner, struct stream **client, struct stream **server);

/* The device whose kill ends this end of a pair, either one; NULL: none. */
void sim_stream_own(struct stream *stream, struct verbs_device *owner);

/* Counters for tests. Work requests are those of send queues. */
struct sim_counters {
	uint64_t posted;
	uint64_t completed;     /* with success, signalled or not */
	uint64_t failed;        /* with an error of their own */
	uint64_t flushed;       /* behind an error */
	uint64_t pieces;        /* landed, of WRITEs and READs */
	uint64_t late_pieces;   /* of them, after the queue pair of either side had failed */
	uint64_t rnr;           /* SENDs that met no posted receive; each try counts */
	uint64_t cuts;          /* links */
	uint64_t access_errors; /* one-sided work requests that the side they reached refused */
	uint64_t cq_overflows;  /* completion queues that were too small: they and their queue pairs have failed */
	uint64_t misuses;       /* calls against driver.h: stopped while not idle, destroyed while in use, ... */
	uint64_t events;        /* delivered */
};
void sim_fabric_counters(const struct sim_fabric *fabric, struct sim_counters *counters);

KVR_END_C

#endif
