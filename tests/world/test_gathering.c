/* test_gathering.c - client and server with several requests, and replies, in a message: all the way, and back. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "client/client_private.h"
#include "protocol/status.h"
#include "worker/worker.h"
#include "world/slice.h"

#define CHUNKS 10u

static struct slice slice;
static struct slice_request requests[CHUNKS];
static struct slice_client *const first = &slice.clients[0], *const second = &slice.clients[1];

static uint64_t gathered(void)
{
	return kvr_load_relaxed(&worker_counters(server_worker(slice.server, 0))->requests_gathered_total);
}

static uint64_t replies_gathered(void)
{
	return kvr_load_relaxed(&worker_counters(server_worker(slice.server, 0))->replies_gathered_total);
}

/* A request for each chunk of the session, submitted while the others are held. */
static void submit_all(struct slice_client *client, struct kvr_session *session, bool store, uint32_t first_block)
{
	client_hold(client->client);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		uint32_t block = first_block + i * SLICE_BLOCKS_PER_CHUNK;

		if (store)
			slice_submit_store(client, session, i, 1, block, 1 + i, &requests[i]);
		else
			slice_submit_retrieve(client, session, i, 1, block, &requests[i]);
		if (i % 3 == 2)
			slice_run(&slice, 5);
	}
	client_release(client->client);
}

static void finish_all(struct slice_client *client, uint8_t outcome)
{
	for (uint32_t i = 0; i < CHUNKS; i++) {
		assert_int_equal(slice_finish(client, &requests[i]), 0);
		slice_outcomes_are(&requests[i], outcome);
		if (outcome == KVR_DELIVERED)
			assert_true(slice_delivered(client, &requests[i], 0, 1 + i));
	}
}

static void many_small_requests_share_messages_both_ways_and_move_every_byte(void **state)
{
	struct kvr_session *session;

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		uint64_t before;

		slice_start(&slice, seed, NULL, 1u << 20);
		slice_join(&slice, 0, "model", 1, 0);
		session = slice_session(first, "request", NULL, 1, CHUNKS);
		assert_int_equal(slice_ping(first), 0);
		before = gathered();
		submit_all(first, session, true, 0);
		finish_all(first, KVR_STORED);
		submit_all(first, session, false, 100);
		finish_all(first, KVR_DELIVERED);
		assert_int_equal(gathered() - before, 2 * (CHUNKS - 1));
		assert_true(replies_gathered() > 0);
		slice_forget(&session);
		slice_stop(&slice);
	}
}

/* Old clients: the server never puts two replies into a message that they would take for one. */
static void a_client_that_does_not_ask_for_it_gets_none_of_it(void **state)
{
	struct kvr_session *session;

	(void)state;
	slice_start(&slice, 7, NULL, 1u << 20);
	slice.plain = true;
	slice_join(&slice, 0, "model", 1, 0);
	assert_false(first->client->gathers);
	assert_int_equal(first->client->server.features & FEATURE_SEVERAL_MESSAGES, 0);
	session = slice_session(first, "request", NULL, 1, CHUNKS);
	submit_all(first, session, true, 0);
	finish_all(first, KVR_STORED);
	submit_all(first, session, false, 100);
	finish_all(first, KVR_DELIVERED);
	assert_int_equal(gathered(), 0);
	assert_int_equal(replies_gathered(), 0);
	slice.plain = false;
	slice_join(&slice, 1, "model", 1, 0);
	assert_true(second->client->gathers);
	slice_forget(&session);
	slice_stop(&slice);
}

/* Each of them is answered with UNKNOWN_SESSION and sent again by itself, also the one whose buffer all had travelled in. */
static void a_message_of_requests_whose_session_was_ended_is_sent_again_one_by_one(void **state)
{
	struct kvr_session *session, *other;

	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		slice_start(&slice, 100 + seed, NULL, 1u << 20);
		slice_join(&slice, 0, "model", 1, 0);
		slice_join(&slice, 1, "model", 1, 0);
		session = slice_session(first, "request", NULL, 1, CHUNKS);
		other = slice_session(second, "request", NULL, 1, CHUNKS);
		submit_all(first, session, true, 0);
		finish_all(first, KVR_STORED);
		assert_int_equal(slice_end(second, other), 0);
		submit_all(first, session, false, 100);
		finish_all(first, KVR_DELIVERED);
		slice_forget(&session);
		slice_forget(&other);
		slice_stop(&slice);
	}
}

static void all_of_a_message_end_when_the_server_dies(void **state)
{
	struct kvr_session *session;

	(void)state;
	for (uint64_t turns = 0; turns < 40; turns += 2) {
		slice_start(&slice, 200 + turns, NULL, 1u << 20);
		slice_join(&slice, 0, "model", 1, 0);
		session = slice_session(first, "request", NULL, 1, CHUNKS);
		submit_all(first, session, true, 0);
		finish_all(first, KVR_STORED);
		submit_all(first, session, false, 100);
		slice_run(&slice, (unsigned)turns);
		slice_server_kill(&slice);
		for (uint32_t i = 0; i < CHUNKS; i++) {
			int error = slice_finish(first, &requests[i]);

			assert_true(error == -ECONNRESET || error == 0);
			if (!error)
				assert_true(slice_delivered(first, &requests[i], 0, 1 + i));
		}
		slice_server_begin(&slice);
		slice_await_ready(first);
		slice_forget(&session);
		slice_stop(&slice);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_small_requests_share_messages_both_ways_and_move_every_byte),
		cmocka_unit_test(a_client_that_does_not_ask_for_it_gets_none_of_it),
		cmocka_unit_test(a_message_of_requests_whose_session_was_ended_is_sent_again_one_by_one),
		cmocka_unit_test(all_of_a_message_end_when_the_server_dies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
