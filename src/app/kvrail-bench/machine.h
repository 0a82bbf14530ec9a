/* machine.h - what a figure was measured on, to stand beside it. */
#ifndef KVRAIL_APP_BENCH_MACHINE_H
#define KVRAIL_APP_BENCH_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/text.h"

KVR_BEGIN_C

struct machine {
	char processor[80];
	char kernel[80];
	char compiler[64];
	uint32_t cores;       /* that this process may use */
	uint64_t cache_bytes; /* last level; 32 MiB where the system does not say */
	uint64_t memory_bytes;
	uint64_t available_bytes;
	bool debug; /* built with fault points and little optimisation */
	bool virtual_machine;
};

void machine_read(struct machine *machine);
/* Ten times the last-level cache, but at most an eighth of the available memory divided by `shares`. */
uint64_t machine_working_set(const struct machine *machine, uint32_t shares);
/* "processor": ..., members of a JSON object, without braces. */
void machine_append_json(const struct machine *machine, struct text *out);
/* Lines that say why a figure may be worth little; nothing when there is no reason. */
void machine_append_warnings(const struct machine *machine, struct text *out);

KVR_END_C

#endif
