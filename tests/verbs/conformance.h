/*
 * conformance.h - one suite of cases that every driver must pass: what verbs/driver.h and the standard promise, seen
 * from outside.
 *
 * A driver takes part by filling a struct conformance_harness and calling conformance_run from its own test program.
 * Everything happens in one thread: the suite polls the completion queues of both sides, and the harness's step makes
 * the rest of the world go on. One-sided work requests are posted on the server's side alone, against memory that the
 * client's side allocated, registered and exported and the server's side imported; SENDs go both ways.
 */
#ifndef KVRAIL_TESTS_VERBS_CONFORMANCE_H
#define KVRAIL_TESTS_VERBS_CONFORMANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "verbs/driver.h"

KVR_BEGIN_C

struct conformance_harness;

/* One test case's world: two devices that can reach each other. */
struct conformance_world {
	const struct conformance_harness *harness;
	struct verbs_device *server; /* filled by the harness's open */
	struct verbs_device *client;
	void *own; /* the harness's */
};

enum conformance_feature {
	/* A SEND may complete at the sender before the receiver has taken it, so that what goes wrong there reaches the
	 * sender late. */
	CONFORMANCE_SENDS_ARE_BUFFERED = 1u << 0,
	/* A queue pair whose peer's end has failed or gone gets an error for what is outstanding without help. Else
	 * only silence is promised, and whoever is in charge calls qp_fail. */
	CONFORMANCE_NOTICES_A_LOST_PEER = 1u << 1,
	/* The driver tells a wrong local key of a work request (IBV_WC_LOC_PROT_ERR). */
	CONFORMANCE_CHECKS_LOCAL_KEYS = 1u << 2,
	/* The access flags of the client's registration bind the server. */
	CONFORMANCE_CHECKS_REMOTE_FLAGS = 1u << 3,
	/* A region's local and remote key may be one number, as with most adapters. */
	CONFORMANCE_ONE_KEY = 1u << 4,
	/* An error of this side's own is told as some local error, not always as the right one (soft-RoCE). */
	CONFORMANCE_BLURS_LOCAL_ERRORS = 1u << 5,
};

struct conformance_harness {
	const char *name; /* of the group of tests: "sim, seed 7" */
	const struct verbs_driver *driver;
	const void *options; /* the harness's */
	/* Fills server, client and own. 0 or -errno, nothing open then. */
	int (*open)(struct conformance_world *world);
	/* Closes both devices; everything made from them is destroyed. */
	void (*close)(struct conformance_world *world);
	/*
	 * Between two rounds of polling: advances a virtual clock, yields to helper threads. False when it knows that
	 * without further calls nothing will happen. NULL: polling is all there is, as if it always returned false.
	 */
	bool (*step)(struct conformance_world *world);
	/* So many rounds without a completion, and with a step that says false, mean that the world is idle. */
	uint32_t quiet_rounds;
	/* A case that waits longer than this many rounds has failed. */
	uint32_t patience_rounds;
	uint32_t features; /* enum conformance_feature */
};

/* Runs every case in a world of its own. The number of failed cases (cmocka's), 0 when all passed. */
int conformance_run(const struct conformance_harness *harness);

KVR_END_C

#endif
