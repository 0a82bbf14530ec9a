/*
 * object_format.h - an object as a place outside L1 keeps it: a header, then its bytes. Pure: no I/O.
 *
 *   byte       0   8  magic: 89 'K' 'V' 'R' 'O' 0d 0a 1a
 *              8   4  version: 1
 *             12   4  bytes of this header: 4096
 *             16  32  model key             \
 *             48  32  salt                   |
 *             80  32  digest                 |  the identity (adapter.h)
 *            112   4  part                   |
 *            116   4  reserved: 0            |
 *            120   8  length of the object  /
 *            128   8  XXH3 of the object's bytes
 *            136   4  encoding: 0, the bytes as they are; 1, their planes by zstd (object_body.h)
 *            140   4  encoding 0: 0; 1: bytes of a number whose bytes were put into planes: 1, 2 or 4
 *            144   8  bytes that follow the header, without any padding: the length of the object; 1: less
 *            152      zeros
 *           4088   8  XXH3 of the bytes 0 to 4087
 *           4096      the object
 *
 * All numbers are little-endian. Whatever can be read from a whole object is covered by one of the two checksums, or is
 * zero. The name of an object is made from SHA-256("kvrail L2 object v1" || header bytes 16 to 127), in hex.
 */
#ifndef KVRAIL_TIER_OBJECT_FORMAT_H
#define KVRAIL_TIER_OBJECT_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "protocol/digest.h"
#include "tier/adapter.h"

KVR_BEGIN_C

#define OBJECT_HEADER_BYTES UINT32_C(4096)
#define OBJECT_VERSION 1
#define OBJECT_BYTES_MAX (UINT64_C(1) << 36) /* bytes of one object */
#define OBJECT_ENCODING_NONE 0
#define OBJECT_ENCODING_ZSTD 1

struct object_header {
	struct l2_identity identity;
	uint64_t checksum; /* of the object, not of what it was encoded as */
	uint32_t encoding; /* OBJECT_ENCODING_ */
	uint32_t element;
	uint64_t stored_bytes; /* behind the header; 0 when it is encoded: as with OBJECT_ENCODING_NONE */
};

void object_header_encode(const struct object_header *header, uint8_t out[OBJECT_HEADER_BYTES]);
/* 0, or -EBADMSG: not a header of this version, or damaged; *header is then untouched. */
KVR_MUST_CHECK int object_header_decode(const uint8_t in[OBJECT_HEADER_BYTES], struct object_header *header);
/* All fields. */
bool object_identity_equal(const struct l2_identity *a, const struct l2_identity *b);
/* An object that can be kept: 1 .. OBJECT_BYTES_MAX bytes, reserved fields 0. */
bool object_identity_good(const struct l2_identity *identity);
/* A CLEAR (adapter.h) removes such objects. */
bool object_is_cleared(const struct l2_request *clear, const struct l2_identity *identity);
/* What its name is made from. */
void object_hash(struct digester *digester, const struct l2_identity *identity, uint8_t hash[32]);
/* The hash that 64 lower-case hex digits of a name say. False: they are others; *hash is then undefined. */
bool object_hash_parse(const char *name, uint8_t hash[32]);

KVR_END_C

#endif
