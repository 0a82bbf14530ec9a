#include "app/small_engine.h"

#include <stdio.h>
#include <string.h>

#include "base/cmocka_all.h"

#define TOKENS (SMALL_CHUNKS * SMALL_CHUNK_TOKENS)
#define BYTES (SMALL_BLOCKS * SMALL_BLOCK_BYTES)

void small_engine_join(struct small_engine *engine, const struct server_process *server, uint32_t step)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct kvr_model model = KVR_MODEL_INIT;
	uint32_t tokens[TOKENS];
	struct kvr_plane plane;
	struct kvr_group group = { SMALL_BLOCK_TOKENS, KVR_WINDOW_FULL, SMALL_BLOCKS, 1, &plane };
	struct kvr_layout layout = { sizeof(layout), 1, &group };
	void *pages;

	memset(engine, 0, sizeof(*engine));
	snprintf(engine->url, sizeof(engine->url), "unix:%s", server->socket);
	options.url = engine->url;
	assert_int_equal(kvr_open(&options, &engine->client), 0);
	assert_int_equal(kvr_alloc(engine->client, BYTES, &pages), 0);
	engine->pages = pages;
	plane.address = pages;
	plane.block_stride = SMALL_BLOCK_BYTES;
	plane.block_bytes = SMALL_BLOCK_BYTES;
	model.name = "small";
	model.dtype = "bfloat16";
	assert_int_equal(kvr_register(engine->client, &model, &layout, NULL, &engine->registration), 0);
	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = i * step;
	for (uint32_t i = 0; i < SMALL_BLOCKS; i++)
		engine->ids[i] = SMALL_BLOCKS - 1 - i;
	assert_int_equal(
		kvr_session_create(engine->client, engine->registration, "request", NULL, &engine->session), 0);
	assert_int_equal(kvr_session_tokens(engine->session, tokens, TOKENS), 0);
}

void small_engine_leave(struct small_engine *engine)
{
	assert_int_equal(kvr_end(engine->session, 0), 0);
	kvr_session_destroy(&engine->session);
	kvr_close(&engine->client);
}

static uint8_t byte_of(uint64_t at)
{
	return (uint8_t)(at * 131 + at / 1024);
}

uint32_t small_engine_store(struct small_engine *engine, struct kvr_result *result)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { engine->ids, SMALL_BLOCKS };
	struct kvr_result mine;

	for (uint64_t i = 0; i < BYTES; i++)
		engine->pages[i] = byte_of(i);
	transfer.group_count = 1;
	transfer.groups = &blocks;
	transfer.chunk_count = SMALL_CHUNKS;
	assert_true(kvr_store(engine->session, &transfer, 0, result ? result : &mine) == 0 || result);
	return result ? result->chunks : mine.chunks;
}

void small_engine_expects(struct small_engine *engine, uint32_t chunks)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { engine->ids, SMALL_BLOCKS };
	struct kvr_result result;

	assert_int_equal(kvr_lookup(engine->session, 0, &result), 0);
	assert_int_equal(result.chunks, chunks);
	if (chunks < SMALL_CHUNKS)
		return;
	memset(engine->pages, 0xee, BYTES);
	transfer.group_count = 1;
	transfer.groups = &blocks;
	transfer.chunk_count = SMALL_CHUNKS;
	assert_int_equal(kvr_retrieve(engine->session, &transfer, 0, &result), 0);
	for (uint64_t i = 0; i < BYTES; i++)
		assert_int_equal(engine->pages[i], byte_of(i));
}
