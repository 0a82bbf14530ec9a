/* test_registrations.c - memory and registrations, before and after a reconnect, against a server made by hand. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "client/client_private.h"
#include "client/fake.h"

static unsigned regions_used(const struct fake *fake)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++)
		count += fake->client->regions[i].mr != NULL;
	return count;
}

static unsigned registrations_used(const struct fake *fake)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < CLIENT_REGISTRATIONS_MAX; i++)
		count += fake->client->registrations[i].used;
	return count;
}

static void begin(struct fake *fake)
{
	fake_start(fake, 1, NULL);
	fake_ready(fake);
}

/* A lookup on the session is sent with this number of the server's. */
static void check_number(struct fake *fake, struct kvr_session *session, uint32_t number)
{
	struct lookup_request lookup;
	struct fake_request *request;
	struct kvr_result result;
	struct wire_error error;
	kvr_ticket ticket;

	assert_int_equal(client_submit_lookup(session, 0, &ticket), 0);
	request = fake_request(fake, WIRE_LOOKUP);
	assert_int_equal(lookup_request_decode(request->bytes, request->length, &lookup, &error), 0);
	assert_int_equal(lookup.registration, number);
	fake_reply_lookup(fake, &request->header, STATUS_OK, 0);
	assert_int_equal(fake_wait(fake, ticket, &result), 0);
}

static void unregister(struct fake *fake, uint32_t registration, bool stands, bool memory_too)
{
	struct kvr_result result;
	kvr_ticket ticket;

	assert_int_equal(client_submit_unregister(fake->client, registration, &ticket), 0);
	if (stands) {
		fake_control(fake, WIRE_UNREGISTER);
		fake_reply_control(fake);
	}
	assert_int_equal(fake_wait(fake, ticket, &result), 0);
	if (memory_too) {
		fake_control(fake, WIRE_FORGET_MEMORY);
		fake_reply_control(fake);
		fake_steps(fake, 50);
	}
}

static void what_is_unregistered_leaves_nothing(void **state)
{
	uint32_t registration;
	struct fake fake;

	(void)state;
	begin(&fake);
	assert_int_equal(regions_used(&fake), 1); /* of long requests */
	registration = fake_register(&fake);
	assert_int_equal(regions_used(&fake), 2);
	unregister(&fake, registration, true, true);
	assert_int_equal(regions_used(&fake), 1);
	assert_int_equal(registrations_used(&fake), 0);
	fake_stop(&fake);
}

static void a_refused_registration_has_the_servers_words_and_leaves_nothing(void **state)
{
	struct kvr_result result;
	uint32_t registration;
	kvr_ticket ticket;
	struct fake fake;

	(void)state;
	begin(&fake);
	assert_int_equal(fake_submit_register(&fake, "model", &registration, &ticket), 0);
	fake_control(&fake, WIRE_MEMORY);
	fake_say_memory(&fake, 5);
	fake_control(&fake, WIRE_REGISTER);
	fake_refuse(&fake, STATUS_LAYOUT_MISMATCH, "plane 3 had 4096 bytes");
	assert_int_equal(fake_wait(&fake, ticket, &result), -EPROTOTYPE);
	assert_string_equal(result.text, "plane 3 had 4096 bytes");
	fake_control(&fake, WIRE_FORGET_MEMORY);
	fake_reply_control(&fake);
	fake_steps(&fake, 50);
	assert_int_equal(regions_used(&fake), 1);
	assert_int_equal(registrations_used(&fake), 0);
	assert_true(client_ready(fake.client));
	fake_stop(&fake);
}

static void memory_that_the_server_refuses_fails_its_registration_alone(void **state)
{
	struct kvr_result result;
	uint32_t registration;
	kvr_ticket ticket;
	struct fake fake;

	(void)state;
	begin(&fake);
	assert_int_equal(fake_submit_register(&fake, "model", &registration, &ticket), 0);
	fake_control(&fake, WIRE_MEMORY);
	fake_refuse(&fake, STATUS_MEMORY_UNUSABLE, "not sealed");
	assert_int_equal(fake_wait(&fake, ticket, &result), -ENOTSUP);
	assert_string_equal(result.text, "not sealed");
	fake_steps(&fake, 50);
	assert_true(client_ready(fake.client));
	assert_int_equal(regions_used(&fake), 1);
	fake_register(&fake); /* another try asks again */
	fake_stop(&fake);
}

static void registrations_come_back_after_a_reconnect(void **state)
{
	struct kvr_session *session;
	struct fake fake;

	(void)state;
	session = fake_begin(&fake, 2);
	check_number(&fake, session, 7);
	fake_drop(&fake);
	fake_ready(&fake);
	fake_control(&fake, WIRE_MEMORY);
	assert_false(client_ready(fake.client)); /* not before everything is back */
	fake_say_memory(&fake, 9);
	fake_control(&fake, WIRE_REGISTER);
	fake_say_registered(&fake, 11);
	while (!client_ready(fake.client))
		fake_step(&fake);
	assert_int_equal(fake.client->reconnects, 1);
	check_number(&fake, session, 11);
	fake_finish(&fake, &session);
}

static void lose_and_refuse(struct fake *fake, uint16_t at)
{
	fake_drop(fake);
	fake_ready(fake);
	fake_control(fake, WIRE_MEMORY);
	if (at == WIRE_REGISTER) {
		fake_say_memory(fake, 9);
		fake_control(fake, WIRE_REGISTER);
	}
	fake_refuse(fake, STATUS_LAYOUT_MISMATCH, "somebody else's layout");
	fake_pass(fake, KVR_SECOND);
	assert_true(client_ready(fake->client));
	assert_int_equal(fake->control_length, 0); /* and it is not asked for again and again */
}

static void what_is_refused_after_a_reconnect_is_failed_with_words(void **state)
{
	static const uint16_t places[] = { WIRE_MEMORY, WIRE_REGISTER };

	(void)state;
	for (unsigned i = 0; i < KVR_COUNT_OF(places); i++) {
		struct kvr_session *session;
		kvr_ticket ticket;
		struct fake fake;

		session = fake_begin(&fake, 2);
		lose_and_refuse(&fake, places[i]);
		assert_int_equal(client_submit_lookup(session, 0, &ticket), -ENODEV);
		assert_non_null(strstr(kvr_error_text(), "somebody else's layout"));
		unregister(&fake, session->registration, false, places[i] == WIRE_REGISTER);
		assert_int_equal(registrations_used(&fake), 0);
		assert_int_equal(regions_used(&fake), 1);
		fake_finish(&fake, &session);
	}
}

static void what_was_refused_is_tried_again_on_the_next_connection(void **state)
{
	struct kvr_session *session;
	struct fake fake;

	(void)state;
	session = fake_begin(&fake, 2);
	lose_and_refuse(&fake, WIRE_REGISTER);
	fake_drop(&fake);
	fake_ready(&fake);
	fake_control(&fake, WIRE_MEMORY);
	fake_say_memory(&fake, 9);
	fake_control(&fake, WIRE_REGISTER);
	fake_say_registered(&fake, 12);
	while (!client_ready(fake.client))
		fake_step(&fake);
	check_number(&fake, session, 12);
	fake_finish(&fake, &session);
}

/* Whether the memory is quiet can't be known then, but by the end of the connection. */
static void a_refused_unregister_costs_the_connection(void **state)
{
	struct kvr_result result;
	uint32_t registration;
	kvr_ticket ticket;
	struct fake fake;

	(void)state;
	begin(&fake);
	registration = fake_register(&fake);
	assert_int_equal(client_submit_unregister(fake.client, registration, &ticket), 0);
	fake_control(&fake, WIRE_UNREGISTER);
	fake_refuse(&fake, STATUS_NOT_REGISTERED, "there is no registration 7");
	assert_int_equal(fake_wait(&fake, ticket, &result), -ECONNRESET);
	assert_non_null(strstr(result.text, "UNREGISTER"));
	fake_ready(&fake);
	fake_pass(&fake, KVR_MS);
	assert_true(client_ready(fake.client));
	assert_int_equal(registrations_used(&fake), 0);
	assert_int_equal(regions_used(&fake), 1);
	fake_stop(&fake);
}

static void unregistering_while_it_is_being_restored_unregisters_it(void **state)
{
	struct kvr_result result;
	uint32_t registration;
	kvr_ticket ticket;
	struct fake fake;

	(void)state;
	begin(&fake);
	registration = fake_register(&fake);
	fake_drop(&fake);
	fake_ready(&fake);
	fake_control(&fake, WIRE_MEMORY);
	fake_say_memory(&fake, 9);
	fake_control(&fake, WIRE_REGISTER);
	assert_int_equal(client_submit_unregister(fake.client, registration, &ticket), 0);
	fake_say_registered(&fake, 11);
	fake_control(&fake, WIRE_UNREGISTER);
	fake_reply_control(&fake);
	assert_int_equal(fake_wait(&fake, ticket, &result), 0);
	fake_control(&fake, WIRE_FORGET_MEMORY);
	fake_reply_control(&fake);
	fake_pass(&fake, KVR_MS);
	assert_true(client_ready(fake.client));
	assert_int_equal(registrations_used(&fake), 0);
	fake_stop(&fake);
}

static void a_session_never_slips_to_another_registration(void **state)
{
	struct kvr_session *session;
	kvr_ticket ticket;
	struct fake fake;

	(void)state;
	session = fake_begin(&fake, 2);
	unregister(&fake, session->registration, true, true);
	assert_int_equal(client_submit_lookup(session, 0, &ticket), -ENODEV);
	assert_int_equal(fake_register(&fake), session->registration); /* the same number again */
	assert_int_equal(client_submit_lookup(session, 0, &ticket), -ENODEV);
	assert_non_null(strstr(kvr_error_text(), "unregistered"));
	fake_finish(&fake, &session);
}

/* ---- what is refused here ---- */

struct sample {
	struct kvr_model model;
	struct kvr_plane planes[3];
	struct kvr_group group;
	struct kvr_layout layout;
};

static void sample_make(struct sample *sample, uint8_t *pool)
{
	const struct kvr_model model = KVR_MODEL_INIT;

	memset(sample, 0, sizeof(*sample));
	sample->model = model;
	sample->model.name = "model";
	sample->model.dtype = "uint8";
	for (unsigned i = 0; i < 3; i++) {
		sample->planes[i].address = pool + i * 16 * FAKE_BLOCK_BYTES;
		sample->planes[i].block_stride = sample->planes[i].block_bytes = FAKE_BLOCK_BYTES;
	}
	sample->group.tokens_per_block = FAKE_BLOCK_TOKENS;
	sample->group.window_tokens = KVR_WINDOW_FULL;
	sample->group.block_count = 16;
	sample->group.plane_count = 3;
	sample->group.planes = sample->planes;
	sample->layout.struct_bytes = sizeof(sample->layout);
	sample->layout.group_count = 1;
	sample->layout.groups = &sample->group;
}

#define WRONG(change, words)                                                                                       \
	do {                                                                                                       \
		sample_make(&sample, fake.pool);                                                                   \
		change;                                                                                            \
		assert_int_equal(                                                                                  \
			client_submit_register(fake.client, &sample.model, &sample.layout, NULL, &index, &ticket), \
			-EINVAL);                                                                                  \
		if (!strstr(kvr_error_text(), words))                                                              \
			fail_msg("\"%s\" does not say \"%s\"", kvr_error_text(), words);                           \
	} while (0)

static void wrong_arguments_are_refused_with_words_and_cost_nothing(void **state)
{
	static char long_name[300];
	struct sample sample;
	struct fake fake;
	kvr_ticket ticket;
	uint32_t index;

	(void)state;
	begin(&fake);
	memset(long_name, 'x', sizeof(long_name) - 1);
	WRONG(sample.model.struct_bytes = 0, "KVR_MODEL_INIT");
	WRONG(sample.model.name = NULL, "a name and a dtype");
	WRONG(sample.model.name = "", "a name and a dtype");
	WRONG(sample.model.name = long_name, "256 bytes");
	WRONG(sample.model.dtype = long_name, "256 bytes");
	WRONG(sample.model.world_size = 0, "world_size 0");
	WRONG(sample.model.world_size = 257, "1 to 256");
	WRONG(sample.model.rank = 1, "rank 1");
	WRONG(sample.model.readers = 129, "1 to 128");
	WRONG(sample.model.reader = 1, "reader 1");
	WRONG(sample.layout.struct_bytes = 0, "struct_bytes");
	WRONG(sample.layout.groups = NULL, "groups");
	WRONG(sample.layout.group_count = 17, "groups");
	WRONG(sample.group.plane_count = 0, "0 planes");
	WRONG(sample.group.planes = NULL, "planes");
	WRONG(sample.group.block_count = 0, "0 blocks");
	WRONG(sample.group.window_tokens = 0, "window 0");
	WRONG(sample.group.tokens_per_block = 5, "whole blocks");
	WRONG(sample.planes[1].address = NULL, "plane 1");
	WRONG(sample.planes[2].block_bytes = 0, "plane 2");
	WRONG(sample.planes[2].block_bytes = FAKE_BLOCK_BYTES + 1, "plane 2");
	WRONG(sample.planes[0].block_stride = UINT64_MAX / 16, "plane 0");
	WRONG(sample.planes[0].address = (void *)(uintptr_t)(UINT64_MAX - 100), "plane 0");
	sample_make(&sample, fake.pool);
	assert_int_equal(client_submit_register(fake.client, &sample.model, NULL, NULL, &index, &ticket), -EINVAL);
	assert_non_null(strstr(kvr_error_text(), "fingerprint"));
	assert_int_equal(client_submit_unregister(fake.client, 5, &ticket), -ENODEV);
	assert_int_equal(client_submit_unregister(fake.client, UINT32_MAX, &ticket), -ENODEV);
	fake_pass(&fake, KVR_MS);
	assert_int_equal(registrations_used(&fake), 0);
	assert_int_equal(regions_used(&fake), 1);
	assert_int_equal(fake_free_slots(&fake), CLIENT_SLOTS);
	assert_int_equal(fake.control_length, 0);
	assert_true(client_ready(fake.client));
	fake_stop(&fake);
}

static void transfers_with_wrong_arguments_are_refused_with_words(void **state)
{
	struct kvr_transfer transfer, good;
	struct kvr_session *session;
	struct kvr_blocks blocks;
	uint32_t ids[FAKE_BLOCKS];
	struct fake fake;
	kvr_ticket ticket;

	(void)state;
	session = fake_begin(&fake, 2);
	good = transfer = fake_transfer(&blocks, ids, 2, NULL);
	transfer.struct_bytes = 0;
	assert_int_equal(client_submit_transfer(session, true, &transfer, &ticket), -EINVAL);
	transfer = good;
	transfer.chunk_count = 0;
	assert_int_equal(client_submit_transfer(session, true, &transfer, &ticket), -EINVAL);
	transfer = good;
	transfer.first_chunk = 1;
	assert_int_equal(client_submit_transfer(session, true, &transfer, &ticket), -ERANGE);
	assert_non_null(strstr(kvr_error_text(), "chunks 1 to 3 of a session that has 2"));
	transfer = good;
	transfer.first_chunk = UINT32_MAX;
	assert_int_equal(client_submit_transfer(session, true, &transfer, &ticket), -ERANGE);
	transfer = good;
	transfer.groups = NULL;
	assert_int_equal(client_submit_transfer(session, true, &transfer, &ticket), -EINVAL);
	transfer = good;
	transfer.group_count = 2;
	assert_int_equal(client_submit_transfer(session, true, &transfer, &ticket), -EINVAL);
	transfer = good;
	blocks.count--;
	assert_int_equal(client_submit_transfer(session, true, &transfer, &ticket), -EFAULT);
	assert_non_null(strstr(kvr_error_text(), "7 blocks where 2 chunks have 8"));
	blocks.count++;
	blocks.ids = NULL;
	assert_int_equal(client_submit_transfer(session, true, &transfer, &ticket), -EFAULT);
	fake_finish(&fake, &session);
}

/* ---- regions ---- */

static void planes_that_follow_each_other_share_a_region(void **state)
{
	struct kvr_result result;
	struct sample sample;
	struct fake fake;
	kvr_ticket ticket;
	uint32_t index;

	(void)state;
	begin(&fake);
	sample_make(&sample, fake.pool);
	assert_int_equal(client_submit_register(fake.client, &sample.model, &sample.layout, NULL, &index, &ticket), 0);
	assert_int_equal(regions_used(&fake), 2);
	fake_control(&fake, WIRE_MEMORY);
	fake_say_memory(&fake, 5);
	fake_control(&fake, WIRE_REGISTER);
	fake_say_registered(&fake, 7);
	assert_int_equal(fake_wait(&fake, ticket, &result), 0);
	/* A second one over a part of it needs no region of its own. */
	sample.group.plane_count = 1;
	sample.model.name = "other";
	assert_int_equal(client_submit_register(fake.client, &sample.model, &sample.layout, NULL, &index, &ticket), 0);
	fake_control(&fake, WIRE_REGISTER);
	fake_say_registered(&fake, 8);
	assert_int_equal(fake_wait(&fake, ticket, &result), 0);
	assert_int_equal(regions_used(&fake), 2);
	/* With a gap there are two more. */
	unregister(&fake, index, true, false);
	unregister(&fake, 0, true, true);
	sample_make(&sample, fake.pool);
	sample.planes[1].address = (uint8_t *)sample.planes[1].address + 1;
	sample.planes[1].block_bytes--;
	sample.group.block_count = 1;
	assert_int_equal(client_submit_register(fake.client, &sample.model, &sample.layout, NULL, &index, &ticket), 0);
	assert_int_equal(regions_used(&fake), 4);
	fake_stop(&fake);
}

static void too_many_regions_are_refused_with_words_and_all_are_given_back(void **state)
{
	const uint32_t count = CLIENT_REGIONS_MAX + 10;
	struct kvr_plane *planes = calloc(count, sizeof(*planes));
	uint8_t *memory = calloc(count, 16);
	struct sample sample;
	struct fake fake;
	kvr_ticket ticket;
	uint32_t index;

	(void)state;
	assert_true(planes && memory);
	begin(&fake);
	sample_make(&sample, fake.pool);
	for (uint32_t i = 0; i < count; i++) {
		planes[i].address = memory + 16 * (size_t)i;
		planes[i].block_bytes = planes[i].block_stride = 8;
	}
	sample.group.block_count = 1;
	sample.group.plane_count = count;
	sample.group.planes = planes;
	assert_int_equal(
		client_submit_register(fake.client, &sample.model, &sample.layout, NULL, &index, &ticket), -ENOSPC);
	assert_non_null(strstr(kvr_error_text(), "larger allocations"));
	assert_int_equal(regions_used(&fake), 1);
	fake_register(&fake);
	fake_stop(&fake);
	free(planes);
	free(memory);
}

static void registrations_run_out_with_words(void **state)
{
	uint8_t fingerprint[32] = { 1 };
	struct sample sample;
	struct fake fake;
	kvr_ticket ticket;
	uint32_t index;

	(void)state;
	begin(&fake);
	sample_make(&sample, fake.pool);
	for (unsigned i = 0; i < CLIENT_REGISTRATIONS_MAX; i++)
		assert_int_equal(
			client_submit_register(fake.client, &sample.model, NULL, fingerprint, &index, &ticket), 0);
	assert_int_equal(
		client_submit_register(fake.client, &sample.model, NULL, fingerprint, &index, &ticket), -EBUSY);
	assert_non_null(strstr(kvr_error_text(), "64 registrations"));
	fake_stop(&fake);
}

/* ---- schedulers and fingerprints ---- */

static void a_scheduler_registers_without_memory_and_cannot_transfer(void **state)
{
	uint8_t fingerprint[32], zero[32] = { 0 };
	struct register_request request;
	struct kvr_transfer transfer;
	struct kvr_session *session;
	struct kvr_blocks blocks;
	struct kvr_result result;
	struct wire_error error;
	struct sample sample;
	uint32_t ids[FAKE_BLOCKS];
	struct fake fake;
	kvr_ticket ticket;
	uint32_t index;

	(void)state;
	begin(&fake);
	sample_make(&sample, fake.pool);
	assert_int_equal(kvr_layout_fingerprint(&sample.layout, fingerprint), 0);
	assert_int_equal(client_submit_register(fake.client, &sample.model, NULL, fingerprint, &index, &ticket), 0);
	fake_control(&fake, WIRE_REGISTER);
	assert_int_equal(register_request_decode(fake.message, fake.header.length, &request, &error), 0);
	assert_int_equal(request.group_count, 0);
	memcpy(fingerprint, request.identity.fingerprint, 32);
	assert_memory_not_equal(fingerprint, zero, 32);
	fake_say_registered(&fake, 7);
	assert_int_equal(fake_wait(&fake, ticket, &result), 0);
	session = fake_session(&fake, index, "scheduler", 2);
	transfer = fake_transfer(&blocks, ids, 2, NULL);
	assert_int_equal(client_submit_transfer(session, false, &transfer, &ticket), -EINVAL);
	assert_non_null(strstr(kvr_error_text(), "scheduler"));
	check_number(&fake, session, 7);
	/* A worker with that layout is the same model, one of another engine is not. */
	assert_int_equal(client_submit_register(fake.client, &sample.model, &sample.layout, NULL, &index, &ticket), 0);
	fake_control(&fake, WIRE_MEMORY);
	fake_say_memory(&fake, 5);
	fake_control(&fake, WIRE_REGISTER);
	assert_int_equal(register_request_decode(fake.message, fake.header.length, &request, &error), 0);
	assert_memory_equal(request.identity.fingerprint, fingerprint, 32);
	fake_say_registered(&fake, 8);
	assert_int_equal(fake_wait(&fake, ticket, &result), 0);
	sample.model.engine = "engine 2";
	assert_int_equal(client_submit_register(fake.client, &sample.model, &sample.layout, NULL, &index, &ticket), 0);
	fake_control(&fake, WIRE_REGISTER);
	assert_int_equal(register_request_decode(fake.message, fake.header.length, &request, &error), 0);
	assert_memory_not_equal(request.identity.fingerprint, fingerprint, 32);
	assert_int_equal(client_session_destroy(&session), 0);
	fake_stop(&fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_unregistered_leaves_nothing),
		cmocka_unit_test(a_refused_registration_has_the_servers_words_and_leaves_nothing),
		cmocka_unit_test(memory_that_the_server_refuses_fails_its_registration_alone),
		cmocka_unit_test(registrations_come_back_after_a_reconnect),
		cmocka_unit_test(what_is_refused_after_a_reconnect_is_failed_with_words),
		cmocka_unit_test(what_was_refused_is_tried_again_on_the_next_connection),
		cmocka_unit_test(a_refused_unregister_costs_the_connection),
		cmocka_unit_test(unregistering_while_it_is_being_restored_unregisters_it),
		cmocka_unit_test(a_session_never_slips_to_another_registration),
		cmocka_unit_test(wrong_arguments_are_refused_with_words_and_cost_nothing),
		cmocka_unit_test(transfers_with_wrong_arguments_are_refused_with_words),
		cmocka_unit_test(planes_that_follow_each_other_share_a_region),
		cmocka_unit_test(too_many_regions_are_refused_with_words_and_all_are_given_back),
		cmocka_unit_test(registrations_run_out_with_words),
		cmocka_unit_test(a_scheduler_registers_without_memory_and_cannot_transfer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
