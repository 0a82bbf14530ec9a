/* control_private.h - the control thread's own structs, shared by the control_*.c files only. */
#ifndef KVRAIL_MGMT_CONTROL_PRIVATE_H
#define KVRAIL_MGMT_CONTROL_PRIVATE_H

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/helper.h"
#include "base/list.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "mgmt/control.h"
#include "protocol/digest.h"

KVR_BEGIN_C

#define CONTROL_REGIONS_MAX 256u      /* memory regions of one client */
#define CONTROL_REGISTRATIONS_MAX 64u /* of one client */
#define CONTROL_RECEIVE_STEP 65536u
/* Sockets that have not said who they are. One more, and the oldest goes: who says nothing keeps nobody out. */
#define CONTROL_STRANGERS_MAX 64u
#define CONTROL_NO_SLOT UINT32_MAX
/* Lines about refused and closed clients: so many at once, then one each interval. */
#define CONTROL_LINES_MAX 64u
#define CONTROL_LINE_NS (100 * KVR_MS)

enum client_state {
	CLIENT_HELLO,     /* waits for HELLO */
	CLIENT_CHALLENGE, /* waits for AUTHENTICATE */
	CLIENT_READY,     /* waits for CONNECT */
	CLIENT_CONNECTED, /* its queue pair is served */
	CLIENT_DETACHING, /* the socket is closed; the management core lets go of the connection */
	CLIENT_TEARDOWN,  /* the reclaim helper destroys the queue pair and unmaps */
};

enum client_job_kind {
	CLIENT_JOB_NONE,
	CLIENT_JOB_CONNECT,
	CLIENT_JOB_RAIL,
	CLIENT_JOB_IMPORT,
	CLIENT_JOB_FORGET,
	CLIENT_JOB_TEARDOWN
};

/* One blocking matter of a client at a time; its messages wait meanwhile. */
struct client_job {
	struct helper_job job;
	void (*execute)(struct client_job *job); /* on the helper */
	enum client_job_kind kind;
	bool waiting; /* the helper was full: submit again */
	struct control_client *client;
	struct wire_header header; /* of the message that asked for it */
	/* CONNECT, of the home rail or of another */
	struct verbs_qp_options qp_options;
	struct verbs_device *device;
	struct stream_peer peer;
	uint8_t address[WIRE_ADDRESS_MAX]; /* the client's, then ours */
	uint32_t address_length;
	int fds[STREAM_FDS_MAX]; /* the client's, closed when the job is back */
	unsigned fd_count;
	int reply_fds[STREAM_FDS_MAX]; /* the driver's */
	unsigned reply_fd_count;
	uint32_t rail, rail_device;
	struct ibv_qp *old_qp, *rail_qp; /* what it had before, NULL: nothing; what it has now */
	/* IMPORT, FORGET */
	struct verbs_remote_memory memory;
	uint32_t rkeys[WIRE_RAILS_MAX];
	struct verbs_import import;
	uint32_t region;
};

struct control_client {
	struct list_node node;
	struct control *control;
	struct stream *stream;    /* NULL once the conversation is over */
	struct stream *lingering; /* its end tells the client that nothing touches its memory any more */
	enum client_state state;
	uint64_t deadline_ns; /* of the handshake */
	uint64_t connected_ns;
	bool close_after_send; /* an error that ends the conversation */
	bool announced;        /* ATTACH was sent: DETACH and DETACHED must follow */
	bool answer_pending;   /* the management core has its REGISTER or UNREGISTER */
	char name[64];
	uint32_t tenant; /* index in control->tenants */
	bool tenant_known;
	uint8_t challenge[32];
	char wanted_tenant[WIRE_NAME_MAX + 1];
	uint32_t version;
	uint32_t features;
	uint32_t credits;
	char driver[32];
	struct text inbox;       /* received and not yet consumed */
	uint64_t received_bytes; /* since the beginning: the inbox holds the last of them */
	struct text outbox;
	size_t sent;                 /* of the outbox */
	int out_fds[STREAM_FDS_MAX]; /* go with the byte at out_fd_at of the outbox; the driver's, not closed here */
	unsigned out_fd_count;
	size_t out_fd_at;
	int fds[STREAM_FDS_MAX]; /* received, not yet claimed by a message */
	unsigned fd_count;
	uint64_t fd_ends[STREAM_FDS_MAX]; /* received_bytes when it came: it belongs to a message that began before */
	struct client_job job;
	uint32_t region_count; /* in use */
	uint64_t region_bytes;
	uint32_t registration_count;
	struct registration *registrations[CONTROL_REGISTRATIONS_MAX];
	uint32_t slot;                          /* = connection.number; CONTROL_NO_SLOT: a stranger */
	struct verbs_device *device;            /* of its worker; NULL before CONNECT */
	uint32_t rail_attempts[WIRE_RAILS_MAX]; /* that came to nothing: another device is tried next */
	struct connection connection;
};

struct control_request {
	struct list_node node;
	void (*status_done)(void *context, struct status_snapshot *snapshot);
	void (*clear_done)(void *context, struct clear_job *job);
	void (*quota_done)(void *context, struct quota_job *job);
	void (*pin_done)(void *context, struct pin_job *job);
	void *context;
};

struct control {
	struct control_options options;
	struct worker *workers[64];
	uint32_t worker_connections[64];
	struct control_tenant *tenants;
	struct control_counters counters;
	struct digester digester;
	struct random random;
	/* A slow import holds up no handshake, and unmapping that is stuck in the kernel neither of them (pitfalls
	 * B03, C01). */
	struct helper *connector; /* makes queue pairs */
	struct helper *importer;  /* maps memory */
	struct helper *reclaim;   /* unmaps memory, destroys queue pairs */
	struct list_node clients;
	struct list_node requests;     /* of the operator, not answered yet */
	struct control_client **slots; /* by connection number */
	uint32_t client_count;         /* strangers included */
	uint32_t stranger_count;
	uint32_t lines_said, lines_left_out; /* since lines_ns */
	uint64_t lines_ns;
	uint32_t next_registration;
	bool draining, drained, watch_changed;
	unsigned held; /* enum control_hold */
	uint64_t now_ns;
};

/* control_client.c */
void control_client_send(
	struct control_client *client, const void *bytes, size_t length, const int *fds, unsigned fd_count);
/* An error reply to a message with that header; printf words. */
void control_client_send_error(struct control_client *client, const struct wire_header *header, uint16_t status,
	const char *format, ...) KVR_PRINTF(4, 5);
/* What a decoder found wrong; ends the conversation before the end of the handshake. */
void control_client_send_malformed(
	struct control_client *client, const struct wire_header *header, const struct wire_error *error);
/* A reply that `encode` made; `length` negative is an internal fault. */
void control_client_reply_done(
	struct control_client *client, const struct wire_header *header, const void *bytes, ssize_t length);
/* The reply header for a request's header. */
struct wire_header control_client_reply_header(
	const struct control_client *client, const struct wire_header *request, uint16_t status);
bool control_client_step(struct control_client *client);
/* Closes the socket and begins whatever taking apart is needed. */
void control_client_close(struct control_client *client, const char *why);
/* Nothing of the server touches the client's memory any more: the client is told by the end of its stream. */
void control_client_quiet(struct control_client *client);
/* The management core has let go of it, or never heard of it: its queue pair and memory go, after a job that is under
 * way. */
void control_client_teardown(struct control_client *client);
/* All of that has happened. */
bool control_client_over(const struct control_client *client);
/* Frees the object; its queue pair and memory are gone. */
void control_client_free(struct control_client *client);
/* The next descriptor that came with the message at hand, the caller's from now on; -1: none. */
int control_client_claim_fd(struct control_client *client);
/* Gives a stranger its place among the connections. False: there is none, and it was told so. */
bool control_client_place(struct control_client *client, const struct wire_header *header);
void control_client_submit_job(
	struct control_client *client, enum client_job_kind kind, const struct wire_header *header);
bool control_post(struct control *control, uint32_t kind, void *object, uint64_t word);

/* control_handshake.c, control_memory.c, control_register.c: one handler a message. */
void control_client_on_hello(struct control_client *client, const struct wire_header *header, const uint8_t *bytes);
void control_client_on_authenticate(
	struct control_client *client, const struct wire_header *header, const uint8_t *bytes);
void control_client_on_connect(struct control_client *client, const struct wire_header *header, const uint8_t *bytes);
/* control_rail.c: CONNECT of one more rail. */
void control_client_on_rail(struct control_client *client, const struct wire_header *header, const uint8_t *bytes);
void control_client_rail_run(struct client_job *job);
void control_client_rail_done(struct control_client *client, int result);
uint32_t control_client_list_rails(
	const struct control_client *client, struct control_rail_status rails[WIRE_RAILS_MAX]);
void control_client_rail_closed(struct control_client *client);
/* On the helper that takes the client apart. */
void control_client_destroy_rails(struct control_client *client);
void control_client_on_memory(struct control_client *client, const struct wire_header *header, const uint8_t *bytes);
void control_client_on_forget_memory(
	struct control_client *client, const struct wire_header *header, const uint8_t *bytes);
void control_client_on_register(struct control_client *client, const struct wire_header *header, const uint8_t *bytes);
void control_client_on_unregister(
	struct control_client *client, const struct wire_header *header, const uint8_t *bytes);

/* What the helper did, back on the control thread. */
void control_client_connect_done(struct control_client *client, int result);
void control_client_import_done(struct control_client *client, int result);
/* No INDIRECT reads from the region of its FORGET_MEMORY any more. */
void control_client_forgotten(struct control_client *client);
void control_client_forget_done(struct control_client *client, int result);
void control_client_job_run(struct helper_job *helper_job);
void control_client_teardown_run(struct client_job *job);
void control_client_connect_run(struct client_job *job);
void control_client_import_run(struct client_job *job);
void control_client_forget_run(struct client_job *job);

void control_registered(struct control *control, struct registration *registration);
void control_unregistered(struct control *control, struct registration *registration);

KVR_END_C

#endif
