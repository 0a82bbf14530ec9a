/*
 * sim_adapter.h - an adapter without threads for the simulator and for tests: slow, faulty, lying and full, from a seed.
 *
 * Objects live in a place, which outlives the adapters that are opened on it, as a disk outlives a server. Everything that
 * an adapter may do wrong is done: a LOAD writes garbage before it writes the bytes, and garbage alone when it fails; a
 * STORE reads the memory when it begins and when it ends, and counts a misuse when somebody changed it in between.
 *
 * It allocates, for it is no part of a server.
 */
#ifndef KVRAIL_TIER_SIM_ADAPTER_H
#define KVRAIL_TIER_SIM_ADAPTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "tier/adapter.h"

KVR_BEGIN_C

struct sim_place;

struct sim_adapter_options {
	uint64_t seed;
	uint64_t delay_min_ns, delay_max_ns; /* of each request; ends come in any order */
	uint32_t queue_depth;                /* 0: 64 */
	uint64_t capacity_bytes;             /* of the place: -ENOSPC beyond it, or eviction; 0: none */
	bool evicts;                         /* makes room by dropping any object */
	/* of a million requests */
	uint32_t fail; /* -EIO */
	uint32_t
		corrupt; /* LOAD: the bytes at rest have changed, which their checksum tells: -EBADMSG, and it is gone */
	uint32_t lose;   /* LOAD: gone, though CONTAINS said that it is there */
	uint32_t stick;  /* takes stick_ns longer */
	uint64_t stick_ns;
	uint32_t flip;   /* STORE that has a checksum: a byte in L1 is another one while it is written */
	uint32_t refuse; /* submit: -EAGAIN */
	bool down;       /* everything fails */
};

KVR_MUST_CHECK int sim_place_create(struct sim_place **place);
/* After its adapters were closed. Harmless on NULL in *place. */
void sim_place_destroy(struct sim_place **place);
uint64_t sim_place_objects(const struct sim_place *place);
uint64_t sim_place_bytes(const struct sim_place *place);
/* Memory that changed under a STORE, requests that were submitted twice, and the like: must be 0. */
uint64_t sim_place_misuses(const struct sim_place *place);
bool sim_place_has(const struct sim_place *place, const struct l2_identity *identity);
/* Changes a byte of each object at rest. */
void sim_place_rot(struct sim_place *place);

/* 0, -ENOMEM. The place stays the caller's. */
KVR_MUST_CHECK int sim_adapter_open(
	const struct sim_adapter_options *options, struct sim_place *place, struct l2_adapter **adapter);
/* Other faults and delays from now on; with `calm` what is stuck ends soon as well. */
void sim_adapter_set(struct l2_adapter *adapter, const struct sim_adapter_options *options, bool calm);
/* The process dies: what is under way ends with -EIO in the next turn, each STORE whole or not at all. */
void sim_adapter_kill(struct l2_adapter *adapter);

KVR_END_C

#endif
