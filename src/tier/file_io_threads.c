/* file_io_threads.c - where io_uring is missing or forbidden: as many threads as operations, up to a bound. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "tier/file_io.h"

#define THREADS_MAX 32

/* `lock` keeps both lists and `stopping`; it is held for a few instructions. */
struct file_io_threads {
	struct file_io io;
	pthread_mutex_t lock;
	pthread_cond_t some;
	struct list_node started;
	struct list_node ended;
	bool stopping;
	uint32_t count;
	pthread_t threads[THREADS_MAX];
};

static struct file_io_threads *threads_of(struct file_io *io)
{
	return KVR_CONTAINER_OF(io, struct file_io_threads, io);
}

static void *threads_main(void *argument)
{
	struct file_io_threads *threads = argument;
	struct list_node *node;

	pthread_mutex_lock(&threads->lock);
	for (;;) {
		node = list_pop_first(&threads->started);
		if (!node && threads->stopping)
			break;
		if (!node) {
			pthread_cond_wait(&threads->some, &threads->lock);
			continue;
		}
		pthread_mutex_unlock(&threads->lock);
		file_op_run(KVR_CONTAINER_OF(node, struct file_op, node));
		pthread_mutex_lock(&threads->lock);
		list_add_last(&threads->ended, node);
		file_io_wake(&threads->io);
	}
	pthread_mutex_unlock(&threads->lock);
	return NULL;
}

static void threads_destroy(struct file_io *io)
{
	struct file_io_threads *threads = threads_of(io);

	pthread_mutex_lock(&threads->lock);
	threads->stopping = true;
	pthread_cond_broadcast(&threads->some);
	pthread_mutex_unlock(&threads->lock);
	for (uint32_t i = 0; i < threads->count; i++)
		pthread_join(threads->threads[i], NULL);
	pthread_cond_destroy(&threads->some);
	pthread_mutex_destroy(&threads->lock);
	free(threads);
}

static int threads_create(uint32_t depth, struct file_io **out)
{
	struct file_io_threads *threads = fault_point("file_io_threads/object") ? NULL : calloc(1, sizeof(*threads));
	sigset_t all, before;
	int error = 0;

	*out = NULL;
	if (!threads)
		return -ENOMEM;
	threads->io.driver = &file_io_threads_driver;
	pthread_mutex_init(&threads->lock, NULL);
	pthread_cond_init(&threads->some, NULL);
	list_init(&threads->started);
	list_init(&threads->ended);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (threads->count < depth && threads->count < THREADS_MAX && !error) {
		error = fault_point("file_io_threads/thread")
			? EAGAIN
			: pthread_create(&threads->threads[threads->count], NULL, threads_main, threads);
		if (!error) {
			pthread_setname_np(threads->threads[threads->count], "kvr-file-io");
			threads->count++;
		}
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	/* Fewer threads than wanted will do. */
	if (threads->count == 0) {
		threads_destroy(&threads->io);
		return -EAGAIN;
	}
	*out = &threads->io;
	return 0;
}

static void threads_start(struct file_io *io, struct file_op *op)
{
	struct file_io_threads *threads = threads_of(io);

	pthread_mutex_lock(&threads->lock);
	list_init(&op->node);
	list_add_last(&threads->started, &op->node);
	pthread_cond_signal(&threads->some);
	pthread_mutex_unlock(&threads->lock);
}

static void threads_wait(struct file_io *io, uint64_t timeout_ns)
{
	struct pollfd event = { .fd = io->event_fd, .events = POLLIN };
	struct timespec time = { .tv_sec = (time_t)(timeout_ns / KVR_SECOND),
		.tv_nsec = (long)(timeout_ns % KVR_SECOND) };
	uint64_t count;
	ssize_t ignored;

	if (ppoll(&event, 1, timeout_ns == UINT64_MAX ? NULL : &time, NULL) <= 0)
		return;
	ignored = read(io->event_fd, &count, sizeof(count));
	(void)ignored;
}

static struct file_op *threads_reap(struct file_io *io)
{
	struct file_io_threads *threads = threads_of(io);
	struct list_node *node;

	pthread_mutex_lock(&threads->lock);
	node = list_pop_first(&threads->ended);
	pthread_mutex_unlock(&threads->lock);
	return node ? KVR_CONTAINER_OF(node, struct file_op, node) : NULL;
}

const struct file_io_driver file_io_threads_driver = {
	.name = "threads",
	.create = threads_create,
	.destroy = threads_destroy,
	.start = threads_start,
	.wait = threads_wait,
	.reap = threads_reap,
};
