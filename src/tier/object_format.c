#include "tier/object_format.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "protocol/cursor.h"
#include "tier/checksum.h"

#define IDENTITY_OFFSET 16
#define IDENTITY_BYTES 112
#define CHECKSUM_OFFSET (OBJECT_HEADER_BYTES - 8)

static const uint8_t object_magic[8] = { 0x89, 'K', 'V', 'R', 'O', 0x0d, 0x0a, 0x1a };
static const char object_name_domain[] = "kvrail L2 object v1";

static bool put_identity(struct put_cursor *cursor, const struct l2_identity *identity)
{
	return put_bytes(cursor, identity->model_key, 32) && put_bytes(cursor, identity->salt, 32) &&
		put_bytes(cursor, identity->digest, 32) && put_u32(cursor, identity->part) &&
		put_u32(cursor, identity->reserved) && put_u64(cursor, identity->bytes);
}

void object_header_encode(const struct object_header *header, uint8_t out[OBJECT_HEADER_BYTES])
{
	struct put_cursor cursor = { out, out + OBJECT_HEADER_BYTES };
	uint64_t checksum;
	bool fits;

	memset(out, 0, OBJECT_HEADER_BYTES);
	fits = put_bytes(&cursor, object_magic, sizeof(object_magic)) && put_u32(&cursor, OBJECT_VERSION) &&
		put_u32(&cursor, OBJECT_HEADER_BYTES) && put_identity(&cursor, &header->identity) &&
		put_u64(&cursor, header->checksum) && put_u32(&cursor, header->encoding) &&
		put_u32(&cursor, header->element) &&
		put_u64(&cursor, header->stored_bytes ? header->stored_bytes : header->identity.bytes);
	checksum = checksum_bytes(out, CHECKSUM_OFFSET);
	memcpy(out + CHECKSUM_OFFSET, &checksum, sizeof(checksum));
	(void)fits; /* 152 of 4096 bytes */
}

static bool get_digest(struct get_cursor *cursor, uint8_t out[32])
{
	const uint8_t *bytes;

	if (!get_bytes(cursor, &bytes, 32))
		return false;
	memcpy(out, bytes, 32);
	return true;
}

static bool get_identity(struct get_cursor *cursor, struct l2_identity *identity)
{
	return get_digest(cursor, identity->model_key) && get_digest(cursor, identity->salt) &&
		get_digest(cursor, identity->digest) && get_u32(cursor, &identity->part) &&
		get_u32(cursor, &identity->reserved) && get_u64(cursor, &identity->bytes);
}

static bool encoding_good(const struct object_header *header)
{
	switch (header->encoding) {
	case OBJECT_ENCODING_NONE:
		return header->element == 0 && header->stored_bytes == header->identity.bytes;
	case OBJECT_ENCODING_ZSTD:
		return (header->element == 1 || header->element == 2 || header->element == 4) &&
			header->stored_bytes > 0 && header->stored_bytes < header->identity.bytes;
	default:
		return false;
	}
}

int object_header_decode(const uint8_t in[OBJECT_HEADER_BYTES], struct object_header *out)
{
	struct get_cursor cursor = { in, in + OBJECT_HEADER_BYTES };
	uint32_t version, header_bytes;
	struct object_header header;
	const uint8_t *magic;
	uint64_t checksum;

	memcpy(&checksum, in + CHECKSUM_OFFSET, sizeof(checksum));
	if (checksum != checksum_bytes(in, CHECKSUM_OFFSET))
		return -EBADMSG;
	if (!get_bytes(&cursor, &magic, sizeof(object_magic)) || memcmp(magic, object_magic, sizeof(object_magic)) != 0)
		return -EBADMSG;
	if (!get_u32(&cursor, &version) || version != OBJECT_VERSION)
		return -EBADMSG;
	if (!get_u32(&cursor, &header_bytes) || header_bytes != OBJECT_HEADER_BYTES)
		return -EBADMSG;
	if (!get_identity(&cursor, &header.identity) || !object_identity_good(&header.identity))
		return -EBADMSG;
	if (!get_u64(&cursor, &header.checksum) || !get_u32(&cursor, &header.encoding) ||
		!get_u32(&cursor, &header.element) || !get_u64(&cursor, &header.stored_bytes) ||
		!encoding_good(&header))
		return -EBADMSG;
	for (const uint8_t *rest = cursor.next; rest < in + CHECKSUM_OFFSET; rest++) {
		if (*rest != 0)
			return -EBADMSG;
	}
	*out = header;
	return 0;
}

bool object_identity_equal(const struct l2_identity *a, const struct l2_identity *b)
{
	return memcmp(a->model_key, b->model_key, 32) == 0 && memcmp(a->salt, b->salt, 32) == 0 &&
		memcmp(a->digest, b->digest, 32) == 0 && a->part == b->part && a->reserved == b->reserved &&
		a->bytes == b->bytes;
}

bool object_identity_good(const struct l2_identity *identity)
{
	return identity->bytes > 0 && identity->bytes <= OBJECT_BYTES_MAX && identity->reserved == 0;
}

bool object_is_cleared(const struct l2_request *clear, const struct l2_identity *identity)
{
	const uint8_t *keys = clear->memory;

	for (uint64_t at = 0; keys && at < clear->identity.bytes; at += sizeof(identity->model_key))
		if (memcmp(keys + at, identity->model_key, sizeof(identity->model_key)) == 0)
			return true;
	return !keys;
}

void object_hash(struct digester *digester, const struct l2_identity *identity, uint8_t hash[32])
{
	uint8_t bytes[IDENTITY_BYTES];
	struct put_cursor cursor = { bytes, bytes + sizeof(bytes) };
	bool fits = put_identity(&cursor, identity);

	(void)fits; /* exactly */
	digester_hash(digester, object_name_domain, sizeof(object_name_domain) - 1, bytes, sizeof(bytes), hash);
}

bool object_hash_parse(const char *name, uint8_t hash[32])
{
	char again[65];

	/* Only as text_hex writes it: of two spellings one would be somebody else's. */
	if (!text_unhex(hash, 32, name))
		return false;
	text_hex(again, hash, 32);
	return memcmp(again, name, 64) == 0;
}
