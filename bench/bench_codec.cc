// What do messages cost to write and to read, in nanoseconds: the smallest (PING), LOOKUP with the digests of a chain, and
// RETRIEVE with runs of blocks. Reading includes every check.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include "protocol/message.h"

namespace
{

std::vector<uint8_t> buffer(1 << 20);

[[noreturn]] void fail()
{
	std::abort();
}

template <typename Message, typename Encode, typename Decode>
void run(benchmark::State &state, const Message &message, bool reading, Encode encode, Decode decode)
{
	ssize_t length = encode(buffer.data(), buffer.size(), &message);
	wire_error error;
	Message read;

	if (length < 0)
		fail();
	for (auto _ : state) {
		if (reading ? decode(buffer.data(), size_t(length), &read, &error) != 0
			    : encode(buffer.data(), buffer.size(), &message) != length)
			fail();
		benchmark::DoNotOptimize(reading ? static_cast<const void *>(&read) : buffer.data());
	}
	state.counters["bytes"] = double(length);
}

session_ref session_of(const std::vector<uint8_t> &digests)
{
	session_ref session = {};

	session.id.bytes = "request-0001";
	session.id.length = 12;
	session.digests = digests.data();
	session.digest_count = uint32_t(digests.size() / WIRE_DIGEST_BYTES);
	return session;
}

void ping_message(benchmark::State &state)
{
	ping message = {};

	message.header.type = WIRE_PING;
	run(state, message, state.range(0) != 0, ping_encode, ping_decode);
}

void lookup(benchmark::State &state)
{
	const std::vector<uint8_t> digests(size_t(state.range(1)) * WIRE_DIGEST_BYTES, 7);
	lookup_request message = {};

	message.header.type = WIRE_LOOKUP;
	message.chunk_count = uint32_t(state.range(1));
	message.session = session_of(digests);
	run(state, message, state.range(0) != 0, lookup_request_encode, lookup_request_decode);
}

void retrieve(benchmark::State &state)
{
	const auto count = uint32_t(state.range(1));
	std::vector<block_run> runs(count);
	transfer_request message = {};

	for (uint32_t i = 0; i < count; i++)
		runs[i] = { i * 3, 1 };
	message.header.type = WIRE_RETRIEVE;
	message.chunk_count = count / 16;
	message.group_count = 1;
	message.run_count = count;
	message.group_runs = reinterpret_cast<const uint8_t *>(&count);
	message.runs = reinterpret_cast<const uint8_t *>(runs.data());
	message.session = session_of({});
	run(state, message, state.range(0) != 0, transfer_request_encode, transfer_request_decode);
}

BENCHMARK(ping_message)->Arg(0)->Arg(1)->ArgName("read");
BENCHMARK(lookup)->ArgsProduct({ { 0, 1 }, { 1, 16, 512 } })->ArgNames({ "read", "chunks" });
BENCHMARK(retrieve)->ArgsProduct({ { 0, 1 }, { 16, 1024 } })->ArgNames({ "read", "runs" });

} // namespace

BENCHMARK_MAIN();
