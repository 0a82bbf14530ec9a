#include "protocol/golden.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *const golden_names[] = {
	"hello",
	"hello_reply_done",
	"hello_reply_challenge",
	"authenticate",
	"authenticate_reply",
	"connect",
	"connect_reply",
	"memory_shared",
	"memory_device",
	"memory_remote",
	"memory_reply",
	"forget_memory",
	"forget_memory_reply",
	"register",
	"register_scheduler",
	"register_reply",
	"unregister",
	"unregister_reply",
	"indirect",
	"ping",
	"ping_reply",
	"get_info",
	"get_info_reply",
	"lookup",
	"lookup_named",
	"lookup_reply",
	"query",
	"query_reply_pending",
	"retrieve",
	"retrieve_ordered",
	"store_after",
	"retrieve_reply_partial",
	"store",
	"store_reply",
	"free_locks",
	"free_locks_all",
	"free_locks_reply",
	"cancel",
	"cancel_reply",
	"end_session",
	"end_session_reply",
	"clear",
	"clear_reply",
	"error_busy",
	"error_unknown_type",
	NULL,
};

static int digit(char character)
{
	assert_true(isxdigit((unsigned char)character));
	return character <= '9' ? character - '0' : (character | 0x20) - 'a' + 10;
}

static size_t parse_hex(FILE *file, uint8_t *bytes, size_t capacity)
{
	char line[256];
	size_t length = 0;

	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "# \n")] = 0;
		for (const char *at = line; *at; at += 2) {
			assert_true(length < capacity);
			bytes[length++] = (uint8_t)(digit(at[0]) << 4 | digit(at[1]));
		}
	}
	return length;
}

static void *copy(const void *bytes, size_t length)
{
	void *made = malloc(length ? length : 1);

	assert_non_null(made);
	memcpy(made, bytes, length);
	return made;
}

void golden_load(struct golden *golden, const char *name)
{
	char path[512];
	uint8_t bytes[4096];
	struct wire_error error;
	FILE *file;

	snprintf(path, sizeof(path), "%s/tests/wire/%s.hex", KVRAIL_SOURCE_DIR, name);
	file = fopen(path, "r");
	assert_non_null(file);
	golden->length = parse_hex(file, bytes, sizeof(bytes));
	fclose(file);
	golden->bytes = copy(bytes, golden->length);
	assert_int_equal(wire_header_decode(golden->bytes, golden->length, &golden->header, &error), 0);
	golden->kind = any_kind_of(&golden->header);
	assert_int_not_equal(golden->kind, ANY_COUNT);
}

void golden_free(struct golden *golden)
{
	free(golden->bytes);
	golden->bytes = NULL;
}

void golden_patch(struct golden *golden, uint32_t offset, uint32_t width, uint64_t value)
{
	assert_true(offset + width <= golden->length);
	memcpy(golden->bytes + offset, &value, width);
}

void golden_insert(struct golden *golden, size_t offset, size_t count)
{
	uint8_t *made = malloc(golden->length + count);

	assert_non_null(made);
	memcpy(made, golden->bytes, offset);
	memset(made + offset, 0xee, count);
	memcpy(made + offset + count, golden->bytes + offset, golden->length - offset);
	free(golden->bytes);
	golden->bytes = made;
	golden->length += count;
}

void golden_cut(struct golden *golden, size_t length)
{
	uint8_t *made = copy(golden->bytes, length);

	free(golden->bytes);
	golden->bytes = made;
	golden->length = length;
}
