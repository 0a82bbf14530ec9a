// Does a LOOKUP that brings 512 chunks from L2 delay another client's LOOKUP of 512 chunks that are in L1? The real
// management core, chunk table and L2 engine; the adapter answers at once and moves nothing, so that all that is seen is
// the engine's own work, at the highest rate that it can have. Counted is the time of an L1 LOOKUP that comes right after
// the rings were read: the rest of that turn and all turns to its reply. `alone`: without any work of L2; `beside`: while
// a prefetch is under way, from its first question to the release of its last lock. Both in one run, in turns.
#include <benchmark/benchmark.h>

#include <ctime>

#include "core.h"
#include "numbers.h"

namespace
{

using namespace bench;

struct instant_adapter {
	l2_adapter base;
	list_node ended;
};

int instant_submit(l2_adapter *adapter, l2_request *request)
{
	request->status = 0;
	list_add_last(&reinterpret_cast<instant_adapter *>(adapter)->ended, &request->node);
	return 0;
}

void instant_cancel(l2_adapter *, l2_request *)
{
}

uint32_t instant_poll(l2_adapter *adapter, list_node *ended, uint32_t limit)
{
	list_node *from = &reinterpret_cast<instant_adapter *>(adapter)->ended;
	uint32_t count = 0;

	for (; count < limit && !list_empty(from); count++)
		list_add_last(ended, list_pop_first(from));
	return count;
}

void instant_stats(l2_adapter *, l2_stats *)
{
}

void instant_close(l2_adapter *)
{
}

const l2_adapter_driver instant_driver = { "instant", instant_submit, instant_cancel, instant_poll, nullptr,
	instant_stats, instant_close };

instant_adapter *make_instant()
{
	instant_adapter *adapter = make_zeroed<instant_adapter>();

	adapter->base.driver = &instant_driver;
	list_init(&adapter->ended);
	return adapter;
}

// Of this thread's own: a machine that has other things to do does not count.
uint64_t thread_ns()
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return uint64_t(time.tv_sec) * KVR_SECOND + uint64_t(time.tv_nsec);
}

class L2Core : public Core
{
      public:
	L2Core() : Core(kObjects, &make_instant()->base), slow_(make_zeroed<request>())
	{
	}
	// Chains that stay in L1, for they are looked up all the time.
	uint64_t near_chain()
	{
		return chains - 1 - turn_++ % kNear;
	}
	// Nanoseconds from right after the rings were read to the reply.
	uint64_t worst_lookup(uint64_t chain)
	{
		uint64_t begin_ns;

		encode_lookup(chain);
		decode_lookup();
		begin_ns = thread_ns();
		management_step(management_, now());
		turns();
		begin_ns = thread_ns() - begin_ns;
		must(request_->reply.first == kChainChunks, "a chain that is in L1 was not found");
		begin_end(chain);
		turns();
		return begin_ns;
	}
	// A LOOKUP of a chain that is in L2 alone. Its turns are those of the lookups beside it.
	void begin_far(uint64_t chain)
	{
		slow_digests_.resize(size_t(kChainChunks) * WIRE_DIGEST_BYTES);
		for (uint32_t i = 0; i < kChainChunks; i++)
			make_digest(chain, i, &slow_digests_[size_t(i) * WIRE_DIGEST_BYTES]);
		std::memset(static_cast<void *>(slow_), 0, sizeof(*slow_));
		list_init(&slow_->node);
		slow_->connection = connection_;
		slow_->header.type = WIRE_LOOKUP;
		slow_->header.request_id = ++request_id_;
		slow_->message.lookup.header.type = WIRE_LOOKUP;
		slow_->message.lookup.registration = registration_->number;
		slow_->message.lookup.chunk_count = kChainChunks;
		slow_->message.lookup.session = name(chain, false);
		slow_id_ = id_;
		slow_->message.lookup.session.id.bytes = slow_id_.data();
		slow_->message.lookup.session.digests = slow_digests_.data();
		slow_->message.lookup.session.digest_count = kChainChunks;
		tell(TO_MANAGEMENT_REQUEST, slow_);
		slow_done_ = false;
	}
	bool far_under_way()
	{
		(void)answered(nullptr);
		return !slow_done_ || !l2_idle(l2_);
	}
	void end_far(uint64_t chain)
	{
		must(slow_->reply.status == STATUS_OK && slow_->reply.second == kChainChunks, "L2 did not bring it");
		end(chain);
	}
	static constexpr uint64_t kObjects = 1000000, kNear = 8;

      private:
	void turns()
	{
		tell(TO_MANAGEMENT_REQUEST, request_);
		do {
			management_step(management_, now());
		} while (!answered(request_));
	}
	bool answered(const request *wanted)
	{
		ring_message message;
		bool found = false;

		serve_control();
		while (ring_pop(&mailbox_->to_worker, &message)) {
			const auto *request = reinterpret_cast<const struct request *>(uintptr_t(message.word[0]));

			slow_done_ |= request == slow_;
			found |= request == wanted;
		}
		return found;
	}

	request *slow_;
	bool slow_done_ = true;
	std::string slow_id_;
	std::vector<uint8_t> slow_digests_;
	uint64_t turn_ = 0;
};

void lookup_beside_a_prefetch(benchmark::State &state)
{
	static L2Core core;
	std::vector<double> alone, beside;
	uint64_t far = 1u << 30;

	for (uint64_t i = 0; i < 4 * L2Core::kNear; i++)
		core.worst_lookup(core.near_chain());
	for (auto _ : state) {
		size_t begun = beside.size();

		far++;
		core.begin_far(far);
		while (core.far_under_way())
			beside.push_back(double(core.worst_lookup(core.near_chain())) * 1e-3);
		core.end_far(far);
		for (size_t count = beside.size() - begun; count > 0; count--)
			alone.push_back(double(core.worst_lookup(core.near_chain())) * 1e-3);
	}
	state.counters["alone_p50_us"] = percentile(alone, 0.5);
	state.counters["alone_p99_us"] = percentile(alone, 0.99);
	state.counters["beside_p50_us"] = percentile(beside, 0.5);
	state.counters["beside_p99_us"] = percentile(beside, 0.99);
	state.counters["delay_p99_us"] = percentile(beside, 0.99) - percentile(alone, 0.99);
	state.counters["lookups"] = double(beside.size());
}

} // namespace

BENCHMARK(lookup_beside_a_prefetch)->Iterations(400)->Unit(benchmark::kMicrosecond);

BENCHMARK_MAIN();
