/*
 * kvraild and kvrail-bench with the clients' pages on a GPU, as processes, over the fake library: all bytes are right, and the copy
 * engine's rate stands beside.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "app/process.h"

static struct server_process server;
static char url[128];

/* Both find the fake by the name of the real one. */
static int with_fake(void **state)
{
	(void)state;
	if (setenv("LD_LIBRARY_PATH", KVRAIL_TEST_DIR "/fake_cuda", 1))
		return -1;
	SERVER_START(&server, "--gpu", "on", "--l1-size", "64MiB", "--log-level", "warn");
	snprintf(url, sizeof(url), "unix:%s", server.socket);
	return 0;
}

static int without_fake(void **state)
{
	int code = server_process_stop(&server, SIGTERM);

	(void)state;
	unsetenv("LD_LIBRARY_PATH");
	return code == 0 && server_process_clean(&server) ? 0 : -1;
}

static double number_of(const struct text *out, const char *name)
{
	const char *at = out->bytes ? strstr(out->bytes, name) : NULL;

	if (!at)
		fail_msg("no %s in: %s", name, out->bytes ? out->bytes : "");
	return at ? strtod(at + strlen(name), NULL) : 0;
}

static void pages_on_a_gpu_are_right_and_the_bus_stands_beside(void **state)
{
	static const char *const ops[] = { "retrieve", "store", "mixed" };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct text out = { NULL, 0, 0, false };

		assert_int_equal(PROCESS_RUN("kvrail-bench", &out, NULL, "load", "--server", url, "--op", ops[i],
					 "--memory", "gpu", "--size", "4KiB", "--planes", "2", "--chunks", "2", "--set",
					 "4MiB", "--clients", "2", "--seconds", "1", "--rounds", "2", "--json", "-"),
			0);
		assert_true(number_of(&out, "\"operations_per_second\": ") > 0);
		assert_true(number_of(&out, "\"errors\": ") == 0);
		assert_true(number_of(&out, "\"mismatched_bytes\": ") == 0);
		if (i != 1)
			assert_true(number_of(&out, "\"verified_bytes\": ") >= 2 << 20);
		assert_true(number_of(&out, "\"bus_to_gpu_gbps\": ") > 0);
		assert_true(number_of(&out, "\"bus_to_host_gbps\": ") > 0);
		assert_true(number_of(&out, "\"bus\": ") > 0);
		assert_non_null(strstr(out.bytes, "\"memcpy_gbps\": null"));
		assert_non_null(strstr(out.bytes, "\"memory\": \"gpu\""));
		text_fini(&out);
	}
}

static void a_gpu_that_is_not_there_is_said(void **state)
{
	struct text error = { NULL, 0, 0, false };

	(void)state;
	assert_int_equal(PROCESS_RUN("kvrail-bench", NULL, &error, "load", "--server", url, "--op", "retrieve",
				 "--memory", "gpu", "--gpu", "7", "--size", "4KiB", "--set", "1MiB"),
		1);
	assert_non_null(strstr(error.bytes, "there is no such GPU (--gpu)"));
	text_fini(&error);
	error = (struct text){ NULL, 0, 0, false };
	assert_int_equal(
		PROCESS_RUN("kvrail-bench", NULL, &error, "load", "--server", url, "--op", "ping", "--memory", "gpu"),
		2);
	assert_non_null(strstr(error.bytes, "--memory gpu is for what moves bytes"));
	text_fini(&error);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_on_a_gpu_are_right_and_the_bus_stands_beside),
		cmocka_unit_test(a_gpu_that_is_not_there_is_said),
	};

	return cmocka_run_group_tests(tests, with_fake, without_fake);
}
