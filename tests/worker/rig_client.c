#include "worker/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- clients ---------------------------------------------------------------------------------------------------- */

static void post_receive(struct rig_client *client, uint32_t index)
{
	struct ibv_sge sge = { (uint64_t)(uintptr_t)client->messages + (uint64_t)index * WIRE_INLINE_BYTES,
		WIRE_INLINE_BYTES, client->message_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = WR_ID_RECEIVE | index, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	assert_int_equal(ibv_post_recv(client->qp, &wr, &bad), 0);
}

static void make_memory(struct rig_client *client)
{
	struct rig *rig = client->rig;
	uint64_t message_bytes = 2 * (uint64_t)client->receives * WIRE_INLINE_BYTES;

	client->memory_bytes = RIG_PLACES * RIG_MESSAGE_MAX +
		(uint64_t)RIG_PLANES * RIG_BLOCKS * rig->options.block_stride;
	assert_int_equal(verbs_sim.allocate(client->device, client->memory_bytes, (void **)&client->memory), 0);
	memset(client->memory, RIG_POISON, client->memory_bytes);
	assert_int_equal(
		verbs_sim.register_memory(client->device, client->memory, client->memory_bytes,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, &client->mr),
		0);
	client->messages = calloc(1, message_bytes);
	assert_int_equal(verbs_sim.register_memory(client->device, client->messages, message_bytes,
				 IBV_ACCESS_LOCAL_WRITE, &client->message_mr),
		0);
}

static void connect_pair(struct rig_client *client)
{
	struct rig *rig = client->rig;
	struct verbs_qp_options options = {
		.send_cq = client->cq,
		.recv_cq = client->cq,
		.max_send_wr = client->receives,
		.max_recv_wr = client->receives,
		.max_sge = 1,
	};
	uint8_t address[WIRE_ADDRESS_MAX];
	uint32_t length;
	unsigned fds;

	assert_int_equal(verbs_sim.create_qp(client->device, &options, &client->qp), 0);
	worker_qp_options(rig->worker, &options);
	assert_int_equal(verbs_sim.create_qp(rig->device, &options, &client->server_qp), 0);
	assert_int_equal(verbs_sim.qp_address(client->qp, address, sizeof(address), &length, NULL, &fds), 0);
	assert_int_equal(verbs_sim.qp_connect(client->server_qp, address, length, NULL, 0, NULL), 0);
	assert_int_equal(verbs_sim.qp_address(client->server_qp, address, sizeof(address), &length, NULL, &fds), 0);
	assert_int_equal(verbs_sim.qp_connect(client->qp, address, length, NULL, 0, NULL), 0);
	verbs_sim.qp_start(client->qp);
}

static void import(struct rig_client *client)
{
	struct verbs_export description;
	struct verbs_remote_memory memory = {
		.address = (uint64_t)(uintptr_t)client->memory,
		.length = client->memory_bytes,
		.fd = -1,
	};
	struct verbs_import imported;

	assert_int_equal(verbs_sim.export_memory(client->mr, &description), 0);
	memory.kind = description.kind;
	memory.rkey = description.rkey;
	assert_int_equal(verbs_sim.import_memory(client->server_qp, &memory, &imported), 0);
	client->regions[1] = (struct layout_region){ imported.address, imported.length, imported.rkey,
		.present = true };
}

static void make_layout(struct rig_client *client)
{
	const struct rig_options *options = &client->rig->options;
	struct layout *layout = calloc(1, layout_bytes(RIG_PLANES));

	layout->chunk_tokens = 64;
	layout->group_count = 1;
	layout->plane_count = RIG_PLANES;
	layout->groups[0] = (struct layout_group){
		.tokens_per_block = 64 / RIG_CHUNK_BLOCKS,
		.blocks_per_chunk = RIG_CHUNK_BLOCKS,
		.block_count = RIG_BLOCKS,
		.window_tokens = WIRE_WINDOW_FULL,
		.plane_count = RIG_PLANES,
		.object_bytes = client->rig->object_bytes,
	};
	for (uint32_t p = 0; p < RIG_PLANES; p++)
		layout->planes[p] = (struct layout_plane){
			.address = (uint64_t)(uintptr_t)rig_block(client, p, 0),
			.block_stride = options->block_stride,
			.object_offset = (uint64_t)p * RIG_CHUNK_BLOCKS * options->block_bytes,
			.block_bytes = options->block_bytes,
			.rkey = client->regions[1].rkey,
		};
	client->layout = layout;
}

struct rig_client *rig_join(struct rig *rig, unsigned index)
{
	struct rig_client *client = &rig->clients[index];
	struct verbs_open open = { .fabric = rig->fabric };

	assert_false(client->open);
	memset(client, 0, sizeof(*client));
	client->rig = rig;
	client->receives = 2 * rig->options.credits + 8;
	client->takes_replies = true;
	client->replies = calloc(RIG_REPLIES, sizeof(*client->replies));
	assert_int_equal(verbs_sim.open(&open, &client->device), 0);
	assert_int_equal(verbs_sim.create_cq(client->device, 4 * client->receives, &client->cq), 0);
	make_memory(client);
	connect_pair(client);
	import(client);
	make_layout(client);
	for (uint32_t i = 0; i < client->receives; i++)
		post_receive(client, i);
	client->connection.qp = client->server_qp;
	client->connection.number = index;
	client->connection.credits = rig->options.credits;
	client->connection.tenant = 3;
	client->connection.gathers = rig->options.gathers;
	client->connection.regions = client->regions;
	client->connection.region_count = 2;
	client->connection.control = client;
	client->open = true;
	rig_tell(rig, TO_WORKER_OPEN, &client->connection, 0);
	return client;
}

void rig_close(struct rig_client *client)
{
	if (client->connection.closing)
		return;
	client->connection.closing = true;
	rig_tell(client->rig, TO_WORKER_CLOSE, &client->connection, 0);
}

void rig_leave(struct rig_client *client)
{
	struct rig *rig = client->rig;

	rig_close(client);
	RIG_UNTIL(rig, client->closed);
	/* The control thread does this at once: nothing may hang on the queue pair or the connection any more. */
	verbs_sim.destroy_qp(client->server_qp);
	memset(&client->connection, 0xdd, sizeof(client->connection));
	verbs_sim.qp_fail(client->qp);
	while (!verbs_sim.qp_idle(client->qp))
		rig_step(rig);
	verbs_sim.qp_stop(client->qp);
	verbs_sim.destroy_qp(client->qp);
	verbs_sim.destroy_cq(client->cq);
	assert_int_equal(verbs_sim.deregister_memory(client->mr), 0);
	assert_int_equal(verbs_sim.deregister_memory(client->message_mr), 0);
	verbs_sim.release(client->device, client->memory, client->memory_bytes);
	verbs_sim.close(client->device);
	free(client->messages);
	free(client->layout);
	free(client->replies);
	client->open = false;
}

static void take_reply(struct rig_client *client, const struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)(wc->wr_id & ~WR_ID_RECEIVE);
	const uint8_t *bytes = client->messages + (uint64_t)index * WIRE_INLINE_BYTES;
	uint32_t left = wc->byte_len;

	client->sends_received++;
	do {
		struct rig_reply *reply = &client->replies[client->reply_count % RIG_REPLIES];
		struct wire_error error;

		reply->length = client->rig->options.gathers ? wire_first_length(bytes, left) : left;
		memcpy(reply->bytes, bytes, reply->length);
		assert_int_equal(wire_header_decode(reply->bytes, reply->length, &reply->header, &error), 0);
		assert_int_equal(reply->header.length, reply->length);
		assert_int_equal(reply->header.boot_id, RIG_BOOT); /* every reply carries it */
		client->reply_count++;
		bytes += reply->length;
		left -= reply->length;
	} while (left > 0);
	post_receive(client, index);
}

void rig_client_step(struct rig_client *client)
{
	struct ibv_wc wcs[8];
	int count = client->killed ? 0 : ibv_poll_cq(client->cq, 8, wcs);

	for (int i = 0; i < count; i++) {
		bool receive = wcs[i].wr_id & WR_ID_RECEIVE;

		if (wcs[i].status != IBV_WC_SUCCESS)
			*(receive ? &client->receive_errors : &client->send_errors) += 1;
		else if (receive && client->takes_replies)
			take_reply(client, &wcs[i]);
	}
}

static void send_now(struct rig_client *client, const void *bytes, uint32_t length)
{
	uint32_t place = client->sent++ % client->receives;
	uint8_t *buffer = client->messages + (uint64_t)(client->receives + place) * WIRE_INLINE_BYTES;
	struct ibv_sge sge = { (uint64_t)(uintptr_t)buffer, length, client->message_mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = place,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	assert_true(length <= client->receives * WIRE_INLINE_BYTES);
	memcpy(buffer, bytes, length);
	assert_int_equal(ibv_post_send(client->qp, &wr, &bad), 0);
}

void rig_hold(struct rig_client *client)
{
	client->holds = true;
}

void rig_release(struct rig_client *client)
{
	if (client->held_bytes > 0)
		send_now(client, client->held, client->held_bytes);
	client->held_bytes = 0;
	client->holds = false;
}

void rig_send(struct rig_client *client, const void *bytes, uint32_t length)
{
	if (!client->holds) {
		send_now(client, bytes, length);
		return;
	}
	if (length > sizeof(client->held) - client->held_bytes) {
		rig_release(client);
		client->holds = true;
	}
	memcpy(client->held + client->held_bytes, bytes, length);
	client->held_bytes += length;
}

void rig_send_indirect(struct rig_client *client, const void *bytes, uint32_t length, uint64_t id, unsigned where)
{
	uint8_t *place = client->memory + (uint64_t)where * RIG_MESSAGE_MAX;
	struct indirect message = {
		.header.request_id = id,
		.region = 1,
		.length = length,
		.address = (uint64_t)(uintptr_t)place,
	};
	uint8_t encoded[64];
	ssize_t encoded_length = indirect_encode(encoded, sizeof(encoded), &message);

	assert_true(encoded_length > 0);
	memcpy(place, bytes, length);
	rig_send(client, encoded, (uint32_t)encoded_length);
}

const struct rig_reply *rig_find_reply(const struct rig_client *client, uint64_t id)
{
	uint32_t oldest = client->reply_count > RIG_REPLIES ? client->reply_count - RIG_REPLIES : 0;

	for (uint32_t i = client->reply_count; i > oldest; i--)
		if (client->replies[(i - 1) % RIG_REPLIES].header.request_id == id)
			return &client->replies[(i - 1) % RIG_REPLIES];
	return NULL;
}

uint32_t rig_count_replies(const struct rig_client *client, uint64_t id)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < client->reply_count && i < RIG_REPLIES; i++)
		count += client->replies[i].header.request_id == id;
	return count;
}

const struct rig_reply *rig_reply_of(struct rig_client *client, uint64_t id)
{
	RIG_UNTIL(client->rig, rig_find_reply(client, id));
	return rig_find_reply(client, id);
}

void rig_text_of(const struct rig_reply *reply, char text[WIRE_ERROR_TEXT_MAX + 1])
{
	struct error_reply decoded;
	struct wire_error error;

	assert_int_equal(error_reply_decode(reply->bytes, reply->length, &decoded, &error), 0);
	memcpy(text, decoded.text.bytes, decoded.text.length);
	text[decoded.text.length] = '\0';
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

uint32_t rig_ping(uint8_t *bytes, uint64_t id)
{
	struct ping ping = { .header = { .type = WIRE_PING, .request_id = id } };
	ssize_t length = ping_encode(bytes, WIRE_INLINE_BYTES, &ping);

	assert_true(length > 0);
	return (uint32_t)length;
}

static uint8_t some_digests[WIRE_CHUNKS_MAX * WIRE_DIGEST_BYTES];

uint32_t rig_lookup(uint8_t *bytes, uint32_t capacity, uint64_t id, uint32_t digests)
{
	struct lookup_request lookup = {
		.header = { .request_id = id },
		.chunk_count = digests,
		.session = { .id = { "session", 7 }, .digests = some_digests, .digest_count = digests },
	};
	ssize_t length = lookup_request_encode(bytes, capacity, &lookup);

	assert_true(length > 0);
	return (uint32_t)length;
}

static uint32_t encode_transfer(uint8_t *bytes, uint32_t capacity, uint16_t type, uint64_t id, uint32_t first_chunk,
	uint32_t chunks, const struct block_run *runs, uint32_t run_count)
{
	struct transfer_request request = {
		.header = { .type = type, .request_id = id },
		.first_chunk = first_chunk,
		.chunk_count = chunks,
		.group_count = 1,
		.run_count = run_count,
		.session = { .id = { "session", 7 } },
		.group_runs = (const uint8_t *)&run_count,
		.runs = (const uint8_t *)runs,
	};
	ssize_t length = transfer_request_encode(bytes, capacity, &request);

	assert_true(length > 0);
	return (uint32_t)length;
}

uint32_t rig_transfer(
	uint8_t *bytes, uint16_t type, uint64_t id, uint32_t first_chunk, uint32_t chunks, uint32_t first_block)
{
	struct block_run run = { first_block, chunks * RIG_CHUNK_BLOCKS };

	return encode_transfer(bytes, WIRE_INLINE_BYTES, type, id, first_chunk, chunks, &run, 1);
}

uint32_t rig_ordered(uint8_t *bytes, uint32_t length, uint16_t flags, const struct transfer_order *order)
{
	struct transfer_request request;
	struct wire_error error;
	uint8_t *copy = malloc(length);
	ssize_t longer;

	assert_non_null(copy);
	memcpy(copy, bytes, length);
	assert_int_equal(transfer_request_decode(copy, length, &request, &error), 0);
	request.header.flags = flags;
	request.order = *order;
	longer = transfer_request_encode(bytes, WIRE_INLINE_BYTES, &request);
	assert_true(longer > 0);
	free(copy);
	return (uint32_t)longer;
}

uint32_t *rig_word(const struct rig_client *client, uint32_t number)
{
	return (uint32_t *)(void *)(client->memory + (RIG_PLACES - 1) * (uint64_t)RIG_MESSAGE_MAX) + number;
}

uint32_t rig_scattered(uint8_t *bytes, uint32_t capacity, uint16_t type, uint64_t id, uint32_t first_chunk,
	uint32_t chunks, const uint32_t *blocks)
{
	struct block_run runs[RIG_BLOCKS];

	for (uint32_t i = 0; i < chunks * RIG_CHUNK_BLOCKS; i++)
		runs[i] = (struct block_run){ blocks[i], 1 };
	return encode_transfer(bytes, capacity, type, id, first_chunk, chunks, runs, chunks * RIG_CHUNK_BLOCKS);
}
