/*
 * space.h - the spaces of the cache: (model, salt) pairs that nothing ever matches across. Internal to the cache.
 *
 * A space lives while it has references or chunks. Chunks are summed for each model as well.
 */
#ifndef KVRAIL_TIER_SPACE_H
#define KVRAIL_TIER_SPACE_H

#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define SPACE_SALT_BYTES 32

struct space {
	uint8_t salt[SPACE_SALT_BYTES];
	uint64_t chunks;
	uint32_t model;
	uint32_t record;     /* in `models` */
	uint32_t parts;      /* 0: this number is unused */
	uint32_t references; /* of callers */
	uint32_t account;    /* the caller's word for whose it is */
	uint32_t next;       /* with the same head; of an unused one: the next unused one */
};

struct space_model {
	uint64_t chunks;
	uint32_t model;
	uint32_t spaces; /* 0: this record is unused */
	uint32_t next;
};

struct space_table {
	struct space *spaces;
	struct space_model *models; /* as many as spaces: each space could be of another model */
	uint32_t *space_heads;
	uint32_t *model_heads;
	uint64_t key;
	uint32_t capacity;
	uint32_t head_mask;
	uint32_t unused_space;
	uint32_t unused_model;
	uint32_t used;
};

/* key: random, so that nobody can choose salts that share a head. 0, -ENOMEM. */
KVR_MUST_CHECK int space_table_init(struct space_table *table, uint32_t capacity, uint64_t key);
void space_table_fini(struct space_table *table);
uint64_t space_table_bytes(const struct space_table *table);

/* The number of the space, with one more reference; UINT32_MAX: the table is full, or the space has another number of
 * parts. */
uint32_t space_acquire(struct space_table *table, uint32_t model, const uint8_t *salt, uint32_t parts);
void space_release(struct space_table *table, uint32_t number);
/* One more reference to a space that has some. */
void space_retain(struct space_table *table, uint32_t number);
void space_add_chunk(struct space_table *table, uint32_t number);
void space_remove_chunk(struct space_table *table, uint32_t number);
uint64_t space_model_chunks(const struct space_table *table, uint32_t model);
/* Sums agree: 0, or -EILSEQ after logging. */
int space_table_verify(const struct space_table *table);

KVR_END_C

#endif
