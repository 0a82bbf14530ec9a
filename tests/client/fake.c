/* fake.c - see fake.h. */
#include "client/fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "client/client_private.h"

#define FAKE_PATIENCE_NS (30 * KVR_SECOND)
#define FAKE_RECEIVE ((uint64_t)1 << 32)

static const struct verbs_driver *const driver = &verbs_sim;

static struct wire_text text_of(const char *string)
{
	struct wire_text text = { string, (uint32_t)strlen(string) };

	return text;
}

/* ---- the server's end ---- */

static void fake_close_queue(struct fake *fake)
{
	if (!fake->qp)
		return;
	if (fake->started) {
		driver->qp_fail(fake->qp);
		while (!driver->qp_idle(fake->qp)) {
			struct ibv_wc wc[16];

			fake->now_ns += 500;
			sim_fabric_step(fake->fabric, fake->now_ns, 64);
			ibv_poll_cq(fake->cq, 16, wc);
		}
		driver->qp_stop(fake->qp);
	}
	driver->destroy_qp(fake->qp);
	fake->qp = NULL;
	fake->started = false;
}

void fake_drop(struct fake *fake)
{
	if (fake->stream)
		fake->stream->ops->close(fake->stream);
	fake->stream = NULL;
	fake->control_length = 0;
	fake_close_queue(fake);
}

static int fake_connect(void *context, struct stream **stream)
{
	struct fake *fake = context;

	assert_true(fake->attempts < 64);
	fake->attempt_ns[fake->attempts++] = fake->now_ns;
	if (fake->connect_error)
		return fake->connect_error;
	fake_drop(fake);
	return sim_stream_pair(fake->fabric, fake->client_device, stream, &fake->stream);
}

static void fake_post_receive(struct fake *fake, uint32_t index)
{
	struct ibv_recv_wr wr, *bad;
	struct ibv_sge sge;

	memset(&wr, 0, sizeof(wr));
	sge.addr = (uint64_t)(uintptr_t)(fake->buffers + (size_t)index * WIRE_INLINE_BYTES);
	sge.length = WIRE_INLINE_BYTES;
	sge.lkey = fake->mr->lkey;
	wr.wr_id = FAKE_RECEIVE | index;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	assert_int_equal(ibv_post_recv(fake->qp, &wr, &bad), 0);
}

static void fake_receive(struct fake *fake, const struct ibv_wc *wc)
{
	const uint8_t *bytes = fake->buffers + (size_t)(uint32_t)wc->wr_id * WIRE_INLINE_BYTES;
	uint32_t left = wc->byte_len;
	struct wire_error error;

	if (!(wc->wr_id & FAKE_RECEIVE) || wc->status != IBV_WC_SUCCESS)
		return;
	fake->sends_received++;
	do {
		struct fake_request *request = &fake->requests[fake->request_count++];

		assert_true(fake->request_count <= FAKE_REQUESTS);
		request->length = fake->info.features & FEATURE_SEVERAL_MESSAGES ? wire_first_length(bytes, left)
										 : left;
		memcpy(request->bytes, bytes, request->length);
		assert_int_equal(wire_header_decode(request->bytes, request->length, &request->header, &error), 0);
		assert_int_equal(request->header.length, request->length);
		bytes += request->length;
		left -= request->length;
	} while (left > 0);
	fake_post_receive(fake, (uint32_t)wc->wr_id);
}

static void fake_server_step(struct fake *fake)
{
	struct ibv_wc wc[16];
	ssize_t length;
	int count;

	if (fake->stream) {
		length = fake->stream->ops->receive(fake->stream, fake->control + fake->control_length,
			sizeof(fake->control) - fake->control_length, NULL, NULL, 0);
		if (length > 0)
			fake->control_length += (uint32_t)length;
		else if (length != -EAGAIN)
			fake_drop(fake);
	}
	count = fake->started ? ibv_poll_cq(fake->cq, 16, wc) : 0;
	for (int i = 0; i < count; i++)
		fake_receive(fake, &wc[i]);
}

void fake_step(struct fake *fake)
{
	uint64_t next_ns = fake->now_ns + 100 * KVR_US;
	bool busy;

	next_ns = kvr_min_u64(next_ns, sim_fabric_next_ns(fake->fabric));
	next_ns = kvr_min_u64(next_ns, client_next_ns(fake->client));
	fake->now_ns = kvr_max_u64(fake->now_ns + 500, next_ns);
	do {
		sim_fabric_step(fake->fabric, fake->now_ns, 64);
		fake_server_step(fake);
		busy = client_step(fake->client, fake->now_ns);
		fake->now_ns += busy ? 500 : 0;
	} while (busy);
}

void fake_steps(struct fake *fake, unsigned count)
{
	while (count-- > 0)
		fake_step(fake);
}

void fake_pass(struct fake *fake, uint64_t ns)
{
	uint64_t until_ns = fake->now_ns + ns;

	while (fake->now_ns < until_ns)
		fake_step(fake);
}

/* ---- beginning and end ---- */

void fake_start(struct fake *fake, uint64_t seed, const struct kvr_options *options)
{
	const struct kvr_options defaults = KVR_OPTIONS_INIT;
	struct client_options create;
	struct verbs_open open;

	memset(fake, 0, sizeof(*fake));
	fake->now_ns = KVR_SECOND;
	fake->boot_id = 0xb007;
	fake->info.version = 1;
	fake->info.chunk_tokens = FAKE_CHUNK_TOKENS;
	fake->info.chunks_max = WIRE_CHUNKS_MAX;
	fake->info.message_bytes_max = WIRE_MESSAGE_BYTES_MAX;
	fake->info.inline_bytes = WIRE_INLINE_BYTES;
	fake->info.credits = 8;
	fake->info.server = text_of("fake 1");
	fake->info.tenant = text_of("default");
	assert_int_equal(sim_fabric_create(seed, NULL, &fake->fabric), 0);
	memset(&open, 0, sizeof(open));
	open.fabric = fake->fabric;
	open.server = true;
	assert_int_equal(driver->open(&open, &fake->device), 0);
	open.server = false;
	assert_int_equal(driver->open(&open, &fake->client_device), 0);
	fake->requests = calloc(FAKE_REQUESTS, sizeof(*fake->requests));
	fake->buffers = calloc(FAKE_RECEIVES + FAKE_SENDS, WIRE_INLINE_BYTES);
	fake->pool = aligned_alloc(4096, FAKE_BLOCKS * FAKE_BLOCK_BYTES);
	assert_true(fake->requests && fake->buffers && fake->pool);
	assert_int_equal(driver->register_memory(fake->device, fake->buffers,
				 (FAKE_RECEIVES + FAKE_SENDS) * WIRE_INLINE_BYTES, IBV_ACCESS_LOCAL_WRITE, &fake->mr),
		0);
	assert_int_equal(driver->create_cq(fake->device, 1024, &fake->cq), 0);
	fake->options = options ? *options : defaults;
	if (!fake->options.name)
		fake->options.name = "fake's client";
	memset(&create, 0, sizeof(create));
	create.user = &fake->options;
	create.device = fake->client_device;
	create.connect = fake_connect;
	create.context = fake;
	create.seed = seed;
	assert_int_equal(client_create(&create, &fake->client), 0);
}

void fake_stop(struct fake *fake)
{
	struct sim_counters counters;

	client_destroy(&fake->client);
	assert_null(fake->client);
	fake_drop(fake);
	driver->destroy_cq(fake->cq);
	assert_int_equal(driver->deregister_memory(fake->mr), 0);
	sim_fabric_counters(fake->fabric, &counters);
	assert_int_equal(counters.misuses, 0);
	assert_int_equal(counters.cq_overflows, 0);
	driver->close(fake->client_device);
	driver->close(fake->device);
	sim_fabric_destroy(&fake->fabric);
	free(fake->requests);
	free(fake->buffers);
	free(fake->pool);
}

/* ---- the control stream ---- */

const uint8_t *fake_control(struct fake *fake, uint16_t type)
{
	uint64_t until_ns = fake->now_ns + FAKE_PATIENCE_NS;
	struct wire_error error;
	int length;

	while ((length = wire_stream_length(fake->control, fake->control_length, WIRE_CONTROL_BYTES_MAX, &error)) ==
			0 ||
		fake->control_length < (uint32_t)length) {
		assert_true(fake->now_ns < until_ns);
		fake_step(fake);
	}
	assert_true(length > 0);
	memcpy(fake->message, fake->control, (size_t)length);
	fake->control_length -= (uint32_t)length;
	memmove(fake->control, fake->control + length, fake->control_length);
	assert_int_equal(wire_header_decode(fake->message, (size_t)length, &fake->header, &error), 0);
	assert_string_equal(wire_type_name(fake->header.type), wire_type_name(type));
	return fake->message;
}

static void fake_spoil(struct fake *fake, uint8_t *bytes, size_t length)
{
	if (fake->spoil > 0 && fake->spoil <= length)
		bytes[fake->spoil - 1] ^= 0xff;
	fake->spoil = 0;
}

void fake_say(struct fake *fake, const void *message, size_t length)
{
	uint8_t bytes[4096];

	assert_true((ssize_t)length > 0 && length <= sizeof(bytes));
	memcpy(bytes, message, length);
	fake_spoil(fake, bytes, length);
	assert_non_null(fake->stream);
	assert_int_equal(fake->stream->ops->send(fake->stream, bytes, length, NULL, 0), length);
}

struct wire_header fake_reply_header(const struct fake *fake, const struct wire_header *request)
{
	struct wire_header header;

	memset(&header, 0, sizeof(header));
	header.type = (uint16_t)(request->type + 1);
	header.request_id = request->request_id;
	header.boot_id = fake->boot_id;
	return header;
}

static size_t fake_error(
	const struct fake *fake, const struct wire_header *request, uint16_t status, const char *text, uint8_t *bytes)
{
	struct error_reply reply;
	ssize_t length;

	memset(&reply, 0, sizeof(reply));
	reply.header = fake_reply_header(fake, request);
	reply.header.status = status;
	reply.text = text_of(text);
	length = error_reply_encode(bytes, WIRE_HEADER_BYTES + 600, &reply);
	assert_true(length > 0);
	return (size_t)length;
}

void fake_refuse(struct fake *fake, uint16_t status, const char *text)
{
	uint8_t bytes[WIRE_HEADER_BYTES + 600];

	fake_say(fake, bytes, fake_error(fake, &fake->header, status, text, bytes));
}

void fake_reply_control(struct fake *fake)
{
	uint8_t bytes[WIRE_HEADER_BYTES];
	struct empty_reply reply;

	reply.header = fake_reply_header(fake, &fake->header);
	fake_say(fake, bytes, (size_t)empty_reply_encode(bytes, sizeof(bytes), &reply));
}

void fake_say_hello(struct fake *fake, bool challenge)
{
	static const uint8_t bytes_of_challenge[32] = { 1, 2, 3 };
	uint8_t bytes[1024];
	struct hello_reply reply;

	memset(&reply, 0, sizeof(reply));
	reply.header = fake_reply_header(fake, &fake->header);
	reply.info = fake->info;
	reply.authentication = challenge ? AUTHENTICATION_CHALLENGE : AUTHENTICATION_DONE;
	reply.challenge = bytes_of_challenge;
	fake_say(fake, bytes, (size_t)hello_reply_encode(bytes, sizeof(bytes), &reply));
}

void fake_say_connect(struct fake *fake)
{
	uint8_t bytes[WIRE_HEADER_BYTES + 64 + WIRE_ADDRESS_MAX], address[WIRE_ADDRESS_MAX];
	struct verbs_qp_options options;
	struct connect_request request;
	struct connect_reply reply;
	struct stream_peer peer = { 0, 0, 0 };
	struct wire_error error;
	unsigned fd_count = 0;
	int fds[STREAM_FDS_MAX];

	assert_int_equal(connect_request_decode(fake->message, fake->header.length, &request, &error), 0);
	memset(&options, 0, sizeof(options));
	options.send_cq = options.recv_cq = fake->cq;
	options.max_send_wr = FAKE_SENDS;
	options.max_recv_wr = FAKE_RECEIVES;
	options.max_sge = 1;
	options.max_message_bytes = WIRE_INLINE_BYTES;
	options.peer_recv_wr = FAKE_SENDS;
	memset(&reply, 0, sizeof(reply));
	assert_int_equal(driver->create_qp(fake->device, &options, &fake->qp), 0);
	assert_int_equal(
		driver->qp_address(fake->qp, address, sizeof(address), &reply.address_length, fds, &fd_count), 0);
	assert_int_equal(driver->qp_connect(fake->qp, request.address, request.address_length, NULL, 0, &peer), 0);
	for (uint32_t i = 0; i < FAKE_RECEIVES; i++)
		fake_post_receive(fake, i);
	driver->qp_start(fake->qp);
	fake->started = true;
	reply.header = fake_reply_header(fake, &fake->header);
	reply.address = address;
	fake_say(fake, bytes, (size_t)connect_reply_encode(bytes, sizeof(bytes), &reply));
}

void fake_say_memory(struct fake *fake, uint32_t region)
{
	uint8_t bytes[WIRE_HEADER_BYTES + 32];
	struct memory_reply reply;

	memset(&reply, 0, sizeof(reply));
	reply.header = fake_reply_header(fake, &fake->header);
	reply.region = fake->region = region;
	fake_say(fake, bytes, (size_t)memory_reply_encode(bytes, sizeof(bytes), &reply));
}

void fake_say_registered(struct fake *fake, uint32_t registration)
{
	uint8_t bytes[WIRE_HEADER_BYTES + 64];
	struct register_reply reply;

	memset(&reply, 0, sizeof(reply));
	reply.header = fake_reply_header(fake, &fake->header);
	reply.registration = registration;
	reply.object_bytes = FAKE_BLOCK_BYTES * FAKE_CHUNK_TOKENS / FAKE_BLOCK_TOKENS;
	reply.token_bytes = reply.object_bytes / FAKE_CHUNK_TOKENS;
	fake_say(fake, bytes, (size_t)register_reply_encode(bytes, sizeof(bytes), &reply));
}

void fake_ready(struct fake *fake)
{
	uint64_t until_ns = fake->now_ns + FAKE_PATIENCE_NS;

	fake_control(fake, WIRE_HELLO);
	fake_say_hello(fake, false);
	fake_control(fake, WIRE_CONNECT);
	fake_say_connect(fake);
	fake_control(fake, WIRE_MEMORY); /* where long requests go through */
	fake_say_memory(fake, 3);
	fake->large_region = 3;
	while (!client_ready(fake->client) && fake->control_length == 0) {
		assert_true(fake->now_ns < until_ns);
		fake_step(fake);
	}
}

int fake_submit_register(struct fake *fake, const char *name, uint32_t *registration, kvr_ticket *ticket)
{
	struct kvr_plane plane = { fake->pool, FAKE_BLOCK_BYTES, FAKE_BLOCK_BYTES };
	struct kvr_group group = { FAKE_BLOCK_TOKENS, KVR_WINDOW_FULL, FAKE_BLOCKS, 1, &plane };
	struct kvr_layout layout = { sizeof(layout), 1, &group };
	struct kvr_model model = KVR_MODEL_INIT;

	model.name = name;
	model.dtype = "uint8";
	return client_submit_register(fake->client, &model, &layout, NULL, registration, ticket);
}

uint32_t fake_register(struct fake *fake)
{
	struct kvr_result result;
	uint32_t registration;
	kvr_ticket ticket;

	assert_int_equal(fake_submit_register(fake, "fake model", &registration, &ticket), 0);
	fake_control(fake, WIRE_MEMORY);
	fake_say_memory(fake, 5);
	fake_control(fake, WIRE_REGISTER);
	fake_say_registered(fake, 7);
	assert_int_equal(fake_wait(fake, ticket, &result), 0);
	return registration;
}

struct kvr_session *fake_session(struct fake *fake, uint32_t registration, const char *id, uint32_t chunks)
{
	uint32_t *tokens = calloc(chunks + 1, FAKE_CHUNK_TOKENS * sizeof(*tokens));
	struct kvr_session *session;

	assert_non_null(tokens);
	for (uint32_t i = 0; i < chunks * FAKE_CHUNK_TOKENS; i++)
		tokens[i] = i;
	assert_int_equal(client_session_create(fake->client, registration, id, NULL, &session), 0);
	assert_int_equal(client_session_tokens(session, tokens, (size_t)chunks * FAKE_CHUNK_TOKENS), 0);
	free(tokens);
	return session;
}

struct kvr_transfer fake_transfer(struct kvr_blocks *blocks, uint32_t *ids, uint32_t chunks, uint8_t *outcomes)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;

	for (uint32_t i = 0; i < chunks * FAKE_CHUNK_TOKENS / FAKE_BLOCK_TOKENS; i++)
		ids[i] = i % FAKE_BLOCKS;
	blocks->ids = ids;
	blocks->count = chunks * FAKE_CHUNK_TOKENS / FAKE_BLOCK_TOKENS;
	transfer.chunk_count = chunks;
	transfer.group_count = 1;
	transfer.groups = blocks;
	transfer.outcomes = outcomes;
	return transfer;
}

/* ---- the queue pair ---- */

struct fake_request *fake_request(struct fake *fake, uint16_t type)
{
	uint64_t until_ns = fake->now_ns + FAKE_PATIENCE_NS;
	struct fake_request *request;

	while (fake->request_next == fake->request_count) {
		assert_true(fake->now_ns < until_ns);
		fake_step(fake);
	}
	request = &fake->requests[fake->request_next++];
	assert_string_equal(wire_type_name(request->header.type), wire_type_name(type));
	return request;
}

uint32_t fake_waiting(const struct fake *fake)
{
	return fake->request_count - fake->request_next;
}

void fake_reply(struct fake *fake, const void *bytes, size_t length)
{
	uint8_t *buffer = fake->buffers + (size_t)(FAKE_RECEIVES + fake->sends++ % FAKE_SENDS) * WIRE_INLINE_BYTES;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	assert_true((ssize_t)length > 0 && length <= WIRE_INLINE_BYTES);
	memcpy(buffer, bytes, length);
	fake_spoil(fake, buffer, length);
	memset(&wr, 0, sizeof(wr));
	sge.addr = (uint64_t)(uintptr_t)buffer;
	sge.length = (uint32_t)length;
	sge.lkey = fake->mr->lkey;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_SIGNALED;
	assert_int_equal(ibv_post_send(fake->qp, &wr, &bad), 0);
}

void fake_reply_empty(struct fake *fake, const struct wire_header *request)
{
	uint8_t bytes[WIRE_HEADER_BYTES];
	struct empty_reply reply;

	reply.header = fake_reply_header(fake, request);
	fake_reply(fake, bytes, (size_t)empty_reply_encode(bytes, sizeof(bytes), &reply));
}

void fake_reply_error(struct fake *fake, const struct wire_header *request, uint16_t status, const char *text)
{
	uint8_t bytes[WIRE_HEADER_BYTES + 600];

	fake_reply(fake, bytes, fake_error(fake, request, status, text, bytes));
}

void fake_reply_lookup(struct fake *fake, const struct wire_header *request, uint16_t status, uint32_t matched)
{
	uint8_t bytes[WIRE_HEADER_BYTES + 32];
	struct lookup_reply reply;

	memset(&reply, 0, sizeof(reply));
	reply.header = fake_reply_header(fake, request);
	reply.header.status = status;
	reply.matched_chunks = matched;
	fake_reply(fake, bytes, (size_t)lookup_reply_encode(bytes, sizeof(bytes), &reply));
}

void fake_reply_transfer(
	struct fake *fake, const struct wire_header *request, uint32_t chunks, uint8_t outcome, uint16_t status)
{
	uint8_t bytes[WIRE_INLINE_BYTES], outcomes[WIRE_CHUNKS_MAX];
	struct transfer_reply reply;

	memset(&reply, 0, sizeof(reply));
	memset(outcomes, outcome, sizeof(outcomes));
	reply.header = fake_reply_header(fake, request);
	reply.header.status = status;
	reply.chunk_count = chunks;
	reply.good_count = status == STATUS_OK ? chunks : 0;
	reply.outcomes = outcomes;
	fake_reply(fake, bytes, (size_t)transfer_reply_encode(bytes, sizeof(bytes), &reply));
}

int fake_wait(struct fake *fake, kvr_ticket ticket, struct kvr_result *result)
{
	uint64_t until_ns = fake->now_ns + FAKE_PATIENCE_NS;
	int error;

	while ((error = client_take(fake->client, ticket, result)) == -EAGAIN) {
		assert_true(fake->now_ns < until_ns);
		fake_step(fake);
	}
	assert_int_equal(error, 0);
	return result->error;
}

int fake_failure(struct fake *fake, const char *words)
{
	uint64_t until_ns = fake->now_ns + FAKE_PATIENCE_NS;
	unsigned attempts = fake->attempts;
	const char *text;

	/* Ready, or on its way: until it is neither. */
	while ((client_ready(fake->client) || client_failure(fake->client, &text) == 0) && fake->attempts == attempts) {
		assert_true(fake->now_ns < until_ns);
		fake_step(fake);
	}
	fake_steps(fake, 50);
	client_failure(fake->client, &text);
	if (!strstr(text, words))
		fail_msg("\"%s\" does not say \"%s\"", text, words);
	return client_failure(fake->client, &text);
}

uint32_t fake_free_slots(const struct fake *fake)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < CLIENT_SLOTS; i++)
		count += fake->client->slots[i].state == SLOT_FREE;
	return count;
}

struct kvr_session *fake_begin(struct fake *fake, uint32_t chunks)
{
	fake_start(fake, 1, NULL);
	fake_ready(fake);
	return fake_session(fake, fake_register(fake), "session", chunks);
}

void fake_finish(struct fake *fake, struct kvr_session **session)
{
	assert_int_equal(client_session_destroy(session), 0);
	assert_int_equal(fake_free_slots(fake), CLIENT_SLOTS);
	assert_int_equal(fake->client->large_free_count, CLIENT_LARGE_BUFFERS);
	assert_int_equal(fake->client->done_count, 0);
	assert_int_equal(fake->client->in_flight, 0);
	fake_stop(fake);
}
