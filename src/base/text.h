/*
 * text.h - building and reading text with bounds: log lines, JSON, metrics, sizes, times.
 */
#ifndef KVRAIL_BASE_TEXT_H
#define KVRAIL_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

/* Growing text on the heap, always terminated. Zeroed: empty. After -ENOMEM `failed` stays set and appends do
 * nothing. */
struct text {
	char *bytes;
	size_t length;
	size_t capacity;
	bool failed;
};
void text_append(struct text *text, const char *format, ...) KVR_PRINTF(2, 3);
void text_append_bytes(struct text *text, const void *bytes, size_t length);
/* A JSON string with quotes and escapes; bytes that are no UTF-8 are replaced by U+FFFD. */
void text_append_json_string(struct text *text, const char *string);
/* The value of a Prometheus label, without its quotes: escapes, and U+FFFD for what is no UTF-8, of which one byte loses
 * the whole page. */
void text_append_label(struct text *text, const char *string);
void text_fini(struct text *text);

/* Copies what fits, always terminated; size >= 1. */
/* The index-th of names that commas separate, cut to `size`. False: there are not so many. An empty one counts. */
bool text_list_item(const char *list, uint32_t index, char *out, size_t size);
static inline void text_copy(char *out, size_t size, const char *string)
{
	size_t length = __builtin_strlen(string);

	if (length >= size)
		length = size - 1;
	__builtin_memcpy(out, string, length);
	out[length] = '\0';
}

/* Parsers take the whole string, without blanks and signs, and leave the output untouched on an error. */

/* "4096", "512B", "64K", "64k", "1.5G", "2GiB": multiples of 1024 for K, M, G, T with or without iB, rounded down
 * to whole bytes. "10MB" and its like are refused: nobody knows which of the two meanings was meant. 0, -EINVAL,
 * -ERANGE. */
KVR_MUST_CHECK int text_parse_size(const char *string, uint64_t *bytes);
/* Why text_parse_size refuses the string, to stand behind it in a message: "MB is a decimal unit, write MiB". NULL: it
 * does not. */
const char *text_size_refusal(const char *string);
/* "250ms", "1.5s", "2m", "1h", "10us", "7ns"; a bare number is refused (which unit?), except 0. 0, -EINVAL, -ERANGE. */
KVR_MUST_CHECK int text_parse_time(const char *string, uint64_t *ns);
/* Whole decimal number, nothing behind it. 0, -EINVAL, -ERANGE. */
KVR_MUST_CHECK int text_parse_u64(const char *string, uint64_t *value);

/* "1.50 GiB", "812 B": at most 15 characters, into a buffer of 16. Returns the buffer. */
#define TEXT_SHORT 16
const char *text_size(char buffer[TEXT_SHORT], uint64_t bytes);
/* "1.5 us", "812 ns", "3.2 s". */
const char *text_time(char buffer[TEXT_SHORT], uint64_t ns);
/* Lower-case hex of `length` bytes into 2 * length + 1 characters. */
void text_hex(char *out, const void *bytes, size_t length);
/* 2 * length hex digits to bytes; false on any other character. */
bool text_unhex(void *out, size_t length, const char *hex);

/* The closest of `count` names to `word` (edit distance at most 3, for short words at most half of their letters), the
 * first of equals; NULL when none is near: "did you mean ...". */
const char *text_nearest(const char *word, const char *const *names, size_t count);

KVR_END_C

#endif
