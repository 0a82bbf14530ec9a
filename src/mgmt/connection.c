/* connection.c - the beginning and the end of a connection, as the management core sees it. */
#include "mgmt/state.h"

#include <string.h>

#define CLOSE_SESSIONS 16u /* owned sessions ended in one turn, for each connection */

void connection_attach(struct management *management, struct connection *connection)
{
	struct peer *peer = pool_take(&management->peers_pool);

	list_init(&connection->requests_in_management);
	list_init(&connection->registrations);
	list_init(&connection->sessions);
	wheel_timer_init(&connection->timer, reaper_fire);
	connection->closing = false;
	connection->closed = false;
	connection->management = peer;
	if (!peer) {
		log_error("management: connection %u is more than the maximum of %u", connection->number,
			management->options.connections_max);
		control_push(management, CONTROL_LOST, connection, 0);
		return;
	}
	memset(peer, 0, sizeof(*peer));
	list_add_last(&management->peers, &peer->node);
	list_init(&peer->closing);
	for (unsigned b = 0; b < PEER_BUCKETS; b++)
		list_init(&peer->in_flight[b]);
	peer->management = management;
	peer->connection = connection;
	peer->attached_ns = management->now_ns;
	peer->bare_since_ns = management->now_ns;
	worker_push(management, connection->worker_index, TO_WORKER_OPEN, connection, 0);
	reaper_watch(management, peer);
}

void connection_poke(struct management *management, struct peer *peer)
{
	if (!list_linked(&peer->closing))
		list_add_last(&management->closing, &peer->closing);
}

void connection_shut(struct management *management, struct peer *peer)
{
	struct connection *connection = peer->connection;

	if (connection->closing)
		return;
	connection->closing = true;
	wheel_cancel(&management->wheel, &connection->timer);
	worker_push(management, connection->worker_index, TO_WORKER_CLOSE, connection, 0);
	list_for_each(node, &connection->registrations)
		registration_stop(management, KVR_CONTAINER_OF(node, struct registration, node));
	connection_poke(management, peer);
}

void connection_lost(struct management *management, struct connection *connection)
{
	struct peer *peer = peer_of(connection);

	if (!connection->closing)
		peer->tell_lost = true;
	connection_shut(management, peer);
}

void connection_detach(struct management *management, struct connection *connection)
{
	struct peer *peer = peer_of(connection);

	if (!peer) {
		control_push(management, CONTROL_DETACHED, connection, 0);
		return;
	}
	peer->detached = true;
	peer->tell_lost = false;
	connection_shut(management, peer);
	connection_poke(management, peer);
}

void connection_closed(struct management *management, struct connection *connection)
{
	connection->closed = true;
	connection_poke(management, peer_of(connection));
}

void connection_forget(struct management *management, struct connection *connection, uint64_t region)
{
	struct peer *peer = peer_of(connection);

	if (!peer || connection->closed) {
		control_push(management, CONTROL_FORGOTTEN, connection, region);
		return;
	}
	peer->forget_pending = true;
	peer->forget_region = (uint32_t)region;
	/* A CLOSE that is on its way is answered by CLOSED, which then answers this one too. */
	if (!connection->closing)
		worker_push(management, connection->worker_index, TO_WORKER_FORGET, connection, region);
}

void connection_forgotten(struct management *management, struct connection *connection)
{
	struct peer *peer = peer_of(connection);

	if (!peer->forget_pending)
		return;
	peer->forget_pending = false;
	control_push(management, CONTROL_FORGOTTEN, connection, peer->forget_region);
}

void connection_rail_open(struct management *management, struct connection *connection, uint64_t rail)
{
	struct peer *peer = peer_of(connection);

	if (peer && !connection->closing)
		worker_push(management, connection->worker_index, TO_WORKER_RAIL_OPEN, connection, rail);
}

void connection_rail_close(struct management *management, struct connection *connection, uint64_t rail)
{
	struct peer *peer = peer_of(connection);

	if (!peer || connection->closed) {
		control_push(management, CONTROL_RAIL_CLOSED, connection, rail);
		return;
	}
	peer->rail_pending = true;
	peer->rail_closing = (uint32_t)rail;
	if (!connection->closing)
		worker_push(management, connection->worker_index, TO_WORKER_RAIL_CLOSE, connection, rail);
}

void connection_rail_closed(struct management *management, struct connection *connection)
{
	struct peer *peer = peer_of(connection);

	if (!peer->rail_pending)
		return;
	peer->rail_pending = false;
	control_push(management, CONTROL_RAIL_CLOSED, connection, peer->rail_closing);
}

static struct request *find_parked(struct connection *connection)
{
	list_for_each(node, &connection->requests_in_management) {
		struct request *request = KVR_CONTAINER_OF(node, struct request, node);

		switch (request->stage) {
		case STAGE_LOOKUP:
		case STAGE_QUERY:
		case STAGE_RETRIEVE:
		case STAGE_STORE_LOOK:
		case STAGE_STORE_RESERVE:
		case STAGE_PUBLISH_WAIT:
			return request;
		default:
			break;
		}
	}
	return NULL;
}

/* Returns what is parked; what the worker has comes back from there. Bounded by the connection's credits. One may
 * take others with it, so the list is looked at anew each time. */
static void return_requests(struct management *management, struct peer *peer)
{
	struct request *request;

	while ((request = find_parked(peer->connection)))
		request_cut_short(management, request, STATUS_CONNECTION_LOST, "the connection is being closed");
}

/* Another connection waits for a LOOKUP of it, which only counts: the session is that one's from now on, without the locks. */
static bool hand_over(struct session *session, const struct connection *lost)
{
	const struct request *request = session->search.request;

	if (!search_under_way(session) || !request || request->connection == lost)
		return false;
	session_own(session, request->connection);
	lock_release_begin(session, 0, false);
	session_go(session);
	return true;
}

/* True when none is left. */
static bool end_sessions(struct management *management, struct connection *connection)
{
	for (unsigned n = 0; n < CLOSE_SESSIONS; n++) {
		struct session *session;

		if (list_empty(&connection->sessions))
			return true;
		session = KVR_CONTAINER_OF(connection->sessions.next, struct session, owner_node);
		if (hand_over(session, connection))
			continue;
		COUNT(management, sessions_lost_total, 1);
		session_end(session, false, "the connection that looked the session up is gone");
	}
	return list_empty(&connection->sessions);
}

static void tell_control(struct management *management, struct peer *peer)
{
	struct connection *connection = peer->connection;

	if (peer->tell_lost) {
		peer->tell_lost = false;
		control_push(management, CONTROL_LOST, connection, 0);
	}
	if (connection->closed) {
		connection_forgotten(management, connection);
		connection_rail_closed(management, connection);
	}
	if (!peer->detached || !connection->closed || peer->in_flight_count || peer->registration_count)
		return;
	list_remove(&peer->closing);
	list_remove(&peer->node);
	connection->management = NULL;
	pool_give(&management->peers_pool, peer);
	control_push(management, CONTROL_DETACHED, connection, 0);
}

static void close_slice(struct management *management, struct peer *peer)
{
	struct connection *connection = peer->connection;
	bool ended;

	list_remove(&peer->closing);
	return_requests(management, peer);
	ended = end_sessions(management, connection);
	if (peer->detached)
		list_for_each_safe(node, &connection->registrations)
			registration_ask_back(management, KVR_CONTAINER_OF(node, struct registration, node));
	if (!ended || ring_space(&management->outbox) <= OUTBOX_RESERVE)
		connection_poke(management, peer);
	else
		tell_control(management, peer);
}

bool connection_close_all(struct management *management)
{
	bool busy = false;

	for (unsigned n = 0; n < STEP_CHORES; n++) {
		struct list_node *node = management->closing.next;

		if (node == &management->closing)
			break;
		busy = true;
		close_slice(management, KVR_CONTAINER_OF(node, struct peer, closing));
	}
	return busy;
}
