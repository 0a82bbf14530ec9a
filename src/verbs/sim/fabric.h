/*
 * fabric.h - the simulated network: every sim device, queue pair and control stream of a world, driven by a virtual clock and
 * a seed. One thread. Nothing here reads a clock or draws from anything but the seed.
 *
 * What it does to those on it: a SEND arrives after a delay; the bytes of an RDMA WRITE or READ land in pieces, in any order, at
 * different times before its completion (later work requests of the same queue pair do not overtake a SEND, as the standard
 * says: a WRITE's pieces have all landed when a SEND posted behind it is received); completions are held back at random, in
 * order per queue; a receiver without a posted receive gives RNR, retried, then IBV_WC_RNR_RETRY_EXC_ERR; a wrong key or bound
 * gives IBV_WC_REM_ACCESS_ERR, a receive buffer that is too short IBV_WC_LOC_LEN_ERR at the receiver and IBV_WC_REM_INV_REQ_ERR at
 * the sender; a cut link gives IBV_WC_RETRY_EXC_ERR. After an error, pieces that were already on the wire may still land until
 * qp_idle says true: whoever reuses memory earlier gets caught.
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
	uint32_t register_fail_per_million;            /* chance that register_memory or import_memory fails with -ENOMEM */
	uint32_t rnr_retries;                          /* 7: retry for ever */
	uint32_t stream_chunk_max;                     /* bytes a control stream delivers at once, at random 1 .. so many */
};

struct sim_fabric;

/* Gentle: 1..5 us delays, 4 pieces, no faults. */
void sim_options_default(struct sim_options *options);
KVR_MUST_CHECK int sim_fabric_create(uint64_t seed, const struct sim_options *options, struct sim_fabric **fabric);
/* After all devices on it are closed. */
void sim_fabric_destroy(struct sim_fabric **fabric);
/* Changes what will happen to work requests posted from now on. */
void sim_fabric_set_options(struct sim_fabric *fabric, const struct sim_options *options);

/* Delivers everything due at `now_ns`, at most `limit` events; returns how many. */
unsigned sim_fabric_step(struct sim_fabric *fabric, uint64_t now_ns, unsigned limit);
/* When the next event is due; UINT64_MAX: never. */
uint64_t sim_fabric_next_ns(const struct sim_fabric *fabric);

/* Breaks the link of one queue pair in both directions: no more arrives; both sides get errors when they next use it, after the retry time. */
void sim_fabric_cut(struct sim_fabric *fabric, uint32_t qp_num);
/* Stops / resumes delivery on the queue pair's link (a stalled peer). */
void sim_fabric_stall(struct sim_fabric *fabric, uint32_t qp_num, bool stalled);
/* The process that owns this device is gone: its memory may vanish, its streams end, its queue pairs answer no more. Pieces
 * on their way to its memory are dropped. Frees the device's objects: the caller may free its memory right after. */
void sim_fabric_kill_device(struct sim_fabric *fabric, struct verbs_device *device);

/* A pair of connected control streams (base/stream.h) with delays; carries_fds true: descriptors are passed as numbers (sim memory
 * needs none). `owner`: the device whose kill ends it, may be NULL. */
KVR_MUST_CHECK int sim_stream_pair(struct sim_fabric *fabric, struct verbs_device *owner, struct stream **client, struct stream **server);

/* Counters for tests: work requests, pieces landed, pieces landed after an error, RNR retries, cuts. */
struct sim_counters {
	uint64_t posted, completed, flushed, pieces, late_pieces, rnr, cuts, access_errors;
};
void sim_fabric_counters(const struct sim_fabric *fabric, struct sim_counters *counters);

KVR_END_C

#endif
