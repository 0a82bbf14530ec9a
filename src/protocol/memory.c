#include <errno.h>

#include "protocol/frame.h"

/*
 * MEMORY
 *   32 u64 address
 *   40 u64 length
 *   48 u64 offset
 *   56 u32 kind
 *   60 u32 device
 *   64 u32 rkey_count
 *   68 u32 handle_length
 *   variable: u32 rkeys[rkey_count], u8 handle[handle_length]
 */
static const struct frame_shape memory_shape = { FRAME_REQUEST, 72, 0, { WIRE_MEMORY } };

static bool memory_get_fixed(struct get_cursor *fixed, struct memory_request *message)
{
	return get_u64(fixed, &message->address) && get_u64(fixed, &message->length) &&
		get_u64(fixed, &message->offset) && get_u32(fixed, &message->kind) &&
		get_u32(fixed, &message->device) && get_u32(fixed, &message->rkey_count) &&
		get_u32(fixed, &message->handle_length);
}

static bool memory_put_fixed(struct put_cursor *fixed, const struct memory_request *message)
{
	return put_u64(fixed, message->address) && put_u64(fixed, message->length) && put_u64(fixed, message->offset) &&
		put_u32(fixed, message->kind) && put_u32(fixed, message->device) &&
		put_u32(fixed, message->rkey_count) && put_u32(fixed, message->handle_length);
}

/* Only after memory_valid: rkeys has WIRE_RAILS_MAX places. */
static bool memory_get_rest(struct get_cursor *rest, struct memory_request *message)
{
	for (uint32_t i = 0; i < message->rkey_count; i++)
		if (!get_u32(rest, &message->rkeys[i]))
			return false;
	for (uint32_t i = message->rkey_count; i < WIRE_RAILS_MAX; i++)
		message->rkeys[i] = 0;
	return get_bytes(rest, &message->handle, message->handle_length);
}

static bool memory_put_rest(struct put_cursor *rest, const struct memory_request *message)
{
	for (uint32_t i = 0; i < message->rkey_count; i++)
		if (!put_u32(rest, message->rkeys[i]))
			return false;
	return put_bytes(rest, message->handle, message->handle_length);
}

static bool memory_valid(const struct rules *rules, const struct memory_request *message)
{
	bool remote = message->kind == MEMORY_REMOTE;
	bool device = message->kind == MEMORY_DEVICE;

	return rule(rules, message->length > 0, STATUS_MALFORMED, 40, "length: is 0") &&
		rule(rules, message->length <= UINT64_MAX - message->address, STATUS_INVALID_MEMORY, 40,
			"length: the memory would pass the end of the address space") &&
		rule(rules, message->length <= UINT64_MAX - message->offset, STATUS_INVALID_MEMORY, 48,
			"offset: offset + length wraps") &&
		rule(rules, message->kind >= MEMORY_SHARED && message->kind <= MEMORY_REMOTE, STATUS_UNSUPPORTED, 56,
			"kind: this version does not know that kind of memory") &&
		rule(rules, message->rkey_count <= WIRE_RAILS_MAX, STATUS_TOO_BIG, 64, "rkey_count: above the limit") &&
		rule(rules, (message->rkey_count > 0) == remote, STATUS_MALFORMED, 64,
			"rkey_count: MEMORY_REMOTE has one key per rail, other kinds none") &&
		rule(rules, message->handle_length <= WIRE_HANDLE_MAX, STATUS_TOO_BIG, 68,
			"handle_length: above the limit") &&
		rule(rules, (message->handle_length > 0) == device, STATUS_MALFORMED, 68,
			"handle_length: MEMORY_DEVICE has a handle, other kinds none");
}

int memory_request_decode(const void *bytes, size_t length, struct memory_request *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &memory_shape, bytes, length, &message->header, error) &&
			memory_get_fixed(&frame.fixed, message) && memory_valid(&frame.rules, message) &&
			memory_get_rest(&frame.rest, message));
}

ssize_t memory_request_encode(void *bytes, size_t capacity, const struct memory_request *message)
{
	struct put_frame frame;

	if (!memory_valid(&rules_of_encode, message))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &memory_shape, bytes, capacity) && memory_put_fixed(&frame.fixed, message) &&
			memory_put_rest(&frame.rest, message));
}

/*
 * MEMORY_REPLY
 *   32 u32 region
 */
static const struct frame_shape memory_reply_shape = { FRAME_REPLY, 36, 0, { WIRE_MEMORY_REPLY } };

int memory_reply_decode(const void *bytes, size_t length, struct memory_reply *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &memory_reply_shape, bytes, length, &message->header, error) &&
			get_u32(&frame.fixed, &message->region));
}

ssize_t memory_reply_encode(void *bytes, size_t capacity, const struct memory_reply *message)
{
	struct put_frame frame;

	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &memory_reply_shape, bytes, capacity) && put_u32(&frame.fixed, message->region));
}

/*
 * FORGET_MEMORY
 *   32 u32 region
 */
static const struct frame_shape forget_memory_shape = { FRAME_REQUEST, 36, 0, { WIRE_FORGET_MEMORY } };

int forget_memory_decode(const void *bytes, size_t length, struct forget_memory *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &forget_memory_shape, bytes, length, &message->header, error) &&
			get_u32(&frame.fixed, &message->region));
}

ssize_t forget_memory_encode(void *bytes, size_t capacity, const struct forget_memory *message)
{
	struct put_frame frame;

	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &forget_memory_shape, bytes, capacity) && put_u32(&frame.fixed, message->region));
}
