/* The gate with real threads: its action runs while nobody else does anything, as often as it is asked for;
 * complaints are counted. */
#include "app/kvrail-bench/gate.h"

#include <stdio.h>

#include "app/kvrail-bench/generation.h"
#include "base/atomic.h"
#include "base/cmocka_all.h"

#define THREADS 4
#define ROUNDS 200

static struct gate gate;
static uint64_t plain;   /* written by all, but never at once */
static uint64_t actions; /* under the gate's mutex */
static int working;
static int overlap;

static void action(void *context)
{
	(void)context;
	overlap += kvr_load_acquire(&working) != 0;
	plain++;
	actions++;
}

static void *worker(void *context)
{
	uint64_t rounds = (uint64_t)(uintptr_t)context;

	for (uint64_t i = 0; i < rounds; i++) {
		kvr_fetch_add(&working, 1);
		kvr_fetch_sub(&working, 1);
		gate_arrive(&gate, action, NULL);
	}
	gate_leave(&gate, action, NULL);
	return NULL;
}

static void the_action_runs_alone_once_a_round(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	gate_init(&gate, THREADS);
	/* One leaves later than the others: it goes on alone. */
	for (uint64_t i = 0; i < THREADS; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, worker, (void *)(uintptr_t)(i == 0 ? ROUNDS : ROUNDS / 2)),
			0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(actions, ROUNDS);
	assert_int_equal(plain, ROUNDS);
	assert_int_equal(overlap, 0);
	assert_int_equal(gate.threads, 0);
	gate_fini(&gate);
}

static void a_request_to_come_ends_with_the_round(void **state)
{
	(void)state;
	gate_init(&gate, 1);
	assert_false(gate_due(&gate));
	gate_request(&gate);
	assert_true(gate_due(&gate));
	gate_arrive(&gate, NULL, NULL);
	assert_false(gate_due(&gate));
	gate_fini(&gate);
}

static struct generations *generations;

static void *storer(void *context)
{
	uint32_t writer = (uint32_t)(uintptr_t)context;

	for (unsigned i = 0; i < 300; i++) {
		uint64_t chunk = i % 7, floor, generation = generations_begin(generations, writer);
		int failed = generations_stored(generations, chunk, 0, generation);

		generations_floors(generations, &chunk, 1, 0, &floor);
		/* Ours is under way, so nothing of ours can be called old. */
		if (failed || floor >= generation)
			kvr_fetch_add(&overlap, 1);
		generations_end(generations, writer);
	}
	return NULL;
}

static void generations_are_never_called_old_by_stores_beside_them(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	overlap = 0;
	assert_int_equal(generations_create(THREADS, &generations), 0);
	for (uint64_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, storer, (void *)(uintptr_t)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(overlap, 0);
	generations_destroy(&generations);
}

static void too_many_complaints_stop_the_run(void **state)
{
	struct complaints complaints;
	FILE *saved = stderr;

	(void)state;
	stderr = fopen("/dev/null", "w");
	assert_non_null(stderr);
	complaints_init(&complaints);
	for (unsigned i = 0; i < COMPLAINTS_MAX; i++) {
		assert_int_equal(complaints.stop, 0);
		complain(&complaints, "number %u", i);
	}
	fclose(stderr);
	stderr = saved;
	assert_int_equal(complaints.stop, 1);
	assert_int_equal(complaints.count, COMPLAINTS_MAX);
	complaints_fini(&complaints);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_action_runs_alone_once_a_round),
		cmocka_unit_test(a_request_to_come_ends_with_the_round),
		cmocka_unit_test(generations_are_never_called_old_by_stores_beside_them),
		cmocka_unit_test(too_many_complaints_stop_the_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
