#include "tier/area.h"

#include <stdlib.h>
#include <sys/mman.h>

struct l1_area area_reserve(uint64_t bytes)
{
	struct l1_area area = { .bytes = bytes, .numa_node = -1 };

	area.address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area.address == MAP_FAILED)
		abort();
	return area;
}

void area_release(struct l1_area *area)
{
	munmap(area->address, area->bytes);
	area->address = NULL;
}
