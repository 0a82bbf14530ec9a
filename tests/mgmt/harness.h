/*
 * harness.h - a management core between a fake worker and a fake control thread, under virtual time.
 *
 * The fake worker moves bytes like a real one, with a process' memory replaced by a rule: every word of an object
 * tells the chunk and rank that it belongs to, and who wrote it. A STORE writes half of an object when it is handed
 * over and the rest when it ends; a RETRIEVE checks every word when it ends. So memory that is reused too early, or
 * read before it is whole, is seen.
 */
#ifndef KVRAIL_TESTS_MGMT_HARNESS_H
#define KVRAIL_TESTS_MGMT_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/list.h"
#include "mgmt/management.h"
#include "mgmt/prefetch.h"

#define OBJECT_BYTES 65536u /* one page of L1: as many objects as pages */
#define CHUNK_TOKENS 256u
#define BLOCK_TOKENS 16u
#define BLOCKS (CHUNK_TOKENS / BLOCK_TOKENS)

#define WORLD_TENANTS 16u

struct world_options {
	uint32_t slots;            /* objects of OBJECT_BYTES that L1 holds */
	uint32_t sessions_max;     /* 0: 64 */
	uint32_t chain_chunks_max; /* 0: 65536 */
	uint32_t large_requests;   /* 0: 4 */
	uint32_t chunks_initial;   /* 0: 4096 */
	uint64_t silence_ns, registration_grace_ns;
	const struct tenant_quota *quotas; /* [WORLD_TENANTS], NULL: none */
	struct cache_quota default_quota;
	uint64_t pinned_bytes_max;
	const struct prefetch_engine *prefetch;
	bool no_memory; /* the control thread cannot get memory for the chunk table */
};

struct world {
	struct l1 *l1;
	struct cache *cache;
	struct management *management;
	struct mailbox *mailbox;
	void *memory;
	uint64_t now;
	uint32_t slots;
	uint32_t next_registration;
	uint64_t next_request;
	struct list_node clients;
	struct list_node asks;
	bool hold;        /* transfers wait for ask_finish */
	bool hold_closed; /* transfers of a closed connection, too */
	bool no_memory;
	unsigned drained, status_done, clear_done, quota_done, pin_done;
	unsigned wrong_bytes; /* words that a RETRIEVE found wrong */
};

struct client {
	struct list_node node;
	struct world *world;
	struct connection connection;
	struct list_node handles;
	uint32_t outstanding; /* requests with the management core */
	unsigned forgotten;
	bool opened, close_asked, closed, lost, detach_sent, detached;
};

/* A registration. */
struct handle {
	struct list_node node;
	struct registration registration;
	struct client *client;
	bool answered, returned;
};

/* The chain of a name: digest i depends on names of chunks 0 .. i alone, where `fork` chunks are those of chain
 * `from`. */
struct chain {
	uint64_t seed, fork_seed;
	uint32_t fork;
};

/* A request and what became of it. */
struct ask {
	struct request request;
	struct list_node node; /* world->asks */
	struct client *client;
	char id[WIRE_SESSION_ID_MAX];
	uint8_t salt[32];
	uint8_t parent[32];
	uint8_t *digests;
	uint32_t group_runs;
	struct block_run run;
	struct chain chain;
	uint32_t fill; /* STORE: who writes */
	bool out, aborted, replied;
	uint8_t outcomes[WIRE_CHUNKS_MAX];
	uint64_t replied_turn;
};

/* Log lines are counted instead of printed. */
void log_expect_begin(unsigned *lines);
void log_expect_end(void);

void world_init(struct world *world, const struct world_options *options);
/* Closes what is open, and checks that nothing is left: no lock, pin, session, staged object, and L1 can be filled
 * to the last slot. */
void world_fini(struct world *world);
void world_verify(struct world *world);
/* One turn of everybody. True when the management core did something. */
bool world_turn(struct world *world);
/* Turns until nothing happens any more, at this time. */
void world_run(struct world *world);
/* Lets time pass in steps of 1/64 of it, with turns in between. */
void world_pass(struct world *world, uint64_t ns);
uint64_t world_locks(struct world *world);
uint64_t world_pins(struct world *world);
uint64_t world_staged(struct world *world);
uint64_t world_chunks(struct world *world);
uint32_t world_sessions(struct world *world);
#define COUNTER(world, name) (management_counters((world)->management)->name)

struct client *client_join(struct world *world, uint32_t tenant);
/* The queue pair fails. */
void client_fail(struct client *client);
/* The socket closes. */
void client_leave(struct client *client);
void client_free(struct client *client);

struct model_of {
	const char *name;
	const char *dtype;
	uint32_t tenant, world_size, readers;
};
extern const struct model_of plain_model;
/* object_bytes 0: a scheduler. The reply is in the registration. */
struct handle *handle_make(
	struct client *client, const struct model_of *model, uint32_t rank, uint32_t reader, uint64_t object_bytes);
struct handle *handle_worker(struct client *client); /* of plain_model */
struct handle *handle_scheduler(struct client *client);
void handle_unregister(struct handle *handle);

void chain_digest_of(const struct chain *chain, uint32_t chunk, uint8_t digest[32]);
struct chain chain_named(uint64_t seed);

struct ask *ask_new(struct handle *handle, uint16_t type, const char *session);
/* The digests of chunks first .. first+count-1 go along. */
void ask_with_chain(struct ask *ask, const struct chain *chain, uint32_t first, uint32_t count);
void ask_with_salt(struct ask *ask, uint8_t salt);
void ask_send(struct ask *ask);

/* Ready made, sent, not run. chain NULL: none goes along. */
struct ask *ask_lookup(struct handle *handle, const char *session, const struct chain *chain, uint32_t count);
struct ask *ask_transfer(struct handle *handle, uint16_t type, const char *session, const struct chain *chain,
	uint32_t first, uint32_t count);
/* Not sent yet. */
struct ask *ask_prepare_transfer(struct handle *handle, uint16_t type, const char *session, const struct chain *chain,
	uint32_t first, uint32_t count);
struct ask *ask_free_locks(
	struct handle *handle, const char *session, uint32_t first, uint32_t count, uint32_t rank, uint32_t reader);
struct ask *ask_end(struct handle *handle, const char *session);
struct ask *ask_query(struct handle *handle, const char *session, uint64_t timeout_ns);
struct ask *ask_cancel(struct handle *handle, const struct ask *target);

/* Ends a transfer that is out. */
void ask_finish(struct ask *ask, enum chunk_outcome outcome);
/* The request must have been replied to with that status; frees it; returns reply.first. */
uint32_t ask_expect(struct ask *ask, uint16_t status);
void ask_free(struct ask *ask);

/* Run to the end, expecting `status`; return reply.first. */
uint32_t do_lookup(
	struct handle *handle, const char *session, const struct chain *chain, uint32_t count, uint16_t status);
uint32_t do_store(struct handle *handle, const char *session, const struct chain *chain, uint32_t first, uint32_t count,
	uint16_t status);
uint32_t do_retrieve(struct handle *handle, const char *session, const struct chain *chain, uint32_t first,
	uint32_t count, uint16_t status);
uint32_t do_free(
	struct handle *handle, const char *session, uint32_t first, uint32_t count, uint32_t rank, uint16_t status);
void do_end(struct handle *handle, const char *session);

#endif
