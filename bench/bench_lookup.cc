// How long is the server busy with a LOOKUP of 512 chunks that are all there, read locks and reply included, by number of
// objects in L1? The real management core over the real chunk table, filled by STORE requests; the worker is this
// program: it hands decoded requests over and takes the replies. Counted is decoding and every management_step from the
// request to its reply. Chains are looked up in random order, each in a session of its own that is ended (outside the
// measured time) before the next. `again`: of the chain that was looked up just before. `end_session`: END_SESSION until
// the locks of 512 chunks are released and the chunks touched.
// L1 is address space without memory behind it, since nobody moves bytes here.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "core.h"
#include "numbers.h"

namespace
{

using namespace bench;

Core &core_of(uint64_t objects)
{
	static std::map<uint64_t, Core *> cores;
	Core *&core = cores[objects];

	if (!core)
		core = new Core(objects);
	return *core;
}

void measure(benchmark::State &state, bool again)
{
	Core &core = core_of(uint64_t(state.range(0)));
	std::vector<double> times;
	struct random random;

	random_init(&random, 1);
	for (auto _ : state) {
		const uint64_t chain = random_below(&random, core.chains);

		if (again) {
			core.lookup(chain);
			core.end(chain);
		}
		times.push_back(double(core.lookup(chain)) * 1e-3);
		state.SetIterationTime(times.back() * 1e-6);
		core.end(chain);
	}
	state.counters["p50_us"] = percentile(times, 0.5);
	state.counters["p99_us"] = percentile(times, 0.99);
	state.counters["ns/chunk"] = percentile(times, 0.5) * 1e3 / kChainChunks;
	state.counters["B/object"] = double(core.stats().table_bytes) / double(core.stats().objects);
}

void lookup(benchmark::State &state)
{
	measure(state, false);
}

void lookup_again(benchmark::State &state)
{
	measure(state, true);
}

// END_SESSION of sessions that were looked up long ago: kSessions others since.
void end_session(benchmark::State &state)
{
	constexpr size_t kSessions = 256;
	Core &core = core_of(uint64_t(state.range(0)));
	std::vector<uint64_t> open;
	std::vector<double> times;
	size_t next = 0;

	for (uint64_t chain = 0; open.size() < kSessions; chain += core.chains / kSessions / 2) {
		core.lookup(chain);
		open.push_back(chain);
	}
	for (auto _ : state) {
		const size_t oldest = next++ % kSessions;

		times.push_back(double(core.end(open[oldest])) * 1e-3);
		state.SetIterationTime(times.back() * 1e-6);
		core.lookup(open[oldest]);
	}
	for (uint64_t chain : open)
		core.end(chain);
	state.counters["p50_us"] = percentile(times, 0.5);
	state.counters["p99_us"] = percentile(times, 0.99);
	state.counters["ns/chunk"] = percentile(times, 0.5) * 1e3 / kChainChunks;
}

} // namespace

BENCHMARK(lookup)->Arg(1000000)->Arg(8000000)->UseManualTime()->Iterations(4000)->Unit(benchmark::kMicrosecond);
BENCHMARK(lookup_again)->Arg(1000000)->Arg(8000000)->UseManualTime()->Iterations(2000)->Unit(benchmark::kMicrosecond);
BENCHMARK(end_session)->Arg(1000000)->Arg(8000000)->UseManualTime()->Iterations(2000)->Unit(benchmark::kMicrosecond);

BENCHMARK_MAIN();
