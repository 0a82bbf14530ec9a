#include "app/kvrail-bench/replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "app/kvrail-bench/replay_private.h"
#include "base/atomic.h"
#include "base/clock.h"

#define CEILING_EVERY_NS (400 * KVR_MS)
#define PROGRESS_TTY_NS (200 * KVR_MS)
#define PROGRESS_NS (5 * KVR_SECOND)
#define WATCH_NS (20 * KVR_MS)

#define CLEAR_TRIES 1000
#define CLEAR_PAUSE_NS 20000000

static int refuse(char *why, size_t why_size, int error, const char *text)
{
	snprintf(why, why_size, "%s", text);
	return error;
}

/* What the server says of itself decides about chunks, before anything is registered. */
static int ask_server(struct replay *replay, char *why, size_t why_size)
{
	struct kvr_options options;
	struct kvr_client *client = NULL;
	int error;

	settings_client(&replay->settings->server, "kvrail-bench", &options);
	error = kvr_open(&options, &client);
	if (!error)
		error = kvr_get_info(client, &replay->info);
	if (error)
		snprintf(why, why_size, "%s", kvr_error_text()[0] ? kvr_error_text() : strerror(-error));
	kvr_close(&client);
	return error;
}

/* Memory of a rank: what was asked for, else a share of the working set; at least a chunk for each request in flight.
 * */
static int plan_memory(struct replay *replay, char *why, size_t why_size)
{
	const struct replay_settings *settings = replay->settings;
	const struct shape *shape = &replay->shape;
	uint32_t shares = settings->clients * shape->ranks;
	uint64_t bytes = settings->pool_bytes ? settings->pool_bytes : machine_working_set(&replay->machine, shares);
	uint64_t chunks = kvr_max_u64((bytes + shape->object_bytes - 1) / shape->object_bytes, settings->depth);

	if (shape->object_bytes > bytes && settings->pool_bytes)
		return refuse(why, why_size, -EINVAL, "--pool is less than one chunk");
	if (chunks * shape->object_bytes * shares > replay->machine.available_bytes / 2)
		return refuse(why, why_size, -ENOMEM,
			"the paged memory of all ranks would take more than half of what is free: use "
			"--scale, or less --clients, --depth or --pool");
	chunks = kvr_min_u64(chunks, (uint64_t)UINT32_MAX / 2 / shape->chunk_blocks);
	replay->endpoints.blocks = (uint32_t)(chunks * shape->chunk_blocks);
	replay->segment_chunks = (uint32_t)kvr_min_u64(chunks / settings->depth, replay->info.chunks_max);
	return 0;
}

static int plan(struct replay *replay, char *why, size_t why_size)
{
	const struct replay_settings *settings = replay->settings;
	int error = ask_server(replay, why, why_size);

	if (error)
		return error;
	error = geometry_shape(replay->geometry, settings->tp, settings->block_tokens, replay->info.chunk_tokens,
		settings->scale, &replay->shape, why, why_size);
	if (!error)
		error = plan_memory(replay, why, why_size);
	if (settings->name[0])
		snprintf(replay->run, sizeof(replay->run), "bench-%s", settings->name);
	else
		snprintf(replay->run, sizeof(replay->run), "bench-%llx-%x", (unsigned long long)clock_wall_ns(),
			(unsigned)getpid());
	replay->endpoints.server = &settings->server;
	replay->endpoints.model = replay->geometry->name;
	replay->endpoints.dtype = replay->geometry->dtype;
	replay->endpoints.run = replay->run;
	replay->endpoints.shape = replay->shape;
	replay->endpoints.seed = settings->seed;
	return error;
}

static int open_clients(struct replay *replay, char *why, size_t why_size)
{
	int error = 0;

	replay->clients = calloc(replay->settings->clients, sizeof(*replay->clients));
	if (!replay->clients)
		return refuse(why, why_size, -ENOMEM, "out of memory");
	for (uint32_t i = 0; !error && i < replay->settings->clients; i++) {
		replay->clients[i].replay = replay;
		replay->clients[i].number = i;
		error = replay_client_open(&replay->clients[i], why, why_size);
	}
	return error;
}

static int open_checks(struct replay *replay, char *why, size_t why_size)
{
	const struct replay_settings *settings = replay->settings;
	int error = 0;

	if (settings->verify)
		error = generations_create(settings->clients * settings->depth, &replay->generations);
	if (error)
		return refuse(why, why_size, error, "out of memory");
	if (settings->reference) {
		replay->exact = settings->clients == 1 && settings->depth == 1 && replay->shape.holders == 1;
		replay->capacity = settings->capacity;
		if (!replay->capacity)
			error = replay_find_capacity(replay, &replay->capacity, why, why_size);
		if (!error && reference_create(replay->capacity, &replay->reference))
			error = refuse(why, why_size, -ENOMEM, "the reference has no memory, or a capacity of 0");
	}
	if (!error && settings->ceiling &&
		ceiling_init(&replay->ceiling, &replay->clients[0].ranks[0].gpu,
			settings->pool_bytes ? settings->pool_bytes : machine_working_set(&replay->machine, 1),
			settings->seed))
		error = refuse(why, why_size, -ENOMEM, "no memory to measure memcpy with: --ceiling=no");
	return error;
}

static int replay_open(struct replay *replay, char *why, size_t why_size)
{
	const struct replay_settings *settings = replay->settings;
	struct trace_error trace_error;
	int error;

	pthread_mutex_init(&replay->source_mutex, NULL);
	complaints_init(&replay->complaints);
	gate_init(&replay->gate, settings->clients);
	machine_read(&replay->machine);
	replay->geometry = geometry_find(settings->model);
	replay->next = calloc(1, sizeof(*replay->next));
	if (!replay->next)
		return refuse(why, why_size, -ENOMEM, "out of memory");
	error = trace_open(settings->trace, (enum trace_format)settings->format, settings->trace_block_tokens,
		&replay->trace, &trace_error);
	if (error)
		return refuse(why, why_size, error, trace_error.text);
	error = plan(replay, why, why_size);
	if (!error)
		error = open_clients(replay, why, why_size);
	return error ? error : open_checks(replay, why, why_size);
}

static void replay_close(struct replay *replay)
{
	for (uint32_t i = 0; replay->clients && i < replay->settings->clients; i++) {
		if (replay->clients[i].replay)
			replay_client_close(&replay->clients[i]);
	}
	free(replay->clients);
	ceiling_fini(&replay->ceiling);
	generations_destroy(&replay->generations);
	reference_destroy(&replay->reference);
	trace_close(&replay->trace);
	free(replay->next);
	gate_fini(&replay->gate);
	complaints_fini(&replay->complaints);
	pthread_mutex_destroy(&replay->source_mutex);
}

/* ---- running ---- */

static bool still_running(struct replay *replay)
{
	bool running;

	pthread_mutex_lock(&replay->gate.mutex);
	running = replay->gate.threads > 0;
	pthread_mutex_unlock(&replay->gate.mutex);
	return running;
}

static void show_progress(const struct replay *replay, bool tty)
{
	char text[200];

	replay_progress(replay, text, sizeof(text));
	fprintf(stderr, tty ? "\r%s\033[K" : "%s\n", text);
}

static void watch(struct replay *replay)
{
	bool tty = isatty(STDERR_FILENO), silent = strcmp(replay->settings->json, "-") == 0;
	uint64_t progress_ns = replay->start_ns, ceiling_ns = replay->start_ns;
	struct timespec pause = { 0, WATCH_NS };

	gate_request(&replay->gate);
	while (still_running(replay)) {
		uint64_t now_ns;

		nanosleep(&pause, NULL);
		now_ns = clock_now_ns();
		if (replay_interrupted(replay))
			kvr_store_release(&replay->complaints.stop, 1);
		if (now_ns - ceiling_ns >= CEILING_EVERY_NS && replay->settings->ceiling) {
			gate_request(&replay->gate);
			ceiling_ns = now_ns;
		}
		if (!silent && now_ns - progress_ns >= (tty ? PROGRESS_TTY_NS : PROGRESS_NS)) {
			show_progress(replay, tty);
			progress_ns = now_ns;
		}
	}
	if (tty && !silent)
		fprintf(stderr, "\r\033[K");
}

static int run_clients(struct replay *replay)
{
	int error = 0;

	replay->start_ns = clock_now_ns();
	for (uint32_t i = 0; i < replay->settings->clients; i++) {
		struct replay_client *client = &replay->clients[i];

		error = pthread_create(&client->thread, NULL, replay_client_main, client);
		client->started = !error;
		if (error) {
			complain(&replay->complaints, "client %u: no thread: %s", i, strerror(error));
			gate_leave(&replay->gate, NULL, NULL);
		}
	}
	watch(replay);
	for (uint32_t i = 0; i < replay->settings->clients; i++) {
		if (replay->clients[i].started)
			pthread_join(replay->clients[i].thread, NULL);
	}
	replay->seconds = (double)(clock_now_ns() - replay->start_ns - replay->gate.paused_ns) / (double)KVR_SECOND;
	return -error;
}

/* A server with an L2 holds what it is writing there, so several times where that may be. */
static int clear_all(const struct replay *replay, const struct endpoint *endpoint, struct kvr_result *result)
{
	const struct timespec pause = { 0, CLEAR_PAUSE_NS };
	uint32_t tries = replay->settings->old_copies ? CLEAR_TRIES : 1;
	int error;

	for (;;) {
		error = kvr_clear(endpoint->client, endpoint->registration, 0, result);
		if (error || result->from_l2 == 0 || --tries == 0)
			return error;
		nanosleep(&pause, NULL);
	}
}

/* Leaves the server as it was. */
static void clear_server(struct replay *replay)
{
	const struct endpoint *endpoint = &replay->clients[0].ranks[0];
	struct kvr_result result;
	int error;

	if (replay->settings->keep || replay->clients[0].hopeless || kvr_health(endpoint->client) != KVR_HEALTHY)
		return;
	error = clear_all(replay, endpoint, &result);
	if (error == -EPERM)
		return; /* a tenant that may not clear: what was stored ages */
	if (error)
		complain(&replay->complaints, "clear: %s", kvr_error_text());
	else if (result.from_l2 != 0)
		complain(&replay->complaints, "clear: %u chunks are still in use after all requests have ended",
			result.from_l2);
}

int replay_run(const struct replay_settings *settings, const int *interrupted)
{
	struct replay *replay = calloc(1, sizeof(*replay));
	char why[400] = "out of memory";
	int code = 1;

	if (!replay) {
		fprintf(stderr, "kvrail-bench: %s\n", why);
		return 1;
	}
	replay->settings = settings;
	replay->interrupted = interrupted;
	if (replay_open(replay, why, sizeof(why))) {
		fprintf(stderr, "kvrail-bench: %s\n", why);
	} else {
		int error = run_clients(replay);

		clear_server(replay);
		if (replay_report(replay) == 0 && !error && replay->complaints.count == 0)
			code = 0;
	}
	replay_close(replay);
	free(replay);
	return code;
}
