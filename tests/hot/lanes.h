/*
 * lanes.h - a client that keeps many requests in flight: each lane goes round the requests of an engine, with a chain of
 * its own that stays in the cache and a new chain in every round, which makes room for itself by eviction.
 */
#ifndef KVRAIL_TESTS_HOT_LANES_H
#define KVRAIL_TESTS_HOT_LANES_H

#include <stdint.h>

#include "hot/rig.h"

#define LANES 48
#define LANE_CHUNKS 8
#define LANE_BLOCKS (LANE_CHUNKS * RIG_CHUNK_BLOCKS)
/* One lane's requests are so long that they do not fit a receive buffer. */
#define LANE_LONG_CHUNKS 320

enum lane_step {
	LANE_PING,
	LANE_LOOKUP_OLD, /* all of its own chain hits */
	LANE_RETRIEVE_OLD,
	LANE_STORE_OLD, /* is present */
	LANE_STORE_NEW, /* evicts */
	LANE_LOOKUP_NEW,
	LANE_END_NEW,
	LANE_END_OLD,
	LANE_STEPS
};

struct lane {
	struct lanes *lanes;
	uint32_t number, chunks, round;
	enum lane_step step;
	kvr_ticket ticket;
	struct kvr_session *old, *new;
	uint32_t *ids; /* blocks of its own chain, then as many to retrieve into */
	uint8_t *outcomes;
};

struct lanes {
	struct kvr_client *client;
	uint32_t registration, block_count;
	uint8_t *pool;
	struct lane lane[LANES];
	uint64_t done[LANE_STEPS];
	uint64_t total;
	uint64_t verified_blocks;
};

/* Opens a client, registers, and stores every lane's chain. */
void lanes_open(struct lanes *lanes, const struct rig *rig);
/* Goes on until `requests` more have been answered, polling all the time, and checks every answer. */
void lanes_run(struct lanes *lanes, uint64_t requests);
/* Takes the answers that are still out, polling. */
void lanes_finish(struct lanes *lanes);
/* Closes the client in the middle of its sessions' lives. It may sleep while the server lets go of its memory. */
void lanes_close(struct lanes *lanes);

#endif
