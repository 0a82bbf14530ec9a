/* s3_address.c - bucket, prefix and endpoint: what may stand there. Nothing of it needs to be encoded in a URL. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tier/s3_adapter.h"

static bool plain(const char *text, const char *also)
{
	for (; *text; text++) {
		char c = *text;

		if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strchr(also, c))
			return false;
	}
	return true;
}

static const char *check_where(const char *where)
{
	size_t bucket = strcspn(where, "/");

	if (bucket < 3 || bucket > 63 || strlen(where) > 200)
		return "the place is BUCKET or BUCKET/PREFIX; a bucket has 3 to 63 characters, both have at most 200";
	if (!plain(where, "-._/") || strstr(where, "//") || strstr(where, "/.") || where[0] == '.')
		return "bucket and prefix have letters, digits and - . _ /, no // and no part that begins with a dot";
	return NULL;
}

static const char *check_endpoint(const char *endpoint)
{
	const char *host = NULL;

	if (!endpoint || !*endpoint)
		return NULL;
	if (strncmp(endpoint, "http://", 7) == 0)
		host = endpoint + 7;
	else if (strncmp(endpoint, "https://", 8) == 0)
		host = endpoint + 8;
	if (!host || !*host || strlen(host) > 200 || !plain(host, "-.:[]"))
		return "the endpoint is http://HOST[:PORT] or https://HOST[:PORT], with nothing behind it";
	return NULL;
}

int s3_adapter_check(const char *where, const char *endpoint, char *error, size_t error_size)
{
	const char *wrong = where ? check_where(where) : "a bucket is needed";

	if (!wrong)
		wrong = check_endpoint(endpoint);
	if (!wrong)
		return 0;
	snprintf(error, error_size, "%s", wrong);
	return -EINVAL;
}
