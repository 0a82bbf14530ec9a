/* world_private.h - the structs of a world, for the files of this folder. */
#ifndef KVRAIL_APP_SIM_WORLD_PRIVATE_H
#define KVRAIL_APP_SIM_WORLD_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "app/kvrail-sim/content.h"
#include "app/kvrail-sim/model.h"
#include "app/kvrail-sim/transcript.h"
#include "app/kvrail-sim/world.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/random.h"
#include "client/client.h"
#include "mgmt/server.h"
#include "protocol/digest.h"
#include "tier/sim_adapter.h"
#include "verbs/sim/fabric.h"

KVR_BEGIN_C

#define WORLD_CHUNK_TOKENS 16u
#define WORLD_TENANTS 2u
#define WORLD_SHAPES 5u
#define WORLD_SALTS 3u
#define WORLD_NAMESPACES (WORLD_TENANTS * WORLD_SHAPES * WORLD_SALTS)
#define WORLD_RANKS_MAX 4u
#define WORLD_WORKERS_MAX 6u /* of an engine */
#define WORLD_ENGINES_MAX 4u
#define WORLD_PROCESSES_MAX (WORLD_ENGINES_MAX * (1 + WORLD_WORKERS_MAX))
#define WORLD_SESSIONS 5u /* of an engine, at once */
#define WORLD_DOCUMENTS 12u
#define WORLD_ACTIONS 512u
#define WORLD_BLOCKS_PER_CHUNK_MAX 4u
#define WORLD_PATIENCE_NS (60 * KVR_SECOND)
#define WORLD_SERVER_WORKERS_MAX 3u
#define WORLD_PLACES_MAX 2u
#define WORLD_SERVERS_MAX 4u

struct world;
struct process;

/* A model identity with its layout. */
struct shape {
	const char *name;
	const char *dtype;
	const char *engine;
	uint32_t world_size, readers;
	uint32_t planes, block_bytes, block_tokens;
	uint32_t blocks_per_chunk;
};

/* A prompt: chunks from a tree, so that prompts share prefixes. */
struct document {
	uint32_t length;
	uint32_t *nodes;
	uint8_t *digests;
	uint32_t *tokens;
};

/* What a LOOKUP has locked for certain: shares[chunk], one bit for rank * readers + reader. */
struct held_locks {
	uint64_t since;    /* sequence of the LOOKUP's submission; 0: nothing is known to be held */
	uint64_t known;    /* sequence of its answer */
	uint64_t until_ns; /* certainly until then */
	uint32_t *shares;
};

struct world_session {
	bool open;
	uint32_t engine, slot;
	char id[40];
	uint32_t request; /* its number, in the id */
	uint32_t salt, document, length;
	uint32_t in_flight; /* actions that name it */
	uint32_t lookups;   /* of them, LOOKUPs */
	uint32_t releasers; /* of them, what takes or releases locks */
	uint64_t released;  /* sequence of the last submission that takes or releases locks */
	uint64_t looked_up; /* ... of the last LOOKUP's ... */
	uint64_t ended;     /* ... and of the last END's, 0: none */
	bool matched_known; /* the last LOOKUP was answered, with ... */
	uint32_t matched;
	bool lookup_canceled; /* a QUERY may hear of that */
	bool reused_id;       /* another chain had the id before, and may still have it */
	struct held_locks held;
};

enum action_kind {
	ACTION_LOOKUP,
	ACTION_QUERY,
	ACTION_RETRIEVE,
	ACTION_STORE,
	ACTION_FREE,
	ACTION_END,
	ACTION_CLEAR,
	ACTION_PING,
	ACTION_KINDS
};

/* A request that is under way. */
struct action {
	struct list_node node; /* of its process, or free */
	enum action_kind kind;
	struct process *process;
	struct host *host;             /* that was asked */
	struct world_session *session; /* NULL: none */
	kvr_ticket ticket;
	uint64_t submitted, submitted_ns, epoch;
	uint32_t namespace_index;
	uint32_t flags;
	bool canceled, crossed; /* crossed: another LOOKUP, or an END, of the session was submitted since */
	bool overtaken;         /* ... or was under way then */
	bool bad;               /* it must be refused */
	bool all_ranks;
	uint32_t first, count, skip;
	uint32_t expected;             /* LOOKUP: at least; FREE: exactly; UINT32_MAX: not known */
	const struct process *witness; /* LOOKUP: a worker of the model; without any nothing matches */
	uint32_t *generations;         /* STORE: by chunk; 0: a null chunk */
	uint32_t *blocks;              /* the ids that were sent */
	uint32_t *nodes;
	uint8_t *outcomes;
	uint32_t block_count;
};

/* A device that says that its port is down, or was: taken back by fallen_turn. */
struct fallen {
	struct verbs_device *device; /* NULL: none */
	uint64_t until_ns;
	bool cut; /* its link is down in truth */
};

enum process_state {
	PROCESS_DEAD,
	PROCESS_JOINING,
	PROCESS_REGISTERING,
	PROCESS_STANDING,
	PROCESS_UNREGISTERING,
	PROCESS_BARE
};

struct process {
	struct world *world;
	uint32_t number, engine;
	bool scheduler;
	uint32_t rank, reader;
	enum process_state state;
	struct verbs_device *device, *rail; /* a second one, likewise */
	struct kvr_client *client;
	struct kvr_options options;
	uint64_t incarnation;
	uint64_t spawn_ns;          /* dead: comes back then */
	uint32_t shape, next_shape; /* that it is registered for, or will be */
	uint32_t registration;
	kvr_ticket ticket; /* of REGISTER or UNREGISTER */
	struct kvr_session *sessions[WORLD_SESSIONS];

	uint8_t *pool; /* planes with guards before, between and behind them */
	uint64_t pool_bytes, plane_bytes, block_stride, guard_bytes;
	uint32_t *free_blocks;
	uint32_t free_count, block_count;

	struct list_node actions;
	uint32_t in_flight;
	uint64_t refused;          /* requests that the server had no room for: BUSY */
	uint64_t disturbed;        /* sequence when something was done to it or its connection */
	uint64_t proved;           /* latest submission that was answered: the connection stood then */
	uint64_t clean_since;      /* when it became so after something was done to it */
	uint64_t stalled_until_ns; /* 0: not stalled */
	struct fallen fallen;
	uint64_t spoke_ns;
	bool was_ready; /* of its client, in the last turn */
};

struct engine {
	uint32_t tenant, shape;
	uint32_t host;                        /* whose clients its processes are */
	uint32_t first_process, worker_count; /* the scheduler, then the workers */
	struct world_session sessions[WORLD_SESSIONS];
	uint32_t next_id;
};

/* A server with what belongs to it: each knows nothing of the others. */
struct host {
	struct world *world;
	uint32_t number;
	struct verbs_device *server_device, *server_rail; /* a second one, where world->rails says so; else NULL */
	struct server *server;
	struct server_options server_options;
	struct l1_area areas[2];
	uint64_t boot_id, server_back_ns; /* down until then, when there is no server */
	unsigned held;                    /* enum control_hold: of the server's helpers, ... */
	uint64_t held_until_ns;           /* ... until then; 0: none */
	uint64_t deaf_until_ns;           /* connections are taken by nobody */
	struct fallen fallen;
	struct stream *deaf[64]; /* their ends */
	uint32_t deaf_count;
	uint64_t taken_away; /* evicted and cleared, by the server's counters, when last looked at */
	uint64_t reaped_allowed;
	bool draining;

	/* L2: places outlive the server; adapters are the server's while there is one. */
	uint32_t place_count; /* 0: no L2 */
	struct sim_place *places[WORLD_PLACES_MAX];
	struct sim_adapter_options place_faults[WORLD_PLACES_MAX];
	struct l2_adapter *adapters[WORLD_PLACES_MAX];
	struct l2_options l2;
	struct world_model model; /* of what it holds */
};

struct world {
	struct world_options options;
	struct world_report *report;
	struct transcript transcript;
	struct random random; /* whose turn it is, and when */
	uint64_t now_ns, sequence, turns, quiet_turns;
	uint32_t pace;  /* turns are up to 2^pace times as far apart */
	bool no_memory; /* of this machine: the run says nothing */

	struct sim_fabric *fabric;
	struct sim_options network;
	uint64_t network_faults; /* as counted by the fabric, when last looked at */
	struct control_tenant tenants[WORLD_TENANTS];
	bool roomy;  /* L1 has room for everything */
	bool quotas; /* tenants have limits in it */
	struct host hosts[WORLD_SERVERS_MAX];
	uint32_t host_count;
	uint32_t rails; /* devices of every server and process */

	struct shape shapes[WORLD_SHAPES];
	struct kvr_layout layouts[WORLD_SHAPES]; /* without addresses: for fingerprints */
	uint8_t fingerprints[WORLD_SHAPES][32];
	uint32_t chain_max, blocks_per_process, node_count;
	struct document documents[WORLD_DOCUMENTS];
	uint32_t document_count;
	struct digester digester;
	struct engine engines[WORLD_ENGINES_MAX];
	uint32_t engine_count;
	struct process processes[WORLD_PROCESSES_MAX];
	uint32_t process_count;
	struct action *actions;
	struct list_node free_actions;
	void *action_arrays;
	uint32_t *scratch;
};

/* world.c ------------------------------------------------------------------------------------------------------- */

/* Says what is violated, once: the world stops. */
void world_violated(struct world *world, const char *format, ...) KVR_PRINTF(2, 3);
static inline bool world_stopped(const struct world *world)
{
	return world->report->violated || world->no_memory;
}
#define NOTE(world, ...) TRANSCRIPT(&(world)->transcript, (world)->now_ns, __VA_ARGS__)
static inline bool world_has(const struct world *world, enum world_fault fault)
{
	return world->options.faults & fault;
}
static inline uint64_t world_draw(struct world *world, uint64_t bound)
{
	return random_below(&world->random, bound);
}
/* One turn of everybody, in an order and at a time that the seed decides. */
void world_turn(struct world *world);
/* Turns until nothing is under way, at most for WORLD_PATIENCE_NS: true when that is so. */
bool world_settle(struct world *world);
/* Moves the clock without anybody noticing in between. */
void world_jump(struct world *world, uint64_t ns);

/* setup.c ------------------------------------------------------------------------------------------------------- */

/* Everything that the seed decides before the first step. 0 or -ENOMEM. */
KVR_MUST_CHECK int world_setup(struct world *world);
void world_teardown(struct world *world);

/* tiers.c: L2. --------------------------------------------------------------------------------------------------- */

KVR_MUST_CHECK int tiers_setup(struct host *host);
void tiers_teardown(struct host *host);
/* Adapters for a server that is about to start. */
KVR_MUST_CHECK int tiers_open(struct host *host);
/* The server's process dies. */
void tiers_kill(struct host *host);
/* Something of it goes wrong, or better. */
void tiers_trouble(struct host *host, uint64_t a, uint64_t b);
void tiers_heal(struct host *host);
/* Nothing is under way between L1 and L2. */
bool tiers_idle(const struct host *host);
/* And every place is in service. */
bool tiers_well(const struct host *host);
void tiers_check(struct host *host);
/* The server is about to go: its numbers go into the report. */
void tiers_count(struct host *host);

/* host.c: the servers. --------------------------------------------------------------------------------------------- */

void world_server_start(struct host *host);
/* Its process dies: nothing of it is said to anybody. */
void world_server_kill(struct host *host);
/* Gone as by SIGTERM: true when it is. */
bool world_server_drained(struct host *host);
/* Something may have been done to the connections of its clients. */
void world_disturb_clients(struct host *host);
/* Looks at what the servers' counters say was taken away. */
void world_watch_server(struct world *world);
int world_connect(void *context, struct stream **stream);

/* process.c ----------------------------------------------------------------------------------------------------- */

void process_init(struct world *world, struct process *process, uint32_t engine, uint32_t rank, uint32_t reader);
/* One turn: its client, and what it waits for. */
bool process_turn(struct process *process);
/* Its process dies in the middle of what it does. */
void process_crash(struct process *process);
/* It leaves in order; as a crash when transfers are under way. */
void process_leave(struct process *process);
void process_fini(struct process *process);
/* Something was done to its connection, or to what it holds: expectations from before are void. */
void process_disturb(struct process *process);
void process_unregister(struct process *process, uint32_t next_shape);
static inline bool process_clean(const struct process *process)
{
	return process->proved >= process->disturbed;
}
static inline bool process_ready(const struct process *process)
{
	return process->state == PROCESS_STANDING && client_ready(process->client);
}
/* Its connection may be lost: something was done to it, or to the server, or memory fails at random. */
bool process_excused(const struct process *process);
static inline struct engine *process_engine(const struct process *process)
{
	return &process->world->engines[process->engine];
}
static inline struct host *process_host(const struct process *process)
{
	return &process->world->hosts[process_engine(process)->host];
}
/* Its own handle of the session, with the chain as long as it is now; NULL: it can't be had now. */
struct kvr_session *process_session(struct process *process, struct world_session *session);
void process_drop_session(struct process *process, uint32_t slot);

/* blocks.c  ------------------------------------------------------------------------------------------------- */

KVR_MUST_CHECK int blocks_make(struct process *process);
/* All blocks must be free and poisoned, and the guards whole. */
void blocks_drop(struct process *process, bool check);
/* `count` blocks, or false. Each was poison, or the world is violated. */
bool blocks_take(struct process *process, uint32_t count, uint32_t *blocks, bool scattered);
/* Given back, and poisoned at once: who writes there later is seen by the next to take it, or by blocks_check. */
void blocks_give(struct process *process, const uint32_t *blocks, uint32_t count);
void blocks_check(struct process *process);
uint8_t *blocks_at(const struct process *process, uint32_t plane, uint32_t block);
void blocks_fill(struct process *process, uint32_t block, uint64_t object, uint32_t generation, uint32_t position);
bool blocks_holds(
	const struct process *process, uint32_t block, uint64_t object, uint32_t generation, uint32_t position);
bool blocks_poisoned(const struct process *process, uint32_t block);

/* action.c: requests. -------------------------------------------------------------------------------------------- */

struct action *action_begin(struct process *process, enum action_kind kind, struct world_session *session);
/* It was not taken. */
void action_undo(struct action *action);
void action_sent(struct action *action);
/* Takes results of a process' tickets. True when there were any. */
bool action_collect(struct process *process);
/* The process is gone: what it asked for will never be known. */
void action_lose_all(struct process *process);

bool action_lookup(struct process *scheduler, struct world_session *session, uint32_t flags);
bool action_query(struct process *process, struct world_session *session, uint64_t wait_ns, bool early);
struct transfer_choice {
	uint32_t first, count, skip;
	uint32_t nulls;          /* 0: none; else each n-th chunk (STORE) or block (RETRIEVE) is null */
	bool scattered, garbage; /* garbage: ids of skipped blocks are nonsense */
	bool bad_block;
};
bool action_transfer(
	struct process *worker, struct world_session *session, bool store, const struct transfer_choice *choice);
bool action_free(
	struct process *process, struct world_session *session, uint32_t first, uint32_t count, bool all_ranks);
bool action_end(struct process *process, struct world_session *session);
bool action_clear(struct process *process, bool everything);
bool action_ping(struct process *process);
bool action_cancel(struct action *action);

/* answer.c: results. --------------------------------------------------------------------------------------------- */

void answer_check(struct action *action, const struct kvr_result *result);
/* What it did can't be known: locks that the session had may be gone. */
void answer_lost(struct action *action);

/* held.c: locks that are certainly held. -------------------------------------------------------------------------- */

uint32_t world_namespace(const struct engine *engine, uint32_t shape, uint32_t salt);
/* Is what was locked still locked for certain? */
bool held_valid(struct world *world, const struct world_session *session);
bool held_share(struct world *world, const struct world_session *session, uint32_t chunk, const struct process *worker);
/* Does it hold any lock for certain? One that holds none may be forgotten by the server to make room for another. */
bool held_any(struct world *world, const struct world_session *session);
void held_forget(struct world_session *session);
/* The session that certainly held the node in that server, from the action's submission on until now, or NULL. */
const struct world_session *held_by(const struct action *action, uint32_t node);

/* session.c ------------------------------------------------------------------------------------------------------ */

struct world_session *session_pick(struct world *world, struct engine *engine, uint32_t number, bool opened);
bool world_session_open(struct world *world, struct engine *engine, uint32_t a, uint32_t b);
/* Forgets a session that nothing is under way for. */
void world_session_close(struct world *world, struct world_session *session);

/* program.c ------------------------------------------------------------------------------------------------------- */

/* Does step `number` of the program, as far as it can be done. */
void program_step(struct world *world, uint32_t number);

/* trouble.c ------------------------------------------------------------------------------------------------------- */

/* Something goes wrong; `number` says which, `a`, `b`: numbers to choose by. */
void trouble_step(struct world *world, uint64_t kind, uint64_t a, uint64_t b);
void trouble_heal(struct world *world);
/* Ends what is due. True while, or when, a device is or was down: its connections may be lost at any time. */
bool fallen_turn(struct world *world, struct fallen *fallen);

/* finish.c -------------------------------------------------------------------------------------------------------- */

/* Peace, everybody does something, everybody leaves, L1 is filled: what must hold then. */
void world_finish(struct world *world);

KVR_END_C

#endif
