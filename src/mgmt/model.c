#include "mgmt/state.h"

#include <string.h>

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

static struct model *model_make(struct management *management, const struct registration *registration)
{
	struct model *model = pool_take(&management->models_pool);

	if (!model)
		return NULL;
	memset(model, 0, sizeof(*model));
	list_init(&model->idle);
	list_init(&model->registrations);
	list_add_last(&management->models, &model->node);
	memcpy(model->key, registration->model_key, sizeof(model->key));
	memcpy(model->name, registration->model_name, sizeof(model->name));
	memcpy(model->dtype, registration->dtype, sizeof(model->dtype));
	model->number = pool_index(&management->models_pool, model);
	model->tenant = registration->tenant;
	model->world_size = registration->world_size;
	model_set_readers(model, registration->readers);
	return model;
}

struct model *model_intern(struct management *management, struct registration *registration)
{
	struct model *model = model_find(management, registration->model_key);

	if (!model) {
		model = model_make(management, registration);
		if (!model)
			return refuse(registration, STATUS_BUSY,
				"the server keeps its maximum of models: CLEAR one that is not used any more");
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
	list_remove(&model->node);
	pool_give(&management->models_pool, model);
}
