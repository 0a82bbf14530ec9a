/* test_identity.c - nothing of one tenant, model, dtype, layout, engine, rank or salt is ever found by another. */
#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "world/slice.h"

#define CHUNKS 3u

static struct slice slice;
static struct slice_request request;

/* Client `index` of that model: what it finds of document 1, under a salt. */
static uint32_t finds(unsigned index, const char *salt)
{
	struct slice_client *client = &slice.clients[index];
	struct kvr_session *session = slice_session(client, "request", salt, 1, CHUNKS);
	uint32_t matched = slice_match(client, session, 0);

	/* What LOOKUP says and what RETRIEVE finds come from one key (pitfalls E08). */
	assert_int_equal(slice_retrieve(client, session, 0, CHUNKS, 100, &request), 0);
	for (uint32_t c = 0; c < CHUNKS; c++) {
		assert_int_equal(request.outcomes[c], c < matched ? KVR_DELIVERED : KVR_MISSING);
		if (c < matched)
			assert_true(slice_delivered(client, &request, c, 50 + index));
	}
	assert_int_equal(slice_end(client, session), 0);
	slice_forget(&session);
	return matched;
}

static void stores(unsigned index, const char *salt)
{
	struct slice_client *client = &slice.clients[index];
	struct kvr_session *session = slice_session(client, "request", salt, 1, CHUNKS);

	assert_int_equal(slice_store(client, session, 0, CHUNKS, 0, 50 + index, &request), 0);
	slice_outcomes_are(&request, KVR_STORED);
	assert_int_equal(slice_end(client, session), 0);
	slice_forget(&session);
}

/* pitfalls E05, E06, E07, E08: each stores the same tokens, and finds its own bytes. */
static void models_that_differ_in_one_thing_share_nothing(void **state)
{
	struct slice_model models[6];

	(void)state;
	slice_start(&slice, 61, NULL, 1u << 20);
	for (unsigned i = 0; i < 6; i++)
		slice_model_default(&models[i]);
	models[1].name = "model+adapter";
	models[2].name = "model+adapter@v2";
	models[3].dtype = "fp8";
	models[4].engine = "engine 2";
	models[5].world_size = 2;
	for (unsigned i = 0; i < 6; i++)
		slice_join_as(&slice, i, 0, &models[i]);
	for (unsigned i = 0; i < 5; i++) {
		for (unsigned j = i; j < 5; j++)
			assert_int_equal(finds(j, NULL), 0);
		stores(i, NULL);
		assert_int_equal(finds(i, NULL), CHUNKS);
	}
	assert_int_equal(finds(5, NULL), 0);
	slice_stop(&slice);
}

/* The layout is part of the identity: other planes, other namespace; never bytes of another shape. */
static void another_layout_under_the_same_name_shares_nothing(void **state)
{
	struct slice_model model;
	struct kvr_session *session;

	(void)state;
	slice_start(&slice, 62, NULL, 1u << 20);
	slice_join(&slice, 0, "model", 1, 0);
	slice_model_default(&model);
	model.planes = 2;
	slice_join_as(&slice, 1, 0, &model);
	stores(0, NULL);
	session = slice_session(&slice.clients[1], "request", NULL, 1, CHUNKS);
	assert_int_equal(slice_match(&slice.clients[1], session, 0), 0);
	assert_int_equal(slice_retrieve(&slice.clients[1], session, 0, CHUNKS, 100, &request), 0);
	slice_outcomes_are(&request, KVR_MISSING);
	slice_stop(&slice);
}

/* pitfalls F01: tenants come from the credential; salts are namespaces, and so is none. */
static void tenants_and_salts_share_nothing_and_the_same_one_does(void **state)
{
	struct slice_model model;

	(void)state;
	slice_start(&slice, 63, NULL, 1u << 20);
	slice_model_default(&model);
	slice_join_as(&slice, 0, 0, &model);
	slice_join_as(&slice, 1, 1, &model);
	stores(0, "a");
	assert_int_equal(finds(0, "a"), CHUNKS);
	assert_int_equal(finds(0, NULL), 0);
	assert_int_equal(finds(0, "b"), 0);
	assert_int_equal(finds(1, "a"), 0);
	assert_int_equal(finds(1, NULL), 0);
	stores(1, "a");
	assert_int_equal(finds(1, "a"), CHUNKS);
	assert_int_equal(finds(0, "a"), CHUNKS);
	slice_stop(&slice);
}

/* A tenant's CLEAR takes its own chunks, and those of one model when it says so (pitfalls E05). */
static void a_clear_stays_inside_its_tenant_and_model(void **state)
{
	struct slice_model model;
	struct kvr_result result;
	kvr_ticket ticket;

	(void)state;
	slice_start(&slice, 64, NULL, 1u << 20);
	slice_model_default(&model);
	slice_join_as(&slice, 0, 0, &model);
	slice_join_as(&slice, 1, 1, &model);
	model.name = "model+adapter";
	slice_join_as(&slice, 2, 0, &model);
	for (unsigned i = 0; i < 3; i++)
		stores(i, NULL);
	assert_int_equal(client_submit_clear(slice.clients[0].client, slice.clients[0].registration, &ticket), 0);
	assert_int_equal(slice_wait(&slice, slice.clients[0].client, ticket, &result), 0);
	assert_int_equal(result.chunks, CHUNKS);
	assert_int_equal(finds(0, NULL), 0);
	assert_int_equal(finds(1, NULL), CHUNKS);
	assert_int_equal(finds(2, NULL), CHUNKS);
	assert_int_equal(slice_clear(&slice.clients[0], &result), 0);
	assert_int_equal(finds(1, NULL), CHUNKS);
	assert_int_equal(finds(2, NULL), 0);
	slice_stop(&slice);
}

static void who_may_not_clear_is_told_so(void **state)
{
	struct kvr_result result;

	(void)state;
	slice_prepare(&slice, 65, NULL, 1u << 20);
	slice.tenants[0].may_clear = false;
	slice_server_begin(&slice);
	slice_join(&slice, 0, "model", 1, 0);
	stores(0, NULL);
	assert_int_equal(slice_clear(&slice.clients[0], &result), -EPERM);
	assert_int_equal(finds(0, NULL), CHUNKS);
	slice_stop(&slice);
}

/* A client that expects another tenant than its credential's is refused (pitfalls F01). */
static void the_tenant_is_not_claimed(void **state)
{
	const char *text;

	(void)state;
	slice_start(&slice, 66, NULL, 1u << 20);
	slice.wanted_tenant = "house";
	slice_create_client(&slice, 0, 1);
	slice_run(&slice, 400);
	assert_false(client_ready(slice.clients[0].client));
	assert_int_equal(client_failure(slice.clients[0].client, &text), -EPERM);
	slice_stop(&slice);
}

/* Ranks of one model keep parts of their own; a lookup needs all of them. */
static void a_chunk_is_there_when_all_ranks_have_stored_it(void **state)
{
	struct kvr_session *sessions[2];

	(void)state;
	slice_start(&slice, 67, NULL, 1u << 20);
	for (unsigned i = 0; i < 2; i++) {
		slice_join(&slice, i, "model", 2, i);
		sessions[i] = slice_session(&slice.clients[i], "request", NULL, 1, CHUNKS);
	}
	assert_int_equal(slice_store(&slice.clients[0], sessions[0], 0, CHUNKS, 0, 7, &request), 0);
	assert_int_equal(slice_match(&slice.clients[0], sessions[0], 0), 0);
	assert_int_equal(slice_store(&slice.clients[1], sessions[1], 0, CHUNKS - 1, 0, 8, &request), 0);
	assert_int_equal(slice_match(&slice.clients[0], sessions[0], 0), CHUNKS - 1);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(slice_retrieve(&slice.clients[i], sessions[i], 0, CHUNKS - 1, 100, &request), 0);
		for (uint32_t c = 0; c + 1 < CHUNKS; c++)
			assert_true(slice_delivered(&slice.clients[i], &request, c, 7 + i));
	}
	slice_stop(&slice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(models_that_differ_in_one_thing_share_nothing),
		cmocka_unit_test(another_layout_under_the_same_name_shares_nothing),
		cmocka_unit_test(tenants_and_salts_share_nothing_and_the_same_one_does),
		cmocka_unit_test(a_clear_stays_inside_its_tenant_and_model),
		cmocka_unit_test(who_may_not_clear_is_told_so),
		cmocka_unit_test(the_tenant_is_not_claimed),
		cmocka_unit_test(a_chunk_is_there_when_all_ranks_have_stored_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
