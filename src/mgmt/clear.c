/* clear.c - CLEAR, a client's and the operator's: drops chunks that nothing holds, from L1 and from L2. */
#include <string.h>

#include "mgmt/state.h"

struct clear_run {
	uint8_t *step; /* enum clear_step */
	uint32_t *cursor;
	uint64_t dropped, kept; /* in this slice */
	uint32_t failed;
};

struct clear_scope {
	struct management *management;
	uint32_t tenant;
	uint32_t model;  /* of this number; CACHE_NONE: of the tenant */
	bool everything; /* of all tenants */
};

static bool wanted(void *context, uint32_t model)
{
	const struct clear_scope *scope = context;

	if (scope->everything)
		return true;
	if (scope->model != CACHE_NONE)
		return model == scope->model;
	return model_at(scope->management, model)->tenant == scope->tenant;
}

void clear_start(struct management *management, struct request *request)
{
	uint32_t number = request->message.clear.registration;

	if (!request->connection->may_clear) {
		reply_refuse(management, request, STATUS_NOT_ALLOWED,
			"this credential may not CLEAR: the server's configuration says who may");
		return;
	}
	if (number != UINT32_MAX) {
		struct registration *registration = registration_find(management, request, number, false);

		if (!registration)
			return;
		request->registration = registration;
		registration->transfers++;
	}
	request->stage = STAGE_CLEAR;
	request->clear_step = CLEAR_WAIT;
	request_go(management, request);
}

/* What L2 is to remove: the models in scope, as far as this server has heard of them. Before L1 is cleared, for some of
 * them go with their last chunk. */
static void note_models(struct management *management, struct clear_scope *scope)
{
	management->clear_key_count = 0;
	list_for_each(node, &management->models) {
		const struct model *model = KVR_CONTAINER_OF(node, struct model, node);

		if (wanted(scope, model->number))
			memcpy(management->clear_keys[management->clear_key_count++], model->key, sizeof(model->key));
	}
}

static void remove_from_l2(struct management *management, const struct clear_scope *scope)
{
	const struct prefetch_engine *engine = &management->engine;

	if (scope->everything)
		engine->clear_remove(engine->context, NULL, 0);
	else
		engine->clear_remove(engine->context, management->clear_keys, management->clear_key_count);
}

/*
 * One slice. L1 is cleared between the beginning and the end of L2's: what comes from L2, or goes there, meanwhile would
 * bring it back. True: all is done.
 */
static bool run_step(struct management *management, struct clear_scope *scope, bool l1_only, struct clear_run *run)
{
	const struct prefetch_engine *engine = &management->engine;
	bool l2 = engine->clear_begin && !l1_only;

	management->budget -= SLICE_CHUNKS;
	if (*run->step == CLEAR_WAIT && (!l2 || engine->clear_begin(engine->context) == 0))
		*run->step = l2 ? CLEAR_QUIET : CLEAR_L1;
	if (*run->step == CLEAR_QUIET && engine->clear_quiet(engine->context)) {
		note_models(management, scope);
		*run->step = CLEAR_L1;
	}
	if (*run->step == CLEAR_L1) {
		if (!cache_clear_step(
			    management->cache, wanted, scope, run->cursor, SLICE_CHUNKS, &run->dropped, &run->kept))
			return false;
		*run->step = l2 ? CLEAR_L2 : CLEAR_DONE;
		if (l2)
			remove_from_l2(management, scope);
	}
	if (*run->step == CLEAR_L2 && engine->clear_ended(engine->context, &run->failed))
		*run->step = CLEAR_DONE;
	return *run->step == CLEAR_DONE;
}

static uint32_t add_clipped(uint32_t sum, uint64_t more)
{
	return (uint32_t)kvr_min_u64(sum + more, UINT32_MAX);
}

void clear_slice(struct management *management, struct request *request)
{
	struct registration *registration = request->registration;
	struct clear_scope scope = {
		.management = management,
		.tenant = request->connection->tenant,
		.model = registration ? registration->model->number : CACHE_NONE,
	};
	struct clear_run run = { .step = &request->clear_step, .cursor = &request->progress };
	bool done = run_step(management, &scope, false, &run);

	request->reply.first = add_clipped(request->reply.first, run.dropped);
	request->reply.second = add_clipped(request->reply.second, run.kept);
	if (!done)
		return;
	if (registration) {
		request->registration = NULL;
		registration->transfers--;
		registration_settle(management, registration);
	}
	if (run.failed)
		reply_set(&request->reply, STATUS_TRANSFER_FAILED,
			"L1 is cleared, but %u of the server's L2 places may still have some of it: its log says which and why",
			run.failed);
	reply_give(management, request);
}

void clear_job_add(struct management *management, struct clear_job *job)
{
	job->dropped = 0;
	job->kept = 0;
	job->failed = 0;
	job->cursor = 0;
	job->step = CLEAR_WAIT;
	list_init(&job->node);
	list_add_last(&management->clears, &job->node);
}

bool clear_job_step(struct management *management)
{
	struct clear_scope scope = { .management = management, .everything = true };
	struct clear_run run = { 0 };
	struct clear_job *job;
	bool done;

	if (list_empty(&management->clears) || ring_space(&management->outbox) <= OUTBOX_RESERVE)
		return false;
	job = KVR_CONTAINER_OF(management->clears.next, struct clear_job, node);
	run.step = &job->step;
	run.cursor = &job->cursor;
	done = run_step(management, &scope, job->l1_only, &run);
	job->dropped += run.dropped;
	job->kept += run.kept;
	job->failed += run.failed;
	if (done) {
		list_remove(&job->node);
		control_push(management, CONTROL_CLEAR_DONE, job, 0);
	}
	return true;
}
