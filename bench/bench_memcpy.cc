// How fast can one core copy a list of pages in random order, and how much does local_copy (streaming stores) gain over
// memcpy? 512 MiB on each side, more than ten times the last-level cache; the source on huge pages if there are, like
// L1, the destination a memfd, like a client's memory. Rounds of both are interleaved; the counters are medians: GB/s of
// each, and their ratio.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "numbers.h"
#include "verbs/local/copy.h"

namespace
{

constexpr size_t kBytes = size_t(512) << 20;

struct Memory {
	uint8_t *ours = nullptr;
	uint8_t *theirs = nullptr;

	Memory()
	{
		int fd = memfd_create("bench", MFD_CLOEXEC);
		void *a = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (fd < 0 || a == MAP_FAILED || ftruncate(fd, kBytes) != 0)
			return;
		madvise(a, kBytes, MADV_HUGEPAGE);
		void *b = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
		close(fd);
		if (b == MAP_FAILED)
			return;
		ours = static_cast<uint8_t *>(a);
		theirs = static_cast<uint8_t *>(b);
		std::memset(ours, 1, kBytes);
		std::memset(theirs, 2, kBytes);
	}
	~Memory()
	{
		if (ours)
			munmap(ours, kBytes);
		if (theirs)
			munmap(theirs, kBytes);
	}
	Memory(const Memory &) = delete;
	Memory &operator=(const Memory &) = delete;
};

std::vector<size_t> shuffled(size_t page, unsigned seed)
{
	std::vector<size_t> order(kBytes / page);

	std::iota(order.begin(), order.end(), size_t(0));
	std::shuffle(order.begin(), order.end(), std::mt19937(seed));
	for (size_t &place : order)
		place *= page;
	return order;
}

// range(0): page bytes; range(1): 1 to the client, 0 from it.
void copy_pages(benchmark::State &state)
{
	const size_t page = size_t(state.range(0));
	const bool to_client = state.range(1) != 0;
	Memory memory;

	if (!memory.ours) {
		state.SkipWithError("no memory");
		return;
	}
	const std::vector<size_t> our_order = shuffled(page, 1), their_order = shuffled(page, 2);
	uint8_t *to = to_client ? memory.theirs : memory.ours;
	const uint8_t *from = to_client ? memory.ours : memory.theirs;
	const std::vector<size_t> &to_order = to_client ? their_order : our_order;
	const std::vector<size_t> &from_order = to_client ? our_order : their_order;
	std::vector<double> plain, streamed, ratio;

	for (auto _ : state) {
		const double begin = bench::seconds();
		for (size_t i = 0; i < to_order.size(); i++)
			std::memcpy(to + to_order[i], from + from_order[i], page);
		const double middle = bench::seconds();
		for (size_t i = 0; i < to_order.size(); i++)
			local_copy(to + to_order[i], from + from_order[i], page,
				i + 1 < to_order.size() ? from + from_order[i + 1] : nullptr);
		local_copy_flush();
		const double end = bench::seconds();

		plain.push_back(double(kBytes) / (middle - begin) * 1e-9);
		streamed.push_back(double(kBytes) / (end - middle) * 1e-9);
		ratio.push_back((middle - begin) / (end - middle));
		state.SetIterationTime(end - middle);
	}
	state.counters["memcpy_GBps"] = bench::median(plain);
	state.counters["local_copy_GBps"] = bench::median(streamed);
	state.counters["ratio"] = bench::median(ratio);
}

BENCHMARK(copy_pages)
	->ArgsProduct({ { 512, 1024, 2048, 4096, 32768, 1 << 20 }, { 1, 0 } })
	->ArgNames({ "page", "to_client" })
	->UseManualTime()
	->Iterations(9)
	->Unit(benchmark::kMillisecond);

} // namespace

BENCHMARK_MAIN();
