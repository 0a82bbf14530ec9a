// The local driver: what do one-sided transfers of pages reach, as a ratio to memcpy of the same page list in the same
// order on the same core (512 MiB on each side, ten times the last-level cache and more, rounds interleaved, medians);
// and how long is a small message's round trip between two polling threads, in nanoseconds.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/atomic.h"
#include "numbers.h"
#include "verbs/driver.h"

namespace
{

constexpr size_t kBytes = size_t(512) << 20;
constexpr uint32_t kChain = 64;
constexpr uint32_t kMessageBytes = 8192;
constexpr uint32_t kReceives = 32;

void must(int rc)
{
	if (rc != 0) {
		std::fprintf(stderr, "bench_local: %s\n", std::strerror(rc < 0 ? -rc : rc));
		std::exit(1);
	}
}

struct Side {
	verbs_device *device = nullptr;
	ibv_cq *cq = nullptr;
	ibv_qp *qp = nullptr;
	ibv_mr *mr = nullptr;
	uint8_t *buffers = nullptr; // kReceives to receive into, one to send from

	explicit Side(bool server)
	{
		verbs_open open = {};
		verbs_qp_options options = {};
		const size_t bytes = size_t(kReceives + 1) * kMessageBytes;

		open.server = server;
		must(verbs_local.open(&open, &device));
		must(verbs_local.create_cq(device, 4096, &cq));
		options.send_cq = cq;
		options.recv_cq = cq;
		options.max_send_wr = 1024;
		options.max_recv_wr = kReceives;
		options.max_sge = 2;
		options.max_message_bytes = kMessageBytes;
		options.peer_recv_wr = kReceives;
		must(verbs_local.create_qp(device, &options, &qp));
		buffers = static_cast<uint8_t *>(std::aligned_alloc(4096, bytes));
		std::memset(buffers, 0, bytes);
		must(verbs_local.register_memory(device, buffers, bytes, IBV_ACCESS_LOCAL_WRITE, &mr));
		for (uint32_t i = 0; i < kReceives; i++)
			post_receive(i);
	}
	~Side()
	{
		ibv_wc wc[16];

		verbs_local.qp_fail(qp);
		while (!verbs_local.qp_idle(qp))
			(void)ibv_poll_cq(cq, 16, wc);
		verbs_local.qp_stop(qp);
		verbs_local.destroy_qp(qp);
		verbs_local.destroy_cq(cq);
		verbs_local.deregister_memory(mr);
		verbs_local.close(device);
		std::free(buffers);
	}
	Side(const Side &) = delete;
	Side &operator=(const Side &) = delete;

	ibv_sge entry(uint32_t index, uint32_t length) const
	{
		return { reinterpret_cast<uintptr_t>(buffers + size_t(index) * kMessageBytes), length, mr->lkey };
	}
	void post_receive(uint64_t index)
	{
		ibv_sge sge = entry(uint32_t(index), kMessageBytes);
		ibv_recv_wr wr = {}, *bad;

		wr.wr_id = index;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		must(ibv_post_recv(qp, &wr, &bad));
	}
	void send(uint32_t length)
	{
		ibv_sge sge = entry(kReceives, length);
		ibv_send_wr wr = {}, *bad;

		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.opcode = IBV_WR_SEND;
		must(ibv_post_send(qp, &wr, &bad));
	}
};

void connect(Side &side, Side &other)
{
	uint8_t bytes[512];
	uint32_t length;
	int fds[STREAM_FDS_MAX];
	unsigned fd_count;
	const stream_peer peer = { getpid(), geteuid(), getegid() };

	must(verbs_local.qp_address(other.qp, bytes, sizeof(bytes), &length, fds, &fd_count));
	must(verbs_local.qp_connect(side.qp, bytes, length, fds, fd_count, &peer));
	verbs_local.qp_start(side.qp);
}

struct Pair {
	Side server{ true };
	Side client{ false };

	Pair()
	{
		connect(server, client);
		connect(client, server);
	}
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

// L1 and the client's memory, both registered, the client's imported.
struct Transfer {
	Pair pair;
	uint8_t *l1 = nullptr;
	uint8_t *area = nullptr;
	ibv_mr *l1_mr = nullptr;
	ibv_mr *area_mr = nullptr;
	verbs_import import = {};

	Transfer()
	{
		const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
		void *address = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		verbs_export description;
		verbs_remote_memory memory = {};

		must(address == MAP_FAILED ? ENOMEM : 0);
		madvise(address, kBytes, MADV_HUGEPAGE);
		l1 = static_cast<uint8_t *>(address);
		std::memset(l1, 1, kBytes);
		must(verbs_local.register_memory(pair.server.device, l1, kBytes, IBV_ACCESS_LOCAL_WRITE, &l1_mr));
		must(verbs_local.allocate(pair.client.device, kBytes, &address));
		area = static_cast<uint8_t *>(address);
		must(verbs_local.register_memory(pair.client.device, area, kBytes, access, &area_mr));
		must(verbs_local.export_memory(area_mr, &description));
		memory.address = reinterpret_cast<uintptr_t>(area);
		memory.length = kBytes;
		memory.offset = description.offset;
		memory.kind = description.kind;
		memory.fd = description.fd;
		must(verbs_local.import_memory(pair.server.qp, &memory, &import));
	}
	~Transfer()
	{
		verbs_local.forget_memory(pair.server.qp, import.rkey);
		verbs_local.deregister_memory(area_mr);
		verbs_local.deregister_memory(l1_mr);
		verbs_local.release(pair.client.device, area, kBytes);
		munmap(l1, kBytes);
	}

	// Posts chains of work requests, the last of each signalled, and polls until all are done.
	void run(ibv_wr_opcode opcode, size_t page, const std::vector<size_t> &ours, const std::vector<size_t> &theirs)
	{
		ibv_send_wr chain[kChain] = {};
		ibv_sge entries[kChain];
		ibv_wc wc[16];
		uint32_t outstanding = 0;

		for (size_t next = 0; next < ours.size() || outstanding > 0;) {
			while (next < ours.size() && outstanding < 4) {
				const uint32_t count = uint32_t(std::min<size_t>(kChain, ours.size() - next));
				ibv_send_wr *bad;

				for (uint32_t i = 0; i < count; i++) {
					entries[i] = { reinterpret_cast<uintptr_t>(l1 + ours[next + i]), uint32_t(page),
						l1_mr->lkey };
					chain[i].sg_list = &entries[i];
					chain[i].num_sge = 1;
					chain[i].opcode = opcode;
					chain[i].wr.rdma.remote_addr = import.address + theirs[next + i];
					chain[i].wr.rdma.rkey = import.rkey;
					chain[i].next = i + 1 < count ? &chain[i + 1] : nullptr;
					chain[i].send_flags = i + 1 < count ? 0 : IBV_SEND_SIGNALED;
				}
				must(ibv_post_send(pair.server.qp, chain, &bad));
				next += count;
				outstanding++;
			}
			const int count = ibv_poll_cq(pair.server.cq, 16, wc);
			for (int i = 0; i < count; i++)
				must(wc[i].status == IBV_WC_SUCCESS ? 0 : EIO);
			outstanding -= uint32_t(count);
		}
	}
};

// range(0): page bytes; range(1): 1 WRITE (RETRIEVE), 0 READ (STORE).
void one_sided(benchmark::State &state)
{
	const size_t page = size_t(state.range(0));
	const bool write = state.range(1) != 0;
	const std::vector<size_t> ours = shuffled(page, 1), theirs = shuffled(page, 2);
	std::vector<double> plain, driver, ratio;
	Transfer transfer;

	for (auto _ : state) {
		const double begin = bench::seconds();
		for (size_t i = 0; i < ours.size(); i++) {
			if (write)
				std::memcpy(transfer.area + theirs[i], transfer.l1 + ours[i], page);
			else
				std::memcpy(transfer.l1 + ours[i], transfer.area + theirs[i], page);
		}
		const double middle = bench::seconds();
		transfer.run(write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, page, ours, theirs);
		const double end = bench::seconds();

		plain.push_back(double(kBytes) / (middle - begin) * 1e-9);
		driver.push_back(double(kBytes) / (end - middle) * 1e-9);
		ratio.push_back((middle - begin) / (end - middle));
		state.SetIterationTime(end - middle);
	}
	state.counters["memcpy_GBps"] = bench::percentile(plain, 0.5);
	state.counters["driver_GBps"] = bench::percentile(driver, 0.5);
	state.counters["ratio"] = bench::percentile(ratio, 0.5);
}

// range(0): message bytes, there and back.
void round_trip(benchmark::State &state)
{
	const uint32_t length = uint32_t(state.range(0));
	std::atomic<bool> stop{ false };
	std::vector<double> times;
	Pair pair;
	ibv_wc wc;

	std::thread server([&] {
		ibv_wc taken;

		while (!stop.load(std::memory_order_relaxed)) {
			if (ibv_poll_cq(pair.server.cq, 1, &taken) == 0)
				continue;
			must(taken.status == IBV_WC_SUCCESS ? 0 : EIO);
			pair.server.send(taken.byte_len);
			pair.server.post_receive(taken.wr_id);
		}
	});
	times.reserve(1 << 20);
	for (auto _ : state) {
		const double begin = bench::seconds();
		pair.client.send(length);
		while (ibv_poll_cq(pair.client.cq, 1, &wc) == 0)
			;
		const double end = bench::seconds();

		must(wc.status == IBV_WC_SUCCESS ? 0 : EIO);
		pair.client.post_receive(wc.wr_id);
		state.SetIterationTime(end - begin);
		if (times.size() < times.capacity())
			times.push_back((end - begin) * 1e9);
	}
	stop.store(true);
	server.join();
	state.counters["p50_ns"] = bench::percentile(times, 0.5);
	state.counters["p99_ns"] = bench::percentile(times, 0.99);
}

BENCHMARK(one_sided)
	->ArgsProduct({ { 4096, 32768, 1 << 20 }, { 1, 0 } })
	->ArgNames({ "page", "write" })
	->UseManualTime()
	->Iterations(9)
	->Unit(benchmark::kMillisecond);
BENCHMARK(round_trip)->Arg(32)->Arg(48)->Arg(512)->Arg(8192)->ArgName("bytes")->UseManualTime();

} // namespace

BENCHMARK_MAIN();
