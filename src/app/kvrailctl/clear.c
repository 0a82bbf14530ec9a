/* clear.c - kvrailctl clear: drops all chunks that are not in use. */
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

int kvrailctl_clear(const struct kvrailctl_settings *settings)
{
	char token[512] = "";
	struct http_client_request request = { settings->http, "POST", "/clear", token, settings->timeout_ns };
	struct text answer = { NULL, 0, 0, false }, out = { NULL, 0, 0, false };
	struct http_client_error error;
	unsigned status = 0;
	int code = PROGRAM_FAILED;
	json_t *json;

	if (!settings->token_file[0]) {
		kvrailctl_complain(
			"clear needs --token-file with the token that kvraild was given as --admin-token-file");
		return PROGRAM_USAGE;
	}
	if (!read_token(settings->token_file, token, sizeof(token)))
		return PROGRAM_FAILED;
	if (http_client_ask(&request, &status, &answer, &error) != 0) {
		kvrailctl_complain("%s", error.text);
	} else if (status != 200) {
		kvrailctl_complain("%s/clear: %u: %.*s", settings->http, status,
			answer.bytes ? (int)strcspn(answer.bytes, "\n") : 0, answer.bytes ? answer.bytes : "");
	} else if (settings->json) {
		code = kvrailctl_print(&answer);
	} else if ((json = kvrailctl_read_status(&answer)) != NULL) {
		text_append(&out, "%llu chunks dropped, %llu kept because they are in use\n",
			(unsigned long long)status_number(json, "dropped"),
			(unsigned long long)status_number(json, "kept"));
		code = kvrailctl_print(&out);
		json_decref(json);
	}
	explicit_bzero(token, sizeof(token));
	text_fini(&answer);
	text_fini(&out);
	return code;
}
