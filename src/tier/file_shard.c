/*
 * file_shard.c - one I/O thread: takes requests, begins as many as its depth allows, reaps, sleeps.
 *
 * Sleeping is as in base/helper.c: the thread exchanges `sleeping` to 1, looks at everything that others push once
 * more, and waits in file_io_wait; whoever has pushed exchanges the word to 0 and, if it was 1, wakes with one
 * write(2).
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "tier/file_private.h"

#define TAKEN_A_TURN 64
#define LOG_INTERVAL_NS (5 * KVR_SECOND)
#define DEADLINE_GRAIN_NS KVR_MS

void file_shard_wake(struct file_shard *shard)
{
	if (kvr_exchange(&shard->sleeping, 0))
		file_io_wake(shard->io);
}

int file_shard_fail(struct file_shard *shard, const char *what, const char *path, int error)
{
	uint64_t squashed;

	if (error)
		kvr_counter_add(&shard->counters.errors, 1);
	if (log_rate_pass(&shard->log_rate, shard->now_ns, LOG_INTERVAL_NS, &squashed))
		log_warn("l2 file:%s: %s %s%s%s (%llu lines like this held back)", shard->place->path, what, path,
			error ? ": " : "", error ? strerror(-error) : "", (unsigned long long)squashed);
	return error;
}

void file_request_end(struct file_shard *shard, struct l2_request *request, int status)
{
	struct ring_message *slot = ring_push_begin(&shard->ended);

	if (!slot)
		return; /* cannot be: the ring holds all requests that submit lets in */
	slot->word[0] = (uintptr_t)request;
	slot->word[1] = (uint64_t)(int64_t)status;
	ring_push_end(&shard->ended);
}

void file_job_end(struct file_job *job, int status)
{
	struct file_shard *shard = job->shard;
	struct l2_request *request = job->request;

	shard->active--;
	shard->active_stores -= job->store;
	job->request = NULL;
	list_add_first(&shard->free_jobs, &job->node);
	file_request_end(shard, request, status);
}

void file_job_start(struct file_job *job, enum file_op_kind kind, void (*done)(void *owner, struct file_op *op))
{
	job->op.kind = kind;
	job->op.done = done;
	file_io_start(job->shard->io, &job->op);
}

/* CONTAINS by what is known; true when that was an answer. */
static bool contains_known(struct file_shard *shard, struct l2_request *request, const struct file_name *name)
{
	struct file_use use = file_shard_use(shard, request);
	uint64_t bytes = file_index_use(shard->index, name, &use);

	if (bytes == file_image_bytes(request->identity.bytes) && !kvr_load_relaxed(&shard->place->gone)) {
		file_request_end(shard, request, 0);
		return true;
	}
	if (!shard->place->exclusive || !shard->scanned)
		return false;
	kvr_counter_add(&shard->counters.misses, 1);
	file_request_end(shard, request, -ENOENT);
	return true;
}

static void queue_request(struct file_shard *shard, struct l2_request *request)
{
	struct list_node *queue = &shard->stores;

	if (request->operation == L2_CONTAINS || (request->operation == L2_LOAD && request->urgent))
		queue = &shard->urgent;
	else if (request->operation == L2_LOAD)
		queue = &shard->loads;
	list_init(&request->node);
	list_add_last(queue, &request->node);
	if (request->deadline_ns && request->deadline_ns < shard->next_deadline_ns)
		shard->next_deadline_ns = request->deadline_ns;
}

static bool shard_take(struct file_shard *shard)
{
	const struct ring_message *message;
	int taken = 0;

	while (taken < TAKEN_A_TURN && (message = ring_pop_begin(&shard->submitted))) {
		struct l2_request *request = (struct l2_request *)(uintptr_t)message->word[0];
		struct file_name name;

		ring_pop_end(&shard->submitted);
		taken++;
		if (request->operation == L2_CLEAR) {
			file_clear_begin(shard, request);
			continue;
		}
		if (!object_identity_good(&request->identity)) {
			file_request_end(shard, request, request->operation == L2_STORE ? -EINVAL : -ENOENT);
			continue;
		}
		if (request->operation == L2_CONTAINS) {
			file_name_make(&shard->digester, &request->identity, &name);
			if (contains_known(shard, request, &name))
				continue;
		}
		queue_request(shard, request);
	}
	return taken == TAKEN_A_TURN;
}

static bool canceled(const struct l2_request *request)
{
	return kvr_load_relaxed(&request->status) == -ECANCELED;
}

static bool expired(const struct file_shard *shard, const struct l2_request *request)
{
	return request->deadline_ns && shard->now_ns >= request->deadline_ns;
}

static void sweep_queue(struct file_shard *shard, struct list_node *queue)
{
	list_for_each_safe(node, queue) {
		struct l2_request *request = KVR_CONTAINER_OF(node, struct l2_request, node);

		if (canceled(request) || expired(shard, request)) {
			list_remove(node);
			file_request_end(shard, request, canceled(request) ? -ECANCELED : -ETIMEDOUT);
		} else if (request->deadline_ns && request->deadline_ns < shard->next_deadline_ns) {
			shard->next_deadline_ns = request->deadline_ns;
		}
	}
}

/* What waits in a queue ends when it is canceled or its time is over, though nothing else ends. */
static void shard_sweep(struct file_shard *shard)
{
	uint32_t cancels = kvr_load_acquire(&shard->cancels);

	if (cancels == shard->cancels_seen && shard->now_ns < shard->next_deadline_ns)
		return;
	shard->cancels_seen = cancels;
	shard->next_deadline_ns = UINT64_MAX;
	sweep_queue(shard, &shard->urgent);
	sweep_queue(shard, &shard->loads);
	sweep_queue(shard, &shard->stores);
	if (shard->next_deadline_ns != UINT64_MAX)
		shard->next_deadline_ns = kvr_max_u64(shard->next_deadline_ns, shard->now_ns + DEADLINE_GRAIN_NS);
}

/* There is credit for another transfer; else when there will be some. */
static bool limit_lets(struct file_shard *shard, struct file_limit *limit)
{
	uint64_t passed = kvr_min_u64(shard->now_ns - limit->last_ns, KVR_SECOND);
	int64_t most = (int64_t)(limit->rate / 10 + 1);

	if (!limit->rate)
		return true;
	limit->last_ns = shard->now_ns;
	limit->credit += (int64_t)((double)limit->rate * (double)passed / (double)KVR_SECOND);
	if (limit->credit > most)
		limit->credit = most;
	if (limit->credit > 0)
		return true;
	shard->next_credit_ns = kvr_min_u64(shard->next_credit_ns,
		shard->now_ns + KVR_MS + (uint64_t)((double)-limit->credit * (double)KVR_SECOND / (double)limit->rate));
	return false;
}

static struct list_node *queue_to_serve(struct file_shard *shard)
{
	/* A burst of stores leaves a quarter of the depth to loads. */
	uint32_t store_slots = shard->depth - shard->depth / 4;
	bool loads = limit_lets(shard, &shard->load_limit);

	if (!list_empty(&shard->urgent) && loads)
		return &shard->urgent;
	/* Loads that nobody waits for leave a place to stores. */
	if (!list_empty(&shard->stores) && (shard->active_stores == 0 || list_empty(&shard->loads)) &&
		shard->active_stores < store_slots && limit_lets(shard, &shard->store_limit))
		return &shard->stores;
	if (!list_empty(&shard->loads) && loads)
		return &shard->loads;
	if (!list_empty(&shard->stores) && shard->active_stores < store_slots && limit_lets(shard, &shard->store_limit))
		return &shard->stores;
	return NULL;
}

static void begin(struct file_shard *shard, struct l2_request *request)
{
	struct list_node *node = list_pop_first(&shard->free_jobs);
	struct file_job *job = KVR_CONTAINER_OF(node, struct file_job, node);
	int64_t bytes = (int64_t)request->identity.bytes;

	job->request = request;
	job->image_bytes = file_image_bytes(request->identity.bytes);
	job->done_bytes = 0;
	job->room_bytes = 0;
	job->freed_bytes = 0;
	job->fd = -1;
	job->retried = false;
	job->store = request->operation == L2_STORE;
	file_name_make(&shard->digester, &request->identity, &job->name);
	file_name_path(&job->name, job->path);
	shard->active++;
	shard->active_stores += job->store;
	switch (request->operation) {
	case L2_CONTAINS:
		file_contains_begin(job);
		break;
	case L2_LOAD:
		shard->load_limit.credit -= bytes;
		file_load_begin(job);
		break;
	case L2_STORE:
		shard->store_limit.credit -= bytes;
		file_store_begin(job);
		break;
	case L2_REMOVE:
		file_remove_begin(job);
		break;
	case L2_CLEAR: /* shard_take's */
		break;
	}
}

static void shard_begin(struct file_shard *shard)
{
	struct list_node *queue;

	shard->next_credit_ns = UINT64_MAX;
	while (!list_empty(&shard->free_jobs) && (queue = queue_to_serve(shard))) {
		struct list_node *node = list_pop_first(queue);
		struct l2_request *request = KVR_CONTAINER_OF(node, struct l2_request, node);

		if (canceled(request))
			file_request_end(shard, request, -ECANCELED);
		else if (expired(shard, request))
			file_request_end(shard, request, -ETIMEDOUT);
		else
			begin(shard, request);
	}
}

static void shard_reap(struct file_shard *shard)
{
	struct file_op *op;

	while ((op = file_io_reap(shard->io)))
		op->done(op->owner, op);
}

static bool nothing_pushed(struct file_shard *shard)
{
	return ring_empty(&shard->submitted) && ring_empty(&shard->found) && !kvr_load_acquire(&shard->stopping) &&
		kvr_load_acquire(&shard->cancels) == shard->cancels_seen;
}

static void shard_sleep(struct file_shard *shard, bool more)
{
	uint64_t until = kvr_min_u64(shard->next_deadline_ns, shard->next_credit_ns), timeout = 0;

	kvr_exchange(&shard->sleeping, 1);
	if (!more && nothing_pushed(shard))
		timeout = until == UINT64_MAX ? until : until > shard->now_ns ? until - shard->now_ns : 0;
	file_io_wait(shard->io, timeout);
	kvr_store_relaxed(&shard->sleeping, (uint32_t)0);
}

/* Jobs that have begun go on to their end; what has not begun is dropped. */
static void shard_finish(struct file_shard *shard)
{
	for (;;) {
		shard_reap(shard); /* which may add to those that wait for room */
		list_for_each_safe(node, &shard->room_waiters) {
			list_remove(node);
			shard->active--;
		}
		if (shard->active == 0 && shard->evicting_bytes == 0)
			return;
		file_io_wait(shard->io, UINT64_MAX);
	}
}

static bool anything_to_do(const struct file_shard *shard)
{
	return shard->active || !list_empty(&shard->urgent) || !list_empty(&shard->loads) ||
		!list_empty(&shard->stores);
}

static void shard_run(struct file_shard *shard)
{
	while (!kvr_load_acquire(&shard->stopping)) {
		bool more;

		shard->now_ns = clock_now_ns();
		shard_reap(shard);
		more = shard_take(shard);
		file_shard_take_found(shard);
		if (shard->now_ns >= shard->next_check_ns && anything_to_do(shard)) {
			file_place_check(shard->place);
			shard->next_check_ns = shard->now_ns + shard->place->check_interval_ns;
		}
		shard_sweep(shard);
		shard_begin(shard);
		file_shard_room(shard);
		file_shard_trim(shard);
		shard_sleep(shard, more);
	}
	shard_finish(shard);
}

static void *shard_main(void *argument)
{
	struct file_shard *shard = argument;

	/* Made here: the ring of the kernel is for one thread. */
	shard->start_error = file_io_create(
		shard->want_uring, shard->depth + FILE_EVICTIONS, &shard->io, &shard->uring_errno);
	sem_post(&shard->ready);
	if (shard->start_error)
		return NULL;
	shard_run(shard);
	return NULL;
}

int file_shard_start(struct file_shard *shard)
{
	sigset_t all, before;
	char name[16];
	int error;

	if (sem_init(&shard->ready, 0, 0) != 0)
		return -errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = fault_point("file_shard/thread") ? EAGAIN : pthread_create(&shard->thread, NULL, shard_main, shard);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		sem_destroy(&shard->ready);
		return error == ENOMEM ? -ENOMEM : -EAGAIN;
	}
	snprintf(name, sizeof(name), "kvr-file%u", shard->number % FILE_SHARDS_MAX);
	pthread_setname_np(shard->thread, name);
	while (sem_wait(&shard->ready) != 0)
		;
	if (shard->start_error) {
		pthread_join(shard->thread, NULL);
		sem_destroy(&shard->ready);
		return shard->start_error;
	}
	shard->running = true;
	return 0;
}

void file_shard_stop(struct file_shard *shard)
{
	if (!shard->running)
		return;
	kvr_store_release(&shard->stopping, (uint32_t)1);
	file_shard_wake(shard);
	pthread_join(shard->thread, NULL);
	file_io_destroy(&shard->io); /* only now: file_shard_wake uses it */
	sem_destroy(&shard->ready);
	shard->running = false;
}
