#include <errno.h>

#include "protocol/session.h"

/*
 * LOOKUP
 *   32 u32 registration
 *   36 u32 chunk_count
 *   40 u64 deadline_ns
 *   48     session (session.h)
 */
static const struct frame_shape lookup_shape = {
	FRAME_REQUEST,
	48 + SESSION_FIXED_BYTES,
	LOOKUP_NO_WAIT | LOOKUP_NO_LOCK,
	{ WIRE_LOOKUP },
};

static bool lookup_get(struct get_cursor *fixed, struct lookup_request *message)
{
	return get_u32(fixed, &message->registration) && get_u32(fixed, &message->chunk_count) &&
		get_u64(fixed, &message->deadline_ns) && session_get_fixed(fixed, &message->session);
}

static bool lookup_put(struct put_cursor *fixed, const struct lookup_request *message)
{
	return put_u32(fixed, message->registration) && put_u32(fixed, message->chunk_count) &&
		put_u64(fixed, message->deadline_ns) && session_put_fixed(fixed, &message->session);
}

static bool lookup_valid(const struct rules *rules, const struct lookup_request *message)
{
	return rule(rules, message->chunk_count <= WIRE_CHUNKS_MAX, STATUS_TOO_BIG, 36,
		       "chunk_count: above the limit") &&
		session_counts_valid(rules, &message->session, 48);
}

size_t lookup_request_size(const struct lookup_request *message)
{
	return lookup_shape.fixed_length + session_rest_size(&message->session);
}

int lookup_request_decode(const void *bytes, size_t length, struct lookup_request *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &lookup_shape, bytes, length, &message->header, error) &&
			lookup_get(&frame.fixed, message) && lookup_valid(&frame.rules, message) &&
			session_get_rest(&frame.rest, &message->session) &&
			session_content_valid(&frame.rules, &message->session));
}

ssize_t lookup_request_encode(void *bytes, size_t capacity, const struct lookup_request *message)
{
	struct put_frame frame;

	if (!lookup_valid(&rules_of_encode, message) || !session_content_valid(&rules_of_encode, &message->session))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &lookup_shape, bytes, capacity) && lookup_put(&frame.fixed, message) &&
			session_put_rest(&frame.rest, &message->session));
}

/*
 * LOOKUP_REPLY, QUERY_REPLY
 *   32 u32 matched_chunks
 *   36 u32 from_l2_chunks
 */
static const struct frame_shape lookup_reply_shape = {
	FRAME_REPLY,
	40,
	0,
	{ WIRE_LOOKUP_REPLY, WIRE_QUERY_REPLY },
};

static bool lookup_reply_valid(const struct rules *rules, const struct lookup_reply *message)
{
	return rule(rules, message->matched_chunks <= WIRE_CHUNKS_MAX, STATUS_TOO_BIG, 32,
		       "matched_chunks: above the limit") &&
		rule(rules, message->from_l2_chunks <= message->matched_chunks, STATUS_MALFORMED, 36,
			"from_l2_chunks: more than matched");
}

int lookup_reply_decode(const void *bytes, size_t length, struct lookup_reply *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &lookup_reply_shape, bytes, length, &message->header, error) &&
			get_u32(&frame.fixed, &message->matched_chunks) &&
			get_u32(&frame.fixed, &message->from_l2_chunks) && lookup_reply_valid(&frame.rules, message));
}

ssize_t lookup_reply_encode(void *bytes, size_t capacity, const struct lookup_reply *message)
{
	struct put_frame frame;

	if (!lookup_reply_valid(&rules_of_encode, message))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &lookup_reply_shape, bytes, capacity) &&
			put_u32(&frame.fixed, message->matched_chunks) &&
			put_u32(&frame.fixed, message->from_l2_chunks));
}
