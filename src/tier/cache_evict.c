#include <string.h>

#include "base/atomic.h"
#include "tier/cache_internal.h"

/* Where another class's pages are needed: oldest entries of one list, and lists, that are tried. */
#define TRIES_PER_CLASS 4
#define CLASSES_TRIED 8
/* Where there are several areas: entries that are looked at for one that makes room in the preferred area. */
#define NEAR_LOOKS 8

void cache_evict_entry(struct cache *cache, uint32_t number)
{
	struct cache_entry *entry = cache_entry_at(cache, number);
	uint32_t hash = cache_hash(cache, entry->space, entry->digest);
	uint32_t parts = cache_entry_parts(cache, entry);
	l1_ref *objects = cache_entry_objects(cache, entry);
	struct account *account;
	uint64_t bytes = 0;

	cache_unlist(cache, entry);
	for (uint32_t part = 0; part < parts; part++) {
		if (objects[part] == 0)
			continue;
		bytes += l1_bytes(cache->l1, objects[part]);
		if (cache->keeper.freed)
			cache->keeper.freed(cache->keeper.context, objects[part]);
		l1_free(cache->l1, objects[part]);
		cache->objects--;
	}
	account = cache_account_of(cache, entry);
	account->units -= entry->units;
	account->evictable_units -= entry->units;
	cache->evictable_units -= entry->units;
	cache->resident_bytes -= bytes;
	cache->chunks--;
	if (!table_remove(&cache->table, hash, number))
		(void)table_remove(&cache->old, hash, number);
	space_remove_chunk(&cache->spaces, entry->space);
	entries_give(&cache->entries, number, parts);
	kvr_counter_add(&cache->counters->evicted_bytes, bytes);
}

static bool has_account(const struct accounts *accounts, uint32_t account)
{
	return accounts->bits[account / 64] >> (account % 64) & 1;
}

/* An eviction list by its number, which is its head's less 1: the segment, account and class that it is of. */
#define LIST_NONE UINT32_MAX

static uint32_t list_class(uint32_t list)
{
	return list % L1_CLASSES_MAX;
}

/* Where the next victim is. What is temporary is fresh, and goes first. */
static uint32_t segment_to_evict(const struct cache *cache)
{
	if (!cache->segmented || cache->temporary_count > 0 || cache->fresh_units * 2 >= cache->evictable_units)
		return CACHE_FRESH;
	return CACHE_REUSED;
}

/* The least recently used entry of a list, 0: none. */
static uint32_t oldest_of(const struct cache *cache, uint32_t list)
{
	uint32_t number = cache_entry_at(cache, 1 + list)->list.prev;

	return number != 1 + list ? number : 0;
}

/* What is looked through for a victim. */
struct search {
	struct accounts accounts;
	uint32_t tried[CLASSES_TRIED]; /* lists to pass by */
	uint32_t tried_count;
	uint32_t object_class; /* only lists of this class; L1_CLASSES_MAX: of all */
};

static bool tried_before(const struct search *search, uint32_t list)
{
	for (uint32_t i = 0; i < search->tried_count; i++)
		if (search->tried[i] == list)
			return true;
	return false;
}

/* Of one account's lists of a segment the one whose oldest entry is older than *stamp and than that of all others. */
static void oldest_list_of(const struct cache *cache, const struct search *search, uint32_t segment, uint32_t account,
	uint32_t *best, uint64_t *stamp)
{
	for (uint32_t word = 0; word < L1_CLASSES_MAX / 64; word++) {
		for (uint64_t bits = cache->accounts[account].listed_classes[segment][word]; bits; bits &= bits - 1) {
			uint32_t object_class = word * 64 + (uint32_t)__builtin_ctzll(bits);
			uint32_t list = cache_list_head(cache, segment, account, object_class) - 1;
			uint64_t oldest;

			if (search->object_class != L1_CLASSES_MAX && search->object_class != object_class)
				continue;
			oldest = entries_stamp(cache_entry_at(cache, oldest_of(cache, list)));
			if (oldest < *stamp && !tried_before(search, list)) {
				*best = list;
				*stamp = oldest;
			}
		}
	}
}

static uint32_t oldest_list_in(const struct cache *cache, const struct search *search, uint32_t segment)
{
	uint32_t best = LIST_NONE;
	uint64_t stamp = UINT64_MAX;

	for (uint32_t word = 0; word < CACHE_ACCOUNTS_MAX / 64; word++)
		for (uint64_t bits = search->accounts.bits[word]; bits; bits &= bits - 1)
			oldest_list_of(
				cache, search, segment, word * 64 + (uint32_t)__builtin_ctzll(bits), &best, &stamp);
	return best;
}

/* Of the other segment only where the one that is to give has none for this search. */
static uint32_t oldest_list(const struct cache *cache, const struct search *search)
{
	uint32_t segment = segment_to_evict(cache);
	uint32_t best = oldest_list_in(cache, search, segment);

	return best == LIST_NONE && cache->segmented ? oldest_list_in(cache, search, CACHE_REUSED - segment) : best;
}

static void search_account(struct search *search, uint32_t account)
{
	memset(search, 0, sizeof(*search));
	search->object_class = L1_CLASSES_MAX;
	search->accounts.bits[account / 64] = UINT64_C(1) << (account % 64);
}

static void search_all(const struct cache *cache, struct search *search)
{
	memset(search, 0, sizeof(*search));
	search->object_class = L1_CLASSES_MAX;
	for (uint32_t account = 0; account < cache->account_count; account++)
		if (cache->accounts[account].evictable_units > 0)
			search->accounts.bits[account / 64] |= UINT64_C(1) << (account % 64);
}

/* Accounts above their soft limit that have something to evict. False: there are none. */
static bool search_above_soft(const struct cache *cache, struct search *search)
{
	bool any = false;

	memset(search, 0, sizeof(*search));
	search->object_class = L1_CLASSES_MAX;
	for (uint32_t word = 0; word < CACHE_ACCOUNTS_MAX / 64; word++) {
		for (uint64_t bits = cache->with_soft.bits[word]; bits; bits &= bits - 1) {
			uint32_t number = word * 64 + (uint32_t)__builtin_ctzll(bits);
			const struct account *account = &cache->accounts[number];

			if (account->units + account->staged_units <= account->soft_units ||
				account->evictable_units == 0)
				continue;
			search->accounts.bits[word] |= UINT64_C(1) << (number % 64);
			any = true;
		}
	}
	return any;
}

/* ---- on demand ---- */

static bool has_class(const struct cache *cache, struct cache_entry *entry, uint32_t object_class)
{
	const l1_ref *objects = cache_entry_objects(cache, entry);
	uint32_t parts = cache_entry_parts(cache, entry);

	for (uint32_t part = 0; part < parts; part++)
		if (objects[part] != 0 && l1_class_of(cache->l1, objects[part]) == object_class)
			return true;
	return false;
}

static l1_ref first_object(const struct cache *cache, struct cache_entry *entry)
{
	const l1_ref *objects = cache_entry_objects(cache, entry);

	while (*objects == 0)
		objects++;
	return *objects;
}

static bool may_evict(void *context, uint32_t owner, l1_ref object)
{
	struct cache *cache = (struct cache *)context;
	const struct cache_entry *entry;

	/* Fresh objects of the class that wants room may lie among old ones of another: they would go for one of their like. */
	if (cache_owner_staged(owner) || cache->looks_left == 0 ||
		l1_class_of(cache->l1, object) == cache->clearing_class)
		return false;
	cache->looks_left--;
	entry = cache_entry_at(cache, owner);
	return !entries_held(entry) &&
		has_account(cache->clearing_accounts, cache->spaces.spaces[entry->space].account);
}

static void evict_for_room(struct cache *cache, uint32_t number)
{
	struct account *account = cache_account_of(cache, cache_entry_at(cache, number));

	account->evicted++;
	account->quota_evicted += cache->limits;
	if (cache->segmented) {
		const struct cache_entry *entry = cache_entry_at(cache, number);

		ghosts_add(&cache->ghosts, cache_mix_key(cache, entry->space, entry->digest));
		kvr_counter_add(&cache->counters->evicted_reused, entry->reused);
	}
	cache_evict_entry(cache, number);
	kvr_counter_add(&cache->counters->evicted_chunks, 1);
}

static void evict_on_demand(struct cache *cache, uint32_t number)
{
	evict_for_room(cache, number);
	kvr_counter_add(&cache->counters->evicted_on_demand, 1);
}

/* Distinct owners of the planned objects, into plan_owners; 0 when they are more than `limit`. */
static uint32_t plan_owners(struct cache *cache, uint32_t objects, uint32_t limit)
{
	uint32_t owners = 0;

	for (uint32_t i = 0; i < objects; i++) {
		uint32_t owner = l1_owner(cache->l1, cache->plan[i]);
		struct cache_entry *entry = cache_entry_at(cache, owner);

		/* Marked as held while counting, so that each is counted once. */
		if (entries_held(entry))
			continue;
		if (owners < limit) {
			cache->plan_owners[owners] = owner;
			cache->plan_stamps[owners] = entry->stamp_high;
			entry->stamp_high = ENTRIES_HELD;
		}
		owners++;
		if (owners > limit)
			break;
	}
	for (uint32_t i = 0; i < owners && i < limit; i++)
		cache_entry_at(cache, cache->plan_owners[i])->stamp_high = cache->plan_stamps[i];
	return owners <= limit ? owners : 0;
}

/* Evicts what lies around an entry of another class, when that makes pages for a run. */
static bool clear_around(struct cache *cache, uint32_t number, uint32_t object_class, uint32_t limit)
{
	l1_ref victim = first_object(cache, cache_entry_at(cache, number));
	uint32_t capacity = limit > CACHE_CLEAR_OBJECTS / CACHE_PARTS_MAX ? CACHE_CLEAR_OBJECTS
									  : limit * CACHE_PARTS_MAX;
	uint32_t count;

	cache->clearing_class = object_class;
	if (l1_clear_plan(cache->l1, object_class, victim, may_evict, cache, cache->plan, capacity, &count))
		return false;
	count = plan_owners(cache, count, limit);
	for (uint32_t i = 0; i < count; i++)
		evict_on_demand(cache, cache->plan_owners[i]);
	kvr_counter_add(&cache->counters->evicted_for_class, count);
	return count > 0;
}

static bool is_in_area(const struct cache *cache, struct cache_entry *entry, uint32_t area)
{
	const l1_ref *objects = cache_entry_objects(cache, entry);
	uint32_t parts = cache_entry_parts(cache, entry);

	for (uint32_t part = 0; part < parts; part++)
		if (objects[part] != 0 && l1_area_of(cache->l1, objects[part]) == area)
			return true;
	return false;
}

/* Of the oldest few of a list the oldest that has an object in the area, so that what comes is near to those that asked for it; else the
 * oldest. With one area that is always the oldest. */
static uint32_t oldest_in_area(const struct cache *cache, uint32_t list, uint32_t area)
{
	uint32_t oldest = oldest_of(cache, list), number = oldest;

	for (uint32_t looks = 0; looks < NEAR_LOOKS && number != 1 + list; looks++) {
		struct cache_entry *entry = cache_entry_at(cache, number);

		if (is_in_area(cache, entry, area))
			return number;
		number = entry->list.prev;
	}
	return oldest;
}

/* What a reservation wants. */
struct want {
	uint32_t object_class, area, limit;
};

static bool make_room_in(struct cache *cache, uint32_t list, const struct want *want)
{
	bool same_class = list_class(list) == want->object_class;
	uint32_t number = oldest_of(cache, list);
	uint32_t head = 1 + list;

	if (number == 0)
		return false;
	if (same_class)
		number = oldest_in_area(cache, list, want->area);
	for (uint32_t tries = 0; tries < TRIES_PER_CLASS && number != head; tries++) {
		struct cache_entry *entry = cache_entry_at(cache, number);

		if (same_class || has_class(cache, entry, want->object_class)) {
			evict_on_demand(cache, number);
			return true;
		}
		if (clear_around(cache, number, want->object_class, want->limit))
			return true;
		number = entry->list.prev;
	}
	return false;
}

/* Oldest list first, so that a model that is not used any more gives way; the own class always has what is needed. */
static bool make_room_of(struct cache *cache, struct search *search, const struct want *want)
{
	uint32_t list;

	cache->looks_left = CACHE_CLEAR_LOOKS;
	cache->clearing_accounts = &search->accounts;
	while (search->tried_count < CLASSES_TRIED) {
		list = oldest_list(cache, search);
		if (list == LIST_NONE)
			return false;
		if (make_room_in(cache, list, want))
			return true;
		search->tried[search->tried_count++] = list;
	}
	search->tried_count = 0;
	search->object_class = want->object_class;
	list = oldest_list(cache, search);
	return list != LIST_NONE && make_room_in(cache, list, want);
}

static bool make_room(struct cache *cache, const struct want *want)
{
	const uint64_t *evicted = &cache->counters->evicted_chunks;
	uint64_t before = *evicted;
	struct search search;

	cache->limits = true;
	if (search_above_soft(cache, &search) && make_room_of(cache, &search, want)) {
		kvr_counter_add(&cache->counters->evicted_above_soft, *evicted - before);
		return true;
	}
	cache->limits = false;
	search_all(cache, &search);
	return make_room_of(cache, &search, want);
}

/* Brings the account so far below its hard limit that one more object fits, by evicting what is its own; nothing when
 * that would not help. False: it does not fit, or not yet. */
static bool make_quota_room(struct cache *cache, uint32_t account, const struct want *want, bool *evicted)
{
	uint32_t limit = want->limit < CACHE_QUOTA_EVICTIONS ? want->limit : CACHE_QUOTA_EVICTIONS;
	struct search search;

	*evicted = false;
	if (!cache_quota_full(cache, account, want->object_class))
		return true;
	if (!cache_quota_allows(cache, account, want->object_class, 1))
		return false;
	cache->limits = true;
	search_account(&search, account);
	for (; limit > 0 && cache_quota_full(cache, account, want->object_class); limit--) {
		evict_on_demand(cache, oldest_of(cache, oldest_list(cache, &search)));
		kvr_counter_add(&cache->counters->evicted_for_quota, 1);
		*evicted = true;
	}
	return !cache_quota_full(cache, account, want->object_class);
}

l1_ref cache_reserve(
	struct cache *cache, uint32_t account, uint32_t object_class, uint32_t preferred_area, uint32_t evict_limit)
{
	struct want want = { object_class, preferred_area, evict_limit };
	uint32_t owner = cache_staged_owner(account);
	struct search own;
	bool from_own;
	l1_ref object;

	if (!make_quota_room(cache, account, &want, &from_own))
		return 0;
	object = l1_allocate(cache->l1, object_class, preferred_area, owner);
	if (!object && evict_limit > 0 && cache->evictable_units > 0) {
		/* At its hard limit an account takes nobody else's place. */
		if (from_own)
			search_account(&own, account);
		if (from_own ? make_room_of(cache, &own, &want) : make_room(cache, &want))
			object = l1_allocate(cache->l1, object_class, preferred_area, owner);
	}
	if (!object) {
		kvr_counter_add(&cache->counters->no_room, 1);
		return 0;
	}
	cache->staged++;
	cache->staged_bytes += l1_class_bytes(cache->l1, object_class);
	cache->accounts[account].staged_units += cache_class_units(cache, object_class);
	return object;
}

bool cache_could_reserve(const struct cache *cache, uint32_t object_class, uint64_t count)
{
	uint64_t evictable = cache->evictable_units * CACHE_UNIT_BYTES / l1_class_slot_bytes(cache->l1, object_class);

	return count <= evictable || count - evictable <= l1_class_room(cache->l1, object_class);
}

/* ---- in the background ---- */

static bool above(const struct cache *cache, uint32_t permille)
{
	struct l1_stats stats;

	l1_get_stats(cache->l1, &stats);
	return (stats.total_bytes - stats.free_page_bytes - stats.free_slot_bytes) * 1000 >
		stats.total_bytes * permille;
}

bool cache_evict_due(const struct cache *cache)
{
	if (cache->high_permille == cache->low_permille || cache->high_permille == 1000 || cache->evictable_units == 0)
		return false;
	return above(cache, cache->evicting ? cache->low_permille : cache->high_permille);
}

uint32_t cache_evict_step(struct cache *cache, uint32_t limit)
{
	uint32_t evicted = 0;

	while (evicted < limit && (cache->evicting = cache_evict_due(cache))) {
		struct search search;
		uint32_t number;

		cache->limits = search_above_soft(cache, &search);
		if (cache->limits)
			kvr_counter_add(&cache->counters->evicted_above_soft, 1);
		else
			search_all(cache, &search);
		number = oldest_of(cache, oldest_list(cache, &search));
		evict_for_room(cache, number);
		evicted++;
	}
	return evicted;
}
