#include <errno.h>
#include <string.h>

#include "protocol/frame.h"

/*
 * REGISTER
 *   32     fingerprint, 32 bytes
 *   64 u32 world_size
 *   68 u32 rank
 *   72 u32 readers
 *   76 u32 reader
 *   80 u32 group_count
 *   84 u32 plane_count
 *   variable: model, dtype, groups[group_count], planes[plane_count]
 *
 * group, 16 bytes               plane, 24 bytes
 *    0 u32 tokens_per_block        0 u64 address
 *    4 u32 window_tokens           8 u64 block_stride
 *    8 u32 block_count            16 u32 block_bytes
 *   12 u32 plane_count            20 u32 region
 */
static const struct frame_shape register_shape = { FRAME_REQUEST, 88, 0, { WIRE_REGISTER } };

void register_write_group(void *bytes, const struct wire_group *group)
{
	struct put_cursor out = { (uint8_t *)bytes, (uint8_t *)bytes + WIRE_GROUP_BYTES };
	bool fits = put_u32(&out, group->tokens_per_block) && put_u32(&out, group->window_tokens) &&
		put_u32(&out, group->block_count) && put_u32(&out, group->plane_count);

	(void)fits; /* four times 4 bytes */
}

void register_write_plane(void *bytes, const struct wire_plane *plane)
{
	struct put_cursor out = { (uint8_t *)bytes, (uint8_t *)bytes + WIRE_PLANE_BYTES };
	bool fits = put_u64(&out, plane->address) && put_u64(&out, plane->block_stride) &&
		put_u32(&out, plane->block_bytes) && put_u32(&out, plane->region);

	(void)fits; /* 8 + 8 + 4 + 4 bytes */
}

struct wire_group register_group_at(const struct register_request *request, uint32_t index)
{
	const uint8_t *bytes = request->groups + (size_t)index * WIRE_GROUP_BYTES;
	struct get_cursor in = { bytes, bytes + WIRE_GROUP_BYTES };
	struct wire_group group = { 0 };
	bool whole = get_u32(&in, &group.tokens_per_block) && get_u32(&in, &group.window_tokens) &&
		get_u32(&in, &group.block_count) && get_u32(&in, &group.plane_count);

	(void)whole;
	return group;
}

struct wire_plane register_plane_at(const struct register_request *request, uint32_t index)
{
	const uint8_t *bytes = request->planes + (size_t)index * WIRE_PLANE_BYTES;
	struct get_cursor in = { bytes, bytes + WIRE_PLANE_BYTES };
	struct wire_plane plane = { 0 };
	bool whole = get_u64(&in, &plane.address) && get_u64(&in, &plane.block_stride) &&
		get_u32(&in, &plane.block_bytes) && get_u32(&in, &plane.region);

	(void)whole;
	return plane;
}

static bool register_get_fixed(struct get_cursor *fixed, struct register_request *message)
{
	struct model_identity *identity = &message->identity;

	return get_32_bytes(fixed, &identity->fingerprint) && get_u32(fixed, &identity->world_size) &&
		get_u32(fixed, &identity->rank) && get_u32(fixed, &identity->readers) &&
		get_u32(fixed, &identity->reader) && get_u32(fixed, &message->group_count) &&
		get_u32(fixed, &message->plane_count);
}

static bool register_put_fixed(struct put_cursor *fixed, const struct register_request *message)
{
	const struct model_identity *identity = &message->identity;

	return put_32_bytes(fixed, identity->fingerprint) && put_u32(fixed, identity->world_size) &&
		put_u32(fixed, identity->rank) && put_u32(fixed, identity->readers) &&
		put_u32(fixed, identity->reader) && put_u32(fixed, message->group_count) &&
		put_u32(fixed, message->plane_count);
}

static bool register_get_rest(struct get_cursor *rest, struct register_request *message)
{
	return get_text(rest, &message->identity.model) && get_text(rest, &message->identity.dtype) &&
		get_bytes(rest, &message->groups, (uint64_t)message->group_count * WIRE_GROUP_BYTES) &&
		get_bytes(rest, &message->planes, (uint64_t)message->plane_count * WIRE_PLANE_BYTES);
}

static bool register_put_rest(struct put_cursor *rest, const struct register_request *message)
{
	return put_text(rest, &message->identity.model) && put_text(rest, &message->identity.dtype) &&
		put_bytes(rest, message->groups, (uint64_t)message->group_count * WIRE_GROUP_BYTES) &&
		put_bytes(rest, message->planes, (uint64_t)message->plane_count * WIRE_PLANE_BYTES);
}

static bool register_counts_valid(const struct rules *rules, const struct register_request *message)
{
	const struct model_identity *identity = &message->identity;

	return rule(rules, identity->world_size > 0, STATUS_MALFORMED, 64, "world_size: is 0") &&
		rule(rules, identity->world_size <= WIRE_WORLD_SIZE_MAX, STATUS_TOO_BIG, 64,
			"world_size: above the limit") &&
		rule(rules, identity->rank < identity->world_size, STATUS_MALFORMED, 68,
			"rank: not below world_size") &&
		rule(rules, identity->readers > 0, STATUS_MALFORMED, 72, "readers: is 0") &&
		rule(rules, identity->readers <= WIRE_READERS_MAX, STATUS_TOO_BIG, 72, "readers: above the limit") &&
		rule(rules, identity->reader < identity->readers, STATUS_MALFORMED, 76, "reader: not below readers") &&
		rule(rules, message->group_count <= WIRE_GROUPS_MAX, STATUS_TOO_BIG, 80,
			"group_count: above the limit") &&
		rule(rules, message->plane_count <= WIRE_PLANES_MAX, STATUS_TOO_BIG, 84,
			"plane_count: above the limit");
}

/* Block b of a plane is at address + b * block_stride: none of these sums may wrap, here or in whoever computes with them. */
static bool plane_inside_address_space(const struct wire_plane *plane, uint32_t block_count)
{
	uint64_t last, end;

	return !__builtin_mul_overflow(plane->block_stride, (uint64_t)block_count - 1, &last) &&
		!__builtin_add_overflow(last, plane->block_bytes, &end) &&
		!__builtin_add_overflow(end, plane->address, &end);
}

static bool plane_valid(
	const struct rules *rules, const struct wire_plane *plane, uint32_t block_count, uint32_t offset)
{
	return rule(rules, plane->block_bytes > 0, STATUS_MALFORMED, offset + 16, "planes: block_bytes is 0") &&
		rule(rules, plane->block_stride >= plane->block_bytes, STATUS_MALFORMED, offset + 8,
			"planes: block_stride is below block_bytes") &&
		rule(rules, plane_inside_address_space(plane, block_count), STATUS_INVALID_MEMORY, offset,
			"planes: the blocks would pass the end of the address space");
}

static bool group_valid(
	const struct rules *rules, const struct wire_group *group, uint32_t planes_left, uint32_t offset)
{
	return rule(rules, group->tokens_per_block > 0, STATUS_MALFORMED, offset, "groups: tokens_per_block is 0") &&
		rule(rules, group->window_tokens > 0, STATUS_MALFORMED, offset + 4, "groups: window_tokens is 0") &&
		rule(rules, group->block_count > 0, STATUS_MALFORMED, offset + 8, "groups: block_count is 0") &&
		rule(rules, group->plane_count > 0, STATUS_MALFORMED, offset + 12, "groups: a group without planes") &&
		rule(rules, group->plane_count <= planes_left, STATUS_MALFORMED, offset + 12,
			"groups: the sum of plane_count is above the message's plane_count");
}

static bool layout_valid(const struct rules *rules, const struct register_request *message)
{
	uint32_t groups_offset = rules->message ? (uint32_t)(message->groups - rules->message) : 0;
	uint32_t planes_offset = groups_offset + message->group_count * WIRE_GROUP_BYTES;
	uint32_t next = 0;

	for (uint32_t i = 0; i < message->group_count; i++) {
		struct wire_group group = register_group_at(message, i);

		if (!group_valid(rules, &group, message->plane_count - next, groups_offset + i * WIRE_GROUP_BYTES))
			return false;
		for (uint32_t end = next + group.plane_count; next < end; next++) {
			struct wire_plane plane = register_plane_at(message, next);

			if (!plane_valid(rules, &plane, group.block_count, planes_offset + next * WIRE_PLANE_BYTES))
				return false;
		}
	}
	return rule(rules, next == message->plane_count, STATUS_MALFORMED, 84,
		"plane_count: more planes than the groups have");
}

static bool register_content_valid(const struct rules *rules, const struct register_request *message)
{
	return rule_text(
		       rules, &message->identity.model, 1, WIRE_NAME_MAX, "model: 1 to 256 bytes, none of them NUL") &&
		rule_text(
			rules, &message->identity.dtype, 1, WIRE_NAME_MAX, "dtype: 1 to 256 bytes, none of them NUL") &&
		layout_valid(rules, message);
}

size_t register_request_size(const struct register_request *message)
{
	return register_shape.fixed_length + text_size(&message->identity.model) + text_size(&message->identity.dtype) +
		(size_t)message->group_count * WIRE_GROUP_BYTES + (size_t)message->plane_count * WIRE_PLANE_BYTES;
}

int register_request_decode(
	const void *bytes, size_t length, struct register_request *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &register_shape, bytes, length, &message->header, error) &&
			register_get_fixed(&frame.fixed, message) && register_counts_valid(&frame.rules, message) &&
			register_get_rest(&frame.rest, message) && register_content_valid(&frame.rules, message));
}

ssize_t register_request_encode(void *bytes, size_t capacity, const struct register_request *message)
{
	struct put_frame frame;

	if (!register_counts_valid(&rules_of_encode, message) || !register_content_valid(&rules_of_encode, message))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &register_shape, bytes, capacity) && register_put_fixed(&frame.fixed, message) &&
			register_put_rest(&frame.rest, message));
}

/*
 * REGISTER_REPLY
 *   32 u64 object_bytes
 *   40 u64 token_bytes
 *   48 u32 registration
 */
static const struct frame_shape register_reply_shape = { FRAME_REPLY, 52, 0, { WIRE_REGISTER_REPLY } };

int register_reply_decode(const void *bytes, size_t length, struct register_reply *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &register_reply_shape, bytes, length, &message->header, error) &&
			get_u64(&frame.fixed, &message->object_bytes) && get_u64(&frame.fixed, &message->token_bytes) &&
			get_u32(&frame.fixed, &message->registration));
}

ssize_t register_reply_encode(void *bytes, size_t capacity, const struct register_reply *message)
{
	struct put_frame frame;

	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &register_reply_shape, bytes, capacity) &&
			put_u64(&frame.fixed, message->object_bytes) && put_u64(&frame.fixed, message->token_bytes) &&
			put_u32(&frame.fixed, message->registration));
}

/*
 * UNREGISTER
 *   32 u32 registration
 */
static const struct frame_shape unregister_shape = { FRAME_REQUEST, 36, 0, { WIRE_UNREGISTER } };

int unregister_request_decode(
	const void *bytes, size_t length, struct unregister_request *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &unregister_shape, bytes, length, &message->header, error) &&
			get_u32(&frame.fixed, &message->registration));
}

ssize_t unregister_request_encode(void *bytes, size_t capacity, const struct unregister_request *message)
{
	struct put_frame frame;

	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &unregister_shape, bytes, capacity) &&
			put_u32(&frame.fixed, message->registration));
}
