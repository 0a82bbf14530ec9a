/* keep_internal.h - the index in shared memory, and what a process knows about it; for keep.c, keep_restore.c and tests. */
#ifndef KVRAIL_TIER_KEEP_INTERNAL_H
#define KVRAIL_TIER_KEEP_INTERNAL_H

#include "base/atomic.h"
#include "tier/keep.h"

KVR_BEGIN_C

#define KEEP_MAGIC "KVRKEEP"
#define KEEP_VERSION 1u
#define KEEP_HEAD_BYTES 4096u
#define KEEP_NONE UINT32_MAX
/* One record for so many bytes of L1: objects are mostly larger. */
#define KEEP_BYTES_PER_RECORD 32768u
#define KEEP_RECORDS_MIN 1024u
#define KEEP_SLOTS_PER_PAGE (L1_PAGE_BYTES / L1_SLOT_BYTES_MIN)

/* All structs in the index are of 8-byte words, the last of which is the checksum of the others: 0 is nothing. */
struct keep_head {
	char magic[8];
	uint32_t version;
	uint32_t record_bytes;
	uint64_t records;
	uint64_t page_bytes, slot_bytes_min;
	uint32_t area_count;
	uint32_t chunk_tokens;
	uint64_t area_bytes[L1_AREAS_MAX];
	uint8_t boot[KEEP_BOOT_BYTES];
	uint64_t check;
};

struct keep_model_record {
	struct keep_model model;
	uint64_t check;
};
KVR_STATIC_ASSERT(sizeof(struct keep_model_record) % 8 == 0, "whole words");

struct keep_record {
	uint8_t salt[32];
	uint8_t digest[32];
	uint64_t bytes;
	uint64_t sequence;  /* of publishing */
	uint64_t model_tag; /* the beginning of its key */
	uint32_t model;     /* number of its model record */
	uint32_t part, parts;
	uint32_t reserved;
	struct l1_place place;
	uint64_t check;
};
KVR_STATIC_ASSERT(sizeof(struct keep_record) == 2 * KVR_CACHE_LINE, "a record is two cache lines");

struct keep {
	struct keep_head *head;
	struct keep_model_record *models;
	struct keep_record *records;
	uint32_t *record_of;                  /* by smallest slot of L1, all areas counted through */
	uint32_t *free_stack;                 /* numbers of free records */
	uint64_t area_slots[L1_AREAS_MAX];    /* first of each area in record_of */
	uint32_t place_of_model[KEEP_MODELS]; /* by the number that management gave it */
	uint32_t record_count, free_count;
	uint32_t restoring; /* the record whose object is being published; KEEP_NONE: a new object */
	uint64_t sequence;
	uint64_t slot_count;
	struct l1 *l1; /* of keep_restore; only asked where objects lie */
	struct keep_counters counters;
};

/* Never 0. */
uint64_t keep_check(const void *words, size_t bytes);

static inline uint64_t keep_slot_index(const struct keep *keep, const struct l1_place *place)
{
	return keep->area_slots[place->area] + (uint64_t)place->page * KEEP_SLOTS_PER_PAGE + place->slot;
}

static inline bool keep_record_good(const struct keep_record *record)
{
	return record->check != 0 && record->check == keep_check(record, offsetof(struct keep_record, check));
}

/* The words before may not be seen without it, nor it after them. */
static inline void keep_commit(uint64_t *check, uint64_t value)
{
	kvr_store_release(check, value);
}

static inline void keep_withdraw(uint64_t *check)
{
	kvr_store_release(check, 0);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

KVR_END_C

#endif
