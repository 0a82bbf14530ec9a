#include "tier/file_format.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "protocol/cursor.h"
#include "tier/checksum.h"

#define IDENTITY_OFFSET 16
#define IDENTITY_BYTES 112
#define CHECKSUM_OFFSET (FILE_BLOCK - 8)
#define HASH_HEX 64

static const uint8_t file_magic[8] = { 0x89, 'K', 'V', 'R', 'O', 0x0d, 0x0a, 0x1a };
static const char file_name_domain[] = "kvrail L2 object v1";
static const char file_suffix[] = ".kvo";

static bool put_identity(struct put_cursor *cursor, const struct l2_identity *identity)
{
	return put_bytes(cursor, identity->model_key, 32) && put_bytes(cursor, identity->salt, 32) &&
		put_bytes(cursor, identity->digest, 32) && put_u32(cursor, identity->part) &&
		put_u32(cursor, identity->reserved) && put_u64(cursor, identity->bytes);
}

void file_header_encode(const struct file_header *header, uint8_t out[FILE_BLOCK])
{
	struct put_cursor cursor = { out, out + FILE_BLOCK };
	uint64_t checksum;
	bool fits;

	memset(out, 0, FILE_BLOCK);
	fits = put_bytes(&cursor, file_magic, sizeof(file_magic)) && put_u32(&cursor, FILE_VERSION) &&
		put_u32(&cursor, FILE_BLOCK) && put_identity(&cursor, &header->identity) &&
		put_u64(&cursor, header->checksum) && put_u32(&cursor, FILE_ENCODING_NONE) && put_u32(&cursor, 0) &&
		put_u64(&cursor, header->identity.bytes);
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

int file_header_decode(const uint8_t in[FILE_BLOCK], struct file_header *out)
{
	struct get_cursor cursor = { in, in + FILE_BLOCK };
	uint32_t version, header_bytes, encoding, reserved;
	struct file_header header;
	const uint8_t *magic;
	uint64_t checksum, stored_bytes;

	memcpy(&checksum, in + CHECKSUM_OFFSET, sizeof(checksum));
	if (checksum != checksum_bytes(in, CHECKSUM_OFFSET))
		return -EBADMSG;
	if (!get_bytes(&cursor, &magic, sizeof(file_magic)) || memcmp(magic, file_magic, sizeof(file_magic)) != 0)
		return -EBADMSG;
	if (!get_u32(&cursor, &version) || version != FILE_VERSION)
		return -EBADMSG;
	if (!get_u32(&cursor, &header_bytes) || header_bytes != FILE_BLOCK)
		return -EBADMSG;
	if (!get_identity(&cursor, &header.identity) || !file_identity_good(&header.identity))
		return -EBADMSG;
	if (!get_u64(&cursor, &header.checksum) || !get_u32(&cursor, &encoding) || encoding != FILE_ENCODING_NONE)
		return -EBADMSG;
	if (!get_u32(&cursor, &reserved) || reserved != 0)
		return -EBADMSG;
	if (!get_u64(&cursor, &stored_bytes) || stored_bytes != header.identity.bytes)
		return -EBADMSG;
	for (const uint8_t *rest = cursor.next; rest < in + CHECKSUM_OFFSET; rest++) {
		if (*rest != 0)
			return -EBADMSG;
	}
	*out = header;
	return 0;
}

bool file_identity_equal(const struct l2_identity *a, const struct l2_identity *b)
{
	return memcmp(a->model_key, b->model_key, 32) == 0 && memcmp(a->salt, b->salt, 32) == 0 &&
		memcmp(a->digest, b->digest, 32) == 0 && a->part == b->part && a->reserved == b->reserved &&
		a->bytes == b->bytes;
}

bool file_identity_good(const struct l2_identity *identity)
{
	return identity->bytes > 0 && identity->bytes <= FILE_OBJECT_MAX && identity->reserved == 0;
}

void file_name_make(struct digester *digester, const struct l2_identity *identity, struct file_name *name)
{
	uint8_t bytes[IDENTITY_BYTES];
	struct put_cursor cursor = { bytes, bytes + sizeof(bytes) };
	bool fits = put_identity(&cursor, identity);

	(void)fits; /* exactly */
	digester_hash(digester, file_name_domain, sizeof(file_name_domain) - 1, bytes, sizeof(bytes), name->hash);
	name->fan = (uint16_t)(identity->digest[0] << 4 | identity->digest[1] >> 4);
}

static char hex_digit(unsigned value)
{
	return "0123456789abcdef"[value & 15];
}

void file_name_path(const struct file_name *name, char out[FILE_PATH_BYTES])
{
	out[0] = hex_digit(name->fan >> 8);
	out[1] = hex_digit(name->fan >> 4);
	out[2] = hex_digit(name->fan);
	out[3] = '/';
	text_hex(out + 4, name->hash, sizeof(name->hash));
	memcpy(out + 4 + HASH_HEX, file_suffix, sizeof(file_suffix));
}

static int hex_value(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	return -1;
}

bool file_fan_parse(const char *folder, uint16_t *fan)
{
	unsigned value = 0;

	if (strlen(folder) != 3)
		return false;
	for (int i = 0; i < 3; i++) {
		int digit = hex_value(folder[i]);

		if (digit < 0)
			return false;
		value = value << 4 | (unsigned)digit;
	}
	*fan = (uint16_t)value;
	return true;
}

bool file_name_parse(uint16_t fan, const char *file, struct file_name *out)
{
	struct file_name name;

	if (strlen(file) != HASH_HEX + sizeof(file_suffix) - 1 || strcmp(file + HASH_HEX, file_suffix) != 0)
		return false;
	for (int i = 0; i < 32; i++) {
		int high = hex_value(file[2 * i]), low = hex_value(file[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		name.hash[i] = (uint8_t)(high << 4 | low);
	}
	name.fan = fan;
	*out = name;
	return true;
}
