#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/text.h"
#include "tier/checksum.h"
#include "tier/s3_private.h"

#define REQUESTS_MAX 65536
#define OBJECT_MAX (UINT64_C(5) << 30) /* of one PUT */

static struct s3 *s3_of(struct remote *remote)
{
	return KVR_CONTAINER_OF(remote, struct s3, remote);
}

/* ---- requests ---- */

static bool is_value(const struct l2_request *request)
{
	return request->operation == L2_LOAD || request->operation == L2_STORE;
}

static bool s3_has_room(struct remote *remote, const struct l2_request *request)
{
	struct s3 *s3 = s3_of(remote);

	/* A burst of stores leaves a quarter of the depth to loads. */
	if (request->operation == L2_STORE && remote->active_stores >= s3->depth - s3->depth / 4)
		return false;
	return !list_empty(is_value(request) ? &s3->value_jobs : &s3->small_jobs);
}

void s3_job_end(struct s3_job *job, int status, bool written)
{
	struct s3 *s3 = job->s3;
	struct l2_request *request = job->request;

	/* What could not be removed is no object all the same. */
	if (job->damaged)
		status = -EBADMSG;
	job->request = NULL;
	object_body_free(&job->body);
	list_init(&job->node);
	list_add_first(job->value ? &s3->value_jobs : &s3->small_jobs, &job->node);
	if (request->operation == L2_CLEAR)
		s3_clear_job_ended(job, status);
	else
		remote_end(&s3->remote, request, status, written);
}

static void s3_begin(struct remote *remote, struct l2_request *request)
{
	static const enum s3_verb verbs[] = {
		[L2_CONTAINS] = S3_HEAD, [L2_LOAD] = S3_GET, [L2_STORE] = S3_PUT, [L2_REMOVE] = S3_DELETE
	};
	struct s3 *s3 = s3_of(remote);
	struct list_node *node;
	struct s3_job *job;
	int status;

	if (request->operation == L2_CLEAR) {
		s3_clear_begin(s3, request);
		return;
	}
	if (OBJECT_HEADER_BYTES + request->identity.bytes > OBJECT_MAX) {
		/* -ENOSPC is not tried again. */
		remote_end(remote, request, request->operation == L2_STORE ? -ENOSPC : -ENOENT, false);
		return;
	}
	node = list_pop_first(is_value(request) ? &s3->value_jobs : &s3->small_jobs);
	job = KVR_CONTAINER_OF(node, struct s3_job, node);
	job->request = request;
	job->verb = verbs[request->operation];
	job->damaged = false;
	job->tries = 0;
	status = s3_transfer_prepare(job);
	if (status)
		s3_job_end(job, status, false);
	else
		s3_transfer_begin(job);
}

/* ---- the thread ---- */

static uint64_t try_again(struct s3 *s3)
{
	uint64_t next = UINT64_MAX;

	list_for_each_safe(node, &s3->later) {
		struct s3_job *job = KVR_CONTAINER_OF(node, struct s3_job, node);

		if (job->later_ns > s3->remote.now_ns) {
			next = kvr_min_u64(next, job->later_ns);
			continue;
		}
		list_remove(node);
		s3_transfer_begin(job);
	}
	return next;
}

static uint64_t s3_turn(struct remote *remote)
{
	struct s3 *s3 = s3_of(remote);
	const CURLMsg *message;
	uint64_t next;
	int left, result;

	s3_clear_step(s3);
	next = try_again(s3);
	curl_multi_perform(s3->multi, &left);
	while ((message = curl_multi_info_read(s3->multi, &left))) {
		char *job = NULL;

		if (message->msg != CURLMSG_DONE)
			continue;
		result = (int)message->data.result; /* the message goes with its handle */
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &job);
		s3_transfer_ended((struct s3_job *)(void *)job, result);
		next = 0; /* it may have begun another transfer, or wait to be tried again */
	}
	return next;
}

static void s3_wait(struct remote *remote, uint64_t timeout_ns)
{
	struct curl_waitfd wake = { .fd = remote->wake_fd, .events = CURL_WAIT_POLLIN };
	int timeout = (int)kvr_min_u64((timeout_ns - (timeout_ns > 0)) / KVR_MS + (timeout_ns > 0), 60000);

	/* Also until libcurl's own next time. */
	curl_multi_poll(s3_of(remote)->multi, &wake, 1, timeout, NULL);
	if (wake.revents)
		remote_drain_wake(remote);
}

static void s3_finish(struct remote *remote)
{
	struct s3 *s3 = s3_of(remote);

	for (uint32_t i = 0; i < s3->job_count; i++) {
		struct s3_job *job = &s3->jobs[i];

		if (!job->request)
			continue;
		curl_multi_remove_handle(s3->multi, job->easy);
		curl_slist_free_all(job->headers);
		job->headers = NULL;
	}
}

static const struct remote_calls s3_calls = { s3_has_room, s3_begin, s3_turn, s3_wait, s3_finish };

/* ---- start and end ---- */

static void s3_free(struct s3 *s3)
{
	for (uint32_t i = 0; i < s3->job_count; i++) {
		curl_easy_cleanup(s3->jobs[i].easy);
		object_body_free(&s3->jobs[i].body);
	}
	object_codec_fini(&s3->codec);
	if (s3->multi)
		curl_multi_cleanup(s3->multi);
	remote_fini(&s3->remote);
	free(s3->jobs);
	free(s3->headers);
	explicit_bzero(&s3->credentials, sizeof(s3->credentials));
	free(s3);
	curl_global_cleanup();
}

static void s3_close(struct l2_adapter *adapter)
{
	struct s3 *s3 = s3_of(KVR_CONTAINER_OF(adapter, struct remote, adapter));

	remote_stop(&s3->remote);
	s3_free(s3);
}

static const struct l2_adapter_driver s3_driver = {
	.kind = "s3",
	.submit = remote_submit,
	.cancel = remote_cancel,
	.poll = remote_poll,
	.step = NULL,
	.get_stats = remote_get_stats,
	.close = s3_close,
};

static int refuse(char *text, size_t size, int error, const char *what)
{
	snprintf(text, size, "l2 s3: %s", what);
	return error;
}

static int check_options(const struct s3_adapter_options *options, char *text, size_t size)
{
	const struct s3_credentials *credentials = options->credentials;
	const char *wrong = NULL;
	char why[160];

	if (s3_adapter_check(options->where, options->endpoint, why, sizeof(why)))
		wrong = why;
	else if (!credentials->access_key[0] || !credentials->secret_key[0])
		wrong = "an access key and a secret key are needed";
	else if (strpbrk(credentials->access_key, "\r\n/, ") || strpbrk(credentials->token, "\r\n"))
		wrong = "the access key or the token has characters that it cannot have";
	else if (!credentials->region[0] || strpbrk(credentials->region, "\r\n/, .:"))
		wrong = "a region is needed, as us-east-1";
	else if (options->ca_file && strlen(options->ca_file) > 255)
		wrong = "the path of the certificates has at most 255 characters";
	else if (options->depth > S3_DEPTH_MAX)
		wrong = "the depth is at most 256";
	else if (options->request_limit > REQUESTS_MAX)
		wrong = "at most 65536 requests may be under way";
	else if (options->tries > 10)
		wrong = "there are at most 10 tries";
	if (wrong)
		return refuse(text, size, -EINVAL, wrong);
	if (!checksum_available())
		return refuse(text, size, -EOPNOTSUPP,
			"this program was built without libxxhash, which checks every object; build it with libxxhash");
	return 0;
}

static void take_options(struct s3 *s3, const struct s3_adapter_options *options)
{
	struct remote *remote = &s3->remote;

	remote->adapter.driver = &s3_driver;
	snprintf(remote->adapter.name, sizeof(remote->adapter.name), "s3:%s", options->where);
	remote->calls = &s3_calls;
	remote->thread_name = "kvr-s3";
	remote->request_limit = options->request_limit ? options->request_limit : 4096;
	remote->read_only = options->read_only;
	s3->credentials = *options->credentials;
	if (options->endpoint && *options->endpoint)
		text_copy(s3->endpoint, sizeof(s3->endpoint), options->endpoint);
	else
		snprintf(s3->endpoint, sizeof(s3->endpoint), "https://s3.%s.amazonaws.com", s3->credentials.region);
	s3->host = strstr(s3->endpoint, "://") + 3;
	text_copy(s3->where, sizeof(s3->where), options->where);
	while (s3->where[strlen(s3->where) - 1] == '/')
		s3->where[strlen(s3->where) - 1] = '\0';
	text_copy(s3->ca_file, sizeof(s3->ca_file), options->ca_file ? options->ca_file : "");
	s3->sign_payload = options->payload == S3_PAYLOAD_SIGNED ||
		(options->payload == S3_PAYLOAD_AUTO && strncmp(s3->endpoint, "http:", 5) == 0);
	s3->depth = options->depth ? options->depth : 32;
	s3->tries = options->tries ? options->tries : 3;
	s3->timeout_ns = options->timeout_ns ? options->timeout_ns : 5 * KVR_SECOND;
	s3->retry_ns = options->retry_ns ? options->retry_ns : 100 * KVR_MS;
	list_init(&s3->small_jobs);
	list_init(&s3->value_jobs);
	list_init(&s3->later);
}

static int make_jobs(struct s3 *s3)
{
	uint32_t count = S3_SMALL_JOBS + s3->depth;

	s3->multi = fault_point("s3/multi") ? NULL : curl_multi_init();
	s3->jobs = fault_point("s3/jobs") ? NULL : calloc(count, sizeof(*s3->jobs));
	s3->headers = fault_point("s3/headers") ? NULL : malloc((size_t)s3->depth * OBJECT_HEADER_BYTES);
	if (!s3->multi || !s3->jobs || !s3->headers)
		return -ENOMEM;
	curl_multi_setopt(s3->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)count);
	curl_multi_setopt(s3->multi, CURLMOPT_MAXCONNECTS, (long)count);
	while (s3->job_count < count) {
		struct s3_job *job = &s3->jobs[s3->job_count];

		job->s3 = s3;
		job->value = s3->job_count >= S3_SMALL_JOBS;
		if (job->value)
			job->header = s3->headers + (size_t)(s3->job_count - S3_SMALL_JOBS) * OBJECT_HEADER_BYTES;
		job->easy = fault_point("s3/easy") ? NULL : curl_easy_init();
		if (!job->easy)
			return -ENOMEM;
		s3->job_count++;
		if (s3_transfer_init(job))
			return -ENOMEM;
		list_init(&job->node);
		list_add_last(job->value ? &s3->value_jobs : &s3->small_jobs, &job->node);
	}
	return 0;
}

int s3_adapter_open(const struct s3_adapter_options *options, struct l2_adapter **out, char *text, size_t size)
{
	uint64_t seed = 0;
	struct s3 *s3;
	int error = check_options(options, text, size);

	*out = NULL;
	if (error)
		return error;
	if (fault_point("s3/global") || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return refuse(text, size, -ENOMEM, "libcurl does not start");
	s3 = fault_point("s3/struct") ? NULL : aligned_alloc(KVR_CACHE_LINE, kvr_round_up(sizeof(*s3), KVR_CACHE_LINE));
	if (!s3) {
		curl_global_cleanup();
		return refuse(text, size, -ENOMEM, "no memory");
	}
	memset(s3, 0, sizeof(*s3));
	take_options(s3, options);
	if (random_secret(&seed, sizeof(seed)))
		seed = clock_now_ns(); /* it only spreads retries */
	random_init(&s3->random, seed);
	error = remote_init(&s3->remote);
	if (!error)
		error = object_codec_init(&s3->codec, options->compress_level, options->element ? options->element : 2);
	if (!error)
		error = make_jobs(s3);
	if (!error)
		error = remote_start(&s3->remote);
	if (error) {
		s3_free(s3);
		return refuse(text, size, error,
			error == -EOPNOTSUPP ? "this program was built without libzstd, which compresses"
					     : strerror(-error));
	}
	*out = &s3->remote.adapter;
	return 0;
}
