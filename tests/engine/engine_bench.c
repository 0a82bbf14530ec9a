/*
 * engine_bench.c - rates of RETRIEVE and STORE of scattered pages as ratios to contiguous pinned copies of the same run, and what one
 * small request takes beside a bare kernel launch. Rounds are interleaved; medians are printed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/engine.h"

#define ROUNDS 9u
#define PLANES 32u
#define BLOCK_TOKENS 16u
#define SIDES 2u

struct side {
	struct kvr_client *client;
	uint32_t registration;
	uint32_t chunks, count;
	uint32_t *ids;
	gpu_address pool;
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

static double median(double *values, uint32_t count)
{
	qsort(values, count, sizeof(double), compare);
	return values[count / 2];
}

static void open_side(struct engine *engine, struct side *side, uint32_t page, uint32_t number)
{
	struct kvr_model model = KVR_MODEL_INIT;
	struct kvr_plane planes[PLANES];
	struct kvr_group group = { BLOCK_TOKENS, KVR_WINDOW_FULL, 0, PLANES, planes };
	struct kvr_layout whole = { sizeof(whole), 1, &group };
	struct kvr_info info;
	char name[64];

	side->client = engine_client(engine, "bench");
	kvr_get_info(side->client, &info);
	side->count = (uint32_t)(engine->request_bytes / PLANES / page);
	side->chunks = side->count * BLOCK_TOKENS / info.chunk_tokens;
	group.block_count = 2 * side->count;
	side->pool = engine_alloc(engine, (uint64_t)PLANES * group.block_count * page);
	for (uint32_t p = 0; p < PLANES; p++) {
		planes[p].address = (void *)(uintptr_t)(side->pool + (uint64_t)p * group.block_count * page);
		planes[p].block_stride = planes[p].block_bytes = page;
	}
	snprintf(name, sizeof(name), "bench-%u-%u", page, number);
	model.name = name;
	model.dtype = "bfloat16";
	if (kvr_register(side->client, &model, &whole, NULL, &side->registration))
		engine_fail("kvr_register: %s", kvr_error_text());
	side->ids = malloc(group.block_count * sizeof(uint32_t));
	for (uint32_t i = 0; side->ids && i < group.block_count; i++)
		side->ids[i] = i;
	engine_shuffle(side->ids, group.block_count, 7 + number);
}

static void close_side(struct engine *engine, struct side *side)
{
	if (kvr_clear(side->client, side->registration, 0, NULL) || kvr_unregister(side->client, side->registration))
		engine_fail("end: %s", kvr_error_text());
	kvr_close(&side->client);
	engine_must(engine, engine->driver.memory_free(side->pool), "free");
	free(side->ids);
}

static kvr_ticket submit(struct side *side, struct kvr_session *session, bool store)
{
	struct kvr_transfer request = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { side->ids + (store ? 0 : side->count), side->count };
	kvr_ticket ticket;
	int error;

	request.chunk_count = side->chunks;
	request.group_count = 1;
	request.groups = &blocks;
	error = store ? kvr_submit_store(session, &request, &ticket) : kvr_submit_retrieve(session, &request, &ticket);
	if (error)
		engine_fail("submit: %s", kvr_error_text());
	return ticket;
}

static void finish(struct side *side, kvr_ticket ticket)
{
	struct kvr_result result;

	while (kvr_poll(side->client, ticket, &result) == -11 && result.status == 0)
		;
	if (result.error || result.chunks != side->chunks)
		engine_fail("%u of %u chunks: %s", result.chunks, side->chunks, result.text);
}

static double contiguous(const struct engine *engine, void *pinned, gpu_address device, bool up, bool down)
{
	double start = now();

	if (up)
		engine_must(engine,
			engine->driver.copy_to_device(device, pinned, engine->request_bytes, engine->stream), "copy");
	if (down)
		engine_must(engine,
			engine->driver.copy_to_host((uint8_t *)pinned + engine->request_bytes,
				device + engine->request_bytes, engine->request_bytes, engine->back),
			"copy");
	engine_wait(engine);
	engine_must(engine, engine->driver.stream_wait(engine->back), "stream");
	return now() - start;
}

struct rates {
	double up[ROUNDS], down[ROUNDS], both[ROUNDS], retrieve[ROUNDS], store[ROUNDS], duplex[ROUNDS];
};

/* One side stores what is new while the other retrieves what it stored before. */
static double duplex_round(struct side *sides, struct kvr_session *sessions[SIDES], struct kvr_session *fresh)
{
	double start = now();
	kvr_ticket retrieve = submit(&sides[0], sessions[0], false);
	kvr_ticket store = submit(&sides[1], fresh, true);
	struct kvr_result result;
	bool stored = false, retrieved = false;

	while (!stored || !retrieved) {
		if (!retrieved && kvr_poll(sides[0].client, retrieve, &result) != -11)
			retrieved = true;
		if (!stored && kvr_poll(sides[1].client, store, &result) != -11)
			stored = true;
		if (result.error && result.error != -11)
			engine_fail("both at once: %s", result.text);
	}
	return now() - start;
}

static void bench_page(struct engine *engine, void *pinned, gpu_address device, uint32_t page)
{
	struct side sides[SIDES];
	struct rates rates;
	double bytes = (double)engine->request_bytes;

	for (uint32_t i = 0; i < SIDES; i++)
		open_side(engine, &sides[i], page, i);
	for (uint32_t round = 0; round < ROUNDS + 1; round++) {
		uint32_t at = round < ROUNDS ? round : 0; /* the first is done again: it was warm-up */
		struct kvr_session *sessions[SIDES], *fresh;
		double start;

		for (uint32_t i = 0; i < SIDES; i++)
			sessions[i] = engine_session(
				sides[i].client, sides[i].registration, page + 2 * round, sides[i].chunks);
		fresh = engine_session(sides[1].client, sides[1].registration, page + 2 * round + 1, sides[1].chunks);
		rates.up[at] = bytes / contiguous(engine, pinned, device, true, false);
		rates.down[at] = bytes / contiguous(engine, pinned, device, false, true);
		rates.both[at] = 2 * bytes / contiguous(engine, pinned, device, true, true);
		start = now();
		finish(&sides[0], submit(&sides[0], sessions[0], true));
		rates.store[at] = bytes / (now() - start);
		start = now();
		finish(&sides[0], submit(&sides[0], sessions[0], false));
		rates.retrieve[at] = bytes / (now() - start);
		rates.duplex[at] = 2 * bytes / duplex_round(sides, sessions, fresh);
		for (uint32_t i = 0; i < SIDES; i++) {
			kvr_end(sessions[i], 0);
			kvr_session_destroy(&sessions[i]);
		}
		kvr_end(fresh, 0);
		kvr_session_destroy(&fresh);
	}
	for (uint32_t i = 0; i < SIDES; i++)
		close_side(engine, &sides[i]);
	{
		double up = median(rates.up, ROUNDS), down = median(rates.down, ROUNDS),
		       both = median(rates.both, ROUNDS);
		double retrieve = median(rates.retrieve, ROUNDS), store = median(rates.store, ROUNDS);
		double duplex = median(rates.duplex, ROUNDS);

		printf("%6u  %5.1f of %5.1f = %4.2f   %5.1f of %5.1f = %4.2f   %5.1f of %5.1f = %4.2f\n", page,
			retrieve * 1e-9, up * 1e-9, retrieve / up, store * 1e-9, down * 1e-9, store / down,
			duplex * 1e-9, both * 1e-9, duplex / both);
		fflush(stdout);
	}
}

/* One block of one plane a chunk: a request moves one page. */
static void bench_latency(struct engine *engine)
{
	enum { TIMES = 2000 };
	static double request[TIMES], bare[TIMES];
	struct kvr_client *client = engine_client(engine, "latency");
	struct kvr_model model = KVR_MODEL_INIT;
	struct kvr_plane plane = { NULL, 32768, 32768 };
	struct kvr_group group = { 0, KVR_WINDOW_FULL, 64, 1, &plane };
	struct kvr_layout whole = { sizeof(whole), 1, &group };
	struct side side = { client, 0, 1, 1, NULL, 0 };
	struct kvr_session *session;
	struct kvr_info info;
	uint32_t ids[2] = { 5, 9 };

	kvr_get_info(client, &info);
	group.tokens_per_block = info.chunk_tokens;
	plane.address = (void *)(uintptr_t)engine_alloc(engine, 64 * 32768);
	model.name = "latency";
	model.dtype = "bfloat16";
	if (kvr_register(client, &model, &whole, NULL, &side.registration))
		engine_fail("kvr_register: %s", kvr_error_text());
	side.ids = ids;
	session = engine_session(client, side.registration, 1, 1);
	finish(&side, submit(&side, session, true));
	for (uint32_t i = 0; i < TIMES; i++) {
		double start = now();

		finish(&side, submit(&side, session, false));
		request[i] = now() - start;
		start = now();
		engine_fill(engine, &plane, ids, 1, 1, 1);
		while (engine->driver.stream_query(engine->stream) == GPU_NOT_READY)
			;
		bare[i] = now() - start;
	}
	qsort(request, TIMES, sizeof(double), compare);
	qsort(bare, TIMES, sizeof(double), compare);
	printf("one page of 32 KiB, RETRIEVE: p50 %.1f us, p99 %.1f us; a bare launch, polled: p50 %.1f us, p99 %.1f us\n",
		request[TIMES / 2] * 1e6, request[TIMES * 99 / 100] * 1e6, bare[TIMES / 2] * 1e6,
		bare[TIMES * 99 / 100] * 1e6);
	kvr_end(session, 0);
	kvr_session_destroy(&session);
	kvr_close(&client);
}

int engine_run_bench(struct engine *engine)
{
	const char *text = getenv("ENGINE_MIB");
	gpu_address device;
	void *pinned = NULL;

	engine->request_bytes = (text ? strtoull(text, NULL, 10) : 256) << 20;
	device = engine_alloc(engine, 2 * engine->request_bytes);

	engine_must(engine,
		engine->driver.host_alloc(&pinned, 2 * engine->request_bytes, GPU_HOST_PORTABLE | GPU_HOST_MAPPED),
		"pinned memory");
	memset(pinned, 0x5a, 2 * engine->request_bytes);
	printf("GB/s, medians of %u rounds of %llu MiB; in each cell: through the server, of a contiguous pinned copy\n",
		ROUNDS, (unsigned long long)(engine->request_bytes >> 20));
	printf("  page  RETRIEVE                 STORE                    both at once\n");
	for (uint32_t page = 4096; page <= 32768; page *= 2)
		bench_page(engine, pinned, device, page);
	bench_latency(engine);
	return 0;
}
