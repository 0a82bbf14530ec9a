#include "app/kvrail-bench/machine.h"
#include "app/kvrail-bench/devices.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"

#define LINE_BYTES 8192 /* a processor's flags take some thousand */
#define CACHE_UNKNOWN ((uint64_t)32 << 20)

/* The value behind "name :" or "name:" of the first line that begins so; false: none. */
static bool read_line_of(const char *path, const char *name, char *value, size_t size)
{
	FILE *file = fopen(path, "re");
	char line[LINE_BYTES];
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
	char flags[LINE_BYTES];
	FILE *file = fopen("/sys/hypervisor/type", "re");

	if (file) {
		fclose(file);
		return true;
	}
	return read_line_of("/proc/cpuinfo", "flags", flags, sizeof(flags)) && strstr(flags, " hypervisor");
}

/* The first line of a file, without its end; "" when there is none. */
static void read_first_line(const char *path, char *value, size_t size)
{
	char line[256] = "";
	FILE *file = fopen(path, "re");

	if (file && !fgets(line, sizeof(line), file))
		line[0] = '\0';
	if (file)
		fclose(file);
	line[strcspn(line, "\n")] = '\0';
	text_copy(value, size, line);
}

/* Of "always [madvise] never" what stands in brackets. */
static void read_huge_pages(char *value, size_t size)
{
	char line[64], *open;

	read_first_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line));
	open = strchr(line, '[');
	if (open)
		open[strcspn(open, "]")] = '\0';
	text_copy(value, size, open ? open + 1 : "");
}

static void read_numa(char *value, size_t size)
{
	char online[32], allowed[64];
	unsigned long first, last;
	char *end;

	read_first_line("/sys/devices/system/node/online", online, sizeof(online));
	first = strtoul(online, &end, 10);
	last = *end == '-' ? strtoul(end + 1, NULL, 10) : first;
	if (last <= first) {
		text_copy(value, size, online[0] ? "1 node" : "unknown");
		return;
	}
	if (!read_line_of("/proc/self/status", "Mems_allowed_list", allowed, sizeof(allowed)))
		text_copy(allowed, sizeof(allowed), "all");
	snprintf(value, size, "%lu nodes, memory of %.32s", last - first + 1, allowed);
}

/* Cores of the set whose physical core has another thread, with a lower number, in the set as well. */
static uint32_t count_siblings(const cpu_set_t *cores)
{
	uint32_t count = 0;

	for (unsigned core = 0; core < CPU_SETSIZE; core++) {
		char path[96], list[32];

		if (!CPU_ISSET(core, cores))
			continue;
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", core);
		read_first_line(path, list, sizeof(list));
		if (list[0]) {
			unsigned long first = strtoul(list, NULL, 10);

			count += first < core && CPU_ISSET(first, cores);
		}
	}
	return count;
}

/* Of the control group as this process sees it: "max 100000", or microseconds that it may run in each period of so many. */
static double quota_cores(void)
{
	char line[64], *end;
	double quota, period;

	read_first_line("/sys/fs/cgroup/cpu.max", line, sizeof(line));
	quota = strtod(line, &end);
	period = end == line ? 0 : strtod(end, NULL);
	return quota > 0 && period > 0 ? quota / period : 0;
}

static double load_average(void)
{
	double minute = 0;

	return getloadavg(&minute, 1) == 1 ? minute : 0;
}

enum { BEGIN_NS, BEGIN_TICKS, BEGIN_STEAL, BEGIN_PREEMPTED };

static void read_pressure(uint64_t now[4])
{
	struct rusage usage;
	char line[256], *at = line + strlen("cpu");

	memset(now, 0, 4 * sizeof(*now));
	now[BEGIN_NS] = clock_now_ns();
	read_first_line("/proc/stat", line, sizeof(line));
	/* "cpu  user nice system idle iowait irq softirq steal ..." */
	for (unsigned i = 0; line[0] && i < 8; i++) {
		now[BEGIN_STEAL] = strtoull(at, &at, 10);
		now[BEGIN_TICKS] += now[BEGIN_STEAL];
	}
	now[BEGIN_PREEMPTED] = getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_nivcsw : 0;
}

static void read_system(struct machine *machine)
{
	char value[64];
	cpu_set_t cores;

	CPU_ZERO(&cores);
	machine->cores = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? (uint32_t)CPU_COUNT(&cores) : 1;
	machine->siblings = count_siblings(&cores);
	if (read_line_of("/proc/cpuinfo", "cpu MHz", value, sizeof(value)))
		machine->mhz = (uint32_t)strtod(value, NULL);
	read_first_line(
		"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", machine->governor, sizeof(machine->governor));
	read_first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", machine->clock,
		sizeof(machine->clock));
	read_huge_pages(machine->huge_pages, sizeof(machine->huge_pages));
	read_numa(machine->numa, sizeof(machine->numa));
	machine->cache_bytes = cache_bytes();
	machine->memory_bytes = memory_of("MemTotal");
	machine->available_bytes = memory_of("MemAvailable");
	machine->virtual_machine = virtual_machine();
	machine->load_average = load_average();
	machine->quota_cores = quota_cores();
}

void machine_read(struct machine *machine)
{
	struct utsname name;

	memset(machine, 0, sizeof(*machine));
	if (!read_line_of("/proc/cpuinfo", "model name", machine->processor, sizeof(machine->processor)))
		text_copy(machine->processor, sizeof(machine->processor), "unknown");
	if (uname(&name) == 0) {
		snprintf(machine->kernel, sizeof(machine->kernel), "%.40s %.36s", name.release, name.machine);
		text_copy(machine->host, sizeof(machine->host), name.nodename);
	}
	snprintf(machine->compiler, sizeof(machine->compiler), "%.60s", __VERSION__);
	text_copy(machine->commit, sizeof(machine->commit), machine_commit);
	read_system(machine);
#if defined(KVRAIL_FAULT_POINTS) || !defined(__OPTIMIZE__)
	machine->debug = true;
#endif
	read_pressure(machine->begin);
}

void machine_finish(struct machine *machine)
{
	uint64_t now[4];
	double seconds;

	read_pressure(now);
	seconds = (double)(now[BEGIN_NS] - machine->begin[BEGIN_NS]) / (double)KVR_SECOND;
	if (now[BEGIN_TICKS] > machine->begin[BEGIN_TICKS])
		machine->steal_percent = 100.0 * (double)(now[BEGIN_STEAL] - machine->begin[BEGIN_STEAL]) /
			(double)(now[BEGIN_TICKS] - machine->begin[BEGIN_TICKS]);
	if (seconds > 0)
		machine->preempted_rate = (double)(now[BEGIN_PREEMPTED] - machine->begin[BEGIN_PREEMPTED]) / seconds;
}

uint64_t machine_working_set(const struct machine *machine, uint32_t shares)
{
	uint64_t limit = machine->available_bytes / 8 / (shares ? shares : 1);

	return kvr_min_u64(10 * machine->cache_bytes, kvr_max_u64(limit, (uint64_t)16 << 20));
}

static void member(struct text *out, const char *name, const char *value)
{
	text_append(out, "\"%s\": ", name);
	text_append_json_string(out, value);
	text_append(out, ", ");
}

void machine_append_json(const struct machine *machine, uint64_t server_pid, struct text *out)
{
	member(out, "processor", machine->processor);
	member(out, "kernel", machine->kernel);
	member(out, "compiler", machine->compiler);
	member(out, "commit", machine->commit);
	member(out, "governor", machine->governor[0] ? machine->governor : "unknown");
	member(out, "numa", machine->numa);
	member(out, "clock", machine->clock);
	member(out, "huge_pages", machine->huge_pages);
	text_append(out,
		"\"cores\": %u, \"sibling_cores\": %u, \"cache_bytes\": %llu, \"memory_bytes\": %llu, "
		"\"virtual\": %s, \"build\": \"%s\", \"load_average\": %.2f, \"steal_percent\": %.2f, "
		"\"preempted_per_second\": %.1f, \"quota_cores\": ",
		machine->cores, machine->siblings, (unsigned long long)machine->cache_bytes,
		(unsigned long long)machine->memory_bytes, machine->virtual_machine ? "true" : "false",
		machine->debug ? "debug" : "release", machine->load_average, machine->steal_percent,
		machine->preempted_rate);
	if (machine->quota_cores > 0)
		text_append(out, "%.3f, ", machine->quota_cores);
	else
		text_append(out, "null, ");
	devices_append_json(out);
	text_append(out, ", ");
	placement_append_json(server_pid, out);
}

/* Others' processes had work for the cores, or the host had. */
#define BUSY_LOAD_PART 0.5
#define BUSY_STEAL_PERCENT 1.0

static void warn_of_others(const struct machine *machine, struct text *out)
{
	if (machine->load_average > machine->cores * BUSY_LOAD_PART)
		text_append(out,
			"  note: other work on this machine: load average %.1f with %u core%s when the run began; only "
			"ratios within one run mean anything\n",
			machine->load_average, machine->cores, machine->cores == 1 ? "" : "s");
	if (machine->steal_percent > BUSY_STEAL_PERCENT)
		text_append(out, "  note: the host took %.1f %% of the cores' time\n", machine->steal_percent);
	if (machine->governor[0] && strcmp(machine->governor, "performance") != 0)
		text_append(out,
			"  note: cores change their frequency (governor %s): `cpupower frequency-set -g performance` "
			"for steady figures\n",
			machine->governor);
}

void machine_append_warnings(const struct machine *machine, uint32_t threads, struct text *out)
{
	if (machine->debug)
		text_append(out, "  note: a debug build; figures of it say nothing about speed\n");
	if (machine->cores < 2)
		text_append(out, "  note: one core for client and server: both wait for each other\n");
	else if (threads > machine->cores)
		text_append(out,
			"  note: %u threads poll on %u cores: latencies hold the time until a thread has its turn\n",
			threads, machine->cores);
	else if (machine->siblings)
		text_append(out,
			"  note: %u of %u cores are second threads of others: two of them share one core's units\n",
			machine->siblings, machine->cores);
	if (machine->quota_cores > 0 && machine->quota_cores < machine->cores)
		text_append(out,
			"  note: a control group grants %.1f of %u cores: whoever polls is stopped when its time is used up "
			"(cpu.max)\n",
			machine->quota_cores, machine->cores);
	if (machine->virtual_machine)
		text_append(out,
			"  note: a virtual machine; its neighbours are in the figures, the ratios are what to "
			"look at\n");
	warn_of_others(machine, out);
}
