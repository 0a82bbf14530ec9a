// rounds.h - rounds of one operation on an adapter of L2, as the management core drives it: so many requests under way, polled for.
#ifndef KVRAIL_BENCH_ROUNDS_H
#define KVRAIL_BENCH_ROUNDS_H

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/clock.h"
#include "base/random.h"
#include "numbers.h"
#include "tier/adapter.h"

namespace bench
{

class Rounds
{
      public:
	// Objects of `block` bytes, `blocks` in a round, `depth` under way at once; memory: depth * block bytes, the caller's.
	Rounds(struct l2_adapter *adapter, uint64_t block, unsigned blocks, unsigned depth, uint8_t *memory)
		: adapter_(adapter), block_(block), blocks_(blocks), depth_(depth), memory_(memory), requests_(depth)
	{
	}
	// The objects from number `first` on, each once. Bytes a nanosecond; 0 when a request failed.
	double run(enum l2_operation operation, unsigned first)
	{
		uint64_t began = clock_now_ns();
		std::vector<struct l2_request *> idle;
		unsigned begun = 0, ended = 0;
		bool good = true;

		for (auto &request : requests_)
			idle.push_back(&request);
		while (ended < blocks_) {
			struct list_node list;

			for (; begun < blocks_ && !idle.empty(); begun++) {
				begin(idle.back(), operation, first + begun);
				idle.pop_back();
			}
			list_init(&list);
			// Gives the core away where there is only one: the caller is the management core, which has others
			// to serve.
			if (adapter_->driver->poll(adapter_, &list, depth_) == 0)
				usleep(20);
			while (struct list_node *node = list_pop_first(&list)) {
				struct l2_request *request = KVR_CONTAINER_OF(node, struct l2_request, node);

				good &= request->status == 0;
				idle.push_back(request);
				ended++;
			}
		}
		return good ? static_cast<double>(blocks_ * block_) / static_cast<double>(clock_now_ns() - began) : 0;
	}

      private:
	void begin(struct l2_request *request, enum l2_operation operation, unsigned number)
	{
		size_t slot = static_cast<size_t>(request - requests_.data());

		*request = {};
		request->operation = operation;
		request->identity.bytes = block_;
		for (int i = 0; i < 32; i += 8) {
			uint64_t word = random_mix(static_cast<uint64_t>(number) << 8 | static_cast<uint64_t>(i));

			memcpy(request->identity.digest + i, &word, 8);
		}
		request->memory = memory_ + slot * block_;
		while (adapter_->driver->submit(adapter_, request) != 0)
			usleep(20);
	}

	struct l2_adapter *adapter_;
	uint64_t block_;
	unsigned blocks_, depth_;
	uint8_t *memory_;
	std::vector<struct l2_request> requests_;
};

// Rounds of `bytes` in turn by a raw loop and by the adapter; each gives bytes a nanosecond, 0 when something failed. The iteration's time
// is the adapter's.
template <typename Raw, typename Own> void take_turns(benchmark::State &state, uint64_t bytes, Raw raw, Own own)
{
	std::vector<double> ratios, ours, raws;

	for (auto _ : state) {
		double other = raw(), mine = own();

		if (other == 0 || mine == 0) {
			state.SkipWithError("a transfer failed");
			break;
		}
		state.SetIterationTime(static_cast<double>(bytes) / mine / 1e9);
		ratios.push_back(mine / other);
		ours.push_back(mine * 1000);
		raws.push_back(other * 1000);
	}
	if (ratios.empty())
		return;
	state.counters["ratio"] = median(ratios);
	state.counters["MBps"] = median(ours);
	state.counters["raw_MBps"] = median(raws);
}

// "load" and "store" of these sizes at depths 1, 4 and 16; measure(state, whether it is store), range 0 and 1: KiB and depth. Before main.
inline bool add_load_and_store(void (*measure)(benchmark::State &, bool), const std::vector<int> &kibs, int rounds)
{
	for (bool store : { false, true }) {
		auto *benchmark = benchmark::RegisterBenchmark(
			store ? "store" : "load", [=](benchmark::State &state) { measure(state, store); });

		for (int kib : kibs) {
			for (int depth : { 1, 4, 16 })
				benchmark->Args({ kib, depth });
		}
		benchmark->ArgNames({ "KiB", "depth" })
			->UseManualTime()
			->Iterations(rounds)
			->Unit(benchmark::kMillisecond);
	}
	return true;
}

} // namespace bench

#endif
