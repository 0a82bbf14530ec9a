/*
 * redis_protocol.h - what is said to a Redis or Valkey server, and what its replies mean. Pure: no I/O, no memory.
 *
 *   key    <prefix><object_hash in hex>         "kvrail:9f86d0...": 64 digits
 *   value  the header of object_format.h, then the object: 4096 bytes more than the object
 */
#ifndef KVRAIL_TIER_REDIS_PROTOCOL_H
#define KVRAIL_TIER_REDIS_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "protocol/digest.h"
#include "tier/adapter.h"
#include "tier/resp.h"

KVR_BEGIN_C

#define REDIS_PREFIX_MAX 63
#define REDIS_KEY_MAX (REDIS_PREFIX_MAX + 64)
#define REDIS_PATTERN_MAX (2 * REDIS_PREFIX_MAX + 2)
#define REDIS_CURSOR_BYTES 24 /* 20 digits and the 0 */
#define REDIS_SLOTS 16384
#define REDIS_HOST_MAX 255
#define REDIS_VALUE_MAX (UINT64_C(512) << 20) /* what servers take by default (proto-max-bulk-len) */

/* The key without a 0 behind it. Returns its length. */
uint32_t redis_key(
	struct digester *digester, const char *prefix, const struct l2_identity *identity, char key[REDIS_KEY_MAX]);
uint32_t redis_key_of_hash(const char *prefix, const uint8_t hash[32], char key[REDIS_KEY_MAX]);
/* The hash in a key; false: it has not the form of ours. */
bool redis_key_parse(const char *prefix, const char *key, size_t length, uint8_t hash[32]);
/* For SCAN's MATCH: all that begins with the prefix, whatever characters that has. */
void redis_pattern(const char *prefix, char out[REDIS_PATTERN_MAX]);
/* The slot of a cluster: CRC16 of the key, or of what stands between the first '{' and the next '}' when that is not
 * empty. */
uint32_t redis_slot(const char *key, size_t length);

/* One argument of a command, as "$<length>\r\n<bytes>\r\n", behind *length; false: it does not fit. */
KVR_MUST_CHECK bool redis_put_argument(char *out, size_t size, uint32_t *length, const void *bytes, size_t byte_count);
/* "*<count>\r\n". */
KVR_MUST_CHECK bool redis_put_count(char *out, size_t size, uint32_t *length, uint32_t count);
/* Only "$<length>\r\n": the bytes follow by themselves. */
KVR_MUST_CHECK bool redis_put_length(char *out, size_t size, uint32_t *length, uint64_t byte_count);

/* What an error reply says. */
enum redis_trouble {
	REDIS_MOVED,       /* the slot is another node's now */
	REDIS_ASK,         /* this once, ask another node */
	REDIS_LOADING,     /* it reads its data set, or is busy with a script */
	REDIS_READONLY,    /* a replica */
	REDIS_OOM,         /* maxmemory is reached */
	REDIS_MISCONF,     /* it refuses writes since it cannot save */
	REDIS_REFUSED,     /* name or password */
	REDIS_NOPERM,      /* a command that this user may not use */
	REDIS_CLUSTERDOWN, /* or MASTERDOWN, TRYAGAIN: not now */
	REDIS_WRONGTYPE,   /* the key is something else's */
	REDIS_OTHER,
};
/* line: without the '-'. */
enum redis_trouble redis_trouble_of(const char *line);
/* "MOVED 3999 127.0.0.1:6381": host may be empty, then it is the sender's. 0 or -EBADMSG. */
KVR_MUST_CHECK int redis_parse_move(const char *line, uint32_t *slot, char host[REDIS_HOST_MAX + 1], uint16_t *port);

/* CLUSTER SLOTS, event by event. */
struct redis_slots {
	/* A range of slots and the node that has it; host may be empty: the sender's. False: no room for the node. */
	bool (*range)(void *owner, uint32_t first, uint32_t last, const char *host, uint16_t port);
	void *owner;
	uint64_t index[RESP_DEPTH_MAX]; /* of the element that comes next, in each open array */
	uint64_t count[RESP_DEPTH_MAX];
	uint32_t depth;
	uint32_t first, last;
	uint32_t host_length;
	char host[REDIS_HOST_MAX + 1];
	bool bad; /* not a reply to CLUSTER SLOTS: what `range` was told counts for nothing */
};
void redis_slots_init(
	struct redis_slots *slots, bool (*range)(void *, uint32_t, uint32_t, const char *, uint16_t), void *owner);
/* All events but RESP_MORE, RESP_END, RESP_BAD. */
void redis_slots_event(struct redis_slots *slots, const struct resp *resp, enum resp_event event, const uint8_t *piece,
	size_t piece_bytes);

/* SCAN: a cursor and keys, event by event. */
struct redis_scan {
	/* Each key of at most REDIS_KEY_MAX characters, without a 0 behind it. False: no room. */
	bool (*key)(void *owner, const char *key, uint32_t length);
	void *owner;
	uint32_t place;          /* what comes next: the reply, its cursor, its list, a key, nothing */
	uint64_t left;           /* keys to come */
	uint32_t length, filled; /* of the text that comes */
	char text[REDIS_KEY_MAX];
	char cursor[REDIS_CURSOR_BYTES]; /* decimal, "0": that was all */
	bool whole;                      /* all of it has come */
	bool bad;                        /* not a reply to SCAN */
};
void redis_scan_init(struct redis_scan *scan, bool (*key)(void *owner, const char *key, uint32_t length), void *owner);
/* As redis_slots_event. */
void redis_scan_event(struct redis_scan *scan, const struct resp *resp, enum resp_event event, const uint8_t *piece,
	size_t piece_bytes);

KVR_END_C

#endif
