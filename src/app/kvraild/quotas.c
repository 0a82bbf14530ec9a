/* quotas.c - --quota TENANT=SOFT:HARD and --default-quota SOFT:HARD. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "app/kvraild/options.h"
#include "mgmt/quota.h"

static int refuse_quota(const char *option, const char *item, const char *why, struct option_error *error)
{
	snprintf(error->text, sizeof(error->text), "%s %.100s: %s", option, item, why);
	return -EINVAL;
}

static int read_quota(struct kvraild_plan *plan, const char *item, struct option_error *error)
{
	const char *equals = strrchr(item, '=');
	size_t length = equals ? (size_t)(equals - item) : 0;
	const char *why;

	if (length == 0)
		return refuse_quota("--quota", item, "write TENANT=SOFT:HARD", error);
	for (uint32_t i = 0; i < plan->tenant_count; i++) {
		struct control_tenant *tenant = &plan->tenants[i];

		if (strlen(tenant->name) != length || strncmp(tenant->name, item, length) != 0)
			continue;
		if (tenant->quota.own)
			return refuse_quota("--quota", item, "that tenant has a quota already", error);
		why = quota_parse(equals + 1, &tenant->quota.quota);
		if (why)
			return refuse_quota("--quota", item, why, error);
		tenant->quota.own = true;
		return 0;
	}
	return refuse_quota("--quota", item, "there is no such tenant; give it as --tenant too", error);
}

int kvraild_plan_quotas(const struct kvraild_settings *settings, struct kvraild_plan *plan, struct option_error *error)
{
	const char *why = quota_parse(settings->default_quota, &plan->default_quota);
	int result = 0;

	if (why)
		return refuse_quota("--default-quota", settings->default_quota, why, error);
	for (uint32_t i = 0; !result && i < settings->quotas.count; i++)
		result = read_quota(plan, settings->quotas.items[i], error);
	return result;
}
