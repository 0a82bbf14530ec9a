/* test_rails.c - connections with several rails: data is split over them, a rail that fails is taken out and comes back, and nothing
 * is lost, torn or written late (pitfalls B08). */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "base/random.h"
#include "world/slice.h"

#define CHUNKS 24u
#define L1_BYTES (UINT64_C(16) << 20)

static const struct worker_counters *counters_of(struct slice *slice)
{
	return worker_counters(server_worker(slice->server, 0));
}

/* Links so slow that what is under way counts, as long transfers do on fast ones. */
static void slow_links(struct sim_options *options, uint32_t bytes_per_us)
{
	sim_options_default(options);
	options->bytes_per_us = bytes_per_us;
}

static void begin_on(struct slice *slice, uint64_t seed, uint32_t rails, bool separate)
{
	struct sim_options network;

	slow_links(&network, 20);
	slice_prepare(slice, seed, &network, L1_BYTES);
	slice->rails = rails;
	for (uint32_t i = 0; separate && i < rails; i++)
		slice->server_subnets[i] = slice->client_subnets[i] = i;
	slice_server_begin(slice);
}

/* Each device reaches its partner only. */
static void begin(struct slice *slice, uint64_t seed, uint32_t rails)
{
	begin_on(slice, seed, rails, true);
	slice_join(slice, 0, "model", 1, 0);
	slice_pass(slice, KVR_MS);
}

/* A document that is stored by the client and read back, both whole and right. */
static void move(struct slice *slice, uint32_t document)
{
	struct slice_client *client = &slice->clients[0];
	struct slice_request store, load;
	struct kvr_session *session = slice_session(client, "s", NULL, document, CHUNKS);

	assert_int_equal(slice_store(client, session, 0, CHUNKS, 0, document, &store), 0);
	slice_outcomes_are(&store, KVR_STORED);
	assert_int_equal(slice_match(client, session, 0), CHUNKS);
	assert_int_equal(slice_retrieve(client, session, 0, CHUNKS, CHUNKS * SLICE_BLOCKS_PER_CHUNK, &load), 0);
	slice_outcomes_are(&load, KVR_DELIVERED);
	for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
		assert_true(slice_delivered(client, &load, chunk, document));
	assert_int_equal(slice_end(client, session), 0);
	slice_forget(&session);
}

static void transfers_are_split_over_the_rails(void **state)
{
	struct slice slice;

	(void)state;
	begin(&slice, 1, 3);
	assert_int_equal(counters_of(&slice)->rails_opened_total, 2);
	for (uint32_t i = 1; i <= 20; i++)
		move(&slice, i);
	assert_true(counters_of(&slice)->rail_jobs_total > 20);
	/* A third each, more or less, once it is known how fast they are. */
	assert_in_range(counters_of(&slice)->rail_bytes_total,
		(counters_of(&slice)->store_bytes_total + counters_of(&slice)->retrieve_bytes_total) / 2, UINT64_MAX);
	assert_int_equal(counters_of(&slice)->rails_lost_total, 0);
	assert_int_equal(counters_of(&slice)->connections_lost_total, 0);
	slice_stop(&slice);
}

static void with_one_device_a_side_there_is_one_queue_pair(void **state)
{
	struct slice slice;

	(void)state;
	begin(&slice, 2, 1);
	move(&slice, 1);
	assert_int_equal(counters_of(&slice)->rails_opened_total, 0);
	assert_int_equal(counters_of(&slice)->rail_jobs_total, 0);
	slice_stop(&slice);
}

/* Cuts the link of the client's second device once it carries parts. */
struct cutter {
	uint64_t jobs; /* so many begun */
	bool done;
};

static void cut_in_the_middle(struct slice *slice, void *context)
{
	struct cutter *cutter = context;

	if (cutter->done || counters_of(slice)->rail_jobs_total < cutter->jobs)
		return;
	cutter->done = true;
	sim_fabric_link_device(slice->fabric, slice->clients[0].rails[0], false);
}

static void a_rail_that_fails_in_the_middle_loses_nothing(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct cutter cutter = { .jobs = 5 + seed };
		struct slice slice;

		begin(&slice, seed, 2);
		slice.every_turn = cut_in_the_middle;
		slice.context = &cutter;
		for (uint32_t i = 1; i <= 12; i++)
			move(&slice, i);
		assert_true(cutter.done);
		assert_int_equal(counters_of(&slice)->rails_lost_total, 1);
		assert_true(counters_of(&slice)->rail_jobs_repeated_total > 0);
		assert_int_equal(counters_of(&slice)->connections_lost_total, 0);
		assert_int_equal(counters_of(&slice)->transfer_failures_total, 0);
		slice_stop(&slice);
	}
}

static void a_rail_comes_back_when_its_link_does(void **state)
{
	struct cutter cutter = { .jobs = 8 };
	struct control_client_status shown;
	struct slice slice;
	uint64_t jobs, opened;

	(void)state;
	begin(&slice, 7, 2);
	slice.every_turn = cut_in_the_middle;
	slice.context = &cutter;
	for (uint32_t i = 1; i <= 10; i++)
		move(&slice, i);
	assert_true(cutter.done);
	assert_int_equal(control_list_clients(server_control(slice.server), &shown, 1), 1);
	assert_int_equal(shown.rail_count, 2);
	assert_string_equal(shown.rails[0].state, "home");
	assert_string_not_equal(shown.rails[1].state, "live");
	/* Asked for again and again, further and further apart, without anything coming through. */
	for (uint32_t i = 11; i <= 40; i++) {
		slice_pass(&slice, KVR_SECOND);
		move(&slice, i);
	}
	opened = counters_of(&slice)->rails_opened_total;
	assert_in_range(opened, 4, 20);
	assert_int_equal(counters_of(&slice)->rail_probe_failures_total, opened - 1);
	jobs = counters_of(&slice)->rail_jobs_total;
	sim_fabric_link_device(slice.fabric, slice.clients[0].rails[0], true);
	for (uint32_t i = 41; i <= 60; i++) {
		slice_pass(&slice, KVR_SECOND);
		move(&slice, i);
	}
	assert_true(counters_of(&slice)->rail_jobs_total > jobs);
	assert_int_equal(control_list_clients(server_control(slice.server), &shown, 1), 1);
	assert_int_equal(shown.rails[1].rail, 1);
	assert_string_equal(shown.rails[1].state, "live");
	assert_true(shown.rails[1].bytes > 0);
	assert_int_equal(counters_of(&slice)->rails_lost_total, 1);
	assert_int_equal(counters_of(&slice)->connections_lost_total, 0);
	slice_stop(&slice);
}

static void devices_of_other_subnets_are_no_rails(void **state)
{
	struct sim_options network;
	struct slice slice;

	(void)state;
	slow_links(&network, 20);
	slice_prepare(&slice, 3, &network, L1_BYTES);
	slice.rails = 2;
	slice.server_subnets[1] = 1;
	slice.client_subnets[1] = 2;
	slice_server_begin(&slice);
	slice_join(&slice, 0, "model", 1, 0);
	for (uint32_t i = 1; i <= 10; i++) {
		slice_pass(&slice, 100 * KVR_MS);
		move(&slice, i);
	}
	assert_true(counters_of(&slice)->rail_probe_failures_total >= 2);
	assert_int_equal(counters_of(&slice)->rail_jobs_total, 0);
	assert_int_equal(counters_of(&slice)->connections_lost_total, 0);
	slice_stop(&slice);
}

/* Crossed cables: the client's second device reaches the server's third, and so on. */
static void the_device_at_the_other_end_is_found_by_its_subnet(void **state)
{
	struct sim_options network;
	struct slice slice;

	(void)state;
	slow_links(&network, 20);
	slice_prepare(&slice, 4, &network, L1_BYTES);
	slice.rails = 3;
	for (uint32_t i = 0; i < 3; i++) {
		slice.server_subnets[i] = i;
		slice.client_subnets[i] = (3 - i) % 3;
	}
	slice_server_begin(&slice);
	slice_join(&slice, 0, "model", 1, 0);
	slice_pass(&slice, KVR_MS);
	for (uint32_t i = 1; i <= 10; i++)
		move(&slice, i);
	assert_int_equal(counters_of(&slice)->rails_opened_total, 2);
	assert_int_equal(counters_of(&slice)->rail_probe_failures_total, 0);
	assert_true(counters_of(&slice)->rail_jobs_total > 10);
	slice_stop(&slice);
}

/* Requests go through one device: when that fails the connection is lost, and the next one is made through the other. */
static void when_the_home_rail_fails_the_client_comes_back_on_another(void **state)
{
	struct slice_request store;
	struct kvr_session *session;
	struct slice slice;

	(void)state;
	begin_on(&slice, 5, 2, false);
	slice_join(&slice, 0, "model", 1, 0);
	move(&slice, 1);
	sim_fabric_link_device(slice.fabric, slice.clients[0].device, false);
	session = slice_session(&slice.clients[0], "t", NULL, 2, CHUNKS);
	slice_submit_store(&slice.clients[0], session, 0, CHUNKS, 0, 2, &store);
	assert_int_equal(slice_finish(&slice.clients[0], &store), -ECONNRESET);
	slice_forget(&session);
	slice_await_ready(&slice.clients[0]);
	move(&slice, 3);
	move(&slice, 4);
	assert_int_equal(counters_of(&slice)->connections_lost_total, 1);
	slice_stop(&slice);
}

static void clients_with_rails_die_leave_and_are_drained(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct slice_request request[2];
		struct kvr_session *session;
		struct slice slice;

		begin(&slice, seed, 3);
		move(&slice, 1);
		slice_join(&slice, 1, "model", 1, 0);
		session = slice_session(&slice.clients[1], "u", NULL, 1, CHUNKS);
		slice_submit_retrieve(&slice.clients[1], session, 0, CHUNKS, 0, &request[0]);
		slice_run(&slice, (unsigned)seed * 37);
		slice_kill(&slice.clients[1]);
		move(&slice, 2);
		slice_stop(&slice);
	}
}

/* What was read is poisoned as soon as the request has ended: whoever writes there later is seen. */
struct storm {
	struct random random;
	uint32_t cuts;
	uint64_t next_ns;
	bool down[SLICE_RAILS_MAX];
};

static void blow(struct slice *slice, void *context)
{
	struct storm *storm = context;
	uint32_t which;

	if (slice->now_ns < storm->next_ns || !slice->clients[0].client)
		return;
	storm->next_ns = slice->now_ns + random_below(&storm->random, 3 * KVR_MS);
	which = (uint32_t)random_below(&storm->random, slice->rails - 1);
	storm->down[which] = !storm->down[which];
	storm->cuts += storm->down[which];
	sim_fabric_link_device(slice->fabric,
		random_below(&storm->random, 2) ? slice->clients[0].rails[which] : slice->server_rails[which],
		!storm->down[which]);
	if (!storm->down[which]) {
		sim_fabric_link_device(slice->fabric, slice->clients[0].rails[which], true);
		sim_fabric_link_device(slice->fabric, slice->server_rails[which], true);
	}
}

static void nothing_is_written_late(struct slice_client *client, const struct slice_request *request)
{
	for (uint32_t i = 0; i < request->count; i++)
		slice_poison(client, request->ids[i]);
	slice_pass(client->slice, 5 * KVR_MS);
	for (uint32_t i = 0; i < request->count; i++)
		assert_true(slice_poisoned(client, request->ids[i]));
}

static void rails_that_come_and_go_never_hurt_a_request(void **state)
{
	uint64_t repeated = 0, late = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 25; seed++) {
		struct storm storm = { .next_ns = 0 };
		struct sim_counters network;
		struct slice slice;

		random_init(&storm.random, seed);
		begin(&slice, seed, 4);
		slice.every_turn = blow;
		slice.context = &storm;
		for (uint32_t i = 1; i <= 10; i++) {
			struct slice_client *client = &slice.clients[0];
			struct slice_request load;
			struct kvr_session *session;

			move(&slice, i);
			session = slice_session(client, "w", NULL, i, CHUNKS);
			assert_int_equal(slice_retrieve(client, session, 0, CHUNKS, 0, &load), 0);
			nothing_is_written_late(client, &load);
			assert_int_equal(slice_end(client, session), 0);
			slice_forget(&session);
		}
		assert_true(storm.cuts > 3);
		assert_int_equal(counters_of(&slice)->connections_lost_total, 0);
		repeated += counters_of(&slice)->rail_jobs_repeated_total;
		sim_fabric_counters(slice.fabric, &network);
		late += network.late_pieces;
		slice_stop(&slice);
	}
	assert_true(repeated > 0);
	(void)late;
}

/* A driver whose queue pairs take their time to become idle. */
static bool busy_yet;

static bool idle_late(const struct ibv_qp *qp)
{
	return !busy_yet && verbs_sim.qp_idle(qp);
}

/* The network may still bring what was sent through a rail before it failed, to blocks that the engine uses again by then. */
static void a_reply_waits_until_a_lost_rail_takes_nothing_any_more(void **state)
{
	struct verbs_driver late = verbs_sim;
	struct slice_request load;
	struct slice_client *client;
	struct kvr_session *session;
	struct kvr_result result;
	struct slice slice;

	(void)state;
	late.qp_idle = idle_late;
	begin(&slice, 6, 2);
	client = &slice.clients[0];
	for (uint32_t i = 1; i <= 4; i++)
		move(&slice, i);
	client->rails[0]->driver = &late;
	busy_yet = true;
	session = slice_session(client, "y", NULL, 1, CHUNKS);
	slice_submit_retrieve(client, session, 0, CHUNKS, 0, &load);
	slice_run(&slice, 400);
	sim_fabric_link_device(slice.fabric, client->rails[0], false);
	slice_pass(&slice, 500 * KVR_MS);
	/* The server is done, and has said so. */
	assert_int_equal(counters_of(&slice)->rails_lost_total, 1);
	assert_true(counters_of(&slice)->rail_jobs_repeated_total > 0);
	assert_int_equal(counters_of(&slice)->transfers_total, 9);
	assert_int_equal(client_take(client->client, load.ticket, &result), -EAGAIN);
	busy_yet = false;
	assert_int_equal(slice_finish(client, &load), 0);
	for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
		assert_true(slice_delivered(client, &load, chunk, 1));
	client->rails[0]->driver = &verbs_sim;
	slice_forget(&session);
	slice_stop(&slice);
}

/* A link that neither carries nor breaks, as that of a port that has gone down under soft-RoCE. */
static void stall_in_the_middle(struct slice *slice, void *context)
{
	struct cutter *cutter = context;

	if (cutter->done || counters_of(slice)->rail_jobs_total < cutter->jobs)
		return;
	cutter->done = true;
	sim_fabric_stall_device(slice->fabric, slice->clients[0].rails[0], true);
}

static void a_rail_that_is_stuck_is_taken_out(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct cutter cutter = { .jobs = 5 + seed };
		struct slice slice;

		begin(&slice, seed, 2);
		slice.every_turn = stall_in_the_middle;
		slice.context = &cutter;
		for (uint32_t i = 1; i <= 12; i++)
			move(&slice, i);
		assert_true(cutter.done);
		assert_int_equal(counters_of(&slice)->rails_lost_total, 1);
		assert_true(counters_of(&slice)->rail_jobs_repeated_total > 0);
		assert_int_equal(counters_of(&slice)->connections_lost_total, 0);
		slice_stop(&slice);
	}
}

static void a_canceled_transfer_ends_although_a_rail_fails(void **state)
{
	uint32_t canceled = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct slice_request load;
		struct slice_client *client;
		struct kvr_session *session;
		struct slice slice;
		int error;

		begin(&slice, seed, 2);
		client = &slice.clients[0];
		for (uint32_t i = 1; i <= 4; i++)
			move(&slice, i);
		session = slice_session(client, "x", NULL, 1, CHUNKS);
		slice_submit_retrieve(client, session, 0, CHUNKS, 0, &load);
		slice_run(&slice, 20 + (unsigned)seed * 5);
		sim_fabric_link_device(slice.fabric, client->rails[0], false);
		slice_run(&slice, (unsigned)seed * 9);
		error = client_submit_cancel(client->client, load.ticket);
		assert_true(error == 0 || error == -ENOENT || error == -EALREADY);
		error = slice_finish(client, &load);
		assert_true(error == 0 || error == -ECANCELED);
		canceled += error != 0;
		nothing_is_written_late(client, &load);
		slice_forget(&session);
		move(&slice, 9);
		assert_int_equal(counters_of(&slice)->connections_lost_total, 0);
		slice_stop(&slice);
	}
	assert_true(canceled > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(transfers_are_split_over_the_rails),
		cmocka_unit_test(with_one_device_a_side_there_is_one_queue_pair),
		cmocka_unit_test(a_rail_that_fails_in_the_middle_loses_nothing),
		cmocka_unit_test(a_rail_comes_back_when_its_link_does),
		cmocka_unit_test(devices_of_other_subnets_are_no_rails),
		cmocka_unit_test(the_device_at_the_other_end_is_found_by_its_subnet),
		cmocka_unit_test(when_the_home_rail_fails_the_client_comes_back_on_another),
		cmocka_unit_test(clients_with_rails_die_leave_and_are_drained),
		cmocka_unit_test(rails_that_come_and_go_never_hurt_a_request),
		cmocka_unit_test(a_reply_waits_until_a_lost_rail_takes_nothing_any_more),
		cmocka_unit_test(a_rail_that_is_stuck_is_taken_out),
		cmocka_unit_test(a_canceled_transfer_ends_although_a_rail_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
