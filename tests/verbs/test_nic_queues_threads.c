/* test_nic_queues_threads.c - queue pairs of the nic driver on a fake device: what they ask of it, what its completions
 * become, and how they end. The driver's events thread is real. */
#include <errno.h>
#include <poll.h>

#include "base/fault.h"
#include "test_nic_rig.h"

/* ---- connecting ------------------------------------------------------------------------------------------------- */

/* pitfalls J02, J07 */
static void a_connection_asks_for_what_both_ends_and_the_options_say(void **state)
{
	static const struct verbs_nic_options nic = { .service_level = 3,
		.traffic_class = 96,
		.timeout = 12,
		.retry_count = 5,
		.rnr_timer = 20,
		.hop_limit = 7 };
	struct rig *rig = *state;
	const struct ibv_qp_attr *rtr = &rig->fake->asked[IBV_QPS_RTR], *rts = &rig->fake->asked[IBV_QPS_RTS];

	open_rig(rig, &nic);
	rig->qp = make_qp(rig, NULL);
	connect_qp(rig->qp, IBV_MTU_1024, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(rtr->path_mtu, IBV_MTU_1024);
	assert_int_equal(rtr->dest_qp_num, 77);
	assert_int_equal(rtr->rq_psn, 5);
	assert_int_equal(rtr->max_dest_rd_atomic, 3);
	assert_int_equal(rtr->min_rnr_timer, 20);
	assert_true(rtr->ah_attr.is_global);
	assert_int_equal(rtr->ah_attr.sl, 3);
	assert_int_equal(rtr->ah_attr.grh.traffic_class, 96);
	assert_int_equal(rtr->ah_attr.grh.hop_limit, 7);
	assert_int_equal(rtr->ah_attr.grh.dgid.raw[15], 0xaa);
	assert_int_equal(rts->max_rd_atomic, 4);
	assert_int_equal(rts->timeout, 12);
	assert_int_equal(rts->retry_cnt, 5);
	assert_int_equal(rts->rnr_retry, 7);
	assert_true(rig->fake->asked_mask[IBV_QPS_RTR] & IBV_QP_AV);
}

static void the_operator_may_lower_the_mtu(void **state)
{
	static const struct verbs_nic_options nic = { .mtu_bytes = 2048 };
	struct rig *rig = *state;

	open_rig(rig, &nic);
	rig->qp = make_qp(rig, NULL);
	connect_qp(rig->qp, IBV_MTU_4096, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(rig->fake->asked[IBV_QPS_RTR].path_mtu, IBV_MTU_2048);
}

/* pitfalls J03 */
static void an_ethernet_port_whose_only_address_is_at_index_1_uses_it(void **state)
{
	struct rig *rig = *state;

	rig->fake->gids[0].gid_index = 1;
	open_rig(rig, NULL);
	rig->qp = make_qp(rig, NULL);
	connect_qp(rig->qp, IBV_MTU_4096, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(rig->fake->asked[IBV_QPS_RTR].ah_attr.grh.sgid_index, 1);
}

/* pitfalls J03 */
static void an_infiniband_port_without_an_address_connects_by_lid(void **state)
{
	struct rig *rig = *state;

	rig->fake->port[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
	rig->fake->port[0].lid = 4;
	rig->fake->gid_count = 0;
	open_rig(rig, NULL);
	rig->qp = make_qp(rig, NULL);
	connect_qp(rig->qp, IBV_MTU_4096, IBV_LINK_LAYER_INFINIBAND);
	assert_int_equal(rig->fake->asked[IBV_QPS_RTR].ah_attr.dlid, 9);
	assert_false(rig->fake->asked[IBV_QPS_RTR].ah_attr.is_global);
}

static void a_second_connect_is_refused(void **state)
{
	struct rig *rig = *state;
	struct nic_address theirs = { .qp_num = 1, .mtu = IBV_MTU_256, .link_layer = IBV_LINK_LAYER_ETHERNET };
	uint8_t bytes[NIC_ADDRESS_BYTES];

	start_rig(rig);
	nic_address_encode(&theirs, bytes);
	assert_int_equal(verbs_nic.qp_connect(rig->qp, bytes, sizeof(bytes), NULL, 0, NULL), -EINVAL);
}

/* ---- completions ------------------------------------------------------------------------------------------------ */

static void completions_come_back_with_the_callers_ids(void **state)
{
	struct rig *rig = *state;

	start_rig(rig);
	/* The same id, and ids that use every bit: the driver's own numbers never show. */
	assert_int_equal(post(rig->qp, UINT64_MAX, 0), 0);
	assert_int_equal(post(rig->qp, UINT64_MAX, IBV_SEND_SIGNALED), 0);
	assert_int_equal(post_receive(rig->qp, UINT64_MAX - 1), 0);
	rig->fake->complete_sends(rig->qp->qp_num, 2, IBV_WC_SUCCESS);
	rig->fake->complete_receives(rig->qp->qp_num, 1, IBV_WC_SUCCESS);
	expect_completion(rig, UINT64_MAX, IBV_WC_SUCCESS);
	expect_completion(rig, UINT64_MAX - 1, IBV_WC_SUCCESS);
	expect_none(rig);
}

/* pitfalls I16: whatever the device would hold. */
static void the_send_queue_holds_what_was_ordered_and_room_comes_with_polling(void **state)
{
	struct rig *rig = *state;

	start_rig(rig);
	for (uint32_t i = 0; i < DEPTH; i++)
		assert_int_equal(post(rig->qp, i, i == DEPTH - 1 ? IBV_SEND_SIGNALED : 0), 0);
	assert_int_equal(post(rig->qp, 99, 0), ENOMEM);
	rig->fake->complete_sends(rig->qp->qp_num, DEPTH, IBV_WC_SUCCESS);
	assert_int_equal(post(rig->qp, 99, 0), ENOMEM);
	expect_completion(rig, DEPTH - 1, IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < DEPTH; i++)
		assert_int_equal(post(rig->qp, i, 0), 0);
	assert_int_equal(post(rig->qp, 99, 0), ENOMEM);
}

static void completions_before_the_start_wait_for_it(void **state)
{
	struct rig *rig = *state;

	open_rig(rig, NULL);
	rig->qp = make_qp(rig, NULL);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(post_receive(rig->qp, i), 0);
	connect_qp(rig->qp, IBV_MTU_1024, IBV_LINK_LAYER_ETHERNET);
	rig->fake->complete_receives(rig->qp->qp_num, 2, IBV_WC_SUCCESS);
	expect_none(rig);
	verbs_nic.qp_start(rig->qp);
	rig->fake->complete_receives(rig->qp->qp_num, 1, IBV_WC_SUCCESS);
	for (uint64_t i = 0; i < 3; i++)
		expect_completion(rig, i, IBV_WC_SUCCESS);
	expect_none(rig);
}

static void a_shared_buffer_comes_back_from_a_queue_pair_that_never_started(void **state)
{
	struct rig *rig = *state;

	open_rig(rig, NULL);
	assert_int_equal(verbs_nic.create_srq(rig->device, 2, &rig->srq), 0);
	rig->qp = make_qp(rig, rig->srq);
	assert_int_equal(post_shared(rig->srq, 7), 0);
	connect_qp(rig->qp, IBV_MTU_1024, IBV_LINK_LAYER_ETHERNET);
	rig->fake->complete_shared(rig->qp->qp_num, IBV_WC_SUCCESS);
	expect_none(rig);
	verbs_nic.destroy_qp(rig->qp);
	rig->qp = NULL;
	expect_completion(rig, 7, IBV_WC_SUCCESS);
	expect_none(rig);
}

static void shared_receives_complete_in_any_order(void **state)
{
	struct rig *rig = *state;

	open_rig(rig, NULL);
	assert_int_equal(verbs_nic.create_srq(rig->device, 3, &rig->srq), 0);
	rig->qp = make_qp(rig, rig->srq);
	connect_qp(rig->qp, IBV_MTU_1024, IBV_LINK_LAYER_ETHERNET);
	verbs_nic.qp_start(rig->qp);
	for (uint32_t round = 0; round < 5; round++) {
		for (uint64_t i = 0; i < 3; i++)
			assert_int_equal(post_shared(rig->srq, 10 + i), 0);
		assert_int_equal(post_shared(rig->srq, 13), ENOMEM);
		for (uint64_t i = 0; i < 3; i++) {
			rig->fake->complete_shared(rig->qp->qp_num, IBV_WC_SUCCESS);
			expect_completion(rig, 12 - i, IBV_WC_SUCCESS);
		}
	}
	/* No receive of its own where there is a shared queue. */
	assert_int_equal(post_receive(rig->qp, 1), EINVAL);
}

/* pitfalls I14 */
static void every_event_is_acknowledged_on_its_queue(void **state)
{
	struct rig *rig = *state;
	struct pollfd entry = { .events = POLLIN };

	start_rig(rig);
	entry.fd = verbs_nic.cq_event_fd(rig->cq);
	for (uint32_t i = 1; i <= 3; i++) {
		assert_int_equal(poll(&entry, 1, 0), 0);
		for (uint32_t j = 0; j < i; j++)
			rig->fake->cq_event(rig->qp->qp_num);
		assert_int_equal(poll(&entry, 1, 0), 1);
		verbs_nic.cq_clear_event(rig->cq);
	}
	assert_int_equal(rig->fake->cq_events_got, 6);
	assert_int_equal(rig->fake->cq_events_acked, 6);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

/* pitfalls C05 */
static void a_failed_queue_pair_is_idle_when_all_has_come_back(void **state)
{
	struct rig *rig = *state;
	unsigned flushed = 0;

	start_rig(rig);
	for (uint64_t i = 0; i < 10; i++) {
		assert_int_equal(post(rig->qp, i, 0), 0);
		assert_int_equal(post_receive(rig->qp, i), 0);
	}
	assert_false(verbs_nic.qp_idle(rig->qp));
	verbs_nic.qp_fail(rig->qp);
	verbs_nic.qp_fail(rig->qp);
	assert_int_equal(post(rig->qp, 99, 0), EINVAL);
	assert_int_equal(post_receive(rig->qp, 99), EINVAL);
	wait_drained(rig, rig->qp, &flushed);
	assert_int_equal(flushed, 20);
	expect_none(rig);
	verbs_nic.qp_stop(rig->qp);
}

/* An error of its own first: one cause, the rest flushes when it is failed. */
static void the_sends_before_an_error_count_as_done(void **state)
{
	struct rig *rig = *state;
	unsigned flushed = 0;

	start_rig(rig);
	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(post(rig->qp, i, 0), 0);
	rig->fake->complete_sends(rig->qp->qp_num, 3, IBV_WC_SUCCESS);
	rig->fake->complete_sends(rig->qp->qp_num, 1, IBV_WC_REM_ACCESS_ERR);
	expect_completion(rig, 3, IBV_WC_REM_ACCESS_ERR);
	verbs_nic.qp_fail(rig->qp);
	wait_drained(rig, rig->qp, &flushed);
	assert_int_equal(flushed, 4);
	verbs_nic.qp_stop(rig->qp);
}

/* They have no completion, and a flush is for what was not done. */
static void unsignalled_sends_that_were_done_do_not_hold_up_the_end(void **state)
{
	struct rig *rig = *state;
	unsigned flushed = 0;

	start_rig(rig);
	for (uint64_t i = 0; i < DEPTH; i++)
		assert_int_equal(post(rig->qp, i, 0), 0);
	rig->fake->complete_sends(rig->qp->qp_num, DEPTH, IBV_WC_SUCCESS);
	verbs_nic.qp_fail(rig->qp);
	wait_drained(rig, rig->qp, &flushed);
	assert_int_equal(flushed, 0);
	expect_none(rig);
	verbs_nic.qp_stop(rig->qp);
}

static void a_failed_queue_pair_that_takes_no_marker_is_destroyed(void **state)
{
	struct rig *rig = *state;
	unsigned flushed = 0, objects;

	start_rig(rig);
	objects = rig->fake->objects;
	assert_int_equal(post(rig->qp, 1, 0), 0);
	rig->fake->complete_sends(rig->qp->qp_num, 1, IBV_WC_SUCCESS);
	rig->fake->post_errno = EINVAL;
	verbs_nic.qp_fail(rig->qp);
	wait_drained(rig, rig->qp, &flushed);
	assert_int_equal(rig->fake->objects, objects - 1);
	verbs_nic.qp_stop(rig->qp);
}

#ifdef KVRAIL_FAULT_POINTS
static void a_failed_queue_pair_whose_marker_fails_is_destroyed(void **state)
{
	struct rig *rig = *state;
	unsigned flushed = 0, objects;

	start_rig(rig);
	objects = rig->fake->objects;
	assert_int_equal(post(rig->qp, 1, 0), 0);
	rig->fake->complete_sends(rig->qp->qp_num, 1, IBV_WC_SUCCESS);
	fault_arm_name("nic_post_marker", 1);
	verbs_nic.qp_fail(rig->qp);
	wait_drained(rig, rig->qp, &flushed);
	assert_non_null(fault_fired());
	fault_arm(0);
	assert_int_equal(rig->fake->objects, objects - 1);
	verbs_nic.qp_stop(rig->qp);
}
#endif

/* What is outstanding can't be known to be over, unless the queue pair is gone. */
static void a_queue_pair_that_cannot_be_failed_is_destroyed(void **state)
{
	struct rig *rig = *state;
	unsigned flushed = 0, objects;

	start_rig(rig);
	objects = rig->fake->objects;
	rig->fake->modify_errno[IBV_QPS_ERR] = EIO;
	assert_int_equal(post(rig->qp, 1, 0), 0);
	verbs_nic.qp_fail(rig->qp);
	wait_drained(rig, rig->qp, &flushed);
	assert_int_equal(rig->fake->objects, objects - 1);
	verbs_nic.qp_stop(rig->qp);
}

static void with_a_shared_queue_the_last_receive_is_waited_for(void **state)
{
	struct rig *rig = *state;
	unsigned flushed = 0;

	open_rig(rig, NULL);
	assert_int_equal(verbs_nic.create_srq(rig->device, 4, &rig->srq), 0);
	rig->qp = make_qp(rig, rig->srq);
	connect_qp(rig->qp, IBV_MTU_1024, IBV_LINK_LAYER_ETHERNET);
	verbs_nic.qp_start(rig->qp);
	assert_int_equal(post_shared(rig->srq, 1), 0);
	assert_int_equal(post(rig->qp, 2, 0), 0);
	verbs_nic.qp_fail(rig->qp);
	rig->fake->complete_shared(rig->qp->qp_num, IBV_WC_WR_FLUSH_ERR);
	rig->fake->qp_event(IBV_EVENT_QP_LAST_WQE_REACHED, rig->qp->qp_num);
	wait_drained(rig, rig->qp, &flushed);
	assert_int_equal(flushed, 2);
	wait_events(rig, 1);
	verbs_nic.qp_stop(rig->qp);
}

static void a_device_that_tells_of_no_last_receive_does_not_hold_up_the_end(void **state)
{
	struct rig *rig = *state;
	unsigned flushed = 0;

	open_rig(rig, NULL);
	assert_int_equal(verbs_nic.create_srq(rig->device, 4, &rig->srq), 0);
	rig->qp = make_qp(rig, rig->srq);
	connect_qp(rig->qp, IBV_MTU_1024, IBV_LINK_LAYER_ETHERNET);
	verbs_nic.qp_start(rig->qp);
	verbs_nic.qp_fail(rig->qp);
	wait_drained(rig, rig->qp, &flushed);
	assert_int_equal(flushed, 0);
	verbs_nic.qp_stop(rig->qp);
}

/* Its owner gave up waiting: destroying waits for the events thread in its place. */
static void destroying_right_after_failing_is_safe(void **state)
{
	struct rig *rig = *state;

	open_rig(rig, NULL);
	for (uint32_t i = 0; i < 50; i++) {
		struct ibv_qp *qp = make_qp(rig, NULL);

		connect_qp(qp, IBV_MTU_1024, IBV_LINK_LAYER_ETHERNET);
		verbs_nic.qp_start(qp);
		assert_int_equal(post(qp, i, 0), 0);
		verbs_nic.qp_fail(qp);
		verbs_nic.qp_stop(qp);
		verbs_nic.destroy_qp(qp);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(a_connection_asks_for_what_both_ends_and_the_options_say),
		TEST(the_operator_may_lower_the_mtu),
		TEST(an_ethernet_port_whose_only_address_is_at_index_1_uses_it),
		TEST(an_infiniband_port_without_an_address_connects_by_lid),
		TEST(a_second_connect_is_refused),
		TEST(completions_come_back_with_the_callers_ids),
		TEST(the_send_queue_holds_what_was_ordered_and_room_comes_with_polling),
		TEST(completions_before_the_start_wait_for_it),
		TEST(a_shared_buffer_comes_back_from_a_queue_pair_that_never_started),
		TEST(shared_receives_complete_in_any_order),
		TEST(every_event_is_acknowledged_on_its_queue),
		TEST(a_failed_queue_pair_is_idle_when_all_has_come_back),
		TEST(the_sends_before_an_error_count_as_done),
		TEST(unsignalled_sends_that_were_done_do_not_hold_up_the_end),
		TEST(a_failed_queue_pair_that_takes_no_marker_is_destroyed),
#ifdef KVRAIL_FAULT_POINTS
		TEST(a_failed_queue_pair_whose_marker_fails_is_destroyed),
#endif
		TEST(a_queue_pair_that_cannot_be_failed_is_destroyed),
		TEST(with_a_shared_queue_the_last_receive_is_waited_for),
		TEST(a_device_that_tells_of_no_last_receive_does_not_hold_up_the_end),
		TEST(destroying_right_after_failing_is_safe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
