/* l1_clear_plan: which objects must go so that a run of another class fits. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "tier/area.h"
#include "tier/l1_internal.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)
#define HELD 1000000u /* owners from here on may not go */

struct fixture {
	struct l1_area area;
	struct l1 *l1;
	uint32_t small, large; /* 64 KiB, 1 MiB: one page, 16 pages */
	l1_ref objects[64];    /* 4 MiB full of small ones, in the order of their pages */
	l1_ref plan[64];
	uint32_t count;
	uint32_t asked;
};

static bool may_evict(void *context, uint32_t owner, l1_ref object)
{
	struct fixture *f = context;

	(void)object;
	f->asked++;
	return owner < HELD;
}

static void fill(struct fixture *f)
{
	memset(f, 0, sizeof(*f));
	f->area = area_reserve(4 * MIB);
	assert_int_equal(l1_create(&f->area, 1, &f->l1), 0);
	assert_int_equal(l1_class_acquire(f->l1, 64 * KIB, &f->small), 0);
	assert_int_equal(l1_class_acquire(f->l1, MIB, &f->large), 0);
	for (uint32_t i = 0; i < 64; i++) {
		f->objects[i] = l1_allocate(f->l1, f->small, 0, i);
		assert_int_equal(l1_ref_page(f->objects[i]), i);
	}
}

static void finish(struct fixture *f)
{
	assert_int_equal(l1_verify(f->l1), 0);
	l1_destroy(&f->l1);
	area_release(&f->area);
}

static int plan(struct fixture *f, uint32_t victim, uint32_t capacity)
{
	return l1_clear_plan(f->l1, f->large, f->objects[victim], may_evict, f, f->plan, capacity, &f->count);
}

static void carry_out(struct fixture *f)
{
	for (uint32_t i = 0; i < f->count; i++)
		l1_free(f->l1, f->plan[i]);
	assert_int_not_equal(l1_allocate(f->l1, f->large, 0, 0), 0);
}

static void a_plan_makes_room_for_exactly_one_run(void **state)
{
	struct fixture f;
	bool seen = false;

	(void)state;
	fill(&f);
	assert_int_equal(l1_allocate(f.l1, f.large, 0, 0), 0);
	assert_int_equal(plan(&f, 30, 64), 0);
	assert_int_equal(f.count, 16);
	for (uint32_t i = 0; i < f.count; i++)
		seen = seen || f.plan[i] == f.objects[30];
	assert_true(seen);
	assert_int_equal(l1_verify(f.l1), 0);
	carry_out(&f);
	assert_int_equal(l1_allocate(f.l1, f.small, 0, 0), 0);
	finish(&f);
}

static void the_ends_of_the_area_are_respected(void **state)
{
	struct fixture f;

	(void)state;
	fill(&f);
	assert_int_equal(plan(&f, 0, 16), 0);
	assert_int_equal(f.count, 16);
	carry_out(&f);
	assert_int_equal(plan(&f, 63, 16), 0);
	carry_out(&f);
	finish(&f);
}

static void free_pages_nearby_count_as_they_are(void **state)
{
	struct fixture f;

	(void)state;
	fill(&f);
	for (uint32_t i = 20; i < 34; i++)
		l1_free(f.l1, f.objects[i]);
	assert_int_equal(plan(&f, 19, 64), 0);
	assert_int_equal(f.count, 2);
	carry_out(&f);
	finish(&f);
}

static void objects_that_may_not_go_are_gone_around(void **state)
{
	struct fixture f;

	(void)state;
	fill(&f);
	l1_set_owner(f.l1, f.objects[24], HELD);
	assert_int_equal(plan(&f, 23, 64), 0);
	for (uint32_t i = 0; i < f.count; i++)
		assert_int_not_equal(f.plan[i], f.objects[24]);
	assert_int_equal(plan(&f, 24, 64), -ENOSPC);
	l1_set_owner(f.l1, f.objects[10], L1_NO_OWNER);
	assert_int_equal(plan(&f, 15, 64), -ENOSPC);
	assert_int_equal(l1_allocate(f.l1, f.large, 0, 0), 0);
	finish(&f);
}

static void no_more_is_looked_at_than_was_allowed(void **state)
{
	struct fixture f;

	(void)state;
	fill(&f);
	assert_int_equal(plan(&f, 30, 15), -ENOSPC);
	assert_true(f.asked <= 15);
	assert_int_equal(plan(&f, 30, 16), 0);
	finish(&f);
}

static void a_run_of_many_objects_goes_as_a_whole(void **state)
{
	struct l1_area area = area_reserve(MIB);
	l1_ref objects[256], plan[64];
	uint32_t small, large, count, asked;
	struct fixture f = { 0 };
	struct l1 *l1;

	(void)state;
	assert_int_equal(l1_create(&area, 1, &l1), 0);
	assert_int_equal(l1_class_acquire(l1, 4 * KIB, &small), 0);
	assert_int_equal(l1_class_acquire(l1, 128 * KIB, &large), 0);
	for (uint32_t i = 0; i < 256; i++)
		objects[i] = l1_allocate(l1, small, 0, i);
	/* The run of objects 32 .. 47 has three left, in its middle. */
	for (uint32_t i = 32; i < 48; i++)
		if (i % 5 != 1)
			l1_free(l1, objects[i]);
	assert_int_equal(l1_clear_plan(l1, large, objects[36], may_evict, &f, plan, 64, &count), 0);
	assert_int_equal(count, 3 + 16);
	asked = f.asked;
	assert_int_equal(asked, 19);
	for (uint32_t i = 0; i < count; i++)
		l1_free(l1, plan[i]);
	assert_int_not_equal(l1_allocate(l1, large, 0, 0), 0);
	assert_int_equal(l1_verify(l1), 0);
	l1_destroy(&l1);
	area_release(&area);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plan_makes_room_for_exactly_one_run),
		cmocka_unit_test(the_ends_of_the_area_are_respected),
		cmocka_unit_test(free_pages_nearby_count_as_they_are),
		cmocka_unit_test(objects_that_may_not_go_are_gone_around),
		cmocka_unit_test(no_more_is_looked_at_than_was_allowed),
		cmocka_unit_test(a_run_of_many_objects_goes_as_a_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
