/* The engine over files, with the adapter's threads: what many sessions paged out comes back as what it was. */
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "base/random.h"
#include "tier/l2_scene.h"
#include "tier/place.h"

#define SESSIONS 50u
#define CHUNKS 4u /* of a session */
#define WRITERS 8u
#define READS 4u /* fetches at once */
#define FIRST_WRITTEN 10000u

static void turn(struct scene *scene)
{
	scene->now = clock_now_ns();
	if (!l2_step(scene->l2, scene->now))
		sched_yield();
}

static void rest(struct scene *scene)
{
	while (!l2_idle(scene->l2))
		turn(scene);
	assert_int_equal(l2_verify(scene->l2), 0);
}

static void page_out(struct scene *scene)
{
	for (uint32_t s = 0; s < SESSIONS; s++) {
		scene_put(scene, s * CHUNKS, CHUNKS);
		rest(scene);
	}
	scene_empty_l1(scene);
	for (uint32_t c = 0; c < SESSIONS * CHUNKS; c++)
		assert_int_equal(scene_look(scene, c), CACHE_NONE);
}

static void shuffle(uint32_t order[SESSIONS], struct random *random)
{
	for (uint32_t i = 0; i < SESSIONS; i++)
		order[i] = i;
	for (uint32_t i = SESSIONS - 1; i > 0; i--) {
		uint32_t other = (uint32_t)random_below(random, i + 1), kept = order[i];

		order[i] = order[other];
		order[other] = kept;
	}
}

/* Each one its own chunks, as fast as L1 and the queue let them. */
static void write_some(struct scene *scene, uint32_t written[WRITERS])
{
	for (uint32_t w = 0; w < WRITERS; w++)
		if (scene_put_part(
			    scene, FIRST_WRITTEN + w * 1000 + written[w] / scene->parts, written[w] % scene->parts))
			written[w]++;
}

/* Some at once, until all were read. */
static void read_back(struct scene *scene, const uint32_t order[SESSIONS], uint32_t written[WRITERS])
{
	struct scene_call calls[READS];

	for (uint32_t at = 0; at < SESSIONS; at += READS) {
		uint32_t count = SESSIONS - at < READS ? SESSIONS - at : READS, done = 0;

		for (uint32_t i = 0; i < count; i++)
			assert_int_equal(scene_begin(scene, &calls[i], order[at + i] * CHUNKS, CHUNKS, i), 0);
		for (uint32_t turns = 0; done < count; turns++) {
			if (turns % 16 == 0)
				write_some(scene, written);
			turn(scene);
			done = 0;
			for (uint32_t i = 0; i < count; i++)
				done += calls[i].done;
		}
		/* That each word is the chunk's own was compared while they were locked. */
		for (uint32_t i = 0; i < count; i++)
			assert_int_equal(calls[i].found, CHUNKS);
	}
}

/* pitfalls E02: paged to disk, read back in another order while others write. */
static void sessions_that_were_paged_out_get_their_own_bytes_back(void **state)
{
	struct file_adapter_options files = { .io_threads = 2 };
	struct l2_options options = {
		.store_bytes_max = 128ull * SCENE_OBJECT, .sum_arrivals = true, .sum_threads = 1, .sum_queue = 64
	};
	uint32_t order[SESSIONS], written[WRITERS] = { 0 };
	struct random random;
	struct place place;
	struct scene scene;

	(void)state;
	place_make(&place);
	options.adapters[0] = place_open(&place, &files);
	/* A quarter of L1 may wait to be written: what is read has room. */
	scene_init(&scene, 512, 2, 1, &options);
	scene.stride = 1;
	wait_scanned(scene.adapters[0]);
	page_out(&scene);
	assert_int_equal(place_count(&place, ".kvo", NULL), SESSIONS * CHUNKS * 2);
	random_init(&random, 4385);
	shuffle(order, &random);
	read_back(&scene, order, written);
	rest(&scene);
	assert_int_equal(COUNTER(&scene, loaded), SESSIONS * CHUNKS * 2);
	assert_int_equal(
		COUNTER(&scene, load_corrupt) + COUNTER(&scene, load_missing) + COUNTER(&scene, load_errors), 0);
	for (uint32_t w = 0; w < WRITERS; w++)
		assert_true(written[w] > 0);
	assert_true(COUNTER(&scene, summed) > 0);
	assert_int_equal(COUNTER(&scene, l1_corrupt), 0);
	scene_fini(&scene);
	place_remove(&place);
}

/* pitfalls H05: a byte changes in L1 while the chunk waits for its second use, which would write it. */
static void a_file_is_never_written_of_bytes_that_changed_in_l1(void **state)
{
	struct file_adapter_options files = { .io_threads = 1 };
	struct l2_options options = { .policy = L2_STORE_SECOND_USE, .sum_arrivals = true, .sum_threads = 1 };
	struct place place;
	struct scene scene;
	uint32_t entry;

	(void)state;
	place_make(&place);
	options.adapters[0] = place_open(&place, &files);
	scene_init(&scene, 64, 1, 1, &options);
	wait_scanned(scene.adapters[0]);
	scene_put(&scene, 0, 8);
	rest(&scene);
	assert_int_equal(COUNTER(&scene, summed), 8);
	entry = scene_look(&scene, 5);
	((uint8_t *)l1_address(scene.l1, cache_object(scene.cache, entry, 0)))[13] ^= 1;
	for (uint32_t c = 0; c < 8; c++)
		scene_offer(&scene, c, 0, scene_look(&scene, c), true);
	rest(&scene);
	assert_int_equal(COUNTER(&scene, l1_corrupt), 1);
	assert_int_equal(COUNTER(&scene, stored), 7);
	assert_int_equal(place_count(&place, ".kvo", NULL), 7);
	assert_int_equal(scene_look(&scene, 5), CACHE_NONE);
	scene_fini(&scene);
	place_remove(&place);
}

#define CHAIN 16u
#define OTHERS 6u
#define OTHER 5000u
#define FILE_LENGTH (SCENE_OBJECT + 4096ull)

static uint32_t found_of_chain(struct scene *scene)
{
	struct scene_call call;

	scene_empty_l1(scene);
	assert_int_equal(scene_begin(scene, &call, 0, CHAIN, 0), 0);
	while (!call.done)
		turn(scene);
	rest(scene);
	scene_empty_l1(scene);
	return call.found;
}

static void open_chain(struct scene *scene, struct place *place)
{
	struct file_adapter_options files = { .io_threads = 1, .capacity_bytes = CHAIN * FILE_LENGTH };
	struct l2_options options = { .store_bytes_max = 128ull * SCENE_OBJECT };

	options.adapters[0] = place_open(place, &files);
	scene_init(scene, 64, 1, 1, &options);
	wait_scanned(scene->adapters[0]);
	scene->now = clock_now_ns();
	scene->chain_ns = scene->now;
}

/* Objects of others take the place of a part of the chain: what is left of it is a prefix. */
static void others_come(struct scene *scene)
{
	scene->chain_ns = clock_now_ns();
	scene_put(scene, OTHER, OTHERS);
	rest(scene);
	assert_int_equal(found_of_chain(scene), CHAIN - OTHERS);
}

static void of_a_chain_that_was_loaded_late_chunks_leave_a_directory_first(void **state)
{
	struct place place;
	struct scene scene;

	(void)state;
	place_make(&place);
	open_chain(&scene, &place);
	for (uint32_t c = CHAIN; c > 0; c--)
		scene_put(&scene, c - 1, 1);
	rest(&scene);
	assert_int_equal(found_of_chain(&scene), CHAIN);
	others_come(&scene);
	scene_fini(&scene);
	place_remove(&place);
}

static void put_in_order(struct scene *scene)
{
	for (uint32_t c = 0; c < CHAIN; c += 4) {
		scene_put(scene, c, 4);
		rest(scene);
	}
}

static void of_a_chain_that_was_stored_in_its_order_late_chunks_leave_a_directory_first(void **state)
{
	struct place place;
	struct scene scene;

	(void)state;
	place_make(&place);
	open_chain(&scene, &place);
	put_in_order(&scene);
	others_come(&scene);
	scene_fini(&scene);
	place_remove(&place);
}

static void the_order_of_a_chain_outlives_a_restart(void **state)
{
	struct place place;
	struct scene scene;

	(void)state;
	place_make(&place);
	open_chain(&scene, &place);
	put_in_order(&scene);
	scene_fini(&scene);
	open_chain(&scene, &place);
	others_come(&scene);
	scene_fini(&scene);
	place_remove(&place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sessions_that_were_paged_out_get_their_own_bytes_back),
		cmocka_unit_test(a_file_is_never_written_of_bytes_that_changed_in_l1),
		cmocka_unit_test(of_a_chain_that_was_loaded_late_chunks_leave_a_directory_first),
		cmocka_unit_test(of_a_chain_that_was_stored_in_its_order_late_chunks_leave_a_directory_first),
		cmocka_unit_test(the_order_of_a_chain_outlives_a_restart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
