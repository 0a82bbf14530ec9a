#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "verbs/sim/sim.h"

#define FIRST_SLOTS 64u

static uint32_t home_of(const struct sim_table *table, uint32_t key)
{
	return (uint32_t)random_mix(key) & table->mask;
}

static void put(struct sim_table *table, uint32_t key, void *value)
{
	uint32_t place = home_of(table, key);

	while (table->slots[place].key)
		place = (place + 1) & table->mask;
	table->slots[place].key = key;
	table->slots[place].value = value;
}

static int grow(struct sim_table *table)
{
	uint32_t old_slots = table->slots ? table->mask + 1 : 0;
	uint32_t slots = old_slots ? old_slots * 2 : FIRST_SLOTS;
	struct sim_table grown = { .mask = slots - 1, .count = table->count };

	grown.slots = fault_point("sim_table_add") ? NULL : calloc(slots, sizeof(*grown.slots));
	if (!grown.slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < old_slots; i++) {
		if (table->slots[i].key)
			put(&grown, table->slots[i].key, table->slots[i].value);
	}
	free(table->slots);
	memcpy(grown.recent, table->recent, sizeof(grown.recent));
	*table = grown;
	return 0;
}

int sim_table_add(struct sim_table *table, uint32_t key, void *value)
{
	if (!table->slots || table->count >= (table->mask + 1) / 2) {
		int error = grow(table);

		if (error)
			return error;
	}
	put(table, key, value);
	table->count++;
	return 0;
}

/* The slot with the key, or the empty one that ends its chain. */
static uint32_t place_of(const struct sim_table *table, uint32_t key)
{
	uint32_t place = home_of(table, key);

	while (table->slots[place].key && table->slots[place].key != key)
		place = (place + 1) & table->mask;
	return place;
}

void *sim_table_look_up(struct sim_table *table, uint32_t key)
{
	struct sim_table_slot *slot;

	if (!table->slots || key == 0)
		return NULL;
	slot = &table->slots[place_of(table, key)];
	if (slot->key)
		table->recent[key % 8] = *slot;
	return slot->value;
}

void sim_table_remove(struct sim_table *table, uint32_t key)
{
	uint32_t hole, place;

	if (!table->slots || key == 0)
		return;
	hole = place_of(table, key);
	if (!table->slots[hole].key)
		return;
	table->count--;
	if (table->recent[key % 8].key == key)
		memset(&table->recent[key % 8], 0, sizeof(table->recent[0]));
	/* Those behind move up when their home lies at or before the hole, so that no chain breaks. */
	for (place = (hole + 1) & table->mask; table->slots[place].key; place = (place + 1) & table->mask) {
		uint32_t home = home_of(table, table->slots[place].key);

		if (((place - home) & table->mask) >= ((place - hole) & table->mask)) {
			table->slots[hole] = table->slots[place];
			hole = place;
		}
	}
	table->slots[hole].key = 0;
	table->slots[hole].value = NULL;
}

uint32_t sim_table_new_key(struct sim_table *table, struct random *random, uint64_t bound)
{
	uint32_t key;

	do {
		key = 1 + (uint32_t)random_below(random, bound - 1);
	} while (sim_table_find(table, key));
	return key;
}

void sim_table_fini(struct sim_table *table)
{
	free(table->slots);
	memset(table, 0, sizeof(*table));
}
