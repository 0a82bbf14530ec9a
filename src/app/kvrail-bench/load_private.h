/* load_private.h - what the load*.c files share. */
#ifndef KVRAIL_APP_BENCH_LOAD_PRIVATE_H
#define KVRAIL_APP_BENCH_LOAD_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "app/kvrail-bench/bare.h"
#include "app/kvrail-bench/ceiling.h"
#include "app/kvrail-bench/endpoint.h"
#include "app/kvrail-bench/gate.h"
#include "app/kvrail-bench/machine.h"
#include "app/kvrail-bench/measure.h"
#include "app/kvrail-bench/pacing.h"
#include "app/kvrail-bench/rawloop.h"
#include "app/kvrail-bench/settings.h"
#include "app/kvrail-bench/skew.h"
#include "base/compiler.h"
#include "base/random.h"

KVR_BEGIN_C

/* A chain of chunks: what is looked up and retrieved. */
struct load_chain {
	struct kvr_session *session;
	uint64_t seed;  /* of its tokens */
	bool stored;    /* it is in the cache; else nobody ever stores it */
	uint32_t users; /* slots that use its session */
};

/* One request: made ready before it is due, so that what the client computes for it is not in its latency. */
struct load_slot {
	bool ready; /* op, chain or session, and blocks are chosen */
	bool begun;
	enum measure_op op;
	kvr_ticket ticket; /* 0: to be submitted again at retry_ns */
	uint64_t begin_ns; /* open loop: when it was due */
	uint64_t retry_ns;
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
	uint32_t number;
	struct endpoint endpoint;
	struct load_chain *chains; /* load->chains that are stored, behind them load->strangers that are not */
	struct load_slot *slots;
	uint32_t *tokens; /* scratch for one chain */
	uint64_t next_seed;
	struct random random;
	struct pacing pacing; /* open loop */
	struct measure measure;
	struct counters counters;
};

/* Some clients in turn. */
struct load_thread {
	struct load *load;
	struct load_client *clients;
	uint32_t count;
	bool started;
	pthread_t thread;
};

struct load_round {
	double seconds;
	double gbps;
	double operations; /* a second */
	uint64_t requests;
	double cpu_seconds;        /* of this process */
	double server_cpu_seconds; /* 0: unknown */
};

/* A line of --interval. */
struct load_interval {
	double seconds; /* its end, from the first round on, without pauses */
	double operations, gbps;
	uint64_t p50_ns, p99_ns, p999_ns, max_ns;
};

struct load {
	const struct load_settings *settings;
	struct machine machine;
	struct endpoint_options endpoints;
	struct kvr_info info;
	struct shape shape;
	char run[48];
	uint32_t chunks;    /* of a request */
	uint32_t chains;    /* of a client, stored */
	uint32_t strangers; /* of a client, not stored */
	uint32_t stores;    /* STOREs of one session, one behind the other, as an engine makes them */
	uint32_t depth;
	bool crowded; /* more threads than cores: who waits must not spin */
	struct skew skew;
	struct complaints complaints;
	struct gate gate;
	struct ceiling ceiling;
	struct gpumem *gpumem; /* --memory gpu, else NULL */
	struct rawloop *raw;   /* NULL: none for this driver, or not wanted */
	struct bare *bare;     /* NULL: not wanted */
	struct load_client *clients;
	struct load_thread *threads;

	/* Written while all clients wait at the gate. */
	uint32_t round; /* 0: to warm up */
	uint64_t round_begin_ns, round_end_ns;
	uint64_t round_bytes, round_operations; /* sums when it began */
	double round_cpu, round_server_cpu;
	uint64_t first_round_ns; /* when warming up was over */
	struct load_round *rounds;
	uint32_t rounds_done;
	bool over;

	/* Of the thread that watches. */
	struct load_interval *intervals;
	size_t interval_count, interval_capacity;
};

/* Is it a LOOKUP or a RETRIEVE that this kind of load makes? */
static inline bool load_asks(const struct load *load)
{
	return load->settings->op == LOAD_LOOKUP || load->settings->op >= LOAD_RETRIEVE;
}

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

/* load_client.c: a struct load_thread's. */
void *load_thread_main(void *thread);
/* Ends the round: what was done in it, memcpy, and when the next one ends. */
void load_round_end(void *load);

/* load_interval.c: one thread watches. Every --interval a line, until the run is over; *interrupted ends it early. */
void load_watch(struct load *load, const int *interrupted);
/* Processor seconds of this process, and of the server; 0 where it is not known. */
double load_cpu(void);
double load_server_cpu(const struct load *load);

/* load_report.c */
KVR_MUST_CHECK int load_report(struct load *load);

KVR_END_C

#endif
