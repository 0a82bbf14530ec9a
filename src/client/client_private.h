/* client_private.h - the client's own structs, shared by the files of src/client only. */
#ifndef KVRAIL_CLIENT_PRIVATE_H
#define KVRAIL_CLIENT_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/list.h"
#include "base/log.h"
#include "base/random.h"
#include "base/stream.h"
#include "base/text.h"
#include "client/client.h"
#include "gpu/export.h"
#include "protocol/digest.h"
#include "protocol/message.h"
#include "verbs/driver.h"

KVR_BEGIN_C

#define CLIENT_SLOTS 256u       /* tickets that can exist at once */
#define CLIENT_LARGE_BUFFERS 4u /* requests above WIRE_INLINE_BYTES that can exist at once */
#define CLIENT_LAYER_SETS 32u   /* retrieves with layers that can exist at once */
#define CLIENT_LAYERS_MAX 512u  /* of one of them */
#define CLIENT_MARKS 1024u      /* not reached at once */
#define CLIENT_WORDS_BYTES (4u * (CLIENT_LAYER_SETS * CLIENT_LAYERS_MAX + CLIENT_MARKS))
#define CLIENT_REGIONS_MAX 1024u
#define CLIENT_REGISTRATIONS_MAX 64u
#define CLIENT_CHUNK_TOKENS_MAX 65536u
#define CLIENT_LOOK_NS KVR_MS /* how often a control stream is read that has nothing to say but its end */
#define CLIENT_HOME_PATIENCE_NS (2 * KVR_SECOND) /* a connection outlives a port of ours that is down for less */
#define CLIENT_HEALTH_LOOK_NS (500 * KVR_MS)
#define CLIENT_BACKOFF_MIN_NS (100 * KVR_MS)
#define CLIENT_BACKOFF_MAX_NS (5 * KVR_SECOND)

/* Credits that the client can use: receive buffers it has. */
#define CLIENT_CREDITS_MAX 128u
#define CLIENT_RECEIVE_FLAG ((uint64_t)1 << 32)

enum connection_state {
	CONNECTION_DOWN,      /* waits for retry_ns */
	CONNECTION_HELLO,     /* HELLO is sent */
	CONNECTION_PROOF,     /* AUTHENTICATE is sent */
	CONNECTION_CONNECT,   /* CONNECT is sent */
	CONNECTION_RESTORING, /* the queue pair stands: memory and registrations are being made known */
	CONNECTION_READY,
	CONNECTION_CLOSING, /* lost: waiting for the queue pair to be idle */
	CONNECTION_FAILED,  /* lost, and will not be tried again */
};

enum slot_state { SLOT_FREE, SLOT_CONTROL, SLOT_QUEUED, SLOT_SENT, SLOT_DONE };

/* One ticket. Its request id on the wire is the ticket. */
struct slot {
	struct list_node
		node; /* free list, the queue of those that wait for credit, or those that wait for a large buffer */
	kvr_ticket ticket; /* generation << 16 | index */
	enum slot_state state;
	uint16_t type;   /* of the request */
	bool sending;    /* the send's completion has not come */
	bool taken;      /* the result was taken, or is not wanted: free it when the send has completed */
	bool discard;    /* nobody will take the result */
	bool with_chain; /* the request carried the whole chain: no second try */
	bool again;      /* to be sent again with the whole chain once the send has completed and there is room */
	uint32_t length; /* of the encoded message */
	uint32_t large;  /* index of its large buffer, UINT32_MAX: none */
	uint8_t *bytes;  /* its own WIRE_INLINE_BYTES */
	struct kvr_session *session;
	uint8_t *outcomes; /* the caller's */
	uint32_t chunk_count;
	uint32_t layer_set, layer_value;
	uint32_t layer_count; /* 0: it has no set */
	uint32_t chain_end;   /* chunks of the session that the server knows once this has succeeded */
	struct kvr_result result;
};

enum rail_state {
	RAIL_DOWN,    /* waits for retry_ns */
	RAIL_ASKED,   /* CONNECT is sent */
	RAIL_UP,      /* the server may use it */
	RAIL_CLOSING, /* lost: until its queue pair is idle something may still come through it */
};

/* A device of ours. The connection's requests go through one of them, its home; the server may move data through all. */
struct client_rail {
	struct verbs_device *device;
	struct ibv_cq *cq;
	struct ibv_mr *buffer_region;
	/* of one that is not home */
	enum rail_state state;
	struct ibv_qp *qp;
	bool started;
	uint64_t retry_ns, backoff_ns, up_ns;
};

/* Memory that the server is to reach. */
struct client_region {
	uint64_t address, length;
	struct ibv_mr *mr; /* with the first device; with the others: client->rail_mrs */
	uint32_t users;    /* registrations; the message area has one for ever */
	bool announced;    /* on this connection */
	bool announcing;
	uint32_t number; /* the server's */
	bool allocated;  /* by kvr_alloc: freed by kvr_free */
	bool unwanted;   /* kvr_free was called: goes once the server has forgotten it */
	bool refused;    /* by the server, on this connection: the registrations that need it have failed */
	bool on_gpu;     /* it is GPU memory: */
	bool by_handle;  /* which the server maps; else a region of the adapter's */
	struct gpu_export gpu;
};

struct client_registration {
	bool used;
	bool wanted;            /* false: UNREGISTER is under way */
	bool standing;          /* on this connection */
	bool failed;            /* the server refused it after a reconnect ... */
	char failure[200];      /* ... with these words */
	uint32_t number;        /* the server's */
	uint32_t serial;        /* tells it from those that had its place before */
	kvr_ticket ticket;      /* of REGISTER or UNREGISTER; 0: none waits */
	struct kvr_model model; /* strings are copies */
	uint8_t fingerprint[32];
	uint32_t group_count;
	struct wire_group groups[WIRE_GROUPS_MAX];
	struct wire_plane *planes; /* .region is our region's index until it is encoded */
	uint32_t plane_count;
	uint64_t object_bytes;
};

struct kvr_session {
	struct list_node node;
	struct kvr_client *client;
	uint32_t registration; /* our index */
	uint32_t serial;       /* of that registration */
	uint32_t id_length;
	char id[WIRE_SESSION_ID_MAX];
	uint8_t salt[WIRE_DIGEST_BYTES];
	uint8_t *digests;
	uint32_t chunk_count;
	uint32_t chunk_capacity;
	uint32_t known_chunks;     /* that the server has seen in this session ... */
	uint64_t known_connection; /* ... on this connection */
	uint32_t in_flight;        /* tickets */
};

enum control_operation {
	OPERATION_NONE,
	OPERATION_MEMORY,
	OPERATION_FORGET,
	OPERATION_REGISTER,
	OPERATION_UNREGISTER,
	OPERATION_RAIL
};

struct kvr_client {
	pthread_mutex_t lock; /* kvrail.h's; client_* calls expect it held or no other thread */
	/* Of threads that wait one sleeps on the descriptors; the others sleep until it tells them that it has woken up. */
	pthread_cond_t news;
	bool watched;
	/* A page that the kernel wipes in a child of fork, which must not use the client. */
	const char *fork_marker;
	struct client_options options;
	char *strings[8]; /* copies of the user's texts */
	struct verbs_device *device;
	bool owns_device; /* and those of all rails */
	struct client_rail rails[WIRE_RAILS_MAX];
	uint32_t rail_count;
	struct ibv_mr **rail_mrs; /* [region * (rail_count - 1) + rail - 1]; NULL with one rail */
	uint32_t home;            /* device, cq and buffer_region are those of this rail */
	uint32_t home_health;     /* its device's, when the connection was begun or when it was last looked at */
	uint64_t home_down_ns;    /* since when its port is down; 0: it is not */
	uint32_t rails_closing;
	/* Replies that came while rails were closing: whoever reads one may reuse blocks that these may still write to. */
	struct {
		uint32_t index, length;
	} held[CLIENT_CREDITS_MAX];
	uint32_t held_count;
	struct gpu_driver gpu; /* zeroed until GPU memory is registered */
	struct stream_address address;
	struct digester digester;
	struct random random;
	uint64_t now_ns;

	/* connection */
	enum connection_state state;
	uint64_t generation; /* counts connections */
	uint64_t retry_ns, attempt_ns, backoff_ns;
	bool come_back_late;   /* the loss was nobody's accident: the longest back-off */
	uint64_t ready_ns;     /* when the connection last became ready, 0: not since the last loss */
	uint32_t chunk_tokens; /* of the first connection: sessions and registrations are made for it */
	int failure;           /* of the last attempt */
	char failure_text[200];
	struct stream *stream;
	/* After a loss: its end says that the server touches our memory no more (verbs_driver.moved_by_peer). */
	struct stream *lingering;
	struct text inbox, outbox;
	size_t sent;
	uint64_t look_ns; /* a stream on which nothing is under way is read again then */
	int fds[STREAM_FDS_MAX];
	unsigned fd_count;
	int out_fd; /* goes with the byte at out_fd_at; the driver's */
	size_t out_fd_at;
	uint64_t control_id;       /* request id of the control message under way */
	struct server_info server; /* texts point into the two below */
	char server_name[WIRE_NAME_MAX + 1], tenant_name[WIRE_NAME_MAX + 1];
	uint64_t boot_id;
	uint64_t reconnects;
	uint8_t secret[256];
	uint32_t secret_length;

	/* control operations, one at a time */
	enum control_operation operation;
	uint32_t operation_index;
	bool unsettled; /* what is wanted may differ from what the server knows: to be looked at */
	struct client_region regions[CLIENT_REGIONS_MAX];
	struct client_registration registrations[CLIENT_REGISTRATIONS_MAX];
	uint32_t next_serial;

	/* queue pair */
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	bool started;
	uint32_t credits, in_flight, sends_posted;
	bool gathers;     /* a SEND of either side may hold several messages */
	uint32_t holds;   /* callers that have more requests coming: what is queued waits for them ... */
	uint32_t waiters; /* ... unless somebody waits for an answer */
	uint8_t *buffers; /* CLIENT_SLOTS send buffers, then as many receive buffers as credits_max */
	uint64_t buffer_bytes;
	struct ibv_mr *buffer_region;
	uint8_t *large; /* the message area: CLIENT_LARGE_BUFFERS of large_bytes, then the words of order.c */
	uint64_t large_bytes;
	uint32_t large_free[CLIENT_LARGE_BUFFERS];
	uint32_t large_free_count;
	uint32_t *words;     /* CLIENT_WORDS_BYTES: written by the server, or read by it */
	uint64_t layer_sets; /* bit i: set i is in use */
	uint32_t layer_values[CLIENT_LAYER_SETS];
	uint32_t mark_values[CLIENT_MARKS]; /* of the newest mark of each word */
	uint32_t next_mark;
	gpu_context words_context; /* in which the GPU's library knows the words; NULL: it does not */
	uint64_t words_on_gpu;     /* their address for streams */
	gpu_context
		flush_context; /* what an adapter wrote to GPU memory is flushed there before a RETRIEVE is done; NULL: no need */
	uint32_t word_waiters; /* threads that wait for words, of which no descriptor tells */

	/* kvr_event_fd's, -1 until it is called: an epoll set of completions, control stream and a timer. */
	int event_fd, event_timer;
	uint64_t event_generation;         /* the connection whose stream is in the set */
	enum connection_state event_state; /* when it was last armed */
	uint32_t done_count;               /* tickets whose result waits to be taken */

	struct slot *slots;
	struct list_node free_slots, queue, short_of_room;
	uint64_t next_generation;
	struct list_node sessions;
	uint8_t *scratch; /* block runs being made */
	size_t scratch_bytes;
};

/* connection.c */
bool connection_step(struct kvr_client *client);
/* Begins to take the connection apart; tickets end when the queue pair is idle. */
void connection_lose(struct kvr_client *client, int error, const char *format, ...) KVR_PRINTF(3, 4);
void connection_send(struct kvr_client *client, const void *bytes, ssize_t length);
struct wire_header connection_header(struct kvr_client *client, uint16_t type);

/* handshake.c: what is said on the control stream until the queue pair stands. */
void handshake_begin(struct kvr_client *client);
void handshake_message(struct kvr_client *client, const struct wire_header *header, const uint8_t *bytes);

/* rails.c */
/* Each device's completion queue and region for messages. */
KVR_MUST_CHECK int client_rails_create(struct kvr_client *client);
void client_rails_destroy(struct kvr_client *client);
/* Requests go through this one from now on; while nothing is connected. */
void client_rails_set_home(struct kvr_client *client, uint32_t home);
/* Which device is home's after a loss: the next one that is up. */
uint32_t client_rails_next_home(const struct kvr_client *client);
bool client_rails_step(struct kvr_client *client);
/* Loses the connection where home's device says that nothing comes through it any more. */
bool client_rails_look_at_home(struct kvr_client *client);
/* The server says of these (bits) that they have failed. */
void client_rails_out(struct kvr_client *client, uint32_t numbers);
/* The connection is lost: all fail. True when nothing comes through them any more, and they are gone. */
void client_rails_lose_all(struct kvr_client *client);
bool client_rails_gone(struct kvr_client *client);
/* One that may be asked for now; UINT32_MAX: none. */
uint32_t client_rails_wanted(const struct kvr_client *client);
void client_rails_ask(struct kvr_client *client, uint32_t number);
void client_rails_refused(struct kvr_client *client, uint32_t number);
void client_rails_connected(
	struct kvr_client *client, uint32_t number, const struct wire_header *header, const uint8_t *bytes);
uint64_t client_rails_next_ns(const struct kvr_client *client);

/* registration.c */
bool registration_step(struct kvr_client *client);
void registration_message(struct kvr_client *client, const struct wire_header *header, const uint8_t *bytes);
/* Nothing stands on a new connection. */
void registration_forget_all(struct kvr_client *client);
void registration_free(struct kvr_client *client, struct client_registration *registration);
/* The region that contains the range, or UINT32_MAX. */
uint32_t region_find(const struct kvr_client *client, uint64_t address, uint64_t length);
/* A new region over the range, registered with the device: 0 and *index, -ENOSPC, or the device's error. */
KVR_MUST_CHECK int region_make(struct kvr_client *client, uint64_t address, uint64_t length, uint32_t *index);
/* Deregisters it, and gives back what kvr_alloc had allocated, without asking. */
void region_free(struct kvr_client *client, struct client_region *region);
void region_release(struct kvr_client *client, uint32_t index);

/* gpu.c: GPU memory of this process. */
bool client_gpu_holds(struct kvr_client *client, uint64_t address);
/* Where the allocation of GPU memory at that address ends; UINT64_MAX: it is host memory. */
uint64_t client_gpu_end(struct kvr_client *client, uint64_t address);
/* 0, -EOPNOTSUPP, -EFAULT with words. */
KVR_MUST_CHECK int client_gpu_export(
	struct kvr_client *client, uint64_t address, uint64_t length, struct gpu_export *description);
/* The words' address for the streams of the thread's current context. 0, -EOPNOTSUPP, -EIO with words. */
KVR_MUST_CHECK int client_gpu_words(struct kvr_client *client);
/* The GPU's library forgets them. */
void client_gpu_forget_words(struct kvr_client *client);
/* GPU memory as a region of the adapter's: by a dma-buf, else as nvidia-peermem has it. 0, -EOPNOTSUPP, -EFAULT with words. */
KVR_MUST_CHECK int client_gpu_register(struct kvr_client *client, struct verbs_device *device, uint64_t address,
	uint64_t length, int access, struct ibv_mr **mr);
/* A RETRIEVE has ended well: what it wrote is seen by the GPU when this returns. 0, or -EIO with words in `reason`. */
KVR_MUST_CHECK int client_gpu_flush(struct kvr_client *client, char *reason, size_t size);
/* True while the server still has to forget GPU memory that no registration uses. */
bool client_gpu_forgetting(const struct kvr_client *client);
void client_gpu_fini(struct kvr_client *client);

/* queue.c: tickets, requests and replies on the queue pair. */
struct slot *slot_take(struct kvr_client *client, uint16_t type);
void slot_free(struct kvr_client *client, struct slot *slot);
/* Nobody will take its result: it is freed when it has ended. Not for transfers, whose memory is the caller's. */
void slot_abandon(struct kvr_client *client, struct slot *slot);
struct slot *slot_find(struct kvr_client *client, kvr_ticket ticket);
void slot_done(
	struct kvr_client *client, struct slot *slot, int error, uint16_t status, const char *text, size_t text_length);
KVR_MUST_CHECK int queue_create(struct kvr_client *client);
void queue_destroy(struct kvr_client *client);
KVR_MUST_CHECK int queue_connect(struct kvr_client *client);
void queue_post_receives(struct kvr_client *client);
bool queue_step(struct kvr_client *client);
/* queue_send.c: sends what is queued, as far as there are credits. True when it did. */
bool queue_send_waiting(struct kvr_client *client);
/* Reads the replies that were held. */
void queue_read_held(struct kvr_client *client);
/* Room for an encoded request of `length` bytes in the slot: its own buffer or a large one. NULL: -EBUSY (all large ones in use) or too big. */
uint8_t *queue_room(struct kvr_client *client, struct slot *slot, size_t length, int *error);
void queue_submit(struct kvr_client *client, struct slot *slot);
void queue_end_all(struct kvr_client *client, int error, const char *text);

/* order.c */
struct client_word {
	uint32_t *address;
	uint32_t value;
};
/* The flags and words of a transfer with so many layers (0: none), after a mark (0: none). 0, -EBUSY, -EOPNOTSUPP with words. */
KVR_MUST_CHECK int order_fill(struct kvr_client *client, struct slot *slot, uint32_t layers, kvr_mark after,
	struct transfer_request *request);
/* With slot->layer_count: the request has ended; nobody waits for its layers any more. */
void order_done(struct kvr_client *client, const struct slot *slot);
void order_free(struct kvr_client *client, struct slot *slot);
/* 0: it is there, or the request is done; -EAGAIN: *word will tell; -ENOENT, -ERANGE, or the request's error, with words. */
KVR_MUST_CHECK int client_layer(struct kvr_client *client, kvr_ticket ticket, uint32_t layer, struct client_word *word);
KVR_MUST_CHECK int client_mark_word(struct kvr_client *client, kvr_mark mark, struct client_word *word);

/* request.c */
/*
 * The server did not know the session's chain: sends the request again with all of it, at once or when its buffer and a large one are
 * free (queue.c calls again). False: it can't.
 */
bool request_again(struct kvr_client *client, struct slot *slot);

/* Sends a CANCEL if that helps. True: the ticket is gone, since it touches none of the caller's memory; false: it is to be waited for. */
bool request_abandon(struct kvr_client *client, kvr_ticket ticket);

/* public_event.c: after every public call, once kvr_event_fd was called. */
void events_arm(struct kvr_client *client);
void events_destroy(struct kvr_client *client);

/* public_wait.c: kvrail.h's lock, words and waiting. */
void error_text_set(const char *format, ...) KVR_PRINTF(1, 2);
/* Every public call begins with it: takes the lock, or refuses in a child of fork (-ECHILD). */
KVR_MUST_CHECK int client_enter(struct kvr_client *client);
void client_leave(struct kvr_client *client);
/* Steps until done(context) or the time is up: spins, then yields, then sleeps. Without the lock held. 0 or -ETIMEDOUT. */
int client_wait_until(struct kvr_client *client, uint64_t timeout_ns,
	bool (*done)(struct kvr_client *client, void *context), void *context);

KVR_END_C

#endif
