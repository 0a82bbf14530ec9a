/*
 * main.c - kvrail-sim: runs worlds, and says in its last line what came of it. Exit codes: 0 nothing was violated, 1 something was, or
 * the machine could not hold the world, 2 wrong usage.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-sim/options.h"
#include "app/kvrail-sim/world.h"
#include "base/clock.h"

#define NUMBERS_SHOWN 100u /* of a shrunk program's steps */

struct total {
	uint64_t worlds, steps, seconds_ns;
	struct world_report sum;
};

static void add_report(struct total *total, const struct world_report *report)
{
	struct world_report *sum = &total->sum;

	total->worlds++;
	total->steps += report->steps_run;
	sum->hash ^= report->hash;
	sum->requests += report->requests;
	sum->errors += report->errors;
	sum->turns += report->turns;
	sum->virtual_ns += report->virtual_ns;
	sum->stored_chunks += report->stored_chunks;
	sum->delivered_chunks += report->delivered_chunks;
	sum->missing_chunks += report->missing_chunks;
	sum->evicted_chunks += report->evicted_chunks;
	sum->checked_bytes += report->checked_bytes;
	sum->faults += report->faults;
	sum->restarts += report->restarts;
	sum->reconnects += report->reconnects;
	sum->l2_stored += report->l2_stored;
	sum->l2_loaded += report->l2_loaded;
	sum->l2_corrupt += report->l2_corrupt;
	sum->l1_corrupt += report->l1_corrupt;
	sum->l2_outages += report->l2_outages;
}

static void print_summary(const struct sim_settings *settings, const struct total *total, bool violated)
{
	double seconds = (double)total->seconds_ns / (double)KVR_SECOND;
	const struct world_report *sum = &total->sum;
	const char *format = settings->json
		? "{\"seed\": %" PRIu64 ", \"worlds\": %" PRIu64 ", \"steps\": %" PRIu64 ", \"faults\": \"%s\", "
		  "\"violations\": %u, \"requests\": %" PRIu64 ", \"errors\": %" PRIu64 ", \"stored_chunks\": %" PRIu64
		  ", \"delivered_chunks\": %" PRIu64 ", \"missing_chunks\": %" PRIu64 ", \"evicted_chunks\": %" PRIu64
		  ", \"l2_stored\": %" PRIu64 ", \"l2_loaded\": %" PRIu64 ", \"l2_corrupt\": %" PRIu64
		  ", \"l1_corrupt\": %" PRIu64 ", \"l2_outages\": %" PRIu64 ", \"troubles\": %" PRIu64
		  ", \"restarts\": %" PRIu64 ", \"connections\": %" PRIu64 ", \"checked_bytes\": %" PRIu64
		  ", \"turns\": %" PRIu64
		  ", \"virtual_seconds\": %.3f, \"seconds\": %.3f, \"requests_per_second\": %.0f, \"hash\": \"%016" PRIx64
		  "\"}\n"
		: "sim: seed %" PRIu64 ", %" PRIu64 " worlds, %" PRIu64 " steps, faults %s, %u violations; %" PRIu64
		  " requests (%" PRIu64 " errors), chunks %" PRIu64 " stored %" PRIu64 " delivered %" PRIu64
		  " missing %" PRIu64 " evicted, objects to L2 %" PRIu64 " from it %" PRIu64 " changed there %" PRIu64
		  " and before %" PRIu64 " (%" PRIu64 " outages), %" PRIu64 " troubles, %" PRIu64 " restarts, %" PRIu64
		  " connections, %" PRIu64 " bytes checked, %" PRIu64
		  " turns, %.3f virtual s in %.3f s, %.0f requests/s, hash %016" PRIx64 "\n";

	printf(format, settings->seed, total->worlds, total->steps, settings->faults, violated, sum->requests,
		sum->errors, sum->stored_chunks, sum->delivered_chunks, sum->missing_chunks, sum->evicted_chunks,
		sum->l2_stored, sum->l2_loaded, sum->l2_corrupt, sum->l1_corrupt, sum->l2_outages, sum->faults,
		sum->restarts, sum->reconnects, sum->checked_bytes, sum->turns,
		(double)sum->virtual_ns / (double)KVR_SECOND, seconds,
		seconds > 0 ? (double)sum->requests / seconds : 0.0, sum->hash);
}

static void print_shrunk(const struct sim_settings *settings, const struct world_options *options)
{
	struct world_options shorter = *options;
	struct world_report report;
	uint32_t *numbers, count;

	if (world_shrink(options, (unsigned)(settings->shrink_ns / KVR_SECOND), &numbers, &count))
		return;
	shorter.numbers = numbers;
	shorter.steps = count;
	shorter.trace = NULL;
	fprintf(stderr, "shrunk program, %" PRIu32 " steps of seed %" PRIu64 ":", count, options->seed);
	for (uint32_t i = 0; i < count && i < NUMBERS_SHOWN; i++)
		fprintf(stderr, " %" PRIu32, numbers[i]);
	fprintf(stderr, "%s\nits transcript:\n", count > NUMBERS_SHOWN ? " ..." : "");
	if (!world_run(&shorter, &report, stderr) && report.violated)
		fprintf(stderr, "violated: %s\n", report.text);
	free(numbers);
}

/* 0: nothing violated; 1: something was; or a negative errno. */
static int run_world(const struct sim_settings *settings, uint64_t seed, struct total *total)
{
	struct world_options options = {
		.seed = seed,
		.steps = settings->steps,
		.faults = settings->fault_bits,
		.servers = settings->servers,
		.rails = settings->rails,
		.trace = settings->trace ? stderr : NULL,
	};
	uint64_t start_ns = clock_now_ns();
	struct world_report report;
	int error = world_run(&options, &report, settings->trace ? NULL : stderr);

	total->seconds_ns += clock_now_ns() - start_ns;
	if (error) {
		fprintf(stderr, "kvrail-sim: seed %" PRIu64 ": %s\n", seed, strerror(-error));
		return error;
	}
	add_report(total, &report);
	if (!report.violated)
		return 0;
	fprintf(stderr, "VIOLATED with seed %" PRIu64 " in step %" PRIu32 ": %s\n", seed, report.steps_run,
		report.text);
	if (settings->shrink_ns) {
		options.steps = report.steps_run;
		options.trace = NULL;
		print_shrunk(settings, &options);
	}
	return 1;
}

int main(int argc, char **argv)
{
	struct sim_settings settings;
	struct total total;
	uint64_t until_ns, seed;
	int result;

	memset(&settings, 0, sizeof(settings));
	memset(&total, 0, sizeof(total));
	result = program_begin(&sim_option_table, &argc, argv, &settings, sim_options_check);
	if (result == PROGRAM_RUN && argc > 1) {
		fprintf(stderr, "kvrail-sim: '%s' is no option; see --help\n", argv[1]);
		result = PROGRAM_USAGE;
	}
	if (result != PROGRAM_RUN) {
		option_fini(&sim_option_table, &settings);
		return result;
	}
	until_ns = clock_now_ns() + settings.seconds_ns;
	seed = settings.seed;
	do {
		result = run_world(&settings, seed++, &total);
	} while (!result && clock_now_ns() < until_ns);
	print_summary(&settings, &total, result == 1);
	option_fini(&sim_option_table, &settings);
	return result ? PROGRAM_FAILED : PROGRAM_GOOD;
}
