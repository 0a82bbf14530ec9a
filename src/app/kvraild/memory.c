/* memory.c - L1's areas: one on each NUMA node that the topology plan names, touched by threads of that node. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "app/kvraild/daemon.h"
#include "base/atomic.h"
#include "base/text.h"
#include "poll/cores.h"

#define TOUCH_THREADS 16

/* Of the area that is being touched. */
struct touching {
	struct daemon *daemon;
	int node; /* -1: any */
	uint64_t bytes;
	int cpus[TOUCH_THREADS];
	uint32_t cpu_count;
};

/* To a core of the node: pages that the kernel is free to place come from there, and zeroing them crosses no socket link. */
static void touch_thread_begin(void *context, unsigned thread)
{
	const struct touching *touching = context;

	if (touching->cpu_count && cores_move_self(touching->cpus[thread % touching->cpu_count]) != 0)
		log_debug("memory: a thread that touches can't be put on core %d",
			touching->cpus[thread % touching->cpu_count]);
}

static double gib_per_second(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes / (double)(1ULL << 30) / ((double)ns / (double)KVR_SECOND) : 0;
}

static void touch_progress(void *context, uint64_t touched, uint64_t ns)
{
	const struct touching *touching = context;
	char part[TEXT_SHORT], whole[TEXT_SHORT], where[32] = "";

	if (touching->node >= 0)
		snprintf(where, sizeof(where), " of node %d", touching->node);
	log_info("memory: %s of %s%s touched, %.1f GiB/s", text_size(part, touched), text_size(whole, touching->bytes),
		where, gib_per_second(touched, ns));
}

static void find_cpus(struct touching *touching)
{
	const struct daemon *daemon = touching->daemon;

	if (daemon->machine) {
		touching->cpu_count = plan_touch_cpus(daemon->machine, touching->node, touching->cpus, TOUCH_THREADS);
		return;
	}
	touching->cpu_count = (uint32_t)kvr_min_u64(daemon->allowed_count, TOUCH_THREADS);
	memcpy(touching->cpus, daemon->allowed, touching->cpu_count * sizeof(touching->cpus[0]));
}

/* node: to bind to; -1: not. `touching` lives as long as the options are used. */
static struct l1_map_options describe_area(struct daemon *daemon, uint64_t bytes, int node, struct touching *touching)
{
	struct l1_map_options options;

	memset(touching, 0, sizeof(*touching));
	touching->daemon = daemon;
	touching->node = node;
	touching->bytes = bytes;
	find_cpus(touching);
	memset(&options, 0, sizeof(options));
	options.bytes = bytes;
	options.numa_node = node;
	options.threads = touching->cpu_count;
	options.stop = &daemon_signals.leave;
	options.thread_begin = touch_thread_begin;
	options.progress = touch_progress;
	options.context = touching;
	return options;
}

static void have_area(struct daemon *daemon, int node)
{
	const struct l1_mapping *mapping = &daemon->memory[daemon->area_count];

	daemon->areas[daemon->area_count++] = (struct l1_area){ mapping->address, mapping->bytes, node };
}

static int map_area(struct daemon *daemon, uint64_t bytes, int node)
{
	struct touching touching;
	struct l1_map_options options = describe_area(daemon, bytes, node, &touching);
	int error = l1_map_area(&options, &daemon->memory[daemon->area_count]);

	if (!error)
		have_area(daemon, node);
	return error;
}

/* A machine of one node needs no binding, which some containers refuse. */
static bool has_nodes(const struct daemon *daemon)
{
	return daemon->machine && daemon->machine->node_count > 1;
}

/* --l1-keep: areas are files, and may be full. */
static int map_kept(struct daemon *daemon)
{
	struct l1_map_options areas[L1_AREAS_MAX];
	struct touching touching[L1_AREAS_MAX];
	const struct plan *topology = daemon->topology;
	uint32_t count = topology ? topology->arena_count : 0;
	struct keep_file_options options;
	int error;

	memset(&options, 0, sizeof(options));
	for (uint32_t i = 0; i < count; i++)
		areas[i] = describe_area(daemon, topology->arenas[i].bytes,
			has_nodes(daemon) ? topology->arenas[i].node : -1, &touching[i]);
	if (count == 0)
		areas[count++] = describe_area(daemon, daemon->settings->l1_bytes, -1, &touching[0]);
	options.directory = daemon->settings->l1_keep;
	options.areas = areas;
	options.area_count = count;
	options.chunk_tokens = daemon->settings->chunk_tokens;
	error = keep_file_open(&options, &daemon->kept);
	for (uint32_t i = 0; !error && i < count; i++) {
		daemon->memory[i] = daemon->kept.areas[i];
		have_area(daemon, topology && topology->arena_count ? topology->arenas[i].node : -1);
	}
	return error;
}

static int map_all(struct daemon *daemon)
{
	const struct plan *topology = daemon->topology;
	int error = 0;

	if (daemon->settings->l1_keep[0])
		return map_kept(daemon);

	if (!topology || topology->arena_count == 0)
		return map_area(daemon, daemon->settings->l1_bytes, -1);
	for (uint32_t i = 0; !error && i < topology->arena_count; i++) {
		const struct plan_arena *arena = &topology->arenas[i];

		error = map_area(daemon, arena->bytes, has_nodes(daemon) ? arena->node : -1);
		if (error == -ENOMEM && has_nodes(daemon)) {
			log_warn("memory: node %d can't give it: it comes from other nodes", arena->node);
			error = map_area(daemon, arena->bytes, -1);
		}
		if (!error && !has_nodes(daemon))
			daemon->areas[i].numa_node = arena->node;
	}
	return error;
}

uint64_t daemon_l1_bytes(const struct daemon *daemon)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < daemon->area_count; i++)
		bytes += daemon->memory[i].bytes;
	return bytes;
}

enum l1_page_kind daemon_l1_pages(const struct daemon *daemon)
{
	enum l1_page_kind worst = L1_PAGES_1G;

	for (uint32_t i = 0; i < daemon->area_count; i++) {
		if (daemon->memory[i].pages > worst)
			worst = daemon->memory[i].pages;
	}
	return worst;
}

/* One line an area, and the sum. */
static void say_areas(struct daemon *daemon, char *detail, size_t size)
{
	char bytes[TEXT_SHORT], time[TEXT_SHORT], where[64];
	uint64_t touch_ns = 0;
	bool locked = true;

	for (uint32_t i = 0; i < daemon->area_count; i++) {
		const struct l1_mapping *area = &daemon->memory[i];

		touch_ns += area->touch_ns;
		locked &= area->locked;
		where[0] = '\0';
		if (area->pages_sampled)
			snprintf(where, sizeof(where), ", %.1f %% of it there",
				100.0 * area->pages_on_node / area->pages_sampled);
		log_info("memory: %s on node %d in %s, touched by %u threads in %s (%.1f GiB/s)%s",
			text_size(bytes, area->bytes), daemon->areas[i].numa_node, l1_page_kind_text(area->pages),
			area->touch_threads, text_time(time, area->touch_ns),
			gib_per_second(area->bytes, area->touch_ns), where);
	}
	snprintf(detail, size, "%s in %s, touched in %s, %s", text_size(bytes, daemon_l1_bytes(daemon)),
		l1_page_kind_text(daemon_l1_pages(daemon)), text_time(time, touch_ns),
		locked ? "locked" : "not locked");
}

int daemon_start_memory(struct daemon *daemon, char *detail, size_t size)
{
	int error = map_all(daemon);

	if (error == -EINTR)
		log_info("a signal came while memory was touched");
	if (error) {
		daemon_finish_memory(daemon);
		return error;
	}
	if (daemon_l1_pages(daemon) == L1_PAGES_NORMAL)
		log_warn(
			"L1 is on 4 KiB pages: with huge pages lookups and copies are faster and a NIC needs fewer entries; reserve them "
			"(vm.nr_hugepages) or switch transparent ones on");
	say_areas(daemon, detail, size);
	return 0;
}

void daemon_finish_memory(struct daemon *daemon)
{
	if (daemon->forced)
		return;
	if (daemon->settings->l1_keep[0]) {
		daemon->area_count = 0;
		keep_file_close(&daemon->kept);
	}
	while (daemon->area_count > 0)
		l1_unmap(&daemon->memory[--daemon->area_count]);
}
