/*
 * store.c - STORE: what is not there yet is staged, moved, and published from the last chunk to the first.
 *
 * Chunks that are there already are pinned until the reply, so that the reply is still true when it is sent, and so
 * that making room for the others cannot evict the beginning of the very chain that is stored (pitfalls D13).
 */
#include "mgmt/state.h"

#include <errno.h>

bool store_look(struct management *management, struct request *request)
{
	struct session *session = request->session;
	const struct transfer_request *message = &request->message.transfer;
	uint32_t stop = (uint32_t)kvr_min_u64(message->chunk_count, (uint64_t)request->progress + SLICE_CHUNKS);

	management->budget -= stop - request->progress;
	for (; request->progress < stop; request->progress++) {
		uint32_t chunk = message->first_chunk + request->progress;
		uint32_t entry;

		if (request->transfer.outcomes[request->progress] != CHUNK_PENDING)
			continue;
		if (!lock_held(session, chunk, &entry))
			entry = cache_find(management->cache, session->space, chain_digest(session, chunk));
		if (entry == CACHE_NONE || !cache_object(management->cache, entry, request->registration->rank))
			continue;
		cache_pin(management->cache, entry);
		engine_used(management, session, chunk, entry, request->registration->rank, true);
		request->transfer.parts[request->progress].entry = entry;
		request->transfer.outcomes[request->progress] = CHUNK_PRESENT;
	}
	return request->progress == message->chunk_count;
}

/* All that are not there and have no memory; true: nothing is left to be done. */
static bool refuse_rest(struct request *request, uint32_t from, enum chunk_outcome why)
{
	for (uint32_t n = from; n < request->message.transfer.chunk_count; n++)
		if (request->transfer.outcomes[n] == CHUNK_PENDING)
			request->transfer.outcomes[n] = why;
	return true;
}

/* Is there room for all of it, before the first chunk is evicted for it (pitfalls D03)? Why not, or CHUNK_PENDING. */
static enum chunk_outcome room_for_all(struct management *management, const struct request *request)
{
	uint32_t object_class = request->registration->classes[0];
	uint64_t absent = 0;

	for (uint32_t n = 0; n < request->message.transfer.chunk_count; n++)
		absent += request->transfer.outcomes[n] == CHUNK_PENDING;
	if (!absent)
		return CHUNK_PENDING;
	if (!cache_quota_allows(management->cache, request->registration->tenant, object_class, absent))
		return CHUNK_NO_QUOTA;
	return cache_could_reserve(management->cache, object_class, absent) ? CHUNK_PENDING : CHUNK_NO_MEMORY;
}

/* A chunk has found no room. False: it may yet, in a later slice. */
static bool no_room(struct management *management, struct request *request)
{
	uint32_t tenant = request->registration->tenant;
	uint32_t object_class = request->registration->classes[0];

	if (!cache_quota_allows(management->cache, tenant, object_class, 1))
		return refuse_rest(request, request->progress, CHUNK_NO_QUOTA);
	if (cache_quota_full(management->cache, tenant, object_class))
		return false; /* far above its limit: the tenant's own chunks go, some in each slice */
	return refuse_rest(request, request->progress, CHUNK_NO_MEMORY);
}

bool store_reserve(struct management *management, struct request *request)
{
	uint32_t count = request->message.transfer.chunk_count;
	uint32_t stop = (uint32_t)kvr_min_u64(count, (uint64_t)request->progress + SLICE_CHUNKS);
	uint32_t area = management->worker_areas[request->connection->worker_index];
	const uint64_t *evicted = &cache_get_counters(management->cache)->evicted_chunks;
	uint64_t evicted_before = *evicted;

	if (request->progress == 0) {
		enum chunk_outcome why = room_for_all(management, request);

		if (why != CHUNK_PENDING)
			return refuse_rest(request, 0, why);
	}
	management->budget -= stop - request->progress;
	for (; request->progress < stop && *evicted - evicted_before < SLICE_CHUNKS; request->progress++) {
		l1_ref object;

		if (request->transfer.outcomes[request->progress] != CHUNK_PENDING)
			continue;
		object = cache_reserve(management->cache, request->registration->tenant,
			request->registration->classes[0], area, EVICT_LIMIT);
		if (!object) {
			management->budget -= (int64_t)(*evicted - evicted_before);
			return no_room(management, request);
		}
		transfer_set_part(management, request, request->progress, object);
		if (l1_area_of(management->l1, object) != area)
			COUNT(management, store_far_chunks_total, 1);
	}
	management->budget -= (int64_t)(*evicted - evicted_before);
	return request->progress == count;
}

/* -ENOSPC while it may be tried again. */
static int publish(struct management *management, struct request *request, uint32_t index)
{
	struct session *session = request->session;
	struct transfer_part *part = &request->transfer.parts[index];
	uint8_t *outcome = &request->transfer.outcomes[index];
	uint32_t entry;
	int error = cache_publish(management->cache, session->space,
		chain_digest(session, request->message.transfer.first_chunk + index), request->registration->rank,
		part->object, &entry);

	if (!error) {
		engine_used(management, session, request->message.transfer.first_chunk + index, entry,
			request->registration->rank, false);
	} else if (error == -EEXIST) {
		*outcome = CHUNK_PRESENT; /* another client was first: what was stored is there all the same */
	} else {
		bool wait = !request->connection->closing &&
			(!request->until_ns || management->now_ns < request->until_ns);

		if (wait)
			return -ENOSPC;
		cache_abort(management->cache, part->object);
		*outcome = CHUNK_NO_MEMORY;
	}
	return 0;
}

bool store_finish_part(struct management *management, struct request *request, uint32_t index)
{
	struct transfer_part *part = &request->transfer.parts[index];
	uint8_t *outcome = &request->transfer.outcomes[index];

	if (part->object) {
		if (*outcome == CHUNK_STORED) {
			if (publish(management, request, index))
				return false;
		} else {
			cache_abort(management->cache, part->object);
			if (*outcome == CHUNK_PENDING)
				*outcome = CHUNK_FAILED;
		}
		part->object = 0;
		part->address = NULL;
	} else if (part->entry != CACHE_NONE) {
		cache_unpin(management->cache, part->entry);
		part->entry = CACHE_NONE;
	}
	return true;
}
