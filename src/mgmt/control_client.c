/* control_client.c - one client's control socket: bytes in, messages apart, bytes out, and taking it apart. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mgmt/control_private.h"

struct wire_header control_client_reply_header(
	const struct control_client *client, const struct wire_header *request, uint16_t status)
{
	struct wire_header header;

	memset(&header, 0, sizeof(header));
	header.type = (uint16_t)(request->type + 1);
	header.status = status;
	header.request_id = request->request_id;
	header.boot_id = client->control->options.boot_id;
	return header;
}

void control_client_send(
	struct control_client *client, const void *bytes, size_t length, const int *fds, unsigned fd_count)
{
	if (!client->stream)
		return;
	/* Without memory the text has failed, and the next step ends the conversation. */
	if (fd_count > 0) {
		memcpy(client->out_fds, fds, fd_count * sizeof(fds[0]));
		client->out_fd_count = fd_count;
		client->out_fd_at = client->outbox.length;
	}
	text_append_bytes(&client->outbox, bytes, length);
}

/* A client that asks to be refused in a loop does not fill the disk. */
static bool control_may_say(struct control *control)
{
	uint64_t gained = (control->now_ns - control->lines_ns) / CONTROL_LINE_NS;

	if (gained > 0) {
		control->lines_said -= (uint32_t)kvr_min_u64(gained, control->lines_said);
		control->lines_ns = control->now_ns;
	}
	if (control->lines_said >= CONTROL_LINES_MAX) {
		control->lines_left_out++;
		return false;
	}
	control->lines_said++;
	if (control->lines_left_out > 0)
		log_info("control: %u lines about refused and closed clients were left out", control->lines_left_out);
	control->lines_left_out = 0;
	return true;
}

void control_client_send_error(
	struct control_client *client, const struct wire_header *request, uint16_t status, const char *format, ...)
{
	uint8_t bytes[WIRE_HEADER_BYTES + 8 + WIRE_ERROR_TEXT_MAX];
	char words[WIRE_ERROR_TEXT_MAX];
	struct error_reply reply;
	va_list arguments;
	ssize_t length;

	if (!client->stream)
		return;
	va_start(arguments, format);
	vsnprintf(words, sizeof(words), format, arguments);
	va_end(arguments);
	memset(&reply, 0, sizeof(reply));
	reply.header = control_client_reply_header(client, request, status);
	reply.text.bytes = words;
	reply.text.length = (uint32_t)strlen(words);
	if (control_may_say(client->control))
		log_info("client %s: %s refused: %s: %s", client->name, wire_type_name(request->type),
			status_name(status), words);
	length = error_reply_encode(bytes, sizeof(bytes), &reply);
	if (length > 0)
		control_client_send(client, bytes, (size_t)length, NULL, 0);
}

void control_client_send_malformed(
	struct control_client *client, const struct wire_header *header, const struct wire_error *error)
{
	control_client_send_error(client, header, error->status, "%s byte %u: %s", wire_type_name(header->type),
		error->offset, error->what);
	client->close_after_send = client->state < CLIENT_READY;
}

void control_client_reply_done(
	struct control_client *client, const struct wire_header *request, const void *bytes, ssize_t length)
{
	if (length > 0)
		control_client_send(client, bytes, (size_t)length, NULL, 0);
	else
		control_client_send_error(
			client, request, STATUS_INTERNAL, "the reply could not be encoded (%zd)", length);
}

int control_client_claim_fd(struct control_client *client)
{
	int fd;

	if (client->fd_count == 0)
		return -1;
	fd = client->fds[0];
	client->fd_count--;
	memmove(client->fds, client->fds + 1, client->fd_count * sizeof(client->fds[0]));
	memmove(client->fd_ends, client->fd_ends + 1, client->fd_count * sizeof(client->fd_ends[0]));
	return fd;
}

/* What came with earlier messages, which had no use for it, is not taken for this one's. */
static void control_client_drop_old_fds(struct control_client *client)
{
	while (client->fd_count > 0 && client->fd_ends[0] <= client->received_bytes - client->inbox.length)
		close(control_client_claim_fd(client));
}

static struct helper *control_helper_of(const struct control *control, enum client_job_kind kind)
{
	switch (kind) {
	case CLIENT_JOB_CONNECT:
	case CLIENT_JOB_RAIL:
		return control->connector;
	case CLIENT_JOB_IMPORT:
		return control->importer;
	default:
		return control->reclaim;
	}
}

void control_client_submit_job(
	struct control_client *client, enum client_job_kind kind, const struct wire_header *header)
{
	struct client_job *job = &client->job;

	static void (*const run[])(struct client_job * job) = {
		[CLIENT_JOB_CONNECT] = control_client_connect_run,
		[CLIENT_JOB_RAIL] = control_client_rail_run,
		[CLIENT_JOB_IMPORT] = control_client_import_run,
		[CLIENT_JOB_FORGET] = control_client_forget_run,
		[CLIENT_JOB_TEARDOWN] = control_client_teardown_run,
	};

	job->kind = kind;
	job->client = client;
	if (header)
		job->header = *header;
	job->execute = run[kind];
	job->job.run = control_client_job_run;
	job->job.result = 0;
	job->waiting = !helper_submit(control_helper_of(client->control, kind), &job->job);
}

void control_client_job_run(struct helper_job *helper_job)
{
	struct client_job *job = KVR_CONTAINER_OF(helper_job, struct client_job, job);

	job->execute(job);
}

/* Told why, then closed: HELLO_REPLY without a HELLO. */
static void control_turn_away(struct control *control, struct stream *stream, uint16_t status, const char *why)
{
	static const struct wire_header hello = { .type = WIRE_HELLO };
	struct control_client refused;

	kvr_counter_add(&control->counters.refused_total, 1);
	memset(&refused, 0, sizeof(refused));
	refused.control = control;
	refused.stream = stream;
	text_copy(refused.name, sizeof(refused.name), stream->name);
	control_client_send_error(&refused, &hello, status, "%s: %u of %u clients are connected", why,
		control->client_count - control->stranger_count, control->options.connections_max);
	/* Best effort: a fresh socket has room for it. */
	if (refused.outbox.length > 0 &&
		stream->ops->send(stream, refused.outbox.bytes, refused.outbox.length, NULL, 0) < 0)
		log_debug("control: a refused client did not take its refusal");
	text_fini(&refused.outbox);
	stream->ops->close(stream);
}

static struct control_client *control_client_make(void)
{
	/* Parts of a connection lie on cache lines of their own. */
	struct control_client *client = fault_point("control_accept/client")
		? NULL
		: aligned_alloc(KVR_CACHE_LINE, sizeof(*client));

	if (!client)
		return NULL;
	memset(client, 0, sizeof(*client));
	client->connection.region_count = CONTROL_REGIONS_MAX;
	client->connection.regions = fault_point("control_accept/regions")
		? NULL
		: calloc(CONTROL_REGIONS_MAX, sizeof(struct layout_region));
	if (!client->connection.regions) {
		free(client);
		return NULL;
	}
	list_init(&client->connection.requests_in_management);
	list_init(&client->connection.registrations);
	list_init(&client->connection.sessions);
	return client;
}

static uint32_t control_free_slot(const struct control *control)
{
	for (uint32_t slot = 0; slot < control->options.connections_max; slot++) {
		if (!control->slots[slot])
			return slot;
	}
	return CONTROL_NO_SLOT;
}

bool control_client_place(struct control_client *client, const struct wire_header *header)
{
	struct control *control = client->control;
	uint32_t slot = control_free_slot(control);

	if (slot == CONTROL_NO_SLOT) {
		kvr_counter_add(&control->counters.refused_total, 1);
		control_client_send_error(client, header, STATUS_LIMIT,
			"no room for one more client: %u of %u clients are connected",
			control->client_count - control->stranger_count, control->options.connections_max);
		client->close_after_send = true;
		return false;
	}
	client->slot = slot;
	client->connection.number = slot;
	control->slots[slot] = client;
	control->stranger_count--;
	return true;
}

static void control_drop_oldest_stranger(struct control *control)
{
	list_for_each(node, &control->clients) {
		struct control_client *client = KVR_CONTAINER_OF(node, struct control_client, node);

		if (client->slot != CONTROL_NO_SLOT || !client->stream)
			continue;
		kvr_counter_add(&control->counters.strangers_dropped_total, 1);
		control_client_close(client, NULL);
		return;
	}
}

int control_accept(struct control *control, struct stream *stream, uint64_t now_ns)
{
	struct control_client *client;

	if (control->draining) {
		control_turn_away(control, stream, STATUS_SHUTTING_DOWN, "the server is shutting down");
		return -EUSERS;
	}
	if (control_free_slot(control) == CONTROL_NO_SLOT) {
		control_turn_away(control, stream, STATUS_LIMIT, "no room for one more client");
		return -EUSERS;
	}
	client = control_client_make();
	if (!client) {
		control_turn_away(control, stream, STATUS_BUSY, "no memory for one more client");
		return -ENOMEM;
	}
	if (control->stranger_count >= CONTROL_STRANGERS_MAX)
		control_drop_oldest_stranger(control);
	client->control = control;
	client->stream = stream;
	client->slot = CONTROL_NO_SLOT;
	client->deadline_ns = control->options.handshake_ns ? now_ns + control->options.handshake_ns : 0;
	client->connected_ns = now_ns;
	text_copy(client->name, sizeof(client->name), stream->name);
	client->connection.control = client;
	client->connection.last_seen_ns = now_ns;
	control->client_count++;
	control->stranger_count++;
	control->watch_changed = true;
	list_add_last(&control->clients, &client->node);
	kvr_counter_add(&control->counters.accepted_total, 1);
	return 0;
}

void control_client_quiet(struct control_client *client)
{
	if (client->lingering)
		client->lingering->ops->close(client->lingering);
	client->lingering = NULL;
}

void control_client_free(struct control_client *client)
{
	struct control *control = client->control;

	if (client->stream)
		client->stream->ops->close(client->stream);
	control_client_quiet(client);
	while (client->fd_count > 0)
		close(client->fds[--client->fd_count]);
	text_fini(&client->inbox);
	text_fini(&client->outbox);
	list_remove(&client->node);
	if (client->slot != CONTROL_NO_SLOT)
		control->slots[client->slot] = NULL;
	else
		control->stranger_count--;
	if (client->device)
		control->worker_connections[client->connection.worker_index]--;
	control->client_count--;
	control->watch_changed = true;
	free(client->connection.regions);
	free(client);
}

/* Runs on the reclaim helper: nothing touches the client's memory any more, so its order is free; it may take long. */
void control_client_teardown_run(struct client_job *job)
{
	struct control_client *client = job->client;
	const struct verbs_driver *driver = client->device->driver;

	for (uint32_t i = 0; i < CONTROL_REGIONS_MAX; i++) {
		if (client->connection.regions[i].present)
			driver->forget_memory(client->connection.qp, client->connection.regions[i].rkey);
	}
	control_client_destroy_rails(client);
	driver->destroy_qp(client->connection.qp);
	client->connection.qp = NULL;
}

void control_client_teardown(struct control_client *client)
{
	client->state = CLIENT_TEARDOWN;
	/* Who has no queue pair waits for nobody: it may be stuck, that helper. */
	if (client->job.kind == CLIENT_JOB_NONE && client->connection.qp)
		control_client_submit_job(client, CLIENT_JOB_TEARDOWN, NULL);
}

bool control_client_over(const struct control_client *client)
{
	return client->state == CLIENT_TEARDOWN && client->job.kind == CLIENT_JOB_NONE;
}

void control_client_close(struct control_client *client, const char *why)
{
	struct control *control = client->control;

	if (client->stream) {
		if (why && control_may_say(control))
			log_info("client %s: closed: %s", client->name, why);
		if (client->announced)
			client->lingering = client->stream;
		else
			client->stream->ops->close(client->stream);
		client->stream = NULL;
		control->watch_changed = true;
	}
	if (client->state >= CLIENT_DETACHING)
		return;
	if (client->announced) {
		client->state = CLIENT_DETACHING;
		control_post(control, MANAGEMENT_DETACH, &client->connection, 0);
		return;
	}
	/* The management core never heard of it. A job under way goes on to its end first. */
	control_client_teardown(client);
}

static void control_client_dispatch(
	struct control_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	static const struct {
		uint16_t type;
		enum client_state state;
		void (*handle)(struct control_client *client, const struct wire_header *header, const uint8_t *bytes);
	} table[] = {
		{ WIRE_HELLO, CLIENT_HELLO, control_client_on_hello },
		{ WIRE_AUTHENTICATE, CLIENT_CHALLENGE, control_client_on_authenticate },
		{ WIRE_CONNECT, CLIENT_READY, control_client_on_connect },
		{ WIRE_CONNECT, CLIENT_CONNECTED, control_client_on_rail },
		{ WIRE_MEMORY, CLIENT_CONNECTED, control_client_on_memory },
		{ WIRE_FORGET_MEMORY, CLIENT_CONNECTED, control_client_on_forget_memory },
		{ WIRE_REGISTER, CLIENT_CONNECTED, control_client_on_register },
		{ WIRE_UNREGISTER, CLIENT_CONNECTED, control_client_on_unregister },
	};

	bool known = false;

	if (header->boot_id != 0 && header->boot_id != client->control->options.boot_id) {
		control_client_send_error(client, header, STATUS_WRONG_BOOT,
			"this server has been started since: connect anew, with boot id 0");
		client->close_after_send = client->state < CLIENT_READY;
		return;
	}
	for (unsigned i = 0; i < KVR_COUNT_OF(table); i++) {
		if (table[i].type != header->type)
			continue;
		if (table[i].state == client->state) {
			table[i].handle(client, header, bytes);
			return;
		}
		known = true;
	}
	if (known) {
		if (client->state < CLIENT_READY) {
			control_client_send_error(client, header, STATUS_NOT_AUTHENTICATED,
				"%s before the handshake is done", wire_type_name(header->type));
			client->close_after_send = true;
			return;
		}
		control_client_send_error(
			client, header, STATUS_OUT_OF_ORDER, "%s is not allowed now", wire_type_name(header->type));
		return;
	}
	control_client_send_error(
		client, header, STATUS_UNKNOWN_TYPE, "type %u is none of the control socket's", header->type);
	client->close_after_send = client->state < CLIENT_READY;
}

/* One message, if there is a whole one and the client has taken the answer to the one before: who asks without
 * reading the answers
 * fills its own socket, not the server's memory. */
static bool control_client_parse(struct control_client *client)
{
	struct control_counters *counters = &client->control->counters;
	struct wire_header header;
	struct wire_error error;
	int length;

	if (!client->stream || client->close_after_send || client->answer_pending ||
		client->job.kind != CLIENT_JOB_NONE || client->inbox.length == 0 || client->outbox.length > 0)
		return false;
	/* What is no frame of ours is refused at the first byte that differs (pitfalls O06). */
	length = wire_stream_length(client->inbox.bytes, client->inbox.length, WIRE_CONTROL_BYTES_MAX, &error);
	if (length >= 0 && (length == 0 || client->inbox.length < (size_t)length))
		return false;
	if (length < 0 || wire_header_decode(client->inbox.bytes, client->inbox.length, &header, &error)) {
		kvr_counter_add(client->state == CLIENT_HELLO ? &counters->bad_protocol_total
							      : &counters->control_malformed_total,
			1);
		control_client_close(client, error.what);
		return true;
	}
	control_client_drop_old_fds(client);
	control_client_dispatch(client, &header, (const uint8_t *)client->inbox.bytes);
	client->inbox.length -= (size_t)length;
	memmove(client->inbox.bytes, client->inbox.bytes + length, client->inbox.length);
	return true;
}

/* A message ahead is enough: a client that floods waits in its socket. */
static bool control_client_full(const struct control_client *client)
{
	struct wire_error error;
	int length;

	if (client->inbox.length < CONTROL_RECEIVE_STEP)
		return false;
	length = wire_stream_length(client->inbox.bytes, client->inbox.length, WIRE_CONTROL_BYTES_MAX, &error);
	return length < 0 || client->inbox.length >= (size_t)length;
}

static bool control_client_receive(struct control_client *client)
{
	char bytes[CONTROL_RECEIVE_STEP];
	unsigned known = client->fd_count;
	ssize_t length;

	if (!client->stream || control_client_full(client))
		return false;
	length = client->stream->ops->receive(
		client->stream, bytes, sizeof(bytes), client->fds, &client->fd_count, STREAM_FDS_MAX);
	if (length == -EAGAIN)
		return false;
	client->received_bytes += length > 0 ? (uint64_t)length : 0;
	while (known < client->fd_count)
		client->fd_ends[known++] = client->received_bytes;
	if (length <= 0) {
		if (client->state == CLIENT_CONNECTED)
			kvr_counter_add(&client->control->counters.clients_lost_total, 1);
		control_client_close(client, length == 0 ? "the client went" : strerror((int)-length));
		return true;
	}
	text_append_bytes(&client->inbox, bytes, (size_t)length);
	if (client->inbox.failed)
		control_client_close(client, "no memory for its message");
	return true;
}

static bool control_client_flush(struct control_client *client)
{
	size_t left = client->outbox.length - client->sent;
	bool with_fds;
	ssize_t length;

	if (!client->stream || left == 0)
		return false;
	with_fds = client->out_fd_count > 0;
	if (with_fds && client->out_fd_at > client->sent) {
		left = client->out_fd_at - client->sent; /* up to the byte that carries them */
		with_fds = false;
	}
	length = client->stream->ops->send(client->stream, client->outbox.bytes + client->sent, left, client->out_fds,
		with_fds ? client->out_fd_count : 0);
	if (length == -EAGAIN)
		return false;
	if (length < 0) {
		control_client_close(client, strerror((int)-length));
		return true;
	}
	if (with_fds)
		client->out_fd_count = 0;
	client->sent += (size_t)length;
	if (client->sent == client->outbox.length) {
		client->sent = 0;
		client->outbox.length = 0;
		if (client->close_after_send)
			control_client_close(client, "refused");
	}
	return true;
}

bool control_client_step(struct control_client *client)
{
	struct control *control = client->control;
	bool busy = false, asked;

	if (client->job.kind != CLIENT_JOB_NONE && client->job.waiting)
		client->job.waiting = !helper_submit(control_helper_of(control, client->job.kind), &client->job.job);
	/* A queue pair that takes long to make is not the client's fault. */
	if (client->stream && client->state < CLIENT_CONNECTED && client->job.kind == CLIENT_JOB_NONE &&
		client->deadline_ns && control->now_ns >= client->deadline_ns) {
		kvr_counter_add(&control->counters.handshake_timeouts_total, 1);
		control_client_close(client, "it did not finish the handshake in time");
		return true;
	}
	busy |= control_client_receive(client);
	asked = control_client_parse(client);
	/* While it waits for an answer of ours it need not say anything: the reaper looks at this. */
	if (asked || client->answer_pending || client->job.kind != CLIENT_JOB_NONE)
		kvr_store_relaxed(&client->connection.control_seen_ns, control->now_ns);
	busy |= asked;
	if (client->outbox.failed)
		control_client_close(client, "no memory for an answer");
	busy |= control_client_flush(client);
	return busy;
}
