// The round trip of a PING as a client sees it: kvr_ping through libkvrail, the local driver, the worker and back, both
// sides polling on cores of their own. Nanoseconds: median and 99th percentile of single calls. `ticket`: the same by
// kvr_submit_ping and kvr_poll, as an engine that polls would do it.
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

BENCHMARK(ping)->UseManualTime()->Iterations(200000);
BENCHMARK(ticket)->UseManualTime()->Iterations(200000);

} // namespace

BENCHMARK_MAIN();
