/* topo_picture.c - the machine and its plan in plain characters. */
#include <stdio.h>
#include <string.h>

#include "app/kvrailctl/topo.h"

#define CORES_A_ROW 64

const struct topo_legend topo_legend[TOPO_USES] = {
	[TOPO_POLLS] = { 'P', "polls", "#d9480f" },
	[TOPO_MANAGES] = { 'M', "manages", "#1971c2" },
	[TOPO_IDLE_SIBLING] = { '~', "sibling of one that spins, left idle", "#ffd8a8" },
	[TOPO_HELPS] = { 'h', "helpers may run", "#8ce99a" },
	[TOPO_FREE] = { '.', "not used", "#e9ecef" },
	[TOPO_NOT_OURS] = { 'x', "not of this process", "#adb5bd" },
};

static bool polls(const struct plan *plan, int number)
{
	for (uint32_t i = 0; i < plan->poll_count; i++) {
		if (plan->polls[i].core == number)
			return true;
	}
	return false;
}

static bool helps(const struct plan *plan, int number)
{
	for (uint32_t i = 0; i < plan->helper_count; i++) {
		if (plan->helpers[i] == number)
			return true;
	}
	return false;
}

/* A thread of the same core spins. */
static bool beside_one_that_spins(const struct machine *machine, const struct plan *plan, const struct machine_cpu *cpu)
{
	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		int number = machine->cpus[i].number;

		if (machine->cpus[i].core == cpu->core && (polls(plan, number) || plan->management_core == number))
			return true;
	}
	return false;
}

enum topo_use topo_use(const struct machine *machine, const struct plan *plan, const struct machine_cpu *cpu)
{
	if (polls(plan, cpu->number))
		return TOPO_POLLS;
	if (plan->management_core == cpu->number)
		return TOPO_MANAGES;
	if (helps(plan, cpu->number))
		return TOPO_HELPS;
	if (!cpu->allowed)
		return TOPO_NOT_OURS;
	return beside_one_that_spins(machine, plan, cpu) ? TOPO_IDLE_SIBLING : TOPO_FREE;
}

uint32_t topo_thread(const struct machine *machine, uint32_t cpu)
{
	uint32_t thread = 0;

	for (uint32_t i = 0; i < cpu; i++)
		thread += machine->cpus[i].core == machine->cpus[cpu].core;
	return thread;
}

int topo_node_of(const struct machine *machine, uint64_t nodes)
{
	if (nodes)
		return __builtin_ctzll(nodes);
	return machine->node_count == 1 ? 0 : -1;
}

uint64_t topo_l1_on(const struct machine *machine, const struct plan *plan, uint32_t node)
{
	for (uint32_t i = 0; i < plan->arena_count; i++) {
		if (plan->arenas[i].node == machine->nodes[node].number)
			return plan->arenas[i].bytes;
	}
	return 0;
}

/* The cores that poll ports of a NIC. */
static void append_pollers(const struct plan *plan, uint32_t nic, struct text *out)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < plan->poll_count; i++) {
		if (plan->polls[i].rail < 0 || plan->rails[plan->polls[i].rail].nic != nic)
			continue;
		text_append(out, "%s%d", count++ ? "," : ", polled by core ", plan->polls[i].core);
	}
	if (!count)
		text_append(out, ", not used");
}

void topo_nic_words(const struct machine *machine, const struct plan *plan, uint32_t index, struct text *out)
{
	static const char *const kinds[] = { "Ethernet", "soft-RoCE", "RoCE", "InfiniBand" };
	const struct machine_nic *nic = &machine->nics[index];

	text_append(out, "%s %s", nic->name, kinds[nic->kind]);
	for (uint32_t i = 0; i < nic->port_count; i++) {
		if (!nic->ports[i].up)
			text_append(out, ", port %u down", nic->ports[i].number);
		else if (nic->ports[i].gbits)
			text_append(out, ", %u Gbit/s", nic->ports[i].gbits);
	}
	if (nic->link.lanes)
		text_append(out, ", x%u", nic->link.lanes);
	append_pollers(plan, index, out);
}

void topo_gpu_words(const struct machine *machine, const struct plan *plan, uint32_t index, struct text *out)
{
	const struct machine_gpu *gpu = &machine->gpus[index];

	text_append(out, "gpu %s%s%s", gpu->name, gpu->model[0] ? " " : "", gpu->model);
	for (uint32_t i = 0; i < plan->gpu_count; i++) {
		if (plan->gpus[i].gpu != index)
			continue;
		for (uint32_t j = 0; j < plan->gpus[i].rail_count; j++)
			text_append(out, "%s%s", j ? "," : ", served by ", plan->rails[plan->gpus[i].rails[j]].name);
	}
}

/* The processors of a node that are the thread-th of their core, as letters, CORES_A_ROW a row. */
static bool picture_threads(
	const struct machine *machine, const struct plan *plan, uint32_t node, uint32_t thread, struct text *out)
{
	uint32_t column = 0;

	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		const struct machine_cpu *cpu = &machine->cpus[i];

		if (cpu->node != node || topo_thread(machine, i) != thread)
			continue;
		if (column % CORES_A_ROW == 0)
			text_append(out, "%s  | %4d  ", column ? "\n" : "", cpu->number);
		else if (column % 8 == 0)
			text_append(out, " ");
		text_append(out, "%c", topo_legend[topo_use(machine, plan, cpu)].letter);
		column++;
	}
	if (column)
		text_append(out, "\n");
	return column > 0;
}

static void picture_memory(const struct machine *machine, const struct plan *plan, uint32_t index, struct text *out)
{
	static const char *const kinds[] = { "", ", GPU memory", ", no ordinary memory" };
	const struct machine_node *node = &machine->nodes[index];
	uint64_t l1 = topo_l1_on(machine, plan, index);
	char bytes[TEXT_SHORT];

	text_append(out, "  +-- node %d: %s%s", node->number, text_size(bytes, node->bytes), kinds[node->memory]);
	for (uint32_t i = 0; i < node->huge_count; i++) {
		if (node->huge[i].total)
			text_append(out, ", %llu of %llu pages of %s free", (unsigned long long)node->huge[i].free,
				(unsigned long long)node->huge[i].total, text_size(bytes, node->huge[i].page_bytes));
	}
	if (!node->allowed)
		text_append(out, ", not of this process");
	if (l1)
		text_append(out, "; L1: %s", text_size(bytes, l1));
	text_append(out, "\n");
}

/* Devices of a node (-1: of none), behind one switch (-1: behind none). */
static void picture_devices(
	const struct machine *machine, const struct plan *plan, int node, int above, struct text *out)
{
	const char *indent = above < 0 ? "  |   " : "  |     ";

	for (uint32_t i = 0; i < machine->nic_count; i++) {
		if (topo_node_of(machine, machine->nics[i].nodes) != node || machine->nics[i].above != above)
			continue;
		text_append(out, "%s", indent);
		topo_nic_words(machine, plan, i, out);
		text_append(out, "\n");
	}
	for (uint32_t i = 0; i < machine->gpu_count; i++) {
		if (topo_node_of(machine, machine->gpus[i].nodes) != node || machine->gpus[i].above != above)
			continue;
		text_append(out, "%s", indent);
		topo_gpu_words(machine, plan, i, out);
		text_append(out, "\n");
	}
}

static void picture_all_devices(const struct machine *machine, const struct plan *plan, int node, struct text *out)
{
	picture_devices(machine, plan, node, -1, out);
	for (uint32_t i = 0; i < machine->switch_count; i++) {
		struct text behind = { NULL, 0, 0, false };

		picture_devices(machine, plan, node, (int)i, &behind);
		if (behind.length)
			text_append(out, "  |   switch %s\n%s", machine->switches[i].pci, behind.bytes);
		out->failed |= behind.failed;
		text_fini(&behind);
	}
}

void topo_picture(const struct machine *machine, const struct plan *plan, struct text *out)
{
	struct text lost = { NULL, 0, 0, false };

	text_append(out, "\n");
	for (uint32_t node = 0; node < machine->node_count; node++) {
		if (node == 0 || machine->nodes[node].package != machine->nodes[node - 1].package) {
			if (machine->nodes[node].package >= 0)
				text_append(out, "  package %d\n", machine->nodes[node].package);
		}
		picture_memory(machine, plan, node, out);
		for (uint32_t thread = 0; picture_threads(machine, plan, node, thread, out); thread++)
			;
		picture_all_devices(machine, plan, (int)node, out);
	}
	picture_all_devices(machine, plan, -1, &lost);
	if (lost.length)
		text_append(out, "  +-- where it is, is not known\n%s", lost.bytes);
	out->failed |= lost.failed;
	text_fini(&lost);
	text_append(out, "  +--\n ");
	for (size_t i = 0; i < TOPO_USES; i++)
		text_append(out, "%s%c %s", i ? "  " : " ", topo_legend[i].letter, topo_legend[i].words);
	text_append(out, "\n\n");
}
