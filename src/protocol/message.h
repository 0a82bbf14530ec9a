/*
 * message.h - the structs of every message, and their codecs.
 *
 * decode: reads a whole message (header included) that begins at `bytes`; `length` bytes are there, and what lies
 *   behind the message is not looked at. Pointers in the struct point into the message: they live as long as its bytes.
 *   Every count and length is checked against its maximum before use, and everything that can be judged without knowing
 *   the server's state is judged here (docs/PROTOCOL.md lists the rules). 0, or -EBADMSG with *error filled, outputs
 *   undefined then. Reads nothing outside the message; allocates nothing. A reply with an error status is only for
 *   error_reply_decode: look at the header first.
 * encode: writes a whole message into `capacity` bytes; header fields type (where only one fits), length and
 *   fixed_length are filled in by it, the rest comes from the struct's `header`. Checks the rules of decode, so that
 *   what it writes the other side accepts. Returns the message's length, -EMSGSIZE (it does not fit), or -EINVAL (the
 *   struct breaks a rule: a text or count beyond its limit, a field out of range, a status or flag that does not go
 *   with the type); the bytes are undefined after an error. *_size gives the length beforehand, for messages that can
 *   be long.
 * Any thread; no state.
 */
#ifndef KVRAIL_PROTOCOL_MESSAGE_H
#define KVRAIL_PROTOCOL_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "protocol/wire.h"

KVR_BEGIN_C

/* Text on the wire: u16 length, bytes, no terminator. Not NUL-terminated here either. */
struct wire_text {
	const char *bytes;
	uint32_t length;
};

/* ---- control socket ------------------------------------------------------------------------------------------- */

enum hello_feature {
	FEATURE_FLAG_PER_LAYER = 1u << 0, /* enum transfer_flag */
	FEATURE_SEVERAL_GROUPS = 1u << 1,
	FEATURE_SEVERAL_MESSAGES = 1u << 2, /* in one SEND, wire_first_length tells them apart */
};

struct hello {
	struct wire_header header;
	uint16_t version_min, version_max;
	uint32_t features;       /* what the client could use */
	uint32_t want_credits;   /* requests in flight it would like; 0: the server's default */
	struct wire_text driver; /* "local", "nic", "sim" */
	struct wire_text client; /* a name for status pages: "vllm worker 3" */
	struct wire_text tenant; /* the tenant it expects to be bound to; empty: whatever its credential says */
};

enum hello_authentication { AUTHENTICATION_DONE = 0, AUTHENTICATION_CHALLENGE = 1 };

/* What a client must know of the server: in HELLO_REPLY, AUTHENTICATE_REPLY and GET_INFO_REPLY. */
struct server_info {
	uint32_t version;  /* protocol version in use */
	uint32_t features; /* usable on this connection */
	uint32_t chunk_tokens;
	uint32_t chunks_max; /* per request and chain */
	uint32_t message_bytes_max;
	uint32_t inline_bytes; /* receive buffer of the server */
	uint32_t credits;      /* requests this client may have in flight */
	uint32_t lock_seconds; /* life of a read lock */
	/* silence after which a client without control socket traffic is presumed stuck; 0: never */
	uint64_t heartbeat_ns;
	struct wire_text server; /* "kvraild 0.1.0" */
	struct wire_text tenant; /* the tenant that this connection is bound to */
};

struct hello_reply {
	struct wire_header header;
	struct server_info info;
	uint32_t authentication;  /* enum hello_authentication */
	const uint8_t *challenge; /* 32 bytes, with AUTHENTICATION_CHALLENGE */
};

/* proof = HMAC-SHA256(secret, "kvrail authenticate v1" || challenge || nonce || key name) */
struct authenticate {
	struct wire_header header;
	const uint8_t *nonce; /* 32 bytes of the client's */
	const uint8_t *proof; /* 32 bytes */
	struct wire_text key; /* name of the shared secret: it decides the tenant */
};

struct authenticate_reply {
	struct wire_header header;
	struct server_info info;
};

/* One per rail. The address is the driver's own bytes (verbs/driver.h); descriptors travel beside it. */
#define WIRE_ADDRESS_MAX 512u
struct connect_request {
	struct wire_header header;
	uint32_t rail;
	const uint8_t *address;
	uint32_t address_length;
};

struct connect_reply {
	struct wire_header header;
	uint32_t rail;
	const uint8_t *address;
	uint32_t address_length;
};

enum memory_kind {
	MEMORY_SHARED = 1,  /* a descriptor comes along: sealed memfd, mapped by the server */
	MEMORY_PROCESS = 2, /* ordinary memory of the client's process: process_vm_readv/writev */
	MEMORY_DEVICE = 3,  /* GPU memory by CUDA IPC handle in `handle` */
	MEMORY_REMOTE = 4,  /* reached by the NIC: one rkey per rail */
};

struct memory_request {
	struct wire_header header;
	uint64_t address;    /* the client's, first byte */
	uint64_t length;     /* bytes, > 0 */
	uint64_t offset;     /* of that byte in the descriptor or allocation */
	uint32_t kind;       /* enum memory_kind */
	uint32_t device;     /* GPU number, MEMORY_DEVICE */
	uint32_t rkey_count; /* MEMORY_REMOTE: rails */
	uint32_t rkeys[WIRE_RAILS_MAX];
	const uint8_t *handle; /* MEMORY_DEVICE */
	uint32_t handle_length;
};

struct memory_reply {
	struct wire_header header;
	uint32_t region; /* names the memory in REGISTER and INDIRECT on this connection */
};

struct forget_memory {
	struct wire_header header;
	uint32_t region;
};

/* Everything that decides whether two engines' bytes are the same. rank and readers are not part of the namespace. */
struct model_identity {
	struct wire_text model;     /* name, with adapter and version: whatever changes the bytes */
	struct wire_text dtype;     /* "bfloat16", "fp8_e4m3", ... of the KV bytes */
	const uint8_t *fingerprint; /* 32 bytes: layout and engine build (client/layout.h computes it) */
	uint32_t world_size;        /* ranks that hold a part of each chunk, 1 .. WIRE_WORLD_SIZE_MAX */
	uint32_t rank;              /* this registration's, 0 .. world_size-1 */
	/* clients that read one object of a rank (MLA under tensor parallelism: tp), 1 .. WIRE_READERS_MAX */
	uint32_t readers;
	uint32_t reader; /* this client's number among them, 0 .. readers-1 */
};

#define WIRE_WINDOW_FULL UINT32_MAX
struct wire_group {
	uint32_t tokens_per_block; /* divides chunk_tokens */
	uint32_t window_tokens;    /* WIRE_WINDOW_FULL: full attention */
	uint32_t block_count;      /* ids are 0 .. block_count-1 */
	uint32_t plane_count;
};

/* Block b of the plane is block_bytes bytes at address + b * block_stride. */
struct wire_plane {
	uint64_t address;      /* the client's */
	uint64_t block_stride; /* bytes, >= block_bytes */
	uint32_t block_bytes;  /* > 0 */
	uint32_t region;       /* memory_reply's; the plane must lie inside it */
};

/* group_count 0: a scheduler's registration: LOOKUP, QUERY, FREE_LOCKS, END_SESSION, CLEAR only. */
struct register_request {
	struct wire_header header;
	struct model_identity identity;
	uint32_t group_count;
	uint32_t plane_count;  /* of all groups, in group order */
	const uint8_t *groups; /* read with register_group_at */
	const uint8_t *planes; /* read with register_plane_at */
};
struct wire_group register_group_at(const struct register_request *request, uint32_t index);
struct wire_plane register_plane_at(const struct register_request *request, uint32_t index);

struct register_reply {
	struct wire_header header;
	uint32_t registration;
	uint64_t object_bytes; /* of one chunk of this rank, all groups */
	uint64_t token_bytes;  /* object_bytes / chunk_tokens */
};

struct unregister_request {
	struct wire_header header;
	uint32_t registration;
};

/* ---- queue pair ----------------------------------------------------------------------------------------------- */

/* The wrapped request lies in the client's memory; the server fetches it by RDMA READ and answers that one. Both
 * headers carry the same request id. When the fetch itself fails the answer is an error reply of type WIRE_INDIRECT +
 * 1. */
struct indirect {
	struct wire_header header;
	uint32_t region;
	uint32_t length;  /* WIRE_HEADER_BYTES .. message_bytes_max */
	uint64_t address; /* the client's */
};

struct ping {
	struct wire_header header; /* PING, GET_INFO */
};

/*
 * Which session, and optionally its chain. A session belongs to (tenant, model identity, salt); whoever names it first
 * makes it. digest_count 0: the chain is known already. Else the digests are those of chunks
 * first_chunk .. first_chunk + digest_count - 1, and `parent` is the digest of chunk first_chunk - 1 (for first_chunk
 * 0: the chain's seed). Chunks that the server knows must be equal (CHAIN_MISMATCH), and there may be no gap behind
 * them.
 */
struct session_ref {
	struct wire_text id;    /* 1 .. WIRE_SESSION_ID_MAX bytes */
	const uint8_t *salt;    /* 32 bytes: SHA-256 of the salt text, zero for none; NULL in encode: none */
	const uint8_t *parent;  /* 32 bytes, when digest_count > 0; NULL in encode with first_chunk 0: the seed */
	const uint8_t *digests; /* 32 * digest_count bytes */
	uint32_t first_chunk;   /* first_chunk + digest_count <= WIRE_CHUNKS_MAX */
	uint32_t digest_count;
};

enum lookup_flag {
	LOOKUP_NO_WAIT = 1u << 0, /* reply at once: OK when known, PENDING while L2 is asked; QUERY tells later */
	LOOKUP_NO_LOCK = 1u << 1, /* count only */
};

/* Matches the chain from chunk 0. Locks the matched chunks for every rank and reader of the model identity. */
struct lookup_request {
	struct wire_header header; /* flags: enum lookup_flag */
	uint32_t registration;
	uint32_t chunk_count; /* look at the first so many chunks of the chain; 0: all */
	uint64_t deadline_ns; /* after so long, what is there counts; 0: the server's default */
	struct session_ref session;
};

/* The body of LOOKUP_REPLY and QUERY_REPLY. */
struct lookup_reply {
	struct wire_header header;
	uint32_t matched_chunks; /* whole chunks of the prefix, for all ranks */
	uint32_t from_l2_chunks; /* of these, brought from L2 */
};

enum query_flag { QUERY_EARLY = 1u << 0 }; /* the hit count as known before the loads have ended; does not consume */

/* The result of the session's last LOOKUP. timeout_ns 0: answers at once. Parked until then, no thread waits. */
struct query_request {
	struct wire_header header; /* flags: enum query_flag */
	uint32_t registration;
	uint64_t timeout_ns;
	struct session_ref session;
};

/*
 * RETRIEVE and STORE. The block lists cover chunks first_chunk .. first_chunk + chunk_count - 1, for each group
 * chunk_count * chunk_tokens / tokens_per_block blocks, as (start, count) runs; start WIRE_NULL_BLOCK: null blocks.
 * skip_tokens (RETRIEVE; 0 in a STORE) counts from first_chunk's first token: blocks that lie wholly inside are not
 * written (their ids are not looked at), a block that lies partly inside is written whole.
 */
enum transfer_flag {
	TRANSFER_LAYERS = 1u << 0, /* RETRIEVE: a word of the client's memory tells of each layer */
	TRANSFER_AFTER = 1u << 1,  /* not before a word of the client's memory has a value */
};

/* Words of 4 bytes in the client's memory, at addresses divisible by 4, by which a transfer keeps step with the engine. */
struct transfer_order {
	/* TRANSFER_LAYERS: word i becomes layer_value behind the data of layer i. The registration's planes, in their order, are cut into
	 * layer_count layers of equally many. */
	uint64_t layers_address;
	uint32_t layers_region;
	uint32_t layer_count; /* 1 .. WIRE_PLANES_MAX */
	uint32_t layer_value;
	/* TRANSFER_AFTER: nothing is read or written before the word has reached after_value (transfer_word_reached). */
	uint32_t after_region;
	uint64_t after_address;
	uint32_t after_value;
};
/* Where layer_value lies in the message: the device writes it from there. */
#define TRANSFER_LAYER_VALUE_OFFSET 112u
/* Values of a word only ever grow, and wrap. */
static inline bool transfer_word_reached(uint32_t word, uint32_t value)
{
	return (int32_t)(word - value) >= 0;
}

struct transfer_request {
	struct wire_header header; /* flags: enum transfer_flag */
	uint32_t registration;
	uint32_t first_chunk;
	uint32_t chunk_count; /* 1 .. chunks_max */
	uint32_t skip_tokens;
	uint32_t group_count;
	uint32_t run_count; /* of all groups, in group order */
	struct session_ref session;
	struct transfer_order order; /* zero without flags */
	/* u32 per group, read with transfer_group_runs_at: how many of the runs are its own, > 0 */
	const uint8_t *group_runs;
	const uint8_t *runs; /* read with transfer_run_at */
};
struct block_run {
	uint32_t start; /* start + count never passes WIRE_NULL_BLOCK, unless start is WIRE_NULL_BLOCK itself */
	uint32_t count; /* > 0 */
};
static inline struct block_run transfer_run_at(const struct transfer_request *request, uint32_t index)
{
	struct block_run run;

	/* little-endian hosts only */
	__builtin_memcpy(&run, request->runs + (uint64_t)index * sizeof(run), sizeof(run));
	return run;
}
static inline uint32_t transfer_group_runs_at(const struct transfer_request *request, uint32_t group)
{
	uint32_t count;

	__builtin_memcpy(&count, request->group_runs + (uint64_t)group * sizeof(count), sizeof(count));
	return count;
}

struct transfer_reply {
	struct wire_header header; /* OK: every chunk is DELIVERED, SKIPPED, STORED or PRESENT; PARTIAL: some are not */
	uint32_t chunk_count;
	uint32_t good_count;     /* chunks that ended well */
	const uint8_t *outcomes; /* enum chunk_outcome, chunk_count bytes */
};

#define WIRE_ALL_RANKS UINT32_MAX
/* Releases the locks that the session holds on the range, for one rank and reader or all. */
struct free_locks_request {
	struct wire_header header;
	uint32_t registration;
	uint32_t first_chunk;
	uint32_t chunk_count;
	uint32_t rank; /* or WIRE_ALL_RANKS, which takes all readers too */
	uint32_t reader;
	struct session_ref session;
};
struct count_reply { /* FREE_LOCKS_REPLY: locks released; CLEAR_REPLY: chunks dropped, and kept because in use */
	struct wire_header header;
	uint32_t count;
	uint32_t kept;
};

/* The reply comes when the target can no longer touch the client's memory; the target gets its own reply first. */
struct cancel_request {
	struct wire_header header;
	uint64_t target; /* request id */
};

struct end_session_request {
	struct wire_header header;
	uint32_t registration;
	struct session_ref session;
};

/* All of the tenant's chunks, or those of one registration's model identity. What is locked or pinned stays. */
struct clear_request {
	struct wire_header header;
	uint32_t registration; /* UINT32_MAX: everything of the tenant */
};

/* Replies without a body: PING_REPLY, CANCEL_REPLY, END_SESSION_REPLY, FORGET_MEMORY_REPLY, UNREGISTER_REPLY. */
struct empty_reply {
	struct wire_header header;
};

/* Any reply whose status has no body of its own. */
struct error_reply {
	struct wire_header header;
	struct wire_text text; /* what was wrong, where, what to do; at most WIRE_ERROR_TEXT_MAX bytes */
};

#define MESSAGE_CODEC(name, type)                                                                  \
	KVR_MUST_CHECK int name##_decode(                                                          \
		const void *bytes, size_t length, struct type *message, struct wire_error *error); \
	KVR_MUST_CHECK ssize_t name##_encode(void *bytes, size_t capacity, const struct type *message);

MESSAGE_CODEC(hello, hello)
MESSAGE_CODEC(hello_reply, hello_reply)
MESSAGE_CODEC(authenticate, authenticate)
MESSAGE_CODEC(authenticate_reply, authenticate_reply)
MESSAGE_CODEC(connect_request, connect_request)
MESSAGE_CODEC(connect_reply, connect_reply)
MESSAGE_CODEC(memory_request, memory_request)
MESSAGE_CODEC(memory_reply, memory_reply)
MESSAGE_CODEC(forget_memory, forget_memory)
/* encode copies groups and planes as raw wire bytes: see register_write_* */
MESSAGE_CODEC(register_request, register_request)
MESSAGE_CODEC(register_reply, register_reply)
MESSAGE_CODEC(unregister_request, unregister_request)
MESSAGE_CODEC(indirect, indirect)
MESSAGE_CODEC(ping, ping)                     /* type from header.type: PING or GET_INFO */
MESSAGE_CODEC(info_reply, authenticate_reply) /* GET_INFO_REPLY: the same body as AUTHENTICATE_REPLY */
MESSAGE_CODEC(lookup_request, lookup_request)
MESSAGE_CODEC(lookup_reply, lookup_reply) /* type from header.type: LOOKUP_REPLY or QUERY_REPLY */
MESSAGE_CODEC(query_request, query_request)
MESSAGE_CODEC(transfer_request, transfer_request) /* type from header.type: RETRIEVE or STORE */
MESSAGE_CODEC(transfer_reply, transfer_reply)     /* type from header.type */
MESSAGE_CODEC(free_locks_request, free_locks_request)
MESSAGE_CODEC(count_reply, count_reply) /* type from header.type */
MESSAGE_CODEC(cancel_request, cancel_request)
MESSAGE_CODEC(end_session_request, end_session_request)
MESSAGE_CODEC(clear_request, clear_request)
MESSAGE_CODEC(empty_reply, empty_reply) /* type from header.type */
MESSAGE_CODEC(error_reply, error_reply) /* type from header.type */
#undef MESSAGE_CODEC

/* The bytes that encode will write, for those messages that can be longer than a receive buffer. Nothing is checked. */
size_t register_request_size(const struct register_request *message);
size_t lookup_request_size(const struct lookup_request *message);
size_t query_request_size(const struct query_request *message);
size_t transfer_request_size(const struct transfer_request *message);
size_t transfer_reply_size(const struct transfer_reply *message); /* only chunk_count is looked at */
size_t free_locks_request_size(const struct free_locks_request *message);
size_t end_session_request_size(const struct end_session_request *message);

/* One group or plane as wire bytes, for filling register_request.groups and .planes before encode. */
#define WIRE_GROUP_BYTES 16u
#define WIRE_PLANE_BYTES 24u
void register_write_group(void *bytes, const struct wire_group *group);
void register_write_plane(void *bytes, const struct wire_plane *plane);

KVR_END_C

#endif
