/* status_json.c - /status: everything that an operator asks first, as one JSON object. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "mgmt/status_page.h"

/* A comma before everything that is not the first of its object or array. */
static void comma(struct text *out)
{
	char last = out->length > 0 ? out->bytes[out->length - 1] : '{';

	if (last != '{' && last != '[' && last != ':')
		text_append(out, ",");
}

static void key(struct text *out, const char *name)
{
	comma(out);
	text_append_json_string(out, name);
	text_append(out, ":");
}

/* name NULL: an element of an array. */
static void open_object(struct text *out, const char *name)
{
	if (name)
		key(out, name);
	else
		comma(out);
	text_append(out, "{");
}

static void open_array(struct text *out, const char *name)
{
	key(out, name);
	text_append(out, "[");
}

static void number(struct text *out, const char *name, uint64_t value)
{
	key(out, name);
	text_append(out, "%" PRIu64, value);
}

static void string(struct text *out, const char *name, const char *value)
{
	key(out, name);
	text_append_json_string(out, value);
}

static void boolean(struct text *out, const char *name, bool value)
{
	key(out, name);
	text_append(out, value ? "true" : "false");
}

static void seconds(struct text *out, const char *name, uint64_t ns)
{
	key(out, name);
	text_append(out, "%" PRIu64 ".%03" PRIu64, ns / KVR_SECOND, ns % KVR_SECOND / KVR_MS);
}

static const char *tenant_name(const struct status_sources *sources, uint32_t tenant)
{
	return tenant < sources->tenant_count ? sources->tenants[tenant].name : "?";
}

static void l1_json(const struct status_sources *sources, const struct status_snapshot *snapshot, struct text *out)
{
	const struct l1_stats *l1 = &snapshot->l1;

	open_object(out, "l1");
	number(out, "total_bytes", l1->total_bytes);
	number(out, "used_bytes", l1->used_bytes);
	number(out, "free_bytes", l1->free_page_bytes + l1->free_slot_bytes);
	number(out, "rounding_bytes", l1->rounding_bytes);
	number(out, "free_page_bytes", l1->free_page_bytes);
	number(out, "free_slot_bytes", l1->free_slot_bytes);
	number(out, "metadata_bytes", l1->metadata_bytes);
	number(out, "objects", l1->objects);
	number(out, "classes", l1->classes);
	number(out, "runs", l1->runs);
	string(out, "pages", sources->l1_pages);
	boolean(out, "locked", sources->l1_locked);
	text_append(out, "}");
}

/* Where L1 is and how it was had; behind it what the management core has put there. */
static void areas_json(const struct status_sources *sources, const struct status_snapshot *snapshot, struct text *out)
{
	open_array(out, "l1_areas");
	for (uint32_t i = 0; i < sources->area_count; i++) {
		const struct l1_mapping *mapping = sources->areas[i].mapping;

		open_object(out, NULL);
		key(out, "numa");
		text_append(out, "%d", sources->areas[i].node);
		boolean(out, "bound", mapping->numa_node >= 0);
		number(out, "bytes", mapping->bytes);
		string(out, "pages", l1_page_kind_text(mapping->pages));
		number(out, "huge_bytes", mapping->huge_bytes);
		boolean(out, "locked", mapping->locked);
		seconds(out, "touch_seconds", mapping->touch_ns);
		number(out, "touch_threads", mapping->touch_threads);
		number(out, "pages_sampled", mapping->pages_sampled);
		number(out, "pages_on_node", mapping->pages_on_node);
		if (i < snapshot->area_count) {
			number(out, "used_bytes", snapshot->areas[i].used_bytes);
			number(out, "free_page_bytes", snapshot->areas[i].free_page_bytes);
		}
		text_append(out, "}");
	}
	text_append(out, "]");
}

static void heap_json(const struct status_sources *sources, struct text *out)
{
	struct status_heap heap;

	if (!sources->heap)
		return;
	sources->heap(&heap);
	open_object(out, "heap");
	string(out, "allocator", heap.allocator);
	number(out, "allocated_bytes", heap.allocated_bytes);
	number(out, "active_bytes", heap.active_bytes);
	number(out, "resident_bytes", heap.resident_bytes);
	number(out, "retained_bytes", heap.retained_bytes);
	number(out, "metadata_bytes", heap.metadata_bytes);
	number(out, "arenas", heap.arenas);
	number(out, "process_rss_bytes", heap.rss_bytes);
	text_append(out, "}");
}

static void cache_json(const struct status_sources *sources, const struct status_snapshot *snapshot, struct text *out)
{
	const struct cache_stats *cache = &snapshot->cache;

	open_object(out, "cache");
	number(out, "chunk_tokens", sources->chunk_tokens);
	number(out, "chunks", cache->chunks);
	number(out, "objects", cache->objects);
	number(out, "staged", cache->staged);
	number(out, "resident_bytes", cache->resident_bytes);
	number(out, "staged_bytes", cache->staged_bytes);
	number(out, "locks", cache->locks);
	number(out, "pins", cache->pins);
	number(out, "held_chunks", cache->held_chunks);
	number(out, "spaces", cache->spaces);
	number(out, "table_bytes", cache->table_bytes);
	number(out, "evicted_chunks", kvr_load_relaxed(&sources->cache->evicted_chunks));
	number(out, "evicted_bytes", kvr_load_relaxed(&sources->cache->evicted_bytes));
	number(out, "no_room", kvr_load_relaxed(&sources->cache->no_room));
	if (cache->segmented) {
		number(out, "fresh_bytes", cache->fresh_bytes);
		number(out, "returned", kvr_load_relaxed(&sources->cache->returned));
		number(out, "evicted_reused", kvr_load_relaxed(&sources->cache->evicted_reused));
	}
	if (sources->kept) {
		number(out, "restored_objects", sources->kept->restored_objects);
		number(out, "restored_bytes", sources->kept->restored_bytes);
		number(out, "restore_dropped", sources->kept->dropped_objects);
		number(out, "not_kept", kvr_load_relaxed(&sources->kept->full));
	}
	text_append(out, "}");
}

static void work_json(const struct status_sources *sources, const struct status_snapshot *snapshot, struct text *out)
{
	const struct management_counters *counters = sources->management;

	open_object(out, "sessions");
	number(out, "open", snapshot->sessions);
	number(out, "max", snapshot->sessions_max);
	number(out, "locks", snapshot->locks);
	number(out, "locks_expired", kvr_load_relaxed(&counters->locks_expired_total));
	number(out, "lock_mismatches", kvr_load_relaxed(&counters->lock_mismatches_total));
	number(out, "opened", kvr_load_relaxed(&counters->sessions_opened_total));
	number(out, "ended", kvr_load_relaxed(&counters->sessions_ended_total));
	number(out, "expired", kvr_load_relaxed(&counters->sessions_expired_total));
	number(out, "lost", kvr_load_relaxed(&counters->sessions_lost_total));
	text_append(out, "}");
	open_object(out, "requests");
	number(out, "parked", snapshot->parked);
	number(out, "transfers", snapshot->transfers);
	number(out, "connections", snapshot->connections);
	number(out, "registrations", snapshot->registrations);
	text_append(out, "}");
	open_object(out, "counters");
#define ROW(name, help) number(out, #name, kvr_load_relaxed(&counters->name));
	MANAGEMENT_COUNTERS(ROW)
#undef ROW
	text_append(out, "}");
	open_object(out, "control");
#define ROW(name, help) number(out, #name, kvr_load_relaxed(&sources->control_counters->name));
	CONTROL_COUNTERS(ROW)
#undef ROW
	text_append(out, "}");
}

/* pitfalls O09: what a token takes as registered, and how many fit. */
static void models_json(const struct status_sources *sources, const struct status_snapshot *snapshot, struct text *out)
{
	number(out, "model_count", snapshot->models);
	open_array(out, "models");
	for (uint32_t i = 0; i < snapshot->model_count; i++) {
		const struct status_model *model = &snapshot->model[i];

		open_object(out, NULL);
		string(out, "name", model->name);
		string(out, "dtype", model->dtype);
		string(out, "key", model->key);
		string(out, "tenant", tenant_name(sources, model->tenant));
		number(out, "world_size", model->world_size);
		number(out, "readers", model->readers);
		number(out, "registrations", model->registrations);
		number(out, "token_bytes", model->token_bytes);
		number(out, "token_bytes_all_ranks", model->token_bytes * model->world_size);
		number(out, "chunks", model->chunks);
		number(out, "tokens", model->chunks * sources->chunk_tokens);
		number(out, "tokens_max", status_model_tokens(model, snapshot->l1.total_bytes));
		text_append(out, "}");
	}
	text_append(out, "]");
}

/* What tenants hold in L1, and may. 0: no limit. */
static void tenants_json(const struct status_sources *sources, const struct status_snapshot *snapshot, struct text *out)
{
	open_object(out, "default_quota");
	number(out, "soft_bytes", snapshot->default_quota.soft_bytes);
	number(out, "hard_bytes", snapshot->default_quota.hard_bytes);
	text_append(out, "}");
	open_array(out, "tenants");
	for (uint32_t i = 0; i < snapshot->tenant_count; i++) {
		const struct cache_account_stats *stats = &snapshot->tenant[i].stats;

		open_object(out, NULL);
		string(out, "name", tenant_name(sources, i));
		number(out, "resident_bytes", stats->resident_bytes);
		number(out, "staged_bytes", stats->staged_bytes);
		number(out, "evictable_bytes", stats->evictable_bytes);
		number(out, "soft_bytes", stats->quota.soft_bytes);
		number(out, "hard_bytes", stats->quota.hard_bytes);
		boolean(out, "own_quota", snapshot->tenant[i].own_quota);
		number(out, "evicted_chunks", stats->evicted_chunks);
		number(out, "quota_evicted_chunks", stats->quota_evicted_chunks);
		number(out, "quota_refused", stats->quota_refused);
		text_append(out, "}");
	}
	text_append(out, "]");
}

static void pins_json(const struct status_sources *sources, const struct status_snapshot *snapshot, struct text *out)
{
	number(out, "pinned_chunks", snapshot->pinned_chunks);
	number(out, "pinned_bytes", snapshot->pinned_bytes);
	number(out, "pinned_bytes_max", snapshot->pinned_bytes_max);
	open_array(out, "pins");
	for (uint32_t i = 0; i < snapshot->pin_count; i++) {
		const struct status_pin *pin = &snapshot->pin[i];

		open_object(out, NULL);
		string(out, "name", pin->name);
		string(out, "tenant", tenant_name(sources, pin->tenant));
		string(out, "model", pin->model);
		number(out, "chunks", pin->chunks);
		number(out, "tokens", pin->chunks * (uint64_t)sources->chunk_tokens);
		number(out, "bytes", pin->bytes);
		text_append(out, "}");
	}
	text_append(out, "]");
}

static void client_json(const struct control_client_status *client, uint64_t now_ns, struct text *out)
{
	open_object(out, NULL);
	string(out, "name", client->name);
	string(out, "peer", client->peer);
	string(out, "tenant", client->tenant);
	string(out, "state", client->state);
	number(out, "worker", client->worker);
	seconds(out, "connected_seconds", now_ns > client->connected_ns ? now_ns - client->connected_ns : 0);
	seconds(out, "silent_seconds", now_ns > client->last_seen_ns ? now_ns - client->last_seen_ns : 0);
	number(out, "requests", client->requests);
	number(out, "bytes_in", client->bytes_in);
	number(out, "bytes_out", client->bytes_out);
	number(out, "regions", client->regions);
	number(out, "region_bytes", client->region_bytes);
	number(out, "registrations", client->registrations);
	open_array(out, "rails");
	for (uint32_t i = 0; i < client->rail_count; i++) {
		open_object(out, NULL);
		number(out, "rail", client->rails[i].rail);
		string(out, "device", client->rails[i].device);
		string(out, "state", client->rails[i].state);
		if (client->rails[i].why[0])
			string(out, "why", client->rails[i].why);
		number(out, "bytes", client->rails[i].bytes);
		text_append(out, "}");
	}
	text_append(out, "]");
	text_append(out, "}");
}

static void clients_json(const struct status_sources *sources, uint64_t now_ns, struct text *out)
{
	struct control_client_status *clients = calloc(STATUS_CLIENTS_MAX, sizeof(*clients));
	uint32_t count = 0;

	if (!clients)
		out->failed = true;
	else if (sources->control)
		count = control_list_clients(sources->control, clients, STATUS_CLIENTS_MAX);
	number(out, "client_count", count);
	number(out, "clients_max", sources->connections_max);
	open_array(out, "clients");
	for (uint32_t i = 0; i < count && i < STATUS_CLIENTS_MAX; i++)
		client_json(&clients[i], now_ns, out);
	text_append(out, "]");
	free(clients);
}

static void devices_json(const struct status_sources *sources, struct text *out)
{
	open_array(out, "devices");
	for (uint32_t i = 0; i < sources->device_count; i++) {
		const struct verbs_device *device = sources->devices[i];

		open_object(out, NULL);
		string(out, "name", device->name);
		string(out, "driver", device->driver->name);
		if (device->driver->describe) {
			text_append(out, ",");
			device->driver->describe(device, out);
		}
		text_append(out, "}");
	}
	text_append(out, "]");
}

static void workers_json(const struct status_sources *sources, struct text *out)
{
	open_array(out, "workers");
	for (uint32_t i = 0; i < sources->worker_count; i++) {
		const struct worker_counters *counters = sources->workers[i].counters;

		open_object(out, NULL);
		number(out, "index", i);
		string(out, "device", sources->workers[i].device);
#define ROW(name, help) number(out, #name, kvr_load_relaxed(&counters->name));
		WORKER_COUNTERS(ROW)
#undef ROW
		text_append(out, "}");
	}
	text_append(out, "]");
}

static enum guard_state state_of(const struct status_sources *sources, const struct loop *loop)
{
	for (uint32_t i = 0; sources->guard && i < sources->guard->count; i++) {
		if (sources->guard->guarded[i].loop == loop)
			return sources->guard->guarded[i].state;
	}
	return GUARD_GOOD;
}

/* The path that GPU memory takes, or why there is none. */
static void gpus_json(const struct status_sources *sources, struct text *out)
{
	uint32_t count = sources->gpus ? gpus_count(sources->gpus) : 0;

	string(out, "gpu_path", count > 0 ? "mapped by interprocess handle, copied by kernel" : "none");
	string(out, "gpu_reason", sources->gpu_reason ? sources->gpu_reason : "");
	open_array(out, "gpus");
	for (uint32_t i = 0; i < count; i++) {
		struct gpu_status status;

		gpus_status(sources->gpus, i, &status);
		open_object(out, NULL);
		string(out, "name", status.name);
		string(out, "pci", status.pci);
		string(out, "uuid", status.uuid);
		boolean(out, "failed", status.failed);
		string(out, "failure", status.failure);
		number(out, "blocks", status.blocks);
		number(out, "block_threads", status.block_threads);
		number(out, "regions", status.regions);
#define ROW(name, help) number(out, #name, status.counters.name);
		GPU_COUNTERS(ROW)
#undef ROW
		text_append(out, "}");
	}
	text_append(out, "]");
}

static void loops_json(const struct status_sources *sources, uint64_t now_ns, struct text *out)
{
	open_array(out, "loops");
	for (uint32_t i = 0; i < sources->loop_count; i++) {
		const struct loop *loop = sources->loops[i];
		const struct loop_counters *counters = loop_counters(loop);
		uint64_t turn_ns = kvr_load_relaxed(&counters->turn_ns);

		open_object(out, NULL);
		string(out, "name", loop_name(loop));
		key(out, "core");
		text_append(out, "%d", loop_core(loop));
		string(out, "core_state",
			loop_wanted_core(loop) < 0 ? "none" : guard_state_text(state_of(sources, loop)));
		string(out, "waiting", loop_waiting(loop) == LOOP_BUSY ? "busy" : "adaptive");
		number(out, "realtime", (uint64_t)loop_priority(loop));
		boolean(out, "sleeping", loop_sleeping(loop));
		number(out, "busy_turns", kvr_load_relaxed(&counters->busy_turns));
		number(out, "idle_turns", kvr_load_relaxed(&counters->idle_turns));
		number(out, "yields", kvr_load_relaxed(&counters->yields));
		number(out, "sleeps", kvr_load_relaxed(&counters->sleeps));
		seconds(out, "busy_seconds", kvr_load_relaxed(&counters->busy_ns));
		seconds(out, "sleep_seconds", kvr_load_relaxed(&counters->sleep_ns));
		seconds(out, "last_turn_seconds", turn_ns && now_ns > turn_ns ? now_ns - turn_ns : 0);
		text_append(out, "}");
	}
	text_append(out, "]");
}

static const char *health_reason(const struct l2_health *health)
{
	if (health->state == L2_HEALTH_GOOD)
		return "";
	return health->error == -ETIMEDOUT ? "it does not answer" : strerror(-health->error);
}

bool status_degraded(const struct status_sources *sources, uint64_t now_ns, struct text *out)
{
	uint32_t count = sources->l2 ? l2_adapter_count(sources->l2) : 0;
	bool degraded = false;

	for (uint32_t i = 0; i < count; i++) {
		struct l2_health health;
		char since[TEXT_SHORT];

		l2_get_health(sources->l2, i, &health);
		if (health.state == L2_HEALTH_GOOD)
			continue;
		text_append(out, "%sL2 place %s has been %s for %s (%s)", degraded ? "; " : "",
			l2_adapter_at(sources->l2, i)->name, l2_health_text(health.state),
			text_time(since, now_ns > health.since_ns ? now_ns - health.since_ns : 0),
			health_reason(&health));
		degraded = true;
	}
	return degraded;
}

static void health_json(const struct l2_health *health, uint64_t now_ns, struct text *out)
{
	bool changed = health->since_ns > 0 && now_ns > health->since_ns;

	string(out, "health", l2_health_text(health->state));
	string(out, "health_reason", health_reason(health));
	seconds(out, "health_seconds", changed ? now_ns - health->since_ns : 0);
	seconds(out, "next_probe_seconds", health->probe_ns > now_ns ? health->probe_ns - now_ns : 0);
	number(out, "outages", health->outages);
	number(out, "timeouts", health->timeouts);
	number(out, "probes", health->probes);
	number(out, "stores_dropped", health->dropped);
	number(out, "unanswered", health->unanswered);
}

static void place_json(const struct l2 *l2, uint32_t index, uint64_t now_ns, struct text *out)
{
	struct l2_adapter *adapter = l2_adapter_at(l2, index);
	struct l2_health health;
	struct l2_stats stats;

	memset(&stats, 0, sizeof(stats));
	adapter->driver->get_stats(adapter, &stats);
	open_object(out, NULL);
	string(out, "name", adapter->name);
	string(out, "kind", adapter->driver->kind);
	l2_get_health(l2, index, &health);
	health_json(&health, now_ns, out);
	boolean(out, "counted", !stats.uncounted);
	number(out, "objects", stats.objects);
	number(out, "bytes", stats.bytes);
	number(out, "capacity_bytes", stats.capacity_bytes);
	number(out, "loads", stats.loads);
	number(out, "load_bytes", stats.load_bytes);
	number(out, "stores", stats.stores);
	number(out, "store_bytes", stats.store_bytes);
	number(out, "misses", stats.misses);
	number(out, "corrupt", stats.corrupt);
	number(out, "errors", stats.errors);
	number(out, "evicted", stats.evicted);
	number(out, "evicted_bytes", stats.evicted_bytes);
	number(out, "in_flight", stats.in_flight);
	boolean(out, "scanning", stats.scanning);
	boolean(out, "read_only", stats.read_only);
	string(out, "condition", stats.condition);
	text_append(out, "}");
}

static void l2_json(const struct status_sources *sources, uint64_t now_ns, struct text *out)
{
	static const char *const policies[] = { "all", "second-use", "none" };
	const struct l2_counters *counters;

	if (!sources->l2) {
		key(out, "l2");
		text_append(out, "null");
		return;
	}
	counters = l2_get_counters(sources->l2);
	open_object(out, "l2");
	string(out, "policy", policies[l2_get_policy(sources->l2)]);
	number(out, "lookups_now", kvr_load_relaxed(&counters->fetches_now));
	number(out, "loads_now", kvr_load_relaxed(&counters->loads_now));
	number(out, "load_bytes_now", kvr_load_relaxed(&counters->load_bytes_now));
	number(out, "stores_waiting", kvr_load_relaxed(&counters->stores_waiting));
	number(out, "stores_now", kvr_load_relaxed(&counters->stores_now));
	number(out, "store_bytes_now", kvr_load_relaxed(&counters->store_bytes_now));
#define ROW(name, help) number(out, #name, kvr_load_relaxed(&counters->name));
	L2_COUNTERS(ROW)
#undef ROW
	open_array(out, "places");
	for (uint32_t i = 0; i < l2_adapter_count(sources->l2); i++)
		place_json(sources->l2, i, now_ns, out);
	text_append(out, "]}");
}

static void degraded_json(const struct status_sources *sources, uint64_t now_ns, struct text *out)
{
	struct text words = { NULL, 0, 0, false };

	string(out, "degraded", status_degraded(sources, now_ns, &words) && words.bytes ? words.bytes : "");
	text_fini(&words);
}

void status_page_json(const struct status_sources *sources, const struct status_snapshot *snapshot,
	const char *not_ready, uint64_t now_ns, struct text *out)
{
	text_append(out, "{");
	string(out, "version", sources->version);
	key(out, "boot_id");
	text_append(out, "\"%016" PRIx64 "\"", sources->boot_id);
	seconds(out, "uptime_seconds", now_ns - sources->started_ns);
	boolean(out, "ready", not_ready == NULL);
	string(out, "not_ready", not_ready ? not_ready : "");
	degraded_json(sources, now_ns, out);
	boolean(out, "draining", snapshot->draining);
	l1_json(sources, snapshot, out);
	areas_json(sources, snapshot, out);
	heap_json(sources, out);
	cache_json(sources, snapshot, out);
	l2_json(sources, now_ns, out);
	work_json(sources, snapshot, out);
	models_json(sources, snapshot, out);
	tenants_json(sources, snapshot, out);
	pins_json(sources, snapshot, out);
	clients_json(sources, now_ns, out);
	devices_json(sources, out);
	workers_json(sources, out);
	gpus_json(sources, out);
	loops_json(sources, now_ns, out);
	key(out, "plan");
	text_append(out, "%.*s", sources->plan_json ? (int)strcspn(sources->plan_json, "\n") : 4,
		sources->plan_json ? sources->plan_json : "null");
	key(out, "options");
	text_append(out, "%s}\n", sources->options_json);
}
