/*
 * hello.c - the whole life of a KV-cache connector in one page: register the paged KV memory, look a request up, retrieve
 * what is there, compute the rest, store it. "Computing" is filling bytes here.
 *
 *     cc hello.c $(pkg-config --cflags --libs kvrail) -o hello && ./hello && ./hello
 *
 * kvraild must be running. The second run finds what the first one stored.
 */
#include <kvrail.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 2
#define BLOCKS 64       /* pages of the engine */
#define BLOCK_TOKENS 16 /* tokens of a page */
#define HEADS 2
#define HEAD_SIZE 32
#define CHUNKS 2 /* of the request */

static int failed(const char *what)
{
	fprintf(stderr, "hello: %s: %s\n", what, kvr_error_text());
	return 1;
}

/* One tensor a layer, [2, blocks, tokens, heads, head size] of 16-bit numbers: vLLM's with flash attention. */
static int register_pool(struct kvr_client *client, char *pool, uint32_t *registration)
{
	struct kvr_tensor tensors[LAYERS] = { { 0 } };
	struct kvr_plane planes[2 * LAYERS];
	struct kvr_group group;
	struct kvr_layout layout = { sizeof(layout), 1, &group };
	struct kvr_model model = KVR_MODEL_INIT;

	for (int layer = 0; layer < LAYERS; layer++) {
		const uint64_t shape[5] = { 2, BLOCKS, BLOCK_TOKENS, HEADS, HEAD_SIZE };

		tensors[layer].address = pool + (size_t)layer * 2 * BLOCKS * BLOCK_TOKENS * HEADS * HEAD_SIZE * 2;
		tensors[layer].dimensions = 5;
		tensors[layer].element_bytes = 2;
		memcpy(tensors[layer].shape, shape, sizeof(shape));
	}
	if (kvr_layout_make(KVR_NL_X_TWO_NB_BS_NH_HS, tensors, LAYERS, BLOCK_TOKENS, planes, 2 * LAYERS, &group))
		return -1;
	model.name = "hello model";
	model.dtype = "bfloat16";
	return kvr_register(client, &model, &layout, NULL, registration);
}

/* One request: returns 0 when its KV is in the pool. */
static int serve(struct kvr_client *client, uint32_t registration, char *pool, size_t pool_bytes)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_session *session;
	struct kvr_result result;
	struct kvr_info info;
	struct kvr_blocks blocks;
	uint32_t *tokens, ids[BLOCKS], count, per_chunk, hit;

	if (kvr_get_info(client, &info))
		return failed("info");
	per_chunk = info.chunk_tokens / BLOCK_TOKENS; /* pages that a chunk takes */
	count = CHUNKS * info.chunk_tokens;
	tokens = calloc(count, sizeof(*tokens));
	if (!tokens || CHUNKS * per_chunk > BLOCKS)
		return failed("no memory");
	for (uint32_t i = 0; i < count; i++)
		tokens[i] = 1000 + i;
	for (uint32_t i = 0; i < CHUNKS * per_chunk; i++)
		ids[i] = i; /* which pages the engine gave to the request */

	if (kvr_session_create(client, registration, "request-1", NULL, &session))
		return failed("session");
	if (kvr_session_tokens(session, tokens, count) || kvr_lookup(session, 0, &result))
		return failed("lookup");
	free(tokens);
	printf("%u of %u tokens are cached\n", result.tokens, count);

	transfer.group_count = 1;
	transfer.groups = &blocks;
	blocks.ids = ids;
	hit = result.chunks;
	if (hit > 0) { /* the pages are the server's until the call returns */
		transfer.chunk_count = hit;
		blocks.count = hit * per_chunk;
		if (kvr_retrieve(session, &transfer, 0, &result))
			return failed("retrieve");
		printf("%u chunks retrieved\n", result.chunks);
		if (result.chunks < hit) /* transfer.outcomes would say which ones did not arrive */
			hit = 0;
	}
	if (hit < CHUNKS) { /* the rest is computed, and stored */
		memset(pool, 0x42, pool_bytes);
		transfer.first_chunk = hit;
		transfer.chunk_count = CHUNKS - hit;
		blocks.ids = ids + hit * per_chunk;
		blocks.count = transfer.chunk_count * per_chunk;
		if (kvr_store(session, &transfer, 0, &result))
			return failed("store");
		printf("%u chunks stored\n", result.chunks);
	}
	if (kvr_end(session, 0)) /* the request is over: its locks go, its chunks stay */
		return failed("end");
	return kvr_session_destroy(&session) ? failed("destroy") : 0;
}

int main(void)
{
	const size_t pool_bytes = (size_t)LAYERS * 2 * BLOCKS * BLOCK_TOKENS * HEADS * HEAD_SIZE * 2;
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct kvr_client *client;
	uint32_t registration;
	void *pool;
	int status;

	options.name = "hello";
	if (kvr_open(&options, &client)) /* $KVRAIL_URL, or the default socket */
		return failed("open");
	if (kvr_alloc(client, pool_bytes, &pool))
		return failed("alloc");
	if (register_pool(client, pool, &registration))
		return failed("register");
	status = serve(client, registration, pool, pool_bytes);
	if (status == 0 && kvr_unregister(client, registration))
		status = failed("unregister");
	kvr_close(&client);
	return status;
}
