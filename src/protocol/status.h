/*
 * status.h - every code that a reply can carry, its name, its meaning, and the errno that libkvrail returns for it.
 *
 * Numbers are part of the wire format: they are never reused. Groups by what must be rebuilt: the request (1..), the
 * registration (32..), the connection (48..).
 */
#ifndef KVRAIL_PROTOCOL_STATUS_H
#define KVRAIL_PROTOCOL_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

/* clang-format off: a table */
/*      name                 number  errno             text */
#define STATUS_LIST(X)                                                                      \
	X(OK, 0, 0, "done")                                                                 \
	X(PARTIAL, 1, 0, "done for some chunks: the reply says which")                      \
	X(PENDING, 2, EAGAIN, "not known yet: ask again, or wait")                          \
	X(MALFORMED, 3, EBADMSG, "the message does not follow the wire format")             \
	X(UNKNOWN_TYPE, 4, EOPNOTSUPP, "this server does not know that message type")       \
	X(TOO_BIG, 5, EMSGSIZE, "larger than the server's limit")                           \
	X(INVALID_RANGE, 6, ERANGE, "chunk range outside the chain, or empty")              \
	X(INVALID_BLOCK, 7, EFAULT, "block id outside the registered memory, or too few")   \
	X(CHAIN_MISMATCH, 8, EEXIST, "this session id is in use with another chain")        \
	X(UNKNOWN_SESSION, 9, ENOENT, "no such session, and no chain in the request")       \
	X(NO_LOCK, 10, ENOLCK, "no lock of that session and rank to release")               \
	X(NO_MEMORY, 11, ENOMEM, "L1 has no room: everything in it is locked or in use")    \
	X(BUSY, 12, EBUSY, "a table of the server is full: retry after a while")            \
	X(CANCELED, 13, ECANCELED, "canceled")                                              \
	X(TIMED_OUT, 14, ETIMEDOUT, "the time limit of the request passed")                 \
	X(NOT_ALLOWED, 15, EPERM, "this credential may not do that")                        \
	X(UNSUPPORTED, 16, EOPNOTSUPP, "this server does not support that")                 \
	X(NO_QUOTA, 17, EDQUOT, "the tenant's quota is used up")                            \
	X(UNKNOWN_REQUEST, 18, ENOENT, "no request with that id is in progress")            \
	X(DUPLICATE_REQUEST, 19, EALREADY, "a request with that id is in progress already") \
	X(TRANSFER_FAILED, 20, EIO, "the data could not be moved")                          \
	X(NOT_REGISTERED, 32, ENODEV, "no such registration: register again")               \
	X(WRONG_BOOT, 33, ESTALE, "the server was restarted: register again")               \
	X(LAYOUT_MISMATCH, 34, EPROTOTYPE, "another layout under the same identity")        \
	X(INVALID_MEMORY, 35, EFAULT, "a plane lies outside the registered memory")         \
	X(MEMORY_UNUSABLE, 36, ENOTSUP, "the memory cannot be reached by this server")      \
	X(UNSUPPORTED_VERSION, 48, EPROTONOSUPPORT, "no protocol version in common")        \
	X(NOT_AUTHENTICATED, 49, EACCES, "authenticate first")                              \
	X(AUTHENTICATION_FAILED, 50, EACCES, "wrong credential")                            \
	X(LIMIT, 51, EUSERS, "the server has its maximum of clients")                       \
	X(OUT_OF_ORDER, 52, EPROTO, "a message that is not allowed in this state")          \
	X(SHUTTING_DOWN, 53, ESHUTDOWN, "the server is going down")                         \
	X(CONNECTION_LOST, 54, ECONNRESET, "the connection is gone")                        \
	X(CREDITS_EXCEEDED, 55, EPROTO, "more requests in flight than were granted")        \
	X(INTERNAL, 63, EREMOTEIO, "a fault of the server: please report it")
/* clang-format on */

enum kvr_wire_status {
#define STATUS_ENUM(name, number, error, text) STATUS_##name = number,
	STATUS_LIST(STATUS_ENUM)
#undef STATUS_ENUM
};

/* "CHAIN_MISMATCH"; "status 77" style text is not made: unknown numbers give "UNKNOWN". */
const char *status_name(uint16_t status);
const char *status_text(uint16_t status);
/* The negative errno for a status: 0 for OK and PARTIAL, -EPROTO for numbers that this version does not know. */
int status_to_errno(uint16_t status);
/* True for OK, PARTIAL, PENDING: the reply has its type's body. All others carry the body of error_reply (message.h).
 * */
static inline bool status_has_body(uint16_t status)
{
	return status <= STATUS_PENDING;
}

/* What became of one chunk of a RETRIEVE or STORE, one byte each in the reply. */
enum chunk_outcome {
	CHUNK_PENDING = 0,   /* never on the wire */
	CHUNK_DELIVERED = 1, /* RETRIEVE: its blocks are in the engine's memory */
	CHUNK_SKIPPED = 2, /* RETRIEVE: lies wholly inside the skipped tokens; STORE: all its blocks are null blocks */
	CHUNK_MISSING = 3, /* RETRIEVE: not in L1 */
	CHUNK_STORED = 4,  /* STORE: published by this request */
	CHUNK_PRESENT = 5, /* STORE: was there already, or another client published it first */
	CHUNK_NO_MEMORY = 6, /* STORE: no room */
	CHUNK_FAILED = 7,    /* the data did not arrive */
	CHUNK_CANCELED = 8,  /* canceled, or the session ended before it was begun */
	CHUNK_NO_QUOTA = 9,  /* STORE: no room within the tenant's quota */
};

KVR_END_C

#endif
