/* query.c - QUERY: the result of a session's last LOOKUP. It stays until the next one, so asking twice gives the
 * same. */
#include "mgmt/state.h"

static uint32_t from_l2(const struct search *search)
{
	return search->again ? search->at - search->from_l1 : 0;
}

static void answer(struct management *management, struct request *request, uint16_t status, const char *text)
{
	const struct session *session = request->session;

	reply_set(&request->reply, status, "%s", text);
	request->reply.first = session->search.at;
	request->reply.second = from_l2(&session->search);
	reply_give(management, request);
}

/* True when the engine knows more than the search does. */
static bool answer_early(struct management *management, struct request *request)
{
	const struct search *search = &request->session->search;

	if (!(request->message.query.header.flags & QUERY_EARLY) || !search->job || !search->job->early_known)
		return false;
	reply_set(&request->reply, STATUS_OK, "%s", "");
	request->reply.first = search->from_l1 + search->job->early;
	request->reply.second = search->job->early;
	reply_give(management, request);
	return true;
}

void query_start(struct management *management, struct request *request)
{
	const struct query_request *query = &request->message.query;
	struct registration *registration = registration_find(management, request, query->registration, false);
	struct session *session;
	uint64_t at;

	if (!registration)
		return;
	session = session_attach(management, registration->model, &query->session, &request->reply);
	if (!session) {
		reply_give(management, request);
		return;
	}
	request->session = session;
	session_settle(session);
	if (!search_under_way(session)) {
		answer(management, request, STATUS_OK, "");
		return;
	}
	if (answer_early(management, request))
		return;
	if (!query->timeout_ns) {
		answer(management, request, STATUS_PENDING, "the lookup is not done yet");
		return;
	}
	request->stage = STAGE_QUERY;
	list_add_last(&session->waiters, &request->waiting);
	if (!__builtin_add_overflow(management->now_ns, query->timeout_ns, &at))
		wheel_arm(&management->wheel, &request->timer, at);
	session_settle(session);
}

void query_timeout(struct request *request)
{
	struct session *session = request->session;

	list_remove(&request->waiting);
	answer(session->management, request, STATUS_PENDING, "the lookup is not done yet");
	session_settle(session);
}

void query_answer_all(struct session *session, uint16_t status, const char *text)
{
	struct list_node *node;

	while ((node = list_pop_first(&session->waiters)))
		answer(session->management, KVR_CONTAINER_OF(node, struct request, waiting), status, text);
}

void query_answer_early(struct session *session)
{
	list_for_each_safe(node, &session->waiters)
		answer_early(session->management, KVR_CONTAINER_OF(node, struct request, waiting));
}
