/*
 * cores.h - which cores this process may use, and pinning a thread to one. (The topology plan will choose; this obeys.)
 */
#ifndef KVRAIL_POLL_CORES_H
#define KVRAIL_POLL_CORES_H

#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define CORES_MAX 1024 /* core numbers are below it */

/* The cores that the process' main thread may use, in ascending order, the first `capacity` of them; returns how many there are, or
 * -errno (-ENOMEM, ...). By hwloc, within what sched_getaffinity allows (pitfalls M01): to be asked before the main thread is
 * pinned. Reads /sys: not on the hot path. */
int cores_allowed(int *cores, uint32_t capacity);
/* "0-3,8", in any order: gives an ascending list without repeats. Count, or -EINVAL, -ERANGE (not below CORES_MAX), -ENOSPC;
 * `cores` is untouched on an error. */
int cores_parse(const char *text, int *cores, uint32_t capacity);
/* Pins the calling thread and verifies that it runs there. 0, -EINVAL (the thread's affinity, as it was inherited, does not allow
 * that core), or -errno; the affinity is as before then. */
KVR_MUST_CHECK int cores_pin_self(int core);
/* The number of the NUMA node of a core; -1 unknown. Reads /sys. */
int cores_numa_node(int core);

KVR_END_C

#endif
