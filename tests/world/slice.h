/*
 * slice.h - one server and a few clients on the simulated fabric, stepped in one thread with virtual time: what every test of this folder
 * begins with. Everything asserts: a call that returns has done what it says.
 */
#ifndef KVRAIL_TESTS_WORLD_SLICE_H
#define KVRAIL_TESTS_WORLD_SLICE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/client.h"
#include "mgmt/server.h"
#include "verbs/sim/fabric.h"

#define SLICE_CLIENTS 12
#define SLICE_CHUNK_TOKENS 16
#define SLICE_BLOCK_TOKENS 4
#define SLICE_LAYERS 3
#define SLICE_BLOCKS 256
#define SLICE_BLOCK_BYTES 96 /* of one plane */
#define SLICE_PLANES (2 * SLICE_LAYERS)
#define SLICE_BLOCKS_PER_CHUNK (SLICE_CHUNK_TOKENS / SLICE_BLOCK_TOKENS)
#define SLICE_OBJECT_BYTES ((uint64_t)SLICE_PLANES * SLICE_BLOCKS_PER_CHUNK * SLICE_BLOCK_BYTES)
#define SLICE_SLOT_BYTES 4096 /* that an object takes in L1 */
#define SLICE_CHUNKS_MAX (SLICE_BLOCKS / SLICE_BLOCKS_PER_CHUNK)
#define SLICE_TENANTS 2
#define SLICE_RAILS_MAX 4

struct slice;

struct slice_client {
	struct slice *slice;
	uint32_t tenant;
	struct verbs_device *device;
	struct verbs_device *rails[SLICE_RAILS_MAX - 1]; /* further ones, where slice->rails says so */
	struct kvr_client *client;
	struct kvr_options options;
	uint8_t *pool; /* SLICE_PLANES planes of SLICE_BLOCKS blocks */
	uint64_t pool_bytes;
	uint32_t registration;
};

struct slice {
	struct sim_fabric *fabric;
	struct slice *beside; /* whose fabric it is, and who has turns with this one; NULL: nobody */
	struct sim_options network;
	uint64_t seed;
	struct server_options options;
	struct verbs_device *server_device;
	/* Devices of the server and of each client; 0: one. Further ones and their subnets are set before they are opened. */
	uint32_t rails;
	struct verbs_device *server_rails[SLICE_RAILS_MAX - 1];
	uint32_t server_subnets[SLICE_RAILS_MAX], client_subnets[SLICE_RAILS_MAX];
	bool home_on_each;     /* the server's workers have these devices as homes, in turn; else all have the first */
	struct server *server; /* NULL: there is none */
	bool deaf;             /* connections are taken by nobody */
	struct stream *deaf_ends[64];
	uint32_t deaf_count;
	uint32_t connects; /* attempts of all clients */
	struct control_tenant tenants[SLICE_TENANTS];
	struct l1_area area;
	uint64_t now_ns;
	uint64_t limit_ns; /* idle time goes on to this at most, 0: a little */
	struct slice_client clients[SLICE_CLIENTS];
	bool plain; /* of clients that are opened from now on: they know nothing of several requests in a message */
	uint32_t layers; /* of transfers that are submitted from now on; 0: none */
	kvr_mark after;
	const char *wanted_tenant;                              /* that clients expect to be; NULL: any */
	void (*every_turn)(struct slice *slice, void *context); /* NULL: nothing */
	void *context;
};

/* What a client is registered as. */
struct slice_model {
	const char *name, *dtype, *engine;
	uint32_t world_size, rank, readers, reader;
	bool scheduler;
	uint32_t planes; /* 0: SLICE_PLANES */
};
/* "model", one rank, one reader. */
void slice_model_default(struct slice_model *model);

/* ---- server and time ------------------------------------------------------------------------------------------ */

/* l1_bytes: of the server. */
void slice_start(struct slice *slice, uint64_t seed, const struct sim_options *options, uint64_t l1_bytes);
/* The same in two parts, to change slice->options in between. */
void slice_prepare(struct slice *slice, uint64_t seed, const struct sim_options *options, uint64_t l1_bytes);
void slice_server_begin(struct slice *slice);
/* A second server with clients of its own on the fabric of the first one: each has turns when the other has. It is stopped first. */
void slice_prepare_beside(struct slice *slice, struct slice *first, uint64_t seed, uint64_t l1_bytes);
/* -errno instead of an assertion. */
int slice_server_try(struct slice *slice);
/* Its process dies. */
void slice_server_kill(struct slice *slice);
/* Everybody leaves; the server must be empty of locks, pins, sessions. */
void slice_stop(struct slice *slice);
/* One turn of everything. True when something happened; when nothing does, time goes on to the next event. */
bool slice_step(struct slice *slice);
void slice_run(struct slice *slice, unsigned turns);
/* Time passes, and everybody has turns in it. */
void slice_pass(struct slice *slice, uint64_t ns);
void slice_status(struct slice *slice, struct status_snapshot *snapshot);
uint64_t slice_locks(struct slice *slice);
const struct management_counters *slice_counters(struct slice *slice);

/* ---- clients -------------------------------------------------------------------------------------------------- */

/* Connects client `index` and registers its pool as `model`, rank of world_size. */
void slice_join(struct slice *slice, unsigned index, const char *model, uint32_t world_size, uint32_t rank);
void slice_join_as(struct slice *slice, unsigned index, uint32_t tenant, const struct slice_model *model);
/* Its parts. The client exists after create, and may be connected some time later. */
void slice_create_client(struct slice *slice, unsigned index, uint32_t tenant);
/* -errno instead of an assertion. */
int slice_try_client(struct slice *slice, unsigned index, uint32_t tenant);
void slice_await_ready(struct slice_client *client);
int slice_submit_register(struct slice_client *client, const struct slice_model *model, kvr_ticket *ticket);
int slice_register(struct slice_client *client, const struct slice_model *model);
/* Its process dies: from now on nothing touches its memory, which is given back to the heap at once. */
void slice_kill(struct slice_client *client);
void slice_leave(struct slice_client *client);

/* Steps until the ticket is done: its result's error. Asserts that this takes less than a virtual minute. */
int slice_wait(struct slice *slice, struct kvr_client *client, kvr_ticket ticket, struct kvr_result *result);

/* ---- requests ------------------------------------------------------------------------------------------------- */

/* On `chunks` chunks of a document: documents of different numbers have no chunk in common. */
struct kvr_session *slice_session(
	struct slice_client *client, const char *id, const char *salt, uint32_t document, uint32_t chunks);
void slice_forget(struct kvr_session **session);

struct slice_request {
	kvr_ticket ticket;
	uint32_t first_block, count;
	uint32_t ids[SLICE_BLOCKS];
	uint8_t outcomes[SLICE_CHUNKS_MAX];
	struct kvr_result result;
};
/* Chunks [first, first + count) in scattered blocks from first_block on. A STORE's blocks are filled with the bytes of `mark`. */
void slice_submit_store(struct slice_client *client, struct kvr_session *session, uint32_t first, uint32_t count,
	uint32_t first_block, uint32_t mark, struct slice_request *request);
/* A RETRIEVE's blocks are poisoned. */
void slice_submit_retrieve(struct slice_client *client, struct kvr_session *session, uint32_t first, uint32_t count,
	uint32_t first_block, struct slice_request *request);
int slice_finish(struct slice_client *client, struct slice_request *request);
int slice_store(struct slice_client *client, struct kvr_session *session, uint32_t first, uint32_t count,
	uint32_t first_block, uint32_t mark, struct slice_request *request);
int slice_retrieve(struct slice_client *client, struct kvr_session *session, uint32_t first, uint32_t count,
	uint32_t first_block, struct slice_request *request);
int slice_lookup(struct slice_client *client, struct kvr_session *session, uint32_t flags, struct kvr_result *result);
/* Matched chunks; the lookup must succeed. */
uint32_t slice_match(struct slice_client *client, struct kvr_session *session, uint32_t flags);
int slice_free(struct slice_client *client, struct kvr_session *session, uint32_t first, uint32_t count, bool all,
	struct kvr_result *result);
int slice_end(struct slice_client *client, struct kvr_session *session);
int slice_ping(struct slice_client *client);
int slice_clear(struct slice_client *client, struct kvr_result *result);
/* All outcomes are `outcome`. */
void slice_outcomes_are(const struct slice_request *request, uint8_t outcome);
/* Chunk `chunk` of the request holds the bytes of `mark`, which were stored as chunk `chunk` of a request. */
bool slice_delivered(
	const struct slice_client *client, const struct slice_request *request, uint32_t chunk, uint32_t mark);
/* It holds the bytes of one mark below `limit`: that mark, or UINT32_MAX when it holds a mixture or none. */
uint32_t slice_mark_of(
	const struct slice_client *client, const struct slice_request *request, uint32_t chunk, uint32_t limit);

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

/* Blocks of the pool: bytes that only (mark, block position in the chain, plane) decide, or poison. */
void slice_fill(struct slice_client *client, uint32_t block, uint32_t mark, uint32_t position);
void slice_poison(struct slice_client *client, uint32_t block);
bool slice_holds(const struct slice_client *client, uint32_t block, uint32_t mark, uint32_t position);
bool slice_plane_holds(
	const struct slice_client *client, uint32_t plane, uint32_t block, uint32_t mark, uint32_t position);
bool slice_poisoned(const struct slice_client *client, uint32_t block);

#endif
