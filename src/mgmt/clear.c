/* clear.c - CLEAR, a client's and the operator's: drops chunks that nothing holds. */
#include "mgmt/state.h"

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
	request_go(management, request);
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
	uint64_t dropped = 0, kept = 0;
	bool done = cache_clear_step(
		management->cache, wanted, &scope, &request->progress, SLICE_CHUNKS, &dropped, &kept);

	management->budget -= SLICE_CHUNKS;
	request->reply.first = add_clipped(request->reply.first, dropped);
	request->reply.second = add_clipped(request->reply.second, kept);
	if (!done)
		return;
	if (registration) {
		request->registration = NULL;
		registration->transfers--;
		registration_settle(management, registration);
	}
	reply_give(management, request);
}

void clear_job_add(struct management *management, struct clear_job *job)
{
	job->dropped = 0;
	job->kept = 0;
	job->cursor = 0;
	list_init(&job->node);
	list_add_last(&management->clears, &job->node);
}

bool clear_job_step(struct management *management)
{
	struct clear_scope scope = { .management = management, .everything = true };
	struct clear_job *job;

	if (list_empty(&management->clears) || ring_space(&management->outbox) <= OUTBOX_RESERVE)
		return false;
	job = KVR_CONTAINER_OF(management->clears.next, struct clear_job, node);
	management->budget -= SLICE_CHUNKS;
	if (cache_clear_step(
		    management->cache, wanted, &scope, &job->cursor, SLICE_CHUNKS, &job->dropped, &job->kept)) {
		list_remove(&job->node);
		control_push(management, CONTROL_CLEAR_DONE, job, 0);
	}
	return true;
}
