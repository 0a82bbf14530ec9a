#include "worker/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "protocol/digest.h"

#define GUARD 0xa5
#define GUARD_BYTES 64
#define POISON 0x5c

/* The shim has no context of its own. One rig at a time. */
static struct rig *shim_rig;
static int (*real_post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

/* ---- the shim --------------------------------------------------------------------------------------------------- */

static void look_at(struct rig *rig, const struct ibv_send_wr *wr)
{
	rig->work_requests++;
	rig->signalled += (wr->send_flags & IBV_SEND_SIGNALED) != 0;
	if ((uint64_t)wr->num_sge > rig->widest)
		rig->widest = (uint64_t)wr->num_sge;
}

/* Posts a chain up to the work request that it refuses, as a device does. */
static int shim_post_send(struct ibv_qp *qp, struct ibv_send_wr *first, struct ibv_send_wr **bad)
{
	struct rig *rig = shim_rig;
	struct ibv_send_wr *last = NULL;
	int error = 0;

	rig->posts++;
	for (struct ibv_send_wr *wr = first; wr; last = wr, wr = wr->next) {
		look_at(rig, wr);
		if (!random_chance(&rig->random, rig->refuse_per_thousand, 1000))
			continue;
		rig->refused++;
		if (last) {
			last->next = NULL;
			error = real_post_send(qp, first, bad);
			last->next = wr;
		}
		rig->device_errors += error != 0;
		if (error)
			return error;
		*bad = wr;
		return rig->refuse_error;
	}
	error = real_post_send(qp, first, bad);
	rig->device_errors += error != 0;
	return error;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static uint8_t pattern(uint8_t salt, uint32_t plane, uint32_t position, uint32_t i)
{
	return (uint8_t)random_mix(salt + ((uint64_t)plane << 8) + ((uint64_t)position << 16) + ((uint64_t)i << 32));
}

uint8_t *rig_object(const struct rig *rig, uint32_t chunk)
{
	return rig->l1 + chunk * rig->object_distance;
}

uint8_t *rig_block(const struct rig_client *client, uint32_t plane, uint32_t block)
{
	return client->memory + RIG_PLACES * RIG_MESSAGE_MAX +
		((uint64_t)plane * RIG_BLOCKS + block) * client->rig->options.block_stride;
}

void rig_fill_object(struct rig *rig, uint32_t chunk, uint8_t salt)
{
	uint32_t bytes = rig->options.block_bytes;

	for (uint32_t plane = 0; plane < RIG_PLANES; plane++)
		for (uint32_t b = 0; b < RIG_CHUNK_BLOCKS; b++)
			for (uint32_t i = 0; i < bytes; i++)
				rig_object(rig, chunk)[(plane * RIG_CHUNK_BLOCKS + b) * bytes + i] = pattern(
					salt, plane, b, i);
}

void rig_fill_block(struct rig_client *client, uint32_t block, uint32_t position, uint8_t salt)
{
	for (uint32_t plane = 0; plane < RIG_PLANES; plane++)
		for (uint32_t i = 0; i < client->rig->options.block_bytes; i++)
			rig_block(client, plane, block)[i] = pattern(salt, plane, position, i);
}

void rig_assert_block(const struct rig_client *client, uint32_t block, uint32_t position, uint8_t salt)
{
	for (uint32_t plane = 0; plane < RIG_PLANES; plane++)
		for (uint32_t i = 0; i < client->rig->options.block_bytes; i++)
			if (rig_block(client, plane, block)[i] != pattern(salt, plane, position, i))
				fail_msg("block %u, plane %u, byte %u differs", block, plane, i);
}

void rig_assert_object(const struct rig *rig, uint32_t chunk, uint8_t salt)
{
	uint32_t bytes = rig->options.block_bytes;

	for (uint32_t plane = 0; plane < RIG_PLANES; plane++)
		for (uint32_t b = 0; b < RIG_CHUNK_BLOCKS; b++)
			for (uint32_t i = 0; i < bytes; i++)
				if (rig_object(rig, chunk)[(plane * RIG_CHUNK_BLOCKS + b) * bytes + i] !=
					pattern(salt, plane, b, i))
					fail_msg("object %u, plane %u, block %u, byte %u differs", chunk, plane, b, i);
}

void rig_assert_guards(const struct rig *rig)
{
	for (uint32_t chunk = 0; chunk < RIG_CHUNKS; chunk++)
		for (uint32_t i = 0; i < GUARD_BYTES; i++)
			if (rig_object(rig, chunk)[rig->object_bytes + i] != GUARD)
				fail_msg("the guard behind object %u was written to", chunk);
	for (unsigned c = 0; c < RIG_CLIENTS; c++) {
		const struct rig_client *client = &rig->clients[c];
		uint32_t gap = rig->options.block_stride - rig->options.block_bytes;

		for (uint32_t block = 0; client->open && !client->killed && block < RIG_PLANES * RIG_BLOCKS; block++)
			for (uint32_t i = 0; i < gap; i++)
				if (rig_block(client, 0, block)[rig->options.block_bytes + i] != POISON)
					fail_msg("the gap behind block %u was written to", block);
	}
}

/* ---- start and stop --------------------------------------------------------------------------------------------- */

void rig_options_default(struct rig_options *options)
{
	memset(options, 0, sizeof(*options));
	options->seed = 1;
	options->credits = 8;
	options->connections_max = RIG_CLIENTS;
	options->large_buffers = 2;
	options->send_depth = 64;
	options->block_bytes = options->block_stride = 64;
	sim_options_default(&options->sim);
}

static const char *tenant_name(void *context, uint32_t tenant)
{
	(void)context;
	return tenant == 3 ? "tenant three" : "tenant";
}

static void start_worker(struct rig *rig)
{
	struct worker_options options = {
		.device = rig->device,
		.connections_max = rig->options.connections_max,
		.credits = rig->options.credits,
		.large_buffers = rig->options.large_buffers,
		.message_bytes_max = RIG_MESSAGE_MAX,
		.send_depth = rig->options.send_depth,
		.boot_id = RIG_BOOT,
		.info = {
			.version = 1,
			.chunk_tokens = 64,
			.chunks_max = WIRE_CHUNKS_MAX,
			.message_bytes_max = RIG_MESSAGE_MAX,
			.inline_bytes = WIRE_INLINE_BYTES,
			.credits = 1,
			.lock_seconds = 60,
			.server = { "rig", 3 },
		},
		.tenant_name = tenant_name,
	};

	assert_int_equal(worker_create(&options, &rig->worker), 0);
	rig->mailbox = worker_mailbox(rig->worker);
}

struct rig *rig_start(const struct rig_options *options)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct verbs_open open = { 0 };

	rig->options = *options;
	rig->auto_answer = true;
	rig->auto_close = true;
	rig->refuse_error = ENOMEM;
	random_init(&rig->random, options->seed);
	assert_int_equal(sim_fabric_create(options->seed, &options->sim, &rig->fabric), 0);
	open.fabric = rig->fabric;
	assert_int_equal(verbs_sim.open(&open, &rig->device), 0);
	if (options->max_rd_atomic)
		rig->device->limits.max_rd_atomic = options->max_rd_atomic;
	if (options->max_sge)
		rig->device->limits.max_sge = options->max_sge;
	shim_rig = rig;
	real_post_send = rig->device->context->ops.post_send;
	rig->device->context->ops.post_send = shim_post_send;

	rig->object_bytes = (uint64_t)RIG_PLANES * RIG_CHUNK_BLOCKS * options->block_bytes;
	rig->object_distance = kvr_round_up(rig->object_bytes + GUARD_BYTES, 64);
	rig->l1_bytes = rig->object_distance * RIG_CHUNKS;
	rig->l1 = aligned_alloc(64, rig->l1_bytes);
	memset(rig->l1, GUARD, rig->l1_bytes);
	assert_int_equal(
		verbs_sim.register_memory(rig->device, rig->l1, rig->l1_bytes, IBV_ACCESS_LOCAL_WRITE, &rig->l1_mr), 0);
	start_worker(rig);
	return rig;
}

/* Everything that a worker lends has come back. */
static void assert_nothing_is_out(struct rig *rig)
{
	const struct worker *worker = rig->worker;
	uint32_t replies = 0;

	for (uint32_t i = 0; i < worker->slot_count; i++)
		assert_int_equal(worker->slots[i].stage, SLOT_POSTED);
	for (uint32_t i = worker->reply_free; i != POOL_NONE; i = worker->reply_buffers[i].next)
		replies++;
	assert_int_equal(replies, worker->slot_count);
	assert_int_equal(worker->free_large_count, worker->options.large_buffers);
	assert_int_equal(worker->free_endpoint_count, worker->options.connections_max);
	for (uint32_t i = 0; i <= worker->number_mask; i++)
		assert_null(worker->by_number[i]);
	assert_true(list_empty(&worker->active) && list_empty(&worker->draining) && list_empty(&worker->large_waiters));
	assert_true(ring_empty(&rig->mailbox->to_management) && ring_empty(&rig->mailbox->to_worker));
	assert_int_equal(rig->inbox_count, 0);
	assert_int_equal(rig->done_count, 0);
}

void rig_stop(struct rig *rig)
{
	struct sim_counters counters;

	rig->auto_answer = true;
	rig->auto_close = true;
	while (rig->inbox_count > 0)
		rig_reply(rig, rig->inbox[--rig->inbox_count], STATUS_SHUTTING_DOWN);
	while (rig->done_count > 0)
		rig_reply(rig, rig->done[--rig->done_count], STATUS_OK);
	for (unsigned i = 0; i < RIG_CLIENTS; i++)
		if (rig->clients[i].open)
			rig_leave(&rig->clients[i]);
	assert_nothing_is_out(rig);
	sim_fabric_counters(rig->fabric, &counters);
	assert_int_equal(counters.misuses, 0);
	assert_int_equal(counters.cq_overflows, 0);
	assert_int_equal(rig->device_errors, 0); /* pitfalls I16: no queue was ever full */
	worker_destroy(&rig->worker);
	assert_null(rig->worker);
	assert_int_equal(verbs_sim.deregister_memory(rig->l1_mr), 0);
	rig->device->context->ops.post_send = real_post_send;
	verbs_sim.close(rig->device);
	sim_fabric_destroy(&rig->fabric);
	free(rig->l1);
	free(rig);
}

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
	memset(client->memory, POISON, client->memory_bytes);
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

static void tell(struct rig *rig, enum to_worker kind, void *object, uint64_t word)
{
	struct ring_message message = { .kind = kind, .word = { (uint64_t)(uintptr_t)object, word } };

	assert_true(ring_push(&rig->mailbox->to_worker, &message));
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
	client->connection.regions = client->regions;
	client->connection.region_count = 2;
	client->connection.control = client;
	client->open = true;
	tell(rig, TO_WORKER_OPEN, &client->connection, 0);
	return client;
}

void rig_close(struct rig_client *client)
{
	if (client->connection.closing)
		return;
	client->connection.closing = true;
	tell(client->rig, TO_WORKER_CLOSE, &client->connection, 0);
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
	struct rig_reply *reply = &client->replies[client->reply_count % RIG_REPLIES];
	struct wire_error error;

	reply->length = wc->byte_len;
	memcpy(reply->bytes, client->messages + (uint64_t)index * WIRE_INLINE_BYTES, wc->byte_len);
	assert_int_equal(wire_header_decode(reply->bytes, reply->length, &reply->header, &error), 0);
	assert_int_equal(reply->header.length, reply->length);
	assert_int_equal(reply->header.boot_id, RIG_BOOT); /* every reply carries it */
	client->reply_count++;
	post_receive(client, index);
}

static void client_step(struct rig_client *client)
{
	struct ibv_wc wcs[8];
	int count = client->killed || !client->takes_replies ? 0 : ibv_poll_cq(client->cq, 8, wcs);

	for (int i = 0; i < count; i++) {
		bool receive = wcs[i].wr_id & WR_ID_RECEIVE;

		if (wcs[i].status != IBV_WC_SUCCESS)
			*(receive ? &client->receive_errors : &client->send_errors) += 1;
		else if (receive)
			take_reply(client, &wcs[i]);
	}
}

void rig_send(struct rig_client *client, const void *bytes, uint32_t length)
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

uint32_t rig_scattered(uint8_t *bytes, uint32_t capacity, uint16_t type, uint64_t id, uint32_t first_chunk,
	uint32_t chunks, const uint32_t *blocks)
{
	struct block_run runs[RIG_BLOCKS];

	for (uint32_t i = 0; i < chunks * RIG_CHUNK_BLOCKS; i++)
		runs[i] = (struct block_run){ blocks[i], 1 };
	return encode_transfer(bytes, capacity, type, id, first_chunk, chunks, runs, chunks * RIG_CHUNK_BLOCKS);
}

/* ---- the management core ---------------------------------------------------------------------------------------- */

void rig_begin_transfer(struct rig *rig, struct request *request)
{
	struct rig_client *client = request->connection->control;
	const struct transfer_request *message = &request->message.transfer;
	struct transfer *transfer = &request->transfer;
	struct wire_error error;

	assert_int_equal(layout_check_blocks(client->layout, message, &error), 0);
	memset(transfer, 0, sizeof(*transfer));
	transfer->layout = client->layout;
	transfer->to_client = request->header.type == WIRE_RETRIEVE;
	transfer->parts = request->inline_parts;
	transfer->outcomes = request->inline_outcomes;
	if (message->chunk_count > REQUEST_INLINE_PARTS) {
		transfer->parts = calloc(message->chunk_count, sizeof(*transfer->parts) + 1);
		transfer->outcomes = (uint8_t *)&transfer->parts[message->chunk_count];
		request->large = transfer->parts;
	}
	for (uint32_t i = 0; i < message->chunk_count; i++) {
		assert_true(message->first_chunk + i < RIG_CHUNKS);
		transfer->outcomes[i] = CHUNK_PENDING;
		transfer->parts[i] = (struct transfer_part){ .address = rig_object(rig, message->first_chunk + i),
			.lkey = rig->l1_mr->lkey };
	}
	tell(rig, TO_WORKER_TRANSFER, request, 0);
}

void rig_reply(struct rig *rig, struct request *request, uint16_t status)
{
	request->reply.status = status;
	request->reply.text[0] = '\0';
	request->reply.first = 0;
	request->reply.second = 0;
	if (request->header.type == WIRE_LOOKUP)
		request->reply.first = request->message.lookup.session.digest_count;
	if (request->transfer.outcomes)
		for (uint32_t i = 0; i < request->message.transfer.chunk_count; i++)
			request->reply.first += request->transfer.outcomes[i] <= CHUNK_SKIPPED ||
				request->transfer.outcomes[i] == CHUNK_STORED;
	if (request->transfer.outcomes && status == STATUS_OK &&
		request->reply.first < request->message.transfer.chunk_count)
		request->reply.status = STATUS_PARTIAL;
	tell(rig, TO_WORKER_REPLY, request, 0);
}

void rig_abort(struct rig *rig, struct request *request)
{
	tell(rig, TO_WORKER_ABORT, request, 0);
}

static struct request *take_first(struct request **queue, uint32_t *count)
{
	struct request *first = queue[0];

	memmove(queue, queue + 1, --*count * sizeof(*queue));
	return first;
}

struct request *rig_take_request(struct rig *rig)
{
	RIG_UNTIL(rig, rig->inbox_count > 0);
	return take_first(rig->inbox, &rig->inbox_count);
}

struct request *rig_take_done(struct rig *rig)
{
	RIG_UNTIL(rig, rig->done_count > 0);
	return take_first(rig->done, &rig->done_count);
}

static void take_new(struct rig *rig, struct request *request)
{
	assert_false(((struct rig_client *)request->connection->control)->closed);
	request->large = NULL;
	rig->requests++;
	if (!rig->auto_answer) {
		assert_true(rig->inbox_count < RIG_INBOX);
		rig->inbox[rig->inbox_count++] = request;
	} else if (request->header.type == WIRE_RETRIEVE || request->header.type == WIRE_STORE) {
		rig_begin_transfer(rig, request);
	} else {
		rig_reply(rig, request, STATUS_OK);
	}
}

static void take_moved(struct rig *rig, struct request *request)
{
	const struct rig_client *client = request->connection->control;

	assert_false(client->closed);
	/* What failed on a failed connection comes back when nothing of it touches memory any more, never before (pitfalls C05). */
	if (request->transfer.moved_bytes == 0 && request->connection->worker &&
		((struct endpoint *)request->connection->worker)->state != ENDPOINT_LIVE &&
		slot_of(request)->posted_bytes)
		assert_true(verbs_sim.qp_idle(client->server_qp));
	for (uint32_t i = 0; i < request->message.transfer.chunk_count; i++)
		assert_int_not_equal(request->transfer.outcomes[i], CHUNK_PENDING);
	rig->transfers_done++;
	if (rig->auto_answer) {
		rig_reply(rig, request, STATUS_OK);
	} else {
		assert_true(rig->done_count < RIG_INBOX);
		rig->done[rig->done_count++] = request;
	}
}

static void take_connection_message(struct rig *rig, const struct ring_message *message)
{
	struct connection *connection = (void *)(uintptr_t)message->word[0];
	struct rig_client *client = connection->control;

	assert_false(client->closed);
	switch (message->kind) {
	case TO_MANAGEMENT_LOST:
		assert_int_equal(client->lost_count++, 0); /* once */
		client->lost = true;
		if (rig->auto_close)
			rig_close(client);
		break;
	case TO_MANAGEMENT_CLOSED:
		client->closed = true;
		break;
	case TO_MANAGEMENT_FORGOTTEN:
		client->forgotten++;
		client->forgotten_region = message->word[1];
		break;
	default:
		fail_msg("message %u", message->kind);
	}
}

static void management_step(struct rig *rig)
{
	struct ring_message message;

	while (ring_pop(&rig->mailbox->to_management, &message)) {
		void *object = (void *)(uintptr_t)message.word[0];

		switch (message.kind) {
		case TO_MANAGEMENT_REQUEST:
			take_new(rig, object);
			break;
		case TO_MANAGEMENT_TRANSFER_DONE:
			take_moved(rig, object);
			break;
		case TO_MANAGEMENT_PARTS:
			rig->parts_back++;
			free(object);
			break;
		default:
			take_connection_message(rig, &message);
			break;
		}
	}
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

void rig_step(struct rig *rig)
{
	uint64_t next;
	bool busy;

	rig->steps++;
	rig->now += 50 + random_below(&rig->random, 200);
	busy = sim_fabric_step(rig->fabric, rig->now, 64) > 0;
	busy |= worker_step(rig->worker, rig->now);
	if (random_chance(&rig->random, 3, 4))
		management_step(rig);
	for (unsigned i = 0; i < RIG_CLIENTS; i++)
		if (rig->clients[i].open)
			client_step(&rig->clients[i]);
	next = sim_fabric_next_ns(rig->fabric);
	if (!busy && next != UINT64_MAX && next > rig->now)
		rig->now = next;
}

void rig_steps(struct rig *rig, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		rig_step(rig);
}
