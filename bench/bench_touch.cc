// bench_touch: how much sooner is L1's memory there when several threads touch it? 4 GiB (KVRAIL_TOUCH_MIB: another size) on the
// best pages that there are, mapped, touched by 1, 2, 4, 8 and 16 threads as far as there are cores, each on a core of its own, and given
// back; rounds of all are interleaved. The counters are medians: GiB/s of one thread and of so many, and their ratio.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <benchmark/benchmark.h>

#include "numbers.h"
#include "poll/cores.h"
#include "tier/l1_map.h"

namespace
{

constexpr int kRounds = 7;

uint64_t bytes()
{
	const char *mib = getenv("KVRAIL_TOUCH_MIB");

	return (mib ? strtoull(mib, nullptr, 10) : 4096) << 20;
}

std::vector<int> cores()
{
	std::vector<int> all(CORES_MAX);
	int count = cores_allowed(all.data(), CORES_MAX);

	all.resize(count > 0 ? static_cast<size_t>(count) : 0);
	return all;
}

void put_on_core(void *context, unsigned thread)
{
	const auto *all = static_cast<const std::vector<int> *>(context);

	if (cores_move_self((*all)[thread % all->size()]) != 0)
		abort();
}

// GiB/s; 0: it could not be had.
double touch(unsigned threads, const char **pages)
{
	static std::vector<int> all = cores();
	struct l1_map_options options = {};
	struct l1_mapping mapping;

	options.bytes = bytes();
	options.numa_node = -1;
	options.threads = threads;
	options.thread_begin = put_on_core;
	options.context = &all;
	if (l1_map_area(&options, &mapping) != 0)
		return 0;
	double rate = static_cast<double>(mapping.bytes) / (1 << 30) / (static_cast<double>(mapping.touch_ns) / 1e9);
	*pages = l1_page_kind_text(mapping.pages);
	l1_unmap(&mapping);
	return rate;
}

void touching(benchmark::State &state)
{
	auto threads = static_cast<unsigned>(state.range(0));
	std::vector<double> one, many, ratio;
	const char *pages = "";

	if (threads > cores().size()) {
		state.SkipWithError("fewer cores than threads");
		return;
	}
	// What a virtual machine's host has never given before costs more the first time.
	if (touch(threads, &pages) == 0) {
		state.SkipWithError("no memory");
		return;
	}
	for (auto _ : state) {
		for (int round = 0; round < kRounds; round++) {
			one.push_back(touch(1, &pages));
			many.push_back(touch(threads, &pages));
			ratio.push_back(many.back() / one.back());
		}
	}
	state.counters["one_GiB/s"] = bench::median(one);
	state.counters["many_GiB/s"] = bench::median(many);
	state.counters["ratio"] = bench::median(ratio);
	state.SetLabel(pages);
}
BENCHMARK(touching)->Arg(2)->Arg(4)->Arg(8)->Arg(16)->Iterations(1)->Unit(benchmark::kMillisecond);

} // namespace

BENCHMARK_MAIN();
