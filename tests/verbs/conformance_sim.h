/* conformance_sim.h - the sim driver's harness for the suite, and for the tests of the simulator itself. */
#ifndef KVRAIL_TESTS_VERBS_CONFORMANCE_SIM_H
#define KVRAIL_TESTS_VERBS_CONFORMANCE_SIM_H

#include "verbs/conformance_world.h"
#include "verbs/sim/fabric.h"

/* What a world is made from; conformance_harness.options points to one. */
struct sim_weather {
	uint64_t seed;
	struct sim_options options;
	bool careless; /* the test breaks the contract on purpose: misuses and overflows are its own business */
};

/* Fills the table for one weather, which must outlive it. */
void sim_harness(struct conformance_harness *harness, const char *name, const struct sim_weather *weather);
struct sim_fabric *sim_fabric_of(const struct world *world);
struct sim_counters sim_counters_of(const struct world *world);
/* The server or the client is gone; the world's own teardown knows. */
void sim_kill(struct world *world, enum side side);
/* Delivers one event; false when there was none. */
bool sim_one_event(struct world *world);
/* A world of its own with this weather, for tests that need several. */
struct world *sim_world_open(const struct sim_weather *weather, struct conformance_harness *harness);

#endif
