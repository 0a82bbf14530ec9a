/* server_say.c - see server_guest.h: what guests say, well-formed or spoiled. */
#include <string.h>

#include "fuzz/server_guest.h"
#include "protocol/digest.h"
#include "protocol/layout.h"
#include "protocol/message.h"

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

void say_hello(struct world *world, struct guest *guest)
{
	uint8_t bytes[WIRE_INLINE_BYTES];
	static const char *const tenants[] = { "", "house", "guest", "small" };
	struct hello message;

	memset(&message, 0, sizeof(message));
	message.header = header_of(guest, world, WIRE_HELLO);
	message.version_min = 1;
	message.version_max = 1;
	message.want_credits = take(world);
	message.features = message.want_credits == 0xfd ? FEATURE_SEVERAL_MESSAGES : 0;
	message.driver = text_of("sim");
	message.client = text_of("fuzz");
	message.tenant = text_of(tenants[take(world) % 4]);
	say_on_stream(world, guest, bytes, hello_encode(bytes, WIRE_INLINE_BYTES, &message));
}

/* Over TCP: with the secret or a wrong one, under a name that is known or not. */
void say_authenticate(struct world *world, struct guest *guest)
{
	uint8_t bytes[WIRE_INLINE_BYTES], nonce[32], proof[32];
	struct authenticate message;
	uint32_t how = take(world);

	memset(nonce, (int)(how & 15), sizeof(nonce));
	memset(&message, 0, sizeof(message));
	message.header = header_of(guest, world, WIRE_AUTHENTICATE);
	message.nonce = nonce;
	message.key = text_of(how & 32 ? "no key" : SECRET_KEY);
	demand(digest_proof(SECRET, strlen(SECRET), guest->challenge, nonce, message.key.bytes, message.key.length,
		       proof) == 0);
	if (how & 64)
		proof[how & 31] ^= 1;
	message.proof = proof;
	say_on_stream(world, guest, bytes, authenticate_encode(bytes, WIRE_INLINE_BYTES, &message));
}

void say_connect(struct world *world, struct guest *guest)
{
	uint8_t bytes[WIRE_INLINE_BYTES];
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

void say_memory(struct world *world, struct guest *guest)
{
	uint8_t bytes[WIRE_INLINE_BYTES];
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

void say_register(struct world *world, struct guest *guest)
{
	uint8_t bytes[WIRE_INLINE_BYTES];
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

void say_unregister(struct world *world, struct guest *guest)
{
	uint8_t bytes[WIRE_INLINE_BYTES];
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
	uint32_t how;
	struct ibv_sge sge = { (uint64_t)(uintptr_t)room, 0, guest->buffers_mr->lkey };
	struct ibv_send_wr wr = { .wr_id = BUFFERS, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	if (length <= 0 || !guest->connected)
		return;
	length = (ssize_t)spoil(world, bytes, (size_t)length);
	how = take(world);
	if (guest->held_bytes + (size_t)length > sizeof(guest->held))
		guest->held_bytes = 0;
	memcpy(guest->held + guest->held_bytes, bytes, (size_t)length);
	guest->held_bytes += (uint32_t)length;
	if (guest->gathers && how & 0x80)
		return; /* goes out with the next one */
	memcpy(room, guest->held, guest->held_bytes);
	sge.length = guest->held_bytes;
	guest->held_bytes = 0;
	wr.send_flags = IBV_SEND_SIGNALED;
	(void)!ibv_post_send(guest->qp, &wr, &bad);
	turns(world, how % 16);
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

void say_everything(struct world *world, struct guest *guest)
{
	say_hello(world, guest);
	say_connect(world, guest);
	turns(world, 20);
	say_memory(world, guest);
	say_register(world, guest);
	turns(world, 20);
}

void say_transfer(struct world *world, struct guest *guest, uint16_t type)
{
	uint8_t bytes[WIRE_INLINE_BYTES];

	say_on_queue(world, guest, bytes, make_transfer(world, guest, bytes, type));
}

void say_session_request(struct world *world, struct guest *guest, uint32_t what)
{
	uint8_t bytes[WIRE_INLINE_BYTES];

	say_on_queue(world, guest, bytes, make_session_request(world, guest, bytes, what));
}

void say_other(struct world *world, struct guest *guest, uint32_t what)
{
	uint8_t bytes[WIRE_INLINE_BYTES];

	say_on_queue(world, guest, bytes, make_other(world, guest, bytes, what));
}
