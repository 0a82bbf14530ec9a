/* stream.c - what a server's address looks like. The sockets are in stream_socket.c. */
#include "base/stream.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

#define UNIX_PREFIX "unix:"
#define TCP_PREFIX "kvrail://"

static int parse_port(const char *text, uint16_t *port)
{
	uint64_t value;

	if (text_parse_u64(text, &value) != 0 || value > UINT16_MAX)
		return -EINVAL;
	*port = (uint16_t)value;
	return 0;
}

/* Letters of host names and of numeric addresses, brackets taken off; a scope ("%eth0") only behind an address in
 * brackets. */
static bool host_letters_only(const char *host, size_t length, bool bracketed)
{
	for (size_t i = 0; i < length; i++) {
		char c = host[i];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');

		if (!letter && c != '.' && c != '-' && c != '_' && !(bracketed && (c == ':' || c == '%')))
			return false;
	}
	return true;
}

static int parse_tcp(const char *rest, struct stream_address *address)
{
	bool bracketed = *rest == '[';
	const char *host = rest + bracketed;
	size_t length = strcspn(host, bracketed ? "]" : ":");
	const char *behind = host + length;

	if (bracketed) {
		if (*behind != ']')
			return -EINVAL;
		behind++;
	}
	if (length == 0 || length >= sizeof(address->host) || !host_letters_only(host, length, bracketed))
		return -EINVAL;
	memcpy(address->host, host, length);
	address->port = STREAM_DEFAULT_PORT;
	if (*behind == '\0')
		return 0;
	return *behind == ':' ? parse_port(behind + 1, &address->port) : -EINVAL;
}

static int parse_unix(const char *path, struct stream_address *address)
{
	size_t length = strlen(path);

	if (length == 0 || length >= sizeof(address->path) || path[length - 1] == '/')
		return -EINVAL;
	address->is_unix = true;
	memcpy(address->path, path, length);
	return 0;
}

int stream_parse_address(const char *url, struct stream_address *address)
{
	struct stream_address parsed;
	int error = -EINVAL;

	memset(&parsed, 0, sizeof(parsed));
	if (strncmp(url, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
		error = parse_unix(url + strlen(UNIX_PREFIX), &parsed);
	else if (strncmp(url, TCP_PREFIX, strlen(TCP_PREFIX)) == 0)
		error = parse_tcp(url + strlen(TCP_PREFIX), &parsed);
	if (!error)
		*address = parsed;
	return error;
}
