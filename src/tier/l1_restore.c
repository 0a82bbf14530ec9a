/* l1_restore.c - where objects lie, for who writes it down, and putting runs back where they were. */
#include <assert.h>
#include <errno.h>

#include "tier/l1_internal.h"

void l1_place_of(const struct l1 *l1, l1_ref object, struct l1_place *place)
{
	uint32_t run = l1_ref_page(object);
	const struct l1_page *page = &l1->pages[run];

	assert(run < l1->page_count && page->state == L1_PAGE_RUN);
	place->area = page->area;
	place->page = run - l1->regions[page->area].extents.first;
	place->run_slots = page->capacity;
	place->slot = l1_ref_slot(object);
}

l1_ref l1_at(const struct l1 *l1, const struct l1_place *place)
{
	return l1_make_ref(l1->regions[place->area].extents.first + place->page, place->slot);
}

/* The free extent at the area's end, when the run fits into it. */
static uint32_t extent_for(const struct l1 *l1, const struct l1_class *class_, const struct l1_place *run)
{
	const struct l1_extents *extents;
	uint32_t extent;
	uint64_t end;

	if (run->area >= l1->region_count || run->run_slots == 0 || run->run_slots > class_->run_slots)
		return L1_NO_PAGE;
	extents = &l1->regions[run->area].extents;
	extent = l1_extents_last(extents, l1->pages);
	end = (uint64_t)extents->first + run->page + l1_run_pages(class_, run->run_slots);
	if (extent == L1_NO_PAGE || (uint64_t)extents->first + run->page < extent || end > extents->end)
		return L1_NO_PAGE;
	return extent;
}

static bool good_slots(const struct l1_place *run, const uint32_t *slots, uint32_t count)
{
	if (count == 0 || count > run->run_slots || slots[count - 1] >= run->run_slots)
		return false;
	for (uint32_t i = 1; i < count; i++) {
		if (slots[i] <= slots[i - 1])
			return false;
	}
	return true;
}

/* The slots that are not in use go on the run's list of freed ones, in their order. */
static void fill_run(struct l1 *l1, uint32_t run, const uint32_t *slots, uint32_t count)
{
	struct l1_page *page = &l1->pages[run];
	uint32_t *owners = l1_run_owners(l1, run);
	uint32_t used = count;

	page->fresh = page->capacity;
	page->used = count;
	page->free_slot = L1_NO_SLOT;
	for (uint32_t slot = page->capacity; slot-- > 0;) {
		if (used > 0 && slots[used - 1] == slot) {
			owners[slot] = L1_NO_OWNER;
			used--;
			continue;
		}
		owners[slot] = page->free_slot;
		page->free_slot = slot;
	}
}

int l1_restore_run(
	struct l1 *l1, uint32_t object_class, const struct l1_place *run, const uint32_t *slots, uint32_t slot_count)
{
	struct l1_class *class_ = &l1->classes[object_class];
	uint32_t extent, first;
	struct l1_page *page;

	assert(object_class < L1_CLASSES_MAX && class_->bytes > 0);
	extent = extent_for(l1, class_, run);
	if (extent == L1_NO_PAGE || !good_slots(run, slots, slot_count))
		return -EINVAL;
	first = l1->regions[run->area].extents.first + run->page;
	l1_extents_take_at(
		&l1->regions[run->area].extents, l1->pages, extent, first, l1_run_pages(class_, run->run_slots));
	page = &l1->pages[first];
	page->area = (uint8_t)run->area;
	page->object_class = (uint16_t)object_class;
	page->capacity = run->run_slots;
	fill_run(l1, first, slots, slot_count);
	if (page->used < page->capacity)
		l1_partial_add(l1, first);
	class_->runs++;
	class_->free_slots += page->capacity - page->used;
	class_->objects += page->used;
	l1->runs++;
	l1->run_pages += page->pages;
	l1->slot_bytes += page->capacity * class_->bytes;
	l1->objects += page->used;
	l1->used_bytes += page->used * class_->bytes;
	return 0;
}
