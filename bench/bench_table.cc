// How long does the chunk table take: a find, a LOOKUP of 512 chunks (match, lock, unlock) of random chains, and
// locking and unlocking alone, by number of objects; ns per chunk and us per lookup. Counter: bytes of memory per object, all of the table counted.
#include <benchmark/benchmark.h>

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "base/random.h"
#include "tier/cache.h"
#include "tier/l1.h"

namespace
{

constexpr uint32_t chain_chunks = 512;
constexpr uint64_t object_bytes = 64 << 10;

[[noreturn]] void fail(const char *what)
{
	std::fprintf(stderr, "bench_table: %s\n", what);
	std::exit(1);
}

// Digest `chunk` of the table: any 256 bits that are spread like a hash.
void make_digest(uint64_t chunk, uint8_t digest[CACHE_DIGEST_BYTES])
{
	auto *words = reinterpret_cast<uint64_t *>(digest);

	for (uint64_t i = 0; i < 4; i++)
		words[i] = random_mix(chunk * 4 + i + 1);
}

struct world {
	uint64_t objects;
	uint64_t entries;
	l1_area area;
	l1 *memory = nullptr;
	cache *table = nullptr;
	uint32_t space = 0;
	uint32_t object_class = 0;

	world(uint64_t objects_, uint32_t parts) : objects(objects_), entries(objects_ / parts)
	{
		cache_options options = {};
		uint8_t salt[32] = {};

		area.bytes = objects * object_bytes;
		area.numa_node = -1;
		area.address = mmap(nullptr, area.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (area.address == MAP_FAILED || l1_create(&area, 1, &memory))
			fail("no address space for L1");
		options.l1 = memory;
		options.spaces_max = 16;
		options.chunks_initial = 1000;
		options.high_permille = options.low_permille = 1000;
		if (cache_create(&options, &table) || l1_class_acquire(memory, object_bytes, &object_class))
			fail("no memory for the table");
		space = cache_space_acquire(table, 1, salt, parts);
		for (uint64_t i = 0; i < entries; i++)
			for (uint32_t part = 0; part < parts; part++)
				publish(i, part);
		while (void *garbage = cache_take_garbage(table))
			std::free(garbage);
	}

	void publish(uint64_t chunk, uint32_t part)
	{
		uint8_t digest[CACHE_DIGEST_BYTES];
		uint32_t entry;
		l1_ref object = cache_reserve(table, 0, object_class, 0, 0);

		make_digest(chunk, digest);
		if (!object || cache_publish(table, space, digest, part, object, &entry))
			fail("could not fill the table");
		if (uint64_t bytes = cache_wants_memory(table))
			cache_supply_memory(table, cache_allocate_memory(bytes), bytes);
	}
};

world &world_of(uint64_t objects, uint32_t parts)
{
	static std::map<std::pair<uint64_t, uint32_t>, world *> worlds;
	world *&found = worlds[{ objects, parts }];

	if (!found)
		found = new world(objects, parts);
	return *found;
}

void add_memory(benchmark::State &state, const world &w)
{
	cache_stats stats;

	cache_get_stats(w.table, &stats);
	state.counters["B/object"] = static_cast<double>(stats.table_bytes) / static_cast<double>(stats.objects);
}

void find(benchmark::State &state, bool hit)
{
	world &w = world_of(static_cast<uint64_t>(state.range(0)), 1);
	uint8_t digest[CACHE_DIGEST_BYTES];
	struct random random;
	uint64_t found = 0;

	random_init(&random, 1);
	for (auto _ : state) {
		make_digest(random_below(&random, w.entries) + (hit ? 0 : w.entries), digest);
		found += cache_find(w.table, w.space, digest) != CACHE_NONE;
	}
	if (found != (hit ? static_cast<uint64_t>(state.iterations()) : 0))
		fail("find is wrong");
	add_memory(state, w);
}

void find_hit(benchmark::State &state)
{
	find(state, true);
}

void find_miss(benchmark::State &state)
{
	find(state, false);
}

// Digests of many chains, each stored in one go, looked up in random order.
void lookup(benchmark::State &state)
{
	world &w = world_of(static_cast<uint64_t>(state.range(0)), static_cast<uint32_t>(state.range(1)));
	uint64_t chains = w.entries / chain_chunks < 4096 ? w.entries / chain_chunks : 4096;
	std::vector<uint8_t> digests(chains * chain_chunks * CACHE_DIGEST_BYTES);
	std::vector<uint32_t> entries(chain_chunks);
	struct random random;

	random_init(&random, 2);
	for (uint64_t chain = 0; chain < chains; chain++) {
		uint64_t first = random_below(&random, w.entries / chain_chunks) * chain_chunks;

		for (uint32_t i = 0; i < chain_chunks; i++)
			make_digest(first + i, &digests[(chain * chain_chunks + i) * CACHE_DIGEST_BYTES]);
	}
	for (auto _ : state) {
		const uint8_t *chain = &digests[random_below(&random, chains) * chain_chunks * CACHE_DIGEST_BYTES];
		uint32_t matched;

		// The request comes off the wire: its digests have just been copied.
		for (uint32_t i = 0; i < chain_chunks * CACHE_DIGEST_BYTES; i += 64)
			benchmark::DoNotOptimize(chain[i]);
		matched = cache_match(w.table, w.space, chain, chain_chunks, entries.data());
		for (uint32_t i = 0; i < matched; i++)
			cache_lock(w.table, entries[i], 1);
		for (uint32_t i = matched; i > 0; i--)
			cache_unlock(w.table, entries[i - 1], 1);
		if (matched != chain_chunks)
			fail("a chain that is there was not matched");
	}
	state.counters["us/lookup"] = benchmark::Counter(static_cast<double>(state.iterations()) / 1e6,
		benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
	state.counters["ns/chunk"] = benchmark::Counter(static_cast<double>(state.iterations()) * chain_chunks / 1e9,
		benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
	add_memory(state, w);
}

// Taking and releasing what a LOOKUP holds, of entries that are known: range(1) 1: all of a chain at once, 0: one by one.
void lock_unlock(benchmark::State &state)
{
	world &w = world_of(static_cast<uint64_t>(state.range(0)), 1);
	std::vector<uint32_t> entries(chain_chunks);
	struct random random;

	random_init(&random, 3);
	for (auto _ : state) {
		uint64_t first = random_below(&random, w.entries / chain_chunks) * chain_chunks;
		uint8_t digest[CACHE_DIGEST_BYTES];

		state.PauseTiming();
		for (uint32_t i = 0; i < chain_chunks; i++) {
			make_digest(first + i, digest);
			entries[i] = cache_find(w.table, w.space, digest);
		}
		state.ResumeTiming();
		if (state.range(1))
			cache_lock_all(w.table, entries.data(), chain_chunks, 1);
		else
			for (uint32_t i = 0; i < chain_chunks; i++)
				cache_lock(w.table, entries[i], 1);
		for (uint32_t i = chain_chunks; i > 0; i--)
			cache_unlock(w.table, entries[i - 1], 1);
	}
	state.counters["s/chunk"] = benchmark::Counter(static_cast<double>(state.iterations()) * chain_chunks,
		benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

} // namespace

BENCHMARK(find_hit)->Arg(1024)->Arg(10000)->Arg(100000)->Arg(1000000)->Arg(10000000);
BENCHMARK(find_miss)->Arg(1024)->Arg(10000)->Arg(100000)->Arg(1000000)->Arg(10000000);
BENCHMARK(lookup)->Args({ 1024, 1 })->Args({ 10000, 1 })->Args({ 100000, 1 })->Args({ 1000000, 1 });
BENCHMARK(lookup)->Args({ 10000000, 1 })->Args({ 8000000, 8 });
BENCHMARK(lock_unlock)->ArgsProduct({ { 100000, 1000000 }, { 0, 1 } })->ArgNames({ "objects", "together" });

BENCHMARK_MAIN();
