/* L1 that outlives its process: what was published and not freed is there again, byte for byte, wherever it was killed. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "base/random.h"
#include "tier/keep_internal.h"
#include "tier/store.h"

#define AREA_BYTES (24 * L1_PAGE_BYTES)
#define CHUNKS 60u
#define MODELS 3u
#define PARTS_MAX 2u
#define EVICT 64u
/* Under a sanitizer a life takes ten times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KILLS 1000u
#define ROUNDS 40u
#else
#define KILLS 10000u
#define ROUNDS 300u
#endif

static const struct {
	uint64_t bytes;
	uint32_t parts;
} kinds[MODELS] = { { 5000, 1 }, { 70000, 1 }, { 12288, 2 } };

/* One life of a server: all but the memory goes with it. */
struct life {
	struct keep *keep;
	struct l1 *l1;
	struct cache *cache;
	uint32_t space[MODELS], object_class[MODELS];
	uint32_t number[MODELS];
	uint32_t shift; /* models get other numbers in each life */
	char why[160];
};

struct memory {
	void *index;
	struct l1_area areas[2];
	struct keep_geometry geometry;
	uint64_t index_bytes;
	uint64_t *turns; /* of the child */
};

static struct keep_model model_of(uint32_t kind)
{
	struct keep_model model;

	memset(&model, 0, sizeof(model));
	memset(model.key, (int)kind + 1, sizeof(model.key));
	model.name[0] = (char)('a' + kind);
	model.tenant[0] = 't';
	model.world_size = kinds[kind].parts;
	model.readers = 1;
	return model;
}

static void memory_make(struct memory *memory)
{
	memset(memory, 0, sizeof(*memory));
	memory->geometry.area_count = 2;
	memory->geometry.chunk_tokens = 256;
	for (unsigned i = 0; i < 2; i++) {
		memory->areas[i].address = mmap(
			NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(memory->areas[i].address, MAP_FAILED);
		memory->areas[i].bytes = AREA_BYTES;
		memory->areas[i].numa_node = -1;
		memory->geometry.area_bytes[i] = AREA_BYTES;
	}
	memory->index_bytes = keep_index_bytes(&memory->geometry);
	memory->index = mmap(NULL, memory->index_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memory->turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(memory->index, MAP_FAILED);
	assert_ptr_not_equal(memory->turns, MAP_FAILED);
}

static void memory_free(struct memory *memory)
{
	for (unsigned i = 0; i < 2; i++)
		munmap(memory->areas[i].address, AREA_BYTES);
	munmap(memory->index, memory->index_bytes);
	munmap(memory->turns, 4096);
}

static uint32_t take_model(void *context, const struct keep_model *model)
{
	struct life *life = context;

	for (uint32_t kind = 0; kind < MODELS; kind++) {
		if (model->name[0] == (char)('a' + kind))
			return life->number[kind];
	}
	return UINT32_MAX;
}

static int life_open(struct life *life, struct memory *memory, uint32_t shift)
{
	struct cache_options options;
	int error;

	memset(life, 0, sizeof(*life));
	for (uint32_t kind = 0; kind < MODELS; kind++)
		life->number[kind] = (kind + shift) % 7;
	error = keep_open(
		memory->index, memory->index_bytes, &memory->geometry, &life->keep, life->why, sizeof(life->why));
	if (error)
		return error;
	assert_int_equal(l1_create(memory->areas, 2, &life->l1), 0);
	memset(&options, 0, sizeof(options));
	options.l1 = life->l1;
	options.spaces_max = 8;
	options.chunks_initial = 64;
	options.high_permille = options.low_permille = 1000;
	options.seed = 9;
	options.keeper = keep_keeper(life->keep);
	assert_int_equal(cache_create(&options, &life->cache), 0);
	assert_int_equal(keep_restore(life->keep, life->l1, life->cache, take_model, life), 0);
	for (uint32_t kind = 0; kind < MODELS; kind++) {
		struct keep_model model = model_of(kind);
		uint8_t salt[32] = { 5 };

		assert_true(keep_put_model(life->keep, life->number[kind], &model));
		life->space[kind] = cache_space_acquire(life->cache, life->number[kind], salt, kinds[kind].parts);
		assert_int_not_equal(life->space[kind], CACHE_NONE);
		assert_int_equal(l1_class_acquire(life->l1, kinds[kind].bytes, &life->object_class[kind]), 0);
	}
	return 0;
}

/* As SIGKILL leaves it: nothing is told to anybody. */
static void life_kill(struct life *life)
{
	cache_destroy(&life->cache);
	l1_destroy(&life->l1);
	keep_close(&life->keep);
}

static void write_bytes(void *address, uint32_t kind, uint64_t chunk, uint32_t part)
{
	uint64_t *words = address;

	for (uint64_t i = 0; i < kinds[kind].bytes / 8; i++)
		words[i] = random_mix(chunk * 1000 + kind * 10 + part + i * 1000003);
}

/* `step` 1: all words; more: as many fewer. */
static bool good_bytes(const void *address, uint32_t kind, uint64_t chunk, uint32_t part, uint64_t step)
{
	const uint64_t *words = address;

	for (uint64_t i = 0; i < kinds[kind].bytes / 8; i += step) {
		if (words[i] != random_mix(chunk * 1000 + kind * 10 + part + i * 1000003))
			return false;
	}
	return true;
}

static void life_turn(struct life *life, struct random *random)
{
	uint32_t kind = (uint32_t)random_below(random, MODELS), entry;
	uint64_t chunk = random_below(random, CHUNKS);
	uint32_t part = (uint32_t)random_below(random, kinds[kind].parts);
	uint8_t digest[32];
	l1_ref object;

	object = cache_reserve(life->cache, 0, life->object_class[kind], (uint32_t)random_below(random, 2), EVICT);
	if (object == 0)
		return;
	write_bytes(l1_address(life->l1, object), kind, chunk, part);
	if (random_below(random, 8) == 0) {
		cache_abort(life->cache, object);
		return;
	}
	store_digest(chunk, digest);
	if (cache_publish(life->cache, life->space[kind], digest, part, object, &entry) == -ENOSPC)
		cache_abort(life->cache, object);
}

/* Bit chunk of seen[kind][part]. Every object that is there has its bytes. */
static uint64_t look_at(const struct life *life, uint64_t seen[MODELS][PARTS_MAX], uint64_t step)
{
	uint64_t objects = 0;

	memset(seen, 0, sizeof(uint64_t) * MODELS * PARTS_MAX);
	for (uint32_t kind = 0; kind < MODELS; kind++) {
		for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
			uint8_t digest[32];
			uint32_t entry;

			store_digest(chunk, digest);
			entry = cache_find(life->cache, life->space[kind], digest);
			for (uint32_t part = 0; entry != CACHE_NONE && part < kinds[kind].parts; part++) {
				l1_ref object = cache_object(life->cache, entry, part);

				if (object == 0)
					continue;
				assert_true(good_bytes(l1_address(life->l1, object), kind, chunk, part, step));
				seen[kind][part] |= (uint64_t)1 << chunk;
				objects++;
			}
		}
	}
	return objects;
}

static uint64_t look(const struct life *life, uint64_t seen[MODELS][PARTS_MAX])
{
	return look_at(life, seen, 1);
}

static void whatever_was_resident_is_there_after_any_kill(void **state)
{
	uint64_t before[MODELS][PARTS_MAX], now[MODELS][PARTS_MAX], after[MODELS][PARTS_MAX], objects = 0, most = 0;
	unsigned missing = 0, lost;
	struct memory memory;
	struct random random;
	struct life life;

	(void)state;
	random_init(&random, 2026);
	memory_make(&memory);
	assert_int_equal(life_open(&life, &memory, 0), 0);
	for (uint32_t kill = 1; kill <= KILLS; kill++) {
		for (uint64_t turns = random_below(&random, 12); turns > 0; turns--)
			life_turn(&life, &random);
		look_at(&life, before, 61);
		lost = 0;
		if (kill % 3 == 0) {
			/* Killed between the words of the record and the one that makes them count. */
			fault_arm_name("keep/killed_before_commit", 1);
			life_turn(&life, &random);
			lost = fault_fired() != NULL;
			fault_arm(0);
			look_at(&life, now, 61);
			for (unsigned i = 0; i < MODELS * PARTS_MAX; i++)
				(&before[0][0])[i] = (&now[0][0])[i];
		}
		life_kill(&life);
		assert_int_equal(life_open(&life, &memory, kill), 0);
		objects = look_at(&life, after, kill % 20 == 0 ? 1 : 61);
		for (unsigned i = 0; i < MODELS * PARTS_MAX; i++) {
			/* Nothing that was not there; all that was, but for the one whose record was not whole. */
			assert_int_equal((&after[0][0])[i] & ~(&before[0][0])[i], 0);
			missing += (unsigned)__builtin_popcountll((&before[0][0])[i] & ~(&after[0][0])[i]);
		}
		assert_int_equal(missing, lost);
		missing = 0;
		assert_int_equal(keep_get_counters(life.keep)->restored_objects, objects);
		assert_int_equal(keep_get_counters(life.keep)->dropped_objects, 0);
		most = kvr_max_u64(most, objects);
		if (kill % 50 == 0) {
			assert_int_equal(l1_verify(life.l1), 0);
			assert_int_equal(cache_verify(life.cache, true), 0);
		}
	}
	assert_true(most > 40);
	life_kill(&life);
	memory_free(&memory);
}

static void live_until_killed(struct memory *memory, uint64_t seed)
{
	struct random random;
	struct life life;

	random_init(&random, seed);
	if (life_open(&life, memory, (uint32_t)seed))
		_exit(3);
	for (;;) {
		life_turn(&life, &random);
		kvr_store_release(memory->turns, *memory->turns + 1);
	}
}

static void a_hundred_processes_killed_at_any_instruction_leave_no_wrong_byte(void **state)
{
	uint64_t seen[MODELS][PARTS_MAX], objects = 0, until;
	struct memory memory;
	struct random random;
	struct life life;
	int status;

	(void)state;
	random_init(&random, 7);
	memory_make(&memory);
	for (uint64_t round = 1; round <= 100; round++) {
		pid_t child;

		kvr_store_release(memory.turns, 0);
		until = random_below(&random, 300);
		child = fork();
		if (child == 0)
			live_until_killed(&memory, round);
		assert_true(child > 0);
		while (kvr_load_acquire(memory.turns) < until && waitpid(child, &status, WNOHANG) == 0)
			;
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(life_open(&life, &memory, 0), 0);
		objects += look(&life, seen);
		assert_int_equal(l1_verify(life.l1), 0);
		assert_int_equal(cache_verify(life.cache, true), 0);
		life_kill(&life);
	}
	assert_true(objects > 1000);
	memory_free(&memory);
}

static void another_version_or_geometry_is_refused_and_said(void **state)
{
	struct memory memory;
	struct random random;
	struct life life;

	(void)state;
	random_init(&random, 3);
	memory_make(&memory);
	assert_int_equal(life_open(&life, &memory, 0), 0);
	for (unsigned i = 0; i < 20; i++)
		life_turn(&life, &random);
	life_kill(&life);
	memory.geometry.chunk_tokens = 64;
	assert_int_equal(life_open(&life, &memory, 0), -ESTALE);
	assert_non_null(strstr(life.why, "chunks of 256 tokens, not 64"));
	memory.geometry.chunk_tokens = 256;
	memory.geometry.area_bytes[1] -= L1_PAGE_BYTES;
	assert_int_equal(life_open(&life, &memory, 0), -ESTALE);
	assert_non_null(strstr(life.why, "another size"));
	memory.geometry.area_bytes[1] += L1_PAGE_BYTES;
	((struct keep_head *)memory.index)->version++;
	assert_int_equal(life_open(&life, &memory, 0), -ESTALE);
	assert_non_null(strstr(life.why, "version 2"));
	((struct keep_head *)memory.index)->version--;
	((struct keep_head *)memory.index)->magic[0] = 'X';
	assert_int_equal(life_open(&life, &memory, 0), -ESTALE);
	assert_non_null(strstr(life.why, "no index of kvrail"));
	((struct keep_head *)memory.index)->magic[0] = 'K';
	((struct keep_head *)memory.index)->records--;
	assert_int_equal(life_open(&life, &memory, 0), -ESTALE);
	assert_non_null(strstr(life.why, "damaged"));
	((struct keep_head *)memory.index)->records++;
	assert_int_equal(life_open(&life, &memory, 0), 0);
	assert_true(keep_get_counters(life.keep)->restored_objects > 0);
	life_kill(&life);
	memory_free(&memory);
}

static void nothing_is_lost_when_the_next_server_has_no_memory(void **state)
{
	struct memory memory;
	struct random random;
	struct life life;
	uint64_t objects;
	unsigned failures = 0;

	(void)state;
	random_init(&random, 6);
	memory_make(&memory);
	assert_int_equal(life_open(&life, &memory, 0), 0);
	for (unsigned i = 0; i < 40; i++)
		life_turn(&life, &random);
	objects = keep_objects(life.keep);
	life_kill(&life);
	for (uint64_t nth = 1;; nth++) {
		struct cache_options options = { .spaces_max = 8, .chunks_initial = 64, .high_permille = 1000 };
		int error;

		memset(&life, 0, sizeof(life));
		options.low_permille = options.high_permille;
		for (uint32_t kind = 0; kind < MODELS; kind++)
			life.number[kind] = kind;
		assert_int_equal(l1_create(memory.areas, 2, &life.l1), 0);
		fault_arm(nth);
		error = keep_open(
			memory.index, memory.index_bytes, &memory.geometry, &life.keep, life.why, sizeof(life.why));
		if (!error) {
			fault_arm(0);
			options.l1 = life.l1;
			options.keeper = keep_keeper(life.keep);
			assert_int_equal(cache_create(&options, &life.cache), 0);
			/* Two points of keep_restore follow the three of keep_open. */
			fault_arm(nth > 3 ? nth - 3 : 0);
			error = keep_restore(life.keep, life.l1, life.cache, take_model, &life);
		}
		fault_arm(0);
		if (!error)
			break;
		assert_int_equal(error, -ENOMEM);
		failures++;
		life_kill(&life);
	}
	assert_true(failures >= 5);
	assert_int_equal(keep_get_counters(life.keep)->restored_objects, objects);
	life_kill(&life);
	memory_free(&memory);
}

static void the_index_of_another_boot_is_empty(void **state)
{
	struct memory memory;
	struct random random;
	struct life life;

	(void)state;
	random_init(&random, 3);
	memory_make(&memory);
	assert_int_equal(life_open(&life, &memory, 0), 0);
	for (unsigned i = 0; i < 20; i++)
		life_turn(&life, &random);
	life_kill(&life);
	memory.geometry.boot[3] = 1;
	assert_int_equal(life_open(&life, &memory, 0), 0);
	assert_int_equal(keep_get_counters(life.keep)->restored_objects, 0);
	assert_int_equal(keep_objects(life.keep), 0);
	life_kill(&life);
	memory_free(&memory);
}

/* Bits of the records are turned over at random: what is restored has its own bytes, and the rest is dropped or not
 * there. A checksum finds all of it but for one case in 2^63. */
static void damaged_records_are_never_believed(void **state)
{
	uint64_t seen[MODELS][PARTS_MAX];
	struct memory memory;
	struct random random;
	struct life life;

	(void)state;
	random_init(&random, 11);
	memory_make(&memory);
	for (unsigned round = 0; round < ROUNDS; round++) {
		assert_int_equal(life_open(&life, &memory, 0), 0);
		for (unsigned i = 0; i < 30; i++)
			life_turn(&life, &random);
		for (unsigned i = 0; i < 20; i++) {
			uint64_t at = random_below(&random, 60 * sizeof(struct keep_record));

			((uint8_t *)life.keep->records)[at] ^= (uint8_t)(1u << random_below(&random, 8));
		}
		life_kill(&life);
		assert_int_equal(life_open(&life, &memory, 0), 0);
		look(&life, seen);
		assert_int_equal(l1_verify(life.l1), 0);
		assert_int_equal(cache_verify(life.cache, true), 0);
		life_kill(&life);
	}
	memory_free(&memory);
}

/* Records that are sound by themselves but contradict each other or the machine: none crashes, and L1 stays sound. */
static void forged_records_do_no_harm(void **state)
{
	struct memory memory;
	struct random random;
	struct life life;

	(void)state;
	random_init(&random, 12);
	memory_make(&memory);
	for (unsigned round = 0; round < ROUNDS; round++) {
		assert_int_equal(life_open(&life, &memory, 0), 0);
		for (unsigned i = 0; i < 30; i++)
			life_turn(&life, &random);
		for (unsigned i = 0; i < 60; i++) {
			struct keep_record *record = &life.keep->records[i];
			uint32_t *words = (uint32_t *)&record->bytes;

			if (record->check == 0 || random_below(&random, 3) != 0)
				continue;
			/* From `bytes` to the place: one of them becomes something small or something huge. */
			words[random_below(&random,
				(offsetof(struct keep_record, check) - offsetof(struct keep_record, bytes)) / 4)] =
				random_below(&random, 2) ? (uint32_t)random_below(&random, 30)
							 : (uint32_t)random_next(&random);
			record->check = keep_check(record, offsetof(struct keep_record, check));
		}
		life_kill(&life);
		assert_int_equal(life_open(&life, &memory, 0), 0);
		assert_int_equal(l1_verify(life.l1), 0);
		assert_int_equal(cache_verify(life.cache, true), 0);
		life_kill(&life);
	}
	memory_free(&memory);
}

static void models_that_nobody_wants_are_dropped_with_their_objects(void **state)
{
	struct memory memory;
	struct random random;
	struct life life;
	uint64_t objects;

	(void)state;
	random_init(&random, 4);
	memory_make(&memory);
	assert_int_equal(life_open(&life, &memory, 0), 0);
	for (unsigned i = 0; i < 50; i++)
		life_turn(&life, &random);
	objects = keep_objects(life.keep);
	life_kill(&life);
	/* As if the name were unknown to the server now. */
	((struct keep_model_record *)((char *)memory.index + KEEP_HEAD_BYTES))[1].check ^= 2;
	assert_int_equal(life_open(&life, &memory, 0), 0);
	assert_true(keep_get_counters(life.keep)->dropped_objects > 0);
	assert_int_equal(keep_get_counters(life.keep)->dropped_objects + keep_get_counters(life.keep)->restored_objects,
		objects);
	assert_int_equal(keep_objects(life.keep), keep_get_counters(life.keep)->restored_objects);
	life_kill(&life);
	memory_free(&memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whatever_was_resident_is_there_after_any_kill),
		cmocka_unit_test(a_hundred_processes_killed_at_any_instruction_leave_no_wrong_byte),
		cmocka_unit_test(another_version_or_geometry_is_refused_and_said),
		cmocka_unit_test(nothing_is_lost_when_the_next_server_has_no_memory),
		cmocka_unit_test(the_index_of_another_boot_is_empty),
		cmocka_unit_test(damaged_records_are_never_believed),
		cmocka_unit_test(forged_records_do_no_harm),
		cmocka_unit_test(models_that_nobody_wants_are_dropped_with_their_objects),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
