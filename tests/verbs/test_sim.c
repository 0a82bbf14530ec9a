/* The simulated driver against the suite for all drivers, in several worlds. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "verbs/conformance.h"
#include "verbs/sim/fabric.h"

struct weather {
	const char *name;
	uint64_t first_seed, seeds;
	struct sim_options options;
};

struct sim_world {
	struct sim_fabric *fabric;
};

struct run {
	const struct weather *weather;
	uint64_t seed;
};

static int open_world(struct conformance_world *world)
{
	const struct run *run = world->harness->options;
	struct verbs_open options = { 0 };
	struct sim_world *own = calloc(1, sizeof(*own));
	int error;

	if (!own)
		return -ENOMEM;
	error = sim_fabric_create(run->seed, &run->weather->options, &own->fabric);
	if (!error) {
		options.fabric = own->fabric;
		options.server = true;
		error = verbs_sim.open(&options, &world->server);
	}
	if (!error) {
		options.server = false;
		error = verbs_sim.open(&options, &world->client);
	}
	if (error) {
		sim_fabric_destroy(&own->fabric);
		free(own);
		return error;
	}
	world->own = own;
	return 0;
}

static void close_world(struct conformance_world *world)
{
	struct sim_world *own = world->own;
	struct sim_counters counters;

	verbs_sim.close(world->server);
	verbs_sim.close(world->client);
	sim_fabric_counters(own->fabric, &counters);
	/* The suite keeps the contract, so the simulator may not say otherwise. */
	if (counters.misuses > 0 || counters.cq_overflows > 0 ||
		counters.posted < counters.completed + counters.failed + counters.flushed) {
		fprintf(stderr, "misuses %llu, overflows %llu\n", (unsigned long long)counters.misuses,
			(unsigned long long)counters.cq_overflows);
		abort();
	}
	sim_fabric_destroy(&own->fabric);
	free(own);
}

static bool step_world(struct conformance_world *world)
{
	struct sim_world *own = world->own;
	uint64_t next_ns = sim_fabric_next_ns(own->fabric);

	if (next_ns == UINT64_MAX)
		return false;
	sim_fabric_step(own->fabric, next_ns, 1);
	return sim_fabric_next_ns(own->fabric) != UINT64_MAX;
}

static const struct weather weathers[] = {
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

static int run_weather(const struct weather *weather)
{
	int failed = 0;

	for (uint64_t seed = weather->first_seed; seed < weather->first_seed + weather->seeds; seed++) {
		struct run run = { .weather = weather, .seed = seed };
		char name[64];
		struct conformance_harness harness = {
			.name = name,
			.driver = &verbs_sim,
			.options = &run,
			.open = open_world,
			.close = close_world,
			.step = step_world,
			.patience_rounds = 1000000,
			.features = CONFORMANCE_NOTICES_A_LOST_PEER | CONFORMANCE_CHECKS_LOCAL_KEYS |
				CONFORMANCE_CHECKS_REMOTE_FLAGS,
		};

		snprintf(name, sizeof(name), "sim, %s, seed %llu", weather->name, (unsigned long long)seed);
		failed += conformance_run(&harness);
	}
	return failed;
}

int main(void)
{
	int failed = 0;

	for (size_t i = 0; i < KVR_COUNT_OF(weathers); i++)
		failed += run_weather(&weathers[i]);
	return failed ? 1 : 0;
}
