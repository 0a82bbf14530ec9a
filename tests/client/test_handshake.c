/* test_handshake.c - getting connected, being refused, and coming back, against a server made by hand. */
#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "client/client_private.h"
#include "client/fake.h"

static void give_secret(struct fake *fake)
{
	memcpy(fake->client->secret, "sixteen bytes or", 16);
	fake->client->secret_length = 16;
}

struct refusal {
	uint16_t status;
	int error;
	bool final;
};

static const struct refusal refusals[] = {
	{ STATUS_LIMIT, -EUSERS, false },
	{ STATUS_SHUTTING_DOWN, -ESHUTDOWN, false },
	{ STATUS_BUSY, -EBUSY, false },
	{ STATUS_INTERNAL, -EREMOTEIO, false },
	{ STATUS_OUT_OF_ORDER, -EPROTO, false },
	{ STATUS_UNSUPPORTED_VERSION, -EPROTONOSUPPORT, true },
	{ STATUS_NOT_ALLOWED, -EPERM, true },
	{ STATUS_AUTHENTICATION_FAILED, -EACCES, true },
	{ STATUS_NOT_AUTHENTICATED, -EACCES, true },
};

static void refuse_at(const struct refusal *refusal, uint16_t at)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct fake fake;

	options.key_name = "key";
	fake_start(&fake, 1, &options);
	give_secret(&fake);
	fake_control(&fake, WIRE_HELLO);
	if (at != WIRE_HELLO)
		fake_say_hello(&fake, at == WIRE_AUTHENTICATE);
	if (at != WIRE_HELLO)
		fake_control(&fake, at);
	fake_refuse(&fake, refusal->status, "because of the weather");
	assert_int_equal(fake_failure(&fake, "because of the weather"), refusal->error);
	fake_pass(&fake, 120 * KVR_MS);
	assert_int_equal(fake.attempts > 1, !refusal->final);
	assert_int_equal(fake.client->state == CONNECTION_FAILED, refusal->final);
	fake_stop(&fake);
}

static void every_refusal_has_its_errno_and_is_final_or_tried_again(void **state)
{
	(void)state;
	for (unsigned i = 0; i < KVR_COUNT_OF(refusals); i++) {
		refuse_at(&refusals[i], WIRE_HELLO);
		refuse_at(&refusals[i], WIRE_AUTHENTICATE);
		refuse_at(&refusals[i], WIRE_CONNECT);
	}
}

static void a_refusal_is_read_although_the_server_closed_at_once(void **state)
{
	struct fake fake;

	(void)state;
	fake_start(&fake, 1, NULL);
	while (!fake.stream)
		fake_step(&fake);
	memset(&fake.header, 0, sizeof(fake.header));
	fake.header.type = WIRE_HELLO;
	fake_refuse(&fake, STATUS_LIMIT, "64 clients are here already");
	fake.stream->ops->close(fake.stream);
	fake.stream = NULL;
	assert_int_equal(fake_failure(&fake, "64 clients are here already"), -EUSERS);
	fake_stop(&fake);
}

/* One byte of one reply turned over: the client gets ready, or says what is wrong, or runs into its time limit. */
static void spoil(uint16_t at, uint32_t offset)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	const char *text;
	struct fake fake;

	options.connect_timeout_ns = 50 * KVR_MS;
	fake_start(&fake, 1, &options);
	fake_control(&fake, WIRE_HELLO);
	fake.spoil = at == WIRE_HELLO ? offset + 1 : 0;
	fake_say_hello(&fake, false);
	if (at != WIRE_HELLO) {
		fake_control(&fake, WIRE_CONNECT);
		fake.spoil = at == WIRE_CONNECT ? offset + 1 : 0;
		fake_say_connect(&fake);
	}
	if (at == WIRE_MEMORY) {
		fake_control(&fake, WIRE_MEMORY);
		fake.spoil = offset + 1;
		fake_say_memory(&fake, 3);
	}
	fake_pass(&fake, 60 * KVR_MS);
	if (client_failure(fake.client, &text))
		assert_true(text[0] != '\0');
	else
		assert_true(client_ready(fake.client) || fake.control_length > 0);
	fake_stop(&fake);
}

static void a_spoiled_reply_is_an_error_with_words(void **state)
{
	(void)state;
	for (uint32_t offset = 0; offset < 100; offset++) {
		spoil(WIRE_HELLO, offset);
		spoil(WIRE_CONNECT, offset);
		if (offset < 36)
			spoil(WIRE_MEMORY, offset);
	}
}

static void a_reply_out_of_order_ends_the_attempt(void **state)
{
	struct fake fake;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake_control(&fake, WIRE_HELLO);
	fake.header.type = WIRE_MEMORY;
	fake_say_memory(&fake, 1);
	assert_int_equal(fake_failure(&fake, "MEMORY_REPLY out of order"), -EPROTO);
	fake_stop(&fake);
}

static void a_reply_to_another_request_ends_the_attempt(void **state)
{
	struct fake fake;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake_control(&fake, WIRE_HELLO);
	fake.header.request_id += 1;
	fake_say_hello(&fake, false);
	assert_int_equal(fake_failure(&fake, "HELLO_REPLY out of order"), -EPROTO);
	fake_stop(&fake);
}

static void bytes_of_another_protocol_end_the_attempt(void **state)
{
	struct fake fake;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake_control(&fake, WIRE_HELLO);
	fake_say(&fake, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
	assert_int_equal(fake_failure(&fake, "not the kvrail protocol"), -EPROTO);
	fake_stop(&fake);
}

static void a_challenge_is_answered_with_the_proof_of_the_secret(void **state)
{
	static const uint8_t challenge[32] = { 1, 2, 3 };
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct authenticate message;
	struct wire_error error;
	uint8_t proof[32];
	struct fake fake;

	(void)state;
	options.key_name = "team-a";
	fake_start(&fake, 1, &options);
	give_secret(&fake);
	fake_control(&fake, WIRE_HELLO);
	fake_say_hello(&fake, true);
	fake_control(&fake, WIRE_AUTHENTICATE);
	assert_int_equal(authenticate_decode(fake.message, fake.header.length, &message, &error), 0);
	assert_int_equal(digest_proof("sixteen bytes or", 16, challenge, message.nonce, "team-a", 6, proof), 0);
	assert_memory_equal(message.proof, proof, sizeof(proof));
	fake_stop(&fake);
}

static void a_challenge_without_a_secret_says_what_to_set(void **state)
{
	struct fake fake;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake_control(&fake, WIRE_HELLO);
	fake_say_hello(&fake, true);
	assert_int_equal(fake_failure(&fake, "key_name and key_file"), -EACCES);
	assert_int_equal(fake.client->state, CONNECTION_FAILED);
	fake_stop(&fake);
}

static void another_tenant_than_expected_is_final(void **state)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct fake fake;

	(void)state;
	options.tenant = "team-b";
	fake_start(&fake, 1, &options);
	fake_control(&fake, WIRE_HELLO);
	fake_say_hello(&fake, false);
	assert_int_equal(fake_failure(&fake, "team-b"), -EACCES);
	assert_int_equal(fake.client->state, CONNECTION_FAILED);
	fake_stop(&fake);
}

static void a_server_with_other_chunks_after_a_restart_is_final(void **state)
{
	const char *text;
	struct fake fake;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake_ready(&fake);
	fake_drop(&fake);
	fake.info.chunk_tokens = 2 * FAKE_CHUNK_TOKENS;
	fake_control(&fake, WIRE_HELLO);
	fake_say_hello(&fake, false);
	fake_pass(&fake, KVR_MS);
	assert_int_equal(client_failure(fake.client, &text), -EPROTOTYPE);
	assert_non_null(strstr(text, "open the client anew"));
	assert_int_equal(fake.client->state, CONNECTION_FAILED);
	fake_stop(&fake);
}

static void a_wish_for_requests_in_flight_leaves_one_credit_for_cancel(void **state)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct wire_error error;
	struct hello hello;
	struct fake fake;

	(void)state;
	options.in_flight = 3;
	fake_start(&fake, 1, &options);
	fake_control(&fake, WIRE_HELLO);
	assert_int_equal(hello_decode(fake.message, fake.header.length, &hello, &error), 0);
	assert_int_equal(hello.want_credits, 4);
	fake_say_hello(&fake, false);
	fake_control(&fake, WIRE_CONNECT);
	assert_int_equal(fake.client->credits, 4); /* although 8 were granted */
	fake_stop(&fake);
}

/* pitfalls G02 */
static void a_silent_server_costs_one_time_limit_and_is_tried_again(void **state)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct fake fake;

	(void)state;
	options.connect_timeout_ns = 300 * KVR_MS;
	fake_start(&fake, 1, &options);
	fake_pass(&fake, 299 * KVR_MS);
	assert_int_equal(fake.attempts, 1);
	assert_int_equal(fake_failure(&fake, "did not answer in time"), -ETIMEDOUT);
	fake_ready(&fake);
	assert_true(client_ready(fake.client));
	assert_true(fake.attempt_ns[1] - fake.attempt_ns[0] <= 400 * KVR_MS);
	fake_stop(&fake);
}

/* pitfalls G06, C07 */
static void attempts_back_off_with_jitter_up_to_five_seconds(void **state)
{
	uint64_t other[10];
	bool differs = false;

	(void)state;
	for (uint64_t seed = 1; seed <= 2; seed++) {
		uint64_t backoff_ns = 100 * KVR_MS;
		struct fake fake;

		fake_start(&fake, seed, NULL);
		fake.connect_error = -ECONNREFUSED;
		while (fake.attempts < 10)
			fake_step(&fake);
		for (unsigned i = 1; i < 10; i++) {
			uint64_t gap_ns = fake.attempt_ns[i] - fake.attempt_ns[i - 1];

			assert_true(gap_ns >= backoff_ns / 2);
			assert_true(gap_ns <= backoff_ns + KVR_MS);
			differs |= seed == 2 && gap_ns != other[i];
			other[i] = gap_ns;
			backoff_ns = kvr_min_u64(2 * backoff_ns, 5 * KVR_SECOND);
		}
		fake_stop(&fake);
	}
	assert_true(differs);
}

/* pitfalls I03, G06: a server that dies again and again is not stormed; one that was good for long is back at once. */
static void only_a_connection_that_stood_resets_the_back_off(void **state)
{
	struct fake fake;

	(void)state;
	fake_start(&fake, 1, NULL);
	for (unsigned i = 0; i < 5; i++) {
		fake_ready(&fake);
		fake_drop(&fake);
		while (fake.attempts == i + 1)
			fake_step(&fake);
	}
	assert_true(fake.attempt_ns[5] - fake.attempt_ns[4] >= 800 * KVR_MS);
	fake_ready(&fake);
	assert_true(client_ready(fake.client));
	assert_int_equal(fake.client->reconnects, 5);
	fake_pass(&fake, 6 * KVR_SECOND);
	fake_drop(&fake);
	while (fake.attempts == 6)
		fake_step(&fake);
	assert_true(fake.now_ns - fake.client->ready_ns >= 50 * KVR_MS);
	assert_int_equal(fake.client->backoff_ns, 100 * KVR_MS);
	fake_stop(&fake);
}

static void without_reconnect_a_loss_is_the_end(void **state)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	kvr_ticket ticket;
	struct fake fake;

	(void)state;
	options.reconnect = 0;
	fake_start(&fake, 1, &options);
	fake_ready(&fake);
	fake_drop(&fake);
	fake_pass(&fake, 10 * KVR_SECOND);
	assert_int_equal(fake.attempts, 1);
	assert_int_equal(fake.client->state, CONNECTION_FAILED);
	assert_int_equal(client_submit_ping(fake.client, &ticket), -ECONNRESET);
	assert_non_null(strstr(kvr_error_text(), "not connected"));
	fake_stop(&fake);
}

static void a_client_may_be_destroyed_at_every_point(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 60; steps++) {
		struct fake fake;

		fake_start(&fake, steps + 1, NULL);
		if (steps % 2 == 0) {
			fake_steps(&fake, steps / 2);
		} else {
			fake_control(&fake, WIRE_HELLO);
			fake_say_hello(&fake, false);
			fake_control(&fake, WIRE_CONNECT);
			fake_say_connect(&fake);
			fake_steps(&fake, steps / 2);
		}
		fake_stop(&fake);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_refusal_has_its_errno_and_is_final_or_tried_again),
		cmocka_unit_test(a_refusal_is_read_although_the_server_closed_at_once),
		cmocka_unit_test(a_spoiled_reply_is_an_error_with_words),
		cmocka_unit_test(a_reply_out_of_order_ends_the_attempt),
		cmocka_unit_test(a_reply_to_another_request_ends_the_attempt),
		cmocka_unit_test(bytes_of_another_protocol_end_the_attempt),
		cmocka_unit_test(a_challenge_is_answered_with_the_proof_of_the_secret),
		cmocka_unit_test(a_challenge_without_a_secret_says_what_to_set),
		cmocka_unit_test(another_tenant_than_expected_is_final),
		cmocka_unit_test(a_server_with_other_chunks_after_a_restart_is_final),
		cmocka_unit_test(a_wish_for_requests_in_flight_leaves_one_credit_for_cancel),
		cmocka_unit_test(a_silent_server_costs_one_time_limit_and_is_tried_again),
		cmocka_unit_test(attempts_back_off_with_jitter_up_to_five_seconds),
		cmocka_unit_test(only_a_connection_that_stood_resets_the_back_off),
		cmocka_unit_test(without_reconnect_a_loss_is_the_end),
		cmocka_unit_test(a_client_may_be_destroyed_at_every_point),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
