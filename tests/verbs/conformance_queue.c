/* Queues: room, order, silence, fairness, waking. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "verbs/conformance_world.h"

#define SIGNALED IBV_SEND_SIGNALED

static void post_receives(struct ibv_qp *qp, struct memory *target, uint64_t first_id, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(post_receive(qp, first_id + i, target, 0, 64), 0);
}

/* pitfalls I16 */
static void unsignalled_work_requests_complete_silently(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, SERVER, 64, 0);
	struct memory *target = memory_make(world, CLIENT, 64, IBV_ACCESS_LOCAL_WRITE);
	uint32_t signalled = 0;

	/* Many times the queue's depth: the room of silent ones comes back with the next signalled one. */
	for (uint32_t i = 0; i < 640; i++) {
		bool last = i % 16 == 15;

		post_receives(pair->qp[CLIENT], target, i, 1);
		assert_int_equal(post_send(pair->qp[SERVER], 1000 + i, source, 0, 8, last ? SIGNALED : 0), 0);
		if (last) {
			world_wait(world, SERVER, ++signalled);
			world_wait(world, CLIENT, i + 1);
		}
	}
	world_settle(world);
	assert_int_equal(world->log[SERVER].count, 40);
	for (uint32_t i = 15; i < 640; i += 16)
		expect_success(world, SERVER, 1000 + i);
	expect_each_once(world, CLIENT, 0, 640);
}

/* pitfalls I16 */
static void a_full_send_queue_refuses_and_loses_nothing(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, SERVER, 64, 0);
	struct memory *target = memory_make(world, CLIENT, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_sge sge = sge_of(source, 0, 64);
	uint32_t posted = 0;
	int error;

	memory_import(target, pair);
	world->held[SERVER] = true;
	do {
		error = post_transfer(pair->qp[SERVER], posted, IBV_WR_RDMA_WRITE, &sge, 1,
			address_of(target, (uint64_t)posted % 64 * 64), target->rkey, SIGNALED);
		posted += error == 0;
	} while (error == 0 && posted < 4096);
	assert_int_equal(error, ENOMEM);
	assert_true(posted >= 64);
	/* Room comes back with polling, not before. */
	for (int turns = 0; turns < 50; turns++)
		world_round(world);
	assert_int_equal(post_transfer(pair->qp[SERVER], posted, IBV_WR_RDMA_WRITE, &sge, 1, address_of(target, 0),
				 target->rkey, SIGNALED),
		ENOMEM);
	world->held[SERVER] = false;
	world_wait(world, SERVER, posted);
	assert_int_equal(post_transfer(pair->qp[SERVER], posted, IBV_WR_RDMA_WRITE, &sge, 1, address_of(target, 0),
				 target->rkey, SIGNALED),
		0);
	world_wait(world, SERVER, posted + 1);
	world_settle(world);
	expect_each_once(world, SERVER, 0, posted + 1);
	for (uint32_t i = 0; i <= posted; i++)
		expect_success(world, SERVER, i);
}

static void a_chain_is_posted_up_to_the_bad_one(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, SERVER, 64, 0);
	struct memory *target = memory_make(world, CLIENT, 64, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = sge_of(source, 0, 8);
	struct ibv_send_wr wrs[4] = { { 0 } };
	struct ibv_send_wr *bad = NULL;

	post_receives(pair->qp[CLIENT], target, 0, 4);
	for (uint32_t i = 0; i < 4; i++) {
		wrs[i].wr_id = i;
		wrs[i].next = i < 3 ? &wrs[i + 1] : NULL;
		wrs[i].sg_list = &sge;
		wrs[i].num_sge = 1;
		wrs[i].opcode = i == 2 ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_SEND;
		wrs[i].send_flags = SIGNALED;
	}
	assert_int_equal(ibv_post_send(pair->qp[SERVER], wrs, &bad), EINVAL);
	assert_ptr_equal(bad, &wrs[2]);
	world_wait(world, SERVER, 2);
	world_settle(world);
	expect_each_once(world, SERVER, 0, 2);
	assert_int_equal(world->log[SERVER].count, 2);
	assert_int_equal(world->log[CLIENT].count, 2);
}

static void bad_parameters_are_refused_at_the_post(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, SERVER, 8192, 0);
	struct memory *target = memory_make(world, CLIENT, 8192, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sges[256];
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = sges, .num_sge = 256 };
	struct ibv_recv_wr *bad = NULL;

	for (uint32_t i = 0; i < 256; i++)
		sges[i] = sge_of(source, i, 1);
	assert_int_equal(post_transfer(pair->qp[SERVER], 1, IBV_WR_SEND, sges, 256, 0, 0, SIGNALED), EINVAL);
	assert_int_equal(post_transfer(pair->qp[SERVER], 1, IBV_WR_SEND, sges, -1, 0, 0, SIGNALED), EINVAL);
	assert_int_equal(post_transfer(pair->qp[SERVER], 1, IBV_WR_LOCAL_INV, sges, 1, 0, 0, SIGNALED), EINVAL);
	assert_int_not_equal(post_send(pair->qp[SERVER], 1, source, 0, 8192, SIGNALED | IBV_SEND_INLINE), 0);
	assert_int_equal(ibv_post_recv(pair->qp[CLIENT], &receive, &bad), EINVAL);
	assert_ptr_equal(bad, &receive);
	/* Nothing of it was queued, and the queue pair works on. */
	post_receives(pair->qp[CLIENT], target, 5, 1);
	assert_int_equal(post_send(pair->qp[SERVER], 6, source, 0, 64, SIGNALED), 0);
	world_wait(world, CLIENT, 1);
	world_settle(world);
	assert_int_equal(world->log[SERVER].count, 1);
	assert_int_equal(world->log[CLIENT].count, 1);
	expect_success(world, SERVER, 6);
	expect_success(world, CLIENT, 5);
}

static void a_full_receive_queue_refuses(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *target = memory_make(world, CLIENT, 64, IBV_ACCESS_LOCAL_WRITE);
	struct memory *source = memory_make(world, SERVER, 64, 0);
	uint32_t posted = 0;
	int error;

	while (!(error = post_receive(pair->qp[CLIENT], posted, target, 0, 64)) && posted < 4096)
		posted++;
	assert_int_equal(error, ENOMEM);
	assert_true(posted >= 64);
	assert_int_equal(post_send(pair->qp[SERVER], 1, source, 0, 64, SIGNALED), 0);
	world_wait(world, CLIENT, 1);
	assert_int_equal(post_receive(pair->qp[CLIENT], posted, target, 0, 64), 0);
}

static void a_send_in_the_init_state_is_refused(void **state)
{
	struct world *world = *state;
	struct pair_options options;
	struct memory *source = memory_make(world, SERVER, 64, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp *qp;

	pair_defaults(&options);
	qp = qp_make(world, SERVER, &options);
	assert_int_equal(post_send(qp, 1, source, 0, 8, SIGNALED), EINVAL);
	/* A receive is allowed there, and one that is never used goes with the queue pair. */
	assert_int_equal(post_receive(qp, 2, source, 0, 8), 0);
	world->driver->destroy_qp(qp);
	world_settle(world);
	assert_int_equal(world->log[SERVER].count, 0);
}

/* Each of the queue pairs keeps the same number of SENDs in flight: none may fall far behind. */
static void many_queue_pairs_on_one_completion_queue_share_it(void **state)
{
	enum { PAIRS = 16, SENDS = 200, DEPTH = 8 };
	struct world *world = *state;
	struct pair *pairs[PAIRS];
	struct memory *source = memory_make(world, CLIENT, 64, 0);
	struct memory *target = memory_make(world, SERVER, 64, IBV_ACCESS_LOCAL_WRITE);
	uint32_t sent[PAIRS] = { 0 }, done[PAIRS] = { 0 }, seen = 0, received = 0, first_done = 0;

	for (uint32_t i = 0; i < PAIRS; i++) {
		pairs[i] = pair_make(world, NULL);
		post_receives(pairs[i]->qp[SERVER], target, i, DEPTH * 2);
	}
	/* post_receives numbers from i on: the number is not looked at, the queue pair is. */
	for (uint32_t turns = 0; !first_done; turns++) {
		assert_true(turns < world->harness->patience_rounds);
		for (uint32_t i = 0; i < PAIRS; i++) {
			while (sent[i] < SENDS && sent[i] - done[i] < DEPTH) {
				assert_int_equal(post_send(pairs[i]->qp[CLIENT], i, source, 0, 64, SIGNALED), 0);
				sent[i]++;
			}
		}
		world_round(world);
		for (; seen < world->log[CLIENT].count; seen++) {
			const struct ibv_wc *wc = completion_at(world, CLIENT, seen);

			assert_int_equal(wc->status, IBV_WC_SUCCESS);
			if (++done[wc->wr_id] == SENDS)
				first_done = 1;
		}
		for (; received < world->log[SERVER].count; received++) {
			const struct ibv_wc *wc = completion_at(world, SERVER, received);

			for (uint32_t i = 0; i < PAIRS; i++) {
				if (pairs[i]->qp[SERVER]->qp_num == wc->qp_num)
					post_receives(pairs[i]->qp[SERVER], target, i, 1);
			}
		}
	}
	for (uint32_t i = 0; i < PAIRS; i++)
		assert_true(done[i] >= SENDS / 4);
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd entry = { .fd = fd, .events = POLLIN };

	return poll(&entry, 1, timeout_ms) == 1;
}

/* pitfalls I13: what came between the last poll and arming is found by the poll after arming. */
static void a_completion_before_arming_is_found_by_the_next_poll(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, CLIENT, 64, 0);
	struct memory *target = memory_make(world, SERVER, 64, IBV_ACCESS_LOCAL_WRITE);

	for (uint32_t i = 0; i < 100; i++) {
		post_receives(pair->qp[SERVER], target, i, 1);
		world_poll(world, SERVER);
		world->held[SERVER] = true;
		assert_int_equal(post_send(pair->qp[CLIENT], i, source, 0, 8, SIGNALED), 0);
		for (int turns = 0; turns < 20; turns++)
			world_round(world);
		assert_int_equal(ibv_req_notify_cq(world->cq[SERVER], 0), 0);
		world->held[SERVER] = false;
		world_wait(world, SERVER, i + 1);
		world_wait(world, CLIENT, i + 1);
	}
	expect_each_once(world, SERVER, 0, 100);
}

/* pitfalls I13: what comes after arming and the poll behind it makes the descriptor readable, each time. */
static void a_completion_after_arming_wakes(void **state)
{
	struct world *world = *state;
	int fd = world->driver->cq_event_fd(world->cq[SERVER]);
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, CLIENT, 64, 0);
	struct memory *target = memory_make(world, SERVER, 64, IBV_ACCESS_LOCAL_WRITE);

	if (fd < 0)
		skip();
	for (uint32_t i = 0; i < 100; i++) {
		post_receives(pair->qp[SERVER], target, i, 1);
		world_settle(world);
		assert_int_equal(ibv_req_notify_cq(world->cq[SERVER], 0), 0);
		assert_int_equal(world_poll(world, SERVER), 0);
		assert_int_equal(post_send(pair->qp[CLIENT], i, source, 0, 8, SIGNALED), 0);
		world->held[SERVER] = true;
		for (int turns = 0; turns < 20; turns++)
			world_round(world);
		/* The bound is only there so that a lost wake-up ends the test. */
		assert_true(readable(fd, 10000));
		world->driver->cq_clear_event(world->cq[SERVER]);
		world->held[SERVER] = false;
		world_wait(world, SERVER, i + 1);
		world_wait(world, CLIENT, i + 1);
		assert_false(readable(fd, 0));
	}
	expect_each_once(world, SERVER, 0, 100);
}

static const struct CMUnitTest cases[] = {
	CASE(unsignalled_work_requests_complete_silently),
	CASE(a_full_send_queue_refuses_and_loses_nothing),
	CASE(a_chain_is_posted_up_to_the_bad_one),
	CASE(bad_parameters_are_refused_at_the_post),
	CASE(a_full_receive_queue_refuses),
	CASE(a_send_in_the_init_state_is_refused),
	CASE(many_queue_pairs_on_one_completion_queue_share_it),
	CASE(a_completion_before_arming_is_found_by_the_next_poll),
	CASE(a_completion_after_arming_wakes),
};

const struct case_table conformance_queue_cases = { cases, KVR_COUNT_OF(cases) };
