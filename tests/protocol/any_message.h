/*
 * any_message.h - one name for all codecs, so that a test or a fuzzer can treat every message alike.
 */
#ifndef KVRAIL_TESTS_PROTOCOL_ANY_MESSAGE_H
#define KVRAIL_TESTS_PROTOCOL_ANY_MESSAGE_H

#include <errno.h>
#include <string.h>

#include "protocol/message.h"

/* codec, struct, request? */
#define ANY_LIST(X)                                       \
	X(hello, hello, true)                             \
	X(hello_reply, hello_reply, false)                \
	X(authenticate, authenticate, true)               \
	X(authenticate_reply, authenticate_reply, false)  \
	X(connect_request, connect_request, true)         \
	X(connect_reply, connect_reply, false)            \
	X(memory_request, memory_request, true)           \
	X(memory_reply, memory_reply, false)              \
	X(forget_memory, forget_memory, true)             \
	X(register_request, register_request, true)       \
	X(register_reply, register_reply, false)          \
	X(unregister_request, unregister_request, true)   \
	X(indirect, indirect, true)                       \
	X(ping, ping, true)                               \
	X(info_reply, authenticate_reply, false)          \
	X(lookup_request, lookup_request, true)           \
	X(lookup_reply, lookup_reply, false)              \
	X(query_request, query_request, true)             \
	X(transfer_request, transfer_request, true)       \
	X(transfer_reply, transfer_reply, false)          \
	X(free_locks_request, free_locks_request, true)   \
	X(count_reply, count_reply, false)                \
	X(cancel_request, cancel_request, true)           \
	X(end_session_request, end_session_request, true) \
	X(clear_request, clear_request, true)             \
	X(empty_reply, empty_reply, false)                \
	X(error_reply, error_reply, false)

enum any_kind {
#define ANY_ENUM(name, type, request) ANY_##name,
	ANY_LIST(ANY_ENUM)
#undef ANY_ENUM
		ANY_COUNT
};

/* Every struct begins with the header. */
union any_message {
	struct wire_header header;
#define ANY_MEMBER(name, type, request) struct type name;
	ANY_LIST(ANY_MEMBER)
#undef ANY_MEMBER
};

static inline int any_decode(
	enum any_kind kind, const void *bytes, size_t length, union any_message *message, struct wire_error *error)
{
	switch (kind) {
#define ANY_DECODE(name, type, request) \
	case ANY_##name:                \
		return name##_decode(bytes, length, &message->name, error);
		ANY_LIST(ANY_DECODE)
#undef ANY_DECODE
	case ANY_COUNT:
		break;
	}
	return -ENOSYS;
}

static inline ssize_t any_encode(enum any_kind kind, void *bytes, size_t capacity, const union any_message *message)
{
	switch (kind) {
#define ANY_ENCODE(name, type, request) \
	case ANY_##name:                \
		return name##_encode(bytes, capacity, &message->name);
		ANY_LIST(ANY_ENCODE)
#undef ANY_ENCODE
	case ANY_COUNT:
		break;
	}
	return -ENOSYS;
}

static inline bool any_is_request(enum any_kind kind)
{
	static const bool requests[] = {
#define ANY_REQUEST(name, type, request) request,
		ANY_LIST(ANY_REQUEST)
#undef ANY_REQUEST
	};

	return requests[kind];
}

/* Which codec a header calls for; ANY_COUNT: none. */
static inline enum any_kind any_kind_of(const struct wire_header *header)
{
	if (header->type % 2 == 0 && !status_has_body(header->status))
		return ANY_error_reply;
	switch (header->type) {
	case WIRE_HELLO:
		return ANY_hello;
	case WIRE_HELLO_REPLY:
		return ANY_hello_reply;
	case WIRE_AUTHENTICATE:
		return ANY_authenticate;
	case WIRE_AUTHENTICATE_REPLY:
		return ANY_authenticate_reply;
	case WIRE_CONNECT:
		return ANY_connect_request;
	case WIRE_CONNECT_REPLY:
		return ANY_connect_reply;
	case WIRE_MEMORY:
		return ANY_memory_request;
	case WIRE_MEMORY_REPLY:
		return ANY_memory_reply;
	case WIRE_FORGET_MEMORY:
		return ANY_forget_memory;
	case WIRE_REGISTER:
		return ANY_register_request;
	case WIRE_REGISTER_REPLY:
		return ANY_register_reply;
	case WIRE_UNREGISTER:
		return ANY_unregister_request;
	case WIRE_INDIRECT:
		return ANY_indirect;
	case WIRE_PING:
	case WIRE_GET_INFO:
		return ANY_ping;
	case WIRE_GET_INFO_REPLY:
		return ANY_info_reply;
	case WIRE_LOOKUP:
		return ANY_lookup_request;
	case WIRE_LOOKUP_REPLY:
	case WIRE_QUERY_REPLY:
		return ANY_lookup_reply;
	case WIRE_QUERY:
		return ANY_query_request;
	case WIRE_RETRIEVE:
	case WIRE_STORE:
		return ANY_transfer_request;
	case WIRE_RETRIEVE_REPLY:
	case WIRE_STORE_REPLY:
		return ANY_transfer_reply;
	case WIRE_FREE_LOCKS:
		return ANY_free_locks_request;
	case WIRE_FREE_LOCKS_REPLY:
	case WIRE_CLEAR_REPLY:
		return ANY_count_reply;
	case WIRE_CANCEL:
		return ANY_cancel_request;
	case WIRE_END_SESSION:
		return ANY_end_session_request;
	case WIRE_CLEAR:
		return ANY_clear_request;
	case WIRE_PING_REPLY:
	case WIRE_CANCEL_REPLY:
	case WIRE_END_SESSION_REPLY:
	case WIRE_FORGET_MEMORY_REPLY:
	case WIRE_UNREGISTER_REPLY:
		return ANY_empty_reply;
	default:
		return ANY_COUNT;
	}
}

/* The length that *_size foretells; 0 for messages that have no such function. */
static inline size_t any_size(enum any_kind kind, const union any_message *message)
{
	switch (kind) {
	case ANY_register_request:
		return register_request_size(&message->register_request);
	case ANY_lookup_request:
		return lookup_request_size(&message->lookup_request);
	case ANY_query_request:
		return query_request_size(&message->query_request);
	case ANY_transfer_request:
		return transfer_request_size(&message->transfer_request);
	case ANY_transfer_reply:
		return transfer_reply_size(&message->transfer_reply);
	case ANY_free_locks_request:
		return free_locks_request_size(&message->free_locks_request);
	case ANY_end_session_request:
		return end_session_request_size(&message->end_session_request);
	default:
		return 0;
	}
}

/* Reads every byte that a decoded message points at, so that a sanitizer sees each range. Returns a sum over them. */
static inline uint64_t any_sum(uint64_t sum, const void *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		sum = sum * 31 + ((const uint8_t *)bytes)[i];
	return sum;
}

static inline uint64_t any_touch_session(const struct session_ref *session)
{
	uint64_t sum = any_sum(session->first_chunk, session->id.bytes, session->id.length);

	sum = any_sum(sum, session->salt, 32);
	if (session->digest_count) {
		sum = any_sum(sum, session->parent, 32);
		sum = any_sum(sum, session->digests, (size_t)session->digest_count * WIRE_DIGEST_BYTES);
	}
	return sum;
}

static inline uint64_t any_touch_register(const struct register_request *message)
{
	uint64_t sum = any_sum(0, message->identity.model.bytes, message->identity.model.length);

	sum = any_sum(sum, message->identity.dtype.bytes, message->identity.dtype.length);
	sum = any_sum(sum, message->identity.fingerprint, 32);
	for (uint32_t i = 0; i < message->group_count; i++) {
		struct wire_group group = register_group_at(message, i);

		sum = any_sum(sum, &group, sizeof(group));
	}
	for (uint32_t i = 0; i < message->plane_count; i++) {
		struct wire_plane plane = register_plane_at(message, i);

		sum = any_sum(sum, &plane, sizeof(plane));
	}
	return sum;
}

static inline uint64_t any_touch_transfer(const struct transfer_request *message)
{
	const struct transfer_order *order = &message->order;
	uint64_t sum = any_touch_session(&message->session);

	sum = (sum * 31 + order->layers_address) * 31 + order->layers_region;
	sum = (sum * 31 + order->layer_count) * 31 + order->layer_value;
	sum = ((sum * 31 + order->after_region) * 31 + order->after_address) * 31 + order->after_value;
	for (uint32_t i = 0; i < message->group_count; i++)
		sum = sum * 31 + transfer_group_runs_at(message, i);
	for (uint32_t i = 0; i < message->run_count; i++) {
		struct block_run run = transfer_run_at(message, i);

		sum = any_sum(sum, &run, sizeof(run));
	}
	return sum;
}

static inline uint64_t any_touch_info(const struct server_info *info)
{
	return any_sum(any_sum(info->credits, info->server.bytes, info->server.length), info->tenant.bytes,
		info->tenant.length);
}

static inline uint64_t any_touch_hello(const struct hello *message)
{
	uint64_t sum = any_sum(0, message->driver.bytes, message->driver.length);

	sum = any_sum(sum, message->client.bytes, message->client.length);
	return any_sum(sum, message->tenant.bytes, message->tenant.length);
}

static inline uint64_t any_touch_memory(const struct memory_request *message)
{
	uint64_t sum = any_sum(message->address, message->handle, message->handle_length);

	return any_sum(sum, message->rkeys, sizeof(message->rkeys));
}

static inline uint64_t any_touch(enum any_kind kind, const union any_message *message)
{
	switch (kind) {
	case ANY_hello:
		return any_touch_hello(&message->hello);
	case ANY_hello_reply:
		return any_touch_info(&message->hello_reply.info) +
			any_sum(0, message->hello_reply.challenge, message->hello_reply.challenge ? 32 : 0);
	case ANY_authenticate:
		return any_sum(any_sum(any_sum(0, message->authenticate.nonce, 32), message->authenticate.proof, 32),
			message->authenticate.key.bytes, message->authenticate.key.length);
	case ANY_authenticate_reply:
	case ANY_info_reply:
		return any_touch_info(&message->authenticate_reply.info);
	case ANY_connect_request:
		return any_sum(0, message->connect_request.address, message->connect_request.address_length);
	case ANY_connect_reply:
		return any_sum(0, message->connect_reply.address, message->connect_reply.address_length);
	case ANY_memory_request:
		return any_touch_memory(&message->memory_request);
	case ANY_register_request:
		return any_touch_register(&message->register_request);
	case ANY_lookup_request:
		return any_touch_session(&message->lookup_request.session);
	case ANY_query_request:
		return any_touch_session(&message->query_request.session);
	case ANY_transfer_request:
		return any_touch_transfer(&message->transfer_request);
	case ANY_transfer_reply:
		return any_sum(0, message->transfer_reply.outcomes, message->transfer_reply.chunk_count);
	case ANY_free_locks_request:
		return any_touch_session(&message->free_locks_request.session);
	case ANY_end_session_request:
		return any_touch_session(&message->end_session_request.session);
	case ANY_error_reply:
		return any_sum(0, message->error_reply.text.bytes, message->error_reply.text.length);
	default:
		return 0;
	}
}

#endif
