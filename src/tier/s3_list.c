#include "tier/s3_list.h"

#include <stdio.h>
#include <string.h>

void s3_list_init(struct s3_list *list, bool (*key)(void *owner, const char *key, uint32_t length), void *owner)
{
	memset(list, 0, sizeof(*list));
	list->key = key;
	list->owner = owner;
}

/* ---- texts ---- */

/* An entity at `at`, up to its ';': its character, and its length; 0: none that is known. */
static uint32_t entity(const char *at, char *out)
{
	static const struct {
		const char *name;
		char character;
	} table[] = { { "&amp;", '&' }, { "&lt;", '<' }, { "&gt;", '>' }, { "&quot;", '"' }, { "&apos;", '\'' },
		{ "&#34;", '"' }, { "&#38;", '&' }, { "&#39;", '\'' }, { "&#43;", '+' }, { "&#61;", '=' },
		{ "&#x2B;", '+' } };

	for (size_t i = 0; i < KVR_COUNT_OF(table); i++) {
		size_t length = strlen(table[i].name);

		if (strncmp(at, table[i].name, length) == 0) {
			*out = table[i].character;
			return (uint32_t)length;
		}
	}
	return 0;
}

static bool take_token(struct s3_list *list)
{
	char *out = list->token;

	for (const char *at = list->text; *at;) {
		uint32_t length = *at == '&' ? entity(at, out) : 1;

		if (length == 0 || (unsigned char)*at < ' ')
			return false;
		if (*at != '&')
			*out = *at;
		out++;
		at += length;
	}
	*out = '\0';
	return list->token[0] != '\0';
}

/* ---- tags ---- */

static bool text_is(const struct s3_list *list, const char *text)
{
	return list->text_length == strlen(text) && memcmp(list->text, text, list->text_length) == 0;
}

/* The text before an end tag is the element's. */
static bool end_tag(struct s3_list *list)
{
	bool fits = list->text_length <= S3_TOKEN_MAX;

	if (fits)
		list->text[list->text_length] = '\0';
	if (strcmp(list->tag, "/Key") == 0)
		return !fits || list->key(list->owner, list->text, list->text_length);
	if (strcmp(list->tag, "/NextContinuationToken") == 0)
		return fits && !memchr(list->text, '\0', list->text_length) && take_token(list);
	if (strcmp(list->tag, "/IsTruncated") == 0) {
		list->truncated = text_is(list, "true");
		return list->truncated || text_is(list, "false");
	}
	if (strcmp(list->tag, "/ListBucketResult") == 0)
		list->whole = true;
	return true;
}

static bool tag_ended(struct s3_list *list)
{
	uint32_t length = list->tag_length <= S3_LIST_TAG_MAX ? list->tag_length : S3_LIST_TAG_MAX;
	bool good = true;

	list->tag[length] = '\0';
	if (list->begun && list->tag[0] == '/' && list->tag_length <= S3_LIST_TAG_MAX)
		good = end_tag(list);
	list->tag[strcspn(list->tag, " ")] = '\0'; /* attributes: the namespace */
	if (strcmp(list->tag, "ListBucketResult") == 0) {
		good = !list->begun;
		list->begun = true;
	}
	list->text_length = 0;
	return good;
}

/* False: this is no such page. */
static bool take(struct s3_list *list, char c)
{
	if (list->state == S3_LIST_TEXT && c == '<') {
		list->state = S3_LIST_TAG;
		list->tag_length = 0;
		return !list->whole;
	}
	if (list->state == S3_LIST_TEXT) {
		if (list->text_length < S3_TOKEN_MAX)
			list->text[list->text_length] = c;
		list->text_length += list->text_length <= S3_TOKEN_MAX;
		return true;
	}
	if (c == '>') {
		list->state = S3_LIST_TEXT;
		return tag_ended(list);
	}
	if (list->tag_length < S3_LIST_TAG_MAX)
		list->tag[list->tag_length] = c;
	list->tag_length += list->tag_length <= S3_LIST_TAG_MAX;
	return c != '<';
}

void s3_list_take(struct s3_list *list, const char *bytes, size_t count)
{
	for (size_t i = 0; i < count && !list->bad; i++)
		list->bad = !take(list, bytes[i]);
}

bool s3_list_good(const struct s3_list *list)
{
	return !list->bad && list->whole && (!list->truncated || list->token[0]);
}

/* ---- the query ---- */

static bool put(char *out, size_t size, size_t *length, const char *text)
{
	size_t count = strlen(text);

	if (count >= size - *length)
		return false;
	memcpy(out + *length, text, count + 1);
	*length += count;
	return true;
}

static bool put_encoded(char *out, size_t size, size_t *length, const char *text)
{
	bool fits = true;

	for (; *text && fits; text++) {
		char c = *text, piece[4] = { c };

		if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strchr("-._~", c))
			snprintf(piece, sizeof(piece), "%%%02X", (unsigned char)c);
		fits = put(out, size, length, piece);
	}
	return fits;
}

bool s3_list_query(const char *prefix, const char *token, char *out, size_t size)
{
	size_t length = 0;

	/* Sorted, as they are signed. */
	return (!*token ||
		       (put(out, size, &length, "continuation-token=") && put_encoded(out, size, &length, token) &&
			       put(out, size, &length, "&"))) &&
		put(out, size, &length, "list-type=2&max-keys=1000") &&
		(!*prefix || (put(out, size, &length, "&prefix=") && put_encoded(out, size, &length, prefix)));
}
