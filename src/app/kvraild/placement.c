/* placement.c - which threads there are and where they run: a pure function of options and cores (pitfalls M01). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "app/kvraild/options.h"

/* Fewer cores than this: a client that polls, a worker, the management core and all else would take them from each other. */
#define CORES_FOR_TWO_THREADS 4

static bool is_allowed(int core, const int *allowed, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (allowed[i] == core)
			return true;
	}
	return false;
}

/* "0-3,8" */
static void list_cores(const int *cores, uint32_t count, char *out, size_t size)
{
	struct text text = { NULL, 0, 0, false };

	for (uint32_t i = 0; i < count;) {
		uint32_t last = i;

		while (last + 1 < count && cores[last + 1] == cores[last] + 1)
			last++;
		text_append(&text, last > i ? "%s%d-%d" : "%s%d", i ? "," : "", cores[i], cores[last]);
		i = last + 1;
	}
	text_copy(out, size, text.bytes ? text.bytes : "none");
	text_fini(&text);
}

/* Gives `cores` to the threads: the last one to the management core. */
static void place_pinned(const int *cores, uint32_t count, struct kvraild_placement *placement)
{
	placement->shared = count == 1;
	placement->worker_count = placement->shared ? 1 : count - 1;
	for (uint32_t i = 0; i < placement->worker_count; i++)
		placement->worker_cores[i] = cores[i];
	placement->management_core = placement->shared ? -1 : cores[count - 1];
}

static int refuse_list(const char *cores, int why, struct option_error *error)
{
	if (why == -ERANGE)
		snprintf(error->text, sizeof(error->text), "--cores %s: core numbers are below %u", cores, CORES_MAX);
	else if (why == -ENOSPC)
		snprintf(error->text, sizeof(error->text), "--cores %s: more than %u cores", cores,
			SERVER_WORKERS_MAX + 1);
	else
		snprintf(error->text, sizeof(error->text), "--cores %s is no list of cores, as 2-5,8", cores);
	return -EINVAL;
}

int kvraild_place(const char *cores, enum kvraild_wait wait, const int *allowed, uint32_t allowed_count,
	struct kvraild_placement *placement, struct option_error *error)
{
	int list[SERVER_WORKERS_MAX + 1];
	char all[128];
	int count;

	memset(placement, 0, sizeof(*placement));
	placement->management_core = -1;
	placement->busy = wait == KVRAILD_WAIT_BUSY || (wait == KVRAILD_WAIT_AUTO && cores[0]);
	if (!cores[0]) {
		placement->worker_count = 1;
		placement->worker_cores[0] = -1;
		placement->shared = allowed_count < CORES_FOR_TWO_THREADS;
		return 0;
	}
	count = cores_parse(cores, list, KVR_COUNT_OF(list));
	if (count < 0)
		return refuse_list(cores, count, error);
	for (int i = 0; i < count; i++) {
		if (is_allowed(list[i], allowed, allowed_count))
			continue;
		list_cores(allowed, allowed_count, all, sizeof(all));
		snprintf(error->text, sizeof(error->text),
			"--cores %s: core %d is not one that this process may use (%s)", cores, list[i], all);
		return -EINVAL;
	}
	place_pinned(list, (uint32_t)count, placement);
	return 0;
}
