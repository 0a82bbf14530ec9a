#include "tier/redis_adapter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/text.h"
#include "tier/checksum.h"
#include "tier/redis_private.h"

#define EVENTS_A_TURN 32
#define DEPTH_MAX 1024
#define REQUESTS_MAX 65536

static struct redis *redis_of(struct remote *remote)
{
	return KVR_CONTAINER_OF(remote, struct redis, remote);
}

/* ---- jobs ---- */

/* Every head fits: a key has at most 127 characters, user and password 127 and 255. */
static bool write_words(struct redis_job *job, uint32_t count, const char *const *words)
{
	bool fits = redis_put_count(job->head, sizeof(job->head), &job->head_length, count);

	for (uint32_t i = 0; i < count && words[i] && fits; i++)
		fits = redis_put_argument(job->head, sizeof(job->head), &job->head_length, words[i], strlen(words[i]));
	return fits;
}

static bool write_auth(const struct redis *redis, struct redis_job *job)
{
	if (redis->user[0])
		return write_words(job, 3, (const char *const[]){ "AUTH", redis->user, redis->password });
	return write_words(job, 2, (const char *const[]){ "AUTH", redis->password });
}

static bool write_set_end(const struct redis *redis, struct redis_job *job)
{
	bool fits = redis_put_length(
		job->head, sizeof(job->head), &job->head_length, OBJECT_HEADER_BYTES + job->body.length);
	int length;

	if (redis->expire_ms) {
		char number[24];
		int digits = snprintf(number, sizeof(number), "%llu", (unsigned long long)redis->expire_ms);

		length = snprintf(
			job->tail, sizeof(job->tail), "\r\n$2\r\nNX\r\n$2\r\nPX\r\n$%d\r\n%s\r\n", digits, number);
	} else {
		length = snprintf(job->tail, sizeof(job->tail), "\r\n$2\r\nNX\r\n");
	}
	job->tail_length = (uint32_t)length;
	return fits;
}

static bool write_keyed(struct redis *redis, struct redis_job *job, const char *command, uint32_t count)
{
	char key[REDIS_KEY_MAX];
	const char *const words[] = { command, NULL };
	uint32_t length;

	if (job->request->operation == L2_CLEAR)
		length = redis_key_of_hash(redis->prefix, redis->clear.found[job->found], key);
	else
		length = redis_key(&redis->remote.digester, redis->prefix, &job->request->identity, key);
	job->slot = redis_slot(key, length);
	return write_words(job, count, words) &&
		redis_put_argument(job->head, sizeof(job->head), &job->head_length, key, length);
}

static bool write_getrange(struct redis *redis, struct redis_job *job)
{
	char last[16];
	int length = snprintf(last, sizeof(last), "%u", OBJECT_HEADER_BYTES - 1);

	return write_keyed(redis, job, "GETRANGE", 4) &&
		redis_put_argument(job->head, sizeof(job->head), &job->head_length, "0", 1) &&
		redis_put_argument(job->head, sizeof(job->head), &job->head_length, last, (size_t)length);
}

static bool write_scan(const struct redis *redis, struct redis_job *job)
{
	char pattern[REDIS_PATTERN_MAX];

	redis_pattern(redis->prefix, pattern);
	return write_words(job, 8,
		(const char *const[]){
			"SCAN", redis->clear.cursor, "MATCH", pattern, "COUNT", "128", "TYPE", "string" });
}

static bool write_command(struct redis *redis, struct redis_job *job)
{
	char number[16];

	switch (job->command) {
	case REDIS_GET:
		return write_keyed(redis, job, "GET", 2);
	case REDIS_STRLEN:
		return write_keyed(redis, job, "STRLEN", 2);
	case REDIS_UNLINK:
		return write_keyed(redis, job, "UNLINK", 2);
	case REDIS_SCAN:
		return write_scan(redis, job);
	case REDIS_GETRANGE:
		return write_getrange(redis, job);
	case REDIS_SET:
		return write_keyed(redis, job, "SET", redis->expire_ms ? 6 : 4) && write_set_end(redis, job);
	case REDIS_AUTH:
		return write_auth(redis, job);
	case REDIS_SELECT:
		snprintf(number, sizeof(number), "%u", redis->database);
		return write_words(job, 2, (const char *const[]){ "SELECT", number });
	case REDIS_PING:
		return write_words(job, 1, (const char *const[]){ "PING" });
	case REDIS_CLUSTER_SLOTS:
		return write_words(job, 2, (const char *const[]){ "CLUSTER", "SLOTS" });
	}
	return false;
}

void redis_job_write(struct redis *redis, struct redis_job *job)
{
	bool fits = true;

	job->head_length = 0;
	job->tail_length = 0;
	job->sent = 0;
	job->got = RESP_MORE;
	job->fits = false;
	if (job->command == REDIS_GET)
		object_body_free(&job->body); /* of a reply that was lost */
	job->acks = job->asking;
	if (job->asking)
		fits = write_words(job, 1, (const char *const[]){ "ASKING" });
	fits = fits && write_command(redis, job);
	(void)fits; /* see write_words */
	job->length = job->head_length + job->tail_length;
	if (job->command == REDIS_SET)
		job->length += OBJECT_HEADER_BYTES + job->body.length;
}

void redis_job_end(struct redis *redis, struct redis_job *job, int status, bool written)
{
	struct l2_request *request = job->request;

	if (!request) {
		if (job->command == REDIS_CLUSTER_SLOTS) {
			redis->refreshing = false;
			redis->map_status = status;
			redis->maps++;
			if (status)
				redis_want_map(redis);
		}
		return;
	}
	/* What could not be removed is no object all the same. */
	if (job->damaged)
		status = job->status;
	job->request = NULL;
	object_body_free(&job->body);
	list_add_first(job->pooled_small ? &redis->small_jobs : &redis->value_jobs, &job->node);
	if (request->operation == L2_CLEAR)
		redis_clear_job_ended(redis, job, status);
	else
		remote_end(&redis->remote, request, status, written);
}

static struct redis_job *take_job(struct redis *redis, struct l2_request *request, bool value)
{
	struct list_node *node = list_pop_first(value ? &redis->value_jobs : &redis->small_jobs);
	struct redis_job *job = KVR_CONTAINER_OF(node, struct redis_job, node);

	job->request = request;
	job->hops = 0;
	job->tries = 0;
	job->asking = false;
	job->damaged = false;
	job->status = 0;
	return job;
}

/* ---- requests ---- */

static bool is_value(const struct l2_request *request)
{
	return request->operation == L2_LOAD || request->operation == L2_STORE;
}

static bool redis_has_room(struct remote *remote, const struct l2_request *request)
{
	struct redis *redis = redis_of(remote);

	/* A burst of stores leaves a quarter of the depth to loads. */
	if (request->operation == L2_STORE && remote->active_stores >= redis->depth - redis->depth / 4)
		return false;
	return !list_empty(is_value(request) ? &redis->value_jobs : &redis->small_jobs);
}

static void redis_begin(struct remote *remote, struct l2_request *request)
{
	static const enum redis_command commands[] = {
		[L2_CONTAINS] = REDIS_STRLEN, [L2_LOAD] = REDIS_GET, [L2_STORE] = REDIS_SET, [L2_REMOVE] = REDIS_UNLINK
	};
	struct redis *redis = redis_of(remote);
	struct redis_job *job;
	int error = 0;

	if (request->operation == L2_CLEAR) {
		redis_clear_begin(redis, request);
		return;
	}
	if (OBJECT_HEADER_BYTES + request->identity.bytes > REDIS_VALUE_MAX) {
		/* No server takes it: -ENOSPC is not tried again. */
		remote_end(remote, request, request->operation == L2_STORE ? -ENOSPC : -ENOENT, false);
		return;
	}
	job = take_job(redis, request, is_value(request));
	job->command = commands[request->operation];
	if (job->command == REDIS_SET)
		error = object_body_store(&redis->codec, request, &job->body, job->header);
	if (error) {
		redis_job_end(redis, job, error, false);
		return;
	}
	redis_job_write(redis, job);
	redis_route(redis, job);
}

/* ---- the thread ---- */

static void check_links(struct redis_node *node)
{
	for (uint32_t i = 0; i <= node->redis->connections; i++)
		if (node->links[i] && node->redis->remote.now_ns >= node->links[i]->deadline_ns)
			redis_link_late(node->links[i]);
}

static uint64_t next_deadline(const struct redis_node *node)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i <= node->redis->connections; i++)
		if (node->links[i])
			next = kvr_min_u64(next, node->links[i]->deadline_ns);
	return next;
}

static uint64_t redis_turn(struct remote *remote)
{
	struct redis *redis = redis_of(remote);
	uint64_t next = UINT64_MAX;

	redis_clear_step(redis);
	redis_cluster_turn(redis);
	for (uint32_t i = 0; i < REDIS_NODES_MAX; i++)
		if (redis->nodes[i].used)
			check_links(&redis->nodes[i]);
	/* Only now: what has failed above has sent its jobs to other nodes. */
	for (uint32_t i = 0; i < REDIS_NODES_MAX; i++) {
		if (!redis->nodes[i].used)
			continue;
		redis_node_pump(&redis->nodes[i]);
		next = kvr_min_u64(next, next_deadline(&redis->nodes[i]));
	}
	if (redis->cluster && !redis->refreshing)
		next = kvr_min_u64(next, redis->refresh_ns);
	return redis_clear_goes_on(redis) ? 0 : next;
}

static void redis_wait(struct remote *remote, uint64_t timeout_ns)
{
	struct redis *redis = redis_of(remote);
	struct epoll_event events[EVENTS_A_TURN];
	int timeout = -1, count;

	if (timeout_ns != UINT64_MAX)
		timeout = (int)kvr_min_u64((timeout_ns + KVR_MS - 1) / KVR_MS, 60000);
	count = epoll_wait(redis->epoll_fd, events, EVENTS_A_TURN, timeout);
	remote->now_ns = clock_now_ns();
	for (int i = 0; i < count; i++) {
		if (events[i].data.ptr)
			redis_link_event(events[i].data.ptr, events[i].events);
		else
			remote_drain_wake(remote);
	}
}

static void redis_finish(struct remote *remote)
{
	struct redis *redis = redis_of(remote);

	for (uint32_t i = 0; i < REDIS_NODES_MAX; i++)
		for (uint32_t j = 0; j < REDIS_LINKS_MAX; j++)
			if (redis->nodes[i].links[j])
				redis_link_close(redis->nodes[i].links[j]);
}

static const struct remote_calls redis_calls = { redis_has_room, redis_begin, redis_turn, redis_wait, redis_finish };

/* ---- start and end ---- */

static void redis_free(struct redis *redis)
{
	for (uint32_t i = 0; i < REDIS_NODES_MAX; i++)
		for (uint32_t j = 0; j < REDIS_LINKS_MAX; j++) {
			if (redis->nodes[i].links[j])
				explicit_bzero(redis->nodes[i].links[j], sizeof(struct redis_link));
			free(redis->nodes[i].links[j]);
		}
	for (uint32_t i = 0; redis->jobs && i < REDIS_SMALL_JOBS + redis->depth; i++)
		object_body_free(&redis->jobs[i].body);
	object_codec_fini(&redis->codec);
	remote_fini(&redis->remote);
	if (redis->epoll_fd >= 0)
		close(redis->epoll_fd);
	free(redis->jobs);
	free(redis->headers);
	explicit_bzero(redis->password, sizeof(redis->password));
	free(redis);
}

static void redis_close(struct l2_adapter *adapter)
{
	struct redis *redis = redis_of(KVR_CONTAINER_OF(adapter, struct remote, adapter));

	remote_stop(&redis->remote);
	redis_free(redis);
}

static const struct l2_adapter_driver redis_driver = {
	.kind = "redis",
	.submit = remote_submit,
	.cancel = remote_cancel,
	.poll = remote_poll,
	.step = NULL,
	.get_stats = remote_get_stats,
	.close = redis_close,
};

static int refuse(char *text, size_t size, int error, const char *what)
{
	snprintf(text, size, "l2 redis: %s", what);
	return error;
}

/* One server of `where` up to its end or a comma. NULL: it is none. */
static const char *take_server(const char *at, char host[REDIS_HOST_MAX + 1], uint16_t *port)
{
	size_t length = strcspn(at, ","), host_length;
	const char *end = at + length, *colon = end;
	char digits[8];
	uint64_t number;

	*port = 0;
	if (length == 0 || length > REDIS_HOST_MAX)
		return NULL;
	if (*at == '/') {
		if (length > 107) /* of sockaddr_un */
			return NULL;
		memcpy(host, at, length);
		host[length] = '\0';
		return end;
	}
	while (colon > at && colon[-1] != ':')
		colon--;
	if (colon == at || (size_t)(end - colon) >= sizeof(digits))
		return NULL;
	memcpy(digits, colon, (size_t)(end - colon));
	digits[end - colon] = '\0';
	if (text_parse_u64(digits, &number) || number == 0 || number > 65535)
		return NULL;
	host_length = (size_t)(colon - 1 - at);
	if (host_length >= 2 && *at == '[' && at[host_length - 1] == ']') {
		at++;
		host_length -= 2;
	} else if (memchr(at, ':', host_length)) {
		return NULL;
	}
	if (host_length == 0)
		return NULL;
	memcpy(host, at, host_length);
	host[host_length] = '\0';
	*port = (uint16_t)number;
	return end;
}

/* Calls `found` for each; NULL when all is well, else what is wrong. */
static const char *read_where(
	const char *where, bool cluster, void (*found)(struct redis *, const char *, uint16_t), struct redis *redis)
{
	char host[REDIS_HOST_MAX + 1];
	uint32_t count = 0;
	uint16_t port;

	for (const char *at = where;; at++) {
		at = take_server(at, host, &port);
		if (!at)
			return "the server is HOST:PORT, [ADDRESS]:PORT, or the path of a Unix socket, from / on";
		if (++count > REDIS_SEEDS_MAX)
			return "at most 8 servers are named";
		if (cluster && host[0] == '/')
			return "a cluster's servers are named HOST:PORT";
		if (found)
			found(redis, host, port);
		if (*at == '\0')
			break;
	}
	return count > 1 && !cluster ? "several servers are named only with cluster=yes" : NULL;
}

int redis_adapter_check_where(const char *where, bool cluster, char *error, size_t error_size)
{
	const char *wrong = read_where(where, cluster, NULL, NULL);

	if (!wrong)
		return 0;
	snprintf(error, error_size, "%s", wrong);
	return -EINVAL;
}

static void add_seed(struct redis *redis, const char *host, uint16_t port)
{
	struct redis_node *node = redis_node_get(redis, host, port);

	if (node) /* there is room for all that may be named */
		node->seed = true;
}

static int check_options(const struct redis_adapter_options *options, char *text, size_t size)
{
	const char *wrong = NULL;

	if (!options->where)
		wrong = "a server is needed";
	else if (read_where(options->where, options->cluster, NULL, NULL))
		wrong = read_where(options->where, options->cluster, NULL, NULL);
	else if (options->prefix && (strlen(options->prefix) > REDIS_PREFIX_MAX || !*options->prefix))
		wrong = "the prefix of keys has 1 to 63 characters";
	else if (options->user && strlen(options->user) > 127)
		wrong = "the user has at most 127 characters";
	else if (options->password && strlen(options->password) > 255)
		wrong = "the password has at most 255 characters";
	else if (options->user && *options->user && (!options->password || !*options->password))
		wrong = "a user needs a password";
	else if (options->connections > REDIS_CONNECTIONS_MAX)
		wrong = "there are at most 16 connections";
	else if (options->depth > DEPTH_MAX)
		wrong = "the depth is at most 1024";
	else if (options->request_limit > REQUESTS_MAX)
		wrong = "at most 65536 requests may be under way";
	else if (options->cluster && options->database)
		wrong = "a cluster has database 0 alone";
	else if (options->expire_ns && options->expire_ns < KVR_MS)
		wrong = "a time to live is 1 ms or more";
	if (wrong)
		return refuse(text, size, -EINVAL, wrong);
	if (!checksum_available())
		return refuse(text, size, -EOPNOTSUPP,
			"this program was built without libxxhash, which checks every object; build it with libxxhash");
	return 0;
}

static void take_options(struct redis *redis, const struct redis_adapter_options *options)
{
	struct remote *remote = &redis->remote;

	remote->adapter.driver = &redis_driver;
	snprintf(remote->adapter.name, sizeof(remote->adapter.name), "redis:%s", options->where);
	remote->calls = &redis_calls;
	remote->thread_name = "kvr-redis";
	remote->request_limit = options->request_limit ? options->request_limit : 4096;
	remote->read_only = options->read_only;
	text_copy(redis->user, sizeof(redis->user), options->user ? options->user : "");
	text_copy(redis->password, sizeof(redis->password), options->password ? options->password : "");
	text_copy(redis->prefix, sizeof(redis->prefix), options->prefix ? options->prefix : "kvrail:");
	redis->database = options->database;
	redis->connections = options->connections ? options->connections : 4;
	redis->depth = options->depth ? options->depth : 32;
	redis->timeout_ns = options->timeout_ns ? options->timeout_ns : 2 * KVR_SECOND;
	redis->retry_ns = options->retry_ns ? options->retry_ns : 50 * KVR_MS;
	redis->expire_ms = options->expire_ns / KVR_MS;
	redis->cluster = options->cluster;
	redis->refresh_ns = options->cluster ? 0 : UINT64_MAX;
	memset(redis->map, 0xff, sizeof(redis->map));
	list_init(&redis->small_jobs);
	list_init(&redis->value_jobs);
	(void)read_where(options->where, options->cluster, add_seed, redis); /* checked before */
}

static int make_jobs(struct redis *redis)
{
	uint32_t count = REDIS_SMALL_JOBS + redis->depth;

	redis->jobs = fault_point("redis/jobs") ? NULL : calloc(count, sizeof(*redis->jobs));
	redis->headers = fault_point("redis/headers") ? NULL : malloc((size_t)redis->depth * OBJECT_HEADER_BYTES);
	if (!redis->jobs || !redis->headers)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		struct redis_job *job = &redis->jobs[i];

		job->pooled_small = i < REDIS_SMALL_JOBS;
		if (!job->pooled_small)
			job->header = redis->headers + (size_t)(i - REDIS_SMALL_JOBS) * OBJECT_HEADER_BYTES;
		list_init(&job->node);
		list_add_last(job->pooled_small ? &redis->small_jobs : &redis->value_jobs, &job->node);
	}
	return 0;
}

static int make_epoll(struct redis *redis)
{
	struct epoll_event event = { .events = EPOLLIN };

	redis->epoll_fd = fault_point("redis/epoll") ? -1 : epoll_create1(EPOLL_CLOEXEC);
	if (redis->epoll_fd < 0 || epoll_ctl(redis->epoll_fd, EPOLL_CTL_ADD, redis->remote.wake_fd, &event) != 0)
		return -EMFILE;
	return 0;
}

int redis_adapter_open(const struct redis_adapter_options *options, struct l2_adapter **out, char *text, size_t size)
{
	struct redis *redis;
	uint64_t seed = clock_now_ns();
	int error = check_options(options, text, size);

	*out = NULL;
	if (error)
		return error;
	redis = fault_point("redis/struct") ? NULL : aligned_alloc(KVR_CACHE_LINE, sizeof(*redis));
	if (!redis)
		return refuse(text, size, -ENOMEM, "no memory");
	memset(redis, 0, sizeof(*redis));
	redis->epoll_fd = -1;
	take_options(redis, options);
	if (random_secret(&seed, sizeof(seed)))
		seed = clock_now_ns(); /* it only spreads retries */
	random_init(&redis->random, seed);
	error = remote_init(&redis->remote);
	if (!error)
		error = object_codec_init(
			&redis->codec, options->compress_level, options->element ? options->element : 2);
	if (!error)
		error = make_jobs(redis);
	if (!error)
		error = make_epoll(redis);
	if (!error)
		error = remote_start(&redis->remote);
	if (error) {
		redis_free(redis);
		return refuse(text, size, error,
			error == -EOPNOTSUPP ? "this program was built without libzstd, which compresses"
					     : strerror(-error));
	}
	*out = &redis->remote.adapter;
	return 0;
}
