#include "tier/space.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"

#define NONE UINT32_MAX

int space_table_init(struct space_table *table, uint32_t capacity, uint64_t key)
{
	uint64_t heads = 16;

	while (heads < capacity)
		heads *= 2;
	memset(table, 0, sizeof(*table));
	table->spaces = fault_point("space_table_init/spaces") ? NULL : calloc(capacity, sizeof(*table->spaces));
	table->models = fault_point("space_table_init/models") ? NULL : calloc(capacity, sizeof(*table->models));
	table->space_heads = fault_point("space_table_init/heads") ? NULL : malloc(heads * 2 * sizeof(uint32_t));
	if (!table->spaces || !table->models || !table->space_heads) {
		space_table_fini(table);
		return -ENOMEM;
	}
	table->model_heads = table->space_heads + heads;
	memset(table->space_heads, 0xff, heads * 2 * sizeof(uint32_t));
	for (uint32_t i = 0; i < capacity; i++) {
		table->spaces[i].next = i + 1 < capacity ? i + 1 : NONE;
		table->models[i].next = table->spaces[i].next;
	}
	table->key = key;
	table->capacity = capacity;
	table->head_mask = (uint32_t)heads - 1;
	return 0;
}

void space_table_fini(struct space_table *table)
{
	free(table->space_heads);
	free(table->models);
	free(table->spaces);
	memset(table, 0, sizeof(*table));
}

uint64_t space_table_bytes(const struct space_table *table)
{
	return table->capacity * (uint64_t)(sizeof(*table->spaces) + sizeof(*table->models)) +
		((uint64_t)table->head_mask + 1) * 2 * sizeof(uint32_t);
}

static uint32_t *space_head(const struct space_table *table, uint32_t model, const uint8_t *salt)
{
	uint64_t hash = random_mix(table->key ^ model);
	uint64_t words[SPACE_SALT_BYTES / 8];

	memcpy(words, salt, sizeof(words));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		hash = random_mix(hash ^ words[i]);
	return &table->space_heads[hash & table->head_mask];
}

static uint32_t *model_head(const struct space_table *table, uint32_t model)
{
	return &table->model_heads[random_mix(table->key ^ model) & table->head_mask];
}

static uint32_t find_model(const struct space_table *table, uint32_t model)
{
	uint32_t record = *model_head(table, model);

	while (record != NONE && table->models[record].model != model)
		record = table->models[record].next;
	return record;
}

/* The record of a model with one more space. There is one for each space, so it never fails. */
static uint32_t join_model(struct space_table *table, uint32_t model)
{
	uint32_t record = find_model(table, model);
	uint32_t *head = model_head(table, model);

	if (record == NONE) {
		record = table->unused_model;
		table->unused_model = table->models[record].next;
		table->models[record] = (struct space_model){ .model = model, .next = *head };
		*head = record;
	}
	table->models[record].spaces++;
	return record;
}

static void leave_model(struct space_table *table, uint32_t record)
{
	struct space_model *model = &table->models[record];
	uint32_t *link = model_head(table, model->model);

	if (--model->spaces > 0)
		return;
	assert(model->chunks == 0);
	while (*link != record)
		link = &table->models[*link].next;
	*link = model->next;
	model->next = table->unused_model;
	table->unused_model = record;
}

uint32_t space_acquire(struct space_table *table, uint32_t model, const uint8_t *salt, uint32_t parts)
{
	uint32_t *head = space_head(table, model, salt);
	uint32_t number = *head;
	struct space *space;

	while (number != NONE &&
		(table->spaces[number].model != model ||
			memcmp(table->spaces[number].salt, salt, SPACE_SALT_BYTES) != 0))
		number = table->spaces[number].next;
	if (number == NONE) {
		if (table->unused_space == NONE || table->used == table->capacity)
			return NONE;
		number = table->unused_space;
		space = &table->spaces[number];
		table->unused_space = space->next;
		memcpy(space->salt, salt, SPACE_SALT_BYTES);
		space->chunks = 0;
		space->model = model;
		space->record = join_model(table, model);
		space->parts = parts;
		space->references = 0;
		space->next = *head;
		*head = number;
		table->used++;
	} else if (table->spaces[number].parts != parts) {
		return NONE;
	}
	table->spaces[number].references++;
	return number;
}

static void drop_unused(struct space_table *table, uint32_t number)
{
	struct space *space = &table->spaces[number];
	uint32_t *link = space_head(table, space->model, space->salt);

	if (space->references > 0 || space->chunks > 0)
		return;
	while (*link != number)
		link = &table->spaces[*link].next;
	*link = space->next;
	leave_model(table, space->record);
	space->parts = 0;
	space->next = table->unused_space;
	table->unused_space = number;
	table->used--;
}

void space_release(struct space_table *table, uint32_t number)
{
	assert(number < table->capacity && table->spaces[number].references > 0);
	table->spaces[number].references--;
	drop_unused(table, number);
}

void space_retain(struct space_table *table, uint32_t number)
{
	assert(number < table->capacity && table->spaces[number].references > 0);
	table->spaces[number].references++;
}

void space_add_chunk(struct space_table *table, uint32_t number)
{
	table->spaces[number].chunks++;
	table->models[table->spaces[number].record].chunks++;
}

void space_remove_chunk(struct space_table *table, uint32_t number)
{
	assert(table->spaces[number].chunks > 0);
	table->spaces[number].chunks--;
	table->models[table->spaces[number].record].chunks--;
	drop_unused(table, number);
}

uint64_t space_model_chunks(const struct space_table *table, uint32_t model)
{
	uint32_t record = find_model(table, model);

	return record != NONE ? table->models[record].chunks : 0;
}

int space_table_verify(const struct space_table *table)
{
	uint64_t space_chunks = 0;
	uint64_t model_chunks = 0;
	uint64_t model_spaces = 0;
	uint32_t used = 0;

	for (uint32_t i = 0; i < table->capacity; i++) {
		const struct space *space = &table->spaces[i];

		if (space->parts > 0) {
			used++;
			space_chunks += space->chunks;
			if ((space->references == 0 && space->chunks == 0) ||
				table->models[space->record].model != space->model)
				goto wrong;
		}
		if (table->models[i].spaces > 0) {
			model_spaces += table->models[i].spaces;
			model_chunks += table->models[i].chunks;
		}
	}
	if (used == table->used && model_spaces == used && model_chunks == space_chunks)
		return 0;
wrong:
	log_error("cache: %u spaces of which %u counted, %lu chunks of which models count %lu", used, table->used,
		(unsigned long)space_chunks, (unsigned long)model_chunks);
	return -EILSEQ;
}
