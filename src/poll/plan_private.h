/* plan_private.h - the steps of making a plan, in their order. */
#ifndef KVRAIL_POLL_PLAN_PRIVATE_H
#define KVRAIL_POLL_PLAN_PRIVATE_H

#include "poll/plan.h"

KVR_BEGIN_C

/* A physical core as a place for one spinning thread. */
struct plan_core {
	int cpu;       /* number of the lowest processor that may be used; -1: none */
	uint32_t node; /* index */
	uint32_t threads, allowed;
	bool isolated, nohz_full;
	bool first; /* has processor 0 */
	bool taken; /* a thread spins there */
};

/* What the steps share. */
struct planner {
	const struct machine *machine;
	const struct plan_options *options;
	struct plan *plan;
	struct plan_core cores[MACHINE_CPUS_MAX]; /* core_count of the machine */
	uint64_t anchors; /* nodes that the work is near to: rails', else GPUs', else all with processors */
	uint32_t weights[MACHINE_NODES_MAX]; /* of each anchor, for arenas and cores without rails */
};

/* The rails of one NUMA node and the cores that poll them. */
struct plan_group {
	uint32_t node;   /* index */
	uint32_t weight; /* rails, or the share of the work where there are none */
	uint32_t cores;  /* that it gets */
	int rails[PLAN_RAILS_MAX];
	uint32_t rail_count;
};

struct plan_groups {
	struct plan_group list[MACHINE_NODES_MAX];
	uint32_t count;
};

/* Counted instead when there is no more room. */
void plan_warn(struct plan *plan, const char *format, ...) KVR_PRINTF(2, 3);

/* plan_rails.c: which ports are rails, and the anchors. */
void plan_rails(struct planner *planner);
/* plan_cores.c: poll, management and helper cores. */
void plan_cores(struct planner *planner);
/* Adds a thread that polls a rail (-1: none) from a core. home: the node that it should be on. */
void plan_add_poll(struct planner *planner, const struct plan_core *core, int rail, uint32_t home);
/* Why a core, behind where it is. */
void plan_describe(const struct planner *planner, const struct plan_core *core, const char *where, char *reason);
/* plan_given.c: cores that somebody else chose. */
void plan_given(struct planner *planner);
/* Physical cores that a thread could be put on: of a node by index, -1: of all. */
uint32_t plan_count_free(const struct planner *planner, int node);
/* plan_groups.c: which node gets how many of the cores, and which rails are polled there. There are no more groups than cores. */
void plan_share_out(const struct planner *planner, struct plan_groups *groups, uint32_t cores);
/* plan_memory.c */
void plan_memory(struct planner *planner);
/* plan_gpus.c */
void plan_gpus(struct planner *planner);

/* The nearest of `nodes` to node `to`, by index; the distance in *distance. -1: none. */
int plan_nearest(const struct machine *machine, uint64_t nodes, uint32_t to, uint32_t *distance);

KVR_END_C

#endif
