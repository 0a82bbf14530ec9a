/* test_request_ends.c - chains and second tries, canceling, and losses, against a server made by hand. */
#include <errno.h>
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

/* ---- chains ---- */

static struct transfer_request store(
	struct fake *fake, struct kvr_session *session, uint32_t chunks, kvr_ticket *ticket)
{
	struct kvr_blocks blocks;
	uint32_t ids[FAKE_BLOCKS];
	struct kvr_transfer transfer = fake_transfer(&blocks, ids, chunks, NULL);
	struct transfer_request request;
	struct wire_error error;
	struct fake_request *got;

	assert_int_equal(client_submit_transfer(session, true, &transfer, ticket), 0);
	got = fake_request(fake, WIRE_STORE);
	assert_int_equal(transfer_request_decode(got->bytes, got->length, &request, &error), 0);
	return request;
}

static void look_up(struct fake *fake, struct kvr_session *session)
{
	struct kvr_result result;
	kvr_ticket ticket;

	assert_int_equal(client_submit_lookup(session, 0, &ticket), 0);
	fake_reply_lookup(fake, &fake_request(fake, WIRE_LOOKUP)->header, STATUS_OK, 0);
	assert_int_equal(fake_wait(fake, ticket, &result), 0);
}

static void check_store(struct fake *fake, struct kvr_session *session, uint32_t first, uint32_t count)
{
	struct transfer_request request;
	struct kvr_result result;
	kvr_ticket ticket;

	request = store(fake, session, session->chunk_count, &ticket);
	assert_int_equal(request.session.first_chunk, first);
	assert_int_equal(request.session.digest_count, count);
	assert_memory_equal(request.session.digests, session->digests + (size_t)first * 32, (size_t)count * 32);
	if (first > 0)
		assert_memory_equal(request.session.parent, session->digests + (size_t)(first - 1) * 32, 32);
	fake_reply_transfer(fake, &request.header, session->chunk_count, CHUNK_STORED, STATUS_OK);
	assert_int_equal(fake_wait(fake, ticket, &result), 0);
	assert_int_equal(result.chunks, session->chunk_count);
}

static void a_transfer_carries_what_the_server_does_not_know_and_one_chunk_more(void **state)
{
	uint32_t tokens[8 * FAKE_CHUNK_TOKENS];
	struct kvr_session *session;
	struct kvr_result result;
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	for (uint32_t i = 0; i < KVR_COUNT_OF(tokens); i++)
		tokens[i] = i;
	session = fake_begin(&fake, 4);
	check_store(&fake, session, 0, 4); /* nothing known */
	check_store(&fake, session, 3, 1); /* all known */
	assert_int_equal(client_session_tokens(session, tokens, 6 * FAKE_CHUNK_TOKENS), 0);
	check_store(&fake, session, 3, 3);
	check_store(&fake, session, 5, 1);
	assert_int_equal(client_submit_end(session, &ticket), 0);
	fake_reply_empty(&fake, &fake_request(&fake, WIRE_END_SESSION)->header);
	assert_int_equal(fake_wait(&fake, ticket, &result), 0);
	check_store(&fake, session, 0, 6); /* ended: begins anew */
	fake_drop(&fake);
	fake_ready(&fake);
	fake_control(&fake, WIRE_MEMORY);
	fake_say_memory(&fake, 6);
	fake_control(&fake, WIRE_REGISTER);
	fake_say_registered(&fake, 8);
	while (!client_ready(fake.client))
		fake_step(&fake);
	check_store(&fake, session, 0, 6); /* another connection, perhaps another server */
	fake_finish(&fake, &session);
}

static void a_forgotten_session_is_told_again_exactly_once(void **state)
{
	struct fake_request *second;
	struct transfer_request request;
	struct kvr_session *session;
	struct kvr_result result;
	struct wire_error error;
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	session = fake_begin(&fake, CHUNKS);
	look_up(&fake, session);
	request = store(&fake, session, CHUNKS, &ticket);
	assert_int_equal(request.session.digest_count, 1);
	fake_reply_error(&fake, &request.header, STATUS_UNKNOWN_SESSION, "no such session");
	second = fake_request(&fake, WIRE_STORE);
	assert_true(second->header.request_id == ticket);
	assert_int_equal(transfer_request_decode(second->bytes, second->length, &request, &error), 0);
	assert_int_equal(request.session.first_chunk, 0);
	assert_int_equal(request.session.digest_count, CHUNKS);
	assert_int_equal(request.run_count, 1);
	assert_int_equal(session->in_flight, 1);
	fake_reply_error(&fake, &request.header, STATUS_UNKNOWN_SESSION, "still no such session");
	assert_int_equal(fake_wait(&fake, ticket, &result), -ENOENT);
	assert_string_equal(result.text, "still no such session");
	fake_steps(&fake, 100);
	assert_int_equal(fake_waiting(&fake), 0);
	fake_finish(&fake, &session);
}

/* Requests of a long chain that was forgotten are larger than they were: what finds no large buffer waits for one. */
static void second_tries_wait_for_room(void **state)
{
	enum { LONG = 300, REQUESTS = CLIENT_LARGE_BUFFERS + 2 }; /* chunks: a chain that no receive buffer takes */
	struct wire_header headers[REQUESTS], header;
	struct kvr_session *session;
	struct kvr_result result;
	kvr_ticket tickets[REQUESTS], ticket;
	struct fake fake;

	(void)state;
	session = fake_begin(&fake, LONG);
	assert_int_equal(client_submit_lookup(session, 0, &ticket), 0);
	header = fake_request(&fake, WIRE_INDIRECT)->header;
	header.type = WIRE_LOOKUP;
	fake_reply_lookup(&fake, &header, STATUS_OK, 0);
	assert_int_equal(fake_wait(&fake, ticket, &result), 0);
	for (uint32_t i = 0; i < REQUESTS; i++)
		headers[i] = store(&fake, session, 1, &tickets[i]).header;
	for (uint32_t i = 0; i < REQUESTS; i++)
		fake_reply_error(&fake, &headers[i], STATUS_UNKNOWN_SESSION, "no such session");
	fake_steps(&fake, 100);
	assert_int_equal(fake_waiting(&fake), CLIENT_LARGE_BUFFERS);
	for (uint32_t i = 0; i < REQUESTS; i++) {
		header = fake_request(&fake, WIRE_INDIRECT)->header;
		assert_true(header.request_id == tickets[i]);
		header.type = WIRE_STORE;
		fake_reply_transfer(&fake, &header, 1, CHUNK_STORED, STATUS_OK);
		assert_int_equal(fake_wait(&fake, tickets[i], &result), 0);
	}
	assert_int_equal(session->in_flight, 0);
	/* One that waits ends as any other when the connection is lost. */
	session->known_chunks = LONG;
	for (uint32_t i = 0; i < REQUESTS; i++)
		headers[i] = store(&fake, session, 1, &tickets[i]).header;
	for (uint32_t i = 0; i < REQUESTS; i++)
		fake_reply_error(&fake, &headers[i], STATUS_UNKNOWN_SESSION, "no such session");
	fake_steps(&fake, 100);
	fake_drop(&fake);
	for (uint32_t i = 0; i < REQUESTS; i++)
		assert_int_equal(fake_wait(&fake, tickets[i], &result), -ECONNRESET);
	fake_finish(&fake, &session);
}

/* The reply can overtake the completion of the request's own send: the buffer is not touched until then, and duplicates count once. */
static bool second_try(uint64_t seed)
{
	struct transfer_request request;
	struct kvr_session *session;
	struct sim_options options;
	struct kvr_result result;
	const struct slot *slot;
	struct fake fake;
	kvr_ticket ticket;
	bool again;

	fake_start(&fake, seed, NULL);
	fake_ready(&fake);
	session = fake_session(&fake, fake_register(&fake), "session", CHUNKS);
	look_up(&fake, session);
	fake_pass(&fake, KVR_MS);
	sim_options_default(&options);
	options.completion_max_ns = 5 * KVR_MS;
	sim_fabric_set_options(fake.fabric, &options);
	request = store(&fake, session, CHUNKS, &ticket);
	sim_options_default(&options);
	sim_fabric_set_options(fake.fabric, &options);
	slot = &fake.client->slots[ticket & 0xffff];
	fake_reply_error(&fake, &request.header, STATUS_UNKNOWN_SESSION, "no such session");
	while (!slot->again && fake_waiting(&fake) == 0)
		fake_step(&fake);
	again = slot->again;
	if (again) {
		fake_reply_error(&fake, &request.header, STATUS_UNKNOWN_SESSION, "no such session");
		for (unsigned i = 0; i < 10 && slot->again; i++)
			fake_step(&fake);
		assert_true(fake.client->in_flight <= 1);
	}
	request.header = fake_request(&fake, WIRE_STORE)->header;
	assert_int_equal(fake.client->in_flight, 1);
	fake_reply_transfer(&fake, &request.header, CHUNKS, CHUNK_STORED, STATUS_OK);
	assert_int_equal(fake_wait(&fake, ticket, &result), 0);
	fake_finish(&fake, &session);
	return again;
}

static void a_second_try_waits_for_the_end_of_the_first_send(void **state)
{
	unsigned waited = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++)
		waited += second_try(seed);
	assert_true(waited > 0);
}

/* ---- canceling ---- */

static void canceling_what_was_not_sent_needs_no_server(void **state)
{
	kvr_ticket tickets[10];
	struct kvr_result result;
	struct fake fake;

	(void)state;
	fake_start(&fake, 1, NULL);
	fake.info.credits = 2;
	fake_ready(&fake);
	for (unsigned i = 0; i < 10; i++)
		tickets[i] = ping(&fake);
	fake_steps(&fake, 100);
	assert_int_equal(fake_waiting(&fake), 1);
	assert_int_equal(client_submit_cancel(fake.client, tickets[5]), 0);
	assert_int_equal(client_take(fake.client, tickets[5], &result), 0);
	assert_int_equal(result.error, -ECANCELED);
	assert_string_equal(result.text, "canceled before it was sent");
	fake_steps(&fake, 100);
	assert_int_equal(fake_waiting(&fake), 1);
	fake_stop(&fake);
}

static void a_cancel_names_its_target_and_leaves_no_ticket(void **state)
{
	struct transfer_request request;
	struct cancel_request cancel;
	struct kvr_session *session;
	struct fake_request *got;
	struct kvr_result result;
	struct wire_error error;
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	session = fake_begin(&fake, CHUNKS);
	request = store(&fake, session, CHUNKS, &ticket);
	assert_int_equal(client_submit_cancel(fake.client, ticket), 0);
	got = fake_request(&fake, WIRE_CANCEL);
	assert_int_equal(cancel_request_decode(got->bytes, got->length, &cancel, &error), 0);
	assert_true(cancel.target == ticket);
	fake_reply_transfer(&fake, &request.header, CHUNKS, CHUNK_CANCELED, STATUS_PARTIAL);
	fake_reply_empty(&fake, &got->header);
	assert_int_equal(fake_wait(&fake, ticket, &result), 0);
	assert_int_equal(result.chunks, 0);
	fake_steps(&fake, 100);
	fake_finish(&fake, &session); /* the CANCEL's own slot is free again */
}

static void an_abandoned_lookup_frees_its_session_at_once_and_its_slot_later(void **state)
{
	struct wire_header lookup;
	struct kvr_session *session;
	struct kvr_result result;
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	session = fake_begin(&fake, CHUNKS);
	assert_int_equal(client_submit_lookup(session, 0, &ticket), 0);
	lookup = fake_request(&fake, WIRE_LOOKUP)->header;
	assert_int_equal(client_session_destroy(&session), -EBUSY);
	assert_non_null(strstr(kvr_error_text(), "1 requests"));
	assert_true(request_abandon(fake.client, ticket));
	assert_int_equal(client_session_destroy(&session), 0);
	assert_null(session);
	assert_int_equal(fake_free_slots(&fake), CLIENT_SLOTS - 2);
	fake_reply_lookup(&fake, &lookup, STATUS_OK, CHUNKS);
	fake_reply_empty(&fake, &fake_request(&fake, WIRE_CANCEL)->header);
	fake_steps(&fake, 100);
	assert_int_equal(client_take(fake.client, ticket, &result), -ENOENT);
	fake_finish(&fake, &session);
}

static void a_transfer_is_never_abandoned(void **state)
{
	struct transfer_request request;
	struct kvr_session *session;
	struct kvr_result result;
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	session = fake_begin(&fake, CHUNKS);
	request = store(&fake, session, CHUNKS, &ticket);
	assert_false(request_abandon(fake.client, ticket));
	assert_int_equal(client_take(fake.client, ticket, &result), -EAGAIN);
	fake_reply_transfer(&fake, &request.header, CHUNKS, CHUNK_STORED, STATUS_OK);
	fake_reply_error(&fake, &fake_request(&fake, WIRE_CANCEL)->header, STATUS_UNKNOWN_REQUEST, "it was answered");
	assert_int_equal(fake_wait(&fake, ticket, &result), 0);
	fake_steps(&fake, 100);
	fake_finish(&fake, &session);
}

/* ---- losses ---- */

static void a_lost_connection_ends_every_ticket_once(void **state)
{
	kvr_ticket tickets[20];
	struct kvr_session *session;
	struct kvr_result result;
	struct fake fake;

	(void)state;
	session = fake_begin(&fake, CHUNKS);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(client_submit_lookup(session, 0, &tickets[i]), 0);
	assert_int_equal(session->in_flight, 20);
	fake_steps(&fake, 100); /* some sent, some waiting for credit */
	fake_drop(&fake);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(fake_wait(&fake, tickets[i], &result), -ECONNRESET);
		assert_true(result.text[0] != '\0');
		assert_int_equal(client_take(fake.client, tickets[i], &result), -ENOENT);
	}
	assert_int_equal(session->in_flight, 0);
	fake_finish(&fake, &session);
}

/* The server begins to write all of the pool. */
static void write_pool(struct fake *fake)
{
	struct client_region *region =
		&fake->client->regions[region_find(fake->client, (uint64_t)(uintptr_t)fake->pool, 1)];
	struct verbs_export description;
	struct verbs_remote_memory memory;
	struct verbs_import import;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	assert_int_equal(fake->device->driver->export_memory(region->mr, &description), 0);
	memset(&memory, 0, sizeof(memory));
	memory.address = (uint64_t)(uintptr_t)fake->pool;
	memory.length = FAKE_BLOCKS * FAKE_BLOCK_BYTES;
	memory.kind = description.kind;
	memory.rkey = description.rkey;
	memory.offset = description.offset;
	memory.fd = description.fd;
	assert_int_equal(fake->device->driver->import_memory(fake->qp, &memory, &import), 0);
	memset(&wr, 0, sizeof(wr));
	sge.addr = (uint64_t)(uintptr_t)fake->buffers;
	sge.length = FAKE_BLOCKS * FAKE_BLOCK_BYTES;
	sge.lkey = fake->mr->lkey;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = memory.address;
	wr.wr.rdma.rkey = import.rkey;
	assert_int_equal(ibv_post_send(fake->qp, &wr, &bad), 0);
}

/* pitfalls C05: what the server had under way still lands after the loss, and only before the ticket ends. */
static void memory_is_quiet_once_the_ticket_of_a_lost_transfer_has_ended(void **state)
{
	uint32_t late = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct sim_options options;
		struct sim_counters counters;
		struct kvr_session *session;
		struct kvr_result result;
		struct fake fake;
		kvr_ticket ticket;

		fake_start(&fake, seed, NULL);
		fake_ready(&fake);
		session = fake_session(&fake, fake_register(&fake), "session", CHUNKS);
		sim_options_default(&options);
		options.pieces_max = 16;
		options.delay_max_ns = 2 * KVR_MS;
		sim_fabric_set_options(fake.fabric, &options);
		store(&fake, session, CHUNKS, &ticket);
		write_pool(&fake);
		do {
			fake_step(&fake);
			sim_fabric_counters(fake.fabric, &counters);
		} while (counters.pieces == 0);
		fake.stream->ops->close(fake.stream);
		fake.stream = NULL;
		assert_int_equal(fake_wait(&fake, ticket, &result), -ECONNRESET);
		memset(fake.pool, 0x5a, FAKE_BLOCKS * FAKE_BLOCK_BYTES);
		fake_pass(&fake, 5 * KVR_MS);
		for (uint32_t i = 0; i < FAKE_BLOCKS * FAKE_BLOCK_BYTES; i++)
			assert_int_equal(fake.pool[i], 0x5a);
		sim_fabric_counters(fake.fabric, &counters);
		late += (uint32_t)counters.late_pieces;
		assert_int_equal(client_session_destroy(&session), 0);
		fake_stop(&fake);
	}
	assert_true(late > 0); /* or nothing was tested */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_transfer_carries_what_the_server_does_not_know_and_one_chunk_more),
		cmocka_unit_test(a_forgotten_session_is_told_again_exactly_once),
		cmocka_unit_test(second_tries_wait_for_room),
		cmocka_unit_test(a_second_try_waits_for_the_end_of_the_first_send),
		cmocka_unit_test(canceling_what_was_not_sent_needs_no_server),
		cmocka_unit_test(a_cancel_names_its_target_and_leaves_no_ticket),
		cmocka_unit_test(an_abandoned_lookup_frees_its_session_at_once_and_its_slot_later),
		cmocka_unit_test(a_transfer_is_never_abandoned),
		cmocka_unit_test(a_lost_connection_ends_every_ticket_once),
		cmocka_unit_test(memory_is_quiet_once_the_ticket_of_a_lost_transfer_has_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
