/*
 * world.h - a whole installation in one thread, from a seed: a server, engines with their schedulers and workers, the network
 * between them, a random program of what they do, faults, and a model that knows what must hold.
 *
 * A run is a function of its options: the same options give the same transcript, byte for byte.
 */
#ifndef KVRAIL_APP_SIM_WORLD_H
#define KVRAIL_APP_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/compiler.h"

KVR_BEGIN_C

/* What may go wrong, as bits. */
enum world_fault {
	WORLD_CRASH = 1 << 0,    /* a client process dies; another one takes its place later */
	WORLD_CUT = 1 << 1,      /* a queue pair's link breaks, or a device says that its port is down */
	WORLD_STALL = 1 << 2,    /* a link delivers nothing for a while */
	WORLD_RESTART = 1 << 3,  /* the server is killed, or drained, and starts anew with an empty L1 */
	WORLD_TIME = 1 << 4,     /* time passes: locks and sessions reach their limits */
	WORLD_LAYOUT = 1 << 5,   /* workers unregister, under transfers too, and come back with another layout */
	WORLD_MEMORY = 1 << 6,   /* registering memory fails, or takes long */
	WORLD_ACCESS = 1 << 7,   /* one-sided operations are refused by the other side */
	WORLD_SLOW = 1 << 8,     /* delays change: data in more pieces, completions late */
	WORLD_PRESSURE = 1 << 9, /* L1 has room for a few dozen objects */
	WORLD_BAD = 1 << 10,     /* requests that are wrong: ranges, blocks, ids in use with another chain */
	WORLD_CLEAR = 1 << 11,
	WORLD_CANCEL = 1 << 12,
	WORLD_L2 = 1 << 13, /* the server has an L2: slow, and mostly failing, lying and full as well */
};
#define WORLD_FAULTS_ALL ((1u << 14) - 1)

/* "all", "none" or names joined by commas: 0 and *faults, or -EINVAL. */
KVR_MUST_CHECK int world_parse_faults(const char *text, uint32_t *faults);

struct world;

struct world_options {
	uint64_t seed;
	uint32_t steps;   /* operations of the program */
	uint32_t faults;  /* enum world_fault */
	uint32_t servers; /* 0: the seed decides */
	uint32_t rails;   /* devices of each server and client, 1 or 2; 0: the seed decides */
	const uint32_t
		*numbers; /* the program's steps that are run, `steps` of them, ascending; NULL: 0 .. steps - 1 */
	/* For tests of the checks themselves: called before each step; may be NULL. world_private.h tells what a world is. */
	void (*before_step)(struct world *world, uint32_t step, void *context);
	void *context;
	FILE *trace; /* each line of the transcript as it comes; NULL: only the last lines, when something is wrong */
};

#define WORLD_TAIL_LINES 400u

struct world_report {
	bool violated;
	char text[400];     /* what was violated */
	uint32_t steps_run; /* of the program, when it was seen */
	uint64_t hash;      /* of the transcript */
	uint64_t requests;  /* that were answered */
	uint64_t errors;    /* of them with an error */
	uint64_t turns;
	uint64_t virtual_ns;
	uint64_t stored_chunks, delivered_chunks, missing_chunks, evicted_chunks;
	uint64_t checked_bytes;
	uint64_t faults, restarts, reconnects;
	uint64_t l2_stored, l2_loaded, l2_corrupt, l1_corrupt; /* objects */
	uint64_t l2_outages;                                   /* of places */
};

/* Runs one world to its end or to the first violation. tail: receives the transcript's last lines when it is violated; may be NULL.
 * 0, or -ENOMEM when this machine could not hold the world, which says nothing of it. */
KVR_MUST_CHECK int world_run(const struct world_options *options, struct world_report *report, FILE *tail);

/* Looks for a shorter program that still violates something: *numbers (to be freed) and *count, after at most `seconds`. */
KVR_MUST_CHECK int world_shrink(
	const struct world_options *options, unsigned seconds, uint32_t **numbers, uint32_t *count);

KVR_END_C

#endif
