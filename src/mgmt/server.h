/*
 * server.h - a whole server as one object: devices' workers, management core, control, L1 and chunk table, made in
 * order from one
 * table and taken apart in reverse. kvraild gives it threads; the simulator steps it.
 */
#ifndef KVRAIL_MGMT_SERVER_H
#define KVRAIL_MGMT_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "mgmt/control.h"
#include "mgmt/management.h"
#include "tier/cache.h"
#include "tier/keep.h"
#include "tier/l1.h"
#include "tier/l2.h"
#include "verbs/driver.h"
#include "worker/worker.h"

KVR_BEGIN_C

#define SERVER_WORKERS_MAX 64

struct server_options {
	struct verbs_device
		*devices[SERVER_WORKERS_MAX]; /* one per worker (several workers may share one); the caller's */
	uint32_t worker_count;
	/* Devices that clients may have further queue pairs on, those of the workers that are meant included; all of one driver. The
	 * caller's. What moving a byte costs with them from each area, in thousandths of what it costs with the nearest device:
	 * [rail * area_count + area], the caller's until server_destroy; NULL: all are alike. */
	struct verbs_device *rails[WIRE_RAILS_MAX];
	uint32_t rail_count; /* 0: one queue pair a client */
	const uint16_t *rail_costs;
	const struct l1_area *areas; /* memory for L1, the caller's, mapped until server_destroy */
	uint32_t area_count;
	struct keep *keep; /* of areas that are kept: what was in them is put back first; NULL: they are empty */
	uint32_t worker_areas
		[SERVER_WORKERS_MAX]; /* the area that each worker's chunks are put in as long as it has room */
	/* [area * area_count + area], any unit: from a full area chunks go to the nearest; NULL: all are alike. Copied */
	const uint16_t *area_distances;
	/* In the calling thread before a worker is made, and with worker_count behind the last one: whoever wants their memory near to
	 * their cores says so to the kernel. NULL: nothing. */
	void (*before_worker)(void *context, uint32_t worker);
	void *before_worker_context;
	uint32_t chunk_tokens;                            /* 256 */
	uint32_t connections_max;                         /* 64 */
	uint32_t credits;                                 /* 32 */
	uint32_t sessions_max;                            /* 4096 */
	uint32_t chain_chunks_max;                        /* 262144 */
	uint32_t large_requests;                          /* 16 */
	uint32_t large_buffers;                           /* 8 per worker */
	uint32_t message_bytes_max;                       /* 1 MiB */
	uint32_t send_depth;                              /* 256 */
	uint32_t chunks_initial;                          /* of the table: 65536 */
	uint32_t evict_high_permille, evict_low_permille; /* 1000, 1000: on demand only */
	enum cache_eviction eviction;                     /* CACHE_EVICT_LRU */
	uint64_t lock_ttl_ns, session_ttl_ns, silence_ns, registration_grace_ns, handshake_ns;
	const struct control_tenant *tenants; /* the caller's, unchanged until server_destroy */
	uint32_t tenant_count;                /* at most CACHE_ACCOUNTS_MAX */
	uint64_t pinned_bytes_max;            /* of L1, for prefixes that the operator pins */
	struct cache_quota default_quota;     /* of tenants that have none of their own */
	bool trust_tcp, require_tenant;
	unsigned helper_threads;
	/* Adapters, policy and limits; cache, l1 and callbacks are filled in here. The adapters are the server's from
	 * server_create on, also when that fails. NULL: no L2. */
	const struct l2_options *l2;
	uint64_t l2_deadline_ns; /* how long a lookup that names no limit waits for L2 (2 s); 0: for ever */
	uint64_t boot_id;        /* 0: drawn from the kernel */
	uint64_t seed;           /* 0: from the kernel */
	const char *version;     /* "kvraild 0.1.0" */
};

/* What is said above. */
void server_options_default(struct server_options *options);

struct server;

/* 0, -EINVAL, -ENOMEM, or a device's error; logged by the step that failed. */
KVR_MUST_CHECK int server_create(const struct server_options *options, struct server **server);
/* After control_idle(server_control(server)), or at once when nothing was ever accepted. */
void server_destroy(struct server **server);

struct control *server_control(struct server *server);
struct management *server_management(struct server *server);
struct worker *server_worker(struct server *server, uint32_t index);
uint32_t server_worker_count(const struct server *server);
struct cache *server_cache(struct server *server);
struct l1 *server_l1(struct server *server);
/* NULL: it has none. */
struct l2 *server_l2(struct server *server);
uint64_t server_boot_id(const struct server *server);

/* All of its parts once, in one thread. True when anything did something. */
bool server_step(struct server *server, uint64_t now_ns);
/* cache_verify, l1_verify, management_verify, l2_verify. Idle: but for what a place of L2 has not answered. */
int server_verify(struct server *server, bool expect_idle);

KVR_END_C

#endif
