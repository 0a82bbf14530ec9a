/*
 * http.h - the operator's pages over HTTP, on the control thread: GET /healthz, /readyz, /status, /metrics; POST /clear,
 * /quota, /pin, /unpin.
 *
 * Nothing here blocks: a page that needs the management core's word is suspended until it comes, and answered with 503 when it does
 * not within HTTP_WAIT_NS. Pages only tell; what changes something needs a bearer token and is logged with its caller
 * (pitfalls F04).
 */
#ifndef KVRAIL_MGMT_HTTP_H
#define KVRAIL_MGMT_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "mgmt/control.h"
#include "mgmt/status_page.h"

KVR_BEGIN_C

#define HTTP_WAIT_NS (2 * KVR_SECOND)
#define HTTP_CLEAR_WAIT_NS (600 * KVR_SECOND) /* files of L2 are removed one by one */
#define HTTP_CONNECTIONS_MAX 64

struct http_options {
	int listen_fd;     /* of http_listen; http_create takes it over, whatever it returns */
	const char *token; /* of all POSTs, the caller's; NULL or "": they are always refused */
	struct control *control;
	const struct status_sources *sources; /* the caller's, unchanged until http_destroy */
	/* Why the server does not serve now; NULL: it does. The text lives until the next call. */
	const char *(*not_ready)(void *context, uint64_t now_ns);
	void *context;
};

struct http;

/* Whether the text is "HOST:PORT". */
bool http_address_good(const char *address);
/* A listening socket for "127.0.0.1:9464", "[::1]:9464"; port 0: any. 0, -EINVAL, -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, ..., or
 * -EOPNOTSUPP (built without libmicrohttpd); logged. */
KVR_MUST_CHECK int http_listen(const char *address, int *listen_fd);

/* 0, -ENOMEM, -EOPNOTSUPP; logged. */
KVR_MUST_CHECK int http_create(const struct http_options *options, struct http **http);
/* When the management core is not stepped any more, or has answered everything. NULL is harmless. */
void http_destroy(struct http **http);
uint16_t http_port(const struct http *http);

/* A part of the control thread's loop (poll/loop.h). */
bool http_step(struct http *http, uint64_t now_ns);
uint64_t http_next_ns(const struct http *http);
void http_slept(struct http *http);
int http_fd(const struct http *http);

KVR_END_C

#endif
