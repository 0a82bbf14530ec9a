/* plan_given.c - cores that somebody else chose: who does what there, and what speaks against them. */
#include <stdio.h>

#include "poll/plan_private.h"

#define GIVEN_MAX (PLAN_POLL_CORES_MAX + 1)

/* The poll cores, and how many rails each has. */
struct given {
	struct plan_core cores[GIVEN_MAX]; /* with the processor that was given */
	uint32_t rails[GIVEN_MAX];
	uint32_t count;
};

static struct plan_core take_given(struct planner *planner, int number)
{
	const struct machine_cpu *cpu = &planner->machine->cpus[machine_find_cpu(planner->machine, number)];
	struct plan_core *core = &planner->cores[cpu->core], given;

	if (core->taken)
		plan_warn(
			planner->plan, "core %d is the sibling of another that was given: each has half of it", number);
	core->taken = true;
	core->cpu = number;
	given = *core;
	given.isolated = cpu->isolated;
	given.nohz_full = cpu->nohz_full;
	return given;
}

static bool is_near(const struct plan_rail *rail, const struct plan_core *core)
{
	return rail->nodes == 0 || (rail->nodes >> core->node & 1);
}

static uint32_t home_of(const struct plan_rail *rail, const struct plan_core *core)
{
	return rail->nodes ? (uint32_t)__builtin_ctzll(rail->nodes) : core->node;
}

/* A rail is polled by a core of its node, else by the nearest; of equals by the one with the fewest rails. */
static void give_rail(struct planner *planner, struct given *given, uint32_t index)
{
	const struct plan_rail *rail = &planner->plan->rails[index];
	uint64_t best_rank = UINT64_MAX;
	uint32_t best = 0;

	for (uint32_t i = 0; i < given->count; i++) {
		const struct plan_core *core = &given->cores[i];
		uint32_t distance = machine_distance(planner->machine, home_of(rail, core), core->node);
		uint64_t rank = (uint64_t)!is_near(rail, core) << 48 | (uint64_t)distance << 16 | given->rails[i];

		if (rank < best_rank) {
			best_rank = rank;
			best = i;
		}
	}
	given->rails[best]++;
	plan_add_poll(planner, &given->cores[best], (int)index, home_of(rail, &given->cores[best]));
}

static uint32_t cores_of_rail(const struct plan *plan, uint32_t rail)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < plan->poll_count; i++)
		count += plan->polls[i].rail == (int)rail;
	return count;
}

/* A core that no rail chose helps with the rail of its node that has the fewest cores. */
static void give_core(struct planner *planner, const struct plan_core *core)
{
	const struct plan *plan = planner->plan;
	uint64_t best_rank = UINT64_MAX;
	uint32_t best = 0;

	for (uint32_t i = 0; i < plan->rail_count; i++) {
		uint64_t rank = (uint64_t)!is_near(&plan->rails[i], core) << 32 | cores_of_rail(plan, i);

		if (rank < best_rank) {
			best_rank = rank;
			best = i;
		}
	}
	plan_add_poll(planner, core, plan->rail_count ? (int)best : -1,
		plan->rail_count ? home_of(&plan->rails[best], core) : core->node);
}

/* In the order in which the cores were given, which is what --cores and the numbers of threads have in common. */
static void sort_polls(struct plan *plan, const struct given *given)
{
	struct plan_poll sorted[PLAN_POLL_MAX];
	uint32_t count = 0;

	for (uint32_t i = 0; i < given->count; i++) {
		for (uint32_t k = 0; k < plan->poll_count; k++) {
			if (plan->polls[k].core == given->cores[i].cpu)
				sorted[count++] = plan->polls[k];
		}
	}
	for (uint32_t i = 0; i < count; i++)
		plan->polls[i] = sorted[i];
}

static void manage_given(struct planner *planner, const struct plan_core *core)
{
	struct plan *plan = planner->plan;
	char where[64];

	plan->management_core = core->cpu;
	snprintf(where, sizeof(where), "node %d, given", planner->machine->nodes[core->node].number);
	if (plan->shared)
		snprintf(plan->management_reason, PLAN_REASON, "the poll core manages too");
	else
		plan_describe(planner, core, where, plan->management_reason);
}

/* Spinning takes a whole core: one must be left for all else, and a quota must pay for them. */
static void decide_busy(struct planner *planner)
{
	struct plan *plan = planner->plan;
	uint32_t threads = planner->options->given_count, quota = planner->machine->quota_millis;

	plan->pinned = true;
	plan->busy = !planner->options->adaptive;
	if (!plan->busy)
		return;
	if (plan_count_free(planner, -1) == 0) {
		plan->busy = false;
		plan_warn(plan, "the given cores leave no physical core for anything else: threads wait adaptively");
	} else if (quota && quota / 1000 < threads) {
		plan->busy = false;
		plan_warn(plan,
			"the control group grants %u.%u processors, less than the given cores: threads wait adaptively",
			quota / 1000, quota % 1000 / 100);
	}
}

void plan_given(struct planner *planner)
{
	struct plan *plan = planner->plan;
	struct plan_core manager;
	struct given given = { .count = 0 };

	plan->shared = planner->options->given_count == 1;
	for (uint32_t i = 0; i < planner->options->given_count; i++)
		given.cores[given.count++] = take_given(planner, planner->options->given[i]);
	manager = given.cores[given.count - 1];
	if (!plan->shared)
		given.count--;
	decide_busy(planner);
	plan->poll_core_count = given.count;
	for (uint32_t i = 0; i < plan->rail_count; i++)
		give_rail(planner, &given, i);
	for (uint32_t i = 0; i < given.count; i++) {
		if (given.rails[i] == 0)
			give_core(planner, &given.cores[i]);
	}
	sort_polls(plan, &given);
	manage_given(planner, &manager);
}
