/* Transfers that management cuts short. */
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

static void shuffle(struct random *random, uint32_t *blocks)
{
	for (uint32_t i = 0; i < RIG_BLOCKS; i++) {
		uint32_t j = (uint32_t)random_below(random, i + 1);

		blocks[i] = blocks[j];
		blocks[j] = i;
	}
}

static struct request *begin_big(struct rig *rig, struct rig_client *client, uint16_t type)
{
	static uint32_t blocks[RIG_BLOCKS];
	uint8_t *bytes = malloc(RIG_MESSAGE_MAX);
	struct request *request;

	shuffle(&rig->random, blocks);
	rig->auto_answer = false;
	rig_send_indirect(client, bytes, rig_scattered(bytes, RIG_MESSAGE_MAX, type, 1, 0, 300, blocks), 1, 0);
	request = rig_take_request(rig);
	rig_begin_transfer(rig, request);
	free(bytes);
	return request;
}

/* pitfalls C05: after the abort is acknowledged nothing of it touches memory, and the connection lives. */
static void an_aborted_transfer_stops_and_touches_nothing_afterwards(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 120; seed++) {
		struct rig_options options;
		struct rig *rig;
		struct rig_client *client;
		struct request *request;
		uint8_t bytes[64];
		uint64_t after = random_mix(seed) % 1500;

		rig_options_default(&options);
		options.seed = seed;
		options.sim.pieces_max = 8;
		rig = start(&options);
		client = rig_join(rig, 0);
		fill_objects(rig, 0, 300);
		/* A post that is refused in the middle leaves work requests that nobody has signalled yet. */
		rig->refuse_per_thousand = seed % 2 == 0 ? 300 : 0;
		request = begin_big(rig, client, seed % 2 ? WIRE_RETRIEVE : WIRE_STORE);
		RIG_UNTIL(rig, RIG_COUNT(rig, work_requests_total) >= after);
		after = RIG_COUNT(rig, work_requests_total);
		rig_abort(rig, request);
		if (seed % 5 == 0)
			rig_abort(rig, request); /* twice is once */
		assert_ptr_equal(rig_take_done(rig), request);
		assert_true(RIG_COUNT(rig, work_requests_total) <=
			after + 1); /* one, when a refused post left it waiting */
		assert_int_equal(slot_of(request)->outstanding, 0);
		assert_true(request->transfer.outcomes[0] == CHUNK_CANCELED);
		assert_true(request->transfer.moved_bytes < 300 * rig->object_bytes);
		/* Both sides' memory may be used for something else now. */
		memset(rig->l1, 0x11, rig->l1_bytes);
		memset(rig_block(client, 0, 0), 0x22, (size_t)RIG_PLANES * RIG_BLOCKS * options.block_stride);
		rig->refuse_per_thousand = 0;
		rig_send(client, bytes, rig_ping(bytes, 2));
		rig_reply_of(client, 2);
		rig_steps(rig, 500);
		for (uint64_t i = 0; i < rig->l1_bytes; i++)
			assert_int_equal(rig->l1[i], 0x11);
		for (uint64_t i = 0; i < (uint64_t)RIG_PLANES * RIG_BLOCKS * options.block_stride; i++)
			assert_int_equal(rig_block(client, 0, 0)[i], 0x22);
		rig_reply(rig, request, STATUS_CANCELED);
		assert_int_equal(rig_reply_of(client, 1)->header.status, STATUS_CANCELED);
		assert_false(client->lost);
		rig_stop(rig);
	}
}

static void an_abort_before_anything_was_posted_ends_at_once(void **state)
{
	struct rig_options options;
	struct rig *rig;
	struct rig_client *client;
	struct request *request;
	uint64_t posts;

	(void)state;
	rig_options_default(&options);
	rig = start(&options);
	client = rig_join(rig, 0);
	request = begin_big(rig, client, WIRE_RETRIEVE);
	posts = rig->posts;
	rig_abort(rig, request); /* the worker finds TRANSFER and ABORT together */
	assert_ptr_equal(rig_take_done(rig), request);
	assert_int_equal(rig->posts, posts);
	assert_int_equal(request->transfer.outcomes[299], CHUNK_CANCELED);
	assert_int_equal(request->transfer.moved_bytes, 0);
	rig_reply(rig, request, STATUS_OK);
	assert_outcomes(rig_reply_of(client, 1), STATUS_PARTIAL, 300, CHUNK_CANCELED);
	rig_stop(rig);
}

static void an_abort_that_comes_too_late_changes_nothing(void **state)
{
	struct rig_options options;
	struct rig *rig;
	struct rig_client *client;
	struct request *request;
	uint8_t bytes[WIRE_INLINE_BYTES];

	(void)state;
	rig_options_default(&options);
	rig = start(&options);
	client = rig_join(rig, 0);
	rig->auto_answer = false;
	rig_send(client, bytes, rig_transfer(bytes, WIRE_RETRIEVE, 1, 0, 3, 0));
	request = rig_take_request(rig);
	rig_begin_transfer(rig, request);
	/* Everything is posted, the last completion is under way. */
	RIG_UNTIL(rig, plan_done(&slot_of(request)->plan) && slot_of(request)->outstanding > 0);
	rig_abort(rig, request);
	assert_ptr_equal(rig_take_done(rig), request);
	assert_int_equal(request->transfer.outcomes[0], CHUNK_DELIVERED);
	rig_abort(rig, request); /* crosses TRANSFER_DONE */
	rig_steps(rig, 50);
	assert_int_equal(rig->done_count, 0);
	rig_reply(rig, request, STATUS_OK);
	assert_outcomes(rig_reply_of(client, 1), STATUS_OK, 3, CHUNK_DELIVERED);

	/* The only abort comes when management has it back already, and before its reply. */
	rig_send(client, bytes, rig_transfer(bytes, WIRE_RETRIEVE, 2, 0, 3, 0));
	request = rig_take_request(rig);
	rig_begin_transfer(rig, request);
	rig_take_done(rig);
	rig_abort(rig, request);
	rig_steps(rig, 50);
	assert_int_equal(rig->done_count, 0);
	rig_reply(rig, request, STATUS_OK);
	assert_outcomes(rig_reply_of(client, 2), STATUS_OK, 3, CHUNK_DELIVERED);
	rig_stop(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_aborted_transfer_stops_and_touches_nothing_afterwards),
		cmocka_unit_test(an_abort_before_anything_was_posted_ends_at_once),
		cmocka_unit_test(an_abort_that_comes_too_late_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
