/*
 * clock.h - time as a number that is passed in.
 *
 * Every step function of the project takes `now_ns`. Only a thread's own loop reads a clock; in the simulator nobody
 * does. Nanoseconds since an arbitrary start, never going back, 64 bits (584 years).
 */
#ifndef KVRAIL_BASE_CLOCK_H
#define KVRAIL_BASE_CLOCK_H

#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define KVR_US ((uint64_t)1000)
#define KVR_MS ((uint64_t)1000000)
#define KVR_SECOND ((uint64_t)1000000000)

/* CLOCK_MONOTONIC through the vDSO: no system call on machines where the kernel offers it. Any thread. */
uint64_t clock_now_ns(void);

/* CLOCK_REALTIME, for what people read and for times that outlive the machine's run: log lines, status pages, files. */
uint64_t clock_wall_ns(void);

KVR_END_C

#endif
