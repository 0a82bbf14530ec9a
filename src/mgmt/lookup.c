/*
 * lookup.c - LOOKUP: the longest prefix of a session's chain that is there for all ranks.
 *
 *   lookup_start -> RUNNING: search_slice ... -> search_matched -> KNOWN: reply, waiting QUERYs
 *                                                      |   ^
 *                                  something missing,  v   |  prefetch_done, or the deadline: a second look
 *                                  and there is an L2  ASKED
 *
 * A chunk is locked as it is found, so that what has been counted stays. What the session holds from its last LOOKUP
 * is kept where it is found again and released where it is not: never a second set of locks, and no moment without
 * one (pitfalls A15).
 */
#include "mgmt/state.h"

#include <string.h>

static void search_detach(struct session *session)
{
	struct prefetch_job *job = session->search.job;
	struct management *management = session->management;

	wheel_cancel(&management->wheel, &session->deadline);
	session->search.job = NULL;
	if (job) {
		job->session = NULL;
		management->engine.cancel(management->engine.context, job);
	}
}

/* Takes the request that waits for the search, with its reply filled in. */
static struct request *search_take_request(struct session *session, uint16_t status, const char *text)
{
	struct request *request = session->search.request;

	session->search.request = NULL;
	if (!request)
		return NULL;
	reply_set(&request->reply, status, "%s", text);
	request->reply.first = session->search.at;
	request->reply.second = session->search.again ? session->search.at - session->search.from_l1 : 0;
	return request;
}

static void search_count(const struct session *session)
{
	struct management *management = session->management;
	const struct search *search = &session->search;
	uint64_t tokens = management->options.chunk_tokens;

	COUNT(management, lookups_total, 1);
	COUNT(management, lookup_chunks_total, search->asked);
	COUNT(management, lookup_tokens_total, search->asked * tokens);
	COUNT(management, lookup_hit_chunks_total, search->at);
	COUNT(management, lookup_hit_tokens_total, search->at * tokens);
	COUNT(management, l1_hit_chunks_total, search->from_l1);
	COUNT(management, l2_hit_chunks_total, search->at - search->from_l1);
}

static void search_complete(struct session *session)
{
	struct management *management = session->management;
	struct search *search = &session->search;
	struct request *request;

	search->state = SEARCH_KNOWN;
	wheel_cancel(&management->wheel, &session->deadline);
	if (search->lock) {
		lock_release_begin(session, search->at, false);
		if (session->locks && management->options.lock_ttl_ns)
			wheel_arm(&management->wheel, &session->limit,
				management->now_ns + management->options.lock_ttl_ns);
	}
	search_count(session);
	request = search_take_request(session, STATUS_OK, "");
	if (request)
		reply_give(management, request);
	query_answer_all(session, STATUS_OK, "");
}

static void job_fill(struct session *session, struct prefetch_job *job)
{
	struct search *search = &session->search;

	memset(job, 0, sizeof(*job));
	list_init(&job->node);
	job->management = session->management;
	job->session = session;
	job->model = session->model->number;
	job->space = session->space;
	job->parts = session->model->world_size;
	job->tenant = session->model->tenant;
	job->model_key = session->model->key;
	job->part_bytes = session->model->part_bytes;
	memcpy(job->salt, session->salt, sizeof(job->salt));
	job->first = search->at;
	job->count = search->limit - search->at;
	job->deadline_ns = search->deadline_ns;
}

/* Asks L2 for the rest. False: there is none, or it cannot be asked now. */
static bool search_ask(struct session *session)
{
	struct management *management = session->management;
	struct search *search = &session->search;
	struct prefetch_job *job;
	struct request *request;

	if (!management->engine.begin || search->at == search->limit || management->draining)
		return false;
	job = pool_take(&management->jobs_pool);
	if (!job)
		return false;
	job_fill(session, job);
	session->model->job_count++;
	search->job = job;
	search->state = SEARCH_ASKED;
	if (management->engine.begin(management->engine.context, job)) {
		search->job = NULL;
		search->state = SEARCH_RUNNING;
		job->session = NULL;
		session->model->job_count--;
		pool_give(&management->jobs_pool, job);
		return false;
	}
	if (search->state != SEARCH_ASKED)
		return true; /* answered already */
	if (search->deadline_ns)
		wheel_arm(&management->wheel, &session->deadline, search->deadline_ns);
	if (search->no_wait) {
		request = search_take_request(session, STATUS_PENDING, "L2 is being asked: QUERY tells the result");
		if (request)
			reply_give(management, request);
	}
	return true;
}

static void search_matched(struct session *session)
{
	struct search *search = &session->search;

	if (!search->again) {
		search->from_l1 = search->at;
		if (search_ask(session))
			return;
	}
	search_complete(session);
}

void search_slice(struct session *session)
{
	struct management *management = session->management;
	struct search *search = &session->search;
	uint32_t stop = (uint32_t)kvr_min_u64(search->limit, (uint64_t)search->at + SLICE_CHUNKS);
	uint32_t entries[SEGMENT_CHUNKS];

	while (search->at < stop) {
		uint32_t run = (uint32_t)kvr_min_u64(SEGMENT_CHUNKS - search->at % SEGMENT_CHUNKS, stop - search->at);
		uint32_t found = cache_match(
			management->cache, session->space, chain_digest(session, search->at), run, entries);

		management->budget -= run;
		if (search->lock)
			lock_take_run(session, search->at, entries, found);
		search->at += found;
		if (found < run) {
			search_matched(session);
			return;
		}
	}
	if (search->at == search->limit)
		search_matched(session);
}

void search_deadline(struct session *session)
{
	if (session->search.state != SEARCH_ASKED)
		return;
	search_detach(session);
	session->search.state = SEARCH_RUNNING;
	session->search.again = true;
	session_go(session);
}

void search_hurry_all(struct management *management)
{
	for (uint32_t n = 0; n < management->jobs_pool.count; n++) {
		struct prefetch_job *job = pool_at(&management->jobs_pool, n);

		if (job->session)
			search_deadline(job->session);
	}
}

/* Ends what the search has under way, but for its locks. Returns the request to be answered. */
static struct request *search_stop(struct session *session, uint16_t status, const char *text)
{
	search_detach(session);
	session->search.state = SEARCH_NONE;
	return search_take_request(session, status, text);
}

void search_abandon(struct session *session, uint16_t status, const char *text)
{
	struct management *management = session->management;
	struct request *request = search_stop(session, status, text);

	if (session->search.lock)
		lock_release_begin(session, 0, false);
	/* Whoever asks for the LOOKUP's result may have another connection, and must not take it for lost. */
	query_answer_all(session, STATUS_CANCELED,
		status == STATUS_CONNECTION_LOST ? "the connection that looked up is gone" : text);
	if (request)
		reply_give(management, request);
	if (!session->ended)
		session_go(session);
}

static void search_begin(struct session *session, struct request *request, uint32_t asked)
{
	struct management *management = session->management;
	const struct lookup_request *lookup = &request->message.lookup;
	struct search *search = &session->search;
	uint64_t patience = lookup->deadline_ns ? lookup->deadline_ns : management->engine.default_deadline_ns;

	memset(search, 0, sizeof(*search));
	session->begun_ns = management->now_ns;
	search->state = SEARCH_RUNNING;
	search->request = request;
	search->asked = asked;
	/* Nothing can be there for a model that no worker has registered for: no rank's object size is known. */
	search->limit = session->model->worker_count ? asked : 0;
	search->lock = !(lookup->header.flags & LOOKUP_NO_LOCK);
	search->no_wait = lookup->header.flags & LOOKUP_NO_WAIT;
	if (patience && __builtin_add_overflow(management->now_ns, patience, &search->deadline_ns))
		search->deadline_ns = 0;
	if (search->lock) {
		lock_release_stop(session);
		wheel_cancel(&management->wheel, &session->limit);
	}
}

void lookup_start(struct management *management, struct request *request)
{
	const struct lookup_request *lookup = &request->message.lookup;
	struct registration *registration = registration_find(management, request, lookup->registration, false);
	struct request *former = NULL;
	struct session *session;
	uint32_t asked;

	if (!registration)
		return;
	session = session_open(management, registration->model, &lookup->session, &request->reply);
	if (!session) {
		reply_give(management, request);
		return;
	}
	asked = lookup->chunk_count ? lookup->chunk_count : session->chunk_count;
	if (!chain_has(session, 0, asked, &request->reply)) {
		reply_give(management, request);
		return;
	}
	if (search_under_way(session)) {
		former = search_stop(session, STATUS_CANCELED, "another LOOKUP of this session took its place");
		if (session->search.lock)
			lock_release_begin(session, 0, false);
	}
	/* With its owner's connection the session ends: who only counts does not take it from the one whose locks it holds. */
	if (!(lookup->header.flags & LOOKUP_NO_LOCK) || !session->owner)
		session_own(session, request->connection);
	request->session = session;
	request->stage = STAGE_LOOKUP;
	search_begin(session, request, asked);
	if (former)
		reply_give(management, former);
	session_go(session);
}

/* ---- the engine's side ---- */

const uint8_t *prefetch_digest(const struct prefetch_job *job, uint32_t index)
{
	return chain_digest(job->session, job->first + index);
}

void prefetch_early(struct prefetch_job *job, uint32_t count)
{
	job->early = count;
	job->early_known = true;
	if (job->session)
		query_answer_early(job->session);
}

/* The second look is taken at once, while the engine still holds what it brought. */
void prefetch_done(struct prefetch_job *job)
{
	struct management *management = job->management;
	struct session *session = job->session;
	struct model *model = model_at(management, job->model);

	model->job_count--;
	model_settle(management, model);
	job->session = NULL;
	pool_give(&management->jobs_pool, job);
	if (!session)
		return;
	session->search.job = NULL;
	session->search.state = SEARCH_RUNNING;
	session->search.again = true;
	while (session->search.state == SEARCH_RUNNING)
		search_slice(session);
	if (lock_releasing(session))
		session_go(session);
	else
		session_settle(session);
}
