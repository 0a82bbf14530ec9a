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
	request->used_ns = offer->used_ns;
	request->position = offer->position;
	slot->object = object;
	slot->entry = offer->entry;
}

/* What places that were taken out keep is half of what there may be at most. */
static bool has_room(const struct l2 *l2, uint64_t bytes)
{
	uint64_t most = l2->options.store_bytes_max, now = l2->store_bytes + bytes;

	return now <= most && now + l2->lost_store_bytes <= 2 * most;
}

/* False: the limits are reached. */
static bool enqueue(struct l2 *l2, uint32_t place, const struct l2_offer *offer, l1_ref object)
{
	uint64_t bytes = l1_bytes(l2->options.l1, object);
	struct l2_slot *slot;

	if (l2->places[place].waiting + l2->places[place].storing >= l2->options.store_queue || !has_room(l2, bytes))
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

/* False: it is to be offered again. What a place that is out has missed it goes without, when another one has it. */
static bool enqueue_all(struct l2 *l2, const struct l2_offer *offer, l1_ref object)
{
	uint32_t out = 0, dropped = 0, taken = 0;

	for (uint32_t i = 0; i < l2->options.adapter_count; i++) {
		if (l2_place_stores(l2, i)) {
			if (enqueue(l2, i, offer, object))
				taken++;
			else
				dropped++;
			continue;
		}
		out++;
		kvr_counter_add(&l2->places[i].health.dropped, 1);
	}
	/* What is not written now costs no checksum. */
	if (taken > 0 && !offer->again)
		l2_sum_begin(l2, offer->entry, object);
	L2_COUNT(l2, store_dropped, dropped > 0);
	L2_COUNT(l2, store_dropped_out, out > 0);
	return dropped == 0 && out < l2->options.adapter_count;
}

void l2_offer(struct l2 *l2, const struct l2_offer *offer)
{
	l1_ref object;
	uint64_t hash;

	if (l2->options.policy == L2_STORE_NONE || (offer->again && l2->wanted_count == 0))
		return;
	object = cache_object(l2->options.cache, offer->entry, offer->part);
	if (!object)
		return;
	if (!offer->again)
		l2_sum_set(l2, object, L2_SUM_NONE);
	hash = hash_of(offer->model_key, offer->salt, offer->digest, offer->part);
	if (offer->again && !unwant(l2, hash))
		return;
	if (!offer->again && l2->options.policy == L2_STORE_SECOND_USE) {
		l2_sum_begin(l2, offer->entry, object);
		want(l2, hash);
		return;
	}
	if (l2_sum_of(l2, object) == L2_SUM_BAD)
		return;
	L2_COUNT(l2, offered, 1);
	if (l2_closed(l2) || !enqueue_all(l2, offer, object))
		want(l2, hash);
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
	if (slot->lost) {
		l2->lost_store_bytes -= slot->request.identity.bytes;
		l2->places[slot->adapter].ways[L2_WRITES].lost--;
	} else {
		l2->store_bytes -= slot->request.identity.bytes;
	}
	slot->object = 0;
	pool_give(&l2->stores_pool, slot);
}

/* False: it is being made. */
static bool take_sum(const struct l2 *l2, struct l2_slot *slot)
{
	uint64_t sum = l2_sum_of(l2, slot->object);

	slot->request.has_checksum = sum >= L2_SUM_FIRST;
	slot->request.checksum = sum;
	return sum != L2_SUM_PENDING;
}

bool l2_store_step(struct l2 *l2, uint32_t number)
{
	struct l2_place *place = &l2->places[number];
	struct l2_adapter *adapter = place->adapter;
	bool busy = false;

	if (l2->now_ns < place->ways[L2_WRITES].until_ns)
		return false;
	for (unsigned n = 0; n < L2_STEP_STORES && place->storing < l2->options.stores_max; n++) {
		struct list_node *node = list_pop_first(&place->queue);
		struct l2_slot *slot;

		if (!node)
			break;
		slot = KVR_CONTAINER_OF(node, struct l2_slot, mine);
		list_init(&slot->request.node);
		if (!take_sum(l2, slot) || adapter->driver->submit(adapter, &slot->request)) {
			list_add_first(&place->queue, node);
			break;
		}
		slot->sent = true;
		list_add_last(&place->sent, &slot->mine);
		place->waiting--;
		if (place->storing++ == 0)
			place->ways[L2_WRITES].answered_ns = l2->now_ns;
		busy = true;
		if (place->ways[L2_WRITES].failures >= L2_FAILURES)
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

uint32_t l2_store_drop_queue(struct l2 *l2, struct l2_place *place)
{
	struct list_node *node;
	uint32_t dropped = 0;

	while ((node = list_pop_first(&place->queue))) {
		struct l2_slot *slot = KVR_CONTAINER_OF(node, struct l2_slot, mine);

		place->waiting--;
		give_up(l2, slot);
		free_store(l2, slot, false);
		dropped++;
	}
	return dropped;
}

void l2_store_lose(struct l2 *l2, uint32_t number)
{
	struct l2_place *place = &l2->places[number];

	list_for_each(node, &place->sent) {
		struct l2_slot *slot = KVR_CONTAINER_OF(node, struct l2_slot, mine);

		if (slot->lost)
			continue;
		slot->lost = true;
		place->ways[L2_WRITES].lost++;
		l2->store_bytes -= slot->request.identity.bytes;
		l2->lost_store_bytes += slot->request.identity.bytes;
		place->adapter->driver->cancel(place->adapter, &slot->request);
	}
}

static bool worth_another(const struct l2 *l2, const struct l2_slot *slot)
{
	int status = slot->request.status;

	return status != -ENOSPC && status != -EBADMSG && !l2->leaving && !slot->lost &&
		l2_place_stores(l2, slot->adapter) && !l2_closed(l2) && slot->attempts < l2->options.store_attempts;
}

/* What is in L1 is not what had come: it is of no use to anybody. */
static void bytes_changed(struct l2 *l2, struct l2_slot *slot)
{
	uint32_t entry = slot->entry;
	l1_ref object = slot->object;

	L2_COUNT(l2, store_failed, 1);
	free_store(l2, slot, false);
	l2_sum_bad(l2, entry, object);
}

void l2_store_ended(struct l2 *l2, struct l2_slot *slot)
{
	struct l2_place *place = &l2->places[slot->adapter];

	list_remove(&slot->mine);
	if (!slot->lost)
		(void)l2_health_answer(l2, slot->adapter, L2_WRITES, &slot->request);
	if (slot->request.status == 0) {
		L2_COUNT(l2, stored, 1);
		L2_COUNT(l2, stored_bytes, slot->request.identity.bytes);
		free_store(l2, slot, l2->options.demote);
		return;
	}
	if (slot->request.status == -EBADMSG && slot->request.has_checksum) {
		bytes_changed(l2, slot);
		return;
	}
	slot->attempts++;
	if (worth_another(l2, slot)) {
		try_again(l2, slot);
		return;
	}
	give_up(l2, slot);
	free_store(l2, slot, false);
	if (l2->leaving)
		(void)l2_store_drop_queue(l2, place);
}

void l2_hurry(struct l2 *l2)
{
	l2->leaving = true;
	for (uint32_t i = 0; i < l2->options.adapter_count; i++)
		if (l2->places[i].ways[L2_WRITES].failures > 0)
			(void)l2_store_drop_queue(l2, &l2->places[i]);
}
