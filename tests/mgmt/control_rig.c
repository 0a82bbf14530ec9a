/* control_rig.c - see control_rig.h. */
#include "mgmt/control_rig.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "protocol/digest.h"

#define RIG_TURN_NS ((uint64_t)500)
#define RIG_PATIENCE_NS (600 * KVR_MS)
#define RIG_L1_BYTES ((uint64_t)1 << 20)

pthread_mutex_t *rig_lock(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	return &lock;
}

static void rig_take_line(void *context, enum log_level level, const char *line)
{
	struct rig *rig = context;

	(void)level;
	snprintf(rig->lines[rig->line_count++ % RIG_LINES], RIG_LINE, "%s", line);
}

unsigned rig_lines_with(const struct rig *rig, const char *words)
{
	unsigned count = 0;

	for (unsigned i = 0; i < rig->line_count && i < RIG_LINES; i++)
		count += strstr(rig->lines[i], words) != NULL;
	return count;
}

void rig_forget_lines(struct rig *rig)
{
	rig->line_count = 0;
}

const struct control_counters *rig_counters(struct rig *rig)
{
	return control_counters(server_control(rig->server));
}

void rig_use(struct rig *rig, const struct rig_calls *calls)
{
	if (calls->create_qp)
		rig->driver.create_qp = calls->create_qp;
	if (calls->import_memory)
		rig->driver.import_memory = calls->import_memory;
	if (calls->forget_memory)
		rig->driver.forget_memory = calls->forget_memory;
	if (calls->destroy_qp)
		rig->driver.destroy_qp = calls->destroy_qp;
	if (calls->register_memory)
		rig->driver.register_memory = calls->register_memory;
}

void rig_prepare(struct rig *rig)
{
	struct sim_options sim;
	struct verbs_open open;

	memset(rig, 0, sizeof(*rig));
	rig->now_ns = KVR_SECOND;
	log_set_sink(rig_take_line, rig);
	sim_options_default(&sim);
	assert_int_equal(sim_fabric_create(1, &sim, &rig->fabric), 0);
	memset(&open, 0, sizeof(open));
	open.fabric = rig->fabric;
	assert_int_equal(verbs_sim.open(&open, &rig->client_device), 0);
	assert_int_equal(verbs_sim.create_cq(rig->client_device, 1024, &rig->client_cq), 0);
	open.server = true;
	assert_int_equal(verbs_sim.open(&open, &rig->server_device), 0);
	rig->driver = verbs_sim;
	rig->server_device->driver = &rig->driver;
	rig->area.address = aligned_alloc(65536, RIG_L1_BYTES);
	assert_non_null(rig->area.address);
	rig->area.bytes = RIG_L1_BYTES;
	rig->area.numa_node = -1;
	strcpy(rig->tenants[0].name, "default");
	strcpy(rig->tenants[1].name, "red");
	rig->tenants[1].by_uid = true;
	rig->tenants[1].uid = 2000;
	strcpy(rig->tenants[2].name, "blue");
	strcpy(rig->tenants[2].key_name, "blue-key");
	memcpy(rig->tenants[2].secret, "the secret", 10);
	rig->tenants[2].secret_length = 10;
	server_options_default(&rig->options);
	rig->options.devices[0] = rig->server_device;
	rig->options.worker_count = 1;
	rig->options.areas = &rig->area;
	rig->options.area_count = 1;
	rig->options.chunk_tokens = RIG_CHUNK_TOKENS;
	rig->options.connections_max = RIG_CLIENTS;
	rig->options.credits = 4;
	rig->options.send_depth = 64;
	rig->options.sessions_max = 16;
	rig->options.chain_chunks_max = 64;
	rig->options.large_requests = 1;
	rig->options.large_buffers = 1;
	rig->options.message_bytes_max = 65536;
	rig->options.chunks_initial = 64;
	rig->options.helper_threads = 0;
	rig->options.boot_id = RIG_BOOT;
	rig->options.seed = 7;
	rig->options.tenants = rig->tenants;
	rig->options.tenant_count = RIG_TENANTS;
}

void rig_start(struct rig *rig)
{
	assert_int_equal(server_create(&rig->options, &rig->server), 0);
}

void rig_make(struct rig *rig)
{
	rig_prepare(rig);
	rig_start(rig);
}

void rig_step(struct rig *rig)
{
	pthread_mutex_lock(rig_lock());
	rig->now_ns += RIG_TURN_NS;
	sim_fabric_step(rig->fabric, rig->now_ns, 64);
	if (rig->management_stands)
		control_step(server_control(rig->server), rig->now_ns);
	else
		server_step(rig->server, rig->now_ns);
	pthread_mutex_unlock(rig_lock());
	if (rig->options.helper_threads)
		sched_yield();
}

void rig_steps(struct rig *rig, unsigned count)
{
	while (count-- > 0)
		rig_step(rig);
}

/* Threads have no virtual time: the test's own limit holds for them. */
static void rig_turn(struct rig *rig, uint64_t since_ns)
{
	rig_step(rig);
	if (!rig->options.helper_threads)
		assert_true(rig->now_ns < since_ns + RIG_PATIENCE_NS);
}

void rig_settle(struct rig *rig, uint32_t clients)
{
	uint64_t since_ns = rig->now_ns;

	while (control_client_count(server_control(rig->server)) != clients)
		rig_turn(rig, since_ns);
}

static void rig_close(struct rig *rig)
{
	if (rig->client_cq)
		verbs_sim.destroy_cq(rig->client_cq);
	verbs_sim.close(rig->client_device);
	verbs_sim.close(rig->server_device);
	sim_fabric_destroy(&rig->fabric);
	free(rig->area.address);
	log_set_sink(NULL, NULL);
}

void rig_stop(struct rig *rig)
{
	uint64_t since_ns = rig->now_ns;

	rig->management_stands = false;
	if (rig->server) {
		control_drain(server_control(rig->server), rig->now_ns);
		while (!control_idle(server_control(rig->server)))
			rig_turn(rig, since_ns);
		assert_int_equal(server_verify(rig->server, true), 0);
		assert_int_equal(control_client_count(server_control(rig->server)), 0);
		server_destroy(&rig->server);
	}
	rig_close(rig);
}

static int peer_accept(struct rig *rig, struct peer *peer, bool unix_socket, uid_t uid)
{
	struct stream *server_end;
	int error;

	memset(peer, 0, sizeof(*peer));
	peer->rig = rig;
	pthread_mutex_lock(rig_lock());
	assert_int_equal(sim_stream_pair(rig->fabric, NULL, &peer->stream, &server_end), 0);
	if (unix_socket)
		server_end->peer.uid = uid;
	else
		memset(&server_end->peer, 0, sizeof(server_end->peer));
	server_end->carries_fds = unix_socket;
	error = control_accept(server_control(rig->server), server_end, rig->now_ns);
	pthread_mutex_unlock(rig_lock());
	return error;
}

int peer_open(struct rig *rig, struct peer *peer)
{
	return peer_accept(rig, peer, true, 1000);
}

int peer_open_tcp(struct rig *rig, struct peer *peer)
{
	return peer_accept(rig, peer, false, 0);
}

int peer_open_uid(struct rig *rig, struct peer *peer, uid_t uid)
{
	return peer_accept(rig, peer, true, uid);
}

void peer_close(struct peer *peer)
{
	pthread_mutex_lock(rig_lock());
	if (peer->stream)
		peer->stream->ops->close(peer->stream);
	peer->stream = NULL;
	pthread_mutex_unlock(rig_lock());
}

void peer_fini(struct peer *peer)
{
	peer_close(peer);
	pthread_mutex_lock(rig_lock());
	if (peer->qp)
		verbs_sim.destroy_qp(peer->qp);
	peer->qp = NULL;
	pthread_mutex_unlock(rig_lock());
}

void peer_send(struct peer *peer, const void *bytes, size_t length, const int *fds, unsigned fd_count)
{
	const uint8_t *at = bytes;
	uint64_t since_ns = peer->rig->now_ns;

	while (length > 0) {
		ssize_t taken;

		pthread_mutex_lock(rig_lock());
		taken = peer->stream->ops->send(peer->stream, at, length, fds, fd_count);
		pthread_mutex_unlock(rig_lock());
		if (taken == -EPIPE)
			return;
		if (taken == -EAGAIN) {
			rig_turn(peer->rig, since_ns);
			continue;
		}
		assert_true(taken > 0);
		at += taken;
		length -= (size_t)taken;
		fd_count = 0;
	}
}

bool peer_look(struct peer *peer)
{
	ssize_t length;

	if (peer->ended || peer->length == sizeof(peer->received))
		return peer->ended;
	pthread_mutex_lock(rig_lock());
	length = peer->stream->ops->receive(
		peer->stream, peer->received + peer->length, sizeof(peer->received) - peer->length, NULL, NULL, 0);
	pthread_mutex_unlock(rig_lock());
	if (length > 0)
		peer->length += (uint32_t)length;
	else if (length != -EAGAIN)
		peer->ended = true;
	return peer->ended;
}

/* The next whole message is at the beginning: its length, 0 when there is none. */
static uint32_t peer_message(struct peer *peer)
{
	struct error_reply reply;
	struct wire_error error;
	int length;

	if (peer->message) {
		peer->length -= peer->message;
		memmove(peer->received, peer->received + peer->message, peer->length);
		peer->message = 0;
	}
	if (peer->length == 0)
		return 0;
	length = wire_stream_length(peer->received, peer->length, RIG_MESSAGE, &error);
	assert_true(length >= 0);
	if (length == 0 || (uint32_t)length > peer->length)
		return 0;
	peer->message = (uint32_t)length;
	assert_int_equal(wire_header_decode(peer->received, peer->length, &peer->header, &error), 0);
	assert_int_equal(peer->header.boot_id, RIG_BOOT);
	peer->text[0] = '\0';
	if (!status_has_body(peer->header.status)) {
		assert_int_equal(error_reply_decode(peer->received, peer->length, &reply, &error), 0);
		memcpy(peer->text, reply.text.bytes, reply.text.length);
		peer->text[reply.text.length] = '\0';
		assert_true(reply.text.length > 0);
	}
	return peer->message;
}

int peer_reply(struct peer *peer)
{
	uint64_t since_ns = peer->rig->now_ns;

	while (!peer_message(peer)) {
		if (peer_look(peer) && !peer_message(peer))
			return PEER_CLOSED;
		if (peer->message)
			break;
		rig_turn(peer->rig, since_ns);
	}
	return peer->header.status;
}

int peer_ask(struct peer *peer, const uint8_t *bytes, size_t length)
{
	peer_send(peer, bytes, length, NULL, 0);
	return peer_reply(peer);
}

static struct wire_text words(const char *string)
{
	struct wire_text text;

	text.bytes = string;
	text.length = (uint32_t)strlen(string);
	return text;
}

static size_t made(ssize_t length)
{
	assert_true(length > 0);
	return (size_t)length;
}

size_t make_hello(uint8_t *bytes, const char *driver, const char *tenant)
{
	struct hello hello;

	memset(&hello, 0, sizeof(hello));
	hello.header.request_id = 41;
	hello.version_min = WIRE_VERSION_MIN;
	hello.version_max = WIRE_VERSION_MAX;
	hello.driver = words(driver);
	hello.client = words("by hand");
	hello.tenant = words(tenant);
	return made(hello_encode(bytes, RIG_MESSAGE, &hello));
}

size_t make_authenticate(uint8_t *bytes, const uint8_t *challenge, const char *key, const char *secret, uint8_t nonce)
{
	struct authenticate message;
	uint8_t nonces[32], proof[32];

	memset(&message, 0, sizeof(message));
	memset(nonces, nonce, sizeof(nonces));
	assert_int_equal(digest_proof(secret, strlen(secret), challenge, nonces, key, strlen(key), proof), 0);
	message.header.request_id = 42;
	message.nonce = nonces;
	message.proof = proof;
	message.key = words(key);
	return made(authenticate_encode(bytes, RIG_MESSAGE, &message));
}

size_t make_connect(uint8_t *bytes, struct peer *peer)
{
	struct connect_request request;
	struct verbs_qp_options options;
	uint8_t address[WIRE_ADDRESS_MAX];
	int fds[STREAM_FDS_MAX];
	unsigned fd_count;

	memset(&options, 0, sizeof(options));
	options.send_cq = peer->rig->client_cq;
	options.recv_cq = peer->rig->client_cq;
	options.max_send_wr = 4;
	options.max_recv_wr = 4;
	options.max_sge = 1;
	options.max_message_bytes = WIRE_INLINE_BYTES;
	memset(&request, 0, sizeof(request));
	request.header.request_id = 43;
	request.address = address;
	pthread_mutex_lock(rig_lock());
	if (!peer->qp)
		assert_int_equal(verbs_sim.create_qp(peer->rig->client_device, &options, &peer->qp), 0);
	assert_int_equal(
		verbs_sim.qp_address(peer->qp, address, sizeof(address), &request.address_length, fds, &fd_count), 0);
	pthread_mutex_unlock(rig_lock());
	return made(connect_request_encode(bytes, RIG_MESSAGE, &request));
}

size_t make_memory(uint8_t *bytes, uint64_t address, uint64_t length, uint32_t rkey)
{
	struct memory_request request;

	memset(&request, 0, sizeof(request));
	request.header.request_id = 44;
	request.address = address;
	request.length = length;
	request.kind = MEMORY_REMOTE;
	request.rkey_count = 1;
	request.rkeys[0] = rkey;
	return made(memory_request_encode(bytes, RIG_MESSAGE, &request));
}

size_t make_memory_shared(uint8_t *bytes, uint64_t address, uint64_t length)
{
	struct memory_request request;

	memset(&request, 0, sizeof(request));
	request.header.request_id = 44;
	request.address = address;
	request.length = length;
	request.kind = MEMORY_SHARED;
	return made(memory_request_encode(bytes, RIG_MESSAGE, &request));
}

size_t make_forget(uint8_t *bytes, uint32_t region)
{
	struct forget_memory message;

	memset(&message, 0, sizeof(message));
	message.header.request_id = 45;
	message.region = region;
	return made(forget_memory_encode(bytes, RIG_MESSAGE, &message));
}

size_t make_register(uint8_t *bytes, const char *model, uint32_t planes, uint64_t address, uint32_t region)
{
	static const uint8_t fingerprint[32];
	uint8_t group_bytes[WIRE_GROUP_BYTES], plane_bytes[8 * WIRE_PLANE_BYTES];
	struct register_request request;
	struct wire_group group;

	assert_true(planes <= 8);
	memset(&request, 0, sizeof(request));
	request.header.request_id = 46;
	request.identity.model = words(model);
	request.identity.dtype = words("uint8");
	request.identity.fingerprint = fingerprint;
	request.identity.world_size = 1;
	request.identity.readers = 1;
	request.group_count = planes > 0;
	request.plane_count = planes;
	request.groups = group_bytes;
	request.planes = plane_bytes;
	group.tokens_per_block = 4;
	group.window_tokens = WIRE_WINDOW_FULL;
	group.block_count = 8;
	group.plane_count = planes;
	register_write_group(group_bytes, &group);
	for (uint32_t i = 0; i < planes; i++) {
		struct wire_plane plane;

		plane.address = address + (uint64_t)i * 8 * 64;
		plane.block_stride = 64;
		plane.block_bytes = 64;
		plane.region = region;
		register_write_plane(plane_bytes + (size_t)i * WIRE_PLANE_BYTES, &plane);
	}
	return made(register_request_encode(bytes, RIG_MESSAGE, &request));
}

size_t make_unregister(uint8_t *bytes, uint32_t registration)
{
	struct unregister_request request;

	memset(&request, 0, sizeof(request));
	request.header.request_id = 47;
	request.registration = registration;
	return made(unregister_request_encode(bytes, RIG_MESSAGE, &request));
}

size_t make_type(uint8_t *bytes, uint16_t type)
{
	struct wire_header header;

	memset(&header, 0, sizeof(header));
	header.length = WIRE_HEADER_BYTES;
	header.fixed_length = WIRE_HEADER_BYTES;
	header.type = type;
	header.request_id = 48;
	wire_header_encode(bytes, &header);
	return WIRE_HEADER_BYTES;
}

int peer_hello(struct peer *peer)
{
	uint8_t bytes[RIG_MESSAGE];

	return peer_ask(peer, bytes, make_hello(bytes, "sim", ""));
}

int peer_connect(struct peer *peer)
{
	uint8_t bytes[RIG_MESSAGE];

	return peer_ask(peer, bytes, make_connect(bytes, peer));
}

void peer_join(struct rig *rig, struct peer *peer)
{
	assert_int_equal(peer_open(rig, peer), 0);
	assert_int_equal(peer_hello(peer), STATUS_OK);
	assert_int_equal(peer_connect(peer), STATUS_OK);
}

int peer_memory(struct peer *peer, uint64_t address, uint64_t length, uint32_t *region)
{
	struct memory_reply reply;
	struct wire_error error;
	uint8_t bytes[RIG_MESSAGE];
	int status = peer_ask(peer, bytes, make_memory(bytes, address, length, 77 + (uint32_t)address));

	if (status == STATUS_OK) {
		assert_int_equal(memory_reply_decode(peer->received, peer->length, &reply, &error), 0);
		if (region)
			*region = reply.region;
	}
	return status;
}

int peer_forget(struct peer *peer, uint32_t region)
{
	uint8_t bytes[RIG_MESSAGE];

	return peer_ask(peer, bytes, make_forget(bytes, region));
}

int peer_register(struct peer *peer, uint32_t planes, uint64_t address, uint32_t region, uint32_t *registration)
{
	struct register_reply reply;
	struct wire_error error;
	uint8_t bytes[RIG_MESSAGE];
	int status = peer_ask(peer, bytes, make_register(bytes, "model", planes, address, region));

	if (status == STATUS_OK) {
		assert_int_equal(register_reply_decode(peer->received, peer->length, &reply, &error), 0);
		if (registration)
			*registration = reply.registration;
	}
	return status;
}

int peer_unregister(struct peer *peer, uint32_t registration)
{
	uint8_t bytes[RIG_MESSAGE];

	return peer_ask(peer, bytes, make_unregister(bytes, registration));
}
