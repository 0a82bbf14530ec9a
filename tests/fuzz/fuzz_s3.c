/*
 * libFuzzer target for what is read around S3: the word of an error's body, a page of the list of a bucket, a shared credentials
 * file, and the place that a person names. A word has nothing that a log could not bear; what is accepted as a place needs no encoding in a URL.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tier/s3_adapter.h"
#include "tier/s3_list.h"

/* Kept on: a broken promise ends the run and leaves the input behind. */
static void demand(bool holds)
{
	if (!holds)
		abort();
}

static void check_word(const uint8_t *data, size_t size)
{
	char word[16];

	s3_error_code((const char *)data, size, word, sizeof(word));
	demand(strlen(word) < sizeof(word));
	for (const char *at = word; *at; at++)
		demand(*at > ' ' && *at <= '~');
}

struct keys {
	uint64_t count, bytes;
};

static bool note_key(void *owner, const char *key, uint32_t length)
{
	struct keys *keys = owner;

	demand(length <= S3_TOKEN_MAX);
	keys->count++;
	for (uint32_t i = 0; i < length; i++)
		keys->bytes += (uint8_t)key[i];
	return keys->count < 1000;
}

/* In whatever pieces it comes, it says the same; and a token that it has can be asked with. */
static void check_list(const uint8_t *data, size_t size)
{
	static struct s3_list whole, pieces;
	static char query[3 * S3_TOKEN_MAX + 200];
	struct keys keys[2] = { { 0, 0 } };
	size_t step = size ? data[0] % 7 + 1 : 1;

	s3_list_init(&whole, note_key, &keys[0]);
	s3_list_init(&pieces, note_key, &keys[1]);
	s3_list_take(&whole, (const char *)data, size);
	for (size_t at = 0; at < size; at += step)
		s3_list_take(&pieces, (const char *)data + at, at + step < size ? step : size - at);
	demand(s3_list_good(&whole) == s3_list_good(&pieces) && keys[0].count == keys[1].count);
	demand(keys[0].bytes == keys[1].bytes && strcmp(whole.token, pieces.token) == 0);
	demand(strlen(whole.token) <= S3_TOKEN_MAX);
	demand(s3_list_query("p/", whole.token, query, sizeof(query)));
	for (const char *at = query; *at; at++)
		demand(*at > ' ' && *at <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct s3_credentials credentials;
	char *text = malloc(size + 1), error[200];

	demand(text != NULL);
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	check_word(data, size);
	check_list(data, size);
	memset(&credentials, 0, sizeof(credentials));
	if (s3_read_profile(text, "default", &credentials) == 0)
		demand(credentials.access_key[0] && credentials.secret_key[0] &&
			!strchr(credentials.secret_key, '\n') && !strchr(credentials.token, '\n'));
	if (s3_adapter_check(text, text, error, sizeof(error)) == 0)
		demand(false); /* nothing is both */
	if (s3_adapter_check(text, NULL, error, sizeof(error)) == 0)
		demand(!strpbrk(text, " ?#%\\@:\r\n") && size >= 3);
	free(text);
	return 0;
}
