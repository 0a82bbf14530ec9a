/*
 * fake.h - a stepped client on the simulated fabric, and on the other side a server made by hand: it says what a test wants it to
 * say, so that every reply can be sent, also those that no server of ours sends.
 */
#ifndef KVRAIL_TESTS_CLIENT_FAKE_H
#define KVRAIL_TESTS_CLIENT_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/client.h"
#include "protocol/message.h"
#include "verbs/sim/fabric.h"

#define FAKE_CHUNK_TOKENS 16
#define FAKE_BLOCK_TOKENS 4
#define FAKE_BLOCKS 64
#define FAKE_BLOCK_BYTES 64
#define FAKE_REQUESTS 512
#define FAKE_RECEIVES 160
#define FAKE_SENDS 64

struct fake_request {
	struct wire_header header;
	uint32_t length;
	uint8_t bytes[WIRE_INLINE_BYTES];
};

struct fake {
	struct sim_fabric *fabric;
	struct verbs_device *device, *client_device;
	struct kvr_client *client;
	struct kvr_options options;
	uint64_t now_ns;
	uint64_t boot_id;
	struct server_info info; /* what HELLO_REPLY says */

	unsigned attempts; /* connections that the client has begun */
	uint64_t attempt_ns[64];
	uint32_t spoil;    /* offset + 1 of a byte of the next thing said that is turned over; 0: none */
	int connect_error; /* what the client's connect gets instead of a stream */

	struct stream *stream; /* the server's end; NULL: none */
	uint8_t control[65536];
	uint32_t control_length;
	uint8_t message[65536]; /* the last one that fake_control gave */
	struct wire_header header;

	struct ibv_cq *cq;
	struct ibv_qp *qp;
	bool started;
	struct ibv_mr *mr;
	uint8_t *buffers; /* FAKE_RECEIVES, then FAKE_SENDS, of WIRE_INLINE_BYTES */
	uint32_t sends;
	struct fake_request *requests; /* FAKE_REQUESTS; those that came */
	uint32_t request_count, request_next;
	uint32_t sends_received; /* with FEATURE_SEVERAL_MESSAGES in info.features each may hold several requests */
	uint32_t region;         /* number of the last MEMORY */
	uint32_t large_region;

	uint8_t *pool; /* FAKE_BLOCKS blocks of one plane */
};

/* A fabric, both devices, and a client that has not taken a step. `options` NULL: KVR_OPTIONS_INIT. Asserts, as all below. */
void fake_start(struct fake *fake, uint64_t seed, const struct kvr_options *options);
void fake_stop(struct fake *fake);

/* One turn; the clock goes to the next event. */
void fake_step(struct fake *fake);
void fake_steps(struct fake *fake, unsigned count);
/* Turns for so long a virtual time. */
void fake_pass(struct fake *fake, uint64_t ns);

/* The next message of the client on the control stream, which must have this type. fake->header is its header. */
const uint8_t *fake_control(struct fake *fake, uint16_t type);
void fake_say(struct fake *fake, const void *bytes, size_t length);
/* Answers the last control message with an error. */
void fake_refuse(struct fake *fake, uint16_t status, const char *text);
/* Answers the last control message without a body. */
void fake_reply_control(struct fake *fake);
void fake_say_hello(struct fake *fake, bool challenge);
void fake_say_connect(struct fake *fake);
/* MEMORY_REPLY with this number. */
void fake_say_memory(struct fake *fake, uint32_t region);
void fake_say_registered(struct fake *fake, uint32_t registration);
/* Whatever is needed until the client is ready. */
void fake_ready(struct fake *fake);
/* Registers the pool (fake_layout); returns the client's number. The server's is 7. */
uint32_t fake_register(struct fake *fake);
int fake_submit_register(struct fake *fake, const char *name, uint32_t *registration, kvr_ticket *ticket);
struct kvr_session *fake_session(struct fake *fake, uint32_t registration, const char *id, uint32_t chunks);

/* The next request on the queue pair, which must have this type. */
struct fake_request *fake_request(struct fake *fake, uint16_t type);
/* How many have come and were not asked for. */
uint32_t fake_waiting(const struct fake *fake);
void fake_reply(struct fake *fake, const void *bytes, size_t length);
/* Reply headers: type + 1, this id. */
struct wire_header fake_reply_header(const struct fake *fake, const struct wire_header *request);
void fake_reply_empty(struct fake *fake, const struct wire_header *request);
void fake_reply_error(struct fake *fake, const struct wire_header *request, uint16_t status, const char *text);
void fake_reply_lookup(struct fake *fake, const struct wire_header *request, uint16_t status, uint32_t matched);
void fake_reply_transfer(
	struct fake *fake, const struct wire_header *request, uint32_t chunks, uint8_t outcome, uint16_t status);

/* The server is gone: stream and queue pair. */
void fake_drop(struct fake *fake);
/* Turns until the ticket is done: its error. */
int fake_wait(struct fake *fake, kvr_ticket ticket, struct kvr_result *result);
/* Turns until the client's connection has failed and been taken apart; its error, with words that must hold `words`. */
int fake_failure(struct fake *fake, const char *words);
/* A transfer of `chunks` chunks from chunk 0, blocks in order. ids: FAKE_BLOCKS of them. */
struct kvr_transfer fake_transfer(struct kvr_blocks *blocks, uint32_t *ids, uint32_t chunks, uint8_t *outcomes);

uint32_t fake_free_slots(const struct fake *fake);
/* fake_start, fake_ready, fake_register, fake_session. */
struct kvr_session *fake_begin(struct fake *fake, uint32_t chunks);
/* The session goes; no ticket, credit or long buffer is out; fake_stop. */
void fake_finish(struct fake *fake, struct kvr_session **session);

#endif
