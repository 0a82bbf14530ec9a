/* plan_memory.c - on which nodes L1 lies, how much on each, and on which pages (pitfalls M07). */
#include <stdio.h>
#include <string.h>

#include "poll/plan_private.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

/* L1 being shared out. */
struct sharing {
	const struct planner *planner;
	uint64_t unit;   /* shares are multiples of it, as far as L1 is */
	bool huge_alone; /* no more on a node than it has free huge pages for */
	uint64_t shares[MACHINE_NODES_MAX];
};

static bool may_hold(const struct machine_node *node)
{
	return node->allowed && node->memory == MACHINE_DRAM;
}

/* What L1 may have of a node: the rest is for the system, jemalloc and page tables. */
static uint64_t room_of(const struct sharing *sharing, uint32_t index)
{
	const struct machine_node *node = &sharing->planner->machine->nodes[index];
	uint64_t room = may_hold(node) ? node->bytes / 10 * 9 : 0, huge = 0;

	for (uint32_t i = 0; i < node->huge_count; i++)
		huge = kvr_max_u64(huge, node->huge[i].free * node->huge[i].page_bytes);
	if (sharing->huge_alone)
		room = kvr_min_u64(room, huge);
	return room / sharing->unit * sharing->unit;
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

/* A whole huge page, where the nodes have such pages. */
static uint64_t unit_of(const struct planner *planner, uint64_t wanted)
{
	const struct machine *machine = planner->machine;
	uint32_t anchors = (uint32_t)__builtin_popcountll(planner->anchors);

	for (uint32_t i = 0; i < machine->node_count; i++) {
		const struct machine_node *node = &machine->nodes[i];

		if (!(planner->anchors >> i & 1) || node->huge_count == 0 || node->huge[0].free == 0 ||
			node->huge[0].page_bytes != GIB)
			continue;
		if (wanted % GIB == 0 && wanted / GIB >= anchors)
			return GIB;
	}
	return wanted >= 2 * MIB * anchors ? 2 * MIB : 4096;
}

/* Adds what fits of `bytes` to a node's share; returns what does not. */
static uint64_t put(struct sharing *sharing, uint32_t node, uint64_t bytes)
{
	uint64_t room = room_of(sharing, node), has = sharing->shares[node];
	uint64_t more = kvr_min_u64(bytes, room > has ? room - has : 0);

	sharing->shares[node] += more;
	return bytes - more;
}

/* Each anchor's part by weight, in units, into ideal[]; what is left over by rounding goes to the first ones, a unit each. Returns what
 * has no anchor to go to. */
static uint64_t divide(const struct sharing *sharing, uint64_t bytes, uint64_t *ideal)
{
	const struct planner *planner = sharing->planner;
	uint64_t units = bytes / sharing->unit, total = 0, given = 0;

	memset(ideal, 0, MACHINE_NODES_MAX * sizeof(*ideal));
	for (uint32_t i = 0; i < planner->machine->node_count; i++)
		total += may_hold(&planner->machine->nodes[i]) ? planner->weights[i] : 0;
	for (uint32_t i = 0; i < planner->machine->node_count && total; i++) {
		if (!may_hold(&planner->machine->nodes[i]))
			continue;
		ideal[i] = (uint64_t)((double)units * planner->weights[i] / (double)total) * sharing->unit;
		given += ideal[i];
	}
	for (uint32_t i = 0; i < planner->machine->node_count && given < bytes; i++) {
		uint64_t more = kvr_min_u64(sharing->unit, bytes - given);

		if (!planner->weights[i] || !may_hold(&planner->machine->nodes[i]))
			continue;
		ideal[i] += more;
		given += more;
	}
	return bytes - given;
}

/* By weight, as far as there is room; returns what is over. */
static uint64_t share_in_proportion(struct sharing *sharing, uint64_t bytes)
{
	uint64_t ideal[MACHINE_NODES_MAX];
	uint64_t over = divide(sharing, bytes, ideal);

	for (uint32_t i = 0; i < sharing->planner->machine->node_count; i++)
		over += put(sharing, i, ideal[i]);
	return over;
}

/* An anchor, or of one package with one. */
static bool is_neighbour(const struct planner *planner, uint32_t node)
{
	const struct machine *machine = planner->machine;

	for (uint32_t i = 0; i < machine->node_count; i++) {
		if ((planner->anchors >> i & 1) &&
			(i == node ||
				(machine->nodes[i].package >= 0 &&
					machine->nodes[i].package == machine->nodes[node].package)))
			return true;
	}
	return false;
}

/* What is over goes to the nearest nodes that have room; returns what has none. */
static uint64_t spill(struct sharing *sharing, uint64_t over)
{
	const struct planner *planner = sharing->planner;
	uint64_t tried = 0;

	while (over) {
		uint32_t best = UINT32_MAX, nearest = UINT32_MAX, distance;

		for (uint32_t i = 0; i < planner->machine->node_count; i++) {
			if ((tried >> i & 1) || room_of(sharing, i) <= sharing->shares[i] ||
				(sharing->huge_alone && !is_neighbour(planner, i)))
				continue;
			plan_nearest(planner->machine, planner->anchors, i, &distance);
			if (best == UINT32_MAX || distance < nearest) {
				best = i;
				nearest = distance;
			}
		}
		if (best == UINT32_MAX)
			return over;
		tried |= 1ULL << best;
		over = put(sharing, best, over);
	}
	return 0;
}

/* What the nodes are near to that L1 should be on. */
static const char *whose(const struct planner *planner)
{
	return planner->plan->rail_count ? "rails" : planner->machine->gpu_count ? "GPUs" : "poll cores";
}

/* All of L1 on huge pages of the packages where the rails are, if there are enough. */
static bool share_huge(struct sharing *sharing, uint64_t wanted)
{
	char over_text[TEXT_SHORT];
	uint64_t over;

	sharing->huge_alone = true;
	over = share_in_proportion(sharing, wanted);
	if (spill(sharing, over) == 0) {
		if (over)
			plan_warn(sharing->planner->plan,
				"%s of L1 is on neighbouring nodes: those of the %s have too few huge pages",
				text_size(over_text, over), whose(sharing->planner));
		return true;
	}
	sharing->huge_alone = false;
	memset(sharing->shares, 0, sizeof(sharing->shares));
	return false;
}

/* Memory may come when it is used, as in virtual machines that grow: what fits nowhere is planned for all the same. */
static void share_anyhow(struct sharing *sharing, uint64_t wanted)
{
	const struct planner *planner = sharing->planner;
	char size[TEXT_SHORT], asked[TEXT_SHORT];
	uint64_t ideal[MACHINE_NODES_MAX];
	uint64_t over = share_in_proportion(sharing, wanted), lacking;

	if (over && planner->machine->node_count > 1)
		plan_warn(planner->plan, "%s of L1 does not fit on the nodes of the %s", text_size(size, over),
			whose(planner));
	lacking = spill(sharing, over);
	if (!lacking)
		return;
	plan_warn(planner->plan, "%s of the %s of L1 is more than nine tenths of the memory that the nodes report",
		text_size(size, lacking), text_size(asked, wanted));
	lacking = divide(sharing, lacking, ideal);
	for (uint32_t i = 0; i < planner->machine->node_count; i++) {
		sharing->shares[i] += ideal[i];
		if (lacking && may_hold(&planner->machine->nodes[i])) {
			sharing->shares[i] += lacking;
			lacking = 0;
		}
	}
}

/* The largest pages of which enough are free; else transparent or normal ones, and what to do about it. */
static void choose_pages(struct planner *planner, const struct machine_node *node, struct plan_arena *arena)
{
	const struct machine_huge *most = NULL;
	char want[TEXT_SHORT], page[TEXT_SHORT];
	uint64_t pages, reserve;

	for (uint32_t i = 0; i < node->huge_count; i++) {
		const struct machine_huge *huge = &node->huge[i];

		if (huge->page_bytes > arena->bytes)
			continue;
		if (huge->free * huge->page_bytes >= arena->bytes) {
			arena->pages = PLAN_PAGES_HUGE;
			arena->page_bytes = huge->page_bytes;
			return;
		}
		if (!most || huge->free * huge->page_bytes >= most->free * most->page_bytes)
			most = huge;
	}
	arena->pages = planner->machine->thp >= MACHINE_THP_MADVISE ? PLAN_PAGES_TRANSPARENT : PLAN_PAGES_NORMAL;
	if (!most) {
		plan_warn(planner->plan, "node %d has no huge pages%s: L1 is on %s pages there", node->number,
			node->huge_count ? " that are smaller than its part of L1" : "",
			arena->pages == PLAN_PAGES_NORMAL ? "normal" : "transparent huge");
		return;
	}
	pages = (arena->bytes + most->page_bytes - 1) / most->page_bytes;
	reserve = most->total - most->free + pages;
	plan_warn(planner->plan,
		"node %d has %llu free huge pages of %s, its %s of L1 wants %llu: echo %llu > "
		"/sys/devices/system/node/node%d/hugepages/hugepages-%llukB/nr_hugepages",
		node->number, (unsigned long long)most->free, text_size(page, most->page_bytes),
		text_size(want, arena->bytes), (unsigned long long)pages, (unsigned long long)reserve, node->number,
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

/* Clients of this host may be anywhere, and so could L1; it is moved by the poll cores, so it is near to them. */
static void anchor_at_poll_cores(struct planner *planner)
{
	const struct machine *machine = planner->machine;
	const struct plan *plan = planner->plan;

	memset(planner->weights, 0, sizeof(planner->weights));
	planner->anchors = 0;
	for (uint32_t i = 0; i < plan->poll_count; i++) {
		uint32_t node = (uint32_t)machine_find_node(machine, plan->polls[i].node);

		planner->anchors |= 1ULL << node;
		planner->weights[node]++;
	}
}

void plan_memory(struct planner *planner)
{
	struct sharing sharing = { planner, 0, false, { 0 } };
	uint64_t wanted = wanted_bytes(planner);

	if (wanted == 0)
		return;
	if (planner->options->local && planner->machine->gpu_count == 0)
		anchor_at_poll_cores(planner);
	sharing.unit = unit_of(planner, wanted);
	if (!share_huge(&sharing, wanted))
		share_anyhow(&sharing, wanted);
	for (uint32_t i = 0; i < planner->machine->node_count; i++) {
		if (sharing.shares[i])
			add_arena(planner, i, sharing.shares[i]);
	}
}
