#include "tier/file_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/random.h"

#define SLAB_ENTRIES UINT32_C(16384)
#define LIMIT_MAX (UINT32_C(1) << 28)
#define NONE UINT32_C(0)
#define CURSORS 64u
#define WALK 1024u /* entries passed at most on the way to a place: beyond that it is near enough */

/* Entries are named by numbers from 1 on, so that zeroed memory is an empty table. */
struct file_entry {
	uint8_t hash[32];
	uint32_t at_low, at_high; /* of file_use */
	uint32_t blocks;          /* 0: not in use */
	uint32_t chain;           /* next of the bucket, or of the free list */
	uint32_t newer;
	uint32_t older;
	uint16_t fan;
	uint16_t reserved;
};
KVR_STATIC_ASSERT(sizeof(struct file_entry) == 60, "stated in file_index.h and docs/L2_ADAPTERS.md");

struct cursor { /* where an object of this chain was put */
	uint64_t chain;
	uint32_t number;
};

struct file_index {
	struct file_entry **slabs;
	uint32_t *buckets;
	uint32_t bucket_mask;
	uint32_t limit;
	uint32_t made; /* entries that have been taken from slabs at some time */
	uint32_t free;
	uint32_t count;
	uint32_t newest;
	uint32_t oldest;
	uint64_t blocks;
	struct cursor cursors[CURSORS];
};

static struct file_entry *entry_at(const struct file_index *index, uint32_t number)
{
	return &index->slabs[(number - 1) / SLAB_ENTRIES][(number - 1) % SLAB_ENTRIES];
}

/* The hash is SHA-256: any of its bits will do. */
static uint32_t *bucket_of(const struct file_index *index, const struct file_name *name)
{
	uint32_t key;

	memcpy(&key, name->hash, sizeof(key));
	return &index->buckets[key & index->bucket_mask];
}

int file_index_create(uint32_t limit, struct file_index **out)
{
	struct file_index *index;
	uint32_t buckets = 1024;

	*out = NULL;
	if (limit == 0 || limit > LIMIT_MAX)
		return -EINVAL;
	while (buckets < limit)
		buckets *= 2;
	index = fault_point("file_index/object") ? NULL : calloc(1, sizeof(*index));
	if (!index)
		return -ENOMEM;
	index->limit = limit;
	index->bucket_mask = buckets - 1;
	/* Large and zeroed: pages come as they are used. */
	index->buckets = fault_point("file_index/buckets") ? NULL : calloc(buckets, sizeof(*index->buckets));
	index->slabs = fault_point("file_index/slabs")
		? NULL
		: calloc((limit + SLAB_ENTRIES - 1) / SLAB_ENTRIES, sizeof(void *));
	if (!index->buckets || !index->slabs) {
		file_index_destroy(&index);
		return -ENOMEM;
	}
	*out = index;
	return 0;
}

void file_index_destroy(struct file_index **slot)
{
	struct file_index *index = *slot;

	*slot = NULL;
	if (!index)
		return;
	if (index->slabs) {
		for (uint32_t i = 0; i < (index->limit + SLAB_ENTRIES - 1) / SLAB_ENTRIES; i++)
			free(index->slabs[i]);
	}
	free(index->slabs);
	free(index->buckets);
	free(index);
}

static void order_remove(struct file_index *index, struct file_entry *entry)
{
	if (entry->newer)
		entry_at(index, entry->newer)->older = entry->older;
	else
		index->newest = entry->older;
	if (entry->older)
		entry_at(index, entry->older)->newer = entry->newer;
	else
		index->oldest = entry->newer;
	entry->newer = NONE;
	entry->older = NONE;
}

static uint64_t at_of(const struct file_entry *entry)
{
	return (uint64_t)entry->at_high << 32 | entry->at_low;
}

static struct cursor *cursor_of(struct file_index *index, uint64_t chain)
{
	return &index->cursors[random_mix(chain) % CURSORS];
}

/* The one that is to be just newer; NONE: there is none. From the old end. */
static uint32_t place_from_oldest(const struct file_index *index, uint64_t at)
{
	uint32_t newer = index->oldest;

	for (uint32_t n = 0; n < WALK && newer && at_of(entry_at(index, newer)) < at; n++)
		newer = entry_at(index, newer)->newer;
	return newer;
}

/* The same, from where the last one of the chain is, or else from the new end. */
static uint32_t place_from_chain(
	const struct file_index *index, const struct cursor *cursor, const struct file_use *use)
{
	bool known = cursor->chain == use->chain && cursor->number && entry_at(index, cursor->number)->blocks;
	uint32_t older = known ? cursor->number : index->newest, newer = known ? entry_at(index, older)->newer : NONE;
	uint32_t n = 0;

	for (; n < WALK && older && at_of(entry_at(index, older)) > use->at; n++) {
		newer = older;
		older = entry_at(index, older)->older;
	}
	for (; n < WALK && newer && at_of(entry_at(index, newer)) <= use->at; n++)
		newer = entry_at(index, newer)->newer;
	return newer;
}

/* The entry is on no list, and in use only when it has been put on it. */
static void order_add(struct file_index *index, uint32_t number, const struct file_use *use)
{
	struct file_entry *entry = entry_at(index, number);
	struct cursor *cursor = cursor_of(index, use->chain);

	entry->at_low = (uint32_t)use->at;
	entry->at_high = (uint32_t)(use->at >> 32);
	entry->newer = use->chain ? place_from_chain(index, cursor, use) : place_from_oldest(index, use->at);
	entry->older = entry->newer ? entry_at(index, entry->newer)->older : index->newest;
	if (use->chain)
		*cursor = (struct cursor){ use->chain, number };
	if (entry->newer)
		entry_at(index, entry->newer)->older = number;
	else
		index->newest = number;
	if (entry->older)
		entry_at(index, entry->older)->newer = number;
	else
		index->oldest = number;
}

/* The link that names the entry, or the one at the end of its bucket. */
static uint32_t *link_of(const struct file_index *index, const struct file_name *name)
{
	uint32_t *link = bucket_of(index, name);

	while (*link) {
		struct file_entry *entry = entry_at(index, *link);

		if (entry->fan == name->fan && memcmp(entry->hash, name->hash, sizeof(entry->hash)) == 0)
			break;
		link = &entry->chain;
	}
	return link;
}

uint64_t file_index_find(const struct file_index *index, const struct file_name *name)
{
	uint32_t number = *link_of(index, name);

	return number ? (uint64_t)entry_at(index, number)->blocks * FILE_BLOCK : 0;
}

uint64_t file_index_use(struct file_index *index, const struct file_name *name, const struct file_use *use)
{
	uint32_t number = *link_of(index, name), blocks;
	struct file_entry *entry;

	if (!number)
		return 0;
	entry = entry_at(index, number);
	blocks = entry->blocks;
	if (at_of(entry) < use->at) {
		order_remove(index, entry);
		entry->blocks = 0; /* no cursor leads to it */
		order_add(index, number, use);
		entry->blocks = blocks;
	}
	return (uint64_t)blocks * FILE_BLOCK;
}

/* 0, -ENOSPC, -ENOMEM. */
static int entry_take(struct file_index *index, uint32_t *number)
{
	struct file_entry **slab;

	if (index->free) {
		*number = index->free;
		index->free = entry_at(index, *number)->chain;
		return 0;
	}
	if (index->made == index->limit)
		return -ENOSPC;
	slab = &index->slabs[index->made / SLAB_ENTRIES];
	if (!*slab) {
		uint32_t left = index->limit - index->made;

		*slab = fault_point("file_index/slab")
			? NULL
			: calloc(left < SLAB_ENTRIES ? left : SLAB_ENTRIES, sizeof(**slab));
		if (!*slab)
			return -ENOMEM;
	}
	*number = ++index->made;
	return 0;
}

int file_index_add(struct file_index *index, const struct file_name *name, uint64_t bytes, const struct file_use *use)
{
	uint32_t *link = link_of(index, name);
	uint32_t blocks = (uint32_t)(bytes / FILE_BLOCK), number = *link;
	struct file_entry *entry;
	int error;

	if (number) {
		entry = entry_at(index, number);
		index->blocks += blocks;
		index->blocks -= entry->blocks;
		entry->blocks = blocks;
		return 0;
	}
	error = entry_take(index, &number);
	if (error)
		return error;
	entry = entry_at(index, number);
	memcpy(entry->hash, name->hash, sizeof(entry->hash));
	entry->fan = name->fan;
	entry->chain = NONE;
	*link = number;
	order_add(index, number, use);
	entry->blocks = blocks;
	index->count++;
	index->blocks += blocks;
	return 0;
}

uint64_t file_index_remove(struct file_index *index, const struct file_name *name)
{
	uint32_t *link = link_of(index, name), number = *link;
	struct file_entry *entry;
	uint32_t blocks;

	if (!number)
		return 0;
	entry = entry_at(index, number);
	blocks = entry->blocks;
	*link = entry->chain;
	order_remove(index, entry);
	entry->blocks = 0;
	entry->chain = index->free;
	index->free = number;
	index->count--;
	index->blocks -= blocks;
	return (uint64_t)blocks * FILE_BLOCK;
}

uint64_t file_index_pop(struct file_index *index, struct file_name *name)
{
	const struct file_entry *entry;

	if (!index->oldest)
		return 0;
	entry = entry_at(index, index->oldest);
	memcpy(name->hash, entry->hash, sizeof(name->hash));
	name->fan = entry->fan;
	return file_index_remove(index, name);
}

uint64_t file_index_oldest_bytes(const struct file_index *index)
{
	return index->oldest ? (uint64_t)entry_at(index, index->oldest)->blocks * FILE_BLOCK : 0;
}

uint32_t file_index_count(const struct file_index *index)
{
	return index->count;
}

uint64_t file_index_bytes(const struct file_index *index)
{
	return index->blocks * FILE_BLOCK;
}
