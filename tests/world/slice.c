/* slice.c - see slice.h: server, clients, time. */
#include "world/slice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "base/log.h"
#include "base/random.h"

#define SLICE_TURN_NS ((uint64_t)500)
#define SLICE_PATIENCE_NS (60 * KVR_SECOND)
#define SLICE_JUMP_NS (2 * KVR_MS)
#define SLICE_DOWN_TURNS 100000u

static const struct verbs_driver *const driver = &verbs_sim;

/* ---- the server ------------------------------------------------------------------------------------------------ */

static void prepare_server(struct slice *slice, uint64_t seed, uint64_t l1_bytes)
{
	struct server_options *server = &slice->options;

	slice->seed = seed;
	slice->area.bytes = l1_bytes;
	slice->area.numa_node = -1;
	for (uint32_t t = 0; t < SLICE_TENANTS; t++) {
		memcpy(slice->tenants[t].name, t ? "guest" : "house", sizeof("guest"));
		slice->tenants[t].by_uid = true;
		slice->tenants[t].uid = 1000 + t;
		slice->tenants[t].may_clear = true;
	}
	server_options_default(server);
	server->worker_count = 1;
	server->areas = &slice->area;
	server->area_count = 1;
	server->chunk_tokens = SLICE_CHUNK_TOKENS;
	server->connections_max = SLICE_CLIENTS;
	server->credits = 16;
	server->sessions_max = 64;
	server->chain_chunks_max = 4096;
	server->chunks_initial = 64;
	server->message_bytes_max = 65536;
	server->helper_threads = 0;
	server->boot_id = seed | 1;
	server->seed = seed | 1;
	server->trust_tcp = true;
	server->tenants = slice->tenants;
	server->tenant_count = SLICE_TENANTS;
}

void slice_prepare(struct slice *slice, uint64_t seed, const struct sim_options *options, uint64_t l1_bytes)
{
	log_set_level(LOG_ERROR); /* clients that come and go are no news here */
	memset(slice, 0, sizeof(*slice));
	slice->now_ns = KVR_SECOND;
	if (options)
		slice->network = *options;
	else
		sim_options_default(&slice->network);
	assert_int_equal(sim_fabric_create(seed, &slice->network, &slice->fabric), 0);
	prepare_server(slice, seed, l1_bytes);
}

void slice_prepare_beside(struct slice *slice, struct slice *first, uint64_t seed, uint64_t l1_bytes)
{
	memset(slice, 0, sizeof(*slice));
	slice->now_ns = first->now_ns;
	slice->network = first->network;
	slice->fabric = first->fabric;
	slice->beside = first;
	first->beside = slice;
	prepare_server(slice, seed, l1_bytes);
}

static void close_rails(struct verbs_device *rails[SLICE_RAILS_MAX - 1])
{
	for (unsigned i = 0; i < SLICE_RAILS_MAX - 1; i++) {
		if (rails[i])
			driver->close(rails[i]);
		rails[i] = NULL;
	}
}

static void open_rails(const struct slice *slice, const uint32_t *subnets, bool server,
	struct verbs_device *rails[SLICE_RAILS_MAX - 1])
{
	struct verbs_open open;

	memset(&open, 0, sizeof(open));
	open.server = server;
	open.fabric = slice->fabric;
	for (unsigned i = 1; i < slice->rails; i++) {
		open.subnet = subnets[i];
		assert_int_equal(driver->open(&open, &rails[i - 1]), 0);
	}
}

static void server_close(struct slice *slice)
{
	server_destroy(&slice->server);
	if (slice->server_device)
		driver->close(slice->server_device);
	slice->server_device = NULL;
	close_rails(slice->server_rails);
	free(slice->area.address);
	slice->area.address = NULL;
}

int slice_server_try(struct slice *slice)
{
	struct verbs_open open;
	int error;

	memset(&open, 0, sizeof(open));
	open.server = true;
	open.fabric = slice->fabric;
	open.subnet = slice->server_subnets[0];
	error = driver->open(&open, &slice->server_device);
	if (error)
		return error;
	open_rails(slice, slice->server_subnets, true, slice->server_rails);
	slice->options.rail_count = slice->rails > 1 ? slice->rails : 0;
	slice->options.rails[0] = slice->server_device;
	for (uint32_t i = 1; i < slice->rails; i++)
		slice->options.rails[i] = slice->server_rails[i - 1];
	slice->area.address = aligned_alloc(65536, slice->area.bytes);
	assert_non_null(slice->area.address);
	for (uint32_t i = 0; i < slice->options.worker_count; i++)
		slice->options.devices[i] = slice->home_on_each && i % slice->rails > 0
			? slice->server_rails[i % slice->rails - 1]
			: slice->server_device;
	slice->options.boot_id += 2;
	error = server_create(&slice->options, &slice->server);
	if (error)
		server_close(slice);
	return error;
}

void slice_server_begin(struct slice *slice)
{
	assert_int_equal(slice_server_try(slice), 0);
}

void slice_start(struct slice *slice, uint64_t seed, const struct sim_options *options, uint64_t l1_bytes)
{
	slice_prepare(slice, seed, options, l1_bytes);
	slice_server_begin(slice);
}

void slice_server_kill(struct slice *slice)
{
	struct control *control = server_control(slice->server);

	sim_fabric_kill_device(slice->fabric, slice->server_device);
	for (uint32_t i = 1; i < slice->rails; i++)
		sim_fabric_kill_device(slice->fabric, slice->server_rails[i - 1]);
	control_drain(control, slice->now_ns);
	for (unsigned i = 0; i < SLICE_DOWN_TURNS && !control_idle(control); i++)
		server_step(slice->server, slice->now_ns);
	assert_true(control_idle(control));
	server_close(slice);
}

static void close_deaf_ends(struct slice *slice)
{
	while (slice->deaf_count > 0) {
		struct stream *end = slice->deaf_ends[--slice->deaf_count];

		end->ops->close(end);
	}
}

void slice_stop(struct slice *slice)
{
	struct sim_counters counters;
	uint64_t until_ns;

	for (unsigned i = 0; i < SLICE_CLIENTS; i++)
		slice_leave(&slice->clients[i]);
	close_deaf_ends(slice);
	if (slice->server) {
		until_ns = slice->now_ns + SLICE_PATIENCE_NS;
		control_drain(server_control(slice->server), slice->now_ns);
		while (!control_idle(server_control(slice->server))) {
			assert_true(slice->now_ns < until_ns);
			slice_step(slice);
		}
		assert_int_equal(server_verify(slice->server, true), 0);
		server_close(slice);
	}
	sim_fabric_counters(slice->fabric, &counters);
	assert_int_equal(counters.misuses, 0);
	if (slice->beside)
		slice->beside->beside = NULL;
	else
		sim_fabric_destroy(&slice->fabric);
}

/* ---- time ------------------------------------------------------------------------------------------------------ */

static uint64_t next_event(const struct slice *slice)
{
	uint64_t limit_ns = slice->limit_ns ? slice->limit_ns : slice->now_ns + SLICE_JUMP_NS;
	uint64_t next = kvr_min_u64(limit_ns, sim_fabric_next_ns(slice->fabric));

	if (slice->server)
		next = kvr_min_u64(next, management_next_ns(server_management(slice->server)));
	for (unsigned i = 0; i < SLICE_CLIENTS; i++) {
		if (slice->clients[i].client)
			next = kvr_min_u64(next, client_next_ns(slice->clients[i].client));
	}
	return next;
}

static bool step_parts(struct slice *slice, uint64_t now_ns)
{
	bool busy = false;

	slice->now_ns = now_ns;
	if (slice->server)
		busy |= server_step(slice->server, now_ns);
	for (unsigned i = 0; i < SLICE_CLIENTS; i++) {
		if (slice->clients[i].client)
			busy |= client_step(slice->clients[i].client, now_ns);
	}
	return busy;
}

bool slice_step(struct slice *slice)
{
	bool busy;

	slice->now_ns += SLICE_TURN_NS;
	if (slice->every_turn)
		slice->every_turn(slice, slice->context);
	busy = sim_fabric_step(slice->fabric, slice->now_ns, 64) > 0;
	busy |= step_parts(slice, slice->now_ns);
	if (slice->beside)
		busy |= step_parts(slice->beside, slice->now_ns);
	if (!busy) {
		slice->now_ns = kvr_max_u64(slice->now_ns, next_event(slice));
		if (slice->beside)
			slice->beside->now_ns = slice->now_ns;
	}
	return busy;
}

void slice_run(struct slice *slice, unsigned turns)
{
	while (turns-- > 0)
		slice_step(slice);
}

void slice_pass(struct slice *slice, uint64_t ns)
{
	uint64_t until_ns = slice->now_ns + ns;

	slice->limit_ns = until_ns;
	while (slice->now_ns < until_ns)
		slice_step(slice);
	slice->limit_ns = 0;
	slice_run(slice, 20);
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

static void status_came(void *context, struct status_snapshot *snapshot)
{
	(void)snapshot;
	*(bool *)context = true;
}

void slice_status(struct slice *slice, struct status_snapshot *snapshot)
{
	bool came = false;

	assert_int_equal(control_request_status(server_control(slice->server), snapshot, status_came, &came), 0);
	for (unsigned i = 0; i < 1000 && !came; i++)
		slice_step(slice);
	assert_true(came);
}

uint64_t slice_locks(struct slice *slice)
{
	struct cache_stats stats;

	cache_get_stats(server_cache(slice->server), &stats);
	return stats.locks;
}

const struct management_counters *slice_counters(struct slice *slice)
{
	return management_counters(server_management(slice->server));
}

/* ---- clients --------------------------------------------------------------------------------------------------- */

static int slice_connect(void *context, struct stream **stream)
{
	struct slice_client *client = context;
	struct slice *slice = client->slice;
	struct stream *server_end;
	int error;

	slice->connects++;
	if (!slice->server && !slice->deaf)
		return -ECONNREFUSED;
	error = sim_stream_pair(slice->fabric, client->device, stream, &server_end);
	if (error)
		return error;
	server_end->peer.uid = 1000 + client->tenant;
	if (slice->deaf) {
		assert_true(slice->deaf_count < KVR_COUNT_OF(slice->deaf_ends));
		slice->deaf_ends[slice->deaf_count++] = server_end;
		return 0;
	}
	sim_stream_own(server_end, slice->server_device);
	if (control_accept(server_control(slice->server), server_end, slice->now_ns))
		return 0; /* told and closed: the client will read it */
	return 0;
}

int slice_try_client(struct slice *slice, unsigned index, uint32_t tenant)
{
	static const struct kvr_options fresh = KVR_OPTIONS_INIT;
	struct slice_client *client = &slice->clients[index];
	struct client_options create;
	struct verbs_open open;
	int error;

	assert_null(client->client);
	client->slice = slice;
	client->tenant = tenant;
	memset(&open, 0, sizeof(open));
	open.fabric = slice->fabric;
	open.subnet = slice->client_subnets[0];
	error = driver->open(&open, &client->device);
	if (error)
		return error;
	open_rails(slice, slice->client_subnets, false, client->rails);
	client->options = fresh;
	client->options.name = "slice";
	client->options.tenant = slice->wanted_tenant;
	memset(&create, 0, sizeof(create));
	create.user = &client->options;
	create.device = client->device;
	create.rail_count = slice->rails > 1 ? slice->rails - 1 : 0;
	memcpy(create.rails, client->rails, create.rail_count * sizeof(client->rails[0]));
	create.connect = slice_connect;
	create.context = client;
	create.seed = slice->seed * 100 + index + 1;
	create.plain = slice->plain;
	error = client_create(&create, &client->client);
	if (error) {
		driver->close(client->device);
		close_rails(client->rails);
	}
	return error;
}

void slice_create_client(struct slice *slice, unsigned index, uint32_t tenant)
{
	assert_int_equal(slice_try_client(slice, index, tenant), 0);
}

void slice_await_ready(struct slice_client *client)
{
	uint64_t until_ns = client->slice->now_ns + SLICE_PATIENCE_NS;

	while (!client_ready(client->client)) {
		assert_true(client->slice->now_ns < until_ns);
		slice_step(client->slice);
	}
}

void slice_model_default(struct slice_model *model)
{
	memset(model, 0, sizeof(*model));
	model->name = "model";
	model->dtype = "uint8";
	model->world_size = 1;
	model->readers = 1;
}

static void fill_layout(const struct slice_client *client, uint32_t plane_count, struct kvr_plane *planes,
	struct kvr_group *group, struct kvr_layout *layout)
{
	for (uint32_t p = 0; p < plane_count; p++) {
		planes[p].address = client->pool + (uint64_t)p * SLICE_BLOCKS * SLICE_BLOCK_BYTES;
		planes[p].block_stride = SLICE_BLOCK_BYTES;
		planes[p].block_bytes = SLICE_BLOCK_BYTES;
	}
	memset(group, 0, sizeof(*group));
	group->tokens_per_block = SLICE_BLOCK_TOKENS;
	group->window_tokens = KVR_WINDOW_FULL;
	group->block_count = SLICE_BLOCKS;
	group->plane_count = plane_count;
	group->planes = planes;
	memset(layout, 0, sizeof(*layout));
	layout->struct_bytes = sizeof(*layout);
	layout->group_count = 1;
	layout->groups = group;
}

int slice_submit_register(struct slice_client *client, const struct slice_model *as, kvr_ticket *ticket)
{
	struct kvr_plane planes[SLICE_PLANES];
	struct kvr_model model = KVR_MODEL_INIT;
	uint8_t fingerprint[32];
	struct kvr_layout layout;
	struct kvr_group group;

	if (!client->pool) {
		client->pool_bytes = (uint64_t)SLICE_PLANES * SLICE_BLOCKS * SLICE_BLOCK_BYTES;
		client->pool = aligned_alloc(4096, kvr_round_up(client->pool_bytes, 4096));
		assert_non_null(client->pool);
		memset(client->pool, 0xee, client->pool_bytes);
	}
	fill_layout(client, as->planes ? as->planes : SLICE_PLANES, planes, &group, &layout);
	assert_int_equal(kvr_layout_fingerprint(&layout, fingerprint), 0);
	model.name = as->name;
	model.dtype = as->dtype;
	model.engine = as->engine;
	model.world_size = as->world_size;
	model.rank = as->rank;
	model.readers = as->readers;
	model.reader = as->reader;
	return client_submit_register(
		client->client, &model, as->scheduler ? NULL : &layout, fingerprint, &client->registration, ticket);
}

int slice_register(struct slice_client *client, const struct slice_model *as)
{
	struct kvr_result result;
	kvr_ticket ticket;
	int error = slice_submit_register(client, as, &ticket);

	return error ? error : slice_wait(client->slice, client->client, ticket, &result);
}

void slice_join_as(struct slice *slice, unsigned index, uint32_t tenant, const struct slice_model *model)
{
	slice_create_client(slice, index, tenant);
	slice_await_ready(&slice->clients[index]);
	assert_int_equal(slice_register(&slice->clients[index], model), 0);
}

void slice_join(struct slice *slice, unsigned index, const char *name, uint32_t world_size, uint32_t rank)
{
	struct slice_model model;

	slice_model_default(&model);
	model.name = name;
	model.world_size = world_size;
	model.rank = rank;
	slice_join_as(slice, index, 0, &model);
}

static void client_gone(struct slice_client *client)
{
	client_destroy(&client->client);
	free(client->pool);
	client->pool = NULL;
	driver->close(client->device);
	client->device = NULL;
	close_rails(client->rails);
}

void slice_kill(struct slice_client *client)
{
	sim_fabric_kill_device(client->slice->fabric, client->device);
	for (unsigned i = 0; i < SLICE_RAILS_MAX - 1; i++) {
		if (client->rails[i])
			sim_fabric_kill_device(client->slice->fabric, client->rails[i]);
	}
	client_gone(client);
}

void slice_leave(struct slice_client *client)
{
	if (client->client)
		client_gone(client);
}
