/*
 * control_mail.h - what the control thread (sockets, HTTP, everything that blocks) and the management core say to
 * each other,
 * over two rings. As in worker/mailbox.h a message hands the object over.
 *
 * The management core makes no system call, so it never wakes the control thread: that one looks at its ring at least
 * every
 * CONTROL_POLL_NS. Where its thread may sleep anyway, the program wakes the control thread for it, which then may
 * look less often.
 *
 *   control                                        management
 *     |  ATTACH (connection) --------------------->  |   authenticated, queue pair in RTS: begin serving
 *     |  REGISTER (registration) ----------------->  |
 *     |  <----------- REGISTERED (registration)      |   reply_status says whether it stands; if not it is control's again
 *     |  UNREGISTER (registration) --------------->  |
 *     |  <----------- UNREGISTERED (registration)    |   no transfer uses its layout any more: control frees it
 *     |  <----------- LOST (connection)              |   its queue pair failed, or the reaper took it: close the socket, then DETACH
 *     |  DETACH (connection) --------------------->  |   the socket is closed
 *     |  <----------- UNREGISTERED (registration) *  |   each of its registrations
 *     |  <----------- DETACHED (connection)          |   nothing of it is left: destroy the queue pair, unmap, free
 *     |  FORGET (connection, word[1]: region) ---->  |   regions[region].present was cleared; one at a time per connection
 *     |  <-- FORGOTTEN (connection, word[1]: region) |   no INDIRECT reads from it any more
 *     |  RAIL_OPEN (connection, word[1]: rail) --->  |   rails[rail] is filled: one more queue pair, for data
 *     |  RAIL_CLOSE (connection, word[1]: rail) -->  |   one at a time per connection, as FORGET
 *     |  <- RAIL_CLOSED (connection, word[1]: rail)  |   its queue pair may be destroyed
 *     |  STATUS (snapshot) ----------------------->  |
 *     |  <----------- STATUS_DONE (snapshot)         |
 *     |  CLEAR (clear_job) ----------------------->  |   of the operator: all tenants
 *     |  <----------- CLEAR_DONE (clear_job)         |
 *     |  QUOTA (quota_job) ----------------------->  |
 *     |  <----------- QUOTA_DONE (quota_job)         |
 *     |  PIN (pin_job) --------------------------->  |   with the pin: the management core's if it stands
 *     |  UNPIN (pin_job) ------------------------->  |
 *     |  <----------- PIN_DONE (pin_job)             |   with the pin, if it does not stand (any more): control frees it
 *     |  DRAIN -------------------------------->     |   refuse new LOOKUP, RETRIEVE, STORE with SHUTTING_DOWN
 *     |  <----------- DRAINED                        |   no transfer and no parked request is left
 *     |  <----------- WANT_MEMORY word[0]: bytes     |   for the chunk table (tier/cache.h)
 *     |  MEMORY word[0]: pointer, word[1]: bytes ->  |   pointer 0: could not be had
 *     |  <----------- GARBAGE word[0]: pointer       |   to be freed
 */
#ifndef KVRAIL_MGMT_CONTROL_MAIL_H
#define KVRAIL_MGMT_CONTROL_MAIL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/list.h"
#include "base/ring.h"
#include "protocol/layout.h"
#include "tier/cache.h"
#include "worker/mailbox.h"

KVR_BEGIN_C

#define CONTROL_POLL_NS (5 * KVR_MS)

#define PINS_MAX 64u
#define PIN_NAME_MAX 63u

enum control_to_management {
	MANAGEMENT_ATTACH = 1,
	MANAGEMENT_REGISTER,
	MANAGEMENT_UNREGISTER,
	MANAGEMENT_DETACH,
	MANAGEMENT_STATUS,
	MANAGEMENT_CLEAR,
	MANAGEMENT_DRAIN,
	MANAGEMENT_MEMORY,
	MANAGEMENT_FORGET,
	MANAGEMENT_QUOTA,
	MANAGEMENT_PIN,
	MANAGEMENT_UNPIN,
	MANAGEMENT_RAIL_OPEN,
	MANAGEMENT_RAIL_CLOSE,
};

enum management_to_control {
	CONTROL_REGISTERED = 1,
	CONTROL_UNREGISTERED,
	CONTROL_LOST,
	CONTROL_DETACHED,
	CONTROL_STATUS_DONE,
	CONTROL_CLEAR_DONE,
	CONTROL_DRAINED,
	CONTROL_WANT_MEMORY,
	CONTROL_GARBAGE,
	CONTROL_FORGOTTEN,
	CONTROL_QUOTA_DONE,
	CONTROL_PIN_DONE,
	CONTROL_RAIL_CLOSED,
};

/* KV memory (or a scheduler's handle) of one connection. Made by the control thread. */
struct registration {
	/* read only once handed over */
	struct connection *connection;
	uint32_t number; /* the name on the wire, unique in this server's life (never reused before 2^32) */
	uint32_t tenant;
	uint8_t model_key[32]; /* SHA-256 of tenant and model identity without rank, readers' number and reader */
	char model_name[WIRE_NAME_MAX + 1];
	char dtype[64];
	uint32_t world_size, rank, readers, reader;
	bool scheduler;        /* no memory */
	struct layout *layout; /* NULL for a scheduler */
	uint64_t request_id;   /* of the REGISTER or UNREGISTER under way */
	void *control;

	/* set by the management core before REGISTERED */
	uint16_t reply_status;
	char reply_text[200];

	/* the management core's */
	struct list_node node; /* connection->registrations */
	struct list_node model_node;
	struct model *model;
	uint32_t classes[WIRE_GROUPS_MAX];
	uint32_t transfers;         /* requests that use its layout now */
	bool unregistering;         /* it serves no new request */
	bool asked_back;            /* UNREGISTER or DETACH came: UNREGISTERED follows when it is idle */
	bool scanning;              /* its share of the sessions' locks is being released, */
	uint32_t scan_at;           /* from this session on, */
	struct list_node scan_node; /* in turn with others */
};

/* The management core's counters, as worker_counters. */
#define MANAGEMENT_COUNTERS(X)                                                                           \
	X(lookups_total, "LOOKUP requests answered")                                                     \
	X(lookup_chunks_total, "chunks asked for by LOOKUP")                                             \
	X(lookup_hit_chunks_total, "chunks found by LOOKUP")                                             \
	X(lookup_tokens_total, "tokens asked for by LOOKUP")                                             \
	X(lookup_hit_tokens_total, "tokens found by LOOKUP")                                             \
	X(l1_hit_chunks_total, "chunks found in L1")                                                     \
	X(l2_hit_chunks_total, "chunks found in L2")                                                     \
	X(retrieves_total, "RETRIEVE requests answered")                                                 \
	X(retrieve_chunks_total, "chunks delivered")                                                     \
	X(retrieve_missing_total, "chunks asked for by RETRIEVE that were not there")                    \
	X(stores_total, "STORE requests answered")                                                       \
	X(store_chunks_total, "chunks stored")                                                           \
	X(store_present_total, "chunks of a STORE that were there already")                              \
	X(store_far_chunks_total, "chunks stored in memory of another NUMA node, the near one was full") \
	X(store_no_memory_total, "chunks of a STORE for which there was no room")                        \
	X(store_no_quota_total, "chunks of a STORE for which their tenant's quota had no room")          \
	X(store_failed_total, "chunks of a STORE that did not arrive")                                   \
	X(locks_taken_total, "read locks taken")                                                         \
	X(locks_released_total, "read locks released")                                                   \
	X(locks_expired_total, "read locks that reached their time limit")                               \
	X(lock_mismatches_total, "releases that matched no lock")                                        \
	X(sessions_opened_total, "sessions begun")                                                       \
	X(sessions_ended_total, "sessions ended by END_SESSION")                                         \
	X(sessions_expired_total, "sessions ended by their time limit")                                  \
	X(sessions_lost_total, "sessions ended with their scheduler's connection")                       \
	X(sessions_recycled_total, "sessions that held nothing, ended to make room for others")          \
	X(chain_mismatches_total, "session ids used with another chain")                                 \
	X(cancels_total, "CANCEL requests answered")                                                     \
	X(busy_total, "requests refused because a table was full")                                       \
	X(registrations_total, "registrations made")                                                     \
	X(reaped_connections_total, "connections closed for silence or for never registering")           \
	X(unknown_registrations_total, "requests that named no registration")                            \
	X(busy_turns_total, "turns of the management loop that found work")                              \
	X(idle_turns_total, "turns of the management loop that found none")

struct KVR_ALIGNED(KVR_CACHE_LINE) management_counters {
#define MANAGEMENT_COUNTER_FIELD(name, help) uint64_t name;
	MANAGEMENT_COUNTERS(MANAGEMENT_COUNTER_FIELD)
#undef MANAGEMENT_COUNTER_FIELD
};

/* Filled by the management core in one step. */
struct status_snapshot {
	void *control;
	struct cache_stats cache;
	struct l1_stats l1;
	uint32_t area_count;
	struct l1_area_stats areas[L1_AREAS_MAX];
	uint32_t connections, registrations, models, sessions, sessions_max, parked, transfers;
	uint64_t locks;
	bool draining;
#define STATUS_MODELS_MAX 64
	uint32_t model_count; /* filled in: at most STATUS_MODELS_MAX of `models` */
	struct status_model {
		char name[WIRE_NAME_MAX + 1];
		char dtype[64];
		char key[17]; /* the beginning of the identity's hash, which tells models of one name apart */
		uint32_t tenant, world_size, readers, registrations;
		uint64_t token_bytes; /* of one rank; pitfalls O09 */
		uint64_t chunks;
	} model[STATUS_MODELS_MAX];
	uint32_t tenant_count;
	struct status_tenant {
		struct cache_account_stats stats;
		bool own_quota;
	} tenant[CACHE_ACCOUNTS_MAX];
	struct cache_quota default_quota;
	uint64_t pinned_bytes, pinned_bytes_max;
	uint64_t pinned_chunks;
	uint32_t pin_count;
	struct status_pin {
		char name[PIN_NAME_MAX + 1];
		char model[WIRE_NAME_MAX + 1];
		uint32_t tenant, chunks;
		uint64_t bytes;
	} pin[PINS_MAX];
};

/* A tenant's limits in L1 from now on. */
struct quota_job {
	void *control;
	uint32_t tenant;
	bool remove;              /* back to the default */
	struct cache_quota quota; /* unless removed; done: what holds now */
	uint64_t held_bytes;      /* what the tenant holds */
};

/* A prefix that the operator keeps in L1: its chunks are pinned until UNPIN. Allocated by the control thread, with malloc. */
struct pin {
	char name[PIN_NAME_MAX + 1];
	uint32_t tenant;
	char model[WIRE_NAME_MAX + 1];
	char dtype[64]; /* "": whatever it is */
	uint8_t salt[WIRE_DIGEST_BYTES];
	uint32_t count; /* chunks asked for, 1 to WIRE_CHUNKS_MAX */

	/* the management core's */
	struct list_node node; /* management->pins */
	uint32_t pinned;       /* chunks, from the first on */
	uint64_t bytes;        /* that they take */
	uint32_t space;

	/* Each chunk's digest, replaced by its entry (entry_of) once it is pinned. */
	uint8_t digests[][WIRE_DIGEST_BYTES];
};

struct pin_job {
	void *control;
	struct pin *pin;
	char name[PIN_NAME_MAX + 1]; /* UNPIN: whose */
	/* done: why not; "": it was done */
	char refusal[200];
	uint32_t pinned; /* chunks that are pinned, or are not any more */
	uint64_t bytes;
	struct list_node node; /* the management core's */
};

struct clear_job {
	void *control;
	uint64_t dropped, kept;
	bool l1_only;    /* the places of L2 keep what they have */
	uint32_t failed; /* places of L2 that may still have some of it */
	uint32_t cursor; /* the management core's, as the node and the step */
	uint8_t step;
	struct list_node node;
};

KVR_END_C

#endif
