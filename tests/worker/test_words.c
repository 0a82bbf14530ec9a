/* Transfers that keep step with their client by words in its memory: order, refusals, ends. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "worker/rig.h"

#define CHUNKS 5u
#define FIRST_BLOCK 100u
#define VALUE 0x01020304u

static void no_line(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

static struct rig *start(const struct rig_options *options)
{
	struct rig *rig;

	log_set_sink(no_line, NULL);
	rig = rig_start(options);
	for (uint32_t i = 0; i < 8; i++)
		rig_fill_object(rig, i, (uint8_t)i);
	return rig;
}

static struct transfer_order order_of(const struct rig_client *client)
{
	return (struct transfer_order){
		.layers_address = (uint64_t)(uintptr_t)rig_word(client, 0),
		.layers_region = 1,
		.layer_count = RIG_PLANES,
		.layer_value = VALUE,
		.after_region = 1,
		.after_address = (uint64_t)(uintptr_t)rig_word(client, 100),
		.after_value = VALUE,
	};
}

static void send_ordered(struct rig_client *client, uint16_t type, uint64_t id, uint16_t flags)
{
	struct transfer_order order = order_of(client);
	uint8_t bytes[WIRE_INLINE_BYTES];
	uint32_t length = rig_transfer(bytes, type, id, 2, CHUNKS, FIRST_BLOCK);

	rig_send(client, bytes, rig_ordered(bytes, length, flags, &order));
}

static void assert_outcomes(const struct rig_reply *got, uint16_t status, enum chunk_outcome outcome)
{
	struct transfer_reply reply;
	struct wire_error error;

	assert_int_equal(transfer_reply_decode(got->bytes, got->length, &reply, &error), 0);
	assert_int_equal(reply.header.status, status);
	for (uint32_t i = 0; i < reply.chunk_count; i++)
		assert_int_equal(reply.outcomes[i], outcome);
}

static bool plane_is_there(const struct rig *rig, const struct rig_client *client, uint32_t plane)
{
	for (uint32_t b = 0; b < CHUNKS * RIG_CHUNK_BLOCKS; b++) {
		const uint8_t *object = rig_object(rig, 2 + b / RIG_CHUNK_BLOCKS) +
			((uint64_t)plane * RIG_CHUNK_BLOCKS + b % RIG_CHUNK_BLOCKS) * rig->options.block_bytes;

		if (memcmp(rig_block(client, plane, FIRST_BLOCK + b), object, rig->options.block_bytes) != 0)
			return false;
	}
	return true;
}

/* Posts that are refused in the middle of a chain; no inline data. */
static void a_word_is_never_there_before_its_plane(void **state)
{
	struct rig_options options;

	(void)state;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct rig_client *client;
		struct rig *rig;

		rig_options_default(&options);
		options.seed = seed;
		options.block_stride = seed % 2 ? 64 : 80;
		options.no_inline = seed % 3 == 0;
		rig = start(&options);
		client = rig_join(rig, 0);
		rig->early = seed % 4 == 0;
		memset(rig_word(client, 0), 0, 4 * RIG_PLANES);
		rig->refuse_error = ENOMEM;
		rig->refuse_per_thousand = seed % 2 ? 300 : 0;
		send_ordered(client, WIRE_RETRIEVE, 1, TRANSFER_LAYERS);
		for (uint32_t p = 0; p < RIG_PLANES; p++) {
			RIG_UNTIL(rig, *rig_word(client, p) == VALUE);
			assert_true(plane_is_there(rig, client, p));
		}
		assert_outcomes(rig_reply_of(client, 1), STATUS_OK, CHUNK_DELIVERED);
		assert_int_equal(*rig_word(client, RIG_PLANES), RIG_POISON * 0x01010101u);
		rig->refuse_per_thousand = 0;
		rig_stop(rig);
	}
}

static void a_transfer_waits_for_its_word_and_lets_others_pass(void **state)
{
	struct rig_options options;
	struct rig_client *client;
	uint8_t bytes[WIRE_INLINE_BYTES];
	struct rig *rig;

	(void)state;
	rig_options_default(&options);
	rig = start(&options);
	client = rig_join(rig, 0);
	*rig_word(client, 100) = VALUE - 1;
	send_ordered(client, WIRE_RETRIEVE, 1, TRANSFER_AFTER);
	rig_send(client, bytes, rig_transfer(bytes, WIRE_RETRIEVE, 2, 2, CHUNKS, 200));
	rig_reply_of(client, 2);
	RIG_UNTIL(rig, RIG_COUNT(rig, word_waits_total) > 3);
	assert_false(plane_is_there(rig, client, 0));
	assert_null(rig_find_reply(client, 1));
	assert_false(worker_arm(rig->worker)); /* nothing else would look at the word */
	*rig_word(client, 100) = VALUE + 5;    /* later ones count, too */
	assert_outcomes(rig_reply_of(client, 1), STATUS_OK, CHUNK_DELIVERED);
	assert_true(plane_is_there(rig, client, 1));
	rig_stop(rig);
}

static void a_store_that_waits_can_be_aborted_at_any_time(void **state)
{
	struct rig_options options;

	(void)state;
	for (unsigned steps = 0; steps < 120; steps += 5) {
		struct rig_client *client;
		struct request *request;
		struct rig *rig;

		rig_options_default(&options);
		options.seed = steps + 1;
		rig = start(&options);
		client = rig_join(rig, 0);
		rig->auto_answer = false;
		send_ordered(client, WIRE_STORE, 1, TRANSFER_AFTER);
		request = rig_take_request(rig);
		*rig_word(client, 100) = VALUE - 1;
		rig_begin_transfer(rig, request);
		rig_steps(rig, steps);
		rig_abort(rig, request);
		rig_reply(rig, rig_take_done(rig), STATUS_OK);
		assert_outcomes(rig_reply_of(client, 1), STATUS_PARTIAL, CHUNK_CANCELED);
		for (uint32_t i = 0; i < CHUNKS; i++)
			rig_assert_object(rig, 2 + i, (uint8_t)(2 + i));
		rig_stop(rig);
	}
}

static void a_connection_that_ends_gives_what_waits_back(void **state)
{
	struct rig_options options;

	(void)state;
	for (unsigned steps = 0; steps < 120; steps += 5) {
		struct rig_client *client;
		struct rig *rig;

		rig_options_default(&options);
		options.seed = steps + 1;
		rig = start(&options);
		client = rig_join(rig, 0);
		*rig_word(client, 100) = VALUE - 1;
		for (uint64_t id = 1; id <= 3; id++)
			send_ordered(client, WIRE_RETRIEVE, id, TRANSFER_AFTER | TRANSFER_LAYERS);
		RIG_UNTIL(rig, RIG_COUNT(rig, requests_total) == 3);
		rig_steps(rig, steps);
		if (steps % 2)
			sim_fabric_cut(rig->fabric, client->server_qp->qp_num);
		else
			rig_close(client);
		rig_leave(client);
		rig_stop(rig);
	}
}

static void words_outside_the_clients_memory_are_refused(void **state)
{
	struct rig_options options;
	struct transfer_order order;
	uint8_t bytes[WIRE_INLINE_BYTES];
	struct rig_client *client;
	struct rig *rig;
	uint32_t length;

	(void)state;
	rig_options_default(&options);
	rig = start(&options);
	client = rig_join(rig, 0);
	for (uint64_t id = 1; id <= 7; id++) {
		uint16_t flags = id < 5 ? TRANSFER_LAYERS : TRANSFER_AFTER;
		uint64_t region_end = client->regions[1].address + client->regions[1].length;

		order = order_of(client);
		if (id == 1)
			order.layers_region = 0; /* not there */
		else if (id == 2)
			order.layers_region = 2; /* beyond the table */
		else if (id == 3)
			order.layers_address = region_end - 4; /* two words */
		else if (id == 4)
			order.layers_address = client->regions[1].address - 4;
		else if (id == 5)
			order.after_address = region_end;
		else if (id == 6)
			order.after_address = UINT64_MAX - 3;
		else
			order.after_region = UINT32_MAX;
		length = rig_transfer(bytes, WIRE_RETRIEVE, id, 2, CHUNKS, FIRST_BLOCK);
		rig_send(client, bytes, rig_ordered(bytes, length, flags, &order));
		assert_int_equal(rig_reply_of(client, id)->header.status, STATUS_INVALID_MEMORY);
	}
	assert_int_equal(rig->requests, 0);
	assert_false(client->lost);
	rig_stop(rig);
}

static void a_region_of_words_is_forgotten_when_its_transfers_have_ended(void **state)
{
	struct rig_options options;

	(void)state;
	for (unsigned steps = 0; steps < 60; steps += 3) {
		struct rig_client *client;
		struct rig *rig;

		rig_options_default(&options);
		options.seed = steps + 1;
		rig = start(&options);
		client = rig_join(rig, 0);
		*rig_word(client, 100) = VALUE - 1;
		send_ordered(client, WIRE_RETRIEVE, 1, steps % 2 ? TRANSFER_LAYERS : TRANSFER_AFTER);
		RIG_UNTIL(rig, rig->requests == 1);
		rig_steps(rig, steps);
		kvr_store_release(&client->regions[1].present, false);
		rig_tell(rig, TO_WORKER_FORGET, &client->connection, 1);
		if (steps % 2 == 0) {
			rig_steps(rig, 200);
			/* What waits keeps it, unless it was not begun yet: then it has failed. */
			assert_true(client->forgotten == 0 || rig_find_reply(client, 1));
			*rig_word(client, 100) = VALUE;
		}
		while (!client->forgotten)
			rig_step(rig);
		rig_reply_of(client, 1);
		rig_stop(rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_word_is_never_there_before_its_plane),
		cmocka_unit_test(a_transfer_waits_for_its_word_and_lets_others_pass),
		cmocka_unit_test(a_store_that_waits_can_be_aborted_at_any_time),
		cmocka_unit_test(a_connection_that_ends_gives_what_waits_back),
		cmocka_unit_test(words_outside_the_clients_memory_are_refused),
		cmocka_unit_test(a_region_of_words_is_forgotten_when_its_transfers_have_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
