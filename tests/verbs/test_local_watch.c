/*
 * test_local_watch.c - many connections of one completion queue: whatever comes, goes and sends, each message is found by the poll
 * after it, once and in order, and a queue that is full goes on behind where it stopped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/log.h"
#include "base/random.h"
#include "verbs/driver.h"

#define CONNECTIONS 150u
#define SEATS 64u /* of receives */
#define OUT_MAX 3u

struct side {
	struct verbs_device *device;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint32_t words[SEATS + 1]; /* received; the last one is sent */
	struct ibv_qp *qps[CONNECTIONS];
};

struct world {
	struct side server, client;
	struct random random;
	uint32_t sent[CONNECTIONS], taken[CONNECTIONS];
};

static void receive(struct side *side, uint32_t seat)
{
	struct ibv_sge entry = { (uintptr_t)&side->words[seat], sizeof(side->words[seat]), side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = seat, .sg_list = &entry, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	assert_int_equal(ibv_post_srq_recv(side->srq, &wr, &bad), 0);
}

static void open_side(struct side *side, bool server)
{
	struct verbs_open open = { .server = server };

	assert_int_equal(verbs_local.open(&open, &side->device), 0);
	assert_int_equal(verbs_local.create_cq(side->device, 4096, &side->cq), 0);
	assert_int_equal(verbs_local.create_srq(side->device, SEATS, &side->srq), 0);
	assert_int_equal(verbs_local.register_memory(
				 side->device, side->words, sizeof(side->words), IBV_ACCESS_LOCAL_WRITE, &side->mr),
		0);
	for (uint32_t i = 0; i < SEATS; i++)
		receive(side, i);
}

static void make_qp(struct side *side, uint32_t at)
{
	struct verbs_qp_options options = { .send_cq = side->cq,
		.recv_cq = side->cq,
		.srq = side->srq,
		.max_send_wr = 8,
		.max_sge = 1,
		.max_message_bytes = 64,
		.peer_recv_wr = 8 };

	assert_int_equal(verbs_local.create_qp(side->device, &options, &side->qps[at]), 0);
}

static void connect_qp(struct ibv_qp *to, struct ibv_qp *from)
{
	struct stream_peer peer = { getpid(), geteuid(), getegid() };
	int fds[STREAM_FDS_MAX];
	uint8_t bytes[512];
	unsigned fd_count = 0;
	uint32_t length;

	assert_int_equal(verbs_local.qp_address(from, bytes, sizeof(bytes), &length, fds, &fd_count), 0);
	assert_int_equal(verbs_local.qp_connect(to, bytes, length, fds, fd_count, &peer), 0);
	verbs_local.qp_start(to);
}

static void come(struct world *world, uint32_t at)
{
	make_qp(&world->server, at);
	make_qp(&world->client, at);
	connect_qp(world->client.qps[at], world->server.qps[at]);
	connect_qp(world->server.qps[at], world->client.qps[at]);
	world->sent[at] = world->taken[at] = 0;
}

static void leave(struct side *side, uint32_t at)
{
	struct ibv_wc wc[16];

	verbs_local.qp_fail(side->qps[at]);
	while (!verbs_local.qp_idle(side->qps[at]))
		(void)ibv_poll_cq(side->cq, KVR_COUNT_OF(wc), wc);
	verbs_local.qp_stop(side->qps[at]);
	verbs_local.destroy_qp(side->qps[at]);
	side->qps[at] = NULL;
}

static void send_word(struct world *world, uint32_t at)
{
	struct side *side = &world->client;
	struct ibv_sge entry = { (uintptr_t)&side->words[SEATS], sizeof(side->words[SEATS]), side->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &entry, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_send_wr *bad;

	side->words[SEATS] = world->sent[at]++;
	assert_int_equal(ibv_post_send(side->qps[at], &wr, &bad), 0);
}

static uint32_t whose(const struct world *world, uint32_t number)
{
	for (uint32_t i = 0; i < CONNECTIONS; i++) {
		if (world->server.qps[i] && world->server.qps[i]->qp_num == number)
			return i;
	}
	fail_msg("queue pair %u is not one of those that are there", number);
	return 0;
}

/* One poll of at most so many: how many came. */
static uint32_t take(struct world *world, int capacity)
{
	struct ibv_wc wc[SEATS];
	int count = ibv_poll_cq(world->server.cq, capacity, wc);

	assert_true(count >= 0 && count <= capacity);
	for (int i = 0; i < count; i++) {
		uint32_t at = whose(world, wc[i].qp_num), seat = (uint32_t)wc[i].wr_id;

		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		assert_true(seat < SEATS);
		assert_int_equal(world->server.words[seat], world->taken[at]);
		world->taken[at]++;
		receive(&world->server, seat);
	}
	/* Unsignalled sends are retired by their own side's polls. */
	assert_int_equal(ibv_poll_cq(world->client.cq, SEATS, wc), 0);
	return (uint32_t)count;
}

static uint32_t open_messages(const struct world *world)
{
	uint32_t open = 0;

	for (uint32_t i = 0; i < CONNECTIONS; i++) {
		if (world->server.qps[i])
			open += world->sent[i] - world->taken[i];
	}
	return open;
}

static void turn(struct world *world)
{
	uint32_t at = (uint32_t)random_below(&world->random, CONNECTIONS);

	if (!world->server.qps[at]) {
		come(world, at);
	} else if (random_chance(&world->random, 1, 10)) {
		leave(&world->client, at);
		leave(&world->server, at);
	} else if (world->sent[at] - world->taken[at] < OUT_MAX) {
		send_word(world, at);
	}
	if (random_chance(&world->random, 1, 3)) {
		uint32_t open = open_messages(world);
		int capacity = 1 + (int)random_below(&world->random, SEATS);

		assert_int_equal(take(world, capacity), kvr_min_u64((uint64_t)capacity, open));
	}
}

static void each_message_is_found_by_the_next_poll_whoever_comes_and_goes(void **state)
{
	static struct world world;

	(void)state;
	log_set_level(LOG_ERROR);
	for (uint64_t seed = 1; seed <= 3; seed++) {
		memset(&world, 0, sizeof(world));
		random_init(&world.random, seed);
		open_side(&world.server, true);
		open_side(&world.client, false);
		for (unsigned i = 0; i < 4000; i++)
			turn(&world);
		while (open_messages(&world) > 0)
			assert_true(take(&world, SEATS) > 0);
		for (uint32_t i = 0; i < CONNECTIONS; i++) {
			if (world.server.qps[i]) {
				leave(&world.client, i);
				leave(&world.server, i);
			}
		}
		for (unsigned i = 0; i < 2; i++) {
			struct side *side = i == 0 ? &world.server : &world.client;

			verbs_local.destroy_srq(side->srq);
			verbs_local.destroy_cq(side->cq);
			assert_int_equal(verbs_local.deregister_memory(side->mr), 0);
			verbs_local.close(side->device);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_message_is_found_by_the_next_poll_whoever_comes_and_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
