/*
 * gate.h - stopping all clients between requests, so that something can be measured while nothing else runs. And
 * complaints: the first few are printed, all are counted, too many stop the run.
 */
#ifndef KVRAIL_APP_BENCH_GATE_H
#define KVRAIL_APP_BENCH_GATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

struct gate {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	uint32_t threads; /* that run */
	uint32_t waiting;
	uint64_t round;
	uint64_t paused_ns; /* in all */
	int due;            /* atomic: whoever is between requests should come */
};

void gate_init(struct gate *gate, uint32_t threads);
void gate_fini(struct gate *gate);
/* Any thread: from now on clients stop at the gate. */
void gate_request(struct gate *gate);
bool gate_due(const struct gate *gate);
/* Waits for all other threads to arrive; the last one runs `action` before all go on. */
void gate_arrive(struct gate *gate, void (*action)(void *context), void *context);
/* A thread that will not come any more. */
void gate_leave(struct gate *gate, void (*action)(void *context), void *context);

#define COMPLAINTS_PRINTED 10
#define COMPLAINTS_MAX 100

struct complaints {
	pthread_mutex_t mutex;
	uint64_t count;
	int stop; /* atomic: the run ends early, for complaints or because it was asked to */
};

void complaints_init(struct complaints *complaints);
void complaints_fini(struct complaints *complaints);
void complain(struct complaints *complaints, const char *format, ...) KVR_PRINTF(2, 3);

KVR_END_C

#endif
