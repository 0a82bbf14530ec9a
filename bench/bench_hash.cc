// What does hashing cost: SHA-256 of a chain of chunks of 256 tokens, as a client makes it before its first LOOKUP, in
// nanoseconds a chunk; and one SHA-256 of 64 bytes.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include "protocol/digest.h"

namespace
{

constexpr uint32_t kChunkTokens = 256;

void chain(benchmark::State &state)
{
	const auto chunks = uint32_t(state.range(0));
	std::vector<uint32_t> tokens(size_t(chunks) * kChunkTokens);
	std::vector<uint8_t> digests(size_t(chunks) * WIRE_DIGEST_BYTES);
	digester digester;

	if (digester_init(&digester))
		std::abort();
	for (size_t i = 0; i < tokens.size(); i++)
		tokens[i] = uint32_t(i * 2654435761u % 128000);
	for (auto _ : state) {
		digest_chain(&digester, nullptr, tokens.data(), tokens.size(), kChunkTokens, digests.data());
		benchmark::DoNotOptimize(digests.data());
	}
	state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(tokens.size()) * 4);
	state.counters["s/chunk"] = benchmark::Counter(
		double(state.iterations()) * chunks, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
	digester_fini(&digester);
}

void small(benchmark::State &state)
{
	uint8_t bytes[64] = { 1 }, digest[WIRE_DIGEST_BYTES];
	digester digester;

	if (digester_init(&digester))
		std::abort();
	for (auto _ : state) {
		digester_hash(&digester, bytes, sizeof(bytes), nullptr, 0, digest);
		benchmark::DoNotOptimize(digest);
	}
	digester_fini(&digester);
}

BENCHMARK(chain)->Arg(1)->Arg(16)->Arg(512)->ArgName("chunks");
BENCHMARK(small);

} // namespace

BENCHMARK_MAIN();
