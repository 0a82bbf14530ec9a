/* http_pages_microhttpd.c - the pages: what each answers, and waiting for the management core's word. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/text.h"
#include "mgmt/http_private.h"

/* ---- answers ---- */

/* Takes the text over. */
enum MHD_Result http_answer(struct http_request *request, unsigned status, const char *type, struct text *text)
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

enum MHD_Result http_answer_words(struct http_request *request, unsigned status, const char *format, ...)
{
	struct text text = { NULL, 0, 0, false };
	char words[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(words, sizeof(words), format, arguments);
	va_end(arguments);
	text_append(&text, "%s\n", words);
	return http_answer(request, status, "text/plain; charset=utf-8", &text);
}

/* ---- waiting for the management core ---- */

void http_wait(struct http_request *request)
{
	struct http *http = request->http;

	request->state = HTTP_WAITING;
	request->deadline_ns = http->now_ns + HTTP_WAIT_NS;
	list_add_last(&http->waiting, &request->node);
	MHD_suspend_connection(request->connection);
}

void http_resume(struct http_request *request, enum http_state state)
{
	struct http *http = request->http;

	list_remove(&request->node);
	request->state = state;
	http->look = true;
	if (state == HTTP_LATE && http->change_request == request)
		http->change_request = NULL;
	MHD_resume_connection(request->connection);
}

static void status_done(void *context, struct status_snapshot *snapshot)
{
	struct http *http = context;

	http->asking = false;
	http->snapshots[0] = *snapshot;
	list_for_each_safe(node, &http->waiting) {
		struct http_request *request = KVR_CONTAINER_OF(node, struct http_request, node);

		if (request != http->change_request)
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

enum MHD_Result http_answer_late(struct http_request *request)
{
	const struct http *http = request->http;
	const char *why = http->options.not_ready(http->options.context, http->now_ns);

	return http_answer_words(request, MHD_HTTP_SERVICE_UNAVAILABLE,
		"the management core has not answered within %u s%s%s", (unsigned)(HTTP_WAIT_NS / KVR_SECOND),
		why ? ": " : "", why ? why : "");
}

/* ---- the pages ---- */

static enum MHD_Result handle_healthz(struct http_request *request)
{
	return http_answer_words(request, MHD_HTTP_OK, "ok");
}

static enum MHD_Result handle_readyz(struct http_request *request)
{
	const struct http *http = request->http;
	const char *why = http->options.not_ready(http->options.context, http->now_ns);

	struct text degraded = { NULL, 0, 0, false };
	enum MHD_Result result;

	if (why)
		return http_answer_words(request, MHD_HTTP_SERVICE_UNAVAILABLE, "not ready: %s", why);
	/* L1 serves without it, and a restart would not help: the load balancer is not told to look elsewhere. */
	if (status_degraded(http->options.sources, http->now_ns, &degraded) && degraded.bytes)
		result = http_answer_words(request, MHD_HTTP_OK, "ready, degraded: %s", degraded.bytes);
	else
		result = http_answer_words(request, MHD_HTTP_OK, "ready");
	text_fini(&degraded);
	return result;
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
		return http_answer_late(request);
	page(http->options.sources, &http->snapshots[0], http->options.not_ready(http->options.context, http->now_ns),
		http->now_ns, &text);
	return http_answer(request, MHD_HTTP_OK, type, &text);
}

static enum MHD_Result handle_status(struct http_request *request)
{
	return handle_page(request, "application/json", status_page_json);
}

static enum MHD_Result handle_metrics(struct http_request *request)
{
	return handle_page(request, "text/plain; version=0.0.4; charset=utf-8", status_page_metrics);
}

static const struct http_route routes[] = {
	{ "GET", "/healthz", "200 while the process runs", handle_healthz },
	{ "GET", "/readyz", "200 while requests are served, else 503 and why", handle_readyz },
	{ "GET", "/status", "the state as JSON", handle_status },
	{ "GET", "/metrics", "counters for Prometheus", handle_metrics },
	{ "POST", "/clear", "drops all chunks that are not in use, from L2 too (?tiers=l1: not); needs a token",
		http_handle_clear },
	{ "POST", "/quota", "?tenant=NAME&quota=SOFT:HARD or default: limits of a tenant; needs a token",
		http_handle_quota },
	{ "POST", "/pin", "?name=NAME&tenant=NAME&model=NAME: keeps a prefix in L1, see kvrailctl pin; needs a token",
		http_handle_pin },
	{ "POST", "/unpin", "?name=NAME: keeps it no longer; needs a token", http_handle_unpin },
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
	return http_answer(request, MHD_HTTP_NOT_FOUND, "text/plain; charset=utf-8", &text);
}

enum MHD_Result http_dispatch(struct http_request *request, const char *path, const char *method)
{
	for (size_t i = 0; i < KVR_COUNT_OF(routes); i++) {
		if (strcmp(routes[i].path, path) != 0)
			continue;
		request->route = &routes[i];
		/* HEAD is GET without a body, which libmicrohttpd leaves out. */
		if (strcmp(routes[i].method, strcmp(method, "HEAD") == 0 ? "GET" : method) != 0)
			return http_answer_words(
				request, MHD_HTTP_METHOD_NOT_ALLOWED, "%s takes %s", path, routes[i].method);
		return routes[i].handle(request);
	}
	return handle_unknown(request, path);
}
