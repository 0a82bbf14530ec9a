/*
 * libFuzzer target for what is read around S3: the word of an error's body, a shared credentials file, and the place that
 * a person names. A word has nothing that a log could not bear; what is accepted as a place needs no encoding in a URL.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tier/s3_adapter.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct s3_credentials credentials;
	char *text = malloc(size + 1), error[200];

	demand(text != NULL);
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	check_word(data, size);
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
