#include "protocol/info.h"

#include <errno.h>

bool info_get(struct get_frame *frame, struct server_info *info)
{
	struct get_cursor *fixed = &frame->fixed;

	return get_u32(fixed, &info->version) && get_u32(fixed, &info->features) &&
		get_u32(fixed, &info->chunk_tokens) && get_u32(fixed, &info->chunks_max) &&
		get_u32(fixed, &info->message_bytes_max) && get_u32(fixed, &info->inline_bytes) &&
		get_u32(fixed, &info->credits) && get_u32(fixed, &info->lock_seconds) &&
		get_u64(fixed, &info->heartbeat_ns) && get_text(&frame->rest, &info->server) &&
		get_text(&frame->rest, &info->tenant);
}

bool info_put(struct put_frame *frame, const struct server_info *info)
{
	struct put_cursor *fixed = &frame->fixed;

	return put_u32(fixed, info->version) && put_u32(fixed, info->features) && put_u32(fixed, info->chunk_tokens) &&
		put_u32(fixed, info->chunks_max) && put_u32(fixed, info->message_bytes_max) &&
		put_u32(fixed, info->inline_bytes) && put_u32(fixed, info->credits) &&
		put_u32(fixed, info->lock_seconds) && put_u64(fixed, info->heartbeat_ns) &&
		put_text(&frame->rest, &info->server) && put_text(&frame->rest, &info->tenant);
}

static bool limits_valid(const struct rules *rules, const struct server_info *info, uint32_t offset)
{
	return rule(rules, info->chunk_tokens > 0, STATUS_MALFORMED, offset + 8, "chunk_tokens: is 0") &&
		rule(rules, info->chunks_max > 0, STATUS_MALFORMED, offset + 12, "chunks_max: is 0") &&
		rule(rules, info->message_bytes_max >= info->inline_bytes, STATUS_MALFORMED, offset + 16,
			"message_bytes_max: below inline_bytes") &&
		rule(rules, info->inline_bytes >= WIRE_HEADER_BYTES, STATUS_MALFORMED, offset + 20,
			"inline_bytes: shorter than a header") &&
		rule(rules, info->credits > 0, STATUS_MALFORMED, offset + 24, "credits: is 0");
}

bool info_valid(const struct rules *rules, const struct server_info *info, uint32_t offset, bool complete)
{
	return (!complete || limits_valid(rules, info, offset)) &&
		rule_text(rules, &info->server, 0, WIRE_NAME_MAX, "server name: at most 256 bytes, none of them NUL") &&
		rule_text(rules, &info->tenant, 0, WIRE_NAME_MAX, "tenant: at most 256 bytes, none of them NUL");
}

/*
 * AUTHENTICATE_REPLY, GET_INFO_REPLY
 *   32     server info (info.h)
 *   variable: server info
 */
static const struct frame_shape authenticate_reply_shape = {
	FRAME_REPLY,
	32 + INFO_FIXED_BYTES,
	0,
	{ WIRE_AUTHENTICATE_REPLY },
};
static const struct frame_shape info_reply_shape = {
	FRAME_REPLY,
	32 + INFO_FIXED_BYTES,
	0,
	{ WIRE_GET_INFO_REPLY },
};

static int decode(const struct frame_shape *shape, const void *bytes, size_t length, struct authenticate_reply *message,
	struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, shape, bytes, length, &message->header, error) && info_get(&frame, &message->info) &&
			info_valid(&frame.rules, &message->info, 32, true));
}

static ssize_t encode(
	const struct frame_shape *shape, void *bytes, size_t capacity, const struct authenticate_reply *message)
{
	struct put_frame frame;

	if (!info_valid(&rules_of_encode, &message->info, 32, true))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, shape, bytes, capacity) && info_put(&frame, &message->info));
}

int authenticate_reply_decode(
	const void *bytes, size_t length, struct authenticate_reply *message, struct wire_error *error)
{
	return decode(&authenticate_reply_shape, bytes, length, message, error);
}

ssize_t authenticate_reply_encode(void *bytes, size_t capacity, const struct authenticate_reply *message)
{
	return encode(&authenticate_reply_shape, bytes, capacity, message);
}

int info_reply_decode(const void *bytes, size_t length, struct authenticate_reply *message, struct wire_error *error)
{
	return decode(&info_reply_shape, bytes, length, message, error);
}

ssize_t info_reply_encode(void *bytes, size_t capacity, const struct authenticate_reply *message)
{
	return encode(&info_reply_shape, bytes, capacity, message);
}
