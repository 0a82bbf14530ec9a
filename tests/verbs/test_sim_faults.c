/* Broken links, dead processes, injected faults, broken contracts: the simulator's own part of them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/message.h"
#include "verbs/conformance_sim.h"
#include "verbs/sim/sim.h"

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

static void transfer(struct scene *scene, uint64_t id, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = sge_of(scene->near, 0, BYTES);

	assert_int_equal(post_transfer(scene->pair->qp[SERVER], id, opcode, &sge, 1, address_of(scene->far, 0),
				 scene->far->rkey, SIGNALED),
		0);
}

static void a_cut_link_gives_both_sides_an_error_when_they_use_it(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct scene scene;
		struct world *world;
		uint64_t before;

		set_options(&scene);
		open_scene(&scene, seed);
		world = scene.world;
		for (uint32_t i = 0; i < 8; i++)
			transfer(&scene, i, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE);
		for (uint64_t i = 0; i < seed; i++)
			world_round(world);
		sim_fabric_cut(sim_fabric_of(world), scene.pair->qp[seed % 2]->qp_num);
		before = sim_counters_of(world).pieces;
		world_wait(world, SERVER, 8);
		expect_each_once(world, SERVER, 0, 8);
		for (uint32_t i = 0, failed = 0; i < 8; i++) {
			enum ibv_wc_status expected = failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR;

			if (completion_at(world, SERVER, i)->status == IBV_WC_SUCCESS)
				assert_int_equal(failed, 0);
			else
				assert_int_equal(completion_at(world, SERVER, i)->status, expected);
			failed |= completion_at(world, SERVER, i)->status != IBV_WC_SUCCESS;
		}
		assert_int_equal(sim_counters_of(world).pieces, before);
		/* The other side has nothing outstanding: it hears of it when it sends. */
		assert_int_equal(world->log[CLIENT].count, 0);
		assert_int_equal(post_send(scene.pair->qp[CLIENT], 9, scene.far, 0, 8, 0), 0);
		world_wait(world, CLIENT, 1);
		assert_int_equal(completion_of(world, CLIENT, 9)->status, IBV_WC_RETRY_EXC_ERR);
		assert_int_equal(sim_counters_of(world).cuts, 1);
		world_close(world);
	}
}

/* The bytes are there and the sender does not know. */
static void an_acknowledgement_can_be_lost(void **state)
{
	struct scene scene;

	(void)state;
	set_options(&scene);
	scene.weather.options.completion_min_ns = scene.weather.options.completion_max_ns = 100000;
	open_scene(&scene, 1);
	memset(scene.near->bytes, 0xff, BYTES);
	transfer(&scene, 1, IBV_WR_RDMA_WRITE);
	while (!bytes_are(scene.far->bytes, BYTES, 0xff))
		world_round(scene.world);
	sim_fabric_cut(sim_fabric_of(scene.world), scene.pair->qp[CLIENT]->qp_num);
	world_wait(scene.world, SERVER, 1);
	assert_int_equal(completion_of(scene.world, SERVER, 1)->status, IBV_WC_RETRY_EXC_ERR);
	world_close(scene.world);
}

static void a_refused_access_fails_both_ends(void **state)
{
	struct scene scene;
	struct ibv_sge sge;

	(void)state;
	set_options(&scene);
	open_scene(&scene, 1);
	sge = sge_of(scene.near, 0, 8);
	assert_int_equal(post_receive(scene.pair->qp[CLIENT], 5, scene.far, 0, 64), 0);
	assert_int_equal(post_transfer(scene.pair->qp[SERVER], 1, IBV_WR_RDMA_WRITE, &sge, 1, address_of(scene.far, 0),
				 ~scene.far->rkey, SIGNALED),
		0);
	world_wait(scene.world, SERVER, 1);
	world_wait(scene.world, CLIENT, 1);
	assert_int_equal(completion_of(scene.world, SERVER, 1)->status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(completion_of(scene.world, CLIENT, 5)->status, IBV_WC_WR_FLUSH_ERR);
	world_close(scene.world);
}

/* pitfalls F09: a key is good on the device that made it, on its own side of a transfer. */
static void keys_belong_to_their_device(void **state)
{
	struct scene scene;
	struct ibv_mr *mr;
	struct ibv_sge sge;

	(void)state;
	for (int i = 0; i < 2; i++) {
		set_options(&scene);
		open_scene(&scene, 1);
		assert_int_equal(
			verbs_sim.register_memory(scene.world->base.server, scene.far->bytes, BYTES, REMOTE, &mr), 0);
		sge = i == 0 ? sge_of(scene.far, 0, 8) : sge_of(scene.near, 0, 8);
		assert_int_equal(post_transfer(scene.pair->qp[SERVER], 1, IBV_WR_RDMA_WRITE, &sge, 1,
					 address_of(scene.far, 8), i == 0 ? scene.far->rkey : mr->rkey, SIGNALED),
			0);
		world_wait(scene.world, SERVER, 1);
		assert_int_equal(completion_of(scene.world, SERVER, 1)->status,
			i == 0 ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(verbs_sim.deregister_memory(mr), 0);
		world_close(scene.world);
	}
}

/* A peer that wrote here dies: what it had under way does not keep this side from being idle. */
static void the_dead_touch_nothing(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct scene scene;
		struct memory *own;
		struct ibv_sge sge;

		set_options(&scene);
		open_scene(&scene, seed);
		own = memory_make(scene.world, SERVER, BYTES, REMOTE);
		sge = sge_of(scene.far, 0, BYTES);
		memset(scene.far->bytes, 0xff, BYTES);
		assert_int_equal(post_transfer(scene.pair->qp[CLIENT], 1, IBV_WR_RDMA_WRITE, &sge, 1,
					 address_of(own, 0), own->mr->rkey, SIGNALED),
			0);
		while (sim_counters_of(scene.world).pieces == 0)
			world_round(scene.world);
		sim_kill(scene.world, CLIENT);
		verbs_sim.qp_fail(scene.pair->qp[SERVER]);
		assert_true(verbs_sim.qp_idle(scene.pair->qp[SERVER]));
		memset(own->bytes, 0x11, BYTES);
		world_settle(scene.world);
		assert_true(bytes_are(own->bytes, BYTES, 0x11));
		world_close(scene.world);
	}
}

static void a_whole_device_is_stalled_and_cut(void **state)
{
	struct scene scene;
	struct sim_fabric *fabric;
	struct pair *second;
	struct ibv_sge sge;

	(void)state;
	set_options(&scene);
	open_scene(&scene, 1);
	fabric = sim_fabric_of(scene.world);
	second = pair_make(scene.world, NULL);
	sge = sge_of(scene.near, 0, BYTES);
	for (uint64_t round = 0; round < 2; round++) {
		if (round == 0)
			sim_fabric_stall_device(fabric, scene.world->base.client, true);
		else
			sim_fabric_cut_device(fabric, scene.world->base.client);
		transfer(&scene, 10 * round, IBV_WR_RDMA_WRITE);
		assert_int_equal(post_transfer(second->qp[SERVER], 10 * round + 1, IBV_WR_RDMA_READ, &sge, 1,
					 address_of(scene.far, 0), scene.far->rkey, SIGNALED),
			0);
		world_settle(scene.world);
		assert_int_equal(scene.world->log[SERVER].count, round == 0 ? 0 : 4);
		if (round == 0)
			sim_fabric_stall_device(fabric, scene.world->base.client, false);
		world_wait(scene.world, SERVER, round == 0 ? 2 : 4);
	}
	for (uint64_t id = 0; id < 2; id++) {
		expect_success(scene.world, SERVER, id);
		assert_int_equal(completion_of(scene.world, SERVER, 10 + id)->status, IBV_WC_RETRY_EXC_ERR);
	}
	assert_int_equal(sim_counters_of(scene.world).cuts, 2);
	world_close(scene.world);
}

static void a_destroyed_peer_gives_retry_errors(void **state)
{
	struct scene scene;

	(void)state;
	set_options(&scene);
	open_scene(&scene, 1);
	pair_end(scene.pair, CLIENT);
	transfer(&scene, 1, IBV_WR_RDMA_WRITE);
	assert_int_equal(post_send(scene.pair->qp[SERVER], 2, scene.near, 0, 8, 0), 0);
	world_wait(scene.world, SERVER, 2);
	assert_int_equal(completion_of(scene.world, SERVER, 1)->status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(completion_of(scene.world, SERVER, 2)->status, IBV_WC_WR_FLUSH_ERR);
	assert_true(bytes_are(scene.far->bytes, BYTES, 0));
	world_close(scene.world);
}

/* The client dies at some moment of the work and its memory goes with it: ASan shows any touch of it. */
static void a_killed_process_is_not_touched_any_more(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 60; seed++) {
		struct scene scene;
		struct world *world;
		uint8_t *own = malloc(BYTES);
		struct ibv_mr *mr = NULL;
		struct ibv_sge sge;

		assert_non_null(own);
		set_options(&scene);
		open_scene(&scene, seed);
		world = scene.world;
		assert_int_equal(verbs_sim.register_memory(world->base.client, own, BYTES, REMOTE, &mr), 0);
		sge = sge_of(scene.near, 0, BYTES);
		for (uint32_t i = 0; i < 8; i++)
			assert_int_equal(
				post_transfer(scene.pair->qp[SERVER], i, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
					&sge, 1, (uintptr_t)own, mr->rkey, SIGNALED),
				0);
		assert_int_equal(post_send(scene.pair->qp[CLIENT], 50, scene.far, 0, 64, 0), 0);
		assert_int_equal(post_receive(scene.pair->qp[SERVER], 60, scene.near, 0, 64), 0);
		for (uint64_t i = 0; i < seed; i++)
			world_round(world);
		sim_kill(world, CLIENT);
		memset(own, 0xee, BYTES);
		free(own);
		world_wait(world, SERVER, 8);
		/* Dead things are harmless to hold on to. */
		assert_int_equal(post_send(scene.pair->qp[CLIENT], 51, scene.far, 0, 64, 0), EINVAL);
		assert_int_equal(post_receive(scene.pair->qp[CLIENT], 52, scene.far, 0, 64), EINVAL);
		assert_true(verbs_sim.qp_idle(scene.pair->qp[CLIENT]));
		assert_int_equal(world_poll(world, CLIENT), 0);
		world_settle(world);
		pair_end(scene.pair, SERVER);
		expect_each_once(world, SERVER, 0, 8);
		assert_int_equal(completions_of(world, SERVER, 60), 1);
		if (seed % 2)
			assert_int_equal(verbs_sim.deregister_memory(mr), 0);
		world_close(world);
	}
}

/* Nobody tears the dead process down: the fabric frees what it held. */
static void what_a_killed_process_held_goes_with_the_fabric(void **state)
{
	struct sim_fabric *fabric;
	struct verbs_open options = { 0 };
	struct verbs_device *device;
	struct verbs_qp_options qp_options = { .max_send_wr = 4, .max_recv_wr = 4, .max_sge = 1 };
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	void *memory;

	(void)state;
	assert_int_equal(sim_fabric_create(1, NULL, &fabric), 0);
	options.fabric = fabric;
	assert_int_equal(verbs_sim.open(&options, &device), 0);
	assert_int_equal(verbs_sim.create_cq(device, 8, &cq), 0);
	assert_int_equal(verbs_sim.create_srq(device, 8, &srq), 0);
	qp_options.send_cq = qp_options.recv_cq = cq;
	qp_options.srq = srq;
	assert_int_equal(verbs_sim.create_qp(device, &qp_options, &qp), 0);
	assert_int_equal(verbs_sim.allocate(device, 10000, &memory), 0);
	assert_int_equal(verbs_sim.register_memory(device, memory, 10000, REMOTE, &mr), 0);
	sim_fabric_kill_device(fabric, device);
	assert_int_equal(verbs_sim.create_qp(device, &qp_options, &qp), -EINVAL);
	assert_int_equal(verbs_sim.create_cq(device, 8, &cq), -EINVAL);
	sim_fabric_destroy(&fabric);
	assert_null(fabric);
}

static void a_receiver_that_never_comes_ends_the_retries(void **state)
{
	struct scene scene;

	(void)state;
	set_options(&scene);
	scene.weather.options.rnr_retries = 3;
	open_scene(&scene, 1);
	assert_int_equal(post_send(scene.pair->qp[SERVER], 1, scene.near, 0, 8, SIGNALED), 0);
	transfer(&scene, 2, IBV_WR_RDMA_WRITE);
	for (uint64_t id = 3; id < 30; id++)
		assert_int_equal(post_send(scene.pair->qp[SERVER], id, scene.near, 0, 8, SIGNALED), 0);
	memset(scene.near->bytes, 0xff, BYTES);
	/* Three retries, each after at least 10 us, whatever arrives behind it meanwhile. */
	sim_fabric_step(sim_fabric_of(scene.world), 3 * SIM_RNR_MIN_NS, 1000);
	assert_int_equal(world_poll(scene.world, SERVER), 0);
	world_wait(scene.world, SERVER, 29);
	world_settle(scene.world);
	assert_int_equal(completion_of(scene.world, SERVER, 1)->status, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(completion_of(scene.world, SERVER, 2)->status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(sim_counters_of(scene.world).rnr, 4);
	/* What was behind the SEND did not get past it. */
	assert_true(bytes_are(scene.far->bytes, BYTES, 0));
	world_close(scene.world);
}

static void a_region_that_goes_in_mid_transfer_is_refused(void **state)
{
	uint32_t in_the_middle = 0;

	(void)state;
	for (uint64_t seed = 0; seed < 40; seed++) {
		struct scene scene;
		struct memory *gone;
		enum ibv_wc_status expected = seed % 2 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR;

		set_options(&scene);
		open_scene(&scene, seed);
		memset(scene.near->bytes, 0xff, BYTES);
		transfer(&scene, 1, IBV_WR_RDMA_WRITE);
		for (uint64_t i = 0; i < 1 + seed % 4; i++)
			world_round(scene.world);
		gone = seed % 2 ? scene.far : scene.near;
		if (bytes_are(scene.far->bytes, BYTES, 0xff)) {
			world_close(scene.world);
			continue;
		}
		in_the_middle += !bytes_are(scene.far->bytes, BYTES, 0);
		memory_deregister(gone);
		memset(scene.far->bytes, 0x11, BYTES);
		world_wait(scene.world, SERVER, 1);
		world_settle(scene.world);
		assert_int_equal(completion_of(scene.world, SERVER, 1)->status, expected);
		assert_true(bytes_are(scene.far->bytes, BYTES, 0x11));
		world_close(scene.world);
	}
	assert_true(in_the_middle > 5);
}

static void injected_access_errors_look_like_real_ones(void **state)
{
	struct scene scene;

	(void)state;
	set_options(&scene);
	scene.weather.options.access_error_per_million = 1000000;
	open_scene(&scene, 1);
	memset(scene.near->bytes, 0xff, BYTES);
	transfer(&scene, 1, IBV_WR_RDMA_WRITE);
	world_wait(scene.world, SERVER, 1);
	assert_int_equal(completion_of(scene.world, SERVER, 1)->status, IBV_WC_REM_ACCESS_ERR);
	assert_true(bytes_are(scene.far->bytes, BYTES, 0));
	assert_int_equal(sim_counters_of(scene.world).access_errors, 1);
	world_close(scene.world);
}

static void injected_cuts_happen_at_posts(void **state)
{
	struct scene scene;

	(void)state;
	set_options(&scene);
	scene.weather.options.cut_per_million = 1000000;
	open_scene(&scene, 1);
	transfer(&scene, 1, IBV_WR_RDMA_WRITE);
	world_wait(scene.world, SERVER, 1);
	assert_int_equal(completion_of(scene.world, SERVER, 1)->status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(sim_counters_of(scene.world).cuts, 1);
	world_close(scene.world);
}

static void injected_registration_failures_are_memory_errors(void **state)
{
	struct scene scene;
	struct sim_options options;
	struct verbs_remote_memory remote = { 0 };
	struct verbs_export description;
	struct verbs_import import;
	struct ibv_mr *mr;

	(void)state;
	set_options(&scene);
	open_scene(&scene, 1);
	assert_int_equal(verbs_sim.export_memory(scene.far->mr, &description), 0);
	options = scene.weather.options;
	options.register_fail_per_million = 1000000;
	sim_fabric_set_options(sim_fabric_of(scene.world), &options);
	assert_int_equal(
		verbs_sim.register_memory(scene.world->base.client, scene.far->bytes, 64, REMOTE, &mr), -ENOMEM);
	assert_null(mr);
	remote.address = address_of(scene.far, 0);
	remote.length = 64;
	remote.kind = description.kind;
	remote.rkey = description.rkey;
	assert_int_equal(verbs_sim.import_memory(scene.pair->qp[SERVER], &remote, &import), -ENOMEM);
	world_close(scene.world);
}

static void imports_have_a_limit(void **state)
{
	struct scene scene;
	struct verbs_remote_memory remote = { .address = 4096, .length = 64, .kind = MEMORY_REMOTE, .fd = -1 };
	struct verbs_import import;
	uint32_t imported = 1; /* the scene's own */

	(void)state;
	set_options(&scene);
	open_scene(&scene, 1);
	while (imported < WIRE_REGIONS_MAX) {
		remote.rkey = imported++;
		assert_int_equal(verbs_sim.import_memory(scene.pair->qp[SERVER], &remote, &import), 0);
	}
	assert_int_equal(verbs_sim.import_memory(scene.pair->qp[SERVER], &remote, &import), -ENOSPC);
	verbs_sim.forget_memory(scene.pair->qp[SERVER], 7);
	assert_int_equal(verbs_sim.import_memory(scene.pair->qp[SERVER], &remote, &import), 0);
	remote.kind = MEMORY_SHARED;
	assert_int_equal(verbs_sim.import_memory(scene.pair->qp[SERVER], &remote, &import), -EOPNOTSUPP);
	world_close(scene.world);
}

/* pitfalls I15 */
static void a_completion_queue_that_is_too_small_fails_loudly(void **state)
{
	struct scene scene;
	struct verbs_qp_options options = { .max_send_wr = 16, .max_recv_wr = 16, .max_sge = 1 };
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_wc wcs[16];

	(void)state;
	set_options(&scene);
	scene.weather.careless = true;
	open_scene(&scene, 1);
	assert_int_equal(verbs_sim.create_cq(scene.world->base.client, 4, &cq), 0);
	options.send_cq = options.recv_cq = cq;
	assert_int_equal(verbs_sim.create_qp(scene.world->base.client, &options, &qp), 0);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(post_receive(qp, i, scene.far, 0, 64), 0);
	verbs_sim.qp_fail(qp);
	assert_int_equal(sim_counters_of(scene.world).cq_overflows, 1);
	assert_int_equal(ibv_poll_cq(cq, 16, wcs), 4);
	assert_int_equal(ibv_poll_cq(cq, 16, wcs), -1);
	verbs_sim.destroy_qp(qp);
	verbs_sim.destroy_cq(cq);
	world_close(scene.world);
}

/* pitfalls C09: what was not polled by then does not come later. */
static void stopping_takes_back_what_was_not_polled(void **state)
{
	struct scene scene;
	struct world *world;

	(void)state;
	set_options(&scene);
	open_scene(&scene, 1);
	world = scene.world;
	for (uint32_t i = 0; i < 8; i++) {
		transfer(&scene, i, IBV_WR_RDMA_WRITE);
		assert_int_equal(post_receive(scene.pair->qp[SERVER], 10 + i, scene.near, 0, 64), 0);
	}
	world->held[SERVER] = true;
	world_settle(world);
	verbs_sim.qp_fail(scene.pair->qp[SERVER]);
	assert_true(verbs_sim.qp_idle(scene.pair->qp[SERVER]));
	verbs_sim.qp_stop(scene.pair->qp[SERVER]);
	world->held[SERVER] = false;
	world_settle(world);
	assert_int_equal(world->log[SERVER].count, 0);
	assert_int_equal(post_send(scene.pair->qp[SERVER], 1, scene.near, 0, 8, 0), EINVAL);
	scene.pair->started[SERVER] = false;
	world_close(world);
}

static void broken_contracts_are_counted_and_survived(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct scene scene;

		set_options(&scene);
		scene.weather.careless = true;
		open_scene(&scene, seed);
		for (uint32_t i = 0; i < 8; i++)
			transfer(&scene, i, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE);
		for (uint64_t i = 0; i < seed; i++)
			world_round(scene.world);
		/* While pieces fly. */
		verbs_sim.destroy_qp(scene.pair->qp[SERVER]);
		scene.pair->qp[SERVER] = NULL;
		verbs_sim.destroy_cq(scene.world->cq[CLIENT]);
		assert_int_equal(sim_counters_of(scene.world).misuses, 2);
		world_settle(scene.world);
		world_close(scene.world);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cut_link_gives_both_sides_an_error_when_they_use_it),
		cmocka_unit_test(an_acknowledgement_can_be_lost),
		cmocka_unit_test(a_refused_access_fails_both_ends),
		cmocka_unit_test(keys_belong_to_their_device),
		cmocka_unit_test(the_dead_touch_nothing),
		cmocka_unit_test(a_whole_device_is_stalled_and_cut),
		cmocka_unit_test(a_destroyed_peer_gives_retry_errors),
		cmocka_unit_test(a_killed_process_is_not_touched_any_more),
		cmocka_unit_test(what_a_killed_process_held_goes_with_the_fabric),
		cmocka_unit_test(a_receiver_that_never_comes_ends_the_retries),
		cmocka_unit_test(a_region_that_goes_in_mid_transfer_is_refused),
		cmocka_unit_test(injected_access_errors_look_like_real_ones),
		cmocka_unit_test(injected_cuts_happen_at_posts),
		cmocka_unit_test(injected_registration_failures_are_memory_errors),
		cmocka_unit_test(imports_have_a_limit),
		cmocka_unit_test(a_completion_queue_that_is_too_small_fails_loudly),
		cmocka_unit_test(stopping_takes_back_what_was_not_polled),
		cmocka_unit_test(broken_contracts_are_counted_and_survived),
	};

	return cmocka_run_group_tests_name("faults of the simulated fabric", tests, NULL, NULL);
}
