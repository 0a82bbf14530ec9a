// bench_s3: how much of what an S3 server gives does the s3 adapter leave? Load and store bandwidth over HTTP as a ratio to a raw loop at the
// same server: GET and PUT of the same size, signed but for their bodies, `depth` threads with a connection each that wait for one answer
// after the other, same process, rounds that take turns. The answer is `ratio`, the median of the rounds; MBps and raw_MBps are medians too,
// in 10^6 bytes.
//
// KVRAIL_BENCH_S3 ("HOST:PORT", an IPv4 address) names the server, KVRAIL_BENCH_S3_BUCKET (bucket) the bucket, AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY and AWS_REGION the rest; what is written stays there. Without it the tests' server is started (Python: then the server
// is what is measured, and only the ratio says something).
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include "base/clock.h"
#include "base/log.h"
#include "rounds.h"
#include "tier/s3_adapter.h"

namespace
{

constexpr int kRounds = 5;
constexpr uint64_t kRoundBytes = UINT64_C(32) << 20, kHeaderBytes = 4096; // the adapter's, before each object

std::string setting(const char *name, const char *otherwise)
{
	const char *text = getenv(name);

	return text ? text : otherwise;
}

// The named server, or the tests'.
class Server
{
      public:
	Server() : bucket_(setting("KVRAIL_BENCH_S3_BUCKET", "bucket")), address_(setting("KVRAIL_BENCH_S3", ""))
	{
		set(credentials_.access_key, sizeof(credentials_.access_key),
			setting("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"));
		set(credentials_.secret_key, sizeof(credentials_.secret_key),
			setting("AWS_SECRET_ACCESS_KEY", "SECRETEXAMPLE"));
		set(credentials_.region, sizeof(credentials_.region), setting("AWS_REGION", "us-test-1"));
		if (address_.empty())
			start();
	}
	~Server()
	{
		if (pid_ > 0) {
			kill(pid_, SIGKILL);
			waitpid(pid_, nullptr, 0);
			close(input_);
		}
	}
	Server(const Server &) = delete;
	Server &operator=(const Server &) = delete;
	const std::string &address() const // "" when there is none
	{
		return address_;
	}
	const std::string &bucket() const
	{
		return bucket_;
	}
	const struct s3_credentials &credentials() const
	{
		return credentials_;
	}

      private:
	static void set(char *out, size_t size, const std::string &text)
	{
		snprintf(out, size, "%s", text.c_str());
	}
	void start()
	{
		int input[2], output[2];
		char port[16] = "";

		if (pipe(input) != 0 || pipe(output) != 0)
			return;
		pid_ = fork();
		if (pid_ == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			dup2(input[0], 0);
			dup2(output[1], 1);
			close(input[1]);
			execlp("python3", "python3", KVRAIL_SOURCE_DIR "/tests/tier/s3_server.py",
				static_cast<char *>(nullptr));
			_exit(127);
		}
		close(input[0]);
		close(output[1]);
		input_ = input[1]; // the server ends with it
		if (read(output[0], port, sizeof(port) - 1) > 0)
			address_ = "127.0.0.1:" + std::to_string(atoi(port));
		close(output[0]);
	}

	std::string bucket_, address_;
	struct s3_credentials credentials_ = {};
	pid_t pid_ = -1;
	int input_ = -1;
};

// One connection of the raw loop.
class Raw
{
      public:
	Raw(const Server &server, uint64_t block)
		: server_(server), value_(block + kHeaderBytes, 'v'), reply_(block + kHeaderBytes + 4096)
	{
		struct sockaddr_in to = {};
		size_t colon = server.address().find(':');
		int on = 1;

		to.sin_family = AF_INET;
		to.sin_port = htons(static_cast<uint16_t>(atoi(server.address().c_str() + colon + 1)));
		good_ = digester_init(&digester_) == 0;
		fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		good_ = good_ && inet_pton(AF_INET, server.address().substr(0, colon).c_str(), &to.sin_addr) == 1 &&
			connect(fd_, reinterpret_cast<struct sockaddr *>(&to), sizeof(to)) == 0 &&
			setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0;
	}
	~Raw()
	{
		close(fd_);
		digester_fini(&digester_);
	}
	Raw(const Raw &) = delete;
	Raw &operator=(const Raw &) = delete;
	bool transfer(bool store, unsigned number)
	{
		std::string path = "/" + server_.bucket() + "/raw/" + std::to_string(number);
		char date[S3_DATE_BYTES], authorization[S3_AUTHORIZATION_MAX];
		struct s3_header headers[] = { { "host", server_.address().c_str() },
			{ "x-amz-content-sha256", S3_UNSIGNED }, { "x-amz-date", date } };
		struct s3_request request = { store ? "PUT" : "GET", path.c_str(), "", headers, 3, S3_UNSIGNED, date };
		std::string head;

		s3_date(static_cast<uint64_t>(time(nullptr)), date);
		if (!good_ || s3_sign(&digester_, &server_.credentials(), &request, authorization) != 0)
			return false;
		head = std::string(request.method) + " " + path + " HTTP/1.1\r\n";
		for (const auto &header : headers)
			head += std::string(header.name) + ": " + header.value + "\r\n";
		head += "Authorization: " + std::string(authorization) + "\r\n";
		if (store)
			head += "Content-Length: " + std::to_string(value_.size()) + "\r\n";
		head += "\r\n";
		return say(head) && (!store || say(value_)) && hear();
	}

      private:
	bool say(const std::string &bytes)
	{
		for (size_t said = 0; said < bytes.size();) {
			ssize_t part = send(fd_, bytes.data() + said, bytes.size() - said, MSG_NOSIGNAL);

			if (part <= 0)
				return false;
			said += static_cast<size_t>(part);
		}
		return true;
	}
	// The whole answer, by its Content-Length.
	bool hear()
	{
		size_t got = 0, whole = reply_.size();

		while (got < whole) {
			ssize_t part = recv(fd_, reply_.data() + got, reply_.size() - got, 0);
			const char *end, *length;

			if (part <= 0)
				return false;
			got += static_cast<size_t>(part);
			end = static_cast<const char *>(
				memmem(reply_.data(), std::min<size_t>(got, 4096), "\r\n\r\n", 4));
			if (!end || whole != reply_.size())
				continue;
			length = static_cast<const char *>(memmem(
				reply_.data(), static_cast<size_t>(end - reply_.data()), "Content-Length: ", 16));
			whole = static_cast<size_t>(end + 4 - reply_.data()) +
				(length ? strtoul(length + 16, nullptr, 10) : 0);
		}
		return strncmp(reply_.data() + 8, " 200", 4) == 0;
	}

	const Server &server_;
	std::string value_;
	std::vector<char> reply_;
	struct digester digester_;
	int fd_ = -1;
	bool good_ = false;
};

// Bytes a nanosecond of all connections; 0 when something failed.
double raw_round(std::vector<std::unique_ptr<Raw>> &connections, bool store, unsigned blocks, uint64_t block)
{
	uint64_t began = clock_now_ns();
	std::vector<std::thread> threads;
	std::vector<char> good(connections.size(), 1);

	for (unsigned n = 0; n < connections.size(); n++)
		threads.emplace_back([&, n] {
			for (unsigned i = n; i < blocks && good[n]; i += static_cast<unsigned>(connections.size()))
				good[n] = connections[n]->transfer(store, i);
		});
	for (auto &thread : threads)
		thread.join();
	if (std::count(good.begin(), good.end(), 1) != static_cast<ptrdiff_t>(good.size()))
		return 0;
	return static_cast<double>(blocks * block) / static_cast<double>(clock_now_ns() - began);
}

void measure(benchmark::State &state, bool store)
{
	uint64_t block = static_cast<uint64_t>(state.range(0)) << 10;
	unsigned depth = static_cast<unsigned>(state.range(1));
	unsigned blocks = static_cast<unsigned>(std::max<uint64_t>(kRoundBytes / block, depth)), first = 0;
	std::vector<uint8_t> memory(block * depth, 0x5a);
	std::vector<std::unique_ptr<Raw>> connections;
	struct s3_adapter_options options = {};
	struct l2_adapter *adapter;
	char error[512];
	Server server;
	std::string where = server.bucket() + "/kvrail-bench/", endpoint = "http://" + server.address();

	log_set_level(LOG_ERROR);
	options.where = where.c_str();
	options.endpoint = endpoint.c_str();
	options.credentials = &server.credentials();
	options.depth = depth;
	if (server.address().empty()) {
		state.SkipWithError("no S3 server: KVRAIL_BENCH_S3 is not set, and python3 is not there");
		return;
	}
	if (s3_adapter_open(&options, &adapter, error, sizeof(error)) != 0) {
		state.SkipWithError(error);
		return;
	}
	for (unsigned i = 0; i < depth; i++)
		connections.push_back(std::make_unique<Raw>(server, block));
	bench::Rounds rounds(adapter, block, blocks, depth, memory.data());
	if (raw_round(connections, true, blocks, block) == 0 || rounds.run(L2_STORE, 0) == 0)
		state.SkipWithError("a store failed");
	bench::take_turns(
		state, blocks * block, [&] { return raw_round(connections, store, blocks, block); },
		[&] {
			double speed;

			// A store is of what is not there.
			first += store ? blocks : 0;
			speed = rounds.run(store ? L2_STORE : L2_LOAD, first);
			return store && rounds.run(L2_REMOVE, first) == 0 ? 0.0 : speed;
		});
	adapter->driver->close(adapter);
}

[[maybe_unused]] const bool added = bench::add_load_and_store(measure, { 256, 1024, 8192 }, kRounds);

} // namespace

BENCHMARK_MAIN();
