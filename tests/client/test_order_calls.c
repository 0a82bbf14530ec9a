/* kvrail.h's layers and marks against a server of its own, over shared memory; streams without CUDA are refused. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "client/house.h"

#define CHUNKS 6u
#define BLOCKS (CHUNKS * HOUSE_BLOCKS_PER_CHUNK)
#define PATIENCE (20 * KVR_SECOND)

static struct house house;
static struct kvr_client *client;
static struct kvr_session *session;
static uint8_t *pool;
static uint32_t ids[BLOCKS];
static uint8_t outcomes[CHUNKS];
static struct kvr_blocks blocks;

static int begin(void **state)
{
	uint32_t registration;
	void *memory;

	(void)state;
	house_open(&house);
	client = house_client(&house, "in step");
	assert_int_equal(kvr_alloc(client, HOUSE_POOL_BYTES, &memory), 0);
	pool = memory;
	registration = house_register(client, pool);
	session = house_session(client, registration, "request", 5, CHUNKS);
	return 0;
}

static int end(void **state)
{
	(void)state;
	kvr_end(session, 0);
	kvr_session_destroy(&session);
	kvr_close(&client);
	house_close(&house);
	return 0;
}

static bool plane_holds(uint32_t plane, uint32_t block, uint32_t salt, uint32_t position)
{
	static uint8_t expected[HOUSE_POOL_BYTES];
	size_t at = (size_t)plane * HOUSE_BLOCKS * HOUSE_BLOCK_BYTES;

	house_fill(expected, 0, salt, position);
	return memcmp(pool + at + (size_t)block * HOUSE_BLOCK_BYTES, expected + at, HOUSE_BLOCK_BYTES) == 0;
}

static void store(void)
{
	struct kvr_transfer transfer = house_transfer(&blocks, ids, 0, CHUNKS, outcomes);

	for (uint32_t i = 0; i < BLOCKS; i++)
		house_fill(pool, ids[i], 9, i);
	assert_int_equal(kvr_store(session, &transfer, 0, NULL), 0);
}

static void each_layer_can_be_waited_for(void **state)
{
	struct kvr_transfer transfer;
	struct kvr_result result;
	kvr_ticket ticket;

	(void)state;
	store();
	memset(pool, 0xee, HOUSE_POOL_BYTES);
	transfer = house_transfer(&blocks, ids, 60, CHUNKS, outcomes);
	transfer.layers = HOUSE_PLANES;
	assert_int_equal(kvr_submit_retrieve(session, &transfer, &ticket), 0);
	for (uint32_t layer = 0; layer < HOUSE_PLANES; layer++) {
		assert_int_equal(kvr_wait_layer(client, ticket, layer, PATIENCE), 0);
		for (uint32_t i = 0; i < BLOCKS; i++)
			assert_true(plane_holds(layer, ids[i], 9, i));
	}
	assert_int_equal(kvr_wait_layer(client, ticket, HOUSE_PLANES, 0), -ERANGE);
	assert_int_equal(kvr_wait(client, ticket, PATIENCE, &result), 0);
	assert_int_equal(result.chunks, CHUNKS);
	assert_int_equal(kvr_wait_layer(client, ticket, 0, 0), -ENOENT);
}

static void a_store_waits_for_its_mark(void **state)
{
	struct kvr_transfer transfer = house_transfer(&blocks, ids, 0, CHUNKS, outcomes);
	struct kvr_result result;
	kvr_ticket ticket;

	(void)state;
	memset(pool, 0xee, HOUSE_POOL_BYTES);
	assert_int_equal(kvr_mark_new(client, &transfer.after), 0);
	assert_int_equal(kvr_submit_store(session, &transfer, &ticket), 0);
	assert_int_equal(kvr_wait(client, ticket, 10 * KVR_MS, &result), -ETIMEDOUT);
	for (uint32_t i = 0; i < BLOCKS; i++)
		house_fill(pool, ids[i], 9, i);
	assert_int_equal(kvr_mark_reach(client, transfer.after), 0);
	assert_int_equal(kvr_wait(client, ticket, PATIENCE, &result), 0);
	transfer = house_transfer(&blocks, ids, 60, CHUNKS, outcomes);
	assert_int_equal(kvr_retrieve(session, &transfer, 0, NULL), 0);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_true(house_holds(pool, ids[i], 9, i));
}

static void a_call_that_waits_in_vain_gives_its_blocks_back(void **state)
{
	struct kvr_transfer transfer;
	struct kvr_result result;
	kvr_ticket ticket;

	(void)state;
	store();
	memset(pool, 0xee, HOUSE_POOL_BYTES);
	transfer = house_transfer(&blocks, ids, 60, CHUNKS, outcomes);
	transfer.layers = 1;
	assert_int_equal(kvr_mark_new(client, &transfer.after), 0);
	assert_int_equal(kvr_retrieve(session, &transfer, 10 * KVR_MS, &result), -ETIMEDOUT);
	assert_int_equal(kvr_submit_retrieve(session, &transfer, &ticket), 0);
	assert_int_equal(kvr_wait_layer(client, ticket, 0, 10 * KVR_MS), -ETIMEDOUT);
	assert_int_equal(kvr_cancel(client, ticket), 0);
	/* Whoever waits is let through, and told. */
	assert_int_equal(kvr_wait_layer(client, ticket, 0, PATIENCE), -ECANCELED);
	assert_int_equal(kvr_wait(client, ticket, PATIENCE, &result), -ECANCELED);
	for (size_t i = 0; i < HOUSE_POOL_BYTES; i++)
		assert_int_equal(pool[i], 0xee);
}

static void streams_without_cuda_are_refused_with_words(void **state)
{
	struct kvr_transfer transfer;
	struct kvr_result result;
	kvr_ticket ticket;
	kvr_mark mark;

	(void)state;
	store();
	transfer = house_transfer(&blocks, ids, 60, CHUNKS, outcomes);
	transfer.layers = 2;
	assert_int_equal(kvr_mark_new(client, &mark), 0);
	transfer.after = mark;
	assert_int_equal(kvr_stream_mark(client, mark, NULL), -EOPNOTSUPP);
	assert_non_null(strstr(kvr_error_text(), "CUDA"));
	assert_int_equal(kvr_submit_retrieve(session, &transfer, &ticket), 0);
	assert_int_equal(kvr_stream_wait_layer(client, ticket, 0, NULL), -EOPNOTSUPP);
	assert_int_equal(kvr_mark_reach(client, mark), 0);
	assert_int_equal(kvr_wait_layer(client, ticket, 1, PATIENCE), 0);
	assert_int_equal(kvr_stream_wait_layer(client, ticket, 1, NULL), 0); /* nothing is left to wait for */
	assert_int_equal(kvr_wait(client, ticket, PATIENCE, &result), 0);
	assert_int_equal(kvr_stream_mark(client, 0, NULL), -EINVAL);
	assert_int_equal(kvr_mark_reach(client, 0), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_layer_can_be_waited_for, begin, end),
		cmocka_unit_test_setup_teardown(a_store_waits_for_its_mark, begin, end),
		cmocka_unit_test_setup_teardown(a_call_that_waits_in_vain_gives_its_blocks_back, begin, end),
		cmocka_unit_test_setup_teardown(streams_without_cuda_are_refused_with_words, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
