/* public_wait.c - kvrail.h's lock, error words, and waiting. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "client/client_private.h"

#define WAIT_SPIN_NS (50 * KVR_US)
#define WAIT_YIELD_NS (200 * KVR_US)
#define WAIT_SLEEP_MAX_NS (10 * KVR_MS)
#define WAIT_WORD_NS (50 * KVR_US) /* no descriptor tells of a layer's word */

/* Words of the calling thread's last error: each thread has its own, so that no call disturbs another's. */
static _Thread_local char error_words[256];

void error_text_set(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error_words, sizeof(error_words), format, arguments);
	va_end(arguments);
}

KVR_API const char *kvr_error_text(void)
{
	return error_words;
}

/* Every public call begins here: the lock, and the refusal in a child of fork. */
int client_enter(struct kvr_client *client)
{
	error_words[0] = '\0';
	if (KVR_UNLIKELY(!*client->fork_marker)) {
		error_text_set("this client belongs to the parent process: open one of its own after fork");
		return -ECHILD;
	}
	pthread_mutex_lock(&client->lock);
	return 0;
}

void client_leave(struct kvr_client *client)
{
	events_arm(client);
	pthread_mutex_unlock(&client->lock);
}

/* ---- waiting ---- */

static struct timespec timespec_of(uint64_t ns)
{
	struct timespec time;

	time.tv_sec = (time_t)(ns / KVR_SECOND);
	time.tv_nsec = (long)(ns % KVR_SECOND);
	return time;
}

static unsigned client_descriptors(const struct kvr_client *client, struct pollfd fds[3])
{
	unsigned count = 0;

	if (client->stream)
		fds[count++].fd = client->stream->ops->event_fd(client->stream);
	if (client->lingering)
		fds[count++].fd = client->lingering->ops->event_fd(client->lingering);
	if (client->started && client->device->driver->cq_event_fd(client->cq) >= 0)
		fds[count++].fd = client->device->driver->cq_event_fd(client->cq);
	for (unsigned i = 0; i < count; i++)
		fds[i].events = POLLIN;
	return count;
}

/*
 * Sleeps until the device or the stream has news, or `until`; outside the lock, so that others can submit. One thread alone looks at
 * the descriptors: if several did, the first to wake would take the event from under the others, whose tickets it may bring.
 */
static void client_sleep(struct kvr_client *client, uint64_t until_ns)
{
	uint64_t now_ns = clock_now_ns();
	struct timespec limit;
	struct pollfd fds[3];
	unsigned count;
	uint64_t next_ns;

	pthread_mutex_lock(&client->lock);
	next_ns = kvr_min_u64(until_ns, now_ns + (client->word_waiters > 0 ? WAIT_WORD_NS : WAIT_SLEEP_MAX_NS));
	if (client->watched) {
		limit = timespec_of(next_ns);
		pthread_cond_timedwait(&client->news, &client->lock, &limit);
		pthread_mutex_unlock(&client->lock);
		return;
	}
	next_ns = kvr_min_u64(next_ns, client_next_ns(client));
	/* Requests that wait for a credit go out when a completion wakes somebody. */
	if (!client_arm(client) || next_ns <= now_ns) {
		pthread_mutex_unlock(&client->lock);
		return;
	}
	count = client_descriptors(client, fds);
	client->watched = true;
	pthread_mutex_unlock(&client->lock);
	limit = timespec_of(next_ns - now_ns);
	count = ppoll(fds, count, &limit, NULL) > 0;
	pthread_mutex_lock(&client->lock);
	if (count > 0 && client->started)
		client->device->driver->cq_clear_event(client->cq);
	client->watched = false;
	pthread_cond_broadcast(&client->news);
	pthread_mutex_unlock(&client->lock);
}

/* Steps until done(context) or the time is up: spins, then yields, then sleeps. 0 or -ETIMEDOUT. */
int client_wait_until(struct kvr_client *client, uint64_t timeout_ns,
	bool (*done)(struct kvr_client *client, void *context), void *context)
{
	uint64_t begin_ns = clock_now_ns();
	uint64_t until_ns = timeout_ns > UINT64_MAX - begin_ns ? UINT64_MAX : begin_ns + timeout_ns;
	uint64_t idle_ns = begin_ns;
	uint64_t spin_ns = client->options.user->spin_ns ? client->options.user->spin_ns : WAIT_SPIN_NS;
	uint64_t yield_ns = client->options.user->yield_ns ? client->options.user->yield_ns : WAIT_YIELD_NS;

	for (;;) {
		uint64_t now_ns = clock_now_ns();
		bool busy, finished;

		pthread_mutex_lock(&client->lock);
		client->waiters++; /* what it waits for may be held */
		busy = client_step(client, now_ns);
		client->waiters--;
		finished = done(client, context);
		if (finished || now_ns >= until_ns)
			events_arm(client);
		pthread_mutex_unlock(&client->lock);
		if (finished)
			return 0;
		if (now_ns >= until_ns)
			return -ETIMEDOUT;
		if (busy)
			idle_ns = now_ns;
		else if (now_ns - idle_ns < spin_ns)
			kvr_cpu_pause();
		else if (now_ns - idle_ns - spin_ns < yield_ns)
			sched_yield();
		else
			client_sleep(client, until_ns);
	}
}

struct ticket_wait {
	kvr_ticket ticket;
	struct kvr_result *result;
	int error;
};

/* What polling nearly always says: it must cost next to nothing, so nothing is formatted. */
static int ticket_not_done(struct kvr_result *result, int error)
{
	static const char words[] =
		"not done yet: the ticket stays, and the memory of a transfer is still the server's";

	KVR_STATIC_ASSERT(sizeof(words) <= sizeof(result->text) && sizeof(words) <= sizeof(error_words), "words fit");
	memcpy(error_words, words, sizeof(words));
	memset(result, 0, offsetof(struct kvr_result, text));
	result->error = error;
	memcpy(result->text, words, sizeof(words));
	return error;
}

/* The words of what poll and wait return go to the calling thread; the result of a ticket that is not done says so. */
static int ticket_result(int error, struct kvr_result *result)
{
	if (!error) {
		if (result->error)
			error_text_set("%s", result->text);
		return result->error;
	}
	if (error != -ENOENT)
		return ticket_not_done(result, error);
	error_text_set("there is no such ticket, or its result was taken");
	memset(result, 0, sizeof(*result));
	result->error = error;
	snprintf(result->text, sizeof(result->text), "%s", kvr_error_text());
	return error;
}

static bool ticket_done(struct kvr_client *client, void *context)
{
	struct ticket_wait *wait = context;

	wait->error = client_take(client, wait->ticket, wait->result);
	return wait->error != -EAGAIN;
}

KVR_API int kvr_wait(struct kvr_client *client, kvr_ticket ticket, uint64_t timeout_ns, struct kvr_result *result)
{
	struct ticket_wait wait = { ticket, result, 0 };
	int error = client_enter(client);

	if (error)
		return error;
	client_leave(client);
	if (client_wait_until(client, timeout_ns, ticket_done, &wait))
		wait.error = -ETIMEDOUT;
	return ticket_result(wait.error, result);
}

KVR_API int kvr_poll(struct kvr_client *client, kvr_ticket ticket, struct kvr_result *result)
{
	int error = client_enter(client);

	if (error)
		return error;
	client_step(client, clock_now_ns());
	error = client_take(client, ticket, result);
	client_leave(client);
	return ticket_result(error, result);
}

KVR_API int kvr_cancel(struct kvr_client *client, kvr_ticket ticket)
{
	int error = client_enter(client);

	if (error)
		return error;
	error = client_submit_cancel(client, ticket);
	client_step(client, clock_now_ns());
	client_leave(client);
	return error;
}
