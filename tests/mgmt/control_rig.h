/*
 * control_rig.h - a whole server on the simulated fabric, and clients' ends of control streams to which a test writes
 * messages by
 * hand. One thread, virtual time.
 */
#ifndef KVRAIL_TESTS_MGMT_CONTROL_RIG_H
#define KVRAIL_TESTS_MGMT_CONTROL_RIG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "mgmt/server.h"
#include "protocol/message.h"
#include "verbs/sim/fabric.h"

#define RIG_TENANTS 3
#define RIG_BOOT UINT64_C(0x1234567890abcdef)
#define RIG_CLIENTS 4
#define RIG_CHUNK_TOKENS 16u
#define RIG_LINES 32
#define RIG_LINE 240
#define RIG_MESSAGE 4096u

/* What a test puts in the place of the simulator's calls; NULL: the simulator's. */
struct rig_calls {
	int (*create_qp)(struct verbs_device *device, const struct verbs_qp_options *options, struct ibv_qp **qp);
	int (*import_memory)(struct ibv_qp *qp, const struct verbs_remote_memory *memory, struct verbs_import *import);
	void (*forget_memory)(struct ibv_qp *qp, uint32_t rkey);
	void (*destroy_qp)(struct ibv_qp *qp);
	int (*register_memory)(
		struct verbs_device *device, void *address, uint64_t length, int access, struct ibv_mr **mr);
};

struct rig {
	struct sim_fabric *fabric;
	struct verbs_device *server_device, *client_device;
	struct verbs_driver driver; /* the server's: verbs_sim with the test's calls */
	struct ibv_cq *client_cq;
	struct l1_area area;
	struct control_tenant tenants[RIG_TENANTS];
	struct server_options options;
	struct server *server;
	uint64_t now_ns;
	bool management_stands; /* rig_step leaves the management core and the workers out */
	/* lines of the log since rig_forget_lines */
	unsigned line_count;
	char lines[RIG_LINES][RIG_LINE];
};

/* A client's end. */
struct peer {
	struct rig *rig;
	struct stream *stream; /* NULL: closed by the test */
	struct ibv_qp *qp;
	uint64_t next_id;
	uint8_t received[RIG_MESSAGE];
	uint32_t length;  /* of them */
	uint32_t message; /* of the last reply, at the beginning */
	bool ended;
	struct wire_header header;          /* of the last reply */
	char text[WIRE_ERROR_TEXT_MAX + 1]; /* of an error reply */
};

#define PEER_CLOSED (-1)

/* Options that a test may change before rig_start. Tenants: "default", "red" by uid 2000, "blue" by key "blue-key". */
void rig_prepare(struct rig *rig);
void rig_start(struct rig *rig);
/* prepare and start. */
void rig_make(struct rig *rig);
/* Drains; nothing may be left. */
void rig_stop(struct rig *rig);
void rig_step(struct rig *rig);
void rig_steps(struct rig *rig, unsigned count);
/* Steps until the server has so many clients. */
void rig_settle(struct rig *rig, uint32_t clients);
void rig_use(struct rig *rig, const struct rig_calls *calls);
/* Threads of the server's helpers call the simulator only under this lock, which rig_step holds. */
pthread_mutex_t *rig_lock(void);
/* Lines of the log that contain the words. */
unsigned rig_lines_with(const struct rig *rig, const char *words);
void rig_forget_lines(struct rig *rig);
const struct control_counters *rig_counters(struct rig *rig);

/* A new stream, accepted; returns what control_accept said. */
int peer_open(struct rig *rig, struct peer *peer);
/* As over TCP: the kernel does not say who it is. */
int peer_open_tcp(struct rig *rig, struct peer *peer);
int peer_open_uid(struct rig *rig, struct peer *peer, uid_t uid);
void peer_close(struct peer *peer);
/* The queue pair of its own and the stream, whatever is left. */
void peer_fini(struct peer *peer);

void peer_send(struct peer *peer, const void *bytes, size_t length, const int *fds, unsigned fd_count);
/* Steps until a whole reply has come: its status; PEER_CLOSED when the stream ended instead. */
int peer_reply(struct peer *peer);
/* Takes in what is there; true when the stream has ended. */
bool peer_look(struct peer *peer);

/* Messages, into RIG_MESSAGE bytes; their length. */
size_t make_hello(uint8_t *bytes, const char *driver, const char *tenant);
size_t make_authenticate(uint8_t *bytes, const uint8_t *challenge, const char *key, const char *secret, uint8_t nonce);
size_t make_connect(uint8_t *bytes, struct peer *peer);
size_t make_memory(uint8_t *bytes, uint64_t address, uint64_t length, uint32_t rkey);
size_t make_memory_shared(uint8_t *bytes, uint64_t address, uint64_t length);
size_t make_forget(uint8_t *bytes, uint32_t region);
/* planes 0: a scheduler's. */
size_t make_register(uint8_t *bytes, const char *model, uint32_t planes, uint64_t address, uint32_t region);
size_t make_unregister(uint8_t *bytes, uint32_t registration);
size_t make_type(uint8_t *bytes, uint16_t type);

/* Sends and waits for the reply's status. */
int peer_ask(struct peer *peer, const uint8_t *bytes, size_t length);
int peer_hello(struct peer *peer);
int peer_connect(struct peer *peer);
/* Opens, HELLO, CONNECT; asserts. */
void peer_join(struct rig *rig, struct peer *peer);
int peer_memory(struct peer *peer, uint64_t address, uint64_t length, uint32_t *region);
int peer_forget(struct peer *peer, uint32_t region);
int peer_register(struct peer *peer, uint32_t planes, uint64_t address, uint32_t region, uint32_t *registration);
int peer_unregister(struct peer *peer, uint32_t registration);

#endif
