/*
 * rig.h - a server whose worker and management core are stepped by one thread that can be guarded (guard.h), and clients of it.
 * The control thread is a thread of its own, as in kvraild.
 */
#ifndef KVRAIL_TESTS_HOT_RIG_H
#define KVRAIL_TESTS_HOT_RIG_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "kvrail.h"
#include "mgmt/server.h"

#define RIG_CHUNK_TOKENS 16
#define RIG_BLOCK_TOKENS 4
#define RIG_CHUNK_BLOCKS (RIG_CHUNK_TOKENS / RIG_BLOCK_TOKENS)
#define RIG_PLANES 4
#define RIG_BLOCK_BYTES 512
#define RIG_CREDITS 96

/* Page faults of the stepping thread. */
struct rig_usage {
	unsigned long minor_faults, major_faults;
};

struct rig {
	char directory[64];
	char path[96];
	struct server *server;
	struct verbs_device *device;
	struct l1_area area;
	struct control_tenant tenant;
	pthread_t stepping, control;
	void *stack; /* of the stepping thread, which does not leave it as another thread could use it */
	/* atomic, written by the test's thread */
	uint32_t guarded; /* 1: the stepping thread shall forbid itself system calls and allocations */
	uint32_t stop;
	uint32_t drain;
	/* Called once by the stepping thread between two steps when the test's thread has set it. Atomic pointer. */
	void (*sabotage)(void);
	/* atomic, written by the stepping thread */
	uint32_t is_guarded;
	int guard_error;
	pid_t stepping_id;
	uint64_t steps;
	struct rig_usage before;
};

/* A server with `l1_bytes` of L1; asserts. */
void rig_open(struct rig *rig, uint64_t l1_bytes);
/* From now on the stepping thread is guarded; returns when it is. */
void rig_guard(struct rig *rig);
/* Has the stepping thread call it once, and waits for that. */
void rig_sabotage(struct rig *rig, void (*what)(void));
/* The stepping thread ends; its faults since rig_guard. The server stands still until rig_close. */
void rig_stop(struct rig *rig, struct rig_usage *usage);
/* After every client was closed: the server must have been left empty, or the test fails. */
void rig_close(struct rig *rig);

struct kvr_client *rig_client(const struct rig *rig);

#endif
