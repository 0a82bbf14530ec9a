#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

#define TEXT_FIRST_CAPACITY 256
#define TEXT_NAME_MAX 64
#define TEXT_DISTANCE_MAX 3

/* Room for `more` bytes and the terminator. */
static bool text_grow(struct text *text, size_t more)
{
	size_t needed, capacity = text->capacity ? text->capacity : TEXT_FIRST_CAPACITY;
	char *bytes;

	if (text->failed)
		return false;
	if (__builtin_add_overflow(text->length, more, &needed) || needed >= SIZE_MAX / 2)
		goto fail;
	if (needed < text->capacity)
		return true;
	while (capacity <= needed)
		capacity *= 2;
	bytes = fault_point("text_append/bytes") ? NULL : realloc(text->bytes, capacity);
	if (!bytes)
		goto fail;
	text->bytes = bytes;
	text->capacity = capacity;
	return true;

fail:
	text->failed = true;
	return false;
}

void text_append_bytes(struct text *text, const void *bytes, size_t length)
{
	if (!text_grow(text, length))
		return;
	if (length)
		memcpy(text->bytes + text->length, bytes, length);
	text->length += length;
	text->bytes[text->length] = '\0';
}

void text_append(struct text *text, const char *format, ...)
{
	va_list arguments, again;
	int length;

	va_start(arguments, format);
	va_copy(again, arguments);
	length = vsnprintf(NULL, 0, format, arguments);
	va_end(arguments);
	if (length < 0) {
		text->failed = true;
	} else if (text_grow(text, (size_t)length)) {
		vsnprintf(text->bytes + text->length, (size_t)length + 1, format, again);
		text->length += (size_t)length;
	}
	va_end(again);
}

/*
 * The bytes of the UTF-8 character at `at`, which is terminated by a zero byte, or 0 when there is none: stray or
 * missing continuation bytes, forms longer than necessary, surrogates, above U+10FFFF.
 */
static size_t utf8_length(const unsigned char *at)
{
	unsigned char low = 0x80, high = 0xbf;
	size_t length;

	if (at[0] < 0x80)
		return 1;
	if (at[0] >= 0xc2 && at[0] <= 0xdf)
		length = 2;
	else if (at[0] >= 0xe0 && at[0] <= 0xef)
		length = 3;
	else if (at[0] >= 0xf0 && at[0] <= 0xf4)
		length = 4;
	else
		return 0;
	/* The first continuation byte has a narrower range behind four of the leading bytes. */
	if (at[0] == 0xe0)
		low = 0xa0;
	else if (at[0] == 0xed)
		high = 0x9f;
	else if (at[0] == 0xf0)
		low = 0x90;
	else if (at[0] == 0xf4)
		high = 0x8f;
	if (at[1] < low || at[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	}
	return length;
}

static void text_append_json_control(struct text *text, unsigned char byte)
{
	static const char letters[] = "\bb\ff\nn\rr\tt";

	for (size_t i = 0; i + 1 < sizeof(letters); i += 2) {
		if (byte == (unsigned char)letters[i]) {
			text_append(text, "\\%c", letters[i + 1]);
			return;
		}
	}
	text_append(text, "\\u%04x", byte);
}

void text_append_json_string(struct text *text, const char *string)
{
	const unsigned char *at = (const unsigned char *)string;

	text_append_bytes(text, "\"", 1);
	while (*at) {
		size_t length = utf8_length(at);

		if (length == 0) {
			text_append_bytes(text, "\xef\xbf\xbd", 3);
			length = 1;
		} else if (*at == '"' || *at == '\\') {
			text_append(text, "\\%c", *at);
		} else if (*at < 0x20) {
			text_append_json_control(text, *at);
		} else {
			text_append_bytes(text, at, length);
		}
		at += length;
	}
	text_append_bytes(text, "\"", 1);
}

void text_append_label(struct text *text, const char *string)
{
	const unsigned char *at = (const unsigned char *)string;

	while (*at) {
		size_t length = utf8_length(at);

		if (length == 0)
			text_append_bytes(text, "\xef\xbf\xbd", 3);
		else if (*at == '\n')
			text_append_bytes(text, "\\n", 2);
		else if (*at == '"' || *at == '\\')
			text_append(text, "\\%c", *at);
		else
			text_append_bytes(text, at, length);
		at += length ? length : 1;
	}
}

void text_fini(struct text *text)
{
	free(text->bytes);
	memset(text, 0, sizeof(*text));
}

const char *text_size(char buffer[TEXT_SHORT], uint64_t bytes)
{
	static const char units[] = "KMGTPE";
	unsigned power = 0;
	uint64_t hundredths;

	if (bytes < 1024) {
		snprintf(buffer, TEXT_SHORT, "%u B", (unsigned)bytes);
		return buffer;
	}
	/* Rounded to hundredths of the largest unit that does not round up to the next one. */
	do {
		unsigned __int128 unit = (unsigned __int128)1 << (10 * ++power);

		hundredths = (uint64_t)(((unsigned __int128)bytes * 100 + unit / 2) / unit);
	} while (hundredths >= 102400 && power < 6);
	snprintf(buffer, TEXT_SHORT, "%u.%02u %ciB", (unsigned)(hundredths / 100), (unsigned)(hundredths % 100),
		units[power - 1]);
	return buffer;
}

const char *text_time(char buffer[TEXT_SHORT], uint64_t ns)
{
	static const struct {
		uint64_t ns;
		const char *name;
	} units[] = { { 1000, "us" }, { 1000000, "ms" }, { 1000000000, "s" } };
	char wide[48] = "";
	uint64_t tenths = 0;
	size_t i;

	if (ns < 1000) {
		snprintf(buffer, TEXT_SHORT, "%u ns", (unsigned)ns);
		return buffer;
	}
	for (i = 0; i < KVR_COUNT_OF(units); i++) {
		tenths = (uint64_t)(((unsigned __int128)ns * 10 + units[i].ns / 2) / units[i].ns);
		if (tenths < 10000 || i == KVR_COUNT_OF(units) - 1)
			break;
	}
	/* At most 15 characters, which the compiler cannot know: 2^64 ns are "18446744073.7 s". */
	snprintf(wide, sizeof(wide), "%llu.%u %s", (unsigned long long)(tenths / 10), (unsigned)(tenths % 10),
		units[i].name);
	memcpy(buffer, wide, TEXT_SHORT);
	buffer[TEXT_SHORT - 1] = '\0';
	return buffer;
}

void text_hex(char *out, const void *bytes, size_t length)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *from = bytes;

	for (size_t i = 0; i < length; i++) {
		*out++ = digits[from[i] >> 4];
		*out++ = digits[from[i] & 15];
	}
	*out = '\0';
}

static int hex_digit(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	return -1;
}

bool text_unhex(void *out, size_t length, const char *hex)
{
	unsigned char *to = out;

	for (size_t i = 0; i < length; i++) {
		int high = hex_digit(hex[2 * i]);
		/* A zero byte ends the text: nothing behind it may be read. */
		int low = high < 0 ? -1 : hex_digit(hex[2 * i + 1]);

		if (low < 0)
			return false;
		to[i] = (unsigned char)(high << 4 | low);
	}
	return true;
}

/* Levenshtein's distance, one row at a time. Both words have at most TEXT_NAME_MAX letters. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
	size_t row[TEXT_NAME_MAX + 1];

	for (size_t j = 0; j <= b_length; j++)
		row[j] = j;
	for (size_t i = 1; i <= a_length; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= b_length; j++) {
			size_t swap = diagonal + (a[i - 1] != b[j - 1]);
			size_t step = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

			diagonal = row[j];
			row[j] = swap < step ? swap : step;
		}
	}
	return row[b_length];
}

const char *text_nearest(const char *word, const char *const *names, size_t count)
{
	size_t length = strlen(word);
	/* Of a short word nothing would be left after three edits. */
	size_t best = (length + 1) / 2 < TEXT_DISTANCE_MAX ? (length + 1) / 2 : TEXT_DISTANCE_MAX;
	const char *nearest = NULL;

	if (length > TEXT_NAME_MAX)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		size_t name_length = strlen(names[i]);
		size_t distance;

		if (name_length > TEXT_NAME_MAX)
			continue;
		distance = edit_distance(word, length, names[i], name_length);
		if (distance < best || (distance == best && !nearest)) {
			best = distance;
			nearest = names[i];
		}
	}
	return nearest;
}

bool text_list_item(const char *list, uint32_t index, char *out, size_t size)
{
	size_t length;

	for (; index > 0; index--) {
		list = strchr(list, ',');
		if (!list)
			return false;
		list++;
	}
	length = strcspn(list, ",");
	length = length < size ? length : size - 1;
	memcpy(out, list, length);
	out[length] = '\0';
	return true;
}
