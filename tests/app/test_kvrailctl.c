/* kvrailctl as a process against a real server, and against answers that are none. */
#include "app/common/http_client.h"
#include "app/common/table.h"
#include "app/process.h"
#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cmocka_all.h"

static const char token[] = "a-secret-of-the-operator";

struct fixture {
	struct server_process server;
	char token_path[64];
};

static int start_server(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	assert_non_null(fixture);
	snprintf(fixture->token_path, sizeof(fixture->token_path), "/tmp/kvrail-test-ctl-%d", (int)getpid());
	write_file(fixture->token_path, token, 0600);
	SERVER_START(&fixture->server, "--admin-token-file", fixture->token_path);
	*state = fixture;
	return 0;
}

static int stop_server(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(server_process_stop(&fixture->server, SIGTERM), 0);
	unlink(fixture->token_path);
	assert_true(server_process_clean(&fixture->server));
	free(fixture);
	return 0;
}

static void status_is_readable(void **state)
{
	const struct fixture *fixture = *state;
	struct text out = { NULL, 0, 0, false }, err = { NULL, 0, 0, false };

	assert_int_equal(PROCESS_RUN("kvrailctl", &out, &err, "status", "--http", fixture->server.url), 0);
	assert_memory_equal(
		out.bytes, "kvraild " KVRAIL_VERSION ", ready, up ", strlen("kvraild " KVRAIL_VERSION ", ready, up "));
	assert_non_null(strstr(out.bytes, "\n  sessions  0 of 4096, 0 locks, 0 pins\n"));
	assert_non_null(strstr(out.bytes, "\n  clients   0 of 64, 0 registrations\n"));
	assert_non_null(strstr(out.bytes, "\n  THREAD "));
	assert_string_equal(err.bytes, "");
	text_fini(&out);
	text_fini(&err);
}

static void status_as_json_is_the_page(void **state)
{
	const struct fixture *fixture = *state;
	struct text out = { NULL, 0, 0, false };
	json_t *status;

	assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "--json", "status", "--http", fixture->server.url), 0);
	status = json_loadb(out.bytes, out.length, 0, NULL);
	assert_non_null(status);
	assert_string_equal(json_string_value(json_object_get(status, "version")), KVRAIL_VERSION);
	json_decref(status);
	text_fini(&out);
}

static void sessions_and_top_print_one_frame_without_a_terminal(void **state)
{
	const struct fixture *fixture = *state;
	struct text out = { NULL, 0, 0, false };

	assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "sessions", "--http", fixture->server.url), 0);
	assert_non_null(strstr(out.bytes, "      0  sessions open\n"));
	assert_non_null(strstr(out.bytes, "      0  read locks held\n"));
	text_fini(&out);
	assert_int_equal(
		PROCESS_RUN("kvrailctl", &out, NULL, "top", "--interval", "20ms", "--http", fixture->server.url), 0);
	assert_non_null(strstr(out.bytes, "\n  lookup            0         0      -            0.0 %\n"));
	assert_null(strchr(out.bytes, '\x1b'));
	assert_null(strstr(strstr(out.bytes, "OPERATION") + 1, "OPERATION"));
	text_fini(&out);
	assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "top", "--interval", "20ms", "--count", "3", "--http",
				 fixture->server.url),
		0);
	assert_non_null(strstr(strstr(strstr(out.bytes, "OPERATION") + 1, "OPERATION") + 1, "OPERATION"));
	text_fini(&out);
}

static void clear_needs_the_token(void **state)
{
	const struct fixture *fixture = *state;
	struct text out = { NULL, 0, 0, false }, err = { NULL, 0, 0, false };

	assert_int_equal(PROCESS_RUN("kvrailctl", NULL, &err, "clear", "--http", fixture->server.url), 2);
	assert_string_equal(err.bytes,
		"kvrailctl: clear needs --token-file with the token that kvraild was given as --admin-token-file\n");
	text_fini(&err);
	assert_int_equal(PROCESS_RUN("kvrailctl", NULL, &err, "clear", "--http", fixture->server.url, "--token-file",
				 "/proc/version"),
		1);
	assert_non_null(strstr(err.bytes, "/clear: 401: "));
	text_fini(&err);
	assert_int_equal(PROCESS_RUN("kvrailctl", NULL, &err, "clear", "--token-file", "/nonexistent"), 1);
	assert_string_equal(err.bytes, "kvrailctl: --token-file /nonexistent can't be read\n");
	text_fini(&err);
	assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "clear", "--http", fixture->server.url, "--token-file",
				 fixture->token_path),
		0);
	assert_string_equal(out.bytes, "0 chunks dropped, 0 kept because they are in use or pinned; cleared: L1\n");
	text_fini(&out);
}

static void check_sees_the_server(void **state)
{
	const struct fixture *fixture = *state;
	struct text out = { NULL, 0, 0, false };
	char line[256];

	assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "check", "--http", fixture->server.url, "--socket",
				 fixture->server.socket, "--l1-size", "16MiB"),
		0);
	snprintf(line, sizeof(line), "  ok    socket          %s: served by process %d\n", fixture->server.socket,
		(int)fixture->server.pid);
	assert_non_null(strstr(out.bytes, line));
	snprintf(line, sizeof(line), "  ok    pages           %s/readyz: ready\n", fixture->server.url);
	assert_non_null(strstr(out.bytes, line));
	assert_non_null(strstr(out.bytes, "\n0 bad, "));
	text_fini(&out);
}

static void check_says_what_is_missing(void **state)
{
	struct text out = { NULL, 0, 0, false };

	(void)state;
	assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "check", "--http", "http://127.0.0.1:1", "--socket",
				 "/nonexistent/k.sock", "--l1-size", "64TiB"),
		1);
	assert_non_null(strstr(out.bytes, "  BAD   memory          "));
	assert_non_null(strstr(out.bytes, "less than L1 wants (--l1-size 64.00 TiB)\n"));
	assert_non_null(strstr(out.bytes,
		"  note  socket          /nonexistent/k.sock: No such file or directory: no kvraild serves it\n"));
	assert_non_null(strstr(out.bytes, "  note  pages           http://127.0.0.1:1: nobody listens there"));
	text_fini(&out);
}

static void wrong_usage_is_code_2(void **state)
{
	static const struct {
		const char *arguments[4];
		const char *message;
	} cases[] = {
		{ { NULL }, "kvrailctl: give a command; kvrailctl --help lists all\n" },
		{ { "statsu" }, "kvrailctl: no command statsu; did you mean status?\n" },
		{ { "quota-of-tenants" }, "kvrailctl: no command quota-of-tenants; kvrailctl --help lists all\n" },
		{ { "status", "top" }, "kvrailctl: one command at a time; kvrailctl --help lists all\n" },
		{ { "status", "--jsno" }, "kvrailctl: unknown option --jsno; did you mean --json?\n" },
		{ { "status", "--timeout", "5" },
			"kvrailctl: --timeout 5 is no time: a number with its unit, as 10us, 250ms, 5s, 2m, 1h; allowed: 10ms to 10m\n" },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		struct text err = { NULL, 0, 0, false };

		assert_int_equal(process_run("kvrailctl", cases[i].arguments, NULL, &err), 2);
		assert_string_equal(err.bytes, cases[i].message);
		text_fini(&err);
	}
}

static void no_server_is_code_1(void **state)
{
	struct text err = { NULL, 0, 0, false };

	(void)state;
	assert_int_equal(PROCESS_RUN("kvrailctl", NULL, &err, "status", "--http", "http://127.0.0.1:1"), 1);
	assert_string_equal(err.bytes,
		"kvrailctl: http://127.0.0.1:1: nobody listens there: is kvraild running, with this address as --http?\n");
	text_fini(&err);
	assert_int_equal(PROCESS_RUN("kvrailctl", NULL, &err, "status", "--http", "127.0.0.1:1"), 1);
	assert_string_equal(err.bytes, "kvrailctl: 127.0.0.1:1 is no address of pages; write http://HOST:PORT\n");
	text_fini(&err);
}

/* A server that gives one caller these bytes, closes when `closes`, else keeps silent until the caller goes. */
struct liar {
	pid_t pid;
	char url[64];
};

static void liar_start(struct liar *liar, const char *bytes, bool closes)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in address;
	socklen_t length = sizeof(address);

	memset(&address, 0, sizeof(address));
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	snprintf(liar->url, sizeof(liar->url), "http://127.0.0.1:%u", ntohs(address.sin_port));
	liar->pid = fork();
	assert_true(liar->pid >= 0);
	if (liar->pid == 0) {
		int caller = accept(fd, NULL, NULL);
		char request[1024];

		(void)!read(caller, request, sizeof(request));
		(void)!send(caller, bytes, strlen(bytes), MSG_NOSIGNAL);
		if (!closes)
			(void)!read(caller, request, sizeof(request));
		_exit(0);
	}
	close(fd);
}

static int ask_liar(const char *bytes, bool closes, struct http_client_error *error)
{
	struct text body = { NULL, 0, 0, false };
	struct liar liar;
	struct http_client_request request = { liar.url, "GET", "/status", NULL, closes ? 60 * KVR_SECOND : 50 * KVR_MS,
		NULL, 0 };
	unsigned status = 0;
	int result, ended;

	liar_start(&liar, bytes, closes);
	result = http_client_ask(&request, &status, &body, error);
	assert_int_equal(waitpid(liar.pid, &ended, 0), liar.pid);
	text_fini(&body);
	return result;
}

static void answers_that_are_none_are_refused(void **state)
{
	struct http_client_error error;

	(void)state;
	assert_int_equal(ask_liar("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true, &error), 0);
	assert_int_equal(ask_liar("HTTP/1.0 200 OK\r\n\r\nany length", true, &error), 0);
	assert_int_equal(ask_liar("", true, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "/status: the answer is no whole page"));
	assert_int_equal(ask_liar("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", true, &error), -EBADMSG);
	assert_int_equal(ask_liar("HTTP/1.1 200 OK\r\n", true, &error), -EBADMSG);
	assert_int_equal(ask_liar("SSH-2.0-OpenSSH_9.2\r\n\r\n", true, &error), -EBADMSG);
	assert_int_equal(ask_liar("HTTP/2.0 200 OK\r\n\r\n", true, &error), -EBADMSG);
	assert_int_equal(ask_liar("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", false, &error), -ETIMEDOUT);
	assert_non_null(strstr(error.text, "/status: Connection timed out"));
}

static void a_page_that_is_no_json_is_refused(void **state)
{
	static const char *const pages[] = { "{", "[]", "null", "", "{\"a\":1} x" };

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(pages); i++) {
		struct text err = { NULL, 0, 0, false }, answer = { NULL, 0, 0, false };
		struct liar liar;
		int ended;

		text_append(&answer, "HTTP/1.1 200 OK\r\n\r\n%s", pages[i]);
		liar_start(&liar, answer.bytes, true);
		assert_int_equal(PROCESS_RUN("kvrailctl", NULL, &err, "status", "--http", liar.url), 1);
		assert_string_equal(
			err.bytes, "kvrailctl: the status page is no JSON object; is this address kvraild's?\n");
		assert_int_equal(waitpid(liar.pid, &ended, 0), liar.pid);
		text_fini(&err);
		text_fini(&answer);
	}
}

/* Another program's object, or a newer server's: what is not there counts as nothing. */
static void a_page_without_the_fields_is_shown_empty(void **state)
{
	struct text out = { NULL, 0, 0, false };
	struct liar liar;
	int ended;

	(void)state;
	liar_start(&liar, "HTTP/1.1 200 OK\r\n\r\n{\"l1\":7,\"models\":{\"a\":1},\"clients\":[1,null],\"loops\":[{}]}",
		true);
	assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "status", "--http", liar.url), 0);
	assert_non_null(strstr(out.bytes, "NOT READY"));
	assert_int_equal(waitpid(liar.pid, &ended, 0), liar.pid);
	text_fini(&out);
}

static void tables_are_as_wide_as_their_widest_cell(void **state)
{
	struct table table = { 0, 0, 0, 0, false, NULL };
	struct text out = { NULL, 0, 0, false };

	(void)state;
	table_begin(&table, "NAME|COUNT>|LAST");
	table_cell(&table, "a");
	table_cell(&table, "%d", 1234567);
	table_cell(&table, "x");
	table_cell(&table, "longer\x1b[31m");
	table_cell(&table, "%d", 1);
	table_cell(&table, "yy");
	table_print(&table, &out);
	assert_string_equal(out.bytes,
		"  NAME           COUNT  LAST\n"
		"  a            1234567  x\n"
		"  longer?[31m        1  yy\n");
	table_fini(&table);
	text_fini(&out);
}

static void long_cells_are_cut_and_many_rows_fit(void **state)
{
	struct table table = { 0, 0, 0, 0, false, NULL };
	struct text out = { NULL, 0, 0, false };

	(void)state;
	table_begin(&table, "WORD");
	table_cell(&table, "%0100d", 0);
	for (unsigned i = 0; i < 1000; i++)
		table_cell(&table, "%u", i);
	table_print(&table, &out);
	assert_non_null(strstr(out.bytes, "000000..."));
	assert_non_null(strstr(out.bytes, "\n  999\n"));
	table_fini(&table);
	text_fini(&out);
	/* A row that was begun and not ended is not printed. */
	table_begin(&table, "A|B");
	table_cell(&table, "half");
	table_print(&table, &out);
	assert_string_equal(out.bytes, "  A  B\n");
	table_fini(&table);
	text_fini(&out);
}

int main(void)
{
	const struct CMUnitTest shared[] = {
		cmocka_unit_test(status_is_readable),
		cmocka_unit_test(status_as_json_is_the_page),
		cmocka_unit_test(sessions_and_top_print_one_frame_without_a_terminal),
		cmocka_unit_test(clear_needs_the_token),
		cmocka_unit_test(check_sees_the_server),
	};
	const struct CMUnitTest alone[] = {
		cmocka_unit_test(check_says_what_is_missing),
		cmocka_unit_test(wrong_usage_is_code_2),
		cmocka_unit_test(no_server_is_code_1),
		cmocka_unit_test(answers_that_are_none_are_refused),
		cmocka_unit_test(a_page_that_is_no_json_is_refused),
		cmocka_unit_test(a_page_without_the_fields_is_shown_empty),
		cmocka_unit_test(tables_are_as_wide_as_their_widest_cell),
		cmocka_unit_test(long_cells_are_cut_and_many_rows_fit),
	};
	int failed = cmocka_run_group_tests(shared, start_server, stop_server);

	return cmocka_run_group_tests(alone, NULL, NULL) + failed;
}
