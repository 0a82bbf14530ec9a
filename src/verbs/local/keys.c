/* keys.c - the writer's half of the key tables. */
#include "verbs/local/keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

#define GENERATION_MASK 0x3fffu

int local_keys_init(struct local_keys *keys, uint32_t capacity, uint32_t key_class)
{
	memset(keys, 0, sizeof(*keys));
	/* calloc and a line to align by, since most entries are never used and so never touched */
	if (!fault_point("local_keys_init"))
		keys->memory = calloc((size_t)capacity + 1, sizeof(struct local_key));
	if (!keys->memory)
		return -ENOMEM;
	keys->entries = (struct local_key *)kvr_round_up((uintptr_t)keys->memory, KVR_CACHE_LINE);
	keys->capacity = capacity;
	keys->key_class = key_class;
	return 0;
}

void local_keys_fini(struct local_keys *keys)
{
	free(keys->memory);
	memset(keys, 0, sizeof(*keys));
}

uint32_t local_keys_add(struct local_keys *keys, const struct local_key *entry)
{
	for (uint32_t tried = 0; tried < keys->capacity; tried++) {
		uint32_t index = (keys->next + tried) % keys->capacity;
		struct local_key *slot = &keys->entries[index];
		uint32_t key;

		if (slot->key != 0)
			continue;
		keys->next = (index + 1) % keys->capacity;
		slot->generation = (slot->generation + 1) & GENERATION_MASK;
		slot->access = entry->access;
		slot->address = entry->address;
		slot->length = entry->length;
		slot->base = entry->base;
		slot->mapping = entry->mapping;
		slot->gpu = entry->gpu;
		slot->device = entry->device;
		slot->region = entry->region;
		key = keys->key_class | slot->generation << 16 | index;
		/* pairs with the load-acquire of local_keys_find */
		kvr_store_release(&slot->key, key);
		return key;
	}
	return 0;
}

bool local_keys_remove(struct local_keys *keys, uint32_t key, struct local_key *entry)
{
	struct local_key *slot = &keys->entries[key & 0xffffu];

	if (key == 0 || (key & 0xffffu) >= keys->capacity || slot->key != key)
		return false;
	*entry = *slot;
	kvr_store_release(&slot->key, 0);
	return true;
}
