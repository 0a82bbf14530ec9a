#include "app/common/memlock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/text.h"

#define CAP_IPC_LOCK_BIT 14

/* A capability of root inside a container's user namespace is none to the kernel's memory accounting, but it is shown here all the
 * same: then registering fails, and says what this would have said. */
static int has_capability(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long long capabilities = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, "CapEff:", 7) == 0)
			capabilities = strtoull(line + 7, NULL, 16);
	}
	if (file)
		fclose(file);
	return capabilities >> CAP_IPC_LOCK_BIT & 1;
}

uint64_t memlock_limit(void)
{
	struct rlimit limit;

	if (has_capability() || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return limit.rlim_cur;
}

int memlock_check(uint64_t needed, uint64_t limit, char *why, size_t size)
{
	char wanted[TEXT_SHORT], allowed[TEXT_SHORT];

	why[0] = '\0';
	if (needed <= limit)
		return 0;
	snprintf(why, size,
		"an RDMA device needs %s (%llu bytes) of locked memory, this process may lock %s (%llu bytes): ulimit -l "
		"unlimited in a shell, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 or --cap-add IPC_LOCK for "
		"a container; each has a limit of its own",
		text_size(wanted, needed), (unsigned long long)needed, text_size(allowed, limit),
		(unsigned long long)limit);
	return -ENOMEM;
}
