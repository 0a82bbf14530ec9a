/* test_example.c - docs/examples/hello.c does what it says: the second run finds what the first one stored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cmocka_all.h"
#include "client/house.h"

#define main example_main
int main(void);
#include "../../docs/examples/hello.c"
#undef main

/* What example_main writes to stdout. */
static void run(char *output, size_t size)
{
	char path[] = "/tmp/kvrail-example-XXXXXX";
	int file = mkstemp(path), before;
	ssize_t length;

	assert_true(file >= 0);
	unlink(path);
	fflush(stdout);
	before = dup(STDOUT_FILENO);
	assert_true(before >= 0);
	dup2(file, STDOUT_FILENO);
	if (example_main())
		fail_msg("the example failed: %s", kvr_error_text());
	fflush(stdout);
	dup2(before, STDOUT_FILENO);
	close(before);
	length = pread(file, output, size - 1, 0);
	close(file);
	assert_true(length >= 0);
	output[length] = '\0';
}

static void the_second_run_finds_what_the_first_one_stored(void **state)
{
	struct kvr_client *client;
	struct house house;
	char output[512];

	(void)state;
	house_open(&house);
	client = house_client(&house, "so that it stands");
	kvr_close(&client);
	setenv("KVRAIL_URL", house.url, 1);
	run(output, sizeof(output));
	assert_string_equal(output, "0 of 32 tokens are cached\n2 chunks stored\n");
	run(output, sizeof(output));
	assert_string_equal(output, "32 of 32 tokens are cached\n2 chunks retrieved\n");
	unsetenv("KVRAIL_URL");
	house_close(&house);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_second_run_finds_what_the_first_one_stored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
