/* machine.h - what a figure was measured on, to stand beside it, and what made it worth less. */
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
	char commit[64]; /* of the sources, "-dirty" behind it when they were changed; "unknown" without git */
	char host[64];
	char governor[32];    /* of frequency scaling; "" where the system shows none */
	char numa[64];        /* "1 node", "2 nodes, may run on 0-1" */
	char clock[32];       /* the kernel's clock source */
	char huge_pages[32];  /* transparent ones: always, madvise, never */
	uint32_t cores;       /* that this process may use */
	uint32_t siblings;    /* of those, that are a second thread of another one */
	uint32_t mhz;         /* 0: unknown */
	uint64_t cache_bytes; /* last level; 32 MiB where the system does not say */
	uint64_t memory_bytes;
	uint64_t available_bytes;
	double load_average; /* of the minute before */
	double quota_cores;  /* that the control group grants, on average; 0: no limit */
	bool debug;          /* built with fault points and little optimisation */
	bool virtual_machine;

	/* Between machine_read and machine_finish. */
	double steal_percent;  /* of all cores' time, taken by the host; virtual machines alone */
	double preempted_rate; /* times a second that a thread of ours was put off its core */
	uint64_t begin[4];     /* private */
};

/* Of the sources, as git names it, "-dirty" behind it when they were changed; "unknown" without git. Made by the build. */
extern const char machine_commit[];

void machine_read(struct machine *machine);
/* At the end of what is measured. */
void machine_finish(struct machine *machine);
/* Ten times the last-level cache, but at most an eighth of the available memory divided by `shares`. */
uint64_t machine_working_set(const struct machine *machine, uint32_t shares);
/* "processor": ..., members of a JSON object, without braces: with the devices, and where threads of this process and of the
 * server may run. server_pid: 0 when it is not known. */
void machine_append_json(const struct machine *machine, uint64_t server_pid, struct text *out);
/* Lines that say why a figure may be worth little; nothing when there is no reason. threads: that poll in this process
 * and the server; 0: unknown. */
void machine_append_warnings(const struct machine *machine, uint32_t threads, struct text *out);

KVR_END_C

#endif
