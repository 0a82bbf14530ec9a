/* listen.c - the sockets that clients come by: a path on this host, an address for others. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/kvraild/daemon.h"
#include "base/log.h"
#include "base/text.h"

/* The folder of the socket is made when it is missing, one level of it. */
static void make_folder(struct daemon *daemon)
{
	char path[sizeof(daemon->plan->socket.path)];
	char *slash;

	text_copy(path, sizeof(path), daemon->plan->socket.path);
	slash = strrchr(path, '/');
	if (!slash || slash == path)
		return;
	*slash = '\0';
	daemon->made_folder = mkdir(path, 0755) == 0;
}

static void remove_folder(struct daemon *daemon)
{
	char path[sizeof(daemon->plan->socket.path)];

	if (!daemon->made_folder)
		return;
	text_copy(path, sizeof(path), daemon->plan->socket.path);
	*strrchr(path, '/') = '\0';
	if (rmdir(path) != 0 && errno != ENOTEMPTY && errno != ENOENT)
		log_debug("%s stays: %s", path, strerror(errno));
	daemon->made_folder = false;
}

static void add(struct daemon *daemon, bool is_unix, int fd)
{
	struct daemon_listener *listener = &daemon->listeners[daemon->listener_count++];

	listener->daemon = daemon;
	listener->is_unix = is_unix;
	listener->fd = fd;
	listener->due = true;
}

static int listen_far(struct daemon *daemon, char *detail, size_t size)
{
	const char *url = daemon->settings->listen;
	int fd, error = stream_listen(&daemon->plan->listen, 0, &fd);

	if (error) {
		log_error("%s: can't be listened on: %s; give another address as --listen", url, strerror(-error));
		return error;
	}
	add(daemon, false, fd);
	snprintf(detail, size, "%s, port %u", url, stream_bound_port(fd));
	return 0;
}

static int listen_here(struct daemon *daemon, char *detail, size_t size)
{
	const struct stream_address *address = &daemon->plan->socket;
	size_t length = strlen(detail);
	int fd, error;

	make_folder(daemon);
	error = stream_listen(address, daemon->plan->socket_mode, &fd);
	if (!error) {
		add(daemon, true, fd);
		snprintf(detail + length, size - length, "%sunix:%s, rights %04o", length ? "; " : "", address->path,
			daemon->plan->socket_mode);
		return 0;
	}
	if (error == -EADDRINUSE)
		log_error("unix:%s: another server serves it: stop that one, or give another path as --socket",
			address->path);
	else if (error == -EEXIST)
		log_error("unix:%s: the path is there and no socket: remove it, or give another one as --socket",
			address->path);
	else
		log_error("unix:%s: can't be listened on: %s; give another path as --socket", address->path,
			strerror(-error));
	return error;
}

int daemon_start_listeners(struct daemon *daemon, char *detail, size_t size)
{
	int error = daemon->plan->has_listen ? listen_far(daemon, detail, size) : 0;

	daemon->spare_fd = -1;
	if (!error && daemon->plan->has_socket)
		error = listen_here(daemon, detail, size);
	if (error)
		daemon_finish_listeners(daemon);
	else
		daemon->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return error;
}

/* While it still listens the path is ours; afterwards it may be the next server's. */
void daemon_finish_listeners(struct daemon *daemon)
{
	while (daemon->listener_count > 0) {
		const struct daemon_listener *listener = &daemon->listeners[--daemon->listener_count];

		if (listener->is_unix && unlink(daemon->plan->socket.path) != 0)
			log_warn("unix:%s: %s", daemon->plan->socket.path, strerror(errno));
		close(listener->fd);
	}
	if (daemon->spare_fd >= 0)
		close(daemon->spare_fd);
	remove_folder(daemon);
}
