/* quota.c - what each tenant may hold in L1: the table, and what is said of it. The chunk table keeps to it (tier/cache.h). */
#include "mgmt/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "mgmt/quota.h"

static const struct cache_quota *quota_of(const struct management *management, uint32_t tenant)
{
	return management->quotas[tenant].own ? &management->quotas[tenant].quota : &management->options.default_quota;
}

int quota_init(struct management *management)
{
	uint32_t count = cache_account_count(management->cache);

	management->quotas = fault_point("management/quotas") ? NULL : calloc(count, sizeof(*management->quotas));
	if (!management->quotas)
		return -ENOMEM;
	if (management->options.quotas)
		memcpy(management->quotas, management->options.quotas, count * sizeof(*management->quotas));
	management->options.quotas = NULL; /* the caller's */
	for (uint32_t tenant = 0; tenant < count; tenant++)
		cache_set_quota(management->cache, tenant, quota_of(management, tenant));
	return 0;
}

static const char *tenant_name(const struct management *management, uint32_t tenant)
{
	const struct management_options *options = &management->options;

	return options->tenant_name ? options->tenant_name(options->context, tenant) : "?";
}

void quota_say_full(const struct management *management, struct request *request)
{
	uint32_t tenant = request->registration->tenant;
	struct cache_account_stats stats;

	cache_get_account(management->cache, tenant, &stats);
	reply_set(&request->reply, STATUS_NO_QUOTA,
		"tenant \"%.63s\" may hold %llu bytes of L1: what it holds and is not in use makes no room for %u objects of %llu",
		tenant_name(management, tenant), (unsigned long long)stats.quota.hard_bytes,
		request->message.transfer.chunk_count,
		(unsigned long long)request->transfer.layout->groups[0].object_bytes);
}

static void tell_quota(const struct management *management, uint32_t tenant, bool any)
{
	char held_text[TEXT_SHORT], soft_text[TEXT_SHORT], hard_text[TEXT_SHORT];
	const struct cache_quota *quota = quota_of(management, tenant);
	const char *soft = quota_limit_text(soft_text, quota->soft_bytes);
	const char *hard = quota_limit_text(hard_text, quota->hard_bytes);
	struct cache_account_stats stats;

	cache_get_account(management->cache, tenant, &stats);
	if (stats.resident_bytes == 0)
		return;
	text_size(held_text, stats.resident_bytes);
	if (quota->hard_bytes > 0 && stats.resident_bytes > quota->hard_bytes)
		log_warn(
			"quota: tenant %s holds %s (%llu bytes), above its hard limit of %s: its next stores evict its own "
			"chunks until it is below",
			tenant_name(management, tenant), held_text, (unsigned long long)stats.resident_bytes, hard);
	else if (quota->soft_bytes > 0 && stats.resident_bytes > quota->soft_bytes)
		log_warn("quota: tenant %s holds %s (%llu bytes), above its soft limit of %s: its chunks are the first "
			 "to be evicted when room is needed",
			tenant_name(management, tenant), held_text, (unsigned long long)stats.resident_bytes, soft);
	else if (any && !management->quotas[tenant].own)
		log_warn(
			"quota: tenant %s has no quota of its own and holds %s (%llu bytes): the default holds, soft %s, "
			"hard %s; nothing is dropped",
			tenant_name(management, tenant), held_text, (unsigned long long)stats.resident_bytes, soft,
			hard);
}

void management_tell_quotas(const struct management *management)
{
	const struct cache_quota *fallback = &management->options.default_quota;
	uint32_t count = cache_account_count(management->cache);
	bool any = fallback->soft_bytes > 0 || fallback->hard_bytes > 0;

	for (uint32_t tenant = 0; tenant < count; tenant++)
		any |= management->quotas[tenant].own;
	for (uint32_t tenant = 0; tenant < count; tenant++)
		tell_quota(management, tenant, any);
}

void quota_job_run(struct management *management, struct quota_job *job)
{
	struct tenant_quota *quota = &management->quotas[job->tenant];
	struct cache_account_stats stats;

	quota->own = !job->remove;
	if (quota->own)
		quota->quota = job->quota;
	job->quota = *quota_of(management, job->tenant);
	cache_set_quota(management->cache, job->tenant, &job->quota);
	cache_get_account(management->cache, job->tenant, &stats);
	job->held_bytes = stats.resident_bytes + stats.staged_bytes;
}
