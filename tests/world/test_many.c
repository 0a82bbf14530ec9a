/*
 * test_many.c - a thousand client processes of one server: they come together, lose it together, and are taken apart together. The same
 * objects as everywhere in this folder, with smaller pools, and a turn for a part of the clients at a time.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "base/log.h"
#include "client/client.h"
#include "mgmt/server.h"
#include "verbs/sim/fabric.h"

#define CLIENTS 1000u
#define SLICES 16u /* a client has every so manyth turn */
#define TURN_NS (5 * KVR_US)
#define POOL_BYTES 1024u
#define L1_BYTES (4 * L1_PAGE_BYTES)
#define STACK_BYTES (256u << 10) /* of the thread that does it all: nothing goes down a level for each client */
#define PATIENCE_NS (60 * KVR_SECOND)

struct many;

struct member {
	struct many *many;
	struct verbs_device *device;
	struct kvr_client *client;
	struct kvr_options options;
	uint8_t *pool;
	uint32_t registration;
	kvr_ticket ticket;
};

struct many {
	struct sim_fabric *fabric;
	struct verbs_device *device;
	struct server *server;
	struct server_options options;
	struct control_tenant tenant;
	struct l1_area area;
	uint64_t now_ns;
	uint32_t connects;
	struct member members[CLIENTS];
};

static struct many many;

/* ---- the world ------------------------------------------------------------------------------------------------ */

static void begin_server(void)
{
	struct verbs_open open;

	memset(&open, 0, sizeof(open));
	open.server = true;
	open.fabric = many.fabric;
	assert_int_equal(verbs_sim.open(&open, &many.device), 0);
	many.area.address = aligned_alloc(L1_PAGE_BYTES, L1_BYTES);
	assert_non_null(many.area.address);
	many.options.devices[0] = many.device;
	many.options.boot_id++;
	assert_int_equal(server_create(&many.options, &many.server), 0);
}

static void end_server(void)
{
	server_destroy(&many.server);
	verbs_sim.close(many.device);
	free(many.area.address);
	many.area.address = NULL;
}

static void begin(uint64_t seed)
{
	struct server_options *options = &many.options;

	log_set_level(LOG_ERROR);
	memset(&many, 0, sizeof(many));
	many.now_ns = KVR_SECOND;
	assert_int_equal(sim_fabric_create(seed, NULL, &many.fabric), 0);
	many.area.bytes = L1_BYTES;
	many.area.numa_node = -1;
	memcpy(many.tenant.name, "house", sizeof("house"));
	server_options_default(options);
	options->worker_count = 1;
	options->areas = &many.area;
	options->area_count = 1;
	options->chunk_tokens = 16;
	options->connections_max = CLIENTS;
	options->credits = 2;
	options->sessions_max = 2 * CLIENTS;
	options->chain_chunks_max = 1024;
	options->chunks_initial = 64;
	options->message_bytes_max = 16384;
	options->large_requests = options->large_buffers = 1;
	options->helper_threads = 0;
	options->boot_id = options->seed = seed;
	options->trust_tcp = true;
	options->tenants = &many.tenant;
	options->tenant_count = 1;
	begin_server();
}

static int connect_member(void *context, struct stream **stream)
{
	struct member *member = context;
	struct stream *server_end;
	int error;

	if (!many.server)
		return -ECONNREFUSED;
	many.connects++;
	error = sim_stream_pair(many.fabric, member->device, stream, &server_end);
	if (error)
		return error;
	sim_stream_own(server_end, many.device);
	(void)!control_accept(server_control(many.server), server_end, many.now_ns);
	return 0;
}

static void create_member(struct member *member)
{
	static const struct kvr_options fresh = KVR_OPTIONS_INIT;
	struct client_options options;
	struct verbs_open open;

	memset(&open, 0, sizeof(open));
	open.fabric = many.fabric;
	assert_int_equal(verbs_sim.open(&open, &member->device), 0);
	member->many = &many;
	member->options = fresh;
	member->options.in_flight = 2;
	member->pool = calloc(1, POOL_BYTES);
	assert_non_null(member->pool);
	memset(&options, 0, sizeof(options));
	options.user = &member->options;
	options.device = member->device;
	options.connect = connect_member;
	options.context = member;
	options.seed = (uint64_t)(member - many.members) + 1;
	assert_int_equal(client_create(&options, &member->client), 0);
}

static uint64_t next_event(void)
{
	uint64_t next = sim_fabric_next_ns(many.fabric);

	if (many.server)
		next = kvr_min_u64(next, management_next_ns(server_management(many.server)));
	for (uint32_t i = 0; i < CLIENTS; i++)
		if (many.members[i].client)
			next = kvr_min_u64(next, client_next_ns(many.members[i].client));
	return next;
}

/* A round of turns: everybody had one. When nothing happened in it, time goes on to the next event. */
static void play_round(void)
{
	bool busy = false;

	for (uint32_t slice = 0; slice < SLICES; slice++) {
		many.now_ns += TURN_NS;
		busy |= sim_fabric_step(many.fabric, many.now_ns, 1u << 20) > 0;
		if (many.server) {
			busy |= worker_step(server_worker(many.server, 0), many.now_ns);
			busy |= management_step(server_management(many.server), many.now_ns);
		}
		for (uint32_t i = slice; i < CLIENTS; i += SLICES)
			if (many.members[i].client)
				busy |= client_step(many.members[i].client, many.now_ns);
	}
	/* It looks at every client: once a round. */
	if (many.server)
		busy |= control_step(server_control(many.server), many.now_ns);
	if (!busy && next_event() != UINT64_MAX)
		many.now_ns = kvr_max_u64(many.now_ns, kvr_min_u64(next_event(), many.now_ns + 20 * KVR_MS));
}

static void wait_for_all(void)
{
	uint64_t until_ns = many.now_ns + PATIENCE_NS;

	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct member *member = &many.members[i];
		struct kvr_result result;
		int error;

		while ((error = client_take(member->client, member->ticket, &result)) == -EAGAIN) {
			assert_true(many.now_ns < until_ns);
			play_round();
		}
		assert_int_equal(error, 0);
		assert_int_equal(result.error, 0);
	}
}

static void register_all(void)
{
	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct member *member = &many.members[i];
		struct kvr_plane plane = { member->pool, 64, 64 };
		struct kvr_group group = { 16, KVR_WINDOW_FULL, POOL_BYTES / 64, 1, &plane };
		struct kvr_layout layout = { sizeof(layout), 1, &group };
		struct kvr_model model = KVR_MODEL_INIT;

		model.name = "model";
		model.dtype = "u8";
		assert_int_equal(client_submit_register(
					 member->client, &model, &layout, NULL, &member->registration, &member->ticket),
			0);
	}
	wait_for_all();
}

static bool all_ready(void)
{
	for (uint32_t i = 0; i < CLIENTS; i++)
		if (!client_ready(many.members[i].client))
			return false;
	return true;
}

static void await_all(void)
{
	uint64_t until_ns = many.now_ns + PATIENCE_NS;

	while (!all_ready()) {
		assert_true(many.now_ns < until_ns);
		play_round();
	}
}

static void ping_all(void)
{
	for (uint32_t i = 0; i < CLIENTS; i++)
		assert_int_equal(client_submit_ping(many.members[i].client, &many.members[i].ticket), 0);
	wait_for_all();
}

static void come_together(uint64_t seed)
{
	begin(seed);
	for (uint32_t i = 0; i < CLIENTS; i++)
		create_member(&many.members[i]);
	await_all();
	register_all();
	assert_int_equal(control_client_count(server_control(many.server)), CLIENTS);
}

static void drain_server(void)
{
	uint64_t until_ns = many.now_ns + PATIENCE_NS;

	control_drain(server_control(many.server), many.now_ns);
	while (!control_idle(server_control(many.server))) {
		assert_true(many.now_ns < until_ns);
		play_round();
	}
	assert_int_equal(server_verify(many.server, true), 0);
}

static void end(void)
{
	struct sim_counters counters;

	for (uint32_t i = 0; i < CLIENTS; i++) {
		client_destroy(&many.members[i].client);
		verbs_sim.close(many.members[i].device);
		free(many.members[i].pool);
	}
	if (many.server) {
		drain_server();
		end_server();
	}
	sim_fabric_counters(many.fabric, &counters);
	assert_int_equal(counters.misuses, 0);
	assert_int_equal(counters.cq_overflows, 0);
	sim_fabric_destroy(&many.fabric);
}

/* ---- the tests ------------------------------------------------------------------------------------------------ */

/* pitfalls C10: each with a request under way, and the server is told to go. */
static void go_with_the_server(void)
{
	uint32_t answered = 0;

	for (uint32_t i = 0; i < CLIENTS; i++)
		assert_int_equal(client_submit_ping(many.members[i].client, &many.members[i].ticket), 0);
	play_round();
	drain_server();
	assert_int_equal(control_client_count(server_control(many.server)), 0);
	end_server();
	for (unsigned i = 0; i < 200; i++)
		play_round();
	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct kvr_result result;

		answered += client_take(many.members[i].client, many.members[i].ticket, &result) == 0;
	}
	assert_int_equal(answered, CLIENTS);
}

/* pitfalls G06: they do not come all at once, nobody is turned away for good, and what was registered is so again. */
static void play_restart(void)
{
	uint64_t began_ns;

	come_together(1);
	ping_all();
	sim_fabric_kill_device(many.fabric, many.device);
	control_drain(server_control(many.server), many.now_ns);
	for (unsigned i = 0; i < 100000 && !control_idle(server_control(many.server)); i++)
		server_step(many.server, many.now_ns);
	assert_true(control_idle(server_control(many.server)));
	end_server();
	for (unsigned i = 0; i < 4; i++)
		play_round(); /* they notice it together */
	many.connects = 0;
	began_ns = many.now_ns;
	begin_server();
	await_all();
	assert_true(many.now_ns - began_ns < 30 * KVR_SECOND);
	assert_true(many.connects <= 3 * CLIENTS);
	ping_all();
	go_with_the_server();
	end();
}

static void *play(void *what)
{
	((void (*)(void))(uintptr_t)what)();
	return NULL;
}

/* cmocka's jump out of a failed assertion stays in the thread that runs the test, so a failure ends the program: it is seen all the same. */
static void on_a_small_stack(void (*what)(void))
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	what(); /* their frames are larger */
	(void)play;
#else
	pthread_attr_t attributes;
	pthread_t thread;

	assert_int_equal(pthread_attr_init(&attributes), 0);
	assert_int_equal(pthread_attr_setstacksize(&attributes, STACK_BYTES), 0);
	assert_int_equal(pthread_create(&thread, &attributes, play, (void *)(uintptr_t)what), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	pthread_attr_destroy(&attributes);
#endif
}

static void a_thousand_clients_come_back_after_a_restart_and_go_with_the_server(void **state)
{
	(void)state;
	on_a_small_stack(play_restart);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thousand_clients_come_back_after_a_restart_and_go_with_the_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
