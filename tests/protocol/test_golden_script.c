/*
 * The golden files are what Python makes of the documented format, in a process of its own and with another hash seed each time.
 * The C side of the comparison is test_golden.c, test_encode.c and test_digest.c. pitfalls E03
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

static void python_makes_the_same_messages_and_digests(void **state)
{
	int status;

	(void)state;
	if (system("python3 -c pass") != 0)
		skip(); /* the C side is tested all the same */
	for (int i = 0; i < 2; i++) {
		status = system("PYTHONHASHSEED=random python3 -B '" KVRAIL_SOURCE_DIR "/tests/wire/golden.py'");
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(python_makes_the_same_messages_and_digests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
