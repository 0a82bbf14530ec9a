#include "protocol/frame.h"

/*
 * CANCEL
 *   32 u64 target
 */
static const struct frame_shape cancel_shape = { FRAME_REQUEST, 40, 0, { WIRE_CANCEL } };

int cancel_request_decode(const void *bytes, size_t length, struct cancel_request *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &cancel_shape, bytes, length, &message->header, error) &&
			get_u64(&frame.fixed, &message->target));
}

ssize_t cancel_request_encode(void *bytes, size_t capacity, const struct cancel_request *message)
{
	struct put_frame frame;

	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &cancel_shape, bytes, capacity) && put_u64(&frame.fixed, message->target));
}
