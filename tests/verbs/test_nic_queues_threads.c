/* test_nic_queues_threads.c - queue pairs of the nic driver on a fake device: what they ask of it, what its completions
 * become, and how they end. The driver's events thread is real. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "base/log.h"
#include "fake/fake_verbs.h"
#include "verbs/driver.h"
#include "verbs/nic/address.h"

#define DEPTH 16u

struct rig {
	struct fake_verbs *fake;
	struct verbs_device *device;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	uint32_t warnings;
};

static void count_warning(void *context, enum log_level level, const char *line)
{
	struct rig *rig = context;

	(void)line;
	if (level <= LOG_WARN)
		__atomic_fetch_add(&rig->warnings, 1, __ATOMIC_RELAXED);
}

static int setup(void **state)
{
	static struct rig rig;

	memset(&rig, 0, sizeof(rig));
	rig.fake = fake_verbs_of(KVRAIL_FAKE_VERBS);
	log_set_sink(count_warning, &rig);
	*state = &rig;
	return rig.fake ? 0 : -1;
}

static void open_rig(struct rig *rig, const struct verbs_nic_options *nic)
{
	struct verbs_open options = { .server = true };

	if (nic)
		options.nic = *nic;
	options.nic.library = KVRAIL_FAKE_VERBS;
	assert_int_equal(verbs_nic.open(&options, &rig->device), 0);
	assert_int_equal(verbs_nic.create_cq(rig->device, 256, &rig->cq), 0);
}

static struct ibv_qp *make_qp(struct rig *rig, struct ibv_srq *srq)
{
	struct verbs_qp_options options = { .send_cq = rig->cq, .recv_cq = rig->cq, .srq = srq };
	struct ibv_qp *qp = NULL;

	options.max_send_wr = options.max_recv_wr = DEPTH;
	options.max_sge = 2;
	options.max_inline_bytes = 64;
	assert_int_equal(verbs_nic.create_qp(rig->device, &options, &qp), 0);
	return qp;
}

/* The address of an end as good as ours, with the differences that the caller makes. */
static void connect_qp(struct ibv_qp *qp, uint8_t mtu, uint8_t link_layer)
{
	struct nic_address theirs = { .qp_num = 77, .psn = 5, .lid = 9, .mtu = mtu, .link_layer = link_layer };
	uint8_t bytes[NIC_ADDRESS_BYTES];

	theirs.reads_started = 3;
	theirs.reads_answered = 4;
	theirs.gid.raw[15] = link_layer == IBV_LINK_LAYER_ETHERNET ? 0xaa : 0;
	nic_address_encode(&theirs, bytes);
	assert_int_equal(verbs_nic.qp_connect(qp, bytes, sizeof(bytes), NULL, 0, NULL), 0);
}

static void start_rig(struct rig *rig)
{
	open_rig(rig, NULL);
	rig->qp = make_qp(rig, NULL);
	connect_qp(rig->qp, IBV_MTU_1024, IBV_LINK_LAYER_ETHERNET);
	verbs_nic.qp_start(rig->qp);
}

static int teardown(void **state)
{
	struct rig *rig = *state;

	if (rig->qp)
		verbs_nic.destroy_qp(rig->qp);
	if (rig->srq)
		verbs_nic.destroy_srq(rig->srq);
	if (rig->cq)
		verbs_nic.destroy_cq(rig->cq);
	if (rig->device)
		verbs_nic.close(rig->device);
	log_set_sink(NULL, NULL);
	return rig->fake->objects == 0 ? 0 : -1;
}

static int post(struct ibv_qp *qp, uint64_t id, unsigned flags)
{
	struct ibv_send_wr wr = { .wr_id = id, .opcode = IBV_WR_SEND, .send_flags = flags };
	struct ibv_send_wr *bad = NULL;
	int error = ibv_post_send(qp, &wr, &bad);

	/* Whoever posts gets its work request back as it was. */
	assert_int_equal(wr.wr_id, id);
	return error;
}

static int post_receive(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_recv_wr wr = { .wr_id = id };
	struct ibv_recv_wr *bad = NULL;

	return ibv_post_recv(qp, &wr, &bad);
}

static int post_shared(struct ibv_srq *srq, uint64_t id)
{
	struct ibv_recv_wr wr = { .wr_id = id };
	struct ibv_recv_wr *bad = NULL;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static void expect_completion(struct rig *rig, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(rig->cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, status);
}

static void expect_none(struct rig *rig)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(rig->cq, 1, &wc), 0);
}

static void wait_drained(struct rig *rig, struct ibv_qp *qp, unsigned *flushed)
{
	struct ibv_wc wc;

	while (!verbs_nic.qp_idle(qp)) {
		int count = ibv_poll_cq(rig->cq, 1, &wc);

		*flushed += (unsigned)count;
		if (count == 0)
			sched_yield();
		else
			assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
}

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

/* The events thread acknowledges an event after it has acted on it. */
static void wait_events(struct rig *rig, unsigned count)
{
	while (kvr_load_acquire(&rig->fake->async_events_acked) < count)
		sched_yield();
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

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

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
		TEST(five_thousand_connections_leave_nothing_behind),
		TEST(events_of_another_port_are_not_ours),
		TEST(a_queue_pair_whose_address_has_gone_is_closed),
		TEST(events_of_the_port_and_the_device_are_told),
		TEST(status_shows_settings_and_what_became_of_the_port),
		TEST(an_address_whose_index_moved_is_used_at_its_new_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
