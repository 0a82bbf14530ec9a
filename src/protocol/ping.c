#include "protocol/frame.h"

/* PING, GET_INFO: a header alone */
static const struct frame_shape ping_shape = { FRAME_REQUEST, WIRE_HEADER_BYTES, 0, { WIRE_PING, WIRE_GET_INFO } };

int ping_decode(const void *bytes, size_t length, struct ping *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame, frame_open(&frame, &ping_shape, bytes, length, &message->header, error));
}

ssize_t ping_encode(void *bytes, size_t capacity, const struct ping *message)
{
	struct put_frame frame;

	return frame_finish(&frame, &message->header, frame_begin(&frame, &ping_shape, bytes, capacity));
}

/* The replies that say no more than "done": a header alone */
static const struct frame_shape empty_reply_shape = {
	FRAME_REPLY,
	WIRE_HEADER_BYTES,
	0,
	{ WIRE_PING_REPLY, WIRE_CANCEL_REPLY, WIRE_END_SESSION_REPLY, WIRE_FORGET_MEMORY_REPLY, WIRE_UNREGISTER_REPLY },
};

int empty_reply_decode(const void *bytes, size_t length, struct empty_reply *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame, frame_open(&frame, &empty_reply_shape, bytes, length, &message->header, error));
}

ssize_t empty_reply_encode(void *bytes, size_t capacity, const struct empty_reply *message)
{
	struct put_frame frame;

	return frame_finish(&frame, &message->header, frame_begin(&frame, &empty_reply_shape, bytes, capacity));
}
