#include "app/process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cmocka_all.h"

#define ARGUMENTS_MAX 48
/* A machine that is very busy is given this time; what hangs is told by it. */
#define PATIENCE_MS 60000

/* Replaces the process; standard output and error as given. */
static void become(const char *program, const char *const *arguments, int out_fd, int err_fd)
{
	char path[512];
	char *argv[ARGUMENTS_MAX];
	int count = 0;

	snprintf(path, sizeof(path), "%s/%s", KVRAIL_PROGRAM_DIR, program);
	argv[count++] = path;
	for (; *arguments && count < ARGUMENTS_MAX - 1; arguments++)
		argv[count++] = (char *)(uintptr_t)*arguments;
	argv[count] = NULL;
	dup2(out_fd, STDOUT_FILENO);
	dup2(err_fd, STDERR_FILENO);
	execv(path, argv);
	fprintf(stderr, "%s: %s\n", path, strerror(errno));
	_exit(127);
}

void read_file(const char *path, struct text *out)
{
	char bytes[4096];
	ssize_t count;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	while ((count = read(fd, bytes, sizeof(bytes))) > 0)
		text_append_bytes(out, bytes, (size_t)count);
	close(fd);
	text_append_bytes(out, "", 0);
}

void write_file(const char *path, const char *words, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, words, strlen(words)), (ssize_t)strlen(words));
	close(fd);
	assert_int_equal(chmod(path, mode), 0);
}

static int exit_code(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int process_run(const char *program, const char *const *arguments, struct text *out, struct text *err)
{
	char out_path[] = "/tmp/kvrail-test-out-XXXXXX", err_path[] = "/tmp/kvrail-test-err-XXXXXX";
	int out_fd = mkstemp(out_path), err_fd = mkstemp(err_path);
	pid_t pid;
	int code;

	assert_true(out_fd >= 0 && err_fd >= 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		become(program, arguments, out_fd, err_fd);
	code = exit_code(pid);
	close(out_fd);
	close(err_fd);
	if (out)
		read_file(out_path, out);
	if (err)
		read_file(err_path, err);
	unlink(out_path);
	unlink(err_path);
	return code;
}

/* One line from the pipe, or the log and a failed test. */
static void await_ready(struct server_process *server)
{
	size_t length = 0;
	char *url;

	while (length < sizeof(server->ready) - 1) {
		struct pollfd fd = { server->out_fd, POLLIN, 0 };
		struct text log = { NULL, 0, 0, false };

		if (poll(&fd, 1, PATIENCE_MS) != 1 || read(server->out_fd, server->ready + length, 1) != 1) {
			server_process_log(server, &log);
			print_error("kvraild did not get ready:\n%s", log.bytes ? log.bytes : "");
			fail();
		}
		if (server->ready[length] == '\n')
			break;
		length++;
	}
	server->ready[length] = '\0';
	url = strstr(server->ready, "http://");
	text_copy(server->url, sizeof(server->url), url ? url : "");
	server->port = url ? (uint16_t)strtoul(strrchr(url, ':') + 1, NULL, 10) : 0;
}

void server_process_start(struct server_process *server, const char *const *arguments)
{
	/* Not pinned: many servers of many tests would all be put on the same cores. */
	const char *all[ARGUMENTS_MAX] = { "--socket", server->socket, "--l1-size", "16MiB", "--http", "127.0.0.1:0",
		"--cores", "any" };
	int count = 8, out[2], log_fd;

	memset(server, 0, sizeof(*server));
	snprintf(server->folder, sizeof(server->folder), "/tmp/kvrail-test-XXXXXX");
	assert_non_null(mkdtemp(server->folder));
	snprintf(server->socket, sizeof(server->socket), "%s/run/k.sock", server->folder);
	snprintf(server->log, sizeof(server->log), "%s/log", server->folder);
	/* An option of the test's own replaces ours. */
	for (const char *const *at = arguments; *at; at++) {
		for (int i = 0; i + 1 < 8; i += 2) {
			if (all[i] && strcmp(all[i], *at) == 0) {
				memmove(&all[i], &all[i + 2], (size_t)(count - i - 2) * sizeof(all[0]));
				count -= 2;
				break;
			}
		}
	}
	for (; *arguments && count < ARGUMENTS_MAX - 1; arguments++)
		all[count++] = *arguments;
	all[count] = NULL;
	log_fd = open(server->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	assert_true(log_fd >= 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	server->out_fd = out[0];
	server->pid = fork();
	assert_true(server->pid >= 0);
	if (server->pid == 0)
		become("kvraild", all, out[1], log_fd);
	close(out[1]);
	close(log_fd);
	await_ready(server);
}

int server_process_stop(struct server_process *server, int signal)
{
	int code;

	assert_int_equal(kill(server->pid, signal), 0);
	code = exit_code(server->pid);
	close(server->out_fd);
	return code;
}

bool server_process_clean(struct server_process *server)
{
	unlink(server->log);
	return rmdir(server->folder) == 0;
}

void server_process_log(const struct server_process *server, struct text *out)
{
	read_file(server->log, out);
}

unsigned server_process_logged(const struct server_process *server, const char *words)
{
	struct text log = { NULL, 0, 0, false };
	unsigned count = 0;

	server_process_log(server, &log);
	for (const char *at = log.bytes; at && (at = strstr(at, words)) != NULL; at += strlen(words))
		count++;
	text_fini(&log);
	return count;
}

void server_process_await_log(const struct server_process *server, const char *words, unsigned count)
{
	while (server_process_logged(server, words) < count)
		sched_yield();
}

int connect_unix(const char *path)
{
	struct sockaddr_un address;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	memset(&address, 0, sizeof(address));
	address.sun_family = AF_UNIX;
	assert_true(strlen(path) < sizeof(address.sun_path));
	memcpy(address.sun_path, path, strlen(path) + 1);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static int connect_tcp(uint16_t port)
{
	struct timeval patience = { PATIENCE_MS / 1000, 0 };
	struct sockaddr_in address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	memset(&address, 0, sizeof(address));
	address.sin_family = AF_INET;
	address.sin_port = htons(port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	return fd;
}

int http_ask(uint16_t port, const char *method, const char *path, const char *headers, struct text *body)
{
	struct text request = { NULL, 0, 0, false }, answer = { NULL, 0, 0, false };
	int fd = connect_tcp(port), status = -1;
	char bytes[4096];
	const char *end;
	ssize_t count;

	text_append(
		&request, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", method, path, headers);
	assert_int_equal(send(fd, request.bytes, request.length, MSG_NOSIGNAL), (ssize_t)request.length);
	while ((count = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		text_append_bytes(&answer, bytes, (size_t)count);
	close(fd);
	if (answer.bytes && sscanf(answer.bytes, "HTTP/1.1 %d", &status) == 1) {
		end = strstr(answer.bytes, "\r\n\r\n");
		assert_non_null(end);
		if (body)
			text_append_bytes(body, end + 4, answer.length - (size_t)(end + 4 - answer.bytes));
	}
	text_fini(&request);
	text_fini(&answer);
	return status;
}
