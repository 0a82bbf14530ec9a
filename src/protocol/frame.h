/*
 * frame.h - what all codecs share: opening and closing a message, texts, and the rules that both directions check.
 *
 * A codec is a file with the same few functions per message: *_get and *_put list the fields in the order of the wire, *_valid
 * holds the rules, and decode and encode put these together. Encode checks the same rules as decode, so that what one side
 * writes the other accepts. For the .c files of protocol only.
 */
#ifndef KVRAIL_PROTOCOL_FRAME_H
#define KVRAIL_PROTOCOL_FRAME_H

#include "protocol/cursor.h"
#include "protocol/message.h"

KVR_BEGIN_C

enum frame_kind {
	FRAME_REQUEST, /* status is 0, unknown flags are refused */
	FRAME_REPLY,   /* status has a body, unknown flags are left alone */
	FRAME_ERROR,   /* a reply whose status has no body of its own */
};

#define FRAME_TYPES_MAX 5
struct frame_shape {
	enum frame_kind kind;
	uint16_t fixed_length;           /* header + fixed part of this version */
	uint16_t flags;                  /* of a request: those that this version knows */
	uint16_t types[FRAME_TYPES_MAX]; /* the types that have this shape, 0 behind the last; none at all: any type */
};

/* Where the checks of one message report to. */
struct rules {
	struct wire_error *error; /* NULL: nobody asks (encode) */
	const uint8_t *message;   /* to turn pointers into offsets; NULL when encoding */
};

extern const struct rules rules_of_encode;

struct get_frame {
	struct get_cursor fixed;
	struct get_cursor rest;
	struct rules rules;
};

struct put_frame {
	struct put_cursor fixed;
	struct put_cursor rest;
	uint8_t *bytes;
	const struct frame_shape *shape;
};

/* Fills *error and returns false: for the rare case, out of line. */
KVR_COLD bool rule_broken(const struct rules *rules, uint16_t status, uint32_t offset, const char *what);

/* One rule: true when it holds, else *error tells status, offset in the message, and text. */
KVR_MUST_CHECK static inline bool rule(
	const struct rules *rules, bool holds, uint16_t status, uint32_t offset, const char *what)
{
	return KVR_LIKELY(holds) || rule_broken(rules, status, offset, what);
}

/* A text of `min` to `max` bytes without a NUL byte; `what` says so in words. */
KVR_MUST_CHECK bool rule_text(
	const struct rules *rules, const struct wire_text *text, uint32_t min, uint32_t max, const char *what);

/* u16 length, bytes. put_text fails for a text of more than 65535 bytes; *_valid must have refused it before. */
KVR_MUST_CHECK bool get_text(struct get_cursor *cursor, struct wire_text *text);
KVR_MUST_CHECK bool put_text(struct put_cursor *cursor, const struct wire_text *text);
static inline size_t text_size(const struct wire_text *text)
{
	return sizeof(uint16_t) + text->length;
}

/* 32 bytes; a NULL pointer is written as zeros. */
KVR_MUST_CHECK bool get_32_bytes(struct get_cursor *cursor, const uint8_t **bytes);
KVR_MUST_CHECK bool put_32_bytes(struct put_cursor *cursor, const uint8_t *bytes);

/* Decodes and checks the header; frame->fixed and frame->rest then cover the two parts. False with *error filled. */
KVR_MUST_CHECK bool frame_open(struct get_frame *frame, const struct frame_shape *shape, const void *bytes,
	size_t length, struct wire_header *header, struct wire_error *error);
/* The result of a decoder: 0 when `good`, else -EBADMSG; names the offset when the message ended too early. */
KVR_MUST_CHECK int frame_result(struct get_frame *frame, bool good);

/* False when `capacity` is below the fixed part. */
KVR_MUST_CHECK bool frame_begin(struct put_frame *frame, const struct frame_shape *shape, void *bytes, size_t capacity);
/* The result of an encoder: writes the header, returns the length; -EMSGSIZE when not `complete`, -EINVAL when the header breaks
 * the rules of the shape. */
KVR_MUST_CHECK ssize_t frame_finish(struct put_frame *frame, const struct wire_header *header, bool complete);

KVR_END_C

#endif
