// Round trips of the other requests as a client sees them, through libkvrail and the local driver, polling, both sides on
// cores of their own; microseconds, median and 99th percentile. An engine's request of 512 chunks is fetched by the
// server from the client's memory, since it does not fit a message; each LOOKUP comes with its END_SESSION.
#include <benchmark/benchmark.h>

#include "stack.h"

namespace
{

constexpr uint32_t kChunkTokens = 256, kChunks = 512, kBlockBytes = 4096;
constexpr uint64_t kL1Bytes = uint64_t(64) << 20;

// One block a chunk, so that 512 chunks are small.
class Engine
{
      public:
	Engine() : stack_(kL1Bytes)
	{
		kvr_plane plane = {};
		kvr_group group = { kChunkTokens, KVR_WINDOW_FULL, kChunks, 1, &plane };
		kvr_layout layout = { sizeof(layout), 1, &group };
		kvr_model model = KVR_MODEL_INIT;
		std::vector<uint32_t> tokens(size_t(kChunks) * kChunkTokens);
		void *memory;

		bench::must(kvr_alloc(stack_.client, size_t(kChunks) * kBlockBytes, &memory), "kvr_alloc");
		plane = { memory, kBlockBytes, kBlockBytes };
		model.name = "bench";
		model.dtype = "uint8";
		bench::must(kvr_register(stack_.client, &model, &layout, nullptr, &registration_), "kvr_register");
		for (size_t i = 0; i < tokens.size(); i++)
			tokens[i] = uint32_t(i);
		bench::must(kvr_session_create(stack_.client, registration_, "bench", nullptr, &session_), "session");
		bench::must(kvr_session_tokens(session_, tokens.data(), tokens.size()), "tokens");
		ids_.resize(kChunks);
		for (uint32_t i = 0; i < kChunks; i++)
			ids_[i] = i;
		move(true, kChunks);
		end();
		bench::must(kvr_session_create(stack_.client, registration_, "short", nullptr, &short_), "session");
		bench::must(kvr_session_tokens(short_, tokens.data(), kShortChunks * kChunkTokens), "tokens");
	}
	~Engine()
	{
		bench::must(kvr_session_destroy(&session_), "destroy");
		bench::must(kvr_session_destroy(&short_), "destroy");
	}

	void lookup(bool all)
	{
		kvr_ticket ticket;

		bench::must(kvr_submit_lookup(all ? session_ : short_, 0, &ticket), "kvr_submit_lookup");
		finish(ticket, all ? kChunks : kShortChunks);
	}
	void end(bool all = true)
	{
		kvr_ticket ticket;

		bench::must(kvr_submit_end(all ? session_ : short_, &ticket), "kvr_submit_end");
		finish(ticket, 0);
	}
	void move(bool store, uint32_t chunks)
	{
		kvr_transfer transfer = KVR_TRANSFER_INIT;
		kvr_blocks blocks = { ids_.data(), chunks };
		kvr_ticket ticket;

		transfer.chunk_count = chunks;
		transfer.group_count = 1;
		transfer.groups = &blocks;
		bench::must(store ? kvr_submit_store(session_, &transfer, &ticket)
				  : kvr_submit_retrieve(session_, &transfer, &ticket),
			"submit");
		finish(ticket, chunks);
	}

	static constexpr uint32_t kShortChunks = 16;

      private:
	void finish(kvr_ticket ticket, uint32_t chunks)
	{
		kvr_result result;
		int error;

		do
			error = kvr_poll(stack_.client, ticket, &result);
		while (error == -EAGAIN);
		bench::must(error, result.text);
		bench::must(result.chunks == chunks ? 0 : EIO, "not all chunks");
	}

	bench::Stack stack_;
	uint32_t registration_ = 0;
	kvr_session *session_ = nullptr, *short_ = nullptr;
	std::vector<uint32_t> ids_;
};

template <typename Call, typename After> void measure(benchmark::State &state, Call call, After after)
{
	std::vector<double> times;

	for (auto _ : state) {
		const uint64_t begin_ns = clock_now_ns();

		call();
		times.push_back(double(clock_now_ns() - begin_ns) * 1e-3);
		state.SetIterationTime(times.back() * 1e-6);
		after();
	}
	state.counters["p50_us"] = bench::percentile(times, 0.5);
	state.counters["p99_us"] = bench::percentile(times, 0.99);
}

void lookup_16(benchmark::State &state)
{
	Engine engine;

	measure(
		state, [&] { engine.lookup(false); }, [&] { engine.end(false); });
}

void lookup_512(benchmark::State &state)
{
	Engine engine;

	measure(
		state, [&] { engine.lookup(true); }, [&] { engine.end(); });
}

void retrieve_one_page(benchmark::State &state)
{
	Engine engine;

	measure(
		state, [&] { engine.move(false, 1); }, [] {});
}

void store_one_present_page(benchmark::State &state)
{
	Engine engine;

	measure(
		state, [&] { engine.move(true, 1); }, [] {});
}

BENCHMARK(lookup_16)->UseManualTime()->Iterations(20000);
BENCHMARK(lookup_512)->UseManualTime()->Iterations(4000);
BENCHMARK(retrieve_one_page)->UseManualTime()->Iterations(50000);
BENCHMARK(store_one_present_page)->UseManualTime()->Iterations(50000);

} // namespace

BENCHMARK_MAIN();
