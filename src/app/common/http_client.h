/* http_client.h - one request to kvraild's pages. Blocking, bounded in time and size. */
#ifndef KVRAIL_APP_COMMON_HTTP_CLIENT_H
#define KVRAIL_APP_COMMON_HTTP_CLIENT_H

#include <stdint.h>

#include "base/compiler.h"
#include "base/text.h"

KVR_BEGIN_C

#define HTTP_CLIENT_BYTES_MAX ((size_t)16 << 20)

struct http_client_request {
	const char *url;    /* "http://127.0.0.1:9464" */
	const char *method; /* "GET" */
	const char *path;   /* "/status" */
	const char *token;  /* bearer; NULL or "": none */
	uint64_t timeout_ns;
	const void *body; /* of a POST */
	size_t body_bytes;
};

/*
 * *status: of the answer; body: appended. 0, or -errno with *error saying what and to whom: -EINVAL (no such URL), -ECONNREFUSED,
 * -ETIMEDOUT, -EBADMSG (no HTTP, or cut off), -EFBIG, ...
 */
struct http_client_error {
	char text[256];
};
KVR_MUST_CHECK int http_client_ask(const struct http_client_request *request, unsigned *status, struct text *body,
	struct http_client_error *error);

KVR_END_C

#endif
