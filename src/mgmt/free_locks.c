/* free_locks.c - FREE_LOCKS: gives back locks that no RETRIEVE is going to take. */
#include "mgmt/state.h"

/* The shares that the request names; false: there is no such reader. */
static bool named_shares(const struct free_locks_request *message, const struct model *model, uint64_t *shares)
{
	*shares = model->all_shares;
	if (message->rank == WIRE_ALL_RANKS)
		return true;
	if (message->rank >= model->world_size || message->reader >= model->readers)
		return false;
	*shares = (uint64_t)1 << (message->rank * model->readers + message->reader);
	return true;
}

void free_locks_start(struct management *management, struct request *request)
{
	const struct free_locks_request *message = &request->message.free_locks;
	struct registration *registration = registration_find(management, request, message->registration, false);
	struct session *session;
	uint64_t shares;

	if (!registration)
		return;
	session = session_attach(management, registration->model, &message->session, &request->reply);
	if (!session) {
		COUNT(management, lock_mismatches_total, 1);
		reply_give(management, request);
		return;
	}
	if (!chain_has(session, message->first_chunk, message->chunk_count, &request->reply)) {
		reply_give(management, request);
		return;
	}
	if (!named_shares(message, session->model, &shares)) {
		reply_refuse(management, request, STATUS_INVALID_RANGE,
			"rank %u, reader %u: the model has %u ranks with %u readers", message->rank, message->reader,
			session->model->world_size, session->model->readers);
		return;
	}
	session->users++;
	session_settle(session);
	request->session = session;
	request->stage = STAGE_FREE;
	request->progress = message->chunk_count;
	request_go(management, request);
}

/* Last chunks first, so that they are evicted first. */
void free_locks_slice(struct management *management, struct request *request)
{
	const struct free_locks_request *message = &request->message.free_locks;
	struct session *session = request->session;
	uint32_t stop = request->progress > SLICE_CHUNKS ? request->progress - SLICE_CHUNKS : 0;
	uint64_t shares = 0;

	(void)named_shares(message, session->model, &shares);
	management->budget -= request->progress - stop;
	while (request->progress > stop)
		request->reply.first += lock_drop(session, message->first_chunk + --request->progress, shares);
	if (request->progress > 0)
		return;
	if (request->reply.first == 0) {
		COUNT(management, lock_mismatches_total, 1);
		reply_set(&request->reply, STATUS_NO_LOCK,
			"no such lock on chunks %u .. %u: it was released, taken by a RETRIEVE, or expired",
			message->first_chunk, message->first_chunk + message->chunk_count - 1);
	}
	request->session = NULL;
	session_leave(session);
	reply_give(management, request);
}
