/* tenants.c - --tenant NAME[:uid=N][:clear] and --tenant-key NAME:FILE, and files with secrets. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/kvraild/options.h"
#include "base/log.h"

#define TENANT_SECRET_LEAST 16

static int refuse_tenant(const char *item, const char *why, struct option_error *error)
{
	snprintf(error->text, sizeof(error->text), "--tenant %.80s: %s; write NAME, then :uid=N and :clear as wanted",
		item, why);
	return -EINVAL;
}

static struct control_tenant *find_tenant(struct kvraild_plan *plan, const char *name)
{
	for (uint32_t i = 0; i < plan->tenant_count; i++) {
		if (strcmp(plan->tenants[i].name, name) == 0)
			return &plan->tenants[i];
	}
	return NULL;
}

/* Copies what stands before the next ':' and moves behind it; NULL behind the last part. */
static const char *take_part(const char *from, char *part, size_t size)
{
	size_t length = strcspn(from, ":");

	if (length >= size) {
		part[0] = '\0';
		return from[length] ? from + length + 1 : NULL;
	}
	memcpy(part, from, length);
	part[length] = '\0';
	return from[length] ? from + length + 1 : NULL;
}

static int read_right(struct control_tenant *tenant, const char *item, const char *part, struct option_error *error)
{
	uint64_t uid;

	if (strcmp(part, "clear") == 0 && !tenant->may_clear) {
		tenant->may_clear = true;
		return 0;
	}
	if (strncmp(part, "uid=", 4) != 0 || tenant->by_uid)
		return refuse_tenant(item, "its parts are uid=N and clear, each once", error);
	/* The highest number means nobody. */
	if (text_parse_u64(part + 4, &uid) != 0 || uid >= UINT32_MAX)
		return refuse_tenant(item, "no such user number", error);
	tenant->by_uid = true;
	tenant->uid = (uint32_t)uid;
	return 0;
}

static int read_tenant(struct kvraild_plan *plan, const char *item, struct option_error *error)
{
	struct control_tenant *tenant, tenant_read;
	const char *rest;
	char part[64];

	memset(&tenant_read, 0, sizeof(tenant_read));
	rest = take_part(item, tenant_read.name, sizeof(tenant_read.name));
	if (!tenant_read.name[0])
		return refuse_tenant(item, "a name has 1 to 63 characters", error);
	while (rest) {
		int result;

		rest = take_part(rest, part, sizeof(part));
		result = read_right(&tenant_read, item, part, error);
		if (result)
			return result;
	}
	for (uint32_t i = 0; i < plan->tenant_count; i++) {
		if (plan->tenants[i].by_uid && tenant_read.by_uid && plan->tenants[i].uid == tenant_read.uid)
			return refuse_tenant(item, "another tenant has that user already", error);
	}
	tenant = find_tenant(plan, tenant_read.name);
	/* The default tenant is there from the start, and may be described once. */
	if (tenant && (tenant != &plan->tenants[0] || tenant->by_uid || tenant->may_clear))
		return refuse_tenant(item, "that name was given before", error);
	if (!tenant)
		tenant = &plan->tenants[plan->tenant_count++];
	*tenant = tenant_read;
	return 0;
}

static int read_whole(const char *path, char *bytes, size_t size, struct stat *status)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = -1;

	memset(status, 0, sizeof(*status));
	if (fd < 0)
		return -errno;
	if (fstat(fd, status) == 0)
		length = read(fd, bytes, size - 1);
	if (length < 0)
		length = -errno;
	else
		bytes[length] = '\0';
	close(fd);
	return length < 0 ? (int)length : 0;
}

int kvraild_read_secret(
	const char *what, const char *path, size_t least, char *secret, size_t size, struct option_error *error)
{
	struct stat status;
	char bytes[1024];
	int result = read_whole(path, bytes, sizeof(bytes), &status);

	if (result) {
		snprintf(error->text, sizeof(error->text), "%s: %.200s can't be read: %s", what, path,
			strerror(-result));
		return -EINVAL;
	}
	if (S_ISREG(status.st_mode) && (status.st_mode & (S_IRWXG | S_IRWXO)))
		log_warn("%s: %s can be read by others than its owner: chmod 600", what, path);
	bytes[strcspn(bytes, "\r\n")] = '\0';
	if (strlen(bytes) >= least && strlen(bytes) < size) {
		memcpy(secret, bytes, strlen(bytes) + 1);
	} else {
		snprintf(error->text, sizeof(error->text),
			"%s: the first line of %.200s is no secret of %zu to %zu characters", what, path, least,
			size - 1);
		result = -EINVAL;
	}
	explicit_bzero(bytes, sizeof(bytes));
	return result;
}

static int read_key(struct kvraild_plan *plan, const char *item, struct option_error *error)
{
	struct control_tenant *tenant;
	const char *path;
	char name[64], secret[sizeof(tenant->secret) + 1];
	int result;

	path = take_part(item, name, sizeof(name));
	if (!name[0] || !path || !path[0]) {
		snprintf(error->text, sizeof(error->text), "--tenant-key %.80s: write NAME:FILE", item);
		return -EINVAL;
	}
	tenant = find_tenant(plan, name);
	if (!tenant) {
		snprintf(error->text, sizeof(error->text),
			"--tenant-key %.80s: there is no tenant %s; give --tenant %s too", item, name, name);
		return -EINVAL;
	}
	if (tenant->key_name[0]) {
		snprintf(error->text, sizeof(error->text), "--tenant-key %.80s: tenant %s has a key already", item,
			name);
		return -EINVAL;
	}
	result = kvraild_read_secret("--tenant-key", path, TENANT_SECRET_LEAST, secret, sizeof(secret), error);
	if (result == 0) {
		text_copy(tenant->key_name, sizeof(tenant->key_name), name);
		tenant->secret_length = (uint32_t)strlen(secret);
		memcpy(tenant->secret, secret, tenant->secret_length);
	}
	explicit_bzero(secret, sizeof(secret));
	return result;
}

int kvraild_plan_tenants(const struct kvraild_settings *settings, struct kvraild_plan *plan, struct option_error *error)
{
	int result = 0;

	text_copy(plan->tenants[0].name, sizeof(plan->tenants[0].name), "default");
	plan->tenant_count = 1;
	for (uint32_t i = 0; !result && i < settings->tenants.count; i++)
		result = read_tenant(plan, settings->tenants.items[i], error);
	for (uint32_t i = 0; !result && i < settings->tenant_keys.count; i++)
		result = read_key(plan, settings->tenant_keys.items[i], error);
	if (result)
		return result;
	if (settings->tenants.count == 0) {
		if (settings->require_tenant) {
			snprintf(error->text, sizeof(error->text), "--require-tenant needs at least one --tenant");
			return -EINVAL;
		}
		/* Who has the server alone may clear it. */
		plan->tenants[0].may_clear = true;
	}
	return 0;
}
