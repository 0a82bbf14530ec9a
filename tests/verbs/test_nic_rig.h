/* test_nic_rig.h - a device of the nic driver on the fake library, with a real events thread, and its queue pairs. */
#ifndef KVRAIL_TESTS_VERBS_TEST_NIC_RIG_H
#define KVRAIL_TESTS_VERBS_TEST_NIC_RIG_H

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/atomic.h"
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

static inline void count_warning(void *context, enum log_level level, const char *line)
{
	struct rig *rig = context;

	(void)line;
	if (level <= LOG_WARN)
		__atomic_fetch_add(&rig->warnings, 1, __ATOMIC_RELAXED);
}

static inline int setup(void **state)
{
	static struct rig rig;

	memset(&rig, 0, sizeof(rig));
	rig.fake = fake_verbs_of(KVRAIL_FAKE_VERBS);
	log_set_sink(count_warning, &rig);
	*state = &rig;
	return rig.fake ? 0 : -1;
}

static inline void open_rig(struct rig *rig, const struct verbs_nic_options *nic)
{
	struct verbs_open options = { .server = true };

	if (nic)
		options.nic = *nic;
	options.nic.library = KVRAIL_FAKE_VERBS;
	assert_int_equal(verbs_nic.open(&options, &rig->device), 0);
	assert_int_equal(verbs_nic.create_cq(rig->device, 256, &rig->cq), 0);
}

static inline struct ibv_qp *make_qp(struct rig *rig, struct ibv_srq *srq)
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
static inline void connect_qp(struct ibv_qp *qp, uint8_t mtu, uint8_t link_layer)
{
	struct nic_address theirs = { .qp_num = 77, .psn = 5, .lid = 9, .mtu = mtu, .link_layer = link_layer };
	uint8_t bytes[NIC_ADDRESS_BYTES];

	theirs.reads_started = 3;
	theirs.reads_answered = 4;
	theirs.gid.raw[15] = link_layer == IBV_LINK_LAYER_ETHERNET ? 0xaa : 0;
	nic_address_encode(&theirs, bytes);
	assert_int_equal(verbs_nic.qp_connect(qp, bytes, sizeof(bytes), NULL, 0, NULL), 0);
}

static inline void start_rig(struct rig *rig)
{
	open_rig(rig, NULL);
	rig->qp = make_qp(rig, NULL);
	connect_qp(rig->qp, IBV_MTU_1024, IBV_LINK_LAYER_ETHERNET);
	verbs_nic.qp_start(rig->qp);
}

static inline int teardown(void **state)
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

static inline int post(struct ibv_qp *qp, uint64_t id, unsigned flags)
{
	struct ibv_send_wr wr = { .wr_id = id, .opcode = IBV_WR_SEND, .send_flags = flags };
	struct ibv_send_wr *bad = NULL;
	int error = ibv_post_send(qp, &wr, &bad);

	/* Whoever posts gets its work request back as it was. */
	assert_int_equal(wr.wr_id, id);
	return error;
}

static inline int post_receive(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_recv_wr wr = { .wr_id = id };
	struct ibv_recv_wr *bad = NULL;

	return ibv_post_recv(qp, &wr, &bad);
}

static inline int post_shared(struct ibv_srq *srq, uint64_t id)
{
	struct ibv_recv_wr wr = { .wr_id = id };
	struct ibv_recv_wr *bad = NULL;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static inline void expect_completion(struct rig *rig, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(rig->cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, status);
}

static inline void expect_none(struct rig *rig)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(rig->cq, 1, &wc), 0);
}

static inline void wait_drained(struct rig *rig, struct ibv_qp *qp, unsigned *flushed)
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

/* The events thread acknowledges an event after it has acted on it. */
static inline void wait_events(struct rig *rig, unsigned count)
{
	while (kvr_load_acquire(&rig->fake->async_events_acked) < count)
		sched_yield();
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

#endif
