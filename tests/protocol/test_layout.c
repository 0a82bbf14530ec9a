/* What layout.h promises: what is refused and why, where bytes lie, and which chunks need nothing. */
#include "protocol/layout.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

#define CHUNK_TOKENS 256
#define REGION_ADDRESS UINT64_C(0x7f0000000000)
#define REGION_BYTES (UINT64_C(1) << 30)

/* A registration that is right: one group of 16-token blocks, K and V of two layers; tests bend it. */
struct fixture {
	struct wire_group groups[WIRE_GROUPS_MAX + 1];
	struct wire_plane planes[8];
	struct layout_region regions[2];
	struct register_request request;
	uint8_t group_bytes[(WIRE_GROUPS_MAX + 1) * WIRE_GROUP_BYTES];
	uint8_t plane_bytes[8 * WIRE_PLANE_BYTES];
	struct layout *layout;
	struct wire_error error;
	uint32_t chunk_tokens;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->layout = calloc(1, layout_bytes(8));
	f->chunk_tokens = CHUNK_TOKENS;
	f->request.group_count = 1;
	f->request.plane_count = 4;
	f->groups[0] = (struct wire_group){ 16, WIRE_WINDOW_FULL, 1000, 4 };
	for (uint32_t p = 0; p < 4; p++)
		f->planes[p] = (struct wire_plane){ REGION_ADDRESS + p * 0x1000000, 4096, 4096, 1 };
	f->regions[0] = (struct layout_region){ .address = 0, .length = 0, .rkey = 0, .present = false };
	f->regions[1] = (struct layout_region){
		.address = REGION_ADDRESS, .length = REGION_BYTES, .rkey = 0xabc, .present = true
	};
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	free(f->layout);
	free(f);
	return 0;
}

static int build(struct fixture *f)
{
	for (uint32_t g = 0; g < KVR_COUNT_OF(f->groups); g++)
		register_write_group(f->group_bytes + g * WIRE_GROUP_BYTES, &f->groups[g]);
	for (uint32_t p = 0; p < KVR_COUNT_OF(f->planes); p++)
		register_write_plane(f->plane_bytes + p * WIRE_PLANE_BYTES, &f->planes[p]);
	f->request.groups = f->group_bytes;
	f->request.planes = f->plane_bytes;
	memset(&f->error, 0, sizeof(f->error));
	return layout_build(f->layout, &f->request, f->chunk_tokens, f->regions, 2, &f->error);
}

static void assert_refused(struct fixture *f, uint16_t status, uint32_t number, const char *word)
{
	assert_int_equal(build(f), -EINVAL);
	assert_int_equal(f->error.status, status);
	assert_int_equal(f->error.offset, number);
	assert_non_null(f->error.what);
	if (!strstr(f->error.what, word))
		fail_msg("\"%s\" does not say \"%s\"", f->error.what, word);
}

static void a_layout_has_its_planes_behind_one_another(void **state)
{
	struct fixture *f = *state;

	f->planes[2].block_bytes = 1024;
	assert_int_equal(build(f), 0);
	assert_int_equal(f->layout->chunk_tokens, CHUNK_TOKENS);
	assert_int_equal(f->layout->group_count, 1);
	assert_int_equal(f->layout->plane_count, 4);
	assert_int_equal(f->layout->groups[0].blocks_per_chunk, 16);
	assert_int_equal(f->layout->groups[0].object_bytes, 16 * (4096 * 3 + 1024));
	assert_int_equal(f->layout->planes[0].object_offset, 0);
	assert_int_equal(f->layout->planes[1].object_offset, 16 * 4096);
	assert_int_equal(f->layout->planes[3].object_offset, 16 * (4096 * 2 + 1024));
	assert_int_equal(f->layout->planes[3].rkey, 0xabc);
	assert_int_equal(f->layout->planes[3].address, REGION_ADDRESS + 3 * 0x1000000);
}

static void groups_have_planes_and_objects_of_their_own(void **state)
{
	struct fixture *f = *state;

	f->request.group_count = 2;
	f->groups[0].plane_count = 1;
	f->groups[1] = (struct wire_group){ 64, 512, 10, 3 };
	assert_int_equal(build(f), 0);
	assert_int_equal(f->layout->groups[1].first_plane, 1);
	assert_int_equal(f->layout->groups[1].blocks_per_chunk, 4);
	assert_int_equal(f->layout->groups[1].window_tokens, 512);
	assert_int_equal(f->layout->groups[1].object_bytes, 4 * 3 * 4096);
	assert_int_equal(f->layout->planes[1].object_offset, 0);
}

static void a_scheduler_registers_without_groups(void **state)
{
	struct fixture *f = *state;

	f->request.group_count = 0;
	f->request.plane_count = 0;
	assert_int_equal(build(f), 0);
	assert_int_equal(f->layout->group_count, 0);
}

static void too_many_groups_are_refused(void **state)
{
	struct fixture *f = *state;

	f->request.group_count = WIRE_GROUPS_MAX + 1;
	assert_refused(f, STATUS_UNSUPPORTED, 0, "groups");
}

static void blocks_without_tokens_are_refused(void **state)
{
	struct fixture *f = *state;

	f->groups[0].tokens_per_block = 0;
	assert_refused(f, STATUS_MALFORMED, 0, "tokens_per_block");
}

static void blocks_that_do_not_fill_a_chunk_are_refused(void **state)
{
	struct fixture *f = *state;

	f->groups[0].tokens_per_block = 24;
	assert_refused(f, STATUS_UNSUPPORTED, 0, "divide");
	f->groups[0].tokens_per_block = 512; /* larger than a chunk */
	assert_refused(f, STATUS_UNSUPPORTED, 0, "divide");
	f->groups[0].tokens_per_block = 256; /* just one */
	assert_int_equal(build(f), 0);
	f->chunk_tokens = 0;
	assert_refused(f, STATUS_UNSUPPORTED, 0, "chunk");
}

static void empty_groups_are_refused(void **state)
{
	struct fixture *f = *state;

	f->groups[0].block_count = 0;
	assert_refused(f, STATUS_MALFORMED, 0, "block_count");
	f->groups[0].block_count = 1000;
	f->groups[0].plane_count = 0;
	assert_refused(f, STATUS_MALFORMED, 0, "no plane");
}

static void plane_counts_must_agree(void **state)
{
	struct fixture *f = *state;

	f->groups[0].plane_count = 5;
	assert_refused(f, STATUS_MALFORMED, 0, "more planes");
	f->groups[0].plane_count = UINT32_MAX;
	assert_refused(f, STATUS_MALFORMED, 0, "more planes");
	f->groups[0].plane_count = 3;
	assert_refused(f, STATUS_MALFORMED, 3, "more than the groups");
}

static void blocks_without_bytes_are_refused(void **state)
{
	struct fixture *f = *state;

	f->planes[2].block_bytes = 0;
	assert_refused(f, STATUS_MALFORMED, 2, "block_bytes");
}

static void blocks_that_overlap_are_refused(void **state)
{
	struct fixture *f = *state;

	f->planes[1].block_stride = 4095;
	assert_refused(f, STATUS_MALFORMED, 1, "stride");
	f->planes[1].block_stride = 0;
	assert_refused(f, STATUS_MALFORMED, 1, "stride");
}

static void unknown_regions_are_refused(void **state)
{
	struct fixture *f = *state;

	f->planes[3].region = 0; /* there, but nothing is in it */
	assert_refused(f, STATUS_INVALID_MEMORY, 3, "no such");
	f->planes[3].region = 2;
	assert_refused(f, STATUS_INVALID_MEMORY, 3, "no such");
	f->planes[3].region = UINT32_MAX;
	assert_refused(f, STATUS_INVALID_MEMORY, 3, "no such");
}

static void planes_may_reach_the_last_byte_of_a_region_and_no_further(void **state)
{
	struct fixture *f = *state;
	struct wire_plane *plane = &f->planes[0];

	/* An awkward stride: only the last block ends before the stride does. */
	plane->block_stride = 5000;
	plane->block_bytes = 4097;
	plane->address = REGION_ADDRESS + REGION_BYTES - (999 * 5000 + 4097);
	assert_int_equal(build(f), 0);
	plane->address++;
	assert_refused(f, STATUS_INVALID_MEMORY, 0, "bounds");
	plane->address = REGION_ADDRESS;
	assert_int_equal(build(f), 0);
	plane->address--;
	assert_refused(f, STATUS_INVALID_MEMORY, 0, "bounds");
	plane->address = REGION_ADDRESS + REGION_BYTES + 1;
	assert_refused(f, STATUS_INVALID_MEMORY, 0, "bounds");
}

static void sums_that_wrap_are_refused(void **state)
{
	struct fixture *f = *state;

	f->planes[0].block_stride = UINT64_MAX / 999 + 1; /* the product wraps to something small */
	assert_refused(f, STATUS_INVALID_MEMORY, 0, "bounds");
	f->planes[0].block_stride = (UINT64_MAX - 4095) / 999; /* the product fits, with the last block it wraps */
	f->planes[0].block_bytes = UINT32_MAX;
	assert_refused(f, STATUS_INVALID_MEMORY, 0, "bounds");
	f->planes[0].block_stride = UINT64_MAX;
	f->planes[0].block_bytes = 4096;
	assert_refused(f, STATUS_INVALID_MEMORY, 0, "bounds");

	/* A region that an importer got wrong. */
	f->planes[0].block_stride = 4096;
	f->planes[0].address = UINT64_MAX - 4096;
	f->regions[1] = (struct layout_region){
		.address = UINT64_MAX - 8192, .length = 9000, .rkey = 1, .present = true
	};
	assert_refused(f, STATUS_INVALID_MEMORY, 0, "address space");
	f->regions[1] = (struct layout_region){ .address = REGION_ADDRESS, .length = 0, .rkey = 1, .present = true };
	assert_refused(f, STATUS_INVALID_MEMORY, 0, "address space");
}

static void objects_above_the_limit_are_refused(void **state)
{
	struct fixture *f = *state;

	f->groups[0].block_count = 1;
	for (uint32_t p = 0; p < 4; p++) {
		f->planes[p].address = REGION_ADDRESS;
		f->planes[p].block_bytes = 16u << 20; /* 16 blocks of them: 256 MiB a plane */
		f->planes[p].block_stride = 16u << 20;
	}
	assert_int_equal(build(f), 0);
	assert_int_equal(f->layout->groups[0].object_bytes, LAYOUT_OBJECT_BYTES_MAX);
	f->planes[3].block_bytes++;
	f->planes[3].block_stride++;
	assert_refused(f, STATUS_UNSUPPORTED, 3, "1 GiB");
}

/* ---- block lists ------------------------------------------------------------------------------------------------ */

struct list {
	struct transfer_request request;
	struct block_run runs[16];
	uint32_t group_runs[2];
};

/* runs: start, count, ..., the end is a count of 0. One group. */
static void list_set(struct list *list, uint16_t type, uint32_t chunks, const uint32_t *runs)
{
	memset(list, 0, sizeof(*list));
	list->request.header.type = type;
	list->request.chunk_count = chunks;
	list->request.group_count = 1;
	for (; runs[1]; runs += 2)
		list->runs[list->request.run_count++] = (struct block_run){ runs[0], runs[1] };
	list->group_runs[0] = list->request.run_count;
	list->request.runs = (const uint8_t *)list->runs;
	list->request.group_runs = (const uint8_t *)list->group_runs;
}
#define LIST(list, type, chunks, ...) list_set(list, type, chunks, (const uint32_t[]){ __VA_ARGS__, 0, 0 })

static void assert_list_refused(
	struct fixture *f, const struct list *list, uint16_t status, uint32_t number, const char *word)
{
	assert_int_equal(layout_check_blocks(f->layout, &list->request, &f->error), -EINVAL);
	assert_int_equal(f->error.status, status);
	assert_int_equal(f->error.offset, number);
	if (!strstr(f->error.what, word))
		fail_msg("\"%s\" does not say \"%s\"", f->error.what, word);
}

static void lists_of_exactly_the_range_are_right(void **state)
{
	struct fixture *f = *state;
	struct list list;

	assert_int_equal(build(f), 0);
	LIST(&list, WIRE_RETRIEVE, 2, 0, 10, 978, 22);
	assert_int_equal(layout_check_blocks(f->layout, &list.request, &f->error), 0);
	LIST(&list, WIRE_RETRIEVE, 2, 0, 10, 978, 21);
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 2, "fewer");
	LIST(&list, WIRE_RETRIEVE, 2, 0, 10, 900, 23);
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 1, "more");
	LIST(&list, WIRE_RETRIEVE, 2, 0, 32, 0, 1);
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 1, "more");
	LIST(&list, WIRE_RETRIEVE, 2, 0, UINT32_MAX);
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 0, "more");
}

static void ids_outside_the_memory_are_refused(void **state)
{
	struct fixture *f = *state;
	struct list list;

	assert_int_equal(build(f), 0);
	LIST(&list, WIRE_STORE, 1, 985, 16);
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 0, "outside");
	LIST(&list, WIRE_STORE, 1, 984, 15, 1000, 1);
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 1, "outside");
	LIST(&list, WIRE_STORE, 1, UINT32_MAX - 1, 16); /* the sum passes 32 bits */
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 0, "outside");
	LIST(&list, WIRE_STORE, 1, 984, 16);
	assert_int_equal(layout_check_blocks(f->layout, &list.request, &f->error), 0);
}

static void ids_inside_the_skip_are_not_looked_at(void **state)
{
	struct fixture *f = *state;
	struct list list;

	assert_int_equal(build(f), 0);
	LIST(&list, WIRE_RETRIEVE, 1, 5000, 4, 0, 12);
	list.request.skip_tokens = 64; /* four blocks */
	assert_int_equal(layout_check_blocks(f->layout, &list.request, &f->error), 0);
	list.request.skip_tokens = 63; /* the fourth is written whole */
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 0, "outside");
	LIST(&list, WIRE_RETRIEVE, 1, 5000, 5, 0, 11); /* a run that is skipped in part */
	list.request.skip_tokens = 64;
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 0, "outside");
}

static void skips_stay_inside_the_range(void **state)
{
	struct fixture *f = *state;
	struct list list;

	assert_int_equal(build(f), 0);
	LIST(&list, WIRE_RETRIEVE, 2, 5000, 32);
	list.request.skip_tokens = 512;
	assert_int_equal(layout_check_blocks(f->layout, &list.request, &f->error), 0);
	list.request.skip_tokens = 513;
	assert_list_refused(f, &list, STATUS_INVALID_RANGE, 0, "skip_tokens");
	LIST(&list, WIRE_STORE, 2, 0, 32);
	list.request.skip_tokens = 1;
	assert_list_refused(f, &list, STATUS_INVALID_RANGE, 0, "skip_tokens");
	list.request.skip_tokens = 0;
	list.request.chunk_count = 0;
	assert_list_refused(f, &list, STATUS_INVALID_RANGE, 0, "empty");
}

static void null_blocks_may_stand_anywhere_in_a_retrieve(void **state)
{
	struct fixture *f = *state;
	struct list list;

	assert_int_equal(build(f), 0);
	LIST(&list, WIRE_RETRIEVE, 2, WIRE_NULL_BLOCK, 3, 7, 10, WIRE_NULL_BLOCK, 19);
	assert_int_equal(layout_check_blocks(f->layout, &list.request, &f->error), 0);
}

static void a_chunk_to_store_is_null_or_it_is_not(void **state)
{
	struct fixture *f = *state;
	struct list list;

	assert_int_equal(build(f), 0);
	LIST(&list, WIRE_STORE, 3, WIRE_NULL_BLOCK, 10, WIRE_NULL_BLOCK, 6, 7, 16, WIRE_NULL_BLOCK, 16);
	assert_int_equal(layout_check_blocks(f->layout, &list.request, &f->error), 0);
	LIST(&list, WIRE_STORE, 2, WIRE_NULL_BLOCK, 15, 7, 17);
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 1, "null");
	LIST(&list, WIRE_STORE, 2, 7, 31, WIRE_NULL_BLOCK, 1);
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 1, "null");
}

static void groups_must_be_those_of_the_registration(void **state)
{
	struct fixture *f = *state;
	struct list list;

	assert_int_equal(build(f), 0);
	LIST(&list, WIRE_STORE, 1, 0, 16);
	list.request.group_count = 2;
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 0, "group_count");
	list.request.group_count = 1;
	list.group_runs[0] = 2;
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 0, "group_runs");
}

static void each_group_has_a_list_of_its_own(void **state)
{
	struct fixture *f = *state;
	struct list list;
	bool idle[2];

	f->request.group_count = 2;
	f->groups[0].plane_count = 1;
	f->groups[1] = (struct wire_group){ 64, 512, 8, 3 };
	assert_int_equal(build(f), 0);
	LIST(&list, WIRE_STORE, 2, 0, 20, 30, 12, WIRE_NULL_BLOCK, 4, 4, 4);
	list.request.group_count = 2;
	list.group_runs[0] = 2;
	list.group_runs[1] = 2;
	assert_int_equal(layout_check_blocks(f->layout, &list.request, &f->error), 0);
	layout_idle_chunks(f->layout, &list.request, 0, idle);
	assert_false(idle[0] || idle[1]);
	layout_idle_chunks(f->layout, &list.request, 1, idle);
	assert_true(idle[0]);
	assert_false(idle[1]);

	list.runs[3].start = 5; /* ids of the second group end at 8 */
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 3, "outside");
	list.runs[3].start = 4;
	list.group_runs[0] = 3; /* group 0 gets a run of the other */
	list.group_runs[1] = 1;
	assert_list_refused(f, &list, STATUS_INVALID_BLOCK, 2, "more");
}

static void chunks_wholly_inside_the_skip_are_idle(void **state)
{
	struct fixture *f = *state;
	struct list list;
	bool idle[3];

	assert_int_equal(build(f), 0);
	LIST(&list, WIRE_RETRIEVE, 3, 0, 48);
	list.request.skip_tokens = 511;
	layout_idle_chunks(f->layout, &list.request, 0, idle);
	assert_true(idle[0]);
	assert_false(idle[1] || idle[2]);
	list.request.skip_tokens = 768;
	layout_idle_chunks(f->layout, &list.request, 0, idle);
	assert_true(idle[0] && idle[1] && idle[2]);
}

/* Against one flag per block, for random lists of null and real runs. */
static void null_chunks_are_found_however_the_runs_are_cut(void **state)
{
	struct fixture *f = *state;
	struct random random;
	struct list list;

	assert_int_equal(build(f), 0);
	random_init(&random, 7);
	for (int round = 0; round < 2000; round++) {
		uint32_t chunks = 1 + (uint32_t)random_below(&random, 4);
		bool block_null[64], mixed = false, idle[4];
		uint32_t position = 0;

		LIST(&list, WIRE_STORE, chunks, 0, 0);
		while (position < chunks * 16) {
			uint32_t most = chunks * 16 - position;
			uint32_t count = list.request.run_count == 15 ? most
								      : 1 + (uint32_t)random_below(&random, most);
			bool null = random_chance(&random, 1, 2);

			/* Mostly at bounds of chunks, or nearly no list would be right. */
			if (list.request.run_count < 15 && count >= 16 && random_chance(&random, 9, 10))
				count -= (position + count) % 16;
			list.runs[list.request.run_count++] = (struct block_run){ null ? WIRE_NULL_BLOCK : 3, count };
			for (uint32_t b = 0; b < count; b++)
				block_null[position++] = null;
		}
		list.group_runs[0] = list.request.run_count;
		for (uint32_t b = 0; b < position; b++)
			mixed |= block_null[b] != block_null[b - b % 16];
		assert_int_equal(layout_check_blocks(f->layout, &list.request, &f->error), mixed ? -EINVAL : 0);
		if (mixed)
			continue;
		layout_idle_chunks(f->layout, &list.request, 0, idle);
		for (uint32_t chunk = 0; chunk < chunks; chunk++)
			assert_int_equal(idle[chunk], block_null[chunk * 16]);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_layout_has_its_planes_behind_one_another),
		TEST(groups_have_planes_and_objects_of_their_own),
		TEST(a_scheduler_registers_without_groups),
		TEST(too_many_groups_are_refused),
		TEST(blocks_without_tokens_are_refused),
		TEST(blocks_that_do_not_fill_a_chunk_are_refused),
		TEST(empty_groups_are_refused),
		TEST(plane_counts_must_agree),
		TEST(blocks_without_bytes_are_refused),
		TEST(blocks_that_overlap_are_refused),
		TEST(unknown_regions_are_refused),
		TEST(planes_may_reach_the_last_byte_of_a_region_and_no_further),
		TEST(sums_that_wrap_are_refused),
		TEST(objects_above_the_limit_are_refused),
		TEST(lists_of_exactly_the_range_are_right),
		TEST(ids_outside_the_memory_are_refused),
		TEST(ids_inside_the_skip_are_not_looked_at),
		TEST(skips_stay_inside_the_range),
		TEST(null_blocks_may_stand_anywhere_in_a_retrieve),
		TEST(a_chunk_to_store_is_null_or_it_is_not),
		TEST(groups_must_be_those_of_the_registration),
		TEST(each_group_has_a_list_of_its_own),
		TEST(chunks_wholly_inside_the_skip_are_idle),
		TEST(null_chunks_are_found_however_the_runs_are_cut),
	};
#undef TEST

	return cmocka_run_group_tests(tests, NULL, NULL);
}
