/* options.h - kvraild's options, and what they come to once they have been checked against each other and this machine. */
#ifndef KVRAIL_APP_KVRAILD_OPTIONS_H
#define KVRAIL_APP_KVRAILD_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "app/kvraild/l2_places.h"
#include "base/compiler.h"
#include "base/stream.h"
#include "config/option.h"
#include "mgmt/control.h"
#include "mgmt/server.h"
#include "poll/cores.h"
#include "poll/loop.h"
#include "poll/machine.h"
#include "poll/plan.h"

KVR_BEGIN_C

enum kvraild_gpu { KVRAILD_GPU_AUTO, KVRAILD_GPU_ON, KVRAILD_GPU_OFF };
enum kvraild_gpu_lost { KVRAILD_GPU_LOST_SERVE, KVRAILD_GPU_LOST_LEAVE };

enum kvraild_wait { KVRAILD_WAIT_AUTO, KVRAILD_WAIT_BUSY, KVRAILD_WAIT_ADAPTIVE };

/* As written; one field an option. */
struct kvraild_settings {
	char config[256];
	uint32_t log_level;
	char socket[128];
	char socket_mode[8];
	char listen[256];
	bool trust_tcp;
	char device[256];
	uint32_t device_port;
	char gid_index[16];
	uint32_t path_mtu, service_level, traffic_class, rdma_timeout, rdma_retries, rnr_timer;
	char http[128];
	char admin_token_file[256];
	uint64_t l1_bytes;
	uint32_t gpu, gpu_blocks, gpu_lost;
	uint32_t chunk_tokens;
	uint32_t chunks_initial;
	char l1_keep[256];
	uint64_t l1_slice;
	uint32_t evict_high, evict_low, eviction, pin_limit;
	char cores[256];
	uint32_t poll_cores, realtime;
	uint32_t wait;
	uint64_t spin_ns, yield_ns;
	uint32_t max_clients, credits, large_requests, large_buffers, send_depth;
	uint64_t message_bytes;
	uint32_t sessions, session_chunks;
	uint64_t lock_ttl_ns, session_ttl_ns, silence_ns, registration_grace_ns, handshake_ns;
	struct option_list l2;
	uint32_t l2_policy;
	bool l2_evict_stored, ready_needs_l2;
	uint32_t l2_checksums;
	uint64_t l2_wait_ns, l2_load_bytes, l2_store_bytes, l2_timeout_ns;
	uint32_t l2_sick_after, l2_residence;
	uint32_t l2_lookups, l2_loads, l2_stores, l2_store_queue;
	struct option_list tenants, tenant_keys, quotas;
	char default_quota[64];
	bool require_tenant;
	uint64_t drain_timeout_ns, stall_ns;
};

extern const struct option_table kvraild_options;

#define KVRAILD_TENANTS_MAX (OPTION_LIST_MAX + 1)
#define KVRAILD_TOKEN_BYTES 256

/* What --cores says. */
struct kvraild_cores {
	bool any; /* nothing is pinned */
	int given[SERVER_WORKERS_MAX + 1];
	uint32_t count; /* 0: the topology plan chooses */
};

/* A worker: the core that steps it, and what it polls. Several may be on one core, then one behind the other. */
struct kvraild_worker_place {
	int core;                  /* -1: unpinned */
	int node;                  /* of the core, or where it would best be; -1: unknown */
	bool remote;               /* it polls an RDMA device; else what clients on this host have in place of one */
	char device[MACHINE_NAME]; /* RDMA device; "": clients of this host, or not known to the plan */
	uint32_t port;
};

/* Which thread steps what, and where. */
struct kvraild_placement {
	uint32_t worker_count;
	bool shared; /* the workers and the management core in one thread */
	bool busy;   /* never sleeps */
	bool insist; /* not even where its core is shared */
	struct kvraild_worker_place workers[SERVER_WORKERS_MAX];
	int management_core; /* -1: unpinned */
};

/* What the settings come to. */
struct kvraild_plan {
	/* Clients on this host come by `socket`, those on others by `listen`: one of them at least. */
	bool has_socket;
	struct stream_address socket;
	unsigned socket_mode;
	bool has_listen;
	struct stream_address listen;
	bool gid_index_set;
	uint32_t gid_index;
	bool has_http;
	char token[KVRAILD_TOKEN_BYTES]; /* "": none */
	struct l2_place_plan l2[L2_ADAPTERS_MAX];
	uint32_t l2_count;
	struct control_tenant tenants[KVRAILD_TENANTS_MAX];
	uint32_t tenant_count;
	struct cache_quota default_quota;
	struct kvraild_cores cores;
	struct kvraild_placement placement; /* once the machine was read: kvraild_place */
};

/* Everything that can be found out without taking anything. 0 or -EINVAL with *error; *plan has secrets: wipe it. */
KVR_MUST_CHECK int kvraild_plan(
	const struct kvraild_settings *settings, struct kvraild_plan *plan, struct option_error *error);

/* tenants.c: the lists --tenant and --tenant-key. [0] is "default", of Unix socket peers that no other tenant names. */
KVR_MUST_CHECK int kvraild_plan_tenants(
	const struct kvraild_settings *settings, struct kvraild_plan *plan, struct option_error *error);
/* quotas.c: --quota and --default-quota, after the tenants. */
KVR_MUST_CHECK int kvraild_plan_quotas(
	const struct kvraild_settings *settings, struct kvraild_plan *plan, struct option_error *error);
/* The first line of a file with a secret, at least `least` characters. what: the option. */
KVR_MUST_CHECK int kvraild_read_secret(
	const char *what, const char *path, size_t least, char *secret, size_t size, struct option_error *error);

/* placement.c: --cores, against the cores that this process may use. */
KVR_MUST_CHECK int kvraild_read_cores(const char *cores, const int *allowed, uint32_t allowed_count,
	struct kvraild_cores *out, struct option_error *error);
/* What the topology plan is asked for. Points into its arguments. */
void kvraild_plan_options(
	const struct kvraild_settings *settings, const struct kvraild_plan *plan, struct plan_options *options);
/* The threads of a topology plan. --cores any and --wait change what it says of pinning and spinning. */
void kvraild_place(const struct machine *machine, const struct kvraild_cores *cores, enum kvraild_wait wait,
	struct plan *topology, struct kvraild_placement *placement);
/* Of the plan's helpers, those near the GPU at that PCI address: cores has room for MACHINE_CPUS_MAX. 0: there are none, or it is not
 * known where the GPU is. */
uint32_t kvraild_place_gpu(const struct machine *machine, const struct plan *topology, const char *pci, int *cores);
/* Which of the workers serve whom: with clients of both kinds each poll core has a worker for either. */
void kvraild_place_kinds(const struct kvraild_plan *plan, struct kvraild_placement *placement);
/* Those that poll, whatever number of workers each steps. */
uint32_t kvraild_poll_cores(const struct kvraild_plan *plan);
/* Without a plan, where the machine can't be read. */
void kvraild_place_anywhere(
	const struct kvraild_cores *cores, enum kvraild_wait wait, struct kvraild_placement *placement);

KVR_END_C

#endif
