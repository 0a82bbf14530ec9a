/* test_local.c - the local driver against the suite that all drivers pass: both sides in one process, one thread. */
#include <sched.h>
#include <stddef.h>

#include "conformance.h"
#include "verbs/driver.h"

static int open_world(struct conformance_world *world)
{
	const struct verbs_open *options = world->harness->options;
	struct verbs_open client = { .server = false };
	int rc = verbs_local.open(options, &world->server);

	if (rc != 0)
		return rc;
	rc = verbs_local.open(&client, &world->client);
	if (rc != 0)
		verbs_local.close(world->server);
	return rc;
}

static void close_world(struct conformance_world *world)
{
	verbs_local.close(world->client);
	verbs_local.close(world->server);
}

/* Nothing happens without polling but what the helper thread does. */
static bool step_world(struct conformance_world *world)
{
	(void)world;
	sched_yield();
	return false;
}

int main(void)
{
	static const struct verbs_open whole = { .server = true };
	static const struct verbs_open sliced = { .server = true, .slice_bytes = 1000 };
	struct conformance_harness harness = {
		.name = "local",
		.driver = &verbs_local,
		.options = &whole,
		.open = open_world,
		.close = close_world,
		.step = step_world,
		.quiet_rounds = 1000,
		.patience_rounds = 10000000,
		.features = CONFORMANCE_SENDS_ARE_BUFFERED | CONFORMANCE_CHECKS_LOCAL_KEYS,
	};
	int failed = conformance_run(&harness);

	harness.name = "local, slices of 1000 bytes";
	harness.options = &sliced;
	return failed + conformance_run(&harness);
}
