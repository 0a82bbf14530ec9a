/*
 * session.h - the part that LOOKUP, QUERY, RETRIEVE, STORE, FREE_LOCKS and END_SESSION have in common: struct session_ref.
 *
 *   fixed part (40 bytes)          variable part
 *   u32 first_chunk                u16 length, id
 *   u32 digest_count               digest_count > 0: 32 bytes parent,
 *   32 bytes salt                                    32 * digest_count bytes digests
 */
#ifndef KVRAIL_PROTOCOL_SESSION_H
#define KVRAIL_PROTOCOL_SESSION_H

#include "protocol/frame.h"

KVR_BEGIN_C

#define SESSION_FIXED_BYTES 40u

KVR_MUST_CHECK bool session_get_fixed(struct get_cursor *fixed, struct session_ref *session);
/* Only after session_counts_valid. */
KVR_MUST_CHECK bool session_get_rest(struct get_cursor *rest, struct session_ref *session);
KVR_MUST_CHECK bool session_put_fixed(struct put_cursor *fixed, const struct session_ref *session);
KVR_MUST_CHECK bool session_put_rest(struct put_cursor *rest, const struct session_ref *session);

/* The rules of the fixed part, which lies at `offset` of the message, and those of the variable part. */
KVR_MUST_CHECK bool session_counts_valid(const struct rules *rules, const struct session_ref *session, uint32_t offset);
KVR_MUST_CHECK bool session_content_valid(const struct rules *rules, const struct session_ref *session);

/* Bytes of the variable part. */
static inline size_t session_rest_size(const struct session_ref *session)
{
	size_t digests = session->digest_count ? ((size_t)session->digest_count + 1) * WIRE_DIGEST_BYTES : 0;

	return text_size(&session->id) + digests;
}

/* A range of chunks that is not empty and ends within WIRE_CHUNKS_MAX; first and count lie at `offset` and `offset` + 4. */
KVR_MUST_CHECK bool chunk_range_valid(const struct rules *rules, uint32_t first, uint32_t count, uint32_t offset);

KVR_END_C

#endif
