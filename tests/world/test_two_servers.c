/* Two servers on one fabric: neither knows of the other, and nothing of one is ever answered by the other. */
#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "protocol/message.h"
#include "protocol/status.h"
#include "world/slice.h"

#define L1_BYTES (1u << 20)
#define CHUNKS 6u

struct pair {
	struct slice a, b;
	struct slice_client *at_a, *at_b; /* a client of each */
};

static void pair_start(struct pair *pair, uint64_t seed)
{
	slice_start(&pair->a, seed, NULL, L1_BYTES);
	slice_prepare_beside(&pair->b, &pair->a, seed + 1000, L1_BYTES);
	slice_server_begin(&pair->b);
	slice_join(&pair->a, 0, "model", 1, 0);
	slice_join(&pair->b, 0, "model", 1, 0);
	pair->at_a = &pair->a.clients[0];
	pair->at_b = &pair->b.clients[0];
}

static void pair_stop(struct pair *pair)
{
	slice_stop(&pair->b);
	slice_stop(&pair->a);
}

/* The same prompt under the same model, salt and session id everywhere: only the mark in the bytes tells the servers apart. */
static struct kvr_session *prompt(struct slice_client *client)
{
	return slice_session(client, "request", NULL, 1, CHUNKS);
}

static void store(struct slice_client *client, uint32_t mark)
{
	struct kvr_session *session = prompt(client);
	struct slice_request request;

	assert_int_equal(slice_store(client, session, 0, CHUNKS, 0, mark, &request), 0);
	slice_outcomes_are(&request, CHUNK_STORED);
	slice_forget(&session);
}

/* Everything is there, with that mark. */
static void expect(struct slice_client *client, uint32_t mark)
{
	struct kvr_session *session = prompt(client);
	struct slice_request request;

	assert_int_equal(slice_match(client, session, 0), CHUNKS);
	assert_int_equal(slice_retrieve(client, session, 0, CHUNKS, 0, &request), 0);
	for (uint32_t c = 0; c < CHUNKS; c++)
		assert_int_equal(slice_mark_of(client, &request, c, 10), mark);
	assert_int_equal(slice_end(client, session), 0);
	slice_forget(&session);
}

static void expect_nothing(struct slice_client *client)
{
	struct kvr_session *session = prompt(client);

	assert_int_equal(slice_match(client, session, 0), 0);
	assert_int_equal(slice_end(client, session), 0);
	slice_forget(&session);
}

static void each_server_serves_its_own_clients_from_its_own_memory(void **state)
{
	struct pair pair;

	(void)state;
	pair_start(&pair, 31);
	assert_true(server_boot_id(pair.a.server) != server_boot_id(pair.b.server));
	store(pair.at_a, 1);
	expect_nothing(pair.at_b);
	store(pair.at_b, 2);
	expect(pair.at_a, 1);
	expect(pair.at_b, 2);
	/* What one drops the other keeps. */
	{
		struct kvr_result result;

		assert_int_equal(slice_clear(pair.at_a, &result), 0);
		assert_int_equal(result.chunks, CHUNKS);
	}
	expect_nothing(pair.at_a);
	expect(pair.at_b, 2);
	pair_stop(&pair);
}

/* pitfalls G01 */
static void a_server_dies_and_comes_back_while_the_other_goes_on(void **state)
{
	struct kvr_session *session;
	struct slice_request lost, kept;
	struct pair pair;
	uint32_t connects;

	(void)state;
	pair_start(&pair, 32);
	store(pair.at_a, 1);
	store(pair.at_b, 2);
	connects = pair.b.connects;
	for (unsigned turns = 0; turns < 40; turns += 3) {
		struct kvr_session *other = prompt(pair.at_b);
		uint64_t boot_id = server_boot_id(pair.a.server);

		/* Both have a transfer under way, at every stage of it. */
		session = prompt(pair.at_a);
		slice_submit_retrieve(pair.at_a, session, 0, CHUNKS, 0, &lost);
		slice_submit_retrieve(pair.at_b, other, 0, CHUNKS, 0, &kept);
		slice_run(&pair.a, turns);
		slice_server_kill(&pair.a);
		assert_int_equal(slice_finish(pair.at_b, &kept), 0);
		for (uint32_t c = 0; c < CHUNKS; c++)
			assert_int_equal(slice_mark_of(pair.at_b, &kept, c, 10), 2);
		slice_forget(&other);
		if (slice_finish(pair.at_a, &lost))
			assert_int_equal(lost.result.status, STATUS_CONNECTION_LOST);
		slice_forget(&session);
		slice_server_begin(&pair.a);
		assert_true(server_boot_id(pair.a.server) != boot_id);
		assert_true(server_boot_id(pair.a.server) != server_boot_id(pair.b.server));
		slice_await_ready(pair.at_a);
		slice_run(&pair.a, 2000); /* the registration is made anew */
		expect_nothing(pair.at_a);
		expect(pair.at_b, 2);
		store(pair.at_a, 1);
	}
	assert_int_equal(pair.b.connects, connects);
	pair_stop(&pair);
}

/* Whoever stands behind the address is another server now: as after a fail-over. */
static void move(struct pair *pair)
{
	pair->at_a->slice = &pair->b;
	sim_fabric_cut_device(pair->a.fabric, pair->at_a->device);
}

static void a_client_that_moves_is_served_by_the_other_and_forgotten_by_the_first(void **state)
{
	struct kvr_session *session;
	struct pair pair;

	(void)state;
	pair_start(&pair, 33);
	store(pair.at_a, 1);
	store(pair.at_b, 2);
	session = prompt(pair.at_a);
	assert_int_equal(slice_match(pair.at_a, session, 0), CHUNKS); /* locked, and never released by it */
	assert_true(slice_locks(&pair.a) > 0);
	move(&pair);
	assert_int_not_equal(slice_ping(pair.at_a), 0);
	slice_await_ready(pair.at_a);
	slice_run(&pair.b, 2000);
	assert_int_equal(control_client_count(server_control(pair.a.server)), 0);
	assert_int_equal(control_client_count(server_control(pair.b.server)), 2);
	/* Its session goes on with what the other has. */
	assert_int_equal(slice_match(pair.at_a, session, KVR_LOOKUP_NO_LOCK), CHUNKS);
	slice_forget(&session);
	expect(pair.at_a, 2);
	assert_int_equal(server_verify(pair.a.server, false), 0);
	slice_pass(&pair.a, 2 * pair.a.options.lock_ttl_ns);
	assert_int_equal(slice_locks(&pair.a), 0);
	pair_stop(&pair);
}

static void what_is_under_way_at_one_server_is_never_answered_by_the_other(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 40; turns += 2) {
		struct slice_request request;
		struct kvr_session *session;
		struct pair pair;

		pair_start(&pair, 40 + turns);
		store(pair.at_b, 2);
		session = prompt(pair.at_a);
		slice_submit_retrieve(pair.at_a, session, 0, CHUNKS, 0, &request);
		slice_run(&pair.a, turns);
		move(&pair);
		/* The first server has none of it: MISSING is the one other answer. */
		if (slice_finish(pair.at_a, &request)) {
			assert_int_equal(request.result.status, STATUS_CONNECTION_LOST);
		} else {
			slice_outcomes_are(&request, CHUNK_MISSING);
			assert_int_not_equal(slice_ping(pair.at_a), 0); /* it has not noticed yet */
		}
		for (uint32_t i = 0; i < CHUNKS * SLICE_BLOCKS_PER_CHUNK; i++)
			assert_true(slice_poisoned(pair.at_a, request.ids[i]));
		slice_forget(&session);
		slice_await_ready(pair.at_a);
		slice_run(&pair.b, 2000);
		expect(pair.at_a, 2);
		pair_stop(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_server_serves_its_own_clients_from_its_own_memory),
		cmocka_unit_test(a_server_dies_and_comes_back_while_the_other_goes_on),
		cmocka_unit_test(a_client_that_moves_is_served_by_the_other_and_forgotten_by_the_first),
		cmocka_unit_test(what_is_under_way_at_one_server_is_never_answered_by_the_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
