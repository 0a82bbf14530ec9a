#include "app/kvrail-bench/generation.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/random.h"

struct known {
	uint64_t chunk;      /* mixed with the rank; 0: empty slot */
	uint64_t stored;     /* generation of the last STORE that was acknowledged */
	uint64_t stored_at;  /* when, on the same counter */
	uint64_t superseded; /* this and older ones are gone */
};

struct generations {
	pthread_mutex_t mutex;
	struct known *table;
	uint64_t mask;
	uint64_t count;
	uint64_t next;       /* counts begun STOREs and acknowledgements */
	uint64_t *under_way; /* by writer; 0: none */
	uint32_t writers;
};

#define FIRST_SLOTS 1024

int generations_create(uint32_t writers, struct generations **out)
{
	struct generations *generations = calloc(1, sizeof(*generations));

	if (!generations)
		return -ENOMEM;
	generations->table = calloc(FIRST_SLOTS, sizeof(*generations->table));
	generations->under_way = calloc(writers, sizeof(*generations->under_way));
	generations->mask = FIRST_SLOTS - 1;
	generations->writers = writers;
	generations->next = 1;
	pthread_mutex_init(&generations->mutex, NULL);
	if (!generations->table || !generations->under_way) {
		generations_destroy(&generations);
		return -ENOMEM;
	}
	*out = generations;
	return 0;
}

void generations_destroy(struct generations **generations)
{
	if (!*generations)
		return;
	pthread_mutex_destroy(&(*generations)->mutex);
	free((*generations)->table);
	free((*generations)->under_way);
	free(*generations);
	*generations = NULL;
}

static uint64_t key_of(uint64_t chunk, uint32_t rank)
{
	return random_mix(chunk + rank * 0x9e3779b97f4a7c15u) | 1;
}

/* The slot of a key, or the empty one where it belongs. */
static struct known *slot_of(struct known *table, uint64_t mask, uint64_t key)
{
	uint64_t at = key >> 8 & mask;

	while (table[at].chunk && table[at].chunk != key)
		at = (at + 1) & mask;
	return &table[at];
}

static int grow(struct generations *generations)
{
	uint64_t mask = generations->mask * 2 + 1;
	struct known *table = calloc(mask + 1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	for (uint64_t i = 0; i <= generations->mask; i++) {
		if (generations->table[i].chunk)
			*slot_of(table, mask, generations->table[i].chunk) = generations->table[i];
	}
	free(generations->table);
	generations->table = table;
	generations->mask = mask;
	return 0;
}

uint64_t generations_begin(struct generations *generations, uint32_t writer)
{
	uint64_t generation;

	pthread_mutex_lock(&generations->mutex);
	generation = generations->next++;
	generations->under_way[writer] = generation;
	pthread_mutex_unlock(&generations->mutex);
	return generation;
}

void generations_end(struct generations *generations, uint32_t writer)
{
	pthread_mutex_lock(&generations->mutex);
	generations->under_way[writer] = 0;
	pthread_mutex_unlock(&generations->mutex);
}

static void note_stored(struct generations *generations, struct known *known, uint64_t generation)
{
	if (known->stored && known->stored_at < generation)
		known->superseded = kvr_max_u64(known->superseded, known->stored);
	/* One that was begun long ago and came late: it is there now. */
	if (generation <= known->superseded)
		known->superseded = generation - 1;
	known->stored = generation;
	known->stored_at = generations->next++;
}

int generations_stored(struct generations *generations, uint64_t chunk, uint32_t rank, uint64_t generation)
{
	uint64_t key = key_of(chunk, rank);
	struct known *known;
	int error = 0;

	pthread_mutex_lock(&generations->mutex);
	if (generations->count * 4 > generations->mask * 3)
		error = grow(generations);
	if (!error) {
		known = slot_of(generations->table, generations->mask, key);
		generations->count += !known->chunk;
		known->chunk = key;
		note_stored(generations, known, generation);
	}
	pthread_mutex_unlock(&generations->mutex);
	return error;
}

void generations_floors(
	struct generations *generations, const uint64_t *chunks, uint32_t count, uint32_t rank, uint64_t *floors)
{
	uint64_t oldest = UINT64_MAX;

	pthread_mutex_lock(&generations->mutex);
	for (uint32_t writer = 0; writer < generations->writers; writer++) {
		if (generations->under_way[writer])
			oldest = kvr_min_u64(oldest, generations->under_way[writer]);
	}
	for (uint32_t i = 0; i < count; i++) {
		const struct known *known = slot_of(generations->table, generations->mask, key_of(chunks[i], rank));

		floors[i] = kvr_min_u64(known->superseded, oldest - 1);
	}
	pthread_mutex_unlock(&generations->mutex);
}

uint64_t generations_ceiling(struct generations *generations)
{
	uint64_t ceiling;

	pthread_mutex_lock(&generations->mutex);
	ceiling = generations->next;
	pthread_mutex_unlock(&generations->mutex);
	return ceiling;
}
