/* plan_cores.c - poll cores near their rails, a management core, and where everything else may run (pitfalls M01). */
#include <stdio.h>
#include <string.h>

#include "poll/plan_private.h"

/* Helpers touch memory in parallel: with fewer processors than this near the rails, those of other nodes help. */
#define HELPERS_WANTED 4
/* Without a rail all clients are on this host, and need a core each as well. */
#define CORES_TO_SPIN_BESIDE_CLIENTS 4

static void find_cores(struct planner *planner)
{
	const struct machine *machine = planner->machine;

	for (uint32_t i = 0; i < machine->core_count; i++)
		planner->cores[i].cpu = -1;
	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		const struct machine_cpu *cpu = &machine->cpus[i];
		struct plan_core *core = &planner->cores[cpu->core];

		core->node = cpu->node;
		core->threads++;
		core->first |= cpu->number == 0;
		if (!cpu->allowed)
			continue;
		core->allowed++;
		/* Interrupts and kernel work are rather on processor 0 than on its sibling. */
		if (core->cpu <= 0) {
			core->cpu = cpu->number;
			core->isolated = cpu->isolated;
			core->nohz_full = cpu->nohz_full;
		}
	}
}

uint32_t plan_count_free(const struct planner *planner, int node)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < planner->machine->core_count; i++) {
		const struct plan_core *core = &planner->cores[i];

		count += core->cpu >= 0 && !core->taken && (node < 0 || core->node == (uint32_t)node);
	}
	return count;
}

/* Smaller is better; the strongest rule has the highest bits. */
static uint64_t rank(const struct planner *planner, const struct plan_core *core, uint32_t node)
{
	uint64_t distance = machine_distance(planner->machine, node, core->node);

	/* What is measured as local differs between machines: the node itself is always nearest. */
	return (uint64_t)(core->node != node) << 40 | distance << 20 | (uint64_t)(core->allowed < core->threads) << 19 |
		(uint64_t)!core->isolated << 18 | (uint64_t)!core->nohz_full << 17 | (uint64_t)core->first << 16 |
		(uint64_t)core->cpu;
}

/* Takes the best free core for a thread that belongs to `node`; NULL: none is free. */
static struct plan_core *take_core(struct planner *planner, uint32_t node)
{
	struct plan_core *best = NULL;

	for (uint32_t i = 0; i < planner->machine->core_count; i++) {
		struct plan_core *core = &planner->cores[i];

		if (core->cpu < 0 || core->taken)
			continue;
		if (!best || rank(planner, core, node) < rank(planner, best, node))
			best = core;
	}
	if (best)
		best->taken = true;
	return best;
}

/* How many threads spin: rule 2 of plan.h. Returns the number of poll cores. */
static uint32_t decide_threads(struct planner *planner)
{
	struct plan *plan = planner->plan;
	uint32_t wanted = planner->options->cores ? planner->options->cores : plan->rail_count;
	uint32_t physical = plan_count_free(planner, -1), usable = physical;
	uint32_t granted = planner->machine->quota_millis / 1000;
	char why[96] = "";

	if (wanted == 0)
		wanted = 1;
	if (wanted > PLAN_POLL_CORES_MAX)
		wanted = PLAN_POLL_CORES_MAX;
	if (planner->machine->quota_millis && granted < usable) {
		usable = granted ? granted : 1;
		snprintf(why, sizeof(why), "the control group grants %u.%u processors", granted,
			planner->machine->quota_millis % 1000 / 100);
	} else {
		snprintf(why, sizeof(why), "%u physical core%s may be used", physical, physical == 1 ? "" : "s");
	}
	plan->busy = usable >= (plan->rail_count ? 2 : CORES_TO_SPIN_BESIDE_CLIENTS);
	plan->shared = usable <= 2;
	plan->pinned = plan->busy;
	if (!plan->busy && usable > 1)
		plan_warn(plan, "%s, and clients of this host poll there too: threads wait adaptively", why);
	plan->busy &= !planner->options->adaptive;
	if (usable == 1)
		plan_warn(plan,
			"%s: one thread polls and manages and does not spin, or it would take the core from all else",
			why);
	else if (usable == 2)
		plan_warn(plan, "%s: one thread polls and manages, the other core is for all else", why);
	if (!plan->shared && wanted + 2 <= usable)
		return wanted;
	if (wanted > 1)
		plan_warn(plan, "%s: %u poll core%s instead of %u%s", why, plan->shared ? 1 : usable - 2,
			plan->shared || usable == 3 ? "" : "s", wanted, planner->options->cores ? "" : ", one a rail");
	return plan->shared ? 1 : usable - 2;
}

/* What speaks for and against a core, behind why it is on this node. */
void plan_describe(const struct planner *planner, const struct plan_core *core, const char *where, char *reason)
{
	const char *isolation = core->isolated ? ", isolated" : planner->plan->busy ? ", not isolated" : "";
	const char *threads = "";

	if (core->threads > 1)
		threads = core->allowed < core->threads ? ", its sibling is not ours"
			: planner->plan->busy           ? ", whole core"
							: "";
	snprintf(reason, PLAN_REASON, "%s%s%s%s%s", where, isolation, core->nohz_full ? ", nohz_full" : "", threads,
		core->first ? ", beside processor 0" : "");
}

/* Where a poll core is, in words, beside its rail. */
static void describe_place(const struct planner *planner, const struct plan_poll *poll, uint32_t home, uint32_t at,
	char *words, size_t size)
{
	const struct machine *machine = planner->machine;

	if (poll->rail < 0)
		snprintf(words, size, at == home ? "node %d: %s" : "node %d, nearest to where a core is left: %s",
			poll->node, machine->gpu_count ? "GPUs" : "local clients");
	else if (planner->plan->rails[poll->rail].nodes == 0)
		snprintf(words, size, "node of the rail is not known");
	else if (poll->near)
		snprintf(words, size, "on the rail's node");
	else
		snprintf(words, size, "rail is on node %d, distance %u",
			machine->nodes[__builtin_ctzll(planner->plan->rails[poll->rail].nodes)].number,
			machine_distance(machine, home, at));
}

void plan_add_poll(struct planner *planner, const struct plan_core *core, int rail, uint32_t home)
{
	struct plan *plan = planner->plan;
	struct plan_poll *poll = &plan->polls[plan->poll_count++];
	uint64_t nodes = rail >= 0 ? plan->rails[rail].nodes : 0;
	char words[80];

	poll->core = core->cpu;
	poll->rail = rail;
	poll->node = planner->machine->nodes[core->node].number;
	poll->near = rail >= 0 ? nodes == 0 || (nodes >> core->node & 1) : core->node == home;
	describe_place(planner, poll, home, core->node, words, sizeof(words));
	plan_describe(planner, core, words, poll->reason);
	if (!poll->near && rail >= 0)
		plan_warn(plan, "%s is polled by core %d of node %d: %s on its own node", plan->rails[rail].name,
			poll->core, poll->node, planner->options->given_count ? "no given core is" : "no core is left");
}

/* The cores of a group: each some rails, or each rail some cores. */
static void place_group(struct planner *planner, const struct plan_group *group)
{
	for (uint32_t i = 0; i < group->cores; i++) {
		const struct plan_core *core = take_core(planner, group->node);
		uint32_t from = i * group->rail_count / group->cores;
		uint32_t to = (i + 1) * group->rail_count / group->cores;

		if (!core)
			return;
		planner->plan->poll_core_count++;
		if (to == from && group->rail_count)
			to = from + 1;
		if (group->rail_count == 0)
			plan_add_poll(planner, core, -1, group->node);
		for (uint32_t rail = from; rail < to; rail++)
			plan_add_poll(planner, core, group->rails[rail], group->node);
	}
}

static const struct machine_cpu *cpu_of(const struct machine *machine, int number)
{
	return &machine->cpus[machine_find_cpu(machine, number)];
}

/* On the node with most poll cores: their messages are its work. */
static void place_management(struct planner *planner)
{
	const struct machine *machine = planner->machine;
	struct plan *plan = planner->plan;
	uint32_t counts[MACHINE_NODES_MAX] = { 0 };
	uint32_t home = 0;
	const struct plan_core *core;
	char words[64];

	if (plan->shared) {
		plan->management_core = plan->polls[0].core;
		snprintf(plan->management_reason, PLAN_REASON, "the poll core manages too");
		return;
	}
	for (uint32_t i = 0; i < plan->poll_count; i++)
		counts[cpu_of(machine, plan->polls[i].core)->node]++;
	for (uint32_t i = 1; i < machine->node_count; i++) {
		if (counts[i] > counts[home])
			home = i;
	}
	core = take_core(planner, home);
	plan->management_core = core->cpu;
	if (core->node == home)
		snprintf(words, sizeof(words), "node %d, beside the poll cores", machine->nodes[home].number);
	else
		snprintf(words, sizeof(words), "node %d: no core is left on node %d", machine->nodes[core->node].number,
			machine->nodes[home].number);
	plan_describe(planner, core, words, plan->management_reason);
}

enum helper_rule { NEAR_RAILS, ANYWHERE, ISOLATED_TOO, SIBLINGS_TOO, ALL };

static bool may_help(const struct planner *planner, const struct machine_cpu *cpu, enum helper_rule rule)
{
	const struct plan_core *core = &planner->cores[cpu->core];

	if (!cpu->allowed)
		return false;
	if (rule == ALL)
		return true;
	if (core->taken)
		return rule == SIBLINGS_TOO && cpu->number != core->cpu;
	if (cpu->isolated && rule < ISOLATED_TOO)
		return false;
	return rule != NEAR_RAILS || (planner->anchors >> cpu->node & 1);
}

static uint32_t find_helpers(const struct planner *planner, enum helper_rule rule, int *numbers)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < planner->machine->cpu_count; i++) {
		if (may_help(planner, &planner->machine->cpus[i], rule))
			numbers[count++] = planner->machine->cpus[i].number;
	}
	return count;
}

/* Never beside a spinning thread on its physical core, while anything else is left. */
static void place_helpers(struct planner *planner)
{
	static const char *const reasons[] = { "near the rails, beside no spinning thread",
		"beside no spinning thread; few or none are left near the rails",
		"nothing but isolated processors is left", "only siblings of spinning threads are left",
		"nothing is left: together with the threads that poll" };
	struct plan *plan = planner->plan;
	enum helper_rule rule = NEAR_RAILS;

	plan->helper_count = find_helpers(planner, rule, plan->helpers);
	if (plan->helper_count < HELPERS_WANTED && find_helpers(planner, ANYWHERE, plan->helpers) > plan->helper_count)
		rule = ANYWHERE;
	plan->helper_count = find_helpers(planner, rule, plan->helpers);
	while (plan->helper_count == 0 && rule < ALL)
		plan->helper_count = find_helpers(planner, ++rule, plan->helpers);
	snprintf(plan->helper_reason, PLAN_REASON, "%s", reasons[rule]);
	if (rule == SIBLINGS_TOO)
		plan_warn(plan, "helper threads run on siblings of threads that poll, and slow them");
	else if (rule == ALL)
		plan_warn(plan, "helper threads share the one processor with the thread that polls");
	else if (rule == ISOLATED_TOO)
		plan_warn(plan,
			"helper threads run on isolated processors, where the scheduler does not spread them: leave "
			"some that are not isolated");
}

/* One warning for each kind of compromise, however many cores it is about. */
static void warn_cores(struct planner *planner)
{
	const struct machine *machine = planner->machine;
	uint32_t open = 0, foreign = 0;
	int list[MACHINE_CPUS_MAX];
	struct text text = { NULL, 0, 0, false };
	uint32_t count = 0;

	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		const struct plan_core *core = &planner->cores[machine->cpus[i].core];

		if (core->taken && machine->cpus[i].allowed)
			list[count++] = machine->cpus[i].number;
	}
	for (uint32_t i = 0; i < machine->core_count; i++) {
		const struct plan_core *core = &planner->cores[i];

		open += core->taken && !core->isolated;
		foreign += core->taken && core->allowed < core->threads;
		if (core->taken && core->first && planner->plan->busy)
			plan_warn(
				planner->plan, "core 0 spins, where interrupts and kernel work are: no other was left");
	}
	machine_list(&text, list, count);
	if (open && planner->plan->busy)
		plan_warn(planner->plan,
			"%u of the cores that spin %s not isolated: boot with isolcpus=%.60s nohz_full=%.60s", open,
			open == 1 ? "is" : "are", text.bytes ? text.bytes : "", text.bytes ? text.bytes : "");
	if (foreign)
		plan_warn(planner->plan,
			"%u of the cores that spin %s a sibling outside the cpuset: others may slow it", foreign,
			foreign == 1 ? "has" : "have");
	text_fini(&text);
}

void plan_cores(struct planner *planner)
{
	struct plan_groups groups;
	uint32_t cores;

	find_cores(planner);
	if (planner->options->given_count) {
		plan_given(planner);
	} else {
		cores = decide_threads(planner);
		plan_share_out(planner, &groups, cores);
		for (uint32_t i = 0; i < groups.count; i++)
			place_group(planner, &groups.list[i]);
		place_management(planner);
	}
	place_helpers(planner);
	warn_cores(planner);
}

uint32_t plan_touch_cpus(const struct machine *machine, int node, int *numbers, uint32_t capacity)
{
	bool seen[MACHINE_CPUS_MAX] = { false };
	uint32_t count = 0;

	for (uint32_t i = 0; i < machine->cpu_count && count < capacity; i++) {
		const struct machine_cpu *cpu = &machine->cpus[i];

		if (!cpu->allowed || seen[cpu->core] || (node >= 0 && machine->nodes[cpu->node].number != node))
			continue;
		seen[cpu->core] = true;
		numbers[count++] = cpu->number;
	}
	return count == 0 && node >= 0 ? plan_touch_cpus(machine, -1, numbers, capacity) : count;
}
