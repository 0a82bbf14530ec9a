/*
 * object_body.h - what follows the header of an object at a place on a network: its bytes as they are, or compressed.
 *
 *   store:  memory -> checksum -> [planes -> zstd] -> body, header
 *   load:   body -> [zstd -> planes] -> memory -> checksum, identity
 *
 * Planes: the first bytes of all numbers, then the second bytes of all, and so on, for numbers of `element` bytes; what is
 * left over at the end stays as it is. In bf16 that puts signs and exponents, which can be compressed, beside each other,
 * and the rest, which can't. What does not get smaller by a 32nd is kept as it is. Any build with libzstd loads what
 * another one has compressed. One thread.
 */
#ifndef KVRAIL_TIER_OBJECT_BODY_H
#define KVRAIL_TIER_OBJECT_BODY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "tier/adapter.h"
#include "tier/object_format.h"

KVR_BEGIN_C

struct object_codec {
	int level;        /* of zstd; 0: nothing is compressed */
	uint32_t element; /* bytes of a number: 1, 2 or 4 */
	void *compressor, *decompressor;
	uint8_t *scratch; /* of the largest object so far */
	uint64_t scratch_bytes;
};

struct object_body {
	uint8_t *bytes; /* the request's memory, or `packed` */
	uint64_t length;
	uint8_t *packed; /* from malloc; NULL: none */
};

/* 0, -ENOMEM, -EINVAL (level 0 .. 19, element), -EOPNOTSUPP: a level, and built without libzstd. object_codec_fini is
 * called whatever it returned. */
KVR_MUST_CHECK int object_codec_init(struct object_codec *codec, int level, uint32_t element);
void object_codec_fini(struct object_codec *codec);

/* Header and body of a STORE. 0, or -EBADMSG: the bytes are not those of request->checksum. */
KVR_MUST_CHECK int object_body_store(struct object_codec *codec, const struct l2_request *request,
	struct object_body *body, uint8_t header[OBJECT_HEADER_BYTES]);
/* A whole object of this length, header included, can be that of the identity. */
bool object_body_may_be(const struct l2_identity *identity, uint64_t whole_bytes);
/* Where the body of a LOAD is to go. 0; -EBADMSG: it cannot be the object; -ENOMEM. */
KVR_MUST_CHECK int object_body_load(const struct l2_request *request, uint64_t whole_bytes, struct object_body *body);
/* All of header and body is there: 0, with the object in request->memory and its checksum; or -EBADMSG. */
KVR_MUST_CHECK int object_body_check(struct object_codec *codec, struct l2_request *request,
	const struct object_body *body, const uint8_t header[OBJECT_HEADER_BYTES]);
/* Harmless on a zeroed or freed one. */
void object_body_free(struct object_body *body);

/* object_pack_zstd.c, object_pack_nozstd.c: compression itself ------------------------------------------------------ */

bool object_pack_available(void);
KVR_MUST_CHECK int object_pack_init(struct object_codec *codec);
void object_pack_fini(struct object_codec *codec);
/* How many bytes it made of them, at most room; 0: it does not fit. */
uint64_t object_pack(struct object_codec *codec, const void *bytes, uint64_t length, void *out, uint64_t room);
/* Exactly `length` bytes come of it: 0, or -EBADMSG. */
KVR_MUST_CHECK int object_unpack(
	struct object_codec *codec, const void *packed, uint64_t packed_length, void *out, uint64_t length);

KVR_END_C

#endif
