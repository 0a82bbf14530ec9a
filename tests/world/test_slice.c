/* test_slice.c - the main job in one thread: STORE by one client, LOOKUP and RETRIEVE by another, over a fabric that delays and cuts data up. */
#include <stdio.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "world/slice.h"

#define CHUNKS 5
#define BLOCKS (CHUNKS * SLICE_BLOCKS_PER_CHUNK)

static void make_tokens(uint32_t *tokens, uint32_t salt)
{
	for (uint32_t i = 0; i < CHUNKS * SLICE_CHUNK_TOKENS; i++)
		tokens[i] = salt * 1000 + i;
}

static struct kvr_session *open_session(struct slice_client *client, const char *id, uint32_t salt)
{
	uint32_t tokens[CHUNKS * SLICE_CHUNK_TOKENS];
	struct kvr_session *session;

	make_tokens(tokens, salt);
	assert_int_equal(client_session_create(client->client, client->registration, id, NULL, &session), 0);
	assert_int_equal(client_session_tokens(session, tokens, CHUNKS * SLICE_CHUNK_TOKENS), 0);
	return session;
}

static struct kvr_transfer make_transfer(struct kvr_blocks *blocks, uint32_t *ids, uint32_t first_id, uint8_t *outcomes)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;

	for (uint32_t i = 0; i < BLOCKS; i++)
		ids[i] = first_id + (i * 7) % BLOCKS; /* scattered: 7 and BLOCKS have no common factor */
	blocks->ids = ids;
	blocks->count = BLOCKS;
	transfer.chunk_count = CHUNKS;
	transfer.group_count = 1;
	transfer.groups = blocks;
	transfer.outcomes = outcomes;
	return transfer;
}

static void store_lookup_retrieve(uint64_t seed, const struct sim_options *options)
{
	struct slice slice;
	struct slice_client *writer = &slice.clients[0], *reader = &slice.clients[1];
	struct kvr_session *store, *load;
	uint32_t ids[BLOCKS];
	uint8_t outcomes[CHUNKS];
	struct kvr_blocks blocks;
	struct kvr_transfer transfer;
	struct kvr_result result;
	kvr_ticket ticket;

	slice_start(&slice, seed, options, 1u << 20);
	slice_join(&slice, 0, "model", 1, 0);
	slice_join(&slice, 1, "model", 1, 0);
	store = open_session(writer, "first", 1);
	transfer = make_transfer(&blocks, ids, 10, outcomes);
	for (uint32_t i = 0; i < BLOCKS; i++)
		slice_fill(writer, ids[i], 1, i);
	assert_int_equal(client_submit_transfer(store, true, &transfer, &ticket), 0);
	assert_int_equal(slice_wait(&slice, writer->client, ticket, &result), 0);
	assert_int_equal(result.chunks, CHUNKS);
	for (unsigned i = 0; i < CHUNKS; i++)
		assert_int_equal(outcomes[i], KVR_STORED);

	load = open_session(reader, "second", 1);
	assert_int_equal(client_submit_lookup(load, 0, &ticket), 0);
	assert_int_equal(slice_wait(&slice, reader->client, ticket, &result), 0);
	assert_int_equal(result.chunks, CHUNKS);
	assert_int_equal(result.tokens, CHUNKS * SLICE_CHUNK_TOKENS);
	transfer = make_transfer(&blocks, ids, 100, outcomes);
	assert_int_equal(client_submit_transfer(load, false, &transfer, &ticket), 0);
	assert_int_equal(slice_wait(&slice, reader->client, ticket, &result), 0);
	for (unsigned i = 0; i < CHUNKS; i++)
		assert_int_equal(outcomes[i], KVR_DELIVERED);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_true(slice_holds(reader, ids[i], 1, i));
	for (uint32_t block = 0; block < SLICE_BLOCKS; block++) {
		if (block < 100 || block >= 100 + BLOCKS)
			assert_true(slice_poisoned(reader, block));
	}
	assert_int_equal(client_submit_end(load, &ticket), 0);
	assert_int_equal(slice_wait(&slice, reader->client, ticket, &result), 0);
	assert_int_equal(client_session_destroy(&load), 0);
	assert_int_equal(client_session_destroy(&store), 0);
	slice_stop(&slice);
}

static void what_one_client_stores_another_retrieves(void **state)
{
	struct sim_options options;

	(void)state;
	sim_options_default(&options);
	for (uint64_t seed = 1; seed <= 20; seed++)
		store_lookup_retrieve(seed, &options);
}

static void data_that_lands_in_many_pieces_is_never_read_early(void **state)
{
	struct sim_options options;

	(void)state;
	sim_options_default(&options);
	options.pieces_max = 16;
	options.delay_max_ns = 200 * KVR_US;
	options.completion_max_ns = 300 * KVR_US;
	for (uint64_t seed = 100; seed <= 120; seed++)
		store_lookup_retrieve(seed, &options);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_one_client_stores_another_retrieves),
		cmocka_unit_test(data_that_lands_in_many_pieces_is_never_read_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
