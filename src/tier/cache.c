#include "tier/cache.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "tier/cache_internal.h"

/* ---- looking ---- */

static uint32_t probe(
	const struct cache *cache, const struct table *table, uint32_t space, const uint64_t digest[4], uint32_t hash)
{
	struct table_probe probe;
	uint32_t number;

	table_probe_start(table, hash, &probe);
	while ((number = table_probe_next(table, hash, &probe)) != 0) {
		if (cache_entry_is(cache_entry_at(cache, number), space, digest))
			return number;
		kvr_counter_add(&cache->counters->collisions, 1);
	}
	return 0;
}

uint32_t cache_lookup(const struct cache *cache, uint32_t space, const uint64_t digest[4], uint32_t hash)
{
	uint32_t number = probe(cache, &cache->table, space, digest, hash);

	if (number == 0 && cache->old.buckets)
		number = probe(cache, &cache->old, space, digest, hash);
	return number;
}

uint32_t cache_find(const struct cache *cache, uint32_t space, const uint8_t *digest)
{
	uint64_t words[4];
	uint32_t number;

	memcpy(words, digest, sizeof(words));
	number = cache_lookup(cache, space, words, cache_hash(cache, space, words));
	return number != 0 ? number : CACHE_NONE;
}

/* Chunks go through cache_match in batches: buckets asked for, then entries asked for, then compared. A batch is
 * about as many cache misses as a core has in flight. */
#define MATCH_BATCH 16u
#define MATCH_STEPS (MATCH_BATCH * 4) /* three batches are under way */

struct match {
	const struct cache *cache;
	const uint8_t *digests;
	uint32_t *entries;
	uint32_t space;
	uint32_t hash[MATCH_STEPS];
	uint32_t guess[MATCH_STEPS];
};

static void match_digest(const struct match *match, uint32_t chunk, uint64_t digest[4])
{
	memcpy(digest, match->digests + (uint64_t)chunk * CACHE_DIGEST_BYTES, CACHE_DIGEST_BYTES);
}

static void match_buckets(struct match *match, uint32_t from, uint32_t to)
{
	const struct cache *cache = match->cache;
	const struct table table = cache->table;

	for (uint32_t i = from; i < to; i++) {
		uint64_t digest[4];
		uint32_t hash;

		match_digest(match, i, digest);
		hash = cache_hash(cache, match->space, digest);
		match->hash[i % MATCH_STEPS] = hash;
		table_prefetch(&table, hash);
		if (KVR_UNLIKELY(cache->old.buckets))
			table_prefetch(&cache->old, hash);
	}
}

static void match_entries(struct match *match, uint32_t from, uint32_t to)
{
	const struct cache *cache = match->cache;
	const struct table table = cache->table;

	for (uint32_t i = from; i < to; i++) {
		uint32_t hash = match->hash[i % MATCH_STEPS];
		uint32_t guess = table_guess(&table, hash);

		if (KVR_UNLIKELY(guess == 0 && cache->old.buckets))
			guess = table_guess(&cache->old, hash);
		match->guess[i % MATCH_STEPS] = guess;
		__builtin_prefetch(cache_entry_at(cache, guess), 1);
	}
}

/* Where it ends: `to`, or the first chunk that is not there with all parts. */
static uint32_t match_compare(struct match *match, uint32_t from, uint32_t to)
{
	const struct cache *cache = match->cache;

	for (uint32_t i = from; i < to; i++) {
		uint32_t number = match->guess[i % MATCH_STEPS];
		uint64_t digest[4];

		match_digest(match, i, digest);
		if (KVR_UNLIKELY(!cache_entry_is(cache_entry_at(cache, number), match->space, digest)))
			number = cache_lookup(cache, match->space, digest, match->hash[i % MATCH_STEPS]);
		if (number == 0 || cache_entry_at(cache, number)->absent > 0)
			return i;
		match->entries[i] = number;
	}
	return to;
}

uint32_t cache_match(
	const struct cache *cache, uint32_t space, const uint8_t *digests, uint32_t count, uint32_t *entries)
{
	struct match match;

	match.cache = cache;
	match.digests = digests;
	match.entries = entries;
	match.space = space;
	for (uint32_t start = 0; start < count + 2 * MATCH_BATCH; start += MATCH_BATCH) {
		uint32_t from = start < count ? start : count;
		uint32_t to = start + MATCH_BATCH < count ? start + MATCH_BATCH : count;
		uint32_t asked = start >= MATCH_BATCH ? start - MATCH_BATCH : 0;
		uint32_t end;

		match_buckets(&match, from, to);
		if (asked < from)
			match_entries(&match, asked, from);
		if (start < 2 * MATCH_BATCH)
			continue;
		to = asked < count ? asked : count;
		end = match_compare(&match, start - 2 * MATCH_BATCH, to);
		if (end < to)
			return end;
	}
	return count;
}

l1_ref cache_object(const struct cache *cache, uint32_t entry, uint32_t part)
{
	struct cache_entry *e = cache_entry_at(cache, entry);

	return part < cache_entry_parts(cache, e) ? cache_entry_objects(cache, e)[part] : 0;
}

uint64_t cache_entry_bytes(const struct cache *cache, uint32_t entry)
{
	return cache_entry_at(cache, entry)->units * (uint64_t)CACHE_UNIT_BYTES;
}

bool cache_complete(const struct cache *cache, uint32_t entry)
{
	const struct cache_entry *e = cache_entry_at(cache, entry);

	return e->absent == 0;
}

/* ---- holding ---- */

static void stamp_entry(struct cache_entry *entry, uint64_t stamp)
{
	entry->stamp = (uint32_t)stamp;
	entry->stamp_high = (uint16_t)(stamp >> 32);
}

/* The entry's list is not empty any more; it is. */
static void mark_class(struct account *account, const struct cache_entry *entry)
{
	account->listed_classes[entry->reused][entry->object_class / 64] |= UINT64_C(1) << (entry->object_class % 64);
}

static void unmark_class(struct account *account, const struct cache_entry *entry)
{
	account->listed_classes[entry->reused][entry->object_class / 64] &= ~(
		UINT64_C(1) << (entry->object_class % 64));
}

static void count_fresh(struct cache *cache, const struct cache_entry *entry)
{
	if (KVR_UNLIKELY(cache->segmented) && !entry->reused)
		cache->fresh_units += entry->units;
}

static void uncount_fresh(struct cache *cache, const struct cache_entry *entry)
{
	if (KVR_UNLIKELY(cache->segmented) && !entry->reused)
		cache->fresh_units -= entry->units;
}

static void mark_listed(struct cache *cache, uint32_t account, const struct cache_entry *entry)
{
	mark_class(&cache->accounts[account], entry);
	count_fresh(cache, entry);
}

void cache_list(struct cache *cache, uint32_t number, struct cache_entry *entry)
{
	uint32_t account = cache_account_now(cache, entry);
	uint32_t head = cache_list_head(cache, entry->reused, account, entry->object_class);
	struct cache_entry *first = cache_entry_at(cache, head);

	entry->list.prev = head;
	entry->list.next = first->list.next;
	cache_entry_at(cache, first->list.next)->list.prev = number;
	first->list.next = number;
	stamp_entry(entry, ++cache->stamp);
	mark_listed(cache, account, entry);
}

/* Before all other temporary ones, which are at the old end: of a chain that is let go from its end on, the end goes first. */
static void list_temporary(struct cache *cache, uint32_t number, struct cache_entry *entry)
{
	uint32_t account = cache->spaces.spaces[entry->space].account;
	uint32_t head = cache_list_head(cache, CACHE_FRESH, account, entry->object_class);
	struct cache_entry *list = cache_entry_at(cache, head);
	uint32_t next = list->objects ? (uint32_t)list->objects : head;
	struct cache_entry *after = cache_entry_at(cache, next);

	entry->list.next = next;
	entry->list.prev = after->list.prev;
	cache_entry_at(cache, after->list.prev)->list.next = number;
	after->list.prev = number;
	list->objects = number;
	entry->reused = CACHE_FRESH;
	stamp_entry(entry, ++cache->temporary_stamp);
	cache->temporary_count++;
	mark_listed(cache, account, entry);
}

/* The head's first temporary one goes: the next one is it. */
static void leave_temporary(struct cache *cache, const struct cache_entry *entry)
{
	uint32_t account = cache->spaces.spaces[entry->space].account;
	uint32_t head = cache_list_head(cache, CACHE_FRESH, account, entry->object_class);
	struct cache_entry *list = cache_entry_at(cache, head);

	cache->temporary_count--;
	if (list->objects && cache_entry_at(cache, (uint32_t)list->objects) == entry)
		list->objects = entry->list.next == head ? 0 : entry->list.next;
}

void cache_unlist(struct cache *cache, struct cache_entry *entry)
{
	uint32_t prev = entry->list.prev;
	uint32_t next = entry->list.next;

	if (KVR_UNLIKELY(entries_stamp(entry) < ENTRIES_LASTING))
		leave_temporary(cache, entry);
	cache_entry_at(cache, prev)->list.next = next;
	cache_entry_at(cache, next)->list.prev = prev;
	if (prev == next) /* both are the head: it was the last one */
		unmark_class(cache_account_of(cache, entry), entry);
	uncount_fresh(cache, entry);
}

#define ONE_PIN (UINT64_C(1) << 32)

/* Returns what is not evictable any more by it. */
static inline uint32_t hold(struct cache *cache, uint32_t number, uint64_t holds)
{
	struct cache_entry *entry = cache_entry_at(cache, number);

	if (entries_held(entry)) {
		entry->holds += holds;
		return 0;
	}
	cache_unlist(cache, entry);
	entry->stamp = 0;
	entry->stamp_high = ENTRIES_HELD;
	entry->holds = holds;
	cache->held_chunks++;
	return entry->units;
}

static void count_held(struct cache *cache, uint32_t number, uint64_t units)
{
	cache->evictable_units -= units;
	cache->accounts[cache_account_now(cache, cache_entry_at(cache, number))].evictable_units -= units;
}

static void let_go(struct cache *cache, uint32_t number, uint64_t holds)
{
	struct cache_entry *entry = cache_entry_at(cache, number);

	entry->holds -= holds;
	if (entry->holds > 0)
		return;
	cache->evictable_units += entry->units;
	cache->accounts[cache_account_now(cache, entry)].evictable_units += entry->units;
	cache->held_chunks--;
	if (KVR_UNLIKELY(entry->stamp) && cache->temporary_stamp + 1 < ENTRIES_LASTING)
		list_temporary(cache, number, entry);
	else
		cache_list(cache, number, entry);
}

void cache_lock(struct cache *cache, uint32_t entry, uint32_t count)
{
	assert(!entries_held(cache_entry_at(cache, entry)) ||
		entries_locks(cache_entry_at(cache, entry)) <= UINT32_MAX - count);
	if (count == 0)
		return;
	cache->locks += count;
	count_held(cache, entry, hold(cache, entry, count));
	if (cache->segmented)
		cache_entry_at(cache, entry)->reused = CACHE_REUSED;
}

/* Neighbours on an eviction list that were taken off it: what is before and behind them is linked when no more follow. */
static void gap_close(struct cache *cache, const struct cache_entry *last, uint32_t prev, uint32_t next)
{
	cache_entry_at(cache, prev)->list.next = next;
	cache_entry_at(cache, next)->list.prev = prev;
	if (prev == next) /* both are the head */
		unmark_class(cache_account_of(cache, last), last);
}

void cache_lock_all(struct cache *cache, const uint32_t *entries, uint32_t entry_count, uint32_t count)
{
	const struct cache_entry *last = NULL;
	uint32_t prev = 0, next = 0, taken = 0;
	const bool segmented = cache->segmented;
	uint64_t units = 0;

	if (count == 0 || entry_count == 0)
		return;
	for (uint32_t i = 0; i < entry_count; i++) {
		struct cache_entry *entry = cache_entry_at(cache, entries[i]);

		assert(!entries_held(entry) || entries_locks(entry) <= UINT32_MAX - count);
		assert(entry->space == cache_entry_at(cache, entries[0])->space);
		if (entries_held(entry)) {
			entry->holds += count;
			continue;
		}
		if (!last || entries[i] != next) { /* what a session let go of lies in its order */
			if (last)
				gap_close(cache, last, prev, next);
			last = NULL;
			prev = entry->list.prev;
		}
		if (KVR_UNLIKELY(entries_stamp(entry) < ENTRIES_LASTING)) {
			if (last)
				gap_close(cache, last, prev, next);
			last = NULL;
			units += hold(cache, entries[i], count);
			continue;
		}
		next = entry->list.next;
		last = entry;
		entry->stamp = 0;
		entry->stamp_high = ENTRIES_HELD;
		entry->holds = count;
		units += entry->units;
		if (KVR_UNLIKELY(segmented))
			uncount_fresh(cache, entry);
		taken++;
	}
	if (last)
		gap_close(cache, last, prev, next);
	/* Only now: until here they were on the lists of what they had been. */
	for (uint32_t i = 0; KVR_UNLIKELY(segmented) && i < entry_count; i++)
		cache_entry_at(cache, entries[i])->reused = CACHE_REUSED;
	cache->held_chunks += taken;
	count_held(cache, entries[0], units);
	cache->locks += (uint64_t)entry_count * count;
}

void cache_unlock(struct cache *cache, uint32_t entry, uint32_t count)
{
	assert(count == 0 ||
		(entries_held(cache_entry_at(cache, entry)) && entries_locks(cache_entry_at(cache, entry)) >= count));
	if (count == 0)
		return;
	cache->locks -= count;
	let_go(cache, entry, count);
}

/* What goes to the front of one eviction list, linked to each other before the list is. */
struct front {
	uint32_t head;
	uint32_t first; /* number of the newest, and where it is */
	struct cache_entry *newest;
};

static void front_close(struct cache *cache, struct front *front)
{
	if (front->newest)
		cache_entry_at(cache, front->head)->list.next = front->first;
	front->newest = NULL;
}

static void front_add(
	struct cache *cache, struct front *front, uint32_t account, uint32_t number, struct cache_entry *entry)
{
	uint32_t head = cache_list_head(cache, entry->reused, account, entry->object_class);

	if (!front->newest || front->head != head) {
		front_close(cache, front);
		front->head = head;
		front->first = cache_entry_at(cache, head)->list.next;
		front->newest = cache_entry_at(cache, front->first);
		mark_class(&cache->accounts[account], entry);
	}
	count_fresh(cache, entry);
	entry->list.prev = head;
	entry->list.next = front->first;
	front->newest->list.prev = number;
	front->first = number;
	front->newest = entry;
	stamp_entry(entry, ++cache->stamp);
}

void cache_unlock_all(struct cache *cache, const uint32_t *entries, uint32_t entry_count, uint32_t count)
{
	struct front front = { 0 };
	uint64_t units = 0;
	uint32_t account, freed = 0;

	if (count == 0 || entry_count == 0)
		return;
	account = cache_account_now(cache, cache_entry_at(cache, entries[0]));
	cache->locks -= (uint64_t)entry_count * count;
	for (uint32_t i = entry_count; i > 0; i--) {
		uint32_t number = entries[i - 1];
		struct cache_entry *entry = cache_entry_at(cache, number);

		assert(entries_held(entry) && entries_locks(entry) >= count);
		if (KVR_UNLIKELY(
			    entry->stamp)) { /* it is temporary: it has a place of its own, which may be the front */
			front_close(cache, &front);
			let_go(cache, number, count);
			continue;
		}
		entry->holds -= count;
		if (entry->holds > 0)
			continue;
		front_add(cache, &front, account, number, entry);
		units += entry->units;
		freed++;
	}
	front_close(cache, &front);
	cache->evictable_units += units;
	cache->accounts[account].evictable_units += units;
	cache->held_chunks -= freed;
}

void cache_pin(struct cache *cache, uint32_t entry)
{
	assert(!entries_held(cache_entry_at(cache, entry)) || entries_pins(cache_entry_at(cache, entry)) < UINT32_MAX);
	cache->pins++;
	count_held(cache, entry, hold(cache, entry, ONE_PIN));
}

void cache_unpin(struct cache *cache, uint32_t entry)
{
	assert(entries_held(cache_entry_at(cache, entry)) && entries_pins(cache_entry_at(cache, entry)) > 0);
	cache->pins--;
	let_go(cache, entry, ONE_PIN);
}

void cache_touch(struct cache *cache, uint32_t entry)
{
	struct cache_entry *e = cache_entry_at(cache, entry);

	if (entries_held(e) || entries_stamp(e) < ENTRIES_LASTING)
		return;
	cache_unlist(cache, e);
	cache_list(cache, entry, e);
}

void cache_make_temporary(struct cache *cache, uint32_t entry)
{
	struct cache_entry *e = cache_entry_at(cache, entry);

	assert(entries_held(e));
	e->stamp = 1;
}

void cache_demote(struct cache *cache, uint32_t entry)
{
	struct cache_entry *e = cache_entry_at(cache, entry);
	uint32_t account = cache->spaces.spaces[e->space].account;
	uint32_t head = cache_list_head(cache, CACHE_FRESH, account, e->object_class);
	uint32_t prev = cache_entry_at(cache, head)->list.prev;
	struct cache_entry *last = cache_entry_at(cache, prev);
	uint64_t stamp;

	if (entries_held(e) || prev == entry)
		return;
	/* Older than all that were listed as used, with room below for those that are demoted after it. */
	stamp = prev == head ? ENTRIES_LASTING + (UINT64_C(1) << 31) : entries_stamp(last) - 1;
	cache_unlist(cache, e);
	e->reused = CACHE_FRESH;
	e->list.next = head;
	e->list.prev = prev;
	last->list.next = entry;
	cache_entry_at(cache, head)->list.prev = entry;
	/* Just older than the one that was the oldest: among the lists of all classes it comes when that one would. */
	stamp_entry(e, stamp);
	cache->temporary_count += stamp < ENTRIES_LASTING;
	mark_listed(cache, account, e);
}
