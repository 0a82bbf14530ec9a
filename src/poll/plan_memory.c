/* plan_memory.c - on which nodes L1 lies, how much on each, and on which pages (pitfalls M07). */
#include <stdio.h>
#include <string.h>

#include "poll/plan_private.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

/* What L1 may have of a node: the rest is for the system, jemalloc and page tables. */
static uint64_t room_of(const struct machine_node *node)
{
	if (!node->allowed || node->memory != MACHINE_DRAM)
		return 0;
	return node->bytes / 10 * 9;
}

/* The L1 that is asked for, less what a limit of the control group refuses. */
static uint64_t wanted_bytes(const struct planner *planner)
{
	uint64_t wanted = planner->options->l1_bytes, limit = planner->machine->memory_limit_bytes;
	char has[TEXT_SHORT], asked[TEXT_SHORT];

	if (limit && wanted > limit / 10 * 9)
		plan_warn(planner->plan,
			"L1 of %s does not fit the control group's memory.max of %s: raise it or ask for less",
			text_size(asked, wanted), text_size(has, limit));
	return wanted;
}

/* Arenas are multiples of it, as far as L1 is: a whole huge page, where nodes have such pages. */
static uint64_t unit_of(const struct planner *planner, uint64_t wanted)
{
	const struct machine *machine = planner->machine;
	uint32_t anchors = (uint32_t)__builtin_popcountll(planner->anchors);

	for (uint32_t i = 0; i < machine->node_count; i++) {
		const struct machine_node *node = &machine->nodes[i];

		if (!(planner->anchors >> i & 1) || node->huge_count == 0 || node->huge[0].free == 0 ||
			node->huge[0].page_bytes < GIB)
			continue;
		if (wanted % GIB == 0 && wanted / GIB >= anchors)
			return GIB;
	}
	return wanted >= 2 * MIB * anchors ? 2 * MIB : 4096;
}

/* Adds what fits of `bytes` to a node's share; returns what does not. */
static uint64_t put(const struct machine *machine, uint64_t *shares, uint32_t node, uint64_t bytes)
{
	uint64_t room = room_of(&machine->nodes[node]);
	uint64_t more = kvr_min_u64(bytes, room > shares[node] ? room - shares[node] : 0);

	shares[node] += more;
	return bytes - more;
}

/* Each anchor's share by weight, in units; what is left over by rounding goes to the first ones, a unit each. */
static uint64_t share_in_proportion(const struct planner *planner, uint64_t wanted, uint64_t *shares)
{
	const struct machine *machine = planner->machine;
	uint64_t unit = unit_of(planner, wanted), total = 0, given = 0, over = 0;
	uint64_t ideal[MACHINE_NODES_MAX] = { 0 };

	for (uint32_t i = 0; i < machine->node_count; i++)
		total += room_of(&machine->nodes[i]) ? planner->weights[i] : 0;
	if (total == 0)
		return wanted;
	for (uint32_t i = 0; i < machine->node_count; i++) {
		if (room_of(&machine->nodes[i]))
			ideal[i] = (uint64_t)((double)wanted / unit * planner->weights[i] / total) * unit;
		given += ideal[i];
	}
	for (uint32_t i = 0; i < machine->node_count && given < wanted; i++) {
		uint64_t more = kvr_min_u64(unit, wanted - given);

		if (ideal[i] == 0 && !(planner->weights[i] && room_of(&machine->nodes[i])))
			continue;
		ideal[i] += more;
		given += more;
	}
	for (uint32_t i = 0; i < machine->node_count; i++)
		over += put(machine, shares, i, ideal[i]);
	return over + (wanted > given ? wanted - given : 0);
}

/* What is over goes to the nearest nodes that have room. */
static uint64_t spill(const struct planner *planner, uint64_t over, uint64_t *shares)
{
	const struct machine *machine = planner->machine;
	uint64_t tried = 0;

	while (over) {
		uint32_t best = UINT32_MAX, nearest = UINT32_MAX, distance;

		for (uint32_t i = 0; i < machine->node_count; i++) {
			if ((tried >> i & 1) || room_of(&machine->nodes[i]) <= shares[i])
				continue;
			plan_nearest(machine, planner->anchors, i, &distance);
			if (best == UINT32_MAX || distance < nearest) {
				best = i;
				nearest = distance;
			}
		}
		if (best == UINT32_MAX)
			return over;
		tried |= 1ULL << best;
		over = put(machine, shares, best, over);
	}
	return 0;
}

/* The largest pages of which enough are free; else transparent or normal ones, and what to do about it. */
static void choose_pages(struct planner *planner, const struct machine_node *node, struct plan_arena *arena)
{
	const struct machine_huge *most = NULL;
	char want[TEXT_SHORT], page[TEXT_SHORT];
	uint64_t pages;

	for (uint32_t i = 0; i < node->huge_count; i++) {
		const struct machine_huge *huge = &node->huge[i];

		if (huge->free * huge->page_bytes >= arena->bytes && arena->bytes >= huge->page_bytes) {
			arena->pages = PLAN_PAGES_HUGE;
			arena->page_bytes = huge->page_bytes;
			return;
		}
		if (!most || huge->free * huge->page_bytes > most->free * most->page_bytes)
			most = huge;
	}
	arena->pages = planner->machine->thp >= MACHINE_THP_MADVISE ? PLAN_PAGES_TRANSPARENT : PLAN_PAGES_NORMAL;
	if (!most) {
		plan_warn(planner->plan, "node %d has no huge pages: L1 is on %s pages there", node->number,
			arena->pages == PLAN_PAGES_NORMAL ? "normal" : "transparent huge");
		return;
	}
	pages = (arena->bytes + most->page_bytes - 1) / most->page_bytes;
	plan_warn(planner->plan,
		"node %d has %llu free huge pages of %s, its %s of L1 wants %llu: echo %llu > "
		"/sys/devices/system/node/node%d/hugepages/hugepages-%llukB/nr_hugepages",
		node->number, (unsigned long long)most->free, text_size(page, most->page_bytes),
		text_size(want, arena->bytes), (unsigned long long)pages,
		(unsigned long long)(most->total - most->free + pages), node->number,
		(unsigned long long)(most->page_bytes / 1024));
}

static uint32_t rails_near(const struct plan *plan, uint32_t node)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < plan->rail_count; i++)
		count += plan->rails[i].nodes >> node & 1;
	return count;
}

static void add_arena(struct planner *planner, uint32_t index, uint64_t bytes)
{
	const struct machine_node *node = &planner->machine->nodes[index];
	struct plan *plan = planner->plan;
	struct plan_arena *arena = &plan->arenas[plan->arena_count++];
	uint32_t rails = rails_near(plan, index);

	arena->node = node->number;
	arena->bytes = bytes;
	if (rails)
		snprintf(arena->reason, PLAN_REASON, "%u of %u rail%s near", rails, plan->rail_count,
			plan->rail_count == 1 ? "" : "s");
	else if (!(planner->anchors >> index & 1))
		snprintf(arena->reason, PLAN_REASON, "what did not fit nearer to the rails");
	else
		snprintf(arena->reason, PLAN_REASON, "%s",
			plan->rail_count                      ? "where the rails are is not known"
				: planner->machine->gpu_count ? "near GPUs"
							      : "near the poll cores");
	choose_pages(planner, node, arena);
}

void plan_memory(struct planner *planner)
{
	const struct machine *machine = planner->machine;
	uint64_t shares[MACHINE_NODES_MAX] = { 0 };
	uint64_t wanted = wanted_bytes(planner), over, lacking;
	char lacks[TEXT_SHORT], asked[TEXT_SHORT];

	if (wanted == 0)
		return;
	over = share_in_proportion(planner, wanted, shares);
	if (over)
		plan_warn(planner->plan, "%s of L1 does not fit on the nodes of the rails", text_size(lacks, over));
	lacking = spill(planner, over, shares);
	if (lacking)
		plan_warn(planner->plan, "%s of the %s of L1 fits nowhere: nine tenths of each node's DRAM may be L1",
			text_size(lacks, lacking), text_size(asked, wanted));
	for (uint32_t i = 0; i < machine->node_count; i++) {
		if (shares[i])
			add_arena(planner, i, shares[i]);
	}
}
