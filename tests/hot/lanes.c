/* lanes.c - see lanes.h. */
#include "hot/lanes.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "base/random.h"

#define POOL_BLOCKS (2 * ((LANES - 1) * LANE_BLOCKS + LANE_LONG_CHUNKS * RIG_CHUNK_BLOCKS))

static uint32_t lane_blocks(const struct lane *lane)
{
	return lane->chunks * RIG_CHUNK_BLOCKS;
}

static uint8_t *block_at(const struct lanes *lanes, uint32_t plane, uint32_t block)
{
	return lanes->pool + ((size_t)plane * lanes->block_count + block) * RIG_BLOCK_BYTES;
}

static void register_pool(struct lanes *lanes)
{
	struct kvr_model model = KVR_MODEL_INIT;
	struct kvr_plane planes[RIG_PLANES];
	struct kvr_group group = { RIG_BLOCK_TOKENS, KVR_WINDOW_FULL, POOL_BLOCKS, RIG_PLANES, planes };
	struct kvr_layout layout = { sizeof(layout), 1, &group };
	void *pool;

	assert_int_equal(kvr_alloc(lanes->client, (size_t)RIG_PLANES * POOL_BLOCKS * RIG_BLOCK_BYTES, &pool), 0);
	lanes->pool = pool;
	lanes->block_count = POOL_BLOCKS;
	for (unsigned p = 0; p < RIG_PLANES; p++) {
		planes[p].address = block_at(lanes, p, 0);
		planes[p].block_stride = RIG_BLOCK_BYTES;
		planes[p].block_bytes = RIG_BLOCK_BYTES;
	}
	model.name = "hot model";
	model.dtype = "uint8";
	if (kvr_register(lanes->client, &model, &layout, NULL, &lanes->registration))
		fail_msg("kvr_register: %s", kvr_error_text());
}

static struct kvr_session *make_session(const struct lane *lane, const char *kind, uint32_t round)
{
	const struct lanes *lanes = lane->lanes;
	uint32_t tokens[LANE_LONG_CHUNKS * RIG_CHUNK_TOKENS];
	struct kvr_session *session;
	char id[64];

	for (uint32_t i = 0; i < lane->chunks * RIG_CHUNK_TOKENS; i++)
		tokens[i] = (uint32_t)random_mix(((uint64_t)lane->number << 56) + ((uint64_t)round << 24) + i + 1);
	snprintf(id, sizeof(id), "%s %u %u", kind, lane->number, round);
	assert_int_equal(kvr_session_create(lanes->client, lanes->registration, id, NULL, &session), 0);
	assert_int_equal(kvr_session_tokens(session, tokens, (size_t)lane->chunks * RIG_CHUNK_TOKENS), 0);
	return session;
}

static void submit_transfer(struct lane *lane, struct kvr_session *session, bool store, const uint32_t *ids)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { ids, lane_blocks(lane) };
	int error;

	transfer.chunk_count = lane->chunks;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	transfer.outcomes = lane->outcomes;
	error = store ? kvr_submit_store(session, &transfer, &lane->ticket)
		      : kvr_submit_retrieve(session, &transfer, &lane->ticket);
	if (error)
		fail_msg("submit: %s", kvr_error_text());
}

static void submit(struct lane *lane)
{
	const uint32_t *into = lane->ids + lane_blocks(lane);
	int error = 0;

	switch (lane->step) {
	case LANE_PING:
		error = kvr_submit_ping(lane->lanes->client, &lane->ticket);
		break;
	case LANE_LOOKUP_OLD:
		error = kvr_submit_lookup(lane->old, 0, &lane->ticket);
		break;
	case LANE_RETRIEVE_OLD:
		for (uint32_t i = 0; i < lane_blocks(lane); i++)
			memset(block_at(lane->lanes, lane->round % RIG_PLANES, into[i]), 0xee, RIG_BLOCK_BYTES);
		submit_transfer(lane, lane->old, false, into);
		break;
	case LANE_STORE_OLD:
		submit_transfer(lane, lane->old, true, lane->ids);
		break;
	case LANE_STORE_NEW:
		lane->new = make_session(lane, "new", ++lane->round);
		submit_transfer(lane, lane->new, true, lane->ids);
		break;
	case LANE_LOOKUP_NEW:
		error = kvr_submit_lookup(lane->new, 0, &lane->ticket);
		break;
	case LANE_END_NEW:
		error = kvr_submit_end(lane->new, &lane->ticket);
		break;
	default:
		error = kvr_submit_end(lane->old, &lane->ticket);
		break;
	}
	if (error)
		fail_msg("submit: %s", kvr_error_text());
}

/* What was retrieved is what was stored, in the plane that was overwritten before. */
static void check_blocks(struct lane *lane)
{
	struct lanes *lanes = lane->lanes;
	uint32_t plane = lane->round % RIG_PLANES, count = lane_blocks(lane);

	for (uint32_t i = 0; i < count; i++)
		assert_memory_equal(block_at(lanes, plane, lane->ids[count + i]), block_at(lanes, plane, lane->ids[i]),
			RIG_BLOCK_BYTES);
	lanes->verified_blocks += count;
}

static void check_outcomes(const struct lane *lane, enum kvr_outcome outcome)
{
	for (uint32_t i = 0; i < lane->chunks; i++)
		assert_int_equal(lane->outcomes[i], outcome);
}

static void check(struct lane *lane, int error, const struct kvr_result *result)
{
	if (error)
		fail_msg("request %d of lane %u: %s", (int)lane->step, lane->number, result->text);
	switch (lane->step) {
	case LANE_LOOKUP_OLD:
	case LANE_LOOKUP_NEW:
		assert_int_equal(result->chunks, lane->chunks);
		break;
	case LANE_RETRIEVE_OLD:
		check_outcomes(lane, KVR_DELIVERED);
		check_blocks(lane);
		break;
	case LANE_STORE_OLD:
		check_outcomes(lane, KVR_PRESENT);
		break;
	case LANE_STORE_NEW:
		check_outcomes(lane, KVR_STORED);
		break;
	case LANE_END_NEW:
		assert_int_equal(kvr_session_destroy(&lane->new), 0);
		break;
	default:
		break;
	}
}

/* True when a request was answered and the next one is on its way. */
static bool lane_go(struct lane *lane)
{
	struct lanes *lanes = lane->lanes;
	struct kvr_result result;
	int error = kvr_poll(lanes->client, lane->ticket, &result);

	if (error == -EAGAIN)
		return false;
	check(lane, error, &result);
	lanes->done[lane->step]++;
	lanes->total++;
	lane->step = (enum lane_step)((lane->step + 1) % LANE_STEPS);
	submit(lane);
	return true;
}

void lanes_run(struct lanes *lanes, uint64_t requests)
{
	uint64_t until = lanes->total + requests;

	while (lanes->total < until) {
		bool busy = false;

		for (unsigned n = 0; n < LANES; n++)
			busy |= lane_go(&lanes->lane[n]);
		if (!busy)
			sched_yield(); /* the server may want this core */
	}
}

/* Its own chain is stored, and its first request is on its way. */
static void lane_begin(struct lane *lane, uint32_t *next_block)
{
	uint32_t count = lane_blocks(lane);
	struct kvr_result result;

	lane->ids = calloc(2 * (size_t)count, sizeof(*lane->ids));
	lane->outcomes = calloc(lane->chunks, 1);
	assert_non_null(lane->ids);
	assert_non_null(lane->outcomes);
	/* From both ends inwards, so that few blocks are neighbours. */
	for (uint32_t i = 0; i < 2 * count; i++)
		lane->ids[i] = *next_block + (i % 2 == 0 ? i / 2 : 2 * count - 1 - i / 2);
	*next_block += 2 * count;
	for (unsigned p = 0; p < RIG_PLANES; p++)
		for (uint32_t i = 0; i < count; i++)
			memset(block_at(lane->lanes, p, lane->ids[i]), (int)(1 + random_mix(lane->ids[i] + p) % 200),
				RIG_BLOCK_BYTES);
	lane->old = make_session(lane, "old", 0);
	submit_transfer(lane, lane->old, true, lane->ids);
	assert_int_equal(kvr_wait(lane->lanes->client, lane->ticket, UINT64_C(60000000000), &result), 0);
	check_outcomes(lane, KVR_STORED);
	submit(lane);
}

void lanes_open(struct lanes *lanes, const struct rig *rig)
{
	uint32_t next_block = 0;

	memset(lanes, 0, sizeof(*lanes));
	lanes->client = rig_client(rig);
	register_pool(lanes);
	for (unsigned n = 0; n < LANES; n++) {
		struct lane *lane = &lanes->lane[n];

		lane->lanes = lanes;
		lane->number = n;
		lane->chunks = n == 0 ? LANE_LONG_CHUNKS : LANE_CHUNKS;
		lane_begin(lane, &next_block);
	}
}

/* Not by kvr_wait: a client that waits goes to sleep, and the server has to wake it. */
static void lane_finish(struct lane *lane)
{
	struct kvr_result result;
	int error;

	while ((error = kvr_poll(lane->lanes->client, lane->ticket, &result)) == -EAGAIN)
		sched_yield();
	check(lane, error, &result);
}

void lanes_finish(struct lanes *lanes)
{
	for (unsigned n = 0; n < LANES; n++)
		lane_finish(&lanes->lane[n]);
}

void lanes_close(struct lanes *lanes)
{
	for (unsigned n = 0; n < LANES; n++) {
		struct lane *lane = &lanes->lane[n];

		if (lane->new)
			assert_int_equal(kvr_session_destroy(&lane->new), 0);
		assert_int_equal(kvr_session_destroy(&lane->old), 0);
		free(lane->ids);
		free(lane->outcomes);
	}
	kvr_close(&lanes->client);
}
