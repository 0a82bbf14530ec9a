/* L1: runs and their rounding, filling to the last object, giving runs back, areas, classes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/random.h"
#include "tier/area.h"
#include "tier/l1.h"
#include "tier/l1_internal.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

static uint32_t fill(struct l1 *l1, uint32_t class_, uint32_t area, l1_ref *objects, uint32_t capacity)
{
	uint32_t count = 0;
	l1_ref object;

	while ((object = l1_allocate(l1, class_, area, count)) != 0) {
		if (objects) {
			assert_true(count < capacity);
			objects[count] = object;
		}
		count++;
	}
	return count;
}

static uint64_t sum_of(const struct l1_stats *stats)
{
	return stats->used_bytes + stats->rounding_bytes + stats->free_page_bytes + stats->free_slot_bytes;
}

static void sizes_that_are_no_memory_are_refused(void **state)
{
	struct l1_area area = { (void *)4096, 0, -1 };
	struct l1 *l1 = NULL;

	(void)state;
	assert_int_equal(l1_create(&area, 1, &l1), -EINVAL);
	area.bytes = L1_PAGE_BYTES - 1;
	assert_int_equal(l1_create(&area, 1, &l1), -EINVAL);
	area = (struct l1_area){ (void *)4097, L1_PAGE_BYTES, -1 };
	assert_int_equal(l1_create(&area, 1, &l1), -EINVAL);
	area = (struct l1_area){ NULL, L1_PAGE_BYTES, -1 };
	assert_int_equal(l1_create(&area, 1, &l1), -EINVAL);
	area = (struct l1_area){ (void *)4096, UINT64_MAX / 2, -1 };
	assert_int_equal(l1_create(&area, 1, &l1), -EINVAL);
	assert_int_equal(l1_create(&area, 0, &l1), -EINVAL);
	assert_int_equal(l1_create(&area, L1_AREAS_MAX + 1, &l1), -EINVAL);
	assert_null(l1);
}

static void creation_survives_the_failure_of_each_allocation(void **state)
{
	struct l1_area area = area_reserve(MIB);
	struct l1 *l1 = NULL;

	(void)state;
	for (uint64_t n = 1;; n++) {
		int rc;

		fault_arm(n);
		rc = l1_create(&area, 1, &l1);
		if (!fault_fired()) {
			assert_true(n > 5);
			assert_int_equal(rc, 0);
			break;
		}
		assert_int_equal(rc, -ENOMEM);
		assert_null(l1);
	}
	fault_arm(0);
	l1_destroy(&l1);
	l1_destroy(&l1);
	area_release(&area);
}

static void equal_sizes_share_a_class(void **state)
{
	struct l1_area area = area_reserve(64 * MIB);
	struct l1 *l1;
	uint32_t a, b, c;
	l1_ref object;

	(void)state;
	assert_int_equal(l1_create(&area, 1, &l1), 0);
	assert_int_equal(l1_class_acquire(l1, 0, &a), -EINVAL);
	assert_int_equal(l1_class_acquire(l1, 64 * MIB + 1, &a), -E2BIG);
	assert_int_equal(l1_class_acquire(l1, 70 * KIB, &a), 0);
	assert_int_equal(l1_class_acquire(l1, 70 * KIB, &b), 0);
	assert_int_equal(a, b);
	assert_int_equal(l1_class_acquire(l1, 70 * KIB + 1, &c), 0);
	assert_int_not_equal(a, c);
	assert_int_equal(l1_class_bytes(l1, a), 70 * KIB);
	assert_int_equal(l1_class_slot_bytes(l1, c), 70 * KIB + 64);

	object = l1_allocate(l1, a, 0, 5);
	l1_class_release(l1, a);
	l1_class_release(l1, b);
	assert_int_equal(l1_bytes(l1, object), 70 * KIB);
	assert_int_equal(l1_class_of(l1, object), a);
	assert_int_equal(l1_verify(l1), 0);
	l1_free(l1, object);
	assert_int_equal(l1_class_bytes(l1, a), 0);
	assert_int_equal(l1_class_acquire(l1, MIB, &b), 0);
	assert_int_equal(b, a);
	assert_int_equal(l1_verify(l1), 0);
	l1_destroy(&l1);
	area_release(&area);
}

static void classes_run_out_and_are_recycled(void **state)
{
	struct l1_area area = area_reserve(4 * MIB);
	struct l1 *l1;
	uint32_t class_;

	(void)state;
	assert_int_equal(l1_create(&area, 1, &l1), 0);
	for (uint64_t i = 0; i < L1_CLASSES_MAX; i++)
		assert_int_equal(l1_class_acquire(l1, 1 + i, &class_), 0);
	assert_int_equal(l1_class_acquire(l1, 999, &class_), -ENOSPC);
	l1_class_release(l1, 17);
	assert_int_equal(l1_class_acquire(l1, 999, &class_), 0);
	assert_int_equal(class_, 17);
	l1_destroy(&l1);
	area_release(&area);
}

/* The loss of whole runs in use, at most 2 % for objects from 4 KiB up, and the area is used but for less than a
 * run's end. */
static void check_rounding(struct l1 *l1, uint64_t area_bytes, uint64_t object_bytes)
{
	struct l1_stats stats;
	uint64_t count, room;
	uint32_t class_;

	assert_int_equal(l1_class_acquire(l1, object_bytes, &class_), 0);
	room = l1_class_room(l1, class_);
	count = fill(l1, class_, 0, NULL, 0);
	l1_get_stats(l1, &stats);
	assert_int_equal(count, room);
	assert_int_equal(stats.used_bytes, count * object_bytes);
	assert_int_equal(stats.total_bytes, area_bytes);
	assert_int_equal(sum_of(&stats), stats.total_bytes);
	assert_int_equal(stats.free_slot_bytes, 0);
	if (stats.rounding_bytes * 50 > area_bytes || count < area_bytes / object_bytes * 98 / 100)
		fail_msg("objects of %lu bytes: %lu of %lu fit, %lu bytes lost", (unsigned long)object_bytes,
			(unsigned long)count, (unsigned long)(area_bytes / object_bytes),
			(unsigned long)stats.rounding_bytes);
}

static void rounding_loses_less_than_two_percent_whatever_the_size(void **state)
{
	static const uint64_t odd[] = { 4 * KIB, 4 * KIB + 1, 4 * KIB + 63, 5000, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1,
		70 * KIB, 127 * KIB, 129 * KIB, 192 * KIB + 64, MIB - 1, MIB + 1, MIB + 100 * KIB, 1153433, 3 * MIB + 1,
		3355443, 3355444, 10 * MIB + 512 * KIB + 64, 32 * MIB, 33 * MIB - 1 };
	struct l1_area area = area_reserve(4 * GIB);
	struct random random;

	(void)state;
	random_init(&random, 11);
	for (uint32_t i = 0; i < sizeof(odd) / sizeof(odd[0]) + 60; i++) {
		uint64_t power = 12 + random_below(&random, 13);
		uint64_t bytes = ((uint64_t)1 << power) + random_below(&random, (uint64_t)1 << power);
		struct l1 *l1;

		bytes = i < sizeof(odd) / sizeof(odd[0]) ? odd[i] : bytes;
		area.bytes = bytes < 64 * KIB ? 256 * MIB : 4 * GIB;
		assert_int_equal(l1_create(&area, 1, &l1), 0);
		check_rounding(l1, area.bytes, bytes);
		assert_int_equal(l1_verify(l1), 0);
		l1_destroy(&l1);
	}
	area.bytes = 4 * GIB;
	area_release(&area);
}

static void one_class_fills_the_area_but_for_its_run_ends(void **state)
{
	static const uint64_t sizes[] = { 4 * KIB, 70 * KIB, 129 * KIB, 3 * MIB + 512 * KIB };
	struct l1_area area = area_reserve(64 * MIB);

	(void)state;
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct l1 *l1;
		uint32_t class_;
		uint64_t count;

		assert_int_equal(l1_create(&area, 1, &l1), 0);
		assert_int_equal(l1_class_acquire(l1, sizes[i], &class_), 0);
		count = fill(l1, class_, 0, NULL, 0);
		/* Each run ends with less than a page lost. */
		assert_true(
			count * l1_class_slot_bytes(l1, class_) + (l1->runs + 1) * L1_PAGE_BYTES + sizes[i] > 64 * MIB);
		assert_int_equal(l1_class_room(l1, class_), 0);
		l1_destroy(&l1);
	}
	area_release(&area);
}

/* pitfalls D02: whatever order objects go in, afterwards the whole pool can be allocated again. */
static void after_freeing_in_any_order_everything_fits_again(void **state)
{
	struct l1_area area = area_reserve(32 * MIB);
	l1_ref *objects = calloc(8192, sizeof(*objects));
	struct random random;
	struct l1_stats stats;
	uint32_t small, large;
	struct l1 *l1;
	uint32_t count;

	(void)state;
	random_init(&random, 3);
	assert_int_equal(l1_create(&area, 1, &l1), 0);
	assert_int_equal(l1_class_acquire(l1, 4 * KIB, &small), 0);
	assert_int_equal(l1_class_acquire(l1, 32 * MIB, &large), 0);
	for (int round = 0; round < 3; round++) {
		count = fill(l1, small, 0, objects, 8192);
		assert_int_equal(count, 8192);
		assert_int_equal(l1_allocate(l1, large, 0, 0), 0);
		for (; count > 0; count--) {
			uint32_t pick = (uint32_t)random_below(&random, count);

			l1_free(l1, objects[pick]);
			objects[pick] = objects[count - 1];
			if (count % 1024 == 0)
				assert_int_equal(l1_verify(l1), 0);
		}
		l1_get_stats(l1, &stats);
		assert_int_equal(stats.free_page_bytes, 32 * MIB);
		assert_int_equal(stats.runs, 0);
		objects[0] = l1_allocate(l1, large, 0, 0);
		assert_int_not_equal(objects[0], 0);
		l1_free(l1, objects[0]);
	}
	free(objects);
	l1_destroy(&l1);
	area_release(&area);
}

static void objects_do_not_overlap_and_stay_inside(void **state)
{
	struct l1_area area = area_reserve(3 * MIB + 4096);
	l1_ref objects[4096];
	struct l1 *l1;
	uint32_t class_, count;

	(void)state;
	assert_int_equal(l1_create(&area, 1, &l1), 0);
	assert_int_equal(l1_class_acquire(l1, 70 * KIB, &class_), 0);
	count = fill(l1, class_, 0, objects, 4096);
	assert_int_equal(count, 43);
	for (uint32_t i = 0; i < count; i++) {
		char *address = l1_address(l1, objects[i]);

		assert_true(address >= (char *)area.address && address + 70 * KIB <= (char *)area.address + 3 * MIB);
		assert_int_equal((uintptr_t)address % L1_OBJECT_ALIGN, 0);
		assert_int_equal(l1_owner(l1, objects[i]), i);
		for (uint32_t j = 0; j < i; j++) {
			char *other = l1_address(l1, objects[j]);

			assert_true(other + 70 * KIB <= address || address + 70 * KIB <= other);
		}
		l1_set_owner(l1, objects[i], i);
	}
	l1_destroy(&l1);
	area_release(&area);
}

static void the_preferred_area_is_used_first_and_others_when_it_is_full(void **state)
{
	struct l1_area areas[3] = { area_reserve(MIB), area_reserve(MIB), area_reserve(MIB) };
	l1_ref objects[64];
	struct l1 *l1;
	uint32_t class_, count;

	(void)state;
	assert_int_equal(l1_create(areas, 3, &l1), 0);
	assert_int_equal(l1_class_acquire(l1, 64 * KIB, &class_), 0);
	assert_int_equal(l1_class_room(l1, class_), 48);
	count = fill(l1, class_, 1, objects, 64);
	assert_int_equal(count, 48);
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(l1_area_of(l1, objects[i]), 1);
	l1_free(l1, objects[40]);
	assert_int_equal(l1_allocate(l1, class_, 99, 0), objects[40]);
	for (uint32_t i = 0; i < count; i++)
		l1_free(l1, objects[i]);
	assert_int_equal(l1_verify(l1), 0);
	l1_destroy(&l1);
	for (int i = 0; i < 3; i++)
		area_release(&areas[i]);
}

/* Two models of different object sizes, one after the other, in memory that neither could fill alone. */
static void pages_go_from_one_class_to_another(void **state)
{
	struct l1_area area = area_reserve(16 * MIB);
	l1_ref objects[512];
	struct l1 *l1;
	uint32_t a, b, count;

	(void)state;
	assert_int_equal(l1_create(&area, 1, &l1), 0);
	assert_int_equal(l1_class_acquire(l1, 64 * KIB, &a), 0);
	assert_int_equal(l1_class_acquire(l1, 4 * MIB, &b), 0);
	count = fill(l1, a, 0, objects, 512);
	assert_int_equal(count, 256);
	assert_int_equal(l1_allocate(l1, b, 0, 0), 0);
	for (uint32_t i = 64; i < 128; i++)
		l1_free(l1, objects[i]);
	assert_int_equal(l1_class_room(l1, b), 1);
	assert_int_not_equal(l1_allocate(l1, b, 0, 0), 0);
	assert_int_equal(l1_allocate(l1, a, 0, 0), 0);
	assert_int_equal(l1_verify(l1), 0);
	l1_destroy(&l1);
	area_release(&area);
}

static void metadata_is_small(void **state)
{
	struct l1_area area = area_reserve(GIB);
	struct l1_stats stats;
	struct l1 *l1;

	(void)state;
	assert_int_equal(l1_create(&area, 1, &l1), 0);
	l1_get_stats(l1, &stats);
	assert_true(stats.metadata_bytes * 500 < GIB);
	assert_true(stats.metadata_bytes < 20 * (GIB / (4 * KIB)));
	l1_destroy(&l1);
	area_release(&area);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_that_are_no_memory_are_refused),
		cmocka_unit_test(creation_survives_the_failure_of_each_allocation),
		cmocka_unit_test(equal_sizes_share_a_class),
		cmocka_unit_test(classes_run_out_and_are_recycled),
		cmocka_unit_test(rounding_loses_less_than_two_percent_whatever_the_size),
		cmocka_unit_test(one_class_fills_the_area_but_for_its_run_ends),
		cmocka_unit_test(after_freeing_in_any_order_everything_fits_again),
		cmocka_unit_test(objects_do_not_overlap_and_stay_inside),
		cmocka_unit_test(the_preferred_area_is_used_first_and_others_when_it_is_full),
		cmocka_unit_test(pages_go_from_one_class_to_another),
		cmocka_unit_test(metadata_is_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
