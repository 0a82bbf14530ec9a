#include "tier/redis_protocol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "tier/object_format.h"

uint32_t redis_key(
	struct digester *digester, const char *prefix, const struct l2_identity *identity, char key[REDIS_KEY_MAX])
{
	uint8_t hash[32];

	object_hash(digester, identity, hash);
	return redis_key_of_hash(prefix, hash, key);
}

uint32_t redis_key_of_hash(const char *prefix, const uint8_t hash[32], char key[REDIS_KEY_MAX])
{
	size_t length = strnlen(prefix, REDIS_PREFIX_MAX);
	char hex[65];

	text_hex(hex, hash, 32);
	memcpy(key, prefix, length);
	memcpy(key + length, hex, 64);
	return (uint32_t)length + 64;
}

bool redis_key_parse(const char *prefix, const char *key, size_t length, uint8_t hash[32])
{
	size_t skip = strnlen(prefix, REDIS_PREFIX_MAX);

	return length == skip + 64 && memcmp(key, prefix, skip) == 0 && object_hash_parse(key + skip, hash);
}

void redis_pattern(const char *prefix, char out[REDIS_PATTERN_MAX])
{
	for (size_t i = 0; i < REDIS_PREFIX_MAX && prefix[i]; i++) {
		if (strchr("*?[]\\^", prefix[i]))
			*out++ = '\\';
		*out++ = prefix[i];
	}
	*out++ = '*';
	*out = '\0';
}

/* CRC16 as the cluster specification has it: polynomial 0x1021, begins with 0, not reflected. */
static uint16_t crc16(const char *bytes, size_t length)
{
	uint32_t crc = 0;

	for (size_t i = 0; i < length; i++) {
		crc ^= (uint32_t)(uint8_t)bytes[i] << 8;
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
	}
	return (uint16_t)crc;
}

uint32_t redis_slot(const char *key, size_t length)
{
	const char *open = memchr(key, '{', length);
	const char *close = open ? memchr(open + 1, '}', length - (size_t)(open + 1 - key)) : NULL;

	if (close && close > open + 1)
		return crc16(open + 1, (size_t)(close - open - 1)) % REDIS_SLOTS;
	return crc16(key, length) % REDIS_SLOTS;
}

static bool put_number(char *out, size_t size, uint32_t *length, char kind, uint64_t number)
{
	int written = snprintf(out + *length, size - *length, "%c%llu\r\n", kind, (unsigned long long)number);

	if (written < 0 || (size_t)written >= size - *length)
		return false;
	*length += (uint32_t)written;
	return true;
}

bool redis_put_count(char *out, size_t size, uint32_t *length, uint32_t count)
{
	return put_number(out, size, length, '*', count);
}

bool redis_put_length(char *out, size_t size, uint32_t *length, uint64_t byte_count)
{
	return put_number(out, size, length, '$', byte_count);
}

bool redis_put_argument(char *out, size_t size, uint32_t *length, const void *bytes, size_t byte_count)
{
	if (!redis_put_length(out, size, length, byte_count) || byte_count + 2 > size - *length)
		return false;
	memcpy(out + *length, bytes, byte_count);
	*length += (uint32_t)byte_count + 2;
	out[*length - 2] = '\r';
	out[*length - 1] = '\n';
	return true;
}

/* ---- errors ---- */

enum redis_trouble redis_trouble_of(const char *line)
{
	static const struct {
		const char *word;
		enum redis_trouble trouble;
	} table[] = {
		{ "MOVED", REDIS_MOVED },
		{ "ASK", REDIS_ASK },
		{ "LOADING", REDIS_LOADING },
		{ "BUSY", REDIS_LOADING },
		{ "READONLY", REDIS_READONLY },
		{ "OOM", REDIS_OOM },
		{ "MISCONF", REDIS_MISCONF },
		{ "NOREPLICAS", REDIS_MISCONF },
		{ "NOAUTH", REDIS_REFUSED },
		{ "WRONGPASS", REDIS_REFUSED },
		{ "DENIED", REDIS_REFUSED },
		{ "NOPERM", REDIS_NOPERM },
		{ "CLUSTERDOWN", REDIS_CLUSTERDOWN },
		{ "MASTERDOWN", REDIS_CLUSTERDOWN },
		{ "TRYAGAIN", REDIS_CLUSTERDOWN },
		{ "WRONGTYPE", REDIS_WRONGTYPE },
	};
	size_t length = strcspn(line, " ");

	for (size_t i = 0; i < KVR_COUNT_OF(table); i++)
		if (strlen(table[i].word) == length && strncmp(line, table[i].word, length) == 0)
			return table[i].trouble;
	return REDIS_OTHER;
}

/* Decimal at *text, at most `most`; *text moves behind it. */
static bool take_number(const char **text, uint32_t most, uint32_t *number)
{
	uint32_t value = 0;
	const char *at = *text;

	while (*at >= '0' && *at <= '9') {
		value = value * 10 + (uint32_t)(*at++ - '0');
		if (value > most)
			return false;
	}
	if (at == *text)
		return false;
	*text = at;
	*number = value;
	return true;
}

int redis_parse_move(const char *line, uint32_t *slot, char host[REDIS_HOST_MAX + 1], uint16_t *port)
{
	const char *at = strchr(line, ' '), *colon;
	uint32_t slot_read, port_read;
	size_t length;

	if (!at)
		return -EBADMSG;
	at++;
	if (!take_number(&at, REDIS_SLOTS - 1, &slot_read) || *at++ != ' ')
		return -EBADMSG;
	colon = strrchr(at, ':'); /* an IPv6 address has more of them */
	if (!colon)
		return -EBADMSG;
	length = (size_t)(colon - at);
	colon++;
	if (length > REDIS_HOST_MAX || !take_number(&colon, 65535, &port_read) || *colon != '\0' || port_read == 0)
		return -EBADMSG;
	if (length == 1 && *at == '?')
		length = 0; /* a node that does not know its own name */
	memcpy(host, at, length);
	host[length] = '\0';
	*slot = slot_read;
	*port = (uint16_t)port_read;
	return 0;
}

/* ---- CLUSTER SLOTS ---- */

void redis_slots_init(
	struct redis_slots *slots, bool (*range)(void *, uint32_t, uint32_t, const char *, uint16_t), void *owner)
{
	memset(slots, 0, sizeof(*slots));
	slots->range = range;
	slots->owner = owner;
}

/* The element at index[depth - 1] is over, and with it each array whose last one it was. */
static void element_ended(struct redis_slots *slots)
{
	while (slots->depth > 0) {
		if (++slots->index[slots->depth - 1] < slots->count[slots->depth - 1])
			return;
		slots->depth--;
	}
}

static bool is_host(const struct redis_slots *slots)
{
	return slots->depth == 3 && slots->index[1] == 2 && slots->index[2] == 0;
}

/* The first or the last slot of a range: a number. */
static bool is_bound(const struct redis_slots *slots)
{
	return slots->depth == 2 && slots->index[1] < 2;
}

static bool slots_number(struct redis_slots *slots, int64_t number)
{
	const uint64_t *index = slots->index;

	if (is_host(slots))
		return false;
	if (is_bound(slots)) {
		if (number < 0 || number >= REDIS_SLOTS)
			return false;
		if (index[1] == 0)
			slots->first = (uint32_t)number;
		else
			slots->last = (uint32_t)number;
		return index[1] == 0 || slots->first <= slots->last;
	}
	/* The first node of a range is its master: host, port, ... */
	if (slots->depth == 3 && index[1] == 2 && index[2] == 1) {
		if (number <= 0 || number > 65535)
			return false;
		if (slots->host_length == 1 && slots->host[0] == '?')
			slots->host_length = 0;
		slots->host[slots->host_length] = '\0';
		return slots->range(slots->owner, slots->first, slots->last, slots->host, (uint16_t)number);
	}
	return true;
}

static bool slots_array(struct redis_slots *slots, int64_t count)
{
	if (slots->depth == RESP_DEPTH_MAX || is_host(slots) || is_bound(slots))
		return false;
	if (count == 0) {
		element_ended(slots);
		return true;
	}
	slots->index[slots->depth] = 0;
	slots->count[slots->depth] = (uint64_t)count;
	slots->depth++;
	return true;
}

static bool slots_bulk(struct redis_slots *slots, int64_t bytes)
{
	if (is_bound(slots) || (is_host(slots) && bytes > REDIS_HOST_MAX))
		return false;
	if (is_host(slots))
		slots->host_length = 0;
	if (bytes == 0)
		element_ended(slots);
	return true;
}

static void slots_piece(struct redis_slots *slots, const struct resp *resp, const uint8_t *piece, size_t piece_bytes)
{
	if (is_host(slots)) {
		memcpy(slots->host + slots->host_length, piece, piece_bytes);
		slots->host_length += (uint32_t)piece_bytes;
		if (memchr(piece, '\0', piece_bytes))
			slots->bad = true;
	}
	if (resp_bulk_left(resp) == 0)
		element_ended(slots);
}

void redis_slots_event(struct redis_slots *slots, const struct resp *resp, enum resp_event event, const uint8_t *piece,
	size_t piece_bytes)
{
	bool good = true;

	if (slots->bad)
		return;
	if (slots->depth == 0 && event != RESP_ARRAY) {
		slots->bad = true;
		return;
	}
	switch (event) {
	case RESP_ARRAY:
		good = slots_array(slots, resp->number);
		break;
	case RESP_BULK:
		good = slots_bulk(slots, resp->number);
		break;
	case RESP_PIECE:
		slots_piece(slots, resp, piece, piece_bytes);
		break;
	case RESP_INTEGER:
		good = slots_number(slots, resp->number);
		element_ended(slots);
		break;
	case RESP_NIL:
		if (is_host(slots))
			slots->host_length = 0;
		good = !is_bound(slots);
		element_ended(slots);
		break;
	default: /* texts and errors have no place in it */
		good = false;
		break;
	}
	if (!good)
		slots->bad = true;
}

/* ---- SCAN ---- */

enum scan_place { SCAN_REPLY, SCAN_CURSOR, SCAN_LIST, SCAN_KEY, SCAN_NOTHING };

void redis_scan_init(struct redis_scan *scan, bool (*key)(void *owner, const char *key, uint32_t length), void *owner)
{
	memset(scan, 0, sizeof(*scan));
	scan->key = key;
	scan->owner = owner;
}

static bool scan_cursor(struct redis_scan *scan)
{
	if (scan->length == 0 || scan->length > 20 || (scan->text[0] == '0' && scan->length > 1))
		return false;
	for (uint32_t i = 0; i < scan->length; i++)
		if (scan->text[i] < '0' || scan->text[i] > '9')
			return false;
	memcpy(scan->cursor, scan->text, scan->length);
	scan->cursor[scan->length] = '\0';
	scan->place = SCAN_LIST;
	return true;
}

static bool scan_key(struct redis_scan *scan)
{
	scan->left--;
	scan->whole = scan->left == 0;
	if (scan->whole)
		scan->place = SCAN_NOTHING;
	return scan->length > sizeof(scan->text) || scan->key(scan->owner, scan->text, scan->length);
}

static bool scan_text(struct redis_scan *scan)
{
	return scan->place == SCAN_CURSOR ? scan_cursor(scan) : scan_key(scan);
}

static bool scan_array(struct redis_scan *scan, int64_t count)
{
	if (scan->place == SCAN_REPLY) {
		scan->place = SCAN_CURSOR;
		return count == 2;
	}
	if (scan->place != SCAN_LIST)
		return false;
	scan->left = (uint64_t)count;
	scan->whole = count == 0;
	scan->place = scan->whole ? SCAN_NOTHING : SCAN_KEY;
	return true;
}

static bool scan_bulk(struct redis_scan *scan, int64_t bytes)
{
	if (scan->place != SCAN_CURSOR && scan->place != SCAN_KEY)
		return false;
	/* What is too long is no key of ours: its bytes go nowhere. */
	scan->length = (uint32_t)kvr_min_u64((uint64_t)bytes, sizeof(scan->text) + 1);
	scan->filled = 0;
	return bytes > 0 || scan_text(scan);
}

static bool scan_piece(struct redis_scan *scan, const struct resp *resp, const uint8_t *piece, size_t piece_bytes)
{
	if (scan->length <= sizeof(scan->text)) {
		memcpy(scan->text + scan->filled, piece, piece_bytes);
		scan->filled += (uint32_t)piece_bytes;
	}
	return resp_bulk_left(resp) > 0 || scan_text(scan);
}

void redis_scan_event(struct redis_scan *scan, const struct resp *resp, enum resp_event event, const uint8_t *piece,
	size_t piece_bytes)
{
	bool good = false;

	if (scan->bad)
		return;
	if (event == RESP_ARRAY)
		good = scan_array(scan, resp->number);
	else if (event == RESP_BULK)
		good = scan_bulk(scan, resp->number);
	else if (event == RESP_PIECE)
		good = scan_piece(scan, resp, piece, piece_bytes);
	scan->bad = !good;
}
