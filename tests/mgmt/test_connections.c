/* The loss of connections, silence, and registrations that come and go. */
#include "mgmt/harness.h"

#include <stdio.h>
#include <string.h>

struct scene {
	struct world world;
	struct client *scheduler_client, *worker_client;
	struct handle *scheduler, *worker;
	struct chain chain;
};

static void scene_init_with(struct scene *scene, const struct world_options *options)
{
	world_init(&scene->world, options);
	scene->scheduler_client = client_join(&scene->world, 1);
	scene->worker_client = client_join(&scene->world, 1);
	scene->scheduler = handle_scheduler(scene->scheduler_client);
	scene->worker = handle_worker(scene->worker_client);
	scene->chain = chain_named(21);
}

static void scene_init(struct scene *scene)
{
	scene_init_with(scene, &(struct world_options){ .slots = 16 });
}

static void a_lost_scheduler_takes_its_sessions_with_it(void **state)
{
	struct scene scene;
	struct handle *other;

	(void)state;
	scene_init(&scene);
	other = handle_scheduler(client_join(&scene.world, 1));
	assert_int_equal(do_store(scene.worker, "w", &scene.chain, 0, 4, STATUS_OK), 4);
	assert_int_equal(do_lookup(scene.scheduler, "a", &scene.chain, 4, STATUS_OK), 4);
	assert_int_equal(do_lookup(scene.scheduler, "b", &scene.chain, 4, STATUS_OK), 4);
	assert_int_equal(do_lookup(other, "c", &scene.chain, 4, STATUS_OK), 4);
	/* The last LOOKUP decides whose it is. */
	assert_int_equal(do_lookup(other, "b", &scene.chain, 4, STATUS_OK), 4);
	assert_int_equal(world_locks(&scene.world), 12);
	client_leave(scene.scheduler_client);
	world_run(&scene.world);
	assert_true(scene.scheduler_client->detached);
	assert_true(scene.scheduler->returned);
	assert_int_equal(world_locks(&scene.world), 8);
	assert_int_equal(COUNTER(&scene.world, sessions_lost_total), 1);
	do_free(other, "a", 0, 4, WIRE_ALL_RANKS, STATUS_UNKNOWN_SESSION);
	assert_int_equal(do_retrieve(scene.worker, "b", &scene.chain, 0, 4, STATUS_OK), 4);
	world_fini(&scene.world);
}

static void a_lost_scheduler_leaves_what_a_retrieve_has_taken(void **state)
{
	struct scene scene;
	struct ask *ask;

	(void)state;
	scene_init(&scene);
	assert_int_equal(do_store(scene.worker, "w", &scene.chain, 0, 4, STATUS_OK), 4);
	assert_int_equal(do_lookup(scene.scheduler, "a", &scene.chain, 4, STATUS_OK), 4);
	scene.world.hold = true;
	ask = ask_transfer(scene.worker, WIRE_RETRIEVE, "a", &scene.chain, 0, 3);
	world_run(&scene.world);
	client_fail(scene.scheduler_client);
	world_run(&scene.world);
	assert_true(scene.scheduler_client->lost && scene.scheduler_client->detached);
	assert_int_equal(world_locks(&scene.world), 0);
	assert_int_equal(world_pins(&scene.world), 3);
	ask_finish(ask, CHUNK_DELIVERED);
	world_run(&scene.world);
	assert_int_equal(ask_expect(ask, STATUS_OK), 3);
	world_fini(&scene.world);
}

static const struct model_of two_ranks = { .name = "tp2", .dtype = "fp8", .tenant = 1, .world_size = 2, .readers = 1 };

/* pitfalls A05, B09 */
static void a_lost_worker_loses_its_share_unless_it_is_back_already(void **state)
{
	struct world world;
	struct client *client[2];
	struct handle *scheduler, *rank[2], *again;
	struct chain chain = chain_named(4);
	char name[16];

	(void)state;
	world_init(&world, &(struct world_options){ .slots = 16 });
	scheduler = handle_make(client_join(&world, 1), &two_ranks, 0, 0, 0);
	for (uint32_t r = 0; r < 2; r++) {
		client[r] = client_join(&world, 1);
		rank[r] = handle_make(client[r], &two_ranks, r, 0, OBJECT_BYTES);
		assert_int_equal(do_store(rank[r], "w", &chain, 0, 4, STATUS_OK), 4);
	}
	for (unsigned n = 0; n < 10; n++) {
		snprintf(name, sizeof(name), "s%u", n);
		assert_int_equal(do_lookup(scheduler, name, &chain, 4, STATUS_OK), 4);
	}
	assert_int_equal(world_locks(&world), 80);
	/* The next incarnation registers before the loss of the last is noticed: the locks are for it. */
	again = handle_make(client_join(&world, 1), &two_ranks, 1, 0, OBJECT_BYTES);
	assert_int_equal(again->registration.reply_status, STATUS_OK);
	client_leave(client[1]);
	world_run(&world);
	assert_true(rank[1]->returned);
	assert_int_equal(world_locks(&world), 80);
	assert_int_equal(do_retrieve(again, "s3", &chain, 0, 4, STATUS_OK), 4);
	assert_int_equal(world_locks(&world), 76);
	client_leave(client[0]);
	world_run(&world);
	assert_int_equal(world_locks(&world), 36);
	world_verify(&world);
	/* Its chunks are still there for the next one. */
	rank[0] = handle_make(client_join(&world, 1), &two_ranks, 0, 0, OBJECT_BYTES);
	assert_int_equal(do_retrieve(rank[0], "s5", &chain, 0, 4, STATUS_OK), 4);
	handle_unregister(again);
	world_run(&world);
	assert_true(again->returned);
	assert_int_equal(world_locks(&world), 0);
	world_fini(&world);
}

static void a_registration_is_given_back_after_its_last_transfer(void **state)
{
	struct scene scene;
	struct ask *store, *late;

	(void)state;
	scene_init(&scene);
	scene.world.hold = true;
	store = ask_transfer(scene.worker, WIRE_STORE, "a", &scene.chain, 0, 4);
	world_run(&scene.world);
	handle_unregister(scene.worker);
	late = ask_transfer(scene.worker, WIRE_STORE, "b", &scene.chain, 0, 4);
	world_run(&scene.world);
	assert_false(scene.worker->returned);
	ask_expect(late, STATUS_NOT_REGISTERED);
	ask_finish(store, CHUNK_STORED);
	world_run(&scene.world);
	assert_true(scene.worker->returned);
	assert_int_equal(ask_expect(store, STATUS_OK), 4);
	/* Unregistered and lost at once: given back once. */
	scene.worker = handle_worker(scene.worker_client);
	handle_unregister(scene.worker);
	client_fail(scene.worker_client);
	world_run(&scene.world);
	assert_true(scene.worker->returned && scene.worker_client->detached);
	world_fini(&scene.world);
}

static void a_lost_connection_waits_for_its_transfers(void **state)
{
	struct scene scene;
	struct ask *store, *cancel, *after;

	(void)state;
	scene_init(&scene);
	scene.world.hold = true;
	scene.world.hold_closed = true;
	store = ask_transfer(scene.worker, WIRE_STORE, "a", &scene.chain, 0, 4);
	world_run(&scene.world);
	cancel = ask_cancel(scene.worker, store);
	world_run(&scene.world);
	client_leave(scene.worker_client);
	after = ask_lookup(scene.worker, "b", &scene.chain, 4);
	world_run(&scene.world);
	ask_expect(after, STATUS_CONNECTION_LOST);
	assert_false(scene.worker_client->detached || scene.worker->returned);
	assert_int_equal(world_staged(&scene.world), 4);
	world_verify(&scene.world);
	ask_finish(store, CHUNK_FAILED);
	world_run(&scene.world);
	assert_true(scene.worker_client->detached && scene.worker->returned);
	assert_int_equal(world_staged(&scene.world), 0);
	ask_free(store);
	ask_free(cancel);
	world_fini(&scene.world);
}

/* pitfalls B10 */
static void connections_that_come_and_crash_leave_nothing(void **state)
{
	struct scene scene;

	(void)state;
	scene_init(&scene);
	assert_int_equal(do_store(scene.worker, "w", &scene.chain, 0, 4, STATUS_OK), 4);
	do_end(scene.worker, "w");
	for (unsigned n = 0; n < 2000; n++) {
		struct client *client = client_join(&scene.world, 1);
		struct handle *handle = handle_worker(client);
		struct ask *ask;

		assert_int_equal(do_lookup(handle, "mine", &scene.chain, 4, STATUS_OK), 4);
		scene.world.hold = true;
		ask = ask_transfer(handle, n % 2 ? WIRE_STORE : WIRE_RETRIEVE, "mine", &scene.chain, 2, 4);
		world_turn(&scene.world);
		if (n % 3)
			client_fail(client);
		else
			client_leave(client);
		world_run(&scene.world);
		assert_true(client->detached);
		ask_free(ask);
		client_free(client);
	}
	assert_int_equal(world_locks(&scene.world), 0);
	assert_int_equal(world_sessions(&scene.world), 0);
	world_verify(&scene.world);
	world_fini(&scene.world);
}

/* pitfalls B02, B04 */
static void the_reaper_takes_the_silent_and_leaves_the_living(void **state)
{
	struct scene scene;
	struct client *quiet;

	(void)state;
	scene_init_with(&scene, &(struct world_options){ .slots = 16, .silence_ns = 10 * KVR_SECOND });
	quiet = client_join(&scene.world, 1);
	handle_worker(quiet);
	for (unsigned n = 0; n < 10; n++) {
		/* A sign of life at the last moment before each look of the reaper. */
		scene.scheduler_client->connection.last_seen_ns = scene.world.now;
		scene.worker_client->connection.last_seen_ns = scene.world.now;
		scene.world.now += 10 * KVR_SECOND - KVR_MS;
		world_run(&scene.world);
	}
	assert_true(quiet->lost && quiet->detached);
	assert_false(scene.scheduler_client->lost || scene.worker_client->lost);
	assert_int_equal(COUNTER(&scene.world, reaped_connections_total), 1);
	world_fini(&scene.world);
}

/* A server that was stopped, or frozen with its machine: what clients said meanwhile has not been read yet. */
static void a_server_that_did_not_run_looks_again_before_it_reaps(void **state)
{
	struct scene scene;
	struct client *quiet;

	(void)state;
	scene_init_with(&scene, &(struct world_options){ .slots = 16, .silence_ns = 10 * KVR_SECOND });
	quiet = client_join(&scene.world, 1);
	handle_worker(quiet);
	scene.world.now += 3600 * KVR_SECOND;
	world_run(&scene.world);
	assert_int_equal(COUNTER(&scene.world, reaped_connections_total), 0);
	scene.scheduler_client->connection.last_seen_ns = scene.world.now;
	scene.worker_client->connection.last_seen_ns = scene.world.now;
	world_pass(&scene.world, 6 * KVR_SECOND);
	assert_true(quiet->lost && quiet->detached);
	assert_false(scene.scheduler_client->lost || scene.worker_client->lost);
	world_pass(&scene.world, 5 * KVR_SECOND);
	assert_true(scene.scheduler_client->lost && scene.worker_client->lost);
	assert_int_equal(COUNTER(&scene.world, reaped_connections_total), 3);
	world_fini(&scene.world);
}

static void who_waits_for_the_server_is_not_silent(void **state)
{
	struct scene scene;
	struct ask *ask;

	(void)state;
	scene_init_with(&scene, &(struct world_options){ .slots = 16, .silence_ns = 10 * KVR_SECOND });
	scene.world.hold = true;
	ask = ask_transfer(scene.worker, WIRE_STORE, "a", &scene.chain, 0, 4);
	for (unsigned n = 0; n < 50; n++) {
		scene.world.now += KVR_SECOND;
		world_run(&scene.world);
	}
	assert_false(scene.worker_client->lost);
	ask_finish(ask, CHUNK_STORED);
	world_run(&scene.world);
	ask_expect(ask, STATUS_OK);
	world_fini(&scene.world);
}

static void who_never_registers_is_reaped(void **state)
{
	struct scene scene;
	struct client *bare;

	(void)state;
	scene_init_with(&scene, &(struct world_options){ .slots = 16, .registration_grace_ns = 30 * KVR_SECOND });
	bare = client_join(&scene.world, 1);
	world_pass(&scene.world, 20 * KVR_SECOND);
	assert_false(bare->lost);
	/* The grace begins anew when the last registration goes. */
	handle_unregister(scene.worker);
	world_pass(&scene.world, 20 * KVR_SECOND);
	assert_true(bare->detached);
	assert_false(scene.worker_client->lost);
	world_pass(&scene.world, 20 * KVR_SECOND);
	assert_true(scene.worker_client->detached);
	assert_false(scene.scheduler_client->lost);
	world_fini(&scene.world);
}

/* pitfalls G01: an unknown registration is told so, and registering again is all it takes */
static void an_unknown_registration_is_told_to_register_again(void **state)
{
	struct scene scene;
	struct ask *ask;

	(void)state;
	scene_init(&scene);
	assert_int_equal(do_store(scene.worker, "a", &scene.chain, 0, 4, STATUS_OK), 4);
	ask = ask_prepare_transfer(scene.worker, WIRE_RETRIEVE, "a", &scene.chain, 0, 4);
	ask->request.message.transfer.registration += 1000;
	ask_send(ask);
	world_run(&scene.world);
	assert_non_null(strstr(ask->request.reply.text, "register again"));
	ask_expect(ask, STATUS_NOT_REGISTERED);
	/* One connection's number is nobody else's. */
	ask = ask_new(scene.scheduler, WIRE_LOOKUP, "a");
	ask->request.message.lookup.registration = scene.worker->registration.number;
	ask_send(ask);
	world_run(&scene.world);
	ask_expect(ask, STATUS_NOT_REGISTERED);
	assert_int_equal(COUNTER(&scene.world, unknown_registrations_total), 2);
	/* The same rank once more on one connection has a number of its own. */
	assert_int_not_equal(
		handle_worker(scene.worker_client)->registration.number, scene.worker->registration.number);
	world_fini(&scene.world);
}

static void push_forget(struct world *world, struct client *client)
{
	struct ring_message message = { .kind = MANAGEMENT_FORGET,
		.word = { (uint64_t)(uintptr_t)&client->connection, 5 } };

	assert_true(ring_push(management_inbox(world->management), &message));
}

static void a_region_is_forgotten_once_also_when_its_connection_goes(void **state)
{
	struct scene scene;

	(void)state;
	scene_init(&scene);
	push_forget(&scene.world, scene.worker_client);
	world_run(&scene.world);
	assert_int_equal(scene.worker_client->forgotten, 1);
	push_forget(&scene.world, scene.worker_client);
	client_leave(scene.worker_client);
	world_run(&scene.world);
	assert_int_equal(scene.worker_client->forgotten, 2);
	client_leave(scene.scheduler_client);
	push_forget(&scene.world, scene.scheduler_client);
	world_run(&scene.world);
	assert_int_equal(scene.scheduler_client->forgotten, 1);
	assert_true(scene.scheduler_client->detached);
	world_fini(&scene.world);
}

static void a_connection_too_many_is_turned_away(void **state)
{
	struct world world;
	struct client *client;
	unsigned lines;

	(void)state;
	world_init(&world, &(struct world_options){ .slots = 16 });
	for (unsigned n = 0; n < 32; n++)
		client_join(&world, 1);
	log_expect_begin(&lines);
	client = client_join(&world, 1);
	log_expect_end();
	assert_int_equal(lines, 1);
	world_run(&world);
	assert_true(client->lost && client->detached && !client->opened);
	client_free(client);
	world_fini(&world);
}

static void a_session_that_nobody_uses_expires(void **state)
{
	struct scene scene;

	(void)state;
	scene_init(&scene);
	assert_int_equal(do_store(scene.worker, "a", &scene.chain, 0, 4, STATUS_OK), 4);
	assert_int_equal(do_store(scene.worker, "b", &scene.chain, 0, 4, STATUS_OK), 4);
	world_pass(&scene.world, 400 * KVR_SECOND);
	assert_int_equal(do_lookup(scene.scheduler, "b", NULL, 0, STATUS_OK), 4);
	world_pass(&scene.world, 250 * KVR_SECOND);
	assert_int_equal(world_sessions(&scene.world), 1);
	assert_int_equal(COUNTER(&scene.world, sessions_expired_total), 1);
	do_lookup(scene.scheduler, "a", NULL, 0, STATUS_UNKNOWN_SESSION);
	world_fini(&scene.world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lost_scheduler_takes_its_sessions_with_it),
		cmocka_unit_test(a_lost_scheduler_leaves_what_a_retrieve_has_taken),
		cmocka_unit_test(a_lost_worker_loses_its_share_unless_it_is_back_already),
		cmocka_unit_test(a_registration_is_given_back_after_its_last_transfer),
		cmocka_unit_test(a_lost_connection_waits_for_its_transfers),
		cmocka_unit_test(connections_that_come_and_crash_leave_nothing),
		cmocka_unit_test(the_reaper_takes_the_silent_and_leaves_the_living),
		cmocka_unit_test(a_server_that_did_not_run_looks_again_before_it_reaps),
		cmocka_unit_test(who_waits_for_the_server_is_not_silent),
		cmocka_unit_test(who_never_registers_is_reaped),
		cmocka_unit_test(an_unknown_registration_is_told_to_register_again),
		cmocka_unit_test(a_region_is_forgotten_once_also_when_its_connection_goes),
		cmocka_unit_test(a_connection_too_many_is_turned_away),
		cmocka_unit_test(a_session_that_nobody_uses_expires),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
