/*
 * control.h - the control thread's object: handshakes on control sockets, registrations, memory of clients, answers
 * to the operator.
 *
 * Stepped like all else; its thread sleeps in epoll between steps. It may enter the kernel; what can block long
 * (mapping,
 * registering, unmapping memory; making and destroying queue pairs) runs on its helper thread, so that one client's
 * registration
 * never delays another's handshake (pitfalls B03, C01).
 *
 * A client's states: HELLO -> (CHALLENGE) -> READY -> CONNECTED -> closing -> gone, one table of allowed messages per
 * state.
 */
#ifndef KVRAIL_MGMT_CONTROL_H
#define KVRAIL_MGMT_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/stream.h"
#include "mgmt/management.h"
#include "verbs/driver.h"
#include "worker/worker.h"

KVR_BEGIN_C

/* A tenant and how its clients prove that they are it. */
struct control_tenant {
	char name[64];
	char key_name[64]; /* shared secret over TCP; empty: none */
	uint8_t secret[64];
	uint32_t secret_length;
	bool by_uid; /* Unix socket peers with `uid` are this tenant */
	uint32_t uid;
	bool may_clear;
	struct tenant_quota quota;
};

struct control_options {
	struct management *management;
	struct worker **workers; /* array copied */
	uint32_t worker_count;
	const struct control_tenant
		*tenants; /* copied. [0] is the default tenant of Unix socket peers that no by_uid matches */
	uint32_t tenant_count;
	bool trust_tcp;      /* TCP clients need no shared secret (closed networks, simulator): bound to tenant 0 */
	bool require_tenant; /* HELLO must name the tenant (pitfalls F01) */
	uint32_t connections_max;
	uint64_t boot_id;
	struct server_info info; /* texts outlive it */
	unsigned helper_threads; /* 0: in the step (simulator); 1 */
	uint64_t handshake_ns;   /* a socket that has not finished HELLO by then is closed (5 s) */
	uint64_t seed;           /* challenges in the simulator; 0: from the kernel */
};

struct control;

KVR_MUST_CHECK int control_create(const struct control_options *options, struct control **control);
/* After control_idle. */
void control_destroy(struct control **control);

/* Takes over an accepted stream. -EUSERS (too many clients, or draining) or -ENOMEM: told to the peer, then the
 * stream is closed. */
int control_accept(struct control *control, struct stream *stream, uint64_t now_ns);
bool control_step(struct control *control, uint64_t now_ns);
uint64_t control_next_ns(const struct control *control);
/* Refuses new clients and new work, lets transfers end, then closes everybody. */
void control_drain(struct control *control, uint64_t now_ns);
/* For the simulator, with no helper threads: what these helpers have to do is not done meanwhile, as if the kernel took long. A
 * control thread that is to become idle must not be held. */
enum control_hold { CONTROL_HOLD_CONNECT = 1, CONTROL_HOLD_MEMORY = 2, CONTROL_HOLD_RECLAIM = 4 };
void control_hold(struct control *control, unsigned which);
/* Drained, and no client is left. */
bool control_idle(const struct control *control);
uint32_t control_client_count(const struct control *control);

/* What the operator asks for; answered by `done` in a later step, on the same thread. */
KVR_MUST_CHECK int control_request_status(struct control *control, struct status_snapshot *snapshot,
	void (*done)(void *context, struct status_snapshot *snapshot), void *context);
/* l1_only: places of L2 keep what they have. */
KVR_MUST_CHECK int control_request_clear(struct control *control, struct clear_job *job, bool l1_only,
	void (*done)(void *context, struct clear_job *job), void *context);

KVR_MUST_CHECK int control_request_quota(struct control *control, struct quota_job *job,
	void (*done)(void *context, struct quota_job *job), void *context);
/* job->pin: to be pinned, the control thread's from now on; NULL: the pin job->name is to be undone. `done` may not keep job->pin. */
KVR_MUST_CHECK int control_request_pin(
	struct control *control, struct pin_job *job, void (*done)(void *context, struct pin_job *job), void *context);
/* The number of a tenant, UINT32_MAX: there is none of that name. */
uint32_t control_find_tenant(const struct control *control, const char *name);

/* A line per client for status pages. */
struct control_client_status {
	char name[64];
	char peer[80];
	char tenant[64];
	char state[16];
	uint32_t worker;
	uint64_t connected_ns, last_seen_ns, requests, bytes_in, bytes_out, region_bytes;
	uint32_t regions, registrations;
	uint32_t rail_count; /* 0: before CONNECT; the first is its home */
	struct control_rail_status {
		uint32_t rail;
		char device[64];
		const char *state; /* "home", "probing", "live", "out" */
		const char *why;   /* "out": the reason, as far as it is known; "" else */
		uint64_t bytes;    /* of further ones */
	} rails[WIRE_RAILS_MAX];
};
/* Fills at most `capacity`; returns how many there are. */
uint32_t control_list_clients(const struct control *control, struct control_client_status *clients, uint32_t capacity);

/* Descriptors for the thread's epoll: calls watch(context, fd) for every one at this moment. The thread asks after
 * each step when
 * control_watch_changed. */
void control_watch(const struct control *control, void (*watch)(void *context, int fd), void *context);
bool control_watch_changed(struct control *control);

#define CONTROL_COUNTERS(X)                                                                   \
	X(accepted_total, "control sockets accepted")                                         \
	X(refused_total, "clients refused because the maximum was reached")                   \
	X(strangers_dropped_total, "sockets closed before HELLO to make room for newer ones") \
	X(bad_protocol_total, "sockets closed because their first bytes were no HELLO")       \
	X(authentication_failures_total, "clients with a wrong credential")                   \
	X(handshake_timeouts_total, "sockets closed because HELLO did not come in time")      \
	X(control_malformed_total, "malformed messages on control sockets")                   \
	X(clients_lost_total, "clients whose control socket closed without leave")            \
	X(memory_imports_total, "memory regions made reachable")                              \
	X(memory_import_failures_total, "memory regions that could not be made reachable")
struct control_counters {
#define CONTROL_COUNTER_FIELD(name, help) uint64_t name;
	CONTROL_COUNTERS(CONTROL_COUNTER_FIELD)
#undef CONTROL_COUNTER_FIELD
};
const struct control_counters *control_counters(const struct control *control);

KVR_END_C

#endif
