#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "tier/l1_internal.h"

/* The free list of a run holds no slot twice and leaves as many as are in use. */
static int verify_slots(const struct l1 *l1, uint32_t page)
{
	const struct l1_page *run = &l1->pages[page];
	const uint32_t *owners = l1_run_owners(l1, page);
	uint64_t map[L1_RUN_SLOTS_MAX / 64] = { 0 };
	uint32_t listed = 0;

	for (uint32_t slot = run->free_slot; slot != L1_NO_SLOT; slot = owners[slot], listed++) {
		if (slot >= run->fresh || map[slot / 64] >> (slot % 64) & 1) {
			log_error("l1: run at page %u: slot %u stands twice on the free list, or never was used", page,
				slot);
			return -EILSEQ;
		}
		map[slot / 64] |= UINT64_C(1) << (slot % 64);
	}
	if (run->used == 0 || run->used + listed != run->fresh || run->fresh > run->capacity) {
		log_error("l1: run at page %u: %u used and %u freed slots, %u handed out of %u", page, run->used,
			listed, run->fresh, run->capacity);
		return -EILSEQ;
	}
	return 0;
}

static int verify_run(const struct l1 *l1, uint32_t page, uint32_t area)
{
	const struct l1_page *run = &l1->pages[page];
	const struct l1_class *class_ = &l1->classes[run->object_class];

	if (run->area != area || run->object_class >= L1_CLASSES_MAX || class_->bytes == 0 || run->capacity == 0 ||
		run->capacity > class_->run_slots || run->capacity * class_->slot_bytes > run->pages * L1_PAGE_BYTES) {
		log_error("l1: run at page %u: area %u, class %u, %u slots do not fit its %u pages", page, run->area,
			run->object_class, run->capacity, run->pages);
		return -EILSEQ;
	}
	return verify_slots(l1, page);
}

struct sums {
	uint64_t objects, slots, runs, partial;
};

static int verify_area(const struct l1 *l1, uint32_t area, struct sums *sums, uint64_t *run_pages)
{
	const struct l1_extents *extents = &l1->regions[area].extents;

	if (l1_extents_verify(extents, l1->pages))
		return -EILSEQ;
	for (uint32_t page = extents->first; page < extents->end; page += l1->pages[page].pages) {
		const struct l1_page *run = &l1->pages[page];

		if (run->state != L1_PAGE_RUN)
			continue;
		if (verify_run(l1, page, area))
			return -EILSEQ;
		sums[run->object_class].objects += run->used;
		sums[run->object_class].slots += run->capacity;
		sums[run->object_class].partial += run->used < run->capacity;
		sums[run->object_class].runs++;
		*run_pages += run->pages;
	}
	return 0;
}

static int verify_class(const struct l1 *l1, uint32_t number, const struct sums *sums)
{
	const struct l1_class *class_ = &l1->classes[number];
	uint64_t partial = 0;

	for (uint32_t area = 0; area < l1->region_count; area++) {
		uint32_t prev = L1_NO_PAGE;

		if ((class_->partial_areas >> area & 1) != (class_->partial[area] != L1_NO_PAGE))
			goto wrong;
		for (uint32_t page = class_->partial[area]; page != L1_NO_PAGE; page = l1->pages[page].next) {
			const struct l1_page *run = &l1->pages[page];

			if (run->state != L1_PAGE_RUN || run->object_class != number || run->area != area ||
				run->prev != prev || run->used == run->capacity || partial++ == sums->partial)
				goto wrong;
			prev = page;
		}
	}
	if (partial == sums->partial && class_->objects == sums->objects && class_->runs == sums->runs &&
		class_->free_slots == sums->slots - sums->objects && (class_->bytes > 0 || class_->runs == 0))
		return 0;
wrong:
	log_error("l1: class %u of %lu bytes: list of partly used runs or counts do not agree with its %lu runs",
		number, (unsigned long)class_->bytes, (unsigned long)sums->runs);
	return -EILSEQ;
}

int l1_verify(const struct l1 *l1)
{
	struct sums sums[L1_CLASSES_MAX];
	uint64_t run_pages = 0;
	uint64_t used_bytes = 0;
	uint64_t slot_bytes = 0;
	uint64_t runs = 0;
	uint32_t classes = 0;

	memset(sums, 0, sizeof(sums));
	for (uint32_t area = 0; area < l1->region_count; area++)
		if (verify_area(l1, area, sums, &run_pages))
			return -EILSEQ;
	for (uint32_t i = 0; i < L1_CLASSES_MAX; i++) {
		if (verify_class(l1, i, &sums[i]))
			return -EILSEQ;
		used_bytes += sums[i].objects * l1->classes[i].bytes;
		slot_bytes += sums[i].slots * l1->classes[i].bytes;
		runs += sums[i].runs;
		classes += l1->classes[i].bytes > 0;
	}
	if (used_bytes != l1->used_bytes || slot_bytes != l1->slot_bytes || runs != l1->runs ||
		run_pages != l1->run_pages || classes != l1->class_count) {
		log_error("l1: sums do not agree: %lu bytes used of %lu in %lu runs, %lu pages",
			(unsigned long)used_bytes, (unsigned long)slot_bytes, (unsigned long)runs,
			(unsigned long)run_pages);
		return -EILSEQ;
	}
	return 0;
}
