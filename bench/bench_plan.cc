// What does planning cost, in nanoseconds per work request, from one contiguous run to blocks at random? The layout
// is that of llama3-8b: K and V of 32 layers, 16 tokens and 32 KiB a block, 256 tokens a chunk. Planning only:
// nothing is posted.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "worker/plan.h"

namespace
{

constexpr uint32_t kPlanes = 64;
constexpr uint32_t kBlocksPerChunk = 16;
constexpr uint32_t kBlockBytes = 32768;

struct Transfer {
	layout *shape = static_cast<layout *>(std::calloc(1, layout_bytes(kPlanes)));
	std::vector<transfer_part> parts;
	std::vector<block_run> runs;
	uint32_t group_runs = 0;
	transfer_request request = {};
	transfer moved = {};

	// run_blocks: blocks in a row that have neighbouring ids; 0: all. stride: in blocks.
	Transfer(uint32_t chunks, uint32_t run_blocks, uint64_t stride)
	{
		shape->chunk_tokens = 256;
		shape->group_count = 1;
		shape->plane_count = kPlanes;
		layout_group &group = shape->groups[0];
		group.tokens_per_block = 16;
		group.blocks_per_chunk = kBlocksPerChunk;
		group.block_count = 1u << 20;
		group.window_tokens = WIRE_WINDOW_FULL;
		group.plane_count = kPlanes;
		group.object_bytes = uint64_t(kPlanes) * kBlocksPerChunk * kBlockBytes;
		for (uint32_t p = 0; p < kPlanes; p++) {
			layout_plane &plane = shape->planes[p];
			plane.address = (uint64_t(p) + 1) << 40;
			plane.block_bytes = kBlockBytes;
			plane.block_stride = stride * kBlockBytes;
			plane.object_offset = uint64_t(p) * kBlocksPerChunk * kBlockBytes;
		}
		parts.resize(chunks);
		for (uint32_t c = 0; c < chunks; c++)
			parts[c].address = reinterpret_cast<void *>((uint64_t(c) + 1) * group.object_bytes * 2);

		const uint32_t blocks = chunks * kBlocksPerChunk;
		const uint32_t length = run_blocks ? run_blocks : blocks;
		std::vector<uint32_t> order(blocks / length);
		std::iota(order.begin(), order.end(), 0u);
		std::shuffle(order.begin(), order.end(), std::mt19937(1));
		for (uint32_t position : order)
			runs.push_back({ position * (length + 1), length });
		group_runs = uint32_t(runs.size());

		request.header.type = WIRE_RETRIEVE;
		request.chunk_count = chunks;
		request.group_count = 1;
		request.run_count = group_runs;
		request.runs = reinterpret_cast<const uint8_t *>(runs.data());
		request.group_runs = reinterpret_cast<const uint8_t *>(&group_runs);
		moved.layout = shape;
		moved.parts = parts.data();
		moved.to_client = true;
	}
	~Transfer()
	{
		std::free(shape);
	}
	Transfer(const Transfer &) = delete;
	Transfer &operator=(const Transfer &) = delete;
};

void plan_transfer(benchmark::State &state)
{
	Transfer transfer(512, uint32_t(state.range(0)), uint64_t(state.range(1)));
	const plan_limits limits = { 16, 1u << 20 };
	ibv_sge sge[16];
	ibv_send_wr wr = {};
	uint64_t work_requests = 0, bytes = 0;

	for (auto _ : state) {
		plan plan;

		plan_init(&plan, &transfer.request, &transfer.moved);
		while (uint64_t moved = plan_next(&plan, &limits, &wr, sge)) {
			benchmark::DoNotOptimize(sge);
			bytes += moved;
			work_requests++;
		}
	}
	state.counters["per_wr"] = benchmark::Counter(
		double(work_requests), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
	state.counters["wr_per_transfer"] = double(work_requests) / double(state.iterations());
	state.counters["planned_GB/s"] = benchmark::Counter(double(bytes) * 1e-9, benchmark::Counter::kIsRate);
}

BENCHMARK(plan_transfer)
	->ArgNames({ "run_blocks", "stride" })
	->Args({ 0, 1 })
	->Args({ 64, 1 })
	->Args({ 16, 1 })
	->Args({ 4, 1 })
	->Args({ 1, 1 })
	->Args({ 0, 2 })
	->Args({ 1, 2 });

} // namespace

BENCHMARK_MAIN();
