/*
 * state.h - what the management core keeps, and the calls between its files. Nothing outside src/mgmt includes it.
 *
 *   peer          the book of one connection: its requests by id, wherever they are
 *   registration  control_mail.h: KV memory of a connection, or a scheduler's handle
 *   model         a model identity of a tenant, which registrations and sessions share; the size of each rank's objects
 *   session       (model, salt, id): a chain of chunk digests, the locks held on it, and the search of the last LOOKUP
 *   request       worker/mailbox.h: `stage` says what it waits for
 *
 * All memory is taken at start. Whatever is long goes on in slices: a session on `chores`, a request on `running`.
 */
#ifndef KVRAIL_MGMT_STATE_H
#define KVRAIL_MGMT_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/list.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/ring.h"
#include "base/wheel.h"
#include "mgmt/control_mail.h"
#include "mgmt/management.h"
#include "mgmt/prefetch.h"
#include "protocol/message.h"
#include "tier/cache.h"
#include "worker/mailbox.h"

KVR_BEGIN_C

#define MODELS_MAX 1024u
#define SHARES_MAX 64u /* readers of one chunk that a lock can be kept for: world size x readers */
#define REGISTRATIONS_PER_CONNECTION 64u
#define SEGMENT_CHUNKS 64u
#define SESSION_SEGMENTS (WIRE_CHUNKS_MAX / SEGMENT_CHUNKS)
#define PEER_BUCKETS 16u
#define PREFETCH_JOBS_MAX 1024u

/* What one turn does at most. */
#define STEP_CHUNKS 1024  /* chunks looked at, before nothing new is begun */
#define SLICE_CHUNKS 512u /* of one request or session before it is another's turn */
#define STEP_MAIL 8u      /* messages of the control thread */
#define STEP_REQUESTS 32u /* messages of each worker */
#define STEP_CHORES 32u
#define STEP_SCAN_SESSIONS 256u
#define STEP_TIMERS 64u
#define STEP_EVICTIONS 8u
#define STEP_GROWTH 4u
#define EVICT_LIMIT \
	4096u /* entries evicted for one object: a run of large objects takes the place of many small ones */
#define OUTBOX_RESERVE 8u /* free slots of the outbox that a message from the control thread may need */

#define REST_NS \
	(20 * KVR_US) /* after a turn without work only the rings are looked at for so long, or to the next timer */

#define PUBLISH_RETRY_NS (10 * KVR_MS) /* a full chunk table is tried again after so long */
#define PUBLISH_LIMIT_NS (5 * KVR_SECOND)
#define MEMORY_RETRY_NS (100 * KVR_MS) /* memory that could not be had is asked for again */

/* ---- models ---- */

struct model {
	struct list_node node;          /* management->models */
	struct list_node idle;          /* management->idle_models while nothing names it: freed with its last chunk */
	struct list_node registrations; /* registration.model_node: those that serve requests */
	uint8_t key[32];
	char name[WIRE_NAME_MAX + 1];
	char dtype[64];
	uint32_t number; /* the chunk table's name for it */
	uint32_t tenant;
	uint32_t world_size, readers;
	uint32_t shares;             /* world_size * readers; share = rank * readers + reader */
	uint64_t all_shares;         /* one bit each */
	uint32_t registration_count; /* also those that wait to be given back */
	uint32_t worker_count;       /* with memory, serving */
	uint32_t session_count;
	uint32_t job_count;              /* prefetches under way: they outlive their sessions */
	uint64_t part_bytes[SHARES_MAX]; /* object of each rank, 0: not known yet */
};

/* ---- sessions ---- */

struct segment {
	uint8_t digests[SEGMENT_CHUNKS][WIRE_DIGEST_BYTES];
	uint64_t shares[SEGMENT_CHUNKS];  /* read locks held on the chunk */
	uint32_t entries[SEGMENT_CHUNKS]; /* of the chunk table, while any lock is held */
};

enum search_state {
	SEARCH_NONE,    /* no LOOKUP yet, or it was canceled */
	SEARCH_RUNNING, /* matching in L1 */
	SEARCH_ASKED,   /* the L2 engine is at it */
	SEARCH_KNOWN,   /* `at` chunks matched */
};

/* The session's last LOOKUP. */
struct search {
	enum search_state state;
	struct request *request; /* to be answered at the end; NULL: nobody waits (NO_WAIT, or answered) */
	struct prefetch_job *job;
	uint64_t deadline_ns; /* absolute, 0: none */
	uint32_t asked;       /* chunks asked for */
	uint32_t limit;       /* chunks to look at */
	uint32_t at;          /* matched so far */
	uint32_t from_l1;     /* matched before L2 was asked */
	bool lock;            /* false: count only */
	bool no_wait;
	bool again; /* L2 has answered: this is the second look */
};

struct session {
	struct management *management;
	struct model *model;
	struct session *next; /* in its hash bucket */
	struct list_node
		unheld; /* management->unheld while it holds nothing: may be recycled, least recently used first */
	struct list_node chore;      /* management->chores */
	struct list_node owner_node; /* connection->sessions */
	struct list_node waiters;    /* struct request.waiting: QUERY */
	struct connection *owner;    /* of the last LOOKUP */
	struct wheel_timer life;     /* time limit of the session */
	struct wheel_timer limit;    /* time limit of its locks */
	struct wheel_timer deadline; /* of the search that L2 is asked for */
	uint64_t last_used_ns;
	uint64_t begun_ns; /* it was opened, or looked up last: since then its chain is in use */
	uint64_t hash;
	uint64_t locks;        /* bits set in all its segments */
	uint32_t locked_limit; /* chunks from here on have no locks */
	uint32_t release_at;   /* locks of chunks release_floor .. release_at-1 are being released, last first */
	uint32_t release_floor;
	uint32_t touch_at; /* ended: chunks below are still to be touched, last first */
	uint32_t users;    /* requests that refer to it: transfers, releases */
	uint32_t space;    /* of the chunk table */
	uint32_t chunk_count;
	uint32_t id_length;
	struct search search;
	bool in_use;          /* of the pool */
	bool ended;           /* not to be found any more; freed with its last user */
	bool release_expired; /* the time limit releases */
	uint8_t salt[WIRE_DIGEST_BYTES];
	char id[WIRE_SESSION_ID_MAX];
	uint32_t segments[SESSION_SEGMENTS];
};

/* ---- requests ---- */

enum request_stage {
	STAGE_NEW,
	STAGE_LOOKUP,        /* its session's search */
	STAGE_QUERY,         /* waits for the search */
	STAGE_RETRIEVE,      /* finding and pinning */
	STAGE_STORE_LOOK,    /* which chunks are there already? */
	STAGE_STORE_RESERVE, /* memory for those that are not */
	STAGE_OUT,           /* the worker moves */
	STAGE_OUT_ABORTED,   /* and was told to stop */
	STAGE_FINISH,        /* unpinning, publishing */
	STAGE_PUBLISH_WAIT,  /* the chunk table waits for memory */
	STAGE_FREE,
	STAGE_CLEAR,
	STAGE_CANCEL, /* waits for its target's reply */
};

/* Parts of a request with more than REQUEST_INLINE_PARTS chunks. */
struct large_parts {
	struct transfer_part parts[WIRE_CHUNKS_MAX];
	uint8_t outcomes[WIRE_CHUNKS_MAX];
};

struct peer {
	struct list_node node;    /* management->peers */
	struct list_node closing; /* management->closing: something is to be done for its end */
	struct management *management;
	struct connection *connection;
	uint64_t attached_ns;
	uint64_t bare_since_ns; /* has no registration */
	uint32_t in_flight_count;
	uint32_t registration_count;
	uint32_t forget_region;
	bool rail_pending; /* RAIL_CLOSE is with the worker, of */
	uint32_t rail_closing;
	bool forget_pending;                      /* FORGET is with the worker */
	bool tell_lost;                           /* LOST is to be told to the control thread */
	bool detached;                            /* DETACH came */
	bool looked_late;                         /* the reaper gives it a second look */
	struct list_node in_flight[PEER_BUCKETS]; /* struct request.in_flight */
};

enum clear_step { CLEAR_WAIT, CLEAR_QUIET, CLEAR_L1, CLEAR_L2, CLEAR_DONE };

struct management {
	/* read only */
	struct management_options options;
	struct cache *cache;
	struct l1 *l1;
	struct mailbox **mailboxes;
	uint32_t *area_lkeys;
	uint32_t *worker_areas;        /* where a worker's chunks are put first */
	struct prefetch_engine engine; /* begin is NULL: none */
	struct tenant_quota *quotas;   /* [accounts of the cache] */
	uint64_t hash_key[2];

	struct ring inbox, outbox;
	struct management_counters counters;
	struct wheel wheel;
	uint64_t now_ns;
	int64_t budget;         /* chunks that this turn may still look at */
	uint64_t rest_until_ns; /* the last whole turn found nothing to do: until then only the rings are looked at */

	struct pool models_pool, sessions_pool, segments_pool, larges_pool, peers_pool, jobs_pool;
	struct session **buckets;
	uint64_t bucket_mask;

	struct list_node models, idle_models;
	struct list_node peers, closing;
	struct list_node unheld, chores;
	struct list_node running;    /* struct request.waiting */
	struct list_node publishing; /* struct request.waiting: STAGE_PUBLISH_WAIT */
	struct list_node scans;      /* registration.scan_node: shares being released */
	struct list_node returning;  /* registration.scan_node: UNREGISTERED is due */
	struct list_node clears;     /* clear_job.node */
	uint8_t (*clear_keys)[32];   /* MODELS_MAX: of the models of the CLEAR that is at L2 */
	uint32_t clear_key_count;
	struct list_node pin_jobs; /* pin_job.node: being pinned or unpinned, one after the other */
	struct list_node pins;     /* pin.node: those that stand */

	uint32_t in_flight; /* requests that came and were not answered */
	uint32_t transfers; /* of them with a worker */
	uint32_t registration_count;
	uint32_t pin_count;
	uint64_t pinned_chunks, pinned_bytes; /* of `pins`, and of the one that is being made or undone */
	uint32_t worker_turn;                 /* whose ring is read first */
	uint64_t memory_retry_ns;             /* do not ask for table memory before */
	struct log_rate reaper_log;
	bool memory_asked;
	bool draining, drained_told;
};

#define COUNT(management, name, value) kvr_counter_add(&(management)->counters.name, value)

/* reply.c ------------------------------------------------------------------------------------------------------- */

void reply_set(struct request_reply *reply, uint16_t status, const char *format, ...) KVR_PRINTF(3, 4);
/* Gives the request, whose reply is filled in, back to its worker, and answers the CANCELs that wait for it. */
void reply_give(struct management *management, struct request *request);
void reply_refuse(struct management *management, struct request *request, uint16_t status, const char *format, ...)
	KVR_PRINTF(4, 5);
void worker_push(struct management *management, uint32_t worker, uint32_t kind, const void *object, uint64_t word);
/* The caller knows that there is room. */
void control_push(struct management *management, uint32_t kind, const void *object, uint64_t word);

/* request.c ----------------------------------------------------------------------------------------------------- */

void request_arrived(struct management *management, struct request *request);
/* Goes on with it now, and in later turns when the turn's work is used up. */
void request_go(struct management *management, struct request *request);
/* One slice after the other of those that go on, while the turn's budget is above `reserve`. */
bool request_run_all(struct management *management, int64_t reserve);
/* CANCEL, or the loss of the connection: ends it soon. Does not answer by itself what is with a worker. */
void request_cut_short(struct management *management, struct request *request, uint16_t status, const char *text);

/* connection.c -------------------------------------------------------------------------------------------------- */

void connection_attach(struct management *management, struct connection *connection);
void connection_detach(struct management *management, struct connection *connection);
void connection_lost(struct management *management, struct connection *connection);
void connection_closed(struct management *management, struct connection *connection);
void connection_rail_open(struct management *management, struct connection *connection, uint64_t rail);
void connection_rail_close(struct management *management, struct connection *connection, uint64_t rail);
void connection_rail_closed(struct management *management, struct connection *connection);
void connection_forget(struct management *management, struct connection *connection, uint64_t region);
void connection_forgotten(struct management *management, struct connection *connection);
/* Begins the end of a connection; harmless when it has begun. */
void connection_shut(struct management *management, struct peer *peer);
/* Something happened that the end of the connection may have waited for. */
void connection_poke(struct management *management, struct peer *peer);
bool connection_close_all(struct management *management);

static inline struct peer *peer_of(const struct connection *connection)
{
	return (struct peer *)connection->management;
}

/* reaper.c ------------------------------------------------------------------------------------------------------ */

void reaper_watch(struct management *management, struct peer *peer);
void reaper_fire(struct wheel_timer *timer, uint64_t now_ns);

/* model.c ------------------------------------------------------------------------------------------------------- */

/* The model of a registration, made when it is new; NULL after filling in the registration's reply. */
struct model *model_intern(struct management *management, struct registration *registration);
/* After registration_count or session_count went down. */
void model_settle(struct management *management, struct model *model);
/* Frees at most one model that nothing names any more. */
void model_idle_step(struct management *management);
static inline struct model *model_at(const struct management *management, uint32_t number)
{
	return (struct model *)pool_at(&management->models_pool, number);
}

/* registration.c ------------------------------------------------------------------------------------------------ */

void registration_add(struct management *management, struct registration *registration);
/* UNREGISTER, or the end of its connection: no new requests; its share of the locks is released. */
void registration_stop(struct management *management, struct registration *registration);
void registration_ask_back(struct management *management, struct registration *registration);
/* After transfers went down. */
void registration_settle(struct management *management, struct registration *registration);
bool registration_scan_step(struct management *management);
bool registration_return_step(struct management *management);
/* The connection's registration of that number, with memory if asked for; NULL after refusing the request. */
struct registration *registration_find(
	struct management *management, struct request *request, uint32_t number, bool memory);

static inline uint32_t registration_share(const struct registration *registration)
{
	return registration->rank * registration->readers + registration->reader;
}

/* session.c ----------------------------------------------------------------------------------------------------- */

uint64_t session_hash(const struct management *management, const struct model *model, const struct session_ref *ref);
/* NULL: none. */
struct session *session_find(struct management *management, const struct model *model, const struct session_ref *ref);
/* Finds or makes it, and extends its chain; NULL after filling in the reply. */
struct session *session_open(
	struct management *management, struct model *model, const struct session_ref *ref, struct request_reply *reply);
/* As session_open, but neither makes it nor extends its chain; UNKNOWN_SESSION when there is none. */
struct session *session_attach(
	struct management *management, struct model *model, const struct session_ref *ref, struct request_reply *reply);
void session_own(struct session *session, struct connection *connection);
/* To be called after anything that it held was dropped, or taken. */
void session_settle(struct session *session);
void session_leave(struct session *session); /* a user less; may free it */
/* Ends it: nobody finds it any more, locks go, those who wait get CANCELED; `touch`: its chunks count as used. May
 * free it. */
void session_end(struct session *session, bool touch, const char *why);
/* Has a slice of its work done now, the rest in later turns. May free it. */
void session_go(struct session *session);
bool session_run_all(struct management *management, int64_t reserve); /* as request_run_all */
/* Ends the one that was not used for the longest time, if any holds nothing. */
bool session_recycle(struct management *management);

/* chain.c ------------------------------------------------------------------------------------------------------- */

static inline struct segment *chain_segment(const struct session *session, uint32_t chunk)
{
	return (struct segment *)pool_at(
		&session->management->segments_pool, session->segments[chunk / SEGMENT_CHUNKS]);
}

static inline const uint8_t *chain_digest(const struct session *session, uint32_t chunk)
{
	return chain_segment(session, chunk)->digests[chunk % SEGMENT_CHUNKS];
}

/* Do the digests agree with the chain as far as both go, and is there no gap between them? False after filling in
 * the reply. */
bool chain_agrees(const struct session *session, const struct session_ref *ref, struct request_reply *reply);
/* chain_agrees, and takes over what is new. */
bool chain_extend(struct session *session, const struct session_ref *ref, struct request_reply *reply);
void chain_free(struct session *session);
/* Is the range inside the chain? False after filling in the reply. */
bool chain_has(const struct session *session, uint32_t first, uint32_t count, struct request_reply *reply);

/* lock.c -------------------------------------------------------------------------------------------------------- */

/* Every share of the model gets its lock on the chunks, where it has none. They lie in one segment. */
void lock_take_run(struct session *session, uint32_t chunk, const uint32_t *entries, uint32_t count);
/* Drops those locks of `shares` that are held; returns how many. */
uint32_t lock_drop(struct session *session, uint32_t chunk, uint64_t shares);
/* Has all locks from chunk `floor` on released: at once as far as the turn allows, the rest by session_run_all. */
void lock_release_begin(struct session *session, uint32_t floor, bool expired);
void lock_release_stop(struct session *session);
static inline bool lock_releasing(const struct session *session)
{
	return session->release_at > session->release_floor;
}
void lock_release_slice(struct session *session);
static inline bool lock_held(const struct session *session, uint32_t chunk, uint32_t *entry)
{
	const struct segment *segment = chain_segment(session, chunk);

	*entry = segment->entries[chunk % SEGMENT_CHUNKS];
	return segment->shares[chunk % SEGMENT_CHUNKS] != 0;
}

/* lookup.c ------------------------------------------------------------------------------------------------------ */

void lookup_start(struct management *management, struct request *request);
void search_slice(struct session *session);
/* L2 is not waited for any longer: what is there counts. */
void search_deadline(struct session *session);
/* Tells the L2 engine of an object that was published, or used. */
static inline void engine_used(struct management *management, const struct session *session, uint32_t chunk,
	uint32_t entry, uint32_t part, bool again)
{
	struct prefetch_object object;

	if (!management->engine.used)
		return;
	object.model_key = session->model->key;
	object.salt = session->salt;
	object.digest = chain_digest(session, chunk);
	object.entry = entry;
	object.part = part;
	object.again = again;
	object.used_ns = session->begun_ns;
	object.position = chunk;
	management->engine.used(management->engine.context, &object);
}
/* All searches that wait for L2, as the server goes down. */
void search_hurry_all(struct management *management);
/* The search ends without a result; its request and those who wait for it are answered. */
void search_abandon(struct session *session, uint16_t status, const char *text);
static inline bool search_under_way(const struct session *session)
{
	return session->search.state == SEARCH_RUNNING || session->search.state == SEARCH_ASKED;
}

/* query.c ------------------------------------------------------------------------------------------------------- */

void query_start(struct management *management, struct request *request);
/* Answers all who wait for the session's search. status: OK, or why there is no result. */
void query_answer_all(struct session *session, uint16_t status, const char *text);
void query_answer_early(struct session *session);
void query_timeout(struct request *request);

/* transfer.c ---------------------------------------------------------------------------------------------------- */

void transfer_start(struct management *management, struct request *request);
void transfer_done(struct management *management, struct request *request);
void transfer_slice(struct management *management, struct request *request);
/* Before the worker has it: what is not moved yet is not going to be. */
void transfer_cut_short(struct management *management, struct request *request);
void transfer_set_part(struct management *management, struct request *request, uint32_t index, uint64_t object);
void transfer_give_parts(struct management *management, void *large);

/* retrieve.c, store.c ------------------------------------------------------------------------------------------- */

/* One slice; true when the stage is done. */
bool retrieve_prepare(struct management *management, struct request *request);
void retrieve_finish_part(struct management *management, struct request *request, uint32_t index);
bool store_look(struct management *management, struct request *request);
bool store_reserve(struct management *management, struct request *request);
/* False: the chunk table has no room now. */
bool store_finish_part(struct management *management, struct request *request, uint32_t index);

/* free_locks.c, end_session.c, clear.c ------------------------------------------------------------------------ */

void free_locks_start(struct management *management, struct request *request);
void free_locks_slice(struct management *management, struct request *request);
void end_session_start(struct management *management, struct request *request);
void clear_start(struct management *management, struct request *request);
void clear_slice(struct management *management, struct request *request);
void clear_job_add(struct management *management, struct clear_job *job);
bool clear_job_step(struct management *management);

/* quota.c ------------------------------------------------------------------------------------------------------- */

KVR_MUST_CHECK int quota_init(struct management *management);
/* The reply of a STORE that had no room within its tenant's quota. */
void quota_say_full(const struct management *management, struct request *request);
void quota_job_run(struct management *management, struct quota_job *job);

/* pin.c --------------------------------------------------------------------------------------------------------- */

void pin_job_add(struct management *management, struct pin_job *job);
bool pin_job_step(struct management *management);
void pins_free(struct management *management);

/* status.c ------------------------------------------------------------------------------------------------------ */

void status_fill(struct management *management, struct status_snapshot *snapshot);

KVR_END_C

#endif
