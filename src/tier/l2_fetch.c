/*
 * l2_fetch.c - a fetch from its beginning to its end.
 *
 *   0           decided          asked            limit        count
 *   |== found ==|- asked for ----|                |            |
 *   |== here ==|- loading -|
 *              loaded: all below are here or under way
 *
 * It is over when decided and loaded have come to the limit and nothing is under way. The limit falls with the first
 * chunk that no adapter has, or that cannot be loaded.
 */
#include <errno.h>
#include <string.h>

#include "tier/l2_internal.h"

/* ---- begin ---- */

static void release_classes(struct l2 *l2, struct l2_fetch *fetch, uint32_t count)
{
	while (count > 0)
		l1_class_release(l2->options.l1, fetch->classes[--count]);
}

static int acquire_classes(struct l2 *l2, struct l2_fetch *fetch)
{
	for (uint32_t part = 0; part < fetch->parts; part++) {
		int error = fetch->part_bytes[part]
			? l1_class_acquire(l2->options.l1, fetch->part_bytes[part], &fetch->classes[part])
			: -ENODATA;

		if (error) {
			release_classes(l2, fetch, part);
			return error;
		}
	}
	return 0;
}

static void init_fetch(struct l2_fetch *fetch, const struct l2_want *want)
{
	memset(fetch, 0, offsetof(struct l2_fetch, chunks));
	list_init(&fetch->node);
	list_init(&fetch->requests);
	fetch->owner = want->owner;
	memcpy(fetch->model_key, want->model_key, sizeof(fetch->model_key));
	memcpy(fetch->salt, want->salt, sizeof(fetch->salt));
	memcpy(fetch->part_bytes, want->part_bytes, want->parts * sizeof(*want->part_bytes));
	fetch->space = want->space;
	fetch->parts = want->parts;
	fetch->tenant = want->tenant % L2_TENANTS;
	fetch->first = want->first;
	fetch->count = want->count;
	fetch->limit = want->count;
	fetch->deadline_ns = want->deadline_ns;
	fetch->again_at = UINT32_MAX;
}

int l2_fetch_begin(struct l2 *l2, const struct l2_want *want, struct l2_fetch **out)
{
	struct l2_fetch *fetch;
	int error;

	*out = NULL;
	if (want->count == 0 || want->count > L2_CHUNKS_MAX || want->parts == 0 || want->parts > L2_PARTS_MAX)
		return -EINVAL;
	fetch = l2->leaving || l2_closed(l2) ? NULL : pool_take(&l2->fetches_pool);
	if (!fetch) {
		L2_COUNT(l2, fetches_refused, 1);
		return -EAGAIN;
	}
	init_fetch(fetch, want);
	fetch->begun_ns = l2->now_ns;
	error = acquire_classes(l2, fetch);
	if (error) {
		pool_give(&l2->fetches_pool, fetch);
		return error;
	}
	cache_space_retain(l2->options.cache, fetch->space);
	list_add_last(&l2->fetches, &fetch->node);
	L2_COUNT(l2, fetches, 1);
	*out = fetch;
	return 0;
}

/* ---- on its way ---- */

void l2_fill_identity(const struct l2_fetch *fetch, const uint8_t *digest, uint32_t part, struct l2_identity *identity)
{
	memcpy(identity->model_key, fetch->model_key, sizeof(identity->model_key));
	memcpy(identity->salt, fetch->salt, sizeof(identity->salt));
	memcpy(identity->digest, digest, sizeof(identity->digest));
	identity->part = part;
	identity->reserved = 0;
	identity->bytes = fetch->part_bytes[part];
}

void l2_fetch_cut(struct l2_fetch *fetch, uint32_t limit)
{
	if (limit < fetch->limit)
		fetch->limit = limit;
	/* In the midst of a chunk that does not come any more: what has been sent of it lands all the same, and an earlier chunk may still have
	 * to be asked for again. */
	if (fetch->loaded >= fetch->limit)
		fetch->load_part = 0;
}

void l2_fetch_lock(struct l2 *l2, struct l2_fetch *fetch, uint32_t chunk, uint32_t entry)
{
	if (fetch->chunks[chunk].entry != CACHE_NONE || fetch->canceled)
		return;
	cache_lock(l2->options.cache, entry, 1);
	fetch->chunks[chunk].entry = entry;
	if (fetch->lock_end <= chunk)
		fetch->lock_end = chunk + 1;
}

void l2_fetch_decide(struct l2 *l2, struct l2_fetch *fetch)
{
	while (fetch->decided < fetch->limit && fetch->decided < fetch->asked &&
		fetch->chunks[fetch->decided].state >= L2_CHUNK_FOUND)
		fetch->decided++;
	if (fetch->decided < fetch->limit || fetch->early_told || fetch->canceled)
		return;
	fetch->early_told = true;
	l2->options.callbacks.early(fetch->owner, fetch->limit);
}

/* ---- the end ---- */

void l2_fetch_cancel(struct l2 *l2, struct l2_fetch *fetch)
{
	fetch->canceled = true;
	fetch->linger = L2_LINGER;
	L2_COUNT(l2, fetches_canceled, 1);
	list_for_each_safe(node, &fetch->requests) {
		struct l2_slot *slot = KVR_CONTAINER_OF(node, struct l2_slot, mine);
		struct l2_adapter *adapter = l2->places[slot->adapter].adapter;

		if (slot->sent)
			adapter->driver->cancel(adapter, &slot->request);
	}
}

/* From the last chunk to the first, so that late chunks are evicted first. True when none is left. */
static bool drop_locks(struct l2 *l2, struct l2_fetch *fetch, uint32_t *budget)
{
	while (fetch->lock_end > 0 && *budget > 0) {
		uint32_t *entry = &fetch->chunks[--fetch->lock_end].entry;

		(*budget)--;
		if (*entry != CACHE_NONE)
			cache_unlock(l2->options.cache, *entry, 1);
		*entry = CACHE_NONE;
	}
	return fetch->lock_end == 0;
}

static bool is_over(const struct l2_fetch *fetch)
{
	if (fetch->asks || fetch->loads)
		return false;
	return fetch->canceled ||
		(fetch->decided >= fetch->limit && fetch->loaded >= fetch->limit && fetch->again_at >= fetch->limit);
}

/* Locks keep the space alive while there are chunks; the callback may free the model with its last session. */
static void end_fetch(struct l2 *l2, struct l2_fetch *fetch)
{
	l2->options.callbacks.done(fetch->owner);
	release_classes(l2, fetch, fetch->parts);
	cache_space_release(l2->options.cache, fetch->space);
	list_remove(&fetch->node);
	list_add_last(&l2->unlocking, &fetch->node);
}

static bool unlock_step(struct l2 *l2, uint32_t *budget)
{
	bool busy = false;

	while (!list_empty(&l2->unlocking) && *budget > 0) {
		struct l2_fetch *fetch = KVR_CONTAINER_OF(l2->unlocking.next, struct l2_fetch, node);

		busy = true;
		if (!drop_locks(l2, fetch, budget))
			break;
		list_remove(&fetch->node);
		pool_give(&l2->fetches_pool, fetch);
	}
	return busy;
}

/* A request that no adapter has yet ends here. */
static void end_unsent(struct l2 *l2, struct l2_slot *slot)
{
	list_remove(&slot->request.node);
	slot->request.status = -ECANCELED;
	l2->places[slot->adapter].reading--;
	if (slot->request.operation == L2_LOAD)
		l2_load_ended(l2, slot);
	else
		l2_ask_ended(l2, slot);
}

static void drop_unsent(struct l2 *l2, struct l2_fetch *fetch)
{
	list_for_each_safe(node, &fetch->requests) {
		struct l2_slot *slot = KVR_CONTAINER_OF(node, struct l2_slot, mine);

		if (!slot->sent)
			end_unsent(l2, slot);
	}
}

static void lose_request(struct l2 *l2, struct l2_slot *slot)
{
	struct l2_adapter *adapter = l2->places[slot->adapter].adapter;

	if (!slot->sent) {
		end_unsent(l2, slot);
		return;
	}
	if (slot->request.operation == L2_LOAD)
		l2_load_lose(l2, slot);
	else
		l2_ask_lose(l2, slot);
	adapter->driver->cancel(adapter, &slot->request);
}

void l2_fetch_lose(struct l2 *l2, uint32_t place)
{
	list_for_each(fetch_node, &l2->fetches) {
		struct l2_fetch *fetch = KVR_CONTAINER_OF(fetch_node, struct l2_fetch, node);

		list_for_each_safe(node, &fetch->requests) {
			struct l2_slot *slot = KVR_CONTAINER_OF(node, struct l2_slot, mine);

			if (slot->adapter == place)
				lose_request(l2, slot);
		}
	}
}

static bool fetch_turn(struct l2 *l2, struct l2_fetch *fetch, uint32_t *budget)
{
	bool busy = false;

	if (fetch->canceled) {
		drop_unsent(l2, fetch);
		if (fetch->linger > 0) {
			fetch->linger--;
			return true;
		}
		busy = fetch->lock_end > 0;
		(void)drop_locks(l2, fetch, budget);
	}
	if (!is_over(fetch))
		return busy;
	end_fetch(l2, fetch);
	return true;
}

bool l2_fetch_step(struct l2 *l2)
{
	uint32_t budget = L2_STEP_UNLOCKS;
	bool busy = unlock_step(l2, &budget);

	list_for_each_safe(node, &l2->fetches)
		busy |= fetch_turn(l2, KVR_CONTAINER_OF(node, struct l2_fetch, node), &budget);
	return busy;
}
