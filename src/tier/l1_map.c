#include "tier/l1_map.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/text.h"
#include "tier/l1_limit.h"
#include "tier/l1_numa.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define TOUCH_THREADS_MAX 64
/* Touched in one go: small enough that `stop` is seen soon. */
#define TOUCH_BYTES (64 * MIB)
#define PROGRESS_SECONDS 1

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

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
	const struct l1_map_options *options;
	char *address;
	uint64_t bytes;
	uint64_t unit;    /* page size */
	uint64_t next;    /* shared: offset that nobody has taken yet */
	uint64_t done;    /* shared: bytes touched */
	unsigned threads; /* shared: that have begun */
	int error;        /* shared: the first error */
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
	const struct l1_map_options *options = touching->options;
	uint64_t step = touching->unit > TOUCH_BYTES ? touching->unit : TOUCH_BYTES;
	unsigned thread = kvr_fetch_add(&touching->threads, 1);

	if (options->thread_begin)
		options->thread_begin(options->context, thread);
	for (;;) {
		uint64_t offset = kvr_fetch_add(&touching->next, step);
		uint64_t bytes;
		int rc;

		if (offset >= touching->bytes || kvr_load_relaxed(&touching->error))
			return NULL;
		bytes = kvr_min_u64(step, touching->bytes - offset);
		if (options->stop && kvr_load_relaxed(options->stop))
			rc = -EINTR;
		else
			rc = touch_range(touching, touching->address + offset, bytes);
		if (rc)
			kvr_store_relaxed(&touching->error, rc);
		else
			kvr_fetch_add(&touching->done, bytes);
	}
}

/* Waits for a thread, and says now and then how far they are. By the wall clock: ThreadSanitizer does not know the join by another, and
 * a clock that is set makes no more than a line come early or late. */
static void join_and_tell(pthread_t thread, struct touching *touching, uint64_t start_ns)
{
	const struct l1_map_options *options = touching->options;
	struct timespec until;

	if (!options->progress) {
		pthread_join(thread, NULL);
		return;
	}
	for (;;) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += PROGRESS_SECONDS;
		if (pthread_timedjoin_np(thread, NULL, &until) != ETIMEDOUT)
			return;
		options->progress(options->context, kvr_load_relaxed(&touching->done), clock_now_ns() - start_ns);
	}
}

static int touch(const struct l1_map_options *options, uint64_t unit, struct l1_mapping *mapping)
{
	struct touching touching = { options, mapping->address, mapping->bytes, unit, 0, 0, 0, 0 };
	bool caller_too = !options->thread_begin && !options->progress;
	unsigned wanted = options->threads > TOUCH_THREADS_MAX ? TOUCH_THREADS_MAX : options->threads;
	pthread_t helpers[TOUCH_THREADS_MAX];
	uint64_t start = clock_now_ns();
	unsigned started = 0;

	if (wanted == 0)
		wanted = 1;
	/* Without helpers the caller does everything. */
	while (started + caller_too < wanted && pthread_create(&helpers[started], NULL, touch_thread, &touching) == 0)
		started++;
	if (caller_too || started == 0)
		touch_thread(&touching);
	while (started > 0)
		join_and_tell(helpers[--started], &touching, start);
	mapping->touch_ns = clock_now_ns() - start;
	mapping->touch_threads = touching.threads;
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

/* A full node would have processes killed for strictly bound pages; huge pages are there or they are refused. */
static void bind_to_node(struct l1_mapping *mapping, int node)
{
	char wanted[TEXT_SHORT], has[TEXT_SHORT];
	uint64_t available = l1_numa_available("", node);
	bool strict = mapping->pages == L1_PAGES_1G || mapping->pages == L1_PAGES_2M || mapping->bytes <= available;
	int error;

	if (node < 0)
		return;
	if (!strict)
		log_warn(
			"l1: NUMA node %d has %s for %s: the rest comes from other nodes; ask for less, or free memory there",
			node, text_size(has, available), text_size(wanted, mapping->bytes));
	error = l1_numa_bind(mapping->address, mapping->bytes, node, strict);
	if (error)
		log_warn("l1: memory cannot be bound to NUMA node %d: %s: it comes from wherever there is some", node,
			strerror(-error));
	else
		mapping->numa_node = node;
}

static void look_where_it_is(struct l1_mapping *mapping, uint64_t unit)
{
	struct l1_numa_sample sample;

	if (mapping->numa_node < 0 ||
		l1_numa_sample(mapping->address, mapping->bytes, unit, mapping->numa_node, &sample) != 0)
		return;
	mapping->pages_sampled = sample.sampled;
	mapping->pages_on_node = sample.on_node;
	if ((uint64_t)sample.on_node * 100 < (uint64_t)sample.sampled * 99)
		log_warn("l1: %u of %u pages looked at are not on NUMA node %d", sample.elsewhere, sample.sampled,
			mapping->numa_node);
}

/* "AnonHugePages: 123 kB" of the mapping's parts in smaps. */
static uint64_t transparent_bytes(const struct l1_mapping *mapping)
{
	uintptr_t from = (uintptr_t)mapping->address, to = from + mapping->bytes;
	FILE *file = fopen("/proc/self/smaps", "re");
	uint64_t bytes = 0;
	bool ours = false;
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		unsigned long long begin, end;
		char *rest;

		if (line[0] >= 'A' && line[0] <= 'Z') {
			if (ours && strncmp(line, "AnonHugePages:", 14) == 0)
				bytes += strtoull(line + 14, NULL, 10) * KIB;
		} else {
			begin = strtoull(line, &rest, 16);
			end = *rest == '-' ? strtoull(rest + 1, NULL, 16) : 0;
			ours = begin < to && end > from;
		}
	}
	if (file)
		fclose(file);
	return kvr_min_u64(bytes, mapping->bytes);
}

/* Transparent huge pages lie at multiples of their size: what stands out at both ends is given back. */
static void *map_aligned(uint64_t bytes, int flags)
{
	char *whole = mmap(NULL, bytes + 2 * MIB, PROT_READ | PROT_WRITE, flags, -1, 0);
	uint64_t before;

	if (whole == MAP_FAILED)
		return MAP_FAILED;
	before = -(uintptr_t)whole % (2 * MIB);
	if (before)
		munmap(whole, before);
	munmap(whole + before + bytes, 2 * MIB - before);
	return whole + before;
}

static int map_kind(uint64_t bytes, enum l1_page_kind kind, uint64_t unit, struct l1_mapping *mapping)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;

	if (kind == L1_PAGES_1G)
		flags |= MAP_HUGETLB | 30 << MAP_HUGE_SHIFT;
	if (kind == L1_PAGES_2M)
		flags |= MAP_HUGETLB | 21 << MAP_HUGE_SHIFT;
	memset(mapping, 0, sizeof(*mapping));
	mapping->bytes = kvr_round_up(bytes, unit);
	mapping->pages = kind;
	mapping->numa_node = -1;
	if (fault_point("l1_map/mmap"))
		mapping->address = MAP_FAILED;
	else if (kind == L1_PAGES_TRANSPARENT)
		mapping->address = map_aligned(mapping->bytes, flags);
	else
		mapping->address = mmap(NULL, mapping->bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
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

static const uint64_t units[] = {
	[L1_PAGES_1G] = GIB, [L1_PAGES_2M] = 2 * MIB, [L1_PAGES_TRANSPARENT] = 4 * KIB, [L1_PAGES_NORMAL] = 4 * KIB
};

/* What is mapped becomes memory: on its node, touched, locked. Unmapped on an error. */
static int settle(const struct l1_map_options *options, enum l1_page_kind kind, struct l1_mapping *mapping)
{
	int rc = touch(options, units[kind], mapping);

	if (rc) {
		l1_unmap(mapping);
		return rc;
	}
	lock(mapping);
	look_where_it_is(mapping, units[kind]);
	mapping->huge_bytes = units[kind] > 4 * KIB ? mapping->bytes : transparent_bytes(mapping);
	return 0;
}

static int try_kind(const struct l1_map_options *options, enum l1_page_kind kind, struct l1_mapping *mapping)
{
	int rc = fits(kind, options->bytes) ? map_kind(options->bytes, kind, units[kind], mapping) : -ENOMEM;

	if (rc)
		return rc;
	bind_to_node(mapping, options->numa_node);
	if (kind == L1_PAGES_TRANSPARENT && madvise(mapping->address, mapping->bytes, MADV_HUGEPAGE) != 0)
		mapping->pages = L1_PAGES_NORMAL;
	return settle(options, kind, mapping);
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

int l1_map_area(const struct l1_map_options *options, struct l1_mapping *mapping)
{
	int rc = -ENOMEM;

	memset(mapping, 0, sizeof(*mapping));
	if (options->bytes == 0 || options->bytes > (uint64_t)SSIZE_MAX / 2)
		return -EINVAL;
	for (int kind = L1_PAGES_1G; kind <= L1_PAGES_NORMAL && rc != 0 && rc != -EINTR; kind++)
		if (suits((enum l1_page_kind)kind, options->bytes))
			rc = try_kind(options, (enum l1_page_kind)kind, mapping);
	if (rc == -ENOMEM)
		log_no_memory(options->bytes);
	else if (rc && rc != -EINTR)
		log_error("l1: touching memory failed: %s", strerror(-rc));
	return rc == 0 || rc == -EINTR ? rc : -ENOMEM;
}

int l1_map(uint64_t bytes, int numa_node, unsigned threads, const int *stop, struct l1_mapping *mapping)
{
	struct l1_map_options options = { bytes, numa_node, threads, stop, NULL, NULL, NULL };

	return l1_map_area(&options, mapping);
}

int l1_map_file(int fd, enum l1_page_kind pages, const struct l1_map_options *options, struct l1_mapping *mapping)
{
	memset(mapping, 0, sizeof(*mapping));
	mapping->bytes = options->bytes;
	mapping->pages = pages;
	mapping->numa_node = -1;
	mapping->address = fault_point("l1_map_file/mmap")
		? MAP_FAILED
		: mmap(NULL, options->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapping->address == MAP_FAILED) {
		mapping->address = NULL;
		log_error(
			"l1: a file of %lu bytes cannot be mapped: %s", (unsigned long)options->bytes, strerror(errno));
		return -ENOMEM;
	}
	bind_to_node(mapping, options->numa_node);
	/* Where the tmpfs has huge pages by advice. */
	if (pages == L1_PAGES_NORMAL)
		(void)madvise(mapping->address, mapping->bytes, MADV_HUGEPAGE);
	return settle(options, pages, mapping);
}

void l1_unmap(struct l1_mapping *mapping)
{
	if (mapping->address)
		munmap(mapping->address, mapping->bytes);
	memset(mapping, 0, sizeof(*mapping));
}
