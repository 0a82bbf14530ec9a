/*
 * kvraild with an L2 on files and kvrail-bench, two processes: what a small L1 evicts is found again, in every byte, also by
 * the next server, and not where somebody has changed the files.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/process.h"
#include "base/cmocka_all.h"

static struct server_process server;
static char directory[64], option[128];
static const char sample[] = KVRAIL_SOURCE_DIR "/tests/traces/sample.jsonl";

static void on_each_file(const char *path, void (*what)(const char *path))
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	struct stat about;
	char name[512];

	if (!folder)
		return;
	while ((entry = readdir(folder))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		if (lstat(name, &about) == 0 && S_ISDIR(about.st_mode))
			on_each_file(name, what);
		what(name);
	}
	closedir(folder);
}

static void remove_it(const char *path)
{
	(void)remove(path);
}

/* One bit near the end of an object's file. */
static void change_it(const char *path)
{
	size_t length = strlen(path);
	struct stat about;
	uint8_t byte;
	int fd;

	if (length < 4 || strcmp(path + length - 4, ".kvo") != 0)
		return;
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &about), 0);
	assert_int_equal(pread(fd, &byte, 1, about.st_size / 2), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, about.st_size / 2), 1);
	close(fd);
}

static int begin(void **state)
{
	char name[] = "/tmp/kvrail-l2-XXXXXX";

	(void)state;
	if (!mkdtemp(name))
		return -1;
	snprintf(directory, sizeof(directory), "%s", name);
	snprintf(option, sizeof(option), "file:%s/place?size=512MiB&reserve=0", directory);
	return 0;
}

static int end(void **state)
{
	(void)state;
	on_each_file(directory, remove_it);
	return rmdir(directory);
}

static double number_of(const struct text *text, const char *name, const char *separator)
{
	char wanted[64];
	const char *at;

	snprintf(wanted, sizeof(wanted), "\"%s\":%s", name, separator);
	at = text->bytes ? strstr(text->bytes, wanted) : NULL;
	if (!at)
		fail_msg("no %s in: %s", name, text->bytes ? text->bytes : "");
	return at ? strtod(at + strlen(wanted), NULL) : 0;
}

static double status_number(const char *name)
{
	struct text status = { 0 };
	double number;

	assert_int_equal(http_ask(server.port, "GET", "/status", "", &status), 200);
	assert_non_null(strstr(status.bytes, "\"l2\":{"));
	/* Names of L2's own come behind it. */
	memmove(status.bytes, strstr(status.bytes, "\"l2\":{"), strlen(strstr(status.bytes, "\"l2\":{")) + 1);
	number = number_of(&status, name, "");
	text_fini(&status);
	return number;
}

/* A replay, right in every byte: its hit rate. */
static double replay(void)
{
	struct text out = { 0 }, error = { 0 };
	char url[128];
	double rate;
	int code;

	snprintf(url, sizeof(url), "unix:%s", server.socket);
	code = PROCESS_RUN("kvrail-bench", &out, &error, "replay", "--server", url, "--trace", sample, "--pool",
		"16MiB", "--scale", "128", "--requests", "60", "--verify", "--old-copies", "--ceiling=no", "--keep",
		"--name", "again", "--json=-");
	if (code)
		fail_msg("code %d: %s", code, error.bytes ? error.bytes : "");
	rate = number_of(&out, "hit_rate", " ");
	assert_true(number_of(&out, "mismatched_bytes", " ") == 0);
	assert_true(number_of(&out, "errors", " ") == 0);
	assert_true(number_of(&out, "verified_bytes", " ") == number_of(&out, "bytes_retrieved", " "));
	text_fini(&out);
	text_fini(&error);
	return rate;
}

static void stop(void)
{
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

static void what_l1_evicts_is_found_again_and_by_the_next_server_too(void **state)
{
	double alone, first, second, third;

	(void)state;
	SERVER_START(&server, "--log-level", "warn");
	alone = replay();
	stop();
	SERVER_START(&server, "--log-level", "warn", "--l2", option, "--l2-wait", "0", "--l2-store-memory", "12MiB");
	first = replay();
	if (first <= alone)
		fail_msg("with L2 %f of the tokens are found, without %f; %.0f stored, %.0f dropped", first, alone,
			status_number("stored"), status_number("store_dropped"));
	assert_true(status_number("loaded") > 0 && status_number("stored") > 0);
	assert_true(status_number("load_corrupt") == 0);
	stop();
	SERVER_START(&server, "--log-level", "warn", "--l2", option, "--l2-wait", "0", "--l2-store-memory", "12MiB");
	second = replay();
	if (second <= first)
		fail_msg("after a restart with L2 %f of the tokens are found, before it %f; %.0f loaded, %.0f failed",
			second, first, status_number("loaded"), status_number("load_errors"));
	stop();
	/* Every file is changed: none of it is ever delivered (pitfalls H05). */
	on_each_file(directory, change_it);
	SERVER_START(&server, "--log-level", "error", "--l2", option, "--l2-wait", "0", "--l2-store-memory", "12MiB");
	third = replay();
	assert_true(third < second);
	assert_true(status_number("load_corrupt") > 0);
	stop();
}

/* Where files are written before they have their name. */
static void find_temporary(char *path, size_t size)
{
	char place[80];
	DIR *folder;
	struct dirent *entry;

	snprintf(place, sizeof(place), "%s/sick", directory);
	folder = opendir(place);
	assert_non_null(folder);
	path[0] = '\0';
	while ((entry = readdir(folder)))
		if (strncmp(entry->d_name, "tmp-", 4) == 0)
			snprintf(path, size, "%s/%s", place, entry->d_name);
	closedir(folder);
	assert_int_not_equal(path[0], '\0');
}

static void assert_page_has(const char *path, int code, const char *words)
{
	struct text page = { 0 };

	assert_int_equal(http_ask(server.port, "GET", path, "", &page), code);
	if (!strstr(page.bytes, words))
		fail_msg("%s does not say '%s': %s", path, words, page.bytes);
	text_fini(&page);
}

static void assert_page_says(const char *path, const char *words)
{
	assert_page_has(path, 200, words);
}

/* The place cannot write: where its temporary files were there is a file. */
static void make_sick(const char *temporary)
{
	on_each_file(temporary, remove_it);
	assert_int_equal(rmdir(temporary), 0);
	write_file(temporary, "in the way", 0600);
	(void)replay();
	server_process_await_log(&server, "is read only (Not a directory)", 1);
}

/* Ready all the same, and everybody who looks is told (pitfalls B08, O04). */
static void a_sick_place_is_shown_and_taken_in_again_when_it_is_well(void **state)
{
	struct text out = { 0 };
	char temporary[512], place[128];

	(void)state;
	snprintf(place, sizeof(place), "file:%s/sick?size=512MiB&reserve=0", directory);
	SERVER_START(&server, "--l2", place, "--l2-sick-after", "2");
	assert_page_says("/readyz", "ready\n");
	assert_page_says("/metrics", "kvrail_degraded 0\n");
	find_temporary(temporary, sizeof(temporary));
	make_sick(temporary);
	assert_page_says("/readyz", "ready, degraded: L2 place file:");
	assert_page_says("/status", "\"health\":\"read-only\"");
	assert_page_says("/metrics", ",for=\"read\"} 1\n");
	assert_page_says("/metrics", ",for=\"write\"} 0\n");
	assert_page_says("/metrics", "kvrail_degraded 1\n");
	assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "status", "--http", server.url), 0);
	assert_non_null(strstr(out.bytes, "DEGRADED"));
	assert_non_null(strstr(out.bytes, "READ-ONLY for"));
	text_fini(&out);
	/* What is there is read. */
	assert_true(replay() > 0);
	assert_int_equal(unlink(temporary), 0);
	server_process_await_log(&server, "is well again", 1);
	assert_page_says("/readyz", "ready\n");
	stop();
}

/* Who asked for it has 503, and only where readiness is meant: the process lives (pitfalls O04). */
static void a_sick_place_makes_the_server_unready_where_that_is_asked_for(void **state)
{
	struct text out = { 0 };
	char temporary[512], place[128];

	(void)state;
	snprintf(place, sizeof(place), "file:%s/sick?size=512MiB&reserve=0", directory);
	SERVER_START(&server, "--l2", place, "--l2-sick-after", "2", "--ready-needs-l2");
	assert_page_says("/readyz", "ready\n");
	assert_page_says("/metrics", "kvrail_ready 1\n");
	find_temporary(temporary, sizeof(temporary));
	make_sick(temporary);
	assert_page_has("/readyz", 503, "not ready: L2 place file:");
	assert_page_has("/readyz", 503, "(Not a directory)\n");
	assert_page_says("/healthz", "ok\n");
	assert_page_says("/metrics", "kvrail_ready 0\n");
	assert_page_says("/metrics", "kvrail_degraded 1\n");
	assert_page_says("/status", "\"ready\":false,\"not_ready\":\"L2 place file:");
	assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "status", "--http", server.url), 0);
	assert_non_null(strstr(out.bytes, "NOT READY"));
	text_fini(&out);
	assert_int_equal(unlink(temporary), 0);
	server_process_await_log(&server, "is well again", 1);
	assert_page_says("/readyz", "ready\n");
	stop();
}

/* What others store and evict, too, nobody counts: it is said, and no 0 stands for it. */
static void what_a_server_of_others_keeps_is_shown_as_unknown(void **state)
{
	struct text out = { 0 };
	char place[128], redis[128], line[200];
	const char *row;

	(void)state;
	snprintf(place, sizeof(place), "file:%s/counted?size=512MiB&reserve=0", directory);
	snprintf(redis, sizeof(redis), "redis:%s/none.sock", directory); /* not reached yet */
	SERVER_START(&server, "--log-level", "error", "--l2", place, "--l2", redis);
	assert_page_says("/status", "\"counted\":true");
	assert_page_says("/status", "\"counted\":false");
	snprintf(line, sizeof(line), "kvrail_l2_place_objects{place=\"file:%s/counted\"} 0\n", directory);
	assert_page_says("/metrics", line);
	snprintf(line, sizeof(line), "kvrail_l2_place_objects{place=\"%s\"}", redis);
	assert_int_equal(http_ask(server.port, "GET", "/metrics", "", &out), 200);
	assert_null(strstr(out.bytes, line));
	snprintf(line, sizeof(line), "kvrail_l2_place_stores_total{place=\"%s\"} 0\n", redis);
	assert_non_null(strstr(out.bytes, line));
	text_fini(&out);
	assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "status", "--http", server.url), 0);
	row = strstr(out.bytes, redis);
	assert_non_null(row);
	row += strlen(redis);
	row += strspn(row, " ");
	assert_int_equal(strncmp(row, "?", 1), 0);
	text_fini(&out);
	stop();
}

static unsigned objects;

static void count_it(const char *path)
{
	size_t length = strlen(path);

	objects += length > 4 && strcmp(path + length - 4, ".kvo") == 0;
}

/* L1 alone, and then all of it. */
static void the_operator_clears_l1_or_all(void **state)
{
	char token[96], place[128], folder[96];
	struct text out = { 0 };

	(void)state;
	snprintf(token, sizeof(token), "%s/token", directory);
	snprintf(place, sizeof(place), "file:%s/cleared?size=512MiB&reserve=0", directory);
	write_file(token, "open sesame, open sesame\n", 0600);
	SERVER_START(&server, "--log-level", "error", "--l2", place, "--admin-token-file", token);
	(void)replay();
	assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "clear", "--tiers", "l1", "--token-file", token, "--http",
				 server.url),
		0);
	assert_non_null(strstr(out.bytes, "; cleared: L1\n"));
	text_fini(&out);
	snprintf(folder, sizeof(folder), "%s/cleared", directory);
	objects = 0;
	on_each_file(folder, count_it);
	assert_true(objects > 0);
	assert_int_equal(PROCESS_RUN("kvrailctl", &out, NULL, "clear", "--token-file", token, "--timeout", "1m",
				 "--http", server.url),
		0);
	assert_non_null(strstr(out.bytes, "; cleared: L1 and L2\n"));
	text_fini(&out);
	objects = 0;
	on_each_file(folder, count_it);
	assert_int_equal(objects, 0);
	stop();
}

static void a_place_that_cannot_be_used_is_named_with_the_reason(void **state)
{
	struct text out = { 0 }, error = { 0 };

	(void)state;
	assert_int_not_equal(PROCESS_RUN("kvraild", &out, &error, "--socket", "/tmp/kvrail-l2-no.sock", "--http", "off",
				     "--l1-size", "16MiB", "--cores", "any", "--l2", "file:/proc/nothing/here"),
		0);
	assert_non_null(strstr(error.bytes, "--l2 file:/proc/nothing/here"));
	text_fini(&out);
	text_fini(&error);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_l1_evicts_is_found_again_and_by_the_next_server_too),
		cmocka_unit_test(a_sick_place_is_shown_and_taken_in_again_when_it_is_well),
		cmocka_unit_test(a_sick_place_makes_the_server_unready_where_that_is_asked_for),
		cmocka_unit_test(what_a_server_of_others_keeps_is_shown_as_unknown),
		cmocka_unit_test(the_operator_clears_l1_or_all),
		cmocka_unit_test(a_place_that_cannot_be_used_is_named_with_the_reason),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
