/*
 * file_format.h - an object as a file: its bytes, and its name. Pure: no I/O.
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
 *            136   4  encoding: 0, the bytes as they are
 *            140   4  reserved: 0
 *            144   8  bytes that follow the header, without the padding: the length of the object
 *            152      zeros
 *           4088   8  XXH3 of the bytes 0 to 4087
 *           4096      the object, then zeros up to a multiple of 4096
 *
 * All numbers are little-endian. The file ends there: a longer or shorter one is damaged. Whatever can be read from a
 * whole file is covered by one of the two checksums, or is zero.
 *
 * Name: <3 hex digits: the first 12 bits of the digest>/<SHA-256("kvrail L2 object v1" || header bytes 16 to 127)>.kvo
 */
#ifndef KVRAIL_TIER_FILE_FORMAT_H
#define KVRAIL_TIER_FILE_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "protocol/digest.h"
#include "tier/adapter.h"

KVR_BEGIN_C

#define FILE_BLOCK UINT32_C(4096) /* header, and what lengths are rounded up to: good for O_DIRECT on any disk */
#define FILE_VERSION 1
#define FILE_OBJECT_MAX (UINT64_C(1) << 36) /* bytes of one object */
#define FILE_ENCODING_NONE 0

struct file_header {
	struct l2_identity identity;
	uint64_t checksum;
};

/* Bytes of the whole file. bytes: of the object, 1 .. FILE_OBJECT_MAX. */
static inline uint64_t file_image_bytes(uint64_t bytes)
{
	return FILE_BLOCK + kvr_round_up(bytes, FILE_BLOCK);
}

void file_header_encode(const struct file_header *header, uint8_t out[FILE_BLOCK]);
/* 0, or -EBADMSG: not a header of this version, or damaged; *header is then untouched. */
KVR_MUST_CHECK int file_header_decode(const uint8_t in[FILE_BLOCK], struct file_header *header);
/* All fields. */
bool file_identity_equal(const struct l2_identity *a, const struct l2_identity *b);
/* An object that can be kept: 1 .. FILE_OBJECT_MAX bytes, reserved fields 0. */
bool file_identity_good(const struct l2_identity *identity);

#define FILE_FAN_COUNT 4096
#define FILE_NAME_BYTES 69 /* 64 hex digits, ".kvo", and the 0 */
#define FILE_PATH_BYTES (4 + FILE_NAME_BYTES)

struct file_name {
	uint8_t hash[32];
	uint16_t fan; /* 0 .. FILE_FAN_COUNT - 1 */
};

void file_name_make(struct digester *digester, const struct l2_identity *identity, struct file_name *name);
/* "a7f/0123....kvo", relative to the directory of the place. */
void file_name_path(const struct file_name *name, char out[FILE_PATH_BYTES]);
/* False: not a folder of ours. */
bool file_fan_parse(const char *folder, uint16_t *fan);
/* False: not a file of ours; *name is then untouched. */
bool file_name_parse(uint16_t fan, const char *file, struct file_name *name);

KVR_END_C

#endif
