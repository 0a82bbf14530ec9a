#include "base/helper.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/ring.h"

#define HELPER_NAME_BYTES 16

/*
 * The owner pushes jobs on `submitted`, the thread pops them, runs them and pushes them on `finished`. At most
 * `capacity` jobs are between submit and collect, so that `finished` always has room.
 *
 * Sleeping: the thread exchanges `sleeping` to 1, looks at `submitted` once more, and waits on the futex while the word
 * is 1. The owner pushes first and exchanges the word to 0 after. Of two exchanges of one word one is the later: if it
 * is the thread's, it has acquired the owner's push and finds the job; if it is the owner's, it reads the 1 and wakes
 * the thread.
 */
struct helper {
	struct ring submitted;
	struct ring finished;
	KVR_ALIGNED(KVR_CACHE_LINE) uint32_t sleeping;
	uint32_t stopping; /* set once, by the owner */
	/* the owner's, or read only */
	KVR_ALIGNED(KVR_CACHE_LINE) uint32_t capacity;
	uint32_t in_flight;
	bool threaded;
	bool event_used; /* the owner sleeps on event_fd, so that collect must clear it */
	int event_fd;
	pthread_t thread;
	char name[HELPER_NAME_BYTES];
};

static void helper_sleep(struct helper *helper)
{
	kvr_exchange(&helper->sleeping, 1);
	/* Both are looked at behind the exchange; a wake-up for no reason only costs another turn. */
	if (ring_empty(&helper->submitted) && !kvr_load_acquire(&helper->stopping))
		syscall(SYS_futex, &helper->sleeping, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
	kvr_store_relaxed(&helper->sleeping, (uint32_t)0);
}

static void helper_wake(struct helper *helper)
{
	if (kvr_exchange(&helper->sleeping, 0))
		syscall(SYS_futex, &helper->sleeping, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static struct helper_job *helper_next_job(struct ring *ring)
{
	struct ring_message message;

	if (!ring_pop(ring, &message))
		return NULL;
	return (struct helper_job *)(uintptr_t)message.word[0];
}

static bool helper_put_job(struct ring *ring, struct helper_job *job)
{
	struct ring_message *slot = ring_push_begin(ring);

	if (!slot)
		return false;
	slot->word[0] = (uintptr_t)job;
	ring_push_end(ring);
	return true;
}

static void helper_announce(const struct helper *helper)
{
	uint64_t one = 1;

	/* Cannot fail but by an interruption: the counter would need 2^64 jobs to be full. */
	while (write(helper->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void *helper_main(void *argument)
{
	struct helper *helper = argument;

	for (;;) {
		/* Loaded before the ring is found empty: what was submitted before the stop is run. */
		bool stopping = kvr_load_acquire(&helper->stopping);
		struct helper_job *job = helper_next_job(&helper->submitted);

		if (job) {
			job->run(job);
			helper_put_job(&helper->finished, job);
			helper_announce(helper);
		} else if (stopping) {
			return NULL;
		} else {
			helper_sleep(helper);
		}
	}
}

static int helper_start(struct helper *helper)
{
	sigset_t all, before;
	int error;

	helper->event_fd = fault_point("helper_create/event_fd") ? (errno = EMFILE, -1)
								 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (helper->event_fd < 0)
		return errno == ENOMEM ? -ENOMEM : -EAGAIN;

	/* Signals are for the threads that wait for them, never for a helper. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = fault_point("helper_create/thread") ? EAGAIN
						    : pthread_create(&helper->thread, NULL, helper_main, helper);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		close(helper->event_fd);
		helper->event_fd = -1;
		return error == ENOMEM ? -ENOMEM : -EAGAIN;
	}
	pthread_setname_np(helper->thread, helper->name);
	helper->threaded = true;
	return 0;
}

int helper_create(const char *name, unsigned threads, uint32_t capacity, struct helper **out)
{
	struct helper *helper;
	int error;

	*out = NULL;
	if (threads > 1 || capacity == 0 || capacity > RING_CAPACITY_MAX || strlen(name) >= HELPER_NAME_BYTES)
		return -EINVAL;
	helper = fault_point("helper_create/object") ? NULL : aligned_alloc(KVR_CACHE_LINE, sizeof(*helper));
	if (!helper)
		return -ENOMEM;
	memset(helper, 0, sizeof(*helper));
	memcpy(helper->name, name, strlen(name));
	helper->capacity = capacity;
	helper->event_fd = -1;

	error = ring_init(&helper->submitted, capacity < 2 ? 2 : capacity);
	if (error)
		goto free_helper;
	error = ring_init(&helper->finished, capacity < 2 ? 2 : capacity);
	if (error)
		goto fini_submitted;
	if (threads) {
		error = helper_start(helper);
		if (error) {
			log_error("helper %s: cannot start its thread: %s", name, strerror(-error));
			goto fini_finished;
		}
	}
	*out = helper;
	return 0;

fini_finished:
	ring_fini(&helper->finished);
fini_submitted:
	ring_fini(&helper->submitted);
free_helper:
	free(helper);
	return error;
}

void helper_destroy(struct helper **slot)
{
	struct helper *helper = *slot;
	struct helper_job *job;

	*slot = NULL;
	if (!helper)
		return;
	if (helper->threaded) {
		kvr_store_release(&helper->stopping, (uint32_t)1);
		helper_wake(helper);
		pthread_join(helper->thread, NULL);
		close(helper->event_fd);
	} else {
		while ((job = helper_next_job(&helper->submitted)))
			job->run(job);
	}
	ring_fini(&helper->finished);
	ring_fini(&helper->submitted);
	free(helper);
}

bool helper_submit(struct helper *helper, struct helper_job *job)
{
	if (helper->in_flight == helper->capacity || !helper_put_job(&helper->submitted, job))
		return false;
	helper->in_flight++;
	if (helper->threaded)
		helper_wake(helper);
	return true;
}

/* Clears the event before the ring is looked at again: a job that finishes in between sets it again. */
static struct helper_job *helper_clear_and_look(struct helper *helper)
{
	uint64_t count;
	ssize_t ignored = read(helper->event_fd, &count, sizeof(count));

	(void)ignored;
	return helper_next_job(&helper->finished);
}

struct helper_job *helper_collect(struct helper *helper)
{
	struct helper_job *job;

	if (!helper->threaded) {
		job = helper_next_job(&helper->submitted);
		if (job)
			job->run(job);
	} else {
		job = helper_next_job(&helper->finished);
		if (!job && helper->event_used)
			job = helper_clear_and_look(helper);
	}
	if (job)
		helper->in_flight--;
	return job;
}

int helper_event_fd(struct helper *helper)
{
	helper->event_used = helper->threaded;
	return helper->event_fd;
}
