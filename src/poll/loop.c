/* loop.c - the turns of a loop, its waiting, and how it is woken. */
#include "poll/loop.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "poll/cores.h"
#include "poll/relax.h"

#define SPIN_NS_DEFAULT (50 * KVR_US)
#define YIELD_NS_DEFAULT (200 * KVR_US)

struct loop {
	/* read only once it runs */
	struct loop_options options;
	int event_fd;
	pthread_t thread;
	bool started;
	bool rests;    /* the processor offers TPAUSE */
	bool had_core; /* it was pinned when it began */
	pid_t tid;
	int core; /* written before `ready` is posted, then by loop_hold_core */
	int priority;
	sem_t ready;
	/* written by whoever stops it */
	KVR_ALIGNED(KVR_CACHE_LINE) int stop;
	int waiting; /* enum loop_waiting; by whoever looks after it */
	/* written by the loop, and by whoever wakes it, rarely */
	KVR_ALIGNED(KVR_CACHE_LINE) int sleeping;
	/* written by the loop */
	KVR_ALIGNED(KVR_CACHE_LINE) struct loop_counters counters;
	uint64_t work_end_ns; /* idle time counts from here */
};

static int loop_check(const struct loop_options *options)
{
	if (options->part_count == 0 || options->part_count > LOOP_PARTS_MAX || options->wake_count > LOOP_WAKES_MAX)
		return -EINVAL;
	if (strnlen(options->name, sizeof(options->name)) == sizeof(options->name))
		return -EINVAL;
	for (uint32_t i = 0; i < options->part_count; i++) {
		if (!options->parts[i].step)
			return -EINVAL;
	}
	return 0;
}

int loop_create(const struct loop_options *options, struct loop **out)
{
	struct loop *loop;
	int error = loop_check(options);

	*out = NULL;
	if (error)
		return error;
	loop = fault_point("loop_create/object")
		? NULL
		: aligned_alloc(KVR_CACHE_LINE, kvr_round_up(sizeof(*loop), KVR_CACHE_LINE));
	if (!loop)
		return -ENOMEM;
	memset(loop, 0, sizeof(*loop));
	loop->options = *options;
	if (loop->options.spin_ns == 0)
		loop->options.spin_ns = SPIN_NS_DEFAULT;
	if (loop->options.yield_ns == 0)
		loop->options.yield_ns = YIELD_NS_DEFAULT;
	loop->core = -1;
	loop->waiting = (int)options->waiting;
	loop->rests = relax_offered();
	loop->event_fd = fault_point("loop_create/eventfd") ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->event_fd < 0) {
		free(loop);
		return -EMFILE;
	}
	sem_init(&loop->ready, 0, 0);
	*out = loop;
	return 0;
}

int loop_add_wake(struct loop *loop, struct loop *other)
{
	if (loop->options.wake_count == LOOP_WAKES_MAX)
		return -ENOSPC;
	loop->options.wakes[loop->options.wake_count++] = other;
	return 0;
}

static void loop_ring(struct loop *loop)
{
	uint64_t one = 1;
	int caller_errno = errno;

	/* A full counter is readable already. */
	while (write(loop->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	errno = caller_errno;
}

/* Behind a full fence. Of several that wake it at once only the first rings. */
static inline void loop_wake_fenced(struct loop *loop)
{
	if (KVR_UNLIKELY(kvr_load_relaxed(&loop->sleeping)) && kvr_exchange(&loop->sleeping, 0))
		loop_ring(loop);
}

void loop_wake(struct loop *loop)
{
	kvr_fence_full();
	loop_wake_fenced(loop);
}

static void loop_wake_others(struct loop *loop)
{
	if (loop->options.wake_count == 0)
		return;
	kvr_fence_full();
	for (uint32_t i = 0; i < loop->options.wake_count; i++)
		loop_wake_fenced(loop->options.wakes[i]);
}

/* Every part once. */
static bool loop_turn(struct loop *loop, uint64_t now_ns)
{
	bool busy = false;

	kvr_store_relaxed(&loop->counters.turn_ns, now_ns);
	for (uint32_t i = 0; i < loop->options.part_count; i++) {
		const struct loop_part *part = &loop->options.parts[i];

		busy |= part->step(part->context, now_ns);
	}
	if (busy) {
		kvr_counter_add(&loop->counters.busy_turns, 1);
		loop_wake_others(loop);
	} else {
		kvr_counter_add(&loop->counters.idle_turns, 1);
	}
	return busy;
}

/* When the first part wants a step; UINT64_MAX: none does. */
static uint64_t loop_next_ns(const struct loop *loop)
{
	uint64_t next_ns = UINT64_MAX;

	for (uint32_t i = 0; i < loop->options.part_count; i++) {
		const struct loop_part *part = &loop->options.parts[i];

		if (part->next_ns)
			next_ns = kvr_min_u64(next_ns, part->next_ns(part->context));
	}
	return next_ns;
}

static bool loop_arm(struct loop *loop)
{
	for (uint32_t i = 0; i < loop->options.part_count; i++) {
		const struct loop_part *part = &loop->options.parts[i];

		if (part->arm && !part->arm(part->context))
			return false;
	}
	return true;
}

/* Sleeps until a descriptor or the eventfd is readable, or next_ns. Tells the parts, and empties the eventfd. */
static void loop_poll(struct loop *loop, uint64_t now_ns, uint64_t next_ns)
{
	struct pollfd fds[LOOP_PARTS_MAX + 1] = { { loop->event_fd, POLLIN, 0 } };
	struct timespec timeout = { 0, 0 };
	uint64_t wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
	uint64_t value;
	nfds_t count = 1;

	for (uint32_t i = 0; i < loop->options.part_count; i++) {
		if (loop->options.parts[i].fd >= 0)
			fds[count++] = (struct pollfd){ loop->options.parts[i].fd, POLLIN, 0 };
	}
	timeout.tv_sec = (time_t)(wait_ns / KVR_SECOND);
	timeout.tv_nsec = (long)(wait_ns % KVR_SECOND);
	if (ppoll(fds, count, next_ns == UINT64_MAX ? NULL : &timeout, NULL) < 0 && errno != EINTR)
		log_error("%s: poll: %s", loop->options.name, strerror(errno));
	if ((fds[0].revents & POLLIN) && read(loop->event_fd, &value, sizeof(value)) < 0 && errno != EAGAIN)
		log_error("%s: eventfd: %s", loop->options.name, strerror(errno));
}

static void loop_tell_slept(struct loop *loop)
{
	for (uint32_t i = 0; i < loop->options.part_count; i++) {
		const struct loop_part *part = &loop->options.parts[i];

		if (part->slept)
			part->slept(part->context);
	}
}

static bool loop_stopped(const struct loop *loop, const int *stop)
{
	return kvr_load_acquire(&loop->stop) || (stop && kvr_load_acquire(stop));
}

/* Gives the core to whoever wants it. Returns the time afterwards. */
static uint64_t loop_yield(struct loop *loop)
{
	kvr_counter_add(&loop->counters.yields, 1);
	sched_yield();
	return clock_now_ns();
}

/* One more turn behind the raised flag; without work, the sleep itself. Returns the time afterwards. */
static uint64_t loop_look_and_poll(struct loop *loop)
{
	uint64_t start_ns = clock_now_ns();
	bool busy = loop_turn(loop, start_ns);
	uint64_t end_ns = clock_now_ns();
	uint64_t next_ns;

	if (busy) {
		kvr_counter_add(&loop->counters.busy_ns, end_ns - start_ns);
		loop->work_end_ns = end_ns;
		return end_ns;
	}
	next_ns = loop_next_ns(loop);
	if (next_ns <= end_ns)
		return loop_yield(loop);
	kvr_counter_add(&loop->counters.sleeps, 1);
	loop_poll(loop, end_ns, next_ns);
	loop_tell_slept(loop);
	start_ns = end_ns;
	end_ns = clock_now_ns();
	kvr_counter_add(&loop->counters.sleep_ns, end_ns - start_ns);
	return end_ns;
}

/* The flag goes up first, so that whoever gives work from now on rings; then everything is looked at once more. */
static uint64_t loop_sleep(struct loop *loop, uint64_t now_ns, const int *stop)
{
	kvr_store_relaxed(&loop->sleeping, 1);
	kvr_fence_full();
	if (!loop_stopped(loop, stop))
		now_ns = loop_arm(loop) ? loop_look_and_poll(loop) : loop_yield(loop);
	kvr_store_relaxed(&loop->sleeping, 0);
	return now_ns;
}

/* What comes after a turn without work. Returns the time afterwards. */
static uint64_t loop_wait(struct loop *loop, uint64_t now_ns, const int *stop)
{
	uint64_t idle_ns = now_ns - loop->work_end_ns;

	if (kvr_load_relaxed(&loop->waiting) == LOOP_BUSY || idle_ns < loop->options.spin_ns / 2) {
		kvr_cpu_pause();
		return now_ns;
	}
	if (idle_ns < loop->options.spin_ns) {
		relax(loop->rests);
		return clock_now_ns();
	}
	if (idle_ns < loop->options.spin_ns + loop->options.yield_ns)
		return loop_yield(loop);
	return loop_sleep(loop, now_ns, stop);
}

/* The end of a turn is the start of the next one: the clock is read once a turn. */
static void loop_body(struct loop *loop, const int *stop)
{
	uint64_t now_ns = clock_now_ns();

	loop->work_end_ns = now_ns;
	while (!loop_stopped(loop, stop)) {
		uint64_t start_ns = now_ns;
		bool busy = loop_turn(loop, start_ns);

		now_ns = clock_now_ns();
		if (busy) {
			kvr_counter_add(&loop->counters.busy_ns, now_ns - start_ns);
			loop->work_end_ns = now_ns;
		} else {
			now_ns = loop_wait(loop, now_ns, stop);
		}
	}
}

static void loop_pin(struct loop *loop)
{
	int error;

	if (loop->options.core < 0)
		return;
	error = cores_pin_self(loop->options.core);
	if (error)
		log_warn("%s: core %d can't be had (%s), the thread runs unpinned: give cores of this process' cpuset",
			loop->options.name, loop->options.core, strerror(-error));
	else
		loop->core = loop->options.core;
	loop->had_core = loop->core >= 0;
}

/* Only for a thread with a core of its own: elsewhere it would keep all else from running. */
static void loop_raise(struct loop *loop)
{
	struct sched_param parameter = { .sched_priority = loop->options.priority };
	int error;

	if (loop->options.priority == 0)
		return;
	if (loop->core < 0) {
		log_warn(
			"%s: no real-time priority %d without a core of its own: give it one (option cores), or leave the priority out",
			loop->options.name, loop->options.priority);
		return;
	}
	error = fault_point("loop/priority") ? EPERM : pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter);
	if (error == EPERM)
		log_warn(
			"%s: no right to the real-time priority %d, it runs without: give CAP_SYS_NICE or LimitRTPRIO=%d "
			"(ulimit -r)",
			loop->options.name, loop->options.priority, loop->options.priority);
	else if (error)
		log_warn("%s: the real-time priority %d can't be had: %s", loop->options.name, loop->options.priority,
			strerror(error));
	else
		loop->priority = loop->options.priority;
}

static void *loop_thread(void *argument)
{
	struct loop *loop = argument;

	pthread_setname_np(pthread_self(), loop->options.name);
	loop->tid = (pid_t)syscall(SYS_gettid);
	loop_pin(loop);
	loop_raise(loop);
	if (loop->options.begin)
		loop->options.begin(loop->options.begin_context);
	sem_post(&loop->ready);
	loop_body(loop, NULL);
	return NULL;
}

int loop_start(struct loop *loop)
{
	sigset_t all, before;
	int error;

	/* Signals are for the program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = fault_point("loop_start/thread") ? EAGAIN : pthread_create(&loop->thread, NULL, loop_thread, loop);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return -EAGAIN;
	loop->started = true;
	while (sem_wait(&loop->ready) != 0 && errno == EINTR)
		;
	return 0;
}

void loop_stop(struct loop *loop)
{
	kvr_store_release(&loop->stop, 1);
	loop_ring(loop);
	if (loop->started)
		pthread_join(loop->thread, NULL);
	loop->started = false;
}

void loop_destroy(struct loop **pointer)
{
	struct loop *loop = *pointer;

	if (!loop)
		return;
	loop_stop(loop);
	close(loop->event_fd);
	sem_destroy(&loop->ready);
	free(loop);
	*pointer = NULL;
}

const struct loop_counters *loop_counters(const struct loop *loop)
{
	return &loop->counters;
}

const char *loop_name(const struct loop *loop)
{
	return loop->options.name;
}

bool loop_sleeping(const struct loop *loop)
{
	return kvr_load_relaxed(&loop->sleeping) != 0;
}

int loop_core(const struct loop *loop)
{
	return loop->core;
}

int loop_wanted_core(const struct loop *loop)
{
	return loop->options.core;
}

int loop_hold_core(struct loop *loop)
{
	int error;

	if (!loop->started || loop->options.core < 0)
		return 0;
	/* What was refused at the start is not the process' to take later. */
	if (!loop->had_core)
		return -EINVAL;
	if (cores_is_pinned(loop->tid, loop->options.core)) {
		loop->core = loop->options.core;
		return 0;
	}
	error = cores_bind(loop->tid, &loop->options.core, 1);
	loop->core = error ? -1 : loop->options.core;
	return error ? error : -ECANCELED;
}

void loop_set_waiting(struct loop *loop, enum loop_waiting waiting)
{
	kvr_store_relaxed(&loop->waiting, (int)waiting);
}

enum loop_waiting loop_waiting(const struct loop *loop)
{
	return (enum loop_waiting)kvr_load_relaxed(&loop->waiting);
}

enum loop_waiting loop_wanted_waiting(const struct loop *loop)
{
	return loop->options.waiting;
}

int loop_priority(const struct loop *loop)
{
	return loop->priority;
}

uint64_t loop_waited_ns(const struct loop *loop)
{
	char path[64], line[128] = "", *end;
	uint64_t waited = UINT64_MAX;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", (int)loop->tid);
	file = loop->started ? fopen(path, "re") : NULL;
	if (!file)
		return UINT64_MAX;
	if (fgets(line, sizeof(line), file)) {
		/* Time on a processor, time waiting for one, turns. */
		(void)strtoull(line, &end, 10);
		if (end != line && *end == ' ')
			waited = strtoull(end, NULL, 10);
	}
	fclose(file);
	return waited;
}

void loop_run_here(struct loop *loop, const int *stop)
{
	loop_pin(loop);
	loop_body(loop, stop);
}
