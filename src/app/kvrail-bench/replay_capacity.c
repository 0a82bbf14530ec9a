/*
 * replay_capacity.c - how many chunks does L1 hold? Chains of chunks are stored until one has lost chunks; what is
 * then found of all of them is the capacity, since eviction takes no more than it must. To look is to use, so no
 * chain is looked at twice while L1 fills: after chain 2n it is chain n.
 */
#include "app/kvrail-bench/replay_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHAIN_CHUNKS 32
#define CHAINS_MAX 4000000u

struct filling {
	struct replay *replay;
	struct replay_client *client;
	uint32_t *tokens;
	uint32_t *ids;
	uint32_t chunks; /* of a chain */
	char *why;
	size_t why_size;
};

static int say(struct filling *filling, int error, const char *what)
{
	const char *words = kvr_error_text();

	snprintf(filling->why, filling->why_size, "looking for the capacity: %s: %s", what,
		words[0] ? words : strerror(-error));
	return error;
}

static int chain_session(
	struct filling *filling, const struct endpoint *endpoint, uint32_t chain, struct kvr_session **session)
{
	uint32_t count = filling->chunks * filling->replay->shape.chunk_tokens;
	char id[96];
	int error;

	snprintf(id, sizeof(id), "%s-fill-%u", filling->replay->run, chain);
	for (uint32_t i = 0; i < count; i++)
		filling->tokens[i] = trace_token((UINT64_C(3) << 62) + chain, i);
	error = kvr_session_create(endpoint->client, endpoint->registration, id, NULL, session);
	if (!error)
		error = kvr_session_tokens(*session, filling->tokens, count);
	return error ? say(filling, error, "session") : 0;
}

static int store_on_rank(struct filling *filling, const struct endpoint *endpoint, uint32_t chain)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { filling->ids, filling->chunks * filling->replay->shape.chunk_blocks };
	struct kvr_session *session = NULL;
	struct kvr_result result;
	int error = chain_session(filling, endpoint, chain, &session);

	transfer.chunk_count = filling->chunks;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	if (!error) {
		error = kvr_store(session, &transfer, 0, &result);
		if (!error && result.chunks != filling->chunks)
			error = -ENOMEM;
		if (error)
			(void)say(filling, error, "store");
	}
	if (!error)
		error = kvr_end(session, 0);
	if (session)
		(void)kvr_session_destroy(&session);
	return error;
}

static int store_chain(struct filling *filling, uint32_t chain)
{
	int error = 0;

	for (uint32_t rank = 0; !error && rank < filling->replay->shape.ranks; rank++) {
		if (filling->client->ranks[rank].reader == 0)
			error = store_on_rank(filling, &filling->client->ranks[rank], chain);
	}
	return error;
}

static int find_chain(struct filling *filling, uint32_t chain, uint32_t *found)
{
	struct kvr_session *session = NULL;
	struct kvr_result result;
	kvr_ticket ticket;
	int error = chain_session(filling, &filling->client->scheduler, chain, &session);

	if (!error) {
		error = kvr_submit_lookup(session, KVR_LOOKUP_NO_LOCK, &ticket);
		if (!error)
			error = kvr_wait(filling->client->scheduler.client, ticket, UINT64_C(30000000000), &result);
		if (error)
			(void)say(filling, error, "lookup");
		else
			*found = result.chunks;
	}
	if (session && !error)
		error = kvr_end(session, 0);
	if (session)
		(void)kvr_session_destroy(&session);
	return error;
}

static int fill(struct filling *filling, uint64_t *capacity)
{
	uint32_t chains = 0, found = filling->chunks;
	int error = 0;

	while (!error && found == filling->chunks) {
		if (chains == CHAINS_MAX)
			return say(filling, -E2BIG, "L1 does not fill; give --capacity");
		if (replay_interrupted(filling->replay))
			return say(filling, -EINTR, "interrupted");
		error = store_chain(filling, chains++);
		if (!error && chains % 2 == 0)
			error = find_chain(filling, chains / 2 - 1, &found);
	}
	*capacity = 0;
	for (uint32_t chain = 0; !error && chain < chains; chain++) {
		error = find_chain(filling, chain, &found);
		*capacity += found;
	}
	return error;
}

static int clear(struct filling *filling, uint64_t capacity)
{
	const struct endpoint *endpoint = &filling->client->ranks[0];
	struct kvr_result result;
	int error = kvr_clear(endpoint->client, endpoint->registration, 0, &result);

	if (error)
		return say(filling, error, "clear");
	if (result.chunks < capacity || result.from_l2 != 0) {
		snprintf(filling->why, filling->why_size,
			"looking for the capacity: of %llu chunks %u were dropped and %u kept",
			(unsigned long long)capacity, result.chunks, result.from_l2);
		return -EPROTO;
	}
	return 0;
}

int replay_find_capacity(struct replay *replay, uint64_t *capacity, char *why, size_t why_size)
{
	struct filling filling = { .replay = replay, .client = &replay->clients[0], .why = why, .why_size = why_size };
	uint32_t blocks;
	int error = -ENOMEM;

	filling.chunks = (uint32_t)kvr_min_u64(CHAIN_CHUNKS, replay->segment_chunks);
	blocks = filling.chunks * replay->shape.chunk_blocks;
	filling.tokens = calloc((size_t)filling.chunks * replay->shape.chunk_tokens, sizeof(*filling.tokens));
	filling.ids = calloc(blocks, sizeof(*filling.ids));
	text_copy(why, why_size, "out of memory");
	if (filling.tokens && filling.ids) {
		for (uint32_t i = 0; i < blocks; i++)
			filling.ids[i] = i;
		error = fill(&filling, capacity);
		if (!error)
			error = clear(&filling, *capacity);
	}
	free(filling.tokens);
	free(filling.ids);
	return error;
}
