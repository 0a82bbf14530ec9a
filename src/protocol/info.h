/*
 * info.h - struct server_info as it lies in HELLO_REPLY, AUTHENTICATE_REPLY and GET_INFO_REPLY.
 *
 *   fixed part (40 bytes)                                        variable part
 *   u32 version, features, chunk_tokens, chunks_max,             u16 length, server
 *       message_bytes_max, inline_bytes, credits, lock_seconds   u16 length, tenant
 *   u64 heartbeat_ns
 */
#ifndef KVRAIL_PROTOCOL_INFO_H
#define KVRAIL_PROTOCOL_INFO_H

#include "protocol/frame.h"

KVR_BEGIN_C

#define INFO_FIXED_BYTES 40u

KVR_MUST_CHECK bool info_get(struct get_frame *frame, struct server_info *info);
KVR_MUST_CHECK bool info_put(struct put_frame *frame, const struct server_info *info);
/* The rules; the fixed part lies at `offset` of the message. `complete`: the connection is authenticated, so every limit is told. */
KVR_MUST_CHECK bool info_valid(
	const struct rules *rules, const struct server_info *info, uint32_t offset, bool complete);

KVR_END_C

#endif
