#include "tier/file_format.h"

#include <string.h>

#include "base/text.h"

#define HASH_HEX 64

static const char file_suffix[] = ".kvo";

void file_name_make(struct digester *digester, const struct l2_identity *identity, struct file_name *name)
{
	object_hash(digester, identity, name->hash);
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
	if (!object_hash_parse(file, name.hash))
		return false;
	name.fan = fan;
	*out = name;
	return true;
}
