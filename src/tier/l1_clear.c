#include <errno.h>
#include <string.h>

#include "tier/l1_internal.h"

void l1_run_map(const struct l1 *l1, uint32_t page, uint64_t map[L1_RUN_SLOTS_MAX / 64])
{
	const struct l1_page *run = &l1->pages[page];
	const uint32_t *owners = l1_run_owners(l1, page);

	memset(map, 0, L1_RUN_SLOTS_MAX / 8);
	for (uint32_t slot = 0; slot < run->fresh; slot++)
		map[slot / 64] |= UINT64_C(1) << (slot % 64);
	for (uint32_t slot = run->free_slot; slot != L1_NO_SLOT; slot = owners[slot])
		map[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
}

struct clearing {
	const struct l1 *l1;
	bool (*may_evict)(void *context, uint32_t owner, l1_ref object);
	void *context;
	l1_ref *objects;
	uint32_t capacity;
	uint32_t count;
};

/* Adds the objects of a run. False, with nothing added, when one may not go or they are too many. */
static bool add_run(struct clearing *clearing, uint32_t page)
{
	const uint32_t *owners = l1_run_owners(clearing->l1, page);
	uint64_t map[L1_RUN_SLOTS_MAX / 64];
	uint32_t count = clearing->count;

	if (clearing->l1->pages[page].used > clearing->capacity - count)
		return false;
	l1_run_map(clearing->l1, page, map);
	for (uint32_t slot = 0; slot < clearing->l1->pages[page].fresh; slot++) {
		l1_ref object = l1_make_ref(page, slot);

		if (!(map[slot / 64] >> (slot % 64) & 1))
			continue;
		if (!clearing->may_evict(clearing->context, owners[slot], object))
			return false;
		clearing->objects[count++] = object;
	}
	clearing->count = count;
	return true;
}

static bool is_free(const struct l1 *l1, uint32_t extent)
{
	return extent != L1_NO_PAGE && l1->pages[extent].state == L1_PAGE_FREE;
}

/* Which neighbour to take next: a free one, else the one with fewer objects. */
static bool choose_after(const struct l1 *l1, uint32_t before, uint32_t after)
{
	if (before == L1_NO_PAGE || after == L1_NO_PAGE)
		return after != L1_NO_PAGE;
	if (is_free(l1, before) || is_free(l1, after))
		return is_free(l1, after);
	return l1->pages[after].used <= l1->pages[before].used;
}

int l1_clear_plan(const struct l1 *l1, uint32_t object_class, l1_ref victim,
	bool (*may_evict)(void *context, uint32_t owner, l1_ref object), void *context, l1_ref *objects,
	uint32_t capacity, uint32_t *count)
{
	struct clearing clearing = { l1, may_evict, context, objects, capacity, 0 };
	uint32_t first = l1_ref_page(victim);
	const struct l1_extents *extents = &l1->regions[l1->pages[first].area].extents;
	uint32_t pages = l1->pages[first].pages;
	uint32_t before = l1_extents_before(extents, l1->pages, first);
	uint32_t after = l1_extents_after(extents, l1->pages, first);

	if (!add_run(&clearing, first))
		return -ENOSPC;
	while (pages < l1->classes[object_class].run_pages) {
		bool forward = choose_after(l1, before, after);
		uint32_t extent = forward ? after : before;
		bool taken = extent != L1_NO_PAGE && (is_free(l1, extent) || add_run(&clearing, extent));

		if (extent == L1_NO_PAGE)
			return -ENOSPC;
		pages += taken ? l1->pages[extent].pages : 0;
		if (forward)
			after = taken ? l1_extents_after(extents, l1->pages, after) : L1_NO_PAGE;
		else
			before = taken ? l1_extents_before(extents, l1->pages, before) : L1_NO_PAGE;
	}
	*count = clearing.count;
	return 0;
}
