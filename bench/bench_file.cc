// bench_file: how much of a disk does the file adapter leave? Load and store bandwidth as a ratio to a raw loop of
// io_uring with O_DIRECT over one file that was laid out before, same block size and depth, same process, rounds that
// take turns. The answer is `ratio`, the median of the rounds; MBps and raw_MBps are medians too, in 10^6 bytes.
//
// KVRAIL_BENCH_DIR (.) says on which file system, KVRAIL_BENCH_MIB (256) how much is moved in a round.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include "base/clock.h"
#include "rounds.h"
#include "tier/file_adapter.h"

namespace
{

constexpr int kRounds = 7;
constexpr uint64_t kMib = UINT64_C(1) << 20;

uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, nullptr, 10) : otherwise;
}

std::string folder()
{
	const char *text = getenv("KVRAIL_BENCH_DIR");

	return text ? text : ".";
}

// One file of `blocks` blocks, written once so that no transfer has to allocate.
class Raw
{
      public:
	Raw(uint64_t block, unsigned blocks, unsigned depth, uint8_t *memory)
		: block_(block), blocks_(blocks), depth_(depth), memory_(memory), path_(folder() + "/bench_file.raw")
	{
		fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
		good_ = fd_ >= 0 && io_uring_queue_init(depth, &ring_, 0) == 0;
		for (unsigned i = 0; good_ && i < blocks; i++)
			good_ = pwrite(fd_, memory_, block, static_cast<off_t>(i * block)) ==
				static_cast<ssize_t>(block);
	}
	~Raw()
	{
		if (fd_ >= 0)
			close(fd_);
		unlink(path_.c_str());
	}
	Raw(const Raw &) = delete;
	Raw &operator=(const Raw &) = delete;
	bool good() const
	{
		return good_;
	}
	// Bytes a nanosecond; 0 when something failed.
	double round(bool write)
	{
		uint64_t began = clock_now_ns();
		unsigned begun = 0, ended = 0;

		while (ended < blocks_) {
			struct io_uring_cqe *cqe;

			for (; begun < blocks_ && begun - ended < depth_; begun++) {
				struct io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
				uint8_t *at = memory_ + (begun % depth_) * block_;

				if (write)
					io_uring_prep_write(
						sqe, fd_, at, static_cast<unsigned>(block_), begun * block_);
				else
					io_uring_prep_read(sqe, fd_, at, static_cast<unsigned>(block_), begun * block_);
			}
			if (io_uring_submit_and_wait(&ring_, 1) < 0)
				return 0;
			while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
				if (cqe->res != static_cast<int>(block_))
					return 0;
				io_uring_cqe_seen(&ring_, cqe);
				ended++;
			}
		}
		return static_cast<double>(blocks_ * block_) / static_cast<double>(clock_now_ns() - began);
	}

      private:
	uint64_t block_;
	unsigned blocks_, depth_;
	uint8_t *memory_;
	std::string path_;
	int fd_ = -1;
	bool good_ = false;
	struct io_uring ring_;
};

// The file adapter over a folder of its own.
class Folder
{
      public:
	explicit Folder(unsigned depth) : path_(folder() + "/bench_file.place")
	{
		struct file_adapter_options options = {};

		options.directory = path_.c_str();
		options.queue_depth = std::max(depth + depth / 2, 4u); // stores use three quarters of it
		options.exclusive = true;
		if (file_adapter_open(&options, &adapter_, error_, sizeof(error_)) != 0)
			adapter_ = nullptr;
	}
	~Folder()
	{
		if (adapter_)
			adapter_->driver->close(adapter_);
		if (system(("rm -rf '" + path_ + "'").c_str()) != 0)
			fprintf(stderr, "bench_file: cannot remove %s\n", path_.c_str());
	}
	Folder(const Folder &) = delete;
	Folder &operator=(const Folder &) = delete;
	struct l2_adapter *adapter() const // nullptr: see error()
	{
		return adapter_;
	}
	const char *error() const
	{
		return error_;
	}

      private:
	std::string path_;
	struct l2_adapter *adapter_ = nullptr;
	char error_[512] = "";
};

void measure(benchmark::State &state, bool store)
{
	uint64_t block = static_cast<uint64_t>(state.range(0)) << 10;
	unsigned depth = static_cast<unsigned>(state.range(1));
	unsigned blocks = static_cast<unsigned>(
		std::max<uint64_t>(setting("KVRAIL_BENCH_MIB", 256) * kMib / block, depth));
	uint8_t *memory = static_cast<uint8_t *>(aligned_alloc(4096, block * depth));

	if (!memory) {
		state.SkipWithError("no memory");
		return;
	}
	memset(memory, 0x5a, block * depth);
	{
		Raw raw(block, blocks, depth, memory);
		Folder place(depth);
		bench::Rounds rounds(place.adapter(), block, blocks, depth, memory);
		unsigned first = 0;

		if (!raw.good() || !place.adapter())
			state.SkipWithError(place.adapter() ? "the raw file cannot be written" : place.error());
		else if (!store && rounds.run(L2_STORE, 0) == 0)
			state.SkipWithError("a store failed");
		else
			state.SetLabel(file_adapter_mode(place.adapter()));
		bench::take_turns(
			state, blocks * block, [&] { return raw.round(store); },
			[&] {
				double speed = rounds.run(store ? L2_STORE : L2_LOAD, first);

				if (store) {
					rounds.run(L2_REMOVE, first);
					first += blocks;
				}
				return speed;
			});
	}
	free(memory);
}

[[maybe_unused]] const bool added = bench::add_load_and_store(measure, { 64, 256, 1024, 8192 }, kRounds);

} // namespace

BENCHMARK_MAIN();
