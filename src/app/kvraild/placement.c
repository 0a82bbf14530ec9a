/* placement.c - which threads there are and where they run: what the topology plan says, or --cores (pitfalls M01). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "app/kvraild/options.h"

static bool is_allowed(int core, const int *allowed, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (allowed[i] == core)
			return true;
	}
	return false;
}

static int refuse_list(const char *cores, int why, struct option_error *error)
{
	if (why == -ERANGE)
		snprintf(error->text, sizeof(error->text), "--cores %s: core numbers are below %u", cores, CORES_MAX);
	else if (why == -ENOSPC)
		snprintf(error->text, sizeof(error->text), "--cores %s: more than %u cores", cores,
			SERVER_WORKERS_MAX + 1);
	else
		snprintf(error->text, sizeof(error->text),
			"--cores %s is no list of cores, as 2-5,8, and neither auto nor any", cores);
	return -EINVAL;
}

int kvraild_read_cores(const char *cores, const int *allowed, uint32_t allowed_count, struct kvraild_cores *out,
	struct option_error *error)
{
	struct text all = { NULL, 0, 0, false };
	int count;

	memset(out, 0, sizeof(*out));
	out->any = strcmp(cores, "any") == 0;
	if (out->any || strcmp(cores, "auto") == 0)
		return 0;
	count = cores_parse(cores, out->given, KVR_COUNT_OF(out->given));
	if (count < 0)
		return refuse_list(cores, count, error);
	for (int i = 0; i < count; i++) {
		if (is_allowed(out->given[i], allowed, allowed_count))
			continue;
		machine_list(&all, allowed, allowed_count);
		snprintf(error->text, sizeof(error->text),
			"--cores %s: core %d is not one that this process may use (%s)", cores, out->given[i],
			all.bytes ? all.bytes : "none");
		text_fini(&all);
		return -EINVAL;
	}
	out->count = (uint32_t)count;
	return 0;
}

void kvraild_plan_options(
	const struct kvraild_settings *settings, const struct kvraild_plan *plan, struct plan_options *options)
{
	memset(options, 0, sizeof(*options));
	options->cores = settings->poll_cores;
	options->l1_bytes = settings->l1_bytes;
	options->local = !plan->has_listen;
	options->adaptive = settings->wait == KVRAILD_WAIT_ADAPTIVE;
	if (settings->device[0])
		options->devices = settings->device;
	options->port = settings->device_port;
	/* One device is opened. */
	options->rails = plan->has_listen && !settings->device[0];
	if (plan->cores.count) {
		options->given = plan->cores.given;
		options->given_count = plan->cores.count;
	}
}

static void place_worker(const struct machine *machine, const struct plan *topology, const struct plan_poll *poll,
	struct kvraild_worker_place *place)
{
	memset(place, 0, sizeof(*place));
	place->core = topology->pinned ? poll->core : -1;
	place->node = poll->node;
	if (poll->rail < 0)
		return;
	text_copy(place->device, sizeof(place->device), machine->nics[topology->rails[poll->rail].nic].name);
	place->port = topology->rails[poll->rail].port;
}

void kvraild_place(const struct machine *machine, const struct kvraild_cores *cores, enum kvraild_wait wait,
	struct plan *topology, struct kvraild_placement *placement)
{
	uint32_t most;

	memset(placement, 0, sizeof(*placement));
	if (cores->any) {
		topology->pinned = false;
		topology->busy = false;
	}
	topology->busy = wait == KVRAILD_WAIT_BUSY || (wait == KVRAILD_WAIT_AUTO && topology->busy);
	placement->busy = topology->busy;
	placement->insist = wait == KVRAILD_WAIT_BUSY;
	placement->shared = topology->shared;
	/* One thread steps so many parts, one of them the management core. */
	most = topology->shared ? LOOP_PARTS_MAX - 1 : SERVER_WORKERS_MAX;
	for (uint32_t i = 0; i < topology->poll_count && placement->worker_count < most; i++)
		place_worker(machine, topology, &topology->polls[i], &placement->workers[placement->worker_count++]);
	placement->management_core = topology->pinned ? topology->management_core : -1;
}

/* Indices of nodes as bits. */
static uint64_t nodes_of_gpu(const struct machine *machine, const char *pci)
{
	for (uint32_t i = 0; i < machine->gpu_count; i++) {
		if (strcasecmp(machine->gpus[i].pci, pci) == 0)
			return machine->gpus[i].nodes;
	}
	return 0;
}

uint32_t kvraild_place_gpu(const struct machine *machine, const struct plan *topology, const char *pci, int *cores)
{
	uint64_t nodes = nodes_of_gpu(machine, pci);
	uint32_t count = 0;

	for (uint32_t i = 0; i < topology->helper_count; i++) {
		int cpu = machine_find_cpu(machine, topology->helpers[i]);

		if (cpu >= 0 && nodes >> machine->cpus[cpu].node & 1)
			cores[count++] = topology->helpers[i];
	}
	return count;
}

void kvraild_place_anywhere(
	const struct kvraild_cores *cores, enum kvraild_wait wait, struct kvraild_placement *placement)
{
	memset(placement, 0, sizeof(*placement));
	placement->shared = cores->count <= 1;
	placement->worker_count = cores->count > 1 ? cores->count - 1 : 1;
	for (uint32_t i = 0; i < placement->worker_count; i++) {
		placement->workers[i].core = cores->count ? cores->given[i] : -1;
		placement->workers[i].node = -1;
	}
	placement->management_core = cores->count ? cores->given[cores->count - 1] : -1;
	placement->busy = wait == KVRAILD_WAIT_BUSY;
	placement->insist = placement->busy;
}

void kvraild_place_kinds(const struct kvraild_plan *plan, struct kvraild_placement *placement)
{
	/* One thread steps so many parts, one of them the management core. */
	uint32_t most = placement->shared ? LOOP_PARTS_MAX - 1 : SERVER_WORKERS_MAX;
	uint32_t remote = placement->worker_count;

	for (uint32_t i = 0; i < remote; i++)
		placement->workers[i].remote = plan->has_listen;
	if (!plan->has_listen || !plan->has_socket)
		return;
	if (remote > most / 2)
		remote = placement->worker_count = most / 2;
	/* Workers of one core stand one behind the other, so that one thread steps them. */
	for (uint32_t i = remote; i-- > 0;) {
		struct kvraild_worker_place place = placement->workers[i];

		placement->workers[2 * i] = place;
		place.remote = false;
		place.device[0] = '\0';
		place.port = 0;
		placement->workers[2 * i + 1] = place;
	}
	placement->worker_count = 2 * remote;
}

uint32_t kvraild_poll_cores(const struct kvraild_plan *plan)
{
	bool both = plan->has_listen && plan->has_socket;

	return both ? plan->placement.worker_count / 2 : plan->placement.worker_count;
}
