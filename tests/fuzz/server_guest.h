/* server_guest.h - raw clients of the fuzz target `server`: what they hear is checked, what they say comes from the input. */
#ifndef KVRAIL_TESTS_FUZZ_SERVER_GUEST_H
#define TENANTS 3 /* by uid 1000, 1001, 1002; the last has a quota */
#define KVRAIL_TESTS_FUZZ_SERVER_GUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "mgmt/server.h"
#include "protocol/wire.h"
#include "tier/sim_adapter.h"
#include "verbs/sim/fabric.h"

#define GUESTS 3u
#define BUFFERS 8u
#define POOL_BYTES 65536u
#define CHUNK_TOKENS 4u
#define SECRET "what the house knows"
#define SECRET_KEY "house key"

struct guest {
	struct verbs_device *device;
	struct stream *stream;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *buffers_mr, *pool_mr;
	uint8_t *buffers; /* receives, then one for sending */
	uint8_t *pool;
	uint8_t inbox[8192];
	size_t inbox_length;
	bool connected;
	bool gathers; /* HELLO_REPLY said so: a SEND may hold several messages ... */
	uint32_t held_bytes;
	uint8_t held[WIRE_INLINE_BYTES]; /* ... these, before the next one */
	uint32_t region, registration;   /* the last ones that the server gave */
	uint64_t next_id;
	uint8_t challenge[32]; /* of the last HELLO_REPLY */
};

struct world {
	const uint8_t *data;
	size_t size;
	uint64_t now_ns;
	struct sim_fabric *fabric;
	struct verbs_device *device;
	struct server *server;
	struct server_options options;
	struct control_tenant tenants[TENANTS];
	struct l1_area area;
	struct sim_place *place; /* L2 */
	struct sim_adapter_options place_faults;
	struct l2_options l2;
	struct guest guests[GUESTS];
	bool draining;
	struct clear_job clear; /* the operator's, while `clearing` */
	bool clearing;
};

static inline void demand(bool holds)
{
	if (!holds)
		abort();
}

/* The next byte of the input; zeros behind its end. */
static inline uint32_t take(struct world *world)
{
	if (world->size == 0)
		return 0;
	world->size--;
	return *world->data++;
}

/* Everybody has a turn: the server, the network, and the guests, who read what has come. */
void turns(struct world *world, uint32_t count);
/* A new process in the place of the old one, which dies: it has opened its control stream. */
void guest_begin(struct world *world, struct guest *guest);
/* Its process is gone: nothing of it is touched any more. */
void guest_kill(struct world *world, struct guest *guest);

/* server_say.c: one message or several, of a guest that is there. `what` and the bytes that follow in the input choose. */
void say_hello(struct world *world, struct guest *guest);
void say_authenticate(struct world *world, struct guest *guest);
void say_connect(struct world *world, struct guest *guest);
void say_memory(struct world *world, struct guest *guest);
void say_register(struct world *world, struct guest *guest);
void say_unregister(struct world *world, struct guest *guest);
/* All of a good client's beginning. */
void say_everything(struct world *world, struct guest *guest);
void say_transfer(struct world *world, struct guest *guest, uint16_t type);
void say_session_request(struct world *world, struct guest *guest, uint32_t what);
void say_other(struct world *world, struct guest *guest, uint32_t what);

#endif
