#include "tier/remote.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "tier/object_format.h"

#define TAKEN_A_TURN 256
#define LOG_INTERVAL_NS (5 * KVR_SECOND)
#define DEADLINE_GRAIN_NS KVR_MS

static struct remote *remote_of(struct l2_adapter *adapter)
{
	return KVR_CONTAINER_OF(adapter, struct remote, adapter);
}

/* ---- the management core's calls ---- */

/* Exchanged to 1 by the thread before it looks once more and sleeps. */
static void wake(struct remote *remote)
{
	uint64_t one = 1;

	if (kvr_exchange(&remote->sleeping, 0) && write(remote->wake_fd, &one, sizeof(one)) < 0)
		return; /* only when 2^64 wakes wait to be read: it is awake */
}

int remote_submit(struct l2_adapter *adapter, struct l2_request *request)
{
	struct remote *remote = remote_of(adapter);
	struct ring_message *slot;

	if (remote->in_flight == remote->request_limit)
		return -EAGAIN;
	slot = ring_push_begin(&remote->submitted);
	if (!slot)
		return -EAGAIN;
	kvr_store_relaxed(&request->status, 0);
	slot->word[0] = (uintptr_t)request;
	ring_push_end(&remote->submitted);
	kvr_store_relaxed(&remote->in_flight, remote->in_flight + 1);
	wake(remote);
	return 0;
}

void remote_cancel(struct l2_adapter *adapter, struct l2_request *request)
{
	struct remote *remote = remote_of(adapter);

	/* The mark is only looked at before the request begins; how it ended comes with poll. */
	kvr_store_relaxed(&request->status, -ECANCELED);
	kvr_store_release(&remote->cancels, kvr_load_relaxed(&remote->cancels) + 1);
	wake(remote);
}

uint32_t remote_poll(struct l2_adapter *adapter, struct list_node *ended, uint32_t limit)
{
	struct remote *remote = remote_of(adapter);
	struct ring_message message;
	uint32_t count = 0;

	while (count < limit && ring_pop(&remote->ended, &message)) {
		struct l2_request *request = (struct l2_request *)(uintptr_t)message.word[0];

		kvr_store_relaxed(&request->status, (int)(int64_t)message.word[1]);
		list_init(&request->node);
		list_add_last(ended, &request->node);
		count++;
	}
	if (count)
		kvr_store_relaxed(&remote->in_flight, remote->in_flight - count);
	return count;
}

void remote_get_stats(struct l2_adapter *adapter, struct l2_stats *stats)
{
	const struct remote *remote = remote_of(adapter);
	const struct remote_counters *counters = &remote->counters;
	const char *condition = kvr_load_acquire(&remote->condition);
	int error = kvr_load_relaxed(&remote->condition_error);

	memset(stats, 0, sizeof(*stats));
	stats->loads = kvr_load_relaxed(&counters->loads);
	stats->load_bytes = kvr_load_relaxed(&counters->load_bytes);
	stats->stores = kvr_load_relaxed(&counters->stores);
	stats->store_bytes = kvr_load_relaxed(&counters->store_bytes);
	stats->misses = kvr_load_relaxed(&counters->misses);
	stats->corrupt = kvr_load_relaxed(&counters->corrupt);
	stats->errors = kvr_load_relaxed(&counters->errors);
	stats->uncounted = true;
	stats->in_flight = kvr_load_relaxed(&remote->in_flight);
	stats->read_only = remote->read_only || kvr_load_relaxed(&remote->refuses);
	if (condition)
		snprintf(stats->condition, sizeof(stats->condition), "%s%s%s", condition, error ? ": " : "",
			error ? strerror(error) : "");
	else if (remote->read_only)
		snprintf(stats->condition, sizeof(stats->condition), "read only, as configured");
}

/* ---- the thread ---- */

void remote_condition(struct remote *remote, const char *text, int error, bool refuses)
{
	kvr_store_relaxed(&remote->condition_error, error);
	kvr_store_relaxed(&remote->refuses, (uint32_t)refuses);
	kvr_store_release(&remote->condition, text);
}

void remote_well(struct remote *remote, bool stored)
{
	uint64_t squashed;

	if (!kvr_load_relaxed(&remote->condition) || (kvr_load_relaxed(&remote->refuses) && !stored))
		return;
	if (log_rate_pass(&remote->well_rate, remote->now_ns, LOG_INTERVAL_NS, &squashed))
		log_info("l2 %s: works again", remote->adapter.name);
	remote_condition(remote, NULL, 0, false);
}

void remote_complain(struct remote *remote, const char *format, ...)
{
	uint64_t squashed;
	char text[400];
	va_list arguments;

	if (!log_rate_pass(&remote->log_rate, remote->now_ns, LOG_INTERVAL_NS, &squashed))
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	log_warn(
		"l2 %s: %s (%llu lines like this held back)", remote->adapter.name, text, (unsigned long long)squashed);
}

void remote_drain_wake(struct remote *remote)
{
	uint64_t count;

	while (read(remote->wake_fd, &count, sizeof(count)) > 0)
		;
}

static void count(struct remote *remote, const struct l2_request *request, int status, bool written)
{
	struct remote_counters *counters = &remote->counters;

	if (status == 0 && request->operation == L2_LOAD) {
		kvr_counter_add(&counters->loads, 1);
		kvr_counter_add(&counters->load_bytes, request->identity.bytes);
	} else if (status == 0 && written) {
		kvr_counter_add(&counters->stores, 1);
		kvr_counter_add(&counters->store_bytes, request->identity.bytes);
	} else if (status == -ENOENT) {
		kvr_counter_add(&counters->misses, 1);
	} else if (status == -EBADMSG) {
		kvr_counter_add(&counters->corrupt, 1);
	} else if (status != 0 && status != -ECANCELED && status != -ETIMEDOUT) {
		kvr_counter_add(&counters->errors, 1);
	}
}

static void push_ended(struct remote *remote, const struct l2_request *request, int status)
{
	struct ring_message *slot = ring_push_begin(&remote->ended);

	if (!slot)
		return; /* cannot be: the ring holds all requests that submit lets in */
	slot->word[0] = (uintptr_t)request;
	slot->word[1] = (uint64_t)(int64_t)status;
	ring_push_end(&remote->ended);
}

void remote_end(struct remote *remote, struct l2_request *request, int status, bool written)
{
	remote->active--;
	remote->active_stores -= request->operation == L2_STORE;
	count(remote, request, status, written);
	push_ended(remote, request, status);
}

static void queue_request(struct remote *remote, struct l2_request *request)
{
	struct list_node *queue = &remote->stores;

	if (request->operation == L2_CONTAINS)
		queue = &remote->asks;
	else if (request->operation == L2_LOAD)
		queue = request->urgent ? &remote->urgent : &remote->loads;
	list_init(&request->node);
	list_add_last(queue, &request->node);
	if (request->deadline_ns && request->deadline_ns < remote->next_deadline_ns)
		remote->next_deadline_ns = request->deadline_ns;
}

/* 0, or how it ends without having begun. */
static int admit(const struct remote *remote, const struct l2_request *request)
{
	bool changes = request->operation == L2_STORE || request->operation == L2_REMOVE;

	if (request->operation == L2_CLEAR)
		return remote->read_only ? -EROFS : 0;
	if (!object_identity_good(&request->identity))
		return request->operation == L2_STORE ? -EINVAL : -ENOENT;
	return changes && remote->read_only ? -EROFS : 0;
}

static bool take(struct remote *remote)
{
	const struct ring_message *message;
	uint32_t taken = 0;

	while (taken < TAKEN_A_TURN && (message = ring_pop_begin(&remote->submitted))) {
		struct l2_request *request = (struct l2_request *)(uintptr_t)message->word[0];
		int status = admit(remote, request);

		ring_pop_end(&remote->submitted);
		taken++;
		if (status)
			push_ended(remote, request, status);
		else
			queue_request(remote, request);
	}
	return taken == TAKEN_A_TURN;
}

/* 0: it may begin. */
static int too_late(const struct remote *remote, const struct l2_request *request)
{
	if (kvr_load_relaxed(&request->status) == -ECANCELED)
		return -ECANCELED;
	return request->deadline_ns && remote->now_ns >= request->deadline_ns ? -ETIMEDOUT : 0;
}

static void sweep_queue(struct remote *remote, struct list_node *queue)
{
	list_for_each_safe(node, queue) {
		struct l2_request *request = KVR_CONTAINER_OF(node, struct l2_request, node);
		int status = too_late(remote, request);

		if (status) {
			list_remove(node);
			push_ended(remote, request, status);
		} else if (request->deadline_ns && request->deadline_ns < remote->next_deadline_ns) {
			remote->next_deadline_ns = request->deadline_ns;
		}
	}
}

/* What waits in a queue ends when it is canceled or its time is over, though nothing else ends. */
static void sweep(struct remote *remote)
{
	uint32_t cancels = kvr_load_acquire(&remote->cancels);

	if (cancels == remote->cancels_seen && remote->now_ns < remote->next_deadline_ns)
		return;
	remote->cancels_seen = cancels;
	remote->next_deadline_ns = UINT64_MAX;
	sweep_queue(remote, &remote->asks);
	sweep_queue(remote, &remote->urgent);
	sweep_queue(remote, &remote->loads);
	sweep_queue(remote, &remote->stores);
	if (remote->next_deadline_ns != UINT64_MAX)
		remote->next_deadline_ns = kvr_max_u64(remote->next_deadline_ns, remote->now_ns + DEADLINE_GRAIN_NS);
}

/* The first of the queue may begin. */
static bool may_begin(struct remote *remote, const struct list_node *queue)
{
	return !list_empty(queue) &&
		remote->calls->has_room(remote, KVR_CONTAINER_OF(queue->next, struct l2_request, node));
}

/* Of what nobody waits for a store when none is under way, so that loads without end do not keep it out. */
static struct list_node *queue_to_serve(struct remote *remote)
{
	bool stores = may_begin(remote, &remote->stores);

	if (may_begin(remote, &remote->asks))
		return &remote->asks;
	if (may_begin(remote, &remote->urgent))
		return &remote->urgent;
	if (stores && (remote->active_stores == 0 || list_empty(&remote->loads)))
		return &remote->stores;
	if (may_begin(remote, &remote->loads))
		return &remote->loads;
	return stores ? &remote->stores : NULL;
}

static void begin_some(struct remote *remote)
{
	struct list_node *queue;

	while ((queue = queue_to_serve(remote))) {
		struct l2_request *request = KVR_CONTAINER_OF(list_pop_first(queue), struct l2_request, node);
		int status = too_late(remote, request);

		if (status) {
			push_ended(remote, request, status);
			continue;
		}
		remote->active++;
		remote->active_stores += request->operation == L2_STORE;
		remote->calls->begin(remote, request);
	}
}

static bool nothing_pushed(struct remote *remote)
{
	return ring_empty(&remote->submitted) && !kvr_load_acquire(&remote->stopping) &&
		kvr_load_acquire(&remote->cancels) == remote->cancels_seen;
}

static void run(struct remote *remote)
{
	while (!kvr_load_acquire(&remote->stopping)) {
		uint64_t until, timeout = 0;
		bool more;

		remote->now_ns = clock_now_ns();
		more = take(remote);
		sweep(remote);
		begin_some(remote);
		until = remote->calls->turn(remote);
		more |= queue_to_serve(remote) != NULL; /* what has ended has made room */
		until = kvr_min_u64(until, remote->next_deadline_ns);
		kvr_exchange(&remote->sleeping, 1);
		if (!more && nothing_pushed(remote))
			timeout = until == UINT64_MAX ? until : until > remote->now_ns ? until - remote->now_ns : 0;
		remote->calls->wait(remote, timeout);
		kvr_store_relaxed(&remote->sleeping, (uint32_t)0);
	}
	remote->now_ns = clock_now_ns();
	remote->calls->finish(remote);
}

static void *thread_main(void *argument)
{
	run(argument);
	return NULL;
}

/* ---- start and end ---- */

int remote_init(struct remote *remote)
{
	int error;

	remote->next_deadline_ns = UINT64_MAX;
	list_init(&remote->asks);
	list_init(&remote->urgent);
	list_init(&remote->loads);
	list_init(&remote->stores);
	remote->wake_fd = fault_point("remote/wake_fd") ? -1 : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (remote->wake_fd < 0)
		return -EMFILE;
	error = digester_init(&remote->digester);
	if (!error)
		error = ring_init(&remote->submitted, remote->request_limit);
	if (!error)
		error = ring_init(&remote->ended, remote->request_limit);
	return error;
}

int remote_start(struct remote *remote)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = fault_point("remote/thread") ? EAGAIN : pthread_create(&remote->thread, NULL, thread_main, remote);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return -EAGAIN;
	pthread_setname_np(remote->thread, remote->thread_name);
	remote->running = true;
	return 0;
}

void remote_stop(struct remote *remote)
{
	if (!remote->running)
		return;
	kvr_store_release(&remote->stopping, (uint32_t)1);
	wake(remote);
	pthread_join(remote->thread, NULL);
	remote->running = false;
}

void remote_fini(struct remote *remote)
{
	ring_fini(&remote->submitted);
	ring_fini(&remote->ended);
	digester_fini(&remote->digester);
	if (remote->wake_fd >= 0)
		close(remote->wake_fd);
}
