/* http_change_microhttpd.c - the pages that change something: each needs the token, is logged with its caller, and is the only one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/text.h"
#include "mgmt/http_private.h"
#include "mgmt/quota.h"

/* Bytes of a request's body that are read and thrown away where nothing wants one. */
#define HTTP_BODY_MAX 4096

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

/* ---- what they have in common ---- */

/* The caller may do it, and nothing else is being done: MHD_YES; else it was answered, and *result is to be returned. */
static bool http_may_change(struct http_request *request, const char *what, enum MHD_Result *result)
{
	const struct http *http = request->http;

	if (request->state == HTTP_LATE) {
		*result = http_answer_late(request);
	} else if (!http_allowed(request)) {
		log_warn("admin: %s by %s refused: no token, or a wrong one", what, request->caller);
		*result = http_answer_words(request, MHD_HTTP_UNAUTHORIZED,
			"this needs the header \"Authorization: Bearer TOKEN\" with the token "
			"of the file that kvraild was given as --admin-token-file%s",
			http->options.token && http->options.token[0] ? "" : " (it was given none)");
	} else if (http->changing) {
		*result = http_answer_words(request, MHD_HTTP_CONFLICT, "another %s is under way", http->changing);
	} else {
		return true;
	}
	return false;
}

static enum MHD_Result http_change_begun(struct http_request *request, const char *what, int error)
{
	struct http *http = request->http;

	if (error)
		return http_answer_late(request);
	http->changing = what;
	http->change_request = request;
	http_wait(request);
	return MHD_YES;
}

static void http_change_done(struct http *http)
{
	http->changing = NULL;
	http->pin.pin = NULL;
	if (http->change_request)
		http_resume(http->change_request, HTTP_ANSWERED);
}

/* A word of the query; "" when it is not there. False, and answered, when it is too long. */
static bool http_argument(
	struct http_request *request, const char *name, char *value, size_t size, enum MHD_Result *result)
{
	const char *given = MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);

	value[0] = '\0';
	if (given && strlen(given) >= size) {
		*result = http_answer_words(
			request, MHD_HTTP_BAD_REQUEST, "%s has more than %zu characters", name, size - 1);
		return false;
	}
	if (given)
		text_copy(value, size, given);
	return true;
}

static bool http_tenant(struct http_request *request, uint32_t *tenant, char name[64], enum MHD_Result *result)
{
	bool given = MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, "tenant") != NULL;

	if (!http_argument(request, "tenant", name, 64, result))
		return false;
	/* An empty one is a variable that a script did not set, not the default tenant. */
	if (!given)
		text_copy(name, 64, "default");
	*tenant = control_find_tenant(request->http->options.control, name);
	if (*tenant != UINT32_MAX)
		return true;
	*result = http_answer_words(request, MHD_HTTP_NOT_FOUND, "there is no tenant \"%s\"", name);
	return false;
}

/* ---- clear ---- */

static const char *clear_tiers(const struct http *http)
{
	return http->options.sources->l2 && !http->clear.l1_only ? "L1 and L2" : "L1";
}

/* "l1" or "all", which is meant when nothing is said. */
static bool read_tiers(struct http_request *request, bool *l1_only, enum MHD_Result *result)
{
	char tiers[8];

	if (!http_argument(request, "tiers", tiers, sizeof(tiers), result))
		return false;
	*l1_only = strcmp(tiers, "l1") == 0;
	if (!tiers[0] || *l1_only || strcmp(tiers, "all") == 0)
		return true;
	*result = http_answer_words(request, MHD_HTTP_BAD_REQUEST, "tiers is l1 or all");
	return false;
}

static void clear_done(void *context, struct clear_job *job)
{
	struct http *http = context;

	log_warn("admin: clear: %" PRIu64 " chunks dropped, %" PRIu64
		 " kept because they are in use; tiers: %s, places that failed: %" PRIu32,
		job->dropped, job->kept, clear_tiers(http), job->failed);
	http_change_done(http);
}

enum MHD_Result http_handle_clear(struct http_request *request)
{
	struct http *http = request->http;
	struct text text = { NULL, 0, 0, false };
	enum MHD_Result result;
	bool l1_only;

	if (request->state == HTTP_ANSWERED) {
		http->change_request = NULL;
		text_append(&text,
			"{\"dropped\":%" PRIu64 ",\"kept\":%" PRIu64 ",\"tiers\":\"%s\",\"l2_failed\":%" PRIu32 "}\n",
			http->clear.dropped, http->clear.kept, clear_tiers(http), http->clear.failed);
		return http_answer(request, MHD_HTTP_OK, "application/json", &text);
	}
	if (!http_may_change(request, "clear", &result) || !read_tiers(request, &l1_only, &result))
		return result;
	result = http_change_begun(request, "clear",
		control_request_clear(http->options.control, &http->clear, l1_only, clear_done, http));
	if (http->changing)
		log_warn("admin: clear asked for by %s", request->caller);
	if (http->changing && http->options.sources->l2 && !l1_only)
		request->deadline_ns = http->now_ns + HTTP_CLEAR_WAIT_NS;
	return result;
}

/* ---- quota ---- */

/* What the change means for what the tenant holds, for its caller and the log. */
static void quota_words(const struct quota_job *job, char *words, size_t size)
{
	char held[TEXT_SHORT], soft[TEXT_SHORT], hard[TEXT_SHORT];
	const char *means = "";

	if (job->quota.hard_bytes > 0 && job->held_bytes > job->quota.hard_bytes)
		means = ", which is above the hard limit: its next stores evict its own chunks until it is below";
	else if (job->quota.soft_bytes > 0 && job->held_bytes > job->quota.soft_bytes)
		means = ", which is above the soft limit: its chunks are the first to be evicted";
	snprintf(words, size, "soft %s, hard %s%s; it holds %s (%" PRIu64 " bytes)%s",
		quota_limit_text(soft, job->quota.soft_bytes), quota_limit_text(hard, job->quota.hard_bytes),
		job->remove ? " (the default)" : "", text_size(held, job->held_bytes), job->held_bytes, means);
}

static void quota_done(void *context, struct quota_job *job)
{
	struct http *http = context;
	char words[256];

	quota_words(job, words, sizeof(words));
	log_warn("admin: quota of tenant %s: %s", http->quota_tenant, words);
	http_change_done(http);
}

static enum MHD_Result answer_quota(struct http_request *request)
{
	struct http *http = request->http;
	struct text text = { NULL, 0, 0, false };
	char words[256];

	http->change_request = NULL;
	quota_words(&http->quota, words, sizeof(words));
	text_append(&text, "{\"tenant\":");
	text_append_json_string(&text, http->quota_tenant);
	text_append(&text,
		",\"soft_bytes\":%" PRIu64 ",\"hard_bytes\":%" PRIu64 ",\"held_bytes\":%" PRIu64 ",\"words\":",
		http->quota.quota.soft_bytes, http->quota.quota.hard_bytes, http->quota.held_bytes);
	text_append_json_string(&text, words);
	text_append(&text, "}\n");
	return http_answer(request, MHD_HTTP_OK, "application/json", &text);
}

enum MHD_Result http_handle_quota(struct http_request *request)
{
	struct http *http = request->http;
	struct quota_job job;
	char tenant[64], quota[2 * QUOTA_TEXT_MAX];
	enum MHD_Result result;
	const char *why;

	if (request->state == HTTP_ANSWERED)
		return answer_quota(request);
	if (!http_may_change(request, "quota", &result))
		return result;
	memset(&job, 0, sizeof(job));
	if (!http_tenant(request, &job.tenant, tenant, &result) ||
		!http_argument(request, "quota", quota, sizeof(quota), &result))
		return result;
	job.remove = strcmp(quota, "default") == 0;
	why = job.remove ? NULL : quota_parse(quota, &job.quota);
	if (why)
		return http_answer_words(request, MHD_HTTP_BAD_REQUEST, "quota \"%s\": %s", quota, why);
	http->quota = job;
	text_copy(http->quota_tenant, sizeof(http->quota_tenant), tenant);
	result = http_change_begun(
		request, "quota", control_request_quota(http->options.control, &http->quota, quota_done, http));
	if (http->changing)
		log_warn("admin: quota of tenant %s asked for by %s", http->quota_tenant, request->caller);
	return result;
}

/* ---- pin, unpin ---- */

bool http_take_body(struct http_request *request, const char *path, const char *bytes, size_t length)
{
	size_t before = request->body_bytes;

	request->body_bytes += length;
	if (strcmp(path, "/pin") != 0 || !http_allowed(request))
		return request->body_bytes <= HTTP_BODY_MAX;
	if (request->body_bytes > HTTP_PIN_BYTES_MAX)
		return false;
	if (!request->body)
		request->body = fault_point("http/body") ? NULL : malloc(HTTP_PIN_BYTES_MAX);
	if (!request->body)
		return false;
	memcpy(request->body + before, bytes, length);
	return true;
}

static void pin_done(void *context, struct pin_job *job)
{
	struct http *http = context;
	const char *what = http->changing;

	if (job->refusal[0])
		log_warn("admin: %s of %s: %s", what, http->pin_name, job->refusal);
	else
		log_warn(
			"admin: %s of %s: %u chunks, %" PRIu64 " bytes", what, http->pin_name, job->pinned, job->bytes);
	http_change_done(http);
}

static enum MHD_Result answer_pin(struct http_request *request)
{
	struct http *http = request->http;
	struct text text = { NULL, 0, 0, false };

	http->change_request = NULL;
	if (http->pin.refusal[0])
		return http_answer_words(request, MHD_HTTP_CONFLICT, "%s: %s", http->pin_name, http->pin.refusal);
	text_append(&text, "{\"name\":");
	text_append_json_string(&text, http->pin_name);
	text_append(&text, ",\"asked\":%u,\"chunks\":%u,\"bytes\":%" PRIu64 "}\n", http->pin_asked, http->pin.pinned,
		http->pin.bytes);
	return http_answer(request, MHD_HTTP_OK, "application/json", &text);
}

/* Reads the query and the body into a pin; NULL after answering. */
static struct pin *read_pin(struct http_request *request, enum MHD_Result *result)
{
	size_t count = request->body_bytes / WIRE_DIGEST_BYTES;
	char tenant[64];
	struct pin *pin;

	*result = MHD_NO;
	if (!request->body || count < 2 || request->body_bytes % WIRE_DIGEST_BYTES != 0) {
		*result = http_answer_words(request, MHD_HTTP_BAD_REQUEST,
			"the body is the salt field and one digest for each chunk, 32 bytes each: kvrailctl pin makes it");
		return NULL;
	}
	pin = fault_point("http/pin") ? NULL : calloc(1, sizeof(*pin) + (count - 1) * WIRE_DIGEST_BYTES);
	if (!pin)
		return NULL;
	if (http_argument(request, "name", pin->name, sizeof(pin->name), result) &&
		http_argument(request, "model", pin->model, sizeof(pin->model), result) &&
		http_argument(request, "dtype", pin->dtype, sizeof(pin->dtype), result) &&
		http_tenant(request, &pin->tenant, tenant, result)) {
		if (pin->name[0] && pin->model[0]) {
			memcpy(pin->salt, request->body, WIRE_DIGEST_BYTES);
			memcpy(pin->digests, request->body + WIRE_DIGEST_BYTES, (count - 1) * WIRE_DIGEST_BYTES);
			pin->count = (uint32_t)(count - 1);
			return pin;
		}
		*result = http_answer_words(request, MHD_HTTP_BAD_REQUEST, "a pin needs a name and a model");
	}
	free(pin);
	return NULL;
}

enum MHD_Result http_handle_pin(struct http_request *request)
{
	struct http *http = request->http;
	enum MHD_Result result;
	struct pin *pin;

	if (request->state == HTTP_ANSWERED)
		return answer_pin(request);
	if (!http_may_change(request, "pin", &result))
		return result;
	pin = read_pin(request, &result);
	if (!pin)
		return result;
	memset(&http->pin, 0, sizeof(http->pin));
	http->pin.pin = pin;
	http->pin_asked = pin->count;
	text_copy(http->pin_name, sizeof(http->pin_name), pin->name);
	result = http_change_begun(
		request, "pin", control_request_pin(http->options.control, &http->pin, pin_done, http));
	if (http->changing)
		log_warn("admin: pin of %s asked for by %s", http->pin_name, request->caller);
	return result;
}

enum MHD_Result http_handle_unpin(struct http_request *request)
{
	struct http *http = request->http;
	char name[PIN_NAME_MAX + 1];
	enum MHD_Result result;

	if (request->state == HTTP_ANSWERED)
		return answer_pin(request);
	if (!http_may_change(request, "unpin", &result))
		return result;
	if (!http_argument(request, "name", name, sizeof(name), &result))
		return result;
	if (!name[0])
		return http_answer_words(request, MHD_HTTP_BAD_REQUEST, "which pin? give its name");
	memset(&http->pin, 0, sizeof(http->pin));
	text_copy(http->pin.name, sizeof(http->pin.name), name);
	text_copy(http->pin_name, sizeof(http->pin_name), name);
	http->pin_asked = 0;
	result = http_change_begun(
		request, "unpin", control_request_pin(http->options.control, &http->pin, pin_done, http));
	if (http->changing)
		log_warn("admin: unpin of %s asked for by %s", http->pin_name, request->caller);
	return result;
}
