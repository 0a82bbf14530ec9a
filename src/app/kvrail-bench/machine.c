#include "app/kvrail-bench/machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define CACHE_UNKNOWN ((uint64_t)32 << 20)

/* The value behind "name :" or "name:" of the first line that begins so; false: none. */
static bool read_line_of(const char *path, const char *name, char *value, size_t size)
{
	FILE *file = fopen(path, "re");
	char line[512];
	bool found = false;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		char *colon = strchr(line, ':');

		if (!colon || strncmp(line, name, strlen(name)) != 0)
			continue;
		colon += 1 + strspn(colon + 1, " \t");
		colon[strcspn(colon, "\n")] = '\0';
		text_copy(value, size, colon);
		found = true;
	}
	fclose(file);
	return found;
}

static uint64_t memory_of(const char *name)
{
	char value[64];

	/* kibibytes */
	return read_line_of("/proc/meminfo", name, value, sizeof(value)) ? strtoull(value, NULL, 10) << 10 : 0;
}

/* Of the highest level that the system lists for its first core. */
static uint64_t cache_bytes(void)
{
	uint64_t bytes = 0;

	for (unsigned index = 0; index < 8; index++) {
		char path[80], value[32] = "";
		uint64_t size = 0;
		FILE *file;

		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%u/size", index);
		file = fopen(path, "re");
		if (!file)
			break;
		if (fgets(value, sizeof(value), file)) {
			value[strcspn(value, "\n")] = '\0';
			if (text_parse_size(value, &size) == 0)
				bytes = kvr_max_u64(bytes, size);
		}
		fclose(file);
	}
	return bytes ? bytes : CACHE_UNKNOWN;
}

static bool virtual_machine(void)
{
	char flags[512];
	FILE *file = fopen("/sys/hypervisor/type", "re");

	if (file) {
		fclose(file);
		return true;
	}
	return read_line_of("/proc/cpuinfo", "flags", flags, sizeof(flags)) && strstr(flags, " hypervisor");
}

void machine_read(struct machine *machine)
{
	struct utsname name;
	cpu_set_t cores;

	memset(machine, 0, sizeof(*machine));
	if (!read_line_of("/proc/cpuinfo", "model name", machine->processor, sizeof(machine->processor)))
		text_copy(machine->processor, sizeof(machine->processor), "unknown");
	if (uname(&name) == 0)
		snprintf(machine->kernel, sizeof(machine->kernel), "%.40s %.36s", name.release, name.machine);
	snprintf(machine->compiler, sizeof(machine->compiler), "%.60s", __VERSION__);
	machine->cores = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? (uint32_t)CPU_COUNT(&cores) : 1;
	machine->cache_bytes = cache_bytes();
	machine->memory_bytes = memory_of("MemTotal");
	machine->available_bytes = memory_of("MemAvailable");
	machine->virtual_machine = virtual_machine();
#ifdef KVRAIL_FAULT_POINTS
	machine->debug = true;
#endif
}

uint64_t machine_working_set(const struct machine *machine, uint32_t shares)
{
	uint64_t limit = machine->available_bytes / 8 / (shares ? shares : 1);

	return kvr_min_u64(10 * machine->cache_bytes, kvr_max_u64(limit, (uint64_t)16 << 20));
}

void machine_append_json(const struct machine *machine, struct text *out)
{
	text_append(out, "\"processor\": ");
	text_append_json_string(out, machine->processor);
	text_append(out, ", \"kernel\": ");
	text_append_json_string(out, machine->kernel);
	text_append(out, ", \"compiler\": ");
	text_append_json_string(out, machine->compiler);
	text_append(out,
		", \"cores\": %u, \"cache_bytes\": %llu, \"memory_bytes\": %llu, \"virtual\": %s, \"build\": \"%s\"",
		machine->cores, (unsigned long long)machine->cache_bytes, (unsigned long long)machine->memory_bytes,
		machine->virtual_machine ? "true" : "false", machine->debug ? "debug" : "release");
}

void machine_append_warnings(const struct machine *machine, struct text *out)
{
	if (machine->debug)
		text_append(out, "  note: a debug build; figures of it say nothing about speed\n");
	if (machine->cores < 2)
		text_append(out, "  note: one core for client and server: both wait for each other\n");
	else if (machine->virtual_machine)
		text_append(out,
			"  note: a virtual machine; its neighbours are in the figures, the ratios are what to "
			"look at\n");
}
