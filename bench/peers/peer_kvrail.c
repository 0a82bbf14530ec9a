/* peer_kvrail.c - kvraild over its Unix socket: RETRIEVE and STORE of chunks of 16 blocks, 8 MiB a request. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvrail.h"
#include "peer.h"

struct state {
	struct kvr_client *client;
	uint32_t registration;
	struct kvr_session *session;
	uint32_t session_round;
	uint32_t *tokens;
	size_t page_bytes;
	uint32_t page_count;
	struct kvr_session *known; /* whose digests are computed */
	uint32_t lookups;
};

static int failed(const char *what, int error)
{
	fprintf(stderr, "peers: kvrail: %s: %s\n", what, kvr_error_text());
	return error;
}

static int kvrail_open(struct peer *peer, const char *address)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct state *state = calloc(1, sizeof(*state));
	int error;

	if (!state)
		return -ENOMEM;
	peer->state = state;
	options.url = address;
	options.name = "peers";
	error = kvr_open(&options, &state->client);
	return error ? failed("kvr_open", error) : 0;
}

static int kvrail_use(struct peer *peer, struct pages *pages)
{
	struct state *state = peer->state;
	struct kvr_model model = KVR_MODEL_INIT;
	struct kvr_plane plane = { NULL, pages->page_bytes, pages->page_bytes };
	struct kvr_group group = { PEER_CHUNK_TOKENS / PEER_CHUNK_BLOCKS, KVR_WINDOW_FULL, pages->count, 1, &plane };
	struct kvr_layout layout = { sizeof(layout), 1, &group };
	size_t tokens = (size_t)pages->count / PEER_CHUNK_BLOCKS * PEER_CHUNK_TOKENS;
	void *memory;
	int error = kvr_alloc(state->client, pages->count * pages->page_bytes, &memory);

	if (error)
		return failed("kvr_alloc", error);
	pages->memory = plane.address = memory;
	state->page_bytes = pages->page_bytes;
	state->page_count = pages->count;
	state->tokens = calloc(tokens, sizeof(*state->tokens));
	if (!state->tokens)
		return -ENOMEM;
	model.name = "peers";
	model.dtype = "uint8";
	error = kvr_register(state->client, &model, &layout, NULL, &state->registration);
	return error ? failed("kvr_register", error) : 0;
}

static void end_session(struct kvr_session **session)
{
	if (*session)
		(void)kvr_end(*session, 0);
	(void)kvr_session_destroy(session);
}

static void kvrail_unuse(struct peer *peer, struct pages *pages)
{
	struct state *state = peer->state;
	struct kvr_result result;

	end_session(&state->session);
	end_session(&state->known);
	(void)kvr_clear(state->client, state->registration, 0, &result);
	(void)kvr_unregister(state->client, state->registration);
	(void)kvr_free(state->client, pages->memory);
	free(state->tokens);
	state->tokens = NULL;
	pages->memory = NULL;
}

/* The chain of this round: other tokens, so that its chunks are new. */
static int begin_round(struct state *state, const struct pages *pages, uint32_t round)
{
	size_t count = (size_t)pages->count / PEER_CHUNK_BLOCKS * PEER_CHUNK_TOKENS;
	char id[64];
	int error;

	end_session(&state->session);
	snprintf(id, sizeof(id), "peers %zu round %u", state->page_bytes, round);
	for (size_t i = 0; i < count; i++)
		state->tokens[i] = (uint32_t)i * 2654435761u + round;
	error = kvr_session_create(state->client, state->registration, id, NULL, &state->session);
	if (!error)
		error = kvr_session_tokens(state->session, state->tokens, count);
	state->session_round = round;
	return error ? failed("session", error) : 0;
}

static int move(struct peer *peer, const struct pages *pages, uint32_t round, bool store)
{
	struct state *state = peer->state;
	uint32_t batch = peer_batch(pages);
	int error = 0;

	/* Hashing the tokens is the engine's in the other peers' figures too: their keys are made by a counter. */
	if (!state->session || state->session_round != round)
		error = begin_round(state, pages, round);
	for (uint32_t first = 0; !error && first < pages->count; first += batch) {
		uint32_t count = (uint32_t)kvr_min_u64(batch, pages->count - first);
		struct kvr_transfer transfer = KVR_TRANSFER_INIT;
		struct kvr_blocks blocks = { pages->order + first, count };
		struct kvr_result result;

		transfer.first_chunk = first / PEER_CHUNK_BLOCKS;
		transfer.chunk_count = count / PEER_CHUNK_BLOCKS;
		transfer.group_count = 1;
		transfer.groups = &blocks;
		error = store ? kvr_store(state->session, &transfer, 0, &result)
			      : kvr_retrieve(state->session, &transfer, 0, &result);
		if (!error && result.chunks != transfer.chunk_count)
			error = -EIO;
	}
	return error ? failed(store ? "STORE" : "RETRIEVE", error) : 0;
}

static int kvrail_set(struct peer *peer, const struct pages *pages, uint32_t round)
{
	return move(peer, pages, round, true);
}

static int kvrail_get(struct peer *peer, const struct pages *pages, uint32_t round)
{
	return move(peer, pages, round, false);
}

static int kvrail_ping(struct peer *peer)
{
	struct state *state = peer->state;

	return kvr_ping(state->client, 0);
}

static int make_session(struct state *state, const uint32_t *tokens, struct kvr_session **session)
{
	char id[64];
	int error;

	snprintf(id, sizeof(id), "peers lookup %u", state->lookups++);
	error = kvr_session_create(state->client, state->registration, id, NULL, session);
	if (!error)
		error = kvr_session_tokens(*session, tokens, PEER_LOOKUP_TOKENS);
	return error ? failed("session", error) : 0;
}

/* The chunks are stored, so that the server finds all of them: from whatever lies in the first pages. */
static int kvrail_learn(struct peer *peer, const uint32_t *tokens)
{
	struct state *state = peer->state;
	uint32_t *ids = calloc(PEER_LOOKUP_CHUNKS * PEER_CHUNK_BLOCKS, sizeof(*ids));
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { ids, PEER_LOOKUP_CHUNKS * PEER_CHUNK_BLOCKS };
	struct kvr_result result;
	int error = ids ? make_session(state, tokens, &state->known) : -ENOMEM;

	for (uint32_t i = 0; !error && i < blocks.count; i++)
		ids[i] = i % state->page_count;
	transfer.chunk_count = PEER_LOOKUP_CHUNKS;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	if (!error)
		error = kvr_store(state->known, &transfer, 0, &result);
	free(ids);
	return error ? failed("STORE for LOOKUP", error) : 0;
}

static int kvrail_lookup(struct peer *peer, const uint32_t *tokens, bool known)
{
	struct state *state = peer->state;
	struct kvr_session *session = state->known;
	struct kvr_result result;
	int error = 0;

	if (!known) {
		session = NULL;
		error = make_session(state, tokens, &session);
	}
	if (!error)
		error = kvr_lookup(session, 0, &result);
	if (!error && result.chunks != PEER_LOOKUP_CHUNKS)
		error = -EIO;
	if (!error)
		error = kvr_end(session, 0);
	if (!known)
		(void)kvr_session_destroy(&session);
	return error ? failed("LOOKUP", error) : 0;
}

static void kvrail_close(struct peer *peer)
{
	struct state *state = peer->state;

	if (state)
		kvr_close(&state->client);
	free(state);
	peer->state = NULL;
}

const struct peer peer_kvrail = {
	.name = "kvrail",
	.how = "RETRIEVE and STORE of 8 MiB, blocks scattered by the server; LOOKUP with locks, END",
	.open = kvrail_open,
	.use = kvrail_use,
	.unuse = kvrail_unuse,
	.set = kvrail_set,
	.get = kvrail_get,
	.ping = kvrail_ping,
	.learn = kvrail_learn,
	.lookup = kvrail_lookup,
	.close = kvrail_close,
};
