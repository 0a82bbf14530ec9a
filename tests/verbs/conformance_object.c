/* Making and unmaking devices' objects, with good and bad parameters. */
#include <errno.h>
#include <string.h>

#include "protocol/message.h"
#include "verbs/conformance_world.h"

#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static void queue_pairs_over_the_limits_are_refused(void **state)
{
	struct world *world = *state;
	const struct verbs_limits *limits = &world->base.server->limits;
	struct verbs_qp_options good = { .send_cq = world->cq[SERVER], .recv_cq = world->cq[SERVER] };

	good.max_send_wr = good.max_recv_wr = good.peer_recv_wr = 16;
	good.max_sge = 1;
	good.max_message_bytes = 4096;
	for (int i = 0; i < 4; i++) {
		struct verbs_qp_options options = good;
		struct ibv_qp *qp = NULL;

		if (i == 0)
			options.max_send_wr = limits->max_send_wr + 1;
		if (i == 1)
			options.max_recv_wr = limits->max_recv_wr + 1;
		if (i == 2)
			options.max_sge = limits->max_sge + 1;
		if (i == 3)
			options.max_inline_bytes = limits->max_inline_bytes + 1;
		assert_int_equal(world->driver->create_qp(world->base.server, &options, &qp), -EINVAL);
	}
}

static void queues_of_no_depth_are_refused(void **state)
{
	struct world *world = *state;
	struct ibv_cq *cq = NULL;
	struct ibv_srq *srq = NULL;

	assert_int_equal(world->driver->create_cq(world->base.server, 0, &cq), -EINVAL);
	assert_int_equal(
		world->driver->create_cq(world->base.server, world->base.server->limits.max_cqe + 1, &cq), -EINVAL);
	assert_int_equal(world->driver->create_srq(world->base.server, 0, &srq), -EINVAL);
}

static void a_context_comes_back_with_its_queue_pair(void **state)
{
	struct world *world = *state;
	struct verbs_qp_options options = { .send_cq = world->cq[SERVER], .recv_cq = world->cq[SERVER] };
	struct ibv_qp *qp = NULL;

	options.max_send_wr = options.max_recv_wr = options.peer_recv_wr = 16;
	options.max_sge = 1;
	options.max_message_bytes = 4096;
	options.context = world;
	assert_int_equal(world->driver->create_qp(world->base.server, &options, &qp), 0);
	assert_ptr_equal(qp->qp_context, world);
	assert_ptr_equal(qp->send_cq, world->cq[SERVER]);
	world->driver->destroy_qp(qp);
}

static void queue_pairs_have_numbers_of_their_own(void **state)
{
	struct world *world = *state;
	struct pair *pairs[16];

	for (uint32_t i = 0; i < 16; i++) {
		pairs[i] = pair_make(world, NULL);
		for (uint32_t j = 0; j < i; j++)
			assert_int_not_equal(pairs[i]->qp[SERVER]->qp_num, pairs[j]->qp[SERVER]->qp_num);
	}
}

static void a_foreign_address_is_refused(void **state)
{
	struct world *world = *state;
	struct pair_options options;
	struct stream_peer peer = { 0 };
	uint8_t bytes[WIRE_ADDRESS_MAX];
	int fds[STREAM_FDS_MAX];
	unsigned fd_count = 0;
	uint32_t length = 0;
	struct ibv_qp *near, *far;

	pair_defaults(&options);
	near = qp_make(world, SERVER, &options);
	far = qp_make(world, CLIENT, &options);
	memset(bytes, 0x3c, sizeof(bytes));
	assert_int_equal(world->driver->qp_connect(near, bytes, sizeof(bytes), fds, 0, &peer), -EBADMSG);
	assert_int_equal(world->driver->qp_connect(near, bytes, 0, fds, 0, &peer), -EBADMSG);
	assert_int_equal(world->driver->qp_address(far, bytes, sizeof(bytes), &length, fds, &fd_count), 0);
	for (uint32_t shorter = 1; shorter < length; shorter++)
		assert_int_equal(world->driver->qp_connect(near, bytes, shorter, fds, fd_count, &peer), -EBADMSG);
	bytes[0] ^= 1;
	assert_int_equal(world->driver->qp_connect(near, bytes, length, fds, fd_count, &peer), -EBADMSG);
	assert_int_equal(world->driver->qp_address(far, bytes, 1, &length, fds, &fd_count), -EMSGSIZE);
	world->driver->destroy_qp(near);
	world->driver->destroy_qp(far);
}

static void queue_pairs_that_never_started_are_destroyed(void **state)
{
	struct world *world = *state;
	struct pair_options options;

	pair_defaults(&options);
	for (uint32_t i = 0; i < 50; i++)
		world->driver->destroy_qp(qp_make(world, i % 2, &options));
	world_settle(world);
	assert_int_equal(world->log[SERVER].count + world->log[CLIENT].count, 0);
}

static void bad_regions_are_not_registered(void **state)
{
	struct world *world = *state;
	struct memory *memory = memory_make(world, CLIENT, 4096, REMOTE);
	struct ibv_mr *mr = NULL;

	assert_int_equal(
		world->driver->register_memory(world->base.client, memory->bytes, 0, IBV_ACCESS_LOCAL_WRITE, &mr),
		-EINVAL);
	assert_int_equal(world->driver->register_memory(
				 world->base.client, memory->bytes, UINT64_MAX - 4095, IBV_ACCESS_LOCAL_WRITE, &mr),
		-EINVAL);
	assert_int_equal(
		world->driver->register_memory(world->base.client, NULL, 4096, IBV_ACCESS_LOCAL_WRITE, &mr), -EINVAL);
}

static void a_region_tells_what_was_registered(void **state)
{
	struct world *world = *state;

	for (enum side side = SERVER; side < SIDES; side++) {
		struct memory *memory = memory_make(world, side, 12345, REMOTE);

		assert_ptr_equal(memory->mr->addr, memory->bytes);
		assert_int_equal(memory->mr->length, 12345);
	}
}

/* Registered twice: each region has keys of its own, and the end of one leaves the other. */
static void overlapping_regions_live_apart(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *near = memory_make(world, SERVER, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct memory *far = memory_remote(pair, 4096, REMOTE);
	struct ibv_mr *second = NULL;
	struct ibv_sge sge;

	assert_int_equal(world->driver->register_memory(
				 world->base.server, near->bytes + 100, 200, IBV_ACCESS_LOCAL_WRITE, &second),
		0);
	assert_int_not_equal(second->lkey, near->mr->lkey);
	sge = sge_of(near, 0, 64);
	assert_int_equal(world->driver->deregister_memory(second), 0);
	pattern_fill(near->bytes, 4096, 1);
	assert_int_equal(post_transfer(pair->qp[SERVER], 1, IBV_WR_RDMA_WRITE, &sge, 1, address_of(far, 0), far->rkey,
				 IBV_SEND_SIGNALED),
		0);
	world_wait(world, SERVER, 1);
	expect_success(world, SERVER, 1);
	assert_true(pattern_is(far->bytes, 64, 1));
}

static void bad_imports_are_refused(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *far = memory_make(world, CLIENT, 4096, REMOTE);
	struct verbs_export description = { 0 };
	struct verbs_remote_memory remote = { .address = address_of(far, 0), .fd = -1 };
	struct verbs_import import;

	assert_int_equal(world->driver->export_memory(far->mr, &description), 0);
	remote.kind = description.kind;
	remote.rkey = description.rkey;
	remote.fd = description.fd;
	remote.offset = description.offset;
	assert_int_equal(world->driver->import_memory(pair->qp[SERVER], &remote, &import), -EINVAL);
	remote.length = UINT64_MAX - remote.address + 2;
	assert_int_equal(world->driver->import_memory(pair->qp[SERVER], &remote, &import), -EINVAL);
	remote.length = 4096;
	remote.kind = 99;
	assert_true(world->driver->import_memory(pair->qp[SERVER], &remote, &import) < 0);
}

/* pitfalls F08: keys that come and go many times, each used only while it holds. */
static void regions_come_and_go(void **state)
{
	struct world *world = *state;
	struct pair *pair = pair_make(world, NULL);
	struct memory *near = memory_make(world, SERVER, 64, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = sge_of(near, 0, 64);

	for (uint32_t i = 0; i < 300; i++) {
		struct memory *far = memory_remote(pair, 64, REMOTE);

		pattern_fill(near->bytes, 64, i);
		assert_int_equal(post_transfer(pair->qp[SERVER], i, IBV_WR_RDMA_WRITE, &sge, 1, address_of(far, 0),
					 far->rkey, IBV_SEND_SIGNALED),
			0);
		world_wait(world, SERVER, i + 1);
		expect_success(world, SERVER, i);
		assert_true(pattern_is(far->bytes, 64, i));
		memory_forget(far);
		memory_deregister(far);
	}
}

static const struct CMUnitTest cases[] = {
	CASE(queue_pairs_over_the_limits_are_refused),
	CASE(queues_of_no_depth_are_refused),
	CASE(a_context_comes_back_with_its_queue_pair),
	CASE(queue_pairs_have_numbers_of_their_own),
	CASE(a_foreign_address_is_refused),
	CASE(queue_pairs_that_never_started_are_destroyed),
	CASE(bad_regions_are_not_registered),
	CASE(a_region_tells_what_was_registered),
	CASE(overlapping_regions_live_apart),
	CASE(bad_imports_are_refused),
	CASE(regions_come_and_go),
};

const struct case_table conformance_object_cases = { cases, KVR_COUNT_OF(cases) };
