#include "tier/l1_map.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/text.h"
#include "tier/l1_limit.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define NODES_MAX 1024
#define TOUCH_THREADS_MAX 64
/* Touched in one go: small enough that `stop` is seen soon. */
#define TOUCH_BYTES (64 * MIB)

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define MPOL_BIND_MODE 2 /* MPOL_BIND of linux/mempolicy.h */

const char *l1_page_kind_text(enum l1_page_kind pages)
{
	switch (pages) {
	case L1_PAGES_1G:
		return "1 GiB pages";
	case L1_PAGES_2M:
		return "2 MiB pages";
	case L1_PAGES_TRANSPARENT:
		return "transparent huge pages";
	case L1_PAGES_NORMAL:
		break;
	}
	return "4 KiB pages";
}

/* ---- touching ---- */

struct touching {
	char *address;
	uint64_t bytes;
	uint64_t unit; /* page size */
	uint64_t next; /* shared: offset that nobody has taken yet */
	const int *stop;
	int error; /* shared: the first error */
};

/* Kernels before 5.14 cannot populate: then a write to each page does it, which for normal pages is as safe. */
static int touch_range(const struct touching *touching, char *address, uint64_t bytes)
{
	if (fault_point("l1_map/populate"))
		return -ENOMEM;
	if (madvise(address, bytes, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL || touching->unit > 4 * KIB)
		return errno == EFAULT || errno == EHWPOISON ? -ENOMEM : -errno;
	for (uint64_t offset = 0; offset < bytes; offset += 4 * KIB)
		((volatile char *)address)[offset] = 0;
	return 0;
}

static void *touch_thread(void *argument)
{
	struct touching *touching = argument;
	uint64_t step = touching->unit > TOUCH_BYTES ? touching->unit : TOUCH_BYTES;

	for (;;) {
		uint64_t offset = kvr_fetch_add(&touching->next, step);
		int rc;

		if (offset >= touching->bytes || kvr_load_relaxed(&touching->error))
			return NULL;
		if (touching->stop && kvr_load_relaxed(touching->stop))
			rc = -EINTR;
		else
			rc = touch_range(
				touching, touching->address + offset, kvr_min_u64(step, touching->bytes - offset));
		if (rc)
			kvr_store_relaxed(&touching->error, rc);
	}
}

static int touch(struct l1_mapping *mapping, uint64_t unit, unsigned threads, const int *stop)
{
	struct touching touching = { mapping->address, mapping->bytes, unit, 0, stop, 0 };
	pthread_t helpers[TOUCH_THREADS_MAX];
	uint64_t start = clock_now_ns();
	unsigned started = 0;

	if (threads > TOUCH_THREADS_MAX)
		threads = TOUCH_THREADS_MAX;
	/* This thread is one of them; without helpers it does everything. */
	while (started + 1 < threads && pthread_create(&helpers[started], NULL, touch_thread, &touching) == 0)
		started++;
	touch_thread(&touching);
	while (started > 0)
		pthread_join(helpers[--started], NULL);
	mapping->touch_ns = clock_now_ns() - start;
	return touching.error;
}

/* ---- mapping ---- */

static bool transparent_pages_on(void)
{
	char line[64] = "";
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");

	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	return line[0] != '\0' && !strstr(line, "[never]");
}

static void bind_to_node(const struct l1_mapping *mapping, int node)
{
	unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = { 0 };
	size_t bits = 8 * sizeof(unsigned long);

	if (node < 0)
		return;
	if (node < NODES_MAX - 1) {
		mask[(size_t)node / bits] |= 1UL << ((size_t)node % bits);
		if (syscall(SYS_mbind, mapping->address, mapping->bytes, MPOL_BIND_MODE, mask, NODES_MAX, 0) == 0)
			return;
	} else {
		errno = EINVAL;
	}
	log_warn("l1: memory cannot be bound to NUMA node %d: %s: it comes from wherever there is some", node,
		strerror(errno));
}

static int map_kind(uint64_t bytes, enum l1_page_kind kind, uint64_t unit, struct l1_mapping *mapping)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;

	if (kind == L1_PAGES_1G)
		flags |= MAP_HUGETLB | 30 << MAP_HUGE_SHIFT;
	if (kind == L1_PAGES_2M)
		flags |= MAP_HUGETLB | 21 << MAP_HUGE_SHIFT;
	mapping->bytes = kvr_round_up(bytes, unit);
	mapping->pages = kind;
	mapping->locked = false;
	mapping->touch_ns = 0;
	mapping->address = fault_point("l1_map/mmap")
		? MAP_FAILED
		: mmap(NULL, mapping->bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (mapping->address != MAP_FAILED)
		return 0;
	mapping->address = NULL;
	return -ENOMEM;
}

static void lock(struct l1_mapping *mapping)
{
	char wanted[TEXT_SHORT], limit[TEXT_SHORT];
	struct rlimit rlimit = { 0, 0 };

	if (!fault_point("l1_map/mlock") && mlock(mapping->address, mapping->bytes) == 0) {
		mapping->locked = true;
		return;
	}
	(void)getrlimit(RLIMIT_MEMLOCK, &rlimit);
	log_warn("l1: %s cannot be locked, RLIMIT_MEMLOCK is %s: the kernel may page it out, and a NIC cannot use it; "
		 "raise the limit (LimitMEMLOCK=infinity, ulimit -l unlimited)",
		text_size(wanted, mapping->bytes),
		rlimit.rlim_cur == RLIM_INFINITY ? "unlimited" : text_size(limit, rlimit.rlim_cur));
}

static void log_no_memory(uint64_t bytes)
{
	char wanted[TEXT_SHORT], space[TEXT_SHORT], available[TEXT_SHORT];
	struct rlimit rlimit = { RLIM_INFINITY, RLIM_INFINITY };
	struct l1_limit limit;

	l1_limit_read("", &limit);
	(void)getrlimit(RLIMIT_AS, &rlimit);
	log_error("l1: %s of memory cannot be had: %s are left (limit: %s), RLIMIT_AS is %s", text_size(wanted, bytes),
		text_size(available, limit.bytes), limit.name,
		rlimit.rlim_cur == RLIM_INFINITY ? "unlimited" : text_size(space, rlimit.rlim_cur));
}

/* Reserved huge pages are memory that has been set aside already; normal pages must be there before they are
 * touched. */
static bool fits(enum l1_page_kind kind, uint64_t bytes)
{
	struct l1_limit limit;

	if (kind == L1_PAGES_1G || kind == L1_PAGES_2M)
		return true;
	l1_limit_read("", &limit);
	return bytes <= limit.bytes;
}

static int try_kind(
	uint64_t bytes, enum l1_page_kind kind, int node, unsigned threads, const int *stop, struct l1_mapping *mapping)
{
	static const uint64_t units[] = { [L1_PAGES_1G] = GIB,
		[L1_PAGES_2M] = 2 * MIB,
		[L1_PAGES_TRANSPARENT] = 4 * KIB,
		[L1_PAGES_NORMAL] = 4 * KIB };
	int rc = fits(kind, bytes) ? map_kind(bytes, kind, units[kind], mapping) : -ENOMEM;

	if (rc)
		return rc;
	bind_to_node(mapping, node);
	if (kind == L1_PAGES_TRANSPARENT && madvise(mapping->address, mapping->bytes, MADV_HUGEPAGE) != 0)
		mapping->pages = L1_PAGES_NORMAL;
	rc = touch(mapping, units[kind], threads, stop);
	if (rc) {
		l1_unmap(mapping);
		return rc;
	}
	lock(mapping);
	return 0;
}

/* 1 GiB pages only where rounding up to them costs less than an eighth. */
static bool suits(enum l1_page_kind kind, uint64_t bytes)
{
	if (kind == L1_PAGES_1G)
		return kvr_round_up(bytes, GIB) - bytes <= bytes / 8;
	if (kind == L1_PAGES_TRANSPARENT)
		return transparent_pages_on();
	return true;
}

int l1_map(uint64_t bytes, int numa_node, unsigned threads, const int *stop, struct l1_mapping *mapping)
{
	int rc = -ENOMEM;

	memset(mapping, 0, sizeof(*mapping));
	if (bytes == 0 || bytes > (uint64_t)SSIZE_MAX / 2)
		return -EINVAL;
	for (int kind = L1_PAGES_1G; kind <= L1_PAGES_NORMAL && rc != 0 && rc != -EINTR; kind++)
		if (suits((enum l1_page_kind)kind, bytes))
			rc = try_kind(bytes, (enum l1_page_kind)kind, numa_node, threads, stop, mapping);
	if (rc == -ENOMEM)
		log_no_memory(bytes);
	else if (rc && rc != -EINTR)
		log_error("l1: touching memory failed: %s", strerror(-rc));
	return rc == 0 || rc == -EINTR ? rc : -ENOMEM;
}

void l1_unmap(struct l1_mapping *mapping)
{
	if (mapping->address)
		munmap(mapping->address, mapping->bytes);
	memset(mapping, 0, sizeof(*mapping));
}
