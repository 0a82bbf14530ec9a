#include <errno.h>

#include "protocol/frame.h"

/*
 * CONNECT, CONNECT_REPLY
 *   32 u32 rail
 *   36 u32 address_length
 *   variable: u8 address[address_length]
 */
static const struct frame_shape connect_shape = { FRAME_REQUEST, 40, 0, { WIRE_CONNECT } };
static const struct frame_shape connect_reply_shape = { FRAME_REPLY, 40, 0, { WIRE_CONNECT_REPLY } };

static bool connect_valid(const struct rules *rules, uint32_t rail, uint32_t address_length)
{
	return rule(rules, rail < WIRE_RAILS_MAX, STATUS_TOO_BIG, 32, "rail: above the limit") &&
		rule(rules, address_length <= WIRE_ADDRESS_MAX, STATUS_TOO_BIG, 36, "address_length: above the limit");
}

int connect_request_decode(const void *bytes, size_t length, struct connect_request *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &connect_shape, bytes, length, &message->header, error) &&
			get_u32(&frame.fixed, &message->rail) && get_u32(&frame.fixed, &message->address_length) &&
			connect_valid(&frame.rules, message->rail, message->address_length) &&
			get_bytes(&frame.rest, &message->address, message->address_length));
}

ssize_t connect_request_encode(void *bytes, size_t capacity, const struct connect_request *message)
{
	struct put_frame frame;

	if (!connect_valid(&rules_of_encode, message->rail, message->address_length))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &connect_shape, bytes, capacity) && put_u32(&frame.fixed, message->rail) &&
			put_u32(&frame.fixed, message->address_length) &&
			put_bytes(&frame.rest, message->address, message->address_length));
}

int connect_reply_decode(const void *bytes, size_t length, struct connect_reply *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &connect_reply_shape, bytes, length, &message->header, error) &&
			get_u32(&frame.fixed, &message->rail) && get_u32(&frame.fixed, &message->address_length) &&
			connect_valid(&frame.rules, message->rail, message->address_length) &&
			get_bytes(&frame.rest, &message->address, message->address_length));
}

ssize_t connect_reply_encode(void *bytes, size_t capacity, const struct connect_reply *message)
{
	struct put_frame frame;

	if (!connect_valid(&rules_of_encode, message->rail, message->address_length))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &connect_reply_shape, bytes, capacity) && put_u32(&frame.fixed, message->rail) &&
			put_u32(&frame.fixed, message->address_length) &&
			put_bytes(&frame.rest, message->address, message->address_length));
}
