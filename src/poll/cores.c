/* cores.c - cores by hwloc, within the affinity that the process was given, and binding threads to them. */
#include "poll/cores.h"

#include <errno.h>
#include <hwloc.h>
#include <hwloc/linux.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"

/* Larger than any kernel's: sched_getaffinity refuses a set that is smaller than the kernel's own. */
#define AFFINITY_BITS 16384

/* MPOL_DEFAULT and MPOL_PREFERRED of linux/mempolicy.h. */
#define MODE_DEFAULT 0
#define MODE_PREFERRED 1

union affinity {
	unsigned long words[AFFINITY_BITS / (8 * sizeof(unsigned long))];
	cpu_set_t set; /* its first bits */
};

static int affinity_of(pid_t thread, union affinity *set)
{
	memset(set, 0, sizeof(*set));
	return sched_getaffinity(thread, sizeof(*set), &set->set) ? -errno : 0;
}

static bool affinity_has(const union affinity *set, int core)
{
	return CPU_ISSET_S((size_t)core, sizeof(*set), &set->set);
}

/* Cores and NUMA nodes; no devices and caches. (Packages and groups stay: NUMA nodes hang from them, and without would span all cores.) */
static int topology_open(hwloc_topology_t *topology)
{
	if (fault_point("cores/topology") || hwloc_topology_init(topology) != 0)
		return -ENOMEM;
	hwloc_topology_set_cache_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_NONE);
	if (hwloc_topology_load(*topology) != 0) {
		int error = errno ? -errno : -EIO;

		hwloc_topology_destroy(*topology);
		return error;
	}
	return 0;
}

int cores_allowed(int *cores, uint32_t capacity)
{
	union affinity affinity;
	hwloc_topology_t topology;
	hwloc_const_cpuset_t online;
	int error = affinity_of(getpid(), &affinity);
	int count = 0;

	if (!error)
		error = topology_open(&topology);
	if (error)
		return error;
	online = hwloc_topology_get_allowed_cpuset(topology);
	for (int core = 0; core < CORES_MAX; core++) {
		if (!affinity_has(&affinity, core) || !hwloc_bitmap_isset(online, (unsigned)core))
			continue;
		if ((uint32_t)count < capacity)
			cores[count] = core;
		count++;
	}
	hwloc_topology_destroy(topology);
	return count;
}

/* Decimal digits from *at on. 0, -EINVAL, -ERANGE. */
static int read_core(const char **at, int *core)
{
	bool large = false;

	if (**at < '0' || **at > '9')
		return -EINVAL;
	for (*core = 0; **at >= '0' && **at <= '9'; ++*at) {
		*core = *core * 10 + (**at - '0');
		large |= *core >= CORES_MAX;
		if (large)
			*core = CORES_MAX;
	}
	return large ? -ERANGE : 0;
}

/* "8" or "0-3", marked in `wanted`. */
static int read_range(const char **at, bool *wanted)
{
	int first = 0, last;
	int error = read_core(at, &first);

	last = first;
	if (!error && **at == '-') {
		++*at;
		error = read_core(at, &last);
	}
	if (error)
		return error;
	if (last < first)
		return -EINVAL;
	for (int core = first; core <= last; core++)
		wanted[core] = true;
	return 0;
}

int cores_parse(const char *text, int *cores, uint32_t capacity)
{
	bool wanted[CORES_MAX] = { false };
	uint32_t count = 0;
	int error;

	for (const char *at = text;; at++) {
		error = read_range(&at, wanted);
		if (error)
			return error;
		if (*at == '\0')
			break;
		if (*at != ',')
			return -EINVAL;
	}
	for (int core = 0; core < CORES_MAX; core++)
		count += wanted[core];
	if (count > capacity)
		return -ENOSPC;
	count = 0;
	for (int core = 0; core < CORES_MAX; core++) {
		if (wanted[core])
			cores[count++] = core;
	}
	return (int)count;
}

/* By hwloc, and verified: the kernel may give less than was asked for. thread 0: the caller. */
static int bind_and_verify(hwloc_topology_t topology, pid_t thread, hwloc_const_cpuset_t wanted)
{
	hwloc_cpuset_t got = hwloc_bitmap_alloc();
	int error = 0;

	errno = 0;
	if (!got)
		return -ENOMEM;
	if (fault_point("cores/bind") || hwloc_linux_set_tid_cpubind(topology, thread, wanted) != 0)
		error = errno ? -errno : -EINVAL;
	else if (hwloc_linux_get_tid_cpubind(topology, thread, got) != 0 || !hwloc_bitmap_isequal(got, wanted))
		error = -EINVAL;
	hwloc_bitmap_free(got);
	return error;
}

int cores_bind(pid_t thread, const int *cores, uint32_t count)
{
	hwloc_cpuset_t wanted;
	hwloc_topology_t topology;
	int error;

	for (uint32_t i = 0; i < count; i++) {
		if (cores[i] < 0 || cores[i] >= CORES_MAX)
			return -EINVAL;
	}
	error = count ? topology_open(&topology) : -EINVAL;
	if (error)
		return error;
	wanted = hwloc_bitmap_alloc();
	for (uint32_t i = 0; wanted && i < count; i++)
		hwloc_bitmap_set(wanted, (unsigned)cores[i]);
	error = wanted ? bind_and_verify(topology, thread, wanted) : -ENOMEM;
	hwloc_bitmap_free(wanted);
	hwloc_topology_destroy(topology);
	return error;
}

int cores_move_self(int core)
{
	union affinity one;

	if (core < 0 || core >= CORES_MAX)
		return -EINVAL;
	memset(&one, 0, sizeof(one));
	CPU_SET_S((size_t)core, sizeof(one), &one.set);
	return sched_setaffinity(0, sizeof(one), &one.set) ? -errno : 0;
}

bool cores_is_pinned(pid_t thread, int core)
{
	union affinity affinity;

	if (core < 0 || core >= CORES_MAX || affinity_of(thread, &affinity) != 0)
		return false;
	return affinity_has(&affinity, core) && CPU_COUNT_S(sizeof(affinity), &affinity.set) == 1;
}

int cores_pin_self(int core)
{
	union affinity before;
	int error;

	if (core < 0 || core >= CORES_MAX)
		return -EINVAL;
	error = affinity_of(0, &before);
	if (error)
		return error;
	/* The kernel would let a thread leave the list that taskset gave it. */
	if (!affinity_has(&before, core))
		return -EINVAL;
	error = cores_bind(0, &core, 1);
	if (!error && sched_getcpu() == core)
		return 0;
	if (sched_setaffinity(0, sizeof(before), &before.set) != 0 && !error)
		error = -errno;
	return error ? error : -EINVAL;
}

int cores_prefer_node(int node)
{
	unsigned long mask[CORES_MAX / (8 * sizeof(unsigned long))] = { 0 };
	size_t bits = 8 * sizeof(unsigned long);

	/* The kernel reads one bit less than it is told. */
	if (node < -1 || node >= CORES_MAX - 1)
		return -EINVAL;
	if (node >= 0)
		mask[(size_t)node / bits] |= 1UL << ((size_t)node % bits);
	return syscall(SYS_set_mempolicy, node < 0 ? MODE_DEFAULT : MODE_PREFERRED, node < 0 ? NULL : mask,
		       node < 0 ? 0 : CORES_MAX)
		? -errno
		: 0;
}

int cores_numa_node(int core)
{
	hwloc_topology_t topology;
	hwloc_obj_t node = NULL;
	int found = -1;

	if (core < 0 || topology_open(&topology) != 0)
		return -1;
	while (found < 0 && (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL) {
		if (node->cpuset && hwloc_bitmap_isset(node->cpuset, (unsigned)core))
			found = (int)node->os_index;
	}
	hwloc_topology_destroy(topology);
	return found;
}
