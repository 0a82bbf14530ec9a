/* http_private.h - what the files of the operator's pages share. Needs libmicrohttpd. */
#ifndef KVRAIL_MGMT_HTTP_PRIVATE_H
#define KVRAIL_MGMT_HTTP_PRIVATE_H

#include <microhttpd.h>

#include "base/list.h"
#include "mgmt/http.h"

KVR_BEGIN_C

/* The salt field and the digests of a prefix. */
#define HTTP_PIN_BYTES_MAX ((size_t)WIRE_DIGEST_BYTES * (1 + WIRE_CHUNKS_MAX))

enum http_state { HTTP_NEW, HTTP_WAITING, HTTP_ANSWERED, HTTP_LATE };

struct http_request {
	struct list_node node; /* http->waiting while WAITING */
	struct http *http;
	struct MHD_Connection *connection;
	const struct http_route *route;
	enum http_state state;
	uint64_t deadline_ns;
	size_t body_bytes;
	uint8_t *body; /* of POST /pin, HTTP_PIN_BYTES_MAX; NULL: it is not kept */
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
	/* What changes something: one at a time, the management core's while `changing`. */
	struct clear_job clear;
	struct quota_job quota;
	struct pin_job pin;
	char quota_tenant[64];
	char pin_name[PIN_NAME_MAX + 1];
	uint32_t pin_asked;                  /* chunks */
	const char *changing;                /* what is under way; NULL: nothing */
	struct http_request *change_request; /* who is waiting for it; NULL: gone */
};

struct http_route {
	const char *method;
	const char *path;
	const char *what;
	enum MHD_Result (*handle)(struct http_request *request);
};

/* http_pages_microhttpd.c: the answer to a whole request, or the wait for it. */
enum MHD_Result http_dispatch(struct http_request *request, const char *path, const char *method);
/* True: the body is taken, false: there is no use for so much. */
bool http_take_body(struct http_request *request, const char *path, const char *bytes, size_t length);
/* Answers; the text is taken over. */
enum MHD_Result http_answer(struct http_request *request, unsigned status, const char *type, struct text *text);
enum MHD_Result http_answer_words(struct http_request *request, unsigned status, const char *format, ...)
	KVR_PRINTF(3, 4);
/* The management core has not said anything in time. */
enum MHD_Result http_answer_late(struct http_request *request);
/* Waits for the management core's word. */
void http_wait(struct http_request *request);

/* http_change_microhttpd.c: what changes something. */
enum MHD_Result http_handle_clear(struct http_request *request);
enum MHD_Result http_handle_quota(struct http_request *request);
enum MHD_Result http_handle_pin(struct http_request *request);
enum MHD_Result http_handle_unpin(struct http_request *request);
/* Goes on with a request that waited: libmicrohttpd calls the handler again. */
void http_resume(struct http_request *request, enum http_state state);

KVR_END_C

#endif
