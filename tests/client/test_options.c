/* test_options.c - what kvr_open refuses before it has spoken to anybody, and its words. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cmocka_all.h"
#include "client/house.h"

static void refused(const struct kvr_options *options, int error, const char *words)
{
	struct kvr_client *client = NULL;
	int result = kvr_open(options, &client);

	if (result != error || !strstr(kvr_error_text(), words))
		fail_msg("%d \"%s\", expected %d with \"%s\"", result, kvr_error_text(), error, words);
	assert_null(client);
}

static struct kvr_options options_for(const char *url)
{
	struct kvr_options options = KVR_OPTIONS_INIT;

	options.url = url;
	return options;
}

static void options_without_their_size_are_refused(void **state)
{
	struct kvr_options options = options_for("unix:/nonexistent/socket");

	(void)state;
	options.struct_bytes = 0;
	refused(&options, -EINVAL, "KVR_OPTIONS_INIT");
	options.struct_bytes = sizeof(options) - 1;
	refused(&options, -EINVAL, "KVR_OPTIONS_INIT");
}

static void urls_that_are_none_are_quoted(void **state)
{
	static const char *const urls[] = { "", "unix:", "http://host", "kvrail://", "kvrail://host:99999", "/a/path",
		"kvrail://host:7471/and/more" };

	(void)state;
	for (unsigned i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
		struct kvr_options options = options_for(urls[i]);
		char quoted[128];

		snprintf(quoted, sizeof(quoted), "\"%s\"", urls[i]);
		refused(&options, -EINVAL, quoted);
	}
}

static void the_environment_names_the_server_when_the_options_do_not(void **state)
{
	struct kvr_options options = KVR_OPTIONS_INIT;

	(void)state;
	setenv("KVRAIL_URL", "unix:/nonexistent/from-the-environment", 1);
	refused(NULL, -ENOENT, "from-the-environment");
	refused(&options, -ENOENT, "from-the-environment");
	options.url = "unix:/nonexistent/from-the-options";
	refused(&options, -ENOENT, "from-the-options");
	unsetenv("KVRAIL_URL");
}

static void a_socket_that_nobody_listens_on_is_a_refused_connection(void **state)
{
	struct house house;
	struct kvr_client *client;
	struct kvr_options options;

	(void)state;
	house_open(&house);
	client = house_client(&house, "first");
	kvr_close(&client);
	assert_null(client);
	kvr_close(&client); /* harmless */
	house_kill_server(&house);
	options = options_for(house.url);
	refused(&options, -ECONNREFUSED, house.url);
	house_start_server(&house);
	client = house_client(&house, "second");
	kvr_close(&client);
	house_close(&house);
}

static void long_names_are_refused_by_the_name_of_the_option(void **state)
{
	static char name[300];
	struct kvr_options options = options_for("unix:/nonexistent/socket");

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	options.name = name;
	refused(&options, -EINVAL, "options.name");
	options.name = NULL;
	options.tenant = name;
	refused(&options, -EINVAL, "options.tenant");
}

static void key_files_that_are_no_secrets_are_named(void **state)
{
	char path[] = "/tmp/kvrail-key-XXXXXX";
	struct kvr_options options = options_for("unix:/nonexistent/socket");
	char line[400];
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	options.key_file = path;
	refused(&options, -EINVAL, "belong together");
	options.key_name = "key";
	refused(&options, -EINVAL, path); /* empty */
	assert_int_equal(write(fd, "\nsecond line\n", 13), 13);
	refused(&options, -EINVAL, "first line");
	memset(line, 's', sizeof(line));
	assert_int_equal(pwrite(fd, line, sizeof(line), 0), (ssize_t)sizeof(line));
	refused(&options, -EINVAL, "1 to 256 bytes");
	assert_int_equal(pwrite(fd, "sixteen bytes or\n", 17, 0), 17);
	refused(&options, -ENOENT, "/nonexistent/socket"); /* good: the next thing is wrong */
	if (getuid() != 0) {
		assert_int_equal(chmod(path, 0), 0);
		refused(&options, -EACCES, path);
	}
	options.key_file = "/tmp";
	refused(&options, -EISDIR, "/tmp");
	options.key_file = "/nonexistent/key";
	refused(&options, -ENOENT, "/nonexistent/key");
	options.key_file = NULL;
	refused(&options, -EINVAL, "belong together");
	close(fd);
	unlink(path);
}

static void another_tenant_than_the_servers_is_refused(void **state)
{
	struct house house;
	struct kvr_client *client;
	struct kvr_options options;
	struct kvr_info info;

	(void)state;
	house_open(&house);
	client = house_client(&house, "first");
	assert_int_equal(kvr_get_info(client, &info), 0);
	assert_string_equal(info.tenant, "default");
	assert_string_equal(info.driver, "local");
	assert_int_equal(info.chunk_tokens, HOUSE_CHUNK_TOKENS);
	assert_true(info.in_flight > 0);
	options = options_for(house.url);
	options.tenant = "somebody";
	refused(&options, -EPERM, "somebody");
	options.tenant = "default";
	options.in_flight = 1;
	kvr_close(&client);
	assert_int_equal(kvr_open(&options, &client), 0);
	assert_int_equal(kvr_get_info(client, &info), 0);
	assert_int_equal(info.in_flight, 1);
	assert_int_equal(kvr_ping(client, 0), 0);
	kvr_close(&client);
	house_close(&house);
}

static void memory_calls_refuse_what_is_not_theirs(void **state)
{
	struct house house;
	struct kvr_client *client;
	uint32_t registration;
	void *memory, *none;

	(void)state;
	house_open(&house);
	client = house_client(&house, "memory");
	assert_int_equal(kvr_alloc(client, 0, &none), -EINVAL);
	assert_int_equal(kvr_alloc(client, SIZE_MAX - 5, &none), -ENOMEM);
	assert_int_equal(kvr_alloc(client, HOUSE_POOL_BYTES, &memory), 0);
	assert_int_equal(kvr_free(client, (char *)memory + 4096), -EINVAL);
	assert_int_equal(kvr_free(client, NULL), -EINVAL);
	registration = house_register(client, memory);
	assert_int_equal(kvr_free(client, memory), -EBUSY);
	assert_non_null(strstr(kvr_error_text(), "kvr_unregister"));
	assert_int_equal(kvr_unregister(client, registration), 0);
	assert_int_equal(kvr_unregister(client, registration), -ENODEV);
	assert_int_equal(kvr_free(client, memory), 0);
	assert_int_equal(kvr_free(client, memory), -EINVAL);
	assert_int_equal(kvr_ping(client, 0), 0);
	kvr_close(&client);
	house_close(&house);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_without_their_size_are_refused),
		cmocka_unit_test(urls_that_are_none_are_quoted),
		cmocka_unit_test(the_environment_names_the_server_when_the_options_do_not),
		cmocka_unit_test(a_socket_that_nobody_listens_on_is_a_refused_connection),
		cmocka_unit_test(long_names_are_refused_by_the_name_of_the_option),
		cmocka_unit_test(key_files_that_are_no_secrets_are_named),
		cmocka_unit_test(another_tenant_than_the_servers_is_refused),
		cmocka_unit_test(memory_calls_refuse_what_is_not_theirs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
