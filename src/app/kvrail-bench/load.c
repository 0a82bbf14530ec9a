#include "app/kvrail-bench/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/kvrail-bench/load_private.h"
#include "base/atomic.h"
#include "base/clock.h"

#define CHUNK_BLOCKS 16
#define REQUEST_BYTES ((uint64_t)8 << 20)
#define LOOKUP_CHUNKS 512
#define SESSION_STORES 32
#define LOOKUP_CHAINS 64 /* of all clients */
#define CEILING_SLICES 3
#define SET_BYTES_MAX ((uint64_t)512 << 20) /* when nobody said how much: half of a default L1 */

static int refuse(char *why, size_t why_size, int error, const char *text)
{
	snprintf(why, why_size, "%s", text);
	return error;
}

static int ask_server(struct load *load, char *why, size_t why_size)
{
	struct kvr_options options;
	struct kvr_client *client = NULL;
	int error;

	settings_client(&load->settings->server, "kvrail-bench", &options);
	error = kvr_open(&options, &client);
	if (!error)
		error = kvr_get_info(client, &load->info);
	if (error)
		snprintf(why, why_size, "%s", kvr_error_text()[0] ? kvr_error_text() : strerror(-error));
	kvr_close(&client);
	return error;
}

static int plan_model(struct load *load, char *why, size_t why_size)
{
	const struct load_settings *settings = load->settings;
	uint32_t block_tokens = load->info.chunk_tokens % CHUNK_BLOCKS == 0 ? load->info.chunk_tokens / CHUNK_BLOCKS
									    : load->info.chunk_tokens;
	struct shape *shape = &load->shape;
	int error = geometry_shape(geometry_find(settings->model), settings->tp, block_tokens, load->info.chunk_tokens,
		settings->scale, shape, why, why_size);

	if (error)
		return error;
	/* One rank alone. */
	shape->ranks = shape->holders = shape->readers = 1;
	shape->chunk_bytes_total = shape->object_bytes;
	return 0;
}

static void plan_shape(struct load *load)
{
	const struct load_settings *settings = load->settings;
	struct shape *shape = &load->shape;
	/* LOOKUP moves nothing: its chunks are as small as they can be. */
	bool small = settings->op == LOAD_LOOKUP || settings->op == LOAD_PING;

	shape->ranks = shape->holders = shape->readers = 1;
	shape->planes = small ? 1 : settings->planes;
	shape->chunk_tokens = load->info.chunk_tokens;
	shape->chunk_blocks = load->info.chunk_tokens % CHUNK_BLOCKS == 0 ? CHUNK_BLOCKS : 1;
	shape->block_tokens = shape->chunk_tokens / shape->chunk_blocks;
	shape->block_bytes = small ? GEOMETRY_BLOCK_BYTES_MIN : (uint32_t)settings->block_bytes;
	shape->object_bytes = (uint64_t)shape->block_bytes * shape->planes * shape->chunk_blocks;
	shape->chunk_bytes_total = shape->object_bytes;
}

static void plan_chunks(struct load *load)
{
	const struct load_settings *settings = load->settings;

	load->chunks = settings->chunks;
	if (!load->chunks && settings->op == LOAD_LOOKUP)
		load->chunks = LOOKUP_CHUNKS;
	if (!load->chunks)
		load->chunks = (uint32_t)kvr_min_u64(64, kvr_max_u64(1, REQUEST_BYTES / load->shape.object_bytes));
	load->chunks = (uint32_t)kvr_min_u64(load->chunks, load->info.chunks_max);
	load->stores = (uint32_t)kvr_min_u64(SESSION_STORES, load->info.chunks_max / load->chunks);
}

static int plan(struct load *load, char *why, size_t why_size)
{
	const struct load_settings *settings = load->settings;
	uint64_t set, request, blocks;
	int error = ask_server(load, why, why_size);

	if (error)
		return error;
	if (settings->model[0] && load_moves_bytes(load))
		error = plan_model(load, why, why_size);
	else
		plan_shape(load);
	if (error)
		return error;
	plan_chunks(load);
	load->depth = load_depth(settings);
	load->crowded = load_threads(settings) >= load->machine.cores;
	request = load->chunks * load->shape.object_bytes;
	set = settings->set_bytes
		? settings->set_bytes / settings->clients
		: kvr_min_u64(machine_working_set(&load->machine, 1), SET_BYTES_MAX) / settings->clients;
	load->chains = settings->op == LOAD_LOOKUP && !settings->set_bytes
		? (uint32_t)kvr_max_u64(LOOKUP_CHAINS / settings->clients, load->depth)
		: (uint32_t)kvr_max_u64(kvr_max_u64(set / request, 2), load->depth);
	load->strangers = load_asks(load) && settings->hit_percent < 100 ? load->depth : 0;
	/* As much paged memory as there is in the set, so that both sides of a copy are beyond the caches. */
	blocks = kvr_max_u64(set / request, load->depth) * load->chunks * load->shape.chunk_blocks;
	if (!load_moves_bytes(load))
		blocks = (uint64_t)load->chunks * load->shape.chunk_blocks;
	if (blocks > UINT32_MAX / 2 ||
		fakegpu_bytes(&load->shape, (uint32_t)blocks) * settings->clients > load->machine.available_bytes / 2)
		return refuse(why, why_size, -ENOMEM,
			"the paged memory would take more than half of what is free: less --clients, --depth, "
			"--chunks or --set");
	load->endpoints.blocks = (uint32_t)blocks;
	snprintf(load->run, sizeof(load->run), "load-%llx-%x", (unsigned long long)clock_wall_ns(), (unsigned)getpid());
	load->endpoints.server = &settings->server;
	load->endpoints.model = "kvrail-bench load";
	load->endpoints.dtype = "bytes";
	load->endpoints.run = load->run;
	load->endpoints.shape = load->shape;
	load->endpoints.seed = settings->seed;
	return skew_init(&load->skew, load->chains, settings->skew_theta)
		? refuse(why, why_size, -ENOMEM, "out of memory")
		: 0;
}

static int open_client(struct load_client *client, char *why, size_t why_size)
{
	struct load *load = client->load;
	const struct load_settings *settings = load->settings;
	int error;

	measure_init(&client->measure);
	random_init(&client->random, settings->seed + client->number);
	if (settings->rate)
		pacing_init(&client->pacing, (double)settings->rate / settings->clients, settings->arrival == LOAD_EVEN,
			settings->seed + 1000 + client->number);
	client->chains = calloc(load->chains + load->strangers, sizeof(*client->chains));
	client->slots = calloc(load->depth, sizeof(*client->slots));
	client->tokens = calloc(
		(size_t)load->stores * load->chunks * load->shape.chunk_tokens, sizeof(*client->tokens));
	if (!client->chains || !client->slots || !client->tokens)
		return refuse(why, why_size, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < load->depth; i++) {
		client->slots[i].ids = calloc((size_t)load->chunks * load->shape.chunk_blocks, sizeof(uint32_t));
		client->slots[i].outcomes = calloc(load->chunks, 1);
		if (!client->slots[i].ids || !client->slots[i].outcomes)
			return refuse(why, why_size, -ENOMEM, "out of memory");
	}
	error = endpoint_open_rank(&client->endpoint, &load->endpoints, 0, why, why_size);
	client->endpoint.gpu.contiguous = settings->blocks == LOAD_CONTIGUOUS;
	if (!error && load_has_set(load))
		error = load_set_store(client, why, why_size);
	return error;
}

static void close_client(struct load_client *client)
{
	load_set_close(client);
	for (uint32_t i = 0; client->slots && i < client->load->depth; i++) {
		free(client->slots[i].ids);
		free(client->slots[i].outcomes);
	}
	if (client->endpoint.client)
		endpoint_close(&client->endpoint);
	measure_fini(&client->measure);
	free(client->chains);
	free(client->slots);
	free(client->tokens);
}

/* What else can be measured beside: without it the run is as good. */
static void open_limits(struct load *load)
{
	const struct load_settings *settings = load->settings;
	char first[64] = "";
	struct rawloop_options options = { .driver = load->info.driver,
		.device = settings->server.device[0] ? first : NULL,
		.page_bytes = load->shape.block_bytes,
		.seed = settings->seed };

	if (!settings->ceiling)
		return;
	(void)!text_list_item(settings->server.device, 0, first, sizeof(first));
	load->bare = calloc(1, sizeof(*load->bare));
	if (load->bare)
		bare_init(load->bare);
	if (!load_moves_bytes(load) || load->gpumem)
		return;
	options.working_set = load->ceiling.working_set;
	if (rawloop_open(&options, &load->raw))
		load->raw = NULL;
}

static int load_open(struct load *load, char *why, size_t why_size)
{
	const struct load_settings *settings = load->settings;
	int error;

	complaints_init(&load->complaints);
	gate_init(&load->gate, load_threads(settings));
	machine_read(&load->machine);
	error = plan(load, why, why_size);
	if (error)
		return error;
	load->clients = calloc(settings->clients, sizeof(*load->clients));
	load->threads = calloc(load_threads(settings), sizeof(*load->threads));
	load->rounds = calloc(settings->rounds, sizeof(*load->rounds));
	if (!load->clients || !load->threads || !load->rounds)
		return refuse(why, why_size, -ENOMEM, "out of memory");
	if (settings->memory == LOAD_GPU) {
		error = gpumem_open(settings->gpu, &load->gpumem, why, why_size);
		load->endpoints.gpumem = load->gpumem;
	}
	for (uint32_t i = 0; !error && i < settings->clients; i++) {
		load->clients[i].load = load;
		load->clients[i].number = i;
		error = open_client(&load->clients[i], why, why_size);
	}
	if (!error && settings->ceiling && load_moves_bytes(load) && !load->gpumem &&
		ceiling_init(&load->ceiling, &load->clients[0].endpoint.gpu,
			settings->set_bytes ? settings->set_bytes : machine_working_set(&load->machine, 1),
			settings->seed))
		error = refuse(why, why_size, -ENOMEM, "no memory to measure memcpy with");
	if (!error)
		open_limits(load);
	return error;
}

static void load_close(struct load *load)
{
	for (uint32_t i = 0; load->clients && i < load->settings->clients; i++) {
		if (load->clients[i].load)
			close_client(&load->clients[i]);
	}
	free(load->clients);
	free(load->threads);
	free(load->rounds);
	free(load->intervals);
	skew_fini(&load->skew);
	ceiling_fini(&load->ceiling);
	rawloop_close(load->raw);
	gpumem_close(load->gpumem);
	free(load->bare);
	gate_fini(&load->gate);
	complaints_fini(&load->complaints);
}

/* ---- rounds ---- */

static void sums(const struct load *load, uint64_t *bytes, uint64_t *operations)
{
	*bytes = *operations = 0;
	for (uint32_t i = 0; i < load->settings->clients; i++) {
		const struct counters *counters = &load->clients[i].counters;

		*bytes += kvr_load_relaxed(&counters->bytes_stored) + kvr_load_relaxed(&counters->bytes_retrieved);
		*operations += kvr_load_relaxed(&counters->requests);
	}
}

static void note_round(struct load *load, uint64_t now_ns)
{
	struct load_round *round = &load->rounds[load->rounds_done++];
	uint64_t bytes, operations;

	sums(load, &bytes, &operations);
	round->seconds = (double)(now_ns - load->round_begin_ns) / (double)KVR_SECOND;
	round->requests = operations - load->round_operations;
	round->cpu_seconds = load_cpu() - load->round_cpu;
	round->server_cpu_seconds = load_server_cpu(load) - load->round_server_cpu;
	round->gbps = (double)(bytes - load->round_bytes) / 1e9 / round->seconds;
	round->operations = (double)(operations - load->round_operations) / round->seconds;
}

/* How long the small requests took so far, median; 0 where bytes are moved, and before the first round. */
static uint64_t small_request_ns(const struct load *load)
{
	enum measure_op op = load->settings->op == LOAD_PING ? MEASURE_PING : MEASURE_LOOKUP;

	return load_moves_bytes(load) ? 0 : histogram_percentile(&load->clients[0].measure.latency[op], 500000);
}

void load_round_end(void *context)
{
	struct load *load = context;
	uint64_t now_ns = clock_now_ns();
	bool begun = load->round_begin_ns != 0;

	if (begun && load->round > 0)
		note_round(load, now_ns);
	load->over = load->rounds_done == load->settings->rounds || kvr_load_acquire(&load->complaints.stop);
	for (unsigned i = 0; load->ceiling.objects && i < CEILING_SLICES; i++)
		ceiling_measure(&load->ceiling, &load->clients[0].endpoint.gpu, false);
	for (unsigned i = 0; load->gpumem && load->settings->ceiling && i < CEILING_SLICES; i++)
		gpumem_measure(load->gpumem);
	for (unsigned i = 0; load->raw && i < CEILING_SLICES; i++) {
		if (rawloop_measure(load->raw)) {
			rawloop_close(load->raw);
			load->raw = NULL;
		}
	}
	if (load->bare)
		bare_measure(load->bare, small_request_ns(load));
	load->round += begun;
	sums(load, &load->round_bytes, &load->round_operations);
	load->round_cpu = load_cpu();
	load->round_server_cpu = load_server_cpu(load);
	load->round_begin_ns = clock_now_ns();
	if (begun && !load->first_round_ns)
		load->first_round_ns = load->round_begin_ns;
	load->round_end_ns = load->round_begin_ns +
		(begun ? load->settings->seconds * KVR_SECOND / load->settings->rounds : load->settings->warm_up_ns);
}

static void run_clients(struct load *load, const int *interrupted)
{
	uint32_t count = load_threads(load->settings), next = 0;
	bool any = false;

	for (uint32_t i = 0; i < count; i++) {
		struct load_thread *thread = &load->threads[i];
		int error;

		thread->load = load;
		thread->clients = &load->clients[next];
		thread->count = (load->settings->clients - next) / (count - i);
		next += thread->count;
		error = pthread_create(&thread->thread, NULL, load_thread_main, thread);
		thread->started = !error;
		any |= thread->started;
		if (error) {
			complain(&load->complaints, "no thread for client %u: %s", thread->clients->number,
				strerror(error));
			gate_leave(&load->gate, load_round_end, load);
		}
	}
	if (any)
		load_watch(load, interrupted);
	for (uint32_t i = 0; i < count; i++) {
		if (load->threads[i].started)
			pthread_join(load->threads[i].thread, NULL);
	}
}

static void clear_server(struct load *load)
{
	const struct endpoint *endpoint = &load->clients[0].endpoint;
	struct kvr_result result;
	int error;

	for (uint32_t i = 0; i < load->settings->clients; i++)
		load_set_close(&load->clients[i]);
	if (kvr_health(endpoint->client) != KVR_HEALTHY)
		return;
	error = kvr_clear(endpoint->client, endpoint->registration, 0, &result);
	if (error && error != -EPERM) /* a tenant that may not clear: what was stored ages */
		complain(&load->complaints, "clear: %s", kvr_error_text());
}

int load_run(const struct load_settings *settings, const int *interrupted)
{
	struct load *load = calloc(1, sizeof(*load));
	char why[400] = "out of memory";
	int code = 1;

	if (!load) {
		fprintf(stderr, "kvrail-bench: %s\n", why);
		return 1;
	}
	load->settings = settings;
	if (load_open(load, why, sizeof(why))) {
		fprintf(stderr, "kvrail-bench: %s\n", why);
	} else {
		run_clients(load, interrupted);
		machine_finish(&load->machine);
		for (uint32_t i = 0; settings->verify && load_has_set(load) && i < settings->clients; i++)
			load_set_verify(&load->clients[i]);
		clear_server(load);
		if (load_report(load) == 0 && load->complaints.count == 0)
			code = 0;
	}
	load_close(load);
	free(load);
	return code;
}
