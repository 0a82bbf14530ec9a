#include <assert.h>
#include <errno.h>

#include "tier/l1_internal.h"

/* A full run is no longer than this, unless one object is. */
#define RUN_PAGES_MAX 256

/* Objects below the smallest slot are counted as large as the slot: that loss is no matter of how a run is cut. */
static uint64_t lost_bytes(const struct l1_class *class_, uint64_t slots)
{
	return l1_run_pages(class_, slots) * L1_PAGE_BYTES - slots * kvr_max_u64(class_->bytes, L1_SLOT_BYTES_MIN);
}

static bool loses_little(const struct l1_class *class_, uint64_t slots)
{
	return lost_bytes(class_, slots) * 50 < l1_run_pages(class_, slots) * L1_PAGE_BYTES;
}

void l1_size_run(struct l1_class *class_, uint32_t pages_max)
{
	uint32_t limit = pages_max < RUN_PAGES_MAX ? pages_max : RUN_PAGES_MAX;
	uint32_t best = 1;

	for (uint32_t slots = 1; slots <= L1_RUN_SLOTS_MAX && (slots == 1 || l1_run_pages(class_, slots) <= limit);
		slots++) {
		/* lost(slots) / pages(slots) < lost(best) / pages(best) */
		if (lost_bytes(class_, slots) * l1_run_pages(class_, best) <
			lost_bytes(class_, best) * l1_run_pages(class_, slots))
			best = slots;
		if (loses_little(class_, best))
			break;
	}
	class_->run_slots = best;
	class_->run_pages = l1_run_pages(class_, best);
}

uint32_t l1_run_slots_in(const struct l1_class *class_, uint32_t pages)
{
	uint64_t slots = pages * L1_PAGE_BYTES / class_->slot_bytes;

	return slots < class_->run_slots ? (uint32_t)slots : class_->run_slots;
}

static int make_class(struct l1 *l1, uint32_t number, uint64_t object_bytes)
{
	struct l1_class *class_ = &l1->classes[number];
	struct l1_class wanted = { .bytes = object_bytes, .users = 1, .partial = class_->partial };

	if (object_bytes > l1->region_pages_max * L1_PAGE_BYTES)
		return -E2BIG;
	wanted.slot_bytes = kvr_max_u64(kvr_round_up(object_bytes, L1_OBJECT_ALIGN), L1_SLOT_BYTES_MIN);
	l1_size_run(&wanted, l1->region_pages_max);
	*class_ = wanted;
	l1->class_count++;
	return 0;
}

int l1_class_acquire(struct l1 *l1, uint64_t object_bytes, uint32_t *object_class)
{
	uint32_t number = L1_CLASSES_MAX;
	int rc;

	if (object_bytes == 0)
		return -EINVAL;
	for (uint32_t i = 0; i < L1_CLASSES_MAX; i++) {
		if (l1->classes[i].bytes == object_bytes) {
			l1->classes[i].users++;
			*object_class = i;
			return 0;
		}
		if (l1->classes[i].bytes == 0 && number == L1_CLASSES_MAX)
			number = i;
	}
	if (number == L1_CLASSES_MAX)
		return -ENOSPC;
	rc = make_class(l1, number, object_bytes);
	if (rc == 0)
		*object_class = number;
	return rc;
}

void l1_class_forget(struct l1 *l1, struct l1_class *class_)
{
	if (class_->users > 0 || class_->runs > 0)
		return;
	class_->bytes = 0;
	l1->class_count--;
}

void l1_class_release(struct l1 *l1, uint32_t object_class)
{
	struct l1_class *class_ = &l1->classes[object_class];

	assert(object_class < L1_CLASSES_MAX && class_->users > 0);
	class_->users--;
	l1_class_forget(l1, class_);
}

uint64_t l1_class_bytes(const struct l1 *l1, uint32_t object_class)
{
	return l1->classes[object_class].bytes;
}

uint64_t l1_class_slot_bytes(const struct l1 *l1, uint32_t object_class)
{
	return l1->classes[object_class].slot_bytes;
}

static uint64_t room_in_area(const struct l1 *l1, const struct l1_class *class_, const struct l1_extents *extents)
{
	uint32_t last = l1_extents_last(extents, l1->pages);
	uint32_t last_pages = last != L1_NO_PAGE ? l1->pages[last].pages : 0;
	uint32_t last_bin = last != L1_NO_PAGE ? l1_bin_of(last_pages) : L1_BINS;
	uint64_t runs = last_pages / class_->run_pages;

	for (uint32_t bin = l1_bin_next(extents, 0); bin < L1_BINS; bin = l1_bin_next(extents, bin + 1)) {
		uint64_t count = extents->bins[bin].extents - (bin == last_bin);
		uint64_t pages = extents->bins[bin].pages - (bin == last_bin ? last_pages : 0);

		if (count > 0 && (count == 1 || bin < L1_BINS_EXACT))
			runs += count * (pages / count / class_->run_pages);
		else
			runs += pages / class_->run_pages;
	}
	return runs * class_->run_slots + l1_run_slots_in(class_, last_pages % class_->run_pages);
}

uint64_t l1_class_room(const struct l1 *l1, uint32_t object_class)
{
	const struct l1_class *class_ = &l1->classes[object_class];
	uint64_t room = class_->free_slots;

	for (uint32_t i = 0; i < l1->region_count; i++)
		if (l1->regions[i].extents.free_pages > 0)
			room += room_in_area(l1, class_, &l1->regions[i].extents);
	return room;
}
