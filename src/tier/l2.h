/*
 * l2.h - the L2 engine: what L1 evicts stays on the adapters (adapter.h), and comes back before it is read.
 *
 *   published in L1 --l2_offer--> queue of each adapter --STORE--> done: unpinned
 *                                   | full, or failed too often: dropped and counted; remembered as wanted, so that its
 *                                   v next use in L1 offers it again
 *
 *   l2_fetch_begin --> each chunk: CONTAINS at one adapter after the other --> found --> L1 memory, LOAD --> published, locked
 *                      the first chunk that no adapter has, or that cannot be loaded, is the end of it --> done()
 *
 * Nobody ever waits for a STORE: an object is pinned from its offer to the end of the STORE, and where the queue or the
 * pinned bytes are at their limit it is not taken. Chunks of a fetch are asked for and loaded in their order, so that
 * what is there at any moment is a prefix. Memory of a LOAD stays staged until the adapter has said that the request has
 * ended, whatever became of the fetch; what lands late is published like anything else.
 *
 * Loads in flight are bounded by number and bytes; the next one is of the tenant that has the fewest under way.
 *
 * A place that fails is left alone for a while, twice as long each time: stores wait in its queue, and lookups take it
 * for empty. One that goes on failing, or has not answered for timeout_ns, is taken out: its queue is dropped, stores to
 * it are not taken, and what it has not answered is not waited for. Then it is probed, with pauses that grow, by an
 * object of the engine's own that is stored, loaded and removed, until it works again. Where only stores fail only
 * stores are given up.
 *
 * With sum_arrivals a STORE waits until the checksum of its object is made (l2_sum.c), and the place compares the bytes that it writes with
 * it: an object that differs is dropped from L1, or, while it is held, made the next to go.
 *
 * Owner: the management core. No call allocates, blocks or enters the kernel (but for what adapter.h says of submit, and to wake the
 * helper that makes checksums), except l2_create and l2_destroy. l2_counters and adapters' get_stats may be read by any thread.
 */
#ifndef KVRAIL_TIER_L2_H
#define KVRAIL_TIER_L2_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "tier/adapter.h"
#include "tier/cache.h"

KVR_BEGIN_C

#define L2_ADAPTERS_MAX 4u
#define L2_PARTS_MAX 64u    /* objects of one chunk that a fetch brings */
#define L2_CHUNKS_MAX 4096u /* of one fetch */

enum l2_policy {
	L2_STORE_ALL,        /* every object that is published */
	L2_STORE_SECOND_USE, /* those that are used again while they are in L1 */
	L2_STORE_NONE        /* none: the places are only read */
};

/* What the engine says to whoever begins a fetch. `owner` is the fetch's. */
struct l2_callbacks {
	/* 32 bytes, good until the next call; never after l2_fetch_cancel. */
	const uint8_t *(*digest)(void *owner, uint32_t index);
	/* So many chunks, from the first on, are there. */
	void (*early)(void *owner, uint32_t count);
	/* Exactly once for each fetch, canceled or not; what it has brought is locked until this returns. */
	void (*done)(void *owner);
};

struct l2_options {
	struct cache *cache;
	struct l1 *l1;
	struct l2_adapter
		*adapters[L2_ADAPTERS_MAX]; /* asked in this order; the engine's from now on: it closes them */
	uint32_t adapter_count;
	struct l2_callbacks callbacks;
	enum l2_policy policy;
	bool demote;              /* what is stored is the next that L1 evicts */
	bool temporary;           /* so is what was loaded, when the lookup that loaded it has let it go */
	uint32_t fetches_max;     /* at once; 0: 64 */
	uint32_t asks_max;        /* CONTAINS in flight; 0: 256 */
	uint32_t loads_max;       /* LOADs in flight; 0: 64 */
	uint64_t load_bytes_max;  /* of L1 staged for them; 0: a quarter of L1 */
	uint32_t store_queue;     /* of each adapter: objects that wait or are under way; 0: 1024 */
	uint32_t stores_max;      /* of each adapter: STOREs in flight; 0: 32 */
	uint64_t store_bytes_max; /* of L1 pinned for all of them; 0: a quarter of L1 */
	uint32_t store_attempts;  /* 0: 4 */
	uint64_t backoff_ns;      /* after a first failure; 0: 100 ms */
	uint64_t backoff_max_ns;  /* 0: 10 s */
	uint32_t wanted;          /* objects remembered that are in L1 only, about; 0: 65536 */
	uint32_t sick_after;      /* failures in a row, of loads or of stores, that take a place out; 0: 8 */
	uint64_t timeout_ns;      /* so does ending nothing of what it has for so long; 0: 10 s */
	uint64_t seed;            /* of the jitter of probes */
	/* Of each object that a client brings, and that a place takes or may take later (L2_STORE_SECOND_USE), a checksum is made at once,
	 * which goes with its STORE, so that bytes that change in L1 are not written. Needs 8 bytes for each 4 KiB of L1, and libxxhash: without it nothing is made. */
	bool sum_arrivals;
	unsigned sum_threads; /* 0: in the turn (simulator); 1 */
	uint32_t sum_queue;   /* objects that wait for their checksum: further ones go without; 0: 256 */
};

#define L2_COUNTERS(X)                                                                                 \
	X(offered, "objects offered to L2")                                                            \
	X(stored, "objects that an adapter has stored")                                                \
	X(stored_bytes, "bytes of them")                                                               \
	X(store_retries, "stores that failed and were tried again")                                    \
	X(store_dropped, "stores not taken because the queue or the pinned bytes were at their limit") \
	X(store_dropped_out, "stores not taken because a place was out of service")                    \
	X(store_failed, "stores given up: the place failed, or is full")                               \
	X(fetches, "lookups that asked L2")                                                            \
	X(fetches_refused, "lookups answered from L1 alone because too many asked L2")                 \
	X(fetches_canceled, "lookups that did not wait for the end")                                   \
	X(asked_chunks, "chunks that adapters were asked for")                                         \
	X(found_chunks, "chunks that an adapter has")                                                  \
	X(loaded, "objects loaded into L1")                                                            \
	X(loaded_bytes, "bytes of them")                                                               \
	X(loaded_late, "of them, objects whose lookup had not waited")                                 \
	X(load_missing, "objects that were gone when they were to be loaded")                          \
	X(load_corrupt, "objects whose bytes were not what had been stored")                           \
	X(load_errors, "loads and questions that failed")                                              \
	X(load_no_room, "lookups cut short because L1 had no room")                                    \
	X(load_no_quota, "of them, those that had no room within their tenant's quota")                \
	X(summed, "objects whose checksum was made when they came from a client")                      \
	X(sum_skipped, "objects that came while too many waited for their checksum")                   \
	X(l1_corrupt, "objects whose bytes had changed in L1: dropped, and not written")               \
	X(clears, "times that the places were cleared")                                                \
	X(clear_failed, "places that could not be cleared")

struct KVR_ALIGNED(KVR_CACHE_LINE) l2_counters {
#define L2_COUNTER_FIELD(name, help) uint64_t name;
	L2_COUNTERS(L2_COUNTER_FIELD)
#undef L2_COUNTER_FIELD
	/* gauges */
	uint64_t fetches_now, loads_now, load_bytes_now, stores_waiting, stores_now, store_bytes_now;
};

enum l2_health_state {
	L2_HEALTH_GOOD,
	L2_HEALTH_READ_ONLY, /* stores failed: they are dropped; what is there is read */
	L2_HEALTH_OUT        /* nothing is asked of it but probes */
};

struct l2_health { /* of a place */
	enum l2_health_state state;
	int error;           /* what took it out, a negative errno: -ETIMEDOUT, it did not answer */
	uint64_t since_ns;   /* time of the last change, 0: there was none */
	uint64_t probe_ns;   /* time of the next probe, 0: one is under way, or none is needed */
	uint64_t outages;    /* changes for the worse */
	uint64_t timeouts;   /* of these, those because it did not answer */
	uint64_t probes;     /* begun */
	uint64_t dropped;    /* stores not taken, or thrown out of its queue, because of its state */
	uint64_t unanswered; /* requests that it was taken out with and still has */
};

struct l2;
struct l2_fetch;

/* 0, -EINVAL, -ENOMEM, -EAGAIN (no thread to be had); the adapters stay the caller's on an error. */
KVR_MUST_CHECK int l2_create(const struct l2_options *options, struct l2 **l2);
/* Closes the adapters, then gives back what was pinned, locked and staged; calls nobody back. May block. Harmless on
 * NULL in *l2. */
void l2_destroy(struct l2 **l2);
/* One bounded turn. True when it did something. */
bool l2_step(struct l2 *l2, uint64_t now_ns);
/* Nothing will happen before this time unless something is begun; UINT64_MAX: never. */
uint64_t l2_next_ns(const struct l2 *l2, uint64_t now_ns);
/* Requests that places which were taken out have not answered: what they hold stays pinned until they do, or until
 * l2_destroy has closed the adapters. A server that leaves does not wait for them. */
uint32_t l2_unanswered(const struct l2 *l2);
/* CLEAR, in three steps; nothing is fetched or stored from its beginning to its end. Each step is the caller's who has
 * begun, and all must be taken. -EAGAIN: another one is at it. */
#define L2_CLEAR_MODELS 1024u
KVR_MUST_CHECK int l2_clear_begin(struct l2 *l2);
/* What was under way has ended, or will not (timeout_ns): chunks may be dropped from L1, and then from the places. */
bool l2_clear_quiet(const struct l2 *l2);
/* Keys: copied, at most L2_CLEAR_MODELS; NULL: everything. */
void l2_clear_remove(struct l2 *l2, const uint8_t (*model_keys)[32], uint32_t count);
/* True once: it is over. *failed: how many places may still have some of it; logged. */
bool l2_clear_ended(struct l2 *l2, uint32_t *failed);
/* Nothing waits or is under way, but for probes; once it hurries, nor does it wait for a place that was taken out. */
bool l2_idle(const struct l2 *l2);
/* Stores that wait for another attempt are given up, and none is tried again: the server is leaving. */
void l2_hurry(struct l2 *l2);
const struct l2_counters *l2_get_counters(const struct l2 *l2);
uint32_t l2_adapter_count(const struct l2 *l2);
struct l2_adapter *l2_adapter_at(const struct l2 *l2, uint32_t index);
/* How a place does. Any thread. */
void l2_get_health(const struct l2 *l2, uint32_t index, struct l2_health *health);
/* "good", "read-only", "out". */
const char *l2_health_text(enum l2_health_state state);
enum l2_policy l2_get_policy(const struct l2 *l2);
/* Lists, counts and limits: 0, or -EILSEQ after logging the first contradiction. */
int l2_verify(const struct l2 *l2);

/* An object that is resident in L1. */
struct l2_offer {
	const uint8_t *model_key, *salt, *digest; /* 32 bytes each */
	uint32_t entry, part;                     /* of the chunk table */
	bool again;                               /* it is not new: it was used */
	uint64_t used_ns;                         /* of l2_request */
	uint32_t position;
};
void l2_offer(struct l2 *l2, const struct l2_offer *offer);

struct l2_want {
	void *owner;
	uint32_t space, parts;    /* of the chunk table */
	uint32_t tenant;          /* for fairness */
	const uint8_t *model_key; /* copied, as all that follows */
	const uint8_t *salt;
	const uint64_t *part_bytes; /* [parts] */
	uint32_t first;             /* which chunk of its chain index 0 is */
	uint32_t count;             /* chunks, at most L2_CHUNKS_MAX */
	uint64_t deadline_ns;       /* requests that have not begun by then are not worth while; 0: none */
};
/* 0: begun. -EAGAIN: too many; -ENODATA: an object's size is not known; -E2BIG, -ENOSPC: L1 cannot hold such objects.
 * Calls nobody back. */
KVR_MUST_CHECK int l2_fetch_begin(struct l2 *l2, const struct l2_want *want, struct l2_fetch **fetch);
/* Nobody waits any more; done() still follows, from l2_step. */
void l2_fetch_cancel(struct l2 *l2, struct l2_fetch *fetch);

KVR_END_C

#endif
