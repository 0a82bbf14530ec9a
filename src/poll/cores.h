/*
 * cores.h - which cores this process may use, and pinning a thread to one. (The topology plan will choose; this obeys.)
 */
#ifndef KVRAIL_POLL_CORES_H
#define KVRAIL_POLL_CORES_H

#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define CORES_MAX 1024

/* The cores of the process' cpuset in ascending order, at most `capacity`; returns how many there are, or -errno. By hwloc, within what
 * sched_getaffinity allows (pitfalls M01). */
int cores_allowed(int *cores, uint32_t capacity);
/* "0-3,8": ascending list without repeats. Count, or -EINVAL, -ERANGE (above CORES_MAX), -ENOSPC. */
int cores_parse(const char *text, int *cores, uint32_t capacity);
/* Pins the calling thread and verifies. 0, -EINVAL (not in the cpuset), or -errno. */
KVR_MUST_CHECK int cores_pin_self(int core);
/* The NUMA node of a core; -1 unknown. */
int cores_numa_node(int core);

KVR_END_C

#endif
