/* replay_private.h - what the replay_*.c files share. */
#ifndef KVRAIL_APP_BENCH_REPLAY_PRIVATE_H
#define KVRAIL_APP_BENCH_REPLAY_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "app/kvrail-bench/ceiling.h"
#include "app/kvrail-bench/endpoint.h"
#include "app/kvrail-bench/gate.h"
#include "app/kvrail-bench/generation.h"
#include "app/kvrail-bench/geometry.h"
#include "app/kvrail-bench/machine.h"
#include "app/kvrail-bench/measure.h"
#include "app/kvrail-bench/reference.h"
#include "app/kvrail-bench/settings.h"
#include "app/kvrail-bench/trace.h"
#include "base/atomic.h"
#include "base/compiler.h"

KVR_BEGIN_C

/* What a request of the trace is doing. RETRIEVE and STORE go on in segments when a request is larger than the memory
 * for it. */
enum replay_step { STEP_FREE, STEP_LOOKUP, STEP_RETRIEVE, STEP_STORE, STEP_END };

/* One operation on one connection. */
struct replay_pending {
	kvr_ticket ticket; /* 0: not accepted yet, try again at retry_ns */
	uint64_t begin_ns;
	uint64_t retry_ns;
	bool done;
	bool canceled;
};

struct replay_slot {
	enum replay_step step;
	uint32_t writer; /* its number among the slots of all clients */
	uint64_t number; /* of the request in the trace, from 1 */
	struct trace_request *request;
	uint32_t *tokens;
	uint64_t *chunks; /* identities */
	uint64_t *floors; /* [holder * chunk_count + chunk]: generations up to this one are stale */
	uint32_t token_capacity;
	uint32_t chunk_count;
	uint32_t hit;
	uint32_t first, count; /* the segment */
	uint64_t generation;
	bool failed;
	struct kvr_session *scheduler_session;
	struct kvr_session **sessions;   /* one a rank */
	struct replay_pending *pendings; /* one a rank; LOOKUP and END: the first */
	uint32_t open;                   /* pendings that are not done */
	uint32_t **ids;                  /* [rank]: blocks of the segment */
	uint8_t **outcomes;
};

struct replay;

struct replay_client {
	struct replay *replay;
	pthread_t thread;
	uint32_t number;
	bool started;
	bool hopeless; /* the server owes a reply and gives none: its memory must not be freed */
	struct endpoint scheduler;
	struct endpoint *ranks;
	struct replay_slot *slots;
	struct measure measure;
	struct counters counters;
};

struct replay {
	const struct replay_settings *settings;
	const int *interrupted; /* set by a signal; NULL: never */
	const struct geometry *geometry;
	struct machine machine;
	struct endpoint_options endpoints;
	struct kvr_info info;
	struct shape shape;
	uint32_t segment_chunks;
	char run[80];

	pthread_mutex_t source_mutex; /* of the next nine */
	struct trace *trace;
	struct trace_request *next;
	bool next_read, source_ended;
	uint64_t taken;
	struct reference *reference;
	uint64_t first_difference; /* the request whose hit was not the reference's; 0: none */
	bool exact;                /* one at a time: any difference is an error */
	uint64_t capacity;

	struct generations *generations; /* NULL: nothing is verified */
	struct complaints complaints;
	struct gate gate;
	struct ceiling ceiling;
	struct replay_client *clients;
	uint64_t start_ns;
	double seconds;
};

static inline bool replay_interrupted(const struct replay *replay)
{
	return replay->interrupted && kvr_load_acquire(replay->interrupted);
}

static inline bool replay_verifies(const struct replay *replay)
{
	return replay->generations != NULL;
}

/* replay_source.c: the next request of the trace, once its time has come. 1; 0: there are no more; -EAGAIN: at
 * *due_ns. */
int replay_take(struct replay *replay, struct trace_request *request, uint64_t *number, uint64_t *due_ns);
/* Runs the request through the reference and compares. */
void replay_compare(struct replay *replay, const struct replay_slot *slot, struct counters *counters);

/* replay_slot.c */

KVR_MUST_CHECK int replay_slot_init(struct replay_slot *slot, const struct replay *replay, uint32_t writer);
void replay_slot_fini(struct replay_slot *slot, const struct replay *replay);
/* slot->request and ->number are set. */
void replay_slot_begin(struct replay_client *client, struct replay_slot *slot);
/* Looks what came; true when something did. */
bool replay_slot_poll(struct replay_client *client, struct replay_slot *slot);
/* Sleeps a short while, or until something of this slot comes. */
void replay_slot_wait(struct replay_client *client, struct replay_slot *slot);

/* replay_verify.c: the destinations of a RETRIEVE that one rank has got; counts and complains. */
void replay_verify(struct replay_client *client, struct replay_slot *slot, uint32_t rank);

/* replay_client.c: the thread. */
void *replay_client_main(void *client);
KVR_MUST_CHECK int replay_client_open(struct replay_client *client, char *why, size_t why_size);
void replay_client_close(struct replay_client *client);
void replay_measure_ceiling(void *replay);

/* replay_capacity.c: how many chunks L1 holds: fills it, looks what stayed, and clears it. 0 or negative errno with
 * words. */
KVR_MUST_CHECK int replay_find_capacity(struct replay *replay, uint64_t *capacity, char *why, size_t why_size);

/* replay_report.c: to standard output, and to --json. 0, or -errno when that file cannot be written. */
KVR_MUST_CHECK int replay_report(struct replay *replay);
/* A line for progress. */
void replay_progress(const struct replay *replay, char *text, size_t size);

KVR_END_C

#endif
