#include "protocol/frame.h"

/*
 * CLEAR; its reply is count_reply (locks.c)
 *   32 u32 registration, or UINT32_MAX
 */
static const struct frame_shape clear_shape = { FRAME_REQUEST, 36, 0, { WIRE_CLEAR } };

int clear_request_decode(const void *bytes, size_t length, struct clear_request *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &clear_shape, bytes, length, &message->header, error) &&
			get_u32(&frame.fixed, &message->registration));
}

ssize_t clear_request_encode(void *bytes, size_t capacity, const struct clear_request *message)
{
	struct put_frame frame;

	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &clear_shape, bytes, capacity) && put_u32(&frame.fixed, message->registration));
}
