/*
 * order.c - words in memory of ours by which transfers keep step with the engine (kvrail.h: layers and marks).
 *
 * They lie behind the message area, in its region: sets of words for the layers of a RETRIEVE, which the server writes, and words of
 * marks, which we or a GPU's stream write and the server reads. Values of a word only grow, so that whoever still waits for an earlier
 * value is let through by a later one, and nothing has to be cleared.
 */
#include <errno.h>

#include "base/atomic.h"
#include "client/client_private.h"

#define MARK_INDEX_BITS 16u
KVR_STATIC_ASSERT(CLIENT_MARKS < (1u << MARK_INDEX_BITS), "a mark names its word");

static uint32_t *layer_words(const struct kvr_client *client, uint32_t set)
{
	return client->words + (size_t)set * CLIENT_LAYERS_MAX;
}

static uint32_t *mark_words(const struct kvr_client *client)
{
	return client->words + (size_t)CLIENT_LAYER_SETS * CLIENT_LAYERS_MAX;
}

/* ---- layers ----------------------------------------------------------------------------------------------------- */

static int take_set(struct kvr_client *client, struct slot *slot, uint32_t layers)
{
	for (uint32_t set = 0; set < CLIENT_LAYER_SETS; set++) {
		if (client->layer_sets & (UINT64_C(1) << set))
			continue;
		client->layer_sets |= UINT64_C(1) << set;
		slot->layer_set = set;
		slot->layer_count = layers;
		slot->layer_value = ++client->layer_values[set];
		return 0;
	}
	error_text_set("%u retrieves with layers are under way or wait to be taken", CLIENT_LAYER_SETS);
	return -EBUSY;
}

static int order_layers(struct kvr_client *client, struct slot *slot, uint32_t layers, struct transfer_request *request)
{
	int error = take_set(client, slot, layers);

	if (error)
		return error;
	request->header.flags |= TRANSFER_LAYERS;
	request->order.layers_address = (uint64_t)(uintptr_t)layer_words(client, slot->layer_set);
	request->order.layer_count = layers;
	request->order.layer_value = slot->layer_value;
	return 0;
}

int order_fill(
	struct kvr_client *client, struct slot *slot, uint32_t layers, kvr_mark after, struct transfer_request *request)
{
	uint32_t region;
	int error = 0;

	if (layers == 0 && after == 0)
		return 0;
	if (!(client->server.features & FEATURE_FLAG_PER_LAYER)) {
		error_text_set("this server knows neither layers nor marks: update it, or wait for whole transfers");
		return -EOPNOTSUPP;
	}
	region = region_find(client, (uint64_t)(uintptr_t)client->words, CLIENT_WORDS_BYTES);
	request->order.layers_region = request->order.after_region = client->regions[region].number;
	if (after) {
		request->header.flags |= TRANSFER_AFTER;
		request->order.after_address = (uint64_t)(uintptr_t)(mark_words(client) + (after & UINT16_MAX));
		request->order.after_value = (uint32_t)(after >> MARK_INDEX_BITS);
	}
	if (layers)
		error = order_layers(client, slot, layers, request);
	return error;
}

void order_done(struct kvr_client *client, const struct slot *slot)
{
	uint32_t *words = layer_words(client, slot->layer_set);

	/* Also what failed: a stream that waits must go on, whoever looks at the result will know. */
	for (uint32_t i = 0; i < slot->layer_count; i++)
		kvr_store_release(&words[i], slot->layer_value);
}

void order_free(struct kvr_client *client, struct slot *slot)
{
	client->layer_sets &= ~(UINT64_C(1) << slot->layer_set);
	slot->layer_count = 0;
}

int client_layer(struct kvr_client *client, kvr_ticket ticket, uint32_t layer, struct client_word *word)
{
	const struct slot *slot = slot_find(client, ticket);

	if (!slot) {
		error_text_set("there is no such ticket, or its result was taken");
		return -ENOENT;
	}
	if (layer >= slot->layer_count) {
		error_text_set("layer %u of a request that has %u", layer, slot->layer_count);
		return -ERANGE;
	}
	if (slot->state == SLOT_DONE) {
		if (slot->result.error)
			error_text_set("%s", slot->result.text);
		return slot->result.error;
	}
	word->address = layer_words(client, slot->layer_set) + layer;
	word->value = slot->layer_value;
	return transfer_word_reached(kvr_load_acquire(word->address), word->value) ? 0 : -EAGAIN;
}

/* ---- marks ------------------------------------------------------------------------------------------------------ */

int client_mark_new(struct kvr_client *client, kvr_mark *mark)
{
	uint32_t *words = mark_words(client);

	if (!client->words) {
		error_text_set("not connected yet");
		return -ECONNRESET;
	}
	for (uint32_t i = 0; i < CLIENT_MARKS; i++) {
		uint32_t index = (client->next_mark + i) % CLIENT_MARKS;

		/* Another one may have it once the last one was reached. */
		if (kvr_load_acquire(&words[index]) != client->mark_values[index])
			continue;
		/* Mark 0 is none. */
		if (++client->mark_values[index] == 0 && index == 0)
			client->mark_values[index] = 1;
		client->next_mark = index + 1;
		*mark = (kvr_mark)client->mark_values[index] << MARK_INDEX_BITS | index;
		return 0;
	}
	error_text_set("%u marks have not been reached", CLIENT_MARKS);
	return -EBUSY;
}

int client_mark_word(struct kvr_client *client, kvr_mark mark, struct client_word *word)
{
	uint32_t index = (uint32_t)(mark & UINT16_MAX);
	uint32_t value = (uint32_t)(mark >> MARK_INDEX_BITS);

	if (mark == 0 || mark >> (MARK_INDEX_BITS + 32) != 0 || index >= CLIENT_MARKS || !client->words ||
		!transfer_word_reached(client->mark_values[index], value)) {
		error_text_set("this is no mark of kvr_mark_new");
		return -EINVAL;
	}
	word->address = mark_words(client) + index;
	word->value = value;
	return 0;
}

int client_mark_reach(struct kvr_client *client, kvr_mark mark)
{
	struct client_word word;
	int error = client_mark_word(client, mark, &word);

	if (!error && !transfer_word_reached(kvr_load_acquire(word.address), word.value))
		kvr_store_release(word.address, word.value);
	return error;
}
