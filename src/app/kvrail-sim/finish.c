/* finish.c - the end of a world: peace, a proof that everything works, everybody leaves, and what must hold then. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-sim/world_private.h"

#define FILL_EVICTIONS 4096u

/* A RETRIEVE's reply is right behind its data, and what was pinned for it is so until the completion has been seen. */
static void check_locks(struct host *host, const char *when)
{
	struct world *world = host->world;
	uint64_t until_ns = world->now_ns + WORLD_PATIENCE_NS;
	struct cache_stats stats;

	cache_get_stats(server_cache(host->server), &stats);
	while (stats.pins > 0 && world->now_ns < until_ns && !world_stopped(world)) {
		world_turn(world);
		cache_get_stats(server_cache(host->server), &stats);
	}
	if (stats.locks || stats.pins || stats.staged)
		world_violated(world, "%s there are %llu locks, %llu pins, %llu staged objects", when,
			(unsigned long long)stats.locks, (unsigned long long)stats.pins,
			(unsigned long long)stats.staged);
}

/* All ranks at once. Who was refused because large requests are few asks again, alone. */
static void prove_retrieve(
	struct world *world, struct engine *engine, struct world_session *session, const struct transfer_choice *choice)
{
	struct process *workers = &world->processes[engine->first_process + 1];
	uint64_t refused[WORLD_WORKERS_MAX];

	for (uint32_t i = 0; i < engine->worker_count; i++) {
		refused[i] = workers[i].refused;
		if (!action_transfer(&workers[i], session, false, choice))
			world_violated(world, "engine %u: RETRIEVE was not taken in the end", session->engine);
	}
	for (uint32_t i = 0; i < engine->worker_count && world_settle(world); i++) {
		if (workers[i].refused == refused[i])
			continue;
		if (!action_transfer(&workers[i], session, false, choice))
			world_violated(world, "engine %u: RETRIEVE was not taken again", session->engine);
		if (world_settle(world) && workers[i].refused != refused[i] + 1)
			world_violated(
				world, "process %u: RETRIEVE, the only request, is refused as BUSY", workers[i].number);
	}
}

/* Everybody stores something, looks it up, and reads it: after whatever happened. */
static void prove_engine(struct world *world, struct engine *engine)
{
	struct process *scheduler = &world->processes[engine->first_process];
	struct transfer_choice choice;
	struct world_session *session;

	for (uint32_t s = 0; s < WORLD_SESSIONS; s++)
		world_session_close(world, &engine->sessions[s]);
	if (!world_session_open(world, engine, 1, 0xfffff000))
		return;
	session = session_pick(world, engine, 0, true);
	memset(&choice, 0, sizeof(choice));
	choice.count = session->length;
	for (uint32_t i = 1; i <= engine->worker_count; i++)
		if (scheduler[i].reader == 0)
			action_transfer(&scheduler[i], session, true, &choice);
	if (!world_settle(world))
		return;
	if (!action_lookup(scheduler, session, 0))
		world_violated(world, "engine %u: LOOKUP was not taken in the end", session->engine);
	if (!world_settle(world))
		return;
	prove_retrieve(world, engine, session, &choice);
	if (world_settle(world))
		check_locks(&world->hosts[engine->host], "after all ranks have read what was locked");
}

/* Workers that took another layout come back to their engine's. */
static void reunite(struct world *world)
{
	for (uint32_t i = 0; i < world->process_count; i++) {
		struct process *process = &world->processes[i];

		if (process->shape != process_engine(process)->shape)
			process_unregister(process, process_engine(process)->shape);
	}
	world_settle(world);
}

/* Who has nothing to say does not notice that its link was cut: it would in the midst of the proof, and release nothing then. And whose
 * engine moved may think that it still has its old connection: that server will not tell the new one when it goes. */
static void notice_losses(struct world *world)
{
	for (uint32_t i = 0; i < world->process_count; i++)
		if (process_ready(&world->processes[i]))
			action_ping(&world->processes[i]);
	world_settle(world);
}

/* Locks reach their limit, and nobody is silent for too long meanwhile. */
static void outlive_locks(struct world *world)
{
	uint64_t until_ns = world->now_ns + world->hosts[0].server_options.lock_ttl_ns + 20 * KVR_MS;

	while (world->now_ns < until_ns && !world_stopped(world))
		world_turn(world);
	for (uint32_t i = 0; i < world->host_count && world_settle(world); i++)
		check_locks(&world->hosts[i], "after the limit of all locks");
}

static bool left_alone(const struct host *host)
{
	return control_client_count(server_control(host->server)) == 0 && tiers_well(host);
}

static void all_leave(struct world *world)
{
	uint64_t until_ns = world->now_ns + WORLD_PATIENCE_NS;

	for (uint32_t i = 0; i < world->process_count; i++) {
		process_leave(&world->processes[i]);
		world->processes[i].spawn_ns = UINT64_MAX;
	}
	for (uint32_t i = 0; i < world->host_count && !world_stopped(world);) {
		struct host *host = &world->hosts[i];

		if (left_alone(host)) {
			i++;
			continue;
		}
		if (world->now_ns > until_ns)
			world_violated(world, "all clients have left, and server %u still has %u", i,
				control_client_count(server_control(host->server)));
		world_turn(world);
	}
}

static void status_came(void *context, struct status_snapshot *snapshot)
{
	(void)snapshot;
	*(bool *)context = true;
}

static void check_nothing_left(struct host *host)
{
	struct world *world = host->world;
	struct status_snapshot *snapshot = calloc(1, sizeof(*snapshot));
	bool came = false;

	if (!snapshot || control_request_status(server_control(host->server), snapshot, status_came, &came)) {
		world->no_memory = true;
		free(snapshot);
		return;
	}
	for (uint32_t i = 0; i < 1000 && !came; i++)
		world_turn(world);
	if (!came)
		world_violated(world, "STATUS is not answered");
	else if (snapshot->sessions || snapshot->registrations || snapshot->connections || snapshot->parked ||
		snapshot->transfers)
		world_violated(world,
			"all have left, and there are %u sessions, %u registrations, %u connections, %u requests, %u transfers",
			snapshot->sessions, snapshot->registrations, snapshot->connections, snapshot->parked,
			snapshot->transfers);
	free(snapshot);
}

/* How many objects of that size an empty L1 holds; 0: not known. */
static uint64_t empty_room(struct host *host, uint64_t object_bytes)
{
	struct l1 *scratch;
	uint32_t object_class;
	uint64_t room = 0;

	if (l1_create(host->areas, host->server_options.area_count, &scratch))
		return 0;
	if (!l1_class_acquire(scratch, object_bytes, &object_class))
		room = l1_class_room(scratch, object_class);
	l1_destroy(&scratch);
	return room;
}

/* Nobody is there, so nothing is held: every byte of L1 can be had again (pitfalls D02, A03). */
static void fill_l1(struct host *host)
{
	static const struct cache_quota no_quota = { 0, 0 };
	struct world *world = host->world;
	const struct shape *shape = &world->shapes[world->engines[0].shape];
	uint64_t bytes = (uint64_t)shape->planes * shape->blocks_per_chunk * shape->block_bytes;
	struct cache *cache = server_cache(host->server);
	uint64_t room = empty_room(host, bytes), count = 0;
	l1_ref *objects = calloc(room + 1, sizeof(*objects));
	uint32_t object_class;

	if (!objects || !room || l1_class_acquire(server_l1(host->server), bytes, &object_class)) {
		free(objects);
		return;
	}
	cache_set_quota(cache, 0, &no_quota);
	while (count <= room) {
		objects[count] = cache_reserve(cache, 0, object_class, 0, FILL_EVICTIONS);
		if (!objects[count])
			break;
		count++;
	}
	if (count != room)
		world_violated(world, "an empty L1 holds %llu objects, this one gave room for %llu",
			(unsigned long long)room, (unsigned long long)count);
	while (count > 0)
		cache_abort(cache, objects[--count]);
	l1_class_release(server_l1(host->server), object_class);
	free(objects);
	if (server_verify(host->server, true))
		world_violated(world, "the books are wrong after L1 was filled");
}

static void check_network(struct world *world)
{
	struct sim_counters counters;

	sim_fabric_counters(world->fabric, &counters);
	if (counters.misuses)
		world_violated(world, "a driver was used wrongly %llu times", (unsigned long long)counters.misuses);
	if (counters.cq_overflows)
		world_violated(world, "completion queues were too small");
}

/* Where no connection was lost, replies are as many as requests. */
static void check_replies(struct host *host)
{
	struct world *world = host->world;
	uint64_t requests = 0, replies = 0;

	if (world->report->faults || world->report->restarts)
		return;
	for (uint32_t i = 0; i < server_worker_count(host->server); i++) {
		const struct worker_counters *counters = worker_counters(server_worker(host->server, i));

		requests += counters->requests_total;
		replies += counters->replies_total;
	}
	if (requests != replies)
		world_violated(world, "%llu requests came, %llu replies went", (unsigned long long)requests,
			(unsigned long long)replies);
}

/* It has been left alone. */
static void finish_host(struct host *host)
{
	struct world *world = host->world;

	check_nothing_left(host);
	if (!world_stopped(world))
		fill_l1(host);
	if (!world_stopped(world))
		tiers_check(host);
	if (world_stopped(world))
		return;
	host->server_back_ns = UINT64_MAX;
	(void)world_server_drained(host);
	for (uint32_t i = 0; i < 20000 && host->server && !world_stopped(world); i++)
		world_turn(world);
	if (host->server)
		world_violated(world, "an idle server does not drain");
}

static void verify_hosts(struct world *world, bool empty, const char *wrong)
{
	for (uint32_t i = 0; i < world->host_count && !world_stopped(world); i++)
		if (server_verify(world->hosts[i].server, empty))
			world_violated(world, "server %u: %s", i, wrong);
}

void world_finish(struct world *world)
{
	trouble_heal(world);
	if (!world_settle(world))
		return;
	verify_hosts(world, false, "its books are wrong");
	if (world_stopped(world))
		return;
	reunite(world);
	if (world_stopped(world))
		return;
	notice_losses(world);
	if (world_stopped(world))
		return;
	outlive_locks(world);
	for (uint32_t e = 0; e < world->engine_count && !world_stopped(world); e++)
		prove_engine(world, &world->engines[e]);
	for (uint32_t i = 0; i < world->host_count && !world_stopped(world); i++)
		check_replies(&world->hosts[i]);
	if (!world_stopped(world))
		all_leave(world);
	verify_hosts(world, true, "all clients have left, and something is still locked, pinned or staged");
	if (world_stopped(world))
		return;
	/* Sessions that only a STORE or RETRIEVE named have no owner: they reach their limit. */
	world_jump(world,
		2 * world->hosts[0].server_options.session_ttl_ns + 2 * world->hosts[0].server_options.lock_ttl_ns);
	for (uint32_t i = 0; i < 500; i++)
		world_turn(world);
	for (uint32_t i = 0; i < world->host_count && !world_stopped(world); i++)
		finish_host(&world->hosts[i]);
	if (!world_stopped(world))
		check_network(world);
}
