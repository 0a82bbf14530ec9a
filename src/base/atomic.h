/* atomic.h - loads and stores that two threads share, over the compiler's builtins, so that it is C and C++ alike. */
#ifndef KVRAIL_BASE_ATOMIC_H
#define KVRAIL_BASE_ATOMIC_H

#define kvr_load_relaxed(pointer) __atomic_load_n(pointer, __ATOMIC_RELAXED)
#define kvr_load_acquire(pointer) __atomic_load_n(pointer, __ATOMIC_ACQUIRE)
#define kvr_store_relaxed(pointer, value) __atomic_store_n(pointer, value, __ATOMIC_RELAXED)
#define kvr_store_release(pointer, value) __atomic_store_n(pointer, value, __ATOMIC_RELEASE)
#define kvr_fetch_add(pointer, value) __atomic_fetch_add(pointer, value, __ATOMIC_ACQ_REL)
#define kvr_fetch_sub(pointer, value) __atomic_fetch_sub(pointer, value, __ATOMIC_ACQ_REL)
#define kvr_fetch_or(pointer, value) __atomic_fetch_or(pointer, value, __ATOMIC_ACQ_REL)
#define kvr_fetch_and(pointer, value) __atomic_fetch_and(pointer, value, __ATOMIC_ACQ_REL)
#define kvr_exchange(pointer, value) __atomic_exchange_n(pointer, value, __ATOMIC_ACQ_REL)
#define kvr_fence_full() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* A counter with one writer: others read it with kvr_load_relaxed. No locked instruction. */
#define kvr_counter_add(pointer, value) kvr_store_relaxed(pointer, kvr_load_relaxed(pointer) + (value))

static inline void kvr_cpu_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

#endif
