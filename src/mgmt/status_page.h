/*
 * status_page.h - what the operator's pages say: JSON for /status, Prometheus text for /metrics. From counters, which may be read at
 * any time, and a snapshot that the management core has filled.
 *
 * Control thread. Nothing is kept; everything that is pointed to outlives the calls. Out of memory: out->failed.
 */
#ifndef KVRAIL_MGMT_STATUS_PAGE_H
#define KVRAIL_MGMT_STATUS_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/text.h"
#include "gpu/gpu.h"
#include "mgmt/control.h"
#include "mgmt/control_mail.h"
#include "mgmt/server.h"
#include "poll/guard.h"
#include "poll/loop.h"
#include "tier/cache.h"
#include "tier/l1_map.h"

KVR_BEGIN_C

#define STATUS_DEVICES_MAX 8
#define STATUS_LOOPS_MAX (SERVER_WORKERS_MAX + 2)
/* Clients that one page lists; it says how many there are. */
#define STATUS_CLIENTS_MAX 1024

/* The heap, beside L1. */
struct status_heap {
	const char *allocator; /* "jemalloc", or "libc", of which only rss_bytes is known */
	uint64_t allocated_bytes, active_bytes, resident_bytes, retained_bytes, metadata_bytes;
	uint64_t rss_bytes; /* of the process, L1 included */
	uint32_t arenas;
};

/* Where the numbers come from; filled once by the program. */
struct status_sources {
	const char *version; /* "0.1.0" */
	uint64_t boot_id;
	uint64_t started_ns;           /* clock_now_ns at start */
	const struct control *control; /* NULL: no clients (tests) */
	const struct control_counters *control_counters;
	const struct management_counters *management;
	const struct cache_counters *cache;
	const struct keep_counters *kept; /* NULL: L1 goes with the process */
	const struct l2 *l2;              /* NULL: there is none */
	uint32_t worker_count;
	struct status_worker {
		const struct worker_counters *counters;
		const char *device;
	} workers[SERVER_WORKERS_MAX];
	uint32_t device_count;
	const struct verbs_device *devices[STATUS_DEVICES_MAX];
	uint32_t loop_count;
	const struct loop *loops[STATUS_LOOPS_MAX];
	const struct control_tenant *tenants;
	uint32_t tenant_count;
	uint32_t connections_max;
	uint32_t chunk_tokens;
	uint32_t area_count; /* of L1; 0: nothing is known of them */
	struct status_area {
		int node; /* -1: any */
		const struct l1_mapping *mapping;
	} areas[L1_AREAS_MAX];
	void (*heap)(struct status_heap *heap); /* NULL: not known */
	const struct guard *guard;              /* of pinned threads; NULL: none */
	const char *plan_json;                  /* the topology plan in use, a JSON object; NULL: there is none */
	const char *l1_pages;                   /* "4 KiB pages" */
	bool l1_locked;                         /* pinned */
	const struct gpus *gpus;                /* NULL: GPU memory of clients is not reached ... */
	const char *gpu_reason;                 /* ... and why; NULL: not said */
	const char *options_json;               /* the options in force, a JSON object */
};

/* not_ready: why the server does not serve; NULL: it does. */
void status_page_json(const struct status_sources *sources, const struct status_snapshot *snapshot,
	const char *not_ready, uint64_t now_ns, struct text *out);
void status_page_metrics(const struct status_sources *sources, const struct status_snapshot *snapshot,
	const char *not_ready, uint64_t now_ns, struct text *out);

/* Appends what does not work although the server does, in words; false, and nothing, when all does. */
bool status_degraded(const struct status_sources *sources, uint64_t now_ns, struct text *out);

/* Tokens of a model whose chunks L1 can hold when it holds nothing else; 0 when nothing is known of its size (pitfalls O09). */
uint64_t status_model_tokens(const struct status_model *model, uint64_t l1_bytes);

KVR_END_C

#endif
