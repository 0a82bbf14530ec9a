/*
 * map.c - shared memory on huge pages where the kernel has them.
 *
 * A KV block that lies in 4 KiB pages costs a page walk for each of them, on both sides and, in a virtual machine,
 * through two tables. Most systems give huge pages to a memfd only when asked twice: by MADV_HUGEPAGE before the first
 * touch where shmem_enabled says `advise`, and by MADV_COLLAPSE where it says `never` (Linux 6.1). Collapsing a range
 * of which a single page exists costs no more than clearing the huge page, so that one is touched first.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "verbs/local/local.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define SMALL_PAGE (UINT64_C(4) << 10)

static void *map_at(void *address, int fd, uint64_t bytes, int flags)
{
	return mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
}

void *local_map_shared(int fd, uint64_t bytes, int flags)
{
	uint64_t reserved = bytes + LOCAL_HUGE_PAGE;
	uint8_t *area, *base, *end;
	int error;

	if (bytes < LOCAL_HUGE_PAGE)
		return map_at(NULL, fd, bytes, flags);
	area = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED)
		return MAP_FAILED;
	base = (uint8_t *)(uintptr_t)kvr_round_up((uintptr_t)area, LOCAL_HUGE_PAGE);
	if (map_at(base, fd, bytes, MAP_FIXED | flags) == MAP_FAILED) {
		error = errno;
		munmap(area, reserved);
		errno = error;
		return MAP_FAILED;
	}
	end = base + kvr_round_up(bytes, SMALL_PAGE);
	if (base > area)
		munmap(area, (uint64_t)(base - area));
	if (area + reserved > end)
		munmap(end, (uint64_t)(area + reserved - end));
	return base;
}

/* Advice: where it is not taken, normal pages will do. */
static void ask_for_huge_pages(uint8_t *address, uint64_t bytes)
{
	uint64_t whole = bytes - bytes % LOCAL_HUGE_PAGE;

	(void)madvise(address, bytes, MADV_HUGEPAGE);
	for (uint64_t at = 0; at < whole; at += LOCAL_HUGE_PAGE)
		if (madvise(address + at, SMALL_PAGE, MADV_POPULATE_WRITE) != 0)
			return;
	if (whole > 0)
		(void)madvise(address, whole, MADV_COLLAPSE);
}

int local_populate(int fd, void *address, uint64_t bytes)
{
	ask_for_huge_pages(address, bytes);
	/* It says so where no page is to be had, unlike MAP_POPULATE; kernels before 5.14 don't know it. */
	if (madvise(address, bytes, MADV_POPULATE_WRITE) == 0 ||
		(errno == EINVAL && fallocate(fd, 0, 0, (off_t)bytes) == 0))
		return 0;
	return -ENOMEM;
}
