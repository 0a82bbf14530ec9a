/*
 * libFuzzer target for control sockets: the input is what one client sends, to a whole server on the simulated fabric
 * that lives as
 * long as the input. Nothing is drawn from a clock or the kernel.
 *
 *   byte 0   enum control_flag
 *   byte 1   steps of the server between two pieces
 *   byte 2   bytes of a piece; 0: everything at once
 *   rest     the stream
 *
 * What no input could know is filled in: the address of a CONNECT that has room for the simulator's, and the proof of
 * an AUTHENTICATE
 * whose proof is that of the golden message.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "mgmt/server.h"
#include "protocol/digest.h"
#include "verbs/sim/fabric.h"

enum control_flag {
	OVER_TCP = 1u << 0,
	TRUST_TCP = 1u << 1,
	REQUIRE_TENANT = 1u << 2,
	HALF_CLOSE = 1u << 3,      /* and read to the end, instead of closing */
	WITH_DESCRIPTOR = 1u << 4, /* beside every piece */
	MANAGEMENT_LATE = 1u << 5, /* the management core runs only when everything was sent */
	DRAIN_EARLY = 1u << 6,     /* the server drains when half was sent */
	SHORT_OF_TIME = 1u << 7,   /* the handshake's time limit, and the reaper's */
};

#define FIXED_BYTES 3u
#define STREAM_MAX 65536u
#define L1_BYTES ((uint64_t)65536)
#define TURN_NS ((uint64_t)1000)
#define SECRET "the secret of the golden key"
#define BOOT_ID UINT64_C(0x99aabbccddeeff01) /* of the golden messages */
#define STEPS_MAX 20000u
#define ADDRESS_BYTES 12u

struct fuzz_world {
	struct sim_fabric *fabric;
	struct verbs_device *server_device, *client_device;
	struct verbs_driver driver;
	struct ibv_cq *client_cq;
	struct ibv_qp *client_qp;
	uint8_t address[WIRE_ADDRESS_MAX];
	uint32_t address_length;
	struct control_tenant tenants[2];
	struct server *server;
	struct stream *stream;
	uint64_t now_ns;
	bool management_stands;
	bool ended;
	uint8_t replies[WIRE_INLINE_BYTES];
	size_t reply_length;
	uint8_t challenge[32]; /* of the last HELLO_REPLY */
};

/* Kept on: a broken promise ends the run and leaves the input behind. */
static void demand(bool holds)
{
	if (!holds)
		abort();
}

static void no_log(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	demand(line[0] != '\0');
}

static void make_client(struct fuzz_world *world)
{
	struct verbs_qp_options options;
	int fds[STREAM_FDS_MAX];
	unsigned fd_count;

	memset(&options, 0, sizeof(options));
	demand(!verbs_sim.create_cq(world->client_device, 16, &world->client_cq));
	options.send_cq = world->client_cq;
	options.recv_cq = world->client_cq;
	options.max_send_wr = 1;
	options.max_recv_wr = 1;
	options.max_sge = 1;
	options.max_message_bytes = WIRE_INLINE_BYTES;
	demand(!verbs_sim.create_qp(world->client_device, &options, &world->client_qp));
	demand(!verbs_sim.qp_address(
		world->client_qp, world->address, sizeof(world->address), &world->address_length, fds, &fd_count));
	demand(world->address_length == ADDRESS_BYTES);
}

static void make_server(struct fuzz_world *world, unsigned flags)
{
	static KVR_ALIGNED(65536) uint8_t l1[L1_BYTES];
	struct server_options options;
	struct l1_area area;

	memset(&area, 0, sizeof(area));
	area.address = l1;
	area.bytes = sizeof(l1);
	area.numa_node = -1;
	strcpy(world->tenants[0].name, "tenant-a");
	strcpy(world->tenants[1].name, "tenant-b");
	strcpy(world->tenants[1].key_name, "team-a");
	memcpy(world->tenants[1].secret, SECRET, strlen(SECRET));
	world->tenants[1].secret_length = (uint32_t)strlen(SECRET);
	server_options_default(&options);
	options.devices[0] = world->server_device;
	options.worker_count = 1;
	options.areas = &area;
	options.area_count = 1;
	options.chunk_tokens = 64;
	options.connections_max = 2;
	options.credits = 4;
	options.sessions_max = 4;
	options.chain_chunks_max = 16;
	options.large_requests = 0;
	options.large_buffers = 1;
	options.message_bytes_max = WIRE_INLINE_BYTES;
	options.send_depth = 64;
	options.chunks_initial = 16;
	options.helper_threads = 0;
	options.boot_id = BOOT_ID;
	options.seed = 1;
	options.tenants = world->tenants;
	options.tenant_count = 2;
	options.trust_tcp = flags & TRUST_TCP;
	options.require_tenant = flags & REQUIRE_TENANT;
	if (flags & SHORT_OF_TIME) {
		options.handshake_ns = 100 * KVR_US;
		options.registration_grace_ns = 100 * KVR_US;
	}
	demand(!server_create(&options, &world->server));
}

static void make_world(struct fuzz_world *world, unsigned flags)
{
	struct stream *server_end;
	struct verbs_open open;

	memset(world, 0, sizeof(*world));
	world->now_ns = KVR_SECOND;
	demand(!sim_fabric_create(1, NULL, &world->fabric));
	memset(&open, 0, sizeof(open));
	open.fabric = world->fabric;
	demand(!verbs_sim.open(&open, &world->client_device));
	open.server = true;
	demand(!verbs_sim.open(&open, &world->server_device));
	/* The golden HELLO asks for it. */
	world->driver = verbs_sim;
	world->driver.name = "local";
	world->server_device->driver = &world->driver;
	make_client(world);
	make_server(world, flags);
	demand(!sim_stream_pair(world->fabric, NULL, &world->stream, &server_end));
	if (flags & OVER_TCP) {
		memset(&server_end->peer, 0, sizeof(server_end->peer));
		server_end->carries_fds = false;
	}
	demand(!control_accept(server_control(world->server), server_end, world->now_ns));
}

/* Whatever the server says is a reply of its own. */
static void check_replies(struct fuzz_world *world)
{
	struct hello_reply hello;
	struct wire_header header;
	struct wire_error error;
	int length;

	while (world->reply_length > 0) {
		length = wire_stream_length(world->replies, world->reply_length, sizeof(world->replies), &error);
		demand(length >= 0);
		if (length == 0 || (size_t)length > world->reply_length)
			return;
		demand(!wire_header_decode(world->replies, world->reply_length, &header, &error));
		demand(header.boot_id == BOOT_ID);
		demand(status_name(header.status)[0] != '\0');
		if (header.type == WIRE_HELLO_REPLY && status_has_body(header.status)) {
			demand(!hello_reply_decode(world->replies, world->reply_length, &hello, &error));
			if (hello.authentication == AUTHENTICATION_CHALLENGE)
				memcpy(world->challenge, hello.challenge, sizeof(world->challenge));
		}
		world->reply_length -= (size_t)length;
		memmove(world->replies, world->replies + length, world->reply_length);
	}
}

static void step(struct fuzz_world *world)
{
	ssize_t length;

	world->now_ns += TURN_NS;
	sim_fabric_step(world->fabric, world->now_ns, 64);
	if (world->management_stands)
		control_step(server_control(world->server), world->now_ns);
	else
		server_step(world->server, world->now_ns);
	if (!world->stream || world->ended)
		return;
	length = world->stream->ops->receive(world->stream, world->replies + world->reply_length,
		sizeof(world->replies) - world->reply_length, NULL, NULL, 0);
	if (length > 0) {
		world->reply_length += (size_t)length;
		check_replies(world);
	} else {
		world->ended = length == 0;
	}
}

static void settle(struct fuzz_world *world)
{
	for (unsigned n = 0; control_client_count(server_control(world->server)) > 0; n++) {
		demand(n < STEPS_MAX);
		step(world);
	}
}

static void end_world(struct fuzz_world *world)
{
	struct sim_counters counters;

	if (world->stream)
		world->stream->ops->close(world->stream);
	world->stream = NULL;
	world->management_stands = false;
	settle(world);
	demand(!server_verify(world->server, true));
	control_drain(server_control(world->server), world->now_ns);
	for (unsigned n = 0; !control_idle(server_control(world->server)); n++) {
		demand(n < STEPS_MAX);
		step(world);
	}
	server_destroy(&world->server);
	verbs_sim.destroy_qp(world->client_qp);
	verbs_sim.destroy_cq(world->client_cq);
	verbs_sim.close(world->client_device);
	verbs_sim.close(world->server_device);
	sim_fabric_counters(world->fabric, &counters);
	demand(counters.misuses == 0);
	sim_fabric_destroy(&world->fabric);
}

static void fill_in_proof(const struct fuzz_world *world, uint8_t *bytes, uint32_t length)
{
	struct authenticate message;
	struct wire_error error;

	for (uint8_t i = 0; i < 32; i++) {
		if (bytes[64 + i] != 0x80 + i)
			return;
	}
	if (!authenticate_decode(bytes, length, &message, &error))
		demand(!digest_proof(SECRET, strlen(SECRET), world->challenge, message.nonce, message.key.bytes,
			message.key.length, bytes + 64));
}

static void fill_in(const struct fuzz_world *world, uint8_t *bytes, size_t size)
{
	struct wire_header header;
	struct wire_error error;
	uint32_t address_length;
	int length;

	while (size > 0) {
		length = wire_stream_length(bytes, size, WIRE_CONTROL_BYTES_MAX, &error);
		if (length <= 0 || (size_t)length > size || wire_header_decode(bytes, size, &header, &error))
			return;
		if (header.type == WIRE_CONNECT && length >= 40 + (int)ADDRESS_BYTES) {
			memcpy(&address_length, bytes + 36, 4);
			if (address_length == ADDRESS_BYTES)
				memcpy(bytes + 40, world->address, ADDRESS_BYTES);
		} else if (header.type == WIRE_AUTHENTICATE && length >= 96) {
			fill_in_proof(world, bytes, (uint32_t)length);
		}
		bytes += length;
		size -= (size_t)length;
	}
}

/* The challenge of this seed, known beforehand. */
static void learn_challenge(struct fuzz_world *world, uint8_t challenge[32])
{
	struct hello hello;
	uint8_t bytes[256];
	ssize_t length;

	memset(&hello, 0, sizeof(hello));
	hello.version_min = 1;
	hello.version_max = 1;
	hello.driver.bytes = hello.client.bytes = hello.tenant.bytes = "";
	length = hello_encode(bytes, sizeof(bytes), &hello);
	demand(length > 0);
	make_world(world, OVER_TCP);
	demand(world->stream->ops->send(world->stream, bytes, (size_t)length, NULL, 0) == length);
	for (unsigned i = 0; i < 100; i++)
		step(world);
	memcpy(challenge, world->challenge, 32);
	end_world(world);
}

static void send_pieces(struct fuzz_world *world, const uint8_t *bytes, size_t size, const uint8_t *fixed)
{
	size_t piece = fixed[2] ? fixed[2] : size;
	const int standard_input = 0;

	for (size_t at = 0; at < size && !world->ended;) {
		size_t left = size - at < piece ? size - at : piece;
		bool with_fd = (fixed[0] & WITH_DESCRIPTOR) && world->stream->carries_fds;
		ssize_t taken = world->stream->ops->send(world->stream, bytes + at, left, &standard_input, with_fd);

		at += taken > 0 ? (size_t)taken : 0;
		for (unsigned i = 0; i <= fixed[1]; i++)
			step(world);
		if ((fixed[0] & DRAIN_EARLY) && at >= size / 2)
			control_drain(server_control(world->server), world->now_ns);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fuzz_world world;
	static uint8_t challenge[32];
	static bool known;
	uint8_t *bytes;

	if (size < FIXED_BYTES || size > FIXED_BYTES + STREAM_MAX)
		return 0;
	log_set_sink(no_log, NULL);
	if (!known)
		learn_challenge(&world, challenge);
	known = true;
	make_world(&world, data[0]);
	memcpy(world.challenge, challenge, sizeof(challenge));
	bytes = malloc(size);
	demand(bytes);
	memcpy(bytes, data + FIXED_BYTES, size - FIXED_BYTES);
	fill_in(&world, bytes, size - FIXED_BYTES);
	world.management_stands = data[0] & MANAGEMENT_LATE;
	send_pieces(&world, bytes, size - FIXED_BYTES, data);
	for (unsigned i = 0; i < 64; i++)
		step(&world);
	world.management_stands = false;
	if (data[0] & HALF_CLOSE) {
		world.stream->ops->finish(world.stream);
		settle(&world);
	}
	free(bytes);
	end_world(&world);
	return 0;
}
