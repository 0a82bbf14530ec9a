// stack_pages.h - pages of a client's KV pool against L1: RETRIEVE and STORE of all of it through the whole stack, next to
// memcpy of the same page list in the same order. 512 MiB on each side, sixteen times the last-level cache of 32 MiB.
#ifndef KVRAIL_BENCH_STACK_PAGES_H
#define KVRAIL_BENCH_STACK_PAGES_H

#include <numeric>
#include <random>

#include <benchmark/benchmark.h>

#include "stack.h"
#include "verbs/local/copy.h"

namespace bench
{

// The pool is planes x blocks x page bytes; requests of kRequestChunks chunks, whose blocks lie anywhere in the pool, go
// one after the other. Where a page lies in L1 is found by the tag in its first bytes.
class Pages
{
      public:
	static constexpr uint64_t kBytes = uint64_t(512) << 20;
	static constexpr uint32_t kChunkTokens = 256, kBlockTokens = 16, kPlanes = 8;
	static constexpr uint32_t kChunkBlocks = kChunkTokens / kBlockTokens;

	Pages(uint32_t page_bytes, uint32_t request_bytes)
		: page_bytes_(page_bytes), blocks_(uint32_t(kBytes / kPlanes / page_bytes)),
		  chunks_(blocks_ / kChunkBlocks),
		  request_chunks_(std::max(1u, request_bytes / (page_bytes * kPlanes * kChunkBlocks))), stack(kBytes),
		  order_(blocks_)
	{
		void *memory;

		must(kvr_alloc(stack.client, kBytes, &memory), "kvr_alloc");
		pool = static_cast<uint8_t *>(memory);
		std::memset(pool, 1, kBytes);
		std::iota(order_.begin(), order_.end(), 0u);
		register_pool();
	}
	~Pages()
	{
		end_session();
		must(kvr_unregister(stack.client, registration_), "kvr_unregister");
		must(kvr_free(stack.client, pool), "kvr_free");
	}
	Pages(const Pages &) = delete;
	Pages &operator=(const Pages &) = delete;

	// Other block ids from now on.
	void shuffle(unsigned seed)
	{
		std::shuffle(order_.begin(), order_.end(), std::mt19937(seed));
	}
	// Another chain, nothing of which is in L1 yet.
	void new_session(uint32_t number)
	{
		const std::string id = "session " + std::to_string(number);
		std::vector<uint32_t> tokens(size_t(chunks_) * kChunkTokens);

		end_session();
		for (size_t i = 0; i < tokens.size(); i++)
			tokens[i] = uint32_t(i) * 7 + number;
		must(kvr_session_create(stack.client, registration_, id.c_str(), nullptr, &session_),
			"kvr_session_create");
		must(kvr_session_tokens(session_, tokens.data(), tokens.size()), "kvr_session_tokens");
	}
	// Every page gets the number of its place in the chain.
	void tag(uint64_t salt)
	{
		salt_ = salt << 32;
		for_each_page([&](uint64_t number, uint8_t *page) { set_tag(page, salt_ | number); });
	}
	void poison()
	{
		for_each_page([&](uint64_t, uint8_t *page) { set_tag(page, 0); });
	}
	void check()
	{
		for_each_page([&](uint64_t number, uint8_t *page) {
			must(get_tag(page) == (salt_ | number) ? 0 : EILSEQ, "a page came back wrong");
		});
	}
	// Where in L1 each page is.
	void find()
	{
		const uint8_t *const l1 = static_cast<uint8_t *>(stack.l1.address);

		found_.assign(uint64_t(blocks_) * kPlanes, nullptr);
		for (uint64_t at = 0; at < kBytes; at += page_bytes_) {
			const uint64_t word = get_tag(l1 + at);

			if (word >> 32 == salt_ >> 32)
				found_[uint32_t(word)] = const_cast<uint8_t *>(l1 + at);
		}
		for (const uint8_t *place : found_)
			must(place ? 0 : ENOENT, "a page is not in L1");
	}
	double move(bool store)
	{
		const uint64_t begin_ns = clock_now_ns();

		for (uint32_t first = 0; first < chunks_; first += request_chunks_) {
			kvr_transfer transfer = KVR_TRANSFER_INIT;
			kvr_blocks blocks;
			kvr_result result;

			transfer.first_chunk = first;
			transfer.chunk_count = std::min(request_chunks_, chunks_ - first);
			blocks.ids = order_.data() + size_t(first) * kChunkBlocks;
			blocks.count = transfer.chunk_count * kChunkBlocks;
			transfer.group_count = 1;
			transfer.groups = &blocks;
			if (store)
				must(kvr_store(session_, &transfer, 0, &result), "kvr_store");
			else
				must(kvr_retrieve(session_, &transfer, 0, &result), "kvr_retrieve");
			must(result.chunks == transfer.chunk_count ? 0 : EIO, "not all chunks");
		}
		return double(clock_now_ns() - begin_ns) * 1e-9;
	}
	// The same pages in the same order: by memcpy, or by the driver's own copy with nothing around it.
	double copy(bool store, bool streamed)
	{
		const uint64_t begin_ns = clock_now_ns();

		for_each_page([&](uint64_t number, uint8_t *page) {
			uint8_t *const place = found_[number];

			if (streamed)
				local_copy(store ? place : page, store ? page : place, page_bytes_, nullptr);
			else
				std::memcpy(store ? place : page, store ? page : place, page_bytes_);
		});
		local_copy_flush();
		return double(clock_now_ns() - begin_ns) * 1e-9;
	}

      private:
	uint32_t page_bytes_, blocks_, chunks_, request_chunks_;

      public:
	Stack stack;
	uint8_t *pool = nullptr;

      private:
	static void set_tag(uint8_t *page, uint64_t word)
	{
		std::memcpy(page, &word, sizeof(word));
	}
	static uint64_t get_tag(const uint8_t *page)
	{
		uint64_t word;

		std::memcpy(&word, page, sizeof(word));
		return word;
	}
	// In the order in which the server moves them: request by request, in each plane by plane.
	template <typename Call> void for_each_page(Call call)
	{
		for (uint32_t first = 0; first < chunks_; first += request_chunks_) {
			const uint32_t end = std::min(first + request_chunks_, chunks_) * kChunkBlocks;

			for (uint32_t plane = 0; plane < kPlanes; plane++) {
				uint8_t *const base = pool + uint64_t(plane) * blocks_ * page_bytes_;

				for (uint32_t i = first * kChunkBlocks; i < end; i++)
					call(uint64_t(plane) * blocks_ + i, base + uint64_t(order_[i]) * page_bytes_);
			}
		}
	}
	void register_pool()
	{
		kvr_plane planes[kPlanes];
		kvr_group group = { kBlockTokens, KVR_WINDOW_FULL, blocks_, kPlanes, planes };
		kvr_layout layout = { sizeof(layout), 1, &group };
		kvr_model model = KVR_MODEL_INIT;

		for (uint32_t p = 0; p < kPlanes; p++)
			planes[p] = { pool + uint64_t(p) * blocks_ * page_bytes_, page_bytes_, page_bytes_ };
		model.name = "bench";
		model.dtype = "uint8";
		must(kvr_register(stack.client, &model, &layout, nullptr, &registration_), "kvr_register");
	}
	void end_session()
	{
		if (!session_)
			return;
		must(kvr_end(session_, 0), "kvr_end");
		must(kvr_session_destroy(&session_), "kvr_session_destroy");
	}

	std::vector<uint32_t> order_;
	std::vector<uint8_t *> found_;
	uint32_t registration_ = 0;
	uint64_t salt_ = 0;
	kvr_session *session_ = nullptr;
};

// range(0): page bytes; range(1): bytes of a request. Rounds of all are interleaved; the counters are medians, and the
// least and the greatest of the ratios. overhead: how much longer it takes than the driver's bare copy of the list.
inline void run_pages(benchmark::State &state, bool store)
{
	Pages pages(uint32_t(state.range(0)), uint32_t(state.range(1)));
	std::vector<double> plain, whole, ratio, overhead;
	uint32_t round = 0;

	for (auto _ : state) {
		double moved, copied, streamed;

		round++;
		pages.shuffle(round);
		if (store || round == 1) {
			pages.new_session(round);
			pages.tag(round);
			moved = pages.move(true);
			pages.find();
		}
		if (!store) {
			pages.shuffle(1000 + round);
			pages.poison();
			moved = pages.move(false);
			pages.check();
		}
		copied = pages.copy(store, false);
		streamed = pages.copy(store, true);
		plain.push_back(double(Pages::kBytes) / copied * 1e-9);
		whole.push_back(double(Pages::kBytes) / moved * 1e-9);
		ratio.push_back(copied / moved);
		overhead.push_back(moved / streamed - 1);
		state.SetIterationTime(moved);
	}
	state.counters["memcpy_GBps"] = percentile(plain, 0.5);
	state.counters["GBps"] = percentile(whole, 0.5);
	state.counters["ratio"] = percentile(ratio, 0.5);
	state.counters["ratio_min"] = percentile(ratio, 0);
	state.counters["ratio_max"] = percentile(ratio, 1);
	state.counters["overhead"] = percentile(overhead, 0.5);
	state.SetLabel("huge pages: L1 " + huge_pages(pages.stack.l1.address) + ", pool " + huge_pages(pages.pool));
}

} // namespace bench

#endif
