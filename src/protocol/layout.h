/*
 * layout.h - where a chunk's bytes lie in an engine's memory and in an L1 object. Pure: built from REGISTER, changed
 * never.
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
	uint32_t rkey;   /* on the client's queue pair: its home rail */
	uint32_t region; /* number of the region that holds it */
};

struct layout_group {
	uint32_t tokens_per_block;
	uint32_t blocks_per_chunk; /* chunk_tokens / tokens_per_block */
	uint32_t block_count;      /* ids are 0 .. block_count-1 */
	uint32_t window_tokens;    /* WIRE_WINDOW_FULL: full attention */
	uint32_t first_plane;
	uint32_t plane_count;
	uint64_t object_bytes; /* of one chunk */
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
	uint32_t rkey;                  /* on the home rail */
	uint32_t rkeys[WIRE_RAILS_MAX]; /* as the client named them, by rail */
	bool present;                   /* false: no such region */
};

#define LAYOUT_OBJECT_BYTES_MAX ((uint64_t)1 << 30) /* of one chunk and group */

static inline size_t layout_bytes(uint32_t plane_count)
{
	return sizeof(struct layout) + (size_t)plane_count * sizeof(struct layout_plane);
}

/*
 * Fills `layout` (layout_bytes(request->plane_count) bytes of the caller's) from a decoded REGISTER: every plane must
 * lie inside its region for all its blocks, strides must not be smaller than blocks, tokens_per_block must divide
 * chunk_tokens, sums must not overflow; objects of at most LAYOUT_OBJECT_BYTES_MAX. 0, or -EINVAL with *error: status
 * INVALID_MEMORY, UNSUPPORTED or MALFORMED, the words, and as `offset` the number of the group or plane (counted over
 * all groups) that is wrong. *layout is undefined then.
 */
KVR_MUST_CHECK int layout_build(struct layout *layout, const struct register_request *request, uint32_t chunk_tokens,
	const struct layout_region *regions, uint32_t region_count, struct wire_error *error);

/*
 * Are the block lists of a RETRIEVE or STORE right for this layout: the number of groups, exactly the blocks of
 * chunk_count chunks in each, ids below block_count? Null blocks may stand anywhere in a RETRIEVE (they are not
 * written); in a STORE a chunk's blocks of a group are all null or none is. skip_tokens: 0 in a STORE, at most the
 * range's tokens in a RETRIEVE; ids of blocks wholly inside are not looked at. O(runs). 0, or -EINVAL with *error:
 * status INVALID_BLOCK or INVALID_RANGE, the words, and as `offset` the number of the run (counted over all groups).
 */
KVR_MUST_CHECK int layout_check_blocks(
	const struct layout *layout, const struct transfer_request *request, struct wire_error *error);

/*
 * For block lists that passed the check: idle[i] becomes true for each chunk (first_chunk + i) of which nothing of
 * this group is to be moved: RETRIEVE: it lies wholly inside skip_tokens; STORE: its blocks are null blocks.
 * chunk_count entries. O(runs + chunks).
 */
void layout_idle_chunks(
	const struct layout *layout, const struct transfer_request *request, uint32_t group, bool *idle);

KVR_END_C

#endif
