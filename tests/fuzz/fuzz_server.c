/*
 * libFuzzer target for a whole server: the input is a program of what raw clients say on their two legs, well-formed or spoiled, and of
 * what happens to them. In the simulator, with virtual time. Whatever they do, the server answers or closes, its books stay right, and
 * when all are gone nothing is left.
 *
 * A program is a list of steps: a byte that says what, and as many bytes as it wants. When the input ends, zeros follow.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "mgmt/server.h"
#include "protocol/digest.h"
#include "protocol/layout.h"
#include "protocol/message.h"
#include "protocol/wire.h"
#include "verbs/sim/fabric.h"

#define GUESTS 3u
#define BUFFERS 8u
#define STEPS_MAX 200u
#define POOL_BYTES 65536u
#define L1_BYTES (2 * L1_PAGE_BYTES)
#define CHUNK_TOKENS 4u
#define DRAIN_TURNS 200000u

struct guest {
	struct verbs_device *device;
	struct stream *stream;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *buffers_mr, *pool_mr;
	uint8_t *buffers; /* receives, then one for sending */
	uint8_t *pool;
	uint8_t inbox[8192];
	size_t inbox_length;
	bool connected;
	uint32_t region, registration; /* the last ones that the server gave */
	uint64_t next_id;
};

struct world {
	const uint8_t *data;
	size_t size;
	uint64_t now_ns;
	struct sim_fabric *fabric;
	struct verbs_device *device;
	struct server *server;
	struct server_options options;
	struct control_tenant tenants[2];
	struct l1_area area;
	struct guest guests[GUESTS];
	bool draining;
};

static void demand(bool holds)
{
	if (!holds)
		abort();
}

static uint32_t take(struct world *world)
{
	if (world->size == 0)
		return 0;
	world->size--;
	return *world->data++;
}

/* With KVRAIL_FUZZ_CODES=FILE in the environment each reply code is appended to FILE when it is first seen: scripts/fuzz --check. */
static void note_code(uint16_t status)
{
	static uint64_t seen;
	const char *path = getenv("KVRAIL_FUZZ_CODES");
	FILE *file;

	demand(status < 64 && strcmp(status_name(status), "UNKNOWN") != 0);
	if (seen & (uint64_t)1 << status || !path)
		return;
	seen |= (uint64_t)1 << status;
	file = fopen(path, "a");
	if (!file)
		return;
	fprintf(file, "%s\n", status_name(status));
	fclose(file);
}

/* ---- the guests' side ------------------------------------------------------------------------------------------ */

static void guest_close(struct guest *guest)
{
	if (!guest->device)
		return;
	if (guest->qp) {
		if (guest->connected)
			verbs_sim.qp_fail(guest->qp);
	}
	if (guest->stream)
		guest->stream->ops->close(guest->stream);
	if (guest->qp)
		verbs_sim.destroy_qp(guest->qp);
	if (guest->cq)
		verbs_sim.destroy_cq(guest->cq);
	if (guest->buffers_mr)
		verbs_sim.deregister_memory(guest->buffers_mr);
	if (guest->pool_mr)
		verbs_sim.deregister_memory(guest->pool_mr);
	verbs_sim.close(guest->device);
	free(guest->buffers);
	free(guest->pool);
	memset(guest, 0, sizeof(*guest));
}

/* Its process is gone: nothing of it is touched any more. */
static void guest_kill(struct world *world, struct guest *guest)
{
	if (guest->device)
		sim_fabric_kill_device(world->fabric, guest->device);
	guest_close(guest);
}

static void guest_begin(struct world *world, struct guest *guest)
{
	struct verbs_open open;
	struct stream *server_end;

	guest_kill(world, guest);
	memset(&open, 0, sizeof(open));
	open.fabric = world->fabric;
	demand(verbs_sim.open(&open, &guest->device) == 0);
	guest->buffers = calloc(BUFFERS + 1, WIRE_INLINE_BYTES);
	guest->pool = calloc(1, POOL_BYTES);
	demand(guest->buffers && guest->pool);
	demand(verbs_sim.register_memory(guest->device, guest->buffers, (BUFFERS + 1) * WIRE_INLINE_BYTES,
		       IBV_ACCESS_LOCAL_WRITE, &guest->buffers_mr) == 0);
	demand(verbs_sim.register_memory(guest->device, guest->pool, POOL_BYTES,
		       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		       &guest->pool_mr) == 0);
	demand(verbs_sim.create_cq(guest->device, 64, &guest->cq) == 0);
	guest->next_id = 1;
	demand(sim_stream_pair(world->fabric, guest->device, &guest->stream, &server_end) == 0);
	server_end->peer.uid = 1000 + take(world) % 3;
	(void)control_accept(server_control(world->server), server_end, world->now_ns);
}

static void guest_receive(struct guest *guest, uint32_t index)
{
	struct ibv_sge sge = { (uint64_t)(uintptr_t)guest->buffers + index * WIRE_INLINE_BYTES, WIRE_INLINE_BYTES,
		guest->buffers_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = index, .sg_list = &sge, .num_sge = 1 }, *bad;

	(void)!ibv_post_recv(guest->qp, &wr, &bad);
}

static void take_connect_reply(struct guest *guest, const uint8_t *bytes, uint32_t length)
{
	struct connect_reply reply;
	struct wire_error error;

	if (!guest->qp || guest->connected || connect_reply_decode(bytes, length, &reply, &error))
		return;
	if (verbs_sim.qp_connect(guest->qp, reply.address, reply.address_length, NULL, 0, &guest->stream->peer))
		return;
	for (uint32_t i = 0; i < BUFFERS; i++)
		guest_receive(guest, i);
	verbs_sim.qp_start(guest->qp);
	guest->connected = true;
}

static void take_control_reply(struct guest *guest, const uint8_t *bytes, uint32_t length)
{
	struct register_reply registered;
	struct memory_reply memory;
	struct wire_header header;
	struct wire_error error;

	demand(wire_header_decode(bytes, length, &header, &error) == 0);
	note_code(header.status);
	if (header.status != STATUS_OK)
		return;
	if (header.type == WIRE_CONNECT_REPLY)
		take_connect_reply(guest, bytes, length);
	else if (header.type == WIRE_MEMORY_REPLY && !memory_reply_decode(bytes, length, &memory, &error))
		guest->region = memory.region;
	else if (header.type == WIRE_REGISTER_REPLY && !register_reply_decode(bytes, length, &registered, &error))
		guest->registration = registered.registration;
}

/* Replies are whole messages of the protocol, whatever was asked. */
static void guest_read(struct guest *guest)
{
	struct wire_error error;
	ssize_t got;
	int length;

	if (!guest->stream)
		return;
	got = guest->stream->ops->receive(guest->stream, guest->inbox + guest->inbox_length,
		sizeof(guest->inbox) - guest->inbox_length, NULL, NULL, 0);
	if (got > 0)
		guest->inbox_length += (size_t)got;
	while ((length = wire_stream_length(guest->inbox, guest->inbox_length, sizeof(guest->inbox), &error)) > 0 &&
		guest->inbox_length >= (size_t)length) {
		take_control_reply(guest, guest->inbox, (uint32_t)length);
		guest->inbox_length -= (size_t)length;
		memmove(guest->inbox, guest->inbox + length, guest->inbox_length);
	}
	demand(length >= 0);
}

static void guest_poll(struct guest *guest)
{
	struct wire_header header;
	struct wire_error error;
	struct ibv_wc wc;

	while (guest->cq && ibv_poll_cq(guest->cq, 1, &wc) == 1) {
		if (wc.status != IBV_WC_SUCCESS || wc.wr_id >= BUFFERS)
			continue;
		demand(wire_header_decode(
			       guest->buffers + wc.wr_id * WIRE_INLINE_BYTES, wc.byte_len, &header, &error) == 0);
		note_code(header.status);
		/* A reply's type is even; who asked with an even one, which is no request, hears of an error. */
		demand(header.type % 2 == 0 || !status_has_body(header.status));
		guest_receive(guest, (uint32_t)wc.wr_id);
	}
}

/* ---- time ------------------------------------------------------------------------------------------------------ */

static void turn(struct world *world)
{
	world->now_ns += 2000;
	sim_fabric_step(world->fabric, world->now_ns, 256);
	server_step(world->server, world->now_ns);
	for (uint32_t i = 0; i < GUESTS; i++) {
		guest_read(&world->guests[i]);
		guest_poll(&world->guests[i]);
	}
}

static void turns(struct world *world, uint32_t count)
{
	while (count-- > 0)
		turn(world);
}

/* ---- what is said ---------------------------------------------------------------------------------------------- */

/* Up to three bytes of the message become others, or its end is cut off. */
static size_t spoil(struct world *world, uint8_t *bytes, size_t length)
{
	uint32_t how = take(world);

	for (uint32_t i = 0; i < how % 4; i++) {
		uint32_t at = take(world) | take(world) << 8;

		bytes[at % length] = (uint8_t)take(world);
	}
	return how & 0x80 ? 1 + (take(world) | take(world) << 8) % length : length;
}

static struct wire_header header_of(struct guest *guest, struct world *world, uint16_t type)
{
	struct wire_header header;
	uint32_t how = take(world);

	memset(&header, 0, sizeof(header));
	header.type = type;
	header.flags = (uint16_t)(how >> 6);
	header.request_id = how & 1 ? guest->next_id : ++guest->next_id;
	header.boot_id = how & 2 ? server_boot_id(world->server) : how & 4 ? 5 : 0;
	return header;
}

static struct wire_text text_of(const char *text)
{
	struct wire_text wire = { text, (uint32_t)strlen(text) };

	return wire;
}

static void say_on_stream(struct world *world, struct guest *guest, uint8_t *bytes, ssize_t length)
{
	if (length <= 0 || !guest->stream)
		return;
	length = (ssize_t)spoil(world, bytes, (size_t)length);
	(void)guest->stream->ops->send(guest->stream, bytes, (size_t)length, NULL, 0);
	turns(world, 8);
}

static void say_hello(struct world *world, struct guest *guest, uint8_t *bytes)
{
	static const char *const tenants[] = { "", "house", "guest", "nobody" };
	struct hello message;

	memset(&message, 0, sizeof(message));
	message.header = header_of(guest, world, WIRE_HELLO);
	message.version_min = 1;
	message.version_max = 1;
	message.want_credits = take(world);
	message.driver = text_of("sim");
	message.client = text_of("fuzz");
	message.tenant = text_of(tenants[take(world) % 4]);
	say_on_stream(world, guest, bytes, hello_encode(bytes, WIRE_INLINE_BYTES, &message));
}

static void say_connect(struct world *world, struct guest *guest, uint8_t *bytes)
{
	struct verbs_qp_options options;
	struct connect_request message;
	uint8_t address[64];
	unsigned fds = 0;

	memset(&message, 0, sizeof(message));
	memset(&options, 0, sizeof(options));
	options.send_cq = options.recv_cq = guest->cq;
	options.max_send_wr = options.max_recv_wr = 16;
	options.max_sge = 1;
	options.max_message_bytes = WIRE_INLINE_BYTES;
	options.peer_recv_wr = BUFFERS;
	if (!guest->qp)
		demand(verbs_sim.create_qp(guest->device, &options, &guest->qp) == 0);
	demand(verbs_sim.qp_address(guest->qp, address, sizeof(address), &message.address_length, NULL, &fds) == 0);
	message.header = header_of(guest, world, WIRE_CONNECT);
	message.address = address;
	say_on_stream(world, guest, bytes, connect_request_encode(bytes, WIRE_INLINE_BYTES, &message));
}

static void say_memory(struct world *world, struct guest *guest, uint8_t *bytes)
{
	struct memory_request message;

	memset(&message, 0, sizeof(message));
	message.header = header_of(guest, world, WIRE_MEMORY);
	message.address = (uint64_t)(uintptr_t)guest->pool;
	message.length = POOL_BYTES;
	message.kind = MEMORY_REMOTE;
	message.rkey_count = 1;
	message.rkeys[0] = guest->pool_mr->rkey;
	say_on_stream(world, guest, bytes, memory_request_encode(bytes, WIRE_INLINE_BYTES, &message));
}

static void say_register(struct world *world, struct guest *guest, uint8_t *bytes)
{
	static const uint8_t fingerprint[32] = { 0 };
	uint32_t how = take(world);
	struct wire_group group = {
		.tokens_per_block = 1 + how % 2, .window_tokens = UINT32_MAX, .block_count = 32, .plane_count = 1
	};
	struct wire_plane plane = { .address = (uint64_t)(uintptr_t)guest->pool,
		.block_stride = 1024,
		.block_bytes = 256u << ((how >> 1) % 3),
		.region = guest->region };
	uint8_t groups[WIRE_GROUP_BYTES], planes[WIRE_PLANE_BYTES];
	struct register_request message;

	memset(&message, 0, sizeof(message));
	message.header = header_of(guest, world, WIRE_REGISTER);
	message.identity.model = text_of(how & 8 ? "other" : "model");
	message.identity.dtype = text_of("u8");
	message.identity.fingerprint = fingerprint;
	message.identity.world_size = 1 + (how >> 4) % 3;
	message.identity.rank = (how >> 6) % message.identity.world_size;
	message.identity.readers = 1;
	message.group_count = message.plane_count = how % 5 ? 1 : 0;
	register_write_group(groups, &group);
	register_write_plane(planes, &plane);
	message.groups = groups;
	message.planes = planes;
	say_on_stream(world, guest, bytes, register_request_encode(bytes, WIRE_INLINE_BYTES, &message));
}

static void say_unregister(struct world *world, struct guest *guest, uint8_t *bytes)
{
	struct unregister_request message;
	struct forget_memory forget;

	message.header = header_of(guest, world, WIRE_UNREGISTER);
	message.registration = guest->registration;
	forget.header = header_of(guest, world, WIRE_FORGET_MEMORY);
	forget.region = guest->region;
	if (take(world) % 2)
		say_on_stream(world, guest, bytes, unregister_request_encode(bytes, WIRE_INLINE_BYTES, &message));
	else
		say_on_stream(world, guest, bytes, forget_memory_encode(bytes, WIRE_INLINE_BYTES, &forget));
}

static void say_on_queue(struct world *world, struct guest *guest, uint8_t *bytes, ssize_t length)
{
	uint8_t *room = guest->buffers + BUFFERS * WIRE_INLINE_BYTES;
	struct ibv_sge sge = { (uint64_t)(uintptr_t)room, 0, guest->buffers_mr->lkey };
	struct ibv_send_wr wr = { .wr_id = BUFFERS, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	if (length <= 0 || !guest->connected)
		return;
	length = (ssize_t)spoil(world, bytes, (size_t)length);
	memcpy(room, bytes, (size_t)length);
	sge.length = (uint32_t)length;
	wr.send_flags = IBV_SEND_SIGNALED;
	(void)!ibv_post_send(guest->qp, &wr, &bad);
	turns(world, take(world) % 16);
}

/* A session of four chains, whole or from some chunk on. */
static struct session_ref session_of(struct world *world, uint8_t *digests)
{
	static const uint8_t salts[2][WIRE_DIGEST_BYTES] = { { 0 }, { 1 } };
	static const char *const ids[] = { "a", "b", "c", "d" };
	uint32_t how = take(world);
	struct session_ref ref;

	memset(&ref, 0, sizeof(ref));
	ref.id = text_of(ids[how % 4]);
	ref.salt = salts[how >> 7];
	ref.digest_count = (how >> 2) % 8;
	ref.first_chunk = how & 32 ? (how >> 2) % 3 : 0;
	for (uint32_t i = 0; i < 12; i++)
		memset(digests + i * WIRE_DIGEST_BYTES, (int)(1 + i + 16 * ((how >> 6) & 1)), WIRE_DIGEST_BYTES);
	ref.digests = digests + ref.first_chunk * WIRE_DIGEST_BYTES;
	ref.parent = ref.first_chunk ? ref.digests - WIRE_DIGEST_BYTES : digest_seed;
	return ref;
}

static ssize_t make_transfer(struct world *world, struct guest *guest, uint8_t *bytes, uint16_t type)
{
	uint8_t digests[12 * WIRE_DIGEST_BYTES];
	struct transfer_request message;
	uint32_t group_runs[1] = { 1 };
	struct block_run run;
	uint32_t how;

	memset(&message, 0, sizeof(message));
	message.header = header_of(guest, world, type);
	message.header.flags = 0;
	message.session = session_of(world, digests);
	how = take(world);
	message.registration = guest->registration;
	message.first_chunk = how % 3;
	message.chunk_count = 1 + (how >> 2) % 6;
	message.skip_tokens = type == WIRE_RETRIEVE ? (how >> 5) : 0;
	message.group_count = message.run_count = 1;
	run.start = take(world) % 40 ? take(world) % 16 : WIRE_NULL_BLOCK;
	run.count = message.chunk_count * CHUNK_TOKENS / (1 + (how & 1));
	message.group_runs = (const uint8_t *)group_runs;
	message.runs = (const uint8_t *)&run;
	return transfer_request_encode(bytes, WIRE_INLINE_BYTES, &message);
}

static ssize_t make_session_request(struct world *world, struct guest *guest, uint8_t *bytes, uint32_t what)
{
	uint8_t digests[12 * WIRE_DIGEST_BYTES];
	struct session_ref ref = session_of(world, digests);
	struct free_locks_request locks = { .registration = guest->registration, .session = ref };
	struct end_session_request end = { .registration = guest->registration, .session = ref };
	struct lookup_request lookup = { .registration = guest->registration, .session = ref };
	struct query_request query = { .registration = guest->registration, .session = ref };

	switch (what % 4) {
	case 0:
		lookup.header = header_of(guest, world, WIRE_LOOKUP);
		return lookup_request_encode(bytes, WIRE_INLINE_BYTES, &lookup);
	case 1:
		query.header = header_of(guest, world, WIRE_QUERY);
		query.timeout_ns = take(world);
		return query_request_encode(bytes, WIRE_INLINE_BYTES, &query);
	case 2:
		locks.header = header_of(guest, world, WIRE_FREE_LOCKS);
		locks.chunk_count = 1 + take(world) % 6;
		locks.rank = take(world) % 3 ? 0 : WIRE_ALL_RANKS;
		return free_locks_request_encode(bytes, WIRE_INLINE_BYTES, &locks);
	default:
		end.header = header_of(guest, world, WIRE_END_SESSION);
		return end_session_request_encode(bytes, WIRE_INLINE_BYTES, &end);
	}
}

static ssize_t make_other(struct world *world, struct guest *guest, uint8_t *bytes, uint32_t what)
{
	struct cancel_request cancel;
	struct clear_request clear;
	struct indirect indirect;
	struct ping ping;
	ssize_t length;

	switch (what % 4) {
	case 0:
		ping.header = header_of(guest, world, take(world) % 2 ? WIRE_PING : WIRE_GET_INFO);
		return ping_encode(bytes, WIRE_INLINE_BYTES, &ping);
	case 1:
		cancel.header = header_of(guest, world, WIRE_CANCEL);
		cancel.target = guest->next_id - take(world) % 4;
		return cancel_request_encode(bytes, WIRE_INLINE_BYTES, &cancel);
	case 2:
		clear.header = header_of(guest, world, WIRE_CLEAR);
		clear.registration = take(world) % 2 ? guest->registration : UINT32_MAX;
		return clear_request_encode(bytes, WIRE_INLINE_BYTES, &clear);
	default:
		length = make_transfer(world, guest, bytes, WIRE_STORE);
		if (length <= 0)
			return length;
		memcpy(guest->pool + 32768, bytes, (size_t)length);
		memset(&indirect, 0, sizeof(indirect));
		indirect.header = header_of(guest, world, WIRE_INDIRECT);
		indirect.header.request_id = guest->next_id;
		indirect.header.flags = 0;
		indirect.region = guest->region;
		indirect.length = (uint32_t)length;
		indirect.address = (uint64_t)(uintptr_t)guest->pool + 32768;
		return indirect_encode(bytes, WIRE_INLINE_BYTES, &indirect);
	}
}

/* All of a good client's beginning. */
static void say_everything(struct world *world, struct guest *guest, uint8_t *bytes)
{
	say_hello(world, guest, bytes);
	say_connect(world, guest, bytes);
	turns(world, 20);
	say_memory(world, guest, bytes);
	say_register(world, guest, bytes);
	turns(world, 20);
}

static void step(struct world *world)
{
	uint8_t bytes[WIRE_INLINE_BYTES];
	uint32_t what = take(world);
	struct guest *guest = &world->guests[(what >> 5) % GUESTS];

	if (!guest->device)
		guest_begin(world, guest);
	what &= 31;
	if (what == 0)
		turns(world, 1 + take(world) % 64);
	else if (what == 1)
		world->now_ns += (uint64_t)take(world) * 10 * KVR_MS;
	else if (what == 2)
		guest_kill(world, guest);
	else if (what == 3)
		sim_fabric_cut_device(world->fabric, guest->device);
	else if (what == 4 && take(world) > 200)
		control_drain(server_control(world->server), world->now_ns);
	else if (what == 5)
		say_hello(world, guest, bytes);
	else if (what == 6)
		say_connect(world, guest, bytes);
	else if (what == 7)
		say_memory(world, guest, bytes);
	else if (what == 8)
		say_register(world, guest, bytes);
	else if (what == 9)
		say_unregister(world, guest, bytes);
	else if (what < 13)
		say_everything(world, guest, bytes);
	else if (what < 16)
		say_on_queue(world, guest, bytes, make_transfer(world, guest, bytes, WIRE_RETRIEVE));
	else if (what < 20)
		say_on_queue(world, guest, bytes, make_transfer(world, guest, bytes, WIRE_STORE));
	else if (what < 28)
		say_on_queue(world, guest, bytes, make_session_request(world, guest, bytes, what));
	else
		say_on_queue(world, guest, bytes, make_other(world, guest, bytes, what));
}

/* ---- a run ------------------------------------------------------------------------------------------------------ */

static void begin(struct world *world)
{
	struct server_options *options = &world->options;
	struct verbs_open open;

	world->now_ns = KVR_SECOND;
	demand(sim_fabric_create(1, NULL, &world->fabric) == 0);
	memset(&open, 0, sizeof(open));
	open.server = true;
	open.fabric = world->fabric;
	demand(verbs_sim.open(&open, &world->device) == 0);
	world->area.address = aligned_alloc(L1_PAGE_BYTES, L1_BYTES);
	demand(world->area.address != NULL);
	world->area.bytes = L1_BYTES;
	world->area.numa_node = -1;
	for (uint32_t t = 0; t < 2; t++) {
		memcpy(world->tenants[t].name, t ? "guest" : "house", sizeof("guest"));
		world->tenants[t].by_uid = true;
		world->tenants[t].uid = 1000 + t;
		world->tenants[t].may_clear = t == 0;
	}
	server_options_default(options);
	options->devices[0] = world->device;
	options->worker_count = 1;
	options->areas = &world->area;
	options->area_count = 1;
	options->chunk_tokens = CHUNK_TOKENS;
	options->connections_max = 2; /* the third guest is one too many */
	options->credits = 4;
	options->sessions_max = 3;
	options->chain_chunks_max = 64;
	options->large_requests = 1;
	options->large_buffers = 1;
	options->message_bytes_max = WIRE_INLINE_BYTES;
	options->send_depth = 64;
	options->chunks_initial = 64;
	options->lock_ttl_ns = options->session_ttl_ns = 500 * KVR_MS;
	options->silence_ns = options->registration_grace_ns = KVR_SECOND;
	options->helper_threads = 0;
	options->boot_id = options->seed = 99;
	options->tenants = world->tenants;
	options->tenant_count = 2;
	demand(server_create(options, &world->server) == 0);
}

static void end(struct world *world)
{
	struct control *control = server_control(world->server);
	struct sim_counters counters;

	demand(server_verify(world->server, false) == 0);
	for (uint32_t i = 0; i < GUESTS; i++)
		guest_kill(world, &world->guests[i]);
	control_drain(control, world->now_ns);
	for (uint32_t i = 0; i < DRAIN_TURNS && !control_idle(control); i++)
		turn(world);
	demand(control_idle(control));
	demand(server_verify(world->server, true) == 0);
	server_destroy(&world->server);
	verbs_sim.close(world->device);
	sim_fabric_counters(world->fabric, &counters);
	demand(counters.cq_overflows == 0);
	sim_fabric_destroy(&world->fabric);
	free(world->area.address);
}

static void drop_line(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)line;
	demand(level != LOG_ERROR); /* the books are wrong, or a ring was full */
}

/* A run is long and reaches much: libFuzzer's accounting of rare features would cost more than the runs. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static char *more[64] = { NULL };
	int count = 0;

	while (count < *argc && count < 60) {
		more[count] = (*argv)[count];
		count++;
	}
	more[count++] = (char *)(uintptr_t) "-entropic=0";
	more[count++] = (char *)(uintptr_t) "-len_control=0";
	more[count++] = (char *)(uintptr_t) "-max_len=800";
	*argc = count;
	*argv = more;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world world;

	log_set_sink(drop_line, NULL);
	log_set_level(LOG_ERROR);
	memset(&world, 0, sizeof(world));
	world.data = data;
	world.size = size;
	begin(&world);
	for (uint32_t i = 0; i < STEPS_MAX && world.size > 0; i++)
		step(&world);
	end(&world);
	return 0;
}
