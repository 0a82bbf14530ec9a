/* change.c - asking kvraild for what changes something, with the operator's token. */
#include <stdio.h>
#include <string.h>

#include "app/common/http_client.h"
#include "app/common/program.h"
#include "app/kvrailctl/kvrailctl.h"

/* The first line of the token file. */
static bool read_token(const char *path, char *token, size_t size)
{
	FILE *file = fopen(path, "re");
	bool good;

	if (!file) {
		kvrailctl_complain("--token-file %s can't be read", path);
		return false;
	}
	good = fgets(token, (int)size, file) != NULL;
	fclose(file);
	if (good)
		token[strcspn(token, "\r\n")] = '\0';
	if (!good || !token[0])
		kvrailctl_complain("--token-file %s has no token in its first line", path);
	return good && token[0];
}

int kvrailctl_change(
	const struct kvrailctl_settings *settings, const struct kvrailctl_change *change, struct text *answer)
{
	char token[512] = "";
	struct http_client_request request = { settings->http, "POST", change->path, token, settings->timeout_ns,
		change->body, change->body_bytes };
	struct http_client_error error;
	unsigned status = 0;
	int code = PROGRAM_FAILED;

	if (!settings->token_file[0]) {
		kvrailctl_complain("%s needs --token-file with the token that kvraild was given as --admin-token-file",
			change->command);
		return PROGRAM_USAGE;
	}
	if (!read_token(settings->token_file, token, sizeof(token)))
		return PROGRAM_FAILED;
	if (http_client_ask(&request, &status, answer, &error) != 0)
		kvrailctl_complain("%s", error.text);
	else if (status != 200)
		kvrailctl_complain("%s%.*s: %u: %.*s", settings->http, (int)strcspn(change->path, "?"), change->path,
			status, answer->bytes ? (int)strcspn(answer->bytes, "\n") : 0,
			answer->bytes ? answer->bytes : "");
	else
		code = PROGRAM_GOOD;
	explicit_bzero(token, sizeof(token));
	return code;
}

void kvrailctl_argument(struct text *path, const char *name, const char *value)
{
	text_append(path, "%c%s=", path->bytes && strchr(path->bytes, '?') ? '&' : '?', name);
	for (; *value; value++) {
		unsigned char byte = (unsigned char)*value;

		if ((byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
			strchr("-._:/", byte))
			text_append(path, "%c", byte);
		else
			text_append(path, "%%%02x", byte);
	}
}
