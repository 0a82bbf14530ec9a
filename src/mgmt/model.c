#include "mgmt/state.h"

#include <string.h>

#include "base/text.h"

static KVR_COLD struct model *refuse(struct registration *registration, uint16_t status, const char *text)
{
	registration->reply_status = status;
	memcpy(registration->reply_text, text, strlen(text) + 1);
	return NULL;
}

static struct model *model_find(struct management *management, const uint8_t *key)
{
	list_for_each(node, &management->models) {
		struct model *model = KVR_CONTAINER_OF(node, struct model, node);

		if (memcmp(model->key, key, sizeof(model->key)) == 0)
			return model;
	}
	return NULL;
}

static void model_set_readers(struct model *model, uint32_t readers)
{
	model->readers = readers;
	model->shares = model->world_size * readers;
	model->all_shares = model->shares == 64 ? UINT64_MAX : ((uint64_t)1 << model->shares) - 1;
}

static struct model *model_make(
	struct management *management, const uint8_t *key, uint32_t tenant, uint32_t world_size, uint32_t readers)
{
	struct model *model = pool_take(&management->models_pool);

	if (!model)
		return NULL;
	memset(model, 0, sizeof(*model));
	list_init(&model->idle);
	list_init(&model->registrations);
	list_add_last(&management->models, &model->node);
	memcpy(model->key, key, sizeof(model->key));
	model->number = pool_index(&management->models_pool, model);
	model->tenant = tenant;
	cache_set_account(management->cache, model->number, tenant);
	model->world_size = world_size;
	model_set_readers(model, readers);
	return model;
}

/* Its chunks outlive the server only when the index knows it. */
static void model_keep(const struct management *management, const struct model *model)
{
	const struct management_options *options = &management->options;
	struct keep_model kept;

	KVR_STATIC_ASSERT(sizeof(model->name) <= sizeof(kept.name), "names fit");
	KVR_STATIC_ASSERT(sizeof(model->dtype) <= sizeof(kept.dtype), "types fit");
	KVR_STATIC_ASSERT(MODELS_MAX <= KEEP_MODELS, "numbers fit");
	if (!options->keep)
		return;
	memset(&kept, 0, sizeof(kept));
	memcpy(kept.key, model->key, sizeof(kept.key));
	memcpy(kept.name, model->name, sizeof(model->name));
	memcpy(kept.dtype, model->dtype, sizeof(model->dtype));
	text_copy(kept.tenant, sizeof(kept.tenant), options->tenant_name(options->context, model->tenant));
	kept.world_size = model->world_size;
	kept.readers = model->readers;
	(void)keep_put_model(options->keep, model->number, &kept);
}

uint32_t management_take_model(struct management *management, const struct keep_model *kept, uint32_t tenant)
{
	struct model *model;

	if (kept->world_size == 0 || kept->readers == 0 || kept->world_size > SHARES_MAX ||
		kept->readers > SHARES_MAX / kept->world_size || model_find(management, kept->key))
		return UINT32_MAX;
	model = model_make(management, kept->key, tenant, kept->world_size, kept->readers);
	if (!model)
		return UINT32_MAX;
	text_copy(model->name, sizeof(model->name), kept->name);
	text_copy(model->dtype, sizeof(model->dtype), kept->dtype);
	model_settle(management, model);
	return model->number;
}

struct model *model_intern(struct management *management, struct registration *registration)
{
	struct model *model = model_find(management, registration->model_key);

	if (!model) {
		model = model_make(management, registration->model_key, registration->tenant, registration->world_size,
			registration->readers);
		if (!model)
			return refuse(registration, STATUS_BUSY,
				"the server keeps its maximum of models: CLEAR one that is not used any more");
		memcpy(model->name, registration->model_name, sizeof(model->name));
		memcpy(model->dtype, registration->dtype, sizeof(model->dtype));
		model_keep(management, model);
		return model;
	}
	if (model->world_size != registration->world_size)
		return refuse(registration, STATUS_LAYOUT_MISMATCH,
			"another world size is registered under this model identity");
	if (model->readers != registration->readers) {
		if (model->registration_count || model->session_count)
			return refuse(registration, STATUS_LAYOUT_MISMATCH,
				"another number of readers is registered under this model identity");
		model_set_readers(model, registration->readers);
	}
	return model;
}

void model_settle(struct management *management, struct model *model)
{
	if (model->registration_count || model->session_count || model->job_count)
		list_remove(&model->idle);
	else if (!list_linked(&model->idle))
		list_add_last(&management->idle_models, &model->idle);
}

void model_idle_step(struct management *management)
{
	struct list_node *node = list_pop_first(&management->idle_models);
	struct model *model;

	if (!node)
		return;
	model = KVR_CONTAINER_OF(node, struct model, idle);
	if (cache_model_chunks(management->cache, model->number)) {
		list_add_last(&management->idle_models, node);
		return;
	}
	/* No chunk, session or registration knows the number: the next model may have it. */
	if (management->options.keep)
		keep_drop_model(management->options.keep, model->number);
	list_remove(&model->node);
	pool_give(&management->models_pool, model);
}
