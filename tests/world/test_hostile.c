/*
 * test_hostile.c - a client that says what it likes on its queue pair: it harms itself, never its neighbour. The messages go through a
 * real client's queue pair, behind its back.
 */
#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "base/random.h"
#include "client/client_private.h"
#include "protocol/message.h"
#include "verbs/sim/sim.h"
#include "world/slice.h"

#define CHUNKS 3u
#define RAW_SLOT (CLIENT_SLOTS - 1) /* its send buffer: the client itself uses the first ones */

static struct slice slice;
static struct slice_request request;
static struct slice_client *const hostile = &slice.clients[0], *const neighbour = &slice.clients[1];
static struct kvr_session *session;

static void begin(uint64_t seed)
{
	slice_start(&slice, seed, NULL, 1u << 20);
	slice_join(&slice, 0, "model", 1, 0);
	slice_join(&slice, 1, "model", 1, 0);
	session = slice_session(neighbour, "neighbour", NULL, 1, CHUNKS);
	assert_int_equal(slice_store(neighbour, session, 0, CHUNKS, 0, 1, &request), 0);
}

/* The neighbour's chunks are there, its bytes are right, the books are in order. */
static void neighbour_is_well(void)
{
	struct slice_request read;
	struct kvr_info info;

	assert_int_equal(slice_match(neighbour, session, 0), CHUNKS);
	assert_int_equal(slice_retrieve(neighbour, session, 0, CHUNKS, 100, &read), 0);
	slice_outcomes_are(&read, KVR_DELIVERED);
	for (uint32_t c = 0; c < CHUNKS; c++)
		assert_true(slice_delivered(neighbour, &read, c, 1));
	assert_int_equal(kvr_get_info(neighbour->client, &info), 0);
	assert_int_equal(info.reconnects, 0);
	assert_int_equal(server_verify(slice.server, false), 0);
}

static bool raw_send(const void *bytes, uint32_t length)
{
	struct kvr_client *client = hostile->client;
	uint8_t *room = client->slots[RAW_SLOT].bytes;
	struct ibv_sge sge = { (uint64_t)(uintptr_t)room, length, client->buffer_region->lkey };
	struct ibv_send_wr wr = { .wr_id = RAW_SLOT, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_send_wr *bad;

	if (!client_ready(client) || !client->qp)
		return false;
	memcpy(room, bytes, length);
	wr.send_flags = IBV_SEND_SIGNALED;
	return ibv_post_send(client->qp, &wr, &bad) == 0;
}

static uint32_t make_ping(uint8_t *bytes, uint64_t id, uint64_t boot_id)
{
	struct ping message;

	memset(&message, 0, sizeof(message));
	message.header.type = WIRE_PING;
	message.header.request_id = id;
	message.header.boot_id = boot_id;
	return (uint32_t)ping_encode(bytes, WIRE_INLINE_BYTES, &message);
}

/* A good LOOKUP, RETRIEVE or END of the hostile client's own, to be spoiled. */
static uint32_t make_request(struct random *random, uint8_t *bytes)
{
	const uint32_t group_runs[1] = { 1 };
	const struct block_run runs[1] = { { 0, CHUNKS * SLICE_BLOCKS_PER_CHUNK } };
	uint8_t digests[CHUNKS * WIRE_DIGEST_BYTES];
	struct session_ref ref;
	ssize_t length;

	memset(digests, (int)random_below(random, 4), sizeof(digests));
	memset(&ref, 0, sizeof(ref));
	ref.id.bytes = "hostile";
	ref.id.length = 7;
	ref.salt = digests;
	ref.parent = digest_seed;
	ref.digests = digests;
	ref.digest_count = CHUNKS;
	if (random_chance(random, 1, 2)) {
		struct lookup_request lookup = { .header = { .type = WIRE_LOOKUP, .request_id = random_next(random) } };

		lookup.registration = hostile->client->registrations[0].number;
		lookup.session = ref;
		length = lookup_request_encode(bytes, WIRE_INLINE_BYTES, &lookup);
	} else {
		struct transfer_request transfer = { .header = { .request_id = random_next(random) } };

		transfer.header.type = random_chance(random, 1, 2) ? WIRE_RETRIEVE : WIRE_STORE;
		transfer.registration = hostile->client->registrations[0].number;
		transfer.chunk_count = CHUNKS;
		transfer.group_count = 1;
		transfer.run_count = 1;
		transfer.group_runs = (const uint8_t *)group_runs;
		transfer.runs = (const uint8_t *)runs;
		transfer.session = ref;
		length = transfer_request_encode(bytes, WIRE_INLINE_BYTES, &transfer);
	}
	assert_true(length > 0);
	return (uint32_t)length;
}

static void spoil(struct random *random, uint8_t *bytes, uint32_t *length)
{
	unsigned changes = 1 + (unsigned)random_below(random, 6);

	switch (random_below(random, 4)) {
	case 0: /* cut */
		*length = (uint32_t)random_below(random, *length) + 1;
		break;
	case 1: /* longer than it says */
		memset(bytes + *length, 0xff, 64);
		*length += (uint32_t)random_below(random, 64);
		break;
	case 2: /* noise */
		for (uint32_t i = 0; i < *length; i++)
			bytes[i] = (uint8_t)random_next(random);
		break;
	default:
		break;
	}
	while (changes-- > 0)
		bytes[random_below(random, *length)] = (uint8_t)random_next(random);
}

static void spoiled_messages_harm_only_their_sender(void **state)
{
	struct random random;
	unsigned sent = 0;

	(void)state;
	begin(81);
	random_init(&random, 81);
	for (unsigned i = 0; i < 600; i++) {
		uint8_t bytes[WIRE_INLINE_BYTES];
		uint32_t length = make_request(&random, bytes);

		if (random_chance(&random, 9, 10))
			spoil(&random, bytes, &length);
		if (!client_ready(hostile->client))
			slice_await_ready(hostile);
		sent += raw_send(bytes, length);
		slice_run(&slice, 1 + (unsigned)random_below(&random, 40));
		if (i % 100 == 99)
			neighbour_is_well();
	}
	assert_true(sent > 500);
	assert_true(worker_counters(server_worker(slice.server, 0))->malformed_total > 50);
	slice_run(&slice, 500);
	neighbour_is_well();
	slice_stop(&slice);
}

static void a_message_for_the_server_before_is_refused(void **state)
{
	const struct worker_counters *counters;
	uint8_t bytes[64];
	uint64_t errors;

	(void)state;
	begin(82);
	counters = worker_counters(server_worker(slice.server, 0));
	errors = counters->error_replies_total;
	assert_true(raw_send(bytes, make_ping(bytes, 1000, server_boot_id(slice.server) + 1)));
	slice_run(&slice, 100);
	assert_int_equal(counters->error_replies_total, errors + 1);
	assert_true(raw_send(bytes, make_ping(bytes, 1001, server_boot_id(slice.server))));
	assert_true(raw_send(bytes, make_ping(bytes, 1002, 0)));
	slice_run(&slice, 100);
	assert_int_equal(counters->error_replies_total, errors + 1);
	assert_true(client_ready(hostile->client));
	slice_stop(&slice);
}

static void who_exceeds_its_credits_is_cut_off(void **state)
{
	struct kvr_info info;
	uint8_t bytes[64];

	(void)state;
	begin(83);
	for (unsigned i = 0; i < 3 * slice.options.credits; i++)
		(void)raw_send(bytes, make_ping(bytes, 2000 + i, 0));
	slice_run(&slice, 2000);
	slice_await_ready(hostile);
	assert_int_equal(kvr_get_info(hostile->client, &info), 0);
	assert_int_equal(info.reconnects, 1);
	neighbour_is_well();
	slice_stop(&slice);
}

/* pitfalls F06, F07: a client that guesses every key of the server's reads and writes nothing. */
static void no_key_reaches_the_servers_memory(void **state)
{
	struct sim_device *device;
	unsigned tried = 0;

	(void)state;
	begin(84);
	device = KVR_CONTAINER_OF(slice.server_device, struct sim_device, base);
	list_for_each(node, &device->mrs) {
		struct ibv_mr *mr = &KVR_CONTAINER_OF(node, struct sim_mr, in_device)->base;

		for (unsigned how = 0; how < 4; how++) {
			struct kvr_client *client = hostile->client;
			uint8_t *room = client->slots[RAW_SLOT].bytes;
			struct ibv_sge sge = { (uint64_t)(uintptr_t)room, 64, client->buffer_region->lkey };
			struct ibv_send_wr wr = { .wr_id = RAW_SLOT, .sg_list = &sge, .num_sge = 1 };
			uint8_t before[64], *target = mr->addr;
			struct ibv_send_wr *bad;

			slice_await_ready(hostile);
			memset(room, 0x77, 64);
			memcpy(before, target, sizeof(before));
			wr.opcode = how & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
			wr.wr.rdma.remote_addr = (uint64_t)(uintptr_t)target;
			wr.wr.rdma.rkey = how & 2 ? mr->lkey : mr->rkey;
			wr.send_flags = IBV_SEND_SIGNALED;
			assert_int_equal(ibv_post_send(client->qp, &wr, &bad), 0);
			slice_run(&slice, 60);
			assert_memory_equal(target, before, sizeof(before));
			for (unsigned i = 0; i < 64; i++)
				assert_int_equal(room[i], 0x77);
			assert_false(client_ready(client)); /* the error cost it its connection */
			tried++;
		}
	}
	assert_true(tried >= 8);
	neighbour_is_well();
	slice_stop(&slice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spoiled_messages_harm_only_their_sender),
		cmocka_unit_test(a_message_for_the_server_before_is_refused),
		cmocka_unit_test(who_exceeds_its_credits_is_cut_off),
		cmocka_unit_test(no_key_reaches_the_servers_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
