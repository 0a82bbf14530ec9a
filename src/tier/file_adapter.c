#include "tier/file_adapter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/text.h"
#include "tier/checksum.h"
#include "tier/file_private.h"

#define FOUND_RING 1024
#define DEPTH_MAX 1024
#define REQUESTS_MAX 65536
#define JOB_BYTES (2 * FILE_BLOCK + FILE_BOUNCE_BYTES)

static struct file_adapter *adapter_of(const struct l2_adapter *adapter)
{
	return KVR_CONTAINER_OF(adapter, struct file_adapter, adapter);
}

/* By the folder, so that the scan knows it too. */
static struct file_shard *shard_of(struct file_adapter *adapter, const struct l2_identity *identity)
{
	unsigned fan = (unsigned)identity->digest[0] << 4 | identity->digest[1] >> 4;

	return &adapter->shards[fan % adapter->shard_count];
}

static int file_submit(struct l2_adapter *base, struct l2_request *request)
{
	struct file_adapter *adapter = adapter_of(base);
	struct file_shard *shard = shard_of(adapter, &request->identity);
	struct ring_message *slot;

	if (adapter->in_flight == adapter->request_limit)
		return -EAGAIN;
	slot = ring_push_begin(&shard->submitted);
	if (!slot)
		return -EAGAIN;
	kvr_store_relaxed(&request->status, 0);
	slot->word[0] = (uintptr_t)request;
	ring_push_end(&shard->submitted);
	kvr_store_relaxed(&adapter->in_flight, adapter->in_flight + 1);
	file_shard_wake(shard);
	return 0;
}

static void file_cancel(struct l2_adapter *base, struct l2_request *request)
{
	struct file_shard *shard = shard_of(adapter_of(base), &request->identity);

	/* The mark is only looked at before the request begins; how it ended comes with poll. */
	kvr_store_relaxed(&request->status, -ECANCELED);
	kvr_store_release(&shard->cancels, kvr_load_relaxed(&shard->cancels) + 1);
	file_shard_wake(shard);
}

static uint32_t file_poll(struct l2_adapter *base, struct list_node *ended, uint32_t limit)
{
	struct file_adapter *adapter = adapter_of(base);
	uint32_t count = 0, empty = 0;

	while (count < limit && empty < adapter->shard_count) {
		struct file_shard *shard = &adapter->shards[adapter->next_poll];
		struct ring_message message;

		if (ring_pop(&shard->ended, &message)) {
			struct l2_request *request = (struct l2_request *)(uintptr_t)message.word[0];

			kvr_store_relaxed(&request->status, (int)(int64_t)message.word[1]);
			list_init(&request->node);
			list_add_last(ended, &request->node);
			count++;
			empty = 0;
		} else {
			empty++;
			adapter->next_poll = (adapter->next_poll + 1) % adapter->shard_count;
		}
	}
	if (count)
		kvr_store_relaxed(&adapter->in_flight, adapter->in_flight - count);
	return count;
}

static void describe(const struct file_place *place, char *out, size_t size)
{
	int error = kvr_load_relaxed(&place->last_errno);

	if (kvr_load_relaxed(&place->gone))
		snprintf(out, size, "the directory was removed or replaced; put it back, or start again");
	else if (place->read_only)
		snprintf(out, size, "read only, as configured");
	else if (error)
		snprintf(out, size, "stores are dropped, loads go on: %s",
			error == ENOSPC ? "no room, and nothing left to evict for it" : strerror(error));
	else if (kvr_load_relaxed(&place->scanning))
		snprintf(out, size, "the directory is still being listed");
}

static void file_get_stats(struct l2_adapter *base, struct l2_stats *stats)
{
	struct file_adapter *adapter = adapter_of(base);
	const struct file_place *place = &adapter->place;
	uint64_t now_ns = clock_now_ns();

	memset(stats, 0, sizeof(*stats));
	for (uint32_t i = 0; i < adapter->shard_count; i++) {
		const struct file_counters *counters = &adapter->shards[i].counters;

		stats->objects += kvr_load_relaxed(&counters->objects);
		stats->bytes += kvr_load_relaxed(&counters->bytes);
		stats->loads += kvr_load_relaxed(&counters->loads);
		stats->load_bytes += kvr_load_relaxed(&counters->load_bytes);
		stats->stores += kvr_load_relaxed(&counters->stores);
		stats->store_bytes += kvr_load_relaxed(&counters->store_bytes);
		stats->misses += kvr_load_relaxed(&counters->misses);
		stats->corrupt += kvr_load_relaxed(&counters->corrupt);
		stats->errors += kvr_load_relaxed(&counters->errors);
		stats->evicted += kvr_load_relaxed(&counters->evicted);
		stats->evicted_bytes += kvr_load_relaxed(&counters->evicted_bytes);
	}
	stats->capacity_bytes = adapter->capacity_bytes;
	stats->in_flight = kvr_load_relaxed(&adapter->in_flight);
	stats->scanning = kvr_load_relaxed(&place->scanning) != 0;
	stats->read_only = place->read_only || now_ns < kvr_load_relaxed(&place->stores_off_until_ns) ||
		kvr_load_relaxed(&place->gone);
	describe(place, stats->condition, sizeof(stats->condition));
}

static void shard_fini(struct file_shard *shard)
{
	ring_fini(&shard->submitted);
	ring_fini(&shard->ended);
	ring_fini(&shard->found);
	file_index_destroy(&shard->index);
	digester_fini(&shard->digester);
	free(shard->jobs);
	free(shard->buffers);
}

static void file_close(struct l2_adapter *base)
{
	struct file_adapter *adapter = adapter_of(base);

	file_scan_stop(adapter->scan);
	for (uint32_t i = 0; adapter->shards && i < adapter->shard_count; i++)
		file_shard_stop(&adapter->shards[i]);
	for (uint32_t i = 0; adapter->shards && i < adapter->shard_count; i++)
		shard_fini(&adapter->shards[i]);
	file_scan_free(&adapter->scan);
	file_place_close(&adapter->place);
	free(adapter->shards);
	free(adapter);
}

static const struct l2_adapter_driver file_driver = {
	.kind = "file",
	.submit = file_submit,
	.cancel = file_cancel,
	.poll = file_poll,
	.step = NULL,
	.get_stats = file_get_stats,
	.close = file_close,
};

static int shard_make_jobs(struct file_shard *shard)
{
	shard->jobs = fault_point("file_shard/jobs") ? NULL : calloc(shard->depth, sizeof(*shard->jobs));
	shard->buffers = fault_point("file_shard/buffers")
		? NULL
		: aligned_alloc(FILE_BLOCK, (size_t)shard->depth * JOB_BYTES);
	if (!shard->jobs || !shard->buffers)
		return -ENOMEM;
	for (uint32_t i = 0; i < shard->depth; i++) {
		struct file_job *job = &shard->jobs[i];

		job->shard = shard;
		job->op.owner = job;
		job->header = shard->buffers + (size_t)i * JOB_BYTES;
		job->tail = job->header + FILE_BLOCK;
		job->bounce = job->tail + FILE_BLOCK;
		list_init(&job->node);
		list_add_last(&shard->free_jobs, &job->node);
	}
	for (int i = 0; i < FILE_EVICTIONS; i++) {
		struct file_eviction *eviction = &shard->evictions[i];

		eviction->shard = shard;
		eviction->op.owner = eviction;
		list_init(&eviction->node);
		list_add_last(&shard->free_evictions, &eviction->node);
	}
	return 0;
}

static int shard_init(struct file_shard *shard, struct file_adapter *adapter, uint32_t number,
	const struct file_adapter_options *options)
{
	uint32_t objects = options->object_limit ? options->object_limit : UINT32_C(16) << 20;
	uint64_t now_ns = clock_now_ns();
	int error;

	shard->place = &adapter->place;
	shard->number = number;
	shard->depth = options->queue_depth ? options->queue_depth : 32;
	shard->capacity_bytes = options->capacity_bytes / adapter->shard_count;
	shard->object_limit = objects / adapter->shard_count ? objects / adapter->shard_count : 1;
	shard->want_uring = !options->no_uring;
	shard->load_limit = (struct file_limit){ options->load_bytes_per_second / adapter->shard_count, 1, now_ns };
	shard->store_limit = (struct file_limit){ options->store_bytes_per_second / adapter->shard_count, 1, now_ns };
	shard->next_deadline_ns = UINT64_MAX;
	shard->next_credit_ns = UINT64_MAX;
	list_init(&shard->free_jobs);
	list_init(&shard->room_waiters);
	list_init(&shard->urgent);
	list_init(&shard->loads);
	list_init(&shard->stores);
	list_init(&shard->free_evictions);
	error = digester_init(&shard->digester);
	if (!error)
		error = ring_init(&shard->submitted, adapter->request_limit);
	if (!error)
		error = ring_init(&shard->ended, adapter->request_limit);
	if (!error)
		error = ring_init(&shard->found, FOUND_RING);
	if (!error)
		error = file_index_create(shard->object_limit, &shard->index);
	if (!error)
		error = shard_make_jobs(shard);
	return error;
}

static int refuse(char *text, size_t size, int error, const char *what)
{
	snprintf(text, size, "l2 file: %s", what);
	return error;
}

static int check_options(const struct file_adapter_options *options, char *text, size_t size)
{
	if (!options->directory || !*options->directory ||
		strlen(options->directory) >= sizeof(((struct file_place *)0)->path))
		return refuse(text, size, -EINVAL, "a directory of 1 to 511 characters is needed");
	if (options->queue_depth > DEPTH_MAX)
		return refuse(text, size, -EINVAL, "the queue depth is at most 1024");
	if (options->request_limit > REQUESTS_MAX)
		return refuse(text, size, -EINVAL, "at most 65536 requests may be under way");
	if (options->io_threads > FILE_SHARDS_MAX)
		return refuse(text, size, -EINVAL, "there are at most 16 I/O threads");
	if (options->object_limit > UINT32_C(1) << 28)
		return refuse(text, size, -EINVAL, "at most 268435456 objects are kept");
	if (!checksum_available())
		return refuse(text, size, -EOPNOTSUPP,
			"this program was built without libxxhash, which checks every object; build it with libxxhash");
	return 0;
}

static int start_shards(struct file_adapter *adapter)
{
	int error = 0, why = 0;

	adapter->uring = 1;
	adapter->place.scanning = adapter->shard_count;
	for (uint32_t i = 0; i < adapter->shard_count && !error; i++) {
		struct file_shard *shard = &adapter->shards[i];

		error = file_shard_start(shard);
		if (error)
			break;
		if (shard->uring_errno)
			why = shard->uring_errno;
		if (shard->uring_errno || !shard->want_uring)
			adapter->uring = 0;
	}
	if (why)
		log_warn("l2 file:%s: io_uring cannot be used (%s): threads do its work, with more system calls",
			adapter->place.path, strerror(why));
	return error ? error : file_scan_start(adapter);
}

int file_adapter_open(const struct file_adapter_options *options, struct l2_adapter **out, char *text, size_t size)
{
	struct file_adapter *adapter;
	int error = check_options(options, text, size);

	*out = NULL;
	if (error)
		return error;
	adapter = fault_point("file_adapter/object") ? NULL : calloc(1, sizeof(*adapter));
	if (!adapter)
		return refuse(text, size, -ENOMEM, "no memory");
	adapter->adapter.driver = &file_driver;
	snprintf(adapter->adapter.name, sizeof(adapter->adapter.name), "file:%s", options->directory);
	adapter->request_limit = options->request_limit ? options->request_limit : 4096;
	adapter->capacity_bytes = options->capacity_bytes;
	error = file_place_open(options, &adapter->place, text, size);
	if (error)
		goto close_adapter;
	adapter->shards = fault_point("file_adapter/shards")
		? NULL
		: aligned_alloc(
			  KVR_CACHE_LINE, (options->io_threads ? options->io_threads : 1) * sizeof(struct file_shard));
	if (!adapter->shards) {
		error = refuse(text, size, -ENOMEM, "no memory");
		goto close_adapter;
	}
	adapter->shard_count = options->io_threads ? options->io_threads : 1;
	memset(adapter->shards, 0, adapter->shard_count * sizeof(struct file_shard));
	for (uint32_t i = 0; i < adapter->shard_count && !error; i++)
		error = shard_init(&adapter->shards[i], adapter, i, options);
	if (!error)
		error = start_shards(adapter);
	if (error) {
		snprintf(text, size,
			"l2 file:%s: cannot start: %s; give the server more memory, threads or descriptors",
			options->directory, strerror(-error));
		goto close_adapter;
	}
	*out = &adapter->adapter;
	return 0;

close_adapter:
	file_close(&adapter->adapter);
	return error;
}

const char *file_adapter_mode(const struct l2_adapter *base)
{
	static const char *const modes[2][2] = { { "threads, buffered", "threads, direct" },
		{ "io_uring, buffered", "io_uring, direct" } };
	struct file_adapter *adapter = adapter_of(base);

	return modes[adapter->uring][kvr_load_relaxed(&adapter->place.direct)];
}
