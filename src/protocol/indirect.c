#include <errno.h>

#include "protocol/frame.h"

/*
 * INDIRECT
 *   32 u32 region
 *   36 u32 length
 *   40 u64 address
 */
static const struct frame_shape indirect_shape = { FRAME_REQUEST, 48, 0, { WIRE_INDIRECT } };

static bool indirect_valid(const struct rules *rules, const struct indirect *message)
{
	return rule(rules, message->length >= WIRE_HEADER_BYTES, STATUS_MALFORMED, 36,
		       "length: shorter than a header") &&
		rule(rules, message->length <= WIRE_MESSAGE_BYTES_MAX, STATUS_TOO_BIG, 36,
			"length: above the limit of a message") &&
		rule(rules, message->length <= UINT64_MAX - message->address, STATUS_INVALID_MEMORY, 40,
			"address: the request would pass the end of the address space");
}

int indirect_decode(const void *bytes, size_t length, struct indirect *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &indirect_shape, bytes, length, &message->header, error) &&
			get_u32(&frame.fixed, &message->region) && get_u32(&frame.fixed, &message->length) &&
			get_u64(&frame.fixed, &message->address) && indirect_valid(&frame.rules, message));
}

ssize_t indirect_encode(void *bytes, size_t capacity, const struct indirect *message)
{
	struct put_frame frame;

	if (!indirect_valid(&rules_of_encode, message))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &indirect_shape, bytes, capacity) && put_u32(&frame.fixed, message->region) &&
			put_u32(&frame.fixed, message->length) && put_u64(&frame.fixed, message->address));
}
