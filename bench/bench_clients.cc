// Is a server as fast for 64 clients with one request under way each as for one client with 64? Requests a second, by turns in one
// run: the one, the many, the many, the one; `ratio` is the median of the turns' ratios, many by one. As many requests are under way
// in both, one thread plays all clients by the same loop, and the server has a core of its own. `ping`: nothing but the request;
// `retrieve`: 512 KiB in 16 scattered pages of 32 KiB, of as many bytes in both. server_ns: what the server was busy for a request,
// server_busy: for which part of the time. A server that is not always busy waits for the thread that plays the clients.
#include <array>

#include <benchmark/benchmark.h>

#include "stack.h"

namespace
{

constexpr uint32_t kUnderWay = 64, kPageBytes = 32 << 10, kChunkTokens = 256, kBlocks = 16, kChunks = 8;
constexpr uint32_t kSlotBlocks = kChunks * kBlocks;
constexpr uint64_t kBytes = uint64_t(kUnderWay) * kSlotBlocks * kPageBytes;
constexpr uint64_t kTurnNs = 100 * KVR_MS, kWarmUpNs = 10 * KVR_MS;
constexpr int kTurns = 24; // of each

// A request under way, of its client's: a chain of kChunks chunks, and the blocks that one of them comes into.
struct Slot {
	kvr_client *client = nullptr;
	kvr_session *session = nullptr;
	kvr_ticket ticket = 0;
	std::vector<uint32_t> blocks;
	uint32_t chunk = 0;
};

// A server, its clients, and kUnderWay slots that are shared out to them.
class Crowd
{
      public:
	Crowd(uint32_t clients, bool moves) : moves_(moves), stack_(moves ? kBytes + (kBytes >> 3) : uint64_t(64) << 20)
	{
		for (uint32_t i = 0; i < clients; i++)
			clients_.push_back(i ? stack_.connect() : stack_.client);
		for (size_t i = 0; i < slots_.size(); i++)
			slots_[i].client = clients_[i * clients_.size() / slots_.size()];
		for (size_t i = 0; moves_ && i < clients_.size(); i++)
			fill(i);
		stack_.poll(false);
	}
	~Crowd()
	{
		stack_.poll(true); // clients take their leave of it
		for (auto &slot : slots_) {
			if (slot.session)
				bench::must(kvr_session_destroy(&slot.session), "kvr_session_destroy");
		}
		for (size_t i = 1; i < clients_.size(); i++)
			kvr_close(&clients_[i]);
	}
	// Requests a second of one turn.
	double turn()
	{
		uint64_t begin_ns, end_ns, busy_ns, done = 0;

		stack_.poll(true);
		for (auto &slot : slots_)
			submit(slot);
		run(kWarmUpNs);
		busy_ns = stack_.busy_ns();
		begin_ns = clock_now_ns();
		done = run(kTurnNs);
		end_ns = clock_now_ns();
		busy_ns = stack_.busy_ns() - busy_ns;
		for (auto &slot : slots_) {
			while (!answered(slot))
				;
		}
		stack_.poll(false);
		server_ns.push_back(double(busy_ns) / double(done));
		server_busy.push_back(double(busy_ns) / double(end_ns - begin_ns));
		return double(done) / double(end_ns - begin_ns) * 1e9;
	}

	std::vector<double> server_ns, server_busy;

      private:
	uint64_t run(uint64_t for_ns)
	{
		const uint64_t end_ns = clock_now_ns() + for_ns;
		uint64_t done = 0;

		do {
			for (auto &slot : slots_) {
				if (!answered(slot))
					continue;
				done++;
				submit(slot);
			}
		} while (clock_now_ns() < end_ns);
		return done;
	}
	bool answered(Slot &slot)
	{
		kvr_result result;
		const int error = kvr_poll(slot.client, slot.ticket, &result);

		if (error == -EAGAIN)
			return false;
		bench::must(error, "kvr_poll");
		bench::must(!moves_ || result.chunks == 1 ? 0 : EIO, "a chunk was not there");
		return true;
	}
	void submit(Slot &slot)
	{
		if (!moves_) {
			bench::must(kvr_submit_ping(slot.client, &slot.ticket), "kvr_submit_ping");
			return;
		}
		slot.chunk = (slot.chunk + 3) % kChunks;
		transfer(slot, slot.chunk, 1, (slot.chunk + 5) % kChunks, false);
	}
	// `chunks` chunks of the slot's chain, from or into its blocks from place * kBlocks on.
	static void transfer(Slot &slot, uint32_t first, uint32_t chunks, uint32_t place, bool store)
	{
		kvr_transfer transfer = KVR_TRANSFER_INIT;
		kvr_blocks blocks = { slot.blocks.data() + size_t(place) * kBlocks, chunks * kBlocks };

		transfer.first_chunk = first;
		transfer.chunk_count = chunks;
		transfer.group_count = 1;
		transfer.groups = &blocks;
		bench::must(store ? kvr_submit_store(slot.session, &transfer, &slot.ticket)
				  : kvr_submit_retrieve(slot.session, &transfer, &slot.ticket),
			"submit");
	}
	// Memory for the slots of a client, in blocks at random, and what they ask for stored.
	void fill(size_t client)
	{
		const size_t count = slots_.size() / clients_.size(), first = client * count;
		const uint32_t blocks = uint32_t(count) * kSlotBlocks;
		uint32_t registration;
		kvr_plane plane = {};
		kvr_group group = { kChunkTokens / kBlocks, KVR_WINDOW_FULL, blocks, 1, &plane };
		kvr_layout layout = { sizeof(layout), 1, &group };
		kvr_model model = KVR_MODEL_INIT;
		void *memory;

		bench::must(kvr_alloc(clients_[client], size_t(blocks) * kPageBytes, &memory), "kvr_alloc");
		std::memset(memory, 1, size_t(blocks) * kPageBytes);
		plane = { memory, kPageBytes, kPageBytes };
		model.name = "bench";
		model.dtype = "uint8";
		bench::must(kvr_register(clients_[client], &model, &layout, nullptr, &registration), "kvr_register");
		for (uint32_t i = 0; i < blocks; i++) // any two neighbours are far apart
			slots_[first + i % count].blocks.push_back(uint32_t(uint64_t(i) * 2654435761u % blocks));
		for (size_t i = first; i < first + count; i++)
			store(slots_[i], registration, uint32_t(i));
	}
	void store(Slot &slot, uint32_t registration, uint32_t number)
	{
		const std::string id = "slot " + std::to_string(number);
		std::vector<uint32_t> tokens(size_t(kChunks) * kChunkTokens);
		kvr_result result;
		int error;

		for (size_t i = 0; i < tokens.size(); i++)
			tokens[i] = uint32_t(i) * 7 + number;
		bench::must(kvr_session_create(slot.client, registration, id.c_str(), nullptr, &slot.session),
			"kvr_session_create");
		bench::must(kvr_session_tokens(slot.session, tokens.data(), tokens.size()), "kvr_session_tokens");
		transfer(slot, 0, kChunks, 0, true);
		while ((error = kvr_poll(slot.client, slot.ticket, &result)) == -EAGAIN)
			;
		bench::must(error, "kvr_store");
		bench::must(result.chunks == kChunks ? 0 : EIO, "not all chunks were stored");
	}

	const bool moves_;
	bench::Stack stack_;
	std::vector<kvr_client *> clients_;
	std::array<Slot, kUnderWay> slots_;
};

void measure(benchmark::State &state, bool moves)
{
	Crowd one(1, moves), many(kUnderWay, moves);
	std::vector<double> ones, manys, ratios;
	bool first = true;

	for (auto _ : state) {
		double single = first ? one.turn() : 0;
		const double several = many.turn();

		single = first ? single : one.turn();
		first = !first;
		state.SetIterationTime(1 / several);
		ones.push_back(single);
		manys.push_back(several);
		ratios.push_back(several / single);
	}
	state.counters["ratio"] = bench::median(ratios);
	state.counters["ratio_min"] = bench::percentile(ratios, 0);
	state.counters["ratio_max"] = bench::percentile(ratios, 1);
	state.counters["one_s"] = bench::median(ones);
	state.counters["many_s"] = bench::median(manys);
	state.counters["one_server_ns"] = bench::median(one.server_ns);
	state.counters["many_server_ns"] = bench::median(many.server_ns);
	state.counters["one_server_busy"] = bench::median(one.server_busy);
	state.counters["many_server_busy"] = bench::median(many.server_busy);
}

void ping(benchmark::State &state)
{
	measure(state, false);
}

void retrieve(benchmark::State &state)
{
	measure(state, true);
}

BENCHMARK(ping)->UseManualTime()->Iterations(kTurns)->Unit(benchmark::kMicrosecond);
BENCHMARK(retrieve)->UseManualTime()->Iterations(kTurns)->Unit(benchmark::kMicrosecond);

} // namespace

BENCHMARK_MAIN();
