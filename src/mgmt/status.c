#include "mgmt/state.h"

#include <string.h>

#include "base/text.h"

static void fill_model(struct management *management, const struct model *model, struct status_model *status)
{
	uint64_t object_bytes = 0;

	for (uint32_t rank = 0; rank < model->world_size && !object_bytes; rank++)
		object_bytes = model->part_bytes[rank];
	memcpy(status->name, model->name, sizeof(status->name));
	memcpy(status->dtype, model->dtype, sizeof(status->dtype));
	text_hex(status->key, model->key, (sizeof(status->key) - 1) / 2);
	status->tenant = model->tenant;
	status->world_size = model->world_size;
	status->readers = model->readers;
	status->registrations = model->registration_count;
	status->token_bytes = object_bytes / management->options.chunk_tokens;
	status->chunks = cache_model_chunks(management->cache, model->number);
}

static void fill_tenants(struct management *management, struct status_snapshot *snapshot)
{
	snapshot->tenant_count = cache_account_count(management->cache);
	snapshot->default_quota = management->options.default_quota;
	for (uint32_t i = 0; i < snapshot->tenant_count; i++) {
		cache_get_account(management->cache, i, &snapshot->tenant[i].stats);
		snapshot->tenant[i].own_quota = management->quotas[i].own;
	}
}

static void fill_pins(struct management *management, struct status_snapshot *snapshot)
{
	/* What moves is told apart from what is kept. */
	snapshot->cache.pins -= management->pinned_chunks;
	snapshot->pinned_chunks = management->pinned_chunks;
	snapshot->pinned_bytes = management->pinned_bytes;
	snapshot->pinned_bytes_max = management->options.pinned_bytes_max;
	snapshot->pin_count = 0;
	list_for_each(node, &management->pins) {
		const struct pin *pin = KVR_CONTAINER_OF(node, struct pin, node);
		struct status_pin *status = &snapshot->pin[snapshot->pin_count++];

		memcpy(status->name, pin->name, sizeof(status->name));
		memcpy(status->model, pin->model, sizeof(status->model));
		status->tenant = pin->tenant;
		status->chunks = pin->pinned;
		status->bytes = pin->bytes;
	}
}

void status_fill(struct management *management, struct status_snapshot *snapshot)
{
	cache_get_stats(management->cache, &snapshot->cache);
	l1_get_stats(management->l1, &snapshot->l1);
	snapshot->area_count = l1_area_count(management->l1);
	for (uint32_t i = 0; i < snapshot->area_count; i++)
		l1_get_area_stats(management->l1, i, &snapshot->areas[i]);
	snapshot->connections = pool_used(&management->peers_pool);
	snapshot->registrations = management->registration_count;
	snapshot->models = pool_used(&management->models_pool);
	snapshot->sessions = pool_used(&management->sessions_pool);
	snapshot->sessions_max = management->options.sessions_max;
	snapshot->parked = management->in_flight - management->transfers;
	snapshot->transfers = management->transfers;
	snapshot->locks = snapshot->cache.locks;
	snapshot->draining = management->draining;
	fill_tenants(management, snapshot);
	fill_pins(management, snapshot);
	snapshot->model_count = 0;
	list_for_each(node, &management->models) {
		if (snapshot->model_count == STATUS_MODELS_MAX)
			break;
		fill_model(management, KVR_CONTAINER_OF(node, struct model, node),
			&snapshot->model[snapshot->model_count++]);
	}
}
