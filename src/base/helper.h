/*
 * helper.h - threads for everything that blocks or enters the kernel, fed by rings.
 *
 * A helper runs jobs in order, one at a time. The owner (one thread) submits and later collects; neither blocks. A job
 * is the owner's memory and stays the helper's from submit until collect returns it. With `threads` = 0 the helper has
 * no thread: jobs run inside helper_collect, one a call, so that the simulator stays in one thread and deterministic.
 */
#ifndef KVRAIL_BASE_HELPER_H
#define KVRAIL_BASE_HELPER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

struct helper_job {
	void (*run)(struct helper_job *job); /* on the helper's thread; may block */
	int result;                          /* set by run: 0 or -errno */
};

struct helper;

/* name: at most 15 characters, the thread's name. threads: 0 or 1. capacity: jobs in flight, 1 .. 2^20. 0, -EINVAL,
 * -ENOMEM, -EAGAIN (no thread or descriptor to be had); *helper is NULL on an error. The thread blocks all signals. */
KVR_MUST_CHECK int helper_create(const char *name, unsigned threads, uint32_t capacity, struct helper **helper);
/* Owner thread; may block. Runs what was submitted to its end, then stops: every job has been run once when it returns,
 * and those not collected are the owner's again. *helper becomes NULL; NULL is harmless. */
void helper_destroy(struct helper **helper);

/* Owner thread. False when `capacity` jobs are in flight: nothing was submitted, try again in a later step.
 * Wakes a sleeping thread by a futex: owners on the hot path submit rarely. */
bool helper_submit(struct helper *helper, struct helper_job *job);
/* Owner thread. The next finished job, or NULL. */
struct helper_job *helper_collect(struct helper *helper);
/*
 * Owner thread. A descriptor that becomes readable when a job has finished (eventfd), for threads that sleep in epoll;
 * -1 with 0 threads. From the first call on a helper_collect that finds nothing clears it with a read(2), so call
 * helper_collect until NULL before sleeping; it may be readable once more although all has been collected. Without that
 * call no helper_collect makes a system call.
 */
int helper_event_fd(struct helper *helper);

KVR_END_C

#endif
