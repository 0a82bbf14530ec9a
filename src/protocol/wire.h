/*
 * wire.h - the frame that every message has, on the control socket and on the queue pair alike, and the limits.
 *
 * Little-endian. A message is: header (32 bytes), fixed part, variable part.
 *
 *   offset size
 *        0    4  magic         "KVRL"
 *        4    4  length        of the whole message, header included
 *        8    2  type          enum wire_type; a reply's type is its request's type + 1
 *       10    2  fixed_length  header + fixed part: where the variable part begins
 *       12    2  flags         per type; a request with a flag that the server does not know is refused
 *       14    2  status        replies: enum kvr_wire_status; requests: 0
 *       16    8  request_id    chosen by the client, unique among its requests in flight; echoed
 *       24    8  boot_id       requests: the boot id the client knows (0: any); replies: the server's
 *
 * How it grows: a newer peer may send a longer fixed part (the receiver skips to fixed_length) and more bytes behind
 * the variable part (the receiver ignores them); a fixed part shorter than this version's is refused. A new meaning
 * that an old peer must not ignore gets a new type or flag.
 */
#ifndef KVRAIL_PROTOCOL_WIRE_H
#define KVRAIL_PROTOCOL_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "protocol/status.h"

KVR_BEGIN_C

#define WIRE_MAGIC 0x4c52564bu /* 'K' 'V' 'R' 'L' in memory */
#define WIRE_VERSION_MIN 1
#define WIRE_VERSION_MAX 1
#define WIRE_HEADER_BYTES 32

/* Limits of version 1. The server may grant less (HELLO and GET_INFO tell). */
#define WIRE_MESSAGE_BYTES_MAX (2u << 20) /* a whole message: 4096 digests and 2^17 block runs fit */
#define WIRE_CONTROL_BYTES_MAX (1u << 20) /* a message on the control socket */
#define WIRE_INLINE_BYTES 8192u           /* a receive buffer, on both sides: larger requests go as INDIRECT */
#define WIRE_DIGEST_BYTES 32
#define WIRE_CHUNKS_MAX 4096u /* chunks of a chain, and of one request */
#define WIRE_SESSION_ID_MAX 128u
#define WIRE_NAME_MAX 256u     /* model name, tenant, client name, ... */
#define WIRE_GROUPS_MAX 16u    /* version 1 of the server refuses more than one, by name */
#define WIRE_PLANES_MAX 2048u  /* of one registration */
#define WIRE_REGIONS_MAX 4096u /* memory regions of one connection */
#define WIRE_HANDLE_MAX 128u   /* bytes of the handle of GPU memory */
#define WIRE_RAILS_MAX 16u
#define WIRE_RUNS_MAX (1u << 17) /* block runs of one request */
#define WIRE_WORLD_SIZE_MAX 256u
#define WIRE_READERS_MAX 128u
#define WIRE_ERROR_TEXT_MAX 512u
#define WIRE_NULL_BLOCK UINT32_MAX /* start of a run of null blocks: no data there */

enum wire_type {
	/* control socket, in this order */
	WIRE_HELLO = 1,
	WIRE_HELLO_REPLY = 2,
	WIRE_AUTHENTICATE = 3,
	WIRE_AUTHENTICATE_REPLY = 4,
	WIRE_CONNECT = 5,
	WIRE_CONNECT_REPLY = 6,
	WIRE_MEMORY = 7,
	WIRE_MEMORY_REPLY = 8,
	WIRE_FORGET_MEMORY = 9,
	WIRE_FORGET_MEMORY_REPLY = 10,
	WIRE_REGISTER = 11,
	WIRE_REGISTER_REPLY = 12,
	WIRE_UNREGISTER = 13,
	WIRE_UNREGISTER_REPLY = 14,
	/* queue pair */
	WIRE_INDIRECT = 31, /* wraps a request that is larger than a receive buffer; no reply of its own */
	WIRE_PING = 33,
	WIRE_PING_REPLY = 34,
	WIRE_GET_INFO = 35,
	WIRE_GET_INFO_REPLY = 36,
	WIRE_LOOKUP = 37,
	WIRE_LOOKUP_REPLY = 38,
	WIRE_QUERY = 39,
	WIRE_QUERY_REPLY = 40,
	WIRE_RETRIEVE = 41,
	WIRE_RETRIEVE_REPLY = 42,
	WIRE_STORE = 43,
	WIRE_STORE_REPLY = 44,
	WIRE_FREE_LOCKS = 45,
	WIRE_FREE_LOCKS_REPLY = 46,
	WIRE_CANCEL = 47,
	WIRE_CANCEL_REPLY = 48,
	WIRE_END_SESSION = 49,
	WIRE_END_SESSION_REPLY = 50,
	WIRE_CLEAR = 51,
	WIRE_CLEAR_REPLY = 52,
};

struct wire_header {
	uint32_t length;
	uint16_t type;
	uint16_t fixed_length;
	uint16_t flags;
	uint16_t status;
	uint64_t request_id;
	uint64_t boot_id;
};

/* What a decoder found wrong: the text goes into the error reply and the log. */
struct wire_error {
	uint16_t status;  /* STATUS_MALFORMED, STATUS_TOO_BIG, ... */
	uint32_t offset;  /* byte of the message where it was found */
	const char *what; /* static text: "session id is empty" */
};

/* Checks magic, length (WIRE_HEADER_BYTES .. available, and at most WIRE_MESSAGE_BYTES_MAX: else STATUS_TOO_BIG) and
 * fixed_length (WIRE_HEADER_BYTES .. length). 0, or -EBADMSG with *error filled, *header undefined then. Never reads
 * beyond `available`. */
KVR_MUST_CHECK int wire_header_decode(
	const void *bytes, size_t available, struct wire_header *header, struct wire_error *error);
/* For streams: how long is the message that begins at `bytes`, of which `available` bytes have come? Returns its
 * length, 0 when more bytes are needed to know, or -EBADMSG with *error filled: wrong magic (told from the first byte
 * on) or a length outside WIRE_HEADER_BYTES .. limit. The stream cannot be followed after an error. */
KVR_MUST_CHECK int wire_stream_length(const void *bytes, size_t available, uint32_t limit, struct wire_error *error);
/*
 * Of a SEND that may hold several messages, one behind the other (FEATURE_SEVERAL_MESSAGES): how many of its `available`
 * bytes are the first one's. Never 0 where there are bytes, and never more than there are: a message whose length can't be
 * true has all that is left, and its decoder refuses it.
 */
uint32_t wire_first_length(const void *bytes, uint32_t available);
/* Writes 32 bytes. */
void wire_header_encode(void *bytes, const struct wire_header *header);
/* "LOOKUP", "LOOKUP_REPLY", ...; "UNKNOWN" for others. */
const char *wire_type_name(uint16_t type);

KVR_END_C

#endif
