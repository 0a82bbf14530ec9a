/*
 * transfer.c - what RETRIEVE and STORE have in common.
 *
 *   RETRIEVE:  find and pin ------------------+-> OUT (TRANSFER, TRANSFER_DONE) -> FINISH, last chunk first -> reply
 *   STORE:     look -> reserve ---------------+                                     ^    |
 *                                                                                   |    v  the chunk table has no room
 *                                                                                   PUBLISH_WAIT
 *
 * Pins and reserved memory are given back in FINISH only, so never while a worker may touch the memory; FINISH is
 * entered once (pitfalls A07).
 */
#include "mgmt/state.h"

#include <string.h>

static struct transfer_part *take_parts(struct management *management, struct request *request, uint32_t count)
{
	struct large_parts *large;

	request->large = NULL;
	request->transfer.outcomes = request->inline_outcomes;
	if (count <= REQUEST_INLINE_PARTS)
		return request->inline_parts;
	large = pool_take(&management->larges_pool);
	if (!large)
		return NULL;
	request->large = large;
	request->transfer.outcomes = large->outcomes;
	return large->parts;
}

void transfer_give_parts(struct management *management, void *large)
{
	pool_give(&management->larges_pool, large);
}

/* What the request says, checked against registration and session. NULL after refusing it. */
static struct session *transfer_session(
	struct management *management, struct request *request, const struct registration *registration)
{
	const struct transfer_request *message = &request->message.transfer;
	struct wire_error error;
	struct session *session;

	if (layout_check_blocks(registration->layout, message, &error)) {
		reply_refuse(management, request, error.status, "%s (at %u)", error.what, error.offset);
		return NULL;
	}
	if (message->order.layer_count > 0 && registration->layout->plane_count % message->order.layer_count != 0) {
		reply_refuse(management, request, STATUS_INVALID_RANGE,
			"the registration's %u planes are no whole number for each of %u layers",
			registration->layout->plane_count, message->order.layer_count);
		return NULL;
	}
	session = session_open(management, registration->model, &message->session, &request->reply);
	if (!session || !chain_has(session, message->first_chunk, message->chunk_count, &request->reply)) {
		reply_give(management, request);
		return NULL;
	}
	return session;
}

static void mark_idle_chunks(struct request *request)
{
	struct transfer *transfer = &request->transfer;
	bool *idle = (bool *)transfer->outcomes; /* as wide, and replaced at once */

	KVR_STATIC_ASSERT(sizeof(bool) == sizeof(uint8_t), "outcomes hold the marks for a moment");
	layout_idle_chunks(transfer->layout, &request->message.transfer, 0, idle);
	for (uint32_t n = 0; n < request->message.transfer.chunk_count; n++)
		transfer->outcomes[n] = idle[n] ? CHUNK_SKIPPED : CHUNK_PENDING;
}

void transfer_start(struct management *management, struct request *request)
{
	uint32_t count = request->message.transfer.chunk_count;
	struct registration *registration = registration_find(
		management, request, request->message.transfer.registration, true);
	struct session *session;

	if (!registration)
		return;
	session = transfer_session(management, request, registration);
	if (!session)
		return;
	request->transfer.parts = take_parts(management, request, count);
	if (!request->transfer.parts) {
		reply_refuse(management, request, STATUS_BUSY,
			"%u requests of more than %u chunks are under way: retry, or ask for fewer chunks",
			management->larges_pool.count, REQUEST_INLINE_PARTS);
		return;
	}
	for (uint32_t n = 0; n < count; n++)
		request->transfer.parts[n] = (struct transfer_part){ .entry = CACHE_NONE };
	request->transfer.layout = registration->layout;
	request->transfer.moved_bytes = 0;
	request->transfer.to_client = request->header.type == WIRE_RETRIEVE;
	/* A large one's parts are given back once its reply is encoded. */
	request->transfer.early = request->transfer.to_client && !request->large;
	mark_idle_chunks(request);
	request->session = session;
	request->registration = registration;
	request->progress = 0;
	request->stage = request->transfer.to_client ? STAGE_RETRIEVE : STAGE_STORE_LOOK;
	session->users++;
	registration->transfers++;
	session_settle(session);
	request_go(management, request);
}

void transfer_set_part(struct management *management, struct request *request, uint32_t index, uint64_t object)
{
	struct transfer_part *part = &request->transfer.parts[index];
	uint32_t area = l1_area_of(management->l1, object);

	part->address = l1_address(management->l1, object);
	part->lkey = management->area_lkeys[request->connection->worker_index * management->options.area_count + area];
	part->object = object;
}

/* ---- the end ---- */

struct tally {
	uint32_t of[CHUNK_NO_QUOTA + 1];
};

static void tally_outcomes(const struct request *request, struct tally *tally)
{
	memset(tally, 0, sizeof(*tally));
	for (uint32_t n = 0; n < request->message.transfer.chunk_count; n++)
		tally->of[request->transfer.outcomes[n]]++;
}

static void transfer_count(struct management *management, const struct request *request, const struct tally *tally)
{
	if (request->transfer.to_client) {
		COUNT(management, retrieves_total, 1);
		COUNT(management, retrieve_chunks_total, tally->of[CHUNK_DELIVERED]);
		COUNT(management, retrieve_missing_total, tally->of[CHUNK_MISSING]);
		return;
	}
	COUNT(management, stores_total, 1);
	COUNT(management, store_chunks_total, tally->of[CHUNK_STORED]);
	COUNT(management, store_present_total, tally->of[CHUNK_PRESENT]);
	COUNT(management, store_no_memory_total, tally->of[CHUNK_NO_MEMORY]);
	COUNT(management, store_no_quota_total, tally->of[CHUNK_NO_QUOTA]);
	cache_quota_refused(management->cache, request->registration->tenant, tally->of[CHUNK_NO_QUOTA]);
	COUNT(management, store_failed_total, tally->of[CHUNK_FAILED] + tally->of[CHUNK_CANCELED]);
}

/* One status for all, where all chunks failed for one reason that is not a plain miss; else the outcomes tell. */
static void transfer_set_status(struct management *management, struct request *request, const struct tally *tally)
{
	uint32_t count = request->message.transfer.chunk_count;
	uint32_t good = tally->of[CHUNK_DELIVERED] + tally->of[CHUNK_SKIPPED] + tally->of[CHUNK_STORED] +
		tally->of[CHUNK_PRESENT];

	request->reply.first = good;
	if (good == count)
		request->reply.status = STATUS_OK;
	else if (tally->of[CHUNK_NO_MEMORY] == count)
		reply_set(&request->reply, STATUS_NO_MEMORY,
			"L1 has no room for %u objects of %llu bytes: it is smaller, or what it holds is in use", count,
			(unsigned long long)request->transfer.layout->groups[0].object_bytes);
	else if (tally->of[CHUNK_NO_QUOTA] == count)
		quota_say_full(management, request);
	else if (tally->of[CHUNK_CANCELED] == count)
		reply_set(&request->reply, STATUS_CANCELED, "canceled before any chunk was moved whole");
	else
		request->reply.status = STATUS_PARTIAL;
}

static void transfer_complete(struct management *management, struct request *request)
{
	struct registration *registration = request->registration;
	struct session *session = request->session;
	struct tally tally;

	tally_outcomes(request, &tally);
	transfer_count(management, request, &tally);
	transfer_set_status(management, request, &tally);
	if (request->large && !status_has_body(request->reply.status)) {
		transfer_give_parts(management, request->large);
		request->large = NULL;
	}
	request->session = NULL;
	request->registration = NULL;
	registration->transfers--;
	registration_settle(management, registration);
	session_leave(session);
	reply_give(management, request);
}

static void publish_wait(struct management *management, struct request *request)
{
	if (!request->until_ns)
		request->until_ns = management->now_ns + PUBLISH_LIMIT_NS;
	request->stage = STAGE_PUBLISH_WAIT;
	list_remove(&request->waiting);
	list_add_last(&management->publishing, &request->waiting);
	wheel_arm(&management->wheel, &request->timer, management->now_ns + PUBLISH_RETRY_NS);
}

static void finish_slice(struct management *management, struct request *request)
{
	uint32_t stop = request->progress > SLICE_CHUNKS ? request->progress - SLICE_CHUNKS : 0;

	management->budget -= request->progress - stop;
	for (; request->progress > stop; request->progress--) {
		if (request->transfer.to_client) {
			retrieve_finish_part(management, request, request->progress - 1);
		} else if (!store_finish_part(management, request, request->progress - 1)) {
			publish_wait(management, request);
			return;
		}
	}
	if (request->progress == 0)
		transfer_complete(management, request);
}

static void finish_begin(struct management *management, struct request *request)
{
	request->stage = STAGE_FINISH;
	request->progress = request->message.transfer.chunk_count;
	request_go(management, request);
}

void transfer_done(struct management *management, struct request *request)
{
	if (request->stage != STAGE_OUT && request->stage != STAGE_OUT_ABORTED) {
		log_error("management: a transfer of connection %u ended twice", request->connection->number);
		return;
	}
	management->transfers--;
	list_add_last(&request->connection->requests_in_management, &request->node);
	finish_begin(management, request);
}

void transfer_cut_short(struct management *management, struct request *request)
{
	uint8_t *outcomes = request->transfer.outcomes;

	for (uint32_t n = 0; n < request->message.transfer.chunk_count; n++)
		if (outcomes[n] == CHUNK_PENDING)
			outcomes[n] = CHUNK_CANCELED;
	finish_begin(management, request);
}

static void transfer_send(struct management *management, struct request *request)
{
	if (!memchr(request->transfer.outcomes, CHUNK_PENDING, request->message.transfer.chunk_count)) {
		finish_begin(management, request);
		return;
	}
	list_remove(&request->waiting);
	list_remove(&request->node);
	request->stage = STAGE_OUT;
	management->transfers++;
	worker_push(management, request->connection->worker_index, TO_WORKER_TRANSFER, request, 0);
}

void transfer_slice(struct management *management, struct request *request)
{
	if (request->stage == STAGE_RETRIEVE) {
		if (retrieve_prepare(management, request))
			transfer_send(management, request);
	} else if (request->stage == STAGE_STORE_LOOK) {
		if (!store_look(management, request))
			return;
		request->stage = STAGE_STORE_RESERVE;
		request->progress = 0;
		if (management->budget > 0)
			transfer_slice(management, request);
	} else if (request->stage == STAGE_STORE_RESERVE) {
		if (store_reserve(management, request))
			transfer_send(management, request);
	} else {
		finish_slice(management, request);
	}
}
