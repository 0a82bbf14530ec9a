/*
 * cursor.h - bounded reads and writes of little-endian numbers and byte ranges.
 *
 * A cursor is {next, end}. Every call returns false when fewer bytes are left than it needs, and then moves nothing and
 * touches nothing: neither the cursor, nor the bytes, nor the caller's value. Nothing is cast onto a struct, so alignment and
 * padding do not matter. No state, any thread.
 */
#ifndef KVRAIL_PROTOCOL_CURSOR_H
#define KVRAIL_PROTOCOL_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

KVR_STATIC_ASSERT(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	"numbers are copied as they lie in memory: little-endian hosts only");

struct get_cursor {
	const uint8_t *next;
	const uint8_t *end;
};

struct put_cursor {
	uint8_t *next;
	uint8_t *end;
};

static inline size_t get_left(const struct get_cursor *cursor)
{
	return (size_t)(cursor->end - cursor->next);
}

static inline size_t put_left(const struct put_cursor *cursor)
{
	return (size_t)(cursor->end - cursor->next);
}

/* *bytes points at the next `length` bytes (also when `length` is 0: then at no byte, but never NULL). */
KVR_MUST_CHECK static inline bool get_bytes(struct get_cursor *cursor, const uint8_t **bytes, uint64_t length)
{
	if (length > get_left(cursor))
		return false;
	*bytes = cursor->next;
	cursor->next += length;
	return true;
}

KVR_MUST_CHECK static inline bool get_u16(struct get_cursor *cursor, uint16_t *value)
{
	if (get_left(cursor) < sizeof(*value))
		return false;
	__builtin_memcpy(value, cursor->next, sizeof(*value));
	cursor->next += sizeof(*value);
	return true;
}

KVR_MUST_CHECK static inline bool get_u32(struct get_cursor *cursor, uint32_t *value)
{
	if (get_left(cursor) < sizeof(*value))
		return false;
	__builtin_memcpy(value, cursor->next, sizeof(*value));
	cursor->next += sizeof(*value);
	return true;
}

KVR_MUST_CHECK static inline bool get_u64(struct get_cursor *cursor, uint64_t *value)
{
	if (get_left(cursor) < sizeof(*value))
		return false;
	__builtin_memcpy(value, cursor->next, sizeof(*value));
	cursor->next += sizeof(*value);
	return true;
}

/* `bytes` may be NULL when `length` is 0. */
KVR_MUST_CHECK static inline bool put_bytes(struct put_cursor *cursor, const void *bytes, uint64_t length)
{
	if (length > put_left(cursor))
		return false;
	if (length) /* memcpy may not be given NULL, not even for nothing */
		__builtin_memcpy(cursor->next, bytes, (size_t)length);
	cursor->next += length;
	return true;
}

KVR_MUST_CHECK static inline bool put_u16(struct put_cursor *cursor, uint16_t value)
{
	return put_bytes(cursor, &value, sizeof(value));
}

KVR_MUST_CHECK static inline bool put_u32(struct put_cursor *cursor, uint32_t value)
{
	return put_bytes(cursor, &value, sizeof(value));
}

KVR_MUST_CHECK static inline bool put_u64(struct put_cursor *cursor, uint64_t value)
{
	return put_bytes(cursor, &value, sizeof(value));
}

KVR_END_C

#endif
