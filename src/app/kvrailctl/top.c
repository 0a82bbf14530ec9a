/* top.c - kvrailctl top: what happens now, as rates between two looks; on a terminal again and again, else once. */
#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#include "app/common/program.h"
#include "app/common/table.h"
#include "app/kvrailctl/kvrailctl.h"
#include "base/clock.h"

static json_t *look(const struct kvrailctl_settings *settings)
{
	struct text page = { NULL, 0, 0, false };
	json_t *status = kvrailctl_fetch_status(settings, &page) ? kvrailctl_read_status(&page) : NULL;

	text_fini(&page);
	return status;
}

/* How often a second; a server that was started anew in between has smaller counters. */
static double rate(const json_t *before, const json_t *after, const char *path, double seconds)
{
	uint64_t first = status_number(before, path), last = status_number(after, path);

	return seconds > 0 && last >= first ? (double)(last - first) / seconds : 0;
}

/* Over all workers. */
static double worker_rate(const json_t *before, const json_t *after, const char *name, double seconds)
{
	double sum = 0;
	json_t *worker;
	size_t i;

	json_array_foreach(status_array(after, "workers"), i, worker)
		sum += rate(json_array_get(status_array(before, "workers"), i), worker, name, seconds);
	return sum;
}

static void append_rates(const json_t *before, const json_t *after, double seconds, struct text *out)
{
	double asked = rate(before, after, "counters.lookup_tokens_total", seconds);
	double found = rate(before, after, "counters.lookup_hit_tokens_total", seconds);
	struct table table = { 0, 0, 0, 0, false, NULL };

	table_begin(&table, "OPERATION|A SECOND>|CHUNKS/S>|GB/S>|OF TOKENS FOUND>");
	table_cell(&table, "lookup");
	table_cell(&table, "%.0f", rate(before, after, "counters.lookups_total", seconds));
	table_cell(&table, "%.0f", rate(before, after, "counters.lookup_chunks_total", seconds));
	table_cell(&table, "-");
	table_cell(&table, "%.1f %%", asked > 0 ? 100 * found / asked : 0);
	table_cell(&table, "retrieve");
	table_cell(&table, "%.0f", rate(before, after, "counters.retrieves_total", seconds));
	table_cell(&table, "%.0f", rate(before, after, "counters.retrieve_chunks_total", seconds));
	table_cell(&table, "%.3f", worker_rate(before, after, "retrieve_bytes_total", seconds) / 1e9);
	table_cell(&table, "-");
	table_cell(&table, "store");
	table_cell(&table, "%.0f", rate(before, after, "counters.stores_total", seconds));
	table_cell(&table, "%.0f", rate(before, after, "counters.store_chunks_total", seconds));
	table_cell(&table, "%.3f", worker_rate(before, after, "store_bytes_total", seconds) / 1e9);
	table_cell(&table, "-");
	table_cell(&table, "evict");
	table_cell(&table, "-");
	table_cell(&table, "%.0f", rate(before, after, "cache.evicted_chunks", seconds));
	table_cell(&table, "%.3f", rate(before, after, "cache.evicted_bytes", seconds) / 1e9);
	table_cell(&table, "-");
	text_append(out, "\n");
	out->failed |= table.failed;
	table_print(&table, out);
	table_fini(&table);
}

static void append_threads(const json_t *before, const json_t *after, double seconds, struct text *out)
{
	struct table table = { 0, 0, 0, 0, false, NULL };
	json_t *loop;
	size_t i;

	table_begin(&table, "THREAD|BUSY>|ASLEEP>|TURNS/S>");
	json_array_foreach(status_array(after, "loops"), i, loop)
	{
		const json_t *old = json_array_get(status_array(before, "loops"), i);

		table_cell(&table, "%s", status_string(loop, "name"));
		table_cell(&table, "%.1f %%",
			seconds > 0
				? 100 * (status_real(loop, "busy_seconds") - status_real(old, "busy_seconds")) / seconds
				: 0);
		table_cell(&table, "%.1f %%",
			seconds > 0 ? 100 * (status_real(loop, "sleep_seconds") - status_real(old, "sleep_seconds")) /
					seconds
				    : 0);
		table_cell(&table, "%.0f", rate(old, loop, "busy_turns", seconds));
	}
	text_append(out, "\n");
	out->failed |= table.failed;
	table_print(&table, out);
	table_fini(&table);
}

static int print_frame(const json_t *before, const json_t *after, bool on_terminal)
{
	double seconds = status_real(after, "uptime_seconds") - status_real(before, "uptime_seconds");
	struct text out = { NULL, 0, 0, false };
	int code;

	if (on_terminal)
		text_append(&out, "\x1b[H\x1b[2J");
	status_head(after, &out);
	append_rates(before, after, seconds, &out);
	append_threads(before, after, seconds, &out);
	status_models(after, &out);
	code = kvrailctl_print(&out);
	text_fini(&out);
	return code;
}

int kvrailctl_top(const struct kvrailctl_settings *settings)
{
	bool on_terminal = isatty(STDOUT_FILENO) == 1;
	uint32_t frames = settings->count ? settings->count : on_terminal ? UINT32_MAX : 1;
	struct timespec pause = { (time_t)(settings->interval_ns / KVR_SECOND),
		(long)(settings->interval_ns % KVR_SECOND) };
	json_t *before = look(settings);
	int code = before ? PROGRAM_GOOD : PROGRAM_FAILED;

	for (uint32_t frame = 0; code == PROGRAM_GOOD && frame < frames; frame++) {
		json_t *after;

		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		after = look(settings);
		code = after ? print_frame(before, after, on_terminal) : PROGRAM_FAILED;
		json_decref(before);
		before = after;
	}
	json_decref(before);
	return code;
}
