/* The simulated driver against the suite for all drivers, in worlds of several kinds. */
#include <stdio.h>

#include "verbs/conformance_sim.h"

struct kind {
	const char *name;
	uint64_t first_seed, seeds;
	struct sim_options options;
};

static const struct kind kinds[] = {
	{ "gentle", 1, 6,
		{ .delay_min_ns = 1000,
			.delay_max_ns = 5000,
			.completion_max_ns = 1000,
			.pieces_max = 4,
			.rnr_retries = 7 } },
	{ "instant", 1, 1, { .pieces_max = 1, .rnr_retries = 7 } },
	{ "wild", 100, 8,
		{ .delay_min_ns = 1,
			.delay_max_ns = 200000,
			.completion_max_ns = 300000,
			.pieces_max = 64,
			.rnr_retries = 7 } },
	{ "narrow", 200, 4,
		{ .delay_min_ns = 500,
			.delay_max_ns = 700,
			.completion_max_ns = 10,
			.bytes_per_us = 1000,
			.pieces_max = 9,
			.rnr_retries = 7 } },
};

int main(void)
{
	int failed = 0;

	for (size_t i = 0; i < KVR_COUNT_OF(kinds); i++) {
		for (uint64_t n = 0; n < kinds[i].seeds; n++) {
			struct sim_weather weather = { .seed = kinds[i].first_seed + n, .options = kinds[i].options };
			struct conformance_harness harness;
			char name[64];

			snprintf(name, sizeof(name), "sim, %s, seed %llu", kinds[i].name,
				(unsigned long long)weather.seed);
			sim_harness(&harness, name, &weather);
			failed += conformance_run(&harness);
		}
	}
	return failed ? 1 : 0;
}
