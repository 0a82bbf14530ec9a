// How long does L1 take: an object allocated and freed, in an empty L1, in one that is full but for one object, and
// with objects of three sizes that come and go at random; ns per pair. Then a reservation in a full cache, which
// evicts, and its publishing. Counters: share of L1 that rounding loses, bytes of L1's own tables for each object.
#include <benchmark/benchmark.h>

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "tier/cache.h"
#include "tier/l1.h"

namespace
{

[[noreturn]] void fail(const char *what)
{
	std::fprintf(stderr, "bench_allocator: %s\n", what);
	std::exit(1);
}

struct world {
	l1_area area = {};
	l1 *memory = nullptr;

	explicit world(uint64_t bytes)
	{
		area.bytes = bytes;
		area.numa_node = -1;
		area.address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (area.address == MAP_FAILED || l1_create(&area, 1, &memory))
			fail("no address space for L1");
	}
	~world()
	{
		l1_destroy(&memory);
		munmap(area.address, area.bytes);
	}
	world(const world &) = delete;
	world &operator=(const world &) = delete;

	uint32_t class_of(uint64_t bytes) const
	{
		uint32_t object_class;

		if (l1_class_acquire(memory, bytes, &object_class))
			fail("no class");
		return object_class;
	}

	void report(benchmark::State &state) const
	{
		l1_stats stats;

		l1_get_stats(memory, &stats);
		state.counters["lost %"] = 100.0 * static_cast<double>(stats.rounding_bytes) /
			static_cast<double>(stats.total_bytes);
		if (stats.objects)
			state.counters["B/object"] = static_cast<double>(stats.metadata_bytes) /
				static_cast<double>(stats.objects);
	}
};

constexpr uint64_t gib = uint64_t(1) << 30;

void empty(benchmark::State &state)
{
	world w(4 * gib);
	uint32_t object_class = w.class_of(static_cast<uint64_t>(state.range(0)));

	for (auto _ : state)
		l1_free(w.memory, l1_allocate(w.memory, object_class, 0, 1));
}

// The hole moves: a random object goes, and the next allocation has to find its place.
void full(benchmark::State &state)
{
	world w(4 * gib);
	uint32_t object_class = w.class_of(static_cast<uint64_t>(state.range(0)));
	std::vector<l1_ref> objects;
	struct random random;

	random_init(&random, 1);
	while (l1_ref object = l1_allocate(w.memory, object_class, 0, 1))
		objects.push_back(object);
	for (auto _ : state) {
		l1_ref &object = objects[random_below(&random, objects.size())];

		l1_free(w.memory, object);
		object = l1_allocate(w.memory, object_class, 0, 1);
		if (!object)
			fail("the freed object's place was not found");
	}
	w.report(state);
}

void mixed(benchmark::State &state)
{
	world w(4 * gib);
	uint32_t classes[3] = { w.class_of(70 << 10), w.class_of(1153433), w.class_of((10 << 20) + 64) };
	std::vector<l1_ref> objects;
	struct random random;
	uint64_t refused = 0;

	random_init(&random, 1);
	for (auto _ : state) {
		l1_ref object = l1_allocate(w.memory, classes[random_below(&random, 3)], 0, 1);

		if (object)
			objects.push_back(object);
		if (!object || random_chance(&random, 1, 3)) {
			uint64_t victim = random_below(&random, objects.size());

			l1_free(w.memory, objects[victim]);
			objects[victim] = objects.back();
			objects.pop_back();
		}
		refused += !object;
	}
	state.counters["refused %"] = 100.0 * static_cast<double>(refused) / static_cast<double>(state.iterations());
	w.report(state);
}

// What a STORE of one chunk costs once L1 is full: victim, its removal, the reservation, the publishing.
void evict(benchmark::State &state)
{
	world w(4 * gib);
	uint32_t object_class = w.class_of(64 << 10);
	cache_options options = {};
	uint8_t digest[CACHE_DIGEST_BYTES] = {};
	cache *table = nullptr;
	uint64_t chunk = 0;
	uint32_t space;

	options.l1 = w.memory;
	options.spaces_max = 1;
	options.chunks_initial = 1 << 16;
	options.high_permille = options.low_permille = 1000;
	if (cache_create(&options, &table))
		fail("no memory for the cache");
	space = cache_space_acquire(table, 1, digest, 1);
	auto put = [&] {
		l1_ref object = cache_reserve(table, 0, object_class, 0, 1);
		uint32_t entry;

		chunk++;
		for (uint64_t i = 0; i < 4; i++) {
			uint64_t word = random_mix(chunk * 4 + i);

			std::memcpy(digest + i * 8, &word, 8);
		}
		if (!object || cache_publish(table, space, digest, 0, object, &entry))
			fail("a full cache must make room");
	};
	while (cache_could_reserve(table, object_class, (4 * gib >> 16) - chunk) && chunk < 4 * gib >> 16)
		put();
	for (auto _ : state)
		put();
	cache_destroy(&table);
}

} // namespace

BENCHMARK(empty)->Arg(4096)->Arg(65536)->Arg(70 << 10)->Arg(1153433)->Arg(10 << 20);
BENCHMARK(full)->Arg(4096)->Arg(65536)->Arg(70 << 10)->Arg(1153433)->Arg(10 << 20);
BENCHMARK(mixed);
BENCHMARK(evict);

BENCHMARK_MAIN();
