/*
 * stream.h - the control socket as an object: ordered bytes both ways, descriptors beside them, never blocking.
 *
 * A table of calls, so that a TCP or Unix socket and the simulator's link look alike. One owner thread per stream.
 */
#ifndef KVRAIL_BASE_STREAM_H
#define KVRAIL_BASE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"

KVR_BEGIN_C

/* Descriptors that travel with one send (SCM_RIGHTS): at most this many. */
#define STREAM_FDS_MAX 8

struct stream;

struct stream_ops {
	/*
	 * Sends some of the bytes (length >= 1), the descriptors with the first of them: they stay the caller's, and
	 * have gone when a byte has been taken. Bytes taken (> 0), -EAGAIN, or another -errno: the stream is dead
	 * (-EPIPE, -ECONNRESET) or the call was wrong (-EINVAL: length 0, more than STREAM_FDS_MAX; -EOPNOTSUPP:
	 * descriptors where carries_fds is false).
	 */
	ssize_t (*send)(struct stream *stream, const void *bytes, size_t length, const int *fds, unsigned fd_count);
	/*
	 * Bytes received (> 0), 0 at the end, -EAGAIN, or another -errno (-EINVAL: capacity 0). Descriptors that came
	 * along are appended to fds[*fd_count..] and become the caller's, close-on-exec; those beyond `fd_capacity` are
	 * closed. At most STREAM_FDS_MAX come with one call. fds and fd_count may be NULL: all are closed.
	 */
	ssize_t (*receive)(struct stream *stream, void *bytes, size_t capacity, int *fds, unsigned *fd_count,
		unsigned fd_capacity);
	/* For epoll; -1 when there is none (simulator). Stays the stream's. */
	int (*event_fd)(const struct stream *stream);
	/* Frees the object; descriptors that were not received yet are closed with it. */
	/* Sends no more: the other end reads what is on its way, then the end; this end still receives. */
	void (*finish)(struct stream *stream);
	void (*close)(struct stream *stream);
};

/* The process behind a Unix socket as the kernel knows it; pid 0 where unknown (TCP). */
struct stream_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

struct stream {
	const struct stream_ops *ops;
	struct stream_peer peer;
	bool carries_fds; /* a Unix socket: descriptors can be passed, `peer` is true */
	char name[80];    /* for messages: "unix:pid 812", "10.0.0.7:41822" */
};

/* Where a listener or a client's server is. */
struct stream_address {
	bool is_unix;
	char path[108]; /* unix */
	char host[256]; /* tcp: name or address */
	uint16_t port;
};

/*
 * "unix:/run/kvrail/kvrail.sock" or "kvrail://host:7471", "kvrail://[::1]:7471"; the port may be left out: 7471.
 * Whether the host exists is not asked. 0 or -EINVAL; *address is untouched then.
 */
#define STREAM_DEFAULT_PORT 7471
KVR_MUST_CHECK int stream_parse_address(const char *url, struct stream_address *address);

/*
 * Begins a connection without waiting for the peer; sends give -EAGAIN until it stands, and the error when it fails. A
 * host name is resolved first, which may block: client threads only. Of several addresses of a host the first that does
 * not fail at once is used. 0 or -errno: -ENOENT (no such socket file or host name), -ECONNREFUSED, -EAGAIN (the
 * server's backlog is full: try again later), -EHOSTUNREACH, -EINVAL (port 0), -EMFILE, -ENOMEM, ...; *stream is NULL
 * then.
 */
KVR_MUST_CHECK int stream_connect(const struct stream_address *address, struct stream **stream);

/*
 * A listening socket: a non-blocking, close-on-exec descriptor, the caller's. May resolve a host name. mode: of the
 * socket file (0600, 0660, ...), which it has from the moment it exists. port 0: any; read it with stream_bound_port. A
 * socket file that nobody listens on is replaced; -EADDRINUSE when a live server owns it or another one is just
 * starting there; -EEXIST when the path is something other than a socket, which is never removed. The file is the
 * caller's: unlink it while still listening, since afterwards it may be that of the next server.
 */
KVR_MUST_CHECK int stream_listen(const struct stream_address *address, unsigned mode, int *listen_fd);
/* 0 for a Unix socket. */
uint16_t stream_bound_port(int listen_fd);
/* 0, -EAGAIN when nobody waits, or -errno (-EMFILE, ...: the connection still waits); *stream is NULL on an error. */
KVR_MUST_CHECK int stream_accept(int listen_fd, bool is_unix, struct stream **stream);
/* Wraps a connected socket, of socketpair(2) in tests. Takes the descriptor over, and makes it non-blocking and
 * close-on-exec. 0 or -errno (-ENOMEM, -EBADF); the descriptor is still the caller's then. */
KVR_MUST_CHECK int stream_from_fd(int fd, bool is_unix, struct stream **stream);

KVR_END_C

#endif
