#include "tier/l1.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "tier/l1_internal.h"

static uint64_t usable_pages(const struct l1_area *areas, uint32_t count)
{
	uint64_t pages = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t bytes = areas[i].bytes / L1_PAGE_BYTES * L1_PAGE_BYTES;

		if (!areas[i].address || (uintptr_t)areas[i].address % 4096 != 0 || bytes == 0)
			return 0;
		pages += bytes / L1_PAGE_BYTES;
		if (pages >= L1_NO_PAGE)
			return 0;
	}
	return pages;
}

static int allocate_tables(struct l1 *l1)
{
	uint64_t owners = (uint64_t)l1->page_count * L1_SLOTS_PER_PAGE;
	uint64_t lists = (uint64_t)L1_CLASSES_MAX * l1->region_count;

	l1->pages = fault_point("l1_create/pages") ? NULL : malloc(l1->page_count * sizeof(*l1->pages));
	l1->owners = fault_point("l1_create/owners") ? NULL : malloc(owners * sizeof(*l1->owners));
	l1->regions = fault_point("l1_create/regions") ? NULL : calloc(l1->region_count, sizeof(*l1->regions));
	l1->classes = fault_point("l1_create/classes") ? NULL : calloc(L1_CLASSES_MAX, sizeof(*l1->classes));
	l1->partial = fault_point("l1_create/partial") ? NULL : malloc(lists * sizeof(*l1->partial));
	if (!l1->pages || !l1->owners || !l1->regions || !l1->classes || !l1->partial)
		return -ENOMEM;
	/* Written now, so that no step faults a page in later. */
	memset(l1->pages, 0, l1->page_count * sizeof(*l1->pages));
	memset(l1->owners, 0xff, owners * sizeof(*l1->owners));
	memset(l1->partial, 0xff, lists * sizeof(*l1->partial));
	return 0;
}

/* By insertion: areas are few, and this is done once. */
static void order_areas(struct l1_region *region, uint32_t self, uint32_t count, const uint16_t *distances)
{
	region->order[0] = (uint8_t)self;
	for (uint32_t area = 0, filled = 1; area < count; area++) {
		uint32_t at = filled;

		if (area == self)
			continue;
		for (; distances && at > 1 && distances[region->order[at - 1]] > distances[area]; at--)
			region->order[at] = region->order[at - 1];
		region->order[at] = (uint8_t)area;
		filled++;
	}
}

void l1_set_distances(struct l1 *l1, const uint16_t *distances)
{
	for (uint32_t i = 0; i < l1->region_count; i++)
		order_areas(&l1->regions[i], i, l1->region_count, distances + (size_t)i * l1->region_count);
}

int l1_create(const struct l1_area *areas, uint32_t area_count, struct l1 **l1_out)
{
	uint64_t pages = area_count >= 1 && area_count <= L1_AREAS_MAX ? usable_pages(areas, area_count) : 0;
	uint32_t first = 0;
	struct l1 *l1;

	if (pages == 0)
		return -EINVAL;
	l1 = fault_point("l1_create") ? NULL : calloc(1, sizeof(*l1));
	if (!l1)
		return -ENOMEM;
	l1->region_count = area_count;
	l1->page_count = (uint32_t)pages;
	if (allocate_tables(l1)) {
		l1_destroy(&l1);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < L1_CLASSES_MAX; i++)
		l1->classes[i].partial = l1->partial + (uint64_t)i * area_count;
	for (uint32_t i = 0; i < area_count; i++) {
		uint32_t count = (uint32_t)(areas[i].bytes / L1_PAGE_BYTES);

		l1->regions[i].address = (char *)areas[i].address;
		l1->regions[i].numa_node = areas[i].numa_node;
		order_areas(&l1->regions[i], i, area_count, NULL);
		l1_extents_init(&l1->regions[i].extents, l1->pages, first, count);
		first += count;
		l1->region_pages_max = count > l1->region_pages_max ? count : l1->region_pages_max;
	}
	*l1_out = l1;
	return 0;
}

void l1_destroy(struct l1 **l1_in)
{
	struct l1 *l1 = *l1_in;

	if (!l1)
		return;
	free(l1->partial);
	free(l1->classes);
	free(l1->regions);
	free(l1->owners);
	free(l1->pages);
	free(l1);
	*l1_in = NULL;
}

/* ---- runs ---- */

void l1_partial_add(struct l1 *l1, uint32_t run)
{
	struct l1_page *page = &l1->pages[run];
	struct l1_class *class_ = &l1->classes[page->object_class];
	uint32_t head = class_->partial[page->area];

	page->prev = L1_NO_PAGE;
	page->next = head;
	if (head != L1_NO_PAGE)
		l1->pages[head].prev = run;
	class_->partial[page->area] = run;
	class_->partial_areas |= UINT64_C(1) << page->area;
}

static void partial_remove(struct l1 *l1, uint32_t run)
{
	struct l1_page *page = &l1->pages[run];
	struct l1_class *class_ = &l1->classes[page->object_class];

	if (page->prev != L1_NO_PAGE)
		l1->pages[page->prev].next = page->next;
	else
		class_->partial[page->area] = page->next;
	if (page->next != L1_NO_PAGE)
		l1->pages[page->next].prev = page->prev;
	if (class_->partial[page->area] == L1_NO_PAGE)
		class_->partial_areas &= ~(UINT64_C(1) << page->area);
}

/* A shorter run from what is left at the end of the area, where no pages for a full one are free. */
static uint32_t take_last(struct l1 *l1, struct l1_extents *extents, const struct l1_class *class_, uint32_t *slots)
{
	uint32_t extent = l1_extents_last(extents, l1->pages);

	*slots = extent != L1_NO_PAGE ? l1_run_slots_in(class_, l1->pages[extent].pages) : 0;
	if (*slots == 0)
		return L1_NO_PAGE;
	l1_extents_take_from(extents, l1->pages, extent, l1_run_pages(class_, *slots));
	return extent;
}

static bool make_run(struct l1 *l1, uint32_t class_number, uint32_t area)
{
	struct l1_class *class_ = &l1->classes[class_number];
	struct l1_extents *extents = &l1->regions[area].extents;
	uint32_t slots = class_->run_slots;
	uint32_t run = l1_extents_take(extents, l1->pages, class_->run_pages);
	struct l1_page *page;

	if (run == L1_NO_PAGE)
		run = take_last(l1, extents, class_, &slots);
	if (run == L1_NO_PAGE)
		return false;
	page = &l1->pages[run];
	page->area = (uint8_t)area;
	page->object_class = (uint16_t)class_number;
	page->capacity = slots;
	page->used = 0;
	page->free_slot = L1_NO_SLOT;
	page->fresh = 0;
	l1_partial_add(l1, run);
	class_->runs++;
	class_->free_slots += slots;
	l1->runs++;
	l1->run_pages += page->pages;
	l1->slot_bytes += slots * class_->bytes;
	return true;
}

static void drop_run(struct l1 *l1, uint32_t run)
{
	struct l1_page *page = &l1->pages[run];
	struct l1_class *class_ = &l1->classes[page->object_class];

	partial_remove(l1, run);
	class_->runs--;
	class_->free_slots -= page->capacity;
	l1->runs--;
	l1->run_pages -= page->pages;
	l1->slot_bytes -= page->capacity * class_->bytes;
	l1_extents_give(&l1->regions[page->area].extents, l1->pages, run);
	l1_class_forget(l1, class_);
}

/* ---- objects ---- */

static l1_ref take_slot(struct l1 *l1, uint32_t run, uint32_t owner)
{
	struct l1_page *page = &l1->pages[run];
	struct l1_class *class_ = &l1->classes[page->object_class];
	uint32_t *owners = l1_run_owners(l1, run);
	uint32_t slot = page->free_slot;

	if (slot != L1_NO_SLOT)
		page->free_slot = owners[slot];
	else
		slot = page->fresh++;
	owners[slot] = owner;
	if (++page->used == page->capacity)
		partial_remove(l1, run);
	class_->free_slots--;
	class_->objects++;
	l1->objects++;
	l1->used_bytes += class_->bytes;
	l1->regions[page->area].used_bytes += class_->bytes;
	return l1_make_ref(run, slot);
}

l1_ref l1_allocate(struct l1 *l1, uint32_t object_class, uint32_t preferred_area, uint32_t owner)
{
	struct l1_class *class_ = &l1->classes[object_class];

	assert(object_class < L1_CLASSES_MAX && class_->bytes > 0);
	if (preferred_area >= l1->region_count)
		preferred_area = 0;
	for (uint32_t i = 0; i < l1->region_count; i++) {
		uint32_t area = l1->regions[preferred_area].order[i];

		if ((class_->partial_areas >> area & 1) || make_run(l1, object_class, area))
			return take_slot(l1, class_->partial[area], owner);
	}
	return 0;
}

void l1_free(struct l1 *l1, l1_ref object)
{
	uint32_t run = l1_ref_page(object);
	uint32_t slot = l1_ref_slot(object);
	struct l1_page *page = &l1->pages[run];
	struct l1_class *class_ = &l1->classes[page->object_class];

	assert(run < l1->page_count && page->state == L1_PAGE_RUN && slot < page->fresh && page->used > 0);
	l1_run_owners(l1, run)[slot] = page->free_slot;
	page->free_slot = slot;
	if (page->used-- == page->capacity)
		l1_partial_add(l1, run);
	class_->free_slots++;
	class_->objects--;
	l1->objects--;
	l1->used_bytes -= class_->bytes;
	l1->regions[page->area].used_bytes -= class_->bytes;
	if (page->used == 0)
		drop_run(l1, run);
}

static const struct l1_page *page_of(const struct l1 *l1, l1_ref object)
{
	const struct l1_page *page = &l1->pages[l1_ref_page(object)];

	assert(l1_ref_page(object) < l1->page_count && page->state == L1_PAGE_RUN && l1_ref_slot(object) < page->fresh);
	return page;
}

void *l1_address(const struct l1 *l1, l1_ref object)
{
	const struct l1_page *page = page_of(l1, object);
	const struct l1_region *region = &l1->regions[page->area];
	uint64_t offset = (l1_ref_page(object) - region->extents.first) * L1_PAGE_BYTES;

	return region->address + offset + l1_ref_slot(object) * l1->classes[page->object_class].slot_bytes;
}

uint64_t l1_bytes(const struct l1 *l1, l1_ref object)
{
	return l1->classes[page_of(l1, object)->object_class].bytes;
}

uint32_t l1_class_of(const struct l1 *l1, l1_ref object)
{
	return page_of(l1, object)->object_class;
}

uint32_t l1_area_of(const struct l1 *l1, l1_ref object)
{
	return page_of(l1, object)->area;
}

uint64_t l1_slot_count(const struct l1 *l1)
{
	return (uint64_t)l1->page_count * L1_SLOTS_PER_PAGE;
}

uint64_t l1_slot_index(l1_ref object)
{
	return (uint64_t)l1_ref_page(object) * L1_SLOTS_PER_PAGE + l1_ref_slot(object);
}

uint32_t l1_owner(const struct l1 *l1, l1_ref object)
{
	(void)page_of(l1, object);
	return l1_run_owners(l1, l1_ref_page(object))[l1_ref_slot(object)];
}

void l1_set_owner(struct l1 *l1, l1_ref object, uint32_t owner)
{
	(void)page_of(l1, object);
	l1_run_owners(l1, l1_ref_page(object))[l1_ref_slot(object)] = owner;
}

void l1_get_stats(const struct l1 *l1, struct l1_stats *stats)
{
	stats->total_bytes = l1->page_count * L1_PAGE_BYTES;
	stats->used_bytes = l1->used_bytes;
	stats->free_page_bytes = (l1->page_count - l1->run_pages) * L1_PAGE_BYTES;
	stats->free_slot_bytes = l1->slot_bytes - l1->used_bytes;
	stats->rounding_bytes = l1->run_pages * L1_PAGE_BYTES - l1->slot_bytes;
	stats->objects = l1->objects;
	stats->classes = l1->class_count;
	stats->runs = l1->runs;
	stats->metadata_bytes = sizeof(*l1) + l1->region_count * sizeof(*l1->regions) +
		L1_CLASSES_MAX * (sizeof(*l1->classes) + l1->region_count * sizeof(*l1->partial)) +
		l1->page_count * (sizeof(*l1->pages) + L1_SLOTS_PER_PAGE * sizeof(*l1->owners));
}

uint32_t l1_area_count(const struct l1 *l1)
{
	return l1->region_count;
}

void l1_get_area_stats(const struct l1 *l1, uint32_t area, struct l1_area_stats *stats)
{
	const struct l1_region *region = &l1->regions[area];

	stats->numa_node = region->numa_node;
	stats->total_bytes = (region->extents.end - region->extents.first) * L1_PAGE_BYTES;
	stats->used_bytes = region->used_bytes;
	stats->free_page_bytes = region->extents.free_pages * L1_PAGE_BYTES;
}
