/* slice.c - see slice.h. */
#include "world/slice.h"

#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "base/random.h"

#define SLICE_TURN_NS ((uint64_t)500)
#define SLICE_PATIENCE_NS (60 * KVR_SECOND)

static const struct verbs_driver *const driver = &verbs_sim;

static int slice_connect(void *context, struct stream **stream)
{
	struct slice_client *client = context;
	struct slice *slice = client->slice;
	struct stream *server_end;
	int error = sim_stream_pair(slice->fabric, client->device, stream, &server_end);

	if (error)
		return error;
	if (control_accept(server_control(slice->server), server_end, slice->now_ns))
		return 0; /* told and closed: the client will read it */
	return 0;
}

void slice_start(struct slice *slice, uint64_t seed, const struct sim_options *options, uint64_t l1_bytes)
{
	struct server_options server;
	struct verbs_open open;
	struct l1_area area;

	memset(slice, 0, sizeof(*slice));
	slice->now_ns = KVR_SECOND;
	assert_int_equal(sim_fabric_create(seed, options, &slice->fabric), 0);
	memset(&open, 0, sizeof(open));
	open.server = true;
	open.fabric = slice->fabric;
	assert_int_equal(driver->open(&open, &slice->server_device), 0);
	slice->l1 = aligned_alloc(65536, l1_bytes);
	assert_non_null(slice->l1);
	memset(&area, 0, sizeof(area));
	area.address = slice->l1;
	area.bytes = l1_bytes;
	area.numa_node = -1;
	strcpy(slice->tenant.name, "default");
	slice->tenant.may_clear = true;
	server_options_default(&server);
	server.devices[0] = slice->server_device;
	server.worker_count = 1;
	server.areas = &area;
	server.area_count = 1;
	server.chunk_tokens = SLICE_CHUNK_TOKENS;
	server.connections_max = SLICE_CLIENTS;
	server.credits = 16;
	server.sessions_max = 64;
	server.chain_chunks_max = 4096;
	server.chunks_initial = 64;
	server.helper_threads = 0;
	server.boot_id = seed | 1;
	server.seed = seed | 1;
	server.trust_tcp = true;
	server.tenants = &slice->tenant;
	server.tenant_count = 1;
	assert_int_equal(server_create(&server, &slice->server), 0);
}

void slice_step(struct slice *slice)
{
	slice->now_ns += SLICE_TURN_NS;
	sim_fabric_step(slice->fabric, slice->now_ns, 64);
	server_step(slice->server, slice->now_ns);
	for (unsigned i = 0; i < SLICE_CLIENTS; i++) {
		if (slice->clients[i].client)
			client_step(slice->clients[i].client, slice->now_ns);
	}
}

int slice_wait(struct slice *slice, struct kvr_client *client, kvr_ticket ticket, struct kvr_result *result)
{
	uint64_t until_ns = slice->now_ns + SLICE_PATIENCE_NS;
	int error;

	while ((error = client_take(client, ticket, result)) == -EAGAIN) {
		assert_true(slice->now_ns < until_ns);
		slice_step(slice);
	}
	assert_int_equal(error, 0);
	return result->error;
}

void slice_join(struct slice *slice, unsigned index, const char *name, uint32_t world_size, uint32_t rank)
{
	struct slice_client *client = &slice->clients[index];
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct kvr_model model = KVR_MODEL_INIT;
	struct kvr_plane planes[SLICE_PLANES];
	struct client_options create;
	struct kvr_layout layout;
	struct kvr_result result;
	struct kvr_group group;
	struct verbs_open open;
	uint64_t until_ns;
	kvr_ticket ticket;

	client->slice = slice;
	memset(&open, 0, sizeof(open));
	open.fabric = slice->fabric;
	assert_int_equal(driver->open(&open, &client->device), 0);
	client->options = options;
	client->options.name = "slice";
	memset(&create, 0, sizeof(create));
	create.user = &client->options;
	create.device = client->device;
	create.connect = slice_connect;
	create.context = client;
	create.seed = index + 1;
	assert_int_equal(client_create(&create, &client->client), 0);
	until_ns = slice->now_ns + SLICE_PATIENCE_NS;
	while (!client_ready(client->client)) {
		assert_true(slice->now_ns < until_ns);
		slice_step(slice);
	}
	client->pool_bytes = (uint64_t)SLICE_PLANES * SLICE_BLOCKS * SLICE_BLOCK_BYTES;
	client->pool = aligned_alloc(4096, kvr_round_up(client->pool_bytes, 4096));
	assert_non_null(client->pool);
	memset(client->pool, 0xee, client->pool_bytes);
	for (unsigned p = 0; p < SLICE_PLANES; p++) {
		planes[p].address = client->pool + (uint64_t)p * SLICE_BLOCKS * SLICE_BLOCK_BYTES;
		planes[p].block_stride = SLICE_BLOCK_BYTES;
		planes[p].block_bytes = SLICE_BLOCK_BYTES;
	}
	memset(&group, 0, sizeof(group));
	group.tokens_per_block = SLICE_BLOCK_TOKENS;
	group.window_tokens = KVR_WINDOW_FULL;
	group.block_count = SLICE_BLOCKS;
	group.plane_count = SLICE_PLANES;
	group.planes = planes;
	memset(&layout, 0, sizeof(layout));
	layout.struct_bytes = sizeof(layout);
	layout.group_count = 1;
	layout.groups = &group;
	model.name = name;
	model.dtype = "uint8";
	model.world_size = world_size;
	model.rank = rank;
	assert_int_equal(
		client_submit_register(client->client, &model, &layout, NULL, &client->registration, &ticket), 0);
	assert_int_equal(slice_wait(slice, client->client, ticket, &result), 0);
}

void slice_stop(struct slice *slice)
{
	uint64_t until_ns;

	for (unsigned i = 0; i < SLICE_CLIENTS; i++)
		client_destroy(&slice->clients[i].client);
	until_ns = slice->now_ns + SLICE_PATIENCE_NS;
	control_drain(server_control(slice->server), slice->now_ns);
	while (!control_idle(server_control(slice->server))) {
		assert_true(slice->now_ns < until_ns);
		slice_step(slice);
	}
	assert_int_equal(server_verify(slice->server, true), 0);
	server_destroy(&slice->server);
	for (unsigned i = 0; i < SLICE_CLIENTS; i++) {
		if (slice->clients[i].device)
			driver->close(slice->clients[i].device);
		free(slice->clients[i].pool);
	}
	driver->close(slice->server_device);
	sim_fabric_destroy(&slice->fabric);
	free(slice->l1);
}

static uint8_t *slice_block(const struct slice_client *client, uint32_t plane, uint32_t block)
{
	return client->pool + ((uint64_t)plane * SLICE_BLOCKS + block) * SLICE_BLOCK_BYTES;
}

static uint8_t slice_byte(uint32_t salt, uint32_t position, uint32_t plane, uint32_t at)
{
	return (uint8_t)random_mix(((uint64_t)salt << 40) ^ ((uint64_t)position << 20) ^ ((uint64_t)plane << 10) ^ at);
}

void slice_fill(struct slice_client *client, uint32_t block, uint32_t salt, uint32_t position)
{
	for (uint32_t p = 0; p < SLICE_PLANES; p++) {
		for (uint32_t i = 0; i < SLICE_BLOCK_BYTES; i++)
			slice_block(client, p, block)[i] = slice_byte(salt, position, p, i);
	}
}

void slice_poison(struct slice_client *client, uint32_t block)
{
	for (uint32_t p = 0; p < SLICE_PLANES; p++)
		memset(slice_block(client, p, block), 0xee, SLICE_BLOCK_BYTES);
}

bool slice_holds(const struct slice_client *client, uint32_t block, uint32_t salt, uint32_t position)
{
	for (uint32_t p = 0; p < SLICE_PLANES; p++) {
		for (uint32_t i = 0; i < SLICE_BLOCK_BYTES; i++) {
			if (slice_block(client, p, block)[i] != slice_byte(salt, position, p, i))
				return false;
		}
	}
	return true;
}

bool slice_poisoned(const struct slice_client *client, uint32_t block)
{
	for (uint32_t p = 0; p < SLICE_PLANES; p++) {
		for (uint32_t i = 0; i < SLICE_BLOCK_BYTES; i++) {
			if (slice_block(client, p, block)[i] != 0xee)
				return false;
		}
	}
	return true;
}
