/* test_device_health.c - a device that says of itself that its port is down, that its address has changed, or that it is lost: further
 * rails are taken out at once and come back with a back-off, the home rail's connections outlive a short fall and no long one (pitfalls
 * B08). The links of the simulated network work all the while, so that nothing but the device's words can be what was acted on. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "mgmt/status_page.h"
#include "world/slice.h"

#define CHUNKS 24u
#define L1_BYTES (UINT64_C(16) << 20)

static const struct worker_counters *counters_of(struct slice *slice)
{
	return worker_counters(server_worker(slice->server, 0));
}

static void prepare(struct slice *slice, uint64_t seed)
{
	struct sim_options network;

	sim_options_default(&network);
	network.bytes_per_us = 20;
	slice_prepare(slice, seed, &network, L1_BYTES);
	slice->rails = 2;
}

static void begin(struct slice *slice, uint64_t seed, bool separate)
{
	prepare(slice, seed);
	slice->server_subnets[1] = slice->client_subnets[1] = separate;
	slice_server_begin(slice);
	slice_join(slice, 0, "model", 1, 0);
	slice_pass(slice, KVR_MS);
}

/* A document that is stored and read back, both whole and right. */
static void move_by(struct slice *slice, uint32_t number, uint32_t document)
{
	struct slice_client *client = &slice->clients[number];
	struct slice_request store, load;
	struct kvr_session *session = slice_session(client, "s", NULL, document, CHUNKS);

	assert_int_equal(slice_store(client, session, 0, CHUNKS, 0, document, &store), 0);
	assert_int_equal(slice_match(client, session, 0), CHUNKS);
	assert_int_equal(slice_retrieve(client, session, 0, CHUNKS, CHUNKS * SLICE_BLOCKS_PER_CHUNK, &load), 0);
	for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
		assert_true(slice_delivered(client, &load, chunk, document));
	assert_int_equal(slice_end(client, session), 0);
	slice_forget(&session);
}

static void move(struct slice *slice, uint32_t document)
{
	move_by(slice, 0, document);
}

/* The client's second rail, as status shows it. */
static struct control_rail_status shown(struct slice *slice)
{
	struct control_client_status status;

	assert_int_equal(control_list_clients(server_control(slice->server), &status, 1), 1);
	assert_int_equal(status.rail_count, 2);
	return status.rails[1];
}

/* Whether /status has these words. */
static bool status_says(struct slice *slice, const char *words)
{
	struct status_sources sources = { .version = "1", .options_json = "{}", .l1_pages = "none" };
	struct status_snapshot snapshot;
	struct text page = { NULL, 0, 0, false };
	bool found;

	sources.control = server_control(slice->server);
	sources.control_counters = control_counters(sources.control);
	sources.management = management_counters(server_management(slice->server));
	sources.cache = cache_get_counters(server_cache(slice->server));
	sources.tenants = slice->tenants;
	sources.tenant_count = SLICE_TENANTS;
	slice_status(slice, &snapshot);
	status_page_json(&sources, &snapshot, NULL, slice->now_ns, &page);
	assert_false(page.failed);
	found = strstr(page.bytes, words) != NULL;
	text_fini(&page);
	return found;
}

static void a_rail_whose_port_goes_down_is_out_at_once_and_comes_back(void **state)
{
	struct slice slice;
	uint64_t began_ns, jobs, opened;

	(void)state;
	begin(&slice, 1, true);
	for (uint32_t i = 1; i <= 6; i++)
		move(&slice, i);
	assert_string_equal(shown(&slice).state, "live");
	assert_string_equal(shown(&slice).why, "");
	assert_false(status_says(&slice, "\"why\""));
	began_ns = slice.now_ns;
	sim_fabric_tell_device(slice.fabric, slice.server_rails[0], VERBS_PORT_DOWN);
	slice_run(&slice, 10);
	assert_string_equal(shown(&slice).state, "out");
	assert_string_equal(shown(&slice).why, "its port is down");
	assert_int_equal(counters_of(&slice)->rails_told_total, 1);
	assert_int_equal(counters_of(&slice)->rails_lost_total, 1);
	assert_in_range(slice.now_ns - began_ns, 0, 100 * KVR_MS);
	assert_true(status_says(&slice, "\"state\":\"out\",\"why\":\"its port is down\""));
	/* Asked for again and again, further and further apart, and refused without a try. */
	jobs = counters_of(&slice)->rail_jobs_total;
	for (uint32_t i = 7; i <= 36; i++) {
		slice_pass(&slice, KVR_SECOND);
		move(&slice, i);
	}
	opened = counters_of(&slice)->rails_opened_total;
	assert_in_range(opened, 4, 20);
	assert_int_equal(counters_of(&slice)->rails_told_total, opened);
	assert_int_equal(counters_of(&slice)->rail_jobs_total, jobs);
	sim_fabric_tell_device(slice.fabric, slice.server_rails[0], VERBS_ACTIVE);
	slice_pass(&slice, 6 * KVR_SECOND);
	move(&slice, 37);
	slice_pass(&slice, 6 * KVR_SECOND);
	for (uint32_t i = 38; i <= 43; i++)
		move(&slice, i);
	assert_string_equal(shown(&slice).state, "live");
	assert_true(counters_of(&slice)->rail_jobs_total > jobs);
	assert_int_equal(counters_of(&slice)->connections_lost_total, 0);
	slice_stop(&slice);
}

struct fall {
	struct verbs_device *device;
	enum verbs_health what;
	uint64_t jobs; /* so many begun */
	bool done;
};

static void fall_in_the_middle(struct slice *slice, void *context)
{
	struct fall *fall = context;

	if (fall->done || counters_of(slice)->rail_jobs_total < fall->jobs)
		return;
	fall->done = true;
	sim_fabric_tell_device(slice->fabric, fall->device, fall->what);
}

static void parts_under_way_on_it_are_done_by_the_others(void **state)
{
	static const enum verbs_health falls[] = { VERBS_PORT_DOWN, VERBS_MOVED, VERBS_LOST };

	(void)state;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct fall fall = { .what = falls[seed % 3], .jobs = 5 + seed };
		struct slice slice;

		begin(&slice, seed, true);
		fall.device = slice.server_rails[0];
		slice.every_turn = fall_in_the_middle;
		slice.context = &fall;
		for (uint32_t i = 1; i <= 12; i++)
			move(&slice, i);
		assert_true(fall.done);
		assert_int_equal(counters_of(&slice)->rails_lost_total, 1);
		assert_true(counters_of(&slice)->rail_jobs_repeated_total > 0);
		assert_int_equal(counters_of(&slice)->transfer_failures_total, 0);
		assert_int_equal(counters_of(&slice)->connections_lost_total, 0);
		slice_stop(&slice);
	}
}

/* Each time that it is up it is down again before the rail has stood for long: the back-off grows to its end. */
static void a_port_that_flaps_is_tried_ever_less_often(void **state)
{
	uint64_t opened[2];
	struct slice slice;

	(void)state;
	begin(&slice, 3, true);
	for (uint32_t i = 1; i <= 60; i++) {
		sim_fabric_tell_device(slice.fabric, slice.server_rails[0], i % 2 ? VERBS_PORT_DOWN : VERBS_ACTIVE);
		slice_pass(&slice, KVR_SECOND);
		move(&slice, i);
		if (i == 20)
			opened[0] = counters_of(&slice)->rails_opened_total;
	}
	opened[1] = counters_of(&slice)->rails_opened_total - opened[0];
	assert_in_range(opened[0], 3, 12);
	assert_in_range(opened[1], 5, 20); /* 40 s, 2.5 to 5 s apart */
	assert_int_equal(counters_of(&slice)->connections_lost_total, 0);
	slice_stop(&slice);
}

static void a_change_of_address_takes_a_rail_out_once(void **state)
{
	struct slice slice;

	(void)state;
	begin(&slice, 4, true);
	move(&slice, 1);
	sim_fabric_tell_device(slice.fabric, slice.server_rails[0], VERBS_MOVED);
	slice_run(&slice, 10);
	assert_string_equal(shown(&slice).why, "its address has changed");
	for (uint32_t i = 2; i <= 8; i++) {
		slice_pass(&slice, KVR_SECOND);
		move(&slice, i);
	}
	assert_string_equal(shown(&slice).state, "live");
	assert_int_equal(counters_of(&slice)->rails_opened_total, 2);
	assert_int_equal(counters_of(&slice)->rails_told_total, 1);
	slice_stop(&slice);
}

static void a_connection_outlives_a_short_fall_of_its_home(void **state)
{
	struct slice slice;

	(void)state;
	begin(&slice, 5, false);
	move(&slice, 1);
	sim_fabric_tell_device(slice.fabric, slice.server_device, VERBS_PORT_DOWN);
	slice_pass(&slice, KVR_SECOND);
	sim_fabric_tell_device(slice.fabric, slice.server_device, VERBS_ACTIVE);
	slice_pass(&slice, 10 * KVR_SECOND);
	sim_fabric_tell_device(slice.fabric, slice.clients[0].device, VERBS_PORT_DOWN);
	slice_pass(&slice, KVR_SECOND);
	sim_fabric_tell_device(slice.fabric, slice.clients[0].device, VERBS_ACTIVE);
	slice_pass(&slice, 10 * KVR_SECOND);
	move(&slice, 2);
	assert_int_equal(counters_of(&slice)->connections_lost_total, 0);
	assert_int_equal(counters_of(&slice)->connections_opened_total, 1);
	slice_stop(&slice);
}

static void a_connection_whose_home_is_out_is_lost_and_made_again(void **state)
{
	static const struct {
		enum verbs_health what;
		uint64_t at_least_ns, at_most_ns;
	} falls[] = {
		{ VERBS_PORT_DOWN, 2 * KVR_SECOND, 3 * KVR_SECOND },
		{ VERBS_MOVED, 0, 200 * KVR_MS },
		{ VERBS_LOST, 0, 200 * KVR_MS },
	};

	(void)state;
	for (unsigned i = 0; i < KVR_COUNT_OF(falls); i++) {
		struct slice slice;
		uint64_t began_ns;

		begin(&slice, 6 + i, false);
		move(&slice, 1);
		began_ns = slice.now_ns;
		sim_fabric_tell_device(slice.fabric, slice.server_device, falls[i].what);
		while (counters_of(&slice)->connections_lost_total == 0)
			slice_pass(&slice, KVR_MS);
		assert_in_range(slice.now_ns - began_ns, falls[i].at_least_ns, falls[i].at_most_ns);
		if (falls[i].what == VERBS_PORT_DOWN)
			sim_fabric_tell_device(slice.fabric, slice.server_device, VERBS_ACTIVE);
		slice_pass(&slice, 100 * KVR_MS);
		if (falls[i].what != VERBS_LOST) { /* the slice's server has no second worker */
			slice_await_ready(&slice.clients[0]);
			move(&slice, 2);
			assert_int_equal(counters_of(&slice)->connections_lost_total, 1);
		}
		slice_stop(&slice);
	}
}

/* Two cores, each with a device as its home. */
static void begin_with_a_core_on_each(struct slice *slice, uint64_t seed)
{
	prepare(slice, seed);
	slice->options.worker_count = 2;
	slice->home_on_each = true;
	slice_server_begin(slice);
}

static void each_device_is_the_home_of_a_share_of_the_clients(void **state)
{
	struct control_client_status status[4];
	uint32_t share[2] = { 0, 0 };
	struct slice slice;

	(void)state;
	begin_with_a_core_on_each(&slice, 20);
	for (uint32_t i = 0; i < 4; i++) {
		slice_join(&slice, i, "model", 1, 0);
		slice_pass(&slice, KVR_MS);
	}
	assert_int_equal(control_list_clients(server_control(slice.server), status, 4), 4);
	for (uint32_t i = 0; i < 4; i++) {
		const struct verbs_device *homes[] = { slice.server_device, slice.server_rails[0] };

		share[status[i].worker]++;
		assert_string_equal(status[i].rails[0].state, "home");
		assert_string_equal(status[i].rails[0].device, homes[status[i].worker]->name);
		assert_string_equal(status[i].rails[1].state, "live");
		assert_string_equal(status[i].rails[1].device, homes[1 - status[i].worker]->name);
	}
	assert_int_equal(share[0], 2);
	assert_int_equal(share[1], 2);
	for (uint32_t i = 0; i < 24; i++)
		move_by(&slice, i % 4, 1 + i);
	for (uint32_t i = 0; i < 2; i++) {
		const struct worker_counters *counters = worker_counters(server_worker(slice.server, i));

		assert_int_equal(counters->transfers_total, 24);
		assert_int_equal(counters->connections_opened_total, 2);
		assert_int_equal(counters->rails_opened_total, 2);
		assert_true(counters->rail_jobs_total > 0); /* through the device that is the other's home */
		assert_int_equal(counters->connections_lost_total, 0);
	}
	slice_stop(&slice);
}

/* The home of a connection is lost: what was under way ends with an error, and the next request goes through the device that is left. */
static void clients_of_a_device_that_is_lost_come_back_to_the_others_core(void **state)
{
	static const enum verbs_health falls[] = { VERBS_LOST, VERBS_PORT_DOWN, VERBS_MOVED };

	(void)state;
	for (uint32_t which = 0; which < 6; which++) {
		enum verbs_health fall = falls[which % 3];
		struct control_client_status status[4];
		struct slice_request store;
		struct kvr_session *session;
		struct slice slice;

		begin_with_a_core_on_each(&slice, 30 + which);
		for (uint32_t i = 0; i < 2; i++)
			slice_join(&slice, i, "model", 1, 0);
		for (uint32_t i = 0; i < 2; i++)
			move_by(&slice, i, 1 + i);
		assert_int_equal(control_list_clients(server_control(slice.server), status, 4), 2);
		assert_int_equal(status[0].worker + status[1].worker, 1);
		/* Client 0 is on worker 0. Nothing comes through its home any more, and only the device says so. */
		assert_int_equal(worker_counters(server_worker(slice.server, 0))->transfers_total, 2);
		sim_fabric_stall_device(slice.fabric, slice.server_device, true);
		sim_fabric_tell_device(slice.fabric, slice.server_device, fall);
		for (uint32_t i = 0; i < 2; i++) {
			session = slice_session(&slice.clients[i], "t", NULL, 10 + i, CHUNKS);
			slice_submit_store(&slice.clients[i], session, 0, CHUNKS, 0, 10 + i, &store);
			assert_int_equal(slice_finish(&slice.clients[i], &store), i ? 0 : -ECONNRESET);
			slice_forget(&session);
		}
		sim_fabric_stall_device(slice.fabric, slice.server_device, false);
		slice_await_ready(&slice.clients[0]);
		for (uint32_t i = 0; i < 6; i++)
			move_by(&slice, i % 2, 20 + i);
		slice_join(&slice, 2, "model", 1, 0);
		move_by(&slice, 2, 30);
		assert_int_equal(control_list_clients(server_control(slice.server), status, 4), 3);
		for (uint32_t i = 0; i < 3 && fall != VERBS_MOVED; i++)
			assert_int_equal(status[i].worker, 1);
		assert_int_equal(worker_counters(server_worker(slice.server, 0))->connections_lost_total, 1);
		assert_int_equal(worker_counters(server_worker(slice.server, 1))->connections_lost_total, 0);
		slice_stop(&slice);
	}
}

/* A port of the client's own: it does not wait for requests to run out of time, and comes back through its other device. */
static void a_client_whose_home_is_out_comes_back_through_another_device(void **state)
{
	static const enum verbs_health falls[] = { VERBS_PORT_DOWN, VERBS_MOVED, VERBS_LOST };

	(void)state;
	for (unsigned i = 0; i < KVR_COUNT_OF(falls); i++) {
		struct slice_request store;
		struct kvr_session *session;
		struct slice slice;

		begin(&slice, 10 + i, false);
		move(&slice, 1);
		/* And nothing comes through, as it is when a port of soft-RoCE goes down: no error tells of it. */
		sim_fabric_stall_device(slice.fabric, slice.clients[0].device, true);
		sim_fabric_tell_device(slice.fabric, slice.clients[0].device, falls[i]);
		session = slice_session(&slice.clients[0], "t", NULL, 2, CHUNKS);
		slice_submit_store(&slice.clients[0], session, 0, CHUNKS, 0, 2, &store);
		assert_int_equal(slice_finish(&slice.clients[0], &store), -ECONNRESET);
		slice_forget(&session);
		slice_await_ready(&slice.clients[0]);
		move(&slice, 3);
		slice_pass(&slice, 10 * KVR_SECOND);
		move(&slice, 4);
		slice_stop(&slice);
	}
}

/* What nothing can come through is not asked for. */
static void a_rail_is_not_asked_for_while_the_clients_own_port_is_down(void **state)
{
	struct slice slice;

	(void)state;
	begin(&slice, 14, true);
	move(&slice, 1);
	sim_fabric_tell_device(slice.fabric, slice.clients[0].rails[0], VERBS_PORT_DOWN);
	sim_fabric_link_device(slice.fabric, slice.clients[0].rails[0], false);
	for (uint32_t i = 2; i <= 40; i++) {
		slice_pass(&slice, KVR_SECOND);
		move(&slice, i);
	}
	assert_int_equal(counters_of(&slice)->rails_lost_total, 1);
	assert_int_equal(counters_of(&slice)->rails_opened_total, 1);
	sim_fabric_link_device(slice.fabric, slice.clients[0].rails[0], true);
	sim_fabric_tell_device(slice.fabric, slice.clients[0].rails[0], VERBS_ACTIVE);
	for (uint32_t i = 41; i <= 50; i++) {
		slice_pass(&slice, KVR_SECOND);
		move(&slice, i);
	}
	assert_int_equal(counters_of(&slice)->rails_opened_total, 2);
	assert_string_equal(shown(&slice).state, "live");
	slice_stop(&slice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rail_whose_port_goes_down_is_out_at_once_and_comes_back),
		cmocka_unit_test(parts_under_way_on_it_are_done_by_the_others),
		cmocka_unit_test(a_port_that_flaps_is_tried_ever_less_often),
		cmocka_unit_test(a_change_of_address_takes_a_rail_out_once),
		cmocka_unit_test(a_connection_outlives_a_short_fall_of_its_home),
		cmocka_unit_test(a_connection_whose_home_is_out_is_lost_and_made_again),
		cmocka_unit_test(each_device_is_the_home_of_a_share_of_the_clients),
		cmocka_unit_test(clients_of_a_device_that_is_lost_come_back_to_the_others_core),
		cmocka_unit_test(a_client_whose_home_is_out_comes_back_through_another_device),
		cmocka_unit_test(a_rail_is_not_asked_for_while_the_clients_own_port_is_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
