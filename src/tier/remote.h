/*
 * remote.h - what adapters of places on a network share: one thread that takes requests, puts them in order, and ends
 * them.
 *
 *   submit -> submitted (ring) -> asks, urgent, loads, stores (queues) -> begin -> ... remote_end -> ended (ring) -> poll
 *
 * The kind of place is a table of calls, all made by the adapter's own thread (remote_calls). submit wakes that thread
 * when it sleeps, with one write(2) to `wake_fd`, and does no other system call.
 */
#ifndef KVRAIL_TIER_REMOTE_H
#define KVRAIL_TIER_REMOTE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/list.h"
#include "base/log.h"
#include "base/ring.h"
#include "protocol/digest.h"
#include "tier/adapter.h"

KVR_BEGIN_C

struct remote;

/* Made by the adapter's thread, `remote->now_ns` is this turn's time. */
struct remote_calls {
	/* This request may begin now. */
	bool (*has_room)(struct remote *remote, const struct l2_request *request);
	/* Its identity is one that can be kept. Ends with remote_end, at once or later. */
	void (*begin)(struct remote *remote, struct l2_request *request);
	/* Goes on with what is under way. Returns when it is to be called again, whatever comes; UINT64_MAX: never. */
	uint64_t (*turn)(struct remote *remote);
	/* Sleeps until wake_fd can be read, something under way can go on, or the time is over. */
	void (*wait)(struct remote *remote, uint64_t timeout_ns);
	/* The end: no memory of a request is touched after it. */
	void (*finish)(struct remote *remote);
};

/* One writer each: the adapter's thread. */
struct remote_counters {
	uint64_t loads, load_bytes, stores, store_bytes;
	uint64_t misses, corrupt, errors;
};

/* At the start of the adapter's own struct, zeroed, on a cache line (aligned_alloc). */
struct remote {
	struct l2_adapter adapter;
	const struct remote_calls *calls;
	const char *thread_name;
	uint32_t request_limit; /* taken and not ended yet, then submit says -EAGAIN; 2 .. 65536 */
	bool read_only;         /* stores and removals end with -EROFS */
	struct ring submitted;
	struct ring ended;
	KVR_ALIGNED(KVR_CACHE_LINE) uint32_t sleeping; /* atomic, by exchange */
	uint32_t stopping;                             /* atomic */
	uint32_t cancels;                              /* atomic: grows with each cancel */
	uint32_t in_flight;                            /* written by the submitting thread, relaxed */
	KVR_ALIGNED(KVR_CACHE_LINE) struct remote_counters counters;
	const char *condition; /* atomic: a text that stays, NULL: all is well */
	int condition_error;   /* atomic: errno beside it, 0: none */
	uint32_t refuses;      /* atomic: the condition keeps stores out */
	/* the adapter's thread's */
	KVR_ALIGNED(KVR_CACHE_LINE) struct list_node asks;
	struct list_node urgent, loads, stores;
	uint32_t active, active_stores; /* begun and not ended */
	uint32_t cancels_seen;
	uint64_t next_deadline_ns;
	uint64_t now_ns;
	struct log_rate log_rate, well_rate;
	struct digester digester;
	/* the start-up thread's */
	int wake_fd;
	bool running;
	pthread_t thread;
};

/* start-up thread --------------------------------------------------------------------------------------------------- */

/* calls, thread_name, request_limit, read_only and adapter are set. 0, -ENOMEM, -EMFILE, -EAGAIN (no thread); the caller
 * calls remote_stop and remote_fini whatever it returned. */
KVR_MUST_CHECK int remote_init(struct remote *remote);
KVR_MUST_CHECK int remote_start(struct remote *remote);
/* The thread ends: `finish` has been called. Harmless when it does not run. */
void remote_stop(struct remote *remote);
void remote_fini(struct remote *remote);

/* for the table of the kind ----------------------------------------------------------------------------------------- */

int remote_submit(struct l2_adapter *adapter, struct l2_request *request);
void remote_cancel(struct l2_adapter *adapter, struct l2_request *request);
uint32_t remote_poll(struct l2_adapter *adapter, struct list_node *ended, uint32_t limit);
void remote_get_stats(struct l2_adapter *adapter, struct l2_stats *stats);

/* the adapter's thread ---------------------------------------------------------------------------------------------- */

/* Ends a request that `begin` was called with, and counts it. written: a STORE that did write. */
void remote_end(struct remote *remote, struct l2_request *request, int status, bool written);
/* What a person should know, in a text that stays; error: errno, 0: none. refuses: stores are kept out by it. */
void remote_condition(struct remote *remote, const char *text, int error, bool refuses);
/* Something has gone well, stored: a STORE that did write. Takes the condition back, one that keeps stores out only with
 * `stored`. */
void remote_well(struct remote *remote, bool stored);
/* One line of the log, not too often. */
void remote_complain(struct remote *remote, const char *format, ...) KVR_PRINTF(2, 3);
/* After wake_fd could be read. */
void remote_drain_wake(struct remote *remote);

KVR_END_C

#endif
