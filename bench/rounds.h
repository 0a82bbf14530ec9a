// rounds.h - rounds of one operation on an adapter of L2, as the management core drives it: so many requests under way, polled for.
#ifndef KVRAIL_BENCH_ROUNDS_H
#define KVRAIL_BENCH_ROUNDS_H

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "tier/adapter.h"

namespace bench
{

class Rounds
{
      public:
	// Objects of `block` bytes, `blocks` in a round, `depth` under way at once; memory: depth * block bytes, the caller's.
	Rounds(struct l2_adapter *adapter, uint64_t block, unsigned blocks, unsigned depth, uint8_t *memory)
		: adapter_(adapter), block_(block), blocks_(blocks), depth_(depth), memory_(memory), requests_(depth)
	{
	}
	// The objects from number `first` on, each once. Bytes a nanosecond; 0 when a request failed.
	double run(enum l2_operation operation, unsigned first)
	{
		uint64_t began = clock_now_ns();
		std::vector<struct l2_request *> idle;
		unsigned begun = 0, ended = 0;
		bool good = true;

		for (auto &request : requests_)
			idle.push_back(&request);
		while (ended < blocks_) {
			struct list_node list;

			for (; begun < blocks_ && !idle.empty(); begun++) {
				begin(idle.back(), operation, first + begun);
				idle.pop_back();
			}
			list_init(&list);
			// Gives the core away where there is only one: the caller is the management core, which has others
			// to serve.
			if (adapter_->driver->poll(adapter_, &list, depth_) == 0)
				usleep(20);
			while (struct list_node *node = list_pop_first(&list)) {
				struct l2_request *request = KVR_CONTAINER_OF(node, struct l2_request, node);

				good &= request->status == 0;
				idle.push_back(request);
				ended++;
			}
		}
		return good ? static_cast<double>(blocks_ * block_) / static_cast<double>(clock_now_ns() - began) : 0;
	}

      private:
	void begin(struct l2_request *request, enum l2_operation operation, unsigned number)
	{
		size_t slot = static_cast<size_t>(request - requests_.data());

		*request = {};
		request->operation = operation;
		request->identity.bytes = block_;
		for (int i = 0; i < 32; i += 8) {
			uint64_t word = random_mix(static_cast<uint64_t>(number) << 8 | static_cast<uint64_t>(i));

			memcpy(request->identity.digest + i, &word, 8);
		}
		request->memory = memory_ + slot * block_;
		while (adapter_->driver->submit(adapter_, request) != 0)
			usleep(20);
	}

	struct l2_adapter *adapter_;
	uint64_t block_;
	unsigned blocks_, depth_;
	uint8_t *memory_;
	std::vector<struct l2_request> requests_;
};

} // namespace bench

#endif
