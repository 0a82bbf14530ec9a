/* request.c - a request from its arrival on: who it is of, what handles it, and whose turn it is. */
#include "mgmt/state.h"

#include "base/random.h"

static struct list_node *bucket_of(struct peer *peer, uint64_t id)
{
	return &peer->in_flight[random_mix(id) % PEER_BUCKETS];
}

/* One that was answered already is the server's affair alone. What comes behind its reply finds it marked: it has passed the worker since. */
static struct request *find_in_flight(struct peer *peer, uint64_t id)
{
	struct list_node *bucket = bucket_of(peer, id);

	list_for_each(node, bucket) {
		struct request *request = KVR_CONTAINER_OF(node, struct request, in_flight);

		if (request->header.request_id == id && !kvr_load_relaxed(&request->transfer.answered))
			return request;
	}
	return NULL;
}

static void publish_retry(struct wheel_timer *timer, uint64_t now_ns)
{
	struct request *request = KVR_CONTAINER_OF(timer, struct request, timer);
	struct management *management = peer_of(request->connection)->management;

	(void)now_ns;
	request->stage = STAGE_FINISH;
	list_remove(&request->waiting);
	list_add_last(&management->running, &request->waiting);
}

static void request_fire(struct wheel_timer *timer, uint64_t now_ns)
{
	struct request *request = KVR_CONTAINER_OF(timer, struct request, timer);

	if (request->stage == STAGE_QUERY)
		query_timeout(request);
	else if (request->stage == STAGE_PUBLISH_WAIT)
		publish_retry(timer, now_ns);
}

static void request_init(struct request *request)
{
	list_init(&request->node);
	list_init(&request->waiting);
	list_init(&request->in_flight);
	wheel_timer_init(&request->timer, request_fire);
	request->session = NULL;
	request->registration = NULL;
	request->canceled_by = NULL;
	request->large = NULL;
	kvr_store_relaxed(&request->transfer.answered, 0);
	request->progress = 0;
	request->stage = STAGE_NEW;
	request->until_ns = 0;
	request->reply.status = STATUS_OK;
	request->reply.first = 0;
	request->reply.second = 0;
	request->reply.text[0] = '\0';
}

static void cancel_arrived(struct management *management, struct request *request)
{
	struct request *target = find_in_flight(peer_of(request->connection), request->message.cancel.target);

	COUNT(management, cancels_total, 1);
	if (!target || target == request) {
		reply_refuse(management, request, STATUS_UNKNOWN_REQUEST, "no request with id %llu is in progress here",
			(unsigned long long)request->message.cancel.target);
		return;
	}
	if (target->header.type == WIRE_CANCEL) {
		reply_refuse(management, request, STATUS_UNKNOWN_REQUEST,
			"request %llu is a CANCEL, which cannot be canceled",
			(unsigned long long)request->message.cancel.target);
		return;
	}
	request->stage = STAGE_CANCEL;
	request->canceled_by = target->canceled_by;
	target->canceled_by = request;
	request_cut_short(management, target, STATUS_CANCELED, "canceled by a CANCEL");
}

static bool drained_type(uint16_t type)
{
	return type == WIRE_LOOKUP || type == WIRE_RETRIEVE || type == WIRE_STORE;
}

static void request_dispatch(struct management *management, struct request *request)
{
	switch (request->header.type) {
	case WIRE_LOOKUP:
		lookup_start(management, request);
		break;
	case WIRE_QUERY:
		query_start(management, request);
		break;
	case WIRE_RETRIEVE:
	case WIRE_STORE:
		transfer_start(management, request);
		break;
	case WIRE_FREE_LOCKS:
		free_locks_start(management, request);
		break;
	case WIRE_CANCEL:
		cancel_arrived(management, request);
		break;
	case WIRE_END_SESSION:
		end_session_start(management, request);
		break;
	case WIRE_CLEAR:
		clear_start(management, request);
		break;
	default:
		reply_refuse(management, request, STATUS_UNKNOWN_TYPE, "message type %u is not for the management core",
			request->header.type);
	}
}

void request_arrived(struct management *management, struct request *request)
{
	struct connection *connection = request->connection;
	struct peer *peer = peer_of(connection);

	request_init(request);
	if (!peer || connection->closing) {
		reply_refuse(management, request, STATUS_CONNECTION_LOST, "the connection is being closed");
		return;
	}
	if (find_in_flight(peer, request->header.request_id)) {
		reply_refuse(management, request, STATUS_DUPLICATE_REQUEST,
			"request id %llu is in use: wait for its reply",
			(unsigned long long)request->header.request_id);
		return;
	}
	list_add_last(&connection->requests_in_management, &request->node);
	list_add_last(bucket_of(peer, request->header.request_id), &request->in_flight);
	peer->in_flight_count++;
	management->in_flight++;
	if (management->draining && drained_type(request->header.type)) {
		reply_refuse(management, request, STATUS_SHUTTING_DOWN, "the server is going down: use another one");
		return;
	}
	request_dispatch(management, request);
}

static void request_slice(struct management *management, struct request *request)
{
	if (request->stage == STAGE_FREE)
		free_locks_slice(management, request);
	else if (request->stage == STAGE_CLEAR)
		clear_slice(management, request);
	else
		transfer_slice(management, request);
}

void request_go(struct management *management, struct request *request)
{
	list_remove(&request->waiting);
	list_add_last(&management->running, &request->waiting);
	if (management->budget > 0)
		request_slice(management, request);
}

bool request_run_all(struct management *management, int64_t reserve)
{
	bool busy = false;

	for (unsigned n = 0; n < STEP_CHORES && management->budget > reserve; n++) {
		struct list_node *node = list_pop_first(&management->running);

		if (!node)
			break;
		busy = true;
		list_add_last(&management->running, node);
		request_slice(management, KVR_CONTAINER_OF(node, struct request, waiting));
	}
	return busy;
}

void request_cut_short(struct management *management, struct request *request, uint16_t status, const char *text)
{
	struct session *session = request->session;

	switch (request->stage) {
	case STAGE_LOOKUP:
		search_abandon(session, status, text);
		break;
	case STAGE_QUERY:
		reply_set(&request->reply, status, "%s", text);
		list_remove(&request->waiting);
		session_settle(session);
		reply_give(management, request);
		break;
	case STAGE_RETRIEVE:
	case STAGE_STORE_LOOK:
	case STAGE_STORE_RESERVE:
		transfer_cut_short(management, request);
		break;
	case STAGE_OUT:
		request->stage = STAGE_OUT_ABORTED;
		worker_push(management, request->connection->worker_index, TO_WORKER_ABORT, request, 0);
		break;
	case STAGE_PUBLISH_WAIT:
		publish_retry(&request->timer, management->now_ns);
		break;
	default:
		break; /* its end is near */
	}
}
