/* What the simulator itself promises beyond the suite: time, pieces, order, breakage, and the same again from the same
 * seed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/random.h"
#include "verbs/conformance_sim.h"
#include "verbs/sim/sim.h"

#define SIGNALED IBV_SEND_SIGNALED
#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define RELAXED (REMOTE | IBV_ACCESS_RELAXED_ORDERING)
#define BYTES 4096u

/* A world with one pair and memory at both ends. */
struct scene {
	struct sim_weather weather;
	struct conformance_harness harness;
	struct world *world;
	struct pair *pair;
	struct memory *near, *far;
};

static void open_scene(struct scene *scene, uint64_t seed, int far_flags)
{
	scene->weather.seed = seed;
	scene->world = sim_world_open(&scene->weather, &scene->harness);
	scene->pair = pair_make(scene->world, NULL);
	scene->near = memory_make(scene->world, SERVER, BYTES, IBV_ACCESS_LOCAL_WRITE);
	scene->far = memory_remote(scene->pair, BYTES, far_flags);
}

static void default_scene(struct scene *scene, uint64_t seed)
{
	memset(scene, 0, sizeof(*scene));
	sim_options_default(&scene->weather.options);
	open_scene(scene, seed, REMOTE);
}

static void close_scene(struct scene *scene)
{
	world_close(scene->world);
}

static void transfer(struct scene *scene, uint64_t id, enum ibv_wr_opcode opcode, uint32_t length, unsigned flags)
{
	struct ibv_sge sge = sge_of(scene->near, 0, length);

	assert_int_equal(post_transfer(scene->pair->qp[SERVER], id, opcode, &sge, 1, address_of(scene->far, 0),
				 scene->far->rkey, flags),
		0);
}

static uint64_t bytes_changed(const uint8_t *bytes, uint64_t length)
{
	uint64_t count = 0;

	for (uint64_t i = 0; i < length; i++)
		count += bytes[i] != 0;
	return count;
}

/* Looks at the memory after each event: how many different amounts of it were there before the completion? */
static uint32_t stages_before_completion(uint64_t seed, enum ibv_wr_opcode opcode)
{
	struct scene scene;
	uint64_t seen = 0;
	uint32_t stages = 0;

	default_scene(&scene, seed);
	memset(opcode == IBV_WR_RDMA_READ ? scene.far->bytes : scene.near->bytes, 0xff, BYTES);
	transfer(&scene, 1, opcode, BYTES, SIGNALED);
	while (scene.world->log[SERVER].count == 0) {
		uint64_t now;

		world_round(scene.world);
		now = bytes_changed(opcode == IBV_WR_RDMA_READ ? scene.near->bytes : scene.far->bytes, BYTES);
		stages += now != seen;
		seen = now;
	}
	assert_int_equal(seen, BYTES);
	close_scene(&scene);
	return stages;
}

static void bytes_land_in_pieces_before_the_completion(void **state)
{
	uint32_t most_write = 0, most_read = 0;

	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		uint32_t write = stages_before_completion(seed, IBV_WR_RDMA_WRITE);
		uint32_t read = stages_before_completion(seed, IBV_WR_RDMA_READ);

		assert_in_range(write, 1, 4);
		assert_in_range(read, 1, 4);
		most_write = write > most_write ? write : most_write;
		most_read = read > most_read ? read : most_read;
	}
	assert_int_equal(most_write, 4);
	assert_int_equal(most_read, 4);
}

/* Fails the server's side while pieces fly and uses the memory again at once, as nobody may: is it overwritten? */
static bool early_reuse_is_caught(uint64_t seed, enum ibv_wr_opcode opcode, bool wait_for_idle)
{
	struct scene scene;
	struct memory *target;
	bool caught;

	default_scene(&scene, seed);
	target = opcode == IBV_WR_RDMA_READ ? scene.near : scene.far;
	memset(opcode == IBV_WR_RDMA_READ ? scene.far->bytes : scene.near->bytes, 0xff, BYTES);
	transfer(&scene, 1, opcode, BYTES, SIGNALED);
	sim_one_event(scene.world);
	scene.world->driver->qp_fail(scene.pair->qp[SERVER]);
	world_poll(scene.world, SERVER);
	assert_int_equal(completion_at(scene.world, SERVER, 0)->status, IBV_WC_WR_FLUSH_ERR);
	assert_false(scene.world->driver->qp_idle(scene.pair->qp[SERVER]));
	if (wait_for_idle)
		pair_wait_idle(scene.pair, SERVER);
	memset(target->bytes, 0x11, BYTES);
	world_settle(scene.world);
	caught = !bytes_are(target->bytes, BYTES, 0x11);
	assert_true(sim_counters_of(scene.world).late_pieces > 0);
	close_scene(&scene);
	return caught;
}

/* pitfalls C05 */
static void late_pieces_land_until_the_queue_pair_is_idle(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		assert_true(early_reuse_is_caught(seed, IBV_WR_RDMA_WRITE, false));
		assert_true(early_reuse_is_caught(seed, IBV_WR_RDMA_READ, false));
		assert_false(early_reuse_is_caught(seed, IBV_WR_RDMA_WRITE, true));
		assert_false(early_reuse_is_caught(seed, IBV_WR_RDMA_READ, true));
	}
}

/* The other side too: its memory is touched until its own queue pair is idle. */
static void the_reached_side_is_not_idle_while_pieces_fly(void **state)
{
	struct scene scene;

	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		const struct verbs_driver *driver = &verbs_sim;

		default_scene(&scene, seed);
		transfer(&scene, 1, IBV_WR_RDMA_WRITE, BYTES, SIGNALED);
		sim_one_event(scene.world);
		driver->qp_fail(scene.pair->qp[CLIENT]);
		assert_false(driver->qp_idle(scene.pair->qp[CLIENT]));
		pair_wait_idle(scene.pair, CLIENT);
		memset(scene.far->bytes, 0x11, BYTES);
		world_settle(scene.world);
		assert_true(bytes_are(scene.far->bytes, BYTES, 0x11));
		assert_int_equal(completion_of(scene.world, SERVER, 1)->status, IBV_WC_RETRY_EXC_ERR);
		close_scene(&scene);
	}
}

/* Two WRITEs: does the second one's byte get there before the first one's last? */
static bool overtakes(uint64_t seed, int far_flags)
{
	struct scene scene = { 0 };
	struct ibv_sge sge;
	bool early = false;

	sim_options_default(&scene.weather.options);
	open_scene(&scene, seed, far_flags);
	memset(scene.near->bytes, 0xff, BYTES);
	transfer(&scene, 1, IBV_WR_RDMA_WRITE, BYTES - 1, 0);
	sge = sge_of(scene.near, 0, 1);
	assert_int_equal(post_transfer(scene.pair->qp[SERVER], 2, IBV_WR_RDMA_WRITE, &sge, 1,
				 address_of(scene.far, BYTES - 1), scene.far->rkey, SIGNALED),
		0);
	while (scene.world->log[SERVER].count == 0) {
		world_round(scene.world);
		early |= scene.far->bytes[BYTES - 1] && bytes_changed(scene.far->bytes, BYTES) < BYTES;
	}
	close_scene(&scene);
	return early;
}

static void only_relaxed_regions_let_a_write_overtake(void **state)
{
	uint32_t relaxed = 0;

	(void)state;
	for (uint64_t seed = 0; seed < 50; seed++) {
		relaxed += overtakes(seed, RELAXED);
		assert_false(overtakes(seed, REMOTE));
	}
	assert_true(relaxed > 5);
}

static void a_write_without_a_fence_may_overtake_a_read(void **state)
{
	uint32_t overtaken = 0;

	(void)state;
	for (uint64_t seed = 0; seed < 50; seed++) {
		struct scene scene;
		struct memory *other;
		struct ibv_sge sge;

		default_scene(&scene, seed);
		other = memory_make(scene.world, SERVER, BYTES, IBV_ACCESS_LOCAL_WRITE);
		memset(other->bytes, 0xff, BYTES);
		transfer(&scene, 1, IBV_WR_RDMA_READ, BYTES, 0);
		sge = sge_of(other, 0, BYTES);
		assert_int_equal(post_transfer(scene.pair->qp[SERVER], 2, IBV_WR_RDMA_WRITE, &sge, 1,
					 address_of(scene.far, 0), scene.far->rkey, SIGNALED),
			0);
		world_wait(scene.world, SERVER, 1);
		overtaken += bytes_changed(scene.near->bytes, BYTES) > 0;
		close_scene(&scene);
	}
	assert_in_range(overtaken, 5, 50);
}

static void a_slow_link_takes_its_time(void **state)
{
	struct scene scene = { 0 };

	(void)state;
	sim_options_default(&scene.weather.options);
	scene.weather.options.bytes_per_us = 2;
	open_scene(&scene, 1, REMOTE);
	for (int i = 0; i < 2; i++) {
		uint64_t before_ns = sim_fabric_next_ns(sim_fabric_of(scene.world));

		assert_int_equal(before_ns, UINT64_MAX);
		transfer(&scene, (uint64_t)i, i ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, BYTES, SIGNALED);
		/* 4096 bytes at 2 bytes a microsecond: nothing is done before 2048 us have passed. */
		sim_fabric_step(sim_fabric_of(scene.world), (uint64_t)(i + 1) * 2048000 + (uint64_t)i * 100000, 1000);
		world_poll(scene.world, SERVER);
		assert_int_equal(scene.world->log[SERVER].count, i);
		sim_fabric_step(sim_fabric_of(scene.world), (uint64_t)(i + 1) * 2148000, 1000);
		world_poll(scene.world, SERVER);
		assert_int_equal(scene.world->log[SERVER].count, i + 1);
	}
	close_scene(&scene);
}

/* Everything that can be seen of a run, as one number. */
static uint64_t transcript(uint64_t seed)
{
	struct scene scene = { 0 };
	struct random random;
	uint64_t digest = 0;
	uint32_t seen[SIDES] = { 0 };

	sim_options_default(&scene.weather.options);
	scene.weather.options.pieces_max = 16;
	open_scene(&scene, seed, REMOTE);
	random_init(&random, 5);
	for (uint32_t i = 0; i < 40; i++) {
		assert_int_equal(post_receive(scene.pair->qp[CLIENT], i, scene.far, 0, 64), 0);
		if (random_chance(&random, 1, 3))
			assert_int_equal(post_send(scene.pair->qp[SERVER], i, scene.near, 0, 8, SIGNALED), 0);
		else
			transfer(&scene, i, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				(uint32_t)random_below(&random, BYTES), SIGNALED);
	}
	while (sim_fabric_next_ns(sim_fabric_of(scene.world)) != UINT64_MAX) {
		digest = random_mix(digest ^ sim_fabric_next_ns(sim_fabric_of(scene.world)));
		world_round(scene.world);
		for (enum side side = SERVER; side < SIDES; side++) {
			for (; seen[side] < scene.world->log[side].count; seen[side]++) {
				const struct ibv_wc *wc = completion_at(scene.world, side, seen[side]);

				digest = random_mix(digest ^ wc->wr_id ^ (uint64_t)wc->opcode << 32 ^
					(uint64_t)wc->status << 40 ^ (uint64_t)side << 48);
			}
		}
	}
	digest ^= (uint64_t)scene.far->mr->rkey << 32 | scene.near->mr->lkey;
	assert_int_equal(seen[SERVER], 40);
	close_scene(&scene);
	return digest;
}

static void the_same_seed_gives_the_same_run(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 10; seed++) {
		assert_int_equal(transcript(seed), transcript(seed));
		assert_int_not_equal(transcript(seed), transcript(seed + 1));
	}
}

static void steps_keep_to_their_time_and_their_limit(void **state)
{
	struct scene scene;
	struct sim_fabric *fabric;

	(void)state;
	default_scene(&scene, 3);
	fabric = sim_fabric_of(scene.world);
	assert_int_equal(sim_fabric_next_ns(fabric), UINT64_MAX);
	assert_int_equal(sim_fabric_step(fabric, 1000000, 100), 0);
	transfer(&scene, 1, IBV_WR_RDMA_WRITE, BYTES, SIGNALED);
	assert_in_range(sim_fabric_next_ns(fabric), 1001000, 1005000);
	assert_int_equal(sim_fabric_step(fabric, 1000999, 100), 0);
	assert_int_equal(sim_fabric_step(fabric, 2000000, 1), 1);
	assert_int_equal(sim_fabric_step(fabric, 2000000, 0), 0);
	assert_true(sim_fabric_step(fabric, 2000000, 100) >= 2);
	assert_int_equal(sim_fabric_next_ns(fabric), UINT64_MAX);
	world_poll(scene.world, SERVER);
	expect_success(scene.world, SERVER, 1);
	close_scene(&scene);
}

static void a_stalled_link_delivers_nothing_until_it_goes_on(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct scene scene;
		enum side which = seed % 2 ? SERVER : CLIENT;
		uint32_t done;

		default_scene(&scene, seed);
		memset(scene.near->bytes, 0xff, BYTES);
		for (uint32_t i = 0; i < 16; i++) {
			transfer(&scene, 2 * i, IBV_WR_RDMA_WRITE, BYTES, SIGNALED);
			assert_int_equal(post_receive(scene.pair->qp[CLIENT], i, scene.far, 0, 64), 0);
			assert_int_equal(post_send(scene.pair->qp[SERVER], 2 * i + 1, scene.near, 0, 64, SIGNALED), 0);
		}
		for (uint64_t i = 0; i < seed; i++)
			world_round(scene.world);
		sim_fabric_stall(sim_fabric_of(scene.world), scene.pair->qp[which]->qp_num, true);
		done = scene.world->log[SERVER].count;
		memset(scene.far->bytes, 0, BYTES);
		world_settle(scene.world);
		assert_true(bytes_are(scene.far->bytes, BYTES, 0));
		assert_int_equal(scene.world->log[SERVER].count, done);
		sim_fabric_stall(sim_fabric_of(scene.world), scene.pair->qp[which]->qp_num, false);
		world_wait(scene.world, SERVER, 32);
		world_wait(scene.world, CLIENT, 16);
		expect_each_once(scene.world, SERVER, 0, 32);
		assert_true(bytes_are(scene.far->bytes, BYTES, 0xff));
		close_scene(&scene);
	}
}

/* A stalled peer must not keep the server's memory for ever. */
static void failing_over_a_stalled_link_ends_in_idle(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct scene scene;

		default_scene(&scene, seed);
		transfer(&scene, 1, IBV_WR_RDMA_WRITE, BYTES, SIGNALED);
		transfer(&scene, 2, IBV_WR_RDMA_READ, BYTES, SIGNALED);
		for (uint64_t i = 0; i < seed % 5; i++)
			world_round(scene.world);
		sim_fabric_stall(sim_fabric_of(scene.world), scene.pair->qp[SERVER]->qp_num, true);
		world_settle(scene.world);
		pair_end(scene.pair, SERVER);
		expect_each_once(scene.world, SERVER, 1, 2);
		pair_end(scene.pair, CLIENT);
		close_scene(&scene);
	}
}

static void completion_and_receive_delays_keep_their_order(void **state)
{
	struct scene scene = { 0 };

	(void)state;
	sim_options_default(&scene.weather.options);
	scene.weather.options.completion_max_ns = 1000000;
	open_scene(&scene, 4, REMOTE);
	for (uint32_t i = 0; i < 64; i++) {
		assert_int_equal(post_receive(scene.pair->qp[CLIENT], i, scene.far, 0, 64), 0);
		assert_int_equal(post_send(scene.pair->qp[SERVER], i, scene.near, 0, i, SIGNALED), 0);
	}
	world_wait(scene.world, SERVER, 64);
	world_wait(scene.world, CLIENT, 64);
	expect_each_once(scene.world, SERVER, 0, 64);
	expect_each_once(scene.world, CLIENT, 0, 64);
	close_scene(&scene);
}

static void a_completion_may_come_long_after_its_bytes(void **state)
{
	struct scene scene = { 0 };

	(void)state;
	sim_options_default(&scene.weather.options);
	scene.weather.options.completion_min_ns = scene.weather.options.completion_max_ns = 100000;
	open_scene(&scene, 1, REMOTE);
	memset(scene.near->bytes, 0xff, BYTES);
	assert_int_equal(post_receive(scene.pair->qp[CLIENT], 1, scene.far, 0, 64), 0);
	assert_int_equal(post_send(scene.pair->qp[SERVER], 2, scene.near, 0, 64, SIGNALED), 0);
	sim_fabric_step(sim_fabric_of(scene.world), 50000, 100);
	assert_true(bytes_are(scene.far->bytes, 64, 0xff));
	assert_int_equal(world_poll(scene.world, CLIENT) + world_poll(scene.world, SERVER), 0);
	sim_fabric_step(sim_fabric_of(scene.world), 110000, 100);
	assert_int_equal(world_poll(scene.world, CLIENT), 1);
	assert_int_equal(world_poll(scene.world, SERVER), 1);
	close_scene(&scene);
}

/* Two messages 64 us apart on a slow link, both held back for 100 us: the second does not come out with the first. */
static void each_receive_is_held_back_for_its_own_time(void **state)
{
	struct scene scene = { 0 };

	(void)state;
	sim_options_default(&scene.weather.options);
	scene.weather.options.bytes_per_us = 1;
	scene.weather.options.completion_min_ns = scene.weather.options.completion_max_ns = 100000;
	open_scene(&scene, 1, REMOTE);
	for (uint64_t id = 1; id <= 2; id++) {
		assert_int_equal(post_receive(scene.pair->qp[CLIENT], id, scene.far, 0, 64), 0);
		assert_int_equal(post_send(scene.pair->qp[SERVER], id, scene.near, 0, 64, SIGNALED), 0);
	}
	sim_fabric_step(sim_fabric_of(scene.world), 200000, 100);
	assert_int_equal(world_poll(scene.world, CLIENT), 1);
	sim_fabric_step(sim_fabric_of(scene.world), 240000, 100);
	assert_int_equal(world_poll(scene.world, CLIENT), 1);
	close_scene(&scene);
}

static void tables_find_what_they_hold(void **state)
{
	enum { KEYS = 700 };
	struct sim_table table = { 0 };
	struct random random;
	static int values[KEYS];
	static bool inside[KEYS];

	(void)state;
	random_init(&random, 1);
	memset(inside, 0, sizeof(inside));
	for (uint32_t i = 0; i < 100000; i++) {
		uint32_t key = 1 + (uint32_t)random_below(&random, KEYS - 1);

		assert_ptr_equal(sim_table_find(&table, key), inside[key] ? &values[key] : NULL);
		if (inside[key])
			sim_table_remove(&table, key);
		else
			assert_int_equal(sim_table_add(&table, key, &values[key]), 0);
		inside[key] = !inside[key];
	}
	for (uint32_t key = 1; key < KEYS; key++)
		assert_ptr_equal(sim_table_find(&table, key), inside[key] ? &values[key] : NULL);
	assert_null(sim_table_find(&table, 0));
	sim_table_remove(&table, KEYS + 1);
	sim_table_fini(&table);
}

static void a_message_waits_for_a_peer_that_starts_late(void **state)
{
	struct scene scene;
	struct pair_options options;
	struct pair *pair;
	struct world *world;
	uint8_t bytes[512];
	uint32_t length;
	unsigned fd_count;

	(void)state;
	default_scene(&scene, 4);
	world = scene.world;
	pair_defaults(&options);
	pair = calloc(1, sizeof(*pair));
	pair->world = world;
	pair->next = world->pairs;
	world->pairs = pair;
	for (enum side side = SERVER; side < SIDES; side++)
		pair->qp[side] = qp_make(world, side, &options);
	for (enum side side = SERVER; side < SIDES; side++) {
		struct ibv_qp *other = pair->qp[side == SERVER ? CLIENT : SERVER];

		assert_int_equal(verbs_sim.qp_address(other, bytes, sizeof(bytes), &length, NULL, &fd_count), 0);
		assert_int_equal(verbs_sim.qp_connect(pair->qp[side], bytes, length, NULL, 0, NULL), 0);
	}
	verbs_sim.qp_start(pair->qp[CLIENT]);
	pair->started[CLIENT] = true;
	assert_int_equal(post_receive(pair->qp[SERVER], 7, scene.near, 0, 64), 0);
	assert_int_equal(post_send(pair->qp[CLIENT], 8, scene.far, 0, 64, SIGNALED), 0);
	for (int i = 0; i < 100; i++)
		world_round(world);
	assert_int_equal(world->log[SERVER].count + world->log[CLIENT].count, 0);
	verbs_sim.qp_start(pair->qp[SERVER]);
	pair->started[SERVER] = true;
	world_wait(world, SERVER, 1);
	world_wait(world, CLIENT, 1);
	expect_success(world, SERVER, 7);
	expect_success(world, CLIENT, 8);
	close_scene(&scene);
}

/* Every allocation of the simulator has a fault point before it: none is passed once the queues have been full once. */
static void posting_allocates_nothing_once_warm(void **state)
{
#ifdef KVRAIL_FAULT_POINTS
	struct scene scene;
	uint64_t points = 0;

	(void)state;
	default_scene(&scene, 1);
	for (uint32_t round = 0; round < 20; round++) {
		if (round == 4)
			points = fault_count();
		for (uint32_t i = 0; i < 64; i++)
			transfer(&scene, i, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, BYTES, SIGNALED);
		world_wait(scene.world, SERVER, 64 * (round + 1));
	}
	assert_int_equal(fault_count(), points);
	close_scene(&scene);
#else
	(void)state;
	skip();
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_land_in_pieces_before_the_completion),
		cmocka_unit_test(late_pieces_land_until_the_queue_pair_is_idle),
		cmocka_unit_test(the_reached_side_is_not_idle_while_pieces_fly),
		cmocka_unit_test(only_relaxed_regions_let_a_write_overtake),
		cmocka_unit_test(a_write_without_a_fence_may_overtake_a_read),
		cmocka_unit_test(a_slow_link_takes_its_time),
		cmocka_unit_test(the_same_seed_gives_the_same_run),
		cmocka_unit_test(steps_keep_to_their_time_and_their_limit),
		cmocka_unit_test(a_stalled_link_delivers_nothing_until_it_goes_on),
		cmocka_unit_test(failing_over_a_stalled_link_ends_in_idle),
		cmocka_unit_test(completion_and_receive_delays_keep_their_order),
		cmocka_unit_test(a_completion_may_come_long_after_its_bytes),
		cmocka_unit_test(each_receive_is_held_back_for_its_own_time),
		cmocka_unit_test(tables_find_what_they_hold),
		cmocka_unit_test(a_message_waits_for_a_peer_that_starts_late),
		cmocka_unit_test(posting_allocates_nothing_once_warm),
	};

	return cmocka_run_group_tests_name("the simulated fabric", tests, NULL, NULL);
}
