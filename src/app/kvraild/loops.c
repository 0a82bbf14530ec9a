/* loops.c - the threads of kvraild: which parts they step, what those sleep on, and who wakes whom. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "app/common/heap.h"
#include "app/kvraild/daemon.h"
#include "base/log.h"

/* How long a worker may sleep whose device has no events. */
#define BLIND_SLEEP_NS (100 * KVR_US)

static struct worker *worker_of(void *context)
{
	const struct loop_part_context *part = context;

	return server_worker(part->daemon->server, part->worker);
}

static bool part_worker_step(void *context, uint64_t now_ns)
{
	return worker_step(worker_of(context), now_ns);
}

static bool part_worker_arm(void *context)
{
	return worker_arm(worker_of(context));
}

static void part_worker_slept(void *context)
{
	worker_slept(worker_of(context));
}

static uint64_t part_worker_blind_ns(void *context)
{
	(void)context;
	return clock_now_ns() + BLIND_SLEEP_NS;
}

static bool part_management_step(void *context, uint64_t now_ns)
{
	const struct daemon *daemon = context;

	return management_step(server_management(daemon->server), now_ns);
}

/* As above, for a thread that enters the kernel anyway to sleep: wakes the control thread when there is something for it. */
static bool part_management_step_and_wake(void *context, uint64_t now_ns)
{
	const struct daemon *daemon = context;
	struct management *management = server_management(daemon->server);
	const uint64_t *sent = &management_outbox(management)->tail;
	uint64_t before = kvr_load_relaxed(sent);
	bool busy = management_step(management, now_ns);

	if (kvr_load_relaxed(sent) != before)
		loop_wake(daemon->control_loop);
	return busy;
}

static bool part_management_arm(void *context)
{
	const struct daemon *daemon = context;

	return management_quiet(server_management(daemon->server));
}

static uint64_t part_management_next_ns(void *context)
{
	const struct daemon *daemon = context;

	return management_next_ns(server_management(daemon->server));
}

static struct loop_part worker_part(struct daemon *daemon, uint32_t index)
{
	struct loop_part_context *context = &daemon->worker_parts[index];
	struct worker *worker = server_worker(daemon->server, index);
	struct loop_part part;

	context->daemon = daemon;
	context->worker = index;
	memset(&part, 0, sizeof(part));
	part.context = context;
	part.step = part_worker_step;
	part.arm = part_worker_arm;
	part.slept = part_worker_slept;
	part.fd = worker_device(worker)->driver->cq_event_fd(worker_cq(worker));
	if (part.fd < 0)
		part.next_ns = part_worker_blind_ns;
	return part;
}

static struct loop_part management_part(struct daemon *daemon)
{
	struct loop_part part;

	memset(&part, 0, sizeof(part));
	part.context = daemon;
	part.step = daemon->plan->placement.busy ? part_management_step : part_management_step_and_wake;
	part.arm = part_management_arm;
	part.next_ns = part_management_next_ns;
	part.fd = -1;
	return part;
}

/* Steps allocate nothing; whatever a thread allocates all the same touches no other core's arena. */
static void loop_begin(void *context)
{
	(void)context;
	(void)heap_own_arena();
}

static void loop_defaults(const struct daemon *daemon, struct loop_options *options)
{
	memset(options, 0, sizeof(*options));
	options->waiting = daemon->plan->placement.busy ? LOOP_BUSY : LOOP_ADAPTIVE;
	options->spin_ns = daemon->settings->spin_ns;
	options->yield_ns = daemon->settings->yield_ns;
	options->core = -1;
	options->priority = (int)daemon->settings->realtime;
	options->begin = loop_begin;
}

static int make_loop(struct daemon *daemon, const struct loop_options *options)
{
	int error = loop_create(options, &daemon->loops[daemon->loop_count]);

	if (!error)
		daemon->loop_count++;
	return error;
}

/* The parts of all workers that are on the core of worker `first`. How many. */
static uint32_t worker_parts(struct daemon *daemon, uint32_t first, struct loop_options *options)
{
	const struct kvraild_placement *placement = &daemon->plan->placement;
	uint32_t count = 0;

	for (uint32_t i = first;
		i < placement->worker_count && placement->workers[i].core == placement->workers[first].core; i++) {
		options->parts[options->part_count++] = worker_part(daemon, i);
		count++;
		if (options->part_count == LOOP_PARTS_MAX - 1)
			break;
		/* Without a core each has a thread of its own, but one that manages too. */
		if (placement->workers[first].core < 0 && !placement->shared)
			break;
	}
	return count;
}

static int make_shared_loop(struct daemon *daemon)
{
	struct loop_options options;

	loop_defaults(daemon, &options);
	snprintf(options.name, sizeof(options.name), "kvr-serve");
	options.core = daemon->plan->placement.workers[0].core;
	(void)worker_parts(daemon, 0, &options);
	options.parts[options.part_count++] = management_part(daemon);
	return make_loop(daemon, &options);
}

/* The workers' loops and behind them the management core's: these wake each other, workers never do. */
static int make_apart_loops(struct daemon *daemon)
{
	const struct kvraild_placement *placement = &daemon->plan->placement;
	struct loop_options options;
	struct loop *management;
	int error = 0;

	for (uint32_t i = 0; !error && i < placement->worker_count;) {
		loop_defaults(daemon, &options);
		snprintf(options.name, sizeof(options.name), "kvr-poll-%u", daemon->loop_count % SERVER_WORKERS_MAX);
		options.core = placement->workers[i].core;
		i += worker_parts(daemon, i, &options);
		error = make_loop(daemon, &options);
	}
	if (error)
		return error;
	loop_defaults(daemon, &options);
	snprintf(options.name, sizeof(options.name), "kvr-mgmt");
	options.core = placement->management_core;
	options.parts[0] = management_part(daemon);
	options.part_count = 1;
	error = make_loop(daemon, &options);
	management = daemon->loops[daemon->loop_count - 1];
	for (uint32_t i = 0; !error && i + 1 < daemon->loop_count; i++) {
		error = loop_add_wake(daemon->loops[i], management);
		if (!error)
			error = loop_add_wake(management, daemon->loops[i]);
	}
	return error;
}

/* The control thread gives work to the management core alone, whose loop is the last one. That one wakes it only where it may sleep
 * itself: a thread that polls makes no system call for what can wait CONTROL_POLL_NS. */
static int make_control_loop(struct daemon *daemon)
{
	struct loop_options options;

	memset(&options, 0, sizeof(options));
	snprintf(options.name, sizeof(options.name), "kvraild");
	daemon_front_parts(daemon, &options);
	options.waiting = LOOP_ADAPTIVE;
	options.spin_ns = 1;
	options.yield_ns = 1;
	options.core = -1;
	options.wakes[0] = daemon->loops[daemon->loop_count - 1];
	options.wake_count = 1;
	return loop_create(&options, &daemon->control_loop);
}

int daemon_make_loops(struct daemon *daemon)
{
	int error = daemon->plan->placement.shared ? make_shared_loop(daemon) : make_apart_loops(daemon);

	if (error)
		log_error("threads could not be made: %s", strerror(-error));
	return error;
}

int daemon_start_loops(struct daemon *daemon)
{
	int error = make_control_loop(daemon);

	watchdog_init(&daemon->watchdog, daemon->settings->stall_ns);
	for (uint32_t i = 0; !error && i < daemon->loop_count; i++) {
		error = loop_start(daemon->loops[i]);
		watchdog_add(&daemon->watchdog, daemon->loops[i], clock_now_ns());
		(void)guard_add(&daemon->guard, daemon->loops[i], clock_now_ns());
	}
	if (error) {
		log_error("threads could not be started: %s", strerror(-error));
		daemon_stop_loops(daemon);
	}
	return error;
}

void daemon_stop_loops(struct daemon *daemon)
{
	for (uint32_t i = 0; i < daemon->loop_count; i++)
		loop_stop(daemon->loops[i]);
	loop_destroy(&daemon->control_loop);
}

void daemon_free_loops(struct daemon *daemon)
{
	while (daemon->loop_count > 0)
		loop_destroy(&daemon->loops[--daemon->loop_count]);
}
