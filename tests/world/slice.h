/*
 * slice.h - one server and a few clients on the simulated fabric, stepped in one thread with virtual time: what every test of this folder
 * begins with.
 */
#ifndef KVRAIL_TESTS_WORLD_SLICE_H
#define KVRAIL_TESTS_WORLD_SLICE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/client.h"
#include "mgmt/server.h"
#include "verbs/sim/fabric.h"

#define SLICE_CLIENTS 8
#define SLICE_CHUNK_TOKENS 16
#define SLICE_BLOCK_TOKENS 4
#define SLICE_LAYERS 3
#define SLICE_BLOCKS 256
#define SLICE_BLOCK_BYTES 96 /* of one plane */
#define SLICE_PLANES (2 * SLICE_LAYERS)
#define SLICE_BLOCKS_PER_CHUNK (SLICE_CHUNK_TOKENS / SLICE_BLOCK_TOKENS)
#define SLICE_OBJECT_BYTES ((uint64_t)SLICE_PLANES * SLICE_BLOCKS_PER_CHUNK * SLICE_BLOCK_BYTES)

struct slice;

struct slice_client {
	struct slice *slice;
	struct verbs_device *device;
	struct kvr_client *client;
	struct kvr_options options;
	uint8_t *pool; /* SLICE_PLANES planes of SLICE_BLOCKS blocks */
	uint64_t pool_bytes;
	uint32_t registration;
};

struct slice {
	struct sim_fabric *fabric;
	struct verbs_device *server_device;
	struct server *server;
	struct control_tenant tenant;
	void *l1;
	uint64_t now_ns;
	struct slice_client clients[SLICE_CLIENTS];
};

/* l1_bytes: of the server. Asserts on failure. */
void slice_start(struct slice *slice, uint64_t seed, const struct sim_options *options, uint64_t l1_bytes);
/* Everybody leaves; the server must be empty of locks, pins, sessions. */
void slice_stop(struct slice *slice);

/* Connects client `index` and registers its pool as `model`, rank of world_size. */
void slice_join(struct slice *slice, unsigned index, const char *model, uint32_t world_size, uint32_t rank);
/* One turn of everything. */
void slice_step(struct slice *slice);
/* Steps until the ticket is done: its result's error. Asserts that this takes less than a virtual minute. */
int slice_wait(struct slice *slice, struct kvr_client *client, kvr_ticket ticket, struct kvr_result *result);

/* Blocks of the pool: bytes that only (salt, block position in the chain, plane) decide, or poison. */
void slice_fill(struct slice_client *client, uint32_t block, uint32_t salt, uint32_t position);
void slice_poison(struct slice_client *client, uint32_t block);
bool slice_holds(const struct slice_client *client, uint32_t block, uint32_t salt, uint32_t position);
bool slice_poisoned(const struct slice_client *client, uint32_t block);

#endif
