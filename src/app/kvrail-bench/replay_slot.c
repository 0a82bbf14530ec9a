/* replay_slot.c - one request of the trace on its way: LOOKUP -> RETRIEVE of the hit -> STORE of the rest ->
 * END_SESSION. */
#include "app/kvrail-bench/replay_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "protocol/status.h"

#define RETRY_NS (100 * KVR_US)
#define REPLY_LIMIT_NS (30 * KVR_SECOND)
#define WAIT_NS (500 * KVR_US)

int replay_slot_init(struct replay_slot *slot, const struct replay *replay, uint32_t writer)
{
	uint32_t ranks = replay->shape.ranks;

	memset(slot, 0, sizeof(*slot));
	slot->writer = writer;
	slot->request = calloc(1, sizeof(*slot->request));
	slot->sessions = calloc(ranks, sizeof(struct kvr_session *));
	slot->pendings = calloc(ranks, sizeof(*slot->pendings));
	slot->ids = calloc(ranks, sizeof(uint32_t *));
	slot->outcomes = calloc(ranks, sizeof(uint8_t *));
	if (!slot->request || !slot->sessions || !slot->pendings || !slot->ids || !slot->outcomes)
		return -ENOMEM;
	for (uint32_t rank = 0; rank < ranks; rank++) {
		slot->ids[rank] = calloc((size_t)replay->segment_chunks * replay->shape.chunk_blocks, sizeof(uint32_t));
		slot->outcomes[rank] = calloc(replay->segment_chunks, 1);
		if (!slot->ids[rank] || !slot->outcomes[rank])
			return -ENOMEM;
	}
	return 0;
}

void replay_slot_fini(struct replay_slot *slot, const struct replay *replay)
{
	for (uint32_t rank = 0; rank < replay->shape.ranks; rank++) {
		if (slot->ids)
			free(slot->ids[rank]);
		if (slot->outcomes)
			free(slot->outcomes[rank]);
	}
	free(slot->ids);
	free(slot->outcomes);
	free(slot->request);
	free(slot->sessions);
	free(slot->pendings);
	free(slot->tokens);
	free(slot->chunks);
	free(slot->floors);
	memset(slot, 0, sizeof(*slot));
}

static void slot_fail(struct replay_client *client, struct replay_slot *slot)
{
	slot->failed = true;
	kvr_counter_add(&client->counters.errors, 1);
}

/* ---- tokens and sessions ---- */

static int slot_room(struct replay_slot *slot, const struct replay *replay)
{
	uint32_t tokens = slot->request->input_tokens;
	uint32_t chunks = tokens / replay->shape.chunk_tokens;

	if (tokens <= slot->token_capacity)
		return 0;
	free(slot->tokens);
	free(slot->chunks);
	free(slot->floors);
	slot->tokens = calloc(tokens, sizeof(*slot->tokens));
	slot->chunks = calloc(chunks + 1, sizeof(*slot->chunks));
	slot->floors = calloc((size_t)(chunks + 1) * replay->shape.holders, sizeof(*slot->floors));
	slot->token_capacity = slot->tokens && slot->chunks && slot->floors ? tokens : 0;
	return slot->token_capacity ? 0 : -ENOMEM;
}

static int open_session(
	const struct endpoint *endpoint, const struct replay_slot *slot, const char *id, struct kvr_session **session)
{
	int error = kvr_session_create(endpoint->client, endpoint->registration, id, NULL, session);

	return error ? error : kvr_session_tokens(*session, slot->tokens, slot->request->input_tokens);
}

/* The same session by its id on all connections, as scheduler and workers of an engine have it. */
static int open_sessions(struct replay_client *client, struct replay_slot *slot)
{
	char id[96];
	int error;

	snprintf(id, sizeof(id), "%s-%llu", client->replay->run, (unsigned long long)slot->number);
	error = open_session(&client->scheduler, slot, id, &slot->scheduler_session);
	for (uint32_t rank = 0; !error && rank < client->replay->shape.ranks; rank++)
		error = open_session(&client->ranks[rank], slot, id, &slot->sessions[rank]);
	return error;
}

static void close_sessions(struct replay_client *client, struct replay_slot *slot)
{
	if (slot->scheduler_session)
		(void)kvr_session_destroy(&slot->scheduler_session);
	for (uint32_t rank = 0; rank < client->replay->shape.ranks; rank++) {
		if (slot->sessions[rank])
			(void)kvr_session_destroy(&slot->sessions[rank]);
	}
}

static void slot_finish(struct replay_client *client, struct replay_slot *slot)
{
	close_sessions(client, slot);
	slot->step = STEP_FREE;
	kvr_counter_add(&client->counters.requests, 1);
	kvr_counter_add(&client->counters.tokens, slot->request->input_tokens);
}

/* ---- submitting ---- */

static const char *step_name(enum replay_step step)
{
	static const char *const names[] = { "nothing", "LOOKUP", "RETRIEVE", "STORE", "END_SESSION" };

	return names[step];
}

static const struct endpoint *endpoint_of(
	const struct replay_client *client, const struct replay_slot *slot, uint32_t index)
{
	bool by_rank = slot->step == STEP_RETRIEVE || slot->step == STEP_STORE;

	return by_rank ? &client->ranks[index] : &client->scheduler;
}

static int submit(struct replay_client *client, struct replay_slot *slot, uint32_t index, kvr_ticket *ticket)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { slot->ids[index], slot->count * client->replay->shape.chunk_blocks };

	if (slot->step == STEP_LOOKUP)
		return kvr_submit_lookup(slot->scheduler_session, 0, ticket);
	if (slot->step == STEP_END)
		return kvr_submit_end(slot->scheduler_session, ticket);
	transfer.first_chunk = slot->first;
	transfer.chunk_count = slot->count;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	transfer.outcomes = slot->outcomes[index];
	memset(slot->outcomes[index], 0, slot->count);
	if (slot->step == STEP_RETRIEVE)
		return kvr_submit_retrieve(slot->sessions[index], &transfer, ticket);
	return kvr_submit_store(slot->sessions[index], &transfer, ticket);
}

static void pending_fail(
	struct replay_client *client, struct replay_slot *slot, uint32_t index, int error, const char *words)
{
	complain(&client->replay->complaints, "request %llu: %s on %s %u, chunks %u to %u of %u: %s (%s)",
		(unsigned long long)slot->number, step_name(slot->step),
		endpoint_of(client, slot, index) == &client->scheduler ? "scheduler" : "rank", index, slot->first,
		slot->first + slot->count, slot->chunk_count, words[0] ? words : strerror(-error), strerror(-error));
	if (error == -ECONNRESET)
		kvr_store_release(&client->replay->complaints.stop, 1); /* nothing of this run can still be right */
	slot_fail(client, slot);
	slot->pendings[index].done = true;
	slot->open--;
}

static void pending_retry(struct replay_client *client, struct replay_pending *pending, uint64_t now_ns)
{
	kvr_counter_add(&client->counters.retries, 1);
	pending->ticket = 0;
	pending->retry_ns = now_ns + RETRY_NS;
}

static void pending_submit(struct replay_client *client, struct replay_slot *slot, uint32_t index)
{
	struct replay_pending *pending = &slot->pendings[index];
	uint64_t now_ns = clock_now_ns();
	int error;

	if (pending->begin_ns == 0)
		pending->begin_ns = now_ns;
	error = submit(client, slot, index, &pending->ticket);
	if (error == -EBUSY)
		pending_retry(client, pending, now_ns);
	else if (error)
		pending_fail(client, slot, index, error, kvr_error_text());
}

static void step_finished(struct replay_client *client, struct replay_slot *slot);

/* One operation for each connection of `count`; with readers_once of ranks that hold the same only the first. */
static void step_begin(struct replay_client *client, struct replay_slot *slot, enum replay_step step, uint32_t count,
	bool readers_once)
{
	slot->step = step;
	slot->open = 0;
	for (uint32_t index = 0; index < client->replay->shape.ranks; index++) {
		bool wanted = index < count && !(readers_once && client->ranks[index].reader != 0);

		slot->pendings[index] = (struct replay_pending){ .done = !wanted };
		slot->open += wanted;
	}
	for (uint32_t index = 0; index < count; index++) {
		if (!slot->pendings[index].done)
			pending_submit(client, slot, index);
	}
	if (slot->open == 0)
		step_finished(client, slot);
}

/* ---- steps ---- */

static void take_blocks(struct replay_client *client, struct replay_slot *slot)
{
	uint32_t blocks = slot->count * client->replay->shape.chunk_blocks;

	for (uint32_t rank = 0; rank < client->replay->shape.ranks; rank++) {
		/* segment_chunks is such that all slots together have enough. */
		if (!fakegpu_take(&client->ranks[rank].gpu, blocks, slot->ids[rank]))
			abort();
	}
}

static void give_blocks(struct replay_client *client, struct replay_slot *slot)
{
	uint32_t blocks = slot->count * client->replay->shape.chunk_blocks;

	for (uint32_t rank = 0; rank < client->replay->shape.ranks; rank++)
		fakegpu_give(&client->ranks[rank].gpu, blocks, slot->ids[rank], replay_verifies(client->replay));
}

static void begin_retrieve(struct replay_client *client, struct replay_slot *slot)
{
	slot->count = (uint32_t)kvr_min_u64(client->replay->segment_chunks, slot->hit - slot->first);
	take_blocks(client, slot);
	for (uint32_t rank = 0; replay_verifies(client->replay) && rank < client->replay->shape.ranks; rank++)
		fakegpu_poison(
			&client->ranks[rank].gpu, slot->count * client->replay->shape.chunk_blocks, slot->ids[rank]);
	step_begin(client, slot, STEP_RETRIEVE, client->replay->shape.ranks, false);
}

static void begin_store(struct replay_client *client, struct replay_slot *slot)
{
	uint32_t blocks = client->replay->shape.chunk_blocks;

	slot->count = (uint32_t)kvr_min_u64(client->replay->segment_chunks, slot->chunk_count - slot->first);
	take_blocks(client, slot);
	if (replay_verifies(client->replay)) {
		slot->generation = generations_begin(client->replay->generations, slot->writer);
		for (uint32_t rank = 0; rank < client->replay->shape.ranks; rank++) {
			for (uint32_t i = 0; client->ranks[rank].reader == 0 && i < slot->count; i++)
				fakegpu_fill(&client->ranks[rank].gpu, slot->chunks[slot->first + i], slot->generation,
					slot->ids[rank] + (size_t)i * blocks);
		}
	}
	step_begin(client, slot, STEP_STORE, client->replay->shape.ranks, true);
}

static void begin_next(struct replay_client *client, struct replay_slot *slot)
{
	if (slot->failed || slot->first == slot->chunk_count) {
		slot->count = 0;
		step_begin(client, slot, STEP_END, 1, false);
	} else if (slot->first < slot->hit) {
		begin_retrieve(client, slot);
	} else {
		begin_store(client, slot);
	}
}

void replay_slot_begin(struct replay_client *client, struct replay_slot *slot)
{
	struct replay *replay = client->replay;
	int error = slot_room(slot, replay);

	slot->failed = false;
	slot->hit = slot->first = slot->count = slot->chunk_count = 0;
	if (!error) {
		trace_tokens(slot->request, replay->settings->trace_block_tokens, slot->tokens);
		slot->chunk_count = trace_identities(
			slot->tokens, slot->request->input_tokens, replay->shape.chunk_tokens, slot->chunks);
	}
	if (!error && slot->chunk_count > 0)
		error = open_sessions(client, slot);
	if (error) {
		complain(&replay->complaints, "request %llu of %u tokens: %s", (unsigned long long)slot->number,
			slot->request->input_tokens, error == -ENOMEM ? "out of memory" : kvr_error_text());
		slot_fail(client, slot);
	}
	if (error || slot->chunk_count == 0) {
		slot_finish(client, slot);
		return;
	}
	for (uint32_t holder = 0; replay_verifies(replay) && holder < replay->shape.holders; holder++)
		generations_floors(replay->generations, slot->chunks, slot->chunk_count, holder,
			slot->floors + (size_t)holder * slot->chunk_count);
	step_begin(client, slot, STEP_LOOKUP, 1, false);
}

static void retrieve_finished(struct replay_client *client, struct replay_slot *slot)
{
	for (uint32_t rank = 0; replay_verifies(client->replay) && rank < client->replay->shape.ranks; rank++)
		replay_verify(client, slot, rank);
	give_blocks(client, slot);
	slot->first += slot->count;
}

static void note_stored(struct replay_client *client, const struct replay_slot *slot, uint32_t rank)
{
	for (uint32_t i = 0; i < slot->count; i++) {
		if (slot->outcomes[rank][i] == KVR_STORED &&
			generations_stored(client->replay->generations, slot->chunks[slot->first + i],
				client->ranks[rank].holder, slot->generation))
			complain(&client->replay->complaints,
				"out of memory: old copies will not be told from new ones");
	}
}

static void store_finished(struct replay_client *client, struct replay_slot *slot)
{
	if (replay_verifies(client->replay)) {
		for (uint32_t rank = 0; rank < client->replay->shape.ranks; rank++) {
			if (client->ranks[rank].reader == 0)
				note_stored(client, slot, rank);
		}
		generations_end(client->replay->generations, slot->writer);
	}
	give_blocks(client, slot);
	slot->first += slot->count;
}

/* All connections have answered. */
static void step_finished(struct replay_client *client, struct replay_slot *slot)
{
	switch (slot->step) {
	case STEP_LOOKUP:
		if (!slot->failed && client->replay->reference)
			replay_compare(client->replay, slot, &client->counters);
		break;
	case STEP_RETRIEVE:
		retrieve_finished(client, slot);
		break;
	case STEP_STORE:
		store_finished(client, slot);
		break;
	case STEP_END:
	case STEP_FREE:
		slot_finish(client, slot);
		return;
	}
	begin_next(client, slot);
}

/* ---- replies ---- */

static void lookup_result(struct replay_client *client, struct replay_slot *slot, const struct kvr_result *result)
{
	if (result->chunks > slot->chunk_count) {
		complain(&client->replay->complaints, "request %llu: LOOKUP found %u chunks of %u",
			(unsigned long long)slot->number, result->chunks, slot->chunk_count);
		slot_fail(client, slot);
		return;
	}
	slot->hit = result->chunks;
	kvr_counter_add(&client->counters.hit_tokens, (uint64_t)slot->hit * client->replay->shape.chunk_tokens);
}

static uint64_t retrieve_result(struct replay_client *client, struct replay_slot *slot, uint32_t index)
{
	uint64_t delivered = 0, bytes;

	for (uint32_t i = 0; i < slot->count; i++) {
		if (slot->outcomes[index][i] == KVR_DELIVERED) {
			delivered++;
			continue;
		}
		kvr_counter_add(&client->counters.chunks_missing, 1);
		if (!slot->failed)
			complain(&client->replay->complaints,
				"request %llu, rank %u: chunk %u, locked by LOOKUP, was not delivered (outcome %u)",
				(unsigned long long)slot->number, index, slot->first + i, slot->outcomes[index][i]);
		slot_fail(client, slot);
	}
	bytes = delivered * client->replay->shape.object_bytes;
	kvr_counter_add(&client->counters.bytes_retrieved, bytes);
	return bytes;
}

static uint64_t store_result(struct replay_client *client, struct replay_slot *slot, uint32_t index)
{
	struct counters *counters = &client->counters;
	uint64_t of[KVR_NO_QUOTA + 1] = { 0 }, bytes, failed;

	for (uint32_t i = 0; i < slot->count; i++)
		of[slot->outcomes[index][i] <= KVR_NO_QUOTA ? slot->outcomes[index][i] : 0]++;
	kvr_counter_add(&counters->chunks_stored, of[KVR_STORED]);
	kvr_counter_add(&counters->chunks_present, of[KVR_PRESENT]);
	kvr_counter_add(&counters->chunks_without_memory, of[KVR_NO_MEMORY] + of[KVR_NO_QUOTA]);
	failed = slot->count - of[KVR_STORED] - of[KVR_PRESENT] - of[KVR_NO_MEMORY] - of[KVR_NO_QUOTA];
	if (failed > 0) {
		complain(&client->replay->complaints,
			"request %llu, rank %u: %llu of chunks %u to %u failed to be stored",
			(unsigned long long)slot->number, index, (unsigned long long)failed, slot->first,
			slot->first + slot->count);
		slot_fail(client, slot);
	}
	bytes = of[KVR_STORED] * client->replay->shape.object_bytes;
	kvr_counter_add(&counters->bytes_stored, bytes);
	return bytes;
}

static void pending_result(
	struct replay_client *client, struct replay_slot *slot, uint32_t index, const struct kvr_result *result)
{
	static const enum measure_op ops[] = { MEASURE_END, MEASURE_LOOKUP, MEASURE_RETRIEVE, MEASURE_STORE,
		MEASURE_END };
	struct replay_pending *pending = &slot->pendings[index];
	uint64_t now_ns = clock_now_ns(), bytes = 0;

	if (result->error == -EBUSY) {
		pending_retry(client, pending, now_ns);
		return;
	}
	/* A full L1, or quota, is the server's to say and no failure: it says so for all chunks at once, without outcomes. */
	if (slot->step == STEP_STORE && (result->status == STATUS_NO_MEMORY || result->status == STATUS_NO_QUOTA)) {
		memset(slot->outcomes[index], KVR_NO_MEMORY, slot->count);
	} else if (result->error) {
		pending_fail(client, slot, index, result->error, result->text);
		return;
	}
	if (slot->step == STEP_LOOKUP)
		lookup_result(client, slot, result);
	else if (slot->step == STEP_RETRIEVE)
		bytes = retrieve_result(client, slot, index);
	else if (slot->step == STEP_STORE)
		bytes = store_result(client, slot, index);
	measure_add(&client->measure, ops[slot->step], pending->begin_ns, now_ns, bytes);
	pending->done = true;
	slot->open--;
}

/* The server owes this one for long: ask it to stop; when even that brings nothing, give up. */
static void pending_late(struct replay_client *client, struct replay_slot *slot, uint32_t index)
{
	struct replay_pending *pending = &slot->pendings[index];

	complain(&client->replay->complaints, "request %llu: no reply to %s within %u s%s",
		(unsigned long long)slot->number, step_name(slot->step), (unsigned)(REPLY_LIMIT_NS / KVR_SECOND),
		pending->canceled ? " after CANCEL: giving up" : "");
	kvr_counter_add(&client->counters.errors, 1);
	if (pending->canceled) {
		client->hopeless = true;
		kvr_store_release(&client->replay->complaints.stop, 1);
		return;
	}
	pending->canceled = true;
	pending->begin_ns = clock_now_ns();
	if (pending->ticket)
		(void)kvr_cancel(endpoint_of(client, slot, index)->client, pending->ticket);
}

/* One look at a pending operation; true when its reply came. */
static bool pending_poll(struct replay_client *client, struct replay_slot *slot, uint32_t index)
{
	struct replay_pending *pending = &slot->pendings[index];
	uint64_t now_ns = clock_now_ns();
	struct kvr_result result = { .error = 0 };

	if (!pending->ticket) {
		if (now_ns >= pending->retry_ns)
			pending_submit(client, slot, index);
	} else if (endpoint_answered(
			   kvr_poll(endpoint_of(client, slot, index)->client, pending->ticket, &result), &result)) {
		pending_result(client, slot, index, &result);
		return true;
	}
	if (!pending->done && now_ns > pending->begin_ns && now_ns - pending->begin_ns > REPLY_LIMIT_NS)
		pending_late(client, slot, index);
	return false;
}

bool replay_slot_poll(struct replay_client *client, struct replay_slot *slot)
{
	bool progress = false;

	for (uint32_t index = 0; index < client->replay->shape.ranks && slot->open > 0; index++) {
		if (!slot->pendings[index].done)
			progress |= pending_poll(client, slot, index);
	}
	if (slot->step != STEP_FREE && slot->open == 0)
		step_finished(client, slot);
	return progress;
}

void replay_slot_wait(struct replay_client *client, struct replay_slot *slot)
{
	struct timespec pause = { 0, RETRY_NS };
	struct kvr_result result = { .error = 0 };

	for (uint32_t index = 0; index < client->replay->shape.ranks; index++) {
		struct replay_pending *pending = &slot->pendings[index];
		struct kvr_client *connection = endpoint_of(client, slot, index)->client;

		if (pending->done || !pending->ticket)
			continue;
		if (endpoint_answered(kvr_wait(connection, pending->ticket, WAIT_NS, &result), &result))
			pending_result(client, slot, index, &result);
		return;
	}
	nanosleep(&pause, NULL);
}
