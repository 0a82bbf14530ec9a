/* api.c - kvraild's status page, and things in it by path. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "app/common/http_client.h"
#include "app/common/program.h"
#include "app/kvrailctl/kvrailctl.h"

int kvrailctl_complain(const char *format, ...)
{
	char words[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(words, sizeof(words), format, arguments);
	va_end(arguments);
	fprintf(stderr, "kvrailctl: %s\n", words);
	return PROGRAM_FAILED;
}

int kvrailctl_print(const struct text *out)
{
	return program_print(out) ? PROGRAM_GOOD : PROGRAM_FAILED;
}

bool kvrailctl_fetch_status(const struct kvrailctl_settings *settings, struct text *page)
{
	struct http_client_request request = { settings->http, "GET", "/status", NULL, settings->timeout_ns, NULL, 0 };
	struct http_client_error error;
	unsigned status = 0;

	if (http_client_ask(&request, &status, page, &error) != 0) {
		kvrailctl_complain("%s", error.text);
		return false;
	}
	if (status == 200)
		return true;
	kvrailctl_complain("%s/status: %u: %.*s", settings->http, status,
		page->bytes ? (int)strcspn(page->bytes, "\n") : 0, page->bytes ? page->bytes : "");
	return false;
}

json_t *kvrailctl_read_status(const struct text *page)
{
	json_error_t error;
	json_t *status = json_loadb(page->bytes ? page->bytes : "", page->length, 0, &error);

	if (json_is_object(status))
		return status;
	json_decref(status);
	kvrailctl_complain("the status page is no JSON object; is this address kvraild's?");
	return NULL;
}

static const json_t *find(const json_t *at, const char *path)
{
	char name[64];

	while (at && *path) {
		size_t length = strcspn(path, ".");

		if (length >= sizeof(name))
			return NULL;
		memcpy(name, path, length);
		name[length] = '\0';
		at = json_object_get(at, name);
		path += length + (path[length] == '.');
	}
	return at;
}

uint64_t status_number(const json_t *status, const char *path)
{
	return (uint64_t)json_integer_value(find(status, path));
}

double status_real(const json_t *status, const char *path)
{
	return json_number_value(find(status, path));
}

const char *status_string(const json_t *status, const char *path)
{
	const char *string = json_string_value(find(status, path));

	return string ? string : "";
}

bool status_bool(const json_t *status, const char *path)
{
	return json_is_true(find(status, path));
}

const json_t *status_array(const json_t *status, const char *path)
{
	return find(status, path);
}
