/* Models and their identity, refusals at registration, CLEAR, DRAIN, STATUS, and the chunk table's memory. */
#include "mgmt/harness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

static struct handle *worker_of(struct world *world, const struct model_of *model)
{
	struct handle *handle = handle_make(client_join(world, model->tenant), model, 0, 0, OBJECT_BYTES);

	assert_int_equal(handle->registration.reply_status, STATUS_OK);
	return handle;
}

/* pitfalls E05, E06, E08, F01 */
static void nothing_of_one_identity_is_seen_under_another(void **state)
{
	const struct model_of models[] = {
		{ "m", "bfloat16", 1, 1, 1 },
		{ "m+a", "bfloat16", 1, 1, 1 },
		{ "m+b", "bfloat16", 1, 1, 1 },
		{ "m+a@v2", "bfloat16", 1, 1, 1 },
		{ "m", "fp8", 1, 1, 1 },
		{ "m", "bfloat16", 2, 1, 1 },
	};
	struct handle *handle[KVR_COUNT_OF(models)];
	struct world world;
	struct chain chain = chain_named(3);
	struct ask *ask;

	(void)state;
	world_init(&world, &(struct world_options){ .slots = 64 });
	for (unsigned n = 0; n < KVR_COUNT_OF(models); n++)
		handle[n] = worker_of(&world, &models[n]);
	for (unsigned n = 0; n < KVR_COUNT_OF(models); n++) {
		assert_int_equal(do_lookup(handle[n], "s", &chain, 4, STATUS_OK), 0);
		assert_int_equal(do_retrieve(handle[n], "s", &chain, 0, 4, STATUS_PARTIAL), 0);
		assert_int_equal(do_store(handle[n], "s", &chain, 0, 4, STATUS_OK), 4);
		assert_int_equal(world_chunks(&world), 4 * (n + 1));
		assert_int_equal(do_lookup(handle[n], "s", &chain, 4, STATUS_OK), 4);
		assert_int_equal(do_retrieve(handle[n], "s", &chain, 0, 4, STATUS_OK), 4);
	}
	/* The same under another salt is another thing, too; no salt is a namespace of its own. */
	ask = ask_new(handle[0], WIRE_LOOKUP, "s");
	ask_with_salt(ask, 9);
	ask_with_chain(ask, &chain, 0, 4);
	ask_send(ask);
	world_run(&world);
	assert_int_equal(ask_expect(ask, STATUS_OK), 0);
	/* CLEAR of one of them. */
	handle[3]->client->connection.may_clear = true;
	do_end(handle[3], "s");
	ask = ask_new(handle[3], WIRE_CLEAR, "");
	ask_send(ask);
	world_run(&world);
	assert_int_equal(ask_expect(ask, STATUS_OK), 4);
	for (unsigned n = 0; n < KVR_COUNT_OF(models); n++)
		assert_int_equal(do_lookup(handle[n], "t", &chain, 4, STATUS_OK), n == 3 ? 0 : 4);
	world_fini(&world);
}

static void registrations_that_cannot_be_served_are_refused_by_name(void **state)
{
	const struct model_of wide = { "wide", "fp8", 1, 16, 8 }, odd = { "m", "bfloat16", 1, 1, 2 };
	const struct model_of narrow = { "narrow", "fp8", 1, 2, 1 }, wrapping = { "wrap", "fp8", 1, 64, 1u << 26 };
	struct world world;
	struct client *client;
	struct handle *handle;

	(void)state;
	world_init(&world, &(struct world_options){ .slots = 16 });
	client = client_join(&world, 1);
	handle_worker(client);
	handle = handle_make(client, &wide, 0, 0, OBJECT_BYTES);
	assert_int_equal(handle->registration.reply_status, STATUS_UNSUPPORTED);
	assert_non_null(strstr(handle->registration.reply_text, "at most 64"));
	handle = handle_make(client, &wrapping, 0, 0, OBJECT_BYTES);
	assert_int_equal(handle->registration.reply_status, STATUS_UNSUPPORTED);
	handle = handle_make(client, &plain_model, 0, 0, OBJECT_BYTES / 2);
	assert_int_equal(handle->registration.reply_status, STATUS_LAYOUT_MISMATCH);
	handle = handle_make(client, &odd, 0, 0, OBJECT_BYTES);
	assert_int_equal(handle->registration.reply_status, STATUS_LAYOUT_MISMATCH);
	handle = handle_make(client, &narrow, 2, 0, OBJECT_BYTES);
	assert_int_equal(handle->registration.reply_status, STATUS_MALFORMED);
	handle = handle_make(client, &narrow, 0, 1, OBJECT_BYTES);
	assert_int_equal(handle->registration.reply_status, STATUS_MALFORMED);
	handle = handle_make(client, &narrow, 0, 0, 17 * OBJECT_BYTES);
	assert_int_equal(handle->registration.reply_status, STATUS_TOO_BIG);
	/* Ranks may differ in size. */
	handle = handle_make(client, &narrow, 0, 0, OBJECT_BYTES);
	assert_int_equal(handle->registration.reply_status, STATUS_OK);
	handle = handle_make(client, &narrow, 1, 0, OBJECT_BYTES / 2);
	assert_int_equal(handle->registration.reply_status, STATUS_OK);
	while (handle->registration.reply_status == STATUS_OK)
		handle = handle_make(client, &plain_model, 0, 0, 0);
	assert_int_equal(handle->registration.reply_status, STATUS_BUSY);
	world_verify(&world);
	world_fini(&world);
}

static void several_groups_are_refused_by_name(void **state)
{
	struct world world;
	struct client *client;
	struct handle *handle;

	(void)state;
	world_init(&world, &(struct world_options){ .slots = 16 });
	client = client_join(&world, 1);
	handle = handle_worker(client);
	handle_unregister(handle);
	world_run(&world);
	handle->registration.layout->group_count = 2;
	handle->returned = false;
	assert_true(ring_push(management_inbox(world.management),
		&(struct ring_message){
			.kind = MANAGEMENT_REGISTER, .word = { (uint64_t)(uintptr_t)&handle->registration } }));
	world_run(&world);
	assert_int_equal(handle->registration.reply_status, STATUS_UNSUPPORTED);
	assert_non_null(strstr(handle->registration.reply_text, "2 groups"));
	world_fini(&world);
}

static void model_numbers_are_used_again_only_when_nothing_of_them_is_left(void **state)
{
	struct world world;
	struct chain chain = chain_named(3);
	struct client *client;
	struct handle *handle;
	char name[2] = "a";

	(void)state;
	world_init(&world, &(struct world_options){ .slots = 16 });
	client = client_join(&world, 1);
	for (unsigned n = 0; n < 3000; n++) {
		struct model_of model = { name, "fp8", 1 + n % (WORLD_TENANTS - 1), 1, 1 };

		handle = handle_make(client, &model, 0, 0, OBJECT_BYTES);
		assert_int_equal(handle->registration.reply_status, STATUS_OK);
		assert_int_equal(do_lookup(handle, "s", &chain, 4, STATUS_OK), 0);
		assert_int_equal(do_store(handle, "s", &chain, 0, 4, STATUS_OK), 4);
		do_end(handle, "s");
		handle_unregister(handle);
		world_run(&world);
		assert_true(handle->returned);
	}
	world_fini(&world);
}

static struct ask *clear_everything(struct handle *handle)
{
	struct ask *ask = ask_new(handle, WIRE_CLEAR, "");

	ask->request.message.clear.registration = UINT32_MAX;
	ask_send(ask);
	world_run(handle->client->world);
	return ask;
}

static void clear_needs_permission_and_keeps_what_is_held(void **state)
{
	const struct model_of foreign = { "m", "bfloat16", 2, 1, 1 };
	struct world world;
	struct chain chain = chain_named(3);
	struct handle *handle, *other;
	struct clear_job job = { .control = NULL };
	struct ask *ask;

	(void)state;
	world_init(&world, &(struct world_options){ .slots = 64 });
	handle = handle_worker(client_join(&world, 1));
	other = worker_of(&world, &foreign);
	assert_int_equal(do_store(handle, "s", &chain, 0, 8, STATUS_OK), 8);
	assert_int_equal(do_store(other, "s", &chain, 0, 8, STATUS_OK), 8);
	assert_int_equal(do_lookup(handle, "s", NULL, 3, STATUS_OK), 3);
	ask_expect(clear_everything(handle), STATUS_NOT_ALLOWED);
	handle->client->connection.may_clear = true;
	ask = clear_everything(handle);
	assert_int_equal(ask->request.reply.second, 3);
	assert_int_equal(ask_expect(ask, STATUS_OK), 5);
	assert_int_equal(world_chunks(&world), 3 + 8);
	/* The operator's CLEAR is of all tenants. */
	assert_true(ring_push(management_inbox(world.management),
		&(struct ring_message){ .kind = MANAGEMENT_CLEAR, .word = { (uint64_t)(uintptr_t)&job } }));
	world_run(&world);
	assert_int_equal(world.clear_done, 1);
	assert_int_equal(job.dropped, 8);
	assert_int_equal(job.kept, 3);
	assert_int_equal(do_retrieve(handle, "s", &chain, 0, 3, STATUS_OK), 3);
	world_fini(&world);
}

static void a_draining_server_ends_what_it_has_and_takes_nothing_new(void **state)
{
	struct world world;
	struct chain chain = chain_named(3);
	struct handle *handle;
	struct ask *store;

	(void)state;
	world_init(&world, &(struct world_options){ .slots = 16 });
	handle = handle_worker(client_join(&world, 1));
	world.hold = true;
	store = ask_transfer(handle, WIRE_STORE, "s", &chain, 0, 4);
	world_run(&world);
	assert_true(ring_push(management_inbox(world.management), &(struct ring_message){ .kind = MANAGEMENT_DRAIN }));
	world_run(&world);
	assert_int_equal(world.drained, 0);
	do_lookup(handle, "s", &chain, 4, STATUS_SHUTTING_DOWN);
	do_retrieve(handle, "s", &chain, 0, 4, STATUS_SHUTTING_DOWN);
	ask_finish(store, CHUNK_STORED);
	world_run(&world);
	assert_int_equal(ask_expect(store, STATUS_OK), 4);
	assert_int_equal(world.drained, 1);
	do_end(handle, "s");
	world_run(&world);
	assert_int_equal(world.drained, 1);
	world_fini(&world);
}

static void status_tells_models_and_bytes_per_token(void **state)
{
	struct world world;
	struct chain chain = chain_named(3);
	struct handle *handle;
	struct status_snapshot *status = calloc(1, sizeof(*status));

	(void)state;
	assert_non_null(status);
	world_init(&world, &(struct world_options){ .slots = 16 });
	handle = handle_worker(client_join(&world, 1));
	handle_scheduler(handle->client);
	assert_int_equal(do_store(handle, "s", &chain, 0, 4, STATUS_OK), 4);
	assert_int_equal(do_lookup(handle, "s", NULL, 3, STATUS_OK), 3);
	assert_true(ring_push(management_inbox(world.management),
		&(struct ring_message){ .kind = MANAGEMENT_STATUS, .word = { (uint64_t)(uintptr_t)status } }));
	world_run(&world);
	world.status_done--;
	assert_int_equal(status->connections, 1);
	assert_int_equal(status->registrations, 2);
	assert_int_equal(status->models, 1);
	assert_int_equal(status->sessions, 1);
	assert_int_equal(status->locks, 3);
	assert_int_equal(status->model_count, 1);
	/* pitfalls O09 */
	assert_int_equal(status->model[0].token_bytes, OBJECT_BYTES / CHUNK_TOKENS);
	assert_int_equal(status->model[0].chunks, 4);
	assert_int_equal(status->model[0].registrations, 2);
	assert_string_equal(status->model[0].name, "m");
	assert_int_equal(status->l1.used_bytes, 4 * OBJECT_BYTES);
	free(status);
	world_fini(&world);
}

static void unknown_types_and_unknown_requests_are_errors(void **state)
{
	struct world world;
	struct handle *handle;
	struct ask *ask;

	(void)state;
	world_init(&world, &(struct world_options){ .slots = 16 });
	handle = handle_worker(client_join(&world, 1));
	ask = ask_new(handle, WIRE_HELLO, "");
	ask_send(ask);
	world_run(&world);
	ask_expect(ask, STATUS_UNKNOWN_TYPE);
	ask = ask_new(handle, WIRE_CANCEL, "");
	ask->request.message.cancel.target = 123456789;
	ask_send(ask);
	world_run(&world);
	ask_expect(ask, STATUS_UNKNOWN_REQUEST);
	/* Its own id, too. */
	ask = ask_new(handle, WIRE_CANCEL, "");
	ask->request.message.cancel.target = ask->request.header.request_id;
	ask_send(ask);
	world_run(&world);
	ask_expect(ask, STATUS_UNKNOWN_REQUEST);
	world_fini(&world);
}

static void a_lookup_before_any_worker_registered_finds_nothing(void **state)
{
	struct world world;
	struct chain chain = chain_named(3);
	struct handle *scheduler, *worker;

	(void)state;
	world_init(&world, &(struct world_options){ .slots = 16 });
	scheduler = handle_scheduler(client_join(&world, 1));
	assert_int_equal(do_lookup(scheduler, "s", &chain, 4, STATUS_OK), 0);
	worker = handle_worker(client_join(&world, 1));
	assert_int_equal(do_store(worker, "s", &chain, 0, 4, STATUS_OK), 4);
	assert_int_equal(do_lookup(scheduler, "s", NULL, 0, STATUS_OK), 4);
	handle_unregister(worker);
	world_run(&world);
	assert_int_equal(do_lookup(scheduler, "s", NULL, 0, STATUS_OK), 0);
	assert_int_equal(world_locks(&world), 0);
	world_fini(&world);
}

/* Each resource that creation takes is missing once. */
static void a_creation_that_fails_takes_nothing(void **state)
{
	struct l1_area area = { .numa_node = -1, .bytes = 4 * OBJECT_BYTES };
	struct cache_options cache_options = {
		.spaces_max = 4, .chunks_initial = 64, .high_permille = 1000, .low_permille = 1000
	};
	struct management_options options = { .worker_count = 1,
		.area_count = 1,
		.connections_max = 4,
		.sessions_max = 4,
		.chain_chunks_max = 256,
		.large_requests = 2,
		.chunk_tokens = CHUNK_TOKENS };
	struct mailbox *mailbox = NULL;
	struct management *management;
	uint32_t lkey = 1;
	unsigned lines;
	uint64_t nth = 1;
	int error;

	(void)state;
	area.address = aligned_alloc(4096, area.bytes);
	assert_non_null(area.address);
	assert_int_equal(l1_create(&area, 1, &options.l1), 0);
	cache_options.l1 = options.l1;
	assert_int_equal(cache_create(&cache_options, &options.cache), 0);
	options.area_lkeys = &lkey;
	assert_int_equal(management_create(&options, &management), -EINVAL);
	options.mailboxes = &mailbox;
	log_expect_begin(&lines);
	do {
		fault_arm(nth++);
		error = management_create(&options, &management);
		if (error) {
			assert_int_equal(error, -ENOMEM);
			assert_null(management);
		}
	} while (error);
	log_expect_end();
	assert_true(nth > 10);
	fault_arm(0);
	management_destroy(&management);
	assert_null(management);
	management_destroy(&management);
	cache_destroy(&options.cache);
	l1_destroy(&options.l1);
	free(area.address);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_of_one_identity_is_seen_under_another),
		cmocka_unit_test(registrations_that_cannot_be_served_are_refused_by_name),
		cmocka_unit_test(several_groups_are_refused_by_name),
		cmocka_unit_test(model_numbers_are_used_again_only_when_nothing_of_them_is_left),
		cmocka_unit_test(clear_needs_permission_and_keeps_what_is_held),
		cmocka_unit_test(a_draining_server_ends_what_it_has_and_takes_nothing_new),
		cmocka_unit_test(status_tells_models_and_bytes_per_token),
		cmocka_unit_test(unknown_types_and_unknown_requests_are_errors),
		cmocka_unit_test(a_lookup_before_any_worker_registered_finds_nothing),
		cmocka_unit_test(a_creation_that_fails_takes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
