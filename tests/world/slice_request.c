/* slice_request.c - see slice.h: requests, and the bytes of blocks. */
#include <stdio.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "base/random.h"
#include "world/slice.h"

struct kvr_session *slice_session(
	struct slice_client *client, const char *id, const char *salt, uint32_t document, uint32_t chunks)
{
	uint32_t tokens[SLICE_CHUNKS_MAX * SLICE_CHUNK_TOKENS];
	struct kvr_session *session;

	assert_true(chunks <= SLICE_CHUNKS_MAX);
	for (uint32_t i = 0; i < chunks * SLICE_CHUNK_TOKENS; i++)
		tokens[i] = document * 100000 + i;
	assert_int_equal(client_session_create(client->client, client->registration, id, salt, &session), 0);
	assert_int_equal(client_session_tokens(session, tokens, (size_t)chunks * SLICE_CHUNK_TOKENS), 0);
	return session;
}

void slice_forget(struct kvr_session **session)
{
	assert_int_equal(client_session_destroy(session), 0);
}

static void submit(struct slice_client *client, struct kvr_session *session, bool store, uint32_t first, uint32_t count,
	struct slice_request *request)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks;

	memset(request->outcomes, 0, sizeof(request->outcomes));
	request->count = count;
	blocks.ids = request->ids;
	blocks.count = count * SLICE_BLOCKS_PER_CHUNK;
	transfer.first_chunk = first;
	transfer.chunk_count = count;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	transfer.outcomes = request->outcomes;
	transfer.layers = store ? 0 : client->slice->layers;
	transfer.after = client->slice->after;
	assert_int_equal(client_submit_transfer(session, store, &transfer, &request->ticket), 0);
}

/* Scattered: no two neighbours follow each other, but where there are two only. */
static void choose_blocks(struct slice_request *request, uint32_t count, uint32_t first_block)
{
	uint32_t blocks = count * SLICE_BLOCKS_PER_CHUNK;

	assert_true(first_block + blocks <= SLICE_BLOCKS);
	request->first_block = first_block;
	for (uint32_t i = 0; i < blocks; i++)
		request->ids[i] = first_block + (i % 2 ? blocks / 2 + i / 2 : i / 2);
}

void slice_submit_store(struct slice_client *client, struct kvr_session *session, uint32_t first, uint32_t count,
	uint32_t first_block, uint32_t mark, struct slice_request *request)
{
	choose_blocks(request, count, first_block);
	for (uint32_t i = 0; i < count * SLICE_BLOCKS_PER_CHUNK; i++)
		slice_fill(client, request->ids[i], mark, i);
	submit(client, session, true, first, count, request);
}

void slice_submit_retrieve(struct slice_client *client, struct kvr_session *session, uint32_t first, uint32_t count,
	uint32_t first_block, struct slice_request *request)
{
	choose_blocks(request, count, first_block);
	for (uint32_t i = 0; i < count * SLICE_BLOCKS_PER_CHUNK; i++)
		slice_poison(client, request->ids[i]);
	submit(client, session, false, first, count, request);
}

int slice_finish(struct slice_client *client, struct slice_request *request)
{
	return slice_wait(client->slice, client->client, request->ticket, &request->result);
}

int slice_store(struct slice_client *client, struct kvr_session *session, uint32_t first, uint32_t count,
	uint32_t first_block, uint32_t mark, struct slice_request *request)
{
	slice_submit_store(client, session, first, count, first_block, mark, request);
	return slice_finish(client, request);
}

int slice_retrieve(struct slice_client *client, struct kvr_session *session, uint32_t first, uint32_t count,
	uint32_t first_block, struct slice_request *request)
{
	slice_submit_retrieve(client, session, first, count, first_block, request);
	return slice_finish(client, request);
}

int slice_lookup(struct slice_client *client, struct kvr_session *session, uint32_t flags, struct kvr_result *result)
{
	kvr_ticket ticket;

	assert_int_equal(client_submit_lookup(session, flags, &ticket), 0);
	return slice_wait(client->slice, client->client, ticket, result);
}

uint32_t slice_match(struct slice_client *client, struct kvr_session *session, uint32_t flags)
{
	struct kvr_result result;

	assert_int_equal(slice_lookup(client, session, flags, &result), 0);
	return result.chunks;
}

int slice_free(struct slice_client *client, struct kvr_session *session, uint32_t first, uint32_t count, bool all,
	struct kvr_result *result)
{
	kvr_ticket ticket;

	assert_int_equal(client_submit_free_locks(session, first, count, all, &ticket), 0);
	return slice_wait(client->slice, client->client, ticket, result);
}

int slice_end(struct slice_client *client, struct kvr_session *session)
{
	struct kvr_result result;
	kvr_ticket ticket;

	assert_int_equal(client_submit_end(session, &ticket), 0);
	return slice_wait(client->slice, client->client, ticket, &result);
}

int slice_ping(struct slice_client *client)
{
	struct kvr_result result;
	kvr_ticket ticket;

	assert_int_equal(client_submit_ping(client->client, &ticket), 0);
	return slice_wait(client->slice, client->client, ticket, &result);
}

int slice_clear(struct slice_client *client, struct kvr_result *result)
{
	kvr_ticket ticket;

	assert_int_equal(client_submit_clear(client->client, UINT32_MAX, &ticket), 0);
	return slice_wait(client->slice, client->client, ticket, result);
}

void slice_outcomes_are(const struct slice_request *request, uint8_t outcome)
{
	for (uint32_t c = 0; c < request->count; c++)
		assert_int_equal(request->outcomes[c], outcome);
}

bool slice_delivered(
	const struct slice_client *client, const struct slice_request *request, uint32_t chunk, uint32_t mark)
{
	for (uint32_t i = chunk * SLICE_BLOCKS_PER_CHUNK; i < (chunk + 1) * SLICE_BLOCKS_PER_CHUNK; i++) {
		if (!slice_holds(client, request->ids[i], mark, i))
			return false;
	}
	return true;
}

uint32_t slice_mark_of(
	const struct slice_client *client, const struct slice_request *request, uint32_t chunk, uint32_t limit)
{
	for (uint32_t mark = 0; mark < limit; mark++) {
		if (slice_delivered(client, request, chunk, mark))
			return mark;
	}
	return UINT32_MAX;
}

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

static uint8_t *slice_block(const struct slice_client *client, uint32_t plane, uint32_t block)
{
	return client->pool + ((uint64_t)plane * SLICE_BLOCKS + block) * SLICE_BLOCK_BYTES;
}

static void block_bytes(uint8_t *bytes, uint32_t mark, uint32_t position, uint32_t plane)
{
	uint64_t word = ((uint64_t)mark << 40) ^ ((uint64_t)position << 20) ^ ((uint64_t)plane << 10);

	for (uint32_t at = 0; at < SLICE_BLOCK_BYTES; at += sizeof(word)) {
		uint64_t mixed = random_mix(word ^ (at + 1));

		memcpy(bytes + at, &mixed, sizeof(mixed));
	}
}

void slice_fill(struct slice_client *client, uint32_t block, uint32_t mark, uint32_t position)
{
	for (uint32_t p = 0; p < SLICE_PLANES; p++)
		block_bytes(slice_block(client, p, block), mark, position, p);
}

void slice_poison(struct slice_client *client, uint32_t block)
{
	for (uint32_t p = 0; p < SLICE_PLANES; p++)
		memset(slice_block(client, p, block), 0xee, SLICE_BLOCK_BYTES);
}

bool slice_plane_holds(
	const struct slice_client *client, uint32_t plane, uint32_t block, uint32_t mark, uint32_t position)
{
	uint8_t expected[SLICE_BLOCK_BYTES];

	block_bytes(expected, mark, position, plane);
	return memcmp(slice_block(client, plane, block), expected, SLICE_BLOCK_BYTES) == 0;
}

bool slice_holds(const struct slice_client *client, uint32_t block, uint32_t mark, uint32_t position)
{
	for (uint32_t p = 0; p < SLICE_PLANES; p++) {
		if (!slice_plane_holds(client, p, block, mark, position))
			return false;
	}
	return true;
}

bool slice_poisoned(const struct slice_client *client, uint32_t block)
{
	for (uint32_t p = 0; p < SLICE_PLANES; p++) {
		for (uint32_t i = 0; i < SLICE_BLOCK_BYTES; i++) {
			if (slice_block(client, p, block)[i] != 0xee)
				return false;
		}
	}
	return true;
}
