/* plan_rails.c - which ports are rails, what is wrong with them, and the nodes that the work is near to. */
#include <stdio.h>
#include <string.h>

#include "poll/plan_private.h"

static bool is_rdma(const struct machine_nic *nic)
{
	return nic->kind != MACHINE_ETHERNET;
}

static void add_rail(struct plan *plan, const struct machine *machine, uint32_t index, const struct machine_port *port)
{
	const struct machine_nic *nic = &machine->nics[index];
	struct plan_rail *rail = &plan->rails[plan->rail_count];

	if (plan->rail_count == PLAN_RAILS_MAX)
		return;
	rail->nic = index;
	rail->port = port ? port->number : 1;
	rail->gbits = port ? port->gbits : 0;
	rail->nodes = nic->nodes;
	if (nic->port_count > 1)
		snprintf(rail->name, sizeof(rail->name), "%s/%u", nic->name, rail->port);
	else
		snprintf(rail->name, sizeof(rail->name), "%s", nic->name);
	plan->rail_count++;
}

/* One of "mlx5_0,mlx5_1"? */
static bool is_named(const char *names, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = names; at && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
		if (strcspn(at, ",") == length && strncmp(at, name, length) == 0)
			return true;
	}
	return !names;
}

/* All RDMA ports that are up; a device whose ports are not known is taken to have one. */
static void find_rails(struct plan *plan, const struct machine *machine, const struct plan_options *options)
{
	for (uint32_t i = 0; i < machine->nic_count; i++) {
		const struct machine_nic *nic = &machine->nics[i];

		if (!is_rdma(nic) || !is_named(options->devices, nic->name))
			continue;
		if (nic->port_count == 0)
			add_rail(plan, machine, i, NULL);
		for (uint32_t j = 0; j < nic->port_count; j++) {
			if (options->port && nic->ports[j].number != options->port)
				continue;
			if (nic->ports[j].up)
				add_rail(plan, machine, i, &nic->ports[j]);
			else
				plan_warn(plan,
					"%s port %u is down: it carries nothing, the other rails take its share",
					nic->name, nic->ports[j].number);
		}
	}
}

static void drop_rail(struct plan *plan, uint32_t index)
{
	plan->rail_count--;
	memmove(&plan->rails[index], &plan->rails[index + 1], (plan->rail_count - index) * sizeof(plan->rails[0]));
	memset(&plan->rails[plan->rail_count], 0, sizeof(plan->rails[0]));
}

/* Ports for management and storage are there too, and slow: half of a striped transfer would wait for them. */
static void drop_slow_rails(struct plan *plan)
{
	uint32_t fastest = 0;

	for (uint32_t i = 0; i < plan->rail_count; i++) {
		if (plan->rails[i].gbits > fastest)
			fastest = plan->rails[i].gbits;
	}
	for (uint32_t i = plan->rail_count; i-- > 0;) {
		const struct plan_rail *rail = &plan->rails[i];

		if (rail->gbits == 0 || 2 * rail->gbits >= fastest)
			continue;
		plan_warn(plan, "%s has %u Gbit/s, less than half of the fastest rail's %u: left out", rail->name,
			rail->gbits, fastest);
		drop_rail(plan, i);
	}
}

/* The lowest node that a rail is near to; the first of the machine when it is not known. */
static uint32_t node_of(const struct plan_rail *rail)
{
	return rail->nodes ? (uint32_t)__builtin_ctzll(rail->nodes) : 0;
}

/* Fewer than there are: from the node with the most rails left over, the last of them, goes one after the other. */
static void choose_rails(struct planner *planner)
{
	struct plan *plan = planner->plan;
	uint32_t wanted = planner->options->rails;

	if (wanted > plan->rail_count)
		plan_warn(plan, "%u rails were asked for, %u can be used", wanted, plan->rail_count);
	while (plan->rail_count > wanted) {
		uint32_t counts[MACHINE_NODES_MAX] = { 0 };
		uint32_t worst = 0;

		for (uint32_t i = 0; i < plan->rail_count; i++)
			counts[node_of(&plan->rails[i])]++;
		for (uint32_t i = 1; i < plan->rail_count; i++) {
			const struct plan_rail *rail = &plan->rails[i], *old = &plan->rails[worst];

			if (rail->gbits < old->gbits ||
				(rail->gbits == old->gbits && counts[node_of(rail)] >= counts[node_of(old)]))
				worst = i;
		}
		drop_rail(plan, worst);
	}
}

/* A link that cannot carry what the port could. */
static void warn_link(struct plan *plan, const struct machine *machine, const struct plan_rail *rail)
{
	const struct machine_nic *nic = &machine->nics[rail->nic];
	double carries = machine_link_gbits(&nic->link);
	double could = machine_link_gbits(&nic->link_max);

	if (carries <= 0)
		carries = nic->link_gbits;
	if (nic->link.lanes && nic->link.lanes < nic->link_max.lanes)
		plan_warn(plan, "%s is on a x%u link and could use x%u: move it to a wider slot", rail->name,
			nic->link.lanes, nic->link_max.lanes);
	else if (carries > 0 && could > 1.1 * carries)
		plan_warn(plan, "%s has a PCIe link of %.0f GT/s and could use %.0f", rail->name, nic->link.gt_per_s,
			nic->link_max.gt_per_s);
	/* Headers of transactions take some of it: what is left of the raw rate is about nine tenths. */
	if (carries > 0 && rail->gbits > 0 && 0.9 * carries < rail->gbits)
		plan_warn(plan, "%s: the PCIe link carries about %.0f Gbit/s, the port %u", rail->name, 0.9 * carries,
			rail->gbits);
}

static void check_rails(struct planner *planner)
{
	struct plan *plan = planner->plan;

	for (uint32_t i = 0; i < plan->rail_count; i++) {
		const struct plan_rail *rail = &plan->rails[i];

		/* The card below a soft-RoCE device is not what holds it back. */
		if (planner->machine->nics[rail->nic].kind != MACHINE_SOFT_ROCE)
			warn_link(plan, planner->machine, rail);
		if (rail->nodes == 0 && planner->machine->node_count > 1)
			plan_warn(plan, "%s: its NUMA node is not known; it may be polled from the wrong one",
				rail->name);
		if (planner->machine->nics[rail->nic].kind == MACHINE_SOFT_ROCE)
			plan_warn(plan, "%s is soft-RoCE: the kernel copies every byte; for tests, not for speed",
				rail->name);
	}
}

/* Where there is DRAM that this process may use and processors that it may use. */
static uint64_t usable_nodes(const struct machine *machine)
{
	uint64_t nodes = 0;

	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		if (machine->cpus[i].allowed)
			nodes |= 1ULL << machine->cpus[i].node;
	}
	return nodes;
}

static void add_anchor(struct planner *planner, uint64_t nodes)
{
	for (uint32_t i = 0; i < planner->machine->node_count; i++) {
		if (nodes >> i & 1)
			planner->weights[i] += 64 / (uint32_t)__builtin_popcountll(nodes);
	}
	planner->anchors |= nodes;
}

/* Without RDMA: near GPUs, else near network interfaces, which soft-RoCE could be put on, else anywhere. */
static void anchor_without_rails(struct planner *planner)
{
	const struct machine *machine = planner->machine;

	if (!planner->options->local)
		plan_warn(planner->plan, "no RDMA port is up: clients of this host are served, and no others");
	for (uint32_t i = 0; i < machine->gpu_count; i++)
		add_anchor(planner, machine->gpus[i].nodes);
	if (planner->anchors)
		return;
	for (uint32_t i = 0; i < machine->nic_count && !planner->options->local; i++) {
		if (machine->nics[i].kind == MACHINE_ETHERNET)
			add_anchor(planner, machine->nics[i].nodes);
	}
	if (!planner->anchors)
		add_anchor(planner, usable_nodes(machine));
}

void plan_rails(struct planner *planner)
{
	struct plan *plan = planner->plan;

	if (!planner->options->local)
		find_rails(plan, planner->machine, planner->options);
	if (planner->options->rails == 0 || planner->options->local)
		drop_slow_rails(plan);
	else
		choose_rails(planner);
	check_rails(planner);
	for (uint32_t i = 0; i < plan->rail_count; i++)
		add_anchor(planner, plan->rails[i].nodes);
	if (plan->rail_count == 0)
		anchor_without_rails(planner);
	/* Rails whose place is not known. */
	if (!planner->anchors)
		add_anchor(planner, usable_nodes(planner->machine));
}
