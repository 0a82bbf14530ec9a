/*
 * bare.h - the machine's own latency, with nothing of the server in it: what a cache line costs to another core and back, which
 * two threads that say something to each other cannot undercut; the same time as a request takes spent in such round trips, one
 * behind the other, whose high percentiles are what interrupts, the kernel and the host do to anything that takes so long on two
 * cores; and the gaps that a thread sees which does nothing but read the clock.
 */
#ifndef KVRAIL_APP_BENCH_BARE_H
#define KVRAIL_APP_BENCH_BARE_H

#include <stdint.h>

#include "base/compiler.h"
#include "base/histogram.h"

KVR_BEGIN_C

/* Between two readings of the clock, which is some twenty times what they take. */
#define BARE_GAP_NS 1000u

/* All in ns. */
struct bare {
	struct histogram line;     /* one round trip */
	struct histogram exchange; /* of as many round trips as take `target_ns` */
	struct histogram gaps;     /* longer than BARE_GAP_NS */
	uint64_t spun_ns;          /* how long they were looked for */
};

void bare_init(struct bare *bare);
/* Adds some 50 ms of measuring on this thread and one that it makes; while the other gets no core, less. target_ns: what an
 * exchange should take, 0: no exchanges. */
void bare_measure(struct bare *bare, uint64_t target_ns);
/* Of the time that was looked for gaps, how much was in them, percent; and gaps a second. 0 when nothing was looked for. */
double bare_gap_percent(const struct bare *bare);
double bare_gap_rate(const struct bare *bare);

KVR_END_C

#endif
