/* machine_write.c - a machine as a machine text. */
#include <stdio.h>
#include <string.h>

#include "poll/machine_private.h"

static void write_size(struct text *out, uint64_t bytes)
{
	static const char *const units[] = { "", "KiB", "MiB", "GiB", "TiB" };
	uint32_t unit = 0;

	while (unit < 4 && bytes && bytes % 1024 == 0) {
		bytes /= 1024;
		unit++;
	}
	text_append(out, "%llu%s", (unsigned long long)bytes, units[unit]);
}

static void write_huge(const struct machine_node *node, struct text *out)
{
	for (uint32_t i = 0; i < node->huge_count; i++) {
		text_append(out, i ? "," : " huge=");
		write_size(out, node->huge[i].page_bytes);
		text_append(out, ":%llu/%llu", (unsigned long long)node->huge[i].free,
			(unsigned long long)node->huge[i].total);
	}
}

static void write_nodes(const struct machine *machine, struct text *out)
{
	static const char *const kinds[] = { "", " kind=gpu", " kind=other" };

	for (uint32_t i = 0; i < machine->node_count; i++) {
		const struct machine_node *node = &machine->nodes[i];

		text_append(out, "node %d", node->number);
		if (node->package >= 0)
			text_append(out, " package=%d", node->package);
		text_append(out, " memory=");
		write_size(out, node->bytes);
		text_append(out, "%s%s", kinds[node->memory], node->allowed ? "" : " allowed=no");
		write_huge(node, out);
		text_append(out, "\n");
	}
}

static void write_distances(const struct machine *machine, struct text *out)
{
	for (uint32_t i = 0; i < machine->node_count; i++) {
		uint32_t known = 0;

		for (uint32_t j = 0; j < machine->node_count; j++)
			known += machine->distances[i][j] != 0;
		if (!known)
			continue;
		text_append(out, "distance %d", machine->nodes[i].number);
		for (uint32_t j = 0; j < machine->node_count; j++)
			text_append(out, " %u", machine->distances[i][j]);
		text_append(out, "\n");
	}
}

/* The processors of a core in ascending order. */
static uint32_t siblings_of(const struct machine *machine, uint32_t core, int *numbers, uint32_t capacity)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < machine->cpu_count && count < capacity; i++) {
		if (machine->cpus[i].core == core)
			numbers[count++] = machine->cpus[i].number;
	}
	return count;
}

#define THREADS_MAX 16 /* of one core */

struct core_row {
	uint32_t node, threads;
	int numbers[THREADS_MAX];
};

/* One line for the cores from..to: all of one node, with as many threads, the numbers rising in each list. */
static void write_core_line(
	const struct machine *machine, const struct core_row *rows, uint32_t from, uint32_t to, struct text *out)
{
	int list[MACHINE_CPUS_MAX];

	for (uint32_t thread = 0; thread < rows[from].threads; thread++) {
		for (uint32_t core = from; core <= to; core++)
			list[core - from] = rows[core].numbers[thread];
		text_append(out, thread == 0 ? "cores " : thread == 1 ? " siblings=" : "/");
		machine_list(out, list, to - from + 1);
	}
	text_append(out, " node=%d\n", machine->nodes[rows[from].node].number);
}

static bool same_line(const struct core_row *before, const struct core_row *row)
{
	if (before->node != row->node || before->threads != row->threads)
		return false;
	for (uint32_t thread = 0; thread < row->threads; thread++) {
		if (row->numbers[thread] <= before->numbers[thread])
			return false;
	}
	return true;
}

static void write_cores(const struct machine *machine, struct text *out)
{
	struct core_row rows[MACHINE_CPUS_MAX];
	uint32_t from = 0;

	memset(rows, 0, sizeof(rows));
	for (uint32_t core = 0; core < machine->core_count; core++)
		rows[core].threads = siblings_of(machine, core, rows[core].numbers, THREADS_MAX);
	for (uint32_t i = 0; i < machine->cpu_count; i++)
		rows[machine->cpus[i].core].node = machine->cpus[i].node;
	for (uint32_t core = 1; core <= machine->core_count; core++) {
		if (core < machine->core_count && same_line(&rows[core - 1], &rows[core]))
			continue;
		write_core_line(machine, rows, from, core - 1, out);
		from = core;
	}
}

static void write_flag(const struct machine *machine, const char *word, size_t offset, struct text *out)
{
	int list[MACHINE_CPUS_MAX];
	uint32_t count = 0;

	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		if (*(const bool *)((const char *)&machine->cpus[i] + offset))
			list[count++] = machine->cpus[i].number;
	}
	if (count == 0)
		return;
	text_append(out, "%s ", word);
	machine_list(out, list, count);
	text_append(out, "\n");
}

static void write_flags(const struct machine *machine, struct text *out)
{
	static const char *const thp[] = { "", "never", "madvise", "always" };

	write_flag(machine, "allowed", offsetof(struct machine_cpu, allowed), out);
	write_flag(machine, "isolated", offsetof(struct machine_cpu, isolated), out);
	write_flag(machine, "nohz_full", offsetof(struct machine_cpu, nohz_full), out);
	if (machine->quota_millis)
		text_append(out, "quota %u\n", machine->quota_millis);
	if (machine->memory_limit_bytes) {
		text_append(out, "memory-limit ");
		write_size(out, machine->memory_limit_bytes);
		text_append(out, "\n");
	}
	if (machine->thp)
		text_append(out, "thp %s\n", thp[machine->thp]);
}

static void write_place(const struct machine *machine, const char *pci, uint64_t nodes, int above, struct text *out)
{
	int list[MACHINE_NODES_MAX];
	uint32_t count = 0;

	if (pci[0])
		text_append(out, " pci=%s", pci);
	if (above >= 0)
		text_append(out, " switch=%s", machine->switches[above].pci);
	for (uint32_t i = 0; i < machine->node_count; i++) {
		if (nodes >> i & 1)
			list[count++] = machine->nodes[i].number;
	}
	if (count == 0)
		return;
	text_append(out, " node=");
	machine_list(out, list, count);
}

static void write_link(const char *key, const struct machine_link *link, struct text *out)
{
	if (link->lanes && link->gt_per_s > 0)
		text_append(out, " %s=x%u@%g", key, link->lanes, link->gt_per_s);
	else if (link->lanes)
		text_append(out, " %s=x%u", key, link->lanes);
}

static void write_nic(const struct machine *machine, const struct machine_nic *nic, struct text *out)
{
	static const char *const kinds[] = { "ethernet", "soft-roce", "roce", "infiniband" };

	text_append(out, "nic %s kind=%s", nic->name, kinds[nic->kind]);
	if (nic->netdev[0])
		text_append(out, " netdev=%s", nic->netdev);
	write_place(machine, nic->pci, nic->nodes, nic->above, out);
	write_link("link", &nic->link, out);
	write_link("link-max", &nic->link_max, out);
	if (nic->link_gbits > 0)
		text_append(out, " link-gbits=%.1f", nic->link_gbits);
	for (uint32_t i = 0; i < nic->port_count; i++) {
		const struct machine_port *port = &nic->ports[i];

		text_append(
			out, "%s%u:%s:%u", i ? "/" : " ports=", port->number, port->up ? "up" : "down", port->gbits);
	}
	text_append(out, "\n");
}

/* A model as a word. */
static void write_model(const char *model, struct text *out)
{
	if (!model[0])
		return;
	text_append(out, " model=");
	for (; *model; model++)
		text_append(out, "%c", *model <= ' ' || *model >= 0x7f || strchr("=#", *model) ? '_' : *model);
}

void machine_write(const struct machine *machine, struct text *out)
{
	text_append(out, "kvrail-machine 1\n");
	if (machine->name[0])
		text_append(out, "name %s\n", machine->name);
	write_nodes(machine, out);
	write_distances(machine, out);
	write_cores(machine, out);
	write_flags(machine, out);
	for (uint32_t i = 0; i < machine->switch_count; i++) {
		const struct machine_switch *one = &machine->switches[i];

		text_append(out, "switch %s", one->pci);
		if (one->above >= 0)
			text_append(out, " parent=%s", machine->switches[one->above].pci);
		text_append(out, "\n");
	}
	for (uint32_t i = 0; i < machine->nic_count; i++)
		write_nic(machine, &machine->nics[i], out);
	for (uint32_t i = 0; i < machine->gpu_count; i++) {
		const struct machine_gpu *gpu = &machine->gpus[i];

		text_append(out, "gpu %s", gpu->name);
		write_place(machine, gpu->pci, gpu->nodes, gpu->above, out);
		write_model(gpu->model, out);
		text_append(out, "\n");
	}
}

void machine_write_facts(const struct machine *machine, struct text *out)
{
	text_append(out, "# What hwloc XML does not say.\n");
	write_flags(machine, out);
	for (uint32_t i = 0; i < machine->node_count; i++) {
		if (machine->nodes[i].huge_count == 0)
			continue;
		text_append(out, "node %d", machine->nodes[i].number);
		write_huge(&machine->nodes[i], out);
		text_append(out, "\n");
	}
	for (uint32_t i = 0; i < machine->nic_count; i++)
		write_nic(machine, &machine->nics[i], out);
}
