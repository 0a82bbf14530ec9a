/* Keys, bounds and access flags: what may not be touched is not touched, and the refusal is told once. */
#include <string.h>

#include "verbs/conformance_world.h"

#define SIGNALED IBV_SEND_SIGNALED
#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define REGION 4096u

/* One world for one bad transfer: `near` of the server, `far` of the client, both with a pattern. */
struct bad {
	struct world *world;
	struct pair *pair;
	struct memory *near, *far;
};

static struct bad prepare(struct world *world, int far_flags)
{
	struct bad bad = { .world = world, .pair = pair_make(world, NULL) };

	bad.near = memory_make(world, SERVER, REGION, IBV_ACCESS_LOCAL_WRITE);
	bad.far = memory_remote(bad.pair, REGION, far_flags);
	pattern_fill(bad.near->bytes, REGION, 1);
	pattern_fill(bad.far->bytes, REGION, 2);
	return bad;
}

/* Posts the bad one and a good one behind it: the first tells why, the second flushes, no byte moves. */
static void expect_refused(struct bad *bad, enum ibv_wr_opcode opcode, uint64_t address, uint32_t length, uint32_t rkey)
{
	struct world *world = bad->world;
	uint32_t before = world->log[SERVER].count;
	struct ibv_sge sge = sge_of(bad->near, 0, length);
	struct ibv_sge good = sge_of(bad->near, 0, 64);

	assert_int_equal(post_transfer(bad->pair->qp[SERVER], 1, opcode, &sge, 1, address, rkey, SIGNALED), 0);
	assert_int_equal(post_transfer(bad->pair->qp[SERVER], 2, IBV_WR_RDMA_WRITE, &good, 1, address_of(bad->far, 0),
				 bad->far->rkey, SIGNALED),
		0);
	world_wait(world, SERVER, before + 2);
	world_settle(world);
	assert_int_equal(world->log[SERVER].count, before + 2);
	assert_int_equal(completion_at(world, SERVER, before)->wr_id, 1);
	assert_int_equal(completion_at(world, SERVER, before)->status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(completion_at(world, SERVER, before + 1)->wr_id, 2);
	assert_int_equal(completion_at(world, SERVER, before + 1)->status, IBV_WC_WR_FLUSH_ERR);
	assert_true(pattern_is(bad->near->bytes, REGION, 1));
	assert_true(pattern_is(bad->far->bytes, REGION, 2));
	world_check_guards(world);
	pair_end(bad->pair, SERVER);
}

/* Both directions, each in a pair of its own. */
static void expect_both_refused(struct world *world, uint64_t offset, uint32_t length, uint32_t rkey_change)
{
	struct bad bad = prepare(world, REMOTE);

	expect_refused(&bad, IBV_WR_RDMA_WRITE, address_of(bad.far, 0) + offset, length, bad.far->rkey ^ rkey_change);
	bad = prepare(world, REMOTE);
	expect_refused(&bad, IBV_WR_RDMA_READ, address_of(bad.far, 0) + offset, length, bad.far->rkey ^ rkey_change);
}

static void a_wrong_remote_key_is_refused(void **state)
{
	expect_both_refused(*state, 0, 64, 0x00010000);
	expect_both_refused(*state, 0, 64, 1);
}

static void a_remote_key_of_zero_is_refused(void **state)
{
	struct bad bad = prepare(*state, REMOTE);

	expect_refused(&bad, IBV_WR_RDMA_WRITE, address_of(bad.far, 0), 64, 0);
}

/* pitfalls K08 */
static void one_byte_before_the_region_is_refused(void **state)
{
	expect_both_refused(*state, UINT64_MAX, 64, 0);
	expect_both_refused(*state, UINT64_MAX, 1, 0);
}

/* pitfalls K08 */
static void one_byte_past_the_region_is_refused(void **state)
{
	expect_both_refused(*state, REGION - 63, 64, 0);
	expect_both_refused(*state, REGION, 1, 0);
	expect_both_refused(*state, 1, REGION, 0);
}

/* pitfalls K08 */
static void a_range_that_wraps_around_is_refused(void **state)
{
	struct bad bad = prepare(*state, REMOTE);

	expect_refused(&bad, IBV_WR_RDMA_WRITE, UINT64_MAX - 3, 64, bad.far->rkey);
	bad = prepare(*state, REMOTE);
	expect_refused(&bad, IBV_WR_RDMA_READ, UINT64_MAX - 31, 32, bad.far->rkey);
	bad = prepare(*state, REMOTE);
	expect_refused(&bad, IBV_WR_RDMA_WRITE, 0, 64, bad.far->rkey);
}

/* pitfalls F09 */
static void local_and_remote_keys_differ(void **state)
{
	struct world *world = *state;
	struct bad bad;

	if (world->harness->features & CONFORMANCE_ONE_KEY)
		skip();
	bad = prepare(world, REMOTE);
	assert_int_not_equal(bad.near->mr->lkey, bad.near->mr->rkey);
	assert_int_not_equal(bad.far->mr->lkey, bad.far->mr->rkey);
	assert_int_not_equal(bad.far->rkey, bad.far->mr->lkey);
	expect_refused(&bad, IBV_WR_RDMA_WRITE, address_of(bad.far, 0), 64, bad.far->mr->lkey);
	bad = prepare(world, REMOTE);
	expect_refused(&bad, IBV_WR_RDMA_READ, address_of(bad.far, 0), 64, bad.far->mr->lkey);
}

static void a_missing_remote_right_is_refused(void **state)
{
	struct world *world = *state;
	struct bad bad;

	if (!(world->harness->features & CONFORMANCE_CHECKS_REMOTE_FLAGS))
		skip();
	bad = prepare(world, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	expect_refused(&bad, IBV_WR_RDMA_WRITE, address_of(bad.far, 0), 64, bad.far->rkey);
	bad = prepare(world, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	expect_refused(&bad, IBV_WR_RDMA_READ, address_of(bad.far, 0), 64, bad.far->rkey);
	bad = prepare(world, IBV_ACCESS_LOCAL_WRITE);
	expect_refused(&bad, IBV_WR_RDMA_READ, address_of(bad.far, 0), 64, bad.far->rkey);
}

/* pitfalls F08 */
static void a_region_that_was_taken_back_is_refused(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct bad bad = prepare(*state, REMOTE);
		uint32_t rkey = bad.far->rkey;

		memory_forget(bad.far);
		memory_deregister(bad.far);
		expect_refused(&bad, i ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, address_of(bad.far, 0), 64, rkey);
	}
}

static void expect_local_error(const struct world *world, enum ibv_wc_status status)
{
	if (world->harness->features & CONFORMANCE_BLURS_LOCAL_ERRORS)
		assert_int_not_equal(status, IBV_WC_SUCCESS);
	else
		assert_int_equal(status, IBV_WC_LOC_PROT_ERR);
}

/* A local buffer that its own side may not use: told as such, and nothing moves. */
static void expect_protection_error(struct bad *bad, enum ibv_wr_opcode opcode, struct ibv_sge sge)
{
	struct world *world = bad->world;
	uint32_t before = world->log[SERVER].count;

	assert_int_equal(post_transfer(bad->pair->qp[SERVER], 1, opcode, &sge, 1, address_of(bad->far, 0),
				 bad->far->rkey, SIGNALED),
		0);
	world_wait(world, SERVER, before + 1);
	world_settle(world);
	expect_local_error(world, completion_at(world, SERVER, before)->status);
	assert_true(pattern_is(bad->near->bytes, REGION, 1));
	assert_true(pattern_is(bad->far->bytes, REGION, 2));
	world_check_guards(world);
	pair_end(bad->pair, SERVER);
}

static void a_wrong_local_buffer_is_a_protection_error(void **state)
{
	struct world *world = *state;
	struct bad bad;
	struct ibv_sge sge;

	if (!(world->harness->features & CONFORMANCE_CHECKS_LOCAL_KEYS))
		skip();
	for (int i = 0; i < 5; i++) {
		if (i == 3 && world->harness->features & CONFORMANCE_ONE_KEY)
			continue;
		bad = prepare(world, REMOTE);
		sge = sge_of(bad.near, 0, 64);
		sge.lkey ^= i == 0 ? 0x00010000 : 0;
		sge.addr -= i == 1;
		sge.length = i == 2 ? REGION + 1 : 64;
		if (i == 3)
			sge.lkey = bad.near->mr->rkey;
		if (i == 4)
			memory_deregister(bad.near);
		expect_protection_error(&bad, IBV_WR_RDMA_WRITE, sge);
	}
	/* A READ writes here. */
	bad = prepare(world, REMOTE);
	sge = sge_of(memory_make(world, SERVER, REGION, 0), 0, 64);
	expect_protection_error(&bad, IBV_WR_RDMA_READ, sge);
}

static void a_receive_outside_its_region_is_a_protection_error(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *source = memory_make(world, SERVER, 64, 0);
	struct memory *target = memory_make(world, CLIENT, 64, IBV_ACCESS_LOCAL_WRITE);

	if (!(world->harness->features & CONFORMANCE_CHECKS_LOCAL_KEYS))
		skip();
	assert_int_equal(post_receive(pair->qp[CLIENT], 1, target, 1, 64), 0);
	assert_int_equal(post_receive(pair->qp[CLIENT], 2, target, 0, 64), 0);
	memset(source->bytes, 0x77, 64);
	assert_int_equal(post_send(pair->qp[SERVER], 3, source, 0, 64, SIGNALED), 0);
	world_wait(world, CLIENT, 2);
	assert_int_equal(completion_at(world, CLIENT, 0)->wr_id, 1);
	expect_local_error(world, completion_at(world, CLIENT, 0)->status);
	assert_int_equal(completion_at(world, CLIENT, 1)->status, IBV_WC_WR_FLUSH_ERR);
	assert_true(bytes_are(target->bytes, 64, 0));
	world_check_guards(world);
}

static const struct CMUnitTest cases[] = {
	CASE(a_wrong_remote_key_is_refused),
	CASE(a_remote_key_of_zero_is_refused),
	CASE(one_byte_before_the_region_is_refused),
	CASE(one_byte_past_the_region_is_refused),
	CASE(a_range_that_wraps_around_is_refused),
	CASE(local_and_remote_keys_differ),
	CASE(a_missing_remote_right_is_refused),
	CASE(a_region_that_was_taken_back_is_refused),
	CASE(a_wrong_local_buffer_is_a_protection_error),
	CASE(a_receive_outside_its_region_is_a_protection_error),
};

const struct case_table conformance_access_cases = { cases, KVR_COUNT_OF(cases) };
