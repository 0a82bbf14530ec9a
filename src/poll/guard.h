/*
 * guard.h - looks after threads that have cores of their own, while they run: a cpuset that is changed takes them off their cores, and
 * other threads may be put on them. What can be corrected is; what can't is said, and nobody spins on a core that is not his alone
 * (pitfalls M01, M03).
 *
 *     off its core, and can be put back       is put back, a warning
 *     off its core for good                   waits adaptively until it can be put back, a warning
 *     its core is shared: the thread could    waits adaptively, a warning; spins again after a while, first a minute, then twice
 *     run and did not for over 5 % of two     as long each time, at most an hour
 *     seconds
 *
 * The control thread's. It enters the kernel and reads /proc, once a second for each thread.
 */
#ifndef KVRAIL_POLL_GUARD_H
#define KVRAIL_POLL_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "poll/loop.h"

KVR_BEGIN_C

#define GUARD_LOOPS_MAX 72
#define GUARD_LOOK_NS KVR_SECOND
#define GUARD_SHARED_PERMILLE 50
#define GUARD_SHARED_LOOKS 2
#define GUARD_RETRY_NS (60 * KVR_SECOND)
#define GUARD_RETRY_MAX_NS (3600 * KVR_SECOND)

enum guard_state {
	GUARD_GOOD,
	GUARD_SHARED, /* something else runs on its core */
	GUARD_LOST,   /* it has no core of its own any more */
};

struct guarded {
	struct loop *loop;
	enum guard_state state;
	uint64_t look_ns, waited_ns; /* of the last look */
	uint32_t bad_looks;          /* in a row */
	uint64_t retry_ns;           /* when it may spin again */
	uint64_t back_off_ns;        /* for how long it may not, the next time */
};

struct guard {
	bool insist; /* who asked for spinning wants it whatever comes: only said */
	uint64_t next_ns;
	uint32_t count;
	uint64_t corrected, shared, lost; /* times that it happened */
	struct guarded guarded[GUARD_LOOPS_MAX];
};

void guard_init(struct guard *guard, bool insist);
/* After loop_start; loops that were not to be pinned are not looked after. False: no more room. */
bool guard_add(struct guard *guard, struct loop *loop, uint64_t now_ns);
/* Any number of times; works at most once in GUARD_LOOK_NS. */
void guard_step(struct guard *guard, uint64_t now_ns);
/* One look at one thread, as guard_step does: hold: what loop_hold_core said; waited_ns: loop_waited_ns. */
void guard_look(struct guard *guard, struct guarded *guarded, int hold, uint64_t waited_ns, uint64_t now_ns);
/* "held", "shared", "lost" */
const char *guard_state_text(enum guard_state state);

KVR_END_C

#endif
