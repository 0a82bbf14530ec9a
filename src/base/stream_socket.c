/* stream_socket.c - streams over TCP and Unix sockets, and the sockets that accept them. */
#include "base/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"

KVR_STATIC_ASSERT(sizeof(((struct sockaddr_un *)0)->sun_path) == sizeof(((struct stream_address *)0)->path),
	"a path that was parsed fits");

/* A silent peer is given up after 10 + 3 * 5 s: the control socket is what says that a client lives. */
#define KEEPALIVE_IDLE_S 10
#define KEEPALIVE_INTERVAL_S 5
#define KEEPALIVE_PROBES 3
#define UNACKNOWLEDGED_MS 25000
/* Connections that broke while they waited: so many are skipped in one call. */
#define ACCEPT_TRIES 8

struct stream_socket {
	struct stream stream;
	int fd;
};

/* Room for the descriptors of one message, aligned as the kernel wants it. */
union descriptor_buffer {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(STREAM_FDS_MAX * sizeof(int))];
};

static struct stream_socket *socket_of(struct stream *stream)
{
	return KVR_CONTAINER_OF(stream, struct stream_socket, stream);
}

static void attach_descriptors(struct msghdr *message, union descriptor_buffer *buffer, const int *fds, unsigned count)
{
	struct cmsghdr *header;

	memset(buffer, 0, sizeof(*buffer));
	message->msg_control = buffer->bytes;
	message->msg_controllen = CMSG_SPACE(count * sizeof(int));
	header = CMSG_FIRSTHDR(message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(header), fds, count * sizeof(int));
}

static ssize_t socket_send(struct stream *stream, const void *bytes, size_t length, const int *fds, unsigned fd_count)
{
	struct iovec part = { (void *)(uintptr_t)bytes, length };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	union descriptor_buffer buffer;
	ssize_t sent;

	if (length == 0 || fd_count > STREAM_FDS_MAX)
		return -EINVAL;
	if (fd_count > 0) {
		if (!stream->carries_fds)
			return -EOPNOTSUPP;
		attach_descriptors(&message, &buffer, fds, fd_count);
	}
	if (fault_point("stream_send"))
		return -ECONNRESET;
	do {
		sent = sendmsg(socket_of(stream)->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : sent;
}

/* Hands the descriptors of one control message over, and closes those that there is no room for. */
static void take_descriptors(struct cmsghdr *header, int *fds, unsigned *fd_count, unsigned fd_capacity)
{
	size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);

	for (size_t i = 0; i < count; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
		if (fds && fd_count && *fd_count < fd_capacity)
			fds[(*fd_count)++] = fd;
		else
			close(fd);
	}
}

static ssize_t socket_receive(
	struct stream *stream, void *bytes, size_t capacity, int *fds, unsigned *fd_count, unsigned fd_capacity)
{
	struct iovec part = { bytes, capacity };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	union descriptor_buffer buffer;
	struct cmsghdr *header;
	ssize_t received;

	if (capacity == 0)
		return -EINVAL;
	if (fault_point("stream_receive"))
		return -ECONNRESET;
	do {
		if (stream->carries_fds) {
			message.msg_control = buffer.bytes;
			message.msg_controllen = sizeof(buffer.bytes);
		}
		received = recvmsg(socket_of(stream)->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	} while (received < 0 && errno == EINTR);
	if (received < 0)
		return -errno;
	/* Of more descriptors than the buffer takes the kernel has already closed the rest. */
	for (header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
		if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
			take_descriptors(header, fds, fd_count, fd_capacity);
	}
	return received;
}

static int socket_event_fd(const struct stream *stream)
{
	return KVR_CONTAINER_OF(stream, const struct stream_socket, stream)->fd;
}

static void socket_close(struct stream *stream)
{
	struct stream_socket *object = socket_of(stream);

	close(object->fd);
	free(object);
}

static void socket_finish(struct stream *stream)
{
	/* Fails only where the other end is gone: then there is nobody to tell. */
	(void)shutdown(socket_of(stream)->fd, SHUT_WR);
}

static const struct stream_ops socket_ops = {
	.send = socket_send,
	.receive = socket_receive,
	.event_fd = socket_event_fd,
	.finish = socket_finish,
	.close = socket_close,
};

static void name_tcp_peer(struct stream *stream, const struct sockaddr_storage *peer)
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (peer->ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const void *)peer;

		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		snprintf(stream->name, sizeof(stream->name), "%s:%u", host, ntohs(v4->sin_port));
	} else if (peer->ss_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const void *)peer;

		inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
		snprintf(stream->name, sizeof(stream->name), "[%s]:%u", host, ntohs(v6->sin6_port));
	} else {
		snprintf(stream->name, sizeof(stream->name), "address family %u", peer->ss_family);
	}
}

static void identify_unix_peer(struct stream *stream, int fd)
{
	struct ucred credentials;
	socklen_t length = sizeof(credentials);

	stream->carries_fds = true;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0) {
		stream->peer.pid = credentials.pid;
		stream->peer.uid = credentials.uid;
		stream->peer.gid = credentials.gid;
	} else {
		/* Nobody: no user and no group has the last number. */
		stream->peer.uid = (uid_t)-1;
		stream->peer.gid = (gid_t)-1;
	}
	snprintf(stream->name, sizeof(stream->name), "unix:pid %d", (int)stream->peer.pid);
}

/* Small messages go out at once, and a peer whose machine is gone is noticed. What a socket does not know is not needed
 * there. */
static void tune_tcp(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S },
		{ IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S },
		{ IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS },
	};

	for (size_t i = 0; i < KVR_COUNT_OF(options); i++) {
		if (setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(options[i].value)) != 0)
			log_debug("socket %d: option %d of level %d: %s", fd, options[i].name, options[i].level,
				strerror(errno));
	}
}

/* The object around a non-blocking socket. peer: of a TCP socket, NULL of a Unix one. */
static int wrap_socket(int fd, const struct sockaddr_storage *peer, struct stream **stream)
{
	struct stream_socket *object = fault_point("stream/object") ? NULL : calloc(1, sizeof(*object));

	if (!object)
		return -ENOMEM;
	object->fd = fd;
	object->stream.ops = &socket_ops;
	if (peer) {
		object->stream.peer.uid = (uid_t)-1;
		object->stream.peer.gid = (gid_t)-1;
		name_tcp_peer(&object->stream, peer);
		tune_tcp(fd);
	} else {
		identify_unix_peer(&object->stream, fd);
	}
	*stream = &object->stream;
	return 0;
}

int stream_from_fd(int fd, bool is_unix, struct stream **stream)
{
	struct sockaddr_storage peer;
	socklen_t length = sizeof(peer);
	int flags = fcntl(fd, F_GETFL);

	*stream = NULL;
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
		return -errno;
	memset(&peer, 0, sizeof(peer));
	if (!is_unix)
		(void)getpeername(fd, (struct sockaddr *)&peer, &length);
	return wrap_socket(fd, is_unix ? NULL : &peer, stream);
}

static int open_socket(int family)
{
	int fd;

	if (fault_point("stream/socket"))
		return -EMFILE;
	fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

static void unix_address(const struct stream_address *address, struct sockaddr_un *to)
{
	memset(to, 0, sizeof(*to));
	to->sun_family = AF_UNIX;
	memcpy(to->sun_path, address->path, sizeof(to->sun_path) - 1);
}

/* All addresses of a host; the caller frees the list. */
static int resolve(const struct stream_address *address, int flags, struct addrinfo **list)
{
	struct addrinfo hints = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV
	};
	char port[8];
	int failure;

	snprintf(port, sizeof(port), "%u", address->port);
	failure = getaddrinfo(address->host, port, &hints, list);
	switch (failure) {
	case 0:
		return 0;
	case EAI_SYSTEM:
		return errno ? -errno : -EIO;
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_AGAIN:
		return -EHOSTUNREACH;
	default:
		return -ENOENT;
	}
}

static int connect_socket(int fd, const struct sockaddr *to, socklen_t length)
{
	if (connect(fd, to, length) == 0 || errno == EINPROGRESS || errno == EINTR)
		return 0;
	return -errno;
}

static int connect_unix(const struct stream_address *address, struct stream **stream)
{
	struct sockaddr_un to;
	int fd = open_socket(AF_UNIX), error;

	if (fd < 0)
		return fd;
	unix_address(address, &to);
	error = connect_socket(fd, (const struct sockaddr *)&to, sizeof(to));
	if (!error)
		error = wrap_socket(fd, NULL, stream);
	if (error)
		close(fd);
	return error;
}

static int connect_to(const struct addrinfo *to, struct stream **stream)
{
	struct sockaddr_storage peer;
	int fd = open_socket(to->ai_family), error;

	if (fd < 0)
		return fd;
	memset(&peer, 0, sizeof(peer));
	memcpy(&peer, to->ai_addr, to->ai_addrlen);
	error = connect_socket(fd, to->ai_addr, to->ai_addrlen);
	if (!error)
		error = wrap_socket(fd, &peer, stream);
	if (error)
		close(fd);
	return error;
}

int stream_connect(const struct stream_address *address, struct stream **stream)
{
	struct addrinfo *list;
	int error;

	*stream = NULL;
	if (address->is_unix)
		return connect_unix(address, stream);
	if (address->port == 0)
		return -EINVAL;
	error = resolve(address, 0, &list);
	if (error)
		return error;
	error = -ENOENT;
	for (struct addrinfo *to = list; to && error; to = to->ai_next)
		error = connect_to(to, stream);
	freeaddrinfo(list);
	return error;
}

/*
 * Servers that start take turns by locking the folder of the socket file: without it two of them could find the same
 * stale file, and the second would remove the first one's new file. The lock goes with the descriptor. Descriptor or
 * -errno.
 */
static int lock_folder(const char *path)
{
	char folder[sizeof(((struct stream_address *)0)->path)] = ".";
	const char *slash = strrchr(path, '/');
	int fd;

	if (slash) {
		size_t length = slash == path ? 1 : (size_t)(slash - path);

		memcpy(folder, path, length);
		folder[length] = '\0';
	}
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		int error = errno == EWOULDBLOCK ? -EADDRINUSE : -errno;

		close(fd);
		return error;
	}
	return fd;
}

/* Removes a socket file that refuses connections, because the process behind it is gone. */
static int remove_stale(const struct sockaddr_un *at)
{
	struct stat status;
	int fd, error;

	if (lstat(at->sun_path, &status) != 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(status.st_mode))
		return -EEXIST;
	fd = open_socket(AF_UNIX);
	if (fd < 0)
		return fd;
	error = connect_socket(fd, (const struct sockaddr *)at, sizeof(*at));
	close(fd);
	if (error != -ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(at->sun_path) == 0 || errno == ENOENT ? 0 : -errno;
}

static int bind_socket(int fd, const void *at, socklen_t length)
{
	if (fault_point("stream_listen/bind"))
		return -EACCES;
	return bind(fd, (const struct sockaddr *)at, length) == 0 ? 0 : -errno;
}

/* Under the lock of the folder, so that the file is not taken for a stale one before it listens. */
static int listen_at_path(int fd, const struct sockaddr_un *at, unsigned mode)
{
	int error;

	/* The file is made with the mode of the socket's own inode less the umask, so it is never wider than
	 * asked for. */
	if (fchmod(fd, mode & 0777) != 0)
		return -errno;
	error = bind_socket(fd, at, sizeof(*at));
	if (error == -EADDRINUSE) {
		error = remove_stale(at);
		if (!error)
			error = bind_socket(fd, at, sizeof(*at));
	}
	if (error)
		return error;
	if (chmod(at->sun_path, mode & 0777) != 0 || listen(fd, SOMAXCONN) != 0) {
		error = -errno;
		unlink(at->sun_path);
	}
	return error;
}

static int listen_unix(const struct stream_address *address, unsigned mode)
{
	struct sockaddr_un at;
	int folder, fd, error;

	unix_address(address, &at);
	folder = lock_folder(at.sun_path);
	if (folder < 0)
		return folder;
	fd = open_socket(AF_UNIX);
	if (fd >= 0) {
		error = listen_at_path(fd, &at, mode);
		if (error) {
			close(fd);
			fd = error;
		}
	}
	close(folder);
	return fd;
}

static int listen_on(const struct addrinfo *at)
{
	int fd = open_socket(at->ai_family), error, one = 1;

	if (fd < 0)
		return fd;
	/* Without it a restarted server waits for the old connections' last minutes. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0)
		error = -errno;
	else
		error = bind_socket(fd, at->ai_addr, at->ai_addrlen);
	if (!error && listen(fd, SOMAXCONN) != 0)
		error = -errno;
	if (error) {
		close(fd);
		return error;
	}
	return fd;
}

static int listen_tcp(const struct stream_address *address)
{
	struct addrinfo *list;
	int fd = resolve(address, AI_PASSIVE, &list);

	if (fd < 0)
		return fd;
	fd = -ENOENT;
	for (struct addrinfo *at = list; at && fd < 0; at = at->ai_next)
		fd = listen_on(at);
	freeaddrinfo(list);
	return fd;
}

int stream_listen(const struct stream_address *address, unsigned mode, int *listen_fd)
{
	int fd = address->is_unix ? listen_unix(address, mode) : listen_tcp(address);

	*listen_fd = fd < 0 ? -1 : fd;
	return fd < 0 ? fd : 0;
}

uint16_t stream_bound_port(int listen_fd)
{
	struct sockaddr_storage at;
	socklen_t length = sizeof(at);

	memset(&at, 0, sizeof(at));
	if (getsockname(listen_fd, (struct sockaddr *)&at, &length) != 0)
		return 0;
	if (at.ss_family == AF_INET)
		return ntohs(((const struct sockaddr_in *)(const void *)&at)->sin_port);
	if (at.ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)(const void *)&at)->sin6_port);
	return 0;
}

/* Errors of a connection that broke before it was accepted, not of the listener. */
static bool broke_while_waiting(int error)
{
	return error == EINTR || error == ECONNABORTED || error == EPROTO || error == ENETDOWN || error == EHOSTDOWN ||
		error == EHOSTUNREACH || error == ENETUNREACH || error == ENONET || error == ENOPROTOOPT;
}

int stream_accept(int listen_fd, bool is_unix, struct stream **stream)
{
	struct sockaddr_storage peer;
	int fd = -1, error;

	*stream = NULL;
	for (unsigned tries = 0; fd < 0; tries++) {
		socklen_t length = sizeof(peer);

		memset(&peer, 0, sizeof(peer));
		if (fault_point("stream_accept/socket"))
			return -EMFILE;
		fd = accept4(listen_fd, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0 && !broke_while_waiting(errno))
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		if (fd < 0 && tries >= ACCEPT_TRIES)
			return -EAGAIN;
	}
	error = wrap_socket(fd, is_unix ? NULL : &peer, stream);
	if (error)
		close(fd);
	return error;
}
