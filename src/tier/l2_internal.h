/* l2_internal.h - the structs of the L2 engine, for its own files and tests. */
#ifndef KVRAIL_TIER_L2_INTERNAL_H
#define KVRAIL_TIER_L2_INTERNAL_H

#include "base/atomic.h"
#include "base/list.h"
#include "base/pool.h"
#include "tier/l1.h"
#include "tier/l2.h"

KVR_BEGIN_C

/* What one turn does at most. */
#define L2_STEP_ENDED 16u /* of each adapter */
#define L2_STEP_ASKS 16u
#define L2_STEP_LOADS 8u
#define L2_STEP_STORES 8u /* of each adapter */
#define L2_STEP_UNLOCKS 64u
#define L2_STEP_EVICTIONS 256u
#define L2_EVICT_LIMIT 4096u /* entries evicted for one object, as management's for a STORE */

#define L2_FAILURES 4u                       /* in a row, from which on a place is left alone for a while */
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
	uint64_t deadline_ns;
	uint32_t space, parts, tenant, count;
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
		mine; /* fetch->requests; a store: its adapter's queue while it waits; a load that is whole: l2->unpublished */
	struct l2_fetch *fetch;
	uint32_t adapter;
	uint32_t chunk;    /* of the fetch */
	uint32_t entry;    /* STORE: pinned */
	uint32_t attempts; /* STORE */
	bool sent;         /* the adapter has it */
	l1_ref object;
	uint64_t until_ns; /* a load that is whole: the chunk table is tried until then */
};

struct l2_place { /* an adapter, and how it does */
	struct l2_adapter *adapter;
	struct list_node queue;  /* stores that wait */
	struct list_node unsent; /* questions and loads that it had no room for: l2_slot.request.node */
	uint32_t waiting, storing, reading;
	uint32_t store_failures, read_failures; /* in a row */
	uint64_t store_until_ns, read_until_ns; /* it is left alone until then */
};

struct l2 {
	struct l2_options options;
	struct l2_counters *counters;
	struct l2_place places[L2_ADAPTERS_MAX];
	struct pool fetches_pool, asks_pool, loads_pool, stores_pool;
	struct list_node fetches;     /* in turn */
	struct list_node unlocking;   /* done: their locks are being dropped */
	struct list_node unpublished; /* loads that wait for room in the chunk table */
	uint64_t now_ns;
	uint32_t turn; /* never 0 */
	uint64_t load_bytes, store_bytes;
	uint32_t loads;
	uint32_t tenant_loads[L2_TENANTS];
	uint64_t *wanted; /* hashes of objects that are in L1 only; direct mapped */
	uint64_t wanted_mask;
	uint64_t wanted_count;
	bool leaving;
};

#define L2_COUNT(l2, name, value) kvr_counter_add(&(l2)->counters->name, value)

/* l2_store.c */
bool l2_store_step(struct l2 *l2, uint32_t place);
void l2_store_ended(struct l2 *l2, struct l2_slot *slot);

/* l2_ask.c: is it there? */
bool l2_ask_step(struct l2 *l2);
void l2_ask_ended(struct l2 *l2, struct l2_slot *slot);

/* l2_load.c */
bool l2_load_step(struct l2 *l2);
void l2_load_ended(struct l2 *l2, struct l2_slot *slot);
/* Those that wait for room in the chunk table. */
bool l2_publish_step(struct l2 *l2);

/* l2_fetch.c */
void l2_fetch_cut(struct l2_fetch *fetch, uint32_t limit);
void l2_fetch_lock(struct l2 *l2, struct l2_fetch *fetch, uint32_t chunk, uint32_t entry);
/* The chunks that are known to be there without a gap. */
void l2_fetch_decide(struct l2 *l2, struct l2_fetch *fetch);
/* Ends those that have nothing left to do, and drops locks of those that ended. */
bool l2_fetch_step(struct l2 *l2);
void l2_fill_identity(const struct l2_fetch *fetch, const uint8_t *digest, uint32_t part, struct l2_identity *identity);

/* l2.c: hands the request over, now or when the adapter has room again. */
void l2_send(struct l2 *l2, struct l2_slot *slot);
/* It may take questions and loads. */
static inline bool l2_place_open(const struct l2 *l2, uint32_t place)
{
	return list_empty(&l2->places[place].unsent);
}

/* l2.c: how a place does. The time that it is left alone grows with each failure in a row. */
void l2_place_failed(const struct l2 *l2, uint32_t *failures, uint64_t *until_ns);
static inline void l2_place_good(uint32_t *failures, uint64_t *until_ns)
{
	*failures = 0;
	*until_ns = 0;
}
static inline bool l2_place_reads(const struct l2 *l2, uint32_t place)
{
	return l2->now_ns >= l2->places[place].read_until_ns;
}

KVR_END_C

#endif
