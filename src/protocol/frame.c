#include "protocol/frame.h"

#include <errno.h>
#include <string.h>

#define OFFSET_TYPE 8u
#define OFFSET_FIXED_LENGTH 10u
#define OFFSET_FLAGS 12u
#define OFFSET_STATUS 14u

static const char ends_too_early[] = "the message ends inside its variable part";

const struct rules rules_of_encode = { NULL, NULL };

bool rule_broken(const struct rules *rules, uint16_t status, uint32_t offset, const char *what)
{
	if (rules->error) {
		rules->error->status = status;
		rules->error->offset = offset;
		rules->error->what = what;
	}
	return false;
}

bool rule_text(const struct rules *rules, const struct wire_text *text, uint32_t min, uint32_t max, const char *what)
{
	uint32_t offset = 0;
	bool fits = text->length >= min && text->length <= max;

	if (fits && (text->length == 0 || !memchr(text->bytes, 0, text->length)))
		return true;
	if (rules->message)
		offset = (uint32_t)((const uint8_t *)text->bytes - rules->message);
	return rule_broken(rules, STATUS_MALFORMED, offset, what);
}

bool get_text(struct get_cursor *cursor, struct wire_text *text)
{
	struct get_cursor ahead = *cursor;
	const uint8_t *bytes;
	uint16_t length;

	if (!get_u16(&ahead, &length) || !get_bytes(&ahead, &bytes, length))
		return false;
	text->bytes = (const char *)bytes;
	text->length = length;
	*cursor = ahead;
	return true;
}

bool put_text(struct put_cursor *cursor, const struct wire_text *text)
{
	if (text->length > UINT16_MAX || text_size(text) > put_left(cursor))
		return false;
	return put_u16(cursor, (uint16_t)text->length) && put_bytes(cursor, text->bytes, text->length);
}

bool get_32_bytes(struct get_cursor *cursor, const uint8_t **bytes)
{
	return get_bytes(cursor, bytes, 32);
}

bool put_32_bytes(struct put_cursor *cursor, const uint8_t *bytes)
{
	static const uint8_t zeros[32];

	return put_bytes(cursor, bytes ? bytes : zeros, 32);
}

static bool type_fits(const struct frame_shape *shape, uint16_t type)
{
	if (shape->types[0] == 0)
		return true;
	for (size_t i = 0; i < FRAME_TYPES_MAX && shape->types[i]; i++)
		if (shape->types[i] == type)
			return true;
	return false;
}

/* The rules about flags and status. */
static bool header_valid(const struct rules *rules, const struct frame_shape *shape, const struct wire_header *header)
{
	switch (shape->kind) {
	case FRAME_REQUEST:
		return rule(rules, (header->flags & ~shape->flags) == 0, STATUS_MALFORMED, OFFSET_FLAGS,
			       "flags: a request with a flag that this version does not know is refused") &&
			rule(rules, header->status == 0, STATUS_MALFORMED, OFFSET_STATUS,
				"status: must be 0 in a request");
	case FRAME_REPLY:
		return rule(rules, status_has_body(header->status), STATUS_MALFORMED, OFFSET_STATUS,
			"status: the reply carries an error, not the body of its type");
	case FRAME_ERROR:
		return rule(rules, !status_has_body(header->status), STATUS_MALFORMED, OFFSET_STATUS,
			"status: the reply carries the body of its type, not an error");
	}
	return false;
}

bool frame_open(struct get_frame *frame, const struct frame_shape *shape, const void *bytes, size_t length,
	struct wire_header *header, struct wire_error *error)
{
	const struct rules *rules = &frame->rules;

	frame->rules.error = error;
	frame->rules.message = (const uint8_t *)bytes;
	if (wire_header_decode(bytes, length, header, error))
		return false;
	if (!rule(rules, type_fits(shape, header->type), STATUS_MALFORMED, OFFSET_TYPE,
		    "type: not the expected message") ||
		!rule(rules, header->fixed_length >= shape->fixed_length, STATUS_MALFORMED, OFFSET_FIXED_LENGTH,
			"fixed_length: shorter than version 1 of this message") ||
		!header_valid(rules, shape, header))
		return false;
	frame->fixed.next = rules->message + WIRE_HEADER_BYTES;
	frame->fixed.end = rules->message + header->fixed_length;
	frame->rest.next = frame->fixed.end;
	frame->rest.end = rules->message + header->length;
	/* Stands until a rule says something better: the reads themselves can only fail for want of bytes. */
	(void)rule_broken(rules, STATUS_MALFORMED, 0, ends_too_early);
	return true;
}

int frame_result(struct get_frame *frame, bool good)
{
	struct wire_error *error = frame->rules.error;

	if (good)
		return 0;
	if (error->what == ends_too_early)
		error->offset = (uint32_t)(frame->rest.next - frame->rules.message);
	return -EBADMSG;
}

bool frame_begin(struct put_frame *frame, const struct frame_shape *shape, void *bytes, size_t capacity)
{
	if (capacity > WIRE_MESSAGE_BYTES_MAX)
		capacity = WIRE_MESSAGE_BYTES_MAX;
	if (capacity < shape->fixed_length)
		return false;
	frame->bytes = (uint8_t *)bytes;
	frame->shape = shape;
	frame->fixed.next = frame->bytes + WIRE_HEADER_BYTES;
	frame->fixed.end = frame->bytes + shape->fixed_length;
	frame->rest.next = frame->fixed.end;
	frame->rest.end = frame->bytes + capacity;
	return true;
}

ssize_t frame_finish(struct put_frame *frame, const struct wire_header *header, bool complete)
{
	struct wire_header out = *header;

	if (!complete)
		return -EMSGSIZE;
	/* One type: the encoder knows it. Several or any: the header names it. */
	if (frame->shape->types[0] && !frame->shape->types[1])
		out.type = frame->shape->types[0];
	if (!type_fits(frame->shape, out.type) || !header_valid(&rules_of_encode, frame->shape, &out))
		return -EINVAL;
	out.fixed_length = frame->shape->fixed_length;
	out.length = (uint32_t)(frame->rest.next - frame->bytes);
	wire_header_encode(frame->bytes, &out);
	return (ssize_t)out.length;
}
