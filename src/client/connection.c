/* connection.c - getting connected, staying connected, and coming back after a loss. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/client_private.h"

struct wire_header connection_header(struct kvr_client *client, uint16_t type)
{
	struct wire_header header;

	memset(&header, 0, sizeof(header));
	header.type = type;
	header.request_id = ++client->control_id;
	header.boot_id = client->boot_id;
	return header;
}

void connection_send(struct kvr_client *client, const void *bytes, ssize_t length)
{
	if (length > 0)
		text_append_bytes(&client->outbox, bytes, (size_t)length);
	if (length <= 0 || client->outbox.failed)
		connection_lose(client, length < 0 ? (int)length : -ENOMEM, "a control message could not be made");
}

static void connection_close_stream(struct kvr_client *client)
{
	if (client->stream && client->started && client->device->driver->moved_by_peer) {
		client->stream->ops->finish(client->stream);
		client->lingering = client->stream;
	} else if (client->stream) {
		client->stream->ops->close(client->stream);
	}
	client->stream = NULL;
	while (client->fd_count > 0)
		close(client->fds[--client->fd_count]);
	client->inbox.length = 0;
	client->inbox.failed = false;
	client->outbox.length = 0;
	client->outbox.failed = false;
	client->sent = 0;
	client->out_fd = -1;
	client->operation = OPERATION_NONE;
}

void connection_lose(struct kvr_client *client, int error, const char *format, ...)
{
	va_list arguments;

	if (client->state == CONNECTION_CLOSING || client->state == CONNECTION_DOWN ||
		client->state == CONNECTION_FAILED)
		return;
	client->failure = error;
	va_start(arguments, format);
	vsnprintf(client->failure_text, sizeof(client->failure_text), format, arguments);
	va_end(arguments);
	connection_close_stream(client);
	if (client->qp && client->started)
		client->device->driver->qp_fail(client->qp);
	client_rails_lose_all(client);
	client->state = CONNECTION_CLOSING;
}

/* Has the server let go of our memory? It says so by the end of the control stream; the kernel says it when the server died. */
static bool connection_quiet(struct kvr_client *client)
{
	char bytes[1024];
	ssize_t length;

	if (!client->lingering)
		return true;
	length = client->lingering->ops->receive(
		client->lingering, bytes, sizeof(bytes), client->fds, &client->fd_count, 0);
	if (length > 0 || length == -EAGAIN)
		return false;
	client->lingering->ops->close(client->lingering);
	client->lingering = NULL;
	return true;
}

/* Trying again changes nothing about these. */
static bool connection_failure_final(int failure)
{
	return failure == -EACCES || failure == -EPERM || failure == -EPROTONOSUPPORT || failure == -EPROTOTYPE;
}

/*
 * Half of the back-off is jitter: many clients that lost one server must not come back in the same moment (pitfalls G06). A
 * connection that did not stand for long counts as another failed attempt.
 */
static void connection_plan_retry(struct kvr_client *client)
{
	if (client->ready_ns != 0 && client->now_ns - client->ready_ns >= CLIENT_BACKOFF_MAX_NS)
		client->backoff_ns = 0;
	client->ready_ns = 0;
	client->backoff_ns = client->come_back_late
		? CLIENT_BACKOFF_MAX_NS
		: kvr_min_u64(kvr_max_u64(2 * client->backoff_ns, CLIENT_BACKOFF_MIN_NS), CLIENT_BACKOFF_MAX_NS);
	client->come_back_late = false;
	client->retry_ns = client->now_ns + client->backoff_ns / 2 +
		random_below(&client->random, client->backoff_ns / 2);
}

/* After a loss: the queue pair must be idle before tickets end, since their memory is the caller's again from then on. */
static bool connection_closing_step(struct kvr_client *client)
{
	const struct verbs_driver *driver = client->device->driver;
	if (!connection_quiet(client))
		return false;
	if (!client_rails_gone(client))
		return false;
	if (client->qp) {
		if (client->started && !driver->qp_idle(client->qp))
			return false;
		if (client->started)
			driver->qp_stop(client->qp);
		driver->destroy_qp(client->qp);
		client->qp = NULL;
		client->started = false;
	}
	registration_forget_all(client);
	queue_end_all(client, -ECONNRESET, client->failure_text);
	client->state = client->options.user->reconnect && !connection_failure_final(client->failure)
		? CONNECTION_DOWN
		: CONNECTION_FAILED;
	connection_plan_retry(client);
	/* It may have been the device. */
	if (client->rail_count > 1)
		client_rails_set_home(client, client_rails_next_home(client));
	return true;
}

static bool connection_begin(struct kvr_client *client)
{
	int error;

	if (client->now_ns < client->retry_ns)
		return false;
	client->attempt_ns = client->now_ns + client->options.user->connect_timeout_ns;
	client->state = CONNECTION_HELLO;
	client->generation++;
	client->home_health = kvr_load_relaxed(&client->device->health);
	client->home_down_ns = verbs_is_up(client->device) ? 0 : client->now_ns;
	error = client->options.connect(client->options.context, &client->stream);
	if (error) {
		connection_lose(client, error, "no connection to the server: %s", strerror(-error));
		return true;
	}
	handshake_begin(client);
	return true;
}

static bool connection_flush(struct kvr_client *client)
{
	size_t left = client->outbox.length - client->sent;
	unsigned fd_count = 0;
	ssize_t length;

	if (left == 0)
		return false;
	if (client->out_fd >= 0 && client->out_fd_at > client->sent)
		left = client->out_fd_at - client->sent;
	else if (client->out_fd >= 0)
		fd_count = 1;
	length = client->stream->ops->send(
		client->stream, client->outbox.bytes + client->sent, left, &client->out_fd, fd_count);
	if (length == -EAGAIN)
		return false;
	if (length == -EPIPE) {
		/* The server may have said why before it closed: that is read next, then the end. */
		client->outbox.length = client->sent = 0;
		client->out_fd = -1;
		return true;
	}
	if (length <= 0) {
		connection_lose(client, length < 0 ? (int)length : -ECONNRESET, "the control socket failed: %s",
			strerror((int)-length));
		return true;
	}
	if (fd_count > 0)
		client->out_fd = -1;
	client->sent += (size_t)length;
	if (client->sent == client->outbox.length) {
		client->sent = 0;
		client->outbox.length = 0;
	}
	return true;
}

static bool connection_receive(struct kvr_client *client)
{
	char bytes[16384];
	ssize_t length;

	length = client->stream->ops->receive(
		client->stream, bytes, sizeof(bytes), client->fds, &client->fd_count, STREAM_FDS_MAX);
	if (length == -EAGAIN)
		return false;
	if (length <= 0) {
		client->stream->ops->close(client->stream);
		client->stream = NULL;
		connection_lose(client, length < 0 ? (int)length : -ECONNRESET, "the server closed the connection");
		return true;
	}
	text_append_bytes(&client->inbox, bytes, (size_t)length);
	if (client->inbox.failed)
		connection_lose(client, -ENOMEM, "no memory for a control message");
	return true;
}

static bool connection_parse(struct kvr_client *client)
{
	struct wire_header header;
	struct wire_error error;
	int length;

	if (client->inbox.length == 0)
		return false;
	length = wire_stream_length(client->inbox.bytes, client->inbox.length, WIRE_CONTROL_BYTES_MAX, &error);
	if (length >= 0 && (length == 0 || client->inbox.length < (size_t)length))
		return false;
	if (length < 0 || wire_header_decode(client->inbox.bytes, client->inbox.length, &header, &error)) {
		connection_lose(client, -EPROTO, "the server's bytes are not the kvrail protocol: %s", error.what);
		return true;
	}
	if (client->state < CONNECTION_RESTORING)
		handshake_message(client, &header, (const uint8_t *)client->inbox.bytes);
	else
		registration_message(client, &header, (const uint8_t *)client->inbox.bytes);
	if (client->inbox.length >= (size_t)length) { /* not lost meanwhile */
		client->inbox.length -= (size_t)length;
		memmove(client->inbox.bytes, client->inbox.bytes + length, client->inbox.length);
	}
	return true;
}

/* Nothing is under way on the stream: only its end can come, and to read it is a system call, which costs more than a
 * whole PING. The simulator's streams have no descriptor and cost nothing. */
static bool connection_rests(const struct kvr_client *client)
{
	return client->state == CONNECTION_READY && client->operation == OPERATION_NONE && !client->unsettled &&
		client->inbox.length == 0 && client->outbox.length == 0 && client->now_ns < client->look_ns &&
		client->rails_closing == 0 && client->stream->ops->event_fd(client->stream) >= 0;
}

bool connection_step(struct kvr_client *client)
{
	bool busy = false;

	if (client->state == CONNECTION_FAILED)
		return false;
	if (client->state == CONNECTION_DOWN)
		return connection_begin(client);
	if (client->state == CONNECTION_CLOSING)
		return connection_closing_step(client);
	if (connection_rests(client))
		return false;
	client->look_ns = client->now_ns + CLIENT_LOOK_NS;
	if (client_rails_look_at_home(client))
		return true;
	if (client->rail_count > 1)
		busy |= client_rails_step(client);
	busy |= connection_receive(client);
	while (client->stream && connection_parse(client))
		busy = true;
	if (client->stream && client->state >= CONNECTION_RESTORING)
		busy |= registration_step(client);
	if (client->stream)
		busy |= connection_flush(client);
	if (client->stream && client->state < CONNECTION_READY && client->now_ns >= client->attempt_ns) {
		connection_lose(client, -ETIMEDOUT, "the server did not answer in time");
		busy = true;
	}
	return busy;
}
