/*
 * redis_link.c - one connection: it stands, commands go out in order, replies come back in order.
 *
 *   CLOSED -> CONNECTING -> GREETING (AUTH, SELECT, PING) -> READY -> CLOSED
 *
 * A value is sent from L1, and received into L1, by one call for its pieces.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"
#include "tier/redis_private.h"

#define IOV_MAX_SEND 32
#define BYTES_PER_SECOND (UINT64_C(1) << 20) /* a slower place is none */
#define BACKOFF_MAX_NS (10 * KVR_SECOND)

static void watch(struct redis_link *link, int operation, bool output)
{
	struct epoll_event event = { .events = EPOLLIN | (output ? EPOLLOUT : 0), .data.ptr = link };

	link->watches_output = output;
	/* It fails for want of memory alone; then the deadline ends the link. */
	(void)epoll_ctl(link->node->redis->epoll_fd, operation, link->fd, &event);
}

static void watch_output(struct redis_link *link, bool output)
{
	if (link->watches_output != output)
		watch(link, EPOLL_CTL_MOD, output);
}

void redis_link_close(struct redis_link *link)
{
	if (link->fd >= 0)
		close(link->fd);
	if (link->addresses)
		freeaddrinfo(link->addresses);
	link->fd = -1;
	link->addresses = link->address = NULL;
	link->state = REDIS_LINK_CLOSED;
	link->retired = false;
	link->unsent = NULL;
	link->deadline_ns = UINT64_MAX;
}

/* Its next try is later: twice as long as the last time, up to 10 s, less up to a half, so that servers do not come
 * back all at once. */
static void back_off(struct redis_node *node, int error)
{
	struct redis *redis = node->redis;
	uint64_t wait = redis->retry_ns << kvr_min_u64(node->failures, 16);

	node->error = error;
	if (redis->remote.now_ns < node->until_ns)
		return; /* connections that were lost together count once */
	wait = kvr_min_u64(wait, BACKOFF_MAX_NS);
	wait -= random_below(&redis->random, wait / 2 + 1);
	node->failures++;
	node->until_ns = redis->remote.now_ns + wait;
}

/* As a request's status: none of those that say something of the object, or of the request's own time. */
static int place_error(int error)
{
	switch (error) {
	case -ENOENT:
		return -EHOSTUNREACH;
	case -EPROTO:
	case -ETIMEDOUT:
	case -EBADMSG:
	case -ENOSPC:
	case -ECANCELED:
		return -EIO;
	default:
		return error;
	}
}

void redis_link_fail(struct redis_link *link, int error, const char *text, const char *detail)
{
	struct redis_node *node = link->node;
	struct redis *redis = node->redis;
	bool lost = link->state == REDIS_LINK_READY && (error == -ECONNRESET || error == -EPIPE);
	int number = error == -EPROTO || error == -EACCES || error == -EBUSY ? 0 : -error;
	char name[REDIS_HOST_MAX + 16] = "";
	struct list_node *item;

	error = place_error(error);
	if (redis->cluster)
		snprintf(name, sizeof(name), "%s:%u: ", node->host, node->port);
	remote_complain(&redis->remote, "%s%s%s%s%s%s", name, text, number ? ": " : "", number ? strerror(number) : "",
		*detail ? ": " : "", detail);
	remote_condition(&redis->remote, text, number, false);
	redis_link_close(link);
	back_off(node, error);
	if (redis->cluster)
		redis_want_map(redis);
	while ((item = list_pop_first(&link->jobs))) {
		struct redis_job *job = KVR_CONTAINER_OF(item, struct redis_job, node);

		node->stores_sent -= job->command == REDIS_SET;
		/* A SCAN is this server's alone, which rests now. */
		if (job->request && lost && job->command != REDIS_SCAN && job->tries++ == 0) {
			redis_job_write(redis, job);
			redis_route(redis, job);
		} else {
			redis_job_end(redis, job, error, false);
		}
	}
	link->job_count = 0;
}

void redis_link_late(struct redis_link *link)
{
	/* -EIO, not -ETIMEDOUT: it is the place that failed, not a request that had no time left. */
	if (link->state == REDIS_LINK_CONNECTING)
		redis_link_fail(link, -EIO, "cannot be reached, no answer in time", "");
	else
		redis_link_fail(link, -EIO, "does not answer in time", "");
}

void redis_link_set_deadline(struct redis_link *link)
{
	const struct redis *redis = link->node->redis;
	const struct redis_job *job;
	uint64_t bytes;

	if (list_empty(&link->jobs)) {
		link->deadline_ns = UINT64_MAX;
		return;
	}
	job = KVR_CONTAINER_OF(link->jobs.next, struct redis_job, node);
	bytes = job->command == REDIS_GET ? job->request->identity.bytes : job->length;
	link->deadline_ns = redis->remote.now_ns + redis->timeout_ns + bytes * (KVR_SECOND / BYTES_PER_SECOND);
}

/* ---- opening ---- */

static int set_up(int fd, bool tcp)
{
	int one = 1;

	if (tcp &&
		(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0 ||
			setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)) != 0))
		return -errno;
	return 0;
}

/* 0: it stands or will. */
static int connect_to(struct redis_link *link, int family, const struct sockaddr *address, socklen_t length)
{
	int error = 0;

	link->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (link->fd < 0)
		return -errno;
	error = set_up(link->fd, family != AF_UNIX);
	if (!error && connect(link->fd, address, length) != 0 && errno != EINPROGRESS)
		error = errno == EAGAIN ? -ECONNREFUSED : -errno; /* Unix: the backlog is full */
	if (error) {
		close(link->fd);
		link->fd = -1;
		return error;
	}
	watch(link, EPOLL_CTL_ADD, true);
	return 0;
}

static int connect_unix(struct redis_link *link)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	text_copy(address.sun_path, sizeof(address.sun_path), link->node->host);
	return connect_to(link, AF_UNIX, (const struct sockaddr *)&address, sizeof(address));
}

/* The first of the addresses that are left which does not fail at once. */
static int connect_next(struct redis_link *link)
{
	int error = -EHOSTUNREACH;

	while (link->address) {
		const struct addrinfo *address = link->address;

		link->address = address->ai_next;
		error = connect_to(link, address->ai_family, address->ai_addr, address->ai_addrlen);
		if (!error)
			return 0;
	}
	return error;
}

static int resolve(struct redis_link *link)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	char port[8];

	snprintf(port, sizeof(port), "%u", link->node->port);
	if (getaddrinfo(link->node->host, port, &hints, &link->addresses) != 0) {
		link->addresses = NULL;
		return -ENOENT;
	}
	link->address = link->addresses;
	return 0;
}

bool redis_link_open(struct redis_link *link)
{
	struct redis *redis = link->node->redis;
	const char *text = "cannot be reached";
	int error;

	resp_init(&link->resp);
	link->state = REDIS_LINK_CONNECTING;
	link->deadline_ns = redis->remote.now_ns + redis->timeout_ns;
	if (link->node->host[0] == '/') {
		error = connect_unix(link);
	} else {
		error = resolve(link);
		if (error)
			text = "there is no such host";
		else
			error = connect_next(link);
	}
	if (error)
		redis_link_fail(link, error, text, "");
	return error == 0;
}

static void greet(struct redis_link *link)
{
	struct redis *redis = link->node->redis;
	const enum redis_command commands[] = { REDIS_AUTH, REDIS_SELECT, REDIS_PING };

	link->state = REDIS_LINK_GREETING;
	for (uint32_t i = 0; i < REDIS_OWN_JOBS; i++) {
		struct redis_job *job = &link->own[i];

		if ((commands[i] == REDIS_AUTH && !redis->password[0]) ||
			(commands[i] == REDIS_SELECT && redis->database == 0))
			continue;
		job->command = commands[i];
		redis_job_write(redis, job);
		redis_link_push(link, job);
	}
	redis_link_send(link);
}

static void connected(struct redis_link *link)
{
	int error = 0;
	socklen_t length = sizeof(error);

	if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
		error = errno;
	if (error && link->address) {
		close(link->fd);
		link->fd = -1;
		error = -connect_next(link);
		if (!error)
			return;
	}
	if (error)
		redis_link_fail(link, -error, "cannot be reached", "");
	else
		greet(link);
}

/* ---- sending ---- */

void redis_link_push(struct redis_link *link, struct redis_job *job)
{
	list_init(&job->node);
	list_add_last(&link->jobs, &job->node);
	link->job_count++;
	if (!link->unsent)
		link->unsent = job;
	if (link->job_count == 1)
		redis_link_set_deadline(link);
	if (job->command == REDIS_SET)
		link->node->stores_sent++;
	if (job->command == REDIS_CLUSTER_SLOTS)
		redis_map_begin(link);
}

static uint32_t add_piece(struct iovec *iov, uint32_t count, void *bytes, uint64_t length, uint64_t *skip)
{
	if (*skip >= length) {
		*skip -= length;
		return count;
	}
	iov[count] = (struct iovec){ (char *)bytes + *skip, length - *skip };
	*skip = 0;
	return count + 1;
}

static uint32_t add_job(struct redis_job *job, struct iovec *iov, uint32_t count)
{
	uint64_t skip = job->sent;

	count = add_piece(iov, count, job->head, job->head_length, &skip);
	if (job->command != REDIS_SET)
		return count;
	count = add_piece(iov, count, job->header, OBJECT_HEADER_BYTES, &skip);
	count = add_piece(iov, count, job->body.bytes, job->body.length, &skip);
	return add_piece(iov, count, job->tail, job->tail_length, &skip);
}

static struct redis_job *job_after(const struct redis_link *link, const struct redis_job *job)
{
	return job->node.next == &link->jobs ? NULL : KVR_CONTAINER_OF(job->node.next, struct redis_job, node);
}

static void sent(struct redis_link *link, uint64_t bytes)
{
	while (bytes > 0 && link->unsent) {
		struct redis_job *job = link->unsent;
		uint64_t part = kvr_min_u64(bytes, job->length - job->sent);

		job->sent += part;
		bytes -= part;
		if (job->sent == job->length)
			link->unsent = job_after(link, job);
	}
}

void redis_link_send(struct redis_link *link)
{
	struct iovec iov[IOV_MAX_SEND];
	struct msghdr message = { .msg_iov = iov };
	uint32_t count = 0;
	ssize_t result;

	if (link->state < REDIS_LINK_GREETING || !link->unsent)
		return;
	for (struct redis_job *job = link->unsent; job && count + 4 <= IOV_MAX_SEND; job = job_after(link, job))
		count = add_job(job, iov, count);
	message.msg_iovlen = count;
	result = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (result < 0 && errno != EAGAIN && errno != EINTR) {
		/* What the server has said before it closed is read first. */
		watch_output(link, false);
		return;
	}
	if (result > 0)
		sent(link, (uint64_t)result);
	watch_output(link, link->unsent != NULL);
}

/* ---- receiving ---- */

static bool take_input(struct redis_link *link, size_t length)
{
	const uint8_t *at = link->input, *end = link->input + length, *piece = NULL;
	size_t piece_bytes = 0;
	enum resp_event event;

	while ((event = resp_next(&link->resp, &at, end, &piece, &piece_bytes)) != RESP_MORE)
		if (!redis_reply_event(link, event, piece, piece_bytes))
			return false;
	return true;
}

static void receive(struct redis_link *link)
{
	struct iovec iov[3];
	uint32_t count = 0;
	uint64_t direct = 0, offered, left = resp_bulk_left(&link->resp);
	ssize_t result;

	if (left > 0 && !list_empty(&link->jobs)) {
		struct redis_job *job = KVR_CONTAINER_OF(link->jobs.next, struct redis_job, node);
		uint8_t *at = redis_is_value(job) ? redis_value_at(link, job, &offered) : NULL;

		if (at) {
			iov[count++] = (struct iovec){ at, offered };
			direct = offered;
			if (offered < left) {
				iov[count++] = (struct iovec){ job->body.bytes, left - offered };
				direct = left;
			}
		}
	}
	iov[count++] = (struct iovec){ link->input, sizeof(link->input) };
	result = readv(link->fd, iov, (int)count);
	if (result < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (result <= 0) {
		if (list_empty(&link->jobs))
			redis_link_close(link); /* servers close what is idle */
		else
			redis_link_fail(link, result < 0 ? -errno : -ECONNRESET, "the connection is lost", "");
		return;
	}
	if (direct) {
		uint64_t took = kvr_min_u64((uint64_t)result, direct);

		resp_bulk_took(&link->resp, took);
		if (!take_input(link, (size_t)((uint64_t)result - took)))
			return;
	} else if (!take_input(link, (size_t)result)) {
		return;
	}
	if (link->retired && list_empty(&link->jobs))
		redis_link_close(link);
}

void redis_link_event(struct redis_link *link, uint32_t events)
{
	if (link->state == REDIS_LINK_CLOSED)
		return;
	if (link->state == REDIS_LINK_CONNECTING) {
		if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
			connected(link);
		return;
	}
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		receive(link);
	if (link->state >= REDIS_LINK_GREETING && events & EPOLLOUT)
		redis_link_send(link);
}
