/* place.c - kvraild's place on the machine: the topology plan is made, said, and the threads that enter the kernel are put where it
 * says. Poll cores and the management core pin themselves when they begin. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvraild/daemon.h"
#include "base/fault.h"
#include "base/text.h"
#include "poll/cores.h"

#define RAIL_NEAR 1000u /* server_options.rail_costs */

static void say_line(void *context, const char *text)
{
	(void)context;
	log_info("plan: %s", text);
}

/* A line a decision, with its reason, and the compromises. */
static void say_plan(const struct plan *topology)
{
	plan_lines(topology, say_line, NULL);
	for (uint32_t i = 0; i < topology->warning_count; i++)
		log_warn("plan: %s", topology->warnings[i]);
}

/* Where this machine can't be read the server serves all the same, as it is told by --cores or unpinned. */
static void do_without(struct daemon *daemon, const char *why)
{
	log_warn("plan: %s: threads are %s", why, daemon->plan->cores.count ? "where --cores says" : "not pinned");
	kvraild_place_anywhere(
		&daemon->plan->cores, (enum kvraild_wait)daemon->settings->wait, &daemon->plan->placement);
	machine_free(&daemon->machine);
	free(daemon->topology);
	daemon->topology = NULL;
}

static void make_plan(struct daemon *daemon)
{
	struct kvraild_plan *plan = daemon->plan;
	struct machine_error error = { "" };
	struct plan_options options;

	daemon->topology = fault_point("kvraild/plan") ? NULL : calloc(1, sizeof(*daemon->topology));
	daemon->machine = daemon->topology ? machine_read_live(&error) : NULL;
	if (!daemon->machine) {
		do_without(daemon, error.text[0] ? error.text : "out of memory");
		return;
	}
	kvraild_plan_options(daemon->settings, plan, &options);
	if (plan_make(daemon->machine, &options, daemon->topology) != 0) {
		do_without(daemon, "the processors of this process are none that the machine has");
		return;
	}
	kvraild_place(daemon->machine, &plan->cores, (enum kvraild_wait)daemon->settings->wait, daemon->topology,
		&plan->placement);
	say_plan(daemon->topology);
}

int daemon_start_place(struct daemon *daemon, char *detail, size_t size)
{
	const struct kvraild_placement *placement = &daemon->plan->placement;
	int count = cores_allowed(daemon->allowed, CORES_MAX);

	daemon->allowed_count = count > 0 ? (uint32_t)count : 0;
	make_plan(daemon);
	kvraild_place_kinds(daemon->plan, &daemon->plan->placement);
	guard_init(&daemon->guard, placement->insist);
	daemon_leave_poll_cores(daemon);
	snprintf(detail, size, "%u poll core%s%s, %s, %s; %s", kvraild_poll_cores(daemon->plan),
		kvraild_poll_cores(daemon->plan) == 1 ? "" : "s",
		placement->shared ? ", which manages too" : " and a management core",
		placement->workers[0].core >= 0 ? "pinned" : "not pinned",
		placement->busy ? "never asleep" : "asleep without work",
		daemon->plan->cores.count         ? "by --cores"
			: daemon->plan->cores.any ? "--cores any"
						  : "by the topology plan");
	return 0;
}

void daemon_finish_place(struct daemon *daemon)
{
	machine_free(&daemon->machine);
	free(daemon->topology);
	daemon->topology = NULL;
}

/* Threads begin where the one is that makes them, so that helpers need no more than this. */
void daemon_leave_poll_cores(struct daemon *daemon)
{
	const struct plan *topology = daemon->topology;
	int error;

	if (!topology || !topology->pinned)
		return;
	error = cores_bind(0, topology->helpers, topology->helper_count);
	if (error)
		log_warn("helper threads can't be kept off the poll cores: %s", strerror(-error));
}

void daemon_go_near_gpu(const struct daemon *daemon, const char *pci)
{
	const struct plan *topology = daemon->topology;
	struct text list = { NULL, 0, 0, false };
	int cores[MACHINE_CPUS_MAX];
	uint32_t count;
	int error;

	if (!topology || !topology->pinned)
		return;
	count = kvraild_place_gpu(daemon->machine, topology, pci, cores);
	if (count == 0 || count == topology->helper_count)
		return; /* they are all alike to it */
	error = cores_bind(0, cores, count);
	machine_list(&list, cores, count);
	if (error)
		log_warn("the thread of the GPU at %s can't be near it, on %s: %s", pci, list.bytes ? list.bytes : "",
			strerror(-error));
	else
		log_info("plan: the thread of the GPU at %s is on helpers near it: %s", pci,
			list.bytes ? list.bytes : "");
	text_fini(&list);
}

void daemon_use_all_cores(struct daemon *daemon)
{
	if (daemon->topology && daemon->topology->pinned && daemon->allowed_count &&
		cores_bind(0, daemon->allowed, daemon->allowed_count) != 0)
		log_warn("the cores of this process have changed while it started");
}

/* By the plan's distances; without a plan all areas are alike. */
static uint32_t distance_of(const struct daemon *daemon, int from, int to)
{
	int a = daemon->machine ? machine_find_node(daemon->machine, from) : -1;
	int b = daemon->machine ? machine_find_node(daemon->machine, to) : -1;

	return a >= 0 && b >= 0 ? machine_distance(daemon->machine, (uint32_t)a, (uint32_t)b) : 0;
}

/* A worker's rings and receive buffers are made by this thread and used by its core. */
static void before_worker(void *context, uint32_t worker)
{
	const struct daemon *daemon = context;
	const struct kvraild_placement *placement = &daemon->plan->placement;
	bool pinned = worker < placement->worker_count && placement->workers[worker].core >= 0;
	int error = cores_prefer_node(pinned ? placement->workers[worker].node : -1);

	if (error)
		log_debug("a worker's memory can't be asked for near its core: %s", strerror(-error));
}

/* The lowest node that a device is near to; -1: not known. */
static int node_of(const struct daemon *daemon, const struct verbs_device *device)
{
	const struct machine *machine = daemon->machine;
	size_t length = strcspn(device->name, " ");

	for (uint32_t i = 0; machine && i < machine->nic_count; i++) {
		const struct machine_nic *nic = &machine->nics[i];

		if (strlen(nic->name) == length && strncmp(nic->name, device->name, length) == 0 && nic->nodes)
			return machine->nodes[__builtin_ctzll(nic->nodes)].number;
	}
	return -1;
}

/* Memory of another node costs a rail more the farther it is: 21 against 10, as two sockets have it, a quarter. */
static void place_rails(struct daemon *daemon, struct server_options *options)
{
	const uint32_t areas = daemon->area_count;

	for (uint32_t k = 0; k < areas; k++) {
		uint32_t distances[WIRE_RAILS_MAX], least = UINT32_MAX;

		for (uint32_t i = 0; i < daemon->remote_count; i++) {
			distances[i] = distance_of(
				daemon, node_of(daemon, daemon->remotes[i]), daemon->areas[k].numa_node);
			least = distances[i] < least ? distances[i] : least;
		}
		for (uint32_t i = 0; i < daemon->remote_count; i++)
			daemon->rail_costs[i * areas + k] = (uint16_t)(RAIL_NEAR +
				kvr_min_u64(25 * (uint64_t)(distances[i] - least), 4 * RAIL_NEAR));
	}
	options->rail_costs = daemon->rail_costs;
}

void daemon_place_areas(struct daemon *daemon, struct server_options *options)
{
	const struct kvraild_placement *placement = &daemon->plan->placement;

	options->areas = daemon->areas;
	options->area_count = daemon->area_count;
	for (uint32_t i = 0; i < placement->worker_count; i++) {
		uint32_t best = 0;

		for (uint32_t k = 1; k < daemon->area_count; k++) {
			if (distance_of(daemon, placement->workers[i].node, daemon->areas[k].numa_node) <
				distance_of(daemon, placement->workers[i].node, daemon->areas[best].numa_node))
				best = k;
		}
		options->worker_areas[i] = best;
	}
	for (uint32_t i = 0; i < daemon->area_count; i++) {
		for (uint32_t k = 0; k < daemon->area_count; k++)
			daemon->area_distances[i * daemon->area_count + k] = (uint16_t)distance_of(
				daemon, daemon->areas[i].numa_node, daemon->areas[k].numa_node);
	}
	options->area_distances = daemon->area_distances;
	place_rails(daemon, options);
	if (daemon->machine && daemon->machine->node_count > 1) {
		options->before_worker = before_worker;
		options->before_worker_context = daemon;
	}
}
