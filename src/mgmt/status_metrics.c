/* status_metrics.c - /metrics: every series exists from the first scrape on, at 0 where nothing happened (pitfalls O03). */
#include <inttypes.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "mgmt/status_page.h"

static void header(struct text *out, const char *name, const char *kind, const char *help)
{
	text_append(out, "# HELP kvrail_%s %s\n# TYPE kvrail_%s %s\n", name, help, name, kind);
}

static void single(struct text *out, const char *name, const char *kind, const char *help, uint64_t value)
{
	header(out, name, kind, help);
	text_append(out, "kvrail_%s %" PRIu64 "\n", name, value);
}

static void seconds(struct text *out, uint64_t ns)
{
	text_append(out, " %" PRIu64 ".%09" PRIu64 "\n", ns / KVR_SECOND, ns % KVR_SECOND);
}

/* A label's value: backslash, quote and line end are escaped, as the text format asks. */
static void label(struct text *out, const char *name, const char *value)
{
	text_append(out, "%s=\"", name);
	text_append_label(out, value);
	text_append(out, "\"");
}

/* The counters of a struct as their list macro tells them. */
struct counter {
	const char *name;
	const char *help;
	size_t offset;
};

static uint64_t counter_value(const void *counters, const struct counter *counter)
{
	return kvr_load_relaxed((const uint64_t *)(const void *)((const char *)counters + counter->offset));
}

static void worker_metrics(const struct status_sources *sources, struct text *out)
{
	static const struct counter counters[] = {
#define ROW(name, help) { #name, help, offsetof(struct worker_counters, name) },
		WORKER_COUNTERS(ROW)
#undef ROW
	};

	for (size_t i = 0; i < KVR_COUNT_OF(counters); i++) {
		text_append(out, "# HELP kvrail_worker_%s %s\n# TYPE kvrail_worker_%s counter\n", counters[i].name,
			counters[i].help, counters[i].name);
		for (uint32_t worker = 0; worker < sources->worker_count; worker++)
			text_append(out, "kvrail_worker_%s{worker=\"%" PRIu32 "\"} %" PRIu64 "\n", counters[i].name,
				worker, counter_value(sources->workers[worker].counters, &counters[i]));
	}
}

static void management_metrics(const struct status_sources *sources, struct text *out)
{
	static const struct counter counters[] = {
#define ROW(name, help) { #name, help, offsetof(struct management_counters, name) },
		MANAGEMENT_COUNTERS(ROW)
#undef ROW
	};

	for (size_t i = 0; i < KVR_COUNT_OF(counters); i++)
		single(out, counters[i].name, "counter", counters[i].help,
			counter_value(sources->management, &counters[i]));
}

static void control_metrics(const struct status_sources *sources, struct text *out)
{
	static const struct counter counters[] = {
#define ROW(name, help) { "control_" #name, help, offsetof(struct control_counters, name) },
		CONTROL_COUNTERS(ROW)
#undef ROW
	};
	const char *twice = "control_control_";

	for (size_t i = 0; i < KVR_COUNT_OF(counters); i++) {
		const char *name = counters[i].name;

		if (strncmp(name, twice, strlen(twice)) == 0)
			name += strlen("control_");
		single(out, name, "counter", counters[i].help, counter_value(sources->control_counters, &counters[i]));
	}
}

static void cache_metrics(const struct status_sources *sources, struct text *out)
{
	static const struct counter counters[] = {
#define ROW(field, help) { "cache_" #field "_total", help, offsetof(struct cache_counters, field) }
		ROW(published, "objects made visible"),
		ROW(present, "objects that another writer had made visible first"),
		ROW(aborted, "objects given up before they were visible"),
		ROW(evicted_chunks, "chunks evicted"),
		ROW(evicted_bytes, "bytes evicted"),
		ROW(evicted_on_demand, "chunks evicted because a STORE needed room"),
		ROW(evicted_for_class, "chunks evicted to make room for objects of another size"),
		ROW(no_room, "objects that found no room"),
		ROW(collisions, "probes that met another key with the same tag"),
		ROW(cleared_chunks, "chunks dropped by CLEAR"),
		ROW(evicted_above_soft, "chunks evicted before others because their tenant was above its soft limit"),
		ROW(evicted_for_quota, "chunks evicted for others of their tenant, which is at its hard limit"),
		ROW(quota_refused, "objects that found no room within their tenant's hard limit"),
		ROW(returned, "chunks that came again soon after they were evicted (--eviction segmented)"),
		ROW(evicted_reused, "chunks evicted that had been asked for after they came (--eviction segmented)"),
		ROW(grown, "growths of the chunk table"),
#undef ROW
	};

	for (size_t i = 0; i < KVR_COUNT_OF(counters); i++)
		single(out, counters[i].name, "counter", counters[i].help, counter_value(sources->cache, &counters[i]));
}

static void kept_metrics(const struct status_sources *sources, struct text *out)
{
	static const struct counter counters[] = {
#define ROW(field, name, help) { "kept_" name "_total", help, offsetof(struct keep_counters, field) }
		ROW(restored_objects, "restored_objects", "objects of the server before that are in L1 again"),
		ROW(restored_bytes, "restored_bytes", "bytes of them"),
		ROW(dropped_objects, "dropped_objects", "objects of the server before that could not be used"),
		ROW(full, "left_out", "objects that the next server will not find, for want of a record"),
#undef ROW
	};

	for (size_t i = 0; sources->kept && i < KVR_COUNT_OF(counters); i++)
		single(out, counters[i].name, "counter", counters[i].help, counter_value(sources->kept, &counters[i]));
}

static void loop_metrics(const struct status_sources *sources, struct text *out)
{
	static const struct {
		struct counter counter;
		bool is_time;
	} rows[] = {
#define ROW(name, help, field, is_time) { { name, help, offsetof(struct loop_counters, field) }, is_time }
		ROW("loop_busy_turns_total", "turns that found work", busy_turns, false),
		ROW("loop_idle_turns_total", "turns that found none", idle_turns, false),
		ROW("loop_yields_total", "turns after which the thread gave its core away", yields, false),
		ROW("loop_sleeps_total", "times the thread slept", sleeps, false),
		ROW("loop_busy_seconds_total", "time in turns that found work", busy_ns, true),
		ROW("loop_sleep_seconds_total", "time asleep", sleep_ns, true),
#undef ROW
	};

	for (size_t i = 0; i < KVR_COUNT_OF(rows); i++) {
		header(out, rows[i].counter.name, "counter", rows[i].counter.help);
		for (uint32_t k = 0; k < sources->loop_count; k++) {
			uint64_t value = counter_value(loop_counters(sources->loops[k]), &rows[i].counter);

			text_append(out, "kvrail_%s{", rows[i].counter.name);
			label(out, "loop", loop_name(sources->loops[k]));
			text_append(out, "}");
			if (rows[i].is_time)
				seconds(out, value);
			else
				text_append(out, " %" PRIu64 "\n", value);
		}
	}
	header(out, "loop_core", "gauge", "core that the thread is pinned to, -1: none");
	for (uint32_t k = 0; k < sources->loop_count; k++) {
		text_append(out, "kvrail_loop_core{");
		label(out, "loop", loop_name(sources->loops[k]));
		text_append(out, "} %d\n", loop_core(sources->loops[k]));
	}
}

static void guard_metrics(const struct status_sources *sources, struct text *out)
{
	const struct guard *guard = sources->guard;

	single(out, "core_corrected_total", "counter", "times that a thread was taken off its core and put back",
		guard ? guard->corrected : 0);
	single(out, "core_shared_total", "counter", "times that something else ran on the core of a thread that spins",
		guard ? guard->shared : 0);
	single(out, "core_lost_total", "counter", "times that a thread lost its core", guard ? guard->lost : 0);
	header(out, "loop_spins", "gauge", "1 while the thread never sleeps");
	for (uint32_t k = 0; k < sources->loop_count; k++) {
		text_append(out, "kvrail_loop_spins{");
		label(out, "loop", loop_name(sources->loops[k]));
		text_append(out, "} %d\n", loop_waiting(sources->loops[k]) == LOOP_BUSY);
	}
}

static void heap_metrics(const struct status_sources *sources, struct text *out)
{
	struct status_heap heap;

	memset(&heap, 0, sizeof(heap));
	if (sources->heap)
		sources->heap(&heap);
	single(out, "heap_allocated_bytes", "gauge", "bytes that the program has allocated", heap.allocated_bytes);
	single(out, "heap_active_bytes", "gauge", "bytes of pages that have allocations", heap.active_bytes);
	single(out, "heap_resident_bytes", "gauge", "bytes of the heap that are in memory", heap.resident_bytes);
	single(out, "heap_retained_bytes", "gauge", "address space that the heap keeps without memory",
		heap.retained_bytes);
	single(out, "heap_metadata_bytes", "gauge", "bytes of the allocator's own tables", heap.metadata_bytes);
	single(out, "heap_arenas", "gauge", "arenas of the allocator", heap.arenas);
	single(out, "process_resident_bytes", "gauge", "bytes of the process that are in memory, L1 included",
		heap.rss_bytes);
}

/* One series an area of L1, per value. */
static void area_metrics(const struct status_sources *sources, const struct status_snapshot *snapshot, struct text *out)
{
	static const char *const names[][2] = {
		{ "l1_area_bytes", "memory of the area" },
		{ "l1_area_used_bytes", "bytes of objects in the area" },
		{ "l1_area_huge_bytes", "bytes of the area that are on huge pages" },
	};

	for (size_t i = 0; i < KVR_COUNT_OF(names); i++) {
		header(out, names[i][0], "gauge", names[i][1]);
		for (uint32_t k = 0; k < sources->area_count && k < snapshot->area_count; k++) {
			uint64_t values[] = { snapshot->areas[k].total_bytes, snapshot->areas[k].used_bytes,
				sources->areas[k].mapping->huge_bytes };

			text_append(out, "kvrail_%s{area=\"%" PRIu32 "\",numa=\"%d\"} %" PRIu64 "\n", names[i][0], k,
				sources->areas[k].node, values[i]);
		}
	}
}

static void gpu_row(struct text *out, const char *name, uint32_t index, const struct gpu_status *status, uint64_t value)
{
	text_append(out, "kvrail_gpu_%s{gpu=\"%" PRIu32 "\",", name, index);
	label(out, "pci", status->pci);
	text_append(out, "} %" PRIu64 "\n", value);
}

static void gpu_metrics(const struct status_sources *sources, struct text *out)
{
	static const struct counter counters[] = {
#define ROW(name, help) { #name, help, offsetof(struct gpu_counters, name) },
		GPU_COUNTERS(ROW)
#undef ROW
	};
	uint32_t count = sources->gpus ? gpus_count(sources->gpus) : 0;
	struct gpu_status status[GPU_COUNT_MAX];

	for (uint32_t i = 0; i < count; i++)
		gpus_status(sources->gpus, i, &status[i]);
	single(out, "gpus", "gauge", "GPUs whose memory clients may register", count);
	for (size_t k = 0; k < KVR_COUNT_OF(counters); k++) {
		text_append(out, "# HELP kvrail_gpu_%s %s\n# TYPE kvrail_gpu_%s counter\n", counters[k].name,
			counters[k].help, counters[k].name);
		for (uint32_t i = 0; i < count; i++)
			gpu_row(out, counters[k].name, i, &status[i], counter_value(&status[i].counters, &counters[k]));
	}
	header(out, "gpu_regions", "gauge", "regions of clients mapped now");
	for (uint32_t i = 0; i < count; i++)
		gpu_row(out, "regions", i, &status[i], status[i].regions);
	header(out, "gpu_lost", "gauge", "1: the GPU is lost until the server is restarted; /status says why");
	for (uint32_t i = 0; i < count; i++)
		gpu_row(out, "lost", i, &status[i], status[i].failed);
}

static void snapshot_metrics(const struct status_snapshot *snapshot, struct text *out)
{
	const struct {
		const char *name;
		uint64_t value;
		const char *help;
	} rows[] = {
		{ "l1_total_bytes", snapshot->l1.total_bytes, "memory for chunks" },
		{ "l1_used_bytes", snapshot->l1.used_bytes, "bytes of objects in L1" },
		{ "l1_free_bytes", snapshot->l1.free_page_bytes + snapshot->l1.free_slot_bytes,
			"memory of L1 that no object uses" },
		{ "l1_rounding_bytes", snapshot->l1.rounding_bytes, "memory of L1 lost to rounding" },
		{ "l1_metadata_bytes", snapshot->l1.metadata_bytes, "memory that the tables of L1 take beside it" },
		{ "l1_objects", snapshot->l1.objects, "objects in L1" },
		{ "l1_classes", snapshot->l1.classes, "object sizes in use" },
		{ "l1_runs", snapshot->l1.runs, "runs that L1 is carved into" },
		{ "cache_chunks", snapshot->cache.chunks, "chunks in the table" },
		{ "cache_objects", snapshot->cache.objects, "objects that can be read" },
		{ "cache_staged_objects", snapshot->cache.staged, "objects that are being written" },
		{ "cache_resident_bytes", snapshot->cache.resident_bytes, "bytes of objects that can be read" },
		{ "cache_staged_bytes", snapshot->cache.staged_bytes, "bytes of objects that are being written" },
		{ "cache_locks", snapshot->cache.locks, "read locks held" },
		{ "cache_pins", snapshot->cache.pins, "transfers in flight on chunks" },
		{ "cache_held_chunks", snapshot->cache.held_chunks, "chunks that can't be evicted now" },
		{ "cache_fresh_bytes", snapshot->cache.fresh_bytes,
			"bytes of chunks that were not asked for since they came and can be evicted (--eviction segmented)" },
		{ "cache_spaces", snapshot->cache.spaces, "key spaces in use" },
		{ "cache_table_bytes", snapshot->cache.table_bytes, "memory of the chunk table" },
		{ "connections", snapshot->connections, "queue pairs served" },
		{ "registrations", snapshot->registrations, "registrations that stand" },
		{ "models", snapshot->models, "model identities known" },
		{ "sessions", snapshot->sessions, "sessions open" },
		{ "sessions_max", snapshot->sessions_max, "sessions that can be open" },
		{ "parked_requests", snapshot->parked, "requests under way that move nothing now" },
		{ "transfers", snapshot->transfers, "RETRIEVE and STORE transfers under way" },
		{ "pins", snapshot->pin_count, "prefixes that the operator keeps in L1" },
		{ "pinned_chunks", snapshot->pinned_chunks, "chunks of them" },
		{ "pinned_bytes", snapshot->pinned_bytes, "memory of L1 that they take" },
		{ "pinned_bytes_max", snapshot->pinned_bytes_max, "memory of L1 that they may take" },
		{ "draining", snapshot->draining, "1 while the server is leaving" },
	};

	for (size_t i = 0; i < KVR_COUNT_OF(rows); i++)
		single(out, rows[i].name, "gauge", rows[i].help, rows[i].value);
}

/* One series a model, per value; these come and go with the models. */
static void model_metrics(
	const struct status_sources *sources, const struct status_snapshot *snapshot, struct text *out)
{
	static const char *const names[][2] = {
		{ "model_token_bytes", "bytes that a token takes, of one rank" },
		{ "model_chunks", "chunks in L1" },
		{ "model_tokens_max", "tokens that fit in L1 when it holds nothing else" },
	};

	for (size_t i = 0; i < KVR_COUNT_OF(names); i++) {
		header(out, names[i][0], "gauge", names[i][1]);
		for (uint32_t k = 0; k < snapshot->model_count; k++) {
			const struct status_model *model = &snapshot->model[k];
			uint64_t values[] = { model->token_bytes, model->chunks,
				status_model_tokens(model, snapshot->l1.total_bytes) };

			text_append(out, "kvrail_%s{", names[i][0]);
			label(out, "model", model->name);
			text_append(out, ",");
			label(out, "dtype", model->dtype);
			text_append(out, ",");
			label(out, "tenant",
				model->tenant < sources->tenant_count ? sources->tenants[model->tenant].name : "?");
			/* The other labels may be those of several models. */
			text_append(out, ",key=\"%s\",world_size=\"%" PRIu32 "\"} %" PRIu64 "\n", model->key,
				model->world_size, values[i]);
		}
	}
}

/* One series a tenant, per value: as many as the configuration has, CACHE_ACCOUNTS_MAX at most. */
static void tenant_metrics(
	const struct status_sources *sources, const struct status_snapshot *snapshot, struct text *out)
{
	static const struct {
		const char *name, *kind, *help;
		size_t offset;
	} rows[] = {
#define ROW(name, kind, field, help) { "tenant_" name, kind, help, offsetof(struct cache_account_stats, field) }
		ROW("resident_bytes", "gauge", resident_bytes, "memory of L1 that chunks of the tenant take"),
		ROW("staged_bytes", "gauge", staged_bytes, "memory of L1 that is being written for the tenant"),
		ROW("soft_quota_bytes", "gauge", quota.soft_bytes,
			"above it the tenant's chunks go first, 0: no limit"),
		ROW("hard_quota_bytes", "gauge", quota.hard_bytes, "what the tenant may hold, 0: no limit"),
		ROW("evicted_chunks_total", "counter", evicted_chunks, "chunks of the tenant evicted"),
		ROW("quota_evicted_chunks_total", "counter", quota_evicted_chunks, "of them, because of its quota"),
		ROW("quota_refused_total", "counter", quota_refused,
			"objects that found no room within its hard limit"),
#undef ROW
	};

	for (size_t i = 0; i < KVR_COUNT_OF(rows); i++) {
		header(out, rows[i].name, rows[i].kind, rows[i].help);
		for (uint32_t k = 0; k < snapshot->tenant_count && k < sources->tenant_count; k++) {
			const char *stats = (const char *)&snapshot->tenant[k].stats;

			text_append(out, "kvrail_%s{", rows[i].name);
			label(out, "tenant", sources->tenants[k].name);
			text_append(out, "} %" PRIu64 "\n", *(const uint64_t *)(const void *)(stats + rows[i].offset));
		}
	}
}

uint64_t status_model_tokens(const struct status_model *model, uint64_t l1_bytes)
{
	uint64_t token_bytes = model->token_bytes * (model->world_size ? model->world_size : 1);

	return token_bytes ? l1_bytes / token_bytes : 0;
}

static void engine_metrics(const struct status_sources *sources, struct text *out)
{
	static const struct l2_counters none;
	const struct l2_counters *counters = sources->l2 ? l2_get_counters(sources->l2) : &none;
	static const struct counter totals[] = {
#define ROW(name, help) { "l2_" #name "_total", help, offsetof(struct l2_counters, name) },
		L2_COUNTERS(ROW)
#undef ROW
	};
	static const struct counter gauges[] = {
		{ "l2_lookups", "lookups that wait for L2", offsetof(struct l2_counters, fetches_now) },
		{ "l2_loads", "loads under way", offsetof(struct l2_counters, loads_now) },
		{ "l2_load_bytes", "memory of L1 that loads have under way",
			offsetof(struct l2_counters, load_bytes_now) },
		{ "l2_stores_waiting", "objects that wait to be written",
			offsetof(struct l2_counters, stores_waiting) },
		{ "l2_stores", "objects being written", offsetof(struct l2_counters, stores_now) },
		{ "l2_store_bytes", "memory of L1 that these hold", offsetof(struct l2_counters, store_bytes_now) },
	};

	for (size_t i = 0; i < KVR_COUNT_OF(totals); i++)
		single(out, totals[i].name, "counter", totals[i].help, counter_value(counters, &totals[i]));
	for (size_t i = 0; i < KVR_COUNT_OF(gauges); i++)
		single(out, gauges[i].name, "gauge", gauges[i].help, counter_value(counters, &gauges[i]));
}

struct place_row {
	struct counter counter;
	const char *kind;
};

/* One series a place that is not left out (NULL: none is): `bases` has a struct of `size` bytes for each, in which the
 * counters are. */
static void place_rows(const struct status_sources *sources, const struct place_row *rows, size_t row_count,
	const void *bases, size_t size, const bool *left_out, struct text *out)
{
	uint32_t count = sources->l2 ? l2_adapter_count(sources->l2) : 0;

	for (size_t i = 0; i < row_count; i++) {
		header(out, rows[i].counter.name, rows[i].kind, rows[i].counter.help);
		for (uint32_t k = 0; k < count; k++) {
			if (left_out && left_out[k])
				continue;
			text_append(out, "kvrail_%s{", rows[i].counter.name);
			label(out, "place", l2_adapter_at(sources->l2, k)->name);
			text_append(out, "} %" PRIu64 "\n",
				counter_value((const uint8_t *)bases + k * size, &rows[i].counter));
		}
	}
}

static void place_metrics(const struct status_sources *sources, struct text *out)
{
	static const struct place_row kept[] = {
#define ROW(name, field, kind, help) { { "l2_place_" name, help, offsetof(struct l2_stats, field) }, kind }
		ROW("objects", objects, "gauge", "objects kept there, as far as is known; no series where nothing is"),
		ROW("bytes", bytes, "gauge", "bytes of them"),
	};
	static const struct place_row rows[] = {
		ROW("capacity_bytes", capacity_bytes, "gauge", "what it may take, 0: not limited"),
		ROW("loads_total", loads, "counter", "objects read there"),
		ROW("load_bytes_total", load_bytes, "counter", "bytes of them"),
		ROW("stores_total", stores, "counter", "objects written there"),
		ROW("store_bytes_total", store_bytes, "counter", "bytes of them"),
		ROW("misses_total", misses, "counter", "objects that were not there"),
		ROW("corrupt_total", corrupt, "counter", "objects whose bytes were not what had been stored"),
		ROW("errors_total", errors, "counter", "requests that failed"),
		ROW("evicted_total", evicted, "counter", "objects dropped to make room"),
#undef ROW
	};
	uint32_t count = sources->l2 ? l2_adapter_count(sources->l2) : 0;
	struct l2_stats stats[L2_ADAPTERS_MAX];
	bool uncounted[L2_ADAPTERS_MAX] = { false };

	memset(stats, 0, sizeof(stats));
	for (uint32_t k = 0; k < count; k++) {
		l2_adapter_at(sources->l2, k)->driver->get_stats(l2_adapter_at(sources->l2, k), &stats[k]);
		uncounted[k] = stats[k].uncounted;
	}
	place_rows(sources, kept, KVR_COUNT_OF(kept), stats, sizeof(*stats), uncounted, out);
	place_rows(sources, rows, KVR_COUNT_OF(rows), stats, sizeof(*stats), NULL, out);
}

static void health_metrics(const struct status_sources *sources, struct text *out)
{
	static const struct place_row rows[] = {
#define ROW(name, field, kind, help) { { "l2_place_" name, help, offsetof(struct l2_health, field) }, kind }
		ROW("outages_total", outages, "counter", "times that it was taken out, or its stores were"),
		ROW("timeouts_total", timeouts, "counter", "of these, those because it did not answer"),
		ROW("probes_total", probes, "counter", "attempts to take it in again"),
		ROW("stores_dropped_total", dropped, "counter", "objects not written there because it was out"),
		ROW("unanswered", unanswered, "gauge", "requests that it was taken out with and still has"),
#undef ROW
	};
	uint32_t count = sources->l2 ? l2_adapter_count(sources->l2) : 0;
	struct l2_health health[L2_ADAPTERS_MAX];

	header(out, "l2_healthy", "gauge", "1: the place works; for: read, write");
	for (uint32_t k = 0; k < count; k++) {
		l2_get_health(sources->l2, k, &health[k]);
		for (unsigned write = 0; write < 2; write++) {
			text_append(out, "kvrail_l2_healthy{");
			label(out, "place", l2_adapter_at(sources->l2, k)->name);
			text_append(out, ",for=\"%s\"} %d\n", write ? "write" : "read",
				write ? health[k].state == L2_HEALTH_GOOD : health[k].state != L2_HEALTH_OUT);
		}
	}
	place_rows(sources, rows, KVR_COUNT_OF(rows), health, sizeof(*health), NULL, out);
}

static bool is_degraded(const struct status_sources *sources, uint64_t now_ns)
{
	struct text words = { NULL, 0, 0, false };
	bool degraded = status_degraded(sources, now_ns, &words);

	text_fini(&words);
	return degraded;
}

void status_page_metrics(const struct status_sources *sources, const struct status_snapshot *snapshot,
	const char *not_ready, uint64_t now_ns, struct text *out)
{
	header(out, "build_info", "gauge", "1; the version is a label");
	text_append(out, "kvrail_build_info{");
	label(out, "version", sources->version);
	text_append(out, "} 1\n");
	header(out, "uptime_seconds", "gauge", "time since the start");
	text_append(out, "kvrail_uptime_seconds");
	seconds(out, now_ns - sources->started_ns);
	single(out, "ready", "gauge", "1 while requests are served", not_ready == NULL);
	single(out, "degraded", "gauge", "1 while something does not work that the server can do without",
		is_degraded(sources, now_ns));
	single(out, "clients", "gauge", "control sockets open",
		sources->control ? control_client_count(sources->control) : 0);
	single(out, "clients_max", "gauge", "control sockets that can be open", sources->connections_max);
	snapshot_metrics(snapshot, out);
	model_metrics(sources, snapshot, out);
	tenant_metrics(sources, snapshot, out);
	management_metrics(sources, out);
	cache_metrics(sources, out);
	kept_metrics(sources, out);
	engine_metrics(sources, out);
	place_metrics(sources, out);
	health_metrics(sources, out);
	control_metrics(sources, out);
	worker_metrics(sources, out);
	gpu_metrics(sources, out);
	loop_metrics(sources, out);
	guard_metrics(sources, out);
	heap_metrics(sources, out);
	area_metrics(sources, snapshot, out);
}
