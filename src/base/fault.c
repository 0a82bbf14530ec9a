#include "base/fault.h"

#ifdef KVRAIL_FAULT_POINTS

#include <string.h>

#include "base/atomic.h"

/* Counters are atomic so that a helper thread that passes points while nothing is armed disturbs nothing. */
static uint64_t fault_nth;
static uint64_t fault_passed;
static const char *fault_wanted;
static const char *fault_failed;

bool fault_hit(const char *name)
{
	const char *wanted = kvr_load_acquire(&fault_wanted);
	uint64_t nth;

	if (wanted && strcmp(wanted, name) != 0)
		return false;
	nth = kvr_fetch_add(&fault_passed, 1) + 1;
	if (KVR_LIKELY(nth != kvr_load_relaxed(&fault_nth)))
		return false;
	kvr_store_release(&fault_failed, name);
	return true;
}

void fault_arm_name(const char *name, uint64_t nth)
{
	kvr_store_relaxed(&fault_nth, nth);
	kvr_store_relaxed(&fault_passed, (uint64_t)0);
	kvr_store_relaxed(&fault_failed, (const char *)NULL);
	kvr_store_release(&fault_wanted, name);
}

void fault_arm(uint64_t nth)
{
	fault_arm_name(NULL, nth);
}

uint64_t fault_count(void)
{
	return kvr_load_relaxed(&fault_passed);
}

const char *fault_fired(void)
{
	return kvr_load_acquire(&fault_failed);
}

#endif
