/* process.c - a client process: begun, registered, stepped, and ended in one way or another. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-sim/world_private.h"

#define RESPAWN_NS (20 * KVR_MS)

void process_init(struct world *world, struct process *process, uint32_t engine, uint32_t rank, uint32_t reader)
{
	process->world = world;
	process->number = (uint32_t)(process - world->processes);
	process->engine = engine;
	process->scheduler = rank == UINT32_MAX;
	process->rank = process->scheduler ? 0 : rank;
	process->reader = reader;
	process->shape = world->engines[engine].shape;
	list_init(&process->actions);
	process->state = PROCESS_DEAD;
}

void process_disturb(struct process *process)
{
	process->disturbed = ++process->world->sequence;
}

bool process_excused(const struct process *process)
{
	const struct world *world = process->world;
	const struct host *host = process_host(process);

	return !process_clean(process) || host->draining || !host->server ||
		world->network.register_fail_per_million > 0;
}

static void close_devices(struct process *process)
{
	if (process->device)
		verbs_sim.close(process->device);
	if (process->rail)
		verbs_sim.close(process->rail);
	process->device = process->rail = NULL;
}

static void process_die(struct process *process)
{
	struct world *world = process->world;

	client_destroy(&process->client);
	memset(process->sessions, 0, sizeof(process->sessions)); /* they went with the client */
	action_lose_all(process);
	blocks_drop(process, false);
	close_devices(process);
	process->state = PROCESS_DEAD;
	process->stalled_until_ns = 0;
	process->fallen.device = NULL;
	process->spawn_ns = world->now_ns + world_draw(world, RESPAWN_NS);
	process_disturb(process);
}

void process_crash(struct process *process)
{
	if (process->state == PROCESS_DEAD)
		return;
	NOTE(process->world, "process %llu: killed", process->number);
	sim_fabric_kill_device(process->world->fabric, process->device);
	if (process->rail)
		sim_fabric_kill_device(process->world->fabric, process->rail);
	process_die(process);
}

void process_leave(struct process *process)
{
	if (process->state == PROCESS_DEAD)
		return;
	/* Who does not wait for the end of what it began has not left but died. */
	if (process->in_flight > 0 || !client_quiet(process->client)) {
		process_crash(process);
		return;
	}
	NOTE(process->world, "process %llu: leaves", process->number);
	if (process->pool)
		blocks_check(process);
	process_die(process);
}

void process_fini(struct process *process)
{
	if (process->state != PROCESS_DEAD)
		process_crash(process);
}

static bool process_spawn(struct process *process)
{
	static const struct kvr_options fresh = KVR_OPTIONS_INIT;
	struct world *world = process->world;
	struct client_options options;
	struct verbs_open open;
	char name[32];
	int error;

	if (world->now_ns < process->spawn_ns)
		return false;
	memset(&open, 0, sizeof(open));
	open.fabric = world->fabric;
	error = verbs_sim.open(&open, &process->device);
	if (!error && world->rails > 1)
		error = verbs_sim.open(&open, &process->rail);
	if (error) {
		close_devices(process);
		world->no_memory = true;
		return false;
	}
	process->options = fresh;
	snprintf(name, sizeof(name), "process %u", process->number);
	process->options.name = name;
	process->options.tenant = world->tenants[process_engine(process)->tenant].name;
	process->options.in_flight = world_draw(world, 3) ? 0 : 2 + (uint32_t)world_draw(world, 6);
	memset(&options, 0, sizeof(options));
	options.user = &process->options;
	options.device = process->device;
	options.rails[0] = process->rail;
	options.rail_count = process->rail ? 1 : 0;
	options.connect = world_connect;
	options.context = process;
	options.seed = world_draw(world, UINT32_MAX);
	options.plain = options.seed % 4 == 0;
	error = client_create(&options, &process->client);
	process->options.name = NULL;
	if (error) { /* registering memory failed, as it may */
		close_devices(process);
		process->spawn_ns = world->now_ns + KVR_MS;
		if (!world->network.register_fail_per_million)
			world_violated(world, "process %u: no client: %s", process->number, strerror(-error));
		return false;
	}
	process->incarnation++;
	process->was_ready = false;
	process->state = PROCESS_JOINING;
	process->shape = process_engine(process)->shape;
	NOTE(world, "process %llu: begins, of engine %llu, incarnation %llu", process->number, process->engine,
		process->incarnation);
	return true;
}

static void process_model(const struct process *process, struct kvr_model *model)
{
	static const struct kvr_model fresh = KVR_MODEL_INIT;
	const struct shape *shape = &process->world->shapes[process->shape];

	*model = fresh;
	model->name = shape->name;
	model->dtype = shape->dtype;
	model->engine = shape->engine;
	model->world_size = shape->world_size;
	model->rank = process->rank;
	model->readers = shape->readers;
	model->reader = process->reader;
}

static int process_submit_register(struct process *process)
{
	const struct shape *shape = &process->world->shapes[process->shape];
	struct kvr_plane planes[8];
	struct kvr_layout layout;
	struct kvr_group group;
	struct kvr_model model;

	process_model(process, &model);
	if (process->scheduler)
		return client_submit_register(process->client, &model, NULL,
			process->world->fingerprints[process->shape], &process->registration, &process->ticket);
	for (uint32_t p = 0; p < shape->planes; p++) {
		planes[p].address = blocks_at(process, p, 0);
		planes[p].block_stride = process->block_stride;
		planes[p].block_bytes = shape->block_bytes;
	}
	memset(&group, 0, sizeof(group));
	group.tokens_per_block = shape->block_tokens;
	group.window_tokens = KVR_WINDOW_FULL;
	group.block_count = process->block_count;
	group.plane_count = shape->planes;
	group.planes = planes;
	layout.struct_bytes = sizeof(layout);
	layout.group_count = 1;
	layout.groups = &group;
	/* The stride is the process' own affair: the fingerprint of the layout is that of its blocks. */
	return client_submit_register(process->client, &model, &layout, process->world->fingerprints[process->shape],
		&process->registration, &process->ticket);
}

static bool process_join(struct process *process)
{
	int error = 0;

	if (!client_ready(process->client))
		return false;
	if (!process->scheduler && !process->pool)
		error = blocks_make(process);
	if (error) {
		process->world->no_memory = true;
		return false;
	}
	error = process_submit_register(process);
	if (!error) {
		process->state = PROCESS_REGISTERING;
		return true;
	}
	if (!process->world->network.register_fail_per_million)
		world_violated(
			process->world, "process %u: REGISTER was not taken: %s", process->number, strerror(-error));
	return false;
}

static bool process_take_ticket(struct process *process)
{
	struct world *world = process->world;
	struct kvr_result result;

	if (client_take(process->client, process->ticket, &result) == -EAGAIN)
		return false;
	if (process->state == PROCESS_UNREGISTERING) {
		NOTE(world, "process %llu: unregistered, error %llu", process->number, (uint64_t)-result.error);
		process->state = PROCESS_BARE;
		process_disturb(process);
		return true;
	}
	NOTE(world, "process %llu: registered, shape %llu, error %llu", process->number, process->shape,
		(uint64_t)-result.error);
	if (!result.error) {
		process->state = PROCESS_STANDING;
		return true;
	}
	process->state = PROCESS_JOINING;
	if (!process_excused(process))
		world_violated(world, "process %u: REGISTER failed: %s: %s", process->number, strerror(-result.error),
			result.text);
	return true;
}

/* Replies may come later than that of UNREGISTER: another leg. The memory is not touched any more, though. */
static bool process_change(struct process *process)
{
	if (process->in_flight > 0)
		return false;
	for (uint32_t s = 0; s < WORLD_SESSIONS; s++)
		process_drop_session(process, s);
	blocks_drop(process, true);
	process->shape = process->next_shape;
	process->state = PROCESS_JOINING;
	return true;
}

void process_unregister(struct process *process, uint32_t next_shape)
{
	if (process->state != PROCESS_STANDING ||
		client_submit_unregister(process->client, process->registration, &process->ticket))
		return;
	process->state = PROCESS_UNREGISTERING;
	process->next_shape = next_shape;
	process_disturb(process);
	NOTE(process->world, "process %llu: unregisters, %llu requests under way", process->number, process->in_flight);
}

struct kvr_session *process_session(struct process *process, struct world_session *session)
{
	static const char *const salts[WORLD_SALTS] = { NULL, "a", "b" };
	const struct document *document = &process->world->documents[session->document];
	struct kvr_session **own = &process->sessions[session->slot];
	int error = 0;

	if (!process_ready(process))
		return NULL;
	if (!*own)
		error = client_session_create(
			process->client, process->registration, session->id, salts[session->salt], own);
	if (!error && world_draw(process->world, 8))
		error = client_session_digests(*own, document->digests, session->length);
	else if (!error)
		error = client_session_tokens(*own, document->tokens, (size_t)session->length * WORLD_CHUNK_TOKENS);
	if (!error)
		return *own;
	world_violated(process->world, "process %u: session %s can't be named: %s", process->number, session->id,
		strerror(-error));
	return NULL;
}

void process_drop_session(struct process *process, uint32_t slot)
{
	if (process->sessions[slot] && client_session_destroy(&process->sessions[slot]))
		world_violated(process->world, "process %u: a session that nothing is under way for is in use",
			process->number);
}

static void process_note_connection(struct process *process)
{
	bool ready = client_ready(process->client);
	const char *text;

	if (ready == process->was_ready)
		return;
	process->was_ready = ready;
	NOTE(process->world, "process %llu: %llu (1: connected, 0: lost)", process->number, ready);
	if (ready) {
		process->world->report->reconnects++;
		return;
	}
	world_watch_server(process->world);
	(void)client_failure(process->client, &text);
	if (!process_excused(process))
		world_violated(process->world, "process %u: its connection broke, and nobody had touched it: %s",
			process->number, text);
	process_disturb(process);
}

bool process_turn(struct process *process)
{
	bool busy;

	if (process->state == PROCESS_DEAD)
		return process_spawn(process);
	busy = client_step(process->client, process->world->now_ns);
	process_note_connection(process);
	if (process->in_flight > 0)
		busy |= action_collect(process);
	if (process->state == PROCESS_JOINING)
		busy |= process_join(process);
	else if (process->state == PROCESS_BARE)
		busy |= process_change(process);
	else if (process->state != PROCESS_STANDING)
		busy |= process_take_ticket(process);
	return busy;
}
