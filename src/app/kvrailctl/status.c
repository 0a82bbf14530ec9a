/* status.c - kvrailctl status and kvrailctl sessions: the status page for people. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/common/table.h"
#include "app/kvrailctl/kvrailctl.h"

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* "3 d 4 h", "4 h 5 min", "5 min 6 s", "6 s" */
static const char *duration(char buffer[32], double seconds)
{
	uint64_t whole = seconds > 0 ? (uint64_t)seconds : 0;

	if (whole >= 86400)
		snprintf(buffer, 32, "%" PRIu64 " d %" PRIu64 " h", whole / 86400, whole % 86400 / 3600);
	else if (whole >= 3600)
		snprintf(buffer, 32, "%" PRIu64 " h %" PRIu64 " min", whole / 3600, whole % 3600 / 60);
	else if (whole >= 60)
		snprintf(buffer, 32, "%" PRIu64 " min %" PRIu64 " s", whole / 60, whole % 60);
	else
		snprintf(buffer, 32, "%" PRIu64 " s", whole);
	return buffer;
}

void status_head(const json_t *status, struct text *out)
{
	uint64_t total = status_number(status, "l1.total_bytes"), used = status_number(status, "l1.used_bytes");
	char up[32], sizes[4][TEXT_SHORT];

	text_append(out, "kvraild %s, %s%s, up %s, boot %s\n\n", status_string(status, "version"),
		status_bool(status, "ready") ? "ready" : "NOT READY: ", status_string(status, "not_ready"),
		duration(up, status_real(status, "uptime_seconds")), status_string(status, "boot_id"));
	text_append(out, "  L1        %s in %s%s: %s used (%.1f %%), %s free, %s lost to rounding (%.1f %%)\n",
		text_size(sizes[0], total), status_string(status, "l1.pages"),
		status_bool(status, "l1.locked") ? ", locked" : ", not locked", text_size(sizes[1], used),
		percent(used, total), text_size(sizes[2], status_number(status, "l1.free_bytes")),
		text_size(sizes[3], status_number(status, "l1.rounding_bytes")),
		percent(status_number(status, "l1.rounding_bytes"), total));
	if (status_string(status, "degraded")[0])
		text_append(out, "  DEGRADED  %s\n", status_string(status, "degraded"));
	text_append(out,
		"  chunks    %" PRIu64 " of %" PRIu64 " tokens (%" PRIu64 " objects, %" PRIu64
		" being written), %" PRIu64 " held, %" PRIu64 " evicted\n",
		status_number(status, "cache.chunks"), status_number(status, "cache.chunk_tokens"),
		status_number(status, "cache.objects"), status_number(status, "cache.staged"),
		status_number(status, "cache.held_chunks"), status_number(status, "cache.evicted_chunks"));
	if (json_object_get(json_object_get(status, "cache"), "returned"))
		text_append(out,
			"            segmented: %s fresh, %" PRIu64 " came back, %" PRIu64
			" evicted that had been reused\n",
			text_size(sizes[0], status_number(status, "cache.fresh_bytes")),
			status_number(status, "cache.returned"), status_number(status, "cache.evicted_reused"));
	if (json_is_object(json_object_get(status, "l2")))
		text_append(out,
			"  L2        %" PRIu64 " objects written, %" PRIu64 " dropped, %" PRIu64 " failed; %" PRIu64
			" read, %" PRIu64 " corrupt; %" PRIu64 " lookups wait, %" PRIu64 " loads, %" PRIu64
			" stores under way, %" PRIu64 " wait\n",
			status_number(status, "l2.stored"), status_number(status, "l2.store_dropped"),
			status_number(status, "l2.store_failed"), status_number(status, "l2.loaded"),
			status_number(status, "l2.load_corrupt"), status_number(status, "l2.lookups_now"),
			status_number(status, "l2.loads_now"), status_number(status, "l2.stores_now"),
			status_number(status, "l2.stores_waiting"));
	text_append(out, "  sessions  %" PRIu64 " of %" PRIu64 ", %" PRIu64 " locks, %" PRIu64 " pins\n",
		status_number(status, "sessions.open"), status_number(status, "sessions.max"),
		status_number(status, "sessions.locks"), status_number(status, "cache.pins"));
	text_append(out, "  requests  %" PRIu64 " parked, %" PRIu64 " transfers under way\n",
		status_number(status, "requests.parked"), status_number(status, "requests.transfers"));
	text_append(out, "  clients   %" PRIu64 " of %" PRIu64 ", %" PRIu64 " registrations\n",
		status_number(status, "client_count"), status_number(status, "clients_max"),
		status_number(status, "requests.registrations"));
	text_append(out, "  lookups   %" PRIu64 ", %.1f %% of %" PRIu64 " tokens found\n",
		status_number(status, "counters.lookups_total"),
		percent(status_number(status, "counters.lookup_hit_tokens_total"),
			status_number(status, "counters.lookup_tokens_total")),
		status_number(status, "counters.lookup_tokens_total"));
}

/* A heading and a table below, unless it is empty. */
static void append_table(struct text *out, const struct table *table)
{
	out->failed |= table->failed;
	if (table->rows < 2)
		return;
	text_append(out, "\n");
	table_print(table, out);
}

void status_models(const json_t *status, struct text *out)
{
	struct table table = { 0, 0, 0, 0, false, NULL };
	char token[TEXT_SHORT];
	json_t *model;
	size_t i;

	table_begin(&table, "MODEL|DTYPE|TENANT|RANKS>|READERS>|TOKEN>|CHUNKS>|TOKENS>|FIT>");
	json_array_foreach(status_array(status, "models"), i, model)
	{
		table_cell(&table, "%s", status_string(model, "name"));
		table_cell(&table, "%s", status_string(model, "dtype"));
		table_cell(&table, "%s", status_string(model, "tenant"));
		table_cell(&table, "%" PRIu64, status_number(model, "world_size"));
		table_cell(&table, "%" PRIu64, status_number(model, "readers"));
		table_cell(&table, "%s", text_size(token, status_number(model, "token_bytes_all_ranks")));
		table_cell(&table, "%" PRIu64, status_number(model, "chunks"));
		table_cell(&table, "%" PRIu64, status_number(model, "tokens"));
		table_cell(&table, "%" PRIu64, status_number(model, "tokens_max"));
	}
	append_table(out, &table);
	table_fini(&table);
}

/* "2", or "1 of 2" where some are out. */
static const char *rails_words(char *words, size_t size, const json_t *client)
{
	size_t all = json_array_size(status_array(client, "rails")), out = 0, i;
	json_t *rail;

	json_array_foreach(status_array(client, "rails"), i, rail)
		out += strcmp(status_string(rail, "state"), "out") == 0;
	snprintf(words, size, out ? "%zu of %zu" : "%zu", all - out, all);
	return words;
}

/* A line for each that is out, with the reason where it is known. */
static void append_rails_out(const json_t *client, struct text *out)
{
	const json_t *rail;
	size_t i;

	json_array_foreach(status_array(client, "rails"), i, rail)
	{
		const char *why = json_string_value(json_object_get(rail, "why"));

		if (why)
			text_append(out, "client %s: rail %" PRIu64 " on %s is out: %s\n",
				status_string(client, "name"), status_number(rail, "rail"),
				status_string(rail, "device"), why);
	}
}

static void append_clients(const json_t *status, struct text *out)
{
	struct table table = { 0, 0, 0, 0, false, NULL };
	char in[TEXT_SHORT], sent[TEXT_SHORT], memory[TEXT_SHORT], age[32], rails[32];
	json_t *client;
	size_t i;

	table_begin(&table, "CLIENT|PEER|TENANT|STATE|RAILS>|AGE>|REQUESTS>|STORED>|RETRIEVED>|MEMORY>");
	json_array_foreach(status_array(status, "clients"), i, client)
	{
		table_cell(&table, "%s", status_string(client, "name"));
		table_cell(&table, "%s", status_string(client, "peer"));
		table_cell(&table, "%s", status_string(client, "tenant"));
		table_cell(&table, "%s", status_string(client, "state"));
		table_cell(&table, "%s", rails_words(rails, sizeof(rails), client));
		table_cell(&table, "%s", duration(age, status_real(client, "connected_seconds")));
		table_cell(&table, "%" PRIu64, status_number(client, "requests"));
		table_cell(&table, "%s", text_size(in, status_number(client, "bytes_in")));
		table_cell(&table, "%s", text_size(sent, status_number(client, "bytes_out")));
		table_cell(&table, "%s", text_size(memory, status_number(client, "region_bytes")));
	}
	append_table(out, &table);
	table_fini(&table);
	json_array_foreach(status_array(status, "clients"), i, client) append_rails_out(client, out);
}

/* RDMA devices; what serves this host has nothing to tell. */
static void append_devices(const json_t *status, struct text *out)
{
	struct table table = { 0, 0, 0, 0, false, NULL };
	json_t *device;
	size_t i;

	table_begin(&table, "DEVICE|STATE|ADDRESS|GID>|MTU>|SL>|TC>|TIMEOUT>|RETRIES>|RNR>|PORT ERRORS>|CLOSED>");
	json_array_foreach(status_array(status, "devices"), i, device)
	{
		if (!json_object_get(device, "state"))
			continue;
		table_cell(&table, "%s", status_string(device, "name"));
		table_cell(&table, "%s", status_string(device, "state"));
		table_cell(&table, "%s", status_string(device, "address"));
		table_cell(&table, "%" PRIu64, status_number(device, "gid_index"));
		table_cell(&table, "%" PRIu64, status_number(device, "mtu_bytes"));
		table_cell(&table, "%" PRIu64, status_number(device, "service_level"));
		table_cell(&table, "%" PRIu64, status_number(device, "traffic_class"));
		table_cell(&table, "%" PRIu64, status_number(device, "timeout"));
		table_cell(&table, "%" PRIu64, status_number(device, "retry_count"));
		table_cell(&table, "%" PRIu64, status_number(device, "rnr_timer"));
		table_cell(&table, "%" PRIu64, status_number(device, "port_errors_total"));
		table_cell(&table, "%" PRIu64, status_number(device, "queue_pairs_closed_total"));
	}
	append_table(out, &table);
	table_fini(&table);
}

static void append_loops(const json_t *status, struct text *out)
{
	struct table table = { 0, 0, 0, 0, false, NULL };
	double up = status_real(status, "uptime_seconds");
	json_t *loop;
	size_t i;

	table_begin(&table, "THREAD|CORE>|WAITS|BUSY>|ASLEEP>|TURNS>|LAST TURN>");
	json_array_foreach(status_array(status, "loops"), i, loop)
	{
		int64_t core = (int64_t)status_number(loop, "core");

		table_cell(&table, "%s", status_string(loop, "name"));
		if (core < 0)
			table_cell(&table, "any");
		else
			table_cell(&table, "%" PRId64, core);
		if (strcmp(status_string(loop, "core_state"), "shared") == 0 ||
			strcmp(status_string(loop, "core_state"), "lost") == 0)
			table_cell(&table, "%s, core %s", status_string(loop, "waiting"),
				status_string(loop, "core_state"));
		else
			table_cell(&table, "%s", status_string(loop, "waiting"));
		table_cell(&table, "%.1f %%", up > 0 ? 100 * status_real(loop, "busy_seconds") / up : 0);
		table_cell(&table, "%.1f %%", up > 0 ? 100 * status_real(loop, "sleep_seconds") / up : 0);
		table_cell(&table, "%" PRIu64, status_number(loop, "busy_turns"));
		table_cell(&table, "%.1f s ago", status_real(loop, "last_turn_seconds"));
	}
	append_table(out, &table);
	table_fini(&table);
}

/* Where L1 is, and what the topology plan says of this machine. */
static void append_areas(const json_t *status, struct text *out)
{
	struct table table = { 0, 0, 0, 0, false, NULL };
	char size[TEXT_SHORT], used[TEXT_SHORT], huge[TEXT_SHORT];
	json_t *area;
	size_t i;

	table_begin(&table, "L1 AREA|NODE>|SIZE>|USED>|HUGE>|PAGES|THERE>|TOUCHED>");
	json_array_foreach(status_array(status, "l1_areas"), i, area)
	{
		uint64_t sampled = status_number(area, "pages_sampled");

		table_cell(&table, "%zu", i);
		table_cell(&table, "%" PRId64, (int64_t)status_number(area, "numa"));
		table_cell(&table, "%s", text_size(size, status_number(area, "bytes")));
		table_cell(&table, "%s", text_size(used, status_number(area, "used_bytes")));
		table_cell(&table, "%s", text_size(huge, status_number(area, "huge_bytes")));
		table_cell(&table, "%s", status_string(area, "pages"));
		if (sampled)
			table_cell(&table, "%.1f %%", percent(status_number(area, "pages_on_node"), sampled));
		else
			table_cell(&table, "-");
		table_cell(&table, "%.1f s, %" PRIu64 " threads", status_real(area, "touch_seconds"),
			status_number(area, "touch_threads"));
	}
	append_table(out, &table);
	table_fini(&table);
}

static void place_condition(const json_t *place, struct table *table)
{
	const char *health = status_string(place, "health"), *condition = status_string(place, "condition");
	bool sick = health[0] && strcmp(health, "good") != 0;
	char since[32];

	if (!sick) {
		table_cell(table, "%s%s%s", status_bool(place, "scanning") ? "being scanned " : "",
			status_bool(place, "read_only") ? "read-only " : "", condition[0] ? condition : "good");
		return;
	}
	table_cell(table, "%s for %s: %s; %" PRIu64 " probes, %" PRIu64 " stores dropped%s%s",
		strcmp(health, "out") == 0 ? "OUT" : "READ-ONLY", duration(since, status_real(place, "health_seconds")),
		status_string(place, "health_reason"), status_number(place, "probes"),
		status_number(place, "stores_dropped"), condition[0] ? "; " : "", condition);
}

/* "?": nobody counts what a server of others holds. */
static void place_kept(const json_t *place, struct table *table)
{
	char bytes[TEXT_SHORT];

	if (!json_is_false(json_object_get(place, "counted"))) { /* an older server does not say it */
		table_cell(table, "%" PRIu64, status_number(place, "objects"));
		table_cell(table, "%s", text_size(bytes, status_number(place, "bytes")));
		return;
	}
	table_cell(table, "?");
	table_cell(table, "?");
}

static void append_places(const json_t *status, struct text *out)
{
	struct table table = { 0, 0, 0, 0, false, NULL };
	const json_t *l2 = json_object_get(status, "l2");
	char sizes[3][TEXT_SHORT];
	json_t *place;
	size_t i;

	if (!json_is_object(l2))
		return;
	table_begin(&table, "L2 PLACE|OBJECTS>|BYTES>|OF>|READ>|WRITTEN>|EVICTED>|CORRUPT>|ERRORS>|CONDITION");
	json_array_foreach(status_array(l2, "places"), i, place)
	{
		table_cell(&table, "%s", status_string(place, "name"));
		place_kept(place, &table);
		table_cell(&table, "%s",
			status_number(place, "capacity_bytes")
				? text_size(sizes[0], status_number(place, "capacity_bytes"))
				: "-");
		table_cell(&table, "%s", text_size(sizes[1], status_number(place, "load_bytes")));
		table_cell(&table, "%s", text_size(sizes[2], status_number(place, "store_bytes")));
		table_cell(&table, "%" PRIu64, status_number(place, "evicted"));
		table_cell(&table, "%" PRIu64, status_number(place, "corrupt"));
		table_cell(&table, "%" PRIu64, status_number(place, "errors"));
		place_condition(place, &table);
	}
	append_table(out, &table);
	table_fini(&table);
}

static void append_heap(const json_t *status, struct text *out)
{
	char sizes[4][TEXT_SHORT];

	if (strcmp(status_string(status, "heap.allocator"), "jemalloc") != 0)
		return;
	text_append(out, "\nheap: %s allocated, %s in memory, %" PRIu64 " arenas; the process: %s in memory\n",
		text_size(sizes[0], status_number(status, "heap.allocated_bytes")),
		text_size(sizes[1], status_number(status, "heap.resident_bytes")), status_number(status, "heap.arenas"),
		text_size(sizes[2], status_number(status, "heap.process_rss_bytes")));
}

static void append_plan(const json_t *status, struct text *out)
{
	struct table table = { 0, 0, 0, 0, false, NULL };
	const json_t *plan = json_object_get(status, "plan");
	json_t *poll, *warning;
	size_t i;

	if (!json_is_object(plan))
		return;
	table_begin(&table, "PLAN|CORE>|FOR|WHY");
	json_array_foreach(status_array(plan, "poll_cores"), i, poll)
	{
		table_cell(&table, "poll");
		if (status_bool(plan, "pinned"))
			table_cell(&table, "%" PRId64, (int64_t)status_number(poll, "core"));
		else
			table_cell(&table, "any");
		table_cell(&table, "%s",
			json_is_string(json_object_get(poll, "rail")) ? status_string(poll, "rail") : "local clients");
		table_cell(&table, "%s", status_string(poll, "reason"));
	}
	append_table(out, &table);
	table_fini(&table);
	json_array_foreach(status_array(plan, "warnings"), i, warning)
		text_append(out, "warning: %s\n", json_is_string(warning) ? json_string_value(warning) : "");
}

static void append_tenants(const json_t *status, struct text *out)
{
	status_tenants(status, false, out);
	if (json_array_size(status_array(status, "pins")) == 0)
		return;
	text_append(out, "\n");
	status_pins(status, out);
}

static void frame_status(const json_t *status, struct text *out)
{
	status_head(status, out);
	status_models(status, out);
	append_tenants(status, out);
	append_clients(status, out);
	append_areas(status, out);
	append_places(status, out);
	append_devices(status, out);
	append_loops(status, out);
	append_heap(status, out);
	append_plan(status, out);
}

static void frame_sessions(const json_t *status, struct text *out)
{
	static const struct {
		const char *path;
		const char *what;
	} rows[] = {
		{ "sessions.open", "sessions open" },
		{ "sessions.max", "sessions that can be open" },
		{ "sessions.opened", "begun since the start" },
		{ "sessions.ended", "ended by their client" },
		{ "sessions.expired", "ended by --session-ttl" },
		{ "sessions.lost", "ended with their connection" },
		{ "sessions.locks", "read locks held" },
		{ "cache.held_chunks", "chunks that can't be evicted now" },
		{ "cache.pins", "transfers in flight on chunks" },
		{ "sessions.locks_expired", "locks that reached --lock-ttl" },
		{ "sessions.lock_mismatches", "releases that matched no lock" },
	};
	struct table table = { 0, 0, 0, 0, false, NULL };

	table_begin(&table, "COUNT>|OF WHAT");
	for (size_t i = 0; i < KVR_COUNT_OF(rows); i++) {
		table_cell(&table, "%" PRIu64, status_number(status, rows[i].path));
		table_cell(&table, "%s", rows[i].what);
	}
	out->failed |= table.failed;
	table_print(&table, out);
	table_fini(&table);
}

static int show(const struct kvrailctl_settings *settings, void (*frame)(const json_t *status, struct text *out))
{
	struct text page = { NULL, 0, 0, false }, out = { NULL, 0, 0, false };
	json_t *status;
	int code = 1;

	if (kvrailctl_fetch_status(settings, &page)) {
		status = kvrailctl_read_status(&page);
		if (status && settings->json) {
			code = kvrailctl_print(&page);
		} else if (status) {
			frame(status, &out);
			code = kvrailctl_print(&out);
		}
		json_decref(status);
	}
	text_fini(&page);
	text_fini(&out);
	return code;
}

int kvrailctl_status(const struct kvrailctl_settings *settings)
{
	return show(settings, frame_status);
}

int kvrailctl_sessions(const struct kvrailctl_settings *settings)
{
	return show(settings, frame_sessions);
}
