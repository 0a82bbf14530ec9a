#include <errno.h>

#include "protocol/info.h"

/*
 * HELLO
 *   32 u16 version_min
 *   34 u16 version_max
 *   36 u32 features
 *   40 u32 want_credits
 *   variable: driver, client, tenant
 *
 * A server of any version reads this part of any HELLO: these offsets stay for ever.
 */
static const struct frame_shape hello_shape = { FRAME_REQUEST, 44, 0, { WIRE_HELLO } };

static bool hello_get(struct get_frame *frame, struct hello *message)
{
	return get_u16(&frame->fixed, &message->version_min) && get_u16(&frame->fixed, &message->version_max) &&
		get_u32(&frame->fixed, &message->features) && get_u32(&frame->fixed, &message->want_credits) &&
		get_text(&frame->rest, &message->driver) && get_text(&frame->rest, &message->client) &&
		get_text(&frame->rest, &message->tenant);
}

static bool hello_put(struct put_frame *frame, const struct hello *message)
{
	return put_u16(&frame->fixed, message->version_min) && put_u16(&frame->fixed, message->version_max) &&
		put_u32(&frame->fixed, message->features) && put_u32(&frame->fixed, message->want_credits) &&
		put_text(&frame->rest, &message->driver) && put_text(&frame->rest, &message->client) &&
		put_text(&frame->rest, &message->tenant);
}

static bool hello_valid(const struct rules *rules, const struct hello *message)
{
	return rule(rules, message->version_min > 0, STATUS_MALFORMED, 32, "version_min: is 0") &&
		rule(rules, message->version_min <= message->version_max, STATUS_MALFORMED, 32,
			"version_min: above version_max") &&
		rule_text(rules, &message->driver, 0, WIRE_NAME_MAX, "driver: at most 256 bytes, none of them NUL") &&
		rule_text(rules, &message->client, 0, WIRE_NAME_MAX,
			"client name: at most 256 bytes, none of them NUL") &&
		rule_text(rules, &message->tenant, 0, WIRE_NAME_MAX, "tenant: at most 256 bytes, none of them NUL");
}

int hello_decode(const void *bytes, size_t length, struct hello *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &hello_shape, bytes, length, &message->header, error) &&
			hello_get(&frame, message) && hello_valid(&frame.rules, message));
}

ssize_t hello_encode(void *bytes, size_t capacity, const struct hello *message)
{
	struct put_frame frame;

	if (!hello_valid(&rules_of_encode, message))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &hello_shape, bytes, capacity) && hello_put(&frame, message));
}

/*
 * HELLO_REPLY
 *   32 u32 authentication
 *   36     server info (info.h)
 *   variable: server info, with AUTHENTICATION_CHALLENGE 32 bytes challenge
 */
static const struct frame_shape hello_reply_shape = { FRAME_REPLY, 36 + INFO_FIXED_BYTES, 0, { WIRE_HELLO_REPLY } };

static bool hello_reply_get(struct get_frame *frame, struct hello_reply *message)
{
	message->challenge = NULL;
	if (!get_u32(&frame->fixed, &message->authentication) || !info_get(frame, &message->info))
		return false;
	return message->authentication != AUTHENTICATION_CHALLENGE || get_32_bytes(&frame->rest, &message->challenge);
}

static bool hello_reply_put(struct put_frame *frame, const struct hello_reply *message)
{
	if (!put_u32(&frame->fixed, message->authentication) || !info_put(frame, &message->info))
		return false;
	return message->authentication != AUTHENTICATION_CHALLENGE || put_32_bytes(&frame->rest, message->challenge);
}

/* Before authentication a server may keep its limits to itself. */
static bool hello_reply_valid(const struct rules *rules, const struct hello_reply *message)
{
	bool done = message->authentication == AUTHENTICATION_DONE;

	return rule(rules, done || message->authentication == AUTHENTICATION_CHALLENGE, STATUS_UNSUPPORTED, 32,
		       "authentication: this version does not know that kind") &&
		rule(rules, done || message->challenge, STATUS_MALFORMED, 32, "challenge: missing") &&
		info_valid(rules, &message->info, 36, done);
}

int hello_reply_decode(const void *bytes, size_t length, struct hello_reply *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &hello_reply_shape, bytes, length, &message->header, error) &&
			hello_reply_get(&frame, message) && hello_reply_valid(&frame.rules, message));
}

ssize_t hello_reply_encode(void *bytes, size_t capacity, const struct hello_reply *message)
{
	struct put_frame frame;

	if (!hello_reply_valid(&rules_of_encode, message))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &hello_reply_shape, bytes, capacity) && hello_reply_put(&frame, message));
}
