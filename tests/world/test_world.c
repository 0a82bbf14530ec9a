/* test_world.c - kvrail-sim's worlds: that they pass, that they are a function of their seed, and that they notice what is wrong. */
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-sim/world.h"
#include "app/kvrail-sim/world_private.h"
#include "base/cmocka_all.h"
#include "tier/checksum.h"

static struct world_report run(uint64_t seed, uint32_t steps, uint32_t faults)
{
	struct world_options options = { .seed = seed, .steps = steps, .faults = faults };
	struct world_report report;

	assert_int_equal(world_run(&options, &report, stderr), 0);
	if (report.violated)
		print_error("seed %llu, step %u: %s\n", (unsigned long long)seed, report.steps_run, report.text);
	return report;
}

static void peaceful_worlds_keep_their_promises(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct world_report report = run(seed, 800, 0);

		assert_false(report.violated);
		assert_true(report.requests > 100);
		assert_true(report.checked_bytes > 0);
	}
}

static void worlds_with_all_faults_keep_their_promises(void **state)
{
	uint64_t faults = 0, evicted = 0, restarts = 0, delivered = 0;

	(void)state;
	for (uint64_t seed = 100; seed < 110; seed++) {
		struct world_report report = run(seed, 800, WORLD_FAULTS_ALL);

		assert_false(report.violated);
		faults += report.faults;
		evicted += report.evicted_chunks;
		restarts += report.restarts;
		delivered += report.delivered_chunks;
	}
	assert_true(faults > 0 && evicted > 0 && restarts > 0 && delivered > 0);
}

static void worlds_with_two_rails_keep_their_promises(void **state)
{
	struct world_report report;

	(void)state;
	for (uint64_t seed = 900; seed < 906; seed++) {
		struct world_options options = { .seed = seed, .steps = 1200, .faults = WORLD_FAULTS_ALL, .rails = 2 };

		assert_int_equal(world_run(&options, &report, stderr), 0);
		assert_false(report.violated);
		assert_true(report.requests > 100);
	}
}

static void worlds_of_several_servers_keep_their_promises(void **state)
{
	uint64_t restarts = 0, reconnects = 0;

	(void)state;
	for (uint32_t servers = 2; servers <= 4; servers++) {
		struct world_options options = {
			.seed = 700 + servers, .steps = 1200, .faults = WORLD_FAULTS_ALL, .servers = servers
		};
		struct world_report report;

		assert_int_equal(world_run(&options, &report, stderr), 0);
		assert_false(report.violated);
		restarts += report.restarts;
		reconnects += report.reconnects;
	}
	assert_true(restarts > 0 && reconnects > 0);
}

static void each_fault_alone_is_survived(void **state)
{
	(void)state;
	for (uint32_t fault = 1; fault < WORLD_FAULTS_ALL; fault <<= 1)
		assert_false(run(200 + fault, 300, fault).violated);
}

/* That they are well again in the end is one of the world's own checks (pitfalls B08). */
static void places_of_l2_get_sick_and_well_again(void **state)
{
	uint64_t outages = 0;

	(void)state;
	for (uint64_t seed = 500; seed < 520 && outages < 4; seed++) {
		struct world_report report = run(seed, 600, WORLD_L2 | WORLD_PRESSURE);

		assert_false(report.violated);
		outages += report.l2_outages;
	}
	assert_true(outages >= 4);
}

/* The world looks at each byte that comes back (pitfalls H05). */
static void bytes_that_change_in_l1_are_found_before_they_are_written(void **state)
{
	uint64_t found = 0;

	(void)state;
	if (!checksum_available())
		skip();
	for (uint64_t seed = 600; seed < 640 && found < 4; seed++) {
		struct world_report report = run(seed, 600, WORLD_L2 | WORLD_PRESSURE);

		assert_false(report.violated);
		found += report.l1_corrupt;
	}
	assert_true(found >= 4);
}

static void the_same_seed_gives_the_same_transcript(void **state)
{
	(void)state;
	for (uint64_t seed = 300; seed < 303; seed++) {
		struct world_report once = run(seed, 400, WORLD_FAULTS_ALL), again = run(seed, 400, WORLD_FAULTS_ALL);

		assert_int_equal(once.hash, again.hash);
		assert_int_equal(once.turns, again.turns);
		assert_int_equal(once.checked_bytes, again.checked_bytes);
	}
	assert_int_not_equal(run(303, 400, WORLD_FAULTS_ALL).hash, run(304, 400, WORLD_FAULTS_ALL).hash);
}

static void names_of_faults_are_read(void **state)
{
	uint32_t faults = 77;

	(void)state;
	assert_int_equal(world_parse_faults("all", &faults), 0);
	assert_int_equal(faults, WORLD_FAULTS_ALL);
	assert_int_equal(world_parse_faults("none", &faults), 0);
	assert_int_equal(faults, 0);
	assert_int_equal(world_parse_faults("crash,time", &faults), 0);
	assert_int_equal(faults, WORLD_CRASH | WORLD_TIME);
	assert_int_not_equal(world_parse_faults("crash,tim", &faults), 0);
	assert_int_not_equal(world_parse_faults("crash,", &faults), 0);
	assert_int_not_equal(world_parse_faults("", &faults), 0);
}

/* ---- the checks notice ------------------------------------------------------------------------------------------ */

/* A world in which something is done wrong on purpose. */
static struct world_report sabotage(
	uint64_t seed, void (*before_step)(struct world *world, uint32_t step, void *context))
{
	struct world_options options = { .seed = seed, .steps = 600, .before_step = before_step };
	struct world_report report;

	assert_int_equal(world_run(&options, &report, NULL), 0);
	return report;
}

static void flip_l1(struct world *world, uint32_t step, void *context)
{
	(void)context;
	for (uint64_t at = 0; step == 300 && at < world->hosts[0].areas[0].bytes; at += 64)
		((uint8_t *)world->hosts[0].areas[0].address)[at + 11] ^= 1;
}

static void bytes_that_change_in_l1_are_noticed(void **state)
{
	struct world_report report;

	(void)state;
	report = sabotage(1, flip_l1);
	assert_true(report.violated);
	assert_non_null(strstr(report.text, "RETRIEVE delivered"));
}

/* As if a RETRIEVE of the second server were answered out of the first one's memory. */
static void answer_for_another(struct world *world, uint32_t step, void *context)
{
	(void)context;
	if (step >= 300 && world->hosts[0].server && world->hosts[1].server)
		memcpy(world->hosts[1].areas[0].address, world->hosts[0].areas[0].address,
			world->hosts[0].areas[0].bytes);
}

static void bytes_of_another_server_are_noticed(void **state)
{
	struct world_options options = { .seed = 1, .steps = 900, .servers = 2, .before_step = answer_for_another };
	struct world_report report;

	(void)state;
	assert_int_equal(world_run(&options, &report, NULL), 0);
	assert_true(report.violated);
	assert_non_null(strstr(report.text, "RETRIEVE delivered"));
}

static void scribble(struct world *world, uint32_t step, void *context)
{
	(void)context;
	for (uint32_t i = 0; step == 200 && i < world->process_count; i++) {
		struct process *process = &world->processes[i];

		if (process->pool && process->free_count > 0)
			*blocks_at(process, 0, process->free_blocks[0]) = 0;
	}
}

static void a_late_write_into_free_blocks_is_noticed(void **state)
{
	struct world_report report;

	(void)state;
	report = sabotage(2, scribble);
	assert_true(report.violated);
	assert_non_null(strstr(report.text, "while it was nobody's"));
}

static bool every_model(void *context, uint32_t model)
{
	(void)context;
	(void)model;
	return true;
}

/* Chunks that nothing holds go, and nobody is told. */
static void evict_quietly(struct world *world, uint32_t step, void *context)
{
	uint64_t dropped = 0, kept = 0;
	uint32_t cursor = 0;

	(void)context;
	(void)step;
	cache_clear_step(server_cache(world->hosts[0].server), every_model, NULL, &cursor, 64, &dropped, &kept);
	world->hosts[0].taken_away += dropped;
}

static void chunks_that_vanish_are_noticed(void **state)
{
	struct world_report report;

	(void)state;
	report = sabotage(3, evict_quietly);
	assert_true(report.violated);
	/* By a LOOKUP or a RETRIEVE, whichever came first. */
	assert_true(strstr(report.text, "for certain") || strstr(report.text, "nothing took away"));
}

static void a_violation_is_told_with_a_shorter_program(void **state)
{
	struct world_options options = { .seed = 1, .steps = 600, .before_step = flip_l1 };
	struct world_report report;
	uint32_t *numbers, count;

	(void)state;
	assert_int_equal(world_shrink(&options, 5, &numbers, &count), 0);
	assert_true(count < 600);
	options.numbers = numbers;
	options.steps = count;
	assert_int_equal(world_run(&options, &report, NULL), 0);
	assert_true(report.violated);
	free(numbers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(peaceful_worlds_keep_their_promises),
		cmocka_unit_test(worlds_with_all_faults_keep_their_promises),
		cmocka_unit_test(worlds_with_two_rails_keep_their_promises),
		cmocka_unit_test(worlds_of_several_servers_keep_their_promises),
		cmocka_unit_test(each_fault_alone_is_survived),
		cmocka_unit_test(places_of_l2_get_sick_and_well_again),
		cmocka_unit_test(bytes_that_change_in_l1_are_found_before_they_are_written),
		cmocka_unit_test(the_same_seed_gives_the_same_transcript),
		cmocka_unit_test(names_of_faults_are_read),
		cmocka_unit_test(bytes_that_change_in_l1_are_noticed),
		cmocka_unit_test(bytes_of_another_server_are_noticed),
		cmocka_unit_test(a_late_write_into_free_blocks_is_noticed),
		cmocka_unit_test(chunks_that_vanish_are_noticed),
		cmocka_unit_test(a_violation_is_told_with_a_shorter_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
