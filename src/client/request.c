/* request.c - building the requests of sessions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_private.h"

static struct wire_header request_header(const struct kvr_client *client, const struct slot *slot)
{
	struct wire_header header;

	memset(&header, 0, sizeof(header));
	header.type = slot->type;
	header.request_id = slot->ticket;
	header.boot_id = client->boot_id;
	return header;
}

/*
 * Names the session, with as much of its chain as the server does not know yet: all of it when `whole`. The last chunk that it knows
 * goes along too: its digest stands for all before it, so that a session that another process ended, and began anew with another chain,
 * is never taken for ours.
 */
static void request_session(const struct kvr_session *session, bool whole, bool with_chain, struct session_ref *ref)
{
	uint32_t known = session->known_connection == session->client->generation && !whole ? session->known_chunks : 0;

	memset(ref, 0, sizeof(*ref));
	ref->id.bytes = session->id;
	ref->id.length = session->id_length;
	ref->salt = session->salt;
	ref->parent = digest_seed;
	if (!with_chain || session->chunk_count == 0)
		return;
	ref->first_chunk = known < session->chunk_count ? known : session->chunk_count;
	ref->first_chunk -= ref->first_chunk > 0;
	ref->digest_count = session->chunk_count - ref->first_chunk;
	ref->digests = session->digests + (size_t)ref->first_chunk * WIRE_DIGEST_BYTES;
	if (ref->first_chunk > 0)
		ref->parent = ref->digests - WIRE_DIGEST_BYTES;
}

/* A slot for a request on the session's registration; 0 or an errno that the caller returns. */
static int request_begin(struct kvr_session *session, uint16_t type, struct slot **out, uint32_t *registration)
{
	struct kvr_client *client = session->client;
	struct client_registration *own = &client->registrations[session->registration];
	struct slot *slot;

	if (client->state != CONNECTION_READY) {
		error_text_set("not connected: %s", client->failure_text);
		return -ECONNRESET;
	}
	if (!own->used || !own->wanted || own->serial != session->serial) {
		error_text_set("the registration of this session was unregistered");
		return -ENODEV;
	}
	if (!own->standing) {
		error_text_set("registration %u does not stand: %s", session->registration,
			own->failed ? own->failure : "it is still being made");
		return -ENODEV;
	}
	slot = slot_take(client, type);
	if (!slot) {
		error_text_set("%u requests are under way or wait to be taken", CLIENT_SLOTS);
		return -EBUSY;
	}
	*registration = own->number;
	*out = slot;
	return 0;
}

static void request_refused(int error)
{
	if (error == -EBUSY)
		error_text_set("%u requests above %u bytes are under way: wait for one of them first",
			CLIENT_LARGE_BUFFERS, WIRE_INLINE_BYTES);
	else if (error == -EMSGSIZE)
		error_text_set("the request is larger than the server takes: name fewer chunks or runs of blocks");
	else
		error_text_set("the request breaks a limit of the protocol: %s", strerror(-error));
}

static int request_end(
	struct kvr_client *client, struct slot *slot, struct kvr_session *session, ssize_t length, kvr_ticket *ticket)
{
	if (length < 0) {
		request_refused((int)length);
		slot_free(client, slot);
		return (int)length;
	}
	slot->length = (uint32_t)length;
	slot->session = session;
	if (session)
		session->in_flight++;
	*ticket = slot->ticket;
	queue_submit(client, slot);
	return 0;
}

static size_t room_bytes(const struct kvr_client *client, const struct slot *slot)
{
	return slot->large == UINT32_MAX ? WIRE_INLINE_BYTES : client->large_bytes;
}

int client_submit_lookup(struct kvr_session *session, uint32_t flags, kvr_ticket *ticket)
{
	struct kvr_client *client = session->client;
	struct lookup_request request;
	struct slot *slot;
	uint8_t *room;
	int error;

	memset(&request, 0, sizeof(request));
	error = request_begin(session, WIRE_LOOKUP, &slot, &request.registration);
	if (error)
		return error;
	request_session(session, true, true, &request.session);
	request.header = request_header(client, slot);
	request.header.flags = (uint16_t)flags;
	/* Of what we know: another process may have told the server of more. */
	request.chunk_count = session->chunk_count;
	slot->with_chain = true;
	slot->chain_end = session->chunk_count;
	room = queue_room(client, slot, lookup_request_size(&request), &error);
	return request_end(client, slot, session,
		room ? lookup_request_encode(room, room_bytes(client, slot), &request) : error, ticket);
}

int client_submit_query(struct kvr_session *session, uint64_t wait_ns, bool early, kvr_ticket *ticket)
{
	struct kvr_client *client = session->client;
	struct query_request request;
	struct slot *slot;
	int error;

	memset(&request, 0, sizeof(request));
	error = request_begin(session, WIRE_QUERY, &slot, &request.registration);
	if (error)
		return error;
	request_session(session, false, false, &request.session);
	request.header = request_header(client, slot);
	request.header.flags = early ? QUERY_EARLY : 0;
	request.timeout_ns = wait_ns;
	return request_end(
		client, slot, session, query_request_encode(slot->bytes, WIRE_INLINE_BYTES, &request), ticket);
}

static int scratch_room(struct kvr_client *client, size_t bytes)
{
	uint8_t *scratch;

	if (bytes <= client->scratch_bytes)
		return 0;
	scratch = realloc(client->scratch, 2 * bytes);
	if (!scratch) {
		error_text_set("no memory for %zu bytes of block runs", bytes);
		return -ENOMEM;
	}
	client->scratch = scratch;
	client->scratch_bytes = 2 * bytes;
	return 0;
}

/* Neighbouring ids become one run. Appends to the scratch area at *run_count. */
static int request_runs(struct kvr_client *client, const struct kvr_blocks *blocks, uint32_t *run_count)
{
	uint32_t first = *run_count;
	int error = scratch_room(client, (size_t)(first + blocks->count) * sizeof(struct block_run));
	struct block_run run = { 0, 0 };

	if (error)
		return error;
	for (uint32_t i = 0; i < blocks->count; i++) {
		uint32_t id = blocks->ids[i];
		bool follows = run.count > 0 &&
			(run.start == WIRE_NULL_BLOCK ? id == WIRE_NULL_BLOCK
						      : id != WIRE_NULL_BLOCK && id == run.start + run.count);

		if (follows) {
			run.count++;
		} else {
			if (run.count > 0)
				memcpy(client->scratch + (size_t)(*run_count)++ * sizeof(run), &run, sizeof(run));
			run.start = id;
			run.count = 1;
		}
	}
	if (run.count > 0)
		memcpy(client->scratch + (size_t)(*run_count)++ * sizeof(run), &run, sizeof(run));
	return 0;
}

/* A program that was built before there were layers and marks has none. */
static bool has_order(const struct kvr_transfer *transfer)
{
	return transfer->struct_bytes >= sizeof(*transfer);
}

static uint32_t layers_of(const struct kvr_transfer *transfer)
{
	return has_order(transfer) ? transfer->layers : 0;
}

/* Words in host memory, and data in a GPU's, are not ordered by an adapter. */
static bool reaches_gpu_by_adapter(const struct kvr_client *client, const struct client_registration *registration)
{
	for (uint32_t i = 0; i < registration->plane_count; i++) {
		const struct client_region *region = &client->regions[registration->planes[i].region];

		if (region->on_gpu && !region->by_handle)
			return true;
	}
	return false;
}

/* Of the mark nothing but its form is known here: it may be reached later than the request is sent, or was long ago. */
static int request_order(struct kvr_client *client, struct slot *slot, const struct client_registration *registration,
	bool store, const struct kvr_transfer *transfer, struct transfer_request *request)
{
	kvr_mark after = has_order(transfer) ? transfer->after : 0;
	struct client_word word;
	int error = after ? client_mark_word(client, after, &word) : 0;

	if (!error && !store && layers_of(transfer) > 0 && reaches_gpu_by_adapter(client, registration)) {
		error_text_set(
			"layers of GPU memory that an adapter writes to: their words would not wait for it; wait for the whole "
			"transfer");
		return -EOPNOTSUPP;
	}
	return error ? error : order_fill(client, slot, store ? 0 : layers_of(transfer), after, request);
}

/* What can be said here is said here, with words; the server checks everything again. */
static int request_check_transfer(const struct kvr_session *session, const struct client_registration *registration,
	const struct kvr_transfer *transfer)
{
	uint32_t chunk_tokens = session->client->server.chunk_tokens;

	if (transfer->struct_bytes < offsetof(struct kvr_transfer, layers) || transfer->chunk_count == 0) {
		error_text_set("transfer.struct_bytes (use KVR_TRANSFER_INIT) or chunk_count is not set");
		return -EINVAL;
	}
	if (registration->group_count == 0) {
		error_text_set("a scheduler's registration has no memory to transfer to or from");
		return -EINVAL;
	}
	if (transfer->first_chunk > session->chunk_count ||
		transfer->chunk_count > session->chunk_count - transfer->first_chunk) {
		error_text_set("chunks %u to %llu of a session that has %u", transfer->first_chunk,
			(unsigned long long)transfer->first_chunk + transfer->chunk_count, session->chunk_count);
		return -ERANGE;
	}
	if (transfer->group_count != registration->group_count || !transfer->groups) {
		error_text_set("%u groups of blocks for a registration with %u", transfer->group_count,
			registration->group_count);
		return -EINVAL;
	}
	if (layers_of(transfer) > CLIENT_LAYERS_MAX ||
		(layers_of(transfer) > 0 && registration->plane_count % layers_of(transfer) != 0)) {
		error_text_set("%u layers of %u planes: each has equally many planes, and there are at most %u",
			layers_of(transfer), registration->plane_count, CLIENT_LAYERS_MAX);
		return -EINVAL;
	}
	for (uint32_t g = 0; g < transfer->group_count; g++) {
		uint64_t wanted = (uint64_t)transfer->chunk_count *
			(chunk_tokens / registration->groups[g].tokens_per_block);

		if (transfer->groups[g].count != wanted || !transfer->groups[g].ids) {
			error_text_set("group %u: %u blocks where %u chunks have %llu", g, transfer->groups[g].count,
				transfer->chunk_count, (unsigned long long)wanted);
			return -EFAULT;
		}
	}
	return 0;
}

int client_submit_transfer(
	struct kvr_session *session, bool store, const struct kvr_transfer *transfer, kvr_ticket *ticket)
{
	struct kvr_client *client = session->client;
	uint32_t group_runs[WIRE_GROUPS_MAX];
	struct transfer_request request;
	struct slot *slot;
	uint8_t *room;
	int error;

	memset(&request, 0, sizeof(request));
	error = request_begin(session, store ? WIRE_STORE : WIRE_RETRIEVE, &slot, &request.registration);
	if (error)
		return error;
	error = request_check_transfer(session, &client->registrations[session->registration], transfer);
	for (uint32_t g = 0; !error && g < transfer->group_count; g++) {
		uint32_t before = request.run_count;

		error = request_runs(client, &transfer->groups[g], &request.run_count);
		group_runs[g] = request.run_count - before;
	}
	if (!error && request.run_count > WIRE_RUNS_MAX) {
		error_text_set("%u runs of neighbouring blocks, at most %u: name fewer chunks", request.run_count,
			WIRE_RUNS_MAX);
		error = -EMSGSIZE;
	}
	request.header = request_header(client, slot);
	if (!error)
		error = request_order(
			client, slot, &client->registrations[session->registration], store, transfer, &request);
	if (error) {
		slot_free(client, slot);
		return error;
	}
	request.first_chunk = transfer->first_chunk;
	request.chunk_count = transfer->chunk_count;
	request.skip_tokens = store ? 0 : transfer->skip_tokens;
	request.group_count = transfer->group_count;
	request.group_runs = (const uint8_t *)group_runs;
	request.runs = client->scratch;
	request_session(session, false, true, &request.session);
	slot->with_chain = request.session.digest_count > 0 && request.session.first_chunk == 0;
	slot->chain_end = request.session.first_chunk + request.session.digest_count;
	slot->outcomes = transfer->outcomes;
	slot->chunk_count = transfer->chunk_count;
	room = queue_room(client, slot, transfer_request_size(&request), &error);
	return request_end(client, slot, session,
		room ? transfer_request_encode(room, room_bytes(client, slot), &request) : error, ticket);
}

bool request_again(struct kvr_client *client, struct slot *slot)
{
	struct transfer_request request;
	struct wire_error error;
	uint8_t *copy, *room;
	ssize_t length;
	int result;

	if ((slot->type != WIRE_RETRIEVE && slot->type != WIRE_STORE) || slot->with_chain || !slot->session)
		return false;
	slot->again = slot->sending; /* the device may still read the buffer: queue.c calls again */
	if (slot->again)
		return true;
	copy = malloc(slot->length);
	if (!copy)
		return false;
	memcpy(copy, slot->large == UINT32_MAX ? slot->bytes : client->large + slot->large * client->large_bytes,
		slot->length);
	result = transfer_request_decode(copy, slot->length, &request, &error);
	if (!result) {
		slot->session->known_chunks = 0;
		request_session(slot->session, true, true, &request.session);
		if (slot->large != UINT32_MAX)
			client->large_free[client->large_free_count++] = slot->large;
		slot->large = UINT32_MAX;
		room = queue_room(client, slot, transfer_request_size(&request), &result);
		length = room ? transfer_request_encode(room, room_bytes(client, slot), &request) : result;
		result = length < 0 ? (int)length : 0;
		if (!result)
			slot->length = (uint32_t)length;
	}
	free(copy);
	slot->again = result == -EBUSY;
	if (slot->again)
		list_add_last(&client->short_of_room, &slot->node);
	if (result)
		return slot->again;
	slot->with_chain = true;
	slot->chain_end = slot->session->chunk_count;
	queue_submit(client, slot);
	return true;
}

int client_submit_free_locks(
	struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, bool all_ranks, kvr_ticket *ticket)
{
	struct kvr_client *client = session->client;
	struct free_locks_request request;
	struct slot *slot;
	int error;

	memset(&request, 0, sizeof(request));
	error = request_begin(session, WIRE_FREE_LOCKS, &slot, &request.registration);
	if (error)
		return error;
	request.header = request_header(client, slot);
	request.first_chunk = first_chunk;
	request.chunk_count = chunk_count;
	request.rank = all_ranks ? WIRE_ALL_RANKS : client->registrations[session->registration].model.rank;
	request.reader = all_ranks ? 0 : client->registrations[session->registration].model.reader;
	request_session(session, false, false, &request.session);
	return request_end(
		client, slot, session, free_locks_request_encode(slot->bytes, WIRE_INLINE_BYTES, &request), ticket);
}

int client_submit_end(struct kvr_session *session, kvr_ticket *ticket)
{
	struct kvr_client *client = session->client;
	struct end_session_request request;
	struct slot *slot;
	int error;

	memset(&request, 0, sizeof(request));
	error = request_begin(session, WIRE_END_SESSION, &slot, &request.registration);
	if (error)
		return error;
	request.header = request_header(client, slot);
	request_session(session, false, false, &request.session);
	return request_end(
		client, slot, session, end_session_request_encode(slot->bytes, WIRE_INLINE_BYTES, &request), ticket);
}

/* Requests of the connection itself. */
static int request_begin_plain(struct kvr_client *client, uint16_t type, struct slot **slot)
{
	if (client->state != CONNECTION_READY) {
		error_text_set("not connected: %s", client->failure_text);
		return -ECONNRESET;
	}
	*slot = slot_take(client, type);
	if (!*slot)
		error_text_set("%u requests are under way or wait to be taken", CLIENT_SLOTS);
	return *slot ? 0 : -EBUSY;
}

int client_submit_ping(struct kvr_client *client, kvr_ticket *ticket)
{
	struct ping request;
	struct slot *slot;
	int error = request_begin_plain(client, WIRE_PING, &slot);

	if (error)
		return error;
	request.header = request_header(client, slot);
	return request_end(client, slot, NULL, ping_encode(slot->bytes, WIRE_INLINE_BYTES, &request), ticket);
}

int client_submit_clear(struct kvr_client *client, uint32_t registration, kvr_ticket *ticket)
{
	struct clear_request request;
	struct slot *slot;
	int error;

	if (registration != UINT32_MAX &&
		(registration >= CLIENT_REGISTRATIONS_MAX || !client->registrations[registration].standing)) {
		error_text_set("there is no registration %u", registration);
		return -ENODEV;
	}
	error = request_begin_plain(client, WIRE_CLEAR, &slot);
	if (error)
		return error;
	request.header = request_header(client, slot);
	request.registration = registration == UINT32_MAX ? UINT32_MAX : client->registrations[registration].number;
	return request_end(client, slot, NULL, clear_request_encode(slot->bytes, WIRE_INLINE_BYTES, &request), ticket);
}

int client_submit_cancel(struct kvr_client *client, kvr_ticket target)
{
	static const char unsent[] = "canceled before it was sent";
	struct slot *slot = slot_find(client, target);
	struct cancel_request request;
	kvr_ticket ticket;
	int error;

	if (!slot) {
		error_text_set("there is no such ticket, or its result was taken");
		return -ENOENT;
	}
	if (slot->state == SLOT_QUEUED) {
		slot_done(client, slot, -ECANCELED, STATUS_CANCELED, unsent, sizeof(unsent) - 1);
		return 0;
	}
	if (slot->state != SLOT_SENT)
		return 0; /* done already, or a matter of the control stream that can't be stopped */
	error = request_begin_plain(client, WIRE_CANCEL, &slot);
	if (error)
		return error;
	memset(&request, 0, sizeof(request));
	request.header = request_header(client, slot);
	request.target = target;
	slot->discard = true;
	return request_end(
		client, slot, NULL, cancel_request_encode(slot->bytes, WIRE_INLINE_BYTES, &request), &ticket);
}

bool request_abandon(struct kvr_client *client, kvr_ticket ticket)
{
	struct slot *slot = slot_find(client, ticket);
	bool transfer = slot && (slot->type == WIRE_RETRIEVE || slot->type == WIRE_STORE);

	if (!slot)
		return true;
	/* What waits on the server is worth a CANCEL, and what moves data; the others are as good as done. */
	if ((transfer || slot->type == WIRE_LOOKUP || slot->type == WIRE_QUERY) && client_submit_cancel(client, ticket))
		log_debug("client: no CANCEL could be sent: %s", kvr_error_text());
	if (transfer)
		return false;
	slot_abandon(client, slot);
	return true;
}
