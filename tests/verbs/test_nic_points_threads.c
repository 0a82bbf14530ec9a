/*
 * test_nic_points_threads.c - the n-th failure sweep of the nic driver on a fake device: a device with its queues and memory is made, used
 * and taken apart, once for each place that can fail. The failure is told, nothing of the library's is left, and the second try succeeds.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/log.h"
#include "fake/fake_verbs.h"
#include "verbs/driver.h"
#include "verbs/nic/address.h"

#ifdef KVRAIL_FAULT_POINTS

#define DEPTH 16u

struct rig {
	struct fake_verbs *fake;
	struct verbs_device *device;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qps[2]; /* with a shared receive queue, and without */
	struct ibv_mr *mr;
	void *memory;
};

static void drop_line(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

/* 0; or the call failed because a point did, once: then it is to be tried again. */
static bool again(int error)
{
	if (error)
		assert_non_null(fault_fired());
	return error != 0;
}

static int try_open(struct rig *rig)
{
	struct verbs_open options = { .server = true };

	options.nic.library = KVRAIL_FAKE_VERBS;
	return verbs_nic.open(&options, &rig->device);
}

static int try_qp(struct rig *rig, unsigned index)
{
	struct verbs_qp_options options = { .send_cq = rig->cq, .recv_cq = rig->cq };

	options.srq = index ? NULL : rig->srq;
	options.max_send_wr = options.max_recv_wr = DEPTH;
	options.max_sge = 2;
	return verbs_nic.create_qp(rig->device, &options, &rig->qps[index]);
}

static int try_connect(struct ibv_qp *qp)
{
	struct nic_address theirs = {
		.qp_num = 77, .psn = 5, .lid = 9, .mtu = IBV_MTU_1024, .link_layer = IBV_LINK_LAYER_ETHERNET
	};
	uint8_t bytes[NIC_ADDRESS_BYTES];

	theirs.reads_started = theirs.reads_answered = 4;
	theirs.gid.raw[15] = 0xaa;
	nic_address_encode(&theirs, bytes);
	return verbs_nic.qp_connect(qp, bytes, sizeof(bytes), NULL, 0, NULL);
}

static void make(struct rig *rig)
{
	static uint8_t memory[4096];

	if (again(try_open(rig)))
		assert_int_equal(try_open(rig), 0);
	if (again(verbs_nic.create_cq(rig->device, 256, &rig->cq)))
		assert_int_equal(verbs_nic.create_cq(rig->device, 256, &rig->cq), 0);
	if (again(verbs_nic.create_srq(rig->device, DEPTH, &rig->srq)))
		assert_int_equal(verbs_nic.create_srq(rig->device, DEPTH, &rig->srq), 0);
	for (unsigned i = 0; i < 2; i++) {
		if (again(try_qp(rig, i)))
			assert_int_equal(try_qp(rig, i), 0);
	}
	if (again(verbs_nic.register_memory(rig->device, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE, &rig->mr)))
		assert_int_equal(verbs_nic.register_memory(
					 rig->device, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE, &rig->mr),
			0);
	if (again(verbs_nic.allocate(rig->device, sizeof(memory), &rig->memory)))
		assert_int_equal(verbs_nic.allocate(rig->device, sizeof(memory), &rig->memory), 0);
}

/* A queue pair whose connection failed is made anew, as its owner does. */
static void use(struct rig *rig)
{
	for (unsigned i = 0; i < 2; i++) {
		if (again(try_connect(rig->qps[i]))) {
			verbs_nic.destroy_qp(rig->qps[i]);
			assert_int_equal(try_qp(rig, i), 0);
			assert_int_equal(try_connect(rig->qps[i]), 0);
		}
		verbs_nic.qp_start(rig->qps[i]);
		/* Whoever cannot be told so is taken for failed when it is destroyed. */
		verbs_nic.qp_fail(rig->qps[i]);
	}
}

static void take_apart(struct rig *rig)
{
	for (unsigned i = 0; i < 2; i++)
		verbs_nic.destroy_qp(rig->qps[i]);
	verbs_nic.release(rig->device, rig->memory, 4096);
	assert_int_equal(verbs_nic.deregister_memory(rig->mr), 0);
	verbs_nic.destroy_srq(rig->srq);
	verbs_nic.destroy_cq(rig->cq);
	verbs_nic.close(rig->device);
	assert_int_equal(rig->fake->objects, 0);
	assert_int_equal(rig->fake->opened, rig->fake->closed);
}

static bool life(uint64_t nth)
{
	struct rig rig = { .fake = fake_verbs_of(KVRAIL_FAKE_VERBS) };
	bool fired;

	assert_non_null(rig.fake);
	fault_arm(nth);
	make(&rig);
	use(&rig);
	fired = fault_fired() != NULL;
	fault_arm(0);
	take_apart(&rig);
	return fired;
}

static void every_place_that_can_fail_fails_once_and_the_second_try_succeeds(void **state)
{
	uint64_t nth = 1;

	(void)state;
	log_set_sink(drop_line, NULL);
	while (life(nth))
		nth++;
	log_set_sink(NULL, NULL);
	assert_true(nth > 13);
}

#else

static void every_place_that_can_fail_fails_once_and_the_second_try_succeeds(void **state)
{
	(void)state;
	skip();
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_place_that_can_fail_fails_once_and_the_second_try_succeeds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
