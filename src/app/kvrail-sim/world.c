/* world.c - turns, waiting, and a run from its beginning to its end. */
#include "app/kvrail-sim/world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-sim/world_private.h"
#include "base/log.h"

#define SETTLE_TURNS 3000000u

static const struct {
	const char *name;
	enum world_fault fault;
} fault_names[] = {
	{ "crash", WORLD_CRASH },
	{ "cut", WORLD_CUT },
	{ "stall", WORLD_STALL },
	{ "restart", WORLD_RESTART },
	{ "time", WORLD_TIME },
	{ "layout", WORLD_LAYOUT },
	{ "memory", WORLD_MEMORY },
	{ "access", WORLD_ACCESS },
	{ "slow", WORLD_SLOW },
	{ "pressure", WORLD_PRESSURE },
	{ "bad", WORLD_BAD },
	{ "clear", WORLD_CLEAR },
	{ "cancel", WORLD_CANCEL },
	{ "l2", WORLD_L2 },
};

static bool fault_named(const char *name, size_t length, uint32_t *faults)
{
	for (size_t i = 0; i < KVR_COUNT_OF(fault_names); i++) {
		if (strlen(fault_names[i].name) == length && memcmp(fault_names[i].name, name, length) == 0) {
			*faults |= fault_names[i].fault;
			return true;
		}
	}
	return false;
}

int world_parse_faults(const char *text, uint32_t *faults)
{
	uint32_t found = 0;

	if (strcmp(text, "all") == 0) {
		*faults = WORLD_FAULTS_ALL;
		return 0;
	}
	if (strcmp(text, "none") != 0) {
		for (const char *at = text;; at++) {
			size_t length = strcspn(at, ",");

			if (!fault_named(at, length, &found))
				return -EINVAL;
			at += length;
			if (!*at)
				break;
		}
	}
	*faults = found;
	return 0;
}

void world_violated(struct world *world, const char *format, ...)
{
	va_list arguments;

	if (world->report->violated)
		return;
	world->report->violated = true;
	va_start(arguments, format);
	vsnprintf(world->report->text, sizeof(world->report->text), format, arguments);
	va_end(arguments);
}

/* ---- turns ---------------------------------------------------------------------------------------------------- */

static bool host_turn(struct host *host, uint64_t bits, bool all)
{
	struct world *world = host->world;
	struct server *server = host->server;
	uint32_t count;
	bool busy = false;

	if (fallen_turn(world, &host->fallen))
		world_disturb_clients(host);
	if (!server) {
		if (world->now_ns >= host->server_back_ns)
			world_server_start(host);
		return host->server != NULL;
	}
	if (host->held_until_ns && world->now_ns >= host->held_until_ns) {
		host->held_until_ns = 0;
		control_hold(server_control(server), 0);
	}
	if (all || (bits & 3) == 0)
		busy |= control_step(server_control(server), world->now_ns);
	if (bits & 4 && (all || bits & 24))
		busy |= management_step(server_management(server), world->now_ns);
	count = server_worker_count(server);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t worker = (i + (uint32_t)(bits >> 8)) % count;

		if (all || (bits >> (16 + 2 * worker)) & 3)
			busy |= worker_step(server_worker(server, worker), world->now_ns);
	}
	if (!(bits & 4) && (all || bits & 24))
		busy |= management_step(server_management(server), world->now_ns);
	if (host->draining)
		busy |= world_server_drained(host);
	return busy;
}

static bool servers_turn(struct world *world, uint64_t bits, bool all)
{
	bool busy = host_turn(&world->hosts[0], bits, all);

	for (uint32_t i = 1; i < world->host_count && !world_stopped(world); i++)
		busy |= host_turn(&world->hosts[i], random_mix(bits + i), all);
	return busy;
}

/* A process that has nothing to do looks up now and then only. */
static bool process_has_work(const struct process *process)
{
	return process->in_flight > 0 || process->state != PROCESS_STANDING || !process->was_ready;
}

static bool speak(struct process *process)
{
	uint64_t silence = process_host(process)->server_options.silence_ns;

	return silence && process->in_flight == 0 && process_ready(process) &&
		process->world->now_ns >= process->spoke_ns + silence / 8 && action_ping(process);
}

static bool processes_turn(struct world *world, uint64_t bits, bool all)
{
	uint32_t first = (uint32_t)(bits >> 32) % world->process_count;
	bool busy = false;

	for (uint32_t i = 0; i < world->process_count && !world_stopped(world); i++) {
		struct process *process = &world->processes[(first + i) % world->process_count];
		uint64_t mine = random_mix(bits + i);

		if (process->stalled_until_ns && world->now_ns >= process->stalled_until_ns) {
			process->stalled_until_ns = 0;
			sim_fabric_stall_device(world->fabric, process->device, false);
			if (process->rail)
				sim_fabric_stall_device(world->fabric, process->rail, false);
			busy = true;
		}
		if (fallen_turn(world, &process->fallen))
			process_disturb(process);
		busy |= speak(process);
		if (all || (process_has_work(process) ? mine & 3 : (mine & 31) == 0))
			busy |= process_turn(process);
	}
	return busy;
}

static uint64_t host_next_event(const struct host *host)
{
	uint64_t next = host->server_back_ns;

	if (host->server)
		next = management_next_ns(server_management(host->server));
	if (host->server && host->held_until_ns)
		next = kvr_min_u64(next, host->held_until_ns);
	if (host->fallen.device)
		next = kvr_min_u64(next, host->fallen.until_ns);
	return next;
}

static uint64_t next_event(const struct world *world)
{
	uint64_t silence = world->hosts[0].server_options.silence_ns;
	uint64_t next = sim_fabric_next_ns(world->fabric);

	for (uint32_t i = 0; i < world->host_count; i++)
		next = kvr_min_u64(next, host_next_event(&world->hosts[i]));
	for (uint32_t i = 0; i < world->process_count; i++) {
		const struct process *process = &world->processes[i];

		if (process->state == PROCESS_DEAD)
			next = kvr_min_u64(next, process->spawn_ns);
		else
			next = kvr_min_u64(next, client_next_ns(process->client));
		if (process->stalled_until_ns)
			next = kvr_min_u64(next, process->stalled_until_ns);
		if (process->fallen.device)
			next = kvr_min_u64(next, process->fallen.until_ns);
		if (silence && process->in_flight == 0 && process_ready(process))
			next = kvr_min_u64(next, process->spoke_ns + silence / 8);
	}
	return next;
}

void world_jump(struct world *world, uint64_t ns)
{
	world->now_ns += ns;
}

void world_turn(struct world *world)
{
	uint64_t bits = random_next(&world->random);
	bool all = world->quiet_turns > 0;
	bool busy = false;

	world->turns++;
	/* Now a single event between two turns, now many of them. */
	world->now_ns += (20 + (bits & 255)) << ((bits >> 8) % (world->pace + 1));
	bits >>= 11;
	if (all || (bits & 3))
		busy |= sim_fabric_step(world->fabric, world->now_ns, 1 + (unsigned)((bits >> 2) & 127)) > 0;
	busy |= servers_turn(world, bits >> 7, all);
	if (!world_stopped(world))
		busy |= processes_turn(world, bits, all);
	if (world->turns % 64 == 0)
		world_watch_server(world);
	world->quiet_turns = busy ? 0 : world->quiet_turns + 1;
	if (world->quiet_turns > 1) {
		uint64_t next = next_event(world);

		/* Nothing at all will happen before: nobody waits for a while that has no end. */
		if (next > world->now_ns && next != UINT64_MAX)
			world->now_ns = kvr_min_u64(next, world->now_ns + 5 * KVR_MS);
	}
}

static bool settled(struct world *world)
{
	for (uint32_t i = 0; i < world->host_count; i++) {
		const struct host *host = &world->hosts[i];

		if (!host->server || host->draining || !tiers_idle(host))
			return false;
	}
	for (uint32_t i = 0; i < world->process_count; i++) {
		const struct process *process = &world->processes[i];

		if (process->in_flight > 0 || process->stalled_until_ns || !process_ready(process))
			return false;
	}
	return true;
}

static void say_what_waits(struct world *world)
{
	const char *text = "";

	for (uint32_t i = 0; i < world->process_count; i++) {
		const struct process *process = &world->processes[i];

		if (process->in_flight == 0 && process_ready(process))
			continue;
		if (process->state != PROCESS_DEAD)
			(void)client_failure(process->client, &text);
		world_violated(world, "process %u does not come to rest: state %u, %u requests under way, ready %u, %s",
			process->number, process->state, process->in_flight,
			process->state != PROCESS_DEAD && client_ready(process->client), text);
	}
	world_violated(world, "the server does not come to rest");
}

bool world_settle(struct world *world)
{
	uint64_t until_ns = world->now_ns + WORLD_PATIENCE_NS;

	for (uint32_t i = 0; i < SETTLE_TURNS && world->now_ns < until_ns && !world_stopped(world); i++) {
		if (settled(world))
			return true;
		world_turn(world);
	}
	if (!world_stopped(world))
		say_what_waits(world);
	return false;
}

/* ---- a run ---------------------------------------------------------------------------------------------------- */

/* Whatever the server's parts or the clients call an error is one: they log those only where their books are wrong. */
static void world_log(void *context, enum log_level level, const char *line)
{
	struct world *world = context;

	if (world->options.trace)
		fprintf(world->options.trace, "%12.3f us  log: %s\n", (double)world->now_ns / 1000, line);
	if (level == LOG_ERROR)
		world_violated(world, "an error was logged: %s", line);
}

static void world_report(struct world *world, FILE *tail)
{
	struct world_report *report = world->report;

	report->hash = world->transcript.hash;
	report->turns = world->turns;
	report->virtual_ns = world->now_ns - KVR_SECOND;
	if (report->violated && tail)
		transcript_print(&world->transcript, tail);
}

int world_run(const struct world_options *options, struct world_report *report, FILE *tail)
{
	struct world *world = calloc(1, sizeof(*world));
	enum log_level level = log_get_level();
	int error;

	memset(report, 0, sizeof(*report));
	if (!world)
		return -ENOMEM;
	world->options = *options;
	world->report = report;
	error = transcript_init(&world->transcript, WORLD_TAIL_LINES, options->trace);
	log_set_sink(world_log, world);
	log_set_level(options->trace ? LOG_INFO : LOG_ERROR);
	if (!error)
		error = world_setup(world);
	for (uint32_t i = 0; i < options->steps && !error && !world_stopped(world); i++) {
		if (options->before_step)
			options->before_step(world, i, options->context);
		program_step(world, options->numbers ? options->numbers[i] : i);
		report->steps_run = i + 1;
	}
	if (!error && !world_stopped(world))
		world_finish(world);
	if (world->no_memory)
		error = -ENOMEM;
	world_report(world, tail);
	world_teardown(world);
	log_set_sink(NULL, NULL);
	log_set_level(level);
	free(world);
	return error;
}
