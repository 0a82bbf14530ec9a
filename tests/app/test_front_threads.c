/* What wakes kvraild's control thread: what is new, and nothing that lies there. */
#include "app/kvraild/daemon.h"
#include "base/atomic.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cmocka_all.h"

/* As often as the thread is made to look on purpose. */
#define LOOKS 20

struct front {
	struct daemon *daemon;
	struct loop *loop;
	int ends[2]; /* [0] is watched, [1] the client's */
	bool reads;  /* the step takes what is there */
	uint64_t received;
};

static struct daemon the_daemon;

static bool front_step(void *context, uint64_t now_ns)
{
	struct front *front = context;
	char bytes[256];
	ssize_t got;

	(void)now_ns;
	if (!kvr_load_acquire(&front->reads))
		return false;
	got = recv(front->ends[0], bytes, sizeof(bytes), MSG_DONTWAIT);
	if (got <= 0)
		return false;
	kvr_fetch_add(&front->received, (uint64_t)got);
	return true;
}

static void front_slept(void *context)
{
	const struct front *front = context;

	daemon_watch_slept(front->daemon);
}

static void front_begin(struct front *front, bool reads)
{
	struct loop_options options;

	memset(front, 0, sizeof(*front));
	front->daemon = &the_daemon;
	front->reads = reads;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, front->ends), 0);
	the_daemon.watch_fd = epoll_create1(EPOLL_CLOEXEC);
	assert_true(the_daemon.watch_fd >= 0);
	daemon_watch_fd(&the_daemon, front->ends[0]);
	daemon_watch_fd(&the_daemon, front->ends[0]); /* asked again after each change: no harm */
	memset(&options, 0, sizeof(options));
	strcpy(options.name, "front");
	options.parts[0] = (struct loop_part){ front, front_step, NULL, NULL, front_slept, the_daemon.watch_fd };
	options.part_count = 1;
	options.waiting = LOOP_ADAPTIVE;
	options.spin_ns = 1;
	options.yield_ns = 1;
	options.core = -1;
	assert_int_equal(loop_create(&options, &front->loop), 0);
	assert_int_equal(loop_start(front->loop), 0);
}

static void front_end(struct front *front)
{
	loop_destroy(&front->loop);
	close(the_daemon.watch_fd);
	close(front->ends[0]);
	if (front->ends[1] >= 0)
		close(front->ends[1]);
}

static uint64_t sleeps_of(const struct front *front)
{
	return kvr_load_relaxed(&loop_counters(front->loop)->sleeps);
}

/* Makes it look many times, with a sleep in between, and says how many sleeps that took: one a look where nothing else wakes it. */
static uint64_t sleeps_of_looks(const struct front *front)
{
	uint64_t before = sleeps_of(front);

	for (unsigned i = 0; i < LOOKS; i++) {
		uint64_t now = sleeps_of(front);

		loop_wake(front->loop);
		while (sleeps_of(front) == now)
			sched_yield();
	}
	return sleeps_of(front) - before;
}

static void await_wake_up(const struct front *front, uint64_t sleeps)
{
	while (sleeps_of(front) <= sleeps)
		sched_yield();
}

static void a_socket_that_is_closed_on_one_side_wakes_once(void **state)
{
	struct front front;
	uint64_t sleeps;

	(void)state;
	front_begin(&front, false);
	await_wake_up(&front, 0);
	sleeps = sleeps_of(&front);
	assert_int_equal(shutdown(front.ends[1], SHUT_WR), 0);
	await_wake_up(&front, sleeps);
	sleeps = sleeps_of_looks(&front);
	if (sleeps > 3 * LOOKS)
		fail_msg("%u looks took %llu sleeps: something wakes the thread all the time", LOOKS,
			(unsigned long long)sleeps);
	front_end(&front);
}

static void bytes_that_nobody_reads_wake_once(void **state)
{
	struct front front;
	uint64_t sleeps;

	(void)state;
	front_begin(&front, false);
	await_wake_up(&front, 0);
	for (unsigned i = 0; i < 3; i++) {
		sleeps = sleeps_of(&front);
		assert_int_equal(send(front.ends[1], "flood", 5, 0), 5);
		await_wake_up(&front, sleeps);
	}
	sleeps = sleeps_of_looks(&front);
	if (sleeps > 3 * LOOKS)
		fail_msg("%u looks took %llu sleeps: something wakes the thread all the time", LOOKS,
			(unsigned long long)sleeps);
	/* What lies there is found when there is room for it again. */
	kvr_store_release(&front.reads, true);
	loop_wake(front.loop);
	while (kvr_load_relaxed(&front.received) < 15)
		sched_yield();
	front_end(&front);
}

/* pitfalls I13: nothing that comes between a look and the sleep is missed. */
static void all_that_is_sent_arrives_without_any_other_wake_up(void **state)
{
	struct front front;
	uint64_t sent = 0;

	(void)state;
	front_begin(&front, true);
	for (unsigned i = 0; i < 20000; i++) {
		assert_int_equal(send(front.ends[1], "x", 1, 0), 1);
		sent++;
		if (i % 3 == 0)
			continue;
		while (kvr_load_relaxed(&front.received) < sent)
			sched_yield();
	}
	while (kvr_load_relaxed(&front.received) < sent)
		sched_yield();
	front_end(&front);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_socket_that_is_closed_on_one_side_wakes_once),
		cmocka_unit_test(bytes_that_nobody_reads_wake_once),
		cmocka_unit_test(all_that_is_sent_arrives_without_any_other_wake_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
