/* cache_account.c - whose memory it is: what accounts hold, and their limits. */
#include <assert.h>

#include "base/atomic.h"
#include "tier/cache_internal.h"

void cache_set_account(struct cache *cache, uint32_t model, uint32_t account)
{
	assert(account < cache->account_count);
	if (model < CACHE_MODELS_MAX)
		cache->account_of_model[model] = (uint8_t)account;
}

uint32_t cache_space_account(const struct cache *cache, uint32_t space)
{
	return cache->spaces.spaces[space].account;
}

uint32_t cache_account_count(const struct cache *cache)
{
	return cache->account_count;
}

void cache_get_account(const struct cache *cache, uint32_t number, struct cache_account_stats *stats)
{
	const struct account *account = &cache->accounts[number];

	*stats = (struct cache_account_stats){
		.resident_bytes = account->units * CACHE_UNIT_BYTES,
		.staged_bytes = account->staged_units * CACHE_UNIT_BYTES,
		.evictable_bytes = account->evictable_units * CACHE_UNIT_BYTES,
		.quota = account->quota,
		.evicted_chunks = account->evicted,
		.quota_evicted_chunks = account->quota_evicted,
		.quota_refused = account->quota_refused,
	};
}

static uint64_t limit_units(uint64_t bytes)
{
	return bytes > 0 ? bytes / CACHE_UNIT_BYTES : CACHE_NO_LIMIT;
}

void cache_set_quota(struct cache *cache, uint32_t number, const struct cache_quota *quota)
{
	struct account *account = &cache->accounts[number];
	uint64_t bit = UINT64_C(1) << (number % 64);

	account->quota = *quota;
	account->soft_units = limit_units(quota->soft_bytes);
	account->hard_units = limit_units(quota->hard_bytes);
	if (quota->soft_bytes > 0)
		cache->with_soft.bits[number / 64] |= bit;
	else
		cache->with_soft.bits[number / 64] &= ~bit;
}

bool cache_quota_allows(const struct cache *cache, uint32_t number, uint32_t object_class, uint64_t count)
{
	const struct account *account = &cache->accounts[number];
	uint64_t units = cache_class_units(cache, object_class);
	uint64_t kept = account->units + account->staged_units - account->evictable_units;

	if (account->hard_units == CACHE_NO_LIMIT)
		return true;
	return kept <= account->hard_units && count <= (account->hard_units - kept) / units;
}

void cache_quota_refused(struct cache *cache, uint32_t number, uint64_t count)
{
	cache->accounts[number].quota_refused += count;
	kvr_counter_add(&cache->counters->quota_refused, count);
}

bool cache_quota_full(const struct cache *cache, uint32_t number, uint32_t object_class)
{
	const struct account *account = &cache->accounts[number];

	return account->hard_units != CACHE_NO_LIMIT &&
		account->units + account->staged_units + cache_class_units(cache, object_class) > account->hard_units;
}
