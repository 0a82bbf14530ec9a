/* RDMA WRITE and READ: bytes, order, silence. Posted on the server's side. */
#include <string.h>

#include "base/random.h"
#include "verbs/conformance_world.h"

#define SIGNALED IBV_SEND_SIGNALED
#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static int write_to(struct pair *pair, uint64_t id, struct memory *source, uint64_t from, uint32_t length,
	struct memory *target, uint64_t to, unsigned flags)
{
	struct ibv_sge sge = sge_of(source, from, length);

	return post_transfer(
		pair->qp[SERVER], id, IBV_WR_RDMA_WRITE, &sge, 1, address_of(target, to), target->rkey, flags);
}

static int read_from(struct pair *pair, uint64_t id, struct memory *target, uint64_t to, uint32_t length,
	struct memory *source, uint64_t from, unsigned flags)
{
	struct ibv_sge sge = sge_of(target, to, length);

	return post_transfer(
		pair->qp[SERVER], id, IBV_WR_RDMA_READ, &sge, 1, address_of(source, from), source->rkey, flags);
}

static void a_write_gathers_into_one_range(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, SERVER, 4096, 0);
	struct memory *target = memory_remote(pair, 4096, REMOTE);
	struct ibv_sge sges[4] = { sge_of(source, 3000, 1000), sge_of(source, 0, 1), sge_of(source, 500, 333),
		sge_of(source, 7, 64) };
	uint8_t expected[4096] = { 0 };

	pattern_fill(source->bytes, 4096, 1);
	assert_int_equal(post_transfer(pair->qp[SERVER], 1, IBV_WR_RDMA_WRITE, sges, 4, address_of(target, 129),
				 target->rkey, SIGNALED),
		0);
	world_wait(world, SERVER, 1);
	expect_success(world, SERVER, 1);
	assert_int_equal(completion_at(world, SERVER, 0)->opcode, IBV_WC_RDMA_WRITE);
	memcpy(expected + 129, source->bytes + 3000, 1000);
	memcpy(expected + 1129, source->bytes, 1);
	memcpy(expected + 1130, source->bytes + 500, 333);
	memcpy(expected + 1463, source->bytes + 7, 64);
	assert_memory_equal(target->bytes, expected, 4096);
	assert_true(pattern_is(source->bytes, 4096, 1));
	world_settle(world);
	assert_int_equal(world->log[CLIENT].count, 0);
	world_check_guards(world);
}

static void a_read_scatters_from_one_range(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *target = memory_make(world, SERVER, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct memory *source = memory_remote(pair, 4096, REMOTE);
	struct ibv_sge sges[4] = { sge_of(target, 4000, 96), sge_of(target, 5, 1), sge_of(target, 100, 777),
		sge_of(target, 1001, 2048) };
	uint8_t expected[4096] = { 0 };

	pattern_fill(source->bytes, 4096, 2);
	assert_int_equal(post_transfer(pair->qp[SERVER], 1, IBV_WR_RDMA_READ, sges, 4, address_of(source, 33),
				 source->rkey, SIGNALED),
		0);
	world_wait(world, SERVER, 1);
	expect_success(world, SERVER, 1);
	assert_int_equal(completion_at(world, SERVER, 0)->opcode, IBV_WC_RDMA_READ);
	memcpy(expected + 4000, source->bytes + 33, 96);
	memcpy(expected + 5, source->bytes + 129, 1);
	memcpy(expected + 100, source->bytes + 130, 777);
	memcpy(expected + 1001, source->bytes + 907, 2048);
	assert_memory_equal(target->bytes, expected, 4096);
	assert_true(pattern_is(source->bytes, 4096, 2));
	world_check_guards(world);
}

static void large_transfers_at_odd_places_are_exact(void **state)
{
	enum { REGION = 5 << 20, LENGTH = (4 << 20) + 4099 };
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *near = memory_make(world, SERVER, REGION, IBV_ACCESS_LOCAL_WRITE);
	struct memory *far = memory_remote(pair, REGION, REMOTE);

	pattern_fill(near->bytes + 13, LENGTH, 1);
	assert_int_equal(write_to(pair, 1, near, 13, LENGTH, far, 1021, SIGNALED), 0);
	world_wait(world, SERVER, 1);
	expect_success(world, SERVER, 1);
	assert_true(pattern_is(far->bytes + 1021, LENGTH, 1));
	assert_true(bytes_are(far->bytes, 1021, 0));
	assert_true(bytes_are(far->bytes + 1021 + LENGTH, REGION - 1021 - LENGTH, 0));

	memset(near->bytes, 0, REGION);
	assert_int_equal(read_from(pair, 2, near, 7, LENGTH, far, 1021, SIGNALED), 0);
	world_wait(world, SERVER, 2);
	expect_success(world, SERVER, 2);
	assert_true(pattern_is(near->bytes + 7, LENGTH, 1));
	assert_true(bytes_are(near->bytes, 7, 0));
	assert_true(bytes_are(near->bytes + 7 + LENGTH, REGION - 7 - LENGTH, 0));
	world_check_guards(world);
}

static void random_transfers_are_exact(void **state)
{
	enum { REGION = 1 << 16, TRANSFERS = 300 };
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *near = memory_make(world, SERVER, REGION, IBV_ACCESS_LOCAL_WRITE);
	struct memory *far = memory_remote(pair, REGION, REMOTE);
	static uint8_t expected_near[REGION], expected_far[REGION];
	struct random random;

	random_init(&random, 11);
	pattern_fill(near->bytes, REGION, 1);
	pattern_fill(far->bytes, REGION, 2);
	memcpy(expected_near, near->bytes, REGION);
	memcpy(expected_far, far->bytes, REGION);
	for (uint32_t i = 0; i < TRANSFERS; i++) {
		uint32_t length = 1 + (uint32_t)random_below(&random, REGION / 4);
		uint64_t here = random_below(&random, REGION - length + 1);
		uint64_t there = random_below(&random, REGION - length + 1);

		if (random_chance(&random, 1, 2)) {
			assert_int_equal(write_to(pair, i, near, here, length, far, there, SIGNALED), 0);
			memcpy(expected_far + there, expected_near + here, length);
		} else {
			assert_int_equal(read_from(pair, i, near, here, length, far, there, SIGNALED), 0);
			memcpy(expected_near + here, expected_far + there, length);
		}
		world_wait(world, SERVER, i + 1);
	}
	assert_memory_equal(near->bytes, expected_near, REGION);
	assert_memory_equal(far->bytes, expected_far, REGION);
	expect_each_once(world, SERVER, 0, TRANSFERS);
	world_check_guards(world);
}

static void a_send_behind_writes_is_received_when_their_bytes_are_there(void **state)
{
	enum { WRITES = 24, BYTES = 3000, ROUNDS = 12 };
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, SERVER, WRITES * BYTES, 0);
	struct memory *target = memory_remote(pair, WRITES * BYTES, REMOTE);
	struct memory *message = memory_make(world, CLIENT, 64, IBV_ACCESS_LOCAL_WRITE);

	for (uint32_t round = 0; round < ROUNDS; round++) {
		pattern_fill(source->bytes, WRITES * BYTES, round);
		assert_int_equal(post_receive(pair->qp[CLIENT], round, message, 0, 64), 0);
		for (uint32_t i = 0; i < WRITES; i++)
			assert_int_equal(write_to(pair, i, source, (uint64_t)i * BYTES, BYTES, target,
						 (uint64_t)(WRITES - 1 - i) * BYTES, 0),
				0);
		assert_int_equal(post_send(pair->qp[SERVER], 100 + round, source, 0, 8, SIGNALED), 0);
		world_wait(world, CLIENT, round + 1);
		for (uint32_t i = 0; i < WRITES; i++)
			assert_memory_equal(target->bytes + (uint64_t)(WRITES - 1 - i) * BYTES,
				source->bytes + (uint64_t)i * BYTES, BYTES);
		world_wait(world, SERVER, round + 1);
	}
	expect_each_once(world, SERVER, 100, ROUNDS);
}

/* A flag behind the data: whoever sees it may read the data. */
static void a_write_does_not_overtake_the_writes_before_it(void **state)
{
	enum { BYTES = 20000, ROUNDS = 12 };
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, SERVER, BYTES + 8, 0);
	struct memory *target = memory_remote(pair, BYTES + 8, REMOTE);

	for (uint32_t round = 1; round <= ROUNDS; round++) {
		uint32_t turns = 0;

		pattern_fill(source->bytes, BYTES, round);
		source->bytes[BYTES] = (uint8_t)round;
		assert_int_equal(write_to(pair, 2 * round, source, 0, BYTES / 2, target, 0, 0), 0);
		assert_int_equal(write_to(pair, 2 * round, source, BYTES / 2, BYTES / 2, target, BYTES / 2, 0), 0);
		assert_int_equal(write_to(pair, 2 * round + 1, source, BYTES, 1, target, BYTES, SIGNALED), 0);
		while (target->bytes[BYTES] != round) {
			assert_true(turns++ < world->harness->patience_rounds);
			world_round(world);
		}
		assert_true(pattern_is(target->bytes, BYTES, round));
		world_wait(world, SERVER, round);
	}
}

static void a_read_sees_the_writes_before_it(void **state)
{
	enum { BYTES = 10000, ROUNDS = 12 };
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, SERVER, BYTES, 0);
	struct memory *back = memory_make(world, SERVER, BYTES, IBV_ACCESS_LOCAL_WRITE);
	struct memory *far = memory_remote(pair, BYTES, REMOTE);

	for (uint32_t round = 0; round < ROUNDS; round++) {
		pattern_fill(source->bytes, BYTES, round);
		assert_int_equal(write_to(pair, 1, source, 0, BYTES, far, 0, 0), 0);
		assert_int_equal(read_from(pair, 2, back, 0, BYTES, far, 0, SIGNALED), 0);
		world_wait(world, SERVER, round + 1);
		assert_true(pattern_is(back->bytes, BYTES, round));
	}
}

static void a_fence_holds_back_what_would_overtake_a_read(void **state)
{
	enum { BYTES = 10000, ROUNDS = 12 };
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, SERVER, BYTES, 0);
	struct memory *back = memory_make(world, SERVER, BYTES, IBV_ACCESS_LOCAL_WRITE);
	struct memory *far = memory_remote(pair, BYTES, REMOTE);

	for (uint32_t round = 0; round < ROUNDS; round++) {
		pattern_fill(far->bytes, BYTES, round);
		pattern_fill(source->bytes, BYTES, 1000 + round);
		assert_int_equal(read_from(pair, 1, back, 0, BYTES, far, 0, 0), 0);
		assert_int_equal(write_to(pair, 2, source, 0, BYTES, far, 0, SIGNALED | IBV_SEND_FENCE), 0);
		world_wait(world, SERVER, round + 1);
		assert_true(pattern_is(back->bytes, BYTES, round));
		assert_true(pattern_is(far->bytes, BYTES, 1000 + round));
	}
}

/* pitfalls I17: whatever the limits of outstanding READs are, waiting for one ends. */
static void more_reads_than_may_be_outstanding_all_complete(void **state)
{
	struct world *world = *state;
	struct pair *pair;
	struct memory *target = memory_make(world, SERVER, 64 * 128, IBV_ACCESS_LOCAL_WRITE);
	struct memory *source;

	world->base.server->limits.max_rd_atomic = 1;
	pair = pair_make(world, NULL);
	source = memory_remote(pair, 64 * 128, REMOTE);
	pattern_fill(source->bytes, 64 * 128, 3);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(
			read_from(pair, i, target, (uint64_t)i * 128, 128, source, (uint64_t)i * 128, SIGNALED), 0);
	world_wait(world, SERVER, 64);
	expect_each_once(world, SERVER, 0, 64);
	assert_true(pattern_is(target->bytes, 64 * 128, 3));
}

static void transfers_of_no_bytes_complete(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *near = memory_make(world, SERVER, 64, IBV_ACCESS_LOCAL_WRITE);
	struct memory *far = memory_remote(pair, 64, REMOTE);

	/* pitfalls K08: at the very end of the region, where a byte more would be outside. */
	assert_int_equal(post_transfer(pair->qp[SERVER], 1, IBV_WR_RDMA_WRITE, NULL, 0, address_of(far, 64), far->rkey,
				 SIGNALED),
		0);
	assert_int_equal(
		post_transfer(pair->qp[SERVER], 2, IBV_WR_RDMA_READ, NULL, 0, address_of(far, 0), far->rkey, SIGNALED),
		0);
	assert_int_equal(write_to(pair, 3, near, 0, 64, far, 0, SIGNALED), 0);
	world_wait(world, SERVER, 3);
	expect_each_once(world, SERVER, 1, 3);
	for (uint64_t id = 1; id <= 3; id++)
		expect_success(world, SERVER, id);
	world_check_guards(world);
}

static void the_last_of_a_silent_batch_speaks_for_all(void **state)
{
	enum { ROUNDS = 20, BATCH = 32 };
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, SERVER, BATCH * 512, 0);
	struct memory *target = memory_remote(pair, BATCH * 512, REMOTE);

	for (uint32_t round = 0; round < ROUNDS; round++) {
		pattern_fill(source->bytes, BATCH * 512, round);
		for (uint32_t i = 0; i < BATCH; i++)
			assert_int_equal(write_to(pair, (uint64_t)round * BATCH + i, source, (uint64_t)i * 512, 512,
						 target, (uint64_t)i * 512, i == BATCH - 1 ? SIGNALED : 0),
				0);
		world_wait(world, SERVER, round + 1);
		assert_true(pattern_is(target->bytes, BATCH * 512, round));
	}
	world_settle(world);
	assert_int_equal(world->log[SERVER].count, ROUNDS);
}

static void an_inline_write_takes_its_bytes_at_the_post(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *target = memory_remote(pair, 64, REMOTE);
	uint8_t bytes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	uint8_t expected[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct ibv_sge sge = { .addr = (uintptr_t)bytes, .length = sizeof(bytes) };

	assert_int_equal(post_transfer(pair->qp[SERVER], 1, IBV_WR_RDMA_WRITE, &sge, 1, address_of(target, 3),
				 target->rkey, SIGNALED | IBV_SEND_INLINE),
		0);
	memset(bytes, 0xee, sizeof(bytes));
	world_wait(world, SERVER, 1);
	expect_success(world, SERVER, 1);
	assert_memory_equal(target->bytes + 3, expected, sizeof(expected));
	assert_true(bytes_are(target->bytes + 11, 53, 0));
}

/* One queue pair moves much, others little at the same time; all bytes come to their places. */
static void transfers_of_many_queue_pairs_do_not_mix(void **state)
{
	enum { PAIRS = 8, BYTES = 100003 };
	struct world *world = *state;
	struct pair *pairs[PAIRS];
	struct memory *source[PAIRS], *target[PAIRS];

	for (uint32_t i = 0; i < PAIRS; i++) {
		pairs[i] = pair_make(world, NULL);
		source[i] = memory_make(world, SERVER, BYTES, 0);
		target[i] = memory_remote(pairs[i], BYTES, REMOTE);
		pattern_fill(source[i]->bytes, BYTES, i);
	}
	for (uint32_t i = 0; i < PAIRS; i++)
		assert_int_equal(write_to(pairs[i], i, source[i], 0, i % 2 ? BYTES : 17, target[i], 0, SIGNALED), 0);
	world_wait(world, SERVER, PAIRS);
	for (uint32_t i = 0; i < PAIRS; i++) {
		uint32_t length = i % 2 ? BYTES : 17;

		expect_success(world, SERVER, i);
		assert_int_equal(completion_of(world, SERVER, i)->qp_num, pairs[i]->qp[SERVER]->qp_num);
		assert_true(pattern_is(target[i]->bytes, length, i));
		assert_true(bytes_are(target[i]->bytes + length, BYTES - length, 0));
	}
	world_check_guards(world);
}

static const struct CMUnitTest cases[] = {
	CASE(a_write_gathers_into_one_range),
	CASE(a_read_scatters_from_one_range),
	CASE(large_transfers_at_odd_places_are_exact),
	CASE(random_transfers_are_exact),
	CASE(a_send_behind_writes_is_received_when_their_bytes_are_there),
	CASE(a_write_does_not_overtake_the_writes_before_it),
	CASE(a_read_sees_the_writes_before_it),
	CASE(a_fence_holds_back_what_would_overtake_a_read),
	CASE(more_reads_than_may_be_outstanding_all_complete),
	CASE(transfers_of_no_bytes_complete),
	CASE(the_last_of_a_silent_batch_speaks_for_all),
	CASE(an_inline_write_takes_its_bytes_at_the_post),
	CASE(transfers_of_many_queue_pairs_do_not_mix),
};

const struct case_table conformance_transfer_cases = { cases, KVR_COUNT_OF(cases) };
