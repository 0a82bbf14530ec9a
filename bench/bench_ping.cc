// The round trip of a PING as a client sees it: kvr_ping through libkvrail, the local driver, the worker and back, both
// sides polling on cores of their own. Nanoseconds: median and 99th percentile of single calls. `ticket`: the same by
// kvr_submit_ping and kvr_poll, as an engine that polls would do it. `line`: the floor, one cache line written by one
// core, seen by the other, and back; in a virtual machine it changes with where the host has put the two cores.
#include <benchmark/benchmark.h>

#include <memory>

#include "app/kvrail-bench/bare.h"
#include "stack.h"

namespace
{

constexpr uint64_t kL1Bytes = uint64_t(64) << 20;
constexpr size_t kWarmUp = 5000, kCalls = 25000;
constexpr int kRounds = 8;

void report(benchmark::State &state, const std::vector<double> &times)
{
	state.counters["p50_ns"] = bench::percentile(times, 0.5);
	state.counters["p99_ns"] = bench::percentile(times, 0.99);
	state.counters["p999_ns"] = bench::percentile(times, 0.999);
}

template <typename Call> double timed(Call call)
{
	const uint64_t begin_ns = clock_now_ns();

	call();
	return double(clock_now_ns() - begin_ns);
}

// An iteration is kCalls calls; its time is theirs.
template <typename Call, typename Between> void measure(benchmark::State &state, Call call, Between between)
{
	std::vector<double> times;

	times.reserve(size_t(state.max_iterations) * kCalls);
	for (auto _ : state) {
		double sum = 0;

		for (size_t i = 0; i < kWarmUp; i++)
			call();
		for (size_t i = 0; i < kCalls; i++) {
			times.push_back(timed(call));
			sum += times.back();
		}
		state.SetIterationTime(sum / double(kCalls) * 1e-9);
		between(times);
	}
	report(state, times);
}

template <typename Call> void measure_beside_bare(benchmark::State &state, Call make_call)
{
	bench::Stack stack(kL1Bytes);
	const auto bare = std::make_unique<struct bare>();

	bare_init(bare.get());
	measure(state, make_call(stack), [&](const std::vector<double> &times) {
		stack.poll(false);
		bare_measure(bare.get(), uint64_t(bench::percentile(times, 0.5)));
		stack.poll(true);
	});
	state.counters["bare_p50_ns"] = double(histogram_percentile(&bare->exchange, 500000));
	state.counters["bare_p99_ns"] = double(histogram_percentile(&bare->exchange, 990000));
	state.counters["bare_p999_ns"] = double(histogram_percentile(&bare->exchange, 999000));
	state.counters["gaps_s"] = bare_gap_rate(bare.get());
	state.counters["gap_pct"] = bare_gap_percent(bare.get());
	if (bare->exchange.count)
		state.counters["tail"] = state.counters["p999_ns"] / state.counters["bare_p999_ns"];
}

void ping(benchmark::State &state)
{
	measure_beside_bare(state,
		[](bench::Stack &stack) { return [&stack] { bench::must(kvr_ping(stack.client, 0), "kvr_ping"); }; });
}

void ask(kvr_client *client)
{
	kvr_result result;
	kvr_ticket ticket;
	int error;

	bench::must(kvr_submit_ping(client, &ticket), "kvr_submit_ping");
	do
		error = kvr_poll(client, ticket, &result);
	while (error == -EAGAIN);
	bench::must(error, "kvr_poll");
}

void ticket(benchmark::State &state)
{
	measure_beside_bare(state, [](bench::Stack &stack) { return [&stack] { ask(stack.client); }; });
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

	measure(
		state,
		[&] {
			line.there.store(++round, std::memory_order_release);
			while (line.back.load(std::memory_order_acquire) != round)
				;
		},
		[](const std::vector<double> &) {});
	line.there.store(kStop, std::memory_order_release);
	peer.join();
}

BENCHMARK(line)->UseManualTime()->Iterations(kRounds);
BENCHMARK(ping)->UseManualTime()->Iterations(kRounds);
BENCHMARK(ticket)->UseManualTime()->Iterations(kRounds);

} // namespace

BENCHMARK_MAIN();
