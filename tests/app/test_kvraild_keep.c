/* kvraild --l1-keep as an operator meets it: killed, and full again after its start. */
#include "app/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/small_engine.h"
#include "base/cmocka_all.h"

#define CHUNKS SMALL_CHUNKS

static void remove_kept(const char *folder)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/index", folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/l1.0", folder);
	unlink(path);
	assert_int_equal(rmdir(folder), 0);
}

static void make_folder(char folder[64])
{
	strcpy(folder, "/dev/shm/kvrail-test-XXXXXX");
	assert_non_null(mkdtemp(folder));
}

static void a_server_that_was_killed_and_one_that_left_are_followed_by_a_full_one(void **state)
{
	static const int ends[] = { SIGKILL, SIGTERM };
	struct server_process server;
	struct small_engine engine;
	char folder[64];

	(void)state;
	make_folder(folder);
	SERVER_START(&server, "--l1-keep", folder);
	small_engine_join(&engine, &server, 7);
	small_engine_expects(&engine, 0);
	assert_int_equal(small_engine_store(&engine, NULL), CHUNKS);
	small_engine_leave(&engine);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(server_process_stop(&server, ends[i]), ends[i] == SIGKILL ? 128 + SIGKILL : 0);
		unlink(server.socket);
		server_process_clean(&server);
		SERVER_START(&server, "--l1-keep", folder);
		assert_int_equal(server_process_logged(&server, "6 objects of the server before are in L1 again"), 1);
		small_engine_join(&engine, &server, 7);
		small_engine_expects(&engine, CHUNKS);
		small_engine_leave(&engine);
	}
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
	remove_kept(folder);
}

static void what_cannot_be_used_is_refused_with_what_to_do(void **state)
{
	struct text words = { NULL, 0, 0, false };
	struct server_process server;
	char folder[64], socket[128];

	(void)state;
	make_folder(folder);
	SERVER_START(&server, "--l1-keep", folder);
	snprintf(socket, sizeof(socket), "%s/second", server.folder);
	assert_int_equal(PROCESS_RUN("kvraild", NULL, &words, "--socket", socket, "--http", "off", "--l1-size", "16MiB",
				 "--cores", "any", "--l1-keep", folder),
		1);
	assert_non_null(strstr(words.bytes, "is used by another server"));
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	words.length = 0;
	assert_int_equal(PROCESS_RUN("kvraild", NULL, &words, "--socket", socket, "--http", "off", "--l1-size", "32MiB",
				 "--cores", "any", "--l1-keep", folder),
		1);
	assert_non_null(strstr(words.bytes, "another size"));
	assert_non_null(strstr(words.bytes, "/index to begin with an empty cache"));
	words.length = 0;
	assert_int_equal(chmod(folder, 0777), 0);
	assert_int_equal(PROCESS_RUN("kvraild", NULL, &words, "--socket", socket, "--http", "off", "--l1-size", "16MiB",
				 "--cores", "any", "--l1-keep", folder),
		1);
	assert_non_null(strstr(words.bytes, "writable by nobody else"));
	text_fini(&words);
	assert_true(server_process_clean(&server));
	remove_kept(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_server_that_was_killed_and_one_that_left_are_followed_by_a_full_one),
		cmocka_unit_test(what_cannot_be_used_is_refused_with_what_to_do),
	};

	if (access("/dev/shm", W_OK) != 0) {
		printf("no /dev/shm to write to: skipped\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
