#include "app/kvrail-sim/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int model_init(struct world_model *model, uint32_t number, uint32_t namespaces, uint32_t nodes, uint32_t ranks)
{
	memset(model, 0, sizeof(*model));
	model->nodes = nodes;
	model->ranks = ranks;
	model->object_count = namespaces * nodes * ranks;
	model->first_object = number * model->object_count;
	model->objects = calloc(model->object_count, sizeof(model->objects[0]));
	model->generation_capacity = 1024;
	model->generations = calloc(model->generation_capacity, sizeof(model->generations[0]));
	model->generation_count = 1; /* 0 is none */
	model->first_alive = 1;
	model->epoch = 1;
	return model->objects && model->generations ? 0 : -ENOMEM;
}

void model_fini(struct world_model *model)
{
	free(model->objects);
	free(model->generations);
	model->objects = NULL;
	model->generations = NULL;
}

static struct model_object *object_at(const struct world_model *model, uint32_t object)
{
	return &model->objects[object - model->first_object];
}

uint32_t model_attempt(struct world_model *model, uint32_t object)
{
	struct generation *generation;

	if (model->generation_count == model->generation_capacity) {
		size_t capacity = 2 * (size_t)model->generation_capacity;
		struct generation *more = realloc(model->generations, capacity * sizeof(*more));

		if (!more)
			return 0;
		model->generations = more;
		model->generation_capacity = (uint32_t)capacity;
	}
	generation = &model->generations[model->generation_count];
	generation->object = object;
	generation->state = GENERATION_ATTEMPTED;
	generation->answered = 0;
	generation->dead_since = UINT64_MAX;
	object_at(model, object)->possible++;
	return model->generation_count++;
}

static void model_kill(struct world_model *model, uint32_t number, uint64_t since)
{
	struct generation *generation = &model->generations[number];

	if (generation->dead_since != UINT64_MAX || number < model->first_alive)
		return;
	generation->dead_since = since;
	object_at(model, generation->object)->possible--;
}

static void model_is_there(struct world_model *model, struct model_object *object, uint64_t epoch, uint64_t now)
{
	if (epoch != model->epoch || object->epoch == model->epoch)
		return; /* something may have been taken away meanwhile; or it was certain already */
	object->epoch = epoch;
	object->since = now;
}

void model_stored(struct world_model *model, uint32_t number, uint64_t submitted, uint64_t epoch, uint64_t now)
{
	struct generation *generation = &model->generations[number];
	struct model_object *object = object_at(model, generation->object);

	generation->state = GENERATION_STORED;
	generation->answered = now;
	if (number < model->first_alive)
		return;
	/* Ours could be published only because the one before was not there any more. */
	if (!model->persistent && object->stored >= model->first_alive &&
		model->generations[object->stored].answered < submitted)
		model_kill(model, object->stored, now);
	object->stored = number;
	model_is_there(model, object, epoch, now);
}

bool model_present(struct world_model *model, uint32_t number, uint64_t epoch, uint64_t now)
{
	struct model_object *object = object_at(model, model->generations[number].object);

	model_never(model, number);
	if (number < model->first_alive)
		return true;
	model_is_there(model, object, epoch, now);
	return object->possible > 0;
}

void model_never(struct world_model *model, uint32_t number)
{
	model->generations[number].state = GENERATION_NEVER;
	model_kill(model, number, 0);
	model->generations[number].dead_since = 0;
}

void model_restart(struct world_model *model, uint64_t now)
{
	model->restarted = now;
	model->epoch++;
	if (model->persistent)
		return;
	model->first_alive = model->generation_count;
	for (uint32_t i = 0; i < model->object_count; i++) {
		model->objects[i].possible = 0;
		model->objects[i].stored = 0;
	}
}

const char *model_check(const struct world_model *model, uint32_t object, uint32_t number, uint64_t submitted)
{
	const struct generation *generation;

	if (number == 0 || number >= model->generation_count)
		return "bytes that no STORE ever wrote";
	generation = &model->generations[number];
	if (generation->object != object)
		return "the bytes of another chunk, rank or namespace";
	if (generation->state == GENERATION_NEVER)
		return "the bytes of a STORE that did not store them";
	if (number < model->first_alive && submitted > model->restarted)
		return "bytes from before the server was restarted";
	if (generation->dead_since < submitted)
		return "bytes that were replaced before";
	return NULL;
}
