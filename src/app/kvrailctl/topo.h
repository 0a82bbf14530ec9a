/* topo.h - the pictures of kvrailctl topo. */
#ifndef KVRAIL_APP_KVRAILCTL_TOPO_H
#define KVRAIL_APP_KVRAILCTL_TOPO_H

#include "app/kvrailctl/kvrailctl.h"
#include "poll/machine.h"
#include "poll/plan.h"

KVR_BEGIN_C

/* What a processor does by the plan: one letter, as the legend has them. */
enum topo_use { TOPO_POLLS, TOPO_MANAGES, TOPO_IDLE_SIBLING, TOPO_HELPS, TOPO_FREE, TOPO_NOT_OURS };
#define TOPO_USES 6
enum topo_use topo_use(const struct machine *machine, const struct plan *plan, const struct machine_cpu *cpu);
extern const struct topo_legend {
	char letter;
	const char *words;
	const char *colour; /* of SVG */
} topo_legend[TOPO_USES];

/* Threads of one core, by its processors' numbers: which one is the cpu at this index (from 0). */
uint32_t topo_thread(const struct machine *machine, uint32_t cpu);
/* "mlx5_0 400 Gbit/s x16, polled by core 4". */
void topo_nic_words(const struct machine *machine, const struct plan *plan, uint32_t nic, struct text *out);
/* "gpu 0 H200, served by mlx5_0". */
void topo_gpu_words(const struct machine *machine, const struct plan *plan, uint32_t gpu, struct text *out);
/* The node that a device is drawn in: the lowest that it is near to; -1: not known. */
int topo_node_of(const struct machine *machine, uint64_t nodes);
/* Bytes of L1 on a node, by index. */
uint64_t topo_l1_on(const struct machine *machine, const struct plan *plan, uint32_t node);

/* For a terminal of 80 columns and more, in plain characters. */
void topo_picture(const struct machine *machine, const struct plan *plan, struct text *out);
void topo_svg(const struct machine *machine, const struct plan *plan, struct text *out);

KVR_END_C

#endif
