// stack.h - a whole server on threads of its own and one client, in one process over the local driver: what benchmarks
// of requests need. One thread steps the worker and the management core and never sleeps, as kvraild does on a machine
// with few cores; the control thread sleeps between its steps.
#ifndef KVRAIL_BENCH_STACK_H
#define KVRAIL_BENCH_STACK_H

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "kvrail.h"
#include "numbers.h"
// C has a struct and a function of one name (loop_counters), which g++ calls hiding.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "mgmt/server.h"
#include "poll/loop.h"
#pragma GCC diagnostic pop
#include "tier/l1_map.h"
#include "verbs/driver.h"

namespace bench
{

inline void must(int error, const char *what)
{
	if (error == 0)
		return;
	std::fprintf(stderr, "%s: %s (%s)\n", what, std::strerror(error < 0 ? -error : error), kvr_error_text());
	std::exit(1);
}

// Kilobytes of huge pages behind the mapping that holds `address`, of all of it in kilobytes: "524288/524288".
inline std::string huge_pages(const void *address)
{
	std::FILE *file = std::fopen("/proc/self/smaps", "re");
	const unsigned long wanted = reinterpret_cast<unsigned long>(address);
	unsigned long begin, end, value, size = 0, huge = 0;
	bool inside = false;
	char line[512];

	while (file && std::fgets(line, sizeof(line), file)) {
		if (std::sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			inside = wanted >= begin && wanted < end;
		else if (inside && std::sscanf(line, "Size: %lu", &value) == 1)
			size = value;
		else if (inside &&
			(std::sscanf(line, "AnonHugePages: %lu", &value) == 1 ||
				std::sscanf(line, "ShmemPmdMapped: %lu", &value) == 1 ||
				std::sscanf(line, "Shared_Hugetlb: %lu", &value) == 1 ||
				std::sscanf(line, "Private_Hugetlb: %lu", &value) == 1))
			huge += value;
	}
	if (file)
		std::fclose(file);
	return std::to_string(huge / 1024) + "/" + std::to_string(size / 1024) + " MiB";
}

class Stack
{
      public:
	explicit Stack(uint64_t l1_bytes, uint64_t slice_bytes = 0)
	{
		char directory[] = "/tmp/kvrail-bench-XXXXXX";

		log_set_level(LOG_ERROR);
		must(mkdtemp(directory) ? 0 : errno, "mkdtemp");
		directory_ = directory;
		path_ = directory_ + "/kvrail.sock";
		make_server(l1_bytes, slice_bytes);
		start_threads();
		client = connect();
	}
	~Stack()
	{
		kvr_close(&client);
		draining_.store(true);
		control_.join();
		loop_destroy(&loop_);
		server_destroy(&server_);
		verbs_local.close(device_);
		l1_unmap(&l1);
		unlink(path_.c_str());
		rmdir(directory_.c_str());
	}
	Stack(const Stack &) = delete;
	Stack &operator=(const Stack &) = delete;

	// Whether the serving thread never sleeps. While it does, its core is free for something else.
	void poll(bool busy)
	{
		loop_set_waiting(loop_, busy ? LOOP_BUSY : LOOP_ADAPTIVE);
		if (busy)
			loop_wake(loop_);
		else
			std::this_thread::sleep_for(std::chrono::milliseconds(2));
	}

	// Another client of this server, the caller's to close before the stack goes.
	kvr_client *connect()
	{
		const std::string url = "unix:" + path_;
		kvr_options options = KVR_OPTIONS_INIT;
		kvr_client *opened;

		options.url = url.c_str();
		options.name = "bench";
		must(kvr_open(&options, &opened), "kvr_open");
		return opened;
	}
	// Of the serving thread: time of turns that found work.
	uint64_t busy_ns() const
	{
		return kvr_load_relaxed(&loop_counters(loop_)->busy_ns);
	}

	kvr_client *client = nullptr;
	l1_mapping l1 = {};

      private:
	void make_server(uint64_t l1_bytes, uint64_t slice_bytes)
	{
		server_options options;
		verbs_open open = {};

		must(l1_map(l1_bytes, -1, 1, nullptr, &l1), "l1_map");
		area_.address = l1.address;
		area_.bytes = l1_bytes;
		area_.numa_node = -1;
		std::strcpy(tenant_.name, "default");
		tenant_.may_clear = true;
		open.server = true;
		open.slice_bytes = slice_bytes;
		must(verbs_local.open(&open, &device_), "local driver");
		server_options_default(&options);
		options.areas = &area_;
		options.area_count = 1;
		options.worker_count = 1;
		options.devices[0] = device_;
		options.tenants = &tenant_;
		options.tenant_count = 1;
		must(server_create(&options, &server_), "server");
	}
	static bool step_worker(void *context, uint64_t now_ns)
	{
		return worker_step(server_worker(static_cast<Stack *>(context)->server_, 0), now_ns);
	}
	static bool step_management(void *context, uint64_t now_ns)
	{
		return management_step(server_management(static_cast<Stack *>(context)->server_), now_ns);
	}
	void start_threads()
	{
		loop_options options = {};
		stream_address address;
		int listener;

		std::strcpy(options.name, "bench-serve");
		options.parts[0].context = this;
		options.parts[0].step = step_worker;
		options.parts[0].fd = -1;
		options.parts[1].context = this;
		options.parts[1].step = step_management;
		options.parts[1].fd = -1;
		options.part_count = 2;
		options.waiting = LOOP_BUSY;
		options.core = -1;
		must(loop_create(&options, &loop_), "loop");
		must(stream_parse_address(("unix:" + path_).c_str(), &address), "address");
		must(stream_listen(&address, 0600, &listener), "listen");
		must(loop_start(loop_), "loop");
		control_ = std::thread([this, listener] { run_control(listener); });
	}
	void run_control(int listener)
	{
		control *const control = server_control(server_);
		bool draining = false;

		while (!draining || !control_idle(control)) {
			stream *accepted;

			if (stream_accept(listener, true, &accepted) == 0)
				must(control_accept(control, accepted, clock_now_ns()), "accept");
			if (!draining && draining_.load()) {
				control_drain(control, clock_now_ns());
				draining = true;
			}
			if (!control_step(control, clock_now_ns()))
				std::this_thread::sleep_for(std::chrono::milliseconds(1));
		}
		close(listener);
	}
	std::string directory_, path_;
	control_tenant tenant_ = {};
	l1_area area_ = {};
	verbs_device *device_ = nullptr;
	server *server_ = nullptr;
	loop *loop_ = nullptr;
	std::thread control_;
	std::atomic<bool> draining_{ false };
};

} // namespace bench

#endif
