/*
 * management.h - the management core: the one writer of chunk table, locks, sessions, registrations, eviction and
 * timers.
 *
 * One thread; management_step is one bounded turn: control ring, workers' rings, long requests that go on, timers,
 * eviction.
 */
#ifndef KVRAIL_MGMT_MANAGEMENT_H
#define KVRAIL_MGMT_MANAGEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "mgmt/control_mail.h"
#include "tier/cache.h"
#include "tier/keep.h"
#include "worker/mailbox.h"

KVR_BEGIN_C

/* How the management core asks for what is not in L1: mgmt/prefetch.h. */
struct prefetch_engine;

/* A tenant's limits in L1, and whether they are its own or what holds for all that have none. */
struct tenant_quota {
	struct cache_quota quota; /* unused when it is not its own */
	bool own;
};

struct management_options {
	struct cache *cache; /* the management core calls it alone from now on; stays the caller's */
	struct l1 *l1;
	struct mailbox **mailboxes; /* one per worker, array copied */
	uint32_t worker_count;
	/* [worker * area_count + area]: keys of L1's areas on the workers' devices, copied */
	const uint32_t *area_lkeys;
	uint32_t area_count;
	const uint32_t *worker_areas; /* [worker]: where its chunks are put first; copied. NULL: the first area */
	/* Tenants are the accounts of the cache. */
	const struct tenant_quota *quotas; /* [accounts of the cache], copied; NULL: none has limits of its own */
	struct cache_quota default_quota;
	uint64_t pinned_bytes_max; /* of chunks that the operator pins; 0: none can be */
	uint32_t connections_max;
	uint32_t sessions_max;
	uint32_t chain_chunks_max; /* chunks in all sessions' chains together: 36 to 100 bytes each */
	uint32_t large_requests;   /* requests of more than REQUEST_INLINE_PARTS parts under way at once */
	uint32_t chunk_tokens;
	uint64_t lock_ttl_ns;    /* life of a read lock (300 s); 0: for ever */
	uint64_t session_ttl_ns; /* life of a session that nobody uses (600 s); 0: for ever */
	/* a connection that says nothing for so long is reaped; 0: never (the control socket tells) */
	uint64_t silence_ns;
	uint64_t registration_grace_ns; /* a connection that registers nothing for so long is reaped; 0: never */
	uint64_t seed;                  /* of the sessions' hash, for runs that are replayed; 0: from the kernel */
	struct keep *keep; /* the index beside L1, whose models it writes; NULL: L1 goes with the process */
	const char *(*tenant_name)(void *context, uint32_t tenant); /* NULL: they have none; with keep they have */
	void *context;
	const struct prefetch_engine *prefetch; /* of L2, copied; NULL: lookups are answered from L1 alone */
};

struct management;

/* 0, -EINVAL, -ENOMEM. */
KVR_MUST_CHECK int management_create(const struct management_options *options, struct management **management);
/* After every connection was DETACHED. */
void management_destroy(struct management **management);

/* The rings of control_mail.h: to_management is produced by the control thread, to_control by the management core. */
struct ring *management_inbox(struct management *management);
struct ring *management_outbox(struct management *management);
const struct management_counters *management_counters(const struct management *management);

/* One turn. Returns true when it did something, or has something left to do at once. */
bool management_step(struct management *management, uint64_t now_ns);
/* Nothing will happen before this time unless a message comes. */
uint64_t management_next_ns(const struct management *management);
/* True when rings hold nothing for it (for a loop that wants to sleep). */
bool management_quiet(struct management *management);

/* Takes in a model of an L1 that was kept (keep_restore), before the first step. Its number, UINT32_MAX: it cannot be. */
uint32_t management_take_model(struct management *management, const struct keep_model *kept, uint32_t tenant);

/* Logs for each tenant that holds something what its quota means for that: before the first step, when L1 was kept.
 * Nothing is evicted by it (pitfalls F03). */
void management_tell_quotas(const struct management *management);

/* For tests and `kvrailctl check`: books against cache and lists. 0 or -EILSEQ after logging the contradiction. */
int management_verify(struct management *management);

KVR_END_C

#endif
