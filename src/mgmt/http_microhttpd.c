/*
 * http_microhttpd.c - pages through libmicrohttpd, in its external mode: it has no thread, and its epoll descriptor is one of those
 * that the control thread sleeps on.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/stream.h"
#include "base/text.h"
#include "mgmt/http_private.h"

#define HTTP_IDLE_SECONDS 10
/* From its first byte, or from the answer before, a request has so long to be there whole: who sends a byte now and
 * then is not idle, and would keep its place for ever. */
#define HTTP_REQUEST_NS (10 * KVR_SECOND)
/* Places that are kept free: the connection that has been without a request for longest makes room. */
#define HTTP_SPARE 8
/* While it is not known that something came, it is looked at no more often than this. */
#define HTTP_LOOK_NS KVR_MS

/* ---- libmicrohttpd's calls ---- */

static void name_caller(struct http_request *request)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct stream *stream;
	int fd = info ? dup(info->connect_fd) : -1;

	text_copy(request->caller, sizeof(request->caller), "unknown");
	if (fd < 0)
		return;
	if (stream_from_fd(fd, false, &stream) != 0) {
		close(fd);
		return;
	}
	text_copy(request->caller, sizeof(request->caller), stream->name);
	stream->ops->close(stream);
}

static struct http_peer *http_peer_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static void http_read_from(struct http *http, struct http_peer *peer)
{
	list_remove(&peer->node);
	peer->since_ns = http->now_ns;
	list_add_last(&http->reading, &peer->node);
}

/* libmicrohttpd sees its end, and closes it. */
static void http_hang_up(struct http *http, struct http_peer *peer)
{
	list_remove(&peer->node);
	shutdown(peer->fd, SHUT_RDWR);
	http->look = true;
}

static void http_connected(
	void *context, struct MHD_Connection *connection, void **slot, enum MHD_ConnectionNotificationCode what)
{
	struct http_peer *peer = *slot;
	struct http *http = context;
	const union MHD_ConnectionInfo *info;

	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (peer) {
			list_remove(&peer->node);
			/* At its limit libmicrohttpd listens no more, and begins again when it runs the next time. */
			http->look |= http->peer_count-- > HTTP_CONNECTIONS_MAX - HTTP_SPARE;
		}
		free(peer);
		*slot = NULL;
		return;
	}
	info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	peer = info && !fault_point("http/peer") ? calloc(1, sizeof(*peer)) : NULL;
	if (!peer)
		return; /* served all the same, within the idle limit */
	list_init(&peer->node);
	peer->fd = info->connect_fd;
	*slot = peer;
	http_read_from(http, peer);
	if (++http->peer_count > HTTP_CONNECTIONS_MAX - HTTP_SPARE)
		http_hang_up(http, KVR_CONTAINER_OF(http->reading.next, struct http_peer, node));
}

static enum MHD_Result http_handle(void *context, struct MHD_Connection *connection, const char *path,
	const char *method, const char *version, const char *upload, size_t *upload_size, void **slot)
{
	struct http_request *request = *slot;
	struct http *http = context;

	(void)version;
	http->handled = true;
	if (!request) {
		request = fault_point("http/request") ? NULL : calloc(1, sizeof(*request));
		if (!request)
			return MHD_NO;
		list_init(&request->node);
		request->http = http;
		request->connection = connection;
		*slot = request;
		return MHD_YES;
	}
	if (*upload_size > 0) {
		bool taken = http_take_body(request, path, upload, *upload_size);

		*upload_size = 0;
		return taken ? MHD_YES : MHD_NO;
	}
	if (request->route)
		return request->route->handle(request);
	if (http_peer_of(connection))
		list_remove(&http_peer_of(connection)->node);
	name_caller(request);
	return http_dispatch(request, path, method);
}

static void http_completed(
	void *context, struct MHD_Connection *connection, void **slot, enum MHD_RequestTerminationCode how)
{
	struct http_request *request = *slot;
	struct http *http = context;
	struct http_peer *peer = http_peer_of(connection);

	(void)how;
	if (!request)
		return;
	if (peer && list_empty(&peer->node))
		http_read_from(http, peer);
	if (http->change_request == request)
		http->change_request = NULL;
	free(request->body);
	list_remove(&request->node);
	free(request);
	*slot = NULL;
}

static void http_log(void *context, const char *format, va_list arguments)
{
	char words[256];

	(void)context;
	vsnprintf(words, sizeof(words), format, arguments);
	words[strcspn(words, "\n")] = '\0';
	log_debug("http: %s", words);
}

/* ---- the object ---- */

static bool parse_address(const char *address, struct stream_address *parsed)
{
	const char *colon = strrchr(address, ':');
	uint64_t port;
	char url[300];

	if (strlen(address) > sizeof(url) - 16 || !colon || text_parse_u64(colon + 1, &port) != 0)
		return false;
	snprintf(url, sizeof(url), "kvrail://%s", address);
	return stream_parse_address(url, parsed) == 0;
}

bool http_address_good(const char *address)
{
	struct stream_address parsed;

	return parse_address(address, &parsed);
}

int http_listen(const char *address, int *listen_fd)
{
	struct stream_address parsed;
	int error = -EINVAL;

	*listen_fd = -1;
	if (parse_address(address, &parsed))
		error = stream_listen(&parsed, 0, listen_fd);
	if (error)
		log_error("http: %s can't be listened on: %s; give another address or port as --http, or off", address,
			strerror(-error));
	return error;
}

static struct MHD_Daemon *http_start_daemon(struct http *http, int fd)
{
	return MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
		http_handle, http, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_EXTERNAL_LOGGER, http_log, NULL,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
		(unsigned)HTTP_IDLE_SECONDS, MHD_OPTION_NOTIFY_COMPLETED, http_completed, http,
		MHD_OPTION_NOTIFY_CONNECTION, http_connected, http, MHD_OPTION_END);
}

int http_create(const struct http_options *options, struct http **out)
{
	struct http *http = fault_point("http_create/object") ? NULL : calloc(1, sizeof(*http));
	const union MHD_DaemonInfo *info = NULL;

	*out = NULL;
	if (!http)
		goto close_fd;
	http->options = *options;
	list_init(&http->waiting);
	list_init(&http->reading);
	http->port = stream_bound_port(options->listen_fd);
	http->snapshots = fault_point("http_create/snapshots") ? NULL : calloc(2, sizeof(*http->snapshots));
	if (!http->snapshots)
		goto free_http;
	http->daemon = fault_point("http_create/daemon") ? NULL : http_start_daemon(http, options->listen_fd);
	if (!http->daemon) {
		log_error("http: libmicrohttpd could not be started");
		goto free_http;
	}
	info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	http->fd = info ? info->epoll_fd : -1;
	http->look = true;
	*out = http;
	return 0;
free_http:
	free(http->snapshots);
	free(http);
close_fd:
	close(options->listen_fd);
	return -ENOMEM;
}

void http_destroy(struct http **pointer)
{
	struct http *http = *pointer;

	if (!http)
		return;
	/* libmicrohttpd wants no connection suspended when it stops. */
	list_for_each_safe(node, &http->waiting)
		http_resume(KVR_CONTAINER_OF(node, struct http_request, node), HTTP_LATE);
	MHD_run(http->daemon);
	MHD_stop_daemon(http->daemon);
	/* Of a job that the management core has not come to, or whose end nobody has heard. */
	free(http->pin.pin);
	free(http->snapshots);
	free(http);
	*pointer = NULL;
}

uint16_t http_port(const struct http *http)
{
	return http->port;
}

int http_fd(const struct http *http)
{
	return http->fd;
}

void http_slept(struct http *http)
{
	http->look = true;
}

bool http_step(struct http *http, uint64_t now_ns)
{
	MHD_UNSIGNED_LONG_LONG timeout_ms;

	http->now_ns = now_ns;
	http->handled = false;
	list_for_each_safe(node, &http->waiting) {
		struct http_request *request = KVR_CONTAINER_OF(node, struct http_request, node);

		if (now_ns >= request->deadline_ns)
			http_resume(request, HTTP_LATE);
	}
	list_for_each_safe(peer_node, &http->reading) {
		struct http_peer *peer = KVR_CONTAINER_OF(peer_node, struct http_peer, node);

		if (now_ns - peer->since_ns < HTTP_REQUEST_NS)
			break;
		http_hang_up(http, peer);
	}
	if (!http->look && now_ns < http->timeout_ns && now_ns - http->looked_ns < HTTP_LOOK_NS)
		return false;
	http->looked_ns = now_ns;
	http->look = false; /* what it hangs up now is for the next look */
	MHD_run(http->daemon);
	http->timeout_ns = UINT64_MAX;
	if (MHD_get_timeout(http->daemon, &timeout_ms) == MHD_YES)
		http->timeout_ns = now_ns + timeout_ms * KVR_MS;
	/* It has more to do at once. */
	http->look |= http->timeout_ns == now_ns;
	return http->handled;
}

uint64_t http_next_ns(const struct http *http)
{
	uint64_t next_ns = http->look ? 0 : http->timeout_ns;

	if (!list_empty(&http->reading))
		next_ns = kvr_min_u64(next_ns,
			KVR_CONTAINER_OF(http->reading.next, struct http_peer, node)->since_ns + HTTP_REQUEST_NS);
	list_for_each(node, &http->waiting)
		next_ns = kvr_min_u64(next_ns, KVR_CONTAINER_OF(node, struct http_request, node)->deadline_ns);
	return next_ns;
}
