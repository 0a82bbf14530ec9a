#include "tier/entries.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "tier/cache.h"

#define NONE UINT32_MAX

static void *allocate_slab(const struct entries *entries)
{
	return fault_point("entries_init/slab") ? NULL : cache_allocate_memory(entries_slab_bytes(entries));
}

int entries_init(struct entries *entries, uint32_t slab_shift, uint32_t lists, uint32_t initial, uint32_t limit)
{
	uint64_t per_slab = (uint64_t)1 << slab_shift;
	uint32_t heads = 1 + lists;
	uint64_t slabs = ((uint64_t)initial + heads + per_slab - 1) / per_slab;
	uint64_t part_slabs = limit / (per_slab / 32) + ENTRIES_PART_SIZES +
		1; /* a list is no longer than 32 entries */

	memset(entries, 0, sizeof(*entries));
	entries->slab_shift = slab_shift;
	entries->slab_limit = (uint32_t)(((uint64_t)limit + heads + per_slab - 1) / per_slab);
	entries->part_slab_limit = (uint32_t)kvr_min_u64(part_slabs, NONE - 1);
	entries->part_slab_unused = NONE;
	entries->free_first = NONE;
	entries->heads = heads;
	entries->fresh = heads;
	memset(entries->partial, 0xff, sizeof(entries->partial));
	slabs = kvr_min_u64(slabs, entries->slab_limit);

	entries->slabs = fault_point("entries_init/slabs") ? NULL : calloc(entries->slab_limit, sizeof(void *));
	entries->part_slabs = fault_point("entries_init/parts")
		? NULL
		: calloc(entries->part_slab_limit, sizeof(*entries->part_slabs));
	if (!entries->slabs || !entries->part_slabs)
		goto no_memory;
	for (; entries->slab_count < slabs; entries->slab_count++, entries->slabs_held++) {
		entries->slabs[entries->slab_count] = allocate_slab(entries);
		if (!entries->slabs[entries->slab_count])
			goto no_memory;
	}
	entries->spare = allocate_slab(entries);
	if (!entries->spare)
		goto no_memory;
	entries->slabs_held++;
	for (uint32_t i = 0; i < heads; i++) {
		entries_at(entries, i)->space = ENTRIES_FREE;
		entries_at(entries, i)->list.prev = i;
		entries_at(entries, i)->list.next = i;
	}
	return 0;

no_memory:
	entries_fini(entries);
	return -ENOMEM;
}

void entries_fini(struct entries *entries)
{
	void *memory;

	for (uint32_t i = 0; i < entries->slab_count; i++)
		free(entries->slabs[i]);
	for (uint32_t i = 0; i < entries->part_slab_count; i++)
		free(entries->part_slabs[i].memory);
	while ((memory = entries_take_garbage(entries)) != NULL)
		free(memory);
	free(entries->spare);
	free(entries->part_slabs);
	free(entries->slabs);
	memset(entries, 0, sizeof(*entries));
}

/* ---- lists of parts ---- */

static uint32_t part_size(uint32_t parts)
{
	return 31 - (uint32_t)__builtin_clz(parts - 1);
}

static uint32_t lists_per_slab(const struct entries *entries, uint32_t size)
{
	return (uint32_t)(entries_slab_bytes(entries) / (sizeof(uint64_t) << (size + 1)));
}

static void partial_add(struct entries *entries, uint32_t number)
{
	struct part_slab *slab = &entries->part_slabs[number];

	slab->prev = NONE;
	slab->next = entries->partial[slab->size];
	if (slab->next != NONE)
		entries->part_slabs[slab->next].prev = number;
	entries->partial[slab->size] = number;
}

static void partial_remove(struct entries *entries, uint32_t number)
{
	struct part_slab *slab = &entries->part_slabs[number];

	if (slab->prev != NONE)
		entries->part_slabs[slab->prev].next = slab->next;
	else
		entries->partial[slab->size] = slab->next;
	if (slab->next != NONE)
		entries->part_slabs[slab->next].prev = slab->prev;
}

static void *take_spare(struct entries *entries)
{
	void *memory = entries->spare;

	entries->spare = NULL;
	return memory;
}

static bool add_part_slab(struct entries *entries, uint32_t size)
{
	uint32_t number = entries->part_slab_unused;
	struct part_slab *slab;

	if (!entries->spare)
		return false;
	if (number != NONE)
		entries->part_slab_unused = entries->part_slabs[number].next;
	else if (entries->part_slab_count < entries->part_slab_limit)
		number = entries->part_slab_count++;
	else
		return false;
	slab = &entries->part_slabs[number];
	slab->memory = take_spare(entries);
	slab->used = 0;
	slab->fresh = 0;
	slab->free_first = NONE;
	slab->size = (uint8_t)size;
	partial_add(entries, number);
	return true;
}

/* Lists are named by their offset in words; a free one has the next free one's in its first word. */
static bool take_parts(struct entries *entries, uint32_t parts, uint64_t *handle)
{
	uint32_t size = part_size(parts);
	uint32_t words = UINT32_C(2) << size;
	struct part_slab *slab;
	uint32_t number, offset;

	if (entries->partial[size] == NONE && !add_part_slab(entries, size))
		return false;
	number = entries->partial[size];
	slab = &entries->part_slabs[number];
	offset = slab->free_first;
	if (offset != NONE)
		slab->free_first = (uint32_t)slab->memory[offset];
	else
		offset = slab->fresh++ * words;
	if (++slab->used == lists_per_slab(entries, size))
		partial_remove(entries, number);
	memset(slab->memory + offset, 0, words * sizeof(uint64_t));
	*handle = (uint64_t)number << 32 | offset;
	return true;
}

static void give_parts(struct entries *entries, uint64_t handle)
{
	uint32_t number = (uint32_t)(handle >> 32);
	struct part_slab *slab = &entries->part_slabs[number];

	slab->memory[(uint32_t)handle] = slab->free_first;
	slab->free_first = (uint32_t)handle;
	if (slab->used-- == lists_per_slab(entries, slab->size))
		partial_add(entries, number);
	/* One free slab of a size is kept, so that a chunk that comes and goes moves no memory. */
	if (slab->used > 0 || (slab->prev == NONE && slab->next == NONE))
		return;
	partial_remove(entries, number);
	entries->slabs_held--;
	entries_add_slab(entries, slab->memory);
	slab->memory = NULL;
	slab->next = entries->part_slab_unused;
	entries->part_slab_unused = number;
}

/* ---- entries ---- */

static bool have_entry(struct entries *entries)
{
	if (entries->free_first != NONE || entries->fresh < (uint64_t)entries->slab_count << entries->slab_shift)
		return true;
	if (!entries->spare || entries->slab_count == entries->slab_limit)
		return false;
	entries->slabs[entries->slab_count++] = take_spare(entries);
	return true;
}

uint32_t entries_take(struct entries *entries, uint32_t parts)
{
	uint64_t handle = 0;
	uint32_t number;

	if (!have_entry(entries) || (parts > 1 && !take_parts(entries, parts, &handle)))
		return 0;
	number = entries->free_first;
	if (number != NONE)
		entries->free_first = entries_at(entries, number)->list.next;
	else
		number = entries->fresh++;
	entries_at(entries, number)->objects = handle;
	return number;
}

void entries_give(struct entries *entries, uint32_t number, uint32_t parts)
{
	struct cache_entry *entry = entries_at(entries, number);

	if (parts > 1)
		give_parts(entries, entry->objects);
	entry->space = ENTRIES_FREE;
	entry->list.next = entries->free_first;
	entries->free_first = number;
}

bool entries_want_slab(const struct entries *entries)
{
	return !entries->spare;
}

void entries_add_slab(struct entries *entries, void *memory)
{
	if (entries->spare) {
		entries_discard(entries, memory);
		return;
	}
	entries->spare = memory;
	entries->slabs_held++;
}

void entries_discard(struct entries *entries, void *memory)
{
	*(void **)memory = entries->garbage;
	entries->garbage = memory;
}

void *entries_take_garbage(struct entries *entries)
{
	void *memory = entries->garbage;

	if (memory)
		entries->garbage = *(void **)memory;
	return memory;
}

int entries_verify(const struct entries *entries)
{
	uint64_t limit = entries->fresh;
	uint64_t free_count = 0;
	uint64_t free_found = 0;
	uint64_t slabs = entries->slab_count + (entries->spare != NULL);

	for (uint32_t number = entries->heads; number < entries->fresh; number++)
		free_found += entries_at(entries, number)->space == ENTRIES_FREE;
	for (uint32_t number = entries->free_first; number != NONE && free_count < limit; free_count++)
		number = entries_at(entries, number)->list.next;
	for (uint32_t number = 0; number < entries->part_slab_count; number++)
		slabs += entries->part_slabs[number].memory != NULL;
	if (free_count == free_found && slabs == entries->slabs_held)
		return 0;
	log_error("cache: %lu free entries of which %lu on the list, %lu slabs of which %lu counted",
		(unsigned long)free_found, (unsigned long)free_count, (unsigned long)slabs,
		(unsigned long)entries->slabs_held);
	return -EILSEQ;
}
