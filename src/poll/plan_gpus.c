/* plan_gpus.c - which rail serves which GPU: near, and fair among equally near ones (pitfalls M08). */
#include <stdio.h>
#include <string.h>

#include "poll/plan_private.h"

/* Smaller is nearer. Between them lie the distances of NUMA nodes. */
enum { SAME_SWITCH, SWITCHES_TOGETHER, SAME_NODE, OTHER_NODE = 16, UNKNOWN_NODE = 2000 };

/* Each GPU with each rail. */
struct closeness {
	uint32_t near[MACHINE_GPUS_MAX][PLAN_RAILS_MAX];
	uint32_t choices[MACHINE_GPUS_MAX]; /* rails that are as near as the nearest */
};

static bool is_behind(const struct machine *machine, int device, int above)
{
	while (device >= 0 && device != above)
		device = machine->switches[device].above;
	return device >= 0;
}

/* How far a rail is from a GPU. */
static uint32_t measure(const struct planner *planner, uint32_t gpu_index, uint32_t rail_index)
{
	const struct machine *machine = planner->machine;
	const struct machine_gpu *gpu = &machine->gpus[gpu_index];
	const struct machine_nic *nic = &machine->nics[planner->plan->rails[rail_index].nic];
	uint32_t distance, best = UNKNOWN_NODE;

	if (gpu->above >= 0 && gpu->above == nic->above)
		return SAME_SWITCH;
	for (int above = gpu->above; above >= 0; above = machine->switches[above].above) {
		if (is_behind(machine, nic->above, above))
			return SWITCHES_TOGETHER;
	}
	if (gpu->nodes & nic->nodes)
		return SAME_NODE;
	for (uint32_t i = 0; i < machine->node_count; i++) {
		if (!(gpu->nodes >> i & 1))
			continue;
		plan_nearest(machine, nic->nodes, i, &distance);
		if (distance < UNKNOWN_NODE && OTHER_NODE + distance < best)
			best = OTHER_NODE + distance;
	}
	return best;
}

/* Between the NUMA nodes of one package there is no slow link. */
static bool same_package(const struct planner *planner, const struct plan_gpu *gpu)
{
	const struct machine *machine = planner->machine;
	uint64_t left = machine->gpus[gpu->gpu].nodes, right = planner->plan->rails[gpu->rails[0]].nodes;

	return left && right &&
		machine->nodes[__builtin_ctzll(left)].package == machine->nodes[__builtin_ctzll(right)].package;
}

static void describe(const struct planner *planner, const struct closeness *all, struct plan_gpu *gpu)
{
	uint32_t near = all->near[gpu->gpu][gpu->rails[0]];
	const struct machine_gpu *facts = &planner->machine->gpus[gpu->gpu];

	if (near == SAME_SWITCH)
		snprintf(gpu->reason, PLAN_REASON, "behind the same PCIe switch %s",
			planner->machine->switches[facts->above].pci);
	else if (near == SWITCHES_TOGETHER)
		snprintf(gpu->reason, PLAN_REASON, "behind neighbouring PCIe switches");
	else if (near == SAME_NODE)
		snprintf(gpu->reason, PLAN_REASON, "same NUMA node, fewest GPUs");
	else if (near < UNKNOWN_NODE)
		snprintf(gpu->reason, PLAN_REASON, "rail is on another NUMA node, distance %u", near - OTHER_NODE);
	else
		snprintf(gpu->reason, PLAN_REASON, "where one of them is is not known, fewest GPUs");
	if (near > SAME_NODE && near < UNKNOWN_NODE && !same_package(planner, gpu))
		plan_warn(planner->plan, "GPU %s is served across packages by %s", facts->name,
			planner->plan->rails[gpu->rails[0]].name);
}

static void measure_all(const struct planner *planner, struct closeness *all)
{
	for (uint32_t gpu = 0; gpu < planner->plan->gpu_count; gpu++) {
		uint32_t nearest = UINT32_MAX;

		all->choices[gpu] = 0;
		for (uint32_t rail = 0; rail < planner->plan->rail_count; rail++) {
			uint32_t near = measure(planner, gpu, rail);

			all->near[gpu][rail] = near;
			if (near < nearest) {
				nearest = near;
				all->choices[gpu] = 0;
			}
			all->choices[gpu] += near == nearest;
		}
	}
}

/* The nearest rail, of equal ones that with the fewest GPUs. */
static void give_rail(const struct planner *planner, const struct closeness *all, struct plan_gpu *gpu, uint32_t *loads)
{
	uint32_t best = 0, nearest = UINT32_MAX;

	for (uint32_t i = 0; i < planner->plan->rail_count; i++) {
		uint32_t near = all->near[gpu->gpu][i];

		if (near < nearest || (near == nearest && loads[i] < loads[best])) {
			best = i;
			nearest = near;
		}
	}
	gpu->rails[gpu->rail_count++] = (int)best;
	loads[best]++;
}

/* A rail that no GPU took goes to the nearest GPU, of equal ones that with the fewest rails. */
static void give_gpu(struct plan *plan, const struct closeness *all, uint32_t rail)
{
	uint32_t best = 0, nearest = UINT32_MAX;

	for (uint32_t i = 0; i < plan->gpu_count; i++) {
		uint32_t near = all->near[i][rail];

		if (near < nearest || (near == nearest && plan->gpus[i].rail_count < plan->gpus[best].rail_count)) {
			best = i;
			nearest = near;
		}
	}
	/* A rail of another node than all GPUs is better left to host memory. */
	if (nearest > SAME_NODE && nearest < UNKNOWN_NODE)
		return;
	if (plan->gpus[best].rail_count < PLAN_GPU_RAILS_MAX)
		plan->gpus[best].rails[plan->gpus[best].rail_count++] = (int)rail;
}

void plan_gpus(struct planner *planner)
{
	struct plan *plan = planner->plan;
	uint32_t loads[PLAN_RAILS_MAX] = { 0 };
	struct closeness all;

	plan->gpu_count = planner->machine->gpu_count;
	for (uint32_t i = 0; i < plan->gpu_count; i++)
		plan->gpus[i].gpu = i;
	if (plan->rail_count == 0) {
		for (uint32_t i = 0; i < plan->gpu_count; i++)
			snprintf(plan->gpus[i].reason, PLAN_REASON, "no rail: by copies of the GPU itself");
		return;
	}
	memset(&all, 0, sizeof(all));
	measure_all(planner, &all);
	/* Those with the least choice first. */
	for (uint32_t choice = 1; choice <= plan->rail_count; choice++) {
		for (uint32_t i = 0; i < plan->gpu_count; i++) {
			if (all.choices[i] == choice)
				give_rail(planner, &all, &plan->gpus[i], loads);
		}
	}
	for (uint32_t i = 0; i < plan->rail_count && plan->gpu_count; i++) {
		if (loads[i] == 0)
			give_gpu(plan, &all, i);
	}
	for (uint32_t i = 0; i < plan->gpu_count; i++)
		describe(planner, &all, &plan->gpus[i]);
}
