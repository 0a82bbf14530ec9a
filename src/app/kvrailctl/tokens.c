/* tokens.c - token ids in a file, as a tokenizer prints them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrailctl/kvrailctl.h"
#include "base/text.h"

#define TOKENS_BYTES_MAX ((size_t)64 << 20)

static bool read_whole(const char *path, struct text *bytes)
{
	FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	char buffer[16384];
	size_t count;
	bool good;

	if (!file) {
		kvrailctl_complain("--tokens %.200s can't be read: %s", path, strerror(errno));
		return false;
	}
	while ((count = fread(buffer, 1, sizeof(buffer), file)) > 0 && bytes->length <= TOKENS_BYTES_MAX)
		text_append_bytes(bytes, buffer, count);
	good = !ferror(file) && !bytes->failed;
	if (file != stdin)
		fclose(file);
	if (!good)
		kvrailctl_complain("--tokens %.200s can't be read to its end", path);
	else if (bytes->length > TOKENS_BYTES_MAX)
		kvrailctl_complain("--tokens %.200s has more than %zu MiB", path, TOKENS_BYTES_MAX >> 20);
	return good && bytes->length <= TOKENS_BYTES_MAX;
}

/* The next number; false at the end, or with *wrong where something else stands. */
static bool next_token(const char **at, uint32_t *token, bool *wrong)
{
	uint64_t value = 0;

	*at += strspn(*at, " \t\r\n,[]");
	if (!**at)
		return false;
	for (; **at >= '0' && **at <= '9' && value <= UINT32_MAX; (*at)++)
		value = value * 10 + (uint64_t)(**at - '0');
	*wrong = value > UINT32_MAX || (**at && !strchr(" \t\r\n,[]", **at));
	*token = (uint32_t)value;
	return !*wrong;
}

bool kvrailctl_read_tokens(const char *path, uint32_t **tokens, size_t *count)
{
	struct text bytes = { NULL, 0, 0, false };
	bool wrong = false;
	const char *at;
	uint32_t token;

	*tokens = NULL;
	*count = 0;
	if (!read_whole(path, &bytes)) {
		text_fini(&bytes);
		return false;
	}
	/* Every number but the last has a character behind it. */
	*tokens = malloc((bytes.length / 2 + 1) * sizeof(**tokens));
	at = bytes.bytes ? bytes.bytes : "";
	while (*tokens && next_token(&at, &token, &wrong))
		(*tokens)[(*count)++] = token;
	if (!*tokens)
		kvrailctl_complain("no memory for the tokens of %.200s", path);
	else if (wrong)
		kvrailctl_complain(
			"--tokens %.200s: token %zu is no number below 2^32 at \"%.20s\"", path, *count + 1, at);
	text_fini(&bytes);
	if (*tokens && !wrong)
		return true;
	free(*tokens);
	*tokens = NULL;
	return false;
}
