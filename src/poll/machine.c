/* machine.c - from where a machine is read, and finding things in it. */
#include "poll/machine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "poll/machine_private.h"

int machine_fail(struct machine_error *error, int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	return code;
}

static struct machine *machine_new(struct machine_error *error)
{
	struct machine *machine = fault_point("machine/memory") ? NULL : calloc(1, sizeof(*machine));

	error->text[0] = '\0';
	if (!machine)
		machine_fail(error, -ENOMEM, "out of memory");
	return machine;
}

void machine_free(struct machine **machine)
{
	free(*machine);
	*machine = NULL;
}

/* hwloc knows what the control group allows; taskset and systemd's CPUAffinity are narrower (pitfalls M01). */
static void allow_by_affinity(struct machine *machine)
{
	int cores[CORES_MAX];
	int count = cores_allowed(cores, CORES_MAX);

	if (count < 0)
		return;
	for (uint32_t i = 0; i < machine->cpu_count; i++)
		machine->cpus[i].allowed = false;
	for (int i = 0; i < count; i++) {
		int found = machine_find_cpu(machine, cores[i]);

		if (found >= 0)
			machine->cpus[found].allowed = true;
	}
}

struct machine *machine_read_live(struct machine_error *error)
{
	struct machine *machine = machine_new(error);

	if (!machine)
		return NULL;
	if (machine_from_hwloc_live(machine, error) != 0) {
		machine_free(&machine);
		return NULL;
	}
	machine_set_name(machine, "this machine");
	machine_add_live_facts(machine, "");
	allow_by_affinity(machine);
	return machine;
}

struct machine *machine_read_text(const char *name, const char *text, size_t length, struct machine_error *error)
{
	struct machine *machine = machine_new(error);

	if (machine && machine_read_lines(machine, name, text, length, false, error) != 0)
		machine_free(&machine);
	return machine;
}

/* A whole file. 0, -errno with *error, -ENOENT among them. */
static int read_whole(const char *path, struct text *out, struct machine_error *error)
{
	char block[4096];
	size_t got;
	int why = 0;
	FILE *file = fopen(path, "re");

	if (!file) {
		why = errno ? errno : EIO;
		machine_fail(error, -why, "%s can't be opened: %s", path, strerror(why));
		return -why;
	}
	while ((got = fread(block, 1, sizeof(block), file)) > 0 && !why) {
		text_append_bytes(out, block, got);
		if (out->failed)
			why = machine_fail(error, -ENOMEM, "%s: out of memory", path);
		else if (out->length > 16 * MACHINE_TEXT_MAX)
			why = machine_fail(error, -EFBIG, "%s is larger than any machine", path);
	}
	if (!why && ferror(file))
		why = machine_fail(error, -EIO, "%s can't be read", path);
	fclose(file);
	return why;
}

void machine_set_name(struct machine *machine, const char *name)
{
	char *at = machine->name;

	text_copy(machine->name, sizeof(machine->name), name + strspn(name, " \t"));
	for (; *at; at++) {
		if (*at < ' ' || *at >= 0x7f || *at == '#')
			*at = '?';
	}
	while (at > machine->name && at[-1] == ' ')
		*--at = '\0';
}

/* What is behind the last '/', without .xml. */
static void name_by_file(struct machine *machine, const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dot;

	machine_set_name(machine, slash ? slash + 1 : path);
	dot = strrchr(machine->name, '.');
	if (dot && dot != machine->name)
		*dot = '\0';
}

static int read_xml(struct machine *machine, const char *path, const struct text *xml, struct machine_error *error)
{
	struct text facts = { NULL, 0, 0, false }, beside = { NULL, 0, 0, false };
	int why = machine_from_hwloc_xml(machine, path, xml->bytes, xml->length, error);

	if (why)
		return why;
	name_by_file(machine, path);
	text_append(&beside, "%s.facts", path);
	why = beside.failed ? machine_fail(error, -ENOMEM, "out of memory") : read_whole(beside.bytes, &facts, error);
	if (why == -ENOENT)
		why = 0;
	else if (!why)
		why = machine_read_lines(
			machine, beside.bytes, facts.bytes ? facts.bytes : "", facts.length, true, error);
	text_fini(&facts);
	text_fini(&beside);
	return why;
}

struct machine *machine_read_file(const char *path, struct machine_error *error)
{
	struct machine *machine = machine_new(error);
	struct text content = { NULL, 0, 0, false };
	int why;

	if (!machine)
		return NULL;
	why = read_whole(path, &content, error);
	if (!why && !content.bytes)
		why = machine_fail(error, -EINVAL, "%s is empty", path);
	else if (!why && content.bytes[strspn(content.bytes, " \t\r\n")] == '<')
		why = read_xml(machine, path, &content, error);
	else if (!why)
		why = machine_read_lines(machine, path, content.bytes, content.length, false, error);
	text_fini(&content);
	if (why)
		machine_free(&machine);
	return machine;
}

int machine_find_cpu(const struct machine *machine, int number)
{
	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		if (machine->cpus[i].number == number)
			return (int)i;
	}
	return -1;
}

int machine_find_node(const struct machine *machine, int number)
{
	for (uint32_t i = 0; i < machine->node_count; i++) {
		if (machine->nodes[i].number == number)
			return (int)i;
	}
	return -1;
}

int machine_find_nic(const struct machine *machine, const char *name)
{
	for (uint32_t i = 0; i < machine->nic_count; i++) {
		if (strcmp(machine->nics[i].name, name) == 0)
			return (int)i;
	}
	return -1;
}

int machine_find_switch(const struct machine *machine, const char *pci)
{
	for (uint32_t i = 0; i < machine->switch_count; i++) {
		if (strcmp(machine->switches[i].pci, pci) == 0)
			return (int)i;
	}
	return -1;
}

struct machine_nic *machine_have_nic(struct machine *machine, const char *name)
{
	int found = machine_find_nic(machine, name);
	struct machine_nic *nic;

	if (found >= 0)
		return &machine->nics[found];
	if (machine->nic_count == MACHINE_NICS_MAX)
		return NULL;
	nic = &machine->nics[machine->nic_count++];
	memset(nic, 0, sizeof(*nic));
	text_copy(nic->name, sizeof(nic->name), name);
	nic->above = -1;
	return nic;
}

void machine_set_huge(struct machine_node *node, uint64_t page_bytes, uint64_t total, uint64_t free_pages)
{
	uint32_t at = 0;

	while (at < node->huge_count && node->huge[at].page_bytes > page_bytes)
		at++;
	if (at == node->huge_count || node->huge[at].page_bytes != page_bytes) {
		if (node->huge_count == MACHINE_HUGE_MAX)
			return;
		memmove(&node->huge[at + 1], &node->huge[at], (node->huge_count - at) * sizeof(node->huge[0]));
		node->huge_count++;
	}
	node->huge[at] = (struct machine_huge){ page_bytes, total, free_pages };
}

static int by_number(const void *left, const void *right)
{
	const struct machine_cpu *a = left, *b = right;

	return (a->number > b->number) - (a->number < b->number);
}

void machine_sort_cpus(struct machine *machine)
{
	int renamed[MACHINE_CPUS_MAX];

	qsort(machine->cpus, machine->cpu_count, sizeof(machine->cpus[0]), by_number);
	for (uint32_t i = 0; i < MACHINE_CPUS_MAX; i++)
		renamed[i] = -1;
	machine->core_count = 0;
	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		int *core = &renamed[machine->cpus[i].core];

		if (*core < 0)
			*core = (int)machine->core_count++;
		machine->cpus[i].core = (uint32_t)*core;
	}
}

uint32_t machine_distance(const struct machine *machine, uint32_t from, uint32_t to)
{
	const struct machine_node *a = &machine->nodes[from], *b = &machine->nodes[to];

	if (machine->distances[from][to])
		return machine->distances[from][to];
	if (from == to)
		return 10;
	return a->package >= 0 && a->package == b->package ? 15 : 20;
}

double machine_link_gbits(const struct machine_link *link)
{
	/* 8b/10b up to 5 GT/s, 128b/130b from 8 on. */
	double code = link->gt_per_s > 5.5 ? 128.0 / 130.0 : 0.8;

	return link->lanes * link->gt_per_s * code;
}

void machine_list(struct text *out, const int *numbers, uint32_t count)
{
	for (uint32_t i = 0; i < count;) {
		uint32_t last = i;

		while (last + 1 < count && numbers[last + 1] == numbers[last] + 1)
			last++;
		text_append(out, last > i ? "%s%d-%d" : "%s%d", i ? "," : "", numbers[i], numbers[last]);
		i = last + 1;
	}
}
