#include <errno.h>

#include "protocol/frame.h"

/*
 * AUTHENTICATE; its reply is in info.c
 *   32 nonce, 32 bytes
 *   64 proof, 32 bytes
 *   variable: key
 */
static const struct frame_shape authenticate_shape = { FRAME_REQUEST, 96, 0, { WIRE_AUTHENTICATE } };

static bool authenticate_valid(const struct rules *rules, const struct authenticate *message)
{
	return rule_text(rules, &message->key, 1, WIRE_NAME_MAX, "key name: 1 to 256 bytes, none of them NUL");
}

int authenticate_decode(const void *bytes, size_t length, struct authenticate *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &authenticate_shape, bytes, length, &message->header, error) &&
			get_32_bytes(&frame.fixed, &message->nonce) && get_32_bytes(&frame.fixed, &message->proof) &&
			get_text(&frame.rest, &message->key) && authenticate_valid(&frame.rules, message));
}

ssize_t authenticate_encode(void *bytes, size_t capacity, const struct authenticate *message)
{
	struct put_frame frame;

	if (!authenticate_valid(&rules_of_encode, message))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &authenticate_shape, bytes, capacity) &&
			put_32_bytes(&frame.fixed, message->nonce) && put_32_bytes(&frame.fixed, message->proof) &&
			put_text(&frame.rest, &message->key));
}
