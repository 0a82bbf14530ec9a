/*
 * rig.h - one worker on the simulated fabric, hand-made clients that speak the wire format byte by byte, and a
 * management core that does what the test says. One thread, virtual time.
 */
#ifndef KVRAIL_TESTS_WORKER_RIG_H
#define KVRAIL_TESTS_WORKER_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"
#include "protocol/message.h"
#include "verbs/driver.h"
#include "verbs/sim/fabric.h"
#include "worker/internal.h"
#include "worker/worker.h"

KVR_BEGIN_C

#define RIG_CLIENTS 4
#define RIG_BOOT 0xb007
#define RIG_REPLIES 64
#define RIG_INBOX 512
#define RIG_CHUNK_BLOCKS 4
#define RIG_BLOCKS 2048 /* that a client's memory has room for, a plane */
#define RIG_PLANES 2
#define RIG_PLACES 8 /* for messages of INDIRECT, in front of the blocks in a client's memory */
#define RIG_MESSAGE_MAX 65536
#define RIG_POISON 0x5c /* of a client's memory */
#define RIG_CHUNKS 512  /* objects in L1 */

struct rig;

/* A reply as the client received it. */
struct rig_reply {
	struct wire_header header;
	uint32_t length;
	uint8_t bytes[WIRE_INLINE_BYTES];
};

struct rig_client {
	struct rig *rig;
	struct verbs_device *device;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;         /* of `memory` */
	struct ibv_mr *message_mr; /* of send and receive buffers */
	uint8_t *memory;           /* places for messages, then RIG_PLANES planes */
	uint64_t memory_bytes;
	uint8_t *messages; /* receive buffers, then one send buffer each */
	uint32_t receives;
	uint32_t sent; /* SENDs posted */
	uint32_t send_errors, receive_errors;
	bool takes_replies; /* false: polls nothing */
	bool killed;
	struct rig_reply *replies; /* ring of the last RIG_REPLIES */
	uint32_t reply_count;
	uint32_t sends_received;
	bool holds; /* rig_hold */
	uint32_t held_bytes;
	uint8_t held[WIRE_INLINE_BYTES];
	/* the server's side of it */
	struct connection connection;
	struct ibv_qp *server_qp;
	struct layout_region regions[2];
	struct layout *layout;
	bool open, lost, closed;
	uint32_t lost_count, forgotten;
	uint64_t forgotten_region;
};

struct rig_options {
	uint64_t seed;
	uint32_t credits, connections_max, large_buffers, send_depth;
	uint32_t block_bytes, block_stride;
	uint32_t max_rd_atomic, max_sge; /* 0: the driver's */
	bool no_inline;
	bool gathers; /* of all connections */
	struct sim_options sim;
};

struct rig {
	struct rig_options options;
	struct sim_fabric *fabric;
	struct verbs_device *device;
	struct worker *worker;
	struct mailbox *mailbox;
	uint64_t now;
	uint64_t steps;
	uint8_t *l1; /* RIG_CHUNKS objects, each followed by a guard */
	uint64_t object_bytes, object_distance, l1_bytes;
	struct ibv_mr *l1_mr;
	struct rig_client clients[RIG_CLIENTS];
	/* the management core */
	bool auto_answer;                 /* does everything by itself */
	bool early;                       /* lets replies of RETRIEVE go out right behind their data */
	bool auto_close;                  /* a lost connection is closed at once */
	struct request *inbox[RIG_INBOX]; /* what came as REQUEST and is not answered */
	uint32_t inbox_count;
	struct request *done[RIG_INBOX]; /* what came as TRANSFER_DONE and is not answered */
	uint32_t done_count;
	uint32_t requests, transfers_done, parts_back;
	/* what the shim over the device's post_send saw and does; others are passed on as they are */
	uint64_t device_errors;                                    /* posts that the simulator itself refused */
	uint64_t posts, refused, signalled, work_requests, widest; /* widest: pieces of one work request */
	struct random random;
	uint32_t refuse_per_thousand;
	int refuse_error;
};

void rig_options_default(struct rig_options *options);
struct rig *rig_start(const struct rig_options *options);
/* Closes everything, and asserts that nothing is left out: receive buffers, reply buffers, large buffers, send queue
 * places. */
void rig_stop(struct rig *rig);

/* A client and its queue pair, OPEN sent. */
struct rig_client *rig_join(struct rig *rig, unsigned index);
/* CLOSE, and steps until CLOSED. The queue pair is destroyed. */
void rig_leave(struct rig_client *client);
void rig_close(struct rig_client *client);

void rig_step(struct rig *rig);
void rig_steps(struct rig *rig, unsigned count);
/* Steps until the condition holds; fails the test when it never does. */
#define RIG_UNTIL(rig, condition)                                                             \
	do {                                                                                  \
		uint64_t rig_end = (rig)->steps + 400000;                                     \
		while (!(condition)) {                                                        \
			rig_step(rig);                                                        \
			if ((rig)->steps > rig_end)                                           \
				fail_msg("%s:%d: never: %s", __FILE__, __LINE__, #condition); \
		}                                                                             \
	} while (0)

/* Sends bytes as they are. */
void rig_send(struct rig_client *client, const void *bytes, uint32_t length);
/* What is sent from now on waits, as far as it has room in one SEND, and goes out together with rig_release. */
void rig_hold(struct rig_client *client);
void rig_release(struct rig_client *client);
/* Puts a message into the client's memory and sends an INDIRECT for it. `where`: a number below 8, one place each. */
void rig_send_indirect(struct rig_client *client, const void *bytes, uint32_t length, uint64_t id, unsigned where);
/* Steps until the reply with that id has come. */
const struct rig_reply *rig_reply_of(struct rig_client *client, uint64_t id);
/* NULL when it has not come. */
const struct rig_reply *rig_find_reply(const struct rig_client *client, uint64_t id);
uint32_t rig_count_replies(const struct rig_client *client, uint64_t id);
void rig_text_of(const struct rig_reply *reply, char text[WIRE_ERROR_TEXT_MAX + 1]);

/* Each encodes into the buffer and returns the length. */
uint32_t rig_ping(uint8_t *bytes, uint64_t id);
uint32_t rig_lookup(uint8_t *bytes, uint32_t capacity, uint64_t id, uint32_t digests);
/* One run of blocks from `first_block` on. first_chunk is the number of the object in L1 as well. */
uint32_t rig_transfer(
	uint8_t *bytes, uint16_t type, uint64_t id, uint32_t first_chunk, uint32_t chunks, uint32_t first_block);
/* Every block by itself, in the order of `blocks`. */
uint32_t rig_scattered(uint8_t *bytes, uint32_t capacity, uint16_t type, uint64_t id, uint32_t first_chunk,
	uint32_t chunks, const uint32_t *blocks);

/* Makes it keep step with the client (protocol/message.h): `order` as it is, with these flags. */
uint32_t rig_ordered(uint8_t *bytes, uint32_t length, uint16_t flags, const struct transfer_order *order);
/* A word of the client's memory that nothing else uses; number below 1024. */
uint32_t *rig_word(const struct rig_client *client, uint32_t number);

/* The management core: gives a request back as TRANSFER over the objects first_chunk .., or as REPLY. */
void rig_begin_transfer(struct rig *rig, struct request *request);
void rig_reply(struct rig *rig, struct request *request, uint16_t status);
void rig_abort(struct rig *rig, struct request *request);
struct request *rig_take_request(struct rig *rig); /* the oldest of the inbox; steps until there is one */
struct request *rig_take_done(struct rig *rig);

/* One turn of a part of the rig, for rig_step. */
void rig_client_step(struct rig_client *client);
void rig_management_step(struct rig *rig);
void rig_tell(struct rig *rig, enum to_worker kind, void *object, uint64_t word);

uint8_t *rig_object(const struct rig *rig, uint32_t chunk);
uint8_t *rig_block(const struct rig_client *client, uint32_t plane, uint32_t block);
/* Fills with bytes that only (salt, plane, block of the object) decide. */
void rig_fill_object(struct rig *rig, uint32_t chunk, uint8_t salt);
void rig_fill_block(struct rig_client *client, uint32_t block, uint32_t position, uint8_t salt);
void rig_assert_block(const struct rig_client *client, uint32_t block, uint32_t position, uint8_t salt);
void rig_assert_object(const struct rig *rig, uint32_t chunk, uint8_t salt);
/* Guards between objects and blocks that no test filled are as they were. */
void rig_assert_guards(const struct rig *rig);

#define RIG_COUNT(rig, name) kvr_load_relaxed(&worker_counters((rig)->worker)->name)

KVR_END_C

#endif
