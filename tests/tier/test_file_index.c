/* The index of files: against a plain model, its order of use, its bounds. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/random.h"
#include "tier/file_index.h"

static struct file_use use_at(uint64_t at)
{
	return (struct file_use){ .at = at, .chain = at };
}

static struct file_name name_of(uint32_t number)
{
	struct file_name name = { .fan = (uint16_t)(number % FILE_FAN_COUNT) };

	/* Few buckets, so that chains are long. */
	name.hash[0] = (uint8_t)(number % 7);
	memcpy(name.hash + 8, &number, sizeof(number));
	return name;
}

static void what_was_added_is_found_and_the_oldest_goes_first(void **state)
{
	struct file_use use = { .at = 5 };
	struct file_index *index;
	struct file_name name;

	(void)state;
	assert_int_equal(file_index_create(100, &index), 0);
	assert_int_equal(file_index_pop(index, &name), 0);
	for (uint32_t i = 0; i < 4; i++) {
		name = name_of(i);
		use = use_at(10 + i);
		assert_int_equal(file_index_add(index, &name, (i + 1) * FILE_BLOCK, &use), 0);
	}
	name = name_of(4);
	use = (struct file_use){ .at = 9 };
	assert_int_equal(file_index_add(index, &name, FILE_BLOCK, &use), 0); /* older than all */
	assert_int_equal(file_index_bytes(index), 11 * FILE_BLOCK);
	name = name_of(0);
	use = use_at(20);
	assert_int_equal(file_index_use(index, &name, &use), FILE_BLOCK);
	use = use_at(15); /* of no effect any more */
	assert_int_equal(file_index_use(index, &name, &use), FILE_BLOCK);
	name = name_of(1);
	assert_int_equal(file_index_find(index, &name), 2 * FILE_BLOCK);
	static const uint32_t order[] = { 4, 1, 2, 3, 0 };
	for (size_t i = 0; i < KVR_COUNT_OF(order); i++) {
		struct file_name expected = name_of(order[i]);

		assert_true(file_index_pop(index, &name) > 0);
		assert_memory_equal(name.hash, expected.hash, 32);
		assert_int_equal(name.fan, expected.fan);
	}
	assert_int_equal(file_index_count(index), 0);
	assert_int_equal(file_index_bytes(index), 0);
	file_index_destroy(&index);
}

#define NAMES 300
#define LIMIT 200

struct model {
	uint64_t bytes[NAMES]; /* 0: not there */
	uint64_t used[NAMES];
	uint64_t came[NAMES]; /* of those that were used at one time, in this order */
	uint64_t clock;
	uint32_t count;
};

static bool goes_before(const struct model *model, uint32_t a, uint32_t b)
{
	return model->used[a] < model->used[b] || (model->used[a] == model->used[b] && model->came[a] < model->came[b]);
}

/* Some chains are in use at once, each in any order. */
static void model_step(struct model *model, struct file_index *index, struct random *random)
{
	uint32_t number = (uint32_t)random_below(random, NAMES);
	struct file_name name = name_of(number);
	uint64_t bytes = (1 + random_below(random, 5)) * FILE_BLOCK;
	uint64_t chain = model->clock / 16 * 16 + 4096 - random_below(random, 3) * 16;
	struct file_use use = { .at = chain - random_below(random, 64), .chain = chain };

	switch (random_below(random, 4)) {
	case 0:
		if (!model->bytes[number] && model->count == LIMIT) {
			assert_int_equal(file_index_add(index, &name, bytes, &use), -ENOSPC);
			return;
		}
		assert_int_equal(file_index_add(index, &name, bytes, &use), 0);
		if (!model->bytes[number]) {
			model->count++;
			model->used[number] = use.at;
			model->came[number] = ++model->clock;
		}
		model->bytes[number] = bytes;
		return;
	case 1:
		assert_int_equal(file_index_use(index, &name, &use), model->bytes[number]);
		if (model->bytes[number] && model->used[number] < use.at) {
			model->used[number] = use.at;
			model->came[number] = ++model->clock;
		}
		return;
	case 2:
		assert_int_equal(file_index_remove(index, &name), model->bytes[number]);
		break;
	default:
		if (model->count == 0 || random_below(random, 4))
			return;
		number = NAMES;
		for (uint32_t i = 0; i < NAMES; i++) {
			if (model->bytes[i] && (number == NAMES || goes_before(model, i, number)))
				number = i;
		}
		assert_int_equal(file_index_pop(index, &name), model->bytes[number]);
		assert_memory_equal(name.hash, name_of(number).hash, 32);
	}
	model->count -= model->bytes[number] != 0;
	model->bytes[number] = 0;
}

static void random_use_agrees_with_a_plain_model(void **state)
{
	struct model model = { .clock = 0 };
	struct file_index *index;
	struct random random;

	(void)state;
	random_init(&random, 17);
	assert_int_equal(file_index_create(LIMIT, &index), 0);
	for (int i = 0; i < 100000; i++) {
		uint64_t bytes = 0;

		model_step(&model, index, &random);
		assert_int_equal(file_index_count(index), model.count);
		if (i % 1000)
			continue;
		for (uint32_t j = 0; j < NAMES; j++)
			bytes += model.bytes[j];
		assert_int_equal(file_index_bytes(index), bytes);
	}
	file_index_destroy(&index);
}

static void more_than_one_slab_is_used_up_to_the_limit(void **state)
{
	struct file_use use = use_at(1);
	struct file_index *index;
	struct file_name name;

	(void)state;
	assert_int_equal(file_index_create(40000, &index), 0);
	for (uint32_t i = 0; i < 40000; i++) {
		name = name_of(i);
		memcpy(name.hash, &i, sizeof(i));
		assert_int_equal(file_index_add(index, &name, FILE_BLOCK, &use), 0);
	}
	name = name_of(40000);
	assert_int_equal(file_index_add(index, &name, FILE_BLOCK, &use), -ENOSPC);
	assert_int_equal(file_index_count(index), 40000);
	file_index_destroy(&index);
	assert_null(index);
	file_index_destroy(&index);
}

static void limits_and_missing_memory_are_told(void **state)
{
	static const char *const points[] = { "file_index/object", "file_index/buckets", "file_index/slabs" };
	struct file_name name = name_of(1);
	struct file_use use = use_at(1);
	struct file_index *index;

	(void)state;
	assert_int_equal(file_index_create(0, &index), -EINVAL);
	assert_int_equal(file_index_create(UINT32_MAX, &index), -EINVAL);
	for (size_t i = 0; i < KVR_COUNT_OF(points); i++) {
		fault_arm_name(points[i], 1);
		assert_int_equal(file_index_create(10, &index), -ENOMEM);
		assert_null(index);
	}
	assert_int_equal(file_index_create(10, &index), 0);
	fault_arm_name("file_index/slab", 1);
	assert_int_equal(file_index_add(index, &name, FILE_BLOCK, &use), -ENOMEM);
	assert_int_equal(file_index_count(index), 0);
	assert_int_equal(file_index_add(index, &name, FILE_BLOCK, &use), 0);
	fault_arm(0);
	file_index_destroy(&index);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_added_is_found_and_the_oldest_goes_first),
		cmocka_unit_test(random_use_agrees_with_a_plain_model),
		cmocka_unit_test(more_than_one_slab_is_used_up_to_the_limit),
		cmocka_unit_test(limits_and_missing_memory_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
