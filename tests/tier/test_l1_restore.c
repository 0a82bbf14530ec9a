/* L1 put back: what lay where lies there again, and the rest is as free as it was. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "tier/area.h"
#include "tier/l1.h"
#include "tier/l1_internal.h"

#define OBJECTS 4096u

struct kept {
	struct l1_place place;
	uint64_t bytes;
	void *address;
};

static int by_place(const void *a, const void *b)
{
	const struct l1_place *left = &((const struct kept *)a)->place, *right = &((const struct kept *)b)->place;

	if (left->area != right->area)
		return left->area < right->area ? -1 : 1;
	if (left->page != right->page)
		return left->page < right->page ? -1 : 1;
	return left->slot < right->slot ? -1 : left->slot > right->slot;
}

static void put_back(struct l1 *l1, const struct kept *kept, uint32_t count)
{
	uint32_t slots[L1_RUN_SLOTS_MAX], used, object_class;

	for (uint32_t i = 0; i < count; i += used) {
		for (used = 0; i + used < count && kept[i + used].place.area == kept[i].place.area &&
			kept[i + used].place.page == kept[i].place.page;
			used++)
			slots[used] = kept[i + used].place.slot;
		assert_int_equal(l1_class_acquire(l1, kept[i].bytes, &object_class), 0);
		assert_int_equal(l1_restore_run(l1, object_class, &kept[i].place, slots, used), 0);
		l1_class_release(l1, object_class);
	}
}

static uint32_t fill_randomly(struct l1 *l1, struct random *random, struct kept *kept)
{
	static const uint64_t sizes[] = { 100, 4096, 20000, 65536, 300001 };
	uint32_t classes[5], count = 0, target = 1 + (uint32_t)random_below(random, OBJECTS);
	l1_ref objects[OBJECTS], object;

	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(l1_class_acquire(l1, sizes[i], &classes[i]), 0);
	for (unsigned turn = 0; turn < 3 * target && count < target; turn++) {
		if (count > 0 && random_below(random, 3) == 0) {
			uint32_t gone = (uint32_t)random_below(random, count);

			l1_free(l1, objects[gone]);
			objects[gone] = objects[--count];
			continue;
		}
		object = l1_allocate(l1, classes[random_below(random, 5)], (uint32_t)random_below(random, 2), 7);
		if (object != 0)
			objects[count++] = object;
	}
	for (uint32_t i = 0; i < count; i++) {
		l1_place_of(l1, objects[i], &kept[i].place);
		kept[i].bytes = l1_bytes(l1, objects[i]);
		kept[i].address = l1_address(l1, objects[i]);
	}
	for (unsigned i = 0; i < 5; i++)
		l1_class_release(l1, classes[i]);
	qsort(kept, count, sizeof(*kept), by_place);
	return count;
}

static void objects_lie_where_they_lay_and_the_rest_can_be_used(void **state)
{
	struct kept *kept = calloc(OBJECTS, sizeof(*kept));
	struct l1_stats before, after;
	struct l1_area areas[2];
	uint32_t count, small;
	struct random random;
	struct l1 *l1;

	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		random_init(&random, seed);
		areas[0] = area_reserve(90 * L1_PAGE_BYTES);
		areas[1] = area_reserve(33 * L1_PAGE_BYTES);
		assert_int_equal(l1_create(areas, 2, &l1), 0);
		count = fill_randomly(l1, &random, kept);
		l1_get_stats(l1, &before);
		l1_destroy(&l1);
		assert_int_equal(l1_create(areas, 2, &l1), 0);
		put_back(l1, kept, count);
		assert_int_equal(l1_verify(l1), 0);
		l1_get_stats(l1, &after);
		assert_int_equal(after.objects, count);
		assert_int_equal(after.used_bytes, before.used_bytes);
		assert_int_equal(after.free_page_bytes, before.free_page_bytes);
		assert_int_equal(after.free_slot_bytes, before.free_slot_bytes);
		for (uint32_t i = 0; i < count; i++) {
			assert_ptr_equal(l1_address(l1, l1_at(l1, &kept[i].place)), kept[i].address);
			assert_int_equal(l1_bytes(l1, l1_at(l1, &kept[i].place)), kept[i].bytes);
		}
		assert_int_equal(l1_class_acquire(l1, 4096, &small), 0);
		while (l1_allocate(l1, small, 0, 1) != 0)
			;
		assert_int_equal(l1_verify(l1), 0);
		for (uint32_t i = 0; i < count; i++)
			l1_free(l1, l1_at(l1, &kept[i].place));
		assert_int_equal(l1_verify(l1), 0);
		l1_destroy(&l1);
		area_release(&areas[0]);
		area_release(&areas[1]);
	}
	free(kept);
}

static void runs_that_cannot_be_there_are_refused(void **state)
{
	static const struct l1_place bad[] = { { 1, 0, 4, 0 }, { 0, 10, 1, 0 }, { 0, 9, 5, 0 }, { 0, 3, 0, 0 },
		{ 0, UINT32_MAX, 4, 0 }, { 0, 0, UINT32_MAX, 0 } };
	uint32_t slots[] = { 1, 0 }, one[] = { 0 }, far[] = { 4 }, object_class;
	struct l1_place run = { 0, 2, 4, 0 };
	struct l1_area area;
	struct l1 *l1;

	(void)state;
	area = area_reserve(10 * L1_PAGE_BYTES);
	assert_int_equal(l1_create(&area, 1, &l1), 0);
	assert_int_equal(l1_class_acquire(l1, 16384, &object_class), 0);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(l1_restore_run(l1, object_class, &bad[i], one, 1), -EINVAL);
	assert_int_equal(l1_restore_run(l1, object_class, &run, slots, 2), -EINVAL);
	assert_int_equal(l1_restore_run(l1, object_class, &run, far, 1), -EINVAL);
	assert_int_equal(l1_restore_run(l1, object_class, &run, one, 0), -EINVAL);
	assert_int_equal(l1_restore_run(l1, object_class, &run, one, 1), 0);
	/* There is one already, and what lies before it comes too late. */
	assert_int_equal(l1_restore_run(l1, object_class, &run, one, 1), -EINVAL);
	run.page = 0;
	assert_int_equal(l1_restore_run(l1, object_class, &run, one, 1), -EINVAL);
	assert_int_equal(l1_verify(l1), 0);
	l1_destroy(&l1);
	area_release(&area);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_lie_where_they_lay_and_the_rest_can_be_used),
		cmocka_unit_test(runs_that_cannot_be_there_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
