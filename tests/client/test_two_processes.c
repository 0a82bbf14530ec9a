/* test_two_processes.c - the client as users link it, against a server in another process over the local driver. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cmocka_all.h"
#include "client/house.h"

#define CHUNKS 6
#define BLOCKS (CHUNKS * HOUSE_BLOCKS_PER_CHUNK)

static void store_all(struct kvr_session *session, uint8_t *pool, uint32_t first_block, uint32_t salt)
{
	uint32_t ids[BLOCKS];
	uint8_t outcomes[CHUNKS];
	struct kvr_blocks blocks;
	struct kvr_result result;
	struct kvr_transfer transfer = house_transfer(&blocks, ids, first_block, CHUNKS, outcomes);

	for (uint32_t i = 0; i < BLOCKS; i++)
		house_fill(pool, ids[i], salt, i);
	if (kvr_store(session, &transfer, 0, &result))
		fail_msg("kvr_store: %s", result.text);
	assert_int_equal(result.chunks, CHUNKS);
}

static void retrieve_all(struct kvr_session *session, uint8_t *pool, uint32_t first_block, uint32_t salt)
{
	uint32_t ids[BLOCKS];
	uint8_t outcomes[CHUNKS];
	struct kvr_blocks blocks;
	struct kvr_result result;
	struct kvr_transfer transfer = house_transfer(&blocks, ids, first_block, CHUNKS, outcomes);

	memset(pool, 0xee, HOUSE_POOL_BYTES);
	if (kvr_retrieve(session, &transfer, 0, &result))
		fail_msg("kvr_retrieve: %s", result.text);
	for (uint32_t c = 0; c < CHUNKS; c++)
		assert_int_equal(outcomes[c], KVR_DELIVERED);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_true(house_holds(pool, ids[i], salt, i));
}

static void round_trip(struct kvr_client *client, uint8_t *pool)
{
	struct kvr_session *first, *second;
	struct kvr_result result;
	uint32_t registration = house_register(client, pool);

	first = house_session(client, registration, "first", 1, CHUNKS);
	second = house_session(client, registration, "second", 1, CHUNKS);
	assert_int_equal(kvr_lookup(first, 0, &result), 0);
	assert_int_equal(result.chunks, 0);
	store_all(first, pool, 3, 1);
	assert_int_equal(kvr_lookup(second, 0, &result), 0);
	assert_int_equal(result.chunks, CHUNKS);
	assert_int_equal(result.tokens, CHUNKS * HOUSE_CHUNK_TOKENS);
	retrieve_all(second, pool, 70, 1);
	assert_int_equal(kvr_free_locks(second, 0, CHUNKS, 0, 0, &result), -ENOLCK); /* the retrieve took them */
	assert_int_equal(kvr_end(first, 0), 0);
	assert_int_equal(kvr_end(second, 0), 0);
	assert_int_equal(kvr_end(second, 0), 0);
	assert_int_equal(kvr_session_destroy(&first), 0);
	assert_int_equal(kvr_session_destroy(&second), 0);
	assert_int_equal(kvr_unregister(client, registration), 0);
}

static void shared_memory_comes_back_byte_for_byte(void **state)
{
	struct house house;
	struct kvr_client *client;
	void *pool;

	(void)state;
	house_open(&house);
	client = house_client(&house, "shared");
	assert_int_equal(kvr_alloc(client, HOUSE_POOL_BYTES, &pool), 0);
	round_trip(client, pool);
	assert_int_equal(kvr_free(client, pool), 0);
	kvr_close(&client);
	house_close(&house);
}

static void ordinary_memory_comes_back_byte_for_byte(void **state)
{
	struct house house;
	struct kvr_client *client;
	uint8_t *pool = aligned_alloc(4096, HOUSE_POOL_BYTES);

	(void)state;
	assert_non_null(pool);
	house_open(&house);
	client = house_client(&house, "ordinary");
	round_trip(client, pool);
	kvr_close(&client);
	house_close(&house);
	free(pool);
}

static void wait_healthy(struct kvr_client *client)
{
	struct timespec pause = { 0, 10000000 };

	for (unsigned turn = 0; turn < 1000; turn++) {
		if (kvr_ping(client, 0) == 0)
			return;
		nanosleep(&pause, NULL);
	}
	fail_msg("the client did not come back: %s", kvr_error_text());
}

/* pitfalls G01: a server that comes back is a miss and a new registration, not an error for ever. */
static void a_restarted_server_is_found_again_by_the_client_itself(void **state)
{
	struct kvr_session *session, *again;
	struct kvr_info before, after;
	struct kvr_result result;
	struct kvr_client *client;
	struct house house;
	uint32_t registration;
	void *pool;

	(void)state;
	house_open(&house);
	client = house_client(&house, "survivor");
	assert_int_equal(kvr_alloc(client, HOUSE_POOL_BYTES, &pool), 0);
	registration = house_register(client, pool);
	session = house_session(client, registration, "before", 7, CHUNKS);
	store_all(session, pool, 0, 7);
	assert_int_equal(kvr_get_info(client, &before), 0);
	house_kill_server(&house);
	assert_int_equal(kvr_lookup(session, 0, &result), -ECONNRESET);
	assert_true(result.text[0] != '\0');
	house_start_server(&house);
	wait_healthy(client);
	assert_int_equal(kvr_get_info(client, &after), 0);
	assert_true(after.boot_id != before.boot_id);
	assert_int_equal(after.reconnects, 1);
	again = house_session(client, registration, "after", 7, CHUNKS);
	assert_int_equal(kvr_lookup(again, 0, &result), 0);
	assert_int_equal(result.chunks, 0);
	store_all(session, pool, 0, 7);
	assert_int_equal(kvr_lookup(again, 0, &result), 0);
	assert_int_equal(result.chunks, CHUNKS);
	retrieve_all(again, pool, 50, 7);
	assert_int_equal(kvr_end(again, 0), 0);
	assert_int_equal(kvr_session_destroy(&again), 0);
	assert_int_equal(kvr_session_destroy(&session), 0);
	kvr_close(&client);
	house_close(&house);
}

/* A client that stores for ever until it is killed, from the driver's memory or its own. */
static void store_until_killed(const struct house *house, int ready, bool ordinary)
{
	struct kvr_client *client = house_client(house, "victim");
	void *pool = ordinary ? aligned_alloc(4096, HOUSE_POOL_BYTES) : NULL;
	uint32_t registration;

	if (!pool && kvr_alloc(client, HOUSE_POOL_BYTES, &pool))
		_exit(1);
	registration = house_register(client, pool);
	for (uint32_t salt = 100;; salt++) {
		struct kvr_session *session;
		char id[32];

		snprintf(id, sizeof(id), "victim %d %u", (int)getpid(), salt);
		session = house_session(client, registration, id, salt, CHUNKS);
		store_all(session, pool, 0, salt);
		if (write(ready, "x", 1) != 1)
			_exit(1);
		kvr_end(session, 0);
		kvr_session_destroy(&session);
	}
}

/* pitfalls B07: nothing of the dead leaks (house_close checks that the server was left empty), and others do not notice. */
static void clients_killed_in_the_middle_leave_nothing_behind(void **state)
{
	struct kvr_session *session;
	struct kvr_client *client;
	struct house house;
	uint32_t registration;
	void *pool;

	(void)state;
	house_open(&house);
	client = house_client(&house, "bystander");
	assert_int_equal(kvr_alloc(client, HOUSE_POOL_BYTES, &pool), 0);
	registration = house_register(client, pool);
	session = house_session(client, registration, "bystander", 9, CHUNKS);
	store_all(session, pool, 0, 9);
	for (unsigned round = 0; round < 8; round++) {
		int ready[2], status;
		char byte;
		pid_t victim;

		assert_int_equal(pipe(ready), 0);
		victim = fork();
		assert_true(victim >= 0);
		if (victim == 0)
			store_until_killed(&house, ready[1], round % 2 == 1);
		for (unsigned stores = 0; stores < round + 1; stores++)
			assert_int_equal(read(ready[0], &byte, 1), 1);
		assert_int_equal(kill(victim, SIGKILL), 0);
		assert_int_equal(waitpid(victim, &status, 0), victim);
		close(ready[0]);
		close(ready[1]);
		retrieve_all(session, pool, round, 9);
	}
	assert_int_equal(kvr_end(session, 0), 0);
	assert_int_equal(kvr_session_destroy(&session), 0);
	kvr_close(&client);
	house_close(&house);
}

static void a_child_of_fork_is_refused(void **state)
{
	struct kvr_client *client;
	struct house house;
	pid_t child;
	int status;

	(void)state;
	house_open(&house);
	client = house_client(&house, "parent");
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		int error = kvr_ping(client, 0);

		kvr_close(&client);
		_exit(error == -ECHILD && client == NULL ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(kvr_ping(client, 0), 0); /* the parent's connection did not suffer */
	kvr_close(&client);
	house_close(&house);
}

static void what_is_not_there_is_a_clear_error(void **state)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct kvr_client *client = NULL;

	(void)state;
	options.url = "unix:/nonexistent/kvrail.sock";
	assert_int_equal(kvr_open(&options, &client), -ENOENT);
	assert_non_null(strstr(kvr_error_text(), "/nonexistent/kvrail.sock"));
	options.url = "http://somewhere";
	assert_int_equal(kvr_open(&options, &client), -EINVAL);
	assert_non_null(strstr(kvr_error_text(), "http://somewhere"));
	options.url = "unix:/nonexistent/kvrail.sock";
	options.driver = "warp";
	assert_int_equal(kvr_open(&options, &client), -ENODEV);
	assert_non_null(strstr(kvr_error_text(), "warp"));
	assert_null(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shared_memory_comes_back_byte_for_byte),
		cmocka_unit_test(ordinary_memory_comes_back_byte_for_byte),
		cmocka_unit_test(a_restarted_server_is_found_again_by_the_client_itself),
		cmocka_unit_test(clients_killed_in_the_middle_leave_nothing_behind),
		cmocka_unit_test(a_child_of_fork_is_refused),
		cmocka_unit_test(what_is_not_there_is_a_clear_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
