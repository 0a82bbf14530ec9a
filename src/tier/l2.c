/* l2.c - the engine as a whole: making it, its turn, and what ends at the adapters. */
#include "tier/l2.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "tier/l2_internal.h"

/* ---- create and destroy ---- */

static void default_u32(uint32_t *field, uint32_t value)
{
	if (*field == 0)
		*field = value;
}

static void default_u64(uint64_t *field, uint64_t value)
{
	if (*field == 0)
		*field = value;
}

static void fill_defaults(struct l2_options *options)
{
	struct l1_stats l1;

	l1_get_stats(options->l1, &l1);
	default_u32(&options->fetches_max, 64);
	default_u32(&options->asks_max, 256);
	default_u32(&options->loads_max, 64);
	default_u64(&options->load_bytes_max, l1.total_bytes / 4);
	default_u32(&options->store_queue, 1024);
	default_u32(&options->stores_max, 32);
	default_u64(&options->store_bytes_max, l1.total_bytes / 4);
	default_u32(&options->store_attempts, 4);
	default_u64(&options->backoff_ns, 100 * KVR_MS);
	default_u64(&options->backoff_max_ns, 10 * KVR_SECOND);
	default_u32(&options->wanted, 65536);
	default_u32(&options->sick_after, 8);
	default_u32(&options->sum_queue, 256);
	default_u64(&options->timeout_ns, 10 * KVR_SECOND);
	/* All parts of one chunk are asked for together. */
	if (options->asks_max < L2_PARTS_MAX)
		options->asks_max = L2_PARTS_MAX;
}

/* A place that is taken out may keep as many questions and loads as there can be, and is asked for no more before it has
 * ended them. */
static int init_pools(struct l2 *l2)
{
	const struct l2_options *options = &l2->options;
	uint32_t shares = 1 + options->adapter_count;
	int error = pool_init(&l2->fetches_pool, sizeof(struct l2_fetch), options->fetches_max);

	if (!error)
		error = pool_init(&l2->asks_pool, sizeof(struct l2_slot), options->asks_max * shares);
	if (!error)
		error = pool_init(&l2->loads_pool, sizeof(struct l2_slot), options->loads_max * shares);
	if (!error)
		error = pool_init(
			&l2->stores_pool, sizeof(struct l2_slot), options->store_queue * options->adapter_count);
	return error;
}

static int init_memory(struct l2 *l2)
{
	uint64_t wanted = 64;
	int error = init_pools(l2);
	bool places = true;

	if (error)
		return error;
	while (wanted < l2->options.wanted)
		wanted *= 2;
	for (uint32_t i = 0; i < l2->options.adapter_count; i++) {
		l2->places[i].probe.memory = aligned_alloc(L2_PROBE_BYTES, L2_PROBE_BYTES);
		places &= l2->places[i].probe.memory != NULL;
		l2->places[i].clear_keys = calloc(L2_CLEAR_MODELS, sizeof(*l2->places[i].clear_keys));
		places &= l2->places[i].clear_keys != NULL;
	}
	l2->wanted_mask = wanted - 1;
	l2->wanted = calloc(wanted, sizeof(*l2->wanted));
	l2->counters = aligned_alloc(KVR_CACHE_LINE, sizeof(*l2->counters));
	l2->clear_keys = calloc(L2_CLEAR_MODELS, sizeof(*l2->clear_keys));
	if (fault_point("l2/memory") || !places || !l2->clear_keys || !l2->wanted || !l2->counters)
		return -ENOMEM;
	memset(l2->wanted, 0, wanted * sizeof(*l2->wanted)); /* touched now, not in a step */
	memset(l2->counters, 0, sizeof(*l2->counters));
	return l2_sum_init(l2);
}

static void free_memory(struct l2 *l2)
{
	l2_sum_fini(l2);
	pool_fini(&l2->fetches_pool);
	pool_fini(&l2->asks_pool);
	pool_fini(&l2->loads_pool);
	pool_fini(&l2->stores_pool);
	for (uint32_t i = 0; i < L2_ADAPTERS_MAX; i++) {
		free(l2->places[i].probe.memory);
		free(l2->places[i].clear_keys);
	}
	free(l2->clear_keys);
	free(l2->wanted);
	free(l2->counters);
	free(l2);
}

static bool options_valid(const struct l2_options *options)
{
	if (!options->cache || !options->l1 || options->adapter_count == 0 ||
		options->adapter_count > L2_ADAPTERS_MAX || !options->callbacks.digest || !options->callbacks.early ||
		!options->callbacks.done)
		return false;
	for (uint32_t i = 0; i < options->adapter_count; i++)
		if (!options->adapters[i])
			return false;
	return true;
}

int l2_create(const struct l2_options *options, struct l2 **out)
{
	struct l2 *l2;
	int error;

	*out = NULL;
	if (!options_valid(options))
		return -EINVAL;
	l2 = fault_point("l2/struct") ? NULL : calloc(1, sizeof(*l2));
	if (!l2)
		return -ENOMEM;
	l2->options = *options;
	fill_defaults(&l2->options);
	list_init(&l2->fetches);
	list_init(&l2->unlocking);
	list_init(&l2->unpublished);
	list_init(&l2->lost);
	random_init(&l2->random, options->seed);
	for (uint32_t i = 0; i < options->adapter_count; i++) {
		l2->places[i].adapter = options->adapters[i];
		list_init(&l2->places[i].queue);
		list_init(&l2->places[i].sent);
		list_init(&l2->places[i].unsent);
	}
	error = init_memory(l2);
	if (error) {
		free_memory(l2);
		return error;
	}
	*out = l2;
	return 0;
}

/* Slots of a pool that are in use: those whose operation was set and not taken back. */
static void drop_slots(struct l2 *l2, const struct pool *pool)
{
	for (uint32_t i = 0; i < pool->count; i++) {
		struct l2_slot *slot = pool_at(pool, i);

		if (slot->object == 0)
			continue;
		if (slot->request.operation == L2_STORE)
			cache_unpin(l2->options.cache, slot->entry);
		else
			cache_abort(l2->options.cache, slot->object);
	}
}

static void drop_fetch(struct l2 *l2, struct l2_fetch *fetch, bool done)
{
	for (uint32_t c = 0; c < fetch->lock_end; c++)
		if (fetch->chunks[c].entry != CACHE_NONE)
			cache_unlock(l2->options.cache, fetch->chunks[c].entry, 1);
	if (done)
		return;
	for (uint32_t part = 0; part < fetch->parts; part++)
		l1_class_release(l2->options.l1, fetch->classes[part]);
	cache_space_release(l2->options.cache, fetch->space);
}

void l2_destroy(struct l2 **pointer)
{
	struct l2 *l2 = *pointer;

	*pointer = NULL;
	if (!l2)
		return;
	for (uint32_t i = 0; i < l2->options.adapter_count; i++)
		l2->places[i].adapter->driver->close(l2->places[i].adapter);
	drop_slots(l2, &l2->loads_pool);
	drop_slots(l2, &l2->stores_pool);
	list_for_each(node, &l2->fetches)
		drop_fetch(l2, KVR_CONTAINER_OF(node, struct l2_fetch, node), false);
	list_for_each(node, &l2->unlocking)
		drop_fetch(l2, KVR_CONTAINER_OF(node, struct l2_fetch, node), true);
	free_memory(l2);
}

/* ---- adapters ---- */

static bool try_send(struct l2 *l2, struct l2_slot *slot)
{
	struct l2_adapter *adapter = l2->places[slot->adapter].adapter;

	list_init(&slot->request.node);
	if (adapter->driver->submit(adapter, &slot->request))
		return false;
	slot->sent = true;
	return true;
}

void l2_send(struct l2 *l2, struct l2_slot *slot)
{
	struct l2_place *place = &l2->places[slot->adapter];

	slot->sent = false;
	if (place->reading++ == 0)
		place->ways[L2_READS].answered_ns = l2->now_ns;
	if (!list_empty(&place->unsent) || !try_send(l2, slot))
		list_add_last(&place->unsent, &slot->request.node);
}

static bool send_unsent(struct l2 *l2, struct l2_place *place)
{
	bool busy = false;

	while (!list_empty(&place->unsent)) {
		struct list_node *node = list_pop_first(&place->unsent);
		struct l2_slot *slot = KVR_CONTAINER_OF(node, struct l2_slot, request.node);

		if (!try_send(l2, slot)) {
			list_add_first(&place->unsent, node);
			break;
		}
		busy = true;
	}
	return busy;
}

static void take_ended(struct l2 *l2, struct l2_slot *slot)
{
	struct l2_place *place = &l2->places[slot->adapter];

	if (slot == &place->probe.slot) {
		l2_probe_ended(l2, slot);
		return;
	}
	if (slot == &place->clear) {
		l2_clear_request_ended(l2, slot);
		return;
	}
	if (slot->request.operation == L2_STORE) {
		place->storing--;
		place->ways[L2_WRITES].answered_ns = l2->now_ns;
		l2_store_ended(l2, slot);
		return;
	}
	place->reading--;
	place->ways[L2_READS].answered_ns = l2->now_ns;
	if (slot->request.operation == L2_LOAD)
		l2_load_ended(l2, slot);
	else
		l2_ask_ended(l2, slot);
}

static bool poll_place(struct l2 *l2, struct l2_place *place)
{
	struct l2_adapter *adapter = place->adapter;
	struct list_node ended;
	bool busy = false;

	if (adapter->driver->step)
		busy = adapter->driver->step(adapter, l2->now_ns);
	if (place->storing + place->reading == 0 && !place->probe.slot.sent && !place->clear.sent)
		return busy;
	list_init(&ended);
	if (adapter->driver->poll(adapter, &ended, L2_STEP_ENDED) == 0)
		return busy;
	list_for_each_safe(node, &ended) {
		list_remove(node);
		take_ended(l2, KVR_CONTAINER_OF(node, struct l2_slot, request.node));
	}
	return true;
}

/* ---- the turn ---- */

static void set_gauges(struct l2 *l2)
{
	uint64_t waiting = 0, storing = 0;

	for (uint32_t i = 0; i < l2->options.adapter_count; i++) {
		waiting += l2->places[i].waiting;
		storing += l2->places[i].storing;
	}
	kvr_store_relaxed(&l2->counters->fetches_now, (uint64_t)pool_used(&l2->fetches_pool));
	kvr_store_relaxed(&l2->counters->loads_now, (uint64_t)l2->loads);
	kvr_store_relaxed(&l2->counters->load_bytes_now, l2->load_bytes);
	kvr_store_relaxed(&l2->counters->stores_waiting, waiting);
	kvr_store_relaxed(&l2->counters->stores_now, storing);
	kvr_store_relaxed(&l2->counters->store_bytes_now, l2->store_bytes);
}

bool l2_step(struct l2 *l2, uint64_t now_ns)
{
	bool busy = false;

	l2->now_ns = now_ns;
	busy |= l2_clear_step(l2);
	busy |= l2_sum_step(l2);
	l2->turn = l2->turn == UINT32_MAX ? 1 : l2->turn + 1;
	if (l2_idle(l2)) {
		for (uint32_t i = 0; i < l2->options.adapter_count; i++) {
			busy |= poll_place(l2, &l2->places[i]);
			busy |= l2_health_step(l2, i);
		}
		return busy;
	}
	for (uint32_t i = 0; i < l2->options.adapter_count; i++) {
		busy |= poll_place(l2, &l2->places[i]);
		busy |= l2_health_step(l2, i);
		busy |= send_unsent(l2, &l2->places[i]);
	}
	busy |= l2_publish_step(l2);
	busy |= l2_ask_step(l2);
	busy |= l2_load_step(l2);
	for (uint32_t i = 0; i < l2->options.adapter_count; i++)
		busy |= l2_store_step(l2, i);
	busy |= l2_fetch_step(l2);
	set_gauges(l2);
	return busy;
}

uint32_t l2_unanswered(const struct l2 *l2)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < l2->options.adapter_count; i++)
		count += l2->places[i].ways[L2_READS].lost + l2->places[i].ways[L2_WRITES].lost;
	return count;
}

bool l2_idle(const struct l2 *l2)
{
	uint32_t stores = pool_used(&l2->stores_pool);

	for (uint32_t i = 0; l2->leaving && i < l2->options.adapter_count; i++)
		stores -= l2->places[i].ways[L2_WRITES].lost;
	return pool_used(&l2->fetches_pool) == 0 && stores == 0 && pool_used(&l2->sums_pool) == 0 &&
		(l2->leaving || list_empty(&l2->lost));
}

uint64_t l2_next_ns(const struct l2 *l2, uint64_t now_ns)
{
	uint64_t next = UINT64_MAX;

	if (pool_used(&l2->fetches_pool) + pool_used(&l2->sums_pool) > 0)
		return now_ns + L2_POLL_NS;
	for (uint32_t i = 0; i < l2->options.adapter_count; i++) {
		const struct l2_place *place = &l2->places[i];
		uint32_t lost = place->ways[L2_READS].lost + place->ways[L2_WRITES].lost;

		if (place->storing + place->reading > lost || place->probe.slot.sent || l2_closed(l2))
			return now_ns + L2_POLL_NS;
		if (lost > 0 || place->clear_lost)
			next = kvr_min_u64(next, now_ns + L2_LOST_POLL_NS);
		if (place->waiting > 0)
			next = kvr_min_u64(next, kvr_max_u64(place->ways[L2_WRITES].until_ns, now_ns));
		next = kvr_min_u64(next, kvr_max_u64(l2_health_next_ns(l2, i), now_ns));
	}
	return next;
}

/* ---- looking ---- */

const struct l2_counters *l2_get_counters(const struct l2 *l2)
{
	return l2->counters;
}

uint32_t l2_adapter_count(const struct l2 *l2)
{
	return l2->options.adapter_count;
}

struct l2_adapter *l2_adapter_at(const struct l2 *l2, uint32_t index)
{
	return l2->places[index].adapter;
}

enum l2_policy l2_get_policy(const struct l2 *l2)
{
	return l2->options.policy;
}

static uint32_t list_length(const struct list_node *head)
{
	uint32_t length = 0;

	list_for_each(node, head)
		length++;
	return length;
}

static int verify_place(const struct l2_place *place)
{
	uint32_t lost = place->ways[L2_READS].lost + place->ways[L2_WRITES].lost;

	if (list_length(&place->queue) == place->waiting && list_length(&place->sent) == place->storing &&
		lost <= place->storing + place->reading)
		return 0;
	log_error("L2: the queues of %s have not the length that was counted", place->adapter->name);
	return -EILSEQ;
}

int l2_verify(const struct l2 *l2)
{
	uint32_t stores = 0, loads = 0, asks = 0, tenants = 0, lost = 0;

	for (uint32_t i = 0; i < l2->options.adapter_count; i++) {
		const struct l2_place *place = &l2->places[i];
		int error = verify_place(place);

		if (error)
			return error;
		stores += place->waiting + place->storing;
		lost += place->ways[L2_READS].lost;
	}
	list_for_each(node, &l2->fetches) {
		loads += KVR_CONTAINER_OF(node, struct l2_fetch, node)->loads;
		asks += KVR_CONTAINER_OF(node, struct l2_fetch, node)->asks;
	}
	for (uint32_t i = 0; i < L2_TENANTS; i++)
		tenants += l2->tenant_loads[i];
	if (stores != pool_used(&l2->stores_pool) || loads != l2->loads || asks != l2->asks || tenants != loads ||
		loads + asks + lost != pool_used(&l2->loads_pool) + pool_used(&l2->asks_pool) ||
		lost != list_length(&l2->lost)) {
		log_error(
			"L2: %u stores, %u loads, %u questions and %u lost ones are counted, %u, %u and %u are in use",
			stores, loads, asks, lost, pool_used(&l2->stores_pool), pool_used(&l2->loads_pool),
			pool_used(&l2->asks_pool));
		return -EILSEQ;
	}
	if (l2_idle(l2) && (l2->load_bytes || l2->store_bytes || l2->sum_bytes)) {
		log_error("L2: idle, with %llu bytes under way",
			(unsigned long long)(l2->load_bytes + l2->store_bytes + l2->sum_bytes));
		return -EILSEQ;
	}
	return 0;
}
