#include <errno.h>

#include "protocol/session.h"

/*
 * QUERY
 *   32 u32 registration
 *   36 u64 timeout_ns
 *   44     session (session.h)
 */
static const struct frame_shape query_shape = {
	FRAME_REQUEST,
	44 + SESSION_FIXED_BYTES,
	QUERY_EARLY,
	{ WIRE_QUERY },
};

size_t query_request_size(const struct query_request *message)
{
	return query_shape.fixed_length + session_rest_size(&message->session);
}

int query_request_decode(const void *bytes, size_t length, struct query_request *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &query_shape, bytes, length, &message->header, error) &&
			get_u32(&frame.fixed, &message->registration) && get_u64(&frame.fixed, &message->timeout_ns) &&
			session_get_fixed(&frame.fixed, &message->session) &&
			session_counts_valid(&frame.rules, &message->session, 44) &&
			session_get_rest(&frame.rest, &message->session) &&
			session_content_valid(&frame.rules, &message->session));
}

ssize_t query_request_encode(void *bytes, size_t capacity, const struct query_request *message)
{
	struct put_frame frame;

	if (!session_counts_valid(&rules_of_encode, &message->session, 44) ||
		!session_content_valid(&rules_of_encode, &message->session))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &query_shape, bytes, capacity) && put_u32(&frame.fixed, message->registration) &&
			put_u64(&frame.fixed, message->timeout_ns) &&
			session_put_fixed(&frame.fixed, &message->session) &&
			session_put_rest(&frame.rest, &message->session));
}
