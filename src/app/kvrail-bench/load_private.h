/* load_private.h - what the load*.c files share. */
#ifndef KVRAIL_APP_BENCH_LOAD_PRIVATE_H
#define KVRAIL_APP_BENCH_LOAD_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "app/kvrail-bench/ceiling.h"
#include "app/kvrail-bench/endpoint.h"
#include "app/kvrail-bench/gate.h"
#include "app/kvrail-bench/machine.h"
#include "app/kvrail-bench/measure.h"
#include "app/kvrail-bench/settings.h"
#include "base/compiler.h"
#include "base/random.h"

KVR_BEGIN_C

/* A chain of chunks that is in the cache: what is looked up and retrieved. */
struct load_chain {
	struct kvr_session *session;
	uint64_t seed; /* of its tokens */
	bool busy;     /* a slot uses its session */
};

/* One request in flight. */
struct load_slot {
	bool in_use;
	enum measure_op op;
	kvr_ticket ticket; /* 0: to be submitted again at retry_ns */
	uint64_t begin_ns, retry_ns;
	struct load_chain *chain;    /* of the set */
	struct kvr_session *session; /* of our own, for STORE ... */
	uint32_t stores;             /* ... and how many it has had */
	uint32_t *ids;
	uint8_t *outcomes;
	bool blocks_taken;
};

struct load;

struct load_client {
	struct load *load;
	pthread_t thread;
	uint32_t number;
	bool started;
	struct endpoint endpoint;
	struct load_chain *chains;
	struct load_slot *slots;
	uint32_t *tokens; /* scratch for one chain */
	uint64_t next_seed;
	struct random random;
	struct measure measure;
	struct counters counters;
};

struct load_round {
	double seconds;
	double gbps;
	double operations; /* a second */
};

struct load {
	const struct load_settings *settings;
	struct machine machine;
	struct endpoint_options endpoints;
	struct kvr_info info;
	struct shape shape;
	char run[48];
	uint32_t chunks; /* of a request */
	uint32_t chains; /* of a client */
	uint32_t stores; /* STOREs of one session, one behind the other, as an engine makes them */
	struct complaints complaints;
	struct gate gate;
	struct ceiling ceiling;
	struct load_client *clients;

	/* Written while all clients wait at the gate. */
	uint32_t round; /* 0: to warm up */
	uint64_t round_begin_ns, round_end_ns;
	uint64_t round_bytes, round_operations; /* sums when it began */
	struct load_round *rounds;
	uint32_t rounds_done;
	bool over;
};

static inline bool load_moves_bytes(const struct load *load)
{
	return load->settings->op >= LOAD_STORE;
}

static inline bool load_has_set(const struct load *load)
{
	return load->settings->op != LOAD_PING && load->settings->op != LOAD_STORE;
}

/* load_set.c: stores the chains of a client, and looks whether all are there; at the end retrieves and checks them. */
KVR_MUST_CHECK int load_set_store(struct load_client *client, char *why, size_t why_size);
void load_set_verify(struct load_client *client);
void load_set_close(struct load_client *client);
/* A session of `chunks` chunks whose tokens are those of the seed. 0 or -errno. */
KVR_MUST_CHECK int load_session(
	struct load_client *client, uint64_t seed, uint32_t chunks, struct kvr_session **session);

/* load_client.c: the thread. */
void *load_client_main(void *client);
/* Ends the round: what was done in it, memcpy, and when the next one ends. */
void load_round_end(void *load);

/* load_report.c */
KVR_MUST_CHECK int load_report(struct load *load);

KVR_END_C

#endif
