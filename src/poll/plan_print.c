/* plan_print.c - a plan as a table for people and as JSON. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "poll/plan_private.h"

/* "poll  core 2  mlx5_0  node 0: why" with columns of fixed width; longer cells push the next ones. */
static void row(struct text *out, const char *what, const char *where, const char *whom, const char *why)
{
	text_append(out, "  %-8s  %-14s  %-22s  %s\n", what, where, whom, why);
}

static void print_cores(const struct plan *plan, struct text *out)
{
	char where[64], whom[64];
	struct text list = { NULL, 0, 0, false };

	for (uint32_t i = 0; i < plan->poll_count; i++) {
		const struct plan_poll *poll = &plan->polls[i];

		snprintf(where, sizeof(where), "core %d", poll->core);
		if (poll->rail >= 0)
			snprintf(whom, sizeof(whom), "%s", plan->rails[poll->rail].name);
		else
			snprintf(whom, sizeof(whom), "local clients");
		row(out, "poll", where, whom, poll->reason);
	}
	snprintf(where, sizeof(where), "core %d", plan->management_core);
	row(out, "manage", where, "", plan->management_reason);
	machine_list(&list, plan->helpers, plan->helper_count);
	if (list.length > 32) {
		text_append(out, "  %-8s  %s\n", "helpers", list.bytes);
		row(out, "", "", "", plan->helper_reason);
	} else {
		row(out, "helpers", list.bytes ? list.bytes : "none", "", plan->helper_reason);
	}
	out->failed |= list.failed;
	text_fini(&list);
}

static const char *pages_text(const struct plan_arena *arena, char *out, size_t size)
{
	char page[TEXT_SHORT];

	if (arena->pages == PLAN_PAGES_HUGE)
		snprintf(out, size, "pages of %s", text_size(page, arena->page_bytes));
	else
		snprintf(out, size, "%s pages", arena->pages == PLAN_PAGES_TRANSPARENT ? "transparent" : "normal");
	return out;
}

static void print_arenas(const struct plan *plan, struct text *out)
{
	char where[64], whom[64], bytes[TEXT_SHORT], why[PLAN_REASON + 64], pages[40];

	for (uint32_t i = 0; i < plan->arena_count; i++) {
		const struct plan_arena *arena = &plan->arenas[i];

		snprintf(where, sizeof(where), "node %d", arena->node);
		snprintf(whom, sizeof(whom), "%s", text_size(bytes, arena->bytes));
		snprintf(why, sizeof(why), "%s, %s", arena->reason, pages_text(arena, pages, sizeof(pages)));
		row(out, "arena", where, whom, why);
	}
}

static void print_gpus(const struct machine *machine, const struct plan *plan, struct text *out)
{
	for (uint32_t i = 0; i < plan->gpu_count; i++) {
		const struct plan_gpu *gpu = &plan->gpus[i];
		struct text rails = { NULL, 0, 0, false };
		char where[64];

		for (uint32_t j = 0; j < gpu->rail_count; j++)
			text_append(&rails, "%s%s", j ? "," : "", plan->rails[gpu->rails[j]].name);
		snprintf(where, sizeof(where), "gpu %s", machine->gpus[gpu->gpu].name);
		row(out, "gpu", where, rails.bytes ? rails.bytes : "-", gpu->reason);
		out->failed |= rails.failed;
		text_fini(&rails);
	}
}

void plan_print(const struct machine *machine, const struct plan *plan, struct text *out)
{
	text_append(out, "%s: %u rail%s, %u poll core%s, %s\n", machine->name[0] ? machine->name : "a machine",
		plan->rail_count, plan->rail_count == 1 ? "" : "s", plan->poll_core_count,
		plan->poll_core_count == 1 ? "" : "s",
		plan->busy             ? "spinning"
			: plan->pinned ? "waiting adaptively"
				       : "waiting adaptively, not pinned");
	row(out, "WHAT", "WHERE", "FOR", "WHY");
	print_cores(plan, out);
	print_arenas(plan, out);
	print_gpus(machine, plan, out);
	for (uint32_t i = 0; i < plan->warning_count; i++)
		text_append(out, "  warning: %s\n", plan->warnings[i]);
	if (plan->warnings_dropped)
		text_append(out, "  and %u more warnings\n", plan->warnings_dropped);
}

/* ---- a line a decision ---- */

struct lines {
	const struct plan *plan;
	void (*line)(void *context, const char *text);
	void *context;
};

static void say(const struct lines *lines, const char *format, ...) KVR_PRINTF(2, 3);

static void say(const struct lines *lines, const char *format, ...)
{
	char text[PLAN_REASON + 256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	lines->line(lines->context, text);
}

static void say_cores(const struct lines *lines)
{
	const struct plan *plan = lines->plan;
	struct text list = { NULL, 0, 0, false };
	char where[40];

	for (uint32_t i = 0; i < plan->poll_count; i++) {
		const struct plan_poll *poll = &plan->polls[i];

		snprintf(where, sizeof(where), plan->pinned ? "core %d" : "any core", poll->core);
		say(lines, "poll %s for %s: %s", where,
			poll->rail >= 0 ? plan->rails[poll->rail].name : "local clients", poll->reason);
	}
	snprintf(where, sizeof(where), plan->pinned ? "core %d" : "any core", plan->management_core);
	say(lines, "manage %s: %s", where, plan->management_reason);
	if (!plan->pinned)
		return;
	machine_list(&list, plan->helpers, plan->helper_count);
	say(lines, "helpers %.200s: %s", list.bytes ? list.bytes : "none", plan->helper_reason);
	text_fini(&list);
}

void plan_lines(const struct plan *plan, void (*line)(void *context, const char *text), void *context)
{
	const struct lines lines = { plan, line, context };
	char bytes[TEXT_SHORT], pages[40];

	say_cores(&lines);
	for (uint32_t i = 0; i < plan->arena_count; i++) {
		const struct plan_arena *arena = &plan->arenas[i];

		say(&lines, "arena of %s on node %d: %s, %s", text_size(bytes, arena->bytes), arena->node,
			arena->reason, pages_text(arena, pages, sizeof(pages)));
	}
	say(&lines, "threads %s",
		plan->busy             ? "spin on their cores"
			: plan->pinned ? "wait adaptively on their cores"
				       : "wait adaptively and are not pinned");
}

static void json_cores(const struct plan *plan, struct text *out)
{
	text_append(out, "\"poll_cores\":[");
	for (uint32_t i = 0; i < plan->poll_count; i++) {
		const struct plan_poll *poll = &plan->polls[i];

		text_append(out, "%s{\"core\":%d,\"rail\":", i ? "," : "", poll->core);
		if (poll->rail >= 0)
			text_append_json_string(out, plan->rails[poll->rail].name);
		else
			text_append(out, "null");
		text_append(out, ",\"numa\":%d,\"reason\":", poll->node);
		text_append_json_string(out, poll->reason);
		text_append(out, "}");
	}
	text_append(out, "],\"management_core\":%d,\"helper_cores\":[", plan->management_core);
	for (uint32_t i = 0; i < plan->helper_count; i++)
		text_append(out, "%s%d", i ? "," : "", plan->helpers[i]);
	text_append(out, "]");
}

static void json_arenas(const struct plan *plan, struct text *out)
{
	static const char *const kinds[] = { "normal", "transparent", "huge" };

	text_append(out, ",\"arenas\":[");
	for (uint32_t i = 0; i < plan->arena_count; i++) {
		const struct plan_arena *arena = &plan->arenas[i];

		text_append(out,
			"%s{\"numa\":%d,\"bytes\":%llu,\"pages\":\"%s\",\"page_bytes\":%llu,\"reason\":", i ? "," : "",
			arena->node, (unsigned long long)arena->bytes, kinds[arena->pages],
			(unsigned long long)arena->page_bytes);
		text_append_json_string(out, arena->reason);
		text_append(out, "}");
	}
	text_append(out, "]");
}

static void json_gpus(const struct machine *machine, const struct plan *plan, struct text *out)
{
	text_append(out, ",\"gpus\":[");
	for (uint32_t i = 0; i < plan->gpu_count; i++) {
		const struct plan_gpu *gpu = &plan->gpus[i];

		text_append(out, "%s{\"gpu\":", i ? "," : "");
		text_append_json_string(out, machine->gpus[gpu->gpu].name);
		text_append(out, ",\"rails\":[");
		for (uint32_t j = 0; j < gpu->rail_count; j++) {
			text_append(out, "%s", j ? "," : "");
			text_append_json_string(out, plan->rails[gpu->rails[j]].name);
		}
		text_append(out, "],\"reason\":");
		text_append_json_string(out, gpu->reason);
		text_append(out, "}");
	}
	text_append(out, "]");
}

void plan_json(const struct machine *machine, const struct plan *plan, struct text *out)
{
	text_append(out, "{\"machine\":");
	text_append_json_string(out, machine->name);
	text_append(out, ",\"waiting\":\"%s\",\"pinned\":%s,", plan->busy ? "busy" : "adaptive",
		plan->pinned ? "true" : "false");
	json_cores(plan, out);
	json_arenas(plan, out);
	json_gpus(machine, plan, out);
	text_append(out, ",\"warnings\":[");
	for (uint32_t i = 0; i < plan->warning_count; i++) {
		text_append(out, "%s", i ? "," : "");
		text_append_json_string(out, plan->warnings[i]);
	}
	text_append(out, "]}\n");
}
