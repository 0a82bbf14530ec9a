/* machine_live.c - what hwloc does not tell: /proc and /sys. A file that is not there leaves its fact unknown. */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "poll/machine_private.h"

#define PATH_BYTES 512

/* The first line of a file below root, without its end; false: none. */
static bool read_line(char *line, size_t size, const char *format, ...) KVR_PRINTF(3, 4);

static bool read_line(char *line, size_t size, const char *format, ...)
{
	char path[PATH_BYTES];
	va_list arguments;
	FILE *file;
	bool good;

	va_start(arguments, format);
	good = vsnprintf(path, sizeof(path), format, arguments) < (int)sizeof(path);
	va_end(arguments);
	file = good ? fopen(path, "re") : NULL;
	good = file && fgets(line, (int)size, file);
	if (file)
		fclose(file);
	if (good)
		line[strcspn(line, "\n")] = '\0';
	return good;
}

static void add_cpu_flags(struct machine *machine, const char *root)
{
	int list[MACHINE_CPUS_MAX];
	char line[4096];

	for (int which = 0; which < 2; which++) {
		int count = read_line(line, sizeof(line), "%s/sys/devices/system/cpu/%s", root,
				    which ? "nohz_full" : "isolated")
			? cores_parse(line, list, MACHINE_CPUS_MAX)
			: 0;

		for (int i = 0; i < count; i++) {
			int found = machine_find_cpu(machine, list[i]);

			if (found >= 0 && which)
				machine->cpus[found].nohz_full = true;
			else if (found >= 0)
				machine->cpus[found].isolated = true;
		}
	}
}

static void add_thp(struct machine *machine, const char *root)
{
	char line[128];

	if (!read_line(line, sizeof(line), "%s/sys/kernel/mm/transparent_hugepage/enabled", root))
		return;
	machine->thp = strstr(line, "[always]") ? MACHINE_THP_ALWAYS
		: strstr(line, "[madvise]")     ? MACHINE_THP_MADVISE
		: strstr(line, "[never]")       ? MACHINE_THP_NEVER
						: MACHINE_THP_UNKNOWN;
}

/* node7/hugepages/hugepages-2048kB/{nr,free}_hugepages */
static void add_huge_pages(struct machine_node *node, const char *root)
{
	char path[PATH_BYTES], line[64];
	const struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%d/hugepages", root, node->number);
	folder = opendir(path);
	while (folder && (entry = readdir(folder)) != NULL) {
		uint64_t total, kib, free_pages;

		if (strncmp(entry->d_name, "hugepages-", 10) != 0)
			continue;
		kib = strtoull(entry->d_name + 10, NULL, 10);
		if (kib < 128 || kib > 1U << 30 ||
			!read_line(line, sizeof(line), "%s/%s/nr_hugepages", path, entry->d_name))
			continue;
		total = strtoull(line, NULL, 10);
		if (!read_line(line, sizeof(line), "%s/%s/free_hugepages", path, entry->d_name))
			continue;
		free_pages = strtoull(line, NULL, 10);
		machine_set_huge(node, kib * 1024, total, kvr_min_u64(free_pages, total));
	}
	if (folder)
		closedir(folder);
}

/* "Mems_allowed_list: 0-1": where memory may be had (pitfalls M07). */
static void add_allowed_nodes(struct machine *machine, const char *root)
{
	char path[PATH_BYTES], line[1024];
	int list[MACHINE_CPUS_MAX];
	bool allowed[MACHINE_NODES_MAX] = { false };
	int count = -1;
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/self/status", root);
	file = fopen(path, "re");
	while (file && count < 0 && fgets(line, sizeof(line), file)) {
		if (strncmp(line, "Mems_allowed_list:", 18) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		count = cores_parse(line + 18 + strspn(line + 18, " \t"), list, MACHINE_CPUS_MAX);
	}
	if (file)
		fclose(file);
	if (count < 0)
		return;
	for (int i = 0; i < count; i++) {
		int found = machine_find_node(machine, list[i]);

		if (found >= 0)
			allowed[found] = true;
	}
	for (uint32_t i = 0; i < machine->node_count; i++)
		machine->nodes[i].allowed &= allowed[i];
}

/* The strictest of all groups counts. */
static void limit_processors(struct machine *machine, unsigned long long quota, unsigned long long period)
{
	uint32_t millis;

	if (quota == 0 || period == 0 || quota / period >= 100000)
		return;
	millis = (uint32_t)(quota / period * 1000 + quota % period * 1000 / period);
	if (millis && (machine->quota_millis == 0 || millis < machine->quota_millis))
		machine->quota_millis = millis;
}

static void limit_memory(struct machine *machine, unsigned long long bytes)
{
	/* "No limit" of version 1 is a number near the largest one. */
	if (bytes && bytes < 1ULL << 62 && (machine->memory_limit_bytes == 0 || bytes < machine->memory_limit_bytes))
		machine->memory_limit_bytes = bytes;
}

/* The limits of one control group of version 2, "200000 100000" or "max 100000", or of version 1, which has a file for each number
 * and -1 for none. */
static void add_group_limits(struct machine *machine, const char *folder)
{
	char line[128], period[128], *end;
	unsigned long long quota;

	if (read_line(line, sizeof(line), "%s/cpu.max", folder) && line[0] != 'm') {
		quota = strtoull(line, &end, 10);
		limit_processors(machine, quota, strtoull(end, NULL, 10));
	}
	if (read_line(line, sizeof(line), "%s/cpu.cfs_quota_us", folder) && line[0] != '-' &&
		read_line(period, sizeof(period), "%s/cpu.cfs_period_us", folder))
		limit_processors(machine, strtoull(line, NULL, 10), strtoull(period, NULL, 10));
	if (read_line(line, sizeof(line), "%s/memory.max", folder) && line[0] != 'm')
		limit_memory(machine, strtoull(line, NULL, 10));
	if (read_line(line, sizeof(line), "%s/memory.limit_in_bytes", folder))
		limit_memory(machine, strtoull(line, NULL, 10));
}

/* A group and all above it. In a container the mounted root is the container's group, whatever the path says. */
static void add_limits_up(struct machine *machine, const char *root, const char *mount, const char *path)
{
	char folder[PATH_BYTES];
	size_t base = (size_t)snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s", root, mount);
	char *slash;

	if (base + strlen(path) >= sizeof(folder))
		return;
	if (path[0] == '/' && path[1])
		text_copy(folder + base, sizeof(folder) - base, path);
	for (;;) {
		add_group_limits(machine, folder);
		slash = strrchr(folder + base, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

static bool has_controller(const char *list, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
			return true;
	}
	return false;
}

/* Lines "hierarchy:controllers:path"; version 2 has hierarchy 0 and no controllers. */
static void add_limits(struct machine *machine, const char *root)
{
	char path[PATH_BYTES], line[PATH_BYTES];
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;

		line[strcspn(line, "\n")] = '\0';
		if (!group)
			continue;
		*group++ = '\0';
		controllers++;
		if (controllers[0] == '\0')
			add_limits_up(machine, root, "", group);
		if (has_controller(controllers, "cpu"))
			add_limits_up(machine, root, "/cpu", group);
		if (has_controller(controllers, "memory"))
			add_limits_up(machine, root, "/memory", group);
	}
	if (file)
		fclose(file);
}

/* "16.0 GT/s PCIe", and a number of lanes. */
static void read_link(const char *root, const char *pci, const char *which, struct machine_link *link)
{
	char line[64];

	if (read_line(line, sizeof(line), "%s/sys/bus/pci/devices/%s/%s_link_width", root, pci, which))
		link->lanes = (uint32_t)kvr_min_u64(strtoul(line, NULL, 10), 64);
	if (read_line(line, sizeof(line), "%s/sys/bus/pci/devices/%s/%s_link_speed", root, pci, which))
		link->gt_per_s = strtod(line, NULL);
	if (!(link->gt_per_s >= 0 && link->gt_per_s < 1024) || link->lanes == 0)
		memset(link, 0, sizeof(*link));
}

/* "4: ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand". */
static void add_ports(struct machine_nic *nic, const char *root)
{
	char line[64];

	nic->port_count = 0;
	for (uint32_t number = 1; number <= MACHINE_PORTS_MAX; number++) {
		struct machine_port port = { number, false, 0 };

		if (!read_line(
			    line, sizeof(line), "%s/sys/class/infiniband/%s/ports/%u/state", root, nic->name, number))
			return;
		port.up = line[0] == '4';
		if (read_line(line, sizeof(line), "%s/sys/class/infiniband/%s/ports/%u/rate", root, nic->name, number))
			port.gbits = (uint32_t)kvr_min_u64(strtoul(line, NULL, 10), 100000);
		if (read_line(line, sizeof(line), "%s/sys/class/infiniband/%s/ports/%u/link_layer", root, nic->name,
			    number) &&
			nic->kind != MACHINE_SOFT_ROCE)
			nic->kind = strcmp(line, "InfiniBand") == 0 ? MACHINE_INFINIBAND : MACHINE_ROCE;
		nic->ports[nic->port_count++] = port;
	}
}

static int find_netdev(const struct machine *machine, const char *netdev)
{
	for (uint32_t i = 0; i < machine->nic_count; i++) {
		if (strcmp(machine->nics[i].netdev, netdev) == 0)
			return (int)i;
	}
	return -1;
}

/* A device without hardware of its own is where its network interface is. */
static void place_soft_device(struct machine *machine, struct machine_nic *nic, const char *root)
{
	char parent[MACHINE_NAME] = "", line[64];
	int found;

	if (!read_line(
		    parent, sizeof(parent), "%s/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/0", root, nic->name) &&
		!read_line(parent, sizeof(parent), "%s/sys/class/infiniband/%s/parent", root, nic->name))
		return;
	found = find_netdev(machine, parent);
	nic->kind = MACHINE_SOFT_ROCE;
	text_copy(nic->netdev, sizeof(nic->netdev), parent);
	if (found >= 0) {
		const struct machine_nic *below = &machine->nics[found];

		text_copy(nic->pci, sizeof(nic->pci), below->pci);
		nic->nodes = below->nodes;
		nic->above = below->above;
	} else if (read_line(line, sizeof(line), "%s/sys/class/net/%s/device/numa_node", root, parent)) {
		found = machine_find_node(machine, (int)strtol(line, NULL, 10));
		nic->nodes = found >= 0 ? 1ULL << found : 0;
	}
}

static void add_rdma_devices(struct machine *machine, const char *root)
{
	char path[PATH_BYTES];
	struct dirent **entries = NULL;
	int count;

	snprintf(path, sizeof(path), "%s/sys/class/infiniband", root);
	count = scandir(path, &entries, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		struct machine_nic *nic;
		bool is_new;

		if (entries[i]->d_name[0] != '.' && strlen(entries[i]->d_name) < MACHINE_NAME) {
			is_new = machine_find_nic(machine, entries[i]->d_name) < 0;
			nic = machine_have_nic(machine, entries[i]->d_name);
			if (nic && is_new) {
				nic->kind = MACHINE_ROCE;
				place_soft_device(machine, nic, root);
			}
			if (nic)
				add_ports(nic, root);
		}
		free(entries[i]);
	}
	free(entries);
}

void machine_add_live_facts(struct machine *machine, const char *root)
{
	add_cpu_flags(machine, root);
	add_thp(machine, root);
	for (uint32_t i = 0; i < machine->node_count; i++)
		add_huge_pages(&machine->nodes[i], root);
	add_allowed_nodes(machine, root);
	add_limits(machine, root);
	add_rdma_devices(machine, root);
	for (uint32_t i = 0; i < machine->nic_count; i++) {
		struct machine_nic *nic = &machine->nics[i];

		if (!nic->pci[0])
			continue;
		read_link(root, nic->pci, "current", &nic->link);
		read_link(root, nic->pci, "max", &nic->link_max);
		if (nic->link.lanes)
			nic->link_gbits = 0;
	}
}
