/* small_engine.h - a client with one model of one small plane, for tests of the programs: it stores a prompt and reads it back. */
#ifndef KVRAIL_TESTS_APP_SMALL_ENGINE_H
#define KVRAIL_TESTS_APP_SMALL_ENGINE_H

#include <stdint.h>

#include "app/process.h"
#include "kvrail.h"

#define SMALL_CHUNKS 6u /* of its prompt */
#define SMALL_CHUNK_TOKENS 256u
#define SMALL_BLOCK_TOKENS 16u
#define SMALL_BLOCK_BYTES 1024u
#define SMALL_CHUNK_BYTES (SMALL_CHUNK_TOKENS / SMALL_BLOCK_TOKENS * SMALL_BLOCK_BYTES)
#define SMALL_BLOCKS (SMALL_CHUNKS * SMALL_CHUNK_TOKENS / SMALL_BLOCK_TOKENS)

struct small_engine {
	char url[128];
	struct kvr_client *client;
	struct kvr_session *session;
	uint32_t registration;
	uint8_t *pages;
	uint32_t ids[SMALL_BLOCKS];
};

/* Connects, registers, and begins a session named "request" with tokens 0, step, 2 * step, ... */
void small_engine_join(struct small_engine *engine, const struct server_process *server, uint32_t step);
void small_engine_leave(struct small_engine *engine);
/* All chunks of the prompt; how many are in the cache then. result: NULL, or where the rest of it is put; it may have failed. */
uint32_t small_engine_store(struct small_engine *engine, struct kvr_result *result);
/* Looks for the prompt, and reads it with every byte checked if all of it is there. */
void small_engine_expects(struct small_engine *engine, uint32_t chunks);

#endif
