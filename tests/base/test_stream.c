/* Streams over real sockets of this machine: bytes, descriptors, ends, and the rules of the Unix socket file. */
#include "base/fault.h"
#include "base/random.h"
#include "base/stream.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cmocka_all.h"

/* A folder of its own for each test, and how many descriptors there were before it. */
struct fixture {
	char folder[64];
	struct stream_address address;
	unsigned open_fds;
};

static unsigned count_open_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	char url[128];

	snprintf(fixture->folder, sizeof(fixture->folder), "%s", "/tmp/kvrail-test-XXXXXX");
	if (!mkdtemp(fixture->folder))
		return -1;
	snprintf(url, sizeof(url), "unix:%s/socket", fixture->folder);
	*state = fixture;
	fixture->open_fds = count_open_fds();
	return stream_parse_address(url, &fixture->address);
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;
	bool leaked = count_open_fds() != fixture->open_fds;

	unlink(fixture->address.path);
	/* Fails when a test has left another file behind. */
	if (rmdir(fixture->folder) != 0 || leaked)
		return -1;
	free(fixture);
	return 0;
}

static void close_stream(struct stream **stream)
{
	(*stream)->ops->close(*stream);
	*stream = NULL;
}

static void wait_until(const struct stream *stream, short events)
{
	struct pollfd event = { .fd = stream->ops->event_fd(stream), .events = events };

	assert_int_equal(poll(&event, 1, 60000), 1);
}

static ssize_t receive_plain(struct stream *stream, void *bytes, size_t capacity)
{
	return stream->ops->receive(stream, bytes, capacity, NULL, NULL, 0);
}

static ssize_t send_plain(struct stream *stream, const void *bytes, size_t length)
{
	return stream->ops->send(stream, bytes, length, NULL, 0);
}

static void make_pair(struct stream **a, struct stream **b)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(stream_from_fd(fds[0], true, a), 0);
	assert_int_equal(stream_from_fd(fds[1], true, b), 0);
}

static void bytes_arrive_in_order_and_an_empty_stream_says_again(void **state)
{
	struct stream *a, *b;
	char bytes[16] = "";

	(void)state;
	make_pair(&a, &b);
	assert_int_equal(receive_plain(b, bytes, sizeof(bytes)), -EAGAIN);
	assert_int_equal(send_plain(a, "one", 3), 3);
	assert_int_equal(send_plain(a, "two", 3), 3);
	assert_int_equal(receive_plain(b, bytes, 4), 4);
	assert_memory_equal(bytes, "onet", 4);
	assert_int_equal(receive_plain(b, bytes, sizeof(bytes)), 2);
	assert_memory_equal(bytes, "wo", 2);
	assert_int_equal(receive_plain(b, bytes, 0), -EINVAL);
	assert_int_equal(send_plain(a, bytes, 0), -EINVAL);
	close_stream(&a);
	close_stream(&b);
}

/* More than the socket holds: the sender is told to come again, and every byte arrives once. */
static void a_full_stream_takes_a_part_and_says_again(void **state)
{
	enum { TOTAL = 4 * 1024 * 1024, PIECE = 300000 };
	uint8_t *sent = malloc(TOTAL), *received = malloc(TOTAL);
	size_t sent_bytes = 0, received_bytes = 0;
	bool was_full = false;
	struct stream *a, *b;

	(void)state;
	for (size_t i = 0; i < TOTAL; i++)
		sent[i] = (uint8_t)random_mix(i);
	make_pair(&a, &b);
	while (received_bytes < TOTAL) {
		ssize_t count = -EAGAIN;

		if (sent_bytes < TOTAL)
			count = send_plain(
				a, sent + sent_bytes, TOTAL - sent_bytes < PIECE ? TOTAL - sent_bytes : PIECE);
		if (count > 0) {
			sent_bytes += (size_t)count;
			continue;
		}
		assert_int_equal(count, -EAGAIN);
		was_full = true;
		count = receive_plain(b, received + received_bytes, TOTAL - received_bytes);
		assert_true(count > 0);
		received_bytes += (size_t)count;
	}
	assert_true(was_full);
	assert_memory_equal(sent, received, TOTAL);
	close_stream(&a);
	close_stream(&b);
	free(sent);
	free(received);
}

/* Without MSG_NOSIGNAL the process would end here. */
static void a_closed_peer_is_an_end_and_then_an_error(void **state)
{
	struct stream *a, *b;
	char byte;

	(void)state;
	make_pair(&a, &b);
	assert_int_equal(send_plain(a, "x", 1), 1);
	close_stream(&a);
	assert_int_equal(receive_plain(b, &byte, 1), 1);
	assert_int_equal(receive_plain(b, &byte, 1), 0);
	assert_int_equal(send_plain(b, "y", 1), -EPIPE);
	close_stream(&b);
}

static void streams_are_non_blocking_and_close_on_exec(void **state)
{
	struct stream *a, *b;

	(void)state;
	make_pair(&a, &b);
	assert_true(fcntl(a->ops->event_fd(a), F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(a->ops->event_fd(a), F_GETFD) & FD_CLOEXEC);
	close_stream(&a);
	close_stream(&b);
	assert_int_equal(stream_from_fd(-1, true, &a), -EBADF);
	assert_null(a);
}

/* A file whose content says which it is. */
static int numbered_file(int number)
{
	int fd = memfd_create("numbered", 0);

	assert_int_equal(write(fd, &number, sizeof(number)), sizeof(number));
	return fd;
}

static void assert_numbered(int fd, int number)
{
	int read_number = -1;

	assert_int_equal(pread(fd, &read_number, sizeof(read_number), 0), sizeof(read_number));
	assert_int_equal(read_number, number);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
}

static void descriptors_travel_with_the_bytes_and_stay_the_senders(void **state)
{
	int sent[STREAM_FDS_MAX], received[STREAM_FDS_MAX + 1] = { -7 };
	unsigned count = 1;
	struct stream *a, *b;
	char byte;

	(void)state;
	make_pair(&a, &b);
	for (int i = 0; i < STREAM_FDS_MAX; i++)
		sent[i] = numbered_file(i);
	assert_int_equal(a->ops->send(a, "x", 1, sent, STREAM_FDS_MAX), 1);
	assert_int_equal(a->ops->send(a, "y", 1, sent, STREAM_FDS_MAX + 1), -EINVAL);
	for (int i = 0; i < STREAM_FDS_MAX; i++)
		close(sent[i]);
	/* Appended behind what is there. */
	assert_int_equal(b->ops->receive(b, &byte, 1, received, &count, STREAM_FDS_MAX + 1), 1);
	assert_int_equal(count, STREAM_FDS_MAX + 1);
	assert_int_equal(received[0], -7);
	for (int i = 0; i < STREAM_FDS_MAX; i++)
		assert_numbered(received[i + 1], i);
	assert_int_equal(b->ops->receive(b, &byte, 1, received, &count, STREAM_FDS_MAX + 1), -EAGAIN);
	close_stream(&a);
	close_stream(&b);
}

static void descriptors_without_room_are_closed(void **state)
{
	int sent[3], received[2];
	unsigned count = 0, before;
	struct stream *a, *b;
	char byte;

	(void)state;
	make_pair(&a, &b);
	for (int i = 0; i < 3; i++)
		sent[i] = numbered_file(i);
	before = count_open_fds();
	assert_int_equal(a->ops->send(a, "x", 1, sent, 3), 1);
	assert_int_equal(b->ops->receive(b, &byte, 1, received, &count, 2), 1);
	assert_int_equal(count, 2);
	assert_int_equal(count_open_fds(), before + 2);
	assert_numbered(received[0], 0);
	assert_numbered(received[1], 1);
	assert_int_equal(a->ops->send(a, "x", 1, sent, 3), 1);
	assert_int_equal(receive_plain(b, &byte, 1), 1);
	assert_int_equal(count_open_fds(), before);
	for (int i = 0; i < 3; i++)
		close(sent[i]);
	close_stream(&a);
	close_stream(&b);
}

/* A peer that does not keep to our limits: more descriptors in one message than a receive has room for. */
static void a_flood_of_descriptors_leaks_none(void **state)
{
	enum { FLOOD = 100 };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FLOOD * sizeof(int))];
	} control;
	struct iovec part = { "x", 1 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	struct cmsghdr *header;
	int fds[2], received[STREAM_FDS_MAX], file = numbered_file(1);
	unsigned count = 0, before;
	struct stream *b;
	char byte;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(stream_from_fd(fds[1], true, &b), 0);
	memset(&control, 0, sizeof(control));
	header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(FLOOD * sizeof(int));
	for (int i = 0; i < FLOOD; i++)
		memcpy(CMSG_DATA(header) + (size_t)i * sizeof(int), &file, sizeof(int));
	before = count_open_fds();
	assert_int_equal(sendmsg(fds[0], &message, 0), 1);
	assert_int_equal(b->ops->receive(b, &byte, 1, received, &count, STREAM_FDS_MAX), 1);
	assert_int_equal(count, STREAM_FDS_MAX);
	assert_int_equal(count_open_fds(), before + STREAM_FDS_MAX);
	for (int i = 0; i < STREAM_FDS_MAX; i++)
		assert_numbered(received[i], 1);
	close(fds[0]);
	close(file);
	close_stream(&b);
}

static void accept_one(int listen_fd, bool is_unix, struct stream **stream)
{
	struct pollfd event = { .fd = listen_fd, .events = POLLIN };

	assert_int_equal(poll(&event, 1, 60000), 1);
	assert_int_equal(stream_accept(listen_fd, is_unix, stream), 0);
}

static void a_unix_listener_knows_its_peer_and_takes_descriptors(void **state)
{
	struct fixture *fixture = *state;
	struct stream *client, *server;
	int listen_fd, file, received[1];
	unsigned count = 0;
	char byte, name[32];

	assert_int_equal(stream_listen(&fixture->address, 0600, &listen_fd), 0);
	assert_int_equal(stream_bound_port(listen_fd), 0);
	assert_int_equal(stream_accept(listen_fd, true, &server), -EAGAIN);
	assert_null(server);
	assert_int_equal(stream_connect(&fixture->address, &client), 0);
	accept_one(listen_fd, true, &server);
	snprintf(name, sizeof(name), "unix:pid %d", (int)getpid());
	assert_string_equal(server->name, name);
	assert_string_equal(client->name, name);
	assert_int_equal(server->peer.pid, getpid());
	assert_int_equal(server->peer.uid, getuid());
	assert_int_equal(server->peer.gid, getgid());
	assert_true(server->carries_fds && client->carries_fds);
	file = numbered_file(5);
	assert_int_equal(client->ops->send(client, "x", 1, &file, 1), 1);
	close(file);
	assert_int_equal(server->ops->receive(server, &byte, 1, received, &count, 1), 1);
	assert_int_equal(count, 1);
	assert_numbered(received[0], 5);
	close_stream(&client);
	assert_int_equal(receive_plain(server, &byte, 1), 0);
	close_stream(&server);
	close(listen_fd);
}

static void the_socket_file_has_the_mode_that_was_asked_for(void **state)
{
	static const unsigned modes[] = { 0600, 0660, 0666 };
	struct fixture *fixture = *state;
	mode_t umask_before = umask(077);

	for (size_t i = 0; i < KVR_COUNT_OF(modes); i++) {
		struct stat status;
		int listen_fd;

		assert_int_equal(stream_listen(&fixture->address, modes[i], &listen_fd), 0);
		assert_int_equal(stat(fixture->address.path, &status), 0);
		assert_int_equal(status.st_mode & 07777, modes[i]);
		unlink(fixture->address.path);
		close(listen_fd);
	}
	umask(umask_before);
}

static void a_stale_socket_file_is_replaced(void **state)
{
	struct fixture *fixture = *state;
	struct stream *client, *server;
	int listen_fd;

	assert_int_equal(stream_listen(&fixture->address, 0600, &listen_fd), 0);
	/* As after a crash: the file stays, nobody listens. */
	close(listen_fd);
	assert_int_equal(stream_connect(&fixture->address, &client), -ECONNREFUSED);
	assert_null(client);
	assert_int_equal(stream_listen(&fixture->address, 0600, &listen_fd), 0);
	assert_int_equal(stream_connect(&fixture->address, &client), 0);
	accept_one(listen_fd, true, &server);
	close_stream(&client);
	close_stream(&server);
	close(listen_fd);
}

static void a_live_server_keeps_its_socket_file(void **state)
{
	struct fixture *fixture = *state;
	struct stream *client, *server;
	int listen_fd, second_fd;

	assert_int_equal(stream_listen(&fixture->address, 0600, &listen_fd), 0);
	assert_int_equal(stream_listen(&fixture->address, 0600, &second_fd), -EADDRINUSE);
	assert_int_equal(second_fd, -1);
	/* The look whether it lives was a connection too, and is closed. */
	accept_one(listen_fd, true, &server);
	close_stream(&server);
	assert_int_equal(stream_connect(&fixture->address, &client), 0);
	accept_one(listen_fd, true, &server);
	close_stream(&client);
	close_stream(&server);
	close(listen_fd);
}

/* Of two servers that start together the one that comes second to the folder leaves the file alone, stale or not. */
static void a_server_that_is_just_starting_is_not_disturbed(void **state)
{
	struct fixture *fixture = *state;
	int folder = open(fixture->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), listen_fd;

	assert_int_equal(flock(folder, LOCK_EX), 0);
	assert_int_equal(stream_listen(&fixture->address, 0600, &listen_fd), -EADDRINUSE);
	close(folder);
	assert_int_equal(stream_listen(&fixture->address, 0600, &listen_fd), 0);
	close(listen_fd);
}

static void what_is_no_socket_is_never_removed(void **state)
{
	struct fixture *fixture = *state;
	int listen_fd, file = open(fixture->address.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	struct stat status;

	close(file);
	assert_int_equal(stream_listen(&fixture->address, 0600, &listen_fd), -EEXIST);
	assert_int_equal(lstat(fixture->address.path, &status), 0);
	assert_true(S_ISREG(status.st_mode));
	unlink(fixture->address.path);
	/* Nor is a link followed to somebody's socket. */
	assert_int_equal(symlink("elsewhere", fixture->address.path), 0);
	assert_int_equal(stream_listen(&fixture->address, 0600, &listen_fd), -EEXIST);
	assert_int_equal(lstat(fixture->address.path, &status), 0);
}

static void a_missing_folder_or_file_is_no_entry(void **state)
{
	struct stream_address address = ((struct fixture *)*state)->address;
	struct stream *client;
	int listen_fd;

	assert_int_equal(stream_connect(&address, &client), -ENOENT);
	strcat(address.path, "/deeper");
	assert_int_equal(stream_listen(&address, 0600, &listen_fd), -ENOENT);
}

static void local_tcp(struct stream_address *address, int *listen_fd)
{
	assert_int_equal(stream_parse_address("kvrail://127.0.0.1:0", address), 0);
	assert_int_equal(stream_listen(address, 0, listen_fd), 0);
	address->port = stream_bound_port(*listen_fd);
	assert_true(address->port != 0);
}

static int option_of(const struct stream *stream, int level, int name)
{
	int value = -1;
	socklen_t length = sizeof(value);

	assert_int_equal(getsockopt(stream->ops->event_fd(stream), level, name, &value, &length), 0);
	return value;
}

static void tcp_carries_bytes_and_no_descriptors(void **state)
{
	struct stream_address address;
	struct stream *client, *server;
	int listen_fd, file = numbered_file(1);
	char bytes[8], name[32];

	(void)state;
	local_tcp(&address, &listen_fd);
	assert_int_equal(stream_connect(&address, &client), 0);
	accept_one(listen_fd, false, &server);
	snprintf(name, sizeof(name), "127.0.0.1:%u", address.port);
	assert_string_equal(client->name, name);
	assert_int_equal(strncmp(server->name, "127.0.0.1:", 10), 0);
	assert_int_equal(server->peer.pid, 0);
	assert_int_equal(server->peer.uid, (uid_t)-1);
	assert_false(server->carries_fds || client->carries_fds);
	assert_int_equal(option_of(server, IPPROTO_TCP, TCP_NODELAY), 1);
	assert_int_equal(option_of(client, IPPROTO_TCP, TCP_NODELAY), 1);
	assert_int_equal(option_of(server, SOL_SOCKET, SO_KEEPALIVE), 1);
	assert_int_equal(option_of(client, SOL_SOCKET, SO_KEEPALIVE), 1);
	assert_int_equal(client->ops->send(client, "x", 1, &file, 1), -EOPNOTSUPP);
	close(file);
	wait_until(client, POLLOUT);
	assert_int_equal(send_plain(client, "hello", 5), 5);
	wait_until(server, POLLIN);
	assert_int_equal(receive_plain(server, bytes, sizeof(bytes)), 5);
	assert_memory_equal(bytes, "hello", 5);
	close_stream(&client);
	wait_until(server, POLLIN);
	assert_int_equal(receive_plain(server, bytes, sizeof(bytes)), 0);
	close_stream(&server);
	close(listen_fd);
}

static void nobody_at_the_port_is_a_refused_connection(void **state)
{
	struct stream_address address;
	struct stream *client;
	int listen_fd, error;
	char byte;

	(void)state;
	local_tcp(&address, &listen_fd);
	close(listen_fd);
	error = stream_connect(&address, &client);
	/* It may be known at once, or with the first call on the stream. */
	if (error == 0) {
		wait_until(client, POLLIN);
		error = (int)receive_plain(client, &byte, 1);
		close_stream(&client);
	}
	assert_int_equal(error, -ECONNREFUSED);
	address.port = 0;
	assert_int_equal(stream_connect(&address, &client), -EINVAL);
}

/* A listener whose queue is full ignores further connections, so that the last one here stays on its way. */
static void a_connection_on_its_way_says_again(void **state)
{
	struct stream *clients[4];
	struct stream_address address;
	char byte;
	int listen_fd;

	(void)state;
	local_tcp(&address, &listen_fd);
	assert_int_equal(listen(listen_fd, 0), 0);
	for (size_t i = 0; i < KVR_COUNT_OF(clients); i++)
		assert_int_equal(stream_connect(&address, &clients[i]), 0);
	assert_int_equal(send_plain(clients[3], "x", 1), -EAGAIN);
	assert_int_equal(receive_plain(clients[3], &byte, 1), -EAGAIN);
	for (size_t i = 0; i < KVR_COUNT_OF(clients); i++)
		close_stream(&clients[i]);
	close(listen_fd);
}

static void ipv6_peers_are_named_in_brackets(void **state)
{
	struct stream_address address;
	struct stream *client, *server;
	int listen_fd, error;

	(void)state;
	assert_int_equal(stream_parse_address("kvrail://[::1]:0", &address), 0);
	error = stream_listen(&address, 0, &listen_fd);
	if (error) {
		/* A machine without IPv6 says so by one of these. */
		assert_true(error == -EADDRNOTAVAIL || error == -EAFNOSUPPORT || error == -ENOENT);
		return;
	}
	address.port = stream_bound_port(listen_fd);
	assert_int_equal(stream_connect(&address, &client), 0);
	accept_one(listen_fd, false, &server);
	assert_int_equal(strncmp(server->name, "[::1]:", 6), 0);
	close_stream(&client);
	close_stream(&server);
	close(listen_fd);
}

static void a_port_in_use_is_refused(void **state)
{
	struct stream_address address;
	int listen_fd, second_fd;

	(void)state;
	local_tcp(&address, &listen_fd);
	assert_int_equal(stream_listen(&address, 0, &second_fd), -EADDRINUSE);
	close(listen_fd);
}

#ifdef KVRAIL_FAULT_POINTS

/* Listen, connect, accept, one byte: 0 or the first error. Everything is closed again. */
static int whole_conversation(struct fixture *fixture)
{
	struct stream *client = NULL, *server = NULL;
	int listen_fd, error;
	char byte;

	error = stream_listen(&fixture->address, 0600, &listen_fd);
	if (error)
		return error;
	error = stream_connect(&fixture->address, &client);
	if (!error)
		error = stream_accept(listen_fd, true, &server);
	if (!error)
		error = send_plain(client, "x", 1) == 1 ? 0 : -EIO;
	if (!error)
		error = receive_plain(server, &byte, 1) == 1 ? 0 : -EIO;
	if (client)
		close_stream(&client);
	if (server)
		close_stream(&server);
	unlink(fixture->address.path);
	close(listen_fd);
	return error;
}

static void every_failure_on_the_way_is_reported_and_leaks_nothing(void **state)
{
	struct fixture *fixture = *state;
	unsigned before = count_open_fds();
	uint64_t n;

	for (n = 1;; n++) {
		int error;

		fault_arm(n);
		error = whole_conversation(fixture);
		assert_int_equal(count_open_fds(), before);
		assert_int_equal(access(fixture->address.path, F_OK), -1);
		assert_int_equal(error != 0, fault_fired() != NULL);
		if (!fault_fired())
			break;
	}
	fault_arm(0);
	assert_int_equal(n, 9);
}

#endif

int main(void)
{
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		WITH_FOLDER(bytes_arrive_in_order_and_an_empty_stream_says_again),
		WITH_FOLDER(a_full_stream_takes_a_part_and_says_again),
		WITH_FOLDER(a_closed_peer_is_an_end_and_then_an_error),
		WITH_FOLDER(streams_are_non_blocking_and_close_on_exec),
		WITH_FOLDER(descriptors_travel_with_the_bytes_and_stay_the_senders),
		WITH_FOLDER(descriptors_without_room_are_closed),
		WITH_FOLDER(a_flood_of_descriptors_leaks_none),
		WITH_FOLDER(a_unix_listener_knows_its_peer_and_takes_descriptors),
		WITH_FOLDER(the_socket_file_has_the_mode_that_was_asked_for),
		WITH_FOLDER(a_stale_socket_file_is_replaced),
		WITH_FOLDER(a_live_server_keeps_its_socket_file),
		WITH_FOLDER(a_server_that_is_just_starting_is_not_disturbed),
		WITH_FOLDER(what_is_no_socket_is_never_removed),
		WITH_FOLDER(a_missing_folder_or_file_is_no_entry),
		WITH_FOLDER(tcp_carries_bytes_and_no_descriptors),
		WITH_FOLDER(nobody_at_the_port_is_a_refused_connection),
		WITH_FOLDER(a_connection_on_its_way_says_again),
		WITH_FOLDER(ipv6_peers_are_named_in_brackets),
		WITH_FOLDER(a_port_in_use_is_refused),
#ifdef KVRAIL_FAULT_POINTS
		WITH_FOLDER(every_failure_on_the_way_is_reported_and_leaks_nothing),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
