/*
 * conformance_world.h - what the cases of the suite, and the drivers' own tests, are written with: two devices with a
 * completion queue each, connected pairs of queue pairs, memory between guard bytes, and a log of every completion.
 *
 * Helpers assert inside, so a case fails where the helper was called wrongly or the driver broke its word. What a case
 * leaves is torn down by world_close, failed case or not.
 */
#ifndef KVRAIL_TESTS_VERBS_CONFORMANCE_WORLD_H
#define KVRAIL_TESTS_VERBS_CONFORMANCE_WORLD_H

/* cmocka wants these before itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "verbs/conformance.h"

enum side { SERVER, CLIENT, SIDES };

#define GUARD_BYTES 64u
#define CQ_DEPTH 8192u

/* A connected pair: qp[SERVER] on one end, qp[CLIENT] on the other. */
struct pair {
	struct world *world;
	struct ibv_qp *qp[SIDES];
	bool started[SIDES];
	struct pair *next;
};

struct pair_options {
	uint32_t send_wr, recv_wr;
	uint32_t max_sge;
	uint32_t inline_bytes;
	uint32_t message_bytes;
	struct ibv_srq *server_srq;
};

/* Registered memory of one side, with guard bytes on both ends inside the allocation and outside the region. */
struct memory {
	struct world *world;
	enum side side;
	uint8_t *area;
	uint8_t *bytes; /* area + GUARD_BYTES */
	uint64_t length;
	uint64_t area_bytes;
	struct ibv_mr *mr; /* of bytes, length */
	struct ibv_qp *importer;
	uint32_t rkey; /* after memory_import */
	struct memory *next;
};

struct completions {
	struct ibv_wc *wcs;
	uint32_t count, capacity;
};

struct world {
	struct conformance_world base;
	const struct conformance_harness *harness;
	const struct verbs_driver *driver;
	struct ibv_cq *cq[SIDES];
	struct completions log[SIDES]; /* every completion since the beginning */
	struct pair *pairs;
	struct memory *memories;
	struct ibv_srq *srq; /* of the server, or NULL */
	bool held[SIDES];    /* this side's queue is not polled */
};

/* NULL when the harness could not open. */
struct world *world_open(const struct conformance_harness *harness);
void world_close(struct world *world);
struct verbs_device *world_device(struct world *world, enum side side);

/* One round: the harness's step, then both completion queues until empty. Returns the number of completions. */
unsigned world_round(struct world *world);
/* Until `side` has `count` completions in its log, or the case fails. */
void world_wait(struct world *world, enum side side, uint32_t count);
/* Until nothing more happens. */
void world_settle(struct world *world);
/* Polls one side's queue into its log. */
unsigned world_poll(struct world *world, enum side side);

void pair_defaults(struct pair_options *options);
/* options NULL: defaults. Both ends connected and started. */
struct pair *pair_make(struct world *world, const struct pair_options *options);
struct ibv_qp *qp_make(struct world *world, enum side side, const struct pair_options *options);
void pair_connect(struct pair *pair);
/* qp_fail, rounds until idle, qp_stop, destroy_qp. */
void pair_end(struct pair *pair, enum side side);
void pair_wait_idle(struct pair *pair, enum side side);

/* Zeroed; flags: ibv_access_flags of the registration. */
struct memory *memory_make(struct world *world, enum side side, uint64_t length, int flags);
/* A client's memory, to be reached from the pair's server side. */
void memory_import(struct memory *memory, struct pair *pair);
struct memory *memory_remote(struct pair *pair, uint64_t length, int flags);
void memory_deregister(struct memory *memory);
/* The server side forgets it. */
void memory_forget(struct memory *memory);
/* Bytes that depend on their place and the seed. */
void pattern_fill(uint8_t *bytes, uint64_t length, uint64_t seed);
bool pattern_is(const uint8_t *bytes, uint64_t length, uint64_t seed);
bool bytes_are(const uint8_t *bytes, uint64_t length, uint8_t value);
/* The guards of all memories of the world are as they were. */
void world_check_guards(struct world *world);

/* Posts one. Positive errno as libibverbs. */
int post_send(
	struct ibv_qp *qp, uint64_t id, const struct memory *memory, uint64_t offset, uint32_t length, unsigned flags);
int post_receive(struct ibv_qp *qp, uint64_t id, const struct memory *memory, uint64_t offset, uint32_t length);
int post_transfer(struct ibv_qp *qp, uint64_t id, enum ibv_wr_opcode opcode, struct ibv_sge *sges, int sge_count,
	uint64_t remote_address, uint32_t rkey, unsigned flags);
struct ibv_sge sge_of(const struct memory *memory, uint64_t offset, uint32_t length);
/* The address of a byte, as work requests name it. */
uint64_t address_of(const struct memory *memory, uint64_t offset);

/* The i-th completion of a side. */
const struct ibv_wc *completion_at(struct world *world, enum side side, uint32_t index);
/* The completion with that wr_id, which must be in the log exactly once. */
const struct ibv_wc *completion_of(struct world *world, enum side side, uint64_t id);
uint32_t completions_of(struct world *world, enum side side, uint64_t id);
void expect_success(struct world *world, enum side side, uint64_t id);
/* Ids first .. first + count - 1: each exactly once, in this order among themselves. */
void expect_each_once(struct world *world, enum side side, uint64_t first, uint32_t count);

/* setup and teardown of every test: *state is the harness before, the world between. */
int world_setup(void **state);
int world_teardown(void **state);

struct case_table {
	const struct CMUnitTest *cases;
	size_t count;
};
extern const struct case_table conformance_send_cases;
extern const struct case_table conformance_queue_cases;
extern const struct case_table conformance_transfer_cases;
extern const struct case_table conformance_access_cases;
extern const struct case_table conformance_error_cases;
extern const struct case_table conformance_object_cases;

/* A row of such a table: the harness comes in when it is run. */
#define CASE(function)                                                 \
	{                                                              \
#function, function, world_setup, world_teardown, NULL \
	}

#endif
