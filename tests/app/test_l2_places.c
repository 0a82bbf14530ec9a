/* --l2 redis: and s3: from the text to the open place: where credentials and passwords come from, and what is said when they are not there.
 * Nothing listens at 127.0.0.1:1. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/kvraild/l2_places.h"
#include "base/cmocka_all.h"

static char folder[] = "/tmp/kvrail-places-XXXXXX";
static char file[64];

static void write_file(const char *text, mode_t mode)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* Reads the item, opens the place, and closes it. 0, or the error with its text. */
static int try_place(const char *item, char *error, size_t size)
{
	struct option_error refused;
	struct l2_place_plan plan;
	struct l2_adapter *adapter;
	int result = l2_place_read(item, &plan, &refused);

	if (result)
		print_error("%s\n", refused.text);
	assert_int_equal(result, 0);
	error[0] = '\0';
	result = l2_place_open(&plan, NULL, 0, &adapter, error, size);
	if (result == -EOPNOTSUPP) /* a build without the library */
		return 0;
	if (!result)
		adapter->driver->close(adapter);
	return result;
}

static void opens(const char *item)
{
	char error[400];

	assert_int_equal(try_place(item, error, sizeof(error)), 0);
}

static void is_refused(const char *item, int expected, const char *text)
{
	char error[400];

	assert_int_equal(try_place(item, error, sizeof(error)), expected);
	assert_string_equal(error, text);
}

static int begin(void **state)
{
	static const char *const names[] = { "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
		"AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SHARED_CREDENTIALS_FILE",
		"KVRAIL_REDIS_PASSWORD" };

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(names); i++)
		unsetenv(names[i]);
	return setenv("HOME", folder, 1);
}

static void a_bucket_takes_its_credentials_from_the_environment_first(void **state)
{
	(void)state;
	setenv("AWS_ACCESS_KEY_ID", "key", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
	opens("s3:bucket/prefix?endpoint=http://127.0.0.1:1&compress=zstd:3&read-only=yes");
	setenv("AWS_SESSION_TOKEN", "token", 1);
	setenv("AWS_DEFAULT_REGION", "eu-west-1", 1);
	opens("s3:bucket?endpoint=http://127.0.0.1:1");
}

static void a_secret_of_the_environment_that_is_too_long_is_refused(void **state)
{
	char *text = calloc(1, 8192);

	(void)state;
	memset(text, 'x', 8191);
	setenv("AWS_ACCESS_KEY_ID", text, 1);
	setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
	is_refused("s3:bucket?endpoint=http://127.0.0.1:1", -EINVAL,
		"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_SESSION_TOKEN is too long");
	setenv("AWS_ACCESS_KEY_ID", "key", 1);
	setenv("AWS_REGION", text, 1);
	is_refused("s3:bucket?endpoint=http://127.0.0.1:1", -EINVAL, "the region has at most 63 characters");
	free(text);
}

static void a_bucket_takes_the_profile_that_is_named(void **state)
{
	char item[300];

	(void)state;
	write_file(
		"[default]\naws_access_key_id = a\naws_secret_access_key = b\n[half]\naws_access_key_id = c\n", 0600);
	snprintf(item, sizeof(item), "s3:bucket?endpoint=http://127.0.0.1:1&credentials-file=%s", file);
	opens(item);
	setenv("AWS_SHARED_CREDENTIALS_FILE", file, 1);
	opens("s3:bucket?endpoint=http://127.0.0.1:1&profile=default");
	setenv("AWS_PROFILE", "nobody", 1);
	snprintf(item, sizeof(item), "%s: there is no profile nobody", file);
	is_refused("s3:bucket?endpoint=http://127.0.0.1:1", -EINVAL, item);
	snprintf(item, sizeof(item), "%s: aws_access_key_id or aws_secret_access_key is missing in half", file);
	is_refused("s3:bucket?endpoint=http://127.0.0.1:1&profile=half", -EINVAL, item);
}

static void a_bucket_without_credentials_says_where_they_were_looked_for(void **state)
{
	char text[300];

	(void)state;
	snprintf(text, sizeof(text),
		"no credentials: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, nor %s/.aws/credentials: No such file or directory",
		folder);
	is_refused("s3:bucket?endpoint=http://127.0.0.1:1", -EACCES, text);
}

static void a_redis_server_takes_its_password_from_a_file_or_the_environment(void **state)
{
	char item[300];

	(void)state;
	opens("redis:127.0.0.1:1");
	setenv("KVRAIL_REDIS_PASSWORD", "secret", 1);
	opens("redis:127.0.0.1:1?user=kvrail&compress=zstd:1");
	setenv("OTHER_PASSWORD", "secret", 1);
	opens("redis:127.0.0.1:1?password-env=OTHER_PASSWORD");
	write_file("secret\n", 0600);
	snprintf(item, sizeof(item), "redis:127.0.0.1:1?password-file=%s", file);
	opens(item);
}

static void a_password_that_is_not_there_or_open_to_all_is_refused(void **state)
{
	char item[300], error[400], *text = calloc(1, 512);

	(void)state;
	unsetenv("OTHER_PASSWORD");
	is_refused("redis:127.0.0.1:1?password-env=OTHER_PASSWORD", -EINVAL,
		"password-env: there is no OTHER_PASSWORD in the environment");
	memset(text, 'x', 511);
	setenv("OTHER_PASSWORD", text, 1);
	is_refused("redis:127.0.0.1:1?password-env=OTHER_PASSWORD", -EINVAL,
		"password-env: OTHER_PASSWORD is longer than 255 characters");
	free(text);
	write_file("secret\n", 0644);
	snprintf(item, sizeof(item), "redis:127.0.0.1:1?password-file=%s", file);
	(void)try_place(item, error, sizeof(error)); /* a warning at the most */
	write_file("", 0600);
	assert_int_equal(try_place(item, error, sizeof(error)), -EINVAL);
	assert_true(strstr(error, "password-file"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_bucket_takes_its_credentials_from_the_environment_first, begin),
		cmocka_unit_test_setup(a_secret_of_the_environment_that_is_too_long_is_refused, begin),
		cmocka_unit_test_setup(a_bucket_takes_the_profile_that_is_named, begin),
		cmocka_unit_test_setup(a_bucket_without_credentials_says_where_they_were_looked_for, begin),
		cmocka_unit_test_setup(a_redis_server_takes_its_password_from_a_file_or_the_environment, begin),
		cmocka_unit_test_setup(a_password_that_is_not_there_or_open_to_all_is_refused, begin),
	};
	int failed;

	if (!mkdtemp(folder))
		return 1;
	snprintf(file, sizeof(file), "%s/file", folder);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(file);
	rmdir(folder);
	return failed;
}
