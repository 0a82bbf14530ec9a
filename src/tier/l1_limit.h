/*
 * l1_limit.h - how much memory this process can have: asked before it is touched, since the kernel answers too much
 * touching by killing, not with an error. Internal to l1_map and keep_file.
 */
#ifndef KVRAIL_TIER_L1_LIMIT_H
#define KVRAIL_TIER_L1_LIMIT_H

#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

struct l1_limit {
	uint64_t bytes; /* UINT64_MAX: no limit is known */
	char name[160]; /* what sets it: "MemAvailable of /proc/meminfo", or the file of a control group */
};

/* The lowest of: available memory, the limits of this process's control group and of those above it. `root` is put in
 * front of "/proc" and "/sys" (tests); "" on a machine. */
void l1_limit_read(const char *root, struct l1_limit *limit);

KVR_END_C

#endif
