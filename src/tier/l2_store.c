/* l2_store.c - write-through: offers, each adapter's queue, and what becomes of a STORE. */
#include <errno.h>
#include <string.h>

#include "base/random.h"
#include "tier/l2_internal.h"

/* ---- what is in L1 only ---- */

static uint64_t hash_of(const uint8_t *model_key, const uint8_t *salt, const uint8_t *digest, uint32_t part)
{
	uint64_t words[3];

	memcpy(&words[0], model_key, sizeof(words[0]));
	memcpy(&words[1], salt, sizeof(words[1]));
	memcpy(&words[2], digest, sizeof(words[2]));
	return random_mix(random_mix(words[0] ^ part) ^ random_mix(words[1]) ^ words[2]) | 1;
}

/* One that is forgotten for another in its place stays out of L2 until it is published again: a cache may. */
static void want(struct l2 *l2, uint64_t hash)
{
	uint64_t *place = &l2->wanted[(hash >> 8) & l2->wanted_mask];

	l2->wanted_count += *place == 0;
	*place = hash;
}

static bool unwant(struct l2 *l2, uint64_t hash)
{
	uint64_t *place = &l2->wanted[(hash >> 8) & l2->wanted_mask];

	if (*place != hash)
		return false;
	*place = 0;
	l2->wanted_count--;
	return true;
}

static void want_identity(struct l2 *l2, const struct l2_identity *identity)
{
	want(l2, hash_of(identity->model_key, identity->salt, identity->digest, identity->part));
}

/* ---- offers ---- */

static void fill_store(struct l2 *l2, struct l2_slot *slot, const struct l2_offer *offer, l1_ref object)
{
	struct l2_request *request = &slot->request;

	memset(slot, 0, sizeof(*slot));
	list_init(&slot->mine);
	list_init(&request->node);
	request->operation = L2_STORE;
	memcpy(request->identity.model_key, offer->model_key, sizeof(request->identity.model_key));
	memcpy(request->identity.salt, offer->salt, sizeof(request->identity.salt));
	memcpy(request->identity.digest, offer->digest, sizeof(request->identity.digest));
	request->identity.part = offer->part;
	request->identity.bytes = l1_bytes(l2->options.l1, object);
	request->memory = l1_address(l2->options.l1, object);
	request->owner = slot;
	slot->object = object;
	slot->entry = offer->entry;
}

/* False: the limits are reached. */
static bool enqueue(struct l2 *l2, uint32_t place, const struct l2_offer *offer, l1_ref object)
{
	uint64_t bytes = l1_bytes(l2->options.l1, object);
	struct l2_slot *slot;

	if (l2->places[place].waiting + l2->places[place].storing >= l2->options.store_queue ||
		l2->store_bytes + bytes > l2->options.store_bytes_max)
		return false;
	slot = pool_take(&l2->stores_pool);
	if (!slot)
		return false;
	fill_store(l2, slot, offer, object);
	slot->adapter = place;
	cache_pin(l2->options.cache, offer->entry);
	l2->store_bytes += bytes;
	l2->places[place].waiting++;
	list_add_last(&l2->places[place].queue, &slot->mine);
	return true;
}

void l2_offer(struct l2 *l2, const struct l2_offer *offer)
{
	l1_ref object;
	uint64_t hash;
	bool all = true;

	if (l2->options.policy == L2_STORE_NONE || (offer->again && l2->wanted_count == 0))
		return;
	hash = hash_of(offer->model_key, offer->salt, offer->digest, offer->part);
	if (offer->again && !unwant(l2, hash))
		return;
	if (!offer->again && l2->options.policy == L2_STORE_SECOND_USE) {
		want(l2, hash);
		return;
	}
	object = cache_object(l2->options.cache, offer->entry, offer->part);
	if (!object)
		return;
	L2_COUNT(l2, offered, 1);
	for (uint32_t i = 0; i < l2->options.adapter_count; i++)
		all &= enqueue(l2, i, offer, object);
	if (!all) {
		L2_COUNT(l2, store_dropped, 1);
		want(l2, hash);
	}
}

/* ---- stores ---- */

static void give_up(struct l2 *l2, struct l2_slot *slot)
{
	L2_COUNT(l2, store_failed, 1);
	want_identity(l2, &slot->request.identity);
}

static void free_store(struct l2 *l2, struct l2_slot *slot, bool demote)
{
	cache_unpin(l2->options.cache, slot->entry);
	if (demote)
		cache_demote(l2->options.cache, slot->entry);
	l2->store_bytes -= slot->request.identity.bytes;
	slot->object = 0;
	pool_give(&l2->stores_pool, slot);
}

bool l2_store_step(struct l2 *l2, uint32_t number)
{
	struct l2_place *place = &l2->places[number];
	struct l2_adapter *adapter = place->adapter;
	bool busy = false;

	if (l2->now_ns < place->store_until_ns)
		return false;
	for (unsigned n = 0; n < L2_STEP_STORES && place->storing < l2->options.stores_max; n++) {
		struct list_node *node = list_pop_first(&place->queue);
		struct l2_slot *slot;

		if (!node)
			break;
		slot = KVR_CONTAINER_OF(node, struct l2_slot, mine);
		list_init(&slot->request.node);
		if (adapter->driver->submit(adapter, &slot->request)) {
			list_add_first(&place->queue, node);
			break;
		}
		slot->sent = true;
		place->waiting--;
		place->storing++;
		busy = true;
		if (place->store_failures >= L2_FAILURES)
			break; /* one, to see whether the place is well again */
	}
	return busy;
}

/* Its turn comes first again, when the place has had its rest. */
static void try_again(struct l2 *l2, struct l2_slot *slot)
{
	struct l2_place *place = &l2->places[slot->adapter];

	L2_COUNT(l2, store_retries, 1);
	slot->sent = false;
	place->waiting++;
	list_add_first(&place->queue, &slot->mine);
}

/* The place does not work, and nobody has time for it. */
static void drop_queue(struct l2 *l2, struct l2_place *place)
{
	struct list_node *node;

	while ((node = list_pop_first(&place->queue))) {
		struct l2_slot *slot = KVR_CONTAINER_OF(node, struct l2_slot, mine);

		place->waiting--;
		give_up(l2, slot);
		free_store(l2, slot, false);
	}
}

void l2_store_ended(struct l2 *l2, struct l2_slot *slot)
{
	struct l2_place *place = &l2->places[slot->adapter];
	int status = slot->request.status;

	if (status == 0) {
		L2_COUNT(l2, stored, 1);
		L2_COUNT(l2, stored_bytes, slot->request.identity.bytes);
		l2_place_good(&place->store_failures, &place->store_until_ns);
		free_store(l2, slot, l2->options.demote);
		return;
	}
	if (l2->now_ns >= place->store_until_ns)
		l2_place_failed(l2, &place->store_failures, &place->store_until_ns);
	slot->attempts++;
	if (status != -ENOSPC && status != -EBADMSG && !l2->leaving && slot->attempts < l2->options.store_attempts) {
		try_again(l2, slot);
		return;
	}
	give_up(l2, slot);
	free_store(l2, slot, false);
	if (l2->leaving)
		drop_queue(l2, place);
}

void l2_hurry(struct l2 *l2)
{
	l2->leaving = true;
	for (uint32_t i = 0; i < l2->options.adapter_count; i++)
		if (l2->places[i].store_failures > 0)
			drop_queue(l2, &l2->places[i]);
}
