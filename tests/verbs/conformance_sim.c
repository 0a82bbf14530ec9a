#include "verbs/conformance_sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_world(struct conformance_world *world)
{
	const struct sim_weather *weather = world->harness->options;
	struct verbs_open options = { 0 };
	struct sim_fabric *fabric;
	int error = sim_fabric_create(weather->seed, &weather->options, &fabric);

	if (error)
		return error;
	options.fabric = fabric;
	options.server = true;
	error = verbs_sim.open(&options, &world->server);
	options.server = false;
	if (!error)
		error = verbs_sim.open(&options, &world->client);
	if (error)
		sim_fabric_destroy(&fabric);
	else
		world->own = fabric;
	return error;
}

static void close_world(struct conformance_world *world)
{
	const struct sim_weather *weather = world->harness->options;
	struct sim_fabric *fabric = world->own;
	struct sim_counters counters;

	verbs_sim.close(world->server);
	verbs_sim.close(world->client);
	sim_fabric_counters(fabric, &counters);
	sim_fabric_destroy(&fabric);
	/* The suite keeps the contract: the simulator, which watches it, may not say otherwise. */
	if (!weather->careless && (counters.misuses > 0 || counters.cq_overflows > 0)) {
		fprintf(stderr, "seed %llu: misuses %llu, overflows %llu\n", (unsigned long long)weather->seed,
			(unsigned long long)counters.misuses, (unsigned long long)counters.cq_overflows);
		abort();
	}
}

static bool step_world(struct conformance_world *world)
{
	struct sim_fabric *fabric = world->own;

	if (sim_fabric_next_ns(fabric) == UINT64_MAX)
		return false;
	sim_fabric_step(fabric, sim_fabric_next_ns(fabric), 1);
	return sim_fabric_next_ns(fabric) != UINT64_MAX;
}

void sim_harness(struct conformance_harness *harness, const char *name, const struct sim_weather *weather)
{
	memset(harness, 0, sizeof(*harness));
	harness->name = name;
	harness->driver = &verbs_sim;
	harness->options = weather;
	harness->open = open_world;
	harness->close = close_world;
	harness->step = step_world;
	harness->patience_rounds = 1000000;
	harness->features = CONFORMANCE_NOTICES_A_LOST_PEER | CONFORMANCE_CHECKS_LOCAL_KEYS |
		CONFORMANCE_CHECKS_REMOTE_FLAGS;
}

struct sim_fabric *sim_fabric_of(const struct world *world)
{
	return world->base.own;
}

struct sim_counters sim_counters_of(const struct world *world)
{
	struct sim_counters counters;

	sim_fabric_counters(sim_fabric_of(world), &counters);
	return counters;
}

void sim_kill(struct world *world, enum side side)
{
	sim_fabric_kill_device(sim_fabric_of(world), world_device(world, side));
}

bool sim_one_event(struct world *world)
{
	struct sim_fabric *fabric = sim_fabric_of(world);

	return sim_fabric_next_ns(fabric) != UINT64_MAX && sim_fabric_step(fabric, sim_fabric_next_ns(fabric), 1) == 1;
}

struct world *sim_world_open(const struct sim_weather *weather, struct conformance_harness *harness)
{
	struct world *world;

	sim_harness(harness, "sim", weather);
	world = world_open(harness);
	assert_non_null(world);
	return world;
}
