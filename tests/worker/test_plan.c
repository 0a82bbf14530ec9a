/* The planner against a plan that moves every byte by itself. */
#include "worker/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

#define CHUNKS_MAX 12
#define GROUPS_MAX 3
#define PLANES_MAX 6
#define RUNS_MAX 512
#define MOVES_MAX 400000

/* One byte that moves. */
struct move {
	uint64_t local;
	uint64_t remote;
	uint32_t lkey;
	uint32_t rkey;
};

struct fixture {
	struct transfer_request request;
	struct transfer transfer;
	struct plan_limits limits;
	struct layout *layout;
	struct transfer_part parts[CHUNKS_MAX * GROUPS_MAX];
	struct block_run runs[RUNS_MAX];
	uint32_t group_runs[GROUPS_MAX];
	struct move *expected, *planned;
	uint32_t expected_count, planned_count;
	uint32_t work_requests;
	uint32_t sges;
	uint64_t bytes;
};

/* `bytes` a block, `stride` apart: `planes` planes of one group with blocks of one token. */
static void set_layout(struct fixture *f, uint32_t planes, uint32_t blocks_per_chunk, uint32_t bytes, uint64_t stride)
{
	struct layout *layout = f->layout;

	layout->chunk_tokens = blocks_per_chunk;
	layout->group_count = 1;
	layout->plane_count = planes;
	layout->groups[0] = (struct layout_group){
		.tokens_per_block = 1,
		.blocks_per_chunk = blocks_per_chunk,
		.block_count = 1000000,
		.window_tokens = WIRE_WINDOW_FULL,
		.plane_count = planes,
		.object_bytes = (uint64_t)planes * blocks_per_chunk * bytes,
	};
	for (uint32_t p = 0; p < planes; p++)
		layout->planes[p] = (struct layout_plane){
			.address = UINT64_C(0x100000000) * (p + 1),
			.block_stride = stride,
			.object_offset = (uint64_t)p * blocks_per_chunk * bytes,
			.block_bytes = bytes,
			.rkey = 100 + p,
		};
	f->request.group_count = 1;
}

/* Objects that do not touch, unless a test moves them. No memory stands behind the addresses: plans only compute with
 * them. */
static void set_chunks(struct fixture *f, uint32_t chunks)
{
	f->request.chunk_count = chunks;
	for (uint32_t i = 0; i < chunks * f->layout->group_count; i++) {
		f->parts[i].address = (void *)(uintptr_t)(0x10000000 + (uint64_t)i * 0x1000000);
		f->parts[i].lkey = 7;
	}
}

static void set_runs(struct fixture *f, const uint32_t *runs)
{
	f->request.run_count = 0;
	for (; runs[1]; runs += 2)
		f->runs[f->request.run_count++] = (struct block_run){ runs[0], runs[1] };
	f->group_runs[0] = f->request.run_count;
}
#define RUNS(f, ...) set_runs(f, (const uint32_t[]){ __VA_ARGS__, 0, 0 })

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->layout = calloc(1, layout_bytes(PLANES_MAX));
	f->expected = calloc(MOVES_MAX, sizeof(*f->expected));
	f->planned = calloc(MOVES_MAX, sizeof(*f->planned));
	f->request.header.type = WIRE_RETRIEVE;
	f->request.runs = (const uint8_t *)f->runs;
	f->request.group_runs = (const uint8_t *)f->group_runs;
	f->transfer.layout = f->layout;
	f->transfer.parts = f->parts;
	f->transfer.to_client = true;
	f->limits = (struct plan_limits){ .max_sge = 16, .max_bytes = 1u << 30 };
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	free(f->layout);
	free(f->expected);
	free(f->planned);
	free(f);
	return 0;
}

static void add_move(struct move *moves, uint32_t *count, struct move move)
{
	assert_true(*count < MOVES_MAX);
	moves[(*count)++] = move;
}

static void expect_block(struct fixture *f, uint32_t group, uint32_t plane_number, uint32_t block, uint32_t id)
{
	const struct layout *layout = f->layout;
	const struct layout_plane *plane = &layout->planes[plane_number];
	uint32_t blocks_per_chunk = layout->groups[group].blocks_per_chunk;
	const struct transfer_part *part = &f->parts[block / blocks_per_chunk * layout->group_count + group];
	uint32_t tokens = layout->groups[group].tokens_per_block;

	if (!part->address || id == WIRE_NULL_BLOCK || (uint64_t)(block + 1) * tokens <= f->request.skip_tokens)
		return;
	for (uint32_t i = 0; i < plane->block_bytes; i++)
		add_move(f->expected, &f->expected_count,
			(struct move){
				.local = (uint64_t)(uintptr_t)part->address + plane->object_offset +
					(uint64_t)(block % blocks_per_chunk) * plane->block_bytes + i,
				.remote = plane->address + id * plane->block_stride + i,
				.lkey = part->lkey,
				.rkey = plane->rkey,
			});
}

/* Group by group, plane by plane, block by block, byte by byte. */
static void expect_all(struct fixture *f)
{
	const struct layout *layout = f->layout;
	uint32_t first_run = 0;

	f->expected_count = 0;
	for (uint32_t g = 0; g < layout->group_count; g++) {
		for (uint32_t p = 0; p < layout->groups[g].plane_count; p++) {
			uint32_t block = 0;

			for (uint32_t r = first_run; r < first_run + f->group_runs[g]; r++)
				for (uint32_t i = 0; i < f->runs[r].count; i++, block++)
					expect_block(f, g, layout->groups[g].first_plane + p, block,
						f->runs[r].start == WIRE_NULL_BLOCK ? WIRE_NULL_BLOCK
										    : f->runs[r].start + i);
		}
		first_run += f->group_runs[g];
	}
}

static void take_work_request(struct fixture *f, const struct ibv_send_wr *wr, uint64_t bytes)
{
	uint64_t remote = wr->wr.rdma.remote_addr;

	assert_int_equal(wr->opcode, f->transfer.to_client ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ);
	assert_in_range(wr->num_sge, 1, f->limits.max_sge);
	assert_true(bytes <= f->limits.max_bytes);
	for (int s = 0; s < wr->num_sge; s++) {
		assert_true(wr->sg_list[s].length > 0);
		f->sges++;
		for (uint32_t i = 0; i < wr->sg_list[s].length; i++)
			add_move(f->planned, &f->planned_count,
				(struct move){
					wr->sg_list[s].addr + i, remote++, wr->sg_list[s].lkey, wr->wr.rdma.rkey });
	}
	assert_int_equal(remote - wr->wr.rdma.remote_addr, bytes);
	f->work_requests++;
	f->bytes += bytes;
}

static void plan_all(struct fixture *f)
{
	struct plan plan;
	struct ibv_send_wr wr;
	struct ibv_sge sge[40];
	uint64_t bytes;

	f->planned_count = f->work_requests = f->sges = 0;
	f->bytes = 0;
	f->request.run_count = 0;
	for (uint32_t g = 0; g < f->layout->group_count; g++)
		f->request.run_count += f->group_runs[g];
	f->request.group_count = f->layout->group_count;
	memset(sge, 0xee, sizeof(sge));
	plan_init(&plan, &f->request, &f->transfer);
	while (!plan_done(&plan)) {
		bytes = plan_next(&plan, &f->limits, &wr, sge);
		assert_true(bytes > 0);
		take_work_request(f, &wr, bytes);
		assert_int_equal(sge[f->limits.max_sge].length, 0xeeeeeeee); /* never one too many */
	}
	assert_int_equal(plan_next(&plan, &f->limits, &wr, sge), 0);
}

static void assert_plan(struct fixture *f, uint32_t work_requests, uint32_t sges)
{
	expect_all(f);
	plan_all(f);
	assert_int_equal(f->planned_count, f->expected_count);
	for (uint32_t i = 0; i < f->expected_count; i++)
		assert_memory_equal(&f->planned[i], &f->expected[i], sizeof(f->planned[i]));
	assert_int_equal(f->bytes, f->expected_count);
	if (work_requests) {
		assert_int_equal(f->work_requests, work_requests);
		assert_int_equal(f->sges, sges);
	}
}

/* ---- how few ---------------------------------------------------------------------------------------------------- */

static void a_contiguous_run_in_one_chunk_is_one_work_request_a_plane(void **state)
{
	struct fixture *f = *state;

	set_layout(f, 4, 16, 32, 32);
	set_chunks(f, 1);
	RUNS(f, 100, 16);
	assert_plan(f, 4, 4);
}

static void a_contiguous_run_over_four_chunks_gathers_four_pieces(void **state)
{
	struct fixture *f = *state;

	set_layout(f, 2, 16, 32, 32);
	set_chunks(f, 4);
	RUNS(f, 100, 64);
	assert_plan(f, 2, 8);
}

static void runs_that_are_neighbours_are_one(void **state)
{
	struct fixture *f = *state;

	set_layout(f, 1, 16, 32, 32);
	set_chunks(f, 2);
	RUNS(f, 100, 5, 105, 1, 106, 20, 200, 6);
	assert_plan(f, 2, 3);
}

static void objects_that_are_neighbours_are_one_piece(void **state)
{
	struct fixture *f = *state;

	set_layout(f, 1, 16, 64, 64); /* cross-layer: one plane is the whole object */
	set_chunks(f, 3);
	for (uint32_t i = 0; i < 3; i++)
		f->parts[i].address = (void *)(uintptr_t)(0x10000000 + i * 16 * 64);
	RUNS(f, 100, 48);
	assert_plan(f, 1, 1);
	f->parts[1].lkey = 8; /* of another area: no piece may span two keys */
	assert_plan(f, 1, 3);
}

static void scattered_blocks_cost_one_each(void **state)
{
	struct fixture *f = *state;

	set_layout(f, 3, 4, 32, 32);
	set_chunks(f, 1);
	RUNS(f, 9, 1, 7, 1, 5, 1, 3, 1);
	assert_plan(f, 12, 12);
}

static void blocks_with_gaps_between_them_cost_one_each(void **state)
{
	struct fixture *f = *state;

	set_layout(f, 2, 4, 32, 64);
	set_chunks(f, 2);
	RUNS(f, 0, 8);
	assert_plan(f, 16, 16);
}

static void a_work_request_never_spans_two_planes(void **state)
{
	struct fixture *f = *state;

	set_layout(f, 2, 4, 32, 32);
	set_chunks(f, 1);
	f->layout->planes[1].address = f->layout->planes[0].address + 4 * 32; /* neighbours, of the same region */
	f->layout->planes[1].rkey = f->layout->planes[0].rkey;
	RUNS(f, 0, 4);
	assert_plan(f, 2, 2);
}

static void null_and_absent_blocks_cost_nothing_and_divide(void **state)
{
	struct fixture *f = *state;

	set_layout(f, 1, 4, 32, 32);
	set_chunks(f, 4);
	RUNS(f, 0, 2, WIRE_NULL_BLOCK, 1, 3, 13);
	f->parts[2].address = NULL;
	assert_plan(f, 3, 4); /* 0-1; 3 and 4-7; 12-15 */
	f->parts[0].address = f->parts[1].address = f->parts[3].address = NULL;
	assert_plan(f, 0, 0);
	assert_int_equal(f->work_requests, 0);
	set_chunks(f, 4);
	RUNS(f, WIRE_NULL_BLOCK, 16);
	assert_plan(f, 0, 0);
	assert_int_equal(f->work_requests, 0);
}

static void blocks_wholly_inside_the_skip_are_not_written(void **state)
{
	struct fixture *f = *state;

	set_layout(f, 1, 16, 32, 32);
	f->layout->groups[0].tokens_per_block = 16;
	f->layout->chunk_tokens = 256;
	set_chunks(f, 2);
	RUNS(f, 0, 32);
	f->request.skip_tokens = 33; /* block 2 lies partly inside: written whole */
	assert_plan(f, 1, 2);
	assert_int_equal(f->bytes, 30 * 32);
	f->request.skip_tokens = 512;
	assert_plan(f, 0, 0);
	assert_int_equal(f->bytes, 0);
}

/* pitfalls I16: 17 pieces for a queue pair of 16 are two work requests, not an error. */
static void seventeen_pieces_on_sixteen_are_split(void **state)
{
	struct fixture *f = *state;

	set_layout(f, 1, 2, 32, 32);
	for (uint32_t chunks = 1; chunks <= CHUNKS_MAX; chunks++) {
		set_chunks(f, chunks);
		RUNS(f, 5, chunks * 2);
		f->limits.max_sge = 4;
		assert_plan(f, (chunks + 3) / 4, chunks);
	}
	f->limits.max_sge = 1;
	assert_plan(f, CHUNKS_MAX, CHUNKS_MAX);
}

static void blocks_above_the_limit_of_a_work_request_are_split(void **state)
{
	struct fixture *f = *state;

	set_layout(f, 1, 2, 1000, 1000);
	set_chunks(f, 2);
	RUNS(f, 0, 4);
	f->limits.max_bytes = 1500;
	assert_plan(f, 3, 4); /* 0-1499; 1500-1999, 2000-2999; 3000-3999 */
	f->limits.max_bytes = 1;
	assert_plan(f, 4000, 4000);
}

/* pitfalls N03: 128k tokens by 61 layers. The list on the wire is one run, and the work requests are as few as the
 * pieces allow. */
static void a_long_contiguous_context_needs_few_work_requests(void **state)
{
	struct fixture *f = *state;
	struct layout *big = calloc(1, layout_bytes(61));
	struct transfer_part *parts = calloc(512, sizeof(*parts));
	struct plan plan;
	struct ibv_send_wr wr;
	struct ibv_sge sge[40];
	uint64_t bytes = 0;
	uint32_t count = 0;

	set_layout(f, 1, 4, 73728, 73728); /* 64 tokens of 1152 bytes a block */
	*big = *f->layout;
	big->groups[0].plane_count = big->plane_count = 61;
	for (uint32_t p = 0; p < 61; p++) {
		big->planes[p] = f->layout->planes[0];
		big->planes[p].address += p * UINT64_C(0x100000000);
		big->planes[p].object_offset = (uint64_t)p * 4 * 73728;
	}
	for (uint32_t i = 0; i < 512; i++)
		parts[i] = (struct transfer_part){ .address = (void *)(uintptr_t)(0x10000000 +
							   i * UINT64_C(0x2000000)) };
	f->transfer.layout = big;
	f->transfer.parts = parts;
	f->request.chunk_count = 512;
	RUNS(f, 0, 2048);
	plan_init(&plan, &f->request, &f->transfer);
	for (; !plan_done(&plan); count++)
		bytes += plan_next(&plan, &f->limits, &wr, sge);
	assert_int_equal(bytes, UINT64_C(131072) * 1152 * 61);
	assert_int_equal(count, 61 * 512 / 16);
	free(parts);
	free(big);
}

static void a_copy_of_a_plan_goes_on_by_itself(void **state)
{
	struct fixture *f = *state;
	struct plan plan, copy;
	struct ibv_send_wr wr;
	struct ibv_sge sge[40];
	uint64_t first, again;

	set_layout(f, 2, 4, 32, 32);
	set_chunks(f, 2);
	RUNS(f, 9, 3, 20, 5);
	plan_init(&plan, &f->request, &f->transfer);
	plan_next(&plan, &f->limits, &wr, sge);
	copy = plan;
	plan_next(&copy, &f->limits, &wr, sge);
	first = wr.wr.rdma.remote_addr;
	plan_next(&plan, &f->limits, &wr, sge);
	again = wr.wr.rdma.remote_addr;
	assert_int_equal(first, again);
	assert_memory_equal(&plan, &copy, sizeof(plan));
}

/* A list that was never checked may be wrong, but must not lead outside the parts. */
static void a_list_that_is_too_long_ends_with_the_chunks(void **state)
{
	struct fixture *f = *state;

	set_layout(f, 1, 4, 32, 32);
	set_chunks(f, 2);
	RUNS(f, 0, 100, 200, 50);
	plan_all(f);
	assert_int_equal(f->bytes, 8 * 32);
}

/* ---- random ----------------------------------------------------------------------------------------------------- */

static void random_layout(struct fixture *f, struct random *random)
{
	struct layout *layout = f->layout;
	static const uint32_t tokens[] = { 1, 2, 4, 6, 12 };
	uint32_t planes = 0;

	memset(layout, 0, sizeof(*layout));
	layout->chunk_tokens = 12 << random_below(random, 2);
	layout->group_count = 1 + (uint32_t)random_below(random, GROUPS_MAX);
	for (uint32_t g = 0; g < layout->group_count; g++) {
		struct layout_group *group = &layout->groups[g];

		group->tokens_per_block = tokens[random_below(random, KVR_COUNT_OF(tokens))];
		group->blocks_per_chunk = layout->chunk_tokens / group->tokens_per_block;
		group->block_count = 200;
		group->first_plane = planes;
		group->plane_count = 1 + (uint32_t)random_below(random, 2);
		for (uint32_t p = 0; p < group->plane_count; p++) {
			struct layout_plane *plane = &layout->planes[planes++];

			plane->block_bytes = 1 + (uint32_t)random_below(random, 40);
			plane->block_stride = plane->block_bytes + random_below(random, 3) * random_below(random, 20);
			plane->object_offset = group->object_bytes;
			plane->address = UINT64_C(0x100000000) * planes + random_below(random, 64);
			plane->rkey = (uint32_t)random_below(random, 3);
			group->object_bytes += (uint64_t)plane->block_bytes * group->blocks_per_chunk;
		}
	}
	layout->plane_count = planes;
}

/* Neighbouring objects now and then, absent ones now and then. */
static void random_parts(struct fixture *f, struct random *random)
{
	const struct layout *layout = f->layout;
	uint32_t absent = (uint32_t)random_below(random, 3);
	uint64_t next[GROUPS_MAX] = { 0x10000000, 0x20000000, 0x30000000 };

	f->request.chunk_count = 1 + (uint32_t)random_below(random, CHUNKS_MAX);
	for (uint32_t i = 0; i < f->request.chunk_count * layout->group_count; i++) {
		uint32_t g = i % layout->group_count;

		f->parts[i].address = random_chance(random, absent, 6) ? NULL : (void *)(uintptr_t)next[g];
		f->parts[i].lkey = (uint32_t)random_below(random, 6) / 5;
		next[g] += layout->groups[g].object_bytes + random_below(random, 2) * 64;
	}
	f->request.skip_tokens = random_chance(random, 1, 2)
		? 0
		: (uint32_t)random_below(random, f->request.chunk_count * layout->chunk_tokens + 1);
}

static void random_runs(struct fixture *f, struct random *random)
{
	const struct layout *layout = f->layout;
	uint32_t r = 0;
	uint32_t longest = random_chance(random, 1, 3) ? 1 : 1 + (uint32_t)random_below(random, 40);

	for (uint32_t g = 0; g < layout->group_count; g++) {
		uint32_t left = f->request.chunk_count * layout->groups[g].blocks_per_chunk;
		uint32_t first = r, next = 0;

		while (left > 0) {
			uint32_t count = 1 + (uint32_t)random_below(random, longest < left ? longest : left);
			uint32_t start = (uint32_t)random_below(random, 200);

			if (r == RUNS_MAX - (GROUPS_MAX - g))
				count = left;
			if (random_chance(random, 1, 3))
				start = next; /* a neighbour of the run before */
			if (random_chance(random, 1, 12))
				start = WIRE_NULL_BLOCK;
			f->runs[r++] = (struct block_run){ start, count };
			next = start == WIRE_NULL_BLOCK ? 0 : start + count;
			left -= count;
		}
		f->group_runs[g] = r - first;
	}
}

static void random_plans_move_every_byte_once_and_in_order(void **state)
{
	struct fixture *f = *state;
	struct random random;

	for (uint64_t seed = 0; seed < 1500; seed++) {
		random_init(&random, seed);
		random_layout(f, &random);
		random_parts(f, &random);
		random_runs(f, &random);
		f->transfer.to_client = random_chance(&random, 1, 2);
		f->limits.max_sge = 1 + (uint32_t)random_below(&random, 32);
		f->limits.max_bytes = random_chance(&random, 1, 2) ? 1u << 30
								   : 1 + (uint32_t)random_below(&random, 200);
		assert_plan(f, 0, 0);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_contiguous_run_in_one_chunk_is_one_work_request_a_plane),
		TEST(a_contiguous_run_over_four_chunks_gathers_four_pieces),
		TEST(runs_that_are_neighbours_are_one),
		TEST(objects_that_are_neighbours_are_one_piece),
		TEST(scattered_blocks_cost_one_each),
		TEST(blocks_with_gaps_between_them_cost_one_each),
		TEST(a_work_request_never_spans_two_planes),
		TEST(null_and_absent_blocks_cost_nothing_and_divide),
		TEST(blocks_wholly_inside_the_skip_are_not_written),
		TEST(seventeen_pieces_on_sixteen_are_split),
		TEST(blocks_above_the_limit_of_a_work_request_are_split),
		TEST(a_long_contiguous_context_needs_few_work_requests),
		TEST(a_copy_of_a_plan_goes_on_by_itself),
		TEST(a_list_that_is_too_long_ends_with_the_chunks),
		TEST(random_plans_move_every_byte_once_and_in_order),
	};
#undef TEST

	return cmocka_run_group_tests(tests, NULL, NULL);
}
