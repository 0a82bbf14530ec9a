/*
 * L1 under seeded random programs: several areas, classes that come and go, objects of many sizes, plans that are
 * carried out. A model knows each object's address range, size and owner.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "tier/area.h"
#include "tier/l1_internal.h"

#define OBJECTS_MAX 4000
#define CLASSES 6
#define AREAS 3

struct object {
	l1_ref ref;
	uint64_t bytes;
	uint32_t owner;
	uint32_t area;
	bool kept; /* may not be evicted by a plan */
};

struct world {
	struct random random;
	struct l1_area areas[AREAS];
	struct l1 *l1;
	uint64_t class_bytes[CLASSES];
	uint32_t classes[CLASSES];
	bool acquired[CLASSES];
	struct object objects[OBJECTS_MAX];
	uint32_t count;
	uint64_t bytes;
	uint32_t next_owner;
	uint32_t full, plans;
};

static uint32_t pick(struct world *world, uint32_t bound)
{
	return (uint32_t)random_below(&world->random, bound);
}

static void acquire(struct world *world, uint32_t i)
{
	static const uint64_t sizes[] = { 100, 4096, 4097, 30000, 65536, 70 << 10, 129 << 10, 1 << 20, 1153433,
		(3 << 20) + 1 };

	if (world->acquired[i])
		return;
	world->class_bytes[i] = sizes[pick(world, sizeof(sizes) / sizeof(sizes[0]))];
	assert_int_equal(l1_class_acquire(world->l1, world->class_bytes[i], &world->classes[i]), 0);
	assert_int_equal(l1_class_bytes(world->l1, world->classes[i]), world->class_bytes[i]);
	world->acquired[i] = true;
}

static void release(struct world *world, uint32_t i)
{
	if (world->acquired[i])
		l1_class_release(world->l1, world->classes[i]);
	world->acquired[i] = false;
}

static void check_object(const struct world *world, const struct object *object)
{
	const struct l1_area *area = &world->areas[object->area];
	const char *address = l1_address(world->l1, object->ref);

	assert_true(address >= (char *)area->address && address + object->bytes <= (char *)area->address + area->bytes);
	assert_int_equal(l1_bytes(world->l1, object->ref), object->bytes);
	assert_int_equal(l1_owner(world->l1, object->ref), object->owner);
	assert_int_equal(l1_area_of(world->l1, object->ref), object->area);
}

static int by_address(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a;
	uint64_t right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

static void check_all(const struct world *world)
{
	static uint64_t ranges[OBJECTS_MAX][2];
	struct l1_stats stats;

	assert_int_equal(l1_verify(world->l1), 0);
	l1_get_stats(world->l1, &stats);
	assert_int_equal(stats.objects, world->count);
	assert_int_equal(stats.used_bytes, world->bytes);
	assert_int_equal(stats.used_bytes + stats.rounding_bytes + stats.free_page_bytes + stats.free_slot_bytes,
		stats.total_bytes);
	for (uint32_t i = 0; i < world->count; i++) {
		check_object(world, &world->objects[i]);
		ranges[i][0] = (uintptr_t)l1_address(world->l1, world->objects[i].ref);
		ranges[i][1] = ranges[i][0] + world->objects[i].bytes;
	}
	qsort(ranges, world->count, sizeof(ranges[0]), by_address);
	for (uint32_t i = 1; i < world->count; i++)
		assert_true(ranges[i - 1][1] <= ranges[i][0]);
}

static void forget(struct world *world, uint32_t i)
{
	l1_free(world->l1, world->objects[i].ref);
	world->bytes -= world->objects[i].bytes;
	world->objects[i] = world->objects[--world->count];
}

static bool may_evict(void *context, uint32_t owner, l1_ref object)
{
	struct world *world = context;

	for (uint32_t i = 0; i < world->count; i++) {
		if (world->objects[i].ref != object)
			continue;
		assert_int_equal(world->objects[i].owner, owner);
		return !world->objects[i].kept;
	}
	fail_msg("the plan asked about an object that does not exist");
	return false;
}

static void free_ref(struct world *world, l1_ref ref)
{
	for (uint32_t i = 0; i < world->count; i++) {
		if (world->objects[i].ref != ref)
			continue;
		forget(world, i);
		return;
	}
	fail_msg("the plan names an object twice");
}

static void step_plan(struct world *world)
{
	static l1_ref plan[512];
	uint32_t class_ = pick(world, CLASSES);
	uint32_t count;

	if (world->count == 0)
		return;
	acquire(world, class_);
	if (l1_clear_plan(world->l1, world->classes[class_], world->objects[pick(world, world->count)].ref, may_evict,
		    world, plan, 512, &count))
		return;
	assert_true(count > 0);
	for (uint32_t i = 0; i < count; i++)
		free_ref(world, plan[i]);
	assert_true(l1_class_room(world->l1, world->classes[class_]) > 0);
	world->plans++;
}

static void step_allocate(struct world *world)
{
	uint32_t class_ = pick(world, CLASSES);
	struct object *object = &world->objects[world->count];

	if (world->count == OBJECTS_MAX)
		return;
	acquire(world, class_);
	object->owner = world->next_owner++;
	object->bytes = world->class_bytes[class_];
	object->kept = pick(world, 30) == 0;
	object->ref = l1_allocate(world->l1, world->classes[class_], pick(world, AREAS + 1), object->owner);
	assert_true(object->ref || l1_class_room(world->l1, world->classes[class_]) == 0);
	if (!object->ref) {
		world->full++;
		return;
	}
	object->area = l1_area_of(world->l1, object->ref);
	world->bytes += object->bytes;
	world->count++;
	check_object(world, object);
}

static void step_free(struct world *world)
{
	if (world->count > 0)
		forget(world, pick(world, world->count));
}

static void step_owner(struct world *world)
{
	uint32_t i = world->count > 0 ? pick(world, world->count) : 0;

	if (world->count == 0)
		return;
	world->objects[i].owner = world->next_owner++;
	l1_set_owner(world->l1, world->objects[i].ref, world->objects[i].owner);
}

static void run(uint64_t seed)
{
	static struct world world;
	struct l1_stats stats;

	print_message("seed %lu\n", (unsigned long)seed);
	memset(&world, 0, sizeof(world));
	random_init(&world.random, seed);
	for (uint32_t i = 0; i < AREAS; i++)
		world.areas[i] = area_reserve((4 << 20) + pick(&world, 30) * L1_PAGE_BYTES + 4096);
	assert_int_equal(l1_create(world.areas, AREAS, &world.l1), 0);
	for (uint32_t i = 0; i < 30000; i++) {
		/* Phases of growing and of shrinking. */
		bool growing = i / 1000 % 2 == 0;

		switch (pick(&world, 12)) {
		case 0:
			step_owner(&world);
			break;
		case 1:
			if (pick(&world, 20) == 0)
				step_plan(&world);
			break;
		case 2:
			if (pick(&world, 50) == 0)
				release(&world, pick(&world, CLASSES));
			break;
		default:
			if (pick(&world, 10) < (growing ? 7u : 3u))
				step_allocate(&world);
			else
				step_free(&world);
		}
		if (i % 200 == 0)
			check_all(&world);
	}
	assert_true(world.full > 50 && world.plans > 20);
	while (world.count > 0)
		step_free(&world);
	for (uint32_t i = 0; i < CLASSES; i++)
		release(&world, i);
	check_all(&world);
	l1_get_stats(world.l1, &stats);
	assert_int_equal(stats.free_page_bytes, stats.total_bytes);
	assert_int_equal(stats.classes, 0);
	l1_destroy(&world.l1);
	for (uint32_t i = 0; i < AREAS; i++)
		area_release(&world.areas[i]);
}

static void random_programs_keep_objects_apart_and_sums_right(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++)
		run(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_programs_keep_objects_apart_and_sums_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
