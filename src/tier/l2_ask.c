/* l2_ask.c - which chunks are there: each one is asked for at one adapter after the other, in the order of the chain. */
#include <errno.h>
#include <string.h>

#include "tier/l2_internal.h"

static void send_ask(
	struct l2 *l2, struct l2_fetch *fetch, uint32_t chunk, uint32_t part, uint32_t place, const uint8_t *digest)
{
	struct l2_slot *slot = pool_take(&l2->asks_pool);

	memset(slot, 0, sizeof(*slot));
	slot->request.operation = L2_CONTAINS;
	slot->request.urgent = true;
	slot->request.deadline_ns = fetch->deadline_ns;
	slot->request.used_ns = fetch->begun_ns;
	slot->request.position = fetch->first + chunk;
	slot->request.owner = slot;
	l2_fill_identity(fetch, digest, part, &slot->request.identity);
	slot->fetch = fetch;
	slot->chunk = chunk;
	slot->adapter = place;
	list_add_last(&fetch->requests, &slot->mine);
	fetch->asks++;
	l2->asks++;
	fetch->chunks[chunk].pending++;
	l2_send(l2, slot);
}

/* The next adapter that may be asked, from chunk.adapter on; adapter_count: none. */
static uint32_t next_place(const struct l2 *l2, const struct l2_chunk *chunk)
{
	uint32_t place = chunk->adapter;

	while (place < l2->options.adapter_count && !l2_place_reads(l2, place))
		place++;
	return place;
}

/* False: not now. */
static bool ask_chunk(struct l2 *l2, struct l2_fetch *fetch, uint32_t number)
{
	struct l2_chunk *chunk = &fetch->chunks[number];
	const uint8_t *digest = l2->options.callbacks.digest(fetch->owner, number);
	uint32_t place = next_place(l2, chunk);
	uint32_t entry;

	if (place == l2->options.adapter_count) {
		l2_fetch_cut(fetch, number);
		return true;
	}
	if (!l2_place_open(l2, place) || l2->asks + fetch->parts > l2->options.asks_max)
		return false;
	entry = cache_find(l2->options.cache, fetch->space, digest);
	if (entry != CACHE_NONE) {
		l2_fetch_lock(l2, fetch, number, entry);
		if (cache_complete(l2->options.cache, entry)) {
			chunk->state = L2_CHUNK_HERE;
			return true;
		}
	}
	if (chunk->state == L2_CHUNK_NEW)
		L2_COUNT(l2, asked_chunks, 1);
	chunk->adapter = (uint8_t)place;
	chunk->state = L2_CHUNK_ASKED;
	chunk->failed = false;
	for (uint32_t part = 0; part < fetch->parts; part++)
		if (entry == CACHE_NONE || !cache_object(l2->options.cache, entry, part))
			send_ask(l2, fetch, number, part, place, digest);
	return true;
}

/* Chunks that the first adapter did not have. */
static bool ask_again(struct l2 *l2, struct l2_fetch *fetch, uint32_t *budget)
{
	bool busy = false;

	for (uint32_t c = fetch->decided; c < fetch->asked && c < fetch->limit && fetch->to_ask > 0 && *budget > 0;
		c++) {
		if (fetch->chunks[c].state != L2_CHUNK_ASK)
			continue;
		if (!ask_chunk(l2, fetch, c))
			break;
		fetch->to_ask--;
		(*budget)--;
		busy = true;
	}
	return busy;
}

static bool ask_fetch(struct l2 *l2, struct l2_fetch *fetch, uint32_t *budget)
{
	bool busy = ask_again(l2, fetch, budget);

	while (fetch->asked < fetch->limit && fetch->asked - fetch->decided<L2_ASK_WINDOW && * budget> 0) {
		struct l2_chunk *chunk = &fetch->chunks[fetch->asked];

		*chunk = (struct l2_chunk){ .entry = CACHE_NONE };
		if (!ask_chunk(l2, fetch, fetch->asked))
			break;
		fetch->asked++;
		(*budget)--;
		busy = true;
	}
	l2_fetch_decide(l2, fetch);
	return busy;
}

bool l2_ask_step(struct l2 *l2)
{
	uint32_t budget = L2_STEP_ASKS;
	bool busy = false;

	for (uint32_t n = pool_used(&l2->fetches_pool); n > 0 && budget > 0 && !list_empty(&l2->fetches); n--) {
		struct list_node *node = list_pop_first(&l2->fetches);
		struct l2_fetch *fetch = KVR_CONTAINER_OF(node, struct l2_fetch, node);

		list_add_last(&l2->fetches, node);
		if (!fetch->canceled && !l2_closed(l2))
			busy |= ask_fetch(l2, fetch, &budget);
	}
	return busy;
}

/* A chunk whose last answer has come. */
static void conclude(struct l2 *l2, struct l2_fetch *fetch, uint32_t number)
{
	struct l2_chunk *chunk = &fetch->chunks[number];

	if (chunk->pending > 0)
		return;
	if (!chunk->failed) {
		chunk->state = L2_CHUNK_FOUND;
		L2_COUNT(l2, found_chunks, 1);
		return;
	}
	chunk->adapter++;
	if (chunk->adapter < l2->options.adapter_count) {
		chunk->state = L2_CHUNK_ASK;
		fetch->to_ask++;
	} else {
		l2_fetch_cut(fetch, number);
	}
}

static void take_answer(struct l2 *l2, struct l2_slot *slot, bool there)
{
	struct l2_fetch *fetch = slot->fetch;
	struct l2_chunk *chunk = &fetch->chunks[slot->chunk];

	list_remove(&slot->mine);
	fetch->asks--;
	l2->asks--;
	chunk->pending--;
	chunk->failed |= !there;
	conclude(l2, fetch, slot->chunk);
}

void l2_ask_ended(struct l2 *l2, struct l2_slot *slot)
{
	if (slot->lost) {
		l2->places[slot->adapter].ways[L2_READS].lost--;
		list_remove(&slot->mine);
	} else {
		if (l2_health_answer(l2, slot->adapter, L2_READS, &slot->request))
			L2_COUNT(l2, load_errors, 1);
		take_answer(l2, slot, slot->request.status == 0);
	}
	pool_give(&l2->asks_pool, slot);
}

void l2_ask_lose(struct l2 *l2, struct l2_slot *slot)
{
	take_answer(l2, slot, false);
	slot->fetch = NULL;
	slot->lost = true;
	l2->places[slot->adapter].ways[L2_READS].lost++;
	list_add_last(&l2->lost, &slot->mine);
}
