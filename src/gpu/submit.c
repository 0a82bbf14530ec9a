/* submit.c - the submit thread of a GPU: launches what lanes have published, sees it end, sleeps without work. */
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "gpu/gpu_private.h"

static const struct gpu_piece *piece_at(const struct gpu_lane *lane, uint64_t position)
{
	return &lane->ring[position & (GPU_LANE_PIECES - 1)];
}

/* ---- what is lost ----------------------------------------------------------------------------------------------- */

static void finish_lane(struct gpu_lane *lane, uint64_t done, bool failed)
{
	if (KVR_UNLIKELY(failed)) {
		kvr_counter_add(&lane->gpu->counters.failed_pieces_total, done - lane->done);
		kvr_store_relaxed(&lane->failed_below, done);
	}
	/* pairs with the load-acquire of the poll core: bytes, and the failure, are there before the position */
	kvr_store_release(&lane->done, done);
	if (lane->progress)
		lane->progress(lane->argument);
}

/* All that was published ends with the failure. */
static void end_all(struct gpu *gpu)
{
	gpu->slot_count = 0;
	memset(gpu->kernel_count, 0, sizeof(gpu->kernel_count));
	for (uint32_t i = 0; i < GPU_SLOTS; i++)
		gpu->slots[i].lane = NULL;
	for (uint32_t i = 0; i < kvr_load_acquire(&gpu->lane_count); i++) {
		struct gpu_lane *lane = kvr_load_acquire(&gpu->lanes[i]);
		uint64_t published = lane ? kvr_load_acquire(&lane->published) : 0;

		if (!lane || kvr_load_relaxed(&lane->done) == published)
			continue;
		lane->under_way = 0;
		lane->launched = published;
		finish_lane(lane, published, true);
	}
}

void gpu_fail(struct gpu *gpu, int code, const char *what)
{
	char text[128];

	snprintf(gpu->failure, sizeof(gpu->failure), "%s: %s", what,
		gpu_driver_error(&gpu->gpus->driver, code, text, sizeof(text)));
	kvr_counter_add(&gpu->counters.failures_total, 1);
	kvr_store_release(&gpu->failed, 1);
	log_error("gpu %u (%s) is lost: %s; clients with memory on it are cut off, restart the server to use it again",
		gpu->index, gpu->name, gpu->failure);
}

/* Only an error that sticks to the context ends what runs there. After another one what was launched before goes on, and so does what a
 * launch queued before the part of it that was refused. Idle slots are asked as well: that one is among them. */
static bool anything_runs(const struct gpu *gpu)
{
	for (uint32_t i = 0; i < GPU_SLOTS; i++) {
		if (gpu->gpus->driver.stream_query(gpu->slots[i].stream) == GPU_NOT_READY)
			return true;
	}
	return false;
}

/* A failed GPU: nothing is launched on it, and what is under way ends with the failure when it can reach memory no more. True while it
 * can. */
static bool wind_down(struct gpu *gpu)
{
	if (!gpu->still && anything_runs(gpu))
		return true;
	gpu->still = true;
	end_all(gpu);
	return false;
}

/* ---- launching -------------------------------------------------------------------------------------------------- */

static bool in_one_slice(const struct gpus *gpus, uint64_t host, uint64_t bytes)
{
	for (uint32_t i = 0; i < kvr_load_acquire(&gpus->area_count); i++) {
		const struct gpu_area *area = &gpus->areas[i];
		uint64_t first = host - area->address;

		if (first < area->bytes)
			return first / GPU_HOST_SLICE == (first + bytes - 1) / GPU_HOST_SLICE;
	}
	return false;
}

/* The length of what is contiguous on both sides from `position` on, up to `limit` pieces; *pieces of them. */
static uint64_t measure_run(const struct gpu_lane *lane, uint64_t position, uint64_t limit, uint64_t *pieces)
{
	const struct gpu_piece *first = piece_at(lane, position);
	uint64_t bytes = first->bytes;
	uint64_t count = 1;

	while (count < limit) {
		const struct gpu_piece *next = piece_at(lane, position + count);

		if (next->to != first->to + bytes || next->from != first->from + bytes)
			break;
		bytes += next->bytes;
		count++;
	}
	*pieces = count;
	return bytes;
}

static bool suits_engine(
	const struct gpu *gpu, const struct gpu_lane *lane, const struct gpu_piece *piece, uint64_t bytes, bool few)
{
	return (bytes >= GPU_ENGINE_BYTES || few) && !gpu->gpus->options.no_engine &&
		in_one_slice(gpu->gpus, lane->to_device ? piece->from : piece->to, bytes);
}

static void count_bytes(struct gpu *gpu, const struct gpu_lane *lane, uint64_t bytes)
{
	if (lane->to_device)
		kvr_counter_add(&gpu->counters.to_device_bytes_total, bytes);
	else
		kvr_counter_add(&gpu->counters.to_host_bytes_total, bytes);
}

/* Contiguous runs from `position` on, large ones or, with nothing else to do, a few, by the copy engine. The pieces taken; 0: the kernel
 * is to have the first one. *code: one of them, or the flag behind them, was refused. */
static uint64_t launch_engine(struct gpu *gpu, struct gpu_slot *slot, const struct gpu_lane *lane, uint64_t position,
	uint64_t limit, int *code)
{
	const struct gpu_driver *driver = &gpu->gpus->driver;
	bool few = limit <= GPU_ENGINE_FEW && gpu->slot_count == 0;
	uint64_t taken = 0;

	for (uint32_t runs = 0; runs < GPU_ENGINE_RUNS && taken < limit; runs++) {
		const struct gpu_piece *piece = piece_at(lane, position + taken);
		uint64_t pieces;
		uint64_t bytes = measure_run(lane, position + taken, limit - taken, &pieces);

		if (!suits_engine(gpu, lane, piece, bytes, few))
			break;
		*code = lane->to_device
			? driver->copy_to_device(piece->to, (const void *)(uintptr_t)piece->from, bytes, slot->stream)
			: driver->copy_to_host((void *)(uintptr_t)piece->to, piece->from, bytes, slot->stream);
		if (KVR_UNLIKELY(*code != GPU_DONE))
			break; /* the next launch, or the kernel, meets that one again */
		kvr_counter_add(&gpu->counters.engine_copies_total, 1);
		count_bytes(gpu, lane, bytes);
		taken += pieces;
	}
	if (taken > 0)
		*code = driver->write_value(slot->stream, (gpu_address)(uintptr_t)slot->flag, slot->value, 0);
	return taken;
}

struct measured {
	uint64_t pieces, bytes;
	uint64_t odd;   /* bits that some address or size has */
	uint32_t shift; /* tiles of the largest one, as a power of two */
};

/* Pieces up to the next one that the copy engine should have, or enough. */
static struct measured measure_kernel(
	const struct gpu *gpu, const struct gpu_lane *lane, uint64_t position, uint64_t limit)
{
	struct measured measured = { 0, 0, 0, 0 };
	uint64_t taken = 0;
	uint32_t largest = 0;

	while (taken < limit && measured.bytes < GPU_LAUNCH_BYTES) {
		const struct gpu_piece *piece = piece_at(lane, position + taken);
		uint64_t pieces = 1;

		/* Only pieces of full size can be parts of a large one. */
		if (piece->bytes == GPU_PIECE_BYTES_MAX &&
			suits_engine(
				gpu, lane, piece, measure_run(lane, position + taken, limit - taken, &pieces), false) &&
			taken > 0)
			break;
		for (uint64_t i = 0; i < pieces; i++) {
			piece = piece_at(lane, position + taken + i);
			if (piece->bytes > largest)
				largest = piece->bytes;
			measured.odd |= piece->to | piece->from | piece->bytes;
			measured.bytes += piece->bytes;
		}
		taken += pieces;
	}
	while ((GPU_TILE_BYTES << measured.shift) < largest)
		measured.shift++;
	measured.pieces = taken;
	return measured;
}

static uint64_t launch_kernel(struct gpu *gpu, struct gpu_slot *slot, const struct gpu_lane *lane, uint64_t position,
	uint64_t limit, int *code)
{
	const struct gpus_options *options = &gpu->gpus->options;
	const struct gpu_piece *ring = lane->ring;
	uint32_t first = (uint32_t)(position & (GPU_LANE_PIECES - 1));
	uint32_t mask = GPU_LANE_PIECES - 1;
	struct measured measured = measure_kernel(gpu, lane, position, limit);
	bool bulk = gpu->bulk && measured.odd % 16 == 0;
	uint32_t threads = bulk ? GPU_BULK_THREADS : options->block_threads;
	uint32_t blocks, count = (uint32_t)measured.pieces;
	void *parameters[] = { &ring, &first, &mask, &count, &measured.shift, &slot->arrivals, &slot->flag,
		&slot->value };

	/* No GPU can read that: it is lost. */
	if (fault_point("gpu_submit/list"))
		ring = NULL;
	/* No more blocks than have something to do. */
	blocks = ((count << measured.shift) + threads / 32 - 1) / (threads / 32);
	if (blocks > options->blocks)
		blocks = options->blocks;
	*code = gpu->gpus->driver.launch(bulk ? gpu->bulk : gpu->copy, blocks, 1, 1, threads, 1, 1,
		bulk ? GPU_BULK_SHARED_BYTES : 0, slot->stream, parameters, NULL);
	if (KVR_LIKELY(*code == GPU_DONE)) {
		kvr_counter_add(&gpu->counters.launches_total, 1);
		count_bytes(gpu, lane, measured.bytes);
	}
	return measured.pieces;
}

static struct gpu_slot *free_slot(struct gpu *gpu)
{
	struct gpu_slot *slot = gpu->slots;

	while (slot->lane)
		slot++;
	return slot;
}

/* What a launch that was refused means: the context is dead, or only that launch is concerned. */
static bool is_dead(struct gpu *gpu, const struct gpu_slot *slot, int code)
{
	int answer = gpu->gpus->driver.stream_query(slot->stream);

	kvr_counter_add(&gpu->counters.refusals_total, 1);
	if (answer == GPU_DONE || answer == GPU_NOT_READY)
		return false;
	gpu_fail(gpu, code, slot->is_kernel ? "the copy kernel could not be launched" : "a copy was refused");
	return true;
}

/* What a refused launch was to copy ends with an error. */
static void say_refused(struct gpu *gpu, int code, uint64_t now_ns)
{
	uint64_t squashed;
	char text[128];

	if (!log_rate_pass(&gpu->refused_log, now_ns, GPU_SAY_NS, &squashed))
		return;
	log_error(
		"gpu %u: copies end with errors, and their clients are cut off: the copy kernel is refused: %s (%llu more since the last "
		"such line); if the GPU's memory is full, leave some hundreds of MiB of it to this server",
		gpu->index, gpu_driver_error(&gpu->gpus->driver, code, text, sizeof(text)),
		(unsigned long long)squashed);
}

/* A kernel was refused, and the context lives. True: it is tried again later. */
static bool put_off(struct gpu *gpu, int code, uint64_t now_ns)
{
	bool may_pass = code == GPU_OUT_OF_MEMORY || code == GPU_OUT_OF_RESOURCES;

	if (gpu->refused_ns == 0)
		gpu->refused_ns = now_ns;
	if (may_pass && now_ns - gpu->refused_ns < GPU_REFUSED_NS) {
		gpu->retry_ns = now_ns + GPU_RETRY_NS;
		return true;
	}
	say_refused(gpu, code, now_ns);
	return false;
}

static void begin_slot(struct gpu *gpu, struct gpu_slot *slot, struct gpu_lane *lane, uint64_t pieces)
{
	slot->lane = lane;
	slot->begin = lane->launched;
	lane->launched += pieces;
	lane->under_way++;
	slot->end = lane->launched;
	gpu->slot_count++;
	gpu->kernel_count[lane->to_device] += slot->is_kernel;
}

/* There is a free slot. False: nothing is to be launched now, or ever again. */
static bool launch(struct gpu *gpu, struct gpu_lane *lane, uint64_t limit, uint64_t now_ns)
{
	struct gpu_slot *slot = free_slot(gpu);
	uint64_t taken;
	int code = GPU_DONE;

	slot->value++;
	slot->look_ns = now_ns + GPU_LOOK_NS;
	slot->is_kernel = slot->is_asked = slot->is_refused = false;
	taken = launch_engine(gpu, slot, lane, lane->launched, limit, &code);
	if (KVR_UNLIKELY(code != GPU_DONE)) {
		if (is_dead(gpu, slot, code))
			return false;
		slot->is_asked = taken > 0;
	}
	if (taken == 0) {
		if (gpu->kernel_count[lane->to_device] == GPU_KERNELS_AT_ONCE)
			return true;
		slot->is_kernel = true;
		taken = launch_kernel(gpu, slot, lane, lane->launched, limit, &code);
		if (KVR_UNLIKELY(code != GPU_DONE)) {
			if (is_dead(gpu, slot, code) || put_off(gpu, code, now_ns))
				return false;
			slot->is_asked = slot->is_refused = true;
		}
	}
	if (KVR_LIKELY(!slot->is_refused)) {
		kvr_counter_add(&gpu->counters.pieces_total, taken);
		gpu->refused_ns = 0;
	}
	begin_slot(gpu, slot, lane, taken);
	return true;
}

/* A lane after the other. */
static bool launch_all(struct gpu *gpu, uint64_t now_ns)
{
	uint32_t lanes = kvr_load_acquire(&gpu->lane_count);
	bool busy = false;

	if (KVR_UNLIKELY(now_ns < gpu->retry_ns))
		return false;
	for (uint32_t i = 0; i < lanes && gpu->slot_count < GPU_SLOTS; i++) {
		uint32_t place = (gpu->next_lane + i) % lanes;
		struct gpu_lane *lane = kvr_load_acquire(&gpu->lanes[place]);
		uint64_t waiting, before;

		if (!lane)
			continue;
		/* pairs with the store-release of gpu_lane_publish */
		waiting = kvr_load_acquire(&lane->published) - lane->launched;
		if (waiting == 0)
			continue;
		before = lane->launched;
		if (!launch(gpu, lane, kvr_min_u64(waiting, GPU_LAUNCH_PIECES), now_ns))
			break;
		busy |= lane->launched != before;
	}
	if (lanes > 0)
		gpu->next_lane = (gpu->next_lane + 1) % lanes;
	return busy;
}

/* ---- what has ended --------------------------------------------------------------------------------------------- */

static void end_slot(struct gpu *gpu, struct gpu_slot *slot)
{
	struct gpu_lane *lane = slot->lane;

	slot->lane = NULL;
	gpu->slot_count--;
	gpu->kernel_count[lane->to_device] -= slot->is_kernel;
	lane->under_way--;
	finish_lane(lane, slot->end, slot->is_refused);
}

/* Whether it has ended; *code: what the library said of that, if it was asked. */
static bool has_ended(const struct gpu *gpu, struct gpu_slot *slot, uint64_t now_ns, int *code)
{
	*code = GPU_DONE;
	/* pairs with the kernel's fence: what it copied is there when the flag is */
	if (KVR_LIKELY(!slot->is_asked) && kvr_load_acquire(slot->flag) == slot->value)
		return true;
	if (KVR_LIKELY(!slot->is_asked) && now_ns < slot->look_ns)
		return false;
	slot->look_ns = now_ns + GPU_LOOK_NS;
	*code = fault_point("gpu_submit/look") ? 999 : gpu->gpus->driver.stream_query(slot->stream);
	return slot->is_asked && *code == GPU_DONE;
}

/* Every slot that has ended and is its lane's oldest, so that positions end in order. */
static bool collect(struct gpu *gpu, uint64_t now_ns)
{
	bool busy = false;

	for (uint32_t i = 0; i < GPU_SLOTS && gpu->slot_count > 0; i++) {
		struct gpu_slot *slot = &gpu->slots[i];
		int code;

		if (!slot->lane)
			continue;
		if (has_ended(gpu, slot, now_ns, &code)) {
			if (slot->begin == kvr_load_relaxed(&slot->lane->done)) {
				end_slot(gpu, slot);
				busy = true;
			}
		} else if (code != GPU_DONE && code != GPU_NOT_READY) {
			gpu_fail(gpu, code, "copies did not end");
			return true;
		}
	}
	return busy;
}

static void let_go(struct gpu *gpu)
{
	for (uint32_t i = 0; i < kvr_load_acquire(&gpu->lane_count); i++) {
		struct gpu_lane *lane = kvr_load_acquire(&gpu->lanes[i]);

		if (!lane || !kvr_load_acquire(&lane->closing) || lane->under_way > 0 ||
			kvr_load_acquire(&lane->published) != lane->launched)
			continue;
		kvr_store_release(&gpu->lanes[i], NULL);
		kvr_store_release(&lane->closed, 1);
	}
}

bool gpu_submit_step(struct gpu *gpu, uint64_t now_ns)
{
	bool busy;

	if (KVR_UNLIKELY(kvr_load_relaxed(&gpu->failed))) {
		busy = wind_down(gpu);
	} else {
		busy = collect(gpu, now_ns);
		if (KVR_LIKELY(!kvr_load_relaxed(&gpu->failed)))
			busy |= launch_all(gpu, now_ns);
	}
	if (KVR_UNLIKELY(!busy && gpu->slot_count == 0))
		let_go(gpu);
	return busy;
}

/* ---- the thread ------------------------------------------------------------------------------------------------- */

void gpu_submit_wake(struct gpu *gpu)
{
	if (kvr_exchange(&gpu->sleeping, 0))
		syscall(SYS_futex, &gpu->sleeping, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool has_news(struct gpu *gpu)
{
	for (uint32_t i = 0; i < kvr_load_acquire(&gpu->lane_count); i++) {
		struct gpu_lane *lane = kvr_load_acquire(&gpu->lanes[i]);

		if (lane && (kvr_load_acquire(&lane->published) != lane->launched || kvr_load_acquire(&lane->closing)))
			return true;
	}
	return kvr_load_acquire(&gpu->stopping) != 0;
}

static void sleep_on(struct gpu *gpu)
{
	/* Looked at again behind the exchange, as whoever publishes looks at `sleeping` behind a fence. */
	kvr_exchange(&gpu->sleeping, 1);
	if (!has_news(gpu)) {
		kvr_counter_add(&gpu->counters.sleeps_total, 1);
		syscall(SYS_futex, &gpu->sleeping, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
	}
	kvr_store_relaxed(&gpu->sleeping, 0);
}

void *gpu_submit_main(void *argument)
{
	struct gpu *gpu = argument;
	const struct gpus_options *options = &gpu->gpus->options;
	uint32_t idle_turns = 0;
	int code;

	if (options->begin)
		options->begin(options->begin_context, gpu->pci);
	code = gpu->gpus->driver.context_set(gpu->context);
	if (code != GPU_DONE)
		gpu_fail(gpu, code, "its context can't be used");
	while (!kvr_load_acquire(&gpu->stopping)) {
		uint64_t now_ns = clock_now_ns();

		if (gpu_submit_step(gpu, now_ns) || gpu->slot_count > 0) {
			gpu->busy_ns = now_ns;
			idle_turns = 0;
		} else if (!options->never_sleep && idle_turns++ > 64 && now_ns - gpu->busy_ns > options->spin_ns) {
			sleep_on(gpu);
			gpu->busy_ns = clock_now_ns();
			idle_turns = 0;
		} else {
			kvr_cpu_pause();
		}
	}
	return NULL;
}
