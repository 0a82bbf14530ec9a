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
	bool locked;            /* mlock succeeded: pinned even without a device */
	uint64_t touch_ns;      /* time that touching took */
	unsigned touch_threads; /* that did it */
	uint64_t huge_bytes;    /* that are on huge pages; of transparent ones the kernel gives what it has */
	int numa_node;          /* that it was bound to; -1: none */
	/* Pages that were asked for where they are, and those that are on numa_node; 0, 0: not known. */
	uint32_t pages_sampled, pages_on_node;
};

struct l1_map_options {
	uint64_t bytes;
	int numa_node;    /* -1: memory comes from wherever the kernel takes it */
	unsigned threads; /* that touch it in parallel; 0: 1 */
	const int *stop;  /* looked at while memory is touched: non-zero gives -EINTR soon; may be NULL */
	/* In each thread that touches, before it does: puts it on a core of the node. NULL: nothing; then the caller is one of them. */
	void (*thread_begin)(void *context, unsigned thread);
	/* In the calling thread, about once a second while memory is touched. NULL: nothing. */
	void (*progress)(void *context, uint64_t touched_bytes, uint64_t ns);
	void *context;
};

/*
 * Maps memory on the best pages that there are (1 GiB, 2 MiB, transparent huge ones, normal ones), binds it to the node, touches it in
 * parallel, and locks it where the limit allows (a warning that names RLIMIT_MEMLOCK where not). Touching is done so that a page that
 * can't be had is an error and never a SIGBUS (MADV_POPULATE_WRITE; pitfalls K09). Normal pages are bound strictly only where the node
 * has enough of them, since a node that is full would have processes killed for it. Where the pages then really are is looked at, and
 * more than one of a hundred elsewhere is a warning (pitfalls M07). 0, -ENOMEM (with the size and the limit hit in the log), -EINVAL,
 * -EINTR.
 */
KVR_MUST_CHECK int l1_map_area(const struct l1_map_options *options, struct l1_mapping *mapping);
/* As that, without helpers of the caller's. */
KVR_MUST_CHECK int l1_map(uint64_t bytes, int numa_node, unsigned threads, const int *stop, struct l1_mapping *mapping);
/* The same for a file that has all of options->bytes (keep_file.h) and is on pages of that kind: its content stays. */
KVR_MUST_CHECK int l1_map_file(
	int fd, enum l1_page_kind pages, const struct l1_map_options *options, struct l1_mapping *mapping);
void l1_unmap(struct l1_mapping *mapping);
/* "1 GiB pages", "2 MiB pages", "transparent huge pages", "4 KiB pages". */
const char *l1_page_kind_text(enum l1_page_kind pages);

KVR_END_C

#endif
