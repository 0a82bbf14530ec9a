/* guard.c - see guard.h. What is recorded is written by the guarded thread alone, and read when it has ended. */
#include "hot/guard.h"

#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cmocka_all.h"

#if defined(KVRAIL_HAVE_SECCOMP)
#include <seccomp.h>
#endif

#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1 /* si_code of SIGSYS */
#endif

static struct guard_record system_calls, allocations;
static long excused = -1; /* atomic */
static _Thread_local bool allocations_forbidden;

const struct guard_record *guard_system_calls(void)
{
	return &system_calls;
}

const struct guard_record *guard_allocations(void)
{
	return &allocations;
}

bool guard_seen(void)
{
	return kvr_load_acquire(&system_calls.count) != 0;
}

void guard_excuse(long number)
{
	kvr_store_release(&excused, number);
}

void guard_reset(void)
{
	void *frames[2];

	memset(&system_calls, 0, sizeof(system_calls));
	memset(&allocations, 0, sizeof(allocations));
	guard_excuse(-1);
	/* The first call loads the unwinder, which allocates. */
	(void)backtrace(frames, 2);
}

void guard_print(const char *what, const struct guard_record *record)
{
	char **names;

	if (record->count == 0)
		return;
	if (record->name)
		print_message("%s: %llu, the first is %s\n", what, (unsigned long long)record->count, record->name);
	else
		print_message(
			"%s: %llu, the first is number %ld\n", what, (unsigned long long)record->count, record->number);
	names = backtrace_symbols(record->frames, record->frame_count);
	for (int i = 0; names && i < record->frame_count; i++)
		print_message("    %s\n", names[i]);
	free(names);
}

/* ---- system calls ---- */

#if defined(KVRAIL_HAVE_SECCOMP) && !defined(GUARD_THREAD_SANITIZER) && (defined(__x86_64__) || defined(__aarch64__))

static scmp_filter_ctx filter; /* one guarded thread at a time */

static void on_system_call(int signal_number, siginfo_t *info, void *context)
{
	ucontext_t *user = context;

	(void)signal_number;
	if (info->si_code != SYS_SECCOMP)
		return;
	if (info->si_syscall == kvr_load_acquire(&excused))
		goto refuse;
	if (system_calls.count == 0) {
		system_calls.number = info->si_syscall;
		system_calls.frame_count = backtrace(system_calls.frames, GUARD_FRAMES);
	}
	kvr_store_release(&system_calls.count, system_calls.count + 1);
refuse:
#if defined(__x86_64__)
	user->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
#else
	user->uc_mcontext.regs[0] = (unsigned long long)-ENOSYS;
#endif
}

const char *guard_unavailable(void)
{
	/* 0: no filter yet; -EINVAL: not built into the kernel. */
	return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0 ? "this kernel has no seccomp" : NULL;
}

int guard_forbid_system_calls(void)
{
	struct sigaction action;
	int error;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_system_call;
	action.sa_flags = SA_SIGINFO;
	if (sigaction(SIGSYS, &action, NULL))
		return -errno;
	filter = seccomp_init(SCMP_ACT_TRAP);
	if (!filter)
		return -ENOMEM;
	/* rt_sigreturn: the way out of the handler. */
	error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(exit), 0);
	if (!error)
		error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(rt_sigreturn), 0);
	return error ? error : seccomp_load(filter);
}

void guard_release(void)
{
	if (filter)
		seccomp_release(filter);
	filter = NULL;
}

#else

const char *guard_unavailable(void)
{
#if defined(GUARD_THREAD_SANITIZER)
	return "ThreadSanitizer makes system calls of its own";
#else
	return "built without libseccomp";
#endif
}

int guard_forbid_system_calls(void)
{
	return -ENOSYS;
}

void guard_release(void)
{
}

#endif

void guard_leave(void)
{
	syscall(SYS_exit, 0);
}

/* ---- allocations ---- */

void guard_forbid_allocations(bool forbidden)
{
	allocations_forbidden = forbidden;
}

static void allocated(const char *name)
{
	if (!allocations_forbidden)
		return;
	allocations_forbidden = false; /* not of ourselves */
	if (allocations.count == 0) {
		allocations.name = name;
		allocations.frame_count = backtrace(allocations.frames, GUARD_FRAMES);
	}
	allocations.count++;
	allocations_forbidden = true;
}

#if defined(GUARD_SANITIZED)

int __sanitizer_install_malloc_and_free_hooks(
	void (*malloc_hook)(const volatile void *, size_t), void (*free_hook)(const volatile void *));

static void on_malloc(const volatile void *memory, size_t bytes)
{
	(void)memory;
	(void)bytes;
	allocated("malloc");
}

static void on_free(const volatile void *memory)
{
	if (memory)
		allocated("free");
}

__attribute__((constructor)) static void install_hooks(void)
{
	__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
}

#else

/* glibc's own, under the names that are left when the others are taken. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

#define TAKES_PLACE __attribute__((visibility("default"), used))

TAKES_PLACE void *malloc(size_t bytes)
{
	allocated("malloc");
	return __libc_malloc(bytes);
}

TAKES_PLACE void *calloc(size_t count, size_t bytes)
{
	allocated("calloc");
	return __libc_calloc(count, bytes);
}

TAKES_PLACE void *realloc(void *memory, size_t bytes)
{
	allocated("realloc");
	return __libc_realloc(memory, bytes);
}

TAKES_PLACE void *aligned_alloc(size_t alignment, size_t bytes)
{
	allocated("aligned_alloc");
	return __libc_memalign(alignment, bytes);
}

TAKES_PLACE void *memalign(size_t alignment, size_t bytes);
TAKES_PLACE void *memalign(size_t alignment, size_t bytes)
{
	allocated("memalign");
	return __libc_memalign(alignment, bytes);
}

TAKES_PLACE int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
	allocated("posix_memalign");
	*memory = __libc_memalign(alignment, bytes);
	return *memory ? 0 : ENOMEM;
}

TAKES_PLACE void free(void *memory)
{
	if (memory)
		allocated("free");
	__libc_free(memory);
}

#endif
