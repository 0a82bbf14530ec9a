/* Everything goes wrong at once, and every resource fails once: nothing is lost, leaked or told twice. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/random.h"
#include "protocol/message.h"
#include "verbs/conformance_sim.h"

#define SIGNALED IBV_SEND_SIGNALED
#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define BYTES 4096u

struct scene {
	struct sim_weather weather;
	struct conformance_harness harness;
	struct world *world;
	struct pair *pair;
	struct memory *near, *far;
};

static void set_options(struct scene *scene)
{
	memset(scene, 0, sizeof(*scene));
	sim_options_default(&scene->weather.options);
}

static void open_scene(struct scene *scene, uint64_t seed)
{
	scene->weather.seed = seed;
	scene->world = sim_world_open(&scene->weather, &scene->harness);
	scene->pair = pair_make(scene->world, NULL);
	scene->near = memory_make(scene->world, SERVER, BYTES, IBV_ACCESS_LOCAL_WRITE);
	scene->far = memory_remote(scene->pair, BYTES, REMOTE);
}

/* ---- everything at once --------------------------------------------------------------------------------------- */

enum { STORM_PAIRS = 6, STORM_STEPS = 400 };

static void storm_post(struct scene *scene, struct random *random, struct pair *pair, struct memory *far)
{
	uint32_t length = (uint32_t)random_below(random, BYTES + 1);
	struct ibv_sge sge = sge_of(scene->near, 0, length);
	enum ibv_wr_opcode opcode = random_chance(random, 1, 2) ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	unsigned flags = random_chance(random, 1, 2) ? SIGNALED : 0;
	uint32_t rkey = far->rkey ^ (random_chance(random, 1, 60) ? 0x10000 : 0);

	if (random_chance(random, 1, 5))
		flags |= IBV_SEND_FENCE;
	if (pair->qp[SERVER])
		post_transfer(pair->qp[SERVER], 1, opcode, &sge, 1, address_of(far, 0), rkey, flags);
	if (pair->qp[SERVER] && pair->qp[CLIENT] && random_chance(random, 1, 2)) {
		enum side from = random_chance(random, 1, 2) ? SERVER : CLIENT;
		struct memory *source = from == SERVER ? scene->near : far;
		struct memory *target = from == SERVER ? far : scene->near;

		if (!random_chance(random, 1, 20))
			post_receive(pair->qp[!from], 2, target, 0, random_chance(random, 1, 80) ? 1 : 64);
		post_send(pair->qp[from], 3, source, 0, 64, flags);
	}
}

/* True when it killed the client. */
static bool storm_break(struct scene *scene, struct random *random, struct pair *pair)
{
	struct sim_fabric *fabric = sim_fabric_of(scene->world);
	enum side side = random_chance(random, 1, 2) ? SERVER : CLIENT;
	struct ibv_qp *qp = pair->qp[side];

	switch (random_below(random, 150)) {
	case 0:
		pair_end(pair, side);
		break;
	case 1:
		if (qp)
			sim_fabric_cut(fabric, qp->qp_num);
		break;
	case 2:
	case 3:
		if (qp)
			sim_fabric_stall(fabric, qp->qp_num, random_chance(random, 1, 2));
		break;
	case 4:
		if (qp)
			verbs_sim.qp_fail(qp);
		break;
	case 5:
		if (random_chance(random, 1, 20)) {
			sim_kill(scene->world, CLIENT);
			return true;
		}
		break;
	default:
		break;
	}
	return false;
}

static void storm(uint64_t seed, struct sim_counters *sum)
{
	bool killed = false;
	struct scene scene;
	struct pair *pairs[STORM_PAIRS];
	struct memory *far[STORM_PAIRS];
	struct sim_counters counters;
	struct random random;

	set_options(&scene);
	scene.weather.options.rnr_retries = 2;
	scene.weather.options.pieces_max = 8;
	scene.weather.options.access_error_per_million = 2000;
	open_scene(&scene, seed);
	random_init(&random, seed);
	for (uint32_t i = 0; i < STORM_PAIRS; i++) {
		pairs[i] = pair_make(scene.world, NULL);
		far[i] = memory_remote(pairs[i], BYTES, REMOTE);
	}
	for (uint32_t step = 0; step < STORM_STEPS; step++) {
		uint32_t which = (uint32_t)random_below(&random, STORM_PAIRS);

		storm_post(&scene, &random, pairs[which], far[which]);
		killed |= storm_break(&scene, &random, pairs[which]);
		for (uint64_t i = random_below(&random, 8); i > 0; i--)
			world_round(scene.world);
	}
	for (uint32_t i = 0; i < STORM_PAIRS; i++) {
		pair_end(pairs[i], CLIENT);
		pair_end(pairs[i], SERVER);
	}
	world_settle(scene.world);
	counters = sim_counters_of(scene.world);
	/* Every work request ended in one way, but for those of the dead. */
	if (killed)
		assert_true(counters.posted >= counters.completed + counters.failed + counters.flushed);
	else
		assert_int_equal(counters.posted, counters.completed + counters.failed + counters.flushed);
	world_check_guards(scene.world);
	sum->completed += counters.completed;
	sum->failed += counters.failed;
	sum->flushed += counters.flushed;
	sum->late_pieces += counters.late_pieces;
	sum->rnr += counters.rnr;
	sum->cuts += counters.cuts;
	sum->access_errors += counters.access_errors;
	world_close(scene.world);
}

static void a_storm_of_everything_leaves_no_loose_ends(void **state)
{
	struct sim_counters sum = { 0 };

	(void)state;
	for (uint64_t seed = 1000; seed < 1100; seed++)
		storm(seed, &sum);
	/* It was a storm. */
	assert_true(sum.completed > 1000 && sum.flushed > 1000 && sum.failed > 100);
	assert_true(sum.late_pieces > 100 && sum.rnr > 100 && sum.cuts > 10 && sum.access_errors > 10);
}

/* ---- every resource fails once -------------------------------------------------------------------------------- */

struct parts {
	struct sim_fabric *fabric;
	struct verbs_device *device;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct stream *near, *far;
	void *memory;
};

static int make_queues(struct parts *parts)
{
	struct verbs_qp_options options = { .max_send_wr = 4, .max_recv_wr = 4, .max_sge = 2 };
	int error = verbs_sim.create_cq(parts->device, 8, &parts->cq);

	if (!error)
		error = verbs_sim.create_srq(parts->device, 8, &parts->srq);
	options.send_cq = options.recv_cq = parts->cq;
	if (!error)
		error = verbs_sim.create_qp(parts->device, &options, &parts->qp);
	return error;
}

static int make_parts(struct parts *parts)
{
	struct verbs_remote_memory remote = { .length = 4096, .rkey = 5, .kind = 4 };
	struct verbs_open options = { 0 };
	struct verbs_import import;
	int error = sim_fabric_create(1, NULL, &parts->fabric);

	options.fabric = parts->fabric;
	if (!error)
		error = verbs_sim.open(&options, &parts->device);
	if (!error)
		error = make_queues(parts);
	if (!error)
		error = verbs_sim.allocate(parts->device, 4096, &parts->memory);
	if (!error)
		error = verbs_sim.register_memory(parts->device, parts->memory, 4096, REMOTE, &parts->mr);
	if (!error)
		error = verbs_sim.import_memory(parts->qp, &remote, &import);
	if (!error)
		error = sim_stream_pair(parts->fabric, parts->device, &parts->near, &parts->far);
	return error;
}

static void unmake_parts(struct parts *parts)
{
	struct sim_counters counters;

	if (parts->near)
		parts->near->ops->close(parts->near);
	if (parts->far)
		parts->far->ops->close(parts->far);
	if (parts->mr)
		verbs_sim.deregister_memory(parts->mr);
	if (parts->memory)
		verbs_sim.release(parts->device, parts->memory, 4096);
	if (parts->qp)
		verbs_sim.destroy_qp(parts->qp);
	if (parts->srq)
		verbs_sim.destroy_srq(parts->srq);
	if (parts->cq)
		verbs_sim.destroy_cq(parts->cq);
	if (parts->device)
		verbs_sim.close(parts->device);
	if (!parts->fabric)
		return;
	sim_fabric_counters(parts->fabric, &counters);
	assert_int_equal(counters.misuses, 0);
	sim_fabric_destroy(&parts->fabric);
}

static void every_resource_may_fail_once(void **state)
{
#ifdef KVRAIL_FAULT_POINTS
	struct parts parts = { 0 };
	uint64_t points;

	(void)state;
	fault_arm(0);
	assert_int_equal(make_parts(&parts), 0);
	points = fault_count();
	unmake_parts(&parts);
	assert_true(points > 10);
	for (uint64_t nth = 1; nth <= points; nth++) {
		memset(&parts, 0, sizeof(parts));
		fault_arm(nth);
		assert_int_equal(make_parts(&parts), -ENOMEM);
		fault_arm(0);
		unmake_parts(&parts);
	}
#else
	(void)state;
	skip();
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_storm_of_everything_leaves_no_loose_ends),
		cmocka_unit_test(every_resource_may_fail_once),
	};

	return cmocka_run_group_tests_name("storms in the simulated fabric", tests, NULL, NULL);
}
