/*
 * http_microhttpd.c - pages through libmicrohttpd, in its external mode: it has no thread, and its epoll descriptor is one of those
 * that the control thread sleeps on.
 */
#include "mgmt/http.h"

#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/list.h"
#include "base/log.h"
#include "base/stream.h"
#include "base/text.h"

#define HTTP_IDLE_SECONDS 10
/* Bytes of a request's body that are read and thrown away; nothing here wants one. */
#define HTTP_BODY_MAX 4096
/* While it is not known that something came, it is looked at no more often than this. */
#define HTTP_LOOK_NS KVR_MS

enum http_state { HTTP_NEW, HTTP_WAITING, HTTP_ANSWERED, HTTP_LATE };

struct http_request {
	struct list_node node; /* http->waiting while WAITING */
	struct http *http;
	struct MHD_Connection *connection;
	const struct http_route *route;
	enum http_state state;
	uint64_t deadline_ns;
	size_t body_bytes;
	char caller[80];
};

struct http {
	struct http_options options;
	struct MHD_Daemon *daemon;
	int fd;
	uint16_t port;
	uint64_t now_ns, looked_ns;
	uint64_t timeout_ns; /* when libmicrohttpd wants to be run */
	bool look;           /* something may have come */
	bool handled;        /* a request was, in this step */
	struct list_node waiting;
	struct status_snapshot *snapshots; /* [0]: the newest; [1]: the management core's while `asking` */
	bool asking;
	struct clear_job clear; /* the management core's while `clearing` */
	bool clearing;
	struct http_request *clear_request; /* who is waiting for it; NULL: gone */
};

struct http_route {
	const char *method;
	const char *path;
	const char *what;
	enum MHD_Result (*handle)(struct http_request *request);
};

/* ---- answers ---- */

/* Takes the text over. */
static enum MHD_Result answer(struct http_request *request, unsigned status, const char *type, struct text *text)
{
	struct MHD_Response *response = NULL;
	enum MHD_Result result;

	if (!text->failed && text->bytes && !fault_point("http/answer"))
		response = MHD_create_response_from_buffer(text->length, text->bytes, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		text_fini(text);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	if (status == MHD_HTTP_UNAUTHORIZED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"kvrail\"");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, request->route->method);
	result = MHD_queue_response(request->connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result answer_words(struct http_request *request, unsigned status, const char *format, ...)
	KVR_PRINTF(3, 4);

static enum MHD_Result answer_words(struct http_request *request, unsigned status, const char *format, ...)
{
	struct text text = { NULL, 0, 0, false };
	char words[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(words, sizeof(words), format, arguments);
	va_end(arguments);
	text_append(&text, "%s\n", words);
	return answer(request, status, "text/plain; charset=utf-8", &text);
}

/* ---- waiting for the management core ---- */

static void http_wait(struct http_request *request)
{
	struct http *http = request->http;

	request->state = HTTP_WAITING;
	request->deadline_ns = http->now_ns + HTTP_WAIT_NS;
	list_add_last(&http->waiting, &request->node);
	MHD_suspend_connection(request->connection);
}

/* libmicrohttpd calls the handler again. */
static void http_resume(struct http_request *request, enum http_state state)
{
	struct http *http = request->http;

	list_remove(&request->node);
	request->state = state;
	http->look = true;
	if (state == HTTP_LATE && http->clear_request == request)
		http->clear_request = NULL;
	MHD_resume_connection(request->connection);
}

static void status_done(void *context, struct status_snapshot *snapshot)
{
	struct http *http = context;

	http->asking = false;
	http->snapshots[0] = *snapshot;
	list_for_each_safe(node, &http->waiting) {
		struct http_request *request = KVR_CONTAINER_OF(node, struct http_request, node);

		if (request != http->clear_request)
			http_resume(request, HTTP_ANSWERED);
	}
}

/* All that ask while a snapshot is under way share it. */
static bool http_ask_status(struct http_request *request)
{
	struct http *http = request->http;

	if (!http->asking) {
		if (control_request_status(http->options.control, &http->snapshots[1], status_done, http) != 0)
			return false;
		http->asking = true;
	}
	http_wait(request);
	return true;
}

static enum MHD_Result answer_late(struct http_request *request)
{
	const struct http *http = request->http;
	const char *why = http->options.not_ready(http->options.context, http->now_ns);

	return answer_words(request, MHD_HTTP_SERVICE_UNAVAILABLE,
		"the management core has not answered within %u s%s%s", (unsigned)(HTTP_WAIT_NS / KVR_SECOND),
		why ? ": " : "", why ? why : "");
}

/* ---- the pages ---- */

static enum MHD_Result handle_healthz(struct http_request *request)
{
	return answer_words(request, MHD_HTTP_OK, "ok");
}

static enum MHD_Result handle_readyz(struct http_request *request)
{
	const struct http *http = request->http;
	const char *why = http->options.not_ready(http->options.context, http->now_ns);

	if (why)
		return answer_words(request, MHD_HTTP_SERVICE_UNAVAILABLE, "not ready: %s", why);
	return answer_words(request, MHD_HTTP_OK, "ready");
}

static enum MHD_Result handle_page(struct http_request *request, const char *type,
	void (*page)(const struct status_sources *sources, const struct status_snapshot *snapshot,
		const char *not_ready, uint64_t now_ns, struct text *out))
{
	const struct http *http = request->http;
	struct text text = { NULL, 0, 0, false };

	if (request->state == HTTP_NEW && http_ask_status(request))
		return MHD_YES;
	if (request->state != HTTP_ANSWERED)
		return answer_late(request);
	page(http->options.sources, &http->snapshots[0], http->options.not_ready(http->options.context, http->now_ns),
		http->now_ns, &text);
	return answer(request, MHD_HTTP_OK, type, &text);
}

static enum MHD_Result handle_status(struct http_request *request)
{
	return handle_page(request, "application/json", status_page_json);
}

static enum MHD_Result handle_metrics(struct http_request *request)
{
	return handle_page(request, "text/plain; version=0.0.4; charset=utf-8", status_page_metrics);
}

/* Takes as long for a wrong token as for the right one. */
static bool same_secret(const char *given, const char *secret)
{
	size_t given_length = strlen(given), length = strlen(secret);
	unsigned difference = given_length != length;

	for (size_t i = 0; i < length; i++)
		difference |= (unsigned char)secret[i] ^ (unsigned char)(i < given_length ? given[i] : 0);
	return difference == 0;
}

static bool http_allowed(struct http_request *request)
{
	const char *header = MHD_lookup_connection_value(
		request->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
	const char *token = request->http->options.token;

	if (!token || !token[0] || !header || strncasecmp(header, "Bearer ", 7) != 0)
		return false;
	return same_secret(header + 7, token);
}

static void clear_done(void *context, struct clear_job *job)
{
	struct http *http = context;

	log_warn("admin: clear: %" PRIu64 " chunks dropped, %" PRIu64 " kept because they are in use", job->dropped,
		job->kept);
	http->clearing = false;
	if (http->clear_request)
		http_resume(http->clear_request, HTTP_ANSWERED);
}

static enum MHD_Result handle_clear(struct http_request *request)
{
	struct http *http = request->http;
	struct text text = { NULL, 0, 0, false };

	if (request->state == HTTP_ANSWERED) {
		http->clear_request = NULL;
		text_append(&text, "{\"dropped\":%" PRIu64 ",\"kept\":%" PRIu64 "}\n", http->clear.dropped,
			http->clear.kept);
		return answer(request, MHD_HTTP_OK, "application/json", &text);
	}
	if (request->state == HTTP_LATE)
		return answer_late(request);
	if (!http_allowed(request)) {
		log_warn("admin: clear by %s refused: no token, or a wrong one", request->caller);
		return answer_words(request, MHD_HTTP_UNAUTHORIZED,
			"this needs the header \"Authorization: Bearer TOKEN\" with the token "
			"of the file that kvraild was given as --admin-token-file%s",
			http->options.token && http->options.token[0] ? "" : " (it was given none)");
	}
	if (http->clearing)
		return answer_words(request, MHD_HTTP_CONFLICT, "another clear is under way");
	if (control_request_clear(http->options.control, &http->clear, clear_done, http) != 0)
		return answer_late(request);
	log_warn("admin: clear asked for by %s", request->caller);
	http->clearing = true;
	http->clear_request = request;
	http_wait(request);
	return MHD_YES;
}

static const struct http_route routes[] = {
	{ "GET", "/healthz", "200 while the process runs", handle_healthz },
	{ "GET", "/readyz", "200 while requests are served, else 503 and why", handle_readyz },
	{ "GET", "/status", "the state as JSON", handle_status },
	{ "GET", "/metrics", "counters for Prometheus", handle_metrics },
	{ "POST", "/clear", "drops all chunks that are not in use; needs a token", handle_clear },
};

static enum MHD_Result handle_unknown(struct http_request *request, const char *path)
{
	struct text text = { NULL, 0, 0, false };
	char shown[128];

	text_copy(shown, sizeof(shown), path);
	for (char *at = shown; *at; at++) {
		if ((unsigned char)*at < 0x20 || (unsigned char)*at >= 0x7f)
			*at = '?';
	}
	text_append(&text, "no page %s; there are:\n", shown);
	for (size_t i = 0; i < KVR_COUNT_OF(routes); i++)
		text_append(&text, "  %-4s %-9s %s\n", routes[i].method, routes[i].path, routes[i].what);
	return answer(request, MHD_HTTP_NOT_FOUND, "text/plain; charset=utf-8", &text);
}

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

static enum MHD_Result http_dispatch(struct http_request *request, const char *path, const char *method)
{
	for (size_t i = 0; i < KVR_COUNT_OF(routes); i++) {
		if (strcmp(routes[i].path, path) != 0)
			continue;
		request->route = &routes[i];
		/* HEAD is GET without a body, which libmicrohttpd leaves out. */
		if (strcmp(routes[i].method, strcmp(method, "HEAD") == 0 ? "GET" : method) != 0)
			return answer_words(
				request, MHD_HTTP_METHOD_NOT_ALLOWED, "%s takes %s", path, routes[i].method);
		return routes[i].handle(request);
	}
	return handle_unknown(request, path);
}

static enum MHD_Result http_handle(void *context, struct MHD_Connection *connection, const char *path,
	const char *method, const char *version, const char *upload, size_t *upload_size, void **slot)
{
	struct http_request *request = *slot;
	struct http *http = context;

	(void)version;
	(void)upload;
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
		request->body_bytes += *upload_size;
		*upload_size = 0;
		return request->body_bytes > HTTP_BODY_MAX ? MHD_NO : MHD_YES;
	}
	if (request->route)
		return request->route->handle(request);
	name_caller(request);
	return http_dispatch(request, path, method);
}

static void http_completed(
	void *context, struct MHD_Connection *connection, void **slot, enum MHD_RequestTerminationCode how)
{
	struct http_request *request = *slot;
	struct http *http = context;

	(void)connection;
	(void)how;
	if (!request)
		return;
	if (http->clear_request == request)
		http->clear_request = NULL;
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
		(unsigned)HTTP_IDLE_SECONDS, MHD_OPTION_NOTIFY_COMPLETED, http_completed, http, MHD_OPTION_END);
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
	if (!http->look && now_ns < http->timeout_ns && now_ns - http->looked_ns < HTTP_LOOK_NS)
		return false;
	http->looked_ns = now_ns;
	MHD_run(http->daemon);
	http->timeout_ns = UINT64_MAX;
	if (MHD_get_timeout(http->daemon, &timeout_ms) == MHD_YES)
		http->timeout_ns = now_ns + timeout_ms * KVR_MS;
	/* It has more to do at once. */
	http->look = http->timeout_ns == now_ns;
	return http->handled;
}

uint64_t http_next_ns(const struct http *http)
{
	uint64_t next_ns = http->look ? 0 : http->timeout_ns;

	list_for_each(node, &http->waiting)
		next_ns = kvr_min_u64(next_ns, KVR_CONTAINER_OF(node, struct http_request, node)->deadline_ns);
	return next_ns;
}
