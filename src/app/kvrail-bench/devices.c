#include "app/kvrail-bench/devices.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "poll/machine.h"

/* The lowest of a mask of nodes, by its number; -1: none. */
static int first_node(const struct machine *machine, uint64_t nodes)
{
	for (uint32_t i = 0; i < machine->node_count; i++) {
		if (nodes >> i & 1)
			return machine->nodes[i].number;
	}
	return -1;
}

struct writer {
	struct text *out;
	bool json;
	uint32_t count;
};

static void device(struct writer *writer, const char *kind, const char *name, const char *details, int node)
{
	struct text *out = writer->out;

	text_append(out, "%s", writer->count++ ? ", " : "");
	if (!writer->json) {
		text_append(out, "%s %s%s%s", kind, name, details[0] ? " " : "", details);
		return;
	}
	text_append(out, "{\"kind\": \"%s\", \"name\": ", kind);
	text_append_json_string(out, name);
	text_append(out, ", \"details\": ");
	text_append_json_string(out, details);
	text_append(out, ", \"numa_node\": %d}", node);
}

static void nic(struct writer *writer, const struct machine *machine, const struct machine_nic *nic)
{
	static const char *const kinds[] = { "ethernet", "soft-RoCE", "RoCE", "InfiniBand" };
	char details[160];
	int length = snprintf(details, sizeof(details), "%s", kinds[nic->kind]);

	for (uint32_t i = 0; i < nic->port_count && length < (int)sizeof(details) - 40; i++)
		length += snprintf(details + length, sizeof(details) - (size_t)length, ", port %u %s %u Gbit/s",
			nic->ports[i].number, nic->ports[i].up ? "up" : "down", nic->ports[i].gbits);
	if (nic->pci[0] && length < (int)sizeof(details) - 20)
		snprintf(details + length, sizeof(details) - (size_t)length, ", %s", nic->pci);
	device(writer, nic->kind == MACHINE_ETHERNET ? "network" : "rdma", nic->name, details,
		first_node(machine, nic->nodes));
}

/* The first line of a file below /sys/block, without its end and the blanks before it; "" when there is none. */
static void read_block(const char *disk, const char *file, char *value, size_t size)
{
	char path[300];
	FILE *stream;

	value[0] = '\0';
	snprintf(path, sizeof(path), "/sys/block/%.200s/%s", disk, file);
	stream = fopen(path, "re");
	if (!stream)
		return;
	if (!fgets(value, (int)size, stream))
		value[0] = '\0';
	fclose(stream);
	value[strcspn(value, "\n")] = '\0';
	for (size_t end = strlen(value); end > 0 && value[end - 1] == ' '; end--)
		value[end - 1] = '\0';
}

static void disk(struct writer *writer, const char *name)
{
	char model[64], rotational[8], node[16], details[100];

	read_block(name, "device/model", model, sizeof(model));
	read_block(name, "queue/rotational", rotational, sizeof(rotational));
	read_block(name, "device/numa_node", node, sizeof(node));
	if (!node[0])
		read_block(name, "device/device/numa_node", node, sizeof(node));
	snprintf(details, sizeof(details), "%s%s%s", model, model[0] && rotational[0] == '1' ? ", " : "",
		rotational[0] == '1' ? "said to rotate" : "");
	device(writer, "disk", name, details, node[0] ? (int)strtol(node, NULL, 10) : -1);
}

/* What has a device behind it: no loops, no memory, no mappings of others. */
static int has_device(const struct dirent *entry)
{
	char path[300];
	DIR *folder;

	if (entry->d_name[0] == '.')
		return 0;
	snprintf(path, sizeof(path), "/sys/block/%.200s/device", entry->d_name);
	folder = opendir(path);
	if (folder)
		closedir(folder);
	return folder != NULL;
}

static void disks(struct writer *writer)
{
	struct dirent **entries;
	int count = scandir("/sys/block", &entries, has_device, alphasort);

	for (int i = 0; i < count; i++) {
		disk(writer, entries[i]->d_name);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

static void all(struct writer *writer)
{
	struct machine_error error;
	struct machine *machine = machine_read_live(&error);

	for (uint32_t i = 0; machine && i < machine->nic_count; i++)
		nic(writer, machine, &machine->nics[i]);
	for (uint32_t i = 0; machine && i < machine->gpu_count; i++) {
		const struct machine_gpu *gpu = &machine->gpus[i];
		char details[80];

		snprintf(details, sizeof(details), "%s%s%s", gpu->model, gpu->model[0] && gpu->pci[0] ? ", " : "",
			gpu->pci);
		device(writer, "gpu", gpu->name, details, first_node(machine, gpu->nodes));
	}
	machine_free(&machine);
	disks(writer);
}

void devices_append_json(struct text *out)
{
	struct writer writer = { out, true, 0 };

	text_append(out, "\"devices\": [");
	all(&writer);
	text_append(out, "]");
}

void devices_append_words(struct text *out)
{
	struct writer writer = { out, false, 0 };

	all(&writer);
	if (!writer.count)
		text_append(out, "none known");
}

/* ---- where threads may run ---- */

static bool cpus_of(const struct machine *machine, const char *list, bool node_wanted[MACHINE_NODES_MAX])
{
	bool any = false;

	for (const char *at = list; *at;) {
		char *end;
		unsigned long first = strtoul(at, &end, 10), last = first;

		if (end == at)
			break;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (uint32_t i = 0; i < machine->cpu_count; i++) {
			const struct machine_cpu *cpu = &machine->cpus[i];

			if ((unsigned long)cpu->number >= first && (unsigned long)cpu->number <= last) {
				node_wanted[cpu->node] = true;
				any = true;
			}
		}
		at = *end == ',' ? end + 1 : end + strlen(end);
	}
	return any;
}

/* "cores": "0-3", "numa_nodes": "0", of a file "status" of the kernel; name: where the thread's is wanted. False: no such file. */
static bool read_status(const char *path, char *name, size_t name_size, char *cores, size_t cores_size)
{
	FILE *file = fopen(path, "re");
	char line[512];

	if (!file)
		return false;
	cores[0] = '\0';
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "Cpus_allowed_list:", 18) == 0)
			text_copy(cores, cores_size, line + 18 + strspn(line + 18, " \t"));
		else if (name && strncmp(line, "Name:", 5) == 0)
			text_copy(name, name_size, line + 5 + strspn(line + 5, " \t"));
	}
	fclose(file);
	return true;
}

static void append_cores(const struct machine *machine, const char *cores, struct text *out)
{
	bool wanted[MACHINE_NODES_MAX] = { false };
	int nodes[MACHINE_NODES_MAX];
	uint32_t count = 0;

	text_append(out, "\"cores\": ");
	text_append_json_string(out, cores);
	text_append(out, ", \"numa_nodes\": ");
	if (!machine || !cpus_of(machine, cores, wanted)) {
		text_append(out, "null");
		return;
	}
	for (uint32_t i = 0; i < machine->node_count; i++) {
		if (wanted[i])
			nodes[count++] = machine->nodes[i].number;
	}
	text_append(out, "\"");
	machine_list(out, nodes, count);
	text_append(out, "\"");
}

static int is_number(const struct dirent *entry)
{
	return entry->d_name[0] >= '0' && entry->d_name[0] <= '9';
}

static void append_threads(const struct machine *machine, uint64_t pid, struct text *out)
{
	struct dirent **entries;
	char folder[64];
	int count;
	bool first = true;

	snprintf(folder, sizeof(folder), "/proc/%llu/task", (unsigned long long)pid);
	count = scandir(folder, &entries, is_number, versionsort);
	text_append(out, count < 0 ? "null" : "[");
	for (int i = 0; i < count; i++) {
		char path[400], name[64] = "", cores[128];

		snprintf(path, sizeof(path), "%s/%.200s/status", folder, entries[i]->d_name);
		if (read_status(path, name, sizeof(name), cores, sizeof(cores))) {
			text_append(out, "%s{\"thread\": ", first ? "" : ", ");
			text_append_json_string(out, name);
			text_append(out, ", ");
			append_cores(machine, cores, out);
			text_append(out, "}");
			first = false;
		}
		free(entries[i]);
	}
	if (count < 0)
		return;
	free(entries);
	text_append(out, "]");
}

void placement_append_json(uint64_t server_pid, struct text *out)
{
	struct machine_error error;
	struct machine *machine = machine_read_live(&error);
	char cores[128];

	if (!read_status("/proc/self/status", NULL, 0, cores, sizeof(cores)))
		cores[0] = '\0';
	text_append(out, "\"placement\": {");
	append_cores(machine, cores, out);
	text_append(out, ", \"server\": ");
	if (server_pid)
		append_threads(machine, server_pid, out);
	else
		text_append(out, "null");
	text_append(out, "}");
	machine_free(&machine);
}
