/* house.h - a server in a process of its own, on a Unix socket, for tests of the client as its users link it. */
#ifndef KVRAIL_TESTS_CLIENT_HOUSE_H
#define KVRAIL_TESTS_CLIENT_HOUSE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "kvrail.h"

#define HOUSE_CHUNK_TOKENS 16
#define HOUSE_BLOCK_TOKENS 4
#define HOUSE_PLANES 4
#define HOUSE_BLOCKS 128
#define HOUSE_BLOCK_BYTES 512
#define HOUSE_BLOCKS_PER_CHUNK (HOUSE_CHUNK_TOKENS / HOUSE_BLOCK_TOKENS)
#define HOUSE_POOL_BYTES ((size_t)HOUSE_PLANES * HOUSE_BLOCKS * HOUSE_BLOCK_BYTES)

struct house {
	char directory[64];
	char path[96];
	char url[128];
	pid_t server;
	pid_t standby; /* the next one, 0: none */
	int standby_fd;
};

/* Makes a directory and starts a server; asserts. */
void house_open(struct house *house);
/* Stops the server (SIGTERM): it must have been left empty, or the test fails. */
void house_close(struct house *house);
void house_start_server(struct house *house);
/* Makes the process of the next server, which house_start_server sets going: for tests that have threads by then. */
void house_prepare_server(struct house *house);
void house_kill_server(struct house *house);

/* A client of it, with reconnecting. */
struct kvr_client *house_client(const struct house *house, const char *name);
/* Registers a pool of HOUSE_POOL_BYTES at `pool`. */
uint32_t house_register(struct kvr_client *client, uint8_t *pool);
/* A session over `chunks` chunks of tokens that `salt` decides. */
struct kvr_session *house_session(
	struct kvr_client *client, uint32_t registration, const char *id, uint32_t salt, uint32_t chunks);
/* Blocks first_id, first_id + step, ... for `chunks` chunks. `ids` has room for all. */
struct kvr_transfer house_transfer(
	struct kvr_blocks *blocks, uint32_t *ids, uint32_t first_id, uint32_t chunks, uint8_t *outcomes);
void house_fill(uint8_t *pool, uint32_t block, uint32_t salt, uint32_t position);
bool house_holds(const uint8_t *pool, uint32_t block, uint32_t salt, uint32_t position);

#endif
