/* What an error does to a queue pair, and how one is taken down. */
#include <errno.h>
#include <string.h>

#include "verbs/conformance_world.h"

#define SIGNALED IBV_SEND_SIGNALED
#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static bool buffered(const struct world *world)
{
	return world->harness->features & CONFORMANCE_SENDS_ARE_BUFFERED;
}

static bool blurred(const struct world *world)
{
	return world->harness->features & CONFORMANCE_BLURS_LOCAL_ERRORS;
}

static void a_message_longer_than_the_receive_fails_both_ends(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, SERVER, 128, 0);
	struct memory *target = memory_make(world, CLIENT, 128, IBV_ACCESS_LOCAL_WRITE);

	memset(source->bytes, 0x77, 128);
	assert_int_equal(post_receive(pair->qp[CLIENT], 1, target, 0, 63), 0);
	assert_int_equal(post_receive(pair->qp[CLIENT], 2, target, 64, 64), 0);
	assert_int_equal(post_send(pair->qp[SERVER], 3, source, 0, 64, SIGNALED), 0);
	world_wait(world, CLIENT, 2);
	assert_int_equal(completion_at(world, CLIENT, 0)->wr_id, 1);
	if (blurred(world))
		assert_int_not_equal(completion_at(world, CLIENT, 0)->status, IBV_WC_SUCCESS);
	else
		assert_int_equal(completion_at(world, CLIENT, 0)->status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(completion_at(world, CLIENT, 1)->wr_id, 2);
	assert_int_equal(completion_at(world, CLIENT, 1)->status, IBV_WC_WR_FLUSH_ERR);
	world_wait(world, SERVER, 1);
	if (blurred(world))
		assert_int_not_equal(completion_at(world, SERVER, 0)->status, IBV_WC_SUCCESS);
	else if (!buffered(world))
		assert_int_equal(completion_at(world, SERVER, 0)->status, IBV_WC_REM_INV_REQ_ERR);
	assert_true(bytes_are(target->bytes + 63, 65, 0));
	world_check_guards(world);
}

/* pitfalls I11 */
static void the_first_error_is_the_cause_and_the_rest_flush(void **state)
{
	enum { COUNT = 32, BAD = 16 };
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *near = memory_make(world, SERVER, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct memory *far = memory_remote(pair, 4096, REMOTE);

	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(post_receive(pair->qp[SERVER], 1000 + i, near, 0, 64), 0);
	for (uint32_t i = 0; i < COUNT; i++) {
		struct ibv_sge sge = sge_of(near, 0, 64);
		uint32_t rkey = far->rkey ^ (i == BAD ? 0x100000 : 0);

		assert_int_equal(post_transfer(pair->qp[SERVER], i, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &sge,
					 1, address_of(far, 0), rkey, SIGNALED),
			0);
	}
	world_wait(world, SERVER, COUNT + 8);
	world_settle(world);
	assert_int_equal(world->log[SERVER].count, COUNT + 8);
	expect_each_once(world, SERVER, 0, COUNT);
	expect_each_once(world, SERVER, 1000, 8);
	for (uint32_t i = 0; i < COUNT; i++) {
		enum ibv_wc_status expected = i < BAD ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR;

		assert_int_equal(completion_of(world, SERVER, i)->status, i == BAD ? IBV_WC_REM_ACCESS_ERR : expected);
	}
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(completion_of(world, SERVER, 1000 + i)->status, IBV_WC_WR_FLUSH_ERR);
}

static void silent_work_requests_speak_when_they_flush(void **state)
{
	enum { COUNT = 10 };
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *near = memory_make(world, SERVER, 64, IBV_ACCESS_LOCAL_WRITE);
	struct memory *far = memory_remote(pair, 64, REMOTE);

	for (uint32_t i = 0; i < COUNT; i++) {
		struct ibv_sge sge = sge_of(near, 0, 64);

		assert_int_equal(post_transfer(pair->qp[SERVER], i, IBV_WR_RDMA_WRITE, &sge, 1, address_of(far, 0),
					 far->rkey ^ (i == 3 ? 0x100000 : 0), 0),
			0);
	}
	world_wait(world, SERVER, COUNT - 3);
	world_settle(world);
	assert_int_equal(world->log[SERVER].count, COUNT - 3);
	expect_each_once(world, SERVER, 3, COUNT - 3);
	assert_int_equal(completion_of(world, SERVER, 3)->status, IBV_WC_REM_ACCESS_ERR);
	for (uint32_t i = 4; i < COUNT; i++)
		assert_int_equal(completion_of(world, SERVER, i)->status, IBV_WC_WR_FLUSH_ERR);
}

/* pitfalls I12: whether such a post is taken or refused, it is told once. */
static void posting_to_a_failed_queue_pair_gives_everything_back(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *near = memory_make(world, SERVER, 64, IBV_ACCESS_LOCAL_WRITE);
	uint32_t taken = 0;

	world->driver->qp_fail(pair->qp[SERVER]);
	world_settle(world);
	for (uint32_t i = 0; i < 40; i++) {
		taken += post_send(pair->qp[SERVER], i, near, 0, 8, i % 2 ? SIGNALED : 0) == 0;
		taken += post_receive(pair->qp[SERVER], 100 + i, near, 0, 8) == 0;
	}
	world_wait(world, SERVER, taken);
	world_settle(world);
	assert_int_equal(world->log[SERVER].count, taken);
	for (uint32_t i = 0; i < taken; i++) {
		assert_int_equal(completion_at(world, SERVER, i)->status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(completions_of(world, SERVER, completion_at(world, SERVER, i)->wr_id), 1);
	}
}

static void failing_an_idle_queue_pair_returns_its_receives_in_order(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *near = memory_make(world, SERVER, 64, IBV_ACCESS_LOCAL_WRITE);

	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(post_receive(pair->qp[SERVER], i, near, 0, 64), 0);
	world->driver->qp_fail(pair->qp[SERVER]);
	world->driver->qp_fail(pair->qp[SERVER]);
	world_wait(world, SERVER, 16);
	world_settle(world);
	assert_int_equal(world->log[SERVER].count, 16);
	expect_each_once(world, SERVER, 0, 16);
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(completion_at(world, SERVER, i)->status, IBV_WC_WR_FLUSH_ERR);
}

static void a_queue_pair_at_work_is_not_idle(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);

	assert_false(world->driver->qp_idle(pair->qp[SERVER]));
	world_settle(world);
	assert_false(world->driver->qp_idle(pair->qp[SERVER]));
	world->driver->qp_fail(pair->qp[SERVER]);
	pair_wait_idle(pair, SERVER);
	assert_true(world->driver->qp_idle(pair->qp[SERVER]));
}

/* 64 transfers in both directions, more than can be done at once. */
static void post_many(struct pair *pair, struct memory *near, struct memory *far, uint32_t bytes)
{
	for (uint32_t i = 0; i < 64; i++) {
		struct ibv_sge sge = sge_of(near, (uint64_t)i * bytes, bytes);

		assert_int_equal(post_transfer(pair->qp[SERVER], i, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &sge,
					 1, address_of(far, (uint64_t)i * bytes), far->rkey, SIGNALED),
			0);
	}
}

static bool all_returned(struct world *world, enum side side, uint32_t count)
{
	return world->log[side].count >= count;
}

/* Fails the server's side after `turns` rounds, takes it down, and uses all the memory for something else. */
static void fail_after(struct world *world, uint32_t turns)
{
	enum { BYTES = 20011 };
	struct pair *pair = pair_make(world, NULL);
	struct memory *near = memory_make(world, SERVER, 64 * BYTES, IBV_ACCESS_LOCAL_WRITE);
	struct memory *far = memory_remote(pair, 64 * BYTES, REMOTE);
	uint32_t before = world->log[SERVER].count, number = pair->qp[SERVER]->qp_num;

	post_many(pair, near, far, BYTES);
	for (uint32_t i = 0; i < turns; i++)
		world_round(world);
	world->driver->qp_fail(pair->qp[SERVER]);
	for (uint32_t i = 0; !all_returned(world, SERVER, before + 64); i++) {
		assert_true(i < world->harness->patience_rounds);
		world_round(world);
	}
	pair_end(pair, SERVER);

	/* pitfalls C05: idle meant that nothing touches it any more, registered or not. */
	memset(near->bytes, 0x5a, near->length);
	memset(far->bytes, 0x5a, far->length);
	world_settle(world);
	assert_true(bytes_are(near->bytes, near->length, 0x5a));
	assert_true(bytes_are(far->bytes, far->length, 0x5a));
	/* pitfalls C09: nothing is heard of it after the stop. */
	assert_int_equal(world->log[SERVER].count, before + 64);
	for (uint32_t i = 0; i < 64; i++) {
		const struct ibv_wc *wc = completion_at(world, SERVER, before + i);

		assert_int_equal(wc->wr_id, i);
		assert_int_equal(wc->qp_num, number);
		assert_true(wc->status == IBV_WC_SUCCESS || wc->status == IBV_WC_WR_FLUSH_ERR);
	}
	world_check_guards(world);
}

/* pitfalls C05, C08, C09 */
static void failing_with_64_outstanding_returns_all_and_lets_go_of_memory(void **state)
{
	static const uint32_t turns[] = { 0, 1, 2, 3, 5, 8, 13, 30, 100 };

	for (uint32_t i = 0; i < KVR_COUNT_OF(turns); i++)
		fail_after(*state, turns[i]);
}

/* pitfalls C08: an error of its own while much is outstanding. */
static void an_error_with_64_outstanding_returns_all(void **state)
{
	enum { BYTES = 5003 };
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *near = memory_make(world, SERVER, 64 * BYTES, IBV_ACCESS_LOCAL_WRITE);
	struct memory *far = memory_remote(pair, 64 * BYTES, REMOTE);
	uint32_t causes = 0;

	for (uint32_t i = 0; i < 64; i++) {
		struct ibv_sge sge = sge_of(near, (uint64_t)i * BYTES, BYTES);

		assert_int_equal(
			post_transfer(pair->qp[SERVER], i, IBV_WR_RDMA_WRITE, &sge, 1,
				address_of(far, (uint64_t)i * BYTES), far->rkey ^ (i >= 40 ? 0x100000 : 0), SIGNALED),
			0);
	}
	world_wait(world, SERVER, 64);
	pair_end(pair, SERVER);
	expect_each_once(world, SERVER, 0, 64);
	for (uint32_t i = 0; i < 64; i++) {
		enum ibv_wc_status status = completion_of(world, SERVER, i)->status;

		assert_true(i < 40 ? status == IBV_WC_SUCCESS : status != IBV_WC_SUCCESS);
		causes += status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR;
	}
	assert_int_equal(causes, 1);
	assert_true(bytes_are(far->bytes + (uint64_t)40 * BYTES, (uint64_t)24 * BYTES, 0));
}

/* The other end goes first, in the middle of its work. */
static void a_peer_that_is_taken_down_leaves_no_loose_ends(void **state)
{
	enum { BYTES = 20011 };
	struct world *world = *state;

	for (uint32_t turns = 0; turns < 12; turns += 3) {
		struct pair *pair = pair_make(world, NULL);
		struct memory *near = memory_make(world, SERVER, 64 * BYTES, IBV_ACCESS_LOCAL_WRITE);
		struct memory *far = memory_remote(pair, 64 * BYTES, REMOTE);
		uint32_t before = world->log[SERVER].count;

		post_many(pair, near, far, BYTES);
		for (uint32_t i = 0; i < turns; i++)
			world_round(world);
		pair_end(pair, CLIENT);
		if (!(world->harness->features & CONFORMANCE_NOTICES_A_LOST_PEER)) {
			for (uint32_t i = 0; i < 100; i++)
				world_round(world);
			world->driver->qp_fail(pair->qp[SERVER]);
		}
		world_wait(world, SERVER, before + 64);
		pair_end(pair, SERVER);
		world_settle(world);
		assert_int_equal(world->log[SERVER].count, before + 64);
		for (uint32_t i = 0; i < 64; i++)
			assert_int_equal(completion_at(world, SERVER, before + i)->wr_id, i);
		world_check_guards(world);
	}
}

/* pitfalls I03: an error is the end of that queue pair alone. */
static void a_new_pair_works_where_another_has_failed(void **state)
{
	struct world *world = *state;
	struct memory *source = memory_make(world, SERVER, 64, 0);

	for (uint32_t i = 0; i < 20; i++) {
		struct pair *pair = pair_make(world, NULL);
		struct memory *target = memory_remote(pair, 64, REMOTE);
		struct ibv_sge sge = sge_of(source, 0, 64);
		uint32_t before = world->log[SERVER].count;

		pattern_fill(source->bytes, 64, i);
		assert_int_equal(post_transfer(pair->qp[SERVER], 10 * i, IBV_WR_RDMA_WRITE, &sge, 1,
					 address_of(target, 0), target->rkey, SIGNALED),
			0);
		assert_int_equal(post_transfer(pair->qp[SERVER], 10 * i + 1, IBV_WR_RDMA_WRITE, &sge, 1,
					 address_of(target, 0), ~target->rkey, SIGNALED),
			0);
		world_wait(world, SERVER, before + 2);
		expect_success(world, SERVER, 10 * i);
		assert_int_equal(completion_of(world, SERVER, 10 * i + 1)->status, IBV_WC_REM_ACCESS_ERR);
		assert_true(pattern_is(target->bytes, 64, i));
		pair_end(pair, SERVER);
		pair_end(pair, CLIENT);
	}
}

static void one_queue_pair_fails_and_the_others_go_on(void **state)
{
	struct world *world = *state;
	struct pair *pairs[3];
	struct memory *source = memory_make(world, SERVER, 64, 0);
	struct memory *target[3];
	struct ibv_sge sge = sge_of(source, 0, 64);

	for (uint32_t i = 0; i < 3; i++) {
		pairs[i] = pair_make(world, NULL);
		target[i] = memory_remote(pairs[i], 64, REMOTE);
	}
	pattern_fill(source->bytes, 64, 1);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(post_transfer(pairs[i]->qp[SERVER], i, IBV_WR_RDMA_WRITE, &sge, 1,
					 address_of(target[i], 0), target[i]->rkey ^ (i == 1 ? 0x100000 : 0), SIGNALED),
			0);
	world_wait(world, SERVER, 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(
			completion_of(world, SERVER, i)->status, i == 1 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < 3; i += 2) {
		assert_true(pattern_is(target[i]->bytes, 64, 1));
		assert_int_equal(post_transfer(pairs[i]->qp[SERVER], 10 + i, IBV_WR_RDMA_WRITE, &sge, 1,
					 address_of(target[i], 0), target[i]->rkey, SIGNALED),
			0);
	}
	world_wait(world, SERVER, 5);
	expect_success(world, SERVER, 10);
	expect_success(world, SERVER, 12);
}

static const struct CMUnitTest cases[] = {
	CASE(a_message_longer_than_the_receive_fails_both_ends),
	CASE(the_first_error_is_the_cause_and_the_rest_flush),
	CASE(silent_work_requests_speak_when_they_flush),
	CASE(posting_to_a_failed_queue_pair_gives_everything_back),
	CASE(failing_an_idle_queue_pair_returns_its_receives_in_order),
	CASE(a_queue_pair_at_work_is_not_idle),
	CASE(failing_with_64_outstanding_returns_all_and_lets_go_of_memory),
	CASE(an_error_with_64_outstanding_returns_all),
	CASE(a_peer_that_is_taken_down_leaves_no_loose_ends),
	CASE(a_new_pair_works_where_another_has_failed),
	CASE(one_queue_pair_fails_and_the_others_go_on),
};

const struct case_table conformance_error_cases = { cases, KVR_COUNT_OF(cases) };
