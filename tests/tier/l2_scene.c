#include "tier/l2_scene.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "base/random.h"

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
	const struct scene_call *call = owner;

	assert_false(call->canceled);
	assert_int_equal(call->done, 0);
	digest_of(call->first + index, digest);
	return digest;
}

static void call_early(void *owner, uint32_t count)
{
	struct scene_call *call = owner;

	assert_false(call->early_known);
	call->early_known = true;
	call->early = count;
}

uint64_t scene_word(uint32_t chunk, uint32_t part)
{
	return random_mix(chunk * 64 + part + 77);
}

uint32_t scene_look(struct scene *scene, uint32_t chunk)
{
	uint8_t digest[32];
	uint32_t entry;

	digest_of(chunk, digest);
	entry = cache_find(scene->cache, scene->space, digest);
	for (uint32_t part = 0; entry != CACHE_NONE && part < scene->parts; part++) {
		l1_ref object = cache_object(scene->cache, entry, part);
		const uint64_t *words = object ? l1_address(scene->l1, object) : NULL;

		for (uint32_t i = 0; words && i < SCENE_OBJECT / 8; i += scene->stride)
			assert_int_equal(words[i], scene_word(chunk, part));
	}
	return entry;
}

bool scene_complete(struct scene *scene, uint32_t chunk)
{
	uint32_t entry = scene_look(scene, chunk);

	return entry != CACHE_NONE && cache_complete(scene->cache, entry);
}

static void call_done(void *owner)
{
	struct scene_call *call = owner;

	assert_int_equal(call->done, 0);
	call->done++;
	for (call->found = 0; call->found < call->count; call->found++)
		if (!scene_complete(call->scene, call->first + call->found))
			break;
}

static void scene_open(struct scene *scene, const struct l2_options *given, uint32_t adapters)
{
	struct l2_options options = *given;

	for (uint32_t i = 0; i < adapters; i++) {
		if (!options.adapters[i])
			assert_int_equal(sim_adapter_open(&scene->faults, scene->places[i], &options.adapters[i]), 0);
		scene->adapters[i] = options.adapters[i];
	}
	options.adapter_count = adapters;
	options.cache = scene->cache;
	options.l1 = scene->l1;
	options.callbacks = (struct l2_callbacks){ call_digest, call_early, call_done };
	assert_int_equal(l2_create(&options, &scene->l2), 0);
}

void scene_init(struct scene *scene, uint32_t slots, uint32_t parts, uint32_t adapters, struct l2_options *options)
{
	struct cache_options cache = {
		.spaces_max = 8, .chunks_initial = 1024, .high_permille = 1000, .low_permille = 1000
	};

	memset(scene, 0, sizeof(*scene));
	scene->area.bytes = (uint64_t)slots * SCENE_OBJECT;
	scene->area.address = aligned_alloc(L1_PAGE_BYTES, scene->area.bytes);
	assert_non_null(scene->area.address);
	assert_int_equal(l1_create(&scene->area, 1, &scene->l1), 0);
	cache.l1 = scene->l1;
	assert_int_equal(cache_create(&cache, &scene->cache), 0);
	scene->parts = parts;
	scene->model_key[0] = 9;
	scene->salt[0] = 5;
	scene->space = cache_space_acquire(scene->cache, 1, scene->salt, parts);
	assert_int_equal(l1_class_acquire(scene->l1, SCENE_OBJECT, &scene->object_class), 0);
	for (uint32_t i = 0; i < parts; i++)
		scene->part_bytes[i] = SCENE_OBJECT;
	scene->now = KVR_SECOND;
	scene->stride = 511;
	scene->faults.seed = 3;
	scene->faults.delay_min_ns = 1000;
	scene->faults.delay_max_ns = 50000;
	for (uint32_t i = 0; i < SCENE_PLACES; i++)
		assert_int_equal(sim_place_create(&scene->places[i]), 0);
	if (!options->store_bytes_max)
		options->store_bytes_max = scene->area.bytes;
	scene_open(scene, options, adapters);
}

void scene_turns(struct scene *scene, uint32_t count)
{
	while (count-- > 0) {
		l2_step(scene->l2, scene->now);
		assert_int_equal(l2_verify(scene->l2), 0);
		scene->now += 10000;
	}
}

void scene_rest(struct scene *scene)
{
	for (uint32_t i = 0; i < 200000 && !l2_idle(scene->l2); i++) {
		l2_step(scene->l2, scene->now);
		scene->now += l2_next_ns(scene->l2, scene->now) > scene->now + KVR_MS ? KVR_MS : 10000;
	}
	assert_true(l2_idle(scene->l2));
	assert_int_equal(l2_verify(scene->l2), 0);
}

void scene_fini(struct scene *scene)
{
	struct l1_stats stats;

	l2_destroy(&scene->l2);
	l2_destroy(&scene->l2);
	for (uint32_t i = 0; i < SCENE_PLACES; i++) {
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

void scene_offer(struct scene *scene, uint32_t chunk, uint32_t part, uint32_t entry, bool again)
{
	uint8_t digest[32];

	digest_of(chunk, digest);
	l2_offer(scene->l2,
		&(struct l2_offer){ scene->model_key, scene->salt, digest, entry, part, again, scene->chain_ns,
			chunk % SCENE_CHAIN });
}

bool scene_put_part(struct scene *scene, uint32_t chunk, uint32_t part)
{
	l1_ref object = cache_reserve(scene->cache, 0, scene->object_class, 0, 4096);
	uint8_t digest[32];
	uint64_t *words;
	uint32_t entry;

	if (!object)
		return false;
	words = l1_address(scene->l1, object);
	for (uint32_t i = 0; i < SCENE_OBJECT / 8; i++)
		words[i] = scene_word(chunk, part);
	digest_of(chunk, digest);
	assert_int_equal(cache_publish(scene->cache, scene->space, digest, part, object, &entry), 0);
	scene_offer(scene, chunk, part, entry, false);
	return true;
}

void scene_put(struct scene *scene, uint32_t first, uint32_t count)
{
	for (uint32_t c = first; c < first + count; c++)
		for (uint32_t part = 0; part < scene->parts; part++)
			assert_true(scene_put_part(scene, c, part));
}

static bool any_model(void *context, uint32_t model)
{
	(void)context;
	(void)model;
	return true;
}

void scene_empty_l1(struct scene *scene)
{
	uint64_t dropped = 0, kept = 0;
	uint32_t cursor = 0;

	while (!cache_clear_step(scene->cache, any_model, NULL, &cursor, 64, &dropped, &kept))
		;
}

int scene_begin(struct scene *scene, struct scene_call *call, uint32_t first, uint32_t count, uint32_t tenant)
{
	struct l2_want want = { .owner = call,
		.space = scene->space,
		.parts = scene->parts,
		.tenant = tenant,
		.model_key = scene->model_key,
		.salt = scene->salt,
		.part_bytes = scene->part_bytes,
		.first = first % SCENE_CHAIN,
		.count = count };

	memset(call, 0, sizeof(*call));
	call->first = first;
	call->count = count;
	call->scene = scene;
	return l2_fetch_begin(scene->l2, &want, &call->fetch);
}

void scene_cancel(struct scene_call *call)
{
	call->canceled = true;
	l2_fetch_cancel(call->scene->l2, call->fetch);
}

uint32_t scene_fetch(struct scene *scene, uint32_t first, uint32_t count)
{
	struct scene_call call;

	assert_int_equal(scene_begin(scene, &call, first, count, 0), 0);
	scene_rest(scene);
	assert_int_equal(call.done, 1);
	return call.found;
}
