/* test_hold.c - requests that share a message, and replies that come in one, against a server made by hand. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "client/client_private.h"
#include "client/fake.h"

static void begin(struct fake *fake, uint32_t features, uint32_t credits)
{
	fake_start(fake, 1, NULL);
	fake->info.features = features;
	fake->info.credits = credits;
	fake_ready(fake);
	fake->sends_received = 0;
}

static void submit_pings(struct fake *fake, kvr_ticket *tickets, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(client_submit_ping(fake->client, &tickets[i]), 0);
}

/* Their replies, in one SEND. */
static uint32_t encode_replies(struct fake *fake, uint8_t *bytes, unsigned count)
{
	uint32_t length = 0;

	for (unsigned i = 0; i < count; i++) {
		struct empty_reply reply = { fake_reply_header(fake, &fake_request(fake, WIRE_PING)->header) };

		length += (uint32_t)empty_reply_encode(bytes + length, WIRE_HEADER_BYTES, &reply);
	}
	return length;
}

static void end(struct fake *fake)
{
	assert_int_equal(fake_free_slots(fake), CLIENT_SLOTS);
	assert_int_equal(fake->client->in_flight, 0);
	fake_stop(fake);
}

static void what_is_queued_goes_out_in_one_message_and_its_replies_come_in_one(void **state)
{
	uint8_t bytes[10 * WIRE_HEADER_BYTES];
	struct kvr_result result;
	kvr_ticket tickets[10];
	struct fake fake;

	(void)state;
	begin(&fake, FEATURE_SEVERAL_MESSAGES, 32);
	assert_true(fake.client->gathers);
	for (unsigned round = 0; round < 20; round++) {
		fake.sends_received = 0;
		submit_pings(&fake, tickets, 10);
		fake_reply(&fake, bytes, encode_replies(&fake, bytes, 10));
		assert_int_equal(fake.sends_received, 1);
		for (unsigned i = 0; i < 10; i++)
			assert_int_equal(fake_wait(&fake, tickets[i], &result), 0);
	}
	end(&fake);
}

static void with_an_older_server_each_request_travels_by_itself(void **state)
{
	struct kvr_result result;
	kvr_ticket tickets[10];
	struct fake fake;

	(void)state;
	begin(&fake, FEATURE_FLAG_PER_LAYER, 32);
	assert_false(fake.client->gathers);
	client_hold(fake.client); /* changes nothing */
	submit_pings(&fake, tickets, 10);
	for (unsigned i = 0; i < 10; i++) {
		fake_reply_empty(&fake, &fake_request(&fake, WIRE_PING)->header);
		assert_int_equal(fake_wait(&fake, tickets[i], &result), 0);
	}
	assert_int_equal(fake.sends_received, 10);
	client_release(fake.client);
	end(&fake);
}

static void what_is_held_waits_for_the_last_release(void **state)
{
	uint8_t bytes[3 * WIRE_HEADER_BYTES];
	struct kvr_result result;
	kvr_ticket tickets[3];
	struct fake fake;

	(void)state;
	begin(&fake, FEATURE_SEVERAL_MESSAGES, 32);
	client_hold(fake.client);
	client_hold(fake.client);
	for (unsigned i = 0; i < 3; i++) {
		submit_pings(&fake, &tickets[i], 1);
		fake_steps(&fake, 50);
	}
	client_release(fake.client);
	fake_steps(&fake, 50);
	assert_int_equal(fake_waiting(&fake), 0);
	client_release(fake.client);
	client_release(fake.client); /* one too many is harmless */
	fake_reply(&fake, bytes, encode_replies(&fake, bytes, 3));
	assert_int_equal(fake.sends_received, 1);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(fake_wait(&fake, tickets[i], &result), 0);
	submit_pings(&fake, tickets, 1); /* and nothing is held from now on */
	fake_reply_empty(&fake, &fake_request(&fake, WIRE_PING)->header);
	assert_int_equal(fake_wait(&fake, tickets[0], &result), 0);
	end(&fake);
}

static void whoever_waits_or_cancels_is_not_held_up(void **state)
{
	uint8_t bytes[WIRE_HEADER_BYTES];
	struct kvr_result result;
	kvr_ticket tickets[2];
	struct fake fake;

	(void)state;
	begin(&fake, FEATURE_SEVERAL_MESSAGES, 32);
	client_hold(fake.client);
	submit_pings(&fake, tickets, 1);
	fake.client->waiters++; /* as client_wait_until does */
	fake_reply(&fake, bytes, encode_replies(&fake, bytes, 1));
	fake.client->waiters--;
	assert_int_equal(fake_wait(&fake, tickets[0], &result), 0);
	client_release(fake.client);
	submit_pings(&fake, tickets, 1);
	fake_steps(&fake, 50);
	client_hold(fake.client);
	submit_pings(&fake, tickets + 1, 1);
	fake_steps(&fake, 50);
	assert_int_equal(fake_waiting(&fake), 1);
	assert_int_equal(client_submit_cancel(fake.client, tickets[0]), 0);
	fake_reply_empty(&fake, &fake_request(&fake, WIRE_PING)->header);
	fake_reply_empty(&fake, &fake_request(&fake, WIRE_CANCEL)->header);
	fake_reply_empty(&fake, &fake_request(&fake, WIRE_PING)->header);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(fake_wait(&fake, tickets[i], &result), 0);
	client_release(fake.client);
	fake_steps(&fake, 50);
	end(&fake);
}

static void a_message_of_several_keeps_to_the_credits(void **state)
{
	struct kvr_result result;
	kvr_ticket tickets[20];
	struct fake fake;

	(void)state;
	begin(&fake, FEATURE_SEVERAL_MESSAGES, 8);
	submit_pings(&fake, tickets, 20);
	fake_steps(&fake, 200);
	assert_int_equal(fake_waiting(&fake), 7); /* one credit is for a CANCEL */
	assert_int_equal(fake.sends_received, 1);
	for (unsigned i = 0; i < 20; i++) {
		fake_reply_empty(&fake, &fake_request(&fake, WIRE_PING)->header);
		assert_int_equal(fake_wait(&fake, tickets[i], &result), 0);
		fake_steps(&fake, 50);
		assert_true(fake_waiting(&fake) <= 7);
	}
	end(&fake);
}

static void a_message_of_several_fits_the_servers_receive_buffers(void **state)
{
	struct kvr_session *session;
	struct kvr_result result;
	kvr_ticket tickets[6];
	struct fake fake;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake.info.features = FEATURE_SEVERAL_MESSAGES;
	fake.info.inline_bytes = 1024;
	fake_ready(&fake);
	session = fake_session(&fake, fake_register(&fake), "session", 10);
	fake.sends_received = 0;
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(client_submit_lookup(session, 0, &tickets[i]), 0);
	for (unsigned i = 0; i < 6; i++) {
		struct fake_request *request = fake_request(&fake, WIRE_LOOKUP);

		assert_in_range(request->length, 321, 512); /* two of them have room in 1,024 bytes, and no third */
		assert_true(request->header.request_id == tickets[i]);
		fake_reply_lookup(&fake, &request->header, STATUS_OK, 3);
		assert_int_equal(fake_wait(&fake, tickets[i], &result), 0);
		assert_int_equal(result.chunks, 3);
	}
	assert_int_equal(fake.sends_received, 3);
	fake_finish(&fake, &session);
}

/* The buffer that all travel in is the first one's, and stays its own until the send has completed; the others are free at once. */
static void those_of_one_message_end_in_any_order(void **state)
{
	struct kvr_result result;
	kvr_ticket tickets[5];
	struct fake fake;

	(void)state;
	for (unsigned first = 0; first < 5; first++) {
		begin(&fake, FEATURE_SEVERAL_MESSAGES, 32);
		submit_pings(&fake, tickets, 5);
		for (unsigned i = 0; i < 5; i++)
			fake_request(&fake, WIRE_PING);
		for (unsigned i = 0; i < 5; i++) {
			unsigned which = (first + i) % 5;

			fake_reply_empty(&fake, &fake.requests[fake.request_count - 5 + which].header);
			assert_int_equal(fake_wait(&fake, tickets[which], &result), 0);
		}
		end(&fake);
	}
}

/* Nothing is said twice or left behind when the server goes with a message of several on its way. */
static void all_of_a_lost_message_end_with_the_connection(void **state)
{
	struct kvr_result result;
	kvr_ticket tickets[5];
	struct fake fake;

	(void)state;
	begin(&fake, FEATURE_SEVERAL_MESSAGES, 32);
	submit_pings(&fake, tickets, 5);
	fake_request(&fake, WIRE_PING);
	fake_drop(&fake);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(fake_wait(&fake, tickets[i], &result), -ECONNRESET);
	assert_int_equal(fake_free_slots(&fake), CLIENT_SLOTS);
	fake_stop(&fake);
}

static void bytes_behind_a_reply_that_are_none_end_the_connection(void **state)
{
	static const char *const junk[] = { "x", "GET / HTTP/1.1\r\nHost: kvrail.example\r\n\r\n" };
	uint8_t bytes[WIRE_HEADER_BYTES + 64];
	kvr_ticket tickets[2];
	struct fake fake;

	(void)state;
	for (unsigned i = 0; i < KVR_COUNT_OF(junk); i++) {
		uint32_t length;

		begin(&fake, FEATURE_SEVERAL_MESSAGES, 32);
		submit_pings(&fake, tickets, 2);
		length = encode_replies(&fake, bytes, 1);
		memcpy(bytes + length, junk[i], strlen(junk[i]));
		fake_reply(&fake, bytes, length + strlen(junk[i]));
		assert_int_equal(fake_failure(&fake, "malformed"), -EPROTO);
		fake_stop(&fake);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_queued_goes_out_in_one_message_and_its_replies_come_in_one),
		cmocka_unit_test(with_an_older_server_each_request_travels_by_itself),
		cmocka_unit_test(what_is_held_waits_for_the_last_release),
		cmocka_unit_test(whoever_waits_or_cancels_is_not_held_up),
		cmocka_unit_test(a_message_of_several_keeps_to_the_credits),
		cmocka_unit_test(a_message_of_several_fits_the_servers_receive_buffers),
		cmocka_unit_test(those_of_one_message_end_in_any_order),
		cmocka_unit_test(all_of_a_lost_message_end_with_the_connection),
		cmocka_unit_test(bytes_behind_a_reply_that_are_none_end_the_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
