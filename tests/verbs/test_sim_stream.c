/* The simulator's control streams. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "verbs/sim/fabric.h"

struct link {
	struct sim_fabric *fabric;
	struct verbs_device *device;
	struct stream *client, *server;
};

static struct link open_link(uint64_t seed, uint32_t chunk_max)
{
	struct link link = { 0 };
	struct verbs_open open = { 0 };
	struct sim_options options;

	sim_options_default(&options);
	options.stream_chunk_max = chunk_max;
	assert_int_equal(sim_fabric_create(seed, &options, &link.fabric), 0);
	open.fabric = link.fabric;
	assert_int_equal(verbs_sim.open(&open, &link.device), 0);
	assert_int_equal(sim_stream_pair(link.fabric, link.device, &link.client, &link.server), 0);
	return link;
}

static void shut(struct stream **stream)
{
	(*stream)->ops->close(*stream);
	*stream = NULL;
}

static void close_link(struct link *link)
{
	if (link->client)
		shut(&link->client);
	if (link->server)
		shut(&link->server);
	verbs_sim.close(link->device);
	sim_fabric_destroy(&link->fabric);
}

static ssize_t give(struct stream *stream, const void *bytes, size_t length)
{
	return stream->ops->send(stream, bytes, length, NULL, 0);
}

static ssize_t take(struct stream *stream, void *bytes, size_t capacity)
{
	return stream->ops->receive(stream, bytes, capacity, NULL, NULL, 0);
}

static void run_on(struct link *link)
{
	while (sim_fabric_next_ns(link->fabric) != UINT64_MAX)
		sim_fabric_step(link->fabric, sim_fabric_next_ns(link->fabric), 1);
}

static void bytes_come_in_order_and_in_chunks(void **state)
{
	enum { TOTAL = 500000 };
	uint8_t *bytes = malloc(TOTAL), *got = malloc(TOTAL);

	(void)state;
	for (uint64_t i = 0; i < TOTAL; i++)
		bytes[i] = (uint8_t)random_mix(i);
	for (uint64_t seed = 0; seed < 8; seed++) {
		struct link link = open_link(seed, 1 + (uint32_t)seed * 3000);
		size_t sent = 0, received = 0;

		while (received < TOTAL) {
			ssize_t count = 0;

			if (sent < TOTAL)
				count = give(link.client, bytes + sent, TOTAL - sent);
			assert_true(count >= 0 || count == -EAGAIN);
			sent += count > 0 ? (size_t)count : 0;
			run_on(&link);
			count = take(link.server, got + received, TOTAL - received);
			assert_true(count > 0 && count <= 1 + (ssize_t)seed * 3000);
			received += (size_t)count;
		}
		assert_memory_equal(bytes, got, TOTAL);
		assert_int_equal(take(link.server, got, 1), -EAGAIN);
		close_link(&link);
	}
	free(bytes);
	free(got);
}

static void nothing_arrives_before_its_time(void **state)
{
	struct link link = open_link(1, 100);
	char bytes[8];

	(void)state;
	assert_int_equal(give(link.server, "hello", 5), 5);
	assert_int_equal(take(link.client, bytes, 8), -EAGAIN);
	sim_fabric_step(link.fabric, 999, 10);
	assert_int_equal(take(link.client, bytes, 8), -EAGAIN);
	sim_fabric_step(link.fabric, 5000, 10);
	assert_true(take(link.client, bytes, 8) > 0);
	close_link(&link);
}

static void a_stream_that_is_full_says_so(void **state)
{
	struct link link = open_link(1, 1u << 20);
	static char bytes[1 << 20];
	ssize_t taken, total = 0;

	(void)state;
	while ((taken = give(link.client, bytes, sizeof(bytes))) > 0)
		total += taken;
	assert_int_equal(taken, -EAGAIN);
	assert_true(total >= 4096 && total < (ssize_t)sizeof(bytes));
	run_on(&link);
	assert_int_equal(take(link.server, bytes, 100), 100);
	assert_int_equal(give(link.client, bytes, sizeof(bytes)), 100);
	close_link(&link);
}

static void the_end_comes_after_the_last_byte(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct link link = open_link(seed, 1000);
		char bytes[8];

		assert_int_equal(give(link.client, "last", 4), 4);
		if (seed % 3 == 0)
			run_on(&link);
		if (seed % 2)
			sim_fabric_kill_device(link.fabric, link.device);
		else
			shut(&link.client);
		run_on(&link);
		for (ssize_t got = 0; got < 4;) {
			ssize_t count = take(link.server, bytes + got, sizeof(bytes) - (size_t)got);

			assert_true(count > 0);
			got += count;
		}
		assert_memory_equal(bytes, "last", 4);
		assert_int_equal(take(link.server, bytes, 8), 0);
		assert_int_equal(give(link.server, "x", 1), -EPIPE);
		if (link.client) {
			assert_int_equal(give(link.client, "x", 1), -EPIPE);
			assert_int_equal(take(link.client, bytes, 8), 0);
		}
		close_link(&link);
	}
}

/* Either end may hang on a device; one that was closed, not killed, ends nothing. */
static void an_owner_ends_its_end_alone(void **state)
{
	struct link link = open_link(1, 100);
	struct verbs_open open = { .fabric = link.fabric };
	struct verbs_device *owner;
	char byte;

	(void)state;
	assert_int_equal(verbs_sim.open(&open, &owner), 0);
	sim_stream_own(link.client, NULL);
	sim_stream_own(link.server, owner);
	verbs_sim.close(owner);
	/* Perhaps at the same place in memory. */
	assert_int_equal(verbs_sim.open(&open, &owner), 0);
	sim_fabric_kill_device(link.fabric, owner);
	sim_fabric_kill_device(link.fabric, link.device);
	run_on(&link);
	assert_int_equal(take(link.client, &byte, 1), -EAGAIN);
	verbs_sim.close(owner);
	assert_int_equal(verbs_sim.open(&open, &owner), 0);
	sim_stream_own(link.server, owner);
	sim_fabric_kill_device(link.fabric, owner);
	run_on(&link);
	assert_int_equal(take(link.client, &byte, 1), 0);
	assert_int_equal(give(link.server, "x", 1), -EPIPE);
	verbs_sim.close(owner);
	close_link(&link);
}

static void an_end_that_closes_with_bytes_on_their_way_is_gone(void **state)
{
	struct link link = open_link(1, 1000);

	(void)state;
	assert_int_equal(give(link.client, "lost", 4), 4);
	shut(&link.server);
	/* The news is still under way: these bytes go nowhere. */
	assert_int_equal(give(link.client, "lost", 4), 4);
	run_on(&link);
	assert_int_equal(give(link.client, "lost", 4), -EPIPE);
	close_link(&link);
}

static void descriptors_are_duplicated_and_come_with_their_byte(void **state)
{
	struct link link = open_link(1, 2);
	int ends[2], fds[4];
	unsigned count = 0;
	char bytes[16];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_true(link.client->carries_fds);
	assert_int_equal(link.client->ops->send(link.client, "ab", 2, NULL, 0), 2);
	assert_int_equal(link.client->ops->send(link.client, "cd", 2, &ends[1], 1), 2);
	close(ends[1]);
	run_on(&link);
	for (size_t got = 0; got < 2;)
		got += (size_t)link.server->ops->receive(link.server, bytes, 2 - got, fds, &count, 4);
	assert_int_equal(count, 0);
	assert_true(link.server->ops->receive(link.server, bytes, 16, fds, &count, 4) > 0);
	assert_int_equal(count, 1);
	assert_int_equal(write(fds[0], "!", 1), 1);
	assert_int_equal(read(ends[0], bytes, 1), 1);
	close(fds[0]);
	close(ends[0]);
	close_link(&link);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) != -1;
}

static void descriptors_that_nobody_takes_are_closed(void **state)
{
	struct link link = open_link(1, 100);
	int ends[2], probe;
	char bytes[4];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(link.client->ops->send(link.client, "a", 1, &ends[1], 1), 1);
	run_on(&link);
	assert_int_equal(take(link.server, bytes, 4), 1);
	assert_int_equal(link.client->ops->send(link.client, "a", 1, ends, 2), 1);
	assert_int_equal(link.client->ops->send(link.client, "a", 1, (int[]){ -1 }, 1), -EBADF);
	close(ends[1]);
	close_link(&link);
	/* No duplicate of the writing end is left: the reading end sees the end of the pipe. */
	assert_int_equal(read(ends[0], bytes, 1), 0);
	close(ends[0]);
	probe = dup(0);
	if (probe >= 0)
		close(probe);
	assert_false(is_open(ends[0]));
}

static void bad_calls_are_refused(void **state)
{
	struct link link = open_link(1, 100);
	int fds[STREAM_FDS_MAX + 1] = { 0 };
	char byte;

	(void)state;
	assert_int_equal(give(link.client, "", 0), -EINVAL);
	assert_int_equal(take(link.client, &byte, 0), -EINVAL);
	assert_int_equal(link.client->ops->send(link.client, "a", 1, fds, STREAM_FDS_MAX + 1), -EINVAL);
	link.client->carries_fds = false;
	assert_int_equal(link.client->ops->send(link.client, "a", 1, fds, 1), -EOPNOTSUPP);
	assert_int_equal(link.client->ops->event_fd(link.client), -1);
	close_link(&link);
}

static void streams_left_open_go_with_the_fabric(void **state)
{
	struct link link = open_link(1, 100);

	(void)state;
	assert_int_equal(give(link.client, "abc", 3), 3);
	verbs_sim.close(link.device);
	sim_fabric_destroy(&link.fabric);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_come_in_order_and_in_chunks),
		cmocka_unit_test(nothing_arrives_before_its_time),
		cmocka_unit_test(a_stream_that_is_full_says_so),
		cmocka_unit_test(the_end_comes_after_the_last_byte),
		cmocka_unit_test(an_owner_ends_its_end_alone),
		cmocka_unit_test(an_end_that_closes_with_bytes_on_their_way_is_gone),
		cmocka_unit_test(descriptors_are_duplicated_and_come_with_their_byte),
		cmocka_unit_test(descriptors_that_nobody_takes_are_closed),
		cmocka_unit_test(bad_calls_are_refused),
		cmocka_unit_test(streams_left_open_go_with_the_fabric),
	};

	return cmocka_run_group_tests_name("control streams of the simulated fabric", tests, NULL, NULL);
}
