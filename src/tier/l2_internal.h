/* l2_internal.h - the structs of the L2 engine, for its own files and tests. */
#ifndef KVRAIL_TIER_L2_INTERNAL_H
#define KVRAIL_TIER_L2_INTERNAL_H

#include "base/atomic.h"
#include "base/helper.h"
#include "base/list.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/random.h"
#include "tier/l1.h"
#include "tier/l2.h"

KVR_BEGIN_C

/* What one turn does at most. */
#define L2_STEP_ENDED 16u /* of each adapter */
#define L2_STEP_ASKS 16u
#define L2_STEP_LOADS 8u
#define L2_STEP_STORES 8u /* of each adapter */
#define L2_STEP_SUMS 16u
#define L2_STEP_UNLOCKS 64u
#define L2_STEP_EVICTIONS 256u
#define L2_EVICT_LIMIT 4096u /* entries evicted for one object, as management's for a STORE */

#define L2_FAILURES 4u        /* in a row, from which on a place is left alone for a while */
#define L2_CLEAR_TIMEOUTS 30u /* times timeout_ns: removing many objects takes long, but not for ever */
#define L2_CALM 6u            /* times backoff_max_ns: after so long a next illness is a new one */
#define L2_PROBE_BYTES 4096u
#define L2_LOST_POLL_NS ((uint64_t)10000000) /* as L2_POLL_NS, for what nobody waits for */
#define L2_PUBLISH_NS ((uint64_t)5000000000) /* how long a full chunk table is tried */

#define L2_ASK_WINDOW 64u /* chunks of one fetch that are asked for beyond those that are known */
#define L2_LINGER 4u      /* turns that a canceled fetch keeps its locks: the lookup looks once more meanwhile */
#define L2_TENANTS 64u    /* for fairness; tenants that share a remainder share their turn */
#define L2_POLL_NS ((uint64_t)20000) /* how long completions of an adapter may lie, while the thread would sleep */

enum l2_chunk_state {
	L2_CHUNK_NEW,
	L2_CHUNK_ASKED,   /* `pending` answers are due */
	L2_CHUNK_ASK,     /* the next adapter is to be asked */
	L2_CHUNK_FOUND,   /* the adapter has what L1 has not */
	L2_CHUNK_LOADING, /* all its loads were submitted, `pending` are due */
	L2_CHUNK_HERE     /* in L1, locked */
};

struct l2_chunk {
	uint32_t entry; /* locked by the fetch, CACHE_NONE: not there yet */
	uint8_t state;
	uint8_t adapter;
	uint8_t pending;
	bool failed; /* of the answers and loads that have come, one is a no */
};

struct l2_fetch {
	struct list_node node;     /* l2->fetches, or l2->unlocking */
	struct list_node requests; /* l2_slot.mine */
	void *owner;
	uint8_t model_key[32], salt[32];
	uint64_t part_bytes[L2_PARTS_MAX];
	uint32_t classes[L2_PARTS_MAX];
	uint64_t deadline_ns, begun_ns;
	uint32_t space, parts, tenant, first, count;
	uint32_t limit;     /* chunks from here on do not come */
	uint32_t asked;     /* chunks below were asked for */
	uint32_t decided;   /* chunks below are there, for all that is known */
	uint32_t loaded;    /* chunks below are here or under way */
	uint32_t load_part; /* of chunk `loaded`: parts below are here or under way */
	uint32_t again_at;  /* a chunk to be loaded from another adapter, UINT32_MAX: none */
	uint32_t to_ask;    /* chunks in state L2_CHUNK_ASK */
	uint32_t asks, loads;
	uint32_t lock_end; /* chunks from here on have no locks */
	uint32_t linger;
	uint32_t blocked_turn; /* its next load cannot be sent in this turn */
	bool canceled, early_told;
	struct l2_chunk chunks[L2_CHUNKS_MAX];
};

/* A request with its book. */
struct l2_slot {
	struct l2_request request;
	struct list_node
		mine; /* fetch->requests; a store: its place's queue or `sent`; a load that is whole: l2->unpublished */
	struct l2_fetch *fetch; /* NULL: a store; or it is not waited for any more */
	uint32_t adapter;
	uint32_t chunk;    /* of the fetch */
	uint32_t entry;    /* STORE: pinned */
	uint32_t attempts; /* STORE */
	bool sent;         /* the adapter has it */
	bool lost;         /* its place was taken out meanwhile: nobody waits for it */
	l1_ref object;
	uint64_t until_ns; /* a load that is whole: the chunk table is tried until then */
};

/* What is kept for an object that is in L1: its checksum, or one of these. One that equals them counts as none. */
#define L2_SUM_NONE UINT64_C(0)
#define L2_SUM_PENDING UINT64_C(1)
#define L2_SUM_BAD UINT64_C(2) /* its bytes are not what had come */
#define L2_SUM_FIRST UINT64_C(3)

struct l2_sum { /* a checksum that is being made */
	struct helper_job job;
	uint32_t entry; /* pinned */
	l1_ref object;  /* 0: not in use */
	const void *memory;
	uint64_t bytes, checksum;
};

enum l2_way_kind { L2_READS, L2_WRITES, L2_WAYS };

struct l2_way {               /* how reading from a place goes, or writing to it */
	uint32_t failures;    /* in a row */
	uint32_t bad;         /* of these, in a row, those that say that the place is sick */
	uint32_t lost;        /* requests that it was taken out with and still has */
	uint64_t until_ns;    /* it is left alone until then */
	uint64_t answered_ns; /* something ended, or it began to have something */
	int error;            /* of the last failure */
	bool out;
};

enum l2_probe_step { L2_PROBE_REST, L2_PROBE_STORE, L2_PROBE_LOAD, L2_PROBE_REMOVE };

struct l2_probe { /* an object of our own that goes there and back while a place is out */
	struct l2_slot slot;
	enum l2_probe_step step;
	bool stored;        /* it is there, to be removed */
	bool reads, writes; /* what it has shown */
	uint8_t *memory;    /* L2_PROBE_BYTES */
	uint32_t level;     /* pauses grow with it */
	uint64_t serial;
	uint64_t at_ns;         /* the next one */
	uint64_t well_since_ns; /* the place is well again; 0: it never was ill */
};

enum l2_clear_state { L2_CLEAR_NONE, L2_CLEAR_CLOSED, L2_CLEAR_REMOVING };

struct l2_clear {
	enum l2_clear_state state;
	bool everything;
	uint32_t keys; /* in l2->clear_keys */
	uint32_t pending, failed;
	uint64_t until_ns; /* what is under way, then what the places do, is not waited for any longer */
};

struct l2_place { /* an adapter, and how it does */
	struct l2_adapter *adapter;
	struct list_node queue;             /* stores that wait */
	struct list_node sent;              /* stores that the adapter has */
	struct list_node unsent;            /* questions and loads that it had no room for: l2_slot.request.node */
	uint32_t waiting, storing, reading; /* the lost ones included */
	struct l2_way ways[L2_WAYS];
	struct l2_probe probe;
	struct l2_slot clear;      /* L2_CLEAR */
	uint8_t (*clear_keys)[32]; /* L2_CLEAR_MODELS: what it reads, perhaps still when another CLEAR has begun */
	bool cleared;              /* it was sent, or cannot be */
	bool clear_lost;           /* it is not waited for any longer */
	struct l2_health health;   /* for any thread: relaxed stores and loads */
	enum l2_health_state told; /* that the log has */
	struct log_rate log;
};

struct l2 {
	struct l2_options options;
	struct l2_counters *counters;
	struct l2_place places[L2_ADAPTERS_MAX];
	struct pool fetches_pool, asks_pool, loads_pool, stores_pool;
	struct list_node fetches;     /* in turn */
	struct list_node unlocking;   /* done: their locks are being dropped */
	struct list_node unpublished; /* loads that wait for room in the chunk table */
	struct list_node lost;        /* questions and loads of places that were taken out */
	uint64_t now_ns;
	uint32_t turn;                    /* never 0 */
	uint64_t load_bytes, store_bytes; /* without those that are lost */
	uint64_t lost_load_bytes, lost_store_bytes;
	uint32_t loads, asks; /* without those that are lost */
	struct random random;
	struct l2_clear clear;
	uint8_t (*clear_keys)[32]; /* L2_CLEAR_MODELS */
	struct log_rate clear_log;
	uint32_t tenant_loads[L2_TENANTS];
	uint64_t *wanted; /* hashes of objects that are in L1 only; direct mapped */
	struct helper *summer;
	struct pool sums_pool;
	uint64_t *sums; /* by l1_slot_index; NULL: none are made */
	uint64_t sum_bytes;
	struct log_rate sum_log;
	uint64_t wanted_mask;
	uint64_t wanted_count;
	bool leaving;
};

#define L2_COUNT(l2, name, value) kvr_counter_add(&(l2)->counters->name, value)

/* l2_store.c */
bool l2_store_step(struct l2 *l2, uint32_t place);
void l2_store_ended(struct l2 *l2, struct l2_slot *slot);
/* The place does not work, and nobody has time for it: its queue is given up. Returns how many stores that were. */
uint32_t l2_store_drop_queue(struct l2 *l2, struct l2_place *place);
/* It is taken out: what it has is not waited for. */
void l2_store_lose(struct l2 *l2, uint32_t place);

/* l2_sum.c */
int l2_sum_init(struct l2 *l2);
/* Before the adapters' places are freed; harmless when init was not called or failed. */
void l2_sum_fini(struct l2 *l2);
/* An object of a client has been published, and is or may be written. It has none yet. */
void l2_sum_begin(struct l2 *l2, uint32_t entry, l1_ref object);
/* One whose checksum is known has. */
void l2_sum_set(struct l2 *l2, l1_ref object, uint64_t checksum);
uint64_t l2_sum_of(const struct l2 *l2, l1_ref object);
/* A place has found that the object's bytes are not those that its checksum is of. */
void l2_sum_bad(struct l2 *l2, uint32_t entry, l1_ref object);
bool l2_sum_step(struct l2 *l2);

/* l2_ask.c: is it there? */
bool l2_ask_step(struct l2 *l2);
void l2_ask_ended(struct l2 *l2, struct l2_slot *slot);
void l2_ask_lose(struct l2 *l2, struct l2_slot *slot);

/* l2_load.c */
bool l2_load_step(struct l2 *l2);
void l2_load_ended(struct l2 *l2, struct l2_slot *slot);
void l2_load_lose(struct l2 *l2, struct l2_slot *slot);
/* Those that wait for room in the chunk table. */
bool l2_publish_step(struct l2 *l2);
void l2_load_drop_unpublished(struct l2 *l2);

/* l2_clear.c */
bool l2_clear_step(struct l2 *l2);
void l2_clear_request_ended(struct l2 *l2, struct l2_slot *slot);
static inline bool l2_closed(const struct l2 *l2)
{
	return l2->clear.state != L2_CLEAR_NONE;
}

/* l2_fetch.c */
void l2_fetch_cut(struct l2_fetch *fetch, uint32_t limit);
void l2_fetch_lock(struct l2 *l2, struct l2_fetch *fetch, uint32_t chunk, uint32_t entry);
/* The chunks that are known to be there without a gap. */
void l2_fetch_decide(struct l2 *l2, struct l2_fetch *fetch);
/* Ends those that have nothing left to do, and drops locks of those that ended. */
bool l2_fetch_step(struct l2 *l2);
/* A place is taken out: fetches go on without what they asked of it. */
void l2_fetch_lose(struct l2 *l2, uint32_t place);
void l2_fill_identity(const struct l2_fetch *fetch, const uint8_t *digest, uint32_t part, struct l2_identity *identity);

/* l2.c: hands the request over, now or when the adapter has room again. */
void l2_send(struct l2 *l2, struct l2_slot *slot);
/* It may take questions and loads. */
static inline bool l2_place_open(const struct l2 *l2, uint32_t place)
{
	return list_empty(&l2->places[place].unsent);
}

/* l2_health.c: what came of a request. True when it says that the place is sick. */
bool l2_health_answer(struct l2 *l2, uint32_t place, enum l2_way_kind kind, const struct l2_request *request);
/* It has not answered a CLEAR in all that time: out, until it has. */
void l2_health_clear_lost(struct l2 *l2, uint32_t place);
/* Takes it out, probes it, takes it in, and says so. */
bool l2_health_step(struct l2 *l2, uint32_t place);
void l2_probe_ended(struct l2 *l2, struct l2_slot *slot);
/* Nothing is due before. */
uint64_t l2_health_next_ns(const struct l2 *l2, uint32_t place);
static inline bool l2_place_reads(const struct l2 *l2, uint32_t place)
{
	const struct l2_way *way = &l2->places[place].ways[L2_READS];

	return !way->out && l2->now_ns >= way->until_ns;
}
/* Offers to it are taken. */
static inline bool l2_place_stores(const struct l2 *l2, uint32_t place)
{
	return !l2->places[place].ways[L2_READS].out && !l2->places[place].ways[L2_WRITES].out;
}

KVR_END_C

#endif
