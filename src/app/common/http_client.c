#include "app/common/http_client.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/stream.h"

static int fail(struct http_client_error *error, int code, const char *format, ...) KVR_PRINTF(3, 4);

static int fail(struct http_client_error *error, int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	return code;
}

/* "http://HOST:PORT" and perhaps a slash. */
static int parse_url(const char *url, struct stream_address *address)
{
	char kvrail_url[320];
	size_t length = strlen(url);

	if (strncmp(url, "http://", 7) != 0 || length > 300)
		return -EINVAL;
	if (url[length - 1] == '/')
		length--;
	snprintf(kvrail_url, sizeof(kvrail_url), "kvrail://%.*s", (int)(length - 7), url + 7);
	/* HTTP has a port of its own, and nothing of ours is there. */
	if (!strchr(url + 7, ':'))
		return -EINVAL;
	return stream_parse_address(kvrail_url, address);
}

/* Until the stream can be read (or written). 0, -ETIMEDOUT. */
static int wait_for(const struct stream *stream, short events, uint64_t until_ns)
{
	struct pollfd fd = { stream->ops->event_fd(stream), events, 0 };
	uint64_t now_ns = clock_now_ns();

	if (now_ns >= until_ns)
		return -ETIMEDOUT;
	return poll(&fd, 1, (int)((until_ns - now_ns) / KVR_MS + 1)) == 0 ? -ETIMEDOUT : 0;
}

static int send_all(struct stream *stream, const struct text *request, uint64_t until_ns)
{
	size_t sent = 0;

	while (sent < request->length) {
		ssize_t count = stream->ops->send(stream, request->bytes + sent, request->length - sent, NULL, 0);

		if (count == -EAGAIN)
			count = wait_for(stream, POLLOUT, until_ns);
		if (count < 0)
			return (int)count;
		sent += (size_t)count;
	}
	return 0;
}

/* To the end of the connection. */
static int receive_all(struct stream *stream, struct text *answer, uint64_t until_ns)
{
	char bytes[16384];

	for (;;) {
		ssize_t count = stream->ops->receive(stream, bytes, sizeof(bytes), NULL, NULL, 0);

		if (count == 0)
			return answer->failed ? -ENOMEM : 0;
		if (count == -EAGAIN) {
			int error = wait_for(stream, POLLIN, until_ns);

			if (error)
				return error;
			continue;
		}
		if (count < 0)
			return (int)count;
		if (answer->length + (size_t)count > HTTP_CLIENT_BYTES_MAX)
			return -EFBIG;
		text_append_bytes(answer, bytes, (size_t)count);
	}
}

static int exchange(
	const struct http_client_request *request, const struct stream_address *address, struct text *answer)
{
	struct text bytes = { NULL, 0, 0, false };
	uint64_t until_ns = clock_now_ns() + request->timeout_ns;
	struct stream *stream;
	int error = stream_connect(address, &stream);

	if (error)
		return error;
	/* Version 1.0: the answer ends with the connection and comes in one piece. */
	text_append(&bytes, "%s %s HTTP/1.0\r\nHost: %s\r\n", request->method, request->path, address->host);
	if (request->token && request->token[0])
		text_append(&bytes, "Authorization: Bearer %s\r\n", request->token);
	if (strcmp(request->method, "POST") == 0)
		text_append(&bytes, "Content-Length: %zu\r\n", request->body_bytes);
	text_append(&bytes, "\r\n");
	text_append_bytes(&bytes, request->body, request->body_bytes);
	error = bytes.failed ? -ENOMEM : send_all(stream, &bytes, until_ns);
	if (!error)
		error = receive_all(stream, answer, until_ns);
	stream->ops->close(stream);
	if (bytes.bytes)
		explicit_bzero(bytes.bytes, bytes.length);
	text_fini(&bytes);
	return error;
}

/* "HTTP/1.1 200 ..."; 0 when it is something else. */
static unsigned read_status(const char *line)
{
	if (strncmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') || line[8] != ' ')
		return 0;
	return strspn(line + 9, "0123456789") == 3 ? (unsigned)strtoul(line + 9, NULL, 10) : 0;
}

/* Takes the answer apart. */
static int read_answer(const struct text *answer, unsigned *status, struct text *body)
{
	const char *end = answer->bytes ? strstr(answer->bytes, "\r\n\r\n") : NULL;
	const char *length;
	size_t rest;

	*status = end ? read_status(answer->bytes) : 0;
	if (*status == 0)
		return -EBADMSG;
	rest = answer->length - (size_t)(end + 4 - answer->bytes);
	length = strcasestr(answer->bytes, "\r\nContent-Length:");
	if (length && length < end && strtoull(length + strlen("\r\nContent-Length:"), NULL, 10) != rest)
		return -EBADMSG;
	text_append_bytes(body, end + 4, rest);
	return body->failed ? -ENOMEM : 0;
}

int http_client_ask(
	const struct http_client_request *request, unsigned *status, struct text *body, struct http_client_error *error)
{
	struct text answer = { NULL, 0, 0, false };
	struct stream_address address;
	int result;

	if (parse_url(request->url, &address) != 0)
		return fail(error, -EINVAL, "%.100s is no address of pages; write http://HOST:PORT", request->url);
	result = exchange(request, &address, &answer);
	if (!result)
		result = read_answer(&answer, status, body);
	text_fini(&answer);
	if (result == -ECONNREFUSED)
		return fail(error, result,
			"%.100s: nobody listens there: is kvraild running, with this address as --http?", request->url);
	if (result == -EBADMSG)
		return fail(error, result, "%.100s%s: the answer is no whole page", request->url, request->path);
	if (result)
		return fail(error, result, "%.100s%s: %s", request->url, request->path, strerror(-result));
	return 0;
}
