#include <errno.h>

#include "protocol/frame.h"

/*
 * Any reply type, with a status that has no body of its own
 *   variable: text
 */
static const struct frame_shape error_shape = { FRAME_ERROR, WIRE_HEADER_BYTES, 0, { 0 } };

static bool error_valid(const struct rules *rules, const struct error_reply *message)
{
	return rule_text(
		rules, &message->text, 0, WIRE_ERROR_TEXT_MAX, "error text: at most 512 bytes, none of them NUL");
}

int error_reply_decode(const void *bytes, size_t length, struct error_reply *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &error_shape, bytes, length, &message->header, error) &&
			get_text(&frame.rest, &message->text) && error_valid(&frame.rules, message));
}

ssize_t error_reply_encode(void *bytes, size_t capacity, const struct error_reply *message)
{
	struct put_frame frame;

	if (!error_valid(&rules_of_encode, message))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &error_shape, bytes, capacity) && put_text(&frame.rest, &message->text));
}
