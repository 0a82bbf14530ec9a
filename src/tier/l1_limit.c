#include "tier/l1_limit.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number behind `key` in a file of "key: number unit" lines, or the file's first number when key is "". False:
 * not there. */
static bool read_number(const char *path, const char *key, uint64_t *value)
{
	char line[256];
	FILE *file = fopen(path, "re");
	bool found = false;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		char *end;

		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		*value = strtoull(line + strlen(key), &end, 10);
		found = end != line + strlen(key);
	}
	fclose(file);
	return found;
}

static void lower(struct l1_limit *limit, uint64_t bytes, const char *name)
{
	size_t length = strlen(name);

	if (bytes >= limit->bytes)
		return;
	if (length >= sizeof(limit->name))
		length = sizeof(limit->name) - 1;
	limit->bytes = bytes;
	memcpy(limit->name, name, length);
	limit->name[length] = '\0';
}

/* A group's limit less what it uses; without the file there is none ("max" is no number either). */
static void read_group(const char *group, const char *limit_file, const char *usage_file, struct l1_limit *limit)
{
	char path[PATH_MAX];
	uint64_t most, used;

	snprintf(path, sizeof(path), "%s/%s", group, usage_file);
	if (!read_number(path, "", &used))
		return;
	snprintf(path, sizeof(path), "%s/%s", group, limit_file);
	if (read_number(path, "", &most))
		lower(limit, most > used ? most - used : 0, path);
}

/* The group and all above it, up to the mount point (the first `root_length` characters). */
static void read_groups(
	char *group, size_t root_length, const char *limit_file, const char *usage_file, struct l1_limit *limit)
{
	for (;;) {
		char *slash;

		read_group(group, limit_file, usage_file, limit);
		slash = strrchr(group, '/');
		if (strlen(group) <= root_length || !slash)
			return;
		*slash = '\0';
	}
}

/* A line of /proc/self/cgroup: "0::/path" (version 2), or "9:memory:/path" (version 1). */
static void read_line(const char *root, char *line, struct l1_limit *limit)
{
	char group[PATH_MAX];
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;
	int root_length;

	if (!path)
		return;
	*path++ = '\0';
	path[strcspn(path, "\n")] = '\0';
	if (controllers[1] == '\0') {
		root_length = snprintf(group, sizeof(group), "%s/sys/fs/cgroup", root);
		snprintf(group + root_length, sizeof(group) - (size_t)root_length, "%s", path);
		read_groups(group, (size_t)root_length, "memory.max", "memory.current", limit);
	} else if (strstr(controllers, "memory")) {
		root_length = snprintf(group, sizeof(group), "%s/sys/fs/cgroup/memory", root);
		snprintf(group + root_length, sizeof(group) - (size_t)root_length, "%s", path);
		read_groups(group, (size_t)root_length, "memory.limit_in_bytes", "memory.usage_in_bytes", limit);
	}
}

void l1_limit_read(const char *root, struct l1_limit *limit)
{
	char path[PATH_MAX];
	char line[1024];
	uint64_t kilobytes;
	FILE *file;

	limit->bytes = UINT64_MAX;
	snprintf(limit->name, sizeof(limit->name), "none");
	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	if (read_number(path, "MemAvailable:", &kilobytes))
		lower(limit, kilobytes * 1024, "MemAvailable of /proc/meminfo");
	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	file = fopen(path, "re");
	if (!file)
		return;
	while (fgets(line, sizeof(line), file))
		read_line(root, line, limit);
	fclose(file);
}
