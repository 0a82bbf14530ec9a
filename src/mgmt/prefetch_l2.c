#include "mgmt/prefetch_l2.h"

#include <string.h>

static const uint8_t *job_digest(void *owner, uint32_t index)
{
	return prefetch_digest(owner, index);
}

static void job_early(void *owner, uint32_t count)
{
	prefetch_early(owner, count);
}

static void job_done(void *owner)
{
	prefetch_done(owner);
}

const struct l2_callbacks prefetch_l2_callbacks = { job_digest, job_early, job_done };

static int engine_begin(void *context, struct prefetch_job *job)
{
	struct l2_want want;
	struct l2_fetch *fetch;
	int error;

	memset(&want, 0, sizeof(want));
	want.owner = job;
	want.space = job->space;
	want.parts = job->parts;
	want.tenant = job->tenant;
	want.model_key = job->model_key;
	want.salt = job->salt;
	want.part_bytes = job->part_bytes;
	want.first = job->first;
	want.count = job->count;
	want.deadline_ns = job->deadline_ns;
	error = l2_fetch_begin(context, &want, &fetch);
	job->engine = fetch;
	return error;
}

static void engine_cancel(void *context, struct prefetch_job *job)
{
	l2_fetch_cancel(context, job->engine);
}

static bool engine_step(void *context, uint64_t now_ns)
{
	return l2_step(context, now_ns);
}

static uint64_t engine_next_ns(void *context, uint64_t now_ns)
{
	return l2_next_ns(context, now_ns);
}

static void engine_used(void *context, const struct prefetch_object *object)
{
	struct l2_offer offer = { object->model_key, object->salt, object->digest, object->entry, object->part,
		object->again, object->used_ns, object->position };

	l2_offer(context, &offer);
}

static int engine_clear_begin(void *context)
{
	return l2_clear_begin(context);
}

static bool engine_clear_quiet(void *context)
{
	return l2_clear_quiet(context);
}

static void engine_clear_remove(void *context, const uint8_t (*model_keys)[32], uint32_t count)
{
	l2_clear_remove(context, model_keys, count);
}

static bool engine_clear_ended(void *context, uint32_t *failed)
{
	return l2_clear_ended(context, failed);
}

static void engine_hurry(void *context)
{
	l2_hurry(context);
}

static bool engine_idle(void *context)
{
	return l2_idle(context);
}

void prefetch_l2_engine(struct l2 *l2, uint64_t default_deadline_ns, struct prefetch_engine *engine)
{
	memset(engine, 0, sizeof(*engine));
	engine->context = l2;
	engine->default_deadline_ns = default_deadline_ns;
	engine->begin = engine_begin;
	engine->cancel = engine_cancel;
	engine->step = engine_step;
	engine->next_ns = engine_next_ns;
	engine->used = engine_used;
	engine->clear_begin = engine_clear_begin;
	engine->clear_quiet = engine_clear_quiet;
	engine->clear_remove = engine_clear_remove;
	engine->clear_ended = engine_clear_ended;
	engine->hurry = engine_hurry;
	engine->idle = engine_idle;
}
