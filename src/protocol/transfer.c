#include <errno.h>
#include <string.h>

#include "protocol/session.h"

/*
 * RETRIEVE, STORE
 *   32 u32 registration
 *   36 u32 first_chunk
 *   40 u32 chunk_count
 *   44 u32 skip_tokens
 *   48 u32 group_count
 *   52 u32 run_count
 *   56     session (session.h)
 *   with a flag of enum transfer_flag:
 *   96 u64 layers_address
 *  104 u32 layers_region
 *  108 u32 layer_count
 *  112 u32 layer_value
 *  116 u32 after_region
 *  120 u64 after_address
 *  128 u32 after_value
 *   variable: session, u32 group_runs[group_count], {u32 start, u32 count} runs[run_count]
 */
#define GROUP_RUNS_BYTES 4u
#define RUN_BYTES 8u
KVR_STATIC_ASSERT(sizeof(struct block_run) == RUN_BYTES, "transfer_run_at copies a run as it lies on the wire");

#define TRANSFER_FLAGS (TRANSFER_LAYERS | TRANSFER_AFTER)
#define ORDER_OFFSET (56u + SESSION_FIXED_BYTES)
#define ORDER_BYTES 36u
KVR_STATIC_ASSERT(ORDER_OFFSET + 16 == TRANSFER_LAYER_VALUE_OFFSET, "layer_value lies where message.h says");

static const struct frame_shape transfer_shape = {
	FRAME_REQUEST,
	ORDER_OFFSET,
	TRANSFER_FLAGS,
	{ WIRE_RETRIEVE, WIRE_STORE },
};

static const struct frame_shape ordered_shape = {
	FRAME_REQUEST,
	ORDER_OFFSET + ORDER_BYTES,
	TRANSFER_FLAGS,
	{ WIRE_RETRIEVE, WIRE_STORE },
};

static const struct frame_shape *shape_of(const struct transfer_request *message)
{
	return message->header.flags & TRANSFER_FLAGS ? &ordered_shape : &transfer_shape;
}

static bool order_get_fixed(struct get_cursor *fixed, struct transfer_request *message)
{
	struct transfer_order *order = &message->order;

	if (KVR_LIKELY(!(message->header.flags & TRANSFER_FLAGS))) {
		memset(order, 0, sizeof(*order));
		return true;
	}
	return get_u64(fixed, &order->layers_address) && get_u32(fixed, &order->layers_region) &&
		get_u32(fixed, &order->layer_count) && get_u32(fixed, &order->layer_value) &&
		get_u32(fixed, &order->after_region) && get_u64(fixed, &order->after_address) &&
		get_u32(fixed, &order->after_value);
}

static bool order_put_fixed(struct put_cursor *fixed, const struct transfer_request *message)
{
	const struct transfer_order *order = &message->order;

	return !(message->header.flags & TRANSFER_FLAGS) ||
		(put_u64(fixed, order->layers_address) && put_u32(fixed, order->layers_region) &&
			put_u32(fixed, order->layer_count) && put_u32(fixed, order->layer_value) &&
			put_u32(fixed, order->after_region) && put_u64(fixed, order->after_address) &&
			put_u32(fixed, order->after_value));
}

static bool transfer_get_fixed(struct get_cursor *fixed, struct transfer_request *message)
{
	return get_u32(fixed, &message->registration) && get_u32(fixed, &message->first_chunk) &&
		get_u32(fixed, &message->chunk_count) && get_u32(fixed, &message->skip_tokens) &&
		get_u32(fixed, &message->group_count) && get_u32(fixed, &message->run_count) &&
		session_get_fixed(fixed, &message->session) && order_get_fixed(fixed, message);
}

static bool transfer_put_fixed(struct put_cursor *fixed, const struct transfer_request *message)
{
	return put_u32(fixed, message->registration) && put_u32(fixed, message->first_chunk) &&
		put_u32(fixed, message->chunk_count) && put_u32(fixed, message->skip_tokens) &&
		put_u32(fixed, message->group_count) && put_u32(fixed, message->run_count) &&
		session_put_fixed(fixed, &message->session) && order_put_fixed(fixed, message);
}

static bool transfer_get_rest(struct get_cursor *rest, struct transfer_request *message)
{
	return session_get_rest(rest, &message->session) &&
		get_bytes(rest, &message->group_runs, (uint64_t)message->group_count * GROUP_RUNS_BYTES) &&
		get_bytes(rest, &message->runs, (uint64_t)message->run_count * RUN_BYTES);
}

static bool transfer_put_rest(struct put_cursor *rest, const struct transfer_request *message)
{
	return session_put_rest(rest, &message->session) &&
		put_bytes(rest, message->group_runs, (uint64_t)message->group_count * GROUP_RUNS_BYTES) &&
		put_bytes(rest, message->runs, (uint64_t)message->run_count * RUN_BYTES);
}

static bool order_valid(const struct rules *rules, const struct transfer_request *message)
{
	const struct transfer_order *order = &message->order;
	bool layers = message->header.flags & TRANSFER_LAYERS;
	bool after = message->header.flags & TRANSFER_AFTER;

	return rule(rules, !layers || message->header.type == WIRE_RETRIEVE, STATUS_MALFORMED, 12,
		       "flags: only a RETRIEVE tells of layers") &&
		rule(rules, !layers || order->layers_address % sizeof(uint32_t) == 0, STATUS_MALFORMED, ORDER_OFFSET,
			"layers_address: not a multiple of 4") &&
		rule(rules, !layers || order->layer_count > 0, STATUS_MALFORMED, ORDER_OFFSET + 12,
			"layer_count: is 0") &&
		rule(rules, !layers || order->layer_count <= WIRE_PLANES_MAX, STATUS_TOO_BIG, ORDER_OFFSET + 12,
			"layer_count: above the limit") &&
		rule(rules, !after || order->after_address % sizeof(uint32_t) == 0, STATUS_MALFORMED, ORDER_OFFSET + 24,
			"after_address: not a multiple of 4");
}

static bool transfer_counts_valid(const struct rules *rules, const struct transfer_request *message)
{
	return chunk_range_valid(rules, message->first_chunk, message->chunk_count, 36) &&
		rule(rules, message->skip_tokens == 0 || message->header.type == WIRE_RETRIEVE, STATUS_INVALID_RANGE,
			44, "skip_tokens: only a RETRIEVE can skip") &&
		rule(rules, message->group_count > 0, STATUS_MALFORMED, 48, "group_count: is 0") &&
		rule(rules, message->group_count <= WIRE_GROUPS_MAX, STATUS_TOO_BIG, 48,
			"group_count: above the limit") &&
		rule(rules, message->run_count <= WIRE_RUNS_MAX, STATUS_TOO_BIG, 52, "run_count: above the limit") &&
		session_counts_valid(rules, &message->session, 56) &&
		(KVR_LIKELY(message->header.flags == 0) || order_valid(rules, message));
}

static uint32_t offset_of(const struct rules *rules, const uint8_t *pointer)
{
	return rules->message ? (uint32_t)(pointer - rules->message) : 0;
}

/* Each group has runs, and together they are all runs. */
static bool group_runs_valid(const struct rules *rules, const struct transfer_request *message)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < message->group_count; i++) {
		uint32_t runs = transfer_group_runs_at(message, i);

		if (!rule(rules, runs > 0, STATUS_MALFORMED,
			    offset_of(rules, message->group_runs) + GROUP_RUNS_BYTES * i,
			    "group_runs: a group without block runs"))
			return false;
		sum += runs;
	}
	return rule(rules, sum == message->run_count, STATUS_MALFORMED, offset_of(rules, message->group_runs),
		"group_runs: the sum differs from run_count");
}

/* No run is empty, and none passes the largest block id, so that start + count never wraps. */
static bool runs_valid(const struct rules *rules, const struct transfer_request *message)
{
	for (uint32_t i = 0; i < message->run_count; i++) {
		struct block_run run = transfer_run_at(message, i);
		bool inside = run.start == WIRE_NULL_BLOCK || run.count <= WIRE_NULL_BLOCK - run.start;

		if (KVR_LIKELY(run.count > 0 && inside))
			continue;
		return rule(rules, run.count > 0, STATUS_MALFORMED, offset_of(rules, message->runs) + RUN_BYTES * i + 4,
			       "runs: a run of 0 blocks") &&
			rule(rules, inside, STATUS_INVALID_BLOCK, offset_of(rules, message->runs) + RUN_BYTES * i,
				"runs: a run passes the largest block id");
	}
	return true;
}

static bool transfer_content_valid(const struct rules *rules, const struct transfer_request *message)
{
	return session_content_valid(rules, &message->session) && group_runs_valid(rules, message) &&
		runs_valid(rules, message);
}

size_t transfer_request_size(const struct transfer_request *message)
{
	return shape_of(message)->fixed_length + session_rest_size(&message->session) +
		(size_t)message->group_count * GROUP_RUNS_BYTES + (size_t)message->run_count * RUN_BYTES;
}

int transfer_request_decode(
	const void *bytes, size_t length, struct transfer_request *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &transfer_shape, bytes, length, &message->header, error) &&
			rule(&frame.rules, message->header.fixed_length >= shape_of(message)->fixed_length,
				STATUS_MALFORMED, 10, "fixed_length: too short for the flags") &&
			transfer_get_fixed(&frame.fixed, message) && transfer_counts_valid(&frame.rules, message) &&
			transfer_get_rest(&frame.rest, message) && transfer_content_valid(&frame.rules, message));
}

ssize_t transfer_request_encode(void *bytes, size_t capacity, const struct transfer_request *message)
{
	struct put_frame frame;

	if (!transfer_counts_valid(&rules_of_encode, message) || !transfer_content_valid(&rules_of_encode, message))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, shape_of(message), bytes, capacity) && transfer_put_fixed(&frame.fixed, message) &&
			transfer_put_rest(&frame.rest, message));
}

/*
 * RETRIEVE_REPLY, STORE_REPLY
 *   32 u32 chunk_count
 *   36 u32 good_count
 *   variable: u8 outcomes[chunk_count]
 */
static const struct frame_shape transfer_reply_shape = {
	FRAME_REPLY,
	40,
	0,
	{ WIRE_RETRIEVE_REPLY, WIRE_STORE_REPLY },
};

static bool transfer_reply_counts_valid(const struct rules *rules, const struct transfer_reply *message)
{
	bool all_good = message->good_count == message->chunk_count;

	return rule(rules, message->header.status != STATUS_PENDING, STATUS_MALFORMED, 14,
		       "status: a transfer is never PENDING") &&
		rule(rules, message->chunk_count > 0, STATUS_MALFORMED, 32, "chunk_count: is 0") &&
		rule(rules, message->chunk_count <= WIRE_CHUNKS_MAX, STATUS_TOO_BIG, 32,
			"chunk_count: above the limit") &&
		rule(rules, message->good_count <= message->chunk_count, STATUS_MALFORMED, 36,
			"good_count: above chunk_count") &&
		rule(rules, all_good == (message->header.status == STATUS_OK), STATUS_MALFORMED, 36,
			"good_count: all chunks ended well exactly when the status is OK");
}

static bool outcomes_valid(const struct rules *rules, const struct transfer_reply *message)
{
	return rule(rules, !memchr(message->outcomes, CHUNK_PENDING, message->chunk_count), STATUS_MALFORMED,
		offset_of(rules, message->outcomes), "outcomes: a chunk without an outcome");
}

size_t transfer_reply_size(const struct transfer_reply *message)
{
	return transfer_reply_shape.fixed_length + (size_t)message->chunk_count;
}

int transfer_reply_decode(const void *bytes, size_t length, struct transfer_reply *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &transfer_reply_shape, bytes, length, &message->header, error) &&
			get_u32(&frame.fixed, &message->chunk_count) && get_u32(&frame.fixed, &message->good_count) &&
			transfer_reply_counts_valid(&frame.rules, message) &&
			get_bytes(&frame.rest, &message->outcomes, message->chunk_count) &&
			outcomes_valid(&frame.rules, message));
}

ssize_t transfer_reply_encode(void *bytes, size_t capacity, const struct transfer_reply *message)
{
	struct put_frame frame;

	if (!transfer_reply_counts_valid(&rules_of_encode, message) || !outcomes_valid(&rules_of_encode, message))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &transfer_reply_shape, bytes, capacity) &&
			put_u32(&frame.fixed, message->chunk_count) && put_u32(&frame.fixed, message->good_count) &&
			put_bytes(&frame.rest, message->outcomes, message->chunk_count));
}
