/* plan_groups.c - shares poll cores out between NUMA nodes by their rails: rule 4 of plan.h. */
#include <string.h>

#include "poll/plan_private.h"

static struct plan_group *group_of(struct plan_groups *groups, uint32_t node)
{
	struct plan_group *group;

	for (uint32_t i = 0; i < groups->count; i++) {
		if (groups->list[i].node == node)
			return &groups->list[i];
	}
	group = &groups->list[groups->count++];
	memset(group, 0, sizeof(*group));
	group->node = node;
	return group;
}

static uint32_t rails_on(const struct plan_groups *groups, uint32_t node)
{
	for (uint32_t i = 0; i < groups->count; i++) {
		if (groups->list[i].node == node)
			return groups->list[i].rail_count;
	}
	return 0;
}

/* Of the nodes that a rail is near to (any, when that is not known), one with cores, and fewest rails so far. */
static uint32_t home_of(const struct planner *planner, const struct plan_groups *groups, uint64_t nodes)
{
	uint32_t best = nodes ? (uint32_t)__builtin_ctzll(nodes) : 0;
	bool best_has = plan_count_free(planner, (int)best) > 0;

	for (uint32_t node = best + 1; node < planner->machine->node_count; node++) {
		bool has = (!nodes || (nodes >> node & 1)) && plan_count_free(planner, (int)node) > 0;

		if (has && (!best_has || rails_on(groups, node) < rails_on(groups, best))) {
			best = node;
			best_has = true;
		}
	}
	return best;
}

static void make_groups(const struct planner *planner, struct plan_groups *groups)
{
	const struct plan *plan = planner->plan;

	groups->count = 0;
	for (uint32_t i = 0; i < plan->rail_count; i++) {
		struct plan_group *group = group_of(groups, home_of(planner, groups, plan->rails[i].nodes));

		group->rails[group->rail_count++] = (int)i;
		group->weight = group->rail_count;
	}
	for (uint32_t i = 0; plan->rail_count == 0 && i < planner->machine->node_count; i++) {
		if (planner->weights[i])
			group_of(groups, i)->weight = planner->weights[i];
	}
	/* By node, so that the plan reads in order. */
	for (uint32_t i = 1; i < groups->count; i++) {
		for (uint32_t j = i; j > 0 && groups->list[j].node < groups->list[j - 1].node; j--) {
			struct plan_group swap = groups->list[j];

			groups->list[j] = groups->list[j - 1];
			groups->list[j - 1] = swap;
		}
	}
}

/* The rails of the lightest group go to the nearest other one. */
static void merge_lightest(const struct planner *planner, struct plan_groups *groups)
{
	uint32_t lightest = 0, into = UINT32_MAX, nearest = UINT32_MAX;
	struct plan_group *from, *to;

	for (uint32_t i = 1; i < groups->count; i++) {
		if (groups->list[i].weight <= groups->list[lightest].weight)
			lightest = i;
	}
	from = &groups->list[lightest];
	for (uint32_t i = 0; i < groups->count; i++) {
		uint32_t distance = machine_distance(planner->machine, from->node, groups->list[i].node);

		if (i != lightest && distance < nearest) {
			nearest = distance;
			into = i;
		}
	}
	if (into == UINT32_MAX)
		return;
	to = &groups->list[into];
	for (uint32_t i = 0; i < from->rail_count; i++)
		to->rails[to->rail_count++] = from->rails[i];
	to->weight += from->weight;
	groups->count--;
	memmove(from, from + 1, (groups->count - lightest) * sizeof(*from));
}

/* One core each, then always where most rails share one, and there is a core left; rule 4. */
void plan_share_out(const struct planner *planner, struct plan_groups *groups, uint32_t cores)
{
	make_groups(planner, groups);
	while (groups->count > cores)
		merge_lightest(planner, groups);
	for (uint32_t i = 0; i < groups->count; i++)
		groups->list[i].cores = 1;
	for (uint32_t given = groups->count; groups->count > 0 && given < cores; given++) {
		struct plan_group *best = NULL;
		bool best_has = false;

		for (uint32_t i = 0; i < groups->count; i++) {
			struct plan_group *group = &groups->list[i];
			bool has = plan_count_free(planner, (int)group->node) > group->cores;

			if (!best || has > best_has ||
				(has == best_has && group->weight * best->cores > best->weight * group->cores)) {
				best = group;
				best_has = has;
			}
		}
		if (best)
			best->cores++;
	}
}
