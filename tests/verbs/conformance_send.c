/* SENDs and receives, in both directions. */
#include <string.h>

#include "verbs/conformance_world.h"

#define SIGNALED IBV_SEND_SIGNALED
#define BUFFER 8192u

static enum side other(enum side side)
{
	return side == SERVER ? CLIENT : SERVER;
}

static void expect_received(struct world *world, const struct pair *pair, enum side side, uint64_t id, uint32_t length)
{
	const struct ibv_wc *wc = completion_of(world, side, id);

	assert_int_equal(wc->status, IBV_WC_SUCCESS);
	assert_int_equal(wc->opcode, IBV_WC_RECV);
	assert_int_equal(wc->byte_len, length);
	assert_int_equal(wc->qp_num, pair->qp[side]->qp_num);
}

static void send_and_check(struct world *world, struct pair *pair, enum side from, uint64_t id, uint32_t length)
{
	enum side to = other(from);
	struct memory *source = memory_make(world, from, BUFFER, 0);
	struct memory *target = memory_make(world, to, BUFFER, IBV_ACCESS_LOCAL_WRITE);
	const struct ibv_wc *wc;

	pattern_fill(source->bytes, BUFFER, id);
	assert_int_equal(post_receive(pair->qp[to], id, target, 0, BUFFER), 0);
	assert_int_equal(post_send(pair->qp[from], id, source, 0, length, SIGNALED), 0);
	world_wait(world, to, world->log[to].count + 1);
	world_settle(world);
	expect_received(world, pair, to, id, length);
	wc = completion_of(world, from, id);
	assert_int_equal(wc->status, IBV_WC_SUCCESS);
	assert_int_equal(wc->opcode, IBV_WC_SEND);
	assert_int_equal(wc->qp_num, pair->qp[from]->qp_num);
	assert_true(pattern_is(target->bytes, length, id));
	assert_true(bytes_are(target->bytes + length, BUFFER - length, 0));
}

static void a_send_arrives_whole_with_its_length(void **state)
{
	static const uint32_t lengths[] = { 1, 7, 8, 63, 64, 65, 1000, 4095, 4096, 4097, 8191, 8192 };
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);

	for (uint32_t i = 0; i < KVR_COUNT_OF(lengths); i++) {
		/* A wr_id of its own in each direction, so that a mix-up of sides shows. */
		send_and_check(world, pair, SERVER, 100 + i, lengths[i]);
		send_and_check(world, pair, CLIENT, 200 + i, lengths[i]);
	}
	world_check_guards(world);
}

static void a_send_of_no_bytes_arrives(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);

	for (enum side from = SERVER; from < SIDES; from++) {
		struct memory *target = memory_make(world, other(from), 64, IBV_ACCESS_LOCAL_WRITE);

		assert_int_equal(post_receive(pair->qp[other(from)], 1, target, 0, 64), 0);
		assert_int_equal(post_transfer(pair->qp[from], 2, IBV_WR_SEND, NULL, 0, 0, 0, SIGNALED), 0);
		world_wait(world, other(from), world->log[other(from)].count + 1);
		world_settle(world);
		expect_received(world, pair, other(from), 1, 0);
		expect_success(world, from, 2);
		assert_true(bytes_are(target->bytes, 64, 0));
	}
}

static void several_buffers_are_gathered_and_scattered(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, SERVER, BUFFER, 0);
	struct memory *target = memory_make(world, CLIENT, BUFFER, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge from[3] = { sge_of(source, 0, 11), sge_of(source, 11, 1000), sge_of(source, 1011, 89) };
	struct ibv_sge to[4] = { sge_of(target, 0, 1), sge_of(target, 100, 499), sge_of(target, 1000, 600),
		sge_of(target, 5000, 64) };
	struct ibv_recv_wr receive = { .wr_id = 9, .sg_list = to, .num_sge = 4 };
	struct ibv_recv_wr *bad = NULL;
	uint8_t expected[BUFFER] = { 0 };

	pattern_fill(source->bytes, BUFFER, 5);
	assert_int_equal(ibv_post_recv(pair->qp[CLIENT], &receive, &bad), 0);
	assert_int_equal(post_transfer(pair->qp[SERVER], 8, IBV_WR_SEND, from, 3, 0, 0, SIGNALED), 0);
	world_wait(world, CLIENT, 1);
	world_settle(world);
	expect_received(world, pair, CLIENT, 9, 1100);
	expect_success(world, SERVER, 8);
	memcpy(expected, source->bytes, 1);
	memcpy(expected + 100, source->bytes + 1, 499);
	memcpy(expected + 1000, source->bytes + 500, 600);
	assert_memory_equal(target->bytes, expected, BUFFER);
	world_check_guards(world);
}

static void an_inline_send_takes_its_bytes_at_the_post(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *target = memory_make(world, CLIENT, 64, IBV_ACCESS_LOCAL_WRITE);
	uint8_t bytes[64];
	/* Not registered: inline data needs no key. */
	struct ibv_sge sges[2] = { { .addr = (uintptr_t)bytes, .length = 40 },
		{ .addr = (uintptr_t)bytes + 40, .length = 24 } };

	pattern_fill(bytes, sizeof(bytes), 3);
	assert_int_equal(post_receive(pair->qp[CLIENT], 1, target, 0, 64), 0);
	assert_int_equal(post_transfer(pair->qp[SERVER], 1, IBV_WR_SEND, sges, 2, 0, 0, SIGNALED | IBV_SEND_INLINE), 0);
	memset(bytes, 0xee, sizeof(bytes));
	world_wait(world, CLIENT, 1);
	expect_received(world, pair, CLIENT, 1, 64);
	assert_true(pattern_is(target->bytes, 64, 3));
}

static void sends_arrive_in_the_order_of_posting(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, CLIENT, 64 * 64, 0);
	struct memory *target = memory_make(world, SERVER, 64 * 64, IBV_ACCESS_LOCAL_WRITE);

	for (uint32_t i = 0; i < 64; i++) {
		pattern_fill(source->bytes + (uint64_t)i * 64, 64, i);
		assert_int_equal(post_receive(pair->qp[SERVER], i, target, (uint64_t)i * 64, 64), 0);
	}
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(post_send(pair->qp[CLIENT], 100 + i, source, (uint64_t)i * 64, 64 - i, SIGNALED), 0);
	world_wait(world, SERVER, 64);
	world_wait(world, CLIENT, 64);
	expect_each_once(world, SERVER, 0, 64);
	expect_each_once(world, CLIENT, 100, 64);
	for (uint32_t i = 0; i < 64; i++) {
		expect_received(world, pair, SERVER, i, 64 - i);
		assert_true(pattern_is(target->bytes + (uint64_t)i * 64, 64 - i, i));
	}
}

static void a_shared_receive_queue_feeds_all_its_queue_pairs(void **state)
{
	struct world *world = *state;
	struct pair_options options;
	struct pair *pairs[4];
	struct memory *source = memory_make(world, CLIENT, 64, 0);
	struct memory *target = memory_make(world, SERVER, 64 * 64, IBV_ACCESS_LOCAL_WRITE);

	pair_defaults(&options);
	assert_int_equal(world->driver->create_srq(world->base.server, 64, &world->srq), 0);
	options.server_srq = world->srq;
	options.send_wr = 16;
	for (uint32_t i = 0; i < 4; i++)
		pairs[i] = pair_make(world, &options);
	for (uint32_t i = 0; i < 64; i++) {
		struct ibv_sge sge = sge_of(target, (uint64_t)i * 64, 64);
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };
		struct ibv_recv_wr *bad = NULL;

		assert_int_equal(ibv_post_srq_recv(world->srq, &wr, &bad), 0);
	}
	pattern_fill(source->bytes, 64, 77);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(post_send(pairs[i % 4]->qp[CLIENT], i, source, 0, 1 + i % 4, SIGNALED), 0);
	world_wait(world, SERVER, 64);
	world_wait(world, CLIENT, 64);
	for (uint32_t i = 0; i < 64; i++) {
		const struct ibv_wc *wc = completion_of(world, SERVER, i);

		assert_int_equal(wc->status, IBV_WC_SUCCESS);
		/* The length tells which queue pair it came by. */
		assert_in_range(wc->byte_len, 1, 4);
		assert_int_equal(wc->qp_num, pairs[wc->byte_len - 1]->qp[SERVER]->qp_num);
		assert_true(pattern_is(target->bytes + (uint64_t)i * 64, wc->byte_len, 77));
		expect_success(world, CLIENT, i);
	}
}

static void a_send_waits_until_a_receive_is_posted(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, CLIENT, 128, 0);
	struct memory *target = memory_make(world, SERVER, 128, IBV_ACCESS_LOCAL_WRITE);

	pattern_fill(source->bytes, 128, 4);
	assert_int_equal(post_send(pair->qp[CLIENT], 1, source, 0, 64, SIGNALED), 0);
	assert_int_equal(post_send(pair->qp[CLIENT], 2, source, 64, 32, SIGNALED), 0);
	for (int i = 0; i < 200; i++)
		world_round(world);
	assert_int_equal(world->log[SERVER].count, 0);
	assert_int_equal(post_receive(pair->qp[SERVER], 10, target, 0, 64), 0);
	world_wait(world, SERVER, 1);
	assert_int_equal(post_receive(pair->qp[SERVER], 11, target, 64, 64), 0);
	world_wait(world, SERVER, 2);
	world_wait(world, CLIENT, 2);
	expect_received(world, pair, SERVER, 10, 64);
	expect_received(world, pair, SERVER, 11, 32);
	expect_each_once(world, CLIENT, 1, 2);
	expect_success(world, CLIENT, 1);
	expect_success(world, CLIENT, 2);
	assert_true(pattern_is(target->bytes, 96, 4));
}

static void the_largest_message_fits(void **state)
{
	struct world *world = *state;
	struct pair_options options;
	struct pair *pair;
	struct memory *source = memory_make(world, SERVER, 65536, 0);
	struct memory *target = memory_make(world, CLIENT, 65536, IBV_ACCESS_LOCAL_WRITE);

	pair_defaults(&options);
	options.message_bytes = 65536;
	pair = pair_make(world, &options);
	pattern_fill(source->bytes, 65536, 6);
	for (uint32_t i = 0; i < 8; i++) {
		memset(target->bytes, 0, 65536);
		assert_int_equal(post_receive(pair->qp[CLIENT], i, target, 0, 65536), 0);
		assert_int_equal(post_send(pair->qp[SERVER], i, source, 0, 65536, SIGNALED), 0);
		world_wait(world, CLIENT, i + 1);
		world_wait(world, SERVER, i + 1);
		expect_received(world, pair, CLIENT, i, 65536);
		assert_true(pattern_is(target->bytes, 65536, 6));
	}
	world_check_guards(world);
}

/* Both sides send for long with few receives posted: each is posted again as it comes. */
static void both_directions_go_on_at_once(void **state)
{
	enum { ROUNDS = 400, DEPTH = 8 };
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source[SIDES], *target[SIDES];
	uint32_t sent[SIDES] = { 0 }, received[SIDES] = { 0 }, seen[SIDES] = { 0 };

	for (enum side side = SERVER; side < SIDES; side++) {
		source[side] = memory_make(world, side, 64, 0);
		target[side] = memory_make(world, side, DEPTH * 64, IBV_ACCESS_LOCAL_WRITE);
		pattern_fill(source[side]->bytes, 64, side);
		for (uint32_t i = 0; i < DEPTH; i++)
			assert_int_equal(post_receive(pair->qp[side], 1000 + i, target[side], (uint64_t)i * 64, 64), 0);
	}
	for (uint32_t turns = 0; received[SERVER] < ROUNDS || received[CLIENT] < ROUNDS; turns++) {
		assert_true(turns < world->harness->patience_rounds);
		for (enum side side = SERVER; side < SIDES; side++) {
			if (sent[side] < ROUNDS && sent[side] - received[other(side)] < DEPTH)
				assert_int_equal(
					post_send(pair->qp[side], sent[side]++, source[side], 0, 64, SIGNALED), 0);
		}
		world_round(world);
		for (enum side side = SERVER; side < SIDES; side++) {
			for (; seen[side] < world->log[side].count; seen[side]++) {
				const struct ibv_wc *wc = completion_at(world, side, seen[side]);
				uint64_t slot = wc->wr_id - 1000;

				assert_int_equal(wc->status, IBV_WC_SUCCESS);
				if (wc->opcode != IBV_WC_RECV)
					continue;
				received[side]++;
				assert_true(pattern_is(target[side]->bytes + slot * 64, 64, other(side)));
				memset(target[side]->bytes + slot * 64, 0, 64);
				assert_int_equal(
					post_receive(pair->qp[side], wc->wr_id, target[side], slot * 64, 64), 0);
			}
		}
	}
	world_settle(world);
	expect_each_once(world, SERVER, 0, ROUNDS);
	expect_each_once(world, CLIENT, 0, ROUNDS);
}

static const struct CMUnitTest cases[] = {
	CASE(a_send_arrives_whole_with_its_length),
	CASE(a_send_of_no_bytes_arrives),
	CASE(several_buffers_are_gathered_and_scattered),
	CASE(an_inline_send_takes_its_bytes_at_the_post),
	CASE(sends_arrive_in_the_order_of_posting),
	CASE(a_shared_receive_queue_feeds_all_its_queue_pairs),
	CASE(a_send_waits_until_a_receive_is_posted),
	CASE(the_largest_message_fits),
	CASE(both_directions_go_on_at_once),
};

const struct case_table conformance_send_cases = { cases, KVR_COUNT_OF(cases) };
