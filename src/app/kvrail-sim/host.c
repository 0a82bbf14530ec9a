/* host.c - the server: begun, killed, drained, and connected to. */
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

static int host_open(struct world *world)
{
	struct server_options *options = &world->server_options;
	struct verbs_open open;
	int error;

	memset(&open, 0, sizeof(open));
	open.server = true;
	open.fabric = world->fabric;
	error = verbs_sim.open(&open, &world->server_device);
	for (uint32_t i = 0; !error && i < options->area_count; i++) {
		world->areas[i].address = aligned_alloc(L1_PAGE_BYTES, world->areas[i].bytes);
		if (!world->areas[i].address)
			error = -ENOMEM;
		else
			memset(world->areas[i].address, 0x5a, world->areas[i].bytes);
	}
	if (error)
		return error;
	for (uint32_t i = 0; i < options->worker_count; i++)
		options->devices[i] = world->server_device;
	error = tiers_open(world);
	if (error)
		return error;
	options->boot_id = ++world->boot_id;
	options->seed = world_draw(world, UINT32_MAX) + 1;
	return server_create(options, &world->server);
}

static void host_close(struct world *world)
{
	if (world->server)
		tiers_count(world);
	server_destroy(&world->server);
	if (world->server_device)
		verbs_sim.close(world->server_device);
	world->server_device = NULL;
	for (uint32_t i = 0; i < KVR_COUNT_OF(world->areas); i++) {
		free(world->areas[i].address);
		world->areas[i].address = NULL;
	}
}

void world_server_start(struct world *world)
{
	struct sim_options calm = world->network;
	int error;

	if (!world->boot_id)
		world->boot_id = world->options.seed % 1000000;
	calm.register_fail_per_million = 0; /* a server that can't start is a test of the server's own */
	sim_fabric_set_options(world->fabric, &calm);
	error = host_open(world);
	sim_fabric_set_options(world->fabric, &world->network);
	if (error) {
		if (error == -ENOMEM)
			world->no_memory = true;
		else
			world_violated(world, "the server could not be started: %s", strerror(-error));
		return;
	}
	world->taken_away = 0;
	world->draining = false;
	world->reaped_allowed = 0;
	if (world->held_until_ns)
		control_hold(server_control(world->server), world->held);
	NOTE(world, "server: started, boot %llu, %llu workers, L1 %llu KiB", world->boot_id,
		world->server_options.worker_count, world->areas[0].bytes * world->server_options.area_count / 1024);
}

void world_server_kill(struct world *world)
{
	struct control *control;

	if (!world->server)
		return;
	/* From here on nobody hears of it; its object is taken apart as a courtesy to the leak checker. */
	sim_fabric_kill_device(world->fabric, world->server_device);
	tiers_kill(world);
	control = server_control(world->server);
	control_hold(control, 0);
	control_drain(control, world->now_ns);
	for (unsigned i = 0; i < TAKE_APART_TURNS && !control_idle(control); i++)
		server_step(world->server, world->now_ns + i * KVR_US);
	if (!control_idle(control))
		world_violated(world, "a server whose device is gone does not come to an end");
	host_close(world);
	NOTE(world, "server: killed");
	disturb_all(world);
	model_restart(&world->model, ++world->sequence);
}

bool world_server_drained(struct world *world)
{
	if (!world->draining) {
		world->draining = true;
		disturb_all(world);
		control_drain(server_control(world->server), world->now_ns);
		NOTE(world, "server: told to drain");
	}
	if (!control_idle(server_control(world->server)))
		return false;
	if (server_verify(world->server, true))
		world_violated(world, "a drained server still holds something");
	host_close(world);
	disturb_all(world);
	model_restart(&world->model, ++world->sequence);
	NOTE(world, "server: drained and gone");
	return true;
}

void world_watch_server(struct world *world)
{
	const struct cache_counters *counters;
	struct sim_counters network;
	uint64_t faults, taken;

	if (world->server) {
		counters = cache_get_counters(server_cache(world->server));
		taken = counters->evicted_chunks + counters->cleared_chunks;
		if (taken != world->taken_away) {
			world->report->evicted_chunks += taken - world->taken_away;
			NOTE(world, "server: evicted or cleared %llu chunks", taken - world->taken_away);
			world->taken_away = taken;
			world->model.epoch++;
		}
		if (management_counters(server_management(world->server))->reaped_connections_total >
			world->reaped_allowed)
			world_violated(world, "the reaper closed a live client's connection");
	}
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
static bool connect_to_nobody(struct world *world, struct stream *server_end)
{
	if (world->now_ns >= world->deaf_until_ns)
		return false;
	if (world->deaf_count == KVR_COUNT_OF(world->deaf))
		server_end->ops->close(server_end);
	else
		world->deaf[world->deaf_count++] = server_end;
	return true;
}

int world_connect(void *context, struct stream **stream)
{
	struct process *process = context;
	struct world *world = process->world;
	struct stream *server_end;
	int error;

	if (!world->server)
		return -ECONNREFUSED;
	error = sim_stream_pair(world->fabric, process->device, stream, &server_end);
	if (error)
		return error;
	server_end->peer.uid = 1000 + process_engine(process)->tenant;
	sim_stream_own(server_end, world->server_device);
	if (connect_to_nobody(world, server_end))
		return 0;
	/* A refusal is told on the stream, which the client reads. */
	(void)!control_accept(server_control(world->server), server_end, world->now_ns);
	return 0;
}
