#include "base/random.h"
#include "base/ring.h"

#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"

static struct ring_message numbered(uint64_t number)
{
	struct ring_message message = { .kind = (uint32_t)number, .count = (uint32_t)~number };

	for (size_t i = 0; i < KVR_COUNT_OF(message.word); i++)
		message.word[i] = random_mix(number * 8 + i);
	return message;
}

static void assert_numbered(const struct ring_message *message, uint64_t number)
{
	struct ring_message expected = numbered(number);

	assert_memory_equal(message, &expected, sizeof(expected));
}

static void an_empty_ring_has_nothing_to_pop(void **state)
{
	struct ring ring;
	struct ring_message message = numbered(7);

	(void)state;
	assert_int_equal(ring_init(&ring, 4), 0);
	assert_true(ring_empty(&ring));
	assert_null(ring_pop_begin(&ring));
	assert_false(ring_pop(&ring, &message));
	assert_numbered(&message, 7);
	ring_fini(&ring);
}

static void full_ring_refuses_a_push(void **state)
{
	struct ring ring;
	struct ring_message message;

	(void)state;
	assert_int_equal(ring_init(&ring, 4), 0);
	for (uint64_t i = 0; i < 4; i++) {
		assert_int_equal(ring_space(&ring), 4 - i);
		message = numbered(i);
		assert_true(ring_push(&ring, &message));
	}
	assert_int_equal(ring_space(&ring), 0);
	message = numbered(99);
	assert_false(ring_push(&ring, &message));
	assert_null(ring_push_begin(&ring));
	for (uint64_t i = 0; i < 4; i++) {
		assert_true(ring_pop(&ring, &message));
		assert_numbered(&message, i);
	}
	assert_true(ring_empty(&ring));
	ring_fini(&ring);
}

static void a_slot_is_visible_only_after_push_end(void **state)
{
	struct ring ring;
	struct ring_message *slot;

	(void)state;
	assert_int_equal(ring_init(&ring, 2), 0);
	slot = ring_push_begin(&ring);
	assert_non_null(slot);
	*slot = numbered(1);
	assert_true(ring_empty(&ring));
	ring_push_end(&ring);
	assert_false(ring_empty(&ring));
	assert_numbered(ring_pop_begin(&ring), 1);
	/* Still there until pop_end, and its slot still taken. */
	assert_numbered(ring_pop_begin(&ring), 1);
	assert_int_equal(ring_space(&ring), 1);
	ring_pop_end(&ring);
	assert_int_equal(ring_space(&ring), 2);
	ring_fini(&ring);
}

static void capacity_is_rounded_up_to_a_power_of_two(void **state)
{
	static const struct {
		uint32_t asked;
		uint64_t got;
	} cases[] = { { 2, 2 }, { 3, 4 }, { 4, 4 }, { 1000, 1024 }, { RING_CAPACITY_MAX, RING_CAPACITY_MAX } };
	struct ring ring;

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		assert_int_equal(ring_init(&ring, cases[i].asked), 0);
		assert_int_equal(ring_space(&ring), cases[i].got);
		assert_int_equal((uintptr_t)ring.slots % KVR_CACHE_LINE, 0);
		ring_fini(&ring);
	}
}

static void wrong_capacities_are_refused(void **state)
{
	static const uint32_t wrong[] = { 0, 1, RING_CAPACITY_MAX + 1, UINT32_MAX };
	struct ring ring;

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(wrong); i++) {
		assert_int_equal(ring_init(&ring, wrong[i]), -EINVAL);
		assert_null(ring.slots);
		ring_fini(&ring);
	}
}

static void fini_of_a_zeroed_ring_is_harmless(void **state)
{
	struct ring ring;

	(void)state;
	memset(&ring, 0, sizeof(ring));
	ring_fini(&ring);
	ring_fini(&ring);
	assert_null(ring.slots);
}

/* A random program against a plain counter pair, also through the point where the free-running indices overflow. */
static void a_random_program_keeps_order_and_count_also_when_the_indices_overflow(void **state)
{
	struct random random;
	struct ring ring;
	struct ring_message message;
	uint64_t pushed = 0, popped = 0;

	(void)state;
	random_init(&random, 1);
	assert_int_equal(ring_init(&ring, 8), 0);
	ring.head = ring.tail = ring.head_copy = ring.tail_copy = UINT64_MAX - 500;
	for (int step = 0; step < 20000; step++) {
		if (random_chance(&random, 1, 2)) {
			message = numbered(pushed);
			assert_int_equal(ring_push(&ring, &message), pushed - popped < 8);
			pushed += pushed - popped < 8;
		} else {
			assert_int_equal(ring_pop(&ring, &message), pushed != popped);
			if (pushed != popped)
				assert_numbered(&message, popped++);
		}
		assert_int_equal(ring_space(&ring), 8 - (pushed - popped));
	}
	assert_true(pushed > 5000);
	ring_fini(&ring);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_ring_has_nothing_to_pop),
		cmocka_unit_test(full_ring_refuses_a_push),
		cmocka_unit_test(a_slot_is_visible_only_after_push_end),
		cmocka_unit_test(capacity_is_rounded_up_to_a_power_of_two),
		cmocka_unit_test(wrong_capacities_are_refused),
		cmocka_unit_test(fini_of_a_zeroed_ring_is_harmless),
		cmocka_unit_test(a_random_program_keeps_order_and_count_also_when_the_indices_overflow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
