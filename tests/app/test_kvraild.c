/* kvraild as a process: what it prints, its pages, its socket, and how it leaves. */
#include "app/process.h"
#include "base/atomic.h"
#include "mgmt/control.h"
#include "mgmt/control_mail.h"
#include "protocol/message.h"
#include "worker/mailbox.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cmocka_all.h"

static const char token[] = "a-secret-of-the-operator";

/* One server for most tests. */
struct fixture {
	struct server_process server;
	char token_path[64];
};

static int start_server(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	assert_non_null(fixture);
	snprintf(fixture->token_path, sizeof(fixture->token_path), "/tmp/kvrail-test-token-%d", (int)getpid());
	write_file(fixture->token_path, token, 0600);
	SERVER_START(&fixture->server, "--admin-token-file", fixture->token_path, "--max-clients", "4");
	*state = fixture;
	return 0;
}

static int stop_server(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(server_process_stop(&fixture->server, SIGTERM), 0);
	unlink(fixture->token_path);
	/* pitfalls C18: nothing is left behind: no socket, no folder. */
	assert_true(server_process_clean(&fixture->server));
	free(fixture);
	return 0;
}

static void the_ready_line_says_what_there_is(void **state)
{
	const struct fixture *fixture = *state;
	char tail[256];

	assert_memory_equal(fixture->server.ready, "kvraild " KVRAIL_VERSION " ready: 16.0",
		strlen("kvraild " KVRAIL_VERSION " ready: 16.0"));
	assert_non_null(strstr(fixture->server.ready, " MiB of L1 in "));
	snprintf(tail, sizeof(tail), "1 poll core, unix:%s, http://127.0.0.1:%u", fixture->server.socket,
		fixture->server.port);
	assert_string_equal(strstr(fixture->server.ready, "1 poll core"), tail);
	assert_true(fixture->server.port > 0);
}

static void start_has_a_line_for_each_step(void **state)
{
	static const char *const steps[] = { "limits", "socket", "port", "device", "memory", "server", "loops", "pages",
		"threads" };
	const struct fixture *fixture = *state;
	char words[64];

	for (size_t i = 0; i < KVR_COUNT_OF(steps); i++) {
		snprintf(words, sizeof(words), "info: start: %s ", steps[i]);
		assert_int_equal(server_process_logged(&fixture->server, words), 1);
	}
}

static void health_and_readiness_are_pages(void **state)
{
	const struct fixture *fixture = *state;
	struct text body = { NULL, 0, 0, false };

	assert_int_equal(http_ask(fixture->server.port, "GET", "/healthz", "", &body), 200);
	assert_string_equal(body.bytes, "ok\n");
	text_fini(&body);
	assert_int_equal(http_ask(fixture->server.port, "GET", "/readyz", "", &body), 200);
	assert_string_equal(body.bytes, "ready\n");
	text_fini(&body);
	assert_int_equal(http_ask(fixture->server.port, "HEAD", "/healthz", "", NULL), 200);
}

static void unknown_pages_list_those_that_there_are(void **state)
{
	const struct fixture *fixture = *state;
	struct text body = { NULL, 0, 0, false };

	assert_int_equal(http_ask(fixture->server.port, "GET", "/nothing", "", &body), 404);
	assert_non_null(strstr(body.bytes, "no page /nothing"));
	assert_non_null(strstr(body.bytes, "GET  /metrics"));
	assert_non_null(strstr(body.bytes, "POST /clear"));
	text_fini(&body);
	/* pitfalls F04: no page runs, reads or changes anything else. */
	assert_int_equal(http_ask(fixture->server.port, "POST", "/configure", "", NULL), 404);
	assert_int_equal(http_ask(fixture->server.port, "GET", "/../etc/passwd", "", NULL), 404);
	assert_int_equal(http_ask(fixture->server.port, "GET", "/clear", "", NULL), 405);
	assert_int_equal(http_ask(fixture->server.port, "POST", "/status", "", NULL), 405);
	assert_int_equal(http_ask(fixture->server.port, "DELETE", "/metrics", "", NULL), 405);
}

/* The value of a series, which must be there exactly once; -1 when it is not. */
static long long series(const char *page, const char *name)
{
	char line[256];
	const char *at;

	snprintf(line, sizeof(line), "\n%s ", name);
	at = strstr(page, line);
	if (!at || strstr(at + 1, line))
		return -1;
	return atoll(at + strlen(line));
}

/* pitfalls O03: all series are there at 0 before anything happened. */
static void every_counter_is_a_series_from_the_start(void **state)
{
	static const char *const management[] = {
#define ROW(name, help) "kvrail_" #name,
		MANAGEMENT_COUNTERS(ROW)
#undef ROW
	};
	static const char *const worker[] = {
#define ROW(name, help) "kvrail_worker_" #name "{worker=\"0\"}",
		WORKER_COUNTERS(ROW)
#undef ROW
	};
	static const char *const control[] = {
#define ROW(name, help) #name,
		CONTROL_COUNTERS(ROW)
#undef ROW
	};
	const struct fixture *fixture = *state;
	struct text page = { NULL, 0, 0, false };
	char name[128];

	assert_int_equal(http_ask(fixture->server.port, "GET", "/metrics", "", &page), 200);
	for (size_t i = 0; i < KVR_COUNT_OF(management); i++) {
		if (strstr(management[i], "_turns_total"))
			assert_true(series(page.bytes, management[i]) >= 0);
		else
			assert_int_equal(series(page.bytes, management[i]), 0);
	}
	for (size_t i = 0; i < KVR_COUNT_OF(worker); i++)
		assert_true(series(page.bytes, worker[i]) >= 0);
	for (size_t i = 0; i < KVR_COUNT_OF(control); i++) {
		snprintf(name, sizeof(name), "kvrail_control_%s",
			strncmp(control[i], "control_", 8) == 0 ? control[i] + 8 : control[i]);
		assert_true(series(page.bytes, name) >= 0);
	}
	assert_int_equal(series(page.bytes, "kvrail_build_info{version=\"" KVRAIL_VERSION "\"}"), 1);
	assert_int_equal(series(page.bytes, "kvrail_ready"), 1);
	assert_int_equal(series(page.bytes, "kvrail_draining"), 0);
	assert_true(series(page.bytes, "kvrail_l1_total_bytes") >= 16 << 20);
	assert_int_equal(series(page.bytes, "kvrail_l1_used_bytes"), 0);
	assert_int_equal(series(page.bytes, "kvrail_cache_evicted_chunks_total"), 0);
	assert_int_equal(series(page.bytes, "kvrail_sessions_max"), 4096);
	assert_int_equal(series(page.bytes, "kvrail_clients_max"), 4);
	assert_true(series(page.bytes, "kvrail_loop_busy_turns_total{loop=\"kvr-serve\"}") >= 0 ||
		series(page.bytes, "kvrail_loop_busy_turns_total{loop=\"kvr-mgmt\"}") >= 0);
	text_fini(&page);
}

/* The text format: each series stands behind a HELP and a TYPE line of its name, and has a number. */
static void metrics_follow_the_text_format(void **state)
{
	const struct fixture *fixture = *state;
	struct text page = { NULL, 0, 0, false };
	char family[128] = "";
	unsigned count = 0;

	assert_int_equal(http_ask(fixture->server.port, "GET", "/metrics", "", &page), 200);
	for (char *save, *line = strtok_r(page.bytes, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *end;

		if (strncmp(line, "# HELP ", 7) == 0) {
			snprintf(family, sizeof(family), "%.*s", (int)strcspn(line + 7, " "), line + 7);
			continue;
		}
		if (strncmp(line, "# TYPE ", 7) == 0) {
			assert_memory_equal(line + 7, family, strlen(family));
			assert_true(strstr(line, " counter") || strstr(line, " gauge"));
			assert_int_equal(strstr(line, " counter") != NULL,
				strstr(family, "_total") != NULL && !strstr(family, "_total_bytes"));
			continue;
		}
		assert_memory_equal(line, family, strlen(family));
		assert_true(line[strlen(family)] == ' ' || line[strlen(family)] == '{');
		strtod(strrchr(line, ' ') + 1, &end);
		assert_int_equal(*end, '\0');
		count++;
	}
	assert_true(count > 100);
	text_fini(&page);
}

static json_t *status_of(const struct server_process *server)
{
	struct text page = { NULL, 0, 0, false };
	json_error_t error;
	json_t *status;

	assert_int_equal(http_ask(server->port, "GET", "/status", "", &page), 200);
	status = json_loadb(page.bytes, page.length, 0, &error);
	if (!status)
		print_error("%s\n%s\n", error.text, page.bytes);
	assert_non_null(status);
	text_fini(&page);
	return status;
}

static void assert_has(const json_t *object, const char *const *names)
{
	for (; *names; names++) {
		if (!json_object_get(object, *names))
			print_error("no \"%s\"\n", *names);
		assert_non_null(json_object_get(object, *names));
	}
}

#define ASSERT_HAS(object, ...) assert_has(object, (const char *const[]){ __VA_ARGS__, NULL })

static void status_has_what_operators_ask_for(void **state)
{
	const struct fixture *fixture = *state;
	json_t *status = status_of(&fixture->server);
	const json_t *l1 = json_object_get(status, "l1"), *worker, *options;

	ASSERT_HAS(status, "version", "boot_id", "uptime_seconds", "ready", "draining", "l1", "cache", "sessions",
		"requests", "models", "clients", "client_count", "workers", "loops", "counters", "control", "options");
	assert_string_equal(json_string_value(json_object_get(status, "version")), KVRAIL_VERSION);
	assert_int_equal(strlen(json_string_value(json_object_get(status, "boot_id"))), 16);
	assert_true(json_is_true(json_object_get(status, "ready")));
	ASSERT_HAS(l1, "total_bytes", "used_bytes", "free_bytes", "rounding_bytes", "pages", "locked", "objects");
	assert_int_equal(json_integer_value(json_object_get(l1, "free_bytes")),
		json_integer_value(json_object_get(l1, "total_bytes")));
	ASSERT_HAS(json_object_get(status, "cache"), "chunks", "objects", "locks", "pins", "staged", "held_chunks",
		"evicted_chunks");
	ASSERT_HAS(json_object_get(status, "sessions"), "open", "max", "locks");
	assert_int_equal(json_array_size(json_object_get(status, "models")), 0);
	assert_int_equal(json_array_size(json_object_get(status, "workers")), 1);
	worker = json_array_get(json_object_get(status, "workers"), 0);
	assert_string_equal(json_string_value(json_object_get(worker, "device")), "local");
	ASSERT_HAS(worker, "requests_total", "sleeps_total");
	ASSERT_HAS(json_array_get(json_object_get(status, "loops"), 0), "name", "core", "busy_turns", "sleeps",
		"busy_seconds");
	options = json_object_get(status, "options");
	assert_string_equal(json_string_value(json_object_get(options, "l1-size")), "16MiB");
	assert_string_equal(json_string_value(json_object_get(options, "max-clients")), "4");
	assert_string_equal(json_string_value(json_object_get(options, "lock-ttl")), "5m");
	json_decref(status);
}

/* pitfalls F04: without the token 401, with it done and said who did it. */
static void clearing_needs_the_token_and_is_logged(void **state)
{
	const struct fixture *fixture = *state;
	struct text body = { NULL, 0, 0, false };
	char header[128];

	assert_int_equal(http_ask(fixture->server.port, "POST", "/clear", "", &body), 401);
	assert_non_null(strstr(body.bytes, "Authorization: Bearer TOKEN"));
	text_fini(&body);
	assert_int_equal(http_ask(fixture->server.port, "POST", "/clear",
				 "Authorization: Bearer wrong-token-of-nobody\r\n", NULL),
		401);
	assert_int_equal(http_ask(fixture->server.port, "POST", "/clear", "Authorization: Bearer \r\n", NULL), 401);
	snprintf(header, sizeof(header), "Authorization: Bearer %.*s\r\n", (int)strlen(token) - 1, token);
	assert_int_equal(http_ask(fixture->server.port, "POST", "/clear", header, NULL), 401);
	snprintf(header, sizeof(header), "Authorization: Bearer %sx\r\n", token);
	assert_int_equal(http_ask(fixture->server.port, "POST", "/clear", header, NULL), 401);
	assert_int_equal(server_process_logged(&fixture->server, "admin: clear asked for by 127.0.0.1:"), 0);
	snprintf(header, sizeof(header), "Authorization: Bearer %s\r\n", token);
	assert_int_equal(http_ask(fixture->server.port, "POST", "/clear", header, &body), 200);
	assert_string_equal(body.bytes, "{\"dropped\":0,\"kept\":0,\"tiers\":\"L1\",\"l2_failed\":0}\n");
	text_fini(&body);
	assert_int_equal(server_process_logged(&fixture->server, "admin: clear asked for by 127.0.0.1:"), 1);
	assert_int_equal(server_process_logged(&fixture->server, "admin: clear: 0 chunks dropped, 0 kept"), 1);
	assert_int_equal(server_process_logged(&fixture->server, " refused: no token, or a wrong one"), 5);
	/* Only in the answer's own words, never in the log or on a page. */
	assert_int_equal(server_process_logged(&fixture->server, token), 0);
}

static void no_page_tells_a_secret(void **state)
{
	const struct fixture *fixture = *state;
	struct text page = { NULL, 0, 0, false };

	assert_int_equal(http_ask(fixture->server.port, "GET", "/status", "", &page), 200);
	assert_null(strstr(page.bytes, token));
	text_fini(&page);
}

/* pitfalls O06: another protocol is turned away at once, with a line that says so. */
static void other_protocols_are_turned_away_at_once(void **state)
{
	static const struct {
		const char *bytes;
		size_t length;
	} openings[] = {
#define OPENING(bytes) { bytes, sizeof(bytes) - 1 }
		OPENING("GET /status HTTP/1.1\r\nHost: x\r\n\r\n"),
		OPENING("\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03 and the rest of a TLS hello"),
		OPENING("\x00\x00\x00\x10\x00\x01 some older protocol's hello"),
#undef OPENING
	};
	const struct fixture *fixture = *state;
	unsigned before = server_process_logged(&fixture->server, "closed: magic: this is not the kvrail protocol");

	for (size_t i = 0; i < KVR_COUNT_OF(openings); i++) {
		int fd = connect_unix(fixture->server.socket);
		struct pollfd watched = { fd, POLLIN, 0 };
		char bytes[64];

		assert_int_equal(
			send(fd, openings[i].bytes, openings[i].length, MSG_NOSIGNAL), (ssize_t)openings[i].length);
		/* The row's own limit. */
		assert_int_equal(poll(&watched, 1, 1000), 1);
		assert_true(recv(fd, bytes, sizeof(bytes), 0) <= 0);
		close(fd);
		server_process_await_log(
			&fixture->server, "closed: magic: this is not the kvrail protocol", before + (unsigned)i + 1);
	}
	assert_int_equal(server_process_logged(&fixture->server, "closed: magic: this is not the kvrail protocol"),
		before + KVR_COUNT_OF(openings));
}

static long long clients_now(const struct server_process *server)
{
	struct text page = { NULL, 0, 0, false };
	long long count;

	assert_int_equal(http_ask(server->port, "GET", "/metrics", "", &page), 200);
	count = series(page.bytes, "kvrail_clients");
	text_fini(&page);
	return count;
}

/* A client with a place: it has said who it is. */
static int connect_with_hello(const struct server_process *server)
{
	int fd = connect_unix(server->socket);
	uint8_t bytes[1024];
	struct hello hello;
	ssize_t length;

	memset(&hello, 0, sizeof(hello));
	hello.version_min = WIRE_VERSION_MIN;
	hello.version_max = WIRE_VERSION_MAX;
	hello.driver.bytes = "local";
	hello.driver.length = 5;
	length = hello_encode(bytes, sizeof(bytes), &hello);
	assert_true(length > 0);
	assert_int_equal(send(fd, bytes, (size_t)length, MSG_NOSIGNAL), length);
	assert_true(recv(fd, bytes, sizeof(bytes), 0) > 0);
	return fd;
}

/* pitfalls N01: the most clients are published, the next one is told, and those that are there stay. */
static void more_clients_than_the_maximum_are_refused(void **state)
{
	const struct fixture *fixture = *state;
	struct text page = { NULL, 0, 0, false };
	int fds[5];
	char bytes[512];
	ssize_t count;

	/* Those of the tests before may be on their way out. */
	while (clients_now(&fixture->server) > 0)
		sched_yield();
	for (unsigned i = 0; i < 4; i++)
		fds[i] = connect_with_hello(&fixture->server);
	fds[4] = connect_unix(fixture->server.socket);
	count = recv(fds[4], bytes, sizeof(bytes), 0);
	assert_true(count > 0);
	assert_non_null(memmem(bytes, (size_t)count, "4 of 4 clients are connected", 28));
	assert_int_equal(recv(fds[4], bytes, sizeof(bytes), 0), 0);
	assert_int_equal(http_ask(fixture->server.port, "GET", "/metrics", "", &page), 200);
	assert_int_equal(series(page.bytes, "kvrail_clients"), 4);
	assert_true(series(page.bytes, "kvrail_control_refused_total") >= 1);
	text_fini(&page);
	for (unsigned i = 0; i < 5; i++)
		close(fds[i]);
}

static void bad_requests_leave_the_pages_alive(void **state)
{
	const struct fixture *fixture = *state;
	struct text long_header = { NULL, 0, 0, false };

	text_append(&long_header, "X-Long: ");
	for (unsigned i = 0; i < 100000; i++)
		text_append(&long_header, "x");
	text_append(&long_header, "\r\n");
	assert_int_equal(http_ask(fixture->server.port, "GET", "/healthz", long_header.bytes, NULL), 431);
	assert_int_not_equal(http_ask(fixture->server.port, "GET", "/healthz", "Content-Length: -5\r\n", NULL), 200);
	assert_int_not_equal(http_ask(fixture->server.port, "", "", "", NULL), 200);
	assert_int_equal(http_ask(fixture->server.port, "GET", "/healthz", "", NULL), 200);
	text_fini(&long_header);
}

static void a_second_server_on_the_same_socket_is_refused(void **state)
{
	const struct fixture *fixture = *state;
	struct text out = { NULL, 0, 0, false }, err = { NULL, 0, 0, false };
	char message[256];

	assert_int_equal(PROCESS_RUN("kvraild", &out, &err, "--socket", fixture->server.socket, "--http", "off"), 1);
	assert_string_equal(out.bytes, "");
	snprintf(message, sizeof(message),
		"error: unix:%s: another server serves it: stop that one, or give another path as --socket\n",
		fixture->server.socket);
	assert_non_null(strstr(err.bytes, message));
	/* The first one's socket is still there and served. */
	close(connect_unix(fixture->server.socket));
	assert_int_equal(http_ask(fixture->server.port, "GET", "/readyz", "", NULL), 200);
	text_fini(&out);
	text_fini(&err);
}

static void a_port_in_use_is_refused_before_memory_is_taken(void **state)
{
	const struct fixture *fixture = *state;
	struct text err = { NULL, 0, 0, false };
	char path[96], http[64];
	struct stat status;

	snprintf(path, sizeof(path), "%s/second.sock", fixture->server.folder);
	snprintf(http, sizeof(http), "127.0.0.1:%u", fixture->server.port);
	assert_int_equal(PROCESS_RUN("kvraild", NULL, &err, "--socket", path, "--http", http), 1);
	assert_non_null(strstr(err.bytes,
		"can't be listened on: Address already in use; give another address or port as --http, or off\n"));
	assert_null(strstr(err.bytes, "start: memory"));
	assert_int_not_equal(stat(path, &status), 0);
	text_fini(&err);
}

static void a_path_that_is_no_socket_is_not_touched(void **state)
{
	const struct fixture *fixture = *state;
	struct text err = { NULL, 0, 0, false }, left = { NULL, 0, 0, false };
	char path[96];

	snprintf(path, sizeof(path), "%s/file", fixture->server.folder);
	write_file(path, "precious", 0600);
	assert_int_equal(PROCESS_RUN("kvraild", NULL, &err, "--socket", path, "--http", "off"), 1);
	assert_non_null(
		strstr(err.bytes, "the path is there and no socket: remove it, or give another one as --socket\n"));
	read_file(path, &left);
	assert_string_equal(left.bytes, "precious");
	unlink(path);
	text_fini(&err);
	text_fini(&left);
}

static void sighup_changes_nothing_and_says_so(void **state)
{
	const struct fixture *fixture = *state;

	assert_int_equal(kill(fixture->server.pid, SIGHUP), 0);
	server_process_await_log(&fixture->server, "SIGHUP: options are read at start alone, nothing changes", 1);
	assert_int_equal(http_ask(fixture->server.port, "GET", "/readyz", "", NULL), 200);
}

/* Whoever sends thousands, seen one by one, does not fill the log. */
static void many_sighups_are_a_line_a_second(void **state)
{
	const struct fixture *fixture = *state;
	unsigned before = server_process_logged(&fixture->server, "SIGHUP: ");
	struct timespec begin, end;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (unsigned i = 0; i < 50; i++) {
		assert_int_equal(kill(fixture->server.pid, SIGHUP), 0);
		/* The control thread that answers has seen the signal. */
		assert_int_equal(http_ask(fixture->server.port, "GET", "/healthz", "", NULL), 200);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_true(server_process_logged(&fixture->server, "SIGHUP: ") - before <=
		(unsigned)(end.tv_sec - begin.tv_sec) + 2);
}

/* pitfalls C18: with clients in every state the server leaves in peace, and leaves nothing behind. */
static void sigterm_leaves_nothing_behind_with_clients_connected(void **state)
{
	struct server_process server;
	struct stat status;
	int fds[10];
	char byte;

	(void)state;
	SERVER_START(&server, "--drain-timeout", "20s");
	for (unsigned i = 0; i < 10; i++)
		fds[i] = connect_unix(server.socket);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_int_equal(server_process_logged(&server, "are cut off"), 0);
	assert_int_equal(server_process_logged(&server, "kvraild has left"), 1);
	for (unsigned i = 0; i < 10; i++) {
		/* One that came late was told so first. */
		while (recv(fds[i], &byte, 1, 0) > 0)
			;
		close(fds[i]);
	}
	assert_int_not_equal(stat(server.socket, &status), 0);
	assert_true(server_process_clean(&server));
}

static void without_time_to_drain_clients_are_cut_off_and_counted(void **state)
{
	struct server_process server;
	int fd;

	(void)state;
	SERVER_START(&server, "--drain-timeout", "0");
	fd = connect_unix(server.socket);
	while (http_ask(server.port, "GET", "/readyz", "", NULL) != 200)
		;
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_int_equal(server_process_logged(&server, "leaving after --drain-timeout: 1 clients are cut off"), 1);
	close(fd);
	assert_true(server_process_clean(&server));
}

/* Signals that nobody handles end a server as SIGKILL does: its socket stays behind, and is no hindrance. */
static void a_second_server_follows_one_that_died_of(int signal)
{
	struct server_process first, second;

	SERVER_START(&first, "--http", "off");
	assert_int_equal(server_process_stop(&first, signal), 128 + signal);
	assert_int_equal(access(first.socket, F_OK), 0);
	SERVER_START(&second, "--socket", first.socket, "--http", "off");
	assert_non_null(strstr(second.ready, first.socket));
	assert_non_null(strstr(second.ready, ", no http"));
	assert_int_equal(server_process_stop(&second, SIGINT), 0);
	assert_true(server_process_clean(&second));
	/* The folder is the first one's, which was killed: it stays, empty but for the log. */
	{
		char folder[128];

		snprintf(folder, sizeof(folder), "%s/run", first.folder);
		assert_int_equal(rmdir(folder), 0);
	}
	assert_true(server_process_clean(&first));
}

static void a_second_server_follows_a_killed_one_on_the_same_socket(void **state)
{
	static const int signals[] = { SIGKILL, SIGUSR1, SIGUSR2, SIGALRM };

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(signals); i++)
		a_second_server_follows_one_that_died_of(signals[i]);
}

static void threads_apart_on_given_cores_serve_as_well(void **state)
{
	struct server_process server;
	json_t *status;

	(void)state;
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
	SERVER_START(&server, "--cores", "0,1", "--wait", "adaptive");
	status = status_of(&server);
	assert_int_equal(json_array_size(json_object_get(status, "loops")), 3); /* and the control thread */
	for (size_t i = 0; i < 2; i++) {
		const json_t *loop = json_array_get(json_object_get(status, "loops"), i);

		assert_string_equal(json_string_value(json_object_get(loop, "name")), i ? "kvr-mgmt" : "kvr-poll-0");
		assert_int_equal(json_integer_value(json_object_get(loop, "core")), i);
	}
	json_decref(status);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

/* Threads that never sleep: the control thread looks by itself. */
static void busy_threads_serve_as_well(void **state)
{
	struct server_process server;

	(void)state;
	SERVER_START(&server, "--wait", "busy");
	for (unsigned i = 0; i < 3; i++)
		json_decref(status_of(&server));
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

int main(void)
{
	const struct CMUnitTest shared[] = {
		cmocka_unit_test(every_counter_is_a_series_from_the_start),
		cmocka_unit_test(the_ready_line_says_what_there_is),
		cmocka_unit_test(start_has_a_line_for_each_step),
		cmocka_unit_test(health_and_readiness_are_pages),
		cmocka_unit_test(unknown_pages_list_those_that_there_are),
		cmocka_unit_test(metrics_follow_the_text_format),
		cmocka_unit_test(status_has_what_operators_ask_for),
		cmocka_unit_test(clearing_needs_the_token_and_is_logged),
		cmocka_unit_test(no_page_tells_a_secret),
		cmocka_unit_test(other_protocols_are_turned_away_at_once),
		cmocka_unit_test(more_clients_than_the_maximum_are_refused),
		cmocka_unit_test(bad_requests_leave_the_pages_alive),
		cmocka_unit_test(a_second_server_on_the_same_socket_is_refused),
		cmocka_unit_test(a_port_in_use_is_refused_before_memory_is_taken),
		cmocka_unit_test(a_path_that_is_no_socket_is_not_touched),
		cmocka_unit_test(sighup_changes_nothing_and_says_so),
		cmocka_unit_test(many_sighups_are_a_line_a_second),
	};
	const struct CMUnitTest alone[] = {
		cmocka_unit_test(sigterm_leaves_nothing_behind_with_clients_connected),
		cmocka_unit_test(without_time_to_drain_clients_are_cut_off_and_counted),
		cmocka_unit_test(a_second_server_follows_a_killed_one_on_the_same_socket),
		cmocka_unit_test(threads_apart_on_given_cores_serve_as_well),
		cmocka_unit_test(busy_threads_serve_as_well),
	};
	int failed = cmocka_run_group_tests(shared, start_server, stop_server);

	return cmocka_run_group_tests(alone, NULL, NULL) + failed;
}
