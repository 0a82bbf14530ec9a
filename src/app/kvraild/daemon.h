/*
 * daemon.h - kvraild as one object: what start.c takes in order and gives back in reverse, and what the control thread's loop does.
 *
 *     main thread       the control thread: listener, control sockets, pages, watchdog (a loop of poll/loop.h)
 *     kvr-poll-N        one worker each
 *     kvr-mgmt          the management core; on small machines the worker too, as kvr-serve
 */
#ifndef KVRAIL_APP_KVRAILD_DAEMON_H
#define KVRAIL_APP_KVRAILD_DAEMON_H

#include <stdbool.h>
#include <stdint.h>

#include "app/common/gpu_table.h"
#include "app/kvraild/options.h"
#include "app/kvraild/watchdog.h"
#include "base/compiler.h"
#include "base/log.h"
#include "mgmt/http.h"
#include "mgmt/server.h"
#include "mgmt/status_page.h"
#include "poll/guard.h"
#include "poll/loop.h"
#include "tier/keep_file.h"
#include "tier/l1_map.h"
#include "verbs/driver.h"

KVR_BEGIN_C

/* What signals ask for. The handler only counts; the control thread looks. */
struct daemon_signals {
	int leave;  /* SIGTERM, SIGINT */
	int reload; /* SIGHUP */
};

struct daemon {
	const struct kvraild_settings *settings;
	struct kvraild_plan *plan;
	uint64_t started_ns;

	/* start.c, in the order in which they are taken */
	bool made_folder; /* that of the socket, which goes with it */
	struct daemon_listener {
		struct daemon *daemon;
		bool is_unix;
		int fd;
		uint64_t look_ns; /* when it was last asked: the control thread's, as is */
		bool due;         /* it may have somebody */
	} listeners[2];
	uint32_t listener_count;
	int http_listen_fd;      /* until the pages have it */
	struct machine *machine; /* NULL: it could not be read */
	struct plan *topology;   /* likewise */
	int allowed[CORES_MAX];  /* cores that the process was given */
	uint32_t allowed_count;
	struct verbs_device *remotes[WIRE_RAILS_MAX]; /* RDMA devices, as --device names them */
	uint32_t seen_health[WIRE_RAILS_MAX];         /* of these, the control thread's */
	uint32_t remote_count;                        /* 0: no such clients */
	struct verbs_device *local;                   /* NULL: no such clients */
	uint16_t rail_costs[WIRE_RAILS_MAX * L1_AREAS_MAX];
	struct l1_mapping memory[L1_AREAS_MAX];
	struct keep_file kept;              /* --l1-keep: `memory` is its */
	struct l1_area areas[L1_AREAS_MAX]; /* of that memory */
	uint16_t area_distances[L1_AREAS_MAX * L1_AREAS_MAX];
	uint32_t area_count;
	struct gpus *gpus;    /* NULL: none is used, */
	char gpu_reason[200]; /* and why */
	struct verbs_gpu_table gpu_table;
	struct l2_options l2; /* its adapters until the server has them */
	struct server *server;
	struct loop *loops[STATUS_LOOPS_MAX]; /* of workers and, the last one, the management core */
	uint32_t loop_count;
	struct loop_part_context { /* of a worker's part */
		struct daemon *daemon;
		uint32_t worker;
	} worker_parts[SERVER_WORKERS_MAX];
	int watch_fd; /* epoll over the control object's descriptors */
	struct watchdog watchdog;
	struct guard guard; /* of pinned threads */
	struct status_sources sources;
	struct text options_json, plan_json;
	struct http *http;
	struct loop *control_loop;

	/* the control thread's */
	uint64_t control_ns; /* of the control object's last step */
	int spare_fd;        /* given up to turn a client away when there are no descriptors left */
	struct log_rate accept_log, reload_log;
	uint64_t drain_until_ns; /* 0: not draining */
	int seen_leave, seen_reload;
	bool forced;   /* it left before all had ended */
	bool lost_gpu; /* it leaves for that: --gpu-lost leave */
	char not_ready[512];
	int stop;
};

/* The process' own; written by the handler alone. */
extern struct daemon_signals daemon_signals;

/* start.c: everything in order, with a line each; on a failure what was taken is given back. 0, or -errno after logging it. */
KVR_MUST_CHECK int daemon_start(struct daemon *daemon);
/* In reverse. When it was forced, memory and what clients may still reach are left to the end of the process. */
void daemon_finish(struct daemon *daemon);
/* listen.c: the sockets that clients come by. */
KVR_MUST_CHECK int daemon_start_listeners(struct daemon *daemon, char *detail, size_t size);
void daemon_finish_listeners(struct daemon *daemon);
/* device.c: what they reach the server through. */
KVR_MUST_CHECK int daemon_start_devices(struct daemon *daemon, char *detail, size_t size);
/* The one that a worker is at home on. */
struct verbs_device *daemon_device_of(const struct daemon *daemon, uint32_t worker);
void daemon_finish_devices(struct daemon *daemon);
/* "http://127.0.0.1:9464" with the port that it really has. */
void daemon_http_url(const struct daemon *daemon, char *out, size_t size);

/* place.c: the topology plan, made and said, and the calling thread put among the helpers, where all threads begin that it makes. */
KVR_MUST_CHECK int daemon_start_place(struct daemon *daemon, char *detail, size_t size);
void daemon_finish_place(struct daemon *daemon);
/* The calling thread: where helpers are, or wherever the process may be (so that threads which pin themselves can begin). */
void daemon_leave_poll_cores(struct daemon *daemon);
void daemon_use_all_cores(struct daemon *daemon);
/* The calling thread, which serves the GPU at that PCI address: among the helpers that are near it, if there are any. */
void daemon_go_near_gpu(const struct daemon *daemon, const char *pci);
/* L1's areas for the server, the nearest to each worker, and how far they are from each other. */
void daemon_place_areas(struct daemon *daemon, struct server_options *options);

/* memory.c: L1. */
KVR_MUST_CHECK int daemon_start_memory(struct daemon *daemon, char *detail, size_t size);
void daemon_finish_memory(struct daemon *daemon);
uint64_t daemon_l1_bytes(const struct daemon *daemon);
/* The least of its areas'. */
enum l1_page_kind daemon_l1_pages(const struct daemon *daemon);

/* heap_conf.c: what jemalloc is told before main; it finds it by its own name for it. */
extern __attribute__((visibility("default"))) const char *malloc_conf;
const char *daemon_heap_conf(void);

/* gpus.c: GPUs for the local driver, with L1 made known to them. */
KVR_MUST_CHECK int daemon_start_gpus(struct daemon *daemon, char *detail, size_t size);
void daemon_finish_gpus(struct daemon *daemon);
/* The control thread. True once a GPU is lost that the server is to leave for. */
bool daemon_leaves_for_gpu(const struct daemon *daemon);

/* loops.c: the loops and their parts. The control thread's is made when the others are started. */
KVR_MUST_CHECK int daemon_make_loops(struct daemon *daemon);
KVR_MUST_CHECK int daemon_start_loops(struct daemon *daemon);
void daemon_stop_loops(struct daemon *daemon);
void daemon_free_loops(struct daemon *daemon);

/* front.c: the control thread's parts. */
void daemon_front_parts(struct daemon *daemon, struct loop_options *options);
/* For control_watch: one more descriptor of the control object to sleep on. */
void daemon_watch_fd(void *context, int fd);
/* After a sleep on watch_fd. */
void daemon_watch_slept(void *context);
/* Why it does not serve; NULL: it does. */
const char *daemon_not_ready(void *context, uint64_t now_ns);

KVR_END_C

#endif
