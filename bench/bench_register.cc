// How long does memory take to become reachable, in milliseconds: what a client allocates and registers (populated, huge
// pages if there are), and what the server does with it (maps, checks the seals, populates), over the local driver.
#include <benchmark/benchmark.h>

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/message.h"
#include "verbs/driver.h"

namespace
{

void must(int error, const char *what)
{
	if (error == 0)
		return;
	std::fprintf(stderr, "bench_register: %s: %s\n", what, std::strerror(error < 0 ? -error : error));
	std::exit(1);
}

struct Side {
	verbs_device *device = nullptr;
	ibv_cq *cq = nullptr;
	ibv_qp *qp = nullptr;

	explicit Side(bool server)
	{
		verbs_open open = {};
		verbs_qp_options options = {};

		open.server = server;
		must(verbs_local.open(&open, &device), "open");
		must(verbs_local.create_cq(device, 64, &cq), "create_cq");
		options.send_cq = options.recv_cq = cq;
		options.max_send_wr = options.max_recv_wr = options.peer_recv_wr = 4;
		options.max_sge = 1;
		options.max_message_bytes = 4096;
		must(verbs_local.create_qp(device, &options, &qp), "create_qp");
	}
	void connect(const Side &other)
	{
		const stream_peer peer = { getpid(), geteuid(), getegid() };
		uint8_t bytes[WIRE_ADDRESS_MAX];
		int fds[STREAM_FDS_MAX];
		unsigned fd_count = 0;
		uint32_t length;

		must(verbs_local.qp_address(other.qp, bytes, sizeof(bytes), &length, fds, &fd_count), "qp_address");
		must(verbs_local.qp_connect(qp, bytes, length, fds, fd_count, &peer), "qp_connect");
		verbs_local.qp_start(qp);
	}
};

double milliseconds(uint64_t begin_ns)
{
	return double(clock_now_ns() - begin_ns) * 1e-6;
}

// range(0): bytes
void make_reachable(benchmark::State &state)
{
	const auto bytes = uint64_t(state.range(0));
	double allocate = 0, import = 0, forget = 0;
	static Side *server, *client;

	if (!server) {
		log_set_level(LOG_ERROR);
		server = new Side(true);
		client = new Side(false);
		server->connect(*client);
		client->connect(*server);
	}
	for (auto _ : state) {
		verbs_remote_memory remote = {};
		verbs_export description;
		verbs_import imported;
		uint64_t begin_ns = clock_now_ns();
		const uint64_t first_ns = begin_ns;
		void *memory;
		ibv_mr *mr;

		must(verbs_local.allocate(client->device, bytes, &memory), "allocate");
		must(verbs_local.register_memory(
			     client->device, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mr),
			"register_memory");
		must(verbs_local.export_memory(mr, &description), "export_memory");
		allocate += milliseconds(begin_ns);
		remote.address = reinterpret_cast<uintptr_t>(memory);
		remote.length = bytes;
		remote.offset = description.offset;
		remote.kind = description.kind;
		remote.fd = description.fd;
		begin_ns = clock_now_ns();
		must(verbs_local.import_memory(server->qp, &remote, &imported), "import_memory");
		import += milliseconds(begin_ns);
		state.SetIterationTime(milliseconds(first_ns) * 1e-3);
		begin_ns = clock_now_ns();
		verbs_local.forget_memory(server->qp, imported.rkey);
		must(verbs_local.deregister_memory(mr), "deregister_memory");
		verbs_local.release(client->device, memory, bytes);
		forget += milliseconds(begin_ns);
	}
	state.counters["allocate_ms"] = allocate / double(state.iterations());
	state.counters["import_ms"] = import / double(state.iterations());
	state.counters["forget_ms"] = forget / double(state.iterations());
}

BENCHMARK(make_reachable)
	->Arg(1 << 20)
	->Arg(16 << 20)
	->Arg(256 << 20)
	->ArgName("bytes")
	->UseManualTime()
	->Iterations(5)
	->Unit(benchmark::kMillisecond);

} // namespace

BENCHMARK_MAIN();
