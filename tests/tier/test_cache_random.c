/*
 * The cache against a model of arrays and linear search, over seeded random programs of all calls: little memory, so
 * that eviction never rests; tiny slabs and few buckets, so that growing never rests; memory for growing that comes
 * late or not at all.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "tier/area.h"
#include "tier/cache_internal.h"

#define DIGESTS 300
#define SPACES 4
#define PARTS_MAX 8
#define STAGED_MAX 40
#define AREA_BYTES ((uint64_t)10 << 20)

struct model_chunk {
	l1_ref objects[PARTS_MAX];
	uint32_t present; /* 0: not there */
	uint32_t object_class;
	uint32_t locks, pins;
	uint64_t stamp;
	uint64_t units;
	bool reused;
};

struct world {
	struct random random;
	struct l1_area areas[2];
	struct l1 *l1;
	struct cache *cache;
	bool one_class, segmented;
	uint32_t classes[2];
	uint32_t spaces[SPACES];
	uint32_t parts[SPACES];
	uint8_t digests[DIGESTS][CACHE_DIGEST_BYTES];
	struct model_chunk chunks[SPACES][DIGESTS];
	l1_ref staged[STAGED_MAX];
	uint32_t staged_count;
	uint64_t stamp;
	uint64_t memory_wanted; /* asked for, and on its way */
	uint64_t seed;
	uint32_t returned;
	uint32_t refusals, growths_seen, no_space;
};

static uint32_t pick(struct world *world, uint32_t bound)
{
	return (uint32_t)random_below(&world->random, bound);
}

static bool held(const struct model_chunk *chunk)
{
	return chunk->locks > 0 || chunk->pins > 0;
}

static uint32_t class_of_part(const struct world *world, uint32_t space, uint32_t part)
{
	return world->one_class ? world->classes[0] : world->classes[(space + part / 4) % 2];
}

static uint32_t find(const struct world *world, uint32_t space, uint32_t digest)
{
	return cache_find(world->cache, world->spaces[space], world->digests[digest]);
}

static void check_chunk(const struct world *world, uint32_t space, uint32_t digest)
{
	const struct model_chunk *chunk = &world->chunks[space][digest];
	uint32_t entry = find(world, space, digest);

	assert_int_equal(entry != CACHE_NONE, chunk->present > 0);
	if (entry == CACHE_NONE)
		return;
	for (uint32_t part = 0; part < world->parts[space]; part++)
		assert_int_equal(cache_object(world->cache, entry, part), chunk->objects[part]);
	assert_int_equal(cache_object(world->cache, entry, world->parts[space]), 0);
	assert_int_equal(cache_complete(world->cache, entry), chunk->present == world->parts[space]);
}

/* The least recently used chunk of a segment and class (L1_CLASSES_MAX: of any) that is not held; NULL: none. */
static struct model_chunk *oldest_in(struct world *world, uint32_t object_class, bool reused)
{
	struct model_chunk *best = NULL;

	for (uint32_t space = 0; space < SPACES; space++) {
		for (uint32_t digest = 0; digest < DIGESTS; digest++) {
			struct model_chunk *chunk = &world->chunks[space][digest];

			if (chunk->present > 0 && chunk->reused == reused && !held(chunk) &&
				(!best || chunk->stamp < best->stamp) &&
				(object_class == L1_CLASSES_MAX || chunk->object_class == object_class))
				best = chunk;
		}
	}
	return best;
}

/* What is to be evicted next: of the fresh ones while they are half or more, else of the reused ones. */
static struct model_chunk *oldest(struct world *world, uint32_t object_class)
{
	uint64_t units[2] = { 0, 0 };
	struct model_chunk *best;
	bool reused;

	for (uint32_t space = 0; space < SPACES; space++) {
		for (uint32_t digest = 0; digest < DIGESTS; digest++) {
			const struct model_chunk *chunk = &world->chunks[space][digest];

			if (chunk->present > 0 && !held(chunk))
				units[chunk->reused] += chunk->units;
		}
	}
	reused = units[0] < units[1];
	best = oldest_in(world, object_class, reused);
	return best ? best : oldest_in(world, object_class, !reused);
}

/* Takes what has gone from the cache out of the model: nothing that is held. Returns how many chunks. */
static uint32_t notice_evictions(struct world *world)
{
	uint32_t gone = 0;

	for (uint32_t space = 0; space < SPACES; space++) {
		for (uint32_t digest = 0; digest < DIGESTS; digest++) {
			struct model_chunk *chunk = &world->chunks[space][digest];

			if (chunk->present == 0 || find(world, space, digest) != CACHE_NONE)
				continue;
			assert_false(held(chunk));
			memset(chunk, 0, sizeof(*chunk));
			gone++;
		}
	}
	return gone;
}

static void step_reserve(struct world *world)
{
	uint32_t object_class = world->classes[world->one_class ? 0 : pick(world, 2)];
	bool has_room = l1_class_room(world->l1, object_class) > 0;
	struct model_chunk *own = oldest(world, object_class);
	struct model_chunk *any = oldest(world, L1_CLASSES_MAX);
	uint32_t limit = pick(world, 8) == 0 ? 0 : 1 + pick(world, 40);
	bool could = cache_could_reserve(world->cache, object_class, 1);
	uint32_t gone;
	l1_ref object;

	if (world->staged_count == STAGED_MAX)
		return;
	object = cache_reserve(world->cache, 0, object_class, pick(world, 3), limit);
	gone = notice_evictions(world);
	if (object) {
		assert_true(could);
		assert_int_equal(l1_owner(world->l1, object), L1_NO_OWNER);
		world->staged[world->staged_count++] = object;
		assert_true(gone <= limit && (!has_room || !world->one_class || gone == 0));
		if (world->one_class && !has_room)
			assert_true(gone == 1 && any->present == 0);
	} else {
		assert_int_equal(gone, 0);
		assert_true(limit == 0 || !own);
		assert_true(!has_room || !world->one_class);
		world->refusals++;
	}
}

static void step_publish(struct world *world)
{
	uint32_t space = pick(world, SPACES);
	uint32_t digest = pick(world, DIGESTS);
	uint32_t part = pick(world, world->parts[space]);
	struct model_chunk *chunk = &world->chunks[space][digest];
	uint32_t which = world->staged_count > 0 ? pick(world, world->staged_count) : 0;
	l1_ref object = world->staged[which];
	uint32_t entry = CACHE_NONE;
	int rc;

	if (world->staged_count == 0)
		return;
	if (!world->one_class && l1_class_of(world->l1, object) != class_of_part(world, space, part))
		return;
	rc = cache_publish(world->cache, world->spaces[space], world->digests[digest], part, object, &entry);
	if (rc == -ENOSPC) {
		assert_int_equal(chunk->present, 0);
		assert_true(cache_wants_memory(world->cache) > 0);
		assert_int_equal(l1_owner(world->l1, object), L1_NO_OWNER);
		world->no_space++;
		return;
	}
	world->staged[which] = world->staged[--world->staged_count];
	assert_int_equal(rc, chunk->objects[part] ? -EEXIST : 0);
	assert_int_equal(entry, find(world, space, digest));
	if (rc == 0) {
		if (chunk->present++ == 0) {
			chunk->object_class = l1_class_of(world->l1, object);
			chunk->reused = cache_entry_at(world->cache, entry)->reused; /* what has come back */
			world->returned += chunk->reused;
		}
		chunk->units += cache_class_units(world->cache, l1_class_of(world->l1, object));
		chunk->objects[part] = object;
		if (!held(chunk))
			chunk->stamp = ++world->stamp;
	}
	check_chunk(world, space, digest);
}

static void step_abort(struct world *world)
{
	uint32_t which = world->staged_count > 0 ? pick(world, world->staged_count) : 0;

	if (world->staged_count == 0)
		return;
	cache_abort(world->cache, world->staged[which]);
	world->staged[which] = world->staged[--world->staged_count];
}

/* Some of a space, mostly in the order in which they were let go; held ones among them. */
static void hold_many(struct world *world, uint32_t space)
{
	uint32_t entries[6], held_now = 0, most = 1 + pick(world, 6);

	for (uint32_t digest = pick(world, DIGESTS); digest < DIGESTS && held_now < most; digest++) {
		if (!world->chunks[space][digest].present || pick(world, 20) == 0)
			continue;
		entries[held_now++] = find(world, space, digest);
		world->chunks[space][digest].locks++;
		world->chunks[space][digest].reused = world->segmented;
	}
	cache_lock_all(world->cache, entries, held_now, 1);
}

/* What a lookup does that is over at once. */
static void use_some(struct world *world)
{
	uint32_t space = pick(world, SPACES), first = pick(world, DIGESTS);

	for (uint32_t digest = first; digest < first + 20 && digest < DIGESTS; digest++) {
		struct model_chunk *chunk = &world->chunks[space][digest];
		uint32_t entry = find(world, space, digest);

		if (entry == CACHE_NONE)
			continue;
		cache_lock(world->cache, entry, 1);
		cache_unlock(world->cache, entry, 1);
		chunk->reused = true;
		if (!held(chunk))
			chunk->stamp = ++world->stamp;
	}
}

static void step_hold(struct world *world)
{
	uint32_t space = pick(world, SPACES);
	uint32_t digest = pick(world, DIGESTS);
	struct model_chunk *chunk = &world->chunks[space][digest];
	uint32_t entry = find(world, space, digest);
	uint32_t count = 1 + pick(world, 3);

	if (world->segmented && pick(world, 2))
		use_some(world);
	if (entry == CACHE_NONE)
		return;
	switch (pick(world, 6)) {
	case 3:
		hold_many(world, space);
		break;
	case 0:
		cache_lock(world->cache, entry, count);
		chunk->locks += count;
		chunk->reused = world->segmented;
		break;
	case 1:
		cache_pin(world->cache, entry);
		chunk->pins++;
		break;
	default:
		cache_touch(world->cache, entry);
		if (!held(chunk))
			chunk->stamp = ++world->stamp;
	}
}

static void let_go(struct world *world, uint32_t space, uint32_t digest)
{
	struct model_chunk *chunk = &world->chunks[space][digest];
	uint32_t entry = find(world, space, digest);

	if (chunk->pins > 0) {
		cache_unpin(world->cache, entry);
		chunk->pins--;
	} else {
		uint32_t count = 1 + pick(world, chunk->locks);

		cache_unlock(world->cache, entry, count);
		chunk->locks -= count;
	}
	if (!held(chunk))
		chunk->stamp = ++world->stamp;
}

static void step_let_go(struct world *world)
{
	uint32_t start = pick(world, SPACES * DIGESTS);

	for (uint32_t i = 0; i < SPACES * DIGESTS; i++) {
		uint32_t which = (start + i) % (SPACES * DIGESTS);

		if (!held(&world->chunks[which / DIGESTS][which % DIGESTS]))
			continue;
		let_go(world, which / DIGESTS, which % DIGESTS);
		return;
	}
}

/* One lock each of some of a space; one that has more may be among them twice. */
static void step_let_go_many(struct world *world)
{
	uint32_t space = pick(world, SPACES), most = 1 + pick(world, 40), count = 0;
	uint32_t entries[41], digests[41];

	for (uint32_t digest = pick(world, DIGESTS); digest < DIGESTS && count < most; digest++) {
		uint32_t locks = world->chunks[space][digest].locks;

		for (uint32_t i = 0; i < locks && i < 2 && (i == 0 || pick(world, 4) == 0); i++) {
			entries[count] = find(world, space, digest);
			digests[count++] = digest;
		}
	}
	cache_unlock_all(world->cache, entries, count, 1);
	while (count > 0) {
		struct model_chunk *chunk = &world->chunks[space][digests[--count]];

		chunk->locks--;
		if (!held(chunk))
			chunk->stamp = ++world->stamp;
	}
}

static void step_match(struct world *world)
{
	uint8_t digests[100][CACHE_DIGEST_BYTES];
	uint32_t entries[100];
	uint32_t space = pick(world, SPACES);
	uint32_t count = pick(world, 101);
	uint32_t expected = 0;
	uint32_t start = pick(world, DIGESTS);
	uint32_t matched;
	bool whole = true;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t digest = start;

		/* Mostly chunks that are there, so that matches get long. */
		for (uint32_t tries = 0; tries < DIGESTS &&
			world->chunks[space][digest].present < world->parts[space] && pick(world, 50) != 0;
			tries++)
			digest = (digest + 1) % DIGESTS;
		start = (digest + 1) % DIGESTS;
		memcpy(digests[i], world->digests[digest], CACHE_DIGEST_BYTES);
		whole = whole && world->chunks[space][digest].present == world->parts[space];
		expected += whole;
	}
	matched = cache_match(world->cache, world->spaces[space], digests[0], count, entries);
	assert_int_equal(matched, expected);
	for (uint32_t i = 0; i < matched; i++)
		assert_int_equal(entries[i], cache_find(world->cache, world->spaces[space], digests[i]));
}

static bool is_model(void *context, uint32_t model)
{
	return *(const uint32_t *)context == model;
}

static void step_clear(struct world *world)
{
	uint32_t model = pick(world, 2); /* spaces 0 and 1, or 2 and 3 */
	uint64_t dropped = 0, kept = 0;
	uint64_t expect_dropped = 0, expect_kept = 0;
	uint32_t cursor = 0;

	if (pick(world, 120) != 0) /* now and then: L1 is to be full nearly always */
		return;
	for (uint32_t space = model * 2; space < model * 2 + 2; space++) {
		for (uint32_t digest = 0; digest < DIGESTS; digest++) {
			const struct model_chunk *chunk = &world->chunks[space][digest];

			expect_kept += chunk->present > 0 && held(chunk);
			expect_dropped += chunk->present > 0 && !held(chunk);
		}
	}
	assert_int_equal(cache_model_chunks(world->cache, model), expect_kept + expect_dropped);
	while (!cache_clear_step(world->cache, is_model, &model, &cursor, 1 + pick(world, 50), &dropped, &kept))
		;
	assert_int_equal(dropped, expect_dropped);
	assert_int_equal(kept, expect_kept);
	assert_int_equal(notice_evictions(world), dropped);
}

static void step_background(struct world *world)
{
	uint32_t limit = pick(world, 4);
	uint32_t evicted = cache_evict_step(world->cache, limit);

	for (uint32_t i = 0; i < evicted; i++) {
		struct model_chunk *chunk = oldest(world, L1_CLASSES_MAX);

		assert_non_null(chunk);
		memset(chunk, 0, sizeof(*chunk));
	}
	assert_true(evicted == limit || !cache_evict_due(world->cache));
	assert_int_equal(notice_evictions(world), 0);
}

/* What is wanted is asked for, comes some steps later, and is not to be had every third time. */
static void step_memory(struct world *world)
{
	void *memory;

	if (world->memory_wanted > 0) {
		memory = pick(world, 3) > 0 ? cache_allocate_memory(world->memory_wanted) : NULL;
		cache_supply_memory(world->cache, memory, world->memory_wanted);
		world->memory_wanted = 0;
	} else {
		world->memory_wanted = cache_wants_memory(world->cache);
	}
	cache_grow_step(world->cache, pick(world, 2));
	while ((memory = cache_take_garbage(world->cache)) != NULL)
		free(memory);
}

static void step_space(struct world *world)
{
	uint32_t space = pick(world, SPACES);
	uint8_t salt[32] = { (uint8_t)space };

	cache_space_release(world->cache, world->spaces[space]);
	world->spaces[space] = cache_space_acquire(world->cache, space / 2, salt, world->parts[space]);
	assert_int_not_equal(world->spaces[space], CACHE_NONE);
}

static void world_init(struct world *world, uint64_t seed, bool one_class, bool same_hash, bool segmented)
{
	static const uint32_t parts[SPACES] = { 1, 1, 3, 8 };
	struct cache_tuning tuning = { .same_hash = same_hash, .slab_shift = 9, .buckets = 2 };
	struct cache_options options = { .spaces_max = SPACES, .chunks_initial = 1 };

	memset(world, 0, sizeof(*world));
	random_init(&world->random, seed);
	world->seed = seed;
	world->one_class = one_class;
	/* In one area the victim is the oldest; in several one of the oldest that lies near. */
	for (uint32_t i = 0; i < 2; i++)
		world->areas[i] = area_reserve(AREA_BYTES);
	assert_int_equal(l1_create(world->areas, one_class ? 1 : 2, &world->l1), 0);
	world->segmented = segmented;
	options.eviction = segmented ? CACHE_EVICT_SEGMENTED : CACHE_EVICT_LRU;
	options.l1 = world->l1;
	options.high_permille = seed % 2 ? 950 : 1000;
	options.low_permille = seed % 2 ? 900 : 1000;
	assert_int_equal(cache_create_tuned(&options, &tuning, &world->cache), 0);
	assert_int_equal(l1_class_acquire(world->l1, 40000, &world->classes[0]), 0);
	assert_int_equal(l1_class_acquire(world->l1, 200000, &world->classes[1]), 0);
	for (uint32_t i = 0; i < DIGESTS; i++)
		for (uint32_t j = 0; j < CACHE_DIGEST_BYTES; j++)
			world->digests[i][j] = (uint8_t)random_next(&world->random);
	for (uint32_t space = 0; space < SPACES; space++) {
		uint8_t salt[32] = { (uint8_t)space };

		world->parts[space] = parts[space];
		world->spaces[space] = cache_space_acquire(world->cache, space / 2, salt, parts[space]);
		/* A model has one number of parts, and spaces 2 and 3 are of one model: the cache does not mind. */
		assert_int_not_equal(world->spaces[space], CACHE_NONE);
	}
}

static void world_fini(struct world *world)
{
	struct l1_stats stats;

	while (world->staged_count > 0)
		step_abort(world);
	for (uint32_t space = 0; space < SPACES; space++)
		for (uint32_t digest = 0; digest < DIGESTS; digest++)
			while (held(&world->chunks[space][digest]))
				let_go(world, space, digest);
	assert_int_equal(cache_verify(world->cache, true), 0);
	cache_destroy(&world->cache);
	l1_get_stats(world->l1, &stats);
	assert_int_equal(stats.objects, 0);
	assert_int_equal(stats.free_page_bytes, stats.total_bytes);
	assert_int_equal(l1_verify(world->l1), 0);
	l1_destroy(&world->l1);
	for (uint32_t i = 0; i < 2; i++)
		area_release(&world->areas[i]);
}

static void run(uint64_t seed, bool one_class, bool same_hash, bool segmented)
{
	static void (*const steps[])(struct world *) = { step_reserve, step_reserve, step_reserve, step_reserve,
		step_publish, step_publish, step_publish, step_publish, step_publish, step_abort, step_hold, step_hold,
		step_let_go, step_let_go, step_let_go_many, step_match, step_clear, step_background, step_memory,
		step_space };
	static struct world world;
	const struct cache_counters *counters;

	print_message("seed %lu\n", (unsigned long)seed);
	world_init(&world, seed, one_class, same_hash, segmented);
	for (uint32_t i = 0; i < 5000; i++) {
		steps[pick(&world, sizeof(steps) / sizeof(steps[0]))](&world);
		if (i % 50 == 0)
			assert_int_equal(cache_verify(world.cache, false), 0);
	}
	for (uint32_t space = 0; space < SPACES; space++)
		for (uint32_t digest = 0; digest < DIGESTS; digest++)
			check_chunk(&world, space, digest);
	counters = cache_get_counters(world.cache);
	/* A program in which nothing happened would prove nothing. */
	assert_true(counters->evicted_chunks > 50 && counters->grown > 2 && counters->published > 300 &&
		counters->present > 0);
	assert_true(same_hash == (counters->collisions > 100));
	assert_true(segmented == (counters->evicted_reused > 0 && world.returned > 10));
	assert_int_equal(counters->returned, world.returned);
	world_fini(&world);
}

static void programs_with_one_class_evict_exactly_the_least_recently_used(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 6; seed++)
		run(seed, true, false, false);
}

static void programs_with_segments_evict_what_is_fresh_while_it_is_half_or_more(void **state)
{
	(void)state;
	for (uint64_t seed = 301; seed <= 306; seed++)
		run(seed, true, false, true);
	for (uint64_t seed = 401; seed <= 404; seed++)
		run(seed, false, seed == 404, true);
}

static void programs_with_two_classes_never_lose_what_is_held(void **state)
{
	(void)state;
	for (uint64_t seed = 101; seed <= 106; seed++)
		run(seed, false, false, false);
}

/* pitfalls E09 */
static void programs_in_which_all_hashes_are_equal_stay_right(void **state)
{
	(void)state;
	for (uint64_t seed = 201; seed <= 202; seed++)
		run(seed, seed % 2, true, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(programs_with_one_class_evict_exactly_the_least_recently_used),
		cmocka_unit_test(programs_with_segments_evict_what_is_fresh_while_it_is_half_or_more),
		cmocka_unit_test(programs_with_two_classes_never_lose_what_is_held),
		cmocka_unit_test(programs_in_which_all_hashes_are_equal_stay_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
