#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "base/random.h"
#include "verbs/sim/sim.h"

#define EVENTS 400u

struct bench {
	struct sim_due due;
	struct sim_event events[EVENTS];
	bool waits[EVENTS];
	uint64_t now_ns, sequence;
	struct random random;
};

static int setup(void **state)
{
	struct bench *bench = calloc(1, sizeof(*bench));

	assert_non_null(bench);
	bench->now_ns = 123456789;
	random_init(&bench->random, 7);
	assert_int_equal(sim_due_reserve(&bench->due, EVENTS), 0);
	*state = bench;
	return 0;
}

static int teardown(void **state)
{
	struct bench *bench = *state;

	sim_due_fini(&bench->due);
	free(bench);
	return 0;
}

static void push(struct bench *bench, uint32_t index, uint64_t at_ns)
{
	bench->events[index].at_ns = at_ns;
	bench->events[index].sequence = bench->sequence++;
	bench->waits[index] = true;
	sim_due_push(&bench->due, &bench->events[index], bench->now_ns);
}

/* The first one by (time, sequence), looked for among all. */
static uint32_t first_of(const struct bench *bench)
{
	uint32_t first = EVENTS;

	for (uint32_t i = 0; i < EVENTS; i++) {
		const struct sim_event *event = &bench->events[i];

		if (bench->waits[i] &&
			(first == EVENTS || event->at_ns < bench->events[first].at_ns ||
				(event->at_ns == bench->events[first].at_ns &&
					event->sequence < bench->events[first].sequence)))
			first = i;
	}
	return first;
}

/* Takes it when it is due by then, and checks that it is the right one. */
static bool take(struct bench *bench, uint64_t until_ns)
{
	uint32_t first = first_of(bench);
	struct sim_event *event = sim_due_take(&bench->due, bench->now_ns, until_ns);

	if (first == EVENTS || bench->events[first].at_ns > until_ns) {
		assert_null(event);
		return false;
	}
	assert_ptr_equal(event, &bench->events[first]);
	bench->waits[first] = false;
	bench->now_ns = kvr_max_u64(bench->now_ns, event->at_ns);
	return true;
}

/* Soon, at the same time as others, at the edges of the wheel, far away, and now and then before now: what waited on a stalled link. */
static uint64_t draw_time(struct bench *bench)
{
	uint64_t round_ns = (uint64_t)SIM_SLOTS << SIM_SLOT_SHIFT;

	switch (random_below(&bench->random, 6)) {
	case 0:
		return bench->now_ns + random_below(&bench->random, 3);
	case 1:
		return bench->now_ns + round_ns - 16 + random_below(&bench->random, 32);
	case 2:
		return bench->now_ns + random_below(&bench->random, 40 * round_ns);
	case 3:
		return bench->now_ns - random_below(&bench->random, 50000);
	default:
		return bench->now_ns + random_below(&bench->random, 6000);
	}
}

static void events_come_in_the_order_of_time_and_then_of_scheduling(void **state)
{
	struct bench *bench = *state;

	for (uint32_t round = 0; round < 100000; round++) {
		uint32_t index = (uint32_t)random_below(&bench->random, EVENTS);
		uint64_t until_ns = bench->now_ns + random_below(&bench->random, 3000);

		if (!bench->waits[index]) {
			push(bench, index, draw_time(bench));
		} else if (random_chance(&bench->random, 1, 2)) {
			assert_int_equal(
				sim_due_next_ns(&bench->due, bench->now_ns), bench->events[first_of(bench)].at_ns);
			if (!take(bench, until_ns))
				bench->now_ns = until_ns;
		}
	}
	while (take(bench, UINT64_MAX))
		;
	assert_true(sim_due_next_ns(&bench->due, bench->now_ns) == UINT64_MAX);
}

static void a_key_that_was_removed_is_found_no_more(void **state)
{
	struct sim_table table;
	int a, b;

	(void)state;
	memset(&table, 0, sizeof(table));
	assert_null(sim_table_find(&table, 8));
	assert_int_equal(sim_table_add(&table, 8, &a), 0);
	assert_int_equal(sim_table_add(&table, 16, &b), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_ptr_equal(sim_table_find(&table, 8), &a);
		assert_ptr_equal(sim_table_find(&table, 16), &b);
	}
	sim_table_remove(&table, 16);
	assert_null(sim_table_find(&table, 16));
	assert_ptr_equal(sim_table_find(&table, 8), &a);
	sim_table_remove(&table, 8);
	assert_null(sim_table_find(&table, 8));
	assert_int_equal(sim_table_add(&table, 8, &b), 0);
	assert_ptr_equal(sim_table_find(&table, 8), &b);
	sim_table_fini(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			events_come_in_the_order_of_time_and_then_of_scheduling, setup, teardown),
		cmocka_unit_test(a_key_that_was_removed_is_found_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
