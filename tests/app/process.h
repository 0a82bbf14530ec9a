/* process.h - the programs as users run them: started, spoken to over HTTP and their socket, and stopped. */
#ifndef KVRAIL_TESTS_APP_PROCESS_H
#define KVRAIL_TESTS_APP_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/text.h"

/* Runs a program of the build to its end; out, err: what it printed (NULL: not wanted). Its exit code; 128 + n after signal n. */
int process_run(const char *program, const char *const *arguments, struct text *out, struct text *err);
#define PROCESS_RUN(program, out, err, ...) process_run(program, (const char *const[]){ __VA_ARGS__, NULL }, out, err)

/* A kvraild of the test's own, in a folder of its own. */
struct server_process {
	char folder[64];
	char socket[96];
	char log[96]; /* file with its standard error */
	char url[64]; /* "http://127.0.0.1:PORT"; "" without */
	char ready[512];
	uint16_t port;
	pid_t pid;
	int out_fd;
};

/* Starts it with --socket, --http 127.0.0.1:0, --l1-size 16MiB, --cores any and the given options, and waits for its ready line. */
void server_process_start(struct server_process *server, const char *const *arguments);
#define SERVER_START(server, ...) server_process_start(server, (const char *const[]){ __VA_ARGS__, NULL })
/* Its exit code after `signal`. The folder and the log stay until server_process_clean. */
int server_process_stop(struct server_process *server, int signal);
/* Removes log and folder. False when something else is left there. */
bool server_process_clean(struct server_process *server);
/* All that it has logged so far. */
void server_process_log(const struct server_process *server, struct text *out);
/* How often `words` stands in what it has logged. */
unsigned server_process_logged(const struct server_process *server, const char *words);
/* Waits until `words` stands there `count` times. */
void server_process_await_log(const struct server_process *server, const char *words, unsigned count);

/* One request. headers: lines with "\r\n" at their ends, or "". The status; the body is appended. -1: no HTTP came back. */
int http_ask(uint16_t port, const char *method, const char *path, const char *headers, struct text *body);
/* A connected Unix socket. */
int connect_unix(const char *path);

void read_file(const char *path, struct text *out);
void write_file(const char *path, const char *words, mode_t mode);

#endif
