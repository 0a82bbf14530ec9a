/*
 * memory.c - L1's areas: one on each NUMA node that the topology plan names, touched by threads of that node. Where an adapter registers
 * no region of that size, or --l1-slice says so, several: an object lies in one area, so that no transfer ever crosses two regions.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "app/kvraild/daemon.h"
#include "base/atomic.h"
#include "base/text.h"
#include "poll/cores.h"

#define TOUCH_THREADS 16
#define SLICE_UNIT_LARGE ((uint64_t)1 << 30) /* slices are whole pages of any size */
#define SLICE_UNIT ((uint64_t)2 << 20)

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

/* An area to be. */
struct piece {
	uint64_t bytes;
	int node;
};

/* UINT64_MAX: areas are as large as they come. */
static uint64_t slice_bytes(const struct daemon *daemon)
{
	uint64_t bytes = daemon->settings->l1_slice ? daemon->settings->l1_slice : UINT64_MAX;

	for (uint32_t i = 0; i < daemon->remote_count; i++)
		bytes = kvr_min_u64(bytes, daemon->remotes[i]->limits.max_region_bytes);
	if (bytes == UINT64_MAX)
		return bytes;
	return bytes - bytes % (bytes >= SLICE_UNIT_LARGE ? SLICE_UNIT_LARGE : SLICE_UNIT);
}

static int too_many_pieces(const struct daemon *daemon, uint64_t slice)
{
	char size[TEXT_SHORT], whole[TEXT_SHORT];

	log_error(
		"memory: L1 of %s would be more than %u slices of %s: a smaller --l1-size, or, where it is not the adapter's limit, a "
		"larger --l1-slice",
		text_size(whole, daemon->settings->l1_bytes), L1_AREAS_MAX, text_size(size, slice));
	return -EINVAL;
}

/* 0, or -EINVAL: there would be too many. */
static int list_pieces(const struct daemon *daemon, struct piece pieces[L1_AREAS_MAX], uint32_t *count)
{
	const struct plan *topology = daemon->topology;
	uint32_t arenas = topology ? topology->arena_count : 0;
	uint64_t slice = slice_bytes(daemon);
	char size[TEXT_SHORT];

	*count = 0;
	if (slice == 0)
		return too_many_pieces(daemon, slice);
	for (uint32_t i = 0; i < (arenas ? arenas : 1); i++) {
		uint64_t left = arenas ? topology->arenas[i].bytes : daemon->settings->l1_bytes;

		while (left > 0) {
			if (*count == L1_AREAS_MAX)
				return too_many_pieces(daemon, slice);
			pieces[*count] = (struct piece){ kvr_min_u64(left, slice),
				arenas ? topology->arenas[i].node : -1 };
			left -= pieces[(*count)++].bytes;
		}
	}
	if (*count > (arenas ? arenas : 1))
		log_info(
			"memory: L1 is mapped and registered in %u slices of up to %s", *count, text_size(size, slice));
	return 0;
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
static int map_kept(struct daemon *daemon, const struct piece *pieces, uint32_t count)
{
	struct l1_map_options areas[L1_AREAS_MAX];
	struct touching touching[L1_AREAS_MAX];
	struct keep_file_options options;
	int error;

	memset(&options, 0, sizeof(options));
	for (uint32_t i = 0; i < count; i++)
		areas[i] = describe_area(
			daemon, pieces[i].bytes, has_nodes(daemon) ? pieces[i].node : -1, &touching[i]);
	options.directory = daemon->settings->l1_keep;
	options.areas = areas;
	options.area_count = count;
	options.chunk_tokens = daemon->settings->chunk_tokens;
	error = keep_file_open(&options, &daemon->kept);
	for (uint32_t i = 0; !error && i < count; i++) {
		daemon->memory[i] = daemon->kept.areas[i];
		have_area(daemon, pieces[i].node);
	}
	return error;
}

static int map_all(struct daemon *daemon)
{
	struct piece pieces[L1_AREAS_MAX];
	uint32_t count;
	int error = list_pieces(daemon, pieces, &count);

	if (!error && daemon->settings->l1_keep[0])
		return map_kept(daemon, pieces, count);
	for (uint32_t i = 0; !error && i < count; i++) {
		error = map_area(daemon, pieces[i].bytes, has_nodes(daemon) ? pieces[i].node : -1);
		if (error == -ENOMEM && has_nodes(daemon)) {
			log_warn("memory: node %d can't give it: it comes from other nodes", pieces[i].node);
			error = map_area(daemon, pieces[i].bytes, -1);
		}
		if (!error && !has_nodes(daemon))
			daemon->areas[i].numa_node = pieces[i].node;
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
