/*
 * fault.h - named places where a resource is acquired or a device is called, which a test can make fail the n-th time.
 *
 *     if (fault_point("pool_init/blocks")) return -ENOMEM;
 *
 * Compiled to `false` unless KVRAIL_FAULT_POINTS is defined (all presets but release). Counting is per process and
 * needs one thread or a test that only arms while one thread runs. With KVRAIL_FAULT_LOG=FILE in the environment the name of each point
 * that is made to fail is appended to FILE: scripts/check-points finds those that no test makes fail. With KVRAIL_FAULT_ARM=NAME that
 * point fails the first time: for a program that a test runs as a process.
 */
#ifndef KVRAIL_BASE_FAULT_H
#define KVRAIL_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#ifdef KVRAIL_FAULT_POINTS
bool fault_hit(const char *name);
#define fault_point(name) KVR_UNLIKELY(fault_hit(name))
/* The nth point passed from now on fails (1: the next), once. 0: none; counting goes on. Resets the count. */
void fault_arm(uint64_t nth);
/* As fault_arm, among points of this name only. */
void fault_arm_name(const char *name, uint64_t nth);
/* Points passed since the last arm. */
uint64_t fault_count(void);
/* The name of the point that failed, NULL when none has. */
const char *fault_fired(void);
#else
#define fault_point(name) false
#endif

KVR_END_C

#endif
