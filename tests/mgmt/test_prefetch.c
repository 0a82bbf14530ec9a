/* Lookups that wait for L2, with an engine that is late, fails, or never answers. */
#include "mgmt/harness.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "tier/cache.h"
#include "tier/l1.h"

#define JOBS 16

struct fake_engine {
	struct prefetch_engine table;
	struct world *world;
	struct prefetch_job *jobs[JOBS];
	uint32_t loaded[JOBS][64]; /* entries that it holds */
	uint32_t loaded_count[JOBS];
	unsigned begun, canceled;
	unsigned used; /* objects that it was told of */
	uint64_t used_ns;
	uint32_t positions; /* bit n: of chunk n */
	bool refuse;        /* begin fails */
	uint32_t at_once;   /* chunks that are there before begin returns; UINT32_MAX: it does not answer at once */
};

static unsigned slot_of(const struct fake_engine *engine, const struct prefetch_job *job)
{
	for (unsigned n = 0; n < JOBS; n++)
		if (engine->jobs[n] == job)
			return n;
	fail_msg("an unknown job");
	return 0;
}

/* Brings one chunk of a job, for all ranks, as a chain of content by the harness' rule. */
static void load(struct fake_engine *engine, struct prefetch_job *job, uint32_t index)
{
	unsigned slot = slot_of(engine, job);
	uint32_t object_class, entry = CACHE_NONE;
	uint64_t digest, identity;

	memcpy(&digest, prefetch_digest(job, index), sizeof(digest));
	memcpy(&identity, job->model_key, sizeof(identity));
	for (uint32_t part = 0; part < job->parts; part++) {
		uint64_t word = random_mix(digest ^ identity ^ part ^ job->salt[0]) & ~(uint64_t)0xffff;
		l1_ref object;
		uint64_t *words;

		assert_int_equal(l1_class_acquire(engine->world->l1, job->part_bytes[part], &object_class), 0);
		object = cache_reserve(engine->world->cache, 0, object_class, 0, 64);
		assert_true(object != 0);
		l1_class_release(engine->world->l1, object_class);
		words = l1_address(engine->world->l1, object);
		for (uint64_t n = 0; n < job->part_bytes[part] / 8; n++)
			words[n] = word;
		assert_int_equal(cache_publish(engine->world->cache, job->space, prefetch_digest(job, index), part,
					 object, &entry),
			0);
	}
	cache_lock(engine->world->cache, entry, 1);
	engine->loaded[slot][engine->loaded_count[slot]++] = entry;
}

static void done(struct fake_engine *engine, struct prefetch_job *job)
{
	unsigned slot = slot_of(engine, job);

	engine->jobs[slot] = NULL;
	prefetch_done(job);
	while (engine->loaded_count[slot] > 0)
		cache_unlock(engine->world->cache, engine->loaded[slot][--engine->loaded_count[slot]], 1);
}

static int engine_begin(void *context, struct prefetch_job *job)
{
	struct fake_engine *engine = context;
	unsigned slot;

	if (engine->refuse)
		return -EAGAIN;
	slot = slot_of(engine, NULL);
	engine->jobs[slot] = job;
	engine->begun++;
	if (engine->at_once != UINT32_MAX) {
		for (uint32_t n = 0; n < engine->at_once && n < job->count; n++)
			load(engine, job, n);
		done(engine, job);
	}
	return 0;
}

static void engine_cancel(void *context, struct prefetch_job *job)
{
	struct fake_engine *engine = context;

	(void)slot_of(engine, job);
	engine->canceled++;
}

static void engine_used_object(void *context, const struct prefetch_object *object)
{
	struct fake_engine *engine = context;

	if (engine->used++ > 0)
		assert_int_equal(object->used_ns, engine->used_ns);
	engine->used_ns = object->used_ns;
	engine->positions |= 1u << object->position;
}

struct scene {
	struct world world;
	struct fake_engine engine;
	struct handle *scheduler, *worker;
	struct chain chain;
};

static void scene_init(struct scene *scene)
{
	memset(&scene->engine, 0, sizeof(scene->engine));
	scene->engine.table = (struct prefetch_engine){ .context = &scene->engine,
		.default_deadline_ns = 5 * KVR_SECOND,
		.begin = engine_begin,
		.cancel = engine_cancel,
		.used = engine_used_object };
	scene->engine.world = &scene->world;
	scene->engine.at_once = UINT32_MAX;
	world_init(&scene->world, &(struct world_options){ .slots = 32, .prefetch = &scene->engine.table });
	scene->scheduler = handle_scheduler(client_join(&scene->world, 1));
	scene->worker = handle_worker(client_join(&scene->world, 1));
	scene->chain = chain_named(31);
	assert_int_equal(do_store(scene->worker, "w", &scene->chain, 0, 3, STATUS_OK), 3);
	do_end(scene->worker, "w");
}

static struct ask *parked_lookup(struct scene *scene, uint16_t flags)
{
	struct ask *ask = ask_new(scene->scheduler, WIRE_LOOKUP, "s");

	ask->request.message.lookup.header.flags = flags;
	ask_with_chain(ask, &scene->chain, 0, 8);
	ask_send(ask);
	world_run(&scene->world);
	return ask;
}

/* However late its later chunks come: a place that evicts gives them up before the early ones. */
static void what_a_session_stores_is_of_one_time_and_has_its_place_in_the_chain(void **state)
{
	struct scene scene;

	(void)state;
	scene_init(&scene);
	scene.engine.used = 0;
	scene.engine.positions = 0;
	scene.chain = chain_named(32);
	for (uint32_t n = 0; n < 8; n += 4) {
		assert_int_equal(do_store(scene.worker, "pieces", &scene.chain, n, 4, STATUS_OK), 4);
		world_pass(&scene.world, KVR_SECOND);
	}
	assert_int_equal(scene.engine.used, 8);
	assert_int_equal(scene.engine.positions, 0xff);
	assert_true(scene.engine.used_ns > 0);
	do_end(scene.worker, "pieces");
	world_fini(&scene.world);
}

static void a_lookup_waits_for_what_l2_brings(void **state)
{
	struct scene scene;
	struct ask *lookup;

	(void)state;
	scene_init(&scene);
	lookup = parked_lookup(&scene, 0);
	assert_false(lookup->replied);
	/* Those of L1 are locked already. */
	assert_int_equal(world_locks(&scene.world), 3);
	assert_int_equal(scene.engine.jobs[0]->first, 3);
	assert_int_equal(scene.engine.jobs[0]->count, 5);
	for (uint32_t n = 0; n < 4; n++)
		load(&scene.engine, scene.engine.jobs[0], n);
	done(&scene.engine, scene.engine.jobs[0]);
	world_run(&scene.world);
	assert_int_equal(lookup->request.reply.second, 4);
	assert_int_equal(ask_expect(lookup, STATUS_OK), 7);
	assert_int_equal(world_locks(&scene.world), 7);
	assert_int_equal(do_retrieve(scene.worker, "s", &scene.chain, 0, 7, STATUS_OK), 7);
	assert_int_equal(COUNTER(&scene.world, l2_hit_chunks_total), 4);
	assert_int_equal(COUNTER(&scene.world, l1_hit_chunks_total), 3);
	world_fini(&scene.world);
}

/* A load that fails in the middle shortens the hit; what was loaded behind it stays, unlocked (pitfalls A06). */
static void a_load_that_fails_shortens_the_hit(void **state)
{
	struct scene scene;
	struct ask *lookup;

	(void)state;
	scene_init(&scene);
	lookup = parked_lookup(&scene, 0);
	load(&scene.engine, scene.engine.jobs[0], 0);
	load(&scene.engine, scene.engine.jobs[0], 3);
	done(&scene.engine, scene.engine.jobs[0]);
	world_run(&scene.world);
	assert_int_equal(ask_expect(lookup, STATUS_OK), 4);
	assert_int_equal(world_locks(&scene.world), 4);
	assert_int_equal(world_chunks(&scene.world), 5);
	world_fini(&scene.world);
}

static void an_engine_that_never_answers_costs_its_deadline(void **state)
{
	struct scene scene;
	struct ask *lookup, *query;

	(void)state;
	scene_init(&scene);
	lookup = parked_lookup(&scene, 0);
	query = ask_query(scene.scheduler, "s", 3 * KVR_SECOND);
	world_pass(&scene.world, 4 * KVR_SECOND);
	/* A QUERY that waits in vain is told so. */
	ask_expect(query, STATUS_PENDING);
	assert_false(lookup->replied);
	load(&scene.engine, scene.engine.jobs[0], 0);
	world_pass(&scene.world, 2 * KVR_SECOND);
	/* What is there counts (pitfalls D15), and the job is known to be nobody's. */
	assert_int_equal(ask_expect(lookup, STATUS_OK), 4);
	assert_int_equal(scene.engine.canceled, 1);
	assert_int_equal(world_locks(&scene.world), 4 + 1);
	/* It answers after the session has ended. */
	do_end(scene.scheduler, "s");
	done(&scene.engine, scene.engine.jobs[0]);
	world_run(&scene.world);
	assert_int_equal(world_locks(&scene.world), 0);
	world_fini(&scene.world);
}

static void a_lookup_names_its_own_deadline(void **state)
{
	struct scene scene;
	struct ask *lookup;

	(void)state;
	scene_init(&scene);
	lookup = ask_new(scene.scheduler, WIRE_LOOKUP, "s");
	lookup->request.message.lookup.deadline_ns = 100 * KVR_MS;
	ask_with_chain(lookup, &scene.chain, 0, 8);
	ask_send(lookup);
	world_run(&scene.world);
	assert_false(lookup->replied);
	world_pass(&scene.world, 110 * KVR_MS);
	assert_int_equal(ask_expect(lookup, STATUS_OK), 3);
	done(&scene.engine, scene.engine.jobs[0]);
	world_fini(&scene.world);
}

static void an_engine_may_refuse_or_answer_at_once(void **state)
{
	struct scene scene;

	(void)state;
	scene_init(&scene);
	scene.engine.refuse = true;
	assert_int_equal(ask_expect(parked_lookup(&scene, 0), STATUS_OK), 3);
	scene.engine.refuse = false;
	scene.engine.at_once = 2;
	assert_int_equal(ask_expect(parked_lookup(&scene, 0), STATUS_OK), 5);
	assert_int_equal(world_locks(&scene.world), 5);
	scene.engine.at_once = 0;
	assert_int_equal(ask_expect(parked_lookup(&scene, LOOKUP_NO_WAIT), STATUS_OK), 5);
	assert_int_equal(scene.engine.begun, 2);
	world_fini(&scene.world);
}

static void a_lookup_that_does_not_wait_is_followed_by_queries(void **state)
{
	struct scene scene;
	struct ask *waiting, *early, *ask;

	(void)state;
	scene_init(&scene);
	ask_expect(parked_lookup(&scene, LOOKUP_NO_WAIT), STATUS_PENDING);
	ask = ask_query(scene.scheduler, "s", 0);
	waiting = ask_query(scene.scheduler, "s", KVR_SECOND);
	early = ask_new(scene.scheduler, WIRE_QUERY, "s");
	early->request.message.query.header.flags = QUERY_EARLY;
	early->request.message.query.timeout_ns = KVR_SECOND;
	ask_send(early);
	world_run(&scene.world);
	ask_expect(ask, STATUS_PENDING);
	assert_false(waiting->replied || early->replied);
	prefetch_early(scene.engine.jobs[0], 5);
	world_run(&scene.world);
	assert_int_equal(ask_expect(early, STATUS_OK), 8);
	assert_false(waiting->replied);
	load(&scene.engine, scene.engine.jobs[0], 0);
	done(&scene.engine, scene.engine.jobs[0]);
	world_run(&scene.world);
	assert_int_equal(ask_expect(waiting, STATUS_OK), 4);
	/* The result stays until the next LOOKUP. */
	for (unsigned n = 0; n < 2; n++) {
		ask = ask_query(scene.scheduler, "s", 0);
		world_run(&scene.world);
		assert_int_equal(ask->request.reply.second, 1);
		assert_int_equal(ask_expect(ask, STATUS_OK), 4);
	}
	ask = ask_query(scene.scheduler, "nobody", 0);
	world_run(&scene.world);
	ask_expect(ask, STATUS_UNKNOWN_SESSION);
	world_fini(&scene.world);
}

static void a_parked_lookup_ends_with_cancel_session_or_another_lookup(void **state)
{
	struct scene scene;
	struct ask *lookup, *query, *cancel, *second;

	(void)state;
	scene_init(&scene);
	lookup = parked_lookup(&scene, 0);
	query = ask_query(scene.scheduler, "s", KVR_SECOND);
	cancel = ask_cancel(scene.scheduler, lookup);
	world_run(&scene.world);
	assert_true(lookup->replied_turn < cancel->replied_turn);
	ask_expect(lookup, STATUS_CANCELED);
	ask_expect(query, STATUS_CANCELED);
	ask_expect(cancel, STATUS_OK);
	assert_int_equal(world_locks(&scene.world), 0);
	done(&scene.engine, scene.engine.jobs[0]);

	lookup = parked_lookup(&scene, 0);
	query = ask_query(scene.scheduler, "s", KVR_SECOND);
	second = parked_lookup(&scene, 0);
	ask_expect(lookup, STATUS_CANCELED);
	assert_false(second->replied || query->replied);
	assert_int_equal(world_locks(&scene.world), 3);
	done(&scene.engine, scene.engine.jobs[0]);
	assert_false(second->replied);
	do_end(scene.scheduler, "s");
	ask_expect(second, STATUS_CANCELED);
	ask_expect(query, STATUS_CANCELED);
	assert_int_equal(world_locks(&scene.world), 0);
	done(&scene.engine, scene.engine.jobs[1]);
	world_run(&scene.world);
	world_fini(&scene.world);
}

static void a_parked_lookup_goes_with_its_connection(void **state)
{
	struct scene scene;
	struct ask *lookup, *query, *cancel;

	(void)state;
	scene_init(&scene);
	lookup = parked_lookup(&scene, 0);
	query = ask_query(scene.scheduler, "s", KVR_SECOND);
	cancel = ask_cancel(scene.scheduler, query);
	client_fail(scene.scheduler->client);
	world_run(&scene.world);
	assert_true(scene.scheduler->client->detached);
	assert_true(lookup->replied && query->replied && cancel->replied);
	assert_int_equal(world_locks(&scene.world), 0);
	done(&scene.engine, scene.engine.jobs[0]);
	world_fini(&scene.world);
}

static void draining_answers_what_waits_for_l2(void **state)
{
	struct scene scene;
	struct ask *lookup;

	(void)state;
	scene_init(&scene);
	lookup = parked_lookup(&scene, 0);
	assert_true(ring_push(
		management_inbox(scene.world.management), &(struct ring_message){ .kind = MANAGEMENT_DRAIN }));
	world_run(&scene.world);
	assert_int_equal(ask_expect(lookup, STATUS_OK), 3);
	assert_int_equal(scene.world.drained, 1);
	done(&scene.engine, scene.engine.jobs[0]);
	world_fini(&scene.world);
}

static void many_lookups_park_and_end_in_any_order(void **state)
{
	struct scene scene;
	struct random random;
	struct ask *lookup[8] = { NULL };

	(void)state;
	scene_init(&scene);
	random_init(&random, 5);
	for (unsigned round = 0; round < 3000; round++) {
		unsigned n = (unsigned)random_below(&random, 8);
		char name[8];

		snprintf(name, sizeof(name), "s%u", n);
		if (lookup[n] && lookup[n]->replied) {
			ask_free(lookup[n]);
			lookup[n] = NULL;
		}
		if (!lookup[n]) {
			lookup[n] = ask_lookup(
				scene.scheduler, name, &scene.chain, 4 + (uint32_t)random_below(&random, 4));
		} else if (random_chance(&random, 1, 3)) {
			do_end(scene.scheduler, name);
		}
		world_turn(&scene.world);
		n = (unsigned)random_below(&random, JOBS);
		if (scene.engine.jobs[n] && random_chance(&random, 1, 2)) {
			if (scene.engine.jobs[n]->session && random_chance(&random, 1, 2) &&
				cache_find(scene.world.cache, scene.engine.jobs[n]->space,
					prefetch_digest(scene.engine.jobs[n], 0)) == CACHE_NONE)
				load(&scene.engine, scene.engine.jobs[n], 0);
			done(&scene.engine, scene.engine.jobs[n]);
		}
		if (round % 64 == 0)
			world_verify(&scene.world);
		scene.world.now += 50 * KVR_MS;
	}
	for (unsigned n = 0; n < JOBS; n++)
		if (scene.engine.jobs[n])
			done(&scene.engine, scene.engine.jobs[n]);
	world_fini(&scene.world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_session_stores_is_of_one_time_and_has_its_place_in_the_chain),
		cmocka_unit_test(a_lookup_waits_for_what_l2_brings),
		cmocka_unit_test(a_load_that_fails_shortens_the_hit),
		cmocka_unit_test(an_engine_that_never_answers_costs_its_deadline),
		cmocka_unit_test(a_lookup_names_its_own_deadline),
		cmocka_unit_test(an_engine_may_refuse_or_answer_at_once),
		cmocka_unit_test(a_lookup_that_does_not_wait_is_followed_by_queries),
		cmocka_unit_test(a_parked_lookup_ends_with_cancel_session_or_another_lookup),
		cmocka_unit_test(a_parked_lookup_goes_with_its_connection),
		cmocka_unit_test(draining_answers_what_waits_for_l2),
		cmocka_unit_test(many_lookups_park_and_end_in_any_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
