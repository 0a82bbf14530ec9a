/* Several requests in one SEND, and several replies: whose buffer is whose, what counts, and what is refused. */
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

static struct rig *start(bool gathers)
{
	struct rig_options options;

	log_set_sink(no_line, NULL);
	rig_options_default(&options);
	options.gathers = gathers;
	options.credits = 20;
	return rig_start(&options);
}

/* `count` LOOKUPs in one SEND, with ids from `first` on. */
static void send_lookups(struct rig_client *client, uint64_t first, uint32_t count)
{
	uint8_t bytes[512];

	rig_hold(client);
	for (uint32_t i = 0; i < count; i++)
		rig_send(client, bytes, rig_lookup(bytes, sizeof(bytes), first + i, 1 + i % 5));
	rig_release(client);
}

static uint32_t count_stage(const struct rig *rig, enum slot_stage stage)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < rig->worker->slot_count; i++)
		count += rig->worker->slots[i].stage == stage;
	return count;
}

static void requests_in_one_message_are_each_answered_and_their_replies_share_one(void **state)
{
	struct rig *rig = start(true);
	struct rig_client *client = rig_join(rig, 0);
	uint8_t bytes[512];

	(void)state;
	rig_hold(client);
	for (uint64_t id = 1; id <= 6; id++)
		rig_send(client, bytes, rig_ping(bytes, id));
	rig_send(client, bytes, rig_lookup(bytes, sizeof(bytes), 7, 3));
	rig_release(client);
	for (uint64_t id = 1; id <= 7; id++)
		assert_int_equal(rig_reply_of(client, id)->header.status, STATUS_OK);
	for (uint64_t id = 1; id <= 7; id++)
		assert_int_equal(rig_count_replies(client, id), 1);
	assert_int_equal(client->sent, 1);
	assert_in_range(client->sends_received, 1, 2); /* the LOOKUP's comes from another core */
	assert_int_equal(RIG_COUNT(rig, requests_total), 7);
	assert_int_equal(RIG_COUNT(rig, requests_gathered_total), 6);
	assert_true(RIG_COUNT(rig, replies_gathered_total) >= 5);
	assert_int_equal(RIG_COUNT(rig, replies_total), 7);
	rig_stop(rig);
}

static void small_retrieves_of_one_message_are_answered_by_one_behind_all_their_data(void **state)
{
	struct rig *rig = start(true);
	struct rig_client *client = rig_join(rig, 0);
	uint8_t bytes[512];

	(void)state;
	rig->early = true;
	rig_hold(client);
	for (uint32_t i = 0; i < 10; i++) {
		rig_fill_object(rig, i, (uint8_t)i);
		rig_send(client, bytes, rig_transfer(bytes, WIRE_RETRIEVE, 1 + i, i, 1, 100 + i * RIG_CHUNK_BLOCKS));
	}
	rig_release(client);
	for (uint32_t i = 0; i < 10; i++) {
		rig_reply_of(client, 1 + i);
		for (uint32_t b = 0; b < RIG_CHUNK_BLOCKS; b++)
			rig_assert_block(client, 100 + i * RIG_CHUNK_BLOCKS + b, b, (uint8_t)i);
	}
	assert_in_range(client->sends_received, 1, 3);
	assert_int_equal(RIG_COUNT(rig, early_replies_total), rig->worker->early_max);
	rig_stop(rig);
}

/* Its replies wait for no more data than WORKER_GATHER_BYTES, and not at all for a transfer that is longer. */
static void replies_wait_for_a_bounded_amount_of_data(void **state)
{
	struct rig_options options;
	struct rig_client *client;
	uint8_t bytes[512];
	struct rig *rig;

	(void)state;
	log_set_sink(no_line, NULL);
	rig_options_default(&options);
	options.gathers = true;
	options.credits = 20;
	options.block_bytes = options.block_stride = 8192; /* 64 KiB a chunk */
	rig = rig_start(&options);
	client = rig_join(rig, 0);
	rig->early = true;
	rig_hold(client);
	for (uint32_t i = 0; i < 8; i++)
		rig_send(client, bytes, rig_transfer(bytes, WIRE_RETRIEVE, 1 + i, i, 1, 100 + i * RIG_CHUNK_BLOCKS));
	rig_release(client);
	for (uint64_t id = 1; id <= 8; id++)
		rig_reply_of(client, id);
	assert_in_range(client->sends_received, 3, 8);
	client->sends_received = 0;
	rig_hold(client);
	rig_send(client, bytes, rig_ping(bytes, 21));
	for (uint32_t i = 0; i < 3; i++)
		rig_send(client, bytes,
			rig_transfer(bytes, WIRE_RETRIEVE, 22 + i, 8 * i, 3, 100 + i * 3 * RIG_CHUNK_BLOCKS));
	rig_release(client);
	for (uint64_t id = 21; id <= 24; id++)
		rig_reply_of(client, id);
	assert_in_range(client->sends_received, 3, 4);
	rig_stop(rig);
}

/* pitfalls I11: a request that is under way keeps its bytes, and the device gets the buffer back when none is. */
static void a_receive_buffer_is_posted_again_when_the_last_of_its_requests_has_ended(void **state)
{
	for (uint32_t last = 0; last < 4; last++) {
		struct rig *rig = start(true);
		struct rig_client *client = rig_join(rig, 0);
		struct request *requests[4];

		(void)state;
		rig->auto_answer = false;
		send_lookups(client, 1, 4);
		for (uint32_t i = 0; i < 4; i++)
			requests[i] = rig_take_request(rig);
		assert_int_equal(count_stage(rig, SLOT_POSTED), rig->worker->slot_count - 1);
		for (uint32_t i = 0; i < 4; i++) {
			if (i == last)
				continue;
			rig_reply(rig, requests[i], STATUS_OK);
			rig_reply_of(client, 1 + i);
			assert_int_equal(count_stage(rig, SLOT_POSTED), rig->worker->slot_count - 1);
		}
		/* What others send goes elsewhere. */
		send_lookups(client, 10, 5);
		for (uint32_t i = 0; i < 5; i++)
			rig_reply(rig, rig_take_request(rig), STATUS_OK);
		for (uint32_t i = 0; i < 5; i++)
			rig_reply_of(client, 10 + i);
		assert_int_equal(requests[last]->header.request_id, 1 + last);
		assert_int_equal(requests[last]->message.lookup.session.id.length, 7);
		assert_memory_equal(requests[last]->message.lookup.session.id.bytes, "session", 7);
		rig_reply(rig, requests[last], STATUS_OK);
		rig_reply_of(client, 1 + last);
		RIG_UNTIL(rig, count_stage(rig, SLOT_POSTED) == rig->worker->slot_count);
		rig_stop(rig);
	}
}

static void one_that_is_fetched_from_memory_travels_along(void **state)
{
	struct rig *rig = start(true);
	struct rig_client *client = rig_join(rig, 0);
	uint8_t bytes[4096];

	(void)state;
	rig_hold(client);
	rig_send(client, bytes, rig_ping(bytes, 1));
	for (uint64_t id = 2; id <= 4; id++)
		rig_send_indirect(
			client, bytes, rig_lookup(bytes, sizeof(bytes), id, 50), id, (unsigned)id % RIG_PLACES);
	rig_send(client, bytes, rig_ping(bytes, 5));
	rig_release(client);
	for (uint64_t id = 1; id <= 5; id++)
		assert_int_equal(rig_reply_of(client, id)->header.status, STATUS_OK);
	assert_int_equal(RIG_COUNT(rig, indirect_total), 3);
	assert_int_equal(client->sent, 1);
	rig_stop(rig);
}

static void each_request_of_a_message_takes_a_credit(void **state)
{
	struct rig *rig = start(true);
	struct rig_client *client = rig_join(rig, 0), *bystander = rig_join(rig, 1);
	uint32_t credits = rig->options.credits;
	uint8_t bytes[64];

	(void)state;
	rig->auto_answer = false;
	send_lookups(client, 1, credits);
	RIG_UNTIL(rig, rig->inbox_count == credits);
	rig_steps(rig, 200);
	assert_false(client->lost);
	send_lookups(client, 101, 3); /* the first is refused, the others are not listened to */
	assert_int_equal(rig_reply_of(client, 101)->header.status, STATUS_CREDITS_EXCEEDED);
	RIG_UNTIL(rig, client->lost);
	assert_null(rig_find_reply(client, 102));
	while (rig->inbox_count > 0)
		rig_reply(rig, rig_take_request(rig), STATUS_OK);
	RIG_UNTIL(rig, client->closed);
	rig_send(bystander, bytes, rig_ping(bytes, 1));
	rig_reply_of(bystander, 1);
	rig_stop(rig);
}

static void all_credits_of_all_clients_in_a_few_messages_find_room(void **state)
{
	struct rig *rig = start(true);
	uint32_t credits = rig->options.credits;

	(void)state;
	rig->auto_answer = false;
	for (unsigned c = 0; c < RIG_CLIENTS; c++)
		send_lookups(rig_join(rig, c), 1, credits);
	RIG_UNTIL(rig, rig->inbox_count == RIG_CLIENTS * credits);
	assert_true(list_empty(&rig->worker->unposted));
	assert_int_equal(count_stage(rig, SLOT_POSTED), rig->worker->slot_count - RIG_CLIENTS);
	while (rig->inbox_count > 0)
		rig_reply(rig, rig_take_request(rig), STATUS_OK);
	for (unsigned c = 0; c < RIG_CLIENTS; c++)
		for (uint64_t id = 1; id <= credits; id++)
			rig_reply_of(&rig->clients[c], id);
	rig_stop(rig);
}

static void without_the_feature_what_is_behind_a_message_is_left_alone(void **state)
{
	struct rig *rig = start(false);
	struct rig_client *client = rig_join(rig, 0);
	uint8_t bytes[64];

	(void)state;
	rig_hold(client);
	rig_send(client, bytes, rig_ping(bytes, 1));
	rig_send(client, bytes, rig_ping(bytes, 2));
	rig_release(client);
	rig_reply_of(client, 1);
	rig_send(client, bytes, rig_ping(bytes, 3));
	rig_reply_of(client, 3);
	assert_null(rig_find_reply(client, 2));
	assert_int_equal(RIG_COUNT(rig, requests_gathered_total), 0);
	rig_stop(rig);
}

/* Those in front are answered all the same, should the connection live long enough. */
static void bytes_behind_a_message_that_are_none_end_the_connection(void **state)
{
	static const char *const junk[] = { "x", "KVRL", "GET / HTTP/1.1\r\nHost: kvrail.example\r\n\r\n" };
	uint8_t bytes[64];

	(void)state;
	for (unsigned i = 0; i < KVR_COUNT_OF(junk); i++) {
		struct rig *rig = start(true);
		struct rig_client *client = rig_join(rig, 0), *bystander = rig_join(rig, 1);

		rig_hold(client);
		rig_send(client, bytes, rig_ping(bytes, 1));
		rig_send(client, junk[i], (uint32_t)strlen(junk[i]));
		rig_release(client);
		RIG_UNTIL(rig, client->lost && client->closed);
		assert_int_equal(RIG_COUNT(rig, malformed_total), 1);
		rig_send(bystander, bytes, rig_ping(bytes, 1));
		rig_reply_of(bystander, 1);
		rig_stop(rig);
	}
}

/* Nobody can say where the next one begins: the rest is its own, and it is refused. */
static void a_length_that_cannot_be_true_is_refused_with_all_that_is_behind(void **state)
{
	static const uint32_t lengths[] = { 0, 31, 65, 4096, UINT32_MAX };
	uint8_t bytes[64];

	(void)state;
	for (unsigned i = 0; i < KVR_COUNT_OF(lengths); i++) {
		struct rig *rig = start(true);
		struct rig_client *client = rig_join(rig, 0);

		rig_hold(client);
		rig_send(client, bytes, rig_ping(bytes, 1));
		rig_ping(bytes, 2);
		memcpy(bytes + 4, &lengths[i], sizeof(lengths[i]));
		rig_send(client, bytes, WIRE_HEADER_BYTES);
		rig_send(client, bytes, rig_ping(bytes, 3));
		rig_release(client);
		assert_int_equal(rig_reply_of(client, 1)->header.status, STATUS_OK);
		assert_false(status_has_body(rig_reply_of(client, 2)->header.status));
		rig_send(client, bytes, rig_ping(bytes, 4));
		rig_reply_of(client, 4);
		assert_null(rig_find_reply(client, 3));
		assert_false(client->lost);
		rig_stop(rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_in_one_message_are_each_answered_and_their_replies_share_one),
		cmocka_unit_test(small_retrieves_of_one_message_are_answered_by_one_behind_all_their_data),
		cmocka_unit_test(replies_wait_for_a_bounded_amount_of_data),
		cmocka_unit_test(a_receive_buffer_is_posted_again_when_the_last_of_its_requests_has_ended),
		cmocka_unit_test(one_that_is_fetched_from_memory_travels_along),
		cmocka_unit_test(each_request_of_a_message_takes_a_credit),
		cmocka_unit_test(all_credits_of_all_clients_in_a_few_messages_find_room),
		cmocka_unit_test(without_the_feature_what_is_behind_a_message_is_left_alone),
		cmocka_unit_test(bytes_behind_a_message_that_are_none_end_the_connection),
		cmocka_unit_test(a_length_that_cannot_be_true_is_refused_with_all_that_is_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
