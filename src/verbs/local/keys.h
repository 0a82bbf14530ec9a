/*
 * keys.h - a table from keys to memory: local keys of a device, remote keys of a queue pair.
 *
 * A key names an entry and its generation, so that one that was given back does not match the entry's next use. Local
 * and remote keys are of different classes: neither is ever valid in the other's place. One writer at a time (the
 * caller's lock); polling threads look up without one: the key is published last, with release, and withdrawn first.
 */
#ifndef KVRAIL_VERBS_LOCAL_KEYS_H
#define KVRAIL_VERBS_LOCAL_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"

KVR_BEGIN_C

/* Bits 31..30 class, 29..16 generation, 15..0 entry. 0 is never a key. */
#define LOCAL_KEY_OURS 0x40000000u   /* lkey: this process's memory */
#define LOCAL_KEY_THEIRS 0x80000000u /* rkey: the client's */

struct local_mapping;

struct KVR_ALIGNED(KVR_CACHE_LINE) local_key {
	uint32_t key; /* 0: free */
	int access;   /* enum ibv_access_flags; 0 for imports */
	uint64_t address;
	uint64_t length;
	uint8_t *base; /* where the byte at `address` lies in this process; NULL: not here (MEMORY_PROCESS) */
	struct local_mapping *mapping;
	uint32_t generation; /* writer's */
	uint32_t gpu;        /* with `device` */
	uint64_t device;     /* GPU memory: its address there, never touched by the processor; 0: host memory */
	void *region;        /* GPU memory: verbs_gpu_memory.region */
};
KVR_STATIC_ASSERT(sizeof(struct local_key) == KVR_CACHE_LINE, "a look-up is one cache line");

struct local_keys {
	struct local_key *entries;
	uint32_t capacity;
	uint32_t next; /* writer's: where the search for a free entry begins, so that reuse comes late */
	uint32_t key_class;
	void *memory; /* what `entries` lies in */
};

/* capacity <= 65536. 0 or -ENOMEM. */
KVR_MUST_CHECK int local_keys_init(struct local_keys *keys, uint32_t capacity, uint32_t key_class);
void local_keys_fini(struct local_keys *keys);
/* Writer. Publishes a copy of `entry` (its key and generation are the table's). The key, 0 when the table is full. */
uint32_t local_keys_add(struct local_keys *keys, const struct local_key *entry);
/* Writer. Withdraws it; what it was in `entry`. False when there is no such key. */
bool local_keys_remove(struct local_keys *keys, uint32_t key, struct local_key *entry);

/* Polling thread. NULL when the key is not valid. */
static inline const struct local_key *local_keys_find(const struct local_keys *keys, uint32_t key)
{
	const struct local_key *entry = &keys->entries[key & 0xffffu];

	if (KVR_UNLIKELY((key & 0xffffu) >= keys->capacity || key == 0 || kvr_load_acquire(&entry->key) != key))
		return NULL;
	return entry;
}

/* True when [address, address + length) lies inside the entry's memory. An address below it wraps around to a difference
 * that is too large. */
static inline bool local_key_covers(const struct local_key *entry, uint64_t address, uint64_t length)
{
	return length <= entry->length && address - entry->address <= entry->length - length;
}

KVR_END_C

#endif
