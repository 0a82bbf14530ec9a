/* test_client_threads.c - several threads on one client: different tickets, one lost connection, an event loop beside them. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "client/house.h"

#define THREADS 4
#define CHUNKS 4
#define BLOCKS (CHUNKS * HOUSE_BLOCKS_PER_CHUNK)
#define ROUNDS 10

struct crew {
	struct house house;
	struct kvr_client *client;
	uint8_t *pool;
	uint32_t registration;
	pthread_barrier_t barrier;
};

struct hand {
	struct crew *crew;
	unsigned number;
	unsigned failures;
	pthread_t thread;
};

static void crew_open(struct crew *crew)
{
	void *pool;

	memset(crew, 0, sizeof(*crew));
	house_open(&crew->house);
	crew->client = house_client(&crew->house, "crew");
	assert_int_equal(kvr_alloc(crew->client, HOUSE_POOL_BYTES, &pool), 0);
	crew->pool = pool;
	crew->registration = house_register(crew->client, pool);
	assert_int_equal(pthread_barrier_init(&crew->barrier, NULL, THREADS + 1), 0);
}

static void crew_close(struct crew *crew)
{
	pthread_barrier_destroy(&crew->barrier);
	kvr_close(&crew->client);
	house_close(&crew->house);
}

static void crew_begin(struct crew *crew, struct hand *hands, void *(*work)(void *hand))
{
	for (unsigned i = 0; i < THREADS; i++) {
		hands[i].crew = crew;
		hands[i].number = i;
		hands[i].failures = 0;
		assert_int_equal(pthread_create(&hands[i].thread, NULL, work, &hands[i]), 0);
	}
}

static void crew_end(struct hand *hands)
{
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(hands[i].thread, NULL), 0);
		assert_int_equal(hands[i].failures, 0);
	}
}

/* Stores and retrieves chunks of its own, in blocks of its own. Threads must not assert: failures are counted. */
static unsigned hand_round(struct hand *hand, unsigned round)
{
	struct crew *crew = hand->crew;
	uint32_t salt = 1000 * (hand->number + 1) + round, first = hand->number * BLOCKS, ids[BLOCKS];
	uint32_t tokens[CHUNKS * HOUSE_CHUNK_TOKENS];
	struct kvr_session *session;
	struct kvr_blocks blocks;
	struct kvr_transfer transfer;
	struct kvr_result result;
	unsigned failures = 0;
	kvr_ticket ping, store;
	char id[32];

	for (uint32_t i = 0; i < CHUNKS * HOUSE_CHUNK_TOKENS; i++)
		tokens[i] = salt * 100000 + i;
	snprintf(id, sizeof(id), "thread %u", hand->number);
	if (kvr_session_create(crew->client, crew->registration, id, NULL, &session))
		return 1;
	failures += kvr_session_tokens(session, tokens, CHUNKS * HOUSE_CHUNK_TOKENS) != 0;
	failures += kvr_session_chunks(session) != CHUNKS;
	transfer = house_transfer(&blocks, ids, first, CHUNKS, NULL);
	for (uint32_t i = 0; i < BLOCKS; i++)
		house_fill(crew->pool, ids[i], salt, i);
	failures += kvr_submit_store(session, &transfer, &store) != 0;
	failures += kvr_submit_ping(crew->client, &ping) != 0;
	failures += kvr_wait(crew->client, ping, 60 * KVR_SECOND, &result) != 0;
	failures += kvr_wait(crew->client, store, 60 * KVR_SECOND, &result) != 0;
	for (uint32_t i = 0; i < BLOCKS; i++)
		house_fill(crew->pool, ids[i], salt + 1, i);
	failures += kvr_lookup(session, 60 * KVR_SECOND, &result) != 0 || result.chunks != CHUNKS;
	failures += kvr_retrieve(session, &transfer, 60 * KVR_SECOND, &result) != 0;
	for (uint32_t i = 0; i < BLOCKS; i++)
		failures += !house_holds(crew->pool, ids[i], salt, i);
	failures += kvr_end(session, 60 * KVR_SECOND) != 0;
	failures += kvr_session_destroy(&session) != 0;
	return failures;
}

static void *hand_transfers(void *context)
{
	struct hand *hand = context;

	pthread_barrier_wait(&hand->crew->barrier);
	for (unsigned round = 0; round < ROUNDS; round++)
		hand->failures += hand_round(hand, round);
	return NULL;
}

static void threads_wait_for_tickets_of_their_own(void **state)
{
	struct hand hands[THREADS];
	struct crew crew;

	(void)state;
	crew_open(&crew);
	crew_begin(&crew, hands, hand_transfers);
	pthread_barrier_wait(&crew.barrier);
	crew_end(hands);
	crew_close(&crew);
}

static void an_event_loop_runs_beside_threads_that_wait(void **state)
{
	struct hand hands[THREADS];
	struct kvr_result result;
	struct crew crew;
	int fd;

	(void)state;
	crew_open(&crew);
	fd = kvr_event_fd(crew.client);
	assert_true(fd >= 0);
	crew_begin(&crew, hands, hand_transfers);
	pthread_barrier_wait(&crew.barrier);
	for (unsigned i = 0; i < 50; i++) {
		kvr_ticket ticket;
		int error;

		assert_int_equal(kvr_submit_ping(crew.client, &ticket), 0);
		while ((error = kvr_poll(crew.client, ticket, &result)) == -EAGAIN) {
			struct pollfd event = { fd, POLLIN, 0 };

			assert_int_equal(poll(&event, 1, 60000), 1);
		}
		assert_int_equal(error, 0);
	}
	crew_end(hands);
	crew_close(&crew);
}

/* pitfalls C07: everybody notices the loss at once, and there is one new connection. */
static void *hand_survives(void *context)
{
	struct hand *hand = context;
	struct kvr_client *client = hand->crew->client;
	struct timespec pause = { 0, 2000000 };
	int error;

	hand->failures += kvr_ping(client, 0) != 0;
	pthread_barrier_wait(&hand->crew->barrier);
	pthread_barrier_wait(&hand->crew->barrier); /* the server was killed */
	error = kvr_ping(client, 60 * KVR_SECOND);
	hand->failures += error != -ECONNRESET && error != 0;
	while ((error = kvr_ping(client, 60 * KVR_SECOND)) == -ECONNRESET)
		nanosleep(&pause, NULL);
	hand->failures += error != 0;
	return NULL;
}

static void threads_that_notice_a_loss_together_come_back_on_one_connection(void **state)
{
	struct hand hands[THREADS];
	struct kvr_info info;
	struct crew crew;

	(void)state;
	crew_open(&crew);
	house_prepare_server(&crew.house);
	crew_begin(&crew, hands, hand_survives);
	pthread_barrier_wait(&crew.barrier);
	house_kill_server(&crew.house);
	house_start_server(&crew.house);
	pthread_barrier_wait(&crew.barrier);
	crew_end(hands);
	assert_int_equal(kvr_get_info(crew.client, &info), 0);
	assert_int_equal(info.reconnects, 1);
	assert_int_equal(hand_round(&hands[0], 0), 0); /* registrations are back as well */
	crew_close(&crew);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_wait_for_tickets_of_their_own),
		cmocka_unit_test(an_event_loop_runs_beside_threads_that_wait),
		cmocka_unit_test(threads_that_notice_a_loss_together_come_back_on_one_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
