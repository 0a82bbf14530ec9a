/*
 * keep.h - an L1 that outlives the process: which objects lie where, written beside them in shared memory (tmpfs,
 * hugetlbfs), so that the next server of the same machine finds a full cache.
 *
 *   index:  | head 4 KiB | models | records ... |          areas:  | L1, as it was |
 *
 * What is promised: after any end of the process, kill -9 at any instruction included, keep_restore finds exactly the
 * objects that were published and not freed again, but for one whose record was just being written or withdrawn. A
 * record counts when its last word, a checksum over all the others, is right; that word is written last when an object
 * is published and erased first when it is freed, before its memory may be used again. Power loss is another matter:
 * the index names the kernel's boot, and that of another boot is empty.
 *
 * Models (an identity of a tenant) are kept too, so that who registers one again finds its chunks.
 *
 * Owner: the management core; no call but keep_open, keep_restore and keep_close allocates or blocks. The memory is
 * the caller's (keep_file.h), mapped from keep_open to keep_close.
 */
#ifndef KVRAIL_TIER_KEEP_H
#define KVRAIL_TIER_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "tier/cache.h"
#include "tier/l1.h"

KVR_BEGIN_C

#define KEEP_MODELS 1024u
#define KEEP_NAME_BYTES 264u
#define KEEP_BOOT_BYTES 16u

/* What must be the same for the content to be used again. */
struct keep_geometry {
	uint32_t area_count;
	uint32_t chunk_tokens;
	uint64_t area_bytes[L1_AREAS_MAX];
	uint8_t boot[KEEP_BOOT_BYTES]; /* of the kernel */
};

struct keep_model {
	uint8_t key[32];
	char name[KEEP_NAME_BYTES];
	char dtype[64];
	char tenant[64];
	uint32_t world_size; /* objects of a chunk */
	uint32_t readers;
};

struct keep_counters { /* written by the owner with kvr_counter_add, read by anybody */
	uint64_t restored_objects, restored_bytes;
	uint64_t dropped_objects; /* found and not restored: see the log */
	uint64_t full;            /* published without a record, because all are taken: lost with the process */
};

struct keep;

/* Bytes of the index for L1 of that geometry: 0.4 % of it, and 0.6 MiB. */
uint64_t keep_index_bytes(const struct keep_geometry *geometry);
/* Memory that is all zeroes, or of another boot, becomes an empty index. 0; -ESTALE: it was written for something
 * else, and `why` says what differs (nothing was changed); -EINVAL (bytes), -ENOMEM. */
KVR_MUST_CHECK int keep_open(void *memory, uint64_t bytes, const struct keep_geometry *geometry, struct keep **keep,
	char *why, size_t why_size);
/* The content stays. Harmless on NULL in *keep. */
void keep_close(struct keep **keep);
const struct keep_counters *keep_get_counters(const struct keep *keep);
/* Records in use. */
uint64_t keep_objects(const struct keep *keep);

/* Puts what is there into an L1 and a cache that are empty, oldest first, the cache having keep_keeper as its keeper.
 * model: takes a model in and returns its number, UINT32_MAX: not wanted, its objects are dropped. 0, -ENOMEM; what
 * could not be restored is dropped, counted and logged. */
KVR_MUST_CHECK int keep_restore(struct keep *keep, struct l1 *l1, struct cache *cache,
	uint32_t (*model)(void *context, const struct keep_model *model), void *context);

/* A model has that number from now on. False: all places are taken, its objects are not kept. */
bool keep_put_model(struct keep *keep, uint32_t number, const struct keep_model *model);
/* It has no objects any more. */
void keep_drop_model(struct keep *keep, uint32_t number);

/* What cache_options.keeper is to be: a cache tells it of each object that becomes resident or is freed. */
struct cache_keeper keep_keeper(struct keep *keep);

KVR_END_C

#endif
