/*
 * geometry.h - what the KV cache of a model looks like: how many planes of how many bytes a rank has.
 *
 * A plane is the K or the V cache of one layer, or the one latent cache that a layer has with MLA. With more ranks
 * than KV heads several ranks hold the same bytes, with MLA all of them do: these are readers of one object.
 */
#ifndef KVRAIL_APP_BENCH_GEOMETRY_H
#define KVRAIL_APP_BENCH_GEOMETRY_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/text.h"

KVR_BEGIN_C

#define GEOMETRY_RANKS_MAX 64
#define GEOMETRY_BLOCK_BYTES_MIN 64 /* of a plane, whatever the scale; blocks are multiples of it */

struct geometry {
	const char *name;
	uint32_t layers;
	uint32_t kv_heads; /* of all ranks; 0: MLA */
	uint32_t head_dim; /* elements of a head; MLA: of the latent vector with its rotary part */
	uint32_t element_bytes;
	uint32_t ranks; /* tensor parallel size that it is usually served with */
	const char *dtype;
};

/* Of one rank, at a scale. */
struct shape {
	uint32_t ranks;   /* tensor parallel size: as many processes as an engine has */
	uint32_t holders; /* ranks that hold a part of their own: kvr_model.world_size */
	uint32_t readers; /* ranks that hold the same part; ranks = holders * readers */
	uint32_t planes;
	uint32_t block_tokens;
	uint32_t chunk_tokens;
	uint32_t chunk_blocks;
	uint32_t block_bytes;       /* of one plane */
	uint64_t object_bytes;      /* of one chunk on one rank */
	uint64_t token_bytes;       /* of one token on one rank before scaling */
	uint64_t chunk_bytes_total; /* of one chunk, all parts */
};

/* NULL: there is none of that name; see geometry_nearest. */
const struct geometry *geometry_find(const char *name);
const char *geometry_nearest(const char *name);
/* A line for each model, for the help text. */
void geometry_list(struct text *out);

/* ranks 0: the model's own. scale 1 ..: divides the bytes per token. 0, or -EINVAL with words in why[]. */
KVR_MUST_CHECK int geometry_shape(const struct geometry *geometry, uint32_t ranks, uint32_t block_tokens,
	uint32_t chunk_tokens, uint32_t scale, struct shape *shape, char *why, size_t why_size);

KVR_END_C

#endif
