/* trouble.c - what goes wrong, and its end. */
#include "app/kvrail-sim/world_private.h"

#define SPEAK_TURNS 20000u

static struct process *pick(struct world *world, uint64_t number)
{
	return &world->processes[number % world->process_count];
}

static struct host *pick_host(struct world *world, uint64_t number)
{
	return &world->hosts[(number >> 40) % world->host_count];
}

static void process_cut(struct process *process, bool all)
{
	struct sim_fabric *fabric = process->world->fabric;

	if (all || !process->rail)
		sim_fabric_cut_device(fabric, process->device);
	if (process->rail)
		sim_fabric_cut_device(fabric, process->rail);
}

/* An engine goes over to the next server: by new processes, or by its old ones, which lose their connections. Who was just on the way to
 * the old server would arrive there, and dies. */
static void move_engine(struct world *world, uint64_t a, uint64_t b)
{
	struct engine *engine = &world->engines[a % world->engine_count];
	bool alive = (b >> 40) % 2;

	for (uint32_t i = 0; i <= engine->worker_count; i++) {
		struct process *process = &world->processes[engine->first_process + i];

		if (process->state == PROCESS_DEAD)
			continue;
		if (alive && client_ready(process->client))
			process_cut(process, true);
		else
			process_crash(process);
		process_disturb(process);
	}
	engine->host = (engine->host + 1) % world->host_count;
	NOTE(world, "engine %llu: moves to server %llu, its processes live on: %llu", a % world->engine_count,
		engine->host, alive);
}

static void trouble_crash(struct world *world, uint64_t a, uint64_t b)
{
	if (world->host_count > 1 && (b >> 48) % 4 == 0) {
		move_engine(world, a, b);
		return;
	}
	if (b % 5 == 0)
		process_leave(pick(world, a));
	else
		process_crash(pick(world, a));
}

static void fall(
	struct world *world, struct fallen *fallen, struct verbs_device *device, enum verbs_health health, uint64_t b)
{
	fallen->device = device;
	fallen->until_ns = world->now_ns + 50 * KVR_MS + (b >> 8) % (b % 4 ? 100 * KVR_MS : 5 * KVR_SECOND);
	/* Who is cut off can't be heard: where silence is watched for, the device only says so. */
	fallen->cut = health == VERBS_PORT_DOWN && b % 2 && !world->hosts[0].server_options.silence_ns;
	sim_fabric_tell_device(world->fabric, device, health);
	if (fallen->cut)
		sim_fabric_link_device(world->fabric, device, false);
}

/* A device says that its port is down, or that its address has changed. */
static void trouble_port(struct world *world, struct process *process, uint64_t b)
{
	struct host *host = process_host(process);

	if (b % 3 && host->server && !host->fallen.device) {
		struct verbs_device *device = host->server_rail && b % 5 ? host->server_rail : host->server_device;

		fall(world, &host->fallen, device, b % 7 ? VERBS_PORT_DOWN : VERBS_MOVED, b);
		NOTE(world, "server %llu: its device falls, second one: %llu, cut: %llu", host->number,
			device == host->server_rail, host->fallen.cut);
	} else if (!process->fallen.device) {
		struct verbs_device *device = process->rail && b % 5 ? process->rail : process->device;

		fall(world, &process->fallen, device, VERBS_PORT_DOWN, b);
		NOTE(world, "process %llu: its device falls, second one: %llu, cut: %llu", process->number,
			device == process->rail, process->fallen.cut);
	}
}

bool fallen_turn(struct world *world, struct fallen *fallen)
{
	if (!fallen->device)
		return false;
	if (world->now_ns < fallen->until_ns)
		return true;
	sim_fabric_tell_device(world->fabric, fallen->device, VERBS_ACTIVE);
	sim_fabric_link_device(world->fabric, fallen->device, true);
	fallen->device = NULL;
	return true;
}

static void trouble_cut(struct world *world, uint64_t a, uint64_t b)
{
	struct process *process = pick(world, a);

	if (process->state == PROCESS_DEAD)
		return;
	if ((b >> 50) % 3 == 0) {
		trouble_port(world, process, b);
		return;
	}
	/* Of several rails one, often: which of them is home nobody knows here. */
	NOTE(world, "process %llu: its link is cut, all of it: %llu", process->number, b % 3 == 0);
	process_cut(process, b % 3 == 0);
	process_disturb(process);
}

static void trouble_stall(struct world *world, uint64_t a, uint64_t b)
{
	struct process *process = pick(world, a);

	if (process->state == PROCESS_DEAD || process->stalled_until_ns)
		return;
	process->stalled_until_ns = world->now_ns + 1 + b % (20 * KVR_MS);
	sim_fabric_stall_device(world->fabric, process->device, true);
	if (process->rail)
		sim_fabric_stall_device(world->fabric, process->rail, true);
	NOTE(world, "process %llu: its link stalls for %llu ns", process->number,
		process->stalled_until_ns - world->now_ns);
	if (world->hosts[0].server_options.silence_ns) {
		process_host(process)->reaped_allowed++;
		process_disturb(process);
	}
}

/* The others go on. */
static void trouble_restart(struct world *world, uint64_t a, uint64_t b)
{
	struct host *host = pick_host(world, b);

	if (!host->server || host->draining || a % 3)
		return;
	world->report->restarts++;
	host->server_back_ns = world->now_ns + b % (50 * KVR_MS);
	if (a % 2)
		world_server_kill(host);
	else
		(void)world_server_drained(host);
	if (b % 5 == 0) /* and at first nobody takes connections (pitfalls G02) */
		host->deaf_until_ns = host->server_back_ns + b % (3 * KVR_SECOND);
}

/* Nobody is on the way to its connection: in such a moment all that the server may count as silence is of its own choice. */
static bool all_can_speak(const struct world *world)
{
	for (uint32_t i = 0; i < world->process_count; i++) {
		const struct process *process = &world->processes[i];

		if (world->now_ns >= process_host(process)->deaf_until_ns && process->state != PROCESS_DEAD &&
			!client_ready(process->client))
			return false;
	}
	return true;
}

/* Where silence is watched for, everybody must be able to speak in between; else time stands still. */
static void trouble_time(struct world *world, uint64_t a, uint64_t b)
{
	uint64_t ns = a % (3 * world->hosts[0].server_options.lock_ttl_ns);
	uint64_t slice = world->hosts[0].server_options.silence_ns ? world->hosts[0].server_options.silence_ns / 4
								   : ns + 1;

	(void)b;
	NOTE(world, "time passes: %llu ns", ns);
	while (ns > 0 && !world_stopped(world)) {
		uint64_t jump = ns < slice ? ns : slice;

		world_jump(world, jump);
		ns -= jump;
		if (!world->hosts[0].server_options.silence_ns)
			continue;
		for (unsigned i = 0; i < SPEAK_TURNS && (i < 200 || !all_can_speak(world)) && !world_stopped(world);
			i++)
			world_turn(world);
		if (!all_can_speak(world))
			return;
	}
}

/* Mapping and unmapping memory takes long (pitfalls B03, C01). */
static void trouble_mapping(struct world *world, uint64_t a, uint64_t b)
{
	struct host *host = pick_host(world, b);

	host->held = (unsigned)(a % 8);
	host->held_until_ns = world->now_ns + 1 + b % (b % 4 ? 2 * KVR_MS : 100 * KVR_MS);
	NOTE(world, "server %llu: helpers %llu do nothing for %llu ns", host->number, host->held,
		host->held_until_ns - world->now_ns);
	if (host->server)
		control_hold(server_control(host->server), host->held);
}

static void trouble_layout(struct world *world, uint64_t a, uint64_t b)
{
	struct process *process = pick(world, a);
	const struct engine *engine = process_engine(process);
	uint32_t shape = process->shape == engine->shape ? (uint32_t)(b % WORLD_SHAPES) : engine->shape;

	/* It must have a place in the other model. */
	if (process->scheduler || process->rank >= world->shapes[shape].world_size ||
		process->reader >= world->shapes[shape].readers)
		shape = engine->shape;
	if (!process->scheduler)
		process_unregister(process, shape);
}

static void trouble_slow(struct world *world, uint64_t a, uint64_t b)
{
	struct sim_options *network = &world->network;

	network->delay_max_ns = network->delay_min_ns + (a % 4 ? a % 5000 : a % 2000000);
	network->completion_max_ns = b % 4 ? b % 3000 : b % 3000000;
	network->pieces_max = 1 + (uint32_t)(b >> 32) % 12;
	network->bytes_per_us = (a >> 32) % 3 ? 0 : 100 + (uint32_t)(a >> 40) % 10000;
	sim_fabric_set_options(world->fabric, network);
	NOTE(world, "network: delays up to %llu ns, completions %llu ns, %llu pieces, %llu bytes/us",
		network->delay_max_ns, network->completion_max_ns, network->pieces_max, network->bytes_per_us);
}

static void trouble_tiers(struct world *world, uint64_t a, uint64_t b)
{
	tiers_trouble(pick_host(world, b), a, b);
}

void trouble_step(struct world *world, uint64_t kind, uint64_t a, uint64_t b)
{
	static const struct {
		enum world_fault fault;
		void (*run)(struct world *world, uint64_t a, uint64_t b);
	} troubles[] = {
		{ WORLD_CRASH, trouble_crash },
		{ WORLD_CRASH, trouble_crash },
		{ WORLD_CUT, trouble_cut },
		{ WORLD_STALL, trouble_stall },
		{ WORLD_RESTART, trouble_restart },
		{ WORLD_TIME, trouble_time },
		{ WORLD_LAYOUT, trouble_layout },
		{ WORLD_SLOW, trouble_slow },
		{ WORLD_MEMORY, trouble_mapping },
		{ WORLD_L2, trouble_tiers },
	};
	size_t which = kind % KVR_COUNT_OF(troubles);

	if (!world_has(world, troubles[which].fault))
		return;
	world->report->faults++;
	troubles[which].run(world, a, b);
}

void trouble_heal(struct world *world)
{
	world->network.cut_per_million = 0;
	world->network.access_error_per_million = 0;
	world->network.register_fail_per_million = 0;
	sim_fabric_set_options(world->fabric, &world->network);
	for (uint32_t i = 0; i < world->host_count; i++) {
		struct host *host = &world->hosts[i];

		host->deaf_until_ns = 0;
		host->held_until_ns = kvr_min_u64(host->held_until_ns, world->now_ns);
		host->fallen.until_ns = world->now_ns;
		tiers_heal(host);
	}
	for (uint32_t i = 0; i < world->process_count; i++) {
		struct process *process = &world->processes[i];

		if (process->stalled_until_ns)
			process->stalled_until_ns = world->now_ns;
		process->fallen.until_ns = world->now_ns;
	}
	NOTE(world, "peace");
}
