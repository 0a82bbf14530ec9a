#include "protocol/session.h"

#include <errno.h>
#include <string.h>

#include "protocol/digest.h"

bool session_get_fixed(struct get_cursor *fixed, struct session_ref *session)
{
	return get_u32(fixed, &session->first_chunk) && get_u32(fixed, &session->digest_count) &&
		get_32_bytes(fixed, &session->salt);
}

bool session_put_fixed(struct put_cursor *fixed, const struct session_ref *session)
{
	return put_u32(fixed, session->first_chunk) && put_u32(fixed, session->digest_count) &&
		put_32_bytes(fixed, session->salt);
}

bool session_get_rest(struct get_cursor *rest, struct session_ref *session)
{
	session->parent = NULL;
	session->digests = NULL;
	if (!get_text(rest, &session->id))
		return false;
	if (session->digest_count == 0)
		return true;
	return get_32_bytes(rest, &session->parent) &&
		get_bytes(rest, &session->digests, (uint64_t)session->digest_count * WIRE_DIGEST_BYTES);
}

bool session_put_rest(struct put_cursor *rest, const struct session_ref *session)
{
	if (!put_text(rest, &session->id))
		return false;
	if (session->digest_count == 0)
		return true;
	return put_32_bytes(rest, session->parent ? session->parent : digest_seed) &&
		put_bytes(rest, session->digests, (uint64_t)session->digest_count * WIRE_DIGEST_BYTES);
}

bool session_counts_valid(const struct rules *rules, const struct session_ref *session, uint32_t offset)
{
	return rule(rules, session->first_chunk <= WIRE_CHUNKS_MAX, STATUS_TOO_BIG, offset,
		       "first_chunk: beyond the limit of a chain") &&
		rule(rules, session->digest_count <= WIRE_CHUNKS_MAX - session->first_chunk, STATUS_TOO_BIG, offset + 4,
			"digest_count: the chain would pass its limit");
}

/* Pointers that encode will follow; decode always fills them. */
static bool parts_present(const struct session_ref *session)
{
	return session->digest_count == 0 || (session->digests && (session->parent || session->first_chunk == 0));
}

/* The digest in front of the first chunk can only be the seed; a client with another algorithm is told so at once. */
static bool parent_valid(const struct session_ref *session)
{
	if (session->digest_count == 0 || session->first_chunk != 0)
		return true;
	return !session->parent || memcmp(session->parent, digest_seed, WIRE_DIGEST_BYTES) == 0;
}

bool session_content_valid(const struct rules *rules, const struct session_ref *session)
{
	uint32_t parent_offset = 0;

	if (!rule_text(rules, &session->id, 1, WIRE_SESSION_ID_MAX, "session id: 1 to 128 bytes, none of them NUL"))
		return false;
	if (rules->message && session->parent)
		parent_offset = (uint32_t)(session->parent - rules->message);
	return rule(rules, parts_present(session), STATUS_MALFORMED, 0, "session: parent or digests missing") &&
		rule(rules, parent_valid(session), STATUS_CHAIN_MISMATCH, parent_offset,
			"parent: in front of chunk 0 it must be the seed of the chain");
}

bool chunk_range_valid(const struct rules *rules, uint32_t first, uint32_t count, uint32_t offset)
{
	return rule(rules, count > 0, STATUS_INVALID_RANGE, offset + 4, "chunk_count: the range is empty") &&
		rule(rules, count <= WIRE_CHUNKS_MAX, STATUS_TOO_BIG, offset + 4, "chunk_count: above the limit") &&
		rule(rules, first <= WIRE_CHUNKS_MAX - count, STATUS_INVALID_RANGE, offset,
			"first_chunk: the range ends beyond the limit of a chain");
}

/*
 * END_SESSION
 *   32 u32 registration
 *   36     session (session.h)
 */
static const struct frame_shape end_session_shape = {
	FRAME_REQUEST,
	36 + SESSION_FIXED_BYTES,
	0,
	{ WIRE_END_SESSION },
};

size_t end_session_request_size(const struct end_session_request *message)
{
	return end_session_shape.fixed_length + session_rest_size(&message->session);
}

int end_session_request_decode(
	const void *bytes, size_t length, struct end_session_request *message, struct wire_error *error)
{
	struct get_frame frame;

	return frame_result(&frame,
		frame_open(&frame, &end_session_shape, bytes, length, &message->header, error) &&
			get_u32(&frame.fixed, &message->registration) &&
			session_get_fixed(&frame.fixed, &message->session) &&
			session_counts_valid(&frame.rules, &message->session, 36) &&
			session_get_rest(&frame.rest, &message->session) &&
			session_content_valid(&frame.rules, &message->session));
}

ssize_t end_session_request_encode(void *bytes, size_t capacity, const struct end_session_request *message)
{
	struct put_frame frame;

	if (!session_counts_valid(&rules_of_encode, &message->session, 0) ||
		!session_content_valid(&rules_of_encode, &message->session))
		return -EINVAL;
	return frame_finish(&frame, &message->header,
		frame_begin(&frame, &end_session_shape, bytes, capacity) &&
			put_u32(&frame.fixed, message->registration) &&
			session_put_fixed(&frame.fixed, &message->session) &&
			session_put_rest(&frame.rest, &message->session));
}
