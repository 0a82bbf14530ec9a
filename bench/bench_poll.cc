// What does polling cost with many clients, in nanoseconds: ibv_poll_cq on the local driver's server side with N connected queue
// pairs. `idle`: none of them has a message. `message`: one SEND of 64 bytes from each in turn, posted, taken by the server's poll
// among all the others, and its receive posted again. One thread plays both sides, so no cache line travels between cores: what grows
// with N is what looking at N connections costs.
#include <benchmark/benchmark.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "base/log.h"
#include "protocol/message.h"
#include "verbs/driver.h"

namespace
{

constexpr uint32_t kMessageBytes = 64, kDepth = 32, kQueue = 4096;
constexpr size_t kMemory = 4096;
const verbs_driver &driver = verbs_local;

void must(int error, const char *what)
{
	if (error == 0)
		return;
	std::fprintf(stderr, "bench_poll: %s: %s\n", what, std::strerror(error < 0 ? -error : error));
	std::exit(1);
}

// One device, completion queue and memory; a queue pair for each connection.
struct Side {
	verbs_device *device = nullptr;
	ibv_cq *cq = nullptr;
	ibv_srq *srq = nullptr;
	ibv_mr *mr = nullptr;
	void *memory = nullptr;
	std::vector<ibv_qp *> qps;

	void open(bool server, uint32_t connections)
	{
		verbs_open open = {};

		open.server = server;
		must(driver.open(&open, &device), "open");
		must(driver.create_cq(device, kQueue * 2, &cq), "create_cq");
		must(driver.create_srq(device, kQueue, &srq), "create_srq");
		must(driver.allocate(device, kMemory, &memory), "allocate");
		must(driver.register_memory(device, memory, kMemory, IBV_ACCESS_LOCAL_WRITE, &mr), "register_memory");
		for (uint32_t i = 0; i < connections; i++)
			add();
	}
	void add()
	{
		verbs_qp_options options = {};
		ibv_qp *qp;

		options.send_cq = options.recv_cq = cq;
		options.srq = srq;
		options.max_send_wr = kDepth;
		options.max_sge = 1;
		options.max_inline_bytes = kMessageBytes;
		options.max_message_bytes = 4096;
		options.peer_recv_wr = kDepth;
		must(driver.create_qp(device, &options, &qp), "create_qp");
		qps.push_back(qp);
	}
	void receive()
	{
		ibv_sge entry = { reinterpret_cast<uintptr_t>(memory), kMessageBytes, mr->lkey };
		ibv_recv_wr request = {}, *bad;

		request.sg_list = &entry;
		request.num_sge = 1;
		must(ibv_post_srq_recv(srq, &request, &bad), "ibv_post_srq_recv");
	}
	void send(size_t at)
	{
		ibv_sge entry = { reinterpret_cast<uintptr_t>(memory), kMessageBytes, mr->lkey };
		ibv_send_wr request = {}, *bad;

		request.sg_list = &entry;
		request.num_sge = 1;
		request.opcode = IBV_WR_SEND;
		request.send_flags = IBV_SEND_INLINE;
		must(ibv_post_send(qps[at], &request, &bad), "ibv_post_send");
	}
};

void connect(ibv_qp *to, ibv_qp *from)
{
	const stream_peer peer = { getpid(), geteuid(), getegid() };
	uint8_t bytes[WIRE_ADDRESS_MAX];
	int fds[STREAM_FDS_MAX];
	unsigned fd_count = 0;
	uint32_t length;

	must(driver.qp_address(from, bytes, sizeof(bytes), &length, fds, &fd_count), "qp_address");
	must(driver.qp_connect(to, bytes, length, fds, fd_count, &peer), "qp_connect");
	driver.qp_start(to);
}

struct World {
	Side server, client;

	explicit World(uint32_t connections)
	{
		log_set_level(LOG_ERROR);
		server.open(true, connections);
		client.open(false, connections);
		for (uint32_t i = 0; i < connections; i++) {
			connect(client.qps[i], server.qps[i]);
			connect(server.qps[i], client.qps[i]);
		}
		for (uint32_t i = 0; i < kDepth; i++)
			server.receive();
	}
	int poll(Side &side)
	{
		ibv_wc wc[16];

		return ibv_poll_cq(side.cq, 16, wc);
	}
};

// They live as long as the program: taking them apart is not what is measured.
World &world(benchmark::State &state)
{
	static std::map<int64_t, World *> worlds;
	World *&found = worlds[state.range(0)];

	if (!found)
		found = new World(uint32_t(state.range(0)));
	return *found;
}

void idle(benchmark::State &state)
{
	World &two = world(state);

	while (two.poll(two.server) > 0)
		;
	for (auto _ : state)
		benchmark::DoNotOptimize(two.poll(two.server));
}

void message(benchmark::State &state)
{
	World &two = world(state);
	size_t at = 0;

	for (auto _ : state) {
		two.client.send(at);
		while (two.poll(two.server) == 0)
			;
		two.server.receive();
		two.poll(two.client);
		at = (at + 37) % two.client.qps.size();
	}
}

BENCHMARK(idle)->Arg(1)->Arg(8)->Arg(64)->Arg(512)->ArgName("connections");
BENCHMARK(message)->Arg(1)->Arg(8)->Arg(64)->Arg(512)->ArgName("connections");

} // namespace

BENCHMARK_MAIN();
