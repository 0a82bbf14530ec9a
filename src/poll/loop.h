/*
 * loop.h - a thread that is only `while (running) step(clock())`, pinned, and what it does when there is nothing to do.
 *
 * A loop runs one or more parts in turn (a worker; the management core; on small machines both; the control thread's).
 * Waiting: BUSY never stops polling. ADAPTIVE spins for spin_ns after the last work (in the second half of it with
 * short rests of the processor: relax.h), then yields for yield_ns, then arms every part, looks once more, and sleeps in poll(2) on the parts' descriptors and its own until something comes
 * or the earliest next_ns. Idle time is measured from the end of work (pitfalls M05).
 *
 * Waking. Whoever gives work to a loop's part by a ring calls loop_wake on it; inside the library this is done by
 * `wakes`: after a turn that did something, the loop wakes those. loop_wake costs a fence and a load unless the loop
 * sleeps.
 *
 *     giver                              loop
 *     work into the ring (release)       sleeping = 1
 *     full fence                         full fence
 *     sleeping? then write the eventfd   arm, then look at everything again; nothing: poll(2)
 *
 * Of the two fences one comes first, so either the giver sees the flag or the loop sees the work: no wake-up is lost.
 */
#ifndef KVRAIL_POLL_LOOP_H
#define KVRAIL_POLL_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define LOOP_PARTS_MAX 16
#define LOOP_WAKES_MAX 72

enum loop_waiting { LOOP_BUSY, LOOP_ADAPTIVE };

struct loop_part {
	void *context;
	bool (*step)(void *context, uint64_t now_ns); /* true: it did something */
	/* true: nothing to do, fd or loop_wake will tell; NULL: nothing to arm */
	bool (*arm)(void *context);
	uint64_t (*next_ns)(void *context); /* a step is due then; NULL: never by itself */
	void (*slept)(void *context);       /* after waking from sleep (clear events); NULL: nothing */
	int fd;                             /* to sleep on; -1: none */
};

struct loop_counters { /* one writer: the loop */
	uint64_t busy_turns, idle_turns, yields, sleeps, busy_ns, sleep_ns;
	/* clock at the start of the newest turn; 0 before the first. Stands still while it sleeps or hangs */
	uint64_t turn_ns;
};

struct loop;

struct loop_options {
	char name[16]; /* of the thread */
	struct loop_part parts[LOOP_PARTS_MAX];
	uint32_t part_count;
	enum loop_waiting waiting;
	uint64_t spin_ns;             /* 0: 50 us */
	uint64_t yield_ns;            /* 0: 200 us */
	int core;                     /* to pin to; -1: not pinned */
	int priority;                 /* real-time (SCHED_FIFO), 1 to 99, once it is pinned; 0: none */
	void (*begin)(void *context); /* in the thread, before its first turn; NULL: nothing */
	void *begin_context;
	struct loop *wakes[LOOP_WAKES_MAX]; /* loops that this one's parts give work to */
	uint32_t wake_count;
};

/* 0, -EINVAL, -ENOMEM, -EMFILE. */
KVR_MUST_CHECK int loop_create(const struct loop_options *options, struct loop **loop);
/* Before loop_start: another loop that this one wakes. -ENOSPC. */
KVR_MUST_CHECK int loop_add_wake(struct loop *loop, struct loop *other);
/* Starts the thread. 0, -EAGAIN; a core that can't be had is a warning and the thread runs unpinned (pitfalls M01), a priority
 * that the process has no right to likewise. */
KVR_MUST_CHECK int loop_start(struct loop *loop);
/* Asks the thread to end after its turn, and waits for it. Harmless when not started. A stopped loop is not started
 * again. */
void loop_stop(struct loop *loop);
/* Stops it first. NULL is harmless. No thread may wake it any more. */
void loop_destroy(struct loop **loop);
/* Any thread; also a signal handler. Also after *stop of loop_run_here was set. */
void loop_wake(struct loop *loop);
const struct loop_counters *loop_counters(const struct loop *loop);
/* Any thread, until loop_destroy. */
const char *loop_name(const struct loop *loop);
/* True while it sleeps in poll(2) or is about to. Any thread; old at once. */
bool loop_sleeping(const struct loop *loop);
/* The core it runs on as verified after pinning; -1: not pinned. Known when loop_start has returned. */
int loop_core(const struct loop *loop);
/* The one that it was to be pinned to; -1: none. */
int loop_wanted_core(const struct loop *loop);
/* Whether it is pinned still: a cpuset that is changed takes threads off their cores. Where not, it is pinned again, and where that
 * can't be, loop_core becomes -1. 0, -ECANCELED (it was off its core, and is there again), or -errno: not pinned. One thread, the
 * one that reads loop_core; true for all threads that were started. */
int loop_hold_core(struct loop *loop);
/* How it waits from its next turn on. Any thread. */
void loop_set_waiting(struct loop *loop, enum loop_waiting waiting);
enum loop_waiting loop_waiting(const struct loop *loop);
/* As it was created. */
enum loop_waiting loop_wanted_waiting(const struct loop *loop);
/* The real-time priority that it has; 0: none. */
int loop_priority(const struct loop *loop);
/* Time that the thread could have run and did not, because something else had its core, since it began; UINT64_MAX: the kernel does
 * not tell. Reads /proc. */
uint64_t loop_waited_ns(const struct loop *loop);
/* Runs in the calling thread, which it pins when a core was given, until *stop is non-zero or loop_stop is called
 * (tests, kvraild's main thread). *stop is written with release; whoever sets it from another thread or a signal
 * handler calls loop_wake after. */
void loop_run_here(struct loop *loop, const int *stop);

KVR_END_C

#endif
