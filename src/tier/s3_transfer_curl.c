/* s3_transfer_curl.c - one request to the server: what is sent, where what comes goes, and what the answer means. */
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "tier/s3_private.h"

#define BYTES_PER_SECOND (UINT64_C(1) << 20) /* a slower place is none */
#define BUFFER_BYTES (512L << 10)

KVR_STATIC_ASSERT(OBJECT_HEADER_BYTES == 4096, "S3_HEADER's Range says so");

static uint64_t body_bytes(const struct s3_job *job)
{
	return OBJECT_HEADER_BYTES + job->body.length;
}

/* The memory of the body at job->position, and how much of it. */
static uint8_t *body_at(const struct s3_job *job, uint64_t *bytes)
{
	if (job->position < OBJECT_HEADER_BYTES) {
		*bytes = OBJECT_HEADER_BYTES - job->position;
		return job->header + job->position;
	}
	*bytes = body_bytes(job) - job->position;
	return job->body.bytes + (job->position - OBJECT_HEADER_BYTES);
}

/* ---- what libcurl calls ---- */

/* A server that says no length sends what is not compressed, or damaged. */
static bool find_place(struct s3_job *job)
{
	curl_off_t length = -1;

	curl_easy_getinfo(job->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
	if (length < 0)
		length = (curl_off_t)(OBJECT_HEADER_BYTES + job->request->identity.bytes);
	object_body_free(&job->body);
	job->misfit = object_body_load(job->request, (uint64_t)length, &job->body);
	return job->misfit == 0;
}

static size_t take_value(struct s3_job *job, const char *bytes, size_t count)
{
	size_t done = 0;

	if (job->position == 0 && !find_place(job)) {
		job->fits = false;
		return 0;
	}
	if (count > body_bytes(job) - job->position) {
		job->misfit = -EBADMSG;
		job->fits = false;
		return 0; /* ends the transfer */
	}
	while (done < count) {
		uint64_t room;
		uint8_t *to = body_at(job, &room);
		size_t part = (size_t)kvr_min_u64(room, count - done);

		memcpy(to, bytes + done, part);
		done += part;
		job->position += part;
	}
	return count;
}

static size_t take_header(struct s3_job *job, const char *bytes, size_t count)
{
	size_t part = (size_t)kvr_min_u64(count, OBJECT_HEADER_BYTES - job->position);

	memcpy(job->header + job->position, bytes, part);
	job->position += part;
	job->fits = part == count; /* a server that sends more is not listened to */
	return part;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *opaque)
{
	struct s3_job *job = opaque;
	long code = 0;
	size_t part;

	count *= size;
	curl_easy_getinfo(job->easy, CURLINFO_RESPONSE_CODE, &code);
	if (code == 200 && job->verb == S3_GET)
		return take_value(job, bytes, count);
	if ((code == 200 || code == 206) && job->verb == S3_HEADER)
		return take_header(job, bytes, count);
	if (code == 200 && job->verb == S3_LIST) {
		s3_list_take(&job->s3->clear.list, bytes, count);
		job->fits = !job->s3->clear.list.bad;
		return job->fits ? count : 0;
	}
	part = (size_t)kvr_min_u64(count, S3_ERROR_BYTES - job->error_length);
	memcpy(job->error + job->error_length, bytes, part);
	job->error_length += (uint32_t)part;
	return count;
}

static size_t on_send(char *bytes, size_t size, size_t count, void *opaque)
{
	struct s3_job *job = opaque;
	uint64_t room = size * count, done = 0;

	while (done < room && job->position < body_bytes(job)) {
		uint64_t part;
		const uint8_t *from = body_at(job, &part);

		part = kvr_min_u64(part, room - done);
		memcpy(bytes + done, from, part);
		done += part;
		job->position += part;
	}
	return done;
}

/* A connection that was kept turned out to be closed: from the start again. */
static int on_seek(void *opaque, curl_off_t offset, int origin)
{
	struct s3_job *job = opaque;

	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > body_bytes(job))
		return CURL_SEEKFUNC_FAIL;
	job->position = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}

int s3_transfer_init(struct s3_job *job)
{
	const struct s3 *s3 = job->s3;
	CURL *easy = job->easy;
	CURLcode bad = CURLE_OK;

	bad |= curl_easy_setopt(easy, CURLOPT_PRIVATE, job);
	bad |= curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	bad |= curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	bad |= curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	bad |= curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	bad |= curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	bad |= curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	bad |= curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
	bad |= curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
	bad |= curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	bad |= curl_easy_setopt(easy, CURLOPT_WRITEDATA, job);
	bad |= curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_send);
	bad |= curl_easy_setopt(easy, CURLOPT_READDATA, job);
	bad |= curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_seek);
	bad |= curl_easy_setopt(easy, CURLOPT_SEEKDATA, job);
	bad |= curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(s3->timeout_ns / KVR_MS));
	if (s3->ca_file[0])
		bad |= curl_easy_setopt(easy, CURLOPT_CAINFO, s3->ca_file);
	return bad == CURLE_OK ? 0 : -ENOMEM;
}

/* ---- beginning ---- */

int s3_transfer_prepare(struct s3_job *job)
{
	const struct l2_request *request = job->request;
	struct digester *digester = &job->s3->remote.digester;
	uint8_t hash[32];
	char hex[65];
	int error;

	if (request->operation == L2_CLEAR)
		memcpy(hash, job->s3->clear.found[job->found], sizeof(hash));
	else
		object_hash(digester, &request->identity, hash);
	text_hex(hex, hash, sizeof(hash));
	snprintf(job->path, sizeof(job->path), "/%s/%s", job->s3->where, hex);
	s3_hash(digester, "", 0, "", 0, job->payload_hash);
	if (job->verb != S3_PUT)
		return 0;
	error = object_body_store(&job->s3->codec, request, &job->body, job->header);
	if (error)
		return error;
	if (job->s3->sign_payload)
		s3_hash(digester, job->header, OBJECT_HEADER_BYTES, job->body.bytes, job->body.length,
			job->payload_hash);
	else
		text_copy(job->payload_hash, sizeof(job->payload_hash), S3_UNSIGNED);
	return 0;
}

static bool add_header(struct s3_job *job, const char *name, const char *value)
{
	char line[2200];
	struct curl_slist *longer;

	snprintf(line, sizeof(line), "%s: %s", name, value);
	longer = curl_slist_append(job->headers, *value ? line : name);
	if (longer)
		job->headers = longer;
	return longer != NULL;
}

static const char *query_of(const struct s3_job *job)
{
	return job->verb == S3_LIST ? job->s3->clear.query : "";
}

/* The headers that are signed, and the signature over them. */
static int sign(struct s3_job *job)
{
	static const char *const methods[] = { "GET", "PUT", "HEAD", "DELETE", "GET", "GET" };
	const struct s3 *s3 = job->s3;
	char date[S3_DATE_BYTES], authorization[S3_AUTHORIZATION_MAX];
	struct s3_header headers[4] = { { "host", s3->host }, { "x-amz-content-sha256", job->payload_hash },
		{ "x-amz-date", date }, { "x-amz-security-token", s3->credentials.token } };
	struct s3_request request = { methods[job->verb], job->path, query_of(job), headers,
		s3->credentials.token[0] ? 4 : 3, job->payload_hash, date };
	int error;
	bool good;

	s3_date(clock_wall_ns() / KVR_SECOND, date);
	error = s3_sign(&job->s3->remote.digester, &s3->credentials, &request, authorization);
	good = !error && add_header(job, "Authorization", authorization);
	for (uint32_t i = 0; good && i < request.header_count; i++)
		good = add_header(job, headers[i].name, headers[i].value);
	/* libcurl's own, taken off: it would wait a second for the server's leave to send. */
	good = good && add_header(job, "Expect:", "") && add_header(job, "Accept:", "");
	if (good && job->verb == S3_HEADER)
		good = add_header(job, "Range", "bytes=0-4095");
	if (good && job->verb == S3_PUT)
		good = add_header(job, "Content-Type", "application/octet-stream");
	explicit_bzero(authorization, sizeof(authorization));
	return good ? 0 : -ENOMEM;
}

static CURLcode set_verb(struct s3_job *job)
{
	CURL *easy = job->easy;
	CURLcode bad = CURLE_OK;

	bad |= curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, job->verb == S3_DELETE ? "DELETE" : NULL);
	bad |= curl_easy_setopt(easy, CURLOPT_UPLOAD, job->verb == S3_PUT ? 1L : 0L);
	bad |= curl_easy_setopt(
		easy, CURLOPT_INFILESIZE_LARGE, job->verb == S3_PUT ? (curl_off_t)body_bytes(job) : (curl_off_t)-1);
	/* Last: each of them sets the method as well. */
	if (job->verb == S3_HEAD)
		bad |= curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	else if (job->verb != S3_PUT)
		bad |= curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
	return bad;
}

void s3_transfer_begin(struct s3_job *job)
{
	struct s3 *s3 = job->s3;
	CURLcode bad = CURLE_OK;
	uint64_t limit_ns = s3->timeout_ns;
	char url[sizeof(s3->endpoint) + S3_KEY_MAX + sizeof(s3->clear.query)];
	int error;

	job->position = 0;
	job->fits = true;
	job->error_length = 0;
	job->tries++;
	if (job->verb == S3_LIST)
		s3_clear_list_again(s3);
	error = sign(job);
	if (job->value && !job->damaged)
		limit_ns += job->request->identity.bytes * (KVR_SECOND / BYTES_PER_SECOND);
	snprintf(url, sizeof(url), "%s%s%s%s", s3->endpoint, job->path, job->verb == S3_LIST ? "?" : "", query_of(job));
	bad |= curl_easy_setopt(job->easy, CURLOPT_URL, url);
	bad |= curl_easy_setopt(job->easy, CURLOPT_TIMEOUT_MS, (long)(limit_ns / KVR_MS));
	bad |= curl_easy_setopt(job->easy, CURLOPT_HTTPHEADER, job->headers);
	bad |= set_verb(job);
	if (!error && bad == CURLE_OK && curl_multi_add_handle(s3->multi, job->easy) == CURLM_OK)
		return;
	curl_slist_free_all(job->headers);
	job->headers = NULL;
	s3_job_end(job, -ENOMEM, false);
}

/* ---- the end ---- */

/* Once more after a while; false: it was tried often enough. */
static bool again(struct s3_job *job)
{
	struct s3 *s3 = job->s3;
	uint64_t wait = s3->retry_ns << kvr_min_u64(job->tries - 1, 10);

	if (job->tries >= s3->tries)
		return false;
	wait -= random_below(&s3->random, wait / 2 + 1);
	job->later_ns = s3->remote.now_ns + wait;
	list_init(&job->node);
	list_add_last(&s3->later, &job->node);
	return true;
}

static void fail(struct s3_job *job, int status, const char *condition, const char *detail, bool refuses)
{
	struct remote *remote = &job->s3->remote;

	remote_complain(remote, "%s: %s", condition, detail);
	remote_condition(remote, condition, 0, refuses);
	s3_job_end(job, status, false);
}

/* The server was not reached, or the connection was lost. */
static void no_answer(struct s3_job *job, CURLcode code)
{
	const char *detail = curl_easy_strerror(code);

	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_CONNECT:
		fail(job, -EHOSTUNREACH, "the server cannot be reached", detail, false);
		return;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_CACERT_BADFILE:
		fail(job, -EACCES, "the server's certificate is not accepted, or is none", detail, false);
		return;
	case CURLE_OPERATION_TIMEDOUT:
		/* -EIO, not -ETIMEDOUT: it is the place that failed, not a request that had no time left. */
		fail(job, -EIO, "the server does not answer in time", detail, false);
		return;
	default:
		if (!again(job))
			fail(job, -EIO, "the connection to the server fails", detail, false);
	}
}

static void remove_damaged(struct s3_job *job)
{
	struct remote *remote = &job->s3->remote;

	remote_complain(remote, "the object is damaged or another one, it is removed: %s", job->path);
	if (remote->read_only) {
		s3_job_end(job, -EBADMSG, false);
		return;
	}
	job->damaged = true;
	job->verb = S3_DELETE;
	job->tries = 0;
	s3_hash(&remote->digester, "", 0, "", 0, job->payload_hash);
	s3_transfer_begin(job);
}

static void remove_cleared(struct s3_job *job)
{
	job->verb = S3_DELETE;
	job->tries = 0;
	s3_transfer_begin(job);
}

static void done_well(struct s3_job *job, int status, bool written)
{
	remote_well(&job->s3->remote, written);
	s3_job_end(job, status, written);
}

/* 200 or 204. */
static void answered(struct s3_job *job)
{
	struct l2_request *request = job->request;
	curl_off_t length = -1;
	int error = job->misfit;

	switch (job->verb) {
	case S3_GET:
		if (job->fits)
			error = job->position == body_bytes(job)
				? object_body_check(&job->s3->codec, request, &job->body, job->header)
				: -EBADMSG;
		if (error == -EBADMSG)
			remove_damaged(job);
		else
			done_well(job, error, false);
		return;
	case S3_HEAD:
		/* One of another length is replaced by the next STORE. */
		curl_easy_getinfo(job->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
		done_well(job, length >= 0 && object_body_may_be(&request->identity, (uint64_t)length) ? 0 : -ENOENT,
			false);
		return;
	case S3_PUT:
		done_well(job, 0, true);
		return;
	case S3_DELETE:
		done_well(job, 0, false);
		return;
	case S3_LIST:
		if (s3_list_good(&job->s3->clear.list))
			done_well(job, 0, false);
		else
			fail(job, -EIO, "the server's list of keys is none",
				"to be cleared it must answer ListObjectsV2", false);
		return;
	case S3_HEADER:
		if (s3_clear_wants(job))
			remove_cleared(job);
		else
			done_well(job, 0, false);
		return;
	}
}

static void refused(struct s3_job *job, long code)
{
	char word[64], detail[96];

	s3_error_code(job->error, job->error_length, word, sizeof(word));
	snprintf(detail, sizeof(detail), "%ld %s", code, word);
	if (code == 416 && job->verb == S3_HEADER) { /* it has no byte: none of ours */
		done_well(job, 0, false);
		return;
	}
	if (code == 404 && job->verb != S3_PUT && job->verb != S3_LIST && strcmp(word, "NoSuchBucket") != 0) {
		done_well(job, job->verb == S3_DELETE ? 0 : -ENOENT, false);
		return;
	}
	if ((code == 429 || code == 500 || code == 502 || code == 503 || code == 504) && again(job))
		return;
	switch (code) {
	case 404:
		fail(job, -EIO, "there is no such bucket", detail, false);
		break;
	case 401:
	case 403:
		fail(job, -EACCES, "the server refuses us: check credentials, the clock, and rights (ListBucket, too)",
			detail, false);
		break;
	case 301:
	case 307:
	case 400:
		fail(job, -EIO, "the server does not take the request: check region and endpoint", detail, false);
		break;
	case 507:
		fail(job, -ENOSPC, "the server is full", detail, true);
		break;
	default:
		fail(job, -EIO, "the server answers with errors", detail, false);
	}
}

void s3_transfer_ended(struct s3_job *job, int curl_code)
{
	long code = 0;

	curl_easy_getinfo(job->easy, CURLINFO_RESPONSE_CODE, &code);
	curl_multi_remove_handle(job->s3->multi, job->easy);
	curl_slist_free_all(job->headers);
	job->headers = NULL;
	curl_easy_setopt(job->easy, CURLOPT_HTTPHEADER, NULL);
	if (curl_code == CURLE_WRITE_ERROR && !job->fits)
		answered(job);
	else if (curl_code != CURLE_OK)
		no_answer(job, (CURLcode)curl_code);
	else if (code == 200 || (code == 204 && job->verb == S3_DELETE) || (code == 206 && job->verb == S3_HEADER))
		answered(job);
	else
		refused(job, code);
}
