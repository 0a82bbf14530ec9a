/*
 * resp.h - replies of a Redis or Valkey server (RESP, version 2), as events. Pure; takes bytes in any pieces.
 *
 *   +OK\r\n             STATUS, END
 *   $5\r\nhello\r\n     BULK (number 5), PIECE ..., END
 *   $-1\r\n             NIL, END
 *   *2\r\n:1\r\n:2\r\n  ARRAY (number 2), INTEGER, INTEGER, END
 *
 * END follows the last event of each whole reply. Nothing is kept but the last line, so that no reply takes memory,
 * however long the server says it is. While a bulk string comes, its bytes may be read straight to where they belong
 * instead (resp_bulk_left, resp_bulk_took).
 */
#ifndef KVRAIL_TIER_RESP_H
#define KVRAIL_TIER_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define RESP_LINE_MAX 1024 /* characters of a line, kind included: a longer one is BAD */
#define RESP_DEPTH_MAX 8   /* of arrays in arrays */
#define RESP_BULK_MAX (UINT64_C(1) << 40)

enum resp_event {
	RESP_MORE, /* all bytes are taken */
	RESP_STATUS,
	RESP_ERROR, /* text in `line` behind the first character */
	RESP_INTEGER,
	RESP_BULK,
	RESP_PIECE, /* bytes of the bulk string: *piece, *piece_bytes */
	RESP_NIL,   /* a bulk string or an array that is not there */
	RESP_ARRAY,
	RESP_END,
	RESP_BAD, /* this is no reply; so is everything from here on */
};

enum resp_state { RESP_IN_LINE, RESP_IN_BULK, RESP_IN_BULK_CR, RESP_IN_BULK_LF, RESP_AT_END, RESP_IS_BAD };

struct resp {
	enum resp_state state;
	uint32_t depth;                /* arrays that are open */
	uint64_t left[RESP_DEPTH_MAX]; /* elements to come, of each */
	uint64_t bulk_left;
	int64_t number; /* of INTEGER, BULK, ARRAY */
	uint32_t line_length;
	char line[RESP_LINE_MAX + 1]; /* terminated with STATUS and ERROR */
};

void resp_init(struct resp *resp);
/* The next event of *at .. end; *at moves. */
enum resp_event resp_next(
	struct resp *resp, const uint8_t **at, const uint8_t *end, const uint8_t **piece, size_t *piece_bytes);
/* Bytes of the bulk string that have not come yet; 0: none is under way. */
static inline uint64_t resp_bulk_left(const struct resp *resp)
{
	return resp->state == RESP_IN_BULK ? resp->bulk_left : 0;
}
/* The next `bytes` <= resp_bulk_left of the stream were taken by the caller. */
void resp_bulk_took(struct resp *resp, uint64_t bytes);
/* Nothing of a reply has come yet. */
static inline bool resp_idle(const struct resp *resp)
{
	return resp->state == RESP_IN_LINE && resp->line_length == 0 && resp->depth == 0;
}

KVR_END_C

#endif
