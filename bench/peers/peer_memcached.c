/* peer_memcached.c - memcached over its Unix socket, by the text protocol: values are read straight into the pages. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "peer.h"

#define READ_BYTES ((size_t)64 << 10)
#define WINDOW 64u

struct state {
	int fd;
	size_t begin, end; /* of what was read and not used */
	char bytes[READ_BYTES];
};

static int memcached_open(struct peer *peer, const char *address)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct state *state = calloc(1, sizeof(*state));

	if (!state)
		return -ENOMEM;
	peer->state = state;
	state->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(name.sun_path, sizeof(name.sun_path), "%s", strncmp(address, "unix:", 5) == 0 ? address + 5 : address);
	if (state->fd < 0 || connect(state->fd, (struct sockaddr *)&name, sizeof(name)))
		return peer_failed("memcached: connect", -errno);
	return 0;
}

static int write_all(struct state *state, struct iovec *parts, int count)
{
	while (count > 0) {
		ssize_t written = writev(state->fd, parts, count);

		if (written < 0)
			return peer_failed("memcached: write", -errno);
		while (count > 0 && (size_t)written >= parts->iov_len) {
			written -= (ssize_t)parts->iov_len;
			parts++;
			count--;
		}
		if (count > 0) {
			parts->iov_base = (char *)parts->iov_base + written;
			parts->iov_len -= (size_t)written;
		}
	}
	return 0;
}

static int fill(struct state *state)
{
	ssize_t length;

	memmove(state->bytes, state->bytes + state->begin, state->end - state->begin);
	state->end -= state->begin;
	state->begin = 0;
	length = read(state->fd, state->bytes + state->end, READ_BYTES - state->end);
	if (length <= 0)
		return peer_failed("memcached: read", length < 0 ? -errno : -ECONNRESET);
	state->end += (size_t)length;
	return 0;
}

/* The next line, without its end. */
static int take_line(struct state *state, char *line, size_t size)
{
	for (;;) {
		char *at = memchr(state->bytes + state->begin, '\n', state->end - state->begin);

		if (at) {
			size_t length = (size_t)(at - (state->bytes + state->begin));

			snprintf(line, size, "%.*s", (int)(length ? length - 1 : 0), state->bytes + state->begin);
			state->begin += length + 1;
			return 0;
		}
		if (fill(state))
			return -EIO;
	}
}

static int take_bytes(struct state *state, uint8_t *out, size_t length)
{
	size_t had = kvr_min_u64(length, state->end - state->begin);

	memcpy(out, state->bytes + state->begin, had);
	state->begin += had;
	while (had < length) {
		ssize_t got = read(state->fd, out + had, length - had);

		if (got <= 0)
			return peer_failed("memcached: read", got < 0 ? -errno : -ECONNRESET);
		had += (size_t)got;
	}
	return 0;
}

static int expect(struct state *state, const char *words)
{
	char line[128];
	int error = take_line(state, line, sizeof(line));

	if (!error && strncmp(line, words, strlen(words)) != 0) {
		fprintf(stderr, "peers: memcached: '%s' in place of '%s'\n", line, words);
		error = -EIO;
	}
	return error;
}

static int send_set(struct state *state, const struct pages *pages, uint32_t block)
{
	char key[PEER_KEY_BYTES], head[64], end[] = "\r\n";
	struct iovec parts[3] = { { head, 0 }, { pages_block(pages, block), pages->page_bytes }, { end, 2 } };

	peer_key(key, pages, block);
	parts[0].iov_len = (size_t)snprintf(head, sizeof(head), "set %s 0 0 %zu\r\n", key, pages->page_bytes);
	return write_all(state, parts, 3);
}

static int take_set(struct state *state, const struct pages *pages, uint32_t block)
{
	(void)pages;
	(void)block;
	return expect(state, "STORED");
}

static int send_get(struct state *state, const struct pages *pages, uint32_t block)
{
	char key[PEER_KEY_BYTES], head[64];
	struct iovec part = { head, 0 };

	peer_key(key, pages, block);
	part.iov_len = (size_t)snprintf(head, sizeof(head), "get %s\r\n", key);
	return write_all(state, &part, 1);
}

static int take_get(struct state *state, const struct pages *pages, uint32_t block)
{
	int error = expect(state, "VALUE ");

	if (!error)
		error = take_bytes(state, pages_block(pages, block), pages->page_bytes);
	if (!error)
		error = expect(state, "");
	return error ? error : expect(state, "END");
}

typedef int (*step)(struct state *state, const struct pages *pages, uint32_t block);

/* At most a window is under way: the socket holds few small messages, and both sides would wait for room in it. */
static int pipeline(struct state *state, const struct pages *pages, step send, step take)
{
	uint32_t window = (uint32_t)kvr_min_u64(WINDOW, peer_batch(pages)), taken = 0;
	int error = 0;

	for (uint32_t sent = 0; !error && taken < pages->count;) {
		if (sent < pages->count && sent - taken < window)
			error = send(state, pages, sent++);
		else
			error = take(state, pages, taken++);
	}
	return error;
}

static int memcached_set(struct peer *peer, const struct pages *pages, uint32_t round)
{
	(void)round;
	return pipeline(peer->state, pages, send_set, take_set);
}

static int memcached_get(struct peer *peer, const struct pages *pages, uint32_t round)
{
	(void)round;
	return pipeline(peer->state, pages, send_get, take_get);
}

static int memcached_ping(struct peer *peer)
{
	char words[] = "mn\r\n";
	struct iovec part = { words, sizeof(words) - 1 };
	int error = write_all(peer->state, &part, 1);

	return error ? error : expect(peer->state, "MN");
}

static void memcached_close(struct peer *peer)
{
	struct state *state = peer->state;

	if (state)
		close(state->fd);
	free(state);
	peer->state = NULL;
}

const struct peer peer_memcached = {
	.name = "memcached",
	.how = "a value a block, get and set pipelined, 64 values or 8 MiB in flight, read straight into the pages",
	.open = memcached_open,
	.set = memcached_set,
	.get = memcached_get,
	.ping = memcached_ping,
	.close = memcached_close,
};
