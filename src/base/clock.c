#include "base/clock.h"

#include <time.h>

static uint64_t clock_read(clockid_t id)
{
	struct timespec time;

	/* Cannot fail: both clocks exist on every kernel, and the address is ours. */
	clock_gettime(id, &time);
	return (uint64_t)time.tv_sec * KVR_SECOND + (uint64_t)time.tv_nsec;
}

uint64_t clock_now_ns(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

uint64_t clock_wall_ns(void)
{
	return clock_read(CLOCK_REALTIME);
}
