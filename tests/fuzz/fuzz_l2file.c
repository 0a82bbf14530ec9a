/*
 * libFuzzer target for what the file adapter reads from a directory: headers of objects, and names. Whatever is decoded
 * is an object that can be kept, and encodes to the same bytes; a header with one changed bit is refused.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tier/checksum.h"
#include "tier/file_format.h"
#include "tier/object_body.h"

/* Kept on: a broken promise ends the run and leaves the input behind. */
static void demand(bool holds)
{
	if (!holds)
		abort();
}

static void check_header(uint8_t block[FILE_BLOCK])
{
	struct object_header header;
	uint8_t again[FILE_BLOCK];

	if (object_header_decode(block, &header))
		return;
	demand(object_identity_good(&header.identity));
	object_header_encode(&header, again);
	demand(memcmp(block, again, sizeof(again)) == 0);
	again[header.checksum % FILE_BLOCK] ^= (uint8_t)(1u << (header.identity.bytes % 8));
	demand(object_header_decode(again, &header) != 0);
}

static void check_name(const char *text)
{
	char path[FILE_PATH_BYTES];
	struct file_name name;
	uint16_t fan;

	if (file_fan_parse(text, &fan))
		demand(fan < FILE_FAN_COUNT);
	if (!file_name_parse(0xabc, text, &name))
		return;
	file_name_path(&name, path);
	demand(strncmp(path, "abc/", 4) == 0 && strcmp(path + 4, text) == 0);
}

/* A compressed body gives the object wholly, or nothing. */
static void check_packed(const uint8_t *data, size_t size)
{
	struct object_codec codec;
	uint8_t out[300];

	demand(object_codec_init(&codec, 0, 1) == 0);
	if (size > 0 && object_unpack(&codec, data, size, out, 256) == 0)
		demand(size >= 4);
	object_codec_fini(&codec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t block[FILE_BLOCK] = { 0 };
	char text[FILE_PATH_BYTES + 8];
	uint64_t checksum;

	memcpy(block, data, size < sizeof(block) ? size : sizeof(block));
	check_header(block);
	/* No mutation finds a checksum, so the fields are also tried with the right one. */
	checksum = checksum_bytes(block, FILE_BLOCK - sizeof(checksum));
	memcpy(block + FILE_BLOCK - sizeof(checksum), &checksum, sizeof(checksum));
	check_header(block);

	check_packed(data, size);
	if (size >= sizeof(text))
		size = sizeof(text) - 1;
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	check_name(text);
	return 0;
}
