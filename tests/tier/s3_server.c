#include "tier/s3_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

#define PROGRAM KVRAIL_SOURCE_DIR "/tests/tier/s3_server.py"

bool s3_server_start(struct s3_server *server)
{
	int input[2], output[2];
	char port[16] = "";
	FILE *from;

	assert_int_equal(pipe(input), 0);
	assert_int_equal(pipe(output), 0);
	server->pid = fork();
	if (server->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(input[0], 0);
		dup2(output[1], 1);
		close(input[1]);
		close(output[0]);
		execlp("python3", "python3", PROGRAM, (char *)NULL);
		_exit(127);
	}
	assert_true(server->pid > 0);
	close(input[0]);
	close(output[1]);
	server->input = input[1];
	from = fdopen(output[0], "r");
	assert_non_null(from);
	if (!fgets(port, sizeof(port), from)) {
		fclose(from);
		s3_server_stop(server);
		return false;
	}
	fclose(from); /* it says nothing more */
	server->port = (uint16_t)strtol(port, NULL, 10);
	snprintf(server->endpoint, sizeof(server->endpoint), "http://127.0.0.1:%u", server->port);
	return true;
}

void s3_server_stop(struct s3_server *server)
{
	close(server->input);
	kill(server->pid, SIGKILL);
	assert_int_equal(waitpid(server->pid, NULL, 0), server->pid);
}

/* POST to the server itself; its answer's body into out. */
static void ask(const struct s3_server *server, const char *json, char *out, size_t size)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(server->port)
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char request[512];
	size_t length = 0;
	ssize_t part;

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	snprintf(request, sizeof(request),
		"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", strlen(json), json);
	assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
	while (length + 1 < size && (part = recv(fd, out + length, size - 1 - length, 0)) > 0)
		length += (size_t)part;
	out[length] = '\0';
	close(fd);
}

void s3_server_fault(const struct s3_server *server, const char *on, int times, const char *what)
{
	static char answer[65536];
	char json[200];

	snprintf(json, sizeof(json), "{\"on\": \"%s\", \"times\": %d, \"do\": \"%s\"}", on, times, what);
	ask(server, json, answer, sizeof(answer));
}

int s3_server_count(const struct s3_server *server, const char *name)
{
	static char answer[65536];
	char wanted[40];
	const char *at;
	int count = 0;

	ask(server, "{}", answer, sizeof(answer));
	if (strcmp(name, "objects") == 0) {
		for (at = answer; (at = strstr(at, "\"/bucket/")); at++)
			count++;
		return count;
	}
	snprintf(wanted, sizeof(wanted), "\"%s\": ", name);
	at = strstr(answer, wanted);
	if (!at)
		fail_msg("no %s in %s", name, answer);
	return (int)strtol(at + strlen(wanted), NULL, 10);
}

struct s3_adapter_options s3_server_options(const struct s3_server *server, struct s3_credentials *credentials)
{
	*credentials = (struct s3_credentials){ "AKIDEXAMPLE", "SECRETEXAMPLE", "", "us-test-1" };
	return (struct s3_adapter_options){ .where = "bucket/kv/",
		.endpoint = server->endpoint,
		.credentials = credentials,
		.timeout_ns = 60 * KVR_SECOND, /* the host may be busy */
		.retry_ns = 1 };
}
