#include <errno.h>

#include "base/log.h"
#include "tier/cache_internal.h"

struct totals {
	uint64_t chunks, objects, bytes, locks, pins, held, listed, evictable_units, fresh_units, temporary;
	uint64_t account_units[CACHE_ACCOUNTS_MAX], account_evictable_units[CACHE_ACCOUNTS_MAX];
};

static int verify_objects(const struct cache *cache, uint32_t number, struct totals *totals)
{
	struct cache_entry *entry = cache_entry_at(cache, number);
	const l1_ref *objects = cache_entry_objects(cache, entry);
	uint32_t parts = cache_entry_parts(cache, entry);
	uint64_t units = 0;
	uint32_t present = 0;
	bool has_class = false;

	for (uint32_t part = 0; part < parts; part++) {
		uint32_t object_class;

		if (objects[part] == 0)
			continue;
		object_class = l1_class_of(cache->l1, objects[part]);
		if (l1_owner(cache->l1, objects[part]) != number) {
			log_error("cache: part %u of entry %u has owner %u", part, number,
				l1_owner(cache->l1, objects[part]));
			return -EILSEQ;
		}
		present++;
		units += l1_class_slot_bytes(cache->l1, object_class) / CACHE_UNIT_BYTES;
		has_class = has_class || object_class == entry->object_class;
		totals->bytes += l1_bytes(cache->l1, objects[part]);
	}
	totals->objects += present;
	if (present > 0 && present + entry->absent == parts && has_class &&
		kvr_min_u64(units, ENTRIES_UNITS_MAX) == entry->units)
		return 0;
	log_error("cache: entry %u lacks %u objects and counts %u units, and has %u and %lu", number, entry->absent,
		entry->units, present, (unsigned long)units);
	return -EILSEQ;
}

static int verify_entry(const struct cache *cache, uint32_t number, struct totals *totals)
{
	struct cache_entry *entry = cache_entry_at(cache, number);
	uint32_t hash = cache_hash(cache, entry->space, entry->digest);
	uint32_t account;

	if (entry->space >= cache->spaces.capacity || cache_entry_parts(cache, entry) == 0) {
		log_error("cache: entry %u is in space %u, which does not exist", number, entry->space);
		return -EILSEQ;
	}
	account = cache_space_account(cache, entry->space);
	if (cache_lookup(cache, entry->space, entry->digest, hash) != number || account >= cache->account_count) {
		log_error("cache: entry %u is not found under its key", number);
		return -EILSEQ;
	}
	totals->chunks++;
	totals->account_units[account] += entry->units;
	if (entries_held(entry)) {
		totals->held++;
		totals->locks += entries_locks(entry);
		totals->pins += entries_pins(entry);
		if (entry->holds == 0) {
			log_error("cache: entry %u is held by nobody", number);
			return -EILSEQ;
		}
	} else {
		totals->evictable_units += entry->units;
		totals->account_evictable_units[account] += entry->units;
	}
	return verify_objects(cache, number, totals);
}

static int verify_list(
	const struct cache *cache, uint32_t segment, uint32_t account, uint32_t object_class, struct totals *totals)
{
	uint32_t head = cache_list_head(cache, segment, account, object_class);
	uint32_t prev = head;
	uint64_t stamp = cache->stamp + 1;
	uint64_t count = 0;
	uint64_t temporary = 0; /* the first one */

	for (uint32_t number = cache_entry_at(cache, head)->list.next; number != head;) {
		const struct cache_entry *entry = cache_entry_at(cache, number);

		if (entry->space == ENTRIES_FREE || entries_held(entry) || entry->object_class != object_class ||
			entry->reused != segment || cache_space_account(cache, entry->space) != account ||
			entry->list.prev != prev || entries_stamp(entry) >= stamp || count++ == cache->chunks) {
			log_error(
				"cache: entry %u does not belong where it stands on the eviction list of account %u, class %u",
				number, account, object_class);
			return -EILSEQ;
		}
		stamp = entries_stamp(entry);
		if (stamp < ENTRIES_LASTING && !temporary)
			temporary = number;
		totals->temporary += stamp < ENTRIES_LASTING;
		totals->fresh_units += cache->segmented && segment == CACHE_FRESH ? entry->units : 0;
		prev = number;
		number = entry->list.next;
	}
	totals->listed += count;
	if (temporary != cache_entry_at(cache, head)->objects) {
		log_error("cache: the first temporary entry of account %u, class %u is another one", account,
			object_class);
		return -EILSEQ;
	}
	if ((cache->accounts[account].listed_classes[segment][object_class / 64] >> (object_class % 64) & 1) ==
		(count > 0))
		return 0;
	log_error("cache: class %u has %lu entries on its list and is marked otherwise", object_class,
		(unsigned long)count);
	return -EILSEQ;
}

static int verify_totals(const struct cache *cache, const struct totals *totals)
{
	struct l1_stats stats;

	l1_get_stats(cache->l1, &stats);
	if (totals->chunks == cache->chunks && totals->objects == cache->objects &&
		totals->bytes == cache->resident_bytes && totals->locks == cache->locks &&
		totals->pins == cache->pins && totals->held == cache->held_chunks &&
		totals->listed == totals->chunks - totals->held && totals->evictable_units == cache->evictable_units &&
		totals->fresh_units == cache->fresh_units && totals->temporary == cache->temporary_count &&
		totals->chunks == cache->table.used + cache->old.used &&
		stats.objects == totals->objects + cache->staged &&
		stats.used_bytes == totals->bytes + cache->staged_bytes)
		return 0;
	log_error("cache: wrong sums: %lu chunks, %lu objects, %lu bytes, %lu locks, %lu pins, %lu held, %lu listed",
		(unsigned long)totals->chunks, (unsigned long)totals->objects, (unsigned long)totals->bytes,
		(unsigned long)totals->locks, (unsigned long)totals->pins, (unsigned long)totals->held,
		(unsigned long)totals->listed);
	return -EILSEQ;
}

static int verify_accounts(const struct cache *cache, const struct totals *totals)
{
	uint64_t staged = 0, evictable = 0;

	for (uint32_t i = 0; i < cache->account_count; i++) {
		const struct account *account = &cache->accounts[i];

		staged += account->staged_units;
		evictable += account->evictable_units;
		if (account->units == totals->account_units[i] &&
			account->evictable_units == totals->account_evictable_units[i])
			continue;
		log_error("cache: account %u counts %lu units, %lu evictable, and has %lu and %lu", i,
			(unsigned long)account->units, (unsigned long)account->evictable_units,
			(unsigned long)totals->account_units[i], (unsigned long)totals->account_evictable_units[i]);
		return -EILSEQ;
	}
	if (evictable == cache->evictable_units && staged * CACHE_UNIT_BYTES >= cache->staged_bytes &&
		(staged == 0) == (cache->staged == 0))
		return 0;
	log_error("cache: accounts count %lu staged units, which cannot be %lu bytes", (unsigned long)staged,
		(unsigned long)cache->staged_bytes);
	return -EILSEQ;
}

int cache_verify(const struct cache *cache, bool expect_idle)
{
	struct totals totals = { 0 };

	if (l1_verify(cache->l1) || table_verify(&cache->table) || table_verify(&cache->old) ||
		entries_verify(&cache->entries) || space_table_verify(&cache->spaces))
		return -EILSEQ;
	for (uint32_t number = cache->entries.heads; number < cache->entries.fresh; number++)
		if (cache_entry_at(cache, number)->space != ENTRIES_FREE && verify_entry(cache, number, &totals))
			return -EILSEQ;
	for (uint32_t list = 0; list < cache_segments(cache) * cache->account_count * L1_CLASSES_MAX; list++) {
		uint32_t lists = list / L1_CLASSES_MAX;

		if (verify_list(cache, lists / cache->account_count, lists % cache->account_count,
			    list % L1_CLASSES_MAX, &totals))
			return -EILSEQ;
	}
	if (verify_totals(cache, &totals) || verify_accounts(cache, &totals))
		return -EILSEQ;
	if (!expect_idle || (cache->locks == 0 && cache->pins == 0 && cache->staged == 0))
		return 0;
	log_error("cache: %lu locks, %lu pins and %lu staged objects are left", (unsigned long)cache->locks,
		(unsigned long)cache->pins, (unsigned long)cache->staged);
	return -EILSEQ;
}
