/*
 * l1_map.h - getting the memory for an area: huge pages where they exist, every page touched before use.
 */
#ifndef KVRAIL_TIER_L1_MAP_H
#define KVRAIL_TIER_L1_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

enum l1_page_kind { L1_PAGES_1G, L1_PAGES_2M, L1_PAGES_TRANSPARENT, L1_PAGES_NORMAL };

struct l1_mapping {
	void *address;
	uint64_t bytes; /* as mapped: rounded up to the page kind */
	enum l1_page_kind pages;
	bool locked;       /* mlock succeeded: pinned even without a device */
	uint64_t touch_ns; /* time that touching took */
};

/* Maps, binds to `numa_node` (-1: not), touches with `threads` threads in parallel, and locks where the limit allows
 * (a warning that names RLIMIT_MEMLOCK where not). `stop` (may be NULL) is looked at during touching: non-zero gives
 * -EINTR soon. Touching is done so that a page that can't be had is an error and never a SIGBUS
 * (MADV_POPULATE_WRITE). 0, -ENOMEM (with the size and the limit hit in the log), -EINVAL, -EINTR. */
KVR_MUST_CHECK int l1_map(uint64_t bytes, int numa_node, unsigned threads, const int *stop, struct l1_mapping *mapping);
void l1_unmap(struct l1_mapping *mapping);
/* "1 GiB pages", "2 MiB pages", "transparent huge pages", "4 KiB pages". */
const char *l1_page_kind_text(enum l1_page_kind pages);

KVR_END_C

#endif
