/* house.c - see house.h. */
#include "client/house.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "base/log.h"
#include "base/random.h"
#include "mgmt/server.h"

#define HOUSE_L1_BYTES ((uint64_t)4 << 20)

static volatile sig_atomic_t house_stop;

static void house_on_term(int signal_number)
{
	(void)signal_number;
	house_stop = 1;
}

static void house_step(struct server *server, int listener, uint64_t *idle_since_ns)
{
	uint64_t now_ns = clock_now_ns();
	struct stream *stream;
	struct timespec pause = { 0, 200000 };

	if (stream_accept(listener, true, &stream) == 0 && control_accept(server_control(server), stream, now_ns))
		log_info("house: a client was refused");
	if (server_step(server, now_ns))
		*idle_since_ns = now_ns;
	else if (now_ns - *idle_since_ns > 2 * KVR_MS)
		nanosleep(&pause, NULL);
}

/* The whole server in one thread of the child: 0 when it was left empty. */
static int house_serve(const struct house *house)
{
	struct control_tenant tenant;
	struct server_options options;
	struct stream_address address;
	struct verbs_open open;
	struct server *server;
	struct l1_area area;
	uint64_t idle_since_ns = clock_now_ns();
	int listener;

	log_set_level(LOG_ERROR);
	memset(&tenant, 0, sizeof(tenant));
	strcpy(tenant.name, "default");
	tenant.may_clear = true;
	memset(&open, 0, sizeof(open));
	open.server = true;
	server_options_default(&options);
	memset(&area, 0, sizeof(area));
	area.bytes = HOUSE_L1_BYTES;
	area.address = aligned_alloc(65536, HOUSE_L1_BYTES);
	area.numa_node = -1;
	options.areas = &area;
	options.area_count = 1;
	options.worker_count = 1;
	options.chunk_tokens = HOUSE_CHUNK_TOKENS;
	options.chunks_initial = 256;
	options.sessions_max = 256;
	options.chain_chunks_max = 8192;
	options.tenants = &tenant;
	options.tenant_count = 1;
	if (!area.address || verbs_local.open(&open, &options.devices[0]) || server_create(&options, &server) ||
		stream_parse_address(house->url, &address) || stream_listen(&address, 0600, &listener))
		return 2;
	while (!house_stop)
		house_step(server, listener, &idle_since_ns);
	control_drain(server_control(server), clock_now_ns());
	for (uint64_t until_ns = clock_now_ns() + 5 * KVR_SECOND; !control_idle(server_control(server));) {
		if (clock_now_ns() > until_ns)
			return 3;
		server_step(server, clock_now_ns());
	}
	if (server_verify(server, true))
		return 4;
	server_destroy(&server);
	verbs_local.close(options.devices[0]);
	free(area.address);
	unlink(address.path);
	return 0;
}

void house_prepare_server(struct house *house)
{
	int fds[2];
	char byte;

	assert_int_equal(pipe(fds), 0);
	house->standby = fork();
	assert_true(house->standby >= 0);
	if (house->standby == 0) {
		struct sigaction action;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[1]);
		if (read(fds[0], &byte, 1) != 1)
			_exit(0);
		close(fds[0]);
		memset(&action, 0, sizeof(action));
		action.sa_handler = house_on_term;
		sigaction(SIGTERM, &action, NULL);
		_exit(house_serve(house));
	}
	close(fds[0]);
	house->standby_fd = fds[1];
}

void house_start_server(struct house *house)
{
	if (!house->standby)
		house_prepare_server(house);
	assert_int_equal(write(house->standby_fd, "x", 1), 1);
	close(house->standby_fd);
	house->server = house->standby;
	house->standby = 0;
}

void house_open(struct house *house)
{
	memset(house, 0, sizeof(*house));
	strcpy(house->directory, "/tmp/kvrail-house-XXXXXX");
	assert_non_null(mkdtemp(house->directory));
	snprintf(house->path, sizeof(house->path), "%s/kvrail.sock", house->directory);
	snprintf(house->url, sizeof(house->url), "unix:%s", house->path);
	house_start_server(house);
}

void house_kill_server(struct house *house)
{
	int status;

	assert_int_equal(kill(house->server, SIGKILL), 0);
	assert_int_equal(waitpid(house->server, &status, 0), house->server);
}

void house_close(struct house *house)
{
	int status;

	assert_int_equal(kill(house->server, SIGTERM), 0);
	assert_int_equal(waitpid(house->server, &status, 0), house->server);
	unlink(house->path);
	rmdir(house->directory);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

struct kvr_client *house_client(const struct house *house, const char *name)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct kvr_client *client;
	int error = -ENOENT;

	options.url = house->url;
	options.name = name;
	/* The server's socket appears a moment after its process. */
	for (unsigned attempt = 0; attempt < 1000 && (error == -ENOENT || error == -ECONNREFUSED); attempt++) {
		struct timespec pause = { 0, 5000000 };

		error = kvr_open(&options, &client);
		if (error)
			nanosleep(&pause, NULL);
	}
	if (error)
		fail_msg("kvr_open: %s", kvr_error_text());
	return client;
}

uint32_t house_register(struct kvr_client *client, uint8_t *pool)
{
	struct kvr_model model = KVR_MODEL_INIT;
	struct kvr_plane planes[HOUSE_PLANES];
	struct kvr_group group = { HOUSE_BLOCK_TOKENS, KVR_WINDOW_FULL, HOUSE_BLOCKS, HOUSE_PLANES, planes };
	struct kvr_layout layout = { sizeof(layout), 1, &group };
	uint32_t registration;

	for (unsigned p = 0; p < HOUSE_PLANES; p++) {
		planes[p].address = pool + (size_t)p * HOUSE_BLOCKS * HOUSE_BLOCK_BYTES;
		planes[p].block_stride = HOUSE_BLOCK_BYTES;
		planes[p].block_bytes = HOUSE_BLOCK_BYTES;
	}
	model.name = "house model";
	model.dtype = "uint8";
	if (kvr_register(client, &model, &layout, NULL, &registration))
		fail_msg("kvr_register: %s", kvr_error_text());
	return registration;
}

struct kvr_session *house_session(
	struct kvr_client *client, uint32_t registration, const char *id, uint32_t salt, uint32_t chunks)
{
	uint32_t tokens[64 * HOUSE_CHUNK_TOKENS];
	struct kvr_session *session;

	for (uint32_t i = 0; i < chunks * HOUSE_CHUNK_TOKENS; i++)
		tokens[i] = salt * 100000 + i;
	assert_int_equal(kvr_session_create(client, registration, id, NULL, &session), 0);
	assert_int_equal(kvr_session_tokens(session, tokens, chunks * HOUSE_CHUNK_TOKENS), 0);
	return session;
}

struct kvr_transfer house_transfer(
	struct kvr_blocks *blocks, uint32_t *ids, uint32_t first_id, uint32_t chunks, uint8_t *outcomes)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	uint32_t count = chunks * HOUSE_BLOCKS_PER_CHUNK;

	for (uint32_t i = 0; i < count; i++)
		ids[i] = first_id + (i % 2 == 0 ? i / 2 : count - 1 - i / 2); /* from both ends inwards */
	blocks->ids = ids;
	blocks->count = count;
	transfer.chunk_count = chunks;
	transfer.group_count = 1;
	transfer.groups = blocks;
	transfer.outcomes = outcomes;
	return transfer;
}

static uint8_t house_byte(uint32_t salt, uint32_t position, uint32_t plane, uint32_t at)
{
	return (uint8_t)random_mix(((uint64_t)salt << 40) ^ ((uint64_t)position << 20) ^ ((uint64_t)plane << 12) ^ at);
}

void house_fill(uint8_t *pool, uint32_t block, uint32_t salt, uint32_t position)
{
	for (uint32_t p = 0; p < HOUSE_PLANES; p++) {
		uint8_t *bytes = pool + ((size_t)p * HOUSE_BLOCKS + block) * HOUSE_BLOCK_BYTES;

		for (uint32_t i = 0; i < HOUSE_BLOCK_BYTES; i++)
			bytes[i] = house_byte(salt, position, p, i);
	}
}

bool house_holds(const uint8_t *pool, uint32_t block, uint32_t salt, uint32_t position)
{
	for (uint32_t p = 0; p < HOUSE_PLANES; p++) {
		const uint8_t *bytes = pool + ((size_t)p * HOUSE_BLOCKS + block) * HOUSE_BLOCK_BYTES;

		for (uint32_t i = 0; i < HOUSE_BLOCK_BYTES; i++) {
			if (bytes[i] != house_byte(salt, position, p, i))
				return false;
		}
	}
	return true;
}
