// bench_wake: how soon does a thread notice work, and what does its waiting cost? One thread gives work to a loop at even distances, as a
// worker gives it to the management core, and the loop takes the time when it sees it. For busy polling and for adaptive waiting (as
// shipped: 50 us of spinning, the second half with rests of the processor, then 200 us of yielding, then sleep), at distances that end in
// each of these phases. The counters: microseconds from giving to seeing (median, 99 of 100), and per cent of a core that the loop's
// thread used. Run it on two idle cores.
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "poll/cores.h"
#include "poll/loop.h"
#include "poll/relax.h"

namespace
{

struct Taker {
	KVR_ALIGNED(KVR_CACHE_LINE) uint64_t given_ns; // 0: nothing
	KVR_ALIGNED(KVR_CACHE_LINE) uint64_t seen_ns;
	uint64_t thread_ns; // processor time of the thread, in its newest turn with work
};

uint64_t thread_time()
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return static_cast<uint64_t>(used.tv_sec) * KVR_SECOND + static_cast<uint64_t>(used.tv_nsec);
}

bool take(void *context, uint64_t)
{
	auto *taker = static_cast<Taker *>(context);

	if (kvr_load_acquire(&taker->given_ns) == 0)
		return false;
	kvr_store_relaxed(&taker->seen_ns, clock_now_ns());
	kvr_store_relaxed(&taker->thread_ns, thread_time());
	kvr_store_release(&taker->given_ns, uint64_t(0));
	return true;
}

bool nothing_given(void *context)
{
	return kvr_load_acquire(&static_cast<Taker *>(context)->given_ns) == 0;
}

void wait_until(uint64_t ns)
{
	while (clock_now_ns() < ns)
		kvr_cpu_pause();
}

// One piece of work; nanoseconds until it was seen.
uint64_t give(Taker *taker, struct loop *loop)
{
	uint64_t start = clock_now_ns();

	kvr_store_release(&taker->given_ns, start);
	loop_wake(loop);
	while (kvr_load_acquire(&taker->given_ns))
		kvr_cpu_pause();
	return kvr_load_relaxed(&taker->seen_ns) - start;
}

void waking(benchmark::State &state)
{
	auto waiting = static_cast<enum loop_waiting>(state.range(0));
	auto distance_ns = static_cast<uint64_t>(state.range(1)) * KVR_US;
	Taker taker = {};
	struct loop_options options = {};
	struct loop *loop;
	std::vector<uint64_t> times;
	int all[CORES_MAX];
	int count = cores_allowed(all, CORES_MAX);

	options.name[0] = 'w';
	options.parts[0] = { &taker, take, nothing_given, nullptr, nullptr, -1 };
	options.part_count = 1;
	options.waiting = waiting;
	options.core = count > 1 ? all[count - 1] : -1;
	if (loop_create(&options, &loop) != 0 || loop_start(loop) != 0) {
		state.SkipWithError("no loop");
		return;
	}
	give(&taker, loop);
	uint64_t start_ns = clock_now_ns(), used_ns = kvr_load_relaxed(&taker.thread_ns), next_ns = start_ns;
	for (auto _ : state) {
		next_ns += distance_ns;
		wait_until(next_ns);
		times.push_back(give(&taker, loop));
	}
	uint64_t elapsed_ns = clock_now_ns() - start_ns;
	used_ns = kvr_load_relaxed(&taker.thread_ns) - used_ns;
	loop_destroy(&loop);
	std::sort(times.begin(), times.end());
	state.counters["p50_us"] = static_cast<double>(times[times.size() / 2]) / 1e3;
	state.counters["p99_us"] = static_cast<double>(times[times.size() * 99 / 100]) / 1e3;
	state.counters["core_%"] = 100.0 * static_cast<double>(used_ns) / static_cast<double>(elapsed_ns);
	state.SetLabel(waiting == LOOP_BUSY ? "busy" : relax_offered() ? "adaptive, TPAUSE" : "adaptive, PAUSE");
}
BENCHMARK(waking)
	->ArgsProduct({ { LOOP_BUSY, LOOP_ADAPTIVE }, { 10, 40, 150, 2000 } })
	->Iterations(2000)
	->Unit(benchmark::kMicrosecond);

} // namespace

BENCHMARK_MAIN();
