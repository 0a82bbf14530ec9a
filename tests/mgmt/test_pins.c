/* Prefixes that the operator pins: what stays, what does not, and the limit. */
#include "mgmt/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBJECTS(count) ((uint64_t)(count)*OBJECT_BYTES)

struct scene {
	struct world world;
	struct handle *handle;
};

static void scene_init(struct scene *scene, uint32_t slots, uint64_t pinned)
{
	world_init(&scene->world,
		&(struct world_options){ .slots = slots, .large_requests = 4, .pinned_bytes_max = OBJECTS(pinned) });
	scene->handle = handle_worker(client_join(&scene->world, 1));
}

static void store(struct scene *scene, uint64_t seed, uint32_t count, uint16_t status)
{
	struct chain chain = chain_named(seed);

	do_store(scene->handle, "store", &chain, 0, count, status);
	do_end(scene->handle, "store");
	world_verify(&scene->world);
}

static uint32_t hits(struct scene *scene, uint64_t seed, uint32_t count)
{
	struct chain chain = chain_named(seed);
	uint32_t hit = do_lookup(scene->handle, "probe", &chain, count, STATUS_OK);

	do_end(scene->handle, "probe");
	return hit;
}

/* Of plain_model. */
static struct pin *pin_of(const char *name, uint64_t seed, uint32_t count)
{
	struct pin *pin = calloc(1, sizeof(*pin) + count * sizeof(pin->digests[0]));
	struct chain chain = chain_named(seed);

	assert_non_null(pin);
	strcpy(pin->name, name);
	strcpy(pin->model, plain_model.name);
	pin->tenant = 1;
	pin->count = count;
	for (uint32_t i = 0; i < count; i++)
		chain_digest_of(&chain, i, pin->digests[i]);
	return pin;
}

static void run_job(struct scene *scene, struct pin_job *job)
{
	struct ring_message message = { .kind = job->pin ? MANAGEMENT_PIN : MANAGEMENT_UNPIN,
		.word = { (uint64_t)(uintptr_t)job } };
	unsigned before = scene->world.pin_done;

	assert_true(ring_push(management_inbox(scene->world.management), &message));
	world_run(&scene->world);
	assert_int_equal(scene->world.pin_done, before + 1);
	world_verify(&scene->world);
	free(job->pin);
	job->pin = NULL;
}

/* The refusal, "" when it stands. */
static const char *pin(struct scene *scene, struct pin_job *job, struct pin *pin)
{
	memset(job, 0, sizeof(*job));
	job->pin = pin;
	run_job(scene, job);
	return job->refusal;
}

static const char *unpin(struct scene *scene, struct pin_job *job, const char *name)
{
	memset(job, 0, sizeof(*job));
	strcpy(job->name, name);
	run_job(scene, job);
	return job->refusal;
}

static void what_is_pinned_survives_the_end_of_sessions_eviction_and_clear(void **state)
{
	struct clear_job clear = { 0 };
	struct ring_message message = { .kind = MANAGEMENT_CLEAR, .word = { (uint64_t)(uintptr_t)&clear } };
	struct scene scene;
	struct pin_job job;

	(void)state;
	scene_init(&scene, 32, 16);
	store(&scene, 1, 8, STATUS_OK);
	assert_string_equal(pin(&scene, &job, pin_of("system", 1, 8)), "");
	assert_int_equal(job.pinned, 8);
	assert_int_equal(job.bytes, OBJECTS(8));
	/* Many times what L1 has room for. */
	for (uint64_t n = 10; n < 20; n++)
		store(&scene, n, 24, STATUS_OK);
	assert_int_equal(hits(&scene, 1, 8), 8);
	assert_true(ring_push(management_inbox(scene.world.management), &message));
	world_run(&scene.world);
	assert_int_equal(clear.kept, 8);
	assert_int_equal(hits(&scene, 1, 8), 8);
	store(&scene, 30, 25, STATUS_NO_MEMORY);
	assert_string_equal(unpin(&scene, &job, "system"), "");
	assert_int_equal(job.pinned, 8);
	store(&scene, 30, 32, STATUS_OK);
	assert_int_equal(hits(&scene, 1, 8), 0);
	world_fini(&scene.world);
}

static void only_what_is_there_from_the_first_chunk_on_is_pinned(void **state)
{
	struct scene scene;
	struct pin_job job;

	(void)state;
	scene_init(&scene, 32, 16);
	assert_non_null(strstr(pin(&scene, &job, pin_of("none", 1, 8)), "no chunk of that prefix is in L1"));
	store(&scene, 1, 5, STATUS_OK);
	assert_string_equal(pin(&scene, &job, pin_of("some", 1, 8)), "");
	assert_int_equal(job.pinned, 5);
	/* The same chunks by another name: the last of them lets go. */
	assert_string_equal(pin(&scene, &job, pin_of("again", 1, 3)), "");
	assert_string_equal(unpin(&scene, &job, "some"), "");
	store(&scene, 2, 29, STATUS_OK);
	assert_int_equal(hits(&scene, 1, 5), 3);
	assert_string_equal(unpin(&scene, &job, "again"), "");
	world_fini(&scene.world);
}

static void pins_cannot_starve_the_cache(void **state)
{
	struct scene scene;
	struct pin_job job;
	struct pin *other;

	(void)state;
	scene_init(&scene, 32, 8);
	store(&scene, 1, 9, STATUS_OK);
	store(&scene, 2, 4, STATUS_OK);
	/* Whole or not at all. */
	assert_non_null(strstr(
		pin(&scene, &job, pin_of("big", 1, 9)), "may take 524288 bytes of L1 (option pin-limit), and 0"));
	assert_string_equal(pin(&scene, &job, pin_of("fits", 1, 8)), "");
	assert_non_null(strstr(pin(&scene, &job, pin_of("more", 2, 1)), "and 524288 are taken"));
	assert_non_null(strstr(pin(&scene, &job, pin_of("fits", 1, 1)), "a pin of that name already"));
	assert_non_null(strstr(unpin(&scene, &job, "big"), "no pin of that name"));
	other = pin_of("model", 1, 1);
	strcpy(other->model, "x");
	assert_non_null(strstr(pin(&scene, &job, other), "the tenant has no model of that name"));
	other = pin_of("tenant", 1, 1);
	other->tenant = 2;
	assert_non_null(strstr(pin(&scene, &job, other), "the tenant has no model of that name"));
	assert_string_equal(unpin(&scene, &job, "fits"), "");
	assert_string_equal(pin(&scene, &job, pin_of("more", 2, 1)), "");
	assert_string_equal(unpin(&scene, &job, "more"), "");
	world_fini(&scene.world);
}

static void many_chunks_are_pinned_in_slices_and_there_is_a_maximum_of_pins(void **state)
{
	struct scene scene;
	struct pin_job job;
	char name[16];

	(void)state;
	scene_init(&scene, 2048, 4096);
	store(&scene, 1, 1500, STATUS_OK);
	assert_string_equal(pin(&scene, &job, pin_of("long", 1, 1500)), "");
	assert_int_equal(job.pinned, 1500);
	for (uint32_t n = 1; n < PINS_MAX; n++) {
		snprintf(name, sizeof(name), "p%u", n);
		assert_string_equal(pin(&scene, &job, pin_of(name, 1, 2)), "");
	}
	assert_non_null(strstr(pin(&scene, &job, pin_of("late", 1, 2)), "which is the maximum"));
	for (uint32_t n = 1; n < PINS_MAX; n++) {
		snprintf(name, sizeof(name), "p%u", n);
		assert_string_equal(unpin(&scene, &job, name), "");
	}
	store(&scene, 2, 548, STATUS_OK);
	assert_int_equal(hits(&scene, 1, 1500), 1500);
	assert_string_equal(unpin(&scene, &job, "long"), "");
	assert_int_equal(job.pinned, 1500);
	world_fini(&scene.world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_pinned_survives_the_end_of_sessions_eviction_and_clear),
		cmocka_unit_test(only_what_is_there_from_the_first_chunk_on_is_pinned),
		cmocka_unit_test(pins_cannot_starve_the_cache),
		cmocka_unit_test(many_chunks_are_pinned_in_slices_and_there_is_a_maximum_of_pins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
