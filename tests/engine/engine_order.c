/*
 * engine_order.c - in step with the engine: `order` shows that it is right (kernels behind waits for layers, transfers behind marks, no
 * processor waiting in between), `overlap` what it is worth.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/engine.h"

#define LAYERS 16u
#define LAYER_PLANES 2u
#define PLANES (LAYERS * LAYER_PLANES)
#define BLOCK_TOKENS 16u
#define ROUNDS 5u

struct pool {
	struct kvr_client *client;
	uint32_t registration, chunks, count;
	uint32_t *ids; /* `count` to store from, then as many to retrieve into */
	struct kvr_plane planes[PLANES];
	gpu_address memory;
};

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(double), compare);
	return values[ROUNDS / 2];
}

static void open_pool(struct engine *engine, struct pool *pool, uint32_t chunks, uint32_t page)
{
	struct kvr_model model = KVR_MODEL_INIT;
	struct kvr_group group = { BLOCK_TOKENS, KVR_WINDOW_FULL, 0, PLANES, pool->planes };
	struct kvr_layout whole = { sizeof(whole), 1, &group };
	struct kvr_info info;

	pool->client = engine_client(engine, "order");
	kvr_get_info(pool->client, &info);
	pool->chunks = chunks;
	pool->count = chunks * info.chunk_tokens / BLOCK_TOKENS;
	group.block_count = 2 * pool->count;
	pool->memory = engine_alloc(engine, (uint64_t)PLANES * group.block_count * page);
	for (uint32_t p = 0; p < PLANES; p++) {
		pool->planes[p].address = (void *)(uintptr_t)(pool->memory + (uint64_t)p * group.block_count * page);
		pool->planes[p].block_stride = pool->planes[p].block_bytes = page;
	}
	model.name = "order";
	model.dtype = "bfloat16";
	if (kvr_register(pool->client, &model, &whole, NULL, &pool->registration))
		engine_fail("kvr_register: %s", kvr_error_text());
	pool->ids = malloc(group.block_count * sizeof(uint32_t));
	for (uint32_t i = 0; pool->ids && i < group.block_count; i++)
		pool->ids[i] = i;
	engine_shuffle(pool->ids, group.block_count, 11);
}

static void close_pool(struct engine *engine, struct pool *pool)
{
	if (kvr_unregister(pool->client, pool->registration))
		engine_fail("kvr_unregister: %s", kvr_error_text());
	kvr_close(&pool->client);
	engine_must(engine, engine->driver.memory_free(pool->memory), "free");
	free(pool->ids);
}

static kvr_ticket submit(struct pool *pool, struct kvr_session *session, bool store, uint32_t layers, kvr_mark after)
{
	struct kvr_transfer request = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { pool->ids + (store ? 0 : pool->count), pool->count };
	kvr_ticket ticket;
	int error;

	request.chunk_count = pool->chunks;
	request.group_count = 1;
	request.groups = &blocks;
	request.layers = layers;
	request.after = after;
	error = store ? kvr_submit_store(session, &request, &ticket) : kvr_submit_retrieve(session, &request, &ticket);
	if (error)
		engine_fail("submit: %s", kvr_error_text());
	return ticket;
}

static void finish(struct pool *pool, kvr_ticket ticket)
{
	struct kvr_result result;

	while (kvr_poll(pool->client, ticket, &result) == -11 && result.status == 0)
		;
	if (result.error || result.chunks != pool->chunks)
		engine_fail("%u of %u chunks: %s", result.chunks, pool->chunks, result.text);
}

static void must(int error, const char *what)
{
	if (error)
		engine_fail("%s: %d: %s", what, error, kvr_error_text());
}

/* Kernels on the stream, one a plane; ids are at `ids` in pinned memory. */
static void launch(
	struct engine *engine, const struct pool *pool, bool check, uint32_t plane, uint32_t seed, const uint32_t *ids)
{
	uint64_t address = (uint64_t)(uintptr_t)pool->planes[plane].address;
	uint64_t stride = pool->planes[plane].block_stride, bytes = pool->planes[plane].block_bytes;
	uint32_t count = pool->count, first = 0;
	void *parameters[] = { &address, &stride, &bytes, &ids, &count, &seed, &first, &engine->wrong };

	engine_must(engine,
		engine->driver.launch(check ? engine->check : engine->fill, count < 512 ? count : 512, 1, 1, 256, 1, 1,
			0, engine->stream, parameters, NULL),
		"launch");
}

static void order_round(struct engine *engine, struct pool *pool, uint32_t round)
{
	struct kvr_session *session = engine_session(pool->client, pool->registration, round, pool->chunks);
	kvr_ticket store, retrieve;
	kvr_mark filled, overwritten;

	must(kvr_mark_new(pool->client, &filled), "mark");
	must(kvr_mark_new(pool->client, &overwritten), "mark");
	/* Both are at the server before the first kernel has begun. */
	store = submit(pool, session, true, 0, filled);
	for (uint32_t p = 0; p < PLANES; p++)
		launch(engine, pool, false, p, round * 100 + p, engine->ids);
	must(kvr_stream_mark(pool->client, filled, engine->stream), "stream mark");
	finish(pool, store);
	retrieve = submit(pool, session, false, LAYERS, overwritten);
	for (uint32_t p = 0; p < PLANES; p++)
		launch(engine, pool, false, p, ~0u, engine->ids + pool->count);
	must(kvr_stream_mark(pool->client, overwritten, engine->stream), "stream mark");
	for (uint32_t p = 0; p < PLANES; p++) {
		if (p % LAYER_PLANES == 0)
			must(kvr_stream_wait_layer(pool->client, retrieve, p / LAYER_PLANES, engine->stream), "wait");
		launch(engine, pool, true, p, round * 100 + p, engine->ids + pool->count);
	}
	engine_must(engine, engine->driver.copy_to_host(engine->result, engine->wrong, 4, engine->stream), "copy");
	engine_wait(engine);
	if (*engine->result != 0)
		engine_fail(
			"round %u: %u words were not there when their layer was said to be", round, *engine->result);
	finish(pool, retrieve);
	kvr_end(session, 0);
	kvr_session_destroy(&session);
}

int engine_run_order(struct engine *engine)
{
	const char *rounds = getenv("ENGINE_ROUNDS");
	uint32_t last = rounds ? (uint32_t)strtoul(rounds, NULL, 10) : 4;
	struct pool pool;

	open_pool(engine, &pool, 3, 16384);
	memcpy(engine->ids, pool.ids, 2 * (size_t)pool.count * sizeof(uint32_t));
	*engine->result = 0;
	engine_must(engine, engine->driver.copy_to_device(engine->wrong, engine->result, 4, engine->stream), "copy");
	for (uint32_t round = 1; round <= last; round++)
		order_round(engine, &pool, round);
	close_pool(engine, &pool);
	printf("order: right, %u rounds of %u layers\n", last, LAYERS);
	return 0;
}

/* ---- what it is worth ------------------------------------------------------------------------------------------- */

static void work(struct engine *engine, uint32_t blocks, uint32_t rounds)
{
	void *parameters[] = { &rounds, &engine->wrong };

	engine_must(engine,
		engine->driver.launch(engine->work, blocks, 1, 1, 256, 1, 1, 0, engine->stream, parameters, NULL),
		"work");
}

static double compute(struct engine *engine, uint32_t blocks, uint32_t rounds)
{
	double start = now();

	for (uint32_t layer = 0; layer < LAYERS; layer++)
		work(engine, blocks, rounds);
	engine_wait(engine);
	return now() - start;
}

static double load(struct pool *pool, struct kvr_session *session, double *first_layer)
{
	double start = now();
	kvr_ticket ticket = submit(pool, session, false, LAYERS, 0);

	must(kvr_wait_layer(pool->client, ticket, 0, UINT64_C(10000000000)), "first layer");
	*first_layer = now() - start;
	finish(pool, ticket);
	return now() - start;
}

static double overlapped(
	struct engine *engine, struct pool *pool, struct kvr_session *session, uint32_t blocks, uint32_t rounds)
{
	double start = now();
	kvr_ticket ticket = submit(pool, session, false, LAYERS, 0);

	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		must(kvr_stream_wait_layer(pool->client, ticket, layer, engine->stream), "wait");
		work(engine, blocks, rounds);
	}
	finish(pool, ticket);
	engine_wait(engine);
	return now() - start;
}

static void overlap_case(struct engine *engine, struct pool *pool, struct kvr_session *session, uint32_t blocks,
	double share, double load_seconds)
{
	double one[ROUNDS], loading[ROUNDS], both[ROUNDS], first[ROUNDS], alone, l, b, f;
	uint32_t rounds = 1000;

	/* So many rounds that all layers take `share` of the time that loading takes. */
	(void)compute(engine, blocks, rounds);
	for (unsigned i = 0; i < 3; i++)
		rounds = (uint32_t)((double)rounds * share * load_seconds / compute(engine, blocks, rounds)) + 1;
	for (unsigned i = 0; i < ROUNDS; i++) {
		one[i] = compute(engine, blocks, rounds);
		loading[i] = load(pool, session, &first[i]);
		both[i] = overlapped(engine, pool, session, blocks, rounds);
	}
	alone = median(one);
	l = median(loading);
	b = median(both);
	f = median(first);
	printf("%5u blocks  load %6.2f ms (first layer %5.2f)  compute %6.2f  one after the other %6.2f  overlapped %6.2f = %4.2f of "
	       "max + first\n",
		blocks, l * 1e3, f * 1e3, alone * 1e3, (l + alone) * 1e3, b * 1e3,
		b / ((l > alone ? l : alone) + (l > alone ? alone / LAYERS : f)));
	fflush(stdout);
}

int engine_run_overlap(struct engine *engine)
{
	static const uint32_t blocks[] = { 132, 1056, 8448 };
	static const double shares[] = { 0.5, 1.0, 2.0 };
	const char *mib = getenv("ENGINE_MIB");
	uint64_t bytes = (mib ? strtoull(mib, NULL, 10) : 512) << 20;
	struct kvr_session *session;
	struct pool pool;
	double first, seconds;

	open_pool(engine, &pool, (uint32_t)(bytes / PLANES / 32768 * BLOCK_TOKENS / 256), 32768);
	session = engine_session(pool.client, pool.registration, 1, pool.chunks);
	finish(&pool, submit(&pool, session, true, 0, 0));
	(void)load(&pool, session, &first);
	seconds = load(&pool, session, &first);
	for (unsigned b = 0; b < sizeof(blocks) / sizeof(blocks[0]); b++) {
		for (unsigned s = 0; s < sizeof(shares) / sizeof(shares[0]); s++)
			overlap_case(engine, &pool, session, blocks[b], shares[s], seconds);
	}
	kvr_end(session, 0);
	kvr_session_destroy(&session);
	close_pool(engine, &pool);
	return 0;
}
