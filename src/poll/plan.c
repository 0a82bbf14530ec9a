/* plan.c - makes a plan step by step; each step is a file. */
#include "poll/plan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "poll/plan_private.h"

void plan_warn(struct plan *plan, const char *format, ...)
{
	va_list arguments;

	if (plan->warning_count == PLAN_WARNINGS_MAX) {
		plan->warnings_dropped++;
		return;
	}
	va_start(arguments, format);
	vsnprintf(plan->warnings[plan->warning_count++], PLAN_WARNING, format, arguments);
	va_end(arguments);
}

int plan_nearest(const struct machine *machine, uint64_t nodes, uint32_t to, uint32_t *distance)
{
	int best = -1;

	*distance = UINT32_MAX;
	for (uint32_t i = 0; i < machine->node_count; i++) {
		if ((nodes >> i & 1) && machine_distance(machine, i, to) < *distance) {
			*distance = machine_distance(machine, i, to);
			best = (int)i;
		}
	}
	return best;
}

/* A common mistake: isolcpus takes processors out of every process' affinity, and nobody gives them back to this one. */
static void warn_unused_isolation(const struct planner *planner)
{
	const struct machine *machine = planner->machine;
	int list[MACHINE_CPUS_MAX];
	struct text text = { NULL, 0, 0, false };
	uint32_t count = 0;

	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		if (machine->cpus[i].isolated && !machine->cpus[i].allowed)
			list[count++] = machine->cpus[i].number;
	}
	if (count == 0)
		return;
	machine_list(&text, list, count);
	plan_warn(planner->plan,
		"processors %.80s are isolated but not in this process' affinity: start it with them, as by taskset -c or "
		"CPUAffinity=",
		text.bytes ? text.bytes : "");
	text_fini(&text);
}

static bool given_are_allowed(const struct machine *machine, const struct plan_options *options)
{
	for (uint32_t i = 0; options->given && i < options->given_count; i++) {
		int found = machine_find_cpu(machine, options->given[i]);

		if (found < 0 || !machine->cpus[found].allowed)
			return false;
	}
	return options->given_count <= PLAN_POLL_CORES_MAX + 1;
}

int plan_make(const struct machine *machine, const struct plan_options *options, struct plan *plan)
{
	struct planner planner;
	uint32_t allowed = 0;

	memset(&planner, 0, sizeof(planner));
	memset(plan, 0, sizeof(*plan));
	plan->management_core = -1;
	planner.machine = machine;
	planner.options = options;
	planner.plan = plan;
	for (uint32_t i = 0; i < machine->cpu_count; i++)
		allowed += machine->cpus[i].allowed;
	if (allowed == 0 || !given_are_allowed(machine, options))
		return -EINVAL;
	plan_rails(&planner);
	plan_cores(&planner);
	plan_memory(&planner);
	plan_gpus(&planner);
	warn_unused_isolation(&planner);
	return 0;
}

/* One "name=value". */
static int parse_option(const char *name, const char *value, struct plan_options *options, struct machine_error *error)
{
	uint64_t number = 0;
	int why;

	if (strcmp(name, "l1") == 0) {
		if (text_parse_size(value, &options->l1_bytes) == 0)
			return 0;
		snprintf(error->text, sizeof(error->text), "l1=%.60s is no size, as 64GiB", value);
		return -EINVAL;
	}
	why = text_parse_u64(value, &number);
	if (why || number > PLAN_POLL_CORES_MAX) {
		snprintf(error->text, sizeof(error->text), "%.60s=%.60s is no number from 0 to %d", name, value,
			PLAN_POLL_CORES_MAX);
		return -EINVAL;
	}
	if (strcmp(name, "rails") == 0)
		options->rails = (uint32_t)number;
	else if (strcmp(name, "cores") == 0)
		options->cores = (uint32_t)number;
	else if (strcmp(name, "local") == 0)
		options->local = number != 0;
	else {
		snprintf(error->text, sizeof(error->text), "%.60s is none of rails, cores, l1, local", name);
		return -EINVAL;
	}
	return 0;
}

int plan_parse_options(const char *text, struct plan_options *options, struct machine_error *error)
{
	struct plan_options read = *options;
	char copy[128];
	char *rest = copy;
	int why = 0;

	if (strlen(text) >= sizeof(copy)) {
		snprintf(error->text, sizeof(error->text), "longer than any rails=N,cores=N,l1=SIZE");
		return -EINVAL;
	}
	text_copy(copy, sizeof(copy), text);
	while (!why && *rest) {
		char *name = rest;
		size_t length = strcspn(rest, ",");
		char *value;

		rest += length + (rest[length] == ',');
		name[length] = '\0';
		value = strchr(name, '=');
		if (value)
			*value++ = '\0';
		why = parse_option(name, value ? value : "", &read, error);
	}
	if (!why)
		*options = read;
	return why;
}
