#include "tier/redis_server.h"

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
#include "tier/redis_protocol.h"

/* Whose -server and -cli are run. */
static const char *kind = "redis";

static bool installed(void)
{
	char command[128];

	snprintf(command, sizeof(command), "command -v %s-server >/dev/null && command -v %s-cli >/dev/null", kind,
		kind);
	return system(command) == 0;
}

static void a_server_is_installed(void **state)
{
	(void)state;
	skip();
}

int redis_run_tests(const struct CMUnitTest *tests, size_t count)
{
	static const char *const kinds[] = { "redis", "valkey" };
	const struct CMUnitTest none[] = { cmocka_unit_test(a_server_is_installed) };
	int failed = 0, ran = 0;

	for (size_t i = 0; i < 2; i++) {
		kind = kinds[i];
		if (!installed()) {
			print_message("%s-server and %s-cli are not installed: nothing is tested with them%s\n", kind,
				kind, i == 0 ? " (scripts/deps --test)" : "");
			continue;
		}
		print_message("with %s-server:\n", kind);
		failed += _cmocka_run_group_tests(kind, tests, count, NULL, NULL);
		ran++;
	}
	return ran ? failed : cmocka_run_group_tests(none, NULL, NULL);
}

uint16_t redis_free_port(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	close(fd);
	return ntohs(address.sin_port);
}

static void run_server(const struct redis_server *server, int output)
{
	char port[8];
	char program[32];
	const char *arguments[32] = { program, "--port", port, "--unixsocket", server->socket, "--dir",
		server->place.path, "--save", "", "--daemonize", "no", "--bind", "127.0.0.1" };
	int count = 13;

	snprintf(program, sizeof(program), "%s-server", kind);
	snprintf(port, sizeof(port), "%u", server->port);
	for (int i = 0; i < 8 && server->more[i][0]; i++)
		arguments[count++] = server->more[i];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(output, 1);
	dup2(output, 2);
	execvp(arguments[0], (char *const *)arguments);
	_exit(127);
}

void redis_server_again(struct redis_server *server)
{
	char line[512] = "";
	bool ready = false;
	FILE *output;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	server->pid = fork();
	if (server->pid == 0) {
		close(fds[0]);
		run_server(server, fds[1]);
	}
	assert_true(server->pid > 0);
	close(fds[1]);
	output = fdopen(fds[0], "r");
	assert_non_null(output);
	while (!ready && fgets(line, sizeof(line), output))
		ready = strstr(line, "he server is now ready to accept connections at") != NULL;
	if (!ready)
		fail_msg("%s-server does not start: %s", kind, line);
	/* What it says from here on fills the pipe at worst, which has 64 KiB; its end stays open until it is killed. */
	server->output = output;
}

void redis_server_start(struct redis_server *server, const char *arguments)
{
	char copy[512], *at = copy, *word;
	int count = 0;

	memset(server, 0, sizeof(*server));
	place_make(&server->place);
	snprintf(server->socket, sizeof(server->socket), "%s/redis.sock", server->place.path);
	server->port = redis_free_port();
	snprintf(copy, sizeof(copy), "%s", arguments);
	while ((word = strsep(&at, " ")) && count < 8)
		if (*word)
			snprintf(server->more[count++], sizeof(server->more[0]), "%s", word);
	redis_server_again(server);
}

void redis_server_kill(struct redis_server *server)
{
	assert_int_equal(kill(server->pid, SIGKILL), 0);
	assert_int_equal(waitpid(server->pid, NULL, 0), server->pid);
	fclose(server->output);
	unlink(server->socket);
}

void redis_server_stop(struct redis_server *server)
{
	redis_server_kill(server);
	place_remove(&server->place);
}

void redis_cli(const struct redis_server *server, char out[256], const char *format, ...)
{
	char command[1024], whole[1400];
	size_t length;
	va_list arguments;
	FILE *output;

	va_start(arguments, format);
	vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	snprintf(whole, sizeof(whole), "%s-cli --no-auth-warning -s %s %s 2>&1", kind, server->socket, command);
	output = popen(whole, "r");
	assert_non_null(output);
	length = fread(out, 1, 255, output);
	out[length] = '\0';
	while (length > 0 && out[length - 1] == '\n')
		out[--length] = '\0';
	while (fread(command, 1, sizeof(command), output) > 0)
		;
	pclose(output);
}

void redis_cluster_start(struct redis_server servers[REDIS_CLUSTER_NODES])
{
	static const char *const ranges[] = { "0 5460", "5461 10922", "10923 16383" };
	char arguments[128], out[256];
	bool ready = false;

	for (int i = 0; i < REDIS_CLUSTER_NODES; i++) {
		snprintf(arguments, sizeof(arguments),
			"--cluster-enabled yes --cluster-port %u --cluster-node-timeout 60000", redis_free_port());
		redis_server_start(&servers[i], arguments);
		redis_says(&servers[i], "OK", "CLUSTER ADDSLOTSRANGE %s", ranges[i]);
		redis_says(&servers[i], "OK", "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
	}
	for (int i = 1; i < REDIS_CLUSTER_NODES; i++) {
		snprintf(arguments, sizeof(arguments), "CLUSTER MEET 127.0.0.1 %u %s", servers[i].port,
			servers[i].more[3]);
		redis_says(&servers[0], "OK", "%s", arguments);
	}
	while (!ready) {
		ready = true;
		for (int i = 0; i < REDIS_CLUSTER_NODES; i++) {
			redis_cli(&servers[i], out, "CLUSTER INFO");
			ready &= strstr(out, "cluster_state:ok") && strstr(out, "cluster_slots_assigned:16384");
		}
	}
}

void redis_key_of(const struct l2_identity *identity, char key[128])
{
	struct digester digester;
	uint32_t length;

	assert_int_equal(digester_init(&digester), 0);
	length = redis_key(&digester, "kvrail:", identity, key);
	key[length] = '\0';
	digester_fini(&digester);
}

struct l2_adapter *redis_open(const struct redis_server *server, struct redis_adapter_options options)
{
	struct l2_adapter *adapter;
	char error[512] = "";

	if (!options.where)
		options.where = server->socket;
	if (!options.timeout_ns)
		options.timeout_ns = 60 * KVR_SECOND; /* the host may be busy */
	if (redis_adapter_open(&options, &adapter, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	return adapter;
}
