/*
 * file_format.h - an object as a file: whole blocks, and its name. Pure: no I/O.
 *
 *   header and object as in object_format.h, then zeros up to a multiple of 4096. The file ends there: a longer or
 *   shorter one is damaged.
 *
 * Name: <3 hex digits: the first 12 bits of the digest>/<object_hash in hex>.kvo
 */
#ifndef KVRAIL_TIER_FILE_FORMAT_H
#define KVRAIL_TIER_FILE_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "protocol/digest.h"
#include "tier/adapter.h"
#include "tier/object_format.h"

KVR_BEGIN_C

#define FILE_BLOCK OBJECT_HEADER_BYTES /* what lengths are rounded up to: good for O_DIRECT on any disk */

/* Bytes of the whole file. bytes: of the object, 1 .. OBJECT_BYTES_MAX. */
static inline uint64_t file_image_bytes(uint64_t bytes)
{
	return FILE_BLOCK + kvr_round_up(bytes, FILE_BLOCK);
}

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
