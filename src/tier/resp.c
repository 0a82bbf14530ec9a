#include "tier/resp.h"

#include <string.h>

void resp_init(struct resp *resp)
{
	memset(resp, 0, sizeof(*resp));
}

static enum resp_event bad(struct resp *resp)
{
	resp->state = RESP_IS_BAD;
	return RESP_BAD;
}

/* A value has ended: the arrays that it was the last of have, too. */
static void value_ended(struct resp *resp)
{
	resp->state = RESP_IN_LINE;
	while (resp->depth > 0) {
		if (--resp->left[resp->depth - 1] > 0)
			return;
		resp->depth--;
	}
	resp->state = RESP_AT_END;
}

/* Decimal, at most 18 digits: no length is longer, and nothing overflows. */
static bool parse_number(const char *text, int64_t *number)
{
	bool negative = *text == '-';
	int64_t value = 0;
	int digits = 0;

	for (text += negative; *text >= '0' && *text <= '9' && digits < 18; text++, digits++)
		value = value * 10 + (*text - '0');
	if (*text != '\0' || digits == 0)
		return false;
	*number = negative ? -value : value;
	return true;
}

static enum resp_event bulk_line(struct resp *resp)
{
	if (resp->number == -1) {
		value_ended(resp);
		return RESP_NIL;
	}
	if (resp->number < 0 || (uint64_t)resp->number > RESP_BULK_MAX)
		return bad(resp);
	resp->bulk_left = (uint64_t)resp->number;
	resp->state = resp->bulk_left ? RESP_IN_BULK : RESP_IN_BULK_CR;
	return RESP_BULK;
}

static enum resp_event array_line(struct resp *resp)
{
	if (resp->number == -1) {
		value_ended(resp);
		return RESP_NIL;
	}
	if (resp->number < 0 || resp->depth == RESP_DEPTH_MAX)
		return bad(resp);
	if (resp->number == 0)
		value_ended(resp);
	else
		resp->left[resp->depth++] = (uint64_t)resp->number;
	return RESP_ARRAY;
}

/* resp->line is whole. */
static enum resp_event line_ended(struct resp *resp)
{
	uint32_t length = resp->line_length;

	resp->line_length = 0;
	if (length < 2 || resp->line[length - 1] != '\r')
		return bad(resp);
	resp->line[length - 1] = '\0';
	switch (resp->line[0]) {
	case '+':
		value_ended(resp);
		return RESP_STATUS;
	case '-':
		value_ended(resp);
		return RESP_ERROR;
	case ':':
	case '$':
	case '*':
		break;
	default:
		return bad(resp);
	}
	if (!parse_number(resp->line + 1, &resp->number))
		return bad(resp);
	if (resp->line[0] == '$')
		return bulk_line(resp);
	if (resp->line[0] == '*')
		return array_line(resp);
	value_ended(resp);
	return RESP_INTEGER;
}

static enum resp_event take_line(struct resp *resp, const uint8_t **at, const uint8_t *end)
{
	while (*at < end) {
		uint8_t byte = *(*at)++;

		if (byte == '\n')
			return line_ended(resp);
		if (byte == '\0' || resp->line_length == RESP_LINE_MAX)
			return bad(resp);
		resp->line[resp->line_length++] = (char)byte;
	}
	return RESP_MORE;
}

void resp_bulk_took(struct resp *resp, uint64_t bytes)
{
	resp->bulk_left -= bytes;
	if (resp->bulk_left == 0)
		resp->state = RESP_IN_BULK_CR;
}

enum resp_event resp_next(
	struct resp *resp, const uint8_t **at, const uint8_t *end, const uint8_t **piece, size_t *piece_bytes)
{
	for (;;) {
		if (resp->state == RESP_AT_END) {
			resp->state = RESP_IN_LINE;
			return RESP_END;
		}
		if (resp->state == RESP_IS_BAD)
			return RESP_BAD;
		if (*at == end)
			return RESP_MORE;
		switch (resp->state) {
		case RESP_IN_LINE:
			return take_line(resp, at, end);
		case RESP_IN_BULK:
			*piece = *at;
			*piece_bytes = (size_t)kvr_min_u64((uint64_t)(end - *at), resp->bulk_left);
			*at += *piece_bytes;
			resp_bulk_took(resp, *piece_bytes);
			return RESP_PIECE;
		case RESP_IN_BULK_CR:
			if (*(*at)++ != '\r')
				return bad(resp);
			resp->state = RESP_IN_BULK_LF;
			break;
		case RESP_IN_BULK_LF:
			if (*(*at)++ != '\n')
				return bad(resp);
			value_ended(resp);
			break;
		case RESP_AT_END:
		case RESP_IS_BAD:
			break;
		}
	}
}
