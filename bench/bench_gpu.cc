// How much of what the bus gives do scattered pages get? GB/s of pages between pinned host memory and the GPU through lanes of src/gpu
// (gathered and scattered by its kernel, in random order on the GPU, 32 MiB under way in each direction), beside one contiguous copy
// of as many bytes between the same memory by the copy engine, which is the PCIe rate. Rounds take turns; the counters are medians,
// `ratio` is the answer. one_page: microseconds from publishing a page of 32 KiB to its done position, and of the copy engine's copy of
// it, polled. Skipped where there is no GPU. KVRAIL_BENCH_MIB (256): how much is moved in a round.
#include <benchmark/benchmark.h>

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "gpu/gpu.h"
#include "numbers.h"

namespace
{

constexpr int kRounds = 9;
constexpr uint64_t kWindow = UINT64_C(32) << 20;
enum Direction { kToHost, kToDevice, kBoth };

// GPU 0 as kvraild has it, and the vendor's library beside it for what is compared.
class Gpu
{
      public:
	Gpu()
	{
		const char *text = getenv("KVRAIL_BENCH_MIB");

		bytes = (text ? strtoull(text, nullptr, 10) : 256) << 20;
		log_set_level(LOG_ERROR);
		if (gpu_driver_load(nullptr, &driver_, reason_, sizeof(reason_)) == 0)
			start();
	}
	bool good() const
	{
		return lane_[kToDevice] != nullptr;
	}
	const char *reason() const
	{
		return reason_;
	}
	std::string name() const
	{
		gpu_status status;

		gpus_status(gpus_, 0, &status);
		return status.name;
	}
	// Seconds of all pages, in a scattered order on the GPU.
	double scattered(const std::vector<uint32_t> &order, uint32_t page, Direction direction)
	{
		const double begin = bench::seconds();

		for (uint32_t i = 0; i < order.size(); i++) {
			const unsigned way = direction == kBoth ? i / 32 % 2 : unsigned(direction);

			while ((put_[way] - done(way)) * page >= kWindow)
				;
			put(way, uint64_t(i) * page, uint64_t(order[i]) * page, page);
			if (i % 32 == 31 || i + 1 == order.size())
				gpu_lane_publish(lane_[way]);
		}
		drain();
		return bench::seconds() - begin;
	}
	double contiguous(uint64_t count, Direction direction)
	{
		const double begin = bench::seconds();

		if (direction != kToHost)
			must(driver_.copy_to_device(
				device_, host_, direction == kBoth ? count / 2 : count, stream_[1]));
		if (direction != kToDevice) {
			const uint64_t skip = direction == kBoth ? count / 2 : 0;

			must(driver_.copy_to_host(host_ + skip, device_ + skip, count - skip, stream_[0]));
		}
		wait(0);
		wait(1);
		return bench::seconds() - begin;
	}
	uint64_t bytes;

      private:
	void start()
	{
		gpus_options options = {};
		int device;

		options.driver = &driver_;
		options.threads = options.never_sleep = true;
		if (gpus_open(&options, &gpus_, reason_, sizeof(reason_)))
			return;
		must(driver_.device_get(&device, 0));
		must(driver_.context_retain(&context_, device));
		must(driver_.context_set(context_));
		must(driver_.memory_alloc(&device_, bytes));
		for (auto &stream : stream_)
			must(driver_.stream_create(&stream, GPU_STREAM_NON_BLOCKING, 0));
		host_ = static_cast<uint8_t *>(
			mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
		if (host_ == MAP_FAILED)
			std::abort();
		madvise(host_, bytes, MADV_HUGEPAGE);
		std::memset(host_, 1, bytes);
		if (gpus_register_host(gpus_, host_, bytes) ||
			gpu_lane_open(gpus_, 0, false, nullptr, nullptr, &lane_[kToHost]) ||
			gpu_lane_open(gpus_, 0, true, nullptr, nullptr, &lane_[kToDevice]))
			std::snprintf(reason_, sizeof(reason_), "lanes of GPU 0 cannot be had");
	}
	void must(int code) const
	{
		char text[200];

		if (code == GPU_DONE)
			return;
		std::fprintf(stderr, "bench_gpu: %s\n", gpu_driver_error(&driver_, code, text, sizeof(text)));
		std::exit(1);
	}
	uint64_t done(unsigned way)
	{
		uint64_t failed = 0;
		const uint64_t position = gpu_lane_done(lane_[way], &failed);

		if (failed > 0) {
			std::fprintf(stderr, "bench_gpu: the GPU was lost\n");
			std::exit(1);
		}
		return position;
	}
	void put(unsigned way, uint64_t here, uint64_t there, uint32_t page)
	{
		while (gpu_lane_put(lane_[way], uint64_t(uintptr_t(host_)) + here, device_ + there, page)) {
			gpu_lane_publish(lane_[way]);
			done(way);
		}
		put_[way]++;
	}
	void drain()
	{
		for (unsigned way = 0; way < 2; way++) {
			while (done(way) < put_[way])
				;
		}
	}
	void wait(unsigned way)
	{
		int code;

		do
			code = driver_.stream_query(stream_[way]);
		while (code == GPU_NOT_READY);
		must(code);
	}

	gpu_driver driver_ = {};
	gpu_context context_ = nullptr;
	gpu_stream stream_[2] = {};
	gpus *gpus_ = nullptr;
	gpu_lane *lane_[2] = {}; // from, to the GPU
	uint64_t put_[2] = {};
	uint8_t *host_ = nullptr;
	gpu_address device_ = 0;
	char reason_[200] = "";
};

// It lives as long as the program: taking it apart is not what is measured.
Gpu *gpu(benchmark::State &state)
{
	static Gpu *const found = new Gpu;

	if (!found->good()) {
		state.SkipWithError(found->reason());
		return nullptr;
	}
	state.SetLabel(found->name());
	return found;
}

std::vector<uint32_t> shuffled(uint64_t count)
{
	std::vector<uint32_t> order(count);

	std::iota(order.begin(), order.end(), 0u);
	std::shuffle(order.begin(), order.end(), std::mt19937(1));
	return order;
}

void pages(benchmark::State &state, Direction direction)
{
	const auto page = uint32_t(state.range(0));
	std::vector<double> lanes, engine, ratio;
	Gpu *const one = gpu(state);

	if (!one)
		return;
	const std::vector<uint32_t> order = shuffled(one->bytes / page);
	const double bytes = double(order.size()) * page;

	one->scattered(order, page, direction);
	for (auto _ : state) {
		const double whole = one->contiguous(one->bytes, direction),
			     parts = one->scattered(order, page, direction);

		state.SetIterationTime(parts);
		lanes.push_back(bytes / parts * 1e-9);
		engine.push_back(double(one->bytes) / whole * 1e-9);
		ratio.push_back(lanes.back() / engine.back());
	}
	state.counters["GBps"] = bench::median(lanes);
	state.counters["engine_GBps"] = bench::median(engine);
	state.counters["ratio"] = bench::median(ratio);
}

void one_page(benchmark::State &state, Direction direction)
{
	constexpr uint32_t kPage = 32768;
	const std::vector<uint32_t> order = { 1 };
	std::vector<double> lane, engine;
	Gpu *const one = gpu(state);

	if (!one)
		return;
	for (auto _ : state) {
		lane.push_back(one->scattered(order, kPage, direction) * 1e6);
		engine.push_back(one->contiguous(kPage, direction) * 1e6);
		state.SetIterationTime(lane.back() * 1e-6);
	}
	state.counters["p50_us"] = bench::median(lane);
	state.counters["p99_us"] = bench::percentile(lane, 0.99);
	state.counters["engine_p50_us"] = bench::median(engine);
}

void sizes(benchmark::internal::Benchmark *benchmark)
{
	benchmark->RangeMultiplier(2)
		->Range(4096, 65536)
		->ArgName("page")
		->UseManualTime()
		->Iterations(kRounds)
		->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(pages, to_device, kToDevice)->Apply(sizes);
BENCHMARK_CAPTURE(pages, to_host, kToHost)->Apply(sizes);
BENCHMARK_CAPTURE(pages, both, kBoth)->Apply(sizes);
BENCHMARK_CAPTURE(one_page, to_device, kToDevice)->UseManualTime()->Iterations(2000)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(one_page, to_host, kToHost)->UseManualTime()->Iterations(2000)->Unit(benchmark::kMicrosecond);

} // namespace

BENCHMARK_MAIN();
