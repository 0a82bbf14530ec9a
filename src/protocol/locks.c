#include <errno.h>

#include "protocol/session.h"

/*
 * FREE_LOCKS
 *   32 u32 registration
 *   36 u32 first_chunk
 *   40 u32 chunk_count
 *   44 u32 rank
 *   48 u32 reader
 *   52     session (session.h)
 */
static const struct frame_shape free_locks_shape = {
	FRAME_REQUEST,
	52 + SESSION_FIXED_BYTES,
	0,
	{ WIRE_FREE_LOCKS },
};

static bool free_locks_get(struct get_cursor *fixed, struct free_locks_request *message)
{
	return get_u32(fixed, &message->registration) && get_u32(fixed, &message->first_chunk) &&
		get_u32(fixed, &message->chunk_count) && get_u32(fixed, &message->rank) &&
		get_u32(fixed, &message->reader) && session_get_fixed(fixed, &message->session);
}

static bool free_locks_put(struct put_cursor *fixed, const struct free_locks_request *message)
{
	return put_u32(fixed, message->registration) && put_u32(fixed, message->first_chunk) &&
		put_u32(fixed, message->chunk_count) && put_u32(fixed, message->rank) &&
		put_u32(fixed, message->reader) && session_put_fixed(fixed, &message->session);
}

static bool free_locks_valid(const struct rules *rules, const struct free_locks_request *message)
{
	bool all = message->rank == WIRE_ALL_RANKS;

	return chunk_range_valid(rules, message->first_chunk, message->chunk_count, 36) &&
		rule(rules, all || message->rank < WIRE_WORLD_SIZE_MAX, STATUS_MALFORMED, 44,
			"rank: above the limit") &&
		rule(rules, all || message->reader < WIRE_READERS_MAX, STATUS_MALFORMED, 48,
			"reader: above the limit") &&
		session_counts_valid(rules, &message->session, 52);
}

size_t free_locks_request_size(const struct free_locks_request *message)
{
	return free_locks_shape.fixed_length + session_rest_size(&message->session);
}

int free_locks_request_decode(
	const void *bytes, size_t length, struct free_locks_request *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &free_locks_shape, bytes, length, &message->header, error) &&
			free_locks_get(&frame.fixed, message) && free_locks_valid(&frame.rules, message) &&
			session_get_rest(&frame.rest, &message->session) &&
			session_content_valid(&frame.rules, &message->session));
}

ssize_t free_locks_request_encode(void *bytes, size_t capacity, const struct free_locks_request *message)
{
	struct put_frame frame;

	if (!free_locks_valid(&rules_of_encode, message) || !session_content_valid(&rules_of_encode, &message->session))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &free_locks_shape, bytes, capacity) && free_locks_put(&frame.fixed, message) &&
			session_put_rest(&frame.rest, &message->session));
}

/*
 * FREE_LOCKS_REPLY, CLEAR_REPLY
 *   32 u32 count
 *   36 u32 kept
 */
static const struct frame_shape count_reply_shape = {
	FRAME_REPLY,
	40,
	0,
	{ WIRE_FREE_LOCKS_REPLY, WIRE_CLEAR_REPLY },
};

int count_reply_decode(const void *bytes, size_t length, struct count_reply *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &count_reply_shape, bytes, length, &message->header, error) &&
			get_u32(&frame.fixed, &message->count) && get_u32(&frame.fixed, &message->kept));
}

ssize_t count_reply_encode(void *bytes, size_t capacity, const struct count_reply *message)
{
	struct put_frame frame;

	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &count_reply_shape, bytes, capacity) && put_u32(&frame.fixed, message->count) &&
			put_u32(&frame.fixed, message->kept));
}
