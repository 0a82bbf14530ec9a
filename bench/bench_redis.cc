// bench_redis: how much of what a redis-server gives does the redis adapter leave? Load and store bandwidth over a Unix socket as a ratio to
// a raw loop of GET and SET at the same server: values of the same size, `depth` commands pipelined on one connection, replies read
// to the end and dropped, same process, rounds that take turns. The answer is `ratio`, the median of the rounds; MBps and raw_MBps are medians
// too, in 10^6 bytes.
//
// Starts a redis-server of its own that keeps nothing on disk; KVRAIL_BENCH_REDIS (a socket's path) names another, whose memory is filled.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include "base/clock.h"
#include "base/log.h"
#include "rounds.h"
#include "tier/redis_adapter.h"

namespace
{

constexpr int kRounds = 7;
constexpr uint64_t kRoundBytes = UINT64_C(64) << 20, kHeaderBytes = 4096; // the adapter's, before each object

int connect_to(const std::string &path)
{
	struct sockaddr_un address = {};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sun_family = AF_UNIX;
	strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
	if (fd >= 0 && connect(fd, reinterpret_cast<struct sockaddr *>(&address), sizeof(address)) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

// The named server, or one of our own in a folder under /tmp.
class Server
{
      public:
	Server()
	{
		const char *named = getenv("KVRAIL_BENCH_REDIS");
		char folder[] = "/tmp/kvrail-bench-XXXXXX";

		if (named) {
			socket_ = named;
			return;
		}
		if (!mkdtemp(folder))
			return;
		folder_ = folder;
		socket_ = folder_ + "/redis.sock";
		pid_ = fork();
		if (pid_ == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (!freopen("/dev/null", "w", stdout))
				_exit(127);
			execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket_.c_str(), "--save",
				"", "--dir", folder, "--loglevel", "warning", static_cast<char *>(nullptr));
			_exit(127);
		}
	}
	~Server()
	{
		if (pid_ > 0) {
			kill(pid_, SIGKILL);
			waitpid(pid_, nullptr, 0);
		}
		if (!folder_.empty() && system(("rm -rf '" + folder_ + "'").c_str()) != 0)
			fprintf(stderr, "bench_redis: cannot remove %s\n", folder_.c_str());
	}
	Server(const Server &) = delete;
	Server &operator=(const Server &) = delete;
	bool up() const
	{
		for (int i = 0; i < 500; i++) {
			int fd = connect_to(socket_);

			if (fd >= 0) {
				close(fd);
				return true;
			}
			usleep(10000);
		}
		return false;
	}
	const std::string &socket() const
	{
		return socket_;
	}

      private:
	std::string folder_, socket_;
	pid_t pid_ = -1;
};

class Raw
{
      public:
	Raw(const std::string &path, uint64_t block, unsigned blocks, unsigned depth)
		: block_(block), blocks_(blocks), depth_(depth), fd_(connect_to(path)),
		  value_(block + kHeaderBytes, 'v'), replies_(depth * (block + kHeaderBytes + 32))
	{
	}
	~Raw()
	{
		if (fd_ >= 0)
			close(fd_);
	}
	Raw(const Raw &) = delete;
	Raw &operator=(const Raw &) = delete;
	// Bytes a nanosecond; 0 when something failed.
	double round(bool store)
	{
		uint64_t began = clock_now_ns();

		for (unsigned i = 0; i < blocks_; i += depth_) {
			if (!batch(store, i, std::min(depth_, blocks_ - i)))
				return 0;
		}
		return static_cast<double>(blocks_ * block_) / static_cast<double>(clock_now_ns() - began);
	}

      private:
	bool batch(bool store, unsigned first, unsigned count)
	{
		size_t expected = store ? count * strlen("+OK\r\n")
					: count * (std::to_string(value_.size()).size() + value_.size() + 5);

		for (unsigned i = 0; i < count; i++) {
			std::string key = "raw:" + std::to_string(first + i), length = std::to_string(key.size());
			std::string command = store ? "*3\r\n$3\r\nSET\r\n$" : "*2\r\n$3\r\nGET\r\n$";

			command += length + "\r\n" + key + "\r\n";
			if (store)
				command += "$" + std::to_string(value_.size()) + "\r\n";
			if (!say(command.data(), command.size()) ||
				(store && !(say(value_.data(), value_.size()) && say("\r\n", 2))))
				return false;
		}
		for (size_t got = 0; got < expected;) {
			ssize_t part = recv(fd_, replies_.data() + got, expected - got, 0);

			if (part <= 0)
				return false;
			got += static_cast<size_t>(part);
		}
		return replies_[0] == (store ? '+' : '$');
	}
	bool say(const char *bytes, size_t length)
	{
		while (length > 0) {
			ssize_t part = send(fd_, bytes, length, MSG_NOSIGNAL);

			if (part <= 0)
				return false;
			bytes += part;
			length -= static_cast<size_t>(part);
		}
		return true;
	}

	uint64_t block_;
	unsigned blocks_, depth_;
	int fd_;
	std::string value_;
	std::vector<char> replies_;
};

void measure(benchmark::State &state, bool store)
{
	uint64_t block = static_cast<uint64_t>(state.range(0)) << 10;
	unsigned depth = static_cast<unsigned>(state.range(1));
	unsigned blocks = static_cast<unsigned>(std::max<uint64_t>(kRoundBytes / block, depth));
	std::vector<uint8_t> memory(block * depth, 0x5a);
	struct redis_adapter_options options = {};
	struct l2_adapter *adapter;
	char error[512];
	Server server;

	log_set_level(LOG_ERROR);
	options.where = server.socket().c_str();
	options.depth = depth;
	if (!server.up()) {
		state.SkipWithError("no redis-server (Debian: redis-server), or it does not start");
		return;
	}
	if (redis_adapter_open(&options, &adapter, error, sizeof(error)) != 0) {
		state.SkipWithError(error);
		return;
	}
	{
		bench::Rounds rounds(adapter, block, blocks, depth, memory.data());
		Raw raw(server.socket(), block, blocks, depth);

		if (raw.round(true) == 0 || rounds.run(L2_STORE, 0) == 0)
			state.SkipWithError("a store failed");
		bench::take_turns(
			state, blocks * block, [&] { return raw.round(store); },
			[&] {
				// What is there would not be written again.
				if (store && rounds.run(L2_REMOVE, 0) == 0)
					return 0.0;
				return rounds.run(store ? L2_STORE : L2_LOAD, 0);
			});
	}
	adapter->driver->close(adapter);
}

[[maybe_unused]] const bool added = bench::add_load_and_store(measure, { 64, 1024, 8192 }, kRounds);

} // namespace

BENCHMARK_MAIN();
