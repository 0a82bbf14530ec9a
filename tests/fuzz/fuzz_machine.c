/*
 * libFuzzer target for machine texts and for the plan: the input is a machine text behind a byte of options. What is read keeps the
 * header's promises, is planned for within them, and reads back from what it is written as. Synthetic descriptions are left out: hwloc's
 * own parser reads those.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "poll/plan.h"

static struct plan plan;

/* Kept on: a broken promise ends the run and leaves the input behind. */
static void demand(bool holds)
{
	if (!holds)
		abort();
}

static void check_plan(const struct machine *machine)
{
	demand(plan.poll_count > 0 && plan.poll_count <= PLAN_POLL_MAX);
	for (uint32_t i = 0; i < plan.poll_count; i++) {
		int cpu = machine_find_cpu(machine, plan.polls[i].core);

		demand(cpu >= 0 && machine->cpus[cpu].allowed);
		demand(plan.polls[i].rail < (int)plan.rail_count);
	}
	demand(plan.helper_count > 0 && machine_find_cpu(machine, plan.management_core) >= 0);
	for (uint32_t i = 0; i < plan.arena_count; i++) {
		int node = machine_find_node(machine, plan.arenas[i].node);

		demand(node >= 0 && machine->nodes[node].memory == MACHINE_DRAM && machine->nodes[node].allowed);
	}
}

static void check_written(const struct machine *machine)
{
	struct text first = { NULL, 0, 0, false }, second = { NULL, 0, 0, false };
	struct machine_error error;
	struct machine *again;

	machine_write(machine, &first);
	again = machine_read_text("written", first.bytes, first.length, &error);
	demand(again != NULL);
	machine_write(again, &second);
	demand(first.length == second.length && memcmp(first.bytes, second.bytes, first.length) == 0);
	machine_free(&again);
	text_fini(&first);
	text_fini(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct plan_options options = { .cores = 0 };
	struct text out = { NULL, 0, 0, false };
	struct machine_error error = { "" };
	struct machine *machine;
	int given[3];

	if (size < 1 || memmem(data, size, "synthetic", 9))
		return 0;
	options.cores = data[0] & 7;
	options.rails = data[0] >> 3 & 3;
	options.l1_bytes = (uint64_t)(data[0] >> 5) << 30;
	options.local = size & 1;
	options.adaptive = size & 2;
	machine = machine_read_text("input", (const char *)data + 1, size - 1, &error);
	demand((machine == NULL) == (error.text[0] != '\0'));
	if (!machine)
		return 0;
	for (uint32_t i = 0; (size & 4) && i < machine->cpu_count && options.given_count < KVR_COUNT_OF(given); i++) {
		if (machine->cpus[i].allowed)
			given[options.given_count++] = machine->cpus[i].number;
	}
	options.given = given;
	if (plan_make(machine, &options, &plan) == 0) {
		check_plan(machine);
		plan_print(machine, &plan, &out);
		plan_json(machine, &plan, &out);
		text_fini(&out);
	}
	check_written(machine);
	machine_free(&machine);
	return 0;
}
