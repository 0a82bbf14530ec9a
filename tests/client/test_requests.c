/* test_requests.c - tickets, credits, replies and long requests on the queue pair, against a server made by hand. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "client/client_private.h"
#include "client/fake.h"

#define CHUNKS 4

static kvr_ticket ping(struct fake *fake)
{
	kvr_ticket ticket;

	assert_int_equal(client_submit_ping(fake->client, &ticket), 0);
	return ticket;
}

/* The client still works: a PING goes through. */
static void check_alive(struct fake *fake)
{
	kvr_ticket ticket = ping(fake);
	struct kvr_result result;

	fake_reply_empty(fake, &fake_request(fake, WIRE_PING)->header);
	assert_int_equal(fake_wait(fake, ticket, &result), 0);
}

static void no_more_requests_are_in_flight_than_granted(void **state)
{
	kvr_ticket tickets[20];
	struct kvr_result result;
	struct fake fake;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake.info.credits = 4;
	fake_ready(&fake);
	for (unsigned i = 0; i < 20; i++)
		tickets[i] = ping(&fake);
	fake_steps(&fake, 200);
	assert_int_equal(fake_waiting(&fake), 3); /* one credit is for a CANCEL */
	assert_int_equal(client_submit_cancel(fake.client, tickets[0]), 0);
	fake_steps(&fake, 200);
	assert_int_equal(fake_waiting(&fake), 4);
	for (unsigned i = 0; i < 3; i++)
		assert_true(fake_request(&fake, WIRE_PING)->header.request_id == tickets[i]);
	fake_reply_empty(&fake, &fake_request(&fake, WIRE_CANCEL)->header);
	for (unsigned i = 0; i < 20; i++) {
		if (i >= 3)
			assert_true(
				fake_request(&fake, WIRE_PING)->header.request_id == tickets[i]); /* in their order */
		fake_reply_empty(&fake, &fake.requests[i < 3 ? i : i + 1].header);
		assert_int_equal(fake_wait(&fake, tickets[i], &result), 0);
		fake_steps(&fake, 100);
		assert_true(fake_waiting(&fake) <= 3);
	}
	assert_int_equal(fake_free_slots(&fake), CLIENT_SLOTS);
	fake_stop(&fake);
}

static void tickets_run_out_with_words_and_come_back(void **state)
{
	struct kvr_result result;
	kvr_ticket ticket, first = 0;
	struct fake fake;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake_ready(&fake);
	for (unsigned i = 0; i < CLIENT_SLOTS; i++) {
		ticket = ping(&fake);
		first = first ? first : ticket;
	}
	assert_int_equal(client_submit_ping(fake.client, &ticket), -EBUSY);
	assert_non_null(strstr(kvr_error_text(), "wait to be taken"));
	fake_reply_empty(&fake, &fake_request(&fake, WIRE_PING)->header);
	fake_steps(&fake, 100);
	assert_int_equal(client_submit_ping(fake.client, &ticket), -EBUSY); /* done, and not taken yet */
	assert_int_equal(fake_wait(&fake, first, &result), 0);
	assert_int_equal(client_submit_ping(fake.client, &ticket), 0);
	assert_true(ticket != first);
	assert_int_equal(client_take(fake.client, first, &result), -ENOENT);
	fake_stop(&fake);
}

static void a_result_is_taken_once_and_unknown_tickets_are_refused(void **state)
{
	struct kvr_result result;
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake_ready(&fake);
	ticket = ping(&fake);
	assert_int_equal(client_take(fake.client, ticket, &result), -EAGAIN);
	fake_reply_empty(&fake, &fake_request(&fake, WIRE_PING)->header);
	assert_int_equal(fake_wait(&fake, ticket, &result), 0);
	assert_int_equal(client_take(fake.client, ticket, &result), -ENOENT);
	assert_int_equal(client_take(fake.client, 0, &result), -ENOENT);
	assert_int_equal(client_take(fake.client, UINT64_MAX, &result), -ENOENT);
	assert_int_equal(client_submit_cancel(fake.client, ticket), -ENOENT);
	assert_true(kvr_error_text()[0] != '\0');
	fake_stop(&fake);
}

static void tickets_are_never_zero_when_their_count_wraps(void **state)
{
	struct fake fake;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake_ready(&fake);
	fake.client->next_generation = ((uint64_t)1 << 48) - 2;
	for (unsigned i = 0; i < 4; i++) {
		struct kvr_result result;
		kvr_ticket ticket = ping(&fake);

		assert_true(ticket >> 16 != 0);
		fake_reply_empty(&fake, &fake_request(&fake, WIRE_PING)->header);
		assert_int_equal(fake_wait(&fake, ticket, &result), 0);
	}
	fake_stop(&fake);
}

static void replies_that_nobody_waits_for_are_ignored(void **state)
{
	struct wire_header header;
	struct kvr_result result;
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake_ready(&fake);
	ticket = ping(&fake);
	header = fake_request(&fake, WIRE_PING)->header;
	fake_reply_empty(&fake, &header);
	fake_reply_empty(&fake, &header); /* a duplicate */
	assert_int_equal(fake_wait(&fake, ticket, &result), 0);
	fake_reply_empty(&fake, &header); /* after it was taken */
	header.request_id = 0xffff;       /* no such slot */
	fake_reply_empty(&fake, &header);
	header.request_id = 0;
	fake_reply_empty(&fake, &header);
	fake_steps(&fake, 100);
	check_alive(&fake);
	assert_int_equal(fake.client->in_flight, 0);
	fake_stop(&fake);
}

static void a_reply_of_another_type_ends_the_connection(void **state)
{
	struct wire_header header;
	struct kvr_result result;
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake_ready(&fake);
	ticket = ping(&fake);
	header = fake_request(&fake, WIRE_PING)->header;
	header.type = WIRE_LOOKUP;
	fake_reply_lookup(&fake, &header, STATUS_OK, 0);
	assert_int_equal(fake_failure(&fake, "answered a PING with a LOOKUP_REPLY"), -EPROTO);
	assert_int_equal(fake_wait(&fake, ticket, &result), -ECONNRESET);
	assert_non_null(strstr(result.text, "LOOKUP_REPLY"));
	fake_stop(&fake);
}

static void a_reply_of_another_boot_ends_the_connection(void **state)
{
	struct kvr_result result;
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake_ready(&fake);
	ticket = ping(&fake);
	fake.boot_id++;
	fake_reply_empty(&fake, &fake_request(&fake, WIRE_PING)->header);
	assert_int_equal(fake_failure(&fake, "restarted"), -ESTALE);
	assert_int_equal(fake_wait(&fake, ticket, &result), -ECONNRESET);
	assert_int_equal(result.status, STATUS_CONNECTION_LOST);
	fake_stop(&fake);
}

static void a_reply_for_another_number_of_chunks_ends_the_connection(void **state)
{
	struct kvr_blocks blocks;
	struct kvr_transfer transfer;
	struct kvr_session *session;
	struct kvr_result result;
	uint8_t outcomes[CHUNKS];
	uint32_t ids[FAKE_BLOCKS];
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	session = fake_begin(&fake, CHUNKS);
	transfer = fake_transfer(&blocks, ids, CHUNKS, outcomes);
	assert_int_equal(client_submit_transfer(session, true, &transfer, &ticket), 0);
	fake_reply_transfer(&fake, &fake_request(&fake, WIRE_STORE)->header, CHUNKS + 1, CHUNK_STORED, STATUS_OK);
	assert_int_equal(fake_failure(&fake, "chunk_count"), -EPROTO);
	assert_int_equal(fake_wait(&fake, ticket, &result), -ECONNRESET);
	fake_finish(&fake, &session);
}

/* One byte of a reply turned over: the ticket ends, or the connection does, or the reply is nobody's. */
static void spoil(unsigned which, uint32_t offset)
{
	struct kvr_blocks blocks;
	struct kvr_transfer transfer;
	struct kvr_session *session;
	struct kvr_result result;
	uint8_t outcomes[CHUNKS];
	uint32_t ids[FAKE_BLOCKS];
	struct wire_header header;
	struct fake fake;
	kvr_ticket ticket;
	int error;

	session = fake_begin(&fake, CHUNKS);
	transfer = fake_transfer(&blocks, ids, CHUNKS, outcomes);
	if (which == 0)
		assert_int_equal(client_submit_lookup(session, 0, &ticket), 0);
	else
		assert_int_equal(client_submit_transfer(session, false, &transfer, &ticket), 0);
	header = fake_request(&fake, which == 0 ? WIRE_LOOKUP : WIRE_RETRIEVE)->header;
	fake.spoil = offset + 1;
	if (which == 0)
		fake_reply_lookup(&fake, &header, STATUS_OK, CHUNKS);
	else if (which == 1)
		fake_reply_transfer(&fake, &header, CHUNKS, CHUNK_DELIVERED, STATUS_OK);
	else
		fake_reply_error(&fake, &header, STATUS_BUSY, "a table is full");
	fake_steps(&fake, 300);
	error = client_take(fake.client, ticket, &result);
	if (error == 0 && result.error == -ECONNRESET)
		assert_true(result.text[0] != '\0');
	if (error)
		assert_int_equal(error, -EAGAIN);
	if (error) /* whoever spoils the id: the ticket ends with the connection */
		fake_drop(&fake);
	if (error)
		assert_int_equal(fake_wait(&fake, ticket, &result), -ECONNRESET);
	fake_finish(&fake, &session);
}

static void a_spoiled_reply_never_crashes(void **state)
{
	(void)state;
	for (uint32_t offset = 0; offset < 60; offset++) {
		spoil(0, offset);
		spoil(1, offset);
		spoil(2, offset);
	}
}

static void statuses_become_errnos_and_unknown_ones_eproto(void **state)
{
	static const struct {
		uint16_t status;
		int error;
	} table[] = { { STATUS_BUSY, -EBUSY }, { STATUS_NO_LOCK, -ENOLCK }, { STATUS_TIMED_OUT, -ETIMEDOUT },
		{ STATUS_NOT_REGISTERED, -ENODEV }, { STATUS_CHAIN_MISMATCH, -EEXIST }, { 77, -EPROTO } };
	struct kvr_session *session;
	struct fake fake;

	(void)state;
	session = fake_begin(&fake, CHUNKS);
	for (unsigned i = 0; i < KVR_COUNT_OF(table); i++) {
		struct kvr_result result;
		kvr_ticket ticket;

		assert_int_equal(client_submit_lookup(session, 0, &ticket), 0);
		fake_reply_error(
			&fake, &fake_request(&fake, WIRE_LOOKUP)->header, table[i].status, "these are the words");
		assert_int_equal(fake_wait(&fake, ticket, &result), table[i].error);
		assert_int_equal(result.status, table[i].status);
		assert_string_equal(result.text, "these are the words");
	}
	fake_finish(&fake, &session);
}

static void a_pending_lookup_is_done_and_says_so_by_its_status(void **state)
{
	struct kvr_session *session;
	struct kvr_result result;
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	session = fake_begin(&fake, CHUNKS);
	assert_int_equal(client_submit_lookup(session, KVR_LOOKUP_NO_WAIT, &ticket), 0);
	fake_reply_lookup(&fake, &fake_request(&fake, WIRE_LOOKUP)->header, STATUS_PENDING, 1);
	assert_int_equal(fake_wait(&fake, ticket, &result), -EAGAIN);
	assert_int_equal(result.status, STATUS_PENDING);
	assert_int_equal(result.chunks, 1);
	assert_int_equal(client_take(fake.client, ticket, &result), -ENOENT);
	fake_finish(&fake, &session);
}

/* ---- long requests ---- */

static void check_indirect(struct fake *fake, const struct fake_request *request, uint32_t chunks)
{
	struct lookup_request lookup;
	struct indirect indirect;
	struct wire_error error;

	assert_int_equal(indirect_decode(request->bytes, request->length, &indirect, &error), 0);
	assert_int_equal(indirect.region, fake->large_region);
	assert_int_equal(
		lookup_request_decode((const void *)(uintptr_t)indirect.address, indirect.length, &lookup, &error), 0);
	assert_true(lookup.header.request_id == request->header.request_id);
	assert_int_equal(lookup.header.length, indirect.length);
	assert_int_equal(lookup.session.digest_count, chunks);
}

static void long_requests_travel_indirectly_and_run_out_with_words(void **state)
{
	kvr_ticket tickets[CLIENT_LARGE_BUFFERS], ticket;
	struct wire_header headers[CLIENT_LARGE_BUFFERS];
	struct kvr_session *session;
	struct kvr_result result;
	struct fake fake;

	(void)state;
	session = fake_begin(&fake, WIRE_CHUNKS_MAX);
	for (unsigned i = 0; i < CLIENT_LARGE_BUFFERS; i++) {
		struct fake_request *request;

		assert_int_equal(client_submit_lookup(session, 0, &tickets[i]), 0);
		request = fake_request(&fake, WIRE_INDIRECT);
		check_indirect(&fake, request, WIRE_CHUNKS_MAX);
		headers[i] = request->header;
		headers[i].type = WIRE_LOOKUP;
	}
	assert_int_equal(client_submit_lookup(session, 0, &ticket), -EBUSY);
	assert_non_null(strstr(kvr_error_text(), "wait for one"));
	assert_int_equal(session->in_flight, CLIENT_LARGE_BUFFERS);
	check_alive(&fake); /* short ones still go */
	fake_reply_lookup(&fake, &headers[0], STATUS_OK, WIRE_CHUNKS_MAX);
	assert_int_equal(fake_wait(&fake, tickets[0], &result), 0);
	assert_int_equal(result.chunks, WIRE_CHUNKS_MAX);
	assert_int_equal(result.tokens, WIRE_CHUNKS_MAX * FAKE_CHUNK_TOKENS);
	assert_int_equal(client_submit_lookup(session, 0, &ticket), 0);
	headers[0] = fake_request(&fake, WIRE_INDIRECT)->header;
	headers[0].type = WIRE_LOOKUP;
	tickets[0] = ticket;
	for (unsigned i = 0; i < CLIENT_LARGE_BUFFERS; i++) {
		fake_reply_lookup(&fake, &headers[i], STATUS_OK, 0);
		assert_int_equal(fake_wait(&fake, tickets[i], &result), 0);
	}
	fake_finish(&fake, &session);
}

static void a_request_that_could_not_be_fetched_ends_with_the_servers_words(void **state)
{
	struct kvr_session *session;
	struct kvr_result result;
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	session = fake_begin(&fake, 1000);
	assert_int_equal(client_submit_lookup(session, 0, &ticket), 0);
	fake_reply_error(
		&fake, &fake_request(&fake, WIRE_INDIRECT)->header, STATUS_INVALID_MEMORY, "there is no region 3");
	assert_int_equal(fake_wait(&fake, ticket, &result), -EFAULT);
	assert_string_equal(result.text, "there is no region 3");
	fake_finish(&fake, &session);
}

static void a_request_beyond_the_servers_limit_is_refused_here(void **state)
{
	struct kvr_session *session;
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake.info.message_bytes_max = 2 * WIRE_INLINE_BYTES;
	fake_ready(&fake);
	session = fake_session(&fake, fake_register(&fake), "session", 1000);
	assert_int_equal(client_submit_lookup(session, 0, &ticket), -EMSGSIZE);
	assert_non_null(strstr(kvr_error_text(), "fewer chunks"));
	fake_finish(&fake, &session);
}

static void more_chunks_than_the_server_takes_are_refused_here(void **state)
{
	uint32_t *tokens = calloc(300, FAKE_CHUNK_TOKENS * sizeof(*tokens));
	struct kvr_session *session;
	struct fake fake;

	(void)state;
	assert_non_null(tokens);
	fake_start(&fake, 1, NULL);
	fake.info.chunks_max = 200;
	fake_ready(&fake);
	session = fake_session(&fake, fake_register(&fake), "session", 200);
	assert_int_equal(client_session_tokens(session, tokens, 201 * FAKE_CHUNK_TOKENS), -E2BIG);
	assert_non_null(strstr(kvr_error_text(), "at most 200"));
	assert_int_equal(client_session_tokens(session, tokens, 199 * FAKE_CHUNK_TOKENS), -EINVAL);
	assert_int_equal(session->chunk_count, 200);
	assert_int_equal(client_session_tokens(session, tokens, 201 * FAKE_CHUNK_TOKENS - 1), 0);
	free(tokens);
	fake_finish(&fake, &session);
}

static void a_session_goes_on_from_the_digests_of_another(void **state)
{
	uint32_t tokens[5 * FAKE_CHUNK_TOKENS];
	uint8_t digests[3 * WIRE_DIGEST_BYTES], all[5 * WIRE_DIGEST_BYTES], same[5 * WIRE_DIGEST_BYTES];
	struct kvr_session *first, *next, *whole;
	uint32_t registration;
	struct fake fake;

	(void)state;
	for (uint32_t i = 0; i < 5 * FAKE_CHUNK_TOKENS; i++)
		tokens[i] = i; /* as fake_session has them */
	fake_start(&fake, 1, NULL);
	fake_ready(&fake);
	registration = fake_register(&fake);
	first = fake_session(&fake, registration, "turn 1", 3);
	whole = fake_session(&fake, registration, "whole", 5);
	next = fake_session(&fake, registration, "turn 2", 0);
	assert_int_equal(client_session_copy_digests(first, 0, 3, digests), 0);
	assert_int_equal(client_session_digests(next, digests, 3), 0);
	memset(tokens, 0, 3 * FAKE_CHUNK_TOKENS * sizeof(*tokens)); /* not looked at any more */
	assert_int_equal(client_session_tokens(next, tokens, 5 * FAKE_CHUNK_TOKENS), 0);
	assert_int_equal(client_session_copy_digests(next, 0, 5, all), 0);
	assert_int_equal(client_session_copy_digests(whole, 0, 5, same), 0);
	assert_memory_equal(all, same, sizeof(all));
	assert_int_equal(client_session_copy_digests(whole, 3, 2, same), 0);
	assert_memory_equal(all + 3 * WIRE_DIGEST_BYTES, same, 2 * WIRE_DIGEST_BYTES);
	assert_int_equal(client_session_copy_digests(whole, 5, 0, same), 0);
	assert_int_equal(client_session_copy_digests(whole, 5, 1, same), -ERANGE);
	assert_int_equal(client_session_copy_digests(whole, 6, UINT32_MAX, same), -ERANGE);
	assert_int_equal(client_session_destroy(&next), 0);
	assert_int_equal(client_session_destroy(&whole), 0);
	fake_finish(&fake, &first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_more_requests_are_in_flight_than_granted),
		cmocka_unit_test(tickets_run_out_with_words_and_come_back),
		cmocka_unit_test(a_result_is_taken_once_and_unknown_tickets_are_refused),
		cmocka_unit_test(tickets_are_never_zero_when_their_count_wraps),
		cmocka_unit_test(replies_that_nobody_waits_for_are_ignored),
		cmocka_unit_test(a_reply_of_another_type_ends_the_connection),
		cmocka_unit_test(a_reply_of_another_boot_ends_the_connection),
		cmocka_unit_test(a_reply_for_another_number_of_chunks_ends_the_connection),
		cmocka_unit_test(a_spoiled_reply_never_crashes),
		cmocka_unit_test(statuses_become_errnos_and_unknown_ones_eproto),
		cmocka_unit_test(a_pending_lookup_is_done_and_says_so_by_its_status),
		cmocka_unit_test(long_requests_travel_indirectly_and_run_out_with_words),
		cmocka_unit_test(a_request_that_could_not_be_fetched_ends_with_the_servers_words),
		cmocka_unit_test(a_request_beyond_the_servers_limit_is_refused_here),
		cmocka_unit_test(more_chunks_than_the_server_takes_are_refused_here),
		cmocka_unit_test(a_session_goes_on_from_the_digests_of_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
