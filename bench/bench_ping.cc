// The round trip of a PING as a client sees it: kvr_ping through libkvrail, the local driver, the worker and back, both
// sides polling on cores of their own. Nanoseconds: median and 99th percentile of single calls. `ticket`: the same by
// kvr_submit_ping and kvr_poll, as an engine that polls would do it. `line`: the floor, one cache line written by one
// core, seen by the other, and back; in a virtual machine it changes with where the host has put the two cores.
#include <benchmark/benchmark.h>

#include "stack.h"

namespace
{

constexpr uint64_t kL1Bytes = uint64_t(64) << 20;
constexpr size_t kWarmUp = 20000;

void report(benchmark::State &state, const std::vector<double> &times)
{
	state.counters["p50_ns"] = bench::percentile(times, 0.5);
	state.counters["p99_ns"] = bench::percentile(times, 0.99);
	state.counters["p999_ns"] = bench::percentile(times, 0.999);
}

template <typename Call> void measure(benchmark::State &state, Call call)
{
	std::vector<double> times;

	for (size_t i = 0; i < kWarmUp; i++)
		call();
	times.reserve(size_t(state.max_iterations));
	for (auto _ : state) {
		const uint64_t begin_ns = clock_now_ns();

		call();
		times.push_back(double(clock_now_ns() - begin_ns));
		state.SetIterationTime(times.back() * 1e-9);
	}
	report(state, times);
}

void ping(benchmark::State &state)
{
	bench::Stack stack(kL1Bytes);

	measure(state, [&] { bench::must(kvr_ping(stack.client, 0), "kvr_ping"); });
}

void ticket(benchmark::State &state)
{
	bench::Stack stack(kL1Bytes);

	measure(state, [&] {
		kvr_result result;
		kvr_ticket ticket;
		int error;

		bench::must(kvr_submit_ping(stack.client, &ticket), "kvr_submit_ping");
		do
			error = kvr_poll(stack.client, ticket, &result);
		while (error == -EAGAIN);
		bench::must(error, "kvr_poll");
	});
}

struct Line {
	alignas(128) std::atomic<uint64_t> there{ 0 };
	alignas(128) std::atomic<uint64_t> back{ 0 };
};

void line(benchmark::State &state)
{
	constexpr uint64_t kStop = ~uint64_t(0);
	Line line;
	uint64_t round = 0;
	std::thread peer([&] {
		uint64_t seen = 0;

		while (seen != kStop) {
			const uint64_t now = line.there.load(std::memory_order_acquire);

			if (now != seen)
				line.back.store(now, std::memory_order_release);
			seen = now;
		}
	});

	measure(state, [&] {
		line.there.store(++round, std::memory_order_release);
		while (line.back.load(std::memory_order_acquire) != round)
			;
	});
	line.there.store(kStop, std::memory_order_release);
	peer.join();
}

BENCHMARK(line)->UseManualTime()->Iterations(200000);
BENCHMARK(ping)->UseManualTime()->Iterations(200000);
BENCHMARK(ticket)->UseManualTime()->Iterations(200000);

} // namespace

BENCHMARK_MAIN();
