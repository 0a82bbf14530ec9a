/*
 * lock.c - the book of read locks: for each chunk of a session one bit a share (rank and reader), and as many locks
 * on the chunk's entry as there are bits. Nothing is released that is not in the book, so a release that matches
 * nothing is seen (pitfalls A01).
 */
#include "mgmt/state.h"

#include <string.h>

/* Nearly always all or nothing, and a processor's baseline has no instruction that counts. */
static uint32_t count_shares(const struct session *session, uint64_t shares)
{
	if (shares == session->model->all_shares)
		return session->model->shares;
	return shares ? (uint32_t)__builtin_popcountll(shares) : 0;
}

static void lock_take(struct session *session, uint32_t chunk, uint32_t entry)
{
	struct segment *segment = chain_segment(session, chunk);
	uint64_t *held = &segment->shares[chunk % SEGMENT_CHUNKS];
	uint64_t missing = session->model->all_shares & ~*held;
	uint32_t count = count_shares(session, missing);

	segment->entries[chunk % SEGMENT_CHUNKS] = entry;
	if (session->locked_limit <= chunk)
		session->locked_limit = chunk + 1;
	if (!count)
		return;
	cache_lock(session->management->cache, entry, count);
	*held |= missing;
	session->locks += count;
	COUNT(session->management, locks_taken_total, count);
}

void lock_take_run(struct session *session, uint32_t chunk, const uint32_t *entries, uint32_t count)
{
	const struct model *model = session->model;
	struct segment *segment = chain_segment(session, chunk);
	uint32_t at = chunk % SEGMENT_CHUNKS;
	uint64_t held = 0;

	for (uint32_t n = 0; n < count; n++)
		held |= segment->shares[at + n];
	if (held) {
		for (uint32_t n = 0; n < count; n++)
			lock_take(session, chunk + n, entries[n]);
		return;
	}
	memcpy(&segment->entries[at], entries, count * sizeof(*entries));
	for (uint32_t n = 0; n < count; n++)
		segment->shares[at + n] = model->all_shares;
	cache_lock_all(session->management->cache, entries, count, model->shares);
	if (count && session->locked_limit < chunk + count)
		session->locked_limit = chunk + count;
	session->locks += (uint64_t)count * model->shares;
	COUNT(session->management, locks_taken_total, (uint64_t)count * model->shares);
}

uint32_t lock_drop(struct session *session, uint32_t chunk, uint64_t shares)
{
	struct segment *segment = chain_segment(session, chunk);
	uint64_t *held = &segment->shares[chunk % SEGMENT_CHUNKS];
	uint32_t count = count_shares(session, *held & shares);

	if (!count)
		return 0;
	*held &= ~shares;
	session->locks -= count;
	cache_unlock(session->management->cache, segment->entries[chunk % SEGMENT_CHUNKS], count);
	COUNT(session->management, locks_released_total, count);
	return count;
}

void lock_release_begin(struct session *session, uint32_t floor, bool expired)
{
	if (floor >= session->locked_limit)
		return;
	session->release_floor = floor;
	session->release_at = session->locked_limit;
	session->release_expired = expired;
}

void lock_release_stop(struct session *session)
{
	session->release_at = 0;
	session->release_floor = 0;
	session->release_expired = false;
}

/* The end of a hold is a use of its own: END_SESSION need not find and touch these again. `count` chunks before what was released. */
static void note_released(struct session *session, uint32_t count, uint64_t locks)
{
	if (locks > 0 && session->touch_at == session->release_at && session->users == 0)
		session->touch_at -= count;
	session->release_at -= count;
	if (session->release_expired)
		COUNT(session->management, locks_expired_total, locks);
}

/* The last `count` chunks, of one segment, when all shares of each are held, which is nearly always so. */
static bool release_run(struct session *session, uint32_t count)
{
	const struct model *model = session->model;
	struct segment *segment = chain_segment(session, session->release_at - 1);
	uint32_t at = (session->release_at - count) % SEGMENT_CHUNKS;
	uint64_t locks = (uint64_t)count * model->shares;
	uint64_t all = UINT64_MAX;

	for (uint32_t n = 0; n < count; n++)
		all &= segment->shares[at + n] ^ ~model->all_shares;
	if (all != UINT64_MAX || !locks)
		return false;
	memset(&segment->shares[at], 0, count * sizeof(segment->shares[0]));
	session->locks -= locks;
	cache_unlock_all(session->management->cache, &segment->entries[at], count, model->shares);
	COUNT(session->management, locks_released_total, locks);
	note_released(session, count, locks);
	return true;
}

void lock_release_slice(struct session *session)
{
	uint32_t floor = session->release_floor;
	uint32_t stop = session->release_at - floor > SLICE_CHUNKS ? session->release_at - SLICE_CHUNKS : floor;

	session->management->budget -= session->release_at - stop;
	while (session->release_at > stop) {
		uint32_t first = (session->release_at - 1) / SEGMENT_CHUNKS * SEGMENT_CHUNKS;

		first = first > stop ? first : stop;
		if (release_run(session, session->release_at - first))
			continue;
		while (session->release_at > first)
			note_released(session, 1, lock_drop(session, session->release_at - 1, UINT64_MAX));
	}
	session->locked_limit = session->release_at;
	if (session->release_at == floor)
		lock_release_stop(session);
}
