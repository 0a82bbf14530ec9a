/* chain.c - the digests of a session, in segments from a pool. */
#include "mgmt/state.h"

#include <string.h>

#include "protocol/digest.h"

static uint32_t segments_for(uint32_t chunks)
{
	return (chunks + SEGMENT_CHUNKS - 1) / SEGMENT_CHUNKS;
}

static KVR_COLD bool mismatch(const struct session *session, uint32_t chunk, struct request_reply *reply)
{
	COUNT(session->management, chain_mismatches_total, 1);
	reply_set(reply, STATUS_CHAIN_MISMATCH, "this session has another chunk %u: end it, or use another session id",
		chunk);
	return false;
}

static bool overlap_agrees(
	const struct session *session, const struct session_ref *ref, uint32_t overlap, struct request_reply *reply)
{
	for (uint32_t n = 0; n < overlap;) {
		uint32_t chunk = ref->first_chunk + n;
		uint32_t run = (uint32_t)kvr_min_u64(SEGMENT_CHUNKS - chunk % SEGMENT_CHUNKS, overlap - n);

		const uint8_t *digests = ref->digests + (size_t)n * WIRE_DIGEST_BYTES;

		if (memcmp(chain_digest(session, chunk), digests, (size_t)run * WIRE_DIGEST_BYTES) != 0) {
			while (memcmp(chain_digest(session, chunk), digests, WIRE_DIGEST_BYTES) == 0) {
				digests += WIRE_DIGEST_BYTES;
				chunk++;
			}
			return mismatch(session, chunk, reply);
		}
		n += run;
	}
	return true;
}

bool chain_agrees(const struct session *session, const struct session_ref *ref, struct request_reply *reply)
{
	const uint8_t *parent;
	uint32_t overlap;

	if (!ref->digest_count)
		return true;
	if (ref->first_chunk > session->chunk_count) {
		reply_set(reply, STATUS_INVALID_RANGE,
			"this session knows %u chunks, the chain in the request begins with chunk %u: send it "
			"from chunk %u or before",
			session->chunk_count, ref->first_chunk, session->chunk_count);
		return false;
	}
	parent = ref->first_chunk ? chain_digest(session, ref->first_chunk - 1) : digest_seed;
	if (memcmp(parent, ref->parent, WIRE_DIGEST_BYTES) != 0) {
		if (ref->first_chunk)
			return mismatch(session, ref->first_chunk - 1, reply);
		COUNT(session->management, chain_mismatches_total, 1);
		reply_set(reply, STATUS_CHAIN_MISMATCH,
			"the parent of chunk 0 is not the seed of chunk digests: is the client's hash another?");
		return false;
	}
	overlap = (uint32_t)kvr_min_u64(session->chunk_count - ref->first_chunk, ref->digest_count);
	return overlap_agrees(session, ref, overlap, reply);
}

static bool take_segments(struct session *session, uint32_t chunks)
{
	struct management *management = session->management;
	uint32_t have = segments_for(session->chunk_count), want = segments_for(chunks);

	while (management->segments_pool.free_count < want - have)
		if (!session_recycle(management))
			return false;
	for (uint32_t n = have; n < want; n++) {
		struct segment *segment = pool_take(&management->segments_pool);

		memset(segment->shares, 0, sizeof(segment->shares));
		session->segments[n] = pool_index(&management->segments_pool, segment);
	}
	return true;
}

bool chain_extend(struct session *session, const struct session_ref *ref, struct request_reply *reply)
{
	uint64_t end = (uint64_t)ref->first_chunk + ref->digest_count;

	if (!chain_agrees(session, ref, reply))
		return false;
	if (!ref->digest_count || end <= session->chunk_count)
		return true;
	if (end > WIRE_CHUNKS_MAX) {
		reply_set(reply, STATUS_TOO_BIG, "a chain of %llu chunks: at most %u are kept for a session",
			(unsigned long long)end, WIRE_CHUNKS_MAX);
		return false;
	}
	/* It may not be recycled to make room for itself. */
	list_remove(&session->unheld);
	if (!take_segments(session, (uint32_t)end)) {
		reply_set(reply, STATUS_BUSY,
			"the server keeps its maximum of chain chunks: end sessions, or retry after a while");
		session_settle(session);
		return false;
	}
	for (uint32_t chunk = session->chunk_count; chunk < end;) {
		uint32_t run = (uint32_t)kvr_min_u64(SEGMENT_CHUNKS - chunk % SEGMENT_CHUNKS, end - chunk);

		memcpy(chain_segment(session, chunk)->digests[chunk % SEGMENT_CHUNKS],
			ref->digests + (size_t)(chunk - ref->first_chunk) * WIRE_DIGEST_BYTES,
			(size_t)run * WIRE_DIGEST_BYTES);
		chunk += run;
	}
	session->chunk_count = (uint32_t)end;
	session_settle(session);
	return true;
}

void chain_free(struct session *session)
{
	struct pool *pool = &session->management->segments_pool;

	for (uint32_t n = segments_for(session->chunk_count); n > 0; n--)
		pool_give(pool, pool_at(pool, session->segments[n - 1]));
	session->chunk_count = 0;
}

bool chain_has(const struct session *session, uint32_t first, uint32_t count, struct request_reply *reply)
{
	if (count && (uint64_t)first + count <= session->chunk_count)
		return true;
	reply_set(reply, STATUS_INVALID_RANGE, "chunks %u .. %llu asked for, the session's chain has %u", first,
		(unsigned long long)first + count, session->chunk_count);
	return false;
}
