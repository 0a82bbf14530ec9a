#include "app/common/heap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"

/* Of jemalloc, which may not be there: then it is NULL. */
extern int mallctl(const char *name, void *old, size_t *old_size, void *new_value, size_t new_size)
	__attribute__((weak));

bool heap_known(void)
{
	return mallctl != NULL;
}

bool heap_own_arena(void)
{
	size_t size = sizeof(unsigned);
	unsigned arena;

	if (fault_point("heap/arena") || !heap_known() || mallctl("arenas.create", &arena, &size, NULL, 0) != 0)
		return false;
	return mallctl("thread.arena", NULL, NULL, &arena, sizeof(arena)) == 0;
}

static uint64_t number(const char *name)
{
	size_t value = 0, size = sizeof(value);

	return mallctl(name, &value, &size, NULL, 0) == 0 ? value : 0;
}

/* The second number of statm: pages of the process that are in memory, L1's too unless they are huge pages of hugetlbfs. */
static uint64_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	char line[128] = "", *end;
	uint64_t pages = 0;

	if (!file)
		return 0;
	if (fgets(line, sizeof(line), file)) {
		(void)strtoull(line, &end, 10);
		pages = strtoull(end, NULL, 10);
	}
	fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

void heap_numbers(struct status_heap *heap)
{
	uint64_t epoch = 1;
	unsigned arenas = 0;
	size_t size = sizeof(arenas);

	memset(heap, 0, sizeof(*heap));
	heap->rss_bytes = resident_bytes();
	heap->allocator = heap_known() ? "jemalloc" : "libc";
	if (!heap_known())
		return;
	/* Numbers are as they were when this was last written. */
	(void)mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch));
	heap->allocated_bytes = number("stats.allocated");
	heap->active_bytes = number("stats.active");
	heap->resident_bytes = number("stats.resident");
	heap->retained_bytes = number("stats.retained");
	heap->metadata_bytes = number("stats.metadata");
	if (mallctl("arenas.narenas", &arenas, &size, NULL, 0) == 0)
		heap->arenas = arenas;
}
