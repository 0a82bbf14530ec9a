/* RETRIEVE and STORE through the worker: every byte, the send queue's limits, fairness. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "worker/rig.h"

static void no_line(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

static struct rig *start(const struct rig_options *options)
{
	log_set_sink(no_line, NULL);
	return rig_start(options);
}

/* Object i gets salt i, blocks of a client's memory are poisoned. */
static void fill_objects(struct rig *rig, uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++)
		rig_fill_object(rig, i, (uint8_t)i);
}

static void assert_outcomes(const struct rig_reply *got, uint16_t status, uint32_t chunks, enum chunk_outcome outcome)
{
	struct transfer_reply reply;
	struct wire_error error;

	assert_int_equal(transfer_reply_decode(got->bytes, got->length, &reply, &error), 0);
	assert_int_equal(reply.header.status, status);
	assert_int_equal(reply.chunk_count, chunks);
	for (uint32_t i = 0; i < chunks; i++)
		assert_int_equal(reply.outcomes[i], outcome);
}

static void a_retrieve_delivers_every_byte_before_its_reply(void **state)
{
	struct rig_options options;
	uint8_t bytes[WIRE_INLINE_BYTES];

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct rig *rig;
		struct rig_client *client;

		rig_options_default(&options);
		options.seed = seed;
		options.block_stride = seed % 2 ? 64 : 80;
		rig = start(&options);
		client = rig_join(rig, 0);
		fill_objects(rig, 0, 8);
		rig_send(client, bytes, rig_transfer(bytes, WIRE_RETRIEVE, 1, 2, 5, 100));
		assert_outcomes(rig_reply_of(client, 1), STATUS_OK, 5, CHUNK_DELIVERED);
		for (uint32_t b = 0; b < 5 * RIG_CHUNK_BLOCKS; b++)
			rig_assert_block(client, 100 + b, b % RIG_CHUNK_BLOCKS, (uint8_t)(2 + b / RIG_CHUNK_BLOCKS));
		rig_assert_guards(rig);
		assert_int_equal(RIG_COUNT(rig, retrieve_bytes_total), 5 * rig->object_bytes);
		assert_int_equal(client->connection.bytes_out, 5 * rig->object_bytes);
		rig_stop(rig);
	}
}

/* The reply is behind the data on the queue pair; the management core hears of the end later, and its REPLY sends nothing. */
static void an_early_reply_is_right_behind_its_data(void **state)
{
	struct rig_options options;
	uint8_t bytes[WIRE_INLINE_BYTES];

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct rig_client *client;
		struct request *done;
		struct rig *rig;

		rig_options_default(&options);
		options.seed = seed;
		rig = start(&options);
		client = rig_join(rig, 0);
		rig->auto_answer = false;
		rig->early = true;
		fill_objects(rig, 0, 8);
		rig_send(client, bytes, rig_transfer(bytes, WIRE_RETRIEVE, 1, 2, 5, 100));
		rig_begin_transfer(rig, rig_take_request(rig));
		assert_outcomes(rig_reply_of(client, 1), STATUS_OK, 5, CHUNK_DELIVERED);
		for (uint32_t b = 0; b < 5 * RIG_CHUNK_BLOCKS; b++)
			rig_assert_block(client, 100 + b, b % RIG_CHUNK_BLOCKS, (uint8_t)(2 + b / RIG_CHUNK_BLOCKS));
		done = rig_take_done(rig);
		assert_int_equal(done->transfer.answered, 1);
		rig_reply(rig, done, STATUS_OK);
		rig_send(client, bytes, rig_ping(bytes, 2));
		assert_int_equal(rig_reply_of(client, 2)->header.type, WIRE_PING + 1);
		assert_int_equal(client->reply_count, 2);
		assert_int_equal(RIG_COUNT(rig, early_replies_total), 1);
		rig_stop(rig);
	}
}

/* Those that were answered and are not given back yet take none of its credits; no more of them than spare buffers allow. */
static void early_replies_give_their_credits_back(void **state)
{
	enum { LENT = 8 }; /* half of 16 */
	struct request *held[LENT + 1];
	struct rig_options options;
	uint8_t bytes[WIRE_INLINE_BYTES];
	struct rig_client *client;
	struct rig *rig;

	(void)state;
	rig_options_default(&options);
	assert_int_equal(options.credits, LENT);
	rig = start(&options);
	client = rig_join(rig, 0);
	rig->auto_answer = false;
	rig->early = true;
	fill_objects(rig, 0, 1);
	for (uint32_t i = 0; i <= LENT; i++) {
		rig_send(client, bytes, rig_transfer(bytes, WIRE_RETRIEVE, i + 1, 0, 1, 100));
		rig_begin_transfer(rig, rig_take_request(rig));
		held[i] = rig_take_done(rig);
		if (i < LENT)
			assert_int_equal(rig_reply_of(client, i + 1)->header.status, STATUS_OK);
	}
	assert_int_equal(RIG_COUNT(rig, early_replies_total), LENT);
	assert_int_equal(RIG_COUNT(rig, connections_lost_total), 0);
	assert_int_equal(client->reply_count, LENT);
	for (uint32_t i = 0; i <= LENT; i++)
		rig_reply(rig, held[i], STATUS_OK);
	assert_int_equal(rig_reply_of(client, LENT + 1)->header.status, STATUS_OK);
	assert_int_equal(client->reply_count, LENT + 1);
	rig_stop(rig);
}

static void a_store_reads_every_byte_before_management_hears_of_it(void **state)
{
	struct rig_options options;
	uint8_t bytes[WIRE_INLINE_BYTES];

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct rig *rig;
		struct rig_client *client;
		struct request *request;

		rig_options_default(&options);
		options.seed = seed;
		options.block_stride = seed % 2 ? 64 : 80;
		rig = start(&options);
		client = rig_join(rig, 0);
		rig->auto_answer = false;
		for (uint32_t b = 0; b < 5 * RIG_CHUNK_BLOCKS; b++)
			rig_fill_block(client, 30 + b, b % RIG_CHUNK_BLOCKS, (uint8_t)(50 + b / RIG_CHUNK_BLOCKS));
		rig_send(client, bytes, rig_transfer(bytes, WIRE_STORE, 1, 2, 5, 30));
		rig_begin_transfer(rig, rig_take_request(rig));
		request = rig_take_done(rig);
		for (uint32_t i = 0; i < 5; i++) {
			assert_int_equal(request->transfer.outcomes[i], CHUNK_STORED);
			rig_assert_object(rig, 2 + i, (uint8_t)(50 + i));
		}
		assert_int_equal(request->transfer.moved_bytes, 5 * rig->object_bytes);
		rig_assert_guards(rig);
		rig_reply(rig, request, STATUS_OK);
		assert_outcomes(rig_reply_of(client, 1), STATUS_OK, 5, CHUNK_STORED);
		assert_int_equal(client->connection.bytes_in, 5 * rig->object_bytes);
		rig_stop(rig);
	}
}

static void nothing_to_move_ends_at_once(void **state)
{
	struct rig_options options;
	struct rig *rig;
	struct rig_client *client;
	struct request *request;
	struct ring_message message = { .kind = TO_WORKER_TRANSFER };
	uint8_t bytes[WIRE_INLINE_BYTES];

	(void)state;
	rig_options_default(&options);
	rig = start(&options);
	client = rig_join(rig, 0);
	rig->auto_answer = false;
	rig_send(client, bytes, rig_transfer(bytes, WIRE_RETRIEVE, 1, 0, 2, 0));
	request = rig_take_request(rig);
	request->transfer = (struct transfer){ .layout = client->layout,
		.parts = request->inline_parts,
		.outcomes = request->inline_outcomes,
		.to_client = true };
	memset(request->inline_parts, 0, sizeof(request->inline_parts));
	request->inline_outcomes[0] = CHUNK_MISSING;
	request->inline_outcomes[1] = CHUNK_SKIPPED;
	message.word[0] = (uint64_t)(uintptr_t)request;
	assert_true(ring_push(&rig->mailbox->to_worker, &message));
	request = rig_take_done(rig);
	assert_int_equal(request->transfer.outcomes[0], CHUNK_MISSING); /* as management had set them */
	assert_int_equal(request->transfer.outcomes[1], CHUNK_SKIPPED);
	assert_int_equal(request->transfer.moved_bytes, 0);
	rig_reply(rig, request, STATUS_OK);
	rig_stop(rig);
}

/* More chunks than a request brings parts for: the arrays come back once the reply is encoded. */
static void large_parts_come_back_with_the_reply(void **state)
{
	struct rig_options options;
	struct rig *rig;
	struct rig_client *client;
	uint8_t bytes[WIRE_INLINE_BYTES];

	(void)state;
	rig_options_default(&options);
	rig = start(&options);
	client = rig_join(rig, 0);
	fill_objects(rig, 0, 200);
	rig_send(client, bytes, rig_transfer(bytes, WIRE_RETRIEVE, 1, 0, 200, 0));
	assert_outcomes(rig_reply_of(client, 1), STATUS_OK, 200, CHUNK_DELIVERED);
	RIG_UNTIL(rig, rig->parts_back == 1);
	for (uint32_t b = 0; b < 200 * RIG_CHUNK_BLOCKS; b++)
		rig_assert_block(client, b, b % RIG_CHUNK_BLOCKS, (uint8_t)(b / RIG_CHUNK_BLOCKS));
	rig_send(client, bytes, rig_ping(bytes, 2));
	rig_reply_of(client, 2);
	assert_int_equal(rig->parts_back, 1);
	/* One run, 200 pieces a plane, 16 a work request. */
	assert_int_equal(RIG_COUNT(rig, work_requests_total), RIG_PLANES * ((200 + 15) / 16));
	assert_true(RIG_COUNT(rig, doorbells_total) < RIG_COUNT(rig, work_requests_total) / 4);
	rig_stop(rig);
}

static void shuffle(struct random *random, uint32_t *blocks)
{
	for (uint32_t i = 0; i < RIG_BLOCKS; i++) {
		uint32_t j = (uint32_t)random_below(random, i + 1);

		blocks[i] = blocks[j];
		blocks[j] = i;
	}
}

/* pitfalls I16: ten times the depth of the send queue in scattered blocks. The simulator answers a full queue with
 * ENOMEM. */
static void the_send_queue_never_overflows(void **state)
{
	struct rig_options options;
	static uint32_t blocks[RIG_BLOCKS];
	struct rig *rig;
	struct rig_client *client;
	const struct endpoint *endpoint;
	uint8_t *bytes = malloc(RIG_MESSAGE_MAX);
	uint32_t length;

	(void)state;
	rig_options_default(&options);
	rig = start(&options);
	client = rig_join(rig, 0);
	shuffle(&rig->random, blocks);
	fill_objects(rig, 0, 200);
	length = rig_scattered(bytes, RIG_MESSAGE_MAX, WIRE_RETRIEVE, 1, 0, 200, blocks);
	for (uint64_t id = 1; id <= 4; id++) {
		rig_scattered(bytes, RIG_MESSAGE_MAX, WIRE_RETRIEVE, id, 0, 200, blocks);
		rig_send_indirect(client, bytes, length, id, (unsigned)id);
	}
	while (!rig_find_reply(client, 4)) {
		rig_step(rig);
		endpoint = client->connection.worker;
		assert_true(!endpoint || endpoint->places_used <= options.send_depth);
	}
	assert_false(client->lost);
	for (uint32_t b = 0; b < 200 * RIG_CHUNK_BLOCKS; b++)
		rig_assert_block(client, blocks[b], b % RIG_CHUNK_BLOCKS, (uint8_t)(b / RIG_CHUNK_BLOCKS));
	assert_true(RIG_COUNT(rig, work_requests_total) > 4 * RIG_PLANES * 200 * RIG_CHUNK_BLOCKS * 9 / 10);
	assert_true(RIG_COUNT(rig, send_queue_waits_total) > 0);
	assert_true(rig->signalled < rig->work_requests / 8);
	free(bytes);
	rig_stop(rig);
}

/* A client that stores 33 chunks, all of whose blocks lie apart: one READ each. */
static struct rig_client *store_scattered(struct rig *rig)
{
	static uint32_t blocks[RIG_BLOCKS];
	uint8_t bytes[WIRE_INLINE_BYTES];
	struct rig_client *client = rig_join(rig, 0);

	shuffle(&rig->random, blocks);
	for (uint32_t b = 0; b < 33 * RIG_CHUNK_BLOCKS; b++)
		rig_fill_block(client, blocks[b], b % RIG_CHUNK_BLOCKS, (uint8_t)(b / RIG_CHUNK_BLOCKS));
	rig_send(client, bytes, rig_scattered(bytes, sizeof(bytes), WIRE_STORE, 1, 0, 33, blocks));
	return client;
}

static void assert_stored_scattered(struct rig *rig)
{
	for (uint32_t i = 0; i < 33; i++)
		rig_assert_object(rig, i, (uint8_t)i);
}

/* pitfalls I17, I16: 33 fragments with 16, 2 and 1 READs in flight, and with few pieces a work request. */
static void reads_keep_to_what_the_device_can_have_in_flight(void **state)
{
	static const uint32_t limits[] = { 16, 2, 1 };

	(void)state;
	for (unsigned l = 0; l < KVR_COUNT_OF(limits); l++) {
		struct rig_options options;
		struct rig *rig;
		struct rig_client *client;
		struct endpoint *endpoint;
		uint32_t most = 0;

		rig_options_default(&options);
		options.max_rd_atomic = limits[l];
		options.max_sge = 1 + l;
		rig = start(&options);
		client = store_scattered(rig);
		while (!rig_find_reply(client, 1)) {
			rig_step(rig);
			endpoint = client->connection.worker;
			if (endpoint && endpoint->reads_in_flight > most)
				most = endpoint->reads_in_flight;
		}
		assert_int_equal(most, limits[l]);
		assert_in_range(rig->widest, 1, options.max_sge);
		assert_stored_scattered(rig);
		rig_stop(rig);
	}
}

/* READs fill a window of their own: it is never passed but by the last one, and never by more than is signalled together. */
static void reads_have_a_window_of_bytes_and_are_signalled_every_few(void **state)
{
	struct rig_options options;
	struct rig *rig;
	struct rig_client *client;
	uint64_t most = 0;
	uint32_t reads = 0, together = 0;

	(void)state;
	rig_options_default(&options);
	options.max_sge = 1;
	rig = start(&options);
	rig->device->limits.read_window_bytes = 4 * options.block_bytes;
	rig->device->limits.reads_signalled = 2;
	client = store_scattered(rig);
	while (!rig_find_reply(client, 1)) {
		const struct endpoint *endpoint;

		rig_step(rig);
		endpoint = client->connection.worker;
		if (!endpoint)
			continue;
		most = endpoint->read_bytes_in_flight > most ? endpoint->read_bytes_in_flight : most;
		reads = endpoint->reads_in_flight > reads ? endpoint->reads_in_flight : reads;
		for (uint32_t m = 0; m < endpoint->mark_count; m++) {
			const struct mark *mark =
				&endpoint->marks[(endpoint->mark_first + m) % rig->worker->options.send_depth];

			together = mark->reads > together ? mark->reads : together;
		}
	}
	assert_int_equal(most, 4 * options.block_bytes);
	assert_int_equal(reads, 4);
	assert_int_equal(together, 2);
	assert_int_equal(((struct endpoint *)client->connection.worker)->read_bytes_in_flight, 0);
	assert_stored_scattered(rig);
	rig_stop(rig);
}

/* Where one READ fills the window, two are under way: the line is never idle between them. */
static void two_reads_are_under_way_however_large(void **state)
{
	struct rig_options options;
	struct rig *rig;
	struct rig_client *client;
	uint32_t reads = 0;

	(void)state;
	rig_options_default(&options);
	options.max_sge = 1;
	rig = start(&options);
	rig->device->limits.read_window_bytes = options.block_bytes / 2;
	rig->device->limits.reads_signalled = 1;
	client = store_scattered(rig);
	while (!rig_find_reply(client, 1)) {
		const struct endpoint *endpoint;

		rig_step(rig);
		endpoint = client->connection.worker;
		if (endpoint && endpoint->reads_in_flight > reads)
			reads = endpoint->reads_in_flight;
	}
	assert_int_equal(reads, 2);
	assert_stored_scattered(rig);
	rig_stop(rig);
}

static void the_connections_own_limit_of_reads_counts(void **state)
{
	struct rig_options options;
	struct rig *rig;
	struct rig_client *client;

	(void)state;
	rig_options_default(&options);
	rig = start(&options);
	client = rig_join(rig, 0);
	client->connection.reads_max = 3; /* before the worker sees OPEN */
	RIG_UNTIL(rig, client->connection.worker);
	assert_int_equal(((struct endpoint *)client->connection.worker)->reads_max, 3);
	client = rig_join(rig, 1);
	client->connection.reads_max = 300;
	RIG_UNTIL(rig, client->connection.worker);
	assert_int_equal(((struct endpoint *)client->connection.worker)->reads_max, rig->device->limits.max_rd_atomic);
	rig_stop(rig);
}

/* pitfalls I12: refused posts, wholly or in the middle of a chain, cost nothing but time. */
static void posts_that_are_refused_for_now_are_made_again(void **state)
{
	static const int errors[] = { ENOMEM, EAGAIN, EBUSY };
	static uint32_t blocks[RIG_BLOCKS];
	uint8_t bytes[WIRE_INLINE_BYTES];

	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct rig_options options;
		struct rig *rig;
		struct rig_client *client;

		rig_options_default(&options);
		options.seed = seed;
		rig = start(&options);
		rig->refuse_per_thousand = seed < 9 ? 10 : 300;
		rig->refuse_error = errors[seed % 3];
		client = rig_join(rig, 0);
		shuffle(&rig->random, blocks);
		for (uint32_t b = 0; b < 50 * RIG_CHUNK_BLOCKS; b++)
			rig_fill_block(client, blocks[b], b % RIG_CHUNK_BLOCKS, (uint8_t)(b / RIG_CHUNK_BLOCKS));
		rig_send(client, bytes, rig_scattered(bytes, sizeof(bytes), WIRE_STORE, 1, 0, 50, blocks));
		rig_send(client, bytes, rig_ping(bytes, 2));
		assert_outcomes(rig_reply_of(client, 1), STATUS_OK, 50, CHUNK_STORED);
		rig_reply_of(client, 2);
		for (uint32_t i = 0; i < 50; i++)
			rig_assert_object(rig, i, (uint8_t)i);
		/* Back again, to other places. */
		shuffle(&rig->random, blocks);
		rig_send(client, bytes, rig_scattered(bytes, sizeof(bytes), WIRE_RETRIEVE, 3, 0, 50, blocks));
		assert_outcomes(rig_reply_of(client, 3), STATUS_OK, 50, CHUNK_DELIVERED);
		for (uint32_t b = 0; b < 50 * RIG_CHUNK_BLOCKS; b++)
			rig_assert_block(client, blocks[b], b % RIG_CHUNK_BLOCKS, (uint8_t)(b / RIG_CHUNK_BLOCKS));
		assert_true(rig->refused > 0);
		assert_int_equal(RIG_COUNT(rig, retrieve_bytes_total), 50 * rig->object_bytes); /* nothing twice */
		assert_int_equal(RIG_COUNT(rig, store_bytes_total), 50 * rig->object_bytes);
		assert_false(client->lost);
		assert_int_equal(client->reply_count, 3);
		rig_stop(rig);
	}
}

static void a_post_that_can_never_be_made_ends_the_connection(void **state)
{
	static const int errors[] = { EINVAL, ENOMEM };
	uint8_t bytes[64];

	(void)state;
	for (unsigned i = 0; i < KVR_COUNT_OF(errors); i++) {
		struct rig_options options;
		struct rig *rig;
		struct rig_client *client;

		rig_options_default(&options);
		rig = start(&options);
		client = rig_join(rig, 0);
		rig->refuse_per_thousand = 1000;
		rig->refuse_error = errors[i];
		rig_send(client, bytes, rig_ping(bytes, 1));
		RIG_UNTIL(rig, client->lost && client->closed);
		assert_int_equal(rig->posts, errors[i] == EINVAL ? 1 : WORKER_REFUSALS_MAX + 1);
		rig_stop(rig);
	}
}

static void no_more_bytes_are_in_flight_than_a_reply_may_wait_for(void **state)
{
	struct rig_options options;
	struct rig *rig;
	struct rig_client *client;
	uint8_t bytes[WIRE_INLINE_BYTES];
	uint64_t most = 0;

	(void)state;
	rig_options_default(&options);
	options.block_bytes = options.block_stride = 8192;
	rig = start(&options);
	client = rig_join(rig, 0);
	rig_send(client, bytes, rig_transfer(bytes, WIRE_RETRIEVE, 1, 0, 200, 0)); /* 12.5 MiB */
	while (!rig_find_reply(client, 1)) {
		rig_step(rig);
		most = kvr_max_u64(most, rig->worker->bytes_in_flight);
	}
	assert_in_range(most, WORKER_WINDOW_BYTES, WORKER_WINDOW_BYTES + WORKER_WR_BYTES_MAX);
	assert_int_equal(RIG_COUNT(rig, retrieve_bytes_total), 200 * rig->object_bytes);
	rig_stop(rig);
}

/* A client with a small transfer waits for a turn of the big one, not for its end. */
static void a_small_transfer_passes_a_big_one(void **state)
{
	struct rig_options options;
	struct rig *rig;
	struct rig_client *big, *small;
	static uint32_t blocks[RIG_BLOCKS];
	uint8_t *bytes = malloc(RIG_MESSAGE_MAX);
	uint64_t begun, done_small;

	(void)state;
	rig_options_default(&options);
	options.sim.bytes_per_us = 1000;
	rig = start(&options);
	big = rig_join(rig, 0);
	small = rig_join(rig, 1);
	shuffle(&rig->random, blocks);
	rig_send_indirect(big, bytes, rig_scattered(bytes, RIG_MESSAGE_MAX, WIRE_RETRIEVE, 1, 0, 500, blocks), 1, 0);
	RIG_UNTIL(rig, RIG_COUNT(rig, work_requests_total) > 200);
	begun = RIG_COUNT(rig, work_requests_total);
	rig_send(small, bytes, rig_transfer(bytes, WIRE_RETRIEVE, 1, 0, 4, 0));
	rig_reply_of(small, 1);
	done_small = RIG_COUNT(rig, work_requests_total);
	assert_null(rig_find_reply(big, 1));
	assert_true(done_small - begun < 1200); /* of 4000 */
	rig_reply_of(big, 1);
	free(bytes);
	rig_stop(rig);
}

/* Two clients with the same to do have done nearly the same at any time. */
static void two_big_transfers_advance_side_by_side(void **state)
{
	struct rig_options options;
	struct rig *rig;
	static uint32_t blocks[RIG_BLOCKS];
	struct slot *slots[2];
	uint8_t *bytes = malloc(RIG_MESSAGE_MAX);
	uint32_t length;

	(void)state;
	rig_options_default(&options);
	rig = start(&options);
	rig_join(rig, 0);
	rig_join(rig, 1);
	shuffle(&rig->random, blocks);
	rig->auto_answer = false;
	length = rig_scattered(bytes, RIG_MESSAGE_MAX, WIRE_RETRIEVE, 1, 0, 400, blocks);
	for (unsigned c = 0; c < 2; c++)
		rig_send_indirect(&rig->clients[c], bytes, length, 1, 0);
	RIG_UNTIL(rig, rig->inbox_count == 2);
	rig->auto_answer = true;
	for (unsigned c = 0; c < 2; c++)
		slots[c] = slot_of(rig->inbox[c]);
	rig->inbox_count = 0;
	for (unsigned c = 0; c < 2; c++)
		rig_begin_transfer(rig, &slots[c]->request);
	do {
		int64_t difference;

		rig_step(rig);
		difference = (int64_t)(slots[0]->posted_bytes - slots[1]->posted_bytes);
		if (slots[0]->stage == SLOT_MOVING && slots[1]->stage == SLOT_MOVING)
			assert_in_range(llabs(difference), 0, 3 * options.send_depth * options.block_bytes);
	} while (rig->transfers_done < 2);
	rig_reply_of(&rig->clients[0], 1);
	rig_reply_of(&rig->clients[1], 1);
	free(bytes);
	rig_stop(rig);
}

/* pitfalls B03, at the worker: liveness is not queued behind copies. */
static void a_ping_is_answered_while_a_big_transfer_runs(void **state)
{
	struct rig_options options;
	struct rig *rig;
	struct rig_client *client;
	static uint32_t blocks[RIG_BLOCKS];
	uint8_t *bytes = malloc(RIG_MESSAGE_MAX);
	uint32_t pings = 0;

	(void)state;
	rig_options_default(&options);
	options.sim.bytes_per_us = 1000;
	rig = start(&options);
	client = rig_join(rig, 0);
	shuffle(&rig->random, blocks);
	rig_send_indirect(client, bytes, rig_scattered(bytes, RIG_MESSAGE_MAX, WIRE_RETRIEVE, 1, 0, 500, blocks), 1, 0);
	RIG_UNTIL(rig, RIG_COUNT(rig, work_requests_total) > 100);
	while (!rig_find_reply(client, 1)) {
		uint64_t before = RIG_COUNT(rig, work_requests_total);

		rig_send(client, bytes, rig_ping(bytes, 100 + pings));
		rig_reply_of(client, 100 + pings++);
		/* It passed everything but what was in the send queue already, and what went in while it travelled. */
		assert_true(RIG_COUNT(rig, work_requests_total) - before < 5 * options.send_depth);
	}
	assert_true(pings > 10);
	free(bytes);
	rig_stop(rig);
}

/* ---- everything at once ----------------------------------------------------------------------------------------- */

static void random_transfers_of_many_clients_move_every_byte(void **state)
{
	static uint32_t blocks[RIG_BLOCKS];
	uint8_t bytes[WIRE_INLINE_BYTES];

	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct rig_options options;
		struct rig *rig;

		rig_options_default(&options);
		options.seed = seed;
		options.max_rd_atomic = 1 + (uint32_t)(seed % 5);
		options.block_bytes = 40;
		options.block_stride = seed % 3 ? 40 : 48;
		options.sim.pieces_max = 6;
		options.gathers = seed % 3 == 1;
		rig = start(&options);
		rig->refuse_per_thousand = seed % 2 ? 5 : 0;
		rig->early = seed % 4 < 2;
		fill_objects(rig, 0, RIG_CHUNKS);
		for (unsigned c = 0; c < RIG_CLIENTS; c++)
			rig_join(rig, c);
		for (uint64_t round = 1; round <= 20; round++) {
			uint32_t first[RIG_CLIENTS], chunks[RIG_CLIENTS];

			shuffle(&rig->random, blocks);
			for (unsigned c = 0; c < RIG_CLIENTS; c++) {
				first[c] = c * 128 + (uint32_t)random_below(&rig->random, 60);
				chunks[c] = 1 + (uint32_t)random_below(&rig->random, 60);
				rig_send(&rig->clients[c], bytes,
					rig_scattered(bytes, sizeof(bytes), WIRE_RETRIEVE, 2 * round, first[c],
						chunks[c], blocks));
			}
			for (unsigned c = 0; c < RIG_CLIENTS; c++) {
				struct rig_client *client = &rig->clients[c];

				assert_outcomes(rig_reply_of(client, 2 * round), STATUS_OK, chunks[c], CHUNK_DELIVERED);
				for (uint32_t b = 0; b < chunks[c] * RIG_CHUNK_BLOCKS; b++)
					rig_assert_block(client, blocks[b], b % RIG_CHUNK_BLOCKS,
						(uint8_t)(first[c] + b / RIG_CHUNK_BLOCKS));
				/* And back: the objects must be as before. */
				for (uint32_t i = first[c]; i < first[c] + chunks[c]; i++)
					memset(rig_object(rig, i), 0, rig->object_bytes);
				rig_send(client, bytes,
					rig_scattered(bytes, sizeof(bytes), WIRE_STORE, 2 * round + 1, first[c],
						chunks[c], blocks));
			}
			for (unsigned c = 0; c < RIG_CLIENTS; c++) {
				assert_outcomes(rig_reply_of(&rig->clients[c], 2 * round + 1), STATUS_OK, chunks[c],
					CHUNK_STORED);
				for (uint32_t i = first[c]; i < first[c] + chunks[c]; i++)
					rig_assert_object(rig, i, (uint8_t)i);
			}
		}
		rig_assert_guards(rig);
		rig_stop(rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_retrieve_delivers_every_byte_before_its_reply),
		cmocka_unit_test(an_early_reply_is_right_behind_its_data),
		cmocka_unit_test(early_replies_give_their_credits_back),
		cmocka_unit_test(a_store_reads_every_byte_before_management_hears_of_it),
		cmocka_unit_test(nothing_to_move_ends_at_once),
		cmocka_unit_test(large_parts_come_back_with_the_reply),
		cmocka_unit_test(the_send_queue_never_overflows),
		cmocka_unit_test(reads_keep_to_what_the_device_can_have_in_flight),
		cmocka_unit_test(reads_have_a_window_of_bytes_and_are_signalled_every_few),
		cmocka_unit_test(two_reads_are_under_way_however_large),
		cmocka_unit_test(the_connections_own_limit_of_reads_counts),
		cmocka_unit_test(posts_that_are_refused_for_now_are_made_again),
		cmocka_unit_test(a_post_that_can_never_be_made_ends_the_connection),
		cmocka_unit_test(no_more_bytes_are_in_flight_than_a_reply_may_wait_for),
		cmocka_unit_test(a_small_transfer_passes_a_big_one),
		cmocka_unit_test(two_big_transfers_advance_side_by_side),
		cmocka_unit_test(a_ping_is_answered_while_a_big_transfer_runs),
		cmocka_unit_test(random_transfers_of_many_clients_move_every_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
