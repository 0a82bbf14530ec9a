/*
 * l2_clear.c - CLEAR: what is dropped from L1 is dropped from the places, too, and does not come back.
 *
 *   l2_clear_begin --> CLOSED: nothing is asked, loaded or stored; what is under way ends
 *      --> nothing is under way any more: the caller drops chunks of L1
 *      --> l2_clear_remove: each place removes the models' objects --> l2_clear_ended: open again
 *
 * So no object of before is in L1, or on its way there, when the places have removed theirs, and none is on its way to
 * a place that has.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "tier/l2_internal.h"

int l2_clear_begin(struct l2 *l2)
{
	if (l2->clear.state != L2_CLEAR_NONE)
		return -EAGAIN;
	l2->clear.state = L2_CLEAR_CLOSED;
	l2->clear.failed = l2->clear.pending = 0;
	l2->clear.until_ns = l2->now_ns + l2->options.timeout_ns;
	for (uint32_t i = 0; i < l2->options.adapter_count; i++) {
		l2->places[i].cleared = false;
		(void)l2_store_drop_queue(l2, &l2->places[i]);
		l2_fetch_lose(l2, i);
	}
	l2_load_drop_unpublished(l2);
	list_for_each(node, &l2->fetches)
		l2_fetch_cut(KVR_CONTAINER_OF(node, struct l2_fetch, node), 0);
	return 0;
}

static bool under_way(const struct l2_place *place)
{
	return place->storing + place->reading > 0 || place->probe.step != L2_PROBE_REST;
}

bool l2_clear_quiet(const struct l2 *l2)
{
	if (l2->now_ns >= l2->clear.until_ns)
		return true;
	if (pool_used(&l2->sums_pool) > 0)
		return false;
	for (uint32_t i = 0; i < l2->options.adapter_count; i++)
		if (under_way(&l2->places[i]) && !l2->places[i].ways[L2_READS].out)
			return false;
	return true;
}

void l2_clear_remove(struct l2 *l2, const uint8_t (*model_keys)[32], uint32_t count)
{
	l2->clear.state = L2_CLEAR_REMOVING;
	l2->clear.until_ns = l2->now_ns + L2_CLEAR_TIMEOUTS * l2->options.timeout_ns;
	l2->clear.keys = count;
	if (count > 0)
		memcpy(l2->clear_keys, model_keys, (size_t)count * sizeof(*model_keys));
	l2->clear.everything = !model_keys;
}

static void fail(struct l2 *l2, struct l2_place *place, int error)
{
	uint64_t squashed;

	place->cleared = true;
	l2->clear.failed++;
	kvr_counter_add(&l2->counters->clear_failed, 1);
	if (!log_rate_pass(&l2->clear_log, l2->now_ns, KVR_SECOND, &squashed))
		return;
	if (error == -EOPNOTSUPP)
		log_warn(
			"L2: %s is a place that is not cleared: what is there may come back. Remove its objects by hand "
			"while no server uses it",
			place->adapter->name);
	else
		log_warn("L2: %s could not be cleared (%s): what is there may come back. Clear again when it works, or "
			 "remove its objects by hand while no server uses it",
			place->adapter->name, strerror(-error));
}

/* False: its queue is full. */
static bool send_clear(struct l2 *l2, uint32_t number)
{
	struct l2_place *place = &l2->places[number];
	struct l2_request *request = &place->clear.request;

	memset(&place->clear, 0, sizeof(place->clear));
	list_init(&request->node);
	request->operation = L2_CLEAR;
	request->memory = l2->clear.everything ? NULL : place->clear_keys;
	request->identity.bytes = (uint64_t)l2->clear.keys * sizeof(*l2->clear_keys);
	memcpy(place->clear_keys, l2->clear_keys, (size_t)request->identity.bytes);
	place->clear.adapter = number;
	if (place->adapter->driver->submit(place->adapter, request))
		return false;
	place->clear.sent = true;
	place->cleared = true;
	l2->clear.pending++;
	return true;
}

/* Nothing may be submitted to a place before its CLEAR has ended: one that does not end is out, and the others go on. */
static void give_up(struct l2 *l2, uint32_t number)
{
	struct l2_place *place = &l2->places[number];

	place->clear_lost = true;
	l2->clear.pending--;
	fail(l2, place, -ETIMEDOUT);
	l2_health_clear_lost(l2, number);
}

bool l2_clear_step(struct l2 *l2)
{
	bool busy = false;

	if (KVR_LIKELY(l2->clear.state != L2_CLEAR_REMOVING))
		return false;
	for (uint32_t i = 0; i < l2->options.adapter_count; i++) {
		struct l2_place *place = &l2->places[i];

		if (place->clear.sent && !place->clear_lost && l2->now_ns >= l2->clear.until_ns)
			give_up(l2, i);
		if (place->cleared)
			continue;
		/* One that is out could not, and what it still has could land afterwards. */
		if (place->ways[L2_READS].out || under_way(place))
			fail(l2, place, -EIO);
		else if (l2->clear.everything || l2->clear.keys > 0)
			(void)send_clear(l2, i);
		else
			place->cleared = true;
		busy = true;
	}
	return busy;
}

void l2_clear_request_ended(struct l2 *l2, struct l2_slot *slot)
{
	struct l2_place *place = &l2->places[slot->adapter];

	slot->sent = false;
	if (place->clear_lost) {
		place->clear_lost = false;
		return;
	}
	l2->clear.pending--;
	if (slot->request.status)
		fail(l2, place, slot->request.status);
}

bool l2_clear_ended(struct l2 *l2, uint32_t *failed)
{
	for (uint32_t i = 0; i < l2->options.adapter_count; i++)
		if (!l2->places[i].cleared)
			return false;
	if (l2->clear.state != L2_CLEAR_REMOVING || l2->clear.pending > 0)
		return false;
	*failed = l2->clear.failed;
	l2->clear.state = L2_CLEAR_NONE;
	kvr_counter_add(&l2->counters->clears, 1);
	return true;
}
