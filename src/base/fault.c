#include "base/fault.h"

#ifdef KVRAIL_FAULT_POINTS

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/atomic.h"

/* Counters are atomic so that a helper thread that passes points while nothing is armed disturbs nothing. */
static uint64_t fault_nth;
static uint64_t fault_passed;
static const char *fault_wanted;
static const char *fault_failed;

/* Says which points were made to fail to whoever counts over many programs (scripts/check-points): one write, so that lines of two of
 * them do not mix. */
static void fault_note(const char *name)
{
	const char *path = getenv("KVRAIL_FAULT_LOG");
	struct iovec parts[2] = { { (void *)(uintptr_t)name, strlen(name) }, { (void *)(uintptr_t) "\n", 1 } };
	int fd = path && *path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;

	if (fd < 0)
		return;
	(void)!writev(fd, parts, 2);
	close(fd);
}

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
	fault_note(name);
	return true;
}

void fault_arm_name(const char *name, uint64_t nth)
{
	kvr_store_relaxed(&fault_nth, nth);
	kvr_store_relaxed(&fault_passed, (uint64_t)0);
	kvr_store_relaxed(&fault_failed, (const char *)NULL);
	kvr_store_release(&fault_wanted, name);
}

/* For programs that a test runs as a process: the first pass of this point fails. */
static void __attribute__((constructor)) arm_from_environment(void)
{
	const char *name = getenv("KVRAIL_FAULT_ARM");

	if (name && *name)
		fault_arm_name(name, 1);
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
