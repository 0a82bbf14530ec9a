/*
 * plan.h - which core polls which rail, which core manages, where helpers run, where L1 lies, which rail serves which GPU, and why:
 * a pure function of a machine and what was asked for.
 *
 * A rail is an RDMA port that is up. Without any, GPUs, else plain network interfaces, say where on the machine the work is.
 *
 * Rules, strongest first.
 *  1. Only processors that the process may use. One spinning thread a physical core: poll cores and the management core.
 *  2. One physical core is left for helpers, the control thread and everything else. Too few cores: fewer poll cores than asked (never
 *     below 1), then one thread polls and manages, then nothing spins: threads wait adaptively. Without a rail all clients are on this
 *     host and need cores as well: nothing spins below 4. Each of these is a warning.
 *  3. A poll core is on its rail's NUMA node, or the nearest that has a core left. There: whole physical cores that are allowed, isolated,
 *     nohz_full, not the core of processor 0, lowest number.
 *  4. Cores are shared out between the nodes by their rails, rails of a node between its cores in turn. Slow ports (below half of the
 *     fastest) carry nothing unless asked for by number.
 *  5. L1 lies on the nodes of the rails in use, in proportion; what does not fit goes to the nearest others. Never on GPU memory. For
 *     local clients alone: on the nodes of the GPUs, else on those of the poll cores.
 *  6. A GPU takes a rail behind its own switch, then one of its node, then any; among equally near ones the one with the fewest GPUs
 *     (pitfalls M08). A rail that no GPU took serves the nearest GPU with the fewest rails.
 *  7. Threads are pinned where they spin. Where nothing spins, because others need the same cores, the scheduler places them better.
 */
#ifndef KVRAIL_POLL_PLAN_H
#define KVRAIL_POLL_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/text.h"
#include "poll/machine.h"

KVR_BEGIN_C

#define PLAN_POLL_CORES_MAX 64
#define PLAN_RAILS_MAX 64
#define PLAN_POLL_MAX (PLAN_POLL_CORES_MAX + PLAN_RAILS_MAX) /* pairs of core and rail */
#define PLAN_GPU_RAILS_MAX 8
#define PLAN_WARNINGS_MAX 24
#define PLAN_REASON 128
#define PLAN_WARNING 240

/* Zeroed: everything as it is best. */
struct plan_options {
	uint32_t cores;      /* poll cores; 0: one a rail, at least 1 */
	uint32_t rails;      /* rails to use; 0: all that are fast */
	uint64_t l1_bytes;   /* 0: no arenas */
	bool adaptive;       /* threads sleep without work wherever they are */
	bool local;          /* clients of this host alone: no rail is used */
	const char *devices; /* names of the RDMA devices whose ports are rails, "mlx5_0,mlx5_1"; NULL: all */
	uint32_t port;       /* of them, by number; 0: all */
	/* Cores that somebody else chose: the last one manages, the others poll; of one core: both. They are used as they are, and what
	 * speaks against them is a warning. NULL: chosen here. */
	const int *given;
	uint32_t given_count; /* at most PLAN_POLL_CORES_MAX + 1 */
};

enum plan_pages { PLAN_PAGES_NORMAL, PLAN_PAGES_TRANSPARENT, PLAN_PAGES_HUGE };

/* One core polls one rail; a core with several rails has several, one behind the other. */
struct plan_poll {
	int core;  /* number of the processor */
	int rail;  /* index in rails; -1: no rail, local clients alone */
	int node;  /* number */
	bool near; /* the rail's own node, or the rail's node is not known */
	char reason[PLAN_REASON];
};

struct plan_rail {
	uint32_t nic;                /* index in the machine's nics */
	uint32_t port;               /* number */
	uint32_t gbits;              /* 0: unknown */
	uint64_t nodes;              /* as the NIC's */
	char name[MACHINE_NAME + 8]; /* "mlx5_0", "mlx4_0/2" when the device has several ports */
};

struct plan_arena {
	int node; /* number */
	uint64_t bytes;
	enum plan_pages pages;
	uint64_t page_bytes; /* of huge pages */
	char reason[PLAN_REASON];
};

struct plan_gpu {
	uint32_t gpu;                  /* index in the machine's gpus */
	int rails[PLAN_GPU_RAILS_MAX]; /* indices; the first is nearest */
	uint32_t rail_count;
	char reason[PLAN_REASON];
};

struct plan {
	bool busy;   /* spinning is good here; else wait adaptively */
	bool pinned; /* threads are bound to the cores below; else these are only where there is most room */
	bool shared; /* the one poll core manages too */
	struct plan_rail rails[PLAN_RAILS_MAX];
	uint32_t rail_count;
	struct plan_poll polls[PLAN_POLL_MAX];
	uint32_t poll_count;
	uint32_t poll_core_count; /* different cores among them */
	int management_core;      /* the poll core when shared */
	char management_reason[PLAN_REASON];
	int helpers[MACHINE_CPUS_MAX]; /* processors where everything else may run, ascending */
	uint32_t helper_count;
	char helper_reason[PLAN_REASON];
	struct plan_arena arenas[MACHINE_NODES_MAX];
	uint32_t arena_count;
	struct plan_gpu gpus[MACHINE_GPUS_MAX];
	uint32_t gpu_count;
	char warnings[PLAN_WARNINGS_MAX][PLAN_WARNING];
	uint32_t warning_count;
	uint32_t warnings_dropped;
};

/* Fills *plan (large: not on a small stack). 0; -EINVAL: the process may use no processor of the machine, or not the given ones.
 * No I/O. */
KVR_MUST_CHECK int plan_make(const struct machine *machine, const struct plan_options *options, struct plan *plan);
/* The plan as a table with a reason in each line, and the warnings. */
void plan_print(const struct machine *machine, const struct plan *plan, struct text *out);
/* {"pinned","poll_cores":[{"core","rail","numa","reason"}],"management_core","arenas":[{"numa","bytes",...}],"warnings":[...],...} */
void plan_json(const struct machine *machine, const struct plan *plan, struct text *out);
/* A line for each decision with its reason, as "poll core 2 of node 0 for mlx5_0: on the rail's node": line(context, text). */
void plan_lines(const struct plan *plan, void (*line)(void *context, const char *text), void *context);
/* Processors that may touch memory of a node: one of each physical core that the process may use there, else anywhere. Ascending;
 * returns how many. node: a number; -1: of all nodes. */
uint32_t plan_touch_cpus(const struct machine *machine, int node, int *numbers, uint32_t capacity);
/* "rails=4,cores=6,l1=64GiB,local=1" into the options. 0, -EINVAL with *error. */
KVR_MUST_CHECK int plan_parse_options(const char *text, struct plan_options *options, struct machine_error *error);

KVR_END_C

#endif
