/* l2_load.c - bringing chunks that were found into L1: memory, LOAD, publishing. */
#include <errno.h>
#include <string.h>

#include "tier/l2_internal.h"

/* ---- begin ---- */

/* What has come, or not, for a chunk of which everything was sent. */
static void conclude(struct l2 *l2, struct l2_fetch *fetch, uint32_t number)
{
	struct l2_chunk *chunk = &fetch->chunks[number];

	if (chunk->pending > 0)
		return;
	if (!chunk->failed) {
		chunk->state = L2_CHUNK_HERE;
		return;
	}
	chunk->failed = false;
	chunk->adapter++;
	if (chunk->adapter == l2->options.adapter_count) {
		l2_fetch_cut(fetch, number);
		return;
	}
	/* The next adapter is not asked: if it does not have it the load says so. */
	chunk->state = L2_CHUNK_FOUND;
	if (number < fetch->again_at)
		fetch->again_at = number;
}

static void all_sent(struct l2 *l2, struct l2_fetch *fetch)
{
	uint32_t number = fetch->loaded++;

	fetch->load_part = 0;
	fetch->chunks[number].state = L2_CHUNK_LOADING;
	conclude(l2, fetch, number);
}

static void send_load(struct l2 *l2, struct l2_fetch *fetch, uint32_t part, const uint8_t *digest, l1_ref object)
{
	struct l2_slot *slot = pool_take(&l2->loads_pool);

	memset(slot, 0, sizeof(*slot));
	slot->request.operation = L2_LOAD;
	slot->request.urgent = true;
	slot->request.deadline_ns = fetch->deadline_ns;
	slot->request.used_ns = fetch->begun_ns;
	slot->request.position = fetch->first + fetch->loaded;
	slot->request.owner = slot;
	slot->request.memory = l1_address(l2->options.l1, object);
	l2_fill_identity(fetch, digest, part, &slot->request.identity);
	slot->object = object;
	slot->fetch = fetch;
	slot->chunk = fetch->loaded;
	slot->adapter = fetch->chunks[fetch->loaded].adapter;
	list_add_last(&fetch->requests, &slot->mine);
	fetch->loads++;
	fetch->chunks[fetch->loaded].pending++;
	l2->loads++;
	l2->load_bytes += fetch->part_bytes[part];
	l2->tenant_loads[fetch->tenant]++;
	l2_send(l2, slot);
}

/* The first part from load_part on that is not in L1. */
static uint32_t next_part(const struct l2 *l2, const struct l2_fetch *fetch, uint32_t entry)
{
	uint32_t part = fetch->load_part;

	while (part < fetch->parts && entry != CACHE_NONE && cache_object(l2->options.cache, entry, part))
		part++;
	return part;
}

/* Somebody may have stored it since it was asked for. */
static uint32_t entry_of(struct l2 *l2, struct l2_fetch *fetch, const uint8_t *digest)
{
	uint32_t entry = fetch->chunks[fetch->loaded].entry;

	if (entry != CACHE_NONE)
		return entry;
	entry = cache_find(l2->options.cache, fetch->space, digest);
	if (entry != CACHE_NONE)
		l2_fetch_lock(l2, fetch, fetch->loaded, entry);
	return entry;
}

/* One is always possible; what places that were taken out keep is half of what there may be at most. */
static bool has_room(const struct l2 *l2, uint64_t bytes)
{
	uint64_t most = l2->options.load_bytes_max, now = l2->load_bytes + bytes;

	if (l2->loads >= l2->options.loads_max)
		return false;
	return l2->loads == 0 || (now <= most && now + l2->lost_load_bytes <= 2 * most);
}

/* True: the fetch ends here. False: the tenant's own chunks go first, some in each turn. */
static bool no_room(struct l2 *l2, struct l2_fetch *fetch, uint32_t part)
{
	struct cache *cache = l2->options.cache;
	uint32_t account = cache_space_account(cache, fetch->space);

	if (!cache_quota_allows(cache, account, fetch->classes[part], 1)) {
		cache_quota_refused(cache, account, 1);
		L2_COUNT(l2, load_no_quota, 1);
	} else if (cache_quota_full(cache, account, fetch->classes[part])) {
		return false;
	}
	L2_COUNT(l2, load_no_room, 1);
	l2_fetch_cut(fetch, fetch->loaded);
	return true;
}

/* One object of the fetch, or a step over a chunk that needs none. False: not now. */
static bool load_one(struct l2 *l2, struct l2_fetch *fetch)
{
	struct l2_chunk *chunk = &fetch->chunks[fetch->loaded];
	const uint8_t *digest;
	uint32_t account, part;
	l1_ref object;

	if (chunk->state != L2_CHUNK_FOUND) {
		fetch->loaded++;
		return true;
	}
	if (l2->places[chunk->adapter].ways[L2_READS].out) {
		chunk->failed = true;
		all_sent(l2, fetch);
		return true;
	}
	digest = l2->options.callbacks.digest(fetch->owner, fetch->loaded);
	part = next_part(l2, fetch, entry_of(l2, fetch, digest));
	if (part == fetch->parts) {
		all_sent(l2, fetch);
		return true;
	}
	if (!l2_place_open(l2, chunk->adapter) || !has_room(l2, fetch->part_bytes[part]))
		return false;
	account = cache_space_account(l2->options.cache, fetch->space);
	object = cache_reserve(l2->options.cache, account, fetch->classes[part], 0, L2_EVICT_LIMIT);
	if (!object)
		return no_room(l2, fetch, part);
	fetch->load_part = part;
	send_load(l2, fetch, part, digest, object);
	fetch->load_part = part + 1;
	return true;
}

static bool can_load(const struct l2 *l2, struct l2_fetch *fetch)
{
	if (fetch->canceled || fetch->blocked_turn == l2->turn)
		return false;
	/* Back to a chunk that another adapter is to give; not in the midst of one. */
	if (fetch->load_part == 0 && fetch->again_at < fetch->loaded) {
		fetch->loaded = fetch->again_at;
		fetch->again_at = UINT32_MAX;
	}
	return fetch->loaded < fetch->decided && fetch->loaded < fetch->limit;
}

/* Of the tenant with the fewest loads; among its fetches, and among such tenants, in turn. */
static struct l2_fetch *choose(struct l2 *l2)
{
	struct l2_fetch *best = NULL;

	list_for_each(node, &l2->fetches) {
		struct l2_fetch *fetch = KVR_CONTAINER_OF(node, struct l2_fetch, node);

		if (can_load(l2, fetch) && (!best || l2->tenant_loads[fetch->tenant] < l2->tenant_loads[best->tenant]))
			best = fetch;
	}
	return best;
}

bool l2_load_step(struct l2 *l2)
{
	const uint64_t *evicted = &cache_get_counters(l2->options.cache)->evicted_chunks;
	uint64_t evicted_before = *evicted;
	bool busy = false;

	for (unsigned n = 0; n < L2_STEP_LOADS && *evicted - evicted_before < L2_STEP_EVICTIONS; n++) {
		struct l2_fetch *fetch = choose(l2);

		if (!fetch)
			break;
		list_remove(&fetch->node);
		list_add_last(&l2->fetches, &fetch->node);
		if (load_one(l2, fetch))
			busy = true;
		else
			fetch->blocked_turn = l2->turn;
	}
	return busy;
}

/* ---- end ---- */

/* Temporary is what this fetch alone has brought; who finds it before the lookup has ended changes nothing. */
static void keep_loaded(struct l2 *l2, struct l2_fetch *fetch, uint32_t number, uint32_t entry)
{
	bool ours = fetch->chunks[number].entry == CACHE_NONE;

	l2_fetch_lock(l2, fetch, number, entry);
	if (!l2->options.temporary || !ours)
		return;
	if (fetch->chunks[number].entry != CACHE_NONE)
		cache_make_temporary(l2->options.cache, entry);
	else
		cache_demote(l2->options.cache, entry);
}

/* The fetch does not wait for it any more. entry: where it was published; CACHE_NONE: nowhere. */
static void leave_fetch(struct l2 *l2, struct l2_slot *slot, uint32_t entry)
{
	struct l2_fetch *fetch = slot->fetch;
	struct l2_chunk *chunk = &fetch->chunks[slot->chunk];

	list_remove(&slot->mine);
	l2->load_bytes -= slot->request.identity.bytes;
	l2->loads--;
	l2->tenant_loads[fetch->tenant]--;
	fetch->loads--;
	chunk->pending--;
	if (entry != CACHE_NONE)
		keep_loaded(l2, fetch, slot->chunk, entry);
	else
		chunk->failed = true;
	if (chunk->state == L2_CHUNK_LOADING)
		conclude(l2, fetch, slot->chunk);
}

/* The memory is not the slot's any more. */
static void close_load(struct l2 *l2, struct l2_slot *slot, uint32_t entry)
{
	leave_fetch(l2, slot, entry);
	slot->object = 0;
	pool_give(&l2->loads_pool, slot);
}

/* False: the chunk table has no room now. */
static bool publish(struct l2 *l2, struct l2_slot *slot)
{
	const struct l2_fetch *fetch = slot->fetch;
	const struct l2_identity *identity = &slot->request.identity;
	uint32_t entry = CACHE_NONE;
	int error = cache_publish(
		l2->options.cache, fetch->space, identity->digest, identity->part, slot->object, &entry);

	if (error == -ENOSPC && !fetch->canceled && l2->now_ns < slot->until_ns)
		return false;
	if (error && error != -EEXIST) {
		cache_abort(l2->options.cache, slot->object);
		entry = CACHE_NONE;
	} else {
		if (!error)
			l2_sum_set(l2, slot->object, slot->request.checksum);
		L2_COUNT(l2, loaded, 1);
		L2_COUNT(l2, loaded_bytes, identity->bytes);
		if (fetch->canceled)
			L2_COUNT(l2, loaded_late, 1);
	}
	close_load(l2, slot, entry);
	return true;
}

bool l2_publish_step(struct l2 *l2)
{
	bool busy = false;

	list_for_each_safe(node, &l2->unpublished)
		if (publish(l2, KVR_CONTAINER_OF(node, struct l2_slot, mine)))
			busy = true;
	return busy;
}

void l2_load_drop_unpublished(struct l2 *l2)
{
	while (!list_empty(&l2->unpublished)) {
		struct l2_slot *slot = KVR_CONTAINER_OF(l2->unpublished.next, struct l2_slot, mine);

		cache_abort(l2->options.cache, slot->object);
		close_load(l2, slot, CACHE_NONE);
	}
}

static void count_failure(struct l2 *l2, const struct l2_slot *slot, bool sick)
{
	if (slot->request.status == -ENOENT)
		L2_COUNT(l2, load_missing, 1);
	else if (slot->request.status == -EBADMSG)
		L2_COUNT(l2, load_corrupt, 1);
	else if (sick)
		L2_COUNT(l2, load_errors, 1);
}

/* Whatever it brought, nobody knows what it was for. */
static void lost_ended(struct l2 *l2, struct l2_slot *slot)
{
	l2->places[slot->adapter].ways[L2_READS].lost--;
	l2->lost_load_bytes -= slot->request.identity.bytes;
	list_remove(&slot->mine);
	cache_abort(l2->options.cache, slot->object);
	slot->object = 0;
	pool_give(&l2->loads_pool, slot);
}

void l2_load_ended(struct l2 *l2, struct l2_slot *slot)
{
	bool sick;

	if (slot->lost) {
		lost_ended(l2, slot);
		return;
	}
	sick = l2_health_answer(l2, slot->adapter, L2_READS, &slot->request);
	if (slot->request.status) {
		count_failure(l2, slot, sick);
		cache_abort(l2->options.cache, slot->object);
		close_load(l2, slot, CACHE_NONE);
		return;
	}
	slot->until_ns = l2->now_ns + L2_PUBLISH_NS;
	if (publish(l2, slot))
		return;
	list_remove(&slot->mine);
	list_add_last(&l2->unpublished, &slot->mine);
}

/* The memory stays staged until the adapter has ended the request. */
void l2_load_lose(struct l2 *l2, struct l2_slot *slot)
{
	leave_fetch(l2, slot, CACHE_NONE);
	slot->fetch = NULL;
	slot->lost = true;
	l2->lost_load_bytes += slot->request.identity.bytes;
	l2->places[slot->adapter].ways[L2_READS].lost++;
	list_add_last(&l2->lost, &slot->mine);
}
