/*
 * guard.h - turns what a step may not do into recorded failures: system calls, by a seccomp filter on the calling thread
 * alone, and allocations, by taking the allocator's place (under a sanitizer: by its hooks).
 */
#ifndef KVRAIL_TESTS_HOT_GUARD_H
#define KVRAIL_TESTS_HOT_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#define GUARD_FRAMES 24

#if defined(__has_feature)
#define GUARD_HAS_FEATURE(name) __has_feature(name)
#else
#define GUARD_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || GUARD_HAS_FEATURE(thread_sanitizer)
#define GUARD_THREAD_SANITIZER 1
#endif
#if defined(__SANITIZE_ADDRESS__) || GUARD_HAS_FEATURE(address_sanitizer) || defined(GUARD_THREAD_SANITIZER)
#define GUARD_SANITIZED 1
#endif

/* One kind of thing that is forbidden: how often it happened, and where first. */
struct guard_record {
	uint64_t count;
	long number;      /* of the first system call */
	const char *name; /* of the first allocation's function */
	void *frames[GUARD_FRAMES];
	int frame_count;
};

/* NULL, or why this machine or build can't forbid system calls. */
const char *guard_unavailable(void);
/* Before the thread begins; not while a guarded thread runs. */
void guard_reset(void);
/* The calling thread: from now on a system call is not made but recorded; it fails with ENOSYS. For ever: only guard_leave
 * ends the thread. 0 or -errno. */
int guard_forbid_system_calls(void);
/* The calling thread: allocations and frees are made and recorded. */
void guard_forbid_allocations(bool forbidden);
/* Ends the calling thread by the one system call that is left, with nothing that pthread_exit does; it can be joined. Does
 * not return, and must not say so: where it is called, AddressSanitizer would make a system call. */
void guard_leave(void);

/* Any thread: from now on system calls of that number (-1: none) are refused without being recorded. */
void guard_excuse(long number);
/* Any thread, while the guarded one runs: whether a system call has been refused. */
bool guard_seen(void);

/* Any thread once the guarded one has been joined: what the filter was made from is freed. */
void guard_release(void);
const struct guard_record *guard_system_calls(void);
const struct guard_record *guard_allocations(void);
/* Says what happened first and where; nothing when nothing happened. */
void guard_print(const char *what, const struct guard_record *record);

#endif
