/* The L2 engine between a cache and simulated adapters: write-through, fetches, and what goes wrong. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "base/random.h"
#include "tier/cache_internal.h"
#include "tier/l2_internal.h"
#include "tier/sim_adapter.h"

#define OBJECT 65536u
#define PARTS_MAX 4u
#define FETCHES 8u

struct scene {
	struct l1_area area;
	struct l1 *l1;
	struct cache *cache;
	struct l2 *l2;
	struct sim_place *places[2];
	struct l2_adapter *adapters[2];
	struct sim_adapter_options faults;
	uint32_t space, parts, object_class;
	uint64_t now;
	uint8_t model_key[32], salt[32];
	uint64_t part_bytes[PARTS_MAX];
};

struct call {           /* what a fetch was told */
	uint32_t first; /* chunk that index 0 names */
	uint32_t early, done;
	bool early_known;
	bool canceled;
	uint32_t found; /* chunks in a row that were there when it was done */
	uint32_t count;
	struct scene *scene;
	struct l2_fetch *fetch;
};

static void digest_of(uint32_t chunk, uint8_t digest[32])
{
	for (uint32_t i = 0; i < 4; i++) {
		uint64_t word = random_mix(chunk * 4 + i + 1);

		memcpy(digest + (size_t)i * 8, &word, 8);
	}
}

static const uint8_t *call_digest(void *owner, uint32_t index)
{
	static _Thread_local uint8_t digest[32];
	const struct call *call = owner;

	assert_false(call->canceled);
	assert_int_equal(call->done, 0);
	digest_of(call->first + index, digest);
	return digest;
}

static void call_early(void *owner, uint32_t count)
{
	struct call *call = owner;

	assert_false(call->early_known);
	call->early_known = true;
	call->early = count;
}

static uint64_t word_of(uint32_t chunk, uint32_t part)
{
	return random_mix(chunk * 64 + part + 77);
}

/* The entry of a chunk, whose bytes are checked; CACHE_NONE. */
static uint32_t look(struct scene *scene, uint32_t chunk)
{
	uint8_t digest[32];
	uint32_t entry;

	digest_of(chunk, digest);
	entry = cache_find(scene->cache, scene->space, digest);
	for (uint32_t part = 0; entry != CACHE_NONE && part < scene->parts; part++) {
		l1_ref object = cache_object(scene->cache, entry, part);
		const uint64_t *words = object ? l1_address(scene->l1, object) : NULL;

		for (uint32_t i = 0; words && i < OBJECT / 8; i += 511)
			assert_int_equal(words[i], word_of(chunk, part));
	}
	return entry;
}

static bool complete(struct scene *scene, uint32_t chunk)
{
	uint32_t entry = look(scene, chunk);

	return entry != CACHE_NONE && cache_complete(scene->cache, entry);
}

static void call_done(void *owner)
{
	struct call *call = owner;

	assert_int_equal(call->done, 0);
	call->done++;
	for (call->found = 0; call->found < call->count; call->found++)
		if (!complete(call->scene, call->first + call->found))
			break;
}

static void scene_open(struct scene *scene, struct l2_options *options, uint32_t adapters)
{
	for (uint32_t i = 0; i < adapters; i++) {
		assert_int_equal(sim_adapter_open(&scene->faults, scene->places[i], &scene->adapters[i]), 0);
		options->adapters[i] = scene->adapters[i];
	}
	options->adapter_count = adapters;
	options->cache = scene->cache;
	options->l1 = scene->l1;
	options->callbacks = (struct l2_callbacks){ call_digest, call_early, call_done };
	assert_int_equal(l2_create(options, &scene->l2), 0);
}

static void scene_init(
	struct scene *scene, uint32_t slots, uint32_t parts, uint32_t adapters, struct l2_options *options)
{
	struct cache_options cache = {
		.spaces_max = 8, .chunks_initial = 1024, .high_permille = 1000, .low_permille = 1000
	};

	memset(scene, 0, sizeof(*scene));
	scene->area.bytes = (uint64_t)slots * OBJECT;
	scene->area.address = aligned_alloc(L1_PAGE_BYTES, scene->area.bytes);
	assert_non_null(scene->area.address);
	assert_int_equal(l1_create(&scene->area, 1, &scene->l1), 0);
	cache.l1 = scene->l1;
	assert_int_equal(cache_create(&cache, &scene->cache), 0);
	scene->parts = parts;
	scene->model_key[0] = 9;
	scene->salt[0] = 5;
	scene->space = cache_space_acquire(scene->cache, 1, scene->salt, parts);
	assert_int_equal(l1_class_acquire(scene->l1, OBJECT, &scene->object_class), 0);
	for (uint32_t i = 0; i < parts; i++)
		scene->part_bytes[i] = OBJECT;
	scene->now = KVR_SECOND;
	scene->faults.seed = 3;
	scene->faults.delay_min_ns = 1000;
	scene->faults.delay_max_ns = 50000;
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(sim_place_create(&scene->places[i]), 0);
	if (!options->store_bytes_max)
		options->store_bytes_max = scene->area.bytes;
	scene_open(scene, options, adapters);
}

static void turns(struct scene *scene, uint32_t count)
{
	while (count-- > 0) {
		l2_step(scene->l2, scene->now);
		assert_int_equal(l2_verify(scene->l2), 0);
		scene->now += 10000;
	}
}

static void until_idle(struct scene *scene)
{
	for (uint32_t i = 0; i < 200000 && !l2_idle(scene->l2); i++) {
		l2_step(scene->l2, scene->now);
		scene->now += l2_next_ns(scene->l2, scene->now) > scene->now + KVR_MS ? KVR_MS : 10000;
	}
	assert_true(l2_idle(scene->l2));
	assert_int_equal(l2_verify(scene->l2), 0);
}

static void scene_fini(struct scene *scene)
{
	struct l1_stats stats;

	l2_destroy(&scene->l2);
	l2_destroy(&scene->l2);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(sim_place_misuses(scene->places[i]), 0);
		sim_place_destroy(&scene->places[i]);
	}
	assert_int_equal(cache_verify(scene->cache, true), 0);
	cache_space_release(scene->cache, scene->space);
	cache_destroy(&scene->cache);
	l1_class_release(scene->l1, scene->object_class);
	l1_get_stats(scene->l1, &stats);
	assert_int_equal(stats.objects, 0);
	assert_int_equal(stats.classes, 0);
	l1_destroy(&scene->l1);
	free(scene->area.address);
}

static void offer(struct scene *scene, uint32_t chunk, uint32_t part, uint32_t entry, bool again)
{
	uint8_t digest[32];

	digest_of(chunk, digest);
	l2_offer(scene->l2, &(struct l2_offer){ scene->model_key, scene->salt, digest, entry, part, again });
}

/* A client stores a part of a chunk. False: no room. */
static bool put_part(struct scene *scene, uint32_t chunk, uint32_t part)
{
	l1_ref object = cache_reserve(scene->cache, scene->object_class, 0, 4096);
	uint8_t digest[32];
	uint64_t *words;
	uint32_t entry;

	if (!object)
		return false;
	words = l1_address(scene->l1, object);
	for (uint32_t i = 0; i < OBJECT / 8; i++)
		words[i] = word_of(chunk, part);
	digest_of(chunk, digest);
	assert_int_equal(cache_publish(scene->cache, scene->space, digest, part, object, &entry), 0);
	offer(scene, chunk, part, entry, false);
	return true;
}

static void put(struct scene *scene, uint32_t first, uint32_t count)
{
	for (uint32_t c = first; c < first + count; c++)
		for (uint32_t part = 0; part < scene->parts; part++)
			assert_true(put_part(scene, c, part));
}

static bool any_model(void *context, uint32_t model)
{
	(void)context;
	(void)model;
	return true;
}

/* Everything that is not held leaves L1. */
static void empty_l1(struct scene *scene)
{
	uint64_t dropped = 0, kept = 0;
	uint32_t cursor = 0;

	while (!cache_clear_step(scene->cache, any_model, NULL, &cursor, 64, &dropped, &kept))
		;
}

static int begin(struct scene *scene, struct call *call, uint32_t first, uint32_t count, uint32_t tenant)
{
	struct l2_want want = { .owner = call,
		.space = scene->space,
		.parts = scene->parts,
		.tenant = tenant,
		.model_key = scene->model_key,
		.salt = scene->salt,
		.part_bytes = scene->part_bytes,
		.count = count };

	memset(call, 0, sizeof(*call));
	call->first = first;
	call->count = count;
	call->scene = scene;
	return l2_fetch_begin(scene->l2, &want, &call->fetch);
}

static void cancel(struct call *call)
{
	call->canceled = true;
	l2_fetch_cancel(call->scene->l2, call->fetch);
}

static uint32_t fetch(struct scene *scene, uint32_t first, uint32_t count)
{
	struct call call;

	assert_int_equal(begin(scene, &call, first, count, 0), 0);
	until_idle(scene);
	assert_int_equal(call.done, 1);
	return call.found;
}

#define COUNTER(scene, name) (l2_get_counters((scene)->l2)->name)

/* ---- write-through ---- */

static void what_is_published_is_stored_and_comes_back(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 2, 1, &options);
	put(&scene, 0, 10);
	assert_int_equal(cache_verify(scene.cache, false), 0);
	until_idle(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 20);
	assert_int_equal(COUNTER(&scene, stored), 20);
	empty_l1(&scene);
	assert_int_equal(look(&scene, 0), CACHE_NONE);
	assert_int_equal(fetch(&scene, 0, 10), 10);
	assert_int_equal(COUNTER(&scene, loaded), 20);
	scene_fini(&scene);
}

/* An object that is being written cannot be evicted, and its pin goes whatever becomes of it (pitfalls D07). */
static void objects_are_pinned_until_the_adapter_has_read_them(void **state)
{
	struct l2_options options = { 0 };
	struct cache_stats stats;
	struct scene scene;

	(void)state;
	scene_init(&scene, 16, 1, 1, &options);
	scene.faults.fail = 300000;
	scene.faults.delay_max_ns = 50 * KVR_MS;
	sim_adapter_set(scene.adapters[0], &scene.faults, false);
	put(&scene, 0, 8);
	turns(&scene, 1);
	cache_get_stats(scene.cache, &stats);
	assert_int_equal(stats.pins, 8);
	empty_l1(&scene);
	cache_get_stats(scene.cache, &stats);
	assert_int_equal(stats.chunks, 8);
	until_idle(&scene);
	cache_get_stats(scene.cache, &stats);
	assert_int_equal(stats.pins, 0);
	assert_true(COUNTER(&scene, store_retries) > 0);
	assert_int_equal(COUNTER(&scene, stored) + COUNTER(&scene, store_failed), 8);
	scene_fini(&scene);
}

static void a_full_queue_drops_stores_and_their_next_use_offers_them_again(void **state)
{
	struct l2_options options = { .store_queue = 4 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	put(&scene, 0, 10);
	assert_int_equal(COUNTER(&scene, store_dropped), 6);
	until_idle(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 4);
	for (uint32_t c = 0; c < 10; c++) {
		offer(&scene, c, 0, look(&scene, c), true);
		until_idle(&scene);
	}
	assert_int_equal(sim_place_objects(scene.places[0]), 10);
	/* What is stored is not offered again. */
	offer(&scene, 0, 0, look(&scene, 0), true);
	assert_true(l2_idle(scene.l2));
	scene_fini(&scene);
}

static void pinned_bytes_are_limited(void **state)
{
	struct l2_options options = { .store_bytes_max = 3 * OBJECT };
	struct scene scene;

	(void)state;
	scene_init(&scene, 8, 1, 1, &options);
	/* Twice as many as L1 has room for: storing never waits for L2. */
	put(&scene, 0, 16);
	assert_int_equal(COUNTER(&scene, store_dropped), 13);
	until_idle(&scene);
	scene_fini(&scene);
}

static void a_place_that_fails_is_left_alone_and_tried_again(void **state)
{
	struct l2_options options = { .store_attempts = 100 };
	struct scene scene;
	struct call call;
	uint64_t retries;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	scene.faults.down = true;
	sim_adapter_set(scene.adapters[0], &scene.faults, false);
	put(&scene, 0, 20);
	turns(&scene, 2000); /* 20 ms: less than the first pause */
	retries = COUNTER(&scene, store_retries);
	assert_in_range(retries, 4, 24);
	assert_int_equal(begin(&scene, &call, 100, 1, 0), 0);
	turns(&scene, 20);
	assert_int_equal(call.done, 1);
	assert_int_equal(call.found, 0);
	scene.faults.down = false;
	sim_adapter_set(scene.adapters[0], &scene.faults, false);
	until_idle(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 20);
	scene_fini(&scene);
}

/* Stores are dropped when it is full, reads go on (pitfalls H02). */
static void a_full_place_refuses_and_is_still_read(void **state)
{
	struct l2_options options = { .stores_max = 1 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	scene.faults.capacity_bytes = 5 * OBJECT;
	sim_adapter_set(scene.adapters[0], &scene.faults, false);
	put(&scene, 0, 8);
	until_idle(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 5);
	assert_int_equal(COUNTER(&scene, store_failed), 3);
	empty_l1(&scene);
	assert_int_equal(fetch(&scene, 0, 8), 5);
	scene_fini(&scene);
}

static void on_second_use_only_what_is_used_again_is_stored(void **state)
{
	struct l2_options options = { .policy = L2_STORE_SECOND_USE };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	put(&scene, 0, 4);
	until_idle(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 0);
	offer(&scene, 2, 0, look(&scene, 2), true);
	offer(&scene, 2, 0, look(&scene, 2), true);
	until_idle(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 1);
	assert_int_equal(COUNTER(&scene, stored), 1);
	scene_fini(&scene);
}

static void with_policy_none_nothing_is_stored(void **state)
{
	struct l2_options options = { .policy = L2_STORE_NONE };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 1, &options);
	put(&scene, 0, 4);
	offer(&scene, 2, 0, look(&scene, 2), true);
	assert_true(l2_idle(scene.l2));
	scene_fini(&scene);
}

static void what_is_stored_is_evicted_first_where_that_is_wanted(void **state)
{
	struct l2_options options = { .demote = true, .stores_max = 1 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 8, 1, 1, &options);
	scene.faults.fail = 0;
	put(&scene, 0, 4);
	until_idle(&scene);
	scene.faults.down = true;
	sim_adapter_set(scene.adapters[0], &scene.faults, false);
	put(&scene, 10, 4);
	/* They are pinned as long as they wait; those that are stored give way, the last one first. */
	put(&scene, 20, 2);
	assert_int_not_equal(look(&scene, 0), CACHE_NONE);
	assert_int_equal(look(&scene, 2), CACHE_NONE);
	assert_int_not_equal(look(&scene, 10), CACHE_NONE);
	assert_int_equal(cache_verify(scene.cache, false), 0);
	scene_fini(&scene);
}

static void every_adapter_gets_its_copy(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 1, 2, &options);
	put(&scene, 0, 4);
	until_idle(&scene);
	assert_int_equal(sim_place_objects(scene.places[0]), 4);
	assert_int_equal(sim_place_objects(scene.places[1]), 4);
	scene_fini(&scene);
}

/* ---- fetches ---- */

static void the_first_hole_is_the_end(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;
	struct call call;

	(void)state;
	scene_init(&scene, 64, 2, 1, &options);
	put(&scene, 0, 5);
	put(&scene, 6, 4);
	until_idle(&scene);
	empty_l1(&scene);
	assert_int_equal(begin(&scene, &call, 0, 10, 0), 0);
	until_idle(&scene);
	assert_int_equal(call.found, 5);
	assert_true(call.early_known);
	assert_int_equal(call.early, 5);
	assert_int_equal(COUNTER(&scene, loaded), 10);
	scene_fini(&scene);
}

static void parts_that_are_in_l1_are_left_alone(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 2, 1, &options);
	put(&scene, 0, 6);
	until_idle(&scene);
	empty_l1(&scene);
	assert_true(put_part(&scene, 1, 1));
	put(&scene, 3, 1);
	assert_int_equal(fetch(&scene, 0, 6), 6);
	assert_int_equal(COUNTER(&scene, loaded), 9);
	scene_fini(&scene);
}

static void each_chunk_comes_from_the_first_adapter_that_has_it(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;
	struct l2_stats stats;

	(void)state;
	scene_init(&scene, 64, 1, 2, &options);
	put(&scene, 0, 8);
	until_idle(&scene);
	/* The first one loses half of what it has. */
	scene.faults.capacity_bytes = 4 * OBJECT;
	scene.faults.evicts = true;
	sim_adapter_set(scene.adapters[0], &scene.faults, false);
	put(&scene, 20, 1);
	until_idle(&scene);
	empty_l1(&scene);
	assert_int_equal(fetch(&scene, 0, 8), 8);
	scene.adapters[1]->driver->get_stats(scene.adapters[1], &stats);
	assert_true(stats.loads >= 4 && stats.loads < 8);
	scene_fini(&scene);
}

/* What is not what was stored never gets into L1 (pitfalls H05), and the next adapter is tried. */
static void changed_bytes_are_a_miss_and_the_next_adapter_is_tried(void **state)
{
	struct l2_options options = { 0 };
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 2, 2, &options);
	put(&scene, 0, 8);
	until_idle(&scene);
	empty_l1(&scene);
	sim_place_rot(scene.places[0]);
	assert_int_equal(fetch(&scene, 0, 8), 8);
	assert_int_equal(COUNTER(&scene, load_corrupt), 16);
	assert_int_equal(sim_place_objects(scene.places[0]), 0);
	empty_l1(&scene);
	sim_place_rot(scene.places[1]);
	assert_int_equal(fetch(&scene, 0, 8), 0);
	scene_fini(&scene);
}

static void l1_without_room_shortens_the_hit(void **state)
{
	struct l2_options options = { 0 };
	uint32_t entries[16], count = 0;
	struct scene scene;

	(void)state;
	scene_init(&scene, 16, 1, 1, &options);
	put(&scene, 0, 10);
	until_idle(&scene);
	empty_l1(&scene);
	put(&scene, 100, 12);
	until_idle(&scene);
	for (uint32_t c = 100; c < 112; c++) {
		entries[count] = look(&scene, c);
		cache_lock(scene.cache, entries[count++], 1);
	}
	assert_int_equal(fetch(&scene, 0, 10), 4);
	assert_true(COUNTER(&scene, load_no_room) > 0);
	while (count > 0)
		cache_unlock(scene.cache, entries[--count], 1);
	scene_fini(&scene);
}

/* Memory of a load that nobody waits for stays staged until the adapter has done with it. */
static void a_canceled_fetch_gives_memory_back_only_when_its_loads_have_ended(void **state)
{
	struct l2_options options = { 0 };
	struct cache_stats stats;
	struct scene scene;
	struct call call;

	(void)state;
	scene_init(&scene, 32, 1, 1, &options);
	put(&scene, 0, 10);
	until_idle(&scene);
	empty_l1(&scene);
	assert_int_equal(begin(&scene, &call, 0, 10, 0), 0);
	while (COUNTER(&scene, loads_now) < 3)
		turns(&scene, 1);
	scene.faults.stick = 1000000;
	cancel(&call);
	cache_get_stats(scene.cache, &stats);
	assert_true(stats.staged > 0);
	assert_int_equal(call.done, 0);
	until_idle(&scene);
	assert_int_equal(call.done, 1);
	cache_get_stats(scene.cache, &stats);
	assert_int_equal(stats.staged, 0);
	assert_int_equal(stats.locks, 0);
	assert_int_equal(COUNTER(&scene, loaded_late) + COUNTER(&scene, loaded) > 0, 1);
	scene_fini(&scene);
}

static void a_fetch_holds_what_it_has_brought_until_it_is_done(void **state)
{
	struct l2_options options = { .loads_max = 2 };
	struct scene scene;
	struct call call;

	(void)state;
	scene_init(&scene, 16, 1, 1, &options);
	put(&scene, 0, 12);
	until_idle(&scene);
	empty_l1(&scene);
	assert_int_equal(begin(&scene, &call, 0, 12, 0), 0);
	while (COUNTER(&scene, loaded) < 6)
		turns(&scene, 1);
	/* A flood of stores takes the rest of L1. */
	for (uint32_t c = 200; c < 240; c++)
		(void)put_part(&scene, c, 0);
	for (uint32_t c = 0; c < 5; c++)
		assert_true(complete(&scene, c));
	until_idle(&scene);
	assert_true(call.found >= 5);
	scene_fini(&scene);
}

static void loads_are_shared_fairly_between_tenants(void **state)
{
	struct l2_options options = { .loads_max = 4, .asks_max = 256 };
	struct call calls[5];
	struct scene scene;

	(void)state;
	scene_init(&scene, 512, 1, 1, &options);
	for (uint32_t c = 0; c < 240; c += 8) {
		put(&scene, c, 8);
		until_idle(&scene);
	}
	empty_l1(&scene);
	/* Tenant 1 asks for four long prefixes, tenant 2, later, for a short one. */
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(begin(&scene, &calls[i], i * 50, 50, 1), 0);
	turns(&scene, 20);
	assert_int_equal(begin(&scene, &calls[4], 200, 30, 2), 0);
	while (!calls[4].done)
		turns(&scene, 1);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(calls[i].done, 0);
	until_idle(&scene);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(calls[i].found, 50);
	assert_int_equal(calls[4].found, 30);
	scene_fini(&scene);
}

static void too_many_fetches_are_refused(void **state)
{
	struct l2_options options = { .fetches_max = 2 };
	struct call calls[3];
	struct scene scene;

	(void)state;
	scene_init(&scene, 16, 1, 1, &options);
	assert_int_equal(begin(&scene, &calls[0], 0, 4, 0), 0);
	assert_int_equal(begin(&scene, &calls[1], 0, 4, 0), 0);
	assert_int_equal(begin(&scene, &calls[2], 0, 4, 0), -EAGAIN);
	assert_int_equal(COUNTER(&scene, fetches_refused), 1);
	until_idle(&scene);
	scene.part_bytes[0] = 0;
	assert_int_equal(begin(&scene, &calls[2], 0, 4, 0), -ENODATA);
	scene_fini(&scene);
}

static void an_engine_is_taken_apart_in_the_midst_of_everything(void **state)
{
	struct l2_options options = { 0 };
	struct call calls[2];
	struct scene scene;

	(void)state;
	scene_init(&scene, 64, 2, 2, &options);
	put(&scene, 0, 10);
	until_idle(&scene);
	empty_l1(&scene);
	assert_int_equal(begin(&scene, &calls[0], 0, 10, 0), 0);
	assert_int_equal(begin(&scene, &calls[1], 0, 10, 1), 0);
	put(&scene, 30, 5);
	turns(&scene, 12);
	cancel(&calls[1]);
	scene_fini(&scene);
}

/* Everything at once, from seeds: no wrong byte, nothing left (pitfalls H01). */
static void storms_leave_nothing_behind(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct l2_options options = { .policy = seed % 3 ? L2_STORE_ALL : L2_STORE_SECOND_USE,
			.demote = seed % 2,
			.loads_max = 3 + seed % 9,
			.store_queue = 6,
			.backoff_ns = 200 * KVR_US };
		struct call calls[FETCHES];
		struct random random;
		struct scene scene;

		random_init(&random, seed);
		scene_init(&scene, 24, 1 + seed % 3, 1 + seed % 2, &options);
		scene.faults = (struct sim_adapter_options){ .seed = seed,
			.delay_min_ns = 1,
			.delay_max_ns = 300000,
			.fail = 30000,
			.corrupt = 50000,
			.lose = 50000,
			.stick = 20000,
			.stick_ns = 3 * KVR_MS,
			.refuse = 200000,
			.capacity_bytes = 60 * OBJECT,
			.evicts = true };
		for (uint32_t i = 0; i < 1 + seed % 2; i++)
			sim_adapter_set(scene.adapters[i], &scene.faults, false);
		memset(calls, 0, sizeof(calls));
		for (uint32_t i = 0; i < 4000; i++) {
			struct call *call = &calls[random_below(&random, FETCHES)];
			uint32_t chunk = (uint32_t)random_below(&random, 30);
			uint64_t what = random_below(&random, 20);

			if (what < 4) {
				for (uint32_t part = 0; part < scene.parts; part++) {
					uint32_t entry = look(&scene, chunk);

					if (entry == CACHE_NONE || !cache_object(scene.cache, entry, part))
						(void)put_part(&scene, chunk, part);
					else
						offer(&scene, chunk, part, entry, true);
				}
			} else if (what < 7 && (!call->fetch || call->done)) {
				if (begin(&scene, call, chunk, 1 + (uint32_t)random_below(&random, 8), chunk % 3))
					call->fetch = NULL;
			} else if (what == 7 && call->fetch && !call->done && !call->canceled) {
				cancel(call);
			}
			turns(&scene, 1 + (uint32_t)random_below(&random, 3));
		}
		until_idle(&scene);
		assert_true(COUNTER(&scene, loaded) > 0 && COUNTER(&scene, stored) > 0);
		for (uint32_t i = 0; i < FETCHES; i++)
			assert_true(!calls[i].fetch || calls[i].done == 1);
		scene_fini(&scene);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_published_is_stored_and_comes_back),
		cmocka_unit_test(objects_are_pinned_until_the_adapter_has_read_them),
		cmocka_unit_test(a_full_queue_drops_stores_and_their_next_use_offers_them_again),
		cmocka_unit_test(pinned_bytes_are_limited),
		cmocka_unit_test(a_place_that_fails_is_left_alone_and_tried_again),
		cmocka_unit_test(a_full_place_refuses_and_is_still_read),
		cmocka_unit_test(on_second_use_only_what_is_used_again_is_stored),
		cmocka_unit_test(with_policy_none_nothing_is_stored),
		cmocka_unit_test(what_is_stored_is_evicted_first_where_that_is_wanted),
		cmocka_unit_test(every_adapter_gets_its_copy),
		cmocka_unit_test(the_first_hole_is_the_end),
		cmocka_unit_test(parts_that_are_in_l1_are_left_alone),
		cmocka_unit_test(each_chunk_comes_from_the_first_adapter_that_has_it),
		cmocka_unit_test(changed_bytes_are_a_miss_and_the_next_adapter_is_tried),
		cmocka_unit_test(l1_without_room_shortens_the_hit),
		cmocka_unit_test(a_canceled_fetch_gives_memory_back_only_when_its_loads_have_ended),
		cmocka_unit_test(a_fetch_holds_what_it_has_brought_until_it_is_done),
		cmocka_unit_test(loads_are_shared_fairly_between_tenants),
		cmocka_unit_test(too_many_fetches_are_refused),
		cmocka_unit_test(an_engine_is_taken_apart_in_the_midst_of_everything),
		cmocka_unit_test(storms_leave_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
