/* retrieve.c - RETRIEVE: the reader's locks on the range become pins, and the worker moves what is pinned. */
#include "mgmt/state.h"

static void prepare_part(struct management *management, struct request *request, uint32_t index, uint64_t share)
{
	struct session *session = request->session;
	uint32_t chunk = request->message.transfer.first_chunk + index;
	uint8_t *outcome = &request->transfer.outcomes[index];
	struct transfer_part *part = &request->transfer.parts[index];
	uint64_t object;
	uint32_t entry;

	if (*outcome == CHUNK_PENDING) {
		if (!lock_held(session, chunk, &entry))
			entry = cache_find(management->cache, session->space, chain_digest(session, chunk));
		object = entry == CACHE_NONE ? 0 : cache_object(management->cache, entry, request->registration->rank);
		if (object) {
			/* The pin comes before the lock goes: there is no moment in which the chunk is not held. */
			cache_pin(management->cache, entry);
			part->entry = entry;
			transfer_set_part(management, request, index, object);
		} else {
			*outcome = CHUNK_MISSING;
		}
	}
	lock_drop(session, chunk, share);
}

bool retrieve_prepare(struct management *management, struct request *request)
{
	uint32_t count = request->message.transfer.chunk_count;
	uint32_t stop = (uint32_t)kvr_min_u64(count, (uint64_t)request->progress + SLICE_CHUNKS);
	uint64_t share = (uint64_t)1 << registration_share(request->registration);

	management->budget -= stop - request->progress;
	for (; request->progress < stop; request->progress++)
		prepare_part(management, request, request->progress, share);
	return request->progress == count;
}

void retrieve_finish_part(struct management *management, struct request *request, uint32_t index)
{
	struct transfer_part *part = &request->transfer.parts[index];

	if (request->transfer.outcomes[index] == CHUNK_PENDING)
		request->transfer.outcomes[index] = CHUNK_FAILED;
	if (part->entry != CACHE_NONE) {
		engine_used(management, request->session, request->message.transfer.first_chunk + index, part->entry,
			request->registration->rank, true);
		cache_unpin(management->cache, part->entry);
	}
	part->entry = CACHE_NONE;
	part->address = NULL;
	part->object = 0;
}
