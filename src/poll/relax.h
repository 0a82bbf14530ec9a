/*
 * relax.h - a short rest of the processor between two looks: where it offers WAITPKG, TPAUSE halts it in a light state for about a
 * microsecond, which leaves the core's units to its sibling and saves power; else some PAUSEs. No system call.
 *
 * UMWAIT would end with a write to one watched line; a loop looks at several rings and queues, so the end of the time must do.
 */
#ifndef KVRAIL_POLL_RELAX_H
#define KVRAIL_POLL_RELAX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"

KVR_BEGIN_C

/* Cycles of the time stamp counter: 0.3 to 1 microsecond. */
#define RELAX_CYCLES 1000u
#define RELAX_PAUSES 16u

/* Whether the processor offers TPAUSE, by cpuid: asked once, by whoever rests. */
static inline bool relax_offered(void)
{
#if defined(__x86_64__)
	unsigned eax = 7, ebx = 0, ecx = 0, edx = 0;
	unsigned most = 0;

	__asm__ __volatile__("cpuid" : "=a"(most), "=b"(ebx), "=c"(ecx), "=d"(edx) : "a"(0), "c"(0));
	if (most < 7)
		return false;
	ecx = 0;
	__asm__ __volatile__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
	return ecx >> 5 & 1;
#else
	return false;
#endif
}

/* offered: what relax_offered said. */
static inline void relax(bool offered)
{
#if defined(__x86_64__)
	if (offered) {
		unsigned low, high;
		uint64_t end;

		__asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high));
		end = ((uint64_t)high << 32 | low) + RELAX_CYCLES;
		/* tpause %ecx, for assemblers that do not know it; bit 0 of ecx: the state that is left soonest. */
		__asm__ __volatile__(".byte 0x66, 0x0f, 0xae, 0xf1"
				     :
				     : "c"(1), "a"((uint32_t)end), "d"((uint32_t)(end >> 32))
				     : "cc", "memory");
		return;
	}
#else
	(void)offered;
#endif
	for (unsigned i = 0; i < RELAX_PAUSES; i++)
		kvr_cpu_pause();
}

KVR_END_C

#endif
