// What does one work request cost, posted and polled, in nanoseconds: RDMA WRITEs of 64 bytes in chains, the last one
// signalled, on each driver. local: the poll moves the bytes. sim: virtual time goes on by 1 us a turn. nic: the first
// device, where there is one.
#include <benchmark/benchmark.h>

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/message.h"
#include "verbs/driver.h"
#include "verbs/sim/fabric.h"

namespace
{

constexpr size_t kBytes = size_t(1) << 20;
constexpr uint32_t kWriteBytes = 64, kChainMax = 64;

void must(int error, const char *what)
{
	if (error == 0)
		return;
	std::fprintf(stderr, "bench_post: %s: %s\n", what, std::strerror(error < 0 ? -error : error));
	std::exit(1);
}

struct Side {
	const verbs_driver *driver = nullptr;
	verbs_device *device = nullptr;
	ibv_cq *cq = nullptr;
	ibv_qp *qp = nullptr;
	ibv_mr *mr = nullptr;
	void *memory = nullptr;

	int open(const verbs_driver *driver_, const verbs_open &open)
	{
		verbs_qp_options options = {};
		int error;

		driver = driver_;
		error = driver->open(&open, &device);
		if (error)
			return error;
		must(driver->create_cq(device, 256, &cq), "create_cq");
		options.send_cq = options.recv_cq = cq;
		options.max_send_wr = 2 * kChainMax;
		options.max_recv_wr = 4;
		options.max_sge = 1;
		options.max_message_bytes = 4096;
		options.peer_recv_wr = 4;
		must(driver->create_qp(device, &options, &qp), "create_qp");
		must(driver->allocate(device, kBytes, &memory), "allocate");
		must(driver->register_memory(device, memory, kBytes,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, &mr),
			"register_memory");
		return 0;
	}
	void connect(const Side &other)
	{
		const stream_peer peer = { getpid(), geteuid(), getegid() };
		uint8_t bytes[WIRE_ADDRESS_MAX];
		int fds[STREAM_FDS_MAX];
		unsigned fd_count = 0;
		uint32_t length;

		must(driver->qp_address(other.qp, bytes, sizeof(bytes), &length, fds, &fd_count), "qp_address");
		must(driver->qp_connect(qp, bytes, length, fds, fd_count, &peer), "qp_connect");
		driver->qp_start(qp);
	}
};

struct Pair {
	sim_fabric *fabric = nullptr;
	uint64_t now_ns = KVR_SECOND;
	Side server, client;
	verbs_import import = {};

	int open(const verbs_driver *driver)
	{
		verbs_open options = {};
		int error;

		log_set_level(LOG_ERROR);
		if (driver == &verbs_sim) {
			must(sim_fabric_create(1, nullptr, &fabric), "sim_fabric_create");
			options.fabric = fabric;
		}
		options.server = true;
		error = server.open(driver, options);
		if (error)
			return error;
		options.server = false;
		must(client.open(driver, options), "open");
		server.connect(client);
		client.connect(server);
		import_memory();
		return 0;
	}
	void import_memory()
	{
		verbs_remote_memory remote = {};
		verbs_export description;

		must(client.driver->export_memory(client.mr, &description), "export_memory");
		remote.address = reinterpret_cast<uintptr_t>(client.memory);
		remote.length = kBytes;
		remote.offset = description.offset;
		remote.kind = description.kind;
		remote.rkey = description.rkey;
		remote.fd = description.fd;
		must(server.driver->import_memory(server.qp, &remote, &import), "import_memory");
	}
	void turn()
	{
		if (fabric)
			sim_fabric_step(fabric, now_ns += 1000, 1u << 20);
	}
	void write(uint32_t count)
	{
		ibv_send_wr chain[kChainMax] = {}, *bad;
		ibv_sge entries[kChainMax];
		ibv_wc wc;

		for (uint32_t i = 0; i < count; i++) {
			entries[i] = { reinterpret_cast<uintptr_t>(server.memory) + i * 4096, kWriteBytes,
				server.mr->lkey };
			chain[i].sg_list = &entries[i];
			chain[i].num_sge = 1;
			chain[i].opcode = IBV_WR_RDMA_WRITE;
			chain[i].wr.rdma.remote_addr = import.address + i * 4096;
			chain[i].wr.rdma.rkey = import.rkey;
			chain[i].next = i + 1 < count ? &chain[i + 1] : nullptr;
			chain[i].send_flags = i + 1 < count ? 0 : IBV_SEND_SIGNALED;
		}
		must(ibv_post_send(server.qp, chain, &bad), "ibv_post_send");
		while (ibv_poll_cq(server.cq, 1, &wc) == 0)
			turn();
		must(wc.status == IBV_WC_SUCCESS ? 0 : EIO, "completion");
	}
};

// Pairs live as long as the program: taking them apart is not what is measured.
void post_and_poll(benchmark::State &state, const verbs_driver *driver)
{
	static const verbs_driver *opened[3];
	static Pair *pairs[3];
	const auto count = uint32_t(state.range(0));
	size_t at = 0;

	while (opened[at] && opened[at] != driver)
		at++;
	if (!opened[at]) {
		opened[at] = driver;
		pairs[at] = new Pair;
		if (pairs[at]->open(driver)) {
			delete pairs[at];
			pairs[at] = nullptr;
		}
	}
	if (!pairs[at]) {
		state.SkipWithError("no device of this driver");
		return;
	}
	for (auto _ : state)
		pairs[at]->write(count);
	state.counters["s/wr"] = benchmark::Counter(
		double(state.iterations()) * count, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(post_and_poll, local, &verbs_local)->Arg(1)->Arg(16)->Arg(64)->ArgName("chain");
BENCHMARK_CAPTURE(post_and_poll, sim, &verbs_sim)->Arg(1)->Arg(16)->Arg(64)->ArgName("chain");
BENCHMARK_CAPTURE(post_and_poll, nic, &verbs_nic)->Arg(1)->Arg(16)->Arg(64)->ArgName("chain");

} // namespace

BENCHMARK_MAIN();
