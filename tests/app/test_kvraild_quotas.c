/* kvraild --quota as an operator meets it: turned on for a cache that is full, and the words about it. */
#include "app/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/small_engine.h"
#include "base/cmocka_all.h"

#define NO_QUOTA 17u

static void make_folder(char folder[64])
{
	strcpy(folder, "/dev/shm/kvrail-test-XXXXXX");
	assert_non_null(mkdtemp(folder));
}

static void remove_kept(const char *folder)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/index", folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/l1.0", folder);
	unlink(path);
	assert_int_equal(rmdir(folder), 0);
}

static void stop(struct server_process *server)
{
	assert_int_equal(server_process_stop(server, SIGTERM), 0);
	assert_true(server_process_clean(server));
}

/* pitfalls F03 */
static void turning_quotas_on_drops_nothing_of_tenants_that_are_not_listed_and_names_them(void **state)
{
	struct server_process server;
	struct small_engine engine;
	char folder[64];

	(void)state;
	make_folder(folder);
	SERVER_START(&server, "--l1-keep", folder);
	small_engine_join(&engine, &server, 7);
	assert_int_equal(small_engine_store(&engine, NULL), SMALL_CHUNKS);
	small_engine_leave(&engine);
	stop(&server);

	/* Another tenant gets a quota; ours is not listed and has none. */
	SERVER_START(&server, "--l1-keep", folder, "--tenant", "other", "--quota", "other=1MiB:2MiB");
	assert_int_equal(
		server_process_logged(&server,
			"tenant default has no quota of its own and holds 96.00 KiB (98304 bytes): the default "
			"holds, soft none, hard none; nothing is dropped"),
		1);
	small_engine_join(&engine, &server, 7);
	small_engine_expects(&engine, SMALL_CHUNKS);
	small_engine_leave(&engine);
	stop(&server);

	/* A default that is below what it holds is said, and keeps new chunks out, or the old ones; never both, and never at once. */
	SERVER_START(&server, "--l1-keep", folder, "--default-quota", "none:64KiB");
	assert_int_equal(server_process_logged(&server,
				 "tenant default holds 96.00 KiB (98304 bytes), above its hard limit of 64.00 KiB"),
		1);
	small_engine_join(&engine, &server, 7);
	small_engine_expects(&engine, SMALL_CHUNKS);
	small_engine_leave(&engine);
	stop(&server);
	remove_kept(folder);
}

static void a_store_past_the_quota_is_told_so(void **state)
{
	struct server_process server;
	struct small_engine engine;
	struct kvr_result result = { 0 };

	(void)state;
	SERVER_START(&server, "--default-quota", "none:64KiB");
	small_engine_join(&engine, &server, 7);
	assert_int_equal(small_engine_store(&engine, &result), 0);
	assert_int_equal(result.error, -EDQUOT);
	assert_int_equal(result.status, NO_QUOTA);
	small_engine_expects(&engine, 0);
	small_engine_leave(&engine);
	stop(&server);
}

static void quotas_that_make_no_sense_are_refused_with_what_to_write(void **state)
{
	static const struct {
		const char *option, *value, *words;
	} cases[] = {
		{ "--quota", "a=1GiB:2GiB", "there is no such tenant; give it as --tenant too" },
		{ "--quota", "default", "write TENANT=SOFT:HARD" },
		{ "--quota", "default=1GiB", "write SOFT:HARD, each a size as 4GiB, or none" },
		{ "--quota", "default=2GiB:1GiB", "the soft limit is above the hard one" },
		{ "--quota", "default=none:0", "write none for no limit" },
		{ "--quota", "default=1MB:none", "MB is a decimal unit, write MiB" },
		{ "--default-quota", "4GiB", "write SOFT:HARD, each a size as 4GiB, or none" },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		struct text words = { NULL, 0, 0, false };

		assert_int_equal(
			PROCESS_RUN("kvraild", NULL, &words, "--check-config", cases[i].option, cases[i].value), 2);
		if (!words.bytes || !strstr(words.bytes, cases[i].words) || !strstr(words.bytes, cases[i].option))
			fail_msg("%s %s: %s", cases[i].option, cases[i].value, words.bytes);
		text_fini(&words);
	}
	assert_int_equal(PROCESS_RUN("kvraild", NULL, NULL, "--check-config", "--quota", "default=none:1GiB"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(turning_quotas_on_drops_nothing_of_tenants_that_are_not_listed_and_names_them),
		cmocka_unit_test(a_store_past_the_quota_is_told_so),
		cmocka_unit_test(quotas_that_make_no_sense_are_refused_with_what_to_write),
	};

	if (access("/dev/shm", W_OK) != 0) {
		printf("no /dev/shm to write to: skipped\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
