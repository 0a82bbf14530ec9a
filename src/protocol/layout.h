/*
 * layout.h - where a chunk's bytes lie in an engine's memory and in an L1 object. Pure: built from REGISTER, changed never.
 *
 * The L1 object of one chunk and group is the concatenation of its planes, each plane's blocks in chunk order:
 *
 *   | plane 0: block 0 | block 1 | .. | plane 1: block 0 | block 1 | .. |        blocks_per_chunk blocks a plane
 *
 * so neighbouring blocks of a plane are neighbours in the object, and one work request may span them.
 */
#ifndef KVRAIL_PROTOCOL_LAYOUT_H
#define KVRAIL_PROTOCOL_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "protocol/message.h"
#include "protocol/wire.h"

KVR_BEGIN_C

struct layout_plane {
	uint64_t address;       /* the client's: of block 0 */
	uint64_t block_stride;  /* bytes */
	uint64_t object_offset; /* of its block 0 in the L1 object */
	uint32_t block_bytes;
	uint32_t rkey;          /* on the client's queue pair */
};

struct layout_group {
	uint32_t tokens_per_block;
	uint32_t blocks_per_chunk; /* chunk_tokens / tokens_per_block */
	uint32_t block_count;      /* ids are 0 .. block_count-1 */
	uint32_t window_tokens;    /* WIRE_WINDOW_FULL: full attention */
	uint32_t first_plane;
	uint32_t plane_count;
	uint64_t object_bytes;     /* of one chunk */
};

struct layout {
	uint32_t chunk_tokens;
	uint32_t group_count;
	uint32_t plane_count;
	struct layout_group groups[WIRE_GROUPS_MAX];
	struct layout_plane planes[]; /* plane_count of them */
};

/* A region as the server imported it. */
struct layout_region {
	uint64_t address; /* the client's */
	uint64_t length;
	uint32_t rkey;
	bool present;
};

static inline size_t layout_bytes(uint32_t plane_count)
{
	return sizeof(struct layout) + (size_t)plane_count * sizeof(struct layout_plane);
}

/* Fills `layout` (layout_bytes(request->plane_count) bytes of the caller's) from a decoded REGISTER: every plane must lie inside its region
 * for all its blocks, strides must not be smaller than blocks, tokens_per_block must divide chunk_tokens, sums must not
 * overflow; objects of at most 1 GiB. 0, or -EINVAL with *error (status INVALID_MEMORY, UNSUPPORTED or MALFORMED, and the words). */
KVR_MUST_CHECK int layout_build(struct layout *layout, const struct register_request *request, uint32_t chunk_tokens,
	const struct layout_region *regions, uint32_t region_count, struct wire_error *error);

/* Are the block lists of a RETRIEVE or STORE right for this layout: the number of groups, enough blocks for chunk_count
 * chunks in each (exactly), ids below block_count, null blocks only in whole chunks' runs or anywhere in RETRIEVE (null blocks are not
 * written; a STORE chunk is null when all its blocks of a group are, mixed is refused)? Ids of blocks wholly inside skip_tokens
 * are not looked at. O(runs). 0, or -EINVAL with *error (status INVALID_BLOCK or INVALID_RANGE). */
KVR_MUST_CHECK int layout_check_blocks(const struct layout *layout, const struct transfer_request *request, struct wire_error *error);

KVR_END_C

#endif
