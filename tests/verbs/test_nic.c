/*
 * test_nic.c - the nic driver on a real device against the suite that all drivers pass. Both sides in one process: between
 * the soft-RoCE devices rxp0 and rxp1 where they are (scripts/rxe-vm with RXE_VM_PAIR=1), else from the first device to
 * itself. Without any RDMA device it is skipped.
 */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "verbs/conformance_world.h"
#include "verbs/driver.h"

#define DEVICES "/sys/class/infiniband"

struct ends {
	struct verbs_open server, client;
};

static int open_world(struct conformance_world *world)
{
	const struct ends *ends = world->harness->options;
	int rc = verbs_nic.open(&ends->server, &world->server);

	if (rc != 0)
		return rc;
	rc = verbs_nic.open(&ends->client, &world->client);
	if (rc != 0)
		verbs_nic.close(world->server);
	return rc;
}

static void close_world(struct conformance_world *world)
{
	verbs_nic.close(world->client);
	verbs_nic.close(world->server);
}

/* The kernel works on its own. */
static bool step_world(struct conformance_world *world)
{
	(void)world;
	sched_yield();
	return false;
}

static bool has_device(const char *name)
{
	DIR *folder = opendir(DEVICES);
	bool found = false;

	if (!folder)
		return false;
	for (const struct dirent *entry = readdir(folder); entry && !found; entry = readdir(folder))
		found = entry->d_name[0] != '.' && (!name || strcmp(entry->d_name, name) == 0);
	closedir(folder);
	return found;
}

static void no_rdma_device_on_this_machine(void **state)
{
	(void)state;
	print_message("nothing in " DEVICES ": scripts/rxe-vm runs this test where there is\n");
	skip();
}

int main(void)
{
	static const struct CMUnitTest none[] = { cmocka_unit_test(no_rdma_device_on_this_machine) };
	struct ends ends = { .server = { .server = true, .nic = { .timeout = 15, .retry_count = 5 } },
		.client = { .nic = { .timeout = 15, .retry_count = 5 } } };
	struct conformance_harness harness = {
		.name = "nic",
		.driver = &verbs_nic,
		.options = &ends,
		.open = open_world,
		.close = close_world,
		.step = step_world,
		.quiet_rounds = 2000,
		.patience_rounds = 4000000,
		.features = CONFORMANCE_NOTICES_A_LOST_PEER | CONFORMANCE_CHECKS_REMOTE_FLAGS |
			CONFORMANCE_CHECKS_LOCAL_KEYS | CONFORMANCE_ONE_KEY | CONFORMANCE_BLURS_LOCAL_ERRORS,
	};

	if (!has_device(NULL))
		return cmocka_run_group_tests_name("nic", none, NULL, NULL);
	if (has_device("rxp0") && has_device("rxp1")) {
		ends.server.device = "rxp0";
		ends.client.device = "rxp1";
	}
	/* A line for every device that is opened would hide the rest. */
	log_set_level(LOG_WARN);
	return conformance_run(&harness);
}
