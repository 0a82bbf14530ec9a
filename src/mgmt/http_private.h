/* http_private.h - what the files of the operator's pages share. Needs libmicrohttpd. */
#ifndef KVRAIL_MGMT_HTTP_PRIVATE_H
#define KVRAIL_MGMT_HTTP_PRIVATE_H

#include <microhttpd.h>

#include "base/list.h"
#include "mgmt/http.h"

KVR_BEGIN_C

enum http_state { HTTP_NEW, HTTP_WAITING, HTTP_ANSWERED, HTTP_LATE };

struct http_request {
	struct list_node node; /* http->waiting while WAITING */
	struct http *http;
	struct MHD_Connection *connection;
	const struct http_route *route;
	enum http_state state;
	uint64_t deadline_ns;
	size_t body_bytes;
	char caller[80];
};

/* One TCP connection. */
struct http_peer {
	struct list_node node; /* http->reading while it has no whole request */
	int fd;
	uint64_t since_ns;
};

struct http {
	struct http_options options;
	struct MHD_Daemon *daemon;
	int fd;
	uint16_t port;
	uint64_t now_ns, looked_ns;
	uint64_t timeout_ns; /* when libmicrohttpd wants to be run */
	bool look;           /* something may have come */
	bool handled;        /* a request was, in this step */
	struct list_node waiting;
	struct list_node reading; /* the longest first */
	unsigned peer_count;
	struct status_snapshot *snapshots; /* [0]: the newest; [1]: the management core's while `asking` */
	bool asking;
	struct clear_job clear; /* the management core's while `clearing` */
	bool clearing;
	struct http_request *clear_request; /* who is waiting for it; NULL: gone */
};

struct http_route {
	const char *method;
	const char *path;
	const char *what;
	enum MHD_Result (*handle)(struct http_request *request);
};

/* http_pages_microhttpd.c: the answer to a whole request, or the wait for it. */
enum MHD_Result http_dispatch(struct http_request *request, const char *path, const char *method);
/* Goes on with a request that waited: libmicrohttpd calls the handler again. */
void http_resume(struct http_request *request, enum http_state state);

KVR_END_C

#endif
