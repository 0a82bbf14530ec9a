/* public_event.c - one descriptor for event loops: completions, the control socket, time limits, and results to be taken. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "client/client_private.h"

#define EVENT_SETTLE_NS (10 * KVR_MS) /* while a connection is being made, or bytes wait to be sent */
#define EVENT_ARM_TRIES 64u

static int events_watch(struct kvr_client *client, int fd)
{
	struct epoll_event event;

	memset(&event, 0, sizeof(event));
	event.events = EPOLLIN;
	return fd >= 0 && epoll_ctl(client->event_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* Of each device: requests go through another one some day. */
static int events_watch_queues(struct kvr_client *client)
{
	int error = 0;

	for (uint32_t i = 0; !error && i < client->rail_count; i++)
		error = events_watch(client, client->device->driver->cq_event_fd(client->rails[i].cq));
	return error;
}

static int events_create(struct kvr_client *client)
{
	int error;

	client->event_fd = epoll_create1(EPOLL_CLOEXEC);
	client->event_timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	error = client->event_fd < 0 || client->event_timer < 0 ? -errno : events_watch(client, client->event_timer);
	if (!error)
		error = events_watch_queues(client);
	client->event_state = client->state;
	if (error)
		events_destroy(client);
	return error;
}

void events_destroy(struct kvr_client *client)
{
	if (client->event_fd >= 0)
		close(client->event_fd);
	if (client->event_timer >= 0)
		close(client->event_timer);
	client->event_fd = client->event_timer = -1;
}

/* When the loop must look without any news. */
static uint64_t events_next_ns(const struct kvr_client *client, uint64_t now_ns)
{
	uint64_t next_ns = client_next_ns(client);

	if (client->done_count > 0)
		return now_ns;
	if (client->state != CONNECTION_DOWN && client->state != CONNECTION_FAILED &&
		(client->state < CONNECTION_READY || client->outbox.length > 0))
		next_ns = kvr_min_u64(next_ns, now_ns + EVENT_SETTLE_NS);
	return next_ns;
}

void events_arm(struct kvr_client *client)
{
	struct itimerspec timer;
	uint64_t now_ns, next_ns;

	if (client->event_fd < 0)
		return;
	if (client->started) {
		client->device->driver->cq_clear_event(client->cq);
		for (unsigned i = 0; i < EVENT_ARM_TRIES && !client_arm(client); i++)
			;
	}
	/* A stream that is closed leaves the set by itself; one that lingers is the same descriptor. */
	if (client->stream && client->event_generation != client->generation) {
		client->event_generation = client->generation;
		if (events_watch(client, client->stream->ops->event_fd(client->stream)))
			log_warn("client: the control socket can't be watched: %s", strerror(errno));
	}
	now_ns = clock_now_ns();
	next_ns = client->event_state != client->state ? now_ns : events_next_ns(client, now_ns);
	client->event_state = client->state; /* that it changed, to lost or to healthy, is news once */
	memset(&timer, 0, sizeof(timer));
	if (next_ns != UINT64_MAX) {
		uint64_t rest_ns = next_ns > now_ns ? next_ns - now_ns : 1;

		timer.it_value.tv_sec = (time_t)(rest_ns / KVR_SECOND);
		timer.it_value.tv_nsec = (long)(rest_ns % KVR_SECOND);
	}
	timerfd_settime(client->event_timer, 0, &timer, NULL);
}

KVR_API int kvr_event_fd(struct kvr_client *client)
{
	int error, fd;

	if (client_enter(client))
		return -1;
	error = client->event_fd < 0 ? events_create(client) : 0;
	if (error)
		error_text_set("no descriptor for events: %s", strerror(-error));
	fd = client->event_fd;
	client_leave(client); /* arms it */
	return fd;
}
