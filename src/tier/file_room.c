/*
 * file_room.c - how many bytes there may be: the index and its limit, eviction, stores that wait for room.
 *
 *   capacity >= files in the index + files being evicted + stores under way
 *   free space of the file system >= reserved + stores under way
 */
#include <errno.h>

#include "base/clock.h"
#include "tier/file_private.h"

/* The free space is asked for again after so long, and when it seems too little, not more often than that. */
#define LOOK_NS (100 * KVR_MS)
#define LOOK_SHORT_NS KVR_MS
/* What a file takes beside its bytes. */
#define SLACK_BYTES (UINT64_C(64) << 10)
#define FOUND_A_TURN 256

static void index_changed(struct file_shard *shard)
{
	kvr_store_relaxed(&shard->counters.objects, (uint64_t)file_index_count(shard->index));
	kvr_store_relaxed(&shard->counters.bytes, file_index_bytes(shard->index));
}

static void eviction_free(struct file_eviction *eviction)
{
	struct file_shard *shard = eviction->shard;

	shard->evicting_bytes -= eviction->bytes;
	list_add_last(&shard->free_evictions, &eviction->node);
}

static void evicted(void *owner, struct file_op *op)
{
	struct file_eviction *eviction = owner;
	struct file_shard *shard = eviction->shard;

	if (op->result == 0) {
		kvr_counter_add(&shard->counters.evicted, 1);
		kvr_counter_add(&shard->counters.evicted_bytes, eviction->bytes);
		kvr_fetch_add(&shard->place->free_bytes, eviction->bytes);
	} else if (op->result != -ENOENT && op->result != -ENOTDIR) {
		/* It is still there and counts. As the newest one, so that others are tried first. */
		struct file_use use = file_shard_use(shard, &(struct l2_request){ .used_ns = 0 /* now */ });

		file_shard_fail(shard, "cannot evict", eviction->path, op->result);
		if (file_index_add(shard->index, &eviction->name, eviction->bytes, &use) == 0)
			index_changed(shard);
	}
	eviction_free(eviction);
}

/* False: too many are under way. */
static bool evict_file(struct file_shard *shard, const struct file_name *name, uint64_t bytes)
{
	struct list_node *node = list_pop_first(&shard->free_evictions);
	struct file_eviction *eviction;

	if (!node)
		return false;
	eviction = KVR_CONTAINER_OF(node, struct file_eviction, node);
	eviction->name = *name;
	eviction->bytes = bytes;
	file_name_path(name, eviction->path);
	shard->evicting_bytes += bytes;
	eviction->op.kind = FILE_OP_UNLINK;
	eviction->op.fd = shard->place->directory_fd;
	eviction->op.path = eviction->path;
	eviction->op.done = evicted;
	file_io_start(shard->io, &eviction->op);
	return true;
}

bool file_shard_evict(struct file_shard *shard)
{
	struct file_name name;
	uint64_t bytes;

	if (shard->place->read_only || list_empty(&shard->free_evictions))
		return false;
	bytes = file_index_pop(shard->index, &name);
	if (!bytes)
		return false;
	index_changed(shard);
	return evict_file(shard, &name, bytes);
}

struct file_use file_shard_use(const struct file_shard *shard, const struct l2_request *request)
{
	uint64_t used_ns = request->used_ns ? kvr_min_u64(request->used_ns, shard->now_ns) : shard->now_ns;
	uint64_t chain = shard->place->wall_us + used_ns / KVR_US;

	return (struct file_use){ .at = chain - kvr_min_u64(chain, request->position), .chain = chain };
}

void file_shard_know(const struct file_job *job)
{
	struct file_shard *shard = job->shard;
	struct file_use use = file_shard_use(shard, job->request);
	int error = file_index_add(shard->index, &job->name, job->image_bytes, &use);

	if (error == -ENOSPC && file_shard_evict(shard))
		error = file_index_add(shard->index, &job->name, job->image_bytes, &use);
	/* Not known, then: it is found by opening it, and by the next start. */
	if (error)
		file_shard_fail(shard, "no room in the index for", "a file", error);
	index_changed(shard);
}

void file_shard_forget(struct file_shard *shard, const struct file_name *name)
{
	if (file_index_remove(shard->index, name))
		index_changed(shard);
}

static uint64_t taken_bytes(const struct file_shard *shard)
{
	return file_index_bytes(shard->index) + shard->evicting_bytes + shard->pending_bytes;
}

void file_shard_trim(struct file_shard *shard)
{
	if (!shard->scanned || !shard->capacity_bytes)
		return;
	while (taken_bytes(shard) - shard->evicting_bytes > shard->capacity_bytes && file_shard_evict(shard))
		;
}

/* How many bytes must go before `need` more may be written. */
static uint64_t lack_of_capacity(const struct file_shard *shard, uint64_t need)
{
	uint64_t taken = taken_bytes(shard) + need, lack = 0;

	if (shard->capacity_bytes && taken > shard->capacity_bytes)
		lack = taken - shard->capacity_bytes;
	/* One entry more than those that are on their way out. */
	if (file_index_count(shard->index) + shard->pending_count >= shard->object_limit)
		lack = kvr_max_u64(lack, shard->evicting_bytes + 1);
	return lack;
}

static uint64_t lack_of_free_space(struct file_shard *shard, uint64_t need)
{
	struct file_place *place = shard->place;
	uint64_t wanted = place->reserved_bytes + need + SLACK_BYTES;
	uint64_t available;

	file_place_look(place, shard->now_ns, LOOK_NS);
	available = kvr_load_relaxed(&place->free_bytes);
	if (available < wanted) {
		file_place_look(place, shard->now_ns, LOOK_SHORT_NS);
		available = kvr_load_relaxed(&place->free_bytes);
	}
	return available < wanted ? wanted - available : 0;
}

static void no_room(struct file_shard *shard, struct file_job *job)
{
	list_remove(&job->node);
	if (shard->scanned) {
		kvr_store_relaxed(&shard->place->last_errno, ENOSPC);
		file_shard_fail(shard, "cannot store", job->path, -ENOSPC);
	} else {
		kvr_counter_add(&shard->counters.errors, 1);
	}
	file_job_end(job, -ENOSPC);
}

static void take_room(struct file_shard *shard, struct file_job *job)
{
	list_remove(&job->node);
	job->room_bytes = job->image_bytes;
	shard->pending_bytes += job->room_bytes;
	shard->pending_count++;
	kvr_fetch_sub(&shard->place->free_bytes, job->room_bytes);
	file_store_go(job);
}

/* Can never have room, or cannot say so yet. */
static bool hopeless(const struct file_shard *shard, uint64_t need)
{
	if (!shard->capacity_bytes)
		return false;
	/* What the scan has not told yet is not more than what the whole file system held. */
	return need > shard->capacity_bytes ||
		(!shard->scanned &&
			shard->place->used_at_open + shard->written_bytes + shard->pending_bytes + need >
				shard->capacity_bytes);
}

/* True: the job has left the list, with room or at its end. False: it waits for what is under way. */
static bool room_for(struct file_shard *shard, struct file_job *job)
{
	uint64_t need = job->image_bytes, lack, free_lack;

	if (hopeless(shard, need)) {
		no_room(shard, job);
		return true;
	}
	free_lack = lack_of_free_space(shard, need);
	lack = kvr_max_u64(shard->scanned ? lack_of_capacity(shard, need) : 0, free_lack);
	if (lack == 0) {
		take_room(shard, job);
		return true;
	}
	while (shard->evicting_bytes < lack) {
		/* Others may take what we free: each store gives up about twice its own length for that. */
		if (free_lack == lack && job->freed_bytes >= 2 * need + SLACK_BYTES)
			break;
		job->freed_bytes += file_index_oldest_bytes(shard->index);
		if (!file_shard_evict(shard))
			break;
	}
	/* What is being written now can be evicted then. */
	if (shard->evicting_bytes > 0 || (shard->pending_count > 0 && free_lack < lack))
		return false;
	if (shard->scanned) {
		kvr_store_relaxed(&shard->place->stores_errno, ENOSPC);
		kvr_store_relaxed(&shard->place->stores_off_until_ns, shard->now_ns + LOOK_NS);
	}
	no_room(shard, job);
	return true;
}

void file_shard_room(struct file_shard *shard)
{
	while (!list_empty(&shard->room_waiters)) {
		struct list_node *node = shard->room_waiters.next;

		if (!room_for(shard, KVR_CONTAINER_OF(node, struct file_job, node)))
			break;
	}
}

/* What a CLEAR on the scan's thread has done. */
static void take_cleared(struct file_shard *shard, const struct ring_message *message)
{
	struct file_name name;

	if (message->kind == FILE_PASSED) {
		kvr_fetch_add((uint32_t *)(uintptr_t)message->word[0], 1);
		return;
	}
	if (message->kind == FILE_CLEARED) {
		file_request_end(
			shard, (struct l2_request *)(uintptr_t)message->word[0], (int)(int64_t)message->word[1]);
		return;
	}
	__builtin_memcpy(name.hash, &message->word[0], sizeof(name.hash));
	name.fan = (uint16_t)message->count;
	file_shard_forget(shard, &name);
}

void file_shard_take_found(struct file_shard *shard)
{
	const struct ring_message *message;
	struct file_name name;

	for (int i = 0; i < FOUND_A_TURN; i++) {
		message = ring_pop_begin(&shard->found);
		if (!message)
			return;
		if (message->kind >= FILE_GONE) {
			take_cleared(shard, message);
			ring_pop_end(&shard->found);
			continue;
		}
		if (message->kind == FILE_FOUND_END) {
			shard->scanned = true;
			index_changed(shard);
			kvr_fetch_sub(&shard->place->scanning, 1);
			ring_pop_end(&shard->found);
			return;
		}
		__builtin_memcpy(name.hash, &message->word[0], sizeof(name.hash));
		name.fan = (uint16_t)message->count;
		if (!file_index_find(shard->index, &name)) {
			struct file_use use = { .at = message->word[5] };
			uint64_t bytes = message->word[4];
			int error = file_index_add(shard->index, &name, bytes, &use);

			/* They come newest first: what the index has no room for is what would be evicted first. */
			if (error && !shard->place->read_only && !evict_file(shard, &name, bytes))
				return;
		}
		ring_pop_end(&shard->found);
	}
	index_changed(shard);
}
