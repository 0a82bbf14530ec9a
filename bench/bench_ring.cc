// bench_ring: what does a message over a ring cost? Nanoseconds for a push and a pop by one thread, and for the round trip
// of one message to another thread and back, both spinning. Run it on two idle cores: on one core the round trip measures
// the scheduler.
#include <atomic>
#include <thread>

#include <benchmark/benchmark.h>

#include "base/ring.h"

namespace
{

// Two rings between two threads; each in an object of its own, on cache line boundaries.
struct Link {
	struct ring there;
	struct ring back;
	std::atomic<bool> stop{ false };
	bool ready;

	explicit Link(uint32_t capacity)
	{
		ready = ring_init(&there, capacity) == 0;
		ready = ring_init(&back, capacity) == 0 && ready;
	}
	~Link()
	{
		ring_fini(&back);
		ring_fini(&there);
	}
	Link(const Link &) = delete;
	Link &operator=(const Link &) = delete;
};

void push_and_pop_by_one_thread(benchmark::State &state)
{
	Link link(static_cast<uint32_t>(state.range(0)));
	struct ring_message message = {};

	if (!link.ready) {
		state.SkipWithError("no memory");
		return;
	}
	for (auto _ : state) {
		message.word[0]++;
		ring_push(&link.there, &message);
		ring_pop(&link.there, &message);
		benchmark::DoNotOptimize(message);
	}
	state.SetItemsProcessed(state.iterations());
}
BENCHMARK(push_and_pop_by_one_thread)->Arg(2)->Arg(256)->Arg(65536);

void echo(Link *link)
{
	struct ring_message message;

	while (!link->stop.load(std::memory_order_relaxed)) {
		if (ring_pop(&link->there, &message))
			ring_push(&link->back, &message);
	}
}

void round_trip_between_two_threads(benchmark::State &state)
{
	Link link(256);
	struct ring_message message = {};

	if (!link.ready) {
		state.SkipWithError("no memory");
		return;
	}
	std::thread other(echo, &link);
	for (auto _ : state) {
		message.word[0]++;
		ring_push(&link.there, &message);
		while (!ring_pop(&link.back, &message))
			;
		benchmark::DoNotOptimize(message);
	}
	link.stop = true;
	other.join();
	state.SetItemsProcessed(state.iterations());
}
BENCHMARK(round_trip_between_two_threads)->UseRealTime();

void stream_to_another_thread(benchmark::State &state)
{
	Link link(1024);
	struct ring_message message = {};

	if (!link.ready) {
		state.SkipWithError("no memory");
		return;
	}
	std::thread other([&link] {
		struct ring_message taken;

		while (!link.stop.load(std::memory_order_relaxed))
			benchmark::DoNotOptimize(ring_pop(&link.there, &taken));
	});
	for (auto _ : state) {
		message.word[0]++;
		while (!ring_push(&link.there, &message))
			;
	}
	link.stop = true;
	other.join();
	state.SetItemsProcessed(state.iterations());
}
BENCHMARK(stream_to_another_thread)->UseRealTime();

} // namespace

BENCHMARK_MAIN();
