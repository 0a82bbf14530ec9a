/* front.c - what the control thread does in turn: control sockets, new clients, pages, signals and the watchdog. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "app/kvraild/daemon.h"
#include "base/atomic.h"
#include "base/text.h"

/* Clients taken in one turn: many that come at once are let in at the pace of turns (pitfalls G06). */
#define ACCEPT_TURN 16
/* While it is not known that somebody came, the listener is asked no more often than this. */
#define ACCEPT_LOOK_NS KVR_MS
/* Taken off the epoll set in one call. */
#define WATCH_EVENTS 64

struct daemon_signals daemon_signals;

/* Where the management core wakes this thread, it looks by itself so often: for what the kernel had no room for. */
#define CONTROL_CALM_NS (50 * KVR_MS)

/* ---- control sockets ---- */

/*
 * Closed descriptors have left the epoll set by themselves; those that are still there stay.
 *
 * Only what is new wakes: a socket whose end was seen but which is open until the client's memory is given back, or one with bytes that
 * nobody reads while the client's inbox is full, is readable all the time. A step looks at all of them whatever woke it.
 */
void daemon_watch_fd(void *context, int fd)
{
	const struct daemon *daemon = context;
	struct epoll_event event;

	memset(&event, 0, sizeof(event));
	event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
	event.data.fd = fd;
	if (epoll_ctl(daemon->watch_fd, EPOLL_CTL_ADD, fd, &event) != 0 && errno != EEXIST)
		log_warn("a control socket can't be watched, and is looked at now and then: %s", strerror(errno));
}

/* Takes what has happened off the set: until then the set itself is readable, edges or not. */
void daemon_watch_slept(void *context)
{
	const struct daemon *daemon = context;
	struct epoll_event events[WATCH_EVENTS];

	while (epoll_wait(daemon->watch_fd, events, WATCH_EVENTS, 0) == WATCH_EVENTS)
		;
}

static bool part_control_step(void *context, uint64_t now_ns)
{
	struct daemon *daemon = context;
	struct control *control = server_control(daemon->server);
	bool busy = control_step(control, now_ns);

	daemon->control_ns = now_ns;
	if (control_watch_changed(control))
		control_watch(control, daemon_watch_fd, daemon);
	return busy;
}

static uint64_t part_control_next_ns(void *context)
{
	const struct daemon *daemon = context;

	if (daemon->plan->placement.busy)
		return control_next_ns(server_control(daemon->server));
	return daemon->control_ns + CONTROL_CALM_NS;
}

/* ---- new clients ---- */

/* Without a descriptor to accept it with, a client would wait in the backlog for ever: it is turned away with a spare one. */
static void turn_away(struct daemon_listener *listener, int why, uint64_t now_ns)
{
	struct daemon *daemon = listener->daemon;
	struct stream *stream;
	uint64_t squashed;

	if (log_rate_pass(&daemon->accept_log, now_ns, KVR_SECOND, &squashed))
		log_error("a client can't be accepted: %s (%llu more such)", strerror(-why),
			(unsigned long long)squashed);
	if (why != -EMFILE || daemon->spare_fd < 0)
		return;
	close(daemon->spare_fd);
	if (stream_accept(listener->fd, listener->is_unix, &stream) == 0)
		stream->ops->close(stream);
	daemon->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static bool part_accept_step(void *context, uint64_t now_ns)
{
	struct daemon_listener *listener = context;
	struct stream *stream;
	int error = 0;
	unsigned count = 0;

	if (!listener->due && now_ns - listener->look_ns < ACCEPT_LOOK_NS)
		return false;
	listener->due = false;
	listener->look_ns = now_ns;
	while (count < ACCEPT_TURN && (error = stream_accept(listener->fd, listener->is_unix, &stream)) == 0) {
		error = control_accept(server_control(listener->daemon->server), stream, now_ns);
		if (error)
			log_debug("a client was refused: %s", strerror(-error));
		count++;
	}
	if (count == ACCEPT_TURN)
		listener->due = true;
	else if (error != -EAGAIN)
		turn_away(listener, error, now_ns);
	return count > 0;
}

static void part_accept_slept(void *context)
{
	struct daemon_listener *listener = context;

	listener->due = true;
}

static uint64_t part_accept_next_ns(void *context)
{
	const struct daemon_listener *listener = context;

	return listener->due ? 0 : UINT64_MAX;
}

/* ---- pages ---- */

static bool part_http_step(void *context, uint64_t now_ns)
{
	return http_step(context, now_ns);
}

static uint64_t part_http_next_ns(void *context)
{
	return http_next_ns(context);
}

static void part_http_slept(void *context)
{
	http_slept(context);
}

/* Alone when it is asked for: L1 serves without L2. */
static const char *l2_not_ready(struct daemon *daemon, uint64_t now_ns)
{
	struct text words = { NULL, 0, 0, false };
	const char *why = NULL;

	if (!daemon->settings->ready_needs_l2)
		return NULL;
	if (status_degraded(&daemon->sources, now_ns, &words)) {
		text_copy(daemon->not_ready, sizeof(daemon->not_ready),
			words.failed ? "a place of L2 does not work" : words.bytes);
		why = daemon->not_ready;
	}
	text_fini(&words);
	return why;
}

const char *daemon_not_ready(void *context, uint64_t now_ns)
{
	struct daemon *daemon = context;
	const struct loop *loop;
	char text[TEXT_SHORT];
	uint64_t for_ns;

	if (daemon->drain_until_ns)
		return "draining, the server is about to leave";
	loop = watchdog_stalled(&daemon->watchdog, now_ns, &for_ns);
	if (!loop)
		return l2_not_ready(daemon, now_ns);
	snprintf(daemon->not_ready, sizeof(daemon->not_ready), "thread %s has made no turn for %s", loop_name(loop),
		text_time(text, for_ns));
	return daemon->not_ready;
}

/* ---- signals, leaving, watchdog ---- */

static void daemon_drain(struct daemon *daemon, uint64_t now_ns)
{
	struct control *control = server_control(daemon->server);
	char text[TEXT_SHORT];

	daemon->drain_until_ns = now_ns + daemon->settings->drain_timeout_ns;
	log_info("leaving: no new work is taken; %u clients, %s for transfers to end (another signal: at once)",
		control_client_count(control), text_time(text, daemon->settings->drain_timeout_ns));
	control_drain(control, now_ns);
}

static void daemon_leave(struct daemon *daemon, const char *why)
{
	daemon->forced = !control_idle(server_control(daemon->server));
	if (daemon->forced)
		log_warn("leaving %s: %u clients are cut off", why,
			control_client_count(server_control(daemon->server)));
	kvr_store_release(&daemon->stop, 1);
}

static bool look_at_signals(struct daemon *daemon, uint64_t now_ns)
{
	int leave = kvr_load_relaxed(&daemon_signals.leave);
	int reload = kvr_load_relaxed(&daemon_signals.reload);
	bool news = leave != daemon->seen_leave || reload != daemon->seen_reload;
	uint64_t squashed;

	if (reload != daemon->seen_reload && log_rate_pass(&daemon->reload_log, now_ns, KVR_SECOND, &squashed))
		log_info("SIGHUP: options are read at start alone, nothing changes (%llu more such)",
			(unsigned long long)squashed);
	daemon->seen_reload = reload;
	if (leave > 0 && !daemon->drain_until_ns)
		daemon_drain(daemon, now_ns);
	else if (leave != daemon->seen_leave)
		daemon_leave(daemon, "at the second signal");
	daemon->seen_leave = leave;
	return news;
}

static void look_at_gpus(struct daemon *daemon, uint64_t now_ns)
{
	if (daemon->drain_until_ns || !daemon_leaves_for_gpu(daemon))
		return;
	daemon->lost_gpu = true;
	log_error("leaving, as --gpu-lost says: a GPU is lost, and only a new process can use it again");
	daemon_drain(daemon, now_ns);
}

/* A device that says something new is looked at by the workers, who may be asleep. */
static void look_at_devices(struct daemon *daemon)
{
	bool news = false;

	for (uint32_t i = 0; i < daemon->remote_count; i++) {
		uint32_t health = kvr_load_relaxed(&daemon->remotes[i]->health);

		news |= health != daemon->seen_health[i];
		daemon->seen_health[i] = health;
	}
	for (uint32_t i = 0; news && i < daemon->loop_count; i++)
		loop_wake(daemon->loops[i]);
}

static bool part_chores_step(void *context, uint64_t now_ns)
{
	struct daemon *daemon = context;
	bool busy = look_at_signals(daemon, now_ns);

	look_at_gpus(daemon, now_ns);
	look_at_devices(daemon);
	watchdog_step(&daemon->watchdog, now_ns);
	guard_step(&daemon->guard, now_ns);
	if (!daemon->drain_until_ns || daemon->stop)
		return busy;
	if (control_idle(server_control(daemon->server)))
		daemon_leave(daemon, "in peace");
	else if (now_ns >= daemon->drain_until_ns)
		daemon_leave(daemon, "after --drain-timeout");
	return busy;
}

static uint64_t part_chores_next_ns(void *context)
{
	const struct daemon *daemon = context;

	return daemon->drain_until_ns ? kvr_min_u64(daemon->drain_until_ns, daemon->watchdog.next_ns)
				      : daemon->watchdog.next_ns;
}

void daemon_front_parts(struct daemon *daemon, struct loop_options *options)
{
	const struct loop_part parts[] = {
		{ daemon, part_control_step, NULL, part_control_next_ns, daemon_watch_slept, daemon->watch_fd },
		{ daemon, part_chores_step, NULL, part_chores_next_ns, NULL, -1 },
	};

	memcpy(options->parts, parts, sizeof(parts));
	options->part_count = KVR_COUNT_OF(parts);
	for (uint32_t i = 0; i < daemon->listener_count; i++)
		options->parts[options->part_count++] = (struct loop_part){ &daemon->listeners[i], part_accept_step,
			NULL, part_accept_next_ns, part_accept_slept, daemon->listeners[i].fd };
	if (daemon->http)
		options->parts[options->part_count++] = (struct loop_part){ daemon->http, part_http_step, NULL,
			part_http_next_ns, part_http_slept, http_fd(daemon->http) };
}
