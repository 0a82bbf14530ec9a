/* test_nic_events_threads.c - what a device tells of itself, and what is left of it and of its queue pairs, on a fake one. */
#include "test_nic_rig.h"

/* One end or another of a connection: never started, failed with work under way, failed and not waited for, ended by an error. */
static void connect_and_part(struct rig *rig, uint32_t way)
{
	struct ibv_qp *qp = make_qp(rig, NULL);
	unsigned flushed = 0;
	struct ibv_wc wc;

	connect_qp(qp, IBV_MTU_1024, IBV_LINK_LAYER_ETHERNET);
	if (way > 0) {
		verbs_nic.qp_start(qp);
		assert_int_equal(post_receive(qp, 1), 0);
		assert_int_equal(post(qp, 2, 0), 0);
		if (way == 3) {
			rig->fake->complete_sends(qp->qp_num, 1, IBV_WC_RETRY_EXC_ERR);
			/* Those of the one before, which was not waited for, are nobody's. */
			while (ibv_poll_cq(rig->cq, 1, &wc) == 0)
				;
			assert_int_equal(wc.wr_id, 2);
			assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
		}
		verbs_nic.qp_fail(qp);
		if (way != 2)
			wait_drained(rig, qp, &flushed);
		verbs_nic.qp_stop(qp);
	}
	verbs_nic.destroy_qp(qp);
}

/* pitfalls C13 */
static void five_thousand_connections_leave_nothing_behind(void **state)
{
	struct rig *rig = *state;
	unsigned before;

	open_rig(rig, NULL);
	before = rig->fake->objects;
	for (uint32_t i = 0; i < 5000; i++) {
		struct ibv_mr *mr;

		assert_int_equal(
			verbs_nic.register_memory(rig->device, rig, sizeof(*rig), IBV_ACCESS_LOCAL_WRITE, &mr), 0);
		connect_and_part(rig, i % 4);
		assert_int_equal(verbs_nic.deregister_memory(mr), 0);
		if (i % 1000 == 0)
			assert_int_equal(rig->fake->objects, before);
	}
	assert_int_equal(rig->fake->objects, before);
}

/* pitfalls I07 */
static void events_of_another_port_are_not_ours(void **state)
{
	struct rig *rig = *state;

	rig->fake->ports = 2;
	open_rig(rig, NULL);
	rig->fake->port_event(IBV_EVENT_PORT_ERR, 2);
	wait_events(rig, 1);
	assert_int_equal(__atomic_load_n(&rig->warnings, __ATOMIC_RELAXED), 0);
	rig->fake->port_event(IBV_EVENT_PORT_ERR, 1);
	wait_events(rig, 2);
	assert_int_equal(__atomic_load_n(&rig->warnings, __ATOMIC_RELAXED), 1);
}

/* pitfalls I08: what stands on an address that has gone is closed; what stands on one that is still there is not. */
static void a_queue_pair_whose_address_has_gone_is_closed(void **state)
{
	struct rig *rig = *state;
	struct ibv_wc wc;

	start_rig(rig);
	assert_int_equal(post_receive(rig->qp, 7), 0);
	rig->fake->port_event(IBV_EVENT_GID_CHANGE, 1);
	wait_events(rig, 1);
	expect_none(rig);
	assert_int_equal(rig->device->health, VERBS_ACTIVE);
	rig->fake->gids[0].gid_index = 6;
	rig->fake->port_event(IBV_EVENT_GID_CHANGE, 1);
	wait_events(rig, 2);
	assert_int_equal(ibv_poll_cq(rig->cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 7);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(post(rig->qp, 1, 0), EINVAL);
	assert_int_equal(verbs_health_of(rig->device->health), VERBS_MOVED);
}

/* What poll cores act on: each change is another word, the last one stays. */
static void events_of_the_port_and_the_device_are_told(void **state)
{
	struct rig *rig = *state;
	uint32_t before;

	open_rig(rig, NULL);
	assert_true(verbs_is_up(rig->device));
	before = rig->device->health;
	rig->fake->port_event(IBV_EVENT_PORT_ERR, 1);
	wait_events(rig, 1);
	assert_int_equal(verbs_health_of(rig->device->health), VERBS_PORT_DOWN);
	assert_false(verbs_is_up(rig->device));
	/* An address that comes or goes meanwhile does not bring it up. */
	rig->fake->gids[0].gid_index = 6;
	rig->fake->port_event(IBV_EVENT_GID_CHANGE, 1);
	wait_events(rig, 2);
	assert_int_equal(verbs_health_of(rig->device->health), VERBS_PORT_DOWN);
	rig->fake->port_event(IBV_EVENT_PORT_ACTIVE, 1);
	wait_events(rig, 3);
	assert_int_equal(verbs_health_of(rig->device->health), VERBS_MOVED);
	rig->fake->port_event(IBV_EVENT_PORT_ERR, 1);
	rig->fake->port_event(IBV_EVENT_PORT_ACTIVE, 1);
	wait_events(rig, 5);
	assert_int_equal(verbs_health_of(rig->device->health), VERBS_ACTIVE);
	assert_int_not_equal(rig->device->health, before);
	rig->fake->device_event(IBV_EVENT_DEVICE_FATAL);
	wait_events(rig, 6);
	assert_int_equal(verbs_health_of(rig->device->health), VERBS_LOST);
	rig->fake->port_event(IBV_EVENT_PORT_ACTIVE, 1);
	wait_events(rig, 7);
	assert_int_equal(verbs_health_of(rig->device->health), VERBS_LOST);
}

static void status_has(const struct rig *rig, const char *words)
{
	struct text out = { NULL, 0, 0, false };

	verbs_nic.describe(rig->device, &out);
	assert_non_null(strstr(out.bytes, words));
	text_fini(&out);
}

/* pitfalls J07 */
static void status_shows_settings_and_what_became_of_the_port(void **state)
{
	static const struct verbs_nic_options nic = { .service_level = 3, .traffic_class = 96, .timeout = 12 };
	struct rig *rig = *state;

	open_rig(rig, &nic);
	status_has(rig, "\"state\":\"active\",\"port\":1,\"link_layer\":\"Ethernet\",\"address\":\"10.0.0.1\"");
	status_has(rig, "\"service_level\":3,\"traffic_class\":96,\"hop_limit\":64,\"timeout\":12,\"retry_count\":7");
	rig->fake->port_event(IBV_EVENT_PORT_ERR, 1);
	wait_events(rig, 1);
	status_has(rig, "\"state\":\"port down\"");
	/* An address that comes or goes does not bring the port up. */
	rig->fake->port_event(IBV_EVENT_GID_CHANGE, 1);
	wait_events(rig, 2);
	status_has(rig, "\"state\":\"port down\"");
	rig->fake->port_event(IBV_EVENT_PORT_ACTIVE, 1);
	wait_events(rig, 3);
	status_has(rig, "\"state\":\"active\"");
	status_has(rig, "\"port_errors_total\":1");
	rig->fake->device_event(IBV_EVENT_DEVICE_FATAL);
	wait_events(rig, 4);
	status_has(rig, "\"state\":\"lost\"");
}

/* pitfalls I08 */
static void an_address_whose_index_moved_is_used_at_its_new_place(void **state)
{
	struct rig *rig = *state;

	open_rig(rig, NULL);
	rig->fake->gids[0].gid_index = 6;
	rig->fake->port_event(IBV_EVENT_GID_CHANGE, 1);
	wait_events(rig, 1);
	rig->qp = make_qp(rig, NULL);
	connect_qp(rig->qp, IBV_MTU_1024, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(rig->fake->asked[IBV_QPS_RTR].ah_attr.grh.sgid_index, 6);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(five_thousand_connections_leave_nothing_behind),
		TEST(events_of_another_port_are_not_ours),
		TEST(a_queue_pair_whose_address_has_gone_is_closed),
		TEST(events_of_the_port_and_the_device_are_told),
		TEST(status_shows_settings_and_what_became_of_the_port),
		TEST(an_address_whose_index_moved_is_used_at_its_new_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
