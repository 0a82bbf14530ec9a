/* Requests that the server fetches from the client's memory. */
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

static int setup(void **state)
{
	struct rig_options options;

	log_set_sink(no_line, NULL);
	rig_options_default(&options);
	*state = rig_start(&options);
	return 0;
}

static int teardown(void **state)
{
	rig_stop(*state);
	return 0;
}

static void assert_refused(struct rig_client *client, uint64_t id, uint16_t type, uint16_t status, const char *word)
{
	const struct rig_reply *reply = rig_reply_of(client, id);
	char text[WIRE_ERROR_TEXT_MAX + 1];

	assert_int_equal(reply->header.type, type);
	assert_int_equal(reply->header.status, status);
	rig_text_of(reply, text);
	if (!strstr(text, word))
		fail_msg("\"%s\" does not say \"%s\"", text, word);
}

static void send_raw_indirect(
	struct rig_client *client, uint64_t id, uint32_t region, uint64_t address, uint32_t length)
{
	struct indirect message = { .header.request_id = id, .region = region, .length = length, .address = address };
	uint8_t bytes[64];
	ssize_t encoded = indirect_encode(bytes, sizeof(bytes), &message);

	assert_true(encoded > 0);
	rig_send(client, bytes, (uint32_t)encoded);
}

static void a_long_lookup_is_fetched_and_answered_as_itself(void **state)
{
	struct rig *rig = *state;
	struct rig_client *client = rig_join(rig, 0);
	uint8_t *bytes = malloc(RIG_MESSAGE_MAX);
	uint32_t length = rig_lookup(bytes, RIG_MESSAGE_MAX, 7, 1500);
	struct lookup_reply reply;
	struct wire_error error;
	const struct rig_reply *got;

	assert_true(length > WIRE_INLINE_BYTES);
	rig_send_indirect(client, bytes, length, 7, 0);
	got = rig_reply_of(client, 7);
	assert_int_equal(lookup_reply_decode(got->bytes, got->length, &reply, &error), 0);
	assert_int_equal(reply.matched_chunks, 1500);
	assert_int_equal(RIG_COUNT(rig, indirect_total), 1);
	assert_int_equal(RIG_COUNT(rig, indirect_waits_total), 0);
	free(bytes);
}

static void every_request_type_may_be_wrapped(void **state)
{
	struct rig *rig = *state;
	struct rig_client *client = rig_join(rig, 0);
	struct session_ref session = { .id = { "s", 1 } };
	struct ping ping = { .header = { .type = WIRE_PING, .request_id = 1 } };
	struct ping info = { .header = { .type = WIRE_GET_INFO, .request_id = 2 } };
	struct query_request query = { .header = { .request_id = 3 }, .session = session };
	struct free_locks_request free_locks = { .header = { .request_id = 4 }, .chunk_count = 1, .session = session };
	struct cancel_request cancel = { .header = { .request_id = 5 } };
	struct end_session_request end = { .header = { .request_id = 6 }, .session = session };
	struct clear_request clear = { .header = { .request_id = 7 } };
	static const uint16_t types[] = { 0, WIRE_PING, WIRE_GET_INFO, WIRE_QUERY, WIRE_FREE_LOCKS, WIRE_CANCEL,
		WIRE_END_SESSION, WIRE_CLEAR, WIRE_LOOKUP, WIRE_RETRIEVE, WIRE_STORE };
	uint8_t bytes[11][512];
	ssize_t lengths[11];

	lengths[1] = ping_encode(bytes[1], 512, &ping);
	lengths[2] = ping_encode(bytes[2], 512, &info);
	lengths[3] = query_request_encode(bytes[3], 512, &query);
	lengths[4] = free_locks_request_encode(bytes[4], 512, &free_locks);
	lengths[5] = cancel_request_encode(bytes[5], 512, &cancel);
	lengths[6] = end_session_request_encode(bytes[6], 512, &end);
	lengths[7] = clear_request_encode(bytes[7], 512, &clear);
	lengths[8] = rig_lookup(bytes[8], 512, 8, 3);
	lengths[9] = rig_transfer(bytes[9], WIRE_RETRIEVE, 9, 0, 2, 10);
	lengths[10] = rig_transfer(bytes[10], WIRE_STORE, 10, 4, 2, 10);
	for (uint64_t id = 1; id <= 10; id++) {
		assert_true(lengths[id] > 0);
		rig_send_indirect(client, bytes[id], (uint32_t)lengths[id], id, id % RIG_PLACES);
		assert_int_equal(rig_reply_of(client, id)->header.type, types[id] + 1);
		assert_int_equal(rig_find_reply(client, id)->header.status, STATUS_OK);
	}
}

static void what_is_inside_is_as_hostile_as_what_is_outside(void **state)
{
	struct rig *rig = *state;
	struct rig_client *client = rig_join(rig, 0);
	uint8_t bytes[WIRE_INLINE_BYTES], inner[WIRE_INLINE_BYTES];
	struct indirect indirect = { .header.request_id = 3, .region = 1, .length = 32 };
	uint32_t length = rig_lookup(bytes, sizeof(bytes), 1, 8);

	/* No message at all: the outer header answers. */
	memset(inner, 0x77, 64);
	rig_send_indirect(client, inner, 64, 1, 0);
	assert_refused(client, 1, WIRE_INDIRECT + 1, STATUS_MALFORMED, "magic");
	/* Another length than the outer one says. */
	rig_send_indirect(client, bytes, length + 1, 2, 1);
	assert_refused(client, 2, WIRE_INDIRECT + 1, STATUS_MALFORMED, "names");
	/* An INDIRECT again. */
	rig_send_indirect(client, inner, (uint32_t)indirect_encode(inner, sizeof(inner), &indirect), 3, 2);
	assert_refused(client, 3, WIRE_INDIRECT + 1, STATUS_MALFORMED, "again");
	/* A message that breaks its own rules: its type answers. */
	rig_lookup(bytes, sizeof(bytes), 4, 8);
	length -= 40;
	memcpy(bytes + 4, &length, 4);
	rig_send_indirect(client, bytes, length, 4, 3);
	assert_refused(client, 4, WIRE_LOOKUP_REPLY, STATUS_MALFORMED, "LOOKUP");
	/* A type of the control socket. */
	rig_ping(bytes, 5);
	bytes[8] = WIRE_HELLO;
	rig_send_indirect(client, bytes, WIRE_HEADER_BYTES, 5, 4);
	assert_refused(client, 5, WIRE_HELLO_REPLY, STATUS_OUT_OF_ORDER, "HELLO");
	assert_int_equal(rig->requests, 0);
	assert_false(client->lost);
}

static void memory_that_is_not_the_clients_is_refused(void **state)
{
	struct rig *rig = *state;
	struct rig_client *client = rig_join(rig, 0);
	uint64_t start = client->regions[1].address, bytes = client->regions[1].length;
	struct {
		uint32_t region;
		uint64_t address;
		uint32_t length;
		bool good;
	} cases[] = {
		{ 1, start + bytes - 32, 32, true }, /* the last bytes: poison, but readable */
		{ 0, start, 32, false },
		{ 2, start, 32, false },
		{ UINT32_MAX, start, 32, false },
		{ 1, start - 1, 32, false },
		{ 1, start + bytes - 31, 32, false },
		{ 1, start + bytes, 32, false },
		{ 1, 0, 32, false },
		{ 1, UINT64_MAX - 32, 32, false },
	};

	for (uint64_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		send_raw_indirect(client, i + 1, cases[i].region, cases[i].address, cases[i].length);
		assert_refused(client, i + 1, WIRE_INDIRECT + 1,
			cases[i].good ? STATUS_MALFORMED : STATUS_INVALID_MEMORY, cases[i].good ? "magic" : "region");
	}
	send_raw_indirect(client, 20, 1, start, RIG_MESSAGE_MAX + 1);
	assert_refused(client, 20, WIRE_INDIRECT + 1, STATUS_TOO_BIG, "65536");
	assert_false(client->lost);
	client->connection.region_count = 0;
	send_raw_indirect(client, 21, 1, start, 64);
	assert_refused(client, 21, WIRE_INDIRECT + 1, STATUS_INVALID_MEMORY, "region 1");
}

/* The key is right in the table, but the device knows better: a broken connection, and only that one. */
static void a_fetch_that_the_client_refuses_ends_its_connection(void **state)
{
	struct rig *rig = *state;
	struct rig_client *client = rig_join(rig, 0);
	struct rig_client *bystander = rig_join(rig, 1);
	uint8_t bytes[64];

	client->regions[1].rkey++;
	rig_send_indirect(client, bytes, rig_ping(bytes, 1), 1, 0);
	RIG_UNTIL(rig, client->lost && client->closed);
	assert_int_equal(client->reply_count, 0);
	rig_send(bystander, bytes, rig_ping(bytes, 1));
	rig_reply_of(bystander, 1);
	assert_int_equal(rig->worker->free_large_count, rig->options.large_buffers);
}

/* Large buffers are held until the reply; who finds none waits in order, and one client leaves some to the others. */
static void requests_wait_for_large_buffers_in_turn(void **state)
{
	struct rig *rig = *state;
	struct rig_client *greedy = rig_join(rig, 0);
	struct rig_client *modest = rig_join(rig, 1);
	uint8_t bytes[512];
	struct request *request;

	rig->auto_answer = false;
	for (uint64_t id = 1; id <= 6; id++)
		rig_send_indirect(greedy, bytes, rig_lookup(bytes, sizeof(bytes), id, 3), id, (unsigned)id);
	RIG_UNTIL(rig, RIG_COUNT(rig, indirect_total) == 6);
	rig_steps(rig, 300);
	assert_int_equal(rig->inbox_count, 1); /* its share: one of two */
	rig_send_indirect(modest, bytes, rig_lookup(bytes, sizeof(bytes), 50, 3), 50, 0);
	RIG_UNTIL(rig, rig->inbox_count == 2);
	assert_int_equal(RIG_COUNT(rig, indirect_waits_total), 5);
	for (uint64_t id = 1; id <= 6; id++) {
		request = rig_take_request(rig);
		if (request->header.request_id == 50) {
			rig_reply(rig, request, STATUS_OK);
			request = rig_take_request(rig);
		}
		assert_int_equal(request->header.request_id, id);
		rig_reply(rig, request, STATUS_OK);
		rig_reply_of(greedy, id);
	}
	assert_non_null(rig_find_reply(modest, 50));
}

static void a_connection_that_ends_gives_its_waiting_requests_up(void **state)
{
	struct rig *rig = *state;
	struct rig_client *client = rig_join(rig, 0);
	struct rig_client *other = rig_join(rig, 1);
	uint8_t bytes[512];

	rig->auto_answer = false;
	for (uint64_t id = 1; id <= 6; id++)
		rig_send_indirect(client, bytes, rig_lookup(bytes, sizeof(bytes), id, 3), id, (unsigned)id);
	RIG_UNTIL(rig, rig->inbox_count == 1);
	for (uint64_t id = 1; id <= 3; id++)
		rig_send_indirect(other, bytes, rig_lookup(bytes, sizeof(bytes), id, 3), id, (unsigned)id);
	RIG_UNTIL(rig, rig->inbox_count == 2);
	rig_close(client);
	rig_steps(rig, 300);
	assert_false(client->closed); /* one is still with management */
	rig_reply(rig, rig_take_request(rig), STATUS_OK);
	RIG_UNTIL(rig, client->closed);
	rig->auto_answer = true;
	rig_reply(rig, rig_take_request(rig), STATUS_OK);
	rig_reply_of(other, 3);
}

static void a_region_is_forgotten_when_nothing_reads_from_it(void **state)
{
	struct rig *rig = *state;
	struct rig_client *client = rig_join(rig, 0);
	uint8_t bytes[512];
	struct ring_message message = { .kind = TO_WORKER_FORGET,
		.word = { (uint64_t)(uintptr_t)&client->connection, 1 } };

	/* At once, when nothing is under way. */
	rig_steps(rig, 20);
	assert_true(ring_push(&rig->mailbox->to_worker, &message));
	RIG_UNTIL(rig, client->forgotten == 1);
	assert_int_equal(client->forgotten_region, 1);

	/* After the fetches: one that waits for a buffer, and one on the wire. */
	rig->auto_answer = false;
	rig_send_indirect(client, bytes, rig_lookup(bytes, sizeof(bytes), 1, 3), 1, 1);
	rig_send_indirect(client, bytes, rig_lookup(bytes, sizeof(bytes), 2, 3), 2, 2);
	RIG_UNTIL(rig, RIG_COUNT(rig, indirect_total) == 2);
	kvr_store_release(&client->regions[1].present, false);
	assert_true(ring_push(&rig->mailbox->to_worker, &message));
	RIG_UNTIL(rig, rig->inbox_count == 1);
	rig_steps(rig, 200);
	assert_int_equal(client->forgotten, 1); /* the second waits */
	rig_reply(rig, rig_take_request(rig), STATUS_OK);
	RIG_UNTIL(rig, client->forgotten == 2);
	RIG_UNTIL(rig, rig->inbox_count == 1);
	rig_reply(rig, rig_take_request(rig), STATUS_OK);
	rig_send_indirect(client, bytes, rig_lookup(bytes, sizeof(bytes), 3, 3), 3, 3);
	assert_refused(client, 3, WIRE_INDIRECT + 1, STATUS_INVALID_MEMORY, "region 1");
}

static void a_fetch_that_is_not_posted_yet_counts_as_well(void **state)
{
	struct rig *rig = *state;
	struct rig_client *client = rig_join(rig, 0);
	uint8_t bytes[512];
	struct ring_message message = { .kind = TO_WORKER_FORGET,
		.word = { (uint64_t)(uintptr_t)&client->connection, 1 } };

	rig->auto_answer = false;
	RIG_UNTIL(rig, client->connection.worker);
	rig_send_indirect(client, bytes, rig_lookup(bytes, sizeof(bytes), 1, 3), 1, 1);
	while (sim_fabric_step(rig->fabric, rig->now += 1000, 64) > 0 ||
		sim_fabric_next_ns(rig->fabric) < rig->now + 1000000)
		;
	assert_true(ring_push(&rig->mailbox->to_worker, &message)); /* found in the same step as the INDIRECT */
	while (rig->inbox_count == 0) {
		rig_step(rig);
		assert_true(client->forgotten == 0 || rig->inbox_count == 1);
	}
	RIG_UNTIL(rig, client->forgotten == 1);
}

static void a_failed_connection_forgets_when_it_is_idle(void **state)
{
	struct rig *rig = *state;
	struct rig_client *client = rig_join(rig, 0);
	uint8_t bytes[512];
	struct ring_message message = { .kind = TO_WORKER_FORGET,
		.word = { (uint64_t)(uintptr_t)&client->connection, 1 } };

	rig->auto_close = false;
	sim_fabric_cut(rig->fabric, client->server_qp->qp_num);
	rig_steps(rig, 10);
	rig_send_indirect(client, bytes, rig_lookup(bytes, sizeof(bytes), 1, 3), 1, 1);
	assert_true(ring_push(&rig->mailbox->to_worker, &message));
	RIG_UNTIL(rig, client->forgotten == 1);
}

static void fetches_and_replies_of_many_clients_do_not_mix(void **state)
{
	struct rig *rig = *state;
	uint64_t next[RIG_CLIENTS] = { 0 };
	uint8_t bytes[4096];

	for (unsigned c = 0; c < RIG_CLIENTS; c++)
		rig_join(rig, c);
	for (unsigned i = 0; i < 3000; i++) {
		for (unsigned c = 0; c < RIG_CLIENTS; c++) {
			struct rig_client *client = &rig->clients[c];

			if (next[c] - client->reply_count < 4) {
				uint64_t id = ++next[c];
				uint32_t digests = 1 + (uint32_t)random_below(&rig->random, 100);

				rig_send_indirect(
					client, bytes, rig_lookup(bytes, sizeof(bytes), id, digests), id, id % 8);
			}
		}
		rig_step(rig);
	}
	for (unsigned c = 0; c < RIG_CLIENTS; c++) {
		RIG_UNTIL(rig, rig->clients[c].reply_count == next[c]);
		assert_true(next[c] > 50);
	}
	assert_int_equal(RIG_COUNT(rig, error_replies_total), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_long_lookup_is_fetched_and_answered_as_itself),
		TEST(every_request_type_may_be_wrapped),
		TEST(what_is_inside_is_as_hostile_as_what_is_outside),
		TEST(memory_that_is_not_the_clients_is_refused),
		TEST(a_fetch_that_the_client_refuses_ends_its_connection),
		TEST(requests_wait_for_large_buffers_in_turn),
		TEST(a_connection_that_ends_gives_its_waiting_requests_up),
		TEST(a_region_is_forgotten_when_nothing_reads_from_it),
		TEST(a_fetch_that_is_not_posted_yet_counts_as_well),
		TEST(a_failed_connection_forgets_when_it_is_idle),
		TEST(fetches_and_replies_of_many_clients_do_not_mix),
	};
#undef TEST

	return cmocka_run_group_tests(tests, NULL, NULL);
}
