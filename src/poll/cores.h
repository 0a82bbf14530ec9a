/*
 * cores.h - which cores this process may use, and binding threads to them. (plan.h chooses; this obeys.)
 */
#ifndef KVRAIL_POLL_CORES_H
#define KVRAIL_POLL_CORES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

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
/* Binds a thread of this process (0: the caller) to some cores by hwloc, and verifies that its affinity is just these afterwards.
 * Whether the process was given them is the caller's to know. 0, -EINVAL (a control group does not allow all of them), -errno. */
KVR_MUST_CHECK int cores_bind(pid_t thread, const int *cores, uint32_t count);
/* Puts the calling thread, which lives for a moment, on one core: one system call, nothing is verified. 0, -errno. */
KVR_MUST_CHECK int cores_move_self(int core);
/* Is the thread's affinity just that core? One cheap system call; a cpuset that was changed shows here. */
bool cores_is_pinned(pid_t thread, int core);
/* Pins the calling thread and verifies that it runs there. 0, -EINVAL (the thread's affinity, as it was inherited, does not allow
 * that core), or -errno; the affinity is as before then. */
KVR_MUST_CHECK int cores_pin_self(int core);
/* Where memory comes from that the calling thread touches first from now on: that node as long as it has any; -1: as the process was
 * told. 0, -EINVAL, -errno (some containers refuse it). */
KVR_MUST_CHECK int cores_prefer_node(int node);
/* The number of the NUMA node of a core; -1 unknown. Reads /sys. */
int cores_numa_node(int core);

KVR_END_C

#endif
