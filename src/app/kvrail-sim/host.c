/* host.c - the servers: begun, killed, drained, and connected to. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-sim/world_private.h"

#define TAKE_APART_TURNS 100000u

static void disturb_all(struct world *world)
{
	for (uint32_t i = 0; i < world->process_count; i++)
		process_disturb(&world->processes[i]);
}

/* Its clients: what is expected of other servers' stands. */
void world_disturb_clients(struct host *host)
{
	for (uint32_t i = 0; i < host->world->process_count; i++)
		if (process_host(&host->world->processes[i]) == host)
			process_disturb(&host->world->processes[i]);
}

static int host_open(struct host *host)
{
	struct world *world = host->world;
	struct server_options *options = &host->server_options;
	struct verbs_open open;
	int error;

	memset(&open, 0, sizeof(open));
	open.server = true;
	open.fabric = world->fabric;
	error = verbs_sim.open(&open, &host->server_device);
	if (!error && world->rails > 1)
		error = verbs_sim.open(&open, &host->server_rail);
	for (uint32_t i = 0; !error && i < options->area_count; i++) {
		host->areas[i].address = aligned_alloc(L1_PAGE_BYTES, host->areas[i].bytes);
		if (!host->areas[i].address)
			error = -ENOMEM;
		else
			memset(host->areas[i].address, 0x5a, host->areas[i].bytes);
	}
	if (error)
		return error;
	for (uint32_t i = 0; i < options->worker_count; i++)
		options->devices[i] = host->server_rail && i % 2 ? host->server_rail : host->server_device;
	options->rail_count = host->server_rail ? 2 : 0;
	options->rails[0] = host->server_device;
	options->rails[1] = host->server_rail;
	error = tiers_open(host);
	if (error)
		return error;
	options->boot_id = ++host->boot_id;
	options->seed = world_draw(world, UINT32_MAX) + 1;
	return server_create(options, &host->server);
}

static void host_close(struct host *host)
{
	if (host->server)
		tiers_count(host);
	server_destroy(&host->server);
	if (host->server_device)
		verbs_sim.close(host->server_device);
	if (host->server_rail)
		verbs_sim.close(host->server_rail);
	host->server_device = host->server_rail = NULL;
	host->fallen.device = NULL;
	for (uint32_t i = 0; i < KVR_COUNT_OF(host->areas); i++) {
		free(host->areas[i].address);
		host->areas[i].address = NULL;
	}
}

void world_server_start(struct host *host)
{
	struct world *world = host->world;
	struct sim_options calm = world->network;
	int error;

	if (!host->boot_id)
		host->boot_id = world->options.seed % 1000000 + host->number * UINT64_C(1000000000);
	calm.register_fail_per_million = 0; /* a server that can't start is a test of the server's own */
	sim_fabric_set_options(world->fabric, &calm);
	error = host_open(host);
	sim_fabric_set_options(world->fabric, &world->network);
	if (error) {
		if (error == -ENOMEM)
			world->no_memory = true;
		else
			world_violated(world, "the server could not be started: %s", strerror(-error));
		return;
	}
	host->taken_away = 0;
	host->draining = false;
	host->reaped_allowed = 0;
	if (host->held_until_ns)
		control_hold(server_control(host->server), host->held);
	NOTE(world, "server %llu: started, boot %llu, %llu workers, L1 %llu KiB", host->number, host->boot_id,
		host->server_options.worker_count, host->areas[0].bytes * host->server_options.area_count / 1024);
}

void world_server_kill(struct host *host)
{
	struct world *world = host->world;
	struct control *control;

	if (!host->server)
		return;
	/* From here on nobody hears of it; its object is taken apart as a courtesy to the leak checker. */
	sim_fabric_kill_device(world->fabric, host->server_device);
	if (host->server_rail)
		sim_fabric_kill_device(world->fabric, host->server_rail);
	tiers_kill(host);
	control = server_control(host->server);
	control_hold(control, 0);
	control_drain(control, world->now_ns);
	for (unsigned i = 0; i < TAKE_APART_TURNS && !control_idle(control); i++)
		server_step(host->server, world->now_ns + i * KVR_US);
	if (!control_idle(control))
		world_violated(world, "a server whose device is gone does not come to an end");
	host_close(host);
	NOTE(world, "server %llu: killed", host->number);
	world_disturb_clients(host);
	model_restart(&host->model, ++world->sequence);
}

bool world_server_drained(struct host *host)
{
	struct world *world = host->world;

	if (!host->draining) {
		host->draining = true;
		world_disturb_clients(host);
		control_drain(server_control(host->server), world->now_ns);
		NOTE(world, "server %llu: told to drain", host->number);
	}
	if (!control_idle(server_control(host->server)))
		return false;
	if (server_verify(host->server, true))
		world_violated(world, "a drained server still holds something");
	host_close(host);
	world_disturb_clients(host);
	model_restart(&host->model, ++world->sequence);
	NOTE(world, "server %llu: drained and gone", host->number);
	return true;
}

/* A hard quota is never passed: not by a store, not by a load from L2, not by what a kept L1 brings back. */
static void watch_quotas(struct host *host)
{
	struct cache *cache = server_cache(host->server);

	for (uint32_t tenant = 0; tenant < WORLD_TENANTS; tenant++) {
		struct cache_account_stats stats;
		uint64_t held;

		cache_get_account(cache, tenant, &stats);
		held = stats.resident_bytes + stats.staged_bytes;
		if (stats.quota.hard_bytes > 0 && held > stats.quota.hard_bytes)
			world_violated(host->world, "server %u: tenant %u holds %llu bytes of L1 and may hold %llu",
				host->number, tenant, (unsigned long long)held,
				(unsigned long long)stats.quota.hard_bytes);
	}
}

static void watch_host(struct host *host)
{
	const struct cache_counters *counters = cache_get_counters(server_cache(host->server));
	uint64_t taken = counters->evicted_chunks + counters->cleared_chunks;
	struct world *world = host->world;

	if (taken != host->taken_away) {
		world->report->evicted_chunks += taken - host->taken_away;
		NOTE(world, "server %llu: evicted or cleared %llu chunks", host->number, taken - host->taken_away);
		host->taken_away = taken;
		host->model.epoch++;
	}
	if (world->quotas)
		watch_quotas(host);
	if (management_counters(server_management(host->server))->reaped_connections_total > host->reaped_allowed)
		world_violated(world, "server %u: the reaper closed a live client's connection", host->number);
}

void world_watch_server(struct world *world)
{
	struct sim_counters network;
	uint64_t faults;

	for (uint32_t i = 0; i < world->host_count; i++)
		if (world->hosts[i].server)
			watch_host(&world->hosts[i]);
	if (!world->network.cut_per_million && !world->network.access_error_per_million && !world->network_faults)
		return;
	sim_fabric_counters(world->fabric, &network);
	faults = network.cuts + network.access_errors;
	if (faults == world->network_faults)
		return;
	/* Whose connection it was is not known here: it may have been anybody's. */
	world->network_faults = faults;
	world->report->faults++;
	disturb_all(world);
}

/* A server that takes no connections: they stand in its backlog, and nobody answers. */
static bool connect_to_nobody(struct host *host, struct stream *server_end)
{
	if (host->world->now_ns >= host->deaf_until_ns)
		return false;
	if (host->deaf_count == KVR_COUNT_OF(host->deaf))
		server_end->ops->close(server_end);
	else
		host->deaf[host->deaf_count++] = server_end;
	return true;
}

int world_connect(void *context, struct stream **stream)
{
	struct process *process = context;
	struct world *world = process->world;
	struct host *host = process_host(process);
	struct stream *server_end;
	int error;

	if (!host->server)
		return -ECONNREFUSED;
	error = sim_stream_pair(world->fabric, process->device, stream, &server_end);
	if (error)
		return error;
	server_end->peer.uid = 1000 + process_engine(process)->tenant;
	sim_stream_own(server_end, host->server_device);
	if (connect_to_nobody(host, server_end))
		return 0;
	/* A refusal is told on the stream, which the client reads. */
	(void)!control_accept(server_control(host->server), server_end, world->now_ns);
	return 0;
}
