#include "mgmt/state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static KVR_COLD KVR_PRINTF(3, 4) bool refuse(
	struct registration *registration, uint16_t status, const char *format, ...)
{
	va_list arguments;

	registration->reply_status = status;
	va_start(arguments, format);
	vsnprintf(registration->reply_text, sizeof(registration->reply_text), format, arguments);
	va_end(arguments);
	return false;
}

static bool identity_valid(struct registration *registration)
{
	if (!registration->world_size || registration->rank >= registration->world_size)
		return refuse(registration, STATUS_MALFORMED, "rank %u does not exist in a world of %u",
			registration->rank, registration->world_size);
	if (!registration->readers || registration->reader >= registration->readers)
		return refuse(registration, STATUS_MALFORMED, "reader %u does not exist among %u readers",
			registration->reader, registration->readers);
	if (registration->world_size > SHARES_MAX || registration->readers > SHARES_MAX ||
		registration->world_size * registration->readers > SHARES_MAX)
		return refuse(registration, STATUS_UNSUPPORTED,
			"%u ranks with %u readers each: this server keeps locks for at most %u readers of a chunk",
			registration->world_size, registration->readers, SHARES_MAX);
	if (registration->layout && registration->layout->group_count != 1)
		return refuse(registration, STATUS_UNSUPPORTED,
			"%u groups of planes: this server takes one group (it does not offer SEVERAL_GROUPS)",
			registration->layout->group_count);
	return true;
}

/* The size that the rank's objects have is fixed by the first worker of that rank. */
static bool take_class(struct management *management, struct registration *registration, struct model *model)
{
	uint64_t bytes = registration->layout->groups[0].object_bytes;
	uint64_t *known = &model->part_bytes[registration->rank];
	int error;

	if (*known && *known != bytes)
		return refuse(registration, STATUS_LAYOUT_MISMATCH,
			"rank %u has objects of %llu bytes under this model identity, this registration of %llu bytes",
			registration->rank, (unsigned long long)*known, (unsigned long long)bytes);
	error = l1_class_acquire(management->l1, bytes, &registration->classes[0]);
	if (error == -ENOSPC)
		return refuse(registration, STATUS_BUSY,
			"the server keeps its maximum of object sizes: CLEAR models not used any more");
	if (error)
		return refuse(registration, STATUS_TOO_BIG,
			"objects of %llu bytes do not fit the server's L1: give it more (--l1-size)",
			(unsigned long long)bytes);
	*known = bytes;
	return true;
}

static bool join(struct management *management, struct registration *registration)
{
	struct peer *peer = peer_of(registration->connection);
	struct model *model;

	if (!peer || registration->connection->closing)
		return refuse(registration, STATUS_CONNECTION_LOST, "the connection is being closed");
	if (peer->registration_count >= REGISTRATIONS_PER_CONNECTION)
		return refuse(registration, STATUS_BUSY, "this connection has %u registrations: unregister some",
			peer->registration_count);
	if (!identity_valid(registration))
		return false;
	model = model_intern(management, registration);
	if (!model)
		return false;
	if (registration->layout && !take_class(management, registration, model)) {
		model_settle(management, model);
		return false;
	}
	registration->model = model;
	model->registration_count++;
	if (registration->layout)
		model->worker_count++;
	list_add_last(&model->registrations, &registration->model_node);
	list_add_last(&registration->connection->registrations, &registration->node);
	model_settle(management, model);
	peer->registration_count++;
	management->registration_count++;
	return true;
}

void registration_add(struct management *management, struct registration *registration)
{
	list_init(&registration->node);
	list_init(&registration->model_node);
	list_init(&registration->scan_node);
	registration->model = NULL;
	registration->transfers = 0;
	registration->unregistering = false;
	registration->asked_back = false;
	registration->scanning = false;
	registration->reply_status = STATUS_OK;
	registration->reply_text[0] = '\0';
	if (join(management, registration))
		COUNT(management, registrations_total, 1);
	control_push(management, CONTROL_REGISTERED, registration, 0);
}

/* A worker that came back before the loss of its former connection was noticed keeps the locks (pitfalls B09). */
static bool share_taken_over(const struct registration *registration)
{
	list_for_each(node, &registration->model->registrations) {
		const struct registration *other = KVR_CONTAINER_OF(node, struct registration, model_node);

		if (other->layout && registration_share(other) == registration_share(registration))
			return true;
	}
	return false;
}

void registration_stop(struct management *management, struct registration *registration)
{
	struct model *model = registration->model;

	if (registration->unregistering)
		return;
	registration->unregistering = true;
	list_remove(&registration->model_node);
	if (!registration->layout)
		return;
	model->worker_count--;
	if (model->session_count && !share_taken_over(registration)) {
		registration->scanning = true;
		registration->scan_at = 0;
		list_add_last(&management->scans, &registration->scan_node);
	}
}

void registration_ask_back(struct management *management, struct registration *registration)
{
	registration_stop(management, registration);
	registration->asked_back = true;
	registration_settle(management, registration);
}

void registration_settle(struct management *management, struct registration *registration)
{
	if (registration->asked_back && !registration->scanning && registration->transfers == 0 &&
		!list_linked(&registration->scan_node))
		list_add_last(&management->returning, &registration->scan_node);
}

/* Returns the chunks looked at. */
static uint32_t drop_share(struct session *session, uint64_t share)
{
	uint32_t looked = session->locked_limit;

	for (uint32_t chunk = session->locked_limit; chunk > 0 && session->locks > 0; chunk--)
		lock_drop(session, chunk - 1, share);
	session_settle(session);
	return looked;
}

/* Walks all sessions of the pool, a bounded number a turn; sessions may come and go meanwhile. */
bool registration_scan_step(struct management *management)
{
	struct registration *registration;
	uint32_t looked = 0;
	uint64_t share;

	if (list_empty(&management->scans))
		return false;
	registration = KVR_CONTAINER_OF(management->scans.next, struct registration, scan_node);
	share = (uint64_t)1 << registration_share(registration);
	for (unsigned n = 0; n < STEP_SCAN_SESSIONS && looked < SLICE_CHUNKS; n++) {
		struct session *session;

		if (registration->scan_at >= management->sessions_pool.count) {
			registration->scanning = false;
			list_remove(&registration->scan_node);
			registration_settle(management, registration);
			break;
		}
		session = pool_at(&management->sessions_pool, registration->scan_at++);
		if (session->in_use && session->model == registration->model && session->locks > 0)
			looked += drop_share(session, share);
	}
	return true;
}

bool registration_return_step(struct management *management)
{
	bool busy = false;

	while (!list_empty(&management->returning) && ring_space(&management->outbox) > OUTBOX_RESERVE) {
		struct list_node *node = list_pop_first(&management->returning);
		struct registration *registration = KVR_CONTAINER_OF(node, struct registration, scan_node);
		struct connection *connection = registration->connection;
		struct peer *peer = peer_of(connection);
		struct model *model = registration->model;

		list_remove(&registration->node);
		if (registration->layout)
			l1_class_release(management->l1, registration->classes[0]);
		model->registration_count--;
		model_settle(management, model);
		peer->registration_count--;
		management->registration_count--;
		/* From here on it is the control thread's. */
		control_push(management, CONTROL_UNREGISTERED, registration, 0);
		if (connection->closing) {
			connection_poke(management, peer);
		} else if (!peer->registration_count) {
			peer->bare_since_ns = management->now_ns;
			reaper_watch(management, peer);
		}
		busy = true;
	}
	return busy;
}

struct registration *registration_find(
	struct management *management, struct request *request, uint32_t number, bool memory)
{
	list_for_each(node, &request->connection->registrations) {
		struct registration *registration = KVR_CONTAINER_OF(node, struct registration, node);

		if (registration->number != number)
			continue;
		if (registration->unregistering)
			break;
		if (memory && !registration->layout) {
			reply_refuse(management, request, STATUS_NOT_REGISTERED,
				"registration %u has no memory: it is a scheduler's, register memory for transfers",
				number);
			return NULL;
		}
		return registration;
	}
	COUNT(management, unknown_registrations_total, 1);
	reply_refuse(management, request, STATUS_NOT_REGISTERED,
		"this connection has no registration %u: register again", number);
	return NULL;
}
