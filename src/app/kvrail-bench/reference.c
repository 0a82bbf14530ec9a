#include "app/kvrail-bench/reference.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/random.h"

/* Entries are numbers; entry 0 is the end of the list of use: next of it is the most recently used one, previous the
 * least. */
struct entry {
	uint64_t chunk;
	uint32_t next, previous;
	uint32_t chain; /* next entry of the bucket, or of the free list; 0: none */
	bool kept;      /* of the range that is being stored */
};

struct reference {
	struct entry *entries;
	uint32_t *buckets;
	uint64_t bucket_mask;
	uint64_t capacity;
	uint64_t count;
	uint32_t free_entries;
};

int reference_create(uint64_t capacity, struct reference **out)
{
	struct reference *reference;
	uint64_t buckets = 1;

	if (capacity == 0 || capacity > UINT64_C(1) << 30)
		return -EINVAL;
	while (buckets < capacity)
		buckets *= 2;
	reference = calloc(1, sizeof(*reference));
	if (!reference)
		return -ENOMEM;
	reference->capacity = capacity;
	reference->bucket_mask = buckets - 1;
	reference->entries = calloc(capacity + 1, sizeof(*reference->entries));
	reference->buckets = calloc(buckets, sizeof(*reference->buckets));
	if (!reference->entries || !reference->buckets) {
		reference_destroy(&reference);
		return -ENOMEM;
	}
	for (uint32_t i = (uint32_t)capacity; i > 0; i--) {
		reference->entries[i].chain = reference->free_entries;
		reference->free_entries = i;
	}
	*out = reference;
	return 0;
}

void reference_destroy(struct reference **reference)
{
	if (!*reference)
		return;
	free((*reference)->entries);
	free((*reference)->buckets);
	free(*reference);
	*reference = NULL;
}

uint64_t reference_count(const struct reference *reference)
{
	return reference->count;
}

static uint32_t *bucket_of(const struct reference *reference, uint64_t chunk)
{
	return &reference->buckets[random_mix(chunk) & reference->bucket_mask];
}

static uint32_t find(const struct reference *reference, uint64_t chunk)
{
	uint32_t entry = *bucket_of(reference, chunk);

	while (entry && reference->entries[entry].chunk != chunk)
		entry = reference->entries[entry].chain;
	return entry;
}

static void unlink_use(struct reference *reference, uint32_t entry)
{
	struct entry *entries = reference->entries;

	entries[entries[entry].previous].next = entries[entry].next;
	entries[entries[entry].next].previous = entries[entry].previous;
}

static void link_first(struct reference *reference, uint32_t entry)
{
	struct entry *entries = reference->entries;

	entries[entry].next = entries[0].next;
	entries[entry].previous = 0;
	entries[entries[0].next].previous = entry;
	entries[0].next = entry;
}

static void touch(struct reference *reference, uint32_t entry)
{
	unlink_use(reference, entry);
	link_first(reference, entry);
}

/* Takes away the least recently used one that is not kept; false: there is none. */
static bool evict(struct reference *reference)
{
	uint32_t victim = reference->entries[0].previous;
	uint32_t *link;

	while (victim && reference->entries[victim].kept)
		victim = reference->entries[victim].previous;
	if (!victim)
		return false;
	unlink_use(reference, victim);
	for (link = bucket_of(reference, reference->entries[victim].chunk); *link != victim;)
		link = &reference->entries[*link].chain;
	*link = reference->entries[victim].chain;
	reference->entries[victim].chain = reference->free_entries;
	reference->free_entries = victim;
	reference->count--;
	return true;
}

static bool insert(struct reference *reference, uint64_t chunk)
{
	uint32_t *bucket = bucket_of(reference, chunk);
	uint32_t entry;

	if (!reference->free_entries && !evict(reference))
		return false;
	entry = reference->free_entries;
	reference->free_entries = reference->entries[entry].chain;
	reference->entries[entry].chunk = chunk;
	reference->entries[entry].chain = *bucket;
	reference->entries[entry].kept = true;
	*bucket = entry;
	link_first(reference, entry);
	reference->count++;
	return true;
}

uint32_t reference_lookup(const struct reference *reference, const uint64_t *chunks, uint32_t count)
{
	uint32_t hit = 0;

	while (hit < count && find(reference, chunks[hit]))
		hit++;
	return hit;
}

/* From the last to the first, those that are there. */
static uint32_t touch_range(struct reference *reference, const uint64_t *chunks, uint32_t first, uint32_t count)
{
	uint32_t there = 0;

	for (uint32_t i = first + count; i > first; i--) {
		uint32_t entry = find(reference, chunks[i - 1]);

		if (!entry)
			continue;
		reference->entries[entry].kept = false;
		touch(reference, entry);
		there++;
	}
	return there;
}

void reference_retrieve(struct reference *reference, const uint64_t *chunks, uint32_t first, uint32_t count)
{
	touch_range(reference, chunks, first, count);
}

uint32_t reference_store(struct reference *reference, const uint64_t *chunks, uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++) {
		uint32_t entry = find(reference, chunks[i]);

		if (entry)
			reference->entries[entry].kept = true;
	}
	/* What is there is kept and what is not must fit beside it: room for all is room for `count`. */
	for (uint32_t i = first; count <= reference->capacity && i < first + count; i++) {
		if (!find(reference, chunks[i]) && !insert(reference, chunks[i]))
			break;
	}
	return touch_range(reference, chunks, first, count);
}

void reference_end(struct reference *reference, const uint64_t *chunks, uint32_t count)
{
	touch_range(reference, chunks, 0, count);
}
