// core.h - a management core over the real chunk table whose worker and control thread are the program: it hands decoded
// requests over and takes the replies. L1 is address space without memory behind it, since nobody moves bytes here.
#ifndef KVRAIL_BENCH_CORE_H
#define KVRAIL_BENCH_CORE_H

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "protocol/digest.h"
#include "tier/cache.h"
#include "tier/l1.h"
#include "worker/mailbox.h"
// C has a struct and a function of one name, which g++ calls hiding.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "mgmt/management.h"
#include "mgmt/prefetch_l2.h"
#pragma GCC diagnostic pop

namespace bench
{

constexpr uint32_t kChainChunks = 512;
constexpr uint64_t kObjectBytes = 64 << 10;
constexpr uint32_t kChunkTokens = 256, kBlockTokens = 16;
constexpr size_t kMessageBytes = 64 << 10;

[[noreturn]] inline void fail(const char *what)
{
	std::fprintf(stderr, "bench: %s\n", what);
	std::exit(1);
}

inline void must(bool good, const char *what)
{
	if (!good)
		fail(what);
}

template <typename T> T *make_zeroed()
{
	const size_t bytes = kvr_round_up(sizeof(T), KVR_CACHE_LINE);
	void *const memory = std::aligned_alloc(KVR_CACHE_LINE, bytes);

	must(memory != nullptr, "no memory");
	std::memset(memory, 0, bytes);
	return static_cast<T *>(memory);
}

// Any 256 bits that are spread like a hash.
inline void make_digest(uint64_t chain, uint64_t chunk, uint8_t *digest)
{
	for (uint64_t i = 0; i < WIRE_DIGEST_BYTES / 8; i++) {
		const uint64_t word = random_mix((chain * kChainChunks + chunk) * 4 + i + 1);

		std::memcpy(digest + 8 * i, &word, sizeof(word));
	}
}

class Core
{
      public:
	explicit Core(uint64_t objects, l2_adapter *adapter = nullptr) : chains(objects / kChainChunks)
	{
		log_set_level(LOG_ERROR);
		make_table(objects);
		if (adapter)
			make_l2(adapter);
		make_management();
		attach();
		for (uint64_t chain = 0; chain < chains; chain++)
			store(chain);
		must(stats().objects == chains * kChainChunks, "not all chains were stored");
	}

	// Nanoseconds of the server's time.
	uint64_t lookup(uint64_t chain)
	{
		uint64_t begin_ns;

		encode_lookup(chain);
		begin_ns = clock_now_ns();
		decode_lookup();
		run();
		begin_ns = clock_now_ns() - begin_ns;
		must(request_->reply.first == kChainChunks, "a chain that is there was not found");
		return begin_ns;
	}
	// The same, until what the session held is released and touched, over some turns.
	uint64_t end(uint64_t chain)
	{
		uint64_t begin_ns;

		begin_end(chain);
		begin_ns = clock_now_ns();
		run();
		while (management_step(management_, now()))
			;
		return clock_now_ns() - begin_ns;
	}
	cache_stats stats() const
	{
		cache_stats stats;

		cache_get_stats(cache_, &stats);
		return stats;
	}
	const uint64_t chains;

      protected:
	void make_table(uint64_t objects)
	{
		cache_options options = {};
		l1_area area = {};

		area.bytes = (objects + kChainChunks) * kObjectBytes;
		area.numa_node = -1;
		area.address = mmap(nullptr, area.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		must(area.address != MAP_FAILED && l1_create(&area, 1, &l1_) == 0, "no address space for L1");
		options.l1 = l1_;
		options.spaces_max = 16;
		options.chunks_initial = 65536;
		options.high_permille = options.low_permille = 1000;
		must(cache_create(&options, &cache_) == 0, "no memory for the table");
	}
	void make_l2(l2_adapter *adapter)
	{
		l2_options options = {};

		options.cache = cache_;
		options.l1 = l1_;
		options.adapters[0] = adapter;
		options.adapter_count = 1;
		options.callbacks = prefetch_l2_callbacks;
		options.policy = L2_STORE_NONE;
		must(l2_create(&options, &l2_) == 0, "L2");
	}
	void make_management()
	{
		management_options options = {};
		prefetch_engine engine = {};
		const uint32_t lkey = 1;

		mailbox_ = make_zeroed<mailbox>();
		must(mailbox_init(mailbox_, 64, 4) == 0, "mailbox");
		options.cache = cache_;
		options.l1 = l1_;
		options.mailboxes = &mailbox_;
		options.worker_count = 1;
		options.area_lkeys = &lkey;
		options.area_count = 1;
		options.connections_max = 4;
		options.sessions_max = 4096;
		options.chain_chunks_max = 262144;
		options.large_requests = 4;
		options.chunk_tokens = kChunkTokens;
		options.lock_ttl_ns = 300 * KVR_SECOND;
		options.session_ttl_ns = 600 * KVR_SECOND;
		if (l2_) {
			prefetch_l2_engine(l2_, 0, &engine);
			options.prefetch = &engine;
		}
		must(management_create(&options, &management_) == 0, "management");
	}
	void attach()
	{
		connection_ = make_zeroed<connection>();
		connection_->credits = 32;
		request_ = make_zeroed<request>();
		registration_ = make_zeroed<registration>();
		registration_->connection = connection_;
		registration_->number = 1;
		registration_->world_size = registration_->readers = 1;
		registration_->model_key[0] = 1;
		std::strcpy(registration_->model_name, "bench");
		std::strcpy(registration_->dtype, "uint8");
		registration_->layout = static_cast<layout *>(std::calloc(1, layout_bytes(1)));
		must(registration_->layout != nullptr, "no memory");
		registration_->layout->chunk_tokens = kChunkTokens;
		registration_->layout->group_count = registration_->layout->plane_count = 1;
		registration_->layout->groups[0].tokens_per_block = kBlockTokens;
		registration_->layout->groups[0].blocks_per_chunk = kChunkTokens / kBlockTokens;
		registration_->layout->groups[0].block_count = 1 << 20;
		registration_->layout->groups[0].window_tokens = WIRE_WINDOW_FULL;
		registration_->layout->groups[0].plane_count = 1;
		registration_->layout->groups[0].object_bytes = kObjectBytes;
		tell_control(MANAGEMENT_ATTACH, connection_, 0);
		tell_control(MANAGEMENT_REGISTER, registration_, 0);
		while (!registered_)
			turn();
		must(registration_->reply_status == STATUS_OK, "the registration was refused");
	}
	uint64_t now()
	{
		return now_ns_ += KVR_US;
	}
	void push(ring *ring, uint32_t kind, void *object, uint64_t word)
	{
		ring_message message = {};

		message.kind = kind;
		message.word[0] = uint64_t(uintptr_t(object));
		message.word[1] = word;
		must(ring_push(ring, &message), "a ring is full");
	}
	void tell_control(uint32_t kind, void *object, uint64_t word)
	{
		push(management_inbox(management_), kind, object, word);
	}
	void tell(uint32_t kind, void *object)
	{
		push(&mailbox_->to_management, kind, object, 0);
	}
	// The control thread's part.
	void serve_control()
	{
		ring_message message;

		while (ring_pop(management_outbox(management_), &message)) {
			if (message.kind == CONTROL_REGISTERED)
				registered_ = true;
			else if (message.kind == CONTROL_GARBAGE)
				std::free(reinterpret_cast<void *>(uintptr_t(message.word[0])));
			else if (message.kind == CONTROL_WANT_MEMORY)
				tell_control(
					MANAGEMENT_MEMORY, cache_allocate_memory(message.word[0]), message.word[0]);
		}
	}
	// True when the request was answered.
	bool serve_worker()
	{
		ring_message message;
		bool answered = false;

		while (ring_pop(&mailbox_->to_worker, &message)) {
			if (message.kind == TO_WORKER_REPLY) {
				answered = true;
			} else if (message.kind == TO_WORKER_TRANSFER) {
				std::memset(request_->transfer.outcomes, CHUNK_STORED, kChainChunks);
				tell(TO_MANAGEMENT_TRANSFER_DONE, request_);
			}
		}
		return answered;
	}
	bool turn()
	{
		management_step(management_, now());
		serve_control();
		return serve_worker();
	}
	session_ref name(uint64_t chain, bool with_chain)
	{
		session_ref ref = {};

		id_ = "chain " + std::to_string(chain);
		ref.id.bytes = id_.data();
		ref.id.length = uint32_t(id_.size());
		ref.salt = salt_;
		ref.parent = digest_seed;
		if (!with_chain)
			return ref;
		digests_.resize(size_t(kChainChunks) * WIRE_DIGEST_BYTES);
		for (uint32_t i = 0; i < kChainChunks; i++)
			make_digest(chain, i, &digests_[size_t(i) * WIRE_DIGEST_BYTES]);
		ref.digests = digests_.data();
		ref.digest_count = kChainChunks;
		return ref;
	}
	void begin(uint16_t type, size_t length)
	{
		std::memset(static_cast<void *>(request_), 0, sizeof(*request_));
		list_init(&request_->node);
		request_->connection = connection_;
		request_->header.type = type;
		request_->header.request_id = ++request_id_;
		request_->bytes = bytes_.data();
		request_->length = uint32_t(length);
	}
	// The bytes of a LOOKUP of that chain, as a client sends them.
	void encode_lookup(uint64_t chain)
	{
		lookup_request message = {};

		message.header.type = WIRE_LOOKUP;
		message.registration = registration_->number;
		message.chunk_count = kChainChunks;
		message.session = name(chain, true);
		length_ = lookup_request_encode(bytes_.data(), bytes_.size(), &message);
		must(length_ > 0, "encode");
		begin(WIRE_LOOKUP, size_t(length_));
	}
	void decode_lookup()
	{
		must(lookup_request_decode(bytes_.data(), size_t(length_), &request_->message.lookup, &error_) == 0,
			"decode");
	}
	void begin_end(uint64_t chain)
	{
		begin(WIRE_END_SESSION, 0);
		request_->message.end_session.registration = registration_->number;
		request_->message.end_session.session = name(chain, false);
	}
	void run()
	{
		tell(TO_MANAGEMENT_REQUEST, request_);
		while (!turn())
			;
		must(request_->reply.status == STATUS_OK, "a request was refused");
		if (request_->large)
			tell(TO_MANAGEMENT_PARTS, request_->large);
	}
	void store(uint64_t chain)
	{
		const block_run run_of_blocks = { 0, kChainChunks * kChunkTokens / kBlockTokens };
		const uint32_t runs = 1;
		transfer_request *message;

		begin(WIRE_STORE, 0);
		message = &request_->message.transfer;
		message->header.type = WIRE_STORE;
		message->registration = registration_->number;
		message->chunk_count = kChainChunks;
		message->group_count = message->run_count = 1;
		message->group_runs = reinterpret_cast<const uint8_t *>(&runs);
		message->runs = reinterpret_cast<const uint8_t *>(&run_of_blocks);
		message->session = name(chain, true);
		run();
		end(chain);
	}

	l1 *l1_ = nullptr;
	cache *cache_ = nullptr;
	l2 *l2_ = nullptr;
	mailbox *mailbox_ = nullptr;
	management *management_ = nullptr;
	connection *connection_ = nullptr;
	registration *registration_ = nullptr;
	request *request_ = nullptr;
	bool registered_ = false;
	uint64_t now_ns_ = KVR_SECOND, request_id_ = 0;
	ssize_t length_ = 0; // of the LOOKUP in bytes_
	uint8_t salt_[WIRE_DIGEST_BYTES] = {};
	std::string id_;
	std::vector<uint8_t> digests_, bytes_ = std::vector<uint8_t>(kMessageBytes);
	wire_error error_ = {};
};

} // namespace bench

#endif
